"""The tidy table: one row per checkpoint, the plan joined with the records."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import write_atomic
from dp_erm_bench.results.store import PLAN, Store, segments_of

if TYPE_CHECKING:
    import pandas as pd

NAME = "results.parquet"
CHUNK = 2000
TEXT, FLAG, COUNT, NUMBER = "string", "bool", "int64", "float64"
COLUMNS = {
    "trial": TEXT,
    "experiment": TEXT,
    "panel": TEXT,
    "line": TEXT,
    "phase": TEXT,
    "tuned": FLAG,
    "dataset": TEXT,
    "standardise": FLAG,
    "n": COUNT,
    "p": COUNT,
    "loss": TEXT,
    "penalty": TEXT,
    "strength": NUMBER,
    "constraint": TEXT,
    "algorithm": TEXT,
    "params": TEXT,
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
}
"""Names and types of the columns, in order."""

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
Row = dict[str, Any]


def load_results(folder: str | Path) -> pd.DataFrame:
    """Return the table of a results folder, collecting it first if it is stale.

    Parameters
    ----------
    folder : str or Path
        The results folder.

    Returns
    -------
    DataFrame
        One row per checkpoint with the columns of `COLUMNS`; a trial without a
        trajectory has one row.

    Raises
    ------
    UsageError
        If the folder is not one of results; nothing is written there.
    """
    import pandas as pd

    folder = Path(folder)
    if not any((folder / name).is_file() for name in (NAME, PLAN)):
        raise UsageError(f"{folder}: no results folder, it has no {PLAN}")
    if is_stale(folder):
        collect(folder)
    return pd.read_parquet(folder / NAME)


def is_stale(folder: Path) -> bool:
    """Return whether a folder's table is missing or older than what it is made of."""
    table = folder / NAME
    if not table.is_file():
        return True
    sources = [*segments_of(folder), folder / PLAN]
    newest = max((s.stat().st_mtime_ns for s in sources if s.is_file()), default=0)
    return table.stat().st_mtime_ns < newest


def collect(folder: Path) -> Path:
    """Write the table of a folder, atomically, and return its path.

    Trials are in the order of the plan; those without a record are left out.
    """
    import pyarrow.parquet as pq

    store, schema = Store(folder), _schema()

    def write(file: Any) -> None:
        with pq.ParquetWriter(file, schema) as writer:
            for chunk in _chunks(store):
                writer.write_table(_table(chunk, schema))

    write_atomic(folder / NAME, write)
    return folder / NAME


def _chunks(store: Store) -> Iterator[Sequence[tuple[Row, Mapping[str, Any]]]]:
    planned = (line for line in store.plan() if line["key"] in store.index)
    lines, same = itertools.tee(planned)
    pairs = zip(lines, store.records(line["key"] for line in same), strict=True)
    known = ((line, record) for line, record in pairs if record is not None)
    while chunk := list(itertools.islice(known, CHUNK)):
        yield chunk


def _schema() -> Any:
    import pyarrow as pa

    types = {TEXT: pa.string(), FLAG: pa.bool_(), COUNT: pa.int64()}
    return pa.schema([(n, types.get(t, pa.float64())) for n, t in COLUMNS.items()])


def _table(chunk: Sequence[tuple[Row, Mapping[str, Any]]], schema: Any) -> Any:
    """Return the rows of some trials: what is fixed per trial is repeated."""
    import numpy as np
    import pyarrow as pa

    fixed = [_fixed(line, record) for line, record in chunk]
    paths = [record.get("trajectory") or {} for _, record in chunk]
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


def _fixed(line: Row, record: Mapping[str, Any]) -> Row:
    """Return the columns that are equal in all rows of a trial."""
    spec, facts = line["spec"], record.get("facts") or {}
    dataset, budget, algorithm = spec["dataset"], spec["budget"], spec["algorithm"]
    labels = ("experiment", "panel", "line", "phase", "tuned")
    # A threshold in multiples of a number of the data was chosen by looking at them.
    chosen = bool(line["tuned"] or line.get("measured"))
    uncharged = [*facts.get("uncharged", ()), *["tuning"] * chosen]
    return {
        **{name: line[name] for name in labels},
        **{name: facts.get(name) for name in FACTS},
        "trial": line["key"],
        "dataset": dataset["name"],
        "standardise": bool(dataset.get("standardise", False)),
        "dataset_seed": dataset.get("seed"),
        "loss": facts.get("loss", spec["loss"]["name"]),
        "penalty": facts.get("penalty", spec["penalty"]["name"]),
        "constraint": facts.get("constraint", spec["constraint"]["name"]),
        "strength": _number(facts.get("strength", spec["penalty"].get("strength"))),
        "algorithm": algorithm["name"],
        "params": json.dumps(facts.get("params", algorithm["params"]), sort_keys=True),
        "epsilon": float(budget["epsilon"]),
        "delta": _number(facts.get("delta", budget["delta"])),
        "adjacency": budget["adjacency"],
        "calibration": facts.get("calibration", spec["calibration"]),
        "uncharged": ",".join(uncharged),
        "seed": spec["seed"],
        "status": record["status"],
        "message": record.get("message") or facts.get("optimum_reason") or "",
    }


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
