"""Test real worker processes: their faults, their threads, their end."""

import errno
import json
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dp_erm_bench import paths
from dp_erm_bench.code_identity import package_state
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results
from dp_erm_bench.runner import execute, host, worker
from dp_erm_bench.runner.engines.joblib import JoblibEngine
from dp_erm_bench.runner.ledger import check_answer, parse_report
from dp_erm_bench.runner.session import Pool
from dp_erm_bench.runner.worker import Job
from tests.contract.own import broken

pytestmark = pytest.mark.real_workers


def without_clock(folder):
    found = {}
    store = Store(folder)
    for key in sorted(store):
        record = store.record(key)
        record["trajectory"].pop("seconds")
        record.pop("cost"), record.pop("crc"), record.pop("run")
        found[key] = record
    return found


def guarded(trials, execute, limit=None):
    return worker.run_guarded(trials, Job("", "", execute, limit))


@pytest.mark.parametrize("shows", [False, True])
def test_what_a_solver_prints_goes_to_its_record(block, capsys, shows):
    trials = batch(block, [1, 2])
    job = Job("", "", "fakes.printing", shows=shows)
    for record in worker.run_guarded(trials, job):
        assert record["output"].startswith("step 1 \\x1b[2J\nyyy")
        assert len(record["output"]) == worker.MOST_PRINTED
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("step 1 \\x1b[2J\nyyy") is shows
    assert "\x1b" not in err and len(err) < 2 * worker.MOST_PRINTED
    for record in worker.run_guarded(trials, job._replace(execute="fakes.bowl")):
        assert "output" not in record


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


def test_workers_that_cannot_start_end_the_run_with_a_sentence(
    block, tmp_path, monkeypatch
):
    monkeypatch.setattr(host.sys, "executable", shutil.which("false"))
    job = Job(str(tmp_path), "1", "fakes.bowl")
    with pytest.raises(UsageError, match=r"n_jobs=2: 5 workers in a row .*code 1"):
        with Pool(JoblibEngine(2), job) as pool:
            list(pool.run([tuple(planned(block, [1]))]))


