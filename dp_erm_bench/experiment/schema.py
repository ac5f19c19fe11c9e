"""The schema of an experiment's blocks, and the one sentence that a wrong key gets.

The dataclasses say which keys there are. Keys and shapes are checked here and nowhere
else, wherever they come from; values by the classes that take them.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dp_erm_bench.errors import UsageError, check_key, refused
from dp_erm_bench.experiment.frame import BudgetConfig, Keys, keys_of, says
from dp_erm_bench.experiment.values import axis_values, is_list, seeds_of
from dp_erm_bench.registry import PARTS

LABELS = ("panel", "line")
GIVEN = ("dataset", "algorithm")
OF_TASK = (*LABELS, "task", "algorithm", "budget", "seed")


@dataclass(frozen=True)
class Inherit:
    """Parameters to take from the choice of another line."""

    panel: str = says("", "panel of that line; the block's own by default")
    line: str = says("", "the line whose choice is taken")
    parameters: tuple[str, ...] = says((), "parameters that are taken from it")


@dataclass(frozen=True)
class Refine:
    """More seeds for the best settings."""

    best: int = says(0, "how many of the best settings are tried again")
    seeds: tuple[int, ...] = says((), "the seeds that they are tried on")


@dataclass(frozen=True)
class Tune:
    """The tuning of a line's parameters."""

    axes: Mapping[str, Any] = says({}, "values per parameter, or a `unit` and `values`")
    seeds: tuple[int, ...] = says((), "seeds on which every setting is tried")
    report: tuple[int, ...] = says((), "fresh seeds for the setting chosen")
    refine: Refine = says(Refine(), "more seeds for the best settings")
    extend: tuple[str, ...] = says(
        (), "axes that grow upwards while the best value is the topmost"
    )
    inherit: Inherit | None = says(None, "parameters taken from another line")


@dataclass(frozen=True)
class Block:
    """One product of axes: a list is an axis, whatever the key.

    `dataset`, `loss`, `penalty`, `constraint` and `algorithm` are a name, a mapping
    with `name` and parameters, or a list of them. A block with a `task` has no
    objective; one with `tune` has its seeds there.
    """

    panel: str = says("", "the panel of a figure that shows it")
    line: str = says("", "what it is called there")
    dataset: Any = says(None, "a name, a mapping with `name` and keys, or a list")
    loss: Any = says("auto", "a name, a mapping, or a list; auto: the dataset's usual")
    penalty: Any = says("auto", "a name, a mapping, or a list; auto: the usual one")
    constraint: Any = says("none", "a name, a mapping, or a list")
    algorithm: Any = says(None, "a name, a mapping with `name` and parameters, a list")
    budget: Mapping[str, Any] = says({}, "epsilon, delta, adjacency")
    calibration: Any = says("certified", "how noise is fixed; a word or a list")
    seed: Any = says(0, "seeds of a sweep, each an integer >= 0")
    tune: Tune | None = says(None, "how parameters are chosen; null: all are run")
    task: Mapping[str, Any] | None = says(None, "what is done where it is no fit")


SECTIONS = {
    "": Block,
    "budget": BudgetConfig,
    "tune": Tune,
    "tune.refine": Refine,
    "tune.inherit": Inherit,
}


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
    fields = _section("", section)
    for key in fields if "task" in fields else ():
        check_key(key, OF_TASK, "a block with a task")
    for key in LABELS:
        if isinstance(fields.get(key), dict | list):
            raise refused(key, fields[key], "a word")
        fields[key] = str(fields.get(key, ""))
    for key in (*PARTS, "algorithm"):
        if key in fields or (key in GIVEN and "task" not in fields):
            _check_part(key, fields.get(key))
    if "calibration" in fields:
        _check_words("calibration", fields["calibration"])
    fields["budget"] = _section("budget", fields.get("budget", {}))
    if "tune" in fields:
        if "seed" in fields:
            raise UsageError("seed: a block with `tune` has its seeds there")
        fields["tune"] = _tune(fields["tune"], fields["panel"])
    return Block(**fields)


def _section(dotted: str, section: Any) -> dict[str, Any]:
    """Return the keys of a section that have a value.

    Within `tune` null stands for the default: profiles switch keys off by it.
    """
    if not isinstance(section, Mapping):
        raise refused(dotted or "block", section, "a mapping")
    prefix = f"{dotted}." if dotted else ""
    fields = dataclasses.fields(SECTIONS[dotted])
    defaults = {f"{prefix}{field.name}": field.default for field in fields}
    for key, value in section.items():
        check_key(f"{prefix}{key}", list(defaults))
        needed = defaults[f"{prefix}{key}"] is not None and dotted in ("", "budget")
        if value is None and needed:
            raise refused(f"{prefix}{key}", value, "a value, or left out")
    return {key: value for key, value in section.items() if value is not None}


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
    if not all(isinstance(item, str) for item in items):
        raise refused(key, value, "a word or a list of words")
    if not items:
        raise refused(key, value, "at least one word")


def _tune(section: Any, panel: str) -> Tune:
    fields = _section("tune", section)
    axes = fields.get("axes")
    inherit = _inherit(fields["inherit"], panel) if "inherit" in fields else None
    if not isinstance(axes, Mapping):
        raise refused("tune.axes", axes, "a mapping from parameters to values")
    if not axes and inherit is None:
        raise refused("tune.axes", axes, "at least one parameter with its values")
    for key in ("seeds", "report"):
        if key not in fields:
            raise UsageError(f"tune.{key}: must be given")
    seeds = seeds_of("tune.seeds", fields["seeds"])
    report = seeds_of("tune.report", fields["report"])
    refine = _refine(fields["refine"]) if "refine" in fields else Refine()
    extend = fields.get("extend", [])
    if not is_list(extend):
        raise refused("tune.extend", extend, "a list of axes")
    for name in extend:
        if not isinstance(name, str) or name not in axes:
            raise refused("tune.extend", name, f"an axis ({', '.join(axes)})")
        if not all(type(value) in (int, float) for value in axis_values(axes[name])):
            raise refused("tune.extend", name, "an axis of numbers")
    # A choice must not be reported on what it was made on.
    for key, fresh, others in (
        ("tune.report", report, seeds + refine.seeds),
        ("tune.refine.seeds", refine.seeds, seeds),
    ):
        for seed in sorted(set(fresh) & set(others)):
            raise UsageError(
                f"{key}={seed}: is a tuning seed as well; the seeds must be disjoint"
            )
    return Tune(dict(axes), seeds, report, refine, tuple(extend), inherit)


def _refine(section: Any) -> Refine:
    fields = _section("tune.refine", section)
    best = fields.get("best")
    if isinstance(best, bool) or not isinstance(best, int) or best < 1:
        raise refused("tune.refine.best", best, "an integer of at least 1")
    return Refine(best, seeds_of("tune.refine.seeds", fields.get("seeds")))


def _inherit(section: Any, panel: str) -> Inherit:
    fields = _section("tune.inherit", section)
    for key in LABELS:
        if not isinstance(fields.get(key, ""), str):
            raise refused(f"tune.inherit.{key}", fields[key], "a word")
    for key in ("line", "parameters"):
        if not fields.get(key):
            raise UsageError(f"tune.inherit.{key}: must be given")
    _check_words("tune.inherit.parameters", fields["parameters"])
    parameters = tuple(axis_values(fields["parameters"]))
    return Inherit(fields.get("panel", panel), fields["line"], parameters)
