"""Shell completion, answered from the files on disk: no solver, no Hydra imported."""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.usage import AUTO, COMMANDS, GROUPS, usage_of
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import block_keys, frame_keys
from dp_erm_bench.plugins.names import absolute_path, is_file, label_of
from dp_erm_bench.registry import POSED


def yaml_of(group: str, name: str) -> dict[str, Any]:
    """Return the yaml of a choice of ours, empty for any other."""
    return registry.read_choice(group, name) if name in registry.built_in(group) else {}


def parameter_words(algorithm: str, file: str = "") -> dict[str, tuple[str, ...]]:
    """Return the parameters of an algorithm, each with the words allowed.

    They are read from its source, for to import it takes too long: that of its yaml's
    class, or a user's `file`. Those of an entry point are not known here.
    """
    if file:
        classes = [
            one for one in _syntax_tree(file).body if isinstance(one, ast.ClassDef)
        ]
        fields = [
            _dataclass_fields(file, one.name).items() for one in classes if one.bases
        ]
        return dict(itertools.chain(*fields))
    target = str(yaml_of("algorithm", algorithm).get("_target_", ""))
    module, _, name = target.rpartition(".")
    return _dataclass_fields(module, name)


def _dataclass_fields(module: str, name: str) -> dict[str, tuple[str, ...]]:
    """Return the annotated fields of a dataclass, those of its bases first."""
    home, definition = _find_definition(module, name)
    if not isinstance(definition, ast.ClassDef):
        return {}
    fields: dict[str, tuple[str, ...]] = {}
    for base in definition.bases:
        fields |= _dataclass_fields(home, ast.unparse(base))
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if "ClassVar" not in ast.unparse(node.annotation):
                fields[node.target.id] = _choice_words(home, node.value)
    return fields


def _choice_words(module: str, field: ast.expr | None) -> tuple[str, ...]:
    """Return the words of `choices=`: a literal, a constant, or a constant's keys."""
    keywords: list[ast.keyword] = getattr(field, "keywords", [])
    node = next((k.value for k in keywords if k.arg == "choices"), None)
    if node is None and isinstance(field, ast.Call):  # a function makes the field
        home, maker = _find_definition(module, ast.unparse(field.func))
        body = maker.body if isinstance(maker, ast.FunctionDef) else [maker]
        return _choice_words(home, getattr(body[-1], "value", None))
    if isinstance(node, ast.Call):
        node = node.args[0]
    if isinstance(node, ast.Name):
        _, constant = _find_definition(module, node.id)
        node = getattr(constant, "value", None)
    items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    return tuple(str(item.value) for item in items if isinstance(item, ast.Constant))


