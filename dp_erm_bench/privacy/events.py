"""What an accountant composes: the law of a release, free of data."""

from dataclasses import dataclass

PURE_KINDS = ("laplace", "bounded_range", "pure")
KINDS = ("gaussian", *PURE_KINDS, "poisson_gaussian")


@dataclass(frozen=True)
class Event:
    """A mechanism used ``times`` times, up to the common noise multiplier z.

    Attributes
    ----------
    kind : str
        ``gaussian``, ``laplace``, ``bounded_range`` (exponential mechanism, Gumbel
        noisy maximum), ``pure`` (only a pure level is proved, e.g. the Laplace noisy
        maximum) or ``poisson_gaussian`` (Gaussian sum over a Poisson sample).
        A kind that no accountant knows is refused when it is certified.
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

    def multiplier(self, z: float) -> float:
        """Noise scale / sensitivity at the common multiplier z."""
        return z * self.weight

    def level(self, z: float) -> float:
        """Pure level eta of one use (laplace, bounded_range and pure).

        Laplace of scale b has likelihood ratio e^(Delta/b). A noisy maximum of
        non-monotone scores (gradients always are: one record may raise one score and
        lower another) has e^((Delta_i + Delta_j)/b), at most (1 + spread)/(b/Delta).
        """
        ratio = 1.0 if self.kind == "laplace" else 1.0 + self.spread
        return ratio / self.multiplier(z)


def composed(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the events in a canonical order, without those that never happen.

    Equal mechanisms are added up, and Poisson sampling at rate 1 is the Gaussian
    itself, so that equal compositions have equal certificates.
    """
    counts: dict[tuple[str, float, float, float], int] = {}
    for event in events:
        full = event.kind == "poisson_gaussian" and event.rate == 1
        kind = "gaussian" if full else event.kind
        key = (kind, event.weight, event.rate, event.spread)
        counts[key] = counts.get(key, 0) + event.times
    return tuple(
        Event(kind, times, weight, rate, spread)
        for (kind, weight, rate, spread), times in sorted(counts.items())
        if times
    )
