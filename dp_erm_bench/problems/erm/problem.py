"""Problems of empirical risk minimisation, and measures of their models.

The population risk of a model is its expected loss, without the penalty. It is computed
from fresh records or from the distribution of the records. It is not a private output.
It uses records that no mechanism reads, or no records at all.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_erm_bench.constraints.norm_ball import NormBall
from dp_erm_bench.datasets import base
from dp_erm_bench.datasets.base import Array, Dataset, Features, Uncharged
from dp_erm_bench.datasets.prepare import KEY as INTERCEPT
from dp_erm_bench.datasets.prepare import dataset_from_arrays, map_features
from dp_erm_bench.datasets.records import (
    check_finite_numbers,
    from_zero,
    label_spelling,
)
from dp_erm_bench.datasets.spec import (
    FRESH,
    LAW,
    call_loader,
    check_spec,
    identifying_keys,
)
from dp_erm_bench.datasets.synthetic import LAWS, MedianLaw
from dp_erm_bench.datasets.table import indicator_columns
from dp_erm_bench.errors import UsageError, in_python
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.losses.smooth import Squared
from dp_erm_bench.paths import (
    digest_of_json,
    fields_of,
    later_defaults,
    values_entering,
)
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.penalties.separable import NoPenalty
from dp_erm_bench.penalties.structured import StructuredPenalty
from dp_erm_bench.problems.base import Optimum, Problem
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.optimum.certified import certified_optimum
from dp_erm_bench.registry import OBJECTIVE, POPULATION

if TYPE_CHECKING:
    import pandas as pd

    from dp_erm_bench.problems.erm.oracle import Oracle


def held_out_measures(problem: ERM, w: Array) -> dict[str, Array]:
    """Return measures of B models on the test part, by name, each of shape (B,).

    Without a test part there are no measures. `test_risk` is the mean loss, and
    `test_objective` is the mean loss plus the penalty. For a classification there are
    `test_accuracy` and `balanced_accuracy`, which is nan if the test part has only one
    class. For a regression there are `rmse` and `r2`, with the margins as predictions.
    """
    data = problem.dataset
    if data.X_test is None or data.y_test is None:
        return {}
    margins, y = w @ data.X_test.T, data.y_test
    risk = problem.loss.value(y, margins).mean(axis=1)
    columns = {"test_objective": risk + problem.penalty.value(w), "test_risk": risk}
    if problem.loss.classification:
        positive = y > 0.0
        right = (margins >= 0.0) == positive
        hits, first = np.count_nonzero(right & positive, axis=1), positive.sum()
        total = np.count_nonzero(right, axis=1)
        columns["test_accuracy"] = total / y.size
        with np.errstate(invalid="ignore"):
            others = (total - hits) / (y.size - first)
            columns["balanced_accuracy"] = (hits / first + others) / 2.0
        return columns
    return columns | errors_of(margins, y)


def errors_of(predictions: Array, y: Array) -> dict[str, Array]:
    """Return `rmse` and `r2` of predictions of shape (B, n), each of shape (B,).

    `r2` is 1 - mean squared error / variance of the labels; nan if the variance is 0.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
        squares = np.square(predictions - y).mean(axis=1)
    spread = float(np.var(y))
    r2 = 1.0 - squares / spread if spread else np.full(len(squares), math.nan)
    return {"rmse": np.sqrt(squares), "r2": r2}


def ranking_measures(problem: ERM, w: Array) -> dict[str, Array]:
    """Return the `auc` of B models on the test part, for classification.

    Computing it needs a sort. At every checkpoint, this would take a fifth of the time
    of a run.
    """
    data = problem.dataset
    if data.X_test is None or data.y_test is None or not problem.loss.classification:
        return {}
    return {"auc": area_under_curve(w @ data.X_test.T, data.y_test > 0.0)}


