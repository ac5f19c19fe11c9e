import subprocess
import sys
import time
from dataclasses import fields

import pytest

from dp_erm_bench import __version__, registry
from dp_erm_bench.cli.look import KEYS
from dp_erm_bench.cli.main import help_text, main
from dp_erm_bench.cli.usage import COMMANDS, GROUPS, HELP
from dp_erm_bench.experiment.schema import PatternSearch, frame_keys
from dp_erm_bench.registry import QUANTITIES

HEAVY = {"hydra", "omegaconf", "numpy", "pandas", "numba", "yaml", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], [], ["a=1", "-h"]])
def test_help_names_every_choice(arguments, capsys):
    assert main(arguments) == 0
    said = capsys.readouterr().out
    for group in GROUPS:
        for name in registry.names(group):
            assert name in said


@pytest.mark.parametrize("name", [*COMMANDS])
def test_the_help_of_a_command_is_its_own(name, capsys):
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"dp-erm-bench {name}")
    others = {f"dp-erm-bench {one}" for one in COMMANDS if one != name}
    assert not any(line.startswith(tuple(others)) for line in said.splitlines())
    assert main(["help", name]) == 0 and capsys.readouterr().out == said


@pytest.mark.parametrize("name", [*COMMANDS])
def test_the_help_of_a_command_fits_a_screen_and_begins_with_an_example(name):
    lines = HELP[name].splitlines()
    assert lines[0].startswith(f"dp-erm-bench {name} ") and "[" not in lines[0]
    assert len(lines) <= 24 and max(map(len, lines)) <= 80


def test_the_help_of_tune_and_look_names_the_keys_that_they_alone_have():
    searched = {f"tune.search.{one.name}" for one in fields(PatternSearch)}
    tuned = {f"tune.{key}" for key in ("axes", "limits", "quantity", "seeds", "report")}
    told = HELP["tune"]
    assert all(key in told for key in searched | tuned)
    assert "profile=published" in told
    assert all(one in told for one in QUANTITIES)
    assert all(f"dataset.{key}" in HELP["look"] for key in KEYS)


SELDOM = (
    *("runner.batch_trials", "runner.report_trials", "runner.batch_work"),
    "runner.engine",
)


def test_help_names_every_key():
    said = help_text()
    for key in frame_keys():
        if key not in SELDOM:
            assert key in said, key


@pytest.mark.alone
def test_help_takes_at_most_a_fifth_of_a_second(tmp_path, environment):
    def seconds():
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "dp_erm_bench", "--help"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) <= 0.2


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_nothing_heavy_is_imported_to_answer(argument, tmp_path, environment):
    code = (
        "import sys; from dp_erm_bench.cli.main import main; "
        f"main([{argument!r}]); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout and not HEAVY & set(done.stderr.split())


def test_a_wrong_line_is_refused_before_the_solvers_are_imported(tmp_path, environment):
    code = (
        "import sys; from dp_erm_bench.cli.main import main; "
        "assert main(['sede=1']) == 2; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    heavy = {"numba", "pandas", "sklearn", "matplotlib", "dp_accounting", "libsvmdata"}
    assert not heavy & set(done.stdout.split())


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dp-erm-bench {__version__}\n"


def test_threads_are_one_before_numpy_comes(tmp_path, environment):
    code = (
        "import os, sys; from dp_erm_bench.cli.main import main; main(['--version']); "
        "assert 'numpy' not in sys.modules; "
        "print(os.environ['OMP_NUM_THREADS'], os.environ['NUMBA_NUM_THREADS'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "OMP_NUM_THREADS": "8"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "1 1"


def test_a_reader_that_has_enough_is_no_error(tmp_path, environment):
    done = subprocess.run(
        f"{sys.executable} -m dp_erm_bench list | head -n 1",
        shell=True,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "dataset\n" and not done.stderr
