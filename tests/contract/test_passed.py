"""Test that solvers that have not passed `check` are labelled.

The labels are in rows, captions, fits and on stderr.
"""

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench import registry
from dp_erm_bench.api import fit, load_problem, problem_from_arrays
from dp_erm_bench.cli.main import main
from dp_erm_bench.contract import suite
from dp_erm_bench.contract.candidate import require
from dp_erm_bench.contract.suite import Check
from dp_erm_bench.errors import UncheckedSolver
from dp_erm_bench.plugins import passed
from dp_erm_bench.report.captions import origin_in_words
from dp_erm_bench.results.settings import unchecked_in
from dp_erm_bench.results.table import NAME, load_results
from tests.contract.own import SOUND

FOLDER = Path("results", "sweep")
LINE = [
    *("dataset=log1", "dataset.n=50", "dataset.p=4", "algorithm=mine.py,random_cd"),
    *("algorithm.mine.clip=1", "algorithm.random_cd.clip=1", "seed=0,1"),
    *("runner.n_jobs=1", "runner.progress=false"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A solver's file in a folder, a cache of its own, and a suite of two checks."""
    (tmp_path / "mine.py").write_text(SOUND)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("dp_erm_bench.results.table.CHUNK", 1)

    def kept(candidate):
        """Keep it."""

    def fails_if_told(candidate):
        """Fail it."""
        require(not (tmp_path / "fails").exists(), "it is told to fail")

    checks = tuple(map(Check, (kept, fails_if_told)))
    monkeypatch.setattr("dp_erm_bench.cli.check.CHECKS", checks)
    monkeypatch.setattr(suite, "CHECKS", checks)
    return tmp_path


def labels(read):
    table = read()
    return {name: set(rows["checked"]) for name, rows in table.groupby("algorithm")}


def both():
    """The labels in the file and those that are read; they must be the same."""
    found = labels(lambda: pd.read_parquet(FOLDER / NAME))
    assert found == labels(lambda: load_results(FOLDER))
    return found


def swept(capsys, run_now):
    """Run the sweep, and return what it says of the solver."""
    capsys.readouterr()
    assert main(LINE) == 0
    told = capsys.readouterr()
    assert f"({run_now} run now): 4 ok" in told.out
    return [line for line in told.err.splitlines() if "has not passed" in line]


UNCHECKED = {"mine": {False}, "random_cd": {True}}
OWN_KIND = SOUND.replace("yield Gaussian(", "yield Mine(").replace(
    "@dataclass(frozen=True)\n",
    "class Mine(Gaussian):\n    pass\n\n\n@dataclass(frozen=True)\n",
)
"""The solver with a release of a kind from outside, which names no twin."""
HALF = "checked, release not recounted"
SOLVED = "checked, uncharged: solved"
BOUNDED = ("dataset.bounds={columns:3,norm:5}", "dataset.clip_to_bounds=true")
CHECKED = {"mine": {True}, "random_cd": {True}}


def test_a_solver_is_labelled_until_it_passes_and_after_an_edit(here, capsys):
    (said,) = swept(capsys, 4)
    assert said == (
        "dp-erm-bench: algorithm=mine has not passed `dp-erm-bench check "
        f"{here / 'mine.py'}`: its certified epsilon rests on its own declarations"
    )
    assert both() == UNCHECKED
    solvers = load_results(FOLDER).groupby("algorithm")["solver"].unique()
    assert solvers["random_cd"] == [""] and len(solvers["mine"][0]) == 64

    assert main(["check", "mine.py"]) == 0
    # What is read knows it at once, the file when the table is made again.
    assert labels(lambda: load_results(FOLDER)) == CHECKED
    assert swept(capsys, 0) == []
    assert labels(lambda: pd.read_parquet(FOLDER / NAME)) == UNCHECKED
    assert main(["collect", str(FOLDER)]) == 0
    assert both() == CHECKED

    # A pass is of a text: what ran with the one that passed stays so.
    (here / "mine.py").write_text(SOUND + "# edited\n")
    assert len(swept(capsys, 0)) == 1
    assert both() == CHECKED
    (here / "mine.py").write_text(SOUND + "\nEDITED = True\n")
    assert len(swept(capsys, 2)) == 1
    assert both() == UNCHECKED
    (here / "mine.py").write_text(SOUND)
    assert swept(capsys, 0) == []
    assert labels(lambda: load_results(FOLDER)) == CHECKED


def test_a_failed_check_records_nothing_and_takes_a_pass_back(here, capsys):
    (here / "fails").touch()
    assert main(["check", "mine.py"]) == 1
    assert len(swept(capsys, 4)) == 1
    (here / "fails").unlink()
    assert main(["check", "mine.py"]) == 0
    assert swept(capsys, 0) == []
    (here / "fails").touch()
    assert main(["check", "mine.py"]) == 1
    assert len(swept(capsys, 0)) == 1
    assert labels(lambda: load_results(FOLDER)) == UNCHECKED


def test_collect_makes_the_label_of_the_place_where_it_runs(here, capsys, monkeypatch):
    assert main(["check", "mine.py"]) == 0
    assert swept(capsys, 4) == []
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(here / "elsewhere"))
    assert main(["collect", str(FOLDER)]) == 0
    assert both() == UNCHECKED
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(here / "cache"))
    assert main(["collect", str(FOLDER)]) == 0
    assert both() == CHECKED


