"""Checks of a dataset's keys and of its generator's; a wrong one is refused by name."""

import contextlib
import math
import os
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from dp_erm_bench.datasets.base import Usual
from dp_erm_bench.datasets.bounds import Declared
from dp_erm_bench.errors import UsageError

LARGEST = 2**63 - 1
NUMBER = 8
GIGABYTE = 1e9


def refused(key: str, value: object, allowed: str) -> UsageError:
    """Return the error of a key with a value that is not allowed."""
    return UsageError(f"dataset.{key}={value}: must be {allowed}")


def boolean(key: str, value: object) -> bool:
    """Return true or false, refusing anything else."""
    if not isinstance(value, bool):
        raise refused(key, value, "true or false")
    return value


def standardisation(value: object) -> bool | str:
    """Return whether or how columns are standardised."""
    if value == "scale":
        return "scale"
    if isinstance(value, bool):
        return value
    raise refused("standardise", value, "true or false, or scale")


def positive_labels(common: Mapping[str, Any]) -> list[Any] | None:
    """Return the labels that become +1; one label is a list of one."""
    value = common["positive"]
    if value is None:
        return None
    if common["task"] != "classification":
        raise refused("positive", value, "null for a regression")
    return list(value) if isinstance(value, list | tuple) else [value]


def is_seed(value: object) -> bool:
    """Tell whether a value is an integer from 0 to what a column of the table holds."""
    return type(value) is int and 0 <= value <= LARGEST


def natural(key: str, value: object) -> int:
    """Return an integer of at least 0."""
    if not is_seed(value):
        raise refused(key, value, "an integer >= 0 and below 2^63")
    return cast(int, value)


def _number(value: object) -> float:
    """Return a number as a float, nan for what is none or too large for one."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
    return math.nan


def fraction(key: str, value: object) -> float:
    """Return a number in [0, 1)."""
    if not 0.0 <= _number(value) < 1.0:
        raise refused(key, value, "a number in [0, 1)")
    return _number(value)


def usual_objective(value: Mapping[str, Any] | None) -> Usual | None:
    """Return the usual objective that a yaml names."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"loss", "penalty", "strength"}:
        raise refused("usual", value, "a mapping with loss, penalty and strength")
    return Usual(**value)


def declared_bounds(value: Mapping[str, Any] | None) -> Declared | None:
    """Return the bounds that a yaml declares."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not {"columns"} <= set(value) <= {
        "columns",
        "norm",
        "label",
    }:
        raise refused("bounds", value, "null or a mapping with columns, norm, label")
    given = value["columns"]
    if isinstance(given, list | tuple):
        columns = np.array([_bound("columns", entry) for entry in given])
    else:
        columns = np.array(_bound("columns", given))
    columns.flags.writeable = False
    norm, label = value.get("norm"), value.get("label")
    return Declared(
        columns=columns,
        norm=None if norm is None else _bound("norm", norm),
        label=None if label is None else _bound("label", label),
    )


def _bound(key: str, value: object) -> float:
    if not 0.0 <= _number(value) < math.inf:
        raise refused(f"bounds.{key}", value, "a finite number >= 0")
    return _number(value)


def check_counts(least: int = 1, **counts: object) -> None:
    """Refuse counts that are no integers, or less than a number."""
    for key, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise refused(key, value, f"an integer >= {least}")


def check_records(n: object, p: object) -> None:
    """Refuse fewer than two records, no feature, or more than memory can hold."""
    check_counts(2, n=n)
    check_counts(1, p=p)
    needed = NUMBER * n * p  # type: ignore[operator]
    if needed > _memory():
        raise UsageError(
            f"dataset.n={n}: {n} x {p} numbers take {needed / GIGABYTE:.3g} GB, more "
            "than this machine's memory; take fewer records or features"
        )


def _memory() -> float:
    """Return the machine's memory in bytes, infinity where it is unknown."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def check_numbers(least: float = 0.0, **numbers: object) -> None:
    """Refuse what is no finite number, or less than a number."""
    for key, value in numbers.items():
        if not math.isfinite(_number(value)) or _number(value) < least:
            allowed = "finite" if least == -math.inf else f"finite and >= {least:g}"
            raise refused(key, value, f"a number, {allowed}")


def check_share(p: int, **counts: object) -> None:
    """Refuse more features of a kind than there are."""
    for key, value in counts.items():
        check_counts(0, **{key: value})
        if value > p:  # type: ignore[operator]
            raise refused(key, value, f"between 0 and p = {p}")
