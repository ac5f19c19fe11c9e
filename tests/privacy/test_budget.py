import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.accounting.budget import LEAST_DELTA, Budget
from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.adjacency import Adjacency


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, "many", None, True, -math.inf])
def test_epsilon_is_refused_in_one_sentence(epsilon: Any) -> None:
    with pytest.raises(UsageError) as error:
        Budget(epsilon, 1e-6)
    assert str(error.value) == f"epsilon={epsilon}: must be a positive number or inf"


@pytest.mark.parametrize("delta", [-1e-9, 1, 1.5, math.nan, "1/m", "1/n^0", "1/n^-1"])
def test_delta_is_refused_naming_what_is_allowed(delta: Any) -> None:
    with pytest.raises(UsageError, match=r"^delta=.*\[0, 1\), '1/n', '1/n\^2'"):
        Budget(1.0, delta)


def test_adjacency_is_refused_naming_the_choices() -> None:
    with pytest.raises(UsageError, match="adjacency=add: must be replace_one or zero"):
        Budget(1.0, 0.0, "add")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("delta", "n", "value"),
    [("1/n", 10, 0.1), ("1/n^2", 1000, 1e-6), ("1/n^1.5", 100, 1e-3), (0.25, 7, 0.25)],
)
def test_delta_is_resolved(delta: Any, n: int, value: float) -> None:
    resolved = Budget(1, delta, Adjacency.ZERO_OUT).resolve_delta(n)
    assert resolved.number == pytest.approx(value)
    assert resolved.adjacency is Adjacency.ZERO_OUT


def test_a_delta_of_one_over_n_is_loose_where_there_is_an_epsilon() -> None:
    for n in (3, 49, 1000, 45312):
        for delta, loose in ((1 / n, True), (0.9 / n, False), ("1/n", True)):
            assert Budget(1.0, delta).is_loose(n) is loose
            assert not Budget(math.inf, delta).is_loose(n)
        for delta in ("1/n^2", "1/n^1.1", "1/n^400", 0.0):
            assert not Budget(1.0, delta).is_loose(n)


@pytest.mark.parametrize("delta", [1e-61, 1e-300, 5e-324, "1e-70"])
def test_a_delta_that_no_accountant_resolves_is_refused(delta: Any) -> None:
    with pytest.raises(UsageError) as error:
        Budget(1.0, delta)
    assert str(error.value) == (
        f"delta={delta}: must be 0 or at least 1e-60, "
        "the smallest delta that the accountants support"
    )
    assert Budget(1.0, LEAST_DELTA).number == LEAST_DELTA == 1e-60
    assert Budget(1.0, 0).number == 0.0


@pytest.mark.parametrize("power", [13, 60, 90])
def test_a_power_of_n_that_no_accountant_resolves_is_refused(power: int) -> None:
    assert Budget(1.0, "1/n^12").resolve_delta(10**5).number == pytest.approx(1e-60)
    with pytest.raises(UsageError, match=r"with n=100000 is .*: must be 0 or at least"):
        Budget(1.0, f"1/n^{power}").resolve_delta(10**5)


def test_delta_of_one_record_is_refused() -> None:
    with pytest.raises(UsageError, match="with n=1 is 1"):
        Budget(1, "1/n^2").resolve_delta(1)


def test_unresolved_delta_is_not_a_number() -> None:
    with pytest.raises(UsageError, match="resolve"):
        _ = Budget(1, "1/n").number


def test_words_and_numbers_make_equal_budgets() -> None:
    written = Budget("inf", "1e-6", "replace_one")  # type: ignore[arg-type]
    assert written == Budget(math.inf, 1e-6)
    assert hash(written) == hash(Budget(math.inf, 1e-6))


@given(st.integers(2, 10**9), st.floats(0.1, 4))
def test_resolved_is_valid_and_idempotent(n: int, power: float) -> None:
    budget = Budget(1.0, f"1/n^{power:.3f}").resolve_delta(n)
    assert 0 < budget.number < 1
    assert budget.resolve_delta(n + 1) is budget