def reference_models(problem: ERM, optimum: Optimum) -> dict[str, dict[str, float]]:
    """Return measures of models to compare with: the optimum and constant models.

    Returns
    -------
    dict
        Measures by the name of the model. With a test part there is ``optimum``, if one
        is certified, and for a regression ``mean``, which predicts the mean label of
        the training part. The constant model (`constant_model`) is called ``base_rate``
        for a classification, ``mean`` for the squared loss and ``constant`` for other
        losses. Besides the measures on the test part it has `train_risk`, and with an
        intercept `objective` and `relative_error`.
    """
    data, loss = problem.dataset, problem.loss
    margin, constant = constant_model(problem, optimum.value)
    name = "base_rate" if loss.classification else "constant"
    name = "mean" if isinstance(loss, Squared) else name
    if data.X_test is None or data.y_test is None:
        return {name: constant}
    found = {}
    if optimum.w is not None:
        w = optimum.w[None]
        seen = held_out_measures(problem, w) | ranking_measures(problem, w)
        found["optimum"] = {name: float(values[0]) for name, values in seen.items()}
    y, labels = data.y_test, float(np.mean(data.y))
    answers = {name: margin} if loss.classification else {"mean": labels, name: margin}
    for title, answer in answers.items():
        told = np.full((1, y.size), answer if math.isfinite(answer) else math.nan)
        with np.errstate(all="ignore"):
            seen = {"test_risk": loss.value(y, told).mean(axis=1)}
        seen |= {} if loss.classification else errors_of(told, y)
        found[title] = {key: float(values[0]) for key, values in seen.items()}
    if loss.classification:
        positive = y > 0.0
        half = 0.5 if 0 < positive.sum() < positive.size else math.nan
        found[name]["test_accuracy"] = float(np.mean(positive == (labels >= 0.0)))
        found[name] |= dict.fromkeys(("balanced_accuracy", "auc"), half)
    found[name] |= constant
    return found


def constant_model(problem: ERM, least: float | None) -> tuple[float, dict[str, float]]:
    """Return the best constant margin for all records, and measures of it.

    Parameters
    ----------
    problem : ERM
    least : float or None
        The certified minimum of the objective.

    Returns
    -------
    margin : float
        The constant that minimises the mean loss of the training part, without penalty
        and constraint: the log-odds, the mean, or Huber's location. Infinite if the
        mean loss has no minimum, as for the logistic loss on one class.
    measures : dict
        `train_risk` is the mean loss at that constant. With an intercept, `objective`
        is the objective at the best point whose weights, except the intercept's, are 0.
        The weight of the intercept counts in the penalty and in the constraint. If a
        minimum is certified, `relative_error` is the error of this point.
    """
    data, loss = problem.dataset, problem.loss
    y, counts = np.unique(data.y, return_counts=True)

    def risk(margin: float) -> float:
        return float(loss.value(y, np.full(y.shape, margin)) @ counts) / data.n

    if loss.classification:
        one_class = y.size == 1
        start = 0.0 if one_class else math.log(counts[-1] / counts[0])
        margin, value = least_along(risk, start)
        margin = math.copysign(math.inf, y[0]) if one_class else margin
    else:
        middle = np.mean if isinstance(loss, Squared) else np.median
        margin, value = least_along(risk, float(middle(data.y)))
    measures = {"train_risk": value}
    if not data.intercept:
        return margin, measures
    axis = np.zeros(problem.p)
    axis[-1] = 1.0

    def objective(weight: float) -> float:
        own = float(problem.penalty.value(weight * axis))
        return risk(data.intercept * weight) + own

    start = margin / data.intercept if math.isfinite(margin) else 0.0
    _, value = least_along(objective, start, *_span_of_axis(problem, axis))
    measures["objective"] = value
    if least is not None and least > 0.0:
        measures["relative_error"] = value / least - 1.0
    return margin, measures


def _span_of_axis(problem: ERM, axis: Array) -> tuple[float, float]:
    """Return the smallest and the largest multiple of an axis in the domain."""
    from scipy.optimize import bisect

    penalty, constraint = problem.penalty, problem.constraint
    ends = [-math.inf, math.inf]
    if constraint.bounded:
        ends = (constraint.linear_minimiser(np.stack([axis, -axis])) @ axis).tolist()
        for k, end in enumerate(ends):
            # A set other than a ball may be narrower along the axis than elsewhere.
            if constraint.contains(0.0 * axis) and not constraint.contains(end * axis):
                ends[k] = bisect(
                    lambda at: 0.5 - bool(constraint.contains(at * axis)), 0.0, end
                )
    if isinstance(penalty, SeparablePenalty):
        return max(ends[0], penalty.lower), min(ends[1], penalty.upper)
    return ends[0], ends[1]


