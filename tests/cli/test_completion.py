import dataclasses
import os
import subprocess
import sys

import pytest

from dp_erm_bench import registry
from dp_erm_bench.cli.completion import completion_words, parameters_of
from dp_erm_bench.cli.main import COMMANDS, main
from tests.loops import each


def after(line):
    return completion_words(f"dp-erm-bench {line}")


@each(
    ("line", "words"),
    [
        ("algorithm=gr", ["algorithm=greedy_cd"]),
        ("algorithm=sgd,ran", ["algorithm=sgd,random_cd"]),
        ("seed=1 algorithm.greedy_cd.no", ["algorithm.greedy_cd.noise="]),
        ("algorithm.gr", ["algorithm.greedy_cd."]),
        (
            "budget.",
            ["budget.adjacency=", "budget.delta=", "budget.epsilon="],
        ),
        ("budget.adjacency=z", ["budget.adjacency=zero_out"]),
        ("experiment=mangold2022", ["experiment=mangold2022"]),
        ("runner.retry=error,k", ["runner.retry=error,killed"]),
        ("runner.progress=", ["runner.progress=false", "runner.progress=true"]),
        ("mode=", ["mode=plan", "mode=run"]),
        ("loss=a", ["loss=absolute", "loss=auto"]),
        ("loss=huber loss.", ["loss.kappa="]),
        ("dataset=log1 dataset.si", ["dataset.sigma="]),
        ("tune algorithm=gr", ["algorithm=greedy_cd"]),
        ("tune tune.search.t", ["tune.search.tolerance=", "tune.search.trials="]),
        ("tune tune.quantity=a", ["tune.quantity=auc"]),
        ("tune profile=p", ["profile=paper", "profile=published"]),
        ("experiment=mangold2022 profile=s", ["profile=smoke"]),
        ("experiment=mangold2022 panel=electricity_r", ["panel=electricity_raw"]),
        ("profile=s", []),
        ("panel=", []),
        ("tune.", []),
        ("list se", ["settings"]),
        ("list b", ["blocks"]),
        ("list settings gr", []),
        ("list settings --", []),
        ("list algorithm gr", ["greedy_cd"]),
        ("check s", ["sgd", "ssp", "svrg"]),
        ("--config-", ["--config-dir", "--config-name"]),
        ("col", ["collect"]),
        ("-cd nothing_is_called_so", []),
        ("run algorithm=gr", ["algorithm=greedy_cd"]),
        ("run --res", ["--resolve"]),
        ("list algorithm greedy_cd loss hu", ["huber"]),
        ("nonsense.", []),
        ("nonsense=", []),
        ("algorithm.nope.", []),
        ("algorithm.nope.step=", []),
        (
            "algorithm.gd.output=",
            [f"algorithm.gd.output={w}" for w in ("average", "last")],
        ),
        ("algorithm.gd.n_iter=", []),
    ],
)
def test_what_may_follow(line, words):
    assert after(line) == words


def test_everything_begins_an_empty_line():
    words = after("")
    assert {*COMMANDS, "dataset=", "algorithm=", "algorithm.", "budget."} <= {*words}
    assert "blocks=" not in words


