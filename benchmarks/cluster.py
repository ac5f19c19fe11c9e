"""A cluster that is played: hosts that are lost, with the real ledger and no work."""

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from dp_erm_bench.runner.ledger import Answer, LastWords, Ledger
from dp_erm_bench.runner.session import Pool
from dp_erm_bench.runner.worker import TASK_SECONDS, Batch, Job, Outcome


class Played(NamedTuple):
    """What the ledger looks at of a trial."""

    key: str
    owner: str = ""


@dataclass
class Cluster:
    """Hosts that take tasks of a ledger, and are lost by chance or by a trial.

    Attributes
    ----------
    hosts : int
        How many.
    seconds : callable
        Returns the time that a batch takes, by the key of its first trial.
    chance : float
        Probability that a host is lost with a task, however long.
    life : float
        Mean life of a host in seconds.
    waves : sequence of (float, float)
        Times at which each host is lost with some probability.
    away : float
        Seconds until another host is there for one that was lost.
    culprits : collection of str
        Keys of trials that end their host.
    joint : bool
        Whether all tasks at work are lost with any host.
    seed : int
        Of what happens by chance.
    """

    hosts: int
    seconds: Callable[[str], float] = lambda key: 1.0
    chance: float = 0.0
    life: float = math.inf
    waves: Sequence[tuple[float, float]] = ()
    away: float = 5.0
    culprits: Collection[str] = ()
    joint: bool = False
    seed: int = 0
    now: float = field(default=0.0, init=False)
    lost: int = field(default=0, init=False)
    tasks: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        """Return the cluster; nothing is started."""
        self._draw = random.Random(self.seed)
        return self

    def __exit__(self, *error: object) -> None:
        """Leave nothing behind."""

    @property
    def slots(self) -> int:
        """Return the number of hosts."""
        return self.hosts

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | None]]:
        """Yield the answer of every task when it is over; None: its host was lost."""
        ledger.clock = lambda: self.now
        idle, back = deque(range(self.hosts)), list[tuple[float, int]]()
        work: list[tuple[float, int, int, Answer | None]] = []
        while True:
            while back and back[0][0] <= self.now:
                idle.append(heapq.heappop(back)[1])
            while idle and (number := ledger.take()) is not None:
                seconds, answer = self._played(number, ledger.batches(number))
                end = self.now + seconds
                heapq.heappush(work, (end, number, idle.popleft(), answer))
            if not work:
                if not len(ledger):
                    return
                self.now = back[0][0]
                continue
            if back and back[0][0] < work[0][0]:
                self.now = back[0][0]
                continue
            self.now, number, host, answer = heapq.heappop(work)
            over = [(number, host, answer)]
            if answer is None and self.joint:
                over += [(other, one, None) for _, other, one, _ in work]
                work.clear()
            for number, host, answer in over:
                self.tasks += 1
                if answer is None:
                    self.lost += 1
                    heapq.heappush(back, (self.now + self.away, host))
                    words = LastWords(f"node{host}", joint=self.joint)
                    ledger.losses.told[number] = words
                else:
                    idle.append(host)
                yield number, answer

    def _played(self, number: int, task: Sequence[Batch]) -> tuple[float, Any]:
        """Return how long a task is at work, and its answer, None if it is lost."""
        seconds, outcomes, end = 0.0, list[Outcome](), self._end()
        for batch in task:
            seconds += self.seconds(batch[0].key)
            if seconds > end:
                return end, None
            if any(trial.key in self.culprits for trial in batch):
                return seconds, None
            outcomes += [
                Outcome(trial.key, "ok", {"objective": 1.0}) for trial in batch
            ]
            if seconds >= TASK_SECONDS:
                break
        if self.chance and self._draw.random() < self.chance:
            return seconds * self._draw.random(), None
        return seconds, Answer(number, outcomes, seconds)

    def _end(self) -> float:
        """Return after how many seconds the host of a new task ends by itself."""
        end = math.inf
        if self.life < math.inf:
            end = self._draw.expovariate(1 / self.life)
        hit = (
            t for t, part in self.waves if t > self.now and self._draw.random() < part
        )
        return min(end, next(hit, math.inf) - self.now)


def made(batches: int, trials: int = 1) -> list[Batch]:
    """Return batches of so many trials each; key `n` is ``f"{n:064x}"``."""
    keys = (range(n * trials, (n + 1) * trials) for n in range(batches))
    played = (tuple(Played(f"{key:064x}") for key in some) for some in keys)
    return [cast(Batch, batch) for batch in played]


def accused(folder: Path, cluster: Cluster, batches: Iterable[Batch]) -> dict[str, str]:
    """Run batches, each trial of which must have one end; return what is not ok.

    Returns
    -------
    dict of str to str
        Message by key, of the trials that are `killed`.
    """
    found: Counter[str] = Counter()
    guilty: dict[str, str] = {}
    batches = list(batches)
    with Pool(cast(Any, cluster), Job(str(folder), "1", "nothing")) as pool:
        for outcomes in pool.run(batches):
            found.update(outcome.key for outcome in outcomes)
            guilty |= {o.key: o.message for o in outcomes if o.status != "ok"}
    trials = [trial.key for batch in batches for trial in batch]
    if found != Counter(trials):
        raise RuntimeError("a trial was lost, or has two ends")
    return guilty