REACH = 2.0**60
"""Farthest distance of the search; a function still falling there has no minimum."""


def least_along(
    function: Callable[[float], float],
    start: float,
    low: float = -math.inf,
    high: float = math.inf,
) -> tuple[float, float]:
    """Return where a convex function of one number is smallest, and its value there.

    Parameters
    ----------
    function : callable
        The function, which may have kinks. If it keeps falling, the place is infinite,
        and so is the value if it has become negative.
    start : float
        A point near the minimum. The search is exact to 1e-8 of the distance from the
        start.
    low, high : float
        The interval that is searched; it contains 0.
    """
    # Not at the top: scipy takes long to import.
    from scipy.optimize import minimize_scalar

    start = min(max(start, low), high)
    places, ends = [start, 0.0], []
    with np.errstate(all="ignore"):
        for way, end in ((-1.0, low), (1.0, high)):
            size, near = 1.0, function(start)
            while (
                size < min(REACH, abs(end - start))
                and (far := function(start + way * size)) < near
            ):
                size, near = 2.0 * size, far
            if size >= REACH:
                return way * math.inf, near if near >= 0.0 else -math.inf
            ends.append(way * min(size, abs(end - start)))
        places += [start + end for end in ends]
        if ends[0] < ends[1]:
            options = {"xatol": 1e-12}
            found = minimize_scalar(
                lambda step: function(start + step),
                bounds=ends,
                method="bounded",
                options=options,
            )
            places.append(start + float(found.x))
        values = {place: function(place) for place in places}
    # A difference due to rounding is no gain over the start.
    gained = min(values.values()) < values[start] * (1.0 - 1e-13)
    best = min(values, key=lambda at: values[at]) if gained else start
    return best, values[best]


def reason_not_judged(problem: ERM, quantity: str) -> str:
    """Return the reason why models cannot be judged by a quantity; empty if they can.

    Parameters
    ----------
    problem : ERM
    quantity : str
        ``objective``, or a column of `held_out_measures` or `ranking_measures`.
    """
    y = problem.dataset.y_test
    if quantity == "objective":
        return ""
    if y is None:
        return "the dataset has no test part; set dataset.test_fraction"
    if quantity in ("test_objective", "test_risk"):
        return ""
    numbers = quantity in ("rmse", "r2")
    if numbers and problem.loss.classification:
        return (
            f"loss {problem.loss.name} is for classification, which has no {quantity}"
        )
    if not numbers and not problem.loss.classification:
        return f"loss {problem.loss.name} is for regression, which has no {quantity}"
    if quantity in ("balanced_accuracy", "auc") and np.ptp(y) == 0.0:
        return "all records of the test part are of one class"
    if quantity == "r2" and np.ptp(y) == 0.0:
        return "all records of the test part have the same label"
    return ""


def area_under_curve(scores: Array, positive: NDArray[np.bool]) -> Array:
    """Return the area under the ROC curve of B score vectors.

    The area is the share of the pairs of a positive and a negative record in which the
    positive one has the larger score; ties count one half. Computing it takes one sort
    for each vector, O(B n log n) time.

    Parameters
    ----------
    scores : array of shape (B, n)
    positive : boolean array of shape (n,)

    Returns
    -------
    array of shape (B,)
        nan if a score is nan, or all records are of one class.
    """
    n, first = positive.size, int(positive.sum())
    if first in (0, n):
        return np.full(len(scores), np.nan)
    areas = np.empty(len(scores))
    for b, row in enumerate(scores):
        order = np.argsort(row)
        ranked, places = row[order], np.flatnonzero(positive[order]).astype(np.float64)
        # Mann and Whitney: the sum of the places of the positive records.
        total = places.sum()
        ties = ranked[1:] == ranked[:-1]
        if ties.any():
            starts = np.flatnonzero(np.concatenate([[True], ~ties]))
            inside = np.add.reduceat(positive[order], starts, dtype=np.float64)
            ends = np.append(starts[1:], n)
            total = float(inside @ (starts + ends - 1.0)) / 2.0
        areas[b] = math.nan if math.isnan(ranked[-1]) else total
    return (areas - first * (first - 1) / 2.0) / (first * (n - first))


STREAM = 0x5EED
"""A part of the seed of fresh records; the other part is the dataset's seed."""