def test_commands_know_their_options_and_folders(tmp_path, monkeypatch):
    assert {"--kind", "--x", "--names", "--width"} <= {*after("plot --")}
    assert "--kind" not in after("compare results/a --")
    (tmp_path / "results" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert after("export ") == ["results/mine/"]
    assert after("report results/m") == ["results/mine/"]
    assert after("plot nowhere/") == []


def test_files_are_offered_where_a_key_takes_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grown").mkdir()
    for name in ("green.py", "green.csv", "green.yaml"):
        (tmp_path / name).touch()
    chosen = ["algorithm=greedy_cd", "algorithm=green.py", "algorithm=grown/"]
    assert after("algorithm=gr") == chosen
    assert after("algorithm=sgd,gree")[1] == "algorithm=sgd,green.py"
    assert after("dataset.path=green.c") == ["dataset.path=green.csv"]
    assert after("experiment=gree") == ["experiment=green.yaml"]
    assert after("loss=grown") == ["loss=grown/"] == after("loss=grow")
    assert after("replay gree")[0] == "green.csv"
    assert after("seed=1 --config-dir gr") == ["grown/"]


@each("name", registry.built_in("algorithm"))
def test_parameters_read_from_source_are_those_of_the_class(name):
    target = registry.read_choice("algorithm", name)["_target_"]
    fields = dataclasses.fields(registry.target("algorithm", name))
    words = {one.name: [*one.metadata.get("choices", ())] for one in fields if one.init}
    found = parameters_of(target)
    assert found.keys() == words.keys()
    # Fields that functions make have words that no source of the class says.
    assert all(found[name] in ([], own) for name, own in words.items())
    assert found["smoothness"] == words["smoothness"] != []


def test_parameters_of_a_users_file_are_offered(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("class Mine(Solver):\n    n_iter: int = shape(3, least=0)\n")
    line = f"algorithm={file},sgd algorithm."
    assert after(f"{line}min") == ["algorithm.mine."]
    assert after(f"{line}mine.") == ["algorithm.mine.n_iter="]
    (tmp_path / "broken.py").write_text("class Mine(")
    assert after(f"algorithm={tmp_path}/broken.py algorithm.broken.") == []


def test_a_users_experiments_are_offered(experiments):
    flag = experiments("blocks: [{panel: north}, {panel: south}]\nprofiles: {x: {}}\n")
    assert after(f"{flag} experiment=ti") == ["experiment=tiny"]
    folder = flag.partition("=")[2]
    assert after(f"-cd {folder} experiment=ti") == ["experiment=tiny"]
    both = ["panel=north", "panel=south"]
    assert after(f"{flag} experiment=tiny panel=") == both
    assert after(f"experiment={folder}/experiment/tiny.yaml panel=") == both
    assert after(f"{flag} experiment=tiny panel=north,s") == ["panel=north,south"]
    assert after(f"{flag} experiment=tiny profile=") == ["profile=x"]


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_a_script_for_each_shell(shell, capsys):
    assert main(["-sc", f"install={shell}"]) == 0
    assert f"query={shell}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["install"], ["install=tcsh"], ["query"], ["query=bash", "x"]]
)
def test_another_use_is_refused(arguments, capsys):
    assert main(["--shell-completion", *arguments]) == 2
    out, err = capsys.readouterr()
    assert err == (
        "dp-erm-bench: --shell-completion: write -sc install=bash|fish|zsh\n"
    )
    assert not out


def test_bash_completes(tmp_path, environment):
    """Bash itself, told the line and where it broke it, as its readline does."""
    program = tmp_path / "dp-erm-bench"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dp_erm_bench "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(dp-erm-bench -sc install=bash)"\n'
        "compopt() { :; }\n"
        "COMP_LINE='dp-erm-bench algorithm=gr'; COMP_POINT=25\n"
        "COMP_WORDS=(dp-erm-bench algorithm = gr); COMP_CWORD=3\n"
        '_dp_erm_bench; echo "${COMPREPLY[@]}"\n'
        "COMP_LINE='dp-erm-bench budget. seed=1'; COMP_POINT=20\n"
        '_dp_erm_bench; echo "${COMPREPLY[@]}"\n'
        "complete -p dp-erm-bench\n"
    )
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "greedy_cd",
        "budget.adjacency= budget.delta= budget.epsilon=",
        "complete -o default -F _dp_erm_bench dp-erm-bench",
    ]
    assert not done.stderr


@pytest.mark.alone
def test_an_answer_takes_little_and_imports_nothing_heavy(tmp_path, environment):
    code = (
        "import sys, time; from dp_erm_bench.cli.main import COMMANDS, main; "
        "main(['-sc', 'query=bash']); print(*sys.modules, file=sys.stderr); "
        "print(time.process_time(), file=sys.stderr)"
    )
    line = {"COMP_LINE": "dp-erm-bench algorithm.greedy_cd.", "COMP_POINT": "99"}

    def answer():
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**environment, **line},
            capture_output=True,
            text=True,
            check=True,
        )
        modules, seconds = done.stderr.splitlines()
        assert "algorithm.greedy_cd.rule=" in done.stdout.split()
        assert not {"hydra", "omegaconf", "numpy", "numba"} & set(modules.split())
        return float(seconds)

    assert min(answer() for _ in range(3)) <= 0.3
