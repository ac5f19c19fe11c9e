"""The results table: one row per checkpoint, built from the plan and the records.

The manifest notes the sources of the table, its size and checksum, and how many planned
trials it lacks.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.datasets.base import READ, Uncharged
from dp_erm_bench.datasets.spec import FRESH, PUBLIC, usual_fields
from dp_erm_bench.errors import UsageError, escape_line, typed_text
from dp_erm_bench.paths import digest_of_json, open_inside, remove_parts, write_atomic
from dp_erm_bench.plugins.passed import (
    NOT_RECOUNTED,
    doubt_of_sources,
    is_our_algorithm,
)
from dp_erm_bench.registry import OBJECTIVE, POPULATION
from dp_erm_bench.results import columns
from dp_erm_bench.results.columns import COUNT, FLAG, NUMBER, TEXT
from dp_erm_bench.results.files import (
    PLAN,
    RECORDS,
    checksum_of,
    count_with_noun,
    lock_folder,
    size_of,
    translate_os_errors,
    typed_path,
)
from dp_erm_bench.results.runs import TABLE, note_table, read_manifest
from dp_erm_bench.results.settings import label_table, parameter_columns
from dp_erm_bench.results.store import (
    Plan,
    Store,
    plan_checksum,
    planned_lines,
    read_plan,
)

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("experiment", "panel", "line", "phase")
HELD_OUT = (
    *("test_objective", "test_risk", "test_accuracy", "balanced_accuracy", "auc"),
    *("rmse", "r2"),
)
"""Measures on held-out records; missing if there are none."""
MEASURED = (
    *HELD_OUT,
    "train_risk",
    "gradient_norm",
    "dual_gap",
    "predicted_excess",
    # About the zeros of w; missing unless true weights or a norm define them.
    *("support_f1", "active_groups", "change_points"),
)
"""Measures besides the objective; most exist only for some problems or solvers."""

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
"""Stands for the digest of sources that were not recorded and passed no check."""

Row = dict[str, Any]
Trial = tuple[Row, Row]
"""A line of the plan, and the record of its trial."""


def schema_of(more: Sequence[str] = ()) -> Any:
    """Return the Arrow schema of the table, with `more` columns of numbers."""
    import pyarrow as pa

    types = {TEXT: pa.string(), FLAG: pa.bool_(), COUNT: pa.int64()}
    every = COLUMNS | dict.fromkeys(more, NUMBER)
    fields = [(n, types.get(t, pa.float64())) for n, t in every.items()]
    return pa.schema(fields)


def table_of(chunk: Sequence[Trial], schema: Any) -> Any:
    """Return the rows of some trials as an Arrow table, one row per checkpoint."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    fixed = [_fixed_columns(*trial) for trial in chunk]
    doubts = functools.cache(doubt_of)
    for row in fixed:
        row["doubt"] = doubts(*(row[name] for name in DOUBTED))
        row["checked"] = not row["doubt"]
    paths = [record.get("trajectory") or {} for _, record in chunk]
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


DOUBTED = ("solver", "calibration", "uncharged")
"""Columns on which the doubt about a row's solver depends."""
BY_DATA = frozenset(("", *Uncharged))
"""Uses of the data that no solver declares; the empty string means no use."""


def doubt_of(solver: str, calibration: Any, uncharged: Any) -> str:
    """Return the current doubt about a row's solver; empty if there is none.

    Parameters
    ----------
    solver : str
        Digest of a user's solver; empty for a solver of the package.
    calibration : str
        Label of the calibration.
    uncharged : str
        Uncharged uses of the data, separated by commas.
    """
    uses = [use for use in str(uncharged).split(",") if use not in BY_DATA]
    return doubt_of_sources(solver, not str(calibration).endswith(NOT_RECOUNTED), uses)


