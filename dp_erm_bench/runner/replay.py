"""A recorded trial, run again with the trials that it ran with."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.lines import Trial, line_of
from dp_erm_bench.experiment.parameters import forget_problems
from dp_erm_bench.fitted import FitResult, one_thread, result_of
from dp_erm_bench.plugins.names import content, is_file, label, shipped
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.results.files import plural, typed
from dp_erm_bench.results.store import NAMED, Store, mates_of, read_plan
from dp_erm_bench.results.store import PLAN as PLAN
from dp_erm_bench.run import Run
from dp_erm_bench.runner.execute import facts, solved_together, trajectory

if TYPE_CHECKING:
    import pandas as pd

    Row = pd.DataFrame | pd.Series[Any] | Mapping[str, Any] | str

KEY = re.compile(r"[0-9a-f]{64}")
TIMED = "seconds"
FACTS = ("params", "epsilon_certified", "z", "batch_size")
"""What a record says of a trial that must come out again, beside the trajectory."""
DAMAGED = (KeyError, TypeError, AttributeError, ValueError)
UNREADABLE = f"a line of its batch in {PLAN} is damaged"

Spec = Mapping[str, Any]


def replay(row: Row, folder: str | Path, *, algorithm: str | None = None) -> FitResult:
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
    key, folder = _key(row), Path(folder)
    name = f"trial {key[:12]} of {typed(folder)}"
    try:
        record, mates = _recorded(key, folder)
        specs, place = _specs(mates, folder), mates.index(key)
        pin = _pinned(specs[0], algorithm, name)
        forget_problems()
        trials, problems = zip(*map(_remade, specs, itertools.repeat(pin)), strict=True)
        if [trial.key for trial in trials] != mates:
            raise _Refused(_changed(trials[place], key, record))
        with one_thread():
            solved = solved_together(trials, problems[0])
            _check_numbers(record, solved, place)
            return result_of(solved, place, algorithm=pin, reproducible=True)
    except _Refused as why:
        raise UsageError(f"{name}: {why}") from None


class _Refused(Exception):
    """Why the trial that is named is not replayed."""


def _key(row: Any) -> str:
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


def _recorded(key: str, folder: Path) -> tuple[Spec, list[str]]:
    """Return the record of a trial, and the keys of its batch in order."""
    if not (folder / PLAN).is_file():
        raise UsageError(f"{folder}: no results folder, it has no {PLAN}")
    store = Store(folder)
    entry, record = store.index.get(key), store.record(key)
    if entry is None or record is None:
        raise _Refused("has no record, or its record is damaged")
    if entry.status not in ("ok", "diverged"):
        raise _Refused(f"ended as {entry.status}, without a trajectory")
    batch = record.get("batch")
    if not isinstance(batch, str):
        raise _Refused(
            "its record does not name the trials that ran with it; older versions, "
            "and tasks that are no fits, name none"
        )
    mates = mates_of(key, batch, entry.segment, entry.run)
    if not mates:
        raise _Refused(
            "which trials ran with it is not known, the mark of its batch is missing "
            "or damaged"
        )
    return record, mates


def _specs(mates: Sequence[str], folder: Path) -> list[Spec]:
    """Return the specs of a batch, in its order."""
    lines = (line for line in read_plan(folder) if line is not None)
    specs = {line["key"]: line["spec"] for line in lines if line["key"] in mates}
    if missing := len(set(mates) - specs.keys()):
        raise _Refused(
            f"ran in a batch of {plural(len(mates), 'trial')}, of which {PLAN} lacks "
            f"{missing}, or has only damaged lines"
        )
    return [specs[key] for key in mates]


def _pinned(spec: Spec, algorithm: str | None, name: str) -> str:
    """Return the name of the batch's algorithm, of a file the pin of the user's own.

    A folder may come from anybody: a file is read where the user says, and executed
    only if it holds what the plan says that it held.
    """
    try:
        called, held = str(spec["algorithm"]["name"]), spec["algorithm"].get("content")
    except DAMAGED:
        raise _Refused(UNREADABLE) from None
    if held is None and not is_file(called):
        if algorithm not in (None, called):
            raise UsageError(f"algorithm={algorithm}: {name} is of {called}")
        return registry.pinned(called)
    if algorithm is None:
        raise _Refused(
            "is of a solver's file, which is executed only if you name it; give "
            f"algorithm=path of {label(called)}.py"
        )
    pin = registry.pinned(algorithm)
    if not is_file(pin) or (label(pin), content(pin)) != (label(called), held):
        raise UsageError(
            f"algorithm={algorithm}: is not the file that {name} was run from, or was "
            "changed since"
        )
    return pin


def _remade(spec: Spec, pin: str) -> tuple[Trial, Problem]:
    """Return a trial of a batch, rebuilt from its spec, and its problem.

    The spec may name no file of code, and no file that its parts are in.
    """
    try:
        algorithm = spec["algorithm"]
        if (algorithm["name"], algorithm.get("content", "")) != (
            label(pin),
            content(pin),
        ):
            raise ValueError(algorithm)
        if "file" in spec["loss"]:
            raise UsageError(
                "a trial of a loss's file is not replayed: run it with `fit`"
            )
        for part in registry.OBJECTIVE:
            if any(isinstance(v, str) for k, v in spec[part].items() if k != "name"):
                raise ValueError(part)
        own = {"name": label(pin), "params": algorithm["params"], **shipped(pin)}
        line = line_of({**spec, "algorithm": own})
        trial = line.setting().trial(spec["seed"], spec["n_checkpoints"])
        return trial, line.problem
    except UsageError:
        raise
    except DAMAGED:
        raise _Refused(UNREADABLE) from None


def _changed(trial: Trial, key: str, record: Spec) -> str:
    """Return why the trials of a batch are no longer those that were run."""
    if trial.key == key:
        return f"{PLAN} was changed since, in a trial that ran with it"
    if trial.identity[:NAMED] != record.get("identity"):
        return f"the content of its dataset, or its line in {PLAN}, was changed since"
    return (
        "the code was changed since, of the package or of what the solver imports, or "
        "the version of numpy, scipy or numba"
    )


def _check_numbers(record: Spec, solved: Run, place: int) -> None:
    """Refuse a run that came to other numbers than the record says, to the bit."""
    path = {k: v for k, v in trajectory(solved.rows, place).items() if k != TIMED}
    sums = {key: value for key, value in facts(solved, place).items() if key in FACTS}
    for part, again in (("trajectory", path), ("facts", sums)):
        there = record.get(part)
        for column, value in again.items():
            recorded = there.get(column) if isinstance(there, Mapping) else None
            if json.dumps(recorded) != json.dumps(value):
                raise _Refused(
                    f"run again, its {column} is another one than recorded; the record "
                    "was edited, or this machine computes other bits"
                )
