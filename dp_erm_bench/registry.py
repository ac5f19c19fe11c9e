"""The yaml files of ``conf/`` are the registry; here they are read by name."""

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
"""The group that also has entry points."""

AUTO = "auto"
"""In the yaml of an algorithm: what its rule says (`rules.settings`)."""

TUNE = "tune"
"""In the yaml of an algorithm: grid and limits of a search, which are no parameters."""

OFFERED = ("default_bounds", "default_bounds_standardised")
"""In the yaml of a dataset: bounds to which records are clipped where nobody names any,
and those of standardised columns."""

CARD, CARDS = "card", "cards"
"""There, too: what is told of the dataset, or of each of the sets it stands for."""

TOLD = (*OFFERED, CARD, CARDS)
"""Keys of the yaml that are in no specification and in no trial's identity."""

FROM_FILES = (ALGORITHM, "loss")
"""Groups whose choices may be files, too."""

OBJECTIVE = ("loss", "penalty", "constraint")
PARTS = ("dataset", *OBJECTIVE)
"""Groups of which a problem has one choice each."""

PROBLEM, ERM = "problem", "erm"
POSED = (PROBLEM, *PARTS)
"""The same with the kind of the problem, which specs name where it is not `ERM`."""

CHOSEN = (*POSED, ALGORITHM, "calibration")
"""Groups whose choices may be swept."""

QUANTITIES = {
    **{"objective": 1.0, "test_risk": 1.0, "test_accuracy": -1.0, "auc": -1.0},
    **{"rmse": 1.0, "r2": -1.0},
}
"""What settings may be chosen by, and the sign that makes the least the best."""

POPULATION = (
    *("population_risk", "population_optimum"),
    *("excess_risk", "excess_objective"),
)
"""Columns of trials that are judged by fresh records."""


def conf_dir() -> Path:
    """Return the folder of the config groups: the checkout's, else the wheel's."""
    return _conf_dir(__file__)


@functools.cache
def _conf_dir(module: str) -> Path:
    package = Path(module).resolve().parent
    checkout = package.parent / "conf"
    return checkout if (checkout / "config.yaml").is_file() else package / "conf"


def names(group: str) -> list[str]:
    """Return the choices of a config group, sorted; for algorithms entry points too."""
    outside = entry_points() if group == ALGORITHM else {}
    return sorted({*built_in(group), *outside})


def built_in(group: str) -> list[str]:
    """Return the choices of a config group that have a yaml of ours."""
    return [*_built_in(conf_dir() / group)]


@functools.cache
def _built_in(folder: Path) -> tuple[str, ...]:
    files = os.listdir(folder)
    return tuple([file[: -len(SUFFIX)] for file in files if file.endswith(SUFFIX)])


def foreign_name(algorithm: Mapping[str, Any]) -> str:
    """Return the name or the pin of a spec's algorithm, empty if it is one of ours."""
    name = named_in(algorithm) if algorithm else ""
    return "" if not name or name in _our_algorithms() else name


@functools.cache
def _our_algorithms() -> frozenset[str]:
    return frozenset(built_in(ALGORITHM))


def pin_choice(name: str, group: str = ALGORITHM) -> str:
    """Return a choice's name, a file's being its path and content (`plugins`).

    Raises
    ------
    UsageError
        If there is no such choice, or a file is called as another one.
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
    """Refuse a value that is not among the allowed ones, suggesting the nearest."""
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
    """Return one choice of a config group as a plain dict.

    An algorithm or a loss may be a file: its target is its pin.

    Raises
    ------
    UsageError
        If there is no such choice; the sentence lists those there are.
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
    """Return where `tune` starts with an algorithm: a key of its yaml, no parameter.

    Empty for an algorithm without a yaml of ours, or whose yaml does not say.
    """
    if name not in built_in(ALGORITHM):
        return {}
    fields = _parse_yaml(conf_dir() / ALGORITHM / f"{name}.yaml")
    return copy.deepcopy(dict(fields.get(TUNE, {})))


def without_rules(preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an algorithm's yaml gives, but for what a rule does."""
    return {key: value for key, value in preset.items() if value != AUTO}


def locate(target: str) -> Any:
    """Import the object that a dotted name points to."""
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)


def target(group: str, name: str) -> Any:
    """Return the class or function that a choice of a group names."""
    return _import_target(group, name, read_choice(group, name)["_target_"])


def _import_target(group: str, name: str, dotted: str) -> Any:
    """Import a target; what an entry point offers is looked at, too."""
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
    """Build the object of a choice: its yaml, then the overrides.

    A parameter that a rule gives has the default of its field where it is left out: a
    rule needs a problem and a budget.

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
