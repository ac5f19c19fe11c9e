import math

import numpy as np
import pytest

from dp_erm_bench.contract.problems import small_problem
from dp_erm_bench.errors import UsageError
from dp_erm_bench.problems.erm.second_order import pack_symmetric
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.solvers.bounds import moments_change, outer_change


@pytest.mark.parametrize(
    ("adjacency", "signed", "factor"),
    [
        (Adjacency.REPLACE_ONE, True, 2.0),
        (Adjacency.REPLACE_ONE, False, 1.0),
        (Adjacency.ZERO_OUT, True, 1.0),
        (Adjacency.ZERO_OUT, False, 1.0),
    ],
)
def test_sensitivity_of_sum_and_mean(
    adjacency: Adjacency, signed: bool, factor: float
) -> None:
    bounds = np.array([0.0, 0.5, 3.0])
    assert np.array_equal(adjacency.of_sum(bounds, signed=signed), factor * bounds)
    assert adjacency.of_mean(3.0, 10, signed=signed) == pytest.approx(0.3 * factor)
    assert isinstance(adjacency.of_sum(2.0), float)


def test_sensitivity_is_attained_by_extreme_records() -> None:
    rng = np.random.default_rng(0)
    terms = rng.uniform(-1, 1, 50)
    replaced, zeroed = terms.copy(), terms.copy()
    terms[0], replaced[0], zeroed[0] = 1, -1, 0
    moved = abs(terms.mean() - replaced.mean())
    assert moved == pytest.approx(Adjacency.REPLACE_ONE.of_mean(1.0, 50))
    moved = abs(terms.mean() - zeroed.mean())
    assert moved == pytest.approx(Adjacency.ZERO_OUT.of_mean(1.0, 50))


def test_names() -> None:
    assert [str(a) for a in Adjacency] == ["replace_one", "zero_out"]
    assert Adjacency("zero_out") is Adjacency.ZERO_OUT


def test_positive_sums_change_by_sqrt_2_and_no_more():
    """Random pairs of matrices of norm 1, and the worst ones: of rank 1, orthogonal."""
    rng, changes = np.random.default_rng(0), []
    for rank in (1, 1, 1, 2, 3) * 400:
        roots = rng.normal(size=(2, 3, rank))
        A, B = (root @ root.T / np.linalg.norm(root @ root.T) for root in roots)
        changes.append(np.linalg.norm(A - B))
    vectors = np.abs(rng.normal(size=(2, 2000, 3)))
    u, v = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    changes += list(np.linalg.norm(u - v, axis=1))
    most = Adjacency.REPLACE_ONE.of_sum(1.0, positive=True)
    assert most == pytest.approx(np.sqrt(2.0))
    assert 0.98 * most < max(changes) <= most
    worst = np.linalg.norm(np.diag([1.0, 0.0]) - np.diag([0.0, 1.0]))
    assert worst == pytest.approx(most)
    assert Adjacency.ZERO_OUT.of_sum(1.0, positive=True) == 1.0
    mean = Adjacency.REPLACE_ONE.of_mean(np.array([[3.0]]), 10, positive=True)
    assert mean == pytest.approx(0.3 * np.sqrt(2.0))


@pytest.mark.parametrize("bound", [1.0, np.ones((1, 1))])
@pytest.mark.parametrize("mean", [False, True])
def test_a_positive_sum_over_a_sample_is_charged_for_its_terms(bound, mean):
    """A term of norm 1 would be 0.71 of the sensitivity, where 0.5 is charged."""
    one, zero = Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT

    def change(adjacency, positive=True):
        if mean:
            return adjacency.of_mean(bound, 8, positive=positive)
        return adjacency.of_sum(bound, positive=positive)

    with pytest.raises(UsageError, match="release sum: .* at most half"):
        PoissonGaussian("sum", change(one), 1, rate=0.1)
    PoissonGaussian("sum", change(one, positive=False), 1, rate=0.1)
    PoissonGaussian("sum", change(zero), 1, rate=0.1)
    PoissonGaussian("sum", change(one), 1)  # all records
    FixedSizeGaussian("sum", change(one), 1, rate=0.1)  # charged for the change
    (mechanism,) = [Gaussian("sum", change(one), 1)]
    assert np.asarray(mechanism.sensitivity).item() == change(one)


REPLACE, ZERO = Adjacency


