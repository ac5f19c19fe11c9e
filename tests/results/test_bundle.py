"""A zip of a results folder is anyone's, and tells nothing of who made it."""

import getpass
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from dp_erm_bench.code_identity import digest_of_files
from dp_erm_bench.datasets.base import Uncharged
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins import names
from dp_erm_bench.results import bundle
from dp_erm_bench.results.bundle import (
    Mask,
    Source,
    Withheld,
    copied_out,
    keep_sources,
)
from dp_erm_bench.results.runs import write_run
from dp_erm_bench.results.store import Segment, copy_segments

OWN = "from beside import two\nimport json\n\nONE = two.HALF * 2\n"
GOOD = {"plan.jsonl": b"{}\n", "runs/1.json": b"{}"}


@pytest.fixture
def folder(tmp_path):
    """A results folder with the manifest of a run."""
    write_run(tmp_path / "results", {"run": "1"})
    return tmp_path / "results"


@pytest.fixture
def own(tmp_path):
    """A file of a user's own, which imports one of the modules beside it."""
    code = tmp_path / "code"
    (code / "beside").mkdir(parents=True)
    (code / "own.py").write_text(OWN)
    (code / "beside" / "__init__.py").write_text("")
    (code / "beside" / "two.py").write_text("HALF = 0.5\n")
    (code / "beside" / "not_imported.py").write_text("raise ValueError\n")
    (code / "secret.py").write_text("PASSWORD = 1\n")
    return code / "own.py"


def source_of(path):
    return Source("algorithm", path.stem, digest_of_files(names.sources(str(path))))


def kept(folder):
    every = (folder / "sources").rglob("*")
    return {str(p.relative_to(folder / "sources")) for p in every if p.is_file()}


def test_only_what_a_file_imports_is_kept_and_as_text(folder, own):
    keep_sources(folder, {str(own): "algorithm"}, {"mine.yaml": b"blocks: []\n"})
    found = {name.partition("/")[2] for name in kept(folder)}
    inside = {"own.py", "beside/__init__.py", "beside/two.py", "mine.yaml"}
    assert found == {f"{name}.txt" for name in inside}
    before = sorted(kept(folder))
    keep_sources(folder, {str(own): "algorithm"})
    assert sorted(kept(folder)) == before


def test_two_versions_are_kept_side_by_side(folder, own, tmp_path):
    versions = []
    for text in (OWN, OWN + "MORE = 1\n"):
        own.write_text(text)
        keep_sources(folder, {str(own): "algorithm"})
        versions.append(source_of(own))
    own.unlink()
    for version, text in zip(versions, (OWN, OWN + "MORE = 1\n"), strict=True):
        path = copied_out(folder, version, tmp_path / "fresh")
        assert path.read_text() == text
        assert (path.parent / "beside" / "two.py").is_file()
    for name in ("own", "a" * 5000, "../own", str(own)[:-3], "own\0", "\x1b[2J", ""):
        other = Source("algorithm", name, "0" * 64)
        assert copied_out(folder, other, tmp_path / "fresh") is None


@pytest.mark.parametrize(
    "text",
    [
        "# coding: latin-1\n# L\xe9on's\nONE = 1\n".encode("latin-1"),
        b"\xef\xbb\xbfONE = 1\r\n",
    ],
)
def test_a_source_is_kept_to_the_byte_in_any_encoding(folder, own, text, tmp_path):
    own.write_bytes(text)
    for _ in range(2):
        keep_sources(folder, {str(own): "algorithm"})
    path = copied_out(folder, source_of(own), tmp_path / "fresh")
    assert path.read_bytes() == text


def test_a_source_that_no_parser_reads_is_none(folder, own, tmp_path):
    deep = b"x = " + b"-" * 200_000 + b"1\n"
    name = hashlib.sha256(f"own {hashlib.sha256(deep).hexdigest()}".encode())
    kept = folder / "sources" / name.hexdigest()[:16]
    kept.mkdir(parents=True)
    (kept / "own.py.txt").write_bytes(deep)
    other = Source("algorithm", "own", "0" * 64)
    assert copied_out(folder, other, tmp_path / "fresh") is None
    own.write_bytes(deep)
    with pytest.raises(UsageError, match="own.py: cannot be imported"):
        names.sources(str(own))


