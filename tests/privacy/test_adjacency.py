import numpy as np
import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian


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
