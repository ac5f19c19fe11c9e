import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.lines import LIBRARIES
from dp_erm_bench.results import runs
from dp_erm_bench.results.runs import (
    PACKAGES,
    describe_environment,
    new_run_id,
    note_ended,
    read_manifest,
    read_run,
    write_run,
)

HERE = runs._host_name()


def test_ids_are_sorted_by_time_and_name_the_process():
    first, second = new_run_id(), new_run_id()
    assert first < second
    assert first.endswith(f"-{os.getpid()}")


def test_a_host_of_any_name_makes_an_id_of_three_parts(monkeypatch):
    monkeypatch.setattr(runs.socket, "gethostname", lambda: "a-b.c")
    assert new_run_id().split("-")[1:] == ["a_b_c", str(os.getpid())]


def test_every_run_keeps_its_manifest_and_the_latest_is_copied(tmp_path):
    for run in ("1-a-1", "2-a-1"):
        write_run(tmp_path, {"run": run, "b": [1, math.inf], "c": Path("x")})
    assert read_run(tmp_path, "1-a-1") == {"run": "1-a-1", "b": [1, "inf"], "c": "x"}
    assert read_manifest(tmp_path)["run"] == "2-a-1"


def test_without_a_readable_manifest_there_is_none(tmp_path):
    assert read_manifest(tmp_path) == {} == read_run(tmp_path, "1-a-1")
    for text in ("{", "[1]", "", "\x00"):
        (tmp_path / "manifest.json").write_text(text)
        assert read_manifest(tmp_path) == {}


def test_a_damaged_latest_manifest_is_read_from_its_run(tmp_path):
    for run in ("1-a-1", "2-a-1", "3-a-1"):
        write_run(tmp_path, {"run": run})
    (tmp_path / "manifest.json").write_text("{")
    assert read_manifest(tmp_path) == {"run": "3-a-1"}
    (tmp_path / "runs" / "3-a-1.json").write_text("{")
    assert read_manifest(tmp_path) == {"run": "2-a-1"}


@pytest.fixture(scope="module")
def gone():
    """The id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_run_whose_process_is_gone_is_noted_as_interrupted(tmp_path, gone):
    run = f"1-{HERE}-{gone}"
    write_run(tmp_path, {"run": run, "outcome": "running", "ended": None})
    note_ended(tmp_path)
    found = read_run(tmp_path, run)
    assert (found["outcome"], found["ended"]) == ("interrupted", None)
    assert found["noticed"]
    assert read_manifest(tmp_path) == found
    before = (tmp_path / "manifest.json").stat().st_ino
    note_ended(tmp_path)
    assert (tmp_path / "manifest.json").stat().st_ino == before


def test_a_later_manifest_stays_the_latest(tmp_path, gone):
    write_run(tmp_path, {"run": f"1-{HERE}-{gone}", "outcome": "running"})
    write_run(tmp_path, {"run": f"2-{HERE}-{gone}", "outcome": "complete"})
    note_ended(tmp_path)
    assert read_run(tmp_path, f"1-{HERE}-{gone}")["outcome"] == "interrupted"
    assert read_manifest(tmp_path)["outcome"] == "complete"


@pytest.mark.parametrize(
    "run",
    [f"1-{HERE}-{os.getpid()}", "1-elsewhere-1", "odd", ""],
    ids=["alive", "elsewhere", "odd", "empty"],
)
def test_of_other_runs_nothing_is_said(tmp_path, run):
    content = {"run": run, "outcome": "running"}
    write_run(tmp_path, content)
    note_ended(tmp_path)
    assert read_run(tmp_path, run) == content


def test_a_damaged_manifest_of_a_run_that_is_gone_is_made_readable(tmp_path, gone):
    path = tmp_path / "runs" / f"1-{HERE}-{gone}.json"
    path.parent.mkdir()
    path.write_text('{"outcome": "running", \x00')
    note_ended(tmp_path)
    assert json.loads(path.read_text())["outcome"] == "interrupted"


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file: .*what is recorded stays"):
        write_run(tmp_path / "file", {"run": "1-a-1"})


def test_the_environment_names_versions_machine_and_threads():
    found = describe_environment()
    json.dumps(found)
    assert found["packages"]["numpy"].count(".") >= 1
    assert found["cpu"] and found["cpu_count"] >= found["cpus_usable"] >= 1
    assert found["threads_per_worker"] == 1
    assert found["numba_threading_layer"] == "default"


def test_every_library_of_the_fingerprint_is_named():
    assert set(LIBRARIES) <= set(PACKAGES)


def test_no_path_of_the_machine_is_told():
    text = json.dumps(describe_environment())
    assert str(Path(runs.__file__).parents[2]) not in text


def test_a_folder_without_git_has_no_commit(tmp_path, monkeypatch):
    assert runs._state_of_checkout(tmp_path) is None
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    assert runs._state_of_checkout(tmp_path) is None
