"""Test winning probabilities against closed forms, quadrature and sampling."""

import numpy as np
import pytest
from scipy import integrate

from dp_erm_bench.trust.twins.laplace_noisy_max import (
    folded_below,
    folded_density,
    inside_chances,
    laplace_below,
    laplace_chances,
    laplace_density,
)

ROWS = np.array([[0.0, 0.4, -0.3, 0.4], [2.0, 0.0, 5.0, 1.0], [0.0, 0.0, 0.0, 0.0]])


def by_quad(scores, density, below, low):
    """One number at a time, by adaptive quadrature."""
    found = []
    for j, v in enumerate(scores):
        rest = np.delete(scores, j)

        def integrand(x, v=v, rest=rest):
            return float(density(x, v) * np.prod(below(x, rest)))

        kinks = sorted({*scores.tolist()})
        area = integrate.quad(integrand, low, 40.0, points=kinks, limit=200)
        found.append(area[0])
    return found


@pytest.mark.parametrize("row", ROWS)
def test_chances_under_laplace_noise(row):
    expected = by_quad(row, laplace_density, laplace_below, -40.0)
    np.testing.assert_allclose(laplace_chances(row[None])[0], expected, atol=1e-8)


@pytest.mark.parametrize("row", np.abs(ROWS))
def test_chances_with_the_noise_inside(row):
    expected = by_quad(row, folded_density, folded_below, 0.0)
    np.testing.assert_allclose(inside_chances(row[None])[0], expected, atol=1e-8)


@pytest.mark.parametrize("gap", [0.0, 0.1, 1.0, 5.0, 50.0])
def test_two_scores_have_a_closed_form(gap):
    """P(the lower one wins) = P(difference of two Laplace > gap)."""
    found = laplace_chances(np.array([[0.0, gap]]))[0]
    np.testing.assert_allclose(
        found[0], np.exp(-gap) * (2 + gap) / 4, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("chances", [laplace_chances, inside_chances])
def test_somebody_wins(chances):
    rng = np.random.default_rng(0)
    rows = rng.exponential(3.0, (50, 6))
    np.testing.assert_allclose(chances(rows).sum(axis=1), 1.0, atol=1e-7)


def test_an_excluded_score_never_wins():
    found = laplace_chances(np.array([[0.3, -np.inf, 0.0]]))[0]
    pair = laplace_chances(np.array([[0.3, 0.0]]))[0]
    np.testing.assert_allclose(found, [pair[0], 0.0, pair[1]], atol=1e-7)


def test_draws_win_as_often_as_they_should():
    rng = np.random.default_rng(1)
    noise = rng.laplace(size=(200_000, 4))
    for row in ROWS:
        shares = np.bincount((row + noise).argmax(axis=1), minlength=4) / 200_000
        np.testing.assert_allclose(laplace_chances(row[None])[0], shares, atol=0.005)
        inside = np.abs(np.abs(row) + noise).argmax(axis=1)
        shares = np.bincount(inside, minlength=4) / 200_000
        found = inside_chances(np.abs(row)[None])[0]
        np.testing.assert_allclose(found, shares, atol=0.005)
