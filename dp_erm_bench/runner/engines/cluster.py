"""Dask clusters on this machine, or in jobs of a batch system.

The jobs may come from any cluster class of dask-jobqueue, with the settings of its own
yaml. dask-jobqueue reports most problems with jobs. Only SLURM is asked further
questions: whether it would accept a job, what a job waits for, and how a job ended.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Self

import dask.config
import pandas as pd
from dask.utils import parse_bytes

from dp_erm_bench.errors import UsageError, typed_text, value_error
from dp_erm_bench.experiment.schema import EngineConfig, RunnerConfig, bytes_of
from dp_erm_bench.paths import cache_dir, make_private, scratch_folder
from dp_erm_bench.registry import check_choice
from dp_erm_bench.runner.engines.base import explain_missing_dask
from dp_erm_bench.runner.host import hold_interrupts

LOOPBACK, ANY_PORT = "127.0.0.1", "127.0.0.1:0"
LOGS = "DP_ERM_BENCH_WORKER_LOGS"
"""Environment variable with the folder in which a worker keeps its log."""

LAST_LINES = 20
TAIL = 1 << 14
"""Number of bytes at the end of a log that are searched for its last lines."""

ENDED = ("closed", "failed")


class Elsewhere:
    """Workers of a scheduler that others have started; nothing is known about them."""

    def note_ended(self) -> None:
        """Do nothing: workers that others have started are not replaced here."""

    def log_of(self, address: str) -> str:
        """Return the last lines of a worker's log; empty if this machine has no log."""
        return ""

    def reason_of_waiting(self) -> str:
        """Return what workers wait for in a batch system's queue; empty if unknown."""
        return ""

    def reason_of_absence(self) -> str:
        """Return the batch system's reason for missing workers; empty if none."""
        return ""


class LocalWorkers(Elsewhere):
    """Processes on this machine with one worker each; ended processes are replaced.

    Parameters
    ----------
    n_jobs : int or None
        Number of workers.
    cluster : type
        Dask's class LocalCluster.

    Attributes
    ----------
    cluster : Cluster
        Dask's cluster, while the context lasts.
    """

    def __init__(self, n_jobs: int | None, cluster: Any) -> None:
        self.n_jobs, self._class = n_jobs, cluster

    def __enter__(self) -> Self:
        """Start the scheduler in this process, and the workers."""
        # The cluster's thread and processes inherit that Ctrl-C is blocked. If they had
        # to start the resource tracker, this would unblock Ctrl-C in their thread.
        resource_tracker.ensure_running()
        with hold_interrupts():
            self.cluster = self._class(
                n_workers=self.n_jobs,
                threads_per_worker=1,
                host=LOOPBACK,
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": ANY_PORT},
                silence_logs=logging.CRITICAL,
                # The memory is held by its children, which have a limit of their own.
                memory_limit=0,
                preload=[__name__],
                env={LOGS: scratch_folder()},
            )
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End the workers, at once after an exception, and then the scheduler."""
        for nanny in list(self.cluster.workers.values()) if kind else ():
            # Dask would let them finish their tasks.
            nanny.auto_restart = False
            with contextlib.suppress(OSError, TypeError):
                os.kill(nanny.pid, signal.SIGKILL)
        self.cluster.close()

    def note_ended(self) -> None:
        """Replace workers that Dask no longer restarts.

        Dask's supervisor of a worker, its nanny, gives up for example after a slow
        start.
        """
        nannies = list(self.cluster.workers.items())
        ended = [name for name, one in nannies if one.status.name in ENDED]
        for name in ended:
            self.cluster.workers.pop(name, None)
        if ended:
            self.cluster.loop.add_callback(self.cluster._correct_state)

    def log_of(self, address: str) -> str:
        """Return the last lines of the log of a worker; empty if it has none."""
        return log_end(Path(scratch_folder()), address.rpartition(":")[2])


def log_end(folder: Path, number: str) -> str:
    """Return the last lines of the logs with a given number in their file names."""
    named = re.compile(rf"(?<!\d){re.escape(number.split('.')[0])}(?!\d)")
    lines: list[str] = []
    # Listing the folder makes a network file system update it.
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if named.search(path.name):
                lines += path.read_bytes()[-TAIL:].decode(errors="replace").splitlines()
    return "\n".join(lines[-LAST_LINES:])


def dask_setup(worker: Any) -> None:
    """Redirect the output of a worker and its children into a log that outlives it.

    Dask calls this function by its name in every worker of a local cluster.
    """
    path = Path(os.environ[LOGS], f"{worker.address.rpartition(':')[2]}.log")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(logging.WARNING)
    # The parent handles Ctrl-C, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def silence_connections() -> Iterator[None]:
    """Silence the loggers of Dask, so that the package alone reports a lost connection.

    The loggers stay silent if the process is about to end.
    """
    every = logging.root.manager.loggerDict
    loggers = [logging.getLogger(x) for x in every if x.partition(".")[0] in NOISY]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        if isinstance(sys.exc_info()[1], Exception | None):
            for one, level in zip(loggers, levels, strict=True):
                one.setLevel(level)


def run_to_end(function: Callable[..., object], *given: object) -> None:
    """Call a function in a thread of its own, which Ctrl-C and SIGTERM do not reach.

    The signals take effect when the function has returned, since Dask cannot end a
    half-made cluster.
    """
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function, *given).result()


NOISY = ("distributed", "tornado", "asyncio")
SLURM = "slurm"
WALLTIME = re.compile(r"\d{1,4}-\d{1,4}:[0-5]\d:[0-5]\d")
HOURS, MEMORY = "02:00:00", "2G"
"""Walltime and memory of a job by default, if no key and no yaml of the user sets them.

