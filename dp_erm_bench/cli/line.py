"""Parse a command line into checked keys and values.

Keys are checked first, and then Hydra parses the values. So all misspelt keys are
reported together, before Hydra is imported.
"""

from __future__ import annotations

import functools
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.options import check_hydra, parser_of
from dp_erm_bench.cli.usage import AUTO, GROUPS
from dp_erm_bench.errors import UsageError, check_key, typed_text
from dp_erm_bench.experiment.schema import (
    MOST_TRIALS,
    OF_LINES,
    are_consecutive,
    block_keys,
    check_setting,
    frame_keys,
)
from dp_erm_bench.plugins.names import absolute_path, is_file, label_of
from dp_erm_bench.registry import ALGORITHM, CHOSEN, FROM_FILES, POSED

if typing.TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_FOREIGN = re.compile(r"(?<![^=,:(\[{])[^=,:()\[\]{}'\"]*[\^~][^=,:()\[\]{}'\"]*")
"""Pattern of a word with a character that Hydra's lexer refuses: 1/n^2, ~/mine.py."""

_HOLE = re.compile(r"(^|,)\s*(,|$)")

TUNE = "tune"
MULTIRUN = ("-m", "--multirun")
OF_OTHERS = {
    "seed": "tune.seeds are tried on to choose, tune.report to judge the choice",
    "experiment": "an experiment's blocks have their own `tune`; leave `tune` out",
}
"""Keys that `tune` does not accept, and what to use instead."""

LONGEST = 80  # number of characters beyond which a folder's name is cut


@dataclass(frozen=True)
class Argument:
    """One `key=value` of the command line.

    Parameters
    ----------
    key : str
        Dotted key or config group.
    values : list
        The values, without repetitions; a single value if the key is not swept.
    swept : bool
        Whether the typed value is an axis, such as `a,b` or `range(0,10)`.
    """

    key: str
    values: list[Any]
    swept: bool


def parse_argument(argument: str) -> Argument:
    """Return one parsed argument of the command line, read by Hydra's grammar.

    Raises
    ------
    UsageError
        If the argument is not `key=value`, or its axis is empty or cannot be
        enumerated.
    """
    key, _, text = argument.partition("=")
    override = _parse_with_hydra(text) or _parse_with_hydra(quote_refused(text))
    if override is None:
        hole = "a value is missing beside a comma"
        why = hole if _HOLE.search(text) else "not understood as key=value"
        raise UsageError(f"{argument}: {why}")
    swept = override.is_sweep_override()
    values = _axis_values(override, argument) if swept else [override.value()]
    if not values:
        raise UsageError(f"{argument}: the axis is empty; give at least one value")
    return Argument(key, values, swept)


@functools.cache
def _parse_with_hydra(text: str) -> Override | None:
    """Return the override that Hydra parses from a string; None if Hydra refuses it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(f"key={text}")
    except (HydraException, ValueError, RecursionError):
        return None


def quote_text(text: str) -> str:
    """Return a string quoted so that Hydra's grammar reads it literally."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


def quote_refused(text: str) -> str:
    """Return a value with quotes around the parts that Hydra's grammar refuses.

    Commas outside brackets and quotes still separate the values of an axis.
    """
    parts: list[str] = []
    for piece in text.split(","):
        if parts and _is_open(parts[-1]):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    quoted = []
    for part in [text] if _is_open(parts[-1]) else parts:
        forms = part, _FOREIGN.sub(r"'\g<0>'", part), quote_text(part)
        quoted.append(next(filter(_parse_with_hydra, forms), part))
    return ",".join(quoted)


def _is_open(text: str) -> bool:
    """Return whether a bracket or a quote in a string is not closed."""
    pairs = any(text.count(a) != text.count(b) for a, b in ("()", "[]", "{}"))
    return pairs or text.count("'") % 2 == 1 or text.count('"') % 2 == 1


def _axis_values(override: Override, argument: str) -> list[Any]:
    """Return the values of an axis.

    Raise UsageError for intervals and for ranges that are too long.
    """
    from hydra.core.override_parser.types import Glob, RangeSweep

    if override.is_interval_sweep():
        raise UsageError(
            f"{argument}: an interval has no list of values; use range(start,stop,step)"
        )
    sweep: Any = override.value()
    if isinstance(sweep, RangeSweep):
        length = abs(float(sweep.stop or 0) - float(sweep.start or 0))
        # The length of an infinite range may be nan, for which comparisons are false.
        if not (sweep.step and length <= MOST_TRIALS * abs(sweep.step)):
            raise UsageError(
                f"{argument}: has a step of zero or more than {MOST_TRIALS} values, "
                "which a run may not have"
            )
    if isinstance(sweep, Glob):
        group = argument.partition("=")[0]
        return sweep.filter(registry.names(group) if group in GROUPS else [])
    values = [*map(override._convert_value, override.sweep_iterator())]
    return values if argument.startswith(f"{TUNE}.") else unique_values(values)


