"""Measure again how long the operations of a step take (`experiment.lines`).

Every solver makes noisy steps on generated records, dense and sparse, of many shapes,
in batches of 1, 2 and 32 trials. The fitted rates are non-negative and minimise the sum
of squared relative errors. The constants in `experiment.lines` are these rates,
rounded. The benchmark takes ten minutes on an idle core.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.optimize import nnls

from dp_erm_bench import problem_from_arrays
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.api import one_thread
from dp_erm_bench.experiment import lines
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.frank_wolfe import FrankWolfe
from dp_erm_bench.solvers.gd import GD
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.mirror_descent import MirrorDescent
from dp_erm_bench.solvers.random_cd import RandomCD
from dp_erm_bench.solvers.sgd import SGD
from dp_erm_bench.solvers.svrg import SVRG
from dp_erm_bench.solvers.work import StepWork

SHAPES = (
    *((100, 8, 0), (45_312, 8, 0), (500, 30, 0), (2600, 500, 0)),
    *((20_000, 100, 0), (1000, 2000, 0)),
    *((8124, 112, 22), (800, 88_119, 900), (20_000, 50_000, 100)),
)
"""Numbers of records, of features, and of stored entries per record (0 if dense)."""

BATCHES = (1, 2, 32)
BUDGET = Budget(1.0, 1e-6)
STEPS, EPOCH = (3, 100_000), 1000
CLIP: dict[str, Any] = {"clip": 0.3}
Made = Callable[[int], Solver]
CASES: dict[str, tuple[bool, Made]] = {
    "gd": (False, lambda T: GD(n_iter=T, **CLIP)),
    "mirror_descent": (True, lambda T: MirrorDescent(n_iter=T, **CLIP)),
    "frank_wolfe": (True, lambda T: FrankWolfe(n_iter=T, **CLIP)),
    "greedy_cd": (False, lambda T: GreedyCD(n_iter=T, **CLIP)),
    "random_cd": (False, lambda T: RandomCD(n_iter=T, **CLIP)),
    "sgd, batch 1": (False, lambda T: SGD(n_iter=T, **CLIP)),
    "sgd, batch 50": (False, lambda T: SGD(n_iter=T, batch_size=50, **CLIP)),
    "svrg": (False, lambda T: SVRG(n_iter=T, n_inner=EPOCH, **CLIP)),
}
"""Whether each solver runs in an L1 ball, and a function of its number of steps."""


class Measured(NamedTuple):
    """The measured nanoseconds of a step of a batch, and its operation counts."""

    name: str
    n: int
    p: int
    sparse: bool
    size: int
    step: StepWork
    taken: float

    @property
    def told(self) -> float:
        """Return the nanoseconds that the constants predict."""
        rates = lines.SPARSE if self.sparse else lines.DENSE
        parts = [lines.ITERATION]
        for name, count in self.step._asdict().items():
            shared, own = rates[name]
            parts.append((shared * count, own * count))
        return sum(shared + self.size * own for shared, own in parts)


def run(given: argparse.Namespace) -> None:
    """Print measured steps with their predictions, then fitted rates and constants."""
    shapes = SHAPES[:3] if given.quick else SHAPES
    print("| step | n | p | batch | us | model |")
    print("| --- | --- | --- | --- | --- | --- |")
    found = []
    with one_thread():
        for one in measured(shapes):
            found.append(one)
            cells = (one.name, one.n, one.p, one.size, f"{one.taken / 1e3:.3g}")
            print(
                "|", *(f"{cell} |" for cell in cells), f"{one.told / one.taken:.2f} |"
            )
    print("\n| operation | features | ns a batch, a trial | constants |")
    print("| --- | --- | --- | --- |")
    for sparse in (False, True):
        ours = [one for one in found if one.sparse is sparse]
        for name, *rates, constants in fitted(ours) if ours else ():
            kind = "sparse" if sparse else "dense"
            pair = ", ".join(f"{rate:.3g}" for rate in rates)
            print(f"| {name} | {kind} | {pair} | {constants} |")


def fitted(found: list[Measured]) -> Iterator[tuple[Any, ...]]:
    """Yield the fitted rates of each operation per batch and per trial.

    Each row also has the current constants.
    """
    names = ("iteration", *StepWork._fields)
    counts = np.array([(1.0, *one.step) for one in found])
    sizes = np.array([[one.size] for one in found])
    taken = np.array([[one.taken] for one in found])
    rates, _ = nnls(np.hstack([counts, counts * sizes]) / taken, np.ones(len(found)))
    known = {"iteration": lines.ITERATION}
    known |= lines.SPARSE if found[0].sparse else lines.DENSE
    for place, name in enumerate(names):
        yield name, rates[place], rates[place + len(names)], known[name]


def measured(shapes: Any, seconds: float = 0.25) -> Iterator[Measured]:
    """Yield the time of a step of every solver on records of some shapes.

    Each solver is run twice, for about ``seconds`` each.
    """
    for (n, p, stored), loss in itertools.product(shapes, ("logistic", "squared")):
        records = generated(n, p, stored)
        free = problem_from_arrays(*records, loss=loss, penalty="none")
        ball = {"name": "l1_ball", "radius": 1.0}
        inside = problem_from_arrays(
            *records, loss=loss, penalty="none", constraint=ball
        )
        for (name, (bounded, made)), size in itertools.product(CASES.items(), BATCHES):
            problem = inside if bounded else free
            step = made(EPOCH).step_work(problem)
            guess = Measured(name, n, p, bool(stored), size, step, 1.0)
            length = round(min(max(seconds * 1e9 / guess.told, STEPS[0]), STEPS[1]))
            taken = min(stepped(problem, made(length), size) for _ in range(2))
            yield guess._replace(taken=taken)


def stepped(problem: Any, solver: Solver, size: int) -> float:
    """Return the CPU nanoseconds of a step of a batch, without the first step."""
    last = solver.iterations(problem)
    run = Run(problem, [solver] * size, BUDGET, 1.0, [f"{b}" for b in range(size)])
    steps = run.steps(run.oracle(), [0, 1, last])
    next(steps)
    next(steps)
    start = time.thread_time()
    next(steps)
    return (time.thread_time() - start) / (last - 1) * 1e9


def generated(n: int, p: int, stored: int) -> tuple[Any, Any]:
    """Return generated records of norm about 1, with labels of both signs."""
    random = np.random.default_rng(0)
    y = np.sign(random.normal(size=n))
    if not stored:
        return random.normal(size=(n, p)) / math.sqrt(p), y
    made = {"format": "csr", "random_state": 0}
    X = scipy.sparse.random(n, p, density=stored / p, **made)
    X.data[:] = 1.0 / math.sqrt(stored)
    return X, y
