"""Estimators for scikit-learn: a private fit behind its interface."""

import math
import warnings
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
from dp_erm_bench.api import fit_quietly, problem_from_arrays
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
"""The bounds to which records are clipped where none are declared."""


NO_BOUNDS = (
    "bounds=None: records are clipped to norm 1 and regression targets to [-1, 1]; "
    "declare public bounds, such as bounds={'columns': 1, 'norm': 1, 'label': 1}"
)

NO_IMPUTER = (
    "Fill missing values with a constant that is known without the records, and add a "
    "column that says where; a mean or median of theirs, as of an imputer, reads the "
    "records, which no budget pays for"
)

FAR = 0.05
"""Share of what the constant model loses to the minimum that may be left without noise.

Without an intercept of what w = 0 loses.
"""


NONE = 1e-6
"""Times the minimum: what is left of nothing to be gained, and of rounding."""


class _DPLinear(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: bounds, the fit, margins."""

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
        """Return an estimator with the settings that a results folder chose.

        The algorithm that did best on fresh seeds and its parameters, and what they
        were chosen for: loss, penalty, constraint, delta, adjacency, bounds, scale,
        intercept, declared classes. The folder is not trusted: of what it names nothing
        is executed, numbers are checked as those that a user gives.

        Parameters
        ----------
        folder : str or Path
            Of `dp-erm-bench tune`, or of an experiment that tunes.
        epsilon : float
            One that was tuned for.
        panel, dataset : str, optional
            Which problem, where the folder holds several.
        algorithm : str, optional
            One of those that were tuned, the path of its file if that is one's own;
            None: the best.
        **given
            Parameters of the estimator, in place of those of the folder. With
            ``tuned=False``, for runs on public data, `uncharged_` lists no tuning.

        Warns
        -----
        DoubtfulChoice
            If the choice does not beat w = 0 or is open, its algorithm is in doubt, or
            it was made for standardised columns, which the estimator does not make.

        Raises
        ------
        UsageError
            If there is no such choice, or several problems have one; for the loss of
            another task, a file that is not named here, noise that is not proved,
            targets in units that an estimator does not have, and wrong parameters.
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
            # What the choice left at its field's default is there, and no rule's.
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
            warnings.warn(f"{whose}: {doubt}", DoubtfulChoice, stacklevel=2)
        return cls(name, **{**found, **given})

    def _check_records(self, X: Any, y: Any, **more: Any) -> Any:
        """Return records as scikit-learn checks them.

        Its advice on missing values is to impute them, which reads the records.
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
        """Return the weights and the intercept that are fitted to numbers y."""
        if self.bounds is None:
            warnings.warn(NO_BOUNDS, UndeclaredBounds, stacklevel=3)
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
                warnings.warn(told, ClippedRecords, stacklevel=3)
            if told := wide_bounds_sentence(problem.dataset, names):
                warnings.warn(f"bounds: {told}", WideBounds, stacklevel=3)
        result = fit_quietly(
            *(problem, self.algorithm),
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            seed=self.random_state,
            **dict(self.parameters or {}),
        )
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
        """Warn of settings that leave much of what the constant model has to gain.

        Not with noise: what the warning says is computed from the records.
        """
        problem = result.problem
        assert problem is not None  # of a result that nobody pickled
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
            warnings.warn(
                f"{result.algorithm}: at epsilon=inf {share} "
                f"{CONSTANTS.get(key, key)} loses to the minimum is left; give it "
                "other parameters, or columns of equal scale (scale='bounds', with "
                "ranges that are known to be narrow)",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _scale_target(self, y: Array, bounds: Bounds) -> tuple[Array, float, Bounds]:
        """Return what is fitted for y, the unit of its weights, and its bounds."""
        return y, 1.0, bounds

    def _clipped_margins(self, X: Any) -> Array:
        """Return the margins of records, which are clipped as those of the fit were."""
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
    """Return the parameters of an estimator that a choice was made for.

    Raises
    ------
    UsageError
        If an estimator has none that are so, but for those that are given.
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
    """Return the refusal of code that a folder names; a user must."""
    file = f"{part}='path/to/{name}.py'"
    return UsageError(
        f"{whose}: {part} {name} is not one of this installation; if it is a file of "
        f"your own, name it, {file}"
    )


def _doubts_of_choice(row: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a choice may not be worth taking."""
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
    """Return whether margins are log odds; say of which loss they are."""
    loss = model.loss
    name = loss.get("name") if isinstance(loss, Mapping) else loss
    if name in ("auto", "logistic"):
        return True
    raise AttributeError(
        f"predict_proba: is for loss='logistic', whose margins are log odds, not for "
        f"loss={loss!r}"
    )


class DPClassifier(ClassifierMixin, _DPLinear):  # type: ignore[misc]
    """A private linear classifier of two classes, for scikit-learn.

    One fit spends the budget once. `GridSearchCV` and `cross_val_score` fit many models
    to the same records and compare their scores: none of this is charged, and
    ``epsilon_certified_`` of the best model counts its own fit only.

    Parameters
    ----------
    algorithm : str
        A name of conf/algorithm, the path of a file with a solver of your own, or
        ``auto``: what is expected to be best for what is public. Where nothing is
        expected to beat w = 0, that is the answer: ``coef_`` is zero, no budget is
        spent, and a `NoGain` warning says how many records would do better. All
        predictions are ``classes_[0]`` then, or 0.
    epsilon, delta, adjacency
        The budget, as for `fit`; ``epsilon=inf`` is without noise.
    bounds : mapping, float or array of shape (p,), optional
        Public bounds on a record, as for `problem_from_arrays`, to which each record
        is clipped, in predictions too; by name those of a DataFrame. None: norm 1, with
        a warning. There is one, too, if more than a tenth of the records are clipped,
        and if all are below a hundredth of a bound.
    intercept : float or None
        The constant of a last column; None or 0 for none. Its weight is penalised.
    loss, penalty : str or mapping
        ``auto``: logistic. As for `problem_from_arrays`.
    strength : float, str or None
        Of the penalty; ``'1/n'`` is the inverse of the number of records. None: the
        one in the mapping ``penalty``, or of a penalty without any.
    parameters : mapping, optional
        Parameters of the algorithm, such as ``{'clip': 1.0}``; ``auto`` takes none.
        Others have the defaults of `fit`: what a rule makes of public numbers. Where at
        ``epsilon=inf`` that stays far from the minimum, a ConvergenceWarning says so.
    random_state : int, optional
        A seed. A seeded fit is reproducible and therefore not private; None takes 128
        secret bits.
    classes : set or sequence of two labels, optional
        The labels, in any order. None: those that y holds, which is a use of the data
        that no budget pays for, also where a Series has categories: they may be read.
    scale : {'bounds'}, optional
        Whether columns are mapped to [-1, 1] by their bounds, in predictions too.
    constraint : str or mapping
        As for `problem_from_arrays`.
    tuned : bool
        Whether settings were chosen on the records, as those of `from_results` were:
        ``uncharged_`` lists it as ``tuning``.

    Attributes
    ----------
    coef_, intercept_, classes_ : arrays of shape (1, p), (1,), (2,)
        Weights of the features as they were clipped, or mapped; the labels, sorted as
        scikit-learn's scorers have them: margins are positive for ``classes_[1]``,
        however they were given.
    feature_names_in_ : array of shape (p,)
        Of a DataFrame whose columns have names.
    algorithm_ : str
        The algorithm that was run.
    epsilon_certified_ : float
        The epsilon that is proved for the fit, with what ``uncharged_`` lists public.
    delta_, adjacency_ : float, str
        The delta at which it is, and which datasets are neighbours.
    n_samples_fit_ : int
        The number of records, which is public.
    releases_ : tuple of Release
        The published releases with their sensitivities.
    params_ : dict
        All parameters of the algorithm: numbers where a rule gave them.
    uncharged_ : tuple of str
        Uses of the data that the budget does not pay for.
    reproducible_ : bool
        Whether the fit was seeded, hence is not private.
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
        """Return the estimator, fitted to X of shape (n, p) and labels (n,).

        Raises ValueError for other classes, values that are not finite or parameters
        that are not allowed.
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
        """Return the margins of records, shape (n,); positive for ``classes_[1]``."""
        return self._clipped_margins(X)

    @available_if(_has_log_odds)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return what the logistic model says of each class, shape (n, 2).

        1 / (1 + exp(-margin)) for ``classes_[1]``, in the last column, of
        ``loss='logistic'`` only. Not calibrated: noise, penalty and clipping move
        margins, and nothing has compared these numbers with frequencies.
        """
        margins = self._clipped_margins(X)
        return np.column_stack([expit(-margins), expit(margins)])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each record, shape (n,)."""
        second = self._clipped_margins(X) > 0.0
        labels: NDArray[Any] = self.classes_[second.astype(int)]
        return labels


class DPRegressor(RegressorMixin, _DPLinear):  # type: ignore[misc]
    """A private linear regression, for pipelines of scikit-learn.

    Targets are clipped to [-B, B], B the public ``bounds['label']``, which must be
    declared, and y / B is fitted; coefficients, intercept and predictions are in the
    units of y. Whatever is in the units of the problem is one of y / B: for a weight w
    of y, ``strength`` multiplies the penalty of w / B, huber's ``kappa`` is B kappa in
    the units of y, and so are ``parameters`` such as ``clip`` or a radius. With an l2
    penalty and the squared loss, or huber within its threshold, that is the minimiser
    for y at the same strength: both terms shrink by B squared.

    Parameters and attributes are those of `DPClassifier` but for the classes: ``coef_``
    is of shape (p,) and ``intercept_`` a number. ``loss='auto'`` is huber: its
    derivative is bounded, so that declared bounds are enough; squared needs
    ``parameters={'clip': 1.0}``.
    """

    _usual_loss = "huber"
    _classifies = False

    def fit(self, X: Any, y: Any) -> Self:
        """Return the estimator, fitted to X of shape (n, p) and targets (n,).

        Raises ValueError for values or parameters that are not allowed, and for bounds
        without a label.
        """
        self.coef_, self.intercept_ = self._fit_weights(
            *self._check_records(X, y, y_numeric=True)
        )
        return self

    def predict(self, X: Any) -> Array:
        """Return the prediction for each record, shape (n,), in the units of y."""
        return self._clipped_margins(X)

    def _scale_target(self, y: Array, bounds: Bounds) -> tuple[Array, float, Bounds]:
        """Return y / B, B and bounds with label 1; B is public, no record moves it."""
        B = bounds.label
        if not B:
            allowed = "a number > 0, a public bound on |y|, not computed from the data"
            raise value_error(
                "bounds.label", B, f"{allowed}; what is fitted is y over it"
            )
        # What is beyond B stays so, and is clipped and counted with the records.
        within = np.clip(np.asarray(y, np.float64), -2.0 * B, 2.0 * B) / B
        return within, B, replace(bounds, label=1.0)


def _two_classes(given: Collection[Any]) -> NDArray[Any]:
    """Return two classes, sorted; refuse any other number, and what has no order."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise value_error("classes", given, "a set or sequence of two labels")
    labels = list(given)
    import pandas as pd  # for NA, which compares with nothing

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
