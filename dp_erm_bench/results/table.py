"""The tidy table: one row per checkpoint, the plan joined with the records."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import digest, write_atomic
from dp_erm_bench.plugins.passed import has_passed, is_ours
from dp_erm_bench.results.folder import locked, plural, shown, telling
from dp_erm_bench.results.plan import NAME as PLAN
from dp_erm_bench.results.plan import Plan, checksum, read_plan
from dp_erm_bench.results.rows import (
    COLUMNS,
    UNKNOWN,
    Pair,
    passed_in,
    schema_of,
    table_of,
)
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.scan import size_of
from dp_erm_bench.results.store import Store, segments_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "NAME", "collect", "is_stale", "load_results"]

NAME = "results.parquet"
CHUNK = 2000
SOURCES = b"sources"
"""Key of the table's metadata that says what it was made of."""

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError)


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
        trajectory has one row. `checked` is as of now, not as of the file.

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
    with contextlib.suppress(OSError, ValueError):
        found = pd.read_parquet(folder / NAME, page_checksum_verification=True)
        return _labelled(found)
    if not segments_of(folder):
        raise UsageError(f"{folder / NAME}: is damaged, and there are no segments")
    collect(folder)
    return _labelled(pd.read_parquet(folder / NAME))


def _labelled(table: pd.DataFrame) -> pd.DataFrame:
    """Tell of each row whether its solver has passed `check` by now."""
    if "solver" not in table:  # of an older version, and its segments are gone
        ours = {name: is_ours(name) for name in table["algorithm"].unique()}
        table["solver"] = table["algorithm"].map(ours).map({True: "", False: UNKNOWN})
    passed = {solver: has_passed(solver) for solver in table["solver"].unique()}
    table["checked"] = table["solver"].map(passed).eq(True)
    return table


def is_stale(folder: Path) -> bool:
    """Return whether a folder's table is missing or not made of what is there.

    A table whose segments are gone is all there is: it is never stale.
    """
    table, segments = folder / NAME, segments_of(folder)
    if not table.is_file():
        return True
    if not segments or not (folder / PLAN).is_file():
        return False
    sizes = {path.name: size_of(path) for path in segments}
    return _sources_of(table) != _sources(folder, sizes)


def is_outdated(folder: Path) -> bool:
    """Return whether a table is stale, or a solver passed `check` or lost it since."""
    import pyarrow.parquet as pq

    if is_stale(folder):
        return True
    try:
        columns = ["solver", "checked"]
        # No threads: one of them could take a Ctrl-C that the main one holds back.
        how = {"read_dictionary": ["solver"], "use_threads": False}
        told = pq.read_table(folder / NAME, columns=columns, **how)
        found = passed_in(told.unify_dictionaries())
        return any(has_passed(solver) != then for solver, then in found.items())
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
        store.refresh()
        _write(store)
    if store.damage() != read_manifest(folder).get("damaged", {}):
        for line in store.damage_lines("are left out; the same command runs them"):
            print(line, file=sys.stderr)
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
            _write(store)


def _write(store: Store) -> None:
    import pyarrow.parquet as pq

    folder = store.folder
    sources = _sources(folder, store.sizes())
    schema = schema_of().with_metadata({SOURCES: sources.encode()})
    damaged: list[None] = []

    def write(file: Any) -> None:
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            for chunk in _chunks(store, damaged):
                for table in _tables(chunk, schema, damaged):
                    writer.write_table(table)

    write_atomic(folder / NAME, write)
    if damaged:
        print(
            f"{shown(folder)}: {plural(len(damaged), 'damaged line')} of {PLAN} or of "
            "segments left out of the table; the same command puts them back",
            file=sys.stderr,
        )


def _sources(folder: Path, sizes: dict[str, int]) -> str:
    return digest([sizes, checksum(folder), list(COLUMNS)])


def _sources_of(table: Path) -> str | None:
    """Return what a table was made of; None if it is damaged or of an old version."""
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(table).metadata or {}
    except (OSError, ValueError):
        return None
    found = metadata.get(SOURCES)
    return None if found is None else str(found.decode())


def _chunks(store: Store, damaged: list[None]) -> Iterator[list[Pair]]:
    rows = read_plan(store.folder)
    while chunk := list(itertools.islice(rows, CHUNK)):
        damaged += [row for row in chunk if row is None]
        planned = [row for row in chunk if row and row["key"] in store.index]
        records = store.records(row["key"] for row in planned)
        pairs = [
            Pair(row, record, store.index[row["key"]].run)
            for row, record in zip(planned, records, strict=True)
            if record is not None
        ]
        if pairs:
            yield pairs


def _tables(chunk: list[Pair], schema: Any, damaged: list[None]) -> Iterator[Any]:
    """Yield the rows of a chunk; where one trial cannot be read, of all others."""
    try:
        yield table_of(chunk, schema)
    except UNREADABLE:
        if len(chunk) == 1:
            damaged.append(None)
            return
        for pair in chunk:
            yield from _tables([pair], schema, damaged)
