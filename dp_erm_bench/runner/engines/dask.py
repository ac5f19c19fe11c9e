"""Dask's own client: to workers of this machine, or of a scheduler at an address.

All that imports Dask is here. joblib's backend of that name is not used: it waits for
ever once a worker was killed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Self

import dask
from distributed import Client, LocalCluster
from distributed import Future as DaskFuture

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.frame import EngineConfig

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
        cluster = self._stack.enter_context(
            LocalCluster(
                n_workers=self.n_jobs,
                threads_per_worker=1,
                host=LOOPBACK,
                dashboard_address=None,
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
            return dict(self._client.ncores())
        except Exception as error:
            raise SchedulerLost(str(error)) from error

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
