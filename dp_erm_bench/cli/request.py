"""The request of a command line, checked by name before anything is composed."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.files import experiments
from dp_erm_bench.cli.grammar import Argument, parse
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.experiment.schema import check_setting, consecutive
from dp_erm_bench.plugins.names import absolute, is_file, label
from dp_erm_bench.registry import ALGORITHM, AUTO, CHOSEN, FROM_FILES, POSED

RETRY = "runner.retry"
LONGEST = 80  # characters of a folder's name


@dataclass
class Request:
    """A command line, parsed.

    Parameters
    ----------
    experiment : str or None
        The experiment whose blocks are run.
    choices : dict of str to Argument
        Config groups whose choice is given.
    axes : dict of str to Argument
        Keys of the blocks: budget, seed, parameters of datasets and algorithms.
    frame : dict of str to Argument
        All other keys; none of them is swept but `panel`.
    """

    experiment: str | None = None
    choices: dict[str, Argument] = field(default_factory=dict)
    axes: dict[str, Argument] = field(default_factory=dict)
    frame: dict[str, Argument] = field(default_factory=dict)

    @property
    def panels(self) -> list[str]:
        """Names of the panels to run, none for all."""
        values = _flat(self.frame["panel"].values) if "panel" in self.frame else []
        return [str(value) for value in values if value is not None]

    @property
    def changes(self) -> list[str]:
        """The changes of the experiment, sorted: `key=value` as one may type it.

        Its profiles are no changes, and neither are `runner` and `mode`.
        """
        if self.experiment is None:
            return []
        chosen = [self.frame["panel"]] if self.panels else []
        every = [*chosen, *self.choices.values(), *self.axes.values()]
        return sorted(f"{one.key}={_brief(_flat(one.values))}" for one in every)

    @property
    def folder(self) -> str:
        """The folder's name if none is given: a changed experiment has its own.

        It does not depend on the order of changes, so that the same command finds it
        again. A long name is cut and ends with a digest.
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
    request = Request()
    keys: set[str] = set()
    for one in map(parse, arguments):
        first, _, rest = one.key.partition(".")
        if one.key in keys:
            raise UsageError(f"{one.key}: given twice; write the values as one list")
        keys.add(one.key)
        if one.key == "experiment":
            name = _one(one).values[0]
            if name is not None:
                names = sorted(experiments(folders))
                registry.check_choice("experiment", shown(name), names)
                request.experiment = str(name)
        elif one.key in CHOSEN:
            request.choices[one.key] = _choice(one)
        elif first in (*POSED, ALGORITHM) and rest:
            last = rest.rpartition(".")[2]
            if last == "_target_" or (last == "name" and one.key != "dataset.name"):
                raise UsageError(f"{one.key}: no such key; choose with {first}=NAME")
            request.axes[one.key] = one
        elif one.key == "seed" or first == "budget":
            request.axes[one.key] = _setting(one)
        else:
            request.frame[one.key] = _frame(one)
    _check_algorithms(request)
    for key in ("panel", "profile"):
        if key in request.frame and request.experiment is None:
            raise UsageError(f"{key}: belongs to an experiment; add experiment=NAME")
    return request


def _choice(argument: Argument) -> Argument:
    """Return the choices of a group as one list, `[a,b]` being `a,b`.

    Raises
    ------
    UsageError
        If there is no such choice, a file cannot be read, or two are called the same.
    """
    group, values = argument.key, _flat(argument.values)
    if not values:
        raise UsageError(f"{group}=[]: the axis is empty; name at least one")
    files: dict[str, str] = {}
    if group in FROM_FILES:
        words = [shown(value) for value in values]
        values = [absolute(word) if is_file(word) else word for word in words]
        for name in filter(is_file, dict.fromkeys(values)):
            registry.pinned(name, group)
            other = files.setdefault(label(name), name)
            if other != name:
                raise UsageError(
                    f"{group}={name}: {other} is called {label(name)}, too; rename one"
                )
    auto = ["auto"] if group in AUTO else []
    for value in values:
        if value not in files.values():
            names = [*auto, *registry.names(group)]
            registry.check_choice(group, shown(value), names)
    return dataclasses.replace(argument, values=list(dict.fromkeys(map(str, values))))


def _check_algorithms(request: Request) -> None:
    """Refuse parameters of algorithms that there are not.

    An experiment's blocks may name files: they are looked at when they are read.
    """
    chosen = request.choices.get(ALGORITHM)
    labels = [*map(label, chosen.values if chosen else ())]
    for key in request.axes:
        first, *of = key.split(".")
        if first == ALGORITHM:
            names = list(dict.fromkeys([*registry.names(ALGORITHM), *labels]))
            unknown = of[0] not in names and request.experiment is None
            if unknown or len(of) != 2:
                raise UsageError(
                    f"{key}: write algorithm.NAME.PARAMETER, NAME one of "
                    f"{', '.join(names)}"
                )


def _frame(argument: Argument) -> Argument:
    if argument.key == "runner":
        name = shown(_one(argument).values[0])
        registry.check_choice("runner", name, registry.names("runner"))
        return argument
    if argument.key == "panel" and [] in argument.values:
        raise UsageError("panel=[]: the axis is empty; name at least one")
    return _setting(argument if argument.key in ("panel", RETRY) else _one(argument))


def _setting(argument: Argument) -> Argument:
    """Check a key of the frame and the type of its values."""
    if argument.key == RETRY:  # `a` and `a,b` are short for `[a]` and `[a,b]`
        values = _flat(argument.values)
        text = f"{RETRY}=[{','.join(map(shown, values))}]"
        argument = Argument(RETRY, [values], False, text)
    values = [check_setting(argument.key, value) for value in argument.values]
    number = not argument.swept and type(values[0]) in (int, float)
    text = f"{argument.key}={shown(values[0])}" if number else argument.text
    return dataclasses.replace(argument, values=values, text=text)


def _one(argument: Argument) -> Argument:
    if argument.swept:
        values = shown(argument.values)
        raise UsageError(f"{argument.key}={values}: takes one value, no axis")
    return argument


def _flat(values: Iterable[Any]) -> list[Any]:
    """Return values with lists among them taken apart."""
    return [v for one in values for v in (one if isinstance(one, list) else [one])]


def _brief(values: Sequence[Any]) -> str:
    """Return values with commas between them, consecutive integers as `0..9`."""
    if len(values) > 2 and consecutive(values):
        return f"{values[0]}..{values[-1]}"
    return ",".join(shown(value).removesuffix(".0") for value in values)