class Population(ABC):
    """The risk of models over the population of a problem, or over a fresh sample.

    Attributes
    ----------
    exact : bool
        Whether the risk is an expectation, not the mean over a sample.
    """

    problem: Any
    exact: ClassVar[bool]

    @abstractmethod
    def risk(self, w: Array) -> Array:
        """Return the risks, shape (B,), of points of shape (B, p)."""

    @property
    @abstractmethod
    def optimum(self) -> float:
        """Return the smallest risk over the constraint; nan if none is certified."""

    def excess(self, w: Array) -> Array:
        """Return the risks of points minus the smallest risk, shape (B,)."""
        return self.risk(w) - self.optimum

    def excess_objective(self, w: Array) -> Array:
        """Return the risk plus penalty of points, minus the smallest such sum.

        The result has the shape (B,).

        Without a penalty this is `excess`. With a penalty it is nan, unless a subclass
        knows the least sum.
        """
        plain = isinstance(self.problem.penalty, NoPenalty)
        return self.excess(w) if plain else np.full(len(w), math.nan)

    def measures(self, w: Array) -> dict[str, Array]:
        """Return the columns `POPULATION` of points (B, p), each of shape (B,)."""
        least = np.full(len(w), self.optimum)
        values = (self.risk(w), least, self.excess(w), self.excess_objective(w))
        return dict(zip(POPULATION, values, strict=True))


@dataclasses.dataclass(frozen=True, eq=False)
class MedianPopulation(Population):
    """The expected absolute loss under the known law of the data of median_regression.

    The expected loss depends on w only through norm2(w - w*) and grows with this
    distance. Over a convex set it is therefore least at the projection of w*.
    """

    problem: Any
    law: MedianLaw
    exact: ClassVar[bool] = True

    def risk(self, w: Array) -> Array:
        """Return E|y - x.w|, shape (B,), for points w of shape (B, p)."""
        return self.law.noise + self.law.excess_absolute(w)

    @cached_property
    def _projection_loss(self) -> float:
        """Return the excess risk of the feasible point that is nearest to w*."""
        nearest = self.problem.constraint.project(self.law.w[None])
        return float(self.law.excess_absolute(nearest)[0])

    @property
    def optimum(self) -> float:
        """Return the risk of the projection of w* on the constraint."""
        return self.law.noise + self._projection_loss

    def excess(self, w: Array) -> Array:
        """Return the excess risks; no nearly equal risks are subtracted."""
        return self.law.excess_absolute(w) - self._projection_loss


@dataclasses.dataclass(frozen=True, eq=False)
class FreshSample(Population):
    """The mean loss over records that no mechanism reads.

    The least risk is that of the sample, if it is certified. On average it is at most
    the least risk of the population, so an excess tends to be too large.
    """

    problem: Any
    X: Features
    y: Array
    exact: ClassVar[bool] = False

    def risk(self, w: Array) -> Array:
        """Return the mean losses, shape (B,), at points of shape (B, p)."""
        losses: Any = self.problem.loss.value(self.y, w @ self.X.T)
        return np.asarray(losses.mean(axis=1))

    @cached_property
    def optimum(self) -> float:
        """Return the smallest feasible mean loss; nan if none is certified."""
        return self._least(NoPenalty())

    @cached_property
    def _least_objective(self) -> float:
        return self._least(self.problem.penalty)

    def _least(self, penalty: Any) -> float:
        data = dataset_from_arrays(self.X, self.y)
        judged = dataclasses.replace(self.problem, dataset=data, penalty=penalty)
        least = judged.optimum.value
        return math.nan if least is None else least

    def excess_objective(self, w: Array) -> Array:
        """Return the mean loss plus penalty of points, minus the smallest such sum."""
        objective: Array = self.risk(w) + self.problem.penalty.value(w)
        return objective - self._least_objective


