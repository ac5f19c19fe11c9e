"""The schema of an experiment's blocks, and the one sentence that a wrong key gets.

The dataclasses say which keys there are. Keys and shapes are checked here and nowhere
else, wherever they come from; values by the classes that take them.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dp_erm_bench.errors import UsageError, check_key, refused
from dp_erm_bench.experiment.frame import BudgetConfig, Keys, keys_of, says
from dp_erm_bench.experiment.tune_schema import (
    LABELS,
    TUNING,
    Tune,
    check_words,
    section_of,
    tune_of,
)
from dp_erm_bench.experiment.values import is_list
from dp_erm_bench.registry import ERM, POSED

OF_LINES = ("axes", "limits")
"""Parts of `tune` that are asked for by algorithm and parameter."""

GIVEN = ("dataset", "algorithm")
OF_TASK = (*LABELS, "task", "algorithm", "budget", "seed")


@dataclass(frozen=True)
class Block:
    """One product of axes: a list is an axis, whatever the key.

    `problem`, `dataset`, `loss`, `penalty`, `constraint` and `algorithm` are a name, a
    mapping with `name` and parameters, or a list of them. A block with a `task` has no
    objective; one with `tune` has its seeds there.
    """

    panel: str = says("", "the panel of a figure that shows it")
    line: str = says("", "what it is called there")
    dataset: Any = says(None, "a name, a mapping with `name` and keys, or a list")
    problem: Any = says(ERM, "the kind of the problem: erm, or mean, or a list")
    loss: Any = says("auto", "a name, a mapping, or a list; auto: the dataset's usual")
    penalty: Any = says("auto", "a name, a mapping, or a list; auto: the usual one")
    constraint: Any = says("none", "a name, a mapping, or a list")
    algorithm: Any = says(None, "a name, a mapping with `name` and parameters, a list")
    budget: Mapping[str, Any] = says({}, "epsilon, delta, adjacency")
    calibration: Any = says("certified", "how noise is fixed; a word or a list")
    seed: Any = says(0, "seeds of a sweep, each an integer >= 0")
    tune: Tune | None = says(None, "how parameters are chosen; null: all are run")
    task: Mapping[str, Any] | None = says(None, "what is done where it is no fit")


SECTIONS = {"": Block, "budget": BudgetConfig, **TUNING}


@functools.cache
def block_keys() -> Keys:
    """Return the field and the type of every key of a block, by dotted name."""
    keys = keys_of(SECTIONS)
    return {key: entry for key, entry in keys.items() if key not in SECTIONS}


def blocks_of(sections: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return checked blocks.

    Raises
    ------
    UsageError
        If a name, a list or a mapping stands where another must, or a key is unknown
        or missing. It names the block, the key, the value and what is allowed.
    """
    blocks: list[Block] = []
    for number, section in enumerate(sections, 1):
        try:
            blocks.append(_block(section))
        except UsageError as error:
            raise UsageError(f"{label(section, number)}: {error}") from None
    return blocks


def label(block: Any, number: int = 1) -> str:
    """Return the name of a block in messages: its labels, else its number."""
    section = block if isinstance(block, Mapping) else {}
    words = [section[key] for key in LABELS if isinstance(section.get(key), str)]
    return f"block {' / '.join(words) or number}"


def _block(section: Any) -> Block:
    fields = section_of("", section, Block)
    for key in fields if "task" in fields else ():
        check_key(key, OF_TASK, "a block with a task")
    for key in LABELS:
        if isinstance(fields.get(key), dict | list):
            raise refused(key, fields[key], "a word")
        fields[key] = str(fields.get(key, ""))
    for key in (*POSED, "algorithm"):
        if key in fields or (key in GIVEN and "task" not in fields):
            _check_part(key, fields.get(key))
    if "calibration" in fields:
        check_words("calibration", fields["calibration"])
    fields["budget"] = section_of("budget", fields.get("budget", {}), BudgetConfig)
    if "tune" in fields:
        if "seed" in fields:
            raise UsageError("seed: a block with `tune` has its seeds there")
        fields["tune"] = tune_of(fields["tune"], fields["panel"])
    return Block(**fields)


def _check_part(key: str, value: Any) -> None:
    choices = value if is_list(value) else [value]
    for choice in choices:
        name = choice.get("name") if isinstance(choice, Mapping) else choice
        names = name if is_list(name) else [name]
        if not names or not all(isinstance(one, str) for one in names):
            raise refused(key, value, "a name or a mapping with `name`")
        if isinstance(choice, Mapping) and "_target_" in choice:
            raise UsageError(f"{key}._target_: no such key; choose with `name`")
    if not choices:
        raise refused(key, value, "at least one choice")
