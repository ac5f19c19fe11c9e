"""Private linear models with the interface of scikit-learn estimators."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dp_erm_bench import registry
from dp_erm_bench.api import (
    fit_quietly,
    is_sequence,
    only_result,
    problem_from_arrays,
)
from dp_erm_bench.datasets.base import Bounds, Uncharged, check_masks
from dp_erm_bench.datasets.prepare import (
    bounds_and_ranges,
    clipping_warning,
    features_in,
    map_features,
    spec_of,
    wide_bounds_sentence,
)
from dp_erm_bench.errors import (
    ClippedRecords,
    DoubtfulChoice,
    UndeclaredBounds,
    UsageError,
    WideBounds,
    in_python,
    typed_text,
    value_error,
    warn_user,
)
from dp_erm_bench.experiment.parameters import (
    algorithm_of,
    normalise_parameter,
    with_defaults,
)
from dp_erm_bench.fitted import FitResult
from dp_erm_bench.plugins.names import label_of, named_in
from dp_erm_bench.results.statistics import CONSTANTS, NO, TIE, ZERO
from dp_erm_bench.results.tuned import best_choice

Array = NDArray[np.float64]

UNIT = {"columns": 1.0, "norm": 1.0, "label": 1.0}
"""The bounds to which records are clipped if none are declared."""


NO_BOUNDS = (
    "bounds=None: records are clipped to norm 1 and regression targets to [-1, 1]; "
    "declare public bounds, such as bounds={'columns': 1, 'norm': 1, 'label': 1}"
)

NO_IMPUTER = (
    "Impute missing values with a constant chosen without the records, and add an "
    "indicator column; the mean or median of an imputer reads the records, which no "
    "budget covers"
)

FAR = 0.05
"""Share of the constant model's excess objective at which a noiseless fit is far.

