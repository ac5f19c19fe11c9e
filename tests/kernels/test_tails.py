"""Test tails of draws whose uniforms are in an outermost cell; others stay.

An outermost cell occurs once in 2^51 draws. But Philox with a fixed key is a
permutation of its counters. So the counter (the position, and half of the seed) of any
two uniforms can be computed. The tests make such streams.
"""

import hashlib
import math
from fractions import Fraction
from typing import NamedTuple

import llvmlite.binding
import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.kernels import draws, philox
from dp_erm_bench.kernels.selection import gumbel_argmax
from dp_erm_bench.releases.sampling import CoinStream

M0, M1, W0, W1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
WORD = 2**32
CELL = Fraction(1, 2**52)
COUNT = 1500
LN2 = math.log(2.0)


class Place(NamedTuple):
    """A stream and the number of a uniform of it that is in an outermost cell."""

    seed: np.ndarray
    at: int


def counters(words, keys):
    """Return the counters that Philox turns into words, by its rounds backwards.

    Both are arrays of uint64, one row for each of the words.
    """
    low, half = np.uint64(WORD - 1), np.uint64(32)
    back = [np.uint64(pow(m, -1, WORD)) for m in (M0, M1)]
    w0, w1, w2, w3 = words
    for r in reversed(range(10)):
        k0, k1 = (
            (keys[0] + np.uint64(r * W0)) & low,
            (keys[1] + np.uint64(r * W1)) & low,
        )
        c0, c2 = w3 * back[0] & low, w1 * back[1] & low
        c1 = w0 ^ (np.uint64(M1) * c2 >> half) ^ k0
        c3 = w2 ^ (np.uint64(M0) * c0 >> half) ^ k1
        w0, w1, w2, w3 = c0, c1, c2, c3
    return w0, w1, w2, w3


def places_of(rng, lane, low):
    """Return streams with a uniform of a lane (0, 1) in the cell at 0 or at 1."""
    size = 200 * COUNT
    keys = rng.integers(WORD, size=(2, size), dtype=np.uint64)
    pairs = rng.integers(2**64, size=(2, size), dtype=np.uint64)
    pairs[lane] = rng.integers(2**12, size=size, dtype=np.uint64)
    if not low:
        pairs[lane] |= np.uint64(2**64 - 2**12)
    halves = (pairs[0] >> 32, pairs[0] % WORD, pairs[1] >> 32, pairs[1] % WORD)
    c0, c1, c2, c3 = counters(halves, keys)
    usable = np.flatnonzero(c1 < 2**25)[:COUNT]  # positions must fit into 59 bits
    assert usable.size == COUNT
    seeds = np.stack([*keys, c2, c3], axis=1).astype(np.uint32)
    at = 2 * (c1 << np.uint64(32) | c0) + np.uint64(lane)
    return [Place(seeds[i], int(at[i])) for i in usable]


@pytest.fixture(scope="module")
def places():
    rng = np.random.default_rng(7)
    return {(i, low): places_of(rng, i, low) for i in (0, 1) for low in (True, False)}


def fits(values, least):
    """Tell whether values beyond ``least`` have the exponential law."""
    values = np.asarray(values)
    assert values.min() > least
    assert stats.kstest(values - least, "expon").pvalue > 1e-3
    assert np.unique(values).size > 0.99 * values.size


kinds = pytest.mark.parametrize("lane", [0, 1])
sides = pytest.mark.parametrize("low", [True, False])


@kinds
@sides
def test_the_streams_are_in_outermost_cells(places, lane, low):
    for seed, at in places[lane, low][:50]:
        assert philox.uniforms(seed, at, 1)[0] == (2.0**-53 if low else 1 - 2.0**-53)


@kinds
@sides
def test_laplace_tails_go_on(places, lane, low):
    found = np.array([draws.laplace(*p, 1)[0] for p in places[lane, low]])
    fits(-found if low else found, 51 * LN2)


