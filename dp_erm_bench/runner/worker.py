"""What runs inside a worker process: a batch, its failures, its records."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.registry import locate
from dp_erm_bench.results.segment import Segment
from dp_erm_bench.results.store import final_objective
from dp_erm_bench.runner.trial import Trial

PR_SET_PDEATHSIG = 1
THREADS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in THREADS}
"""Environment of a worker, set before it imports numpy."""


class Outcome(NamedTuple):
    """What the parent learns of a trial; the rest is in the store."""

    key: str
    status: str
    final: float
    message: str = ""


def start(parent: int) -> None:
    """Prepare a worker: it dies with its parent and leaves Ctrl-C to it.

    The kernel sends the signal when the *thread* that made the worker ends, so
    workers are made from the main thread.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def run_recorded(trials: Sequence[Trial], folder: str, execute: str) -> list[Outcome]:
    """Run a batch, append its records to this worker's segment, return outcomes."""
    records = run_guarded(trials, execute)
    _segment(folder).append(records)
    return list(map(outcome_of, records))


def outcome_of(record: dict[str, Any]) -> Outcome:
    """Return what the parent must know of a record."""
    message = str(record.get("message") or "").partition("\n")[0]
    return Outcome(record["key"], record["status"], final_objective(record), message)


def run_guarded(trials: Sequence[Trial], execute: str) -> list[dict[str, Any]]:
    """Run a batch; what raises becomes a record, and an error is its trial's own.

    Where a batch ends in errors its trials run again one by one: what one raised
    must not be written against the others.
    """
    try:
        found = {record["key"]: record for record in locate(execute)(trials)}
        records = [found.get(trial.key) or _forgotten(trial) for trial in trials]
    except Exception as error:
        records = [failed(trial, "error", _told(error)) for trial in trials]
    if len(trials) == 1:
        return records
    return [
        run_guarded([trial], execute)[0] if record["status"] == "error" else record
        for trial, record in zip(trials, records, strict=True)
    ]


def failed(trial: Trial, status: str, message: str) -> dict[str, Any]:
    """Return the record of a trial that has no trajectory."""
    return {
        "key": trial.key,
        "status": status,
        "message": message,
        "facts": {},
        "trajectory": {},
    }


def _forgotten(trial: Trial) -> dict[str, Any]:
    return failed(trial, "error", "the batch returned no record of this trial")


def _told(error: Exception) -> str:
    """Return a first line that says what happened, then the traceback."""
    lines = traceback.format_exception(error)
    return f"{type(error).__name__}: {error}\n{''.join(lines)}".rstrip()


@functools.cache
def _segment(folder: str) -> Segment:
    return Segment(Path(folder), "")
