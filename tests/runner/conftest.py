import sys
from pathlib import Path

import pytest

from dp_erm_bench.runner import session
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.worker import run_recorded

# Workers get the path of their parent, and import the fake backends by name.
sys.path.insert(0, str(Path(__file__).parent))

SMALL = {"name": "log1", "n": 60, "p": 5}


def make_block(**changes):
    """A sweep over three seeds on a tiny dataset."""
    usual = {
        "panel": "panel",
        "line": "line",
        "dataset": SMALL,
        "algorithm": {"name": "random_cd", "clip": 1.0, "passes": 2},
        "budget": {"epsilon": 1.0},
        "seed": [0, 1, 2],
    }
    return {**usual, **changes}


def make_tuned(tune=None, **changes):
    """A line tuned over step and clip, whose best setting the fake bowl knows."""
    section = {
        "axes": {"step": [0.1, 0.3, 1.0], "clip": [2.0, 4.0, 8.0, 16.0]},
        "seeds": [0, 1],
        "report": [100, 101],
        **(tune or {}),
    }
    algorithm = {"name": "random_cd", "passes": 2}
    changes = {"algorithm": algorithm, "tune": section, **changes}
    made = make_block(**changes)
    del made["seed"]
    return made


class InlinePool:
    """Runs batches in this process: fast, where processes are not the matter."""

    def __init__(self, n_jobs, folder, execute):
        self.folder, self.execute = folder, execute

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def run(self, batches):
        for batch in batches:
            yield run_recorded(batch, str(self.folder), self.execute)


@pytest.fixture
def block():
    return make_block


@pytest.fixture
def tuned():
    return make_tuned


@pytest.fixture
def run(tmp_path):
    """Run blocks in worker processes; return the exit code."""

    def start(*blocks, execute="bowl", folder=tmp_path / "run", **options):
        execute = execute if "." in execute else f"fakes.{execute}"
        made = RunOptions(execute=execute, progress=False, **options)
        return run_experiment(blocks, "study", folder, made)

    start.folder = tmp_path / "run"
    return start


@pytest.fixture
def inline(run, monkeypatch):
    """Run blocks in this process."""
    monkeypatch.setattr(session, "Pool", InlinePool)
    return run
