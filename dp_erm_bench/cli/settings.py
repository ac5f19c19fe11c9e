"""Plain keys of the configuration: which there are, and the types of their values."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, cast

from dp_erm_bench.cli.values import check_key
from dp_erm_bench.config import (
    CHOSEN,
    BudgetConfig,
    Frame,
    RunnerConfig,
    settings,
)
from dp_erm_bench.experiment.parameters import typed

SINGLE = ("experiment", "runner")
PARAMETERS = ("algorithm.NAME.PARAMETER", "dataset.KEY", "penalty.strength")
SCHEMAS = {"budget": BudgetConfig, "runner": RunnerConfig}


def check_setting(key: str, value: Any) -> Any:
    """Return the value of a plain key, converted to its type.

    Raises
    ------
    UsageError
        If there is no such key or the value is of another type.
    """
    hints = _hints()
    if key not in hints:
        check_key(key, [*CHOSEN, *SINGLE, *PARAMETERS, *hints])
    hint = hints[key]
    if typing.get_origin(hint) is not list:
        return typed(key, value, hint)
    (inner,) = typing.get_args(hint)
    items = value if isinstance(value, list) else [value]
    return [typed(key, item, inner) for item in items]


@functools.cache
def _hints() -> dict[str, Any]:
    """Return the type of every plain key; looked up once for 10^5 seeds."""
    return {key: hint_of(key, entry) for key, entry in settings()}


def hint_of(key: str, entry: dataclasses.Field[Any]) -> Any:
    """Return the type of a key, its words as a literal."""
    schema = SCHEMAS.get(key.partition(".")[0], Frame)
    hint = typing.get_type_hints(schema)[entry.name]
    words = entry.metadata["words"]
    if not words:
        return hint
    literal: Any = cast(Any, typing.Literal)[words]
    return {Any: int | literal, list[str]: list[literal]}.get(hint, literal)
