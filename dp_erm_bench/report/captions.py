"""Captions of figures: which runs are behind a figure, and what guarantees they have.

A *line* consists of the runs with one label in a panel, usually those of one algorithm.

Captions are made from the rows that were drawn. A fact that is the same for all panels
is written once. A fact that differs is written with its panel or line. Names of lines
are in double quotes, because they may contain commas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.draw import STATISTICS, Chart, lines_alike
from dp_erm_bench.report.style import literal_text
from dp_erm_bench.results.runs import read_run
from dp_erm_bench.results.settings import (
    final_rows,
    text_of,
    unchecked_in,
    under_bounds,
)

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMES = 8
"""Largest number of lines or panels that a sentence names."""

FEW, MANY = 2, 4
"""A group of at least `MANY` names is described by the others if these are few."""

NAMED_RUNS = 3
"""Largest number of runs that a caption names; log.txt names all runs."""

UNKNOWN = "commit unknown"
TITLE, LABEL = "_title", "_label"
"""Columns that drawn rows get: the names of their panel and line in the figure."""


def join_paragraphs(*parts: str) -> str:
    """Return the parts of a caption that are not empty, one per line."""
    return "\n".join(part for part in parts if part)


def name_few(names: Iterable[str]) -> str:
    """Return a string of at most `MOST_NAMES` names, and of the number of others."""
    names = [*dict.fromkeys(names)]
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    unquoted = (re.sub(r'"[^"]*"', "", name) for name in names)
    apart = "; " if any("," in name for name in unquoted) else ", "
    return apart.join([*names[:MOST_NAMES], *more])


def quote_line(line: str) -> str:
    """Return the label of a line in double quotes."""
    return f'"{line}"'


def _name_group(names: Iterable[str], everyone: Iterable[str], kind: str) -> str:
    """Return the names of a group as a string, or "all lines except" and few others.

    Parameters
    ----------
    names : iterable of str
        The names of the group.
    everyone : iterable of str
        The names of all groups.
    kind : str
        What the names are of, `lines` or `panels`; if empty, the group is always named.
    """
    own = [*dict.fromkeys(names)]
    others = [name for name in dict.fromkeys(everyone) if name not in own]
    if kind and len(own) >= MANY and 0 < len(others) <= FEW:
        return f"all {kind} except {' and '.join(others)}"
    return name_few(own)


def drawn_rows(charts: Sequence[Chart]) -> pd.DataFrame | None:
    """Return one table with the rows of all charts, or None if there are no rows.

    The columns `TITLE` and `LABEL` are added.
    """
    import pandas as pd

    found = []
    for one in (chart for chart in charts if chart.rows is not None):
        labels = {line: one.look(line).label for line in one.lines}
        named: dict[str, Any] = {TITLE: one.name, LABEL: one.rows["line"].map(labels)}
        found.append(one.rows.assign(**named))
    return pd.concat(found) if found else None


def tell_apart(rows: pd.DataFrame, texts: pd.Series[str]) -> str:
    """Return the string that all rows share, or else each with its panels or lines.

    If the strings differ, empty strings are left out.

    Parameters
    ----------
    rows : DataFrame
        Rows with the columns `TITLE` and `LABEL`.
    texts : Series
        The string of each row, on the same index.
    """
    pairs = rows[[TITLE, LABEL]].assign(text=texts.to_numpy()).drop_duplicates()
    if pairs["text"].nunique() == 1:
        return str(pairs["text"].iloc[0])
    whose, kind = pairs[TITLE], "panels"
    if pairs[[TITLE, "text"]].drop_duplicates()[TITLE].duplicated().any():
        whose, kind = pairs[LABEL].map(quote_line), "lines"
        if pairs[[LABEL, "text"]].drop_duplicates()[LABEL].duplicated().any():
            by_line = pairs.groupby([LABEL, "text"], sort=False)[TITLE]
            whose, kind = whose + " in " + by_line.transform(name_few), ""
    groups = whose.groupby(pairs["text"], sort=False)
    return "; ".join(
        f"{text} ({_name_group(names, whose, kind)})" for text, names in groups if text
    )


def caption_of(
    charts: Sequence[Chart],
    *more: str,
    about: str = "",
    profile: str = "",
    folders: Sequence[Path] = (),
    statistic: str = "",
    rows: pd.DataFrame | None = None,
) -> str:
    """Return the caption of a figure.

    Parameters
    ----------
    charts : sequence of Chart
        The charts that were drawn.
    *more : str
        Further paragraphs, placed before the one on the runs.
    about : str
        The beginning of the caption.
    profile : str
        The profile that was run; empty if it is unknown.
    folders : sequence of Path
        The results folders, with the manifests of the runs.
    statistic : str
        A description of the statistic; if empty, the statistic of the charts is named.
    rows : DataFrame or None
        Drawn rows with `TITLE` and `LABEL`; if None, the rows of the charts.
    """
    rows = drawn_rows(charts) if rows is None else rows
    beneath = [
        f"{' and '.join(quote_line(one.look(x).label) for x in group)} ({one.name})"
        for one in charts
        for group in lines_alike(one)
    ]
    same = f"These lines coincide: {'; '.join(beneath)}." if beneath else ""
    measured = " ".join(
        f"{one.name}: {one.said}."
        if one.letter
        else f"{one.said[0].upper()}{one.said[1:]}."
        for one in charts
        if one.said
    )
    if rows is None:
        return join_paragraphs(about, same, *more, measured)
    counts = {one.name: _statistic_in_words(one) for one in charts}
    facts = facts_of_panels(rows)
    tuned = ", at settings tuned on other seeds" * bool(
        (rows["phase"] == "report").any()
    )
    words = statistic or tell_apart(rows, rows[TITLE].map(counts))
    ran = f" (profile {profile})" if profile else ""
    lost = final_rows(rows[rows["status"] == "diverged"])
    authors = any(one.authors for one in charts)
    return join_paragraphs(
        about,
        " ".join(
            f"{name}: {tell_apart(rows, rows[TITLE].map(own))}."
            for name, own in facts.items()
        ),
        f"Calibration: {tell_apart(rows, text_of(rows['calibration']))}.",
        f"{words[0].upper()}{words[1:]}{tuned}{ran}.",
        "Dashed: the authors' own figure, means of ten runs." if authors else "",
        f"Uncharged uses of the data: {_uses_in_words(rows)}.",
        _unproved_lines(rows),
        same,
        f"Diverged, counted as infinite: {len(lost)} runs." if len(lost) else "",
        "" if statistic else literal_text(under_bounds(rows)),  # views warn
        *more,
        measured,
        origin_in_words(rows, *folders),
    )


def _statistic_in_words(chart: Chart) -> str:
    counts = chart.bands["count"]
    least, most = int(counts.min()), int(counts.max())
    many = f"{least}" if least == most else f"{least} to {most}"
    return f"{STATISTICS[chart.statistic][0]} of {many} report runs"


def facts_of_panels(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return facts on data, objective and budget: a string for each fact and panel."""
    facts: dict[str, dict[str, str]] = {}
    for title, own in rows.groupby(TITLE, sort=False):
        sizes = own["n"].astype(float)
        squares = (own["delta"] * sizes**2 - 1).abs() < 1e-6
        form = own["standardise"].map({True: ", standardised"}).fillna("")
        clipped = (", " + text_of(own["by_default"])).replace(", ", "")
        words = own["penalty"].astype(str)
        one = {
            "Data": words_of(own["dataset"].astype(str) + form + clipped),
            "n x p": f"{span_of(sizes)} x {span_of(own['p'])}",
            "loss": words_of(own["loss"]),
            "penalty": words_of(words),
            "strength": span_of(own["strength"][words != "none"]),
            "epsilon": span_of(own["epsilon"]),
            "delta": "1/n^2" if squares.all() else span_of(own["delta"]),
            "adjacency": words_of(own["adjacency"]),
        }
        for name, text in one.items():
            facts.setdefault(name, {})[str(title)] = text or "none"
    return {
        k: v for k, v in facts.items() if k != "strength" or {*v.values()} != {"none"}
    }


