"""Test workers that raise, die, crash or hang: only one trial is blamed."""

import os
import re
import signal
import time

import pytest
from launch import children, ended, wait_for

ALL = list(range(12))
OTHERS = {seed: "ok" for seed in ALL if seed != 3}


def test_a_solver_that_raises_leaves_a_row_and_the_rest_runs(runs):
    code, out, err = runs("raising")
    assert (code, err) == (1, "")
    assert runs.statuses() == OTHERS | {3: "error"}
    first, *trace = runs.messages()[3].splitlines()
    assert re.fullmatch(r"Arith.*: a solver's own mistake \(\w+\.py, line \d+\)", first)
    assert "in raising" in "".join(trace)
    assert "study: 12 trials (12 run now): 1 error, 11 ok" in out


def test_a_failure_runs_again_only_if_asked_for(runs):
    assert runs("killing").code == 1
    runs.calls()
    assert runs("healthy").code == 1
    assert runs("healthy", retry=["error", "timeout"]).code == 1
    assert runs.calls() == []
    assert runs("healthy", retry=["killed"]).code == 0
    assert runs.calls() == [3]
    assert runs.statuses() == OTHERS | {3: "ok"}
    assert runs("killing", retry=["killed"]).code == 0


@pytest.mark.parametrize(
    "execute, said",
    [
        ("killing", "SIGKILL"),
        pytest.param("crashing", "SIGSEGV", marks=pytest.mark.slow),
        pytest.param("leaving", "exit code 7", marks=pytest.mark.slow),
        ("orphaning", "SIGKILL"),
    ],
)
def test_the_culprit_is_found_in_its_batch(runs, execute, said):
    code, out, _ = runs(execute, batch_trials=5)
    assert code == 1
    assert runs.statuses() == OTHERS | {3: "killed"}
    assert runs.messages()[3].endswith(said)
    assert "killed: 1 trial\n  1 x its worker died again with no other" in out
    assert runs.calls() == sorted(OTHERS)
    assert runs.lines("key") == 12


def test_a_solver_that_ends_python_is_an_error(runs):
    assert runs("exiting").code == 1
    assert runs.statuses() == OTHERS | {3: "error"}
    assert runs.messages()[3].startswith("SystemExit: enough")


@pytest.mark.parametrize("batch_trials", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_worker_that_dies_once_accuses_nobody(runs, batch_trials):
    assert runs("killing_once", batch_trials=batch_trials).code == 0
    assert runs.statuses() == OTHERS | {3: "ok"}
    assert runs.calls() == ALL


def test_workers_killed_from_outside_accuse_nobody(runs):
    process = runs.start("slow", batch_trials=2, n_jobs=2)
    for number in (1, 4, 7):
        wait_for(lambda least=number: runs.recorded() >= least)
        os.kill(children(process.pid)[0], signal.SIGKILL)
    assert ended(process).code == 0
    assert runs.statuses() == OTHERS | {3: "ok"}
    assert runs.lines("key") == 12


@pytest.mark.parametrize("batch_trials", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_native_code_that_hangs_is_ended(runs, batch_trials):
    start = time.monotonic()
    code, out, _ = runs("hanging", batch_trials=batch_trials, time_limit=0.7)
    assert code == 1
    assert runs.statuses() == OTHERS | {3: "timeout"}
    assert runs.messages()[3] == "time_limit=0.7: it took longer"
    assert 0.7 <= runs.costs()[3] < 5
    assert runs.calls() == sorted(OTHERS)
    assert time.monotonic() - start < 20
    runs("healthy", retry=["timeout"])
    assert runs.calls() == [3]


def test_the_time_limit_is_that_of_a_trial_not_of_a_task(runs):
    """Of thirty trials of 0.1 s, ten are a task."""
    code, _, _ = runs("slow", 30, n_jobs=1, batch_trials=1, time_limit=0.7)
    assert code == 0
    assert runs.calls() == list(range(30))


@pytest.mark.slow
def test_trials_too_slow_together_run_one_by_one(runs):
    code, _, _ = runs("slow", batch_trials=12, time_limit=0.8)
    assert code == 0
    assert runs.calls() == ALL
