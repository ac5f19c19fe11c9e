"""Test Poisson sampling: independent records with the declared probability."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dp_erm_bench.errors import BudgetExhausted, NotSampled
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.releases.sampling import CoinStream
from tests.loops import each

SEED = np.array([17, 19, 23, 29], dtype=np.uint32)
RATES = [1e-4, 0.01, 0.3, 0.5, 0.97, 1.0]


def table_of(rate, n, steps):
    """Return who is sampled when, boolean of shape (steps, n)."""
    successes = CoinStream(SEED, rate).successes(n * steps)
    table = np.zeros(n * steps, dtype=bool)
    table[successes] = True
    assert table.sum() == successes.size
    return table.reshape(steps, n)


def goodness(counts, expected):
    """Return the p-value of counts, cells of expectation below 10 pooled."""
    small = expected < 10
    pooled = np.append(counts[~small], counts[small].sum())
    masses = np.append(expected[~small], expected[small].sum())
    keep = masses > 0
    masses = masses[keep] * pooled.sum() / masses[keep].sum()
    return stats.chisquare(pooled[keep], masses).pvalue


@pytest.mark.parametrize("rate", RATES[1:-1])
def test_each_record_is_included_with_the_rate(rate):
    table = table_of(rate, 50, 4000)
    p_values = [stats.binomtest(int(k), 4000, rate).pvalue for k in table.sum(axis=0)]
    assert min(p_values) > 1e-4
    assert stats.binomtest(int(table.sum()), table.size, rate).pvalue > 1e-3


@pytest.mark.parametrize("rate", RATES[1:-1])
def test_sample_sizes_are_binomial(rate):
    sizes = table_of(rate, 50, 4000).sum(axis=1)
    expected = 4000 * stats.binom(50, rate).pmf(np.arange(51))
    assert goodness(np.bincount(sizes, minlength=51), expected) > 1e-3


@each("rate", RATES[1:-1])
@each("lag", [1, 2, 7])
def test_coins_are_independent(rate, lag):
    coins = table_of(rate, 1, 200_000).ravel().astype(int)
    pairs = np.bincount(2 * coins[:-lag] + coins[lag:], minlength=4)
    one, both = np.array([1 - rate, rate]), pairs.sum()
    assert goodness(pairs, both * np.outer(one, one).ravel()) > 1e-3


@pytest.mark.parametrize("rate", RATES[1:-1])
def test_records_of_a_step_are_independent(rate):
    table = table_of(rate, 12, 20_000).astype(float)
    correlations = np.corrcoef(table.T)[np.triu_indices(12, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(20_000)


@given(
    rate=st.sampled_from(RATES),
    pieces=st.lists(st.integers(0, 400), min_size=1, max_size=12),
)
def test_pieces_join_to_the_whole(rate, pieces):
    whole = CoinStream(SEED, rate).successes(sum(pieces))
    stream, joined, start = CoinStream(SEED, rate), [], 0
    for coins in pieces:
        found = stream.successes(coins)
        assert ((found >= 0) & (found < coins)).all()
        joined += (start + found).tolist()
        start += coins
    assert joined == whole.tolist() == sorted(set(joined))


def test_rare_successes_survive_many_pieces():
    whole = CoinStream(SEED, 1e-4).successes(200_000)
    stream = CoinStream(SEED, 1e-4)
    joined = [k * 50 + i for k in range(4000) for i in stream.successes(50).tolist()]
    assert joined == whole.tolist() and len(joined) > 5


def test_rate_one_takes_everybody():
    stream = CoinStream(SEED, 1.0)
    for _ in range(3):
        assert stream.successes(7).tolist() == list(range(7))


def mechanism_of(rate, identities, times=100):
    release = PoissonGaussian("gradient", 1.0, times, rate=rate)
    return make_mechanisms([release], 1.0, identities)["gradient"]


@pytest.mark.parametrize("rate", [0.03, 0.4, 1.0])
def test_samples_are_cut_into_steps(rate):
    steps, n = 40, 25
    records, offsets = mechanism_of(rate, ["a"]).sample(0, n, steps)
    assert offsets.shape == (steps + 1,)
    assert offsets[0] == 0 and offsets[-1] == records.size
    assert ((records >= 0) & (records < n)).all()
    stepwise = mechanism_of(rate, ["a"])
    for t in range(steps):
        sample = records[offsets[t] : offsets[t + 1]]
        assert (np.diff(sample) > 0).all()
        assert stepwise.sample(0, n, 1)[0].tolist() == sample.tolist()


def test_samples_belong_to_the_trial_whatever_the_batch():
    together = mechanism_of(0.2, ["a", "b", "c"])
    order = [2, 0, 1]
    samples = {b: together.sample(b, 50, 30)[0].tolist() for b in order}
    for b, identity in enumerate("abc"):
        assert mechanism_of(0.2, [identity]).sample(0, 50, 30)[0].tolist() == samples[b]
    assert samples[0] != samples[1] != samples[2]


def test_samples_are_independent_of_the_noise():
    mechanism = mechanism_of(0.5, ["a"], times=5000)
    noise = mechanism.take_vectors(5000, 1)[0, :, 0]
    records, offsets = mechanism.sample(0, 1, 5000)
    assert abs(np.corrcoef(noise, np.diff(offsets))[0, 1]) < 4 / np.sqrt(5000)
    assert abs(np.corrcoef(noise**2, np.diff(offsets))[0, 1]) < 4 / np.sqrt(5000)


def use(mechanism, times=1):
    for _ in range(times):
        mechanism(np.zeros((len(mechanism.seeds), 2)))


def sample(mechanism, steps=1, trials="a"):
    for b in range(len(trials)):
        mechanism.sample(b, 9, steps)


SOUND = {
    "one by one": lambda m: [(sample(m), use(m)) for _ in range(5)],
    "all samples first": lambda m: (sample(m, 5), use(m, 5)),
    "noise ahead, after": lambda m: (sample(m, 5), m.take_vectors(5, 2)),
    "noise ahead, before": lambda m: (m.take_vectors(5, 2), sample(m, 5)),
    "pieces": lambda m: [(m.take_vectors(3, 2), sample(m, 3)) for _ in range(4)],
    "noise ahead, samples one by one": lambda m: (
        m.take_vectors(2, 2),
        sample(m),
        sample(m),
    ),
}
UNSOUND = {
    "no sample": (lambda m: use(m), "there are 0 samples for the next 1 uses"),
    "one sample for two uses": (
        lambda m: (sample(m), use(m, 2)),
        "there are 0 samples",
    ),
    "two samples for one use": (
        lambda m: (sample(m), sample(m), use(m)),
        "another sample was taken before the last one was used",
    ),
    "two samples at the end": (lambda m: (sample(m), sample(m)), "another sample"),
    "more samples than uses": (
        lambda m: (sample(m, 3), use(m, 2)),
        "1 samples had no use",
    ),
    "fewer samples than noise": (
        lambda m: (sample(m, 2), m.take_vectors(3, 2)),
        "there are 2 samples for the next 3 uses",
    ),
    "noise and no sample": (lambda m: m.take_vectors(4, 2), "4 uses had no sample"),
    "noise twice": (
        lambda m: (m.take_vectors(1, 2), m.take_vectors(1, 2)),
        "there are 0 samples for the next 1 uses",
    ),
    "noise, and a use": (
        lambda m: (m.take_vectors(1, 2), use(m)),
        "there are 0 samples",
    ),
    "more samples than noise": (
        lambda m: (m.take_vectors(2, 2), sample(m, 3)),
        "another sample",
    ),
}


@pytest.mark.parametrize("way", SOUND)
def test_a_sample_for_each_use_is_served(way):
    mechanism = mechanism_of(0.3, ["a"])
    SOUND[way](mechanism)
    mechanism.finish()


@pytest.mark.parametrize("way", UNSOUND)
def test_other_than_a_sample_for_each_use_is_refused(way):
    run, said = UNSOUND[way]
    mechanism = mechanism_of(0.3, ["a"])
    with pytest.raises(NotSampled, match=said) as error:
        run(mechanism)
        mechanism.finish()
    assert "release gradient is certified for one Poisson sample" in str(error.value)
    assert isinstance(error.value, BudgetExhausted)


def test_every_trial_of_a_batch_takes_its_own_sample():
    mechanism = mechanism_of(0.3, ["a", "b", "c"])
    sample(mechanism, trials="abc")
    use(mechanism)
    sample(mechanism, trials="ab")
    with pytest.raises(NotSampled):
        use(mechanism)


def test_a_sum_over_all_records_needs_no_sample():
    mechanism = mechanism_of(1.0, ["a", "b"])
    use(mechanism, 3)
    sample(mechanism, 2)
    mechanism.take_vectors(4, 2)
    mechanism.finish()


def test_a_sample_of_another_release_is_none():
    releases = [PoissonGaussian(name, 1.0, 9, rate=0.3) for name in ("one", "other")]
    made = make_mechanisms(releases, 1.0, ["a"])
    sample(made["one"])
    use(made["one"])
    with pytest.raises(NotSampled, match="release other"):
        use(made["other"])
