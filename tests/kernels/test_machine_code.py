"""Test that machine code belongs to the sources, in any order of compiling."""

import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest

from dp_erm_bench import cached, machine_code

REPOSITORY = Path(__file__).resolve().parents[2]
# A kernel that has the code of another file's within it.
RESIDUAL = """
import json
import numpy as np
from dp_erm_bench.kernels import dense
from dp_erm_bench.losses.smooth import Logistic

kernel, out, zeros = dense.all_residuals, np.empty((1, 1)), np.zeros((1, 1))
kernel(Logistic(), np.ones(1), zeros, out)
print(json.dumps({
    "value": out[0, 0], "file": dense.__file__,
    "hits": sum(kernel.stats.cache_hits.values()),
    "folder": kernel.stats.cache_path,
}))
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """Return two copies of the package that share a cache of their own."""
    place = tmp_path_factory.mktemp("copies")
    for name in ("one", "other"):
        shutil.copytree(
            REPOSITORY / "dp_erm_bench",
            place / name / "dp_erm_bench",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        skipped = shutil.ignore_patterns("experiment")
        shutil.copytree(REPOSITORY / "conf", place / name / "conf", ignore=skipped)
    return place


def start(folder, code=RESIDUAL, **given):
    own = {"PYTHONPATH": str(folder), "DP_ERM_BENCH_CACHE": str(folder.parent / "kept")}
    kept = {k: v for k, v in os.environ.items() if k != machine_code.VARIABLE}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**kept, **own, **given},
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


def files(folder):
    """Return the contents of kept machine code by name."""
    paths = [path for path in folder.rglob("*") if len(path.name) == 64]
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.slow
def test_clones_share_it_and_an_edit_reaches_the_kernels_of_other_files(copied):
    # At once: each waits for what the other one is compiling.
    both = [start(copied / name) for name in ("one", "other")]
    one, other = (ended(process)[0] for process in both)
    assert one["value"] == other["value"] == -0.5
    assert one["file"] != other["file"] and one["folder"] == other["folder"]
    assert Path(one["folder"]) == copied / "kept" / "machine_code"
    kept = files(copied / "kept")
    assert len(kept) > 1
    assert result(copied / "other")["hits"] == 1
    assert files(copied / "kept") == kept
    file = copied / "other" / "dp_erm_bench" / "losses" / "smooth.py"
    source = file.read_text()
    was, now = "return -y * sigmoid(-y * z)\n", "return -0.5 * y * sigmoid(-y * z)\n"
    assert source.count(was) == 1
    file.write_text(source.replace(was, now))
    elsewhere = {machine_code.VARIABLE: str(copied / "wished")}
    (copied / "full").write_text("a file where the cache should be")
    nowhere = {"DP_ERM_BENCH_CACHE": str(copied / "full")}
    edited = [start(copied / "other", **given) for given in (elsewhere, nowhere)]
    (wished, silent), (compiled, said) = map(ended, edited)
    assert wished["value"] == compiled["value"] == -0.25 and not silent
    assert said.count("every process compiles the kernels anew") == 1
    assert len(said.splitlines()) == 1
    assert Path(wished["folder"]).is_relative_to(copied / "wished")
    assert not list(copied.rglob("*.nb[ci]"))


FITS = """
import json, sys
import numpy as np
from dp_erm_bench import fit, problem_from_arrays

random = np.random.default_rng(3)
X = random.uniform(-1.0, 1.0, (60, 5))
y = np.where(X[:, 0] > 0.1, 1.0, -1.0)
made = {}
for name in sys.argv[1].split(","):
    algorithm, loss = name.split()
    psi = {"loss": loss, "penalty": "l2", "strength": 0.1}
    problem = problem_from_arrays(X, y, bounds=1.0, **psi)
    made[name] = fit(problem, algorithm, epsilon=1.0, passes=2, clip=1.0, seed=7).w
