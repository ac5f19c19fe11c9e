"""Run recorded trials again, with the trials that they ran with.

`replay` is for one row, and raises an error if something is not as it was.
`replay_rows` is for a results folder that may be anyone's, on any machine: it returns a
verdict for each trial. Where code, versions and kind of processor are those of the run
the numbers must be equal to the bit. Elsewhere the last digits differ. A noisy
selection may then choose another index, after which two runs have nothing in common.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from dp_erm_bench import registry
from dp_erm_bench.code_identity import isolate_folder
from dp_erm_bench.errors import UsageError, printable_text, real_number
from dp_erm_bench.experiment.lines import Trial, line_of
from dp_erm_bench.fitted import FitResult, one_thread, result_of
from dp_erm_bench.plugins.names import content_digest, entries_of_pin, is_file, label_of
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.results.bundle import kept_file
from dp_erm_bench.results.files import (
    PLAN,
    compact_json,
    count_with_noun,
    parse_object,
    typed_path,
)
from dp_erm_bench.results.runs import read_run
from dp_erm_bench.results.store import NAMED, Store, planned_lines
from dp_erm_bench.run import Run
from dp_erm_bench.runner.environment import CPU, machine_kind
from dp_erm_bench.runner.execute import facts_of_trial, solve_batch, trajectory_rows

if TYPE_CHECKING:
    import pandas as pd

    Row = pd.DataFrame | pd.Series[Any] | Mapping[str, Any] | str

KEY = re.compile(r"[0-9a-f]{64}")
FACTS = ("params", "epsilon_certified", "z", "batch_size", "optimum")
"""What a record says of a trial that must come out again, beside the trajectory."""
DAMAGED = (KeyError, TypeError, AttributeError, ValueError)
UNREADABLE = f"a line of its batch in {PLAN} is damaged"

SAME, DIFFERS, NOT = "same", "differs", "not replayed"
WITHIN = 1e-9
"""Largest relative difference of what is the same on another kind of machine."""
FLOOR = 1e-6
"""A number is compared with this share of the largest of its column at least."""

Spec = Mapping[str, Any]


class NotReplayed(Exception):
    """Why a trial is not run again."""


def replay(
    row: Row,
    folder: str | Path,
    *,
    algorithm: str | None = None,
    data: str | Path | None = None,
) -> FitResult:
    """Run the batch of a recorded trial again and return the trial's result.

    The same trials run in the same order on one thread. The trajectory is equal to
    the recorded one to the bit, seconds excepted; else that is an error. Of what the
    folder names nothing is executed: datasets and algorithms are those that this
    installation has under these names, a solver's file is that of `algorithm`.

    Parameters
    ----------
    row : DataFrame, Series, mapping or str
        Rows of one trial of `load_results`, or its key (column `trial`).
    folder : str or Path
        The results folder.
    algorithm : str, optional
        The path of the solver's file, for a row of one; it must hold what it held.
    data : str or Path, optional
        The folder in which a file of records is looked for first. No path of a plan is
        opened that is absolute or holds `..`: its file is looked for here and in the
        working folder.

    Returns
    -------
    FitResult
        What `fit` would have returned for the trial in its batch.

    Raises
    ------
    UsageError
        If the trial has no record with a trajectory, the record or the line of the
        plan of one of its batch is missing or damaged, the code, the data or the
        solver's file changed since, or the numbers do.
    DataUnavailable
        If the dataset is unavailable.
    Diverged
        If an iterate of the trial was not finite, see `fit`.
    """
    key, folder = _key_of_row(row), Path(folder)
    name = f"trial {key[:12]} of {typed_path(folder)}"
    try:
        if not (folder / PLAN).is_file():
            raise UsageError(f"{folder}: no results folder, it has no {PLAN}")
        record, mates = _recorded_batch(key, Store(folder))
        planned = {x["key"]: x["spec"] for x in planned_lines(folder, {*mates})}
        specs, place = _specs_of_batch(mates, planned), mates.index(key)
        pin = _pin_algorithm(specs[0], algorithm, name)
        trials, problem = _rebuild_trials(specs, pin, data)
        if [trial.key for trial in trials] != mates:
            raise NotReplayed(_reason_changed(trials[place], key, record))
        with one_thread():
            solved = solve_batch(trials, problem)
            for column, _, _ in _differing_values(record, solved, place):
                raise NotReplayed(
                    f"run again, its {column} is another one than recorded; the record "
                    "was edited, or this machine computes other bits"
                )
            return result_of(solved, place, algorithm=pin, reproducible=True)
    except NotReplayed as why:
        raise UsageError(f"{name}: {why}") from None


def _key_of_row(row: Any) -> str:
    """Return the key of the one trial that a row, or some rows, are of."""
    keys = {row} if isinstance(row, str) else set()
    with contextlib.suppress(KeyError, TypeError, IndexError):
        value = row["trial"]
        # A column of several rows of one trial, or a field of one row.
        keys = set(value) if hasattr(value, "unique") else {value}
    if len(keys) != 1 or not KEY.fullmatch(key := str(*keys)):
        raise UsageError(
            "row: must be rows of one trial of load_results, or the key in its "
            "column trial"
        )
    return key


def _recorded_batch(key: str, store: Store) -> tuple[Spec, list[str]]:
    """Return the record of a trial, and the keys of its batch in order."""
    status, record = store.status(key), store.record(key)
    if status is None or record is None:
        raise NotReplayed("has no record, or its record is damaged")
    if status not in ("ok", "diverged"):
        raise NotReplayed(f"ended as {status}, without a trajectory")
    batch = record.get("batch")
    if not isinstance(batch, str):
        raise NotReplayed(
            "its record does not name the trials that ran with it: tasks that are no "
            "fits name none"
        )
    mates = store.keys_of_batch(key, batch)
    if not mates:
        raise NotReplayed(
            "which trials ran with it is not known, the mark of its batch is missing "
            "or damaged"
        )
    return record, mates


def _specs_of_batch(mates: Sequence[str], planned: Mapping[str, Spec]) -> list[Spec]:
    """Return the specs of a batch, in its order."""
    if missing := len(set(mates) - planned.keys()):
        raise NotReplayed(
            f"ran in a batch of {count_with_noun(len(mates), 'trial')}, of which "
            f"{PLAN} lacks "
            f"{missing}, or has only damaged lines"
        )
    return [planned[key] for key in mates]


def _pin_algorithm(spec: Spec, algorithm: str | None, name: str) -> str:
    """Return the name of the batch's algorithm, of a file the pin of the user's own.

    A folder may come from anybody: a file is read where the user says, and executed
    only if it holds what the plan says that it held.
    """
    try:
        called, held = str(spec["algorithm"]["name"]), spec["algorithm"].get("content")
    except DAMAGED:
        raise NotReplayed(UNREADABLE) from None
    if held is None and not is_file(called):
        if algorithm not in (None, called):
            raise UsageError(f"algorithm={algorithm}: {name} is of {called}")
        return registry.pin_choice(called)
    if algorithm is None:
        raise NotReplayed(
            "is of a solver's file, which is executed only if you name it; give "
            f"algorithm=path of {label_of(called)}.py"
        )
    pin = registry.pin_choice(algorithm)
    if not is_file(pin) or (label_of(pin), content_digest(pin)) != (
        label_of(called),
        held,
    ):
        raise UsageError(
            f"algorithm={algorithm}: is not the file that {name} was run from, or was "
            "changed since"
        )
    return pin


def _rebuild_trials(
    specs: Sequence[Spec], pin: str, data: str | Path | None
) -> tuple[list[Trial], Problem]:
    """Return the trials of a batch, rebuilt from their specs, and their problem.

    The specs may name no file of code but that of the pin, and no file that parts of
    their objective are in.
    """
    trials = []
    try:
        for spec in specs:
            algorithm, loss = spec["algorithm"], spec["loss"]
            if "file" in loss or is_file(loss["name"]):
                raise UsageError(
                    "a trial of a loss's file is not replayed: run it with `fit`"
                )
            named = algorithm["name"], algorithm.get("content", "")
            parts = [spec[part].items() for part in registry.OBJECTIVE]
            if named != (label_of(pin), content_digest(pin)) or any(
                isinstance(v, str) and v.endswith((".csv", ".npy"))
                for k, v in itertools.chain(*parts)
                if k not in ("name", "file")
            ):
                raise NotReplayed(UNREADABLE)
            spec = {**spec, "algorithm": {**algorithm, **entries_of_pin(pin)}}
            dataset = dict(spec["dataset"])
            if isinstance(path := dataset.get("path"), str):
                dataset["path"] = _data_file(path, data)
            line = line_of({**spec, "dataset": dataset})
            trials.append(line.setting().trial(spec["seed"], spec["n_checkpoints"]))
            problem = line.problem
    except UsageError:
        raise
    except DAMAGED:
        raise NotReplayed(UNREADABLE) from None
    return trials, problem


def _data_file(path: str, data: str | Path | None) -> str:
    """Return where the file of records is that a plan names.

    Its name is looked for in the folder that is given, then in the working folder.
    Without a folder a path that stays in the working folder is opened as it stands.
    """
    name, file = PurePath(path).name, Path(os.path.expanduser(path))
    inside = not file.is_absolute() and ".." not in file.parts
    places = [str(Path(data) / name)] if data is not None else [path] * inside
    for place in (*places, name):
        if os.path.isfile(place):
            return place
    raise NotReplayed(
        f"{name}: there is no such file here; --data FOLDER says where it is, in "
        "Python data=FOLDER"
    )


def _reason_changed(trial: Trial, key: str, record: Spec) -> str:
    """Return why the trials of a batch are no longer those that were run."""
    if trial.key == key:
        return f"{PLAN} was changed since, in a trial that ran with it"
    if trial.identity[:NAMED] != record.get("identity"):
        return f"the content of its dataset, or its line in {PLAN}, was changed since"
    return (
        "the code was changed since, of the package or of what the solver imports, or "
        "the version of numpy, scipy or numba"
    )


def _differing_values(
    record: Spec, solved: Run, place: int
) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield columns and facts that are not as recorded: recorded and new values."""
    sums = {k: v for k, v in facts_of_trial(solved, place).items() if k in FACTS}
    made = {"trajectory": trajectory_rows(solved.rows, place), "facts": sums}
    # As a record spells them: what is no number is null.
    for part, again in (parse_object(compact_json(made)) or {}).items():
        there = record.get(part)
        there = there if isinstance(there, Mapping) else {}
        names = [*again, *there] if part == "trajectory" else again
        for name in dict.fromkeys(names):
            values = there.get(name), again.get(name)
            if name != "seconds" and json.dumps(values[0]) != json.dumps(values[1]):
                one, other = (v if isinstance(v, list) else [v] for v in values)
                yield printable_text(name, 60), one, other


