"""Short runs of batches whose cost is asked for: they are timed, nothing is recorded.

They run in a process of one thread, as a worker does, which its parent ends when the
time is over: what takes for ever, or ends its process, costs its own estimate only.
Each tells of all trials of its sort.
"""

import contextlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from dp_erm_bench.experiment.lines import SECOND, Kind, Trial
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.plugins.names import named_in
from dp_erm_bench.registry import POSED
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.pool import batch_size
from dp_erm_bench.runner.process import start
from dp_erm_bench.runner.worker import Batch

SECONDS = 15.0
"""CPU seconds that all probes together may take, whatever they are of."""

SLOWEST = 1.5
"""Seconds of the wall for each of these, at most: the machine may have other work."""

OVER = -1
"""What a child says in place of a batch when its time is over."""

PATIENCE = 15.0
"""Seconds without a word after which a probe is ended, should it only wait."""

PHASES = ("sweep", "tune", "report")
"""In the order in which they are run."""

LENGTHS = ("n_iter", "passes")
"""Parameters that set the number of iterations and nothing else: one run tells all."""

Sort = tuple[str, str, int]
"""What trials have in common that one probe tells of.

Their data and objective; the algorithm, its shapes but lengths, whether it clips, not
the budget; the size of their batches in bits.
"""


class Probe(NamedTuple):
    """CPU seconds of a batch, taken apart so that those of batches of its kind follow.

    Attributes
    ----------
    size : int
        Trials in the batch.
    load : float
        To load its problem; next to nothing if an earlier probe did.
    fresh, proof : float
        To calibrate other trials of its sort, which no cache on disk may know yet; to
        prove what the disk has of its own.
    cold : float
        What the first such batch of a process takes longer than the others: kernels
        and modules to load, constants of the data to compute.
    setup : float
        To declare and calibrate it.
    first : float
        To its first iteration.
    step : float
        Each further iteration, their mean.
    row : float
        To record a checkpoint.
    end : float
        To put the records together.
    """

    size: int
    load: float = 0.0
    fresh: float = 0.0
    proof: float = 0.0
    cold: float = 0.0
    setup: float = 0.0
    first: float = 0.0
    step: float = 0.0
    row: float = 0.0
    end: float = 0.0

    def seconds(self, iterations: int, n_checkpoints: int) -> float:
        """Return the seconds of such a batch of another length, its problem loaded."""
        steps = self.first + self.step * max(iterations - 1, 0)
        rows = self.row * min(n_checkpoints, iterations + 1)
        return self.setup + steps + rows + self.end


def probed(batches: Sequence[Batch], seconds: float = SECONDS) -> dict[int, Probe]:
    """Return the probes of batches by their place, without those that failed.

    Parameters
    ----------
    batches : sequence of tuple of Trial
        What is run for a while, the most important first.
    seconds : float
        CPU seconds for all of them, the start of a process included.
    """
    probes: dict[int, Probe] = {}
    left, bare, begin = list(range(len(batches))), False, time.monotonic()
    deadline = begin + SLOWEST * seconds
    while left and (rest := begin + seconds - time.monotonic()) > 0:
        process, pipe = start("dp_erm_bench.runner.timed", (), {}, quiet=True)
        try:
            rests = (rest, deadline - begin, bare)
            pipe.send(([(place, batches[place]) for place in left], *rests))
            for place, probe, done in _messages(pipe, deadline):
                if place == OVER:
                    return probes
                if probe is not None:
                    probes[place] = probe
                if done:
                    left.remove(place)
        finally:
            pipe.close()
            process.kill()
            process.wait()
        if left:
            # It was at this one: its records may need an optimum that takes long.
            bare = bare or left[0] in probes
            del left[0]
    return probes


