"""The minimiser of an objective with a secret norm-Laplace term."""

from dataclasses import dataclass, field, replace

from dp_erm_bench.releases.events import Event
from dp_erm_bench.releases.norm_laplace import NormLaplace


@dataclass(frozen=True, eq=False)
class ObjectiveNormLaplace(NormLaplace):
    """The minimiser of an objective with a secret norm-Laplace linear term.

    Parameters
    ----------
    sensitivity, curvature
        As for :class:`ObjectiveGaussian`; the level is curvature + 1/z.
    """

    curvature: float = field(kw_only=True)

    def event(self) -> Event:
        """Return objective perturbation with a pure level."""
        event = Event("objective_pure", self.times, self.weight)
        return replace(event, curvature=self.curvature)