# Rows of a folder of anyone's --------------------------------------------------------


class Replayed(NamedTuple):
    """What came of running a trial again.

    Attributes
    ----------
    key : str
    verdict : str
        `SAME`, `DIFFERS` or `NOT`.
    why : str
        Why it is not the same.
    difference : float
        The largest relative difference of its numbers, nan if it was not run.
    elsewhere : str
        In what the machine differs from that of the run, or the code; empty where the
        bits must be the same.
    """

    key: str
    verdict: str
    why: str = ""
    difference: float = math.nan
    elsewhere: str = ""


def replay_rows(
    folder: Path, keys: Sequence[str], trust: bool = False, data: Path | None = None
) -> Iterator[Replayed]:
    """Yield what comes of running recorded trials again, batch by batch.

    Parameters
    ----------
    folder : Path
        The results folder; it may be anyone's.
    keys : sequence of str
        The trials.
    trust : bool
        Whether solvers that the folder has kept may be run.
    data : Path or None
        Where files of records are looked for first.
    """
    store = Store(folder)
    batches: dict[tuple[str, ...], dict[str, Spec]] = {}
    for key in keys:
        try:
            record, mates = _recorded_batch(key, store)
            batches.setdefault(tuple(mates), {})[key] = record
        except NotReplayed as why:
            yield Replayed(key, NOT, str(why))
    every = set(itertools.chain(*batches))
    planned = {x["key"]: x["spec"] for x in planned_lines(folder, every)}
    for mates_, records in batches.items():
        try:
            specs = _specs_of_batch(mates_, planned)
            pin = _pin_algorithm(
                specs[0], _trusted_file(folder, specs[0], trust), "its row"
            )
            trials, problem = _rebuild_trials(specs, pin, data)
            for key, record in records.items():
                trial = trials[mates_.index(key)]
                if trial.identity[:NAMED] != record.get("identity"):
                    raise NotReplayed(_reason_changed(trial, "", record))
            with one_thread(), contextlib.redirect_stdout(io.StringIO()):
                solved = solve_batch(trials, problem)
        except (Exception, SystemExit) as error:  # specs and code may be anyone's
            plain = isinstance(error, NotReplayed | UsageError)
            why_ = str(error) if plain else f"{type(error).__name__}: {error}"
            yield from (
                Replayed(key, NOT, printable_text(why_, 500)) for key in records
            )
            continue
        code = tuple(trial.key for trial in trials) != mates_
        for key, record in records.items():
            where = _differing_places(folder, str(record.get("run")), record, code)
            yield _judge_again(key, record, solved, mates_.index(key), where)


