"""What is still to run, what hosts answer, and which trial is to blame for a loss."""

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
"""Characters of what an answer says is wrong."""


class Death(NamedTuple):
    """How a child ended in the middle of a task.

    Attributes
    ----------
    code : int
        Its exit code; minus the number of the signal that ended it.
    overdue : bool
        Whether its host ended it, since it took longer than it may.
    begun : dict of str to float
        When it began each trial, in seconds since 1970.
    """

    code: int
    overdue: bool
    begun: dict[str, float]

    @property
    def how_it_ended(self) -> str:
        """Return the name of the signal that ended it, or its exit code."""
        names = {-number: number.name for number in signal.Signals}
        return names.get(self.code, f"exit code {self.code}")


class Answer(NamedTuple):
    """What a host says of a task.

    Attributes
    ----------
    number : int
        The task's.
    outcomes : list of Outcome
        Of the trials that are recorded.
    seconds : float
        What their batches took.
    problem : str
        Why nothing more can be recorded; empty if it can.
    death : Death or None
        How the child ended; None if it lives.
    lines : bytes
        Marks and records that belong into the results folder; empty where the child
        wrote them there itself.
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
        If it is no answer on this task: a line is damaged, of a trial that the task has
        not, or the second record of one; or if it says nothing.
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
    """Return the report of a worker on a task that a line holds; None if it is none.

    A solver may write into the pipe: a report's outcomes are those of the first batches
    of the task.
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
"""A batch, or a trial alone, is to blame once its host was lost so often."""

IN_A_ROW = 40
"""So many hosts, and `LOSSES` per slot, lost without any answer end the run."""


class HostExit(NamedTuple):
    """What is known of a host that was lost with its task.

    Attributes
    ----------
    host : str
        Its machine.
    log : str
        The end of its log.
    joint : bool
        Whether all tasks at work were lost with it, whoever is to blame.
    """

    host: str
    log: str = ""
    joint: bool = False


GROWTH = 4
STILLBORN = 5
"""So many workers in a row that end before their first batch end the run."""


class Task(NamedTuple):
    """Batches of one owner that a host runs in one go.

    `alone`: no other task was at work when this one was handed out, and none is until
    it comes back.
    """

    batches: list[Batch]
    alone: bool = False


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
    was at runs again, each batch as a task of its own. A batch whose host is lost
    `LOSSES` times runs trial by trial, and a trial whose host is lost so often is
    `killed`. Where all tasks at work are lost together, each batch runs again alone,
    and only such losses count. It may be asked by several threads.

    Parameters
    ----------
    job : Job
        What all batches have in common.
    slots : int
        Tasks that may be at work at once; engines change it as workers come and go.
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
        """Take batches to run: those of our own solvers first.

        A worker that has run a solver of the user's runs no other.
        """
        with self._lock:
            self._waiting.extend(sorted(batches, key=_owner_of))

    def __len__(self) -> int:
        """Return the number of batches without an end; those at work count one."""
        return sum(map(len, (self._waiting, self._doubtful, self._lost, self._at_work)))

    def tasks(self) -> Iterator[int]:
        """Yield the numbers of tasks to hand out now, as long as there are any."""
        yield from iter(self.take, None)

    def take(self) -> int | None:
        """Return the number of a task to hand out, None if there is none now."""
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
        """Return as many batches as may fill a task, leaving work for the others."""
        share = math.ceil(len(self._waiting) / (2 * max(self.slots, 1)))
        task = [self._waiting.popleft()]
        while self._waiting and len(task) < min(self._size, share):
            if _owner_of(self._waiting[0]) != _owner_of(task[0]):
                break
            task.append(self._waiting.popleft())
        return task

    def settle(self, number: int, answer: Answer | HostExit) -> list[Outcome]:
        """Return the outcomes of a task that is over; see to the rest of it.

        Parameters
        ----------
        number : int
            The task's.
        answer : Answer or HostExit
            Its host's, or what is known of the host that was lost with it.

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
        """See to what a dead worker did not record; return whom it accuses."""
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
        """Accuse the only trial of a batch if that is just, else have it run again."""
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
        reason = f"its worker died again, alone at work: {death.how_it_ended}"
        return [self._accuse_trial(batch, "killed", reason, seconds)]

    def _accuse_trial(
        self, batch: Batch, status: str, reason: str, seconds: float = 0.0
    ) -> Outcome:
        """Record what is held against the only trial of a batch."""
        record = failed_record(batch[0].key, status, printable_text(reason))
        self._writer.append([record], seconds)
        return Outcome.from_record(record)

    def put_back(self, number: int) -> None:
        """Have a task wait again that no host was lost with."""
        with self._lock:
            self._waiting.extendleft(reversed(self._at_work.pop(number).batches))

    def _on_host_lost(self, task: Task, end: HostExit) -> list[Outcome]:
        """See to a task that was lost with its host; return whom that accuses."""
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
            # At once again: of many suspects a few are cleared at a time.
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
