"""The commands plot, export and compare: figures and tables of results folders."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from dp_erm_bench.cli.app import COLOUR, print_table
from dp_erm_bench.cli.options import Parser
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.report.draw import ALONG
from dp_erm_bench.report.layout import (
    FORMATS,
    plain_caption,
    save_sheet,
    write_text_file,
)
from dp_erm_bench.report.plot import (
    PLOTS,
    all_of,
    caption_of_view,
    names_of,
    sheet_of_view,
)
from dp_erm_bench.report.style import house_style
from dp_erm_bench.report.view import FORMATS as TABLES
from dp_erm_bench.report.view import (
    LINE,
    PANEL,
    Shown,
    View,
    rows_of_view,
    summary_of,
    summary_text,
)
from dp_erm_bench.results.columns import axis_words as quantity_words
from dp_erm_bench.results.files import csv_of, translate_os_errors
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.settings import HELD, ON_OPTIMUM, UNLIKE_BOUNDS
from dp_erm_bench.results.statistics import sharing_data
from dp_erm_bench.results.table import UNREADABLE, as_it_stands, load_results

if TYPE_CHECKING:
    import pandas as pd

    from dp_erm_bench.results.compare import ComparisonRule

USAGE = "dp-erm-bench compare A B, or compare FOLDER --between algorithm"
SHOWN = 40
"""Largest number of rows of a comparison that are printed."""
BRIEF = 80
"""Largest number of rows of a table that is part of another text."""
EPSILON = "epsilon"

LABELS = ("panel", "line", "dataset", "algorithm", "epsilon", "setting", "measure")
ORDER = ("worse", "undecided", "better", "only in A", "only in B", "same")


def compare_command(arguments: Sequence[str]) -> int:
    """Compare results folders or values of a key; return 1 if B is worse, else 0.

    With `--between` the exit code is always 0.

    Raises
    ------
    UsageError
        For wrong arguments or folders.
    """
    options = _compare_parser().parse_args(list(arguments))
    from dp_erm_bench.results.compare import (
        LABELS,
        ComparisonRule,
        compare_sides,
        finals_with_settings,
    )

    rule = ComparisonRule(options.by, options.tolerance, options.interval)
    if len(options.folders) != 2 - bool(options.between):
        raise UsageError(f"compare: name two folders, or one; as in {USAGE}")
    if options.where and not options.between:
        raise UsageError("--where: belongs to --between")
    sides = [finals_with_settings(folder) for folder in options.folders]
    left = {part for k in (options.between, *options.ignore) for part in k.split(".")}
    if left & {*HELD, "columns", "norm"} and {*options.on} & {*ON_OPTIMUM}:
        print(f"bounds differ: {UNLIKE_BOUNDS}")
    if shared := max(sharing_data(side, [*LABELS, "setting"]) for side in sides):
        print(f"data seeds: {shared}")
    if options.between:
        _compare_values(sides[0], options, rule)
        return 0
    rows = compare_sides(sides[0], sides[1], options.on, rule, options.ignore)
    for name, folder in zip("AB", options.folders, strict=True):
        print(f"{name}: {folder}{_origin_of(folder)}")
    _print_rows(rows, rule.least)
    _write_csv(rows, options.csv)
    return int((rows["verdict"] == "worse").any())


def _compare_values(
    finals: pd.DataFrame, options: argparse.Namespace, rule: ComparisonRule
) -> None:
    """Compare the first value of a key with each other value, and print the rows."""
    import pandas as pd

    from dp_erm_bench.results.compare import compare_sides, sides_by_key

    key = options.between
    where = dict(map(where_condition, options.where))
    ((first, one), *others), skipped = sides_by_key(finals, key, where)
    for value, why in skipped.items():
        print(f"not compared: {key}={value} was skipped: {why}")
    tables = []
    for value, other in others:
        # Labels name what differs between lines, so they must not separate the sides.
        ignore = [key, "line", *options.ignore]
        rows = compare_sides(one, other, options.on, rule, ignore)
        print(f"A: {key}={first}\nB: {key}={value}")
        _print_rows(rows, rule.least)
        tables.append(rows.assign(a=first, b=value))
    _write_csv(pd.concat(tables), options.csv)


def where_condition(text: str) -> tuple[str, list[str]]:
    """Return the key and the values of a `--where` option.

    Raises
    ------
    UsageError
        If the string is not of the form `KEY=VALUE,...`.
    """
    name, sign, values = text.partition("=")
    if not (name and sign and values):
        raise UsageError(f"--where={text}: must be KEY=VALUE or KEY=VALUE,VALUE")
    return name, values.split(",")


def _write_csv(rows: pd.DataFrame, path: Path | None) -> None:
    if path is not None:
        try:
            path.write_text(csv_of(rows), encoding="utf-8", newline="")
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"--csv={path}: {reason}") from error


def _compare_parser() -> argparse.ArgumentParser:
    def words(text: str) -> list[str]:
        return list(dict.fromkeys(text.split(",")))

    parser = Parser("compare", USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--between", default="")
    parser.add_argument("--where", action="append", default=[])
    parser.add_argument("--y", "--on", dest="on", type=words, default=["objective"])
    parser.add_argument("--by", default="trial")
    parser.add_argument("--ignore", type=words, default=[])
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--interval", type=float, default=0.95)
    parser.add_argument("--csv", type=Path)
    return parser


def _origin_of(folder: Path) -> str:
    """Return the version and commit of a folder's last run, as far as known."""
    manifest = read_manifest(folder)
    git = (manifest.get("environment") or {}).get("git") or {}
    changed = ", with changes" if git.get("dirty") else ""
    origin = [f"version {manifest['version']}"] if manifest.get("version") else []
    origin += [f"commit {git['commit'][:12]}{changed}"] if git.get("commit") else []
    return f" ({', '.join(origin)})" if origin else ""


