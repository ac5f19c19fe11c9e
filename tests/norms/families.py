"""Norms for p = 6, with the set functions that define them."""

import itertools
import math

import numpy as np

from dp_erm_bench.norms.base import SubmodularNorm
from dp_erm_bench.norms.cardinality import CardinalityNorm
from dp_erm_bench.norms.general import FromGains
from dp_erm_bench.norms.groups import GroupNorm
from dp_erm_bench.norms.range import RangeNorm
from dp_erm_bench.norms.tabulated import Tabulated

P = 6
SETS = [A for k in range(1, P + 1) for A in itertools.combinations(range(P), k)]
POINT = np.array([0.9, -0.4, 0.0, 0.25, -1.1, 0.05])
APART, LAPPED = ((0, 1, 2), (3, 4, 5)), ((0, 1, 2), (2, 3), (3, 4, 5, 0))
WEIGHTS = (1.0, 0.5, 2.0)


def covers(groups, weights):
    return lambda A: math.fsum(
        w for w, group in zip(weights, groups, strict=True) if set(A) & set(group)
    )


def mixed(A):
    """No function of a family: a cover and a root."""
    return covers(LAPPED, WEIGHTS)(A) + math.sqrt(len(A))


def listed(F, p=P):
    """The values of F on all sets, in the order of a table."""
    sets = ([j for j in range(p) if m >> j & 1] for m in range(2**p))
    return [F(A) if A else 0.0 for A in sets]


class Gains:
    """F by its definition, for ``FromGains``."""

    def __init__(self, F):
        self.F = F

    def gains(self, order):
        values = [self.F(order[:k]) if k else 0.0 for k in range(len(order) + 1)]
        return np.diff(values)


FAMILIES: dict[str, tuple[SubmodularNorm, object]] = {
    "count": (CardinalityNorm("count"), len),
    "one": (CardinalityNorm("one"), lambda A: 1.0),
    "sqrt": (CardinalityNorm("sqrt"), lambda A: math.sqrt(len(A))),
    "capped": (CardinalityNorm("capped", 3), lambda A: min(len(A), 3)),
    "capped_between": (CardinalityNorm("capped", 2.5), lambda A: min(len(A), 2.5)),
    "log1p": (CardinalityNorm("log1p"), lambda A: math.log1p(len(A))),
    "groups": (GroupNorm(APART), covers(APART, (1.0, 1.0))),
    "lapped": (GroupNorm(LAPPED, WEIGHTS), covers(LAPPED, WEIGHTS)),
    "range": (RangeNorm(), lambda A: P - 2 + max(A) - min(A) + 1),
    "table": (Tabulated(listed(mixed)), mixed),
    "gains": (FromGains(Gains(mixed)), mixed),
}
