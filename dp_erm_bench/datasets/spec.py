"""The specification of a dataset: its yaml with overrides, checked."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from dp_erm_bench.datasets.base import Usual, dataset_error
from dp_erm_bench.datasets.prepare import (
    BY_BOUNDS,
    FILL_IN,
    MOST,
    SCALE,
    DeclaredBounds,
    Recipe,
    declared_by,
)
from dp_erm_bench.datasets.prepare import KEY as INTERCEPT
from dp_erm_bench.datasets.records import (
    are_words,
    as_list,
    as_number,
    distinct_words,
    label_spelling,
    names_in,
)
from dp_erm_bench.errors import UsageError, real_number, typed_text
from dp_erm_bench.paths import values_entering
from dp_erm_bench.registry import (
    CARD,
    CARDS,
    OFFERED,
    TOLD,
    check_choice,
    locate,
    names,
    read_choice,
)

UNLABELLED = "unlabelled"
TASKS = ["classification", "regression", UNLABELLED]
AUTO = "auto"
"""Value that leaves the task to the loader, or asks for default bounds if needed."""

BOUNDS, BY_DEFAULT = "bounds", "default"
"""Key of declared bounds, and its value for the default bounds in the yaml."""

FRESH, LAW = "n_fresh", "law"
"""Key for the number of fresh records that judge models, and its value for a law."""

PUBLIC = "public"
"""Key by which a user declares that the records are public. It changes no result.

Without this declaration, output for others contains no number computed from records.
"""

DEFAULTS: dict[str, Any] = {
    **{"task": None, "positive": None, "standardise": False, "test_fraction": 0.0},
    **{"seed": 0, "drop_empty": False, "densify": False, "usual": None},
    **{"usual_standardised": None, "usual_regression": None, "bounds": None},
    **{"clip_to_bounds": False, INTERCEPT: 0.0, FRESH: None, "classes": None},
    SCALE: None,
    PUBLIC: False,
}
LATER = {
    **dict.fromkeys((FRESH, "onehot", "index", "plateau", "classes", "first", "text")),
    "drop": None,
    INTERCEPT: 0.0,
    SCALE: None,
}
"""Keys and loader options that are part of a trial's identity only if changed.

