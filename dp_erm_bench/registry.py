"""Look up datasets, algorithms and other choices: the yaml files of ``conf/``."""

import copy
import dataclasses
import difflib
import functools
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.load import check_class, load_class
from dp_erm_bench.plugins.names import (
    entry_points,
    is_file,
    label_of,
    named_in,
    pin_file,
)

SUFFIX = ".yaml"
ALGORITHM = "algorithm"
"""The group whose choices may also come from entry points."""

AUTO = "auto"
"""Value, in an algorithm's yaml, of parameters set by a rule (`rules.settings`)."""

TUNE = "tune"
"""Key in an algorithm's yaml for the grid and limits of a search."""

OFFERED = ("default_bounds", "default_bounds_standardised")
"""Keys in a dataset's yaml for default bounds, without and with standardised columns.

Records are clipped to these bounds if none are declared.
"""

CARD, CARDS = "card", "cards"
"""Keys in a dataset's yaml for facts on it, or on each dataset of a collection."""

TOLD = (*OFFERED, CARD, CARDS)
"""Keys of a dataset's yaml that are not part of specifications or of identities."""

FROM_FILES = (ALGORITHM, "loss")
"""Groups whose choices may also be a user's files."""

OBJECTIVE = ("loss", "penalty", "constraint")
PARTS = ("dataset", *OBJECTIVE)
"""Groups that describe a problem, which has one choice of each."""

PROBLEM, ERM = "problem", "erm"
POSED = (PROBLEM, *PARTS)
"""`PARTS` and the kind of problem. Specs name the kind only if it is not `ERM`."""

CHOSEN = (*POSED, ALGORITHM, "calibration")
"""Groups whose choices may be an axis of a sweep."""

QUANTITIES = {
    **{"objective": 1.0, "test_risk": 1.0, "test_accuracy": -1.0, "auc": -1.0},
    **{"rmse": 1.0, "r2": -1.0},
}
"""Quantities by which settings may be chosen; the sign is -1 if higher is better."""

POPULATION = (
    *("population_risk", "population_optimum"),
    *("excess_risk", "excess_objective"),
)
"""Columns of trials that are evaluated on fresh records."""


def conf_dir() -> Path:
    """Return the folder ``conf/`` of the checkout or of the installed wheel."""
    return _conf_dir(__file__)


@functools.cache
def _conf_dir(module: str) -> Path:
    package = Path(module).resolve().parent
    checkout = package.parent / "conf"
    return checkout if (checkout / "config.yaml").is_file() else package / "conf"


def names(group: str) -> list[str]:
    """Return the choices of a config group, sorted.

    Algorithms include those that installed packages offer as entry points.
    """
    outside = entry_points() if group == ALGORITHM else {}
    return sorted({*built_in(group), *outside})


def built_in(group: str) -> list[str]:
    """Return the choices of a config group that have a yaml in this package."""
    return [*_built_in(conf_dir() / group)]


@functools.cache
def _built_in(folder: Path) -> tuple[str, ...]:
    files = os.listdir(folder)
    return tuple([file[: -len(SUFFIX)] for file in files if file.endswith(SUFFIX)])


def foreign_name(algorithm: Mapping[str, Any]) -> str:
    """Return the name or pin of a spec's algorithm; empty for a built-in algorithm."""
    name = named_in(algorithm) if algorithm else ""
    return "" if not name or name in _our_algorithms() else name


@functools.cache
def _our_algorithms() -> frozenset[str]:
    return frozenset(built_in(ALGORITHM))


def pin_choice(name: str, group: str = ALGORITHM) -> str:
    """Return the name of a choice; for a user's file, a pin of its path and content.

    Raises
    ------
    UsageError
        If there is no such choice, or a file has the name of an existing choice.
    """
    if not is_file(name):
        check_choice(group, name, names(group))
        return name
    if label_of(name) in names(group):
        one = f"{'an' if group == ALGORITHM else 'a'} {group} of the package"
        taken = f"the name {label_of(name)} is taken by {one}; rename the file"
        raise UsageError(f"{group}={name}: {taken}")
    return pin_file(name, group)


def check_choice(key: str, value: Any, allowed: list[str]) -> None:
    """Raise UsageError for a value that is not allowed, suggesting the nearest one.

    Parameters
    ----------
    key : str
        Key of the value, for the message.
    value : Any
        The value that was given.
    allowed : list of str
        The allowed values.
    """
    if value in allowed:
        return
    if not allowed:
        raise UsageError(f"{key}={value}: there is none")
    near = difflib.get_close_matches(str(value), allowed, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise UsageError(f"{key}={value}{hint}: must be one of {', '.join(allowed)}")


@functools.cache
def _parse_yaml(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(), Loader=yaml.CSafeLoader) or {}


def read_choice(group: str, name: str) -> dict[str, Any]:
    """Return the yaml of one choice of a config group as a plain dict.

    An algorithm or a loss may be a user's file, whose ``_target_`` is its pin.

    Raises
    ------
    UsageError
        If there is no such choice. The message lists the existing choices.
    """
    if group in FROM_FILES and is_file(name):
        return {"_target_": pin_choice(name, group)}
    check_choice(group, name, names(group))
    if name not in built_in(group):
        return {"_target_": entry_points()[name]}
    fields = copy.deepcopy(_parse_yaml(conf_dir() / group / f"{name}.yaml"))
    if group == ALGORITHM:
        fields.pop(TUNE, None)
    return fields


def read_tune(name: str) -> dict[str, Any]:
    """Return the grid and the limits with which `tune` starts for an algorithm.

    Grid and limits are a key of the algorithm's yaml. The result is empty if the
    algorithm has no yaml in this package, or the yaml has no such key.
    """
    if name not in built_in(ALGORITHM):
        return {}
    fields = _parse_yaml(conf_dir() / ALGORITHM / f"{name}.yaml")
    return copy.deepcopy(dict(fields.get(TUNE, {})))


def without_rules(preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters in an algorithm's yaml that are not set by a rule."""
    return {key: value for key, value in preset.items() if value != AUTO}


def locate(target: str) -> Any:
    """Import and return the object with a dotted name."""
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)


def target(group: str, name: str) -> Any:
    """Return the class or function to which a choice of a group refers."""
    return _import_target(group, name, read_choice(group, name)["_target_"])


def _import_target(group: str, name: str, dotted: str) -> Any:
    """Import the target of a choice; one from an entry point is also checked."""
    if is_file(dotted):
        return load_class(dotted, group)
    if group != ALGORITHM or name in built_in(group):
        return locate(dotted)
    try:
        offered = locate(dotted)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"algorithm={name}: the entry point {dotted} cannot be imported, {error}"
        ) from None
    check_class(name, offered, group)
    return offered


def build(group: str, name: str, **overrides: Any) -> Any:
    """Return the object of a choice, built from its yaml with overrides.

    Rules are not applied, as they need a problem and a budget. A parameter that a rule
    would choose has the default of its field, unless it is given.

    Raises
    ------
    UsageError
        If the choice or one of the parameters does not exist.
    """
    fields = read_choice(group, name)
    cls = _import_target(group, name, fields.pop("_target_"))
    if group == ALGORITHM:
        fields = without_rules(fields)
    if dataclasses.is_dataclass(cls):
        allowed = sorted(field.name for field in dataclasses.fields(cls))
        for key in overrides:
            check_choice(f"parameter of {label_of(name)}", key, allowed)
    return cls(**{**fields, **overrides})
