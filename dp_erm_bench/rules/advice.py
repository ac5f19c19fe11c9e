"""Which algorithm is expected to be best without tuning, from public numbers alone.

**Evidence** is results/published/untuned.csv: what each rule ended at on the problems
of the leaderboard (`python -m benchmarks.rules run`). Errors F(w) - min F are in units
of that of w = 0. Of each algorithm and kind of problem a curve is fitted to their
logarithms: a parabola in log z, z = N / sqrt(p) the records that a direction has
(`rules.public`), and a line in log p, all families of data having the same weight. So
n, epsilon, delta and the adjacency enter by N. Classes, sparsity and tails of the data
do not enter: nobody may look at them.

**Ranges** are 80 % of what curves of all other families were wrong by on a family.
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
    "numbers": ("gd",),
    "ball": ("frank_wolfe", "gd"),
}
"""By kind of problem, what `auto` may name, of numbers with a ridge gd alone.

Whatever else was let in, a choice by curves of other families was no better than these.
Nothing is named for more features than it was judged at. Those that publish a minimiser
rest on what no budget pays for.
"""

SPARSE = 10.0
"""greedy_cd is named where the square of a declared number of nonzeros is at most p
over this: its T selections then find them, at noise that grows with log p alone."""

NEAR = 8
"""Cells that are shown beside a forecast."""

MOST_N, MOST_P = 10**15, 10**7

SHRINK = 0.3
"""Of the coefficients but the constant: little is known far from the cells."""

LOW, HIGH = 0.1, 0.9
SILENT = 0.05


@dataclass(frozen=True, eq=False)
class Cells:
    """What an algorithm's rule ended at, a value a cell; texts are arrays of objects.

    Attributes
    ----------
    panel, family : array of str
    epsilon, records, p : array
        N, and features.
    lost : array
        log of the error over that of w = 0.
    tuned : array
        log of the error over that of the best tuned algorithm of the leaderboard; nan
        where that has none.
    gained : array
        Of what the optimum's test accuracy (or R2) has beyond the base rate's, the
        share that the runs had.
    score, base, best : array
        Test accuracy or R2 of the runs, of the base rate, of the optimum.
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
        """Return which of the cells is that of a panel at an epsilon."""
        return np.asarray((self.panel == panel) & (self.epsilon == epsilon), bool)

    def without(self, families: Collection[str]) -> "Cells":
        """Return the cells of other families."""
        kept = ~np.isin(self.family, list(families))
        return Cells(**{key: value[kept] for key, value in vars(self).items()})


@functools.cache
def evidence() -> Mapping[tuple[str, str], Cells]:
    """Return the published cells, by kind of problem and algorithm."""
    path = registry.conf_dir().parent / "results" / "published" / "untuned.csv"
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if math.isfinite(float(row["error"])):  # of what an algorithm refuses none
                found.setdefault((row["kind"], row["algorithm"]), []).append(row)
    return {key: _cells_of(rows) for key, rows in found.items()}


def share_gained(score: Any, base: Any, best: Any) -> Any:
    """Return which share of what the optimum has beyond the base rate a score has.

    Whatever lost more than there is to gain has -1; an optimum that gains less than
    0.01 counts as if it gained that.
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
    """What is expected, and between what 80 % of left-out cells were."""

    expected: float
    low: float
    high: float


def _design(records: Array, p: Array, within: Cells) -> Array:
    """Return the terms of the curve, no farther out than the cells reach."""
    (z, q), (z0, q0) = _places(records, p), _places(within.records, within.p)
    z, q = np.clip(z, z0.min(), z0.max()), np.clip(q, q0.min(), q0.max())
    return np.stack([np.ones_like(z), z, q, z * z], axis=-1)


def _places(records: Array, p: Array) -> tuple[Array, Array]:
    return np.log(records / np.sqrt(p) / EACH), np.log(p / EACH)


def _predict(cells: Cells, values: Array, records: Array, p: Array) -> Array:
    """Return what the curve through the values of cells is at other places.

    More records are never worse: beyond the vertex of the parabola it is flat.
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
    """Return what curves of all other families expect of each cell."""
    guessed = np.zeros_like(values)
    for family in {*cells.family}:
        own = cells.family == family
        others = cells.without([family])
        guessed[own] = _predict(others, values[~own], cells.records[own], cells.p[own])
    return guessed


def _range_of(
    cells: Cells, values: Array, public: PublicNumbers, key: tuple[Any, ...]
) -> ForecastRange:
    """Return what is expected of public numbers, and 80 % of what happens.

    The ``key`` names the cells and the values, as `_errors_of_curve` takes it.
    """
    at = np.array([public.records()]), np.array([float(public.p)])
    expected = float(_predict(cells, values, *at)[0])
    low, high = _errors_of_curve(*key)
    return ForecastRange(expected, expected + low, expected + high)


