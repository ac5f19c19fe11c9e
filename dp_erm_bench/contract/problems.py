"""The small problems that algorithms are checked on, and their neighbours.

Two neighbours differ in one record, which is exchanged or set to zero. In each family
this record decides a quantity that a solver might read without a mechanism. Examples
are the largest or the median norm, the scale of a column, whether a column is empty or
constant, the classes, the range of the labels, and a rank.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench import registry
from dp_erm_bench.datasets.base import Bounds, Dataset
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.objective import ReleasedSmoothness
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.registry import build
from dp_erm_bench.releases.adjacency import Adjacency

Array = NDArray[np.float64]
Parts = tuple[str, str, str]
RADIUS = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 0.3])


def objectives(constrained: bool = False) -> list[Parts]:
    """Return triples of a loss, a penalty and a constraint for checks of algorithms.

    Every loss of `curved_losses` is combined with every separable penalty. If
    ``constrained``, it is also combined with every constraint (without a penalty). Few
    algorithms support the other losses, so these losses get fewer combinations. Each
    separable penalty and each constraint gets one loss with a kink. Each linear or
    non-convex loss gets a ridge penalty and one constraint. Penalties that are not
    separable cost more time. If such a penalty exists for every p, it is combined with
    two losses.
    """
    losses, free = curved_losses(), ["none"]
    others = [name for name in registry.names("loss") if name not in losses]
    linear = [name for name in others if build("loss", name).smooth]
    kinked = itertools.cycle(name for name in others if name not in linear)
    penalties = separable_penalties()
    names = [
        *itertools.product(losses, penalties, free),
        *((next(kinked), penalty, "none") for penalty in penalties),
        *((name, "l2", "none") for name in linear),
    ]
    for k, other in enumerate(sorted({*registry.names("penalty")} - {*penalties})):
        if registry.target("penalty", other).everywhere:
            turn = [losses[k % len(losses)], losses[(k + 1) % len(losses)]]
            names += itertools.product(turn, [other], free)
    if constrained:
        sets = [name for name in registry.names("constraint") if name not in free]
        names += [
            *itertools.product(losses, free, sets),
            *((next(kinked), "none", name) for name in sets),
            *((name, "none", sets[0]) for name in linear),
        ]
    return names


def curved_losses() -> list[str]:
    """Return the names of convex losses with a positive, finite smoothness constant."""
    built = {name: build("loss", name) for name in registry.names("loss")}
    return [name for name, loss in built.items() if loss.is_curved and loss.convex]


@functools.cache
def separable_penalties() -> tuple[str, ...]:
    """Return the names of the separable penalties, which compiled kernels support."""
    return tuple(
        name
        for name in registry.names("penalty")
        if issubclass(registry.target("penalty", name), SeparablePenalty)
    )


def objective_problem(
    data: Dataset,
    loss: str,
    penalty: str,
    constraint: str = "none",
    strength: float = 0.02,
    **box: float,
) -> ERMProblem:
    """Return the problem with a given loss, penalty and constraint on a dataset.

    Parameters
    ----------
    data : Dataset
        The records.
    loss, penalty, constraint : str
        Names of the parts of the objective.
    strength : float
        Strength of the penalty, if it has one.
    **box : float
        Parameters of the penalty ``box``.
    """
    psi = build("penalty", penalty)
    values: dict[str, Any] = psi.example(data.p)
    values |= {"strength": strength} if hasattr(psi, "strength") else {}
    values = dict(box) if penalty == "box" else values
    space = registry.target("constraint", constraint).example(data.p)
    named = {"name": penalty, **values}, {"name": constraint, **space}
    return build_problem(data, loss, *named)


@functools.cache
def small_problem(
    loss: str,
    penalty: str,
    constraint: str = "none",
    n: int = 40,
    p: int = 6,
    dead: int | None = 2,
) -> ERMProblem:
    """Return a small problem with declared bounds and one column that is all zero.

    Parameters
    ----------
    loss, penalty, constraint : str
        Names of the parts of the objective.
    n : int
        Number of records.
    p : int
        Number of features.
    dead : int or None
        Index of the column of zeros; None for no such column.
    """
    rng = np.random.default_rng(3)
    radius = RADIUS[:p].copy()
    X = rng.uniform(-1.0, 1.0, (n, p)) * radius
    if dead is not None:
        X[:, dead], radius[dead] = 0.0, 0.0
    y = np.where(X @ rng.normal(size=p) + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    bounds = Bounds(radius, float(np.linalg.norm(radius)), 1.0)
    data = dataset_from_arrays(X, y, bounds=bounds)
    return objective_problem(data, loss, penalty, constraint)


@functools.cache
def neighbours(
    adjacency: Adjacency, parts: Parts, strength: float = 0.02
) -> tuple[tuple[ERMProblem, ERMProblem], ...]:
    """Return pairs of problems that differ in the first record only.

    All records are at corners of the declared bounds. In the second problem of a pair,
    the first record has the sign of one or of all coordinates flipped, or is zero.

    Parameters
    ----------
    adjacency : Adjacency
        ``zero_out`` sets the record to zero; otherwise signs are flipped.
    parts : tuple of str
        Loss, penalty and constraint.
    strength : float
        Strength of the penalty.
    """
    rng = np.random.default_rng(0)
    X = column_bounds_of(4) * np.sign(rng.normal(size=(8, 4)))
    y = np.sign(rng.normal(size=8))
    X[0], y[0] = column_bounds_of(4) * [1.0, 1.0, -1.0, 1.0], 1.0
    base = RecordChange(X, y, 0, X[0], 1.0, largest=1.0)
    signs = [*(1.0 - 2.0 * np.eye(4)), -np.ones(4)]
    if adjacency is Adjacency.ZERO_OUT:
        signs = [np.zeros(4)]
    first, *others = (
        _build_problem(base.with_record(X[0] * sign, 1.0), parts, strength)
        for sign in (np.ones(4), *signs)
    )
    return tuple((first, other) for other in others)


@functools.cache
def well_conditioned_problem(
    loss: str, penalty: str, constraint: str = "none", noise: float = 2.0
) -> ERMProblem:
    """Return a well-conditioned problem whose noisy labels are far from separable.

    Parameters
    ----------
    loss, penalty, constraint : str
        Names of the parts of the objective.
    noise : float
        Standard deviation of the noise on the scores whose signs are the labels.
    """
    rng, p = np.random.default_rng(11), 8
    X = rng.normal(size=(200, p)) * np.linspace(0.8, 1.3, p)
    w = rng.normal(size=p) * (np.arange(p) < 5)
    y = np.where(X @ w + noise * rng.normal(size=200) > 0.0, 1.0, -1.0)
    strength = 0.05 if penalty == "l1" else 0.1
    box = {"lower": -0.1, "upper": 0.2}  # minima lie on its border
    widest, longest = np.abs(X).max(axis=0), float(np.linalg.norm(X, axis=1).max())
    data = dataset_from_arrays(X, y, bounds=Bounds(widest, longest, 1.0))
    problem = objective_problem(data, loss, penalty, constraint, strength, **box)
    assert problem.optimum.value is not None
    return problem


def relative_excess(problem: ERMProblem, w: Array) -> Array:
    """Return F(w) / min F - 1 for each row w."""
    best = problem.optimum.value
    assert best is not None
    return np.asarray(problem.value(w) / best - 1.0)


LABEL = 2.0
STRENGTH = 0.1


@dataclass(frozen=True, eq=False)
class RecordChange:
    """The records of a dataset D, and the one record that differs in its neighbour D'.

    Attributes
    ----------
    X : array of shape (n, p)
        Features on D.
    y : array of shape (n,)
        Labels on D.
    record : int
        Row of the changed record.
    other : array of shape (p,)
        Features of the changed record on D'.
    label : float
        Label of the changed record on D'.
    sparse : bool
        Whether X is stored as a sparse matrix.
    bounded : bool
        Whether bounds of the records are declared.
    nonzeros : int or None
        Declared bound on the number of nonzero entries of a record; None for no bound.
    largest : float
        Declared bound on the labels.
    """

    X: Array
    y: Array
    record: int
    other: Array
    label: float
    sparse: bool = False
    bounded: bool = True
    nonzeros: int | None = None
    largest: float = LABEL

    def with_record(self, features: Array | float, label: float) -> RecordChange:
        """Return a copy with other features and another label in the changed record."""
        X, y = self.X.copy(), self.y.copy()
        X[self.record], y[self.record] = features, label
        return replace(self, X=X, y=y)


class Neighbours(NamedTuple):
    """Two problems of the same class, and the row in which their records differ."""

    first: Any
    second: Any
    record: int


def column_bounds_of(p: int) -> Array:
    """Return the declared bounds on the p columns."""
    return np.resize([1.0, 2.0, 0.5, 3.0, 1.5], p)


def _align_records(
    rng: np.random.Generator, n: int, p: int, size: float
) -> RecordChange:
    """Return small records whose gradients have one direction, so that they add up."""
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    jitter = 0.6 + 0.4 * rng.random((n, p))
    X = size * column_bounds_of(p) * y[:, None] * jitter
    record = 2 * int(rng.integers(n // 2)) + 1  # so that the classes are unequal then
    return RecordChange(X, y, record, _corner_of_bounds(p), -float(y[record]))


def _corner_of_bounds(p: int) -> Array:
    return column_bounds_of(p) * np.where(np.arange(p) % 3 == 1, -1.0, 1.0)


def outlying_record(rng: np.random.Generator, n: int = 10, p: int = 4) -> RecordChange:
    """Return tiny records, one of which becomes large and changes its label.

    The changed record moves to a corner of the declared bounds.

    Parameters
    ----------
    rng : Generator
        Source of randomness.
    n : int
        Number of records.
    p : int
        Number of features.
    """
    return _align_records(rng, n, p, 0.05)


def record_of_lone_column(rng: np.random.Generator) -> RecordChange:
    """Return records, one of which fills an empty column and varies a constant one."""
    base = _align_records(rng, 9, 5, 0.5)
    base.X[:, 3], base.X[:, 4] = 0.0, 0.7
    other = np.append(base.X[base.record, :3], [2.5, -1.0])
    return replace(base, other=other, label=-base.label)


def record_of_other_column(rng: np.random.Generator) -> RecordChange:
    """Return records, one of which moves its only entry to another column.

    The old and the new entry are in different columns, so their contributions do not
    cancel.
    """
    base = _align_records(rng, 8, 4, 0.05)
    base.X[base.record], other = np.diag(column_bounds_of(4))[[1, 3]]
    return replace(base, other=other, label=-base.label)


def record_between_clusters(rng: np.random.Generator) -> RecordChange:
    """Return two clusters of records; the median record moves to the other cluster."""
    base = _align_records(rng, 11, 4, 0.06)
    order = rng.permutation(11)
    base.X[order[:5]] *= 15.0
    record = int(order[5])
    return RecordChange(base.X, base.y, record, 15.0 * base.X[record], base.y[record])


def lone_nonzero_record(rng: np.random.Generator) -> RecordChange:
    """Return records of zeros, one of which becomes nonzero.

    Only the entries of this record are not whole numbers; all others are.
    """
    X, y = np.zeros((5, 4)), np.where(np.arange(5) % 2 == 0, 1.0, -1.0)
    return RecordChange(
        X, y, 2 * int(rng.integers(2)) + 1, 0.99 * column_bounds_of(4), -1.0
    )


def record_inside(rng: np.random.Generator) -> RecordChange:
    """Return a cloud of records, one of which is replaced by another record."""
    X = np.clip(0.3 * rng.normal(size=(15, 6)), -1.0, 1.0) * column_bounds_of(6)
    y = np.where(X @ rng.normal(size=6) > 0.0, 1.0, -1.0)
    record = int(rng.integers(15))
    other = np.clip(0.6 * rng.normal(size=6), -1.0, 1.0) * column_bounds_of(6)
    return RecordChange(X, y, record, other, y[record])


def record_opposed_to_all(rng: np.random.Generator) -> RecordChange:
    """Return equal records and one with opposite features, whose label changes.

    If a solver subtracts a mean, the change of the mean then adds to the change of the
    record instead of reducing it.
    """
    X = np.tile(_corner_of_bounds(4), (9, 1))
    record = int(rng.integers(9))
    X[record] *= -1.0
    return RecordChange(X, np.full(9, -LABEL), record, X[record], LABEL)


def widest_label(rng: np.random.Generator) -> RecordChange:
    """Return records with real labels, one of which widens the range of the labels."""
    X, record = (
        rng.uniform(-1.0, 1.0, (9, 4)) * column_bounds_of(4),
        int(rng.integers(9)),
    )
    return RecordChange(X, rng.uniform(-0.1, 0.1, 9), record, X[record], LABEL)


def record_without_bounds(
    rng: np.random.Generator, n: int, times: float
) -> RecordChange:
    """Return records without declared bounds, one of which is moved very far.

    Parameters
    ----------
    rng : Generator
        Source of randomness.
    n : int
        Number of records.
    times : float
        The record moves to this multiple of the usual corner.
    """
    base, other = _align_records(rng, n, 4, 0.3), times * _corner_of_bounds(4)
    return replace(base, other=other, bounded=False)


def _scatter_entries(rng: np.random.Generator, n: int, p: int) -> RecordChange:
    base = _align_records(rng, n, p, 0.2)
    filled = rng.random((n, p)) < 0.15
    filled[:, p - 1] = False  # a column that the record alone will fill
    other = np.where(rng.random(p) < 0.3, _corner_of_bounds(p), 0.0)
    other[p - 1] = _corner_of_bounds(p)[p - 1]
    X = np.where(filled, base.X, 0.0)
    most = max(np.count_nonzero(X, axis=1).max(), np.count_nonzero(other))
    # A public bound, as if known beforehand: it holds on both datasets.
    return replace(base, X=X, other=other, sparse=True, nonzeros=min(int(most) + 1, p))


ENORMOUS = "a square that overflows"
FAMILIES: dict[str, Callable[[np.random.Generator], RecordChange]] = {
    "outlier": outlying_record,
    "lone column": record_of_lone_column,
    "other column": record_of_other_column,
    "clusters": record_between_clusters,
    "empty": lone_nonzero_record,
    "interior": record_inside,
    "opposed": record_opposed_to_all,
    "range of labels": widest_label,
    "one column": partial(_align_records, n=6, p=1, size=0.1),
    "no bounds": partial(record_without_bounds, n=14, times=100.0),
    ENORMOUS: partial(record_without_bounds, n=10, times=1e200),
    "sparse": partial(_scatter_entries, n=60, p=34),
    "wide": partial(outlying_record, n=8, p=30),
    "many": partial(outlying_record, n=1302, p=5),
    "sparse and many": partial(_scatter_entries, n=1102, p=27),
    "very many": partial(outlying_record, n=12_008, p=3),
}
LARGE = ("wide", "sparse", "many", "sparse and many", "very many")
FAR = {"far": (60, 4), "far and sparse": (300, 12), "far and long": (3000, 3)}
"""Families of two datasets that have only n, p, bounds and format in common."""
CORNERS = "corners"
SEARCHED: dict[str, RecordChange] = {}
"""Neighbours that a search has made, by the names of their families."""


def name_of_size(family: str, n: int, p: int, record: int | None = None) -> str:
    """Return the name of a family like a given one, but of another size.

    Parameters
    ----------
    family : str
        The records are made as in ``sparse`` if this name contains "sparse", otherwise
        as in ``outlier``.
    n : int
        Number of records, at least 2.
    p : int
        Number of features.
    record : int or None
        Row of the record in which the neighbours differ; None for the last one.
    """
    record = n - 1 if record is None else record
    kind = "sparse" if "sparse" in family else "outlier"
    return f"{kind} of {n} records, {p} features, record {record}"


def change_of(family: str) -> RecordChange:
    """Return the records of a family, and the one record that differs on D'."""
    if family in SEARCHED:
        return SEARCHED[family]
    rng = np.random.default_rng([7, len(family)])
    if family in FAMILIES:
        return FAMILIES[family](rng)
    n, p, record = map(int, re.findall(r"\d+", family))
    change = (_scatter_entries if "sparse" in family else outlying_record)(
        rng, n=n, p=p
    )
    # The record of the family is swapped into the wanted row.
    swapped = np.arange(n)
    swapped[[change.record, record]] = record, change.record
    X, y = change.X[swapped], change.y[swapped]
    return replace(change, X=X, y=y, record=record)


