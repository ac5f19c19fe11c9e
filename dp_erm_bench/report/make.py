"""Make claims and figures of an experiment's results folder."""

from __future__ import annotations

import importlib.util
import symtable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import listed, write_atomic
from dp_erm_bench.results.folder import locked, telling
from dp_erm_bench.results.runs import note, read_manifest, write_run

CLAIMS = "claims.csv"
DRAWN = (
    "accounting",
    "audit",
    "mangold2022",
    "mangold2023",
    "talwar2015",
)
OURS = {
    f"dp_erm_bench.figures.{name}": f"dp_erm_bench.report.{name}" for name in DRAWN
} | {"dp_erm_bench.figures.leaderboard": "dp_erm_bench.report.leaderboard.figures"}
"""The package's modules of figures, by their names in an experiment's file."""


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
    from dp_erm_bench.report.claims.judge import evaluate
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


def drawn_last(folder: Path) -> list[str]:
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
    return importlib.import_module(OURS.get(name, name)) if name else None


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
        spec = importlib.util.find_spec(OURS.get(name, name))
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