LSF's walltime has no seconds.
"""

LEAST_MEMORY = 1 << 20
MARGIN = 60
"""Seconds of a job that are reserved to start a worker and to end it."""

ANSWER = 30.0
"""Seconds in which a command of a batch system must answer."""

WAITING, ALIVE = "PENDING", ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING")
"""SLURM's states of jobs that wait, and of those that have not ended."""

GONE = ["ENDED", "a while ago"]
"""State and reason that are reported for a job that SLURM has forgotten."""

HOPELESS = (
    *("PartitionTimeLimit", "PartitionNodeLimit", "PartitionConfig", "BadConstraints"),
    *("PartitionDown", "PartitionInactive", "AccountNotAllowed", "QOSNotAllowed"),
)
"""SLURM's reasons for which a job waits until somebody changes the cluster."""


def cluster_class(name: str) -> Any:
    """Return dask-jobqueue's class NAMECluster for a name in upper or lower case.

    Raises
    ------
    UsageError
        If there is no such class, or dask-jobqueue is not installed or cannot be
        imported.
    """
    before = signal.getsignal(signal.SIGINT)
    with explain_missing_dask(f"runner.cluster={name}"):
        import dask_jobqueue
    # The import makes Ctrl-C end the process with exit code 0. A handler can only be
    # set in the main thread.
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, before)
    offered = {
        each.removesuffix("Cluster").lower(): kind
        for each, kind in vars(dask_jobqueue).items()
        if each.endswith("Cluster") and hasattr(kind, "job_cls")
    }
    check_choice("runner.cluster", name, ["local", *sorted(offered)])
    return offered[name]


def check_jobs(options: RunnerConfig) -> None:
    """Raise UsageError if jobs are too short for a trial, or not fully specified.

    A trial that takes longer than a job would be started again in one job after another
    for ever. The number and the memory of jobs must be known.

    Raises
    ------
    UsageError
        The message has the key, its value, and the allowed values.
    """
    if options.n_jobs is None:
        raise UsageError(
            f"runner.n_jobs=auto: runner.cluster={options.cluster} needs a number of "
            "jobs"
        )
    job_memory(options)
    limit, (key, walltime, seconds) = options.time_limit, job_walltime(options)
    if seconds < (math.inf if limit is None else limit + MARGIN):
        rule = f"at most {key}={walltime} less {MARGIN} s: jobs outlive trials"
        raise value_error("runner.time_limit", limit and f"{limit:g}", rule)


def setting_of(options: EngineConfig, key: str, usual: str) -> tuple[str, Any]:
    """Return the name of the key that sets a setting of jobs, and its value.

    The value comes from the runner's key, from the user's own yaml for Dask, or from
    the default of this package, in this order. Defaults of dask-jobqueue are ignored.

    Parameters
    ----------
    options : EngineConfig
        The configuration, already checked.
    key : str
        Name of the setting, such as ``memory``.
    usual : str
        The default of this package.
    """
    theirs, ours = f"jobqueue.{options.cluster}.{key}", getattr(options, key)
    said = dask.config.get(theirs, None, config=dask.config.collect())
    return (f"runner.{key}", ours or usual) if ours or said is None else (theirs, said)


