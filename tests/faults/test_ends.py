"""Test runs that are killed, interrupted or ended, and then run again."""

import os
import signal
import time

import pytest
from launch import alive, children, ended, wait_for

SEEDS = 12


def at_work(runs):
    """Return a run whose first trials are recorded and whose others never end."""
    process = runs.start("endless", SEEDS, batch_trials=1)
    wait_for(lambda: runs.recorded() == 4 and runs.lines("begin") == 6)
    return process, children(process.pid)


def starting(runs):
    """Return a run whose first workers are about to begin.

    A child from before there is a manifest is none: numpy 1 asks one about the CPU.
    """
    process = runs.start("slow", SEEDS)
    wait_for((runs.folder / "manifest.json").exists)
    wait_for(lambda: children(process.pid))
    return process, children(process.pid)


def the_rest_runs(runs):
    """Run again: what is recorded stays, the rest is run once."""
    assert runs.recorded() == 4
    assert runs.calls() == [0, 1, 2, 3]
    assert runs("healthy", SEEDS).code == 0
    assert runs.calls() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert set(runs.statuses().values()) == {"ok"}
    assert runs.lines("key") == SEEDS
    return True


@pytest.mark.alone
def test_nothing_outlives_a_parent_that_is_killed(runs):
    process, workers = at_work(runs)
    assert len(workers) == 2 and all(map(alive, workers))
    os.kill(process.pid, signal.SIGKILL)
    assert wait_for(lambda: not any(map(alive, workers))) < 1
    assert ended(process).code == -signal.SIGKILL
    assert runs.outcome() == "running"
    assert the_rest_runs(runs)
    assert runs.outcome() == "complete"


@pytest.mark.alone
def test_a_parent_killed_while_workers_start_leaves_none(runs):
    process, workers = starting(runs)
    os.kill(process.pid, signal.SIGKILL)
    assert wait_for(lambda: not any(map(alive, workers))) < 1


@pytest.mark.alone
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_end_from_outside_is_quick_and_clean(runs, number, code):
    process, workers = at_work(runs)
    start = time.monotonic()
    os.killpg(process.pid, number)
    found = ended(process)
    assert time.monotonic() - start < 2
    assert (found.code, found.err) == (code, "")
    assert not any(map(alive, workers))
    assert runs.outcome() == "interrupted"
    assert the_rest_runs(runs)


def test_ctrl_c_while_workers_start_is_as_quiet(runs):
    process, workers = starting(runs)
    os.killpg(process.pid, signal.SIGINT)
    found = ended(process)
    assert (found.code, found.err) == (130, "")
    assert not any(map(alive, workers))


def test_a_torn_last_line_costs_one_trial(runs):
    assert runs("healthy", SEEDS, n_jobs=1).code == 0
    segment = runs.folder / "records.jsonl"
    segment.write_bytes(segment.read_bytes()[:-20])
    assert runs.recorded() == SEEDS - 1
    runs.calls()
    assert runs("healthy", SEEDS).code == 0
    assert len(runs.calls()) == 1
    assert runs.recorded() == SEEDS
