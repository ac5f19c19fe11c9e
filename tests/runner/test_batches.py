import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import BatchKey, Setting, Work
from dp_erm_bench.experiment.lines import work_of as work_of_trial
from dp_erm_bench.experiment.parameters import algorithm_of, problem_named
from dp_erm_bench.runner.session import LEAST, batches_of
from tests.serving import known


def planned(group, count, work=1.0, batchable=True, n_checkpoints=51):
    batch_key = BatchKey(lambda: "code", group, batchable, lambda rows: Work(own=work))
    setting = Setting({}, (), (), group, batch_key)
    return [setting.trial(seed, n_checkpoints) for seed in range(count)]


@given(
    st.lists(
        st.tuples(st.integers(1, 70), st.floats(0, 1e9), st.booleans()), max_size=6
    ),
    st.integers(1, 40),
)
def test_every_trial_is_in_one_batch_of_its_group(groups, most):
    work = {str(i): w for i, (_, w, _) in enumerate(groups)}
    single = {str(i) for i, (_, _, b) in enumerate(groups) if not b}
    trials = [
        one
        for i, (count, w, batchable) in enumerate(groups)
        for one in planned(str(i), count, w, batchable)
    ]
    group_of = {one.key: one.kind[0] for one in trials}
    batches = batches_of(trials, most, 1e8)
    keys = [trial.key for batch in batches for trial in batch]
    assert sorted(keys) == sorted(group_of)
    for batch in batches:
        (group,) = {group_of[trial.key] for trial in batch}
        assert 1 <= len(batch) <= (1 if group in single else most)
    loads = [work[group_of[b[0].key]] * len(b) for b in batches]
    assert loads == sorted(loads, reverse=True)


def test_trials_of_next_to_no_work_fill_their_batch():
    assert [len(b) for b in batches_of(planned("a", 5, 1e-300), 4, 1e8)] == [3, 2]


def test_checkpoints_split_a_group():
    trials = planned("a", 3) + planned("a", 3, n_checkpoints=2)
    assert sorted(map(len, batches_of(trials, 32, 1e8))) == [3, 3]


@pytest.mark.parametrize("work, size", [(0.0, 32), (1e6, 32), (1e7, 10), (1e9, LEAST)])
def test_heavy_trials_come_in_smaller_batches(work, size):
    batches = batches_of(planned("a", 320, work), 32, 1e8)
    assert max(map(len, batches)) == size
    assert max(map(len, batches)) - min(map(len, batches)) <= 1


def test_ten_heavy_seeds_keep_two_workers_busy():
    assert list(map(len, batches_of(planned("a", 10, 2e7), 32, 1e8))) == [5, 5]


def groups_of(*blocks):
    lines, _ = expand_blocks(blocks)
    return {one.kind[0] for line in lines for one in line.sweep(51)}


def test_value_parameters_share_a_group_and_shape_parameters_do_not(block):
    def with_(**given):
        return block(algorithm={"name": "random_cd", "passes": 2, "clip": 1, **given})

    assert len(groups_of(with_(step=[0.1, 1], clip=[1, 2]))) == 1
    assert len(groups_of(with_(passes=[1, 2]))) == 2
    assert len(groups_of(with_(order=["cyclic", "uniform"]))) == 2
    assert len(groups_of(with_(clip=[1, None]))) == 2
    assert len(groups_of(with_(), block(line="b", budget={"epsilon": 3}))) == 2
    assert len(groups_of(with_(), block(line="b", calibration="paper"))) == 2


def work_of(block, n=60, p=5, rows=2, **given):
    """The work of a trial, its dataset and its algorithm given."""
    usual = known(given.get("name", "sgd"), clip=1, step=1, batch_size=1)
    algorithm = {"name": "sgd", **usual, **given}
    data = {"name": "log1", "n": n, "p": p}
    (line,), _ = expand_blocks([block(dataset=data, algorithm=algorithm)])
    return next(line.sweep(rows)).work


def test_a_step_counts_what_it_reads(block):
    """A coordinate step reads one column, a sampled one its records, a full one all."""

    def step(name, **given):
        short, long = (
            work_of(block, 20_000, 100, n_iter=k, name=name, **given) for k in (10, 110)
        )
        return (long.own - short.own) / 100

    assert step("sgd") < step("sgd", batch_size=50) < step("sgd", batch_size="full")
    assert step("random_cd") * 10 < step("greedy_cd")
    assert step("sgd") * 100 < step("gd")


def test_a_line_that_is_known_to_be_refused_costs_nothing(block):
    ball = {"penalty": "none", "constraint": {"name": "l1_ball", "radius": 1.0}}
    unbounded = {"name": "frank_wolfe", "clip": None}
    for refused in (
        block(algorithm={"name": "frank_wolfe", "clip": 1}),
        block(algorithm=unbounded, dataset={"name": "log1", "bounds": None}, **ball),
        block(algorithm={"name": "gd", "clip": 1}, calibration="paper"),
    ):
        (line,), _ = expand_blocks([refused])
        assert next(line.sweep(51)).work == (0.0, 0.0)
    (line,), _ = expand_blocks(
        [block(algorithm={"name": "frank_wolfe", "clip": 1}, **ball)]
    )
    assert min(next(line.sweep(51)).work) > 0.0


def test_what_trials_share_is_not_paid_again_for_balance():
    """Ten thousand steps in Python take a second, however few trials make them."""
    (one,) = planned("a", 1)
    key = dataclasses.replace(one.setting.batch_key, work=lambda rows: Work(2e7, 1e8))
    setting = dataclasses.replace(one.setting, batch_key=key)
    trials = [setting.trial(seed, 2) for seed in range(32)]
    assert [len(batch) for batch in batches_of(trials, 32, 1e8)] == [11, 11, 10]


def test_more_iterations_than_can_be_counted_are_refused():
    problem = problem_named("log1", {"n": 60, "p": 5}, "auto", "auto", "none")
    with pytest.raises(UsageError, match="more iterations than can be counted"):
        work_of_trial(
            algorithm_of("random_cd"),
            {"passes": 1e308, "clip": 1.0},
            problem,
            {"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace_one"},
            "certified",
            51,
        )
