"""Test the examples on the pages on solvers, and the command `check`."""

import json
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.api import fit, load_problem
from dp_erm_bench.cli.main import main
from dp_erm_bench.contract import suite
from dp_erm_bench.contract.candidate import NotApplicable, candidate_of, require
from dp_erm_bench.contract.suite import Check
from dp_erm_bench.plugins.names import GROUP
from dp_erm_bench.releases.gaussian import GaussianLaw
from tests.contract.corpus import Made
from tests.contract.own import SOUND, TWINS, check_named
from tests.contract.own import few as few_of
from tests.pages import code_blocks, command_lines, find_block

LOSS = Path(__file__).parents[1] / "extending" / "loss"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "noisy_gd.py").write_text(SOUND)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(capsys):
    """Trials, done, failed and to do, as mode=plan tells them."""
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (total,) = [line for line in lines if line[:1] == ["total"]]
    return total[1:5]


QUIET = ["runner.n_jobs=1", "runner.progress=false"]


def kept(told):
    """Whether every check is kept, or says that it is of other solvers."""
    verdicts = [line.endswith(" ok") or "does not apply" in line for line in told[1:-1]]
    assert all(verdicts) and sum(verdicts) > 25 and "all checks pass" in told[-1]


def test_the_commands_of_the_doc_run(folder, capsys):
    check, sweep, _ = command_lines(*code_blocks("own_solver", "sh"))
    assert main(check) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "noisy_gd" and len(told) == len(suite.CHECKS) + 2
    kept(told)

    assert main([*sweep, *QUIET]) == 0
    table = pd.read_parquet(folder / "results" / "sweep" / "results.parquet")
    assert table.groupby("algorithm")["trial"].nunique().to_dict() == {
        "noisy_gd": 2,
        "random_cd": 2,
    }
    assert set(table["status"]) == {"ok"}
    manifest = json.loads((folder / "results" / "sweep" / "manifest.json").read_text())
    (found,) = manifest["solver_files"].values()
    assert len(found) == 64

    capsys.readouterr()
    assert main([*sweep, *QUIET, "mode=plan"]) == 0
    assert planned(capsys) == ["4", "4", "0", "0"]
    for more, recorded in (("\n# edited\n", "4"), ("\nEDITED = True\n", "2")):
        (folder / "noisy_gd.py").write_text(SOUND + more)
        assert main([*sweep, *QUIET, "mode=plan"]) == 0
        assert planned(capsys) == ["4", recorded, "0", str(4 - int(recorded))]


def test_the_loss_of_the_doc_runs(folder):
    text = find_block("class Tilted")
    assert text == (LOSS / "tilted.py").read_text()
    (folder / "tilted.py").write_text(text)
    assert (
        main(
            [
                *command_lines(find_block("tilted.py", "sh"))[0],
                *QUIET,
                "dataset.n=50",
                "dataset.p=4",
            ]
        )
        == 0
    )
    table = pd.read_parquet(folder / "results" / "sweep" / "results.parquet")
    assert set(table["status"]) == {"ok"} and set(table["loss"]) == {"tilted"}
    assert table["trial"].nunique() == 2


def test_the_doc_names_the_group_and_the_package_line():
    toml, yaml = find_block("entry-points", "toml"), find_block("_target_", "yaml")
    assert list(tomllib.loads(toml)["project"]["entry-points"]) == [GROUP]
    usual = (registry.conf_dir() / "algorithm" / "svrg.yaml").read_text()
    usual = usual.partition("# The grid and the limits of")[0]
    for old, new in (("SVRG", "NoisyGradientDescent"), ("svrg", "noisy_gd")):
        usual = usual.replace(old, new)
    assert yaml == usual


def test_runs_that_no_method_makes_are_to_be_rewritten(folder, capsys):
    """One sentence about one line; nothing is called a leak, and nothing goes on."""
    inner = "w = mechanisms['best'](lambda *given: self.attempt(*given))"
    change = (f"w = mechanisms[{'best'!r}](self.attempt)".replace("'", '"'), inner)
    (folder / "nested.py").write_text(Made("repeated", (change,)).text)
    assert main(["check", "nested.py"]) == 1
    *_, found, last = capsys.readouterr().out.splitlines()
    line = (folder / "nested.py").read_text().partition(inner)[0].count("\n") + 1
    words = "release best: the function that makes a run must be a method of the solver"
    assert found.split(" s  ")[1].startswith(f"{suite.REWRITE}: {words}")
    assert f"a nested function (line {line})" in found
    assert "nested: not judged as it is written" in last and "asked for" not in last


