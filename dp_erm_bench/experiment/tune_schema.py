"""The schema of a block's `tune`, and the one sentence that a wrong key of it gets."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dp_erm_bench.errors import UsageError, check_key, refused
from dp_erm_bench.experiment.frame import says
from dp_erm_bench.experiment.values import axis_values, is_list, seeds_of, typed
from dp_erm_bench.registry import QUANTITIES, check_choice

LABELS = ("panel", "line")
STAGES = 4
"""Of a race: all settings, the best of a round, the best of these, the finalists."""

NUMBERS: Mapping[str, tuple[Any, float, float]] = {
    "trials": (int, 1, math.inf),
    "radius": (float, 1.42, 100.0),
    "finalists": (int, 1, 100),
    "tolerance": (float, 0.0, math.inf),
}
"""Type, least and most of the numbers of a search."""


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
class Search:
    """A pattern search that begins with the grid and leaves it where that is better.

    Each round tries the neighbours of the best setting and some points around it on
    the first seeds of `tune.seeds`; the better ones are tried on more of them.
    """

    name: str = says("pattern", "the only search that there is")
    trials: int = says(250, "most trials of a line's tuning, the grid included")
    ratio: Mapping[str, float] = says(
        {}, "of neighbouring values, per parameter, or as `default`"
    )
    radius: float = says(2.5, "factor to the neighbours that are tried first")
    race: tuple[int, ...] = says(
        (2, 4, 8, 16), "seeds for all settings, the best 5, the best 3, the finalists"
    )
    finalists: int = says(4, "settings on the most seeds, and the grid's best")
    tolerance: float = says(
        0.1, "a gain of fewer standard deviations (over seeds) counts as none"
    )


@dataclass(frozen=True)
class Tune:
    """The tuning of a line's parameters."""

    axes: Mapping[str, Any] = says({}, "values per parameter, or a `unit` and `values`")
    seeds: tuple[int, ...] = says((), "tuning seeds; a search uses the first")
    report: tuple[int, ...] = says((), "fresh seeds for the setting chosen")
    refine: Refine = says(Refine(), "more seeds for the best settings")
    extend: tuple[str, ...] = says(
        (), "axes that grow upwards while the best value is the topmost"
    )
    inherit: Inherit | None = says(None, "parameters taken from another line")
    search: Search | None = says(None, "how values beyond the grid are tried, if so")
    limits: Mapping[str, Any] = says(
        {}, "lowest and highest value of a parameter in a search, in its axis' unit"
    )
    quantity: str = says("objective", "what is to be best at the end of the trials")


TUNING = {
    "tune": Tune,
    "tune.refine": Refine,
    "tune.inherit": Inherit,
    "tune.search": Search,
}


def section_of(dotted: str, section: Any, schema: Any) -> dict[str, Any]:
    """Return the keys of a section that have a value.

    Within `tune` null stands for the default: profiles switch keys off by it.
    """
    if not isinstance(section, Mapping):
        raise refused(dotted or "block", section, "a mapping")
    prefix = f"{dotted}." if dotted else ""
    fields = dataclasses.fields(schema)
    defaults = {f"{prefix}{field.name}": field.default for field in fields}
    for key, value in section.items():
        check_key(f"{prefix}{key}", list(defaults))
        needed = defaults[f"{prefix}{key}"] is not None and dotted in ("", "budget")
        if value is None and needed:
            raise refused(f"{prefix}{key}", value, "a value, or left out")
    return {key: value for key, value in section.items() if value is not None}


def check_words(key: str, value: Any) -> None:
    """Refuse what is neither a word nor a list of at least one."""
    items = value if is_list(value) else [value]
    if not all(isinstance(item, str) for item in items):
        raise refused(key, value, "a word or a list of words")
    if not items:
        raise refused(key, value, "at least one word")


def tune_of(section: Any, panel: str) -> Tune:
    """Return the checked `tune` of a block of a panel.

    Raises
    ------
    UsageError
        Naming the key, the value and what is allowed.
    """
    fields = section_of("tune", section, Tune)
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
    search = _search(fields, axes, seeds) if "search" in fields else None
    if search is None and fields.get("limits"):
        raise refused("tune.limits", fields["limits"], "left out without tune.search")
    limits = _limits(fields.get("limits", {}), axes)
    quantity = fields.get("quantity", "objective")
    check_choice("tune.quantity", str(quantity), [*QUANTITIES])
    grown = (refine, tuple(extend), inherit, search, limits, quantity)
    return Tune(dict(axes), seeds, report, *grown)


