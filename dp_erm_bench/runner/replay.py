"""Run recorded trials again, together with the other trials of their batches.

`replay` is for one row, and raises an error if a number has changed. `replay_rows` is
for a results folder from any author and any machine; it yields a verdict for each
trial. If code, versions and kind of processor are those of the run, the numbers must be
equal bit for bit. Otherwise the last digits differ. A noisy selection may then choose
another index, after which two runs have nothing in common.
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
"""Facts of a record that must be equal when a trial is run again.

The trajectory must be equal, too.
"""
DAMAGED = (KeyError, TypeError, AttributeError, ValueError)
UNREADABLE = f"a line of its batch in {PLAN} is damaged"

SAME, DIFFERS, NOT = "same", "differs", "not replayed"
WITHIN = 1e-9
"""Largest relative difference of numbers that count as equal on another machine."""
FLOOR = 1e-6
"""Least denominator of relative differences.

The denominator is a share of the largest number in a column.
"""

Spec = Mapping[str, Any]


class NotReplayed(Exception):
    """A trial cannot be run again; the message says why."""


def replay(
    row: Row,
    folder: str | Path,
    *,
    algorithm: str | None = None,
    data: str | Path | None = None,
) -> FitResult:
    """Run the batch of a recorded trial again and return the trial's result.

    The same trials run in the same order on one thread. The trajectory, except for
    seconds, must equal the recorded one bit for bit; a difference is an error. No code
    from the folder is executed. Datasets and algorithms are those that this
    installation has under the recorded names. The file of a user's solver must be given
    as `algorithm`.

    Parameters
    ----------
    row : DataFrame, Series, mapping or str
        Rows of one trial of `load_results`, or its key (column `trial`).
    folder : str or Path
        The results folder.
    algorithm : str, optional
        The path of the solver's file, if the trial is one of a user's solver; the
        content of the file must be the same as in the run.
    data : str or Path, optional
        The folder in which a file of records is looked for first. If a path in the
        plan is absolute or contains `..`, it is not opened. A file of the same name is
        then looked for in this folder and in the working folder.

    Returns
    -------
    FitResult
        The result that `fit` would have returned for the trial in its batch.

    Raises
    ------
    UsageError
        If the trial has no record with a trajectory; if a record, or a line of the plan
        for its batch, is missing or damaged; if the code, the data or the solver's file
        has changed since; or if the numbers differ.
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
    """Return the key of the one trial to which a row, or some rows, belong."""
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
    """Return the pin of the batch's algorithm: its name, or the user's file of it.

    A folder may come from anybody. So a file is read only from the path that the user
    gives, and executed only if it has the content recorded in the plan.
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

    An error is raised if the specs name a file of code other than the one with the
    digest of the pin, or a file that contains a part of the objective.
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
    """Return the path of the file of records that a plan names.

    A file of this name is looked for in the given folder, then in the working folder.
    Without a given folder, a path inside the working folder is opened as it is.
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
    """Return the reason why the rebuilt trials of a batch differ from the old ones."""
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
    """Yield each column or fact that differs, with its recorded and new values."""
    sums = {k: v for k, v in facts_of_trial(solved, place).items() if k in FACTS}
    made = {"trajectory": trajectory_rows(solved.rows, place), "facts": sums}
    # As in a record, where nan and infinity are null.
    for part, again in (parse_object(compact_json(made)) or {}).items():
        there = record.get(part)
        there = there if isinstance(there, Mapping) else {}
        names = [*again, *there] if part == "trajectory" else again
        for name in dict.fromkeys(names):
            values = there.get(name), again.get(name)
            if name != "seconds" and json.dumps(values[0]) != json.dumps(values[1]):
                one, other = (v if isinstance(v, list) else [v] for v in values)
                yield printable_text(name, 60), one, other


# Rows of a folder from any author ----------------------------------------------------


class Replayed(NamedTuple):
    """The result of running a trial again.

    Attributes
    ----------
    key : str
        Key of the trial.
    verdict : str
        `SAME`, `DIFFERS` or `NOT`.
    why : str
        The reason why the result is not the same; empty if it is the same.
    difference : float
        The largest relative difference of the trial's numbers; nan if it was not run.
    elsewhere : str
        A description of how the machine or the code differs from that of the run; empty
        if the numbers must be equal to the bit.
    """

    key: str
    verdict: str
    why: str = ""
    difference: float = math.nan
    elsewhere: str = ""


def replay_rows(
    folder: Path, keys: Sequence[str], trust: bool = False, data: Path | None = None
) -> Iterator[Replayed]:
    """Yield the results of running recorded trials again, batch by batch.

    Parameters
    ----------
    folder : Path
        The results folder; it may come from anybody.
    keys : sequence of str
        Keys of the trials.
    trust : bool
        Whether solvers' files that are kept in the folder may be executed.
    data : Path or None
        The folder in which files of records are looked for first.
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
    """Return the path of the kept file of a trial's solver; None if it has none."""
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
    """Return a description of how machine or code differ from those of a record."""
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
    """Return the verdict on a trial that was run again."""
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
    """Return the largest relative difference of two columns.

    The difference of two numbers is relative to the larger of their absolute values, or
    to `FLOOR` times the largest absolute value in the column `again` if that is more.
    The result is infinite if the lengths differ, or if one of two different entries is
    not a number.
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