def words_of(values: pd.Series[Any]) -> str:
    """Return the distinct strings of a column, joined by "or"."""
    return literal_text(" or ".join(text_of(values).unique()[:MOST_NAMES]))


def span_of(values: pd.Series[Any]) -> str:
    """Return the numbers of a column as a string; more than three as a range."""
    found = sorted({float(one) for one in values.dropna()})
    words = [f"{one:.6g}" if one % 1 == 0 else f"{one:.3g}" for one in found]
    return ", ".join(words) if len(words) <= 3 else f"{words[0]} to {words[-1]}"


def _uses_in_words(rows: pd.DataFrame) -> str:
    """Return a string on uses of the data outside the privacy budget, by line."""
    texts = text_of(rows["uncharged"])
    found = {use for text in texts.unique() for use in text.split(",")} - {""}
    said = []
    for use in sorted(found):
        has = texts.map({text: use in text.split(",") for text in texts.unique()})
        of_line = has.groupby([rows[TITLE], rows[LABEL]]).transform("any")
        said.append(tell_apart(rows, of_line.map({True: literal_text(use), False: ""})))
    return "; ".join(said) or "none"


def _unproved_lines(rows: pd.DataFrame) -> str:
    """Return a sentence on the lines whose nominal epsilon is not proved."""
    share = (rows["epsilon_certified"] / rows["epsilon"]).astype(float).fillna(math.inf)
    share = share.where(rows["epsilon"].astype(float) < math.inf, 0.0)
    worst = share.groupby(rows[LABEL], sort=False).max()
    found = [
        f"{'none proved' if math.isinf(most) else f'{most:.2f} times the nominal one'} "
        f"for {quote_line(str(line))}"
        for line, most in worst.items()
        if most > 1 + 1e-6
    ]
    if not found:
        return "The certified epsilon of every line is at most the nominal one."
    if len(found) < len(worst):
        found.append("at most the nominal one for all other lines")
    return f"Certified epsilon: {'; '.join(found)}."


