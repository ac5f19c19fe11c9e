import json
import math
from pathlib import Path

from dp_erm_bench.results import manifest
from dp_erm_bench.results.manifest import environment, read_manifest, write_manifest


def test_what_is_written_is_read(tmp_path):
    write_manifest(tmp_path, {"a": [1, math.inf], "path": Path("x"), "b": None})
    assert read_manifest(tmp_path) == {"a": [1, "inf"], "path": "x", "b": None}


def test_no_manifest_and_a_torn_one_read_as_empty(tmp_path):
    assert read_manifest(tmp_path) == {}
    (tmp_path / "manifest.json").write_text('{"a": 1')
    assert read_manifest(tmp_path) == {}


def test_the_environment_names_versions_and_machine():
    found = environment()
    json.dumps(found)
    assert found["packages"]["numpy"].count(".") >= 1
    assert found["cpu"] and found["cpu_count"] >= 1


def test_a_folder_without_git_has_no_commit(tmp_path, monkeypatch):
    assert manifest._git(tmp_path) is None
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    assert manifest._git(tmp_path) is None
