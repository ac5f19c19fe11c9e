"""Batches, and worker processes that may die at one without the sweep."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.trials import Kind, Trial
from dp_erm_bench.results.segment import Segment, Traces, failed, traces_of
from dp_erm_bench.runner.process import PATIENCE, Worker, awaited
from dp_erm_bench.runner.worker import TASK_SECONDS, Batch, Job, Outcome, Report

GROWTH = 4
STILLBORN = 5
"""So many workers in a row that end before their first batch end the run."""

LEAST = 2
"""Smaller batches are not made for balance: their kernels would be slower."""


def batches_of(planned: Iterable[Trial], most: int, aim: float) -> list[Batch]:
    """Return batches of trials that may share one, the longest work first.

    The batches depend on the trials only, never on the number of workers, so that
    any number of workers computes the same bits.

    Parameters
    ----------
    planned : iterable of Trial
        Trials without repeated keys.
    most : int
        Most trials in a batch.
    aim : float
        Work of one batch, in the unit of `Trial.work`.
    """
    kinds: defaultdict[Kind, list[Trial]] = defaultdict(list)
    for one in planned:
        kinds[one.kind].append(one)
    batches: list[Batch] = []
    for members in kinds.values():
        # Parts of nearly equal length.
        count = _count(members[0], len(members), most, aim)
        cuts = [len(members) * i // count for i in range(count + 1)]
        batches += [tuple(members[a:b]) for a, b in pairwise(cuts)]
    return sorted(batches, key=lambda batch: -batch[0].work * len(batch))


def batch_size(one: Trial, members: int, most: int, aim: float) -> int:
    """Return the most trials in a batch of `members` trials of the kind of one."""
    return math.ceil(members / _count(one, members, most, aim))


def _count(one: Trial, members: int, most: int, aim: float) -> int:
    """Return the number of batches of some trials of a kind."""
    if not one.setting.batch_key.batchable:
        return members
    size = most if one.work <= 0 else int(min(aim / one.work, most))
    return math.ceil(members / max(size, min(LEAST, most)))


class Pool:
    """Single-threaded workers; each runs a task, a list of batches, at a time.

    One worker is a process as well, so that one and several compute the same bits
    and a crash never reaches the parent. When a worker dies the others go on. What
    it had recorded counts, what it had not begun is handed out again, and the batch
    that it was at is suspect: its trials run again one by one. A trial that is ended
    by its time limit is a `timeout`. Any other death may be none of its doing (the
    kernel ends a process when memory is short), so that it is `killed` only if its
    worker dies again while no other is at work.

    Parameters
    ----------
    n_jobs : int
        Worker processes.
    job : Job
        What the workers must know.
    early : Worker, optional
        One that was started already.
    """

    def __init__(self, n_jobs: int, job: Job, early: Worker | None = None) -> None:
        self.n_jobs, self.job = n_jobs, job
        self._waiting: deque[Batch] = deque()
        self._doubtful: deque[Batch] = deque()
        self._workers = [early] if early else []
        self._size, self._stillborn = 1, 0
        self._segment = Segment(Path(job.folder), job.run)
        self._on_sigterm: Any = None

    def __enter__(self) -> Pool:
        """Have SIGTERM end the run as Ctrl-C does; workers start when needed."""
        if threading.current_thread() is threading.main_thread():
            self._on_sigterm = signal.signal(signal.SIGTERM, _terminated)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End the workers, at once after an exception."""
        for one in self._workers:
            one.pipe.close()
        for one in self._workers:
            one.end(0.0 if error else PATIENCE)
        self._segment.close()
        if self._on_sigterm is not None:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self, batches: Iterable[Batch]) -> Iterator[list[Outcome]]:
        """Yield the outcomes of batches as they come in, those of a task together.

        Raises
        ------
        UsageError
            If the results folder cannot be written, or no worker can be started.
        """
        # Ours first: a worker that has run a solver of the user's runs no other.
        self._waiting.extend(sorted(batches, key=_owner))
        while self._waiting or self._doubtful or self._busy():
            self._hand_out()
            for one in awaited(self._busy()):
                report = one.report
                outcomes = self._settled(one, report) if report else self._mourned(one)
                if outcomes:
                    yield outcomes
                if report and report.problem:
                    raise UsageError(report.problem)

    def _busy(self) -> list[Worker]:
        return [one for one in self._workers if one.task]

    def _hand_out(self) -> None:
        while self._waiting and (one := self._idle(_owner(self._waiting[0]))):
            one.give(self._next_task(), self.job)
        if self._doubtful and not self._busy():
            batch = self._doubtful.popleft()
            if one := self._idle(_owner(batch)):
                one.give([batch], self.job, alone=True)

    def _idle(self, owner: str) -> Worker | None:
        """Return a worker that may run what an owner's solver asks, None if none may.

        It has run nothing but that solver and ours; another is replaced.
        """
        idle = [one for one in self._workers if not one.task]
        suited = [one for one in idle if one.owner in ("", owner)]
        if suited:
            return max(suited, key=lambda one: one.owner == owner)
        if len(self._workers) == self.n_jobs:
            if not idle:
                return None
            self._let_go(idle[0])
        self._workers.append(Worker())
        return self._workers[-1]

    def _let_go(self, one: Worker) -> int:
        """Return the exit code of a worker that gets no other task."""
        self._workers.remove(one)
        return one.end()

    def _next_task(self) -> list[Batch]:
        """Return as many batches as may fill a task, leaving work for the others."""
        share = math.ceil(len(self._waiting) / (2 * self.n_jobs))
        task = [self._waiting.popleft()]
        while self._waiting and len(task) < min(self._size, share):
            if _owner(self._waiting[0]) != _owner(task[0]):
                break
            task.append(self._waiting.popleft())
        return task

    def _settled(self, one: Worker, report: Report) -> list[Outcome]:
        """Take a worker's task from it and return the outcomes."""
        self._waiting.extendleft(reversed(one.task[report.batches :]))
        one.task = ()
        self._stillborn = 0
        if report.full:
            self._let_go(one)
        fitting = report.batches * TASK_SECONDS / max(report.seconds, 1e-9)
        self._size = max(1, int(min(GROWTH * report.batches, fitting)))
        return report.outcomes

    def _mourned(self, one: Worker) -> list[Outcome]:
        """Return what a dead worker recorded; see to the rest of its task."""
        code = self._let_go(one)
        traces = traces_of(Path(self.job.folder), self.job.run, one.pid)
        outcomes = []
        for batch in reversed(one.task):
            left = tuple(trial for trial in batch if trial.key not in traces.records)
            if left and left[0].key in traces.begun:
                outcomes += self._suspected(left, code, one, traces)
            elif left:
                self._waiting.appendleft(batch)
            done = (trial.key for trial in batch if trial.key in traces.records)
            outcomes += [Outcome.of(traces.records[key]) for key in done]
        self._stillborn = 0 if traces.begun else self._stillborn + 1
        if self._stillborn == STILLBORN:
            raise UsageError(
                f"runner.n_jobs={self.n_jobs}: {STILLBORN} workers in a row ended "
                f"({_ending(code)}) before they began a trial; try fewer"
            )
        return outcomes

    def _suspected(
        self, batch: Batch, code: int, one: Worker, traces: Traces
    ) -> list[Outcome]:
        """Accuse the only trial of a batch if that is just, else have it run again."""
        limit = self.job.limit
        timeout = one.overdue or (limit is not None and code == -signal.SIGALRM)
        if len(batch) > 1:
            self._waiting.extendleft((trial,) for trial in reversed(batch))
            return []
        if not timeout and not one.alone:
            self._doubtful.append(batch)
            return []
        said = ("killed", f"its worker died again, alone at work: {_ending(code)}")
        if timeout:
            said = ("timeout", f"time_limit={limit:g}: it took longer")
        key = batch[0].key
        record = failed(key, *said)
        self._segment.append([record], max(time.time() - traces.begun[key], 0.0))
        return [Outcome.of(record)]


def _owner(batch: Batch) -> str:
    return batch[0].owner


def _ending(code: int) -> str:
    names = {-number: number.name for number in signal.Signals}
    return names.get(code, f"exit code {code}")


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
