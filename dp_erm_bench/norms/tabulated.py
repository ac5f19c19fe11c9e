"""A norm from the values of F on all sets."""

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError
from dp_erm_bench.norms.base import Array, Indices
from dp_erm_bench.norms.extreme import LISTED, ROUNDED
from dp_erm_bench.norms.general import General, first_values
from dp_erm_bench.paths import load_numbers


@dataclass(frozen=True)
class Tabulated(General):
    """F given by its value on every set of up to 16 coordinates.

    Parameters
    ----------
    values : sequence of 2^p floats, or the path of a .npy or .csv file of them
        Value number m is F of the coordinates j whose bit 2^j is set in m. A file is
        read when the norm is built. The values are kept and are part of the key of a
        trial.
    """

    values: Any = None

    def __post_init__(self) -> None:
        """Read and check the values; keep them as a tuple."""
        table = _table_of(self.values)
        _check_submodular(table)
        object.__setattr__(self, "values", tuple(table.tolist()))

    @functools.cached_property
    def table(self) -> Array:
        """Return the values, shape (2^p,)."""
        return np.array(self.values)

    def check_features(self, p: int) -> None:
        """Raise UsageError if the values are for another number of features."""
        if len(self.values) != 2**p:
            raise UsageError(
                f"values of {len(self.values)} sets: must be 2^p = {2**p}, one for "
                f"each set of the p={p} features"
            )

    def gains(self, order: Indices) -> Array:
        """Return differences of the values along an order."""
        sets = np.cumsum(np.left_shift(1, order), axis=-1)
        return np.diff(self.table[sets], axis=-1, prepend=0.0)

    def dual(self, s: Array) -> tuple[float, NDArray[np.bool_]]:
        """Return the largest |s|(A) / F(A) over all sets, and the mask of its set."""
        sums = np.zeros(1)
        for size in np.abs(s):
            sums = np.concatenate([sums, sums + size])
        ratios = sums[1:] / self.table[1:]
        best = int(ratios.argmax()) + 1
        return float(ratios[best - 1]), (best >> np.arange(s.size)) & 1 == 1

    def reach(self, p: int) -> float:
        """Return the largest norm of a vertex over all orders, computed set by set."""
        table, sets = self.table, np.arange(2**p)
        size, best = np.bitwise_count(sets), np.zeros(2**p)
        for count in range(1, p + 1):
            now = sets[size == count]
            for j in range(p):
                own = now[(now >> j) & 1 == 1]
                before = own ^ (1 << j)
                through = best[before] + np.square(table[own] - table[before])
                best[own] = np.maximum(best[own], through)
        return math.sqrt(float(best[-1]))

    def spread(self, p: int) -> float:
        """Return the largest sqrt|A| / F(A) over all sets."""
        roots = np.sqrt(np.bitwise_count(np.arange(1, 2**p)).astype(float))
        return float((roots / self.table[1:]).max())

    def of_masks(self, masks: NDArray[np.bool_]) -> Array:
        """Return the values of the sets that masks (m, p) describe, shape (m,)."""
        return np.asarray(
            self.table[masks @ np.left_shift(1, np.arange(masks.shape[1]))]
        )


def _table_of(values: Any) -> Array:
    is_path = isinstance(values, str | Path)
    listed = load_numbers(Path(values), "values") if is_path else values
    try:
        table = np.array(listed)
    except ValueError:  # of several lengths
        table = np.empty(0)
    # A flat list would be an axis of a sweep; a file may have rows of any length.
    if is_path or (table.ndim == 2 and len(table) == 1):
        table = table.ravel()
    p = table.size.bit_length() - 1
    if table.dtype.kind not in "iuf" or table.ndim != 1 or table.size != 2 ** max(p, 1):
        raise UsageError(
            f"values={first_values(values)}: must be the 2^p values of F on all sets "
            "of p "
            "features, a list or the path of a .csv or .npy file"
        )
    if p > LISTED:
        raise UsageError(
            f"values of {table.size} sets of p={p} features: must be for p <= {LISTED}"
            "; for more give an object with gains(order) from Python"
        )
    if not np.isfinite(table).all():
        raise UsageError(f"values={first_values(values)}: must be finite")
    return table.astype(np.float64)


def _check_submodular(F: Array) -> None:
    """Raise UsageError, naming sets, unless F is nondecreasing and submodular.

    F is submodular if and only if F(A + i) + F(A + j) >= F(A + i + j) + F(A) for all A,
    i, j.
    """
    p, sets = F.size.bit_length() - 1, np.arange(F.size)
    slack = ROUNDED * float(np.abs(F).max())
    if F[0] != 0.0:
        raise UsageError(f"values: F({{}}) = {F[0]:g}, must be 0")
    for i in range(p):
        without = sets[(sets >> i) & 1 == 0]
        drop = F[without] - F[without | 1 << i]
        if (drop > slack).any():
            A = int(without[drop.argmax()])
            _refuse_values(
                "nondecreasing",
                f"{_value_in_words(F, A)} > {_value_in_words(F, A | 1 << i)}",
            )
        if not F[1 << i] > 0.0:
            _refuse_values(
                "a norm", f"{_value_in_words(F, 1 << i)}, must be > 0 for each feature"
            )
        for j in range(i):
            A = without[(without >> j) & 1 == 0]
            over = F[A | 1 << i | 1 << j] + F[A] - F[A | 1 << i] - F[A | 1 << j]
            if (over > slack).any():
                B = int(A[over.argmax()])
                one, other, both, none = (
                    _value_in_words(F, B | bits)
                    for bits in (1 << j, 1 << i, 1 << i | 1 << j, 0)
                )
                _refuse_values("submodular", f"{one} + {other} < {both} + {none}")


def _refuse_values(what: str, sets: str) -> None:
    raise UsageError(f"values: F is not {what}: {sets}")


def _value_in_words(F: Array, A: int) -> str:
    members = ", ".join(str(j) for j in range(A.bit_length()) if A >> j & 1)
    return f"F({{{members}}}) = {F[A]:g}"
