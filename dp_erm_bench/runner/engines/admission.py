"""Who may have trials: workers that have proved to compute what this process would."""

from __future__ import annotations

import json
import queue
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dp_erm_bench.errors import UsageError, printable
from dp_erm_bench.runner.engines.base import GONE, Ending
from dp_erm_bench.runner.engines.dask import Connection
from dp_erm_bench.runner.engines.refusals import difference, lacking, parsed, title
from dp_erm_bench.runner.engines.shipper import Caller, Shipper, Tell
from dp_erm_bench.runner.handshake import (
    MACHINE,
    Needs,
    expected,
    introduce,
    kind_of_cpu,
    spelled,
)
from dp_erm_bench.runner.worker import Batch, Job

GRACE = 5.0
"""Seconds in which another worker may come where all that are there were refused."""

LONGEST = 600.0
"""Seconds after which nobody waits for a worker's introduction any more."""

MOST_ENDED = 5
"""So many workers may end in the handshake while none has come through it."""

REASONS = 3
"""Refusals in a sentence."""

SCHEDULER = "deserialization of the task graph"
"""In Dask's message where its scheduler, not a worker, cannot import a function."""

FOUND, ASKED, SENT = range(3)
"""What a worker has done: import the handshake, introduce itself, take what is sent."""

OLDER = ("ImportError", "ModuleNotFoundError", "AttributeError")


class Visit(NamedTuple):
    """A worker that is there.

    Attributes
    ----------
    number : int
        Tells it from an earlier one at its address.
    since : float
        When it was asked.
    refusal : str or None
        Why it gets no trial, empty if it may; None while that is not known.
    """

    number: int
    since: float
    refusal: str | None = None


