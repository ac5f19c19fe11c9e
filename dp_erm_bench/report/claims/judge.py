"""Claims of papers: refused before anything runs, judged once it has run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.claims.lookup import (
    NOISE,
    NOT_JUDGED,
    NOTHING,
    SMOKE,
    Claim,
    Lookup,
    Measure,
)
from dp_erm_bench.report.claims.measures import MEASURES
from dp_erm_bench.report.curves import Missing, explained, report_runs
from dp_erm_bench.report.figure import Figure, LinesOf, lines_of, members
from dp_erm_bench.report.panels import decoded
from dp_erm_bench.report.rates import SYMBOLS, noises
from dp_erm_bench.results.table import MEASURED
from dp_erm_bench.results.tuned import open_of

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("paper", "figure", "statement", "measured", "threshold", "value"),
    *("verdict", "open", "profile"),
)
COMMON = ("id", "figure", "measure", "statement")
OPTIONAL = ("epsilon", "per", "quantity")
THRESHOLDS = ("at_least", "at_most", "equals", "within")
NUMBERS = (
    *THRESHOLDS,
    *("epsilon", "delta", "iterations", "n_iter", "passes", "n", "p", "seeds"),
    *("factor", "kappa", "rivals", "radius", "nonzeros", "weight"),
)
LINES = ("line", "under", "over", "other")
QUANTITIES, AXES = [*MEASURED, *registry.POPULATION], [*SYMBOLS]
WORDS = {"per": ["data_seed"], "axis": AXES, "quantity": QUANTITIES}
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
        registry.check_choice("key", key, [*needs, *OPTIONAL, *THRESHOLDS])
    for key in needs:
        if claim.get(key) is None:
            raise UsageError(f"{key}: must be given for measure={claim['measure']}")
    for key, value in claim.items():
        for one in _many(key, value):
            _check_value(key, one)
    threshold(claim)
    if measure.lines != NOTHING:
        _check_lines(claim, noise if measure.lines == NOISE else lines)
    try:
        str(claim["statement"]).format(**claim)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"statement={claim['statement']}: braces must name keys of the claim "
            f"({type(error).__name__}: {error})"
        ) from None


def _check_value(key: str, value: Any) -> None:
    if key in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{key}={value}: must be a number")
        if not math.isfinite(value):
            raise UsageError(f"{key}={value}: must be finite")
    elif key in WORDS:
        registry.check_choice(key, value, WORDS[key])
    elif key == "where":
        if not isinstance(value, dict):
            raise UsageError(f"{key}={value}: must map columns to values")
    elif not isinstance(value, str):
        raise UsageError(f"{key}={value}: must be a word")


def _check_lines(claim: Claim, lines: LinesOf) -> None:
    for figure in _many("figure", claim["figure"]):
        allowed = lines_of(lines, figure, claim.get("axis", ""), "figure")
        for key in LINES:
            for line in _many(key, claim[key]) if key in claim else ():
                registry.check_choice(f"figure {figure}: {key}", line, allowed)
        if "curve" in claim:
            curves = sorted(decoded(figure))
            registry.check_choice(f"figure {figure}: curve", claim["curve"], curves)


def _many(key: str, value: Any) -> list[Any]:
    """Return the values of a key, of which some may be lists."""
    if key not in LISTS or not isinstance(value, list):
        return [value]
    if not value:
        raise UsageError(f"{key}=[]: needs at least one value")
    return value


def measure_of(claim: Claim) -> Measure:
    """Return the measure that a claim names; refuse an unknown one."""
    name = claim.get("measure")
    registry.check_choice("measure", name, sorted(MEASURES))
    return MEASURES[str(name)]


def threshold(claim: Claim) -> str:
    """Return the threshold of a claim in words, empty of one that is for later."""
    if claim["measure"] == "later":
        return ""
    keys = [key for key in THRESHOLDS if key in claim]
    if keys == ["at_least"]:
        return f">= {claim['at_least']:g}"
    if keys == ["at_most"]:
        return f"<= {claim['at_most']:g}"
    if keys == ["equals", "within"]:
        return f"{claim['equals']:g} +- {claim['within']:g}"
    raise UsageError(
        f"threshold={' and '.join(keys) or None}: must be at_least, at_most, or "
        "equals with within"
    )


def evaluate(table: pd.DataFrame, config: Mapping[str, Any]) -> pd.DataFrame:
    """Evaluate every claim of an experiment.

    Parameters
    ----------
    table : DataFrame
        The tidy table of the experiment, one row per checkpoint.
    config : mapping
        The experiment's resolved yaml: `claims`, `profile` and `figures`; its name as
        `paper`; the manifest's `not_run` and the folder's `choices`, if any.

    Returns
    -------
    DataFrame
        One row per claim, `COLUMNS`: its verdict is `holds`, `fails`, `not run (why)`,
        or of the profile smoke `not judged`; open are its lines beyond whose settings
        better ones may lie, and why.

    Raises UsageError if a claim names an unknown measure or states no threshold.
    """
    import pandas as pd

    table = explained(table, config)
    rows = [
        _row(claim, table, config)
        for entry in config.get("claims", ())
        for claim in _expand(entry, table)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _expand(entry: Claim, table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield one claim per value of the list-valued keys and per data seed."""
    axes = [name for name in LISTS if isinstance(entry.get(name), list)]
    for values in product(*(entry[name] for name in axes)):
        claim = {**entry, **dict(zip(axes, values, strict=True))}
        if claim.get("per") != "data_seed":
            yield claim
            continue
        try:
            runs = report_runs(table, claim["figure"])
            for seed in sorted({int(seed) for seed in runs["dataset_seed"]}):
                yield {**claim, "data_seed": seed}
        except Missing:
            yield {**claim, "data_seed": None}


