"""Hosts that are lost with what they are at, and when a batch is to blame for that."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.worker import Batch

LOSSES = 3
"""A batch is to blame for the ends of its hosts after so many at least."""

CHANCE = 1e-3
"""Largest probability that hosts which end by themselves have a trial accused."""

COMMONEST = 0.3
"""Largest part of tasks that is believed to be lost by chance."""

IN_A_ROW = 20
"""So many hosts, and `LOSSES` per slot, lost without any answer end the run."""


class LastWords(NamedTuple):
    """The machine of a host that was lost, and the end of its log."""

    host: str
    log: str = ""


class Losses:
    """Count tasks that were lost with their hosts.

    Jobs are preempted and machines fail by nobody's fault, so that a batch is to blame
    only after losses in a row, as a task of its own, that are no chance.

    Attributes
    ----------
    told : dict of int to LastWords
        What is known of the hosts of lost tasks, by the task's number.
    """

    def __init__(self) -> None:
        self.told: dict[int, LastWords] = {}
        self._hosts: defaultdict[str, list[str]] = defaultdict(list)
        self._tasks = self._lost = self._in_a_row = 0

    def last_words(self, number: int) -> LastWords:
        """Return what is known of the host of a lost task."""
        return self.told.pop(number, LastWords("an unknown host"))

    def hosts(self, batch: Batch) -> Sequence[str]:
        """Return the machines that a batch was lost with."""
        return self._hosts.get(batch[0].key, ())

    def answered(self, batches: Sequence[Batch], probe: bool) -> None:
        """Count a task that came back; `probe`: its only batch was lost before."""
        self._in_a_row = 0
        self._tasks += not probe
        self._hosts.pop(batches[0][0].key, None)

    def bereft(self, probe: bool, slots: int, host: str) -> None:
        """Count a task that was lost with its host.

        Raises
        ------
        UsageError
            If one host after the other was lost, and none answered.
        """
        self._in_a_row += 1
        if self._in_a_row > IN_A_ROW + LOSSES * slots:
            raise UsageError(
                f"{self._in_a_row} hosts in a row were lost and none answered, the "
                f"last {host}; what is recorded stays"
            )
        if not probe:
            self._tasks += 1
            self._lost += 1

    def blamed(self, batch: Batch, host: str) -> int:
        """Take down that a batch was lost with a host as a task of its own.

        Returns
        -------
        int
            How often it was, if that is no chance, and the count begins anew; else 0.
        """
        hosts = self._hosts[batch[0].key]
        hosts.append(host)
        return len(self._hosts.pop(batch[0].key)) if len(hosts) >= self.enough() else 0

    def enough(self) -> int:
        """Return the number of losses of a batch, in a row, that is no chance.

        Hosts that end by themselves with a part q of N tasks lose one of these k times
        in a row with a probability of at most N q^k: that is to be at most `CHANCE`.
        One of the losses that q is estimated from may be the suspect's own.
        """
        tasks = max(self._tasks, 1)
        rate = min(max(self._lost - 1, 0) / tasks, COMMONEST)
        if rate == 0.0:
            return LOSSES
        return max(LOSSES, math.ceil(math.log(CHANCE / tasks) / math.log(rate)))