def _print_rows(rows: pd.DataFrame, least: int) -> None:
    """Print the most important rows of a comparison, and count the others."""
    rank = rows["verdict"].map(ORDER.index)
    rows = rows.loc[rank.sort_values(kind="stable").index]
    print_table(_comparison_rows(rows.head(SHOWN)))
    if len(rows) > SHOWN:
        print(f"and {len(rows) - SHOWN} more: --csv FILE writes all")
    counts = rows["verdict"].value_counts()
    print(", ".join(f"{counts[name]} {name}" for name in ORDER if name in counts))
    few = rows["low"].isna() & (rows["verdict"] == "undecided")
    if few.any():
        print(f"{few.sum()} undecided for want of seeds: it takes {least}")


def _comparison_rows(rows: pd.DataFrame) -> Table:
    """Return the rows of a comparison as a table; unknown cells are empty."""
    table = Table(box=box.SIMPLE_HEAD)
    labels = [name for name in LABELS if (rows[name] != "").any()]
    for name in labels:
        table.add_column(name)
    for name in ("runs", "A", "B", "change", "interval", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for row in rows.to_dict("records"):
        a, b = row["runs_a"], row["runs_b"]
        medians = [row["median_a"], row["median_b"]]
        low, high = _format_percent(row["low"]), _format_percent(row["high"])
        note = f" ({row['note']})" if row["note"] else ""
        table.add_row(
            *(escape(str(row[name])) for name in labels),
            str(a) if a == b else f"{a}/{b}",
            *("" if median != median else f"{median:.4g}" for median in medians),
            _format_percent(row["change"]),
            f"{low} to {high}" if low else "",
            escape(f"{row['verdict']}{note}"),
            style=COLOUR.get(row["verdict"]),
        )
    return table


def _format_percent(value: float) -> str:
    return "" if value != value else f"{100 * value:+.3g} %" if value else "0"


PLOT = "dp-erm-bench plot FOLDER --x epsilon --y test_accuracy"
ALIASES = {"md": "markdown", "tex": "latex"}
EXPORT = "dp-erm-bench export FOLDER --y objective --format latex"


def plot_command(arguments: Sequence[str]) -> int:
    """Draw figures of results folders, by default in `plots/` of the first folder.

    Without `--x` and `--kind` all suitable figures are drawn: against the passes,
    against epsilon if it varies, and over problems if there are several.

    Raises
    ------
    UsageError
        For wrong arguments or folders, or if there is nothing to draw.
    """
    parser = _shared_parser("plot", PLOT)
    parser.add_argument("--format", type=names_of, default=FORMATS)
    parser.add_argument("--no-caption", dest="caption", action="store_false")
    parser.add_argument("--highlight", action="append", default=[])
    for name in ("kind", "width"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_args(list(arguments))
    for suffix in options.format:
        check_choice("--format", suffix, [*FORMATS])
    asked = replace(_view_of(options), highlight=tuple(options.highlight))
    table = load_results(options.folders)
    named = [(options.kind or "curves", asked)]
    views = named if options.kind or options.x else [*all_of(table, asked)]
    folder = options.out or options.folders[0] / PLOTS
    drawn: list[Path] = []
    refused = None
    for kind, view in views:
        try:
            with house_style(), translate_os_errors(folder):
                one = sheet_of_view(table, view, kind, options.width)
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / one.name
                drawn += save_sheet(one, path, options.format, options.caption)
        except UsageError as error:
            refused = refused or error
            if options.x or options.kind:
                raise
    if not drawn:
        raise refused or UsageError("plot: nothing to draw")
    for stem in dict.fromkeys(path.stem for path in drawn):
        suffixes = ", ".join(path.suffix for path in drawn if path.stem == stem)
        print(f"figure: {folder / stem}: {suffixes}")
    return 0


def export_command(arguments: Sequence[str]) -> int:
    """Print medians and intervals of results folders, or write them to a file.

    Raises
    ------
    UsageError
        For wrong arguments or folders, or if there is nothing to write.
    """
    parser = _shared_parser("export", EXPORT)
    parser.add_argument("--format", default="markdown")
    options = parser.parse_args(list(arguments))
    options.format = ALIASES.get(options.format, options.format)
    check_choice("--format", options.format, [*TABLES, *ALIASES])
    if options.format == "parquet" and not options.out:
        raise UsageError("--format=parquet: is no text; add --out FILE")
    view = replace(_view_of(options), x=options.x or EPSILON)
    if view.x in ALONG:
        raise UsageError(f"--x={view.x}: export is of the ends of runs, as at epsilon")
    drawn = rows_of_view(load_results(options.folders), view)
    table = summary_of(drawn)
    if options.format == "parquet":
        with translate_os_errors(options.out.parent):
            table.to_parquet(options.out)
    elif options.out:
        with translate_os_errors(options.out.parent):
            write_text_file(options.out, summary_text(table, options.format))
    else:
        print(summary_text(table, options.format), end="")
    print(_numbers_caption(drawn, table), end="", file=sys.stderr)
    return 0


def _numbers_caption(drawn: Shown, table: pd.DataFrame) -> str:
    """Return a caption that explains the numbers of a table."""
    quantity = quantity_words(drawn.view.y)
    judged = replace(drawn, view=replace(drawn.view, statistic="interval"))
    about = f"{quantity[0].upper()}{quantity[1:]}."
    return plain_caption(caption_of_view(judged, about, table=table))


def standings_text(folder: Path) -> str:
    """Return the output of `export` for a folder in Markdown, with its caption.

    The existing table is used and not collected again. The text is empty if `export`
    would raise an error, if the table cannot be read, or if there are more than `BRIEF`
    rows. The caption does not name the runs and the code that computed the numbers.
    """
    view = replace(
        _view_of(_shared_parser("export", EXPORT).parse_args([str(folder)])), x=EPSILON
    )
    try:
        drawn = rows_of_view(as_it_stands(folder), view)
        if drawn.rows.groupby([PANEL, "_x", LINE], dropna=False).ngroups > BRIEF:
            return ""
        table = summary_of(drawn)
        said = _numbers_caption(drawn, table).splitlines()
        told_of = [line for line in said if not line.startswith("Computed by ")]
        return "\n".join([summary_text(table, "markdown"), *told_of]) + "\n"
    except (UsageError, *UNREADABLE):
        return ""


def _view_of(options: argparse.Namespace) -> View:
    """Return the view described by options of the command line."""
    facet = None if options.facet is None else names_of(options.facet)
    where = dict(map(where_condition, options.where))
    panel, line = names_of(options.panel), names_of(options.line)
    first, *rest = options.folders
    split = panel, line, facet, options.statistic, where, first
    names = _line_names(options.names)
    return View(options.x, options.y, *split, names=names, others=tuple(rest))


def _line_names(texts: Sequence[str]) -> dict[str, str]:
    """Return the new names of lines from `--names`; they may have commas and `=`."""
    found: dict[str, str] = {}
    for text in texts:
        for part in re.split(r",(?=[^,=]+=)", text):
            line, sign, name = part.partition("=")
            if not (line.strip() and sign and name.strip()):
                raise UsageError(f"--names={text}: must be LINE=NAME or LINE=NAME,...")
            found[line.strip()] = name.strip()
    return found


def _shared_parser(name: str, usage: str) -> argparse.ArgumentParser:
    """Return a parser with the options that plots and tables share."""
    parser = Parser(name, usage, add_help=False, allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path)
    for name in ("x", "y"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--panel", default=PANEL)
    parser.add_argument("--line", default=LINE)
    parser.add_argument("--facet")
    parser.add_argument("--statistic", default="median")
    for name in ("where", "names"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--out", type=Path)
    return parser
