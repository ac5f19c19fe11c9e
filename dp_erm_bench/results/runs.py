"""The runs of a results folder: their ids, their manifests, and their environment.

Each run has a permanent manifest ``runs/<run>.json``; ``manifest.json`` is a copy of
the latest one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dp_erm_bench import paths
from dp_erm_bench.paths import write_atomic
from dp_erm_bench.results.files import (
    lock_folder,
    removed_folder_error,
    translate_os_errors,
    typed_path,
)

LATEST = "manifest.json"
TABLE = "table"
"""Key of the latest manifest under which notes on the table are written."""

RUNNING = b'"outcome": "running"'

PACKAGES = (
    *("dp_erm_bench", "dp-accounting", "hydra-core", "joblib", "libsvmdata"),
    *("llvmlite", "matplotlib", "numba", "numpy", "omegaconf", "pandas", "pyarrow"),
    *("scikit-learn", "scipy"),
)


def new_run_id() -> str:
    """Return a new id for a run, from the time, the host and the process."""
    return f"{time.time_ns():020d}-{_host_name()}-{os.getpid()}"


def current_time() -> str:
    """Return the current time in the format of manifests."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_run(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the manifest of a run, and copy it as the latest manifest.

    The file is named by the key `run`. Values that JSON cannot represent are written as
    strings. Notes on the table in the latest manifest are kept.

    Raises
    ------
    UsageError
        If the folder cannot be written to.
    """
    with translate_os_errors(folder), lock_folder(folder):
        noted = _manifest_or_nothing(folder, folder / LATEST).get(TABLE)
        _write_manifest(
            folder, {**content, **({TABLE: noted} if noted else {})}, latest=True
        )


def check_run(folder: Path, run: str) -> None:
    """Check that a run's manifest still exists, so that its folder was not removed.

    Raises
    ------
    UsageError
        If there is no manifest.
    """
    if not _manifest_path(folder, run).exists():
        raise removed_folder_error(folder)


def read_run(folder: Path, run: str) -> dict[str, Any]:
    """Return the manifest of a run; empty if it is missing or unreadable."""
    return _manifest_or_nothing(folder, _manifest_path(folder, run))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the latest readable manifest of a folder; empty if there is none."""
    older = reversed(paths.list_files(folder / "runs", ".json"))
    manifests = (
        _manifest_or_nothing(folder, path) for path in (folder / LATEST, *older)
    )
    return next(filter(None, manifests), {})


def note_table(folder: Path, noted: Mapping[str, Any]) -> None:
    """Write notes on the table into the manifest; the caller must hold the lock."""
    _write_manifest(folder, {**read_manifest(folder), TABLE: dict(noted)}, latest=True)


def note_ended(folder: Path) -> None:
    """Mark runs that were killed, or whose machine stopped, as interrupted.

    Only runs of this host are examined. A run has ended if its process is gone.
    """
    ended = []
    for path in paths.list_files(folder / "runs", ".json"):
        with contextlib.suppress(OSError):
            if RUNNING in paths.content_of(path, folder) and _is_gone(path.stem):
                ended.append(path.stem)
    if ended:
        with translate_os_errors(folder), lock_folder(folder):
            latest = _manifest_or_nothing(folder, folder / LATEST).get("run")
            for run in ended:
                noticed = {
                    "run": run,
                    "outcome": "interrupted",
                    "noticed": current_time(),
                }
                content = read_run(folder, run) | noticed
                _write_manifest(folder, content, latest=run == latest)


def _is_gone(run: str) -> bool:
    """Return whether the process of a run was on this host and no longer exists."""
    host, _, pid = run.partition("-")[2].rpartition("-")
    if sys.platform == "win32" or host != _host_name() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def _host_name() -> str:
    return "".join(c if c.isalnum() else "_" for c in socket.gethostname())


def _manifest_path(folder: Path, run: str) -> Path:
    return folder / "runs" / f"{run}.json"


def _manifest_or_nothing(folder: Path, path: Path) -> dict[str, Any]:
    """Return a manifest; if it cannot be read, warn once and return {}.

    There is no warning if the latest manifest is not JSON at all, as it has a copy.
    """
    text = b""
    try:
        text = paths.content_of(path, folder)
        content = paths.unsealed_json(text)
        why = "is damaged"
    except FileNotFoundError:
        return {}
    except OSError as error:
        content, why = None, f"cannot be read ({error.strerror})"
    run = (content or {}).get("run")
    named = path.name in (LATEST, f"{run}.json") and _is_here(folder, run)
    if run is not None and not named:
        content, why = None, "is that of another run or folder"
    if content is None and (path.name != LATEST or text[:1] == b"{"):
        _warn_of_manifest(f"{typed_path(path)}: {why}: it is left aside", text)
    return content or {}


def _is_here(folder: Path, run: object) -> bool:
    """Return whether a folder has its own manifest of a run."""
    plain = isinstance(run, str) and Path(run).name == run
    return plain and os.path.lexists(_manifest_path(folder, str(run)))


@functools.lru_cache(maxsize=1000)
def _warn_of_manifest(sentence: str, content: bytes) -> None:
    print(sentence, file=sys.stderr)


def _write_manifest(folder: Path, content: Mapping[str, Any], latest: bool) -> None:
    text = paths.sealed_json(content)
    own = [_manifest_path(folder, content["run"])] if "run" in content else []
    for path in (*own, *[folder / LATEST] * latest):
        write_atomic(path, lambda file: file.write(text))


def describe_environment() -> dict[str, Any]:
    """Return the versions, the machine and the state of the checkout."""
    from importlib import metadata  # takes 15 ms, and few commands need it

    packages: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    cpu, usable = platform.processor() or platform.machine(), os.cpu_count()
    if sys.platform == "linux":
        usable = len(os.sched_getaffinity(0))
        for line in reversed(Path("/proc/cpuinfo").read_text().splitlines()):
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu,
        "cpu_count": os.cpu_count(),
        "cpus_usable": usable,
        "threads_per_worker": 1,
        "numba_threading_layer": os.environ.get("NUMBA_THREADING_LAYER", "default"),
        "packages": packages,
        "git": _state_of_checkout(Path(__file__).resolve().parents[2]),
    }


def _state_of_checkout(root: Path) -> dict[str, Any] | None:
    if not (root / ".git").exists():
        return None
    git = ("git", "-C", str(root))
    how: dict[str, Any] = {"capture_output": True, "check": True, "timeout": 10}
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], **how).stdout.decode()
        # Only files that a run reads count. A log next to them is not a change.
        read = ("dp_erm_bench", "conf", "experiments")
        asked = (*git, "status", "--porcelain", "--", *read)
        changed = subprocess.run(asked, **how).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit.strip(), "dirty": bool(changed.strip())}
