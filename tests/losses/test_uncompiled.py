"""A loss that no compiled kernel computes is refused by name, and never diverges."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench import fit, problem_from_arrays
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.losses.logistic import Logistic
from dp_erm_bench.problems.erm.oracles import make_oracle

REPOSITORY = Path(__file__).resolve().parents[2]


class Exponential(Loss):
    name = "exponential"
    classification = True
    lipschitz = smoothness = 30.0

    def value(self, y, z):
        return np.exp(-y * z)

    def derivative(self, y, z):
        return -y * np.exp(-y * z)

    def second_derivative(self, y, z):
        return np.exp(-y * z)

    def check_labels(self, y):
        pass


class Unknown(Exponential):
    code = 99


class Steep(Logistic):
    """Its kernels would be the logistic loss's."""

    name = "steep"

    def derivative(self, y, z):
        return 2.0 * super().derivative(y, z)


class Renamed(Logistic):
    name = "renamed"


def problem_of(loss):
    X, y = np.array([[1.0, -1.0], [0.5, 2.0], [-1.0, 0.5]]), np.array([1.0, -1.0, 1.0])
    return replace(
        problem_from_arrays(X, y, loss="logistic", penalty="none"), loss=loss
    )


@pytest.mark.parametrize("algorithm", ["gd", "random_cd", "sgd"])
@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Exponential(), "loss=exponential: no algorithm runs on it, .* no kernels"),
        (Unknown(), "loss=exponential: no algorithm runs on it, .* no kernels"),
        (Steep(), "loss=steep: no algorithm runs on it, as derivative is its own"),
    ],
)
def test_a_fit_is_refused_in_one_sentence(algorithm, loss, words):
    with pytest.raises(Unsupported, match=words) as caught:
        fit(problem_of(loss), algorithm, epsilon=1.0, clip=1.0, seed=0)
    assert "\n" not in str(caught.value)
    with pytest.raises(Unsupported, match=words):
        make_oracle(problem_of(loss), 1)


def test_a_loss_that_changes_no_number_is_served():
    found, known = (
        fit(problem_of(loss), "gd", epsilon=np.inf, n_iter=2, step=1.0)
        for loss in (Renamed(), Logistic())
    )
    assert found.w.tolist() == known.w.tolist()


LOSS = """
from dataclasses import dataclass
import numpy as np
from dp_erm_bench.losses.logistic import Logistic

@dataclass(frozen=True)
class Doubled(Logistic):
    name = "doubled"
    code = 17

    def value(self, y, z):
        return 2.0 * super().value(y, z)

    def derivative(self, y, z):
        return 2.0 * super().derivative(y, z)
"""
SWEEP = [
    *("dataset=log1", "dataset.n=30", "dataset.p=3", "loss=doubled", "algorithm=gd"),
    *("algorithm.gd.clip=1", "budget.epsilon=1", "seed=0", "runner.n_jobs=1"),
]


def test_a_sweep_tells_that_it_was_skipped(tmp_path):
    hidden = shutil.ignore_patterns("__pycache__", "experiment")
    for part in ("dp_erm_bench", "conf"):
        shutil.copytree(REPOSITORY / part, tmp_path / part, ignore=hidden)
    loss = tmp_path / "dp_erm_bench" / "losses" / "doubled.py"
    loss.write_text(LOSS)
    target = "_target_: dp_erm_bench.losses.doubled.Doubled\n"
    (tmp_path / "conf" / "loss" / "doubled.yaml").write_text(target)
    done = subprocess.run(
        [sys.executable, "-m", "dp_erm_bench", *SWEEP],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    table = pd.read_parquet(tmp_path / "results" / "sweep" / "results.parquet")
    assert set(table["status"]) == {"skipped"}
    assert table["message"].str.startswith("loss=doubled: no algorithm runs on").all()
