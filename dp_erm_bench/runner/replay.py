"""Recorded trials, run again with the trials that they ran with.

`replay` is for one row, and refuses whatever is not as it was. `Received` is for a
folder or an unpacked bundle of anyone's, on any machine: of each trial it says whether
its numbers came out again. Where code, versions and kind of processor are those of the
run they must be equal to the bit. Elsewhere the last digits differ; a noisy selection
may then choose another index, after which two runs have nothing in common, and nobody
can tell that from an edit.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from dp_erm_bench import registry
from dp_erm_bench.errors import DataUnavailable, UsageError, number, printable
from dp_erm_bench.experiment.lines import Trial, line_of
from dp_erm_bench.fitted import FitResult, one_thread, result_of
from dp_erm_bench.paths import listed
from dp_erm_bench.plugins.names import content, is_file, label, shipped
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.nested import with_inside
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect
from dp_erm_bench.results.bundle import Source, sources_in
from dp_erm_bench.results.files import PLAN, line, parsed, plural, typed
from dp_erm_bench.results.runs import leads_out, read_run, typed_paths
from dp_erm_bench.results.store import NAMED, Store, planned_lines
from dp_erm_bench.run import Run
from dp_erm_bench.runner.environment import CPU, kind
from dp_erm_bench.runner.execute import facts, solved_together, trajectory

if TYPE_CHECKING:
    import pandas as pd

    Row = pd.DataFrame | pd.Series[Any] | Mapping[str, Any] | str

KEY = re.compile(r"[0-9a-f]{64}")
TIMED = "seconds"
FACTS = ("params", "epsilon_certified", "z", "batch_size", "optimum")
"""What a record says of a trial that must come out again, beside the trajectory."""
DAMAGED = (KeyError, TypeError, AttributeError, ValueError)
UNREADABLE = f"a line of its batch in {PLAN} is damaged"
FILES = (".csv", ".npy")
"""How files end that parts of an objective may be read from."""

Spec = Mapping[str, Any]
Pins = Mapping[str, str]
"""The choices of a batch that may be files, by group: a name, or the pin of a file."""


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
        The folder in which a file of records is looked for first. Of a folder that you
        have not made no path is opened that is absolute or holds `..`: its file is
        looked for here and in the working folder.

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
        if not (folder / PLAN).is_file():
            raise UsageError(f"{folder}: no results folder, it has no {PLAN}")
        record, mates = _recorded(key, Store(folder))
        specs, place = _specs(mates, _planned(folder, mates)), mates.index(key)
        pin = _pinned(specs[0], algorithm, name)
        pins = {registry.ALGORITHM: pin}
        place_of = Received(folder, data=None if data is None else Path(data)).place_of
        trials, problems = zip(
            *(_remade(spec, pins, place_of(spec)) for spec in specs), strict=True
        )
        if [trial.key for trial in trials] != mates:
            raise _Refused(_changed(trials[place], key, record))
        with one_thread():
            solved = solved_together(trials, problems[0])
            for column, _, _ in _apart(record, solved, place):
                raise _Refused(
                    f"run again, its {column} is another one than recorded; the record "
                    "was edited, or this machine computes other bits"
                )
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


def _recorded(key: str, store: Store) -> tuple[Spec, list[str]]:
    """Return the record of a trial, and the keys of its batch in order."""
    status, record = store.status(key), store.record(key)
    if status is None or record is None:
        raise _Refused("has no record, or its record is damaged")
    if status not in ("ok", "diverged"):
        raise _Refused(f"ended as {status}, without a trajectory")
    batch = record.get("batch")
    if not isinstance(batch, str):
        raise _Refused(
            "its record does not name the trials that ran with it: tasks that are no "
            "fits name none"
        )
    mates = store.mates(key, batch)
    if not mates:
        raise _Refused(
            "which trials ran with it is not known, the mark of its batch is missing "
            "or damaged"
        )
    return record, mates


def _planned(folder: Path, keys: Iterable[str]) -> dict[str, Spec]:
    """Return the specs of some trials by key, as far as the plan has them."""
    return {line["key"]: line["spec"] for line in planned_lines(folder, set(keys))}


def _specs(mates: Sequence[str], planned: Mapping[str, Spec]) -> list[Spec]:
    """Return the specs of a batch, in its order."""
    if missing := len(set(mates) - planned.keys()):
        raise _Refused(
            f"ran in a batch of {plural(len(mates), 'trial')}, of which {PLAN} lacks "
            f"{missing}, or has only damaged lines"
        )
    return [planned[key] for key in mates]


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


def _remade(spec: Spec, pins: Pins, data: str | None = None) -> tuple[Trial, Problem]:
    """Return a trial of a batch, rebuilt from its spec, and its problem.

    The spec may name no file of code but those that are pinned, and no file that parts
    of its objective are in. `data` is where the file of its dataset is, if not there.
    """
    try:
        parts = {group: dict(spec[group]) for group in registry.FROM_FILES}
        if "file" in parts["loss"] and "loss" not in pins:
            raise UsageError(
                "a trial of a loss's file is not replayed: run it with `fit`"
            )
        for group, part in parts.items():
            pin = pins.get(group, str(part["name"]))
            if (part["name"], part.get("content", "")) != (label(pin), content(pin)):
                raise ValueError(part)
            parts[group] = {**part, **shipped(pin)}
            if "file" in part and not is_file(pin):
                raise ValueError(part)
        for name in registry.OBJECTIVE:
            own = (v for k, v in spec[name].items() if k not in ("name", "file"))
            if any(isinstance(v, str) and v.endswith(FILES) for v in own):
                raise ValueError(name)
        placed = {} if data is None else {"path": data}
        dataset = {**spec["dataset"], **placed}
        line = line_of({**spec, **parts, "dataset": dataset})
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


def _apart(
    record: Spec, solved: Run, place: int
) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield the columns and facts that are not as recorded: what is, what came out."""
    path = {k: v for k, v in trajectory(solved.rows, place).items() if k != TIMED}
    sums = {k: [v] for k, v in facts(solved, place).items() if k in FACTS}
    # As a record spells them: what is no number is null.
    again = parsed(line({"trajectory": path, "facts": sums})) or {}
    for part, columns in again.items():
        there = record.get(part)
        for column, values in columns.items():
            recorded = there.get(column) if isinstance(there, Mapping) else None
            if part == "facts":
                recorded = [recorded]
            if json.dumps(recorded) != json.dumps(values):
                yield column, recorded if isinstance(recorded, list) else [], values
    there = record.get("trajectory")
    for column in there if isinstance(there, Mapping) else ():
        if column not in path and column != TIMED:
            yield str(column), [], [None]


