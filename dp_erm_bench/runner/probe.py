"""Short runs of batches whose cost is asked for: they are timed, nothing is recorded.

They run in a process of one thread, as a worker does, which its parent ends when the
time is over: what takes for ever, or ends its process, costs its own estimate only.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NamedTuple

from dp_erm_bench.experiment.trials import Trial
from dp_erm_bench.runner.process import ONE_THREAD

SECONDS = 20.0
"""CPU seconds that all probes together may take, whatever they are of."""

SLOWEST = 2.0
"""Seconds of the wall for each of these, at most: the machine may have other work."""

OVER = -1
"""What a child says in place of a batch when its time is over."""

PATIENCE = 15.0
"""Seconds without a word after which a probe is given up, should it only wait."""

SERVE = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from dp_erm_bench.runner.timed import serve; serve(int(sys.argv[1]))"
)
Batch = tuple[Trial, ...]


class Probe(NamedTuple):
    """CPU seconds of a batch, taken apart so that batches of its kind can be told.

    Attributes
    ----------
    size : int
        Trials in the batch.
    load : float
        To load its problem; next to nothing if an earlier probe did.
    fresh, setup : float
        To declare and calibrate it; more of it where no cache on disk knows it yet.
    first : float
        To its first iteration.
    step : float
        Each further iteration, the mean of those made.
    row : float
        To record a checkpoint.
    end : float
        To put the records together.
    """

    size: int
    load: float = 0.0
    fresh: float = 0.0
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
    found: dict[int, Probe] = {}
    left, bare, start = list(range(len(batches))), False, time.monotonic()
    deadline = start + SLOWEST * seconds
    while left and (rest := start + seconds - time.monotonic()) > 0:
        with _child() as pipe:
            pipe.send(([(i, batches[i]) for i in left], rest, deadline - start, bare))
            for place, probe, done in _messages(pipe, deadline):
                if place == OVER:
                    return found
                if probe is not None:
                    found[place] = probe
                if done:
                    left.remove(place)
        if left:
            # It was at this one: its records may need an optimum that takes long.
            bare = bare or left[0] in found
            del left[0]
    return found


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


@contextlib.contextmanager
def _child() -> Iterator[Connection]:
    """Lend the pipe of a process that probes; it ends with this block."""
    pipe, theirs = Pipe()
    handle = theirs.fileno()
    with pipe:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(handle), *sys.path],
                env={**os.environ, **ONE_THREAD},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(handle,),
            )
        try:
            yield pipe
        finally:
            process.kill()
            process.wait()
