"""Checks of what a generator is asked for."""

import math
import os

from dp_erm_bench.errors import UsageError

NUMBER = 8
GIGABYTE = 1e9


def check_counts(least: int = 1, **counts: object) -> None:
    """Refuse counts that are no integers, or less than a number."""
    for key, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"dataset.{key}={value}: must be an integer >= {least}")


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
    """Return the machine's memory in bytes, without bound where it is not told."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def check_numbers(least: float = 0.0, **numbers: object) -> None:
    """Refuse what is no finite number, or less than a number."""
    for key, value in numbers.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value < math.inf:  # type: ignore[operator]
            allowed = "finite" if least == -math.inf else f"finite and >= {least:g}"
            raise UsageError(f"dataset.{key}={value}: must be a number, {allowed}")


def check_share(p: int, **counts: object) -> None:
    """Refuse more features of a kind than there are."""
    for key, value in counts.items():
        check_counts(0, **{key: value})
        if value > p:  # type: ignore[operator]
            raise UsageError(f"dataset.{key}={value}: must be between 0 and p = {p}")
