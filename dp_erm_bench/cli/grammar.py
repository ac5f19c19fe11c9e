"""Hydra's override grammar: what one `key=value` asks for, as plain lists."""

import functools
import re
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser import types
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from dp_erm_bench import registry
from dp_erm_bench.cli.main import GROUPS
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.experiment.frame import MOST_TRIALS
from dp_erm_bench.plugins.names import label
from dp_erm_bench.registry import ALGORITHM, FROM_FILES, POSED

# Hydra's lexer knows no '^': powers of the number of records are quoted for it.
_POWER = re.compile(r"(?<!['\"\w.])(\d[\d.]*/n\^\d[\d.]*)(?!['\"\w.])")
# Nor does it know '~', which starts the path of a solver's file.
_HOME = re.compile(r"(?<=[=,\[])~[^,\]\s]*")
_SWEEP = re.compile(r"^\s*\w+\(.*\)\s*$|,")

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
        text = shown(value)
        if isinstance(value, str) and not re.fullmatch(r"[\w.\-]+", value):
            text = "'" + value.replace("'", "\\'") + "'"
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

    Raises
    ------
    UsageError
        If the argument is no `key=value`, adds or deletes a key, or asks for an
        axis that cannot be enumerated or is empty.
    """
    check_hydra(argument)
    text = _POWER.sub(r"'\1'", argument)
    if text.startswith("algorithm="):
        text = _HOME.sub(r"'\g<0>'", text)
    try:
        override = _parser().parse_override(text)
    except (HydraException, ValueError, RecursionError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise UsageError(
            f"{argument}: not understood as key=value ({reason})"
        ) from None
    if override.type is not types.OverrideType.CHANGE:
        raise UsageError(f"{argument}: keys are only set, as key=value, without + or ~")
    if override.package is not None or not override.key_or_group:
        raise UsageError(f"{argument}: write key=value with a dotted key")
    swept = override.is_sweep_override()
    values = _swept(override, argument) if swept else [_plain(override.value())]
    if not values:
        raise UsageError(f"{argument}: the axis is empty; give at least one value")
    return Argument(override.key_or_group, values, swept, text)


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
        return value.text
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value
