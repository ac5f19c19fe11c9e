"""The tables of the leaderboard's page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def problem(rows: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Return the section of one problem.

    Parameters
    ----------
    rows : DataFrame
        Its standings.
    runs : DataFrame
        Its rows of the tidy table.
    """
    epsilons = sorted(set(rows["epsilon"]))
    ran = rows[rows["status"] == "ok"]
    middle = epsilons[len(epsilons) // 2]
    body = [
        (str(line), *(_cell(own, e) for e in epsilons), *_at(own, middle))
        for line, own in ran.groupby("line")
    ]
    if len(ran):
        zero, share = ran[["zero", "majority"]].iloc[0]
        body.append(("*w = 0*", *[number(zero)] * len(epsilons), f"{share:.3f}", "0"))
    head = ("algorithm", *(f"epsilon = {e:g}" for e in epsilons))
    more = (f"accuracy at {middle:g}", f"ms at {middle:g}")
    return "\n".join(
        (
            f"\n### {rows['panel'].iloc[0]}\n",
            _facts(runs),
            "",
            table_of((*head, *more), body),
            *_skipped(rows),
            "",
        )
    )


def _facts(runs: pd.DataFrame) -> str:
    """Return data, size and objective of a problem."""
    ok = runs[runs["n"].notna()]
    if ok.empty:
        return "No run."
    one = ok.iloc[0]
    form = ", standardised" if one["standardise"] else ""
    penalty = "" if one["penalty"] == "none" else f", l2 penalty {one['strength']:g}"
    ball = "" if one["constraint"] == "none" else f", constraint {one['constraint']}"
    return (
        f"{one['dataset']}{form}: n x p = {one['n']:.0f} x {one['p']:.0f}, "
        f"{one['loss']} loss{penalty}{ball}; options `{one['dataset_options']}`."
    )


def _cell(own: pd.DataFrame, epsilon: float) -> str:
    """Return median and quantiles, bold for a winner; a dash where nothing ran."""
    here = own[own["epsilon"] == epsilon]
    if here.empty:
        return "-"
    row = here.iloc[0]
    text = f"{number(row['median'])} [{number(row['low'])}, {number(row['high'])}]"
    return f"**{text}**" if row["place"] in ("wins", "ties") else text


def _at(own: pd.DataFrame, epsilon: float) -> tuple[str, str]:
    here = own[own["epsilon"] == epsilon]
    if here.empty:
        return "-", "-"
    row = here.iloc[0]
    return f"{row['accuracy']:.3f}", f"{1e3 * row['seconds']:.1f}"


def _skipped(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line per algorithm that was skipped, with the reason."""
    skipped = rows[rows["status"] == "skipped"]
    for line, own in skipped.groupby("line", sort=False):
        where = ", ".join(f"{e:g}" for e in own["epsilon"])
        yield f"- skipped: {line} at epsilon {where}: {own['reason'].iloc[0]}"


def number(value: float) -> str:
    """Return a number to three digits."""
    if not math.isfinite(value):
        return "inf"
    return f"{value:.3g}" if value < 1e4 else f"{value:.0e}"


def table_of(head: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Return a table of Markdown."""
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows) + "\n"
