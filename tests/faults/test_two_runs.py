"""Test several runs, and `collect_table`, in one folder at the same time."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sweeping
from launch import wait_for

from dp_erm_bench.paths import sealed_json
from dp_erm_bench.results.files import lock_folder
from dp_erm_bench.results.runs import note_ended, read_manifest, read_run
from dp_erm_bench.results.store import Store, read_plan
from dp_erm_bench.results.table import collect_table, is_stale, load_results

SWEEP = range(6)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a run in a process of its own; those left over are ended."""
    monkeypatch.setenv(sweeping.RUNS, str(tmp_path / "runs"))
    started = []

    def launch(seeds, append=True, report=(), execute="sweeping.together"):
        given = {
            "folder": str(tmp_path),
            "seeds": list(seeds),
            "append": append,
            "report": list(report),
            "execute": execute,
        }
        line = [sys.executable, str(Path(sweeping.__file__)), json.dumps(given)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(line, **streams))
        return started[-1]

    yield launch
    for process in started:
        process.kill()
        process.communicate()


def ended(*processes):
    """Wait for runs; none may fail or complain."""
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert err == ""
        yield out


def seeds_of(folder, line="line"):
    table = load_results(folder)
    assert not table.duplicated(["trial", "panel", "line", "phase", "iteration"]).any()
    return set(table.loc[table["line"] == line, "seed"])


def every_row_leads_to_a_manifest(folder):
    for run in load_results(folder)["run"].unique():
        assert read_run(folder, run)["run"] == run
        assert read_run(folder, run)["outcome"] == "complete"


@pytest.mark.parametrize(
    "second", [pytest.param(SWEEP, marks=pytest.mark.slow), range(4, 10)]
)
def test_two_sweeps_leave_the_trials_of_both(tmp_path, start, second):
    outputs = [*ended(start(SWEEP), start(second))]
    everything = {*SWEEP, *second}
    assert [out.split()[1] for out in outputs] == ["6", "6"]
    assert seeds_of(tmp_path) == everything
    assert len(Store(tmp_path)) == len(everything)
    assert len(list(read_plan(tmp_path))) == len(everything)
    assert not is_stale(tmp_path)
    every_row_leads_to_a_manifest(tmp_path)
    (again,) = ended(start(everything))
    assert "(0 run now)" in again


@pytest.mark.parametrize("long", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_two_profiles_leave_the_plan_of_the_one_that_ends_last(tmp_path, start, long):
    sizes = (30, 4) if long == 0 else (4, 30)
    firsts = zip((0, 50), sizes, strict=True)
    profiles = [(range(s, s + n), range(100 + s, 103 + s)) for s, n in firsts]
    runs = [start(seeds, False, report) for seeds, report in profiles]
    outputs = [*ended(*runs)]
    last = read_manifest(tmp_path)
    assert last["outcome"] == "complete"
    (block, tuned) = last["blocks"]
    place = [f"range({p[0][0]},{p[0][-1] + 1})" for p in profiles].index(block["seed"])
    seeds, report = profiles[place]
    assert seeds_of(tmp_path) == set(seeds)
    table = load_results(tmp_path)
    assert set(table.loc[table["phase"] == "report", "seed"]) == set(report)
    count = sum(last["counts"].values())
    assert len(list(read_plan(tmp_path))) == table["trial"].nunique() == count
    assert f"{count} trials" in outputs[place]
    every_row_leads_to_a_manifest(tmp_path)
    seeds, report = profiles[1 - place]
    (again,) = ended(start(seeds, False, report))
    assert "(0 run now)" in again
    assert seeds_of(tmp_path) == set(seeds)


def test_collect_while_a_run_is_going_on_sees_a_part_and_harms_nothing(tmp_path, start):
    (tmp_path / "runs").mkdir()
    text = sealed_json({"run": "another"})
    (tmp_path / "runs" / "another.json").write_bytes(text)
    run, found = start(range(40)), []
    while run.poll() is None:
        if (tmp_path / "plan.jsonl").is_file():
            collect_table(tmp_path)
            found.append(load_results(tmp_path)["trial"].nunique())
    assert [*ended(run)]
    assert found == sorted(found) and any(0 < number < 40 for number in found)
    assert seeds_of(tmp_path) == set(range(40))
    assert not is_stale(tmp_path)


def test_the_death_of_one_run_is_none_of_the_other_and_is_noted(tmp_path, start):
    other, doomed = start(range(4, 10)), start(SWEEP)
    wait_for(lambda: len(list((tmp_path / "runs").glob("*.json"))) == 2)
    os.kill(doomed.pid, signal.SIGKILL)
    doomed.communicate()
    assert [*ended(other)]
    (name,) = (
        path.stem
        for path in (tmp_path / "runs").iterdir()
        if path.stem.endswith(f"-{doomed.pid}")
    )
    assert read_run(tmp_path, name)["outcome"] == "running"
    assert read_run(tmp_path, name)["ended"] is None
    recorded = len(Store(tmp_path))
    (again,) = ended(start(range(10)))
    assert f"10 trials ({10 - recorded} run now): 10 ok" in again
    noted = read_run(tmp_path, name)
    assert noted["outcome"] == "interrupted"
    assert noted["ended"] is None and noted["noticed"] > noted["started"]
    assert read_manifest(tmp_path)["run"] != name
    assert seeds_of(tmp_path) == set(range(10))


def test_a_run_that_goes_on_is_not_said_to_have_ended(tmp_path, start):
    run = start(SWEEP)
    wait_for(lambda: (tmp_path / "manifest.json").is_file())
    note_ended(tmp_path)
    assert read_manifest(tmp_path)["outcome"] == "running"
    run.kill()
    run.wait()
    note_ended(tmp_path)
    assert read_manifest(tmp_path)["outcome"] == "interrupted"


def test_the_lock_is_held_by_one_at_a_time(tmp_path):
    inside, most = [], []

    def enter():
        for _ in range(20):
            with lock_folder(tmp_path):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1 and len(most) == 60
