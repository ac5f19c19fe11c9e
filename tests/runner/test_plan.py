"""mode=plan: counts, estimated times, and nothing else."""

import pytest

from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.experiment import parameters
from dp_erm_bench.experiment.expand import expand
from dp_erm_bench.problems.erm import build
from dp_erm_bench.results.store import Segment, Store
from dp_erm_bench.runner import plan
from dp_erm_bench.runner.plan import costs_of, duration, wall

CHEAP, DEAR = 0.25, 600.0


def planned(*blocks, rows=51):
    return [one for line in expand(blocks)[0] for one in line.sweep(rows)]


def record(folder, trials, seconds):
    segment = Segment(folder, "run")
    for one, cost in zip(trials, seconds, strict=True):
        found = {"key": one.key, "status": "ok", "facts": {}, "trajectory": {}}
        segment.append([found], cost)
    segment.close()
    return Store(folder)


def costs(folder, trials):
    seconds, basis = costs_of(Store(folder), trials, trials)
    return basis, [seconds[one.kind] for one in trials]


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
    assert rows["total"][:4] == ["5", "0", "0", "5"]
    assert last == (
        "about 1 s on 1 worker, from a model of the work, "
        "for nothing like it is recorded"
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


def test_the_time_is_that_of_the_same_parameters(run, block, capsys):
    trials = planned(block(seed=[0, 1, 2]))
    record(run.folder, trials, [1.0, DEAR, DEAR])
    seeds = list(range(15))
    assert run(block(seed=seeds), mode="plan", n_jobs=4) == 0
    rows, last = table(capsys.readouterr().out)
    assert rows["line"] == ["15", "3", "0", "12", "30 min"]
    assert last == (
        "about 30 min on 4 workers, from recorded trials of the same parameters"
    )


def test_few_trials_take_as_long_as_the_longest(run, block, capsys):
    record(run.folder, planned(block(seed=[0])), [DEAR])
    assert run(block(seed=[0, 1]), mode="plan", n_jobs=8) == 0
    assert table(capsys.readouterr().out)[0]["line"][-1] == "10 min"


def test_other_parameters_of_the_algorithm_are_scaled_by_work(block, tmp_path):
    known = planned(block())
    record(tmp_path, known, [CHEAP] * 3)
    more = planned(block(algorithm={"name": "random_cd", "clip": 1.0, "passes": 8}))
    basis, found = costs(tmp_path, known + more)
    scale = each(more[0], 3) / each(known[0], 1)
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
    greedy = planned(block(algorithm={"name": "greedy_cd", "clip": 1.0}))
    assert costs(inline.folder, greedy)[0] == plan.GUESSED


def test_failures_and_other_checkpoints_are_no_measure(block, tmp_path):
    trials = planned(block())
    segment = Segment(tmp_path, "run")
    failed = {"key": trials[0].key, "status": "timeout", "message": "too long"}
    segment.append([failed], DEAR)
    segment.close()
    assert costs(tmp_path, trials)[0] == plan.GUESSED
    record(tmp_path, planned(block(), rows=2), [DEAR] * 3)
    both = [*trials, *planned(block(), rows=2)]
    seconds, basis = costs_of(Store(tmp_path), both, trials)
    scale = each(trials[0], 3) / each(planned(block(), rows=2)[0], 1)
    assert seconds[trials[0].kind] == pytest.approx(DEAR * scale)
    assert basis == plan.SCALED


def test_few_records_are_read_however_many_there_are(block, tmp_path, monkeypatch):
    trials = planned(block(seed=list(range(300))))
    record(tmp_path, trials[:-1], [CHEAP] * 299)
    asked = []
    records = Store.records
    monkeypatch.setattr(
        Store, "records", lambda self, keys: asked.extend(keys) or records(self, keys)
    )
    costs_of(Store(tmp_path), trials, trials[-1:])
    assert 0 < len(asked) <= 2 * plan.SAMPLE


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
