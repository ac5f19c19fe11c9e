import math
import os
import sys

import pytest

LOG1 = {"name": "log1", "bounds": "auto"}
USUAL = {"epsilon": 1.0, "delta": "1/n^2", "adjacency": "replace_one"}


def test_a_sweep_is_one_block_per_dataset_and_algorithm(line):
    run = line(
        "dataset=log1,log2",
        "algorithm=greedy_cd,random_cd",
        "budget.epsilon=0.1,1",
        "seed=range(0,10)",
    )
    names = [(b["dataset"]["name"], b["algorithm"]["name"]) for b in run.blocks]
    assert sorted(names) == [
        (dataset, algorithm)
        for dataset in ("log1", "log2")
        for algorithm in ("greedy_cd", "random_cd")
    ]
    for block in run.blocks:
        assert block["budget"] == {**USUAL, "epsilon": [0.1, 1.0]}
        assert block["seed"] == list(range(10))
        assert block["loss"] == block["penalty"] == {"name": "auto"}
        assert block["constraint"] == {"name": "none"}
        assert block["calibration"] == "certified"


def test_one_value_is_no_axis(line):
    (block,) = line("dataset=log1", "algorithm=sgd", "seed=4").blocks
    assert block == {
        "dataset": LOG1,
        "loss": {"name": "auto"},
        "penalty": {"name": "auto"},
        "constraint": {"name": "none"},
        "algorithm": {"name": "sgd"},
        "budget": USUAL,
        "calibration": "certified",
        "seed": 4,
    }


def test_the_word_run_may_be_left_out(line):
    assert line("run", "dataset=log2", "-m").blocks == line("dataset=log2").blocks


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_multirun_is_accepted_and_means_the_same(line, flag):
    arguments = ["dataset=log1,log2", "seed=1,2"]
    plain = line(*arguments).blocks
    assert plain == line(flag, *arguments).blocks == line(*arguments, flag).blocks


def test_parameters_reach_the_blocks_of_their_algorithm_only(line):
    blocks = line(
        "algorithm=random_cd,sgd",
        "algorithm.random_cd.step=0.5,1",
        "algorithm.sgd.batch_size=full",
    ).blocks
    by_name = {block["algorithm"]["name"]: block["algorithm"] for block in blocks}
    assert by_name["random_cd"] == {"name": "random_cd", "step": [0.5, 1]}
    assert by_name["sgd"] == {"name": "sgd", "batch_size": "full"}


@pytest.mark.parametrize(
    "text", ["algorithm=[random_cd,sgd]", "algorithm=glob([greedy_*,random_*])"]
)
def test_algorithms_may_stand_in_a_list_or_a_glob(line, text):
    names = {block["algorithm"]["name"] for block in line(text).blocks}
    assert names == {"random_cd", "greedy_cd" if "glob" in text else "sgd"}


def test_dataset_keys_are_overrides_and_axes(line):
    (block,) = line("dataset=log1", "dataset.n=200", "dataset.seed=1,2").blocks
    assert block["dataset"] == {**LOG1, "n": 200, "seed": [1, 2]}


def test_a_dataset_key_equal_to_the_yaml_is_no_override(line):
    (block,) = line("dataset=log1", "dataset.standardise=false").blocks
    assert block["dataset"] == LOG1


def test_objectives_are_named(line):
    blocks = line(
        "loss=squared", "penalty=l1,l2", "penalty.strength=0.1,1/n", "constraint=none"
    ).blocks
    assert [block["penalty"] for block in blocks] == [
        {"name": "l1", "strength": [0.1, "1/n"]},
        {"name": "l2", "strength": [0.1, "1/n"]},
    ]
    assert all(block["loss"] == {"name": "squared"} for block in blocks)


def test_the_usual_penalty_takes_another_strength(line):
    (block,) = line("penalty.strength=0.1").blocks
    assert block["penalty"] == {"name": "auto", "strength": 0.1}


