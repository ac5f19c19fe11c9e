"""The commands on results folders: collect, report, compare."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.report.claims.lookup import NOT_JUDGED, UNJUDGED
from dp_erm_bench.report.make import CLAIMS, draw_and_judge, drawn_last, of_today
from dp_erm_bench.results.runs import note_ended, read_manifest, read_noted

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {"figure": 3, "statement": 7, "measured": 5, "threshold": 2, "value": 2}
"""Columns of the claims on the terminal and their share of its width."""

WIDTH = 140
COLOUR = {"holds": "green", "fails": "red", "better": "green", "worse": "red"}

USAGE = "dp-erm-bench compare A B"
SHOWN = 40
"""Rows of a comparison on the terminal."""

LABELS = ("panel", "line", "dataset", "algorithm", "epsilon", "setting", "measure")
ORDER = ("worse", "undecided", "better", "only in A", "only in B", "same")


def report_command(arguments: Sequence[str]) -> int:
    """Print the claims of folders and where the figures drawn last are."""
    for folder in _existing(arguments):
        report(folder)
    return 0


def _existing(folders: Sequence[str]) -> list[Path]:
    if not folders:
        raise UsageError("name at least one results folder, as in results/sweep")
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(f"{folder}: no such folder")
    return [Path(folder) for folder in folders]


def collect_command(arguments: Sequence[str]) -> int:
    """Gather the records of folders into their tables, and draw and judge again.

    Nothing is imported that a manifest names and that is not part of the package: it
    may be anyone's, and the command that made the folder names its own modules.

    Raises
    ------
    UsageError
        If a folder holds no plan of a run.
    """
    from dp_erm_bench.results.table import UNREADABLE, collect

    for folder in _existing(arguments):
        if not (folder / "plan.jsonl").is_file():
            raise UsageError(f"{folder}: no results folder, it has no plan.jsonl")
        collect(folder)
        note_ended(folder)
        config = read_manifest(folder).get("config")
        if isinstance(config, dict) and config.get("figures"):
            try:
                _draw_again(folder, config)
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


def _draw_again(folder: Path, config: Mapping[str, Any]) -> None:
    figures = of_today(config)["figures"]
    entries = figures if isinstance(figures, list) else [{"kind": ".py"}]
    if any(isinstance(one, dict) and is_file(one.get("kind")) for one in entries):
        print(
            f"{folder}: the manifest names a file or a module of figures that is none "
            "of the package's; it is not imported, the command of the run draws again",
            file=sys.stderr,
        )
    else:
        draw_and_judge(folder, config)


def report(folder: Path) -> None:
    """Print the claims of a folder and where the figures drawn last are."""
    claims, drawn = read_noted(folder, CLAIMS), drawn_last(folder)
    if claims is not None and CLAIMS in drawn:
        try:
            _print(_claims_table(folder.name, claims))
            if f",{NOT_JUDGED}," in claims:
                print(UNJUDGED)
        except (ValueError, LookupError, AttributeError, csv.Error):
            again = f"is damaged; dp-erm-bench collect {folder} makes it again"
            raise UsageError(f"{folder / CLAIMS}: {again}") from None
    for name in drawn:
        if name != CLAIMS:
            print(f"figure: {(folder / name).with_suffix('.pdf')} and .png")
    if not drawn:
        print(f"{folder}: no claims and no figures")


def _print(table: Table) -> None:
    Console(width=None if Console().is_terminal else WIDTH).print(table)


def _claims_table(name: str, claims: str) -> Table:
    """Return the claims as a table for the terminal, with the counts as its title."""
    rows = list(csv.DictReader(io.StringIO(claims, newline="")))
    parts = [row["verdict"].partition(" (") for row in rows]
    verdicts = [verdict for verdict, _, _ in parts]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    profiles = ", ".join(sorted({row.get("profile") or "" for row in rows} - {""}))
    about = profiles if profiles.startswith("changed") else f"profile {profiles}"
    heading = f"{name} ({about})" if profiles else name
    title = f"{heading}: {counts or 'no claims'}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column, share in COLUMNS.items():
        table.add_column(column, ratio=share)
    table.add_column("verdict", no_wrap=True)
    for row, (verdict, _, reason) in zip(rows, parts, strict=True):
        if reason:
            row["measured"] = reason.removesuffix(")")
        cells = [_cell(row.get(column, "")) for column in COLUMNS]
        shown = f"{verdict}, open" if row.get("open") else verdict
        table.add_row(*cells, shown, style=COLOUR.get(verdict, ""))
    return table


def _cell(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return escape(text)


def compare_command(arguments: Sequence[str]) -> int:
    """Compare two results folders; return 1 if something is worse, else 0."""
    options = _parser().parse_args(list(arguments))
    from dp_erm_bench.results.compare import Rule, compare
    from dp_erm_bench.results.finals import named_finals

    rule = Rule(options.by, options.tolerance, options.interval)
    sides = [named_finals(folder) for folder in options.folders]
    rows = compare(sides[0], sides[1], options.on, rule, options.ignore)
    if options.csv:
        try:
            rows.to_csv(options.csv, index=False)
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"--csv={options.csv}: {reason}") from error
    for name, folder in zip("AB", options.folders, strict=True):
        print(f"{name}: {folder}{_origin(folder)}")
    _print_rows(rows, rule.least)
    return int((rows["verdict"] == "worse").any())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"compare: {message}; as in {USAGE} --on objective")


def _parser() -> argparse.ArgumentParser:
    def words(text: str) -> list[str]:
        return list(dict.fromkeys(text.split(",")))

    parser = _Parser(prog=USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("folders", nargs=2, type=Path)
    parser.add_argument("--on", type=words, default=["objective"])
    parser.add_argument("--by", default="trial")
    parser.add_argument("--ignore", type=words, default=[])
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--interval", type=float, default=0.95)
    parser.add_argument("--csv", type=Path)
    return parser


def _origin(folder: Path) -> str:
    """Return the version and the commit of a folder's last run, as far as known."""
    manifest = read_manifest(folder)
    git = (manifest.get("environment") or {}).get("git") or {}
    changed = ", with changes" if git.get("dirty") else ""
    origin = [f"version {manifest['version']}"] if manifest.get("version") else []
    origin += [f"commit {git['commit'][:12]}{changed}"] if git.get("commit") else []
    return f" ({', '.join(origin)})" if origin else ""


