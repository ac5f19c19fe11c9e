import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dp_erm_bench import registry


@pytest.mark.slow
def test_every_module_that_a_trial_enters_is_in_its_key(tmp_path):
    """The worst bug of all would be stale numbers under the right key."""
    own = {"NUMBA_DISABLE_JIT": "1", "DP_ERM_BENCH_CACHE": str(tmp_path)}
    program = [sys.executable, str(Path(__file__).with_name("traced.py"))]
    done = subprocess.run(program, env={**os.environ, **own}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["missed"] == {}
    for group in ("loss", "penalty", "constraint"):
        assert set(registry.names(group)) <= set(found["served"]), found
    risks = {n for n in registry.names("algorithm") if not n.startswith("mean_")}
    assert risks <= set(found["served"])
    # What is chosen is not reached otherwise: without it the test would fail.
    assert found["counts"]["ok"] > 60 and found["chosen"] > 60
