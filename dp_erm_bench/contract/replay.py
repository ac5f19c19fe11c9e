"""The replay audit of an algorithm: both adjacencies, neighbours at the extremes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp_erm_bench.contract.candidate import Candidate, Variant
from dp_erm_bench.contract.errors import NotApplicable, require
from dp_erm_bench.contract.problems import Parts, at_corners, neighbours, objectives
from dp_erm_bench.contract.runs import Run, audit, is_bounded
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.privacy.adjacency import Adjacency
from dp_erm_bench.privacy.audit import ReplayReport
from dp_erm_bench.solvers.base import Solver

TRIALS = "abcdef"
LOUD = 30.0
CLIP = 0.3
FAR = {"n_iter": 60, "step": 20.0}
"""A longer run with long steps: every record is sampled, far from the start."""
SHARES = (5.0, 500.0)
"""Of the second, released constants are above the floor that noise puts under them."""


@dataclass
class Audited:
    """What the audit of one variant on all pairs found.

    Attributes
    ----------
    told : str
        The variant, the problem and the adjacency.
    ratios : dict
        Per release, the largest change / its declared sensitivity.
    least : float
        What the ratios must exceed, else the declaration is loose.
    violations : list of str
    """

    told: str
    least: float
    ratios: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def add(self, report: ReplayReport) -> None:
        """Take the report of one pair."""
        self.violations += report.violations()
        for release, ratio in report.ratios.items():
            self.ratios[release] = max(self.ratios.get(release, 0.0), ratio)

    @property
    def loose(self) -> list[str]:
        """Return the releases that never come near their sensitivity."""
        return [name for name, ratio in self.ratios.items() if ratio <= self.least]


def replay_audit(candidate: Candidate) -> None:
    """Let data through the mechanisms alone, within the declared sensitivities."""
    for found in _audited(candidate):
        sentence = f"{found.told}: {'; '.join(dict.fromkeys(found.violations))}"
        require(not found.violations, sentence)


def sensitivities_are_tight(candidate: Candidate) -> None:
    """Declare no more than twice the change that a record makes."""
    for found in _audited(candidate):
        for name in found.loose:
            ratio = found.ratios[name]
            require(
                False,
                f"{found.told}: release {name} changes by {ratio:.2g} of its declared "
                f"sensitivity at most, {found.least} or more is expected",
            )


def private_constants_are_audited(candidate: Candidate) -> None:
    """Keep what is declared with smoothness=private: the M_j are released first."""
    done = 0
    for variant, adjacency in itertools.product(candidate.variants, Adjacency):
        for clip in _clips(candidate):
            solver = candidate.build(variant, clip=clip, smoothness="private")
            parts = ("logistic", "l2", "none")
            told = _told(candidate, variant, parts, adjacency, clip)
            found = Audited(f"{told}, smoothness=private", 0.0)
            # A record of zeros moves the M_j most: it is a replacement, too.
            kinds = {adjacency, Adjacency.ZERO_OUT}
            pairs = [pair for kind in kinds for pair in neighbours(kind, parts)]
            try:
                for epsilon in SHARES:
                    _add_all(found, candidate, solver, adjacency, pairs, epsilon)
            except Unsupported:
                continue
            done += 1
            sentence = f"{found.told}: {'; '.join(dict.fromkeys(found.violations))}"
            require(not found.violations, sentence)
            require(not found.loose, f"{found.told}: {found.loose} never change")
            ratio = found.ratios.get("smoothness", 0.0)
            require(ratio > 0.99, f"{found.told}: the M_j change by {ratio:.2g} only")
    if not done:
        raise NotApplicable("it serves no constants that are released")


@functools.lru_cache(maxsize=16)
def _audited(candidate: Candidate) -> list[Audited]:
    cases = itertools.product(
        candidate.variants,
        objectives(candidate.solver.constrained),
        Adjacency,
        _clips(candidate),
    )
    return [found for case in cases for found in _audit_of(candidate, *case)]


def _audit_of(
    candidate: Candidate,
    variant: Variant,
    parts: Parts,
    adjacency: Adjacency,
    clip: float | None,
) -> Iterator[Audited]:
    """Yield what a variant's audit finds, nothing if it does not serve the problem."""
    solver = candidate.build(variant, clip=clip)
    problem = at_corners(np.zeros((2, 4)), np.ones(2), parts)
    refused = solver.refusal(problem) is not None
    if refused or not is_bounded(problem, solver, adjacency):
        return
    # Squared loss on a bounded domain: where margins are large all gradients lean
    # towards w, so that a replaced record changes less than two opposite ones would;
    # and no run visits all corners of a constraint.
    wide = adjacency is Adjacency.REPLACE_ONE or parts[2] != "none"
    lean = clip is None and parts[0] == "squared" and wide
    told = _told(candidate, variant, parts, adjacency, clip)
    found = Audited(told, 0.3 if lean else 0.5)
    _add_all(found, candidate, solver, adjacency, neighbours(adjacency, parts))
    if found.loose and not found.violations:
        solver = candidate.build(variant, clip=clip, **candidate.within_limits(FAR))
        _add_all(found, candidate, solver, adjacency, neighbours(adjacency, parts))
    yield found


def _add_all(
    found: Audited,
    candidate: Candidate,
    solver: Solver,
    adjacency: Adjacency,
    pairs: Any,
    epsilon: float = SHARES[0],
) -> None:
    for pair in pairs:
        for names in candidate.trials(TRIALS):
            given: Mapping[str, Any] = {
                "z": LOUD,
                "identities": names,
                "adjacency": adjacency,
                "epsilon": epsilon,
            }
            runs = [Run(problem, [solver] * len(names), **given) for problem in pair]
            found.add(audit(*runs))


def _clips(candidate: Candidate) -> tuple[float | None, ...]:
    return (CLIP, None) if "clip" in candidate.parameters else (None,)


def _told(
    candidate: Candidate,
    variant: Variant,
    parts: Parts,
    adjacency: Adjacency,
    clip: float | None,
) -> str:
    words = " + ".join(part for part in parts if part != "none")
    clipped = f", clip={clip}" if clip is not None else ""
    return f"{candidate.told(variant)} on {words}, {adjacency.value}{clipped}"
