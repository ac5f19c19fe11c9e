"""Dask clusters: of this machine, or of the jobs of a batch system.

The jobs are those of any cluster class of dask-jobqueue, with what its own yaml says.
SLURM alone is asked more than dask-jobqueue asks: whether it would take a job, what a
job waits for, and how it ended.
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
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Self

from dp_erm_bench.errors import UsageError, refused
from dp_erm_bench.experiment.schema import EngineConfig, RunnerConfig, bytes_of
from dp_erm_bench.paths import cache_dir, make_private, scratch
from dp_erm_bench.registry import check_choice
from dp_erm_bench.runner.host import interrupts_held

LOOPBACK = "127.0.0.1"
LOGS = "DP_ERM_BENCH_WORKER_LOGS"
"""Names the folder in which a worker keeps its log."""

LAST_LINES = 20
TAIL = 1 << 14
"""Bytes of a log in which its last lines are looked for."""

ENDED = ("closed", "failed")
NOISY = ("distributed", "tornado", "asyncio")
"""Loggers that tell of every lost connection, with a traceback."""


class LocalWorkers:
    """Processes of this machine that are one worker each; those that end are replaced.

    Parameters
    ----------
    n_jobs : int or None
        Workers to have.
    cluster : type
        Dask's LocalCluster.

    Attributes
    ----------
    cluster : Cluster
        Dask's, while the context lasts.
    """

    def __init__(self, n_jobs: int | None, cluster: Any) -> None:
        self.n_jobs, self._class = n_jobs, cluster

    def __enter__(self) -> Self:
        """Start the scheduler in this process, and the workers."""
        # Its thread and processes inherit that they never hear of Ctrl-C, if the first
        # of them need not start this one, which has its thread hear again.
        resource_tracker.ensure_running()
        with interrupts_held():
            self.cluster = self._class(
                n_workers=self.n_jobs,
                threads_per_worker=1,
                host=LOOPBACK,
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:0"},
                silence_logs=logging.CRITICAL,
                # Its children, which hold what there is, have a limit of their own.
                memory_limit=0,
                preload=[__name__],
                env={LOGS: scratch()},
            )
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End the workers, at once after an exception, and then the scheduler."""
        for nanny in list(self.cluster.workers.values()) if kind else ():
            # Dask would let them end what they are at.
            nanny.auto_restart = False
            with contextlib.suppress(OSError, TypeError):
                os.kill(nanny.pid, signal.SIGKILL)
        self.cluster.close()

    def note(self) -> None:
        """Replace workers whose nannies have given up, as if a start takes too long."""
        nannies = list(self.cluster.workers.items())
        ended = [name for name, one in nannies if one.status.name in ENDED]
        for name in ended:
            self.cluster.workers.pop(name, None)
        if ended:
            self.cluster.loop.add_callback(self.cluster._correct_state)

    def check(self) -> None:
        """Refuse nothing: there is no batch system."""

    def log_of(self, address: str) -> str:
        """Return the last lines of the log of a worker; empty if it has none."""
        return "\n".join(last_lines(_log(scratch(), address)))

    def absence(self) -> str:
        """Return nothing: no batch system knows why there is no worker."""
        return ""


def last_lines(path: Path) -> list[str]:
    """Return the last lines of a log; none if it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        return file.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    return []


def _log(folder: str, address: str) -> Path:
    return Path(folder, f"{address.rpartition(':')[2]}.log")


def dask_setup(worker: Any) -> None:
    """Let a worker, and its children, write into a log that outlives it.

    Dask calls it in every worker of a local cluster, by this name.
    """
    path = _log(os.environ[LOGS], worker.address)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(logging.WARNING)
    # Ctrl-C is for the parent to handle, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def silence() -> Callable[..., None]:
    """Let what is told of lost connections be one sentence, and ours.

    Returns
    -------
    function
        Has it told again, unless the process is about to end.
    """
    made = logging.root.manager.loggerDict
    names = {*NOISY, *(name for name in made if name.split(".")[0] in NOISY)}
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)

    def restore(kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

    return restore


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait: what Dask has half made it cannot end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {one: signal.signal(one, lambda n, _: came.append(n)) for one in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in came[:1]:
            signal.raise_signal(one)


NAME = "dp-erm-bench"
SLURM = "slurm"
WALLTIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d)(?::([0-5]\d))?")
HOURS, MEMORY = "02:00:00", "2G"
"""Of a job, where neither a key nor the user's yaml says."""

