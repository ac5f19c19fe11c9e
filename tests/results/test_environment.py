import json

from dp_erm_bench.experiment.fingerprint import LIBRARIES
from dp_erm_bench.results import environment as module
from dp_erm_bench.results.environment import PACKAGES, environment


def test_the_environment_names_versions_machine_and_threads():
    found = environment()
    json.dumps(found)
    assert found["packages"]["numpy"].count(".") >= 1
    assert found["cpu"] and found["cpu_count"] >= found["cpus_usable"] >= 1
    assert found["threads_per_worker"] == 1
    assert found["numba_threading_layer"] == "default"


def test_every_library_of_the_fingerprint_is_named():
    assert set(LIBRARIES) <= set(PACKAGES)


def test_no_path_of_the_machine_is_told():
    text = json.dumps(environment())
    assert str(module.Path(__file__).parents[2]) not in text


def test_a_folder_without_git_has_no_commit(tmp_path, monkeypatch):
    assert module._git(tmp_path) is None
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    assert module._git(tmp_path) is None
