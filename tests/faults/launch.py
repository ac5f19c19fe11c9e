"""Run sweeps in other processes, and observe them from outside."""

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from made_blocks import make_block

from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
HERE = Path(__file__).parent
PATH = [str(HERE), str(HERE.parent / "runner"), str(HERE.parents[1])]


class Ended(NamedTuple):
    """A run that has ended."""

    code: int
    out: str
    err: str


class Runs:
    """Starts runs in processes of their own, and looks at what they leave."""

    def __init__(self, home):
        self.home = home
        self.folder = home / "run"
        self.log = home / "log"
        self.started = []

    def start(self, execute, seeds=12, setup=None, block=None, **options):
        """Start a run in a process group of its own; `setup` is called in it first."""
        execute = execute if "." in execute else f"faulty.{execute}"
        made = {"n_jobs": 2, "progress": False, "execute": execute}
        arguments = (
            PATH,
            block or make_block(seed=list(range(seeds))),
            str(self.folder),
            made | options,
        )
        process = subprocess.Popen(
            [sys.executable, HERE / "drive.py", *map(json.dumps, arguments)],
            env={**os.environ, "LOG": str(self.log)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=setup,
        )
        self.started.append(process)
        return process

    def __call__(self, execute, seeds=12, **options):
        """Run to the end."""
        return ended(self.start(execute, seeds, **options))

    def calls(self):
        """Return the seeds that were run, in any order, since the last call."""
        found = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(map(int, found))

    def table(self):
        return load_results(self.folder).drop_duplicates("trial")

    def statuses(self):
        """Return the status of each seed that has a record."""
        table = self.table()
        return dict(zip(table["seed"], table["status"], strict=True))

    def messages(self):
        table = self.table()
        return dict(zip(table["seed"], table["message"], strict=True))

    def costs(self):
        """Return the seconds that each seed was charged with."""
        store = Store(self.folder)
        table = self.table()
        keys = zip(table["seed"], table["trial"], strict=True)
        return {seed: store.record(key)["cost"] for seed, key in keys}

    def lines(self, first):
        """Return how many lines of the records have a first key."""
        path = self.folder / "records.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(line.startswith(f'{{"{first}":') for line in lines)

    def recorded(self):
        return len(Store(self.folder))

    def outcome(self):
        return read_manifest(self.folder)["outcome"]


def ended(process, seconds=60):
    out, err = process.communicate(timeout=seconds)
    return Ended(process.returncode, out, err)


def children(pid):
    """Return the live children of a process, of whichever of its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def descendants(pid):
    """Return the live children of a process, theirs, and so on."""
    return [one for child in children(pid) for one in (child, *descendants(child))]


def alive(pid):
    """Return whether a process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition, seconds=20.0):
    """Return how long a condition took to come true."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, "it never came true"
        time.sleep(0.01)
    return time.monotonic() - start


def without_privilege():
    """Have a process that is root's obey the permissions of files, too."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)


def small_files(size):
    """Return what lets a process write files of some bytes only, as a quota does."""

    def setup():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return setup
