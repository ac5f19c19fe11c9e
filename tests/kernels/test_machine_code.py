"""Machine code is that of the sources, and is kept as long as they stay."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FIT = """
import json, sys
from pathlib import Path
from dp_erm_bench import fit, problem_from_arrays
from dp_erm_bench.kernels import compiled

X, y = [[1.0, -2.0], [0.5, 1.0], [3.0, 0.25]], [1.0, -1.0, 1.0]
problem = problem_from_arrays(X, y, loss="logistic", penalty="none")
w = fit(problem, "gd", epsilon=float("inf"), seed=0, n_iter=1, step=1.0).w.tolist()
modules = [m for n, m in sys.modules.items() if n.startswith("dp_erm_bench.kernels.")]
found = {thing for module in modules for thing in vars(module).values() if
         hasattr(thing, "py_func")}
stats = [kernel.stats for kernel in found]
kept = sum(path.suffix == ".nbc" for path in Path(sys.argv[1]).rglob("*"))
print(json.dumps({
    "value": w, "file": compiled.__file__,
    "hits": sum(sum(s.cache_hits.values()) for s in stats),
    "misses": sum(sum(s.cache_misses.values()) for s in stats), "kept": kept,
}))
"""
# A kernel that has the code of another file's within it.
RESIDUAL = """
import json
import numpy as np
from dp_erm_bench.kernels.dense import all_residuals as kernel
from dp_erm_bench.losses.logistic import Logistic

out, zeros = np.empty((1, 1)), np.zeros((1, 1))
kernel(Logistic(), np.ones(1), zeros, out)
print(json.dumps({
    "value": out[0, 0],
    "hits": sum(kernel.stats.cache_hits.values()),
    "misses": sum(kernel.stats.cache_misses.values()),
    "folder": kernel.stats.cache_path,
}))
"""


@pytest.fixture
def copied(tmp_path):
    """Return a copy of the package, whose machine code lies in a cache of its own."""
    shutil.copytree(
        REPOSITORY / "dp_erm_bench",
        tmp_path / "dp_erm_bench",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    skipped = shutil.ignore_patterns("experiment")
    shutil.copytree(REPOSITORY / "conf", tmp_path / "conf", ignore=skipped)
    return tmp_path


def environment(folder, **given):
    kept = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    own = {"PYTHONPATH": str(folder), "DP_ERM_BENCH_CACHE": str(folder / "cache")}
    return {**kept, **own, **given}


def start(folder, code=RESIDUAL, **given):
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder / "cache")],
        cwd=folder,
        env=environment(folder, **given),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1]), err


def result(folder, code=RESIDUAL, **given):
    found, err = ended(start(folder, code, **given))
    assert not err
    return found


def halve(folder):
    """Halve the derivative of the logistic loss, in its file."""
    file = folder / "dp_erm_bench" / "losses" / "logistic.py"
    source = file.read_text()
    assert source.count("return -y * sigmoid") == 1
    file.write_text(source.replace("return -y * sigmoid", "return -0.5 * y * sigmoid"))


def test_an_edit_reaches_the_kernels_of_other_files(copied):
    cold, warm = result(copied, FIT), result(copied, FIT)
    assert str(copied) in cold["file"] and cold["kept"] > 1
    assert warm["hits"] > 1 and warm["misses"] == 0
    assert (warm["value"], warm["kept"]) == (cold["value"], cold["kept"])
    halve(copied)
    edited = result(copied, FIT)
    assert edited["kept"] == 2 * cold["kept"] and all(cold["value"])
    assert edited["value"] == [x / 2 for x in cold["value"]]


@pytest.mark.parametrize("wish", ["", "wished"])
def test_machine_code_lies_in_one_place(copied, wish):
    given = {"NUMBA_CACHE_DIR": str(copied / wish)} if wish else {}
    folder = Path(result(copied, **given)["folder"])
    place = copied / wish if wish else copied / "cache" / "machine_code"
    assert folder.is_relative_to(place)
    assert not list((copied / "dp_erm_bench").rglob("*.nb[ci]"))


def test_without_a_place_for_it_nothing_stale_is_used(copied):
    (copied / "cache").write_text("a file where the folder should be")
    found, err = ended(start(copied))
    assert err.count("every process compiles the kernels anew") == 1
    assert found["value"] == -0.5 and not list(copied.rglob("*.nb[ci]"))
    halve(copied)
    assert ended(start(copied))[0]["value"] == -0.25


def test_processes_that_compile_at_once_keep_their_files_apart(copied):
    both = [ended(process)[0] for process in [start(copied), start(copied)]]
    assert [found["value"] for found in both] == [-0.5, -0.5]
    again = result(copied)
    assert (again["hits"], again["misses"]) == (1, 0)
    names = [file.name.split(".")[-2] for file in copied.rglob("*.nbc")]
    assert names and all("-" in name for name in names)


USING = "import dp_erm_bench.kernels.losses, time; print(1, flush=True); input()"


def old_folders(copied, count):
    place = copied / "cache" / "machine_code"
    for age in range(1, count + 1):
        folder = place / f"dp_erm_bench-{age:032}"
        folder.mkdir(parents=True)
        (folder / "lock").touch()
        (folder / "code.nbc").touch()
        os.utime(folder, times=(time.time() - 3600 * age,) * 2)
    return place


def test_folders_do_not_pile_up_and_what_is_used_stays(copied):
    using = subprocess.Popen(
        [sys.executable, "-c", USING],
        cwd=copied,
        env=environment(copied),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert using.stdout.readline() == "1\n"
        place = copied / "cache" / "machine_code"
        (used,) = place.iterdir()
        os.utime(used, times=(0, 0))
        old_folders(copied, 40)
        (place / "not_ours").mkdir()
        halve(copied)
        result(copied, USING.replace("; input()", ""))
    finally:
        using.communicate("\n")
    left = {path.name for path in place.iterdir()}
    assert {used.name, "not_ours"} < left
    assert len(left) == 16 + 2
    assert f"dp_erm_bench-{1:032}" in left and f"dp_erm_bench-{40:032}" not in left


SOLVER = """
from dp_erm_bench.plugins.load import load
from dp_erm_bench.plugins.names import pinned
import json
print(json.dumps(load(pinned("own.py", "algorithm")).weight()))
"""
OWN = """
from dataclasses import dataclass
import numba
from beside import double
from dp_erm_bench.solvers.gd import GD

@numba.njit(cache=True)
def both(x):
    return double(x) + 1.0

@dataclass(frozen=True)
class Own(GD):
    '''As GD.

    References
    ----------
    None.
    '''
    @staticmethod
    def weight():
        return both(1.0), sum(both.stats.cache_hits.values())
"""
BESIDE = "import numba\n@numba.njit(cache=True)\ndef double(x):\n    return 2.0 * x\n"


def test_a_solver_file_has_the_code_of_the_modules_beside_it(copied):
    (copied / "own.py").write_text(OWN)
    (copied / "beside.py").write_text(BESIDE)
    assert [result(copied, SOLVER) for _ in range(2)] == [[3.0, 0], [3.0, 1]]
    (copied / "beside.py").write_text(BESIDE.replace("2.0", "5.0"))
    assert result(copied, SOLVER) == [6.0, 0]