# Rows of a folder of anyone's --------------------------------------------------------

SAME, DIFFERS, UNDECIDED, NOT = "same", "differs", "undecided", "not replayed"
DATA, TRUST = "data", "trust"
WITHIN = 1e-9
"""Largest relative difference of what is the same on another kind of machine."""
FLOOR = 1e-6
"""A number is compared with this share of the largest of its column at least."""


@dataclass(frozen=True)
class Repeated:
    """What came of running a trial again.

    Attributes
    ----------
    key : str
    verdict : str
        `SAME`, `DIFFERS`, `UNDECIDED` or `NOT`.
    why : str
        Why it is not the same; of `NOT` it begins with `DATA` or `TRUST` where that is
        why.
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


@dataclass(frozen=True)
class Received:
    """A results folder whose rows are run again.

    Parameters
    ----------
    folder : Path
        It may be anyone's.
    trusted : mapping of Source to str
        The pins of those files of code that may be run.
    data : Path or None
        Where files of records are looked for first.
    foreign : bool
        Whether the paths in it mean nothing here.
    """

    folder: Path
    trusted: Mapping[Source, str] = field(default_factory=dict)
    data: Path | None = None
    foreign: bool = False

    def replayed(self, keys: Sequence[str]) -> Iterator[Repeated]:
        """Yield what comes of each trial; batches without others' code run first."""
        store = Store(self.folder)
        waiting: dict[tuple[str, ...], dict[str, Spec]] = {}
        for key in keys:
            try:
                record, mates = _recorded(key, store)
            except _Refused as why:
                gone = key not in store
                yield Repeated(key, DIFFERS if gone else NOT, str(why))
                continue
            waiting.setdefault(tuple(mates), {})[key] = record
        planned = _planned(self.folder, itertools.chain(*waiting))
        own = {mates: bool(self._sources(mates, planned)) for mates in waiting}
        for batch in sorted(waiting, key=own.__getitem__):
            yield from self._batch(batch, planned, waiting[batch], store)

    def _sources(
        self, mates: Sequence[str], planned: Mapping[str, Spec]
    ) -> list[Source]:
        with contextlib.suppress(*DAMAGED):
            return sources_in(planned[mates[0]])
        return []

    def _batch(
        self,
        mates: Sequence[str],
        planned: Mapping[str, Spec],
        records: Mapping[str, Spec],
        store: Store,
    ) -> Iterator[Repeated]:
        """Yield what comes of some trials of a batch."""
        try:
            solved, trials = self._solved(mates, planned, records)
        except _Ended as ended:
            yield from (Repeated(key, ended.verdict, str(ended)) for key in records)
            return
        for key, record in records.items():
            place = mates.index(key)
            code = trials[place].key != key
            where = _elsewhere(self.folder, str(record.get("run")), record, code)
            yield judged(key, record, solved, place, where)

    def _solved(
        self,
        mates: Sequence[str],
        planned: Mapping[str, Spec],
        records: Mapping[str, Spec],
    ) -> tuple[Run, Sequence[Trial]]:
        """Return a batch that was run again, and its trials.

        Raises
        ------
        _Ended
            If it is not as it was, or does not end as it did.
        """
        named = self._trusted(mates, planned)
        try:
            specs = _specs(mates, planned)
            remade = [_remade(spec, named, self.place_of(spec)) for spec in specs]
        except (_Refused, UsageError) as why:
            # A file of records that is not there, or is of no such format.
            lost = "dataset" in str(why).partition(":")[0]
            lost = lost or isinstance(why, DataUnavailable)
            raise _Ended(NOT, f"{DATA}: {why}" if lost else str(why)) from None
        except Exception as error:  # of a spec that is anyone's
            raise _Ended(NOT, printable(f"{type(error).__name__}: {error}")) from None
        trials, problems = zip(*remade, strict=True)
        self._check(mates, trials, problems[0], records)
        try:
            with one_thread(), contextlib.redirect_stdout(io.StringIO()):
                return solved_together(trials, problems[0]), trials
        except MemoryError:
            raise _Ended(NOT, "there is not enough memory") from None
        except (Exception, SystemExit) as error:
            told = printable(f"{type(error).__name__}: {error}", 500)
            raise _Ended(DIFFERS, f"run again, it raises {told}") from None

    def _trusted(self, mates: Sequence[str], planned: Mapping[str, Spec]) -> Pins:
        pins = {}
        for source in self._sources(mates, planned):
            if source not in self.trusted:
                raise _Ended(NOT, f"{TRUST}: it needs {source.name}.py")
            pins[source.group] = self.trusted[source]
        return pins

    def place_of(self, spec: Spec) -> str | None:
        """Return where the file of a spec's records is, None if it has none.

        A path that leads out of the working folder is opened only if this user has
        typed it for a run; of any other its name alone is looked for.
        """
        dataset = spec.get("dataset")
        path = dataset.get("path") if isinstance(dataset, dict) else None
        if not isinstance(path, str):
            return None
        name = PurePath(path).name
        if self.data is not None and (self.data / name).is_file():
            return str(self.data / name)
        unknown = leads_out(path) and json.dumps(path) not in typed_paths()
        if self.foreign or unknown:
            return name
        return path if os.path.isfile(os.path.expanduser(path)) else name

    def _check(
        self,
        mates: Sequence[str],
        trials: Sequence[Trial],
        problem: Any,
        records: Mapping[str, Spec],
    ) -> None:
        """Refuse trials that are no longer those that were run."""
        for key, record in records.items():
            trial = trials[mates.index(key)]
            if trial.identity[:NAMED] == record.get("identity"):
                continue
            data = getattr(problem, "dataset", None)
            held = None if data is None else data.content_hash
            known = {str(one.get("content")) for one in _data_of(self.folder)}
            if held in known:
                raise _Ended(DIFFERS, f"its line in {PLAN} was edited")
            spec = trial.spec["dataset"]
            file = PurePath(str(spec.get("path") or "")).name
            name = printable(f"{spec.get('name')} {file}".strip(), 100)
            told = "" if known else f", unless its line in {PLAN} was edited"
            raise _Ended(
                NOT, f"{DATA}: what {name} holds here is not what it held{told}"
            )
        if any(t.key == k for t, k in zip(trials, mates, strict=True)):
            if [trial.key for trial in trials] != list(mates):
                raise _Ended(DIFFERS, f"{PLAN} was edited, in a trial that ran with it")


