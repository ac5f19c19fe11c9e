"""Test greedy rules: constants, limits, and the proof of noise on the gradient."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.contract.problems import objective_problem, small_problem
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.solvers.greedy_cd import RULES, ExcessRule, GreedyCD
from dp_erm_bench.solvers.runs import stack_solvers
from tests.loops import each
from tests.privacy.made import law_of
from tests.solvers.cases import LOSSES, PENALTIES, run_at
from tests.solvers.test_limits import well_conditioned_problem

ALL_RULES = {**RULES, "excess": ExcessRule()}
every_rule = pytest.mark.parametrize("rule", ALL_RULES)


class Both(SeparablePenalty):
    """An elastic net on a box, which no yaml makes yet."""

    def __init__(self, l1, l2, lower=-np.inf, upper=np.inf):
        self.l1, self.l2, self.lower, self.upper = l1, l2, lower, upper


def random_cases(count, seed):
    """Arrays (count, 1): w (often 0), g and a change of it, large or tiny; M."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(count, 1)) * (rng.random((count, 1)) < 0.7)
    g = rng.normal(size=(count, 1)) * 3.0
    change = rng.normal(size=(count, 1)) * 10.0 ** rng.uniform(-3, 1, (count, 1))
    M = 10.0 ** rng.uniform(-2, 2, size=(count, 1))
    return w, g, change, M


PAIRS = [(0.0, 0.0), (0.7, 0.0), (0.0, 1.3), (0.7, 1.3), (3.0, 0.05)]


@every_rule
@pytest.mark.parametrize("l1, l2", PAIRS)
def test_scores_have_the_declared_constants_and_no_smaller(rule, l1, l2):
    w, g, change, M = random_cases(20_000, 1)
    penalty, rule = Both(l1, l2), ALL_RULES[rule]
    moved = rule.scores(g + change, w, M, penalty) - rule.scores(g, w, M, penalty)
    slope = np.abs(moved / change) / rule.lipschitz(M, penalty)
    assert slope.max() <= 1.0 + 1e-7
    assert slope.max() >= 0.99


BOXES = [(-0.5, 0.8), (0.0, np.inf), (-np.inf, 0.3), (-1.0, 1.0), (-1e-3, 0.0)]


@every_rule
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("l1, l2", PAIRS)
def test_constants_hold_in_a_box_and_no_smaller_ones_do(rule, l1, l2, box):
    """Half of the points are on the border, where the subdifferential is a ray."""
    w, g, change, M = random_cases(20_000, 2)
    penalty, rule = Both(l1, l2, *box), ALL_RULES[rule]
    w = np.clip(np.where(np.arange(w.size)[:, None] % 2, 9.0 * w, 0.1 * w), *box)
    a, b = (rule.scores(v, w, M, penalty) for v in (g, g + change))
    assert np.isfinite(a).all()
    limit = np.abs(change) * rule.lipschitz(M, penalty)
    assert (np.abs(a - b) <= limit + 1e-7).all()
    assert (np.abs(a - b) / limit).max() >= 0.99


@given(
    l1=st.floats(0, 5),
    l2=st.floats(0, 5),
    M=st.floats(1e-3, 1e3),
    w=st.one_of(st.just(0.0), st.floats(-5, 5)),
    a=st.floats(-9, 9),
    b=st.floats(-9, 9),
    lower=st.one_of(st.just(-np.inf), st.floats(-5, -1e-3)),
    upper=st.one_of(st.just(np.inf), st.floats(1e-3, 5)),
)
def test_constants_hold_for_hostile_cases(l1, l2, M, w, a, b, lower, upper):
    penalty, M = Both(l1, l2, lower, upper), np.array([M])
    w = np.clip(np.array([[w]]), lower, upper)
    for rule in ALL_RULES.values():
        scores = [rule.scores(np.array([[g]]), w, M, penalty)[0, 0] for g in (a, b)]
        limit = abs(a - b) * rule.lipschitz(M, penalty)[0]
        slack = 1e-13 * (
            9.0 + M[0] ** -0.5 * 30.0 + np.sqrt(M[0]) * (1.0 + abs(w[0, 0]) + l1 + l2)
        )
        assert abs(scores[0] - scores[1]) <= limit + slack


def test_all_rules_are_the_scaled_gradient_without_penalty():
    w, g, _, M = random_cases(1_000, 3)
    for rule in RULES.values():
        found = rule.scores(g, w, M, Both(0.0, 0.0))
        np.testing.assert_allclose(found, np.abs(g) / np.sqrt(M), rtol=1e-6)


