"""What runs tell beside their iterates, and what `check` says of it."""

import gzip
import json
import subprocess
import sys
import zipfile

import pytest

from dp_erm_bench.cli.main import main
from dp_erm_bench.contract import told
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.replay import all_cases, replayed
from dp_erm_bench.contract.suite import EXEMPT, FAILS, OK, Check
from tests.contract.corpus import BROKEN, Made, at, before_loop
from tests.contract.own import DECLARED, SOUND, START, STEP, broken, check_named, few

MOVE = " " * 16 + "# the move\n"
PRINTS = [("prints", "12:00:01 step 3: loss 0.5\nran 0.1 s")]


def lasting(one, other, *others):
    return told.lasting(
        told.differing(one, other), [told.paired(*pair) for pair in others]
    )


def said(text):
    return [("prints", text)]


def test_what_differs_between_runs_of_a_side_is_not_compared():
    later = said("12:00:02 step 3: loss 0.5\nran 0.1 s")
    pair, again = (PRINTS, later), (later, later)
    assert told.differing(*pair) and not lasting(*pair, again)
    worse = said("12:00:02 step 3: loss 0.6\nran 0.1 s")
    apart = lasting(PRINTS, worse, (later, worse), (PRINTS, worse))
    assert [*apart.values()] == [("0.5", "0.6")]
    assert "`12:00:01 step 3: loss 0.5` on D" in told.sentence(PRINTS, worse, apart)


def test_addresses_are_not_compared_and_orders_are():
    assert not told.differing(said("<object at 0x7f01>"), said("<object at 0x7f92>"))
    assert told.differing(said("a\nb"), said("b\na"))
    assert told.differing(said(""), said("an outlier"))
    assert not told.differing(said(""), said(""))


def test_what_is_told_once_is_not_excused_by_runs_that_say_nothing():
    pair = said("largest 0.5"), said("largest 3.5")
    assert lasting(*pair, ([], []), pair)
    assert not lasting(said("a b3c"), said("x-y d5"), (said("e f7"), said("u-v g9")))
    assert not lasting(*pair, (said("largest 0.5"), said("largest 0.5")))


def test_archives_are_what_their_members_are(tmp_path):
    files = []
    for k, content in enumerate(("one", "one", "two")):
        path = tmp_path / f"{k}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo("x", (2020, 1, 1 + k, 0, 0, 0)), content)
        files.append(told._text(path.read_bytes()))
    assert files[0] == files[1] != files[2]
    zipped = [gzip.compress(b"\x00one", mtime=k) for k in range(2)]
    assert len({told._text(one) for one in zipped}) == 1


def test_minimisers_may_differ_by_their_tolerance():
    pair = said("w [0.123456 1.5]"), said("w [0.123457 1.5]")
    assert told.differing(*pair) and not told.differing(*pair, near=True)
    assert told.differing(said("w 0.12"), said("w 0.15"), near=True)


LISTENED = """
import json, os, sys, tempfile
from pathlib import Path
from dp_erm_bench.contract import told
from dp_erm_bench.paths import cache_dir
before = cache_dir()
root, outside = Path(sys.argv[1]), Path(sys.argv[2])
told.settle(root)
assert cache_dir() == before and Path.home() != before.parent
with told.heard() as first:
    print("hello")
    os.write(2, b"fd\\n")
    open("here.txt", "w").write("one\\n")
    (outside / "there.txt").write_text("two")
    (outside / "old.txt").open("a").write("new")
    open(os.path.join(tempfile.gettempdir(), "twice"), "w").write("memory")
    open(os.path.join(tempfile.gettempdir(), "twice")).read()
    (Path.home() / ".cache").mkdir()
    (Path.home() / ".cache" / "kept").write_text("kept")
with told.heard() as second:
    open("here.txt", "a").write("three\\n")
with told.heard() as third:
    pass
left = sorted(os.listdir(outside))
(outside.parent / "said").write_text(json.dumps([first, second, third, left]))
"""


