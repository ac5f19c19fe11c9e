"""Replays of an algorithm: the same answers on a neighbouring dataset."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from dp_erm_bench.contract.candidate import Candidate, Variant
from dp_erm_bench.contract.cases import Case, is_sampled, params_of, varied
from dp_erm_bench.contract.covered import directed, sources_of, squeezed, unrun
from dp_erm_bench.contract.covering import pairwise_covering, resized
from dp_erm_bench.contract.families import CORNERS
from dp_erm_bench.contract.problems import Parts, neighbours
from dp_erm_bench.contract.replayed import ReplayResult, replayed, replaying
from dp_erm_bench.contract.runs import (
    NotAllRun,
    NotApplicable,
    is_bounded,
    require,
)
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.base import Solver

TRIALS = 6
CLIP = 0.3
LOUD = 30.0
FAR, LONGER = 20.0, 60
"""Times a parameter, and steps: every record is sampled, far from the start."""
SHARES = (5.0, 500.0)
"""Of the second, released constants are above the floor that noise puts under them."""
WEAK = 0.02


def replay_audit(candidate: Candidate) -> None:
    """Let data through the mechanisms alone, within the declared sensitivities."""
    results = replay_results(candidate)
    _require_none(results, lambda one: one.violations)
    if all(one.refusal for one in results):
        raise NotApplicable("it serves no problem of the check")


def declarations_know_no_data(candidate: Candidate) -> None:
    """Declare the same for neighbours: releases, their sizes, lengths, refusals."""
    _require_none(replay_results(candidate), lambda one: one.declared)


def samples_are_those_charged(candidate: Candidate) -> None:
    """Let a record into the sums over samples that hold it, and nothing else."""
    _require_none(replay_results(candidate), lambda one: one.sampled)


def records_are_read_once(candidate: Candidate) -> None:
    """Read no record twice, and none that was not handed out, where that is charged."""
    _require_none(replay_results(candidate), lambda one: one.read)


def sensitivities_are_tight(candidate: Candidate) -> None:
    """Declare no more than three times the change that a record makes.

    That is no matter of privacy: a loose sensitivity costs noise.
    """
    # All pairs of each, which what was sought by itself has not.
    known = {case for case in corners(candidate) if case.toggled is None}
    at_corners = [one for one in replay_results(candidate) if one.case in known]
    least = {one.case.title: _least(one.case) for one in at_corners}
    grouped = _grouped(at_corners)
    loose = {
        title
        for title, ratios in grouped.items()
        if any(ratio < least[title] for ratio in ratios.values())
    }
    far = [case for case in _stretched(candidate) if case.title in loose]
    for title, ratios in _grouped([*at_corners, *replayed(candidate, far)]).items():
        for name, ratio in ratios.items():
            require(
                ratio >= least[title],
                f"{title}: release {name} changes by {ratio:.2g} of its declared "
                f"sensitivity at most, at least {least[title]} is expected; that is "
                "no matter of privacy, but of noise that nobody needs: declare less, "
                "or name sensitivities_are_tight in `exempt` with the reason",
            )


def private_constants_are_audited(candidate: Candidate) -> None:
    """Keep what is declared with smoothness=private: the M_j are released first."""
    served = [one for one in private_results(candidate) if not one.refusal]
    if not served:
        raise NotApplicable("it serves no constants that are released")
    _require_none(served, lambda one: one.all)
    for title, ratios in _grouped(served).items():
        ratio = ratios.get("smoothness", 0.0)
        require(ratio > 0.99, f"{title}: the M_j change by {ratio:.2g} only")


def all_of_it_was_run(candidate: Candidate) -> None:
    """Have every line run in a replay, and every condition come out both ways.

    But for what ends in an error, declares cost or accuracy, or is named in `exempt`.
    """
    try:
        made = sources_of(candidate.solver)
    except (OSError, TypeError):
        raise NotApplicable("no file holds its source") from None
    results = [*replay_results(candidate), *private_results(candidate)]
    ran = set[int]().union(*(one.ran for one in results))
    missed = unrun(made, candidate.solver, ran)
    exempt = {squeezed(name): why for name, why in candidate.solver.exempt.items()}
    left, reasons = [], dict[str, str]()
    for one in missed:
        names = (squeezed(one.name), *one.place.scope)
        why = next((exempt[name] for name in names if name in exempt), "")
        if why:
            reasons[one.where(made)] = why
        else:
            left.append(one)
    count = sum(not one.refusal for one in results)
    if left:
        places = "; ".join(one.sentence(made, count) for one in left)
        raise NotAllRun(
            f"{places}: what follows is not checked; make it a parameter, or name it "
            "in `exempt` with a reason"
        )
    if reasons:
        raise NotApplicable("; ".join(f"{a}: {why}" for a, why in reasons.items()))


def _require_none(
    results: Iterable[ReplayResult], of: Callable[[ReplayResult], list[str]]
) -> None:
    for one in results:
        words = "; ".join(dict.fromkeys(of(one)))
        title = f"{one.case.title}, neighbours: {one.case.family}"
        require(not words, f"{title}: {words}")


@functools.lru_cache(maxsize=16)
def replay_results(candidate: Candidate) -> list[ReplayResult]:
    """Return the results of all cases but those of released constants.

    What they do not run of the sources is sought by further ones.
    """
    others = functools.partial(private_results, candidate)
    with replaying(candidate) as run:
        results = list(run(list(all_cases(candidate))))
        for cases, interpreted in directed(candidate, results, others):
            results += run(cases, interpreted)
    return results


@functools.lru_cache(maxsize=16)
def private_results(candidate: Candidate) -> list[ReplayResult]:
    """Return the results of the cases of released constants."""
    return list(replayed(candidate, list(_private(candidate))))


def all_cases(candidate: Candidate) -> Iterator[Case]:
    """Yield all cases but those of released constants."""
    # First those in which the record decides most: caches keep what they see first.
    yield from varied(candidate)
    for number, case in enumerate(corners(candidate)):
        yield case
        if number == 0:  # the budget decides on noise, or on the length
            how: dict[str, Any] = {"trials": 1, "points": "all", "calibrated": True}
            for adjacency, epsilon in itertools.product(Adjacency, (1.0, 50.0)):
                yield replace(case, adjacency=adjacency, epsilon=epsilon, **how)


def corners(candidate: Candidate, least: int = 0, **params: Any) -> Iterator[Case]:
    """Yield variants on problems, their records at the extremes, any two together once.

    That is: each variant meets each loss, penalty and set that it serves, and so do
    these each other; what meets has both adjacencies, and all pairs of neighbours.

    Parameters
    ----------
    candidate : Candidate
    least : int
        Steps of a run, about; 0: as many as by default.
    **params
        Parameters.
    """
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for (variant, clip, group), parts, adjacency in itertools.product(
        _clipped(candidate), candidate.objectives(), Adjacency
    ):
        solver = candidate.build(variant, clip=clip, **params)
        pairs = candidate.corners(parts, adjacency, WEAK)
        problem = pairs[0][0]
        if solver.refusal(problem) or not is_bounded(problem, solver, adjacency):
            continue
        if least:
            solver = resized(solver, problem, least, 2 * least)
        case = _loud(candidate, solver, parts, adjacency, group)
        # All other candidates meet toggled coins where they are varied.
        both = candidate.foreign and is_sampled(problem, solver, adjacency)
        groups.setdefault((group, *parts), []).extend(
            replace(case, family=f"{CORNERS} {number}", toggled=toggled)
            for number in range(len(pairs))
            for toggled in ((None, 0, 1) if both else (None,))
        )
    for what in pairwise_covering(groups):
        yield from groups[what]


def _clipped(candidate: Candidate) -> list[tuple[Variant, float | None, str]]:
    """Return variants, each with a threshold or None, and their names in messages."""
    clipped: list[tuple[Variant, float | None, str]] = []
    for variant in candidate.variants:
        if "clip" in candidate.parameters:
            clipped.append((variant, CLIP, f"{candidate.title(variant)}, clip={CLIP}"))
        clipped.append((variant, None, candidate.title(variant)))
    return clipped


def _loud(
    candidate: Candidate, solver: Solver, parts: Parts, adjacency: Adjacency, group: str
) -> Case:
    """Return a loud case on records at the corners of their bounds."""
    trials = TRIALS if candidate.solver.batchable else 1
    head = (params_of(solver), parts, CORNERS, adjacency, trials)
    return Case(*head, z=LOUD, strength=WEAK, brief=True, group=group)


def _stretched(candidate: Candidate) -> Iterator[Case]:
    """Yield long corners at the default, and at each batched number times `FAR`."""
    yield from corners(candidate, LONGER)
    usual = dict(params_of(candidate.build()))
    for name, field in candidate.parameters.items():
        if field.metadata["kind"] == "value" and usual[name]:
            yield from corners(candidate, LONGER, **{name: FAR * usual[name]})


def _least(case: Case) -> float:
    """Return the least part of a sensitivity that a change must reach.

    No run visits all corners of a constraint, and no release that is made a few times
    meets its worst iterate. Squared loss on a box: where margins are large all
    gradients lean towards w, so that a replaced record changes less than two opposite
    ones would; at the start they are as large as labels alone make them.
    """
    free = dict(case.params).get("clip") is None and case.parts[0] == "squared"
    leaning = free and case.adjacency is Adjacency.REPLACE_ONE
    return 0.1 if leaning else 0.3


def _grouped(results: Iterable[ReplayResult]) -> dict[str, dict[str, float]]:
    """Return the largest ratio of each release, by title of cases."""
    grouped: dict[str, dict[str, float]] = {}
    for one in results:
        ratios = grouped.setdefault(one.case.title, {})
        for name, ratio in one.ratios.items():
            ratios[name] = max(ratios.get(name, 0.0), ratio)
    return grouped


def _private(candidate: Candidate) -> Iterator[Case]:
    """Yield cases in which the smoothness constants are released."""
    parts = ("logistic", "l2", "none")
    for (variant, clip, group), adjacency in itertools.product(
        _clipped(candidate), Adjacency
    ):
        solver = candidate.build(variant, clip=clip, smoothness="private")
        group = f"{group}, smoothness=private"
        case = _loud(candidate, solver, parts, adjacency, group)
        # A record of zeros moves the M_j most: it is a replacement, too.
        for kind in sorted({adjacency, Adjacency.ZERO_OUT}):
            for number in range(len(neighbours(kind, parts, WEAK))):
                for epsilon in SHARES:
                    family = f"{CORNERS} {number} {kind.value}"
                    yield replace(case, family=family, epsilon=epsilon)
