"""The commands plot and export: pictures and tables of any results folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from dp_erm_bench.cli.comparing import condition
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.report.export import FORMATS as TABLES
from dp_erm_bench.report.export import summary, written
from dp_erm_bench.report.layout import FORMATS, save
from dp_erm_bench.report.plot import all_of, names_of, sheet
from dp_erm_bench.report.style import house_style
from dp_erm_bench.report.texts import write_text
from dp_erm_bench.report.view import ALONG, LINE, PANEL, View, shown
from dp_erm_bench.results.files import telling
from dp_erm_bench.results.table import load_results

PLOT = "dp-erm-bench plot FOLDER --x epsilon --y test_accuracy"
EXPORT = "dp-erm-bench export FOLDER --y objective --format latex"


def plot_command(arguments: Sequence[str]) -> int:
    """Draw results folders; their pictures go into `plots/` of the first one.

    Without `--x` and `--kind` all that the results have is drawn: along the passes,
    against epsilon where it varies, and over problems where there are several.

    Raises
    ------
    UsageError
        For anything wrong with the arguments or the folders, or nothing to draw.
    """
    parser = _parser("plot", PLOT)
    parser.add_argument("--format", type=names_of, default=FORMATS)
    parser.add_argument("--no-caption", dest="caption", action="store_false")
    for name in ("kind", "width"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_args(list(arguments))
    for suffix in options.format:
        check_choice("--format", suffix, [*FORMATS])
    asked, table = _view(options), load_results(options.folders)
    folder = options.out or options.folders[0] / "plots"
    drawn: list[Path] = []
    refused = None
    named = [(options.kind or "curves", asked)]
    for kind, view in named if options.kind or options.x else all_of(table, asked):
        try:
            with house_style(), telling(folder):
                one = sheet(table, view, kind, options.width)
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / one.name
                drawn += save(one, path, options.format, options.caption)
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
    """Write medians and intervals of results folders, as text or into a file.

    Raises
    ------
    UsageError
        For anything wrong with the arguments or the folders, or nothing to write.
    """
    parser = _parser("export", EXPORT)
    parser.add_argument("--format", default="markdown")
    options = parser.parse_args(list(arguments))
    check_choice("--format", options.format, [*TABLES])
    if options.format == "parquet" and not options.out:
        raise UsageError("--format=parquet: is no text; add --out FILE")
    view = replace(_view(options), x=options.x or "epsilon")
    if view.x in ALONG:
        raise UsageError(f"--x={view.x}: export is of the ends of runs, as at epsilon")
    table = summary(shown(load_results(options.folders), view))
    if options.format == "parquet":
        with telling(options.out.parent):
            table.to_parquet(options.out)
    elif options.out:
        with telling(options.out.parent):
            write_text(options.out, written(table, options.format))
    else:
        print(written(table, options.format), end="")
    return 0


def _view(options: argparse.Namespace) -> View:
    """Return the view that options ask for."""
    facet = None if options.facet is None else names_of(options.facet)
    where = dict(map(condition, options.where))
    panel, line = names_of(options.panel), names_of(options.line)
    split = panel, line, facet, options.statistic, where, options.folders[0]
    return View(options.x, options.y, *split)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; as in {self.usage}")


def _parser(name: str, usage: str) -> argparse.ArgumentParser:
    """Return the options that plots and tables share."""
    parser = _Parser(name, usage, add_help=False, allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path)
    for name in ("x", "y"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--panel", default=PANEL)
    parser.add_argument("--line", default=LINE)
    parser.add_argument("--facet")
    parser.add_argument("--statistic", default="median")
    parser.add_argument("--where", action="append", default=[])
    parser.add_argument("--out", type=Path)
    return parser
