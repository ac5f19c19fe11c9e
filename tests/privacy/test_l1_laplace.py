"""Test that Laplace noise on a vector is as private as on one number."""

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.accounting.bounds import default_orders
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.releases.base import Query, make_mechanisms
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.l1_laplace import L1Laplace
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.trust.recount import listen_to_run, recount
from dp_erm_bench.trust.replay import Exchange, Log, compare_logs

Z = 0.8
SPLITS = [(1.0,), (0.5, 0.5), (0.9, 0.1), (0.25, 0.25, 0.5), (0.05,) * 20]


def divergence(shift, order):
    """D_order(Lap(0, Z) || Lap(shift, Z)) by quadrature."""
    x = np.linspace(-60.0, 60.0, 400_001)
    p, q = stats.laplace(0.0, Z).logpdf(x), stats.laplace(shift, Z).logpdf(x)
    return np.log(np.trapezoid(np.exp(order * p + (1 - order) * q), x)) / (order - 1)


@pytest.mark.parametrize("split", SPLITS)
def test_moving_several_entries_tells_no_more_than_moving_one(split):
    law = L1Laplace("r", 1.0, 1).law()
    for order in (1.5, 4.0, 12.0):
        found = float(law.rdp(Z, np.array([order]))[0])
        whole = sum(divergence(shift, order) for shift in split)
        assert whole <= found * (1 + 1e-6)
        if len(split) == 1:
            assert whole == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize("split", SPLITS[1:4])
def test_no_test_tells_several_entries_apart_better_than_one(split):
    """Profiles on a grid of outcomes, of products and of the number."""
    grid = np.arange(-30.0, 30.0, 0.01)
    cells = np.append(grid, np.inf)

    def losses(shift):
        p, q = (np.diff(stats.laplace(m, Z).cdf(cells)) for m in (0.0, shift))
        loss = (np.abs(grid + 0.005 - shift) - np.abs(grid + 0.005)) / Z
        bins = np.round(loss / 0.01).astype(int)
        masses = np.bincount(bins - bins.min(), p)
        assert q.sum() <= 1.0
        return bins.min(), masses

    low, whole = 0, np.ones(1)
    for shift in split:
        least, masses = losses(shift)
        low, whole = low + least, np.convolve(whole, masses)
    values = 0.01 * (low + np.arange(whole.size))
    single = stats.laplace(0.0, Z)
    for epsilon in (0.0, 0.3, 0.8, 1.2):
        product = (whole * np.maximum(-np.expm1(epsilon - values), 0.0)).sum()
        turn = (1.0 - epsilon * Z) / 2  # below it the loss of the number is larger
        alone = single.cdf(turn)
        alone -= np.exp(epsilon) * stats.laplace(1.0, Z).cdf(turn)
        assert product <= alone + 2e-3
        if epsilon == 0.3:
            assert product < 0.95 * alone


def test_it_is_accounted_as_one_number():
    vector, number = L1Laplace("r", 3.0, 5, 2.0), Laplace("r", 7.0, 5, 2.0)
    assert vector.law() == number.law()
    orders = default_orders()
    np.testing.assert_array_equal(
        vector.law().rdp(Z, orders), number.law().rdp(Z, orders)
    )


def test_noise_has_one_scale_and_the_law():
    release = L1Laplace("r", 0.5, 1, 3.0)
    made = make_mechanisms([release], Z, [str(k) for k in range(500)])["r"]
    noise = made(np.ones((500, 6))) - 1.0
    assert made.scale.tolist() == [[Z * 3.0 * 0.5]] * 500
    assert stats.kstest(noise.ravel() / 1.2, stats.laplace.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(noise.T) - np.eye(6)).max() < 0.25


@pytest.mark.parametrize(
    ("delta", "others"), [(0.0, ()), (1e-6, ()), (1e-6, (Gaussian("g", 1.0, 3),))]
)
def test_a_run_is_recounted(delta, others):
    releases = [L1Laplace("r", 2.0, 4), *others]
    laws = tuple(release.law() for release in releases)
    calibration = calibrate(laws, Budget(1.0, delta))
    for spoil in (False, True):
        mechanisms = make_mechanisms(releases, calibration.z, ["a", "b"])
        if spoil:
            mechanisms["r"].scale *= 0.5
        heard = listen_to_run(mechanisms)
        for _ in range(4):
            mechanisms["r"](np.zeros((2, 5)))
        for _ in range(3 if others else 0):
            mechanisms["g"](np.zeros((2, 5)))
        found = recount(mechanisms, calibration, witnesses=heard)
        assert bool(found.complaint(calibration)) is spoil
        assert 0.0 < found.least <= found.epsilon * (1 + 1e-4)


def test_replays_measure_it_in_the_l1_norm():
    release = L1Laplace("r", 1.0, 1)
    mechanism = make_mechanisms([release], 0.0, ["a"])["r"]
    logs = []
    for value in ([[0.0, 0.0, 0.0]], [[0.5, -0.4, 0.3]]):
        log, asked = Log(), []
        mechanism.intercept = lambda query, publish, kept=asked: kept.append(query)
        mechanism(np.array(value))
        log.exchanges.append(Exchange(asked[0], None))
        logs.append(log)
    assert isinstance(asked[0], Query) and asked[0].order == 1.0
    assert compare_logs(*logs).ratios["r"] == pytest.approx(1.2)


def test_no_share_is_taken_unless_it_is_asked_for():
    with pytest.raises(ValueError, match="takes no share"):
        L1Laplace("r", 1.0, 1).multiplier(1.0)
