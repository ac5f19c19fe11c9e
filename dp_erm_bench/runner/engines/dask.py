"""Dask's own client: to workers of this machine, or of a scheduler at an address.

All that imports Dask is here. joblib's backend of that name is not used: it waits for
ever once a worker was killed.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable
from typing import Any, Self

import dask
from distributed import Client, LocalCluster, Security
from distributed import Future as DaskFuture

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.frame import EngineConfig
from dp_erm_bench.runner.engines.cluster import Jobs

SETTINGS = {
    # A task whose worker is lost comes back to the ledger, which knows what to do.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.worker.daemon": False,
    "distributed.admin.low-level-log-length": 100,
    "distributed.scheduler.work-stealing": False,
}
LOOPBACK = "127.0.0.1"
BRIEF = 5.0
"""Seconds in which a scheduler must take a connection."""

Future = DaskFuture[Any]


class SchedulerLost(Exception):
    """The scheduler does not answer."""


class Connection:
    """A client of a scheduler, and the cluster that was started for it, if any.

    Parameters
    ----------
    options : EngineConfig
        Where the workers run.
    n_jobs : int or None
        Workers to start; None where a scheduler at an address has its own.
    """

    def __init__(self, options: EngineConfig, n_jobs: int | None) -> None:
        self.options, self.n_jobs = options, n_jobs
        self.jobs: Jobs | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start the cluster, or reach the scheduler at the address.

        Raises
        ------
        UsageError
            If nothing answers at the address within `options.patience`.
        """
        self._stack.enter_context(dask.config.set(SETTINGS))
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        """End what was started here; a scheduler at an address stays."""
        self._stack.close()

    def _start(self) -> None:
        if self.options.address:
            self._connect(self.options.address)
            return
        if self.options.cluster != "local":
            jobs = Jobs(self.options, self.n_jobs or 1, jobqueue(), _certificates())
            self.jobs = self._stack.enter_context(jobs)
            client = Client(self.jobs.cluster, set_as_default=False)
            self._client = self._stack.enter_context(client)
            return
        cluster = self._stack.enter_context(
            LocalCluster(
                n_workers=self.n_jobs,
                threads_per_worker=1,
                host=LOOPBACK,
                dashboard_address=f"{LOOPBACK}:0",
                silence_logs=logging.CRITICAL,
                # Its children, which hold what there is, have a limit of their own.
                memory_limit=0,
            )
        )
        self._client = self._stack.enter_context(Client(cluster, set_as_default=False))

    def _connect(self, address: str) -> None:
        until = time.monotonic() + self.options.patience
        while True:
            try:
                client = Client(address, timeout=BRIEF, set_as_default=False)
                break
            except (OSError, TimeoutError, ValueError) as error:
                if isinstance(error, ValueError) or time.monotonic() > until:
                    raise UsageError(
                        f"runner.address={address}: no scheduler answers "
                        f"({str(error).splitlines()[0]}); what is recorded stays"
                    ) from None
                time.sleep(min(1.0, self.options.patience))
        self._client = self._stack.enter_context(client)

    def renew(self) -> None:
        """Reach the scheduler again after it was lost.

        Raises
        ------
        UsageError
            If it does not come back.
        """
        with contextlib.suppress(Exception):
            self._client.close(timeout=BRIEF)
        if not self.options.address:
            raise UsageError("runner=dask: its scheduler ended; what is recorded stays")
        self._connect(self.options.address)

    def threads(self) -> dict[str, int]:
        """Return the number of threads of every worker, by its address.

        Raises
        ------
        SchedulerLost
            If the scheduler does not answer.
        """
        try:
            found = dict(self._client.ncores())
        except Exception as error:
            raise SchedulerLost(str(error)) from error
        if self.jobs:
            self.jobs.note()
            if not found:
                self.jobs.check()
        return found

    def log_of(self, address: str) -> str:
        """Return the last lines of the log of a worker's job; empty if it had none."""
        return self.jobs.log_of(address) if self.jobs else ""

    def absence(self) -> str:
        """Return why there may be no worker, as far as a batch system knows."""
        return self.jobs.absence() if self.jobs else ""

    def submit(
        self, address: str, key: str, function: Callable[..., Any], *arguments: Any
    ) -> Future:
        """Return what will bring the value of a call on one worker and no other."""
        future: Future = self._client.submit(
            function,
            *arguments,
            key=key,
            workers=[address],
            pure=False,
            retries=0,
        )
        return future


def jobqueue() -> Any:
    """Return the module dask-jobqueue, which leaves Ctrl-C as it is.

    Raises
    ------
    UsageError
        If it is not installed.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        import dask_jobqueue
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    finally:
        # It has Ctrl-C end the process with exit code 0.
        signal.signal(signal.SIGINT, before)
    return dask_jobqueue


def _certificates() -> Any:
    """Return certificates and keys for this run alone."""
    try:
        return Security.temporary()
    except ImportError as error:
        raise _missing(error) from None


def _missing(error: ImportError) -> UsageError:
    return UsageError(
        f"runner=dask with runner.cluster: {error.name or error}: not installed; "
        "pip install 'dp_erm_bench[dask]'"
    )
