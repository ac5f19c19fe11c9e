"""Test the experiment talwar2015: its figures, its noise, and its yaml."""

import functools
import math

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from dp_erm_bench import registry
from dp_erm_bench.accounting.bounds import mu_for
from dp_erm_bench.report.claims.judge import evaluate_claims
from dp_erm_bench.report.draw import chart_of_lines
from dp_erm_bench.report.layout import MAX_PNG_BYTES
from dp_erm_bench.report.scaling import scaling_of_line
from dp_erm_bench.report.style import STYLES
from tests.report.papers import talwar2015

PRINTED = "DP-FW Laplace printed"
LASSO, BALL, ANSWERS = (
    [f for f in talwar2015.figures if getattr(f, "name", "") == name][-1]
    for name in ("lasso", "ball", "answers")
)
NOISE = LASSO.cells[1].source_of_lines
LENGTHS = NOISE.values


@functools.cache
def experiment(profile):
    config = OmegaConf.load(registry.conf_dir() / "experiment" / "talwar2015.yaml")
    config.profile = profile
    return OmegaConf.to_container(config, resolve=True)


def along(rows, asked, values, **more):
    """Rows of every line of a cell, at some values of its axis."""
    found = []
    for place, line in enumerate(asked.lines):
        for x in values:
            at = {asked.x: x, "end": 0.3 * (place + 1) / float(x) ** 0.5}
            label = {"panel": asked.panel, "line": line, "dataset": asked.panel}
            # One answer has two rows, and so has each of these.
            for row in rows(**{**label, **at, **more}):
                if row["iteration"] in (0, 10 * row["p"]):
                    found.append({**row, "trial": f"{row['trial']}/{x}"})
    return found


@pytest.fixture
def table(rows):
    """Every line of every figure."""
    found = along(rows, LASSO.cells[0], (500, 4000))
    found += along(rows, BALL.cells[0], (0.1, 1.0, 10.0))
    found += along(rows, BALL.cells[1], (50, 1000))
    for asked in ANSWERS.cells:
        found += along(rows, asked, (0.01, 0.1, 1.0))
    for line in LASSO.cells[0].lines:
        found += rows(panel="lasso", line=line)
    found = pd.DataFrame(found)
    return found.assign(epsilon_certified=found["epsilon"])


def drawn(table, folder):
    return talwar2015.draw(table, folder, {"profile": "smoke"})


@pytest.fixture
def captions(monkeypatch):
    """The captions of the sheets of rates by their stem; no sheet is written."""
    found = {}
    monkeypatch.setattr("dp_erm_bench.report.panels.save_sheet", lambda *_: [])

    def keep(sheet, path):
        found[path.stem] = sheet.caption
        return []

    monkeypatch.setattr("dp_erm_bench.report.lines.save_sheet", keep)
    return found


@pytest.mark.slow
def test_all_figures_are_drawn(table, tmp_path):
    folder = tmp_path / "figures"
    written = drawn(table, folder)
    stems = {path.stem for path in written if path.suffix == ".png"}
    rates = {f"talwar2015_{name}" for name in ("lasso", "ball", "answers")}
    assert stems == {"talwar2015", "lasso", *rates}
    assert sorted(written) == sorted(folder.iterdir())
    for path in written:
        assert path.suffix != ".png" or 0 < path.stat().st_size <= MAX_PNG_BYTES


def test_nothing_to_draw_is_no_error(table, tmp_path):
    assert drawn(table.iloc[:0], tmp_path) == [tmp_path / "log.txt"]


def test_lines_of_a_cell_do_not_look_alike():
    for names in (*(one.cells[0].lines for one in (LASSO, BALL, ANSWERS)),):
        looks = [(STYLES[one].colour, STYLES[one].marker) for one in names]
        assert len(set(looks)) == len({STYLES[one].label for one in names})
        assert len(set(looks)) == len(names)


def test_captions_say_what_is_not_charged_and_not_proved(table, tmp_path, captions):
    table.loc[table["line"] == PRINTED, "epsilon_certified"] = 1.61
    table.loc[table["panel"] == "a9a", "uncharged"] = "tuning"
    table.loc[table["panel"] == "w8a", "uncharged"] = "standardisation,tuning"
    drawn(table, tmp_path)
    # None of the authors' curves are here.
    assert "Dashed" not in (tmp_path / "log.txt").read_text()
    lasso, answers = (captions[f"talwar2015_{one}"] for one in ("lasso", "answers"))
    assert '1.61 times the nominal one for "Frank-Wolfe, printed (not' in lasso
    assert "The certified epsilon of every line is at most the nominal one." in answers
    # Nine lines are two panels: a and b are of the first data set.
    assert "smoothness (a, b); standardisation (e, f); tuning." in answers


