"""Test the recount of privacy: every algorithm passes, and false reports are found."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.bounds import rdp_epsilon
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import profile_epsilon
from dp_erm_bench.contract.candidate import STEPS, Subject, candidate_of, run_at
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.objective_gaussian import ObjectiveGaussian
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.trust import epsilons
from dp_erm_bench.trust.recount import (
    Recount,
    listen_to_run,
    recount,
    uses_of,
    watch_runs,
)
from dp_erm_bench.trust.twins.base import NoTwin, twin_of
from dp_erm_bench.trust.twins.inside_noisy_max import InsideNoisyMaxTwin
from tests.loops import each
from tests.privacy.made import TWINS, built_in, law_of, use_of
from tests.serving import fits_noise

EPSILONS = (0.3, 1.0, 4.0)
DELTA = 1e-6
REPLACE, ZERO = Adjacency
ALGORITHMS = registry.names("algorithm")
CANDIDATES = {name: candidate_of(name) for name in ALGORITHMS}
LONG = [name for name in ALGORITHMS if "n_iter" in CANDIDATES[name].parameters]


def distinct():
    """The variants of all algorithms, one for each list of events, at each epsilon.

    But for those epsilons that the curvature of an objective exceeds alone.
    """
    kept = {}
    for name, candidate in CANDIDATES.items():
        for on in candidate.first():
            events = tuple(release.law() for release in on.run().releases)
            kept.setdefault((name, events), (name, on.variant))
    cases = []
    for (_, events), variant in kept.items():
        least = sum(event.times * event.least() for event in events)
        cases += [(variant, epsilon) for epsilon in EPSILONS if epsilon > least]
    return cases


def label(case):
    (name, given), epsilon = case
    return f"{CANDIDATES[name].title(given)}-{epsilon:g}"


def keeps_private_constants(algorithm):
    """Whether an algorithm uses constants that are released first."""
    try:
        run, _ = calibrated((algorithm, {}), REPLACE, 1.0, smoothness="private")
    except Unsupported:
        return False
    return bool(run.shares)


def calibrated(variant, adjacency, epsilon, mode="certified", steps=STEPS, **given):
    """A run whose noise is that of a budget, with its calibration."""
    name, shapes = variant
    candidate = CANDIDATES[name]
    problem, budget = candidate.problems(shapes)[0], Budget(epsilon, DELTA, adjacency)
    given = {"n_iter": steps, **given}
    on = Subject(candidate, shapes, problem)
    run, other = (on.run_within_budget(budget, mode, **given) for _ in range(2))
    return run, other.declare().calibration


each_adjacency = pytest.mark.parametrize("adjacency", Adjacency)
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
every_long_one = pytest.mark.parametrize("algorithm", LONG)
CASES = distinct()
every_case = pytest.mark.parametrize("case", CASES, ids=label)
PRIVATE = [name for name in ALGORITHMS if keeps_private_constants(name)]
with_private_constants = pytest.mark.parametrize("algorithm", PRIVATE)


def counted(run, calibration, declared=None):
    watch_runs(run.declare().mechanisms)
    run.iterates()
    return recount(run.mechanisms, calibration, declared)


def test_every_algorithm_has_a_case():
    assert {name for (name, _), _ in CASES} == set(ALGORITHMS)


@every_case
@each_adjacency
def test_what_was_run_costs_what_was_certified(case, adjacency):
    variant, epsilon = case
    run, calibration = calibrated(variant, adjacency, epsilon)
    found = counted(run, calibration)
    assert found.complaint(calibration) == ""
    assert found.epsilon <= epsilon * (1 + found.tolerance)
    # A twin may prove a little less than is certified, where it says so.
    loose = found.tolerance + max(use.slack for use in found.uses)
    assert found.epsilon == pytest.approx(calibration.epsilon_certified, rel=loose)
    assert found.least <= calibration.epsilon_certified * (1 + 1e-9)
    # The lower bound is not idle either, where an exact instance is known.
    if all(use.is_exact for use in found.uses):
        assert found.least >= 0.15 * calibration.epsilon_certified


@every_algorithm
@each_adjacency
def test_what_was_heard_costs_what_was_certified(algorithm, adjacency):
    run, calibration = calibrated((algorithm, {}), adjacency, 1.0)
    run.mechanisms.ahead = False
    heard = listen_to_run(run.mechanisms)
    run.iterates()
    found = recount(run.mechanisms, calibration, witnesses=heard)
    assert all(told.uses for told in heard.values())
    assert found.complaint(calibration) == ""


def test_private_constants_have_algorithms():
    assert {"greedy_cd", "random_cd", "sgd"} <= set(PRIVATE)


@with_private_constants
@each_adjacency
def test_private_constants_are_counted_too(algorithm, adjacency):
    run, calibration = calibrated((algorithm, {}), adjacency, 1.0, smoothness="private")
    found = counted(run, calibration)
    assert found.complaint(calibration) == ""
    shares = [use for use in found.uses if use.is_composed_apart]
    assert epsilons.proved_epsilon(shares, DELTA, adjacency, "none") == pytest.approx(
        0.1
    )


@each_adjacency
def test_a_printed_constant_is_counted_too(adjacency):
    printed = {"greedy_cd": {"noise": "poster", "rule": "GS-s"}, "random_cd": {}}
    for algorithm, given in printed.items():
        run, calibration = calibrated((algorithm, given), adjacency, 1.0, "paper")
        found = counted(run, calibration)
        assert found.complaint(calibration) == ""
        assert calibration.label.startswith("paper")


def test_every_bound_is_met():
    winners = {
        calibrated(variant, ZERO, epsilon)[1].accountant.removesuffix("+pure")
        for variant, epsilon in CASES
    }
    assert winners >= {"gdp", "rdp", "pld"}


# Liars: what ran is not what was certified.


@every_algorithm
@each_adjacency
def test_halved_noise_is_found(algorithm, adjacency):
    run, _ = calibrated((algorithm, {}), adjacency, 1.0)
    for name in run.mechanisms:
        run, calibration = calibrated((algorithm, {}), adjacency, 1.0)
        run.mechanisms[name].scale = run.mechanisms[name].scale / 2
        found = counted(run, calibration)
        assert found.complaint(calibration).endswith("is certified")
        assert found.epsilon > calibration.epsilon_certified * 1.001


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_an_answer_without_its_noise_is_found(noise):
    """The distance to the minimiser is not covered then."""
    variant = ("objective_perturbation", {"noise": noise})
    run, calibration = calibrated(variant, REPLACE, 1.0)
    run.mechanisms["output"].publish = lambda w: w
    assert counted(run, calibration).complaint(calibration).startswith("only")
    run, calibration = calibrated(variant, REPLACE, 1.0)
    output = run.mechanisms["output"]
    publish, run.mechanisms.ahead = output.publish, False
    output.publish = lambda w: w + (publish(w) - w) / 2
    heard = listen_to_run(run.mechanisms)
    run.iterates()
    found = recount(run.mechanisms, calibration, witnesses=heard)
    assert found.complaint(calibration).endswith("is certified")


@every_algorithm
def test_doubled_noise_is_found(algorithm):
    run, calibration = calibrated((algorithm, {}), REPLACE, 1.0)
    for mechanism in run.mechanisms.values():
        mechanism.scale = mechanism.scale * 2
    assert counted(run, calibration).complaint(calibration).startswith("only")


@every_long_one
@each_adjacency
def test_one_use_more_is_found(algorithm, adjacency):
    run, calibration = calibrated((algorithm, {}), adjacency, 1.0)
    longer, _ = calibrated((algorithm, {}), adjacency, 1.0, steps=STEPS + 1)
    longer = run_at(
        longer.problem, longer.solvers, calibration.z, adjacency=adjacency, ahead=True
    )
    for name, mechanism in longer.declare().mechanisms.items():
        # What has a share of mu^2 would have more noise for one use more.
        if mechanism.release.weight != run.mechanisms[name].release.weight:
            mechanism.scale = run.mechanisms[name].scale
    found = counted(longer, calibration)
    assert found.complaint(calibration) != ""
    # A record more of 40 that one pass reads is a tenth of its delta.
    assert found.epsilon > calibration.epsilon_certified * 1.004


@each("algorithm", [*filter(fits_noise, ALGORITHMS)])
def test_the_other_adjacencys_sensitivity_is_found(algorithm):
    run, calibration = calibrated((algorithm, {}), REPLACE, 1.0)
    honest = {release.name: release for release in run.releases}
    run = run_at(run.problem, run.solvers, calibration.z, adjacency=ZERO, ahead=True)
    # The liar believes itself; the sensitivities of the claim do not.
    assert recounted_by_itself(run, calibration) == ""
    assert recount(run.mechanisms, calibration, honest).complaint(calibration) != ""


def recounted_by_itself(run, calibration):
    return counted(run, calibration).complaint(calibration)


@with_private_constants
def test_a_quieter_share_is_found(algorithm):
    run, calibration = calibrated((algorithm, {}), REPLACE, 1.0, smoothness="private")
    run.mechanisms["smoothness"].scale = run.mechanisms["smoothness"].scale / 2
    found = counted(run, calibration)
    assert found.epsilon == pytest.approx(1.1, rel=1e-3)
    assert found.complaint(calibration) != ""


@every_algorithm
def test_no_noise_is_found(algorithm):
    run, calibration = calibrated((algorithm, {}), REPLACE, 1.0)
    for mechanism in run.mechanisms.values():
        mechanism.scale = np.zeros_like(mechanism.scale)
    found = counted(run, calibration)
    assert found.epsilon == found.least == math.inf
    assert found.complaint(calibration) != ""


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Recount((), 1.002, 0.5, 1e-3), "1.002 was run, 1 is certified"),
        (Recount((), 0.998, 0.5, 1e-3), "only 0.998"),
        (Recount((), 1.0, 1.01, 1e-3), "at least 1.01"),
        (Recount((), 1.0005, 0.5, 1e-3), ""),
    ],
)
def test_complaints(found, words):
    calibration = calibrate((law_of("gaussian", 3),), Budget(1, 1e-6))
    complaint = found.complaint(calibration)
    assert words in complaint and bool(words) == bool(complaint)


def test_more_than_the_budget_is_found():
    calibration = calibrate((law_of("gaussian", 3),), Budget(1, 1e-6))
    lied = dataclasses.replace(calibration, epsilon_certified=1.2)
    assert "exceeds the budget 1" in Recount((), 1.2, 0.5, 1e-3).complaint(lied)
    paper = dataclasses.replace(lied, label="paper (not proved)")
    assert Recount((), 1.2, 0.5, 1e-3).complaint(paper) == ""


# Reading off.


def made_of(release, z=3.0, names=("a",)):
    return make_mechanisms([release], z, names)


def test_the_smallest_ratio_of_all_entries_and_trials_counts():
    sensitivity = np.array([[1.0, 0.0, 2.0], [1.0, 0.5, 1.0]])
    mechanisms = made_of(Laplace("noise", sensitivity, 4), names=("a", "b"))
    mechanism = mechanisms["noise"]
    mechanism.spend(2)
    assert uses_of(mechanisms) == (use_of("laplace", 3.0, 2),)
    scale = mechanism.scale.copy()
    scale[1, 1] /= 4
    mechanism.scale = scale
    assert uses_of(mechanisms) == (use_of("laplace", 0.75, 2),)
    # Noise on what cannot move protects nothing.
    scale[0, 1] = 1e-9
    assert uses_of(mechanisms) == (use_of("laplace", 0.75, 2),)


def test_what_was_not_called_costs_nothing():
    mechanisms = made_of(Gaussian("noise", 1.0, 4))
    assert uses_of(mechanisms) == ()
    calibration = calibrate((law_of("gaussian", 4),), Budget(1, 1e-6))
    assert recount(mechanisms, calibration).epsilon == 0.0


def test_a_rate_is_that_of_the_mechanism():
    mechanisms = made_of(PoissonGaussian("noise", 1.0, 4, rate=0.1))
    mechanisms["noise"].spend(1)
    mechanisms["noise"].rate = 0.2
    assert uses_of(mechanisms) == (use_of("poisson_gaussian", 3.0, 1, rate=0.2),)


def test_unknown_releases_are_loud():
    class Secret(Gaussian):
        pass

    with pytest.raises(NoTwin, match="noise is not recounted: its kind, Secret"):
        uses_of(made_of(Secret("noise", 1.0, 1)))


def test_every_release_of_the_package_is_known():
    found = [twin_of(kind) for kind in built_in()]
    assert None not in found and len(set(found)) == len(found)
    assert {InsideNoisyMaxTwin, *TWINS.values()} == set(found)


def test_an_objective_is_counted_with_its_curvature():
    release = ObjectiveGaussian("noise", 2.0, 1, curvature=0.2, terms=2)
    budget = Budget(1.0, DELTA)
    calibration = calibrate((release.law(),), budget)
    mechanisms = made_of(release, calibration.z)
    mechanisms["noise"].spend(1)
    found = recount(mechanisms, calibration)
    assert found.complaint(calibration) == ""
    assert found.uses == (use_of("objective", calibration.z, 1, curvature=0.2),)
    mechanisms["noise"].scale = mechanisms["noise"].scale * 0.9
    assert recount(mechanisms, calibration).complaint(calibration) != ""


@pytest.mark.parametrize("accountant", ["profile", "rdp"])
@each_adjacency
@pytest.mark.parametrize("curvature", [0.01, 0.2])
def test_perturbed_objectives_agree(accountant, adjacency, curvature):
    terms = 2 if adjacency is REPLACE else 1
    events = (law_of("objective", 1, curvature=curvature, terms=terms),)
    first = {
        "profile": profile_epsilon(events, 5.0, DELTA),
        "rdp": rdp_epsilon(events, 5.0, DELTA),
    }
    uses = [use_of("objective", 5.0, 1, curvature=curvature)]
    found = epsilons.proved_epsilon(uses, DELTA, adjacency, accountant)
    assert found == pytest.approx(first[accountant], rel=1e-4)


@each_adjacency
@pytest.mark.parametrize("weight", [1.0, 32.0])
@pytest.mark.parametrize("z", [0.8, 5.0])
def test_a_minimiser_with_noise_beside_it_agrees(z, weight, adjacency):
    terms = 2 if adjacency is REPLACE else 1
    one = law_of("objective", 1, curvature=0.1, terms=terms)
    first = profile_epsilon((one, law_of("gaussian", 1, weight)), z, DELTA)
    uses = [use_of("objective", z, 1, curvature=0.1), use_of("gaussian", z * weight, 1)]
    found = epsilons.proved_epsilon(uses, DELTA, adjacency, "profile")
    assert found == pytest.approx(first, rel=1e-6)


@pytest.mark.parametrize("kind", ["norm_laplace", "objective_pure"])
def test_pure_vectors_agree(kind):
    curvature = 0.05 if kind == "objective_pure" else 0.0
    facts = {"curvature": curvature} if curvature else {}
    first = rdp_epsilon((law_of(kind, 20, **facts),), 30.0, DELTA)
    uses = [use_of(kind, 30.0, 20, **facts)]
    found = epsilons.proved_epsilon(uses, DELTA, ZERO, "rdp")
    assert found == pytest.approx(first, rel=1e-4)
    pure = epsilons.proved_epsilon(uses, DELTA, ZERO, "pure")
    assert pure == pytest.approx(20 * (curvature + 1 / 30))


@pytest.mark.parametrize(
    ("accountant", "uses"),
    [
        ("gdp", [use_of("laplace", 3.0, 1)]),
        ("rdp", [use_of("poisson_gaussian", 3.0, 1, rate=0.5)]),
        ("profile", [use_of("gaussian", 3.0, 1)]),
        ("profile", [use_of("objective", 3.0, 2)]),
    ],
)
def test_an_accountant_refuses_what_it_does_not_know(accountant, uses):
    with pytest.raises(ValueError):
        epsilons.proved_epsilon(uses, DELTA, ZERO, accountant)


def test_the_second_implementation_shares_no_bound_with_the_first():
    """Nor a formula: of the layers below the twins know the adjacency alone."""
    code = (
        "import sys, pathlib, importlib\n"
        "import dp_erm_bench.trust.epsilons\n"
        "import dp_erm_bench.trust.twins as twins\n"
        "names = [p.stem for p in pathlib.Path(twins.__path__[0]).glob('*.py')]\n"
        "for n in names: importlib.import_module(f'{twins.__name__}.{n}')\n"
        "below = ('dp_erm_bench.releases.', 'dp_erm_bench.accounting')\n"
        "print(*[m for m in sys.modules if m.startswith(below)])"
    )
    run = [sys.executable, "-c", code]
    loaded = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["dp_erm_bench.releases.adjacency"]
