"""What an accountant composes: the law of a release, free of data."""

from dataclasses import astuple, dataclass, replace

PURE_KINDS = ("laplace", "norm_laplace", "bounded_range", "pure", "objective_pure")
KINDS = ("gaussian", *PURE_KINDS, "poisson_gaussian", "objective")
SINGLE = ("laplace", "norm_laplace", "objective_pure")
"""Kinds whose log-ratio of densities is moved by one term only."""


@dataclass(frozen=True)
class Event:
    """A mechanism used ``times`` times, up to the common noise multiplier z.

    Attributes
    ----------
    kind : str
        ``gaussian``, ``laplace``, ``norm_laplace`` (a vector, noise of density
        exp(-norm2)), ``bounded_range`` (exponential mechanism, Gumbel noisy maximum),
        ``pure`` (only a pure level is proved, e.g. the Laplace noisy maximum),
        ``poisson_gaussian`` (Gaussian sum over a Poisson sample), ``objective`` and
        ``objective_pure`` (a minimiser, Gaussian or norm-Laplace noise in the
        objective). A kind that no accountant knows is refused when it is certified.
    times : int
        Number of adaptive uses.
    weight : float
        Noise scale / sensitivity = z * weight. The sensitivity is the one of the
        budget's adjacency: 2C for a Poisson sampled sum under ``replace_one``.
    rate : float
        Poisson sampling rate, in (0, 1].
    spread : float
        Ratio kappa of the largest to the smallest score sensitivity where each
        score has noise of its own scale: the level of a selection is
        (1 + spread) / (z * weight).
    curvature : float
        log(1 + beta / ridge), what the objective's curvature alone costs.
    terms : int
        Records' terms by which neighbouring objectives differ: 1, or 2 where one
        is exchanged for another.

    Raises
    ------
    ValueError
        For numbers outside these ranges.
    """

    kind: str
    times: int
    weight: float = 1.0
    rate: float = 1.0
    spread: float = 1.0
    curvature: float = 0.0
    terms: int = 1

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError(f"times={self.times}: must not be negative")
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight={self.weight}: must be positive")
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate={self.rate}: must be in (0, 1]")
        if not 1 <= self.spread < float("inf"):
            raise ValueError(f"spread={self.spread}: must be at least 1")
        if self.rate < 1 and self.kind != "poisson_gaussian":
            raise ValueError(f"rate={self.rate}: {self.kind} is not sampled")
        if not 0 <= self.curvature < float("inf"):
            raise ValueError(f"curvature={self.curvature}: must not be negative")
        if self.terms not in (1, 2):
            raise ValueError(f"terms={self.terms}: must be 1 or 2")

    def multiplier(self, z: float) -> float:
        """Noise scale / sensitivity at the common multiplier z."""
        return z * self.weight

    def level(self, z: float) -> float:
        """Pure level eta of one use of the pure kinds.

        Noise of density exp(-|x| / b), or exp(-norm2(x) / b), has likelihood ratio
        e^(Delta/b); in an objective the curvature adds to it. A noisy maximum of
        non-monotone scores (gradients always are: one record may raise one score and
        lower another) has e^((Delta_i + Delta_j)/b), at most (1 + spread)/(b/Delta).
        """
        ratio = 1.0 if self.kind in SINGLE else 1.0 + self.spread
        return self.curvature + ratio / self.multiplier(z)


def composed(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the events in a canonical order, without those that never happen.

    Equal mechanisms are added up, and Poisson sampling at rate 1 is the Gaussian
    itself, so that equal compositions have equal certificates.
    """
    counts: dict[Event, int] = {}
    for event in events:
        full = event.kind == "poisson_gaussian" and event.rate == 1
        one = replace(event, kind="gaussian" if full else event.kind, times=1)
        counts[one] = counts.get(one, 0) + event.times
    return tuple(
        replace(one, times=times)
        for one, times in sorted(counts.items(), key=lambda item: astuple(item[0]))
        if times
    )
