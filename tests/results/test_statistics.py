import math

import numpy as np
import pytest

from dp_erm_bench.results import statistics
from dp_erm_bench.results.statistics import (
    LOSES,
    TIES,
    WINS,
    centre_of,
    estimate_of_largest,
    estimate_of_quantiles,
    estimate_sum,
    likely_medians,
    places_of_lines,
    quantile,
)
from tests.loops import each


def median_interval(values):
    return centre_of(values)[1:]


def test_quantiles_are_numpys_and_the_interval_lies_among_them():
    values = np.random.default_rng(3).exponential(size=25)
    wanted = np.quantile(values, levels := [0.0, 0.1, 0.5, 0.9, 1.0])
    assert [float(quantile(values, q)) for q in levels] == pytest.approx(wanted)
    ends = median_interval(values)
    assert wanted[1] <= ends[0] <= wanted[2] <= ends[1] <= wanted[3]


def test_diverged_runs_are_at_the_top():
    values = np.array([*range(9), math.nan, math.nan])
    assert float(quantile(values, 0.5)) == 5.0
    assert quantile(values, 0.9) == quantile(values, 1.0) == math.inf
    assert math.isfinite(quantile(values, 0.1))


def test_all_diverged_is_infinite_and_no_warning():
    lost = np.full(6, math.nan)
    assert quantile(lost, 0.0) == quantile(lost, 0.5) == math.inf
    assert median_interval(lost) == (math.inf, math.inf)


def test_the_same_runs_give_the_same_interval_in_any_order():
    values = np.random.default_rng(4).normal(size=9)
    assert median_interval(values) == median_interval(values[::-1].copy())


def test_the_interval_of_the_median_covers_as_often_as_it_says():
    rng = np.random.default_rng(8)
    ends = [median_interval(rng.normal(size=20)) for _ in range(150)]
    assert 0.88 <= np.mean([low <= 0.0 <= high for low, high in ends]) <= 0.99


def test_more_runs_narrow_the_interval():
    values = np.random.default_rng(1).normal(size=160)
    few, many = (np.ptp(median_interval(values[:k])) for k in (10, 160))
    assert many < few / 2


def test_a_single_run_has_a_median_but_no_interval():
    assert quantile(np.array([0.5]), 0.5) == quantile(np.array([0.5]), 0.1) == 0.5
    assert np.isnan(median_interval(np.array([0.5]))).all()


@pytest.mark.parametrize("n", [6, 8, 20, 41])
@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_either_end_of_the_interval_misses_as_seldom_as_it_may(n, skew):
    normal = np.random.default_rng(n).normal(size=(1500, n))
    ends = [median_interval(one) for one in (np.exp(skew * normal) if skew else normal)]
    low, high = np.transpose(ends)
    truth = 1.0 if skew else 0.0
    # 2.5 % and three deviations of 1500 samples; a bootstrap's misses 4 to 6 % of 6.
    assert (low > truth).mean() < 0.037 and (high < truth).mean() < 0.037
    assert (low > truth).mean() + (high < truth).mean() > 0.01


def test_the_interval_is_that_of_order_statistics():
    # Of 20 values at most 5 lie below the median with probability .0207, 6 with .0577.
    low, high = median_interval(np.arange(1.0, 21.0))
    part = (0.025 - 0.0206947) / (0.0576591 - 0.0206947)
    assert low == pytest.approx(6.0 + part, abs=0.02)
    assert high == pytest.approx(15.0 - part, abs=0.02)


def test_fewer_than_six_runs_have_no_interval():
    assert all(map(math.isnan, median_interval(np.arange(5.0))))
    # 1 / 64 of the draws are the end itself, and 6 / 64 lie beside it.
    low, high = median_interval(np.arange(6.0))
    assert low == pytest.approx((0.025 - 1 / 64) * 64 / 6, abs=0.01)
    assert high == pytest.approx(5.0 - low, abs=0.01)


