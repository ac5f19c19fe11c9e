"""Shell completion, answered from the files on disk: no solver, no Hydra imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.fields import parameters
from dp_erm_bench.cli.help import AUTO, GROUPS
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.frame import settings
from dp_erm_bench.registry import PARTS

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

COMMANDS = ("check", "collect", "compare", "help", "list", "report")
FOLDER = ("-cd", "--config-dir")
"""Flags whose value is a folder: the shell completes it."""

FLAGS = ("--cfg", "--config-dir", "--config-name", "--help", "--multirun", "--version")
COMMON = (
    *("standardise", "positive", "test_fraction", "seed"),
    *("drop_empty", "densify", "clip_to_bounds"),
)
"""Keys of every dataset; its yaml has more."""

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
        shells = "|".join(SCRIPTS)
        said = "dp-erm-bench: --shell-completion: write -sc install=" + shells
        print(said, file=sys.stderr)
        return 2
    if what == "install":
        print(SCRIPTS[shell])
        return 0
    line = os.environ.get("COMP_LINE", "")
    point = os.environ.get("COMP_POINT", "")
    found = candidates(line[: int(point)] if point.isdigit() else line)
    # To bash a word begins behind each '='.
    cut = shell == "bash"
    print("\n".join(word.rpartition("=")[2] or word if cut else word for word in found))
    return 0


def candidates(line: str) -> list[str]:
    """Return the words that may stand where a line ends, whole words."""
    words = line.split()
    last = "" if not words or line[-1].isspace() else words.pop()
    try:
        return sorted({w for w in _words(words[1:], last) if w.startswith(last)})
    except (UsageError, OSError):
        return []


def _words(before: Sequence[str], last: str) -> Iterator[str]:
    if before and before[0] in COMMANDS:
        yield from _arguments(before[0], before[1:])
    elif before and before[-1] in FOLDER:
        return
    elif last.startswith("-"):
        yield from FLAGS
    elif "=" in last:
        key, _, given = last.partition("=")
        head = given.rpartition(",")
        yield from (
            f"{key}={head[0]}{head[1]}{value}" for value in _values(key, before)
        )
    else:
        yield from () if before else COMMANDS
        for key in _keys(before, last):
            beyond = key[len(last) :]
            yield last + beyond.partition(".")[0] + ("." if "." in beyond else "=")


def _arguments(command: str, before: Sequence[str]) -> Iterable[str]:
    """Return what a command takes; folders and files are left to the shell."""
    if command == "check":
        return registry.names("algorithm")
    if command != "list":
        return ()
    groups = [word for word in before if word in (*GROUPS, "settings")]
    named = groups and groups[-1] != "settings"
    return [
        *GROUPS,
        "settings",
        *(registry.names(groups[-1]) if named else ()),
    ]


def _keys(before: Sequence[str], last: str) -> Iterator[str]:
    """Yield dotted keys that begin as the last word does."""
    keys = [*GROUPS, *(key for key, _ in settings()), "penalty.strength"]
    if last.startswith("dataset."):
        chosen = _chosen("dataset", before) or registry.built_in("dataset")
        names = [k for name in chosen for k in _yaml("dataset", name)]
        keys += [f"dataset.{key}" for key in (*COMMON, *names) if key not in UNSET]
    elif last.startswith("algorithm."):
        for name in registry.names("algorithm"):
            keys.append(f"algorithm.{name}.")
            if last.startswith(f"algorithm.{name}."):
                keys += [f"algorithm.{name}.{key}" for key in parameters(name)]
    elif last.partition(".")[0] in PARTS and "." in last:
        group = last.partition(".")[0]
        for name in _chosen(group, before):
            keys += [f"{group}.{k}" for k in _yaml(group, name) if k not in UNSET]
    else:
        keys += ["dataset.", "algorithm."]
    return (key for key in keys if key.startswith(last) and key != last)


def _values(key: str, before: Sequence[str]) -> Iterable[str]:
    if key == "experiment" or key in ("panel", "profile"):
        return _of_experiments(key, before)
    if key in GROUPS:
        return [*(["auto"] if key in AUTO else []), *registry.names(key)]
    first, _, rest = key.partition(".")
    if first == "algorithm" and "." in rest:
        name, _, parameter = rest.rpartition(".")
        return parameters(name).get(parameter, ())
    if first == "dataset":
        given = [_yaml("dataset", name).get(rest) for name in _chosen(first, before)]
        return ("true", "false") if any(isinstance(v, bool) for v in given) else ()
    entry = dict(settings()).get(key)
    if entry is None:
        return ()
    return ("true", "false") if entry.default is True else entry.metadata["words"]


def _of_experiments(key: str, before: Sequence[str]) -> Iterable[str]:
    """Return the experiments there are, or panels and profiles of the chosen one."""
    from dp_erm_bench.cli.files import experiments, load

    known = experiments(_folders(before))
    if key == "experiment":
        return known
    chosen = [known[name] for name in _chosen("experiment", before) if name in known]
    tree = load(chosen[0]) if chosen else None
    part = tree.get(HOLDS[key]) if isinstance(tree, dict) else None
    if key == "profile":
        return part if isinstance(part, dict) else ()
    blocks = part if isinstance(part, list) else []
    return {str(b.get("panel")) for b in blocks if isinstance(b, dict)}


def _folders(before: Sequence[str]) -> list[Path]:
    pairs = zip(before, before[1:], strict=False)
    found = [Path(folder) for flag, folder in pairs if flag in FOLDER]
    joined = [word.partition("=") for word in before]
    return found + [Path(folder) for flag, _, folder in joined if flag in FOLDER]


def _chosen(group: str, before: Sequence[str]) -> list[str]:
    """Return the choices of a group that the line names already."""
    words = [word.partition("=") for word in before]
    return [v for key, _, value in words if key == group for v in value.split(",")]


def _yaml(group: str, name: str) -> dict[str, Any]:
    return registry.read(group, name) if name in registry.built_in(group) else {}
