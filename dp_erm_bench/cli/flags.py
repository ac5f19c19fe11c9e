"""The command line's flags, told apart from its `key=value` arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from dp_erm_bench.cli.grammar import Given, parse
from dp_erm_bench.cli.outside import ALGORITHM, for_hydra
from dp_erm_bench.cli.request import checked
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.registry import PARTS

ONLY_WITH_CFG = ("package", "resolve")


def split(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the flags and the `key=value` arguments.

    Raises
    ------
    UsageError
        For a flag that does not exist, lacks its value or has no effect.
    """
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    try:
        flags, rest = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None
    for argument in rest:
        if argument.startswith("-"):
            raise UsageError(f"{argument}: no such option; see dp-erm-bench --help")
    _check(flags)
    return flags, rest


def folders(flags: argparse.Namespace) -> list[Path]:
    """Return the config folders beside our own."""
    return [Path(flags.config_dir)] if flags.config_dir else []


def hydra_arguments(flags: argparse.Namespace, overrides: Sequence[str]) -> list[str]:
    """Return the command line for Hydra.

    `--multirun` is what calls a sweeper at all; a configuration is shown for the first
    value of every axis. Hydra wants a key that no yaml holds to be added by force.
    """
    result: list[str] = []
    for name in ("cfg", "package", "config_name", "config_dir"):
        if getattr(flags, name):
            result += [f"--{name.replace('_', '-')}", getattr(flags, name)]
    result += ["--resolve"] if flags.resolve else []
    result += [] if flags.cfg else ["--multirun"]
    for given in (checked(parse(override)) for override in overrides):
        forced = "." in given.key and given.key.split(".")[0] in (*PARTS, "algorithm")
        text = _first(given) if flags.cfg and given.swept else given.text
        if given.key == ALGORITHM:
            text = for_hydra(given.values, bool(flags.cfg)) or text
        result.append(f"++{text}" if forced else text)
    return result


def _check(flags: argparse.Namespace) -> None:
    for name in ("config_dir", "config_name", "package"):
        if getattr(flags, name) == "":
            raise UsageError(f"--{name.replace('_', '-')}=: needs a value")
    for name in ONLY_WITH_CFG:
        if getattr(flags, name) and not flags.cfg:
            raise UsageError(f"--{name}: belongs to --cfg job|hydra|all, which shows")
    if flags.config_dir and not _is_folder(flags.config_dir):
        raise UsageError(f"--config-dir {flags.config_dir}: no such folder")


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except ValueError:  # a null character
        return False


def _first(given: Given) -> str:
    value = given.values[0]
    quoted = isinstance(value, str) and not re.fullmatch(r"[\w.\-]+", value)
    return f"{given.key}='{value}'" if quoted else f"{given.key}={shown(value)}"