def job_memory(options: EngineConfig) -> float:
    """Return the memory of a job in bytes, from the key or the yaml; 2 GB by default.

    Raises
    ------
    UsageError
        If the value is not a size, or so small that SLURM would give all memory of a
        node.
    """
    key, value = setting_of(options, "memory", MEMORY)
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        read = bytes_of if key.startswith("runner") else parse_bytes
        size = float(read(value))
        if LEAST_MEMORY <= size < math.inf:
            return size
    raise value_error(key, value, "a size of at least 1M, as 500M or 2G")


def job_walltime(options: EngineConfig) -> tuple[str, str | None, float]:
    """Return the key that sets the walltime of jobs, the walltime, and its seconds.

    The seconds are infinite if the cluster's jobs have no walltime.

    Raises
    ------
    UsageError
        If the value is not a time; in a yaml file, 12:00:00 without quotes is a number.
    """
    kind = cluster_class(options.cluster)
    if "walltime" not in inspect.signature(kind.job_cls).parameters:
        return "", options.walltime, math.inf
    usual = HOURS.removesuffix(":00") if options.cluster == "lsf" else HOURS
    key, value = setting_of(options, "walltime", usual)
    days, _, clock = f"{value}{HOURS.removeprefix(usual)}".rpartition("-")
    if WALLTIME.fullmatch(f"{days or 0}-{clock}"):
        seconds = pd.Timedelta(f"{days or 0} days {clock}").total_seconds()
        if seconds > 0:
            return key, value, seconds
    raise value_error(
        key, value, f"a time as {usual} or 1-{usual}, in a yaml in quotes"
    )


def job_options(
    options: EngineConfig, logs: Path, secrets: Mapping[str, str]
) -> dict[str, Any]:
    """Return dask-jobqueue's arguments for the jobs of workers, with one core each.

    Arguments that are left out are set by dask-jobqueue's yaml file.

    Parameters
    ----------
    options : EngineConfig
        The configuration, already checked.
    logs : Path
        Folder for the logs of the jobs.
    secrets : mapping of str to str
        Certificates and keys in PEM form, by the name of the environment variable of
        Dask's configuration key. They are part of the job script, so that no shared
        file is needed. Only the user and the batch system can read the script, but the
        queues of HTCondor and LSF show it.
    """
    settings = {
        "DASK_DISTRIBUTED__WORKER__DAEMON": "False",
        # The end of a lost job's log is shown to the user.
        "DASK_LOGGING__DISTRIBUTED": "warning",
        **secrets,
    }
    keys = {
        "queue": options.queue,
        "interface": options.interface,
        "walltime": job_walltime(options)[1],
    }
    directives = options.job_extra_directives or listed_lines(
        options, "job-extra-directives"
    )
    if options.cluster == SLURM:
        # A job that is put back into the queue appends to its log.
        directives = ["--open-mode=append", *directives]
    prologue = listed_lines(options, "job-script-prologue")
    return {
        **{key: value for key, value in keys.items() if value is not None},
        "cores": 1,
        "processes": 1,
        "memory": str(int(job_memory(options))),
        "job_extra_directives": directives,
        "log_directory": str(logs),
        "job_script_prologue": [*prologue, *export_lines(settings)],
        # The batch system limits the memory. Nobody reads the workers' dashboards.
        "worker_extra_args": [
            *("--memory-limit", "0", "--no-dashboard"),
            *("--dashboard-address", ANY_PORT),
            *listed_lines(options, "worker-extra-args"),
        ],
    }


def listed_lines(options: EngineConfig, key: str) -> Any:
    """Return the list of lines that Dask's yaml has for a key; a string is one line."""
    value = dask.config.get(f"jobqueue.{options.cluster}.{key}", None) or []
    return [value] if isinstance(value, str) else value


def export_lines(settings: Mapping[str, str]) -> list[str]:
    """Return lines of a script that export settings and this package's variables.

    A value of several lines is written in one line, since an HTCondor script has only
    one line.
    """
    own = {k: v for k, v in os.environ.items() if k.startswith("DP_ERM_BENCH_")}
    return [
        f"export {name}=\"$(printf '%s\\n' {shlex.join(value.splitlines())})\""
        for name, value in {**settings, **own}.items()
    ]