def _fixed_columns(line: Row, record: Row) -> Row:
    """Return the columns whose value is the same in all rows of a trial."""
    spec, facts = line["spec"], record.get("facts") or {}
    dataset, budget, algorithm = spec["dataset"], spec["budget"], spec["algorithm"]
    # A threshold in a unit that depends on the data was chosen by looking at the data.
    chosen = bool(line["tuned"] or line.get("measured"))
    uncharged = [*facts.get("uncharged", ()), *[Uncharged.TUNING] * chosen]
    read = line.get("read")
    if isinstance(read, list):
        # Declarations may have changed since the trial ran, and no key depends on them.
        others = [use for use in uncharged if use not in READ]
        uncharged = [*(use for use in READ if use in read), *others]
    solver = ""
    if "content" in algorithm or not is_our_algorithm(algorithm["name"]):
        # For a file the digest is in the spec; for an entry point, in the record.
        solver = str(facts.get("solver", algorithm.get("content", UNKNOWN)))
    return {
        **{name: line[name] for name in (*LABELS, "tuned")},
        **{name: facts.get(name) for name in FACTS},
        **{name: facts.get(name, spec[name]["name"]) for name in OBJECTIVE},
        "trial": line["key"],
        "dataset": dataset["name"],
        "dataset_options": changed_options(SORTED(dataset)),
        "content": line.get("content", ""),
        "standardise": bool(dataset.get("standardise", False)),
        "dataset_seed": dataset.get("seed"),
        "objective_options": _options_of_parts(
            SORTED({part: spec[part] for part in OBJECTIVE})
        ),
        "strength": _as_number(facts.get("strength", spec["penalty"].get("strength"))),
        "algorithm": algorithm["name"],
        "params": SORTED(facts.get("params", algorithm["params"])),
        "references": SORTED(facts.get("references", {})),
        "clipped": _as_number(line.get("clipped")),
        "at_bound": SORTED(line["at_bound"]) if line.get("at_bound") else "",
        "by_default": line.get("by_default", ""),
        "rule": line.get("rule", ""),
        "solver": solver,
        # Never missing, because pandas before 3 writes an all-missing column untyped.
        "exempt": facts.get("exempt", ""),
        "epsilon": float(budget["epsilon"]),
        "delta": _as_number(facts.get("delta", budget["delta"])),
        "adjacency": budget["adjacency"],
        "calibration": facts.get("calibration", spec["calibration"]),
        "uncharged": ",".join(uncharged),
        "seed": spec["seed"],
        "status": record["status"],
        "message": record.get("message") or facts.get("optimum_reason") or "",
        "run": record.get("run", ""),
    }


@functools.lru_cache(1000)
def changed_options(dataset: str) -> str:
    """Return the keys of a dataset's specification that differ from its yaml, as JSON.

    Whether the data are public is left out, since it does not change the problem.
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
"""Largest number of characters of an option that is written out."""


@functools.lru_cache(1000)
def _options_of_parts(parts: str) -> str:
    """Return the parameters of loss, penalty and constraint as JSON; cut long ones."""
    found = {}
    for part, fields in json.loads(parts).items():
        for key, value in fields.items():
            if key not in ("name", "strength", "file"):
                text = SORTED(value)
                short = f"{text[:20]}... {sha256(text.encode()).hexdigest()[:8]}"
                short = value[:8] if key == "content" else short
                found[f"{part}.{key}"] = value if len(text) <= BRIEF else short
    return SORTED(found)


def _as_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


NAME = "results.parquet"
CHUNK = 2000

UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError),
    *(NotImplementedError, RecursionError),
)


def load_results(
    folder: str | Path | Sequence[str | Path], expand: bool = False
) -> pd.DataFrame:
    """Return the table of a results folder, rebuilding it first if it is outdated.

    Parameters
    ----------
    folder : str, Path or sequence of them
        The results folder. The tables of several folders are concatenated.
    expand : bool
        Whether each key of `params`, `dataset_options` and `objective_options` also
        becomes a column. Its name consists of both, as in `"params.clip"`. The names of
        other columns do not have a dot.

    Returns
    -------
    DataFrame
        One row per checkpoint, with the columns of `COLUMNS`; a trial without a
        trajectory has one row. `checked` shows the current state, not the state in the
        file. The `panel` of a sweep is its dataset, and its `line` is the algorithm,
        each followed by other settings that vary. The column of a key contains numbers
        if all its values are numbers, else strings as on the command line. Values are
        missing in rows without that key.

    Raises
    ------
    UsageError
        If a folder is not a results folder. Nothing is written into it.
    """
    import pandas as pd

    folders = [folder] if isinstance(folder, str | Path) else folder
    tables = [label_table(recorded_results(Path(one))) for one in folders]
    if not tables:
        raise UsageError("load_results: name at least one results folder")
    table = tables[0]
    if len(tables) > 1:
        table = label_table(pd.concat(tables, ignore_index=True), again=True)
        # A run that is in two folders counts once.
        once = ["panel", "line", "phase", "trial", "iteration"]
        table = table.drop_duplicates(once, ignore_index=True)
    return _expand_columns(table) if expand else table


def _expand_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with additional columns for the keys of its columns of JSON."""
    import pandas as pd

    names = ("params", "dataset_options", "objective_options")
    parts = [parameter_columns(table, name).add_prefix(f"{name}.") for name in names]
    keys = pd.concat(parts, axis=1)
    texts = keys.select_dtypes(exclude="number").map(typed_text, na_action="ignore")
    every = pd.concat([table, keys.drop(columns=[*texts]), texts], axis=1)
    return every[[*table, *keys]]