def test_planning_and_own_algorithms_warn_of_nothing(here, capsys):
    assert main([*LINE, "mode=plan"]) == 0
    assert "has not passed" not in capsys.readouterr().err
    assert main(["check", "random_cd"]) == 0
    assert not (here / "cache" / passed.KIND).exists()


def has_passed():
    return not passed.doubt_of_sources(passed.solver_digest("mine.py"))


def test_a_pass_is_of_the_content_and_of_the_package(here, monkeypatch):
    (here / "mine.py").write_text("import beside_me\n" + SOUND)
    (here / "beside_me.py").write_text("x = 1\n")
    assert main(["check", "mine.py"]) == 0
    assert has_passed()
    (here / "elsewhere").mkdir()
    for name in ("mine.py", "beside_me.py"):
        (here / "elsewhere" / name).write_bytes((here / name).read_bytes())
    assert not passed.doubt_of_sources(passed.solver_digest("elsewhere/mine.py"))
    (here / "beside_me.py").write_text("x = 2\n")
    assert not has_passed()
    (here / "beside_me.py").write_text("x = 1\n")
    assert has_passed()
    monkeypatch.setattr(passed, "package_state", lambda package="": "another")
    assert not has_passed()


def test_a_record_that_is_not_the_one_that_was_written_is_no_pass(here):
    assert main(["check", "mine.py"]) == 0
    (path,) = (here / "cache" / passed.KIND).iterdir()
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 100):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(8)
        path.write_bytes(flipped)
        assert not has_passed()
        path.write_bytes(whole[:place])
        assert not has_passed()
    other = json.dumps({**json.loads(whole), "sha256": "0" * 64}).encode()
    lines = whole.splitlines(keepends=True)
    doubled = b"".join([lines[0], *lines])
    for text in (b"", b"\xff\xfe", b"null", b"true", b"[" * 10**5, doubled, other):
        path.write_bytes(text)
        assert not has_passed()
    path.write_bytes(whole)
    assert has_passed()
    path.unlink()
    path.mkdir()
    assert not has_passed()
    path.rmdir()
    os.mkfifo(path)
    assert not has_passed()
    path.unlink()
    path.symlink_to(path)
    assert not has_passed()


def test_a_cache_that_cannot_be_written_is_told_and_no_error(here, capsys, monkeypatch):
    (here / "file").touch()
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(here / "file"))
    assert main(["check", "mine.py"]) == 0
    assert "is not recorded" in capsys.readouterr().err
    assert not has_passed()
    assert len(swept(capsys, 4)) == 1


def test_a_fit_tells_and_warns_once(here):
    problem = load_problem("log1", n=50, p=4)

    def told(algorithm):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            checked = fit(problem, algorithm, epsilon=1.0, clip=1.0).checked
        return checked, [str(one.message) for one in seen]

    assert told("random_cd") == (True, [])
    checked, (said,) = told("mine.py")
    assert checked is False and "algorithm=mine has not passed" in said
    assert main(["check", "mine.py"]) == 0
    assert told("mine.py") == (True, [])
    with pytest.warns(UncheckedSolver):
        (here / "mine.py").write_text(SOUND + "# edited\n")
        fit(problem, "mine.py", epsilon=1.0, clip=1.0)


def test_a_release_without_a_twin_passes_with_a_doubt(here, capsys):
    """The pass is of a second kind: rows, fits, captions and stderr say so."""
    (here / "mine.py").write_text(OWN_KIND)
    problem = load_problem("log1", n=50, p=4)

    def told():
        with pytest.warns(UncheckedSolver) as seen:
            result = fit(problem, "mine.py", epsilon=1.0, clip=1.0)
        (said,) = {str(one.message) for one in seen}
        return result, said

    result, _ = told()
    assert (result.checked, result.doubt) == (False, "not checked")
    capsys.readouterr()
    assert main(["check", "mine.py"]) == 1
    said = capsys.readouterr().out
    assert "release gradient of kind Mine names no twin (not accepted: --accept" in said
    assert main(["check", "mine.py", "--accept", "gradient"]) == 0
    assert "names no twin (accepted)" in capsys.readouterr().out
    result, said = told()
    assert (result.checked, result.doubt) == (False, HALF)
    assert HALF in said and f"algorithm {HALF}" in repr(result)
    assert main(LINE) == 0
    assert f"algorithm=mine: {HALF}" in capsys.readouterr().err
    assert both() == UNCHECKED
    for table in (pd.read_parquet(FOLDER / NAME), load_results(FOLDER)):
        doubts = table.groupby("algorithm")["doubt"].unique()
        assert doubts["mine"] == [HALF] and doubts["random_cd"] == [""]
    assert unchecked_in(table) == (f"mine ({HALF})",)

    # A twin is named: the pass is one of the first kind, and takes the place.
    twin = "from dp_erm_bench.trust.twins.gaussian import GaussianTwin\n"
    named = OWN_KIND.replace(
        "Gaussian):\n    pass", "Gaussian):\n    twin = GaussianTwin"
    )
    (here / "mine.py").write_text(twin + named)
    assert main(["check", "mine.py"]) == 0
    assert has_passed() and len(list((here / "cache" / passed.KIND).iterdir())) == 2
    # A pass of the first kind does not cover a run that is not recounted.
    digest = passed.solver_digest("mine.py")
    assert (
        passed.doubt_of_sources(digest) == ""
        and passed.doubt_of_sources(digest, False) == HALF
    )
    passed.record_pass(digest, True, HALF)
    assert not has_passed()


