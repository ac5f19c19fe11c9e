"""What the runner asks of an engine: whatever carries tasks to their hosts."""

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
"""Backends of joblib that wait for ever once a worker was killed.

Their classes, and what to use.
"""

ACTIVE = "active"


class Engine(contextlib.AbstractContextManager["Engine"], Protocol):
    """Carries the tasks of a ledger to hosts, and their answers back.

    It is entered once for all rounds of a run. Leaving it ends all that it started.
    """

    def __enter__(self) -> Self:
        """Start what hosts the tasks."""

    @property
    def slots(self) -> int:
        """Return the number of tasks that may be at work now."""

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | HostExit]]:
        """Yield the number of each task and its answer, until none can be handed out.

        In place of an answer comes what is known of a host that was lost with the task.
        What is handed back meanwhile may wait for the next call.
        """


def believe_answer(value: object, number: int, ledger: Ledger) -> Answer | HostExit:
    """Return the answer on a task that a host has sent.

    If it is none, the task counts as lost with its host.
    """
    try:
        return check_answer(value, ledger.batches(number))
    except ValueError as error:
        return HostExit("a host", f"its answer could not be read: {error}")


def hanging_backend_error(setting: str, backend: str) -> UsageError:
    """Return the refusal of a backend of joblib that waits for ever."""
    return UsageError(
        f"{setting}: joblib waits for ever there once a worker was killed; "
        f"use {HANG[backend][1]}"
    )


@contextlib.contextmanager
def explain_missing_dask(where: str) -> Iterator[None]:
    """Have what fails when Dask is imported be one sentence.

    Parameters
    ----------
    where : str
        The keys that ask for Dask.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{where}: {error.name}: not installed; pip install 'dp_erm_bench[dask]'"
        ) from None
    except Exception as error:  # another version, or a yaml of Dask's that is none
        why = " ".join(str(error).split())
        raise UsageError(f"{where}: Dask cannot be imported: {why}") from None