@functools.cache
def _errors_of_curve(
    kind: str, algorithm: str, without: frozenset[str], what: str
) -> tuple[float, float]:
    """Return the quantiles of what curves of other families are wrong by."""
    cells = evidence()[kind, algorithm].without(without)
    values = cells.lost if what == "lost" else -cells.gained
    low, high = np.quantile(values - _left_out(cells, values), (LOW, HIGH))
    return float(low), float(high)


@dataclass(frozen=True)
class Forecast:
    """What a rule is expected to end at.

    Attributes
    ----------
    algorithm : str
    left : ForecastRange
        Its error over that of w = 0.
    gained : ForecastRange
        The share of what the optimum's test accuracy (or R2) has beyond the base rate.
    few : bool
        Whether N is less than in all cells: then nothing is known.
    """

    algorithm: str
    left: ForecastRange
    gained: ForecastRange
    few: bool


def forecast(
    algorithm: str, public: PublicNumbers, without: Collection[str] = ()
) -> Forecast | None:
    """Return what a rule is expected to end at; None where none was judged.

    Parameters
    ----------
    algorithm : str
    public : PublicNumbers
    without : collection of str
        Families of data that have no say.
    """
    if (public.kind, algorithm) not in evidence():
        return None
    key = public.kind, algorithm, frozenset(without)
    cells = evidence()[key[:2]].without(without)
    lost = dataclasses.astuple(_range_of(cells, cells.lost, public, (*key, "lost")))
    # What is gained grows with records as what is lost falls.
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
    """Return whether so few features matter that greedy_cd is named."""
    few = nonzeros is not None and nonzeros**2 <= public.p / SPARSE
    return few and public.kind == "ridge"


def rank_rules(
    public: PublicNumbers, nonzeros: int | None = None, without: Collection[str] = ()
) -> list[Forecast]:
    """Return forecasts of what `auto` may name, the best first."""
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
    """Return whether an algorithm has a rule that can be a default.

    One that is not may end above w = 0 though a curve of other families expects less,
    in more than `SILENT` of the cells.
    """
    cells = evidence().get((kind, algorithm))
    if cells is None:
        return False
    silent = (cells.lost > 0.0) & (_left_out(cells, cells.lost) < 0.0)
    return bool(silent.mean() <= SILENT)


def expects_nothing(public: PublicNumbers, best: Forecast) -> bool:
    """Return whether a forecast is no better than w = 0; never without noise."""
    hopeless = best.few or best.left.expected >= 1.0
    return math.isfinite(public.records()) and hopeless


def sufficient_n(public: PublicNumbers, budget: Budget, algorithm: str) -> int | None:
    """Return about how many records a rule needs to be better than w = 0, if any do."""
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
    """What to run on a problem of which public numbers alone are known.

    Attributes
    ----------
    algorithm : str
        A name, or ``w = 0`` where nothing is expected to be better.
    settings : mapping
        What the algorithm's rule gives.
    best : Forecast
        Of that algorithm, or of what w = 0 is as good as.
    others : tuple of Forecast
        Of the other rules that can be defaults, the best first.
    hits : float or None
        In the cells nearby, how often the choice without their family was within 10 %
        of the best of all rules; None where something else chose.
    tuning : float
        There, the error over that of the best tuned algorithm, geometric mean.
    sufficient_n : int or None
        About how many records would do better than w = 0; None if these do, or if no
        number does that was tried.
    sparse : bool
        Whether declared nonzeros chose, which one generated set of data supports.
    beyond : str
        Which of the numbers are below or above those of all cells; empty if none.
    cells : tuple of mapping
        The rows of the evidence nearby.
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
    """Return which algorithm to run, how, and what to expect, from public numbers.

    Parameters
    ----------
    n, p : int
        Records and features, a constant column among these.
    norm : float
        The declared bound on the norm of a record.
    epsilon, delta, adjacency
        The budget, as in `fit`.
    loss : str
        A name of conf/loss.
    label : float, optional
        The declared bound on a label; of a regression it must be given.
    strength : float, optional
        That of an l2 penalty; 1 / n by default.
    radius : float
        Of an L1 ball for w; then there is no penalty.
    column : float, optional
        The largest of the declared bounds of columns; the norm by default.
    nonzeros : int, optional
        How many features matter, if that is known without the data.
    algorithm : str, optional
        Ask for this one, in place of the best.

    Raises
    ------
    UsageError
        For a number that is not allowed, an unknown name, or an algorithm whose rule
        was judged on no such problem.
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
    """Return what `advise` does, for the public numbers of a problem."""
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
    """Return how often what is named without a cell's family was good there."""
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
    """Return as much of a cell's public numbers as forecasts depend on."""
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
    """Return which of the numbers are below or above those of all cells."""
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
