"""The tidy table: one row per checkpoint, made of plan and records, sealed in a file.

The seal is what the table was made of, and a digest of all its bytes but the digest
itself. Both stand in the table's metadata, so that one file says all.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dp_erm_bench.datasets.base import READ, Uncharged
from dp_erm_bench.datasets.spec import FRESH, PUBLIC, usual_fields
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import digest, opened, remove_parts, write_atomic
from dp_erm_bench.plugins.passed import NOT_RECOUNTED, doubt, is_ours
from dp_erm_bench.registry import OBJECTIVE, POPULATION
from dp_erm_bench.results import columns
from dp_erm_bench.results.columns import COUNT, FLAG, NUMBER, TEXT
from dp_erm_bench.results.files import (
    BLOCK,
    PLAN,
    locked,
    plural,
    size_of,
    telling,
    typed,
)
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.settings import labelled
from dp_erm_bench.results.store import (
    Plan,
    Store,
    checksum,
    planned_lines,
    read_plan,
    segments_of,
)

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("experiment", "panel", "line", "phase")
HELD_OUT = (
    *("test_objective", "test_risk", "test_accuracy", "balanced_accuracy", "auc"),
    *("rmse", "r2"),
)
"""What held-out records say; missing where there are none."""
STRUCTURE = ("support_f1", "active_groups", "change_points")
"""What is said of zeros; missing but for true weights and norms that tell it."""
MEASURED = (
    *HELD_OUT,
    "train_risk",
    "gradient_norm",
    "dual_gap",
    "predicted_excess",
    *STRUCTURE,
)
"""What is measured beside the objective, most of it for few problems or solvers."""

COLUMNS = {
    name: column.dtype
    for name, column in columns.COLUMNS.items()
    if name not in POPULATION
}
"""Names and types of the columns of every table, in order."""

FACTS = (
    *("n", "p", "accountant", "epsilon_certified"),
    *("smoothness", "batch_size", "optimum"),
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
GAPS = ("damaged", "missing")
"""Keys of a file's metadata: damaged lines whose trials it lacks, and such trials."""

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
    measured = set[str]().union(*paths)
    filled = {}
    for field in schema:
        name, kind = field.name, field.type
        if name in fixed[0]:
            once = pa.array([row[name] for row in fixed], kind)
            filled[name] = once.take(repeat)
        elif name not in measured:
            filled[name] = pa.nulls(len(repeat), kind)
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
    read = line.get("read")
    if isinstance(read, list):
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
        "content": line.get("content", ""),
        "standardise": bool(dataset.get("standardise", False)),
        "dataset_seed": dataset.get("seed"),
        "objective_options": _options_of_parts(
            SORTED({part: spec[part] for part in OBJECTIVE})
        ),
        "strength": _number(facts.get("strength", spec["penalty"].get("strength"))),
        "algorithm": algorithm["name"],
        "params": SORTED(facts.get("params", algorithm["params"])),
        "references": SORTED(facts.get("references", {})),
        "clipped": _number(line.get("clipped")),
        "at_bound": SORTED(line["at_bound"]) if line.get("at_bound") else "",
        "rule": line.get("rule", ""),
        "solver": solver,
        # Nowhere missing: pandas before 3 writes a column of nothing as one of no type.
        "exempt": facts.get("exempt", ""),
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
    """Return the keys of a dataset that differ from its yaml, as JSON.

    Whether its records may be known tells no two problems apart.
    """
    fields: Row = json.loads(dataset)
    fields.pop(PUBLIC, None)
    try:
        usual = usual_fields(fields["name"])
    except UsageError:
        usual = {}
    usual |= {key: fields.get(key) for key in ("name", "_target_")}
    return SORTED({k: v for k, v in fields.items() if k not in usual or usual[k] != v})


BRIEF = 60
"""Characters of an option that are spelled out; a polytope has many vertices."""


