"""From a line of words, and the files that it names, to the blocks of an experiment.

Words are split by a grammar of our own, keys are checked, and what is left is composed
by Hydra. Its own errors name neither the file nor the key, and some are tracebacks: so
a user's yaml files are read and checked before it meets them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser import types
from hydra.core.override_parser.overrides_parser import (
    OverridesParser,
    create_functions,
)
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf

from dp_erm_bench import registry
from dp_erm_bench.cli.usage import AUTO, GROUPS
from dp_erm_bench.errors import UsageError, check_key, typed_text
from dp_erm_bench.experiment import schema
from dp_erm_bench.experiment.schema import (
    MOST_TRIALS,
    Frame,
    are_consecutive,
    check_setting,
)
from dp_erm_bench.plugins.names import absolute_path, entry_points, is_file, label_of
from dp_erm_bench.registry import (
    ALGORITHM,
    CHOSEN,
    ERM,
    FROM_FILES,
    POSED,
    PROBLEM,
)

# Hydra's lexer knows no '^': powers of the number of records are quoted for it.
_POWER = re.compile(r"(?<!['\"\w.])(\d[\d.]*/n\^\d[\d.]*)(?!['\"\w.])")
# Nor does it know '~', which starts the path of a solver's file.
_HOME = re.compile(r"(?<=[=,\[])~[^,\]\s]*")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_SWEEP = re.compile(r"^\s*\w+\(.*\)\s*$|,")

# What OmegaConf would replace, and what it reads as the text itself.
_INTERPOLATION, _LITERAL = re.compile(r"(\\*)\$\{"), re.compile(r"\\(\\*)\$\{")

OWN_WORDS = ("dataset", *FROM_FILES, "experiment", "panel", "name", "results_dir")
"""First words of keys that may hold a user's own: of files, headings and labels."""

PATHS = ("dataset.path", *FROM_FILES, "results_dir")
"""Keys whose values may name files: what names one is no number, and no call."""

INSTEAD = {
    "--info": "--cfg all shows the configuration, `dp-erm-bench list` every choice",
    "--hydra-help": "--help names all keys and options",
    "--run": "leave it out, a run is what there is",
    "--config-path": "--config-dir FOLDER adds a folder of experiments",
    "--experimental-rerun": "the same command does what is missing",
    "hydra.run": "set results_dir=FOLDER, or name=NAME of a folder in it",
    "hydra.sweep": "set results_dir=FOLDER, or name=NAME of a folder in it",
    "hydra.output_subdir": "runs/RUN.json of the results holds the configuration",
    "hydra.launcher": "set runner=joblib or runner=dask, and runner.n_jobs=N",
    "hydra.sweeper": "a,b and range(0,10) are axes; blocks with `tune` search",
    "hydra.searchpath": "--config-dir FOLDER adds a folder of experiments",
    "hydra": "nothing of hydra's own is set here; README.md lists what works",
}
"""Options and keys of Hydra's that do nothing here, and what to use in their place."""

SHORT = {"-i": "--info", "-r": "--run", "-cp": "--config-path"}


@dataclass(frozen=True)
class Argument:
    """One `key=value` of the command line.

    Parameters
    ----------
    key : str
        Dotted key or config group.
    values : list
        The values, without repetitions; a single one if nothing is swept.
    swept : bool
        Whether the grammar asks for an axis.
    text : str
        The argument in a form that Hydra parses.
    """

    key: str
    values: list[Any]
    swept: bool
    text: str

    @property
    def forced_prefix(self) -> str:
        """The prefix that adds a key by force: some keys of parts are in no yaml.

        The expansion checks them.
        """
        first, dot, _ = self.key.partition(".")
        return "++" if dot and first in (*POSED, ALGORITHM) else ""

    @property
    def first_value(self) -> str:
        """The argument with its first value only, for Hydra."""
        if self.key == ALGORITHM:
            chosen = self.values[:1] if self.swept else self.values
            return f"{ALGORITHM}=[{','.join(map(label_of, chosen))}]"
        if "." in self.key and not self.swept:
            return self.forced_prefix + self.text
        value = self.values[0]
        value = label_of(value) if self.key in FROM_FILES else value
        text = quote_text(value) if isinstance(value, str) else typed_text(value)
        return f"{self.forced_prefix}{self.key}={text}"


