"""What a run was computed with: versions, machine, threads, state of the sources."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "dp_erm_bench",
    "dp-accounting",
    "hydra-core",
    "joblib",
    "libsvmdata",
    "llvmlite",
    "matplotlib",
    "numba",
    "numpy",
    "omegaconf",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "scipy",
)


def environment() -> dict[str, Any]:
    """Return the versions, the machine and the state of the checkout."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
        "cpus_usable": _usable(),
        "threads_per_worker": 1,
        "numba_threading_layer": os.environ.get("NUMBA_THREADING_LAYER", "default"),
        "packages": {name: _version(name) for name in PACKAGES},
        "git": _git(Path(__file__).resolve().parents[2]),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _usable() -> int | None:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _git(root: Path) -> dict[str, Any] | None:
    if not (root / ".git").exists():
        return None
    try:
        commit = _output("git", "-C", str(root), "rev-parse", "HEAD")
        changed = _output("git", "-C", str(root), "status", "--porcelain")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changed)}


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, check=True, timeout=10)
    return done.stdout.decode().strip()
