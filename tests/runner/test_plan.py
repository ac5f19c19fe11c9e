"""mode=plan: counts, times that rest on records or on the model, nothing that runs."""

import math

import pytest

from dp_erm_bench.cli.main import main
from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.experiment import parameters
from dp_erm_bench.experiment.expand import expand
from dp_erm_bench.experiment.lines import SECOND
from dp_erm_bench.experiment.tune import tuners_of
from dp_erm_bench.problems.erm import build
from dp_erm_bench.results.store import Segment, Store, read_plan
from dp_erm_bench.runner import plan
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.plan import Expected, costs_of, duration, wall
from dp_erm_bench.runner.session import batch_size, batches_of
from tests.contract.own import SOUND
from tests.loops import each as every

CHEAP, DEAR = 0.25, 600.0
GREEDY = {"name": "greedy_cd", "clip": 1.0}


def planned(*blocks, rows=51):
    return [one for line in expand(blocks)[0] for one in line.sweep(rows)]


def record(folder, trials, seconds, size=1, **more):
    segment = Segment(folder, "run")
    for one, cost in zip(trials, seconds, strict=True):
        facts = {"batch_size": size}
        found = {"key": one.key, "status": "ok", "facts": facts, "trajectory": {}}
        segment.append([{**found, **more}], cost)
    segment.close()
    return Store(folder)


def told(folder, trials, later=(), planned=None):
    planned = trials if planned is None else planned
    return costs_of(Store(folder), planned, trials, later, RunOptions())


def costs(folder, trials):
    found = told(folder, trials)
    return "; ".join(found.bases), [found.seconds[one.kind] for one in trials]


def each(one, size):
    """The work of a trial in a batch of so many."""
    return one.work.batch(size) / size


def table(text):
    """Return the rows of a printed plan and its last line."""
    lines = text.splitlines()
    rows = {}
    for line in lines[1:]:
        if line[66:].split() and line[28:30].strip():
            rows[line[28:65].strip()] = line[65:].split(maxsplit=4)
    return rows, lines[-1]


def test_it_counts_and_writes_nothing(run, block, capsys):
    assert run(block(), block(line="other", seed=[0, 7]), mode="plan") == 0
    rows, last = table(capsys.readouterr().out)
    assert rows["line"] == ["3", "0", "0", "3", "< 1 s"]
    assert rows["other"][:4] == ["2", "0", "0", "2"]
    # The run of seed 0 that both want is one.
    assert rows["total"][:4] == ["4", "0", "0", "4"]
    assert last == (
        "about 1 s on 1 worker, from a model of the work without data, calibrations "
        "and optima, for nothing like it is recorded"
    )
    assert not run.folder.exists()


def test_what_is_recorded_is_left_as_it_is(inline, block, capsys):
    assert inline(block()) == 0
    before = {p: p.read_bytes() for p in inline.folder.rglob("*") if p.is_file()}
    capsys.readouterr()
    assert inline(block(), mode="plan") == 0
    rows, last = table(capsys.readouterr().out)
    assert rows["line"] == rows["total"] == ["3", "3", "0", "0", "-"]
    assert "worker" not in last
    assert before == {
        p: p.read_bytes() for p in inline.folder.rglob("*") if p.is_file()
    }


def test_the_time_is_that_of_the_same_settings(run, block, capsys):
    trials = planned(block(seed=[0, 1, 2]))
    record(run.folder, trials, [1.0, DEAR, DEAR + 1], size=12)
    seeds = list(range(15))
    assert run(block(seed=seeds), mode="plan", n_jobs=4) == 0
    said = capsys.readouterr().out
    rows, last = table(said)
    assert rows["line"] == ["15", "3", "0", "12", "30 min"]
    assert last == "30 min on 4 workers, from recorded trials of the same settings"
    assert "\n7.2e+03 s of computing in all\n" in said


def test_few_trials_take_as_long_as_the_longest(run, block, capsys):
    record(run.folder, planned(block(seed=[0])), [DEAR])
    assert run(block(seed=[0, 1]), mode="plan", n_jobs=8) == 0
    assert table(capsys.readouterr().out)[0]["line"][-1] == "10 min"


