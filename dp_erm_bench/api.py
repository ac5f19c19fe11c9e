"""The Python interface: problems by name, and single fits."""

import functools
import secrets
import sys
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import UncheckedSolver, UsageError, refused
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.parameters import normalised, overrides_of
from dp_erm_bench.plugins.passed import unchecked
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.build import problem_of
from dp_erm_bench.releases.base import Release
from dp_erm_bench.run import Run
from dp_erm_bench.runner.execute import solver_of, trajectory, uncharged

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
CHECKPOINTS = 51


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a fit.

    Attributes
    ----------
    w : array of shape (p,)
        The last published iterate; read-only.
    epsilon_certified : float
        The epsilon proved for the mechanisms that were run, at the budget's delta,
        with all that ``uncharged`` lists taken as public. Infinite at epsilon=inf.
    releases : tuple of Release
        The published releases with their sensitivities.
    reproducible : bool
        Whether there was a seed. A seeded run is reproducible, hence not private.
    calibration : str
        The calibration of the noise, with a note if a printed constant is not proved.
    accountant : str
        The accountant that proved ``epsilon_certified``.
    uncharged : tuple of str
        Uses of the data that the budget does not pay for.
    checked : bool
        Whether the algorithm is the package's own or has passed ``dp-erm-bench check``;
        otherwise ``epsilon_certified`` rests on the solver's own declarations.
    columns : mapping
        The columns of ``trajectory`` but the optimum and the relative error.
    problem : Problem or None
        The problem, with the smoothness constants of the fit. A pickled result has
        none: its trajectory was made before.
    """

    w: Array
    epsilon_certified: float
    releases: tuple[Release, ...]
    reproducible: bool
    calibration: str
    accountant: str
    uncharged: tuple[str, ...]
    checked: bool
    columns: Mapping[str, list[Any]] = field(repr=False)
    problem: Problem | None = field(repr=False)

    @functools.cached_property
    def trajectory(self) -> "pd.DataFrame":
        """Return one row per checkpoint, made when it is first read.

        iteration, passes, seconds, objective, optimum, relative_error, nnz; where there
        is a test set test_objective, test_risk, test_accuracy, balanced_accuracy, auc.
        They are computed from the data at published iterates: they are not private.
        """
        # Not at the top: importing it takes longer than a fit.
        import pandas as pd

        assert self.problem is not None
        with one_thread():
            optimum = self.problem.optimum.value
        frame = pd.DataFrame(self.columns)
        frame = frame.astype({key: float for key in frame if frame[key].dtype == "O"})
        frame["optimum"] = np.nan if optimum is None else optimum
        frame["relative_error"] = frame["objective"] / frame["optimum"] - 1.0
        return frame

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields and the trajectory, without the problem's records."""
        return {"trajectory": self.trajectory, **vars(self), "problem": None}


def load_problem(
    dataset: str,
    loss: str | Mapping[str, Any] = "auto",
    penalty: str | Mapping[str, Any] = "auto",
    constraint: str | Mapping[str, Any] = "none",
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
    **overrides
        Keys of the dataset's yaml, such as ``standardise=True`` or ``seed=3``;
        ``name`` where a dataset stands for many, as in ``load_problem('libsvm',
        name='a9a')``.

    Raises
    ------
    UsageError
        For unknown names or wrong values.
    DataUnavailable
        If the dataset is unavailable; the message says how to get it.
    """
    if not isinstance(dataset, str):
        registry.check_choice("dataset", dataset, registry.names("dataset"))
    keys = {key: _plain(value) for key, value in overrides.items()}
    name = f"{dataset}:{keys.pop('name')}" if "name" in keys else dataset
    data = dataset_spec(name, **overrides_of(name, keys))
    objective = {"loss": loss, "penalty": penalty, "constraint": constraint}
    return problem_of({"dataset": data, **objective})


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
        A name of conf/algorithm, or the path of a file with a solver of your own.
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
        Parameters of the algorithm; ``dp-erm-bench list`` names them. Numbers of
        numpy are as good as Python's, for these and for the seed.

    Raises
    ------
    Unsupported
        If the algorithm cannot serve the problem under this budget.
    UsageError
        For unknown names or values out of range.
    """
    _check_problem(problem)
    registry.check_choice("calibration", calibration, registry.names("calibration"))
    pin = registry.pinned(algorithm)
    values = {key: normalised(pin, key, _plain(v)) for key, v in params.items()}
    budget = Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)  # type: ignore[arg-type]
    line = FitLine(pin, problem, values, budget.spec, calibration)
    return _fitted(line, budget, _plain(seed), unchecked([pin]))


def _fitted(line: FitLine, budget: Budget, seed: Any, doubt: str) -> FitResult:
    if doubt:
        warnings.warn(doubt, UncheckedSolver, stacklevel=3)
    how = ([solver_of(line.base)], budget, line.base["calibration"])
    if seed is None:
        identity = secrets.token_hex(16)
    elif isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"seed={seed}: must be an integer >= 0, or None")
    else:
        identity = line.setting().identity(seed)
    with one_thread():
        solved = Run(line.problem, *how, [identity]).record(CHECKPOINTS)
        return result_of(solved, 0, seed is not None, not doubt)


def _check_problem(problem: object) -> None:
    if not isinstance(problem, Problem):
        name = problem if isinstance(problem, str) else type(problem).__name__
        allowed = "a Problem, of load_problem or problem_from_arrays"
        raise refused("problem", name, allowed)


def _plain(value: Any) -> Any:
    """Return a number of numpy as Python's, anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def one_thread() -> AbstractContextManager[Any]:
    """Return the context in which linear algebra uses one thread."""
    limited: AbstractContextManager[Any]
    limited = _libraries(frozenset(sys.modules)).limit(limits=1)
    return limited


@functools.lru_cache(maxsize=1)
def _libraries(modules: frozenset[str]) -> ThreadpoolController:
    """Return the libraries with threads, found anew after an import: it takes long."""
    return ThreadpoolController()


def result_of(solved: Run, b: int, reproducible: bool, checked: bool) -> FitResult:
    """Return the fit result of trial b of a batch."""
    problem, calibration = solved.problem, solved.calibration
    columns = {k: v for k, v in trajectory(solved.rows, b).items() if v}
    w = solved.rows.w[b].copy()
    w.setflags(write=False)
    return FitResult(
        w=w,
        epsilon_certified=calibration.epsilon_certified,
        releases=(*solved.shares, *solved.releases),
        reproducible=reproducible,
        calibration=calibration.label,
        accountant=calibration.accountant,
        uncharged=tuple(uncharged(problem, solved.solvers[b])),
        checked=checked,
        columns=columns,
        problem=problem,
    )
