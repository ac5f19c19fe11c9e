"""What was run is counted a second time."""

from __future__ import annotations

from typing import Any

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.recount import recount
from dp_erm_bench.audit.witness import listen
from dp_erm_bench.contract.candidate import Candidate, Variant
from dp_erm_bench.contract.errors import NotApplicable, require
from dp_erm_bench.contract.runs import run_at
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.problem import Problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.run import Run

BUDGET = 1.0
DELTA = 1e-6
LITTLE = 0.05


def the_noise_is_recounted(candidate: Candidate) -> None:
    """Release what was certified: the noise and the uses of a run, counted again."""
    served = 0
    for variant, problem in candidate.first():
        for adjacency in Adjacency:
            budget = Budget(BUDGET, DELTA, adjacency)
            told = f"{candidate.told(variant, problem)}, {adjacency.value}"
            for ahead in (True, False):
                try:
                    run = calibrated_run(candidate, variant, problem, budget)
                except Unsupported:
                    continue
                complaint = recounted(run, ahead)
                require(not complaint, f"{told}: {complaint}")
                served += 1
        _listen_to_little_noise(candidate, variant, problem)
    if not served:
        raise NotApplicable(f"it serves no problem of the check at epsilon={BUDGET:g}")


def _listen_to_little_noise(
    candidate: Candidate, variant: Variant, problem: Problem
) -> None:
    """Hear winners where noise does not drown the scores: with half of it, too."""
    run = run_at(problem, [candidate.build(variant, clip=1.0)], z=LITTLE)
    heard = listen(run.mechanisms)
    run.iterates()
    told = candidate.told(variant, problem)
    for release in run.releases:
        found, least = heard.get(release.name), LITTLE * release.weight
        enough = found is None or found.ratio >= least * (1 - 1e-6)
        require(enough, f"{told}: release {release.name} has other noise than its own")


def calibrated_run(
    candidate: Candidate,
    variant: Variant,
    problem: Problem,
    budget: Budget,
    mode: str = "certified",
    **given: Any,
) -> Run:
    """Return a run of a variant under a budget.

    Raises
    ------
    Unsupported
        If the algorithm does not serve the problem under the budget.
    """
    solvers = [candidate.build(variant, **{"clip": 1.0, **given})]
    return Run(problem, solvers, budget, mode, ("a",))


def recounted(run: Run, ahead: bool) -> str:
    """Run, and return how it departs from what is certified, empty if it does not.

    Plain steps are listened to: what the mechanisms say of themselves is not believed.
    """
    run.mechanisms.ahead = ahead
    heard = None if ahead else listen(run.mechanisms)
    run.iterates()
    proof = run.calibration
    return recount(run.mechanisms, proof, heard=heard).complaint(proof)
