"""The replay audit: run a solver on a neighbour with the same released values.

A solver is run on a dataset D, and the queries and answers of its mechanisms are
recorded. Then it is run on a neighbour D' and gets the answers of the first run.
Suppose that data affect the run only through the mechanisms. Then

1. each query differs by at most the declared sensitivity, and
2. all iterates are equal to the bit.

The audit is deterministic and takes milliseconds. It needs pairs of records at the
extremes of the bounds, and much noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.releases.base import Query

Array = NDArray[np.float64]
PAST = "iterates depend on the data past the mechanisms"


@dataclass
class Exchange:
    """One query of a run, with its answer."""

    query: Query
    answer: Any


@dataclass
class Log:
    """The record of a run: queries with answers, iterates, and uses by release.

    ``uses`` lists each mechanism, so a release that is nested in another one may occur
    several times. ``steps`` are the step numbers of the iterates, if they are known.
    """

    exchanges: list[Exchange] = field(default_factory=list)
    iterates: list[Array] = field(default_factory=list)
    uses: list[tuple[str, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)


@dataclass
class ReplayReport:
    """The differences between a run and its replay.

    Attributes
    ----------
    ratios : dict
        For each release, the largest difference of a query divided by its declared
        sensitivity.
    departures : list of str
        Sentences on everything else that differs: the iterates, which are compared to
        the bit; the releases in the order of their use; the number of uses of a
        mechanism; the sensitivities, hence the noise scales.
    """

    ratios: dict[str, float] = field(default_factory=dict)
    departures: list[str] = field(default_factory=list)

    def violations(self, slack: float = 1e-9) -> list[str]:
        """Return a sentence for each violation."""
        return [
            f"release {name} {_excess(ratio)}"
            for name, ratio in self.ratios.items()
            if not ratio <= 1.0 + slack
        ] + self.departures


def _excess(ratio: float) -> str:
    if math.isinf(ratio):
        return (
            "gets a value that is not finite or is excluded on one data set only: clip "
            "it, or refuse the problem in `unsupported_reason`"
        )
    return f"differs by {ratio:.4g} times its declared sensitivity"


class Writer:
    """Records a run; if another run is given, its answers are replayed.

    Parameters
    ----------
    log : Log
        The log to fill during the run.
    first : Log, optional
        The run whose answers are replayed, use by use.
    counts : bool
        Whether a use that is answered by replay is counted by its mechanism.
    """

    def __init__(self, log: Log, first: Log | None = None, counts: bool = True) -> None:
        self.log, self.counts = log, counts
        self.fed = iter(() if first is None else tuple(first.exchanges))

    def __call__(self, query: Query, publish: Callable[[], Any]) -> Any:
        """Return a copy of the answer, as a solver may change the array it gets."""
        # The query is copied because a solver may change a published array too.
        value, declared = query.value.copy(), np.array(query.sensitivity)
        recorded = replace(query, value=value, sensitivity=declared)
        told = next(self.fed, None)
        if told is None or told.query.name != query.name:
            told = Exchange(query, publish())
        elif self.counts:
            publish()
        self.log.exchanges.append(Exchange(recorded, np.array(told.answer)))
        return np.array(told.answer)


def compare_logs(first: Log, second: Log) -> ReplayReport:
    """Return the differences between a run and its replay on a neighbour."""
    report = ReplayReport()
    same_queries = len(first.exchanges) == len(second.exchanges)
    same_noise, same_length = True, len(first.iterates) == len(second.iterates)
    for one, other in zip(first.exchanges, second.exchanges, strict=False):
        a, b = one.query, other.query
        if a.name != b.name or a.value.shape != b.value.shape:
            same_queries = False
            continue
        ratio = float(relative_changes(a, b).max(initial=0.0))
        report.ratios[b.name] = max(report.ratios.get(b.name, 0.0), ratio)
        same_noise &= np.array_equal(a.sensitivity, b.sensitivity)
    pairs = enumerate(zip(first.iterates, second.iterates, strict=False))
    apart = next(((k, *both) for k, both in pairs if not _are_same(*both)), None)
    past = PAST + (_place(second.steps, *apart) if apart else "")
    kept = {
        past: apart is None and same_length,
        "the releases depend on the data": same_queries,
        "the numbers of uses depend on the data": first.uses == second.uses,
        "sensitivities depend on the data": same_noise,
    }
    report.departures = [text for text, same in kept.items() if not same]
    return report


def _place(steps: Sequence[int], k: int, one: Array, other: Array) -> str:
    """Return a string that says at which step iterate k differs, and how."""
    step = f"step {steps[k]}" if k < len(steps) else "the end"
    if 0 < k < len(steps) and steps[k] > steps[k - 1] + 1:
        step = f"steps {steps[k - 1] + 1} to {steps[k]}"
    signs = " in the sign of a zero" if np.array_equal(one, other) else ""
    return f": {step}: w differs{signs} though all answers were equal"


def _are_same(one: Array, other: Array) -> bool:
    """Return whether all numbers are the same, including the signs of zeros."""
    signs = np.signbit(one), np.signbit(other)
    return np.array_equal(one, other) and np.array_equal(*signs)


def relative_changes(a: Query, b: Query) -> Array:
    """Return each trial's change of a query relative to its declared sensitivity."""
    same = (a.value == b.value) & np.isinf(a.value)  # entries excluded in both runs
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.where(same, 0.0, np.abs(a.value - b.value))
        if a.vector:
            change = np.linalg.norm(change, a.order, axis=1, keepdims=True)
        declared = np.broadcast_to(a.sensitivity, change.shape)
        # A release of sensitivity 0 must not change at all, except by rounding.
        quotient = np.divide(change, declared, out=change * 1e12, where=declared > 0.0)
    return np.where(np.isnan(quotient), np.inf, quotient)