def test_the_sampled_example_of_the_doc_runs(folder, capsys):
    text = find_block("class MomentumSGD")
    (folder / "momentum_sgd.py").write_text(text)
    assert main(["check", "momentum_sgd.py"]) == 0
    told = capsys.readouterr().out.splitlines()
    kept(told)
    problem = load_problem("log1", n=200, p=4)
    result = fit(problem, "momentum_sgd.py", epsilon=1.0, clip=1.0, batch_size=40)
    assert result.checked and 0.9 < result.epsilon_certified <= 1.0
    (release,) = result.releases
    assert (release.rate, release.times) == (0.2, 50)
    line = ["dataset=log1", "dataset.n=200", "algorithm=momentum_sgd.py", *QUIET]
    line += ["algorithm.momentum_sgd.clip=1", "algorithm.momentum_sgd.momentum=0,0.9"]
    assert main(line) == 0
    table = pd.read_parquet(folder / "results" / "sweep" / "results.parquet")
    assert set(table["status"]) == {"ok"} and table["trial"].nunique() == 2


def test_the_tree_of_the_doc_runs(folder):
    """A level is charged as one vector, and prefixes are made of few nodes."""
    text = find_block("class TreeSums")
    (folder / "tree_sums.py").write_text(text)
    made = few_of(candidate_of("tree_sums.py"))
    for name in (
        *("uses_are_those_declared", "no_iterations_return_the_start", "runs_repeat"),
        *("the_noise_is_recounted", "records_are_read_once", "replay_audit"),
        "batches_change_nothing",
    ):
        found = check_named(name).result(made)
        assert found.verdict == "ok", found
    result = fit(load_problem("log1", n=64, p=4), "tree_sums.py", epsilon=1.0, clip=1.0)
    times = {release.name: release.times for release in result.releases}
    assert times == {f"level {k}": 8 >> k for k in range(4)}
    laws = tuple(release.law() for release in result.releases)
    four = calibrate((GaussianLaw(4),), Budget(1.0, 1e-6)).z
    assert calibrate(laws, Budget(1.0, 1e-6)).z == pytest.approx(four, rel=1e-9)


@pytest.mark.slow
def test_the_tree_of_the_doc_passes_check(folder, capsys):
    text = find_block("class TreeSums")
    (folder / "tree_sums.py").write_text(text)
    assert main(["check", "tree_sums.py"]) == 0
    kept(capsys.readouterr().out.splitlines())


def test_a_larger_batch_is_not_taken_for_a_schedule_that_knows_the_noise(tmp_path):
    """Half of the records in a sample: its draw weighs as much as the noise."""
    text = find_block("class MomentumSGD")
    path = tmp_path / "momentum_sgd.py"
    path.write_text(text.replace("shape(5, least=1", "shape(20, least=1"))
    check = check_named("noise_is_news_to_the_solver")
    assert check.result(candidate_of(str(path))).verdict == "ok"


def test_a_batch_that_check_has_no_records_for_is_said(tmp_path, monkeypatch, capsys):
    text = find_block("class MomentumSGD")
    path = tmp_path / "momentum_sgd.py"
    path.write_text(text.replace("shape(5, least=1", "shape(64, least=1"))
    said = check_named("runs_repeat").result(candidate_of(str(path))).reason
    assert said.endswith("serves no problem: batch_size=64: must be at most n=40")
    checks = (check_named("runs_repeat"),)
    monkeypatch.setattr("dp_erm_bench.cli.check.CHECKS", checks)
    assert main(["check", str(path)]) == 1
    told = capsys.readouterr().out
    assert said in told and "momentum_sgd: 1 of 1 checks fail" in told


def test_blocks_of_an_experiment_name_files(folder, capsys):
    (folder / "experiment").mkdir()
    (folder / "experiment" / "tiny.yaml").write_text(
        """# @package _global_
blocks:
  - panel: a
    line: ours
    dataset: {name: log1, n: 50, p: 4}
    algorithm: {name: noisy_gd.py, clip: 1.0, n_iter: 3}
    seed: 0
"""
    )
    line = ["--config-dir", str(folder), "experiment=tiny", "mode=plan"]
    assert main([*line, "algorithm.noisy_gd.step=0.5,1"]) == 0
    assert planned(capsys) == ["2", "0", "0", "2"]
    assert main([*line, "algorithm.sgd.step=0.5"]) == 2
    assert "no block of the experiment runs sgd" in capsys.readouterr().err


