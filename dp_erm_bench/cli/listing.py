"""The command list: choices, parameters and keys with defaults, types and meanings."""

import ast
import dataclasses
import re
import shlex
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.completion import UNTYPED, class_definitions
from dp_erm_bench.cli.options import parser_of
from dp_erm_bench.cli.usage import GROUPS as CHOICES
from dp_erm_bench.datasets.spec import BOUNDS, BY_DEFAULT, default_bounds
from dp_erm_bench.errors import UsageError, printable_text, typed_text
from dp_erm_bench.experiment.schema import block_keys, frame_keys, options_of
from dp_erm_bench.plugins.names import is_file, label_of
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
"""Functions that return the plain keys of the configuration and the keys of blocks."""

GROUPS = (*CHOICES, *KEYS)


def list_command(arguments: Sequence[str]) -> int:
    """Print the choices of config groups, or the parameters of named choices.

    Without arguments, all groups are printed. If the argument is a folder, or `results`
    followed by folders, the results folders in these are listed.
    """
    words = parser_of("list").parse_intermixed_args(arguments).words
    first = words[0] if words else GROUPS[0]
    if first == RESULTS or (first and first not in GROUPS and Path(first).is_dir()):
        for folder in words[first == RESULTS :] or [RESULTS]:
            print(list_results(Path(folder)))
        return 0
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word in GROUPS or not groups or groups[-1][0] in KEYS:
            registry.check_choice("list", word, list(GROUPS))
            groups.append((word, []))
        else:
            group, names = groups[-1]
            if not (is_file(word) and group in registry.FROM_FILES):
                registry.check_choice(f"list {group}", word, registry.names(group))
            names.append(word)
    texts = [list_choices(*one) for one in groups or [(group, []) for group in GROUPS]]
    print("\n\n".join(texts))
    return 0


def list_results(parent: Path) -> str:
    """Return a string with trials, date and command of each results folder in a folder.

    Raises
    ------
    UsageError
        If there is no such folder, or no results in it.
    """
    inside = sorted(parent.iterdir()) if parent.is_dir() else []
    lines = []
    for folder in (parent, *inside):
        if not any((folder / name).is_file() for name in (PLAN, TABLE)):
            continue
        manifest = read_manifest(folder)
        counts, command = (manifest.get(key) for key in ("counts", "command"))
        known = counts if isinstance(counts, dict) else {}
        held = ", ".join(f"{n} {status}" for status, n in known.items() if n)
        typed = shlex.join(map(str, command)) if isinstance(command, list) else "?"
        profile = f", profile {manifest['profile']}" if manifest.get("profile") else ""
        words = [typed_text(manifest.get(k) or "?") for k in ("started", "version")]
        lines += [
            f"{folder}: {held or 'trials of a run that did not end'}{profile}",
            f"  {words[0]}, version {words[1]}, {manifest.get('outcome', '?')}",
            f"  {typed}",
        ]
    if not lines:
        raise UsageError(f"list results {parent}: no such folder, or no results in it")
    return "\n".join(map(printable_text, lines))


def list_choices(group: str, only: Sequence[str] = ()) -> str:
    """Return the choices of a group as a string, one per line.

    Parameters
    ----------
    group : str
        One of `GROUPS`.
    only : sequence of str
        Choices to list, or solver files, each with its parameters. If empty, all
        choices are listed without parameters.
    """
    if group in KEYS:
        return "\n".join([group, *_format_table(parameter_rows(group), "  ")])
    lines = [group]
    names = only or registry.names(group)
    wide = max(len(label_of(name)) for name in names)
    for name in names:
        lines.append(f"  {label_of(name):{wide}}  {describe_choice(group, name)}")
        lines += _format_table(parameter_rows(group, name) if only else [], "      ")
    return "\n".join(lines)


