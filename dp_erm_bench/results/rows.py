"""The rows of the table: what each of its columns is taken from."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dp_erm_bench.datasets.base import Uncharged
from dp_erm_bench.datasets.spec import usual_fields
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.passed import has_passed, is_ours

TEXT, FLAG, COUNT, NUMBER = "string", "bool", "int64", "float64"
COLUMNS = {
    "trial": TEXT,
    "experiment": TEXT,
    "panel": TEXT,
    "line": TEXT,
    "phase": TEXT,
    "tuned": FLAG,
    "dataset": TEXT,
    "dataset_options": TEXT,
    "standardise": FLAG,
    "n": COUNT,
    "p": COUNT,
    "loss": TEXT,
    "penalty": TEXT,
    "strength": NUMBER,
    "constraint": TEXT,
    "algorithm": TEXT,
    "params": TEXT,
    "solver": TEXT,
    "checked": FLAG,
    "epsilon": NUMBER,
    "delta": NUMBER,
    "adjacency": TEXT,
    "calibration": TEXT,
    "accountant": TEXT,
    "epsilon_certified": NUMBER,
    "uncharged": TEXT,
    "smoothness": TEXT,
    "seed": COUNT,
    "dataset_seed": COUNT,
    "batch_size": COUNT,
    "iteration": COUNT,
    "passes": NUMBER,
    "seconds": NUMBER,
    "objective": NUMBER,
    "optimum": NUMBER,
    "relative_error": NUMBER,
    "nnz": COUNT,
    "test_objective": NUMBER,
    "test_accuracy": NUMBER,
    "status": TEXT,
    "message": TEXT,
    "run": TEXT,
}
"""Names and types of the columns, in order.

`params` and `dataset_options` are JSON: the parameters of the algorithm, and the keys
of the dataset that differ from its yaml. `solver` is the digest of the sources of an
algorithm from outside the package, empty for the package's own; `checked` tells whether
these passed `check` where the table was made, true for the package's own. `run` leads
to ``runs/<run>.json``; it is empty where a version without runs recorded the trial.
"""

PER_CHECKPOINT = (
    "iteration",
    "passes",
    "seconds",
    "objective",
    "nnz",
    "test_objective",
    "test_accuracy",
)
FACTS = (
    "n",
    "p",
    "accountant",
    "epsilon_certified",
    "smoothness",
    "batch_size",
    "optimum",
)
# `json.dumps` makes an encoder at each call.
SORTED = json.JSONEncoder(sort_keys=True).encode

UNKNOWN = "unknown"
"""Digest of sources that were not recorded; they have passed nothing."""

Row = dict[str, Any]


class Pair(NamedTuple):
    """A trial in the table: its line of the plan, its record, the run behind it."""

    line: Row
    record: Mapping[str, Any]
    run: str


def schema_of() -> Any:
    """Return the columns as Arrow spells them."""
    import pyarrow as pa

    types = {TEXT: pa.string(), FLAG: pa.bool_(), COUNT: pa.int64()}
    return pa.schema([(n, types.get(t, pa.float64())) for n, t in COLUMNS.items()])


def table_of(chunk: Sequence[Pair], schema: Any) -> Any:
    """Return the rows of some trials: what is fixed per trial is repeated."""
    import numpy as np
    import pyarrow as pa

    fixed = [_fixed(*pair) for pair in chunk]
    checked = {solver: has_passed(solver) for solver in {r["solver"] for r in fixed}}
    for row in fixed:
        row["checked"] = checked[row["solver"]]
    paths = [pair.record.get("trajectory") or {} for pair in chunk]
    rows = [max(len(path.get("iteration", ())), 1) for path in paths]
    repeat = pa.array(np.repeat(np.arange(len(rows)), rows))
    columns = {}
    for field in schema:
        if field.name in PER_CHECKPOINT:
            values = _joined(field.name, paths, rows)
            columns[field.name] = pa.array(values, field.type)
        else:
            once = pa.array([row.get(field.name) for row in fixed], field.type)
            columns[field.name] = once.take(repeat)
    columns["relative_error"] = _relative(columns["objective"], columns["optimum"])
    return pa.table(columns, schema=schema)


def passed_in(table: Any) -> dict[str, bool]:
    """Return the solvers in rows, and whether these say that they passed `check`."""
    groups = table.group_by(["solver", "checked"], use_threads=False)
    pairs = groups.aggregate([]).to_pylist()
    return {pair["solver"]: pair["checked"] for pair in pairs}


def _joined(
    name: str, paths: Iterable[Mapping[str, Any]], rows: Iterable[int]
) -> list[Any]:
    values: list[Any] = []
    for path, count in zip(paths, rows, strict=True):
        values += path.get(name) or [None] * count
    return values


def _relative(objective: Any, optimum: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.if_else(pc.equal(optimum, 0.0), pa.scalar(None, pa.float64()), optimum)
    return pc.subtract(pc.divide(objective, known), 1.0)


def _fixed(line: Row, record: Mapping[str, Any], run: str) -> Row:
    """Return the columns that are equal in all rows of a trial."""
    spec, facts = line["spec"], record.get("facts") or {}
    dataset, budget, algorithm = spec["dataset"], spec["budget"], spec["algorithm"]
    labels = ("experiment", "panel", "line", "phase", "tuned")
    # A threshold in multiples of a number of the data was chosen by looking at them.
    chosen = bool(line["tuned"] or line.get("measured"))
    uncharged = [*facts.get("uncharged", ()), *[Uncharged.TUNING] * chosen]
    return {
        **{name: line[name] for name in labels},
        **{name: facts.get(name) for name in FACTS},
        "trial": line["key"],
        "dataset": dataset["name"],
        "dataset_options": _options(SORTED(dataset)),
        "standardise": bool(dataset.get("standardise", False)),
        "dataset_seed": dataset.get("seed"),
        "loss": facts.get("loss", spec["loss"]["name"]),
        "penalty": facts.get("penalty", spec["penalty"]["name"]),
        "constraint": facts.get("constraint", spec["constraint"]["name"]),
        "strength": _number(facts.get("strength", spec["penalty"].get("strength"))),
        "algorithm": algorithm["name"],
        "params": SORTED(facts.get("params", algorithm["params"])),
        "solver": _solver(algorithm, facts),
        "epsilon": float(budget["epsilon"]),
        "delta": _number(facts.get("delta", budget["delta"])),
        "adjacency": budget["adjacency"],
        "calibration": facts.get("calibration", spec["calibration"]),
        "uncharged": ",".join(uncharged),
        "seed": spec["seed"],
        "status": record["status"],
        "message": record.get("message") or facts.get("optimum_reason") or "",
        "run": run,
    }


def _solver(algorithm: Row, facts: Mapping[str, Any]) -> str:
    """Return the digest of an algorithm's sources, empty for the package's own.

    A file's is in its spec, an entry point's in the record of what it did.
    """
    if "content" in algorithm or not is_ours(algorithm["name"]):
        return str(algorithm.get("content", facts.get("solver", UNKNOWN)))
    return ""


@functools.lru_cache(1000)
def _options(dataset: str) -> str:
    """Return the keys of a dataset that differ from its yaml, as JSON."""
    fields: Row = json.loads(dataset)
    try:
        usual = usual_fields(fields["name"])
    except UsageError:
        usual = {}
    named = ("name", "_target_")
    changed = {
        key: value
        for key, value in fields.items()
        if key not in named and (key not in usual or usual[key] != value)
    }
    return json.dumps(changed, sort_keys=True)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
