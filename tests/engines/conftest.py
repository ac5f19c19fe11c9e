"""Fixtures of the tests of engines: one SLURM per session, and observed faults."""

import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = map(str, (HERE, HERE.parent / "faults", HERE.parent / "runner"))

from engines import Cluster, EngineRuns, ended_all  # noqa: E402
from one_node_slurm import Unavailable, one_node_slurm  # noqa: E402


@pytest.fixture(scope="session")
def slurm():
    """Yield a running SLURM; skip, or fail if it is required, where there is none."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(one_node_slurm())
        except Unavailable as error:
            if os.environ.get("DP_ERM_BENCH_SLURM") == "require":
                pytest.fail(f"SLURM is required: {error}", pytrace=False)
            pytest.skip(f"no SLURM: {error}")
        yield running


@pytest.fixture
def heeded():
    """Let Ctrl-C be heard in what tests start, also where a shell had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def seen():
    """Write down what came of a fault on an engine, where a table is wanted."""

    def write(fault, engine, outcome):
        if table := os.environ.get("DP_ERM_BENCH_FAULTS"):
            with open(table, "a") as file:
                file.write(json.dumps([fault, engine, outcome]) + "\n")

    return write


@pytest.fixture
def runs(tmp_path, heeded):
    """Start runs that end with the test, with all that works for them."""
    made = EngineRuns(tmp_path, {})
    yield made
    ended_all(made)


@pytest.fixture
def cluster(runs, tmp_path):
    """A scheduler that has no worker yet, and lets a task lose as many as Dask does."""
    made = Cluster(runs.log, tmp_path, workers=0)
    yield made
    made.end()
