"""The runs of a results folder: their ids and one manifest for each.

``runs/<run>.json`` stays for good; ``manifest.json`` is a copy of the one written last.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dp_erm_bench.paths import spelled, write_atomic
from dp_erm_bench.results.folder import locked, removed, telling

LATEST = "manifest.json"
RUNNING = '"outcome": "running"'


def new_run_id() -> str:
    """Return the id of a run: when it started, where, and its process."""
    return f"{time.time_ns():020d}-{_host()}-{os.getpid()}"


def now() -> str:
    """Return the time as manifests spell it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_run(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the manifest of a run, named by its `run`, and copy it as the latest.

    What JSON cannot hold is written as text.

    Raises
    ------
    UsageError
        If the folder cannot be written to.
    """
    with telling(folder), locked(folder):
        _write(folder, content, latest=True)


def check_run(folder: Path, run: str) -> None:
    """Refuse to go on where the manifest of a run is gone: so is its folder.

    Raises
    ------
    UsageError
        If it is.
    """
    if not _path(folder, run).exists():
        raise removed(folder)


def read_run(folder: Path, run: str) -> dict[str, Any]:
    """Return the manifest of a run, empty if there is none that can be read."""
    return _content(_path(folder, run))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the latest manifest that can be read, empty if there is none."""
    latest = _content(folder / LATEST)
    older = reversed(sorted((folder / "runs").glob("*.json")))
    return latest or next(filter(None, map(_content, older)), {})


def note_ended(folder: Path) -> None:
    """Write down which runs ended without a word: killed, or their machine stopped.

    Only runs of this machine are judged, by whether their process is still there.
    """
    running = [path.stem for path in (folder / "runs").glob("*.json") if _runs(path)]
    ended = [run for run in running if _is_gone(run)]
    if ended:
        with telling(folder), locked(folder):
            latest = _content(folder / LATEST).get("run")
            for run in ended:
                noticed = {"run": run, "outcome": "interrupted", "noticed": now()}
                content = read_run(folder, run) | noticed
                _write(folder, content, latest=run == latest)


def _path(folder: Path, run: str) -> Path:
    return folder / "runs" / f"{run}.json"


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(folder: Path, content: Mapping[str, Any], latest: bool) -> None:
    text = json.dumps(spelled(dict(content)), indent=2, default=str) + "\n"
    paths = [_path(folder, content["run"]), *[folder / LATEST] * latest]
    for path in paths:
        write_atomic(path, lambda file: file.write(text.encode()))


def _runs(path: Path) -> bool:
    try:
        return RUNNING in path.read_text(errors="replace")
    except OSError:
        return False


def _is_gone(run: str) -> bool:
    _, _, place = run.partition("-")
    host, _, pid = place.rpartition("-")
    if sys.platform == "win32" or host != _host() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _host() -> str:
    return "".join(c if c.isalnum() else "_" for c in socket.gethostname())
