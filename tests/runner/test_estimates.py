"""mode=plan on a fresh folder: its seconds are those that the trials then take."""

import dataclasses
import math
import os

import pytest

from dp_erm_bench import registry
from dp_erm_bench.cli import app
from dp_erm_bench.cli.main import main
from dp_erm_bench.experiment.expand import expand
from dp_erm_bench.experiment.tune import tuners_of
from dp_erm_bench.results.store import Store, read_plan
from dp_erm_bench.runner import plan
from dp_erm_bench.runner.execute import run_batch
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.plan import Probe, probed
from dp_erm_bench.runner.session import batch_size, batches_of
from dp_erm_bench.runner.timed import Clock
from tests.contract.own import SOUND
from tests.loops import each

FACTOR, SUM, TENTHS = 3.0, 2.0, 0.2
TOTAL = ("", "total")
# Seconds that a process may need to start where much else is running.
PATIENT = 60.0
DATA = ["dataset=log1", "dataset.n=4000", "dataset.p=40", "seed=range(0,32)"]
# Lines of some tenths of a second. DP_ERM_BENCH_ESTIMATES=all takes the smoke profiles
# of all experiments, whose searches may move to longer trials than they begin with.
SOME = {
    "sampled": ["algorithm=sgd", "algorithm.sgd.passes=2,10"],
    "in lock-step": [
        "algorithm=gd,greedy_cd",
        "algorithm.gd.n_iter=400",
        "algorithm.greedy_cd.n_iter=50,400",
    ],
    "compiled": ["algorithm=random_cd", "algorithm.random_cd.passes=20,100"],
}
SOME = {
    name: [
        *(*DATA, "budget.epsilon=1", *given),
        *(f"algorithm.{one}.clip=1" for one in given[0].partition("=")[2].split(",")),
    ]
    for name, given in SOME.items()
}
EXPERIMENTS = ("mangold2022", "mangold2023", "talwar2015", "leaderboard", "audit")
ALL = {name: [f"experiment={name}", "profile=smoke"] for name in EXPERIMENTS}
WHOLE = os.environ.get("DP_ERM_BENCH_ESTIMATES") == "all"


@pytest.fixture
def predicted(monkeypatch):
    """Plan a smoke profile; return the seconds of every line and of all trials."""
    found = []
    estimated = plan.estimated

    def kept(*given):
        found.append(estimated(*given)[0])
        return found[-1], "short runs"

    monkeypatch.setattr(plan, "estimated", kept)

    def planned(command):
        assert main([*command, "mode=plan"]) == 0
        lines = found.pop()
        every = {**lines, TOTAL: plan._total(lines.values())}
        return {k: math.fsum(line.costs.values()) for k, line in every.items()}

    return planned


@pytest.fixture
def measured(monkeypatch):
    """Run a smoke profile; return the CPU seconds of every line, and of all trials."""
    options = app.run_options

    def timed(*given, **more):
        made = options(*given, **more)
        if made.mode == "plan":
            return made
        return dataclasses.replace(made, execute="fakes.timed")

    monkeypatch.setattr(app, "run_options", timed)
    monkeypatch.setattr(app, "_finish", lambda folder, config: None)

    def ran(command, folder):
        assert main(command) == 0
        rows = [row for row in read_plan(folder) if row]
        records = Store(folder).records([row["key"] for row in rows])
        took = {r["key"]: r["facts"]["cpu"] for r in records}
        lines = {}
        for row in rows:
            label = row["panel"], row["line"]
            lines[label] = lines.get(label, 0.0) + took[row["key"]]
        return {**lines, TOTAL: math.fsum(took.values())}

    return ran


@pytest.mark.alone
@pytest.mark.parametrize("name", [*SOME, *(ALL if WHOLE else ())])
def test_a_plan_tells_the_seconds(name, predicted, measured, tmp_path, capsys):
    """Other work on the machine adds to both: the least of three tries counts."""
    command = [*(SOME | ALL)[name], "name=own", "runner.n_jobs=1"]
    told, took = {}, {}
    for attempt in range(3):
        place = [f"results_dir={tmp_path / str(attempt)}"]
        told = least(told, predicted([*command, *place]))
        assert not (tmp_path / str(attempt)).exists()
        took = least(
            took, measured([*command, *place], tmp_path / str(attempt) / "own")
        )
        assert set(took) == set(told)
        far, total = off(told, took), told[TOTAL] / took[TOTAL]
        with capsys.disabled():
            if WHOLE:
                print(
                    f"\n{name}: {told[TOTAL]:.3g} s planned, {took[TOTAL]:.3g} s "
                    f"taken, {far} off"
                )
        if not far and 1 / SUM <= total <= SUM:
            return
    pytest.fail(f"total {total:.3g}, lines off: {far}")


