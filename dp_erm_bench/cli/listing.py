"""What there is: every choice of every group, with parameters and their defaults."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.values import shown
from dp_erm_bench.config import settings

CLASSES = ("algorithm", "loss", "penalty", "constraint")
GROUPS = (
    *("dataset", "algorithm", "loss", "penalty", "constraint"),
    *("calibration", "runner", "experiment", "settings"),
)


def listing(group: str) -> str:
    """Return the choices of a group as text, one per line, parameters below them.

    Parameters
    ----------
    group : str
        One of `GROUPS`; `settings` are the plain keys of the configuration.
    """
    if group == "settings":
        rows = [
            (key, _default(entry), entry.metadata["help"]) for key, entry in settings()
        ]
        return "\n".join([group, *_table(rows, "  ")])
    lines = [group]
    for name in registry.names(group):
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


def _parameters(group: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and meaning of each parameter."""
    if group == "dataset":
        for key, value in registry.read(group, name).items():
            if key not in ("name", "_target_", "task"):
                yield key, _brief(value), ""
    if group == "algorithm":
        for entry in dataclasses.fields(registry.target(group, name)):
            if entry.init:
                yield entry.name, shown(entry.default), _meaning(entry)


def _meaning(entry: dataclasses.Field[Any]) -> str:
    text = str(entry.metadata.get("help", ""))
    choices = entry.metadata.get("choices")
    return f"{text}: {', '.join(map(str, choices))}" if choices else text


def _default(entry: dataclasses.Field[Any]) -> str:
    if entry.default is not dataclasses.MISSING:
        return shown(entry.default)
    assert entry.default_factory is not dataclasses.MISSING
    return shown(entry.default_factory())


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={shown(inner)}" for key, inner in value.items())
    return shown(value)


def _table(rows: list[tuple[str, str, str]], indent: str) -> list[str]:
    wide = max((len(key) for key, _, _ in rows), default=0)
    return [
        f"{indent}{key:{wide}}  {default:12}  {text}".rstrip()
        for key, default, text in rows
    ]
