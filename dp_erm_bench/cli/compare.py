"""The command compare: two results folders, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dp_erm_bench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

USAGE = "dp-erm-bench compare A B"
SHOWN = 40
WIDTH = 140
LABELS = ("panel", "line", "dataset", "algorithm", "epsilon", "setting", "measure")
COLOUR = {"worse": "red", "better": "green"}
ORDER = ("worse", "undecided", "better", "only in A", "only in B", "same")


def compare(arguments: Sequence[str]) -> int:
    """Compare two results folders and return the exit code.

    Parameters
    ----------
    arguments : sequence of str
        Two folders and options.

    Returns
    -------
    int
        1 if something is worse, else 0.

    Raises
    ------
    UsageError
        For anything wrong with the arguments or the folders.
    """
    given = _parser().parse_args(list(arguments))
    from dp_erm_bench.results.change import Rule
    from dp_erm_bench.results.compare import compare as compared
    from dp_erm_bench.results.finals import named_finals

    rule = Rule(given.by, given.tolerance, given.interval)
    sides = [named_finals(folder) for folder in given.folders]
    rows = compared(sides[0], sides[1], given.on, rule, given.ignore)
    if given.csv:
        _write(rows, given.csv)
    _print(rows, given.folders, rule.least)
    return int((rows["verdict"] == "worse").any())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"compare: {message}; as in {USAGE} --on objective")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("folders", nargs=2, type=Path)
    parser.add_argument("--on", type=_words, default=["objective"])
    parser.add_argument("--by", default="trial")
    parser.add_argument("--ignore", type=_words, default=[])
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--interval", type=float, default=0.95)
    parser.add_argument("--csv", type=Path)
    return parser


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(text.split(",")))


def _write(rows: pd.DataFrame, path: Path) -> None:
    try:
        rows.to_csv(path, index=False)
    except OSError as error:
        raise UsageError(f"--csv={path}: {error.strerror or error}") from error


def _print(rows: pd.DataFrame, folders: Sequence[Path], least: int) -> None:
    """Print what is of interest first, and count the rest."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    rank = rows["verdict"].map(ORDER.index)
    rows = rows.loc[rank.sort_values(kind="stable").index]
    for name, folder in zip("AB", folders, strict=True):
        print(f"{name}: {folder}{_origin(folder)}")
    console.print(_table(rows.head(SHOWN)))
    if len(rows) > SHOWN:
        print(f"and {len(rows) - SHOWN} more: --csv FILE writes all")
    counts = rows["verdict"].value_counts()
    said = [f"{counts[name]} {name}" for name in ORDER if name in counts]
    print(", ".join(said))
    few = rows["low"].isna() & (rows["verdict"] == "undecided")
    if few.any():
        print(f"{few.sum()} undecided for want of seeds: it takes {least}")


def _origin(folder: Path) -> str:
    """Return the version and the commit of a folder's last run, as far as known."""
    from dp_erm_bench.results.runs import read_manifest

    manifest = read_manifest(folder)
    git = (manifest.get("environment") or {}).get("git") or {}
    changed = ", with changes" if git.get("dirty") else ""
    origin = [f"version {manifest['version']}"] if manifest.get("version") else []
    origin += [f"commit {git['commit'][:12]}{changed}"] if git.get("commit") else []
    return f" ({', '.join(origin)})" if origin else ""


def _table(rows: pd.DataFrame) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    labels = [name for name in LABELS if (rows[name] != "").any()]
    for name in labels:
        table.add_column(name)
    for name in ("runs", "A", "B", "change", "interval", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for row in rows.to_dict("records"):
        cells = [escape(str(row[name])) for name in labels]
        said = f"{row['verdict']} ({row['note']})" if row["note"] else row["verdict"]
        table.add_row(*cells, *_numbers(row), said, style=COLOUR.get(row["verdict"]))
    return table


def _numbers(row: dict[Any, Any]) -> list[str]:
    """Return the cells of counts, medians, change and interval; empty if unknown."""
    a, b = row["runs_a"], row["runs_b"]
    low, high = _percent(row["low"]), _percent(row["high"])
    return [
        str(a) if a == b else f"{a}/{b}",
        *(
            "" if row[m] != row[m] else f"{row[m]:.4g}"
            for m in ("median_a", "median_b")
        ),
        _percent(row["change"]),
        f"{low} to {high}" if low else "",
    ]


def _percent(value: float) -> str:
    return "" if value != value else f"{100 * value:+.3g} %" if value else "0"