def test_the_name_of_an_experiment_is_one_that_a_bundle_has(folder):
    keep_sources(folder, {}, {"mine (2).yaml": b"blocks: []\n"})
    (name,) = kept(folder)
    assert name.endswith("/mine _2_.yaml.txt")
    assert bundle.MEMBERS.fullmatch(f"sources/{name}")


def test_a_solver_of_a_package_is_named_with_it(monkeypatch):
    monkeypatch.setattr(bundle, "packages", lambda: {"offered": "outside 1.0"})
    specs = [{"algorithm": {"name": one}} for one in ("gd", "offered")]
    lines = [{"spec": spec} for spec in (*specs, {"task": {}})]
    assert bundle._others(lines) == {"offered": "outside 1.0"}


def test_what_was_kept_is_taken_wherever_it_is_found_too(
    folder, own, tmp_path, monkeypatch
):
    """As in the folder of the code itself, or where `beside` is installed."""
    keep_sources(folder, {str(own): "algorithm"})
    source = source_of(own)
    monkeypatch.syspath_prepend(own.parent)
    path = copied_out(folder, source, tmp_path / "fresh")
    assert names.sources(str(path))["beside.two"].is_relative_to(tmp_path / "fresh")


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("change", ["edited", "added", "removed"])
def test_a_kept_source_that_was_edited_is_refused(folder, own, change, noted, tmp_path):
    keep_sources(folder, {str(own): "algorithm"})
    source = source_of(own)
    (place,) = (folder / "sources").iterdir()
    file = place / "beside" / "two.py.txt"
    if change == "edited":
        file.write_text("HALF = 0.5\nimport os\n")
    elif change == "added":
        file.with_name("three.py.txt").write_text("import os\n")
    else:
        file.unlink()
    if not noted:
        for path in (folder / "manifest.json", folder / "runs" / "1.json"):
            path.unlink()
    with pytest.raises(UsageError, match="edited"):
        copied_out(folder, source, tmp_path / "fresh")
    assert not [*(tmp_path / "fresh").rglob("*.py")]


# Names.


def test_paths_and_names_are_taken_out_of_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "ada-desk.lab")
    monkeypatch.setenv("HOME", str(tmp_path / "ada lovelace"))
    monkeypatch.setattr(getpass, "getuser", lambda: "lovelace")
    run = "01795697588580965661-node_7-32483"
    mask = Mask(tmp_path / "results", [{"run": run, "hosts": {"gpu03": {}}}])
    home = Path.home()
    for text, told in {
        f'File "{home}/my code/own.py", line 3': 'File "my code/own.py", line 3',
        "dataset.path=/mnt/data/x.csv": "dataset.path=x.csv",
        "~/data/x.csv and 1/n, and/or, 1 / n": "x.csv and 1/n, and/or, 1 / n",
        "no cache:/srv/ada/x.bin": "no cache:x.bin",
        "file:///srv/ada/x.bin": "x.bin",
        "P=/srv/ada:/srv/b/c d=1": "P=ada:c d=1",
        "'/srv/my own data/x.csv', \"~/my own/y\"": "'x.csv', \"y\"",
        "https://example.org/a/b/c": "https://example.org/a/b/c",
        "lost with gpu03": f"lost with {mask.hosts['gpu03']}",
        "by Lovelace at ada-desk.lab": f"by someone at {mask.hosts['ada-desk.lab']}",
        run: run.replace("node_7", mask.hosts["node_7"]),
    }.items():
        assert mask.text(text) == told, text
        assert not mask.found(told)
    assert str(home) in mask.found(f"{home}/x")
    assert str(home) in mask.found(f"-I{home}/x")
    assert mask.found("on gpu03") == ["gpu03"]
    assert mask.word("algorithm=code/own.py,gd") == "algorithm=own.py,gd"
    for word in ("penalty.strength=1/n", "budget.delta=1/n^1.5", "x=[0.5,1e-3]"):
        assert mask.word(word) == word
    assert len(set(mask.hosts.values())) == len(mask.hosts)


