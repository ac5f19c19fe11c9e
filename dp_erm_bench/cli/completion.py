"""Shell completion, answered from the files on disk: no solver, no Hydra imported."""

from __future__ import annotations

import ast
import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from dp_erm_bench import registry
from dp_erm_bench.cli.line import TUNE, experiment_files
from dp_erm_bench.cli.usage import AUTO, COMMANDS, GROUPS, HELP
from dp_erm_bench.code_identity import file_of
from dp_erm_bench.experiment.schema import (
    block_keys,
    frame_keys,
    write_out_blocks,
)
from dp_erm_bench.plugins.names import is_file, label_of
from dp_erm_bench.registry import ALGORITHM, POSED, QUANTITIES, TOLD

BASH = """\
_dp_erm_bench() {
    local IFS=$'\\n'
    COMPREPLY=($(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" \\
        "${COMP_WORDS[0]}" -sc query=bash 2>/dev/null))
    [[ ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
}
complete -o default -F _dp_erm_bench dp-erm-bench"""
ZSH = """\
autoload -Uz bashcompinit && bashcompinit
_dp_erm_bench() {
    local IFS=$'\\n'
    COMPREPLY=($(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" \\
        dp-erm-bench -sc query=zsh 2>/dev/null))
}
complete -o nospace -o default -F _dp_erm_bench dp-erm-bench"""
FISH = """\
complete -c dp-erm-bench -a \\
    '(env COMP_LINE=(commandline -cp | string collect) dp-erm-bench -sc query=fish)'"""
SCRIPTS = {"bash": BASH, "fish": FISH, "zsh": ZSH}

COMMON = (
    *("standardise", "positive", "test_fraction", "seed"),
    *("drop_empty", "densify", "bounds", "clip_to_bounds", "scale", "intercept"),
)
"""Keys of every dataset; its yaml has more."""

UNTYPED = {"name", "_target_", "task", *TOLD}
"""Keys of yaml files that are no keys of the command line, or are offered apart."""

FOLDER = ("-cd", "--config-dir")
FILES = {"algorithm": ".py", "loss": ".py", "experiment": ".yaml", "dataset.path": ""}
"""Keys whose values may be files, and how these end."""


