"""Test filters: which random steps pass, and that runs stay below the curve."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from dp_erm_bench.accounting.bounds import default_orders
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.releases import repeat_and_select
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.releases.renyi_filter import (
    RenyiFilter,
    RenyiFilterLaw,
    highest_order,
)
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect, law_of_fixed_size
from dp_erm_bench.trust.recount import listen_to_run, recount, watch_runs
from dp_erm_bench.trust.twins.renyi_filter import RenyiFilterTwin

MULTIPLIER, CHANCES = 6.0, (0.6, 0.3, 0.1)
SINGLE = FixedSizeGaussian("single", 2.0, 1, rate=0.01)
STEPS = tuple(
    (FixedSizeGaussian(f"level {k}", 1.0, 1, 0.7, rate=0.02 * 4**k), SINGLE)
    for k in range(3)
)
Y, FINE = np.linspace(-40.0, 40.0, 8001), np.linspace(-40.0, 40.0, 80_001)


def filter_of(most=400, steps=STEPS, chances=CHANCES, multiplier=MULTIPLIER):
    facts = {"chances": chances, "steps": steps, "most": most}
    return RenyiFilter("steps", 1.0, 1, multiplier=multiplier, **facts)


def made(z, name="a", **how):
    return make_mechanisms([filter_of(**how)], z, [name])["steps"]


def passed(z, name="a", **how):
    return made(z, name, **how).passing_kinds(z)


def spent(kinds, orders):
    """The sum of the steps' curves, law by law."""
    laws = [[one.law() for one in kind] for kind in STEPS]
    curves = [sum(law.rdp(MULTIPLIER, orders) for law in kind) for kind in laws]
    return np.sum([curves[kind] for kind in kinds], axis=0)


@pytest.mark.parametrize("z", [2.0, 4.0, 12.0])
def test_a_run_is_the_longest_one_below_the_curve(z):
    everything = passed(0.0)
    assert everything.size == 400
    orders = default_orders()
    orders = orders[orders <= highest_order(z)]
    lengths = set()
    for i in range(5):
        kinds, drawn = passed(z, f"run {i}"), passed(0.0, f"run {i}")
        lengths.add(kinds.size)
        assert 0 < kinds.size < 400 and np.array_equal(kinds, drawn[: kinds.size])
        # Between whole orders, too, though these alone are compared.
        assert (spent(kinds, orders) <= RenyiFilterLaw(1).rdp(z, orders)).all()
        longer = spent(drawn[: kinds.size + 1], orders)
        assert (longer > RenyiFilterLaw(1).rdp(z, orders)).any()
    assert len(lengths) > 2


def test_the_curve_is_that_of_one_gaussian_at_whole_orders_and_ends():
    law = RenyiFilterLaw(1, 0.5)
    whole = np.arange(2.0, 21.0)
    np.testing.assert_allclose(law.rdp(8.0, whole), whole / 32, rtol=1e-14)
    between = law.rdp(8.0, np.array([1.001, 1.5, 2.5]))
    # Chords of a (a - 1) / 32 over a - 1.
    np.testing.assert_allclose(between, [2 / 32, 2 / 32, 4 / 1.5 / 32], rtol=1e-12)
    assert np.isinf(law.rdp(8.0, np.array([20.0001, 1e4]))).all()
    assert [highest_order(m) for m in (1e-9, 110.0, 512.0, 513.0)] == [
        2,
        512,
        512,
        math.inf,
    ]


def test_tiny_budgets_leave_no_step():
    release = best_of(filter_of())
    for epsilon, some in ((0.1, True), (0.02, False)):
        z = calibrate((release.law(),), Budget(epsilon, 1e-6)).z
        lengths = [passed(z, f"run {i}", multiplier=150.0).size for i in range(3)]
        assert any(lengths) == some


def test_kinds_have_their_chances():
    counts = np.zeros(3)
    for i in range(50):
        counts += np.bincount(passed(0.0, f"run {i}"), minlength=3)
    assert stats.chisquare(counts, counts.sum() * np.array(CHANCES)).pvalue > 1e-3


