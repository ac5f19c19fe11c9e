"""Hydra's override grammar: what one `key=value` asks for, as plain lists."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    Glob,
    Override,
    OverrideType,
    QuotedString,
    RangeSweep,
)
from hydra.errors import HydraException

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.frame import MOST_TRIALS
from dp_erm_bench.registry import CHOSEN

# Hydra's lexer knows no '^': powers of the number of records are quoted for it.
_POWER = re.compile(r"(?<!['\"\w.])(\d[\d.]*/n\^\d[\d.]*)(?!['\"\w.])")
# Nor does it know '~', which starts the path of a solver's file.
_HOME = re.compile(r"(?<=[=,\[])~[^,\]\s]*")
_SWEEP = re.compile(r"^\s*\w+\(.*\)\s*$|,")


GROUPS = (*CHOSEN, "experiment", "runner")


@dataclass(frozen=True)
class Given:
    """One `key=value` as the user gave it.

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


def parse(argument: str) -> Given:
    """Read one argument of the command line.

    Raises
    ------
    UsageError
        If the argument is no `key=value`, adds or deletes a key, or asks for an
        axis that cannot be enumerated or is empty.
    """
    text = _POWER.sub(r"'\1'", argument)
    if text.startswith("algorithm="):
        text = _HOME.sub(r"'\g<0>'", text)
    override = _override(text, argument)
    if override.type is not OverrideType.CHANGE:
        raise UsageError(f"{argument}: keys are only set, as key=value, without + or ~")
    if override.package is not None or not override.key_or_group:
        raise UsageError(f"{argument}: write key=value with a dotted key")
    values = _values(override, argument)
    if not values:
        raise UsageError(f"{argument}: the axis is empty; give at least one value")
    return Given(override.key_or_group, values, override.is_sweep_override(), text)


def expand(key: str, value: Any) -> Any:
    """Return the list that a string of the sweep grammar stands for, else the value.

    Parameters
    ----------
    key : str
        Where the value stands, for the sentence.
    value : Any
        A value of an experiment's block, such as `"range(0,10)"`.
    """
    if not isinstance(value, str) or not _SWEEP.search(value):
        return value
    given = parse(f"{key}={value}")
    return given.values if given.swept else given.values[0]


@functools.cache
def _parser() -> OverridesParser:
    return OverridesParser.create()


def _override(text: str, argument: str) -> Override:
    try:
        return _parser().parse_override(text)
    except (HydraException, ValueError, RecursionError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise UsageError(
            f"{argument}: not understood as key=value ({reason})"
        ) from None


def _values(override: Override, argument: str) -> list[Any]:
    if not override.is_sweep_override():
        return [_plain(override.value())]
    if override.is_interval_sweep():
        raise UsageError(
            f"{argument}: an interval has no list of values; use range(start,stop,step)"
        )
    if isinstance(override._value, RangeSweep):
        _check_range(override._value, argument)
    if isinstance(override._value, Glob):
        group = override.key_or_group
        known = registry.names(group) if group in GROUPS else []
        return list(override._value.filter(known))
    try:
        return unique([_plain(value) for value in override.sweep_iterator()])
    except (HydraException, ValueError) as error:
        raise UsageError(f"{argument}: {error}") from None


def _check_range(sweep: RangeSweep, argument: str) -> None:
    """Refuse a range of more values than a run may have, before it is spelled out."""
    start, stop, step = (float(x or 0) for x in (sweep.start, sweep.stop, sweep.step))
    # A range that does not end compares false with any number.
    if step and not abs(stop - start) / abs(step) <= MOST_TRIALS:
        raise UsageError(
            f"{argument}: has more than {MOST_TRIALS} values, which a run may not have"
        )


def unique(values: list[Any]) -> list[Any]:
    """Return the values without repetitions, in order; 1, 1.0 and true differ."""
    return list({(type(value), repr(value)): value for value in values}.values())


def _plain(value: Any) -> Any:
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value
