"""Measure the time of random draws and of solver steps, on one core."""

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.measure import Row
from dp_erm_bench import problem_from_arrays
from dp_erm_bench.kernels import draws, philox
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.solvers.runs import State, stack_solvers
from dp_erm_bench.solvers.sgd import SGD

DRAWS = 1 << 15
STEPS = 100_000
TRIALS = 8


def rows() -> Iterator[Row]:
    """Yield the time of a draw of each distribution, and of a step of DP-SGD."""
    (seed,), other = stream_seeds(["bench"], "draws"), np.random.default_rng(0)
    for name, ours, theirs in (
        ("uniform", philox.uniforms, other.random),
        ("Gaussian", draws.gaussian, other.standard_normal),
        ("Laplace", draws.laplace, lambda count: other.laplace(size=count)),
    ):
        here = cpu(lambda draw=ours: draw(seed, 0, DRAWS)) / DRAWS * 1e9
        there = cpu(lambda draw=theirs: draw(DRAWS)) / DRAWS * 1e9
        matter = f"a draw, {name} (numpy's: {there:.3g} ns)"
        yield Row(matter, here, 3.5, unit="ns")
    state = stochastic(45_312, 8)
    taken = cpu(lambda: state.advance(STEPS), 5) / (STEPS * TRIALS)
    yield Row("a step of DP-SGD, batch size 1, n = 45,312, p = 8", taken)


def stochastic(n: int, p: int) -> State:
    """Return a batch of DP-SGD runs on n x p records, to be timed."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, p))
    psi = {"name": "l2", "strength": 1e-3}
    problem = problem_from_arrays(X, np.sign(X[:, 0]), loss="logistic", penalty=psi)
    solver = stack_solvers([SGD(n_iter=6 * STEPS, clip=0.2)] * TRIALS)
    releases = solver.releases(problem, Adjacency.REPLACE_ONE, None)
    names = [f"bench {trial}" for trial in range(TRIALS)]
    mechanisms = make_mechanisms(releases, 1.0, names)
    return solver.start(problem.oracle(TRIALS), mechanisms, None)


def cpu(work: Callable[[], object], times: int = 31) -> float:
    """Return the median CPU time of a function in seconds, without its first call."""
    taken = []
    for _ in range(times + 1):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return statistics.median(taken[1:])
