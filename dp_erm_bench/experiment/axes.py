"""Axes: lists in a block, and the product that they span."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_erm_bench.errors import UsageError, check_key
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
    if not is_list(value):
        return [value]
    if is_list(natural) and not all(map(is_list, value)):
        return [list(value)]
    if not value:
        raise UsageError(f"{key}=[]: an axis needs at least one value")
    return list(value)


def is_matrix(value: Any) -> bool:
    """Return whether a value is a list of lists, as vertices are: no axis."""
    return is_list(value) and bool(value) and all(map(is_list, value))


def product(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the points of a product of axes; the last axis runs fastest."""
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def seeds_of(key: str, value: Any) -> tuple[int, ...]:
    """Return distinct seeds in the order given.

    Raises
    ------
    UsageError
        Unless they are integers of at least 0 that the table can hold.
    """
    # Not at the top: the command line must start without numpy.
    from dp_erm_bench.datasets.spec import is_seed

    seeds = values_of(key, value)
    for seed in seeds:
        if not is_seed(seed):
            raise UsageError(f"{key}={seed}: must be integers >= 0 and below 2^63")
    return tuple(dict.fromkeys(seeds))


def relative(key: str, value: Any) -> list[float] | None:
    """Return the multiples of the unit `gradient_rms`, None for absolute values.

    Raises
    ------
    UsageError
        If the mapping has another unit or values that are not positive.
    """
    if not isinstance(value, Mapping):
        return None
    for name in value:
        check_key(name, ("unit", "values"), key)
    if value.get("unit") != GRADIENT_RMS:
        raise UsageError(f"{key}.unit={value.get('unit')}: must be {GRADIENT_RMS}")
    name = f"{key}.values"
    multiples = [typed(name, v, float) for v in values_of(name, value.get("values"))]
    for multiple in multiples:
        if not multiple > 0:
            raise UsageError(f"{name}={multiple}: must be positive")
    return multiples


def is_list(value: Any) -> bool:
    """Return whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def axis_values(axis: Any) -> list[Any]:
    """Return the values of an axis, in whatever unit they are."""
    values = axis.get("values") if isinstance(axis, Mapping) else axis
    return [*values] if isinstance(values, list | tuple) else [values]
