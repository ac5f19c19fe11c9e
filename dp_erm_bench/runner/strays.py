"""Processes that a worker's solver has started, and that outlive the worker."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "DP_ERM_BENCH_WORKER"
"""Variable in a worker's environment, inherited by all that is started in it."""

ROUNDS = 10
"""So often they are looked for: one may start another meanwhile."""


def end_strays(mark: str) -> None:
    """Kill every process whose environment has a worker's mark (on Linux).

    One that was started in an environment of its own is not found.
    """
    sought = f"{MARK}={mark}".encode()
    for _ in range(ROUNDS):
        found = list(_marked(sought))
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _marked(sought: bytes) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        # It may be another user's, or gone; what was killed has none any more.
        with contextlib.suppress(OSError):
            if sought in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
