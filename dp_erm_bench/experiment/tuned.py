"""The blocks that `dp-erm-bench tune` runs, and the starting points of their searches.

If the algorithm's yaml has a key `tune`, a search starts with the grid and limits given
there. For other algorithms it starts around the defaults of all numeric fields.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.spec import AUTO, BOUNDS, BY_DEFAULT, default_bounds
from dp_erm_bench.errors import (
    DataUnavailable,
    UsageError,
    typed_text,
    value_error,
)
from dp_erm_bench.experiment.expand import datasets_of, named_choices, parts_of
from dp_erm_bench.experiment.lines import refusal_of_algorithm
from dp_erm_bench.experiment.parameters import (
    LENGTHS,
    Algorithm,
    algorithm_of,
    by_rule,
    check_parameter,
    normalise_parameter,
    problem_named,
    with_defaults,
)
from dp_erm_bench.experiment.schema import (
    GRADIENT_RMS,
    OF_LINES,
    Block,
    BudgetConfig,
    PatternSearch,
    axis_values,
    blocks_of,
    grid_size,
    is_list,
    options_of,
    points_of,
    seeds_of,
    values_of,
)
from dp_erm_bench.plugins.names import label_of
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.registry import ALGORITHM, ERM, OBJECTIVE, PROBLEM

PROFILE, SMOKE = "published", "smoke"
"""Names of two profiles.

The first is the usual profile, with searches as long as those of docs/leaderboard.md.
The second is for test runs, with a grid of one point.
"""

SEEDS = {"seeds": [*range(16)], "report": [*range(100, 140)]}
FEW = {"race": [2, 3, 5, 10], "finalists": 3}
LEAST = {"race": [1, 1, 1, 2], "finalists": 1}
PROFILES: dict[str, dict[str, Any]] = {
    "paper": {**SEEDS, "search": {"trials": 220}},
    PROFILE: {**SEEDS, "search": {"trials": 300}},
    "default": {**SEEDS, "search": {"trials": 100, **FEW}},
    SMOKE: {"seeds": [0, 1], "report": [100, 101], "search": {"trials": 6, **LEAST}},
}
"""Seeds and sizes of searches, as in experiments/leaderboard.yaml."""

MOST_IN_GRID = 3
"""Largest number of fields in a grid around defaults.

