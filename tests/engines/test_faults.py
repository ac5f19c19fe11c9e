"""Test faults on every engine; the results are the table of docs/faults.md.

`make test` kills hosts of one engine. `make test-slow` runs each kind of fault on one
engine with hosts of its own. `make test-engines` runs every fault on every engine.
"""

import os
import signal
import time

import pytest
from engines import ENGINES, HOSTED, engine_runs
from launch import alive, ended, wait_for

from dp_erm_bench.results.store import Store

ALL = list(range(12))
OTHERS = {seed: "ok" for seed in ALL if seed != 3}


def culprit(execute, status, message, **options):
    def fault(runs):
        done = runs(execute, batch_trials=5, **options)
        assert (done.code, done.err) == (1, "")
        assert runs.statuses() == OTHERS | {3: status}
        assert message in runs.messages()[3]
        assert set(runs.calls()) >= set(OTHERS)
        assert runs.lines("key") == 12
        return f"row `{status}`, the others ok"

    return fault


def once(runs):
    assert runs("killing_once", batch_trials=5).code == 0
    assert set(runs.statuses().values()) == {"ok"} and runs.lines("key") == 12
    return "12 of 12 ok"


def from_outside(runs):
    """Kill workers of ours, three times."""
    process = runs.start("slow", 30, batch_trials=1)
    for number in (1, 8, 15):
        wait_for(lambda least=number: runs.recorded() >= least, 60)
        wait_for(runs.workers)
        kill(runs.workers()[:1])
    assert ended(process, 90).code == 0
    return complete(runs, 30)


def host_killed(runs):
    """Kill hosts, three times, the last time all of them."""
    process = runs.start("slow", 60, batch_trials=1)
    for number in (1, 12, 24):
        wait_for(lambda least=number: runs.recorded() >= least, 60)
        wait_for(runs.hosts, 60)
        kill(runs.hosts() if number == 24 else runs.hosts()[:1])
    done = ended(process, 120)
    assert (done.code, done.err) == (0, "")
    return complete(runs, 60)


def complete(runs, count):
    assert set(runs.statuses().values()) == {"ok"}
    assert len(runs.statuses()) == count
    assert runs.lines("key") == count, "a trial was recorded twice"
    return f"{count} of {count} ok"


def interrupted(number, code):
    def fault(runs):
        process = at_work(runs)
        start = time.monotonic()
        os.killpg(process.pid, number)
        done = ended(process, 60)
        seconds = time.monotonic() - start
        assert (done.code, done.err) == (code, "")
        wait_for(lambda: not runs.left(), 20)
        assert runs.outcome() == "interrupted"
        the_rest_runs(runs)
        return f"exit {done.code}" + (f", after {seconds:.0f} s" if seconds > 2 else "")

    return fault


def parent_killed(runs):
    process = at_work(runs)
    os.kill(process.pid, signal.SIGKILL)
    seconds = wait_for(lambda: not runs.left(), 90)
    ended(process)
    the_rest_runs(runs)
    within = "a second" if seconds < 1 else f"{seconds:.0f} s"
    return f"nothing left after {within}; records stay"


def at_work(runs):
    """Return a run whose first trials are recorded and whose others never end.

    What a host has not sent yet is lost with it.
    """
    process = runs.start("endless", 12, batch_trials=1)
    wait_for(lambda: runs.folder.is_dir() and runs.recorded() >= 1, 60)
    before = -1
    while runs.recorded() > before:
        before = runs.recorded()
        time.sleep(1.0)
    wait_for(lambda: len(runs.workers()) == 2, 60)
    return process


def the_rest_runs(runs):
    """Run again: what is recorded stays, the rest is run once."""
    recorded = runs.recorded()
    assert 1 <= recorded <= 4
    runs.calls()
    assert runs("healthy", 12).code == 0
    assert len(runs.calls()) == 12 - recorded
    complete(runs, 12)


def kill(pids):
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


FAULTS = {
    "a trial raises": culprit("raising", "error", "a solver's own mistake"),
    "a trial kills its worker": culprit("killing", "killed", "SIGKILL"),
    "a trial crashes its worker": culprit("crashing", "killed", "SIGSEGV"),
    "a trial hangs in native code": culprit("hanging", "timeout", "=1:", time_limit=1),
    "a worker dies once": once,
    "workers are killed from outside": from_outside,
    "hosts are killed, at last all": host_killed,
    "Ctrl-C": interrupted(signal.SIGINT, 130),
    "SIGTERM": interrupted(signal.SIGTERM, 143),
    "kill -9 of the parent": parent_killed,
}
FAST = ("hosts are killed, at last all", "joblib loky")
OFTEN = {
    ("a trial kills its worker", "dask"),
    ("a trial hangs in native code", "joblib loky"),
    ("workers are killed from outside", "dask"),
    ("hosts are killed, at last all", "dask, address"),
    ("Ctrl-C", "dask"),
    ("Ctrl-C", "joblib loky"),
    ("kill -9 of the parent", "dask"),
}


def marks_of(fault, engine):
    often = pytest.mark.slow if (fault, engine) in OFTEN else pytest.mark.engines
    return [] if (fault, engine) == FAST else often


CASES = [
    pytest.param(
        fault,
        engine,
        id=f"{fault}-{engine}",
        marks=marks_of(fault, engine),
    )
    for fault in FAULTS
    for engine in ENGINES
    if engine in HOSTED or "hosts" not in fault
]


@pytest.mark.slow
@pytest.mark.parametrize("fault, engine", CASES)
def test_nothing_is_lost_and_nobody_accused_wrongly(
    fault, engine, tmp_path, request, seen, heeded
):
    slurm = request.getfixturevalue("slurm") if "SLURM" in engine else None
    with engine_runs(tmp_path, engine, slurm) as runs:
        seen(fault, engine, FAULTS[fault](runs))


@pytest.mark.parametrize(
    "engine, trials",
    [
        pytest.param(
            one, trials, marks=pytest.mark.engines if trials > 40 else pytest.mark.slow
        )
        for one in ENGINES
        if one != "local"
        for trials in (40, 2000)
        if trials > 40 or "SLURM" not in one
    ],
)
def test_the_same_bits(engine, trials, tmp_path, request):
    slurm = request.getfixturevalue("slurm") if "SLURM" in engine else None
    found = []
    for name in ("local", engine):
        home = tmp_path / name.replace(" ", "-")
        home.mkdir()
        with engine_runs(home, name, slurm) as runs:
            assert runs("real", trials, batch_trials=7).code == 0
            found.append(without_clock(runs.folder))
    assert len(found[0]) == trials
    assert found[0] == found[1]


def without_clock(folder):
    """Return the records of a folder, but for what tells the time."""
    store, found = Store(folder), {}
    for key in sorted(store):
        record = store.record(key)
        record["trajectory"].pop("seconds")
        record.pop("cost"), record.pop("crc"), record.pop("run")
        found[key] = record
    return found
