import numpy as np
import pytest

from dp_erm_bench.releases.adjacency import Adjacency


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
