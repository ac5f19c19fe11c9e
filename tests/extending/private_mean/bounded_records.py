"""A user's problem without labels: the mean of records in a euclidean ball."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import ClassVar

import numpy as np

from dp_erm_bench.extend import Optimum, Problem, UsageError


@dataclass(frozen=True, eq=False)
class BoundedRecords(Problem):
    """F(w) = norm2(w - mean of the records), all of norm at most `radius`."""

    kind: ClassVar[str] = "the mean in a ball"

    records: np.ndarray
    radius: float = 1.0

    def __post_init__(self):
        longest = np.linalg.norm(self.records, axis=1).max()
        if not longest <= self.radius * (1.0 + 1e-12):
            raise UsageError(f"radius={self.radius}: a record has norm {longest:g}")

    @property
    def n(self):
        return len(self.records)

    @property
    def p(self):
        return self.records.shape[1]

    @property
    def spec(self):
        return {"problem": {"name": "bounded_records", "radius": self.radius}}

    @cached_property
    def identity(self):
        head = f"bounded_records {self.radius} {self.records.shape}"
        return sha256(head.encode() + self.records.tobytes()).hexdigest()

    @cached_property
    def mean(self):
        return self.records.mean(axis=0)

    @property
    def optimum(self):
        reason = "the minimum is 0, a relative error has no meaning"
        return Optimum(None, None, None, reason)

    def value(self, w):
        return np.linalg.norm(w - self.mean, axis=-1)

    def contains(self, w):
        return np.isfinite(w).all(axis=-1)

    def facts(self):
        return {"radius": self.radius}

    @classmethod
    def neighbours(cls, zeroed):
        first, other = np.zeros((10, 3)), np.zeros((10, 3))
        first[0, 0], other[0, 0] = 1.0, 0.0 if zeroed else -1.0
        return cls(first), cls(other)
