"""Test Philox against its published vectors, and the uniforms made of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dp_erm_bench.kernels import philox

# Random123, kat_vectors: counter, key, and what they give after ten rounds.
KNOWN_ANSWERS = [
    (
        [0x00000000] * 4,
        [0x00000000] * 2,
        [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
    ),
    (
        [0xFFFFFFFF] * 4,
        [0xFFFFFFFF] * 2,
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
    ),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
SEED = np.array([3, 141, 59, 26], dtype=np.uint32)
ALL_ONES = np.uint64(2**64 - 1)


def words(counter, key):
    c0, c1, c2, c3 = counter
    first = np.array([c1 << 32 | c0], dtype=np.uint64).view(np.int64)[0]
    pairs = np.empty(2, dtype=np.uint64)
    seed = np.array([*key, c2, c3], dtype=np.uint32)
    philox.fill_words(seed, int(first), pairs)
    return [word for pair in pairs.tolist() for word in divmod(pair, 2**32)]


def expected_pair(seed, index):
    """Return the two uniforms of one block, by the published generator."""
    k0, k1, c2, c3 = map(int, seed)
    a, b, c, d = words([index % 2**32, index >> 32, c2, c3], [k0, k1])
    return [
        ((high << 32 | low) // 2**12 + 0.5) / 2**52 for high, low in ((a, b), (c, d))
    ]


@pytest.mark.parametrize("counter, key, answer", KNOWN_ANSWERS)
def test_known_answers(counter, key, answer):
    assert words(counter, key) == answer


@pytest.mark.parametrize("index", [0, 1, 254, 255, 256, 257, 1000, 2**32 - 1, 2**32])
def test_uniforms_come_from_the_published_generator(index):
    u = philox.uniforms(SEED, 2 * index, 4)
    expected = expected_pair(SEED, index) + expected_pair(SEED, index + 1)
    assert u.tolist() == expected


@pytest.mark.parametrize("first", [0, 2**32 - 20, 2**40 + 3, -(2**63)])
def test_counters_that_go_together_give_what_each_gives_alone(first):
    together, alone = np.empty(100, np.uint64), np.empty(2, np.uint64)
    philox.fill_words(SEED, first, together)
    for i, pair in enumerate(together.reshape(-1, 2).tolist()):
        philox.fill_words(SEED, first + i, alone)
        assert pair == alone.tolist()


@given(
    seed=st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4),
    start=st.integers(0, 2**40),
    counts=st.lists(st.integers(0, 700), min_size=1, max_size=5),
)
def test_any_split_of_a_range_gives_the_same_bits(seed, start, counts):
    seed = np.array(seed, dtype=np.uint32)
    whole = philox.uniforms(seed, start, sum(counts))
    ends = start + np.cumsum([0, *counts])
    parts = [
        philox.uniforms(seed, int(a), c) for a, c in zip(ends[:-1], counts, strict=True)
    ]
    assert whole.tolist() == np.concatenate(parts).tolist()


def test_every_word_of_the_seed_matters():
    base = philox.uniforms(SEED, 0, 64)
    for word in range(4):
        other = SEED.copy()
        other[word] ^= 1
        assert not np.isin(philox.uniforms(other, 0, 64), base).any()


def test_extreme_bits_stay_inside_the_open_interval():
    low, high = philox._unit(np.uint64(0)), philox._unit(ALL_ONES)
    assert 0.0 < low == 2.0**-53
    assert high == 1.0 - 2.0**-53 < 1.0


def test_uniforms_fit_the_uniform_law():
    u = philox.uniforms(SEED, 0, 200_000)
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert np.unique(u).size == u.size


@pytest.mark.parametrize("lag", [1, 2, 3, 4])
def test_uniforms_are_independent_of_those_before(lag):
    u = philox.uniforms(SEED, 0, 160_001)
    table, _, _ = np.histogram2d(u[:-lag], u[lag:], bins=16, range=[[0, 1], [0, 1]])
    assert stats.chisquare(table.ravel()).pvalue > 1e-3


def test_streams_of_neighbouring_seeds_are_independent():
    seeds = np.array([[k, 0, 0, 0] for k in range(200)], dtype=np.uint32)
    u = np.stack([philox.uniforms(seed, 0, 500) for seed in seeds])
    correlation = np.corrcoef(u)[np.triu_indices(200, 1)]
    assert np.abs(correlation).max() < 5.5 / np.sqrt(500)
    assert stats.kstest(u[:, 0], "uniform").pvalue > 1e-3


def test_low_bits_are_balanced():
    mantissas = (philox.uniforms(SEED, 0, 40_000) * 2**53).astype(np.uint64)
    for bit in range(1, 53):
        ones = int(((mantissas >> np.uint64(bit)) & np.uint64(1)).sum())
        assert stats.binomtest(ones, 40_000).pvalue > 1e-5, bit
