"""A worker that starts while its parent still plans what is to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.runner.manifest import plain_command
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.process import Worker


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
