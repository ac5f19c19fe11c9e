"""Run a small statistical audit of every algorithm of conf/.

At epsilon = 8, 1000 runs on each side detect a missing factor of 2 (test_power). At
epsilon = 1, it would take 20 times as many. The first variant of each algorithm is
audited under one adjacency; the adjacencies alternate. `make test-slow` audits the
other variants, and makes more runs of solvers that do not run in batches.
"""

import functools
import json

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.pairs import variants
from dp_erm_bench.audit.profile import OK, audit_row, verdict
from dp_erm_bench.audit.statistic import LEAK, named_attack
from dp_erm_bench.releases.adjacency import Adjacency

RUNS = 1000
# One solve a run: fewer of them.
SINGLE_RUNS, MORE_RUNS = 100, 300
CASES = [
    (algorithm, params, adjacency)
    for algorithm in registry.names("algorithm")
    for params in variants(algorithm)
    for adjacency in Adjacency
]
FALSE_ALARM = 1e-3
FIRST = [
    (algorithm, variants(algorithm)[0], list(Adjacency)[turn % 2])
    for turn, algorithm in enumerate(registry.names("algorithm"))
]
PLACES = [
    pytest.param(place, marks=[] if case in FIRST else [pytest.mark.slow])
    for place, case in enumerate(CASES)
]


@functools.cache
def audited(place, single):
    algorithm, params, adjacency = CASES[place]
    attack = named_attack(algorithm, params, Budget(8.0, 1e-6, adjacency))
    runs = RUNS if attack.solver.batchable else single
    sides = [attack.run(side, runs, f"quick/{place}") for side in (0, 1)]
    return *sides, verdict(*sides, attack.guarantee, FALSE_ALARM / len(CASES))


def name(place):
    algorithm, params, adjacency = CASES[place]
    told = [f"{k}={v}" for k, v in params.items() if k != "n_iter"]
    return "-".join([algorithm, *told, adjacency])


@pytest.mark.parametrize("place", PLACES, ids=name)
def test_no_claim_is_refuted(place):
    slow = PLACES[place].marks
    first, second, found = audited(place, MORE_RUNS if slow else SINGLE_RUNS)
    assert found.verdict == OK, found
    assert abs(first).max() < LEAK > abs(second).max()
    algorithm, params, _ = CASES[place]
    if algorithm == "one_pass_sgd" and params.get("order") != "given":
        # The secret order hides more than is charged. The statistic is the log-ratio.
        for sample in (np.exp(-first), np.exp(second)):
            off = abs(sample.mean() - 1.0)
            assert off < 5.0 * sample.std() / np.sqrt(sample.size)
        return
    # The pair tells the two sides apart: an audit that sees nothing proves nothing.
    assert first.mean() > 0.0 > second.mean()


def test_the_rows_of_a_table_name_what_was_audited():
    rows = [
        audit_row(*CASES[place], audited(place, SINGLE_RUNS)[2]) for place in (0, 1)
    ]
    assert {r["adjacency"] for r in rows} == {"replace_one", "zero_out"}
    for (algorithm, params, _), found in zip(CASES, rows, strict=False):
        assert (found["algorithm"], json.loads(found["params"])) == (algorithm, params)
        assert found["verdict"] == OK
