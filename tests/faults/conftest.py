"""Fixtures of the runner, for faults in whole runs."""

import contextlib
import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

path = Path(__file__).parents[1] / "runner" / "conftest.py"
spec = importlib.util.spec_from_file_location("runner_fixtures", path)
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)
block, tuned, run, inline = (
    getattr(fixtures, name) for name in ("block", "tuned", "run", "inline")
)

sys.path.insert(0, str(Path(__file__).parent))

from launch import Runs  # noqa: E402


@pytest.fixture
def runs(tmp_path):
    """Start runs that end with the test, whatever they are at."""
    found = Runs(tmp_path)
    yield found
    for process in found.started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
