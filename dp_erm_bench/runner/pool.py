"""Worker processes: they run batches and may die without taking the sweep along."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from types import TracebackType
from typing import Any

from dp_erm_bench.results.segment import Segment
from dp_erm_bench.results.store import Store
from dp_erm_bench.runner import worker
from dp_erm_bench.runner.trial import Trial
from dp_erm_bench.runner.worker import Outcome

Batch = tuple[Trial, ...]


class Pool:
    """A pool of single-threaded loky workers, made when the first batch comes.

    One worker is a process as well, so that one and several compute the same bits
    and a crash never reaches the parent.

    Parameters
    ----------
    n_jobs : int
        Worker processes.
    folder : Path
        The results folder that workers append to.
    execute : str
        Dotted name of the function that runs a batch.
    """

    def __init__(self, n_jobs: int, folder: Path, execute: str) -> None:
        self.n_jobs = n_jobs
        self.folder = folder
        self.execute = execute
        self._executor: Any = None
        self._segment = Segment(folder, "")

    def __enter__(self) -> Pool:
        """Return the pool; workers start with the first batch."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the workers, at once after an exception."""
        self._shut(kill=error is not None)
        self._segment.close()

    def run(self, batches: Sequence[Batch]) -> Iterator[list[Outcome]]:
        """Yield the outcomes of batches as they end.

        After the death of a worker the pool is made anew; the batches in flight
        that left no record run alone, halved until the culprit is found, which is
        recorded as `killed`.
        """
        waiting = list(reversed(batches))
        flying: dict[Future[list[Outcome]], Batch] = {}
        while waiting or flying:
            try:
                while waiting and len(flying) < 2 * self.n_jobs:
                    future = self._submit(waiting[-1])
                    flying[future] = waiting.pop()
                done, _ = wait(flying, return_when=FIRST_COMPLETED)
                for future in done:
                    outcomes = future.result()
                    del flying[future]
                    yield outcomes
            except _broken():
                self._shut(kill=True)
                suspects = list(flying.values())
                flying = {}
                yield from self._recovered(suspects)

    def _submit(self, batch: Batch) -> Future[list[Outcome]]:
        if self._executor is None:
            self._executor = _executor(self.n_jobs)
        task: Future[list[Outcome]] = self._executor.submit(
            worker.run_recorded, batch, str(self.folder), self.execute
        )
        return task

    def _recovered(self, suspects: Sequence[Batch]) -> Iterator[list[Outcome]]:
        store = Store(self.folder)
        for batch in suspects:
            if all(trial.key in store.index for trial in batch):
                records = [store.record(trial.key) for trial in batch]
                yield [worker.outcome_of(r) for r in records if r is not None]
            else:
                yield from self._isolated(batch)

    def _isolated(self, batch: Batch) -> Iterator[list[Outcome]]:
        alone = _executor(1)
        try:
            yield alone.submit(
                worker.run_recorded, batch, str(self.folder), self.execute
            ).result()
        except _broken() as error:
            if len(batch) == 1:
                yield [self._killed(batch[0], error)]
            else:
                half = len(batch) // 2
                yield from self._isolated(batch[:half])
                yield from self._isolated(batch[half:])
        finally:
            alone.shutdown(wait=True, kill_workers=True)

    def _killed(self, trial: Trial, error: Exception) -> Outcome:
        message = " ".join(str(error).split())
        record = worker.failed(trial, "killed", f"the worker died: {message}")
        self._segment.append([record])
        return worker.outcome_of(record)

    def _shut(self, kill: bool) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=kill)
            self._executor = None


def _executor(n_jobs: int) -> Any:
    from joblib.externals.loky import ProcessPoolExecutor

    # loky replaces a worker whose memory has grown: nothing is lost, no news.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    return ProcessPoolExecutor(
        max_workers=n_jobs,
        initializer=worker.start,
        initargs=(os.getpid(),),
        env=worker.ONE_THREAD,
    )


def _broken() -> type[Exception]:
    from joblib.externals.loky.process_executor import BrokenProcessPool

    return BrokenProcessPool  # type: ignore[no-any-return]
