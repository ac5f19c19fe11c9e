"""The replay of a minimiser whose noise is in its objective.

The released value is the minimiser w of F(w) + (ridge/2) norm2(w)^2 + b.w / n, b being
secret: the run on D' is told the b' that has the same w there (step 1 of
``privacy.objective``). b' - b is the change of the gradients' sum at w, which the
declared sensitivity bounds; all that is computed from w is equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.contract.pairs import Neighbours
from dp_erm_bench.problems.erm.perturbed import minimise_perturbed
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.objective_gaussian import ObjectiveMechanism
from dp_erm_bench.run import Run

if TYPE_CHECKING:
    from dp_erm_bench.contract.side import Told

Array = NDArray[np.float64]
NEAR = 1e-9
"""Distance to the exact minimiser that is sought."""
EQUAL = 1e-5
"""By how much published minimisers may differ: they are solved to a tolerance."""


@dataclass
class Matched:
    """The term b' and what is wrong with the declaration.

    Attributes
    ----------
    term : array of shape (B, p)
    ratio : float
        norm2(b' - b) / declared sensitivity.
    complaint : str
        Empty if the curvature is charged.
    """

    term: Array
    ratio: float
    complaint: str = ""


def matched(pair: Neighbours, run: Run, told: Told) -> list[Matched]:
    """Return the terms of D' for those that a run on D was told."""
    secret = [
        mechanism.release
        for mechanism in run.mechanisms.values()
        if isinstance(mechanism, ObjectiveMechanism)
    ]
    return [
        _of_term(pair, release, term, _answered(told))
        for release, term in zip(secret, told.terms, strict=False)
    ]


def _answered(told: Told) -> Array:
    """Return the first value that was computed from the minimiser."""
    if told.log.exchanges:
        return told.log.exchanges[0].query.value
    return told.log.iterates[-1]


def _of_term(pair: Neighbours, release: Any, term: Array, answer: Array) -> Matched:
    problem, other = pair.first, pair.second
    seen = [
        _ridge(problem, b, w) for b, w in zip(term, np.atleast_2d(answer), strict=False)
    ]
    known = [ridge for ridge in seen if ridge is not None]
    claimed = _claimed(problem, release.curvature)
    modulus = known[0] + problem.penalty.strong_convexity if known else claimed
    complaint = ""
    if claimed > modulus * (1 + 1e-6):
        complaint = (
            f"release {release.name} charges a curvature of {release.curvature:.3g}; "
            f"that of its objective is {_curvature(problem, modulus):.3g}"
        )
    if not np.isfinite(modulus):
        return Matched(term, 0.0, complaint or "release charges no curvature")
    ridge = max(0.0, modulus - problem.penalty.strong_convexity)
    moved = np.empty_like(term)
    for b, row in zip(term, moved, strict=True):
        w = minimise_perturbed(problem, b / problem.n, ridge, NEAR).w
        row[:] = b + problem.n * (problem.gradient(w) - other.gradient(w))
    change = float(np.linalg.norm(moved - term, axis=1).max())
    return Matched(moved, change / float(np.max(release.sensitivity)), complaint)


def _claimed(problem: ERMProblem, curvature: float) -> float:
    """Return the modulus for which a curvature is charged."""
    grown = problem.n * np.expm1(curvature)
    return float(problem.record_smoothness / grown) if grown > 0.0 else float("inf")


def _curvature(problem: ERMProblem, modulus: float) -> float:
    return float(np.log1p(problem.record_smoothness / (problem.n * modulus)))


def _ridge(problem: ERMProblem, b: Array, w: Array) -> float | None:
    """Return the ridge for which w is the minimiser, None if that cannot be told."""
    plain = problem.penalty.quadratic and not problem.constraint.bounded
    size = float(w @ w)
    if not plain or size == 0.0:
        return None
    slope = problem.gradient(w) + problem.penalty.strong_convexity * w + b / problem.n
    ridge = -float(slope @ w) / size
    rest = np.linalg.norm(slope + ridge * w)
    near = rest <= 1e-6 * (np.linalg.norm(b) / problem.n + 1e-6)
    return ridge if near and ridge > -1e-9 else None
