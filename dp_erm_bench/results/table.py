"""The tidy table: one row per checkpoint, the plan joined with the records."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.datasets.spec import FRESH
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import digest, opened, remove_parts, write_atomic
from dp_erm_bench.plugins.passed import doubt, is_ours
from dp_erm_bench.registry import POPULATION
from dp_erm_bench.results import rows
from dp_erm_bench.results.files import locked, plural, size_of, telling, typed
from dp_erm_bench.results.labels import labelled
from dp_erm_bench.results.plan import NAME as PLAN
from dp_erm_bench.results.plan import Plan, checksum, read_plan
from dp_erm_bench.results.rows import COLUMNS, UNKNOWN, Trial, table_of
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.store import Store, segments_of

if TYPE_CHECKING:
    import pandas as pd

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

    return pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]


def recorded(folder: Path) -> pd.DataFrame:
    """Return what `load_results` returns, with the labels that the plan has."""
    if not any((folder / name).is_file() for name in (NAME, PLAN)):
        raise UsageError(f"{folder}: no results folder, it has no {PLAN}")
    if is_stale(folder):
        collect(folder)
    found = None
    with contextlib.suppress(OSError, *UNREADABLE):
        found = _read(folder)
    if found is not None:
        _check_planned(folder, found)
        return found
    if not segments_of(folder):
        raise UsageError(f"{folder / NAME}: is damaged, and there are no segments")
    collect(folder)
    with telling(folder):
        return _read(folder)


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
    if "solver" not in table:  # of an older version, and its segments are gone
        ours = {name: is_ours(name) for name in table["algorithm"].unique()}
        table["solver"] = table["algorithm"].map(ours).map({True: "", False: UNKNOWN})
    solvers, labels = table["solver"].unique(), table["calibration"].unique()
    recounted = table["calibration"].map({x: rows.is_recounted(x) for x in labels})
    full, half = (
        table["solver"].map({solver: doubt(solver, kind) for solver in solvers})
        for kind in (True, False)
    )
    table["doubt"] = full.where(recounted.eq(True), half)
    table["checked"] = table["doubt"].eq("")
    return table


def _read(folder: Path) -> pd.DataFrame:
    with opened(folder / NAME, folder) as file:
        return _checked(rows.read(file))


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
        return rows.sources_of(file) != _sources(folder, sizes)
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
            doubt(row["solver"], rows.is_recounted(row["calibration"]))
            != row.get("doubt")
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
    store.tell(read_manifest(folder), "are left out; the same command runs them")
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
    schema = rows.schema_of(_sources(folder, store.sizes()), more)
    left_out: Counter[str] = Counter()

    def write(file: Any) -> None:
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            for chunk in _chunks(store, left_out):
                for table in _tables(chunk, schema, left_out):
                    writer.write_table(table)
        rows.seal(file)

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
        planned = [line for line in chunk if line and line["key"] in store.index]
        left_out["damaged"] += chunk.count(None)
        if store.sizes():  # else the run has only begun
            left_out["missing"] += len(chunk) - chunk.count(None) - len(planned)
        records = store.records(line["key"] for line in planned)
        trials = [
            (line, record, store.index[line["key"]].run)
            for line, record in zip(planned, records, strict=True)
            if record is not None
        ]
        left_out["damaged"] += len(planned) - len(trials)
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