def recorded_results(folder: Path) -> pd.DataFrame:
    """Return the table of one folder like `load_results`, with labels of the plan."""
    if not any((folder / name).is_file() for name in (NAME, PLAN)):
        raise UsageError(f"{folder}: no results folder, it has no {PLAN}")
    stale = is_stale(folder)
    if not stale:
        with contextlib.suppress(OSError, *UNREADABLE):
            found = _read_table(folder)
            tell_gaps(folder)
            return found
        if not (folder / RECORDS).is_file():
            raise UsageError(f"{folder / NAME}: is damaged, and there is no {RECORDS}")
    collect_table(folder)
    with translate_os_errors(folder):
        return _read_table(folder)


def lacking_in_words(folder: Path) -> str:
    """Return a sentence that counts the planned trials missing from a folder's table.

    The sentence is empty if no trial is missing, by the notes in the manifest.
    """
    noted = _note_of_table(folder)
    missing, planned = noted.get("missing"), noted.get("planned")
    if not (isinstance(missing, int) and isinstance(planned, int) and missing > 0):
        return ""
    return (
        f"Incomplete: {missing} of {count_with_noun(planned, 'planned trial')} have "
        "no record; the same command runs them."
    )


def _checked_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which `doubt` and `checked` show the current state."""
    columns = (table[name].tolist() for name in DOUBTED)
    table["doubt"] = [*map(functools.cache(doubt_of), *columns)]
    table["checked"] = table["doubt"].eq("")
    return table


def _read_table(folder: Path) -> pd.DataFrame:
    """Read the table of a folder as a DataFrame, and check it.

    The file's own metadata are ignored. The file is read without threads. A leftover
    thread could receive a Ctrl-C that the main thread holds back, or still be running
    when the process ends.

    Raises
    ------
    ValueError
        If the file differs from the notes in the manifest, or has other columns.
    """
    import pyarrow.parquet as pq

    with open_inside(folder / NAME, folder) as file:
        noted = _note_of_table(folder)
        whole = {"size": file.seek(0, 2), "crc": checksum_of(file)}
        if noted and any(noted.get(key) != whole[key] for key in whole):
            raise ValueError("it is not as it was written")
        table = pq.ParquetFile(file, page_checksum_verification=True)
        # Arrow has two types of text, for up to 2 GB and for more; both are fine.
        expected, actual = (
            {field.name: str(field.type).removeprefix("large_") for field in schema}
            for schema in (schema_of(POPULATION), table.schema_arrow)
        )
        if not (actual.items() <= expected.items() and {*COLUMNS} <= actual.keys()):
            raise ValueError("it has columns of other names or types")
        # Metadata in the file are not trusted.
        content = table.read(use_threads=False).replace_schema_metadata()
        return _checked_columns(content.to_pandas(use_threads=False))


def _note_of_table(folder: Path) -> Row:
    """Return the manifest's notes on the table; empty if there are none."""
    noted = read_manifest(folder).get(TABLE)
    return noted if isinstance(noted, dict) else {}


def tell_gaps(folder: Path) -> None:
    """Print the number of planned trials that a folder's table lacks, with reasons."""
    if lacking_in_words(folder):
        noted = _note_of_table(folder)
        lost = f"{NAME} lacks {count_with_noun(noted['missing'], 'planned trial')}"
        why = f" ({escape_line(str(noted['damage']))})" if noted.get("damage") else ""
        print(
            f"{typed_path(folder)}: {lost}{why}; the same command runs them",
            file=sys.stderr,
        )


def as_it_stands(folder: Path) -> pd.DataFrame:
    """Return the existing table of a folder like `load_results`, without rebuilding it.

    Nothing is printed about missing trials.

    Raises
    ------
    UsageError
        If there is no table, or it cannot be read.
    """
    try:
        return label_table(_read_table(folder))
    except (OSError, *UNREADABLE) as error:
        why = getattr(error, "strerror", None) or f"is damaged ({type(error).__name__})"
        raise UsageError(f"{folder / NAME}: {why}") from None