@lru_cache(maxsize=512)
def neighbours_of(
    family: str, adjacency: Adjacency, parts: Parts, strength: float = STRENGTH
) -> Neighbours:
    """Return the neighbouring problems of a family.

    Under ``zero_out`` the features of the outlying record are zero on D'.

    Parameters
    ----------
    family : str
        Name of the family; ``corners k`` is pair k of `neighbours`.
    adjacency : Adjacency
        How the record differs.
    parts : tuple of str
        Loss, penalty and constraint.
    strength : float
        Strength of the penalty.
    """
    if family.startswith(CORNERS):
        # A family may name ``zero_out``: a record of zeros is a replacement, too.
        _, number, *kind = family.split()
        pairs = neighbours(Adjacency(*kind) if kind else adjacency, parts, strength)
        return Neighbours(*pairs[int(number)], 0)
    if family in FAR:
        return _far_apart(family, parts, strength)
    here = change_of(family)
    there = here.with_record(here.other, here.label)
    if adjacency is Adjacency.ZERO_OUT:
        # D has the outlying record here, and D' has it set to zero.
        here, there = there, there.with_record(0.0, here.label)
    first, second = (_build_problem(end, parts, strength) for end in (here, there))
    return Neighbours(first, second, here.record)


def _far_apart(family: str, parts: Parts, strength: float) -> Neighbours:
    """Return two problems without a common record.

    The norms, classes and densities of their records differ, too.
    """
    n, p = FAR[family]
    rng, sparse = np.random.default_rng([7, n]), "sparse" in family
    few, most = (
        np.where(np.arange(n) < some, 1.0, -1.0) for some in (n // 10, n - n // 20)
    )
    small = 0.1 * rng.uniform(-1.0, 1.0, (n, p)) * column_bounds_of(p)
    large = most[:, None] * column_bounds_of(p) * rng.uniform(0.6, 1.0, (n, p))
    made = []
    for X, y, density in ((small, few, 0.1), (large, most, 0.5)):
        X = np.where(rng.random((n, p)) < density, X, 0.0) if sparse else X
        change = RecordChange(X, y, 0, X[0], y[0], sparse)
        made.append(_build_problem(change, parts, strength))
    return Neighbours(made[0], made[1], 0)


def _build_problem(change: RecordChange, parts: Parts, strength: float) -> ERMProblem:
    """Return the problem on the dataset D of a change."""
    from scipy.sparse import csc_array

    loss, bound = build("loss", parts[0]), column_bounds_of(change.X.shape[1])
    longest = float(np.linalg.norm(bound))
    declared = Bounds(bound, longest, change.largest, change.nonzeros)
    data = dataset_from_arrays(
        csc_array(change.X) if change.sparse else change.X,
        np.where(change.y < 0.0, -1.0, 1.0) if loss.classification else change.y,
        bounds=declared if change.bounded else None,
    )
    problem = objective_problem(data, *parts, strength=strength)
    if change.bounded:
        return problem.with_smoothness("public")
    # Treated as published: without bounds the constants would come from the data.
    constants = np.atleast_2d(loss.smoothness * np.square(bound))
    return problem.with_released(ReleasedSmoothness(constants, "declared"))
