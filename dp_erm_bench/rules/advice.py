"""Advice on the algorithm that is expected to be best without tuning.

The advice depends on public numbers alone.

**Evidence** is results/published/untuned.csv. It contains the final error of each rule
on each *cell*, which is a problem of the leaderboard at one epsilon (`python -m
benchmarks.rules run`). Errors F(w) - min F are in units of the error of w = 0. For each
algorithm and kind of problem, a curve is fitted to the logarithms of the errors. The
curve is quadratic in log z and linear in log p, where z = N / sqrt(p) is the number of
records per direction (`rules.public`). All families of data have the same weight. So n,
epsilon, delta and the adjacency enter only through N. Class sizes, sparsity and tails
of the data are not used, because they are not public.

**Ranges** are from cross-validation over families. They contain 80 % of the errors that
curves made on a family when they were fitted to all other families.
"""

import csv
import dataclasses
import functools
import math
import numbers
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench import registry
from dp_erm_bench.accounting.bounds import mu_for
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.errors import UsageError, real_number, value_error
from dp_erm_bench.problems.erm.objective import lipschitz_constant
from dp_erm_bench.rules.public import PublicNumbers, public_numbers
from dp_erm_bench.rules.settings import EACH, RULES

Array = NDArray[np.float64]

CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "ridge": ("gd", "feature_covariance"),
    "numbers": ("gd", "random_cd"),
    "ball": ("frank_wolfe", "gd"),
}
"""The algorithms that `auto` may choose, by kind of problem.

For regression with a bounded slope (Huber) only gd may be chosen. With more candidates,
a choice by the curves of other families was no better. Only the first algorithm is
chosen for more features than in its evidence. Algorithms that publish a minimiser are
not candidates, because they make uncharged uses of the data.
"""

SPARSE = 10.0
"""Smallest ratio of p to the squared number of nonzeros at which greedy_cd is chosen.

The number of nonzeros is declared. The T selections of greedy_cd then find the
nonzeros, with noise that grows only with log p.
"""

NEAR = 8
"""Number of cells that are shown with a forecast."""

MOST_N, MOST_P = 10**15, 10**7

SHRINK = 0.3
"""Ridge on the coefficients of a curve, except the constant.

The ridge is needed because there is little evidence far from the cells.
"""

LOW, HIGH = 0.1, 0.9
SILENT = 0.05


@dataclass(frozen=True, eq=False)
class Cells:
    """Published results of an algorithm's rule: arrays with one value per cell.

    A cell is a problem of the leaderboard at one epsilon.

    Attributes
    ----------
    panel, family : array of object
        The name of the problem, and the family of its data set.
    epsilon, records, p : array
        Epsilon, the number of records N in units of the noise, and the number of
        features.
    lost : array
        Logarithm of the error divided by the error of w = 0.
    tuned : array
        Logarithm of the error divided by the error of the best tuned algorithm of the
        leaderboard; nan if there is none.
    gained : array
        Gain of the runs over the base rate in test accuracy (or R2), divided by the
        gain of the optimum.
    score, base, best : array
        Test accuracy or R2 of the runs, of the base rate, and of the optimum.
    """

    panel: NDArray[Any]
    family: NDArray[Any]
    epsilon: Array
    records: Array
    p: Array
    lost: Array
    tuned: Array
    gained: Array
    score: Array
    base: Array
    best: Array

    def mask_of_cell(self, panel: str, epsilon: float) -> NDArray[np.bool_]:
        """Return the mask that selects the cell of a panel at an epsilon."""
        return np.asarray((self.panel == panel) & (self.epsilon == epsilon), bool)

    def without(self, families: Collection[str]) -> "Cells":
        """Return the cells of all families except the given ones."""
        kept = ~np.isin(self.family, list(families))
        return Cells(**{key: value[kept] for key, value in vars(self).items()})


@functools.cache
def evidence() -> Mapping[tuple[str, str], Cells]:
    """Return the published cells, by kind of problem and algorithm."""
    path = registry.conf_dir().parent / "results" / "published" / "untuned.csv"
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if math.isfinite(float(row["error"])):  # not finite if the run was refused
                found.setdefault((row["kind"], row["algorithm"]), []).append(row)
    return {key: _cells_of(rows) for key, rows in found.items()}


