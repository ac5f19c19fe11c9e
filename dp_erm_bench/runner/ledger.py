"""The ledger of a run: waiting batches, answers of hosts, and causes of losses.

A *batch* is a group of trials that are computed together, and a *task* is a group of
batches. A *host* gets tasks and runs each of them in a child process, its worker
(`runner.host`). A task is *at work* from the time it is handed out until its host has
answered or is *lost*, that is, has ended without an answer.
"""

from __future__ import annotations

import json
import math
import operator
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dp_erm_bench.errors import UsageError, printable_text
from dp_erm_bench.results import files
from dp_erm_bench.results.store import STATUSES, RecordWriter, failed_record
from dp_erm_bench.runner.worker import TASK_SECONDS, Batch, Job, Outcome, Report

LONGEST = 1000
"""Largest number of characters in the `problem` of an answer."""


class Death(NamedTuple):
    """How the child process of a host ended in the middle of a task.

    Attributes
    ----------
    code : int
        Exit code of the child; if a signal ended the child, minus the number of the
        signal.
    overdue : bool
        Whether the host killed the child because a trial exceeded its time limit.
    begun : dict of str to float
        The time at which the child began each trial, in seconds since 1970.
    """

    code: int
    overdue: bool
    begun: dict[str, float]

    @property
    def how_it_ended(self) -> str:
        """Return the name of the signal that ended the child, or its exit code."""
        names = {-number: number.name for number in signal.Signals}
        return names.get(self.code, f"exit code {self.code}")


class Answer(NamedTuple):
    """A host's answer to a task.

    Attributes
    ----------
    number : int
        Number of the task.
    outcomes : list of Outcome
        Outcomes of the trials that are recorded.
    seconds : float
        Seconds that the batches of these trials took.
    problem : str
        The reason why no more trials can be recorded; empty if there is none.
    death : Death or None
        How the child ended; None if it has not ended.
    lines : bytes
        Lines to write into the results folder: records of trials, and lines that say
        which trials were begun. Empty if the child has written these lines itself.
    """

    number: int
    outcomes: list[Outcome]
    seconds: float = 0.0
    problem: str = ""
    death: Death | None = None
    lines: bytes = b""


def check_answer(value: object, task: Sequence[Batch]) -> Answer:
    """Return an answer that another process sent, with the outcomes of its records.

    Raises
    ------
    ValueError
        If the value is not an answer to this task, or is an empty answer. No line may
        be damaged, belong to a trial of another task, or be the second record of a
        trial.
    """
    if not isinstance(value, Answer):
        raise ValueError("it is no answer")
    keys = {trial.key for batch in task for trial in batch}
    outcomes: dict[str, Outcome] = {}
    for line in value.lines.splitlines(keepends=True):
        content = (files.parse_object(line) if files.is_sealed(line) else None) or {}
        begun, key = content.get("begin"), str(content.get("key"))
        if isinstance(begun, list) and keys.issuperset(map(str, begun)):
            continue
        lists = isinstance(content.get("trajectory"), dict)
        known = key in keys and content.get("status") in STATUSES
        if not (known and lists) or key in outcomes:
            raise ValueError("a line of an answer is damaged, or of another task")
        outcomes[key] = Outcome.from_record(content)
    if not (outcomes or value.death or value.problem):
        raise ValueError("an answer says nothing")
    problem = printable_text(value.problem, LONGEST)
    return value._replace(outcomes=[*outcomes.values()], problem=problem)


def parse_report(text: bytes, task: Sequence[Batch]) -> Report | None:
    """Return the report in a line from a worker; None if the line is not a report.

    A solver may write into the pipe, too. So a report counts only if its outcomes are
    those of the first batches of the task.
    """
    try:
        outcomes, batches, seconds, problem, full = json.loads(text)
        found = [Outcome(*one) for one in outcomes]
        number, spent = operator.index(batches), float(seconds)
        report = Report(found, number, spent, str(problem), bool(full))
        due = [trial.key for batch in task[: report.batches] for trial in batch]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    whole = all(x.status in STATUSES and type(x.finals) is dict for x in found)
    known = due == [one.key for one in found] and 0.0 <= spent < math.inf
    return report if whole and known else None


LOSSES = 3
"""Number of lost hosts after which their common batch or trial is to blame."""

