"""Real worker processes: their faults, their threads, their end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results
from dp_erm_bench.runner import worker
from dp_erm_bench.runner.expand import expand


def without_clock(folder):
    found = {}
    store = Store(folder)
    for key in sorted(store.index):
        record = store.record(key)
        record["trajectory"].pop("seconds")
        found[key] = record
    return found


def test_one_and_two_workers_compute_the_same_bits(run, block, tmp_path):
    blocks = [
        block(algorithm={"name": "random_cd", "clip": [0.5, 1.0], "passes": 3}),
        block(algorithm={"name": "greedy_cd", "clip": 1.0, "n_iter": [2, 3]}),
        block(algorithm={"name": "sgd", "clip": 1.0, "passes": 1, "batch_size": 5}),
    ]
    real = "dp_erm_bench.runner.execute.run_batch"
    found = []
    for n_jobs in (1, 2):
        folder = tmp_path / str(n_jobs)
        options = {"n_jobs": n_jobs, "batch_trials": 2}
        assert run(*blocks, execute=real, folder=folder, **options) == 0
        found.append(without_clock(folder))
    assert len(found[0]) == 15
    assert json.dumps(found[0]) == json.dumps(found[1])
    assert {one["status"] for one in found[0].values()} == {"ok"}


def test_workers_have_one_thread(run, block):
    assert run(block(), execute="threads", n_jobs=2) == 0
    assert set(load_results(run.folder)["message"]) == {"1"}


def test_the_culprit_is_killed_and_nobody_else(run, block):
    blocks = block(seed=list(range(12)))
    assert run(blocks, execute="killing", n_jobs=2, batch_trials=5) == 1
    table = load_results(run.folder).drop_duplicates("trial")
    assert table["status"].value_counts().to_dict() == {"ok": 11, "killed": 1}
    (killed,) = table[table["status"] == "killed"].itertuples()
    assert killed.seed == 3
    assert "SIGKILL" in killed.message
    lines = [
        line
        for segment in (run.folder / "segments").iterdir()
        for line in segment.read_text().splitlines()
    ]
    assert len(lines) == 12


def test_a_worker_that_dies_once_costs_nothing(run, block, tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_TEST_MARK", str(tmp_path / "mark"))
    assert run(block(seed=list(range(9))), execute="killing_once", batch_trials=3) == 0
    assert (tmp_path / "mark").exists()
    assert len(Store(run.folder).index) == 9


PARENT = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.options import RunOptions
block = {block!r}
options = RunOptions(n_jobs=2, execute="fakes.sleeping", progress=False)
run_experiment([block], "study", Path({folder!r}), options)
"""


def workers_of(parent):
    path = Path(f"/proc/{parent}/task/{parent}/children")
    found = path.read_text().split() if path.exists() else []
    return [int(pid) for pid in found if b"loky" in _command(pid)]


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.fixture
def parent(block, tmp_path):
    """A run in a process of its own whose workers sleep."""
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    made = block(seed=list(range(4)), algorithm={"name": "random_cd", "step": [1, 2]})
    code = PARENT.format(path=path, block=made, folder=str(tmp_path / "run"))
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as it:
        yield it
        it.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for the signal")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_workers_die_with_their_parent(parent, sent):
    assert wait_for(lambda: len(workers_of(parent.pid)) >= 2, 20)
    time.sleep(0.5)
    workers = workers_of(parent.pid)
    os.kill(parent.pid, sent)
    assert parent.wait(10) != 0
    assert wait_for(lambda: not any(b"loky" in _command(w) for w in workers), 2)


def batch(block, seeds):
    (case,), _ = expand([block(seed=seeds)])
    return [one.trial for one in case.sweep(51)]


@pytest.mark.parametrize("execute", ["raising", "reporting_errors", "forgetting"])
def test_what_one_trial_does_is_not_held_against_others(block, execute):
    trials = batch(block, [1, 2, 3, 4])
    records = worker.run_guarded(trials, f"fakes.{execute}")
    assert [record["key"] for record in records] == [trial.key for trial in trials]
    assert [r["status"] for r in records] == ["ok", "ok", "error", "ok"]


def test_an_exception_is_told_with_its_traceback(block):
    (record,) = worker.run_guarded(batch(block, [3]), "fakes.raising")
    first, *rest = record["message"].splitlines()
    assert first == "ArithmeticError: a solver's own mistake"
    assert any("in raising" in line for line in rest)
    assert worker.outcome_of(record).message == first


def test_a_backend_that_cannot_be_imported_is_an_error_of_each_trial(block):
    records = worker.run_guarded(batch(block, [1, 2]), "fakes.absent")
    assert [record["status"] for record in records] == ["error", "error"]
