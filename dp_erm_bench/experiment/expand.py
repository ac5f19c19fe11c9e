"""Blocks to cases: the product of all axes that are not tuned over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.spec import LISTS
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.axes import (
    check_keys,
    is_matrix,
    like,
    named,
    product,
    relative,
    seeds_of,
    usual_of,
    values_of,
)
from dp_erm_bench.experiment.lines import Case, NotRun
from dp_erm_bench.experiment.parameters import check_parameter, normalised
from dp_erm_bench.experiment.problem_specs import ProblemSpec, problem_spec_of
from dp_erm_bench.experiment.schema import Tune, tune_of
from dp_erm_bench.experiment.studies import Study, study_of
from dp_erm_bench.plugins.names import absolute, label

KEYS = (
    "panel",
    "line",
    "dataset",
    "loss",
    "penalty",
    "constraint",
    "algorithm",
    "budget",
    "calibration",
    "seed",
    "tune",
    "task",
)
OBJECTIVE = {"loss": "auto", "penalty": "auto", "constraint": "none"}
BUDGET = {"epsilon": 1.0, "delta": "1/n^2", "adjacency": "replace_one"}


Wanted = Case | Study
"""What a block asks for: fits of one line, or the trials of a task."""


def expand(blocks: Sequence[Mapping[str, Any]]) -> tuple[list[Wanted], list[NotRun]]:
    """Return the cases and studies of all blocks, and the cases that cannot run.

    Parameters
    ----------
    blocks : sequence of mapping
        As `run_experiment` takes them.

    Raises
    ------
    UsageError
        For unknown names and keys, values out of range, empty axes.
    """
    cases: list[Wanted] = []
    missing: dict[NotRun, None] = {}
    for block in blocks:
        for found in _lines(block):
            if isinstance(found, NotRun):
                missing[found] = None
            else:
                cases.append(found)
    _check_called_once({case.algorithm for case in cases if case.algorithm})
    return cases, list(missing)


def _lines(block: Mapping[str, Any]) -> Iterator[Wanted | NotRun]:
    check_keys("block", block, KEYS)
    if block.get("task") is None:
        yield from _cases(block)
    else:
        yield study_of(block)


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


def _cases(block: Mapping[str, Any]) -> Iterator[Case | NotRun]:
    panel, line = (str(block.get(key) or "") for key in ("panel", "line"))
    tune = _tune(block, panel)
    seeds = () if tune else seeds_of("seed", block.get("seed", 0))
    lines = [*itertools.product(_algorithms(block, tune), _privacy(block))]
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


def _tune(block: Mapping[str, Any], panel: str) -> Tune | None:
    if block.get("tune") is None:
        return None
    if block.get("seed") is not None:
        raise UsageError("block.seed: a block with `tune` has its seeds there")
    return tune_of(block["tune"], panel)


Values = Mapping[str, tuple[Any, ...]]
Open = tuple[Mapping[str, Any], Values]
Axis = list[Any] | Mapping[str, Any]
"""Normalised values, or {"multiples": [...]} of the unit gradient_rms."""


def _algorithms(
    block: Mapping[str, Any], tune: Tune | None
) -> Iterator[tuple[str, dict[str, Axis], dict[str, Axis]]]:
    tuned = dict(tune.axes) if tune else {}
    inherited = tune.inherit.parameters if tune and tune.inherit else ()
    for name, given in named("algorithm", block.get("algorithm"), ""):
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


def _privacy(block: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    given = block.get("budget") or {}
    check_keys("budget", given, tuple(BUDGET))
    axes = {
        key: values_of(f"budget.{key}", given.get(key, default))
        for key, default in BUDGET.items()
    }
    calibrations = values_of("calibration", block.get("calibration") or "certified")
    for calibration in calibrations:
        registry.check_choice("calibration", calibration, registry.names("calibration"))
    budgets = [Budget(**point).spec for point in product(axes)]
    return list(itertools.product(budgets, calibrations))


def _problem_specs(block: Mapping[str, Any]) -> Iterator[tuple[str, ProblemSpec | str]]:
    objectives = list(itertools.product(*(_parts(block, part) for part in OBJECTIVE)))
    for name, overrides in _datasets(block):
        for objective in objectives:
            try:
                yield name, problem_spec_of(name, overrides, *objective)
            except DataUnavailable as error:
                yield name, str(error)


def _datasets(block: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, given in named("dataset", block.get("dataset"), ""):
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


def _parts(block: Mapping[str, Any], part: str) -> list[dict[str, Any]]:
    found = []
    for name, fields in named(part, block.get(part), OBJECTIVE[part]):
        axes = {
            key: [v] if is_matrix(v) else values_of(f"{part}.{key}", v)
            for key, v in fields.items()
        }
        found += [{"name": name, **point} for point in product(axes)]
    return found