Without an intercept, w = 0 takes the place of the constant model.
"""


NONE = 1e-6
"""Excess objective, relative to the minimum, that counts as a rounding error."""


class _DPLinear(BaseEstimator):  # type: ignore[misc]
    """Base class of the two estimators, with bounds, the fit and margins."""

    _usual_loss: ClassVar[str]
    _classifies: ClassVar[bool]

    def __init__(
        self,
        algorithm: str = "auto",
        *,
        epsilon: float = 1.0,
        delta: float | str = "1/n^2",
        bounds: Mapping[str, Any] | ArrayLike | None = None,
        adjacency: str = "replace_one",
        intercept: float | None = 1.0,
        loss: str | Mapping[str, Any] = "auto",
        penalty: str | Mapping[str, Any] = "l2",
        strength: float | str = "1/n",
        parameters: Mapping[str, Any] | None = None,
        random_state: int | None = None,
        scale: str | None = None,
        constraint: str | Mapping[str, Any] = "none",
        tuned: bool = False,
    ) -> None:
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.adjacency = adjacency
        self.intercept = intercept
        self.loss = loss
        self.penalty = penalty
        self.strength = strength
        self.parameters = parameters
        self.random_state = random_state
        self.scale = scale
        self.constraint = constraint
        self.tuned = tuned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @classmethod
    def from_results(
        cls,
        folder: str | Path,
        epsilon: float,
        *,
        panel: str | None = None,
        dataset: str | None = None,
        algorithm: str | None = None,
        **given: Any,
    ) -> Self:
        """Return an estimator with the best settings of a results folder.

        The estimator gets the algorithm and the parameters that were best on fresh
        seeds. It also gets the settings for which they were chosen: loss, penalty,
        constraint, delta, adjacency, bounds, scale, intercept and declared classes. The
        folder is not trusted: code that it names is not executed, and its numbers are
        checked like a user's numbers.

        Parameters
        ----------
        folder : str or Path
            Results folder of `dp-erm-bench tune`, or of an experiment that tunes.
        epsilon : float
            One of the epsilons for which the folder was tuned.
        panel, dataset : str, optional
            The problem to take, if the folder contains several problems.
        algorithm : str, optional
            One of the tuned algorithms, by name, or by the path of its file if it is a
            solver of your own. None means the best algorithm.
        **given
            Parameters of the estimator, which replace those of the folder. If tuning
            ran on public data, pass ``tuned=False``; `uncharged_` then lists no tuning.

        Returns
        -------
        DPClassifier or DPRegressor
            An unfitted estimator of the class that the method is called on.

        Warns
        -----
        DoubtfulChoice
            If the choice does not beat w = 0, if a better setting may lie beyond those
            tried, if its algorithm is in doubt, or if the choice was tuned on
            standardised columns, which the estimator does not produce.

        Raises
        ------
        UsageError
            If the folder has no such choice, or has choices for several problems; if
            the loss is for another task; if the solver's file is not given as
            ``algorithm``; if the noise was not certified; if the targets had other
            units than those of the estimator; or if a parameter is wrong.

        Examples
        --------
        Fit with the settings that were tuned for epsilon 1::

            model = DPClassifier.from_results("results/tune", epsilon=1.0)
            model.fit(X, y)
        """
        wanted = None if algorithm is None else label_of(registry.pin_choice(algorithm))
        row, spec = best_choice(folder, epsilon, panel, dataset, wanted)
        whose = f"{folder}: {row['line']}"
        try:
            found = _estimator_settings(row, spec, whose, cls._classifies, given)
            name = algorithm or row["algorithm"]
            if name not in registry.names(registry.ALGORITHM) and algorithm is None:
                raise _of_a_file(whose, "algorithm", name)
            pin = registry.pin_choice(name)
            typed = {
                k: normalise_parameter(pin, k, v) for k, v in row["chosen"].items()
            }
            # A parameter that the choice left out had the default of its field, not
            # the value of a rule.
            default = algorithm_of(pin).full(typed)
            typed |= {
                k: default[k] for k in with_defaults(pin, typed) if k not in typed
            }
        except UsageError as error:
            raise in_python(error) from None
        except (KeyError, TypeError, AttributeError):
            raise UsageError(f"{whose}: its line of the plan is damaged") from None
        found |= {"epsilon": row["epsilon"], "parameters": typed, "tuned": True}
        for doubt in _doubts_of_choice(row, spec):
            warn_user(f"{whose}: {doubt}", DoubtfulChoice)
        return cls(name, **{**found, **given})

    def _check_records(self, X: Any, y: Any, **more: Any) -> Any:
        """Return records after scikit-learn's checks.

        The advice of scikit-learn on missing values is replaced, since imputing values
        reads the records.
        """
        check_masks(X=X, y=y)
        how = {"accept_sparse": True, "dtype": np.float64, "ensure_min_samples": 2}
        try:
            return validate_data(self, X, y, **how, **more)
        except ValueError as error:
            first, *advice = str(error).split("\n")
            if not advice or "contains NaN" not in first:
                raise
            raise UsageError(f"{first} {NO_IMPUTER}") from None

    def _fit_weights(
        self, X: Any, y: Array, uncharged: Sequence[Uncharged] = ()
    ) -> tuple[Array, Any]:
        """Return the weights and the intercept that are fitted to numeric targets."""
        if self.bounds is None:
            warn_user(NO_BOUNDS, UndeclaredBounds)
            if self.scale is not None:
                raise value_error(
                    "scale", self.scale, "None unless bounds are declared"
                )
        p = X.shape[1]
        features = features_in(getattr(self, "feature_names_in_", None), p)
        given = UNIT if self.bounds is None else self.bounds
        try:
            self.bounds_, self._ranges = bounds_and_ranges(
                given, features, self.scale, True
            )
        except UsageError as error:
            raise in_python(error) from None
        y, unit, fitted = self._scale_target(y, self.bounds_)
        problem = problem_from_arrays(
            *(X, y),
            loss=self._usual_loss if self.loss == "auto" else self.loss,
            penalty=self.penalty,
            strength=self.strength,
            bounds=spec_of(fitted, self._ranges),
            clip_to_bounds=True,
            intercept=self.intercept,
            scale=self.scale,
            constraint=self.constraint,
        )
        names = [name for name, _ in features]
        if self.bounds is not None:
            if told := clipping_warning(problem.dataset.clipping, names):
                warn_user(told, ClippedRecords)
            if told := wide_bounds_sentence(problem.dataset, names):
                warn_user(f"bounds: {told}", WideBounds)
        if is_sequence(self.random_state):
            seed = self.random_state
            raise UsageError(f"random_state={seed}: must be an integer >= 0, or None")
        results = fit_quietly(
            *(problem, self.algorithm),
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            seed=self.random_state,
            **dict(self.parameters or {}),
        )
        result = only_result(results)
        if self.epsilon == math.inf and result.rule:
            self._warn_if_far(result)
        self.algorithm_ = result.algorithm
        self.epsilon_certified_ = result.epsilon_certified
        self.delta_ = result.budget.delta
        self.adjacency_ = result.budget.adjacency
        self.n_samples_fit_ = result.n
        self.releases_ = result.published_releases()
        self.params_ = dict(result.params)
        chosen = (str(Uncharged.TUNING),) * bool(self.tuned)
        self.uncharged_ = (*map(str, uncharged), *result.uncharged, *chosen)
        self.reproducible_ = result.reproducible
        constant = self.intercept or 0.0
        w = unit * np.asarray(result.w)
        return np.array(w[:p]), constant * w[p:].sum()

    def _warn_if_far(self, result: FitResult) -> None:
        """Warn if a fit without noise ends far above the minimum of the objective.

        With noise there is no warning, as it would be computed from the records.
        """
        problem = result.problem
        assert problem is not None  # only a pickled result lacks the problem
        least = problem.optimum.value
        if least is None:
            return
        zero, reached = (float(problem.value(w)) for w in (0.0 * result.w, result.w))
        models = problem.references.items()
        told = [(own["objective"], key) for key, own in models if "objective" in own]
        start, key = min([(zero, ZERO), *told])
        if reached - least > max(FAR * (start - least), NONE * least):
            left = (reached - least) / (start - least) if start > least else math.inf
            share = f"{left:.0%} of what" if left <= 1.0 else "more than"
            warn_user(
                f"{result.algorithm}: at epsilon=inf {share} "
                f"{CONSTANTS.get(key, key)} loses to the minimum is left; give it "
                "other parameters, or columns of equal scale (scale='bounds', with "
                "ranges that are known to be narrow)",
                ConvergenceWarning,
            )

    def _scale_target(self, y: Array, bounds: Bounds) -> tuple[Array, float, Bounds]:
        """Return the targets to fit, the unit of the weights, and the bounds."""
        return y, 1.0, bounds

    def _clipped_margins(self, X: Any) -> Array:
        """Return the margins of records, after the same clipping as in the fit."""
        check_is_fitted(self)
        check_masks(X=X)
        how = {"accept_sparse": True, "dtype": np.float64, "reset": False}
        features = validate_data(self, X, **how)
        within = map_features("X", features, self._ranges or self.bounds_)
        return np.asarray(within @ np.ravel(self.coef_) + np.ravel(self.intercept_))


def _estimator_settings(
    row: Mapping[str, Any],
    spec: Mapping[str, Any],
    whose: str,
    classifies: bool,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the parameters of an estimator that match a tuned choice.

    Raises
    ------
    UsageError
        If an estimator cannot have these parameters, and the user does not give them.
    """
    data, budget = spec["dataset"], spec["budget"]
    kind = spec.get(registry.PROBLEM, {}).get("name", registry.ERM)
    if kind != registry.ERM:
        raise UsageError(f"{whose}: is for problem={kind}, which no estimator solves")
    if spec["calibration"] != "certified":
        raise UsageError(
            f"{whose}: was tuned with calibration={spec['calibration']}, estimators "
            "add the noise that is certified"
        )
    found: dict[str, Any] = {"delta": budget["delta"], "strength": None}
    found["adjacency"] = budget["adjacency"]
    for part in registry.OBJECTIVE:
        name = named_in(spec[part])
        if part not in given and name not in registry.names(part):
            raise _of_a_file(whose, part, label_of(name))
        more = {k: v for k, v in spec[part].items() if k != "name"}
        found[part] = {"name": name, **more} if more else name
    if "loss" not in given:
        task = registry.target("loss", named_in(spec["loss"])).classification
        if task != classifies:
            other = "DPClassifier" if task else "DPRegressor"
            raise UsageError(
                f"{whose}: loss={found['loss']} is of a "
                f"{'classification' if task else 'regression'}, take {other}"
            )
    holds = data.get("clip_to_bounds") or not data.get("standardise")
    found["bounds"] = data.get("bounds") if holds else None
    declared = [found["bounds"], given.get("bounds")]
    labels = [one.get("label") for one in declared if isinstance(one, Mapping)]
    divided = data.get("scale") or next(filter(None, labels), None) == 1
    if not classifies and not divided:
        raise UsageError(
            f"{whose}: was tuned in the units of y; DPRegressor fits y / B, B its "
            "bounds['label'], of which clip and thresholds are other numbers; tune on "
            "y / B, with dataset.scale=bounds or dataset.bounds.label=1"
        )
    found["scale"] = data.get("scale")
    found["intercept"] = data.get("intercept") or None
    if classifies and len(data.get("classes") or ()) == 2:
        found["classes"] = data["classes"]
    return found


