"""Every algorithm of conf/ keeps the contract; what only some of them are asked."""

import pytest

from dp_erm_bench import registry
from dp_erm_bench.contract.problems import problem_of
from dp_erm_bench.contract.runs import NotApplicable
from dp_erm_bench.contract.suite import CHECKS
from dp_erm_bench.errors import UsageError
from tests.solvers.cases import (
    ALGORITHMS,
    CANDIDATES,
    PENALTIES,
    VARIANTS,
    label,
    supported,
)


# The lower one is the outer loop: replays are kept from check to check.
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_keeps_the_contract(check, algorithm):
    candidate = CANDIDATES[algorithm]
    try:
        check.on(candidate)
    except NotApplicable as reason:
        assert len(str(reason).split()) >= 3


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
        if not supported(variant, problem_of("logistic", penalty))
    }
    assert refused == {
        (f"greedy_cd-{rule}-poster", penalty)
        for rule in ("GS-r", "GS-q", "GS-s")
        for penalty in ("l1", "elastic_net", "box")
        if penalty == "box" or rule != "GS-s"
    }