@kinds
@sides
def test_gumbel_tails_go_on(places, lane, low):
    found = np.array([draws.gumbel(*p, 1)[0] for p in places[lane, low]])
    fits(np.exp(-found) if low else found, 52 * LN2)


def test_normal_radii_go_on_in_every_direction(places):
    pairs = np.array([draws.gaussian(*p, 2) for p in places[0, True]])
    fits((pairs**2).sum(axis=1) / 2, 52 * LN2)
    turns = np.arctan2(pairs[:, 1], pairs[:, 0]) / (2 * np.pi) % 1.0
    assert stats.kstest(turns, "uniform").pvalue > 1e-3


def first_gaps(places, rate):
    for seed, at in places:
        stream = CoinStream(seed, rate)
        stream._used = at
        yield int(stream.successes(round(80 / rate))[0])


@kinds
def test_gaps_between_samples_go_on(places, lane):
    halves = np.array(list(first_gaps(places[lane, True], 0.5))) - 52
    assert halves.min() == 0
    counts = np.bincount(np.minimum(halves, 6))
    chances = np.append(0.5 ** np.arange(1, 7), 0.5**6)
    assert stats.chisquare(counts, COUNT * chances).pvalue > 1e-3
    gaps = np.array(list(first_gaps(places[lane, True], 0.001)))
    inside = np.random.default_rng(0).random(COUNT)
    lengths = -math.log1p(-0.001) * (gaps + inside) - 52 * LN2
    assert stats.kstest(lengths, "expon").pvalue > 1e-3


@kinds
@sides
@pytest.mark.parametrize("draw", [draws.laplace, draws.gumbel, draws.gaussian])
def test_neighbours_stay_and_any_split_gives_the_same_bits(places, draw, lane, low):
    for seed, at in places[lane, low][:20]:
        whole = draw(seed, at - 5, 11)
        parts = [draw(seed, at - 5, 5), draw(seed, at, 1), draw(seed, at + 1, 5)]
        assert whole.tolist() == np.concatenate(parts).tolist()
        if draw is not draws.gaussian:
            law = stats.laplace if draw is draws.laplace else stats.gumbel_r
            expected = law.ppf(philox.uniforms(seed, at - 5, 11))
            others = np.arange(11) != 5
            np.testing.assert_allclose(whole[others], expected[others], atol=1e-13)


@kinds
@sides
def test_the_fast_maximum_is_that_of_all_draws(places, lane, low):
    rng, turned = np.random.default_rng(1), 0
    for seed, at in places[lane, low][:200]:
        start, count = at - int(rng.integers(0, 4)), int(rng.integers(5, 9))
        noise, scores = draws.gumbel(seed, start, count), np.full(count, -1e6)
        rival = (at - start + 1) % count
        level = rng.uniform(-3.7, -3.58) if low else rng.uniform(36.0, 39.0)
        scores[at - start], scores[rival] = 0.0, 3.0 * (level - noise[rival])
        expected = int((scores + 3.0 * noise).argmax())
        assert gumbel_argmax(seed, start, scores, 3.0) == expected
        middle = -math.log(-math.log(2.0**-53)) if low else 53 * LN2
        turned += (expected == rival) != (level > middle)
    assert turned > 20


def test_a_place_in_a_cell_is_uniform_and_a_function_of_seed_and_position():
    seed = np.array([3, 141, 59, 26], dtype=np.uint32)
    found = np.array([philox.place(seed, at) for at in range(20_000)])
    assert stats.kstest(found, "uniform").pvalue > 1e-3
    assert np.unique(found).size == found.size
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.03
    u = philox.uniforms(seed, 0, 20_000)
    assert abs(np.corrcoef(found, u)[0, 1]) < 0.03
    assert philox.place(seed, 77) == found[77]
    for word in range(4):
        other = seed.copy()
        other[word] ^= 1
        assert philox.place(other, 77) != found[77]


