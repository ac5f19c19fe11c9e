"""The tidy table: one row per checkpoint, made of the plan and the records.

The manifest notes what the table was made of, its size and its checksum, and which
planned trials it lacks.
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
"""What held-out records say; missing where there are none."""
MEASURED = (
    *HELD_OUT,
    "train_risk",
    "gradient_norm",
    "dual_gap",
    "predicted_excess",
    # Of zeros; missing but for true weights and norms that tell it.
    *("support_f1", "active_groups", "change_points"),
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

Row = dict[str, Any]
Trial = tuple[Row, Row]
"""A trial in the table: its line of the plan and its record."""


def schema_of(more: Sequence[str] = ()) -> Any:
    """Return the columns as Arrow spells them, with `more` columns of numbers."""
    import pyarrow as pa

    types = {TEXT: pa.string(), FLAG: pa.bool_(), COUNT: pa.int64()}
    every = COLUMNS | dict.fromkeys(more, NUMBER)
    fields = [(n, types.get(t, pa.float64())) for n, t in every.items()]
    return pa.schema(fields)


def table_of(chunk: Sequence[Trial], schema: Any) -> Any:
    """Return the rows of some trials, with the columns fixed per trial repeated."""
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
"""The columns that tell what is in doubt of a row's solver."""
BY_DATA = frozenset(("", *Uncharged))
"""Uses of the records that are no solver's own; empty where there are none."""


def doubt_of(solver: str, calibration: Any, uncharged: Any) -> str:
    """Return what is in doubt by now of a row's solver, by its `DOUBTED`."""
    uses = [use for use in str(uncharged).split(",") if use not in BY_DATA]
    return doubt_of_sources(solver, not str(calibration).endswith(NOT_RECOUNTED), uses)


def _fixed_columns(line: Row, record: Row) -> Row:
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
    if "content" in algorithm or not is_our_algorithm(algorithm["name"]):
        # A file's is in its spec, an entry point's in the record of what it did.
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
        # Nowhere missing: pandas before 3 writes a column of nothing as one of no type.
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
    """Return the keys of a specification that differ from its yaml, all as JSON.

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
    """Return the table of a results folder, collecting it first if it is stale.

    Parameters
    ----------
    folder : str, Path or sequence of them
        The results folder, or several: their tables one below the other.
    expand : bool
        Whether each key of `params`, `dataset_options` and `objective_options` is a
        column, too. It is named after both, as `"params.clip"`: no other column has a
        dot in its name.

    Returns
    -------
    DataFrame
        One row per checkpoint with the columns of `COLUMNS`; a trial without a
        trajectory has one row. `checked` is as of now, not as of the file. A sweep's
        `panel` is its dataset, its `line` the algorithm and what else varies. A column
        of a key holds numbers if all its values are numbers, else texts as on the
        command line; it is missing where a row has no such key.

    Raises
    ------
    UsageError
        If a folder is not one of results; nothing is written there.
    """
    import pandas as pd

    folders = [folder] if isinstance(folder, str | Path) else folder
    tables = [label_table(recorded_results(Path(one))) for one in folders]
    if not tables:
        raise UsageError("load_results: name at least one results folder")
    table = tables[0]
    if len(tables) > 1:
        table = label_table(pd.concat(tables, ignore_index=True), again=True)
        # A run that stands in two folders is one run.
        once = ["panel", "line", "phase", "trial", "iteration"]
        table = table.drop_duplicates(once, ignore_index=True)
    return _expand_columns(table) if expand else table


def _expand_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the keys of its columns of JSON as columns, too."""
    import pandas as pd

    names = ("params", "dataset_options", "objective_options")
    parts = [parameter_columns(table, name).add_prefix(f"{name}.") for name in names]
    keys = pd.concat(parts, axis=1)
    texts = keys.select_dtypes(exclude="number").map(typed_text, na_action="ignore")
    every = pd.concat([table, keys.drop(columns=[*texts]), texts], axis=1)
    return every[[*table, *keys]]


def recorded_results(folder: Path) -> pd.DataFrame:
    """Return what `load_results` returns, with the labels that the plan has."""
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
    """Return how many planned trials the table of a folder lacks, in words."""
    noted = _note_of_table(folder)
    missing, planned = noted.get("missing"), noted.get("planned")
    if not (isinstance(missing, int) and isinstance(planned, int) and missing > 0):
        return ""
    return (
        f"Incomplete: {missing} of {count_with_noun(planned, 'planned trial')} have no "
        "record; lines and runs are missing that the same command adds."
    )


