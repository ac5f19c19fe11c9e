"""Run one sweep on Dask while its workers are killed, and once its scheduler.

`python -m benchmarks.engines` starts a scheduler and workers, and runs the sweep at the
scheduler's address. It kills workers by `kill -9` at random moments. Half-way through,
it kills the scheduler and starts it again. If the command fails, it is run again.

The benchmark fails if a trial is lost, recorded twice or blamed for a fault. It also
fails if the command does not end with exit code 0 at last.
"""

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.__main__ import machine
from benchmarks.faults import alive, children
from benchmarks.harness import COMMAND, told
from dp_erm_bench.results.files import RECORDS

PROBLEM = [
    *("dataset=log1", "dataset.n=60", "dataset.p=5", "algorithm=random_cd"),
    *("algorithm.random_cd.clip=1", "budget.epsilon=1", "runner.progress=false"),
]
ONE = ("--nthreads", "1", "--no-dashboard")
AGAIN = 5
"""Largest number of times that the command is run."""


class Cluster:
    """A scheduler with workers, whose nannies start lost workers again."""

    def __init__(self, workers: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address, self.number = f"tcp://127.0.0.1:{self.port}", workers
        self.start()

    def start(self) -> None:
        """Start the scheduler and the workers; the workers end with the scheduler."""
        place = ("--host", "127.0.0.1", "--port", str(self.port))
        self.scheduler = _started("scheduler", *place, "--no-dashboard")
        self.nannies = [
            _started("worker", self.address, *ONE) for _ in range(self.number)
        ]

    def workers(self) -> list[int]:
        """Return the Dask worker processes that host a trial's worker at present."""
        found = [pid for nanny in self.nannies for pid in children(nanny.pid)]
        return [pid for pid in found if alive(pid) and children(pid)]

    def restart(self) -> None:
        """Kill the scheduler, and start it again at the same address."""
        self.scheduler.kill()
        self.scheduler.wait()
        before = self.nannies
        self.start()
        _end(before)

    def end(self) -> None:
        """End the scheduler and all workers."""
        _end([self.scheduler, *self.nannies])


def _started(what: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def recorded(folder: Path) -> int:
    """Return an estimate of the number of recorded trials."""
    path = folder / RECORDS
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        head = file.read(1 << 18)
    return int(path.stat().st_size * head.count(b'\n{"key":') / max(len(head), 1))


def swept(folder: Path, given: argparse.Namespace, cluster: Cluster) -> Counter[str]:
    """Run the sweep until it succeeds; return how often it ran and what was killed.

    The moments of the kills are random: after some number of records, plus a fraction
    of a second.
    """
    draw = random.Random(given.seed)
    command = [*COMMAND, *PROBLEM, f"seed=range(0,{given.trials})"]
    command += [f"algorithm.random_cd.passes={given.passes}"]
    command += ["runner=dask", f"runner.address={cluster.address}"]
    command += [f"results_dir={folder.parent}", f"name={folder.name}"]
    due = sorted(draw.sample(range(given.trials * 9 // 10), given.kills))
    done: Counter[str] = Counter()
    while done["commands"] < AGAIN:
        done["commands"] += 1
        process = subprocess.Popen(command)
        while process.poll() is None:
            count = recorded(folder)
            if not done["schedulers"] and count > given.trials // 2:
                cluster.restart()
                done["schedulers"] += 1
            if due and count >= due[0] and (there := cluster.workers()):
                time.sleep(draw.uniform(0.0, 0.5))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(there), signal.SIGKILL)
                    done["workers"] += 1
                    due.pop(0)
            time.sleep(0.05)
        if process.returncode == 0:
            return done
        print(f"exit code {process.returncode}: again", file=sys.stderr)
    raise SystemExit(f"the command failed {AGAIN} times")


def main() -> None:
    """Run the sweep, check its results, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=110)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{machine()}\n")
    with tempfile.TemporaryDirectory() as name:
        folder, cluster = Path(name, "sweep"), Cluster(given.workers)
        start = time.monotonic()
        try:
            done = swept(folder, given, cluster)
        finally:
            cluster.end()
        wall = time.monotonic() - start
        statuses = Counter(one["status"] for one in told(folder, "key"))
        keys = {one["key"] for one in told(folder, "key")}
        cost = sum(one["cost"] for one in told(folder, "key"))
    assert set(statuses) <= {"ok", "diverged"}, f"accused: {statuses}"
    assert len(keys) == given.trials, f"lost: {given.trials - len(keys)}"
    assert statuses.total() == given.trials, "recorded twice"
    assert done["workers"] >= given.kills and done["schedulers"] == 1, done
    rows = {
        "trials, all recorded once, none accused": f"{given.trials:,}",
        "workers of Dask, one thread each": given.workers,
        "workers killed": done["workers"],
        "schedulers killed and started again": done["schedulers"],
        "times that the command was run": done["commands"],
        "seconds": f"{wall:.0f}",
        "seconds of trials in all": f"{cost:.0f}",
    }
    print("| what | number |\n|---|---|")
    for what, number in rows.items():
        print(f"| {what} | {number} |")


if __name__ == "__main__":
    main()
