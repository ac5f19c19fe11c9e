"""Test each release's draws against the law that is accounted."""

import itertools

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from tests.privacy.made import LAWS, built_in, law_of, release_of

# What an accountant takes each kind of event to be.
ADDED = {
    "gaussian": stats.norm,
    "poisson_gaussian": stats.norm,
    "fixed_size_gaussian": stats.norm,
    "laplace": stats.laplace,
}
SELECTED = ("bounded_range", "pure")
SAMPLED = (PoissonGaussian, FixedSizeGaussian)
ADDITIVE = (Gaussian, Laplace, *SAMPLED)
SELECTIONS = (NoisyMax, LaplaceNoisyMax, InsideNoisyMax)
Z, WEIGHT = 0.8, 1.25
TRIALS = [f"trial {i}" for i in range(4000)]
GRID = np.linspace(-45.0, 45.0, 9_001)


def laplace_below(x):
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


def gumbel_below(x):
    return np.exp(-np.exp(-np.maximum(x, -30.0)))


# Density and distribution of the noise of scale 1.
LAPLACE = (np.exp(-np.abs(GRID)) / 2, laplace_below)
GUMBEL = (gumbel_below(GRID) * np.exp(-np.maximum(GRID, -30.0)), gumbel_below)

additive = pytest.mark.parametrize("kind", ADDITIVE)
selection = pytest.mark.parametrize("kind", SELECTIONS)


def test_every_release_is_tested_here():
    elsewhere = {"L1Laplace", "NormLaplace"}  # test_l1_laplace, test_perturbation
    elsewhere |= {"ObjectiveGaussian", "ObjectiveNormLaplace"}
    elsewhere |= {"SingleUseGaussian"}  # test_single_use
    elsewhere |= {"SketchedGaussian"}  # test_sketched
    elsewhere |= {"RepeatAndSelect"}  # test_repeat_and_select
    elsewhere |= {"RenyiFilter"}  # test_renyi_filter
    elsewhere |= {"AllocationGaussian"}  # test_allocation
    made = [kind for kind in built_in() if kind.__name__ not in elsewhere]
    assert set(made) == {*ADDITIVE, *SELECTIONS}
    kinds = {release_of(found, "any", 1.0, 1).law().name for found in made}
    kinds |= {kind("any", 1.0, 1, rate=0.5).law().name for kind in SAMPLED}
    others = {"norm_laplace", "objective", "objective_pure", "single_use"}
    others |= {"sketched_gaussian", "repeat_and_select", "renyi_filter"}
    others |= {"allocation_gaussian"}
    assert kinds == {*ADDED, *SELECTED} == set(LAWS) - others


@pytest.mark.parametrize("kind", [*ADDITIVE, *SELECTIONS])
def test_the_event_has_the_numbers_of_the_release(kind):
    special = {PoissonGaussian: {"rate": 0.2}, InsideNoisyMax: {"spread": 3.0}}
    options = special.get(kind, {})
    event = release_of(kind, "any", 2.0, 7, weight=WEIGHT, **options).law()
    assert event == law_of(event.name, 7, WEIGHT, **options)


@additive
@pytest.mark.parametrize("sensitivity", [3.0, [[0.5]], [[2.0, 0.1, 4.0]]])
def test_added_noise_has_the_law_and_scale_that_are_accounted(kind, sensitivity):
    times = 10
    release = release_of(kind, "noise", np.array(sensitivity), times, weight=WEIGHT)
    event, columns = release.law(), np.atleast_2d(sensitivity).shape[1]
    mechanism = make_mechanisms([release], Z, TRIALS)["noise"]
    j = np.random.default_rng(0).integers(0, columns, size=(times, len(TRIALS)))
    noise = np.stack([mechanism(np.zeros(len(TRIALS)), coordinate=k) for k in j])
    scale = event.multiplier(Z) * np.atleast_2d(sensitivity)[0, j]
    law = ADDED[event.name]
    assert stats.kstest((noise / scale).ravel(), law.cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(noise)[np.triu_indices(times, 1)]).max() < 0.08


@pytest.mark.parametrize("kind", [k for k in ADDITIVE if k.vectors])
def test_vectors_get_independent_noise_of_the_accounted_scale(kind):
    release = release_of(kind, "noise", 2.0, 2, weight=WEIGHT)
    mechanism = make_mechanisms([release], Z, TRIALS)["noise"]
    noise = mechanism(np.zeros((len(TRIALS), 5)))
    scaled = noise / (2.0 * release.law().multiplier(Z))
    assert stats.kstest(scaled.ravel(), ADDED[release.law().name].cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(scaled.T)[np.triu_indices(5, 1)]).max() < 0.08