def population_of(problem: Any) -> Population | None:
    """Return the population risk of a problem, or None without ``dataset.n_fresh``.

    Fresh records are drawn from the law of the dataset if it is known. Otherwise they
    are the first of the held-out part.

    Raises
    ------
    UsageError
        If the held-out part has fewer records than ``dataset.n_fresh``, or if the law
        gives no expectation of the loss.
    """
    data = problem.dataset
    fresh = data.spec.get(FRESH)
    if fresh is None:
        return None
    generator = str(data.spec.get("_target_", "")).rpartition(".")[2]
    if generator in LAWS and data.w_true is not None:
        law = LAWS[generator](data.w_true, float(data.spec["noise"]))
        if fresh != LAW:
            rng = np.random.default_rng([STREAM, int(data.spec["seed"])])
            return FreshSample(problem, *law.draw(rng, fresh))
        if problem.loss.name == "absolute":
            return MedianPopulation(problem, law)
    elif data.X_test is not None and data.y_test is not None and fresh != LAW:
        held = data.y_test.size
        if fresh > held:
            raise UsageError(
                f"dataset.{FRESH}={fresh}: must be at most {held}, the number of "
                "held-out records"
            )
        X: Any = (
            data.X_test if isinstance(data.X_test, np.ndarray) else data.X_test.tocsr()
        )
        return FreshSample(problem, X[:fresh], data.y_test[:fresh])
    raise UsageError(
        f"dataset.{FRESH}={fresh}: the expectation of loss={problem.loss.name} under "
        f"{data.name} is not known; set a number of fresh records"
    )