@pytest.mark.parametrize("zeros", [0, 1, 63, 64, 65, 200, 511, 960, 969])
def test_shares_are_exact_at_every_depth(zeros):
    rng = np.random.default_rng(zeros)
    words = rng.integers(2**64, size=32, dtype=np.uint64)
    deep, rest = divmod(zeros, 64)
    words[0 : 2 * deep : 2] = 0
    words[2 * deep] = 2 ** (63 - rest) + int(rng.integers(2 ** (63 - rest)))
    mantissa = 1 + Fraction(int(words[2 * deep + 1]) >> 12, 2**52)
    found = Fraction(philox.share(words))
    assert found == mantissa / 2 ** (zeros + 1)


@pytest.mark.parametrize("deep", [1, 3, 14])
def test_shares_are_uniform_at_every_depth(deep):
    words = np.random.default_rng(deep).integers(2**64, size=(4000, 32), dtype="u8")
    words[:, 0 : 2 * deep : 2] = 0
    found = np.array([philox.share(w) for w in words]) * 2.0 ** (64 * deep)
    assert stats.kstest(found, "uniform").pvalue > 1e-3


def test_what_is_cut_off_is_below_1e_300():
    least = philox.share(np.zeros(32, dtype=np.uint64))
    assert 2 * CELL * Fraction(least) < Fraction(1, 10**300)
    u, out = np.array([2.0**-53, 0.125]), np.empty(2)
    draws.laplace_again(least, u, 0, out)
    assert out[0] == pytest.approx(-1021 * LN2, rel=1e-15)
    draws.laplace_again(least, 1.0 - u, 0, out)
    assert out[0] == pytest.approx(1021 * LN2, rel=1e-15)
    draws.gumbel_again(least, 1.0 - u, 0, out)
    assert out[0] == pytest.approx(1022 * LN2, rel=1e-15)
    draws.gumbel_again(least, u, 0, out)
    assert out[0] == pytest.approx(-math.log(1022 * LN2), rel=1e-15)
    draws.gaussian_again(least, u, 0, out)
    assert np.hypot(*out) == pytest.approx(math.sqrt(2 * 1022 * LN2), rel=1e-15)


# What the code before further bits drew, as SHA-256 of little-endian numbers.
SEEDS = [[2, 71, 82, 81], [0, 0, 0, 0], [WORD - 1] * 4]
WHERE = [(0, 100_000), (1, 1), (7, 513), (2**36 + 1, 1000), (2**50, 64)]
RECORDED = {
    "uniform": (philox.uniforms, "5057e92d17413b5f"),
    "laplace": (draws.laplace, "ae4ba4a27868590f"),
    "gumbel": (draws.gumbel, "041f173142c483ae"),
    "gaussian": (draws.gaussian, "92bbdb2f049e964b"),
}
# Where a product and a sum are rounded apart, the last bits are others.
fused = pytest.mark.skipif(
    llvmlite.binding.get_host_cpu_features().get("fma") is False,
    reason="no fused multiply-add",
)


def streams():
    return [np.array(seed, dtype=np.uint32) for seed in SEEDS]


def digest(numbers):
    kind = "<f8" if numbers.dtype.kind == "f" else "<i8"
    return hashlib.sha256(numbers.astype(kind).tobytes()).hexdigest()[:16]


@fused
@pytest.mark.parametrize("name", RECORDED)
def test_all_other_draws_stay_equal_to_the_bit(name):
    draw, recorded = RECORDED[name]
    found = [draw(seed, *where) for seed in streams() for where in WHERE]
    assert digest(np.concatenate(found)) == recorded


@fused
def test_samples_and_winners_stay():
    rates = (1e-3, 0.3, 0.9)
    coins = [CoinStream(s, r).successes(200_000) for s in streams() for r in rates]
    assert digest(np.concatenate(coins)) == "3c6eda051e0bc9db"
    rng = np.random.default_rng(0)
    winners = [
        gumbel_argmax(seed, start, rng.normal(size=size), scale)
        for seed in streams()
        for start in (0, 11)
        for scale in (0.01, 1.0, 30.0)
        for size in (700, 5)
    ]
    assert digest(np.array(winners)) == "4954192e2c652fc1"