def test_samples_that_are_not_paired_share_no_draw():
    values = np.arange(99.0)
    first, second = (likely_medians(values, sample) for sample in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
    assert np.array_equal(first, likely_medians(values))


def test_no_likely_median_is_beyond_all_values():
    values = np.random.default_rng(0).exponential(size=7)
    drawn = likely_medians(values)
    assert values.min() <= drawn.min() < drawn.max() <= values.max()


def test_infinite_values_have_medians():
    drawn = likely_medians(np.array([1.0, 2.0, math.inf, math.inf]))
    assert not np.isnan(drawn).any()
    # All beyond the third value, and half of those between it and the second.
    assert 0.4 < np.isinf(drawn).mean() < 0.6
    assert (
        median_interval(np.array([1.0, 2.0, 3.0, 4.0, *[math.inf] * 3]))[1] == math.inf
    )


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([4.0, 1.0, 2.0, 3.0], 0.5, 2.5),
        ([1.0, math.inf], 0.5, math.inf),
        ([math.inf, math.inf], 0.5, math.inf),
        ([1.0, 2.0, 4.0, math.nan], 0.5, 3.0),
        ([math.nan], 0.0, math.inf),
        ([-math.inf, 3.0], 0.5, -math.inf),
        ([-math.inf, math.inf], 0.5, math.inf),
        ([1.0, 2.0, math.nan], 1.0, math.inf),
    ],
)
def test_lost_runs_are_the_worst_of_a_quantile(values, q, expected):
    assert quantile(values, q) == expected
    assert quantile(np.array([values, values]).T, q).tolist() == [expected] * 2


@pytest.fixture
def quick(monkeypatch):
    """Fewer resamples: what covers with these does with more."""
    monkeypatch.setattr(statistics, "RESAMPLES", 400)


def lognormal(rng, n, spread=0.8):
    """Runs as they are: skewed, some several times the median."""
    return rng.lognormal(0.0, spread, (n, 1))


@each(
    ("n", "sets", "least"),
    [(20, 0, 0.9), (100, 0, 0.92), (3, 0, 0.88), (20, 5, 0.88)],
)
def test_intervals_cover_as_often_as_they_say(n, sets, least):
    """Of a quotient of means; of 3 runs, or of 5 data sets that differ, too."""
    rng, ways = np.random.default_rng(3), np.array([1.0, -1.0])
    covered, below = [], []
    for _ in range(250):
        if sets:
            # Runs of a data set share what it adds: the data sets are the units.
            runs = lognormal(rng, n * sets * 2, 0.3).reshape(sets, n, 2).mean(axis=1)
            parts = [(runs * rng.lognormal(0.0, 0.5, (sets, 2)), ways)]
        else:
            # With the same spread above and below the quotient of the means is 1.
            parts = [(lognormal(rng, n), ways[:1]), (lognormal(rng, n), ways[1:])]
        found = estimate_sum(parts)
        assert found.low <= found.high
        covered.append(found.low <= 0.0 <= found.high)
        below.append(found.high < 0.0)
    assert least <= np.mean(covered) <= 1.0
    assert np.mean(below) <= (1.0 - least) / 2 + 0.03


def test_intervals_of_a_single_mean_keep_their_level_for_skewed_runs(quick):
    """Percentiles of resampled means do not: above the mean they are too short."""
    rng, truth = np.random.default_rng(5), 0.5
    missed, percentile = [], []
    for _ in range(250):
        values = lognormal(rng, 20, 1.0)
        missed.append(estimate_sum([(values, np.ones(1))]).high < truth)
        drawn = values[rng.integers(20, size=(400, 20)), 0].mean(axis=1)
        percentile.append(np.quantile(drawn, 0.975) < math.exp(truth))
    assert np.mean(missed) < 0.1 and np.mean(missed) < np.mean(percentile) - 0.02


