"""Base classes of algorithms whose steps use sums over samples of the records."""

import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from dp_erm_bench.solvers.base import Array, Indices, shape
from dp_erm_bench.solvers.bounds import norm_bound, step_unit
from dp_erm_bench.solvers.runs import Iterative, State
from dp_erm_bench.solvers.terms import ERM, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork, full_gradient

# Number of noise values drawn at once per trial: half a megabyte, which fits in caches.
CHUNK = 1 << 16

Batches = tuple[Indices, Indices]


def batch_field(
    what: str = "expected number of records in a batch; full: all n records",
) -> Any:
    """Return a dataclass field for a batch size."""
    return shape(1, least=1, words=("full",), help=what)


def expected_batch(problem: ERM, batch_size: int | str) -> int:
    """Return the expected batch size q n."""
    return problem.n if batch_size == "full" else int(batch_size)


def batch_refusal(problem: ERM, batch_size: int | str) -> str | None:
    """Return the reason why a batch size does not fit the data, or None if it does."""
    if expected_batch(problem, batch_size) > problem.n:
        return f"batch_size={batch_size}: must be at most n={problem.n}, or full"
    return None


def sampled_step(problem: ERM, records: float) -> StepWork:
    """Return the work of a compiled step on a number of records, without noise."""
    return StepWork(walked=records * problem.entries / problem.n, records=records)


class Sampled(Iterative):
    """An algorithm whose steps use samples of the records.

    Subclasses define the fields ``batch_size``, ``step`` and ``clip``.
    """

    batch_size: int | str
    step: float
    clip: float | None

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why the batch size does not fit the data, or None."""
        return batch_refusal(problem, self.batch_size)

    def expected_batch(self, problem: ERM) -> float:
        """Return the expected batch size q n."""
        return expected_batch(problem, self.batch_size)

    def rate(self, problem: ERM) -> float:
        """Return the sampling rate q."""
        return self.expected_batch(problem) / problem.n

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a compiled step, or of a full gradient if q is 1."""
        p, size = problem.p, self.expected_batch(problem)
        if size == problem.n:
            gradient = full_gradient(problem, self.clips)
            return gradient._replace(calls=1.0, draws=p, features=3 * p)
        return sampled_step(problem, size)._replace(draws=p)


class SampledState(State):
    """The state of B trials that sample the records in every step.

    Parameters
    ----------
    oracle : Oracle
        Holds the iterates of B trials and answers queries about the records.
    mechanisms : Mechanisms
        The declared releases with their noise, by name.
    sampled : str
        Name of the release that samples the records and publishes the sums.
    solver : Sampled
        The algorithm and its parameters.
    """

    def __init__(
        self, oracle: Oracle, mechanisms: Mechanisms, sampled: str, solver: Sampled
    ) -> None:
        problem, column = oracle.problem, (oracle.batch, 1)
        self.oracle = oracle
        self.sampled: Any = mechanisms[sampled]
        self.ahead = mechanisms.ahead
        self.expected = float(solver.expected_batch(problem))
        self.clip = np.broadcast_to(norm_bound(problem, solver.clip), column)
        unit = step_unit(problem, self.clip)
        self.step = np.broadcast_to(solver.step * unit, column)
        self.done = 0

    def advance(self, k: int) -> None:
        """Make k steps in each trial, in compiled code if q < 1, else one by one."""
        compiled = self.ahead and self.sampled.rate < 1.0
        most = max(1, CHUNK // self.oracle.problem.p) if compiled else 1
        while k:
            piece = min(k, most, self.prepare_step())
            if compiled:
                self._take_compiled_steps(piece)
            else:
                self.make_step()
            self.done += piece
            k -= piece

    def prepare_step(self) -> int:
        """Prepare the next steps, and return the number of steps that are prepared."""
        return sys.maxsize

    @abstractmethod
    def make_step(self) -> None:
        """Make one step in each trial, with the same result as compiled code."""

    @abstractmethod
    def make_steps(self, trial: int, batches: Batches, noise: Array) -> None:
        """Make the next k steps of one trial in compiled code.

        Parameters
        ----------
        trial : int
            Index of the trial in the batch.
        batches : (records, offsets)
            Step t uses ``records[offsets[t]:offsets[t + 1]]``.
        noise : array of shape (k, p)
            The noise of each step.
        """

    def _take_compiled_steps(self, k: int) -> None:
        noise = self.sampled.take_vectors(k, self.oracle.problem.p)
        for b in range(self.oracle.batch):
            batches = self.sampled.sample(b, self.oracle.problem.n, k)
            self.make_steps(b, batches, noise[b])
        self.oracle.touch()

    def sums(self, *oracles: Oracle) -> Sequence[Array]:
        """Return sums of clipped gradients over each trial's sample, each (B, p).

        There is one sum per oracle. Each call draws a new sample, which all oracles
        share.
        """
        if self.sampled.rate == 1.0:
            return [oracle.clipped_sum(self.clip) for oracle in oracles]
        n, trials = self.oracle.problem.n, range(self.oracle.batch)
        samples = [self.sampled.sample(b, n, 1)[0] for b in trials]
        clips = self.clip[:, 0].tolist()
        return [
            np.stack([oracle.record_sum(b, samples[b], clips[b]) for b in trials])
            for oracle in oracles
        ]
