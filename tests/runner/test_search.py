"""Test tune.search: it leaves its grid, ends in time, and reports doubts."""

import csv
import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_blocks import make_tuned
from test_tune import follow, phases

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import Axis
from dp_erm_bench.experiment.tune import (
    Tried,
    modelled_points,
    points_onward,
    traded_points,
    tuners_of,
)
from dp_erm_bench.results.store import ASKED, Asked
from tests.loops import each

SEEDS = list(range(16))


def searching(tune=None, search=None, **changes):
    """A line whose grid of steps and clips is searched beyond."""
    section = {"seeds": SEEDS, "search": search or {}, **(tune or {})}
    return make_tuned(section, **changes)


def tuner_of(block, finals, *ask):
    (tuner,) = tuners_of(expand_blocks([block])[0], 51, finals, *ask)
    return tuner


def bowl(step, clip, scatter=0.0):
    """Return an objective whose lowest point is anywhere, with noise by the seed."""

    def score(params, seed):
        noise = (
            random.Random(f"{params} {seed}").gauss(0.0, scatter) if scatter else 0.0
        )
        far = (
            math.log(params["step"] / step) ** 2 + math.log(params["clip"] / clip) ** 2
        )
        return 1.0 + far + noise

    return score


@settings(max_examples=30, deadline=None)
@given(st.floats(-4, 4), st.floats(-4, 4), st.sampled_from([0.0, 0.05]))
def test_it_finds_a_lowest_point_outside_its_grid(log_step, log_clip, scatter):
    finals = {}
    tuner = tuner_of(searching(), finals)
    step, clip = 0.3 * math.exp(log_step), 5.7 * math.exp(log_clip)
    score = bowl(step, clip, scatter)
    seen = follow(tuner, finals, score)
    tuning = [one for one in seen if one.phase == "tune"]
    assert len({one.key for one in tuning}) == len(tuning) <= 250
    grid = min(
        score({"step": a, "clip": b}, None) if not scatter else math.inf
        for a in (0.1, 0.3, 1.0)
        for b in (2.0, 4.0, 8.0, 16.0)
    )
    clean = bowl(step, clip)(tuner.choice.values, 0)
    assert clean <= grid
    # A grid's nearest point is up to e^4 away in each: 33.
    assert clean < 1.6 or "trials" in tuner.choice.open


def test_the_grid_comes_first_and_its_trials_are_those_of_a_grid():
    finals, plain = {}, {}
    first = next(tuner_of(searching(), finals).stages())
    grid = make_tuned({"seeds": [0, 1]})
    assert [one.key for one in first] == [
        one.key for one in next(tuner_of(grid, plain).stages())
    ]


def test_a_flat_search_ends_early_and_chooses_the_shortest_run():
    finals = {}
    block = searching({"axes": {"passes": [4, 2, 8], "step": [0.3]}})
    block["algorithm"] = {"name": "random_cd", "clip": 1.0}
    tuner = tuner_of(block, finals)
    follow(tuner, finals, lambda params, seed: 1.0)
    assert len(finals) < 250
    assert tuner.choice.values["passes"] <= 2.0
    assert tuner.choice.scatter == 0.0
    assert tuner.choice.lead == (0.0, 0.0)


def test_a_stage_depends_on_the_stages_before_it_only():
    """Another run, with last digits from other batches, asks for the same trials."""
    score, seen = bowl(3.0, 40.0, 0.1), []
    for wobble in (0.0, 1e-13, -1e-13):
        finals = {}
        wobbly = lambda params, seed, w=wobble: score(params, seed) * (1 + w)  # noqa: E731
        tuner = tuner_of(searching(), finals)
        seen.append([one.key for one in follow(tuner, finals, wobbly)])
    assert seen[0] == seen[1] == seen[2]


