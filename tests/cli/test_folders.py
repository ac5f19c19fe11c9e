"""Test commands on results folders that are damaged or not writable."""

import os
import subprocess
import sys

import pytest

from dp_erm_bench.cli.main import main, run_command
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import sealed_json
from dp_erm_bench.report import make
from dp_erm_bench.results import runs
from dp_erm_bench.results.runs import _host_name, read_manifest, write_run
from dp_erm_bench.results.store import Plan


@pytest.fixture
def folder(tmp_path):
    """An empty sweep."""
    with Plan(tmp_path / "sweep", append=True) as plan:
        plan.add([])
    return tmp_path / "sweep"


def sentence(capsys):
    said = capsys.readouterr().err
    assert said.startswith("dp-erm-bench: ") and said.count("\n") == 1
    return said


LONG = b'verdict\n"' + 140_000 * b"x"


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a,b\n1,2\n", LONG])
def test_damaged_claims_are_a_sentence_with_the_way_out(folder, data, capsys):
    (folder / "claims.csv").write_bytes(data)
    assert run_command("report", [str(folder)]) == 2
    said = sentence(capsys)
    assert f"claims.csv: is damaged; dp-erm-bench collect {folder}" in said


def test_empty_claims_are_none(folder, capsys):
    (folder / "claims.csv").write_bytes(b"")
    assert run_command("report", [str(folder)]) == 0
    assert "no claims" in capsys.readouterr().out


ODD = sealed_json({"config": 3})


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", ODD, b'"x"'])
def test_collect_does_without_a_manifest(folder, data, capsys):
    (folder / "manifest.json").write_bytes(data)
    assert run_command("collect", [str(folder)]) == 0
    assert capsys.readouterr().err == f"results: {folder / 'results.parquet'}\n"


def test_collect_notes_runs_that_died(folder):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    write_run(folder, {"run": f"1-{_host_name()}-{process.pid}", "outcome": "running"})
    assert run_command("collect", [str(folder)]) == 0
    assert read_manifest(folder)["outcome"] == "interrupted"


def test_collect_leaves_running_runs_alone(folder):
    write_run(folder, {"run": f"1-{_host_name()}-{os.getpid()}", "outcome": "running"})
    before = read_manifest(folder)
    assert run_command("collect", [str(folder)]) == 0
    after = read_manifest(folder)
    assert after.pop("table")["missing"] == 0 and after == before


def test_a_table_that_cannot_be_written_is_a_sentence(folder, capsys):
    (folder / "results.parquet").mkdir()
    assert run_command("collect", [str(folder)]) == 2
    assert "Is a directory; what is recorded stays" in sentence(capsys)


@pytest.mark.parametrize("name", ["claims.csv", "figures"])
def test_what_is_drawn_and_judged_meets_the_same_sentence(folder, monkeypatch, name):
    monkeypatch.setattr(runs, "write_atomic", full)
    (folder / "figures").write_text("a file")
    config = {"figures": [{"kind": "curves"}]}
    if name == "claims.csv":
        config = {"claims": [{"kind": "none"}], "name": "x"}
        monkeypatch.setattr("dp_erm_bench.report.claims.judge.evaluate_claims", judged)
    with pytest.raises(UsageError, match="; what is recorded stays"):
        make.draw_and_judge(folder, config)


def judged(table, config):
    return table[["trial"]]


def full(*given):
    raise OSError(28, "No space left on device")


def test_a_place_that_takes_nothing_is_one_sentence_of_the_command(capsys, tmp_path):
    (tmp_path / "sweep").write_text("")
    given = ["dataset=log1", "algorithm=random_cd", "algorithm.random_cd.clip=1"]
    assert main([*given, f"results_dir={tmp_path}"]) == 2
    said = sentence(capsys)
    assert "/sweep: Not a directory; what is recorded stays; " in said
    assert "Errno" not in said
