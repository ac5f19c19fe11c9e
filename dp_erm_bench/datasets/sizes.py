"""Checks of what a generator is asked for."""

import math

from dp_erm_bench.errors import UsageError


def check_counts(least: int = 1, **counts: object) -> None:
    """Refuse counts that are no integers, or less than a number."""
    for key, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"dataset.{key}={value}: must be an integer >= {least}")


def check_records(n: object, p: object) -> None:
    """Refuse fewer than two records or no feature."""
    check_counts(2, n=n)
    check_counts(1, p=p)


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