def _trusted_file(folder: Path, spec: Spec, trust: bool) -> str | None:
    """Return the path of the kept file of a trial's solver, None if it has none."""
    name = kept_file(spec["algorithm"])
    if not name:
        return None
    if not (folder / name).is_file():
        raise NotReplayed(f"its solver {name} was not kept; ask its author for it")
    if not trust:
        raise NotReplayed(
            f"its solver is somebody's own code; read {name} and the files beside it, "
            "then add --trust to run them"
        )
    path = (folder / name).resolve()
    isolate_folder(path.parent)
    return str(path)


def _differing_places(folder: Path, run: str, record: Spec, code: bool) -> str:
    """Return in what this machine, or the code, is not that of a record."""
    if code:
        return "the code, or a version of numpy, scipy or numba, is another one"
    there = read_run(folder, run).get("computed_with")
    if not isinstance(there, Mapping):
        return "what it was computed with was not recorded"
    told = record.get("facts")
    cpu = told.get("cpu") if isinstance(told, Mapping) else None
    there = {**there, CPU: cpu or there.get(CPU)}
    here = machine_kind()
    apart = [
        printable_text(f"{name} {there.get(name)} there, {here.get(name)} here", 200)
        for name in sorted({*here, *map(str, there)})
        if there.get(name) != here.get(name)
    ]
    return "; ".join(apart)


