"""Replays of an algorithm: the same answers on a neighbouring dataset."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from dp_erm_bench.contract.candidate import Candidate, Variant
from dp_erm_bench.contract.cases import Case, Plan, given_of, is_sampled, varied
from dp_erm_bench.contract.errors import NotApplicable, require
from dp_erm_bench.contract.interpreters import replayed
from dp_erm_bench.contract.pairs import CORNERS
from dp_erm_bench.contract.problems import Parts, neighbours
from dp_erm_bench.contract.runs import is_bounded
from dp_erm_bench.contract.verdicts import Verdict
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
    found = verdicts(candidate)
    _require_none(found, lambda one: one.violations)
    if all(one.refusal for one in found):
        raise NotApplicable("it serves no problem of the check")


def declarations_know_no_data(candidate: Candidate) -> None:
    """Declare the same for neighbours: releases, their sizes, lengths, refusals."""
    _require_none(verdicts(candidate), lambda one: one.declared)


def samples_are_those_charged(candidate: Candidate) -> None:
    """Let a record into the sums over samples that hold it, and nothing else."""
    _require_none(verdicts(candidate), lambda one: one.sampled)


def sensitivities_are_tight(candidate: Candidate) -> None:
    """Declare no more than twice the change that a record makes."""
    for told, (least, ratios) in _tightest(candidate).items():
        for name, ratio in ratios.items():
            require(
                ratio > least,
                f"{told}: release {name} changes by {ratio:.2g} of its declared "
                f"sensitivity at most, {least} or more is expected",
            )


def private_constants_are_audited(candidate: Candidate) -> None:
    """Keep what is declared with smoothness=private: the M_j are released first."""
    cases = list(_private(candidate))
    found = [one for one in replayed(candidate, cases) if not one.refusal]
    if not found:
        raise NotApplicable("it serves no constants that are released")
    _require_none(found, lambda one: one.all)
    for told, ratios in _grouped(found).items():
        ratio = ratios.get("smoothness", 0.0)
        require(ratio > 0.99, f"{told}: the M_j change by {ratio:.2g} only")


def _require_none(found: Iterable[Verdict], of: Callable[[Verdict], list[str]]) -> None:
    for one in found:
        if sentences := of(one):
            told = f"{one.case.told}: {'; '.join(dict.fromkeys(sentences))}"
            require(False, told)


@functools.lru_cache(maxsize=16)
def verdicts(candidate: Candidate) -> list[Verdict]:
    """Return the verdicts of all cases but those of released constants."""
    return list(replayed(candidate, list(all_cases(candidate))))


def all_cases(candidate: Candidate) -> Iterator[Case]:
    """Yield all cases but those of released constants."""
    # First those in which the record decides most: caches keep what they see first.
    yield from varied(candidate)
    yield from corners(candidate)


def stretched(candidate: Candidate) -> Iterator[dict[str, Any]]:
    """Yield the default, and each number that may differ in a batch, 20 times it."""
    yield {}
    usual = dict(given_of(candidate.build()))
    for name, field in candidate.parameters.items():
        if field.metadata["kind"] == "value" and usual[name]:
            yield {name: FAR * usual[name]}


def corners(candidate: Candidate, least: int = 0, **given: Any) -> Iterator[Case]:
    """Yield all variants on all problems, their records at the extremes."""
    for variant, parts, adjacency, clip in itertools.product(
        candidate.variants,
        candidate.objectives(),
        Adjacency,
        clips(candidate),
    ):
        solver = candidate.build(variant, clip=clip, **candidate.within_limits(given))
        pairs = candidate.corners(parts, adjacency, WEAK)
        problem = pairs[0][0]
        if solver.refusal(problem) or not is_bounded(problem, solver, adjacency):
            continue
        if least:
            solver = Plan(candidate).lengthened(dict(given_of(solver)), problem, least)
        made = _at_corners(candidate, solver, parts, adjacency)
        made = replace(made, group=_group(candidate, variant, clip))
        # All other candidates meet toggled coins where they are varied.
        both = candidate.foreign and is_sampled(problem, solver)
        for number in range(len(pairs)):
            for toggled in (None, 0, 1) if both else (None,):
                yield replace(made, family=f"{CORNERS} {number}", toggled=toggled)


def _at_corners(
    candidate: Candidate, solver: Solver, parts: Parts, adjacency: Adjacency
) -> Case:
    """Return a loud case on records at the corners of their bounds."""
    trials = TRIALS if candidate.solver.batchable else 1
    given = (given_of(solver), parts, CORNERS, adjacency, trials)
    return Case(*given, z=LOUD, strength=WEAK, brief=True)


def _group(candidate: Candidate, variant: Variant, clip: float | None) -> str:
    clipped = f", clip={clip}" if clip is not None else ""
    return f"{candidate.told(variant)}{clipped}"


@functools.lru_cache(maxsize=16)
def _tightest(candidate: Candidate) -> dict[str, tuple[float, dict[str, float]]]:
    """Return, per group, what its ratios must exceed and what they are."""
    at_corners = [
        one
        for one in verdicts(candidate)
        if CORNERS in one.case.family and one.case.toggled is None
    ]
    found = _grouped(at_corners)
    least = {one.case.group_told: _least(one.case) for one in at_corners}
    loose = {
        told
        for told, ratios in found.items()
        if any(ratio <= least[told] for ratio in ratios.values())
    }
    far = [
        case
        for given in stretched(candidate)
        for case in corners(candidate, LONGER, **given)
        if case.group_told in loose
    ]
    for told, ratios in _grouped(replayed(candidate, far)).items():
        for name, ratio in ratios.items():
            found[told][name] = max(found[told].get(name, 0.0), ratio)
    return {told: (least[told], ratios) for told, ratios in found.items()}


def _least(case: Case) -> float:
    """Return which part of a sensitivity must be seen.

    No run visits all corners of a constraint. Squared loss on a box: where margins are
    large all gradients lean towards w, so that a replaced record changes less than two
    opposite ones would.
    """
    free = dict(case.given).get("clip") is None and case.parts[0] == "squared"
    leaning = free and case.adjacency is Adjacency.REPLACE_ONE
    return 0.3 if leaning or case.parts[2] != "none" else 0.5


def _grouped(found: Iterable[Verdict]) -> dict[str, dict[str, float]]:
    """Return the largest ratio of each release, by group of cases."""
    grouped: dict[str, dict[str, float]] = {}
    for one in found:
        ratios = grouped.setdefault(one.case.group_told, {})
        for name, ratio in one.ratios.items():
            ratios[name] = max(ratios.get(name, 0.0), ratio)
    return grouped


def _private(candidate: Candidate) -> Iterator[Case]:
    """Yield cases in which the smoothness constants are released."""
    parts = ("logistic", "l2", "none")
    for variant, adjacency, clip in itertools.product(
        candidate.variants, Adjacency, clips(candidate)
    ):
        solver = candidate.build(variant, clip=clip, smoothness="private")
        made = _at_corners(candidate, solver, parts, adjacency)
        group = f"{_group(candidate, variant, clip)}, smoothness=private"
        made = replace(made, group=group)
        # A record of zeros moves the M_j most: it is a replacement, too.
        for kind in sorted({adjacency, Adjacency.ZERO_OUT}):
            for number in range(len(neighbours(kind, parts, WEAK))):
                for epsilon in SHARES:
                    family = f"{CORNERS} {number} {kind.value}"
                    yield replace(made, family=family, epsilon=epsilon)


def clips(candidate: Candidate) -> tuple[float | None, ...]:
    """Return thresholds to be tried; none where there is no such parameter."""
    return (CLIP, None) if "clip" in candidate.parameters else (None,)
