"""Smoothness constants released with noise, before the algorithm runs."""

import numpy as np

from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.objective import ReleasedSmoothness
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms
from dp_erm_bench.releases.l1_laplace import L1Laplace, Shared

NAME = "smoothness"
SHARE = 0.1


def smoothness_releases(
    problem: Problem, kind: str, source: str, adjacency: Adjacency
) -> Shared:
    """Return the release of private smoothness constants M_j, or an empty tuple.

    Record i adds min(H x_ij^2, b_j) / n to M_j, where H is the smoothness constant of
    the loss. This term lies in [0, b_j / n], so that exchanging the record, or setting
    its term to zero, changes M_j by at most b_j / n (``adjacency.of_mean`` of unsigned
    terms). Noise Lap(p b_j / (n eps')) on each of the p entries is eps'-DP in total
    (``L1Laplace``), with eps' = 0.1 eps.

    Parameters
    ----------
    problem : Problem
        The problem whose smoothness constants M_j are released.
    kind : str
        Kind of the constants, one of ``problems.erm.objective.KINDS``.
    source : {'auto', 'declared', 'data'}
        The source of the b_j, see ``problems.erm.objective.square_bounds``.
    adjacency : Adjacency
        Relation between neighbouring datasets.

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi, "Differentially private coordinate descent
    for composite empirical risk minimization", ICML 2022 (DP-CD with privately
    estimated smoothness constants).
    """
    if kind != "private":
        return ()
    bounds, _ = _with_constants(problem).square_bounds(source)
    change = adjacency.of_mean(bounds, problem.n, signed=False)
    return (L1Laplace(NAME, change[None, :], 1, epsilon_share=SHARE),)


def with_constants(
    problem: Problem, kind: str, source: str, mechanisms: Mechanisms
) -> Problem:
    """Return the problem with smoothness constants, one set per trial if ``private``.

    The published constants are floored at their noise scale p b_j / (n eps'), a public
    number. This is post-processing, and keeps the steps 1 / M_j bounded. Without noise
    there is no floor.

    Parameters
    ----------
    problem : Problem
        The problem; its constants are replaced in the result.
    kind, source : str
        As in ``smoothness_releases``.
    mechanisms : Mechanisms
        The mechanisms made from ``smoothness_releases``.
    """
    if kind != "private":
        return problem.with_smoothness(kind)
    smooth, mechanism = _with_constants(problem), mechanisms[NAME]
    bounds, origin = smooth.square_bounds(source)
    exact = smooth.clipped_squares(bounds)
    noisy = mechanism(np.tile(exact, (mechanisms.batch, 1)))
    columns = np.maximum(noisy, mechanism.scale)
    return smooth.with_released(ReleasedSmoothness(columns, origin))


def _with_constants(problem: Problem) -> ERMProblem:
    """Return the problem, or raise Unsupported if it has no smoothness constants."""
    if not isinstance(problem, ERMProblem):
        raise Unsupported(
            f"smoothness=private: problems of {problem.kind} have no smoothness "
            "constants"
        )
    return problem