print(json.dumps({name: w.tobytes().hex() for name, w in sorted(made.items())}))
"""
ORDER = ["sgd logistic", "sgd smoothed_hinge", "random_cd logistic"]


@pytest.mark.slow
def test_numbers_do_not_depend_on_who_compiled_what_and_when(tmp_path):
    """Cold, warm, in another order, with callees alone, without a folder, at once."""

    def fits(folder, names=ORDER):
        place = tmp_path / folder
        given = {"DP_ERM_BENCH_CACHE": str(place), "PYTHONPATH": str(REPOSITORY)}
        kept = {k: v for k, v in os.environ.items() if k != machine_code.VARIABLE}
        return subprocess.Popen(
            [sys.executable, "-c", FITS, ",".join(names)],
            env={**kept, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def found(process):
        out, _ = process.communicate()
        assert process.returncode == 0
        return json.loads(out)

    known = found(fits("one"))
    assert len({*known.values()}) == len(ORDER)
    assert found(fits("one")) == known
    assert found(fits("other", ORDER[::-1])) == found(fits("other")) == known
    found(fits("callees", ["permutation_sgd logistic"]))
    assert found(fits("callees")) == known
    (tmp_path / "full").touch()
    assert found(fits("full")) == known
    # Two losses of one kernel at once, in a folder that has neither.
    both = [fits("both", [name]) for name in ORDER[:2]]
    for process, name in zip(both, ORDER, strict=False):
        assert found(process) == {name: known[name]}
    assert found(fits("both")) == known


SOLVER = """
from dp_erm_bench.plugins.load import load_class
from dp_erm_bench.plugins.names import pin_file
import json
print(json.dumps(load_class(pin_file("own.py", "algorithm")).weight()))
"""
OWN = """
from dataclasses import dataclass
import numba
from beside import double
from dp_erm_bench.extend import kernel
from dp_erm_bench.solvers.gd import GD

@numba.njit(cache=True)
def both(x):
    return double(x) + 1.0

@kernel
def ours(x):
    return both(x) + 0.5

@dataclass(frozen=True)
class Own(GD):
    '''As GD.

    References
    ----------
    None.
    '''
    @staticmethod
    def weight():
        return ours(1.0), sum(ours.stats.cache_hits.values())
"""
BESIDE = "import numba\n@numba.njit(cache=True)\ndef double(x):\n    return 2.0 * x\n"


def test_what_a_file_of_ones_own_compiles_ends_with_its_run(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "beside.py").write_text(BESIDE)
    given = {
        "PYTHONPATH": str(REPOSITORY),
        machine_code.VARIABLE: str(tmp_path / "kept"),
    }
    # Compiled by a child all the same, and loaded.
    assert result(tmp_path, SOLVER, **given) == [3.5, 1]
    # Constants that a module reads from a file are within the machine code.
    (tmp_path / "beside.py").write_text(BESIDE.replace("2.0", "5.0"))
    assert result(tmp_path, SOLVER, **given) == [6.5, 1]
    assert not files(tmp_path) and not list(tmp_path.rglob("*.nb[ci]"))


TINY = """
from dp_erm_bench.kernels.compiled import kernel

@kernel
def inner(x):
    return x / 3.0

@kernel
def outer(x):
    return inner(x) * 0.1 + x
