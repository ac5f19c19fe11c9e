"""Expand blocks into lines: the product of all axes that are not tuned.

A *block* is a section of an experiment's yaml file. A *line* is a set of trials with
one label in a figure.
"""

import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.spec import AUTO, BOUNDS, BY_DEFAULT, LISTS, default_bounds
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment import parameters
from dp_erm_bench.experiment.lines import (
    FitLine,
    Line,
    refusal_of_algorithm,
    study_of,
)
from dp_erm_bench.experiment.schema import (
    MOST_TRIALS,
    Block,
    BudgetConfig,
    axis_values,
    blocks_of,
    distinct_values,
    grid_size,
    is_list,
    is_matrix,
    multiples_of,
    points_of,
    seeds_of,
    values_of,
)
from dp_erm_bench.plugins.names import absolute_path, is_file, label_of
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.registry import CHOSEN, OBJECTIVE, PROBLEM

Axis = tuple[list[Any], bool]
"""Values of an axis, and whether they are multiples of `gradient_rms`."""

Axes = dict[str, Axis]


@dataclass(frozen=True)
class NotRun:
    """A line that cannot run, because its dataset is not available."""

    panel: str
    line: str
    dataset: str
    reason: str


def expand_blocks(
    sections: Sequence[Mapping[str, Any]],
) -> tuple[list[Line], list[NotRun]]:
    """Return the lines of all blocks, and the lines that cannot run.

    Parameters
    ----------
    sections : sequence of mapping
        Blocks, with the keys of `schema.Block`.

    Raises
    ------
    UsageError
        For unknown names and keys, values out of range, empty axes, too many trials.
    """
    blocks = blocks_of(sections)
    trials = sum(map(_count_trials, blocks))
    if trials > MOST_TRIALS:
        raise UsageError(
            f"the axes ask for {trials} trials: at most {MOST_TRIALS} in one run; "
            "leave values out, or split the sweep"
        )
    lines: list[Line] = []
    missing: dict[NotRun, None] = {}
    for block in blocks:
        for line in [study_of(block)] if block.task else _fit_lines(block):
            if isinstance(line, NotRun):
                missing[line] = None
            else:
                lines.append(line)
    by_label: dict[str, str] = {}
    for name in sorted({line.algorithm for line in lines if line.algorithm}):
        other = by_label.setdefault(label_of(name), name)
        if other != name:  # the two algorithms would look equal in a table
            raise UsageError(
                f"algorithm={absolute_path(name)}: {absolute_path(other)} is called "
                f"{label_of(name)}, too; rename one of them"
            )
    return lines, list(missing)


def _count_trials(block: Block) -> int:
    """Return the number of trials of a block; an upper bound if trials are repeated."""
    choices = (getattr(block, key) for key in CHOSEN)
    count = math.prod(map(_count_points, (*choices, block.budget)))
    if block.tune is None:
        return count * len(axis_values(block.seed))
    count *= block.tune.splits
    tuning = grid_size(block.tune.axes, block.tune.aside) * len(block.tune.seeds)
    if block.tune.search is not None:
        tuning = block.tune.search.trials
    return count * (tuning + len(block.tune.report))


def _count_points(value: Any) -> int:
    """Return the number of combinations that a choice of names and parameters has."""
    if isinstance(value, Mapping):
        return math.prod(
            len(axis_values(axis)) or 1
            for key, axis in value.items()
            if key not in LISTS
        )
    return sum(map(_count_points, value)) if is_list(value) else 1


def _fit_lines(block: Block) -> Iterator[FitLine | NotRun]:
    """Yield the lines of a block that fits models.

    A sweep has one line per problem, algorithm and budget. A tuned block has a line for
    every point of the axes that are not tuned.
    """
    tune = block.tune
    seeds = () if tune else seeds_of("seed", block.seed)
    shared: dict[str, Any]
    shared = {"panel": block.panel, "line": block.line, "seeds": seeds, "tune": tune}
    algorithms, budgets = [*_algorithms_of_block(block)], _privacy_axes(block)
    for name, raw, clipped in _problems_of_block(block):
        if isinstance(raw, str):
            yield NotRun(block.panel, block.line, name, raw)
            continue
        problems = [
            clipped()
            if clipped and _needs_bounds(name, {**a, **b}, raw, budgets)
            else raw
            for name, a, b in algorithms
        ]
        choices = itertools.product(zip(algorithms, problems, strict=True), budgets)
        for ((algorithm, fixed, tuned), problem), privacy in choices:
            if algorithm == AUTO:
                # Imported here, so that other plans need not wait for numba.
                from dp_erm_bench.experiment.automatic import resolve_auto

                algorithm, found = resolve_auto(problem, privacy[0], [*fixed, *tuned])
                fixed = {key: ([value], False) for key, value in found.items()}
            measured = any(unit for _, unit in (*fixed.values(), *tuned.values()))
            axes, open_ = (
                _values_without_unit(fixed, problem),
                _values_without_unit(tuned, problem),
            )
            units = {
                key: _unit_of_problem(problem)
                for key, (_, unit) in tuned.items()
                if unit
            }
            if tune is None and not _has_rule(algorithm, axes):
                single = {key: v[0] for key, v in axes.items() if len(v) == 1}
                points = [(single, {k: v for k, v in axes.items() if len(v) > 1})]
            else:  # what a rule gives depends on the other parameters
                points = [(params, open_) for params in points_of(axes)]
            for params, opened in points:
                parts = (algorithm, problem, params, *privacy, opened, units)
                line = FitLine(*parts, measured=measured, **shared)
                line.check()
                yield line


