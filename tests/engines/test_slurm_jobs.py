"""Test sweeps whose workers are jobs of a real SLURM, and lost jobs."""

import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from distributed import Client, Security
from launch import PATH, Runs, ended, wait_for

from dp_erm_bench.results.store import Store

pytestmark = pytest.mark.engines

NAME = "dask on SLURM"
JOBS = {"engine": "dask", "cluster": "slurm", "interface": "lo", "memory": "300M"}


@pytest.fixture
def cluster(slurm, tmp_path, monkeypatch, heeded):
    """Yield SLURM, whose commands and queue are those of all that a test starts."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(PATH))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    yield slurm
    slurm.cancel()
    wait_for(lambda: not slurm.jobs())


@pytest.fixture
def runs(cluster, tmp_path):
    found = Runs(tmp_path)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


def at_work(cluster, runs, execute="slow", seeds=150, **options):
    """Return a run with two jobs at work and records of both, and the jobs' ids."""
    process = runs.start(execute, seeds, batch_trials=1, **{**JOBS, **options})
    wait_for(lambda: runs.recorded() >= 4 or process.poll() is not None, 40)
    assert process.poll() is None, process.communicate()
    wait_for(lambda: list(cluster.jobs().values()) == ["RUNNING"] * 2)
    return process, sorted(cluster.jobs())


def is_whole(process, runs, seeds=150):
    found = ended(process, 120)
    assert (found.code, found.err) == (0, "")
    assert runs.statuses() == dict.fromkeys(range(seeds), "ok")
    assert runs.lines("key") == seeds
    return f"{seeds} of {seeds} ok"


def records(runs):
    store = Store(runs.folder)
    found = {key: dict(store.record(key)) for key in store}
    for record in found.values():
        for name in ("seconds", "cost", "crc", "run"):
            record.pop(name, None)
        record["trajectory"] = {**record["trajectory"], "seconds": None}
    return found


def test_jobs_compute_the_same_bits(cluster, runs, tmp_path):
    found = ended(runs.start("real", 200, **JOBS), 120)
    assert (found.code, found.err) == (0, ""), found
    assert cluster.jobs() == {}
    there = records(runs)
    runs.folder = tmp_path / "local"
    assert runs("real", 200).code == 0
    assert len(there) == 200 and there == records(runs)


def test_jobs_that_are_cancelled_are_replaced(cluster, runs, seen):
    """One, and later all of them."""
    process, jobs = at_work(cluster, runs)
    cluster.cancel(jobs[0])
    one = wait_for(lambda: len(set(cluster.jobs()) - set(jobs)) == 1, 40)
    wait_for(lambda: [*cluster.jobs().values()] == ["RUNNING"] * 2)
    jobs = [*jobs, *cluster.jobs()]
    cluster.cancel()
    both = wait_for(lambda: len(set(cluster.jobs()) - set(jobs)) == 2, 60)
    outcome = is_whole(process, runs)
    seen("a job is cancelled", NAME, f"{outcome}; a new job after {one:.0f} s")
    seen("all jobs are cancelled", NAME, f"{outcome}; new jobs after {both:.0f} s")


def test_without_adapt_nothing_is_replaced(cluster, runs):
    process, _ = at_work(cluster, runs, adapt=False, patience=5)
    cluster.cancel()
    found = ended(process, 60)
    assert found.code == 2
    assert re.fullmatch(
        r"dp-erm-bench: runner=dask: no worker for runner.patience=5 s \(job \d+ said: "
        r".*CANCELLED.*\); what is recorded stays\n",
        found.err,
    )


def test_a_job_that_is_put_back_into_the_queue_costs_time_only(cluster, runs, seen):
    process, jobs = at_work(cluster, runs)
    cluster.run("scontrol", "requeue", str(jobs[0]))
    wait_for(lambda: "PENDING" in cluster.jobs().values())
    seen("a job is requeued", NAME, is_whole(process, runs))


def test_a_preempted_job_costs_time_only(cluster, runs, seen):
    process, _ = at_work(cluster, runs)
    urgent = ("sbatch", "-p", "urgent", "--exclusive", "-o", "/dev/null")
    done = cluster.run(*urgent, "--wrap", "sleep 3")
    assert done.returncode == 0
    wait_for(lambda: "PENDING" in cluster.jobs().values())
    seen("jobs are preempted", NAME, is_whole(process, runs))


def test_a_job_that_reaches_its_walltime_is_replaced(cluster, runs, seen):
    process, jobs = at_work(cluster, runs, seeds=700)
    cluster.run("scontrol", "update", f"JobId={jobs[0]}", "EndTime=now+1")
    wait_for(lambda: cluster.job(jobs[0])["JobState"] == "TIMEOUT", 60)
    wait_for(lambda: len(set(cluster.jobs()) - set(jobs)) == 1, 40)
    seen("a job reaches its walltime", NAME, is_whole(process, runs, 700))


def test_a_trial_that_is_cancelled_with_its_jobs_is_not_to_blame(cluster, runs, seen):
    """It is the only one: a worker that died at it twice would accuse it."""
    process = runs.start("lasting", 1, **JOBS | {"n_jobs": 1})
    for times in (1, 2):
        wait_for(lambda: runs.log.exists(), 60)
        wait_for(lambda n=times: len(runs.log.read_text().split()) == n, 60)
        time.sleep(1)
        cluster.cancel()
    seen("jobs are cancelled twice at one trial", NAME, is_whole(process, runs, 1))


