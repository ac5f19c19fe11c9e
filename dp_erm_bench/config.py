"""From the resolved configuration to the options of the runner and the folder."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.options import RunOptions

MOST_JOBS = 1024
LONGEST_NAME = 200
UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
SIZE = re.compile(r"(\d+(?:\.\d*)?)([KMGT]?)B?", re.IGNORECASE)
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container's kernel says how much its processes may use."""

LEAST = 1 << 20


def run_options(
    config: Mapping[str, Any], command: tuple[str, ...], **changes: Any
) -> RunOptions:
    """Return the runner's options of a resolved configuration.

    Parameters
    ----------
    config : mapping
        The whole configuration as plain values.
    command : tuple of str
        The command line, for the manifest.
    **changes : Any
        Fields of `RunOptions` that the configuration does not hold.

    Raises
    ------
    UsageError
        If a value is out of range.
    """
    import joblib

    runner = dict(config["runner"])
    if runner["n_jobs"] == "auto":
        runner["n_jobs"] = joblib.cpu_count()
    if isinstance(runner["n_jobs"], int) and runner["n_jobs"] > MOST_JOBS:
        raise UsageError(f"runner.n_jobs={runner['n_jobs']}: at most {MOST_JOBS}")
    runner["retry"] = tuple(runner["retry"])
    n_jobs = max(1, runner["n_jobs"]) if isinstance(runner["n_jobs"], int) else 1
    runner["worker_memory"] = worker_memory(runner["worker_memory"], n_jobs)
    return RunOptions(
        **runner,
        mode=config["mode"],
        profile=config["profile"] or "",
        command=command,
        config=config,
        **changes,
    )


def results_folder(config: Mapping[str, Any], default: str) -> Path:
    """Return the folder of a run's results, named `default` unless a name is given.

    Raises
    ------
    UsageError
        If `name` is not a plain folder name, or `results_dir` can be no folder.
    """
    name = config["name"]
    name = default if name is None else name
    odd = (
        len(name.encode()) > LONGEST_NAME or not name.isprintable() or not name.strip()
    )
    if Path(name).name != name or name == ".." or odd:
        raise UsageError(
            f"name={name.strip() or repr(name)}: must be the name of a folder, not a "
            f"path, of at most {LONGEST_NAME} characters"
        )
    parent = Path(config["results_dir"])
    _check_parent(parent, config["results_dir"])
    return parent / name


def _check_parent(parent: Path, given: str) -> None:
    """Refuse what is no folder, and could never be one."""
    if not given.strip() or not given.isprintable():
        raise UsageError(f"results_dir={given!r}: must be the name of a folder")
    there = next(one for one in (parent, *parent.absolute().parents) if one.exists())
    if not there.is_dir():
        raise UsageError(f"results_dir={given}: {there} is no folder")


def machine_memory() -> int:
    """Return the bytes of this machine, or of the container that this process is in."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in map(Path, LIMITS):
        if path.is_file() and (limit := path.read_text().strip()).isdecimal():
            found.append(int(limit))
    return min(found)


def worker_memory(given: Any, n_jobs: int) -> float | None:
    """Return the bytes after which a worker is replaced, None for no limit.

    Parameters
    ----------
    given : Any
        Bytes, a size as 500M or 2G (of 1024), None, or `auto`: half the machine's
        memory, shared by the workers.
    n_jobs : int
        Workers.

    Raises
    ------
    UsageError
        If it is no size, or less than 1 MB.
    """
    if given == "auto":
        return machine_memory() / (2 * n_jobs)
    if given is None:
        return None
    found = SIZE.fullmatch(str(given).strip()) if not isinstance(given, bool) else None
    size = (
        float(found[1]) * 1024 ** UNITS[found[2].upper()] if found else _number(given)
    )
    if not LEAST <= size < math.inf:
        raise UsageError(
            f"runner.worker_memory={given}: must be a size of at least 1M, as 500M or "
            "2G, auto, or null for no limit"
        )
    return size


def _number(given: Any) -> float:
    plain = isinstance(given, int | float) and not isinstance(given, bool)
    return float(given) if plain else math.nan