def test_names_are_taken_out_of_each_line_of_a_source_that_is_no_code(own, tmp_path):
    lines = ["# By ada.\n", "NAME = 'ada'  # of ada\n", "ONE = 1  # ada's\n"]
    own.write_text("".join(lines))
    mask = Mask(tmp_path / "results", [{"hosts": {"ada": {}}}])
    told = bundle._masked(own, source_of(own), mask).read_text()
    host = mask.hosts["ada"]
    assert told == f"# By {host}.\n{lines[1]}ONE = 1  # {host}'s\n"


def test_a_manifest_says_what_and_not_where(tmp_path):
    words = ["dp-erm-bench", "results_dir=/home/a/b", "runner.address=tcp://a:1"]
    more = ["seed=1", "runner.n_checkpoints=7", "dataset.path=/a/b/c.csv"]
    config = {"runner": {"address": "tcp://a:1"}, "dataset": {"path": "b/c.csv"}}
    manifest = {"run": "1-h-2", "command": words + more, "config": config}
    made = Mask(tmp_path, []).manifest({**manifest, "options": {"address": "x"}})
    assert made["command"] == ["dp-erm-bench", *more[:2], "dataset.path=c.csv"]
    assert made["config"] == {"dataset": {"path": "c.csv"}}
    assert "options" not in made


def test_of_private_data_no_parameter_of_a_rule_is_kept_and_no_order_of_runs(tmp_path):
    """A rule may compute it from p, and batches run in the order of their work."""
    params = {"step": 1.89, "clip": 2.0}
    lines = [
        {
            **{"key": f"{k:064x}", "experiment": "e", "panel": "", "line": ""},
            **{
                "phase": "sweep",
                "tuned": False,
                "rule": "gd-1: step",
                "read": ["kinds"],
            },
            "content": "0123456789abcdef",
            "spec": {
                "dataset": {"name": "file", "public": False},
                "algorithm": {"name": "gd", "params": params},
                "budget": {"epsilon": 1.0},
            },
        }
        for k in (7, 8)
    ]
    withheld = Withheld(lines)
    told = withheld.line(lines[0])
    assert told["spec"]["algorithm"]["params"] == {"clip": 2.0}
    assert "content" not in told
    segment = Segment(tmp_path / "own", "00000000000000000001-here-1")
    facts = {"n": 9, "params": params}
    records = ({"key": line["key"], "status": "ok", "facts": facts} for line in lines)
    segment.append(reversed([*records]))
    segment.close()
    keys = {line["key"] for line in lines}
    into = tmp_path / "copy"
    copy_segments(tmp_path / "own", into, keys, withheld.record, str, keys)
    (path,) = (into / "segments").iterdir()
    _, *records = map(json.loads, path.read_text().splitlines())
    assert [one["key"] for one in records] == [f"{1:064x}", f"{2:064x}"]
    assert all(one["facts"]["params"] == {"clip": 2.0} for one in records)


def test_each_use_that_nobody_pays_for_has_a_word():
    assert set(bundle.WORDS) == {use.value for use in Uncharged}


# What is received.


