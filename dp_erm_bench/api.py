"""The Python interface: load problems by name and fit a model once."""

import functools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget, number_or_nan
from dp_erm_bench.datasets.base import Dataset, real_numbers
from dp_erm_bench.datasets.prepare import clipping_warning, wide_bounds_sentence
from dp_erm_bench.datasets.spec import default_bounds
from dp_erm_bench.errors import (
    ClippedRecords,
    Diverged,
    NoGain,
    UncheckedSolver,
    UsageError,
    WideBounds,
    in_python,
    value_error,
    warn_user,
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

CHECKPOINTS = 11
"""Largest number of rows of a fit's trajectory; a sweep records more."""

MOST = 32
"""Largest number of fits in lock-step, as in a sweep."""


def load_problem(
    dataset: str,
    loss: str | Mapping[str, Any] = "auto",
    penalty: str | Mapping[str, Any] = "auto",
    constraint: str | Mapping[str, Any] = "none",
    problem: str = registry.ERM,
    **overrides: Any,
) -> Problem:
    """Return a problem: a shipped dataset together with an objective.

    Parameters
    ----------
    dataset : str
        A name of conf/dataset.
    loss, penalty, constraint : str or mapping
        Names of conf/, or mappings with ``name`` and parameters, such as
        ``{'name': 'l2', 'strength': '1/n'}``. ``auto`` is the dataset's usual choice.
    problem : str
        The kind of problem, a name of conf/problem. ``mean`` has no objective.
    **overrides
        Keys of the dataset's yaml to replace, such as ``standardise=True`` or
        ``seed=3``. For a collection of datasets, ``name`` chooses one of them, as in
        ``load_problem('libsvm', name='a9a')``. ``bounds='default'`` clips records to
        the bounds of the yaml.

    Returns
    -------
    Problem
        The problem, ready for `fit`.

    Raises
    ------
    UsageError
        For unknown names or wrong values.
    DataUnavailable
        If the dataset is unavailable. The message says how to get it.

    Examples
    --------
    Take a generated dataset with its usual loss and a penalty of your choice::

        problem = load_problem("log1", penalty={"name": "l2", "strength": 0.01})
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
    """Return the problem of a user's own data. Errors name the arguments in Python."""
    try:
        shape = X.shape if hasattr(X, "shape") else np.shape(real_numbers("X", X))
        if len(shape) != 2:
            raise UsageError(f"X of shape {tuple(shape)}: must be (n, p)")
        return build.erm_from_arrays(X, y, **how)
    except UsageError as error:
        raise in_python(error) from None


@overload
def fit(
    problem: Problem,
    algorithm: str,
    *,
    epsilon: float,
    delta: float | str = ...,
    adjacency: str = ...,
    calibration: str = ...,
    seed: int | None = ...,
    checkpoints: int = ...,
    **params: Any,
) -> FitResult: ...


@overload
def fit(
    problem: Problem,
    algorithm: str,
    *,
    epsilon: float,
    delta: float | str = ...,
    adjacency: str = ...,
    calibration: str = ...,
    seed: Sequence[int] | NDArray[np.integer[Any]],
    checkpoints: int = ...,
    **params: Any,
) -> list[FitResult | Diverged]: ...


def fit(
    problem: Problem,
    algorithm: str,
    *,
    epsilon: float,
    delta: float | str = "1/n^2",
    adjacency: str = "replace_one",
    calibration: str = "certified",
    seed: int | Sequence[int] | NDArray[np.integer[Any]] | None = None,
    checkpoints: int = CHECKPOINTS,
    **params: Any,
) -> FitResult | list[FitResult | Diverged]:
    """Fit a model with one algorithm on one thread, once or once for each seed.

    This runs the same code as one trial of a sweep. With the seed of a trial, the
    numbers are bit for bit those of the trial, if it is run alone.

    Parameters
    ----------
    problem : Problem
        The result of `load_problem`, `problem_from_arrays` or `problem_from_records`.
    algorithm : str
        A name of conf/algorithm, or the path of a file with a solver of your own.
        ``'auto'`` uses the algorithm that is expected to be best, judged by public
        numbers of the problem (docs/auto.md); parameters must not be given then.
    epsilon : float
        Privacy budget. With ``inf`` the noise is exactly 0.
    delta : float or str
        A number, or '1/n^2'.
    adjacency : {'replace_one', 'zero_out'}
        Neighbouring datasets differ in one exchanged record, or in one record whose
        contribution to every sum is replaced by zero.
    calibration : {'certified', 'paper', 'authors'}
        ``certified``: the smallest noise that is proved to keep the budget.
        ``paper``: the constant printed in the algorithm's paper. ``authors``: the
        noise of the authors' code.
    seed : int or sequence of int, optional
        Seed of the noise, at least 0. None uses 128 secret random bits. A seeded run
        is reproducible and therefore not private: anyone who knows the seed can
        subtract the noise. A list or range of different seeds gives one fit for each.
        These fits run together where the algorithm can do that, which is faster.
    checkpoints : int
        Largest number of rows of the trajectory, at least 2. A sweep records 51.
    **params
        Parameters of the algorithm; ``dp-erm-bench list`` names them. If a value is
        ``'auto'``, which is the default of some parameters, a rule computes it from
        public numbers. The attribute ``params`` of the result contains the values that
        were used. NumPy numbers are accepted for the parameters and for the seed.

    Returns
    -------
    FitResult, or list of FitResult and Diverged
        The weights, the certified epsilon and the trajectory. For several seeds, a
        list in the order of the seeds. It contains the exception `Diverged` in place
        of a fit that diverged. The noise and the certificates are those of single
        fits. So are the weights up to rounding, unless selections without noise tie.

    Raises
    ------
    Unsupported
        If the algorithm cannot solve the problem under this budget.
    UsageError
        For unknown names or values out of range.
    NotUsed
        If a solver of your own used a mechanism less often than it declared. The run
        then differs from the certified run.
    Diverged
        If an iterate is not finite. Nothing is published then; the exception contains
        the run time and the certificate of the budget that was spent.

    Warns
    -----
    ClippedRecords
        If declared bounds changed more than a tenth of the records.
    WideBounds
        If all records are below a hundredth of a declared bound.
    NoGain
        If you did not set the parameters, and either the run is expected to end no
        better than w = 0, or no rule can choose them.

    Examples
    --------
    Fit by private gradient descent and read the guarantee and the weights::

        problem = load_problem("log1", bounds="default")
        result = fit(problem, "gd", epsilon=1.0)
        result.epsilon_certified, result.w
    """
    _check_problem(problem)
    data = getattr(problem, "dataset", None)
    if isinstance(data, Dataset):
        if told := clipping_warning(data.clipping, feature_names(data)):
            warn_user(told, ClippedRecords)
        if told := wide_bounds_sentence(data, feature_names(data)):
            warn_user(f"bounds: {told}", WideBounds)
    given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": seed}
    given |= {"adjacency": adjacency, "calibration": calibration}
    given |= {"checkpoints": checkpoints}
    results = fit_quietly(problem, algorithm, **given, **params)
    return results if is_sequence(seed) else only_result(results)


def only_result(results: list[FitResult | Diverged]) -> FitResult:
    """Return the only result of a list; raise it if the fit diverged."""
    (result,) = results
    if isinstance(result, Diverged):
        raise result
    return result


def fit_quietly(
    problem: Problem,
    algorithm: str,
    *,
    epsilon: float,
    delta: float | str,
    adjacency: str,
    calibration: str = "certified",
    seed: int | Sequence[int] | NDArray[np.integer[Any]] | None,
    checkpoints: int = CHECKPOINTS,
    **params: Any,
) -> list[FitResult | Diverged]:
    """Run `fit` without its warnings about clipped records and wide bounds.

    Parameters
    ----------
    problem, algorithm, epsilon, delta, adjacency, calibration, checkpoints
        As for `fit`.
    seed : int, sequence of int, or None
        As for `fit`; None uses secret random bits.
    **params
        Parameters of the algorithm.

    Returns
    -------
    list of FitResult and Diverged
        One entry for each seed.
    """
    registry.check_choice("calibration", calibration, registry.names("calibration"))
    for key, value in (("epsilon", epsilon), ("delta", delta)):
        try:
            _refuse_text(key, value, number_or_nan(value))
        except OverflowError:  # an integer that is too large for a float
            raise value_error(key, value, "a number that a float holds") from None
    budget = Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)  # type: ignore[arg-type]
    check_epsilon(budget.epsilon)
    checkpoints = _python_number(checkpoints)
    if type(checkpoints) is not int or checkpoints < 2:
        raise value_error("checkpoints", checkpoints, "an integer >= 2")
    if algorithm == AUTO:
        algorithm, params = resolve_auto(problem, budget.spec, params)
    pin = registry.pin_choice(algorithm)
    values = {key: _typed_parameter(pin, key, v) for key, v in params.items()}
    check_lengths(pin, values)
    values = with_defaults(pin, values)
    line = FitLine(pin, problem, values, budget.spec, calibration)
    if told := untuned_sentence(line):
        warn_user(told, NoGain)
    doubt = unchecked_sentence([pin])
    return _fit_line(line, budget, _checked_seeds(seed), checkpoints, doubt)


