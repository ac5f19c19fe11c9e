"""The specification of a dataset: its yaml with overrides, checked."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dp_erm_bench.datasets.base import Usual
from dp_erm_bench.datasets.bounds import Declared
from dp_erm_bench.datasets.prepare import Recipe
from dp_erm_bench.datasets.values import (
    boolean,
    declared_bounds,
    fraction,
    natural,
    positive_labels,
    refused,
    standardisation,
    usual_objective,
)
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice, locate, read

TASKS = ("classification", "regression")
AUTO = "auto"
"""A task that the loader tells."""

DEFAULTS: dict[str, Any] = {
    "task": None,
    "positive": None,
    "standardise": False,
    "test_fraction": 0.0,
    "seed": 0,
    "drop_empty": False,
    "densify": False,
    "usual": None,
    "usual_standardised": None,
    "usual_regression": None,
    "bounds": None,
    "clip_to_bounds": False,
}
LATER: dict[str, Any] = {}
"""Keys, and options of loaders, that came after results had been published.

Each with the value that does what was done before: only off it such a key enters the
identity of a trial.
"""
MEMBER = "set"
"""The option of a loader that stands for many datasets; part of the name."""


LISTS = ("positive",)
"""Keys whose value may be a list: for them a list is no axis."""


@dataclass(frozen=True, eq=False)
class Spec:
    """A checked specification.

    Parameters
    ----------
    name : str
        Of the yaml; ``yaml:member`` where it stands for many.
    loader : callable
        Returns raw X and y.
    options : dict
        What the loader is called with.
    recipe : Recipe
        How the raw data are prepared.
    usual : Usual or None
        As in the yaml, of the chosen form, raw or standardised.
    bounds : Declared or None
        As in the yaml; None where columns are standardised and records not clipped
        after that.
    """

    name: str
    loader: Callable[..., Any]
    options: dict[str, Any]
    recipe: Recipe
    usual: Usual | None
    bounds: Declared | None


def dataset_spec(name: str, **overrides: Any) -> dict[str, Any]:
    """Return a dataset's yaml with overrides, the form that trials carry.

    Parameters
    ----------
    name : str
        Of a yaml, or ``yaml:member`` (``libsvm:a9a``) where it stands for many.
    **overrides : Any
        Keys of the yaml and options of the loader.

    Raises
    ------
    UsageError
        If the dataset or one of the keys does not exist.
    """
    fields = usual_fields(name)
    allowed = _allowed(locate(fields["_target_"]))
    for key in overrides:
        check_choice(f"key of dataset {name}", key, allowed)
    return _named({**fields, **overrides})


def usual_fields(name: str) -> dict[str, Any]:
    """Return the yaml of a name, with the member that the name chooses.

    Raises
    ------
    UsageError
        If there is no such yaml, or it has no members.
    """
    base, _, member = name.partition(":")
    fields = read("dataset", base)
    if not member:
        return fields
    if MEMBER not in fields:
        raise UsageError(
            f"dataset.name={member}: {base} is one dataset; a name is for "
            f"dataset=libsvm, which stands for many"
        )
    return _named({**fields, MEMBER: member})


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    base = fields["name"].partition(":")[0]
    member = fields.get(MEMBER)
    return fields if member is None else {**fields, "name": f"{base}:{member}"}


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
    seed = {"seed": common["seed"]} if "seed" in _parameters(loader) else {}
    if common["task"] == AUTO and hasattr(loader, "task"):
        common["task"] = asked(loader.task, given)
    recipe = _recipe(name, common)
    return Spec(
        name=name,
        loader=loader,
        options=given | seed,
        recipe=recipe,
        usual=usual_objective(_form(common)),
        bounds=_bounds(recipe, common["bounds"]),
    )


def asked(ask: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Call a loader's method with those options that it takes."""
    return ask(**{k: v for k, v in options.items() if k in _parameters(ask)})


def _form(common: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the usual objective of the form that is asked for."""
    found: Mapping[str, Any] | None = common["usual"]
    if common["task"] == "regression":
        found = common["usual_regression"] or found
    return (common["standardise"] and common["usual_standardised"]) or found


def _recipe(name: str, common: Mapping[str, Any]) -> Recipe:
    if common["task"] not in TASKS:
        check_choice(f"dataset.task of {name}", common["task"], list(TASKS))
    flags = ("drop_empty", "densify", "clip_to_bounds")
    drop_empty, densify, clip = (boolean(flag, common[flag]) for flag in flags)
    standardise, bounds = standardisation(common["standardise"]), common["bounds"]
    if clip and bounds is None:
        raise refused("clip_to_bounds", True, "false unless bounds are declared")
    return Recipe(
        classification=common["task"] == "classification",
        positive=positive_labels(common),
        standardise=standardise,
        test_fraction=fraction("test_fraction", common["test_fraction"]),
        seed=natural("seed", common["seed"]),
        drop_empty=drop_empty,
        densify=densify,
        clip=declared_bounds(bounds) if clip else None,
    )


def _bounds(recipe: Recipe, bounds: Any) -> Declared | None:
    """Return the bounds that hold: those of records as they are, or of clipped ones."""
    as_declared = not recipe.standardise or recipe.clip is not None
    return declared_bounds(bounds) if as_declared else None


def _parameters(loader: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(loader).parameters)


def _allowed(loader: Callable[..., Any]) -> list[str]:
    return sorted({*DEFAULTS, *_parameters(loader)})