def origin_in_words(rows: pd.DataFrame, *folders: Path) -> str:
    """Return sentences on the runs that computed the rows, latest first, with commits.

    A second sentence names algorithms that have not passed `dp-erm-bench check`, or
    passed it with a doubt.

    Parameters
    ----------
    rows : DataFrame
        Rows of the table.
    *folders : Path
        The results folders, with the manifests of their runs.
    """
    names = runs_of(rows)
    known = {
        run: next(
            (c for c in (commit_in_words(one, run) for one in folders) if c != UNKNOWN),
            UNKNOWN,
        )
        for run in names[:NAMED_RUNS]
    }
    shown = ", ".join(f"{run} ({commit})" for run, commit in known.items())
    more = len(names) - NAMED_RUNS
    tail = f"; {more} more in log.txt" if more > 0 else ""
    return join_paragraphs(
        f"Computed by runs/{shown}{tail}." if shown else "",
        in_doubt(unchecked_in(rows)),
    )


def in_doubt(names: Sequence[str]) -> str:
    """Return sentences on algorithms that `dp-erm-bench check` did not fully approve.

    These algorithms did not pass the check, or passed it with a doubt.

    Parameters
    ----------
    names : sequence of str
        The result of `unchecked_in`.
    """
    half = [name for name in names if name.endswith(")")]
    foreign = ", ".join(name for name in names if name not in half)
    return join_paragraphs(
        f"These algorithms did not pass dp-erm-bench check: {foreign}."
        if foreign
        else "",
        f"These algorithms passed dp-erm-bench check with a doubt: {', '.join(half)}."
        if half
        else "",
    )


def runs_of(rows: pd.DataFrame) -> list[str]:
    """Return the names of the runs that computed rows, the latest first."""
    named = rows["run"].dropna().unique() if "run" in rows else ()
    return sorted((str(run) for run in named if run), reverse=True)


def commit_in_words(folder: Path, run: str) -> str:
    """Return the commit of a run in words, and whether it had uncommitted changes."""
    environment = read_run(folder, run).get("environment")
    git = environment.get("git") if isinstance(environment, Mapping) else None
    name = git.get("commit") if isinstance(git, Mapping) else None
    if not isinstance(git, Mapping) or not isinstance(name, str) or not name:
        return UNKNOWN
    if "dirty" not in git:
        return f"commit {name[:7]}, with or without changes"
    return f"commit {name[:7]}{', with changes' if git['dirty'] else ''}"
