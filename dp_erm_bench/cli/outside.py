"""Algorithms from outside the package, as the command line and Hydra name them.

Hydra finds choices in yaml files and in its store. A solver's file is stored there
under what it is called, and given as its path to the sweeper alone: a choice that is
swept is not looked up by Hydra.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hydra.core.config_store import ConfigStore

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import absolute, entry_points, is_file, label

ALGORITHM = registry.ALGORITHM


def located(values: Iterable[str]) -> list[str]:
    """Return chosen algorithms, each file by its absolute path.

    Raises
    ------
    UsageError
        If a file cannot be read, or two are called the same.
    """
    found = list(dict.fromkeys(absolute(v) if is_file(v) else v for v in values))
    called: dict[str, str] = {}
    for name in filter(is_file, found):
        registry.pinned(name)
        other = called.setdefault(label(name), name)
        if other != name:
            raise UsageError(
                f"algorithm={name}: {other} is called {label(name)}, too; rename one"
            )
    return found


def offer(chosen: Sequence[str]) -> None:
    """Put files and entry points into Hydra's store, as if each had a yaml."""
    files = {label(name): name for name in chosen if is_file(name)}
    for name, target in {**entry_points(), **files}.items():
        ConfigStore.instance().store(
            group=ALGORITHM,
            name=name,
            package=f"{ALGORITHM}.{name}",
            node={"_target_": target},
        )


def for_hydra(values: Sequence[Any], shown: bool) -> str | None:
    """Return the choice of algorithms as Hydra takes it, None if no file is in it.

    Parameters
    ----------
    values : sequence
        As given.
    shown : bool
        Whether the configuration is shown, of the first value, and nothing run.
    """
    many = [value if isinstance(value, list) else [value] for value in values]
    flat = [value for some in many for value in some]
    if not any(map(is_file, flat)):
        return None
    if shown:
        return f"{ALGORITHM}={label(flat[0])}"
    quoted = ["'" + name.replace("'", "\\'") + "'" for name in located(flat)]
    return f"{ALGORITHM}=choice({','.join(quoted)})"