@dataclass(frozen=True, eq=False)
class LinearModel:
    """The linear model that one point defines.

    Records must have the form of the problem's records: standardised or clipped, if
    those were. If columns were mapped by declared bounds (``scale=bounds``), give
    records in the original units. The model maps them in the same way.

    Attributes
    ----------
    w : array of shape (p,)
    classification : bool
        Whether labels are -1 and +1.
    feature_names : tuple of str
        One for each entry of w.
    intercept : float
        The constant of the last feature, which records may lack; 0 if there is none.
    categories : mapping of str to tuple of str or float
        The categories of each column whose indicators are features. Instead of the
        indicators, a table may have the column itself, of strings or numbers.
    ranges : Ranges or None
        The ranges by which records are mapped and, if the fit clipped its records, to
        which they are clipped.
    mapped : tuple of Features
        The problem's own records, which are already mapped. Slices of them count as
        mapped if they are dense. A copy of them counts as raw records. A pickled model
        has none.
    """

    w: Array
    classification: bool
    feature_names: tuple[str, ...]
    intercept: float = 0.0
    categories: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ranges: base.Ranges | None = None
    mapped: tuple[Features, ...] = field(default=(), repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the problem's records."""
        return {**vars(self), "mapped": ()}

    @property
    def weights(self) -> Mapping[str, float]:
        """Return the entries of w by the name of their feature."""
        return dict(zip(self.feature_names, self.w.tolist(), strict=True))

    def decision_function(self, X: Any) -> Array:
        """Return the margins x.w of records, shape (n,).

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or mapping of columns, of shape (n, p)
            With or without the constant column of an intercept. The columns of a table
            are found by name, and strings become indicators of their categories.

        Raises
        ------
        UsageError
            For a wrong number of columns, a missing or repeated column, a value that is
            missing or not finite, or a word that is not a category. Also for a
            value outside its declared bounds, if the fit refused such values.
        """
        features = self._features_of(X)
        p = self.w.size
        short = bool(self.intercept) and features.shape[1] == p - 1
        if not short and features.shape[1] != p:
            raise UsageError(
                f"X of shape {features.shape}: must have the {p} columns "
                f"{_first_names(self.feature_names)}"
            )
        _check_numbers("X", features)
        if self.ranges is not None and not self._is_mapped(X):
            short = bool(self.intercept)
            try:
                features = map_features("X", features[:, : p - short], self.ranges)
            except UsageError as error:
                raise in_python(error) from None
        with np.errstate(over="ignore", invalid="ignore"):
            if short:
                margins = features @ self.w[:-1] + self.intercept * self.w[-1]
            else:
                margins = features @ self.w
        if (odd := ~np.isfinite(margins)).any():
            where = f"of record {int(odd.argmax())}"
            raise UsageError(f"X: the margin {where} overflows")
        return np.asarray(margins)

    def predict(self, X: Any) -> Array:
        """Return -1 or +1 for a classification, else the margins, shape (n,).

        Raises
        ------
        UsageError
            As `decision_function` does.
        """
        margins = self.decision_function(X)
        return np.where(margins >= 0.0, 1.0, -1.0) if self.classification else margins

    def score(self, X: Any, y: ArrayLike) -> float:
        """Return the accuracy of a classification, else R^2.

        The score is computed from the given records, so it is not a private output.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or mapping of columns, of shape (n, p)
        y : array of shape (n,)
            Labels; for a classification -1 and +1, 0 and 1, or booleans.

        Raises
        ------
        UsageError
            As `decision_function` does, and for any other labels.
        """
        answers, told = self.predict(X), base.plain_array("y", y)
        if self.classification and any(isinstance(v, str | bytes) for v in told.flat):
            base.check_missing("y", told)
            raise UsageError(
                "y: labels must be -1 or +1, as in the problem; convert words with "
                "numpy.where(y == 'yes', 1, -1)"
            )
        labels = np.asarray(base.real_numbers("y", y), np.float64)
        _check_numbers("y", labels)
        if labels.shape != answers.shape:
            raise UsageError(
                f"y of shape {labels.shape}: must be of shape {answers.shape}, one "
                "label for each record of X"
            )
        if not self.classification:
            # Not at the top: it takes longer than a fit.
            from sklearn.metrics import r2_score

            return float(r2_score(labels, answers))
        labels, _ = from_zero(labels)
        if (np.abs(labels) != 1.0).any():
            raise UsageError("y: labels must be -1 or +1, as in the problem")
        return float(np.mean(answers == labels))

    def _is_mapped(self, X: Any) -> bool:
        """Return whether records are the problem's own, or a slice of them."""
        dense = isinstance(X, np.ndarray)
        return any(
            X is own
            or (dense and isinstance(own, np.ndarray) and np.may_share_memory(X, own))
            for own in self.mapped
        )

    def _features_of(self, X: Any) -> Features:
        if isinstance(X, Mapping):
            X = _frame_of(X)
        base.check_masks(X=X)
        if not (hasattr(X, "columns") and hasattr(X, "to_numpy")):
            features = base.as_features(X, key="X")
            if features.ndim != 2:
                raise UsageError(f"X of shape {features.shape}: must be (n, p)")
            return features
        names, there = list(self.feature_names), set(map(str, X.columns))
        if self.intercept and names[-1] not in there:
            names.pop()
        # Columns without names of their own are taken in order.
        named = all(isinstance(column, str) for column in X.columns)
        if not named:
            return base.as_features(X, key="X")
        base.check_headings("X", X)
        made = self._missing_indicators(X, there)
        missing = [name for name in names if name not in there | {*made}]
        if missing:
            name = self._columns_of_indicators.get(missing[0], missing[0])
            raise UsageError(f"X: has no column {name}, which the model needs")
        own = [name for name in names if name not in made]
        found = base.as_features(X[own], key="X")
        if not made:
            return found
        columns = made | dict(zip(own, found.T, strict=True))
        return base.as_features(np.column_stack([columns[name] for name in names]))

    @property
    def _columns_of_indicators(self) -> dict[str, str]:
        """Return, for each indicator, the column of strings from which it is made."""
        given = self.categories.items()
        return {
            name: k for k, chosen in given for name in _names_of_indicators(k, chosen)
        }

    def _missing_indicators(self, X: Any, there: set[str]) -> dict[str, Array]:
        """Return the indicators that a table lacks, made from the columns it has."""
        made: dict[str, Array] = {}
        for name, chosen in self.categories.items():
            if name in there and not _names_of_indicators(name, chosen) <= there:
                (column,) = _frame_of({name: X[name]}).items()
                made |= {
                    str(one.name): one.to_numpy(np.float64)
                    for one in indicator_columns("X", column[1], chosen)
                }
        return made


def feature_names(data: Dataset) -> tuple[str, ...]:
    """Return the names of a dataset's features: a table's own, else x0, x1, ...

    Features are also numbered if columns without entries were dropped, because the
    records decide which columns are dropped.
    """
    p = data.p - bool(data.intercept)
    names = data.columns if len(data.columns) == p else [f"x{j}" for j in range(p)]
    return (*names, *[INTERCEPT] * bool(data.intercept))


def _names_of_indicators(column: str, categories: tuple[Any, ...]) -> set[str]:
    """Return the names of a column's indicators."""
    return {f"{column}={label_spelling(one)}" for one in categories}


def categories_of(data: Dataset) -> dict[str, tuple[Any, ...]]:
    """Return the categories of a dataset's columns, declared or read from the names.

    A column is left out if its indicators are not features with names of their own.
    """
    if data.loaded is None:
        return {}
    spec = check_spec(data.loaded)
    found = call_loader(getattr(spec.loader, "categories", lambda: {}), spec.options)
    names = feature_names(data)
    chosen = {
        k: tuple(n[len(k) + 1 :] for n in names if n.startswith(f"{k}=")) for k in found
    }
    # A declared list also separates a column `a` with `b=c` from one called `a=b`.
    chosen |= {k: declared for k, declared in found.items() if declared is not None}
    return {k: c for k, c in chosen.items() if _names_of_indicators(k, c) <= {*names}}


def _frame_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    # Not at the top: it takes longer than a fit.
    import pandas as pd

    try:
        return pd.DataFrame({key: np.asarray(one) for key, one in columns.items()})
    except ValueError as error:
        raise UsageError(
            f"X: its columns must have the same length ({error})"
        ) from error


def _check_numbers(key: str, found: Features) -> None:
    """Raise UsageError if a number is missing or not finite, naming the record."""
    if isinstance(found, np.ndarray):
        base.check_missing(key, found)
    check_finite_numbers(f"{key}:", found)


def _first_names(names: tuple[str, ...]) -> str:
    return ", ".join(names if len(names) <= 6 else (*names[:5], "..."))


SILENT = (
    *("_target_", "usual", "usual_standardised", "usual_regression", "path"),
    FRESH,
)
"""Keys of a dataset's yaml that are not part of the identity of a problem.

The content of the dataset or the objective already determines most of them. The number
of fresh records that judge a model does not change the draws of its run.
"""


@dataclass(frozen=True, eq=False)
class ERMProblem(ERM, Problem):
    """A regularised empirical risk, its certified optimum, oracles and measures."""

    @property
    def spec(self) -> dict[str, Any]:
        """Return the part of a trial's spec that describes the problem.

        `dataset` is as in ``Dataset.spec``; `loss`, `penalty` and `constraint` are
        given by name, with all their parameters. A loss from outside the package also
        has its source.
        """
        return {
            "dataset": self.dataset.spec,
            **{part: _describe_part(getattr(self, part)) for part in OBJECTIVE},
            "loss": {**_describe_part(self.loss), **self.loss.source},
        }

    @cached_property
    def identity(self) -> str:
        """Return the digest of the dataset's content, its spec and the objective."""
        own = identifying_keys(self.dataset.spec)
        keys = {k: v for k, v in own.items() if k not in SILENT}
        parts = {
            part: values_entering(described, later_defaults(getattr(self, part)))
            for part, described in self.spec.items()
            if part != "dataset"
        }
        # A file is identified by its content, not by its place.
        parts["loss"].pop("file", None)
        data = self.dataset
        return digest_of_json([data.content_hash, keys, parts, *data.bounds_by_name])

    @property
    def title(self) -> str:
        """Return the names of the loss, the penalty and the constraint."""
        names = (getattr(self, part).name for part in OBJECTIVE)
        return " + ".join(name for name in names if name != "none")

    @cached_property
    def optimum(self) -> Optimum:
        """Return the reference optimum with its certificate, cached on disk.

        The optimum does not depend on smoothness constants. A problem with other
        constants therefore takes it from its origin, so that it is computed once for
        all batches and fits.
        """
        if self.population is not None and self.population.exact:
            return Optimum(reason="runs are judged by their population risk alone")
        origin = self.origin
        if origin is not None and self.is_fixed and origin.key == self.key:
            return origin.optimum
        return certified_optimum(self)

    def uncharged(self, constants: bool) -> tuple[Uncharged, ...]:
        """Return the uncharged uses of the records by the dataset and the constants."""
        used = self.smoothness.uncharged if constants else ()
        return (*self.dataset.uncharged, *used)

    def contains(self, w: Array) -> Any:
        """Return whether points (..., p) are in the constraint, shape (...)."""
        return self.constraint.contains(w)

    def oracle(self, batch: int, *, clipped: bool = True) -> Oracle:
        """Return the oracle that suits the problem best, see `Problem.oracle`."""
        # Not at the top: planning trials need not wait for numba.
        from dp_erm_bench.problems.erm import oracles

        if self.dataset.sparse:
            return oracles.SparseOracle(self, batch)
        if self.by_moments(clipped):
            return oracles.GramOracle(self, batch)
        return oracles.DenseOracle(self, batch)

    def facts(self) -> dict[str, Any]:
        """Return the names of the parts, and the strength of the penalty."""
        return {
            "loss": self.loss.name,
            "penalty": self.penalty.name,
            "strength": getattr(self.penalty, "strength", 0.0),
            "constraint": self.constraint.name,
            "smoothness": self.smoothness.kind,
        }

    def measures(self, w: Array) -> dict[str, Array]:
        """Return measures on the test part and the population, if there are any.

        See `held_out_measures`, `Population.measures` and `structure`. If the loss is
        not convex, there is also `gradient_norm`. This is norm2(w - v), where v is the
        point after a gradient step of length 1 from w, the prox and the projection.
        Without penalty and constraint it is the norm of the gradient. It is 0 if w is
        stationary.
        """
        said = held_out_measures(self, w)
        if self.population is not None:
            said |= self.population.measures(w)
        said |= self.structure(w)
        if not self.loss.convex:
            ahead = w - np.stack([self.gradient(row) for row in w])
            moved = self.constraint.project(self.penalty.prox(ahead, 1.0))
            said["gradient_norm"] = norm2(w - moved, axis=-1)
        return said

    def structure(self, w: Array) -> dict[str, Array]:
        """Return measures of which entries of points are zero, each of shape (B,).

        If the true weights are known, `support_f1` is 2 |S and T| / (|S| + |T|), where
        S and T are the coordinates that are not 0 in w and in the true weights. It is 1
        if S and T are empty. The norm of the penalty or of the ball may add measures
        (`SubmodularNorm.structure`).
        """
        said: dict[str, Array] = {}
        if self.dataset.w_true is not None:
            found, true = w != 0.0, self.dataset.w_true != 0.0
            both = np.count_nonzero(found & true, axis=1)
            sizes = np.count_nonzero(found, axis=1) + np.count_nonzero(true)
            said["support_f1"] = np.where(sizes, 2.0 * both / np.maximum(sizes, 1), 1.0)
        if isinstance(self.penalty, StructuredPenalty):
            said |= self.penalty.norm.structure(w)
        if isinstance(self.constraint, NormBall):
            said |= self.constraint.omega.structure(w)
        return said

    @cached_property
    def population(self) -> Population | None:
        """Return the population risk, or None without ``dataset.n_fresh``."""
        return population_of(self)

    def last_measures(self, w: Array) -> dict[str, Array]:
        """Return the AUC on the test part, if there is one, see `ranking_measures`.

        Without an intercept and a test part, no other measure can be compared with the
        constant model. In this case the result is `train_risk`, the mean loss of the
        training part.
        """
        data = self.dataset
        if data.intercept or data.y_test is not None:
            return ranking_measures(self, w)
        with np.errstate(all="ignore"):  # of a run that diverged
            return {"train_risk": self.loss.value(data.y, w @ data.X.T).mean(axis=-1)}

    def model(self, w: Array) -> LinearModel:
        """Return the linear model that a point, shape (p,), defines."""
        data, classification = self.dataset, self.loss.classification
        named = feature_names(data), data.intercept, categories_of(data)
        if data.ranges is None or not data.ranges.scaled:
            return LinearModel(w, classification, *named)
        own = tuple(Z for Z in (data.X, data.X_test) if Z is not None)
        return LinearModel(w, classification, *named, data.ranges, own)

    @cached_property
    def references(self) -> dict[str, dict[str, float]]:
        """Return measures of models to compare with, see `reference_models`.

        A problem with other smoothness constants takes these measures from its origin,
        like the optimum.
        """
        origin = self.origin
        if origin is not None and self.is_fixed and origin.key == self.key:
            return origin.references
        return reference_models(self, self.optimum)

    def lacking(self, quantity: str) -> str:
        """Return the reason not to use a quantity for trials, see `Problem.lacking`."""
        if quantity in POPULATION:
            return "" if self.population else "the dataset has no n_fresh"
        return reason_not_judged(self, quantity)


def _describe_part(part: Any) -> dict[str, Any]:
    return {"name": part.name, **fields_of(part)}
