"""The commands report and collect; print claims, figures and choices of `tune`."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dp_erm_bench.cli.options import parser_of
from dp_erm_bench.cli.usage import escape_controls
from dp_erm_bench.errors import UsageError, typed_text
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.registry import ALGORITHM, QUANTITIES, built_in
from dp_erm_bench.results.files import as_it_was, read_text, typed_path
from dp_erm_bench.results.runs import note_ended, read_manifest
from dp_erm_bench.results.statistics import (
    ALONE,
    BASELINES,
    CONSTANTS,
    MODELS,
    NO_INTERCEPT,
    NOTHING,
    RISKS,
    TIE,
    TIES,
    WINS,
    medians_of,
    nothing_beats,
)
from dp_erm_bench.results.tuned import BESIDE, OBJECTIVE, PROBLEM, tuned_choices

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    **{"figure": 3, "statement": 7, "whose": 2, "measured": 5},
    **{"threshold": 2, "value": 2, "interval": 3},
}
"""Columns of the table of claims on the terminal, and their shares of its width."""

WIDTH = 140

COLOUR = {
    **{"holds": "green", "fails": "red", "vacuous": "yellow"},
    **{"better": "green", "worse": "red"},
}


def report_command(arguments: Sequence[str]) -> int:
    """Print the claims and figures of results folders, and write them to a page.

    The page is `report.html` in the folder. For several folders it is written into the
    parent of the first folder; `--out` names another file.

    Raises
    ------
    UsageError
        If a folder does not exist, its claims are damaged, or the page cannot be
        written.
    """
    from dp_erm_bench.report.html.page import NAME, write_report

    options = parser_of("report").parse_intermixed_args(arguments)
    folders = options.folders
    for folder in folders:
        report(folder)
    first = folders[0].resolve()
    home = folders[0] if len(folders) == 1 else first.parent
    print(f"report: {typed_path(write_report(folders, options.out or home / NAME))}")
    return 0


def collect_command(arguments: Sequence[str]) -> int:
    """Rebuild the tables of folders from records, redraw figures and judge claims.

    A manifest is not trusted: modules that it names are imported only if they are part
    of this package. Modules of a user are imported only by the command that made the
    folder.

    Raises
    ------
    UsageError
        If a folder does not contain the plan of a run.
    """
    from dp_erm_bench.results.table import UNREADABLE, collect_table

    options = parser_of("collect").parse_intermixed_args(arguments)
    for folder in options.folders:
        if not (folder / "plan.jsonl").is_file():
            raise UsageError(f"{folder}: no results folder, it has no plan.jsonl")
        collect_table(folder)
        note_ended(folder)
        config = read_manifest(folder).get("config")
        if isinstance(config, dict) and config.get("figures"):
            try:
                draw_again(folder, config)
            except UsageError:
                raise
            except (*UNREADABLE, MemoryError) as error:
                raise UsageError(
                    f"{folder}: its manifest or its records do not fit its figures "
                    f"({type(error).__name__}): it cannot be drawn"
                ) from error
            report(folder)
        print(f"results: {folder / 'results.parquet'}", file=sys.stderr)
    return 0


def draw_again(folder: Path, config: Mapping[str, Any]) -> None:
    """Draw a folder's figures and judge its claims, if all their kinds are built in.

    Otherwise a message says that no module was imported.
    """
    from dp_erm_bench.report.make import draw_and_judge

    figures = config["figures"]
    entries = figures if isinstance(figures, list) else [{"kind": ".py"}]
    if any(isinstance(one, dict) and is_file(one.get("kind")) for one in entries):
        print(
            f"{typed_path(folder)}: the manifest names figures from outside of the "
            "package; they are not imported, and the command of the run draws them "
            "again",
            file=sys.stderr,
        )
    else:
        draw_and_judge(folder, config)


def report(folder: Path) -> None:
    """Print the claims of a folder and the paths of its latest figures."""
    from dp_erm_bench.report.claims.lookup import (
        GIVEN,
        NOT_JUDGED,
        UNJUDGED,
        by_chance,
    )
    from dp_erm_bench.report.make import CLAIMS, latest_figures

    claims, drawn = read_text(folder, CLAIMS), latest_figures(folder)
    if claims is not None and CLAIMS in drawn:
        try:
            rows = _claim_rows(claims)
            print_lines(_claims_table(folder.name, rows))
            told = UNJUDGED if any(NOT_JUDGED in row["verdict"] for row in rows) else ""
            if wrong := by_chance(rows):
                told = f"{GIVEN} {wrong}"
            if told:
                print(told)
        except (ValueError, LookupError, AttributeError, csv.Error):
            again = f"is damaged; dp-erm-bench collect {folder} makes it again"
            raise UsageError(f"{folder / CLAIMS}: {again}") from None
    for name in drawn:
        if name != CLAIMS:
            print(f"figure: {(folder / name).with_suffix('.pdf')} and .png")
    if not drawn:
        print(f"{folder}: no claims and no figures")


def print_lines(table: Table) -> None:
    """Print a table; if the output is not a terminal, print one plain line per row."""
    if Console(file=getattr(sys.stdout, "inside", sys.stdout)).is_terminal:
        print_table(table)
        return
    print(escape_controls(Text.from_markup(str(table.title)).plain))
    rows = zip(*([one.header, *one.cells] for one in table.columns), strict=True)
    for cells in rows:
        words = (Text.from_markup(str(cell)).plain for cell in cells)
        print(escape_controls(" | ".join(words).replace("\n", " ")))


def print_table(table: Table) -> None:
    """Print a table; if the output is not a terminal, use a fixed width."""
    for column in table.columns:
        cells = list(column.cells)
        column._cells = [escape_controls(x) if isinstance(x, str) else x for x in cells]
    table.title = (
        escape_controls(table.title) if isinstance(table.title, str) else table.title
    )
    stream = getattr(sys.stdout, "inside", sys.stdout)
    width = None if Console(file=stream).is_terminal else WIDTH
    Console(file=stream, width=width).print(table)


def _claim_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of claims.csv from its text."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    return [{key: as_it_was(cell) for key, cell in row.items()} for row in reader]


def _claims_table(name: str, rows: Sequence[dict[str, str]]) -> Table:
    """Return the claims as a table for the terminal, titled with verdict counts."""
    from dp_erm_bench.report.claims.judge import EXPECTED
    from dp_erm_bench.report.claims.lookup import without_repetitions

    parts = [row["verdict"].partition(" (") for row in rows]
    verdicts = [verdict for verdict, _, _ in parts]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    profiles = ", ".join(sorted({row.get("profile") or "" for row in rows} - {""}))
    about = profiles if profiles.startswith("changed") else f"profile {profiles}"
    heading = f"{name} ({about})" if profiles else name
    title = f"{heading}: {counts or 'no claims'}"
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    columns = [name for name in COLUMNS if not rows or name in rows[0]]
    for column in columns:
        table.add_column(column, ratio=COLUMNS[column])
    table.add_column("verdict", no_wrap=True)
    reasons = without_repetitions(reason.removesuffix(")") for _, _, reason in parts)
    for row, (verdict, _, _), reason in zip(rows, parts, reasons, strict=True):
        if reason:
            row["measured"] = reason
        cells = [_format_cell(row.get(column, "")) for column in columns]
        expected = (row.get("expected") or "").partition(":")[0]
        decided = expected and verdict in EXPECTED
        how = "as expected" if expected == verdict else "unexpected"
        told = ", ".join(
            [verdict, *[how] * bool(decided), *["open"] * bool(row.get("open"))]
        )
        table.add_row(*cells, escape(told), style=COLOUR.get(verdict, ""))
    return table


def _format_cell(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return escape(text)


def print_best(folder: Path) -> None:
    """Print the chosen settings of a folder's lines and their results, best first."""
    try:
        found = tuned_choices(folder)
    except UsageError as error:
        print(f"dp-erm-bench: {error}", file=sys.stderr)
        return
    print_table(_choices_table(folder.name, found))
    for (panel, epsilon), rows in found.groupby(PROBLEM, sort=False):
        several = found["panel"].nunique() > 1
        where = f"{panel}, epsilon {epsilon:g}" if several else f"epsilon {epsilon:g}"
        print(f"{where}: {_verdict_words(rows)}")
    uses = dict.fromkeys(",".join(found["uncharged"]).split(","))
    print(
        f"not paid for by any budget: {', '.join(filter(None, uses))}; the certified "
        "epsilon is of one run with the chosen parameters"
    )


