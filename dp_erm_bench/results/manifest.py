"""The manifest of a run: what was asked, with what, when, and what came of it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dp_erm_bench.paths import spelled, write_atomic

NAME = "manifest.json"
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


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a manifest atomically; what JSON cannot hold is written as text."""
    text = json.dumps(spelled(dict(content)), indent=2, default=str) + "\n"
    write_atomic(folder / NAME, lambda file: file.write(text.encode()))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder, empty if there is none that can be read."""
    try:
        content: dict[str, Any] = json.loads((folder / NAME).read_text())
    except (OSError, ValueError):
        return {}
    return content


def environment() -> dict[str, Any]:
    """Return the versions, the machine and the state of the checkout."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
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