def test_other_parameters_of_the_algorithm_are_scaled_by_work(block, tmp_path):
    known = planned(block())
    record(tmp_path, known, [CHEAP] * 3, size=3)
    more = planned(block(algorithm={"name": "random_cd", "clip": 1.0, "passes": 8}))
    basis, found = costs(tmp_path, known + more)
    scale = each(more[0], 3) / each(known[0], 3)
    assert found == pytest.approx([CHEAP] * 3 + [CHEAP * scale] * 3)
    assert scale != 1
    assert basis == f"{plan.SAME}; {plan.SCALED}"


def test_another_sweep_of_the_folder_tells_too(inline, block, capsys):
    assert inline(block(), append_plan=True) == 0
    store = Store(inline.folder)
    seconds = store.record(next(iter(store.index)))["cost"]
    assert store.record(next(iter(store.index)))["facts"]["batch_size"] == 1
    other = planned(block(dataset={"name": "log1", "n": 120, "p": 5}))
    basis, found = costs(inline.folder, other)
    scale = each(other[0], 3) / each(planned(block())[0], 1)
    assert basis == plan.SCALED
    assert found[0] == pytest.approx(seconds * scale, rel=0.9)
    assert costs(inline.folder, planned(block(algorithm=GREEDY)))[0] == plan.SCALED
    apart = planned(block(algorithm=GREEDY, dataset={"name": "log1", "n": 41, "p": 5}))
    assert costs(inline.folder, apart)[0] == plan.GUESSED


def test_the_same_settings_of_another_sweep_are_the_same(inline, tuned, block):
    """The plan holds them as they were resolved, the line as they were asked for."""
    assert inline(block(), tuned(line="best"), append_plan=True) == 0
    more = planned(block(seed=[7, 8]))
    assert costs(inline.folder, more)[0] == plan.SAME
    best = expand([tuned(line="best")])[0]
    others = [one for t in tuners_of(best, 51, {}) for one in t.examples("tune")]
    assert told(inline.folder, others).bases == (plan.SAME,)
    longer = planned(block(algorithm={"name": "random_cd", "clip": 1.0, "passes": 8}))
    assert costs(inline.folder, longer)[0] == plan.SCALED


def test_a_record_stands_for_its_batch_and_is_scaled_to_another_size(block, tmp_path):
    """Of 20 trials in a slow batch and of two in quick ones the median is quick."""
    trials = planned(block(seed=list(range(32))))
    record(tmp_path, trials[:20], [DEAR] * 20, size=8)
    record(tmp_path, trials[20:22], [CHEAP, 1.5 * CHEAP], size=8)
    seconds = told(tmp_path, trials[24:], planned=trials).seconds[trials[0].kind]
    assert seconds == pytest.approx(1.5 * CHEAP)
    alone = told(tmp_path, trials[31:], planned=trials).seconds[trials[0].kind]
    assert alone == pytest.approx(seconds * each(trials[0], 1) / each(trials[0], 8))
    assert alone > 2 * seconds


def test_what_a_worker_loads_is_its_start_not_its_trials(run, block, capsys):
    """Of 2 trials that share 100 s, steps took 0.4 s; what is left is paid once."""
    trials = planned(block(seed=list(range(4))))
    ran = {"trajectory": {"seconds": [0.0, 0.2]}}
    record(run.folder, trials[:1], [50.0], size=2, **ran)
    asked = trials[2:]
    found = told(run.folder, asked, planned=trials)
    each_of = found.seconds[trials[0].kind]
    bare = trials[0].setting.batch_key.work(0).batch(2)
    assert each_of == pytest.approx(0.2 * trials[0].work.batch(2) / bare)
    assert found.start == pytest.approx(2 * (50.0 - each_of))
    assert run(block(seed=[2, 3]), block(seed=[0], line="b"), mode="plan") == 0
    rows, _ = table(capsys.readouterr().out)
    assert rows["line"][-1] in ("< 1 s", "1 s") and rows["total"][-1] == "100 s"


