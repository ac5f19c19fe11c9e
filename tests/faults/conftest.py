"""The runner's fixtures, for faults in whole runs."""

import importlib.util
from pathlib import Path

path = Path(__file__).parents[1] / "runner" / "conftest.py"
spec = importlib.util.spec_from_file_location("runner_fixtures", path)
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)
block, tuned, run, inline = (
    getattr(fixtures, name) for name in ("block", "tuned", "run", "inline")
)