@each("loss", LOSSES)
@each("penalty", PENALTIES)
@each("rule", RULES)
def test_scores_are_zero_at_the_optimum_only(loss, penalty, rule):
    problem = well_conditioned_problem(loss, penalty).with_smoothness("data")
    w, M = problem.optimum.w, problem.smoothness.columns

    def scores(w):
        gradient = problem.gradient(w)[None, :]
        return RULES[rule].scores(gradient, w[None, :], M, problem.penalty)

    assert scores(w).max() < 1e-4
    assert scores(w + np.where(w < 0.1, 0.01, -0.01)).max() > 1e-3


def test_scores_are_what_they_are_called():
    w, g, _, M = random_cases(2_000, 4)
    penalty = Both(0.4, 0.7)
    d = np.linspace(-40.0, 40.0, 80_001)[None, :]
    for k in range(0, 40):
        at, slope, m = w[k, 0], g[k, 0], M[k, 0]
        model = slope * d + 0.5 * m * d * d
        model = model + 0.4 * (np.abs(at + d) - abs(at)) + 0.35 * d * (d + 2.0 * at)
        decrease = RULES["GS-q"].scores(g[[k]], w[[k]], M[[k]], penalty)[0, 0]
        assert decrease == pytest.approx(np.sqrt(2 * -model.min()), rel=2e-2, abs=2e-2)
        length = RULES["GS-r"].scores(g[[k]], w[[k]], M[[k]], penalty)[0, 0]
        best = abs(d[0, model.argmin()]) * np.sqrt(m)
        assert length == pytest.approx(best, abs=2e-3 * np.sqrt(m) + 1e-9)


@every_rule
def test_columns_without_smoothness_are_out(rule):
    M = np.array([1.0, 0.0])
    scores = ALL_RULES[rule].scores(np.ones((2, 2)), np.zeros((2, 2)), M, Both(0, 0))
    assert np.isfinite(scores[:, 0]).all()
    assert (scores[:, 1] == -np.inf).all()
    np.testing.assert_array_equal(
        ALL_RULES[rule].lipschitz(M, Both(0, 0)) > 0, [True, False]
    )


def test_the_excess_is_the_distance_without_its_floor():
    w, g, _, M = random_cases(5_000, 5)
    for penalty in (Both(0.7, 0.0), Both(2.0, 0.5), Both(1.0, 0.0, -0.2, 0.4)):
        inside = np.clip(w, penalty.lower, penalty.upper)
        excess = ExcessRule().scores(g, inside, M, penalty)
        distance = RULES["GS-s"].scores(g, inside, M, penalty)
        np.testing.assert_allclose(np.maximum(excess, 0.0), distance, atol=1e-12)
        assert np.unique(excess).size == excess.size


def level_of_winner(floor, zone, rivals, b):
    """|log ratio| of P(coordinate 0 wins) when all rivals move by Delta = 1."""
    near, far = (wins(floor, zone, zone + c, rivals, b) for c in (1.0, 2.0))
    return abs(np.log(near / far))


def wins(floor, zone, centre, rivals, b):
    """P(|noise| of coordinate 0 is the largest, or ties where there is a floor)."""
    x = np.linspace(zone if floor else 0.0, zone + 60.0 * b, 200_001)
    beaten = within(x, centre, b) ** rivals
    density = np.exp(-x / b) / b
    tied = (1.0 - np.exp(-zone / b)) * beaten[0] if floor else 0.0
    return tied + np.trapezoid(density * beaten, x)


def within(x, centre, b):
    """P(|centre + noise| <= x)."""
    return laplace_cdf(x - centre, b) - laplace_cdf(-x - centre, b)


def laplace_cdf(x, b):
    tail = 0.5 * np.exp(-np.abs(x) / b)
    return np.where(x < 0, tail, 1.0 - tail)


def test_ties_at_zero_would_break_the_level_of_poster_noise():
    """Ten rivals just outside the dead zone, each one Delta = 1 further away.

    With a floor the winner tells whether all ten are inside. The largest score
    without a floor keeps 2 / z, which is why poster noise has ``ExcessRule``.
    """
    zone, rivals, b = 500.0, 10, 8.0
    proved = 2.0 / b
    assert level_of_winner(True, zone, rivals, b) > 4.0 * proved
    assert level_of_winner(False, zone, rivals, b) <= proved


def test_poster_noise_on_gs_s_has_no_ties():
    problem = small_problem("logistic", "l1", dead=None)
    run = run_at(problem, [GreedyCD(rule="GS-s", noise="poster", clip=1.0)])
    seen = []
    select = run.mechanisms["select"]
    select.intercept = lambda query, publish: publish()
    publish = select.publish

    def listen(gradient, score):
        seen.append(score(0.0 * gradient))
        return publish(gradient, score)

    select.publish = listen
    run.iterates()
    assert (seen[0] < 0.0).all()


