"""Replay an algorithm on a neighbouring dataset with the same answers, and compare.

State that a solver keeps between runs (a dictionary of its module, an attribute of a
class) would contain answers from its runs on the dataset D. So the runs on the
neighbour D' use modules that are loaded a second time.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dp_erm_bench.code_identity import is_ours
from dp_erm_bench.contract import side
from dp_erm_bench.contract.candidate import (
    Candidate,
    NotApplicable,
    Variant,
    is_bounded,
    require,
)
from dp_erm_bench.contract.cases import (
    CLIP,
    Case,
    at_each_place,
    has_sampled_release,
    pairwise_covering,
    params_of,
    resize_solver,
    varied_cases,
)
from dp_erm_bench.contract.loading import load_again
from dp_erm_bench.contract.problems import (
    CORNERS,
    FAR,
    LARGE,
    STRENGTH,
    Parts,
    neighbours,
)
from dp_erm_bench.contract.side import EQUAL, Account, Side
from dp_erm_bench.errors import BudgetExhausted, NotSampled
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.trust.replay import compare_logs

AT_ONCE = 20
"""Number of cases whose recorded runs are kept in memory at a time."""
ROUNDED = 1e-13
"""Allowed rounding of a change divided by its sensitivity, per unit of z.

Here z is the noise multiplier.
"""


@dataclass
class ReplayResult:
    """The result of one replay: what differs between the runs on D and on D'.

    Attributes
    ----------
    case : Case
        The case that was replayed.
    violations : list of str
        Sentences about data that bypass the mechanisms, or move a query by more than
        its sensitivity.
    declared : list of str
        Sentences about declarations that differ between neighbours.
    sampled : list of str
        Sentences about records that are used outside their samples.
    read : list of str
        Sentences about records that are read more often than charged.
    ratios : dict
        The largest change of each release, divided by its declared sensitivity.
    refusal : str
        The reason why the case was not run; empty if it was run.
    """

    case: Case
    violations: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    refusal: str = ""

    @property
    def all(self) -> list[str]:
        """Return the sentences of all kinds."""
        return [*self.violations, *self.declared, *self.sampled, *self.read]


def replay_cases(
    candidate: Candidate, cases: Sequence[Case], other: Candidate | None = None
) -> Iterator[ReplayResult]:
    """Yield the results of replaying cases, in order.

    Parameters
    ----------
    candidate : Candidate
        The candidate that runs on D.
    cases : sequence of Case
        The cases to replay.
    other : Candidate, optional
        The candidate that runs on D'; by default the same one with new modules.
    """
    other = other or _second_candidate(candidate)
    for k in range(0, len(cases), AT_ONCE):
        part = cases[k : k + AT_ONCE]
        # All on D first: runs on D' must not find what a solver kept on D.
        firsts = [Side(candidate, case, 0).play() for case in part]
        for case, first in zip(part, firsts, strict=True):
            told_of = None if case.untold else first
            yield compare_accounts(case, first, Side(other, case, 1, told_of).play())


@functools.lru_cache(maxsize=16)
def _second_candidate(candidate: Candidate) -> Candidate:
    """Return the candidate that runs on D'."""
    if is_ours(candidate.solver):
        return candidate
    with load_again(candidate) as (other, _):
        return other


def compare_accounts(case: Case, first: Account, second: Account) -> ReplayResult:
    """Return the result of comparing a run on D with one on D' with the same answers.

    Parameters
    ----------
    case : Case
        The case that was run.
    first, second : Account
        The accounts of the runs on D and on D'.
    """
    result = ReplayResult(case, refusal=first.refusal or second.refusal)
    if case.untold:
        result.refusal = result.refusal or "its answers differ"
    elif result.refusal:
        if first.refusal != second.refusal:
            result.declared.append(f"a refusal depends on the data: {result.refusal}")
    elif first.error or second.error:
        _judge_errors(result, first.error, second.error)
    else:
        _compare(result, first, second)
    return result