Lengths are first, then `step`, `clip` and the rest in order. Further fields are varied
one at a time, since a larger grid would use all trials.
"""

AROUND = (0.25, 1.0, 4.0)
"""Multiples of a default that are tried, in the grid or one at a time."""

CLIPS = {"unit": GRADIENT_RMS, "values": [0.1, 0.3, 1, 3]}
"""The values to try for a clipping threshold without a default."""

FIRST = (*LENGTHS, "step", "clip")
BATCH = "batch_size"

ENOUGH = {"trials", "race"}
"""Keys that determine the size of a search, which otherwise depends on the grid."""

Section = dict[str, Any]


def start_of(name: str, profile: str) -> tuple[Section, Section]:
    """Return an algorithm's fixed parameters and initial `tune` for a profile.

    Parameters
    ----------
    name : str
        Name of the algorithm, or the pin of a solver's file.
    profile : str
        One of `PROFILES`.

    Raises
    ------
    UsageError
        If there is no such profile.
    """
    registry.check_choice("profile", profile, sorted(PROFILES))
    tune = registry.read_tune(name) or _start_around_defaults(algorithm_of(name))
    fixed, smallest = (tune.pop(key, {}) for key in ("fixed", SMOKE))
    if profile == SMOKE:
        for key, axis in tune["axes"].items():
            values, aside = axis_values(axis), key in tune.get("aside", ())
            usual = values[0 if aside else (len(values) - 1) // 2]
            one = [smallest.get(key, usual)]
            unit = isinstance(axis, Mapping)
            tune["axes"][key] = {**axis, "values": one} if unit else one
    return fixed, {**tune, **PROFILES[profile]}


def _start_around_defaults(algorithm: Algorithm) -> Section:
    """Return axes for all numeric fields, and the names of those outside the grid."""
    axes: Section = {}
    order = [key for key, kind in algorithm.kinds.items() if kind]
    for key in sorted(
        order, key=lambda k: FIRST.index(k) if k in FIRST else len(FIRST)
    ):
        if values := _values_around_default(algorithm, key, len(axes) < MOST_IN_GRID):
            axes[key] = values
    return {"axes": axes, "aside": [*axes][MOST_IN_GRID:]}


def _values_around_default(algorithm: Algorithm, key: str, grid: bool) -> Any:
    """Return the initial values of a field's axis, which lie around its default.

    The default is first, or in the middle of a grid. If it is zero or None, a value is
    added: the middle of the field's limits, or the lower limit plus one. The result is
    empty for a field that is not a number, and for a length that another field
    determines.
    """
    field, options = algorithm.cls.__dataclass_fields__[key], algorithm.hints[key]
    kinds, default = {*options_of(options)}, algorithm.preset.get(key, field.default)
    optional = default is None and key not in LENGTHS
    number = type(default) in (int, float) and default >= 0
    if (
        "choices" in field.metadata
        or not kinds & {int, float}
        or not (number or optional)
    ):
        return []
    if key == "clip" and optional:
        return CLIPS
    if number and default:
        found = [default * factor for factor in AROUND]
        found = found if grid else [default, *found]
    else:
        least, above, most = algorithm.limits(key)
        low = max(least, above, 0)
        found = [default, (low + most) / 2 if math.isfinite(most) else low + 1]
    if float not in kinds:
        found = [one and max(1, round(one)) for one in found]
    return [
        one for one in dict.fromkeys(found) if _is_allowed_value(algorithm, key, one)
    ]


def _is_allowed_value(algorithm: Algorithm, key: str, value: Any) -> bool:
    try:
        algorithm.solver({key: value})
    except UsageError:
        return False
    return True


def values_within_records(name: str, key: str, values: list[Any], n: int) -> list[Any]:
    """Return the typed values of a parameter; a batch size is at most n.

    Parameters
    ----------
    name : str
        Name of the algorithm, or the pin of a solver's file.
    key : str
        Name of the parameter.
    values : list
        Values of the parameter as given.
    n : int
        Number of records.
    """
    typed = [normalise_parameter(name, key, value) for value in values]
    if key == BATCH:
        typed = [min(value, n) if type(value) is int else value for value in typed]
    return list(dict.fromkeys(typed))


def tuned_blocks(
    sections: Sequence[Mapping[str, Any]],
    asked: Mapping[str, Any],
    profile: str | None = None,
) -> list[Section]:
    """Return blocks that tune each algorithm of a sweep on each of its problems.

    Parameters
    ----------
    sections : sequence of mapping
        Blocks without `tune`. A parameter with one value is fixed. A list of values is
        the initial axis of a parameter.
    asked : mapping
        Keys of `tune` that replace the usual keys (`start_of`). `axes` and `limits` are
        mappings from an algorithm's name to mappings by parameter.
    profile : str, optional
        One of `PROFILES`; None means the usual profile.

    Returns
    -------
    list of dict
        A block per problem, algorithm, calibration, delta and adjacency; epsilon stays
        an axis. An algorithm that refuses its problem, or has no parameter to tune,
        runs without tuning.

    Raises
    ------
    UsageError
        For a wrong key or value, or if every algorithm refuses its problem.
    """
    points = [one for block in blocks_of(sections) for one in _blocks_of_points(block)]
    points = [*{json.dumps(o, sort_keys=True, default=str): o for o in points}.values()]
    labels = sorted({label_of(one[ALGORITHM]["name"]) for one in points})
    for part in OF_LINES:
        for name in asked.get(part, {}):
            registry.check_choice(f"tune.{part}", name, labels)
    refusals: list[str] = []
    blocks = []
    labelled = [*_label_blocks(points)]
    make = functools.partial(_tuned_block, asked=asked, profile=profile or PROFILE)
    made = [make(point) for point in labelled]
    # Compared algorithms must have the same records, so bounds that one of them needs
    # apply to all.
    for point, (_, refused) in zip(labelled, made, strict=True):
        within = _within_default_bounds(point)
        if refused and within and not make(within)[1]:
            for other, beside in enumerate(labelled):
                if beside["dataset"] == point["dataset"]:
                    made[other] = make(_within_default_bounds(beside))
    for block, refused in made:
        refusals += [refused] if refused else []
        blocks.append(block)
    if len(refusals) == len(blocks):
        raise UsageError(f"algorithm: {'; '.join(dict.fromkeys(refusals))}")
    return blocks


def _blocks_of_points(block: Block) -> Iterator[Section]:
    """Yield a block for each problem, algorithm, calibration, delta and adjacency."""
    apart = {key: one for key, one in block.budget.items() if key != "epsilon"}
    privacy = [values_of(f"budget.{key}", one) for key, one in apart.items()]
    axes = (
        [{"name": name, **of} for name, of in datasets_of(block)],
        *([*parts_of(part, getattr(block, part))] for part in (PROBLEM, *OBJECTIVE)),
        values_of("calibration", block.calibration),
        [*itertools.product(*privacy)],
        [
            {"name": registry.pin_choice(name), **of}
            for name, of in named_choices(block.algorithm)
        ],
    )
    for dataset, kind, *posed, calibration, budget, algorithm in itertools.product(
        *axes
    ):
        yield {
            "dataset": dataset,
            **({} if kind["name"] == ERM else {PROBLEM: kind}),
            **dict(zip(OBJECTIVE, posed, strict=True)),
            "calibration": calibration,
            "budget": {**block.budget, **dict(zip(apart, budget, strict=True))},
            ALGORITHM: dict(algorithm),
        }


def _label_blocks(points: Sequence[Section]) -> Iterator[Section]:
    """Yield blocks with labels: the panel from the data, the line from the algorithm.

    Both labels list the keys that vary.
    """
    flat = [dict(_flatten_point(point)) for point in points]
    keys = dict.fromkeys(key for one in flat for key in one)
    varied = [k for k in keys if len({typed_text(one.get(k)) for one in flat}) > 1]
    titles = [_panel_title(point["dataset"]) for point in points]
    paths = [typed_text(one.get("dataset.path")) for one in flat]
    told = ["dataset.name", "algorithm.name"]
    if len(set(zip(titles, paths, strict=True))) == len(set(titles)):
        told.append("dataset.path")
    for point, one, title in zip(points, flat, titles, strict=True):
        more = {
            key: typed_text(one[key])
            for key in varied
            if key in one and key not in told
        }
        line = [label_of(point[ALGORITHM]["name"])]
        panel = [title]
        for key, value in more.items():
            owner, _, name = key.partition(".")
            if owner != ALGORITHM:
                word = owner if name in ("", "name") else name
                (line if owner == "calibration" else panel).append(f"{word}={value}")
        yield {"panel": ", ".join(panel), "line": ", ".join(line), **point}


def _flatten_point(point: Section) -> Iterator[tuple[str, Any]]:
    for key, value in point.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", one) for name, one in value.items())
        else:
            yield key, value


def _panel_title(dataset: Mapping[str, Any]) -> str:
    """Return the title of a dataset's panel; for a file, its name."""
    path = dataset.get("path")
    return PurePath(str(path)).stem if path else str(dataset["name"])


