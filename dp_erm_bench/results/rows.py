"""The table as a file: its columns, what each is taken from, and its seal.

The seal is what the table was made of, and a digest of all its bytes but the digest
itself. Both stand in the table's metadata, so that one file says all.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO

from dp_erm_bench.datasets.base import READ, Uncharged
from dp_erm_bench.datasets.spec import usual_fields
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.passed import NOT_RECOUNTED, doubt, is_ours
from dp_erm_bench.registry import OBJECTIVE, POPULATION
from dp_erm_bench.results import columns
from dp_erm_bench.results.columns import COUNT, FLAG, NUMBER, TEXT
from dp_erm_bench.results.files import BLOCK

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("experiment", "panel", "line", "phase")
HELD_OUT = ("test_objective", "test_risk", "test_accuracy", "balanced_accuracy", "auc")
"""What held-out records say; missing where there are none."""
STRUCTURE = ("support_f1", "active_groups", "change_points")
"""What is said of zeros; missing but for true weights and norms that tell it."""
MEASURED = (*HELD_OUT, "gradient_norm", "dual_gap", *STRUCTURE)
"""What is measured beside the objective, most of it for few problems or solvers."""

COLUMNS = {
    name: column.dtype
    for name, column in columns.COLUMNS.items()
    if name not in POPULATION
}
"""Names and types of the columns of every table, in order."""

FACTS = (
    *("n", "p", "accountant", "epsilon_certified", "smoothness", "batch_size"),
    *("optimum", "exempt"),
)
# `json.dumps` makes an encoder at each call.
SORTED = json.JSONEncoder(sort_keys=True).encode

UNKNOWN = "unknown"
"""Digest of sources that were not recorded; they have passed nothing."""

SEAL = re.compile(rb"blake2b ([0-9a-f]{64}) of ([0-9a-f]{64})")
LENGTH = 64
METADATA = 1 << 16
"""Bytes at the end of a file that hold its metadata."""
MOST_ROWS = 100_000_000

Row = dict[str, Any]
Trial = tuple[Row, Row, str]
"""A trial in the table: its line of the plan, its record, the run behind it."""


def schema_of(sources: str = "0" * LENGTH, more: Sequence[str] = ()) -> Any:
    """Return the columns as Arrow spells them, with a seal that has no digest yet.

    `sources` is a digest of the table's sources in hexadecimal; `more`: `POPULATION`.
    """
    import pyarrow as pa

    types = {TEXT: pa.string(), FLAG: pa.bool_(), COUNT: pa.int64()}
    every = COLUMNS | dict.fromkeys(more, NUMBER)
    fields = [(n, types.get(t, pa.float64())) for n, t in every.items()]
    return pa.schema(fields, {"sources": f"blake2b {'0' * LENGTH} of {sources}"})


def table_of(chunk: Sequence[Trial], schema: Any) -> Any:
    """Return the rows of some trials, with the columns fixed per trial repeated."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    fixed = [_fixed(*trial) for trial in chunk]
    doubts = functools.cache(doubt)
    for row in fixed:
        row["doubt"] = doubts(row["solver"], is_recounted(row["calibration"]))
        row["checked"] = not row["doubt"]
    paths = [record.get("trajectory") or {} for _, record, _ in chunk]
    counts = [max(len(path.get("iteration", ())), 1) for path in paths]
    repeat = pa.array(np.repeat(np.arange(len(counts)), counts))
    filled = {}
    for field in schema:
        name, kind = field.name, field.type
        if name in fixed[0]:
            once = pa.array([row[name] for row in fixed], kind)
            filled[name] = once.take(repeat)
        else:
            values = (
                p.get(name) or [None] * n for p, n in zip(paths, counts, strict=True)
            )
            filled[name] = pa.array(list(itertools.chain.from_iterable(values)), kind)
    optimum, none = filled["optimum"], pa.scalar(None, pa.float64())
    base = pc.if_else(pc.less_equal(optimum, 0.0), none, optimum)
    filled["relative_error"] = pc.subtract(pc.divide(filled["objective"], base), 1.0)
    return pa.table(filled, schema=schema)


def is_recounted(calibration: Any) -> bool:
    """Return whether the label of a calibration leaves no release without a twin."""
    return not str(calibration).endswith(NOT_RECOUNTED)


