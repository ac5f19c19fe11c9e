"""Test that `check` rejects every broken solver of the corpus, and no sound one."""

import itertools
import os

import pytest

from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.cases import covering_rows, varied_cases
from dp_erm_bench.contract.replay import all_cases, cases_answered_twice, replay_cases
from dp_erm_bench.contract.side import is_in_sample
from dp_erm_bench.contract.suite import EXEMPT, FAILS, OK, REWRITE
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.solvers.one_solve import OneSolve
from tests.contract.corpus import (
    BROKEN,
    FEW_MEET,
    KEEPS_ANSWERS,
    REPEATS,
    SOUND,
    sound,
)
from tests.contract.own import check_named, results
from tests.loops import each

FULL = "DP_ERM_BENCH_FULL_CORPUS" in os.environ
CHUNK, EVERY = 48, 40
UNHEARD = {"noise that the schedule knows": "noise_is_news_to_the_solver"}
"""What no replay can find, and the check that does."""
KINDS = sorted({made.kind for made in BROKEN.values()})
THIRD = 1 if FULL else 3
CHOSEN = [
    name
    for kind in KINDS
    for name in [n for n, made in BROKEN.items() if made.kind == kind][::THIRD]
]


@pytest.fixture
def candidate(tmp_path):
    def write(made):
        path = tmp_path / "mine.py"
        path.write_text(made.text)
        return candidate_of(str(path))

    return write


def accused(candidate, cases):
    """The first verdict that accuses; the first few cases find most."""
    cases = iter(cases)
    while part := list(itertools.islice(cases, CHUNK)):
        for found in replay_cases(candidate, part):
            if found.all:
                return found
    return None


@each("name", CHOSEN)
def test_the_broken_are_caught(name, candidate):
    made = candidate(BROKEN[name])
    check = "losers_are_secret" if BROKEN[name].kind == REPEATS else UNHEARD.get(name)
    if check:
        assert check_named(check).result(made).verdict in (FAILS, REWRITE)
    elif check_named("private_values_stay_private").result(made).verdict != FAILS:
        # A part of the cases finds most; all that vary come behind.
        assert accused(made, itertools.chain(all_cases(made), varied_cases(made)))


@pytest.mark.parametrize("name", SOUND if FULL else [*SOUND][::4])
def test_the_sound_are_not_accused(name, candidate):
    made = candidate(SOUND[name])
    if FULL:
        found = [one for one in results(made) if one.verdict == FAILS]
        assert not found
    else:
        found = accused(made, [*all_cases(made)][::EVERY])
        assert found is None, (found.case, found.all)


@each("name", FEW_MEET)
def test_what_few_neighbours_meet_is_found(name, candidate):
    family, text = FEW_MEET[name]
    made = candidate(text)
    cases = [case for case in all_cases(made) if family in case.family]
    assert accused(made, cases)


def test_a_threshold_may_be_one_that_must_be_given(candidate):
    optional, needed = "clip: float | None = value(None", "clip: float = value(1.0"
    rough = '"sensitivities_are_tight": "the bounds are rough, and on the safe side",'
    made = candidate(sound("entries", (optional, needed), (rough, "")))
    clips = {dict(case.params)["clip"] for case in all_cases(made)}
    assert len(clips) > 2 and None not in clips
    assert check_named("sensitivities_are_tight").result(made).verdict == OK


def test_an_entry_among_equal_ones_may_be_moved(candidate):
    made = candidate(sound("selected", ("prox_step(j, told,", "prox_step(j, 1.0,")))
    found = check_named("nothing_to_learn_moves_nothing").result(made)
    assert found.verdict == EXEMPT


def test_passes_begin_with_none(candidate):
    made = candidate(sound("descent", ("return float(it", "return 1.0 + float(it")))
    found = check_named("served_within_the_budget_or_refused").result(made)
    assert found.verdict == FAILS and "must be 0" in found.reason


@each("name", KEEPS_ANSWERS)
def test_answers_that_are_kept_for_later_runs_are_found(name, candidate):
    made = candidate(KEEPS_ANSWERS[name])
    kept, *_ = found = [*itertools.islice(cases_answered_twice(made), 2)]
    assert kept.untold and not found[1].untold
    untold, replayed_again = replay_cases(made, found)
    assert not untold.all
    assert any("past the mechanisms" in one for one in replayed_again.all)
    # In the order of the usual cases nobody sees it: D' has D's answers from the first.
    (alone,) = replay_cases(candidate(KEEPS_ANSWERS[name]), found[1:])
    assert not alone.all


@each("name", ["lines of progress", "a cache of public numbers"])
def test_what_is_kept_beside_answers_is_not_accused(name, candidate):
    made = candidate(SOUND[name])
    cases = itertools.islice(cases_answered_twice(made), 4)
    assert not any(one.all for one in replay_cases(made, [*cases]))


def test_there_is_something_of_each_class():
    assert len(BROKEN) >= 60 and len(SOUND) >= 20
    assert all(
        sum(made.kind == kind for made in BROKEN.values()) >= 5 for kind in KINDS
    )


def test_the_coins_of_two_releases_are_unrelated():
    """Else one's sample, given to the other, would move it only where its own does."""
    names = ["batch", "second", "sums", "more"]
    uses = [(trial, use) for trial in range(3) for use in range(100)]
    for one, other in itertools.combinations(names, 2):
        equal = sum(
            is_in_sample(one, *use) == is_in_sample(other, *use) for use in uses
        )
        assert 0.3 < equal / len(uses) < 0.7


FACTORS = {"a": [0, 1, 2, 3], "b": ["x", "y"], "c": [None, 0.5, 2.0], "d": [7, 8]}


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_any_two_values_that_may_meet_do(count):
    factors = dict([*FACTORS.items()][:count])
    rows = covering_rows(factors, lambda row: (row.get("a"), row.get("b")) != (3, "y"))
    assert rows[0] == {name: values[0] for name, values in factors.items()}
    met = {pair for row in rows for pair in itertools.combinations(row.items(), 2)}
    wanted = {
        ((a, x), (b, y))
        for (a, xs), (b, ys) in itertools.combinations(factors.items(), 2)
        for x, y in itertools.product(xs, ys)
    }
    assert wanted - met == ({(("a", 3), ("b", "y"))} if count > 1 else set())
    values = {item for row in rows for item in row.items()}
    assert values == {(k, x) for k, xs in factors.items() for x in xs}
    assert len(rows) <= 2 + 4 * 4


class Alone(OneSolve):
    """A method that runs alone and has one parameter.

    References
    ----------
    None.
    """

    batchable = False

    def releases(self, problem, adjacency, schedule):
        """Yield one noisy vector."""
        yield Gaussian("answer", adjacency.of_mean(1.0, problem.n), 1)

    def answer(self, oracle, mechanisms, schedule):
        """Return noise."""
        return mechanisms["answer"](oracle.w)


@pytest.mark.parametrize("name", [Alone, "gd", "permutation_sgd"])
def test_every_family_of_neighbours_is_met_however_few_parameters_there_are(name):
    made = candidate_of(name)
    cases = list(varied_cases(made))
    assert {case.family for case in cases} == set(made.families)