@functools.lru_cache(1000)
def _options_of_parts(parts: str) -> str:
    """Return the parameters of loss, penalty and constraint, as JSON."""
    found = {}
    for part, fields in json.loads(parts).items():
        for key, value in fields.items():
            if key not in ("name", "strength", "file"):
                text = SORTED(value)
                short = f"{text[:20]}... {sha256(text.encode()).hexdigest()[:8]}"
                short = value[:8] if key == "content" else short
                found[f"{part}.{key}"] = value if len(text) <= BRIEF else short
    return SORTED(found)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def seal(file: BinaryIO) -> None:
    """Write the digest into a table whose metadata have the place for it."""
    place, _, _ = _seal(file)
    digest = _digest(file, place)
    file.seek(place)
    file.write(digest)


def sources_of(file: BinaryIO) -> str:
    """Return the sources of a table.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    place, digest, sources = _seal(file)
    if _digest(file, place) != digest:
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
    known = actual.items() <= expected.items()
    if not (known and {*COLUMNS} <= actual.keys()):
        raise ValueError("it has columns of other names or types")
    if table.metadata.num_rows > MOST_ROWS:
        raise ValueError(f"it has more than {MOST_ROWS} rows")
    # What else the file says of its columns is nothing to act upon.
    content = table.read(use_threads=False).replace_schema_metadata()
    frame: pd.DataFrame = content.to_pandas(use_threads=False)
    return frame


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


__all__ = ["COLUMNS", "NAME", "collect", "is_stale", "load_results"]

NAME = "results.parquet"
CHUNK = 2000

UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError),
    *(NotImplementedError, RecursionError),
)


def load_results(folder: str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """Return the table of a results folder, collecting it first if it is stale.

    Parameters
    ----------
    folder : str, Path or sequence of them
        The results folder, or several: their tables one below the other.

    Returns
    -------
    DataFrame
        One row per checkpoint with the columns of `COLUMNS`; a trial without a
        trajectory has one row. `checked` is as of now, not as of the file. A sweep's
        `panel` is its dataset, its `line` the algorithm and what else varies.

    Raises
    ------
    UsageError
        If a folder is not one of results; nothing is written there.
    """
    if isinstance(folder, str | Path):
        return labelled(recorded(Path(folder)))
    tables = [load_results(one) for one in folder]
    if not tables:
        raise UsageError("load_results: name at least one results folder")
    import pandas as pd

    if len(tables) == 1:
        return tables[0]
    table = labelled(pd.concat(tables, ignore_index=True), again=True)
    # A run that stands in two folders is one run.
    once = ["panel", "line", "phase", "trial", "iteration"]
    return table.drop_duplicates(once, ignore_index=True)


def recorded(folder: Path) -> pd.DataFrame:
    """Return what `load_results` returns, with the labels that the plan has."""
    if not any((folder / name).is_file() for name in (NAME, PLAN)):
        raise UsageError(f"{folder}: no results folder, it has no {PLAN}")
    if stale := is_stale(folder):
        collect(folder)
    found = None
    with contextlib.suppress(OSError, *UNREADABLE):
        found = _read(folder)
    if found is not None:
        if not stale:  # else it was told when it was made
            _tell_gaps(folder)
        _check_planned(folder, found)
        return found
    if not segments_of(folder):
        raise UsageError(f"{folder / NAME}: is damaged, and there are no segments")
    collect(folder)
    with telling(folder):
        return _read(folder)


def lacking(folder: Path, table: pd.DataFrame) -> str:
    """Return how many planned trials of a folder its table lacks, in words.

    Parameters
    ----------
    folder : Path
        A results folder; of another one nothing is said.
    table : DataFrame
        Its table, whole.
    """
    if not (folder / PLAN).is_file() or "trial" not in table:
        return ""
    planned = _planned(folder, checksum(folder))
    if not (missing := len(planned.difference(table["trial"].unique()))):
        return ""
    return (
        f"Incomplete: {missing} of {plural(len(planned), 'planned trial')} have no "
        "record; lines and runs are missing that the same command adds."
    )


@lru_cache(maxsize=8)
def _planned(folder: Path, plan: int) -> frozenset[str]:
    """Return the keys of the plan with a checksum: every view of a folder asks."""
    return frozenset(line["key"] for line in planned_lines(folder))


def _check_planned(folder: Path, table: pd.DataFrame) -> None:
    """Refuse a table without segments that holds trials of no plan of the folder.

    With segments it would be made again.
    """
    if segments_of(folder) or not (folder / PLAN).is_file() or "trial" not in table:
        return
    lines = [*read_plan(folder)]
    beyond = set(table["trial"]) - {line["key"] for line in lines if line is not None}
    if beyond and None not in lines:  # of a damaged plan its readers tell
        raise UsageError(
            f"{folder / NAME}: is of another folder or damaged: {len(beyond)} of its "
            f"trials are not in {PLAN}, and there are no segments to make it again"
        )


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    """Tell of each row whether its solver has passed `check` by now."""
    solvers, labels = table["solver"].unique(), table["calibration"].unique()
    recounted = table["calibration"].map({x: is_recounted(x) for x in labels})
    full, half = (
        table["solver"].map({solver: doubt(solver, kind) for solver in solvers})
        for kind in (True, False)
    )
    table["doubt"] = full.where(recounted.eq(True), half)
    table["checked"] = table["doubt"].eq("")
    return table


def _read(folder: Path) -> pd.DataFrame:
    with opened(folder / NAME, folder) as file:
        return _checked(read(file))


def _tell_gaps(folder: Path) -> None:
    """Print what a table was made without: who made it was told, perhaps nobody else.

    Of a table that cannot be read, and of notes that are no numbers, nothing is told.
    """
    import pyarrow.parquet as pq

    damaged = missing = 0
    with contextlib.suppress(OSError, ValueError), opened(folder / NAME, folder) as f:
        noted = pq.read_metadata(f).metadata or {}
        damaged, missing = (int(noted.get(key.encode(), 0)) for key in GAPS)
    told = [f"{plural(damaged, 'damaged line')} of {PLAN} or of segments"] * (
        damaged > 0
    )
    told += [f"{plural(missing, 'trial')} of {PLAN} without a record"] * (missing > 0)
    if told:
        back = "the same command puts them back"
        print(
            f"{typed(folder)}: {NAME} was made without {' and '.join(told)}; {back}",
            file=sys.stderr,
        )


def as_it_stands(folder: Path) -> pd.DataFrame:
    """Return what `load_results` does of a table that is not made again, untold.

    Raises
    ------
    UsageError
        If there is no table, or it cannot be read.
    """
    import pyarrow.parquet as pq

    try:
        with opened(folder / NAME, folder) as file:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            content = parquet.read(use_threads=False).replace_schema_metadata()
            return labelled(_checked(content.to_pandas(use_threads=False)))
    except (OSError, *UNREADABLE) as error:
        why = getattr(error, "strerror", None) or f"is damaged ({type(error).__name__})"
        raise UsageError(f"{folder / NAME}: {why}") from None


def joined(store: Store, lines: Iterable[Row]) -> Iterator[Trial]:
    """Yield the trials of lines of the plan that have a record that can be read."""
    known = [line for line in lines if line["key"] in store.index]
    records = store.records([line["key"] for line in known])
    for line, record in zip(known, records, strict=True):
        if record is not None:
            yield line, record, store.index[line["key"]].run


def facts_in(folder: Path) -> Iterator[tuple[Row, Row]]:
    """Yield the spec and the facts of every planned trial that went well."""
    for line, record, _ in joined(Store(folder), planned_lines(folder)):
        if record["status"] == "ok":
            yield line["spec"], record["facts"]


def is_stale(folder: Path) -> bool:
    """Return whether a folder's table is missing or not made of its segments.

    A table without segments is the only copy: it is never stale.
    """
    table, segments = folder / NAME, segments_of(folder)
    if not table.is_file():
        return True
    if not segments or not (folder / PLAN).is_file():
        return False
    sizes = {path.name: size_of(path) for path in segments}
    with contextlib.suppress(OSError, ValueError), opened(table, folder) as file:
        return sources_of(file) != _sources(folder, sizes)
    return True


def is_outdated(folder: Path) -> bool:
    """Return whether a table is stale, or what is in doubt of a solver has changed."""
    import pyarrow.parquet as pq

    if is_stale(folder):
        return True
    try:
        columns = ["solver", "calibration", "doubt"]
        with opened(folder / NAME, folder) as file:
            table = pq.ParquetFile(file, read_dictionary=["solver", "calibration"])
            labels = table.read(columns=columns, use_threads=False)
        groups = labels.unify_dictionaries().group_by(columns, use_threads=False)
        solvers = groups.aggregate([]).to_pylist()
        return any(
            doubt(row["solver"], is_recounted(row["calibration"])) != row.get("doubt")
            for row in solvers
        )
    except (OSError, *UNREADABLE):
        return True


def collect(folder: Path) -> Path:
    """Write the table of a folder, atomically, and return its path.

    Trials are in the order of the plan; those without a record are left out.

    Raises
    ------
    UsageError
        If the folder cannot be written to, or a newer version wrote into it.
    """
    store = Store(folder)
    with telling(folder), locked(folder):
        remove_parts(folder)
        store.refresh()
        _write(store)
    store.check(read_manifest(folder), "are left out; the same command runs them")
    return folder / NAME


def bring_up_to_date(store: Store, plan: Plan) -> None:
    """Leave a run's plan in place, and a table that is made of it and all records.

    Runs that end in the same folder wait for each other here, so that the table of
    the last one holds what all of them recorded.
    """
    with telling(store.folder), locked(store.folder):
        plan.restore()
        store.refresh()
        if is_outdated(store.folder):
            _write(store, tell_missing=False)  # other runs may be at them


def _write(store: Store, tell_missing: bool = True) -> None:
    """Write the table, and print what it does not have."""
    import pyarrow.parquet as pq

    folder = store.folder
    more = POPULATION if _names_fresh(folder) else ()
    schema = schema_of(_sources(folder, store.sizes()), more)
    left_out: Counter[str] = Counter()

    def write(file: Any) -> None:
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            for chunk in _chunks(store, left_out):
                for table in _tables(chunk, schema, left_out):
                    writer.write_table(table)
            # Damage costs nothing if its trials ran again, as its run says.
            lost = store.unnamed(read_manifest(folder)) if left_out["missing"] else {}
            broken = sum(n if isinstance(n, int) else 1 for n in lost.values())
            gaps = (left_out["damaged"] + broken, left_out["missing"])
            noted = {k: str(n) for k, n in zip(GAPS, gaps, strict=True) if n}
            if noted:
                writer.add_key_value_metadata(noted)
        seal(file)

    write_atomic(folder / NAME, write)
    if number := left_out["damaged"]:
        lines = f"{plural(number, 'damaged line')} of {PLAN} or of segments"
        back = "left out of the table; the same command puts them back"
        print(f"{typed(folder)}: {lines} {back}", file=sys.stderr)
    if tell_missing and (number := left_out["missing"]):
        trials = plural(number, "trial")
        print(f"{typed(folder)}: {trials} of {PLAN} without a record", file=sys.stderr)


def _names_fresh(folder: Path) -> bool:
    """Return whether a planned trial is judged by fresh records."""
    with opened(folder / PLAN, folder) as file:
        return any(f'"{FRESH}"'.encode() in line for line in file)


def _sources(folder: Path, sizes: dict[str, int]) -> str:
    return digest([sizes, checksum(folder), list(COLUMNS)])


def _chunks(store: Store, left_out: Counter[str]) -> Iterator[list[Trial]]:
    lines = read_plan(store.folder)
    while chunk := list(itertools.islice(lines, CHUNK)):
        whole = [line for line in chunk if line is not None]
        missing = sum(line["key"] not in store.index for line in whole)
        trials = list(joined(store, whole))
        left_out["damaged"] += len(chunk) - missing - len(trials)
        if store.sizes():  # else the run has only begun
            left_out["missing"] += missing
        if trials:
            yield trials


def _tables(chunk: list[Trial], schema: Any, left_out: Counter[str]) -> Iterator[Any]:
    """Yield the rows of a chunk; where one trial cannot be read, of all others."""
    try:
        yield table_of(chunk, schema)
    except UNREADABLE:
        if len(chunk) == 1:
            left_out["damaged"] += 1
            return
        for trial in chunk:
            yield from _tables([trial], schema, left_out)