def test_sigterm_is_the_pools_only_while_it_runs(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with Pool(JoblibEngine(1), Job(str(tmp_path), "1", "fakes.bowl")):
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_worker_hands_back_what_it_has_no_time_for(block, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "TASK_SECONDS", 1e-9)
    batches = [tuple(batch(block, [seed])) for seed in range(3)]
    report = worker.run_task(batches, Job(str(tmp_path), "1", "fakes.bowl"))
    assert report.batches == 1
    assert [one.key for one in report.outcomes] == [batches[0][0].key]
    assert report.seconds > 0 and report.problem == ""


def test_a_worker_of_other_code_than_the_runs_computes_nothing(block, tmp_path):
    job, told = Job(str(tmp_path), "1", "fakes.bowl"), []
    for code in (package_state(), "0" * 64):
        batches = [tuple(batch(block, [seed])) for seed in range(2)]
        report = worker.run_task(batches, job._replace(code=code))
        told.append((report.batches, len(report.outcomes), report.problem))
    assert told == [(2, 2, ""), (0, 0, worker.CHANGED)]


def test_a_record_that_cannot_be_written_is_told(block, tmp_path):
    (tmp_path / "file").touch()
    job = Job(str(tmp_path / "file"), "1", "fakes.bowl")
    report = worker.run_task([tuple(batch(block, [1]))], job)
    assert (report.outcomes, report.batches) == ([], 0)
    assert "file: Not a directory; what is recorded stays" in report.problem


def test_the_alarm_is_set_while_a_batch_runs_and_only_then(block):
    (record,) = guarded(batch(block, [1]), "fakes.alarmed", 50.0)
    assert 40 < float(record["message"]) <= 50
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    (record,) = guarded(batch(block, [1]), "fakes.alarmed", None)
    assert record["message"] == "0.0"
    assert guarded(batch(block, [3]), "fakes.raising", 50.0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_a_new_process_imports_is_not_the_trials_time(
    block, tmp_path, monkeypatch
):
    text = (
        "import signal\n"
        "from fakes import record\n"
        "left = signal.getitimer(signal.ITIMER_REAL)[0]\n"
        "def run(trials):\n"
        "    return [record(one, 1.0, message=str(left)) for one in trials]\n"
    )
    (tmp_path / "heavy_backend.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = guarded(batch(block, [1]), "heavy_backend.run", 50.0)
    assert found["message"] == "0.0"


def planned(block, seeds):
    (line,), _ = expand_blocks([block(seed=seeds)])
    return line.sweep(51)


def batch(block, seeds):
    return [*planned(block, seeds)]


@pytest.mark.parametrize("execute", ["raising", "reporting_errors", "forgetting"])
def test_what_one_trial_does_is_not_held_against_others(block, execute):
    trials = batch(block, [1, 2, 3, 4])
    records = guarded(trials, f"fakes.{execute}")
    assert [record["key"] for record in records] == [trial.key for trial in trials]
    assert [r["status"] for r in records] == ["ok", "ok", "error", "ok"]


def test_a_name_that_no_release_has_is_told_with_its_place(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(broken(('mechanisms["gradient"]', 'mechanisms["grad"]')))
    block = {
        "dataset": {"name": "log1", "n": 40, "p": 3},
        "algorithm": {"name": str(path), "clip": 1.0},
    }
    (line,), _ = expand_blocks([{**block, "budget": {"epsilon": 1.0}, "seed": 0}])
    (record,) = execute.run_batch([*line.sweep(2)])
    number = 1 + path.read_text()[: path.read_text().index('"grad"')].count("\n")
    assert record["message"].partition("\n")[0] == (
        "LookupError: no release is named 'grad'; the declared names are gradient "
        f"(own.py, line {number})"
    )


def test_an_exception_is_told_with_its_traceback(block):
    (record,) = guarded(batch(block, [3]), "fakes.raising")
    first, *rest = record["message"].splitlines()
    assert re.fullmatch(r"Arith.*: a solver's own mistake \(\w+\.py, line \d+\)", first)
    assert any("in raising" in line for line in rest)


def test_a_backend_that_cannot_be_imported_is_an_error_of_each_trial(block):
    records = guarded(batch(block, [1, 2]), "fakes.absent")
    assert [record["status"] for record in records] == ["error", "error"]


def test_a_pipe_in_place_of_a_host_s_lock_is_not_awaited(tmp_path, monkeypatch):
    """Others can write into the folder for temporary files, too."""
    left = tmp_path / f"{paths.SCRATCH}left"
    left.mkdir()
    os.mkfifo(left / paths.HELD)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = []
    asked = threading.Thread(
        target=lambda: made.append(paths.scratch_folder.__wrapped__()), daemon=True
    )
    asked.start()
    asked.join(10.0)
    assert made and Path(made[0]).parent == tmp_path


def test_a_process_that_cannot_be_made_is_one_sentence(monkeypatch):
    def refused(*command, **options):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(host.subprocess, "Popen", refused)
    with pytest.raises(UsageError, match="no worker can be started: Resource temp"):
        host.Worker()


@pytest.mark.parametrize("error", [UsageError("no worker"), OSError(28, "no room")])
def test_a_host_without_room_says_so_and_accuses_nobody(error, monkeypatch):
    def refused(owner, run):
        raise error

    monkeypatch.setattr(host.children, "of_thread", refused)
    task = [(SimpleNamespace(key="0" * 64, owner=""),)]
    number, answer = host.run_on_host(3, task, Job("", "1", "nothing"), lambda: True)
    answer = check_answer(answer, task)
    assert (number, answer.number, answer.death) == (3, 3, None)
    assert answer.problem == str(error)


FINALS = {"objective": 1.0}
OUTCOME = ["0" * 64, "ok", FINALS]


@pytest.mark.parametrize(
    "report",
    [
        [[OUTCOME], "1", 0.1, "", False],
        [[["1" * 64, "ok", FINALS]], 1, 0.1, "", False],
        [[["0" * 64]], 1, 0.1, "", False],
        [[OUTCOME], 0, 0.1, "", False],
        [[OUTCOME], 1],
        {"outcomes": []},
        [[], 1, 0.0],
        [1],
        5,
    ],
)
def test_what_is_no_report_on_the_task_is_none(report):
    """A solver may have written it into the pipe."""
    task = [(SimpleNamespace(key="0" * 64, owner=""),)]
    assert parse_report(json.dumps(report).encode(), task) is None
    right = json.dumps([[OUTCOME], 1, 0.1, "", False]).encode()
    assert parse_report(right, task).outcomes[0].key == "0" * 64


def test_a_child_whose_answer_nobody_wants_is_ended(block, tmp_path):
    task = [tuple(batch(block, [1]))]
    job = Job(str(tmp_path), "1", "fakes.sleeping")
    children = host.Children()
    worker = children.of_thread("", "1")
    worker.give(task, job)
    start = time.monotonic()
    assert worker.wait(lambda: time.monotonic() < start + 1) is None
    assert time.monotonic() - start < 5 and worker.end() == -signal.SIGKILL


def test_the_time_limit_counts_from_the_begin_of_the_trial(monkeypatch, block):
    (trial,) = [
        one for line in expand_blocks([block(seed=[0])])[0] for one in line.sweep(5)
    ]
    timers = {}
    for name in ("warm_up", "run_batch"):
        was = getattr(execute, name)
        monkeypatch.setattr(
            execute,
            name,
            lambda *given, was=was, name=name: (
                timers.setdefault(name, signal.getitimer(signal.ITIMER_REAL)[0]),
                was(*given),
            )[1],
        )
    job = Job("", "", worker.EXECUTE, 60.0)
    (record,) = worker.run_guarded([trial], job)
    assert record["status"] == "ok" and timers["warm_up"] == 0.0
    assert 0.0 < timers["run_batch"] <= 60.0
    # What a user's own loss or solver needs is its trial's.
    timers.clear()
    for part in ("loss", "algorithm"):
        worker._warm_up({**trial.spec, part: {"name": "x", "file": "x.py"}}, job)
    assert not timers
