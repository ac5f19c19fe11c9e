"""Jobs of a batch system: what is refused beforehand, and what their scripts ask."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.errors import UsageError, refused
from dp_erm_bench.experiment.schema import EngineConfig, RunnerConfig, bytes_of

NAME = "dp-erm-bench"
WALLTIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
LEAST_MEMORY = 1 << 20
MARGIN = 60
"""Seconds of a job that are left to start a worker and to end it."""

UNKNOWN = re.compile("invalid|unknown|not found|not exist", re.IGNORECASE)
ENDED = re.compile(r"\b(DONE|EXIT)\b")
ANSWER = 30.0
"""Seconds in which a command of a batch system must answer."""

HOPELESS = (
    *("PartitionTimeLimit", "PartitionNodeLimit", "PartitionConfig", "BadConstraints"),
    *("PartitionDown", "PartitionInactive", "AccountNotAllowed", "QOSNotAllowed"),
)
"""Reasons for which a job of SLURM waits until somebody changes the cluster."""


class System(NamedTuple):
    """A batch system: its class in dask-jobqueue, and its commands.

    `listing` names, with the ids of jobs behind it, those that have not ended.
    """

    cluster: str
    submit: str
    cancel: str
    listing: tuple[str, ...]


SYSTEMS = {
    "slurm": System("SLURMCluster", "sbatch", "scancel", ("squeue", "-j")),
    "pbs": System("PBSCluster", "qsub", "qdel", ("qstat",)),
    "sge": System("SGECluster", "qsub", "qdel", ("qstat", "-j")),
    "lsf": System("LSFCluster", "bsub", "bkill", ("bjobs",)),
}


def check_jobs(options: RunnerConfig) -> None:
    """Refuse what no job can be given, whatever the batch system has.

    Raises
    ------
    UsageError
        With key, value, and what is allowed.
    """
    seconds = seconds_of(options.walltime)
    if not seconds > 0:
        rule = "a time as 02:00:00 or 1-12:00:00"
        raise refused("runner.walltime", options.walltime, rule)
    if not LEAST_MEMORY <= bytes_of(options.memory) < math.inf:
        rule = "a size of at least 1M, as 500M or 2G"
        raise refused("runner.memory", options.memory, rule)
    limit = options.time_limit
    if limit is None or seconds < limit + MARGIN:
        # Else a trial may take all of a job, again and again, and never end.
        value = "null" if limit is None else f"{limit:g}"
        raise UsageError(
            f"runner.time_limit={value}: must be at most runner.walltime="
            f"{options.walltime} less {MARGIN} s, so that a job outlives its trials"
        )
    there = [name for _, name in socket.if_nameindex()]
    if options.interface is not None and options.interface not in there:
        rule = f"a network interface of this machine: {', '.join(there)}"
        raise refused("runner.interface", options.interface, rule)


def seconds_of(walltime: str) -> float:
    """Return the seconds of a time as 02:00:00 or 1-12:00:00, NaN if it is none."""
    match = WALLTIME.fullmatch(walltime)
    if not match:
        return math.nan
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((24 * days + hours) * 60 + minutes) * 60 + seconds)


def walltime_for(cluster: str, walltime: str) -> str:
    """Return a time as a batch system spells it: LSF counts minutes."""
    minutes, seconds = divmod(int(seconds_of(walltime)), 60)
    if cluster == "lsf":
        minutes += seconds > 0
        return f"{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


def directives(options: EngineConfig, cores: int = 1) -> dict[str, Any]:
    """Return what dask-jobqueue puts into the head of a job's script.

    Parameters
    ----------
    options : EngineConfig
        Checked ones.
    cores : int
        Of the job; its memory is for as many workers.
    """
    # A job that is put back into the queue goes on with its log.
    own = ["--open-mode=append"] if options.cluster == "slurm" else []
    return {
        "cores": cores,
        "processes": 1,
        "memory": str(cores * int(bytes_of(options.memory))),
        "queue": options.queue,
        "walltime": walltime_for(options.cluster, options.walltime),
        "job_extra_directives": [*own, *options.job_extra_directives],
        "job_name": NAME,
    }


def worker(
    options: EngineConfig, logs: Path, secrets: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what dask-jobqueue needs to make the jobs of workers.

    Parameters
    ----------
    options : EngineConfig
        Checked ones.
    logs : Path
        Folder for the logs of the jobs.
    secrets : mapping of str to str, optional
        Certificates and keys in PEM form, by the name of Dask's key of configuration.
        They travel in the script, which only the user and the batch system can read,
        so that no file system need be shared.
    """
    settings = {
        "DASK_DISTRIBUTED__WORKER__DAEMON": "False",
        # What is told of a lost job is the end of its log.
        "DASK_LOGGING__DISTRIBUTED": "warning",
        **(secrets or {}),
    }
    return {
        **directives(options),
        "interface": options.interface,
        "python": sys.executable,
        "death_timeout": MARGIN,
        "log_directory": str(logs),
        "job_script_prologue": exports(settings),
        # The batch system limits the memory. Nobody listens to the workers' pages.
        "worker_extra_args": [
            *("--memory-limit", "0", "--no-dashboard"),
            *("--dashboard-address", "127.0.0.1:0"),
        ],
    }