def test_intervals_of_quantiles_and_of_the_largest(quick):
    rng = np.random.default_rng(7)
    truth, missed, most = -0.8 * 0.8416, [], []
    for _ in range(200):
        values = [lognormal(rng, 20)[:, 0] for _ in range(3)]
        gap = estimate_of_quantiles([(values[0], 0.2, 1.0), (values[1], 0.8, -1.0)])
        ends = [estimate_of_quantiles([(one, 0.2, 1.0)]) for one in values]
        ratio = estimate_of_quantiles([(values[0], None, 1.0), (values[1], 0.8, -1.0)])
        missed.append([gap.low > 2 * truth, *(one.low > truth for one in ends)])
        missed.append([gap.high < 2 * truth, *(one.high < truth for one in ends)])
        most.append(ratio.low <= 0.32 + truth <= ratio.high)

        def make(share, values=values):
            parts = [[(one[:, None], np.ones(1))] for one in values]
            return [estimate_sum(part, share=share) for part in parts]

        top = estimate_of_largest(make)
        most.append(top.low <= 0.32 <= top.high)
    # Percentiles of resampled quantiles miss .065 of them on one side.
    assert np.mean(missed, axis=0).max() < 0.04 and np.mean(most) > 0.93


def test_intervals_do_not_depend_on_the_order_of_the_runs(quick):
    rng = np.random.default_rng(8)
    values, again = rng.lognormal(size=(12, 2)), rng.permutation(12)
    ways = np.array([1.0, -1.0])
    assert estimate_sum([(values, ways)]) == pytest.approx(
        estimate_sum([(values[again], ways)])
    )
    one = values[:, 0]
    for q in (0.5, None):
        found = estimate_of_quantiles([(one, q, 1.0)])
        assert found == pytest.approx(estimate_of_quantiles([(one[again], q, 1.0)]))


def test_what_the_runs_do_not_tell_has_no_interval():
    one, two = np.ones(1), np.array([[1.0], [math.inf]])
    for values in (two, np.array([[0.3]]), np.array([[-1.0], [0.5]])):
        found = estimate_sum([(values, one)])
        assert (found.low, found.high) == (-math.inf, math.inf)
    few = np.arange(1.0, 6.0)
    assert estimate_of_quantiles([(few, 0.5, 1.0)]).high == math.inf
    more = np.arange(1.0, 7.0)
    assert estimate_of_quantiles([(more, 0.5, 1.0)]).high < math.log(6.1)
    same = estimate_sum([(np.full((2, 1), 3.0), one)])
    assert same.exact and same.point == math.log(3.0)
    # All but two of twenty are equal: a third of the resamples have no error.
    most = np.where(np.arange(20) < 2, 1.0 + 1e-8, 1.0)[:, None]
    found = estimate_sum([(most, one)])
    assert -1e-8 < found.low < found.point < found.high < 1e-8
    # So, too, where they are equal but for rounding, and of a quotient with a quantile.
    near = most * (1.0 + 2.2e-16 * np.arange(20)[:, None])
    assert estimate_sum([(near, one)]).high < 1e-8
    assert math.isfinite(estimate_of_quantiles([(most[:, 0], None, 1.0)]).high)


def test_pairs_are_drawn_together():
    values = np.array([[1.0, 2.0], [10.0, 20.0], [5.0, 10.0], [2.0, 4.0], [9.0, 18.0]])
    found = estimate_sum([(values, np.array([1.0, -1.0]))])
    assert found == pytest.approx((-math.log(2.0),) * 3)
    apart = estimate_sum([(values[:, :1], [1.0]), (values[:, 1:], [-1.0])])
    assert apart.high - apart.low > 0.5


def test_ties_hold_over_a_cell_and_what_is_worse_is_told():
    """Of 13 equal lines of 40 runs all tie in 95 % of cells."""
    rng, cells = np.random.default_rng(1), 60
    told = {}
    for factor in (1.0, 1.5):
        all_tie = last_loses = 0
        for _ in range(cells):
            errors = {line: rng.lognormal(0.0, 0.35, 40) for line in range(13)}
            errors[12] *= factor
            found = places_of_lines(errors, zero=100.0)
            all_tie += all(one.place in (WINS, TIES) for one in found.values())
            last_loses += found[12].place == LOSES
        told[factor] = all_tie, last_loses
    assert told[1.0][0] >= 0.88 * cells
    assert told[1.5][1] >= 0.92 * cells