def unique_values(values: list[Any]) -> list[Any]:
    """Return the values without repetitions, in order; 1, 1.0 and true are distinct."""
    return list({(type(value), repr(value)): value for value in values}.values())


_SWEEP = re.compile(r"^\s*\w+\(.*\)\s*$|,")


def expand_values(key: str, value: Any) -> Any:
    """Return the list of values that a sweep string describes, or the value itself.

    Parameters
    ----------
    key : str
        Key of the value, for the message.
    value : Any
        A value of an experiment's block, such as `"range(0,10)"`.
    """
    if not isinstance(value, str) or not _SWEEP.search(value):
        return value
    argument = parse_argument(f"{key}={value}")
    return argument.values if argument.swept else argument.values[0]


@dataclass
class Request:
    """A parsed command line.

    Parameters
    ----------
    experiment : Path or None
        File of the experiment whose blocks are run.
    choices : dict of str to Argument
        Choices of config groups, such as the algorithm.
    axes : dict of str to Argument
        Keys of the blocks: budget, seed, parameters of datasets and algorithms.
    frame : dict of str to Argument
        All other keys, of which only `panel` may be swept.
    tune : dict
        Keys of `tune`, as nested mappings.
    """

    experiment: Path | None = None
    choices: dict[str, Argument] = field(default_factory=dict)
    axes: dict[str, Argument] = field(default_factory=dict)
    frame: dict[str, Argument] = field(default_factory=dict)
    tune: dict[str, Any] = field(default_factory=dict)

    @property
    def panels(self) -> list[str]:
        """Names of the panels to run; empty for all panels."""
        given = [self.frame["panel"]] if "panel" in self.frame else []
        return [str(v) for one in given for v in one.values if v is not None]

    @property
    def changes(self) -> list[str]:
        """Changes to the experiment, sorted, in the form `key=value`.

        Profiles, `runner` and `mode` do not count as changes.
        """
        chosen = [self.frame["panel"]] if self.panels else []
        every = [*chosen, *self.choices.values(), *self.axes.values()]
        changes = sorted(f"{one.key}={_brief_values(one.values)}" for one in every)
        return changes if self.experiment else []

    @property
    def folder(self) -> str:
        """Default name of the results folder, which includes changes to an experiment.

        The name does not depend on the order of changes, so the same command finds the
        folder again. A long name is cut and ends with a digest.
        """
        if not self.experiment:
            return "sweep"
        if not self.changes:
            return self.experiment.stem
        whole = "+".join([self.experiment.stem, *self.changes])
        name = re.sub(r"[^\w.,=+-]", "-", whole, flags=re.ASCII)
        if name == whole and len(name) <= LONGEST:
            return name
        return f"{name[:LONGEST]}-{sha256(whole.encode()).hexdigest()[:8]}"


def _brief_values(values: Sequence[Any]) -> str:
    """Return values as a string with commas, or as `0..9` if consecutive."""
    values = _flatten_lists(values)
    if len(values) > 2 and are_consecutive(values):
        return f"{values[0]}..{values[-1]}"
    return ",".join(typed_text(value).removesuffix(".0") for value in values)


def _flatten_lists(values: Iterable[Any]) -> list[Any]:
    """Return values in one flat list."""
    return [v for one in values for v in (one if isinstance(one, list) else [one])]


def read_request(
    arguments: Sequence[str], folders: Sequence[Path] = (), tunes: bool = False
) -> Request:
    """Parse and check the arguments of a command line.

    Parameters
    ----------
    arguments : sequence of str
        All arguments of the form `key=value`.
    folders : sequence of Path
        Further config folders, which may contain a user's experiments.
    tunes : bool
        Whether the command is `tune`.

    Raises
    ------
    UsageError
        For an unknown key or name, a wrong type, or an axis that is not allowed. All
        misspelt keys are reported at once.
    """
    request = Request()
    _check_each(functools.partial(_check_typed_key, tunes=tunes), arguments)
    _check_each(functools.partial(_read_argument, request, folders), arguments)
    for key, number in Counter(one.partition("=")[0] for one in arguments).items():
        if number > 1:
            raise UsageError(f"{key}: given twice; write the values as one list")
    for key, one in request.axes.items():
        under = [other for other in request.axes if other.startswith(f"{key}.")]
        if under and not isinstance(one.values[0], dict):
            given = f"{key}={typed_text(one.values[0])}"
            raise UsageError(f"{given}: {under[0]} replaces it; leave one of them out")
    for key in ("panel", "profile")[: 2 - tunes]:
        if key in request.frame and not request.experiment:
            raise UsageError(f"{key}: belongs to an experiment; add experiment=NAME")
    return request


