"""Norms by the name of their family."""

from typing import Any

from dp_erm_bench.errors import value_error
from dp_erm_bench.registry import locate

PARAMETERS = {
    "cardinality": ("function", "cap"),
    "groups": ("groups", "weights"),
    "range": (),
    "submodular": ("values",),
}
"""What each family reads; parameters of the others must stay at their defaults."""

KINDS = {
    "cardinality": "dp_erm_bench.norms.cardinality.CardinalityNorm",
    "groups": "dp_erm_bench.norms.groups.GroupNorm",
    "range": "dp_erm_bench.norms.range.RangeNorm",
    "submodular": "dp_erm_bench.norms.tabulated.Tabulated",
}
"""The classes by their dotted names: the key of a trial is to hold one of them."""


def named_norm(name: Any, given: dict[str, Any], defaults: dict[str, Any]) -> Any:
    """Return the norm of a family from its parameters among those given.

    Raises
    ------
    UsageError
        For an unknown family, or a parameter of another one.
    """
    if not isinstance(name, str) or name not in PARAMETERS:
        raise value_error("norm", name, f"one of {', '.join(PARAMETERS)}")
    for key, value in given.items():
        if key not in PARAMETERS[name] and value != defaults[key]:
            owner = next(kind for kind in PARAMETERS if key in PARAMETERS[kind])
            raise value_error(
                key, value, f"left out with norm={name}: it is of {owner}"
            )
    return locate(KINDS[name])(**{key: given[key] for key in PARAMETERS[name]})
