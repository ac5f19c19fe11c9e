"""Build problems from names and from arrays, and resolve ``auto`` and '1/n'."""

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from dp_erm_bench import registry
from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Dataset, Features, Usual
from dp_erm_bench.datasets.load import load_dataset, own_dataset
from dp_erm_bench.datasets.prepare import MOST, bounds_and_ranges, features_in
from dp_erm_bench.datasets.spec import UNLABELLED
from dp_erm_bench.errors import UsageError, real_number, value_error
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.penalties.base import ALLOWED, Penalty
from dp_erm_bench.plugins.names import is_file, label_of, named_in
from dp_erm_bench.problems.erm.objective import check_loss
from dp_erm_bench.problems.erm.problem import ERMProblem, feature_names

HIDDEN = ("name", "_target_", "file", "content")
"""Keys of a part's spec that are not parameters."""


def erm_from_arrays(
    X: ArrayLike | Features,
    y: ArrayLike,
    *,
    loss: str | Mapping[str, Any] | Loss,
    penalty: str | Mapping[str, Any] | Penalty = "none",
    strength: float | str | None = None,
    bounds: Mapping[str, Any] | ArrayLike | None = None,
    constraint: str | Mapping[str, Any] | Constraint = "none",
    positive: object = None,
    clip_to_bounds: bool = False,
    intercept: float | None = None,
    classes: object = None,
    scale: str | None = None,
    public: bool = False,
) -> ERMProblem:
    """Return the problem of a user's own data.

    Parameters
    ----------
    X : array, sparse matrix or DataFrame of shape (n, p)
        The features. A sparse matrix stays sparse, and repeated entries are summed, as
        in scipy. A DataFrame names the features.
    y : array of shape (n,)
        Labels. For classification -1 and +1, 0 and 1, or booleans, or any labels with
        ``positive`` or ``classes``. Whether 0 means -1 is read from the labels.
    loss, penalty, constraint : str, mapping, or Loss, Penalty, Constraint
        Names of conf/, mappings with ``name`` and parameters, or objects of your own; a
        loss may be a file.
    strength : float or '1/n', optional
        The strength of the penalty, if the penalty is not an object.
    bounds : mapping, float or array of shape (p,), optional
        Public bounds on a record, not computed from the data: ``columns`` (R_j,
        one number or p numbers) or ``norm`` (R_2), or both, and optionally ``label``
        and ``nonzeros``. A number or an array bounds the columns. The bound of a column
        may be a range ``[low, high]``. ``columns`` may be a mapping of names, such as
        ``{'age': [0, 100]}``; next to it, ``default`` bounds all other columns.
    positive : label or list of labels, optional
        Labels that become +1 (``'yes'``, ``1``); all other labels become -1.
    clip_to_bounds : bool
        Whether records are clipped to the bounds, each by itself, instead of refused.
    intercept : float, optional
        The constant of a last column that is added; None or 0 for none.
    classes : list of labels, optional
        All labels that may occur (``['no', 'yes']``). Without ``positive`` the larger
        of two numbers becomes +1. If None, the classes are read from y if ``positive``
        is given or 0 means -1, and `uncharged` lists this use. This also applies to a
        Series of categories.
    scale : {'bounds'}, optional
        ``bounds`` to map columns to [-1, 1] by their declared bounds or ranges, which
        costs no budget. ``norm`` then bounds the mapped record, and a fitted model also
        maps the records that it is given. None to map nothing.
    public : bool
        Whether the records are public; then pickled results keep their trajectory.

    Raises
    ------
    UsageError
        For wrong shapes, values that are not finite, labels outside the domain of
        the loss, or a record outside the declared bounds.
    """
    how: dict[str, Any] = {"positive": positive, "clip_to_bounds": clip_to_bounds}
    how["classes"] = classes
    if not isinstance(public, bool | np.bool):
        raise value_error("public", public, "True or False")
    how["public"] = bool(public)
    if bounds is not None:
        named = features_in(getattr(X, "columns", None), np.shape(X)[-1])
        declared, ranges = bounds_and_ranges(bounds, named, scale, clip_to_bounds)
        how |= {"bounds": declared, "ranges": ranges}
    elif scale is not None:
        raise value_error("scale", scale, "None unless bounds are declared")
    how["intercept"] = _check_intercept(intercept)
    penalty = penalty if strength is None else _set_strength(penalty, strength)
    if not isinstance(loss, Loss):
        loss = _build_loss(*_split_name("loss", loss))
    how["classification"] = loss.classification
    return build_problem(own_dataset(X, y, **how), loss, penalty, constraint)


def _check_intercept(intercept: float | None) -> float:
    constant = real_number(0.0 if intercept is None else intercept)
    if not 0.0 <= constant <= MOST:
        allowed = f"a finite number >= 0, at most {MOST:g}, or None"
        raise value_error("intercept", intercept, allowed)
    return constant


def _set_strength(
    penalty: str | Mapping[str, Any] | Penalty, strength: float | str
) -> Mapping[str, Any]:
    if isinstance(penalty, Penalty):
        raise UsageError(
            f"strength={strength}: set the strength in the Penalty object instead"
        )
    name, parameters = _split_name("penalty", penalty)
    return {**parameters, "name": name, "strength": strength}


def erm_of_spec(spec: Mapping[str, Any]) -> ERMProblem:
    """Return the problem that the spec of a trial, a sweep or a fit describes.

    Parameters
    ----------
    spec : mapping
        `dataset`, with all its keys, and `loss`, `penalty`, `constraint`;
        other keys are ignored.

    Raises
    ------
    DataUnavailable
        If the dataset is not on this machine and cannot be fetched.
    UsageError
        For unknown names or wrong values.
    """
    objective = (spec[part] for part in registry.OBJECTIVE)
    return build_problem(load_dataset(spec["dataset"]), *objective)


