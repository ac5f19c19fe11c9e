"""What is still to run, what hosts answer, and which trial is to blame for a loss."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.errors import UsageError, printable
from dp_erm_bench.registry import QUANTITIES
from dp_erm_bench.results import files
from dp_erm_bench.results.store import STATUSES, RecordWriter, failed
from dp_erm_bench.runner.worker import TASK_SECONDS, Batch, Job, Outcome, Report

LONGEST = 200
"""Characters of what an answer says of its host, or of what is wrong with it."""


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
    def ending(self) -> str:
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
    host : str
        Machine and process id of the host.
    """

    number: int
    outcomes: list[Outcome]
    seconds: float = 0.0
    problem: str = ""
    death: Death | None = None
    lines: bytes = b""
    host: str = ""


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
        content = (files.parsed(line) if files.is_sealed(line) else None) or {}
        begun, key = content.get("begin"), content.get("key")
        if isinstance(begun, list) and keys.issuperset(map(str, begun)):
            continue
        if not _is_record(line, content) or key not in keys - outcomes.keys():
            raise ValueError("a line of an answer is damaged, or of another task")
        outcomes[key] = Outcome.of(content)
    if not (outcomes or value.death or value.problem):
        raise ValueError("an answer says nothing")
    problem = printable(value.problem, 5 * LONGEST)
    host = printable(value.host, LONGEST)
    return value._replace(outcomes=[*outcomes.values()], problem=problem, host=host)


def _is_record(line: bytes, content: dict[str, Any]) -> bool:
    """Return whether a whole line is a record that the table can be made of."""
    columns = content.get("trajectory")
    lists = isinstance(columns, dict) and all(type(c) is list for c in columns.values())
    return lists and line.startswith(files.START) and content["status"] in STATUSES


def understood(text: bytes, task: Sequence[Batch]) -> Report | None:
    """Return the report of a worker on a task that a line holds; None if it is none.

    Whoever wrote the line: every value is of its type, and the outcomes are those of
    the first batches of the task.
    """
    try:
        outcomes, batches, seconds, problem, full = json.loads(text)
        found = []
        for key, status, finals, message in outcomes:
            last = {name: float(finals[name]) for name in QUANTITIES if name in finals}
            found.append(Outcome(str(key), _status(status), last, str(message)))
        report = Report(found, int(batches), float(seconds), str(problem), bool(full))
        due = [trial.key for batch in task[: report.batches] for trial in batch]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    whole = due == [one.key for one in found] and 0 <= report.seconds < math.inf
    return report if whole else None


def _status(status: Any) -> str:
    if status not in STATUSES:
        raise ValueError(f"{status!r}: no status")
    return str(status)


LOSSES = 3
"""A batch is to blame for the ends of its hosts after so many at least."""

CHANCE = 1e-3
"""Aimed at: the probability that hosts which end by themselves have a trial accused."""

COMMONEST = 0.5
"""Largest part of tasks that is believed to be lost by chance."""

IN_A_ROW = 40
"""So many hosts, and `LOSSES` per slot, lost without any answer end the run.

More than `LostTasks.enough` ever asks for: up to 34 in a run of 10^7 batches.
"""


class LastWords(NamedTuple):
    """The machine of a host that was lost, and the end of its log.

    `joint`: with it all other tasks at work were lost, whoever is to blame.
    """

    host: str
    log: str = ""
    joint: bool = False


