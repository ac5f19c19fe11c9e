"""Check the papers' claims: statement, measure over the table, threshold, verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.claims.lookup import Lookup
from dp_erm_bench.report.claims.schema import LISTS, Claim, measure_of, threshold
from dp_erm_bench.report.claims.table import NOISE
from dp_erm_bench.report.curves import data_seeds, explained
from dp_erm_bench.report.missing import Missing

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "paper",
    "figure",
    "statement",
    "measured",
    "threshold",
    "value",
    "verdict",
    "profile",
)


def evaluate(table: pd.DataFrame, config: Mapping[str, Any]) -> pd.DataFrame:
    """Evaluate every claim of an experiment.

    Parameters
    ----------
    table : DataFrame
        The tidy table of the experiment, one row per checkpoint.
    config : mapping
        The experiment's resolved yaml: `claims`, `profile` and `figures`; its name as
        `paper`; and the manifest's `not_run`, if any.

    Returns
    -------
    DataFrame
        One row per claim with the columns paper, figure, statement, measured,
        threshold, value, verdict (`holds`, `fails` or `not run (why)`), profile.

    Raises
    ------
    UsageError
        If a claim names an unknown measure or states no threshold.
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
            seeds: list[int | None] = [*data_seeds(table, claim["figure"])]
        except Missing:
            seeds = [None]
        for seed in seeds:
            yield {**claim, "data_seed": seed}


def _row(
    claim: Claim, table: pd.DataFrame, config: Mapping[str, Any]
) -> dict[str, object]:
    """Measure one claim and judge it."""
    measure = measure_of(claim)
    lookup = Lookup(
        table,
        config,
        str(claim["figure"]),
        float(claim.get("epsilon", 1.0)),
        claim.get("data_seed"),
    )
    more = {"n": lookup.noise.n} if measure.lines == NOISE else {}
    row: dict[str, object] = {
        "paper": config.get("paper", ""),
        "figure": claim["figure"],
        "statement": _statement(claim),
        "measured": measure.words.format(**claim, **more),
        "threshold": threshold(claim),
        "value": math.nan,
        "profile": config.get("profile", ""),
    }
    try:
        value = measure(claim, lookup)
    except Missing as reason:
        return {**row, "verdict": f"not run ({reason})"}
    verdict = "holds" if _holds(claim, value) else "fails"
    return {**row, "value": value, "verdict": verdict}


def _statement(claim: Claim) -> str:
    """Return the statement with its names filled in."""
    text = str(claim["statement"]).format(**claim)
    seed = claim.get("data_seed")
    return text if seed is None else f"{text} (data seed {seed})"


def _holds(claim: Claim, value: float) -> bool:
    """Compare a value with the claim's threshold; what is not finite fails."""
    if not math.isfinite(value):
        return False
    if "at_least" in claim:
        return bool(value >= claim["at_least"])
    if "at_most" in claim:
        return bool(value <= claim["at_most"])
    return bool(abs(value - claim["equals"]) <= claim["within"])
