"""A sound solver of the package for each kind of release."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.gd import GD
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.objective_perturbation import ObjectivePerturbation
from dp_erm_bench.solvers.one_pass_sgd import OnePassSGD
from dp_erm_bench.solvers.output_perturbation import OutputPerturbation
from dp_erm_bench.solvers.random_cd import RandomCD
from dp_erm_bench.solvers.sgd import SGD
from tests.audit.twins import MeasureOnly, SelectOnly

T, RIDGE = 50, 0.01
MU = 0.236704
"""Of (1, 1e-6): solvers-core.md, section 2.1."""


@dataclass(frozen=True)
class Kind:
    """A kind of release.

    Attributes
    ----------
    solver : type of Solver
    release : str
        Its name there.
    scale : float
        Noise scale for n = 1000, p = 20, R_j = 1, logistic loss, replace_one, epsilon
        = 1, delta = 1e-6, and ``reference`` parameters, from the formulas alone.
    runs : int
        A side, at which the statistical audit sees half of the noise.
    alone : type of Solver, optional
        What makes this release and no other, for the statistical audit.
    epsilon : float
        Of the statistical audit. Few runs see nothing that is rarer than e^-epsilon,
        which is all that a pure release of one use has.
    """

    solver: type[Solver]
    release: str
    scale: float
    runs: int
    params: dict[str, Any] = field(default_factory=dict)
    reference: dict[str, Any] = field(default_factory=dict)
    alone: type[Solver] | None = None
    epsilon: float = 8.0


def objective_scale() -> float:
    """The root of the profile 4 H(1 - c) = 1e-6, times 2 Lambda."""
    left = 1.0 - np.log1p(5.0 / (1000 * RIDGE))

    def excess(m):
        below = np.exp(left) * norm.cdf(-m / 2 - left / m)
        return 4 * (norm.cdf(m / 2 - left / m) - below) - 1e-6

    # 1/32^2 of the square goes to the noise on the answer.
    return 2 * np.sqrt(20) * np.hypot(1.0, 1 / 32) / brentq(excess, 1e-2, 1.0)


def single_scale() -> float:
    """2 Lambda over the root of the profile H(1) / 2 = 1e-6 of half of the records."""

    def excess(m):
        below = np.exp(1.0) * norm.cdf(-m / 2 - 1 / m)
        return (norm.cdf(m / 2 - 1 / m) - below) / 2 - 1e-6

    return 2 * np.sqrt(20) / brentq(excess, 1e-2, 1.0)


STEPS, MOVE = {"n_iter": T}, 2 * np.sqrt(20) / (1000 * RIDGE)
RUN, OUT, PURE = {"ridge": 1.0}, {"ridge": RIDGE}, {"noise": "gamma"}

KINDS = {
    "Gaussian, a number": Kind(RandomCD, "measure", 0.0597460, 800, {}, STEPS),
    "Gaussian, a vector": Kind(
        GD, "gradient", 2 * np.sqrt(20 * T) / MU, 800, {}, STEPS
    ),
    "Laplace, a number": Kind(
        GreedyCD, "measure", 0.0893201, 1000, {"noise": "gumbel"}, STEPS, MeasureOnly
    ),
    "Laplace, a vector": Kind(
        RandomCD, "smoothness", 0.05, 4000, {"smoothness": "private"}, STEPS, None, 20.0
    ),
    "Poisson sampled Gaussian": Kind(
        SGD,
        "gradient",
        5.97301,
        1500,
        {"batch_size": 2, "n_iter": 10},
        {"clip": 1.0, "n_iter": 200, "batch_size": 50},
    ),
    "Gaussian, records read once": Kind(
        OnePassSGD, "gradient", single_scale(), 100, {}, {"n_iter": None}
    ),
    "Gumbel selection": Kind(
        GreedyCD, "select", 0.178640, 1000, {"noise": "gumbel"}, STEPS, SelectOnly
    ),
    "Laplace selection": Kind(
        GreedyCD, "select", 0.261898, 2000, {"noise": "laplace"}, STEPS, SelectOnly
    ),
    "selection, noise inside": Kind(
        GreedyCD,
        "select",
        0.130949,
        3000,
        {"noise": "poster", "rule": "GS-s"},
        STEPS,
        SelectOnly,
    ),
    "Gaussian, a minimiser": Kind(
        OutputPerturbation, "minimiser", 4.22468 * MOVE, 200, RUN, OUT
    ),
    "norm-Laplace, a minimiser": Kind(
        OutputPerturbation,
        "minimiser",
        MOVE,
        200,
        RUN | PURE,
        OUT | PURE,
        epsilon=1.0,
    ),
    "Gaussian in the objective": Kind(
        ObjectivePerturbation, "objective", objective_scale(), 150, RUN, OUT
    ),
    "norm-Laplace in the objective": Kind(
        ObjectivePerturbation,
        "objective",
        # 1/256 of the level goes to the noise on the answer.
        2 * np.sqrt(20) * (1 + 1 / 256) / (1 - np.log1p(5.0 / (1000 * RIDGE))),
        200,
        RUN | PURE,
        OUT | PURE,
        epsilon=1.0,
    ),
}
SELECTIONS = tuple(name for name in KINDS if "selection" in name)
VECTOR = "Laplace, a vector"
SAMPLED = "Poisson sampled Gaussian"
SINGLE = "Gaussian, records read once"
OUTPUTS = tuple(name for name in KINDS if name.endswith("a minimiser"))
OBJECTIVES = tuple(name for name in KINDS if name.endswith("in the objective"))
