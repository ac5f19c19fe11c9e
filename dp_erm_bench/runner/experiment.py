"""Run the blocks of an experiment or of an ad-hoc sweep.

A block is a plain mapping: `panel` and `line` (labels), `dataset` (a name or a mapping
with `name` and overrides of its yaml), `loss`, `penalty`, `constraint` ("auto", a name,
or a mapping with `name` and parameters), `algorithm` (a name or a mapping with `name`
and parameters), `budget` (`epsilon`, `delta`, `adjacency`), `calibration`, and either
`seed` (a sweep) or `tune`. A list is an axis; seeds are integers or lists of integers.
Where a parameter is a list by nature, a list of lists is the axis.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.results.manifest import environment, read_manifest, write_manifest
from dp_erm_bench.results.store import FAILED, FINISHED
from dp_erm_bench.results.table import collect, is_stale
from dp_erm_bench.runner.case import NotRun
from dp_erm_bench.runner.choices import edge_lines, write_choices
from dp_erm_bench.runner.expand import expand
from dp_erm_bench.runner.link import tuners_of
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.plan import print_plan
from dp_erm_bench.runner.session import Session, run_stages, stages_of
from dp_erm_bench.runner.tune import Choice


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
    cases, missing = expand(blocks)
    if not cases and options.append_plan:
        raise _nothing(missing)
    session = Session(name, folder, options)
    tuners = tuners_of(cases, options.n_checkpoints, session.finals)
    stages = stages_of(cases, tuners, session)
    if options.mode == "plan":
        print_plan(session, cases, tuners, stages)
        _print_missing(missing)
        return 0
    expected = sum(case.expected for case in cases if case.tune is None)
    expected += sum(tuner.expected() for tuner in tuners)
    previous = read_manifest(folder)
    with _manifest(session, missing):
        run_stages(session, stages, expected)
        choices = [tuner.choice for tuner in tuners if tuner.choice is not None]
        _derive(session, choices, previous)
    _print_summary(session, choices, missing)
    return int(any(status not in FINISHED for status in session.statuses.values()))


def _derive(
    session: Session, choices: Sequence[Choice], previous: Mapping[str, Any]
) -> None:
    """Write choices, and plan and table unless the last run left the very same."""
    folder = session.folder
    if choices or not session.options.append_plan:
        write_choices(folder, session.name, choices)
    same = session.ran == 0 and previous.get("plan") == session.plan_digest()
    if same and session.store.plan_file.is_file() and not is_stale(folder):
        return
    session.write_plan()
    collect(folder)


def _nothing(missing: Sequence[NotRun]) -> UsageError:
    if not missing:
        return UsageError("blocks=[]: there is nothing to run")
    return DataUnavailable(missing[0].reason)


@contextlib.contextmanager
def _manifest(session: Session, missing: Sequence[NotRun]) -> Iterator[None]:
    """Write the manifest when a run starts, and again when it ends or is ended."""
    started, clock = _now(), time.monotonic()
    content: dict[str, Any] = {
        "experiment": session.name,
        "profile": session.options.profile,
        "command": _plain_command(session.options.command),
        "started": started,
        "ended": None,
        "outcome": "running",
        "not_run": [dataclasses.asdict(one) for one in missing],
        "options": session.options.as_dict(),
        "threads_per_worker": 1,
        "environment": environment(),
        "config": session.options.config,
    }
    write_manifest(session.folder, content)
    outcome = "interrupted"
    try:
        yield
        outcome = "complete"
    finally:
        content |= {
            "ended": _now(),
            "seconds": round(time.monotonic() - clock, 3),
            "outcome": outcome,
            "trials_run": session.ran,
            "counts": session.counts(),
            "plan": session.plan_digest() if outcome == "complete" else None,
        }
        write_manifest(session.folder, content)


def _plain_command(command: Sequence[str]) -> list[str]:
    return [os.path.basename(command[0]), *command[1:]] if command else []


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    for line in edge_lines(choices):
        print(line)
    _print_missing(missing)


def _print_missing(missing: Iterable[NotRun]) -> None:
    for reason in dict.fromkeys(f"{one.dataset}: {one.reason}" for one in missing):
        print(f"not run: {reason}")
