"""The replay audit: feed the same released values to a run on a neighbour.

A solver is run on a dataset D, and what its mechanisms were asked and answered is
written down. Then it is run on a neighbour D' and gets the answers of the first
run. If data flow through the mechanisms alone,

1. each query differs by at most the declared sensitivity, and
2. all iterates are equal to the bit.

It is deterministic and takes milliseconds, but for pairs of records at the
extremes of the bounds and loud noise it finds the errors that count.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.releases.base import Intercept, Query
from dp_erm_bench.releases.mechanisms import Mechanisms

Array = NDArray[np.float64]
Run = Callable[[Mechanisms], list[Array]]


@dataclass
class Exchange:
    """One query of a run and the answer that it got."""

    query: Query
    answer: Any


@dataclass
class Log:
    """What a run asked, was answered and returned."""

    exchanges: list[Exchange] = field(default_factory=list)
    iterates: list[Array] = field(default_factory=list)


@dataclass
class ReplayReport:
    """What the audit found.

    Attributes
    ----------
    ratios : dict
        Per release, the largest difference of a query / its declared sensitivity.
    same_iterates : bool
        Whether the two runs' iterates are equal to the bit.
    same_queries : bool
        Whether the runs asked the same releases in the same order.
    same_noise : bool
        Whether sensitivities, hence noise scales, are the same in both runs.
    """

    ratios: dict[str, float] = field(default_factory=dict)
    same_iterates: bool = True
    same_queries: bool = True
    same_noise: bool = True

    def violations(self, slack: float = 1e-9) -> list[str]:
        """Return a sentence for each thing that is wrong."""
        found = [
            f"release {name} differs by {ratio:.3g} times its declared sensitivity"
            for name, ratio in self.ratios.items()
            if not ratio <= 1.0 + slack
        ]
        if not self.same_iterates:
            found.append("iterates depend on the data past the mechanisms")
        if not self.same_queries:
            found.append("the releases depend on the data")
        if not self.same_noise:
            found.append("sensitivities depend on the data")
        return found


def replay_audit(
    first: Mechanisms, run: Run, second: Mechanisms, rerun: Run
) -> ReplayReport:
    """Run on D, then on D' with the answers of D, and compare.

    Parameters
    ----------
    first, second : Mechanisms
        Of the two datasets, made with the same identities.
    run, rerun : callable
        Run the solver with given mechanisms and return all its iterates.

    Returns
    -------
    ReplayReport
    """
    log, other = Log(), Log()
    listen(first, Writer(log))
    log.iterates = run(first)
    listen(second, Writer(other, log))
    other.iterates = rerun(second)
    return compare(log, other)


def listen(mechanisms: Mechanisms, intercept: Intercept) -> None:
    """Have all mechanisms, and those included later, answer through ``intercept``."""
    mechanisms.ahead, mechanisms.intercept = False, intercept
    for mechanism in mechanisms.values():
        mechanism.intercept = intercept


class Writer:
    """Writes a run down; answers as another one was answered where that is known.

    Parameters
    ----------
    log : Log
        Filled as the run goes.
    known : Log, optional
        Whose answers are fed, use by use.
    """

    def __init__(self, log: Log, known: Log | None = None) -> None:
        self.log = log
        self.fed = iter([] if known is None else list(known.exchanges))

    def __call__(self, query: Query, publish: Callable[[], Any]) -> Any:
        """Return a copy of the answer: a solver may change what it is told."""
        # Copied: it may change an array that it published, too.
        value, declared = query.value.copy(), np.array(query.sensitivity)
        kept = Query(query.name, value, declared, query.vector)
        answer = publish()  # counts the use, also where it is not told
        known = next(self.fed, None)
        if known is not None and known.query.name == query.name:
            answer = known.answer
        self.log.exchanges.append(Exchange(kept, np.array(answer)))
        return np.array(answer)


def compare(first: Log, second: Log) -> ReplayReport:
    """Return how the run on a neighbour departs from the one whose answers it got."""
    report = ReplayReport()
    report.same_queries = len(first.exchanges) == len(second.exchanges)
    for one, other in zip(first.exchanges, second.exchanges, strict=False):
        told, query = one.query, other.query
        if told.name != query.name or told.value.shape != query.value.shape:
            report.same_queries = False
            continue
        ratio = float(changes(told, query).max(initial=0.0))
        report.ratios[query.name] = max(report.ratios.get(query.name, 0.0), ratio)
        report.same_noise &= np.array_equal(told.sensitivity, query.sensitivity)
    report.same_iterates = len(first.iterates) == len(second.iterates) and all(
        np.array_equal(a, b)
        for a, b in zip(first.iterates, second.iterates, strict=True)
    )
    return report


def changes(a: Query, b: Query) -> Array:
    """Return the changes of a query / its declared sensitivity, a row per trial."""
    same = (a.value == b.value) & np.isinf(a.value)  # what is excluded in both runs
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.where(same, 0.0, np.abs(a.value - b.value))
        if a.vector:
            change = np.sqrt(np.square(change).sum(axis=1, keepdims=True))
        declared = np.broadcast_to(a.sensitivity, change.shape)
        # A release of sensitivity 0 must not move at all, but for rounding.
        quotient = np.divide(change, declared, out=change * 1e12, where=declared > 0.0)
    return np.where(np.isnan(quotient), np.inf, quotient)
