"""Calls on remote workers, and who sends them the data and files that they lack."""

from __future__ import annotations

import json
import pickle
import pkgutil
import queue
import secrets
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner import shipping
from dp_erm_bench.runner.engines.base import Ending, SchedulerLost
from dp_erm_bench.runner.engines.dask import Connection
from dp_erm_bench.runner.engines.refusals import lacking, parsed, title
from dp_erm_bench.runner.handshake import DATA, FILE, Needs, introduce

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