def check_hydra(argument: str) -> None:
    """Refuse an option or a key of Hydra's with a sentence that says what to use.

    Raises
    ------
    UsageError
        If the argument is one that has no effect here.
    """
    name = argument.lstrip("+~").partition("=")[0].replace("/", ".")
    name = SHORT.get(name, name)
    while name and name not in INSTEAD:
        name = name.rpartition(".")[0]
    if name:
        kind = "option" if name.startswith("-") else "key"
        raise UsageError(f"{argument}: no such {kind}; {INSTEAD[name]}")


def parse_argument(argument: str) -> Argument:
    """Read one argument of the command line.

    A value that Hydra's grammar refuses, or that names a file, is quoted for it where
    the key may hold a user's own words; commas part the values of an axis all the same.

    Raises
    ------
    UsageError
        If the argument is no `key=value`, adds or deletes a key, or asks for an
        axis that cannot be enumerated or is empty.
    """
    check_hydra(argument)
    text = _quote_for_hydra(argument)
    override = _parse_with_hydra(text)
    if not isinstance(override, types.Override):
        raise UsageError(f"{argument}: not understood as key=value ({override})")
    if override.type is not types.OverrideType.CHANGE:
        raise UsageError(f"{argument}: keys are only set, as key=value, without + or ~")
    if override.package is not None or not override.key_or_group:
        raise UsageError(f"{argument}: write key=value with a dotted key")
    swept = override.is_sweep_override()
    values = (
        _axis_values(override, argument) if swept else [_plain_value(override.value())]
    )
    if not values:
        raise UsageError(f"{argument}: the axis is empty; give at least one value")
    return Argument(override.key_or_group, values, swept, text)


def quote_text(text: str) -> str:
    """Return a text as Hydra's grammar and its interpolation read it as itself."""
    literal = _INTERPOLATION.sub(r"\1\1\\${", text)
    return types.QuotedString(literal, types.Quote.single).with_quotes()


def _quote_for_hydra(argument: str) -> str:
    """Return an argument with quotes where Hydra needs them."""
    text = _POWER.sub(r"'\1'", argument)
    if text.startswith("algorithm="):
        text = _HOME.sub(r"'\g<0>'", text)
    key, _, value = argument.partition("=")
    if key.partition(".")[0] not in OWN_WORDS or not value:
        return text
    parts = _split_at_commas(value)
    forced = [_is_name(key, part) for part in parts]
    if not any(forced) and isinstance(_parse_with_hydra(text), types.Override):
        return text
    worded = [
        quote_text(part) if force or not _is_value(part) else part
        for part, force in zip(parts, forced, strict=True)
    ]
    return f"{key}={','.join(worded)}"


def _is_name(key: str, text: str) -> bool:
    """Tell whether a text names a file or an experiment, whatever it looks like."""
    if key == "experiment":
        plain = text[:1] not in "'\"" and text != "null"
        return plain and not _call_pattern().match(text)
    path = os.path.expanduser(text)
    return key in PATHS and "\0" not in path and os.path.exists(path)


def _is_value(text: str) -> bool:
    """Tell whether Hydra's grammar has a text, or refuses it as a call of its own."""
    called = _call_pattern().match(text) is not None
    return called or isinstance(_parse_with_hydra(f"key={text}"), types.Override)


def _split_at_commas(value: str) -> list[str]:
    """Return what the commas outside of brackets and quotes part, if these are closed.

    A value with brackets or quotes that do not close is one text.
    """
    parts, closing, quote = [""], [], ""
    for one in value:
        if quote:
            quote = "" if one == quote else quote
        elif one in "'\"":
            quote = one
        elif one in _PAIRS:
            closing.append(_PAIRS[one])
        elif one in _PAIRS.values():
            if not closing or closing.pop() != one:
                return [value]
        elif one == "," and not closing:
            parts.append("")
            continue
        parts[-1] += one
    return [value] if quote or closing else parts


