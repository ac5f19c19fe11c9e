"""Test sweeps called from Python, on the user's active joblib backend."""

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pytest
from joblib.parallel import ParallelBackendBase, register_parallel_backend

import dp_erm_bench
from dp_erm_bench.errors import UsageError

LINES = {
    "dataset": {"name": "log1", "n": 60, "p": 5},
    "algorithm": {"name": "random_cd", "clip": [0.5, 1.0], "passes": 2},
    "seed": [0, 1, 2],
}


class Plain(ParallelBackendBase):
    """A backend of one's own, with no generator: processes, all or nothing."""

    started = 0

    def effective_n_jobs(self, n_jobs):
        return n_jobs or 2

    def configure(self, n_jobs=1, parallel=None, **options):
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func, callback=None):
        Plain.started += 1
        self.pool = getattr(self, "pool", None) or ProcessPoolExecutor(2)
        future = self.pool.submit(func)
        if callback:
            future.add_done_callback(callback)
        return future

    def apply_async(self, func, callback=None):
        """As joblib before 1.5 calls it."""
        future = self.submit(func, callback)
        future.get = future.result
        return future

    def retrieve_result(self, future, timeout=None):
        return future.result(timeout)

    def terminate(self):
        if pool := getattr(self, "pool", None):
            pool.shutdown()
            self.pool = None


def rows(table):
    return table.drop(columns=["seconds", "run", "experiment"])


@pytest.fixture
def expected(tmp_path):
    return rows(dp_erm_bench.sweep(LINES, tmp_path / "ours", progress=False))


def test_a_sweep_is_that_of_the_command_line(expected, tmp_path):
    arguments = (
        "dataset=log1 dataset.n=60 dataset.p=5 algorithm=random_cd seed=0,1,2 "
        "algorithm.random_cd.clip=0.5,1.0 algorithm.random_cd.passes=2 "
        f"name=ours results_dir={tmp_path} runner.progress=false"
    )
    command = [sys.executable, "-m", "dp_erm_bench", *arguments.split()]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "6 trials (0 run now): 6 ok" in done.stdout
    assert expected.trial.nunique() == 6 and set(expected.status) == {"ok"}


def test_it_goes_on_where_it_was(expected, tmp_path, capsys):
    longer = LINES | {"seed": [0, 1, 2, 3]}
    table = dp_erm_bench.sweep([longer], str(tmp_path / "ours"), n_jobs=1)
    assert "8 trials (2 run now)" in capsys.readouterr().out
    assert table.trial.nunique() == 8


@pytest.mark.parametrize("backend", ["threading", "loky", "plain", "sequential"])
def test_the_active_backend_hosts_the_workers(expected, tmp_path, backend):
    register_parallel_backend("plain", Plain)
    before = Plain.started
    with joblib.parallel_config(backend, n_jobs=2):
        table = dp_erm_bench.sweep(LINES, tmp_path / backend, progress=False)
    assert rows(table).equals(expected)
    assert (Plain.started > before) == (backend == "plain")


@pytest.mark.parametrize("backend", ["multiprocessing", "dask"])
def test_backends_that_hang_are_refused_by_name(tmp_path, backend):
    if backend == "dask":
        from joblib._dask import DaskDistributedBackend

        active = DaskDistributedBackend.__new__(DaskDistributedBackend)
        ParallelBackendBase.__init__(active)
    else:
        active = backend
    with joblib.parallel_config(active, n_jobs=2):
        with pytest.raises(UsageError, match=f"{backend}.*waits for ever.* use "):
            dp_erm_bench.sweep(LINES, tmp_path / "none", progress=False)


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"jobs": 2}, "did you mean runner.n_jobs"),
        ({"n_jobs": 0}, "n_jobs=0: must be an integer of at least 1"),
        ({"engine": "ray"}, "runner.engine=ray"),
        ({"backend": "dask", "engine": "joblib"}, "use runner=dask"),
        ({"backend": "multiprocessing", "engine": "joblib"}, "use loky"),
        ({"backend": "lokky", "engine": "joblib"}, "runner.backend=lokky"),
        ({"backend": "loky"}, "only runner=joblib has it"),
        ({"engine": "dask", "cluster": "slurm"}, "needs a number of jobs"),
        ({"queue": "main"}, "only runner=dask with a runner.cluster, as slurm"),
        ({"address": "tcp://a:1"}, "only runner=dask has it"),
    ],
)
def test_what_is_wrong_is_refused_in_a_sentence(tmp_path, keys, said):
    with pytest.raises(UsageError) as refusal:
        dp_erm_bench.sweep(LINES, tmp_path / "none", **keys)
    assert said in str(refusal.value)
    assert not Path(tmp_path / "none").exists()


def test_no_lines_are_refused(tmp_path):
    with pytest.raises(UsageError, match="nothing to run"):
        dp_erm_bench.sweep([], tmp_path / "none")


def test_values_of_numpy_and_ranges_are_those_of_python(expected, tmp_path):
    algorithm = {**LINES["algorithm"], "clip": np.array([0.5, 1.0])}
    dataset = {"name": "log1", "n": np.int64(60), "p": np.int32(5)}
    for seed in (range(3), np.arange(3)):
        lines = {"dataset": dataset, "algorithm": algorithm, "seed": seed}
        table = dp_erm_bench.sweep(lines, tmp_path / "numpy", progress=False)
        assert rows(table).equals(expected)


@pytest.mark.parametrize("lines", [5, None, "log1", [LINES, 5]])
def test_lines_that_are_no_mappings_are_one_sentence(lines, tmp_path):
    with pytest.raises(UsageError, match="lines=.*: must be a mapping"):
        dp_erm_bench.sweep(lines, tmp_path / "none")
