"""The commands that need no composition: list, collect, report, compare, check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice


def command(name: str, arguments: Sequence[str]) -> int:
    """Run one of the commands and return the exit code.

    Parameters
    ----------
    name : str
        `list`, `collect`, `report`, `compare` or `check`.
    arguments : sequence of str
        Config groups to list, results folders, or algorithms to check; `compare`
        takes options too.
    """
    try:
        check_choice("command", name, sorted(COMMANDS))
        return COMMANDS[name](arguments)
    except UsageError as error:
        print(f"dp-erm-bench: {error}", file=sys.stderr)
        return 2


def _list(words: Sequence[str]) -> int:
    from dp_erm_bench.cli.listing import GROUPS, listing

    asked: list[tuple[str, list[str]]] = []
    for word in words:
        if word in GROUPS or not asked or asked[-1][0] == "settings":
            check_choice("list", word, list(GROUPS))
            asked.append((word, []))
        else:
            group, names = asked[-1]
            check_choice(f"list {group}", word, registry.names(group))
            names.append(word)
    shown = asked or [(group, []) for group in GROUPS]
    print("\n\n".join(listing(group, names) for group, names in shown))
    return 0


def _collect(folders: Sequence[str]) -> int:
    from dp_erm_bench.cli.folders import collect

    for folder in _existing(folders):
        collect(folder)
    return 0


def _report(folders: Sequence[str]) -> int:
    from dp_erm_bench.cli.folders import report

    for folder in _existing(folders):
        report(folder)
    return 0


def _compare(arguments: Sequence[str]) -> int:
    from dp_erm_bench.cli.compare import compare

    return compare(arguments)


def _existing(folders: Sequence[str]) -> list[Path]:
    if not folders:
        raise UsageError("name at least one results folder, as in results/sweep")
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(f"{folder}: no such folder")
    return [Path(folder) for folder in folders]


def _check(algorithms: Sequence[str]) -> int:
    from dp_erm_bench.cli.check import check

    return check(algorithms)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "list": _list,
    "collect": _collect,
    "report": _report,
    "compare": _compare,
    "check": _check,
}
