"""Measures of the tables of studies, which hold no runs of a panel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dp_erm_bench.audit.greedy import Instance, violation
from dp_erm_bench.audit.profile import VIOLATION
from dp_erm_bench.report.claims.lookup import Lookup
from dp_erm_bench.report.curves import NotRun

Claim = Mapping[str, Any]


def cell(claim: Claim, lookup: Lookup) -> float:
    """Return the column of the one row with given values of other columns."""
    rows, wanted = lookup.table, dict(claim["where"])
    for column, value in wanted.items():
        if column not in rows:
            raise NotRun(f"the table has no column {column}")
        number = isinstance(value, int | float)
        met = np.isclose(rows[column].astype("float64"), value) if number else None
        rows = rows[rows[column] == value if met is None else met]
    if len(rows) != 1:
        found = ", ".join(f"{name}={value}" for name, value in wanted.items())
        raise NotRun(f"{len(rows) or 'no'} rows with {found}")
    return float(rows[str(claim["column"])].iloc[0])


def violations(claim: Claim, lookup: Lookup) -> float:
    """Return how many audits refute what is claimed."""
    if not len(lookup.table):
        raise NotRun("no audit is recorded")
    return float((lookup.table["verdict"] == VIOLATION).sum())


def violated(claim: Claim, lookup: Lookup) -> float:
    """Return delta(1) / delta of the printed greedy noise on unequal coordinates."""
    facts = (claim["kappa"], claim["rivals"], claim["n_iter"], claim["delta"])
    return violation(Instance(*facts))