def _verdict_words(rows: pd.DataFrame) -> str:
    """Return a sentence on a problem's best line, its interval and the baselines."""
    first = rows.iloc[0]
    beside = ", ".join(
        f"{name} {value:.3g}"
        for name in BASELINES
        if not math.isnan(value := float(first[name]))
    )
    winner = rows[rows["place"] == WINS]
    taken = rows[rows["taken"]]["line"]
    aside = ""
    if [*taken] != [*winner["line"]]:
        aside = f"; from_results takes {taken.iloc[0]}: {BLIND}"
    if winner.empty and rows["ci_low"].isna().all():
        return f"{ALONE} ({beside})" if beside else ALONE
    if winner.empty and not (nothing := nothing_beats(rows["unbeaten"])):
        return f"no line ended with a finite {str(first['quantity']).replace('_', ' ')}"
    risks = _risk_words(rows if winner.empty else winner)
    if winner.empty:
        beside = "; ".join(filter(None, (beside, risks)))
        verdict = "beats_zero" if nothing == NOTHING else "beats_constant"
        near = rows[rows[verdict] == TIE]["line"]
        told = f"; {', '.join(near)} may be as good as it" * (len(near) > 0)
        return f"{nothing} ({beside}){told}{aside}"
    best, ties = winner.iloc[0], rows[rows["place"] == TIES]["line"]
    y = str(best["quantity"]).replace("_", " ")
    interval = f"[{best['ci_low']:.3g}, {best['ci_high']:.3g}]"
    told = f"{best['line']} is best, {y} {best['median']:.3g} {interval}"
    told += f", against {beside}" * bool(beside)
    told += f"; {NO_INTERCEPT}: {risks}" * bool(risks)
    told += f"; not distinguishable from it: {', '.join(ties)}" * (len(ties) > 0)
    told += f"; {best['line']} is in doubt: {best['doubt']}" * bool(best["doubt"])
    return told + aside


