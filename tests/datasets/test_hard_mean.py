"""Sparse records whose mean is hard to estimate."""

import numpy as np
import pytest

from dp_erm_bench import load_problem
from dp_erm_bench.datasets.hard_mean import hard_mean
from dp_erm_bench.errors import UsageError


@pytest.mark.parametrize(("s", "blocks"), [(8, 5), (1, 3), (4, 25), (4, "all")])
def test_the_mean_is_that_of_the_blocks(s, blocks):
    X, y = hard_mean(0, n=100, p=100, nonzeros=s, blocks=blocks)
    K = 25 if blocks == "all" else blocks
    assert not y.any() and X.shape == (100, 100)
    dense = X.toarray()
    assert (np.count_nonzero(dense, axis=1) == s).all()
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1.0)
    mean = dense.mean(axis=0)
    filled = np.abs(mean[: K * s])
    assert not mean[K * s :].any()
    even = 100 % K == 0
    np.testing.assert_allclose(filled, 1 / K / np.sqrt(s), rtol=1e-9 if even else 0.05)


@pytest.mark.parametrize(
    ("rule", "expected"), [("pure", 1000 / 8 / np.log(10_000)), ("approximate", 82.4)]
)
def test_rules_follow_the_number_of_records(rule, expected):
    X, _ = hard_mean(0, n=1000, p=10_000, blocks=rule)
    filled = np.count_nonzero(np.abs(X).sum(axis=0))
    assert filled == 8 * round(expected)
    few, _ = hard_mean(0, n=1000, p=16, blocks=rule)
    assert np.count_nonzero(np.abs(few).sum(axis=0)) == (8 * min(2, round(expected)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"blocks": 3, "p": 16}, "dataset.blocks=3: must be from 1 to p"),
        ({"blocks": 0}, "dataset.blocks=0: must be from 1"),
        ({"blocks": "many"}, "dataset.blocks=many: must be an integer, or pure"),
        ({"blocks": 1.5}, "dataset.blocks=1.5: must be an integer"),
        ({"nonzeros": 2000}, "dataset.nonzeros=2000: must be between"),
        ({"n": 1}, "dataset.n=1: must be an integer >= 2"),
    ],
)
def test_wrong_numbers_are_refused_in_a_sentence(wrong, words):
    with pytest.raises(UsageError, match=words):
        hard_mean(0, **wrong)


def test_it_is_a_problem_with_its_bounds():
    found = load_problem("hard_mean", problem="mean", n=50, p=40)
    assert (found.radius, found.nonzeros, found.n, found.p) == (1.0, 8, 50, 40)
    with pytest.raises(UsageError, match="a record has 8 non-zeros"):
        load_problem("hard_mean", problem="mean", bounds={"norm": 1.0, "nonzeros": 4})
