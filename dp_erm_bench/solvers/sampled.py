"""What solvers share whose steps use sums over Poisson samples of the records."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.releases.base import Mechanism
from dp_erm_bench.releases.sampling import PoissonMechanism
from dp_erm_bench.solvers.base import Array, Indices, inverse
from dp_erm_bench.solvers.bounds import norm_bound

# Numbers of noise drawn at once per trial (2 MB).
CHUNK = 1 << 18

Scale = Array | float
Batches = tuple[Indices, Indices]


def expected_batch(problem: ERM, batch_size: int | str) -> int:
    """Return q n."""
    return problem.n if batch_size == "full" else int(batch_size)


def batch_refusal(problem: ERM, batch_size: int | str) -> str | None:
    """Return why a batch is larger than the data, or None."""
    if expected_batch(problem, batch_size) > problem.n:
        return f"batch_size={batch_size}: must be at most n={problem.n}, or full"
    return None


class SampledRun(ABC):
    """The state of a run: where in the schedule each trial is.

    Parameters
    ----------
    oracle : Oracle
    mechanism : PoissonMechanism
        Samples the records, and publishes the sums.
    ahead : bool
        Whether noise may be taken for many steps at once, by a compiled body.
    clip : float or array of shape (B, 1), optional
        Bound on a gradient's norm; declared bounds otherwise.
    step : float or array of shape (B, 1)
        Step size, times 1 / beta.
    expected : int
        q n.
    """

    def __init__(
        self,
        oracle: Oracle,
        mechanism: Mechanism,
        ahead: bool,
        clip: Scale | None,
        step: Scale,
        expected: int,
    ) -> None:
        assert isinstance(mechanism, PoissonMechanism)
        problem, column = oracle.problem, (oracle.batch, 1)
        self.oracle, self.sampled = oracle, mechanism
        self.compiled = ahead and mechanism.rate < 1.0
        self.expected = float(expected)
        self.clip = np.broadcast_to(norm_bound(problem, clip), column)
        beta = np.atleast_2d(problem.smoothness.norm)
        self.step = np.broadcast_to(step * inverse(beta), column)
        self.done = 0

    def advance(self, k: int) -> None:
        """Make k steps, compiled for small batches, else one by one."""
        most = max(1, CHUNK // self.oracle.problem.p) if self.compiled else 1
        while k:
            piece = min(k, most, self.prepared())
            if self.compiled:
                self._compiled(piece)
            else:
                self.make_step()
            self.done += piece
            k -= piece

    def prepared(self) -> int:
        """Do what the next step needs, and return for how many steps it serves."""
        return sys.maxsize

    @abstractmethod
    def make_step(self) -> None:
        """Make one step in each trial; the compiled body agrees."""

    @abstractmethod
    def make_steps(self, trial: int, batches: Batches, noise: Array) -> None:
        """Make the next k steps of one trial, compiled; noise has shape (k, p)."""

    def _compiled(self, k: int) -> None:
        noise = self.sampled.take_vectors(k, self.oracle.problem.p)
        for b in range(self.oracle.batch):
            batches = self.sampled.sample(b, self.oracle.problem.n, k)
            self.make_steps(b, batches, noise[b])
        self.oracle.touch()

    def sums(self, *oracles: Oracle) -> Sequence[Array]:
        """Return sums of clipped gradients over each trial's sample, each (B, p).

        One per oracle; the sample, drawn anew at each call, is the same for all.
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
