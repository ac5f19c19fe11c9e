"""Replacements of `run_batch` that fail as solvers, machines and people do.

Every call is written to the file LOG, so that tests can count calls.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fakes import bowl

CULPRIT = 3
"""The seed of the trial that misbehaves."""


def healthy(trials):
    with open(os.environ["LOG"], "a") as log:
        log.write("".join(f"{trial.spec['seed']}\n" for trial in trials))
    return bowl(trials)


def guilty(trials):
    return any(trial.spec["seed"] == CULPRIT for trial in trials)


def slow(trials):
    time.sleep(0.1 * len(trials))
    return healthy(trials)


def endless(trials):
    """Come to the later seeds only, and never end."""
    if max(trial.spec["seed"] for trial in trials) >= 4:
        time.sleep(60)
    return healthy(trials)


def raising(trials):
    if guilty(trials):
        raise ArithmeticError("a solver's own mistake")
    return healthy(trials)


def exiting(trials):
    if guilty(trials):
        sys.exit("enough")
    return healthy(trials)


def leaving(trials):
    """End the process without a signal and without Python's leave."""
    if guilty(trials):
        os._exit(7)
    return healthy(trials)


def killing(trials):
    if guilty(trials):
        os.kill(os.getpid(), signal.SIGKILL)
    return healthy(trials)


def crashing(trials):
    if guilty(trials):
        ctypes.string_at(0)
    return healthy(trials)


def killing_once(trials):
    """Die at the culprit once, as under a passing shortage of memory."""
    mark = Path(os.environ["LOG"]).with_name("mark")
    if guilty(trials) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return healthy(trials)


def bereaving(trials):
    """Kill the host, here the parent of this worker, which hears of it and ends."""
    if guilty(trials):
        print("the last words of a host", flush=True)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return healthy(trials)


def orphaning(trials):
    """Die, and leave a child behind that holds all that its parent had open."""
    if guilty(trials):
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(60)
        os.kill(os.getpid(), signal.SIGKILL)
    return healthy(trials)


def hanging(trials):
    """Hang in native code that holds the interpreter's lock."""
    if guilty(trials):
        ctypes.PyDLL(None).sleep(60)
    return healthy(trials)


def real(trials):
    """Run the trials as they are."""
    from dp_erm_bench.runner.execute import run_batch

    return run_batch(trials)


def wordy(trials):
    """Leave records of 4 kB."""
    return [{**record, "message": "x" * 4000} for record in healthy(trials)]


def cancelling(trials):
    """Cancel the job of the batch system that this process is of."""
    if guilty(trials):
        subprocess.run(["scancel", os.environ["SLURM_JOB_ID"]], check=True)
        time.sleep(60)
    return healthy(trials)


def lasting(trials):
    """Tell of the call at once, and take long."""
    found = healthy(trials)
    time.sleep(8)
    return found
