"""Test faults through the command line, with a real solver."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import PATH, alive, children, ended, wait_for, without_privilege

from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results

ENDLESS = 2_000_000_000


@pytest.fixture
def command(tmp_path):
    """Start the command in a process group of its own."""
    started = []

    def start(n_iter, *more, setup=None):
        words = [
            *("dataset=log1", "dataset.n=60", "dataset.p=5", "algorithm=random_cd"),
            f"algorithm.random_cd.n_iter={n_iter}",
            *("algorithm.random_cd.clip=1.0", "runner.n_jobs=1", *more),
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "dp_erm_bench", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": PATH[-1]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=setup,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "number, code, said",
    [
        (signal.SIGINT, 130, "dp-erm-bench: interrupted; what is recorded stays\n"),
        (signal.SIGTERM, 143, ""),
    ],
)
def test_a_command_is_ended_from_outside(command, tmp_path, number, code, said):
    folder = tmp_path / "results" / "sweep"
    process = command(ENDLESS)
    wait_for(lambda: any(b'"begin"' in p.read_bytes() for p in folder.rglob("*.jsonl")))
    workers = children(process.pid)
    os.killpg(process.pid, number)
    found = ended(process)
    # A slow machine tells of its progress first.
    told = [one for one in found.err.splitlines(True) if not one.startswith("sweep: ")]
    assert (found.code, "".join(told)) == (code, said)
    assert not any(map(alive, workers))
    assert read_manifest(folder)["outcome"] == "interrupted"


def test_the_time_limit_is_a_key_of_the_runner(command, tmp_path):
    """So many steps take a second: a worker that is warm is not done before."""
    folder = tmp_path / "results" / "sweep"
    found = ended(command(3_000_000, "runner.time_limit=0.02"))
    assert found.code == 1
    assert "timeout: 1 trial\n  1 x time_limit=0.02: it took" in found.out
    assert set(load_results(folder)["status"]) == {"timeout"}
    again = ended(
        command(3_000_000, "runner.time_limit=null", "runner.retry=[timeout]")
    )
    assert (again.code, "Traceback" in again.err) == (0, False)
    assert {*map(Store(folder).status, Store(folder))} == {"ok"}


def test_a_time_limit_out_of_range_is_refused(command):
    found = ended(command(5, "runner.time_limit=0"))
    assert found.code == 2
    assert found.err == (
        "dp-erm-bench: time_limit=0.0: must be positive seconds up to 1e+08, or null "
        "for no limit\n"
    )


FULL = Path("/dev/full")


def test_output_that_nothing_takes_is_a_sentence():
    with FULL.open("w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "dp_erm_bench", "list", "loss"],
            cwd=PATH[-1],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert found.returncode == 2
    assert found.stderr == "dp-erm-bench: output: No space left on device\n"


def test_what_cannot_be_written_can_still_be_planned(command, tmp_path):
    assert ended(command(5, "seed=0")).code == 0
    folder = tmp_path / "results" / "sweep"
    for place in (folder.parent, folder):
        place.chmod(0o555)
    found = ended(command(5, "seed=0,1", "mode=plan", setup=without_privilege))
    assert (found.code, found.err) == (0, "")
    assert ["total", "2", "1", "0"] in [x.split()[:4] for x in found.out.splitlines()]
    refused = ended(command(5, "seed=0,1", setup=without_privilege))
    assert refused.code == 2 and "Permission denied; what is" in refused.err
    for place in (folder.parent, folder):
        place.chmod(0o755)


LOST = """
import signal, sys, time
from dp_erm_bench.cli import main

class Closing:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def endless(given):
    Closing()
    # A signal that falls just before one long sleep ends it in no Python.
    for _ in range(3000):
        time.sleep(0.01)

main._dispatch_command = endless
sys.argv[1:] = ["dataset=log1"]
sys.exit(main.main())
"""


def test_what_tests_start_hears_every_signal():
    """Also below `make test &` and nohup, which .ci/run stands for."""
    code = (
        "import signal as s; print(*(int(s.getsignal(one) == s.SIG_IGN) "
        "for one in (s.SIGINT, s.SIGTERM, s.SIGHUP)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code]) == b"0 0 0\n"


def test_an_interrupt_in_a_finaliser_is_not_lost():
    """Python drops what is raised there, and prints it with its traceback."""
    found = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, timeout=20
    )
    assert found.returncode == 130
    assert found.stderr == "dp-erm-bench: interrupted; what is recorded stays\n"
