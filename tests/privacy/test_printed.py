import math

import pytest

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.least import authors_multiplier
from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.law import Law
from tests.privacy.made import law_of, printed_multiplier

REPLACE, ZERO = Adjacency
GREEDY = (law_of("pure", 50), law_of("laplace", 50))
CYCLIC = (law_of("gaussian", 50),)
N = 1000


@pytest.mark.parametrize(
    ("name", "events", "scale"),
    [("mangold2023", GREEDY, 0.210261), ("mangold2022", CYCLIC, 0.0910456)],
)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_absolute_noise_is_the_printed_one(
    name: str, events: tuple[Law, ...], scale: float, adjacency: Adjacency
) -> None:
    z = printed_multiplier(name, Budget(1, 1e-6, adjacency), events)
    assert z * adjacency.of_mean(1.0, N) == pytest.approx(scale, rel=3e-6)


@pytest.mark.parametrize(
    ("name", "events", "adjacency", "epsilon"),
    [
        ("mangold2023", GREEDY, REPLACE, 0.602430),
        ("mangold2022", CYCLIC, REPLACE, 0.635878),
    ],
)
def test_what_the_printed_noise_costs(
    name: str, events: tuple[Law, ...], adjacency: Adjacency, epsilon: float
) -> None:
    found = calibrate(events, Budget(1, 1e-6, adjacency), "paper", name)
    assert found.epsilon_certified == pytest.approx(epsilon, rel=1e-5)
    assert found.label == "paper"


def test_the_theorem_fails_outside_its_range() -> None:
    found = calibrate(CYCLIC, Budget(10, 0.3), "paper", "mangold2022")
    assert found.epsilon_certified == pytest.approx(15.66, abs=0.01)
    assert found.label == "paper (not proved)"
    assert found.accountant == "gdp"
    found = calibrate(CYCLIC, Budget(10, 1e-6), "paper", "mangold2022")
    assert found.epsilon_certified == pytest.approx(8.13, abs=0.01)
    assert found.label == "paper"


def test_heterogeneous_scores_are_not_proved() -> None:
    events = (law_of("pure", 50, spread=14.4), law_of("laplace", 50))
    found = calibrate(events, Budget(1, 1e-6), "paper", "mangold2023")
    assert found.label == "paper (not proved)"
    assert found.epsilon_certified > 1


@pytest.mark.parametrize("name", [None, "bassily2014"])
def test_no_printed_constant_is_refused(name: str | None) -> None:
    with pytest.raises(UsageError, match="no noise constant is printed"):
        calibrate(GREEDY, Budget(1, 1e-6), "paper", name)


@pytest.mark.parametrize("mode", ["paper", "authors"])
def test_zero_delta_is_refused(mode: str) -> None:
    events = GREEDY if mode == "paper" else (law_of("poisson_gaussian", 1, rate=0.1),)
    with pytest.raises(UsageError, match="^delta=0"):
        calibrate(events, Budget(1, 0.0), mode, "mangold2023")


@pytest.mark.parametrize(("n", "noise"), [(45312, 1.914), (20640, 1.934)])
def test_noise_of_the_authors_sgd(n: int, noise: float) -> None:
    events = (law_of("poisson_gaussian", 50 * n, rate=1 / n),)
    for adjacency in Adjacency:
        z = authors_multiplier(Budget(1, "1/n^2", adjacency).resolve_delta(n), events)
        assert z * adjacency.of_sum(1.0) == pytest.approx(noise, abs=6e-4)


def test_noise_of_the_authors_is_certified_by_our_accountant() -> None:
    events = (law_of("poisson_gaussian", 100, rate=0.05),)
    found = calibrate(events, Budget(1, 1e-6), "authors")
    assert found.label == "authors"
    assert found.accountant == "pld"
    assert 0 < found.epsilon_certified < 1
    assert math.isfinite(found.z)


def test_authors_noise_is_for_sgd_only() -> None:
    with pytest.raises(UsageError, match="only for sgd with Poisson samples"):
        calibrate(GREEDY, Budget(1, 1e-6), "authors")