def _compare(result: ReplayResult, first: Account, second: Account) -> None:
    """Add to the result what differs between the accounts of two completed runs."""
    case = result.case
    result.violations += [*first.complaints, *second.complaints]
    if first.declared != second.declared:
        result.declared.append("what is declared depends on the data")
    if first.matched:
        _equate_near_values(first, second)
    report = compare_logs(first.log, second.log)
    for one in first.matched:
        result.violations += [one.complaint] if one.complaint else []
        report.ratios["the objective"] = one.ratio
    # Noise drives iterates far away, and rounding errors grow with them.
    slack = max(side.SLACK, ROUNDED * case.z)
    if case.toggled is not None:
        # One sample contains the record, the other one another record instead.
        for name in first.sampled.keys() & report.ratios.keys():
            twice = getattr(first.sampled[name], "zeroed", False)
            report.ratios[name] /= 2.0 if twice else 1.0
    if case.family in FAR:  # the sizes of changes mean nothing here
        report.ratios = {}
        result.violations += report.violations(slack)
        return
    result.ratios = report.ratios
    sentences = report.violations(slack)
    if case.toggled is None:
        result.violations += sentences
        result.sampled += side.moved_outside_samples(first, second)
        result.read += side.read_again(first, second)
    else:
        result.sampled += [f"{words}, by a record's coin alone" for words in sentences]
        if case.adjacency is Adjacency.REPLACE_ONE:
            result.sampled += side.too_large(first, report.ratios)


def _judge_errors(result: ReplayResult, first: str, second: str) -> None:
    """Judge the errors of two runs; a solver may refuse unusual parameters or data."""
    message = f"it raises {first or second}"
    kinds = {error.partition(":")[0] for error in (first, second)}
    if NotSampled.__name__ in kinds:
        result.sampled.append(message)
    elif len(kinds) > 1:
        result.violations.append(f"{message}, which depends on the data")
    elif result.case.brief or BudgetExhausted.__name__ in kinds:
        result.violations.append(message)
    else:
        result.refusal = message


def _equate_near_values(first: Account, second: Account) -> None:
    """Make nearly equal values equal, if they follow from equal minimisers."""
    queries = zip(first.log.exchanges, second.log.exchanges, strict=False)
    both = [(one.query.value, other.query.value) for one, other in queries]
    both += zip(first.log.iterates, second.log.iterates, strict=False)
    for one, other in both:
        if one.shape == other.shape:
            near = np.isclose(one, other, rtol=EQUAL, atol=EQUAL)
            other[near] = one[near]


TRIALS = 6
LOUD = 30.0
TIMES, LONGER = 20, 60
"""Factor by which one parameter is increased, and number of steps of a long run.

Both are so large that the runs sample every record and move far from the start.
"""
SHARES = (5.0, 500.0)
"""Epsilons of runs that release smoothness constants out of a share of the budget.

At the second epsilon, the constants exceed the lower limit that the noise sets.
"""
WEAK = 0.02


def replay_audit(candidate: Candidate) -> None:
    """Check that data leave through mechanisms only, within declared sensitivities."""
    _require_none(
        replay_results(candidate),
        lambda one: one.violations,
        "it serves no problem of the check",
    )


def declarations_know_no_data(candidate: Candidate) -> None:
    """Check that releases, sizes, lengths and refusals are equal for neighbours."""
    _require_none(replay_results(candidate), lambda one: one.declared)


def far_data_change_nothing(candidate: Candidate) -> None:
    """Check that a run is the same on unrelated data of equal size, bounds and format.

    If the answers are the same, everything computed from the answers must be equal bit
    for bit.
    """
    results = [*replay_cases(candidate, [*_far_cases(candidate)])]
    _require_none(results, lambda one: one.all, "it serves no such data")


def _far_cases(candidate: Candidate) -> Iterator[Case]:
    """Yield cases of each variant on unrelated datasets, with little or much noise."""
    adjacency = Adjacency.REPLACE_ONE
    for number, variant in enumerate([] if candidate.foreign else candidate.variants):
        solver = candidate.build(variant, clip=CLIP)
        for k, family in enumerate(FAR):
            pairs = (
                (candidate.neighbours(family, adjacency, parts, STRENGTH).first, parts)
                for parts in candidate.objectives()
            )
            served = (
                (problem, parts)
                for problem, parts in pairs
                if solver.refusal(problem) is None and is_bounded(problem, solver)
            )
            # Variants take turns with the problems.
            for problem, parts in [*itertools.islice(served, number % 3 + 1)][-1:]:
                yield Case(
                    params_of(resize_solver(solver, problem)),
                    *(parts, family, adjacency),
                    z=(0.3, 30.0)[(number + k) % 2],
                    brief=True,
                    group=candidate.title(variant),
                )


def samples_are_those_charged(candidate: Candidate) -> None:
    """Check that a record affects only sums over samples that contain it."""
    _require_none(replay_results(candidate), lambda one: one.sampled)


