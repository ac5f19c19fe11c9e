import contextlib

import pytest

from tests.solvers.cases import few_replays


@pytest.fixture(autouse=True)
def replayed_by_turns(request):
    """Replay a part of the cases: what is broken here is found in them.

    What a sample betrays may show in a single one.
    """
    rare = request.path.name == "test_samples.py"
    with contextlib.nullcontext() if rare else few_replays():
        yield
