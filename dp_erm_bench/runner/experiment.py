"""Run the blocks of an experiment or of a sweep, and write its manifest and choices.

A block is a plain mapping: `panel` and `line` (labels), `dataset` (a name or a mapping
with `name` and overrides of its yaml), `loss`, `penalty`, `constraint` ("auto", a name,
or a mapping with `name` and parameters), `algorithm` (a name or a mapping with `name`
and parameters), `budget` (`epsilon`, `delta`, `adjacency`), `calibration`, and either
`seed` (a sweep) or `tune`. A list is an axis; seeds are integers or lists of integers.
If the value of a parameter is itself a list, the axis is a list of lists.

Besides its records a run writes a manifest, which says what was requested, with which
software, when, and with what result. It also writes `choices.csv`, which says what each
tuned line chose, and whether a grid was too small.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import importlib
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.datasets.prepare import (
    clipping_sentence,
    revealing_features_sentence,
    wide_bounds_sentence,
)
from dp_erm_bench.errors import DataUnavailable, UsageError, typed_text
from dp_erm_bench.experiment.lines import FitLine, Line
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.experiment.schema import RunnerConfig, are_consecutive, check_setting
from dp_erm_bench.experiment.tune import Choice, Tuner, round_final
from dp_erm_bench.experiment.tuned import PROFILE, tuned_blocks
from dp_erm_bench.paths import file_digest, remove_parts
from dp_erm_bench.plugins.load import path_of_pin
from dp_erm_bench.plugins.names import content_digest, is_file, label_of, named_in
from dp_erm_bench.plugins.passed import unchecked_sentence
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.problem import feature_names
from dp_erm_bench.results import table
from dp_erm_bench.results.bundle import keep_sources
from dp_erm_bench.results.files import (
    PLAN,
    RECORDS,
    check_writable,
    count_with_noun,
    escape_formula,
    lock_folder,
    translate_os_errors,
    typed_path,
    write_text,
)
from dp_erm_bench.results.runs import (
    check_run,
    current_time,
    describe_environment,
    note_ended,
    read_manifest,
    write_run,
)
from dp_erm_bench.results.statistics import estimate_log_ratio
from dp_erm_bench.results.store import (
    FINISHED,
    NAMED,
    error_of,
    plan_checksum,
    read_plan,
)
from dp_erm_bench.results.tuned import CHOICES, tuned_choices
from dp_erm_bench.runner.engines.base import ACTIVE
from dp_erm_bench.runner.environment import machine_kind
from dp_erm_bench.runner.host import Worker
from dp_erm_bench.runner.options import RunOptions, run_options
from dp_erm_bench.runner.plan import print_plan
from dp_erm_bench.runner.session import (
    FIRST,
    Blocks,
    Session,
    print_to_stderr,
    repeat_calls,
)

if TYPE_CHECKING:
    import pandas as pd

LEAST_RANGE = 3
OPEN = {
    "top": "{} {:.3g} is the highest value tried",
    "bottom": "{} {:.3g} is the lowest value tried",
    "limit": "{} {:.3g} is its limit",
    "trials": "the search ran out of trials",
    "untried": "{} was left at {}",
}
"""Sentences that explain why a choice is open, by the words of `Choice.open`.