def test_more_trials_go_on_where_fewer_stopped():
    score, keys = bowl(30.0, 400.0, 0.1), {}
    for trials in (150, 400):
        finals = {}
        tuner = tuner_of(searching(search={"trials": trials}), finals)
        follow(tuner, finals, score)
        keys[trials] = [*tuner.choice.tried]
        assert len(keys[trials]) <= trials
    shared = len(set(keys[150]) & set(keys[400]))
    assert shared > 0.6 * len(keys[150])


@pytest.mark.parametrize("trials", [38, 45, 60, 90, 130])
def test_no_trial_more_than_was_allowed_is_asked_for(trials):
    finals = {}
    tuner = tuner_of(searching(search={"trials": trials}), finals)
    follow(tuner, finals, bowl(3.0, 40.0, 0.1))
    assert len(tuner.choice.tried) <= trials
    assert len(tuner.choice.finals) == 16


@pytest.mark.parametrize("power, end", [(1, 300.0), (2, 300.0), (2, 0.003)])
def test_a_valley_that_runs_across_is_followed(power, end):
    """Along it step and clip change against each other; beside it all is worse."""

    def valley(params, seed):
        across = math.log(params["step"] * params["clip"] ** power / 2.4)
        along = math.log(params["step"] / params["clip"] ** power * end)
        return 1.0 + 30.0 * across**2 + 0.05 * along**2

    finals = {}
    tuner = tuner_of(searching(search={"trials": 400}), finals)
    follow(tuner, finals, valley)
    assert valley(tuner.choice.values, 0) < 1.1


@pytest.mark.parametrize(
    "tune, search, lowest, told",
    [
        ({"limits": {"clip": [1.0, 16.0]}}, {}, (0.3, 900.0), "clip limit"),
        ({"limits": {"step": [0.1, 4.0]}}, {}, (0.001, 8.0), "step limit"),
        ({}, {"trials": 110}, (1e4, 1e4), "trials"),
    ],
)
def test_a_choice_that_may_be_better_beyond_is_open(tune, search, lowest, told):
    finals = {}
    tuner = tuner_of(searching(tune, search), finals)
    follow(tuner, finals, bowl(*lowest))
    assert told in tuner.choice.open


def test_a_limit_that_is_given_is_not_open_and_changes_no_trial():
    chosen = []
    for limits in ([1.0, 16.0], [1.0, 16.0, "given"]):
        finals = {}
        tuner = tuner_of(searching({"limits": {"clip": limits}}), finals)
        follow(tuner, finals, bowl(0.3, 900.0))
        chosen.append((tuner.choice, tuner._case_digest()))
    (ours, case), (theirs, same) = chosen
    assert "clip limit" in ours.open and "clip limit" not in theirs.open
    assert ours.values == theirs.values and case == same


def test_where_all_beyond_is_better_the_choice_is_open():
    finals = {}
    tuner = tuner_of(searching(), finals)
    follow(tuner, finals, lambda params, seed: 1.0 / params["step"])
    tried = {one.spec["algorithm"]["params"]["step"] for one in tuner._tried.values()}
    assert tuner.choice.open
    assert tuner.choice.values["step"] < max(tried) or "step top" in tuner.choice.open


def test_a_choice_on_the_outermost_value_is_compared_with_one_beyond():
    """A cliff beside the best setting: what lies beyond was tried, and is worse."""
    finals = {}
    tuner = tuner_of(searching(), finals)

    def cliff(params, seed):
        over = 5.0 * (params["step"] > 0.5 or params["clip"] > 17.0)
        return 1.0 / params["step"] + 1.0 / params["clip"] + over

    follow(tuner, finals, cliff)
    assert tuner.choice.open == ()
    assert tuner.choice.values["step"] == pytest.approx(0.5, rel=0.2)


def test_half_of_the_finalists_get_all_seeds():
    finals = {}
    tuner = tuner_of(searching(), finals)
    follow(tuner, finals, bowl(0.35, 7.0, 0.05))
    seeds = [key[-1] for key in tuner._tried]
    assert seeds.count(7) >= 4
    assert 2 <= seeds.count(15) <= 4


