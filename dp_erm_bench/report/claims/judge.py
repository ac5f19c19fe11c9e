"""Check the claims of papers before the run, and judge them after it.

A *line* consists of the runs with one label in a panel, usually those of one algorithm.

A claim may call one of its lines good. The verdict of a claim is the first of
`lookup.VERDICTS` that applies. A claim is `vacuous` if publishing w = 0 would be as
good as the good line. The cases are:

- The good line does not beat w = 0 where the claim is decided.
- The claim compares this line with a bound that is above the error of w = 0.
- The claim would also hold if the runs of this line had stayed at w = 0.
- The claim also requires a distance from w = 0, and the line does not reach it.

A claim is `undecided` if its interval contains the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.claims.lookup import (
    FAILS,
    HOLDS,
    NOISE,
    NOT_JUDGED,
    NOT_RUN,
    NOTHING,
    RUNS,
    SMOKE,
    UNDECIDED,
    VACUOUS,
    VERDICTS,
    Claim,
    Evidence,
    Lookup,
    Measure,
)
from dp_erm_bench.report.claims.measures import AUTHORS, MEASURES
from dp_erm_bench.report.curves import Missing, add_failed_lines
from dp_erm_bench.report.figure import Figure, LinesOf, lines_of_panel, panels_of
from dp_erm_bench.report.lines import SYMBOLS, Noise, sources_of
from dp_erm_bench.report.panels import decoded_curves
from dp_erm_bench.results.statistics import (
    Estimate,
    exact_estimate,
    unknown_estimate,
)
from dp_erm_bench.results.table import MEASURED
from dp_erm_bench.results.tuned import open_of

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("paper", "figure", "statement", "whose", "source", "kind", "good"),
    *("measured", "threshold"),
    *("value", "interval", "of_zero", "standing", "verdict", "expected", "open"),
    "profile",
)
COMMON = ("id", "figure", "measure", "statement", "whose", "good")
OPTIONAL = (
    *("epsilon", "quantity", "statistic", "reason", "expected", "source", "kind"),
    "below_zero",
)
WHOSE = ("paper", "authors' figure", "ours", "as reported")
"""Allowed origins of a claim.

A claim is made in the paper, in a figure of the authors that was read off, or by us. It
may also be from a paper that is known only from another paper or from its abstract. All
claims except our own name the place as their `source`.
"""

KINDS = ("claim", "fact", "arithmetic")
"""Kinds of claims.

A claim is about errors of algorithms. A fact is about data, about noise, or about a
line that does not change. Arithmetic checks a formula against another form of itself.
"""

STILL = 1e-3
"""A line stays at w = 0 if its error changes by a smaller fraction than this."""

NO_LINE = "none"
"""Value of `good` in a claim that calls no line good; its key `reason` says why."""

EXPECTED = VERDICTS[VERDICTS.index(VACUOUS) :]
FORMS: Mapping[tuple[str, ...], str] = {
    ("at_least",): ">= {at_least:g}",
    ("at_most",): "<= {at_most:g}",
    ("equals", "within"): "{equals:g} +- {within:g}",
}
THRESHOLDS = ("at_least", "at_most", "equals", "within")
NUMBERS = (
    *THRESHOLDS,
    *("epsilon", "delta", "iterations", "n_iter", "passes", "n", "p", "seeds"),
    *("factor", "kappa", "rivals", "radius", "nonzeros", "weight", "share"),
    "below_zero",
)
LINES = ("line", "under", "over", "other")
QUANTITIES, AXES = [*MEASURED, *registry.POPULATION], [*SYMBOLS]
WORDS = {
    **{"axis": AXES, "quantity": QUANTITIES, "statistic": ["mean", "median"]},
    **{"whose": [*WHOSE], "kind": [*KINDS], "at": [*AUTHORS]},
}
LISTS = ("figure", "line", "under", "over", "other", "at", "epsilon")
"""Keys that may have a list of values, with one claim per value.

