"""The command plot: pictures of any results folder, without a line of Python."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.report.layout import FORMATS, save
from dp_erm_bench.report.plot import KINDS, names_of, sheet
from dp_erm_bench.report.style import house_style
from dp_erm_bench.report.view import LINE, PANEL, View
from dp_erm_bench.results.files import telling
from dp_erm_bench.results.table import load_results

if TYPE_CHECKING:
    import pandas as pd

USAGE = "dp-erm-bench plot FOLDER --x epsilon --y test_accuracy"


def plot_command(arguments: Sequence[str]) -> int:
    """Draw results folders; their pictures go into `plots/` of the first one.

    Without `--x` and `--kind` all that the results have is drawn: along the passes,
    against epsilon where it varies, and over problems where there are several.

    Raises
    ------
    UsageError
        For anything wrong with the arguments or the folders, or nothing to draw.
    """
    options = _parser().parse_args(list(arguments))
    for suffix in options.format:
        check_choice("--format", suffix, [*FORMATS])
    table = load_results(options.folders)
    folder = options.out or options.folders[0] / "plots"
    facet = None if options.facet is None else names_of(options.facet)
    where = dict(map(_condition, options.where))
    panel, line = names_of(options.panel), names_of(options.line)
    split = panel, line, facet, options.statistic, where, options.folders[0]
    asked = View(options.x, options.y, *split)
    drawn: list[Path] = []
    refused = None
    for kind, view in _asked(asked, options.kind, table):
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


def _asked(view: View, kind: str, table: pd.DataFrame) -> Iterator[tuple[str, View]]:
    """Yield what was asked for, or all that a table has."""
    if kind or view.x:
        yield kind or "curves", view
        return
    yield "curves", view
    rows = table[table["phase"] != "tune"]
    if rows["epsilon"].nunique() > 1:
        yield "curves", replace(view, x="epsilon")
    if len(rows.drop_duplicates([PANEL, "epsilon"])) > 1 and rows[LINE].nunique() > 1:
        yield from ((kind, view) for kind in KINDS[1:])


def _condition(text: str) -> tuple[str, list[str]]:
    name, sign, values = text.partition("=")
    if not (name and sign and values):
        raise UsageError(f"--where={text}: must be COLUMN=VALUE or COLUMN=VALUE,VALUE")
    return name, values.split(",")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"plot: {message}; as in {USAGE}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path)
    for name in ("x", "y", "kind", "width"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--panel", default=PANEL)
    parser.add_argument("--line", default=LINE)
    parser.add_argument("--facet")
    parser.add_argument("--statistic", default="median")
    parser.add_argument("--where", action="append", default=[])
    parser.add_argument("--format", type=names_of, default=FORMATS)
    parser.add_argument("--no-caption", dest="caption", action="store_false")
    parser.add_argument("--out", type=Path)
    return parser