def moment(kind, order, sides):
    """The moment of one step of one mixture, P^a Q^(1 - a), on a line."""
    p, q = (
        logsumexp(
            [math.log(w) + stats.norm.logpdf(Y, at) for w, at in law if w], axis=0
        )
        for law in sides[kind]
    )
    return logsumexp(order * p + (1 - order) * q) + math.log(Y[1] - Y[0])


@pytest.mark.parametrize("adjacency", Adjacency)
def test_exact_runs_of_secret_kinds_are_below_the_curve(adjacency):
    """Of three steps at most, all kinds summed; D from D', and D' from D.

    Kinds are a loud Gaussian and one of a sample, which holds the record half the time.
    """
    gone, z = adjacency is Adjacency.ZERO_OUT, 1.1
    kinds = ((Gaussian("all", 1.0, 1),), (FixedSizeGaussian("part", 1.0, 1, rate=0.5),))
    how = {"most": 3, "steps": kinds, "chances": (0.25, 0.75), "multiplier": 2.0}
    there = 0.0 if gone else -0.25
    sides = (
        (((1.0, 0.5 + there),), ((1.0, there),)),
        (((0.5, 0.0), (0.5, 0.5 + there)), ((0.5, 0.0), (0.5, there))),
    )
    mechanism, orders = made(z, **how), np.array([1.2, 1.7, 2.0, 2.6, 4.0, 5.5])
    law = mechanism.release.law().rdp(z, orders)
    for turned in (False, True):
        pairs = [both[::-1] if turned else both for both in sides]
        exact = []
        for order in orders:
            steps = [moment(kind, order, pairs) for kind in (0, 1)]
            logs = []
            for drawn in itertools.product((0, 1), repeat=3):
                chance = math.prod(how["chances"][kind] for kind in drawn)
                count = passing(mechanism, z, drawn)
                logs.append(math.log(chance) + sum(steps[k] for k in drawn[:count]))
            exact.append(logsumexp(logs) / (order - 1))
        assert (np.array(exact) <= law * (1 + 1e-9)).all()
    assert max(exact / law) > 0.5


def passing(mechanism, z, drawn):
    """How many of given kinds pass."""
    orders = np.arange(2.0, highest_order(z) + 1)
    curves = mechanism.release.curves(orders)
    sums = np.cumsum(curves[list(drawn)], axis=0)
    return int((sums <= orders / (2 * z * z)).all(axis=1).sum())


INSIDE = {
    "gaussian": (Gaussian("any", 1.0, 1), None),
    "laplace": (Laplace("any", 1.0, 1), None),
    "poisson": (PoissonGaussian("any", 1.0, 1, rate=0.2), 0.2),
    "fixed size": (FixedSizeGaussian("any", 1.0, 1, rate=0.2), 0.2),
}


def test_all_kinds_inside_are_compared():
    """That of a filter above, by exact runs."""
    kinds = {type(release) for release, _ in INSIDE.values()} | {RenyiFilter}
    assert kinds == set(repeat_and_select.INSIDE)


@pytest.mark.parametrize("kind", INSIDE)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_curves_of_kinds_inside_bound_both_directions(kind, adjacency):
    """Exact pairs: the proof of repeated runs divides D by D' and D' by D."""
    release, rate = INSIDE[kind]
    law, z, orders = (
        law_of_fixed_size(release.law()),
        0.8,
        np.array([1.3, 2.0, 3.0, 8.0]),
    )
    noise = stats.laplace if kind == "laplace" else stats.norm
    # Who replaces: a record's own term is half of the sensitivity in Poisson samples.
    ends = (1.0, 0.0) if adjacency is Adjacency.ZERO_OUT else (0.5, -0.5)
    sides = []
    for end in ends:
        density = noise.logpdf(FINE, end / z)
        if rate is not None:
            others = math.log(1 - rate) + noise.logpdf(FINE)
            density = np.logaddexp(others, math.log(rate) + density)
        sides.append(density)
    bound, found = law.rdp(z, orders), []
    for p, q in (sides, sides[::-1]):
        logs = [logsumexp(a * p + (1 - a) * q) for a in orders]
        found.append((np.array(logs) + math.log(FINE[1] - FINE[0])) / (orders - 1))
    assert (np.array(found) <= bound * (1 + 1e-6)).all()
    if rate is None:
        assert np.max(found / bound) > 1 - 1e-3
    elif adjacency is Adjacency.ZERO_OUT:
        # One direction is worse: a curve of the other one alone is exceeded.
        assert found[0][1] > 1.05 * found[1][1]