class _Ended(Exception):
    """Why trials are not run again, or do not end as they did."""

    def __init__(self, verdict: str, why: str) -> None:
        super().__init__(why)
        self.verdict = verdict


def _data_of(folder: Path) -> list[Mapping[str, Any]]:
    """Return what the manifests of a folder say of its data."""
    told = (manifest.get("data") for manifest in _manifests(folder))
    every = (one for some in told if isinstance(some, list) for one in some)
    return [one for one in every if isinstance(one, Mapping)]


def _manifests(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the manifests of a folder's runs."""
    return (read_run(folder, one.stem) for one in listed(folder / "runs", ".json"))


def _elsewhere(folder: Path, run: str, record: Spec, code: bool) -> str:
    """Return in what this machine, or the code, is not that of a record."""
    if code:
        return "the code, or a version of numpy, scipy or numba, is another one"
    there = read_run(folder, run).get("computed_with")
    if not isinstance(there, Mapping):
        return "what it was computed with was not recorded"
    told = record.get("facts")
    cpu = told.get("cpu") if isinstance(told, Mapping) else None
    there = {**there, CPU: cpu or there.get(CPU)}
    here = kind()
    apart = [
        f"{name} {printable(str(there.get(name)), 60)} there, {here.get(name)} here"
        for name in sorted({*here, *map(str, there)})
        if there.get(name) != here.get(name)
    ]
    return "; ".join(apart)


def judged(key: str, record: Spec, solved: Run, place: int, elsewhere: str) -> Repeated:
    """Return what came of a trial that was run again."""
    apart = [*_apart(record, solved, place)]
    found = [(distance(*pair), column) for column, *pair in apart]
    largest, column = max(found, default=(0.0, ""))
    if not apart or (elsewhere and largest < WITHIN):
        return Repeated(key, SAME, "", largest, elsewhere)
    why = f"its {column} is another one than recorded"
    if elsewhere and any(
        release.selects or isinstance(release, RepeatAndSelect)
        for release in with_inside(solved.releases, 1.0)
    ):
        why += ": a noisy selection may go another way on another machine"
        return Repeated(key, UNDECIDED, why, largest, elsewhere)
    return Repeated(key, DIFFERS, why, largest, elsewhere)


def distance(recorded: Sequence[Any], again: Sequence[Any]) -> float:
    """Return the largest relative difference of two columns, infinite if unlike.

    Relative to the larger of two numbers, or to `FLOOR` of the largest in the column.
    """
    if len(recorded) != len(again):
        return math.inf
    floor = FLOOR * max((abs(x) for x in map(number, again) if x == x), default=0.0)
    largest = 0.0
    for one, other in zip(recorded, again, strict=True):
        a, b = number(one), number(other)
        if math.isnan(a) or math.isnan(b):
            largest = largest if one == other else math.inf
        elif a != b:
            largest = max(largest, abs(a - b) / max(abs(a), abs(b), floor))
    return largest
