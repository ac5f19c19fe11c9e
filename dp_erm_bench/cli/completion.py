"""Shell completion, computed from files on disk without importing solvers or Hydra."""

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
"""Keys that every dataset has; its yaml may have more."""

UNTYPED = {"name", "_target_", "task", *TOLD}
"""Keys of yaml files that users cannot set, or that are completed separately."""

FOLDER = ("-cd", "--config-dir")
FILES = {"algorithm": ".py", "loss": ".py", "experiment": ".yaml", "dataset.path": ""}
"""Keys whose values may be files, and the suffixes of these files."""


def module_source(module: str) -> ast.Module:
    """Return the parsed source of a module or a user's file; empty if it is missing.

    The source is parsed because importing a solver takes too long.
    """
    path = Path(module).expanduser() if is_file(module) else file_of(module)
    there = path is not None and path.is_file()
    return ast.parse(path.read_text("utf-8")) if path and there else ast.Module([], [])


def homes_of_names(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return the names that a module imports, each with its module and name there."""
    return {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def class_definitions(target: str) -> Iterator[tuple[ast.ClassDef, ast.Module]]:
    """Yield the definitions of a class and of its bases, each with its parsed module.

    The target is a dotted name, or a user's file, whose classes are all yielded.
    """
    module, _, name = target.rpartition(".")
    own = is_file(target)
    tree = module_source(target if own else module)
    homes = homes_of_names(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and (node.name == name or own):
            yield node, tree
            for base in map(ast.unparse, node.bases):
                head, dot, rest = base.partition(".")
                home = ".".join(homes.get(head, (module, head)))
                yield from class_definitions(f"{home}{dot}{rest}")


def parameters_of(target: str) -> dict[str, list[str]]:
    """Return the fields of a class or a user's file, each with its allowed words."""
    found: dict[str, list[str]] = {}
    for node, tree in class_definitions(target):
        for one in node.body:
            if not isinstance(one, ast.AnnAssign):
                continue
            if "ClassVar" not in ast.unparse(one.annotation):
                keywords = getattr(one.value, "keywords", ())
                words = [w.value for w in keywords if w.arg == "choices"]
                words = [word for each in words for word in _words_of(each, tree)]
                found.setdefault(ast.unparse(one.target), words)
    return found


def _words_of(expression: ast.expr | None, tree: ast.Module) -> list[str]:
    """Return the strings of a tuple or the keys of a dict, also if given by a name.

    For other expressions the result is empty.
    """
    if isinstance(expression, ast.Call) and len(expression.args) == 1:
        return _words_of(expression.args[0], tree)
    if isinstance(expression, ast.Name):
        name = expression.id
        for node in tree.body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            if name in map(ast.unparse, filter(None, targets)):
                return _words_of(getattr(node, "value", None), tree)
        module, name = homes_of_names(tree).get(name, ("", ""))
        return _words_of(ast.Name(name), module_source(module)) if name else []
    if isinstance(expression, ast.Tuple | ast.Dict):
        words = getattr(expression, "elts", None) or getattr(expression, "keys", [])
        return [str(one.value) for one in words if isinstance(one, ast.Constant)]
    return []


def complete(arguments: Sequence[str]) -> int:
    """Print the completion script of a shell, or the completions of a typed line.

    Parameters
    ----------
    arguments : sequence of str
        With `install=SHELL` the script is printed, for the shell to evaluate. The
        script calls `query=SHELL`, with the line in `COMP_LINE` and the cursor in
        `COMP_POINT`.
    """
    what, _, shell = (arguments[0] if arguments else "").partition("=")
    if len(arguments) != 1 or what not in ("install", "query") or shell not in SCRIPTS:
        usage = "--shell-completion: write -sc install=" + "|".join(SCRIPTS)
        print(f"dp-erm-bench: {usage}", file=sys.stderr)
        return 2
    line = os.environ.get("COMP_LINE", "")
    point = os.environ.get("COMP_POINT", "")
    words = completion_words(line[: int(point)] if point.isdigit() else line)
    if shell == "bash":  # in bash each '=' starts a new word
        words = [word.rpartition("=")[2] or word for word in words]
    print(SCRIPTS[shell] if what == "install" else "\n".join(words))
    return 0


def completion_words(line: str) -> list[str]:
    """Return the whole words that can complete a line at its end."""
    words = line.split()
    last = "" if not words or line[-1].isspace() else words.pop()
    try:
        found = {*_possible_words(words[1:], last)}
    except Exception:  # a broken file must not break the shell
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
    """Yield folders, and files with a suffix, whose paths begin with `start`."""
    for path in glob.glob(f"{glob.escape(start)}*"):
        path += "/" * os.path.isdir(path)
        if path.endswith((suffix, "/")):
            yield path


def _dotted_keys(command: str, before: Sequence[str], last: str) -> Iterator[str]:
    """Yield the dotted keys that may complete the last word."""
    yield from (*GROUPS, *frame_keys(), "penalty.strength", "dataset.")
    if command == TUNE:
        yield from (key for key in block_keys() if key.startswith(f"{TUNE}."))
    group, _, rest = last.partition(".")
    for name in (*registry.names(ALGORITHM), *_solver_files(before)):
        yield f"{ALGORITHM}.{name}."
        if group == ALGORITHM and rest.startswith(f"{name}."):
            for parameter in _parameters(name, before):
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
    group, _, rest = key.partition(".")
    name, _, parameter = rest.partition(".")
    if group == ALGORITHM and parameter:
        return _parameters(name, before)[parameter]
    known = {f"{TUNE}.quantity": [*QUANTITIES], "dataset.scale": ["bounds"]}
    return known.get(key, ())


def _solver_files(before: Sequence[str]) -> dict[str, str]:
    """Return the solver files on a command line, by their short names."""
    return {label_of(v): v for v in _chosen_names(ALGORITHM, before) if is_file(v)}


def _parameters(algorithm: str, before: Sequence[str]) -> dict[str, list[str]]:
    """Return an algorithm's parameters, each with its allowed words."""
    file = _solver_files(before).get(algorithm)
    return parameters_of(file or registry.read_choice(ALGORITHM, algorithm)["_target_"])


def _chosen_names(group: str, before: Sequence[str]) -> list[str]:
    """Return the choices of a group that are already on the command line."""
    words = [word.partition("=") for word in before]
    return [v for key, _, value in words if key == group for v in value.split(",")]
