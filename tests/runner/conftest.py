import sys
from pathlib import Path

import pytest

from dp_erm_bench.runner import experiment, session
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.worker import run_recorded

# Workers get the path of their parent, and import the fake backends by name.
sys.path.insert(0, str(Path(__file__).parent))

from made_blocks import make_block, make_tuned  # noqa: E402


class InlinePool:
    """Runs batches in this process: fast, where processes are not the matter."""

    def __init__(self, engine, job):
        self.job = job

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def run(self, batches):
        for batch in batches:
            yield run_recorded(batch, self.job)


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
    monkeypatch.setattr(experiment, "Worker", lambda execute: None)
    return run