def test_steps_grow_with_the_way_that_led_on():
    space = {"step": Axis((0.1, 1.0), ratio=2.0), "order": Axis(("cyclic", "uniform"))}
    before, best = ({"step": v, "order": "cyclic"} for v in (1.0, 4.0))
    assert [one["step"] for one in points_onward(space, before, best)] == [16.0, 64.0]
    assert [*points_onward(space, best, best)] == []
    assert [*points_onward(space, best, {**best, "order": "uniform"})] == []


def test_a_trade_takes_a_power_for_what_it_gives():
    space = {name: Axis((0.5, 1.0), ratio=2.0) for name in ("step", "clip")}
    space["order"] = Axis(("cyclic", "uniform"))
    best = {"step": 1.0, "clip": 1.0, "order": "cyclic"}
    traded = {
        power: {(p["step"], p["clip"]) for p in traded_points(space, best, 2.0, power)}
        for power in (1, 2)
    }
    assert traded[1] == {(0.5, 2.0), (2.0, 0.5)}
    assert traded[2] == {(0.25, 2.0), (0.5, 4.0), (4.0, 0.5), (2.0, 0.25)}


def test_a_choice_inside_is_not_open():
    finals = {}
    tuner = tuner_of(searching(), finals)
    follow(tuner, finals, bowl(0.35, 7.0, 0.01))
    assert tuner.choice.open == ()
    low, high = tuner.choice.lead
    assert low < high and tuner.choice.scatter > 0.0
    assert len(tuner.choice.finals) == 16


def test_a_setting_that_diverges_on_one_seed_is_not_chosen():
    finals = {}
    tuner = tuner_of(searching(), finals)

    def score(params, seed):
        if params["step"] > 0.2 and seed == 1:
            return math.inf
        return bowl(0.5, 8.0)(params, seed)

    follow(tuner, finals, score)
    assert tuner.choice.values["step"] <= 0.2 and tuner.choice.mean < math.inf


def test_words_are_tried_one_for_the_other():
    finals = {}
    orders = ["uniform", "cyclic", "cyclic_reversed"]
    block = searching({"axes": {"order": orders, "step": [0.1, 1.0]}})
    block["algorithm"] = {"name": "random_cd", "clip": 1.0, "passes": 2}
    tuner = tuner_of(block, finals)

    def score(params, seed):
        apt = 0.5 * (params["order"] != "cyclic")
        return 1.0 + apt + math.log(params["step"] / 0.4) ** 2

    follow(tuner, finals, score)
    assert tuner.choice.values["order"] == "cyclic"
    assert abs(math.log(tuner.choice.values["step"] / 0.4)) < 0.2
    assert tuner.choice.open == ()


def test_zero_is_an_end_that_is_not_open():
    finals = {}
    block = searching({"axes": {"ridge": [0.0, 0.01, 0.1]}})
    block["algorithm"] = {"name": "output_perturbation"}
    tuner = tuner_of(block, finals)
    follow(tuner, finals, lambda params, seed: 1.0 + params["ridge"])
    assert tuner.choice.values == {"ridge": 0.0}
    assert tuner.choice.open == ()


def noisy_bowl(seed=0, count=80, scatter=0.3):
    """Points around (1, 4), one seed each, of a bowl with its bottom at (1.6, 2.6)."""
    space = {"step": Axis((0.5, 1.0)), "clip": Axis((2.0, 4.0)), "order": Axis(("a",))}
    random = np.random.default_rng(seed)
    tried = []
    for a, b in random.uniform(-1.5, 1.5, (count, 2)):
        point = {"step": space["step"].value_at(a / math.log(2**0.25))}
        point |= {
            "clip": space["clip"].value_at((b + 1.4) / math.log(2**0.25)),
            "order": "a",
        }
        away = math.log(point["step"] / 1.6) ** 2 + math.log(point["clip"] / 2.6) ** 2
        tried.append(Tried(point, 1.0 + away + scatter * random.standard_normal(), 1))
    return space, {"step": 1.0, "clip": 4.0, "order": "a"}, tried


