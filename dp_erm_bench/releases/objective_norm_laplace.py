"""The minimiser of an objective with a secret linear term of norm-Laplace law."""

from dataclasses import dataclass, field
from typing import ClassVar

from dp_erm_bench.releases.law import PureLaw
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.objective_gaussian import ObjectiveMechanism, check_curvature


@dataclass(frozen=True)
class ObjectiveNormLaplaceLaw(PureLaw):
    """The law of a minimiser with norm-Laplace noise in its objective.

    Attributes
    ----------
    curvature : float
        log(1 + beta / ridge), which adds to the level of the noise.
    """

    name: ClassVar[str] = "objective_pure"
    curvature: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError if a parameter is outside its range."""
        super().__post_init__()
        check_curvature(self.curvature)

    def least(self) -> float:
        """Return the cost of the curvature, which noise does not reduce."""
        return self.curvature

    def level(self, z: float) -> float:
        """Return the level of one use, its pure epsilon."""
        return self.curvature + super().level(z)


@dataclass(frozen=True, eq=False)
class ObjectiveNormLaplace(NormLaplace):
    """The minimiser of an objective with a secret norm-Laplace linear term.

    Parameters
    ----------
    sensitivity, curvature
        As for ``ObjectiveGaussian``. The pure level is curvature + 1/z.
    """

    mechanism = ObjectiveMechanism
    proof = ObjectiveNormLaplaceLaw
    secret: ClassVar[bool] = True
    curvature: float = field(kw_only=True)