def test_the_configuration_is_shown_with_the_file(folder, capfd):
    assert main(["--cfg", "job", "algorithm=noisy_gd.py"]) == 0
    shown = capfd.readouterr().out
    assert f"noisy_gd:\n    _target_: {folder / 'noisy_gd.py'}" in shown


def test_a_quoted_home_and_a_list_are_understood(folder, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(folder))
    line = ["dataset=log1", "mode=plan"]
    for choice in ("~/noisy_gd.py,sgd", "[~/noisy_gd.py,sgd]", "'~/noisy_gd.py',sgd"):
        assert main([*line, f"algorithm={choice}"]) == 0, capsys.readouterr().err
        assert planned(capsys)[-1] == "2"


def test_files_with_odd_paths(tmp_path, monkeypatch, capsys):
    odd = tmp_path / "it's mine, all"
    odd.mkdir()
    (odd / "noisy_gd.py").write_text(SOUND)
    monkeypatch.chdir(odd)
    assert main(["dataset=log1", "mode=plan", "algorithm=noisy_gd.py"]) == 0


@pytest.fixture
def few(monkeypatch):
    """A suite of three checks: one is kept, one fails, one does not apply."""

    def kept(candidate):
        """Keep it."""

    def failing(candidate):
        """Fail it."""
        require(candidate.name != "sgd", "sgd is not as it should be")

    def absent(candidate):
        """Have nothing to say."""
        raise NotApplicable("it has no such thing")

    checks = tuple(map(Check, (kept, failing, absent)))
    # The command first: it may be imported here, with the checks that there are.
    monkeypatch.setattr("dp_erm_bench.cli.check.CHECKS", checks)
    monkeypatch.setattr(suite, "CHECKS", checks)


def test_the_exit_code_tells_whether_all_is_kept(few, capsys):
    assert main(["check", "random_cd"]) == 0
    assert main(["check", "random_cd", "sgd"]) == 1
    told = capsys.readouterr().out
    assert "FAILS: sgd is not as it should be" in told
    assert "does not apply: it has no such thing" in told
    assert "sgd: 1 of 3 checks fail" in told


def test_an_interrupted_check_ends_its_line(monkeypatch, capsys):
    def stopped(candidate):
        """Be stopped."""
        raise KeyboardInterrupt

    monkeypatch.setattr("dp_erm_bench.cli.check.CHECKS", (Check(stopped),))
    assert main(["check", "random_cd"]) == 130
    assert capsys.readouterr().out.rpartition("  stopped")[2].strip(" ") == "\n"


def test_all_are_checked_by_default(few, capsys):
    assert main(["check"]) == 1
    told = capsys.readouterr().out
    assert all(f"\n{name}\n" in f"\n{told}" for name in registry.names("algorithm"))


def test_nothing_is_checked_if_a_name_is_wrong(few, capsys):
    assert main(["check", "random_cd", "random_ce"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "did you mean random_cd?" in said.err


def test_a_broken_file_fails_on_the_command_line(tmp_path, monkeypatch, capsys):
    text, name, said = TWINS["half of the sensitivity"]
    (tmp_path / "twin.py").write_text(text)
    assert main(["check", str(tmp_path / "twin.py")]) == 1
    lines = capsys.readouterr().out.splitlines()
    (failing,) = [line for line in lines if name.replace("_", " ") in line]
    assert "FAILS: " in failing and said in failing


def test_the_first_finding_ends_it_and_files_are_left_nowhere(folder, capsys):
    line = "        problem, column = oracle.problem, (oracle.batch, 1)\n"
    writes = line + '        Path("left").write_text("here")\n'
    text, *_ = TWINS["half of the sensitivity"]
    assert line in text
    text = text.replace(line, writes).replace(
        "import numpy", "from pathlib import Path\n\nimport numpy", 1
    )
    (folder / "twin.py").write_text(text)
    before = {*folder.iterdir()}
    wanted = "replay_audit,the_limit_is_reached"
    assert main(["check", "twin.py", "--first", "--only", wanted]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "replay audit" in lines[1] and "FAILS" in lines[1]
    assert {*folder.iterdir()} == before
