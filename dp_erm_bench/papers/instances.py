"""Instances on which the noise that a paper prints violates its privacy claim.

Mangold et al. (AISTATS 2023, poster) add Laplace noise to each entry of the gradient
before the selection. Its scale is lambda_j = 8 L_j sqrt(T log(1/delta)) / (n eps). If
L_j / sqrt(M_j) differ by a factor kappa, other entries change by kappa times the noise
scale of a quiet coordinate. The instance has a separable Huber loss. It has m loud
coordinates with L = M = 1, and a quiet coordinate with L = 1 / kappa and M = 1. All
coordinates are in the linear region and far from zero. Steps thus do not change the
gradient, and |.| is linear. One record is replaced: the loud entries fall by their
sensitivity, and the quiet entry rises by its sensitivity. In units of 2 / n, the noise
has scale z on the loud entries and z / kappa on the quiet entry.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.laplace import LaplaceLaw
from dp_erm_bench.releases.printed import printed_multiplier
from dp_erm_bench.trust.twins.laplace_noisy_max import laplace_below

PANELS, NODES, CELLS = 1500, 6, 60
ZERO = np.zeros(1)


@dataclass(frozen=True)
class Instance:
    """A problem with a quiet coordinate of L = 1 / kappa and m loud ones of L = 1.

    Attributes
    ----------
    kappa : float
        The constant L of a loud coordinate divided by that of the quiet coordinate.
    rivals : int
        Number m of loud coordinates.
    n_iter : int
        Number T of iterations, 1 or 2.
    delta, epsilon : float
        The privacy budget that the paper claims.
    adjacency : str
        The relation between neighbouring datasets.
    """

    kappa: float
    rivals: int
    n_iter: int
    delta: float
    epsilon: float = 1.0
    adjacency: str = "replace_one"

    @property
    def z(self) -> float:
        """Return the paper's noise multiplier: noise scale divided by sensitivity."""
        laws, relation = (LaplaceLaw(self.n_iter),), Adjacency(self.adjacency)
        rule = "mangold2023"
        return printed_multiplier(rule, laws, self.epsilon, self.delta, relation)


INSTANCES = (
    Instance(30.0, 20, 1, 1e-8),
    Instance(30.0, 16, 1, 1e-6),
    Instance(100.0, 30, 2, 1e-10),
)
KAPPAS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 16.0, 20.0, 25.0, 30.0, 50.0, 70.0, 100.0)


def quiet_wins(instance: Instance, lead: float) -> float:
    """Return the probability that the quiet coordinate is selected.

    Parameters
    ----------
    instance : Instance
        The instance.
    lead : float
        Gradient of the quiet coordinate minus the gradient of the others, without
        noise, in units of 2 / n.
    """
    z, m = instance.z, instance.rivals
    scale = z / instance.kappa
    # If the others are certainly below, only the tail of the quiet noise matters.
    top = 60 * scale + z * (math.log(m) + 3) + max(0.0, -lead)
    breaks = np.unique([*np.linspace(-60 * scale, top, PANELS), 0.0, -lead])
    half = np.diff(breaks) / 2
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    x = (breaks[:-1] + half)[:, None] + half[:, None] * nodes
    density = np.exp(-np.abs(x) / scale) / (2 * scale)
    values = density * laplace_below((lead + x) / z, ZERO) ** m
    return float((values * half[:, None] * weights).sum())


def cell_probabilities(z: float, cells: int = CELLS) -> tuple[Array, Array]:
    """Return the probabilities of cells (intervals) for two noisy entries.

    The first entry changed by its sensitivity, and the second one did not change.
    """
    ends = np.concatenate([[-np.inf], np.linspace(0.0, 1.0, cells + 1), [np.inf]])
    moved = np.diff(laplace_below((ends - 1.0) / z, ZERO))
    return moved, np.diff(laplace_below(ends / z, ZERO))


def one_iteration(instance: Instance, lead: float) -> tuple[Array, Array]:
    """Return the distributions of one iteration's outcome on the two neighbours.

    An outcome says whether the quiet coordinate was selected, and in which cell
    (interval) the measured entry is. It is a function of what is released, so the
    violation is not overstated.
    """
    p = quiet_wins(instance, lead)
    q = quiet_wins(instance, lead - 1.0 - 1.0 / instance.kappa)
    moved, still = cell_probabilities(instance.z)
    first = np.concatenate([p * moved, (1 - p) * still])
    return first, np.concatenate([q * still, (1 - q) * moved])


def profile_from_below(instance: Instance, lead: float) -> float:
    """Return a lower bound on the true delta at the claimed epsilon."""
    one, other = one_iteration(instance, lead)
    first, second = one, other
    for _ in range(instance.n_iter - 1):
        first, second = np.outer(first, one).ravel(), np.outer(second, other).ravel()
    excess = first - math.exp(instance.epsilon) * second
    return float(np.maximum(excess, 0.0).sum())


def violation_factor(instance: Instance) -> float:
    """Return the true delta over the claimed delta for the worst lead.

    Above 1 the paper's claim is wrong.
    """
    low, high = -2 * instance.z, 2 * instance.z
    best = 0.0
    for _ in range(3):
        leads = np.linspace(low, high, 17)
        deltas = [profile_from_below(instance, float(lead)) for lead in leads]
        place, best = int(np.argmax(deltas)), max(deltas)
        spacing = leads[1] - leads[0]
        low, high = leads[place] - spacing, leads[place] + spacing
    return best / instance.delta


def violation_table(
    instances: Sequence[Instance] = INSTANCES, kappas: Sequence[float] = KAPPAS
) -> list[dict[str, object]]:
    """Return one row for each instance and kappa, with the violation factor."""
    rows = [asdict(one) | {"kappa": kappa} for one in instances for kappa in kappas]
    about = {"study": "violation", "algorithm": "greedy_cd"}
    return [
        {**about, **row, "factor": violation_factor(Instance(**row))} for row in rows
    ]
