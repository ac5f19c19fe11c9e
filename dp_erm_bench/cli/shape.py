"""The shape of an experiment's blocks; the runner checks the values in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dp_erm_bench.cli.values import check_key, shown
from dp_erm_bench.config import MOST_TRIALS
from dp_erm_bench.datasets.spec import LISTS
from dp_erm_bench.errors import UsageError

PARTS = ("dataset", "loss", "penalty", "constraint", "algorithm")
GIVEN = ("dataset", "algorithm")
LABELS = ("panel", "line")
UNCOUNTED = (*LABELS, "tune", "task")
SECTIONS = {
    "": (*LABELS, *PARTS, "budget", "calibration", "seed", "tune", "task"),
    "budget": ("epsilon", "delta", "adjacency"),
    "tune": ("axes", "seeds", "refine", "extend", "report", "inherit"),
    "tune.refine": ("best", "seeds"),
    "tune.inherit": (*LABELS, "parameters"),
}
Block = Mapping[str, Any]


def check_shapes(blocks: Sequence[Block]) -> None:
    """Refuse blocks in which a name, a list or a mapping stands where another must.

    Raises
    ------
    UsageError
        Naming the block, the key, the value and what is allowed.
    """
    labels: set[tuple[str, ...]] = set()
    for number, block in enumerate(blocks, 1):
        where = label(block, number)
        try:
            _check(block)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        found = tuple(str(block.get(key)) for key in LABELS if block.get(key))
        if len(found) == len(LABELS) and found in labels:
            raise UsageError(f"{where}: two blocks have this panel and line")
        labels.add(found)


def check_size(blocks: Sequence[Block]) -> None:
    """Refuse blocks that ask for more trials than a run may have."""
    trials = sum(map(_trials, blocks))
    if trials > MOST_TRIALS:
        raise UsageError(
            f"the axes ask for {trials} trials: at most {MOST_TRIALS} in one run; "
            "leave values out, or split the sweep"
        )


def label(block: Block, number: int = 1) -> str:
    """Return how a sentence names a block: by its labels, else by its number."""
    words = [str(block[key]) for key in LABELS if isinstance(block.get(key), str)]
    return f"block {' / '.join(words) or number}"


def _check(block: Block) -> None:
    for section, allowed in SECTIONS.items():
        for key in _section(block, section):
            check_key(f"{section}.{key}".lstrip("."), _full(section, allowed))
    for key in LABELS:
        if isinstance(block.get(key), dict | list):
            raise _refused(key, block[key], "a word")
    for key in PARTS:
        if key in block or block.get("task") is None:
            _check_part(key, block.get(key))
    _check_words("calibration", block.get("calibration"))
    if block.get("tune") is not None:
        _check_tune(block["tune"])


def _section(block: Block, dotted: str) -> Mapping[str, Any]:
    """Return a section of a block, empty if it is not given."""
    found: Any = block
    for key in filter(None, dotted.split(".")):
        found = found.get(key)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise _refused(dotted, found, "a mapping")
    return dict(found)


def _full(section: str, keys: Iterable[str]) -> list[str]:
    return [f"{section}.{key}".lstrip(".") for key in keys]


def _check_part(key: str, value: Any) -> None:
    if value is None and key not in GIVEN:
        return
    choices = value if isinstance(value, list) else [value]
    for choice in choices:
        name = choice.get("name") if isinstance(choice, dict) else choice
        names = name if isinstance(name, list) else [name]
        if not names or not all(isinstance(one, str) for one in names):
            raise _refused(key, value, "a name or a mapping with `name`")
        if isinstance(choice, dict) and "_target_" in choice:
            raise UsageError(f"{key}._target_: no such key; choose with `name`")
    if not choices:
        raise _refused(key, value, "at least one choice")


def _check_words(key: str, value: Any) -> None:
    items = value if isinstance(value, list) else [value]
    if value is not None and not all(isinstance(item, str) for item in items):
        raise _refused(key, value, "a word or a list of words")
    if not items:
        raise _refused(key, value, "at least one word")


def _check_tune(tune: Mapping[str, Any]) -> None:
    axes, inherit = tune.get("axes"), tune.get("inherit") or {}
    if not isinstance(axes, dict):
        raise _refused("tune.axes", axes, "a mapping from parameters to values")
    if not axes and not inherit:
        raise _refused("tune.axes", axes, "at least one parameter with its values")
    for key in LABELS:
        if key in inherit and not isinstance(inherit[key], str):
            raise _refused(f"tune.inherit.{key}", inherit[key], "a word")
    _check_words("tune.inherit.parameters", inherit.get("parameters"))
    extend = tune.get("extend")
    if extend is not None and not isinstance(extend, list):
        raise _refused("tune.extend", extend, "a list of axes")
    for name in extend or []:
        if not isinstance(name, str) or name not in axes:
            raise _refused("tune.extend", name, f"an axis ({', '.join(axes)})")
        if not all(_is_number(value) for value in _values(axes[name])):
            raise _refused("tune.extend", name, "an axis of numbers")


def _values(axis: Any) -> list[Any]:
    found = axis.get("values") if isinstance(axis, dict) else axis
    return found if isinstance(found, list) else [found]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _trials(block: Block) -> int:
    """Return how many trials a block asks for; an upper bound where they repeat."""
    cases = math.prod(_count(v) for k, v in block.items() if k not in UNCOUNTED)
    tune = block.get("tune")
    if not isinstance(tune, dict):
        return cases
    seeds, report = (len(_values(tune.get(key))) for key in ("seeds", "report"))
    return cases * (_count(tune.get("axes")) * seeds + report)


def _count(value: Any) -> int:
    """Return how many points a choice, or the parameters of one, stand for."""
    if isinstance(value, dict):
        return math.prod(
            len(_values(axis)) or 1 for key, axis in value.items() if key not in LISTS
        )
    return sum(map(_count, value)) if isinstance(value, list) else 1


def _refused(key: str, value: Any, allowed: str) -> UsageError:
    return UsageError(f"{key}={shown(value)}: must be {allowed}")