def _find_definition(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """Return the module that defines a name, through imports, and its statement."""
    head, _, rest = name.partition(".")
    for node in _syntax_tree(module).body:
        if isinstance(node, ast.ImportFrom) and head in [n.name for n in node.names]:
            home = f"{node.module}.{head}" if rest else node.module or ""
            return _find_definition(home, rest or name)
        targets = [getattr(node, "target", None), *getattr(node, "targets", ())]
        names = [ast.unparse(target) for target in targets if target is not None]
        if name in (getattr(node, "name", None), *names):
            return module, node
    return module, None


@functools.cache
def _syntax_tree(module: str) -> ast.Module:
    """Return the syntax tree of a file or a module of ours, else an empty one."""
    ours = module.partition(".")[0] == __name__.partition(".")[0]
    spec = importlib.util.find_spec(module) if ours else None
    path = module if is_file(module) else spec.origin if spec else None
    return ast.parse(Path(path).read_text("utf-8")) if path else ast.Module([], [])


BASH = """\
_dp_erm_bench() {
    local IFS=$'\\n'
    COMPREPLY=($(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" \\
        "${COMP_WORDS[0]}" -sc query=bash 2>/dev/null))
    [[ ${COMPREPLY[0]} == *[=.] ]] && compopt -o nospace
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

WORDS = ("help", *COMMANDS)
LISTED = (*GROUPS, "settings", "blocks", "results")
ON_FOLDERS = ("bundle", "collect", "compare", "export", "plot", "replay", "report")
FOLDER = ("-cd", "--config-dir")
"""Flags whose value is a folder: the shell completes it."""

FLAGS = ("--cfg", "--config-dir", "--config-name", "--help", "--multirun", "--version")
COMMON = (
    *("standardise", "positive", "test_fraction", "seed"),
    *("drop_empty", "densify", "bounds", "clip_to_bounds", "scale", "intercept"),
)
"""Keys of every dataset; its yaml has more."""

TUNE, SOURCE = "tune", "leaderboard"
"""The command whose profiles are those of an experiment."""

HOLDS = {"panel": "blocks", "profile": "profiles"}
UNSET = ("name", "_target_", "task")


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
    if what == "install":
        print(SCRIPTS[shell])
        return 0
    line = os.environ.get("COMP_LINE", "")
    point = os.environ.get("COMP_POINT", "")
    words = completion_words(line[: int(point)] if point.isdigit() else line)
    cut = shell == "bash"  # to which a word begins behind each '='
    print("\n".join(word.rpartition("=")[2] or word if cut else word for word in words))
    return 0


def completion_words(line: str) -> list[str]:
    """Return the words that may stand where a line ends, whole words."""
    words = line.split()
    last = "" if not words or line[-1].isspace() else words.pop()
    try:
        return sorted(
            {w for w in _possible_words(words[1:], last) if w.startswith(last)}
        )
    except (UsageError, OSError, SyntaxError):
        return []


def _possible_words(before: Sequence[str], last: str) -> Iterator[str]:
    if before and before[0] in WORDS and before[0] != TUNE:
        groups = [word for word in before[1:] if word in LISTED]
        if last.startswith("-"):
            yield from re.findall(r"--[a-z-]+", usage_of(before[0]))
        elif before[0] == "check":
            yield from registry.names("algorithm")
        elif before[0] in ON_FOLDERS:
            yield from _matching_folders(last)
        elif before[0] == "list":
            yield from LISTED
            named = groups and groups[-1] in GROUPS
            yield from registry.names(groups[-1]) if named else ()
    elif before and before[-1] in FOLDER:
        return
    elif last.startswith("-"):
        yield from FLAGS
    elif "=" in last:
        key, _, value = last.partition("=")
        head = "".join(value.rpartition(",")[:2])
        yield from (f"{key}={head}{one}" for one in _possible_values(key, before))
    else:
        yield from () if before else WORDS
        for key in _dotted_keys(before, last):
            if key.startswith(last) and key != last:
                beyond = key[len(last) :]
                yield last + beyond.partition(".")[0] + ("." if "." in beyond else "=")


def _matching_folders(last: str) -> Iterator[str]:
    """Yield the folders that a path may go on with; at first those in results/."""
    above = last.rpartition("/")[0]
    inside = Path(above or ("/" if last.startswith("/") else "."))
    for parent in [inside] if last else [Path("results"), inside]:
        for path in parent.iterdir() if parent.is_dir() else ():
            if path.is_dir() and not path.name.startswith("."):
                yield f"{above}/{path.name}" if "/" in last else str(path)


def _dotted_keys(before: Sequence[str], last: str) -> Iterator[str]:
    """Yield dotted keys, those of the parts of the section that the last word is in."""
    yield from (*GROUPS, *frame_keys(), "penalty.strength")
    if before[:1] == [TUNE]:
        yield from (key for key in block_keys() if key.startswith(f"{TUNE}."))
    group, dot, rest = last.partition(".")
    if not dot:
        yield from ("dataset.", "algorithm.")
    elif group == "algorithm":
        files = {
            label_of(v): absolute_path(v)
            for v in _chosen_names(group, before)
            if is_file(v)
        }
        for name in (*registry.names(group), *files):
            yield f"{group}.{name}."
            if rest.startswith(f"{name}."):
                for key in parameter_words(name, files.get(name, "")):
                    yield f"{group}.{name}.{key}"
    elif group in POSED:
        of_all = COMMON if group == "dataset" else ()
        chosen = _chosen_names(group, before) or (
            registry.built_in(group) if of_all else ()
        )
        keys = (*of_all, *(key for name in chosen for key in yaml_of(group, name)))
        yield from (f"{group}.{key}" for key in keys if key not in UNSET)


def _possible_values(key: str, before: Sequence[str]) -> Iterable[str]:
    if key in ("experiment", "panel", "profile"):
        return _of_experiments(key, before)
    if key == f"{TUNE}.quantity":
        return registry.QUANTITIES
    if key in GROUPS:
        return [*(["auto"] if key in AUTO else []), *registry.names(key)]
    first, _, rest = key.partition(".")
    if first == "algorithm" and "." in rest:
        name, _, parameter = rest.rpartition(".")
        return parameter_words(name).get(parameter, ())
    if key == "dataset.scale":
        return ("bounds",)
    if first == "dataset":
        usual = [
            yaml_of("dataset", name).get(rest) for name in _chosen_names(first, before)
        ]
        return ("true", "false") if any(isinstance(v, bool) for v in usual) else ()
    if key not in frame_keys():
        return ()
    entry, _ = frame_keys()[key]
    return ("true", "false") if entry.default is True else entry.metadata["words"]


def _of_experiments(key: str, before: Sequence[str]) -> Iterable[str]:
    """Return the experiments there are, or panels and profiles of the chosen one."""
    from dp_erm_bench.cli.line import experiment_files, load_yaml

    pairs = [*zip(before, before[1:], strict=False)]
    pairs += [(flag, folder) for flag, _, folder in (w.partition("=") for w in before)]
    paths = experiment_files([Path(folder) for flag, folder in pairs if flag in FOLDER])
    if key == "experiment":
        return paths
    names = [SOURCE] if before[:1] == [TUNE] else _chosen_names("experiment", before)
    chosen = [paths[name] for name in names if name in paths]
    tree = load_yaml(chosen[0]) if chosen else None
    part = tree.get(HOLDS[key], ()) if isinstance(tree, dict) else ()
    if key == "profile":
        return part if isinstance(part, dict) else ()
    blocks = part if isinstance(part, list) else ()
    return {str(b.get("panel")) for b in blocks if isinstance(b, dict)}


def _chosen_names(group: str, before: Sequence[str]) -> list[str]:
    """Return the choices of a group that the line names already."""
    words = [word.partition("=") for word in before]
    return [v for key, _, value in words if key == group for v in value.split(",")]