LEAST_MEMORY = 1 << 20
MARGIN = 60
"""Seconds of a job that are left to start a worker and to end it."""

ANSWER = 30.0
"""Seconds in which a command of a batch system must answer."""

HOPELESS = (
    *("PartitionTimeLimit", "PartitionNodeLimit", "PartitionConfig", "BadConstraints"),
    *("PartitionDown", "PartitionInactive", "AccountNotAllowed", "QOSNotAllowed"),
)
"""Reasons for which a job of SLURM waits until somebody changes the cluster."""


def cluster_class(name: str) -> Any:
    """Return the class of dask-jobqueue that is called NAMECluster, in any case.

    Raises
    ------
    UsageError
        If there is none, or dask-jobqueue is not installed or cannot be imported.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        import dask_jobqueue
    except ModuleNotFoundError as error:
        raise missing(error) from None
    except Exception as error:  # another version, a yaml of Dask's that is none
        where = f"runner.cluster={name}: dask-jobqueue cannot be imported"
        raise UsageError(f"{where}: {said(str(error))}") from None
    finally:
        # It has Ctrl-C end the process with exit code 0; in the main thread alone.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, before)
    offered = {
        each.removesuffix("Cluster").lower(): kind
        for each, kind in vars(dask_jobqueue).items()
        if each.endswith("Cluster") and hasattr(kind, "job_cls")
    }
    check_choice("runner.cluster", name, ["local", *sorted(offered)])
    return offered[name]


def missing(error: ImportError) -> UsageError:
    """Return the sentence about a package that clusters need."""
    return UsageError(
        f"runner=dask with runner.cluster: {error.name or error}: not installed; "
        "pip install 'dp_erm_bench[dask]'"
    )


def check_jobs(options: RunnerConfig) -> None:
    """Refuse what no job can be given, whatever the batch system has.

    Raises
    ------
    UsageError
        With key, value, and what is allowed.
    """
    kind = cluster_class(options.cluster)
    if options.n_jobs is None:
        where = f"runner.cluster={options.cluster}"
        raise UsageError(f"runner.n_jobs=auto: {where} needs a number of jobs")
    for key in ("queue", "walltime"):
        value = getattr(options, key)
        if value is not None and not _takes(kind, key):
            rule = f"{kind.__name__} of dask-jobqueue has no {key}"
            raise UsageError(f"runner.{key}={value}: {rule}")
    if not LEAST_MEMORY <= job_memory(options) < math.inf:
        memory = options.memory or told(options, "memory")
        rule = "a size of at least 1M, as 500M or 2G"
        raise refused(_sayer(options, "memory"), memory, rule)
    if _takes(kind, "walltime"):
        _check_walltime(options)
    there = [name for _, name in socket.if_nameindex()]
    if options.interface is not None and options.interface not in there:
        rule = f"a network interface of this machine: {', '.join(there)}"
        raise refused("runner.interface", options.interface, rule)


def _takes(kind: Any, key: str) -> bool:
    return key in inspect.signature(kind.job_cls).parameters


def _check_walltime(options: RunnerConfig) -> None:
    """Refuse a walltime that is none, or in which a trial may not end.

    Such a trial may take all of a job, again and again, and never end.
    """
    walltime, limit = job_walltime(options), options.time_limit
    key, seconds = _sayer(options, "walltime"), seconds_of(walltime)
    if not seconds > 0 or walltime.count(":") != _usual(options).count(":"):
        # A yaml takes 12:00:00 for a number.
        quoted = "" if key.startswith("runner") else ", in quotes"
        rule = f"a time as {_usual(options)} or 1-12:00:00{quoted}"
        raise refused(key, walltime, rule)
    if limit is None or seconds < limit + MARGIN:
        value = "null" if limit is None else f"{limit:g}"
        raise UsageError(
            f"runner.time_limit={value}: must be at most {key}={walltime} less "
            f"{MARGIN} s, so that a job outlives its trials"
        )


def _usual(options: EngineConfig) -> str:
    """Return the usual walltime; LSF's have no seconds."""
    return HOURS[:-3] if options.cluster == "lsf" else HOURS