@functools.cache
def _call_pattern() -> re.Pattern[str]:
    """Return what a call of one of Hydra's functions looks like."""
    names = "|".join(create_functions().functions)
    return re.compile(rf"\s*(?:{names})\s*\(.*\)\s*$", re.DOTALL)


def _parse_with_hydra(text: str) -> types.Override | str:
    """Return what Hydra's parser makes of a text, or the first line of its refusal."""
    try:
        return _hydra_parser().parse_override(text)
    except (HydraException, ValueError, RecursionError) as error:
        return next(iter(str(error).splitlines()), "")


def expand_values(key: str, value: Any) -> Any:
    """Return the list that a string of the sweep grammar stands for, else the value.

    Parameters
    ----------
    key : str
        The place of the value, for the message.
    value : Any
        A value of an experiment's block, such as `"range(0,10)"`.
    """
    if not isinstance(value, str) or not _SWEEP.search(value):
        return value
    argument = parse_argument(f"{key}={value}")
    return argument.values if argument.swept else argument.values[0]


@functools.cache
def _hydra_parser() -> OverridesParser:
    return OverridesParser.create()


def _axis_values(override: types.Override, argument: str) -> list[Any]:
    """Return the values of an axis; refuse texts without a list, or with a long one."""
    if override.is_interval_sweep():
        raise UsageError(
            f"{argument}: an interval has no list of values; use range(start,stop,step)"
        )
    sweep = override._value
    if isinstance(sweep, types.RangeSweep):
        start, stop, step = (
            float(x or 0) for x in (sweep.start, sweep.stop, sweep.step)
        )
        # A range that does not end compares false with any number.
        if step and not abs(stop - start) / abs(step) <= MOST_TRIALS:
            raise UsageError(
                f"{argument}: has more than {MOST_TRIALS} values, which a run may not "
                "have"
            )
    if isinstance(sweep, types.Glob):
        group = override.key_or_group
        return list(sweep.filter(registry.names(group) if group in GROUPS else []))
    try:
        return unique_values(
            [_plain_value(value) for value in override.sweep_iterator()]
        )
    except (HydraException, ValueError) as error:
        raise UsageError(f"{argument}: {error}") from None


def unique_values(values: list[Any]) -> list[Any]:
    """Return the values without repetitions, in order; 1, 1.0 and true differ."""
    return list({(type(value), repr(value)): value for value in values}.values())


