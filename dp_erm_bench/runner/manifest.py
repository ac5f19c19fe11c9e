"""The manifest of a run: what was asked, with what, when, and what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import NotRun, Wanted
from dp_erm_bench.plugins.names import content, is_file, label
from dp_erm_bench.results.runs import (
    check_run,
    environment,
    now,
    read_manifest,
    write_run,
)
from dp_erm_bench.results.segment import FORMAT
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.process import Worker
from dp_erm_bench.runner.session import Session

LEAST_RANGE = 3


@contextlib.contextmanager
def recorded(
    session: Session,
    blocks: Sequence[Mapping[str, Any]],
    cases: Sequence[Wanted],
    missing: Sequence[NotRun],
) -> Iterator[dict[str, Any]]:
    """Write a run's manifest when it starts, and again when it ends or is ended.

    Yields
    ------
    dict
        Its content, to be completed by the run.

    Raises
    ------
    UsageError
        If the folder cannot be written to: before anything runs.
    """
    clock = time.monotonic()
    told = _asked(session, blocks, cases, missing)
    write_run(session.folder, told)
    outcome = "failed"
    try:
        yield told
        outcome = "complete"
    except (KeyboardInterrupt, SystemExit):
        outcome = "interrupted"
        raise
    finally:
        told |= {
            "ended": now(),
            "seconds": round(time.monotonic() - clock, 3),
            "outcome": outcome,
            "trials_run": session.ran,
            "counts": session.counts(),
        }
        # A run that fails has its own sentence; a full disk must not hide it.
        quiet = () if outcome == "complete" else (UsageError,)
        with contextlib.suppress(*quiet):
            check_run(session.folder, session.run)
            write_run(session.folder, told)


def _asked(
    session: Session,
    blocks: Sequence[Mapping[str, Any]],
    cases: Sequence[Wanted],
    missing: Sequence[NotRun],
) -> dict[str, Any]:
    """Return what is known of a run before it starts."""
    options = session.options
    return {
        "run": session.run,
        "experiment": session.name,
        "profile": options.profile,
        "version": importlib.import_module("dp_erm_bench").__version__,
        "format": FORMAT,
        "command": plain_command(options.command),
        "started": now(),
        "ended": None,
        "outcome": "running",
        "drawn": [],
        "not_run": [dataclasses.asdict(one) for one in missing],
        "damaged": session.damaged,
        "options": options.as_dict(),
        "environment": environment(),
        "experiment_file": dict(options.files),
        "solver_files": solver_files(cases),
        "config": options.config,
        "blocks": None
        if options.config.get("blocks")
        else [_short(dict(block)) for block in blocks],
    }


def solver_files(cases: Iterable[Wanted]) -> dict[str, str]:
    """Return the SHA-256 of the solvers' files, with the modules beside them."""
    names = sorted({case.algorithm for case in cases if is_file(case.algorithm)})
    return {f"{label(name)}.py": content(name) for name in names}


def _short(value: Any) -> Any:
    """Spell consecutive integers, such as ten thousand seeds, as a range."""
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    integers = all(type(one) is int for one in value)
    if integers and len(value) >= LEAST_RANGE:
        first, last = value[0], value[-1]
        if list(value) == list(range(first, last + 1)):
            return f"range({first},{last + 1})"
    return [_short(one) for one in value]


def plain_command(command: Sequence[str]) -> list[str]:
    """Return a command line without the folder of its program."""
    return [os.path.basename(command[0]), *command[1:]] if command else []


@contextlib.contextmanager
def early_worker(folder: Path, options: RunOptions) -> Iterator[Worker | None]:
    """Lend a worker that imports what it needs, if there is likely something to do.

    To import takes as long as to plan a small sweep, and there is more than one core.
    It is not started where the last run was of the same command line and came to its
    end: then there is nothing to do, unless something is retried.
    """
    worker = Worker(options.execute) if _expected(folder, options) else None
    try:
        yield worker
    finally:
        if worker is not None:
            worker.end()


def _expected(folder: Path, options: RunOptions) -> bool:
    if options.mode == "plan":
        return False
    last = read_manifest(folder)
    same = last.get("command") == plain_command(options.command)
    return bool(options.retry) or not (same and last.get("outcome") == "complete")
