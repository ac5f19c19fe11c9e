"""A user's penalty: the sum of euclidean norms of groups (Yuan and Lin)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.extend import Penalty, UsageError


@dataclass(frozen=True)
class GroupNorm(Penalty):
    """psi(w) = strength * sum of norm2 over groups of `size` neighbouring entries."""

    name: ClassVar[str] = "group_norm"
    strength: float = 0.1
    size: int = 2

    def check_features(self, p):
        if p % self.size:
            raise UsageError(f"penalty.size={self.size}: must divide p={p}")

    def norms(self, w):
        groups = w.reshape(*w.shape[:-1], -1, self.size)
        return np.linalg.norm(groups, axis=-1)

    def value(self, w):
        return self.strength * self.norms(w).sum(axis=-1)

    def prox(self, v, step):
        size = np.repeat(self.norms(v), self.size, axis=-1)
        cut = np.minimum(step * self.strength, size)
        return v * (1.0 - cut / np.where(size > 0.0, size, 1.0))

    def dual_distance(self, w, u):
        largest = self.norms(u).max()
        s = min(1.0, self.strength / largest) if largest > 0.0 else 1.0
        products = (u * w).reshape(-1, self.size).sum(axis=1)
        slack = self.strength * self.norms(w) - s * products
        return s, float(np.maximum(slack, 0.0).sum())
