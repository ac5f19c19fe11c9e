"""The specification of a dataset: its yaml with overrides, checked."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import Bounds, Usual
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice, locate, read

TASKS = ("classification", "regression")
DEFAULTS: dict[str, Any] = {
    "task": None,
    "standardise": False,
    "test_fraction": 0.0,
    "seed": 0,
    "usual": None,
    "usual_standardised": None,
    "bounds": None,
}


@dataclass(frozen=True, eq=False)
class Spec:
    """A checked specification.

    Parameters
    ----------
    name : str
        Of the yaml.
    loader : callable
        Returns raw X and y.
    options : dict
        What the loader is called with.
    task, standardise, test_fraction, seed, usual, bounds
        As in the yaml; ``usual`` is that of the chosen form, raw or standardised.
    """

    name: str
    loader: Callable[..., Any]
    options: dict[str, Any]
    task: str
    standardise: bool
    test_fraction: float
    seed: int
    usual: Usual | None
    bounds: Bounds | None


def dataset_spec(name: str, **overrides: Any) -> dict[str, Any]:
    """Return a dataset's yaml with overrides, the form that trials carry.

    Raises
    ------
    UsageError
        If the dataset or one of the keys does not exist.
    """
    fields = read("dataset", name)
    allowed = _allowed(locate(fields["_target_"]))
    for key in overrides:
        check_choice(f"key of dataset {name}", key, allowed)
    return {**fields, **overrides}


def check_spec(spec: Mapping[str, Any]) -> Spec:
    """Check every key and value of a dataset's specification.

    Raises
    ------
    UsageError
        Naming the key, its value and what is allowed.
    """
    given = dict(spec)
    name, target = given.pop("name", None), given.pop("_target_", None)
    if not isinstance(name, str) or not isinstance(target, str):
        raise UsageError("dataset: needs a name and a _target_, the loader")
    loader = locate(target)
    for key in given:
        check_choice(f"key of dataset {name}", key, _allowed(loader))
    common = DEFAULTS | {key: given.pop(key) for key in DEFAULTS if key in given}
    if common["task"] not in TASKS:
        check_choice(f"dataset.task of {name}", common["task"], list(TASKS))
    seed = _integer("seed", common["seed"])
    options = given | ({"seed": seed} if "seed" in _parameters(loader) else {})
    standardise = _boolean("standardise", common["standardise"])
    usual = (standardise and common["usual_standardised"]) or common["usual"]
    return Spec(
        name=name,
        loader=loader,
        options=options,
        task=common["task"],
        standardise=standardise,
        test_fraction=_fraction("test_fraction", common["test_fraction"]),
        seed=seed,
        usual=_usual(usual),
        bounds=None if standardise else _bounds(common["bounds"]),
    )


def _parameters(loader: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(loader).parameters)


def _allowed(loader: Callable[..., Any]) -> list[str]:
    return sorted({*DEFAULTS, *_parameters(loader)})


def _refuse(key: str, value: object, allowed: str) -> UsageError:
    return UsageError(f"dataset.{key}={value}: must be {allowed}")


def _boolean(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refuse(key, value, "true or false")
    return value


def _integer(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _refuse(key, value, "an integer >= 0")
    return value


def _number(value: object) -> float:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if numeric else math.nan  # type: ignore[arg-type]


def _fraction(key: str, value: object) -> float:
    if not 0.0 <= _number(value) < 1.0:
        raise _refuse(key, value, "a number in [0, 1)")
    return _number(value)


def _usual(value: Mapping[str, Any] | None) -> Usual | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"loss", "penalty", "strength"}:
        raise _refuse("usual", value, "a mapping with loss, penalty and strength")
    return Usual(**value)


def _bounds(value: Mapping[str, Any] | None) -> Bounds | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not {"columns"} <= set(value) <= {
        "columns",
        "norm",
        "label",
    }:
        raise _refuse("bounds", value, "null or a mapping with columns, norm, label")
    columns = np.array([_bound("columns", entry) for entry in value["columns"]])
    columns.flags.writeable = False
    norm, label = value.get("norm"), value.get("label")
    return Bounds(
        columns=columns,
        norm=float(np.linalg.norm(columns)) if norm is None else _bound("norm", norm),
        label=None if label is None else _bound("label", label),
    )


def _bound(key: str, value: object) -> float:
    if not 0.0 <= _number(value) < math.inf:
        raise _refuse(f"bounds.{key}", value, "a finite number >= 0")
    return _number(value)