def zipped(path, members=GOOD, **changes):
    """Write a zip; `changes` are attributes of the member `odd`, or a name for it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        if changes:
            data = changes.pop("data", b"x")
            info = zipfile.ZipInfo(changes.pop("name", "README.md"))
            for key, value in changes.items():
                setattr(info, key, value)
            archive.writestr(info, data)
    return path


def refused(path, tmp_path, words):
    with pytest.raises(UsageError, match=words) as caught:
        bundle.unpacked(path, tmp_path / "into")
    said = str(caught.value)
    assert said.isprintable() and said.startswith(str(path))
    every = [p for p in (tmp_path / "into").rglob("*") if not p.is_dir()]
    assert all(p.is_file() and not p.is_symlink() for p in every)
    assert sum(p.stat().st_size for p in every) <= 1 << 21
    assert {p.name for p in tmp_path.iterdir()} <= {path.name, "into"}
    shutil.rmtree(tmp_path / "into", ignore_errors=True)


NAMES = (
    *("../evil.csv", "/var/evil.csv", "..\\evil.csv", "C:\\evil.csv", "evil.py"),
    *("sources/../../evil.py.txt", "sources/" + "a" * 16 + "/../x.py.txt"),
    *("runs/\x1b[2J.json", "runs/\u202e.json", "runs/a/b.json", "plan.jsonl/x"),
    *("sources/" + "a" * 16 + "/own.py", "sources/" + "a" * 16 + "/a b/own.py.txt"),
    *("NUL.csv", "runs/com1.json", "sources/" + "a" * 16 + "/b/aux.py.txt"),
    "sources/" + "a" * 16 + "/" + "a/" * 30 + "own.py.txt",
    *("segments/x.pkl", "manifest.json ", "data.npz", "x/"),
)


def test_no_member_has_a_name_that_a_bundle_has_not(tmp_path):
    for number, name in enumerate(NAMES[:-1]):
        path = zipped(tmp_path / "bad.zip", name=name)
        refused(path, tmp_path, "is none that a bundle has")
        assert number or not (tmp_path.parent / "evil.csv").exists()


def test_members_are_regular_files_each_once_packed_as_usual(tmp_path):
    path = tmp_path / "bad.zip"
    link = (stat.S_IFLNK | 0o777) << 16
    refused(zipped(path, external_attr=link, data=b"/etc/passwd"), tmp_path, "regular")
    refused(zipped(path, compress_type=zipfile.ZIP_BZIP2), tmp_path, "another way")
    with pytest.warns(UserWarning, match="Duplicate"):
        zipped(path, name="plan.jsonl")
    refused(path, tmp_path, "twice")
    refused(zipped(path, name="RUNS/1.json"), tmp_path, "none that")
    refused(zipped(path, {**GOOD, "a.csv": b""}, name="A.csv"), tmp_path, "twice")
    raw = zipped(path).read_bytes()
    for start in (b"PK\x03\x04", b"PK\x01\x02"):
        place = raw.index(start) + (6 if start[2] == 3 else 8)
        raw = raw[:place] + struct.pack("<H", 1) + raw[place + 2 :]
    path.write_bytes(raw)
    refused(path, tmp_path, "encrypted")


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    path = zipped(tmp_path / "bad.zip", name="x.csv", data=b"0" * (1 << 22))
    monkeypatch.setattr(bundle, "most_unpacked", lambda packed: 1 << 21)
    refused(path, tmp_path, "unpack to more than")
    monkeypatch.setattr(bundle, "MOST_MEMBERS", 2)
    refused(path, tmp_path, "more than 2 members")
    with monkeypatch.context() as patch:
        # Millions of members are not even listed.
        patch.setattr(bundle, "LARGEST_DIRECTORY", 100)
        patch.setattr(bundle, "_unpack", None)
        refused(path, tmp_path, "more than 2 members")
    monkeypatch.setattr(bundle, "LARGEST_ZIP", 10)
    refused(path, tmp_path, "more than 10 bytes")


def test_no_zip_is_made_that_would_be_refused(folder, monkeypatch):
    (folder / "plan.jsonl").write_text("{}\n")
    path = folder.parent / "mine.zip"
    assert bundle.pack(folder, path) == ["manifest.json", "plan.jsonl", "runs/1.json"]
    for limit, words in {"MOST_MEMBERS": "2 members", "LARGEST_ZIP": "2 bytes"}.items():
        path.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(bundle, limit, 2)
            with pytest.raises(UsageError, match=f"would have more than {words}"):
                bundle.pack(folder, path)
        assert {p.name for p in folder.parent.iterdir()} == {folder.name}


def test_what_is_no_zip_or_damaged_is_a_sentence(tmp_path):
    path = tmp_path / "bad.zip"
    raw = zipped(path, {**GOOD, "x.csv": os.urandom(9000)}).read_bytes()
    for data in (b"", b"PK", raw[:-30], raw[: len(raw) // 2], b"x" * 5000):
        path.write_bytes(data)
        refused(path, tmp_path, "is no zip, or is damaged")
    path.write_bytes(raw.replace(raw[3000:3010], b"0123456789", 1))
    refused(path, tmp_path, "is no zip, or is damaged")
    refused(zipped(path, {"x.csv": b""}), tmp_path, "no bundle, it has no plan.jsonl")


def test_folders_that_other_programs_put_in_are_no_members(tmp_path):
    path = zipped(tmp_path / "good one.zip", {**GOOD, "runs/": b"", "sources/": b""})
    made = bundle.unpacked(path, tmp_path / "into")
    assert made == tmp_path / "into" / "good_one"
    assert re.findall("plan|1", " ".join(sorted(p.name for p in made.rglob("*.json*"))))