Each key is listed with the value that has no effect. So the identities of published
trials, which lack these keys, stay as they are.
"""
MEMBER = "set"
"""Option that chooses one dataset of a loader for many; names include its value."""

READING = {"p": None, "header": "auto", "first": None, "text": None, "format": "auto"}
"""Keys that declare how a file is read, with their values for "the file decides"."""

LISTS = ("positive", "classes", "onehot", "text", "drop")
"""Keys whose value may be a list, which is then not an axis of an experiment."""

LARGEST = 2**63 - 1
FILE_LOADER = "dp_erm_bench.datasets.file.file"


@dataclass(frozen=True, eq=False)
class Spec:
    """A checked specification.

    Parameters
    ----------
    name : str
        Name of the yaml; ``yaml:member`` if the yaml is for many datasets.
    loader : callable
        Returns raw X and y.
    options : dict
        The arguments of the loader.
    recipe : Recipe
        The preparation of the raw data.
    usual : Usual or None
        The usual objective in the yaml, for raw or for standardised columns.
    bounds : DeclaredBounds or None
        The bounds in the yaml; None if columns are standardised and records are not
        clipped afterwards.
    """

    name: str
    loader: Callable[..., Any]
    options: dict[str, Any]
    recipe: Recipe
    usual: Usual | None
    bounds: DeclaredBounds | None


def dataset_spec(name: str, **overrides: Any) -> dict[str, Any]:
    """Return a dataset's yaml with overrides, in the form that trials store.

    Parameters
    ----------
    name : str
        Name of a yaml, or ``yaml:member`` (``libsvm:a9a``) if it is for many datasets.
    **overrides : Any
        Keys of the yaml and options of the loader; an intercept of null or 0 means
        none.

    Raises
    ------
    UsageError
        If the dataset or one of the keys does not exist, or if default bounds are
        requested and the dataset has none.
    """
    fields = usual_fields(name)
    overrides = _with_bounds_in_place(name, overrides)
    _check_keys(name, overrides, locate(fields["_target_"]))
    spec = _spec_name({**fields, **overrides})
    for key in ("positive", "classes", "onehot"):
        if key in spec:
            spec[key] = _spell_dates(spec[key])
    if spec.get(FRESH) is None:
        spec.pop(FRESH, None)
    given = spec.pop(INTERCEPT, None)
    constant = 0.0 if given is None else real_number(given)
    # What is not a number is kept as given, for the message that refuses it.
    kept = given if math.isnan(constant) else constant
    return {**spec, INTERCEPT: kept} if kept != 0.0 else spec


def default_bounds(name: str, overrides: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the default bounds in a dataset's yaml; None if it has none.

    There may be different bounds for raw and for standardised columns. The yaml states
    the bounds and a reason for them, ``why``. If no true bound is known, the default
    bounds are a choice, and records are clipped to them.

    Parameters
    ----------
    name : str
        Name of the yaml, with a member if it is for many datasets. For another name the
        result is None.
    overrides : mapping
        Keys of the yaml that are replaced; only ``standardise`` and the member matter.
    """
    base, _, member = name.partition(":")
    offered = read_choice("dataset", base) if base in names("dataset") else {}
    changed = overrides.get("standardise", offered.get("standardise"))
    card = card_of(f"{base}:{member or overrides.get(MEMBER)}")
    found = {**offered, **card}.get(OFFERED[bool(changed)])
    return found and {key: one for key, one in found.items() if key != "why"}


def card_of(name: str) -> dict[str, Any]:
    """Return the card of a dataset, empty if it has none.

    A card lists family, n, p, origin and licence. Its entry ``why`` explains why the
    bounds in force are public. The card of a member may contain default bounds that
    replace those of the yaml.

    Parameters
    ----------
    name : str
        Name of the yaml, with a member if it is for many datasets.
    """
    base, _, member = name.partition(":")
    fields = read_choice("dataset", base) if base in names("dataset") else {}
    found = fields.get(CARDS, {}).get(member) if member else fields.get(CARD)
    return dict(found or {})


def family_of(name: str) -> str:
    """Return the family in the card of a dataset, else the dataset's own name."""
    return str(card_of(name).get("family", name.rpartition(":")[2]))


