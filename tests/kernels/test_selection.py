"""Test that the fast noisy maximum has the same winner as with all noise drawn."""

import numpy as np

from dp_erm_bench.kernels.draws import gumbel
from dp_erm_bench.kernels.selection import gumbel_argmax
from tests.loops import each


def seed_of(number):
    return np.random.default_rng(number).integers(0, 2**32, 4, dtype=np.uint32)


@each("scale", [1e-6, 0.1, 1.0, 30.0])
@each("p", [1, 2, 3, 511, 512, 513, 5000])
def test_winner_is_that_of_all_draws(p, scale):
    rng = np.random.default_rng(p)
    for trial in range(20):
        seed, start = seed_of(trial), int(rng.integers(0, 10_000))
        scores = rng.normal(size=p)
        expected = (scores + scale * gumbel(seed, start, p)).argmax()
        assert gumbel_argmax(seed, start, scores, scale) == expected


def test_excluded_scores_never_win():
    scores = np.full(700, -np.inf)
    scores[[3, 600]] = 0.0, 1.0
    winners = {gumbel_argmax(seed_of(k), 0, scores, 5.0) for k in range(50)}
    assert winners == {3, 600}


def test_nobody_to_choose_is_the_first():
    assert gumbel_argmax(seed_of(0), 0, np.full(4, -np.inf), 1.0) == 0