def records(rng, p, R, count):
    """Records of norm up to R, most of them on the sphere."""
    x = rng.normal(size=(count, p))
    shorter = np.where(rng.random((count, 1)) < 0.8, 1.0, rng.random((count, 1)))
    return R * shorter * x / np.linalg.norm(x, axis=1, keepdims=True)


def outer(x, q):
    """q x x' of each record, as it is published."""
    return pack_symmetric(q[:, None, None] * x[:, :, None] * x[:, None, :])


@pytest.mark.parametrize("p", [1, 2, 4])
def test_no_record_moves_a_sum_of_outer_products_by_more_and_some_by_as_much(p):
    """20000 random pairs, and the worst; weights in [0, A] and in [-A, A]."""
    rng, A = np.random.default_rng(p), 0.7
    problem = small_problem("logistic", "none", p=p, dead=None)
    R = problem.dataset.bounds.norm
    x, z = (records(rng, p, R, 20_000) for _ in range(2))
    q, r = A * np.ceil(20 * rng.random((2, 20_000))) / 20
    signs = np.sign(rng.normal(size=(2, 20_000)))
    u, v = R * np.eye(p)[:1], R * np.eye(p)[-1:]
    one = np.full(1, A)
    for signed, worst in (
        (False, outer(u, one) - (outer(v, one) if p > 1 else 0.0)),
        (True, outer(u, one) - outer(u, -one)),
    ):
        bound = outer_change(problem, REPLACE, A, signed=signed)
        s, t = signs if signed else np.ones((2, 20_000))
        change = np.linalg.norm(outer(x, s * q) - outer(z, t * r), axis=1)
        assert change.max() <= bound * (1 + 1e-12)
        assert np.linalg.norm(worst) == pytest.approx(bound)
        alone = outer_change(problem, ZERO, A, signed=signed)
        assert np.linalg.norm(outer(x, q), axis=1).max() <= alone * (1 + 1e-12)
        assert np.linalg.norm(outer(u, one)) == pytest.approx(alone)
    factor = {1: 1.0}.get(p, math.sqrt(2.0))
    assert outer_change(problem, REPLACE, A) == pytest.approx(factor * A * R * R)
    # Over a sample each record's own term is at most half of it.
    sampled = outer_change(problem, REPLACE, A, sampled=True)
    PoissonGaussian("sum", sampled, 1, rate=0.1)
    assert sampled == pytest.approx(2.0 * np.linalg.norm(outer(u, one)))
    if p > 1:
        with pytest.raises(UsageError, match="at most half"):
            PoissonGaussian("sum", outer_change(problem, REPLACE, A), 1, rate=0.1)


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("b", [0.0, 0.3, 1.0, math.sqrt(2.0), 1.5, 4.0])
def test_no_record_moves_both_moments_by_more_and_some_by_as_much(p, b):
    """The vector (X'X, b X'y) for R = Y = 1: random pairs, and those of the proof."""
    rng = np.random.default_rng(p)
    problem = small_problem("squared", "none", p=p, dead=None)
    x, z = (records(rng, p, 1.0, 20_000) for _ in range(2))
    y, r = np.clip(rng.uniform(-1.5, 1.5, (2, 20_000, 1)), -1.0, 1.0)

    def change(x, y, z, r):
        second = outer(x, np.ones(len(x))) - outer(z, np.ones(len(z)))
        return np.linalg.norm(np.hstack([second, b * (x * y - z * r)]), axis=1)

    bound = moments_change(problem, REPLACE, 1.0, b)
    alone = moments_change(problem, ZERO, 1.0, b)
    assert change(x, y, z, r).max() <= bound * (1 + 1e-12)
    assert change(x, y, 0 * z, r).max() <= alone * (1 + 1e-12)
    e = np.eye(p)[:1]
    assert change(e, 1.0, 0 * e, 0.0).item() == pytest.approx(alone)
    if p > 1:
        c = min(b * b / 2.0, 1.0)
        other = c * e + math.sqrt(1.0 - c * c) * np.eye(p)[1:2]
        assert change(e, 1.0, other, -1.0).item() == pytest.approx(bound)
        with pytest.raises(UsageError, match="at most half"):
            PoissonGaussian("sum", bound, 1, rate=0.1)
    assert bound <= math.sqrt(2.0 + 4.0 * b * b) * (1 + 1e-12)


def test_at_equal_weights_one_release_costs_three_quarters_of_two():
    problem = small_problem("squared", "none")
    assert moments_change(problem, REPLACE, 1.0, 1.0) ** 2 == pytest.approx(4.5)
