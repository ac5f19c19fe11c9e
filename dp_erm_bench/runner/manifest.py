"""The manifest of a run: what was asked, with what, when, and what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.environment import environment
from dp_erm_bench.results.runs import now, write_run
from dp_erm_bench.runner.case import NotRun
from dp_erm_bench.runner.session import Session

LEAST_RANGE = 3


@contextlib.contextmanager
def recorded(
    session: Session, blocks: Sequence[Mapping[str, Any]], missing: Sequence[NotRun]
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
    content = _asked(session, blocks, missing)
    write_run(session.folder, content)
    outcome = "failed"
    try:
        yield content
        outcome = "complete"
    except (KeyboardInterrupt, SystemExit):
        outcome = "interrupted"
        raise
    finally:
        content |= {
            "ended": now(),
            "seconds": round(time.monotonic() - clock, 3),
            "outcome": outcome,
            "trials_run": session.ran,
            "counts": session.counts(),
        }
        # A run that fails has its own sentence; a full disk must not hide it.
        quiet = () if outcome == "complete" else (UsageError,)
        with contextlib.suppress(*quiet):
            write_run(session.folder, content)


def _asked(
    session: Session, blocks: Sequence[Mapping[str, Any]], missing: Sequence[NotRun]
) -> dict[str, Any]:
    """Return what is known of a run before it starts."""
    options = session.options
    told = options.config.get("blocks")
    return {
        "run": session.run,
        "experiment": session.name,
        "profile": options.profile,
        "version": importlib.import_module("dp_erm_bench").__version__,
        "command": _plain_command(options.command),
        "started": now(),
        "ended": None,
        "outcome": "running",
        "not_run": [dataclasses.asdict(one) for one in missing],
        "damaged": session.store.damage(),
        "options": options.as_dict(),
        "environment": environment(),
        "solver_files": solver_files(blocks),
        "config": options.config,
        "blocks": None if told else [_short(dict(block)) for block in blocks],
    }


def solver_files(blocks: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the SHA-256 of the solver files among the algorithms, as typed."""
    found = {}
    for block in blocks:
        given = block.get("algorithm")
        for one in given if isinstance(given, list) else [given]:
            name = one.get("name") if isinstance(one, Mapping) else one
            path = Path(str(name))
            if path.suffix == ".py" and path.is_file():
                found[str(name)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


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


def _plain_command(command: Sequence[str]) -> list[str]:
    return [os.path.basename(command[0]), *command[1:]] if command else []
