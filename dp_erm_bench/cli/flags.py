"""The command line's flags, told apart from its `key=value` arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from dp_erm_bench.errors import UsageError

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


def folders_of(flags: argparse.Namespace) -> list[Path]:
    """Return the config folders beside our own."""
    return [Path(flags.config_dir)] if flags.config_dir else []


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