def test_a_surface_is_lowest_nearer_to_the_bottom_than_the_best_of_single_runs():
    def away(point):
        return math.hypot(math.log(point["step"] / 1.6), math.log(point["clip"] / 2.6))

    luckiest, lowest = [], []
    for seed in range(20):
        space, best, tried = noisy_bowl(seed)
        points = [*modelled_points(space, best, tried, 2.5, 3)]
        assert len(points) == 3 and all(space[k].holds(p[k]) for p in points for k in p)
        assert not [one for one in tried if one.point in points]
        lowest.append(away(points[0]))
        luckiest.append(away(min(tried, key=lambda one: one.mean).point))
    assert np.mean(lowest) < 0.5 * np.mean(luckiest)


def test_what_diverged_lies_far_away_or_has_other_words_is_not_fitted():
    space, best, tried = noisy_bowl()
    usual = [*modelled_points(space, best, tried, 2.5, 3)]
    odd = [
        Tried({**best, "step": space["step"].value_at(3)}, math.inf, 2),
        Tried({**best, "step": space["step"].value_at(40)}, 0.0, 2),
        Tried({**best, "order": "b"}, 0.0, 2),
    ]
    assert [*modelled_points(space, best, [*tried, *odd], 2.5, 3)] == usual


def test_fewer_points_than_coefficients_have_no_surface():
    space, best, tried = noisy_bowl(count=8)
    assert not [*modelled_points(space, best, tried, 2.5, 3)]
    assert not [
        *modelled_points({"order": space["order"]}, {"order": "a"}, tried, 2.5, 3)
    ]


def test_whole_numbers_words_and_zero_have_neighbours():
    axis = Axis((2, 8), ratio=2**0.5)
    assert [*axis.values_beside(2, 1.42)] == [1, 3]
    assert [*axis.values_beside(1, 1.42)] == [2]
    assert axis.is_outermost(1) and not axis.is_outermost(2)
    words = Axis(("uniform", "cyclic"))
    assert [*words.values_beside("cyclic", 2.0)] == ["uniform"]
    zero = Axis((0.0, 0.1, 1.0), low=0.0)
    (above,) = zero.values_beside(0.0, 2.5)
    assert 0.03 < above < 0.1 and zero.is_outermost(0.0)
    assert zero.holds(above) and zero.holds(0.0) and not zero.holds(above * 1.01)


def test_points_are_in_the_unit_of_their_axis():
    axes = {"clip": {"unit": "gradient_rms", "values": [1.0]}}
    block = searching({"axes": axes, "limits": {"clip": [0.5, 2.0]}})
    finals = {}
    tuner = tuner_of(block, finals)
    (unit,) = tuner.line.axes["clip"]
    follow(tuner, finals, lambda params, seed: -params["clip"])
    assert tuner.choice.values == {"clip": 2.0 * unit}
    assert tuner.choice.open == ("clip limit",)


def with_asked(folder, score):
    """Run a search that writes down what it asks for; return the keys of its trials."""
    finals = {}
    tuner = tuner_of(searching(), finals, Asked(folder, True))
    return [one.key for one in follow(tuner, finals, score)]


def test_what_was_asked_is_asked_again(tmp_path, monkeypatch):
    score = bowl(3.0, 40.0, 0.1)
    first = with_asked(tmp_path, score)
    lines = (tmp_path / ASKED).read_bytes().splitlines(keepends=True)
    assert len(lines) >= 2
    monkeypatch.setattr(
        "dp_erm_bench.experiment.tune.sobol_points", lambda *given: iter(())
    )
    assert with_asked(tmp_path, score) == first
    (tmp_path / ASKED).write_bytes(b"")
    assert with_asked(tmp_path, score) != first


def test_other_finals_ask_for_other_points(tmp_path):
    """As after a change of the code: what was asked was around another setting."""
    with_asked(tmp_path / "used", bowl(3.0, 40.0))
    (tmp_path / "new").mkdir()
    score = bowl(0.05, 3.0)
    assert with_asked(tmp_path / "used", score) == with_asked(tmp_path / "new", score)


