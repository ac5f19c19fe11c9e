"""Test the parameters with which checks run a solver, and the output they show."""

import pytest

from dp_erm_bench.cli.main import main
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.suite import EXEMPT, FAILS, OK, Check
from tests.contract.corpus import Made, at, before_loop
from tests.contract.own import DECLARED, SOUND, START, STEP, broken, check_named, few

MOVE = " " * 16 + "# the move\n"


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return candidate_of(str(path))

    return write


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
