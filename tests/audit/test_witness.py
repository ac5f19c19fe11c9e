"""Test that witnesses recognise whether noise is the stream's, at its scale."""

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate, shared_mechanisms
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.l1_laplace import L1Laplace
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.objective_gaussian import ObjectiveGaussian
from dp_erm_bench.releases.objective_norm_laplace import ObjectiveNormLaplace
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect
from dp_erm_bench.trust.recount import listen_to_run, recount, uses_of
from tests.loops import each

ALGORITHMS = registry.names("algorithm")
NAMES = ("a", "b", "c")
P = 4
ADDITIVE = (Gaussian, Laplace, PoissonGaussian, FixedSizeGaussian)
SECRET = (ObjectiveGaussian, ObjectiveNormLaplace)
SELECTIONS = (NoisyMax, LaplaceNoisyMax)


def quiet_run(algorithm, z=3.0):
    candidate = candidate_of(algorithm)
    return next(candidate.first()).run(z=z)


@each("algorithm", ALGORITHMS)
def test_what_is_heard_is_what_the_mechanisms_say(algorithm):
    run = quiet_run(algorithm)
    heard = listen_to_run(run.mechanisms)
    run.iterates()
    silent = [r.name for r in run.releases if isinstance(r, SECRET)]
    assert sorted([*heard, *silent]) == sorted(run.mechanisms)
    for name, found in heard.items():
        mechanism = run.mechanisms[name]
        assert found.uses == mechanism.used == mechanism.release.times
        expected = 3.0 * mechanism.release.weight
        assert found.ratio == pytest.approx(expected, rel=1e-6) or np.isinf(found.ratio)
        assert np.isinf(found.ratio) == isinstance(
            mechanism.release, NoisyMax | InsideNoisyMax | RepeatAndSelect
        )


@each("algorithm", ALGORITHMS)
def test_listening_changes_nothing(algorithm):
    run, other = quiet_run(algorithm), quiet_run(algorithm)
    listen_to_run(run.mechanisms)
    for a, b in zip(run.iterates(), other.iterates(), strict=True):
        np.testing.assert_array_equal(a, b)


def heard_of(kind, spoil, uses=5):
    """Use a mechanism that was spoilt, and return what was heard."""
    mechanisms = make_mechanisms([kind("noise", 2.0, uses)], 3.0, NAMES)
    mechanism = mechanisms["noise"]
    spoil(mechanism)
    heard = listen_to_run(mechanisms)["noise"]
    rng = np.random.default_rng(0)
    for _ in range(uses):
        if kind in SELECTIONS:
            mechanism(rng.normal(size=(len(NAMES), P)), lambda g: g)
        else:
            mechanism(rng.normal(size=len(NAMES)), coordinate=np.zeros(3, dtype=int))
    return heard, mechanisms


def honest(mechanism):
    pass


def halved(mechanism):
    noise = mechanism.unit_noise
    mechanism.unit_noise = lambda uses, size: noise(uses, size) / 2


def reused(mechanism):
    noise, first = mechanism.unit_noise, []

    def again(uses, size):
        first.append(noise(uses, size))
        return first[0].copy()

    mechanism.unit_noise = again


def from_the_start(mechanism):
    call = type(mechanism).publish

    def again(*args, **keys):
        mechanism._drawn = 0
        return call(mechanism, *args, **keys)

    mechanism.publish = again


def of_one_byte(mechanism):
    noise, honest_seeds = mechanism.unit_noise, mechanism.seeds

    def reseeded(uses, size):
        mechanism.seeds = honest_seeds % 256
        return noise(uses, size)

    mechanism.unit_noise = reseeded


def silent(mechanism):
    mechanism.unit_noise = lambda uses, size: np.zeros((len(NAMES), uses, size))


@pytest.mark.parametrize("kind", ADDITIVE)
def test_honest_noise_has_its_scale(kind):
    heard, _ = heard_of(kind, honest)
    assert heard.ratio == pytest.approx(3.0, rel=1e-9) and heard.uses == 5


@pytest.mark.parametrize("kind", ADDITIVE)
def test_half_the_noise_is_heard_though_the_scale_is_right(kind):
    heard, mechanisms = heard_of(kind, halved)
    assert heard.ratio == pytest.approx(1.5, rel=1e-9)
    assert uses_of(mechanisms)[0].ratio == 3.0


@each("kind", ADDITIVE)
@each("spoil", [reused, from_the_start, of_one_byte, silent])
def test_noise_of_another_place_is_heard(kind, spoil):
    assert heard_of(kind, spoil)[0].ratio < 2.9


@pytest.mark.parametrize("kind", SELECTIONS)
def test_winners_are_those_of_the_draws(kind):
    heard, mechanisms = heard_of(kind, honest, uses=40)
    assert np.isinf(heard.ratio) and heard.uses == 40

    assert heard_of(kind, from_the_start, uses=40)[0].ratio == 0.0

    def reversed_winners(mechanism):
        winners = mechanism._pick_winners
        mechanism._pick_winners = lambda scores: P - 1 - winners(scores)

    assert heard_of(kind, reversed_winners, uses=40)[0].ratio == 0.0


def test_what_was_heard_overrules_what_was_said():
    release = Gaussian("noise", 2.0, 5)
    calibration = calibrate((release.law(),), Budget(1, 1e-6))
    mechanisms = make_mechanisms([release], calibration.z, NAMES)
    halved(mechanisms["noise"])
    heard = listen_to_run(mechanisms)
    for _ in range(5):
        mechanisms["noise"](np.zeros((3, P)))
    assert recount(mechanisms, calibration).complaint(calibration) == ""
    found = recount(mechanisms, calibration, witnesses=heard)
    assert found.uses[0].ratio == pytest.approx(calibration.z / 2)
    assert "is certified" in found.complaint(calibration)


def test_a_use_that_was_not_counted_is_heard():
    release = Gaussian("noise", 2.0, 5)
    calibration = calibrate((release.law(),), Budget(1, 1e-6))
    mechanisms = make_mechanisms([release], calibration.z, NAMES)
    heard = listen_to_run(mechanisms)
    for _ in range(6):
        mechanisms["noise"](np.zeros((3, P)))
        mechanisms["noise"].used = min(mechanisms["noise"].used, 4)
    assert recount(mechanisms, calibration).uses[0].times == 4
    found = recount(mechanisms, calibration, witnesses=heard)
    assert found.uses[0].times == 6
    assert "is certified" in found.complaint(calibration)


def test_a_vector_is_heard_entry_by_entry():
    release = L1Laplace("noise", np.array([[1.0, 0.0, 2.0]]), 1, epsilon_share=0.5)
    budget = Budget(1.0, 1e-6)
    calibration = calibrate((release.law(),), Budget(0.5, 0.0))
    for spoil, level in ((honest, 0.5), (halved, 1.0)):
        mechanisms = shared_mechanisms((release,), budget, NAMES)
        spoil(mechanisms["noise"])
        heard = listen_to_run(mechanisms)
        mechanisms["noise"](np.ones((3, 3)))
        found = recount(mechanisms, calibration, witnesses=heard)
        assert found.epsilon == pytest.approx(level)