def told(options: EngineConfig, key: str) -> Any:
    """Return what the user's yaml of Dask says of a cluster's jobs, None if nothing.

    Dask's variables of the environment count; what dask-jobqueue itself has for a
    default does not.
    """
    import dask.config

    own = dask.config.collect()
    return dask.config.get(f"jobqueue.{options.cluster}.{key}", None, config=own)


def _sayer(options: EngineConfig, key: str) -> str:
    """Return the name of what says a key: ours, or that of Dask's yaml."""
    if getattr(options, key) is None and told(options, key) is not None:
        return f"jobqueue.{options.cluster}.{key}"
    return f"runner.{key}"


def job_memory(options: EngineConfig) -> float:
    """Return the bytes of a job, NaN if they are none: the key's, the yaml's, 2 GB."""
    own = told(options, "memory")
    if options.memory is not None or own is None:
        return bytes_of(options.memory or MEMORY)
    from dask.utils import parse_bytes

    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return float(parse_bytes(own))
    return math.nan


def job_walltime(options: EngineConfig) -> str:
    """Return how long a job may take: as the key says, the yaml, or two hours."""
    return options.walltime or str(told(options, "walltime") or _usual(options))


def seconds_of(walltime: str) -> float:
    """Return the seconds of a time as 02:00:00, 02:00 or 1-12:00:00, NaN if none."""
    match = WALLTIME.fullmatch(walltime)
    if not match:
        return math.nan
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((24 * days + hours) * 60 + minutes) * 60 + seconds)


