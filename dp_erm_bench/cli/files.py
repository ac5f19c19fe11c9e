"""A user's yaml files, read and checked before Hydra meets them.

Hydra's own errors name neither the file nor the key, and some are tracebacks.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from dp_erm_bench import registry
from dp_erm_bench.cli.grammar import quoted
from dp_erm_bench.errors import UsageError, check_key, shown
from dp_erm_bench.experiment.schema import check_setting

HEADER = "# @package _global_"
SELF = "_self_"
DEEPEST = 30
MOST_NODES = 1_000_000
"""Aliases are counted as often as they are used: a few lines can stand for billions."""

RESOLVER = re.compile(r"\$\{((?:[^{}:]|\$\{[^{}]*\})*):")
"""The name of a resolver that an interpolation calls, itself interpolated or not."""

RESOLVERS = ("oc.select", "oc.create", "oc.dict.keys", "oc.dict.values")
"""Resolvers that read nothing beside the file."""

SHAPES: dict[str, tuple[type, str]] = {
    "blocks": (list, "a list of mappings"),
    "profile": (str, "the name of a profile"),
    "profiles": (dict, "a mapping from the names of profiles to mappings"),
    "figures": (list, "a list of mappings, each with its kind"),
    "claims": (list, "a list of mappings"),
    "runner": (dict, "a mapping with the runner's keys"),
    "defaults": (list, "a list of the names of experiments, and _self_"),
}
"""Keys of an experiment's file. What else a run needs is set on the command line."""


def experiments(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the files of all experiments by name, our own before those of folders.

    One of the folders may be an experiment's file itself.
    """
    paths: list[Path] = []
    for folder in (registry.conf_dir(), *folders):
        alone = folder.suffix == registry.SUFFIX
        paths += [folder] if alone else (folder / "experiment").glob("*.yaml")
    return {path.stem: path for path in reversed(paths)}


def by_path(overrides: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Return overrides with the path of an experiment as its name, and that path.

    Raises
    ------
    UsageError
        If there is no such file, or an experiment of the package has its name.
    """
    named, paths = [], []
    for text in overrides:
        key, _, value = text.partition("=")
        bare = value.strip("'\"")
        if key == "experiment" and bare.endswith(registry.SUFFIX):
            path = Path(os.path.expanduser(value))
            path = path if path.is_file() else Path(os.path.expanduser(bare))
            if not path.is_file():
                raise UsageError(f"{text}: no such file")
            if path.stem in registry.built_in("experiment"):
                taken = f"an experiment of the package is called {path.stem}"
                raise UsageError(f"{text}: {taken}, rename the file")
            paths.append(path)
            text = f"{key}={quoted(path.stem)}"
        named.append(text)
    return named, paths


def check_experiment(name: str, folders: Sequence[Path]) -> None:
    """Refuse an experiment's file, or one it builds upon, that is not as it must be.

    Raises
    ------
    UsageError
        Naming the file and the line or the key.
    """
    _check_file(name, experiments(folders), ())


def check_config(name: str, folders: Sequence[Path]) -> None:
    """Refuse a primary configuration that is not there or does not extend ours."""
    stem = name.removesuffix(".yaml")
    paths = [f / f"{stem}.yaml" for f in (registry.conf_dir(), *folders)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UsageError(f"--config-name {name}: no such file in --config-dir")
    tree = load(path)
    listed = tree.get("defaults") if isinstance(tree, dict) else None
    if not isinstance(listed, list) or not {"config", "schema"} & set(map(str, listed)):
        raise UsageError(f"{path}: must have `defaults: [config, _self_]`")


def load(path: Path) -> Any:
    """Return the content of a yaml file.

    Raises
    ------
    UsageError
        If it is no text, no yaml, refers to itself or has keys that are no words.
    """
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError, OSError, ValueError) as error:
        raise UsageError(f"{path}: {_reason(error)}") from None
    for node in _nodes(path, tree):
        for key in node if isinstance(node, dict) else ():
            if not isinstance(key, str):
                raise UsageError(f"{path}: key {shown(key)}: must be a word")
    return tree


def _check_file(name: str, paths: dict[str, Path], above: tuple[str, ...]) -> None:
    path, where = paths[name], f"experiment={name}"
    tree = load(path)
    if HEADER.split() not in _heads(path):
        raise UsageError(f"{path}: must start with the line '{HEADER}'")
    if not isinstance(tree, dict):
        raise UsageError(f"{path}: must be a mapping with `blocks`")
    _check_resolvers(where, tree)
    for key, value in tree.items():
        check_key(key, SHAPES, where)
        kind, words = SHAPES[key]
        if not isinstance(value, kind) and (value is not None or key == "blocks"):
            raise UsageError(f"{where}: {key}={shown(value)}: must be {words}")
    for key, value in (tree.get("profiles") or {}).items():
        if not isinstance(value, dict):
            raise UsageError(f"{where}: profiles.{key}: must be a mapping")
    for key, value in (tree.get("runner") or {}).items():
        check_setting(f"runner.{key}", value)
    for base in tree.get("defaults") or []:
        if base == SELF:
            continue
        registry.check_choice(f"{where}: defaults", base, sorted(paths))
        if base in (*above, name):
            raise UsageError(f"{where}: defaults={base}: builds upon itself")
        _check_file(base, paths, (*above, name))


def _check_resolvers(where: str, value: Any) -> None:
    """Refuse interpolations that call anything but what reads the file itself.

    Others read the environment or the clock: a file from anywhere would carry what they
    hold into records, figures and folders' names.
    """
    for text in _texts(value):
        for name in RESOLVER.findall(text):
            if name.strip() not in RESOLVERS:
                raise UsageError(
                    f"{where}: {shown(text[:60])}: must call no resolver but "
                    f"{', '.join(RESOLVERS)}; write the value out"
                )


def _texts(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            todo += [*one, *one.values()]
        elif isinstance(one, list):
            todo += one


def _heads(path: Path) -> Iterator[list[str]]:
    """Yield the comments at the top, in words."""
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return
        yield re.sub(r"^\s*#", "# ", line).split()


def _nodes(path: Path, tree: Any) -> Iterator[Any]:
    todo, count = [(tree, 0)], 0
    while todo:
        node, depth = todo.pop()
        count += 1
        if depth > DEEPEST or count > MOST_NODES:
            raise UsageError(
                f"{path}: nested more than {DEEPEST} deep or more than {MOST_NODES} "
                "values; an alias may stand for itself"
            )
        yield node
        inner = node.values() if isinstance(node, dict) else node
        if isinstance(inner, list) or isinstance(node, dict):
            todo += [(one, depth + 1) for one in inner]


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "must be a text in UTF-8"
    if isinstance(error, RecursionError):
        return f"nested more than {DEEPEST} deep"
    if not isinstance(error, yaml.YAMLError):
        return f"cannot be read ({error})"
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return "no yaml: " + " ".join(str(error).split())
    problem = getattr(error, "problem", "")
    return f"no yaml: line {mark.line + 1}, column {mark.column + 1}: {problem}"
