import csv
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_blocks import make_tuned

from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.tune import tuners_of
from dp_erm_bench.results.settings import final_rows
from dp_erm_bench.results.table import load_results
from dp_erm_bench.results.tuned import tuned_choices as tuned_choices

GRID = {"step": [0.1, 0.3, 1.0], "clip": [2.0, 4.0, 8.0, 16.0]}


def choices(folder):
    with (folder / "choices.csv").open() as file:
        return list(csv.DictReader(file))


def phases(folder):
    table = load_results(folder).drop_duplicates(["trial", "line", "phase"])
    return table.groupby("phase").size().to_dict()


def test_the_best_setting_is_chosen_and_reported_on_fresh_seeds(inline, tuned):
    assert inline(tuned()) == 0
    (choice,) = choices(inline.folder)
    assert choice["chosen"] == '{"clip": 8.0, "step": 0.3}'
    assert choice["open"] == ""
    assert (choice["seeds"], choice["settings"]) == ("2", "12")
    assert float(choice["mean"]) == pytest.approx(1.0, abs=2e-6)
    assert phases(inline.folder) == {"tune": 24, "report": 2}
    table = load_results(inline.folder)
    report = table[table["phase"] == "report"]
    assert set(report["seed"]) == {100, 101}
    assert report["tuned"].all() and not table["tuned"].all()
    assert report["uncharged"].str.contains("tuning").all()


def test_tuning_records_two_rows_and_reports_record_all(inline, tuned):
    lines, _ = expand_blocks([tuned()])
    finals = {}
    (tuner,) = tuners_of(lines, 51, finals)
    seen = {}
    for stage in tuner.stages():
        for one in stage:
            seen.setdefault(one.phase, set()).add(one.spec["n_checkpoints"])
            finals[one.key] = {"objective": 1.0}
    assert seen == {"tune": {2}, "report": {51}}


def test_a_best_value_on_an_edge_is_told(inline, tuned, capsys):
    axes = {"step": [0.3, 1.0], "clip": [1.0, 2.0]}
    assert inline(tuned({"axes": axes})) == 0
    (choice,) = choices(inline.folder)
    assert choice["open"] == "step bottom; clip top"
    told = "step 0.3 is the lowest value tried, clip 2 is the highest value tried"
    (line,) = [
        one for one in capsys.readouterr().out.splitlines() if one.startswith("open: ")
    ]
    assert line.startswith("open: 1 of 1 choice, a better setting may exist: ")
    assert line.endswith(f": {told} (column open of choices.csv)")


def test_diverged_settings_are_never_chosen(inline, tuned):
    axes = {"step": [2.0, 1.5, 0.9], "clip": [8.0]}
    assert inline(tuned({"axes": axes}), execute="diverging") == 0
    (choice,) = choices(inline.folder)
    assert choice["chosen"] == '{"clip": 8.0, "step": 0.9}'


@pytest.mark.parametrize(
    "execute, code, told",
    [
        ("all_diverging", 0, "(epsilon 1.0): no setting had a finite mean"),
        ("skipping", 1, "(epsilon 1.0): every setting was skipped: no such bound"),
    ],
)
def test_without_a_finite_objective_the_line_is_still_reported(
    inline, tuned, execute, code, told, capsys
):
    for _ in ("run", "found recorded"):
        assert inline(tuned(), execute=execute) == code
        assert f"panel / line {told}" in capsys.readouterr().out
    (choice,) = choices(inline.folder)
    assert choice["mean"] == "inf" and choice["open"] == ""
    assert phases(inline.folder)["report"] == 2


def test_each_budget_is_tuned_for_itself(inline, tuned):
    assert inline(tuned(budget={"epsilon": [1.0, 10.0]})) == 0
    assert [choice["epsilon"] for choice in choices(inline.folder)] == ["1.0", "10.0"]


def test_each_problem_of_an_axis_has_its_own_choice(inline, tuned):
    """A panel of an experiment may run along n, in lines of one name."""
    axis = {"name": "log1", "n": [60, 80], "p": 5}
    inline(tuned(dataset=axis))
    found = tuned_choices(inline.folder)
    assert sorted(found["panel"]) == ["panel, n=60", "panel, n=80"]
    assert found["runs"].tolist() == [2, 2]
    ends = final_rows(load_results(inline.folder)).query("phase == 'report'")
    for trial, panel in zip(found["trial"], found["panel"], strict=True):
        (options,) = ends.loc[ends["trial"] == trial, "dataset_options"]
        assert f"n={json.loads(options)['n']}" in panel


def test_a_tuned_run_is_resumed_where_it_stopped(inline, tuned, capsys):
    made = tuned({"seeds": [*range(16)], "search": {"trials": 90}})
    assert inline(made) == 0
    before = choices(inline.folder)
    path = inline.folder / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if line.startswith(b'{"key":')]
    total, kept = len(kept), kept[:26]
    path.write_bytes(b"".join(kept))
    capsys.readouterr()
    assert inline(made) == 0
    # Of a torn batch all run again: its company may change the last digits.
    told = f"{total} trials ({total - 24} run now)"
    assert told in capsys.readouterr().out
    assert choices(inline.folder) == before


def follow(tuner, finals, score):
    """Run a tuner against a function of the setting and the seed."""
    seen = []
    for stage in tuner.stages():
        seen += stage
        for one in stage:
            params = one.spec["algorithm"]["params"]
            finals[one.key] = {"objective": score(params, one.spec["seed"])}
    return seen


@given(
    st.lists(st.one_of(st.floats(-5, 5), st.just(math.inf)), min_size=24, max_size=24)
)
def test_the_choice_is_the_smallest_mean_whatever_the_landscape(values):
    lines, _ = expand_blocks([make_tuned({"axes": GRID})])
    finals = {}
    (tuner,) = tuners_of(lines, 51, finals)
    points = [(a, b) for a in GRID["step"] for b in GRID["clip"]]
    table = {point: values[2 * i : 2 * i + 2] for i, point in enumerate(points)}

    def score(params, seed):
        return table[params["step"], params["clip"]][seed % 2]

    seen = follow(tuner, finals, score)
    assert len({one.key for one in seen}) == len(seen) == tuner.expected_trials()
    means = {point: sum(pair) / 2 for point, pair in table.items()}
    chosen = means[tuner.choice.values["step"], tuner.choice.values["clip"]]
    assert chosen == pytest.approx(min(means.values()), rel=1e-8)
    reported = {one.spec["seed"] for one in seen if one.phase == "report"}
    assert reported == {100, 101}


def test_an_axis_that_is_set_aside_is_no_part_of_the_product():
    made = make_tuned({"axes": {**GRID, "passes": [2, 4, 8]}, "aside": ["passes"]})
    made["algorithm"] = {"name": "random_cd"}
    finals = {}
    (tuner,) = tuners_of(expand_blocks([made])[0], 51, finals)
    seen = follow(tuner, finals, lambda params, seed: -params["passes"])
    assert len(seen) == tuner.expected_trials() == 2 * (3 * 4 + 2) + 2
    middle = {"passes": 8.0, "step": 0.3, "clip": 4.0}
    assert tuner.choice.values == middle and tuner.choice.open == ("passes top",)