def worker(
    options: EngineConfig, logs: Path, secrets: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what dask-jobqueue needs to make the jobs of workers, one core each.

    What is left out is what its yaml says.

    Parameters
    ----------
    options : EngineConfig
        Checked ones.
    logs : Path
        Folder for the logs of the jobs.
    secrets : mapping of str to str, optional
        Certificates and keys in PEM form, by the name of Dask's key of configuration.
        They travel in the script, so that no file need be shared for them: only the
        user and the batch system can read it, but HTCondor's and LSF's queues show it.

    Raises
    ------
    UsageError
        If the yaml has a text where a list is needed: of its letters one would be made.
    """
    import dask.config

    def listed(name: str) -> Any:
        key = f"jobqueue.{options.cluster}.{name}"
        value = dask.config.get(key, None) or []
        if isinstance(value, str):
            raise refused(key, value, "a list")
        return value

    settings = {
        "DASK_DISTRIBUTED__WORKER__DAEMON": "False",
        # What is told of a lost job is the end of its log.
        "DASK_LOGGING__DISTRIBUTED": "warning",
        **(secrets or {}),
    }
    keys = {"queue": options.queue, "interface": options.interface}
    if _takes(cluster_class(options.cluster), "walltime"):
        keys["walltime"] = job_walltime(options)
    directives = options.job_extra_directives or listed("job-extra-directives")
    if options.cluster == SLURM:
        # A job that is put back into the queue goes on with its log.
        directives = ["--open-mode=append", *directives]
    return {
        **{key: value for key, value in keys.items() if value is not None},
        "cores": 1,
        "processes": 1,
        "memory": str(int(job_memory(options))),
        "job_name": told(options, "name") or NAME,
        "job_extra_directives": directives,
        "log_directory": str(logs),
        "job_script_prologue": [*listed("job-script-prologue"), *exports(settings)],
        # The batch system limits the memory. Nobody listens to the workers' pages.
        "worker_extra_args": [
            *("--memory-limit", "0", "--no-dashboard"),
            *("--dashboard-address", "127.0.0.1:0"),
            *listed("worker-extra-args"),
        ],
    }


def exports(settings: Mapping[str, str]) -> list[str]:
    """Return the lines of a script that hand on settings, and those of this package.

    A value of several lines is written in one: HTCondor has its script in one.
    """
    own = {k: v for k, v in os.environ.items() if k.startswith("DP_ERM_BENCH_")}
    return [f"export {k}={_quoted(v)}" for k, v in {**settings, **own}.items()]


def _quoted(value: str) -> str:
    lines = value.splitlines()
    if len(lines) < 2:
        return shlex.quote(value)
    return f"\"$(printf '%s\\n' {shlex.join(lines)})\""


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
    submit = cluster_class(options.cluster).job_cls.submit_command
    if shutil.which(submit) is None:
        raise UsageError(f"{where}: there is no command {submit} on this machine")
    if options.cluster != SLURM:
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
    if options.cluster != SLURM or not numbers:
        return {}
    asked = ask("squeue", "-h", "-t", "PENDING", "-o", "%A %r", "-j", numbers)
    found = dict(line.split(" ", 1) for line in asked.stdout.splitlines())
    for job, reason in found.items():
        if reason.strip("()") in HOPELESS:
            raise UsageError(
                f"{described(options)}: job {job} would wait for ever ({reason})"
            )
    return found


def queued(ids: Sequence[str]) -> set[str]:
    """Return those of some jobs of SLURM that wait or run; all, if it does not say."""
    if not ids:
        return set()
    asked = ask("squeue", "-h", "-o", "%A", "-j", ",".join(ids))
    if asked.returncode and "invalid" not in asked.stderr.lower():
        return {*ids}
    return {*ids} & {*asked.stdout.split()}


UNWRITABLE = "JobLaunchFailure"
"""What SLURM says of a job whose node cannot write its log: it shares no folder."""

ANY_PORT = "127.0.0.1:0"
KEEP = 7 * 86400.0
"""Seconds for which logs stay of runs that could not remove them."""

END = 30.0
"""Seconds in which a cluster must end its jobs and itself."""

ASK = 10.0
"""Seconds between two questions to the batch system about jobs without a worker."""

CHECK = 1.0
"""Seconds between two questions why jobs wait, where there is no worker."""

STILLBORN = 3
"""So many jobs, for each there shall be, are submitted again that had no worker."""


class Jobs:
    """Jobs that are one worker each; those that end are replaced.

    They know each other by certificates that are made for this run alone.

    Parameters
    ----------
    options : EngineConfig
        Checked ones.
    n_jobs : int
        Jobs to have.
    security : Security
        Dask's; of its temporary ones.

    Attributes
    ----------
    cluster : Cluster
        Dask's, while the context lasts.
    """

    def __init__(self, options: EngineConfig, n_jobs: int, security: Any) -> None:
        self.options, self.n_jobs, self.security = options, n_jobs, security
        self._class = private(cluster_class(options.cluster))
        self._ids: set[str] = set()
        self._of: dict[str, str] = {}
        self._asked = self._checked = time.monotonic()
        self._stillborn = 0

    def __enter__(self) -> Self:
        """Start the scheduler in this process, and submit the jobs.

        Raises
        ------
        UsageError
            If the batch system refuses them.
        """
        self.logs = _log_folder()
        tls = "tls://"
        try:
            options = worker(self.options, self.logs, certificates(self.security))
            scheduler = told(self.options, "scheduler-options") or {}
            if not isinstance(scheduler, dict):
                key = f"jobqueue.{self.options.cluster}.scheduler-options"
                raise refused(key, scheduler, "keys with their values")
            job = self._class.job_cls(tls, name="worker", protocol=tls, **options)
            check_script(self.options, job.job_script())
        except Exception as error:
            shutil.rmtree(self.logs, ignore_errors=True)
            if isinstance(error, UsageError):
                raise
            where, why = described(self.options), said(str(error))
            raise UsageError(f"{where}: dask-jobqueue says: {why}") from None
        try:
            self.cluster = self._class(
                security=self.security,
                silence_logs=logging.CRITICAL,
                scheduler_options={
                    **{"dashboard": False, "dashboard_address": ANY_PORT},
                    **scheduler,
                },
                **options,
            )
        except RuntimeError as error:
            shutil.rmtree(self.logs, ignore_errors=True)
            where = f"runner.interface={self.options.interface or 'null'}"
            why = f"no scheduler can be started: {said(str(error))}"
            raise UsageError(f"{where}: {why}") from None
        self.cluster.scale(self.n_jobs)
        if self.options.adapt:
            self.cluster.adapt(minimum=self.n_jobs, maximum=self.n_jobs)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Cancel the jobs; their logs stay if an error may be explained by them."""
        # Where a job was not taken the cluster cannot end as it should; what it knows
        # of its jobs may be torn. Those that are known are cancelled all the same.
        with contextlib.suppress(Exception):
            self.note()
        with contextlib.suppress(Exception):
            self.cluster.close(timeout=END)
        if self._ids:
            cancel = shlex.split(self._class.job_cls.cancel_command)
            ask(*cancel, *self._ids)
        if not isinstance(error, UsageError):
            shutil.rmtree(self.logs, ignore_errors=True)

    def note(self) -> None:
        """Take down the ids of the jobs, and whose workers they are."""
        jobs = list(self.cluster.workers.items())
        ids = {name: one.job_id for name, one in jobs if one.job_id}
        self._ids.update(ids.values())
        for address, about in list(self.cluster.scheduler_info["workers"].items()):
            if job := ids.pop(about["name"], None):
                self._of[address] = job
        slurm = self.options.cluster == SLURM
        if slurm and self.options.adapt and time.monotonic() > self._asked + ASK:
            self._replace(ids)
            self._asked = time.monotonic()

    def _replace(self, absent: Mapping[Any, str]) -> None:
        """Submit jobs anew that ended before their worker came: Dask waits for them."""
        there = queued([*absent.values()])
        ended = [name for name, job in absent.items() if job not in there]
        self._stillborn += len(ended)
        # They may never come.
        if ended and self._stillborn <= STILLBORN * self.n_jobs:
            if UNWRITABLE in self._state(absent[ended[0]]):
                asked = self.cluster.new_spec["options"]
                asked["log_directory"] = tempfile.gettempdir()
            self.cluster.loop.add_callback(self.cluster.scale_down, ended)

    def _state(self, job: str) -> str:
        """Return what SLURM says of a job, as `FAILED, NonZeroExitCode`."""
        if self.options.cluster != SLURM:
            return ""
        shown = ask("scontrol", "-o", "show", "job", job).stdout
        words = dict(re.findall(r"(\w+)=(\S*)", shown))
        return ", ".join(words[key] for key in ("JobState", "Reason") if key in words)

    def log_of(self, address: str) -> str:
        """Return the last lines of the log of the job of a worker."""
        job = self._of.get(address)
        return f"job {job}:\n{log_of(self.logs, job)}" if job else ""

    def check(self) -> None:
        """Refuse to wait for jobs that will never start.

        Raises
        ------
        UsageError
            If the partition is why one waits.
        """
        if time.monotonic() > self._checked + CHECK:
            self._checked = time.monotonic()
            waits(self.options, self._ids)

    def turn(self) -> str:
        """Return what a job waits for in its queue; empty if none is known to wait."""
        for job, reason in waits(self.options, self._ids).items():
            return f"job {job} waits: {reason}"
        return ""

    def absence(self) -> str:
        """Return what the last job said or, if nothing, how it ended."""
        for job in sorted(self._ids, key=lambda one: (len(one), one), reverse=True):
            if lines := log_of(self.logs, job).splitlines():
                return f"job {job} said: {lines[-1]}"
            if state := self._state(job):
                return f"job {job}: {state}"
        return ""


def _log_folder() -> Path:
    """Return a new folder for logs, where nodes find it that share the user's home."""
    folder = cache_dir() / "jobs"
    make_private(folder)
    for old in _files(folder):
        with contextlib.suppress(OSError):
            if old.stat().st_mtime < time.time() - KEEP:
                shutil.rmtree(old)
    return Path(tempfile.mkdtemp(dir=folder))


def private(cluster: Any) -> Any:
    """Return a class of dask-jobqueue that writes no key where others may read it."""

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


def certificates(security: Any) -> dict[str, str]:
    """Return what a worker is known by, as variables of its environment."""
    tls = security.get_tls_config_for_role("worker")
    start = "DASK_DISTRIBUTED__COMM__"
    return {
        f"{start}REQUIRE_ENCRYPTION": "True",
        f"{start}TLS__CA_FILE": tls["ca_file"],
        f"{start}TLS__WORKER__CERT": tls["cert"],
        f"{start}TLS__WORKER__KEY": tls["key"],
    }


def log_of(folder: Path, job: str) -> str:
    """Return the last lines of a job's logs, which batch systems name by its number."""
    number = re.compile(rf"(?<!\d){re.escape(job.partition('.')[0])}(?!\d)")
    lines: list[str] = []
    for path in _files(folder):
        if number.search(path.name):
            lines += last_lines(path)
    return "\n".join(lines[-LAST_LINES:])


def _files(folder: Path) -> Iterable[Path]:
    """Return the files of a folder; to list it makes a network file system look."""
    with contextlib.suppress(OSError):
        return sorted(folder.iterdir())
    return ()