def _needs_bounds(
    algorithm: str,
    axes: Axes,
    problem: Problem,
    budgets: Sequence[tuple[dict[str, Any], str]],
) -> bool:
    """Return whether an algorithm needs declared bounds on a problem.

    It needs them if it refuses the problem at every clipping threshold. A refusal at
    one budget is enough, since all trials of a sweep use the same records. The reason
    of a refusal is not examined. If default bounds do not help, the algorithm refuses
    the problem with these bounds, too. With noise and without a threshold
    (`clip=null`), every algorithm needs bounds, even a user's solver. `auto` always
    needs them.
    """
    if algorithm == AUTO:
        return True
    values = _values_without_unit(axes, problem)
    first = {key: one[0] for key, one in values.items() if one}
    found = parameters.algorithm_of(algorithm)

    def is_refused(clip: Any, privacy: tuple[dict[str, Any], str]) -> bool:
        given = {**first, "clip": clip} if "clip" in first else first
        numbers, _ = parameters.by_rule(algorithm, given, problem, privacy[0])
        noisy = math.isfinite(float(privacy[0]["epsilon"]))
        if noisy and found.full(numbers).get("clip", 0.0) is None:
            return True  # a refusal may depend on the records, this must not
        return bool(refusal_of_algorithm(found, numbers, problem, *privacy))

    thresholds = values.get("clip", (None,))
    return any(all(is_refused(c, one) for c in thresholds) for one in budgets)