def _check_each(check: Callable[[str], None], arguments: Sequence[str]) -> None:
    """Check every argument, and raise one UsageError with all messages."""
    wrong = []
    for argument in arguments:
        try:
            check(argument)
        except UsageError as error:
            wrong.append(str(error))
    if wrong:
        raise UsageError("; ".join(dict.fromkeys(wrong)))


def _check_typed_key(argument: str, tunes: bool) -> None:
    """Raise UsageError for an argument whose key does not exist."""
    check_hydra(argument)
    key, sign, _ = argument.partition("=")
    first, _, rest = key.partition(".")
    last = rest.rpartition(".")[2]
    if key[:1] in ("+", "~"):
        raise UsageError(f"{argument}: keys are only set, as key=value, without + or ~")
    if not (key and sign):
        raise UsageError(f"{argument}: not understood as key=value, as in seed=1")
    if tunes and key in OF_OTHERS:
        raise UsageError(f"{argument}: {OF_OTHERS[key]}")
    if tunes and first == TUNE:
        _check_tune_key(key)
    elif last == "_target_" or (last == "name" and key != "dataset.name"):
        raise UsageError(f"{key}: no such key; choose with {first}=NAME")
    elif first == ALGORITHM and rest and rest.count(".") != 1:
        raise UsageError(f"{key}: write algorithm.NAME.PARAMETER")
    elif first == ALGORITHM and last == registry.TUNE:
        label = rest.partition(".")[0]
        raise UsageError(f"{key}: is no parameter; `tune` has tune.axes.{label}")
    elif rest and first in registry.names(ALGORITHM):
        raise UsageError(f"{key}: no such key; did you mean {ALGORITHM}.{key}?")
    elif not (rest and first in (*POSED, ALGORITHM)) and key not in (
        *(*CHOSEN, "runner", "experiment"),
        *frame_keys(),
    ):
        check_setting(key, None)


def _check_tune_key(key: str) -> None:
    """Raise UsageError for a key that `tune` does not have."""
    name, _, path = key.removeprefix(f"{TUNE}.").partition(".")
    lines = {one: f"{TUNE}.{one}.ALGORITHM.PARAMETER" for one in OF_LINES}
    if name in lines and path.count(".") != 1:
        raise UsageError(f"{key}: write {lines[name]}")
    if name not in lines and not key.startswith(f"{TUNE}.search.ratio"):
        own = [one for one in block_keys() if one.startswith(f"{TUNE}.")]
        apart = (*OF_LINES, "aside")
        plain = [one for one in own if one.split(".")[1] not in apart]
        check_key(key, [*plain, f"{TUNE}.search", *lines.values()])


def _read_argument(request: Request, folders: Sequence[Path], argument: str) -> None:
    """Parse an argument, check its values, and add it to a request."""
    key, _, typed = argument.partition("=")
    first, _, rest = key.partition(".")
    if key == "experiment":  # a path is not always valid in Hydra's grammar
        request.experiment = find_experiment(typed, folders)
        return
    one = parse_argument(argument)
    if key in ("name", "results_dir") and isinstance(one.values[0], int | float):
        one = Argument(key, [typed], False)  # kept as text: a folder may be called 2025
    if first == TUNE:
        value = one.values if one.swept else one.values[0]
        if rest.startswith("axes.") and not isinstance(value, list | dict):
            value = [value]
        set_nested(request.tune, rest.split("."), value, key)
    elif key in CHOSEN:
        values = _check_choices(key, one.values)
        request.choices[key] = Argument(key, values, len(values) > 1)
    elif first in (*POSED, ALGORITHM):
        request.axes[key] = one
    elif key == "runner":
        registry.check_choice(key, typed, registry.names(key))
        request.frame[key] = one
    elif key == "seed" or first == "budget":
        request.axes[key] = _check_values(one)
    else:
        request.frame[key] = _check_values(one)


