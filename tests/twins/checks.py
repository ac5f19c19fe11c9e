"""The checks that broken copies of solvers go through, with their short names."""

import contextlib
from unittest.mock import patch

import numpy as np

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import (
    budget_left,
    calibrate,
    shared_mechanisms,
)
from dp_erm_bench.audit.accounting import unit_problem
from dp_erm_bench.audit.profile import OK, verdict
from dp_erm_bench.audit.statistic import AuditError, attack_on
from dp_erm_bench.contract import limits
from dp_erm_bench.contract.candidate import Candidate, run_at
from dp_erm_bench.contract.suite import FAILS
from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from tests.contract.own import check_named
from tests.twins import laws
from tests.twins.kinds import KINDS, OBJECTIVES, OUTPUTS, SAMPLED, SINGLE, VECTOR

DELTA = 1e-6


class Narrow(Candidate):
    """A candidate in one variant, on one problem: the twin's."""

    rows = ({},)
    families = ("outlier", "lone column")

    @property
    def variants(self):
        return [{}]

    def objectives(self):
        return [laws.PARTS]

    def problems(self, variant):
        return [laws.problem()]


def contract(name):
    """Return the check of the contract of a name, as a check of twins."""

    def check(twin):
        made = narrowed(twin)
        with few_problems(), kept_random_state():
            result = check_named(name).result(made)
        return result.reason if result.verdict == FAILS else ""

    return check


LAST = [None, None]
"""The last twin and its candidate: what is replayed once serves several checks."""


def narrowed(twin):
    if LAST[0] is not twin:
        LAST[:] = [twin, Narrow("twin", twin.solver(), twin.params)]
    return LAST[1]


@contextlib.contextmanager
def few_problems():
    def parts(constrained=False):
        return [laws.PARTS]

    with patch.object(limits, "objectives", parts):
        yield


@contextlib.contextmanager
def kept_random_state():
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)


def fits(twin):
    """Return how the noise of runs departs from the law that is accounted."""
    given = {"n_iter": 3, "step": 1e-9, **twin.params}
    kind = twin.kind
    if kind.release == "smoothness":
        given["n_iter"] = 0
    solver = Candidate("twin", twin.solver(), {}).build(**given)
    try:
        with kept_random_state():
            return laws.misfit(solver, kind.release)
    except BudgetExhausted as error:
        return str(error)


def scale(twin):
    """Return how the noise scale departs from the one of the formulas."""
    kind = twin.kind
    public = unit_problem().with_smoothness("public")
    given = {**twin.params, **kind.reference}
    given.pop("clip" if "clip" not in kind.reference else "", None)
    solver = Candidate("twin", twin.solver(), {}).build(**given)
    budget = Budget(1.0, DELTA, Adjacency.REPLACE_ONE)
    run = run_at(public, [solver], epsilon=1.0)
    if run.shares:
        made = shared_mechanisms(run.shares, budget, ["a"])
    else:
        events = tuple(release.law() for release in run.releases)
        z = calibrate(events, budget_left(budget, run.shares)).z
        made = make_mechanisms(run.releases, z, ["a"])
    found = float(made[kind.release].scale.max())
    expected = kind.scale
    if kind in (KINDS[name] for name in OUTPUTS):
        expected *= 1 + 2 * solver.tolerance / reach(solver, public)
    near = abs(found / expected - 1) < 1e-3
    return (
        "" if near else f"the scale is {found / expected:.3g} times that of the formula"
    )


def reach(solver, problem):
    """Return 2 Lambda / (n m)."""
    return 2 * np.sqrt(20.0) / (problem.n * solver.modulus(problem))


def audited(twin):
    """Return what the statistical audit says at as many runs as it takes."""
    kind = twin.kind
    usual = {"n_iter": 0 if kind.release == "smoothness" else 10, "step": 1e-9}
    if kind is KINDS["Poisson sampled Gaussian"]:
        usual["batch_size"] = 10
    given = {**usual, **{k: v for k, v in twin.params.items() if k != "batch_size"}}
    solver = Candidate("twin", twin.solver(alone=True), {}).build(**given)
    try:
        with kept_random_state():
            attack = attack_on(
                solver, Budget(kind.epsilon, DELTA, Adjacency.REPLACE_ONE)
            )
            sides = [attack.run(side, kind.runs, "twins") for side in (0, 1)]
    except (BudgetExhausted, AuditError) as error:
        return str(error)
    found = verdict(*sides, attack.guarantee, 1e-3)
    return "" if found.verdict == OK else f"excess {found.excess:.3f}"


CONTRACT = (
    "uses_are_those_declared",
    "declarations_know_no_data",
    "the_noise_is_recounted",
    "samples_are_those_charged",
    "records_are_read_once",
    "runs_repeat",
    "draws_are_distinct",
    "global_random_state_is_untouched",
    "replay_audit",
    "private_constants_are_audited",
    "the_limit_is_reached",
)
QUICK = {name: contract(name) for name in CONTRACT} | {
    "goodness of fit": fits,
    "exact scale": scale,
}
SLOW = {"statistical audit": audited}


def asked(kind, name):
    """Whether a check has a meaning for a kind of release, and is cheap."""
    if name == "private_constants_are_audited":
        return kind == VECTOR
    if name == "samples_are_those_charged":
        return kind == SAMPLED
    if name == "records_are_read_once":
        return kind == SINGLE
    if name == "the_limit_is_reached":
        return kind in (*OUTPUTS, *OBJECTIVES)
    return True


def complaints(kind, twin, checks):
    """Return what each check says of a twin, but for those that are content."""
    with twin.living():
        said = {name: run(twin) for name, run in checks.items() if asked(kind, name)}
    return {name: words for name, words in said.items() if words}
