"""Axes: lists in a block, and the product that they span."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_erm_bench.datasets.spec import dataset_spec, usual_fields
from dp_erm_bench.datasets.values import is_seed
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.parameters import typed

GRADIENT_RMS = "gradient_rms"


def values_of(key: str, value: Any, natural: Any = None) -> list[Any]:
    """Return the values that a block gives to a key: a list is an axis.

    Parameters
    ----------
    key : str
        For the message.
    value : Any
        One value or a list of values.
    natural : Any
        The usual value of the key; where it is a list itself, only a list of lists
        is an axis.

    Raises
    ------
    UsageError
        If the axis has no values.
    """
    if not _is_list(value):
        return [value]
    if _is_list(natural) and not all(map(_is_list, value)):
        return [list(value)]
    if not value:
        raise UsageError(f"{key}=[]: an axis needs at least one value")
    return list(value)


def is_matrix(value: Any) -> bool:
    """Return whether a value is a list of lists, as vertices are: no axis."""
    return _is_list(value) and bool(value) and all(map(_is_list, value))


def product(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the points of a product of axes; the last axis runs fastest."""
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def named(key: str, value: Any, default: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the (name, parameters) of a choice: a name, a mapping, or a list of them.

    Raises
    ------
    UsageError
        If it is none of these, or a mapping without `name`.
    """
    found = []
    for choice in values_of(key, default if value is None else value):
        fields = dict(choice) if isinstance(choice, Mapping) else {"name": choice}
        fields.pop("_target_", None)
        names = values_of(f"{key}.name", fields.pop("name", None))
        if not all(isinstance(name, str) for name in names):
            raise UsageError(f"{key}={choice}: must be a name or a mapping with `name`")
        found += [(name, fields) for name in names]
    return found


def seeds_of(key: str, value: Any) -> tuple[int, ...]:
    """Return distinct seeds in the order given.

    Raises
    ------
    UsageError
        Unless they are integers of at least 0 that the table can hold.
    """
    seeds = values_of(key, value)
    for seed in seeds:
        if not is_seed(seed):
            raise UsageError(f"{key}={seed}: must be integers >= 0 and below 2^63")
    return tuple(dict.fromkeys(seeds))


def check_keys(where: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Refuse a mapping with other keys than those allowed."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{where}={given}: must be a mapping")
    for key in given:
        if key not in allowed:
            raise UsageError(f"{where}.{key}: must be one of {', '.join(allowed)}")


def relative(key: str, value: Any) -> list[float] | None:
    """Return the multiples of the unit `gradient_rms`, None for absolute values.

    Raises
    ------
    UsageError
        If the mapping has another unit or values that are not positive.
    """
    if not isinstance(value, Mapping):
        return None
    check_keys(key, value, ("unit", "values"))
    if value.get("unit") != GRADIENT_RMS:
        raise UsageError(f"{key}.unit={value.get('unit')}: must be {GRADIENT_RMS}")
    name = f"{key}.values"
    multiples = [typed(name, v, float) for v in values_of(name, value.get("values"))]
    for multiple in multiples:
        if not multiple > 0:
            raise UsageError(f"{name}={multiple}: must be positive")
    return multiples


def overrides_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of a dataset's yaml, numbers in the types that it gives them.

    Raises
    ------
    UsageError
        If the dataset or a key does not exist, or a value has another type.
    """
    usual = usual_of(name, given)
    return {k: like(f"dataset.{k}", v, usual.get(k)) for k, v in given.items()}


def usual_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataset's yaml, and what is given for keys that are not in it."""
    return dataset_spec(name, **given) | usual_fields(name)


def like(key: str, value: Any, usual: Any) -> Any:
    """Convert a number to the type that the yaml gives the key."""
    numeric = type(usual) in (int, float) and value is not None
    return typed(key, value, type(usual)) if numeric else value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
