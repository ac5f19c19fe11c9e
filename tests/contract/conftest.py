import pytest

from tests.solvers.cases import few_replays


@pytest.fixture(autouse=True)
def replayed_by_turns():
    """Replay a part of the cases: what is broken here is found in them."""
    with few_replays():
        yield
