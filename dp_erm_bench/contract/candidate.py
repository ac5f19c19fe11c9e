"""The algorithm under check: its variants, and its runs at any noise multiplier."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.pairs import LENGTHS, alternative_values, nearest_allowed
from dp_erm_bench.contract.problems import (
    FAMILIES,
    STRENGTH,
    Neighbours,
    Parts,
    neighbours,
    neighbours_of,
    objectives,
    small_problem,
)
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import label_of
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver

DELTA = 1e-6


class ContractError(UsageError):
    """An algorithm breaks the contract; the message says how, in one sentence."""


class NotAllRun(ContractError):
    """Some code was not reached by any run; the message says which code, and where."""


class ToBeRewritten(ContractError):
    """A solver breaks a rule about its source code, so the checks cannot judge it."""


class NotApplicable(UsageError):
    """A check has no meaning for an algorithm; the message gives the reason."""


def require(holds: object, sentence: str) -> None:
    """Raise ContractError with the given sentence unless a condition holds."""
    if not holds:
        raise ContractError(sentence)


def run_at(
    problem: Problem,
    solvers: Sequence[Solver],
    z: float | str = 5.0,
    identities: Sequence[str] = ("a",),
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    epsilon: float = 5.0,
    ahead: bool = False,
    **how: Any,
) -> Run:
    """Return a run at a given noise multiplier, by default with uncompiled steps.

    Parameters
    ----------
    problem : Problem
        The problem that is solved.
    solvers : sequence of Solver
        The solver of each trial.
    z : float or str
        Noise multiplier, 0 for no noise; or the name of a calibration.
    identities : sequence of str
        The identity of each trial, which seeds its noise.
    adjacency : Adjacency
        The relation between neighbouring datasets.
    epsilon : float
        The privacy budget, of which private smoothness constants spend a share.
    ahead : bool
        Whether compiled steps may be used.
    **how
        Other arguments for `Run`.
    """
    budget = Budget(epsilon if z else np.inf, DELTA, adjacency)
    return Run(problem, solvers, budget, z, identities, ahead=ahead, **how)


def is_bounded(
    problem: Problem, solver: Solver, adjacency: Adjacency = Adjacency.REPLACE_ONE
) -> bool:
    """Return whether all sensitivities are finite, so that noise can hide a record.

    Parameters
    ----------
    problem : Problem
        The problem that is solved.
    solver : Solver
        The solver whose releases are examined.
    adjacency : Adjacency
        The relation that the sensitivities refer to.
    """
    releases = run_at(problem, [solver], adjacency=adjacency).releases
    return all(np.isfinite(release.sensitivity).all() for release in releases)


STEPS = 10
# For solvers that add a ridge. The small problems have few records: with a weak
# penalty they would have too little convexity for a budget of 1.
RIDGE = 1.0
ORIGINS = ("smoothness", "smoothness_bounds")
Variant = Mapping[str, Any]


class Subject(NamedTuple):
    """One variant of an algorithm under check, on one problem."""

    candidate: Candidate
    variant: Variant
    problem: Any

    @property
    def title(self) -> str:
        """Return the name of the variant and of its problem, for messages."""
        return f"{self.candidate.title(self.variant)} on {self.problem.title}"

    def solver(self, **params: Any) -> Solver:
        """Return the solver with the given parameters; by default it clips at 1."""
        return self.candidate.build(self.variant, **{"clip": 1.0, **params})

    def run(self, *params: Variant, names: Sequence[str] = "a", **how: Any) -> Run:
        """Return a run of trials with the given identities, see ``run_at``.

        Parameters
        ----------
        *params : mapping
            Parameters of each trial. Without any, all trials have the default values.
        names : sequence of str
            Identities of the trials.
        **how
            Other arguments for ``run_at``.
        """
        solvers = [self.solver(**one) for one in params or [{}] * len(names)]
        return run_at(self.problem, solvers, identities=tuple(names), **how)

    def run_within_budget(
        self, budget: Budget, calibration: str = "certified", **params: Any
    ) -> Run:
        """Return a run of one trial under a budget.

        Parameters
        ----------
        budget : Budget
            The privacy budget.
        calibration : str
            The rule by which the budget fixes the noise.
        **params
            Parameters of the solver.

        Raises
        ------
        Unsupported
            If the solver refuses the problem, the budget or the calibration.
        """
        return Run(self.problem, [self.solver(**params)], budget, calibration, ("a",))


@dataclass(frozen=True, eq=False)
class Candidate:
    """An algorithm under check.

    Attributes
    ----------
    name : str
        Name of the algorithm in messages.
    solver : type of Solver
        Class of the algorithm.
    preset : mapping
        Parameters that the algorithm's yaml sets.
    pin : str
        The name, or the file with its digest, by which another process loads the
        algorithm; empty if it was given as a class.
    rows : sequence of mapping or None
        Parameters of each replay. If None, they are chosen so that every two values of
        two parameters occur together.
    families : sequence of str
        Families of neighbouring datasets for the replays.
    """

    name: str
    solver: type[Solver]
    preset: Variant = dataclasses.field(default_factory=dict)
    pin: str = ""

    rows: ClassVar[Sequence[Variant] | None] = None
    families: ClassVar[Sequence[str]] = tuple(FAMILIES)

    @functools.cached_property
    def parameters(self) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields of the solver's dataclass by name."""
        return {field.name: field for field in dataclasses.fields(self.solver)}

    @functools.cached_property
    def variants(self) -> list[Variant]:
        """Return all combinations of the parameters that a batch of trials shares.

        These are the shape parameters of the solver, without numbers of steps.
        Combinations of unbounded sensitivity are left out.
        """
        shapes = {
            name: [field.default, *others]
            for name, field in self.parameters.items()
            if field.metadata["kind"] == "shape" and name not in (*ORIGINS, *LENGTHS)
            if (others := alternative_values(field))
        }
        product = itertools.product(*shapes.values())
        made = (dict(zip(shapes, values, strict=True)) for values in product)
        # A variant of unbounded sensitivity is refused at every finite epsilon.
        return [variant for variant in made if not self._is_unbounded(variant)]

    def _is_unbounded(self, variant: Variant) -> bool:
        try:
            return bool(self.build(variant).unbounded_reason)
        except UsageError:  # two values that do not go together
            return False

    def build(self, variant: Variant | None = None, **params: Any) -> Solver:
        """Return a solver of a variant.

        Unknown parameters are left out. If the check chose a number that a field does
        not allow, the nearest allowed one is used.
        """
        usual = {"n_iter": STEPS, "ridge": RIDGE}
        values = {**usual, **self.preset, **(variant or {}), **params}
        fields = self.parameters
        own = {
            k: nearest_allowed(fields[k], x) for k, x in values.items() if k in fields
        }
        return self.solver(**own)

    @property
    def foreign(self) -> type[Problem] | None:
        """Return the solver's class of problems; None if these are empirical risks."""
        serves = self.solver.serves
        return None if serves.kind == ERMProblem.kind else serves

    @functools.lru_cache(maxsize=16)  # noqa: B019
    def objectives(self) -> list[Parts]:
        """Return the loss, penalty and constraint of each small problem to try."""
        if self.foreign:
            return [(self.foreign.kind, "none", "none")]
        return objectives(self.solver.constrained)

    def problem(self, parts: Parts) -> Any:
        """Return the small problem with a given loss, penalty and constraint."""
        return self.corners(parts)[0][0] if self.foreign else small_problem(*parts)

    def corners(
        self,
        parts: Parts,
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
        strength: float = STRENGTH,
    ) -> Sequence[tuple[Any, Any]]:
        """Return pairs of problems that differ in the first record only.

        For empirical risks, all records are at corners of their declared bounds.

        Parameters
        ----------
        parts : tuple of str
            Loss, penalty and constraint.
        adjacency : Adjacency
            How the first record differs.
        strength : float
            Strength of the penalty.
        """
        if self.foreign:
            return [self.foreign.neighbours(adjacency is Adjacency.ZERO_OUT)]
        return neighbours(adjacency, parts, strength)

    def neighbours(
        self, family: str, adjacency: Adjacency, parts: Parts, strength: float
    ) -> Neighbours:
        """Return the two neighbouring problems of a family.

        Parameters
        ----------
        family : str
            Name of the family, see `contract.problems`.
        adjacency : Adjacency
            How the record differs.
        parts : tuple of str
            Loss, penalty and constraint.
        strength : float
            Strength of the penalty.
        """
        if self.foreign:
            return Neighbours(*self.corners(parts, adjacency)[0], 0)
        return neighbours_of(family, adjacency, parts, strength)

    def problems(self, variant: Variant) -> list[Any]:
        """Return the small problems that a variant supports.

        If the sensitivities are finite on some of these problems, the others are left
        out. For a solver without a parameter ``clip``, only problems with bounded
        derivatives then remain.

        Raises
        ------
        ContractError
            If the variant supports none of the small problems.
        """
        return self._problems(tuple(variant.items()))

    @functools.lru_cache(maxsize=256, typed=True)  # noqa: B019
    def _problems(self, variant: tuple[tuple[str, Any], ...]) -> list[Any]:
        solver = self.build(dict(variant), clip=1.0)
        problems = [self.problem(parts) for parts in self.objectives()]
        served = [problem for problem in problems if solver.refusal(problem) is None]
        if not served:
            title, reason = self.title(dict(variant)), solver.refusal(problems[0])
            raise ContractError(f"{title} serves no problem: {reason}")
        bounded = [problem for problem in served if is_bounded(problem, solver)]
        return bounded or served

    def each(self) -> Iterator[Subject]:
        """Yield every variant on the problems that it supports.

        If there are more than two variants, each variant gets only every third problem.
        """
        for turn, variant in enumerate(self.variants):
            problems = self.problems(variant)
            step = 3 if len(self.variants) > 2 else 1
            for problem in problems[turn % step % len(problems) :: step]:
                yield Subject(self, variant, problem)

    def first(self, without: str = "") -> Iterator[Subject]:
        """Yield every variant on the first problem that it supports.

        If possible, the problem is one whose title does not contain the word
        ``without``.
        """
        for variant in self.variants:
            problems = self.problems(variant)
            first = min(problems, key=lambda problem: without in problem.title)
            yield Subject(self, variant, first)

    def title(self, variant: Variant) -> str:
        """Return the name of a variant for messages."""
        words = [str(word) for word in variant.values() if word is not None]
        return "-".join([self.name, *words])


def candidate_of(algorithm: str | type[Solver]) -> Candidate:
    """Return the candidate for an algorithm's name, a solver's file or a class.

    Raises
    ------
    UsageError
        If there is no such algorithm, or the file contains no complete solver.
    """
    if not isinstance(algorithm, str):
        return Candidate(algorithm.__name__, algorithm)
    pin = registry.pin_choice(algorithm)
    preset = registry.without_rules(registry.read_choice(registry.ALGORITHM, pin))
    del preset["_target_"]
    solver = registry.target(registry.ALGORITHM, pin)
    return Candidate(label_of(pin), solver, preset, pin)