A choice is open if its grid may be too small.
"""

WORSE = "worse than epsilon="
"""Beginning of a reason; it is followed by the smaller epsilon with less error."""

ELSEWHERE = ("config", "command", "files")
"""Options that the manifest stores elsewhere, not in its section of options."""

SHOWN = 3
"""Largest number of open choices that the warning of a run names."""
COLUMNS = (
    *("experiment", "panel", "line", "dataset", "standardise", "algorithm", "params"),
    *("epsilon", "delta", "adjacency", "calibration", "quantity", "chosen", "mean"),
    *("scatter", "lead_low", "lead_high", "seeds", "settings", "trials", "open"),
    *("starts", "searched", "default", "dataset_seed", "trial"),
)
"""Columns of the table of choices, see `Choice`."""


@contextlib.contextmanager
def recorded_run(session: Session) -> Iterator[dict[str, Any]]:
    """Write a run's manifest when it starts, and again when it ends or is interrupted.

    Yields
    ------
    dict
        The content of the manifest, which the run completes.

    Raises
    ------
    UsageError
        If the folder cannot be written to; this is raised before anything runs.
    """
    manifest = _what_was_asked(session)
    write_run(session.folder, manifest)
    outcome = "failed"
    try:
        yield manifest
        outcome = "complete"
    except (KeyboardInterrupt, SystemExit):
        outcome = "interrupted"
        raise
    finally:
        manifest |= {
            "ended": current_time(),
            "seconds": round(time.monotonic() - session.begun, 3),
            "outcome": outcome,
            "trials_run": session.ran,
            "counts": session.counts(),
            **({"computed_with": machine_kind()} if session.ran else {}),
        }
        # A run that fails has its own sentence; a full disk must not hide it.
        quiet = () if outcome == "complete" else (UsageError,)
        with contextlib.suppress(*quiet):
            check_run(session.folder, session.run)
            write_run(session.folder, manifest)


def _what_was_asked(session: Session) -> dict[str, Any]:
    """Return the content of a run's manifest before the run starts."""
    options = session.options
    shown = {k: v for k, v in vars(options).items() if k not in ELSEWHERE}
    blocks = [_short_range(dict(block)) for block in session.blocks]
    return {
        "run": session.run,
        "experiment": session.name,
        "profile": options.profile,
        "version": importlib.import_module("dp_erm_bench").__version__,
        "command": plain_command(options.command),
        "started": current_time(),
        "ended": None,
        "outcome": "running",
        "drawn": [],
        "not_run": [dataclasses.asdict(one) for one in session.missing],
        "damaged": session.damaged,
        "options": shown,
        "environment": describe_environment(),
        "experiment_file": {
            name: sha256(text).hexdigest() for name, text in options.files.items()
        },
        "solver_files": solver_files(session.lines),
        "data": data_of(session.lines),
        "config": options.config,
        "blocks": None if options.config.get("blocks") else blocks,
    }


def solver_files(lines: Iterable[Line]) -> dict[str, str]:
    """Return the SHA-256 of each solver's file combined with the modules next to it."""
    names = sorted({line.algorithm for line in lines if is_file(line.algorithm)})
    return {f"{label_of(name)}.py": content_digest(name) for name in names}


def datasets_of_lines(lines: Iterable[Line]) -> Iterator[tuple[Dataset, Problem]]:
    """Yield the dataset and the problem of each line that has a dataset."""
    for line in lines:
        if isinstance(line, FitLine):
            data = getattr(line.problem, "dataset", None)
            if isinstance(data, Dataset):
                yield data, line.problem


