"""Run the blocks of an experiment or of an ad-hoc sweep.

A block is a plain mapping: `panel` and `line` (labels), `dataset` (a name or a mapping
with `name` and overrides of its yaml), `loss`, `penalty`, `constraint` ("auto", a name,
or a mapping with `name` and parameters), `algorithm` (a name or a mapping with `name`
and parameters), `budget` (`epsilon`, `delta`, `adjacency`), `calibration`, and either
`seed` (a sweep) or `tune`. A list is an axis; seeds are integers or lists of integers.
Where a parameter is a list by nature, a list of lists is the axis.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.expand import NotRun, expand
from dp_erm_bench.experiment.tune import Choice, tuners_of
from dp_erm_bench.paths import remove_parts
from dp_erm_bench.plugins.passed import unchecked
from dp_erm_bench.results.files import (
    check_writable,
    locked,
    plural,
    shown,
    telling,
)
from dp_erm_bench.results.plan import NAME as PLAN
from dp_erm_bench.results.plan import checksum, damage
from dp_erm_bench.results.runs import check_run, note_ended, read_manifest
from dp_erm_bench.results.store import FAILED, FINISHED
from dp_erm_bench.results.table import (
    bring_up_to_date,
    is_outdated,
)
from dp_erm_bench.runner.choices import edge_lines, write_choices
from dp_erm_bench.runner.manifest import early_worker, recorded
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.plan import print_plan
from dp_erm_bench.runner.process import Worker
from dp_erm_bench.runner.session import Session, run_stages, stages_of


def run_experiment(
    blocks: Sequence[Mapping[str, Any]], name: str, folder: Path, options: RunOptions
) -> int:
    """Run every block of an experiment and leave its table in a folder.

    Parameters
    ----------
    blocks : sequence of mapping
        Plain resolved blocks, as above.
    name : str
        Column `experiment` of the table.
    folder : Path
        Where segments, plan, table, choices and manifest are kept.
    options : RunOptions
        Workers, mode, retry and what the manifest should hold.

    Returns
    -------
    int
        0 if every trial is ok, skipped or diverged (now or earlier), else 1. Lines
        whose dataset cannot be had are no failure; they are listed.

    Raises
    ------
    UsageError
        Before anything runs, for any value out of range or unknown name.
    DataUnavailable
        If an ad-hoc sweep has no dataset that can be had.
    """
    folder = Path(folder).resolve()
    if options.mode != "plan":
        check_writable(folder)
    with early_worker(folder, options) as early:
        return _run(blocks, Session(name, folder, options), early)


def _run(
    blocks: Sequence[Mapping[str, Any]], session: Session, early: Worker | None
) -> int:
    cases, missing = expand(blocks)
    options = session.options
    if not cases and options.append_plan:
        raise _nothing(missing)
    tuners = tuners_of(cases, options.n_checkpoints, session.finals)
    stages = stages_of(cases, tuners, session)
    if options.notice:
        print(options.notice, file=sys.stderr)
    if options.mode == "plan":
        print_plan(session, cases, tuners, stages)
        _print_missing(missing)
        return 0
    expected = sum(case.expected for case in cases if case.tune is None)
    expected += sum(tuner.expected() for tuner in tuners)
    previous = _settled(session)
    warning = unchecked(case.algorithm for case in cases)
    if warning:
        print(f"dp-erm-bench: {warning}", file=sys.stderr)
    with recorded(session, blocks, cases, missing) as manifest, session.plan:
        run_stages(session, stages, expected, early)
        choices = [tuner.choice for tuner in tuners if tuner.choice is not None]
        check_run(session.folder, session.run)
        manifest |= _derive(session, choices, previous)
    _print_summary(session, choices, missing)
    return int(any(status not in FINISHED for status in session.statuses.values()))


def _settled(session: Session) -> dict[str, Any]:
    """Return the manifest before this run; tell of damage that it does not know.

    What other runs left half written when they died is removed.
    """
    folder = session.folder
    if folder.is_dir():
        with telling(folder), locked(folder):
            remove_parts(folder)
            remove_parts(folder / "runs")
    note_ended(folder)
    previous = read_manifest(folder)
    session.store.tell(previous, "run again")
    session.damaged = session.store.damage()
    if previous.get("plan_file") != checksum(folder) and (number := damage(folder)):
        session.damaged[PLAN] = number
        lines = plural(number, "damaged line")
        print(f"{shown(folder)}: {PLAN}: {lines}: made anew", file=sys.stderr)
    return previous


def _derive(
    session: Session, choices: Sequence[Choice], previous: Mapping[str, Any]
) -> dict[str, Any]:
    """Write choices, and plan and table unless the last run left the very same.

    Returns what tells the next run so.
    """
    folder = session.folder
    if choices or not session.options.append_plan:
        with telling(folder):
            write_choices(folder, session.name, choices)
    left = {"plan": session.plan_digest(), "plan_file": checksum(folder)}
    same = all(previous.get(name) == value for name, value in left.items())
    if session.ran == 0 and same and not is_outdated(folder):
        return left
    session.write_plan()
    bring_up_to_date(session.store, session.plan)
    return {**left, "plan_file": session.plan.published}


def _nothing(missing: Sequence[NotRun]) -> UsageError:
    if not missing:
        return UsageError("blocks=[]: there is nothing to run")
    return DataUnavailable(missing[0].reason)


def _print_summary(
    session: Session, choices: Iterable[Choice], missing: Iterable[NotRun]
) -> None:
    counts = session.counts()
    found = ", ".join(f"{number} {status}" for status, number in counts.items())
    print(
        f"{session.name}: {sum(counts.values())} trials "
        f"({session.ran} run now): {found or 'none'}"
    )
    for status in FAILED:
        messages = session.messages.get(status)
        if messages:
            print(f"{status}: {len(messages)} trials, the first: {messages[0]}")
    for line in edge_lines(choices, session.skipped):
        print(line)
    _print_missing(missing)


def _print_missing(missing: Iterable[NotRun]) -> None:
    for reason in dict.fromkeys(f"{one.dataset}: {one.reason}" for one in missing):
        print(f"not run: {reason}")
