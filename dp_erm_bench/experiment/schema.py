"""The schema of an experiment's blocks, and the one sentence that a wrong key gets.

The dataclasses say which keys there are. Keys and shapes are checked here and nowhere
else, wherever they come from; values by the classes that take them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dp_erm_bench.errors import UsageError, check_key, refused
from dp_erm_bench.experiment.frame import BudgetConfig
from dp_erm_bench.experiment.values import axis_values, is_list, seeds_of
from dp_erm_bench.registry import PARTS

LABELS = ("panel", "line")
GIVEN = ("dataset", "algorithm")
OF_TASK = (*LABELS, "task", "algorithm", "budget", "seed")


@dataclass(frozen=True)
class Inherit:
    """Parameters to take from the choice of another line."""

    panel: str
    line: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Refine:
    """More seeds for the best settings: for how many, and which."""

    best: int = 0
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tune:
    """How a line's parameters are chosen.

    Attributes
    ----------
    axes : mapping
        Values per parameter, or a mapping with `unit` and `values`.
    seeds : tuple of int
        Seeds on which every setting is tried.
    report : tuple of int
        Fresh seeds for the setting chosen.
    refine : Refine
        More seeds for the best.
    extend : tuple of str
        Axes that grow upwards while the best value is the topmost.
    inherit : Inherit or None
        Parameters taken from another line.
    """

    axes: Mapping[str, Any]
    seeds: tuple[int, ...]
    report: tuple[int, ...]
    refine: Refine = Refine()
    extend: tuple[str, ...] = ()
    inherit: Inherit | None = None


@dataclass(frozen=True)
class Block:
    """One product of axes: a list is an axis, whatever the key.

    `dataset`, `loss`, `penalty`, `constraint` and `algorithm` are a name, a mapping
    with `name` and parameters, or a list of them. A block with a `task` has no
    objective; one with `tune` has its seeds there.
    """

    panel: str = ""
    line: str = ""
    dataset: Any = None
    loss: Any = "auto"
    penalty: Any = "auto"
    constraint: Any = "none"
    algorithm: Any = None
    budget: Mapping[str, Any] = field(default_factory=dict)
    calibration: Any = "certified"
    seed: Any = 0
    tune: Tune | None = None
    task: Mapping[str, Any] | None = None


SECTIONS = {
    "": Block,
    "budget": BudgetConfig,
    "tune": Tune,
    "tune.refine": Refine,
    "tune.inherit": Inherit,
}


def blocks_of(blocks: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return checked blocks.

    Raises
    ------
    UsageError
        If a name, a list or a mapping stands where another must, or a key is unknown
        or missing. It names the block, the key, the value and what is allowed.
    """
    found: list[Block] = []
    for number, given in enumerate(blocks, 1):
        try:
            found.append(_block(given))
        except UsageError as error:
            raise UsageError(f"{label(given, number)}: {error}") from None
    return found


def label(block: Any, number: int = 1) -> str:
    """Return how a sentence names a block: by its labels, else by its number."""
    given = block if isinstance(block, Mapping) else {}
    words = [str(given[key]) for key in LABELS if isinstance(given.get(key), str)]
    return f"block {' / '.join(words) or number}"


def _block(given: Any) -> Block:
    fields = _section("", given)
    if "task" in fields:
        for key in fields:
            check_key(key, OF_TASK, "a block with a task")
    for key in LABELS:
        if isinstance(fields.get(key), dict | list):
            raise refused(key, fields[key], "a word")
        fields[key] = str(fields.get(key, ""))
    for key in (*PARTS, "algorithm"):
        if key in fields or (key in GIVEN and "task" not in fields):
            _check_part(key, fields.get(key))
    _check_words("calibration", fields.get("calibration"))
    fields["budget"] = _section("budget", fields.get("budget", {}))
    if "tune" in fields:
        if "seed" in fields:
            raise UsageError("seed: a block with `tune` has its seeds there")
        fields["tune"] = _tune(fields["tune"], fields["panel"])
    return Block(**fields)


