"""What a command line asks for, checked by name before anything is composed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.files import experiments
from dp_erm_bench.cli.grammar import Given, parse
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.experiment.frame import check_setting
from dp_erm_bench.plugins.names import absolute, is_file, label
from dp_erm_bench.registry import CHOSEN, PARTS

ONLY_WITH_EXPERIMENT = ("panel", "profile")
RETRY = "runner.retry"
LONGEST = 80  # characters of a folder's name


@dataclass(frozen=True)
class Request:
    """A command line, parsed.

    Parameters
    ----------
    experiment : str or None
        The experiment whose blocks are run.
    choices : dict of str to Given
        Config groups whose choice is given.
    axes : dict of str to Given
        Keys of the blocks: budget, seed, parameters of datasets and algorithms.
    frame : dict of str to Given
        All other keys; none of them is swept but `panel`.
    """

    experiment: str | None
    choices: dict[str, Given]
    axes: dict[str, Given]
    frame: dict[str, Given]

    @property
    def algorithms(self) -> list[str]:
        """Names of the chosen algorithms, paths of files; none if none is given."""
        given = self.choices.get("algorithm")
        return given.values if given else []

    @property
    def panels(self) -> list[str]:
        """Names of the panels to run, none for all."""
        values = _flat(self.frame["panel"].values) if "panel" in self.frame else []
        return [str(value) for value in values if value is not None]

    @property
    def changes(self) -> list[str]:
        """What makes another experiment of it, sorted: `key=value` as one may type it.

        Its profiles are its own; how it is run (`runner`, `mode`) is no part of it.
        """
        if self.experiment is None:
            return []
        chosen = [self.frame["panel"]] if self.panels else []
        given = [*chosen, *self.choices.values(), *self.axes.values()]
        return sorted(f"{one.key}={_brief(_flat(one.values))}" for one in given)

    @property
    def folder(self) -> str:
        """The folder's name if none is given: a changed experiment has its own.

        It depends on what is changed, not on the order, so that the same command finds
        it again. A long name is cut and ends with a digest.
        """
        if not self.changes:
            return self.experiment or "sweep"
        whole = "+".join([str(self.experiment), *self.changes])
        name = re.sub(r"[^\w.,=+-]", "-", whole, flags=re.ASCII)
        if name == whole and len(name) <= LONGEST:
            return name
        return f"{name[:LONGEST]}-{sha256(whole.encode()).hexdigest()[:8]}"


def read(arguments: Sequence[str], folders: Sequence[Path] = ()) -> Request:
    """Parse and check the arguments of a command line.

    Parameters
    ----------
    arguments : sequence of str
        Every `key=value`.
    folders : sequence of Path
        Config folders beside our own, where a user's experiments may be.

    Raises
    ------
    UsageError
        For an unknown key or name, a wrong type, or an axis where none may be.
    """
    request = Request(None, {}, {}, {})
    seen: set[str] = set()
    for given in map(parse, arguments):
        if given.key in seen:
            raise UsageError(f"{given.key}: given twice; write the values as one list")
        seen.add(given.key)
        if given.key == "experiment":
            request = dataclasses.replace(
                request, experiment=_experiment(given, folders)
            )
        else:
            _sort(given, request)
    for key in request.axes:
        if key.startswith("algorithm."):
            _check_algorithm_key(key, request)
    for key in ONLY_WITH_EXPERIMENT:
        if key in request.frame and request.experiment is None:
            raise UsageError(f"{key}: belongs to an experiment; add experiment=NAME")
    return request


def _sort(given: Given, request: Request) -> None:
    """Check one key and put it where it belongs."""
    first, _, rest = given.key.partition(".")
    if given.key in CHOSEN:
        request.choices[given.key] = _choice(given)
    elif first in (*PARTS, "algorithm") and rest:
        _check_own(given, rest)
        request.axes[given.key] = given
    elif given.key == "seed" or first == "budget":
        request.axes[given.key] = _setting(given)
    else:
        request.frame[given.key] = _frame(given)


def _experiment(given: Given, folders: Sequence[Path]) -> str | None:
    name = _one(given).values[0]
    if name is None:
        return None
    registry.check_choice("experiment", shown(name), sorted(experiments(folders)))
    return str(name)


def _choice(given: Given) -> Given:
    """Return the choices of a group as one list, `[a,b]` being `a,b`."""
    values = _flat(given.values)
    if not values:
        raise UsageError(f"{given.key}=[]: the axis is empty; name at least one")
    if given.key in registry.FROM_FILES:
        values = _located(map(shown, values), given.key)
    auto = ["auto"] if given.key in ("loss", "penalty") else []
    for value in values:
        if given.key not in registry.FROM_FILES or not is_file(value):
            known = [*auto, *registry.names(given.key)]
            registry.check_choice(given.key, shown(value), known)
    return dataclasses.replace(given, values=list(dict.fromkeys(map(str, values))))


def _located(values: Iterable[str], group: str) -> list[str]:
    """Return the choices of a group, each file by its absolute path.

    Raises
    ------
    UsageError
        If a file cannot be read, or two are called the same.
    """
    found = list(dict.fromkeys(absolute(v) if is_file(v) else v for v in values))
    called: dict[str, str] = {}
    for name in filter(is_file, found):
        registry.pinned(name, group)
        other = called.setdefault(label(name), name)
        if other != name:
            raise UsageError(
                f"{group}={name}: {other} is called {label(name)}, too; rename one"
            )
    return found


def _check_own(given: Given, rest: str) -> None:
    """Refuse the keys that say which choice it is; `dataset.name` has a meaning."""
    last = rest.rpartition(".")[2]
    if last == "_target_" or (last == "name" and given.key != "dataset.name"):
        group = given.key.partition(".")[0]
        raise UsageError(f"{given.key}: no such key; choose with {group}=NAME")


def _check_algorithm_key(key: str, request: Request) -> None:
    """Refuse parameters of algorithms that there are not.

    An experiment's blocks may name files: they are looked at when they are read.
    """
    _, name, *parameter = key.split(".")
    known = [*registry.names("algorithm"), *map(label, request.algorithms)]
    known = list(dict.fromkeys(known))
    unknown = name not in known and request.experiment is None
    if unknown or len(parameter) != 1:
        raise UsageError(
            f"{key}: write algorithm.NAME.PARAMETER, NAME one of {', '.join(known)}"
        )


def _frame(given: Given) -> Given:
    if given.key == "runner":
        registry.check_choice("runner", shown(_one(given).values[0]), runners())
        return given
    if given.key == "panel" and [] in given.values:
        raise UsageError("panel=[]: the axis is empty; name at least one")
    return _setting(given if given.key in ("panel", RETRY) else _one(given))


def runners() -> list[str]:
    """Return the choices of the group `runner`."""
    return registry.names("runner")


def _setting(given: Given) -> Given:
    """Check a key of the frame and the type of its values."""
    given = _listed(given) if given.key == RETRY else given
    values = [check_setting(given.key, value) for value in given.values]
    number = not given.swept and type(values[0]) in (int, float)
    text = f"{given.key}={shown(values[0])}" if number else given.text
    return dataclasses.replace(given, values=values, text=text)


def _one(given: Given) -> Given:
    if given.swept:
        raise UsageError(f"{given.key}={shown(given.values)}: takes one value, no axis")
    return given


def _listed(given: Given) -> Given:
    """Return a key that takes a list: `a` and `a,b` are short for `[a]` and `[a,b]`."""
    values = _flat(given.values)
    text = f"{given.key}=[{','.join(map(shown, values))}]"
    return Given(given.key, [values], False, text)


def _flat(values: Sequence[Any]) -> list[Any]:
    """Return values with lists among them taken apart."""
    return [v for one in values for v in (one if isinstance(one, list) else [one])]


def _brief(values: Sequence[Any]) -> str:
    """Return values with commas between them, consecutive integers as `0..9`."""
    first, last = values[0], values[-1]
    if len(values) > 2 and all(type(value) is int for value in values):
        if list(values) == list(range(first, last + 1)):
            return f"{first}..{last}"
    return ",".join(shown(value).removesuffix(".0") for value in values)