def test_two_runs_of_a_folder_ask_for_the_same(tmp_path):
    one, other = Asked(tmp_path, True), Asked(tmp_path, True)
    first = one("case", 0, lambda: [{"step": 1.0}])
    assert other("case", 0, lambda: [{"step": 2.0}]) == first


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_was_searched_is_raced_beside_the_best_of_the_grid(count):
    finals, score = {}, bowl(0.55, 5.5, 0.05)
    tuner = tuner_of(searching(search={"finalists": count}), finals)
    follow(tuner, finals, score)
    assert bowl(0.55, 5.5)(tuner.choice.values, 0) < 1.1


def test_where_all_is_lost_the_grid_is_all_that_is_tried():
    finals = {}
    tuner = tuner_of(searching(), finals)
    follow(tuner, finals, lambda params, seed: math.inf)
    assert len(tuner.choice.tried) == 24
    assert tuner.choice.open == () and tuner.choice.mean == math.inf


def test_equal_settings_lead_nowhere():
    finals = {}
    block = searching({"axes": {"clip": [4.0, 8.0]}})
    tuner = tuner_of(block, finals)
    follow(tuner, finals, lambda params, seed: 1.0)
    assert tuner.choice.values == {"clip": 4.0}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-40],
        lambda text: text.replace(b"step", b"stop"),
        lambda text: b"\xff\n" + text,
        lambda text: text + b'{"case":"x"',
    ],
)
def test_a_damaged_line_is_asked_anew(tmp_path, damage):
    score = bowl(3.0, 40.0, 0.1)
    first = with_asked(tmp_path, score)
    path = tmp_path / ASKED
    path.write_bytes(damage(path.read_bytes()))
    assert with_asked(tmp_path, score) == first
    assert with_asked(tmp_path, score) == first


WRONG = [1e9, "x", math.nan, -1.0, [1.0], {}, None, True, 10**400, 0.0]


def test_points_of_a_file_are_those_of_the_space_or_none(tmp_path):
    score, finals = bowl(3.0, 40.0, 0.1), {}

    def foreign(case, number, make):
        return [{"clip": 1.0}, *({"step": step, "clip": 2.0} for step in WRONG)]

    block = searching({"limits": {"step": [0.01, 100.0]}})
    tuner = tuner_of(block, finals, foreign)
    seen = follow(tuner, finals, score)
    steps = {one.spec["algorithm"]["params"]["step"] for one in seen}
    assert steps <= {0.1, 0.3, 1.0} | {v for v in steps if 0.01 <= v <= 100.0}
    assert 1e9 not in steps


BOUNDED = {
    **{"name": "log1", "n": 60, "p": 5, "clip_to_bounds": True},
    "bounds": {"columns": 3.0, "norm": 5.0},
}


def followed(tuners, finals, score):
    """Run tuners together, each a stage at a time, as a session does."""
    active = [(tuner, tuner.stages()) for tuner in tuners]
    while active:
        going = []
        for tuner, stages in active:
            stage = next(stages, ())
            for one in stage or ():
                params = one.spec["algorithm"]["params"]
                value = score(params, tuner.epsilon, one.spec["seed"])
                finals[one.key] = {"objective": value}
            going += [(tuner, stages)] if stage != () else []
        active = going


def test_a_search_begins_with_the_rule_and_with_runs_of_one_and_two_steps():
    """A plateau beside them: no value of the grid leads anywhere."""
    algorithms = {
        "gd": {"n_iter": [5, 20], "step": [1.0, 8.0]},
        "sgd": {"passes": [2.0, 10.0], "step": [1.0, 8.0]},
        "mirror_descent": {"n_iter": [5, 20], "step": [1.0, 8.0]},
    }
    for name, axes in algorithms.items():
        fixed = {"name": name, **({"batch_size": 30} if name == "sgd" else {})}
        block = searching({"axes": axes}, dataset=BOUNDED, algorithm=fixed)
        finals = {}
        tuner = tuner_of(block, finals)
        lengths = set()

        def score(params, seed, tuner=tuner, axes=axes, lengths=lengths):
            point = {key: params[key] for key in axes}
            steps = tuner.line.setting(**point).batch_key.iterations()
            lengths.add(steps)
            return 0.5 if steps <= 2 else 1.0

        follow(tuner, finals, score)
        assert {1, 2} <= lengths, name
        assert tuner.choice.mean == 0.5
        has_rule = name != "mirror_descent"
        assert tuner.choice.starts == ("auto",) * has_rule + ("1 and 2 steps",)
        assert len(tuner.choice.tried) <= 250