def is_sequence(seed: Any) -> bool:
    """Return whether a seed stands for several: a list, tuple, range or array."""
    return isinstance(seed, list | tuple | range | np.ndarray) and np.ndim(seed) > 0


def _checked_seeds(seed: Any) -> list[Any]:
    """Return all seeds as integers; None for a secret one."""
    several = is_sequence(seed)
    seeds = [_python_number(one) for one in (seed if several else [seed])]
    wrong = any(isinstance(k, bool) or not isinstance(k, int) or k < 0 for k in seeds)
    if several and (wrong or len({*seeds}) < len(seeds) or not seeds):
        raise UsageError(f"seed={seed}: must be a list of different integers >= 0")
    if wrong and seeds[0] is not None:
        raise UsageError(f"seed={seed}: must be an integer >= 0, or None")
    return seeds


def _fit_line(
    line: FitLine, budget: Budget, seeds: list[Any], checkpoints: int, doubt: str
) -> list[FitResult | Diverged]:
    if doubt:
        warn_user(doubt, UncheckedSolver)
    solver = algorithm_of(line.algorithm).solver(line.params)
    identities = [
        secrets.token_hex(16) if seed is None else line.setting().identity(seed)
        for seed in seeds
    ]
    size = MOST if solver.batchable else 1
    of = {"algorithm": line.algorithm, "rule": line.rule}
    results: list[FitResult | Diverged] = []
    with one_thread():
        for start in range(0, len(seeds), size):
            names = identities[start : start + size]
            how = ([solver] * len(names), budget, line.calibration, names)
            try:
                solved = Run(line.problem, *how).record(checkpoints)
            except UsageError as error:
                hint = _default_bounds_hint(line.problem) * (LACKS_BOUNDS in str(error))
                raise in_python(type(error)(f"{error}{hint}")) from None
            for b in range(len(names)):
                seeded = seeds[0] is not None
                try:
                    results.append(result_of(solved, b, reproducible=seeded, **of))
                except Diverged as error:
                    results.append(error.with_traceback(None))  # it holds records
    ended = [one for one in results if isinstance(one, FitResult)]
    if ended and ended[0].doubt and not doubt:  # about releases with these parameters
        said = doubtful_sentence([ended[0].algorithm], ended[0].doubt)
        warn_user(said, UncheckedSolver)
    return results


LACKS_BOUNDS = "declared bounds"


def _default_bounds_hint(problem: Problem) -> str:
    """Return a hint on `bounds='default'` for a shipped dataset without bounds."""
    spec = getattr(problem, "spec", {}).get("dataset", {})
    name = str(spec.get("name"))
    if spec.get("bounds") is not None or default_bounds(name, spec) is None:
        return ""
    return f"; load_problem({name!r}, bounds='default') takes those of its yaml"


def _typed_parameter(algorithm: str, key: str, value: Any) -> Any:
    """Return a parameter in the type of its field.

    Raise UsageError for a number in quotes.
    """
    found = normalise_parameter(algorithm, key, _python_number(value))
    _refuse_text(key, value, found)
    return found


def _refuse_text(key: str, value: Any, meant: Any) -> None:
    """Raise UsageError for a string that only looks like a finite number."""
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
    """Return a NumPy number as a Python number, and other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value