class Admission:
    """Asks every worker that comes what it would compute with, and refuses others.

    Parameters
    ----------
    connection : Connection
        To the scheduler.
    needs : Needs
        What the run needs.
    mixed : bool
        Whether there may be several kinds of CPU; records name theirs then.

    Attributes
    ----------
    cpus : dict of str to str
        The kind of CPU of every machine that has been accepted, by name.
    """

    def __init__(self, connection: Connection, needs: Needs, mixed: bool) -> None:
        self.needs, self.mixed = needs, mixed
        self.cpus: dict[str, str] = {}
        self._ours, self._needed = expected(needs), json.dumps(needs).encode()
        self._caller = Caller(connection)
        self._shipper = Shipper(self._caller, needs, self._ours)
        self._visits: dict[str, Visit] = {}
        self._told: queue.SimpleQueue[tuple[str, int, int, Ending]]
        self._told = queue.SimpleQueue()
        self._asked, self._heard, self._ended_early = 0, 0.0, 0
        self._said: set[str] = set()

    @property
    def pending(self) -> bool:
        """Return whether a worker is there that may still be accepted."""
        now = time.monotonic()
        return any(
            one.refusal is None and now < one.since + LONGEST
            for one in self._visits.values()
        )

    def accepted(self, present: Mapping[str, int]) -> dict[str, int]:
        """Return the threads of the workers that may have trials; ask new ones.

        Parameters
        ----------
        present : mapping of str to int
            Threads of all workers, by address.

        Raises
        ------
        UsageError
            If all that are there were refused, and no other has come for `GRACE`;
            or if workers end while they are asked, one after the other.
        SchedulerLost
            If nobody can be asked.
        """
        self._caller.present = present.keys()
        for address in self._visits.keys() - present.keys():
            self._ended_early += self._visits.pop(address).refusal is None
        if self._ended_early >= MOST_ENDED and not self.cpus:
            raise UsageError(
                f"runner=dask: {self._ended_early} workers ended in the handshake, and "
                "none has come through it: their logs say why"
            )
        for address in present.keys() - self._visits.keys():
            self._ask(address)
        while not self._told.empty():
            self._hear(*self._told.get())
        self._tell()
        visits = self._visits
        refused = {a for a in present if a not in visits or visits[a].refusal != ""}
        return {a: n for a, n in present.items() if a not in refused}

    def job(self, job: Job, task: Sequence[Batch]) -> Job:
        """Return what a child on a worker must know to run a task as it would here."""
        bases = {id(base): base for base in (one[0].setting.base for one in task)}
        texts = {spelled(base.get("dataset")) for base in bases.values()}
        pins = tuple(pin for pin in self.needs.datasets if pin.text in texts)
        return job._replace(pins=pins, names_cpu=self.mixed)

    def _ask(self, address: str) -> None:
        """Ask whether a worker has the package; the rest is asked of those that do."""
        self._asked += 1
        self._caller.find(address, introduce, self._heard_of(address, FOUND))
        self._visits[address] = Visit(self._asked, time.monotonic())

    def _heard_of(self, address: str, stage: int) -> Tell:
        """Return who hears of a worker in a thread of Dask's, and leaves it for us."""
        number = self._asked
        if address in self._visits:
            number = self._visits[address].number
        return lambda ending: self._told.put((address, number, stage, ending))

    def _hear(self, address: str, number: int, stage: int, ending: Ending) -> None:
        """Take down what a worker has answered; have it sent what it lacks, once."""
        visit = self._visits.get(address)
        if visit is None or visit.number != number:
            return
        if ending.cancelled or ending == GONE:
            self._ended_early += ending == GONE
            del self._visits[address]
            return
        if stage == FOUND and not ending.problem:
            tell = self._heard_of(address, ASKED)
            self._caller.start(address, introduce, self._needed, tell)
            return
        theirs: dict[str, str] = {}
        if ending.problem:
            why = ending.problem if stage == SENT else _mute(ending.problem)
        else:
            try:
                theirs = parsed(ending.value)
                why = difference(theirs, self._ours, self.mixed)
            except ValueError as error:
                why = f"its answer to the handshake cannot be read: {error}"
        keys = [] if why else lacking(theirs, self._ours)
        if keys and stage != SENT:
            self._shipper.send(address, self._heard_of(address, SENT))
            return
        if keys:
            why = f"{title(keys[0])} is another one there"
        machine = printable(theirs.get(MACHINE, ""), 100)
        if not why:
            self.cpus[machine] = kind_of_cpu(theirs)
        self._judge(f"{address}{machine and f' on {machine}'}", address, why)

    def refuse(self, address: str, why: str) -> None:
        """Give a worker no other trial: it can record none."""
        if address in self._visits:
            self._judge(address, address, f"there, {why}")

    def _judge(self, name: str, address: str, why: str) -> None:
        """Take down why a worker gets no trial; empty if it may."""
        refusal = why and f"worker {name} gets no trial: {why}"
        self._visits[address] = self._visits[address]._replace(refusal=refusal)
        self._heard = time.monotonic()

    def _tell(self) -> None:
        """Say who was refused: beside others that work, or that nobody is left.

        Raises
        ------
        UsageError
            If so.
        """
        refused = [one.refusal for one in self._visits.values() if one.refusal]
        if any(one.refusal == "" for one in self._visits.values()):
            for sentence in refused:
                if sentence not in self._said:
                    print(f"dp-erm-bench: runner=dask: {sentence}", file=sys.stderr)
            self._said.update(refused)
        elif refused and len(refused) == len(self._visits):
            if time.monotonic() > self._heard + GRACE:
                more = len(refused) - REASONS
                rest = f"; and {more} more" if more > 0 else ""
                reasons = "; ".join(refused[:REASONS])
                raise UsageError(f"runner=dask: no worker is left: {reasons}{rest}")


def _mute(problem: str) -> str:
    """Return why a worker could not introduce itself.

    Raises
    ------
    UsageError
        If no worker can be asked, since it is the scheduler that could not.
    """
    first = printable(problem.partition("\n")[0], 200)
    if SCHEDULER in problem:
        raise UsageError(
            "runner=dask: the scheduler cannot import dp_erm_bench as it is here: "
            "start it where the same is installed"
        )
    if "ModuleNotFoundError" in first and "'dp_erm_bench'" in first:
        return "it has no dp_erm_bench: install the same there and start it again"
    if any(word in first for word in OLDER):
        return (
            f"its dp_erm_bench is another version ({first}): install the same there "
            "and start it again"
        )
    return f"its handshake failed ({first})"
