"""Who may have trials: workers that have proved to compute what this process would."""

from __future__ import annotations

import json
import pickle
import pkgutil
import queue
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.errors import UsageError, printable
from dp_erm_bench.plugins.names import label
from dp_erm_bench.runner import handshake, shipping
from dp_erm_bench.runner.engines.base import GONE, Ending, SchedulerLost
from dp_erm_bench.runner.engines.dask import Connection
from dp_erm_bench.runner.handshake import (
    CPU,
    DATA,
    FEATURES,
    FILE,
    MACHINE,
    STALE,
    Needs,
    expected,
    introduce,
    kind_of_cpu,
    spelled,
)
from dp_erm_bench.runner.worker import Batch, Job

LARGEST = 1 << 24
"""Characters of an introduction that is read."""

DIGITS = 12
"""Digits of a digest in a sentence."""

SHOWN = 5
"""Features of a CPU in a sentence."""

Introduction = Mapping[str, str]


def parsed(answer: object) -> dict[str, str]:
    """Return the introduction in an answer.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not isinstance(answer, str) or len(answer) > LARGEST:
        raise ValueError("it must be a text")
    found = json.loads(answer)
    if not isinstance(found, dict):
        raise ValueError("it must be a JSON object")
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError("its values must be texts")
    if not {MACHINE, CPU, FEATURES, STALE} <= found.keys():
        raise ValueError("it must name its machine and CPU")
    return {key: printable(value) for key, value in found.items()}


def lacking(theirs: Introduction, ours: Introduction) -> list[str]:
    """Return the keys of data and files that a worker does not have as it should."""
    wanted = [key for key in ours if key.startswith((DATA, FILE))]
    return [key for key in wanted if theirs.get(key) != ours[key]]


def difference(theirs: Introduction, ours: Introduction, mixed: bool = False) -> str:
    """Return the first difference of a worker, and what to do; empty if there is none.

    Data and files are left out: see `lacking`.

    Parameters
    ----------
    theirs, ours : mapping
        The worker's introduction, and the `expected` one.
    mixed : bool
        Whether there may be several kinds of CPU.
    """
    if theirs[STALE]:
        return "its dp_erm_bench has changed since it was started: start it again"
    for start, sentence in SENTENCES.items():
        if mixed and start in (CPU, FEATURES):
            continue
        for key in sorted(k for k in {**ours, **theirs} if k.startswith(start)):
            there, here = theirs.get(key, ""), ours.get(key, "")
            if there != here:
                return sentence(printable(key[len(start) :], 100), there, here)
    return ""


def title(key: str) -> str:
    """Return the name of a dataset or a file as a sentence has it."""
    if key.startswith(DATA):
        return f"dataset {json.loads(key.removeprefix(DATA))['name']}"
    return f"file {label(key.removeprefix(FILE))}.py"


def _package(name: str, there: str, here: str) -> str:
    return (
        f"its dp_erm_bench differs in {name} ({_digests(there, here)}): install the "
        "same sources there and start it again"
    )


def _version(name: str, there: str, here: str) -> str:
    has = f"{name} {there}" if there else f"no {name}"
    return f"it has {has}, here is {here or 'none'}: install the same there"


def _setting(name: str, there: str, here: str) -> str:
    values = f"{name}={there or 'unset'} there, {here or 'unset'} here"
    return f"{values}: set the same and start it again"


def _cpu(name: str, there: str, here: str) -> str:
    return (
        f"its CPU is {there}, here is {here}: numbers would differ in their last bits; "
        "runner.mixed_cpus=true allows several kinds of CPU"
    )


def _features(name: str, there: str, here: str) -> str:
    apart = sorted({*there.split(",")} ^ {*here.split(",")})
    names = dict.fromkeys(feature.lstrip("+-") for feature in apart)
    more = ", ..." if len(names) > SHOWN else ""
    text = ", ".join([*names][:SHOWN]) + more
    return (
        f"its CPU differs in features ({text}): numbers would differ in their last "
        "bits; runner.mixed_cpus=true allows several kinds of CPU"
    )


def _solver(name: str, there: str, here: str) -> str:
    return (
        f"algorithm={name} comes from an installed package, which differs there "
        f"({_digests(there, here)}): install the same there and start it again"
    )


def _digests(there: str, here: str) -> str:
    return f"sha256 {there[:DIGITS] or 'none'}, here {here[:DIGITS] or 'none'}"


SENTENCES = {
    handshake.PACKAGE: _package,
    handshake.VERSION: _version,
    handshake.SETTING: _setting,
    CPU: _cpu,
    FEATURES: _features,
    handshake.SOLVER: _solver,
}
"""What is said of a difference, by the start of its key; the first one is told."""


PAUSE = 1.0
"""Seconds between two looks whether the worker that is waited for is there."""

Call = Callable[[bytes], str]
Tell = Callable[[Ending], None]


class Gone(Exception):
    """The worker that was called is no longer there."""


class Caller:
    """Has workers call functions of this package, which they import themselves.

    Attributes
    ----------
    present : collection of str
        The addresses of the workers that are there.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.present: Collection[str] = ()
        self._name = secrets.token_hex(8)

    def find(self, address: str, call: Call, tell: Tell) -> None:
        """Have a worker import a function; it ends at a call of one that it lacks.

        Raises
        ------
        SchedulerLost
            If nothing can be sent.
        """
        name = f"{call.__module__}:{call.__qualname__}"
        self.start(address, pkgutil.resolve_name, name, tell)

    def start(
        self, address: str, call: Callable[[Any], Any], argument: Any, tell: Tell
    ) -> None:
        """Have a worker call a function; `tell` hears of the end in another thread.

        Raises
        ------
        SchedulerLost
            If nothing can be sent.
        """
        # Until it has ended it is held here: else the scheduler forgets it.
        held: list[Any] = []

        def ended(ending: Ending) -> None:
            held.clear()
            tell(ending)

        key = f"dp-erm-bench-{self._name}-{secrets.token_hex(8)}"
        held.append(self.connection.submit(address, key, (call, argument), ended))

    def wait(self, address: str, call: Call, argument: bytes) -> Any:
        """Return what a function returns on a worker.

        Raises
        ------
        UsageError
            If it fails there.
        Gone
            If the worker is.
        SchedulerLost
            If the scheduler does not answer.
        """
        told: queue.SimpleQueue[Ending] = queue.SimpleQueue()
        self.start(address, call, argument, told.put)
        while True:
            try:
                ending = told.get(timeout=PAUSE)
                break
            except queue.Empty:
                if address not in self.present:
                    raise Gone from None
        if ending.cancelled:
            raise SchedulerLost(ending.problem)
        if ending.problem:
            raise UsageError(ending.problem.partition("\n")[0])
        return ending.value