class Once:
    """All steps, and a score, of nothing."""

    def attempt(self, oracle, mechanisms, schedule):
        w = mechanisms["steps"](self.steps, 400)
        return w, float(mechanisms["score"](np.zeros(1))[0])

    def steps(self, inside, kinds):
        for kind in kinds:
            for one in STEPS[kind]:
                inside[one.name].sample(0, 100, 1)
                inside[one.name](np.zeros((1, 1)))
        return np.zeros((1, 1))


def best_of(steps):
    return RepeatAndSelect(
        "best", 1.0, 1, gamma=0.3, run=(steps, Laplace("score", 1.0, 1))
    )


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_filtered_run_is_recounted(adjacency):
    release = best_of(filter_of())
    calibration = calibrate((release.law(),), Budget(1.0, 1e-6, adjacency))
    mechanisms = make_mechanisms([release], calibration.z, ["b"])
    witnesses = listen_to_run(mechanisms)
    mechanisms["best"](Once().attempt)
    counted = recount(mechanisms, calibration, witnesses=witnesses)
    assert not counted.complaint(calibration)
    runs = [run["steps"].made for run in mechanisms["best"].audit.made]
    lengths = {run["single"].used if run else 0 for run in runs}
    assert len(lengths) > 1 and max(lengths) > 10


def never_cut(mechanism):
    mechanism.passing_kinds = lambda m: type(mechanism).passing_kinds(mechanism, 0.0)


def halved(mechanism):
    kept = mechanism.listen

    def listen(inside):
        kept(inside)
        inside["single"].scale = inside["single"].scale / 30

    mechanism.listen = listen


@pytest.mark.parametrize("fault", [never_cut, halved])
@pytest.mark.parametrize("heard", [False, True])
def test_faults_of_a_filter_are_recounted(fault, heard):
    release = best_of(filter_of())
    calibration = calibrate((release.law(),), Budget(1.0, 1e-6))
    mechanisms = make_mechanisms([release], calibration.z, ["b"])
    watch_runs(mechanisms)
    witnesses = listen_to_run(mechanisms) if heard else None
    kept = mechanisms["best"].listen

    def spoil(run):
        kept(run)
        fault(run["steps"])

    mechanisms["best"].listen = spoil
    mechanisms["best"](Once().attempt)
    counted = recount(mechanisms, calibration, witnesses=witnesses)
    assert counted.complaint(calibration).startswith("epsilon")


def test_a_step_counts_with_the_least_noise_of_its_columns():
    mechanism, inside = made(4.0), make_mechanisms([SINGLE], 15.0, ["a"])
    inside["single"].spend(1)
    inside["single"].scale = np.array([[30.0, 3.0]])
    mechanism.made = inside
    (twin,) = RenyiFilterTwin.of(filter_of(), mechanism, 4.0, 1).steps
    assert twin.ratio == 1.5


def test_what_is_refused():
    mechanism = made(4.0, most=10)
    with pytest.raises(BudgetExhausted, match="was declared for at most 10 steps, but"):
        mechanism(lambda *_: np.zeros((1, 1)), 11)
    mechanism = made(4.0, most=10)
    mechanism(lambda *_: np.zeros((1, 1)), 10)
    with pytest.raises(BudgetExhausted, match="use 2 was requested"):
        mechanism(lambda *_: np.zeros((1, 1)), 10)
    with pytest.raises(ValueError, match="one trial at a time"):
        make_mechanisms([filter_of()], 1.0, ["a", "b"])
    unbounded = FixedSizeGaussian("any", math.inf, 1, rate=0.1)
    assert filter_of(steps=((unbounded,),), chances=(1.0,)).sensitivity == math.inf