def _search(fields: Mapping[str, Any], axes: Mapping[str, Any], seeds: Any) -> Search:
    for key in ("refine", "extend"):
        if fields.get(key):
            raise refused(f"tune.{key}", fields[key], "left out with tune.search")
    section = section_of("tune.search", fields["search"], Search)
    name = section.get("name", "pattern")
    if name != "pattern":
        raise refused("tune.search.name", name, "pattern")
    ratio = section.get("ratio", {})
    if not isinstance(ratio, Mapping):
        raise refused("tune.search.ratio", ratio, "a mapping from parameters to ratios")
    numbers = {
        name: _number(f"tune.search.{name}", section[name], *limits)
        for name, limits in NUMBERS.items()
        if name in section
    }
    ratios = {}
    for key, value in ratio.items():
        check_key(key, (*axes, "default"), "tune.search.ratio")
        ratios[key] = _number(f"tune.search.ratio.{key}", value, float, 1.01, 100.0)
    race = section.get("race", Search.race)
    rungs = [*race] if is_list(race) else []
    whole = len(rungs) == STAGES and all(type(one) is int for one in rungs)
    if not whole or sorted([1, *rungs]) != [1, *rungs]:
        allowed = f"{STAGES} numbers of seeds >= 1 that do not fall"
        raise refused("tune.search.race", race, allowed)
    if len(seeds) < rungs[-1]:
        asked = f"must be at least {rungs[-1]}, as tune.search.race asks"
        raise UsageError(f"tune.seeds: {asked}, not {len(seeds)}")
    search = Search(ratio=ratios, race=tuple(rungs), **numbers)
    points = math.prod(len(axis_values(values)) for values in axes.values())
    least = points * rungs[0] + rungs[-1] - rungs[0]
    if search.trials < least:
        asked = f"at least {least}: the grid, and its best on {rungs[-1]} seeds"
        raise refused("tune.search.trials", search.trials, asked)
    return search


def _number(key: str, value: Any, hint: Any, least: float, most: float) -> Any:
    number = typed(key, value, hint)
    if not least <= number <= most:
        bound = f" and <= {most:g}" if math.isfinite(most) else ""
        raise refused(key, value, f"a number >= {least:g}{bound}")
    return number


def _limits(limits: Any, axes: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the two limits of each parameter that has some."""
    if not isinstance(limits, Mapping):
        raise refused("tune.limits", limits, "a mapping from parameters to two limits")
    checked = {}
    for key, pair in limits.items():
        check_key(key, tuple(axes), "tune.limits")
        if not is_list(pair) or len(pair) != 2:
            raise refused(f"tune.limits.{key}", pair, "the least and the most")
        low, high = (typed(f"tune.limits.{key}", value, float) for value in pair)
        if not low < high or math.isinf(high - low):
            raise refused(f"tune.limits.{key}", pair, "two numbers, the lower first")
        checked[key] = low, high
    return checked


def _refine(section: Any) -> Refine:
    fields = section_of("tune.refine", section, Refine)
    best = fields.get("best")
    if isinstance(best, bool) or not isinstance(best, int) or best < 1:
        raise refused("tune.refine.best", best, "an integer of at least 1")
    return Refine(best, seeds_of("tune.refine.seeds", fields.get("seeds")))


def _inherit(section: Any, panel: str) -> Inherit:
    fields = section_of("tune.inherit", section, Inherit)
    for key in LABELS:
        if not isinstance(fields.get(key, ""), str):
            raise refused(f"tune.inherit.{key}", fields[key], "a word")
    for key in ("line", "parameters"):
        if not fields.get(key):
            raise UsageError(f"tune.inherit.{key}: must be given")
    check_words("tune.inherit.parameters", fields["parameters"])
    parameters = tuple(axis_values(fields["parameters"]))
    return Inherit(fields.get("panel", panel), fields["line"], parameters)