def join_records(store: Store, lines: Iterable[Row]) -> Iterator[Trial]:
    """Yield each line of the plan with its record, if the record can be read."""
    known = [line for line in lines if line["key"] in store]
    records = store.records([line["key"] for line in known])
    for line, record in zip(known, records, strict=True):
        if record is not None:
            yield line, record


def facts_in(folder: Path) -> Iterator[tuple[Row, Row]]:
    """Yield the spec and the facts of every planned trial with the status `ok`."""
    for line, record in join_records(Store(folder), planned_lines(folder)):
        if record["status"] == "ok":
            yield line["spec"], record["facts"]


def is_stale(folder: Path) -> bool:
    """Return whether a folder's table is missing, or older than its plan or records.

    A table without records is the only copy, so it is never stale.
    """
    if not (folder / NAME).is_file():
        return True
    if not (folder / RECORDS).is_file() or not (folder / PLAN).is_file():
        return False
    sources = _sources_of_table(folder, size_of(folder / RECORDS))
    return _note_of_table(folder).get("sources") != sources


def is_outdated(folder: Path) -> bool:
    """Return whether a folder's table is missing, old, or lacks planned trials."""
    return is_stale(folder) or bool(_note_of_table(folder).get("missing"))


def collect_table(folder: Path) -> Path:
    """Build the table of a folder from plan and records, and return its path.

    Trials are in the order of the plan; those without a record are left out. The file
    is replaced atomically.

    Raises
    ------
    UsageError
        If the folder cannot be written to.
    """
    store = Store(folder)
    with translate_os_errors(folder), lock_folder(folder):
        remove_parts(folder)
        store.refresh()
        _write_table(store)
    tell_gaps(folder)
    return folder / NAME


def bring_up_to_date(store: Store, plan: Plan) -> None:
    """Publish a run's plan, and rebuild the table from it and all records if needed.

    Runs that end in the same folder wait for each other here. The table of the last run
    thus contains the records of all runs.
    """
    with translate_os_errors(store.folder), lock_folder(store.folder):
        plan.restore()
        store.refresh()
        if is_outdated(store.folder):
            _write_table(store)


def _write_table(store: Store) -> None:
    """Write the table and its notes; the caller must hold the folder's lock."""
    import pyarrow.parquet as pq

    folder = store.folder
    if store.refused:
        raise UsageError(
            f"{typed_path(folder)}: {store.damage()}; {NAME} is left as it is"
        )
    with open_inside(folder / PLAN, folder) as plan:
        fresh = any(f'"{FRESH}"'.encode() in line for line in plan)
    schema = schema_of(POPULATION if fresh else ())
    planned: Counter[str | None] = Counter()
    lost = set[str]()
    # Lines that other processes append from here on make the table stale.
    noted: Row = {"sources": _sources_of_table(folder, store.size)}

    def write(file: Any) -> None:
        lines = read_plan(folder)
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            while chunk := list(itertools.islice(lines, CHUNK)):
                planned.update(None if one is None else one["key"] for one in chunk)
                whole = [line for line in chunk if line is not None]
                trials = list(join_records(store, whole))
                read = {line["key"] for line, _ in trials}
                lost.update(line["key"] for line in whole if line["key"] not in read)
                for table in _tables_of_chunk(trials, schema, lost):
                    writer.write_table(table)
        noted.update(size=file.seek(0, 2), crc=checksum_of(file))

    write_atomic(folder / NAME, write)
    damaged = planned.pop(None, 0)
    damage = [store.damage()]
    if damaged:
        damage.append(f"{count_with_noun(damaged, 'damaged line')} of {PLAN}")
    # A run without records has only begun, and does not count as incomplete.
    missing = len(lost) + damaged if store.size > 0 else 0
    noted |= {"missing": missing, "planned": len(planned) + damaged}
    told = "; ".join(filter(None, damage)) if missing else ""
    note_table(folder, {**noted, "damage": told})


def _sources_of_table(folder: Path, size: int) -> str:
    return digest_of_json([size, plan_checksum(folder), list(COLUMNS)])


def _tables_of_chunk(chunk: list[Trial], schema: Any, lost: set[str]) -> Iterator[Any]:
    """Yield the rows of a chunk of trials, without trials that cannot be read."""
    try:
        yield table_of(chunk, schema)
    except UNREADABLE:
        if len(chunk) == 1:
            lost.add(chunk[0][0]["key"])
            return
        for trial in chunk:
            yield from _tables_of_chunk([trial], schema, lost)