"""
MOVED = TINY.replace("@kernel", "\n\n# A comment.\n@kernel").replace("    r", "\n    r")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return an empty folder of machine code, of a process that ran nothing else."""
    monkeypatch.setenv(machine_code.VARIABLE, str(tmp_path / "kept"))
    # The name of a function stands for its module here, which is the package's.
    monkeypatch.setattr(machine_code, "digest_of", lambda one: one.__qualname__)
    monkeypatch.setattr(machine_code, "is_ours", lambda function: True)
    monkeypatch.setattr(cached, "_said_here", set())
    monkeypatch.setattr(cached, "run_folder", lambda: tmp_path)
    monkeypatch.setattr(machine_code, "run_folder", lambda: tmp_path / "run")
    monkeypatch.setattr(machine_code, "scratch_folder", lambda: tmp_path / "scratch")
    return tmp_path / "kept"


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return what loads a source as the module `tiny`, from a new folder each time."""

    def load(source=TINY):
        folder = tmp_path / f"sources{len(list(tmp_path.glob('sources*')))}"
        folder.mkdir()
        file = folder / "tiny.py"
        file.write_text(source)
        os.utime(file, (0, 0))
        # It is there since before this process.
        monkeypatch.setattr(machine_code, "_begun", os.stat(file).st_ctime)
        spec = importlib.util.spec_from_file_location("dp_erm_bench.tiny", file)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


def hits(function):
    return sum(function.stats.cache_hits.values())


def test_a_moved_function_and_a_comment_compile_nothing(place, load, capfd):
    first, x = load(), 0.7
    known = first.outer(x)
    before = files(place)
    assert len(before) == 2 and known == pytest.approx(0.7 * 31 / 30)
    moved = load(MOVED)
    assert moved.outer.py_func.__code__.co_firstlineno > 12
    assert moved.outer(x) == known and hits(moved.outer) == 1
    # It is loaded as a whole: what it calls need not be.
    assert not moved.inner.signatures
    assert moved.inner(x) == first.inner(x) and hits(moved.inner) == 1
    assert files(place) == before
    assert not any(capfd.readouterr())


@pytest.mark.parametrize(
    "change",
    [
        ("NUMBA_OPT", "1"),
        ("options", {"fastmath": set(), "error_model": "numpy"}),
        ("types", np.float32(0.7)),
    ],
    ids=lambda change: change[0],
)
def test_what_changes_the_code_changes_its_name(place, load, change, monkeypatch):
    what, value = change
    load().inner(0.7)
    if what == "NUMBA_OPT":
        monkeypatch.setenv(what, value)
    function, x = load().inner, value if what == "types" else 0.7
    if what == "options":
        function = machine_code.compile_cached(function.py_func, **value)
    function(x)
    assert len(files(place)) == 2


def spoilt(rng, raw):
    """Return bytes with a flipped bit, mostly; or cut, or with bytes lost."""
    if rng.random() < 0.1:
        return raw[: rng.randrange(len(raw))]
    at = rng.randrange(len(raw))
    if rng.random() < 0.1:
        return raw[:at] + raw[at + 1 :]
    flipped = bytearray(raw)
    flipped[at] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def test_damage_is_compiled_again_and_said_once(place, load, capfd):
    known, rng = load().outer(0.7), random.Random(0)
    whole = files(place)
    for _ in range(400):
        name = rng.choice(sorted(whole))
        (place / name).write_bytes(spoilt(rng, whole[name]))
        assert machine_code._read_code(place / name) is None
        (place / name).write_bytes(whole[name])
        assert machine_code._read_code(place / name) == whole[name][32:]
    for name in whole:
        (place / name).write_bytes(spoilt(rng, whole[name]))
    again = load()
    assert again.outer(0.7) == known and files(place).keys() == whole.keys()
    assert hits(load().outer) == 0 and load().outer(0.7) == known
    said = capfd.readouterr().err
    assert said.count("machine code there is damaged, and made again\n") == 1
    assert len(said.splitlines()) == 1


NAMESAKES = """
from dp_erm_bench.kernels.compiled import kernel

@kernel
def plus(x):
    return x + 1.0

@kernel
def minus(x):
    return x - 1.0

@kernel
def f(x):
    return plus(x) * 2.0

first = f

@kernel
def f(x):
    return minus(x) * 2.0

second = f

@kernel
def f(x):
    return minus(x) * 3.0

