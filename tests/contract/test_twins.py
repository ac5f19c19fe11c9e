"""Test that each broken copy of a sound solver is rejected by the intended check."""

import pytest

from dp_erm_bench.contract.candidate import ContractError, candidate_of
from dp_erm_bench.contract.suite import CHECKS, EXEMPT, FAILS, OK
from tests.contract.own import (
    DECLARED,
    SOUND,
    TWINS,
    broken,
    check_named,
    few,
    results,
)
from tests.loops import each

ONCE = "        for k in [1]"
APART = {"losers_are_secret", "releases_of_outside_are_measured"}
"""Checks of repeated runs, whose twins are in tests/solvers/test_boosting.py and in the
corpus, and of releases from outside, whose are in test_outside.py."""
ASIDE = {*APART, "large_numbers_hide_nothing"}
"""Checks that have nothing to say of the sound solver."""


@pytest.fixture
def candidate(tmp_path):
    def write(text, name="twin"):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return candidate_of(str(path))

    return write


@each("twin", TWINS)
def test_every_broken_twin_is_found(twin, candidate):
    text, name, said = TWINS[twin]
    with pytest.raises(ContractError) as error:
        check_named(name).on(candidate(text))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_every_check_finds_a_twin():
    found = {name for _, name, _ in TWINS.values()}
    assert found == {check.name for check in CHECKS} - {"declaration"} - APART


def test_the_sound_solver_keeps_everything(candidate):
    found = list(results(candidate(SOUND)))
    assert [one.check for one in found] == [check.name for check in CHECKS]
    aside = {one.check for one in found if one.verdict == EXEMPT}
    assert aside == ASIDE
    assert {one.verdict for one in found} == {OK, EXEMPT}


def test_checks_say_what_they_check_and_are_all_in_the_suite():
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for check in CHECKS:
        assert check.run.__doc__.partition("\n")[0].endswith(".")


def test_a_reason_stands_in_for_a_check(candidate):
    reason = "the last iterate has no rate here"
    exempt = f'    exempt = {{"the_limit_is_reached": "{reason}"}}\n    n_iter: int'
    made = candidate(broken(("    n_iter: int", exempt)))
    found = check_named("the_limit_is_reached").result(made)
    assert (found.verdict, found.reason) == (EXEMPT, reason)


def test_what_a_solver_raises_is_a_failure(candidate):
    text = broken(("        problem, column", "        1 / 0\n        problem, column"))
    found = check_named("runs_repeat").result(candidate(text))
    assert found.verdict == FAILS
    assert found.reason == "it raises ZeroDivisionError: division by zero"


def test_a_solver_that_runs_alone_is_checked_alone(candidate):
    alone = "    batchable = False\n    n_iter: int"
    made = candidate(broken(("    n_iter: int", alone)))
    verdicts = {one.check: one.verdict for one in results(few(made))}
    for check in ("batches_change_nothing", *ASIDE):
        assert verdicts.pop(check) == EXEMPT
    assert set(verdicts.values()) == {OK}


def test_a_solver_of_one_answer_has_no_length(candidate):
    text = broken(
        ('    n_iter: int = shape(10, least=0, help="T, the number of steps")\n', ""),
        ("        yield Limit(cls(n_iter=600), gap=1e-8)", "        yield from ()"),
        ("return self.n_iter", "return 0"),
        ("change, self.n_iter)", "change, 1)"),
        ("        yield oracle.w\n        for k in steps_between(checkpoints)", ONCE),
    )
    made = candidate(text)
    verdicts = {one.check: one.verdict for one in results(few(made))}
    lengths = {check for check, verdict in verdicts.items() if verdict == EXEMPT}
    assert lengths - ASIDE == {
        "a_longer_run_is_stopped",
        "no_iterations_return_the_start",
        "checkpoints_change_nothing",
    }
    assert verdicts["uses_are_those_declared"] == OK
    assert verdicts["the_limit_is_reached"] == FAILS


def test_no_reason_stands_in_for_the_count(candidate):
    text, _, _ = TWINS["exempt from the count"]
    made = candidate(text.replace(DECLARED, f"{DECLARED}\n        yield from ()"))
    assert check_named("uses_are_those_declared").result(made).verdict == OK
    fewer = text.replace(DECLARED, DECLARED.replace("self.n_iter", "self.n_iter + 1"))
    made = candidate(fewer, "fewer")
    assert check_named("uses_are_those_declared").result(made).verdict == FAILS
