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

from dp_erm_bench.privacy.mechanisms import Mechanisms, Query

Array = NDArray[np.float64]
Run = Callable[[Mechanisms], list[Array]]


@dataclass
class Exchange:
    """One query of the first run and the answer that was published."""

    query: Query
    answer: Any


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
    log: list[Exchange] = []
    _listen(first, lambda query, publish: _write(log, query, publish))
    iterates = run(first)
    report = ReplayReport()
    replayed = iter(list(log))

    def answer(query: Query, publish: Callable[[], Any]) -> Any:
        fresh = publish()  # counts the use, and keeps the streams in step
        exchange = next(replayed, None)
        if exchange is None or exchange.query.name != query.name:
            report.same_queries = False
            return fresh
        told = exchange.query
        ratio = _ratio(told, query)
        report.ratios[query.name] = max(report.ratios.get(query.name, 0.0), ratio)
        report.same_noise &= np.array_equal(told.sensitivity, query.sensitivity)
        return exchange.answer

    _listen(second, answer)
    others = rerun(second)
    report.same_queries &= next(replayed, None) is None
    report.same_iterates = len(iterates) == len(others) and all(
        np.array_equal(a, b) for a, b in zip(iterates, others, strict=True)
    )
    return report


def _listen(mechanisms: Mechanisms, intercept: Callable[..., Any]) -> None:
    mechanisms.ahead, mechanisms.intercept = False, intercept
    for mechanism in mechanisms.values():
        mechanism.intercept = intercept


def _write(log: list[Exchange], query: Query, publish: Callable[[], Any]) -> Any:
    # Copied: a solver may change an array that it published in place.
    kept = Query(query.name, query.value.copy(), query.sensitivity, query.vector)
    log.append(Exchange(kept, publish()))
    return log[-1].answer


def _ratio(a: Query, b: Query) -> float:
    same = (a.value == b.value) & np.isinf(a.value)  # what is excluded in both runs
    with np.errstate(invalid="ignore"):
        change = np.where(same, 0.0, np.abs(a.value - b.value))
    if a.vector:
        change = np.sqrt(np.square(change).sum(axis=1, keepdims=True))
    declared = np.broadcast_to(a.sensitivity, change.shape)
    # A release of sensitivity 0 must not move at all, but for rounding.
    quotient = np.divide(change, declared, out=change * 1e12, where=declared > 0.0)
    return float(np.where(np.isnan(quotient), np.inf, quotient).max(initial=0.0))
