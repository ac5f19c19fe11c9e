"""Test that a search killed at any stage continues to the same choice."""

import os
import signal

import pytest
from launch import ended, wait_for
from made_blocks import make_tuned

REAL = "dp_erm_bench.runner.execute.run_batch"
GRID = {"step": [0.1, 1.0], "clip": [0.5, 2.0], "passes": [1, 4]}
SEARCH = {"trials": 130, "race": [2, 3, 4, 6], "finalists": 3}
BLOCK = make_tuned(
    {"axes": GRID, "seeds": list(range(6)), "search": SEARCH},
    algorithm={"name": "random_cd"},
    # Its objective differs between batches in the last digits.
    dataset={"name": "log1", "n": 300, "p": 12},
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The choices of a run that nobody kills, and its trials."""
    from launch import Runs

    runs = Runs(tmp_path_factory.mktemp("whole"))
    assert ended(runs.start(REAL, block=BLOCK, n_jobs=1)).code == 0
    return (runs.folder / "choices.csv").read_bytes(), runs.recorded()


# In the grid, its race, the rounds and the last race.
@pytest.mark.parametrize(
    "n_jobs, shares",
    [
        (1, (0.2, 0.6, 0.9)),
        pytest.param(2, (0.03, 0.4, 0.8), marks=pytest.mark.slow),
    ],
)
def test_a_search_that_is_killed_makes_the_same_choice(runs, whole, n_jobs, shares):
    choices, trials = whole
    for at in (int(share * trials) for share in shares):
        process = runs.start(REAL, block=BLOCK, n_jobs=n_jobs)
        wait_for(lambda at=at, p=process: runs.recorded() >= at or p.poll() is not None)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (runs.folder / "choices.csv").exists()
        assert at <= runs.recorded()
    done = ended(runs.start(REAL, block=BLOCK, n_jobs=n_jobs))
    assert (done.code, done.err) == (0, "")
    assert (runs.folder / "choices.csv").read_bytes() == choices
    assert runs.recorded() == trials
