import json
import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dp_erm_bench.accounting import calibration
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import Calibration, calibrate
from dp_erm_bench.accounting.certify import certify
from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.law import Law
from tests.privacy.made import law_of

REPLACE, ZERO = Adjacency
T = 50


@pytest.mark.parametrize(
    ("events", "scale", "accountant", "digits"),
    [
        ((law_of("laplace", T), law_of("pure", T)), 0.130949, "pld", 1e-4),
        ((law_of("laplace", T), law_of("bounded_range", T)), 0.0893201, "rdp", 1e-3),
        ((law_of("gaussian", T),), 0.0597460, "gdp", 1e-6),
        ((law_of("pure", T),), 0.116397, "pld", 1e-4),
        ((law_of("bounded_range", T),), 0.0632621, "rdp", 1e-3),
        ((law_of("gaussian", 1),), 0.00844936, "gdp", 1e-6),
        ((law_of("gaussian", T, weight=10.0),), 0.00597460, "gdp", 1e-6),
    ],
)
def test_reference_scales(
    events: tuple[Law, ...], scale: float, accountant: str, digits: float
) -> None:
    # n = 1000, L = 1, eps = 1, delta = 1e-6, replace_one: sensitivity 2 / 1000.
    found = calibrate(events, Budget(1, 1e-6))
    assert found.z * REPLACE.of_mean(1.0, 1000) == pytest.approx(scale, rel=digits)
    assert found.accountant == accountant
    assert found.label == "certified"


@pytest.mark.parametrize(("adjacency", "sigma"), [(ZERO, 3.19589), (REPLACE, 5.97301)])
def test_sampled_reference_scales(adjacency: Adjacency, sigma: float) -> None:
    events = (law_of("poisson_gaussian", 200, rate=0.05),)
    found = calibrate(events, Budget(1, 1e-6, adjacency))
    assert found.z * adjacency.of_sum(1.0) == pytest.approx(sigma, rel=1e-4)


