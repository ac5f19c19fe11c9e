"""What is made of a results folder: its table, figures and claims."""

from __future__ import annotations

import csv
import importlib.util
import io
import symtable
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import listed, write_atomic
from dp_erm_bench.results.folder import locked, telling
from dp_erm_bench.results.runs import (
    note,
    note_ended,
    read_manifest,
    read_noted,
    write_run,
)

SHOWN = {"figure": 3, "statement": 7, "measured": 5, "threshold": 2, "value": 2}
"""Columns of the claims on the terminal and their share of its width."""

CLAIMS = "claims.csv"
FIGURES = "dp_erm_bench.figures"
FIGURES_DIR = Path(__file__).parents[1] / "figures"
PLAIN_WIDTH = 140
COLOUR = {"holds": "green", "fails": "red"}


def collect(folder: Path) -> None:
    """Gather the records of a folder into its table, and draw and judge again.

    Parameters
    ----------
    folder : Path
        A results folder; its manifest says which figures and claims there are.

    Raises
    ------
    UsageError
        If the folder holds no plan of a run.
    """
    from dp_erm_bench.results.table import collect as gather

    if not (folder / "plan.jsonl").is_file():
        raise UsageError(f"{folder}: no results folder, it has no plan.jsonl")
    gather(folder)
    note_ended(folder)
    config = _config(folder)
    if config.get("figures"):
        _draw_again(folder, config)
        report(folder)
    print(f"results: {folder / 'results.parquet'}", file=sys.stderr)


def _draw_again(folder: Path, config: Mapping[str, Any]) -> None:
    """Draw and judge as a manifest says, which may be anyone's.

    Nothing is imported that is not part of the package: the command that made the
    folder names its own modules.
    """
    name = config["figures"]
    ours = {f"{FIGURES}.{path.stem}" for path in FIGURES_DIR.glob("*.py")}
    if not isinstance(name, str) or name not in ours:
        print(
            f"{folder}: the manifest names a module of figures that is none of the "
            "package's; it is not imported, the command of the run draws again",
            file=sys.stderr,
        )
        return
    check_figures(config)
    from dp_erm_bench.results.table import UNREADABLE

    try:
        draw_and_judge(folder, config)
    except (*UNREADABLE, MemoryError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{folder}: its manifest or its records do not fit {name} "
            f"({type(error).__name__}): it cannot be drawn"
        ) from error


def draw_and_judge(folder: Path, config: Mapping[str, Any]) -> None:
    """Evaluate the claims and draw the figures of an experiment.

    Parameters
    ----------
    folder : Path
        Its results folder, with the table.
    config : mapping
        The resolved configuration, with `figures` and `claims`. A module of figures
        may have a function `prepare` that makes another table of the folder.
    """
    from dp_erm_bench.claims import evaluate
    from dp_erm_bench.results.table import load_results

    table, module = load_results(folder), _module(config)
    before = _made(folder)
    if hasattr(module, "prepare"):
        table = module.prepare(folder)
    if config.get("claims"):
        missing = read_manifest(folder).get("not_run", [])
        claims = evaluate(table, {**config, "not_run": missing})
        text = claims.to_csv(index=False).encode()
        with telling(folder), locked(folder):
            write_atomic(folder / CLAIMS, lambda file: file.write(text))
        note(folder, CLAIMS, text)
    if module:
        figures = folder / "figures"
        with telling(folder):
            figures.mkdir(exist_ok=True)
            _check_plain(figures)
            module.draw(table, figures, config)
    now = _made(folder)
    manifest = read_manifest(folder)
    if manifest.get("run"):
        drawn = sorted(name for name in now if now[name] != before.get(name))
        write_run(folder, {**manifest, "drawn": drawn})


