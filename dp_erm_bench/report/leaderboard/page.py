"""The leaderboard as a page of Markdown, and as a small table to publish."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.leaderboard import standings
from dp_erm_bench.report.leaderboard.standings import (
    BOARDS,
    HELD_OUT,
    LOSES,
    NOT_PRIVATE,
    TIES,
    WINS,
)
from dp_erm_bench.results.statistics import quantile

if TYPE_CHECKING:
    import pandas as pd


def published(ranking: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """Return standings and references without reasons, to four digits: below 150 kB."""
    import pandas as pd

    rows = pd.concat([part.astype(ranking.dtypes) for part in (ranking, models)])
    columns = rows.drop(columns=["reason", "runs", "batch"])
    numbers = columns.select_dtypes(float)
    return columns.assign(**numbers.map(lambda value: float(f"{value:.4g}")))


def page(
    ranking: pd.DataFrame,
    models: pd.DataFrame,
    table: pd.DataFrame,
    profile: str,
    open_choices: Sequence[str],
    manifest: Mapping[str, Any],
) -> str:
    """Return the page: page.md, and board.md for each of its boards, filled in.

    Parameters
    ----------
    ranking, models : DataFrame
        The results of `standings` and `references`.
    table : DataFrame
        The tidy table behind the ranking.
    profile : str
        The profile that was run.
    open_choices : sequence of str
        A line of text for each choice beyond which a better one may lie.
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
        beyond=sum("/" in line for line in open_choices),
        tuned=int(ranking["status"].eq("ok").sum()),
        batch="batch size 1" if batch == 1 else f"in batches of up to {batch:g}",
        uncharged=", ".join(sorted(uses)) or "none",
        boards="".join(_board(*one, models, table) for one in parts.items()),
        missing="\n## Not run\n\n" + "\n".join(lines) + "\n" if lines else "",
    )


def _template(name: str) -> Template:
    path = Path(__file__).with_name(f"{name}.md")
    return Template(path.read_text(encoding="utf-8").removesuffix("\n"))


def _board(
    board: str, rows: pd.DataFrame, models: pd.DataFrame, table: pd.DataFrame
) -> str:
    """Return the part of one board."""
    problems = [ran for _, ran in rows.groupby("panel", sort=False)]
    return _template("board").substitute(
        title=BOARDS[board],
        total=rows.groupby(["panel", "epsilon"]).ngroups,
        summary=_summary(rows),
        places=_places(rows),
        nothing=_nothing(rows, models),
        problems="".join(_problem(ran, models, table) for ran in problems),
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


def _nothing(rows: pd.DataFrame, models: pd.DataFrame) -> str:
    """Return the problems on which no algorithm beats w = 0, or the classes alone."""
    accurate = rows["accuracy"] > rows["majority"]
    base = models[models["line"] == NOT_PRIVATE["base_rate"]]
    risks = rows["panel"].map(base.set_index("panel")["test_risk"])
    verdicts = {
        "objective": rows["beats_zero"] == "yes",
        "test risk (the base rate is as good)": rows["test_risk"] < risks,
        "test accuracy (the larger class is as good)": accurate,
    }
    if risks.isna().all():  # a table of before has no references
        del verdicts["test risk (the base rate is as good)"]
    lines = []
    for word, better in verdicts.items():
        where: dict[str, list[str]] = {}
        for panel, epsilon, ran in standings.problems(rows):
            if not better[ran.index].any():
                where.setdefault(panel, []).append(f"{epsilon:g}")
        named = [f"{panel} at epsilon {', '.join(e)}" for panel, e in where.items()]
        lines.append(f"- By {word}: {'; '.join(named) or '-'}")
    return "\n".join(lines)


def _problem(rows: pd.DataFrame, models: pd.DataFrame, table: pd.DataFrame) -> str:
    """Return the section of one problem: errors, then what held-out records say."""
    panel = rows["panel"].iloc[0]
    epsilons = sorted(set(rows["epsilon"]))
    ran = rows[rows["status"] == "ok"]
    middle = epsilons[len(epsilons) // 2]
    errors, held_out = [], []
    for line, own in ran.groupby("line"):
        by = {row["epsilon"]: row for row in own.to_dict("records")}
        at = [by.get(epsilon) for epsilon in epsilons]
        time = f"{1e3 * by[middle]['seconds']:.1f}" if middle in by else "-"
        errors.append((str(line), *map(_error, at), time))
        held_out.append((str(line), *map(_held_out, at)))
    if len(ran):
        zero = _number(ran["zero"].iloc[0])
        errors.append(("*w = 0*", *[zero] * len(epsilons), "0"))
    for row in models[models["panel"] == panel].to_dict("records"):
        name = row["line"] + f", {row['status']}" * (row["line"] != standings.ZERO)
        held_out.append((f"*{name}*", *[_held_out(row)] * len(epsilons)))
    head = ("algorithm", *(f"epsilon = {e:g}" for e in epsilons))
    parts = (
        _facts(table[table["panel"] == panel]),
        "",
        _table((*head, f"ms at {middle:g}"), errors),
        "Held-out records: test risk / accuracy / balanced accuracy / AUC.\n",
        _table(head, held_out),
        *_skipped(rows),
        "",
    )
    return f"\n### {panel}\n\n" + "\n".join(parts)


def _error(row: Mapping[Hashable, Any] | None) -> str:
    """Return median and quantiles of the error, bold for a winner."""
    if row is None:
        return "-"
    low, high = _number(row["low"]), _number(row["high"])
    text = f"{_number(row['median'])} [{low}, {high}]"
    return f"**{text}**" if row["place"] != LOSES else text


def _held_out(row: Mapping[Hashable, Any] | None) -> str:
    """Return the medians of what held-out records say, in the order of `HELD_OUT`."""
    values = [math.nan if row is None else float(row[name]) for name in HELD_OUT]
    if all(map(math.isnan, values)):
        return "-"
    risk, *shares = values
    words = [_number(risk), *(f"{share:.3f}" for share in shares)]
    return " / ".join(words).replace("nan", "-")


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
        return f"{value}"
    return f"{value:.3g}" if value < 1e4 else f"{value:.0e}"


def _table(head: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Return a table of Markdown."""
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows) + "\n"
