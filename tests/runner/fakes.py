"""Replacements of `runner.execute.run_batch` for tests of the runner."""

import math
import os
import signal
import sys
import time

FATAL_SEED = 3
ROWS = {"iteration": [0, 7], "passes": [0.0, 1.0], "seconds": [0.0, 0.5]}


def final(trial):
    """A bowl in log step and log clip whose lowest point is step 0.3, clip 8."""
    params = trial.spec["algorithm"]["params"]
    step, clip = params.get("step", 1.0), params.get("clip") or 1.0
    bowl = math.log(step / 0.3) ** 2 + math.log(clip / 8.0) ** 2
    return 1.0 + bowl + 1e-6 * int(trial.identity[:4], 16) / 65536


def record(trial, value, status="ok", message=""):
    facts = {"n": 1000, "p": 100, "optimum": 0.5, "batch_size": 1, "params": {"a": 1}}
    path = {**ROWS, "objective": [2.0, value], "nnz": [0, 3]}
    return {
        "key": trial.key,
        "status": status,
        "message": message,
        "facts": facts,
        "trajectory": path,
    }


def bowl(trials):
    return [record(trial, final(trial)) for trial in trials]


def worse_at_ten(trials):
    """Ends higher at epsilon 10, whatever the setting."""
    spoilt = [0.5 * (one.spec["budget"]["epsilon"] == 10.0) for one in trials]
    pairs = zip(trials, spoilt, strict=True)
    return [record(trial, final(trial) + more) for trial, more in pairs]


def diverging(trials):
    """Steps above 1 end at infinity."""
    found = []
    for trial in trials:
        wild = trial.spec["algorithm"]["params"].get("step", 1.0) > 1
        value, status = (math.inf, "diverged") if wild else (final(trial), "ok")
        found.append(record(trial, value, status))
    return found


def all_diverging(trials):
    return [record(trial, math.nan, "diverged") for trial in trials]


def skipping(trials):
    return [record(trial, math.nan, "skipped", "no such bound") for trial in trials]


def printing(trials):
    print("step 1 \x1b[2J")
    print("y" * 10**6, file=sys.stderr)
    assert os.fstat(sys.stdout.fileno())  # as for a subprocess
    return bowl(trials)


def raising(trials):
    if any(trial.spec["seed"] == FATAL_SEED for trial in trials):
        raise ArithmeticError("a solver's own mistake")
    return bowl(trials)


def reporting_errors(trials):
    """Do as `execute.run_batch` does: one error marks the whole batch."""
    if any(trial.spec["seed"] == FATAL_SEED for trial in trials):
        return [record(trial, math.nan, "error", "all of it") for trial in trials]
    return bowl(trials)


def forgetting(trials):
    return bowl([trial for trial in trials if trial.spec["seed"] != FATAL_SEED])


def alarmed(trials):
    """Report the seconds that the kernel leaves this process."""
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    return [record(trial, 1.0, message=str(left)) for trial in trials]


def sleeping(trials):
    time.sleep(60)
    return bowl(trials)


def threads(trials):
    """Report what the worker's environment says of threads."""
    found = [record(trial, 1.0) for trial in trials]
    for one in found:
        one["message"] = os.environ.get("OMP_NUM_THREADS", "unset")
    return found