def _checked_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Tell of each row whether its solver has passed `check` by now."""
    columns = (table[name].tolist() for name in DOUBTED)
    table["doubt"] = [*map(functools.cache(doubt_of), *columns)]
    table["checked"] = table["doubt"].eq("")
    return table


def _read_table(folder: Path) -> pd.DataFrame:
    """Return the table of a folder as a frame, of its columns alone.

    No threads: one that is left over could take a Ctrl-C that the main one holds back,
    or be at work when the process ends.

    Raises
    ------
    ValueError
        If it is not the one that the manifest notes, or has other columns.
    """
    import pyarrow.parquet as pq

    with open_inside(folder / NAME, folder) as file:
        noted = _note_of_table(folder)
        whole = {"size": file.seek(0, 2), "crc": checksum_of(file)}
        if noted and any(noted.get(key) != whole[key] for key in whole):
            raise ValueError("it is not as it was written")
        table = pq.ParquetFile(file, page_checksum_verification=True)
        # Texts of up to 2 GB and of more are alike.
        expected, actual = (
            {field.name: str(field.type).removeprefix("large_") for field in schema}
            for schema in (schema_of(POPULATION), table.schema_arrow)
        )
        if not (actual.items() <= expected.items() and {*COLUMNS} <= actual.keys()):
            raise ValueError("it has columns of other names or types")
        # What else the file says of its columns is nothing to act upon.
        content = table.read(use_threads=False).replace_schema_metadata()
        return _checked_columns(content.to_pandas(use_threads=False))


def _note_of_table(folder: Path) -> Row:
    """Return what the manifest notes of the table, empty if nothing."""
    noted = read_manifest(folder).get(TABLE)
    return noted if isinstance(noted, dict) else {}


def tell_gaps(folder: Path) -> None:
    """Print which planned trials the table of a folder lacks, and why."""
    if lacking_in_words(folder):
        noted = _note_of_table(folder)
        lost = f"{NAME} lacks {count_with_noun(noted['missing'], 'planned trial')}"
        why = f" ({escape_line(str(noted['damage']))})" if noted.get("damage") else ""
        print(
            f"{typed_path(folder)}: {lost}{why}; the same command runs them",
            file=sys.stderr,
        )


def as_it_stands(folder: Path) -> pd.DataFrame:
    """Return what `load_results` does of a table that is not made again, untold.

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
    """Yield the trials of lines of the plan that have a record that can be read."""
    known = [line for line in lines if line["key"] in store]
    records = store.records([line["key"] for line in known])
    for line, record in zip(known, records, strict=True):
        if record is not None:
            yield line, record


def facts_in(folder: Path) -> Iterator[tuple[Row, Row]]:
    """Yield the spec and the facts of every planned trial that went well."""
    for line, record in join_records(Store(folder), planned_lines(folder)):
        if record["status"] == "ok":
            yield line["spec"], record["facts"]


def is_stale(folder: Path) -> bool:
    """Return whether a folder's table is missing, or not made of its records.

    A table without records is the only copy: it is never stale.
    """
    if not (folder / NAME).is_file():
        return True
    if not (folder / RECORDS).is_file() or not (folder / PLAN).is_file():
        return False
    sources = _sources_of_table(folder, size_of(folder / RECORDS))
    return _note_of_table(folder).get("sources") != sources


def is_outdated(folder: Path) -> bool:
    """Return whether a folder's table is stale or lacks planned trials."""
    return is_stale(folder) or bool(_note_of_table(folder).get("missing"))


def collect_table(folder: Path) -> Path:
    """Write the table of a folder, atomically, and return its path.

    Trials are in the order of the plan; those without a record are left out.

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
    """Leave a run's plan in place, and a table that is made of it and all records.

    Runs that end in the same folder wait for each other here, so that the table of
    the last one holds what all of them recorded.
    """
    with translate_os_errors(store.folder), lock_folder(store.folder):
        plan.restore()
        store.refresh()
        if is_outdated(store.folder):
            _write_table(store)


def _write_table(store: Store) -> None:
    """Write the table, and note in the manifest what it holds; under the lock."""
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
    # What others append meanwhile makes the table stale.
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
    # A run that has only begun lacks nothing.
    missing = len(lost) + damaged if store.size > 0 else 0
    noted |= {"missing": missing, "planned": len(planned) + damaged}
    told = "; ".join(filter(None, damage)) if missing else ""
    note_table(folder, {**noted, "damage": told})


def _sources_of_table(folder: Path, size: int) -> str:
    return digest_of_json([size, plan_checksum(folder), list(COLUMNS)])


def _tables_of_chunk(chunk: list[Trial], schema: Any, lost: set[str]) -> Iterator[Any]:
    """Yield the rows of a chunk; where one trial cannot be read, of all others."""
    try:
        yield table_of(chunk, schema)
    except UNREADABLE:
        if len(chunk) == 1:
            lost.add(chunk[0][0]["key"])
            return
        for trial in chunk:
            yield from _tables_of_chunk([trial], schema, lost)
