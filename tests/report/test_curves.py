"""Test look-ups in the results table."""

import math

import numpy as np
import pytest

from dp_erm_bench.report.curves import Missing, line_errors, report_runs
from dp_erm_bench.report.draw import BAND, STATISTICS, bands, bands_of_lines
from dp_erm_bench.report.panels import Panel, decoded_curves, look_up, source_in_words


def test_rows_are_seeds_and_columns_checkpoints(tabulate):
    run = line_errors(tabulate({"n_seeds": 3, "passes": 20.0}), "log1", "DP-CD cyclic")
    assert run.errors.shape == (3, 11)
    np.testing.assert_allclose(run.x, np.linspace(0, 20, 11))
    np.testing.assert_allclose(run.errors[:, 0], 0.6)
    np.testing.assert_allclose(run.errors[:, -1], [0.09, 0.1, 0.11])


def test_order_of_rows_does_not_matter(tabulate):
    table = tabulate({})
    shuffled = table.sample(frac=1, random_state=0)
    one, other = (line_errors(t, "log1", "DP-CD cyclic") for t in (table, shuffled))
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.errors, other.errors)


@pytest.mark.parametrize("n_seeds", [1, 2, 5, 10])
def test_statistics_agree_with_numpy(tabulate, n_seeds):
    run = line_errors(tabulate({"n_seeds": n_seeds}), "log1", "DP-CD cyclic")
    for statistic, of in (("median", np.median), ("mean", np.mean)):
        found = bands_of_lines({"x": run}, statistic)
        np.testing.assert_allclose(found["middle"], of(run.errors, axis=0))
        np.testing.assert_allclose(found["low"], run.errors.min(axis=0))
        np.testing.assert_allclose(found["high"], run.errors.max(axis=0))
        assert {*found["count"]} == {n_seeds}


def test_missing_numbers_are_infinite_errors(tabulate):
    table = tabulate({})
    late = (table["seed"] == 2) & (table["iteration"] >= 500)
    table.loc[late, "relative_error"] = math.nan
    table.loc[table["seed"] == 2, "status"] = "diverged"
    run = line_errors(table, "log1", "DP-CD cyclic")
    assert np.isinf(run.errors).sum() == 6
    low, middle, high = (bands_of_lines({"x": run})[name].iloc[-1] for name in BAND)
    assert math.isinf(high) and math.isfinite(middle) and math.isfinite(low)


def test_rows_left_out_by_a_diverged_run_are_infinite_errors(tabulate):
    table = tabulate({})
    table = table[~((table["seed"] == 2) & (table["iteration"] >= 500))]
    run = line_errors(table, "log1", "DP-CD cyclic")
    assert np.isinf(run.errors).sum() == 6


def test_runs_on_other_data_stay_where_they_ended(tabulate):
    """Each data set is tuned, so that its runs need not be as long as others'."""
    table = tabulate({"n_seeds": 2})
    long = table["seed"] == table["seed"].max()
    table.loc[long, ["iteration", "passes"]] *= 3
    table.loc[long, "dataset_seed"] = 7
    found = line_errors(table, "log1", "DP-CD cyclic")
    ends = table.sort_values("iteration").groupby("trial")["relative_error"].last()
    np.testing.assert_allclose(found.finals().values, ends)
    short = found.errors[(found.errors[:, -2:] == found.errors[:, -1:]).all(axis=1)]
    assert len(short) == 1 and np.isfinite(found.errors).all()
    assert set(table.loc[~long, "relative_error"]) <= set(short[0])


def test_runs_of_other_batches_are_put_together_along_passes(tabulate):
    table = tabulate({"n_seeds": 2})
    long = table["seed"] == table["seed"].max()
    table.loc[long, "iteration"] //= 10
    table.loc[long, "dataset_seed"] = 7
    found = line_errors(table, "log1", "DP-CD cyclic")
    assert (np.diff(found.x) > 0).all()
    own = table[long].sort_values("iteration")
    middle = float(own["passes"].iloc[5])
    at = np.interp(middle, own["passes"], own["relative_error"])
    assert at in found.finals(middle).values


def test_a_run_that_diverged_alone_on_its_data_has_lost_its_end(tabulate):
    table = tabulate({"n_seeds": 2})
    lost = table["seed"] == table["seed"].max()
    table.loc[lost, "dataset_seed"], table.loc[lost, "status"] = 7, "diverged"
    table = table[~(lost & (table["iteration"] >= 500))]
    assert (
        np.isinf(line_errors(table, "log1", "DP-CD cyclic").finals().values).sum() == 1
    )


def test_median_of_diverged_runs_warns_not(tabulate):
    table = tabulate({"n_seeds": 2})
    table.loc[table["iteration"] > 0, "relative_error"] = math.nan
    found = bands_of_lines({"x": line_errors(table, "log1", "DP-CD cyclic")})
    assert math.isinf(found["middle"].iloc[-1])


def test_rows_are_those_of_the_line(tabulate):
    table = tabulate({}, {"line": "DP-SGD authors", "calibration": "authors"})
    rows = line_errors(table, "log1", "DP-SGD authors").rows
    assert {*rows} == {*table}
    assert {*rows["calibration"]} == {"authors"} and {*rows["n"]} == {1000}


