"""Batches, and worker processes that may die at one without the sweep."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import FrameType
from typing import Any

from dp_erm_bench.experiment.lines import Kind, Trial
from dp_erm_bench.runner.engines.base import Engine
from dp_erm_bench.runner.ledger import Ledger
from dp_erm_bench.runner.worker import Batch, Job, Outcome

LEAST = 2
"""Smaller batches are not made for balance: their kernels would be slower."""

GAIN = 3.0
"""A batch is not split below so many times the work that its trials share."""


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
        Work of one batch, without what its trials share; 1e8 is about a second.
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
    return sorted(batches, key=work_of, reverse=True)


def work_of(batch: Batch) -> float:
    """Return the work of a batch, in the unit of `Trial.work`."""
    return batch[0].work.batch(len(batch))


def batch_size(one: Trial, members: int, most: int, aim: float) -> int:
    """Return the most trials in a batch of `members` trials of the kind of one."""
    return math.ceil(members / _count(one, members, most, aim))


def _count(one: Trial, members: int, most: int, aim: float) -> int:
    """Return the number of batches of some trials of a kind."""
    if not one.setting.batch_key.batchable:
        return members
    own, shared = one.work
    # Each part of a batch would do again what its trials share.
    size = most if own <= 0 else int(min(max(aim, GAIN * shared) / own, most))
    return math.ceil(members / max(size, min(LEAST, most)))


class Pool:
    """The workers of a run: what they do is in a ledger, and an engine carries it.

    Any number of workers, one too, are processes: all compute the same bits, and a
    crash never reaches the parent.

    Parameters
    ----------
    engine : Engine
        Who carries the tasks.
    job : Job
        What the workers must know.
    """

    def __init__(self, engine: Engine, job: Job) -> None:
        self.engine, self._ledger = engine, Ledger(job)
        self._on_sigterm: Any = None
        self._engines = contextlib.ExitStack()
        self._started = False
        self._hosts: defaultdict[str, set[str]] = defaultdict(set)
        self._lost = 0

    def __enter__(self) -> Pool:
        """Have SIGTERM end the run as Ctrl-C does."""
        if threading.current_thread() is threading.main_thread():
            self._on_sigterm = signal.signal(signal.SIGTERM, _terminated)
        return self

    def __exit__(self, *error: Any) -> None:
        """End the workers, at once after an exception."""
        self._engines.__exit__(*error)
        self._ledger.close()
        if self._on_sigterm is not None:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self, batches: Iterable[Batch]) -> Iterator[list[Outcome]]:
        """Yield the outcomes of batches as they come in, those of a task together.

        The engine starts with the first: who has nothing to do asks no cluster.

        Raises
        ------
        UsageError
            If the results folder cannot be written, no worker can be started, or all
            of them are lost.
        """
        if not self._started:
            self._engines.enter_context(self.engine)
            self._ledger.slots, self._started = self.engine.slots, True
        self._ledger.add(batches)
        while len(self._ledger):
            for number, answer in self.engine.answers(self._ledger):
                if answer is None:
                    self._lost += 1
                else:
                    machine, _, process = answer.host.rpartition(":")
                    self._hosts[machine].add(process)
                if outcomes := self._ledger.settle(number, answer):
                    yield outcomes

    def facts(self) -> dict[str, Any]:
        """Return what a manifest says of hosts.

        `hosts`: how many have answered on each machine, and its kind of CPU where it
        was told; `lost_tasks`: how many were lost with theirs.
        """
        hosts: dict[str, dict[str, Any]] = {}
        for machine, ones in sorted(self._hosts.items()):
            cpu = self.engine.cpus.get(machine)
            hosts[machine] = {"hosts": len(ones), **({"cpu": cpu} if cpu else {})}
        return {"hosts": hosts, "lost_tasks": self._lost}


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
