"""What a field may hold, in a few words, from its annotation and its metadata."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from dp_erm_bench.errors import shown

WORDS = {
    bool: "true|false",
    int: "integer",
    float: "number",
    str: "word",
    types.NoneType: "null",
}
LIMITS = {"least": ">=", "above": ">", "most": "<="}


def allowed(hint: Any, entry: dataclasses.Field[Any]) -> str:
    """Return the types, words and limits of a field, as `integer >= 0|null`.

    Parameters
    ----------
    hint : Any
        Its annotation, resolved.
    entry : Field
        Its metadata may hold `choices`, `words` and limits.
    """
    if entry.metadata.get("choices"):
        return "|".join(map(str, entry.metadata["choices"]))
    limits = [
        f" {sign} {entry.metadata[name]:g}"
        for name, sign in LIMITS.items()
        if name in entry.metadata
    ]
    words: list[str] = []
    for option in typing.get_args(hint) if _is_union(hint) else (hint,):
        words += _spelled(option, "".join(limits))
    if typing.get_origin(hint) is not list:  # whose words are those of its items
        words += entry.metadata.get("words", ())
    return "|".join(dict.fromkeys(words))


def default(entry: dataclasses.Field[Any]) -> str:
    """Return the default of a field as one would type it."""
    if entry.default is not dataclasses.MISSING:
        return shown(entry.default)
    assert entry.default_factory is not dataclasses.MISSING
    return shown(entry.default_factory())


def _spelled(hint: Any, limits: str) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(word) for word in typing.get_args(hint)]
    if typing.get_origin(hint) is list:
        return [f"[{'|'.join(_spelled(typing.get_args(hint)[0], limits))}]"]
    word = WORDS.get(hint, "")
    return [word + limits if hint in (int, float) else word] if word else []


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)
