"""A SLURM for the tests of engines, one per session."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

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
