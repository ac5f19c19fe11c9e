"""Test mode=plan: counts, times estimated from records, and that nothing runs."""

import pytest

from dp_erm_bench.cli.main import main
from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.experiment import parameters
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.tune import tuners_of
from dp_erm_bench.problems.erm import build
from dp_erm_bench.results.store import Plan, RecordWriter, Store
from dp_erm_bench.runner import plan
from dp_erm_bench.runner.plan import duration_in_words, wall_time
from tests.contract.own import SOUND

CHEAP, DEAR = 0.25, 600.0
GREEDY = {"name": "greedy_cd", "clip": 1.0}


def planned(*blocks, rows=51):
    return [one for line in expand_blocks(blocks)[0] for one in line.sweep(rows)]


def record(folder, trials, seconds, size=1, **more):
    folder.mkdir(exist_ok=True)
    writer = RecordWriter(folder, "run")
    with Plan(folder, append=True) as lines:
        lines.add(one.row("study") for one in trials)
    for one, cost in zip(trials, seconds, strict=True):
        facts = {"batch_size": size}
        found = {"key": one.key, "status": "ok", "facts": facts, "trajectory": {}}
        writer.append([{**found, **more}], cost)
    return Store(folder)


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
    assert rows["line"] == ["3", "0", "0", "3", "?"]
    assert rows["other"][:4] == ["2", "0", "0", "2"]
    # The run of seed 0 that both want is one.
    assert rows["total"][:4] == ["4", "0", "0", "4"]
    assert last == "no recorded trial has the settings of 4 trials"
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
    assert last == "7.2e+03 s of computing, 30 min on 4 workers, from recorded trials"


def test_few_trials_take_as_long_as_the_longest(run, block, capsys):
    record(run.folder, planned(block(seed=[0])), [DEAR])
    assert run(block(seed=[0, 1]), mode="plan", n_jobs=8) == 0
    assert table(capsys.readouterr().out)[0]["line"][-1] == "10 min"


def test_trials_of_other_settings_have_no_time(run, block, capsys):
    record(run.folder, planned(block(seed=[0])), [DEAR])
    more = {"name": "random_cd", "clip": 1.0, "passes": 8}
    blocks = block(seed=[1, 2]), block(algorithm=more, seed=[1], line="more")
    assert run(*blocks, mode="plan", n_jobs=1) == 0
    said = capsys.readouterr().out
    rows, last = table(said)
    assert [rows[one][-1] for one in ("line", "more", "total")] == [
        "20 min",
        "?",
        "20 min+",
    ]
    assert last == "no recorded trial has the settings of 1 trial"
    assert (
        "\n1.2e+03 s of computing, 20 min+ on 1 worker, from recorded trials\n" in said
    )


def test_other_seeds_of_another_sweep_tell_too(inline, tuned, block, capsys):
    """The plan holds them as they were resolved, the line as they were asked for."""
    assert inline(block(), tuned(line="best"), append_plan=True) == 0
    capsys.readouterr()
    more = block(seed=[7, 8]), tuned(line="best")
    assert inline(*more, mode="plan") == 0
    rows, _ = table(capsys.readouterr().out)
    assert rows["line"][-1] == "< 1 s"


def test_what_was_refused_or_failed_tells_no_time(run, block, capsys):
    trials = planned(block(seed=[0, 1]))
    for one, status in zip(trials, ("skipped", "timeout"), strict=True):
        record(run.folder, [one], [DEAR], status=status)
    assert run(block(seed=[2]), mode="plan") == 0
    assert table(capsys.readouterr().out)[0]["line"][-1] == "?"


def test_lines_are_named_and_refusals_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = "dataset=log1 algorithm=frank_wolfe,random_cd,svrg algorithm.svrg.clip=null"
    line += " algorithm.random_cd.clip=1 seed=0,1 mode=plan dataset.bounds=null"
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


def test_few_records_are_read_however_many_there_are(block, tmp_path, monkeypatch):
    trials = planned(block(seed=list(range(300))))
    record(tmp_path, trials[:-1], [CHEAP + i for i in range(299)])
    with Plan(tmp_path, append=True) as lines:
        lines.add(one.row("e") for one in trials)
    asked = []
    records = Store.records
    monkeypatch.setattr(
        Store, "records", lambda self, keys: asked.extend(keys) or records(self, keys)
    )
    kind = trials[0].kind
    found = plan.median_costs(Store(tmp_path), trials[-1:], {kind})
    assert len(asked) == plan.SAMPLE
    assert found[kind] == pytest.approx(CHEAP + (plan.SAMPLE - 1) / 2)


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

    parameters._problem_of.cache_clear()
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
    assert duration_in_words(seconds) == text


def test_a_day_of_work_is_shared_by_the_workers():
    assert wall_time([10.0] * 8, 4) == 20.0
    assert wall_time([10.0, 1.0], 4) == 10.0
    assert wall_time([], 4) == 0.0


def test_an_example_has_the_first_values(tuned):
    axes = {"step": [0.2, 0.4], "clip": [2.0], "passes": [1, 5]}
    algorithm = {"name": "random_cd", "order": "cyclic"}
    (one,) = tuners_of(
        expand_blocks([tuned({"axes": axes}, algorithm=algorithm)])[0], 51, {}
    )
    params = one.example("report").setting.spec["algorithm"]["params"]
    assert params == {"step": 0.2, "clip": 2.0, "passes": 1.0, "order": "cyclic"}
    assert one.example("report").n_checkpoints == 51
    assert one.example("tune").n_checkpoints == 2
