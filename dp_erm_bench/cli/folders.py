"""The commands on results folders: collect and report."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dp_erm_bench.cli.main import visible
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.report.claims.lookup import NOT_JUDGED, UNJUDGED
from dp_erm_bench.report.make import CLAIMS, draw_and_judge, drawn_last, of_today
from dp_erm_bench.results.files import as_it_was, typed
from dp_erm_bench.results.runs import note_ended, read_manifest, read_noted

COLUMNS = {"figure": 3, "statement": 7, "measured": 5, "threshold": 2, "value": 2}
"""Columns of the claims on the terminal and their share of its width."""

WIDTH = 140
LONGEST_NAME = 200
"""Bytes of the name of a results folder."""

COLOUR = {"holds": "green", "fails": "red", "better": "green", "worse": "red"}


def report_command(arguments: Sequence[str]) -> int:
    """Print the claims of folders and where their figures are; write one page of all.

    The page is `report.html` in the folder, of several in the one that holds the first,
    or the file that `--out` names.

    Raises
    ------
    UsageError
        For no such folder, damaged claims, or a page that cannot be written.
    """
    from dp_erm_bench.report.html.page import NAME, write_report

    names, out = _out(arguments)
    folders = _existing(names)
    for folder in folders:
        report(folder)
    first = folders[0].resolve()
    home = folders[0] if len(folders) == 1 else first.parent
    print(f"report: {typed(write_report(folders, out or home / NAME))}")
    return 0


def _out(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """Return the arguments without the option `--out FILE`, and its file."""
    folders: list[str] = []
    out = None
    words = iter(arguments)
    for word in words:
        name, given, value = word.partition("=")
        if name == "--out":
            out = value if given else next(words, "")
            if not out:
                raise UsageError("--out: needs a file, as in --out results/report.html")
        elif word.startswith("-"):
            raise UsageError(f"{word}: no such option; report has --out FILE")
        else:
            folders.append(word)
    return folders, Path(out) if out else None


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
            print_table(_claims_table(folder.name, claims))
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


def results_folder(config: Mapping[str, Any], default: str) -> Path:
    """Return the folder of a run's results, named `default` unless a name is given.

    Raises
    ------
    UsageError
        If `name` is not a plain folder name, or `results_dir` can be no folder.
    """
    name, parent = config["name"], config["results_dir"]
    name = default if name is None else name
    odd = len(name.encode()) > LONGEST_NAME or not _is_written(name)
    if Path(name).name != name or name == ".." or odd:
        raise UsageError(
            f"name={name.strip() or repr(name)}: must be the name of a folder, not a "
            f"path, of at most {LONGEST_NAME} characters"
        )
    if not _is_written(parent):
        raise UsageError(f"results_dir={parent!r}: must be the name of a folder")
    above = (Path(parent), *Path(parent).absolute().parents)
    there = next(one for one in above if one.exists())
    if not there.is_dir():
        raise UsageError(f"results_dir={parent}: {there} is no folder")
    return Path(parent) / name


def _is_written(name: str) -> bool:
    return name.isprintable() and bool(name.strip())


def print_table(table: Table) -> None:
    """Print a table, of fixed width where nobody looks at a terminal."""
    for column in table.columns:
        cells = list(column.cells)
        column._cells = [visible(x) if isinstance(x, str) else x for x in cells]
    table.title = visible(table.title) if isinstance(table.title, str) else table.title
    stream = getattr(sys.stdout, "inside", sys.stdout)
    width = None if Console(file=stream).is_terminal else WIDTH
    Console(file=stream, width=width).print(table)


def _claims_table(name: str, claims: str) -> Table:
    """Return the claims as a table for the terminal, with the counts as its title."""
    reader = csv.DictReader(io.StringIO(claims, newline=""))
    rows = [{key: as_it_was(cell) for key, cell in row.items()} for row in reader]
    parts = [row["verdict"].partition(" (") for row in rows]
    verdicts = [verdict for verdict, _, _ in parts]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    profiles = ", ".join(sorted({row.get("profile") or "" for row in rows} - {""}))
    about = profiles if profiles.startswith("changed") else f"profile {profiles}"
    heading = f"{name} ({about})" if profiles else name
    title = f"{heading}: {counts or 'no claims'}"
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    for column, share in COLUMNS.items():
        table.add_column(column, ratio=share)
    table.add_column("verdict", no_wrap=True)
    for row, (verdict, _, reason) in zip(rows, parts, strict=True):
        if reason:
            row["measured"] = reason.removesuffix(")")
        cells = [_cell(row.get(column, "")) for column in COLUMNS]
        told = f"{verdict}, open" if row.get("open") else verdict
        table.add_row(*cells, escape(told), style=COLOUR.get(verdict, ""))
    return table


def _cell(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return escape(text)
