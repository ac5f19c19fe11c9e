"""Test folders that cannot take results: one sentence, before anything runs.

In a few cases this is possible only during the run.
"""

import json

import pytest
from launch import ended, without_privilege

from dp_erm_bench import paths
from dp_erm_bench.errors import UsageError
from dp_erm_bench.results import runs as manifests
from dp_erm_bench.results import table
from dp_erm_bench.results.files import check_writable
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import collect_table, load_results
from dp_erm_bench.runner import session

STAYS = "what is recorded stays"


def fail(*given):
    raise AssertionError("a data set was loaded, or a trial run")


@pytest.mark.parametrize("below", ["", "deep/below"])
def test_a_file_where_the_folder_should_be(run, block, tmp_path, monkeypatch, below):
    monkeypatch.setattr(session, "expand_blocks", fail)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=f"Not a directory; {STAYS}"):
        run(block(), folder=tmp_path / "file" / below)
    assert (tmp_path / "file").read_text() == "mine"


def test_missing_parents_are_made(inline, block, tmp_path):
    assert inline(block(), folder=tmp_path / "a" / "b" / "run") == 0
    assert len(load_results(tmp_path / "a" / "b" / "run")) == 6


def test_the_check_itself_leaves_no_trace(tmp_path):
    check_writable(tmp_path / "a" / "b")
    check_writable(tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["records.jsonl", "runs", ".lock"])
def test_what_should_be_a_folder_or_a_file_and_is_not(inline, block, name):
    inline.folder.mkdir()
    if name != "runs":
        (inline.folder / name).mkdir()
    else:
        (inline.folder / name).write_text("")
    with pytest.raises(UsageError, match=STAYS):
        inline(block())


@pytest.mark.parametrize("name", ["plan.jsonl", "results.parquet", "choices.csv"])
def test_a_folder_in_the_place_of_a_file(inline, block, name):
    (inline.folder / name).mkdir(parents=True)
    with pytest.raises(UsageError, match=f"Is a directory; {STAYS}"):
        inline(block())
    content = json.loads((inline.folder / "manifest.json").read_text())
    assert content["outcome"] == "failed" and content["ended"]
    recorded = len(Store(inline.folder))
    assert recorded == (0 if name == "plan.jsonl" else 3)
    (inline.folder / name).rmdir()
    assert inline(block()) == 0
    assert len(load_results(inline.folder)) == 6


def full(*given):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "module, writes, ran",
    [
        (manifests, "write_atomic", 0),
        (paths, "write_atomic", 3),
        (table, "write_atomic", 3),
    ],
    ids=["manifest", "choices", "table"],
)
def test_a_disk_that_fills_up_is_told_in_one_sentence(
    inline, block, monkeypatch, module, writes, ran
):
    monkeypatch.setattr(module, writes, full)
    with pytest.raises(UsageError, match=f"run: No space left on device; {STAYS}"):
        inline(block())
    monkeypatch.undo()
    assert len(Store(inline.folder)) == ran
    assert inline(block()) == 0
    assert len(load_results(inline.folder)) == 6


def test_a_folder_that_only_can_be_read(runs, monkeypatch):
    assert runs("healthy").code == 0
    folders = [runs.folder, runs.folder / "runs"]
    for folder in folders:
        folder.chmod(0o555)
    before = runs.table()
    runs.calls()
    found = ended(runs.start("healthy", 20, setup=without_privilege))
    for folder in folders:
        folder.chmod(0o755)
    assert found.code == 2 and f"Permission denied; {STAYS}" in found.err
    assert found.err.count("\n") == 1
    assert runs.calls() == []
    assert runs.table().equals(before)


def test_a_table_that_cannot_be_written_is_told_by_collect(inline, block, monkeypatch):
    inline(block())
    monkeypatch.setattr(table, "write_atomic", full)
    with pytest.raises(UsageError, match=f"No space left on device; {STAYS}"):
        collect_table(inline.folder)
