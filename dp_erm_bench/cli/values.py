"""How keys and values are named in the sentences that a user reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from dp_erm_bench.errors import UsageError


def shown(value: Any) -> str:
    """Return a value as the user would have typed it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(shown, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{shown(v)}" for k, v in value.items()) + "}"
    return str(value)


def check_key(key: str, known: Iterable[str], where: str = "") -> None:
    """Refuse a key that the configuration does not have, suggesting the nearest."""
    known = list(known)
    if key in known:
        return
    near = difflib.get_close_matches(key, known, 1, 0.7)
    hint = f"did you mean {near[0]}?" if near else f"allowed are {', '.join(known)}"
    raise UsageError(f"{where}{': ' * bool(where)}{key}: no such key; {hint}")