def test_runs_of_another_length_that_still_gain_leave_a_better_choice_closed():
    axes = {"n_iter": [5, 20], "step": [1.0, 8.0]}
    limits = {"n_iter": [1, 4000], "step": [1e-9, 1e9]}
    made = {"dataset": BOUNDED, "algorithm": "gd", "budget": {"epsilon": 100.0}}
    finals = {}
    tuner = tuner_of(searching({"axes": axes, "limits": limits}, **made), finals)

    def score(params, seed):
        # Few steps have a best step size, many gain with each that is larger.
        size = math.log(params["step"] / 3.0)
        if params["n_iter"] <= 40:
            return 1.0 + size**2 + math.log(params["n_iter"] / 10.0) ** 2
        return 3.0 - 0.05 * size

    seen = follow(tuner, finals, score)
    long = [
        params["step"]
        for params in (one.spec["algorithm"]["params"] for one in seen)
        if params["n_iter"] > 40
    ]
    assert max(long) > 1e3 and tuner.choice.mean < 1.1
    assert "trials" not in tuner.choice.open


def test_the_rules_own_setting_is_one_of_the_trials():
    """The trial is that of a run that nobody tunes."""
    axes = {"passes": [2.0, 4.0], "batch_size": [10, 20], "step": [0.1, 1.0]}
    axes |= {"clip": [0.1, 0.2]}
    for epsilon in (0.1, 1000.0):
        made = {"dataset": BOUNDED, "budget": {"epsilon": epsilon}, "algorithm": "sgd"}
        (untuned,) = expand_blocks([made])[0]
        (auto,) = untuned.settings
        finals = {}
        tuner = tuner_of(searching({"axes": axes}, **made), finals)
        seen = follow(tuner, finals, lambda params, seed: 1.0 / params["passes"])
        assert auto.trial(0, 2).key in {one.key for one in seen}
        assert "auto" in tuner.choice.starts and tuner.choice.mean < 0.25


def test_starts_keep_to_the_limits_that_are_set():
    limits = {"n_iter": [4, 6], "step": [0.5, 1.5], "clip": [0.05, 0.3]}
    axes = {"n_iter": [4, 5], "step": [0.5, 1.0], "clip": [0.1, 0.2]}
    made = {"dataset": BOUNDED, "algorithm": "gd", "budget": {"epsilon": [1.0, 9.0]}}
    finals, found = {}, {}
    tuners = tuners_of(
        expand_blocks([searching({"axes": axes, "limits": limits}, **made)])[0],
        51,
        finals,
    )

    def score(params, epsilon, seed):
        for key in limits:
            found.setdefault(key, set()).add(params[key])
        return 1.0

    followed(tuners, finals, score)
    for key, (low, high) in limits.items():
        assert all(low <= value <= high for value in found[key])


@pytest.mark.parametrize("best", [None, "full", 7])
def test_a_search_goes_on_from_what_a_rule_gives(best):
    """No threshold and all records have no place among numbers; they may be best."""
    axes = {"batch_size": [10, 20], "clip": [0.1, 0.2]}
    algorithm = {"name": "sgd", "passes": 4.0, "step": 0.5}
    block = searching({"axes": axes}, dataset=BOUNDED, algorithm=algorithm)
    finals = {}
    tuner = tuner_of(block, finals)
    rule = {"batch_size": best or 10, "clip": None if best is None else 0.1}
    tuner._setting_of_rule = lambda: [rule]
    follow(
        tuner,
        finals,
        lambda p, seed: (
            1.0
            - (p["clip"] == rule["clip"]) * 0.1
            - (p["batch_size"] == rule["batch_size"]) * 0.3
        ),
    )
    assert tuner.choice.values == rule


