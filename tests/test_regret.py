"""Test how tuners are measured: cells, ratios, lattices, curves of regret."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

from benchmarks import curves, lattice, regret
from benchmarks.cells import Cell, Chosen, Trials, fresh, leaderboard, seeds_of, tuned
from dp_erm_bench.errors import UsageError
from tests.loops import each

NAME = "breast_cancer_l2/gd/1"
BEST = {"n_iter": 20, "step": 8.0}


def chosen(errors):
    return Chosen({}, 10, np.array(errors, float))


@pytest.fixture
def bowl():
    """Return trials whose objective is a bowl with a little noise, and what ran."""
    ran = []

    def run(batch):
        ran.extend(one.key for one in batch)
        return [record(one) for one in batch]

    def record(one):
        point = dict(zip(one.setting.names, one.setting.point, strict=True))
        far = sum(math.log(point[key] / BEST[key]) ** 2 for key in BEST)
        noise = 1e-3 * (one.seed % 7)
        objective = {"objective": [1.0, 0.1 + far + point["clip"] + noise]}
        return {"key": one.key, "status": "ok", "message": "", "trajectory": objective}

    return Trials(run), ran


@pytest.mark.parametrize(
    "name",
    [
        *("", "gd", "breast_cancer_l2/gd", "breast_cancer_l2/gd/x"),
        *("breast_cancer_l2/gd/0", "breast_cancer_l2/frank_wolfe/1", "none/gd/1"),
    ],
)
def test_a_cell_is_a_tuned_line_at_an_epsilon(name):
    with pytest.raises(UsageError, match="PANEL/LINE/EPSILON"):
        Cell.named(name)


@each("name", [*regret.CELLS, *lattice.LATTICES])
def test_usual_cells_exist(name):
    assert str(Cell.named(name)) == name


def test_a_block_is_the_leaderboards_with_seeds_of_its_own():
    cell = Cell.named("dense_l2/gd/0.3")
    blocks = [cell.block(number) for number in range(3)]
    assert {one["budget"]["epsilon"] for one in blocks} == {0.3}
    assert all(one["dataset"] == blocks[0]["dataset"] for one in blocks)
    for one, other in itertools.combinations(blocks, 2):
        assert one["tune"]["axes"] == other["tune"]["axes"]
        assert not {*one["tune"]["seeds"]} & {*other["tune"]["seeds"]}
        assert not {*one["tune"]["report"]} & {*other["tune"]["report"]}
    searched = cell.block(0, search=regret.SEARCH)["tune"]
    assert searched["seeds"][:2] == blocks[0]["tune"]["seeds"]
    # The leaderboard itself stays as it is.
    usual = [one for one in leaderboard() if one["panel"] == "dense_l2"]
    assert all(len(one["budget"]["epsilon"]) == 5 for one in usual)


def test_the_grid_is_tuned_and_its_choice_runs_on_fresh_seeds(bowl):
    trials, ran = bowl
    found = tuned(Cell.named(NAME).block(1), trials)
    assert found.values.items() >= BEST.items()
    assert found.spent == 3 * 3 * 3 * 2
    assert found.errors.shape == (100,)
    assert len(ran) == len(set(ran)) == found.spent + 100
    again = tuned(Cell.named(NAME).block(1), trials)
    assert len(ran) == found.spent + 100
    assert again.median == found.median


def test_a_worker_runs_the_trials_and_the_error_is_relative():
    axes = {"n_iter": [5], "step": [8.0], "clip": [0.3]}
    block = Cell.named(NAME).block(axes=axes, report=[5, 6, 7])
    found = tuned(block, Trials())
    assert found.errors.shape == (3,)
    assert len(set(found.errors)) == 3
    # w = 0 has log(2) = 0.69 where the minimum is about 0.08.
    assert np.all((found.errors > 0.05) & (found.errors < 5))


def test_a_trial_that_ends_with_an_error_ends_it_all():
    def run(batch):
        return [{"key": one.key, "status": "error", "message": "bad"} for one in batch]

    with pytest.raises(UsageError, match="bad"):
        tuned(Cell.named(NAME).block(), Trials(run))


def test_a_ratio_has_an_interval_over_repetitions_and_seeds():
    random = np.random.default_rng(1)
    errors = random.lognormal(sigma=0.3, size=(2, 6, 100))
    half = regret.Compared(
        Cell.named(NAME), [*map(chosen, errors[0] / 2)], [*map(chosen, errors[1])]
    )
    low, high = half.interval(400)
    assert 0.4 < low < half.ratio < high < 0.6
    # Repetitions that differ widen it, however many seeds each has.
    errors[0] *= np.array([0.5, 0.5, 0.5, 2.0, 2.0, 2.0])[:, None]
    wide = regret.Compared(half.cell, [*map(chosen, errors[0] / 2)], half.grid)
    assert wide.interval(400)[1] - wide.interval(400)[0] > 3 * (high - low)
    assert half.cells()[1].endswith("(10)")


def test_diverged_choices_do_not_hide():
    rows = [chosen([1.0] * 100), chosen([math.inf] * 100)]
    assert regret.level(regret.errors_of(rows)) == math.inf


@pytest.fixture
def small(monkeypatch):
    spans = {"n_iter": (5, 80, 2), "step": (1, 64, 2), "clip": (0.1, 0.4, 2)}
    monkeypatch.setitem(lattice.LATTICES, NAME, spans)
    monkeypatch.setattr(lattice, "MEASURED", 10)
    return Cell.named(NAME)


def test_the_lattices_best_point_is_found_once(small, bowl, tmp_path):
    trials, ran = bowl
    found = lattice.reference(small, trials, tmp_path / "kept.json")
    assert found.values.items() >= BEST.items()
    assert (found.points, found.trials) == (5 * 7 * 3, len(ran))
    # Every point has seeds, a few of them many.
    assert 4 * 105 < len(ran) < 10 * 105 + 256 * lattice.LEFT
    del ran[:]
    assert lattice.reference(small, trials, tmp_path / "kept.json") == found
    assert not ran
    lattice.LATTICES[NAME]["step"] = (1, 32, 2)
    trials.finals.clear()
    assert lattice.reference(small, trials, tmp_path / "kept.json").points == 5 * 6 * 3
    assert ran and len(json.loads((tmp_path / "kept.json").read_text())) == 1


def test_sobol_points_are_within_the_box_and_within_the_budget(small, bowl):
    trials, ran = bowl
    found = lattice.sobol(small, 3, 60, trials)
    assert found.spent == 60 == len(set(ran)) - 100
    assert 5 <= found.values["n_iter"] <= 80 and 1 <= found.values["step"] <= 64
    assert isinstance(found.values["n_iter"], int)
    assert lattice.sobol(small, 3, 60, trials).values == found.values
    assert lattice.sobol(small, 4, 60, trials).values != found.values
    better = lattice.sobol(small, 3, 250, trials)
    assert better.median <= found.median


def test_curves_start_with_the_grid_and_keep_to_the_budgets(small, bowl, monkeypatch):
    monkeypatch.setattr(curves, "BUDGETS", (40, 150))
    found = {place[:2]: place[2] for place in curves.choices(small, 0, bowl[0])}
    # A budget below the grid's trials leaves a search out.
    searched = found.pop(("search", 150))
    assert 54 < searched.spent <= 150
    assert {place: one.spent for place, one in found.items()} == {
        **{("grid", seeds): 27 * seeds for seeds in (1, 2, 3, 4)},
        **{("sobol", budget): budget for budget in (40, 150)},
    }
    grid, sobol = found["grid", 2], found["sobol", 150]
    assert searched.median < min(grid.median, sobol.median)


def test_the_figure_is_small_and_its_numbers_are_kept(tmp_path):
    random = np.random.default_rng(0)
    told = itertools.product(lattice.LATTICES, curves.STYLES, (60, 120), range(8))
    rows = [
        {"cell": cell, "tuner": tuner, "budget": budget, "trials": budget - repetition}
        | {"regret": random.exponential(10 / budget)}
        for cell, tuner, budget, repetition in told
    ]
    table = curves.summary(pd.DataFrame(rows))
    assert len(table) == len(lattice.LATTICES) * 3 * 2
    assert set(table["repetitions"]) == {8}
    assert set(table["trials"]) == {56.5, 116.5}
    assert (table["regret_10"] < table["regret_median"]).all()
    assert (table["regret_median"] < table["regret_90"]).all()
    curves.draw(table, tmp_path / "regret.png")
    content = (tmp_path / "regret.png").read_bytes()
    assert content.startswith(b"\x89PNG") and 10_000 < len(content) < 200_000


def test_the_tuners_own_time_is_told_without_any_fit(monkeypatch):
    monkeypatch.setattr(regret, "tuned", None)
    rows = [*regret.rows()]
    assert [row.matter.split(",")[1].split(":")[0] for row in rows] == [
        " grid",
        " search",
    ]
    assert all(1e-6 < row.here < 5e-3 and row.target == 0.5e-3 for row in rows)


def test_seeds_for_tuning_are_never_fresh():
    tuning = {seed for number in range(20) for seed in seeds_of(number, 100)}
    assert len(tuning) == 2000
    assert not tuning & {seed for number in range(20) for seed in fresh(number, 100)}


def test_wrong_cells_are_one_sentence(monkeypatch):
    monkeypatch.setattr("sys.argv", ["regret", "ratio", "--repetitions", "2", "none"])
    with pytest.raises(SystemExit, match="none: must be PANEL/LINE/EPSILON"):
        regret.main()
