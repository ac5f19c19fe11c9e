"""Test faults of hosts on a local Dask cluster.

Faults of trials are tested in test_faults.
"""

import os
import signal
import time

import pytest
from launch import alive, descendants, ended, wait_for

from dp_erm_bench.runner.engines.dask import Connection
from dp_erm_bench.runner.options import RunOptions

pytestmark = pytest.mark.slow

DASK = {"engine": "dask"}
OTHERS = {seed: "ok" for seed in range(12) if seed != 3}


def test_a_trial_that_ends_its_host_three_times_is_killed_and_may_be_retried(runs):
    code, out, err = runs("bereaving", batch_trials=1, **DASK)
    assert (code, err) == (1, "")
    assert "killed: 1 trial\n  1 x lost with its host 3 times, the last" in out
    assert runs.statuses() == OTHERS | {3: "killed"}
    first, *log = runs.messages()[3].splitlines()
    assert log[-1] == "the last words of a host" and len(log) <= 20
    assert runs.lines("key") == 12
    runs.calls()
    assert runs("healthy", retry=["killed"]).code == 0
    assert runs.calls() == [3]


@pytest.mark.engines
def test_hosts_that_are_killed_again_and_again_accuse_nobody(runs):
    """One of two, then both, then one after another."""
    process = runs.start("slow", 100, batch_trials=1, **DASK)
    for killed in range(6):
        least = runs.recorded() if killed else 4
        wait_for(lambda least=least: runs.recorded() > least)
        wait_for(runs.hosts)
        for host in runs.hosts()[: 2 if killed == 1 else 1]:
            os.kill(host, signal.SIGKILL)
    found = ended(process)
    assert (found.code, found.err) == (0, "")
    assert set(runs.statuses().values()) == {"ok"}
    assert runs.lines("key") == 100


@pytest.mark.parametrize(
    "number, wait",
    [
        pytest.param(number, wait, marks=[] if wait == 0.1 else pytest.mark.engines)
        for number in (signal.SIGKILL, signal.SIGINT)
        for wait in (0.0, 0.1, 0.4, 0.8, 1.2)
    ],
)
def test_a_run_that_ends_while_workers_start_leaves_none(runs, number, wait):
    process = runs.start("slow", **DASK)
    wait_for(lambda: descendants(process.pid))
    time.sleep(wait)
    before = descendants(process.pid)
    os.kill(process.pid, number)
    found = ended(process)
    assert found.code == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in found.err
    wait_for(lambda: not any(map(alive, before)), 4.0)
    wait_for(lambda: not runs.left(), 4.0)


@pytest.mark.engines
def test_a_worker_whose_nanny_has_given_up_is_replaced():
    with Connection(RunOptions(engine="dask"), 1) as connection:
        (before,) = connection.threads()
        cluster = connection.workers.cluster
        (nanny,) = cluster.workers.values()
        cluster.sync(nanny.close)
        wait_for(lambda: connection.threads().keys() - {before})
