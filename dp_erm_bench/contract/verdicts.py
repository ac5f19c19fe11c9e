"""What the two sides of a replay say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from dp_erm_bench.contract.cases import Case
from dp_erm_bench.contract.coins import present
from dp_erm_bench.contract.minimisers import EQUAL
from dp_erm_bench.contract.side import Told
from dp_erm_bench.errors import BudgetExhausted, NotSampled
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.replay import Exchange, Log, changes, compare

SLACK, STILL, HALF = 1e-7, 1e-7, 0.5
"""What rounding adds to a change / its sensitivity, and to one that must not be; the
part of a sensitivity that a sampled record's own term may have under replace_one."""


@dataclass
class Verdict:
    """What the replay of a case found.

    Attributes
    ----------
    case : Case
    violations : list of str
        Of data past the mechanisms, or beyond the sensitivities.
    declared : list of str
        Of what is declared for neighbours.
    sampled : list of str
        Of samples.
    ratios : dict
        Per release, the largest change / its declared sensitivity.
    refusal : str
        Why nothing was run; empty if something was.
    """

    case: Case
    violations: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    refusal: str = ""

    @property
    def all(self) -> list[str]:
        """Return all sentences."""
        return [*self.violations, *self.declared, *self.sampled]


def verdict(case: Case, first: Told, second: Told) -> Verdict:
    """Return what a run on D and one on D', told the same answers, say together."""
    found = Verdict(case)
    if first.refusal or second.refusal:
        found.refusal = first.refusal or second.refusal
        if first.refusal != second.refusal:
            found.declared.append(f"a refusal depends on the data: {found.refusal}")
        return found
    if first.error or second.error:
        _raised(found, first.error, second.error)
        return found
    found.violations += [*first.complaints, *second.complaints]
    if first.declared != second.declared:
        found.declared.append("what is declared depends on the data")
    if first.matched:
        _round(first, second)
    report = compare(first.log, second.log)
    if first.matched:
        report.same_iterates = _near(first, second)
        found.violations += [one.complaint for one in first.matched if one.complaint]
        for one in first.matched:
            report.ratios["the objective"] = one.ratio
    found.ratios = report.ratios
    sentences = report.violations(SLACK)
    if case.toggled is not None:
        found.sampled += [f"{words}, by a record's coin alone" for words in sentences]
        if case.adjacency is Adjacency.REPLACE_ONE:
            found.sampled += _one_signed(first, report.ratios)
    else:
        found.violations += sentences
        found.sampled += _unsampled(first, second)
    return found


def _raised(found: Verdict, first: str, second: str) -> None:
    """Judge errors: unusual parameters or data may be none of a solver's business."""
    said = f"it raises {first or second}"
    kinds = {error.partition(":")[0] for error in (first, second)}
    if NotSampled.__name__ in kinds:
        found.sampled.append(said)
    elif len(kinds) > 1:
        found.violations.append(f"{said}, which depends on the data")
    elif found.case.brief or BudgetExhausted.__name__ in kinds:
        found.violations.append(said)
    else:
        found.refusal = said


def _round(first: Told, second: Told) -> None:
    """Take what was computed from equal minimisers for equal where it nearly is."""
    told = zip(first.log.exchanges, second.log.exchanges, strict=False)
    for one, other in told:
        known, value = one.query.value, other.query.value
        if known.shape == value.shape:
            near = np.isclose(known, value, rtol=EQUAL, atol=EQUAL)
            value[near] = known[near]


def _near(first: Told, second: Told) -> bool:
    one, other = first.log.iterates, second.log.iterates
    return len(one) == len(other) and all(
        np.allclose(a, b, rtol=EQUAL, atol=EQUAL)
        for a, b in zip(one, other, strict=True)
    )


def _unsampled(first: Told, second: Told) -> Iterator[str]:
    """Yield which releases move with a record that is not in their samples."""
    told = zip(_exchanges_of(first.log), _exchanges_of(second.log), strict=False)
    moved = set()
    for (use, one), (_, other) in told:
        name = one.query.name
        if (
            name not in first.sampled
            or one.query.value.shape != other.query.value.shape
        ):
            continue
        change = changes(one.query, other.query).max(axis=1, initial=0.0)
        absent = [not present(name, b, use) for b in range(len(change))]
        if (change[absent] > STILL).any():
            moved.add(name)
    for name in sorted(moved):
        yield f"release {name} moves with a record that is not in its sample"


def _one_signed(first: Told, ratios: Mapping[str, float]) -> Iterator[str]:
    """Yield the sums over samples whose terms are too large for ``replace_one``.

    Its law needs each record's own term within half of the sensitivity; a bound on
    the difference of two terms of one sign says nothing of that
    (``releases/sampling.py``).
    """
    for name in first.sampled:
        ratio = ratios.get(name, 0.0)
        if HALF + SLACK < ratio <= 1.0 + SLACK:
            yield (
                f"release {name}: a record's own term is {ratio:.3g} times the "
                f"declared sensitivity, at most {HALF} is charged for a sample under "
                "replace_one"
            )


def _exchanges_of(log: Log) -> list[tuple[int, Exchange]]:
    """Return exchanges, each with the number of its release's use."""
    uses: dict[str, int] = {}
    found = []
    for exchange in log.exchanges:
        name = exchange.query.name
        found.append((uses.get(name, 0), exchange))
        uses[name] = uses.get(name, 0) + 1
    return found
