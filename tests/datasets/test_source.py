"""Test that records depend on bytes, format and options, not on paths or times."""

import gzip
import hashlib
import os
import shutil
import stat

import numpy as np
import pytest

from dp_erm_bench import fit, load_problem
from dp_erm_bench.datasets import file, libsvm
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.parameters import problem_named
from dp_erm_bench.paths import cache_dir
from dp_erm_bench.runner.execute import run_batch
from tests.contract.own import SOUND

ONE = b"a,b,y\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n"
OTHER = b"a,b,y\n9,2,0\n3,4,1\n5,6,0\n7,8,1\n"
SVMLIGHT = b"1 1:1 2:2\n-1 1:3 2:4\n1 1:5 2:6\n"
HOW = {"loss": "logistic", "penalty": {"name": "l2", "strength": 0.1}}


def problem(path, **keys):
    return load_problem("file", path=str(path), **{**HOW, **keys})


def stored():
    """Return the folders of prepared records."""
    return {one.name for one in (cache_dir() / "datasets").glob("*")}


def put(path, content, like=None):
    """Write a file in its place; with size and time of modification of another one."""
    path.write_bytes(content)
    if like is not None:
        assert path.stat().st_size == like.st_size
        os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))
    return path


def in_place(path, content):
    put(path, content, path.stat())


def by_a_move(path, content):
    before, other = path.stat(), path.with_suffix(".part")
    put(other, content, before)
    os.replace(other, path)


@pytest.mark.parametrize("change", [in_place, by_a_move])
@pytest.mark.parametrize("age", [0.0, 3600.0])
def test_other_content_of_equal_size_and_time_is_read(change, age, tmp_path):
    """Also where its digest was believed already: it is an old file."""
    path = put(tmp_path / "data.csv", ONE)
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    first = problem(path)
    assert problem(path).dataset is first.dataset
    change(path, OTHER)
    other = problem(path)
    assert (first.dataset.X[0, 0], other.dataset.X[0, 0]) == (1.0, 9.0)
    assert first.identity != other.identity
    change(path, ONE)
    assert problem(path).identity == first.identity
    assert len(stored()) == 2


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path, read = put(tmp_path / "data.csv", ONE), file.decompress_file

    def late(*given):
        content = read(*given)
        in_place(path, OTHER)
        return content

    with monkeypatch.context() as patched:
        patched.setattr(file, "decompress_file", late)
        with pytest.raises(UsageError, match="was changed while it was read; repeat"):
            problem(path)
    assert not stored()
    found = problem(path)
    in_place(path, ONE)
    assert (found.dataset.X[0, 0], problem(path).dataset.X[0, 0]) == (9.0, 1.0)


def test_what_is_touched_copied_moved_or_linked_keeps_its_keys(tmp_path):
    path = put(tmp_path / "data.csv", ONE)
    found = {problem(path).identity}
    path.touch()
    found.add(problem(path).identity)
    found.add(problem(shutil.copy(path, tmp_path / "copy.csv")).identity)
    found.add(problem(path.rename(tmp_path / "moved.csv")).identity)
    (tmp_path / "link.csv").symlink_to("moved.csv")
    found.add(problem(tmp_path / "link.csv").identity)
    found.add(
        problem(shutil.copy(tmp_path / "moved.csv", tmp_path / "x"), format="csv")
    )
    same = {one if isinstance(one, str) else one.dataset.content_hash for one in found}
    assert len(stored()) == 1 and len(same) == 2


def test_a_relative_path_is_that_of_the_folder_it_is_said_in(tmp_path, monkeypatch):
    objective = ("logistic", HOW["penalty"], "none")
    firsts, planned = [], []
    for name, content in (("one", ONE), ("two", OTHER), ("one", ONE)):
        (tmp_path / name).mkdir(exist_ok=True)
        put(tmp_path / name / "data.csv", content)
        monkeypatch.chdir(tmp_path / name)
        firsts.append(problem("data.csv").dataset.X[0, 0])
        planned.append(problem_named("file", {"path": "data.csv"}, *objective))
    assert firsts == [1.0, 9.0, 1.0]
    assert [one.dataset.X[0, 0] for one in planned] == firsts
    assert planned[0].identity == planned[2].identity != planned[1].identity


def test_names_of_columns_are_those_of_what_was_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "data.csv", ONE)
    was = problem("data.csv")
    put(tmp_path / "data.csv", ONE.replace(b"a,b", b"c,d"))
    now = problem("data.csv")
    monkeypatch.chdir("/")
    how = {"epsilon": 1.0, "delta": 1e-3, "n_iter": 1, "clip": 1.0, "step": 1.0}
    for given, names in ((was, ("a", "b")), (now, ("c", "d"))):
        assert fit(given, "gd", seed=0, **how).feature_names == names


