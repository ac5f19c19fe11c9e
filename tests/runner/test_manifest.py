"""Test that manifests are complete, and that every row of a table names one."""

import hashlib
import json
import re
import subprocess

import pytest

from dp_erm_bench import __version__
from dp_erm_bench.report.panels import commit_in_words
from dp_erm_bench.results import files
from dp_erm_bench.results.runs import _state_of_checkout, read_manifest, read_run
from dp_erm_bench.results.table import load_results
from dp_erm_bench.runner import experiment, session
from dp_erm_bench.runner.environment import machine_kind

SOLVER = '''
from dp_erm_bench.solvers.random_cd import RandomCD

class Mine(RandomCD):
    """Somebody's own."""
'''


def names(folder):
    return sorted(path.stem for path in (folder / "runs").iterdir())


def test_it_says_what_was_asked_with_what_when_and_what_came_of_it(inline, block):
    command = ("/usr/local/bin/dp-erm-bench", "seed=1", "name=my")
    config = {"budget": {"epsilon": float("inf")}}
    inline(
        block(seed=list(range(5))),
        command=command,
        config=config,
        profile="smoke",
        files={"study.yaml": b"12"},
    )
    found = read_manifest(inline.folder)
    assert found["command"] == ["dp-erm-bench", "seed=1", "name=my"]
    assert found["config"] == {"budget": {"epsilon": "inf"}}
    assert (found["profile"], found["experiment"]) == ("smoke", "study")
    assert found["blocks"][0]["seed"] == "range(0,5)"
    assert found["blocks"][0]["dataset"] == {"name": "log1", "n": 60, "p": 5}
    digest = hashlib.sha256(b"12").hexdigest()
    assert found["experiment_file"] == {"study.yaml": digest}
    kept = inline.folder / "sources" / digest[:16] / "study.yaml"
    assert kept.read_bytes() == b"12"
    content = found["data"][0]["content"]
    assert found["data"] == [{"name": "log1", "content": content, "public": True}]
    assert (
        found["computed_with"] == machine_kind()
        and "machine" not in found["computed_with"]
    )
    assert found["version"] == __version__
    assert found["environment"]["packages"]["numpy"]
    assert found["environment"]["threads_per_worker"] == 1
    assert set(found["environment"]["git"] or {"commit", "dirty"}) == {
        "commit",
        "dirty",
    }
    assert found["options"]["n_checkpoints"] == 51
    assert found["options"].keys().isdisjoint({"config", "command", "files"})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found["started"])
    assert found["started"] <= found["ended"] and found["seconds"] >= 0
    assert (found["outcome"], found["counts"]) == ("complete", {"ok": 5})
    assert (found["trials_run"], found["damaged"]) == (5, {})
    assert re.fullmatch("[0-9a-f]{64}", found["plan"])


def test_a_file_that_no_run_reads_is_no_change_of_the_checkout(tmp_path):
    who = ("-c", "user.name=a", "-c", "user.email=a")
    for words in (("init", "-q"), (*who, "commit", "-qm", "a", "--allow-empty")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    (tmp_path / "log").write_text("a")
    assert _state_of_checkout(tmp_path)["dirty"] is False
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "own.yaml").write_text("a")
    assert _state_of_checkout(tmp_path)["dirty"] is True


def test_the_blocks_of_an_experiment_are_not_told_twice(inline, block):
    inline(block(), config={"blocks": [block()]})
    found = read_manifest(inline.folder)
    assert found["blocks"] is None
    assert found["config"]["blocks"] == [block()]


@pytest.mark.parametrize(
    "seeds, told",
    [
        ([3, 4, 5], "range(3,6)"),
        ([0, 1], [0, 1]),
        ([0, 2, 4], [0, 2, 4]),
        ([2, 1, 0], [2, 1, 0]),
        ([0, True, 2], [0, True, 2]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        ([42, 43, 10**18], [42, 43, 10**18]),
        ([2**63 - 3, 2**63 - 2, 2**63 - 1], f"range({2**63 - 3},{2**63})"),
        ([[1, 2, 3], "a"], ["range(1,4)", "a"]),
        ({"a": (1, 2, 3, 4)}, {"a": "range(1,5)"}),
    ],
)
def test_only_consecutive_integers_are_a_range(seeds, told):
    assert experiment._short_range(seeds) == told


def test_every_row_leads_to_a_manifest_of_the_run_that_computed_it(inline, block):
    for seeds in ([0, 1], [0, 1, 2], [1, 2]):
        inline(block(seed=seeds))
    first, second, third = names(inline.folder)
    inline(block(seed=[0, 1, 2]))
    runs = load_results(inline.folder).groupby("seed")["run"].unique()
    assert runs.to_dict() == {0: [first], 1: [first], 2: [second]}
    for name, ran in ((first, 2), (second, 1), (third, 0)):
        found = read_run(inline.folder, name)
        assert (found["run"], found["trials_run"]) == (name, ran)
        assert found["outcome"] == "complete"
        assert commit_in_words(inline.folder, name).startswith("commit ")


def test_workers_write_in_the_name_of_the_run(run, block):
    assert run(block(), n_jobs=2) == 0
    (name,) = names(run.folder)
    assert set(load_results(run.folder)["run"]) == {name}
    assert read_manifest(run.folder)["run"] == name


def test_a_solver_of_ones_own_is_named_by_its_content(tmp_path):
    from dp_erm_bench import registry

    file = tmp_path / "mine.py"
    digests = []
    for text in (SOLVER, SOLVER + "\nCHANGED = True\n"):
        file.write_text(text)
        line = type("Line", (), {"algorithm": registry.pin_choice(str(file))})
        other = type("Line", (), {"algorithm": "random_cd"})
        (found,) = experiment.solver_files([line, other, line]).items()
        assert found[0] == "mine.py"
        digests.append(found[1])
    assert digests[0] != digests[1]
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in digests)


@pytest.mark.parametrize(
    "error, outcome",
    [
        (KeyboardInterrupt, "interrupted"),
        (RuntimeError, "failed"),
        (SystemExit, "interrupted"),
    ],
)
def test_a_run_that_does_not_end_well_says_so(
    inline, block, monkeypatch, error, outcome
):
    def stop(*given):
        raise error

    monkeypatch.setattr(session.Progress, "advance", stop)
    with pytest.raises(error):
        inline(block(), batch_trials=1)
    found = read_manifest(inline.folder)
    assert found["outcome"] == outcome
    assert found["ended"] and found["counts"] == {"ok": 1, "planned": 2}
    assert "plan" not in found


def test_while_it_runs_it_is_running(inline, block, monkeypatch):
    seen = []
    execute = session.Session.execute

    def watched(self, *given):
        seen.append(read_manifest(inline.folder))
        return execute(self, *given)

    monkeypatch.setattr(session.Session, "execute", watched)
    inline(block())
    (found,) = seen
    assert (found["outcome"], found["ended"]) == ("running", None)
    assert read_manifest(inline.folder)["run"] == found["run"]


def test_a_full_disk_at_the_end_hides_no_other_error(inline, block, monkeypatch):
    def stop(*given):
        monkeypatch.setattr(experiment, "write_run", full)
        raise ArithmeticError("the first error")

    def full(*given):
        with files.translate_os_errors(inline.folder):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(session.Progress, "advance", stop)
    with pytest.raises(ArithmeticError, match="the first error"):
        inline(block())


def test_a_manifest_is_json_a_person_can_read(inline, block):
    inline(block())
    text = (inline.folder / "manifest.json").read_text()
    assert text.startswith('{\n  "run": "') and json.loads(text)