def class_definitions(target: str) -> Iterator[ast.ClassDef]:
    """Yield the source of a class of ours and of its bases, by its dotted name.

    It is read, for to import a solver takes too long. Of a user's file all classes.
    """
    module, _, name = target.rpartition(".")
    path = file_of(module) if module else None
    path = Path(target).expanduser() if is_file(target) else path
    there = path is not None and path.is_file()
    tree = ast.parse(path.read_text("utf-8")) if path and there else ast.Module([], [])
    homes = {
        alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and (node.name == name or is_file(target)):
            yield node
            for base in map(ast.unparse, node.bases):
                head, dot, rest = base.partition(".")
                home = homes.get(head, f"{module}.{head}")
                yield from class_definitions(f"{home}{dot}{rest}")


def parameter_names(target: str) -> set[str]:
    """Return the fields of the class that a dotted name or a user's file holds."""
    return {
        ast.unparse(one.target)
        for node in class_definitions(target)
        for one in node.body
        if isinstance(one, ast.AnnAssign)
        and "ClassVar" not in ast.unparse(one.annotation)
    }


def complete(arguments: Sequence[str]) -> int:
    """Print the script of a shell, or what may follow the line it asks about.

    Parameters
    ----------
    arguments : sequence of str
        `install=SHELL`, to be evaluated by the shell, or `query=SHELL`, which that
        script calls with the line in `COMP_LINE` and the cursor in `COMP_POINT`.
    """
    what, _, shell = (arguments[0] if arguments else "").partition("=")
    if len(arguments) != 1 or what not in ("install", "query") or shell not in SCRIPTS:
        usage = "--shell-completion: write -sc install=" + "|".join(SCRIPTS)
        print(f"dp-erm-bench: {usage}", file=sys.stderr)
        return 2
    line = os.environ.get("COMP_LINE", "")
    point = os.environ.get("COMP_POINT", "")
    words = completion_words(line[: int(point)] if point.isdigit() else line)
    if shell == "bash":  # to which a word begins behind each '='
        words = [word.rpartition("=")[2] or word for word in words]
    print(SCRIPTS[shell] if what == "install" else "\n".join(words))
    return 0


def completion_words(line: str) -> list[str]:
    """Return the words that may stand where a line ends, whole words."""
    words = line.split()
    last = "" if not words or line[-1].isspace() else words.pop()
    try:
        found = {*_possible_words(words[1:], last)}
    except Exception:  # whatever is wrong with a file: nothing of it is offered
        return []
    return sorted(word for word in found if word.startswith(last))


def _possible_words(before: Sequence[str], last: str) -> Iterator[str]:
    command = before[0] if before and before[0] in COMMANDS else "run"
    key, sign, value = last.partition("=")
    if last.startswith("-"):
        more = "" if before else " --help --version"
        yield from re.findall(r"--[a-z-]+", HELP[command] + more)
    elif before and before[-1] in FOLDER:
        yield from _matching_paths(last, "/")
    elif command in ("list", "check"):
        groups = [*GROUPS, "settings", "blocks", "results"]
        named = [word for word in before if word in groups]
        group = ALGORITHM if command == "check" else ["", *named][-1]
        yield from registry.names(group) if group in GROUPS else ()
        yield from groups if command == "list" else ()
    elif command not in ("run", TUNE):
        yield from _matching_paths(last or "results/", "")
    elif sign:
        head, comma, end = value.rpartition(",")
        values = [*_possible_values(key, before)]
        values += _matching_paths(end, FILES[key]) if key in FILES and end else ()
        yield from (f"{key}={head}{comma}{one}" for one in values)
    else:
        yield from () if before else ("help", *COMMANDS)
        for one in _dotted_keys(command, before, last):
            if one.startswith(last) and one != last:
                head, dot, _ = one[len(last) :].partition(".")
                yield f"{last}{head}{dot or '='}"


def _matching_paths(start: str, suffix: str) -> Iterator[str]:
    """Yield the folders, and the files with a suffix, that a path may go on with."""
    for path in glob.glob(f"{glob.escape(start)}*"):
        path += "/" * os.path.isdir(path)
        if path.endswith((suffix, "/")):
            yield path


def _dotted_keys(command: str, before: Sequence[str], last: str) -> Iterator[str]:
    """Yield dotted keys, those of the parts of the section that the last word is in."""
    yield from (*GROUPS, *frame_keys(), "penalty.strength", "dataset.")
    if command == TUNE:
        yield from (key for key in block_keys() if key.startswith(f"{TUNE}."))
    group, _, rest = last.partition(".")
    files = {label_of(v): v for v in _chosen_names(ALGORITHM, before) if is_file(v)}
    for name in (*registry.names(ALGORITHM), *files):
        yield f"{ALGORITHM}.{name}."
        if group == ALGORITHM and rest.startswith(f"{name}."):
            target = files.get(name) or registry.read_choice(ALGORITHM, name)
            target = target if isinstance(target, str) else target["_target_"]
            for parameter in parameter_names(target):
                yield f"{ALGORITHM}.{name}.{parameter}"
    for name in _chosen_names(group, before) if group in POSED else ():
        keys = registry.read_choice(group, name).keys() - UNTYPED
        yield from (f"{group}.{key}" for key in keys)
    yield from (f"dataset.{key}" for key in COMMON if group == "dataset")


def _possible_values(key: str, before: Sequence[str]) -> Iterable[str]:
    if key == "profile" and before[:1] == [TUNE]:
        from dp_erm_bench.experiment.tuned import PROFILES

        return PROFILES
    if key in ("experiment", "panel", "profile"):
        typed = " ".join(before).replace("=", " ").split()
        pairs = zip(typed, typed[1:], strict=False)
        files = experiment_files([Path(one) for flag, one in pairs if flag in FOLDER])
        if key == "experiment":
            return files
        (name,) = _chosen_names("experiment", before)
        tree = yaml.safe_load(files.get(name, Path(name)).read_text("utf-8"))
        panels = [block["panel"] for block in write_out_blocks(tree["blocks"])]
        return panels if key == "panel" else tree["profiles"]
    if key in GROUPS:
        return [*(["auto"] if key in AUTO else []), *registry.names(key)]
    if key in frame_keys():
        entry, _ = frame_keys()[key]
        truth = isinstance(entry.default, bool)
        return ("true", "false") if truth else entry.metadata["words"]
    known = {f"{TUNE}.quantity": [*QUANTITIES], "dataset.scale": ["bounds"]}
    return known.get(key, ())


def _chosen_names(group: str, before: Sequence[str]) -> list[str]:
    """Return the choices of a group that the line names already."""
    words = [word.partition("=") for word in before]
    return [v for key, _, value in words if key == group for v in value.split(",")]
