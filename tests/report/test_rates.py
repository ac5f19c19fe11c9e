"""Test claims on rates: slopes of excess risk, ratios of bounds, noise."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from dp_erm_bench.errors import UsageError
from dp_erm_bench.papers.claims import mean_bound
from dp_erm_bench.problems.erm.build import erm_from_arrays
from dp_erm_bench.report.captions import caption_of
from dp_erm_bench.report.claims.judge import evaluate_claims
from dp_erm_bench.report.curves import Missing
from dp_erm_bench.report.draw import bands_of_lines, chart_of_lines, drawn_shape
from dp_erm_bench.report.figure import look_up_lines
from dp_erm_bench.report.layout import Sheet, draw_sheet
from dp_erm_bench.report.lines import slopes_in_words
from dp_erm_bench.report.scaling import (
    Scaling,
    finals_along,
    log_slope,
    norm_quotient,
    quotients_of,
    scaling_of_line,
)
from dp_erm_bench.report.style import house_style, style_of
from dp_erm_bench.results.statistics import ZERO
from tests.loops import each
from tests.report.papers import mangold2022, mangold2023

X = np.array([50.0, 100.0, 400.0, 3000.0])
LINE = "DP-GCD tight"
NOISE = mangold2023.figure("noise").cells[0].source_of_lines


def power_rows(rows, exponent, axis="p", **more):
    """Rows of a line whose final excess risk is a power of the axis."""
    found = []
    for x in X:
        at = {"n": int(x)} if axis == "n" else {"p": int(x)}
        at = {"epsilon": float(x)} if axis == "epsilon" else at
        # The factory's optimum is .5: an error of e is an excess risk of e / 2.
        end = 2e-3 * x**exponent
        panel = {"panel": f"theory_{axis}", "line": LINE, "end": end, **at}
        for row in rows(**{"spread": 0.0, **panel, **more}):
            found.append({**row, "trial": f"{row['trial']}/{x}"})
    return found


def constant(values, zeros=()):
    ends = tuple(np.array([value, value]) for value in values)
    beside = {ZERO: np.asarray(zeros, float)} if len(zeros) else {}
    return Scaling(X, ends, beside=beside)


@each("axis", ["n", "p", "epsilon"])
@each("exponent", [-2.0, -2 / 3, 0.0, 0.5])
def test_slope_is_the_exponent(rows, axis, exponent):
    table = pd.DataFrame(power_rows(rows, exponent, axis))
    found = scaling_of_line(table, f"theory_{axis}", LINE, axis)
    np.testing.assert_array_equal(found.x, X)
    np.testing.assert_allclose(found.mean, 1e-3 * X**exponent, rtol=1e-5)
    assert found.slope == pytest.approx(exponent, abs=1e-6)
    np.testing.assert_allclose(found.beside[ZERO], 0.3)


@pytest.mark.parametrize(
    ("x", "values"),
    [([1.0], [2.0]), ([1.0, 2.0], [1.0, math.inf]), ([1.0, 2.0], [1.0, 0.0])],
)
def test_slope_of_what_has_none(x, values):
    assert math.isnan(log_slope(np.array(x), np.array(values)))


def test_statistics_of_a_scaling():
    found = Scaling(np.array([1.0, 2.0]), (np.array([3.0, 1.0, 8.0]), np.array([2.0])))
    assert found.mean.tolist() == [4.0, 2.0]
    bands = bands_of_lines({"x": found})
    assert bands["middle"].tolist() == [3.0, 2.0]
    assert bands["low"].tolist() == [1.0, 2.0]
    assert bands["high"].tolist() == [8.0, 2.0]


@pytest.mark.parametrize(
    ("ends", "median"),
    [
        ([1.0, 3.0], 2.0),
        ([8.0, 1.0, 4.0, 2.0], 3.0),
        ([1.0, math.inf], math.inf),
        ([1.0, 2.0, 4.0, math.nan], 3.0),
    ],
)
def test_median_of_an_even_number_is_the_mean_of_the_middle_two(axes, ends, median):
    rate = Scaling(np.array([1.0, 2.0]), (np.array(ends), np.array([5.0, 5.0])))
    assert bands_of_lines({LINE: rate})["middle"].tolist() == [median, 5.0]
    ax = axes({LINE: rate}, shapes={"flat": 0})
    drawn = {line.get_label(): line.get_ydata() for line in ax.lines}
    # What a log axis cannot show is a gap.
    shown = median if math.isfinite(median) else math.nan
    np.testing.assert_array_equal(drawn[style_of(LINE).label], [shown, 5.0])
    np.testing.assert_array_equal(drawn["flat"][0], shown)


def test_rates_and_quotients_draw_the_median_of_even_runs(rows, unbalanced, axes):
    """The two figures that are made of a `Scaling`: along an axis, and by quotient."""
    wide = pd.DataFrame(power_rows(rows, -1.0, spread=0.5))
    rate = scaling_of_line(wide, "theory_p", LINE, "p")
    middle = [np.median(ends) for ends in rate.ends]
    assert all(len(ends) == 4 for ends in rate.ends)
    found = bands_of_lines({LINE: rate})["middle"]
    np.testing.assert_allclose(found, middle, rtol=1e-12)
    table = unbalanced.copy()
    last = table["iteration"] == table["iteration"].max()
    odd = last & (table["seed"] % 2 == 1)
    table.loc[odd, "relative_error"] *= 3
    line = "DP-CD cyclic"
    found = finals_along(table, {"blocks": BLOCKS}, "unbalanced", "quotient", line)
    ax = axes({line: found})
    drawn = next(one for one in ax.lines if one.get_label() == style_of(line).label)
    np.testing.assert_allclose(drawn.get_ydata(), [0.04, 0.04])


def family(rows, places):
    """Rows of panels `size_<k>`, one for each value of p; and their configuration."""
    parts = [
        {**row, "panel": f"size_{k}", "trial": f"{k}/{row['trial']}"}
        for k, x in enumerate(places)
        for row in power_rows(rows, -1.0)
        if row["p"] == x
    ]
    blocks = [{"panel": panel} for panel in sorted({row["panel"] for row in parts})]
    return pd.DataFrame(parts), {"blocks": blocks}


def test_a_family_has_a_point_for_each_of_its_panels(rows):
    table, config = family(rows, X)
    found = finals_along(table, config, "size", "p", LINE)
    np.testing.assert_array_equal(found.x, X)
    assert found.slope == pytest.approx(-1.0, abs=1e-6)
    strengths = table.assign(strength=table["p"] / 1e4)
    found = finals_along(strengths, config, "size", "strength", LINE)
    np.testing.assert_allclose(found.x, np.array(X) / 1e4)


def test_panels_that_are_no_points_of_a_family_are_missing(rows):
    table, config = family(rows, [50.0, 100.0])
    wide = table.assign(panel="size_0")
    with pytest.raises(Missing, match="size_0 has several p: it is no point of a fam"):
        finals_along(wide, config, "size", "p", LINE)
    with pytest.raises(Missing, match="size_0 and size_1 have the same p"):
        finals_along(table.assign(p=50), config, "size", "p", LINE)


def test_diverged_run_has_no_slope(rows):
    table = pd.DataFrame(power_rows(rows, -1.0))
    last = (table["iteration"] == table["iteration"].max()) & (table["seed"] == 1)
    table.loc[last, "objective"] = math.nan
    found = scaling_of_line(table, "theory_p", LINE, "p")
    assert np.isinf(found.ends[-1]).any()
    assert math.isnan(found.slope)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"line": "DP-SVRG"}, "has no report runs"),
        ({"optimum": math.nan}, "no certified optimum"),
        ({"status": "error", "message": "too large"}, "error: too large"),
        ({"phase": "tune"}, "no report runs"),
    ],
)
def test_missing_runs_say_why(rows, change, reason):
    table = pd.DataFrame(power_rows(rows, -1.0)).assign(**change)
    with pytest.raises(Missing, match=reason):
        scaling_of_line(table, "theory_p", LINE, "p")
    rates, missing = look_up_lines(
        [LINE], lambda line: scaling_of_line(table, "theory_p", line, "p")
    )
    assert not rates
    assert reason in missing[LINE]


def claim_on(measure, **more):
    return {
        "profile": "default",
        "paper": "mangold2023",
        "claims": [
            {"id": "rate", "figure": "theory_p", "line": LINE, "axis": "p"}
            | {"statement": "So it is", "measure": measure, "at_most": 0.25, **more}
        ],
    }


@pytest.mark.parametrize(
    ("exponent", "verdict"), [(0.2, "holds"), (0.3, "fails"), (-1.0, "holds")]
)
def test_claim_on_a_slope(rows, exponent, verdict):
    table = pd.DataFrame(power_rows(rows, exponent))
    row = evaluate_claims(table, claim_on("slope")).iloc[0]
    assert row["value"] == pytest.approx(exponent)
    assert row["verdict"] == verdict


def test_claim_on_the_difference_of_slopes(rows):
    other = power_rows(rows, 1.0)
    table = pd.DataFrame(
        power_rows(rows, 0.25) + [{**row, "line": "DP-CD cyclic"} for row in other]
    )
    table["trial"] += table["line"]
    row = evaluate_claims(table, claim_on("slope_beyond", other="DP-CD cyclic")).iloc[0]
    assert row["value"] == pytest.approx(0.75)
    assert row["measured"] == f"slope against p, DP-CD cyclic less {LINE}; 4 runs"


def test_selection_is_flat_and_the_gradient_grows_like_a_root():
    features = np.array([20, 80, 320])
    for line, expected in zip(NOISE.releases, (0.0, 0.0, 0.5, 0.5), strict=True):
        found = NOISE.along(line, [int(p) for p in features])
        assert log_slope(features.astype(float), found) == pytest.approx(
            expected, abs=1e-9
        )


def test_noise_is_that_of_the_calibrated_gaussians():
    # T Gaussians are sqrt(T) / z - GDP: z of T is sqrt(T) z of one.
    from dp_erm_bench.accounting.bounds import mu_for

    mu = mu_for(NOISE.epsilon, NOISE.n**-2.0)
    p = 25
    expected = math.sqrt(NOISE.n_iter) / mu * 2 * math.sqrt(p) / NOISE.n
    for line in ("whole gradient", "DP-CD coordinate"):
        assert NOISE.along(line, [p])[0] == pytest.approx(expected, rel=1e-4)


def test_selection_needs_less_noise_than_the_gradient_of_many_features():
    few, many = (NOISE.along("whole gradient", [p])[0] for p in (1, 500))
    selected = NOISE.along("DP-GCD selection", [500])[0]
    assert few < selected < many


def problem(scale, n=4000, p=8):
    rng = np.random.default_rng(0)
    data = rng.choice([-1.0, 1.0], (n, p))
    weights = np.r_[0.0, np.ones(p - 1)]
    labels = np.where(data @ weights + 2 * rng.standard_normal(n) > 0, 1.0, -1.0)
    data[:, 0] *= scale
    return erm_from_arrays(data, labels, loss="logistic", bounds=None)


def test_balanced_quotient_is_the_euclidean_one():
    # All M_j equal, all norms sqrt(p): norm2(L) / Lambda = 1.
    assert norm_quotient(problem(1.0)) == pytest.approx(1.0, abs=1e-12)


def test_quotient_falls_like_the_root_of_the_imbalance():
    one, ten, hundred = (norm_quotient(problem(scale)) for scale in (1.0, 10.0, 100.0))
    assert one > ten > hundred
    # R_M hardly feels column 0, Lambda is its scale.
    assert ten / hundred == pytest.approx(10, rel=0.15)


BLOCKS = [
    {"panel": f"unbalanced_{ratio}", "line": line}
    | {"dataset": {"name": "unbalanced", "n": 400, "ratio": ratio}}
    for ratio in (1, 400)
    for line in ("DP-CD cyclic", "DP-SGD tight batch 100")
]


@pytest.fixture
def unbalanced(tabulate):
    """Table of two panels: DP-SGD is 16 times worse where the data are unbalanced."""
    ends = {1: (0.02, 0.01), 400: (0.02, 0.16)}
    lines = ("DP-CD cyclic", "DP-SGD tight batch 100")
    return tabulate(
        *(
            {"panel": f"unbalanced_{ratio}", "line": line, "end": end, "spread": 0.0}
            for ratio, both in ends.items()
            for line, end in zip(lines, both, strict=True)
        )
    )


def test_errors_are_sorted_by_the_quotient(unbalanced):
    config = {"blocks": BLOCKS}
    found = quotients_of(config, "unbalanced")
    assert found["unbalanced_400"] < found["unbalanced_1"]
    line = "DP-SGD tight batch 100"
    rate = finals_along(unbalanced, config, "unbalanced", "quotient", line)
    assert rate.x.tolist() == sorted(found.values())
    np.testing.assert_allclose(rate.mean, [0.16, 0.01])
    np.testing.assert_allclose(rate.beside[ZERO], 0.6)
    assert rate.slope < -0.5


def test_no_unbalanced_panel_is_not_run(unbalanced):
    with pytest.raises(Missing, match="no panel unbalanced"):
        finals_along(unbalanced, {}, "unbalanced", "quotient", "DP-CD cyclic")


def test_figures_of_the_theory(rows, unbalanced, tmp_path):
    written = mangold2022.draw(unbalanced, tmp_path / "a", {"blocks": BLOCKS})
    assert tmp_path / "a" / "mangold2022_unbalanced.png" in written
    table = pd.DataFrame(
        [row for axis in ("n", "p") for row in power_rows(rows, -0.5, axis)]
    )
    written = mangold2023.draw(table, tmp_path / "b", {"profile": "smoke"})
    stems = {path.stem for path in written if path.suffix == ".png"}
    assert stems == {"mangold2023_theory", "mangold2023_noise"}


@pytest.fixture
def axes():
    """Draw one chart of lines and return its axes."""
    import matplotlib.pyplot as plt

    def build(lines, **more):
        with house_style():
            figure = plt.figure()
            cell = chart_of_lines("title", "p", lines, **more)
            draw_sheet(figure, Sheet([cell.__call__], "x", "quantity"))
            figure.canvas.draw()
        return figure.axes[0]

    yield build
    plt.close("all")


def test_shapes_go_through_the_anchor(axes):
    rates = {"DP-CD cyclic": constant([4, 3, 2, 1]), LINE: constant([8, 4, 2, 1])}
    ax = axes(rates, shapes={"one over x": -1}, anchor=LINE)
    drawn = {line.get_label(): line for line in ax.lines}
    along, values = drawn["one over x"].get_data()
    np.testing.assert_allclose(along * values, 50 * 8)
    # It may lie on the line: it is above it, and longer.
    assert along[0] < 50 and along[-1] > 3000
    assert drawn["one over x"].zorder > drawn[style_of(LINE).label].zorder
    assert log_slope(along, values) == pytest.approx(-1)
    assert style_of(LINE).label in drawn
    assert ax.get_ylabel() == "quantity"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_a_shape_with_a_value_stands_where_it_is(axes):
    lower = {"lower bound": {"power": "-1/2", "times": 3}}
    ax = axes({LINE: constant([8, 4, 2, 1])}, shapes=lower)
    drawn = {line.get_label(): line for line in ax.lines}
    along, values = drawn["lower bound"].get_data()
    assert values == pytest.approx(3 / np.sqrt(along))


@pytest.mark.parametrize(
    "shape", [{"power": -1}, *({"power": -1, "times": one} for one in (0, True, "3"))]
)
def test_a_shape_whose_value_is_no_number_above_0_is_refused(shape):
    with pytest.raises(UsageError, match="must be power and times, a number above 0"):
        drawn_shape(shape, np.ones(1), (1.0, 1.0))


def test_level_of_doing_nothing_is_drawn_where_it_is_known(axes):
    for zeros, expected in ((X, True), ((), False), ([1e-3] * 4, True)):
        ax = axes({LINE: constant([1, 2, 3, 4], zeros)})
        drawn = {line.get_label(): line.get_ydata() for line in ax.lines}
        assert ("w = 0" in drawn) == expected
        if expected:
            low, high = ax.get_ylim()
            # However far it is, all of it is seen.
            assert low < min(drawn["w = 0"]) and max(drawn["w = 0"]) < high


def test_lines_on_problems_of_their_own_have_each_its_own_w_0(axes):
    names = ["DP-CD cyclic", "DP-CD uniform", LINE]
    zeros = [[9.0] * 4, [9.0] * 4, [6.0, 5.0, 4.0, 3.0]]
    pairs = zip(names, zeros, strict=True)
    rates = {k: constant([1, 2, 3, 4], own) for k, own in pairs}
    ax = axes(rates)
    own = [line for line in ax.lines if line.get_label() == "_w = 0"]
    assert [line.get_color() for line in own] == [
        style_of(name).colour for name in names
    ]
    assert [list(line.get_ydata()) for line in own] == zeros
    # Of those that lie on each other the dots alternate.
    dots = [line._unscaled_dash_pattern for line in own]
    assert dots[0] != dots[1] and dots[0][1] == dots[1][1]
    labels = [line.get_label() for line in ax.lines]
    assert labels.count("w = 0, each line's own") == 1 and "w = 0" not in labels


def test_held_out_measures_stand_beside_the_models_too(rows):
    table = pd.DataFrame(power_rows(rows, -0.5, "n"))
    table["test_risk"] = table["objective"]
    models = {"base_rate": {"test_risk": 0.6}, "optimum": {"test_risk": 0.2}}
    table["references"] = json.dumps(models)
    found = scaling_of_line(table, "theory_n", LINE, "n", "test_risk").beside
    assert set(found) == {ZERO, "base rate (not private)", "optimum (not private)"}
    assert found["optimum (not private)"].tolist() == [0.2] * 4
    assert set(scaling_of_line(table, "theory_n", LINE, "n").beside) == {ZERO}


def test_shapes_of_all_cells_of_a_sheet_are_told_apart():
    line = {LINE: constant([1, 2, 3, 4])}
    labels = ("one", "two", "three")
    cells = [chart_of_lines("t", "n", line, shapes={label: -1}) for label in labels]
    figure = Figure()
    draw_sheet(figure, Sheet(cells, ""))
    dashes = {
        str(one._unscaled_dash_pattern)
        for ax in figure.axes
        for one in ax.lines
        if one.get_label() in labels
    }
    assert len(dashes) == 3


def test_diverged_point_does_not_hide_the_others(axes):
    ax = axes({LINE: constant([1.0, 2.0, 3.0, math.inf])})
    low, high = ax.get_ylim()
    assert 0.5 < low < 1 < 3 < high < 100


def test_slopes_in_words():
    rates = {LINE: constant(X**0.5), "DP-CD cyclic": constant(X**-1.0)}
    assert slopes_in_words("p", rates) == (
        "slopes of means against p: DP-GCD, tight noise 0.50; DP-CD, cyclic -1.00"
    )
    assert slopes_in_words("p", {}) == ""


def test_the_caption_of_lines_names_the_runs(tabulate):
    lines = [{"panel": "theory_n", "n": n, "dataset_seed": n} for n in (100, 200)]
    table = tabulate(*lines)
    said = []
    for runs in ("", table["n"].astype(str) + "-here-1"):
        found = scaling_of_line(table.assign(run=runs), "theory_n", "DP-CD cyclic", "n")
        chart = chart_of_lines("t", "n", {"DP-CD cyclic": found})
        said.append(caption_of([chart], about="About.").splitlines())
    unnamed, named = said
    assert named[:-1] == unnamed
    runs = [f"{n}-here-1 (commit unknown)" for n in (200, 100)]
    assert named[-1] == f"Computed by runs/{', '.join(runs)}."


def judged_rows(rows, exponent, sizes=(0.5, 1.5, 1.0)):
    """Rows whose excess risk is a power of p, times a size for each seed."""
    found = power_rows(rows, exponent, n_seeds=len(sizes))
    for row in found:
        row["excess_risk"] = sizes[row["seed"]] * row["p"] ** exponent
    return found


def test_a_quantity_has_its_slope_with_an_interval(rows):
    found = scaling_of_line(
        pd.DataFrame(judged_rows(rows, -0.5)), "theory_p", LINE, "p", "excess_risk"
    )
    assert found.slope == pytest.approx(-0.5, abs=1e-9)
    low, high = found.interval
    assert low < -0.5 < high and high - low < 1.0
    same = pd.DataFrame(judged_rows(rows, -0.5, (1.0, 1.0, 1.0)))
    sure = scaling_of_line(same, "theory_p", LINE, "p", "excess_risk").interval
    assert sure == pytest.approx((-0.5, -0.5))


def test_a_claim_on_a_quantity_tells_its_interval(rows):
    table = pd.DataFrame(judged_rows(rows, -0.5))
    row = evaluate_claims(table, claim_on("slope", quantity="excess_risk")).iloc[0]
    low, high = scaling_of_line(table, "theory_p", LINE, "p", "excess_risk").interval
    assert row["value"] == pytest.approx(-0.5)
    assert row["interval"] == f"[{low:.6g}, {high:.6g}]" and row["verdict"] == "holds"
    without = table.drop(columns="excess_risk")
    row = evaluate_claims(without, claim_on("slope", quantity="excess_risk")).iloc[0]
    assert row["verdict"].startswith("not run") and "n_fresh" in row["verdict"]


@pytest.mark.parametrize(
    ("n", "p", "delta", "expected"),
    [
        # Few coordinates: the norm of the noise; many: its largest entry.
        (10**6, 64, 1e-8, 2e-6 / 0.196067 * 8.0),
        (1000, 10**5, 1e-8, (2 * 8**0.5 * 2e-3 / 0.196067 * 4.940831) ** 0.5),
        (1000, 10**5, 0.0, (2 * 8**0.5 * 2e-3 * 8**0.5 * 12.512925) ** 0.5),
        (10**6, 64, 0.0, 2e-6 * 8**0.5 * 128**0.5),
    ],
)
def test_bounds_of_means_are_those_of_the_formulas(n, p, delta, expected):
    row = {"n": n, "p": p, "epsilon": 1.0, "delta": delta}
    found = mean_bound(row, nonzeros=8)
    assert found == pytest.approx(expected, rel=1e-5)
    # Of many draws the mean of each part is below it.
    rng, scale = np.random.default_rng(0), 2.0 / (n * 0.196066)
    if delta:
        draws = rng.normal(0.0, scale, (50, p))
    else:
        draws = rng.laplace(0.0, 2.0 * 8**0.5 / n, (50, p))
    norms = np.linalg.norm(draws, axis=1)
    largest = np.sqrt(2.0 * 8**0.5 * np.abs(draws).max(axis=1))
    drawn = np.minimum(norms, largest)
    error = drawn.std() / drawn.size**0.5
    assert drawn.mean() - 3.0 * error < found < 1.1 * drawn.mean()


def test_an_axis_may_be_a_key_of_the_dataset(rows):
    """One that has its yaml's value is not among the options of the table."""
    table = pd.DataFrame(power_rows(rows, 0.25))
    given = {p: "{}" if p == X[0] else f'{{"nonzeros": {p}}}' for p in set(table["p"])}
    options = table["p"].map(given)
    table = table.assign(dataset="hard_mean", dataset_options=options)
    found = scaling_of_line(table, "theory_p", LINE, "nonzeros")
    np.testing.assert_array_equal(found.x, [8, *X[1:]])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        # The factory starts at an excess of .3; ends are 1e-3 n^-.5.
        ({"measure": "excess_lost", "line": LINE}, 1 - 1e-3 / 3000**0.5 / 0.3),
        ({"measure": "ratio_at_start", "under": LINE, "over": LINE}, 1.0),
        ({"measure": "average_at_end", "line": LINE, "quantity": "support_f1"}, 0.85),
    ],
)
def test_measures_at_the_ends_of_an_axis(rows, keys, expected):
    claim = {"id": "x", "figure": "theory_n", "axis": "n", "statement": "x"}
    table = pd.DataFrame(power_rows(rows, -0.5, "n"))
    # At the end of the axis .7, .8, .9, 1 of the seeds, before it less.
    table["support_f1"] = 0.7 + 0.1 * table["seed"] - 0.5 * (table["n"] < max(X))
    config = {"claims": [{**claim, **keys, "at_least": 0.0}], "profile": "default"}
    (value,) = evaluate_claims(table, config)["value"]
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("start", [0.0, 1.0, math.nan])
def test_a_score_that_has_no_baseline_is_that_of_the_first_iterate(rows, start):
    """A run that begins at 1 meets at least .6; one without a value meets nothing."""
    table = pd.DataFrame(power_rows(rows, -0.5, "n"))
    table["support_f1"] = np.where(table["iteration"] == 0, start, 0.9)
    more = {"figure": "theory_n", "axis": "n", "quantity": "support_f1"}
    more |= {"good": LINE, "statistic": "median", "at_least": 0.6}
    config = claim_on("average_at_end", **more)
    del config["claims"][0]["at_most"]
    row = evaluate_claims(table, config).iloc[0]
    met = f"vacuous (w = 0 in place of {LINE} would meet it, too)"
    assert row["verdict"] == (met if start == 1.0 else "holds")
    assert row["standing"] == ("" if math.isnan(start) else f"{start:g}")