def _fixed(line: Row, record: Row, run: str) -> Row:
    """Return the columns that are equal in all rows of a trial."""
    spec, facts = line["spec"], record.get("facts") or {}
    dataset, budget, algorithm = spec["dataset"], spec["budget"], spec["algorithm"]
    # A threshold in multiples of a number of the data was chosen by looking at them.
    chosen = bool(line["tuned"] or line.get("measured"))
    uncharged = [*facts.get("uncharged", ()), *[Uncharged.TUNING] * chosen]
    if isinstance(read := line.get("read"), list):
        # What was declared when it ran may not be now, and no key depends on it.
        others = [use for use in uncharged if use not in READ]
        uncharged = [*(use for use in READ if use in read), *others]
    solver = ""
    if "content" in algorithm or not is_ours(algorithm["name"]):
        # A file's is in its spec, an entry point's in the record of what it did.
        solver = str(facts.get("solver", algorithm.get("content", UNKNOWN)))
    return {
        **{name: line[name] for name in (*LABELS, "tuned")},
        **{name: facts.get(name) for name in FACTS},
        **{name: facts.get(name, spec[name]["name"]) for name in OBJECTIVE},
        "trial": line["key"],
        "dataset": dataset["name"],
        "dataset_options": _options(SORTED(dataset)),
        "standardise": bool(dataset.get("standardise", False)),
        "dataset_seed": dataset.get("seed"),
        "strength": _number(facts.get("strength", spec["penalty"].get("strength"))),
        "algorithm": algorithm["name"],
        "params": SORTED(facts.get("params", algorithm["params"])),
        "references": SORTED(facts.get("references", {})),
        "solver": solver,
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


@functools.lru_cache(1000)
def _options(dataset: str) -> str:
    """Return the keys of a dataset that differ from its yaml, as JSON."""
    fields: Row = json.loads(dataset)
    try:
        usual = usual_fields(fields["name"])
    except UsageError:
        usual = {}
    usual |= {key: fields.get(key) for key in ("name", "_target_")}
    return SORTED({k: v for k, v in fields.items() if k not in usual or usual[k] != v})


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def seal(file: BinaryIO) -> None:
    """Write the digest into a table whose metadata have the place for it."""
    place, _, _ = _seal(file)
    digest = _digest(file, place)
    file.seek(place)
    file.write(digest)


def sources_of(file: BinaryIO) -> str:
    """Return the sources of a table; empty without a seal, as of earlier versions.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    place, digest, sources = _seal(file)
    if place and _digest(file, place) != digest:
        raise ValueError("it is not as it was written")
    return sources.decode()


def read(file: BinaryIO) -> pd.DataFrame:
    """Return a table as a frame, of its columns alone.

    No threads: one that is left over could take a Ctrl-C that the main one holds back,
    or be at work when the process ends.

    Raises
    ------
    ValueError
        If it is damaged, or has other columns.
    """
    import pyarrow.parquet as pq

    sources_of(file)
    table = pq.ParquetFile(file, page_checksum_verification=True)
    # Texts of up to 2 GB and of more are alike.
    expected, actual = (
        {field.name: str(field.type).removeprefix("large_") for field in schema}
        for schema in (schema_of(more=POPULATION), table.schema_arrow)
    )
    if not actual.items() <= expected.items():
        raise ValueError("it has columns of other names or types")
    if table.metadata.num_rows > MOST_ROWS:
        raise ValueError(f"it has more than {MOST_ROWS} rows")
    # What else the file says of its columns is nothing to act upon.
    content = table.read(use_threads=False).replace_schema_metadata()
    frame: pd.DataFrame = content.to_pandas(use_threads=False)
    # Tables of earlier versions have none of some.
    added: Row = {"references": "{}", **dict.fromkeys(MEASURED, float("nan"))}
    return frame.assign(**{k: v for k, v in added.items() if k not in frame})


def _seal(file: BinaryIO) -> tuple[int, bytes, bytes]:
    """Return place and text of the digest, and the sources; the place is 0 if none."""
    start = max(0, file.seek(0, 2) - METADATA)
    file.seek(start)
    place, digest, sources = 0, b"", b""
    for match in SEAL.finditer(file.read(METADATA)):
        place, digest, sources = start + match.start(1), match[1], match[2]
    return place, digest, sources


def _digest(file: BinaryIO, place: int) -> bytes:
    digest = blake2b(digest_size=LENGTH // 2)
    for start, stop in ((0, place), (place + LENGTH, file.seek(0, 2))):
        file.seek(start)
        while block := file.read(min(BLOCK, stop - file.tell())):
            digest.update(block)
    return digest.hexdigest().encode()
