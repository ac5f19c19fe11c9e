"""Test that sparse features are handled like dense ones, and stay sparse."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.api import problem_from_arrays
from dp_erm_bench.datasets.base import (
    Bounds,
    Dataset,
    as_features,
    feature_parts,
    record_norms,
)
from dp_erm_bench.datasets.libsvm import compact_features
from dp_erm_bench.datasets.load import load_arrays, save_arrays
from dp_erm_bench.datasets.prepare import (
    DeclaredBounds,
    Recipe,
    column_max,
    dataset_from_arrays,
    mean_squares,
    prepare_arrays,
)
from dp_erm_bench.datasets.records import content_hash
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import cache_dir
from tests.loops import each


def toy(n=30, p=12, seed=0, density=0.2):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, p), density=density, format="csc", rng=rng)
    return X, rng.permutation(np.arange(n) % 2)


def both(recipe, *extra):
    """Return what a recipe makes of the same data, sparse and dense."""
    X, y = toy()
    raws = ((X, y, *extra), (X.toarray(), y, *extra))
    return [prepare_arrays("toy", raw, recipe) for raw in raws]


def dense(array):
    return array if isinstance(array, np.ndarray) else array.toarray()


RECIPES = [
    Recipe(),
    Recipe(test_fraction=0.3, seed=2),
    Recipe(standardise="scale", test_fraction=0.3),
    Recipe(drop_empty=True, test_fraction=0.8),
    Recipe(clip=DeclaredBounds(np.array(0.3), 0.5, 1.0)),
    Recipe(clip=DeclaredBounds(np.linspace(0.0, 1.0, 12)), standardise="scale"),
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_form_changes_nothing_but_the_form(recipe):
    sparse, plain = both(recipe)
    assert sorted(sparse) == sorted(plain)
    for key, array in sparse.items():
        assert sp.issparse(array) == key.startswith("X")
        np.testing.assert_allclose(dense(array), plain[key], rtol=1e-14)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "matrix", "doubled"])
def test_every_form_becomes_the_same_canonical_columns(form):
    X, y = toy()
    if form == "doubled":
        coo = X.tocoo()
        halves = np.tile(coo.data / 2, 2), tuple(np.tile(c, 2) for c in coo.coords)
        given_ = sp.coo_array(halves, shape=X.shape)
    else:
        given_ = sp.csc_matrix(X) if form == "matrix" else X.asformat(form)
    made = prepare_arrays("toy", (given_, y), Recipe())["X"]
    assert isinstance(made, sp.csc_array) and made.dtype == np.float64
    assert made.indices.dtype == made.indptr.dtype == np.int32
    assert made.has_canonical_format and made.data.all()
    np.testing.assert_array_equal(made.toarray(), X.toarray())
    for part in (made.data, made.indices, made.indptr):
        assert not part.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        made.data[0] = 1.0


def test_stored_zeros_go():
    X, y = toy()
    X.data[:5] = 0.0
    made = prepare_arrays("toy", (X, y), Recipe())["X"]
    assert made.nnz == X.nnz - 5


def test_the_callers_matrix_is_left_alone():
    X, y = toy()
    X.data[0] = 0.0
    kept = X.copy()
    made = dataset_from_arrays(X, y).X
    X.data[1] = 7.0
    assert X.nnz == kept.nnz and X.data.flags.writeable
    assert made[X.indices[1], 0] == kept[X.indices[1], 0]


def test_centring_sparse_columns_is_refused_with_both_ways_out():
    with pytest.raises(UsageError, match=r"standardise=scale.*densify=true"):
        prepare_arrays("toy", toy(), Recipe(standardise=True))
    made = prepare_arrays("toy", toy(), Recipe(standardise=True, densify=True))
    assert isinstance(made["X"], np.ndarray)
    np.testing.assert_allclose(made["X"].mean(axis=0), 0.0, atol=1e-12)


def test_scaled_columns_have_mean_square_one_or_are_empty():
    made = prepare_arrays("toy", toy(density=0.05), Recipe(standardise="scale"))["X"]
    squares = mean_squares(made)
    assert {0.0, 1.0} == set(squares.round(12))


def test_dropping_keeps_exactly_the_columns_with_an_entry_in_train():
    X, y = toy(density=0.05)
    true = np.arange(12.0)
    made = prepare_arrays(
        "toy", (X, y, true), Recipe(drop_empty=True, test_fraction=0.5)
    )
    assert column_max(made["X"]).all()
    assert 0 < made["X"].shape[1] < 12
    assert made["X_test"].shape[1] == made["X"].shape[1] == made["w_true"].size
    full = prepare_arrays("toy", (X, y, true), Recipe(test_fraction=0.5))
    kept = made["w_true"].astype(int)
    np.testing.assert_array_equal(full["X"].toarray()[:, kept], made["X"].toarray())


def test_nothing_left_after_dropping_is_refused():
    X = sp.csc_array((4, 3))
    with pytest.raises(UsageError, match="every column of toy is empty"):
        prepare_arrays("toy", (X, np.array([0, 1, 0, 1])), Recipe(drop_empty=True))


@given(st.integers(0, 30), st.floats(0.1, 2.0), st.floats(0.1, 2.0))
def test_clipped_records_obey_the_bounds_and_the_others_stay(seed, column, norm):
    X, y = toy(seed=seed)
    bounds = Bounds(np.full(12, column), norm, 1.0)
    made = prepare_arrays(
        "toy", (X, y), Recipe(clip=DeclaredBounds(np.array(column), norm))
    )["X"]
    assert column_max(made).max() <= column
    lengths = record_norms(made)
    assert lengths.max() <= norm * (1 + 1e-12)
    inside = (record_norms(X) < norm) & (abs(X).max(axis=1).toarray() <= column)
    np.testing.assert_array_equal(made.toarray()[inside], X.toarray()[inside])
    dataset_from_arrays(made, y, bounds=bounds)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_stored_value_that_is_not_finite_is_refused(bad):
    X, y = toy()
    X.data[3] = bad
    with pytest.raises(UsageError, match="X holds a value that is not finite"):
        prepare_arrays("toy", (X, y), Recipe())


def test_a_sparse_record_outside_the_bounds_is_refused():
    X, y = toy()
    for bounds in (Bounds(np.full(12, 0.1), 99.0), Bounds(np.ones(12), 0.1)):
        with pytest.raises(UsageError, match="clip_to_bounds=true"):
            dataset_from_arrays(X, y, bounds=bounds)


def twice(*rows, kind=sp.csr_array):
    """Return rows of (entries of column 0, entry of column 1), none summed."""
    data = [x for first, last in rows for x in (*first, last)]
    columns = [j for first, _ in rows for j in (*[0] * len(first), 1)]
    ends = np.cumsum([0, *(len(first) + 1 for first, _ in rows)])
    made = sp.csr_array((data, columns, ends), shape=(len(rows), 2))
    assert made.nnz == len(data)
    return kind(made)


@each("kind", [sp.csr_array, sp.csc_array, sp.coo_array])
@each(("dtype", "value"), [(np.int8, 100), (np.uint8, 200), (np.float32, 3e38)])
def test_entries_of_narrow_types_are_summed_as_floats(kind, dtype, value):
    """A coo of int8 with 100 twice was -56."""
    ends = np.array([0, 2, 3])
    rows = sp.csr_array((np.array([value, value, 1], dtype), [0, 0, 1], ends))
    found = as_features(kind(rows) if kind != sp.coo_array else rows.tocoo())
    np.testing.assert_array_equal(
        found.toarray(), [[2 * float(dtype(value)), 0], [0, 1]]
    )


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_array])
@pytest.mark.parametrize("said", [False, True])
def test_an_entry_that_stands_twice_is_the_sum_for_all_that_is_bounded(kind, said):
    """Root of .5^2 + .5^2 is below the bound on the norm, the sum of 1 is not."""
    y, bounds = np.array([1.0, -1.0]), Bounds(np.array([5.0, 5.0]), 0.9)
    beyond = twice(((0.5, 0.5), 0.0), ((0.25, 0.25), 0.5), kind=kind)
    within = twice(((4.0, -3.5), 0.5), ((9.0, -9.0), 0.1), kind=kind)
    if said and hasattr(beyond, "has_canonical_format"):
        beyond.has_canonical_format = within.has_canonical_format = True
    with pytest.raises(UsageError, match="bound"):
        dataset_from_arrays(beyond, y, bounds=bounds)
    found = dataset_from_arrays(within, y, bounds=bounds)
    np.testing.assert_array_equal(found.X.toarray(), [[0.5, 0.5], [0.0, 0.1]])
    np.testing.assert_allclose(found.row_norms, [np.sqrt(0.5), 0.1])
    assert found.X.nnz == 3
    for X in (beyond, within):
        how = {"bounds": {"columns": 5, "norm": 0.9}, "clip_to_bounds": True}
        made, plain = (
            problem_from_arrays(one, y, loss="logistic", **how).dataset
            for one in (X, X.toarray())
        )
        assert np.linalg.norm(made.X.toarray(), axis=1).max() <= 0.9
        np.testing.assert_array_equal(made.X.toarray(), plain.X)
    with pytest.raises(UsageError, match="not finite"):
        dataset_from_arrays(twice(((1e308, 1e308), 0.0), ((1, 1), 1)), y)


def test_rows_and_norms_are_those_of_the_features():
    X, y = toy()
    found = dataset_from_arrays(X, y)
    plain = dataset_from_arrays(X.toarray(), y)
    assert found.sparse and not plain.sparse
    assert found.rows.format == "csr" and found.rows.indices.dtype == np.int32
    assert found.rows.has_sorted_indices
    np.testing.assert_array_equal(found.rows.toarray(), plain.rows)
    np.testing.assert_allclose(found.row_norms, plain.row_norms)
    assert found.row_norms.shape == (30,)


def test_stored_arrays_come_back_mapped_and_sparse(is_mapped):
    X, y = toy()
    arrays = prepare_arrays("toy", (X, y), Recipe(test_fraction=0.2))
    content = save_arrays("kind", "key", arrays)
    found, same = load_arrays("kind", "key")
    assert same == content == content_hash(arrays)
    for key, array in found.items():
        np.testing.assert_array_equal(dense(array), dense(arrays[key]))
    for part in feature_parts(found["X"]).values():
        assert is_mapped(part) and not part.flags.writeable
    Dataset("toy", found["X"], found["y"], None, same).rows  # noqa: B018


def test_the_hash_tells_shape_values_places_and_form_apart():
    X, _ = toy()
    moved, wider = X.copy(), sp.csc_array(X)
    moved.data = moved.data * 2
    wider.resize(30, 13)
    hashes = {content_hash({"X": Z}) for Z in (X, moved, wider, X.toarray())}
    assert len(hashes) == 4


def test_a_missing_part_is_no_array():
    X, _ = toy()
    save_arrays("kind", "key", {"X": X})
    (cache_dir() / "kind" / "key" / "X.indptr.npy").unlink()
    assert load_arrays("kind", "key") is None


@pytest.mark.parametrize(("density", "sparse"), [(0.3, True), (0.5, False), (1, False)])
def test_half_full_features_are_held_dense(density, sparse):
    made = compact_features(toy(density=density)[0])
    assert sp.issparse(made) == sparse
    assert sparse or made.flags.f_contiguous
