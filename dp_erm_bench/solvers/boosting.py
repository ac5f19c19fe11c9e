"""Boosting: the best of a secret number of runs of another algorithm."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.accounting.repeated import LIU_TALWAR
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.renyi_filter import RenyiFilter
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect
from dp_erm_bench.solvers.base import (
    Array,
    Indices,
    Limit,
    Releases,
    Solver,
    shape,
    value,
)
from dp_erm_bench.solvers.bias_reduced_sgd import BiasReducedSGD, Levels, probabilities
from dp_erm_bench.solvers.gd import GD
from dp_erm_bench.solvers.one_solve import SingleAnswer
from dp_erm_bench.solvers.runs import clip_field, multiplier_field
from dp_erm_bench.solvers.sgd import SGD
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork

INNER: dict[str, type[Solver]] = {
    "gd": GD,
    "sgd": SGD,
    "bias_reduced_sgd": BiasReducedSGD,
}
"""Algorithms that may be repeated, each run as one mechanism with a Renyi curve."""


@dataclass(frozen=True)
class Boosting(SingleAnswer):
    """The best of K runs of an algorithm, selected by their noisy training objectives.

    K is geometric with mean 1/gamma, and at most 1000/gamma runs are made. Privacy
    follows from `RepeatAndSelect`, as neither K nor anything about the other runs is
    published. Each run ends with a score. The score is the mean of the records' losses,
    each clipped to [0, B], plus Laplace noise. One record changes this mean by at most
    B/n under either adjacency. The penalty reads no data and is added afterwards. A run
    that diverges scores B and loses to any run that does not. Divergence is not
    reported separately: the output of the best run is published in any case.

    Runs of ``sgd`` have the Renyi curve of Poisson samples, which `RepeatAndSelect`
    knows. A run of ``bias_reduced_sgd`` draws its levels within the mechanism, and its
    noise has the given ``multiplier``. It makes as many steps as its part of the budget
    pays for. `RenyiFilter` keeps each run under a fixed Renyi curve, that of one
    Gaussian mechanism with the common multiplier. Neither levels nor lengths are
    published. Means are projected (``mean=projection``) if the records' number of
    non-zeros is declared.

    The noise of the score has the common multiplier. So the score costs about as much
    as one step, or as a whole run of ``bias_reduced_sgd``. For any gamma, the charge is
    about three times the privacy cost of one run. It depends on the number of runs only
    through a logarithm. ``passes`` counts 1/gamma runs of ``n_iter`` steps, because the
    true number of runs is secret.

    With ``calibration=paper``, a run receives the paper's share (eps/12, (delta / 4
    K)^2) of the budget, here with K = ceil(log(4/delta) / gamma). Its score has noise
    Lap(12 B / (n eps)). The results table shows the certified epsilon of this noise. As
    in the paper, gamma is then at most 1/2.

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
    sparse gradients", NeurIPS 2024, Algorithm 5; Liu, Talwar, "Private selection from
    private candidates", STOC 2019; Papernot, Steinke, "Hyperparameter tuning with
    Renyi differential privacy", ICLR 2022.
    """

    constrained: ClassVar[bool] = True
    convex_losses: ClassVar[bool] = False
    uses_smoothness: ClassVar[bool] = True
    any_penalty: ClassVar[bool] = True
    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")
    exempt: ClassVar[Mapping[str, str]] = {
        "sensitivities_are_tight": "a score changes by B/n only if a loss changes from "
        "0 to B, which does not happen on the small problems of the check",
    }

    # Enough steps to show a leak, and enough noise for the filter to permit them.
    worst_cases: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"inner": "bias_reduced_sgd", "multiplier": 2.0, "n_iter": 30, "gamma": 1.0},
    )

    inner: str = shape(
        "gd", choices=tuple(INNER), help="algorithm that is run several times"
    )
    gamma: float = shape(
        0.25,
        above=0.0,
        most=1.0,
        help="probability of stopping after each run; the average number of runs is "
        "1 / gamma",
    )
    bound: float = shape(
        1.0, above=0.0, help="B, at which a record's loss is clipped in a score"
    )
    n_iter: int = shape(
        20,
        least=0,
        help="number of steps of a run; with inner=bias_reduced_sgd, the largest "
        "number",
    )
    multiplier: float = multiplier_field("with inner=bias_reduced_sgd: ")
    batch_size: int = value(
        1, least=1, help="with inner=sgd: expected number of records in a batch"
    )
    step: float = value(
        1.0, above=0.0, help="step size of the inner algorithm, in its unit"
    )
    clip: float | None = clip_field()

    @property
    def algorithm(self) -> Solver:
        """Return the inner algorithm, with the values of the shared parameters."""
        kind = INNER[self.inner]
        names = {field.name for field in fields(kind)} & {f.name for f in fields(self)}
        given = {name: getattr(self, name) for name in names}
        for name, number in (("step", float), ("clip", float), ("batch_size", int)):
            if given.get(name) is not None:
                given[name] = number(np.ravel(given[name])[0])
        return kind(**given)

    @property
    def printed_constant(self) -> str:
        """Return the name of the paper's rule for budget and noise."""
        return LIU_TALWAR

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield the bound on the best run without noise: it reaches the minimum."""
        length = 1_000 if problem.constraint.bounded else 300
        yield Limit(cls(n_iter=length), gap=1e-9)

    def iterations(self, problem: ERM) -> int:
        """Return 1, or 0 if a run has no steps."""
        return min(1, self.n_iter)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why the inner algorithm refuses a problem, or None."""
        algorithm: Any = self.algorithm
        reason: str | None = algorithm.refusal(problem)
        return reason

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the passes of 1/gamma runs, as the true number of runs is secret."""
        return iteration * self.algorithm.passes_at(problem, self.n_iter) / self.gamma

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of 1/gamma runs."""
        work = self.algorithm.step_work(problem)
        return work.times(max(1.0, self.n_iter / self.gamma))

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield one release, which makes several runs and publishes the best one.

        This release contains the releases of one run and of the score of the run.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        if not self.n_iter:
            return
        score = Laplace("score", self.bound / problem.n, 1)
        run = (*self.run_releases(problem, adjacency), score)
        yield RepeatAndSelect("best", 1.0, 1, gamma=self.gamma, run=run)

    def run_releases(self, problem: ERM, adjacency: Adjacency) -> Iterator[Release]:
        """Yield the releases of one run, without its score."""
        algorithm = self.algorithm
        if isinstance(algorithm, BiasReducedSGD):
            yield RenyiFilter(
                "steps",
                1.0,
                1,
                multiplier=self.multiplier,
                chances=tuple(probabilities(problem.n).tolist()),
                steps=algorithm.kinds(problem, adjacency),
                most=self.n_iter,
            )
        else:
            yield from algorithm.releases(problem, adjacency, None)

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the output of the best run.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`; not used.
        """
        best: Array = mechanisms["best"](self.attempt)
        return best

    def attempt(
        self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any
    ) -> tuple[Array, float]:
        """Return the output of one run, shape (1, p), and its noisy score.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`; not used.
        """
        w = self.output_of(oracle, mechanisms)
        noisy = mechanisms["score"](np.array([self.score(oracle, w)]))
        return w, float(noisy[0]) + penalty_at(oracle.problem, w)

    def output_of(self, oracle: Oracle, mechanisms: Mechanisms) -> Array:
        """Return the output of one run, shape (1, p)."""
        algorithm = self.algorithm
        bounds = oracle.problem.dataset.bounds
        if isinstance(algorithm, BiasReducedSGD) and getattr(bounds, "nonzeros", None):
            algorithm = replace(algorithm, mean="projection")

        def steps(mechanisms: Mechanisms, schedule: Any, length: int) -> Array:
            *_, w = algorithm.iterates(oracle, mechanisms, (0, length), schedule)
            return w.copy()

        def filtered_steps(mechanisms: Mechanisms, levels: Indices) -> Array:
            # The output is the mean of the iterates, which needs no coins.
            schedule = Levels(levels[None], np.ones((1, levels.size)))
            return steps(mechanisms, schedule, levels.size)

        if isinstance(algorithm, BiasReducedSGD):
            w: Array = mechanisms["steps"](filtered_steps, self.n_iter)
            return w
        return steps(mechanisms, None, algorithm.iterations(oracle.problem))

    def score(self, oracle: Oracle, w: Array) -> float:
        """Return the mean of the clipped losses, or the bound B if the run diverged."""
        if not np.isfinite(w).all():
            return self.bound
        with np.errstate(over="ignore", invalid="ignore"):
            losses = oracle.loss.value(oracle.y, oracle.product(w)[0])
        # A loss that is NaN after an overflow counts as the largest.
        losses = np.where(np.isnan(losses), self.bound, losses)
        return float(np.clip(losses, 0.0, self.bound).mean())


def penalty_at(problem: ERM, w: Array) -> float:
    """Return the penalty at a point, or infinity if the run diverged."""
    with np.errstate(over="ignore", invalid="ignore"):
        psi = float(np.ravel(problem.penalty.value(w))[0])
    return psi if math.isfinite(psi) and np.isfinite(w).all() else math.inf
