"""The tables of studies, from the facts that their tasks recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.profile import FALSE_ALARM, Row, row, verdict
from dp_erm_bench.audit.statistic import audited_case
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.results.plan import read_plan
from dp_erm_bench.results.store import Store

if TYPE_CHECKING:
    import pandas as pd

Facts = tuple[dict[str, Any], Mapping[str, Any]]


def recorded(folder: Path) -> Iterator[Facts]:
    """Yield the spec and the facts of every planned trial that went well."""
    lines = [line for line in read_plan(folder) if line is not None]
    records = Store(folder).records([line["key"] for line in lines])
    for line, record in zip(lines, records, strict=True):
        if record is not None and record["status"] == "ok":
            yield line["spec"], record["facts"]


def audits(folder: Path) -> pd.DataFrame:
    """Return one row per audit: what is claimed, and what its runs prove.

    Only chunks of which both neighbours are recorded count, so that an audit that is
    not finished yet is judged on what there is.
    """
    import pandas as pd

    by_audit: dict[str, dict[int, dict[int, list[float]]]] = {}
    for spec, facts in recorded(folder):
        how = {"algorithm": spec["algorithm"], "budget": spec["budget"]}
        sides = by_audit.setdefault(json.dumps(how, sort_keys=True), {0: {}, 1: {}})
        sides[spec["dataset"]["side"]][spec["seed"]] = facts["statistics"]
    alpha = FALSE_ALARM / max(1, len(by_audit))
    rows = [_judged(json.loads(how), sides, alpha) for how, sides in by_audit.items()]
    return pd.DataFrame(one for one in rows if one is not None)


def _judged(
    how: Mapping[str, Any], sides: Mapping[int, Mapping[int, list[float]]], alpha: float
) -> Row | None:
    both = sorted(set(sides[0]) & set(sides[1]))
    if not both:
        return None
    first, second = (
        np.concatenate([sides[side][chunk] for chunk in both]) for side in (0, 1)
    )
    name, params = how["algorithm"]["name"], how["algorithm"]["params"]
    if is_file(name):  # a plan may be anyone's: what it names is not imported
        raise UsageError(f"algorithm={name}: a plan must name no file")
    adjacency = how["budget"]["adjacency"]
    case = audited_case(name, params, Budget(**how["budget"]))
    return row(name, params, adjacency, verdict(first, second, case.claim, alpha))


def accounting(folder: Path) -> pd.DataFrame:
    """Return the rows of the accounting study, all parts in one table."""
    import pandas as pd

    return pd.DataFrame(row for _, facts in recorded(folder) for row in facts["rows"])
