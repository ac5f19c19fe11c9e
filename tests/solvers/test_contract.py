"""Test that every algorithm of conf/ passes the checks of the contract.

Some further tests are for some algorithms only.
"""

from unittest.mock import patch

import pytest

from dp_erm_bench import registry
from dp_erm_bench.contract import limits
from dp_erm_bench.contract.candidate import NotApplicable
from dp_erm_bench.contract.problems import small_problem
from dp_erm_bench.contract.suite import CHECKS
from dp_erm_bench.errors import UsageError
from tests.solvers.cases import (
    ALGORITHMS,
    CANDIDATES,
    PENALTIES,
    VARIANTS,
    few_replays,
    label,
    some_objectives,
    supported,
)


def complaints(candidate, without=()):
    """What is not kept: the check and its words."""
    for check in CHECKS:
        if check.name in without:
            continue
        try:
            check.on(candidate)
        except NotApplicable as reason:
            assert len(str(reason).split()) >= 3, check.name
        except AssertionError as error:
            yield f"{check.name}: {error}"


# A kind of problem each.
@pytest.mark.parametrize("algorithm", ["gd", "mean_noise"])
def test_an_algorithm_keeps_the_contract(algorithm):
    """The slow test below meets all of them."""
    with few_replays(), patch.object(limits, "objectives", some_objectives):
        assert list(complaints(CANDIDATES[algorithm])) == []


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_keeps_it_in_all_replays(algorithm):
    assert list(complaints(CANDIDATES[algorithm])) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_unknown_parameters_are_refused_with_the_nearest(algorithm):
    parameter = next(iter(CANDIDATES[algorithm].parameters))
    with pytest.raises(UsageError, match=f"did you mean {parameter}"):
        registry.build("algorithm", algorithm, **{f"{parameter}x": 1.0})


def test_only_poster_noise_is_unsupported_and_only_where_it_is_not_proved():
    refused = {
        (label(variant), penalty)
        for variant in VARIANTS
        if variant[0] == "greedy_cd"
        for penalty in PENALTIES
        if not supported(variant, small_problem("logistic", penalty))
    }
    assert refused == {
        (f"greedy_cd-{rule}-poster", penalty)
        for rule in ("GS-r", "GS-q", "GS-s")
        for penalty in ("l1", "elastic_net", "box")
        if penalty == "box" or rule != "GS-s"
    }