class Shipper:
    """Sends workers what they lack: to one at a time, after asking it again.

    So several that share a cache get it once.

    Parameters
    ----------
    caller : Caller
    needs : Needs
        What the run needs.
    ours : mapping
        The introduction of a worker that lacks nothing.
    """

    def __init__(self, caller: Caller, needs: Needs, ours: Mapping[str, str]) -> None:
        self.caller, self.needs, self.ours = caller, needs, ours
        self._orders: queue.SimpleQueue[tuple[str, Tell]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def send(self, address: str, tell: Tell) -> None:
        """Have a worker be sent what it lacks; `tell` hears its new introduction."""
        if self._thread is None:
            # What it waits for may never come: it must not keep the process.
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()
        self._orders.put((address, tell))

    def _serve(self) -> None:
        while True:
            self._serve_one(*self._orders.get())

    def _serve_one(self, address: str, tell: Tell) -> None:
        try:
            tell(Ending(self._sent(address)))
        except Gone:
            return
        except SchedulerLost as error:
            tell(Ending(problem=str(error), cancelled=True))
        except Exception as error:  # of this thread nobody else would hear
            tell(Ending(problem=str(error) or type(error).__name__))

    def _sent(self, address: str) -> Any:
        """Return the introduction of a worker once it has what it lacked."""
        needs = json.dumps(self.needs).encode()
        theirs = parsed(self.caller.wait(address, introduce, needs))
        keys = lacking(theirs, self.ours)
        for key in keys:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    self._send_one(address, key, Path(folder))
                except UsageError as error:
                    why = f"{title(key)} cannot be sent there: {error}"
                    raise UsageError(why) from None
        return self.caller.wait(address, introduce, needs)

    def _send_one(self, address: str, key: str, folder: Path) -> None:
        if key.startswith(DATA):
            pin = next(one for one in self.needs.datasets if DATA + one.text == key)
            freight = shipping.data_freight(pin)
            parts = shipping.data_parts(pin, folder)
        else:
            group, file = next(one for one in self.needs.files if FILE + one[1] == key)
            freight = shipping.file_freight(group, file)
            parts = shipping.file_parts(group, file)
        for part in parts:
            sent = pickle.dumps((freight, *part))
            if problem := self.caller.wait(address, shipping.receive, sent):
                raise UsageError(problem)
        if problem := self.caller.wait(
            address, shipping.arrived, pickle.dumps(freight)
        ):
            raise UsageError(problem)


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