def _made(folder: Path) -> dict[str, tuple[int, int]]:
    """Return claims and figures of a folder, and what tells one drawn anew."""
    paths = [folder / CLAIMS, *listed(folder / "figures", ".png")]
    stats = {path: path.stat() for path in paths if path.is_file()}
    return {
        path.relative_to(folder).as_posix(): (stat.st_mtime_ns, stat.st_ino)
        for path, stat in stats.items()
    }


def _drawn(folder: Path) -> list[str]:
    """Return the claims and figures that were made last, all if no run tells.

    What else lies in the folder is of earlier runs, perhaps of other settings.
    """
    there, drawn = _made(folder), read_manifest(folder).get("drawn")
    return [name for name in there if not isinstance(drawn, list) or name in drawn]


def _check_plain(figures: Path) -> None:
    """Refuse what would lead a figure elsewhere than into its own file."""
    for path in (figures, *listed(figures, "")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise UsageError(f"{path}: must be a plain file or folder; remove it")


def _module(config: Mapping[str, Any]) -> Any:
    name = config.get("figures")
    return importlib.import_module(name) if name else None


def check_figures(config: Mapping[str, Any]) -> None:
    """Refuse an experiment whose module of figures is not there or draws nothing.

    Raises
    ------
    UsageError
        If it cannot: before anything runs, not after.
    """
    name = config.get("figures")
    if not name:
        return
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise UsageError(f"figures={name}: no such module")
    if not _binds(spec.origin, "draw"):
        raise UsageError(f"figures={name}: must be a module with a function draw")


def _binds(source: str | None, name: str) -> bool:
    """Tell whether a module binds a name, without importing it (and matplotlib)."""
    try:
        text = Path(source or "").read_text(encoding="utf-8")
        return name in symtable.symtable(text, str(source), "exec").get_identifiers()
    except (OSError, ValueError, SyntaxError):
        return False


def report(folder: Path) -> None:
    """Print the claims of a folder and where the figures drawn last are."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    claims, drawn = read_noted(folder, CLAIMS), _drawn(folder)
    if claims is not None and CLAIMS in drawn:
        try:
            console.print(_claims_table(folder.name, claims))
        except (ValueError, LookupError, AttributeError, csv.Error):
            again = f"dp-erm-bench collect {folder} makes it again"
            raise UsageError(f"{folder / CLAIMS}: is damaged; {again}") from None
    for name in drawn:
        if name != CLAIMS:
            print(f"figure: {(folder / name).with_suffix('.pdf')} and .png")
    if not drawn:
        print(f"{folder}: no claims and no figures")


def _claims_table(name: str, claims: str) -> Any:
    """Return the claims as a table for the terminal, with the counts as its title."""
    from rich import box
    from rich.table import Table

    rows = list(csv.DictReader(io.StringIO(claims, newline="")))
    verdicts = [row["verdict"].partition(" (") for row in rows]
    found = [verdict for verdict, _, _ in verdicts]
    counts = ", ".join(f"{found.count(v)} {v}" for v in dict.fromkeys(found))
    profiles = ", ".join(sorted({row.get("profile") or "" for row in rows} - {""}))
    heading = f"{name} (profile {profiles})" if profiles else name
    table = Table(
        title=f"{heading}: {counts or 'no claims'}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column, share in SHOWN.items():
        table.add_column(column, ratio=share)
    table.add_column("verdict", no_wrap=True)
    for row, (verdict, _, reason) in zip(rows, verdicts, strict=True):
        if reason:
            row["measured"] = reason.removesuffix(")")
        cells = [_cell(row.get(column, "")) for column in SHOWN]
        table.add_row(*cells, verdict, style=COLOUR.get(verdict, ""))
    return table


def _cell(text: str) -> str:
    from rich.markup import escape

    try:
        return f"{float(text):.4g}"
    except ValueError:
        return escape(text)


def _config(folder: Path) -> dict[str, Any]:
    """Return the configuration of the folder's last run, empty if it is lost."""
    config = read_manifest(folder).get("config")
    return config if isinstance(config, dict) else {}
