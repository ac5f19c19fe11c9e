"""What the runner asks of an engine: whatever carries tasks to their hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
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

    @property
    def cpus(self) -> Mapping[str, str]:
        """Return the kind of CPU of other machines that have worked, by their name."""

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | None]]:
        """Yield the number and the answer of each task, until none can be handed out.

        None: it was lost with its host, which is noted in `Ledger.exits`.
        What is handed back meanwhile may wait for the next call.
        """


def believed(value: object, number: int, ledger: Ledger) -> Answer | None:
    """Return the answer on a task that a host has sent; None if it is none.

    Then the task counts as lost with its host, and the ledger notes why.
    """
    try:
        return check_answer(value, ledger.batches(number))
    except ValueError as error:
        reason = f"its answer could not be read: {error}"
        ledger.exits[number] = HostExit("a host", reason)
        return None


def hanging(setting: str, backend: str) -> UsageError:
    """Return the refusal of a backend of joblib that waits for ever."""
    return UsageError(
        f"{setting}: joblib waits for ever there once a worker was killed; "
        f"use {HANG[backend][1]}"
    )


@contextlib.contextmanager
def dask_needed(where: str) -> Iterator[None]:
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
