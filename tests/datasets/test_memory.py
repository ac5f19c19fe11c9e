"""Test how much memory building a problem takes, relative to its features."""

import tracemalloc

import numpy as np
import pandas as pd
import scipy.sparse as sp

from dp_erm_bench import load_problem, problem_from_arrays
from dp_erm_bench.datasets.prepare import DeclaredBounds, Recipe, prepare_arrays
from tests.loops import each

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (3000, 60))
SPARSE = sp.random_array((6000, 900), density=0.05, format="csr", rng=RNG)
HALF = {"bounds": {"columns": 0.5}, "clip_to_bounds": True}
HOWS = [
    {},
    {"bounds": {"columns": 1.0}},
    {**HALF, "intercept": 1.0},
    {**HALF, "scale": "bounds", "intercept": 1.0},
    {"bounds": {"norm": 2.0, "nonzeros": 25}, "clip_to_bounds": True},
]
FORMS = [np.asarray, np.asfortranarray, np.float32, pd.DataFrame]
FORMS += [sp.csr_array, sp.csc_array]


def labels(features):
    return np.where(np.arange(features.shape[0]) % 3 == 0, 1.0, -1.0)


def times(make, X):
    """Return the most bytes that were held at once, in those of the features given."""
    tracemalloc.start()
    make()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A problem holds int32 indices.
    sparse = sp.issparse(X)
    return most / (12 * X.nnz + 4 * X.shape[1] if sparse else 8 * np.size(X))


@each("form", FORMS)
@each("how", HOWS)
def test_few_copies_of_arrays_are_made(form, how):
    given = form(SPARSE if form in FORMS[-2:] else X)
    before = given.copy()

    def make():
        return problem_from_arrays(given, labels(given), loss="logistic", **how)

    make()  # what a process imports and keeps is none of it
    assert times(make, given) < (3.0 if sp.issparse(given) else 2.2)
    # What is clipped in place is a copy.
    same = given != before
    assert not (same.nnz if sp.issparse(given) else np.asarray(same).any())


@each("form", FORMS)
@each("loss", ["squared", "logistic"])
def test_the_arrays_of_a_caller_are_left_alone(form, loss):
    """Neither their values nor whether they can be written to change."""
    given = form(SPARSE if form in FORMS[-2:] else X)
    parts = [given.data] if sp.issparse(given) else [np.asarray(given)]
    y = labels(given)
    bounds = {"columns": 0.5, "norm": 0.7, "label": 0.5 + (loss == "logistic")}
    parts.append(y)
    before = [(part.copy(), part.flags.writeable) for part in parts]
    for how in ({}, {"bounds": bounds, "clip_to_bounds": True, "intercept": 1.0}):
        made = problem_from_arrays(given, y, loss=loss, **how).dataset
        assert not np.shares_memory(made.y, y)
        own = [made.X.data] if made.sparse else [made.X]
        assert not any(np.shares_memory(one, part) for one in own for part in parts)
    for part, (values, writeable) in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part, values)
        assert part.flags.writeable == writeable


def test_what_a_loader_keeps_is_left_alone():
    kept = np.asfortranarray(X[:50]), labels(X[:50]), np.ones(30)
    made = prepare_arrays(
        "toy", kept, Recipe(clip=DeclaredBounds(np.array(0.1)), intercept=1.0)
    )
    assert np.abs(made["X"][:, :-1]).max() == 0.1
    assert all(one.flags.writeable for one in kept) and np.abs(kept[0]).max() > 0.9
    assert not made["w_true"].flags.writeable


@each("dense", [True, False])
@each("how", [HOWS[2], {"test_fraction": 0.2}, {"standardise": "scale"}])
def test_few_copies_of_a_file_are_made(dense, how, tmp_path):
    made, rows = [], np.tile(X, (4, 1))  # numpy reads half a megabyte at once
    for name in ("first", "second"):
        arrays = {"X": rows + len(made), "y": labels(rows)}
        if not dense:
            keys = ("data", "indices", "indptr", "shape")
            arrays = {key: getattr(SPARSE, key) for key in keys}
            arrays |= {"data": SPARSE.data + len(made), "format": "csr"}
            arrays["y"] = labels(SPARSE)
        np.savez(tmp_path / f"{name}.npz", **arrays)
        bounds = {"bounds": {"columns": 2.0}} if "bounds" in how else {}
        how = {"loss": "logistic", "penalty": "none", **how, **bounds}

        def make(path=tmp_path / f"{name}.npz", how=how):
            return load_problem("file", path=str(path), **how)

        made.append(make)
    made[0]()
    assert times(made[1], rows if dense else SPARSE) < (2.3 if dense else 3.1)