def _plain_value(value: Any) -> Any:
    if isinstance(value, types.QuotedString):
        value = value.text
    if isinstance(value, str):
        return _LITERAL.sub(lambda one: one[1][: len(one[1]) // 2] + "${", value)
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {_plain_value(key): _plain_value(item) for key, item in value.items()}
    return value


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


def experiment_files(folders: Sequence[Path]) -> dict[str, Path]:
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
            text = f"{key}={quote_text(path.stem)}"
        named.append(text)
    return named, paths


def check_experiment(name: str, folders: Sequence[Path]) -> None:
    """Refuse an experiment's file, or one it builds upon, that is not as it must be.

    Raises
    ------
    UsageError
        Naming the file and the line or the key.
    """
    _check_file(name, experiment_files(folders), ())


def check_config(name: str, folders: Sequence[Path]) -> None:
    """Refuse a primary configuration that is not there or does not extend ours."""
    stem = name.removesuffix(".yaml")
    paths = [f / f"{stem}.yaml" for f in (registry.conf_dir(), *folders)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UsageError(f"--config-name {name}: no such file in --config-dir")
    tree = load_yaml(path)
    listed = tree.get("defaults") if isinstance(tree, dict) else None
    if not isinstance(listed, list) or not {"config", "schema"} & set(map(str, listed)):
        raise UsageError(f"{path}: must have `defaults: [config, _self_]`")


SIXTY = r"[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.\d*)?"
ODD = re.compile(rf"(?<![\w.:])[-+]?(?:0[0-7_]+|{SIXTY})")
"""Octal numbers, 010, and those of base 60, 1:30, as yaml 1.1 has them."""


def load_yaml(path: Path) -> Any:
    """Return the content of a yaml file.

    Raises
    ------
    UsageError
        If it is no text, no yaml, refers to itself, has keys that are no words, or
        numbers that are not what they look like.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = yaml.load(text, Loader=yaml.CSafeLoader)
        words = [*yaml.scan(text, Loader=yaml.CSafeLoader)] if ODD.search(text) else []
    except (yaml.YAMLError, RecursionError, OSError, ValueError) as error:
        raise UsageError(f"{path}: {_error_reason(error)}") from None
    for word in words:
        if isinstance(word, yaml.ScalarToken) and word.plain:
            number = yaml.load(word.value, Loader=yaml.CSafeLoader)
            if ODD.fullmatch(word.value) and isinstance(number, int | float):
                raise UsageError(
                    f"{path}: line {word.start_mark.line + 1}: {word.value}: yaml "
                    f"reads {number:g}; write that, or quote the word"
                )
    for node in _yaml_nodes(path, tree):
        for key in node if isinstance(node, dict) else ():
            if not isinstance(key, str):
                raise UsageError(f"{path}: key {typed_text(key)}: must be a word")
    return tree


def _check_file(name: str, paths: dict[str, Path], above: tuple[str, ...]) -> None:
    path, where = paths[name], f"experiment={name}"
    tree = load_yaml(path)
    if HEADER.split() not in _head_comments(path):
        raise UsageError(f"{path}: must start with the line '{HEADER}'")
    if not isinstance(tree, dict):
        raise UsageError(f"{path}: must be a mapping with `blocks`")
    _check_resolvers(where, tree)
    for key, value in tree.items():
        check_key(key, SHAPES, where)
        kind, words = SHAPES[key]
        if not isinstance(value, kind) and (value is not None or key == "blocks"):
            raise UsageError(f"{where}: {key}={typed_text(value)}: must be {words}")
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
    for text in _texts_within(value):
        for name in RESOLVER.findall(text):
            if name.strip() not in RESOLVERS:
                raise UsageError(
                    f"{where}: {typed_text(text[:60])}: must call no resolver but "
                    f"{', '.join(RESOLVERS)}; write the value out"
                )


def _texts_within(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            todo += [*one, *one.values()]
        elif isinstance(one, list):
            todo += one


def _head_comments(path: Path) -> Iterator[list[str]]:
    """Yield the comments at the top, in words."""
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return
        yield re.sub(r"^\s*#", "# ", line).split()


def _yaml_nodes(path: Path, tree: Any) -> Iterator[Any]:
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


def _error_reason(error: Exception) -> str:
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
        values = (
            _flatten_lists(self.frame["panel"].values) if "panel" in self.frame else []
        )
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
        return sorted(
            f"{one.key}={_brief_values(_flatten_lists(one.values))}" for one in every
        )

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


def read_request(arguments: Sequence[str], folders: Sequence[Path] = ()) -> Request:
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
    for one in map(parse_argument, arguments):
        first, _, rest = one.key.partition(".")
        if one.key in keys:
            raise UsageError(f"{one.key}: given twice; write the values as one list")
        keys.add(one.key)
        if one.key == "experiment":
            name = _require_one_value(one).values[0]
            if name is not None:
                names = sorted(experiment_files(folders))
                registry.check_choice("experiment", typed_text(name), names)
                request.experiment = str(name)
        elif one.key in CHOSEN:
            request.choices[one.key] = _choice_list(one)
        elif first in (*POSED, ALGORITHM) and rest:
            last = rest.rpartition(".")[2]
            if last == "_target_" or (last == "name" and one.key != "dataset.name"):
                raise UsageError(f"{one.key}: no such key; choose with {first}=NAME")
            request.axes[one.key] = one
        elif one.key == "seed" or first == "budget":
            request.axes[one.key] = _check_setting(one)
        else:
            request.frame[one.key] = _check_frame_key(one)
    _check_algorithms(request)
    for key in ("panel", "profile"):
        if key in request.frame and request.experiment is None:
            raise UsageError(f"{key}: belongs to an experiment; add experiment=NAME")
    return request


def _choice_list(argument: Argument) -> Argument:
    """Return the choices of a group as one list, `[a,b]` being `a,b`.

    Raises
    ------
    UsageError
        If there is no such choice, a file cannot be read, or two are called the same.
    """
    group, values = argument.key, _flatten_lists(argument.values)
    if not values:
        raise UsageError(f"{group}=[]: the axis is empty; name at least one")
    files: dict[str, str] = {}
    if group in FROM_FILES:
        words = [typed_text(value) for value in values]
        values = [absolute_path(word) if is_file(word) else word for word in words]
        for name in filter(is_file, dict.fromkeys(values)):
            registry.pin_choice(name, group)
            other = files.setdefault(label_of(name), name)
            if other != name:
                raise UsageError(
                    f"{group}={name}: {other} is called {label_of(name)}, too; rename "
                    "one"
                )
    auto = ["auto"] if group in AUTO else []
    for value in values:
        if value not in files.values():
            names = [*auto, *registry.names(group)]
            registry.check_choice(group, typed_text(value), names)
    return dataclasses.replace(argument, values=list(dict.fromkeys(map(str, values))))


def _check_algorithms(request: Request) -> None:
    """Refuse parameters of algorithms that there are not.

    An experiment's blocks may name files: they are looked at when they are read.
    """
    chosen = request.choices.get(ALGORITHM)
    labels = [*map(label_of, chosen.values if chosen else ())]
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


def _check_frame_key(argument: Argument) -> Argument:
    if argument.key == "runner":
        name = typed_text(_require_one_value(argument).values[0])
        registry.check_choice("runner", name, registry.names("runner"))
        return argument
    if argument.key == "panel" and [] in argument.values:
        raise UsageError("panel=[]: the axis is empty; name at least one")
    return _check_setting(
        argument if argument.key in ("panel", RETRY) else _require_one_value(argument)
    )


def _check_setting(argument: Argument) -> Argument:
    """Check a key of the frame and the type of its values."""
    if argument.key == RETRY:  # `a` and `a,b` are short for `[a]` and `[a,b]`
        values = _flatten_lists(argument.values)
        text = f"{RETRY}=[{','.join(map(typed_text, values))}]"
        argument = Argument(RETRY, [values], False, text)
    values = [check_setting(argument.key, value) for value in argument.values]
    number = not argument.swept and type(values[0]) in (int, float)
    text = f"{argument.key}={typed_text(values[0])}" if number else argument.text
    return dataclasses.replace(argument, values=values, text=text)


def _require_one_value(argument: Argument) -> Argument:
    if argument.swept:
        values = typed_text(argument.values)
        raise UsageError(f"{argument.key}={values}: takes one value, no axis")
    return argument


def _flatten_lists(values: Iterable[Any]) -> list[Any]:
    """Return values with lists among them taken apart."""
    return [v for one in values for v in (one if isinstance(one, list) else [one])]


def _brief_values(values: Sequence[Any]) -> str:
    """Return values with commas between them, consecutive integers as `0..9`."""
    if len(values) > 2 and are_consecutive(values):
        return f"{values[0]}..{values[-1]}"
    return ",".join(typed_text(value).removesuffix(".0") for value in values)


class Composer:
    """Compose the configurations that a command line asks for.

    Parameters
    ----------
    request : Request
        The checked command line; its plain keys are applied, its axes are not.
    config_name : str
        The primary configuration.
    folders : sequence of Path
        Config folders beside our own, and experiments' files.
    """

    def __init__(
        self,
        request: Request,
        config_name: str = "config",
        folders: Sequence[Path] = (),
    ) -> None:
        self.request, self.folders = request, folders
        self.name = config_name.removesuffix(".yaml")
        version.setbase("1.3")
        search = create_config_search_path(str(registry.conf_dir()))
        for folder in folders:
            if folder.suffix == registry.SUFFIX:  # an experiment's own file
                _offer_file(folder)
                continue
            search.prepend("--config-dir", f"file://{folder.absolute()}", "schema")
        _offer_to_hydra(request)
        self.loader = ConfigLoaderImpl(search)

    def compose(
        self, choices: Sequence[str] = ()
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return one configuration as plain values, and the choices made.

        Parameters
        ----------
        choices : sequence of str
            Overrides of the config groups.

        Raises
        ------
        UsageError
            If a key that is swept is interpolated elsewhere: it would go stale.
        """
        axes = self.request.axes.values()
        fixed = [] if self.request.experiment else [a for a in axes if not a.swept]
        config = self._compose_with(
            [*choices, *(one.forced_prefix + one.text for one in fixed)]
        )
        chosen = dict(config.hydra.runtime.choices)
        del config["hydra"]
        swept = [one.key for one in axes if one.swept]
        texts = str(OmegaConf.to_container(config, resolve=False)) if swept else ""
        for key in swept:
            if "${" + key + "}" in texts:
                raise UsageError(
                    f"{key}: swept, yet the configuration refers to ${{{key}}}; "
                    "write the value out there"
                )
        if config.profiles:
            registry.check_choice("profile", config.profile, sorted(config.profiles))
        elif config.profile is not None:
            raise UsageError(
                f"profile={config.profile}: the experiment has no profiles"
            )
        resolved = OmegaConf.to_container(config, resolve=True)
        return cast(dict[str, Any], resolved), chosen

    def show(self, kind: str, package: str | None, resolve: bool) -> str:
        """Return the configuration of the first value of every axis as yaml.

        Parameters
        ----------
        kind : {"job", "hydra", "all"}
            Our part, Hydra's own, or both.
        package : str, optional
            Dotted name of the part to show.
        resolve : bool
            Whether to resolve interpolations.
        """
        request = self.request
        every = [*request.choices.values(), *request.axes.values()]
        config = self._compose_with([one.first_value for one in every])
        for key in list(config):
            if kind != "all" and (key == "hydra") != (kind == "hydra"):
                del config[key]
        part = config
        if package not in (None, "_global_"):
            part = OmegaConf.select(config, str(package))
        if part is None:
            raise UsageError(f"--package {package}: '{package}' not found in config")
        if not isinstance(part, Container):
            return str(part)
        head = f"# @package {package}\n" if package else ""
        return head + OmegaConf.to_yaml(part, resolve=resolve).rstrip()

    def _compose_with(self, overrides: Sequence[str]) -> DictConfig:
        """Return a configuration with the arguments that hold for the whole run."""
        name = self.request.experiment
        lines = [f"experiment={quote_text(name)}"] if name else []
        frame = self.request.frame.items()
        lines += [one.text for key, one in frame if key != "panel"]
        config = self.loader.load_configuration(
            self.name, [*lines, *overrides], RunMode.RUN, from_shell=False
        )
        OmegaConf.set_struct(config, False)
        OmegaConf.set_readonly(config.hydra, None)
        return config


def _offer_to_hydra(request: Request) -> None:
    """Put into Hydra's store what it composes beside the yaml files.

    That is the schema, and each file of a user's and each entry point as if it had a
    yaml.
    """
    store = ConfigStore.instance()
    store.store(name="schema", node=Frame)
    for group in AUTO:
        store.store(group=group, name="auto", node={})
    for group in FROM_FILES:
        choice = request.choices.get(group)
        files = {label_of(v): v for v in choice.values if is_file(v)} if choice else {}
        outside = entry_points() if group == ALGORITHM else {}
        for name, target in {**outside, **files}.items():
            package = f"{group}.{name}" if group == ALGORITHM else group
            node = {"_target_": target}
            store.store(group=group, name=name, package=package, node=node)


def _offer_file(path: Path) -> None:
    """Put an experiment's file into Hydra's store, as if it were in a config folder."""
    node = OmegaConf.load(path)
    store = ConfigStore.instance()
    store.store(group="experiment", name=path.stem, package="_global_", node=node)


Section = dict[str, Any]
WORDS = ("panel", "line", "name", "unit", "inherit", "extend")
"""Keys whose strings are names, in which a comma is a comma."""


def sweep_blocks(composer: Composer) -> tuple[list[Section], dict[str, Any]]:
    """Return the blocks of a sweep and the configuration of the first of them.

    One block per combination of dataset, objective and algorithm; within it every
    swept scalar is a list.
    """
    request = composer.request
    calibration = request.choices.get("calibration")
    blocks: list[Section] = []
    example: dict[str, Any] = {}
    for choices in _override_combinations(request):
        config, chosen = composer.compose(choices)
        example = example or config
        for name in _chosen_algorithms(config):
            groups = {group: (chosen[group], config[group]) for group in POSED}
            groups[ALGORITHM] = name, config[ALGORITHM][name]
            block: Section = {
                group: _part_with_changes(group, *of) for group, of in groups.items()
            }
            if config["dataset"].get("bounds") is None:
                # Nobody names bounds: the yaml's are taken where they are needed.
                block["dataset"]["bounds"] = "auto"
            if block[PROBLEM] == {"name": ERM}:
                del block[PROBLEM]
            block["budget"] = dict(config["budget"])
            block["calibration"] = config["calibration"]
            if calibration and len(calibration.values) > 1:
                block["calibration"] = calibration.values
            block["seed"] = config["seed"]
            for argument in request.axes.values():
                # What is typed is meant, where it is as in the yaml, too.
                if argument.swept or argument.key in ("dataset.task", "dataset.bounds"):
                    place_key(block, argument)
            blocks.append(block)
    names = _chosen_algorithms(example)
    for key in request.axes:
        first, *of = key.split(".")
        if first == ALGORITHM and of[0] not in names:
            raise UsageError(
                f"{key}: algorithm {of[0]} is not chosen; "
                f"write algorithm={','.join([*names, of[0]])}"
            )
    return blocks, example


def _override_combinations(request: Request) -> Iterator[list[str]]:
    """Yield the overrides of each combination; algorithms stand side by side."""
    names = {g: [*map(label_of, one.values)] for g, one in request.choices.items()}
    beside = []
    if ALGORITHM in names:
        beside = [f"{ALGORITHM}=[{','.join(names[ALGORITHM])}]"]
    if "calibration" in names:
        beside.append(f"calibration={names['calibration'][0]}")
    single = [[f"{g}={name}" for name in names[g]] for g in POSED if g in names]
    for combination in itertools.product(*single):
        yield [*combination, *beside]


def _chosen_algorithms(config: dict[str, Any]) -> list[str]:
    """Return the chosen algorithms; parameters alone do not choose one."""
    return [name for name, fields in config[ALGORITHM].items() if "_target_" in fields]


def _part_with_changes(group: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a choice by name with what differs from its yaml."""
    if is_file(fields.get("_target_")):
        name = fields["_target_"]
    usual = {} if name == "auto" else registry.read_choice(group, name)
    if group == "dataset":
        name = dataset_of_member(name, fields["name"])
    changed = {
        key: value
        for key, value in fields.items()
        if key not in ("name", "_target_") and (key not in usual or usual[key] != value)
    }
    return {"name": name, **changed}


def dataset_of_member(base: str, name: Any) -> str:
    """Return the name of a dataset of which `dataset.name` chooses one of many."""
    own = base.partition(":")[0]
    return own if name == own else f"{own}:{name}"


def place_key(block: Section, argument: Argument) -> None:
    """Set one key of a block; a parameter of another algorithm is left out."""
    value = argument.values if argument.swept else argument.values[0]
    first, *path = argument.key.split(".")
    if argument.key == "dataset.name":
        value = [
            dataset_of_member(block["dataset"]["name"], one) for one in argument.values
        ]
    if not path:
        block[first] = value
    elif first == ALGORITHM:
        if label_of(block[ALGORITHM]["name"]) == path[0]:
            block[ALGORITHM][path[1]] = value
    elif len(path) > 1 and argument.swept:
        raise UsageError(
            f"{argument.key}={typed_text(value)}: takes one value, no axis"
        )
    else:
        part = block.setdefault(first, {})
        for key in path[:-1]:
            part = part.setdefault(key, {})
            if not isinstance(part, dict):
                raise UsageError(
                    f"{argument.key}: no such key; {key} holds no further keys"
                )
        part[path[-1]] = value


def experiment_blocks(config: dict[str, Any], request: Request) -> list[Section]:
    """Return the blocks to run, with the command line's keys in each of them.

    Parameters
    ----------
    config : dict
        The composed configuration; its `blocks` are not changed.
    request : Request
        Its `panels` keep some of the blocks; a key of a block that it sets replaces
        that key in every block, a parameter in the blocks of its algorithm.

    Raises
    ------
    UsageError
        If there are no blocks, a panel does not exist, two blocks have the same labels
        (a figure could not tell their lines) or a key has no place.
    """
    blocks = copy.deepcopy(config["blocks"])
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        raise UsageError(
            f"experiment={request.experiment}: needs `blocks`, a list of mappings"
        )
    panels = list(dict.fromkeys(str(block.get("panel")) for block in blocks))
    for panel in request.panels:
        registry.check_choice("panel", panel, panels)
    expanded = [
        _expand_part("", block)
        for block in blocks
        if not request.panels or block.get("panel") in request.panels
    ]
    checked = schema.blocks_of(expanded)  # before their keys are replaced
    labels = Counter((b.panel, b.line) for b in checked if b.panel and b.line)
    for (panel, line), number in labels.items():
        if number > 1:
            raise UsageError(
                f"block {panel} / {line}: two blocks have this panel and line"
            )
    for argument in (*request.choices.values(), *request.axes.values()):
        _replace_key(expanded, argument)
    return expanded


def _expand_part(key: str, value: Any) -> Any:
    """Return a part of a block with the strings of the sweep grammar as lists."""
    if key.rpartition(".")[2] in WORDS:
        return value
    if isinstance(value, dict):
        return {k: _expand_part(f"{key}.{k}".lstrip("."), v) for k, v in value.items()}
    return expand_values(key, value)


def _replace_key(blocks: list[Section], argument: Argument) -> None:
    """Replace a key of the blocks that have it; in a tuned one, a parameter's axis."""
    key, value = argument.key, argument.values[0]
    first, *path = key.split(".")
    if key in ("dataset", ALGORITHM):
        raise UsageError(
            f"{key}={typed_text(value)}: an experiment's blocks name their own; use "
            "panel=NAME to run some of them"
        )
    if key in POSED and len(argument.values) > 1:
        raise UsageError(
            f"{key}={typed_text(argument.values)}: takes one value with an experiment"
        )
    if first == ALGORITHM:
        names = [str(_as_mapping(b.get(ALGORITHM)).get("name")) for b in blocks]
        pairs = zip(blocks, names, strict=True)
        blocks = [block for block, name in pairs if label_of(name) == path[0]]
        if not blocks:
            raise UsageError(f"{key}: no block of the experiment runs {path[0]}")
    for block in blocks:
        tune = block.get("tune") or {}
        if key == "seed" and tune:
            raise UsageError(
                f"seed={typed_text(value)}: {schema.block_label(block)} is tuned, its "
                "seeds are "
                "tune.seeds and tune.report"
            )
        if first in (*POSED, ALGORITHM):
            usual = {"constraint": "none", PROBLEM: ERM}.get(first, "auto")
            block[first] = _as_mapping(block.get(first, usual))
        axes = tune.get("axes", {})
        if first == ALGORITHM and path[-1] in axes:
            if argument.swept:
                axes[path[-1]] = argument.values
                continue
            del axes[path[-1]]
            tune["extend"] = [p for p in tune.get("extend") or [] if p != path[-1]]
        if key in POSED:
            block[first] = {"name": value}
        else:
            place_key(block, argument)


def _as_mapping(part: Any) -> dict[str, Any]:
    return dict(part) if isinstance(part, dict) else {"name": part}
