"""The wheel holds all that the command needs, and runs from an empty folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dp_erm_bench import __version__, registry

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
    assert "dp_erm_bench/conf/config.yaml" in names
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