def _check_values(one: Argument) -> Argument:
    """Return an argument whose values have the type of their key."""
    hint: Any = frame_keys()[one.key][1]
    many = typing.get_origin(hint) is list
    values = _flatten_lists(one.values) if many or one.key == "panel" else one.values
    if one.key == "panel" and not values:
        raise UsageError("panel=[]: the axis is empty; name at least one")
    checked = [check_setting(one.key, v) for v in ([values] if many else values)]
    if len(checked) > 1 and one.key.split(".")[0] not in ("seed", "budget", "panel"):
        raise UsageError(f"{one.key}={typed_text(values)}: takes one value, no axis")
    return Argument(one.key, checked, one.swept and not many)


def _check_choices(group: str, values: Iterable[Any]) -> list[str]:
    """Return the checked choices of a group, with absolute paths for files.

    A list `[a,b]` counts as `a,b`.

    Raises
    ------
    UsageError
        If there is no such choice, a file cannot be read, or two choices have the same
        name.
    """
    names = [*(["auto"] if group in AUTO else []), *registry.names(group)]
    found: dict[str, str] = {}
    for value in map(typed_text, _flatten_lists(values)):
        if group in FROM_FILES and is_file(value):
            value = absolute_path(value)
            registry.pin_choice(value, group)
        elif group == "dataset" and "." in value:
            how = f"write dataset=file dataset.path={value}"
            raise UsageError(f"dataset={value}: no such choice; {how}")
        else:
            registry.check_choice(group, value, names)
        other = found.setdefault(label_of(value), value)
        if other != value:
            raise UsageError(
                f"{group}={value}: {other} is called {label_of(value)}, too; rename one"
            )
    if not found:
        raise UsageError(f"{group}=[]: the axis is empty; name at least one")
    return [*found.values()]


def set_nested(part: dict[str, Any], path: Sequence[str], value: Any, key: str) -> None:
    """Set a value in nested mappings, creating missing inner mappings.

    Parameters
    ----------
    part : dict
        The outermost mapping, which is changed.
    path : sequence of str
        Keys that lead to the value.
    value : Any
        The value to set.
    key : str
        Dotted key, for the message.

    Raises
    ------
    UsageError
        If the value of a key on the path is not a mapping.
    """
    for name in path[:-1]:
        part = part.setdefault(name, {})
        if not isinstance(part, dict):
            raise UsageError(f"{key}: no such key; {name} holds no further keys")
    part[path[-1]] = value


def experiment_files(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the files of all experiments by name, first those of the package."""
    homes = (*folders, registry.conf_dir())
    paths = [p for one in homes for p in (one / "experiment").glob("*.yaml")]
    return {path.stem: path for path in paths}


def find_experiment(typed: str, folders: Sequence[Path]) -> Path | None:
    """Return the file of an experiment, given by its path or by its name.

    The result is None for `null`.

    Raises
    ------
    UsageError
        If there is no such file, or an experiment of the package has the same name.
    """
    name, files = typed.strip("'\""), experiment_files(folders)
    path = Path(name).expanduser()
    if typed == "null":
        return None
    if path.suffix != registry.SUFFIX:
        registry.check_choice("experiment", name, sorted(files))
        return files[name]
    if not path.is_file():
        raise UsageError(f"experiment={typed}: no such file")
    if path.stem in registry.built_in("experiment"):
        taken = f"an experiment of the package is called {path.stem}"
        raise UsageError(f"experiment={typed}: {taken}, rename the file")
    return path


def start_run(command: str, arguments: Sequence[str]) -> int:
    """Run the command `run` or `tune`, and return the exit code.

    Raises
    ------
    UsageError
        For wrong arguments, before any trial runs.
    """
    options, words = parser_of(command).parse_known_args(arguments)
    for word in words:
        if word.startswith("-"):
            check_hydra(word)
            raise UsageError(f"{word}: no such option; see dp-erm-bench --help")
    for name, value in vars(options).items():
        if value == "":
            raise UsageError(f"--{name.replace('_', '-')}=: needs a value")
        if name in ("package", "resolve") and value and not options.cfg:
            raise UsageError(f"--{name}: belongs to --cfg job|hydra|all, which shows")
    folders = [options.config_dir] if options.config_dir else []
    request = read_request(words, folders, command == TUNE)
    from dp_erm_bench.cli.sweep import Composer, run_blocks  # which imports Hydra

    composer = Composer(request, options.config_name or "config", folders)
    if options.cfg:
        print(composer.show(options.cfg, options.package, options.resolve))
        return 0
    typed = [word for word in arguments if word not in MULTIRUN]
    return run_blocks(composer, ["dp-erm-bench", *[TUNE][: command == TUNE], *typed])