def off(told, took):
    """Return the ratios that are off, of lines of some tenths of a second.

    Shorter ones are mostly what the first batch of a process must load. Whose that is
    depends on the order, so that they are compared together.
    """
    small = {k for k in took if took[k] < TENTHS and k != TOTAL}
    pairs = [(k, told[k], took[k]) for k in took if k not in small and k != TOTAL]
    sums = (sum(found[k] for k in small) for found in (told, took))
    pairs += [("small", *sums)] if sum(took[k] for k in small) > TENTHS else []
    return {k: a / b for k, a, b in pairs if not 1 / FACTOR <= a / b <= FACTOR}


def least(known, found):
    """Return the smaller of two values of each line."""
    return {k: min(value, known.get(k, math.inf)) for k, value in found.items()}


def test_long_runs_are_told_from_their_first_steps(block):
    """Ten million steps, of which a probe makes about a quarter."""
    data = {"name": "log1", "n": 500, "p": 20}
    sgd = {"name": "sgd", "clip": 1.0, "batch_size": 1}
    one, short = (
        next(line.sweep(2))
        for passes in (20000, 1)
        for line in expand(
            [block(seed=[0], dataset=data, algorithm={**sgd, "passes": passes})]
        )[0]
    )
    (found,) = probed([(one,)], PATIENT).values()
    told = found.seconds(one.setting.batch_key.iterations(), 2)
    run_batch((short,))
    clock = Clock()
    (record,) = run_batch((one,))
    assert record["status"] == "ok"
    assert 1 / FACTOR < told / clock.lap() < FACTOR


HANGS = """
        while True:
            pass
"""
ENDS = """
        import os
        os._exit(1)
"""


@pytest.mark.parametrize("wrong", [HANGS, ENDS])
def test_what_never_ends_costs_its_own_estimate_only(
    block, tmp_path, monkeypatch, wrong
):
    begin = "        yield oracle.w\n"
    assert begin in SOUND
    (tmp_path / "wild.py").write_text(SOUND.replace(begin, wrong + begin, 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "PATIENCE", 1.0)
    pin = registry.pinned(str(tmp_path / "wild.py"))
    algorithm = {"name": pin, "clip": 1.0}
    wild, tame = (
        next(line.sweep(2))
        for line in expand([block(algorithm=algorithm, line="wrong"), block()])[0]
    )
    assert set(probed([(wild,), (tame,)], PATIENT)) == {1}


def test_what_only_the_first_batches_take_is_told_once(block, tmp_path, monkeypatch):
    """Of three trials that are named, and twenty of their kind that are not yet."""
    one = Probe(3, load=6.0, proof=1.0, cold=2.0, first=0.3)
    monkeypatch.setattr(
        plan, "tried", lambda examples: {e.sort: (e, one) for e in examples}
    )
    (line,), _ = expand([block()])
    trials = list(line.sweep(51))
    later = [(trials[0], 20, 20.0)]
    given = (Store(tmp_path), trials, trials, later, RunOptions())
    costs, _ = plan.costs_of(*given)
    (each,) = costs.values()
    assert 23 * each == pytest.approx(23 * 0.1 + 6.0 + 2.0 + 1.0)


def test_a_length_is_extrapolated_and_its_rows_counted():
    found = Probe(
        4, 9.0, 9.0, 9.0, 9.0, setup=1.0, first=2.0, step=0.5, row=0.25, end=1.0
    )
    assert found.seconds(11, 3) == 1.0 + 2.0 + 10 * 0.5 + 3 * 0.25 + 1.0
    assert found.seconds(1, 51) == 1.0 + 2.0 + 2 * 0.25 + 1.0
    assert found.seconds(0, 51) == 1.0 + 2.0 + 1 * 0.25 + 1.0


@each("count", [1, 7, 32, 33, 100])
@each("most", [1, 5, 32])
def test_the_size_of_a_batch_is_that_of_the_batches(block, count, most):
    trials = [
        one
        for line in expand([block(seed=list(range(count)))])[0]
        for one in line.sweep(51)
    ]
    sizes = [len(batch) for batch in batches_of(trials, most, 2e8)]
    assert batch_size(trials[0], count, most, 2e8) == max(sizes)


def test_examples_have_every_shape_that_may_be_chosen_or_inherited(tuned):
    axes = {"step": [0.1, 1.0], "clip": [2.0, 4.0], "passes": [1, 5]}
    inherit = {"line": "line", "parameters": ["passes", "order"]}
    heir = tuned(
        {"axes": {"step": [0.2, 0.4], "clip": [2.0]}, "inherit": inherit},
        line="heir",
        algorithm={"name": "random_cd"},
    )
    source = tuned({"axes": axes}, algorithm={"name": "random_cd", "order": "cyclic"})
    _, last = tuners_of(expand([source, heir])[0], 51, {})
    found = [one.setting.spec["algorithm"]["params"] for one in last.examples("report")]
    assert [params["passes"] for params in found] == [1, 5]
    assert {params["order"] for params in found} == {"cyclic"}
    assert {one.n_checkpoints for one in last.examples("report")} == {51}
    assert {one.n_checkpoints for one in last.examples("tune")} == {2}