def share_gained(score: Any, base: Any, best: Any) -> Any:
    """Return the gain of a score over the base rate, as a share of the optimum's gain.

    The share is at least -1 and at most 1. An optimum that gains less than 0.01 counts
    as if it gained 0.01.

    Parameters
    ----------
    score : float or array
        Test accuracy or R2 of a model.
    base : float or array
        Test accuracy or R2 of the base rate.
    best : float or array
        Test accuracy or R2 of the optimum without privacy.
    """
    return np.clip((score - base) / np.maximum(best - base, 0.01), -1.0, 1.0)


def _cells_of(rows: Sequence[Mapping[str, str]]) -> Cells:
    def column(key: str) -> Array:
        return np.array([float(row[key] or "nan") for row in rows])

    base, best, score = column("base"), column("best"), column("score")
    return Cells(
        panel=np.array([row["panel"] for row in rows], object),
        family=np.array([row["family"] for row in rows], object),
        epsilon=column("epsilon"),
        records=column("records"),
        p=column("p"),
        lost=np.log(np.clip(column("error") / column("zero"), 1e-9, 1e3)),
        tuned=np.log(np.maximum(column("error") / column("tuned"), 1e-9)),
        gained=share_gained(score, base, best),
        score=score,
        base=base,
        best=best,
    )


@dataclass(frozen=True)
class ForecastRange:
    """An expected value and its 80 % range, which the module's docstring explains."""

    expected: float
    low: float
    high: float


def _design(records: Array, p: Array, within: Cells) -> Array:
    """Return the terms of a curve at points that are clipped to the cells' range."""
    (z, q), (z0, q0) = _places(records, p), _places(within.records, within.p)
    z, q = np.clip(z, z0.min(), z0.max()), np.clip(q, q0.min(), q0.max())
    return np.stack([np.ones_like(z), z, q, z * z], axis=-1)


def _places(records: Array, p: Array) -> tuple[Array, Array]:
    return np.log(records / np.sqrt(p) / EACH), np.log(p / EACH)


def _predict(cells: Cells, values: Array, records: Array, p: Array) -> Array:
    """Fit a curve to the values of the cells, and return its values at new points.

    Beyond the vertex of the parabola the curve is flat, because more records are never
    worse.
    """
    _, family, count = np.unique(
        cells.family.astype(str), return_inverse=True, return_counts=True
    )
    weight = 1.0 / count[family]
    X = _design(cells.records, cells.p, cells)
    bent = SHRINK * np.diag([0.0, *np.ones(X.shape[1] - 1)]) * weight.mean()
    fitted = np.linalg.solve((X.T * weight) @ X + bent, (X.T * weight) @ values)
    there, (_, slope, _, curve) = _design(records, p, cells), fitted
    if curve != 0.0:
        vertex = -0.5 * slope / curve
        z = (np.minimum if curve > 0.0 else np.maximum)(there[:, 1], vertex)
        there[:, 1], there[:, 3] = z, z * z
    return np.asarray(there @ fitted)


def _left_out(cells: Cells, values: Array) -> Array:
    """Return a prediction for each cell, by the curve of all other families."""
    guessed = np.zeros_like(values)
    for family in {*cells.family}:
        own = cells.family == family
        others = cells.without([family])
        guessed[own] = _predict(others, values[~own], cells.records[own], cells.p[own])
    return guessed


def _range_of(
    cells: Cells, values: Array, public: PublicNumbers, key: tuple[Any, ...]
) -> ForecastRange:
    """Return the expected value at the public numbers of a problem, and its 80 % range.

    The curve is fitted to the ``values`` of the ``cells``. The ``key`` contains the
    arguments of `_errors_of_curve` for the same cells and values.
    """
    at = np.array([public.records()]), np.array([float(public.p)])
    expected = float(_predict(cells, values, *at)[0])
    low, high = _errors_of_curve(*key)
    return ForecastRange(expected, expected + low, expected + high)


@functools.cache
def _errors_of_curve(
    kind: str, algorithm: str, without: frozenset[str], what: str
) -> tuple[float, float]:
    """Return two quantiles of the errors that curves make on left-out families."""
    cells = evidence()[kind, algorithm].without(without)
    values = cells.lost if what == "lost" else -cells.gained
    low, high = np.quantile(values - _left_out(cells, values), (LOW, HIGH))
    return float(low), float(high)


@dataclass(frozen=True)
class Forecast:
    """The result that is expected from an algorithm with the parameters of its rule.

    Attributes
    ----------
    algorithm : str
        A name of conf/algorithm.
    left : ForecastRange
        The error divided by the error of w = 0.
    gained : ForecastRange
        The share of the gain from the base rate to the optimum, in test accuracy (or
        R2).
    few : bool
        Whether N is smaller than in all cells, so that there is no evidence.
    """

    algorithm: str
    left: ForecastRange
    gained: ForecastRange
    few: bool