third = f
"""


def test_functions_of_one_name_in_one_file_are_told_apart(place, load):
    for _ in range(2):  # compiled, then loaded
        module = load(NAMESAKES)
        found = [one(2.0) for one in (module.first, module.second, module.third)]
        assert found == [6.0, 2.0, 3.0]
    assert hits(module.first) == hits(module.second) == hits(module.third) == 1


def test_of_others_files_nothing_is_kept_between_runs(
    place, load, tmp_path, monkeypatch
):
    monkeypatch.setattr(machine_code, "is_ours", lambda function: False)
    module, other = load(), load()
    assert module.inner(0.7) == other.inner(0.7) and hits(other.inner) == 1
    assert not files(place) and len(files(tmp_path / "run")) == 1


@pytest.mark.parametrize("how", ["a file", "of others"])
def test_without_a_folder_of_ones_own_each_run_compiles(
    place, load, how, tmp_path, monkeypatch, capfd
):
    if how == "a file":
        place.write_text("")
    else:
        place.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    first, again = load(), load()
    assert first.outer(0.7) == again.outer(0.7) and hits(again.outer) == 1
    assert len(files(tmp_path / "run")) == 2 and not files(place)
    (said,) = capfd.readouterr().err.splitlines()
    assert str(place) in said and "every process compiles the kernels anew" in said


def test_after_an_edit_nothing_is_written(place, load):
    module = load()
    time.sleep(0.01)  # a clock's tick
    os.utime(module.__file__)
    assert module.inner(0.7) == module.inner.py_func(0.7)
    assert not files(place)


def test_what_is_moved_into_the_package_is_an_edit(place, load, monkeypatch):
    module = load()  # as old as `mv` leaves it, and here since this process began
    assert not machine_code._is_edited(True)
    came = os.stat(module.__file__).st_ctime
    monkeypatch.setattr(machine_code, "_begun", came - 1e-3)
    assert module.inner(0.7) == module.inner.py_func(0.7)
    assert not files(place)


def test_an_edit_of_others_files_concerns_their_code_alone(
    place, load, tmp_path, monkeypatch
):
    module, other = load(), load()
    monkeypatch.setitem(sys.modules, "mine", other)
    time.sleep(0.01)
    os.utime(other.__file__)
    monkeypatch.setitem(sys.modules, "dp_erm_bench.tiny", module)
    assert module.inner(0.7) == module.inner.py_func(0.7) and len(files(place)) == 1
    monkeypatch.setattr(machine_code, "is_ours", lambda function: False)
    theirs = machine_code.compile_cached(other.inner.py_func)
    assert theirs(0.7) == module.inner(0.7)
    assert len(files(tmp_path / "scratch")) == len(files(place)) == 1


def test_a_function_of_no_file_is_compiled_in_its_process(place, load, monkeypatch):
    def lost(function):
        raise LookupError(function)

    monkeypatch.setattr(machine_code, "digest_of", lost)
    function = load().outer
    assert function(0.7) == pytest.approx(0.7 * 31 / 30) and hits(function) == 0
    assert not files(place)


def test_a_numba_that_is_not_asked_for_files_is_refused(load, place, monkeypatch):
    function = load().inner
    function._cache = numba.core.caching.NullCache()
    with pytest.raises(RuntimeError, match="it does not ask our cache"):
        function(0.7)
    monkeypatch.setattr(numba.core.caching, "NullCache", dict)
    with pytest.raises(RuntimeError, match="dispatchers have no cache to be replaced"):
        load()


def test_what_was_made_long_ago_is_removed(place, load):
    load().inner(0.7)
    for days in (1, 89, 91, 1000):
        path = place / f"{days:064}"
        path.touch()
        os.utime(path, (time.time() - days * 86400.0,) * 2)
    (place / "thesis.tex").touch()
    os.utime(place / "thesis.tex", (0, 0))
    load().outer(0.7)
    assert (place / "thesis.tex").exists()
    left = {int(name) for name in files(place) if name[:9] == "0" * 9}
    assert left == {1, 89} and len(files(place)) == 4