def test_bands_of_a_table_are_those_of_its_lines(tabulate):
    """One definition of line and band, whoever asks for it."""
    lines = [{"end": 0.1}, {"line": "DP-SGD authors", "end": 0.3, "n_seeds": 7}]
    table = tabulate(*lines)
    names = ["DP-CD cyclic", "DP-SGD authors"]
    looked = {name: line_errors(table, "log1", name) for name in names}
    for statistic in STATISTICS:
        one = bands(table, "passes", "relative_error", ["line"], statistic)
        if statistic != "interval":
            other = bands_of_lines(looked, statistic)
            for name in ("x", *BAND, "count"):
                np.testing.assert_allclose(one[name], other[name])
        assert [*dict.fromkeys(one["line"])] == names
    ends = table[table["iteration"] == table["iteration"].max()]
    beside = bands(
        ends, "epsilon", "relative_error", ["line"], beside={"F*": "optimum"}
    )
    assert beside["F*"].tolist() == [0.5, 0.5] and beside["count"].tolist() == [4, 7]


def test_epsilon_and_data_seed_select(tabulate):
    table = tabulate(
        {"end": 0.1},
        {"end": 0.2, "epsilon": 10.0},
        {"end": 0.3, "dataset_seed": 11},
    )
    at = line_errors(table, "log1", "DP-CD cyclic", data_seed=10)
    assert at.errors.mean(axis=0)[-1] == pytest.approx(0.1)
    at = line_errors(table, "log1", "DP-CD cyclic", 10.0)
    assert at.errors.mean(axis=0)[-1] == pytest.approx(0.2)
    at = line_errors(table, "log1", "DP-CD cyclic", data_seed=11)
    assert at.errors.mean(axis=0)[-1] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("panel", "line", "epsilon"),
    [
        ("log2", "DP-CD cyclic", 1.0),
        ("log1", "DP-CD uniform", 1.0),
        ("log1", "DP-CD cyclic", 0.1),
    ],
)
def test_what_is_not_there_is_not_run(tabulate, panel, line, epsilon):
    with pytest.raises(Missing, match="no report runs"):
        line_errors(tabulate({}), panel, line, epsilon)


def test_tuning_runs_are_no_report(tabulate):
    table = tabulate({"phase": "tune"})
    with pytest.raises(Missing, match="panel log1 has no report runs"):
        report_runs(table, "log1")


def test_commonest_message_is_the_reason(tabulate):
    table = tabulate(
        {"phase": "tune", "status": "skipped", "message": "no declared bounds"},
        {"phase": "tune", "status": "error", "message": "odd", "n_seeds": 1},
        {"phase": "tune", "dataset_seed": 3, "status": "ok", "message": "chatter"},
    )
    with pytest.raises(Missing, match="no declared bounds"):
        line_errors(table, "log1", "DP-CD cyclic")


def test_absent_message_falls_back(tabulate):
    table = tabulate({"status": "error"})
    table["message"] = None
    with pytest.raises(Missing, match="DP-CD cyclic failed"):
        line_errors(table, "log1", "DP-CD cyclic")


def test_decoded_curves_of_the_authors():
    """Nine curves: three panels with three algorithms, all starting at w = 0."""
    panels = {
        name: decoded_curves(name) for name in ("electricity_raw", "california_raw")
    }
    panels["log1"] = decoded_curves("log1")
    assert sum(map(len, panels.values())) == 9
    start = {"electricity_raw": 0.24475, "california_raw": 3.4018, "log1": 0.63147}
    for panel, found in panels.items():
        for line, band in found.values():
            assert line[0].tolist() == [0.0, start[panel]]
            assert (np.diff(line[:, 0]) > 0).all()
            assert (band[:, 0] == line[:, 0]).all()
            assert (band[:, 1] <= line[:, 1]).all()
            assert (line[:, 1] <= band[:, 2]).all()


def test_last_decoded_points():
    ends = {
        ("electricity_raw", "DP-CD"): (50, 0.0024182),
        ("electricity_raw", "DP-SGD"): (50, 0.15426),
        ("california_raw", "DP-CD"): (50, 0.013936),
        ("california_raw", "DP-SGD"): (50, 0.11069),
        ("log1", "DP-CD"): (5, 0.52667),
        ("log1", "DP-SGD"): (3, 0.62417),
        ("log1", "DP-GCD"): (7, 0.52102),
    }
    for (panel, name), end in ends.items():
        assert tuple(decoded_curves(panel)[name][0][-1]) == end


def test_panels_without_a_decoded_figure_are_empty():
    assert decoded_curves("madelon") == {}
    assert "Mangold" in source_in_words()


def test_supports_stand_beside_the_errors(tabulate):
    table = tabulate({"n_seeds": 3, "p": 7})
    table.loc[table["iteration"] == 0, "nnz"] = 0
    run = line_errors(table, "log1", "DP-CD cyclic")
    assert run.nnz.shape == run.errors.shape
    assert (run.nnz[:, 0] == 0).all() and (run.nnz[:, 1:] == 7).all()


def test_panel_has_an_epsilon_of_its_own(tabulate):
    table = tabulate({"epsilon": 1.0, "end": 0.5}, {"epsilon": 10.0, "end": 0.05})
    for epsilon, end in ((1.0, 0.5), (10.0, 0.05)):
        panel = Panel("log1", "log1", ("DP-CD cyclic",), epsilon=epsilon)
        found = look_up(table, panel).lines["DP-CD cyclic"].finals().values
        assert found.mean() == pytest.approx(end)
