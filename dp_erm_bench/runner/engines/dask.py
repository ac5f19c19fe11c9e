"""Dask's own client: to workers of this machine, or of a scheduler at an address.

All that imports Dask is here and, for jobs, in `cluster`. joblib's backend of that name
is not used: it waits for ever once a worker was killed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
import warnings
from collections.abc import Callable
from typing import Any, Self

import dask
from distributed import Client, KilledWorker, LocalCluster, Security, get_worker, rpc
from distributed import Future as DaskFuture
from distributed.versions import VersionMismatchWarning

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import EngineConfig
from dp_erm_bench.runner.engines.base import GONE, Ending, SchedulerLost
from dp_erm_bench.runner.engines.cluster import (
    Jobs,
    LocalWorkers,
    missing,
    signals_deferred,
    silence,
)

SETTINGS = {
    # A task whose worker is lost comes back to the ledger, which knows what to do.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    # Trials run in a child of the worker, which answers as long as its machine does.
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.worker.daemon": False,
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.large-graph-warning-threshold": "1TB",
}
BRIEF = 5.0
"""Seconds in which a scheduler must take a connection."""

CALL = "__import__('pkgutil').resolve_name(name)(argument)"
"""A function that is found by name where it is called.

A worker that cannot import what it is sent ends, and a scheduler would need it, too.
"""

Future = DaskFuture[Any]


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
        self.workers: Jobs | LocalWorkers | None = None
        self._stack = contextlib.ExitStack()
        self._brief = min(BRIEF, options.patience)
        # Typed by itself in part only.
        self._client: Any = None

    def __enter__(self) -> Self:
        """Start the cluster, or reach the scheduler; a UsageError if none answers."""
        self._stack.push(silence())
        wait = {"distributed.comm.timeouts.connect": self._brief}
        self._stack.enter_context(dask.config.set(SETTINGS | wait))
        try:
            self._start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        """End what was started here; a scheduler at an address stays."""
        self._stack.__exit__(*error)

    def _start(self) -> None:
        self._stack.callback(self._hang_up)
        if self.options.address:
            self._connect(self.options.address)
            return
        made: Jobs | LocalWorkers = LocalWorkers(self.n_jobs, LocalCluster)
        if self.options.cluster != "local":
            made = Jobs(self.options, self.n_jobs or 1, _certificates())
        with signals_deferred():
            self._stack.enter_context(made)
            self.workers = made
            self._client = _client_of(made.cluster)
            self._stack.callback(self._hang_up)

    def _connect(self, address: str) -> None:
        until = time.monotonic() + self.options.patience
        while True:
            try:
                # A client would wait for ever for one that hangs.
                asyncio.run(_answered(address, self._brief))
                with signals_deferred():
                    self._client = _client_of(address)
                return
            except (OSError, TimeoutError):
                if time.monotonic() > until:
                    raise UsageError(
                        f"runner.address={address}: no scheduler answered for "
                        f"{self.options.patience:g} s; what is recorded stays"
                    ) from None
                time.sleep(min(1.0, self.options.patience))

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close(timeout=BRIEF)

    def renew(self) -> None:
        """Reach a lost scheduler again; a UsageError if it does not come back."""
        self._hang_up()
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
            wait = self.options.patience
            ask = self._client.scheduler.ncores
            found = dict(self._client.sync(ask, workers=None, callback_timeout=wait))
        except Exception as error:
            raise SchedulerLost(str(error)) from error
        if self.workers:
            self.workers.note()
            if not found:
                self.workers.check()
        return found

    def submit(
        self,
        address: str,
        key: str,
        call: tuple[Callable[[bytes], bytes], bytes],
        tell: Callable[[Ending], None],
    ) -> Future:
        """Return what stands for a call, named by a key, on one worker and no other.

        The function is that of this name in the worker's own package.

        `tell` is called with its `Ending` in another thread; never, if the worker is
        lost and the scheduler waits for its return.

        Raises
        ------
        SchedulerLost
            If nothing can be sent.
        """
        function, argument = call
        name = f"{function.__module__}:{function.__qualname__}"
        given = {"name": name, "argument": argument}
        how = {"key": key, "workers": [address], "pure": False, "retries": 0}
        try:
            future: Future = self._client.submit(eval, CALL, given, **how)
            self._client.loop.add_callback(_followed, future, tell)
        except Exception as error:
            raise SchedulerLost(str(error)) from error
        return future

    def log_of(self, address: str) -> str:
        """Return the last lines of the log of a worker; empty if it had none here."""
        return self.workers.log_of(address) if self.workers else ""

    def turn(self) -> str:
        """Return what workers wait for in the queue of a batch system, if they do."""
        return self.workers.turn() if isinstance(self.workers, Jobs) else ""

    def absence(self) -> str:
        """Return why there may be no worker, as far as a batch system knows."""
        return self.workers.absence() if self.workers else ""


def _client_of(scheduler: Any) -> Any:
    """Return a client, without Dask's table of versions: who differs is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)
        return Client(scheduler, set_as_default=False)


async def _answered(address: str, seconds: float) -> None:
    """Ask a scheduler who it is."""
    known = Security().get_connection_args("client")
    async with rpc(address, timeout=seconds, connection_args=known) as scheduler:
        await asyncio.wait_for(scheduler.identity(), seconds)


async def _followed(future: Future, tell: Callable[[Ending], None]) -> None:
    """Wait for a call and bring what it returned: the loop's thread alone waits."""
    try:
        ending = Ending(await future)
    except (asyncio.CancelledError, concurrent.futures.CancelledError):
        ending = Ending(problem="the scheduler was lost", cancelled=True)
    except KilledWorker:
        ending = GONE
    except Exception as error:
        ending = Ending(problem=f"{type(error).__name__}: {error}")
    tell(ending)


def wish() -> Callable[[], bool]:
    """Return what tells whether the call that runs here is wanted: by its client."""
    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state == "executing"

    return wanted


def _certificates() -> Any:
    """Return certificates and keys for this run alone."""
    try:
        return Security.temporary()
    except ImportError as error:
        raise missing(error) from None