BLIND = "it does not look at the constant model, which is computed from the records"
"""Reason why `from_results` may take a line other than the best one of a verdict."""


def _risk_words(rows: pd.DataFrame) -> str:
    """Return a phrase with the risks of the first line and of the constant model.

    The phrase is empty if the problem has an intercept.
    """
    row = rows.iloc[0]
    y = next((one for one in RISKS if one in row and not math.isnan(row[one])), "")
    if not (y and row["constant"].endswith(NO_INTERCEPT)):
        return ""
    level = next(
        value
        for name in CONSTANTS
        if not math.isnan(value := row["baselines"][y].get(MODELS[name], math.nan))
    )
    name = row["constant"].partition(" by ")[0]
    return (
        f"{row['line']} has a {y.replace('_', ' ')} of {row[y]:.3g}, {name} {level:.3g}"
    )


def _choices_table(name: str, found: pd.DataFrame) -> Table:
    """Return the tuned choices as a table for the terminal, with winners in bold.

    The baselines, which need no private training, are below each problem.
    """
    import pandas as pd

    runs = ", ".join(map(str, sorted(found["runs"].unique())))
    words, splits = f"median of {runs} runs on fresh seeds", found["splits"].max()
    over = "noise on one split"
    if splits > 1:
        words = f"mean over {splits} splits of the {words}" if runs != "1" else words
        over = "splits"
    words = f"{name}: {words} [95 % interval, over {over}], best first"
    table = Table(title=escape(words), title_justify="left", box=box.SIMPLE_HEAD)
    several = found["panel"].nunique() > 1
    quantities = list(found["quantity"].unique())
    others = [one for one in BESIDE if one in found and one not in quantities]
    heads = ["problem"] * several + ["epsilon", "algorithm", *quantities, *others]
    for head in [*heads, "chosen" + " (first split)" * bool(splits > 1)]:
        told = head.replace("_", " ")
        chose = head in quantities and head in QUANTITIES and head != OBJECTIVE
        table.add_column(escape(told + " (chosen on the held-out part)" * chose))
    for (panel, epsilon), rows in found.groupby(PROBLEM, sort=False):
        same = [panel] * several + [f"{epsilon:g}"]
        for row in rows.to_dict("records"):
            marked = f"{row['median']:.3g}"
            if not math.isnan(row["ci_low"]):
                marked += f" [{row['ci_low']:.3g}, {row['ci_high']:.3g}]"
            judged = [marked if one == row["quantity"] else "" for one in quantities]
            judged += [f"{row[one]:.3g}" for one in others]
            chosen = ", ".join(
                f"{k}={_brief_value(v)}" for k, v in row["chosen"].items()
            )
            ended = chosen + (f" (open: {row['open']})" if row["open"] else "")
            if row["doubt"]:
                ended += f" (in doubt: {row['doubt']})"
            if row["constant"].endswith(NO_INTERCEPT):
                ended += f" ({NO_INTERCEPT})"
            if row["algorithm"] not in built_in(ALGORITHM) and row["searched"]:
                ended += f" (searched: {row['searched'].replace(' ', ', ')}"
                left = ", ".join(
                    f"{k}={_brief_value(v)}" for k, v in row["default"].items()
                )
                ended += f"; at their default: {left})" if left else ")"
            cells = [*same, row["line"], *judged, ended]
            style = "bold" if row["place"] == WINS else ""
            table.add_row(*map(escape, cells), style=style)
        for name in BASELINES:
            levels = pd.DataFrame(
                [
                    {row["quantity"]: row[name]}
                    | {one: row["baselines"].get(one, {}).get(name) for one in others}
                    for row in rows.to_dict("records")
                ],
                columns=[*quantities, *others],
                dtype=float,
            )
            cells = [
                "" if math.isnan(one) else f"{one:.3g}"
                for one in medians_of(levels).values()
            ]
            if any(cells):
                table.add_row(*map(escape, [*same, name, *cells, ""]), style="dim")
    return table


def _brief_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return typed_text(value) if not isinstance(value, dict) else json.dumps(value)
