"""Fixtures: a synthetic results table with the columns that the runner writes."""

import json

import numpy as np
import pandas as pd
import pytest

CHECKPOINTS = 11


def line_rows(
    panel="log1",
    line="DP-CD cyclic",
    *,
    start=0.6,
    end=0.1,
    spread=0.1,
    passes=10.0,
    epsilon=1.0,
    n_seeds=4,
    dataset="log1",
    dataset_seed=10,
    certified=0.99,
    calibration="certified",
    uncharged="smoothness,tuning",
    status="ok",
    message="",
    phase="report",
    n=1000,
    p=100,
    loss="logistic",
    penalty="l2",
    strength=1e-3,
    standardise=False,
):
    """Rows of one line: geometric curves from start to end * (1 +- spread)."""
    rows = []
    along = np.linspace(0, 1, CHECKPOINTS)
    for seed in range(n_seeds):
        last = end * (1 + spread * (2 * seed / max(n_seeds - 1, 1) - 1))
        errors = start * (last / start) ** along
        for step, error in enumerate(errors):
            rows.append(
                {
                    "trial": f"{panel}/{line}/{epsilon}/{dataset_seed}/{phase}/{seed}",
                    "experiment": "synthetic",
                    "panel": panel,
                    "line": line,
                    "phase": phase,
                    "tuned": True,
                    "dataset": dataset,
                    "standardise": standardise,
                    "by_default": "",
                    "n": n,
                    "p": p,
                    "loss": loss,
                    "penalty": penalty,
                    "strength": strength,
                    "constraint": "none",
                    "algorithm": "random_cd",
                    "params": json.dumps({"step": 0.5, "clip": 1.25, "passes": passes}),
                    "epsilon": epsilon,
                    "delta": n**-2.0,
                    "adjacency": "replace_one",
                    "calibration": calibration,
                    "accountant": "gdp",
                    "epsilon_certified": certified,
                    "uncharged": uncharged,
                    "smoothness": "data",
                    "seed": seed,
                    "dataset_seed": dataset_seed,
                    "batch_size": n_seeds,
                    "iteration": step * p,
                    "passes": passes * along[step],
                    "seconds": 0.01 * step,
                    "objective": 0.5 * (1 + error),
                    "optimum": 0.5,
                    "relative_error": error,
                    "references": "{}",
                    "nnz": p,
                    "test_objective": np.nan,
                    "test_accuracy": np.nan,
                    **dict.fromkeys(("test_risk", "balanced_accuracy"), np.nan),
                    **dict.fromkeys(("auc", "rmse", "r2"), np.nan),
                    "status": status,
                    "message": message,
                }
            )
    return rows


@pytest.fixture(scope="session")
def rows():
    return line_rows


@pytest.fixture
def tabulate():
    """Build a table from keyword dictionaries of `line_rows`."""

    def build(*lines):
        return pd.DataFrame([row for line in lines for row in line_rows(**line)])

    return build