def _row(
    claim: Claim, table: pd.DataFrame, config: Mapping[str, Any]
) -> dict[str, object]:
    """Measure one claim and judge it."""
    measure, lookup = measure_of(claim), Lookup(table, config, claim)
    panels = members({*table.get("panel", ())}, claim["figure"], claim.get("axis", ""))
    more = {"n": lookup.noise.n} if measure.lines == NOISE else {}
    statement, seed = str(claim["statement"]).format(**claim), claim.get("data_seed")
    row: dict[str, object] = {
        "paper": config.get("paper", ""),
        "figure": claim["figure"],
        "statement": statement if seed is None else f"{statement} (data seed {seed})",
        "measured": measure.words.format(**claim, **more),
        "threshold": threshold(claim),
        "value": math.nan,
        "open": open_of(config.get("choices", ()), panels, _lines(claim)),
        "profile": config.get("profile", ""),
    }
    try:
        value = measure(lookup)
    except Missing as reason:
        return {**row, "verdict": f"not run ({reason})"}
    judged = str(config.get("profile")).partition(",")[0] != SMOKE
    verdict = ("holds" if _holds(claim, value) else "fails") if judged else NOT_JUDGED
    row["measured"] = f"{row['measured']}{measure.told(lookup)}"
    return {**row, "value": value, "verdict": verdict}


def _lines(claim: Claim) -> list[str]:
    """Return the lines that a claim compares, those over epsilon too."""
    lines = [str(claim[key]) for key in LINES if key in claim]
    return [*lines, *(f"{line} over epsilon" for line in lines)]


def _holds(claim: Claim, value: float) -> bool:
    """Compare a value with the claim's threshold; False unless it is finite."""
    if not math.isfinite(value):
        return False
    if "at_least" in claim or "at_most" in claim:
        least, most = claim.get("at_least", -math.inf), claim.get("at_most", math.inf)
        return bool(least <= value <= most)
    return bool(abs(value - claim["equals"]) <= claim["within"])