def records_are_read_once(candidate: Candidate) -> None:
    """Check that no record is read twice if the release is charged for one reading.

    A record that the mechanism did not hand out must not be read at all.
    """
    _require_none(replay_results(candidate), lambda one: one.read)


def sensitivities_are_tight(candidate: Candidate) -> None:
    """Check that a sensitivity is at most about three times the observed change.

    This does not concern privacy: a loose sensitivity costs noise.
    """
    at_corners = [
        one
        for one in replay_results(candidate)
        if CORNERS in one.case.family
        and one.case.toggled is None
        and not one.case.calibrated
    ]
    least = {one.case.title: _least_ratio(one.case) for one in at_corners}
    loose = {
        title
        for title, ratios in _largest_ratios(at_corners).items()
        if any(ratio < least[title] for ratio in ratios.values())
    }
    stretched = _long_cases(candidate) if loose else ()
    far = [case for case in stretched if case.title in loose]
    for title, ratios in _largest_ratios(
        [*at_corners, *replay_cases(candidate, far)]
    ).items():
        for name, ratio in ratios.items():
            require(
                ratio >= least[title],
                f"{title}: release {name} changes by {ratio:.2g} of its declared "
                f"sensitivity at most, at least {least[title]} is expected; that is "
                "no matter of privacy, but of noise that nobody needs: declare less, "
                "or name sensitivities_are_tight in `exempt` with the reason",
            )


def private_constants_are_audited(candidate: Candidate) -> None:
    """Check runs with smoothness=private, which release smoothness constants first.

    M_j is the smoothness constant of coordinate j.
    """
    cases = [*_cases_of_private_constants(candidate)]
    served = [one for one in replay_cases(candidate, cases) if not one.refusal]
    _require_none(
        served, lambda one: one.all, "it serves no constants that are released"
    )
    for title, ratios in _largest_ratios(served).items():
        ratio = ratios.get("smoothness", 0.0)
        require(ratio > 0.99, f"{title}: the M_j change by {ratio:.2g} only")


def _require_none(
    results: Sequence[ReplayResult],
    of: Callable[[ReplayResult], list[str]],
    nothing: str = "",
) -> None:
    """Raise ContractError if any result contains sentences of the given kind.

    NotApplicable is raised with the reason ``nothing`` if no case was run.
    """
    if nothing and all(one.refusal for one in results):
        raise NotApplicable(nothing)
    for one in results:
        words = "; ".join(dict.fromkeys(of(one)))
        title = f"{one.case.title}, neighbours: {one.case.family}"
        require(not words, f"{title}: {words}")


@functools.lru_cache(maxsize=16)
def replay_results(candidate: Candidate) -> list[ReplayResult]:
    """Return the results of all cases except those that release constants."""
    cases = [*all_cases(candidate)]
    cases += cases_answered_twice(candidate) if candidate.pin else ()
    return [*replay_cases(candidate, cases)]


def cases_answered_twice(candidate: Candidate) -> Iterator[Case]:
    """Yield one case of each small family of neighbours twice.

    The first time, the run on D' gets its own answers instead of those on D. If a
    solver keeps an answer for later runs, this answer then differs between D and D'.
    """
    usual = [case for case in varied_cases(candidate) if not case.long]
    firsts = {case.family: case for case in reversed(usual)}
    for case in [*firsts.values(), *itertools.islice(cases_at_corners(candidate), 1)]:
        if case.family not in LARGE and case.toggled is None:
            yield replace(case, untold=True)
            yield case


def all_cases(candidate: Candidate) -> Iterator[Case]:
    """Yield all cases except those that release smoothness constants."""
    # First the cases that the record affects most: caches keep what comes first.
    yield from varied_cases(candidate)
    for number, case in enumerate(cases_at_corners(candidate)):
        yield case
        if number == 0:  # here the budget sets the noise, or the length
            paid = replace(case, trials=1, points="all", calibrated=True)
            for adjacency, epsilon in itertools.product(Adjacency, (1.0, 50.0)):
                yield replace(paid, adjacency=adjacency, epsilon=epsilon)
    yield from at_each_place(candidate)


