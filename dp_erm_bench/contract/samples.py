"""Samples are those that their mechanism draws: what amplification is charged for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.errors import require
from dp_erm_bench.contract.runs import Run
from dp_erm_bench.privacy.mechanisms import PoissonMechanism
from dp_erm_bench.privacy.sampling import CoinStream
from dp_erm_bench.privacy.streams import stream_seeds
from dp_erm_bench.problems.dense_oracle import DenseOracle

Sample = tuple[int, ...]


def samples_are_those_charged(candidate: Candidate) -> None:
    """Sum the records that a fresh coin each picked, if amplification is charged."""
    for variant, problem in candidate.first():
        run = Run(problem, [candidate.build(variant, clip=1.0)])
        told = candidate.told(variant, problem)
        drawn = {name: list(_drawn(run, name)) for name in _sampled(run)}
        if not drawn:
            continue
        summed: list[Sample] = []
        with patch.object(DenseOracle, "record_sum", _listening(summed)):
            run.iterates()
        require(summed, f"{told} is charged for samples, and sums none")
        known = {sample for samples in drawn.values() for sample in samples}
        others = set(summed) - known
        require(not others, f"{told} sums records that its mechanism did not draw")
        if len(drawn) == 1:
            (samples,) = drawn.values()
            same = _distinct(summed) == _distinct(samples)
            require(same, f"{told} uses its samples otherwise than once, in order")


def _sampled(run: Run) -> list[str]:
    mechanisms = run.mechanisms.items()
    return [n for n, m in mechanisms if isinstance(m, PoissonMechanism) and m.rate < 1]


def _drawn(run: Run, name: str) -> Iterator[Sample]:
    """Yield the sample of each use, from the stream that is the mechanism's."""
    mechanism = run.mechanisms[name]
    assert isinstance(mechanism, PoissonMechanism)
    seed = stream_seeds(run.identities, f"{name}/sample")[0]
    coins = CoinStream(seed, mechanism.rate)
    for _ in range(mechanism.release.times):
        yield tuple(coins.successes(run.problem.n).tolist())


def _listening(summed: list[Sample]) -> Any:
    plain = DenseOracle.record_sum

    def record_sum(oracle: DenseOracle, trial: int, records: Any, clip: float) -> Any:
        summed.append(tuple(records.tolist()))
        return plain(oracle, trial, records, clip)

    return record_sum


def _distinct(samples: list[Sample]) -> list[Sample]:
    """Return samples without repeats in a row: a step may sum one several times."""
    return [sample for sample, _ in itertools.groupby(samples)]
