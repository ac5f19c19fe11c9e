"""Noise scale against the number of features: what greedy selection avoids.

Nothing is run: each solver declares its releases, the accountant calibrates them, and
the deviation of their noise is read off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.accounting import unit_problem
from dp_erm_bench.problems.erm.problem import Problem
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.report.curves import Array
from dp_erm_bench.run import Run

# The deviation of each law at scale 1; Gumbel's is pi / sqrt(6).
DEVIATIONS: tuple[tuple[type[Release], float], ...] = (
    (NoisyMax, math.pi / math.sqrt(6.0)),
    (Laplace, math.sqrt(2.0)),
)


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of a release: its scale, and the epsilon that is certified for it."""

    release: Release
    scale: float
    epsilon_certified: float


@dataclass(frozen=True)
class Released:
    """What one line of the figure releases.

    Attributes
    ----------
    algorithm : str
        Name of its yaml.
    name : str
        Name of the solver's release.
    parameters : tuple of (str, object)
        The solver's parameters beside its number of iterations.
    per_feature : bool
        Whether an iteration touches one coordinate, so that a pass has p of them.
    calibration : str
        How its noise is fixed.
    """

    algorithm: str
    name: str
    parameters: tuple[tuple[str, Any], ...] = ()
    per_feature: bool = False
    calibration: str = "certified"

    def calibrated(self, problem: Problem, n_iter: int) -> Noise:
        """Return the release's noise at so many iterations of the solver.

        Parameters
        ----------
        problem : Problem
            Its size, bounds and constraint are read.
        n_iter : int
            The solver's number of iterations.
        """
        fixed = {"n_iter": n_iter, "smoothness": "public", **dict(self.parameters)}
        solver = registry.build("algorithm", self.algorithm, **fixed)
        budget = Budget(EPSILON, "1/n^2")
        run = Run(problem, [solver], budget, self.calibration, ["figure"])
        (release,) = (one for one in run.releases if one.name == self.name)
        found, size = run.calibration, float(np.max(release.sensitivity))
        return Noise(release, found.z * release.weight * size, found.epsilon_certified)


RELEASED = {
    "DP-GCD selection": Released("greedy_cd", "select"),
    "DP-GCD measurement": Released("greedy_cd", "measure"),
    "DP-CD coordinate": Released("random_cd", "measure", per_feature=True),
    "whole gradient": Released("sgd", "gradient", (("batch_size", "full"),)),
}


# Records, passes over them and epsilon of the figure; delta = 1/n^2, replace-one.
N, N_ITER, EPSILON = 1000, 10, 1.0
FEATURES = (50, 100, 200, 500, 1000, 2000, 5000)


def deviations(line: str, features: Sequence[int]) -> Array:
    """Return the deviation of the noise on one number that is released.

    In units of an entry of the mean gradient, for the logistic loss on features
    within [-1, 1]: all L_j and M_j are equal, whatever p.

    Parameters
    ----------
    line : str
        One of `RELEASED`.
    features : sequence of int
        Values of p.

    Returns
    -------
    ndarray of shape (len(features),)
    """
    return np.array([_deviation(line, p) for p in features])


@lru_cache(maxsize=256)
def _deviation(line: str, p: int) -> float:
    what, problem = RELEASED[line], unit_problem(N, p)
    iterations = N_ITER * p if what.per_feature else N_ITER
    found = what.calibrated(problem, iterations)
    return found.scale * _unit(found.release, problem)


def _unit(release: Release, problem: Problem) -> float:
    """Return what turns a scale into a deviation on an entry of the mean gradient."""
    for law, deviation in DEVIATIONS:
        if isinstance(release, law):
            score = isinstance(release, NoisyMax)
            M = float(problem.smoothness.columns[0])
            # A score is the gradient's entry by the root of M_j.
            return deviation * (math.sqrt(M) if score else 1.0)
    # A sum over the records rather than their mean.
    return 1.0 if type(release) is Gaussian else 1.0 / problem.n
