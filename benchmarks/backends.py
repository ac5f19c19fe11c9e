"""What stands in for the solver: each takes a batch of trials, returns its records."""

import ctypes
import os
import signal
from collections.abc import Sequence
from typing import Any

from dp_erm_bench.experiment.lines import Trial

CULPRIT = 77
HOLD = 200_000
"""Microseconds."""


def nothing(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return a record at once."""
    return [
        {
            "key": trial.key,
            "status": "ok",
            "message": "",
            "facts": {},
            "trajectory": {"iteration": [0, 1], "objective": [1.0, 0.5]},
        }
        for trial in trials
    ]


def holding(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Stay in native code, with the interpreter's lock held."""
    ctypes.PyDLL(None).usleep(HOLD)
    return nothing(trials)


def hanging(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Never return from native code at one seed."""
    if any(trial.spec["seed"] == CULPRIT for trial in trials):
        ctypes.PyDLL(None).sleep(3600)
    return nothing(trials)


def killing(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Kill this worker at one seed."""
    if any(trial.spec["seed"] == CULPRIT for trial in trials):
        os.kill(os.getpid(), signal.SIGKILL)
    return nothing(trials)
