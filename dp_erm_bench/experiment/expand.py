"""Blocks to cases: the product of all axes that are not tuned over."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.spec import LISTS
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.axes import (
    axis_values,
    is_list,
    is_matrix,
    product,
    relative,
    seeds_of,
    values_of,
)
from dp_erm_bench.experiment.frame import MOST_TRIALS, BudgetConfig
from dp_erm_bench.experiment.lines import Case, NotRun
from dp_erm_bench.experiment.parameters import check_parameter, normalised
from dp_erm_bench.experiment.problem_specs import (
    ProblemSpec,
    like,
    problem_spec_of,
    usual_of,
)
from dp_erm_bench.experiment.schema import Block, Tune, blocks_of
from dp_erm_bench.experiment.studies import Study, study_of
from dp_erm_bench.plugins.names import absolute, is_file, label
from dp_erm_bench.registry import CHOSEN, OBJECTIVE

Wanted = Case | Study
"""What a block asks for: fits of one line, or the trials of a task."""


def expand(given: Sequence[Mapping[str, Any]]) -> tuple[list[Wanted], list[NotRun]]:
    """Return the cases and studies of all blocks, and the cases that cannot run.

    Parameters
    ----------
    given : sequence of mapping
        Blocks as `schema.Block` says.

    Raises
    ------
    UsageError
        For unknown names and keys, values out of range, empty axes, too many trials.
    """
    cases: list[Wanted] = []
    missing: dict[NotRun, None] = {}
    blocks = blocks_of(given)
    _check_size(blocks)
    for block in blocks:
        for found in [study_of(block)] if block.task else _cases(block):
            if isinstance(found, NotRun):
                missing[found] = None
            else:
                cases.append(found)
    _check_called_once({case.algorithm for case in cases if case.algorithm})
    return cases, list(missing)


def _check_size(blocks: Iterable[Block]) -> None:
    """Refuse blocks that ask for more trials than a run may have."""
    trials = sum(map(_trials, blocks))
    if trials > MOST_TRIALS:
        raise UsageError(
            f"the axes ask for {trials} trials: at most {MOST_TRIALS} in one run; "
            "leave values out, or split the sweep"
        )


def _trials(block: Block) -> int:
    """Return how many trials a block asks for; an upper bound where they repeat."""
    choices = (getattr(block, key) for key in CHOSEN)
    cases = math.prod(map(_count, (*choices, block.budget)))
    if block.tune is None:
        return cases * len(axis_values(block.seed))
    tuning = _count(block.tune.axes) * len(block.tune.seeds)
    return cases * (tuning + len(block.tune.report))


def _count(value: Any) -> int:
    """Return how many points a choice, or the parameters of one, stand for."""
    if isinstance(value, Mapping):
        return math.prod(
            len(axis_values(axis)) or 1
            for key, axis in value.items()
            if key not in LISTS
        )
    return sum(map(_count, value)) if is_list(value) else 1


def _check_called_once(algorithms: set[str]) -> None:
    """Refuse two files of one name: a table could not tell them apart."""
    called: dict[str, str] = {}
    for name in sorted(algorithms):
        other = called.setdefault(label(name), name)
        if other != name:
            raise UsageError(
                f"algorithm={absolute(name)}: {absolute(other)} is called "
                f"{label(name)}, too; rename one of them"
            )


def _cases(block: Block) -> Iterator[Case | NotRun]:
    panel, line, tune = block.panel, block.line, block.tune
    seeds = () if tune else seeds_of("seed", block.seed)
    lines = [*itertools.product(_algorithms(block), _privacy(block))]
    for name, problem_spec in _problem_specs(block):
        if isinstance(problem_spec, str):
            yield NotRun(panel, line, name, problem_spec)
            continue
        for (algorithm, fixed, tuned), (budget, calibration) in lines:
            axes = _absolute(tuned, problem_spec)
            open_and_fixed = (*fixed.values(), *tuned.values())
            measured = any(isinstance(axis, Mapping) for axis in open_and_fixed)
            for params, open_ in _points(_absolute(fixed, problem_spec), axes, tune):
                parts = (problem_spec, algorithm, params, budget, calibration)
                case = Case(panel, line, *parts, seeds, tune, open_, measured)
                case.check()
                yield case


def _points(fixed: Values, axes: Values, tune: Tune | None) -> Iterator[Open]:
    """Yield the fixed parameters of each case, and its axes.

    A sweep is one case whatever its axes; what is tuned is tuned for every point of
    the other axes by itself.
    """
    if tune is None:
        single = {key: values[0] for key, values in fixed.items() if len(values) == 1}
        yield single, {key: v for key, v in fixed.items() if len(v) > 1}
    else:
        yield from ((params, axes) for params in product(fixed))


Values = Mapping[str, tuple[Any, ...]]
Open = tuple[Mapping[str, Any], Values]
Axis = list[Any] | Mapping[str, Any]
"""Normalised values, or {"multiples": [...]} of the unit gradient_rms."""
Axes = dict[str, Axis]


def _algorithms(block: Block) -> Iterator[tuple[str, Axes, Axes]]:
    tuned = block.tune.axes if block.tune else {}
    inherit = block.tune.inherit if block.tune else None
    inherited = inherit.parameters if inherit else ()
    for name, given in _named(block.algorithm):
        name = registry.pinned(name)
        _check_once(name, [*given, *tuned, *inherited])
        fixed, open_ = (
            {key: _axis(name, key, value) for key, value in axes.items()}
            for axes in (given, tuned)
        )
        yield name, fixed, open_


def _check_once(algorithm: str, parameters: list[str]) -> None:
    for parameter in parameters:
        check_parameter(algorithm, parameter)
        if parameters.count(parameter) > 1:
            raise UsageError(
                f"algorithm.{label(algorithm)}.{parameter}: is given twice; it must be "
                "either fixed, or an axis of tune, or inherited"
            )


def _axis(algorithm: str, parameter: str, value: Any) -> Axis:
    key = f"algorithm.{label(algorithm)}.{parameter}"
    multiples = relative(key, value)
    if multiples is not None:
        return {"multiples": multiples}
    values = [normalised(algorithm, parameter, v) for v in values_of(key, value)]
    return list(dict.fromkeys(values))


def _absolute(
    axes: Mapping[str, Axis], problem_spec: ProblemSpec
) -> dict[str, tuple[Any, ...]]:
    return {
        key: tuple(m * problem_spec.gradient_rms for m in axis["multiples"])
        if isinstance(axis, Mapping)
        else tuple(axis)
        for key, axis in axes.items()
    }


def _privacy(block: Block) -> list[tuple[dict[str, Any], str]]:
    usual = dataclasses.asdict(BudgetConfig())
    axes = {
        key: values_of(f"budget.{key}", value)
        for key, value in {**usual, **block.budget}.items()
    }
    calibrations = values_of("calibration", block.calibration)
    for calibration in calibrations:
        registry.check_choice("calibration", calibration, registry.names("calibration"))
    budgets = [Budget(**point).spec for point in product(axes)]
    return list(itertools.product(budgets, calibrations))


def _problem_specs(block: Block) -> Iterator[tuple[str, ProblemSpec | str]]:
    parts = (_parts(part, getattr(block, part)) for part in OBJECTIVE)
    objectives = list(itertools.product(*parts))
    for name, overrides in _datasets(block):
        for objective in objectives:
            try:
                yield name, problem_spec_of(name, overrides, *objective)
            except DataUnavailable as error:
                yield name, str(error)


def _datasets(block: Block) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, given in _named(block.dataset):
        usual = usual_of(name, given)
        axes = {
            key: [
                like(f"dataset.{key}", v, usual.get(key))
                for v in values_of(
                    f"dataset.{key}", value, [] if key in LISTS else usual.get(key)
                )
            ]
            for key, value in given.items()
        }
        for overrides in product(axes):
            yield name, overrides


def _parts(part: str, choices: Any) -> Iterator[dict[str, Any]]:
    for name, fields in _named(choices):
        name = registry.pinned(name, part) if is_file(name) else name
        axes = {
            key: [v] if is_matrix(v) else values_of(f"{part}.{key}", v)
            for key, v in fields.items()
        }
        yield from ({"name": name, **point} for point in product(axes))


def _named(choices: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and parameters of each choice; a mapping may have several names."""
    for choice in choices if is_list(choices) else [choices]:
        fields = dict(choice) if isinstance(choice, Mapping) else {"name": choice}
        names = fields.pop("name")
        yield from ((name, fields) for name in (names if is_list(names) else [names]))
