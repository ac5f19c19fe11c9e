"""Test runs that differ from what their solvers declare, and early stops."""

import math

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench import Diverged, fit, problem_from_arrays
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.errors import NotSampled, NotUsed
from dp_erm_bench.run import Run
from tests.contract.corpus import REPEATED, SAMPLED
from tests.contract.own import (
    BEGIN,
    DECLARED,
    IMPORTS,
    ONE_EACH,
    SOUND,
    STEP,
    broken,
)
from tests.loops import each
from tests.serving import ALGORITHMS, RISKS, built, constraint_of, fits_noise
from tests.solvers.cases import CANDIDATES

N, P = 40, 4
LOOP = "            for _ in range(k):\n"
EARLY = ("    n_iter: int", "    may_stop_early = True\n    n_iter: int")
RUN = "        for t in range(self.rounds):\n"
SHORT = RUN.replace("self.rounds", "self.rounds - 1")


def arrays():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N, P))
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def problem_of(constraint="none", densely=True):
    X, y = arrays()
    bounds = {"columns": 1.0, "norm": 2.0}
    psi = {"loss": "logistic", "penalty": "l2", "strength": 0.5}
    X = X if densely else sparse.csr_array(X)
    return problem_from_arrays(X, y, constraint=constraint, bounds=bounds, **psi)


def declaring(count):
    return (DECLARED, DECLARED.replace("self.n_iter", count))


def stopping(condition):
    return (LOOP, f"{LOOP}{' ' * 16}if {condition}:\n{' ' * 20}break\n")


def short_of(text, *changes):
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


FAR = "oracle.move_to(oracle.w * 1e200 + np.inf) or np.isinf(oracle.w).any()"
LARGE = "np.linalg.norm(oracle.w) > 0.3"
SINGLE = (
    (IMPORTS, f"{IMPORTS}\n    SingleUseGaussian,"),
    (DECLARED, ONE_EACH),
    (
        STEP,
        f"{' ' * 16}read = mechanisms['gradient'].next_records(0, 1)\n"
        f"{' ' * 16}noisy = oracle.record_sum(0, read, clip[0, 0])[None]\n"
        f"{' ' * 16}noisy = mechanisms['gradient'](noisy)\n",
    ),
)
ACCUSED = {
    "never": (
        broken((STEP, f"{' ' * 16}noisy = 0.0 * oracle.w\n")),
        "release gradient was used 0 of 10 times",
    ),
    "once_too_few": (
        broken(declaring("self.n_iter + 1")),
        "release gradient was used 10 of 11 times",
    ),
    "a_second_release": (
        broken((DECLARED, f'{DECLARED}\n        yield Gaussian("norm", change, 1)')),
        "release norm was used 0 of 1 times",
    ),
    "stops_unsaid": (
        broken((BEGIN, f"        oracle.w[:] = 1.0\n{BEGIN}"), stopping(LARGE)),
        "release gradient was used 0 of 10 times",
    ),
    "a_short_run_inside": (
        short_of(REPEATED, (RUN, SHORT)),
        "release best: an inner run made fewer uses than it declares",
    ),
    "no_run_inside": (
        short_of(REPEATED, ('mechanisms["best"](self.attempt)', "oracle.w")),
        "release best was used 0 of 1 times",
    ),
}
"""Solvers that do less than they declare, and the sentence."""
SERVED = {
    "by_n": (
        broken(
            declaring("min(self.n_iter, problem.n)"),
            ("return self.n_iter", "return min(self.n_iter, problem.n)"),
        ),
        {"n_iter": 3 * N},
    ),
    "no_steps": (SOUND, {"n_iter": 0}),
    "until_all_is_used": (
        broken(
            stopping("mechanisms['gradient'].used == 10"),
            ("self.n_iter)\n\n", "10)\n\n"),
            ("return self.n_iter", "return 2 * self.n_iter"),
        ),
        {},
    ),
    "empty_samples": (SAMPLED, {"expected": 1}),
    "repeated": (REPEATED, {}),
    "stops_early": (
        broken((BEGIN, f"        oracle.w[:] = 1.0\n{BEGIN}"), EARLY, stopping(LARGE)),
        {},
    ),
    "stops_early_inside": (
        short_of(
            REPEATED,
            ("    batchable", "    may_stop_early = True\n    batchable"),
            (RUN, SHORT),
        ),
        {},
    ),
    "reads_few_and_stops_early": (
        broken(
            *SINGLE,
            (EARLY[0], f"    batchable = False\n{EARLY[1]}"),
            stopping("mechanisms['gradient'].used == 3"),
        ),
        {},
    ),
}
"""Solvers that do what they say, and parameters."""