def test_a_place_hears_prints_and_files_and_leaves_nothing_elsewhere(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "old.txt").write_text("old")
    line = [sys.executable, "-c", LISTENED, tmp_path / "own", tmp_path / "outside"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    first, second, third, left = json.loads((tmp_path / "said").read_text())
    first, second, third = ([tuple(one) for one in x] for x in (first, second, third))
    assert dict(first) == {
        "prints": "hello\nfd\n",
        "leaves in ./here.txt": "one\n",
        f"leaves in {tmp_path}/outside/there.txt": "two",
        f"leaves in {tmp_path}/outside/old.txt": "new",
    }
    assert second == [("leaves in ./here.txt", "three\n")] and third == []
    assert left == ["old.txt"]


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return candidate_of(str(path))

    return write


def accusation(candidate):
    cases = list(all_cases(candidate))[:9]
    return next(found.all for found in replayed(candidate, cases) if found.all)[-1]


def line_in(text, words):
    """The number of the line that says something."""
    (number,) = [k for k, line in enumerate(text.splitlines(), 1) if words in line]
    return f"line {number}, `"


@pytest.mark.parametrize(
    ("name", "step", "words"),
    [
        ("a line search on the objective", "step 2", "ahead = problem.value"),
        ("a pace by the longest record", "step 1", "pace = pace * (1 / (1 + problem"),
        ("lengths of the raw sum", "step 1", "summed = oracle.clipped_sum(cap)"),
        ("a step by the size of the batch", "step 1", "drawn = [ask.sample(b"),
        ("a ridge of the data", "step 1", "more = 1.0 + problem.dataset"),
        ("a refusal of data that are short", "", "if problem.dataset.row_norms"),
        ("a mechanism's own noise is taken off", "step 1", ""),
    ],
)
def test_the_step_and_the_line_are_named(name, step, words, written):
    text = BROKEN[name].text
    reason = accusation(written(text))
    assert f"mechanisms: {step}: w differs though all answers were equal" in reason or (
        not step
    )
    if words:
        assert f"; data are read at {line_in(text, words)}{words}" in reason
        assert "`: publish it (declare a release) or take it out" in reason
    else:
        assert "no line of the solver reads data past the mechanisms" in reason


def test_a_line_of_a_helper_is_named_and_not_one_that_publishes(written):
    """A sum that goes through a function into a mechanism is none to be named."""
    helper = (
        "def published(oracle, ask, cap):\n"
        "    return ask(oracle.clipped_sum(cap))\n\n\n"
        "def spread(oracle):\n"
        "    r = oracle.residuals()\n"
        "    return r.std(axis=1)\n\n\n"
    )
    made = Made(
        "descent",
        (
            ("@dataclass(frozen=True)\n", helper + "@dataclass(frozen=True)\n"),
            ("                summed = oracle.clipped_sum(cap)\n", ""),
            ("told = ask(summed) / problem.n", "told = published(oracle, ask, cap)"),
            at(
                " " * 16 + "# the query\n",
                "told = 1.0 + spread(oracle)[:, None]",
                "pace = pace / told",
            ),
        ),
    )
    reason = accusation(written(made.text))
    assert line_in(made.text, "r = oracle.residuals()") in reason


def test_runs_of_one_answer_may_have_any_length(written):
    once = broken(
        (DECLARED, DECLARED.replace("self.n_iter", "min(1, self.n_iter)")),
        (START, f"        noisy = None\n{START}"),
        (STEP, f"                if noisy is None:\n    {STEP}"),
    )
    stopped = check_named("a_longer_run_is_stopped")
    assert stopped.result(written(once)).verdict == EXEMPT
    assert stopped.result(written(SOUND)).verdict == OK
    for name in ("uses_are_those_declared", "replay_audit"):
        found = check_named(name).result(few(written(once)))
        assert found.verdict == OK, found


SMALL = broken(
    (
        'n_iter: int = shape(10, least=0, help="T, the number of steps")',
        'n_iter: int = shape(3, least=1, most=4, help="T")\n'
        '    depth: int = shape(1, least=1, most=3, help="nothing")\n'
        '    turns: int = shape(2, choices=(2, 7), help="nothing")\n'
        '    many: int | None = shape(None, above=20, help="nothing")',
    ),
    ("None, above=0.0, help", "None, above=0.0, most=0.4, help"),
    ("cls(n_iter=600), gap=1e-8", "cls(n_iter=4), gap=1e9"),
)


def test_the_checks_own_values_are_those_that_a_parameter_allows(written):
    made = few(written(SMALL))
    for name in (
        *("wrong_parameters_are_refused", "uses_are_those_declared", "runs_repeat"),
        *("a_longer_run_is_stopped", "compiled_steps_agree", "batches_change_nothing"),
        *("the_noise_is_recounted", "replay_audit", "columns_of_zeros_are_harmless"),
    ):
        found = check_named(name).result(made)
        assert found.verdict == OK, found
    found = check_named("no_iterations_return_the_start").result(made)
    assert (found.verdict, found.reason) == (EXEMPT, "it makes at least 1 iterations")
    longer = broken((DECLARED, DECLARED.replace("self.n_iter", "self.n_iter + 2")))
    longer = longer.replace("shape(10, least=0", "shape(3, least=1, most=4")
    found = check_named("a_longer_run_is_stopped").result(written(longer))
    assert "makes 4 steps on the releases of 2" in found.reason


def test_output_does_not_drown_the_verdicts(tmp_path, monkeypatch, capfd):
    noisy = Made(
        "descent",
        (
            before_loop("print('a line')"),
            at(MOVE, "import os", "os.system('echo shell')", "print('words ' * 99)"),
        ),
    )
    (tmp_path / "mine.py").write_text("print('imported')\n" + noisy.text)

    def failing(candidate):
        """Fail."""
        check_named("runs_repeat").run(candidate)
        raise RuntimeError("no")

    checks = (check_named("runs_repeat"), Check(failing))
    monkeypatch.setattr("dp_erm_bench.cli.check.CHECKS", checks)
    assert main(["check", str(tmp_path / "mine.py")]) == 1
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert len(lines) == 5 and "FAILS" in lines[2] and err == ""
    assert lines[3].strip() == f"it printed: {'words ' * 13}wo"


def test_that_a_loose_sensitivity_is_no_matter_of_privacy_is_said(written):
    loose = broken((DECLARED, DECLARED.replace("change", "4 * change")))
    found = check_named("sensitivities_are_tight").result(few(written(loose)))
    assert found.verdict == FAILS
    assert "no matter of privacy" in found.reason and "`exempt`" in found.reason


def test_of_a_file_that_grows_what_is_new_is_told(tmp_path):
    place = object.__new__(told.SideFolders)
    place._ends, path = {}, tmp_path / "log"
    path.write_text("one\n" * 1000)
    assert place._new(str(path)) == b"one\n" * 1000
    path.write_text("one\n" * 1000 + "two\n")
    assert place._new(str(path)) == b"two\n"
    path.write_text("two\n")
    assert place._new(str(path)) == b"two\n"
    path.write_text("one\n")
    assert place._new(str(path)) == b"one\n"
