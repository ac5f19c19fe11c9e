"""Test solvers that may stop early, by published or by unpublished values."""

import itertools

import pytest

from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.replay import all_cases, replay_cases
from dp_erm_bench.contract.suite import FAILS, OK
from tests.contract.own import END, START, Few, broken, check_named

STOP = "            for _ in range(k):\n"
SAID = "    may_stop_early = True\n    n_iter: int"
FROZEN = (
    (START, f"        going = np.ones(column, bool)\n{START}"),
    (
        END,
        "after = oracle.w - step * noisy\n"
        f"{' ' * 16}oracle.move_to(np.where(going, after, oracle.w))",
    ),
)
RELEASED = "np.linalg.norm(oracle.w, axis=1, keepdims=True) < 0.3"
SECRET = "1e3 * oracle.objective(oracle.w)[:, None] % 1.0 < 0.8"


def stopping(condition, said=SAID):
    stop = f"{' ' * 16}going &= {condition}\n{' ' * 16}if not going.any():\n"
    stop = (STOP, f"{STOP}{stop}{' ' * 20}break\n")
    return broken(*FROZEN, stop, ("    n_iter: int", said))


@pytest.fixture
def candidate(tmp_path):
    def write(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        made = candidate_of(str(path))
        return Few(made.name, made.solver, made.preset)  # replayed in this process

    return write


def told(candidate):
    """What the first replays say, of neighbours in which the record decides most."""
    cases = (case for case in all_cases(candidate) if case.toggled is None)
    few_cases = [*itertools.islice(cases, 8)]
    return [
        words for one in replay_cases(candidate, few_cases) for words in one.violations
    ]


def test_a_stop_by_what_was_published_is_sound(candidate):
    made = candidate(stopping(RELEASED))
    for name in (
        "uses_are_those_declared",
        "a_longer_run_is_stopped",
        "the_noise_is_recounted",
        "batches_change_nothing",
    ):
        assert check_named(name).result(made).verdict == OK
    assert not told(made)


def test_a_stop_by_what_was_not_published_is_found(candidate):
    found = told(candidate(stopping(SECRET)))
    assert "the numbers of uses depend on the data" in found


def test_who_does_not_say_so_may_not_stop(candidate):
    made = candidate(stopping(RELEASED, "    n_iter: int"))
    found = check_named("uses_are_those_declared").result(made)
    assert found.verdict == FAILS and "times and declares 10" in found.reason
    assert any("release gradient was used" in one for one in told(made))