def test_a_choice_of_the_next_smaller_epsilon_is_tried_too():
    """What is best lies so far away that only the smaller epsilon leads there."""
    block = searching(budget={"epsilon": [3.0, 0.3, 1.0]})
    finals = {}
    tuners = tuners_of(expand_blocks([block])[0], 51, finals)

    def score(params, epsilon, seed):
        if epsilon == 0.3:
            return bowl(3.0, 40.0)(params, seed)
        hidden = abs(math.log(params["step"] / 3.0)) < 0.1
        return 0.5 if hidden and params["clip"] > 30.0 else 1.0

    followed(tuners, finals, score)
    by = {tuner.epsilon: tuner.choice for tuner in tuners}
    assert by[0.3].starts == ()
    assert by[1.0].starts == ("from epsilon=0.3",)
    assert by[3.0].starts == ("from epsilon=1",)
    assert by[1.0].mean == by[3.0].mean == 0.5
    assert all(len(choice.tried) <= 250 for choice in by.values())


def test_only_the_same_line_is_begun_from():
    other = {"name": "random_cd", "passes": 3}
    blocks = [
        searching(budget={"epsilon": [0.3, 1.0]}),
        searching(budget={"epsilon": 0.1}, line="another"),
        searching(budget={"epsilon": 0.5}, algorithm=other),
        searching(budget={"epsilon": 0.6, "delta": 1e-3}),
    ]
    tuners = tuners_of(expand_blocks(blocks)[0], 51, {})
    smaller = [one.smaller and one.smaller.epsilon for one in tuners]
    assert smaller == [None, 0.3, None, None, None]


def test_a_line_that_is_worse_with_more_budget_is_open(inline, capsys):
    """Of the fakes no line is better for its budget: an ill wind blows at 10."""
    report = [*range(100, 108)]
    block = searching({"report": report}, budget={"epsilon": [1.0, 3.0, 10.0]})
    assert inline(block, execute="worse_at_ten") == 0
    with (inline.folder / "choices.csv").open() as file:
        rows = {row["epsilon"]: row for row in csv.DictReader(file)}
    assert "worse" not in rows["1.0"]["open"] + rows["3.0"]["open"]
    assert rows["10.0"]["open"].endswith("worse than epsilon=3")
    assert rows["10.0"]["starts"] == "from epsilon=3"
    assert "worse than epsilon=3" in capsys.readouterr().out
    # What is recorded says the same.
    before = (inline.folder / "choices.csv").read_bytes()
    assert inline(block, execute="worse_at_ten") == 0
    assert (inline.folder / "choices.csv").read_bytes() == before