@pytest.mark.parametrize("first", [True, False])
def test_what_is_no_gzip_is_refused_whatever_was_read_before(first, tmp_path):
    packed, plain = (put(tmp_path / name, ONE) for name in ("z.csv.gz", "z.csv"))
    for path in (plain, packed) if first else (packed, plain):
        if path is plain:
            assert problem(path).n == 4
            continue
        for keys in ({}, {"format": "csv"}):
            with pytest.raises(UsageError, match="is not a whole csv file"):
                problem(path, **keys)


def test_a_format_is_part_of_what_was_read(tmp_path):
    content, files = gzip.compress(ONE, mtime=0), ("z.csv.gz", "z.csv")
    packed, plain = (put(tmp_path / name, content) for name in files)
    assert problem(packed).n == 4
    with pytest.raises(UsageError, match="is not a whole csv file"):
        problem(plain)
    svm = put(tmp_path / "data.svm", SVMLIGHT)
    assert problem(svm).p == 2
    for keys in ({"format": "csv"}, {"format": "npz"}):
        with pytest.raises(UsageError, match=f"{keys['format']} file|has one column"):
            problem(svm, **keys)
    named = put(tmp_path / "data.txt", SVMLIGHT)
    before = stored()
    assert problem(named, format="svmlight").p == 2 and stored() == before


WORDS = b"a,b,hue,y\n1,2,red,1\n3,4,blue,2\n5,6,red,1\n7,8,blue,2\n"
HUE = {"hue": ["red", "blue"]}
DECIDE = [
    {},
    {"content": WORDS.replace(b"7,8", b"7,9")},
    {"label": "a", "task": "regression"},
    {"header": True},
    {"onehot": {"hue": ["blue", "red"]}},
    {"onehot": {"hue": ["red", "blue", "green"]}},
    {"onehot": ["hue"]},
    {"p": 4},
    {"positive": [1]},
    {"classes": [1, 2]},
    {"classes": [1, 2, 3], "positive": [2]},
    {"task": "regression"},
    {"standardise": True},
    {"standardise": "scale"},
    {"test_fraction": 0.5},
    {"test_fraction": 0.5, "seed": 1},
    {"drop_empty": True},
    {"densify": True},
    {"intercept": 1.0},
    {"bounds": {"columns": 4}, "clip_to_bounds": True},
    {"bounds": {"columns": 4, "norm": 2}, "clip_to_bounds": True},
    {"bounds": {"columns": 4, "nonzeros": 2}, "clip_to_bounds": True},
    {"bounds": {"columns": {"a": 4}, "default": 9}, "clip_to_bounds": True},
    {"bounds": {"columns": {"a": 9}, "default": 9}, "scale": "bounds"},
    {"bounds": {"columns": {"a": [0, 9]}, "default": 9}, "scale": "bounds"},
]


def test_each_thing_that_decides_has_prepared_records_of_its_own(tmp_path):
    keys, records = [], []
    for changes in DECIDE:
        given = {"content": WORDS, "onehot": HUE, **changes}
        path, before = put(tmp_path / "data.csv", given.pop("content")), stored()
        found = load_dataset(dataset_spec("file", path=str(path), **given))
        keys += stored() - before
        records.append((found.X.tobytes(), found.y.tobytes(), found.content_hash))
        assert len(keys) == len(records), changes
    # Each of them is found again, in whatever order.
    for changes, expected in reversed([*zip(DECIDE, records, strict=True)]):
        given = {"content": WORDS, "onehot": HUE, **changes}
        path = put(tmp_path / "data.csv", given.pop("content"))
        found = load_dataset(dataset_spec("file", path=str(path), **given))
        again = (found.X.tobytes(), found.y.tobytes(), found.content_hash)
        assert again == expected, changes
    assert stored() == {*keys}


def test_which_column_a_bound_is_of_is_in_the_identity(tmp_path):
    path, bounds = tmp_path / "data.csv", {"columns": {"a": 10, "b": 20}}
    one = problem(put(path, ONE), bounds=bounds)
    other = problem(put(path, ONE.replace(b"a,b", b"b,a")), bounds=bounds)
    assert one.dataset.bounds.columns.tolist() == [10.0, 20.0]
    assert other.dataset.bounds.columns.tolist() == [20.0, 10.0]
    assert one.dataset.content_hash == other.dataset.content_hash
    assert one.identity != other.identity


def test_files_of_numbers_decide_by_what_they_hold(tmp_path, monkeypatch):
    corners = np.array([[1.0, 0.0], [0.0, 1.0]])
    found = []
    for name, scale in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        put(tmp_path / name / "data.csv", ONE)
        np.save("vertices.npy", scale * corners)
        space = {"name": "polytope", "vertices": "vertices.npy"}
        posed = ("file", {"path": "data.csv"}, "logistic", HOW["penalty"], space)
        found.append(problem_named(*posed))
    np.save("vertices.npy", 3.0 * corners)
    found.append(problem_named(*posed))
    radii = [np.max(one.constraint.points) for one in found]
    assert radii == [1.0, 2.0, 3.0] and len({one.identity for one in found}) == 3


