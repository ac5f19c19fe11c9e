"""The result of a single fit: the model, its privacy guarantee and its trajectory."""

import copy
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.base import Uncharged
from dp_erm_bench.errors import Diverged, Unsupported
from dp_erm_bench.paths import spell_infinities
from dp_erm_bench.plugins import passed
from dp_erm_bench.plugins.names import label_of
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.base import Release
from dp_erm_bench.run import Run
from dp_erm_bench.runner.execute import trajectory_rows, uncharged_uses

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
CONSTANTS = (Uncharged.SMOOTHNESS, Uncharged.SMOOTHNESS_BOUNDS)
"""Uses of the data from which sensitivities may be computed."""

WITHHELD = (
    "trajectory: was left out when the result was pickled, since its objectives are "
    "computed from records that nobody declared public; read it in the process of the "
    "fit, or declare public=True"
)
SHOWN = 3
"""Number of weights in the repr."""


@dataclass(frozen=True, eq=False, repr=False)
class FitResult:
    """The result of a fit.

    Attributes
    ----------
    w : array of shape (p,)
        The last published iterate; read-only.
    epsilon_certified : float
        The epsilon proved for the mechanisms that were run, at the budget's delta, if
        all that ``uncharged`` lists is public. Infinite at epsilon=inf.
    releases : tuple of Release
        The published noisy quantities with their sensitivities.
    reproducible : bool
        Whether the run was seeded. A seeded run is reproducible, hence not private.
    calibration : str
        The calibration of the noise, with a note if a constant stated in a paper is not
        proved.
    accountant : str
        The accountant that proved ``epsilon_certified``.
    uncharged : tuple of str
        Uses of the data that the budget does not pay for.
    checked : bool
        Whether the algorithm is the package's own or has passed ``dp-erm-bench check``,
        and nothing is in doubt.
    doubt : str
        ``not checked``, ``checked, release not recounted``, or ``checked, uncharged:``
        with the uses that the solver declares; empty if ``checked``.
    columns : mapping
        The columns of ``trajectory``, except the optimum and the relative error.
    problem : Problem or None
        The problem, with the smoothness constants of the fit. None in a pickled result,
        which may keep its trajectory (see `trajectory`).
    algorithm : str
        Name of the algorithm.
    budget : Budget
        The privacy budget, with delta as a number.
    n : int
        The number of records, which is public.
    title : str
        Name and size of the problem.
    model : LinearModel or None
        The linear model that predicts with ``w``; None for a problem without
        predictions.
    params : mapping
        All parameters of the algorithm, with numbers in place of `auto`.
    rule : str
        Version of the rule that chose parameters, with their names, as in
        ``gd-3: n_iter step``. Empty if no rule chose parameters.
    """

    w: Array
    epsilon_certified: float
    releases: tuple[Release, ...]
    reproducible: bool
    calibration: str
    accountant: str
    uncharged: tuple[str, ...]
    checked: bool
    doubt: str
    columns: Mapping[str, list[Any]]
    problem: Problem | None
    algorithm: str
    budget: Budget
    n: int
    title: str
    model: Any
    params: Mapping[str, Any]
    rule: str

    def __repr__(self) -> str:
        """Return three lines: the fit, its guarantee, its largest weights."""
        budget = self.budget
        weights = self.model.weights if self.model else dict(enumerate(self.w.tolist()))
        largest = sorted(weights, key=lambda name: -abs(weights[name]))[:SHOWN]
        uses = f"uncharged: {', '.join(self.uncharged) or 'none'}"
        doubt = f", algorithm {self.doubt}" if self.doubt else ""
        seeded = ", seeded: not private" if self.reproducible else ""
        return (
            f"FitResult of {self.algorithm} on {self.title}\n"
            f"epsilon {self.epsilon_certified:.4g} ({self.calibration}) at delta "
            f"{budget.delta:.3g}, {budget.adjacency}; {uses}{doubt}{seeded}\n"
            f"{np.count_nonzero(self.w)} of {self.w.size} weights are not 0, the "
            f"largest: {', '.join(f'{k} {weights[k]:+.3g}' for k in largest)}"
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the names of the p features; ``intercept`` names an added constant."""
        names: tuple[str, ...] = self._linear_model().feature_names
        return names

    def decision_function(self, X: Any) -> Array:
        """Return the margins of records, shape (n,); see `LinearModel`."""
        margins: Array = self._linear_model().decision_function(X)
        return margins

    def predict(self, X: Any) -> Array:
        """Return labels -1 or +1, or margins for a regression; see `LinearModel`."""
        answers: Array = self._linear_model().predict(X)
        return answers

    def score(self, X: Any, y: ArrayLike) -> float:
        """Return the accuracy, or R^2 for a regression; see `LinearModel`."""
        return float(self._linear_model().score(X, y))

    def _linear_model(self) -> Any:
        if self.model is None:
            raise Unsupported(f"{self.title}: its solutions predict nothing of records")
        return self.model

    @functools.cached_property
    def trajectory(self) -> "pd.DataFrame":
        """Return a table with one row per checkpoint, computed on first access.

        All tables have the columns iteration, passes, seconds, objective, optimum,
        relative_error and nnz. Further columns, if they apply:

        - with a test set: test_objective, test_risk, test_accuracy, balanced_accuracy
          and auc; for a regression rmse and r2;
        - if the loss is not convex: gradient_norm;
        - for dual_frank_wolfe: dual_gap; for newton: predicted_excess;
        - if the true weights are known: support_f1;
        - for the penalty groups: active_groups; for range: change_points.

        The columns are computed from the data at published iterates, so they are not
        private. The exception is predicted_excess, which is computed from what was
        published. A pickled result has the table only if its data are public, that is,
        published, generated, or declared public.

        Raises
        ------
        AttributeError
            If the result was pickled and its data are not public.
        """
        if self.problem is None:
            raise AttributeError(WITHHELD)
        # Imported here because it takes longer than a fit.
        import pandas as pd

        with one_thread():
            optimum = self.problem.optimum.value
        frame = pd.DataFrame(self.columns)
        frame = frame.astype({key: float for key in frame if frame[key].dtype == "O"})
        frame["optimum"] = np.nan if optimum is None else optimum
        positive = frame["optimum"].where(frame["optimum"] > 0.0)
        frame["relative_error"] = frame["objective"] / positive - 1.0
        return frame

    def __copy__(self) -> Self:
        """Return the object itself, so that a copy keeps what a pickle leaves out."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the object itself, as `__copy__` does, since it is immutable."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields to pickle, without the problem's records.

        The fields include the trajectory only if the data are public. Otherwise they
        contain only what was released.
        """
        fields = {**vars(self), "problem": None}
        if "trajectory" in fields and self.problem is None:
            return fields
        if getattr(getattr(self.problem, "dataset", None), "public", False):
            return {"trajectory": self.trajectory, **fields}
        fields.pop("trajectory", None)
        return {**fields, "columns": {}, "releases": self.published_releases()}

    def published_releases(self) -> tuple[Release, ...]:
        """Return the releases, with nan for sensitivities computed from the data."""
        if not {*CONSTANTS} & {*self.uncharged}:
            return self.releases
        return _map_sensitivities(self.releases, lambda known: math.nan)


def _map_sensitivities(
    releases: Iterable[Release], function: Callable[[Any], Any]
) -> tuple[Release, ...]:
    """Return copies of releases, and of releases inside them, with new sensitivities.

    The function maps a sensitivity to the new one.
    """
    copies = []
    for release in releases:
        copies.append(changed := copy.copy(release))
        values = {**vars(release), "sensitivity": function(release.sensitivity)}
        for name, value in values.items():
            if isinstance(value, tuple) and all(isinstance(v, Release) for v in value):
                value = _map_sensitivities(value, function)
            object.__setattr__(changed, name, value)
    return tuple(copies)


def one_thread() -> AbstractContextManager[Any]:
    """Return a context manager that limits linear algebra to one thread."""
    limited: AbstractContextManager[Any]
    limited = _threaded_libraries(frozenset(sys.modules)).limit(limits=1)
    return limited


@functools.lru_cache(maxsize=1)
def _threaded_libraries(modules: frozenset[str]) -> ThreadpoolController:
    """Return the threaded libraries; they are searched again only after an import."""
    return ThreadpoolController()


def _row_of_trial(rows: Any, b: int) -> Any:
    """Return the row of a trial, or the only row, which all trials share."""
    return rows[b : b + 1] if np.ndim(rows) == 2 and len(rows) > 1 else rows


def _problem_of(solved: Run, b: int) -> Problem:
    """Return the problem with the smoothness constants published for one trial."""
    problem: Any = solved.problem
    published = getattr(problem, "released", None)
    if published is None or len(published.columns) == 1:
        return solved.problem
    own = replace(published, columns=published.columns[b : b + 1])
    return cast(Problem, problem.with_released(own))


def result_of(
    solved: Run, b: int, *, algorithm: str, reproducible: bool, rule: str = ""
) -> FitResult:
    """Return the fit result of one trial of a completed batch.

    Parameters
    ----------
    solved : Run
        The batch, after its run.
    b : int
        Index of the trial in the batch.
    algorithm : str
        Name of the algorithm, or the pin of a solver's file.
    reproducible : bool
        Whether the trial was seeded.
    rule : str
        The rule that chose parameters, see `FitResult`.

    Raises
    ------
    Diverged
        If an iterate is not finite.
    """
    problem, calibration = _problem_of(solved, b), solved.calibration
    recounted = all(one.is_recounted() for one in solved.releases)
    digest, uses = passed.solver_digest(algorithm), solved.solvers[b].uncharged
    doubt = passed.doubt_of_sources(digest, recounted, uses)
    releases = (*solved.shares, *solved.releases)
    if len(solved.solvers) > 1:
        releases = _map_sensitivities(releases, lambda rows: _row_of_trial(rows, b))
    certificate: dict[str, Any] = {
        "epsilon_certified": calibration.epsilon_certified,
        "releases": releases,
        "reproducible": reproducible,
        "calibration": calibration.label,
        "accountant": calibration.accountant,
        "uncharged": tuple(uncharged_uses(problem, solved.solvers[b])),
        "checked": not doubt,
        "doubt": doubt,
        "budget": solved.budget,
    }
    if not solved.rows.finite[b]:
        raise Diverged(
            f"{label_of(algorithm)} diverged: an iterate is not finite, and nothing is "
            "published; its budget is spent. Take shorter steps (parameter step), or "
            "clip records to declared bounds (clip_to_bounds)",
            solved.rows.seconds[-1],
            certificate,
        )
    columns = {k: v for k, v in trajectory_rows(solved.rows, b).items() if v}
    w = solved.rows.w[b].copy()
    w.setflags(write=False)
    return FitResult(
        w=w,
        columns=columns,
        problem=problem,
        algorithm=label_of(algorithm),
        n=problem.n,
        title=f"{problem.title}: n={problem.n}, p={problem.p}",
        model=problem.model(w),
        params=spell_infinities(asdict(solved.solvers[b])),
        rule=rule,
        **certificate,
    )