IN_A_ROW = 40
"""Number of hosts that may be lost in a row, in addition to `LOSSES` per slot.

If more are lost without any answer in between, the run ends.
"""


class HostExit(NamedTuple):
    """Information on a host that was lost with its task.

    Attributes
    ----------
    host : str
        Name of the machine on which the host ran.
    log : str
        The last lines of the host's log.
    joint : bool
        Whether all tasks at work were lost with this host, so that any of these tasks
        may be to blame.
    """

    host: str
    log: str = ""
    joint: bool = False


GROWTH = 4
STILLBORN = 5
"""If this many workers in a row end before their first batch, the run ends."""


class Task(NamedTuple):
    """Batches that a host runs in one go.

    All batches have the same owner: either they run the same solver of the user, or all
    of them run built-in solvers.

    If `alone`, no other task was at work when this task was handed out, and no other
    task is handed out until this task comes back.
    """

    batches: list[Batch]
    alone: bool = False


class Ledger:
    """The batches of a run: waiting, at work, lost with a host, or suspect.

    The number of batches in a task grows until a task takes `TASK_SECONDS`. For each
    task that was handed out, the ledger gets either an answer from its host, or a
    message that the host was lost. A host outlives its worker, and knows which trials
    the worker had begun and how the worker ended.

    If a worker dies, its records count, and the batches that it had not begun wait
    again. The batch that was running is suspect: its trials run again one by one. A
    trial that exceeds its time limit is a `timeout`. If a worker dies in another way,
    its trial may not be at fault (the kernel kills processes when memory is short). So
    a trial is `killed` only if its worker dies again while no other worker is at work.

    A host may be lost without anyone's fault, since jobs are preempted and machines
    fail. Its batches run again, each as a separate task. A batch whose host is lost
    `LOSSES` times runs trial by trial, and a trial whose host is lost as often is
    `killed`. If all tasks at work are lost together, each batch runs again alone, and
    only losses while it is alone count. Several threads may use a ledger.

    Parameters
    ----------
    job : Job
        Settings that all batches have in common.
    slots : int
        Number of tasks that may be at work at once; engines change this number as
        workers come and go.
    """

    def __init__(self, job: Job, slots: int = 1) -> None:
        self.job, self.slots = job, slots
        self._waiting: deque[Batch] = deque()
        self._doubtful: deque[Batch] = deque()
        self._lost: deque[Batch] = deque()
        self._at_work: dict[int, Task] = {}
        self._losses: Counter[str] = Counter()
        self._number, self._size, self._stillborn, self._lost_in_a_row = 0, 1, 0, 0
        self._writer = RecordWriter(Path(job.folder), job.run)
        self._lock = threading.RLock()

    def add(self, batches: Iterable[Batch]) -> None:
        """Add batches to run, with those of the package's own solvers first.

        A worker that has run a user's solver runs no other solver.
        """
        with self._lock:
            self._waiting.extend(sorted(batches, key=_owner_of))

    def __len__(self) -> int:
        """Return the number of waiting batches plus the number of tasks at work."""
        return sum(map(len, (self._waiting, self._doubtful, self._lost, self._at_work)))

    def tasks(self) -> Iterator[int]:
        """Yield the numbers of tasks to hand out now, as long as there are any."""
        yield from iter(self.take, None)

    def take(self) -> int | None:
        """Return the number of a task to hand out; None if there is none now."""
        with self._lock:
            if self._waiting:
                task = Task(self._grow_task())
            elif self._lost:
                task = Task([self._lost.popleft()])
            elif self._doubtful and not self._at_work:
                task = Task([self._doubtful.popleft()], alone=True)
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

    def _grow_task(self) -> list[Batch]:
        """Return the batches of the next task, and leave work for other workers."""
        share = math.ceil(len(self._waiting) / (2 * max(self.slots, 1)))
        task = [self._waiting.popleft()]
        while self._waiting and len(task) < min(self._size, share):
            if _owner_of(self._waiting[0]) != _owner_of(task[0]):
                break
            task.append(self._waiting.popleft())
        return task

    def settle(self, number: int, answer: Answer | HostExit) -> list[Outcome]:
        """Return the outcomes of a task that is over; queue its other trials again.

        Parameters
        ----------
        number : int
            Number of the task.
        answer : Answer or HostExit
            The answer of its host, or information on the host that was lost with it.

        Raises
        ------
        UsageError
            If nothing can be recorded, no worker can be started, or all hosts are lost.
        """
        with self._lock:
            task = self._at_work.pop(number)
            if isinstance(answer, HostExit):
                return self._on_host_lost(task, answer)
            self._lost_in_a_row = 0
            if answer.lines:
                self._writer.copy(answer.lines)
            done = {outcome.key for outcome in answer.outcomes}
            outcomes = answer.outcomes
            if answer.death:
                outcomes = outcomes + self.on_worker_death(task, done, answer.death)
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

    def on_worker_death(
        self, task: Task, done: set[str], death: Death
    ) -> list[Outcome]:
        """Queue the trials that a dead worker did not record; return trials to blame.

        Parameters
        ----------
        task : Task
            The task of the worker.
        done : set of str
            Keys of the trials that the worker recorded.
        death : Death
            How the worker ended.

        Raises
        ------
        UsageError
            If too many workers in a row have ended before their first batch.
        """
        accused: list[Outcome] = []
        for batch in reversed(task.batches):
            left = tuple(trial for trial in batch if trial.key not in done)
            if left and left[0].key in death.begun:
                accused += self._suspect_batch(left, task, death)
            elif left:
                self._waiting.appendleft(batch)
        self._stillborn = 0 if death.begun else self._stillborn + 1
        if self._stillborn == STILLBORN:
            raise UsageError(
                f"runner.n_jobs={self.slots}: {STILLBORN} workers in a row ended "
                f"({death.how_it_ended}) before they began a trial; try fewer"
            )
        return accused

    def _suspect_batch(self, batch: Batch, task: Task, death: Death) -> list[Outcome]:
        """Blame a batch's only trial if it is at fault; else queue the batch again."""
        limit = self.job.limit
        timeout = limit is not None and death.code == -signal.SIGALRM
        if len(batch) > 1:
            self._waiting.extendleft((trial,) for trial in reversed(batch))
            return []
        seconds = max(time.time() - death.begun[batch[0].key], 0.0)
        if timeout or death.overdue:
            reason = f"time_limit={limit:g}: it took longer"
            return [self._accuse_trial(batch, "timeout", reason, seconds)]
        if not task.alone:
            self._doubtful.append(batch)
            return []
        reason = (
            f"its worker died again with no other worker running: {death.how_it_ended}"
        )
        return [self._accuse_trial(batch, "killed", reason, seconds)]

    def _accuse_trial(
        self, batch: Batch, status: str, reason: str, seconds: float = 0.0
    ) -> Outcome:
        """Record the only trial of a batch as failed, and return its outcome."""
        record = failed_record(batch[0].key, status, printable_text(reason))
        self._writer.append([record], seconds)
        return Outcome.from_record(record)

    def put_back(self, number: int) -> None:
        """Queue a task again that has no valid answer although its host is not lost."""
        with self._lock:
            self._waiting.extendleft(reversed(self._at_work.pop(number).batches))

    def _on_host_lost(self, task: Task, end: HostExit) -> list[Outcome]:
        """Queue a task again that was lost with its host; return trials to blame."""
        self._lost_in_a_row += 1
        if self._lost_in_a_row > IN_A_ROW + LOSSES * self.slots:
            raise UsageError(
                f"{self._lost_in_a_row} hosts in a row were lost and none answered, "
                f"the last {end.host}; what is recorded stays"
            )
        again = self._doubtful if end.joint else self._lost
        if len(task.batches) > 1 or (end.joint and not task.alone):
            again.extend(task.batches)
            return []
        (batch,) = task.batches
        key = batch[0].key
        self._losses[key] += 1
        if self._losses[key] < LOSSES:
            # It runs again at once, so that few of many suspects are open at a time.
            again.appendleft(batch)
            return []
        # These losses are explained, and say nothing against the hosts.
        self._lost_in_a_row -= min(self._losses.pop(key), self._lost_in_a_row)
        if len(batch) > 1:
            again.extendleft((trial,) for trial in reversed(batch))
            return []
        reason = f"lost with its host {LOSSES} times, the last {end.host}\n{end.log}"
        return [self._accuse_trial(batch, "killed", reason.rstrip())]


def _owner_of(batch: Batch) -> str:
    return batch[0].owner
