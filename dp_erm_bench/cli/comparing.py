"""The command compare: two results folders, or the values of a key within one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich import box
from rich.markup import escape
from rich.table import Table

from dp_erm_bench.cli.folders import COLOUR, print_table
from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.files import csv_of
from dp_erm_bench.results.runs import read_manifest

if TYPE_CHECKING:
    import pandas as pd

    from dp_erm_bench.results.compare import Rule

USAGE = "dp-erm-bench compare A B, or compare FOLDER --between algorithm"
SHOWN = 40
"""Rows of a comparison on the terminal."""

LABELS = ("panel", "line", "dataset", "algorithm", "epsilon", "setting", "measure")
ORDER = ("worse", "undecided", "better", "only in A", "only in B", "same")


def compare_command(arguments: Sequence[str]) -> int:
    """Compare two results folders; return 1 if something is worse, else 0.

    Raises
    ------
    UsageError
        For anything wrong with the arguments or the folders.
    """
    options = _parser().parse_args(list(arguments))
    from dp_erm_bench.results.compare import Rule, compare, named_finals

    rule = Rule(options.by, options.tolerance, options.interval)
    if len(options.folders) != 2 - bool(options.between):
        raise UsageError(f"compare: name two folders, or one; as in {USAGE}")
    if options.where and not options.between:
        raise UsageError("--where: belongs to --between")
    sides = [named_finals(folder) for folder in options.folders]
    if options.between:
        _between(sides[0], options, rule)
        return 0
    rows = compare(sides[0], sides[1], options.on, rule, options.ignore)
    for name, folder in zip("AB", options.folders, strict=True):
        print(f"{name}: {folder}{_origin(folder)}")
    _print_rows(rows, rule.least)
    _write(rows, options.csv)
    return int((rows["verdict"] == "worse").any())


def _between(finals: pd.DataFrame, options: argparse.Namespace, rule: Rule) -> None:
    """Compare the first value of a key with each other one: no regression is told."""
    import pandas as pd

    from dp_erm_bench.results.compare import between, compare

    key = options.between
    where = dict(map(condition, options.where))
    ((first, one), *others), skipped = between(finals, key, where)
    for value, why in skipped.items():
        print(f"not compared: {key}={value} was skipped: {why}")
    tables = []
    for value, other in others:
        rows = compare(one, other, options.on, rule, options.ignore)
        print(f"A: {key}={first}\nB: {key}={value}")
        _print_rows(rows, rule.least)
        tables.append(rows.assign(a=first, b=value))
    _write(pd.concat(tables), options.csv)


def condition(text: str) -> tuple[str, list[str]]:
    """Return key and values of a `--where`."""
    name, sign, values = text.partition("=")
    if not (name and sign and values):
        raise UsageError(f"--where={text}: must be KEY=VALUE or KEY=VALUE,VALUE")
    return name, values.split(",")


def _write(rows: pd.DataFrame, path: Path | None) -> None:
    if path is not None:
        try:
            path.write_text(csv_of(rows), encoding="utf-8", newline="")
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"--csv={path}: {reason}") from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"compare: {message}; as in {USAGE}")


def _parser() -> argparse.ArgumentParser:
    def words(text: str) -> list[str]:
        return list(dict.fromkeys(text.split(",")))

    parser = _Parser(prog=USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--between", default="")
    parser.add_argument("--where", action="append", default=[])
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
    print_table(_comparison(rows.head(SHOWN)))
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
