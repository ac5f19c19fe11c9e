"""Test the one-node SLURM on which engines are tested."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from keeper import descendants
from one_node_slurm import Unavailable, unpacked_packages

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
LISTENING = "0A"
LOOPBACK = "0100007F"
TEN_TERABYTES = "10T"


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def submit(slurm, *options):
    """Submit a job, return its number."""
    done = slurm.run("sbatch", "--parsable", "--chdir", str(slurm.home), *options)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def until_state(slurm, number, state):
    until(lambda: slurm.job(number)["JobState"] == state)


@pytest.fixture(autouse=True)
def emptied(request):
    """Leave no job to the next test."""
    yield
    if "slurm" in request.fixturenames:
        slurm = request.getfixturevalue("slurm")
        slurm.cancel()
        until(lambda: not slurm.jobs())


@pytest.mark.engines
def test_a_job_completes(slurm, tmp_path):
    out = tmp_path / "out"
    number = submit(slurm, "--output", str(out), "--wrap", "hostname")
    until_state(slurm, number, "COMPLETED")
    assert slurm.job(number)["ExitCode"] == "0:0"
    assert out.read_text().strip() == socket.gethostname()


@pytest.mark.engines
def test_cancelling_empties_the_queue(slurm):
    first, second, third = (submit(slurm, "--wrap", "sleep 600") for _ in range(3))
    # Two fit at once whatever the machine.
    until(lambda: list(slurm.jobs().values()).count("RUNNING") >= 2)
    slurm.cancel(second)
    until(lambda: set(slurm.jobs()) == {first, third})
    slurm.cancel()
    until(lambda: not slurm.jobs())
    assert slurm.job(second)["JobState"] == "CANCELLED"


@pytest.mark.engines
@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--partition=nowhere", "invalid partition specified: nowhere"),
        (f"--mem={TEN_TERABYTES}", "Memory specification can not be satisfied"),
        ("--constraint=gpu", "Invalid feature specification"),
    ],
)
def test_what_the_node_has_not_is_refused(slurm, option, why):
    done = slurm.run("sbatch", option, "--wrap", "hostname")
    assert done.returncode == 1
    assert why in done.stderr
    assert slurm.jobs() == {}


@pytest.mark.engines
@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--cpus-per-task=1000", "PartitionConfig"),
        ("--nodes=2", "PartitionNodeLimit"),
        ("--time=2-00:00:00", "PartitionTimeLimit"),
    ],
)
def test_what_the_partition_has_not_waits_for_ever(slurm, option, reason):
    number = submit(slurm, option, "--wrap", "hostname")
    until(lambda: slurm.job(number)["Reason"] == reason)
    assert slurm.jobs() == {number: "PENDING"}


@pytest.mark.engines
def test_a_job_is_ended_at_its_time_limit(slurm, tmp_path):
    out = tmp_path / "out"
    number = submit(slurm, "--time=5", "--output", str(out), "--wrap", "sleep 600")
    until_state(slurm, number, "RUNNING")
    # Limits are whole minutes, the end that follows from them can be set to a second.
    # The controller looks for jobs that are over every 30 seconds.
    slurm.run("scontrol", "update", f"JobId={number}", "EndTime=now+1")
    until(lambda: slurm.job(number)["JobState"] == "TIMEOUT", 50)
    assert "DUE TO TIME LIMIT" in out.read_text()


@pytest.mark.engines
def test_memory_is_shared_out(slurm):
    node = slurm.run("scontrol", "-o", "show", "node").stdout
    most = int(re.search(r"RealMemory=(\d+)", node)[1])
    assert most << 20 <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    share = f"--mem={most // 2 + 1}"
    first, second = (submit(slurm, share, "--wrap", "sleep 600") for _ in range(2))
    until_state(slurm, first, "RUNNING")
    until(lambda: slurm.job(second)["Reason"] == "Resources")
    slurm.cancel(first)
    until_state(slurm, second, "RUNNING")


@pytest.mark.engines
def test_a_preempted_job_goes_back_to_the_queue_and_runs_again(slurm):
    low = submit(slurm, "--exclusive", "--wrap", "sleep 600")
    until_state(slurm, low, "RUNNING")
    high = submit(slurm, "--exclusive", "-p", "urgent", "--wrap", "sleep 1")
    until_state(slurm, high, "COMPLETED")
    until_state(slurm, low, "RUNNING")
    assert slurm.job(low)["Restarts"] == "1"


def sockets(pid):
    """Return the inodes of the sockets that a process has open."""
    links = (os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    return {link[8:-1] for link in links if link.startswith("socket:[")}


@pytest.mark.engines
def test_daemons_listen_on_the_loopback_interface_only(slurm):
    owned = set.union(*map(sockets, slurm.daemons.values()))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENING and inode in owned:
                found.append(local.split(":")[0])
    assert found == [LOOPBACK] * 2


INNER = """
import time
from pathlib import Path
from one_node_slurm import one_node_slurm

def test_inner():
    with one_node_slurm() as slurm:
        out = str(slurm.home / "out")
        job = "trap '' TERM; setsid sleep 600 & echo up; sleep 600"
        slurm.run("sbatch", "--output", out, "--wrap", job)
        while not Path(out).exists() or "up" not in Path(out).read_text():
            time.sleep(0.05)
        Path("home").write_text(str(slurm.home))
        time.sleep(600)
"""


@pytest.mark.engines
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_nothing_outlives_the_tests(slurm, tmp_path, name):
    (tmp_path / "test_inner.py").write_text(INNER)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.DEVNULL,
        # A shell may have had Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        until((tmp_path / "home").exists, 60)
        home = Path((tmp_path / "home").read_text())
        started = descendants(process.pid)
        names = [Path(f"/proc/{pid}/comm").read_text() for pid in started]
        process.send_signal(getattr(signal, name))
        process.wait(30)
    finally:
        process.kill()
    assert sum(name.startswith("slurm") for name in names) >= 3
    assert names.count("sleep\n") == 2
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    assert not home.exists()


@pytest.mark.engines
def test_two_processes_download_once(slurm, tmp_path):
    code = "import one_node_slurm; print(one_node_slurm.unpacked_packages())"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(HERE), "XDG_CACHE_HOME": tmp_path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    (out, error), (other, _) = (process.communicate(timeout=240) for process in both)
    if "Unavailable: downloading" in error:
        pytest.skip(error.splitlines()[-1])
    assert out == other
    root = Path(out.strip())
    assert {path.name for path in root.parent.iterdir()} == {
        root.name,
        f"{root.name}.lock",
    }
    assert (root / "usr/bin/sbatch").exists()


def test_the_failing_step_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="asking apt-get for SLURM: .*'apt-get'"):
        unpacked_packages()


@pytest.mark.parametrize(
    ("required", "outcome"), [("", "1 skipped"), ("require", "1 error")]
)
def test_without_slurm_tests_are_skipped_unless_required(tmp_path, required, outcome):
    test = f"{__file__}::test_a_job_completes"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test],
        cwd=HERE.parents[1],
        env={**os.environ, "PATH": str(tmp_path), "DP_ERM_BENCH_SLURM": required},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"{outcome} in" in done.stdout
    assert "asking apt-get for SLURM" in done.stdout
