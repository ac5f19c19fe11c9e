"""Test beginners' mistakes: each one gets a helpful sentence and exit code 2."""

import shlex

from dp_erm_bench.cli.main import main
from tests.loops import each

USES = [
    ("datset=log1", "did you mean dataset?"),
    ("dataset=log1 algoritm=gd", "did you mean algorithm?"),
    ("sede=1 budget.epsiln=1 runner.jobs=3", "seed?; budget.epsiln: no such key; did"),
    ("sede=1 budget.epsiln=1 runner.jobs=3", "did you mean runner.n_jobs?"),
    ("epsilon=1", "did you mean budget.epsilon?"),
    ("delta=1e-5", "did you mean budget.delta?"),
    ("gd.step=1", "did you mean algorithm.gd.step?"),
    ("algorithm=gd algorithm.step=1", "write algorithm.NAME.PARAMETER"),
    ("algorithm=gd algorithm.sgd.step=1", "write algorithm=gd,sgd"),
    ("algorithm=gd algorithm.gd.step=fast", "algorithm.gd.step=fast: must be a number"),
    ("algorithm=gd algorithm.gd.step=fast", "auto"),
    ("algorithm=gd algorithm.gd.stp=1", "did you mean step?"),
    ("algorithm=greedy_cd algorithm.greedy_cd.rule=x", "algorithm.greedy_cd.rule=x: "),
    ("algorithm=nowhere.py", "no such file"),
    ("algorithm=my-solver.py", "as in my_algorithm.py"),
    ("algorithm=gradient_descent", "must be one of"),
    ("algorithm=gd,", "algorithm=gd,: a value is missing beside a comma"),
    ("seed=1,,2", "seed=1,,2: a value is missing beside a comma"),
    (
        "dataset=log1 dataset.bounds=default dataset.bounds.norm=2",
        "dataset.bounds=default: dataset.bounds.norm replaces it",
    ),
    ("dataset.bounds.norm=2 dataset.bounds=null", "leave one of them out"),
    ("loss=logistc", "did you mean logistic?"),
    ("penalty=l2 penalty.strenght=1", "did you mean strength?"),
    ("penalty.strength=big", "'1/n'"),
    ("constraint=l2_ball constraint.radius=-1", "constraint.radius=-1"),
    ("dataset=my.csv", "write dataset=file dataset.path=my.csv"),
    ("dataset=file", "dataset.path=data.csv"),
    ("dataset=file dataset.path=nowhere.csv", "there is no such file"),
    ("dataset=log1 dataset.n=ten", "dataset.n=ten: must be an integer"),
    ("dataset=log1 dataset.standardize=true", "did you mean standardise?"),
    ("dataset=log1 dataset.test_fraction=2", "in [0, 1)"),
    ("budget.epsilon=0", "must be a positive number or inf"),
    ("budget.epsilon=one", "budget.epsilon=one: must be a number"),
    ("seed=1..10", "seed=1..10: must be an integer"),
    ("seed=range(10", "seed=range(10: must be an integer"),
    ("seed=-1", "seed=-1"),
    ("seeds='range(0,10)'", "did you mean seed?"),
    ("dataset=log1 algorithm gd", "algorithm: not understood as key=value"),
    ("dataset log1", "command=dataset"),
    ("--dataset log1", "--dataset: no such option"),
    ("--dry-run dataset=log1", "--dry-run: no such option"),
    ("run sweep", "sweep: not understood as key=value"),
    ("mode=dry", "must be run, plan"),
    ("name=a/b", "not a path"),
    ("name=", "must be the name of a folder"),
    ("runner=slurm", "must be one of dask, joblib, local"),
    ("runner.n_jobs=two", "must be an integer, auto"),
    ("runner.time_limit=1h", "must be a number, null"),
    ("runner.retry=failed", "must be error, timeout, killed"),
    ("profile=smoke", "add experiment=NAME"),
    ("panel=a", "add experiment=NAME"),
    ("experiment=mangold", "did you mean mangold2023?"),
    ("experiment=nope.yaml", "no such file"),
    ("experiment=mangold2022 profile=smokey", "did you mean smoke?"),
    ("experiment=mangold2022 panel=elec", "electricity_raw"),
    ("experiment=mangold2022 dataset=log1", "use panel=NAME"),
    ("tune seed=1", "tune.seeds are tried on to choose"),
    ("tune tune.trials=10", "did you mean tune.search.trials?"),
    ("tune tune.quantity=acc", "did you mean auc?"),
    ("tune profile=paperr", "did you mean paper?"),
    ("tune algorithm=gd tune.axes.gd.step=[]", "at least one value"),
    ("tune algorithm=gd tune.axes.sgd.step=1", "did you mean gd?"),
    ("tune algorithm=gd tune.axes.step=1", "tune.axes.ALGORITHM.PARAMETER"),
    ("tune algorithm=gd tune.axes.gd=1", "write tune.axes.ALGORITHM.PARAMETER"),
    ("tune algorithm=gd tune.limits=1", "write tune.limits.ALGORITHM.PARAMETER"),
    ("tune tune.search=null tune.search.trials=9", "search holds no further keys"),
    ("--cfg dataset=log1", "invalid choice"),
    ("--config-dir=/nowhere", "no such folder"),
    ("--config-name nope", "--config-name nope: Cannot find primary config"),
    ("--package dataset", "belongs to --cfg"),
    ("hydra.run.dir=x", "results_dir=FOLDER"),
    ("+dataset.x=1", "without + or ~"),
    ("dataset@train=log1", "did you mean dataset?"),
    ("list datasets", "did you mean dataset?"),
    ("list ''", "list=: must be one of dataset"),
    ("help nope", "command=nope: must be one of"),
    ("nope --help", "command=nope: must be one of"),
    ("list algorithm gdd", "did you mean gd?"),
    ("list algorithm nope.py", "no such file"),
    ("list --all", "unrecognized arguments: --all"),
    ("look", "FILE.csv"),
    ("look nowhere.csv", "no such file"),
    ("look nowhere.csv header=true", "dataset.header"),
    ("report", "as in dp-erm-bench report results/"),
    ("report nowhere", "no such folder"),
    ("report . --output x", "unrecognized arguments: --output"),
    ("report nowhere --out", "expected one argument"),
    ("collect nowhere", "no such folder"),
    ("bundle", "as in dp-erm-bench bundle results/sweep"),
    ("bundle . b", "unrecognized arguments: b"),
    ("replay nowhere.zip", "no such file"),
    ("replay . --sample many", "or all"),
    ("replay . --seed x", "invalid int value"),
    ("check nope", "algorithm=nope"),
    ("check nope.py", "no such file"),
    ("check gd --only nope", "--only=nope"),
    ("check gd --only", "expected one argument"),
    ("chek gd", "did you mean check?"),
    ("version", "command=version"),
]


@each(("typed", "said"), USES)
def test_one_sentence_that_helps(typed, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(typed)) == 2, typed
    out, err = capsys.readouterr()
    assert not out and err.startswith("dp-erm-bench: ") and err.count("\n") == 1
    assert said in err and "Traceback" not in err
    assert not [*tmp_path.iterdir()]


def test_there_are_enough_wrong_uses():
    assert len({typed for typed, _ in USES}) >= 60
