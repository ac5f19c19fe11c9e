"""Shell completion, answered from the files on disk: no solver, no Hydra imported."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dp_erm_bench import registry
from dp_erm_bench.cli import main
from dp_erm_bench.cli.sources import parameters, yaml_of
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import block_keys, settings
from dp_erm_bench.plugins.names import absolute, is_file, label
from dp_erm_bench.registry import POSED

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

COMMANDS = ("help", *main.COMMANDS)
LISTED = (*main.GROUPS, "settings", "blocks", "results")
FOLDER = ("-cd", "--config-dir")
"""Flags whose value is a folder: the shell completes it."""

FLAGS = ("--cfg", "--config-dir", "--config-name", "--help", "--multirun", "--version")
COMMON = (
    *("standardise", "positive", "test_fraction", "seed"),
    *("drop_empty", "densify", "clip_to_bounds", "intercept"),
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
    words = candidates(line[: int(point)] if point.isdigit() else line)
    cut = shell == "bash"  # to which a word begins behind each '='
    print("\n".join(word.rpartition("=")[2] or word if cut else word for word in words))
    return 0


def candidates(line: str) -> list[str]:
    """Return the words that may stand where a line ends, whole words."""
    words = line.split()
    last = "" if not words or line[-1].isspace() else words.pop()
    try:
        return sorted({w for w in _words(words[1:], last) if w.startswith(last)})
    except (UsageError, OSError, SyntaxError):
        return []


def _words(before: Sequence[str], last: str) -> Iterator[str]:
    if before and before[0] in COMMANDS and before[0] != TUNE:
        groups = [word for word in before[1:] if word in LISTED]
        if before[0] == "check":
            yield from registry.names("algorithm")
        elif before[0] == "list":
            yield from LISTED
            named = groups and groups[-1] in main.GROUPS
            yield from registry.names(groups[-1]) if named else ()
    elif before and before[-1] in FOLDER:
        return
    elif last.startswith("-"):
        yield from FLAGS
    elif "=" in last:
        key, _, value = last.partition("=")
        head = "".join(value.rpartition(",")[:2])
        yield from (f"{key}={head}{one}" for one in _values(key, before))
    else:
        yield from () if before else COMMANDS
        for key in _keys(before, last):
            if key.startswith(last) and key != last:
                beyond = key[len(last) :]
                yield last + beyond.partition(".")[0] + ("." if "." in beyond else "=")


def _keys(before: Sequence[str], last: str) -> Iterator[str]:
    """Yield dotted keys, those of the parts of the section that the last word is in."""
    yield from (*main.GROUPS, *settings(), "penalty.strength")
    if before[:1] == [TUNE]:
        yield from (key for key in block_keys() if key.startswith(f"{TUNE}."))
    group, dot, rest = last.partition(".")
    if not dot:
        yield from ("dataset.", "algorithm.")
    elif group == "algorithm":
        files = {label(v): absolute(v) for v in _chosen(group, before) if is_file(v)}
        for name in (*registry.names(group), *files):
            yield f"{group}.{name}."
            if rest.startswith(f"{name}."):
                for key in parameters(name, files.get(name, "")):
                    yield f"{group}.{name}.{key}"
    elif group in POSED:
        of_all = COMMON if group == "dataset" else ()
        chosen = _chosen(group, before) or (registry.built_in(group) if of_all else ())
        keys = (*of_all, *(key for name in chosen for key in yaml_of(group, name)))
        yield from (f"{group}.{key}" for key in keys if key not in UNSET)


def _values(key: str, before: Sequence[str]) -> Iterable[str]:
    if key in ("experiment", "panel", "profile"):
        return _of_experiments(key, before)
    if key == f"{TUNE}.quantity":
        return registry.QUANTITIES
    if key in main.GROUPS:
        return [*(["auto"] if key in main.AUTO else []), *registry.names(key)]
    first, _, rest = key.partition(".")
    if first == "algorithm" and "." in rest:
        name, _, parameter = rest.rpartition(".")
        return parameters(name).get(parameter, ())
    if first == "dataset":
        usual = [yaml_of("dataset", name).get(rest) for name in _chosen(first, before)]
        return ("true", "false") if any(isinstance(v, bool) for v in usual) else ()
    if key not in settings():
        return ()
    entry, _ = settings()[key]
    return ("true", "false") if entry.default is True else entry.metadata["words"]


def _of_experiments(key: str, before: Sequence[str]) -> Iterable[str]:
    """Return the experiments there are, or panels and profiles of the chosen one."""
    from dp_erm_bench.cli.files import experiments, load

    pairs = [*zip(before, before[1:], strict=False)]
    pairs += [(flag, folder) for flag, _, folder in (w.partition("=") for w in before)]
    paths = experiments([Path(folder) for flag, folder in pairs if flag in FOLDER])
    if key == "experiment":
        return paths
    names = [SOURCE] if before[:1] == [TUNE] else _chosen("experiment", before)
    chosen = [paths[name] for name in names if name in paths]
    tree = load(chosen[0]) if chosen else None
    part = tree.get(HOLDS[key], ()) if isinstance(tree, dict) else ()
    if key == "profile":
        return part if isinstance(part, dict) else ()
    blocks = part if isinstance(part, list) else ()
    return {str(b.get("panel")) for b in blocks if isinstance(b, dict)}


def _chosen(group: str, before: Sequence[str]) -> list[str]:
    """Return the choices of a group that the line names already."""
    words = [word.partition("=") for word in before]
    return [v for key, _, value in words if key == group for v in value.split(",")]