class Selection:
    """A noisy maximum over three candidates and its exact probabilities."""

    slopes = np.array([1.0, 2.0, 0.5])

    def __init__(self, kind):
        self.kind, self.inside = kind, kind is InsideNoisyMax
        self.sensitivity = np.array([[1.0, 0.75, 1.5]])
        spread = (self.slopes * self.sensitivity).max() / (
            self.slopes * self.sensitivity
        ).min()
        options = {"spread": spread} if self.inside else {}
        options["weight"] = WEIGHT
        self.release = release_of(kind, "select", self.sensitivity, 5, **options)
        self.event = self.release.law()
        multiplier = self.event.multiplier(Z)
        # Noise on scores has one scale; noise on a gradient one per coordinate.
        self.scales = multiplier * (
            self.sensitivity[0] if self.inside else np.full(3, self.sensitivity.max())
        )

    def score(self, gradient):
        return self.slopes * np.abs(gradient) if self.inside else gradient

    def probabilities(self, g):
        """Return the law of the winner, by numerical integration."""
        masses, below = GUMBEL if self.kind is NoisyMax else LAPLACE
        x = g[:, None] + self.scales[:, None] * GRID
        levels = self.slopes[:, None] * np.abs(x) if self.inside else x
        return np.array(
            [
                np.trapezoid(masses * self.all_below(below, g, levels[j], j), GRID)
                for j in range(3)
            ]
        )

    def all_below(self, below, g, level, winner):
        chance = np.ones_like(level)
        for i in set(range(3)) - {winner}:
            if not self.inside:
                chance *= below((level - g[i]) / self.scales[i])
                continue
            t = level / self.slopes[i]
            ends = [below((s * t - g[i]) / self.scales[i]) for s in (1, -1)]
            chance *= ends[0] - ends[1]
        return chance


@pytest.fixture(params=SELECTIONS, ids=lambda kind: kind.__name__)
def selected(request):
    return Selection(request.param)


@pytest.mark.parametrize("g", [[0.0, 0.0, 0.0], [2.0, 0.5, -3.0], [-1.0, 1.0, 0.0]])
def test_winners_have_the_law_of_the_noisy_maximum(selected, g):
    mechanism = make_mechanisms([selected.release], Z, TRIALS)["select"]
    gradient = np.tile(g, (len(TRIALS), 1))
    winners = np.stack([mechanism(gradient, selected.score) for _ in range(5)])
    counts = np.bincount(winners.ravel(), minlength=3)
    expected = selected.probabilities(np.array(g))
    assert expected.sum() == pytest.approx(1.0, abs=1e-4)
    assert (
        stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 1e-3
    )


def test_gumbel_noise_is_the_exponential_mechanism():
    selected = Selection(NoisyMax)
    scores = np.array([2.0, 0.5, -3.0])
    weights = np.exp(scores / (WEIGHT * Z * selected.sensitivity.max()))
    expected = weights / weights.sum()
    np.testing.assert_allclose(selected.probabilities(scores), expected, atol=1e-5)
    mechanism = make_mechanisms([selected.release], Z, TRIALS)["select"]
    gradient = np.tile(scores, (len(TRIALS), 1))
    winners = np.stack([mechanism(gradient, lambda g: g) for _ in range(5)])
    counts = np.bincount(winners.ravel(), minlength=3)
    assert stats.chisquare(counts, expected * counts.sum()).pvalue > 1e-3


def log_ratios(selected, g):
    """Return the log-likelihood ratios of all winners, over extreme neighbours."""
    centre = np.log(selected.probabilities(g))
    for signs in itertools.product((-1.0, 0.0, 1.0), repeat=3):
        neighbour = g + np.array(signs) * selected.sensitivity[0]
        yield np.log(selected.probabilities(neighbour)) - centre


@pytest.mark.parametrize("g", [[0.0, 0.0, 0.0], [0.0, 9.0, 30.0], [9.0, -4.0, 0.0]])
def test_the_level_of_the_event_bounds_every_ratio(selected, g):
    level = selected.event.level(Z)
    for ratios in log_ratios(selected, np.array(g)):
        assert np.abs(ratios).max() <= level + 1e-4
        if selected.event.name == "bounded_range":
            assert np.ptp(ratios) <= level + 1e-4


def test_the_level_of_the_event_is_not_idle(selected):
    # A candidate far behind gains the most.
    far = np.array([0.0, 9.0, 30.0])
    worst = max(np.abs(ratios).max() for ratios in log_ratios(selected, far))
    assert worst > 0.5 * selected.event.level(Z)