def test_a_chain_of_epsilons_that_was_cut_off_goes_on_to_the_same(inline):
    block = searching(budget={"epsilon": [1.0, 3.0]})
    assert inline(block) == 0
    before = (inline.folder / "choices.csv").read_bytes()
    path = inline.folder / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if line.startswith(b'{"key":')]
    path.write_bytes(b"".join(kept[: len(kept) // 3]))
    assert inline(block) == 0
    assert (inline.folder / "choices.csv").read_bytes() == before


def choice_of(folder):
    with (folder / "choices.csv").open() as file:
        (row,) = csv.DictReader(file)
    return row


def test_a_run_writes_what_its_choice_rests_on(inline, capsys):
    block = searching({"limits": {"step": [0.05, 2.0]}}, {"trials": 200})
    assert inline(block) == 0
    row = choice_of(inline.folder)
    chosen = json.loads(row["chosen"])
    assert abs(math.log(chosen["step"] / 0.3)) < 0.2
    assert abs(math.log(chosen["clip"] / 8.0)) < 0.2
    assert row["quantity"] == "objective" and row["seeds"] == "16"
    assert int(row["trials"]) <= 200 and float(row["scatter"]) < 1e-6
    assert float(row["lead_low"]) <= float(row["lead_high"])
    assert phases(inline.folder) == {"tune": int(row["trials"]), "report": 2}
    before = (inline.folder / "choices.csv").read_bytes()
    assert inline(block) == 0
    assert "(0 run now)" in capsys.readouterr().out
    assert (inline.folder / "choices.csv").read_bytes() == before


def test_a_grid_becomes_the_first_stage_of_a_search(inline, capsys):
    assert inline(make_tuned({"seeds": [0, 1]})) == 0
    capsys.readouterr()
    assert inline(searching(search={"trials": 200})) == 0
    row = choice_of(inline.folder)
    # 24 trials of the grid, and the two reports if the choice is the same.
    told = capsys.readouterr().out
    most = int(row["trials"]) - 24 + 2
    assert f"({most} run now)" in told or f"({most - 2} run now)" in told


@each(
    "tune, search, told",
    [
        ({}, {"trials": 37}, "tune.search.trials=37: must be at least 38"),
        ({}, {"trials": 2.5}, "tune.search.trials=2.5: must be an integer"),
        ({}, {"name": "tpe"}, "tune.search.name: no such key"),
        ({}, {"race": [2, 4]}, "tune.search.race"),
        ({}, {"race": [4, 2, 8, 16]}, "tune.search.race"),
        ({}, {"radius": 1}, "tune.search.radius=1: must be a number >= 1.42"),
        ({}, {"ratio": {"stop": 2}}, "tune.search.ratio: stop: no such key; did you"),
        ({}, {"trails": 100}, "did you mean tune.search.trials"),
        ({"seeds": [0, 1]}, {}, "tune.seeds: must be at least 16, as tune.search.race"),
        ({"extend": ["clip"]}, {}, "tune.extend: no such key"),
        ({"limits": {"clip": [4, 8]}}, {}, "must hold its grid, which has 2"),
        ({"limits": {"clip": [8, 4]}}, {}, "tune.limits.clip=[8,4]: must be two"),
        ({"limits": {"clip": [-1, 99]}}, {}, "tune.limits.clip=[-1, 99]: must be > 0"),
        ({"limits": {"clip": 3}}, {}, "tune.limits.clip=3: must be"),
        ({"limits": {"clip": [1, 9, "us"]}}, {}, "and given if they are no choice"),
        ({"limits": {"clip": [1, math.inf]}}, {}, "must be two numbers, the lower"),
        ({"limits": {"clap": [1, 99]}}, {}, "tune.limits: clap: no such key"),
        ({"quantity": "auk"}, {}, "tune.quantity=auk (did you mean auc?): must be one"),
        ({"quantity": "auc"}, {}, "tune.quantity=auc: the dataset has no test part"),
    ],
)
def test_bad_input_gets_a_sentence(tune, search, told):
    with pytest.raises(UsageError) as error:
        expand_blocks([searching(tune, search)])
    assert told in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("quantity, best", [("test_risk", 0.1), ("auc", 1.0)])
def test_another_quantity_may_decide(quantity, best):
    dataset = {"name": "log1", "n": 60, "p": 5, "test_fraction": 0.2}
    grid = {"seeds": [0, 1], "quantity": quantity}
    (tuner,) = tuners_of(
        expand_blocks([make_tuned(grid, dataset=dataset)])[0], 51, finals := {}
    )
    for stage in tuner.stages():
        for one in stage:
            step = one.spec["algorithm"]["params"]["step"]
            values = {"test_risk": step, "auc": -step, "objective": abs(step - 0.3)}
            finals[one.key] = values
    assert tuner.choice.values["step"] == best
    assert tuner.choice.quantity == quantity


def test_limits_without_a_search_are_refused():
    with pytest.raises(UsageError, match="left out without tune.search"):
        expand_blocks([make_tuned({"limits": {"clip": [1, 20]}})])