def _has_rule(algorithm: str, axes: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether a rule must compute a value of one of the axes."""
    ruled = parameters.algorithm_of(algorithm).is_ruled
    return any(ruled(key, value) for key, values in axes.items() for value in values)


def _values_without_unit(axes: Axes, problem: Problem) -> dict[str, tuple[Any, ...]]:
    """Return the values of axes as absolute numbers, not as multiples of a unit."""
    absolute = {key: tuple(values) for key, (values, _) in axes.items()}
    for key, (values, measured) in axes.items():
        if measured:
            absolute[key] = tuple(value * _unit_of_problem(problem) for value in values)
    return absolute


def _unit_of_problem(problem: Problem) -> float:
    """Return `gradient_rms` of a problem, rounded to 12 digits.

    The last bits of `gradient_rms` depend on the number of threads, and must not change
    the key of a trial.
    """
    return float(f"{problem.gradient_rms:.12g}")


def _algorithms_of_block(block: Block) -> Iterator[tuple[str, Axes, Axes]]:
    """Yield each algorithm with its fixed and its tuned parameters."""
    tuned = block.tune.axes if block.tune else {}
    for name, params in named_choices(block.algorithm):
        if name == AUTO:
            # Given parameters raise an error later, when the problem is known.
            yield (
                name,
                dict.fromkeys(params, ([], False)),
                dict.fromkeys(tuned, ([], False)),
            )
            continue
        name = registry.pin_choice(name)
        every = [*params, *tuned]
        for parameter in every:
            parameters.check_parameter(name, parameter)
            if every.count(parameter) > 1:
                raise UsageError(
                    f"algorithm.{label_of(name)}.{parameter}: is given twice; it must "
                    "be either fixed or an axis of tune"
                )
        fixed, open_ = (
            {key: _axis_of(name, key, value) for key, value in axes.items()}
            for axes in (params, tuned)
        )
        every_axis = {key: values for key, (values, _) in {**fixed, **open_}.items()}
        parameters.check_lengths(name, every_axis)
        rules = parameters.with_defaults(name, fixed, every)
        usual = {
            key: _axis_of(name, key, rules[key]) for key in rules if key not in fixed
        }
        yield name, {**fixed, **usual}, open_


def _axis_of(algorithm: str, parameter: str, value: Any) -> Axis:
    key = f"algorithm.{label_of(algorithm)}.{parameter}"
    if isinstance(value, Mapping):
        return multiples_of(key, value), True
    values = [
        parameters.normalise_parameter(algorithm, parameter, v)
        for v in values_of(key, value)
    ]
    return list(dict.fromkeys(values)), False


def _privacy_axes(block: Block) -> list[tuple[dict[str, Any], str]]:
    usual = dataclasses.asdict(BudgetConfig())
    axes = {
        key: values_of(f"budget.{key}", value)
        for key, value in {**usual, **block.budget}.items()
    }
    calibrations = values_of("calibration", block.calibration)
    for calibration in calibrations:
        registry.check_choice("calibration", calibration, registry.names("calibration"))
    budgets = distinct_values([Budget(**point).spec for point in points_of(axes)])
    for budget in budgets:
        parameters.check_epsilon(float(budget["epsilon"]))
    return list(itertools.product(budgets, calibrations))


def _problems_of_block(
    block: Block,
) -> Iterator[tuple[str, Problem | str, Callable[[], Problem] | None]]:
    """Yield each dataset's name with its problem, or the reason why it is missing.

    The third item is a function that returns the problem with records clipped to
    default bounds, or None if default bounds must not be used.
    """
    parts = (parts_of(part, getattr(block, part)) for part in OBJECTIVE)
    kinds = [kind["name"] for kind in parts_of(PROBLEM, block.problem)]
    objectives = list(itertools.product(kinds, *parts))
    for name, overrides in datasets_of(block):
        clipped = None
        for kind, *parts_ in objectives:
            posed = partial(parameters.problem_named, kind=kind)
            wanted = overrides.get(BOUNDS) == AUTO
            wanted &= overrides.get("clip_to_bounds") is not False
            if wanted and default_bounds(name, overrides):
                within = {**overrides, BOUNDS: BY_DEFAULT}
                clipped = partial(posed, name, within, *parts_)
            try:
                yield name, posed(name, overrides, *parts_), clipped
            except DataUnavailable as error:
                yield name, str(error), None


def datasets_of(block: Block) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and overrides of each dataset of a block, one point at a time."""
    for name, fields in named_choices(block.dataset):
        usual = parameters.usual_of(name, fields)
        axes = {
            key: distinct_values(
                [
                    parameters.convert_like(f"dataset.{key}", v, usual.get(key))
                    for v in values_of(
                        f"dataset.{key}", value, [] if key in LISTS else usual.get(key)
                    )
                ]
            )
            for key, value in fields.items()
        }
        if block.tune is not None and block.tune.splits > 1:
            axes["seed"] = _splits_tuned_again(axes, usual, block.tune.splits)
        for overrides in points_of(axes):
            yield name, overrides


def _splits_tuned_again(
    axes: Mapping[str, list[Any]], usual: Mapping[str, Any], count: int
) -> list[int]:
    """Return the values of `dataset.seed` for which the tuning is repeated.

    Raises
    ------
    UsageError
        If several values are given already, or the seed does not change the problem.
    """
    given, loader = axes.get("seed", [usual.get("seed", 0)]), usual["_target_"]
    if len(given) > 1:
        raise UsageError(
            f"tune.splits={count}: dataset.seed has several values already"
        )
    held_out = axes.get("test_fraction", [usual.get("test_fraction", 0.0)])
    drawn = "seed" in inspect.signature(registry.locate(loader)).parameters
    if not drawn and not all(held_out):
        raise UsageError(
            f"tune.splits={count}: dataset={usual['name']} has one split only; give "
            "dataset.test_fraction"
        )
    return [given[0] + number for number in range(count)]


def parts_of(part: str, choices: Any) -> Iterator[dict[str, Any]]:
    """Yield the name and the parameters of each choice of a part, one point at a time.

    A part is a loss, a penalty, a constraint or a kind of problem.
    """
    for name, fields in named_choices(choices):
        name = registry.pin_choice(name, part) if is_file(name) else name
        axes = {
            key: [v] if is_matrix(v) else distinct_values(values_of(f"{part}.{key}", v))
            for key, v in fields.items()
        }
        yield from ({"name": name, **point} for point in points_of(axes))


def named_choices(choices: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and parameters of each choice; a mapping may name several."""
    for choice in choices if is_list(choices) else [choices]:
        fields = dict(choice) if isinstance(choice, Mapping) else {"name": choice}
        names = fields.pop("name")
        yield from ((name, fields) for name in (names if is_list(names) else [names]))