def _with_bounds_in_place(name: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Return overrides in which a word for bounds is replaced by the bounds.

    If the word is `default`, records are clipped to the default bounds. The word `auto`
    means the yaml's own bounds here, because it is not known whether an algorithm needs
    other bounds (`experiment.expand`).
    """
    word = overrides.get(BOUNDS)
    if not isinstance(word, str):
        return overrides
    if word not in (AUTO, BY_DEFAULT):
        raise dataset_error(
            BOUNDS,
            word,
            f"{AUTO}, {BY_DEFAULT}, null or a mapping, as in {{columns:1,label:1}}",
        )
    others = {key: one for key, one in overrides.items() if key != BOUNDS}
    if word == AUTO:
        return others
    bounds = default_bounds(name, overrides)
    if bounds is None:
        raise UsageError(
            f"dataset.{BOUNDS}={BY_DEFAULT}: {name} has no default bounds; name some, "
            f"as in dataset.{BOUNDS}={{columns:1,label:1}}"
        )
    if others.get("clip_to_bounds") is False:
        raise dataset_error(
            "clip_to_bounds", False, f"true with dataset.{BOUNDS}={BY_DEFAULT}"
        )
    return {**others, "clip_to_bounds": True, BOUNDS: bounds}


def _spell_dates(given: Any) -> Any:
    """Return labels or categories with dates as strings, because JSON has no dates."""
    if isinstance(given, Mapping):
        return {name: _spell_dates(one) for name, one in given.items()}
    if isinstance(given, list | tuple):
        return [_spell_dates(one) for one in given]
    return label_spelling(given) if isinstance(given, date) else given


def identifying_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a dataset's specification that are part of a trial's identity.

    The declaration that the data are public is left out. Keys whose effect shows in the
    prepared content are also left out, because the identity includes the hash of this
    content. These keys say how a file is read, and name the classes, a positive label
    that is the larger one anyway, and the words of categories. So a declaration of
    facts that would otherwise be read from the file changes no random draw.
    """
    told: dict[str, Any] = {"classes": None}
    if fields.get("_target_") == FILE_LOADER:
        told |= READING
    if isinstance(onehot := fields.get("onehot"), Mapping):
        told["onehot"] = [str(column) for column in onehot]
    if "drop" in fields:
        told["drop"] = sorted({*names_in(fields["drop"])}) or None
    kept, classes = dict(fields), fields.get("classes")
    kept.pop(PUBLIC, None)
    if isinstance(classes, list | tuple) and not are_words(classes):
        larger = max(map(as_number, classes), default=None)
        if kept.get("positive") in (larger, [larger]):
            told["positive"] = None
            if MEMBER not in kept:
                del kept["positive"]  # A yaml without members lacks this key.
    return values_entering({k: told.get(k, v) for k, v in kept.items()}, LATER)


def usual_fields(name: str) -> dict[str, Any]:
    """Return the yaml of a dataset, with the member that the name chooses.

    Raises
    ------
    UsageError
        If there is no such yaml, or if the name has a member and the yaml has none.
    """
    base, _, member = name.partition(":")
    fields = read_choice("dataset", base)
    for key in TOLD:
        fields.pop(key, None)
    if not member:
        return fields
    if MEMBER not in fields:
        raise UsageError(
            f"dataset.name={member}: {base} is one dataset; a name is for "
            f"dataset=libsvm, which stands for many"
        )
    return _spec_name({**fields, MEMBER: member})


def is_generated(name: str) -> bool:
    """Return whether the seed of a dataset draws its records and not only its split."""
    try:
        return "seed" in _loader_parameters(locate(usual_fields(name)["_target_"]))
    except UsageError:
        return False


def usual_value(name: str, key: str) -> Any:
    """Return the default value of a dataset's key; None if it is not known."""
    try:
        fields = usual_fields(name)
        options = inspect.signature(locate(str(fields["_target_"]))).parameters
    except UsageError:
        return None
    of_loader = options[key].default if key in options else None
    return fields.get(key, DEFAULTS.get(key, of_loader))


def usual_objective(name: str, options: Mapping[str, Any]) -> Usual | None:
    """Return the usual objective of a dataset, given the values of some of its keys.

    Parameters
    ----------
    name : str
        Name of a yaml, with a member if it is for many datasets. For another name the
        result is None.
    options : mapping of str to Any
        The keys that are given; the others have their usual values.
    """
    keys = ("task", "standardise", "usual", "usual_standardised", "usual_regression")
    return _usual_objective(
        {key: options.get(key, usual_value(name, key)) for key in keys}
    )


def _spec_name(fields: dict[str, Any]) -> dict[str, Any]:
    base = fields["name"].partition(":")[0]
    member = fields.get(MEMBER)
    return fields if member is None else {**fields, "name": f"{base}:{member}"}


def check_spec(spec: Mapping[str, Any]) -> Spec:
    """Return a dataset's specification, with every key and value checked.

    Raises
    ------
    UsageError
        Naming the key, its value and what is allowed.
    """
    options = dict(spec)
    name, target = (options.pop(key, None) for key in ("name", "_target_"))
    if not isinstance(name, str) or not isinstance(target, str):
        raise UsageError("dataset: needs a name and a _target_, the loader")
    loader = locate(target)
    _check_keys(name, options, loader)
    # A generator may have its own option `scale`.
    ours = [
        key for key in DEFAULTS if key != SCALE or key not in _loader_parameters(loader)
    ]
    common = DEFAULTS | {key: options.pop(key) for key in ours if key in options}
    if common["task"] == AUTO and hasattr(loader, "task"):
        common["task"] = call_loader(loader.task, options)
    if common["classes"] is None and common["task"] == TASKS[0]:
        common["classes"] = call_loader(
            getattr(loader, "classes", lambda: None), options
        )
    recipe = _recipe_of(name, common)
    _check_fresh(common[FRESH], loader, recipe.test_fraction)
    both = vars(recipe) | {"words": recipe.words}
    taken = {"seed", "labelled", INTERCEPT, "words"} & {*_loader_parameters(loader)}
    options |= {key: both[key] for key in taken}
    # Bounds of raw records do not hold for standardised ones, unless those are clipped.
    holds = not recipe.standardise or recipe.clip is not None
    bounds = _declared_of(common)
    if recipe.drop_empty and holds and bounds is not None and bounds.needs_features:
        raise dataset_error(
            "drop_empty",
            True,
            "false where columns have bounds by name, ranges or a scale: which of them "
            "go depends on the records",
        )
    return Spec(
        name,
        loader,
        options,
        recipe,
        _usual_objective(common),
        bounds if holds else None,
    )


def call_loader(ask: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Call a loader, or one of its methods, with those options that it accepts."""
    return ask(**{k: v for k, v in options.items() if k in _loader_parameters(ask)})


def _loader_parameters(loader: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(loader).parameters)


def _check_keys(name: str, keys: Mapping[str, Any], loader: Callable[..., Any]) -> None:
    allowed = sorted({*DEFAULTS, *_loader_parameters(loader)})
    for key in keys:
        check_choice(f"key of dataset {name}", key, allowed)


def _declared_of(common: Mapping[str, Any]) -> DeclaredBounds | None:
    """Return the declared bounds; the bound of labels that are divided by it is 1."""
    if common["bounds"] is None:
        return None
    declared = declared_by(common["bounds"], common[SCALE] is not None)
    return declared if _label_unit(common) == 1.0 else replace(declared, label=1.0)


def _label_unit(common: Mapping[str, Any]) -> float:
    """Return the divisor of labels: their bound in a scaled regression, otherwise 1."""
    scaled = common[SCALE] is not None and common["task"] == TASKS[1]
    return float((scaled and common["bounds"].get("label")) or 1.0)


def _recipe_of(name: str, common: Mapping[str, Any]) -> Recipe:
    check_choice(f"dataset.task of {name}", common["task"], TASKS)
    classification, declared = common["task"] == TASKS[0], common["bounds"] is not None
    positive, how = as_list(common["positive"]), common["standardise"]
    flags = ("drop_empty", "densify", "clip_to_bounds", PUBLIC)
    by_bounds = common[SCALE] is not None
    rules = [
        *((key, isinstance(common[key], bool), "true or false") for key in flags),
        (
            "standardise",
            isinstance(how, bool) or how == "scale",
            "true or false, or scale",
        ),
        (SCALE, common[SCALE] in (None, BY_BOUNDS), f"null or {BY_BOUNDS}"),
        (
            SCALE,
            declared or not by_bounds,
            "null unless bounds are declared, dataset.bounds",
        ),
        (
            SCALE,
            not (by_bounds and how),
            f"null beside dataset.standardise={typed_text(how)}: columns are divided "
            "by "
            "what is declared, or by what is read off the records; for the former add "
            "dataset.standardise=false",
        ),
        (
            "clip_to_bounds",
            declared or not common["clip_to_bounds"],
            "false unless bounds are declared",
        ),
        *(
            (key, common[key] is None or classification, "null for a regression")
            for key in ("positive", "classes")
        ),
        (
            "test_fraction",
            0.0 <= real_number(common["test_fraction"]) < 1.0,
            "a number in [0, 1)",
        ),
        ("seed", is_seed(common["seed"]), "an integer >= 0 and below 2^63"),
        (
            INTERCEPT,
            0.0 <= real_number(common[INTERCEPT]) <= MOST,
            f"a finite number >= 0, at most {MOST:g}, or null",
        ),
    ]
    for key, is_allowed, allowed in rules:
        if not is_allowed:
            raise dataset_error(key, common[key], allowed)
    bounds, classes = _declared_of(common), common["classes"]
    if FILL_IN in (positive or ()):
        raise dataset_error(
            "positive", FILL_IN, "replaced by the labels that become +1"
        )
    check_classes(name, positive, classes)
    same = ("standardise", "seed", "drop_empty", "densify")
    return Recipe(
        classification=classification,
        labelled=common["task"] != UNLABELLED,
        positive=positive,
        classes=None if classes is None else distinct_words(classes, "dataset.classes"),
        test_fraction=real_number(common["test_fraction"]),
        clip=bounds if common["clip_to_bounds"] else None,
        label_unit=_label_unit(common),
        intercept=real_number(common[INTERCEPT]),
        **{key: common[key] for key in same},
    )


def check_classes(
    name: str, positive: Any, classes: Any, prefix: str = "dataset."
) -> None:
    """Raise UsageError for invalid classes, or positive labels that are not among them.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    positive : sequence or None
        Labels that become +1. None means the larger of two numbers.
    classes : sequence or None
        All labels that may occur; if None, nothing is checked.
    prefix : str
        Text before the keys in messages; empty for arguments in Python.

    Raises
    ------
    UsageError
        Naming the key, its value and what is allowed.
    """
    if classes is None:
        return
    several = isinstance(classes, list | tuple)
    known = distinct_words(classes, f"{prefix}classes") if several else []
    if len(known) < 2:
        allowed = "must be null or a list of the labels, two at least, such as [0,1]"
        raise UsageError(f"{prefix}classes={classes}: {allowed}")
    if positive is None:
        if len(known) > 2 or are_words(known):
            raise UsageError(
                f"{prefix}classes={list(classes)}: must be two numbers, of which the "
                f"larger becomes +1, or {prefix}positive must name those that do"
            )
        return
    chosen = distinct_words(positive, f"{prefix}positive")
    both = distinct_words([*positive, *classes], f"{prefix}classes")
    if len(both) > len(known) or not 0 < len(chosen) < len(known):
        raise UsageError(
            f"{prefix}positive={list(positive)} of {name}: must be some, but not all, "
            f"of {prefix}classes={list(classes)}"
        )


def _check_fresh(value: Any, loader: Any, test_fraction: float) -> None:
    """Raise UsageError if a dataset cannot provide the requested fresh records."""
    from dp_erm_bench.datasets.synthetic import LAWS

    known, allowed = getattr(loader, "__name__", "") in LAWS, ""
    count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not (count or value == LAW):
        allowed = f"an integer >= 1, {LAW}, or null"
    elif value == LAW and not known:
        allowed = "a number, as the law of the records is not known"
    elif not (known or test_fraction):
        allowed = "null without a known law or a test_fraction"
    if allowed and value is not None:
        raise dataset_error(FRESH, value, allowed)


def _usual_objective(common: Mapping[str, Any]) -> Usual | None:
    """Return the usual objective for the chosen task and scaling of the columns."""
    value = common["usual"]
    if common["task"] == "regression":
        value = common["usual_regression"] or value
    value = (common["standardise"] and common["usual_standardised"]) or value
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"loss", "penalty", "strength"}:
        raise dataset_error("usual", value, "a mapping with loss, penalty and strength")
    return Usual(**value)


def is_seed(value: object) -> bool:
    """Return whether a value is an integer >= 0 that a column of results can store."""
    return type(value) is int and 0 <= value <= LARGEST