def test_what_a_kind_computes_once_is_not_its_trials_each(block, tmp_path):
    """The first batch waits for the calibration; what is slow later is so by itself."""
    trials = planned(block(seed=list(range(4))))
    others = planned(block(algorithm=GREEDY))
    ran = {"trajectory": {"seconds": [0.0, 0.2]}}
    record(tmp_path, [others[0], trials[0]], [1.0, 50.0], size=2, **ran)
    bare = trials[0].setting.batch_key.work(0).batch(2)
    once = told(tmp_path, trials[2:], planned=others + trials)
    expected = 0.2 * trials[0].work.batch(2) / bare
    assert once.seconds[trials[0].kind] == pytest.approx(expected)
    assert once.start < 2
    slow = [others[0], *trials[:3]]
    record(tmp_path, slow, [1.0, 50.0, 60.0, 61.0], size=1, **ran)
    more = told(tmp_path, trials[3:], planned=others + trials)
    assert more.seconds[trials[0].kind] == pytest.approx(60.0)


def test_what_was_refused_tells_nothing_of_other_trials(block, tmp_path):
    trials = planned(block())
    record(tmp_path, trials, [DEAR] * 3, status="skipped")
    assert costs(tmp_path, trials)[0] == plan.SAME
    longer = planned(block(algorithm={"name": "random_cd", "clip": 1.0, "passes": 8}))
    assert told(tmp_path, longer, planned=trials).bases == (plan.GUESSED,)


def test_what_is_refused_by_the_model_takes_no_time(block, tmp_path):
    refused = planned(block(algorithm={"name": "svrg", "clip": None}))
    assert refused[0].work.own == 0
    assert costs(tmp_path, refused) == (plan.GUESSED, [0.0] * 3)


def test_lines_are_named_and_refusals_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = "dataset=log1 algorithm=frank_wolfe,random_cd,svrg algorithm.svrg.clip=null"
    line += " algorithm.random_cd.clip=1 seed=0,1 mode=plan"
    assert main(line.split()) == 0
    out = capsys.readouterr().out
    rows, _ = table(out)
    assert rows["frank_wolfe"][:4] == rows["random_cd"][:4] == ["2", "0", "0", "2"]
    told = out.splitlines()[-3:]
    assert told[0] == "will be skipped: 4 trials"
    assert "  2 x constraint=none: frank_wolfe needs a set with vertices" in told[1]
    assert told[2].startswith("  2 x ") and "log1" in out


HANGS = "        yield oracle.w\n"


@pytest.mark.parametrize("wrong", ["while True: pass", "import os; os._exit(1)"])
def test_no_solver_is_run(tmp_path, monkeypatch, capsys, wrong):
    """One that never ends, or ends its process, is counted like any other."""
    assert HANGS in SOUND
    monkeypatch.chdir(tmp_path)
    wild = SOUND.replace(HANGS, f"        {wrong}\n{HANGS}", 1)
    (tmp_path / "wild.py").write_text(wild)
    line = ["dataset=log1", "algorithm=wild.py,random_cd", "seed=0,1"]
    assert main([*line, "algorithm.random_cd.clip=1", "mode=plan"]) == 0
    (total,) = [x for x in capsys.readouterr().out.splitlines() if " total " in x]
    assert total.split()[:5] == ["total", "4", "0", "0", "4"]
    assert [path.name for path in tmp_path.iterdir()] == ["wild.py"]


def test_failures_and_other_checkpoints_are_no_measure(block, tmp_path):
    trials = planned(block())
    segment = Segment(tmp_path, "run")
    failed = {"key": trials[0].key, "status": "timeout", "message": "too long"}
    segment.append([failed], DEAR)
    segment.close()
    assert costs(tmp_path, trials)[0] == plan.GUESSED
    record(tmp_path, planned(block(), rows=2), [DEAR] * 3)
    both = [*trials, *planned(block(), rows=2)]
    found = told(tmp_path, trials, planned=both)
    scale = each(trials[0], 3) / each(planned(block(), rows=2)[0], 1)
    assert found.seconds[trials[0].kind] == pytest.approx(DEAR * scale)
    assert found.bases == (plan.SCALED,)


def test_few_records_are_read_however_many_there_are(block, tmp_path, monkeypatch):
    trials = planned(block(seed=list(range(300))))
    record(tmp_path, trials[:-1], [CHEAP + i for i in range(299)])
    asked = []
    records = Store.records
    monkeypatch.setattr(
        Store, "records", lambda self, keys: asked.extend(keys) or records(self, keys)
    )
    told(tmp_path, trials[-1:], planned=trials)
    assert 0 < len(asked) <= plan.SAMPLE