def _tuned_block(
    point: Section, asked: Mapping[str, Any], profile: str
) -> tuple[Section, str]:
    """Return the block that tunes an algorithm on a problem, and a reason for refusal.

    The reason is empty if the algorithm accepts the problem.
    """
    given = dict(point[ALGORITHM])
    name = given.pop("name")
    params, tune = start_of(name, profile)
    search, limits = tune["search"], tune.get("limits", {})
    tune |= {key: one for key, one in asked.items() if key not in OF_LINES}
    if isinstance(tune["search"], Mapping):
        tune["search"] = {**search, **tune["search"]}
    elif tune["search"] is not None:
        raise value_error(
            "tune.search", tune["search"], "a mapping of its keys or null"
        )
    axes, bounds = (asked.get(part, {}).get(label_of(name), {}) for part in OF_LINES)
    for key in (*given, *axes, *bounds):
        check_parameter(name, key)
    grid = {k: v for k, v in given.items() if is_list(v) or isinstance(v, Mapping)}
    typed = {**given, **grid, **axes}
    # A given length excludes other lengths. Without a search, no axis is set aside.
    lengths = LENGTHS if {*LENGTHS} & {*typed} else ()
    left = {*typed, *lengths, *(() if tune["search"] else tune.get("aside", ()))}
    usual = {key: one for key, one in tune["axes"].items() if key not in left}
    problem = _problem_or_none(point)
    n = problem.n if problem else 1
    axes = {
        key: one
        if isinstance(one, Mapping)
        else values_within_records(name, key, one, n)
        for key, one in {**usual, **grid, **axes}.items()
    }
    params = {
        key: values_within_records(name, key, [one], n)[0]
        for key, one in params.items()
    }
    fixed = {k: v for k, v in {**params, **typed}.items() if k not in axes}
    whole = {**point, ALGORITHM: {"name": name, **fixed}}
    refused = _refusal_on_grid(whole, axes, problem) if problem else ""
    if refused or not axes:
        seeds = seeds_of("tune.report", tune["report"])
        return {**whole, "seed": [*seeds][: 1 if refused else None]}, refused
    aside = [key for key in tune.get("aside", ()) if key in usual]
    if tune["search"] and not ENOUGH & {*asked.get("search", ())}:
        points = grid_size(axes, aside)
        trials = max(search["trials"], PatternSearch(**search).least(points))
        tune["search"] = {**tune["search"], "trials": trials}
    kept = {key: one for key, one in limits.items() if key in usual and tune["search"]}
    tune |= {"axes": axes, "limits": kept | bounds, "aside": aside}
    return {**whole, "tune": tune}, ""


