"""What a probe's process does: run batches for a while, and tell what they took."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import ClassVar

from dp_erm_bench.accounting.calibration import forget_calibrations
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.experiment.lines import task_of
from dp_erm_bench.paths import cache_dir
from dp_erm_bench.run import Run
from dp_erm_bench.runner.execute import facts, problem_of, run_of, trajectory, warm_up
from dp_erm_bench.runner.plan import OVER, Probe
from dp_erm_bench.runner.worker import Batch
from dp_erm_bench.solvers.runs import checkpoints_of

LONGEST, SHORTEST = 0.5, 0.02
"""Seconds of steps after which a probe stops, as far as the others leave them."""

AGAIN = 0.1
"""What took less is run again: the first time it loads and imports what it needs."""

TICK = 0.02
"""Seconds by which the processor's clock may lag at most."""

LIMIT = 5.0
"""CPU seconds after which the kernel ends this process, no message having come."""

Tell = Callable[[Probe | None], None]


def serve(handle: str) -> None:
    """Probe the batches that come through a pipe; the child's only function."""
    os.set_inheritable(int(handle), False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for deadly in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(deadly, signal.SIG_DFL)
    pipe = Connection(int(handle))
    batches, seconds, longest, bare = pipe.recv()
    # Should its parent be killed, the kernel ends this process.
    signal.setitimer(signal.ITIMER_REAL, longest + 1.0)
    deadline = time.process_time() + seconds
    for number, (place, batch) in enumerate(batches):
        share = (deadline - time.process_time()) / (len(batches) - number)
        if share < 0.0:
            break

        def tell(probe: Probe | None, place: int = place) -> None:
            pipe.send((place, probe, False))
            signal.setitimer(signal.ITIMER_PROF, LIMIT)

        probe = None
        with contextlib.suppress(Exception):
            probe = _probe(batch, min(LONGEST, max(SHORTEST, share)), bare, tell)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        pipe.send((place, probe, True))
    pipe.send((OVER, None, True))
    pipe.close()


def _probe(batch: Batch, seconds: float, bare: bool, tell: Tell) -> Probe:
    """Run a batch for some time; tell its probe before its records are written."""
    spec = batch[0].spec
    if "task" in spec:
        tell(None)
        clock = Clock()
        task_of(spec["task"]).facts(batch[0])
        return Probe(1, first=clock.lap())
    clock = Clock()
    warm_up(spec["algorithm"]["name"], json.dumps(spec["loss"], sort_keys=True))
    cold = clock.lap()
    problem_of(spec)
    load = clock.lap()
    tell(None)
    before, clock = _calibrations(), Clock()
    early, first = _ready(batch), clock.lap()
    new = _calibrations() != before
    forget_calibrations()
    clock.lap()
    _, second = _ready(batch), clock.lap()
    run, setup = _ready(batch), clock.lap()
    proof, late = max(second - setup, 0.0), max(first - second, 0.0)
    fresh, cold = (proof + late, cold) if new else (proof, cold + late)
    probe = Probe(len(batch), load, fresh, proof, cold, setup)
    if early is None or run is None:
        return probe
    best = _best(probe, batch, (early, run), seconds)
    tell(best)
    if bare:
        return best
    # Once the optimum is on disk.
    _ = early.problem.optimum
    ends = [_recorded(early), _recorded(early)]
    return best._replace(cold=best.cold + ends[0] - min(ends), end=min(ends))


def _best(probe: Probe, batch: Batch, runs: tuple[Run, Run], seconds: float) -> Probe:
    """Return the probe of a run that has been made before, for its first is cold."""
    early, again = runs
    iterations = early.solver.iterations(early.problem)
    first = _timed(probe, batch, early, seconds)
    if first.seconds(iterations, 0) < AGAIN:
        second = _timed(probe, batch, again, seconds)
        row, step = min(first.row, second.row), min(first.step, second.step)
        late = (first.row - row) * len(early.rows.iteration)
    else:
        # Its first steps are enough.
        second = _timed(probe, batch, again, 0.0)
        row, step, late = first.row, first.step, 0.0
    start = min(first.first, second.first)
    cold = probe.cold + first.first - start + late
    return probe._replace(cold=cold, first=start, step=step, row=row)


def _calibrations() -> int:
    """Return what changes when a calibration is computed, not read from the cache."""
    folder = cache_dir() / "calibration"
    return folder.stat().st_mtime_ns if folder.is_dir() else 0


def _ready(batch: Batch) -> Run | None:
    """Return a batch that may begin, None if the algorithm refuses it."""
    with contextlib.suppress(Unsupported):
        return run_of(batch, problem_of(batch[0].spec)).declare()
    return None


def _timed(probe: Probe, batch: Batch, run: Run, seconds: float) -> Probe:
    """Take the first steps of a batch, in stretches that double."""
    clock, begin = Clock(), time.perf_counter()
    total = run.solver.iterations(run.problem)
    grid = set(checkpoints_of(total, batch[0].spec["n_checkpoints"]))
    grid |= {2**i for i in range(total.bit_length())}
    first = elapsed = 0.0
    for rows in run.recording(sorted(grid)):
        elapsed = rows.seconds[-1] * probe.size
        first = elapsed if rows.iteration[-1] <= 1 else first
        if elapsed - first > seconds:
            break
    wall, work = time.perf_counter() - begin, clock.lap()
    # The turns of other processes are taken out evenly.
    share = work / max(wall, work, 1e-9)
    step = share * (elapsed - first) / max(rows.iteration[-1] - 1, 1)
    row = share * (wall - elapsed) / len(rows.iteration)
    return probe._replace(first=share * first, step=step, row=row)


def _recorded(solved: Run) -> float:
    """Return the seconds that the records take."""
    clock = Clock()
    for place in range(len(solved.solvers)):
        facts(solved, place)
        trajectory(solved.rows, place)
    return clock.lap()


class Clock:
    """Seconds of work since it was last asked.

    The wall's clock counts other processes' turns, the processor's own ticks are
    coarse on some machines: what the ticks allow is the most that counts. It is that
    of this thread, for a process's own is coarse while a timer of it runs.
    """

    _tick: ClassVar[float | None] = None

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def lap(self) -> float:
        """Return them, and begin anew."""
        wall, cpu = self._wall, self._cpu
        self._wall, self._cpu = time.perf_counter(), time.thread_time()
        return min(self._wall - wall, self._cpu - cpu + self.tick())

    @classmethod
    def tick(cls) -> float:
        """Return the seconds by which the processor's clock goes on, found once."""
        if cls._tick is None:
            start = last = time.thread_time()
            begin = time.perf_counter()
            while last == start and time.perf_counter() - begin < TICK:
                last = time.thread_time()
            cls._tick = last - start if last > start else TICK
        return cls._tick