A measure over several data sets (`Measure.over_sets`) instead uses all figures and
epsilons of such a list together.
"""


def check_claims(
    claims: Sequence[Any], lines: LinesOf, figures: Sequence[Figure] = ()
) -> None:
    """Raise UsageError for claims that could not be judged after the run.

    Parameters
    ----------
    claims : sequence
        The claims, as in an experiment's yaml.
    lines : mapping of str to list of str
        The lines of each panel of the experiment.
    figures : sequence of Figure
        The figures of the experiment; figures of noise have lines, too.

    Raises
    ------
    UsageError
        With a message that names the claim, the key, its value and what is allowed.
    """
    noise = {
        name: list(one.releases) for name, one in sources_of(figures, Noise).items()
    }
    for number, claim in enumerate(claims, 1):
        if not isinstance(claim, dict):
            raise UsageError(f"claim {number}={claim}: must be a mapping")
        try:
            _check_claim(claim, lines, noise)
        except UsageError as error:
            raise UsageError(f"claim {claim.get('id', number)}: {error}") from None


def _check_claim(claim: Claim, lines: LinesOf, noise: LinesOf) -> None:
    measure = measure_of(claim)
    needs = (*COMMON, *measure.needs)
    for key in claim:
        registry.check_choice("key", key, [*needs, *OPTIONAL, *THRESHOLDS])
    for key in needs:
        if claim.get(key) is None:
            raise UsageError(f"{key}: must be given for measure={claim['measure']}")
    for key, value in claim.items():
        for one in _several_values(key, value):
            _check_value(key, one)
    if claim["whose"] != "ours" and not claim.get("source"):
        raise UsageError(f"source: must be given for whose={claim['whose']}")
    threshold_in_words(claim)
    expected = str(claim.get("expected", HOLDS)).partition(":")[0]
    registry.check_choice("expected", expected, [*EXPECTED])
    if measure.lines != NOTHING:
        _check_lines(claim, noise if measure.lines == NOISE else lines)
    for one in _rows_of(claim):
        _check_good(one, measure, lines)
    _fill_braces("statement", claim)
    _fill_braces("source", claim)


def _check_value(key: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key in WORDS:
        registry.check_choice(key, value, WORDS[key])
    elif key in NUMBERS and not (number and math.isfinite(value)):
        allowed = "finite" if number else "a number"
        raise UsageError(f"{key}={value}: must be {allowed}")
    elif key == "where" and not isinstance(value, dict):
        raise UsageError(f"{key}={value}: must map columns to values")
    elif not (key in (*NUMBERS, "where") or isinstance(value, str)):
        raise UsageError(f"{key}={value}: must be a word")


def _check_lines(claim: Claim, lines: LinesOf) -> None:
    for figure in _several_values("figure", claim["figure"]):
        allowed = lines_of_panel(lines, figure, claim.get("axis", ""), "figure")
        for key in LINES:
            for line in _several_values(key, claim[key]) if key in claim else ():
                registry.check_choice(f"figure {figure}: {key}", line, allowed)
        if "curve" in claim:
            curves = sorted(decoded_curves(figure))
            registry.check_choice(f"figure {figure}: curve", claim["curve"], curves)


def _check_good(claim: Claim, measure: Measure, lines: LinesOf) -> None:
    """Raise UsageError if the good line does not run, or if a reason is missing."""
    good = _good_line(claim)
    if good == NO_LINE:
        if not claim.get("reason"):
            raise UsageError(f"reason: must be given for good={NO_LINE}")
        if "below_zero" in claim:
            raise UsageError(f"below_zero: is of a good line, and good={NO_LINE}")
        return
    axis = claim.get("axis", "")
    for figure in _several_values("figure", claim["figure"]):
        ran = measure.lines == RUNS
        own = lines_of_panel(lines, figure, axis, "figure") if ran else ()
        registry.check_choice("good", good, [NO_LINE, *own])


def _good_line(claim: Claim) -> str:
    """Return the line that a claim calls good, empty if `good` is not given."""
    return _fill_braces("good", claim) if claim.get("good") else ""


def _fill_braces(key: str, claim: Claim) -> str:
    """Return a string of a claim, with keys in braces replaced by their values."""
    try:
        return str(claim.get(key, "")).format(**claim)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{key}={claim[key]}: braces must name keys of the claim "
            f"({type(error).__name__}: {error})"
        ) from None


def _several_values(key: str, value: Any) -> list[Any]:
    """Return the values of a key as a list, also if it has a single value."""
    if key not in LISTS or not isinstance(value, list):
        return [value]
    if not value:
        raise UsageError(f"{key}=[]: needs at least one value")
    return value


def measure_of(claim: Claim) -> Measure:
    """Return the measure that a claim names; raise UsageError if it is unknown."""
    name = claim.get("measure")
    registry.check_choice("measure", name, sorted(MEASURES))
    return MEASURES[str(name)]


def threshold_in_words(claim: Claim) -> str:
    """Return the threshold of a claim as a string."""
    keys = tuple(key for key in THRESHOLDS if key in claim)
    if keys not in FORMS:
        raise UsageError(
            f"threshold={' and '.join(keys) or None}: must be at_least, at_most, or "
            "equals with within"
        )
    words = FORMS[keys].format(**claim)
    if "below_zero" in claim:
        where = " at every point" if "axis" in claim else ""
        words += f", and at most {claim['below_zero']:g} of w = 0's error{where}"
    return words


def evaluate_claims(table: pd.DataFrame, config: Mapping[str, Any]) -> pd.DataFrame:
    """Evaluate every claim of an experiment.

    Parameters
    ----------
    table : DataFrame
        The tidy table of the experiment, one row per checkpoint.
    config : mapping
        The experiment's resolved configuration with `claims`, `profile` and `figures`.
        It also has the experiment's name as `paper` and, if they exist, the manifest's
        `not_run` and the folder's `choices`.

    Returns
    -------
    DataFrame
        One row per claim, with the columns `COLUMNS`. `interval` is the interval of the
        value. `of_zero` is the error of the good line over the error of w = 0, with its
        interval; both errors are measured where the claim is decided. `open` names the
        lines whose best setting may lie beyond those tried, with reasons. `verdict` is
        one of `lookup.VERDICTS`, with its reason in parentheses.

    Raises
    ------
    UsageError
        If a claim states no threshold.
    """
    import pandas as pd

    table = add_failed_lines(table, config)
    seen: dict[tuple[Any, ...], Any] = {}
    rows = [
        _row_of_claim(claim, table, config, seen)
        for entry in config.get("claims", ())
        for claim in _rows_of(entry)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows_of(entry: Claim) -> Iterator[dict[str, Any]]:
    """Yield one claim per value of the list-valued keys."""
    together = ("figure", "epsilon") if measure_of(entry).over_sets else ()
    whole = {"epsilon": 1.0, **entry} if together else {**entry}
    whole |= {key: _several_values(key, whole[key]) for key in together}
    axes = [k for k in LISTS if isinstance(whole.get(k), list) and k not in together]
    for values in product(*(whole[name] for name in axes)):
        yield {**whole, **dict(zip(axes, values, strict=True))}


def _row_of_claim(
    claim: Claim,
    table: pd.DataFrame,
    config: Mapping[str, Any],
    seen: dict[tuple[Any, ...], Any],
) -> dict[str, object]:
    """Return the row of one claim: its measured value and its verdict."""
    good, there = _good_line(claim), {*table.get("panel", ())}
    figures = _several_values("figure", claim["figure"])
    axis = claim.get("axis", "")
    panels = [panel for one in figures for panel in panels_of(there, one, axis)]
    none = f"{good} ({claim['reason']})" if claim.get("reason") else good
    row: dict[str, object] = {
        "paper": config.get("paper", ""),
        "figure": ", ".join(figures),
        "statement": _fill_braces("statement", claim),
        "whose": claim.get("whose", ""),
        "source": _fill_braces("source", claim),
        "kind": claim.get("kind", "claim"),
        "good": none if good == NO_LINE else good,
        "measured": "",
        "threshold": threshold_in_words(claim),
        "value": math.nan,
        "interval": "",
        "of_zero": "",
        "standing": "",
        "expected": claim.get("expected", ""),
        "open": _open_choices(claim, panels, config),
        "profile": config.get("profile", ""),
    }
    smoke = str(config.get("profile")).partition(",")[0] == SMOKE
    measure, lookup = measure_of(claim), Lookup(table, config, claim, seen=seen)
    is_good = good not in ("", NO_LINE)
    more = {"n": lookup.noise.n} if measure.lines == NOISE else {}
    words = {"statistic": lookup.statistic, **claim, **more}
    row["measured"] = measure.words.format(**words)
    try:
        found = measure(lookup)
        said, why, share = "", "", unknown_estimate(math.nan)
        if is_good and not measure.over_sets:
            said, why, share = _beside_zero(lookup, good, found)
        verdict = _verdict_of(claim, found.estimate, share)
        standing = _standing_still(lookup, measure, good)
    except Missing as reason:
        return {**row, "verdict": f"{NOT_JUDGED if smoke else NOT_RUN} ({reason})"}
    still = exact_estimate(standing.point), exact_estimate(1.0)
    if is_good and verdict == HOLDS == _verdict_of(claim, *still):
        why = why or f"w = 0 in place of {good} would meet it, too"
    return {
        **row,
        "measured": f"{row['measured']}{lookup.over}",
        "value": found.estimate.point,
        "interval": _interval_in_words(found.estimate),
        "of_zero": said,
        "standing": _standing_in_words(lookup, measure, standing),
        "verdict": NOT_JUDGED if smoke else f"{VACUOUS} ({why})" if why else verdict,
    }


def _open_choices(
    claim: Claim, panels: Collection[str], config: Mapping[str, Any]
) -> str:
    """Return a string on the open choices behind a claim, with reasons.

    A choice of a setting is open if a better setting may lie beyond those tried.
    """
    measure = measure_of(claim)
    if not measure.tuned:
        return ""
    alone = measure.lines == RUNS and "axis" not in claim and not measure.over_sets
    at = float(claim.get("epsilon", 1.0)) if alone else None
    return open_of(config.get("choices", ()), panels, _lines_of_claim(claim), at)


def _interval_in_words(estimate: Estimate) -> str:
    return f"[{estimate.low:.6g}, {estimate.high:.6g}]"


def _beside_zero(
    lookup: Lookup, good: str, found: Evidence
) -> tuple[str, str, Estimate]:
    """Return the error of the good line divided by that of w = 0, and related values.

    The first value is this ratio as a string. The second is the reason if the ratio
    makes the claim vacuous, else empty. The third is the ratio as an estimate. If the
    claim has `below_zero` along an axis, the third value is the largest ratio over all
    points.
    """
    share, zero = lookup.beside_zero(good, found.at)
    said = f"{share.point:.3g} {_interval_in_words(share)}"
    why = ""
    if not share.high < 1.0:
        why = f"error of {good} / that of w = 0: {said}"
    elif found.bound > zero:
        why = f"the bound, {found.bound:.3g}, is above w = 0's error, {zero:.3g}"
    if "below_zero" in lookup.claim and "axis" in lookup.claim:
        points = lookup.along(good, str(lookup.claim["axis"])).x.tolist()
        every = (lookup.beside_zero(good, at)[0] for at in points)
        share = max(every, key=lambda one: one.point)
    return said, why, share


def _standing_still(lookup: Lookup, measure: Measure, good: str) -> Estimate:
    """Return the value that a claim would have if its good line had stayed at w = 0.

    If the claim calls no line good, its own line is used. The value is nan if it is
    unknown or there is no such line.
    """
    claim = lookup.claim
    line = good if good != NO_LINE else claim.get("line", claim.get("under", ""))
    asked = measure.lines == RUNS and claim.get("kind", "claim") == "claim"
    if not asked:
        return unknown_estimate(math.nan)
    try:
        return measure(replace(lookup, still=line, asked=[])).estimate
    except Missing:
        return unknown_estimate(math.nan)


def _standing_in_words(lookup: Lookup, measure: Measure, standing: Estimate) -> str:
    """Return a string with a claim's value at w = 0 and the lines that stay there."""
    claim, said = lookup.claim, []
    if not math.isnan(standing.point):
        said.append(f"{standing.point:.3g}")
    alone = measure.lines == RUNS and "axis" not in claim and not measure.over_sets
    for key in [key for key in LINES if alone and key in measure.needs]:
        errors = lookup(str(claim[key])).errors
        if (abs(errors[:, -1] / errors[:, 0] - 1.0) < STILL).all():
            said.append(f"{claim[key]} stays at w = 0")
    return "; ".join(said)


