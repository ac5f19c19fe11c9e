"""The leaderboard as a page of Markdown, and as a small table to publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.leaderboard.standings import problems, winners
from dp_erm_bench.report.leaderboard.style import BOARDS, boards
from dp_erm_bench.report.leaderboard.tables import number, problem, table_of
from dp_erm_bench.results.statistics import quantile

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED = (
    *("panel", "epsilon", "line", "status", "median", "low", "high", "accuracy"),
    *("seconds", "zero", "majority", "factor", "beats_zero", "place"),
)


def published(ranking: pd.DataFrame) -> pd.DataFrame:
    """Return the standings without reasons, to four digits: less than 100 kB."""
    kept = ranking[[*PUBLISHED]].copy()
    numbers = kept.select_dtypes(float)
    return kept.assign(**numbers.map(lambda value: float(f"{value:.4g}")))


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
        What `standings` returns.
    table : DataFrame
        The tidy table that it is made of.
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
    lines = [f"- {name}: {reason}" for name, reason in sorted(missing)]
    return _template("page").substitute(
        profile=profile,
        made="".join(f", {word}" for word in origin if word),
        runs="?" if ranking["runs"].isna().all() else int(ranking["runs"].max()),
        edges=sum("/" in line for line in edges),
        tuned=int(ranking["status"].eq("ok").sum()),
        batch="batch size 1" if batch == 1 else f"in batches of up to {batch:g}",
        uncharged=", ".join(sorted(uses)) or "none",
        boards="".join(_board(*one, table) for one in boards(ranking).items()),
        missing="\n## Not run\n\n" + "\n".join(lines) + "\n" if lines else "",
    )


def _template(name: str) -> Template:
    path = Path(__file__).with_name(f"{name}.md")
    return Template(path.read_text(encoding="utf-8").removesuffix("\n"))


def _board(board: str, rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """Return the part of one board."""
    problems = rows.groupby("panel", sort=False)
    return _template("board").substitute(
        title=BOARDS[board],
        total=rows.groupby(["panel", "epsilon"]).ngroups,
        summary=_summary(rows),
        places=_places(rows),
        nothing=_nothing(rows),
        problems="".join(
            problem(ran, table[table["panel"] == panel]) for panel, ran in problems
        ),
    )


def _summary(rows: pd.DataFrame) -> str:
    """Return what each algorithm did on all problems of a board."""
    lines = []
    for line, own in rows.groupby("line"):
        ran = own[own["status"] == "ok"]
        if len(ran):
            place = ran["place"].value_counts()
            won, tied = int(place.get("wins", 0)), int(place.get("ties", 0))
            beats = int((ran["beats_zero"] == "yes").sum())
            factor, seconds = (
                float(quantile(ran[name], 0.5)) for name in ("factor", "seconds")
            )
            cells = (line, len(ran), won, tied, beats, number(factor))
            lines.append((-won, -tied, *cells, f"{1e3 * seconds:.1f}"))
    head = ("algorithm", "ran", "wins", "ties", "beats w = 0", "factor", "ms")
    return table_of(head, [row[2:] for row in sorted(lines)])


def _places(rows: pd.DataFrame) -> str:
    """Return who wins where."""
    epsilons = sorted(set(rows["epsilon"]))
    cells: dict[str, dict[float, str]] = {}
    for panel, epsilon, lines in winners(rows):
        first = f"**{lines[0]}**" if lines else "*w = 0*"
        rest = f" ({', '.join(lines[1:])})" if lines[1:] else ""
        cells.setdefault(panel, {})[epsilon] = first + rest
    head = ("problem", *(f"epsilon = {e:g}" for e in epsilons))
    body = [(p, *(by.get(e, "") for e in epsilons)) for p, by in cells.items()]
    return table_of(head, body)


def _nothing(rows: pd.DataFrame) -> str:
    """Return the problems on which no algorithm beats w = 0, or the majority."""
    objective: dict[str, list[str]] = {}
    accuracy: dict[str, list[str]] = {}
    for panel, epsilon, ran in problems(rows):
        if not (ran["beats_zero"] == "yes").any():
            objective.setdefault(panel, []).append(f"{epsilon:g}")
        if not (ran["accuracy"] > ran["majority"]).any():
            accuracy.setdefault(panel, []).append(f"{epsilon:g}")
    return "\n".join(
        f"- By {word}: "
        + ("; ".join(f"{p} at epsilon {', '.join(e)}" for p, e in where.items()) or "-")
        for word, where in (
            ("objective", objective),
            ("test accuracy (the larger class is as good)", accuracy),
        )
    )
