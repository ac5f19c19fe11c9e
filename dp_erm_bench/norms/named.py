"""Make a norm by the name of its family."""

from typing import Any

from dp_erm_bench.errors import value_error
from dp_erm_bench.registry import locate

PARAMETERS = {
    "cardinality": ("function", "cap"),
    "groups": ("groups", "weights"),
    "range": (),
    "submodular": ("values",),
}
"""Parameters of each family; parameters of other families must keep their defaults."""

KINDS = {
    "cardinality": "dp_erm_bench.norms.cardinality.CardinalityNorm",
    "groups": "dp_erm_bench.norms.groups.GroupNorm",
    "range": "dp_erm_bench.norms.range.RangeNorm",
    "submodular": "dp_erm_bench.norms.tabulated.Tabulated",
}
"""Dotted names of the classes; the key of a trial has only the class that it uses."""


def named_norm(name: Any, given: dict[str, Any], defaults: dict[str, Any]) -> Any:
    """Return the norm of a family, made from its parameters among those given.

    Parameters
    ----------
    name : object
        Name of the family, a key of `PARAMETERS`.
    given : dict
        Values of the parameters of all families.
    defaults : dict
        Default values of the same parameters.

    Raises
    ------
    UsageError
        For an unknown family, or a parameter of another family.
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