def test_the_log_of_a_lost_job_is_told(cluster, runs, seen):
    """A trial cancels the job that it is in, wherever it runs."""
    process = runs.start("cancelling", 12, batch_trials=1, patience=120, **JOBS)
    found = ended(process, 180)
    assert (found.code, found.err) == (1, "")
    assert runs.statuses() == dict.fromkeys(range(12), "ok") | {3: "killed"}
    first, *log = runs.messages()[3].splitlines()
    assert first.startswith("lost with its host ")
    assert re.fullmatch(r"job \d+:", log[0])
    assert "CANCELLED" in log[-1] and len(log) <= 21
    seen("a trial ends its job", NAME, "row `killed` with the job's log, others ok")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_end_from_outside_empties_the_queue(cluster, runs, number, code):
    process, _ = at_work(cluster, runs)
    start = time.monotonic()
    os.killpg(process.pid, number)
    found = ended(process)
    seconds = time.monotonic() - start
    assert (found.code, found.err) == (code, "")
    assert seconds < 15 and wait_for(lambda: not cluster.jobs(), 10) < 5
    assert runs.outcome() == "interrupted"


def test_jobs_end_by_themselves_if_the_parent_is_killed(cluster, runs, seen):
    process, _ = at_work(cluster, runs)
    process.kill()
    seconds = wait_for(lambda: not cluster.jobs(), 60)
    seen("jobs of a parent that is killed", NAME, f"gone after {seconds:.0f} s")


def test_only_who_has_the_certificates_of_the_run_is_let_in(cluster, runs):
    process, jobs = at_work(cluster, runs, seeds=200)
    script = cluster.run("scontrol", "write", "batch_script", str(jobs[0]), "-").stdout
    address = re.search(r"tls://[\d.]+:\d+", script)[0]
    pem = r"TLS__WORKER__{}=\"\$\(printf '%s\\n' (.*)\)\""
    found = (re.search(pem.format(name), script)[1] for name in ("CERT", "KEY"))
    cert, key = ("\n".join(shlex.split(lines)) for lines in found)
    ours = {"tls_ca_file": cert, "tls_client_cert": cert, "tls_client_key": key}
    with Client(address, security=Security(**ours), timeout=10) as client:
        assert len(client.ncores()) == 2
    for other in (address.replace("tls", "tcp"), address):
        made = Security.temporary() if other == address else None
        with silent(), pytest.raises(OSError):
            Client(other, security=made, timeout=1)
    is_whole(process, runs, 200)


@contextmanager
def silent():
    """Let Dask tell nobody of connections that fail."""
    logger = logging.getLogger("distributed")
    before, logger.level = logger.level, logging.CRITICAL + 1
    yield
    logger.level = before


def test_no_folder_need_be_shared(cluster, runs, tmp_path, monkeypatch):
    """The jobs' logs would be in a folder that their node has not."""
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(cache))
    fake_sbatch(tmp_path, monkeypatch, f"s:{cache}/jobs:/nowhere:g")
    process, jobs = at_work(cluster, runs, seeds=40)
    assert cluster.job(min(jobs) - 1)["Reason"] == "JobLaunchFailure"
    is_whole(process, runs, 40)


def fake_sbatch(home, monkeypatch, change):
    """Have a script changed by sed on its way to SLURM."""
    fake = home / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text(
        f"#!/bin/bash\nreal={shutil.which('sbatch')}\n"
        'if [ "$1" = --test-only ]; then exec $real "$@"; fi\n'
        f'sed {change} ${{1:+"$1"}} | $real\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")


def command(*changes, **environment):
    """Return what a command line says, and how it ended."""
    given = ("dataset=log1", "dataset.n=60", "dataset.p=5", "algorithm=random_cd")
    given += ("algorithm.random_cd.clip=1", "seed=range(0,60)", "runner.n_jobs=2")
    given += ("runner.batch_trials=1",)
    merged = {one.partition("=")[0]: one for one in (*given, *changes)}
    return subprocess.run(
        [sys.executable, "-m", "dp_erm_bench", *merged.values()],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, **environment},
    )


SLURM = ("runner=dask", "runner.cluster=slurm", "runner.interface=lo")
SLURM += ("runner.memory=300M",)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("runner.queue=nowhere", "sbatch says: invalid partition specified: nowhere"),
        ("runner.memory=10T", "sbatch says: allocation failure: Requested node"),
        ("runner.walltime=3-00:00:00", r"job \d+ would wait for ever \(Partition"),
    ],
)
def test_what_slurm_has_not_is_refused_at_once(
    cluster, tmp_path, monkeypatch, change, why
):
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    done = command(*SLURM, change)
    assert time.monotonic() - start < 15
    assert done.returncode == 2
    (line,) = [one for one in done.stderr.splitlines() if "results:" not in one]
    assert line.startswith("dp-erm-bench: runner.cluster=slurm") and change in line
    assert re.search(why, line)
    wait_for(lambda: not cluster.jobs())


def test_a_run_waits_in_the_queue_for_longer_than_its_patience(cluster, runs):
    other = ("sbatch", "--parsable", "--exclusive", "-o", "/dev/null")
    other = int(cluster.run(*other, "--wrap", "sleep 600").stdout)
    wait_for(lambda: cluster.jobs() == {other: "RUNNING"})
    process = runs.start("healthy", 12, patience=4, **JOBS)
    time.sleep(8)
    assert process.poll() is None
    cluster.cancel(other)
    done = ended(process, 60)
    assert done.code == 0
    assert re.fullmatch(
        r"(dp-erm-bench: no worker yet \(job \d+ waits: \w+\)\n)+", done.err
    )
