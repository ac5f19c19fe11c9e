"""What is still to run, and which trial is to blame, whatever carries the tasks."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dp_erm_bench.errors import UsageError, printable
from dp_erm_bench.results.store import Segment, failed
from dp_erm_bench.runner.answers import Answer, Death
from dp_erm_bench.runner.losses import LastWords, Losses
from dp_erm_bench.runner.worker import TASK_SECONDS, Batch, Job, Outcome

GROWTH = 4
STILLBORN = 5
"""So many workers in a row that end before their first batch end the run."""


class Task(NamedTuple):
    """Batches of one owner that a host runs in one go.

    `alone`: no other task was at work when this one was handed out, and none is until
    it comes back. `probe`: its only batch was lost with a host before. `since`: when
    it was handed out, by the ledger's clock.
    """

    batches: list[Batch]
    since: float
    alone: bool = False
    probe: bool = False


class Ledger:
    """The batches of a run: waiting, at work, lost with a host, suspect.

    A task grows until it takes `TASK_SECONDS`. Of a task that was handed out the ledger
    hears either the answer of its host, which outlives the worker and knows what that
    had begun and how it ended, or that the host was lost too.

    What a dead worker had recorded counts, what it had not begun waits again, and the
    batch that it was at is suspect: its trials run again one by one. A trial that is
    ended by its time limit is a `timeout`. Any other death may be none of its doing
    (the kernel ends a process when memory is short), so that it is `killed` only if its
    worker dies again while no other is at work.

    A host may be lost by nobody's fault: jobs are preempted, machines fail. What it
    was at runs again, each batch as a task of its own, on another machine where there
    is one. A batch that is to blame for that (`losses`) is run trial by trial, and a
    trial that is to blame is `killed`. It may be asked by several threads.

    Parameters
    ----------
    job : Job
        What all batches have in common.
    slots : int
        Tasks that may be at work at once; engines change it as workers come and go.

    Attributes
    ----------
    losses : Losses
        An engine takes down there with which host it lost a task, before it says so.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(self, job: Job, slots: int = 1) -> None:
        self.job, self.slots = job, slots
        self._waiting: deque[Batch] = deque()
        self._doubtful: deque[Batch] = deque()
        self._lost: deque[Batch] = deque()
        self._at_work: dict[int, Task] = {}
        self.losses, self.clock = Losses(), time.monotonic
        self._number, self._size, self._stillborn = 0, 1, 0
        self._segment = Segment(Path(job.folder), job.run)
        self._lock = threading.RLock()

    def add(self, batches: Iterable[Batch]) -> None:
        """Take batches to run: those of our own solvers first.

        A worker that has run a solver of the user's runs no other.
        """
        with self._lock:
            new = sorted(batches, key=_owner)
            self._waiting.extend(new)
            self.losses.stakes += len(new)

    def __len__(self) -> int:
        """Return the number of batches without an end; those at work count one."""
        return sum(map(len, (self._waiting, self._doubtful, self._lost, self._at_work)))

    def tasks(self) -> Iterator[int]:
        """Yield the numbers of tasks to hand out now, as long as there are any."""
        yield from iter(self.take, None)

    def take(self) -> int | None:
        """Return the number of a task to hand out, None if there is none now."""
        with self._lock:
            now = self.clock()
            if self._waiting:
                task = Task(self._grown(), now)
            elif self._lost and not (self.losses.joint and self._at_work):
                task = Task([self._lost.popleft()], now, probe=True)
            elif self._doubtful and not self._at_work:
                task = Task([self._doubtful.popleft()], now, alone=True)
            else:
                return None
            self._number += 1
            self._at_work[self._number] = task
            return self._number

    def at_work(self) -> list[int]:
        """Return the numbers of the tasks that were handed out and are not settled."""
        return list(self._at_work)

    def batches(self, number: int) -> list[Batch]:
        """Return the batches of a task that is at work."""
        return self._at_work[number].batches

    def shunned(self, number: int) -> set[str]:
        """Return the machines that a task had better not run on again."""
        first, *others = self.batches(number)
        return set() if others else {*self.losses.hosts(first)}

    def _grown(self) -> list[Batch]:
        """Return as many batches as may fill a task, leaving work for the others."""
        share = math.ceil(len(self._waiting) / (2 * max(self.slots, 1)))
        task = [self._waiting.popleft()]
        while self._waiting and len(task) < min(self._size, share):
            if _owner(self._waiting[0]) != _owner(task[0]):
                break
            task.append(self._waiting.popleft())
        return task

    def settle(self, number: int, answer: Answer | None) -> list[Outcome]:
        """Return the outcomes of a task that is over; see to the rest of it.

        Parameters
        ----------
        number : int
            The task's.
        answer : Answer or None
            Its host's; None if the host was lost with it.

        Raises
        ------
        UsageError
            If nothing can be recorded, no worker can be started, or all hosts are lost.
        """
        with self._lock:
            task = self._at_work.pop(number)
            seconds = self.clock() - task.since
            if answer is None:
                return self._bereft(task, self.losses.last_words(number), seconds)
            self.losses.answered(task.batches, task.probe, seconds)
            if answer.lines:
                self._segment.copy(answer.lines)
            done = {outcome.key for outcome in answer.outcomes}
            outcomes = answer.outcomes
            if answer.death:
                outcomes = outcomes + self._mourned(task, done, answer.death)
            else:
                self._stillborn = 0
                left = [one for one in task.batches if one[-1].key not in done]
                self._waiting.extendleft(reversed(left))
                run = len(task.batches) - len(left)
                fitting = run * TASK_SECONDS / max(answer.seconds, 1e-9)
                self._size = max(1, int(min(GROWTH * run, fitting)))
            if answer.problem:
                raise UsageError(answer.problem)
            return outcomes

    def _mourned(self, task: Task, done: set[str], death: Death) -> list[Outcome]:
        """See to what a dead worker did not record; return whom it accuses."""
        accused: list[Outcome] = []
        for batch in reversed(task.batches):
            left = tuple(trial for trial in batch if trial.key not in done)
            if left and left[0].key in death.begun:
                accused += self._suspected(left, task, death)
            elif left:
                self._waiting.appendleft(batch)
        self._stillborn = 0 if death.begun else self._stillborn + 1
        if self._stillborn == STILLBORN:
            raise UsageError(
                f"runner.n_jobs={self.slots}: {STILLBORN} workers in a row ended "
                f"({death.ending}) before they began a trial; try fewer"
            )
        return accused

    def _suspected(self, batch: Batch, task: Task, death: Death) -> list[Outcome]:
        """Accuse the only trial of a batch if that is just, else have it run again."""
        limit = self.job.limit
        timeout = limit is not None and death.code == -signal.SIGALRM
        if len(batch) > 1:
            self._waiting.extendleft((trial,) for trial in reversed(batch))
            return []
        seconds = max(time.time() - death.begun[batch[0].key], 0.0)
        if timeout or death.overdue:
            reason = f"time_limit={limit:g}: it took longer"
            return [self._accused(batch, "timeout", reason, seconds)]
        if not task.alone:
            self._doubtful.append(batch)
            return []
        reason = f"its worker died again, alone at work: {death.ending}"
        return [self._accused(batch, "killed", reason, seconds)]

    def _accused(
        self, batch: Batch, status: str, reason: str, seconds: float = 0.0
    ) -> Outcome:
        """Record what is held against the only trial of a batch."""
        record = failed(batch[0].key, status, printable(reason))
        self._segment.append([record], seconds)
        return Outcome.of(record)

    def put_back(self, number: int) -> None:
        """Have a task wait again that no host was lost with."""
        with self._lock:
            self._waiting.extendleft(reversed(self._at_work.pop(number).batches))

    def _bereft(self, task: Task, last: LastWords, seconds: float) -> list[Outcome]:
        """See to a task that was lost with its host; return whom that accuses."""
        self.losses.bereft(task.probe, self.slots, last, seconds)
        if len(task.batches) > 1 or (last.joint and not task.probe):
            self._lost.extend(task.batches)
            return []
        (batch,) = task.batches
        times = self.losses.blamed(batch, last.host, seconds)
        if not times:
            # At once again: of many suspects a few are cleared at a time.
            self._lost.appendleft(batch)
        elif len(batch) > 1:
            self.losses.stakes += len(batch)
            self._lost.extendleft((trial,) for trial in reversed(batch))
        else:
            reason = f"lost with its host {times} times, the last {last.host}\n"
            return [self._accused(batch, "killed", f"{reason}{last.log}".rstrip())]
        return []

    def close(self) -> None:
        """Close the segment of the records that were written here."""
        self._segment.close()


def _owner(batch: Batch) -> str:
    return batch[0].owner
