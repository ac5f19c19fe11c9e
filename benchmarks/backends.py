"""Functions that replace the solver in measurements of the runner.

Each takes a batch of trials and returns their records.
"""

import ctypes
import os
import signal
from collections.abc import Sequence
from typing import Any

from dp_erm_bench.experiment.lines import Trial

CULPRIT = 77
HOLD = 200_000
"""Duration of a call of `holding`, in microseconds."""


def nothing(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return records with made-up numbers, without solving anything."""
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
    """Stay in native code for a while, and hold the interpreter's lock."""
    ctypes.PyDLL(None).usleep(HOLD)
    return nothing(trials)


def hanging(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Hang in native code if the batch has the trial with one given seed."""
    if any(trial.spec["seed"] == CULPRIT for trial in trials):
        ctypes.PyDLL(None).sleep(3600)
    return nothing(trials)


def killing(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Kill this worker if the batch has the trial with one given seed."""
    if any(trial.spec["seed"] == CULPRIT for trial in trials):
        os.kill(os.getpid(), signal.SIGKILL)
    return nothing(trials)