def forecast(
    algorithm: str, public: PublicNumbers, without: Collection[str] = ()
) -> Forecast | None:
    """Return the result expected from a rule; None without evidence on the rule.

    Parameters
    ----------
    algorithm : str
        A name of conf/algorithm.
    public : PublicNumbers
        The public numbers of the problem.
    without : collection of str
        Families of data that are left out of the evidence.
    """
    if (public.kind, algorithm) not in evidence():
        return None
    key = public.kind, algorithm, frozenset(without)
    cells = evidence()[key[:2]].without(without)
    lost = dataclasses.astuple(_range_of(cells, cells.lost, public, (*key, "lost")))
    # The gain is negated, because it grows with the records while the loss falls.
    missed = dataclasses.astuple(
        _range_of(cells, -cells.gained, public, (*key, "gained"))
    )
    expected, high, low = (max(-1.0, min(1.0, -one)) for one in missed)
    return Forecast(
        algorithm,
        left=ForecastRange(*map(math.exp, lost)),
        gained=ForecastRange(expected, low, high),
        few=bool(public.records() < cells.records.min()),
    )


def is_sparse(public: PublicNumbers, nonzeros: int | None) -> bool:
    """Return whether so few features matter that greedy_cd is chosen."""
    few = nonzeros is not None and nonzeros**2 <= public.p / SPARSE
    return few and public.kind == "ridge"


def rank_rules(
    public: PublicNumbers, nonzeros: int | None = None, without: Collection[str] = ()
) -> list[Forecast]:
    """Return forecasts of the algorithms that `auto` may choose, the best first.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    nonzeros : int, optional
        Number of features that matter, if it is declared.
    without : collection of str
        Families of data that are left out of the evidence.
    """
    first, *more = CANDIDATES[public.kind]
    if public.kind == "ridge" and not public.signs:
        more = []
    cells = evidence()
    wide = [name for name in more if public.p <= cells[public.kind, name].p.max()]
    names = ["greedy_cd"] if is_sparse(public, nonzeros) else [first, *wide]
    found = [forecast(name, public, without) for name in names]
    return sorted(filter(None, found), key=lambda one: one.left.expected)


@functools.cache
def is_good(kind: str, algorithm: str) -> bool:
    """Return whether an algorithm's rule is reliable enough to be a default.

    A cell is misleading if the rule's final error was larger than the error of w = 0,
    although the curve fitted to other families predicted a smaller error. The rule is
    reliable if at most the share `SILENT` of its cells are misleading.
    """
    cells = evidence().get((kind, algorithm))
    if cells is None:
        return False
    silent = (cells.lost > 0.0) & (_left_out(cells, cells.lost) < 0.0)
    return bool(silent.mean() <= SILENT)


def expects_nothing(public: PublicNumbers, best: Forecast) -> bool:
    """Return whether a forecast is no better than w = 0; always False without noise."""
    hopeless = best.few or best.left.expected >= 1.0
    return math.isfinite(public.records()) and hopeless


def sufficient_n(public: PublicNumbers, budget: Budget, algorithm: str) -> int | None:
    """Return the approximate number of records at which a rule is better than w = 0.

    The result is None if no number up to `MOST_N` suffices.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem; larger n are tried.
    budget : Budget
        The budget; delta may depend on n.
    algorithm : str
        A name of conf/algorithm.
    """
    n = 2 * public.n
    while n <= MOST_N:
        mu = mu_for(min(public.epsilon, 1e3), budget.resolve_delta(n).number)
        more = replace(public, n=n, mu=mu)
        found = forecast(algorithm, more)
        if found is not None and not expects_nothing(more, found):
            return n
        n *= 2
    return None


@dataclass(frozen=True)
class Advice:
    """Advice on what to run, given only the public numbers of a problem.

    Attributes
    ----------
    algorithm : str
        A name of conf/algorithm, or ``w = 0`` if no algorithm is expected to be better.
    settings : mapping
        The parameters from the algorithm's rule.
    best : Forecast
        Forecast of the algorithm, or of the best one if no algorithm is expected to be
        better than w = 0.
    others : tuple of Forecast
        Forecasts of the other rules that can be defaults, the best first.
    hits : float or None
        Share of the nearest cells in which the chosen rule was within 10 % of the best
        rule, when the choice was made without the family of the cell. None if the
        algorithm was chosen in another way.
    tuning : float
        Geometric mean, over the nearest cells, of the error divided by the error of the
        best tuned algorithm.
    sufficient_n : int or None
        Approximate number of records at which the result is better than w = 0. None if
        the present number suffices, or if no number that was tried suffices.
    sparse : bool
        Whether the declared nonzeros decided the choice. The only evidence for such a
        choice is one generated data set.
    beyond : str
        Names of the public numbers that are below or above those of all cells; empty if
        there are none.
    cells : tuple of mapping
        The cells nearest to the problem, as rows of the evidence.
    """

    algorithm: str
    settings: Mapping[str, Any]
    best: Forecast
    others: tuple[Forecast, ...]
    hits: float | None
    tuning: float
    sufficient_n: int | None
    sparse: bool
    beyond: str
    cells: tuple[Mapping[str, Any], ...]