def _lines_of_claim(claim: Claim) -> list[str]:
    """Return the labels of the lines that a claim compares.

    The labels of their runs at other epsilons are included.
    """
    lines = [str(claim[key]) for key in LINES if key in claim]
    return [*lines, *(f"{line} over epsilon" for line in lines)]


def _verdict_of(claim: Claim, estimate: Estimate, share: Estimate) -> str:
    """Return the verdict of a claim from its interval and its threshold.

    Parameters
    ----------
    claim : mapping
        The claim with its threshold. Its key `below_zero`, if given, is the largest
        allowed value of `share`.
    estimate, share : Estimate
        The value of the claim, and the good line's error divided by that of w = 0.
    """
    low, high = claim.get("at_least", -math.inf), claim.get("at_most", math.inf)
    if "equals" in claim:
        low, high = (claim["equals"] + way * claim["within"] for way in (-1, 1))
    if math.isnan(estimate.point):
        return f"{UNDECIDED} (no value: runs were lost, or divided by nothing)"
    if math.isinf(estimate.high - estimate.low):
        return f"{UNDECIDED} (no interval: runs were lost, or are too few)"
    part = claim.get("below_zero", math.inf)
    if estimate.high < low or estimate.low > high:
        return FAILS
    if share.low > part:
        return f"{VACUOUS} ({share.point:.3g} of w = 0's error, asked {part:g} of it)"
    inside = low <= estimate.low and estimate.high <= high
    return HOLDS if inside and (share.high < part or part == math.inf) else UNDECIDED
