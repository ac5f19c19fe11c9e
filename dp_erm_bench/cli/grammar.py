"""Hydra's override grammar: what one `key=value` asks for, as plain lists."""

import functools
import os
import re
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser import types
from hydra.core.override_parser.overrides_parser import (
    OverridesParser,
    create_functions,
)
from hydra.errors import HydraException

from dp_erm_bench import registry
from dp_erm_bench.cli.main import GROUPS
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.experiment.schema import MOST_TRIALS
from dp_erm_bench.plugins.names import label
from dp_erm_bench.registry import ALGORITHM, FROM_FILES, POSED

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
    def forced(self) -> str:
        """The prefix that adds a key by force: some keys of parts are in no yaml.

        The expansion checks them.
        """
        first, dot, _ = self.key.partition(".")
        return "++" if dot and first in (*POSED, ALGORITHM) else ""

    @property
    def first(self) -> str:
        """The argument with its first value only, for Hydra."""
        if self.key == ALGORITHM:
            chosen = self.values[:1] if self.swept else self.values
            return f"{ALGORITHM}=[{','.join(map(label, chosen))}]"
        if "." in self.key and not self.swept:
            return self.forced + self.text
        value = self.values[0]
        value = label(value) if self.key in FROM_FILES else value
        text = quoted(value) if isinstance(value, str) else shown(value)
        return f"{self.forced}{self.key}={text}"


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


def parse(argument: str) -> Argument:
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
    text = _worded(argument)
    override = _understood(text)
    if not isinstance(override, types.Override):
        raise UsageError(f"{argument}: not understood as key=value ({override})")
    if override.type is not types.OverrideType.CHANGE:
        raise UsageError(f"{argument}: keys are only set, as key=value, without + or ~")
    if override.package is not None or not override.key_or_group:
        raise UsageError(f"{argument}: write key=value with a dotted key")
    swept = override.is_sweep_override()
    values = _swept(override, argument) if swept else [_plain(override.value())]
    if not values:
        raise UsageError(f"{argument}: the axis is empty; give at least one value")
    return Argument(override.key_or_group, values, swept, text)


def quoted(text: str) -> str:
    """Return a text as Hydra's grammar and its interpolation read it as itself."""
    literal = _INTERPOLATION.sub(r"\1\1\\${", text)
    return types.QuotedString(literal, types.Quote.single).with_quotes()


def _worded(argument: str) -> str:
    """Return an argument with quotes where Hydra needs them."""
    text = _POWER.sub(r"'\1'", argument)
    if text.startswith("algorithm="):
        text = _HOME.sub(r"'\g<0>'", text)
    key, _, value = argument.partition("=")
    if key.partition(".")[0] not in OWN_WORDS or not value:
        return text
    parts = _parts(value)
    forced = [_is_name(key, part) for part in parts]
    if not any(forced) and isinstance(_understood(text), types.Override):
        return text
    worded = [
        quoted(part) if force or not _is_value(part) else part
        for part, force in zip(parts, forced, strict=True)
    ]
    return f"{key}={','.join(worded)}"


def _is_name(key: str, text: str) -> bool:
    """Tell whether a text names a file or an experiment, whatever it looks like."""
    if key == "experiment":
        plain = text[:1] not in "'\"" and text != "null"
        return plain and not _calls().match(text)
    path = os.path.expanduser(text)
    return key in PATHS and "\0" not in path and os.path.exists(path)


def _is_value(text: str) -> bool:
    """Tell whether Hydra's grammar has a text, or refuses it as a call of its own."""
    called = _calls().match(text) is not None
    return called or isinstance(_understood(f"key={text}"), types.Override)


def _parts(value: str) -> list[str]:
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
def _calls() -> re.Pattern[str]:
    """Return what a call of one of Hydra's functions looks like."""
    names = "|".join(create_functions().functions)
    return re.compile(rf"\s*(?:{names})\s*\(.*\)\s*$", re.DOTALL)


def _understood(text: str) -> types.Override | str:
    """Return what Hydra's parser makes of a text, or the first line of its refusal."""
    try:
        return _parser().parse_override(text)
    except (HydraException, ValueError, RecursionError) as error:
        return next(iter(str(error).splitlines()), "")


def expand(key: str, value: Any) -> Any:
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
    argument = parse(f"{key}={value}")
    return argument.values if argument.swept else argument.values[0]


@functools.cache
def _parser() -> OverridesParser:
    return OverridesParser.create()


def _swept(override: types.Override, argument: str) -> list[Any]:
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
        return unique([_plain(value) for value in override.sweep_iterator()])
    except (HydraException, ValueError) as error:
        raise UsageError(f"{argument}: {error}") from None


def unique(values: list[Any]) -> list[Any]:
    """Return the values without repetitions, in order; 1, 1.0 and true differ."""
    return list({(type(value), repr(value)): value for value in values}.values())


def _plain(value: Any) -> Any:
    if isinstance(value, types.QuotedString):
        value = value.text
    if isinstance(value, str):
        return _LITERAL.sub(lambda one: one[1][: len(one[1]) // 2] + "${", value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value
