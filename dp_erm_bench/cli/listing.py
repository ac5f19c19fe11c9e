"""The command list: what there is; of parameters and keys defaults, types, meaning."""

import dataclasses
import inspect
import os
import shlex
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.usage import GROUPS as CHOICES
from dp_erm_bench.errors import UsageError, printable_text, typed_text
from dp_erm_bench.experiment.schema import block_keys, frame_keys, options_of
from dp_erm_bench.results.files import PLAN
from dp_erm_bench.results.runs import read_manifest

CLASSES = ("algorithm", "problem", "loss", "penalty", "constraint")
WORDS = {
    bool: "true|false",
    int: "integer",
    float: "number",
    str: "word",
    types.NoneType: "null",
}
LIMITS = {"least": ">=", "above": ">", "most": "<="}
WIDEST = 30
RESULTS, TABLE = "results", "results.parquet"
Row = tuple[str, str, str, str]

KEYS = {"settings": frame_keys, "blocks": block_keys}
"""The plain keys of the configuration, and those of an experiment's blocks."""

GROUPS = (*CHOICES, *KEYS)


def list_command(words: Sequence[str]) -> int:
    """Print the choices of groups, all by default, or of names that follow a group.

    Of a folder, or `results` and folders, the results folders in it.
    """
    named = bool(words) and words[0] not in (*GROUPS, RESULTS)
    named = named and (os.sep in words[0] or Path(words[0]).is_dir())
    if words and (words[0] == RESULTS or named):
        for folder in words if named else words[1:] or [RESULTS]:
            print(list_results(Path(folder)))
        return 0
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word in GROUPS or not groups or groups[-1][0] in KEYS:
            registry.check_choice("list", word, list(GROUPS))
            groups.append((word, []))
        else:
            group, names = groups[-1]
            registry.check_choice(f"list {group}", word, registry.names(group))
            names.append(word)
    texts = [list_choices(*one) for one in groups or [(group, []) for group in GROUPS]]
    print("\n\n".join(texts))
    return 0


def list_results(parent: Path) -> str:
    """Return what each results folder in a folder holds, from when, by which command.

    Raises
    ------
    UsageError
        If there is no such folder, or no results in it.
    """
    if not parent.is_dir():
        raise UsageError(f"list results {parent}: no such folder")
    made = [
        folder
        for folder in (parent, *sorted(parent.iterdir()))
        if any((folder / name).is_file() for name in (PLAN, TABLE))
    ]
    if not made:
        raise UsageError(f"list results {parent}: holds no results folder")
    lines = []
    for folder in made:
        manifest = read_manifest(folder)
        counts = manifest.get("counts")
        known = counts if isinstance(counts, dict) else {}
        held = ", ".join(f"{n} {status}" for status, n in known.items() if n)
        words = [typed_text(manifest.get(k) or "?") for k in ("started", "version")]
        command = manifest.get("command")
        typed = shlex.join(map(str, command)) if isinstance(command, list) else "?"
        profile = f", profile {manifest['profile']}" if manifest.get("profile") else ""
        lines += [
            f"{folder}: {held or 'trials of a run that did not end'}{profile}",
            f"  {words[0]}, version {words[1]}, {manifest.get('outcome', '?')}",
            f"  {typed}",
        ]
    return "\n".join(map(printable_text, lines))


def list_choices(group: str, only: Sequence[str] = ()) -> str:
    """Return the choices of a group as text, one per line, parameters below them.

    Parameters
    ----------
    group : str
        One of `GROUPS`.
    only : sequence of str
        Names of choices; all of them by default.
    """
    if group in KEYS:
        rows = [_parameter_row(key, *of) for key, of in KEYS[group]().items()]
        return "\n".join([group, *_format_table(rows, "  ")])
    lines = [group]
    for name in only or registry.names(group):
        lines.append(f"  {name:14} {_describe_choice(group, name)}".rstrip())
        lines += _format_table(list(_parameter_rows(group, name)), "      ")
    return "\n".join(lines)


def _describe_choice(group: str, name: str) -> str:
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


def _parameter_rows(group: str, name: str) -> Iterator[Row]:
    """Yield name, default, what is allowed and meaning of each parameter."""
    usual = registry.read_choice(group, name)
    if group == "dataset":
        for key, value in usual.items():
            if key not in ("name", "_target_", "task"):
                brief = typed_text(value)
                if isinstance(value, dict):
                    brief = " ".join(f"{k}={typed_text(v)}" for k, v in value.items())
                yield key, brief, "", ""
    if group in CLASSES:
        cls = registry.target(group, name)
        # Not at the top: the command line must start without numpy.
        from dp_erm_bench.solvers.defaults import rule_of

        hints = typing.get_type_hints(cls)
        found = rule_of(name, cls) if group == registry.ALGORITHM else None
        rules = found.meanings if found else {}
        for entry in dataclasses.fields(cls):
            if entry.init:
                key, default, *rest = _parameter_row(
                    entry.name, entry, hints[entry.name]
                )
                default = typed_text(usual[key]) if key in usual else default
                allowed, meaning = rest
                if key in rules:
                    allowed += "|auto"
                    meaning += f"; auto: {rules[key]}"
                yield key, default, allowed, meaning


def _parameter_row(key: str, entry: dataclasses.Field[Any], hint: Any) -> Row:
    """Return a key, its default, its types, words and limits, and its meaning.

    Parameters
    ----------
    key : str
    entry : Field
        Its metadata may hold `choices`, `words` and limits.
    hint : Any
        Its annotation, resolved.
    """
    default = entry.default
    if entry.default_factory is not dataclasses.MISSING:
        default = entry.default_factory()
    data = entry.metadata
    limits = [
        f" {sign} {data[name]:g}" for name, sign in LIMITS.items() if name in data
    ]
    words = [
        w for one in options_of(hint) for w in _allowed_words(one, "".join(limits))
    ]
    allowed = data.get("choices") or dict.fromkeys(words)
    usual = "" if default in (dataclasses.MISSING, (), {}) else typed_text(default)
    return key, usual, "|".join(map(str, allowed)), str(data.get("help", ""))


def _allowed_words(hint: Any, limits: str) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(word) for word in typing.get_args(hint)]
    if typing.get_origin(hint) is list:
        return [f"[{'|'.join(_allowed_words(typing.get_args(hint)[0], limits))}]"]
    word = WORDS.get(hint, "")
    return [word + limits if hint in (int, float) else word] if word else []


def _format_table(rows: Sequence[Row], indent: str) -> list[str]:
    """Return rows as lines, in columns as wide as their widest cell, within reason."""
    columns = list(zip(*rows, strict=True))[:3]
    wide = [min(max(map(len, cells)), WIDEST) for cells in columns]
    cells = ([f"{row[i]:{w}}" for i, w in enumerate(wide)] + [row[3]] for row in rows)
    return [f"{indent}{'  '.join(row)}".rstrip() for row in cells]