def _messages(
    pipe: Connection, deadline: float
) -> Iterator[tuple[int, Probe | None, bool]]:
    """Yield what a child says until it has ended, or is silent for too long.

    Before its first word of a batch it may load data and compile.
    """
    patience = math.inf
    with contextlib.suppress(EOFError, OSError):
        while pipe.poll(max(0.0, min(patience, deadline - time.monotonic()))):
            place, probe, done = pipe.recv()
            patience = math.inf if done else PATIENCE
            yield place, probe, done


class Example(NamedTuple):
    """One trial of a kind that is asked for, and the batches of its kind."""

    one: Trial
    members: int
    size: int
    sort: Sort

    @property
    def iterations(self) -> int:
        """Return how long it is."""
        return self.one.setting.batch_key.iterations()

    @property
    def batches(self) -> int:
        """Return how many batches there are."""
        return math.ceil(self.members / self.size)

    @property
    def modelled(self) -> float:
        """Return the seconds of a trial by the model of the work."""
        return self.one.work.batch(self.size) / self.size / SECOND

    def precedes(self) -> tuple[int, float]:
        """Return what is greatest for the batch that loads its problem: the first.

        Sweeps are run before what is tuned, that before its reports, and the
        heaviest batches before others.
        """
        return -PHASES.index(self.one.phase), self.one.work.batch(self.size)

    def tells(self) -> tuple[float, ...]:
        """Return what is greatest for the trial that tells of its sort: its length.

        Of equal ones the heaviest, at the budget that is refused last.
        """
        epsilon = float(self.one.spec["budget"]["epsilon"])
        return self.iterations, self.one.work.own, epsilon

    def batch(self) -> Batch:
        """Return a batch of trials that differ in their seeds."""
        one, seeds = self.one, range(self.one.seed, self.one.seed + self.size)
        return tuple(one.setting.trial(seed, one.n_checkpoints) for seed in seeds)


def examples_of(
    asked: Iterable[Trial], members: Mapping[Kind, int], options: RunOptions
) -> list[Example]:
    """Return an example of each kind, of which there are so many, run as is asked."""
    found = []
    for one in asked:
        number = members[one.kind]
        size = batch_size(one, number, options.most_of(one.phase), options.batch_work)
        found.append(Example(one, number, size, _sort(one.spec, size)))
    return found


def tried(examples: Sequence[Example]) -> dict[Sort, tuple[Example, Probe]]:
    """Return the probe of each sort that short runs tell of, and what was probed."""
    sorts: defaultdict[Sort, list[Example]] = defaultdict(list)
    for example in examples:
        sorts[example.sort].append(example)
    order = _order(sorts)
    longest = [max(sorts[sort], key=Example.tells) for sort in order]
    probes = probed([example.batch() for example in longest])
    return {order[place]: (longest[place], probes[place]) for place in probes}


def _order(sorts: Mapping[Sort, Sequence[Example]]) -> list[Sort]:
    """Return the heaviest and the lightest in turn: time may be over before all.

    Sizes of batches of what is tried already come last.
    """
    heavy = sorted(
        sorts, key=lambda sort: -sum(e.modelled * e.members for e in sorts[sort])
    )
    both = chain.from_iterable(zip(heavy, reversed(heavy), strict=True))
    order = list(dict.fromkeys(both))
    first = {sort[:2]: sort for sort in reversed(order)}
    return sorted(order, key=lambda sort: first[sort[:2]] != sort)


def _sort(spec: Mapping[str, Any], size: int) -> Sort:
    algorithm, params = named_in(spec["algorithm"]), spec["algorithm"]["params"]
    shape: dict[str, Any] = {"task": spec.get("task"), "algorithm": algorithm}
    if "task" not in spec:
        kinds = algorithm_of(algorithm).kinds
        lasting = {k: v for k, v in params.items() if kinds[k] != "value"}
        shape["shape"] = {k: v for k, v in lasting.items() if k not in LENGTHS}
        shape["clipped"] = params.get("clip") is not None
        shape["calibration"] = spec["calibration"]
    problem = {part: spec[part] for part in POSED if part in spec}
    return _spelled(problem), _spelled(shape), size.bit_length()


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
