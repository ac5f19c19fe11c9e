"""The result of a single fit: a model, its guarantee, its trajectory."""

import copy
import functools
import math
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

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
"""Uses of the data that may make sensitivities, as of coordinates."""

WITHHELD = (
    "trajectory: was left out when the result was pickled, since its objectives are "
    "computed from records that nobody declared public; read it in the process of the "
    "fit, or declare public=True"
)
SHOWN = 3
"""Weights that a repr shows."""


@dataclass(frozen=True, eq=False, repr=False)
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
        Whether the algorithm is the package's own or has passed ``dp-erm-bench check``,
        and nothing is in doubt.
    doubt : str
        ``not checked``, ``checked, release not recounted``, or ``checked, uncharged:``
        with the uses that the solver declares; empty if ``checked``.
    columns : mapping
        The columns of ``trajectory`` but the optimum and the relative error.
    problem : Problem or None
        The problem, with the smoothness constants of the fit. A pickled result has
        none: its trajectory was made before, or left out, see `trajectory`.
    algorithm : str
    budget : Budget
        Its delta a number.
    n : int
        The number of records, which is public.
    title : str
        What the problem is called.
    model : LinearModel or None
        What ``w`` predicts; None for a problem without predictions.
    params : mapping
        All parameters of the algorithm, numbers where `auto` was asked for.
    rule : str
        As ``gd-3: n_iter step``, the version of the rule that gave some of them, and
        which; empty if none did.
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
        """Return three lines: what was fitted, its guarantee, its largest weights."""
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
        """Return the names of the p features, ``intercept`` the last one's if added."""
        names: tuple[str, ...] = self._linear_model().feature_names
        return names

    def decision_function(self, X: Any) -> Array:
        """Return the margins of records, shape (n,), see `LinearModel`."""
        margins: Array = self._linear_model().decision_function(X)
        return margins

    def predict(self, X: Any) -> Array:
        """Return -1 or +1 for a classification, else the margins, see `LinearModel`."""
        answers: Array = self._linear_model().predict(X)
        return answers

    def score(self, X: Any, y: ArrayLike) -> float:
        """Return the accuracy, R^2 for a regression, see `LinearModel`."""
        return float(self._linear_model().score(X, y))

    def _linear_model(self) -> Any:
        if self.model is None:
            raise Unsupported(f"{self.title}: its solutions predict nothing of records")
        return self.model

    @functools.cached_property
    def trajectory(self) -> "pd.DataFrame":
        """Return one row per checkpoint, made when it is first read.

        iteration, passes, seconds, objective, optimum, relative_error, nnz; where there
        is a test set test_objective, test_risk, test_accuracy, balanced_accuracy, auc;
        of a regression rmse, r2 there;
        where the loss is not convex gradient_norm; of dual_frank_wolfe dual_gap; of
        newton predicted_excess; where true weights are known support_f1; of groups
        active_groups, of range change_points.
        But for predicted_excess, made of what was published, they are computed from
        the data at published iterates: they are not private. A pickled result has them
        only if its data are public: published, generated, or declared so.

        Raises
        ------
        AttributeError
            Of a pickled result of other data.
        """
        if self.problem is None:
            raise AttributeError(WITHHELD)
        # Not at the top: importing it takes longer than a fit.
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
        """Return itself: no copy within a process loses what a pickle leaves out."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself, as `__copy__` does; no field can be set."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the problem's records.

        The trajectory is with them if the data are public; else what was released.
        """
        fields = {**vars(self), "problem": None}
        if "trajectory" in fields and self.problem is None:
            return fields
        if getattr(getattr(self.problem, "dataset", None), "public", False):
            return {"trajectory": self.trajectory, **fields}
        fields.pop("trajectory", None)
        return {**fields, "columns": {}, "releases": self.published_releases()}

    def published_releases(self) -> tuple[Release, ...]:
        """Return the releases; sensitivities made of constants of the data are nan."""
        if not {*CONSTANTS} & {*self.uncharged}:
            return self.releases
        return tuple(map(_without_sensitivity, self.releases))


def _without_sensitivity(release: Release) -> Release:
    """Return a copy of a release, and of those inside, whose sensitivity is nan."""
    hidden = copy.copy(release)
    for name, value in {**vars(release), "sensitivity": math.nan}.items():
        if isinstance(value, tuple) and all(isinstance(v, Release) for v in value):
            value = tuple(map(_without_sensitivity, value))
        object.__setattr__(hidden, name, value)
    return hidden


def one_thread() -> AbstractContextManager[Any]:
    """Return the context in which linear algebra uses one thread."""
    limited: AbstractContextManager[Any]
    limited = _threaded_libraries(frozenset(sys.modules)).limit(limits=1)
    return limited


@functools.lru_cache(maxsize=1)
def _threaded_libraries(modules: frozenset[str]) -> ThreadpoolController:
    """Return the libraries with threads, found anew after an import: it takes long."""
    return ThreadpoolController()


def result_of(
    solved: Run, b: int, *, algorithm: str, reproducible: bool, rule: str = ""
) -> FitResult:
    """Return the fit result of trial b of a batch of an algorithm, a name or a pin.

    ``rule`` says what gave parameters, see `FitResult`.

    Raises
    ------
    Diverged
        If an iterate is not finite.
    """
    problem, calibration = solved.problem, solved.calibration
    recounted = all(one.is_recounted() for one in solved.releases)
    digest, uses = passed.solver_digest(algorithm), solved.solvers[b].uncharged
    doubt = passed.doubt_of_sources(digest, recounted, uses)
    certificate: dict[str, Any] = {
        "epsilon_certified": calibration.epsilon_certified,
        "releases": (*solved.shares, *solved.releases),
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