def advise(
    *,
    n: int,
    p: int,
    norm: float,
    epsilon: float,
    delta: float | str = "1/n^2",
    adjacency: str = "replace_one",
    loss: str = "logistic",
    label: float | None = None,
    strength: float | None = None,
    radius: float = math.inf,
    column: float | None = None,
    nonzeros: int | None = None,
    algorithm: str | None = None,
) -> Advice:
    """Return advice: the algorithm to run, its settings and its expected result.

    The advice depends only on public numbers.

    Parameters
    ----------
    n, p : int
        Number of records, and of features including a constant column.
    norm : float
        The declared bound on the norm of a record.
    epsilon, delta, adjacency
        The budget, as in `fit`.
    loss : str
        A name of conf/loss.
    label : float, optional
        The declared bound on a label; required for regression.
    strength : float, optional
        Strength of an l2 penalty; 1 / n by default.
    radius : float
        Radius of an L1 ball for w. If the radius is finite, there is no penalty.
    column : float, optional
        The largest declared bound on a column; ``norm`` by default.
    nonzeros : int, optional
        Number of features that matter, if it is known without the data.
    algorithm : str, optional
        The algorithm to forecast instead of the best one.

    Raises
    ------
    UsageError
        If a number is not allowed, a name is unknown, or there is no evidence on the
        algorithm for such problems.
    """
    for key, most, count in (
        ("n", MOST_N, n),
        ("p", MOST_P, p),
        ("nonzeros", p, nonzeros),
    ):
        if count is None and key == "nonzeros":
            continue
        whole = isinstance(count, numbers.Integral) and not isinstance(count, bool)
        if not (whole and 1 <= cast("int", count) <= most):
            raise value_error(key, count, f"an integer from 1 to {most}")
    sizes = {"norm": norm, "radius": radius, "epsilon": epsilon, "column": column}
    sizes |= {"label": label, "strength": strength}
    optional = [key for key in ("column", "label", "strength") if sizes[key] is None]
    for key, size in sizes.items():
        if key not in optional and not real_number(size) > 0.0:
            raise value_error(key, size, "a number > 0")
        if key != "radius" and key not in optional and size == math.inf:
            raise value_error(
                key, size, "finite" + ": gd is to be run" * (key == "epsilon")
            )
    registry.check_choice("loss", loss, registry.names("loss"))
    made = registry.build("loss", loss)
    if not made.classification and label is None:
        raise value_error("label", label, "given: a public bound on |y|")
    if not 0.0 < made.smoothness < math.inf:
        raise value_error("loss", loss, "smooth and not linear: no other was judged")
    if math.isfinite(radius):
        penalty = registry.build("penalty", "none")
        constraint = registry.build("constraint", "l1_ball", radius=float(radius))
    else:
        penalty = registry.build("penalty", "l2", strength=strength or 1.0 / n)
        constraint = registry.build("constraint", "none")
    columns = np.full(p, norm if column is None else column)
    bounds = Bounds(columns=columns, norm=norm, label=label)
    stated = SimpleNamespace(
        n=int(n),
        p=int(p),
        loss=made,
        lipschitz=lipschitz_constant(made, penalty, constraint, bounds),
        penalty=penalty,
        constraint=constraint,
        dataset=SimpleNamespace(bounds=bounds),
    )
    budget = Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)  # type: ignore[arg-type]
    if budget.resolve_delta(n).number == 0.0:
        raise value_error("delta", delta, "> 0: no rule was judged without it")
    public = public_numbers(stated, budget, None)  # type: ignore[arg-type]
    if public is None:
        raise UsageError(f"norm={norm}: no float holds the scales that follow from it")
    return _advice_for(public, budget, nonzeros, algorithm)


