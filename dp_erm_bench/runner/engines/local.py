"""A Dask cluster of this machine: its workers, their logs, what is told of them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Self

from dp_erm_bench.paths import scratch
from dp_erm_bench.runner.process import interrupts_held

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
