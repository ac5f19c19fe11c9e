"""Test each noise scale of mechanisms, and 10^4 seeds."""

import math

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.audit.accounting import unit_problem
from dp_erm_bench.contract.candidate import candidate_of, run_at
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect
from tests.loops import each
from tests.serving import RISKS

REPLACE, ZERO = Adjacency
ALGORITHMS = RISKS
BATCHED = [name for name in ALGORITHMS if candidate_of(name).solver.batchable]
SEEDS = 10_000
T = 50


def scales(algorithm, adjacency, mode="certified", **given):
    """Noise scales by release, for n = 1000, L_j = 1, eps = 1, delta = 1e-6."""
    problem = unit_problem().with_smoothness("public")
    solver = registry.build("algorithm", algorithm, **given)
    if mode == "paper":
        solver = solver.printed_form()
    run = run_at(problem, [solver], adjacency=adjacency)
    events = tuple(release.law() for release in run.releases)
    z = calibrate(events, Budget(1, 1e-6, adjacency), mode, solver.printed_constant).z
    made = make_mechanisms(run.releases, z, ["a"])
    assert all(np.ptp(mechanism.scale) == 0 for mechanism in made.values())
    return {name: mechanism.scale[0, 0] for name, mechanism in made.items()}


# M_j = 1/4: a score is twice a derivative.
GREEDY = {"measure": 0.0893201, "select": 2 * 0.0893201}
LAPLACE = {"measure": 0.130949, "select": 2 * 0.130949}
POSTER = {"measure": 0.210261, "select": 0.210261}
# Of the sum of 1000 gradients, clipped at 1.
FULL = 1000 * 0.0597460
SAMPLED = {"clip": 1.0, "n_iter": 200, "batch_size": 50}
SVRG = {"clip": 1.0, "n_epochs": 4, "n_inner": 50, "batch_size": 50}


@pytest.mark.parametrize(
    ("algorithm", "mode", "given", "expected"),
    [
        ("greedy_cd", "certified", {}, GREEDY),
        ("greedy_cd", "certified", {"noise": "laplace"}, LAPLACE),
        ("greedy_cd", "paper", {}, POSTER),
        ("random_cd", "certified", {}, {"measure": 0.0597460}),
        ("random_cd", "paper", {}, {"measure": 0.0910456}),
        ("sgd", "certified", {"batch_size": "full", "clip": 1.0}, {"gradient": FULL}),
    ],
)
def test_reference_scales(algorithm, mode, given, expected):
    given = {**given, "n_iter": T}
    found = scales(algorithm, REPLACE, mode, **given)
    assert found == pytest.approx(expected, rel=2e-4)
    # The printed noise does not know the adjacency; the certified one halves.
    half = 1.0 if mode == "paper" else 0.5
    found = scales(algorithm, ZERO, mode, **given)
    expected = {name: half * scale for name, scale in expected.items()}
    assert found == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize(("adjacency", "sigma"), [(ZERO, 3.19589), (REPLACE, 5.97301)])
def test_reference_scales_of_samples(adjacency, sigma):
    found = scales("sgd", adjacency, **SAMPLED)
    assert found == pytest.approx({"gradient": sigma}, rel=1e-4)
    loud = scales("sgd", adjacency, **{**SAMPLED, "clip": 2.0})
    assert loud["gradient"] == pytest.approx(2 * sigma, rel=1e-4)


def test_reference_scales_of_variance_reduction():
    # (z0, z1) = (11.9492, 4.37678): their ratio gives both back. Logistic loss: a
    # correction's record has norm at most C.
    weight = 11.9492 / 4.37678
    found = scales("svrg", ZERO, **SVRG, snapshot_weight=weight)
    expected = {"snapshot": 11.9492, "correction": 4.37678}
    assert found == pytest.approx(expected, rel=4e-4)


def test_scales_follow_each_coordinates_bound():
    problem = candidate_of("random_cd").problems({})[0]
    solver = registry.build("algorithm", "random_cd", n_iter=T, smoothness="public")
    run = run_at(problem.with_smoothness("public"), [solver])
    (release,) = run.releases
    z = calibrate((release.law(),), Budget(1, 1e-6)).z
    made = make_mechanisms(run.releases, z, ["a"])["measure"]
    bounds = problem.lipschitz * problem.dataset.bounds.columns
    expected = math.sqrt(T) / 0.236704 * 2 * bounds / problem.n
    np.testing.assert_allclose(made.scale[0], expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", BATCHED)
def test_ten_thousand_seeds_end_in_ten_thousand_places(algorithm):
    candidate = candidate_of(algorithm)
    problem = candidate.problems({})[0]
    names = tuple(f"seed {seed}" for seed in range(SEEDS))
    solvers = [candidate.build(clip=1.0, n_iter=10)] * SEEDS
    run = run_at(problem, solvers, z=2.0, identities=names, ahead=True)
    if all(isinstance(release, NoisyMax) for release in run.releases):
        # So loud that they hardly follow the data: one of many sequences of winners.
        run = run_at(problem, solvers, z=200.0, identities=names, ahead=True)
    run.checkpoints = (0, run.solver.iterations(problem))
    last = run.iterates()[-1]
    assert np.unique(last, axis=0).shape[0] == SEEDS


@each("algorithm", ALGORITHMS)
def test_ten_thousand_seeds_draw_ten_thousand_noises(algorithm):
    candidate = candidate_of(algorithm)
    names = [f"seed {seed}" for seed in range(SEEDS)]
    for on in list(candidate.first())[:1]:
        run = run_at(on.problem, [candidate.build(clip=1.0)])
        if isinstance(run.releases[0], RepeatAndSelect):
            pytest.skip("its runs draw, one trial at a time")
        made = make_mechanisms(run.releases, 2.0, names)
        drawn = np.concatenate(
            [mechanism.unit_noise(1, 1).ravel() for mechanism in made.values()]
        )
        # Neither trials nor releases of a trial share a draw.
        assert np.unique(drawn).size == SEEDS * len(made)
