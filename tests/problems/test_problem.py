"""Test the objective for every loss and penalty: values, gradients, keys."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench import registry
from dp_erm_bench.constraints.norm_ball import NormBall
from dp_erm_bench.contract.problems import separable_penalties
from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.errors import UsageError
from dp_erm_bench.penalties.groups import Groups
from dp_erm_bench.penalties.range import Range
from dp_erm_bench.problems.erm.problem import ERMProblem

LOSSES = registry.names("loss")
PENALTIES = separable_penalties()


def penalty_of(name, strength=0.3):
    strong = hasattr(registry.build("penalty", name), "strength")
    return registry.build("penalty", name, **({"strength": strength} if strong else {}))


def dataset(n=29, p=5, seed=0, classification=True, content_hash="hash"):
    rng = np.random.default_rng(seed)
    X, y = np.asfortranarray(rng.normal(size=(n, p))), rng.normal(size=n)
    y = np.sign(y) if classification else y
    for array in (X, y):
        array.setflags(write=False)
    return Dataset("toy", X, y, None, content_hash)


def problem_of(loss, penalty, **options):
    loss = registry.build("loss", loss)
    data = dataset(classification=loss.classification, **options)
    space = registry.build("constraint", "none")
    return ERMProblem(data, loss, penalty_of(penalty), space)


@pytest.fixture(params=itertools.product(LOSSES, PENALTIES), ids="-".join)
def problem(request):
    return problem_of(*request.param)


def points(problem, count=4):
    """Points inside the box of the penalty, where there is one."""
    w = np.random.default_rng(1).normal(size=(count, problem.p))
    return np.clip(w, problem.penalty.lower + 0.01, problem.penalty.upper - 0.01)


def test_value_is_the_mean_loss_plus_the_penalty(problem):
    data, w = problem.dataset, points(problem)[0]
    losses = [
        float(problem.loss.value(np.array(label), np.dot(x, w)))
        for x, label in zip(data.X, data.y, strict=True)
    ]
    expected = sum(losses) / problem.n + problem.penalty.value(w)
    assert problem.value(w) == pytest.approx(expected, rel=1e-13)


def test_value_of_one_point_is_a_number_and_of_a_batch_one_per_trial(problem):
    w = points(problem)
    one, batch = problem.value(w[0]), problem.value(w)
    assert np.ndim(one) == 0 and float(one) == one
    assert batch.shape == (4,)
    np.testing.assert_allclose(batch, [problem.value(row) for row in w], rtol=1e-13)
    assert problem.value(w[0].tolist()) == one


def test_gradient_is_that_of_the_smooth_part(problem):
    def smooth(w):
        return problem.value(w) - problem.penalty.value(w)

    for w in points(problem):
        h = 1e-5 * np.eye(problem.p)
        slopes = [(smooth(w + d) - smooth(w - d)) / 2e-5 for d in h]
        np.testing.assert_allclose(problem.gradient(w), slopes, atol=1e-8)


def test_gradient_rms_is_over_the_records_at_zero(problem):
    data = problem.dataset
    squares = []
    for x, label in zip(data.X, data.y, strict=True):
        slope = float(problem.loss.derivative(np.array([label]), np.zeros(1))[0])
        squares.append(slope**2 * float(x @ x))
    assert problem.gradient_rms == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-13)


def test_dimensions_are_those_of_the_data(problem):
    assert (problem.n, problem.p) == problem.dataset.X.shape


def test_rows_and_norms_are_those_of_the_features(problem):
    data = problem.dataset
    assert data.rows.flags.c_contiguous and np.array_equal(data.rows, data.X)
    np.testing.assert_allclose(data.row_norms, np.linalg.norm(data.X, axis=1))


def test_keys_differ_in_content_and_objective_only():
    grid = itertools.product(LOSSES, PENALTIES)
    keys = [problem_of(*parts).key for parts in grid]
    assert keys == [
        problem_of(*parts).key for parts in itertools.product(LOSSES, PENALTIES)
    ]
    keys.append(problem_of(LOSSES[0], PENALTIES[0], content_hash="other").key)
    stronger = problem_of(LOSSES[0], "l2")
    keys.append(dataclasses.replace(stronger, penalty=penalty_of("l2", 0.31)).key)
    keys.append(
        dataclasses.replace(stronger, penalty=penalty_of("l2", 0.3 + 1e-16)).key
    )
    assert len(set(keys)) == len(keys)


def test_key_does_not_depend_on_the_smoothness(problem):
    assert problem.with_smoothness("data").key == problem.key


def test_smoothness_of_another_origin_leaves_the_rest(problem):
    other = problem.with_smoothness("data")
    assert (other.smoothness_kind, other.smoothness.kind) == ("data", "data")
    assert problem.smoothness_kind == "auto"
    for part in ("dataset", "loss", "penalty", "constraint"):
        assert getattr(other, part) is getattr(problem, part)


@pytest.mark.parametrize("name", LOSSES)
def test_labels_outside_the_domain_are_refused(name):
    loss = registry.build("loss", name)
    data = dataset(classification=loss.classification)
    wrong = dataclasses.replace(data, y=np.full(data.n, np.nan))
    with pytest.raises(UsageError, match=f"^loss={name}: label"):
        ERMProblem(
            wrong, loss, penalty_of("none"), registry.build("constraint", "none")
        )


def test_a_problem_is_frozen(problem):
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.penalty = penalty_of("none")


@pytest.fixture
def pair(problem):
    """A problem whose features are mostly zero, dense and sparse."""
    data = problem.dataset
    X = np.where(np.abs(data.X) > 0.8, data.X, 0.0)
    both = (np.asfortranarray(X), sparse.csc_array(X))
    return [
        dataclasses.replace(problem, dataset=dataclasses.replace(data, X=features))
        for features in both
    ]


def test_sparse_features_give_the_numbers_of_dense_ones(pair):
    dense, same = pair
    w = points(dense)
    for batch in (w, w[:1], w[0]):
        value = same.value(batch)
        assert np.shape(value) == batch.shape[:-1]
        np.testing.assert_allclose(value, dense.value(batch), rtol=1e-13)
    np.testing.assert_allclose(same.gradient(w[0]), dense.gradient(w[0]), atol=1e-14)
    assert type(same.gradient(w[0])) is np.ndarray
    assert same.gradient_rms == pytest.approx(dense.gradient_rms, rel=1e-13)


def test_sparse_features_are_never_made_dense(pair, monkeypatch):
    for form in (sparse.csc_array, sparse.csr_array):
        for method in ("toarray", "todense"):
            monkeypatch.setattr(form, method, None)
    w = points(pair[1])
    pair[1].value(w), pair[1].value(w[0]), pair[1].gradient(w[0]), pair[1].gradient_rms


STRUCTURED = np.array(
    [[0, 0, 0, 0, 0], [3, -3, 0, 0, 1], [2, -2, 2 + 1e-15, 0, 0], [1, 2, 3, 4, 5.0]]
)


def test_the_support_is_compared_with_that_of_the_true_weights():
    base = problem_of("logistic", "l1")
    assert base.structure(STRUCTURED) == {}
    for true, scores in (
        ([1, 1, 1, 0, 0], [0, 2 / 3, 1, 3 / 4]),
        ([0, 0, 0, 0, 0], [1, 0, 0, 0]),
    ):
        data = dataclasses.replace(base.dataset, w_true=np.array(true, dtype=float))
        known = dataclasses.replace(base, dataset=data).measures(STRUCTURED)
        assert list(known) == ["support_f1"]
        np.testing.assert_allclose(known["support_f1"], scores)


LAPPED = ((0, 1), (1, 2, 3), (4,))


@pytest.mark.parametrize(
    ("penalty", "ball", "column", "counts"),
    [
        (Groups(0.1, LAPPED), None, "active_groups", [0, 3, 2, 3]),
        (Range(0.1), None, "change_points", [0, 2, 1, 4]),
        (None, NormBall(1.0, "groups", groups=LAPPED), "active_groups", [0, 3, 2, 3]),
        (None, NormBall(1.0, "range"), "change_points", [0, 2, 1, 4]),
        (None, NormBall(1.0), None, None),
    ],
)
def test_norms_tell_the_structure_of_points(penalty, ball, column, counts):
    base = problem_of("logistic", "none")
    parts = {"penalty": penalty or base.penalty, "constraint": ball or base.constraint}
    told = dataclasses.replace(base, **parts).measures(STRUCTURED)
    assert list(told) == ([column] if column else [])
    if column:
        np.testing.assert_array_equal(told[column], counts)
