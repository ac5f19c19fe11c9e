"""Test faults of a Dask scheduler at an address, and of its workers."""

import os
import re
import signal
import time

import pytest
from launch import ended, wait_for

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.options import RunOptions

pytestmark = pytest.mark.slow

TRIALS = 40


def asked(cluster, patience=15.0, **options):
    """Return the options of a run on a scheduler that has its own workers."""
    usual = {"engine": "dask", "n_jobs": None, "batch_trials": 2}
    return usual | {"address": cluster.address, "patience": patience} | options


def workers(cluster, number=2):
    """Return workers that end with their scheduler, and have no nanny."""
    return [cluster.add("--no-nanny") for _ in range(number)]


def at_work(runs, cluster, **options):
    """Return a run on workers that are there."""
    process = runs.start("slow", TRIALS, **asked(cluster, **options))
    wait_for(lambda: runs.recorded() >= 6)
    return process


def completed(runs, process):
    found = ended(process)
    assert (found.code, found.err) == (0, "")
    assert set(runs.statuses().values()) == {"ok"}
    assert runs.lines("key") == TRIALS
    return True


@pytest.mark.parametrize("failures", [3, pytest.param(0, marks=pytest.mark.engines)])
def test_lost_workers_cost_time_only(runs, cluster, failures):
    """All but one, then the last; others come later. Dask allows a task 3 losses."""
    if not failures:
        cluster.kill(cluster.scheduler)
        cluster.restart(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    first, second, last = workers(cluster, 3)
    process = at_work(runs, cluster)
    cluster.kill(first)
    cluster.kill(second)
    before = runs.recorded()
    wait_for(lambda: runs.recorded() >= before + 4)
    cluster.kill(last)
    time.sleep(1.5)
    workers(cluster)
    assert completed(runs, process)


def test_a_scheduler_that_comes_back_costs_time_only(runs, cluster, seen):
    workers(cluster)
    process = at_work(runs, cluster)
    cluster.kill(cluster.scheduler)
    cluster.restart()
    workers(cluster)
    assert completed(runs, process)
    done = f"{TRIALS} of {TRIALS} ok"
    seen("the scheduler is killed and comes back", "dask, address", done)


@pytest.mark.engines
def test_a_scheduler_that_comes_back_late_finds_its_workers_waiting(runs, cluster):
    """New workers ask for a scheduler before there is one."""
    workers(cluster)
    process = at_work(runs, cluster)
    cluster.kill(cluster.scheduler)
    workers(cluster)
    time.sleep(6.0)
    cluster.restart()
    assert completed(runs, process)


@pytest.mark.engines
def test_a_scheduler_that_is_killed_again_and_again_costs_time_only(runs, cluster):
    workers(cluster)
    process = at_work(runs, cluster)
    for _ in range(3):
        cluster.kill(cluster.scheduler)
        cluster.restart()
        workers(cluster)
        before = runs.recorded()
        wait_for(lambda least=before: runs.recorded() > least, 30.0)
    assert completed(runs, process)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.engines)]
)
def test_a_scheduler_that_stays_away_is_one_sentence(runs, cluster, number, seen):
    workers(cluster)
    process = at_work(runs, cluster, patience=2.0)
    os.kill(cluster.scheduler.pid, number)
    start = time.monotonic()
    found = ended(process)
    assert time.monotonic() - start < 15.0
    where = f"dp-erm-bench: runner.address={cluster.address}: no scheduler answered"
    assert found.err == f"{where} for 2 s; what is recorded stays\n"
    assert found.code == 2 and runs.outcome() == "failed"
    before = runs.recorded()
    again = runs("slow", TRIALS, n_jobs=2)
    assert again.code == 0 and f"({TRIALS - before} run now)" in again.out
    assert runs.lines("key") == TRIALS
    fault = "is killed" if number == signal.SIGKILL else "hangs"
    outcome = "exit 2, one sentence; the same command does the rest"
    seen(f"the scheduler {fault} for good", "dask, address", outcome)


@pytest.mark.engines
def test_workers_that_stay_away_are_one_sentence(runs, cluster, seen):
    there = workers(cluster)
    process = at_work(runs, cluster, patience=2.0)
    for one in there:
        cluster.kill(one)
    found = ended(process)
    assert found.err.startswith(
        "dp-erm-bench: runner=dask: no worker for runner.patience=2"
    )
    assert (found.code, found.err.count("\n")) == (2, 1)
    where = "all workers are killed for good", "dask, address"
    seen(*where, "exit 2, one sentence")


def test_who_does_not_answer_or_has_no_worker_is_one_sentence(runs, cluster):
    """Neither waits much longer than it may."""
    start = time.monotonic()
    found = ended(runs.start("healthy", **asked(cluster, patience=1.0)))
    said = "dp-erm-bench: runner=dask: no worker for runner.patience=1 s; what is "
    said += "recorded stays\n"
    assert (found.code, found.err) == (2, said)
    cluster.kill(cluster.scheduler)
    found = ended(runs.start("healthy", **asked(cluster, patience=1.0)))
    assert found.code == 2 and found.err.count("\n") == 1
    assert (
        f"runner.address={cluster.address}: no scheduler answered for 1 s" in found.err
    )
    assert time.monotonic() - start < 10.0


@pytest.mark.engines
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_end_from_outside_leaves_the_cluster_to_the_next_run(
    runs, cluster, number, code
):
    workers(cluster)
    process = at_work(runs, cluster)
    os.killpg(process.pid, number)
    found = ended(process, 5)
    assert (found.code, found.err) == (code, "")
    assert completed(runs, runs.start("slow", TRIALS, **asked(cluster)))


@pytest.mark.engines
def test_a_parent_that_is_killed_leaves_the_cluster_to_the_next_run(runs, cluster):
    workers(cluster)
    process = at_work(runs, cluster)
    process.kill()
    assert ended(process).code == -signal.SIGKILL
    assert completed(runs, runs.start("slow", TRIALS, **asked(cluster)))


@pytest.mark.engines
def test_a_trial_that_ends_its_host_three_times_is_killed(runs, cluster):
    """Nannies start new workers, which have addresses of their own."""
    cluster.add(), cluster.add()
    process = runs.start("bereaving", 12, **asked(cluster, batch_trials=1))
    found = ended(process)
    assert (found.code, found.err) == (1, "")
    assert [s for s, status in runs.statuses().items() if status != "ok"] == [3]
    assert "lost with its host 3 times, the last 127.0.0.1" in runs.messages()[3]


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1", "127.0.0.1:80", "udp://a:1", "tcp://a b:1", "tcp://"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match="^runner.address=.* must be as tcp://host:"):
        RunOptions(engine="dask", address=address)


def test_a_plan_and_a_run_tell_of_the_workers_of_a_scheduler(runs, cluster):
    workers(cluster, 3)
    wait_for(lambda: len(cluster.processes()) >= 4)
    process = runs.start("real", TRIALS, **asked(cluster, progress=True))
    found = ended(process)
    assert found.code == 0 and found.err.splitlines()[-1].endswith("s left)")
    assert re.search(r" failed, \d workers?, ", found.err)
    plan = asked(cluster, mode="plan")
    found = ended(runs.start("real", 2 * TRIALS, **plan))
    assert found.code == 0 and "on 3 workers, from recorded trials" in found.out
    cluster.kill(cluster.scheduler)
    found = ended(runs.start("real", 2 * TRIALS, **plan | {"patience": 1.0}))
    assert found.code == 2 and f"{cluster.address}: no scheduler answered" in found.err
