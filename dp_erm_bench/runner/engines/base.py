"""The interface of engines, which send tasks to hosts and return the answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol, Self

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.ledger import Answer, HostExit, Ledger, check_answer

HANG = {
    "dask": ("DaskDistributedBackend", "runner=dask, which uses Dask's own client"),
    "multiprocessing": ("MultiprocessingBackend", "loky or threading"),
}
"""Joblib backends that wait forever after a worker was killed.

Each name maps to the class name of the backend, and to an alternative.
"""

ACTIVE = "active"


class Engine(contextlib.AbstractContextManager["Engine"], Protocol):
    """Sends the tasks of a ledger to hosts, and returns the answers of the hosts.

    An engine is entered once for all rounds of a run. On exit it ends everything that
    it has started.
    """

    def __enter__(self) -> Self:
        """Start the hosts of the tasks."""

    @property
    def slots(self) -> int:
        """Return the number of tasks that may be at work at once."""

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | HostExit]]:
        """Yield the number and answer of each task, until no task can be handed out.

        If a host was lost with its task, the answer is replaced by information on the
        host. Batches that come back in the meantime may wait for the next call.
        """


def believe_answer(value: object, number: int, ledger: Ledger) -> Answer | HostExit:
    """Return a host's answer to a task after checking it.

    If it is not a valid answer, the task counts as lost with its host.

    Parameters
    ----------
    value : object
        The object that the host sent.
    number : int
        Number of the task.
    ledger : Ledger
        The ledger in which the task is at work.
    """
    try:
        return check_answer(value, ledger.batches(number))
    except ValueError as error:
        return HostExit("a host", f"its answer could not be read: {error}")


def hanging_backend_error(setting: str, backend: str) -> UsageError:
    """Return the error for a joblib backend that waits for ever after a kill."""
    return UsageError(
        f"{setting}: joblib waits for ever there once a worker was killed; "
        f"use {HANG[backend][1]}"
    )


@contextlib.contextmanager
def explain_missing_dask(where: str) -> Iterator[None]:
    """Turn any error in importing Dask into a UsageError of one sentence.

    Parameters
    ----------
    where : str
        The configuration key and value that need Dask.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{where}: {error.name}: not installed; pip install 'dp_erm_bench[dask]'"
        ) from None
    except Exception as error:  # another version, or an invalid yaml file of Dask
        why = " ".join(str(error).split())
        raise UsageError(f"{where}: Dask cannot be imported: {why}") from None
