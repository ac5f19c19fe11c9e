"""Test that mechanisms count uses, and draw the same noise in any batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from tests.privacy.made import release_of

SCALARS = (Gaussian, Laplace, PoissonGaussian, FixedSizeGaussian)
VECTORS = (Gaussian, PoissonGaussian, FixedSizeGaussian)
SELECTIONS = (NoisyMax, LaplaceNoisyMax, InsideNoisyMax)
NAMES = ["a", "b", "c", "d"]
P = 3

each_release = pytest.mark.parametrize("kind", [*SCALARS, *SELECTIONS])
each_scalar = pytest.mark.parametrize("kind", SCALARS)
each_vector = pytest.mark.parametrize("kind", VECTORS)
each_selection = pytest.mark.parametrize("kind", SELECTIONS)


def mechanism_of(kind, times=10, z=0.5, names=NAMES, sensitivity=1.0, **options):
    release = release_of(kind, "noise", sensitivity, times, **options)
    return make_mechanisms([release], z, names)["noise"]


def identity(gradient):
    return gradient


def use(mechanism, count=None):
    """Use a mechanism once at zero."""
    batch = len(mechanism.seeds)
    if isinstance(mechanism.release, SELECTIONS):
        return mechanism(np.zeros((batch, P)), identity)
    return mechanism(np.zeros(batch), coordinate=np.zeros(batch, dtype=int))


@each_release
@pytest.mark.parametrize("times", [0, 1, 5])
def test_one_use_too_many_is_refused(kind, times):
    mechanism = mechanism_of(kind, times)
    for used in range(times):
        assert mechanism.used == used
        use(mechanism)
    for _ in range(2):
        with pytest.raises(BudgetExhausted) as error:
            use(mechanism)
        assert str(error.value) == (
            f"release noise was declared with times={times}, but use {times + 1} was "
            "requested"
        )
        assert mechanism.used == times


@each_release
def test_one_use_too_many_is_refused_without_noise_too(kind):
    mechanism = mechanism_of(kind, 1, z=0.0)
    use(mechanism)
    with pytest.raises(BudgetExhausted):
        use(mechanism)


@each_scalar
def test_noise_taken_ahead_is_counted(kind):
    mechanism = mechanism_of(kind, 7)
    coordinates = np.zeros((4, 7), dtype=int)
    assert mechanism.take(4, coordinates[:, :4]).shape == (4, 4)
    assert mechanism.used == 4
    with pytest.raises(
        BudgetExhausted, match="declared with times=7, but use 8 was requested"
    ):
        mechanism.take(4, coordinates[:, :4])
    mechanism.take(3, coordinates[:, :3])
    assert mechanism.used == 7


@each_vector
def test_vectors_taken_ahead_are_counted(kind):
    mechanism = mechanism_of(kind, 7)
    assert mechanism.take_vectors(5, P).shape == (4, 5, P)
    with pytest.raises(BudgetExhausted):
        mechanism.take_vectors(3, P)
    mechanism.take_vectors(2, P)
    assert mechanism.used == 7


@each_scalar
def test_chunks_do_not_change_the_noise(kind):
    sensitivity = np.random.default_rng(0).exponential(size=(4, P))
    j = np.random.default_rng(1).integers(0, P, size=(4, 7))
    whole = mechanism_of(kind, sensitivity=sensitivity).take(7, j)
    cut = mechanism_of(kind, sensitivity=sensitivity)
    parts = np.concatenate([cut.take(3, j[:, :3]), cut.take(4, j[:, 3:])], axis=1)
    called = mechanism_of(kind, sensitivity=sensitivity)
    calls = [called(np.zeros(4), coordinate=j[:, t]) for t in range(7)]
    assert whole.tolist() == parts.tolist() == np.stack(calls, axis=1).tolist()


@each_vector
def test_chunks_do_not_change_the_noise_of_vectors(kind):
    whole = mechanism_of(kind).take_vectors(7, P)
    cut, called = mechanism_of(kind), mechanism_of(kind)
    parts = np.concatenate([cut.take_vectors(3, P), cut.take_vectors(4, P)], axis=1)
    calls = [called(np.zeros((4, P))) for _ in range(7)]
    assert whole.tolist() == parts.tolist() == np.stack(calls, axis=1).tolist()


@each_release
@given(
    order=st.permutations(NAMES),
    size=st.integers(1, 5),
    chunks=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_noise_is_that_of_the_trial_whatever_batch_and_chunks(
    kind, order, size, chunks
):
    uses = sum(chunks)
    alone = [mechanism_of(kind, 30, names=[n]).unit_noise(uses, size)[0] for n in order]
    together = mechanism_of(kind, 30, names=order)
    parts = np.concatenate([together.unit_noise(k, size) for k in chunks], axis=1)
    assert parts.tolist() == np.stack(alone).tolist()


@each_selection
def test_winners_are_those_of_the_trial_whatever_the_batch(kind):
    g = np.random.default_rng(0).normal(size=(4, P))
    together = mechanism_of(kind)
    rounds = [together(g, identity) for _ in range(10)]
    for b, name in enumerate(NAMES):
        alone = mechanism_of(kind, names=[name])
        winners = [alone(g[b : b + 1], identity)[0] for _ in range(10)]
        assert winners == [winner[b] for winner in rounds]
    assert len({tuple(winner) for winner in rounds}) > 1


@each_release
def test_no_draw_is_used_twice_whatever_the_sizes(kind):
    mechanism = mechanism_of(kind, 100)
    sizes = [5, 1, 1, 3, 7, 2, 1]
    noise = [mechanism.unit_noise(2, size).ravel() for size in sizes]
    drawn = np.concatenate(noise)
    assert np.unique(drawn).size == drawn.size == 4 * 2 * sum(sizes)


@each_release
def test_noise_of_trials_and_releases_is_independent(kind):
    releases = [release_of(kind, name, 1.0, 4000) for name in ("one", "other")]
    made = make_mechanisms(releases, 1.0, NAMES)
    rows = np.concatenate([made[name].unit_noise(4000, 1)[:, :, 0] for name in made])
    correlations = np.corrcoef(rows)[np.triu_indices(8, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(4000)
    magnitudes = np.corrcoef(np.abs(rows))[np.triu_indices(8, 1)]
    assert np.abs(magnitudes).max() < 4.5 / np.sqrt(4000)
    assert np.unique(rows).size == rows.size


@each_scalar
def test_no_noise_is_exactly_the_query(kind):
    value = np.random.default_rng(0).normal(size=4) * 10.0 ** np.arange(-3, 1)
    sensitivity = np.array([[np.inf, 1.0, 2.0]])
    mechanism = mechanism_of(kind, z=0.0, sensitivity=sensitivity)
    answer = mechanism(value, coordinate=np.array([0, 1, 2, 0]))
    assert answer.tolist() == value.tolist()
    assert mechanism.take(3, np.zeros((4, 3), dtype=int)).tolist() == [[0.0] * 3] * 4


@each_vector
def test_no_noise_is_exactly_the_vector(kind):
    value = np.random.default_rng(0).normal(size=(4, P))
    mechanism = mechanism_of(kind, z=0.0, sensitivity=np.inf)
    assert mechanism(value).tolist() == value.tolist()
    assert not mechanism.take_vectors(3, P).any()


@each_selection
def test_no_noise_selects_the_largest_score_and_the_first_of_equals(kind):
    g = np.array([[1.0, 3.0, 2.0], [2.0, 0.0, 2.0], [0.0, 0.0, 0.0], [-3.0, -1.0, 0.5]])
    mechanism = mechanism_of(kind, z=0.0, sensitivity=np.inf)
    assert mechanism(g, identity).tolist() == [1, 0, 0, 2]
    assert mechanism(g, np.negative).tolist() == [0, 1, 0, 0]


SENSITIVITIES = [
    3.0,
    np.array([[3.0], [0.5], [0.0], [2.0]]),
    np.array([[1.0, 0.0, 2.5]]),
    np.random.default_rng(3).exponential(size=(4, P)),
]


@each_scalar
@pytest.mark.parametrize("sensitivity", SENSITIVITIES, ids=np.shape)
def test_noise_is_the_multiplier_times_weight_times_sensitivity(kind, sensitivity):
    options = {"sensitivity": sensitivity, "weight": 4.0}
    unit = mechanism_of(kind).unit_noise(10, 1)[:, :, 0]
    j = np.random.default_rng(4).integers(0, P, size=(4, 10))
    noise = mechanism_of(kind, z=0.5, **options).take(10, j)
    full = np.broadcast_to(sensitivity, (4, P))
    expected = 2.0 * np.take_along_axis(full, j, axis=1) * unit
    np.testing.assert_allclose(noise, expected, rtol=1e-15)
    mechanism = mechanism_of(kind, z=0.5, **options)
    answers = [mechanism(np.full(4, 7.0), coordinate=j[:, t]) for t in range(10)]
    np.testing.assert_allclose(np.stack(answers, axis=1), 7.0 + expected, rtol=1e-14)


@each_vector
@pytest.mark.parametrize("sensitivity", SENSITIVITIES[:2], ids=np.shape)
def test_noise_of_vectors_has_one_scale_per_trial(kind, sensitivity):
    unit = mechanism_of(kind).unit_noise(2, P)
    noise = mechanism_of(kind, z=0.5, sensitivity=sensitivity).take_vectors(2, P)
    scale = 0.5 * np.broadcast_to(sensitivity, (4, 1))[:, None, :]
    np.testing.assert_allclose(noise, scale * unit, rtol=1e-15)


@each_selection
@pytest.mark.parametrize("sensitivity", SENSITIVITIES, ids=np.shape)
def test_scores_get_noise_of_the_widest_scale_gradients_of_their_own(kind, sensitivity):
    mechanism = mechanism_of(kind, z=0.5, sensitivity=sensitivity)
    full = 0.5 * np.broadcast_to(sensitivity, (4, P))
    scale = np.broadcast_to(mechanism.scale, (4, P))
    inside = kind is InsideNoisyMax
    expected = full if inside else np.repeat(full.max(axis=1, keepdims=True), P, axis=1)
    assert scale.tolist() == expected.tolist()
    g = np.random.default_rng(5).normal(size=(4, P))
    noise = mechanism_of(kind).unit_noise(1, P)[:, 0] * expected
    noisy = np.abs(g + noise) if inside else np.abs(g) + noise
    assert mechanism(g, np.abs).tolist() == noisy.argmax(axis=1).tolist()


@each_selection
def test_excluded_candidates_never_win(kind):
    mechanism = mechanism_of(kind, times=300, z=50.0)

    def score(gradient):
        return np.where(np.arange(P) == 1, -np.inf, gradient)

    winners = [mechanism(np.zeros((4, P)), score) for _ in range(300)]
    assert set(np.concatenate(winners).tolist()) == {0, 2}


def test_a_vector_is_not_one_use_of_a_release_of_numbers():
    with pytest.raises(TypeError, match="release noise covers one number per use"):
        mechanism_of(Laplace)(np.zeros((4, P)))
    with pytest.raises(TypeError, match="release noise covers one number per use"):
        mechanism_of(Laplace).take_vectors(1, P)


@each_vector
def test_a_vector_has_one_sensitivity(kind):
    mechanism = mechanism_of(kind, sensitivity=np.ones((4, P)))
    with pytest.raises(TypeError, match="release noise covers one number per use"):
        mechanism(np.zeros((4, P)))


@each_scalar
def test_a_sensitivity_per_coordinate_needs_the_coordinate(kind):
    mechanism = mechanism_of(kind, sensitivity=np.ones((4, P)))
    with pytest.raises(TypeError, match="needs the coordinate"):
        mechanism(np.zeros(4))
    assert mechanism.used == 0


def test_names_of_releases_are_unique():
    with pytest.raises(ValueError, match="two releases are named noise"):
        make_mechanisms(
            [Gaussian("noise", 1.0, 1), Laplace("noise", 1.0, 1)], 1.0, NAMES
        )


def overheard(mechanism, *arguments, **keys):
    """Return the query that the audit sees, and check that its answer is returned."""
    heard = []
    mechanism.intercept = lambda query, publish: heard.append(query) or publish()
    answer = mechanism(*arguments, **keys)
    assert answer is not None and mechanism.used == 1
    return heard[0]


@each_scalar
def test_the_audit_sees_numbers_with_their_sensitivity(kind):
    sensitivity = np.arange(1.0, 4.0)[None, :]
    mechanism = mechanism_of(kind, sensitivity=sensitivity)
    j = np.array([2, 0, 1, 1])
    query = overheard(mechanism, np.arange(4.0), coordinate=j)
    assert query.name == "noise"
    assert query.value.tolist() == [[0.0], [1.0], [2.0], [3.0]]
    assert query.sensitivity.tolist() == [[3.0], [1.0], [2.0], [2.0]]


@each_vector
def test_the_audit_measures_vectors_in_the_euclidean_norm(kind):
    value = np.arange(12.0).reshape(4, P)
    query = overheard(mechanism_of(kind, sensitivity=5.0), value)
    assert query.vector
    assert query.value.tolist() == value.tolist()
    assert np.broadcast_to(query.sensitivity, (4, 1)).tolist() == [[5.0]] * 4


@each_selection
def test_the_audit_sees_what_the_noise_of_a_selection_is_added_to(kind):
    g = np.random.default_rng(0).normal(size=(4, P))
    sensitivity = np.array([[1.0, 2.0, 3.0]])
    query = overheard(mechanism_of(kind, sensitivity=sensitivity), g, np.abs)
    expected = g if kind is InsideNoisyMax else np.abs(g)
    assert query.value.tolist() == expected.tolist()
    assert query.sensitivity.tolist() == sensitivity.tolist()
    assert not query.vector


def test_the_audit_decides_what_the_solver_sees():
    mechanism = mechanism_of(Gaussian)
    mechanism.intercept = lambda query, publish: "told"
    assert mechanism(np.zeros(4)) == "told"


def test_mechanisms_know_the_batch():
    made = make_mechanisms([Gaussian("noise", 1.0, 1)], 1.0, NAMES)
    assert made.batch == 4 and made.ahead
    assert list(made) == ["noise"]
