"""The table of an audit: one row per algorithm, variant and adjacency."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.audit.pairs import variants
from dp_erm_bench.audit.profile import OK, Verdict
from dp_erm_bench.releases.adjacency import Adjacency

Key = tuple[str, dict[str, Any], Adjacency]
Row = dict[str, Any]


def cases() -> list[Key]:
    """Return all that is to be audited: every algorithm of conf/, no list to keep."""
    return [
        (algorithm, params, adjacency)
        for algorithm in registry.names("algorithm")
        for params in variants(algorithm)
        for adjacency in Adjacency
    ]


def row(
    algorithm: str, params: Mapping[str, Any], adjacency: str, found: Verdict
) -> Row:
    """Return a row: algorithm, params (JSON), adjacency, and what was found."""
    text = json.dumps(dict(params), sort_keys=True)
    key = {"algorithm": algorithm, "params": text, "adjacency": str(adjacency)}
    return key | asdict(found)


def claim_row(rows: Sequence[Mapping[str, Any]], profile: str = "") -> Row:
    """Return the row of claims.csv: no violation in N audits.

    The false-alarm probability of the whole table is at most the sum of the rows'
    1 - confidence (Bonferroni).
    """
    broken = [row for row in rows if row["verdict"] != OK]
    alarm = sum(1.0 - float(row["confidence"]) for row in rows)
    return {
        "paper": "",
        "figure": "audit",
        "statement": f"no violation in {len(rows)} audits",
        "measured": "audits whose profile test refutes the claim (probability of a "
        f"false alarm in the table <= {alarm:.2g})",
        "threshold": "<= 0",
        "value": float(len(broken)),
        "verdict": "fails" if broken or not rows else "holds",
        "profile": profile,
    }
