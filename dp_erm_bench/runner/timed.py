"""What a probe's process does: run batches for a while, and tell what they took."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.experiment.studies import task_of
from dp_erm_bench.paths import cache_dir
from dp_erm_bench.run import Recorder, Run, checkpoints_of
from dp_erm_bench.runner.execute import (
    facts,
    problem_of,
    solver_of,
    trajectory,
    warm_up,
)
from dp_erm_bench.runner.probe import OVER, Batch, Probe

LONGEST, SHORTEST = 0.5, 0.02
"""Seconds of steps after which a probe stops, as far as the others leave them."""

AGAIN = 0.1
"""What took less runs twice more, and the shorter counts.

The first time it loads what it needs, and other work on the machine only adds.
"""

TICK = 0.02
"""Seconds by which the processor's clock may lag."""

LIMIT = 5.0
"""CPU seconds after which the kernel ends this process, a batch having told nothing."""


def serve(handle: int) -> None:
    """Probe the batches that come through a pipe; the child's only function."""
    os.set_inheritable(handle, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for deadly in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(deadly, signal.SIG_DFL)
    pipe = Connection(handle)
    batches, seconds, longest, bare = pipe.recv()
    # Should its parent be killed, the kernel ends this process.
    signal.setitimer(signal.ITIMER_REAL, longest + 1.0)
    deadline = time.process_time() + seconds
    for number, (place, batch) in enumerate(batches):
        share = (deadline - time.process_time()) / (len(batches) - number)
        if share < 0.0:
            break

        def tell(probe: Probe | None, done: bool = False, place: int = place) -> None:
            pipe.send((place, probe, done))

        found = None
        with contextlib.suppress(Exception):
            found = _probe(batch, min(LONGEST, max(SHORTEST, share)), bare, tell)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        tell(found, done=True)
    pipe.send((OVER, None, True))
    pipe.close()


def _probe(batch: Batch, seconds: float, bare: bool, tell: Any) -> Probe:
    """Run a batch for some time; tell what is known before its records are made."""
    spec, size = batch[0].spec, len(batch)
    if "task" in spec:
        tell(None)
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        clock = Clock()
        task_of(spec["task"]).facts(batch[0])
        return Probe(1, first=clock.lap())
    warm_up(spec["algorithm"]["name"], json.dumps(spec["loss"], sort_keys=True))
    clock = Clock()
    problem_of(spec)
    load = clock.lap()
    tell(None)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    before, clock = _calibrations(), Clock()
    early, fresh = _ready(batch), clock.lap()
    new = _calibrations() != before
    clock.lap()
    run, setup = _ready(batch), clock.lap()
    found = Probe(size, load, max(fresh - setup, 0.0) if new else 0.0, setup)
    if early is None:
        return found
    best, rows = _timed(found, batch, early, seconds)
    if best.seconds(rows.iteration[-1], 0) < AGAIN:
        again, later = Clock(), _ready(batch)
        found = found._replace(setup=min(setup, again.lap()))
        tried = (_timed(found, batch, one, seconds)[0] for one in (run, later))
        best = min(tried, key=lambda probe: probe.seconds(rows.iteration[-1], 51))
    tell(best)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    return best if bare else best._replace(end=_recorded(early, run))


def _calibrations() -> int:
    """Return what changes when a calibration is computed, not read from the cache."""
    folder = cache_dir() / "calibration"
    return folder.stat().st_mtime_ns if folder.is_dir() else 0


def _ready(batch: Batch) -> Any:
    """Return a batch that may begin, None if the algorithm refuses it."""
    spec = batch[0].spec
    solvers = [solver_of(trial.spec) for trial in batch]
    told = (Budget(**spec["budget"]), spec["calibration"])
    try:
        run = Run(problem_of(spec), solvers, *told, [t.identity for t in batch])
        return run.declare()
    except Unsupported:
        return None


def _timed(probe: Probe, batch: Batch, run: Any, seconds: float) -> tuple[Probe, Any]:
    """Take the first steps of a batch, in stretches that double."""
    whole, laps = Clock(), _Laps()
    oracle, total = run.oracle(), run.solver.iterations(run.problem)
    run.rows = rows = Recorder(oracle, run.solver)
    wanted = set(checkpoints_of(total, batch[0].spec["n_checkpoints"]))
    grid = sorted(wanted.union(2**i for i in range(total.bit_length())))
    last = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for last, w in zip(grid, run.steps(oracle, grid), strict=True):
            laps.end("first" if last <= 1 else "steps")
            if last in wanted or last <= 1:
                rows.add(last, 0.0, w)
                laps.end("rows")
            if laps.seconds["steps"] > seconds:
                break
    took = laps.within(whole.lap())
    step = took["steps"] / (last - 1) if last > 1 else 0.0
    row = took["rows"] / len(rows.iteration)
    return probe._replace(first=took["first"], step=step, row=row), rows


def _recorded(solved: Any, other: Any) -> float:
    """Return the seconds that the records take, once the optimum is on disk."""
    _ = solved.problem.optimum
    clock = Clock()
    _ = other.problem.optimum
    for place in range(len(solved.solvers)):
        facts(solved, place)
        trajectory(solved.rows, place)
    return clock.lap()


class Clock:
    """Seconds of work since it was last asked.

    The wall's clock counts other processes' turns, the processor's own ticks are
    coarse on some machines: what the ticks allow is the most that counts.
    """

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def lap(self) -> float:
        """Return them, and begin anew."""
        wall, cpu = self._wall, self._cpu
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return min(self._wall - wall, self._cpu - cpu + TICK)


class _Laps:
    """Seconds of the wall's clock by what was done in them."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("first", "steps", "rows"), 0.0)
        self._start = time.perf_counter()

    def end(self, done: str) -> None:
        """Say what was done since the last end."""
        start, self._start = self._start, time.perf_counter()
        self.seconds[done] += self._start - start

    def within(self, whole: float) -> dict[str, float]:
        """Return them with the turns of other processes taken out evenly."""
        share = whole / max(math.fsum(self.seconds.values()), whole, 1e-9)
        return {done: value * share for done, value in self.seconds.items()}
