"""The leaderboard as a page of Markdown, and as a small table to publish."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.leaderboard import standings
from dp_erm_bench.report.leaderboard.standings import BOARDS, LOSES, TIES, WINS
from dp_erm_bench.results.statistics import quantile

if TYPE_CHECKING:
    import pandas as pd


def published(ranking: pd.DataFrame) -> pd.DataFrame:
    """Return the standings without reasons, to four digits: less than 100 kB."""
    columns = ranking.drop(columns=["reason", "runs", "batch"])
    numbers = columns.select_dtypes(float)
    return columns.assign(**numbers.map(lambda value: float(f"{value:.4g}")))


def page(
    ranking: pd.DataFrame,
    table: pd.DataFrame,
    profile: str,
    edges: Sequence[str],
    manifest: Mapping[str, Any],
) -> str:
    """Return the page: page.md, and board.md for each of its boards, filled in.

    Parameters
    ----------
    ranking : DataFrame
        The result of `standings`.
    table : DataFrame
        The tidy table behind the ranking.
    profile : str
        The profile that was run.
    edges : sequence of str
        The lines whose choice is on an edge of a grid.
    manifest : mapping
        Of the latest run: machine, commit, what could not run.
    """
    environment = manifest.get("environment") or {}
    git = environment.get("git") or {}
    origin = [environment.get("cpu"), git.get("commit", "")[:7]]
    batch = ranking["batch"].max()
    uses = {u for text in table["uncharged"].dropna() for u in text.split(",")} - {""}
    missing = {(m["dataset"], m["reason"]) for m in manifest.get("not_run") or ()}
    parts = standings.boards(ranking)
    lines = [f"- {name}: {reason}" for name, reason in sorted(missing)]
    return _template("page").substitute(
        profile=profile,
        made="".join(f", {word}" for word in origin if word),
        runs="?" if ranking["runs"].isna().all() else int(ranking["runs"].max()),
        edges=sum("/" in line for line in edges),
        tuned=int(ranking["status"].eq("ok").sum()),
        batch="batch size 1" if batch == 1 else f"in batches of up to {batch:g}",
        uncharged=", ".join(sorted(uses)) or "none",
        boards="".join(_board(*one, table) for one in parts.items()),
        missing="\n## Not run\n\n" + "\n".join(lines) + "\n" if lines else "",
    )


def _template(name: str) -> Template:
    path = Path(__file__).with_name(f"{name}.md")
    return Template(path.read_text(encoding="utf-8").removesuffix("\n"))


def _board(board: str, rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """Return the part of one board."""
    problems = [ran for _, ran in rows.groupby("panel", sort=False)]
    return _template("board").substitute(
        title=BOARDS[board],
        total=rows.groupby(["panel", "epsilon"]).ngroups,
        summary=_summary(rows),
        places=_places(rows),
        nothing=_nothing(rows),
        problems="".join(_problem(ran, table) for ran in problems),
    )


def _summary(rows: pd.DataFrame) -> str:
    """Return wins, ties and medians of each algorithm over the problems of a board."""
    lines = []
    for line, ran in rows[rows["status"] == "ok"].groupby("line"):
        won, tied = (int((ran["place"] == place).sum()) for place in (WINS, TIES))
        beats = int((ran["beats_zero"] == "yes").sum())
        factor, seconds = (float(quantile(ran[c], 0.5)) for c in ("factor", "seconds"))
        cells = (line, len(ran), won, tied, beats, _number(factor))
        lines.append((-won, -tied, *cells, f"{1e3 * seconds:.1f}"))
    head = ("algorithm", "ran", "wins", "ties", "beats w = 0", "factor", "ms")
    return _table(head, [row[2:] for row in sorted(lines)])


def _places(rows: pd.DataFrame) -> str:
    """Return the winners of each problem as a table."""
    epsilons = sorted(set(rows["epsilon"]))
    cells: dict[str, dict[float, str]] = {}
    for panel, epsilon, lines in standings.winners(rows):
        first = f"**{lines[0]}**" if lines else "*w = 0*"
        rest = f" ({', '.join(lines[1:])})" if lines[1:] else ""
        cells.setdefault(panel, {})[epsilon] = first + rest
    head = ("problem", *(f"epsilon = {e:g}" for e in epsilons))
    body = [(p, *(by.get(e, "") for e in epsilons)) for p, by in cells.items()]
    return _table(head, body)


def _nothing(rows: pd.DataFrame) -> str:
    """Return the problems on which no algorithm beats w = 0, or the majority."""
    accurate = rows["accuracy"] > rows["majority"]
    verdicts = {
        "objective": rows["beats_zero"] == "yes",
        "test accuracy (the larger class is as good)": accurate,
    }
    lines = []
    for word, better in verdicts.items():
        where: dict[str, list[str]] = {}
        for panel, epsilon, ran in standings.problems(rows):
            if not better[ran.index].any():
                where.setdefault(panel, []).append(f"{epsilon:g}")
        named = [f"{panel} at epsilon {', '.join(e)}" for panel, e in where.items()]
        lines.append(f"- By {word}: {'; '.join(named) or '-'}")
    return "\n".join(lines)


def _problem(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """Return the section of one problem, from its standings and the tidy table."""
    panel = rows["panel"].iloc[0]
    epsilons = sorted(set(rows["epsilon"]))
    ran = rows[rows["status"] == "ok"]
    middle = epsilons[len(epsilons) // 2]
    body = []
    for line, own in ran.groupby("line"):
        at = dict.fromkeys(epsilons, ("-", "-", "-"))
        at |= {row["epsilon"]: _cells(row) for row in own.to_dict("records")}
        body.append(
            (str(line), *(median for median, *_ in at.values()), *at[middle][1:])
        )
    if len(ran):
        zero, share = ran[["zero", "majority"]].iloc[0]
        body.append(("*w = 0*", *[_number(zero)] * len(epsilons), f"{share:.3f}", "0"))
    head = ("algorithm", *(f"epsilon = {e:g}" for e in epsilons))
    more = (f"accuracy at {middle:g}", f"ms at {middle:g}")
    facts = _facts(table[table["panel"] == panel])
    parts = (facts, "", _table((*head, *more), body), *_skipped(rows), "")
    return f"\n### {panel}\n\n" + "\n".join(parts)


def _cells(row: Mapping[Hashable, Any]) -> tuple[str, str, str]:
    """Return median and quantiles, bold for a winner; accuracy; milliseconds."""
    low, high = _number(row["low"]), _number(row["high"])
    text = f"{_number(row['median'])} [{low}, {high}]"
    bold = f"**{text}**" if row["place"] != LOSES else text
    return bold, f"{row['accuracy']:.3f}", f"{1e3 * row['seconds']:.1f}"


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


def _skipped(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line per algorithm that was skipped, with the reason."""
    skipped = rows[rows["status"] == "skipped"]
    for line, own in skipped.groupby("line", sort=False):
        where = ", ".join(f"{e:g}" for e in own["epsilon"])
        yield f"- skipped: {line} at epsilon {where}: {own['reason'].iloc[0]}"


def _number(value: float) -> str:
    """Return a number to three digits."""
    if not math.isfinite(value):
        return "inf"
    return f"{value:.3g}" if value < 1e4 else f"{value:.0e}"


def _table(head: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Return a table of Markdown."""
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows) + "\n"