def data_of(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Return the name and content hash of each dataset, and the SHA-256 of user files.

    The entry `public` says whether the dataset is published, or all lines with the
    dataset have declared it public.
    """
    found: dict[str, dict[str, Any]] = {}
    for data, _ in datasets_of_lines(lines):
        if data.loaded is None:
            continue
        new = {"name": data.name, "content": data.content_hash, "public": True}
        told = found.setdefault(data.content_hash, new)
        told["public"] &= data.public
        if "file" not in told and isinstance(path := data.loaded.get("path"), str):
            told["file"] = PurePath(path).name
            with contextlib.suppress(OSError):  # gone since it was loaded
                told["sha256"] = file_digest(Path(os.path.expanduser(path)))
    return [*found.values()]


def files_of(lines: Iterable[Line]) -> dict[str, str]:
    """Return the group (algorithm or loss) of each user's code file, by its path.

    Files that have changed are left out.
    """
    pins = {}
    for line in lines:
        pins[line.algorithm] = registry.ALGORITHM
        if isinstance(line, FitLine) and (loss := line.problem.spec.get("loss")):
            pins[named_in(loss)] = "loss"
    paths = {
        path_of_pin(pin, group): group for pin, group in pins.items() if is_file(pin)
    }
    return {path: group for path, group in paths.items() if path is not None}


def _short_range(value: Any) -> Any:
    """Return a value with consecutive integers, such as seeds, written as a range."""
    if isinstance(value, Mapping):
        return {key: _short_range(one) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) >= LEAST_RANGE and are_consecutive(value):
        return f"range({value[0]},{value[-1] + 1})"
    return [_short_range(one) for one in value]


def plain_command(command: Sequence[str]) -> list[str]:
    """Return a command line without the folder of its program."""
    return [os.path.basename(command[0]), *command[1:]] if command else []


def write_choices(folder: Path, experiment: str, choices: Iterable[Choice]) -> None:
    """Write the table of choices, one row per choice.

    Parameters are written as JSON; see `Choice` for the columns.

    Parameters
    ----------
    folder : Path
        The results folder.
    experiment : str
        Entry in the column `experiment` of the table.
    choices : iterable of Choice
        The choices of the tuned lines.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(
        map(escape_formula, _row_of_choice(experiment, choice)) for choice in choices
    )
    write_text(folder, CHOICES, text.getvalue())


def _row_of_choice(experiment: str, choice: Choice) -> list[Any]:
    line, dataset = choice.line, choice.line.problem.spec["dataset"]
    given = {**line.params, **choice.values}
    full = algorithm_of(line.algorithm).full(given)
    return [
        experiment,
        line.panel,
        line.line,
        dataset["name"],
        bool(dataset.get("standardise", False)),
        label_of(line.algorithm),
        json.dumps(dict(line.params), sort_keys=True),
        *(line.budget[key] for key in ("epsilon", "delta", "adjacency")),
        line.calibration,
        choice.quantity,
        json.dumps(choice.values, sort_keys=True),
        round_final(choice.mean),
        "" if math.isnan(choice.scatter) else round_final(choice.scatter),
        *(choice.lead or ("", "")),
        len(choice.finals),
        choice.n_settings,
        len(choice.tried),
        *("; ".join(one) for one in (choice.open, choice.starts)),
        " ".join(line.axes),
        json.dumps({k: v for k, v in full.items() if k not in given}, sort_keys=True),
        dataset.get("seed", ""),
        choice.reported,
    ]


def judge_choices(session: Session) -> list[Choice]:
    """Mark choices as open if their errors are larger than with less budget.

    Return all choices. Let D be log(error here) - log(error at the next smaller
    epsilon), from the reports of a line, which are runs of the chosen setting. A choice
    is marked if the 95 % interval of D lies above 0. The setting chosen at the smaller
    epsilon would have been possible here, too.
    """
    session.store.refresh()
    choices = []
    for tuner in session.tuners:
        if (choice := tuner.choice) is None:
            continue
        if (smaller := tuner.smaller) is not None:
            sides = [
                _errors_by_seed(session, one, choice.quantity)
                for one in (tuner, smaller)
            ]
            if all(sides) and estimate_log_ratio(*sides).low > 0.0:
                worse = f"{WORSE}{smaller.epsilon:g}"
                choice = dataclasses.replace(choice, open=(*choice.open, worse))
        choices.append(choice)
    return choices


def _errors_by_seed(session: Session, tuner: Tuner, quantity: str) -> dict[int, float]:
    """Return the errors of a line's reports (runs of the chosen setting), by seed."""
    records = session.store.records(one.key for one in tuner.reports)
    pairs = zip(tuner.reports, records, strict=True)
    return {one.seed: error_of(record, quantity) for one, record in pairs}


def doubts_of_choices(choices: Sequence[Choice], session: Session) -> Iterator[str]:
    """Yield warnings about lines without a usable setting, and about open choices."""
    beyond = []
    for choice in choices:
        epsilon = choice.line.budget["epsilon"]
        where = f"{' / '.join(choice.line.full_name)} (epsilon {epsilon})"
        if {session.statuses[key] for key in choice.tried} == {"skipped"}:
            record = session.store.record(choice.tried[0]) or {}
            yield f"{where}: every setting was skipped: {record.get('message')}"
        elif choice.mean == math.inf:
            yield f"{where}: no setting had a finite mean"
        elif choice.open:
            beyond.append(f"{where}: {', '.join(_reasons_open(choice))}")
    if beyond:
        named = "; ".join([*beyond[:SHOWN], *["..."] * (len(beyond) > SHOWN)])
        yield (
            f"open: {len(beyond)} of {count_with_noun(len(choices), 'choice')}, a "
            f"better setting may exist: {named} (column open of {CHOICES})"
        )


def _reasons_open(choice: Choice) -> Iterator[str]:
    """Yield the reasons, in words, why a choice is open."""
    for end in choice.open:
        *keys, why = end.split()
        values = (choice.values.get(key) for key in keys)
        yield OPEN[why].format(*keys, *values) if why in OPEN else end


def run_experiment(blocks: Blocks, name: str, folder: Path, options: RunOptions) -> int:
    """Run every block of an experiment, and write its table into a folder.

    Parameters
    ----------
    blocks : sequence of mapping
        Plain resolved blocks, as described at the top of this module.
    name : str
        Entry in the column `experiment` of the table.
    folder : Path
        The folder for records, plan, table, choices and manifest.
    options : RunOptions
        Workers, mode, retry, and information for the manifest.

    Returns
    -------
    int
        0 if every trial is ok, skipped or diverged (now or earlier) and not all are
        skipped, else 1. A line whose dataset is unavailable is not a failure, but is
        listed.

    Raises
    ------
    UsageError
        If a value is out of range or a name is unknown, before anything runs.
    DataUnavailable
        If an ad-hoc sweep has no dataset that is available.
    """
    folder = Path(folder).resolve()
    if options.mode != "plan":
        check_writable(folder)
    with early_worker(folder, options) as early:
        told = functools.partial(print_to_stderr, f"{name}: reading data, planning")
        with (
            repeat_calls(told, FIRST) if options.progress else contextlib.nullcontext()
        ):
            session = Session(name, folder, options, blocks)
        return _run_session(session, early)


@contextlib.contextmanager
def early_worker(folder: Path, options: RunOptions) -> Iterator[Worker | None]:
    """Yield a worker that imports its modules early, or None if that is useless.

    Imports take as long as planning a small sweep, and can run on another core.
    No worker is started if the same command line has completed and retries nothing.
    """
    last = read_manifest(folder) if options.mode != "plan" else {}
    same = last.get("command") == plain_command(options.command)
    repeated = same and last.get("outcome") == "complete" and not options.retry
    worker, local = None, options.engine == "local"
    if local and options.mode != "plan" and not repeated:
        worker = Worker(options.execute)
    try:
        yield worker
    finally:
        if worker is not None:
            worker.end()


def _run_session(session: Session, early: Worker | None) -> int:
    options, missing = session.options, session.missing
    if not session.lines and options.append_plan:
        if missing:
            raise DataUnavailable(missing[0].reason)
        raise UsageError("blocks=[]: there is nothing to run")
    if options.notice:
        print(options.notice, file=sys.stderr)
    if loose := loose_deltas(session.lines):
        print(f"dp-erm-bench: {loose}", file=sys.stderr)
    if options.mode == "plan":
        print_plan(session)
        _print_missing(session)
        return 0
    previous = _settle_manifest(session)
    if warning := unchecked_sentence(line.algorithm for line in session.lines):
        print(f"dp-erm-bench: {warning}", file=sys.stderr)
    # Not at the top, so that `import dp_erm_bench` does not wait for numba.
    from dp_erm_bench.experiment.automatic import untuned_sentence

    for told in dict.fromkeys(filter(None, map(untuned_sentence, session.lines))):
        print(f"dp-erm-bench: {told}", file=sys.stderr)
    with recorded_run(session) as manifest, session.plan:
        keep_sources(session.folder, files_of(session.lines), options.files)
        session.run_stages(early)
        choices = judge_choices(session)
        check_run(session.folder, session.run)
        manifest |= _derive_files(session, choices, previous)
    _print_summary(session, choices)
    for told in notes_on_records(session.lines):
        print(f"dp-erm-bench: {told}", file=sys.stderr)
    statuses = set(session.statuses.values())
    return int(statuses == {"skipped"} or not statuses <= {*FINISHED})


def loose_deltas(lines: Iterable[Line]) -> str:
    """Return a warning about budgets whose delta is at least 1/n; empty if none."""
    fits = ((Budget(**o.budget), o.problem) for o in lines if isinstance(o, FitLine))
    found = dict.fromkeys(
        f"{problem.spec['dataset']['name']} (n={problem.n}, delta={budget.delta})"
        for budget, problem in fits
        if budget.is_loose(problem.n)
    )
    if not found:
        return ""
    return (
        f"budget.delta of {', '.join(found)}: is at least 1/n, which allows to publish "
        "one record of n as it is; use 1/n^2"
    )


def notes_on_records(lines: Iterable[Line]) -> list[str]:
    """Return notes on each dataset's records and bounds.

    The notes say that clipping changed some records, that all records are far below a
    bound, or that a feature reveals the label.
    """
    found: dict[str, None] = {}
    every = {(d.content_hash, id(one)): (d, one) for d, one in datasets_of_lines(lines)}
    for data, problem in every.values():
        spec, names = problem.spec["dataset"], feature_names(data)
        file = PurePath(str(spec.get("path", ""))).name
        named = f"dataset {spec['name']} {file}".strip()
        bounded = f"{named}, bounds={typed_text(spec.get('bounds'))}"
        parts = (
            (bounded, clipping_sentence(data.clipping, names)),
            (bounded, wide_bounds_sentence(data, names)),
            (named, revealing_features_sentence(data, names)),
        )
        found.update((f"{where}: {told}", None) for where, told in parts if told)
    return [*found]


def _settle_manifest(session: Session) -> dict[str, Any]:
    """Return the previous run's manifest; report damage that it does not mention.

    Half-written files of other runs that died are removed.
    """
    folder = session.folder
    if folder.is_dir():
        with translate_os_errors(folder), lock_folder(folder):
            remove_parts(folder)
            remove_parts(folder / "runs")
    note_ended(folder)
    previous = read_manifest(folder)
    if damage := session.store.damage():
        session.damaged[RECORDS] = damage
        if damage not in str(previous.get("damaged")):
            told = f"{damage} and dropped: trials without a record run again"
            print(f"{typed_path(folder)}: {told}", file=sys.stderr)
    if previous.get("plan_file") != plan_checksum(folder):
        if torn := sum(one is None for one in read_plan(folder)):
            session.damaged[PLAN] = torn
            told = f"{PLAN}: {count_with_noun(torn, 'damaged line')}: made anew"
            print(f"{typed_path(folder)}: {told}", file=sys.stderr)
    return previous


def _derive_files(
    session: Session, choices: Sequence[Choice], previous: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the choices; also write plan and table unless they are unchanged.

    Return digests by which the next run sees whether plan and table are unchanged.
    """
    folder = session.folder
    if choices or not session.options.append_plan:
        write_choices(folder, session.name, choices)
    left = {"plan": session.digest.hexdigest(), "plan_file": plan_checksum(folder)}
    same = all(previous.get(name) == value for name, value in left.items())
    if session.ran == 0 and same and not table.is_outdated(folder):
        return left
    session.write_plan()
    table.bring_up_to_date(session.store, session.plan)
    return {**left, "plan_file": session.plan.published}


def _print_summary(session: Session, choices: Sequence[Choice]) -> None:
    counts = session.counts()
    statuses = ", ".join(f"{number} {status}" for status, number in counts.items())
    total = f"{sum(counts.values())} trials ({session.ran} run now)"
    print(f"{session.name}: {total}: {statuses or 'none'}")
    for told in (*session.reasons(), *doubts_of_choices(choices, session)):
        print(told)
    _print_missing(session)


def _print_missing(session: Session) -> None:
    reasons = (f"{one.dataset}: {one.reason}" for one in session.missing)
    for reason in dict.fromkeys(reasons):
        print(f"not run: {reason}")


def sweep(
    lines: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    folder: str | Path = "results/sweep",
    **runner: Any,
) -> pd.DataFrame:
    """Run all trials of some lines that are not recorded yet; return their table.

    This does the same as the command line: trials run in worker processes, and an
    interrupted sweep continues when the function is called again.

    Parameters
    ----------
    lines : mapping or sequence of mapping
        Mappings with the keys of an experiment's blocks (``dataset``, ``algorithm``,
        ``budget``, ``seed`` and so on), as in the files of experiments/. A list of
        values is an axis.
    folder : str or Path
        The results folder; trials of earlier sweeps stay in its table.
    **runner
        Keys of ``runner``, such as ``n_jobs`` and ``engine``. Without ``engine``, the
        backend of an active ``joblib.parallel_config`` hosts the workers; if none is
        active, threads host them.

    Returns
    -------
    DataFrame
        The table of `load_results`, with a row per checkpoint; the column ``status``
        shows which trials failed.

    Raises
    ------
    UsageError
        If a key or a value is wrong, before anything runs.
    DataUnavailable
        If no dataset is available.
    """
    sections = _sections_of_lines(lines)
    options = _options_of_call(sections, runner, append_plan=True)
    run_experiment(sections, Path(folder).name, Path(folder), options)
    return table.load_results(folder)


def tune(
    lines: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    folder: str | Path = "results/tune",
    search: Mapping[str, Any] | None = None,
    profile: str = PROFILE,
    **runner: Any,
) -> pd.DataFrame:
    """Tune each algorithm of some lines on each problem; return the chosen settings.

    This does the same as ``dp-erm-bench tune``, without figures. Tuning reads the data,
    and no budget pays for that.

    Parameters
    ----------
    lines : mapping or sequence of mapping
        As in `sweep`, without ``seed``. A single value of an algorithm's parameter
        fixes it; its search starts from a list of values.
    folder : str or Path
        The results folder; trials that it already has are not run again.
    search : mapping, optional
        Keys of ``tune`` that replace the usual ones, for example ``{"quantity":
        "test_accuracy", "search": {"trials": 100}}``; see docs/tuning.md.
    profile : {'published', 'default', 'paper', 'smoke'}
        Profile of the leaderboard whose grids, limits, seeds and searches are used.
    **runner
        As in `sweep`.

    Returns
    -------
    DataFrame
        The table of `results.tuned.tuned_choices`, with a row per problem, epsilon and
        algorithm, the best first. It contains the errors of the chosen settings.

    Raises
    ------
    UsageError, DataUnavailable
        As in `sweep`.
    """
    blocks = tuned_blocks(_sections_of_lines(lines), search or {}, profile)
    options = _options_of_call(blocks, runner, append_plan=False)
    run_experiment(blocks, Path(folder).name, Path(folder), options)
    return tuned_choices(folder)


def _options_of_call(
    sections: Sequence[Mapping[str, Any]], runner: Mapping[str, Any], append_plan: bool
) -> RunOptions:
    """Return the options of a call from Python that gives some keys of `runner`."""
    chosen = {key: check_setting(f"runner.{key}", one) for key, one in runner.items()}
    from dp_erm_bench.runner.engines.joblib import is_active  # imports joblib

    if "engine" not in chosen and is_active():
        chosen = {"engine": "joblib", "backend": ACTIVE, **chosen}
    if chosen.get("backend") == ACTIVE:
        # None: as many as its parallel_config says.
        chosen = {"n_jobs": None, **chosen}
    config = {"runner": asdict(RunnerConfig()) | chosen, "mode": "run", "profile": None}
    text = json.dumps(sections, sort_keys=True, default=str)
    name = "dp_erm_bench.sweep" if append_plan else "dp_erm_bench.tune"
    command = (name, sha256(text.encode()).hexdigest()[:NAMED])
    return run_options(config, command, append_plan=append_plan)


def _sections_of_lines(lines: Any) -> list[dict[str, Any]]:
    """Return lines as blocks; raise UsageError if one is not a mapping."""
    alone = isinstance(lines, str | Mapping) or not isinstance(lines, Iterable)
    sections = [_plain_block(one) for one in ([lines] if alone else lines)]
    if not all(isinstance(one, dict) for one in sections):
        raise UsageError(f"lines={lines!r:.80}: must be a mapping, or a list of them")
    return sections


def _plain_block(value: Any) -> Any:
    """Return a block's value with numpy's types and ranges replaced by plain ones."""
    if isinstance(value, Mapping):
        return {key: _plain_block(one) for key, one in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain_block(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value
