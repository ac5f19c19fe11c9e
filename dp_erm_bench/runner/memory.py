"""Memory: what this process holds of its own, and what the machine has."""

from __future__ import annotations

import math
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError

UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
SIZE = re.compile(r"(\d+(?:\.\d*)?)([KMGT]?)B?", re.IGNORECASE)
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container's kernel says how much its processes may use."""

LEAST = 1 << 20


def own_memory() -> int:
    """Return the bytes that this process holds alone: not files that it maps.

    Where the kernel does not tell (other than Linux) it is the most it ever held.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most << 10
    return (resident - shared) * resource.getpagesize()


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