def build_problem(
    dataset: Dataset,
    loss: str | Mapping[str, Any] | Loss = "auto",
    penalty: str | Mapping[str, Any] | Penalty = "auto",
    constraint: str | Mapping[str, Any] | Constraint = "none",
) -> ERMProblem:
    """Return the problem of a dataset and an objective that is given by names.

    Parameters
    ----------
    dataset : Dataset
    loss, penalty, constraint : str, mapping, or Loss, Penalty, Constraint
        A name of conf/, a mapping with ``name`` and parameters, or an object; a loss
        may be a file. ``auto`` means the dataset's usual objective.

    Raises
    ------
    UsageError
        For unknown names, wrong parameters or labels, a loss of your own that breaks
        its declarations, or ``auto`` for a dataset without a usual objective.
    """
    if (dataset.loaded or {}).get("task") == UNLABELLED:
        hint = "use problem=mean, or a task with labels"
        raise UsageError(f"dataset.task=unlabelled of {dataset.name}: {hint}")
    if not isinstance(loss, Loss):
        name, parameters = _split_name("loss", loss)
        name = _require_usual("loss", dataset).loss if name == "auto" else name
        loss = _build_loss(name, parameters)
    if not isinstance(penalty, Penalty):
        name, parameters = _split_name("penalty", penalty)
        name = _require_usual("penalty", dataset).penalty if name == "auto" else name
        parameters = _index_groups("penalty", parameters, dataset)
        penalty = _build_penalty(name, parameters, dataset)
    if not isinstance(constraint, Constraint):
        name, parameters = _split_name("constraint", constraint)
        parameters = _index_groups("constraint", parameters, dataset)
        constraint = cast(Constraint, registry.build("constraint", name, **parameters))
    problem = ERMProblem(dataset, loss, penalty, constraint)
    _ = problem.population  # refused here, not after the first run
    return problem


def strength_of(value: float | str, n: int, key: str = "strength") -> float:
    """Return a strength as a number, where ``'1/n'`` is 1 divided by n.

    Parameters
    ----------
    value : float or str
        A number >= 0, or ``'1/n'``; otherwise UsageError.
    n : int
        Number of records.
    key : str
        Name of the parameter in messages.
    """
    if isinstance(value, str) and value.replace(" ", "") == "1/n":
        return 1.0 / n
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"penalty.{key}={value}: must be a number >= 0, {ALLOWED[key]}"
        ) from None


def _build_loss(name: str, parameters: Mapping[str, Any]) -> Loss:
    """Return a loss by name; one from a file is checked against its declarations."""
    if name == "auto":
        raise UsageError(
            "loss=auto: dataset arrays has no usual objective; choose a loss"
        )
    for key, value in parameters.items() if is_file(name) else ():
        if math.isnan(real_number(value)):
            key_value = f"loss.{key}={value} of {label_of(name)}"
            raise UsageError(f"{key_value}: must be a number")
    loss = cast(Loss, registry.build("loss", name, **parameters))
    if loss.source:
        check_loss(loss)
    return loss


def _split_name(group: str, spec: object) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters in ``'l2'`` or ``{'name': 'l2', ...}``."""
    if isinstance(spec, str):
        return spec, {}
    if not isinstance(spec, Mapping):
        names = ", ".join(registry.names(group))
        allowed = f"{names}, a mapping with `name`, or a {group.capitalize()}"
        raise value_error(group, spec, f"one of {allowed}")
    if "name" not in spec:
        raise UsageError(f"{spec}: must have the key name besides its parameters")
    # Numbers of numpy are accepted like Python's.
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in spec.items()}
    return named_in(spec), {k: v for k, v in plain.items() if k not in HIDDEN}


def _index_groups(
    part: str, parameters: dict[str, Any], dataset: Dataset
) -> dict[str, Any]:
    """Return parameters in which the groups have feature indices instead of names."""
    groups, lists = parameters.get("groups"), (list, tuple)
    if not (
        isinstance(groups, lists) and all(isinstance(row, lists) for row in groups)
    ):
        return parameters
    places = {name: j for j, name in enumerate(feature_names(dataset))}

    def index(member: Any) -> Any:
        if isinstance(member, str):
            registry.check_choice(f"{part}.groups", member, list(places))
        return places.get(member, member)

    return {**parameters, "groups": [[index(j) for j in row] for row in groups]}


def _require_usual(key: str, dataset: Dataset) -> Usual:
    if dataset.usual is None:
        raise UsageError(
            f"{key}=auto: dataset {dataset.name} has no usual objective; choose a {key}"
        )
    return dataset.usual


def _build_penalty(name: str, parameters: dict[str, Any], dataset: Dataset) -> Penalty:
    """Return the penalty of a given name, with its strength as a number."""
    strength = parameters.pop("strength", "auto")
    if hasattr(registry.build("penalty", name), "strength"):
        usual = dataset.usual
        if strength == "auto":
            if usual is None or usual.penalty != name:
                raise UsageError(
                    f"penalty.strength=auto: dataset {dataset.name} has no usual "
                    f"strength for penalty {name}; set penalty.strength"
                )
            strength = usual.strength
        parameters["strength"] = strength_of(strength, dataset.n)
        if "l2" in parameters:
            parameters["l2"] = strength_of(parameters["l2"], dataset.n, "l2")
    elif strength != "auto":
        parameters["strength"] = strength  # refused, as an unknown parameter
    return cast(Penalty, registry.build("penalty", name, **parameters))
