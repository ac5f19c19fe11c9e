"""Algorithms, in all variants, that the solvers' tests go through.

Nothing here lists the algorithms, losses or penalties: the yaml files do. Penalties
are the separable ones, which many tests take apart.
"""

from dp_erm_bench import registry
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.problems import curved_losses, separable_penalties
from dp_erm_bench.contract.runs import run_at
from dp_erm_bench.run import Run

ALGORITHMS = registry.names("algorithm")
LOSSES = curved_losses()
PENALTIES = separable_penalties()
CANDIDATES = {name: candidate_of(name) for name in ALGORITHMS}
VARIANTS = [(name, v) for name, made in CANDIDATES.items() for v in made.variants]


def label(variant):
    name, given = variant
    return CANDIDATES[name].title(given)


def solver_of(variant, **given):
    name, shapes = variant
    return CANDIDATES[name].build(shapes, **given)


def supported(variant, problem):
    return solver_of(variant, clip=1.0).refusal(problem) is None


def solve(problem, solvers, budget, calibration, identities, checkpoints):
    """A recorded run under a budget."""
    run = Run(problem, solvers, budget, calibration, identities)
    return run.record(checkpoints)


def end(problem, solver, length, ahead=True):
    """The last iterate of a run without noise."""
    known = problem.with_smoothness("data")
    run = run_at(known, [solver], z=0.0, checkpoints=(0, length), ahead=ahead)
    return run.iterates()[-1][0]
