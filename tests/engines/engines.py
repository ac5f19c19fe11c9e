"""Engines that run trials in tests, and functions that observe their processes."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from launch import PATH, Runs, alive, wait_for

LOCAL = {}
THREADING = {"engine": "joblib", "backend": "threading"}
LOKY = {"engine": "joblib", "backend": "loky"}
DASK = {"engine": "dask"}
SLURM = {"engine": "dask", "cluster": "slurm", "walltime": "01:10:00"}
SLURM |= {"memory": "500M", "interface": "lo"}
ENGINES = {
    "local": LOCAL,
    "joblib threading": THREADING,
    "joblib loky": LOKY,
    "dask": DASK,
    "dask, address": {"engine": "dask"},
    "dask on SLURM": SLURM,
}
HOSTED = ("joblib loky", "dask", "dask, address", "dask on SLURM")
"""Engines whose hosts are processes of their own."""

WORKER = "dp_erm_bench.runner.worker"


class EngineRuns(Runs):
    """Runs on an engine, in processes that are known by a variable of theirs."""

    def __init__(self, home, options):
        super().__init__(home)
        self.options = options
        self.cluster = None

    def start(self, execute, seeds=12, setup=None, **options):
        """Start a run on the engine."""
        return super().start(execute, seeds, setup, **{**self.options, **options})

    def members(self):
        """Return the processes that work for the runs, on whosesoever behalf."""
        found, mark = [], f"LOG={self.log}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                ours = mark in path.read_bytes().split(b"\0")
            except OSError:
                continue
            pid = int(path.parent.name)
            if ours and alive(pid):
                found.append(pid)
        return found

    def workers(self):
        """Return the processes that run trials."""
        return [pid for pid in self.members() if WORKER in command(pid)]

    def hosts(self):
        """Return the processes that host workers, the run itself excepted."""
        runs = {process.pid for process in self.started}
        return sorted({parent(pid) for pid in self.workers()} - runs)

    def left(self):
        """Return the processes of runs that outlive them."""
        kept = self.cluster.processes() if self.cluster else []
        return [pid for pid in self.members() if pid not in kept]


def command(pid):
    """Return a process's command line, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def parent(pid):
    """Return the process that started another, 0 if that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


class Cluster:
    """A scheduler of Dask at an address, and its workers, as commands start them."""

    def __init__(self, log, folder, workers=2, **environment):
        self.environment = {**os.environ, "LOG": str(log), **environment}
        self.environment["PYTHONPATH"] = os.pathsep.join(PATH)
        self.folder, self.started = folder, []
        port = self.folder / "scheduler.json"
        self.scheduler = self._start(
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(port),
        )
        wait_for(port.exists)
        time.sleep(0.2)
        self.address = json.loads(port.read_text())["address"]
        for _ in range(workers):
            self.add()

    def add(self, *options):
        """Start a worker of one thread, with a nanny by default."""
        usual = ("--nthreads", "1", "--no-dashboard")
        return self._start("worker", self.address, *usual, *options)

    def restart(self, **environment):
        """Start the scheduler again at its address, where it is soon."""
        self.environment |= environment
        host, _, port = self.address.removeprefix("tcp://").partition(":")
        place = ("--host", host, "--port", port)
        self.scheduler = self._start("scheduler", *place, "--no-dashboard")

    def kill(self, process):
        """Kill a process that was started here, and wait for its end."""
        process.kill()
        process.wait()

    def _start(self, what, *arguments):
        program = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments]
        self.started.append(
            subprocess.Popen(
                program,
                env=self.environment,
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        return self.started[-1]

    def processes(self):
        """Return the scheduler, the workers, and all that they started."""
        groups = {process.pid for process in self.started}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(path.name)) in groups:
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def end(self):
        """Kill all of them."""
        kill_groups(self.started)


@contextmanager
def engine_runs(home, name, slurm=None):
    """Yield runs on an engine; end whatever it started."""
    with ExitStack() as stack:
        runs = EngineRuns(home, ENGINES[name])
        if slurm is not None:
            # Jobs start with what the batch system hands on, and import the fakes.
            path = {"PYTHONPATH": os.pathsep.join(PATH)}
            stack.enter_context(patch.dict(os.environ, slurm.environment | path))
            stack.callback(lambda: slurm.cancel(*slurm.jobs()))
        stack.callback(ended_all, runs)
        if name == "dask, address":
            runs.cluster = Cluster(runs.log, home)
            stack.callback(runs.cluster.end)
            runs.options = {**runs.options, "address": runs.cluster.address}
        yield runs


def ended_all(runs):
    """Kill what works for runs."""
    kill_groups(runs.started)
    for pid in runs.members():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_groups(processes):
    """Kill processes that lead a group, with all of it."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
