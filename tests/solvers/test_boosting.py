"""Test boosting: runs, scores, refusals, and broken copies."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dp_erm_bench import problem_from_arrays
from dp_erm_bench.accounting.bounds import gdp_epsilon, rdp_epsilon
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.repeated import share_of_a_run
from dp_erm_bench.contract.suite import FAILS
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.renyi_filter import highest_order
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect, Runs
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.bias_reduced_sgd import BiasReducedState
from dp_erm_bench.solvers.boosting import INNER, Boosting
from dp_erm_bench.solvers.sgd import SGD
from dp_erm_bench.trust.recount import listen_to_run, recount, watch_runs
from tests.contract.own import check_named
from tests.loops import each
from tests.solvers.cases import run_at
from tests.twins.checks import Narrow, few_problems

ONE = Budget(1.0, 1e-6)
SAMPLES = "samples_are_those_charged"


def problem(n=64, p=3, seed=0, **parts):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    given = {"loss": "logistic", "bounds": 1.0, **parts}
    return problem_from_arrays(X, y, **given)


def heard(solver, data, z=5.0, name="a"):
    """The scores before noise, the noisy ones, the outputs, and what came out."""
    run = run_at(data, [solver], z=z, identities=(name,))
    asked, best = [], run.mechanisms["best"]

    def hear(query, publish):
        if query.name == "score":
            asked.append(query.value.item())
        return publish()

    best.intercept, best.audit = hear, Runs()
    end = run.iterates()[-1]
    return asked, best.audit.scores, best.audit.outputs, end


@pytest.mark.parametrize("inner", INNER)
def test_the_best_noisy_score_is_published(inner):
    solver, data = Boosting(inner=inner, gamma=0.1, clip=1.0, n_iter=3), problem()
    asked, scores, outputs, end = heard(solver, data)
    assert len(asked) == len(scores) > 2
    assert np.array_equal(end, outputs[int(np.argmin(scores))])
    for value, w in zip(asked, outputs, strict=True):
        losses = np.log1p(np.exp(-data.dataset.y * (data.dataset.X @ w[0])))
        assert value == pytest.approx(np.clip(losses, 0, 1).mean(), rel=1e-12)
    # Runs do not share their noise.
    assert len(np.unique(np.concatenate(outputs), axis=0)) == len(outputs)


def test_penalties_are_added_after_the_noise():
    data = problem(penalty="l2", strength=0.3)
    solver = Boosting(gamma=0.1, clip=1.0, n_iter=2)
    asked, scores, outputs, _ = heard(solver, data, z=1e-9)
    psi = [float(np.ravel(data.penalty.value(w))[0]) for w in outputs]
    np.testing.assert_allclose(scores, np.add(asked, psi), atol=1e-7)
    assert max(psi) > 0


def test_without_noise_it_is_the_algorithm():
    data = problem(penalty="l2", strength=0.1)
    solver = Boosting(n_iter=15)
    own = solver.algorithm
    end = run_at(data, [solver], z=0.0).iterates()[-1]
    assert np.array_equal(end, run_at(data, [own], z=0.0).iterates()[-1])


def test_runs_of_random_levels_stay_below_their_curve():
    """The noise of steps is given, their number is what the curve pays for."""
    data = problem(256)
    solver = Boosting(
        inner="bias_reduced_sgd", gamma=0.1, clip=0.5, n_iter=400, multiplier=6.0
    )
    run = Run(data, [solver], ONE, identities=["b"]).declare()
    watch_runs(run.mechanisms)
    run.iterates()
    z, lengths = run.calibration.z, []
    for one in run.mechanisms["best"].audit.made:
        inside = one["steps"].made
        scales = [float(m.scale[0, 0]) for m in inside.values()]
        assert scales == [pytest.approx(6.0 * 2 * 0.5)] * len(scales)
        orders = np.arange(2.0, highest_order(z) + 1)
        # Their weights are in units of the common multiplier.
        laws = [(m.used, replace(m.release, times=1).law()) for m in inside.values()]
        spent = sum(used * law.rdp(z, orders) for used, law in laws)
        assert (spent <= orders / (2 * z * z)).all()
        lengths.append(inside["single"].used)
    assert len(set(lengths)) > 1 and 1 < min(lengths) and max(lengths) < 400


@pytest.mark.parametrize("declared", [{}, {"nonzeros": 2}], ids=["dense", "sparse"])
def test_means_are_projected_where_non_zeros_are_declared(declared, monkeypatch):
    """The noise of a mean is louder than the radius."""
    X = np.eye(3)[np.arange(32) % 3]
    data = problem_from_arrays(
        X, np.ones(32), loss="logistic", bounds={"norm": 1.0, **declared}
    )
    told, plain = [], BiasReducedState.mean

    def mean(state, noisy, size):
        found = plain(state, noisy, size)
        told.append(np.abs(found).sum())
        return found

    monkeypatch.setattr(BiasReducedState, "mean", mean)
    solver = Boosting(inner="bias_reduced_sgd", clip=0.5, gamma=1.0, n_iter=5)
    run_at(data, [solver], z=1.0).iterates()
    inside = max(told) <= 0.5 * math.sqrt(2) * (1 + 1e-9)
    assert len(told) == 20 and inside == bool(declared)


def test_a_run_that_diverges_scores_the_bound_and_loses():
    data, solver = problem(), Boosting(gamma=0.2, clip=1.0, bound=3.0)
    oracle = data.oracle(1)
    lost, far = np.full((1, 3), np.nan), np.full((1, 3), 1e9)
    assert solver.score(oracle, lost) == 3.0
    assert solver.score(oracle, far) <= 3.0
    asked, scores, outputs, end = heard(Boosting(gamma=0.05, clip=1.0), data, z=1e200)
    assert len(asked) > 3 and all(0.0 <= value <= 1.0 for value in asked)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_record_moves_a_score_by_its_bound(adjacency, loss):
    """The worst record goes from no loss to the bound, or further."""
    data, solver = problem(loss=loss), Boosting(bound=0.4, clip=1.0)
    (release,) = solver.releases(data, adjacency, None)
    (score,) = [one for one in release.run if one.name == "score"]
    assert score.sensitivity == 0.4 / 64
    X, y, w = data.dataset.X.copy(), data.dataset.y.copy(), np.array([[50.0, 0, 0]])
    moves = []
    for k in range(8):
        other = X.copy()
        other[k] = 0.0 if adjacency is Adjacency.ZERO_OUT else -X[k]
        there = problem_from_arrays(other, y, loss=loss, bounds=1.0)
        both = [solver.score(one.oracle(1), w) for one in (data, there)]
        moves.append(abs(both[0] - both[1]))
    assert max(moves) <= 0.4 / 64 * (1 + 1e-9)
    if adjacency is Adjacency.REPLACE_ONE and loss == "logistic":
        assert max(moves) > 0.99 / 160


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_run_costs_less_than_a_third_of_the_budget(inner, adjacency):
    """What the best of many costs, against the run alone: 3 times, and the log of K."""
    data, budget = problem(512), Budget(1.0, 1e-6, adjacency)
    noise = []
    for gamma in (1.0, 0.5, 0.05):
        solver = Boosting(inner=inner, gamma=gamma, clip=1.0)
        run = Run(data, [solver], budget).declare()
        assert run.calibration.accountant == "rdp"
        assert run.calibration.epsilon_certified <= 1.0
        noise.append(run.calibration.z)
    assert noise[0] < noise[1] < noise[2] < 2 * noise[1]


def test_lengths_and_passes_are_those_of_the_mean_number_of_runs():
    solver, data = Boosting(gamma=0.25, n_iter=20, clip=1.0), problem()
    rows = Run(data, [solver], ONE).record(5).rows
    assert rows.iteration == [0, 1] and rows.passes == [0.0, 80.0]
    none = Run(data, [Boosting(n_iter=0, clip=1.0)], ONE).record(5)
    assert none.rows.iteration == [0] and not none.releases


@pytest.mark.parametrize("adjacency", Adjacency)
def test_samples_of_runs_are_amplified(adjacency):
    """For one fifth of the noise of full batches, and above what one run costs."""
    data, noise = problem(512), []
    for size in (512, 5):
        how = {"inner": "sgd", "n_iter": 50, "batch_size": size, "clip": 1.0}
        run = Run(data, [Boosting(**how)], Budget(1.0, 1e-6, adjacency)).declare()
        assert run.calibration.epsilon_certified <= 1.0
        noise.append(run.calibration.z)
    alone = SGD(n_iter=50, batch_size=5, clip=1.0)
    run = Run(data, [alone], Budget(1.0, 1e-6, adjacency)).declare()
    assert 1.5 * run.calibration.z < noise[1] < noise[0] / 5


def test_the_printed_share_of_a_run():
    share = share_of_a_run(0.075, ONE)
    assert share.epsilon == pytest.approx(1 / 12)
    # K = 203.
    assert share.number == pytest.approx(1.517e-18, rel=1e-3)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_printed_noise_of_runs_and_scores(adjacency):
    """Certified for a third of the budget: ten times the noise that is needed."""
    data, solver = problem(512), Boosting(gamma=0.075, clip=1.0, bound=0.7, n_iter=50)
    budget = Budget(1.0, 1e-6, adjacency)
    run = Run(data, [solver], budget, "paper", ["p"]).declare()
    witnesses = listen_to_run(run.mechanisms)
    run.iterates()
    (inside, *_) = run.mechanisms["best"].audit.made
    assert inside["score"].scale.item() == pytest.approx(12 * 0.7 / 512)
    share = share_of_a_run(0.075, budget)
    mu = math.sqrt(50) * adjacency.of_sum(1.0) / inside["gradient"].scale.item()
    assert gdp_epsilon(mu, share.number) == pytest.approx(1 / 12, rel=1e-6)
    found = run.calibration
    assert found.label == "paper" and 0.3 < found.epsilon_certified < 0.35
    counted = recount(run.mechanisms, found, witnesses=witnesses)
    assert not counted.complaint(found)
    needed = Run(data, [solver], budget).declare().calibration.z
    assert 9 < inside["gradient"].scale.item() / adjacency.of_sum(1.0) / needed < 11


def test_printed_runs_of_random_levels_are_cut_below_the_printed_share():
    solver = Boosting(inner="bias_reduced_sgd", clip=1.0, n_iter=400, multiplier=20.0)
    run = Run(problem(256), [solver], Budget(4.0, 1e-6), "paper", ["p"]).declare()
    steps = run.releases[0].run[0]
    share = share_of_a_run(solver.gamma, run.budget)
    proved = rdp_epsilon((steps.law(),), run.calibration.z, share.number)
    assert share.epsilon * 0.99 < proved <= share.epsilon
    assert run.calibration.z == 3.0 and run.calibration.epsilon_certified < 4.0
    watch_runs(run.mechanisms)
    run.iterates()
    made = [one["steps"].made for one in run.mechanisms["best"].audit.made]
    assert any("single" in one for one in made)
    free = Run(problem(64), [solver], Budget(math.inf, 1e-6), "paper").declare()
    assert free.calibration.z == 0.0


@pytest.mark.parametrize(
    "params, budget, message",
    [
        ({"gamma": 0.6}, ONE, "gamma=0.6: must be at most 0.5 for the printed noise"),
        (
            {},
            Budget(1.0, 1e-29),
            "delta=1e-29: the printed share of each run, 8e-65, is",
        ),
    ],
)
def test_what_has_no_printed_noise_is_refused(params, budget, message):
    solver = Boosting(clip=1.0, **params)
    with pytest.raises(Unsupported, match=message):
        Run(problem(), [solver], budget, "paper").declare()


@pytest.mark.parametrize(
    "params, message",
    [
        (
            {"inner": "mean_noise"},
            "inner=mean_noise: must be one of gd, sgd, bias",
        ),
        ({"inner": "boosting"}, "inner=boosting: must be one of gd"),
        ({"gamma": 1.5}, "gamma=1.5: must be a number > 0 and <= 1"),
        ({"bound": 0.0}, "bound=0.0: must be a number > 0"),
    ],
)
def test_what_cannot_be_run_or_scored_is_refused(params, message):
    with pytest.raises(UsageError) as error:
        Boosting(**params)
    assert str(error.value).startswith(message)


def test_what_the_algorithm_refuses_is_refused():
    data = problem(penalty="l1", strength=0.1, constraint="l2_ball")
    with pytest.raises(Unsupported, match="gd cannot combine a projection"):
        Run(data, [Boosting(clip=1.0)], ONE).declare()
    two = problem(3)
    with pytest.raises(Unsupported, match="n=3: bias_reduced_sgd needs at least 4"):
        Run(two, [Boosting(inner="bias_reduced_sgd", clip=1.0)], ONE).declare()
    bare = problem(bounds=None)
    with pytest.raises(Unsupported, match="Boosting needs a clipping threshold"):
        Run(bare, [Boosting()], ONE).declare()
    with pytest.raises(Unsupported, match="delta=0: must be positive"):
        Run(problem(), [Boosting(clip=1.0)], Budget(1.0, 0.0)).declare()


class Uncounted(Boosting):
    """One more run, of which no mechanism knows."""

    def answer(self, oracle, mechanisms, schedule):
        best = mechanisms["best"]
        free = make_mechanisms(best.release.run, float(best.scale.min()), ["free"])
        found = super().answer(oracle, mechanisms, schedule)
        other, _ = self.attempt(oracle, free, schedule)
        return (found + other) / 2


class OneForAll(Boosting):
    """All runs with the noise of one: the scale of theirs is not the charged one."""

    def answer(self, oracle, mechanisms, schedule):
        best = mechanisms["best"]
        best.scale = best.scale / math.sqrt(1 / self.gamma)
        return super().answer(oracle, mechanisms, schedule)


class Published(Boosting):
    """K is seen in the answer: its coins are drawn a second time."""

    def answer(self, oracle, mechanisms, schedule):
        coins = uniforms(mechanisms["best"].seeds[0], 0, 1000) < self.gamma
        found = super().answer(oracle, mechanisms, schedule)
        return found + 1e-6 * coins.argmax()


class ScoreUncharged(Boosting):
    """The exact score selects."""

    def releases(self, problem, adjacency, schedule):
        for release in super().releases(problem, adjacency, schedule):
            steps = tuple(one for one in release.run if one.name != "score")
            yield RepeatAndSelect("best", 1.0, 1, gamma=self.gamma, run=steps)

    def attempt(self, oracle, mechanisms, schedule):
        exact = {**mechanisms, "score": lambda value: value}
        return super().attempt(oracle, exact, schedule)


class Unclipped(Boosting):
    """Losses above the bound count in full."""

    def score(self, oracle, w):
        return float(1e3 * oracle.loss.value(oracle.y, oracle.product(w)[0]).mean())


class Unfiltered(Boosting):
    """Runs make all steps that were drawn."""

    def answer(self, oracle, mechanisms, schedule):
        kept = mechanisms["best"].listen

        def listen(run):
            kept(run)
            plain = run["steps"].passing_kinds
            run["steps"].passing_kinds = lambda m: plain(0.0)

        mechanisms["best"].listen = listen
        return super().answer(oracle, mechanisms, schedule)


class Everyone(Boosting):
    """Sums over all records, charged for samples."""

    def output_of(self, oracle, mechanisms):
        plain, n = type(oracle).record_sum, oracle.problem.n
        oracle.record_sum = lambda b, records, clip: plain(
            oracle, b, np.arange(n), clip
        )
        return super().output_of(oracle, mechanisms)


SAMPLED = {"inner": "sgd", "n_iter": 3, "batch_size": 5}
RANDOM = {"inner": "bias_reduced_sgd", "n_iter": 300, "multiplier": 3.0}
FOUND = {
    Uncounted: "replay_audit",
    OneForAll: "the_noise_is_recounted",
    Published: "losers_are_secret",
    ScoreUncharged: "replay_audit",
    Unclipped: "replay_audit",
    Unfiltered: "the_noise_is_recounted",
    Everyone: SAMPLES,
}


@pytest.mark.parametrize("twin", FOUND, ids=lambda twin: twin.__name__)
def test_broken_twins_are_found(twin):
    params = {Unfiltered: RANDOM, Everyone: SAMPLED}.get(twin, {"n_iter": 3})
    candidate = Narrow("twin", twin, {"clip": 0.3, **params})
    with few_problems():
        result = check_named(FOUND[twin]).result(candidate)
    assert result.verdict == FAILS and "Error" not in result.reason, result


@pytest.mark.slow
@each("params", [{"n_iter": 3}, SAMPLED, RANDOM], ids=INNER)
@each("check", sorted(set(FOUND.values())))
def test_the_sound_one_is_not_accused(check, params):
    candidate = Narrow("sound", Boosting, {"clip": 0.3, **params})
    with few_problems():
        result = check_named(check).result(candidate)
    assert result.verdict == "ok", result


def test_a_step_is_the_work_of_all_runs():
    solver, data = Boosting(gamma=0.1, n_iter=2), problem()
    one = solver.algorithm.step_work(data)
    assert solver.step_work(data) == one.times(2 / 0.1)