def describe_choice(group: str, name: str) -> str:
    """Return the first line of a class's docstring, or the first comment of a yaml."""
    if group in CLASSES:
        target = str(registry.read_choice(group, name)["_target_"])
        found, _ = next(class_definitions(target.partition("#")[0]), (None, None))
        return (found and ast.get_docstring(found) or target).partition("\n")[0]
    text = (registry.conf_dir() / group / f"{name}.yaml").read_text()
    comments = re.findall(r"\A(?:#.*\n)*", text)[0].splitlines()
    return " ".join(line.lstrip("# ") for line in comments if "@package" not in line)


def parameter_rows(group: str, name: str = "") -> list[Row]:
    """Return the name, default, allowed values and meaning of each parameter.

    The parameters belong to a choice of a group, or to one of `KEYS`.
    """
    if group in KEYS:
        return [_parameter_row(key, *of) for key, of in KEYS[group]().items()]
    usual = registry.read_choice(group, name)
    # Imported here because the command line must start without numpy.
    from dp_erm_bench.rules.settings import rule_of

    if group not in CLASSES:
        keys = [key for key in usual if key not in UNTYPED and group == "dataset"]
        rows = [(key, typed_text(usual[key]), "", "") for key in keys]
        bounds = default_bounds(name, {}) if rows else None
        more = (f"{BOUNDS}={BY_DEFAULT}", typed_text(bounds), "", "")
        return [*rows, more] if bounds else rows
    cls = registry.target(group, name)
    hints = typing.get_type_hints(cls)
    found = rule_of(label_of(name), cls) if group == registry.ALGORITHM else None
    rules = found.meanings if found else {}
    rows = []
    for entry in (one for one in dataclasses.fields(cls) if one.init):
        key, default, allowed, meaning = _parameter_row(
            entry.name, entry, hints[entry.name]
        )
        default = typed_text(usual[key]) if key in usual else default
        if key in rules:
            allowed += "|auto"
            meaning += f"; auto: {rules[key]}"
        rows.append((key, default, allowed, meaning))
    return rows


def _parameter_row(key: str, entry: dataclasses.Field[Any], hint: Any) -> Row:
    """Return the row of a key: its default, its allowed values and its meaning.

    Parameters
    ----------
    key : str
        Name of the key.
    entry : Field
        Field of the key; its metadata may contain `choices`, `words` and limits.
    hint : Any
        The resolved annotation of the field.
    """
    default = entry.default
    if entry.default_factory is not dataclasses.MISSING:
        default = entry.default_factory()
    data = entry.metadata
    limits = [
        f" {sign} {data[name]:g}" for name, sign in LIMITS.items() if name in data
    ]
    words = [
        w for one in options_of(hint) for w in _allowed_words(one, " and".join(limits))
    ]
    if listed := "|".join(data.get("words", ())):
        words = [listed if one == WORDS[str] else one for one in words]
    allowed = data.get("choices") or dict.fromkeys(words)
    shown = [*default] if isinstance(default, tuple) else default
    usual = "" if default in (dataclasses.MISSING, (), {}) else typed_text(shown)
    return key, usual, "|".join(map(str, allowed)), str(data.get("help", ""))


def _allowed_words(hint: Any, limits: str) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(word) for word in typing.get_args(hint)]
    if typing.get_origin(hint) is Mapping:
        return ["mapping"]
    if typing.get_origin(hint) is list:
        return [f"[{'|'.join(_allowed_words(typing.get_args(hint)[0], limits))}]"]
    word = WORDS.get(hint, "")
    return [word + limits if hint in (int, float) else word] if word else []


def _format_table(rows: Sequence[Row], indent: str) -> list[str]:
    """Return rows as strings with aligned columns of limited width."""
    wide = [min(max(map(len, one)), WIDEST) for one in zip(*rows, strict=True)][:3]
    cells = ([f"{row[i]:{w}}" for i, w in enumerate(wide)] + [row[3]] for row in rows)
    return [f"{indent}{'  '.join(row)}".rstrip() for row in cells]
