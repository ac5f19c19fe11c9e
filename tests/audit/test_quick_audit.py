"""The statistical audit of every algorithm of conf/, in small.

At epsilon = 8 a missing factor of 2 shows in 1000 runs a side (test_power); at
epsilon = 1 it would take 20 times as many.
"""

import functools

import pytest

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.chunk import audited_case
from dp_erm_bench.audit.profile import OK, verdict
from dp_erm_bench.audit.statistic import LEAK
from dp_erm_bench.audit.table import cases, claim_row, row

BUDGET = Budget(8.0, 1e-6)
RUNS = 1000
# One solve a run: fewer of them.
SINGLE_RUNS = 300
CASES = cases()
FALSE_ALARM = 1e-3


@functools.cache
def audited(place):
    algorithm, params, adjacency = CASES[place]
    case = audited_case(algorithm, params, adjacency, BUDGET)
    runs = RUNS if case.solver.batchable else SINGLE_RUNS
    sides = [case.run(side, runs, f"quick/{place}") for side in (0, 1)]
    return *sides, verdict(*sides, case.claim, FALSE_ALARM / len(CASES))


def name(place):
    algorithm, params, adjacency = CASES[place]
    told = [f"{k}={v}" for k, v in params.items() if k != "n_iter"]
    return "-".join([algorithm, *told, adjacency])


@pytest.mark.parametrize("place", range(len(CASES)), ids=name)
def test_no_claim_is_refuted(place):
    first, second, found = audited(place)
    assert found.verdict == OK, found
    assert abs(first).max() < LEAK > abs(second).max()
    # The pair tells the two sides apart: an audit that sees nothing proves nothing.
    assert first.mean() > 0.0 > second.mean()


def test_the_table_says_so():
    rows = [row(*CASES[place], audited(place)[2]) for place in range(len(CASES))]
    assert {r["adjacency"] for r in rows} == {"replace_one", "zero_out"}
    claim = claim_row(rows, "quick")
    assert claim["verdict"] == "holds" and claim["value"] == 0.0
    assert claim["statement"] == f"no violation in {len(CASES)} audits"
    assert "<= 0.001)" in claim["measured"] and claim["profile"] == "quick"


def test_a_table_with_a_violation_fails_and_an_empty_one_proves_nothing():
    rows = [row(*CASES[place], audited(place)[2]) for place in (0, 1)]
    rows[1] = {**rows[1], "verdict": "VIOLATION"}
    assert claim_row(rows)["verdict"] == "fails" and claim_row(rows)["value"] == 1.0
    assert claim_row([])["verdict"] == "fails"