def _of_a_file(whose: str, part: str, name: str) -> UsageError:
    """Return the error for a file that a folder names but the user does not."""
    file = f"{part}='path/to/{name}.py'"
    return UsageError(
        f"{whose}: {part} {name} is not one of this installation; if it is a file of "
        f"your own, name it, {file}"
    )


def _doubts_of_choice(row: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield reasons why a tuned choice is doubtful."""
    if row["beats_zero"] in (NO, TIE):
        sure = "does not beat" if row["beats_zero"] == NO else "is not told apart from"
        yield (
            f"{sure} w = 0 at epsilon = {row['epsilon']:g}, {row['quantity']} "
            f"{row['median']:.3g} against {row[ZERO]:.3g}"
        )
    if row["open"]:
        yield f"its choice is open ({row['open']}): a better one may lie beyond"
    if row["doubt"]:
        yield f"its algorithm is in doubt: {row['doubt']}"
    if how := spec["dataset"].get("standardise"):
        yield (
            f"was tuned with dataset.standardise={typed_text(how)}, on columns that "
            "this "
            "estimator does not standardise"
        )


def _has_log_odds(model: "DPClassifier") -> bool:
    """Return True if margins are log odds; raise AttributeError for other losses."""
    loss = model.loss
    name = loss.get("name") if isinstance(loss, Mapping) else loss
    if name in ("auto", "logistic"):
        return True
    raise AttributeError(
        f"predict_proba: is for loss='logistic', whose margins are log odds, not for "
        f"loss={loss!r}"
    )


class DPClassifier(ClassifierMixin, _DPLinear):  # type: ignore[misc]
    """A private linear classifier for two classes, for use with scikit-learn.

    One fit spends the budget once. `GridSearchCV` and `cross_val_score` fit many models
    to the same records and compare their scores. None of this is charged to the budget:
    ``epsilon_certified_`` of the best model counts its own fit only.

    Parameters
    ----------
    algorithm : str
        A name of conf/algorithm, the path of a file with a solver of your own, or
        ``auto``, which is the algorithm expected to be best, judged by public numbers.
        If no algorithm is expected to beat w = 0, ``auto`` returns w = 0: ``coef_`` is
        zero, no budget is spent, and a `NoGain` warning says how many records would be
        enough. All predictions are then ``classes_[0]``, or 0 for a regression.
    epsilon, delta, adjacency
        The privacy budget, as for `fit`; ``epsilon=inf`` adds no noise.
    bounds : mapping, float or array of shape (p,), optional
        Public bounds on a record, as for `problem_from_arrays`; for a DataFrame they
        may be given by column name. Each record is clipped to the bounds, also in
        predictions. None clips to norm 1 and warns. There is also a warning if more
        than a tenth of the records are clipped, or if all records are below a
        hundredth of a bound.
    intercept : float or None
        Value of the constant column that is added last, whose weight is penalised; None
        or 0 adds no column.
    loss, penalty : str or mapping
        As for `problem_from_arrays`. The loss ``auto`` is logistic.
    strength : float, str or None
        Strength of the penalty; ``'1/n'`` is the inverse of the number of records. Give
        None if the mapping ``penalty`` contains the strength, or if the penalty has no
        strength.
    parameters : mapping, optional
        Parameters of the algorithm, such as ``{'clip': 1.0}``; none for the algorithm
        ``auto``. Parameters that are left out have the defaults of `fit`, which a rule
        may compute from public numbers. If such a fit at ``epsilon=inf`` ends far from
        the minimum, a ConvergenceWarning is issued.
    random_state : int, optional
        Seed of the noise. A seeded fit is reproducible and therefore not private. None
        uses 128 secret random bits.
    classes : set or sequence of two labels, optional
        The two labels, in any order. None reads the labels from y, which is a use of
        the data that no budget pays for. This also holds if y is a Series with
        categories, since categories may have been read from the data.
    scale : {'bounds'}, optional
        With 'bounds', columns are mapped to [-1, 1] by their bounds, also in
        predictions. With None, columns are not changed.
    constraint : str or mapping
        As for `problem_from_arrays`.
    tuned : bool
        Whether the settings were chosen on these records, as `from_results` assumes.
        ``uncharged_`` then lists ``tuning``.

    Attributes
    ----------
    coef_, intercept_, classes_ : arrays of shape (1, p), (1,), (2,)
        Weights of the features after clipping or mapping, the intercept, and the two
        labels. Labels are sorted, as scikit-learn's scorers expect. Margins are
        positive for ``classes_[1]``, whatever the order of the given labels.
    feature_names_in_ : array of shape (p,)
        Column names, if X was a DataFrame with named columns.
    algorithm_ : str
        The algorithm that was run.
    epsilon_certified_ : float
        The epsilon that is proved for the fit, if all that ``uncharged_`` lists is
        public.
    delta_, adjacency_ : float, str
        The delta of the guarantee, and the relation between neighbouring datasets.
    n_samples_fit_ : int
        The number of records, which is public.
    releases_ : tuple of Release
        The published noisy quantities with their sensitivities.
    params_ : dict
        All parameters of the algorithm, with numbers in place of ``auto``.
    uncharged_ : tuple of str
        Uses of the data that the budget does not pay for.
    reproducible_ : bool
        Whether the fit was seeded, and is therefore not private.

    Examples
    --------
    Declare the bounds and the classes, so that they are not read from the data::

        model = DPClassifier(
            epsilon=1.0, bounds={"columns": 1.0, "norm": 1.0}, classes=[0, 1]
        )
        model.fit(X_train, y_train)
        model.score(X_test, y_test), model.epsilon_certified_
    """

    _usual_loss = "logistic"
    _classifies = True

    def __init__(
        self,
        algorithm: str = "auto",
        *,
        epsilon: float = 1.0,
        delta: float | str = "1/n^2",
        bounds: Mapping[str, Any] | ArrayLike | None = None,
        adjacency: str = "replace_one",
        intercept: float | None = 1.0,
        loss: str | Mapping[str, Any] = "auto",
        penalty: str | Mapping[str, Any] = "l2",
        strength: float | str = "1/n",
        parameters: Mapping[str, Any] | None = None,
        random_state: int | None = None,
        classes: Collection[Any] | None = None,
        scale: str | None = None,
        constraint: str | Mapping[str, Any] = "none",
        tuned: bool = False,
    ) -> None:
        given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "bounds": bounds}
        given |= {"adjacency": adjacency, "intercept": intercept, "loss": loss}
        given |= {"penalty": penalty, "strength": strength}
        given |= {"parameters": parameters, "random_state": random_state}
        given |= {"scale": scale, "constraint": constraint, "tuned": tuned}
        super().__init__(algorithm, **given)
        self.classes = classes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the classifier and return it; this spends the privacy budget once.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, p)
            The features.
        y : array of shape (n,)
            Labels of the two classes.

        Returns
        -------
        DPClassifier
            The estimator itself.

        Raises
        ------
        ValueError
            For labels of other classes, values that are not finite, or parameters that
            are not allowed.
        """
        X, y = self._check_records(X, y)
        check_classification_targets(y)
        declared = self.classes is not None
        self.classes_ = _two_classes(
            np.unique(y) if self.classes is None else self.classes
        )
        if not np.isin(y, self.classes_).all():
            raise UsageError(
                f"y: holds a label that is not in classes={self.classes_.tolist()}"
            )
        signs = np.where(y == self.classes_[1], 1.0, -1.0)
        found = self._fit_weights(X, signs, () if declared else (Uncharged.CLASSES,))
        self.coef_, self.intercept_ = map(np.atleast_2d, found)
        self.intercept_ = self.intercept_[0]
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the margins of records, shape (n,).

        A positive margin predicts ``classes_[1]``.
        """
        return self._clipped_margins(X)

    @available_if(_has_log_odds)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the logistic model's probabilities of both classes, shape (n, 2).

        The last column is 1 / (1 + exp(-margin)), for ``classes_[1]``. The method
        exists only for ``loss='logistic'``. The probabilities are not calibrated:
        noise, penalty and clipping move the margins, and the probabilities were not
        compared with frequencies.
        """
        margins = self._clipped_margins(X)
        return np.column_stack([expit(-margins), expit(margins)])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of each record, shape (n,)."""
        second = self._clipped_margins(X) > 0.0
        labels: NDArray[Any] = self.classes_[second.astype(int)]
        return labels


class DPRegressor(RegressorMixin, _DPLinear):  # type: ignore[misc]
    """A private linear regression, for use with scikit-learn.

    Targets are clipped to [-B, B], where B is ``bounds['label']``, a public number that
    must be declared. The model is fitted to y / B; coefficients, intercept and
    predictions are returned in the units of y.

    All settings of the problem refer to y / B. For a weight w in the units of y,
    ``strength`` multiplies the penalty of w / B. The ``kappa`` of the huber loss is B
    kappa in the units of y, and the same holds for ``parameters`` such as ``clip`` or a
    radius. Take an l2 penalty, and the squared loss or the huber loss within its
    threshold. Loss and penalty then shrink by B squared, so the result is the minimiser
    for y at the same strength.

    Parameters and attributes are those of `DPClassifier`, except for the classes;
    ``coef_`` has shape (p,) and ``intercept_`` is a number. ``loss='auto'`` is the
    huber loss. Its derivative is bounded, so declared bounds are enough. The squared
    loss needs ``parameters={'clip': 1.0}``.

    Examples
    --------
    Targets are known to lie in [-100, 100] without looking at the data::

        model = DPRegressor(
            epsilon=1.0, bounds={"columns": 1.0, "norm": 1.0, "label": 100.0}
        )
        model.fit(X_train, y_train)
        model.predict(X_test)
    """

    _usual_loss = "huber"
    _classifies = False

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the regression and return it; this spends the privacy budget once.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, p)
            The features.
        y : array of shape (n,)
            Targets, in any unit.

        Returns
        -------
        DPRegressor
            The estimator itself.

        Raises
        ------
        ValueError
            For values or parameters that are not allowed, and for bounds without a
            label.
        """
        self.coef_, self.intercept_ = self._fit_weights(
            *self._check_records(X, y, y_numeric=True)
        )
        return self

    def predict(self, X: Any) -> Array:
        """Return the prediction for each record, shape (n,), in the units of y."""
        return self._clipped_margins(X)

    def _scale_target(self, y: Array, bounds: Bounds) -> tuple[Array, float, Bounds]:
        """Return y / B, B and bounds with label 1; B is public and not read from y."""
        B = bounds.label
        if not B:
            allowed = "a number > 0, a public bound on |y|, not computed from the data"
            raise value_error(
                "bounds.label", B, f"{allowed}; what is fitted is y over it"
            )
        # Targets beyond B are clipped and counted later, with the records.
        within = np.clip(np.asarray(y, np.float64), -2.0 * B, 2.0 * B) / B
        return within, B, replace(bounds, label=1.0)


def _two_classes(given: Collection[Any]) -> NDArray[Any]:
    """Return two classes, sorted; raise UsageError unless there are exactly two."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise value_error("classes", given, "a set or sequence of two labels")
    labels = list(given)
    import pandas as pd  # for NA, which cannot be compared

    if any(pd.api.types.is_scalar(label) and pd.isna(label) for label in labels):
        raise value_error("classes", labels, "two labels, none of them missing")
    words = [isinstance(label, str) for label in labels]
    if any(words) and not all(words):
        raise value_error(
            "classes", labels, "labels of one kind, all texts or all numbers"
        )
    classes = np.unique(np.asarray(labels))
    if classes.shape == (2,):
        return classes
    if classes.shape == (1,):
        raise UsageError("y: holds one class, two are needed")
    raise UsageError(
        "Only binary classification is supported. The type of the target is multiclass."
    )
