"""What a claim must state, checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.authors import decoded
from dp_erm_bench.report.claims.measures import MEASURES
from dp_erm_bench.report.claims.table import NOISE, NOTHING, Measure
from dp_erm_bench.report.figure import Figure, LinesOf
from dp_erm_bench.report.quotients import QUOTIENT
from dp_erm_bench.report.rates import noises

Claim = Mapping[str, Any]
COMMON = ("id", "figure", "measure", "statement")
OPTIONAL = ("epsilon", "per")
THRESHOLDS = ("at_least", "at_most", "equals", "within")
NUMBERS = (
    *THRESHOLDS,
    *("epsilon", "delta", "iterations", "n_iter", "passes"),
    *("factor", "kappa", "rivals"),
)
LINES = ("line", "under", "over", "other")
WORDS = {"per": ["data_seed"], "axis": ["n", "p", "epsilon", "quotient"]}
LISTS = ("figure", "line", "under", "over")
"""Keys of which a list stands for one claim per value."""


def check_claims(
    claims: Sequence[Any], lines: LinesOf, figures: Sequence[Figure] = ()
) -> None:
    """Refuse claims that could not be judged once everything has run.

    Parameters
    ----------
    claims : sequence
        As in an experiment's yaml.
    lines : mapping of str to list of str
        The lines of the experiment's panels.
    figures : sequence of Figure
        Its figures, of which those of noise have lines, too.

    Raises
    ------
    UsageError
        Naming the claim, the key, its value and what is allowed.
    """
    noise = {name: list(one.lines) for name, one in noises(figures).items()}
    for number, claim in enumerate(claims, 1):
        if not isinstance(claim, dict):
            raise UsageError(f"claim {number}={claim}: must be a mapping")
        try:
            _check(claim, lines, noise)
        except UsageError as error:
            raise UsageError(f"claim {claim.get('id', number)}: {error}") from None


def _check(claim: Claim, lines: LinesOf, noise: LinesOf) -> None:
    measure = measure_of(claim)
    needs = (*COMMON, *measure.needs)
    for key in claim:
        if key not in needs:
            registry.check_choice("key", key, [*needs, *OPTIONAL, *THRESHOLDS])
    for key in needs:
        if claim.get(key) is None:
            raise UsageError(f"{key}: must be given for measure={claim['measure']}")
    for key, value in claim.items():
        _check_value(key, value)
    threshold(claim)
    if measure.lines != NOTHING:
        _check_lines(claim, noise if measure.lines == NOISE else lines)
    _check_statement(claim)


def _check_value(key: str, value: Any) -> None:
    for one in _many(key, value):
        if key in NUMBERS:
            if isinstance(one, bool) or not isinstance(one, int | float):
                raise UsageError(f"{key}={one}: must be a number")
            if not math.isfinite(one):
                raise UsageError(f"{key}={one}: must be finite")
        elif key in WORDS:
            registry.check_choice(key, one, WORDS[key])
        elif key == "where":
            if not isinstance(one, dict):
                raise UsageError(f"{key}={one}: must map columns to values")
        elif not isinstance(one, str):
            raise UsageError(f"{key}={one}: must be a word")


def measure_of(claim: Claim) -> Measure:
    """Return the measure that a claim names; refuse an unknown one."""
    name = claim.get("measure")
    registry.check_choice("measure", name, sorted(MEASURES))
    return MEASURES[str(name)]


def threshold(claim: Claim) -> str:
    """Return the threshold of a claim in words, empty of one that is for later."""
    if claim["measure"] == "later":
        return ""
    given = [key for key in THRESHOLDS if key in claim]
    if given == ["at_least"]:
        return f">= {claim['at_least']:g}"
    if given == ["at_most"]:
        return f"<= {claim['at_most']:g}"
    if given == ["equals", "within"]:
        return f"{claim['equals']:g} +- {claim['within']:g}"
    raise UsageError(
        f"threshold={' and '.join(given) or None}: must be at_least, at_most, or "
        "equals with within"
    )


def _check_lines(claim: Claim, lines: LinesOf) -> None:
    for figure in _many("figure", claim["figure"]):
        allowed = _known(claim, figure, lines)
        for key in LINES:
            for line in _many(key, claim[key]) if key in claim else ():
                registry.check_choice(f"figure {figure}: {key}", line, allowed)
        if "curve" in claim:
            curves = sorted(decoded(figure))
            registry.check_choice(f"figure {figure}: curve", claim["curve"], curves)


def _known(claim: Claim, figure: str, lines: LinesOf) -> list[str]:
    """Return the lines that a claim's figure has; a family has those of its panels."""
    if claim.get("axis") == QUOTIENT:
        panels = [panel for panel in lines if panel.startswith(f"{figure}_")]
    else:
        panels = [figure] if figure in lines else []
    if not panels:
        registry.check_choice("figure", figure, list(lines))
    return list(dict.fromkeys(line for panel in panels for line in lines[panel]))


def _check_statement(claim: Claim) -> None:
    try:
        str(claim["statement"]).format(**claim)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"statement={claim['statement']}: braces must name keys of the claim "
            f"({type(error).__name__}: {error})"
        ) from None


def _many(key: str, value: Any) -> Iterator[Any]:
    """Yield the values of a key, of which some may be lists."""
    if key in LISTS and isinstance(value, list):
        if not value:
            raise UsageError(f"{key}=[]: needs at least one value")
        yield from value
    else:
        yield value
