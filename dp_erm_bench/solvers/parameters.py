"""The fields of a solver: its parameters, and what is allowed for them."""

import dataclasses
import math
import numbers
from typing import Any

from dp_erm_bench.errors import UsageError


def shape(default: Any, *, help: str, **limits: Any) -> Any:
    """Return a field that must be equal in a batch of trials.

    Limits: ``choices`` (allowed values), ``least`` (smallest), ``above``, ``most``.
    ``later=True`` marks a parameter that came after results had been published: it
    enters the identity of a trial only off its default, which must do what was done
    before.
    """
    return dataclasses.field(
        default=default, metadata={"kind": "shape", "help": help, **limits}
    )


def value(default: Any, *, help: str, **limits: Any) -> Any:
    """Return a field that may differ in a batch: stacked to shape (B, 1)."""
    return dataclasses.field(
        default=default, metadata={"kind": "value", "help": help, **limits}
    )


def check_field(field: "dataclasses.Field[Any]", given: Any) -> None:
    """Raise UsageError if a parameter has a wrong type or is out of range."""
    limits = field.metadata
    optional = "None" in str(field.type)
    if given is None and optional:
        return
    problem = _complaint(str(field.type), limits, given)
    if problem:
        empty = " or null" if optional else ""
        raise UsageError(f"{field.name}={given}: must be {problem}{empty}")


def _complaint(kind: str, limits: Any, given: Any) -> str:
    if "choices" in limits:
        allowed = limits["choices"]
        return "" if given in allowed else f"one of {', '.join(map(str, allowed))}"
    words = tuple(limits.get("words", ()))
    if given in words and isinstance(given, str):
        return ""
    integer = "int" in kind
    wanted = numbers.Integral if integer else numbers.Real
    ok = isinstance(given, wanted) and not isinstance(given, bool)
    ok = ok and math.isfinite(given)
    ok = ok and given >= limits.get("least", -math.inf)
    ok = ok and given > limits.get("above", -math.inf)
    ok = ok and given <= limits.get("most", math.inf)
    text = "an integer" if integer else "a number"
    text += f" >= {limits['least']}" if "least" in limits else ""
    text += f" > {limits['above']:g}" if "above" in limits else ""
    text += f" and <= {limits['most']:g}" if "most" in limits else ""
    return "" if ok else " or ".join([text, *words])