def _section(dotted: str, given: Any) -> dict[str, Any]:
    """Return the keys of a section that are given.

    Within `tune` null stands for the default: profiles switch keys off by it.
    """
    if not isinstance(given, Mapping):
        raise refused(dotted or "block", given, "a mapping")
    prefix = f"{dotted}." if dotted else ""
    fields = dataclasses.fields(SECTIONS[dotted])
    defaults = {f"{prefix}{field.name}": field.default for field in fields}
    for key, value in given.items():
        check_key(f"{prefix}{key}", list(defaults))
        needed = defaults[f"{prefix}{key}"] is not None and dotted in ("", "budget")
        if value is None and needed:
            raise refused(f"{prefix}{key}", value, "a value, or left out")
    return {key: value for key, value in given.items() if value is not None}


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


def _check_words(key: str, value: Any) -> None:
    items = value if is_list(value) else [value]
    if value is not None and not all(isinstance(item, str) for item in items):
        raise refused(key, value, "a word or a list of words")
    if not items:
        raise refused(key, value, "at least one word")


def _tune(section: Any, panel: str) -> Tune:
    given = _section("tune", section)
    axes, inherit = given.get("axes"), _inherit(given.get("inherit"), panel)
    if not isinstance(axes, Mapping):
        raise refused("tune.axes", axes, "a mapping from parameters to values")
    if not axes and inherit is None:
        raise refused("tune.axes", axes, "at least one parameter with its values")
    for key in ("seeds", "report"):
        if key not in given:
            raise UsageError(f"tune.{key}: must be given")
    tune = Tune(
        axes=dict(axes),
        seeds=seeds_of("tune.seeds", given["seeds"]),
        report=seeds_of("tune.report", given["report"]),
        refine=_refine(given.get("refine")),
        extend=_extend(given.get("extend", []), axes),
        inherit=inherit,
    )
    # A choice must not be reported on what it was made on.
    _check_disjoint("tune.report", tune.report, tune.seeds + tune.refine.seeds)
    _check_disjoint("tune.refine.seeds", tune.refine.seeds, tune.seeds)
    return tune


def _refine(section: Any) -> Refine:
    if section is None:
        return Refine()
    given = _section("tune.refine", section)
    best = given.get("best")
    if isinstance(best, bool) or not isinstance(best, int) or best < 1:
        raise refused("tune.refine.best", best, "an integer of at least 1")
    return Refine(best, seeds_of("tune.refine.seeds", given.get("seeds")))


def _extend(names: Any, axes: Mapping[str, Any]) -> tuple[str, ...]:
    if not is_list(names):
        raise refused("tune.extend", names, "a list of axes")
    for name in names:
        if not isinstance(name, str) or name not in axes:
            raise refused("tune.extend", name, f"an axis ({', '.join(axes)})")
        if not all(type(value) in (int, float) for value in axis_values(axes[name])):
            raise refused("tune.extend", name, "an axis of numbers")
    return tuple(names)


def _inherit(section: Any, panel: str) -> Inherit | None:
    if section is None:
        return None
    given = _section("tune.inherit", section)
    for key in LABELS:
        if not isinstance(given.get(key, ""), str):
            raise refused(f"tune.inherit.{key}", given[key], "a word")
    for key in ("line", "parameters"):
        if not given.get(key):
            raise UsageError(f"tune.inherit.{key}: must be given")
    _check_words("tune.inherit.parameters", given["parameters"])
    parameters = tuple(axis_values(given["parameters"]))
    return Inherit(given.get("panel", panel), given["line"], parameters)


def _check_disjoint(key: str, seeds: tuple[int, ...], others: tuple[int, ...]) -> None:
    for seed in sorted(set(seeds) & set(others)):
        raise UsageError(
            f"{key}={seed}: is a tuning seed as well; the seeds must be disjoint"
        )