def declaring(name):
    """The solver with one use of the records that no budget pays for."""
    return SOUND.replace(
        "    clip:", f'    uncharged = {{"{name}": "why"}}\n    clip:', 1
    )


def test_an_uncharged_use_is_in_doubt_of_ours_as_of_theirs(here, capsys):
    """Rows, fits, captions and stderr say so."""
    (here / "mine.py").write_text(declaring("solved"))
    assert main(["check", "mine.py", "--accept", "solved"]) == 0
    names = ["mine", "output_perturbation"]
    line = ["algorithm=mine.py,output_perturbation,random_cd", "seed=0", *BOUNDED]
    assert main([*LINE[:2], *line, *LINE[-2:]]) == 0
    said = capsys.readouterr().err
    assert f"algorithm={','.join(names)}: {SOLVED}: the certified epsilon does" in said
    assert both() == {**dict.fromkeys(names, {False}), "random_cd": {True}}
    for table in (pd.read_parquet(FOLDER / NAME), load_results(FOLDER)):
        doubts = table.groupby("algorithm")["doubt"].unique()
        assert all(doubts[name] == [SOLVED] for name in names)
        assert doubts["random_cd"] == [""]
        assert unchecked_in(table) == tuple(f"{name} ({SOLVED})" for name in names)
    # A pass that is lost is another doubt, of those from outside alone.
    (here / "cache" / passed.KIND).rename(here / "lost")
    doubts = load_results(FOLDER).groupby("algorithm")["doubt"].unique()
    assert doubts.str[0].tolist() == ["not checked", SOLVED, ""]


def test_a_use_that_is_called_as_one_of_the_data_is_in_doubt(here):
    (here / "mine.py").write_text(declaring("tuning"))
    assert main(["check", "mine.py", "--accept", "tuning"]) == 0
    assert main(LINE) == 0
    assert both() == UNCHECKED


OURS = [
    name
    for name in registry.built_in(registry.ALGORITHM)
    if registry.target(registry.ALGORITHM, name).uncharged
]


def test_a_fit_of_each_of_ours_that_solves_one_problem_warns(here):
    assert "output_perturbation" in OURS
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (60, 4))
    given = {"loss": "logistic", "bounds": {"columns": 1.0, "norm": 1.0}}
    ridge = {"name": "l2", "strength": 0.1}
    norm = {"name": "cardinality", "function": "sqrt", "strength": 0.02, "l2": 0.1}
    for name in OURS:
        penalty = norm if name == "dual_frank_wolfe" else ridge
        made = problem_from_arrays(X, np.sign(X[:, 0]), penalty=penalty, **given)
        with pytest.warns(UncheckedSolver, match=f"{name}: {SOLVED}: ") as seen:
            result = fit(made, name, epsilon=1.0, delta=1e-5)
        assert sum(one.category is UncheckedSolver for one in seen) == 1
        assert (result.checked, result.doubt) == (False, SOLVED)
        assert f"algorithm {SOLVED}" in repr(result)


def test_captions_name_those_that_have_not_passed(here, tmp_path):
    rows = pd.DataFrame(
        {"algorithm": ["a", "b", "b", "c"], "checked": [True, False, False, None]}
    )
    assert unchecked_in(rows) == ("b",)
    doubt = ["", "not checked", HALF, ""]
    assert unchecked_in(rows.assign(doubt=doubt)) == ("b", f"b ({HALF})")
    assert unchecked_in(rows.drop(columns="checked")) == ()
    told = origin_in_words(rows.assign(run="run"), tmp_path)
    assert told.splitlines() == [
        "Computed by runs/run (commit unknown).",
        "These algorithms did not pass dp-erm-bench check: b.",
    ]
    assert "passed" not in origin_in_words(rows[:1].assign(run="run"), tmp_path)
    half = rows[2:].assign(run="run", doubt=[HALF, ""])
    assert origin_in_words(half, tmp_path).endswith(
        f"\nThese algorithms passed dp-erm-bench check with a doubt: b ({HALF})."
    )