def test_budgets(line):
    (block,) = line(
        "budget.epsilon=inf,1",
        "budget.delta=1/n,1e-6",
        "budget.adjacency=zero_out",
        "calibration=certified,paper",
    ).blocks
    assert block["budget"] == {
        "epsilon": [math.inf, 1.0],
        "delta": ["1/n", 1e-6],
        "adjacency": "zero_out",
    }
    assert block["calibration"] == ["certified", "paper"]


def test_the_runner_gets_its_options(line, tmp_path):
    run = line(
        "runner.n_jobs=3",
        "runner.retry=[error,killed]",
        "runner.progress=false",
        "runner.n_checkpoints=7",
        "mode=plan",
        "name=mine",
        "results_dir=elsewhere",
    )
    assert run.options.n_jobs == 3
    assert run.options.retry == ["error", "killed"]
    assert run.options.progress is False
    assert run.options.n_checkpoints == 7
    assert run.options.mode == "plan"
    assert run.options.append_plan
    assert (run.name, str(run.folder)) == ("mine", "elsewhere/mine")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["timeout", "timeout,killed", "[timeout,killed]"])
def test_statuses_to_retry_may_be_listed_as_one_likes(line, given):
    run = line(f"runner.retry={given}")
    assert run.options.retry == given.strip("[]").split(",")


def test_defaults_of_the_runner(line):
    run = line("seed=0")
    assert (run.name, str(run.folder)) == ("sweep", "results/sweep")
    assert run.options.n_jobs >= 1
    assert run.options.config["budget"] == USUAL


def test_the_command_is_kept_as_one_could_type_it_again(line):
    arguments = ["algorithm=sgd", "algorithm.sgd.step=0.5", "budget.delta=1/n^2"]
    command = line(*arguments).options.command
    again = line(*command[1:])
    assert again.options.command == command
    assert again.blocks == line(*arguments).blocks


def test_ten_thousand_seeds_are_one_axis(line):
    (block,) = line("seed=range(0,100000)").blocks
    assert block["seed"] == list(range(100000))


def test_an_interpolation_of_a_swept_key_is_refused(line, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "own.yaml").write_text(
        "defaults: [config, _self_]\nname: run_${seed}\nseed: 3\n"
    )
    flags = [f"--config-dir={folder}", "--config-name=own"]
    assert line(*flags, "budget.epsilon=1,2").name == "run_3"
    run = line(*flags, "seed=1,2", code=2)
    assert "seed: swept" in run.err and not run.calls


def test_a_configuration_of_ones_own_sets_parameters(line, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "own.yaml").write_text(
        "defaults: [config, _self_]\n"
        "dataset: {n: 300}\nalgorithm: {random_cd: {step: 0.5}}\n"
    )
    (block,) = line(f"-cd={folder}", "-cn=own", "seed=1").blocks
    assert block["dataset"] == {**LOG1, "n": 300}
    assert block["algorithm"] == {"name": "random_cd", "step": 0.5}


def test_the_configuration_is_shown_for_the_first_of_each_axis(line):
    run = line(
        "--cfg", "job", "dataset=log2,log1", "seed=7,8", "algorithm.random_cd.step=2,3"
    )
    assert "name: log2" in run.out
    assert "seed: 7" in run.out
    assert "step: 2" in run.out
    assert not run.calls and not run.err


def test_the_process_is_left_as_it_was(line):
    before = list(sys.argv), os.environ.get("HYDRA_FULL_ERROR")
    line("seed=1")
    line("sed=1", code=2)
    assert (list(sys.argv), os.environ.get("HYDRA_FULL_ERROR")) == before


@pytest.mark.parametrize(
    "where", ["sweep.run_blocks", "line.read_request", "main._dispatch_command"]
)
def test_ctrl_c_is_130(line, monkeypatch, where):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"dp_erm_bench.cli.{where}", interrupted)
    run = line("seed=1", code=130)
    assert "interrupted" in run.err


def test_the_exit_code_is_the_runners(monkeypatch, line):
    monkeypatch.setattr("dp_erm_bench.cli.sweep.run_blocks", lambda *given: 1)
    line("seed=1", code=1)