class LostTasks:
    """Count tasks that were lost with their hosts.

    Jobs are preempted and machines fail by nobody's fault, so that a batch is to blame
    only after losses in a row, as a task of its own, that are no chance.

    Attributes
    ----------
    told : dict of int to LastWords
        What is known of the hosts of lost tasks, by the task's number.
    stakes : int
        Batches of the run that could be accused; the ledger counts them.
    joint : bool
        Whether the end of one host has ever ended all tasks at work.
    machines : int
        On which there are hosts now. One that loses all its hosts accuses nobody: a
        batch is to blame only for losses on several, up to `LOSSES`, if there are any.
    """

    def __init__(self) -> None:
        self.told: dict[int, LastWords] = {}
        self.stakes, self.joint, self.machines = 0, False, 1
        self._hosts: defaultdict[str, list[str]] = defaultdict(list)
        self._longest: dict[str, float] = {}
        self._tasks = self._lost = self._in_a_row = 0
        self._seconds = 0.0

    def last_words(self, number: int) -> LastWords:
        """Return what is known of the host of a lost task."""
        return self.told.pop(number, LastWords("an unknown host"))

    def hosts(self, batch: Batch) -> Sequence[str]:
        """Return the machines that a batch was lost with."""
        return self._hosts.get(batch[0].key, ())

    def answered(self, batches: Sequence[Batch], probe: bool, seconds: float) -> None:
        """Count a task that came back; `probe`: its only batch was lost before."""
        self._in_a_row = 0
        if probe:
            self._forget(batches[0])
        else:
            self._tasks += 1
            self._seconds += seconds

    def bereft(self, probe: bool, slots: int, last: LastWords, seconds: float) -> None:
        """Count a task that was lost with its host after some time.

        Raises
        ------
        UsageError
            If one host after the other was lost, and none answered.
        """
        self._in_a_row += 1
        self.joint |= last.joint
        if self._in_a_row > IN_A_ROW + LOSSES * slots:
            raise UsageError(
                f"{self._in_a_row} hosts in a row were lost and none answered, the "
                f"last {last.host}; what is recorded stays"
            )
        if not probe:
            self._tasks += 1
            self._lost += 1
            self._seconds += seconds

    def blamed(self, batch: Batch, host: str, seconds: float) -> int:
        """Take down that a batch was lost with a host as a task of its own.

        Parameters
        ----------
        batch : tuple of Trial
            The batch.
        host : str
            The machine.
        seconds : float
            How long the batch had been there.

        Returns
        -------
        int
            How often it was, if that is no chance, and the count begins anew; else 0.
        """
        key = batch[0].key
        self._hosts[key].append(host)
        longest = max(self._longest.get(key, 0.0), seconds)
        self._longest[key] = longest
        times, places = len(self._hosts[key]), len(set(self._hosts[key]))
        if times < self.enough(longest) or places < min(LOSSES, self.machines):
            return 0
        self._forget(batch)
        # These losses are explained, and say nothing against the hosts.
        self._in_a_row = max(self._in_a_row - times, 0)
        return times

    def enough(self, seconds: float = 0.0) -> int:
        """Return the number of losses of a batch, in a row, that is no chance.

        Hosts that end by themselves lose a batch with probability q, and one of N
        batches k times in a row with at most N q^k: that is to be at most `CHANCE`. N
        are all batches of the run, so that it holds for all of it, not for each
        moment. q is the part of the tasks that were lost, or, if it is more, the
        probability that a host ends within the longest time that the batch was at
        work: long batches are lost more often than short ones. One of the losses that
        q is estimated from may be the suspect's own; to the others two standard
        deviations are added, for there may be few.
        """
        others = float(max(self._lost - 1, 0))
        if others == 0.0:
            return LOSSES
        others += 2 * math.sqrt(others)
        by_time = -math.expm1(-others * seconds / max(self._seconds, 1e-9))
        rate = min(max(others / self._tasks, by_time), COMMONEST)
        stakes = max(self.stakes, self._tasks)
        return max(LOSSES, math.ceil(math.log(CHANCE / stakes) / math.log(rate)))

    def _forget(self, batch: Batch) -> None:
        self._hosts.pop(batch[0].key, None)
        self._longest.pop(batch[0].key, None)


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
    losses : LostTasks
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
        self.losses, self.clock = LostTasks(), time.monotonic
        self._number, self._size, self._stillborn = 0, 1, 0
        self._writer = RecordWriter(Path(job.folder), job.run)
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
                self._writer.copy(answer.lines)
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
        self._writer.append([record], seconds)
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


def _owner(batch: Batch) -> str:
    return batch[0].owner