def ask(*command: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of a batch system to its end, without raising if it fails."""
    try:
        return subprocess.run(
            command, input=script or "", capture_output=True, text=True, timeout=ANSWER
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def check_script(options: EngineConfig, script: str) -> None:
    """Refuse a job that the batch system would refuse, as far as it says so.

    Raises
    ------
    UsageError
        If there is no such system on this machine, or SLURM does not take the script.
    """
    where = f"runner.cluster={options.cluster}"
    submit = SYSTEMS[options.cluster].submit
    if shutil.which(submit) is None:
        raise UsageError(f"{where}: there is no command {submit} on this machine")
    if options.cluster != "slurm":
        return
    tried = ask(submit, "--test-only", script=script)
    if tried.returncode:
        raise UsageError(f"{described(options)}: {submit} says: {said(tried.stderr)}")


def described(options: EngineConfig) -> str:
    """Return the keys of which a batch system may refuse one."""
    pairs = [("cluster", options.cluster), ("queue", options.queue)]
    pairs += [("memory", options.memory), ("walltime", options.walltime)]
    pairs += [("job_extra_directives", one) for one in options.job_extra_directives]
    return " ".join(f"runner.{key}={value}" for key, value in pairs if value)


def said(text: str) -> str:
    """Return what a command complains of, in one line."""
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in text.splitlines()]
    return "; ".join(dict.fromkeys(filter(None, map(str.strip, lines)))) or "no"


def waits(options: EngineConfig, ids: Iterable[str]) -> dict[str, str]:
    """Return why each job of SLURM waits that does, by its id.

    Raises
    ------
    UsageError
        If the partition is why one waits: it would for ever.
    """
    numbers = ",".join(ids)
    if options.cluster != "slurm" or not numbers:
        return {}
    asked = ask("squeue", "-h", "-t", "PENDING", "-o", "%A %r", "-j", numbers)
    found = dict(line.split(" ", 1) for line in asked.stdout.splitlines())
    for job, reason in found.items():
        if reason.strip("()") in HOPELESS:
            raise UsageError(
                f"{described(options)}: job {job} would wait for ever ({reason})"
            )
    return found


def listed(cluster: str, ids: Sequence[str]) -> set[str]:
    """Return those of some jobs that wait or run; all, if the system does not say."""
    if not ids:
        return set()
    listing = SYSTEMS[cluster].listing
    asked = ask(*listing, *([",".join(ids)] if listing[-1] == "-j" else ids))
    if asked.returncode and not UNKNOWN.search(asked.stderr):
        return {*ids}
    # LSF lists jobs for a while that have ended.
    rows = [one for one in asked.stdout.splitlines() if not ENDED.search(one)]
    words = {word for row in rows for word in re.findall(r"\d+", row)}
    return {*ids} & words


def exports(settings: Mapping[str, str]) -> list[str]:
    """Return the lines of a script that hand on settings, and those of this package."""
    own = {k: v for k, v in os.environ.items() if k.startswith("DP_ERM_BENCH_")}
    both = {**settings, **own}
    return [f"export {name}={shlex.quote(value)}" for name, value in both.items()]
