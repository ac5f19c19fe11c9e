"""Blocks with which tests of the runner begin."""

SMALL = {"name": "log1", "n": 60, "p": 5}


def make_block(**changes):
    """A sweep over three seeds on a tiny dataset."""
    usual = {
        "panel": "panel",
        "line": "line",
        "dataset": SMALL,
        "algorithm": {"name": "random_cd", "clip": 1.0, "passes": 2, "step": 1.0},
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