def test_noise_that_nobody_certifies_proves_nothing(table, tmp_path, captions):
    table.loc[table["line"] == "AMP", "epsilon_certified"] = math.nan
    drawn(table, tmp_path)
    assert 'epsilon: none proved for "AMP"; at' in captions["talwar2015_answers"]


def test_slopes_name_their_panel(table, tmp_path, captions):
    drawn(table, tmp_path)
    said = captions["talwar2015_lasso"]
    assert "\na: slopes of means against n: Frank-Wolfe, Gumbel noise -" in said
    assert ". b: slopes of means against steps T: Frank-Wolfe, Gumbel noise 0." in said


def test_the_legend_of_a_single_panel_is_on_the_sheet(table):
    import matplotlib.pyplot as plt

    from dp_erm_bench.report.layout import Sheet, draw_sheet
    from dp_erm_bench.report.panels import look_up
    from dp_erm_bench.report.style import house_style

    (panel,) = talwar2015.PANELS
    found = look_up(table, panel)
    assert list(found.lines) == list(LASSO.cells[0].lines)
    with house_style():
        figure = plt.figure()
        draw_sheet(figure, Sheet(found.along_passes, "A caption."))
        figure.canvas.draw()
    box = figure.legends[0].get_window_extent(figure.canvas.get_renderer())
    assert box.x1 <= figure.bbox.x1
    plt.close(figure)


def skip(table, line, places, message):
    """Turn a line's runs at some epsilons into skipped ones."""
    at = (table["line"] == line) & table["epsilon"].isin(places)
    columns = ["n", "p", "objective", "optimum", "iteration", "epsilon_certified"]
    table.loc[at, columns] = math.nan
    table.loc[at, "status"] = "skipped"
    table.loc[at, "message"] = message
    return table


def test_a_line_starts_where_the_algorithm_serves_and_says_why(
    table, tmp_path, captions
):
    line = "Objective Gaussian no ridge"
    table = skip(table, line, (0.01, 0.1), "the curvature alone costs 0.223")
    drawn(table, tmp_path)
    name = "objective, Gaussian, no ridge at $\\varepsilon$ = "
    assert (
        f"Not drawn: {name}0.01; {name}0.1: skipped: the curvature alone costs 0.223."
        in captions["talwar2015_answers"]
    )


def test_a_line_that_serves_nowhere_is_named(table, tmp_path, captions):
    table = skip(table, "AMP", (0.01, 0.1, 1.0), "no bounds")
    drawn(table, tmp_path)
    assert "Not drawn: AMP: skipped: no bounds." in captions["talwar2015_answers"]


def test_captions_are_about_what_ran(table, tmp_path, captions):
    first = table["line"] == ANSWERS.cells[0].lines[0]
    table.loc[first, ["uncharged", "adjacency"]] = ["", "none"]
    table.loc[first, "status"] = "error"
    drawn(table, tmp_path)
    text = captions["talwar2015_answers"]
    assert "adjacency: replace_one." in text
    assert "Uncharged uses of the data: smoothness; tuning." in text


def test_the_axis_holds_all_points_though_the_first_line_starts_later(table, tmp_path):
    import matplotlib.pyplot as plt

    names = ("Objective Gaussian", "AMP")
    table = skip(table, names[0], (0.01, 0.1), "no")
    rates = {one: scaling_of_line(table, "a9a", one, "epsilon") for one in names}
    assert rates["Objective Gaussian"].x.tolist() == [1.0]
    figure, ax = plt.subplots()
    chart_of_lines("t", "epsilon", rates)(ax)
    assert ax.get_xlim()[0] < 0.01
    plt.close(figure)


@pytest.mark.parametrize(
    ("line", "scale", "proved"),
    [
        ("DP-FW Gumbel", 0.0632621, 1.0),
        ("DP-FW Laplace", 0.116397, 1.0),
        (PRINTED, 0.0743384, 1.61),
    ],
)
def test_scales_and_proofs_at_50_selections(line, scale, proved):
    found = NOISE.noise_of_line(line, 50)
    assert found.scale == pytest.approx(scale, rel=1e-4)
    assert found.epsilon_certified == pytest.approx(proved, abs=5e-3)


