"""Wrong command lines: one sentence on stderr, exit code 2, nothing run."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dp_erm_bench.cli.main import main

BY_NAME = [
    ("dataset=log3", "did you mean log"),
    ("dataset=log1,nope", "dataset=nope"),
    ("dataset=[log1,nope]", "dataset=nope"),
    ("dataset=null", "dataset=null"),
    ("algorithm=greedy", "did you mean greedy_cd?"),
    ("algorithm=null", "algorithm=null"),
    ("algorithm=[]", "empty"),
    ("loss=hinge", "logistic"),
    ("penalty=l3", "l1, l2, none"),
    ("constraint=box", "none"),
    ("calibration=exact", "certified"),
    ("runner=dask", "local"),
    ("runner=local,local2", "one value"),
    ("experiment=mangold2024", "did you mean mangold2023?"),
    ("experiment=mangold2022,mangold2023", "one value"),
    ("budget.epsiln=1", "did you mean budget.epsilon?"),
    ("budgt.epsilon=1", "did you mean budget.epsilon?"),
    ("budget=1", "no such key"),
    ("sede=1", "did you mean seed?"),
    ("runner.jobs=2", "did you mean runner.n_jobs?"),
    ("blocks=[]", "no such key"),
    ("hydra.mode=RUN", "no such key"),
    ("hydra/sweeper=basic", "no such key"),
    ("panel=electricity_raw", "experiment=NAME"),
    ("profile=smoke", "experiment=NAME"),
    ("algorithm.step=1", "algorithm.NAME.PARAMETER"),
    ("algorithm.nope.step=1", "greedy_cd"),
    ("algorithm.sgd.step=1", "algorithm sgd is not chosen"),
    ("name=a/b", "not a path"),
    ("name=..", "not a path"),
    ("--nope", "--help"),
    ("--cfg", "--cfg"),
    ("--config-dir=/nowhere/at/all", "no such folder"),
]
BY_TYPE = [
    ("budget.epsilon=abc", "must be a number"),
    ("budget.epsilon=1,true", "budget.epsilon="),
    ("budget.epsilon=null", "must be a number"),
    ("budget.epsilon=nan", "must be a number"),
    ("budget.adjacency=swap", "replace_one"),
    ("seed=abc", "an integer"),
    ("seed=1.5", "an integer"),
    ("seed=null", "an integer"),
    ("mode=dry", "plan"),
    ("mode=run,plan", "one value"),
    ("runner.n_jobs=many", "auto"),
    ("runner.n_jobs=2,4", "one value"),
    ("runner.n_jobs=0", "at least 1"),
    ("runner.retry=[ok]", "timeout"),
    ("runner.progress=maybe", "true or false"),
    ("runner.n_checkpoints=1", "at least 2"),
    ("runner.batch_work=-1", "positive"),
]
GRAMMAR = [
    ("seed=range(3,3)", "empty"),
    ("dataset=glob(zz*)", "empty"),
    ("seed=interval(0,1)", "interval"),
    ("+seed=1", "without + or ~"),
    ("++dataset.n=3", "without + or ~"),
    ("~seed", "without + or ~"),
    ("seed=range(1", "not understood"),
    ("seed=range(0,3,0)", "zero"),
    ("dataset@x=log1", "dotted key"),
]
# These are refused by the runner, which checks every value before it runs any.
BY_RANGE = [
    ("budget.epsilon=0", "positive"),
    ("budget.epsilon=1,-1", "epsilon=-1"),
    ("budget.delta=2", "delta=2"),
    ("budget.delta=1/m", "1/n"),
    ("seed=-1", "at least 0"),
    ("seed=range(-2,3)", "at least 0"),
    ("algorithm.random_cd.n_iter=abc", "n_iter=abc"),
    ("algorithm.random_cd.n_iter=-1", "n_iter=-1"),
    ("algorithm.random_cd.step=1,0", "step=0"),
    ("algorithm.random_cd.order=zigzag", "cyclic"),
    ("algorithm.random_cd.stp=1", "did you mean step?"),
    ("algorithm.random_cd.clip=-1", "clip=-1"),
    ("dataset.sed=1", "did you mean seed?"),
    ("dataset.standardise=maybe", "must be true"),
    ("dataset.seed=-3", "dataset.seed=-3"),
    ("dataset.test_fraction=1", "test_fraction=1"),
    ("penalty.strength=-1", "strength=-1"),
    ("penalty.strength=abc", "strength=abc"),
    ("penalty.weight=1", "weight"),
    ("constraint.radius=1", "radius"),
]


def check(arguments, said, out, results):
    assert said in out.err
    assert out.err.startswith("dp-erm-bench: ")
    assert len(out.err.splitlines()) == 1
    assert "Traceback" not in out.err and not out.out
    assert not results.exists()


@pytest.mark.parametrize(("argument", "said"), BY_NAME + BY_TYPE + GRAMMAR + BY_RANGE)
def test_one_sentence(argument, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["seed=1", argument] if "seed" not in argument else [argument]) == 2
    check([argument], said, capsys.readouterr(), tmp_path / "results")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["seed=1", "seed=2"], "given twice"),
        (["algorithm=sgd,random_cd", "algorithm.sgd.passes=x"], "passes=x"),
        (["algorithm=sgd", "calibration=nope,paper"], "calibration=nope"),
        (["experiment=mangold2022", "dataset=log1"], "panel=NAME"),
        (["experiment=mangold2022", "seed=1"], "is tuned"),
        (["experiment=mangold2022", "panel=nope"], "electricity_raw"),
        (["experiment=mangold2022", "profile=nope"], "smoke"),
        (["dataset.bounds.label=1,2"], "no axis"),
        (["lst"], "did you mean list?"),
        (["list", "nope"], "algorithm"),
        (["collect"], "results folder"),
        (["collect", "nowhere"], "no such folder"),
        (["report", "nowhere"], "no such folder"),
    ],
)
def test_wrong_combinations(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    check(arguments, said, capsys.readouterr(), tmp_path / "results")


def test_the_process_says_the_same(tmp_path, environment):
    done = subprocess.run(
        [sys.executable, "-m", "dp_erm_bench", "budget.epsiln=1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == (
        "dp-erm-bench: budget.epsiln: no such key; did you mean budget.epsilon?\n"
    )


KEYS = st.sampled_from(
    ["dataset", "seed", "budget.epsilon", "algorithm.sgd.step", "dataset.n", "mode"]
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS, text=st.text(st.characters(exclude_categories=["C", "Z"]), max_size=8))
def test_no_value_gives_a_traceback(key, text, line, capsys):
    from dp_erm_bench.cli import request
    from dp_erm_bench.errors import UsageError

    try:
        request.read([f"{key}={text}"])
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
