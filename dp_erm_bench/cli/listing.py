"""What there is: every choice of every group; of parameters defaults and types."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import shown
from dp_erm_bench.experiment.frame import setting_hints, settings

CLASSES = ("algorithm", "loss", "penalty", "constraint")
WORDS = {
    bool: "true|false",
    int: "integer",
    float: "number",
    str: "word",
    types.NoneType: "null",
}
LIMITS = {"least": ">=", "above": ">", "most": "<="}
WIDEST = 30
Row = tuple[str, str, str, str]

GROUPS = (
    *("dataset", "algorithm", "loss", "penalty", "constraint"),
    *("calibration", "runner", "experiment", "settings"),
)


def listing(group: str, only: Sequence[str] = ()) -> str:
    """Return the choices of a group as text, one per line, parameters below them.

    Parameters
    ----------
    group : str
        One of `GROUPS`; `settings` are the plain keys of the configuration.
    only : sequence of str
        Names of the choices wanted; all of them by default.
    """
    if group == "settings":
        hints = setting_hints()
        rows = [
            (key, _default(entry), _allowed(hints[key], entry), _meaning(entry))
            for key, entry in settings()
        ]
        return "\n".join([group, *_table(rows, "  ")])
    lines = [group]
    for name in only or registry.names(group):
        lines.append(f"  {name:14} {_about(group, name)}".rstrip())
        lines += _table(list(_parameters(group, name)), "      ")
    return "\n".join(lines)


def _about(group: str, name: str) -> str:
    """Return the docstring of a class, else the comment at the top of the yaml."""
    if group in CLASSES:
        doc = inspect.getdoc(registry.target(group, name)) or ""
        return doc.partition("\n")[0]
    path = registry.conf_dir() / group / f"{name}.yaml"
    comments = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        if "@package" not in line:
            comments.append(line.lstrip("# "))
    return " ".join(comments)


def _parameters(group: str, name: str) -> Iterator[Row]:
    """Yield name, default, what is allowed and meaning of each parameter."""
    if group == "dataset":
        for key, value in registry.read(group, name).items():
            if key not in ("name", "_target_", "task"):
                yield key, _brief(value), "", ""
    if group in CLASSES:
        made = registry.target(group, name)
        hints = typing.get_type_hints(made)
        usual = registry.read(group, name)
        for entry in dataclasses.fields(made):
            if entry.init:
                value = shown(usual[entry.name]) if entry.name in usual else None
                words = _allowed(hints[entry.name], entry)
                yield entry.name, value or _default(entry), words, _meaning(entry)


def _meaning(entry: dataclasses.Field[Any]) -> str:
    return str(entry.metadata.get("help", ""))


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={shown(inner)}" for key, inner in value.items())
    return shown(value)


def _table(rows: list[Row], indent: str) -> list[str]:
    """Return rows as lines, in columns as wide as their widest cell, within reason."""
    wide = [
        min(max((len(row[i]) for row in rows), default=0), WIDEST) for i in range(3)
    ]
    cells = [
        "  ".join([*(f"{row[i]:{wide[i]}}" for i in range(3)), row[3]]) for row in rows
    ]
    return [f"{indent}{line}".rstrip() for line in cells]


def _allowed(hint: Any, entry: dataclasses.Field[Any]) -> str:
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


def _default(entry: dataclasses.Field[Any]) -> str:
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
