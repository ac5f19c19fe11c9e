"""Test mean estimation: records without labels, their bounds, and sweeps."""

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from dp_erm_bench import load_problem, problem_from_arrays, problem_from_records
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import DeclaredBounds, map_features
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import line_of
from dp_erm_bench.runner.execute import problem_of_trial
from tests.loops import each

Z = np.array([[0.6, 0.0, -0.8], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0], [0.3, 0.0, 0.4]])
BOUNDS = {"norm": 1.0, "nonzeros": 2}


def block(path, **others):
    data = {"name": "file", "path": str(path), "task": "unlabelled", "usual": None}
    parts = {"problem": "mean", "algorithm": "gd", "dataset": {**data, **others}}
    return {**parts, "seed": [0]}


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "records.npz"
    np.savez(path, X=Z)
    return path


def test_the_objective_is_the_distance_to_the_mean():
    problem = problem_from_records(Z, bounds=BOUNDS)
    w = np.random.default_rng(0).normal(size=(5, 3))
    expected = np.sqrt(((w - Z.mean(axis=0)) ** 2).sum(axis=1))
    np.testing.assert_allclose(problem.value(w), expected, rtol=1e-14)
    assert problem.optimum.value == 0.0 == problem.value(problem.optimum.w)
    assert (problem.n, problem.p, problem.radius, problem.nonzeros) == (4, 3, 1.0, 2)
    assert problem.l1_radius == pytest.approx(np.sqrt(2.0))
    np.testing.assert_array_equal(problem.mean, Z.mean(axis=0))


def test_sparse_records_stay_sparse():
    records = random_array((50, 400), density=0.01, rng=np.random.default_rng(1))
    problem = problem_from_records(csr_array(records), bounds={"norm": 100.0})
    assert problem.dataset.sparse and problem.entries == records.nnz
    np.testing.assert_allclose(problem.mean, records.toarray().mean(axis=0), rtol=1e-12)
    assert problem.nonzeros == 400


@each(
    ("bounds", "words"),
    [
        ({"norm": 0.9}, "dataset.bounds.(norm|columns) of arrays: .* declared bound"),
        ({"norm": 1.0, "nonzeros": 1}, "a record has 2 non-zeros, more than the decl"),
        ({"norm": 1.0, "nonzeros": 4}, "bounds.nonzeros=4: must be an integer from 1"),
        ({"norm": 1.0, "nonzeros": 0}, "bounds.nonzeros=0: must be an integer from 1"),
        ({"norm": 1.0, "nonzeros": 1.5}, "bounds.nonzeros=1.5: must be an integer"),
        ({"nonzeros": 2}, "bounds.columns=None: must be finite"),
        ({"norm": 1.0, "sparsity": 2}, "bounds=sparsity: must be one of columns"),
    ],
)
@each("made", [np.array, csr_array], ids=["dense", "sparse"])
def test_bounds_that_are_none_are_refused_in_a_sentence(bounds, words, made):
    with pytest.raises(UsageError, match=words):
        problem_from_records(made(Z), bounds=bounds)


@pytest.mark.parametrize("wrong", ["text", np.ones(3), np.full((3, 2), np.nan)])
def test_what_is_no_table_of_numbers_is_refused(wrong):
    with pytest.raises(UsageError):
        problem_from_records(wrong, bounds=BOUNDS)


@pytest.mark.parametrize("most", [1, 3, 7])
def test_clipping_keeps_the_largest_entries(most):
    rng = np.random.default_rng(2)
    records = np.where(rng.random((30, 7)) < 0.7, rng.normal(size=(30, 7)), 0.0)
    records[0] = 0.5  # ties
    declared = DeclaredBounds(np.array(2.0), 1.5, None, most).bounds_of("toy", 7)
    dense, sparse = (
        map_features("toy", Z, declared) for Z in (records, csr_array(records))
    )
    np.testing.assert_allclose(sparse.toarray(), dense, rtol=1e-15)
    assert (np.count_nonzero(dense, axis=1) <= most).all()
    assert (np.linalg.norm(dense, axis=1) <= 1.5 * (1 + 1e-12)).all()
    for before, after in zip(np.clip(records, -2.0, 2.0), dense, strict=True):
        kept = np.sort(np.abs(before))[::-1][:most]
        size = min(1.0, 1.5 / max(np.linalg.norm(kept), 1e-300))
        ends = np.sort(np.abs(after))[::-1][:most]
        np.testing.assert_allclose(ends, size * kept, rtol=1e-12)


def test_only_with_clipping_are_records_changed(archive):
    sparser = {"bounds": {"norm": 1.0, "nonzeros": 1}}
    keys = {"path": str(archive), "task": "unlabelled", **sparser}
    with pytest.raises(UsageError, match="a record has 2 non-zeros.*clip_to_bounds"):
        load_problem("file", problem="mean", **keys)
    found = load_problem("file", problem="mean", clip_to_bounds=True, **keys)
    assert found.dataset.X[0].tolist() == [0.0, 0.0, -0.8]


@pytest.mark.parametrize("suffix", ["csv", "npz", "svmlight"])
def test_a_file_needs_no_labels(suffix, tmp_path):
    path = tmp_path / f"records.{suffix}"
    if suffix == "csv":
        np.savetxt(path, Z, delimiter=",")
    elif suffix == "npz":
        np.savez(path, X=Z)
    else:
        path.write_text("0 1:0.6 3:-0.8\n0 2:0.5\n0\n0 1:0.3 3:0.4\n")
    keys = {"path": str(path), "task": "unlabelled", "bounds": BOUNDS}
    found = load_problem("file", problem="mean", **keys)
    np.testing.assert_allclose(found.mean, Z.mean(axis=0), rtol=1e-15)
    with pytest.raises(UsageError, match="task=unlabelled of file: use problem=mean"):
        load_problem("file", loss="squared", **keys)


def test_a_part_of_an_objective_is_refused(archive):
    keys = {"path": str(archive), "task": "unlabelled", "problem": "mean"}
    with pytest.raises(UsageError, match="loss=huber: problems of mean est"):
        load_problem("file", loss="huber", **keys)
    with pytest.raises(UsageError, match=r"problem=men \(did you mean mean"):
        load_problem("file", **{**keys, "problem": "men"})


def test_a_sweep_poses_it_and_a_spec_finds_it_again(archive):
    (line,), missing = expand_blocks([block(archive, bounds=BOUNDS)])
    assert not missing and line.problem.kind == "mean estimation"
    spec = line.settings[0].trial(0, 3).spec
    assert spec["problem"] == {"name": "mean"} and spec["loss"] == {"name": "none"}
    assert problem_of_trial(spec).identity == line.problem.identity
    assert line_of(spec).settings[0].digest == line.settings[0].digest
    other = expand_blocks([block(archive, bounds={"norm": 2.0, "nonzeros": 2})])[0][0]
    assert other.problem.identity != line.problem.identity


def test_undeclared_sparsity_is_in_no_identity():
    data = np.random.default_rng(0).uniform(-1, 1, (6, 3))
    plain = problem_from_arrays(data, np.sign(data[:, 0]), loss="logistic", bounds=1.0)
    assert set(plain.dataset.bounds.spec) == {"columns", "norm", "label"}
    assert "nonzeros" in Bounds(np.ones(3), 1.0, None, 2).spec
