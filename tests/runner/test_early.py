"""Test the worker that starts before the parent has planned the run."""

import os
import signal
import subprocess
import threading
import time

import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.runner import experiment, host
from dp_erm_bench.runner.experiment import early_worker
from dp_erm_bench.runner.host import Worker
from dp_erm_bench.runner.options import RunOptions

pytestmark = pytest.mark.real_workers


@pytest.fixture
def started(monkeypatch):
    """The workers that are started early; a host may start none of its own."""
    found = []

    def start(execute):
        found.append(Worker(execute))
        return found[-1]

    def refuse(*given):
        raise AssertionError("the early worker was idle")

    monkeypatch.setattr(experiment, "Worker", start)
    monkeypatch.setattr(host, "Worker", refuse)
    return found


def gone(worker):
    return not os.path.exists(f"/proc/{worker.pid}")


def test_the_first_task_is_for_the_early_worker(run, block, started):
    assert run(block(), n_jobs=1) == 0
    assert read_manifest(run.folder)["counts"] == {"ok": 3}
    (worker,) = started
    assert not worker.fresh and gone(worker)


def test_a_repeated_command_line_starts_none(run, block, started):
    assert run(block(), n_jobs=1, command=("dp", "seed=0")) == 0
    assert run(block(), n_jobs=1, command=("dp", "seed=0")) == 0
    assert len(started) == 1
    assert run(block(seed=[9]), n_jobs=1, command=("dp", "seed=9")) == 0
    assert len(started) == 2


def test_nothing_is_started_to_plan(run, block, started):
    assert run(block(), mode="plan") == 0
    assert started == []


def test_none_is_left_behind_by_wrong_input(run, block, started):
    with pytest.raises(UsageError):
        run(block(seed=[-1]))
    (worker,) = started
    assert worker.fresh and gone(worker)


def test_one_that_is_not_needed_is_ended_at_once(tmp_path):
    options = RunOptions(execute="time.sleep", command=())
    with early_worker(tmp_path, options) as worker:
        assert not gone(worker)
    assert gone(worker)


def test_what_cannot_be_imported_is_told_by_the_trials(run, block, started):
    assert run(block(seed=[0]), execute="nowhere.at_all", n_jobs=1) == 1
    assert read_manifest(run.folder)["counts"] == {"error": 1}


def test_an_interrupt_while_it_starts_leaves_nothing(monkeypatch):
    made = []

    class Popen(subprocess.Popen):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            made.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    with pytest.raises(KeyboardInterrupt):
        Worker()
    (process,) = made
    assert process.returncode == -signal.SIGKILL


def test_threads_that_end_a_worker_together_close_its_pipe_once(monkeypatch):
    """Between close and forgetting the descriptor, another thread waits."""
    worker = Worker()
    real, closed, errors = worker.pipe._close, [], []

    def close(*descriptor):
        closed.append(descriptor)
        time.sleep(0.05)
        return real(*descriptor) if descriptor else real()

    def end():
        try:
            worker.end()
        except OSError as error:
            errors.append(error)

    monkeypatch.setattr(worker.pipe, "_close", close)
    threads = [threading.Thread(target=end) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(closed) == 1 and not errors and gone(worker)