@pytest.mark.parametrize(
    ("n", "batch", "sigma", "digits"),
    [
        (45312, 100, 3.736, 2e-3),
        (20640, 100, 5.272, 2e-3),
        # Published at a coarser lattice, which costs 0.5 %.
        (45312, 1, 0.654, 1e-2),
        (20640, 1, 0.717, 1e-2),
    ],
)
def test_tight_noise_of_sgd(n: int, batch: int, sigma: float, digits: float) -> None:
    events = (law_of("poisson_gaussian", 50 * n // batch, rate=batch / n),)
    found = calibrate(events, Budget(1, "1/n^2").resolve_delta(n))
    assert 2 * found.z == pytest.approx(sigma, rel=digits)
    assert 0.9999 <= found.epsilon_certified <= 1


KINDS = st.sampled_from(["gaussian", "laplace", "bounded_range", "pure"])
EVENTS = st.lists(
    st.builds(law_of, KINDS, st.integers(1, 200), st.floats(0.2, 5)),
    min_size=1,
    max_size=3,
).map(tuple)
SAMPLED = st.builds(
    lambda times, rate: (law_of("poisson_gaussian", times, rate=rate),),
    st.integers(1, 2000),
    st.floats(1e-3, 0.9),
)


@settings(max_examples=30)
@given(
    st.one_of(EVENTS, SAMPLED),
    st.floats(0.05, 20),
    st.floats(-25, -2),
    st.sampled_from(Adjacency),
)
@example((law_of("laplace", 1, 1.0),), 5.0, -5.0, Adjacency.REPLACE_ONE)
def test_never_above_the_budget_and_nearly_all_of_it(
    events: tuple[Law, ...], epsilon: float, log_delta: float, adjacency: Adjacency
) -> None:
    budget = Budget(epsilon, math.exp(log_delta), adjacency)
    found = calibrate(events, budget)
    again = certify(events, found.z, budget.number, adjacency)
    assert found.epsilon_certified <= epsilon
    assert again.epsilon <= epsilon
    # Where accountants tie, the one that did not find the noise may prove a bit less.
    proved = found.epsilon_certified
    assert proved * (1 - 2e-5) <= again.epsilon <= proved * (1 + 1e-9)
    # Smallest: a little less noise is refused.
    less = certify(events, 0.999 * found.z, budget.number, adjacency)
    assert less.epsilon > epsilon * (1 - 1e-4)


@settings(max_examples=15)
@given(EVENTS, st.floats(0.1, 5), st.floats(-20, -5))
def test_noise_is_monotone(
    events: tuple[Law, ...], epsilon: float, log_delta: float
) -> None:
    delta = math.exp(log_delta)
    z = calibrate(events, Budget(epsilon, delta)).z
    more = (*events, law_of("laplace", 5))
    assert calibrate(events, Budget(1.1 * epsilon, delta)).z < z
    assert calibrate(events, Budget(epsilon, 2 * delta)).z <= z * (1 + 1e-4)
    assert calibrate(more, Budget(epsilon, delta)).z >= z * (1 - 1e-4)


def test_pure_budget() -> None:
    found = calibrate((law_of("laplace", T), law_of("pure", T)), Budget(1, 0.0))
    assert found.accountant == "pure"
    assert found.z == pytest.approx(T * 3)
    with pytest.raises(UsageError, match="^delta=0"):
        calibrate((law_of("gaussian", 1),), Budget(1, 0.0))


@pytest.mark.parametrize("mode", calibration.MODES)
def test_no_privacy_no_noise(mode: str) -> None:
    budget = Budget(math.inf, 1e-6)
    found = calibrate((law_of("laplace", 3),), budget, mode)
    assert found == Calibration(0.0, budget, "none", math.inf, mode)


def test_no_release_costs_nothing() -> None:
    budget = Budget(1, 1e-6)
    found = calibrate((law_of("laplace", 0),), budget)
    assert found == Calibration(0.0, budget, "none", 0.0, "certified")


def test_bad_requests_are_refused() -> None:
    event = law_of("laplace", 1)
    with pytest.raises(
        UsageError, match="^calibration=loose: must be one of certified"
    ):
        calibrate((event,), Budget(1, 1e-6), "loose")
    with pytest.raises(UsageError, match="depends on n"):
        calibrate((event,), Budget(1, "1/n^2"))
    with pytest.raises(TypeError, match="no accountant knows"):
        calibrate((law_of("magic", 1),), Budget(1, 1e-6))


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path))
    calibration._load_calibration.cache_clear()
    return tmp_path


def test_calibrations_are_remembered(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, budget = (law_of("laplace", 7), law_of("pure", 7)), Budget(1, 1e-5)
    found = calibrate(events, budget)
    (file,) = (cache / "calibration").iterdir()
    assert json.loads(file.read_text())["z"] == found.z
    monkeypatch.setattr(calibration, "compute_calibration", None)
    assert calibrate(events[::-1], budget) is found
    calibration._load_calibration.cache_clear()
    assert calibrate(events, budget) == found


@pytest.mark.parametrize(
    "other",
    [
        {"budget": Budget(2, 1e-5)},
        {"budget": Budget(1, 1e-6)},
        {"budget": Budget(1, 1e-5, ZERO)},
        {"laws": (law_of("laplace", 8),)},
        {"laws": (law_of("laplace", 7, weight=2.0),)},
        {"mode": "paper", "printed": "mangold2023"},
        {"code": "other"},
    ],
)
def test_everything_that_matters_is_in_the_key(
    cache: Path, monkeypatch: pytest.MonkeyPatch, other: dict
) -> None:
    base = {"laws": (law_of("laplace", 7),), "budget": Budget(1, 1e-5)}
    calibrate(**base)
    calibration._load_calibration.cache_clear()
    changed = base | other
    if code := changed.pop("code", ""):
        monkeypatch.setattr(calibration, "digest_of_sources", lambda: code)
    calibrate(**changed)
    assert len(list((cache / "calibration").iterdir())) == 2


@pytest.mark.parametrize("text", ["", "[1]", '{"z": 1}', "null"])
def test_a_damaged_cache_is_recomputed(cache: Path, text: str) -> None:
    events, budget = (law_of("laplace", 7),), Budget(1, 1e-5)
    found = calibrate(events, budget)
    (file,) = (cache / "calibration").iterdir()
    file.write_text(text)
    calibration._load_calibration.cache_clear()
    assert calibrate(events, budget) == found
