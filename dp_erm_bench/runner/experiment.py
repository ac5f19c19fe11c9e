"""Run the blocks of an experiment or of an ad-hoc sweep.

A block is a plain mapping: `panel` and `line` (labels), `dataset` (a name or a mapping
with `name` and overrides of its yaml), `loss`, `penalty`, `constraint` ("auto", a name,
or a mapping with `name` and parameters), `algorithm` (a name or a mapping with `name`
and parameters), `budget` (`epsilon`, `delta`, `adjacency`), `calibration`, and either
`seed` (a sweep) or `tune`. A list is an axis; seeds are integers or lists of integers.
Where a parameter is a list by nature, a list of lists is the axis.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.lines import FitLine, Line
from dp_erm_bench.experiment.tune import Choice
from dp_erm_bench.paths import remove_parts
from dp_erm_bench.plugins.passed import unchecked
from dp_erm_bench.results import store, table
from dp_erm_bench.results.files import check_writable, locked, plural, telling, typed
from dp_erm_bench.results.runs import check_run, note_ended, read_manifest
from dp_erm_bench.results.store import FINISHED
from dp_erm_bench.runner.manifest import doubts, plain_command, recorded, write_choices
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.plan import print_plan
from dp_erm_bench.runner.process import Worker
from dp_erm_bench.runner.progress import awaited
from dp_erm_bench.runner.session import Blocks, Session

if TYPE_CHECKING:
    pass


def run_experiment(blocks: Blocks, name: str, folder: Path, options: RunOptions) -> int:
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
        whose dataset is unavailable are no failure; they are listed.

    Raises
    ------
    UsageError
        Before anything runs, for any value out of range or unknown name.
    DataUnavailable
        If an ad-hoc sweep has no dataset that is available.
    """
    folder = Path(folder).resolve()
    if options.mode != "plan":
        check_writable(folder)
    with early_worker(folder, options) as early:
        with awaited(f"{name}: reading data, planning", options.progress):
            session = Session(name, folder, options, blocks)
        return _run(session, early)


@contextlib.contextmanager
def early_worker(folder: Path, options: RunOptions) -> Iterator[Worker | None]:
    """Lend a worker that imports what it needs, if there is likely something to do.

    To import takes as long as to plan a small sweep, and there is more than one core.
    None is started if the same command line came to its end and retries nothing.
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


def _run(session: Session, early: Worker | None) -> int:
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
    if options.detach:
        from dp_erm_bench.runner.engines.detach import submit

        submit(session.folder, options)
        return 0
    previous = _settled(session)
    if warning := unchecked(line.algorithm for line in session.lines):
        print(f"dp-erm-bench: {warning}", file=sys.stderr)
    with recorded(session) as manifest, session.plan:
        session.run_stages(early)
        choices = [one.choice for one in session.tuners if one.choice is not None]
        check_run(session.folder, session.run)
        manifest |= _derive(session, choices, previous)
    _print_summary(session, choices)
    return int(any(status not in FINISHED for status in session.statuses.values()))


def loose_deltas(lines: Iterable[Line]) -> str:
    """Return the sentence about budgets with a delta of at least 1/n, if any."""
    found = dict[str, None]()
    for line in lines:
        if isinstance(line, FitLine):
            budget, n = Budget(**line.budget), line.problem.n
            if budget.is_loose(n):
                name = line.problem.spec["dataset"]["name"]
                found[f"{name} (n={n}, delta={budget.delta})"] = None
    if not found:
        return ""
    return (
        f"budget.delta of {', '.join(found)}: is at least 1/n, which allows to publish "
        "one record of n as it is; use 1/n^2"
    )


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
    same = previous.get("plan_file") == store.checksum(folder)
    if not same and (torn := store.damage(folder)):
        session.damaged[store.PLAN] = torn
        lost = plural(torn, "damaged line")
        print(f"{typed(folder)}: {store.PLAN}: {lost}: made anew", file=sys.stderr)
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
    left = {"plan": session.digest.hexdigest(), "plan_file": store.checksum(folder)}
    same = all(previous.get(name) == value for name, value in left.items())
    if session.ran == 0 and same and not table.is_outdated(folder):
        return left
    session.write_plan()
    table.bring_up_to_date(session.store, session.plan)
    return {**left, "plan_file": session.plan.published}


def _print_summary(session: Session, choices: Iterable[Choice]) -> None:
    counts = session.counts()
    statuses = ", ".join(f"{number} {status}" for status, number in counts.items())
    total = f"{sum(counts.values())} trials ({session.ran} run now)"
    lines = [f"{session.name}: {total}: {statuses or 'none'}"]
    lines += session.reasons.lines(session.store)
    print("\n".join([*lines, *doubts(choices, session.skipped)]))
    _print_missing(session)


def _print_missing(session: Session) -> None:
    reasons = (f"{one.dataset}: {one.reason}" for one in session.missing)
    for reason in dict.fromkeys(reasons):
        print(f"not run: {reason}")
