"""Test that the wheel has all files of the command, which runs in an empty folder."""

import os
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dp_erm_bench import __version__, registry

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_it_holds_every_module_and_every_yaml(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    package = {
        str(path.relative_to(ROOT)) for path in (ROOT / "dp_erm_bench").rglob("*.py")
    }
    conf = {
        f"dp_erm_bench/conf/{path.parent.name}/{path.name}"
        for path in (ROOT / "conf").glob("*/*.yaml")
    }
    assert package | conf <= set(names)
    assert {"dp_erm_bench/conf/config.yaml", "dp_erm_bench/py.typed"} <= set(names)
    assert len(names) == len(set(names))


def test_it_holds_nothing_else(wheel):
    for name in zipfile.ZipFile(wheel).namelist():
        top = name.split("/")[0]
        info = f"dp_erm_bench-{__version__}.dist-info"
        assert top in ("dp_erm_bench", info)
        assert "__pycache__" not in name and not name.endswith((".npz", ".parquet"))


def command(installed, folder, *arguments):
    """Run what the console script runs, with nothing of the checkout in sight."""
    entry = (next(installed.glob("*.dist-info")) / "entry_points.txt").read_text()
    assert "dp-erm-bench = dp_erm_bench.cli.main:main" in entry
    code = (
        "import sys, dp_erm_bench; from dp_erm_bench.cli.main import main; "
        f"assert dp_erm_bench.__file__.startswith({str(installed)!r}); "
        "sys.argv[0] = 'dp-erm-bench'; sys.exit(main())"
    )
    # -P and a blank search path: an editable install comes after the wheel.
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(installed), "PATH": "", "HOME": str(installed.parent)},
        capture_output=True,
        text=True,
    )


def test_it_lists_from_an_empty_folder(installed, tmp_path):
    done = command(installed, tmp_path, "list")
    assert done.returncode == 0, done.stderr
    for group in ("dataset", "algorithm", "experiment"):
        for name in registry.names(group):
            assert name in done.stdout
    assert not list(tmp_path.iterdir())


def test_it_plans_from_an_empty_folder(installed, tmp_path):
    arguments = ["dataset=log1", "algorithm.random_cd.clip=1", "seed=1,2", "mode=plan"]
    done = command(installed, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert "2" in done.stdout


def test_it_says_errors_as_the_checkout_does(installed, tmp_path):
    done = command(installed, tmp_path, "budget.epsiln=1")
    assert done.returncode == 2
    assert done.stderr.startswith("dp-erm-bench: budget.epsiln: no such key")


# An environment of one's own: the wheel and what it requires to run, nothing else.

# Compiled bytecode among it; llvmlite, pyarrow and scipy are more than half.
MOST_MEGABYTES = 900


def required(installed):
    """The distributions that the wheel requires without an extra, and those require."""
    (metadata,) = installed.glob("*.dist-info/METADATA")
    lines = metadata.read_text().partition("\n\n")[0].splitlines()
    key = "Requires-Dist: "
    waiting = [line.removeprefix(key) for line in lines if line.startswith(key)]
    found = {}
    while waiting:
        one = Requirement(waiting.pop())
        if one.name in found or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        found[one.name] = distribution(one.name)
        waiting += found[one.name].requires or []
    return found


@pytest.fixture(scope="module")
def environment(wheel, installed, tmp_path_factory):
    """A fresh environment with the wheel, its requirements linked to those here."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    for one in required(installed).values():
        tops = {file.parts[0] for file in one.files} - {"..", "__pycache__"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(one.locate_file(top))
    into = [f"--python={folder / 'bin' / 'python'}", "install", "--no-deps"]
    quiet = ["--no-index", "--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", *into, *quiet, str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return folder


def test_development_tools_are_no_requirement(installed):
    names = {name.lower() for name in required(installed)}
    tools = {"pytest", "hypothesis", "mypy", "ruff", "ipykernel", "nbclient", "dask"}
    assert {"numpy", "scikit-learn", "hydra-core"} <= names and not names & tools


def test_what_is_required_is_no_larger_than_the_readme_says(installed):
    files = {
        os.path.realpath(one.locate_file(file))
        for one in required(installed).values()
        for file in one.files
    }
    size = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    assert 100 < size / 1e6 < MOST_MEGABYTES
    assert f"{MOST_MEGABYTES} MB" in (ROOT / "README.md").read_text()


def test_the_command_runs_from_the_wheel_in_an_empty_environment(environment, tmp_path):
    typed = ["dataset=breast_cancer", "algorithm=gd", "algorithm.gd.clip=1"]
    typed += ["algorithm.gd.n_iter=2", "seed=0"]
    done = subprocess.run(
        [environment / "bin" / "dp-erm-bench", *typed],
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "1 ok" in done.stdout
    code = (
        "import dp_erm_bench as d, importlib.util as u; "
        f"assert d.__file__.startswith({str(environment)!r}); "
        "assert not any(map(u.find_spec, ('pytest', 'mypy', 'dask'))); "
        "print(len(d.load_results('results/sweep')))"
    )
    python = [environment / "bin" / "python", "-P", "-c", code]
    seen = subprocess.run(python, cwd=tmp_path, capture_output=True, text=True)
    assert seen.stdout.strip() == "3", seen.stderr