def cases_at_corners(
    candidate: Candidate, least: int = 0, **params: Any
) -> Iterator[Case]:
    """Yield cases of the variants on problems whose records are at the bounds.

    Every pair of values of two parameters, losses, penalties or constraints occurs if
    the solver supports the pair. Each such combination is run under both adjacencies,
    on all pairs of neighbours.

    Parameters
    ----------
    candidate : Candidate
        The candidate whose variants are run.
    least : int
        Approximate number of steps of a run; 0 for the default one.
    **params
        Other parameters of the solver.
    """
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for (variant, clip, group), parts, adjacency in itertools.product(
        _clipped_variants(candidate), candidate.objectives(), Adjacency
    ):
        solver = candidate.build(variant, clip=clip, **params)
        pairs = candidate.corners(parts, adjacency, WEAK)
        problem = pairs[0][0]
        if solver.refusal(problem) or not is_bounded(problem, solver, adjacency):
            continue
        if least:
            solver = resize_solver(solver, problem, least, 2 * least)
        case = _loud_case(candidate, solver, parts, adjacency, group)
        # Other candidates meet toggled samples in `varied_cases`.
        both = candidate.foreign and has_sampled_release(problem, solver, adjacency)
        groups.setdefault((*variant.values(), clip, *parts), []).extend(
            replace(case, family=f"{CORNERS} {number}", toggled=toggled)
            for number in range(len(pairs))
            for toggled in ((None, 0, 1) if both else (None,))
        )
    for what in pairwise_covering(groups):
        yield from groups[what]


def _clipped_variants(candidate: Candidate) -> list[tuple[Variant, float | None, str]]:
    """Return variants, each with a clipping threshold or None, and its name."""
    clips: dict[float | None, str] = {None: ""}
    if "clip" in candidate.parameters:
        clips = {CLIP: f", clip={CLIP}", **clips}
    return [
        (variant, clip, candidate.title(variant) + words)
        for variant in candidate.variants
        for clip, words in clips.items()
    ]


def _loud_case(
    candidate: Candidate, solver: Solver, parts: Parts, adjacency: Adjacency, group: str
) -> Case:
    """Return a case with much noise on records at the corners of their bounds."""
    head = (params_of(solver), parts, CORNERS, adjacency)
    trials = TRIALS if candidate.solver.batchable else 1
    return Case(*head, trials, z=LOUD, strength=WEAK, brief=True, group=group)


def _long_cases(candidate: Candidate) -> Iterator[Case]:
    """Yield long runs on records at the bounds.

    The runs have the default parameters, or one value parameter increased.
    """
    yield from cases_at_corners(candidate, LONGER)
    usual = dict(params_of(candidate.build()))
    for name, one in candidate.parameters.items():
        # These cases have clipping thresholds of their own.
        if one.metadata["kind"] == "value" and usual[name] and name != "clip":
            yield from cases_at_corners(
                candidate, LONGER, **{name: TIMES * usual[name]}
            )


def _least_ratio(case: Case) -> float:
    """Return the least share of a sensitivity that a change must reach.

    No run visits all corners of a constraint, and a release that is made only a few
    times does not meet its worst iterate. Consider squared loss on a box. At the start,
    gradients are only as large as the labels. Where margins are large, all gradients
    point towards w, so replacing a record changes less than if they were opposite.
    """
    free = dict(case.params).get("clip") is None and case.parts[0] == "squared"
    return 0.1 if free else 0.3


def _largest_ratios(results: Iterable[ReplayResult]) -> dict[str, dict[str, float]]:
    """Return the largest ratio of each release, by the title of the cases."""
    grouped: dict[str, dict[str, float]] = {}
    for one in results:
        ratios = grouped.setdefault(one.case.title, {})
        for name, ratio in one.ratios.items():
            ratios[name] = max(ratios.get(name, 0.0), ratio)
    return grouped


def _cases_of_private_constants(candidate: Candidate) -> Iterator[Case]:
    """Yield cases in which the smoothness constants are released."""
    parts = ("logistic", "l2", "none")
    variants = {
        (*one[0].values(), one[1], ""): one for one in _clipped_variants(candidate)
    }
    for key, adjacency in itertools.product(pairwise_covering(variants), Adjacency):
        variant, clip, group = variants[key]
        solver = candidate.build(variant, clip=clip, smoothness="private")
        group = f"{group}, smoothness=private"
        case = _loud_case(candidate, solver, parts, adjacency, group)
        families = [
            f"{CORNERS} {number} {kind.value}"
            # A record of zeros changes the M_j most. It is a replacement, too.
            for kind in sorted({adjacency, Adjacency.ZERO_OUT})
            for number in range(len(neighbours(kind, parts, WEAK)))
        ]
        for family, epsilon in itertools.product(families, SHARES):
            yield replace(case, family=family, epsilon=epsilon)
