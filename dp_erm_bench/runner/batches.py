"""Batches: trials that one worker runs at once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dp_erm_bench.experiment.trials import Planned

Batch = tuple[Planned, ...]

LEAST = 2
"""Smaller batches are not made for balance: their kernels would be slower."""


def batches_of(planned: Iterable[Planned], most: int, aim: float) -> list[Batch]:
    """Return batches of trials that may share one, the longest work first.

    The batches depend on the trials only, never on the number of workers, so that
    any number of workers computes the same bits.

    Parameters
    ----------
    planned : iterable of Planned
        Trials without repeated keys.
    most : int
        Most trials in a batch.
    aim : float
        Work of one batch, in the unit of `Setting.work`.
    """
    groups: dict[tuple[str, int], list[Planned]] = {}
    for one in planned:
        key = (one.setting.group, one.n_checkpoints)
        groups.setdefault(key, []).append(one)
    batches: list[tuple[float, Batch]] = []
    for members in groups.values():
        work = members[0].setting.work
        for part in _parts(members, _size(members[0], most, aim)):
            batches.append((work * len(part), tuple(part)))
    batches.sort(key=lambda batch: -batch[0])
    return [trials for _, trials in batches]


def batch_size(one: Planned, members: int, most: int, aim: float) -> int:
    """Return how many of some trials that may share a batch will do so, at most.

    Parameters
    ----------
    one : Planned
        Any of them.
    members : int
        How many there are.
    most, aim
        As `batches_of` takes them.
    """
    count = math.ceil(members / _size(one, most, aim))
    return math.ceil(members / count)


def _size(one: Planned, most: int, aim: float) -> int:
    if not one.setting.batchable:
        return 1
    size = most if one.setting.work <= 0 else int(min(aim / one.setting.work, most))
    return max(size, min(LEAST, most))


def _parts(members: list[Planned], size: int) -> list[list[Planned]]:
    """Split into parts of nearly equal length."""
    count = math.ceil(len(members) / size)
    cuts = [len(members) * i // count for i in range(count + 1)]
    return [members[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
