"""The Python interface: problems by name, and single fits."""

import functools
import secrets
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget, number_or_nan
from dp_erm_bench.datasets.base import Dataset, real_numbers
from dp_erm_bench.datasets.prepare import clipping_warning, wide_bounds_sentence
from dp_erm_bench.datasets.spec import default_bounds
from dp_erm_bench.errors import (
    ClippedRecords,
    NoGain,
    UncheckedSolver,
    UsageError,
    WideBounds,
    in_python,
    value_error,
)
from dp_erm_bench.experiment.automatic import resolve_auto, untuned_sentence
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.parameters import (
    algorithm_of,
    check_epsilon,
    check_lengths,
    normalise_parameter,
    overrides_of,
    own_problem,
    with_defaults,
)
from dp_erm_bench.fitted import FitResult, one_thread, result_of
from dp_erm_bench.plugins.passed import doubtful_sentence, unchecked_sentence
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm import build
from dp_erm_bench.problems.erm.problem import ERMProblem, feature_names
from dp_erm_bench.registry import AUTO
from dp_erm_bench.run import Run

CHECKPOINTS = 51


def load_problem(
    dataset: str,
    loss: str | Mapping[str, Any] = "auto",
    penalty: str | Mapping[str, Any] = "auto",
    constraint: str | Mapping[str, Any] = "none",
    problem: str = registry.ERM,
    **overrides: Any,
) -> Problem:
    """Return the problem of a dataset of conf/ and an objective.

    Parameters
    ----------
    dataset : str
        A name of conf/dataset.
    loss, penalty, constraint : str or mapping
        Names of conf/, or mappings with ``name`` and parameters, such as
        ``{'name': 'l2', 'strength': '1/n'}``. ``auto``: the dataset's usual
        objective.
    problem : str
        Its kind, a name of conf/problem; ``mean`` has no objective.
    **overrides
        Keys of the dataset's yaml, such as ``standardise=True`` or ``seed=3``;
        ``name`` where a dataset stands for many, as in ``load_problem('libsvm',
        name='a9a')``. ``bounds='default'`` clips records to the bounds of the yaml.

    Raises
    ------
    UsageError
        For unknown names or wrong values.
    DataUnavailable
        If the dataset is unavailable; the message says how to get it.
    """
    if not isinstance(dataset, str):
        registry.check_choice("dataset", dataset, registry.names("dataset"))
    keys = {key: _python_number(value) for key, value in overrides.items()}
    name = f"{dataset}:{keys.pop('name')}" if "name" in keys else dataset
    objective = {"loss": loss, "penalty": penalty, "constraint": constraint}
    try:
        return own_problem(name, overrides_of(name, keys), objective, problem)
    except UsageError as error:
        raise in_python(error) from None


@functools.wraps(build.erm_from_arrays)
def problem_from_arrays(X: Any, y: Any, **how: Any) -> ERMProblem:
    """Return the problem of a user's own data, its sentences in words of Python."""
    try:
        shape = X.shape if hasattr(X, "shape") else np.shape(real_numbers("X", X))
        if len(shape) != 2:
            raise UsageError(f"X of shape {tuple(shape)}: must be (n, p)")
        return build.erm_from_arrays(X, y, **how)
    except UsageError as error:
        raise in_python(error) from None


def fit(
    problem: Problem,
    algorithm: str,
    *,
    epsilon: float,
    delta: float | str = "1/n^2",
    adjacency: str = "replace_one",
    calibration: str = "certified",
    seed: int | None = None,
    **params: Any,
) -> FitResult:
    """Run one algorithm once, on one thread, as a sweep's trial is run.

    With a seed its numbers are, to the bit, those of the trial run alone.

    Parameters
    ----------
    problem : Problem
    algorithm : str
        A name of conf/algorithm, the path of a file with a solver of your own, or
        ``'auto'``: what is expected to be best for what is public of the problem
        (docs/tuning.md); it takes no parameters.
    epsilon : float
        The budget; ``inf``: noise exactly 0.
    delta : float or str
        A number, or '1/n^2'.
    adjacency : {'replace_one', 'zero_out'}
    calibration : {'certified', 'paper', 'authors'}
        ``certified``: the least noise that is proved to keep the budget.
        ``paper``: the constant printed in the algorithm's paper. ``authors``: the
        noise of the authors' code.
    seed : int, optional
        By default 128 secret bits. A seeded run is reproducible and therefore not
        private: who knows the seed can subtract the noise.
    **params
        Parameters of the algorithm; ``dp-erm-bench list`` names them. ``'auto'``, the
        default of some: what a rule makes of public numbers; ``params`` of the result
        holds what it was. Numbers of numpy are as good as Python's, for these and for
        the seed.

    Raises
    ------
    Unsupported
        If the algorithm cannot serve the problem under this budget.
    UsageError
        For unknown names or values out of range.
    NotUsed
        If the algorithm, one of your own, used a mechanism less often than it declared:
        what is certified was not run.
    Diverged
        If an iterate is not finite: nothing is published. It has the seconds and the
        certificate of what was spent.

    Warns
    -----
    ClippedRecords
        If declared bounds changed more than a tenth of the records.
    WideBounds
        If all records are below a hundredth of a declared bound.
    NoGain
        If parameters that nobody gave are expected to end no better than w = 0, or no
        rule gives them.
    """
    _check_problem(problem)
    data = getattr(problem, "dataset", None)
    if isinstance(data, Dataset):
        if told := clipping_warning(data.clipping, feature_names(data)):
            warnings.warn(told, ClippedRecords, stacklevel=2)
        if told := wide_bounds_sentence(data, feature_names(data)):
            warnings.warn(f"bounds: {told}", WideBounds, stacklevel=2)
    given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": seed}
    given |= {"adjacency": adjacency, "calibration": calibration}
    return fit_quietly(problem, algorithm, **given, **params)