def _print_rows(rows: pd.DataFrame, least: int) -> None:
    """Print the most important rows, and count the others."""
    rank = rows["verdict"].map(ORDER.index)
    rows = rows.loc[rank.sort_values(kind="stable").index]
    _print(_comparison(rows.head(SHOWN)))
    if len(rows) > SHOWN:
        print(f"and {len(rows) - SHOWN} more: --csv FILE writes all")
    counts = rows["verdict"].value_counts()
    print(", ".join(f"{counts[name]} {name}" for name in ORDER if name in counts))
    few = rows["low"].isna() & (rows["verdict"] == "undecided")
    if few.any():
        print(f"{few.sum()} undecided for want of seeds: it takes {least}")


def _comparison(rows: pd.DataFrame) -> Table:
    """Return the rows of a comparison; unknown cells are empty."""
    table = Table(box=box.SIMPLE_HEAD)
    labels = [name for name in LABELS if (rows[name] != "").any()]
    for name in labels:
        table.add_column(name)
    for name in ("runs", "A", "B", "change", "interval", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for row in rows.to_dict("records"):
        a, b = row["runs_a"], row["runs_b"]
        medians = [row["median_a"], row["median_b"]]
        low, high = _percent(row["low"]), _percent(row["high"])
        table.add_row(
            *(escape(str(row[name])) for name in labels),
            str(a) if a == b else f"{a}/{b}",
            *("" if median != median else f"{median:.4g}" for median in medians),
            _percent(row["change"]),
            f"{low} to {high}" if low else "",
            f"{row['verdict']} ({row['note']})" if row["note"] else row["verdict"],
            style=COLOUR.get(row["verdict"]),
        )
    return table


def _percent(value: float) -> str:
    return "" if value != value else f"{100 * value:+.3g} %" if value else "0"
