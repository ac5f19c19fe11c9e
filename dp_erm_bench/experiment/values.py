"""Values of keys: lists that are axes, and the types that single values must have."""

import enum
import itertools
import json
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_erm_bench.errors import UsageError, check_key
from dp_erm_bench.paths import spelled

GRADIENT_RMS = "gradient_rms"
WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a word",
    types.NoneType: "null",
}

UNITS = ("", "K", "M", "G", "T")
SIZE = re.compile(r"(\d+(?:\.\d*)?)([KMGT]?)B?", re.IGNORECASE)


def bytes_of(text: str) -> float:
    """Return the bytes of a size as 500M or 2G (of 1024), NaN if it is none."""
    match = SIZE.fullmatch(text.strip())
    if not match:
        return math.nan
    return float(match[1]) * 1024.0 ** UNITS.index(match[2].upper())


def is_list(value: Any) -> bool:
    """Return whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def is_matrix(value: Any) -> bool:
    """Return whether a value is a list of lists, as vertices are: no axis."""
    return is_list(value) and bool(value) and all(map(is_list, value))


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


def axis_values(axis: Any) -> list[Any]:
    """Return the values of an axis, in their unit."""
    values = axis.get("values") if isinstance(axis, Mapping) else axis
    return [*values] if isinstance(values, list | tuple) else [values]


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


def distinct(values: Sequence[Any]) -> list[Any]:
    """Return values without repetitions, in order; 1 and 1.0 are one, true is another.

    Of those that are equal the first stays.
    """
    return list({_same(value): value for value in reversed(values)}.values())[::-1]


def _same(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_same, value))
    if isinstance(value, Mapping):
        return frozenset((key, _same(one)) for key, one in value.items())
    return isinstance(value, bool), value


def consecutive(values: Sequence[Any]) -> bool:
    """Tell whether values are integers, each one more than the one before.

    They may lie as far apart as they like: no list of those between them is made.
    """
    if not all(type(value) is int for value in values):
        return False
    return all(second - first == 1 for first, second in itertools.pairwise(values))


def multiples_of(key: str, axis: Mapping[str, Any]) -> list[float]:
    """Return the values of an axis in the unit `gradient_rms`.

    Raises
    ------
    UsageError
        If the mapping has another unit or values that are not positive.
    """
    for name in axis:
        check_key(name, ("unit", "values"), key)
    if axis.get("unit") != GRADIENT_RMS:
        raise UsageError(f"{key}.unit={axis.get('unit')}: must be {GRADIENT_RMS}")
    name = f"{key}.values"
    multiples = [typed(name, v, float) for v in values_of(name, axis.get("values"))]
    for multiple in multiples:
        if not multiple > 0:
            raise UsageError(f"{name}={multiple}: must be positive")
    return multiples


def typed(key: str, value: Any, hint: Any) -> Any:
    """Return a value converted to a type hint, or refuse it in one sentence."""
    options = options_of(hint)
    for option in sorted(options, key=lambda o: o is not type(value)):
        try:
            return _converted(value, option)
        except (TypeError, ValueError, OverflowError):
            continue
    allowed = ", ".join(word for option in options for word in _words(option))
    raise UsageError(f"{key}={value}: must be {allowed}")


def options_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, of any other type hint the hint itself."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (hint,)


def _converted(value: Any, hint: Any) -> Any:
    """Return a value as one of a type; raise TypeError or ValueError if it is none."""
    if hint in (int, float):
        if isinstance(value, bool) or math.isnan(number := float(value)):
            raise TypeError
        if hint is float:
            return number
        if not number.is_integer():
            raise TypeError
        return value if isinstance(value, int) else int(number)
    if typing.get_origin(hint) is typing.Literal:
        members = [(type(member), member) for member in typing.get_args(hint)]
        if (type(value), value) not in members:
            raise TypeError
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    elif hint in (bool, str, types.NoneType) and not isinstance(value, hint):
        raise TypeError
    return value


def _words(hint: Any) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(word) for word in typing.get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [str(member.value) for member in hint]
    return [WORDS.get(hint, str(hint))]


def plain(value: Any) -> Any:
    """Return a parameter's value as JSON can spell it."""
    if type(value) in (str, int, bool, types.NoneType):
        return value
    return spelled(value.value if isinstance(value, enum.Enum) else value)


def canonical(value: Any) -> str:
    """Return the JSON of a value: keys sorted, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