@each("penalty", PENALTIES)
@each("rule", RULES)
def test_poster_noise_is_refused_where_it_is_not_proved(penalty, rule):
    problem = small_problem("logistic", penalty)
    reason = GreedyCD(rule=rule, noise="poster").unsupported_reason(problem)
    if problem.penalty.has_box:
        assert f"noise=poster with penalty={penalty}" in reason
    elif problem.penalty.l1 > 0.0 and rule != "GS-s":
        assert "noise=poster" in reason and "rule=GS-s" in reason
    else:
        assert reason is None


def test_the_printed_form_is_the_posters_noise():
    assert GreedyCD().printed_form().noise == "poster"
    assert GreedyCD(noise="laplace").printed_form().noise == "laplace"
    with pytest.raises(Unsupported, match="noise=gumbel"):
        GreedyCD(noise="gumbel").printed_form()
    assert GreedyCD(clip=2.0).printed_form() == GreedyCD(noise="poster", clip=2.0)


def releases_of(problem, adjacency=Adjacency.REPLACE_ONE, **params):
    solver = stack_solvers([GreedyCD(n_iter=7, **params)])
    select, measure = solver.releases(problem, adjacency, None)
    return select, measure


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_spread_is_that_of_the_score_sensitivities(rule, adjacency):
    problem = small_problem("logistic", "l2").with_smoothness("data")
    M, active = problem.smoothness.columns, problem.smoothness.columns > 0.0
    for clip in (None, 2.0):
        select, _ = releases_of(
            problem, adjacency, rule=rule, clip=clip, noise="poster"
        )
        bound = problem.dataset.bounds.columns
        bound = bound if clip is None else np.sqrt(M)
        s = bound * RULES[rule].lipschitz(M, problem.penalty)
        kappa = s[active].max() / s[active].min()
        assert kappa > 1.0 or clip is not None
        assert kappa * (1 - 1e-12) <= select.spread <= kappa + 2e-9
        assert select.law() == law_of("pure", 7, spread=select.spread)


def test_spread_is_one_for_public_constants_without_ridge():
    problem = small_problem("logistic", "none").with_smoothness("public")
    for clip in (None, 0.3):
        select, _ = releases_of(problem, noise="poster", clip=clip)
        assert select.spread == 1.0


def test_spread_does_not_depend_on_the_threshold():
    problem = small_problem("logistic", "l2").with_smoothness("data")
    clips = np.geomspace(1e-3, 1e3, 50)
    spreads = {
        releases_of(problem, noise="poster", clip=float(c))[0].spread for c in clips
    }
    assert len(spreads) == 1


@pytest.mark.parametrize(
    "noise, kind",
    [
        ("auto", NoisyMax),
        ("gumbel", NoisyMax),
        ("laplace", LaplaceNoisyMax),
        ("poster", InsideNoisyMax),
    ],
)
def test_noise_scales_are_z_times_the_sensitivities(noise, kind):
    problem = small_problem("logistic", "l2").with_smoothness("public")
    M, n, C = problem.smoothness.columns, problem.n, 2.0
    bound = C * np.sqrt(M / M.sum())
    slope = RULES["GS-r"].lipschitz(M, problem.penalty)
    select, measure = releases_of(problem, clip=C, noise=noise)
    assert type(select) is kind
    made = make_mechanisms([select, measure], 3.0, ["a", "b"])
    inner = 3.0 * 2.0 * bound / n
    np.testing.assert_allclose(made["measure"].scale, [inner, inner], rtol=1e-12)
    if noise == "poster":
        np.testing.assert_allclose(made["select"].scale, [inner, inner], rtol=1e-12)
    else:
        same = np.full((2, 1), (inner * slope).max())
        np.testing.assert_allclose(made["select"].scale, same, rtol=1e-12)


@every_rule
@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_of_conf_are_covered_by_the_rules(name, rule):
    made = objective_problem(
        small_problem("logistic", "none").dataset, "logistic", name, strength=0.7
    )
    penalty, rule = made.penalty, ALL_RULES[rule]
    w, g, change, M = random_cases(5_000, 6)
    w = penalty.prox(w, 0.0)
    a, b = (rule.scores(v, w, M, penalty) for v in (g, g + change))
    assert (np.abs(a - b) <= np.abs(change) * rule.lipschitz(M, penalty) + 1e-7).all()