def fit_quietly(
    problem: Problem,
    algorithm: str,
    *,
    epsilon: float,
    delta: float | str,
    adjacency: str,
    calibration: str = "certified",
    seed: int | None,
    **params: Any,
) -> FitResult:
    """Return what `fit` does, without a word about clipped records."""
    registry.check_choice("calibration", calibration, registry.names("calibration"))
    for key, value in (("epsilon", epsilon), ("delta", delta)):
        try:
            _refuse_text(key, value, number_or_nan(value))
        except OverflowError:  # an integer beyond all floats
            raise value_error(key, value, "a number that a float holds") from None
    budget = Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)  # type: ignore[arg-type]
    check_epsilon(budget.epsilon)
    if algorithm == AUTO:
        algorithm, params = resolve_auto(problem, budget.spec, params)
    pin = registry.pin_choice(algorithm)
    values = {key: _typed_parameter(pin, key, v) for key, v in params.items()}
    check_lengths(pin, values)
    values = with_defaults(pin, values)
    line = FitLine(pin, problem, values, budget.spec, calibration)
    if told := untuned_sentence(line):
        warnings.warn(told, NoGain, stacklevel=3)
    return _fit_line(line, budget, _python_number(seed), unchecked_sentence([pin]))


def _fit_line(line: FitLine, budget: Budget, seed: Any, doubt: str) -> FitResult:
    if doubt:
        warnings.warn(doubt, UncheckedSolver, stacklevel=4)
    solver = algorithm_of(line.algorithm).solver(line.params)
    if seed is None:
        identity = secrets.token_hex(16)
    elif isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"seed={seed}: must be an integer >= 0, or None")
    else:
        identity = line.setting().identity(seed)
    with one_thread():
        try:
            run = Run(line.problem, [solver], budget, line.calibration, [identity])
            solved = run.record(CHECKPOINTS)
        except UsageError as error:
            hint = _default_bounds_hint(line.problem) * (LACKS_BOUNDS in str(error))
            raise in_python(type(error)(f"{error}{hint}")) from None
        pin, seeded = line.algorithm, seed is not None
        of = {"algorithm": pin, "rule": line.rule}
        result = result_of(solved, 0, reproducible=seeded, **of)
    if result.doubt and not doubt:  # of what these parameters release
        said = doubtful_sentence([result.algorithm], result.doubt)
        warnings.warn(said, UncheckedSolver, stacklevel=4)
    return result


LACKS_BOUNDS = "declared bounds"


def _default_bounds_hint(problem: Problem) -> str:
    """Return how to have the default bounds of a shipped dataset without any."""
    spec = getattr(problem, "spec", {}).get("dataset", {})
    name = str(spec.get("name"))
    if spec.get("bounds") is not None or default_bounds(name, spec) is None:
        return ""
    return f"; load_problem({name!r}, bounds='default') takes those of its yaml"


def _typed_parameter(algorithm: str, key: str, value: Any) -> Any:
    """Return a parameter as its field has it; a number in quotes is none."""
    found = normalise_parameter(algorithm, key, _python_number(value))
    _refuse_text(key, value, found)
    return found


def _refuse_text(key: str, value: Any, meant: Any) -> None:
    """Refuse a text that only looks like a finite number."""
    if isinstance(value, str) and isinstance(meant, int | float) and np.isfinite(meant):
        raise value_error(key, repr(value), f"a number, not a text; write {value}")


def _check_problem(problem: object) -> None:
    if isinstance(problem, Problem):
        return
    if isinstance(problem, str):
        raise value_error(
            "problem", problem, f"a Problem, as load_problem({problem!r}) is"
        )
    allowed = "a Problem, as problem_from_arrays(X, y, loss='logistic') makes of arrays"
    raise value_error("problem", type(problem).__name__, allowed)


def _python_number(value: Any) -> Any:
    """Return a number of numpy as Python's, anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value
