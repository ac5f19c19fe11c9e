"""The engine with joblib: tasks go to threads of this process or to a backend."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import joblib
from joblib import parallel
from joblib.parallel import ParallelBackendBase

from dp_erm_bench.runner.engines.base import (
    ACTIVE,
    HANG,
    believe_answer,
    hanging_backend_error,
)
from dp_erm_bench.runner.host import (
    PATIENCE,
    Worker,
    children,
    run_in_child,
    run_on_host,
)
from dp_erm_bench.runner.ledger import Answer, HostExit, Ledger
from dp_erm_bench.runner.worker import Batch, Job


def is_active() -> bool:
    """Return whether an active `joblib.parallel_config` names a backend."""
    config = getattr(parallel._backend, "config", {})
    return isinstance(config.get("backend"), ParallelBackendBase)


class JoblibEngine:
    """The engine with joblib: each thread or process of a backend hosts one worker.

    Parameters
    ----------
    n_jobs : int or None
        Number of hosts; None for as many as the active `joblib.parallel_config` says.
    backend : {"threading", "loky", "active"}
        `active` is the backend of `joblib.parallel_config`. If hosts are threads of
        this process, their workers write into the results folder themselves. Otherwise
        the answers contain the records.
    early : Worker, optional
        A worker that was started already, for the first task of a thread.

    Raises
    ------
    UsageError
        If the active backend waits for ever once a worker was killed.
    """

    def __init__(
        self,
        n_jobs: int | None,
        backend: str = "threading",
        early: Worker | None = None,
    ) -> None:
        self._n_jobs, self._early = n_jobs, early
        # The ledger sizes the tasks; a task is dispatched when a host is free.
        self._options: dict[str, Any] = {"batch_size": 1, "pre_dispatch": "n_jobs"}
        self._options |= {"backend": None if backend == ACTIVE else backend}
        made = self._make_pool()._backend
        for name, (hangs, _) in HANG.items():
            if hangs in {one.__name__ for one in type(made).__mro__}:
                raise hanging_backend_error(
                    f"joblib.parallel_config(backend={name!r})", name
                )
        self._local = getattr(made, "uses_threads", False)
        self._whole = not made.supports_return_generator
        if not self._whole:
            self._options["return_as"] = "generator_unordered"
        self._parallel = self._make_pool()

    def _make_pool(self) -> Any:
        return joblib.Parallel(self._n_jobs, **self._options)

    def __enter__(self) -> Self:
        """Keep the hosts for all rounds, since a worker ends with its thread."""
        children.open(self._early)
        self._parallel.__enter__()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End the workers, at once after an exception, and then their hosts."""
        children.end(0.0 if error else PATIENCE)
        # Hosts may raise as their workers are gone; only the first error matters.
        quiet = (OSError,) if error else ()
        with _no_warnings(), contextlib.suppress(*quiet):
            self._parallel.__exit__(kind, error, trace)

    @property
    def slots(self) -> int:
        """Return the number of hosts."""
        return int(self._parallel._effective_n_jobs())

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | HostExit]]:
        """Yield the number and the answer of each task.

        If the backend breaks, all tasks at work are lost.
        """
        results = self._parallel(self._calls_of_round(ledger))
        try:
            if self._local:
                yield from ((answer.number, answer) for answer in results)
            else:
                yield from self._answers_of_hosts(results, ledger)
        finally:
            if not self._whole:
                with _no_warnings():
                    results.close()

    def _calls_of_round(self, ledger: Ledger) -> Iterator[Any]:
        """Yield the calls of the tasks of a round."""
        run = joblib.delayed(run_in_child if self._local else answer_of_process)
        # If a backend returns all results at once, a round is one task for each host.
        last = self.slots if self._whole else None
        for number in itertools.islice(ledger.tasks(), last):
            yield run(number, ledger.batches(number), ledger.job)

    def _answers_of_hosts(
        self, results: Iterable[tuple[int, Answer]], ledger: Ledger
    ) -> Iterator[tuple[int, Answer | HostExit]]:
        """Yield the answers of hosts that may die together with their tasks."""
        try:
            for number, data in results:
                yield number, believe_answer(data, number, ledger)
        except Exception as error:
            log = f"{type(error).__name__}: {error}"
        else:
            return
        self._renew_pool()
        for number in ledger.at_work():
            yield number, HostExit(platform.node(), log, joint=True)

    def _renew_pool(self) -> None:
        """Start new hosts, since a broken call of joblib may spoil the next ones."""
        with _no_warnings():
            with contextlib.suppress(Exception):
                self._parallel.__exit__(None, None, None)
            self._parallel = self._make_pool()
            self._parallel.__enter__()


def answer_of_process(
    number: int, task: Sequence[Batch], job: Job
) -> tuple[int, Answer]:
    """Run a task in a process of joblib; return the task's number and its answer.

    If the parent of this process has ended, the process ends, too.

    Parameters
    ----------
    number : int
        Number of the task.
    task : sequence of tuple of Trial
        Batches that all run the same solver of the user, or all run built-in solvers.
    job : Job
        Settings that all batches have in common.
    """
    parent = _parent_of(os.getpid())
    answer = run_on_host(number, task, job, lambda: os.getppid() == parent)
    if os.getppid() != parent:
        os._exit(1)
    return answer


@functools.cache
def _parent_of(pid: int) -> int:
    """Return the id of this process's parent, as it was at the first task."""
    return os.getppid()


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Suppress warnings about answers that nobody reads after the end of a run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
