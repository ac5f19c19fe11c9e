"""What a replay shows of records that are charged for a sample, or for being read once.

The accounts of both sides are compared: which queries move with the exchanged record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.contract.hidden import present
from dp_erm_bench.contract.side import Account
from dp_erm_bench.trust.replay import changes

SLACK, STILL, HALF = 1e-7, 1e-7, 0.5
"""Rounding in a change / its sensitivity, and in a change that must be 0; the
part of a sensitivity that a sampled record's own term may have under replace_one."""


def too_large(first: Account, ratios: Mapping[str, float]) -> Iterator[str]:
    """Yield the sums over samples whose terms are too large for ``replace_one``.

    Its law needs each record's own term within half of the sensitivity; a bound on
    the difference of two terms of one sign says nothing of that
    (``releases/sampling.py``).
    """
    for name in sorted(name for name, halved in first.sampled.items() if halved):
        ratio = ratios.get(name, 0.0)
        if HALF + SLACK < ratio <= 1.0 + SLACK:
            yield (
                f"release {name}: a record's own term is {ratio:.3g} times the "
                f"declared sensitivity, at most {HALF} is charged for a sample under "
                "replace_one"
            )


def moves_of(first: Account, second: Account, name: str) -> Iterator[NDArray[np.bool_]]:
    """Yield for each use of a release which trials' queries move, (B,)."""
    queries, others = (
        [one.query for one in side.log.exchanges if one.query.name == name]
        for side in (first, second)
    )
    for one, other in zip(queries, others, strict=False):
        if one.value.shape == other.value.shape:
            yield changes(one, other).max(axis=1, initial=0.0) > STILL
        else:
            yield np.zeros(len(one.value), np.bool_)


def unsampled(first: Account, second: Account) -> Iterator[str]:
    """Yield the releases that change with a record outside their samples."""
    for name in sorted(first.sampled):
        for use, moved in enumerate(moves_of(first, second, name)):
            absent = [not present(name, b, use) for b in range(len(moved))]
            if moved[absent].any():
                yield f"release {name} moves with a record that is not in its sample"
                break


def read_again(first: Account, second: Account) -> Iterator[str]:
    """Yield the releases that read a record twice, or one that they were not handed."""
    for name, read in sorted(first.read.items()):
        moves = sum(moves_of(first, second, name), np.zeros(len(read), np.int64))
        for count, handed in zip(moves.tolist(), read, strict=True):
            if count > handed:
                times = "once" if handed else "no time"
                yield f"release {name} reads a record {count} times, {times} is charged"
                break