def _judge_again(
    key: str, record: Spec, solved: Run, place: int, elsewhere: str
) -> Replayed:
    """Return what came of a trial that was run again."""
    found = _differing_values(record, solved, place)
    apart = [(relative_distance(*pair), column) for column, *pair in found]
    largest, column = max(apart, default=(0.0, ""))
    if not apart or (elsewhere and largest < WITHIN):
        return Replayed(key, SAME, "", largest, elsewhere)
    why = f"its {column} is another one than recorded"
    why += f", the largest relative difference is {largest:.2g}"
    if elsewhere:
        why += "; elsewhere a noisy selection may choose another index"
    return Replayed(key, DIFFERS, why, largest, elsewhere)


def relative_distance(recorded: Sequence[Any], again: Sequence[Any]) -> float:
    """Return the largest relative difference of two columns, infinite if unlike.

    Relative to the larger of two numbers, or to `FLOOR` of the largest in the column.
    """
    if len(recorded) != len(again):
        return math.inf
    floor = FLOOR * max(
        (abs(x) for x in map(real_number, again) if x == x), default=0.0
    )
    largest = 0.0
    for one, other in zip(recorded, again, strict=True):
        a, b = real_number(one), real_number(other)
        if math.isnan(a) or math.isnan(b):
            largest = largest if one == other else math.inf
        elif a != b:
            largest = max(largest, abs(a - b) / max(abs(a), abs(b), floor))
    return largest