def ask_batch_system(
    *command: str, script: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of a batch system; return its result, even if the command fails."""
    try:
        return subprocess.run(
            command, input=script or "", capture_output=True, text=True, timeout=ANSWER
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def check_script(options: EngineConfig, script: str) -> None:
    """Raise UsageError if the batch system would refuse a job, as far as it says so.

    Raises
    ------
    UsageError
        If this machine has no such system, or SLURM does not accept the script.
    """
    submit = cluster_class(options.cluster).job_cls.submit_command
    if shutil.which(submit) is None:
        raise UsageError(
            f"runner.cluster={options.cluster}: there is no command {submit} on this "
            "machine"
        )
    if options.cluster == SLURM:
        tried = ask_batch_system(submit, "--test-only", script=script)
        if tried.returncode:
            raise UsageError(
                f"{describe_jobs(options)}: {submit} says: "
                f"{complaint_in_a_line(tried.stderr)}"
            )


def describe_jobs(options: EngineConfig) -> str:
    """Return the keys, with values, for which a batch system may refuse a job."""
    keys = ("cluster", "queue", "memory", "walltime", "interface")
    pairs = [(key, getattr(options, key)) for key in (*keys, "job_extra_directives")]
    return " ".join(
        f"runner.{key}={typed_text(value)}" for key, value in pairs if value
    )


def complaint_in_a_line(text: str) -> str:
    """Return the error messages of a command in one line."""
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in text.splitlines()]
    return "; ".join(dict.fromkeys(filter(None, map(str.strip, lines)))) or "no"


def jobs_in_slurm(ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the state and reason of jobs by their ids; {} if SLURM gives no answer."""
    if not ids:
        return {}
    asked = ask_batch_system(
        "squeue", "-h", "-t", "all", "-o", "%A %T %r", "-j", ",".join(ids)
    )
    if asked.returncode and "invalid" not in asked.stderr.lower():
        return {}
    # In a federation of clusters there are headings among the lines.
    lines = (f"{line} - ".split(maxsplit=2) for line in asked.stdout.splitlines())
    found = {job: [state, why.strip("() -")] for job, state, why in lines if job in ids}
    return dict.fromkeys(ids, GONE) | found


UNWRITABLE = "JobLaunchFailure"
"""SLURM's reason for a job whose node cannot write the job's log.

The node then has no folder in common with this machine.
"""

END = 30.0
"""Seconds in which a cluster must end its jobs and itself."""

ASK = 10.0
"""Seconds between two questions to the batch system about jobs without a worker."""

CHECK = 1.0
"""Seconds between two questions about what jobs wait for."""

STILLBORN = 3
"""Number of times that jobs without a worker are submitted again, per worker.

This number limits new submissions of jobs that ended before their worker came.
"""


class Jobs(Elsewhere):
    """Jobs of a batch system with one worker each; jobs that end are replaced.

    Scheduler and workers authenticate each other by certificates that are made for this
    run alone.

    Parameters
    ----------
    options : EngineConfig
        The configuration, already checked.
    n_jobs : int
        Number of jobs.
    security : Security
        Dask's object with temporary certificates.

    Attributes
    ----------
    cluster : Cluster
        Dask's cluster, while the context lasts.
    """

    def __init__(self, options: EngineConfig, n_jobs: int, security: Any) -> None:
        self.options, self.n_jobs, self.security = options, n_jobs, security
        self._class = private_cluster_class(cluster_class(options.cluster))
        self._ids: set[str] = set()
        self._of: dict[str, str] = {}
        self._asked = self._checked = time.monotonic()
        self._stillborn, self._turn = 0, ""

    def __enter__(self) -> Self:
        """Start the scheduler in this process, and submit the jobs.

        Raises
        ------
        UsageError
            If the batch system refuses the jobs.
        """
        self.logs = _log_folder()
        key = f"jobqueue.{self.options.cluster}.scheduler-options"
        try:
            options = job_options(
                self.options, self.logs, worker_certificates(self.security)
            )
            job = self._class.job_cls("tls://", name="w", protocol="tls://", **options)
            check_script(self.options, job.job_script())
            self.cluster = self._class(
                security=self.security,
                silence_logs=logging.CRITICAL,
                scheduler_options={
                    **{"dashboard": False, "dashboard_address": ANY_PORT},
                    **(dask.config.get(key, None) or {}),
                },
                **options,
            )
        except Exception as error:
            shutil.rmtree(self.logs, ignore_errors=True)
            if isinstance(error, UsageError):
                raise
            where, why = describe_jobs(self.options), complaint_in_a_line(str(error))
            raise UsageError(f"{where}: dask-jobqueue says: {why}") from None
        self.cluster.scale(self.n_jobs)
        if self.options.adapt:
            self.cluster.adapt(minimum=self.n_jobs, maximum=self.n_jobs)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Cancel the jobs; keep their logs if they may explain an error."""
        # If a job was not accepted, the cluster cannot end normally, and its list of
        # jobs may be inconsistent. The known jobs are cancelled in any case.
        with contextlib.suppress(Exception):
            self.note_ended()
        with contextlib.suppress(Exception):
            self.cluster.close(timeout=END)
        if self._ids:
            cancel = shlex.split(self._class.job_cls.cancel_command)
            ask_batch_system(*cancel, *self._ids)
        if not isinstance(error, UsageError):
            shutil.rmtree(self.logs, ignore_errors=True)

    def note_ended(self) -> None:
        """Record which job each worker runs in, and replace jobs that have ended."""
        jobs = list(self.cluster.workers.items())
        ids = {name: one.job_id for name, one in jobs if one.job_id}
        self._ids.update(ids.values())
        for address, about in list(self.cluster.scheduler_info["workers"].items()):
            if job := ids.pop(about["name"], None):
                self._of[address] = job
        slurm = self.options.cluster == SLURM
        if slurm and self.options.adapt and time.monotonic() > self._asked + ASK:
            self._replace_jobs(ids)
            self._asked = time.monotonic()

    def _replace_jobs(self, absent: Mapping[Any, str]) -> None:
        """Submit jobs again that ended before their workers came.

        Dask would wait for these workers.
        """
        known = jobs_in_slurm([*absent.values()])
        about = {name: known.get(job, [WAITING]) for name, job in absent.items()}
        ended = [name for name, one in about.items() if one[0] not in (WAITING, *ALIVE)]
        self._stillborn += len(ended)
        # Workers may never come, so the number of attempts is limited.
        if ended and self._stillborn <= STILLBORN * self.n_jobs:
            if any(UNWRITABLE in about[name] for name in ended):
                asked = self.cluster.new_spec["options"]
                asked["log_directory"] = tempfile.gettempdir()
            self.cluster.loop.add_callback(self.cluster.scale_down, ended)

    def _job_states(self) -> dict[str, list[str]]:
        """Return SLURM's states and reasons of all jobs; {} for other systems."""
        return jobs_in_slurm([*self._ids]) if self.options.cluster == SLURM else {}

    def log_of(self, address: str) -> str:
        """Return the last lines of the log of a worker's job; empty if unknown."""
        job = self._of.get(address)
        return f"job {job}:\n{log_end(self.logs, job)}" if job else ""

    def reason_of_waiting(self) -> str:
        """Return what a job waits for in its queue; empty if none is known to wait.

        Raises
        ------
        UsageError
            If a job would wait for ever, as for a partition that does not allow it.
        """
        if time.monotonic() > self._checked + CHECK:
            self._checked = time.monotonic()
            self._turn = ""
            for job, (state, why) in self._job_states().items():
                if state == WAITING:
                    self._turn = f"job {job} waits: {why}"
                    if why in HOPELESS:
                        never = f"job {job} would wait for ever ({why})"
                        raise UsageError(f"{describe_jobs(self.options)}: {never}")
        return self._turn

    def reason_of_absence(self) -> str:
        """Return the last line of the last job's log; its state if it has no log."""
        known = self._job_states()
        for job in sorted(self._ids, key=lambda one: (len(one), one), reverse=True):
            if log := log_end(self.logs, job):
                return f"job {job} said: {log.splitlines()[-1]}"
            if job in known:
                return f"job {job}: {', '.join(known[job])}"
        return ""


def _log_folder() -> Path:
    """Return a new folder for logs, which nodes see if they share the user's home."""
    folder = cache_dir() / "jobs"
    make_private(folder)
    return Path(tempfile.mkdtemp(dir=folder))


def private_cluster_class(cluster: Any) -> Any:
    """Return a subclass of a dask-jobqueue class that keeps keys private.

    The subclass writes no key into a file that others may read.
    """

    @contextlib.contextmanager
    def job_file(job: Any) -> Any:
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
            file.write(job.job_script())
            file.flush()
            yield file.name

    def security_of_worker(self: Any, security: Any) -> None:
        """Write no files: the certificates are in the script."""

    job = type(cluster.job_cls.__name__, (cluster.job_cls,), {"job_file": job_file})
    own = {"job_cls": job, "_get_worker_security": security_of_worker}
    return type(cluster.__name__, (cluster,), own)


def worker_certificates(security: Any) -> dict[str, str]:
    """Return a worker's certificates and key, as variables of its environment."""
    tls = security.get_tls_config_for_role("worker")
    start = "DASK_DISTRIBUTED__COMM__"
    return {
        f"{start}REQUIRE_ENCRYPTION": "True",
        f"{start}TLS__CA_FILE": tls["ca_file"],
        f"{start}TLS__WORKER__CERT": tls["cert"],
        f"{start}TLS__WORKER__KEY": tls["key"],
    }
