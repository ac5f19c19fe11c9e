"""Test wrong command lines: one sentence on stderr, exit code 2, nothing runs."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dp_erm_bench.cli.main import main
from dp_erm_bench.cli.options import INSTEAD
from tests.loops import each
from tests.pages import read_page

BY_NAME = [
    ("dataset=log3", "did you mean log"),
    ("dataset=log1,nope", "dataset=nope"),
    ("dataset=[log1,nope]", "dataset=nope"),
    ("dataset=null", "dataset=null"),
    ("algorithm=greedy", "did you mean greedy_cd?"),
    ("algorithm=null", "algorithm=null"),
    ("algorithm=[]", "empty"),
    ("loss=ridge", "logistic"),
    ("penalty=l3", "l1, l2, none"),
    ("constraint=box", "none"),
    ("calibration=exact", "certified"),
    ("runner=ray", "dask, joblib, local"),
    ("runner=local,local2", "dask, joblib, local"),
    ("experiment=mangold2024", "did you mean mangold2023?"),
    ("experiment=mangold2022,mangold2023", "did you mean mangold2023?"),
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
    ("--config-dir=", "no such folder"),
    ("--config-name=", "--config-name=: needs a value"),
    ("--config-name=nope", "Cannot find primary config 'nope'"),
    ("--package=x", "belongs to --cfg"),
    ("--resolve", "belongs to --cfg"),
    ("--run", "no such option"),
    ("dataset={a:1}", "dataset={a:1}"),
    ("dataset=[[log1]]", "did you mean log1?"),
    ("dataset=../log1", "write dataset=file dataset.path=../log1"),
    ("dataset._target_=os.system", "choose with dataset=NAME"),
    ("algorithm.random_cd._target_=x", "choose with algorithm=NAME"),
    ("penalty.name=l1", "choose with penalty=NAME"),
    ("loss.name=huber", "choose with loss=NAME"),
    ("dataset.name=a9a", "dataset=libsvm"),
    ("dataset.n.x=3", "must be an integer"),
    ("name=''", "must be the name of a folder"),
    ("name=' '", "must be the name of a folder"),
    (f"name={'x' * 300}", "at most 200 characters"),
    ("hydra.verbose=true", "no such key"),
    ("hydra.searchpath=[file:///nowhere]", "no such key"),
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
    (
        "runner.worker_memory=much",
        "a size of at least 1M, as 500M or 2G, auto, or null",
    ),
    ("runner.worker_memory=1000", "a size of at least 1M"),
    ("runner.worker_memory=true", "a size of at least 1M"),
    ("runner.worker_memory=1G,2G", "one value"),
    ("runner.n_jobs=100000000", "at most 1024"),
    ("runner.retry={a:1}", "runner.retry"),
    ("seed=1.5,2", "an integer"),
    ("seed=[1,2]", "an integer"),
    ("seed=1e400", "seed=inf"),
    ("name=[a]", "a word"),
    ("results_dir=null", "a word"),
    ("results_dir=''", "must be the name of a folder"),
    ("results_dir=/dev/null", "results_dir=/dev/null: /dev/null is no folder"),
    ("results_dir=a,b", "one value"),
    ("experiment=", "experiment="),
    ("experiment=glob(*)", "must be one of"),
    ("runner=glob(*),x", "dask, joblib, local"),
]
GRAMMAR = [
    ("seed=range(3,3)", "empty"),
    ("dataset=glob(zz*)", "empty"),
    ("seed=interval(0,1)", "interval"),
    ("+seed=1", "without + or ~"),
    ("++dataset.n=3", "without + or ~"),
    ("~seed", "without + or ~"),
    ("seed=range(1", "must be an integer"),
    ("seed=range(0,3,0)", "zero"),
    ("dataset@x=log1", "did you mean dataset?"),
    ("seed=", "an integer"),
    ("seed=range(0,)", "must be an integer"),
    ("seed=range(a,b)", "must be an integer"),
    ("seed=range(0,10**9)", "must be an integer"),
    ("seed=range(0,1000000000)", "more than 1000000 values"),
    ("seed=shuffle(range(0,1000000000))", "more than 1000000 values"),
    ("seed=range(0,inf)", "more than 1000000 values"),
    ("budget.epsilon=range(1,2,1e-300)", "more than 1000000 values"),
    ("budget.epsilon=range(1,nan)", "more than 1000000 values"),
    (f"seed={'9' * 5000}", "must be an integer"),
    ("seed=choice()", "must be an integer"),
    ("seed=sort()", "must be an integer"),
    ("seed=shuffle()", "empty"),
    ("seed=sort(1,a)", "must be an integer"),
    ("seed=tag(a)", "must be an integer"),
    ("seed=int(x)", "must be an integer"),
    ("seed=foo(1)", "must be an integer"),
    ("seed=[1,2", "must be an integer"),
    ("seed={a:1", "must be an integer"),
    ("seed='", "must be an integer"),
    ("seed=1,", "a value is missing beside a comma"),
    ("seed=,1", "a value is missing beside a comma"),
    ("seed==1", "must be an integer"),
    ("seed[0]=1", "did you mean seed?"),
    ("seed=${nope}", "an integer"),
    ("seed=${", "must be an integer"),
    ("seed=glob(*)", "empty"),
    ("dataset=glob([])", "empty"),
    ("dataset=glob(*,exclude=*)", "empty"),
    ("dataset=glob(3)", "must be one of"),
    ("+x=1", "without + or ~"),
    ("~x", "without + or ~"),
    ("=1", "not understood"),
]
# These are refused by the runner, which checks every value before it runs any.
BY_RANGE = [
    ("budget.epsilon=0", "positive"),
    ("budget.epsilon=1,-1", "epsilon=-1"),
    ("budget.delta=2", "delta=2"),
    ("budget.delta=1/m", "1/n"),
    ("seed=-1", "integers >= 0"),
    ("seed=range(-2,3)", "integers >= 0"),
    ("seed=9223372036854775808", "below 2^63"),
    ("dataset.seed=9223372036854775808", "below 2^63"),
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
    ("budget.delta=1/n^0", "delta=1/n^0"),
    ("budget.delta=-1", "delta=-1"),
    ("budget.epsilon=-inf", "positive"),
    ("algorithm.random_cd.step=[]", "at least one value"),
    ("algorithm.random_cd.step=nan", "step=nan"),
    ("algorithm.random_cd.step={a:1}", "unit, values"),
    ("algorithm.random_cd.passes=inf", "passes=inf"),
    ("dataset.n=0", "an integer >= 2"),
    ("dataset.n=1.5", "dataset.n=1.5"),
    ("dataset.n=1000000000000", "more than this machine's memory"),
    ("dataset.p=1000000000", "more than this machine's memory"),
    ("dataset.sigma=-1", "sigma=-1"),
    ("dataset.noise=inf", "noise=inf"),
    ("dataset.bounds=3", "bounds=3"),
    ("dataset.task=guess", "task"),
    ("penalty.strength=true", "strength=True"),
    ("penalty.strength=1/m", "strength=1/m"),
]


def check(arguments, said, out, results):
    assert said in out.err
    assert out.err.startswith("dp-erm-bench: ")
    assert len(out.err.splitlines()) == 1
    assert "Traceback" not in out.err and not out.out
    assert not results.exists()


@each(("argument", "said"), BY_NAME + BY_TYPE + GRAMMAR + BY_RANGE)
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
        (["seed=range(0,2000)", "budget.epsilon=range(1,2001)"], "4000000 trials"),
        (["--cfg", "job", "--package", "nope"], "'nope' not found"),
        (["--cfg", "nope"], "invalid choice"),
        (["-cn", "../x"], "Cannot find primary config"),
        (["mode=plan", "mode=plan"], "given twice"),
        (["dataset=log1", "dataset=log2"], "given twice"),
        (["loss=huber", "loss.kappa=-1"], "kappa=-1"),
        (["constraint=l1_ball", "constraint.radius=0"], "radius=0"),
        (["constraint=polytope"], "vertices=None"),
        (["constraint=polytope", "constraint.vertices=[[1,0],[1]]"], "[[1, 0], [1]]"),
        (["constraint=polytope", "constraint.vertices=no.csv"], "no.csv: cannot"),
        (["constraint=polytope", "constraint.vertices=[[1,0]]"], "2 coordinates"),
        (
            ["penalty=elastic_net", "penalty.strength=1", "penalty.l1_ratio=5"],
            "l1_ratio=5",
        ),
        (["penalty=box", "penalty.lower=2"], "lower"),
        (["dataset=file"], "path"),
        (["dataset=file", "dataset.path=/nowhere.csv"], "/nowhere.csv"),
        (["dataset=libsvm"], "dataset.name"),
        (["experiment=mangold2022", "panel=[]"], "panel=[]"),
        (["experiment=mangold2022", "profile=smoke", "name=a/b"], "not a path"),
        (["list", "algorithm", "gredy_cd"], "did you mean greedy_cd?"),
        (["collect", ""], "no such folder"),
        (["compare", "nowhere", "nowhere"], "nowhere"),
        (["lst"], "did you mean list?"),
        (["list", "nope"], "algorithm"),
        (["collect"], "as in dp-erm-bench collect"),
        (["collect", "nowhere"], "no such folder"),
        (["report", "nowhere"], "no such folder"),
    ],
)
def test_wrong_combinations(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    check(arguments, said, capsys.readouterr(), tmp_path / "results")


def test_there_are_enough_wrong_lines():
    assert len(BY_NAME + BY_TYPE + GRAMMAR + BY_RANGE) >= 150


@pytest.mark.parametrize("folder", ["/nowhere", __file__])
def test_a_mirror_that_is_none_is_named(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DP_ERM_BENCH_DATA", folder)
    assert main(["dataset=dorothea", "mode=plan"]) == 2
    check([], f"DP_ERM_BENCH_DATA={folder}", capsys.readouterr(), tmp_path / "results")


def test_a_cache_that_cannot_be_written_is_done_without(capsys, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", __file__)
    assert main(["dataset=breast_cancer", "mode=plan"]) == 0
    assert "total" in capsys.readouterr().out


def test_memory_that_does_not_suffice_is_one_sentence(capsys, monkeypatch):
    def greedy(*given):
        raise MemoryError("Unable to allocate 3 TiB")

    monkeypatch.setattr("dp_erm_bench.cli.sweep.run_blocks", greedy)
    assert main(["seed=1"]) == 2
    err = capsys.readouterr().err
    assert err == "dp-erm-bench: not enough memory (Unable to allocate 3 TiB)\n"


def test_a_whole_number_may_be_written_as_one_likes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["seed=1e3", "runner.n_checkpoints=1e2", "mode=plan"]) == 0
    assert "total" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("blocks: []", "must have `defaults"),
        ("a: [", "own.yaml"),
        ("- a", "must be a DictConfig"),
        ("name: ${oc.env:HOME}", "must call no resolver but"),
    ],
)
def test_a_wrong_configuration_of_ones_own(text, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(text)
    assert main(["-cd=.", "-cn=own", "mode=plan"]) == 2
    check([], said, capsys.readouterr(), tmp_path / "results")


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
    from dp_erm_bench.cli import line
    from dp_erm_bench.errors import UsageError

    try:
        line.read_request([f"{key}={text}"])
    except UsageError as error:
        assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("--info", "--cfg all"),
        ("--info all", "--cfg all"),
        ("-i", "--cfg all"),
        ("--hydra-help", "--help"),
        ("--run", "leave it out"),
        ("--config-path=conf", "--config-dir"),
        ("hydra.run.dir=out", "results_dir=FOLDER"),
        ("hydra.sweep.dir=out", "results_dir=FOLDER"),
        ("hydra.sweep.subdir=out", "results_dir=FOLDER"),
        ("+hydra.run.dir=out", "results_dir=FOLDER"),
        ("hydra/launcher=joblib", "runner=joblib"),
        ("hydra.launcher.n_jobs=2", "runner.n_jobs"),
        ("hydra/sweeper=optuna", "axes"),
        ("hydra.sweeper.n_trials=3", "axes"),
        ("hydra.verbose=true", "docs/sweeps.md"),
    ],
)
def test_what_is_hydras_alone_says_what_to_use(typed, instead, capsys):
    assert main([*typed.split(), "dataset=log1", "algorithm=gd"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dp-erm-bench: {typed.split()[0]}: no such ")
    assert said.count("\n") == 1 and instead in said


def test_a_page_lists_hydras_options():
    table = read_page("sweeps").partition("| Hydra | here |")[2].partition("\n\n")[0]
    for name in ("--cfg", "--multirun", "--config-dir", "--package", "--resolve"):
        assert f"`{name}" in table
    for name in INSTEAD:
        family = name.replace(".launcher", "/launcher").replace(".sweeper", "/sweeper")
        assert f"`{family}" in table or name == "hydra.searchpath", name