def _advice_for(
    public: PublicNumbers,
    budget: Budget,
    nonzeros: int | None,
    algorithm: str | None,
) -> Advice:
    """Return the advice for the public numbers of a problem."""
    judged = sorted(name for kind, name in evidence() if kind == public.kind)
    found = [forecast(name, public) for name in judged if is_good(public.kind, name)]
    others = sorted(filter(None, found), key=lambda one: one.left.expected)
    if algorithm is not None and algorithm not in judged:
        allowed = f"one of {', '.join(judged)}, which have a rule for such problems"
        raise value_error("algorithm", algorithm, allowed)
    named = (
        forecast(algorithm, public) if algorithm else rank_rules(public, nonzeros)[0]
    )
    assert named is not None
    best = named
    sparse = algorithm is None and is_sparse(public, nonzeros)
    nothing = algorithm is None and expects_nothing(public, best)
    enough = sufficient_n(public, budget, best.algorithm) if nothing else None
    cells = evidence()[public.kind, best.algorithm]
    near = _nearest(cells, public)
    tuned = cells.tuned[near][np.isfinite(cells.tuned[near])]
    rule = RULES[best.algorithm]
    return Advice(
        algorithm="w = 0" if nothing else best.algorithm,
        settings={} if nothing else rule.settings(public, {}),
        best=best,
        others=tuple(one for one in others if one.algorithm != best.algorithm),
        hits=None if algorithm or sparse else _hits(public, cells, near),
        tuning=float(np.exp(tuned.mean())) if tuned.size else math.nan,
        sufficient_n=enough,
        sparse=sparse,
        beyond=_beyond(cells, public),
        cells=tuple(_row(cells, i) for i in near),
    )


def _nearest(cells: Cells, public: PublicNumbers) -> NDArray[np.intp]:
    z, q = _places(np.array(public.records()), np.array(float(public.p)))
    z0, q0 = _places(cells.records, cells.p)
    return np.argsort(np.hypot(z0 - z, q0 - q), kind="stable")[:NEAR]


def _hits(public: PublicNumbers, cells: Cells, near: NDArray[np.intp]) -> float:
    """Return the share of near cells where a choice without their family was good."""
    rules = {
        name: one for (kind, name), one in evidence().items() if kind == public.kind
    }
    good = []
    for i in near:
        there = public_of_cell(public.kind, cells.records[i], cells.p[i], public.signs)
        named = rank_rules(there, without=[cells.family[i]])[0].algorithm
        ends = {
            name: own.lost[here][0]
            for name, own in rules.items()
            if (here := own.mask_of_cell(cells.panel[i], cells.epsilon[i])).any()
        }
        good.append(ends.get(named, math.inf) <= min(ends.values()) + math.log(1.1))
    return float(np.mean(good))


def public_of_cell(
    kind: str, records: float, p: float, signs: bool = True
) -> PublicNumbers:
    """Return public numbers that give the same forecasts as those of a cell.

    Numbers on which forecasts do not depend have arbitrary values.

    Parameters
    ----------
    kind : {'ridge', 'numbers', 'ball'}
        Kind of problem.
    records : float
        The number of records N in units of the noise.
    p : float
        Number of features.
    signs : bool
        Whether labels are -1 and +1.
    """
    return PublicNumbers(
        n=1,
        p=int(p),
        epsilon=1.0,
        mu=float(records),
        change=1.0,
        strength=1.0,
        lipschitz=1.0,
        curvature=1.0,
        at_zero=1.0,
        norm=1.0,
        column=1.0,
        squares=1.0,
        radius=math.inf,
        curved=True,
        bounded=True,
        kind=kind,
        signs=signs,
    )


def _row(cells: Cells, i: int) -> Mapping[str, Any]:
    keys = ("panel", "epsilon", "records", "p", "score", "base", "best")
    row = {key: getattr(cells, key)[i] for key in keys}
    return {**row, "left": float(np.exp(cells.lost[i]))}


def _beyond(cells: Cells, public: PublicNumbers) -> str:
    """Return a string on the public numbers below or above those of all cells."""
    own = {
        "epsilon": (public.epsilon, cells.epsilon),
        "n epsilon": (public.records(), cells.records),
        "p": (float(public.p), cells.p),
    }
    less = [key for key, (value, seen) in own.items() if value < seen.min()]
    more = [key for key, (value, seen) in own.items() if value > seen.max()]
    far = {"below": less, "above": more}
    if public.kind == "ball" and not public.signs:
        far["not judged on a ball"] = ["numbers"]
    return "; ".join(f"{', '.join(keys)} {word}" for word, keys in far.items() if keys)