def trials(path, **changes):
    block = {"dataset": {"name": "file", "path": str(path)}, **HOW, "seed": 0}
    (line,), _ = expand_blocks(
        [{**block, "algorithm": {"name": "gd", "clip": 1}, **changes}]
    )
    return [*line.sweep(2)]


def test_a_trial_runs_on_what_its_key_stands_for_or_not_at_all(tmp_path):
    path = put(tmp_path / "data.csv", ONE)
    planned, later = trials(path), trials(path, seed=1)
    (record,) = run_batch(planned)
    in_place(path, OTHER)
    # A worker that had read the data before has what the key stands for.
    (kept,) = run_batch(later)
    assert kept["status"] == "ok"
    (other,) = run_batch(trials(path))
    assert other["status"] == "ok" and other["key"] != record["key"]
    assert other["facts"]["optimum"] != record["facts"]["optimum"]
    in_place(path, OTHER.replace(b"9", b"5"))
    early = trials(path)
    in_place(path, ONE)
    (refused,) = run_batch(early)
    assert refused["status"] == "error"
    assert refused["message"].startswith("dataset file is another one (sha256 ")


def test_a_solver_s_file_is_what_it_holds_now_and_here(tmp_path, monkeypatch):
    data = problem(put(tmp_path / "data.csv", ONE))
    how = {"epsilon": 1.0, "delta": 1e-3, "seed": 0, "clip": 1.0}
    ends, changed = [], SOUND.replace("w - ", "w - 2.0 * ", 1)
    assert changed != SOUND
    for name, text in (("one", SOUND), ("two", changed), ("two", SOUND)):
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / name)
        (tmp_path / name / "sourced_gd.py").write_text(text)
        ends.append(fit(data, "sourced_gd.py", **how).w.tolist())
    assert ends[0] == ends[2] != ends[1]


def test_a_mirror_may_change_within_a_process(make_mirror, monkeypatch, tmp_path):
    monkeypatch.setattr(libsvm, "libsvm_catalogue", dict)
    wide, found = SVMLIGHT.replace(b" 2:", b" 100:"), []
    header = "name,file,sha256,libsvmdata_name,p,task,labels\n"

    def listed(folder, p, labels="-1;1", task="binary", file="toy"):
        digest = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        row = f"toy,{file},{digest},toy,{p},{task},{labels}\n"
        (folder / "MANIFEST.csv").write_text(header + row)
        data = load_dataset(dataset_spec("libsvm:toy"))
        found.append((data.p, data.uncharged, data.X.max()))

    folder = make_mirror({"toy": ("toy", wide)})
    for given in ((100,), (104,), ("",), (100, ""), (100, "-1;1", "regression")):
        listed(folder, *given)
    assert found == [
        *[(100, (), 6.0), (104, (), 6.0), (100, ("features",), 6.0)],
        *[(100, ("classes",), 6.0), (100, (), 6.0)],
    ]
    (folder / "toy.gz").write_bytes(wide)
    with pytest.raises(DataUnavailable, match="toy.gz: cannot be unpacked"):
        listed(folder, 100, file="toy.gz")
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "toy").write_bytes(wide.replace(b":6", b":7"))
    monkeypatch.setenv("DP_ERM_BENCH_DATA", str(other))
    listed(other, 100)
    monkeypatch.setenv("DP_ERM_BENCH_DATA", str(folder))
    listed(folder, 100)
    assert [one[2] for one in found[-2:]] == [7.0, 6.0]


def test_caches_are_their_user_s_alone(tmp_path, monkeypatch):
    path = put(tmp_path / "data.csv", ONE)
    path.chmod(0o600)
    umask = os.umask(0)
    try:
        before = problem(path)
        _ = before.optimum
        for wide in (False, True):
            folders = [cache_dir(), *cache_dir().rglob("*")]
            assert len(folders) > 5
            for one in folders if wide else ():
                one.chmod(0o777 if one.is_dir() else 0o644)
            # What lies there is found, and its folders are closed.
            other = "b.csv" if wide else "a.csv"
            assert problem(shutil.copy(path, tmp_path / other)).n == before.n
            for one in [cache_dir(), *(cache_dir() / "datasets").rglob("*")]:
                if one.is_dir() or not wide:
                    mode = stat.S_IMODE(one.stat().st_mode)
                    assert not mode & 0o077, (one, oct(mode))
    finally:
        os.umask(umask)