def _within_default_bounds(point: Section) -> Section:
    """Return a block with default bounds; empty if there are or should be none."""
    data = point["dataset"]
    wanted = data.get(BOUNDS) == AUTO and data.get("clip_to_bounds") is not False
    if not wanted or default_bounds(str(data["name"]), data) is None:
        return {}
    return {**point, "dataset": {**data, BOUNDS: BY_DEFAULT}}


def _problem_or_none(point: Section) -> Problem | None:
    """Return the problem of a block; None if its data are not available."""
    dataset = dict(point["dataset"])
    posed = (dataset.pop("name"), dataset, *(point[part] for part in OBJECTIVE))
    kind = point.get(PROBLEM, {"name": ERM})["name"]
    try:
        return problem_named(*posed, kind=kind)
    except DataUnavailable:
        return None


def _refusal_on_grid(whole: Section, axes: Mapping[str, Any], problem: Problem) -> str:
    """Return the reason why an algorithm refuses a problem on its whole grid.

    The reason is empty if the algorithm accepts the problem at some point.
    """
    params = dict(whole[ALGORITHM])
    name = params.pop("name")
    algorithm = algorithm_of(name)
    budget = {**dataclasses.asdict(BudgetConfig()), **whole["budget"]}
    every = axis_values(budget["epsilon"])
    # Without noise no bound is needed, so the largest finite epsilon is examined.
    budget["epsilon"] = max([e for e in every if e < math.inf] or every)
    spec = Budget(**budget).spec
    reason = ""
    for point in points_of({key: axis_values(one) for key, one in axes.items()}):
        given = with_defaults(name, {**params, **point})
        numbers, _ = by_rule(name, given, problem, spec)
        reason = refusal_of_algorithm(
            algorithm, numbers, problem, spec, whole["calibration"]
        )
        if not reason:
            break
    return reason