def test_a_tuned_line_counts_the_rounds_to_come(run, tuned, capsys):
    assert run(tuned(), mode="plan") == 0
    rows, _ = table(capsys.readouterr().out)
    assert rows["line"][:4] == ["26", "0", "0", "26"]


def test_a_trial_of_two_lines_takes_its_time_once(run, block, capsys):
    record(run.folder, planned(block(seed=[9])), [DEAR])
    both = block(seed=[0]), block(seed=[0], line="other")
    assert run(*both, block(seed=[9], line="third"), mode="plan") == 0
    rows, _ = table(capsys.readouterr().out)
    assert [rows[line][-1] for line in ("line", "other", "third", "total")] == [
        "10 min",
        "10 min",
        "-",
        "10 min",
    ]


def test_without_data_it_says_so(run, block, capsys, monkeypatch):
    def gone(spec):
        raise DataUnavailable("log1 is far away")

    parameters._problem.cache_clear()
    monkeypatch.setattr(build, "load_dataset", gone)
    assert run(block(dataset={"name": "log1", "n": 43, "p": 5}), mode="plan") == 0
    assert capsys.readouterr().out.splitlines() == [
        "nothing to run: none of the datasets can be had",
        "not run: log1: log1 is far away",
    ]


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.2, "< 1 s"),
        (1.2, "1 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3600, "60 min"),
        (7200, "2 h"),
        (86400 * 3, "3 d"),
    ],
)
def test_times_are_in_units_that_one_reads(seconds, text):
    assert duration(seconds) == text


def test_a_day_of_work_is_shared_by_the_workers():
    assert wall([10.0] * 8, 4) == 20.0
    assert wall([10.0, 1.0], 4) == 10.0
    assert wall([], 4) == 0.0


@every("count", [1, 7, 32, 33, 100])
@every("most", [1, 5, 32])
def test_the_size_of_a_batch_is_that_of_the_batches(block, count, most):
    trials = planned(block(seed=list(range(count))))
    sizes = [len(batch) for batch in batches_of(trials, most, 2e8)]
    assert batch_size(trials[0], count, most, 2e8) == max(sizes)


def test_trials_that_have_no_name_yet_are_told_in_their_batches(block, tmp_path):
    (one, *_) = planned(block())
    found = told(tmp_path, [], [Expected(one, 20)])
    assert found.seconds == {one.kind: pytest.approx(each(one, 20) / SECOND)}
    assert found.start == plan.START


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


SWEEP = [
    *("dataset=log1", "dataset.n=4000", "dataset.p=40", "budget.epsilon=1"),
    *("algorithm=gd,random_cd", "algorithm.gd.clip=1", "algorithm.random_cd.clip=1"),
    *("algorithm.gd.n_iter=400", "algorithm.random_cd.passes=20,100"),
    *("runner.n_jobs=1", "runner.progress=false"),
]


@pytest.mark.slow
@pytest.mark.alone
def test_other_seeds_take_what_records_of_few_tell(tmp_path, capsys):
    """Within a factor of two. Other work on the machine adds to both."""
    ratios = []
    for attempt in range(3):
        sweep = [*SWEEP, f"results_dir={tmp_path / str(attempt)}"]
        more, folder = [*sweep, "seed=range(2,66)"], tmp_path / str(attempt) / "sweep"
        assert main([*sweep, "seed=0,1"]) == 0
        capsys.readouterr()
        assert main([*more, "mode=plan"]) == 0
        *_, computing, last = capsys.readouterr().out.splitlines()
        assert last.endswith(f" on 1 worker, from {plan.SAME}")
        assert main(more) == 0
        store = Store(folder)
        keys = [row["key"] for row in read_plan(folder) if row["spec"]["seed"] > 1]
        assert len(keys) == 3 * 64
        took = math.fsum(store.index[key].cost for key in keys)
        ratios.append(float(computing.split()[0]) / took)
        if 0.5 < ratios[-1] < 2:
            return
    pytest.fail(f"predicted over taken: {ratios}")
