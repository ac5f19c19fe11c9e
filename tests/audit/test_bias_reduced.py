"""Test the estimator of bias-reduced SGD, and how its runs end."""

import numpy as np
import pytest

from dp_erm_bench.papers.claims import (
    batch_bias,
    estimator_bias,
    private_means,
    stopping_times,
)


def test_the_estimator_is_less_biased_than_its_batches():
    length, limit = estimator_bias(draws=8000)
    one, two, all_of_them = (batch_bias(k, draws=8000) for k in (1, 2, 64))
    assert 0.0 <= length < limit < 0.3 * two < 0.3 * one
    assert all_of_them < 0.02


def test_half_a_batch_has_the_law_of_the_batch_of_the_level_below():
    """So that the sum over the levels telescopes."""
    both, _, _ = private_means(0, 4, 8000)
    _, one, other = private_means(1, 8, 8000)
    error = 5 * np.sqrt(2 * both.var(axis=0) / 8000)
    for half in (one, other):
        assert (np.abs(half.mean(axis=0) - both.mean(axis=0)) < error).all()


@pytest.mark.parametrize(("n", "least", "most"), [(1024, 51, 368), (16384, 826, 5882)])
def test_mean_steps_are_within_the_bounds_and_single_draws_are_not(n, least, most):
    steps = stopping_times(n, 1.0, 1e-8, 60)
    assert least < steps.mean() < most
    assert steps.min() < least and (steps >= 1).all()