def test_printed_scale_is_its_formula_and_proved_for_few_steps_only():
    T = np.array(LENGTHS, float)
    np.testing.assert_allclose(
        NOISE.along(PRINTED), np.sqrt(8 * T * math.log(1e6)) / 1000, rtol=1e-12
    )
    proved = [
        NOISE.noise_of_line(PRINTED, n_iter).epsilon_certified for n_iter in LENGTHS
    ]
    assert proved == sorted(proved)
    assert [value <= 1 for value in proved] == [n_iter <= 5 for n_iter in LENGTHS]


def test_certified_gumbel_noise_is_the_smallest():
    gumbel, laplace, printed = map(NOISE.along, NOISE.releases)
    assert (gumbel <= laplace * (1 + 1e-9)).all()
    assert (gumbel < printed).all()
    # It costs no more than as many Gaussians of the same multiplier, z = sqrt(T) / mu.
    z = np.sqrt(LENGTHS[-1]) / mu_for(1.0, 1e-6)
    assert gumbel[-1] <= 1.2 * z * 2 / 1000


def judged(table, figure, identity, profile="default"):
    """The verdicts on the claims of one name and figure."""
    config = experiment(profile)
    claims = [
        claim
        for claim in config["claims"]
        if claim["id"] == identity and figure in np.atleast_1d(claim["figure"])
    ]
    found = evaluate_claims(table, {**config, "claims": claims})
    return found[found["figure"] == figure]


def test_claims_on_the_noise_hold_or_fail_as_expected():
    empty = pd.DataFrame(columns=["panel", "line", "phase", "status", "message"])
    names = ("printed_noise", "selection_noise")
    noise = pd.concat(judged(empty, "selection", name) for name in names)
    expected = noise["expected"].str.startswith("fails")
    assert expected.sum() == 2
    assert (noise["verdict"] == np.where(expected, "fails", "holds")).all()
    assert noise["value"].iloc[0] == pytest.approx(1.608, abs=1e-3)


def test_claims_on_rates_are_measured_on_the_lines(table):
    # All lines fall like x^(-1/2).
    found = judged(table, "lasso_n", "records")
    assert found["value"].to_numpy() == pytest.approx([-0.5, -0.5], abs=1e-6)
    assert (found["verdict"] == "fails").all()
    found = judged(table, "ball_p", "dimension")
    assert found["value"].to_numpy() == pytest.approx([-0.5, 0, -0.5, 0], abs=1e-6)


def test_claims_on_answers_compare_them_at_epsilon_1(table):
    ends = dict.fromkeys(ANSWERS.cells[0].lines, 0.0)
    for place, line in enumerate(ends):
        ends[line] = 0.3 * (place + 1)
    (ratio,) = judged(table, "a9a", "approximate")["value"]
    assert ratio == pytest.approx(ends["AMP"] / ends["Objective Gaussian"], rel=1e-6)


@pytest.mark.parametrize("profile", ["paper", "default", "smoke"])
def test_problems_are_those_that_the_figures_say(profile):
    for block in experiment(profile)["blocks"]:
        panel, data = block["panel"], block["dataset"]
        if panel in ("breast_cancer", "a9a", "w8a", "printed"):
            assert panel == "printed" or data["name"].endswith(panel)
            assert data["bounds"]["norm"] == 1 and data["clip_to_bounds"]
            assert "loss" not in block
        else:
            assert block["loss"] == "squared"
            assert block["constraint"] == {"name": "l1_ball", "radius": 1}
            assert data["name"] == "quasi_sparse"
        printed = block["line"].endswith("printed")
        assert block["calibration"] == ("paper" if printed else "certified")


def test_axes_of_the_figures():
    full = [0.01, 0.03, 0.1, 0.3, 1, 3, 10]
    for profile, epsilons in (("paper", full), ("default", full), ("smoke", [0.1, 1])):
        values = experiment(profile)["profiles"][profile]
        assert values["epsilon"] == epsilons
        for name in ("lasso_n", "ball_p", "ball_epsilon"):
            assert len(values[name]) >= 3
            steps = np.diff(np.log(values[name]))
            assert steps.max() <= 2.6 * steps.min()
        lines = [b for b in experiment(profile)["blocks"] if "no ridge" in b["line"]]
        assert [block["tune"]["axes"] for block in lines] == [{"ridge": [0]}] * 3