@pytest.fixture
def fitted(tmp_path):
    def fit_text(text, epsilon=1.0, seed=0, **params):
        path = tmp_path / "own.py"
        path.write_text(text)
        return fit(problem_of(), str(path), epsilon=epsilon, seed=seed, **params)

    return fit_text


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.UncheckedSolver")
@each("name", ACCUSED)
def test_a_run_that_did_less_than_it_declared_is_no_certified_run(name, fitted):
    text, sentence = ACCUSED[name]
    for epsilon in (1.0, np.inf):
        with pytest.raises(NotUsed) as error:
            fitted(text, epsilon)
        assert str(error.value) == sentence


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.UncheckedSolver")
@each("name", SERVED)
def test_a_run_that_did_what_it_declared_is_served(name, fitted):
    text, params = SERVED[name]
    found = fitted(text, **params)
    # What was counted does not say that answers were used.
    assert found.doubt == "not checked" and found.epsilon_certified <= 1.0


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.UncheckedSolver")
def test_a_run_that_diverged_and_stopped_is_called_diverged(fitted):
    for changes in ((stopping(FAR),), (stopping(FAR), *SINGLE)):
        text = broken(*changes, ("    n_iter", "    batchable = False\n    n_iter"))
        with pytest.raises(Diverged):
            fitted(text)


def test_a_batch_is_judged_by_those_that_did_not_diverge():
    """One that diverges beside it excuses no run of less than was declared."""

    def made(*steps):
        solvers = [built("gd", n_iter=4, clip=1.0, step=one) for one in steps]
        budget, names = Budget(math.inf, 1e-6), ["a", "b"][: len(steps)]
        run = Run(problem_of(), solvers, budget, 0.0, names)
        run.mechanisms["gradient"].spend = lambda uses: None
        return run

    for steps in ((0.1, 1e300), (0.1,)):
        with pytest.raises(NotUsed, match="used 0 of 4 times"):
            made(*steps).record(2)


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.UncheckedSolver")
def test_an_empty_sample_is_a_use(fitted):
    skip = "if not any(one.size for one in drawn):\n                    continue\n"
    query = "                # the query\n"
    text = short_of(SAMPLED, (query, f"{' ' * 16}{skip}"))
    with pytest.raises(NotSampled, match="one Poisson sample of rate"):
        for seed in range(5):  # one of them draws an empty sample
            fitted(text, seed=seed, expected=1)


def test_a_reader_may_stop_before_a_run_ends():
    def made():
        run = Run(problem_of(), [built("gd", n_iter=4, clip=1.0)], Budget(1.0, 1e-6))
        return run, run.mechanisms["gradient"]

    run, mechanism = made()
    rows = run.record_stepwise([0, 2, 4])
    assert next(rows) is next(rows) and mechanism.used == 2
    rows.close()
    run, mechanism = made()
    assert len([*run.record_stepwise([0, 2])]) == 2 and mechanism.used == 2
    run, mechanism = made()
    mechanism.spend = lambda uses: None
    with pytest.raises(NotUsed, match="used 0 of 4 times"):
        run.record(3)


@each("algorithm", ALGORITHMS)
@each("densely", [True, False])
def test_the_algorithms_use_each_release_as_often_as_declared(algorithm, densely):
    if algorithm in RISKS:
        problem = problem_of(constraint_of(algorithm), densely)
    else:
        problem = CANDIDATES[algorithm].problems({})[0]
    runs = [(7, 1.0, 5.0), (7, np.inf, 0.0), (0, 1.0, 5.0)]
    if not fits_noise(algorithm):  # the budget pays for some steps, or for none
        runs += [(7, 1.0, "certified"), (7, 0.02, "certified")]
    for length, epsilon, noise in runs:
        solver = built(algorithm, clip=1.0, n_iter=length)
        names = "abc" if solver.batchable else "a"
        how = (Budget(epsilon, 1e-6), noise, [*names])
        run = Run(problem, [solver] * len(names), *how).record(3)
        uses = {k: (m.used, m.release.times) for k, m in run.mechanisms.items()}
        assert all(used == times for used, times in uses.values()), uses
