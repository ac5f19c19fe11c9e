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
"""Aimed at: the probability that hosts which end by themselves have a trial accused."""

COMMONEST = 0.5
"""Largest part of tasks that is believed to be lost by chance."""

IN_A_ROW = 40
"""So many hosts, and `LOSSES` per slot, lost without any answer end the run.

More than `Losses.enough` ever asks for: up to 34 in a run of 10^7 batches.
"""


class LastWords(NamedTuple):
    """The machine of a host that was lost, and the end of its log.

    `joint`: with it all other tasks at work were lost, whoever is to blame.
    """

    host: str
    log: str = ""
    joint: bool = False


class Losses:
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
