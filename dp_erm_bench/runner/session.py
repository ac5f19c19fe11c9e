"""One run of an experiment: plan its trials, run and record them, show progress.

A *line* is a set of trials with the same label in a figure. A *batch* is a group of
trials that are computed together.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import secrets
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Self

from dp_erm_bench.code_identity import package_state
from dp_erm_bench.errors import escape_line, printable_text
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import Kind, Trial
from dp_erm_bench.experiment.tune import tuners_of
from dp_erm_bench.results.files import count_with_noun
from dp_erm_bench.results.runs import check_run, new_run_id
from dp_erm_bench.results.store import FAILED, Asked, Plan, Store, finals_of
from dp_erm_bench.runner.engines.base import Engine
from dp_erm_bench.runner.engines.choice import engine_of
from dp_erm_bench.runner.host import Worker
from dp_erm_bench.runner.ledger import LONGEST, Ledger
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.worker import Batch, Job, Outcome

LEAST = 2
"""Least size of split batches, since kernels of smaller batches are slower."""

GAIN = 3.0
"""Least work of a batch after a split, in units of the work that its trials share."""


def batches_of(planned: Iterable[Trial], most: int, aim: float) -> list[Batch]:
    """Return trials grouped into batches, those with most work first.

    The batches depend on the trials only, never on the number of workers, so that
    any number of workers computes the same bits.

    Parameters
    ----------
    planned : iterable of Trial
        Trials without repeated keys.
    most : int
        Largest number of trials in a batch.
    aim : float
        Target work of a batch, without the work that its trials share; 1e8 is about a
        second.
    """
    kinds: defaultdict[Kind, list[Trial]] = defaultdict(list)
    for one in planned:
        kinds[one.kind].append(one)
    batches: list[Batch] = []
    for members in kinds.values():
        # Parts of nearly equal length.
        count = _count_batches(members[0], len(members), most, aim)
        cuts = [len(members) * i // count for i in range(count + 1)]
        batches += [tuple(members[a:b]) for a, b in pairwise(cuts)]
    return sorted(batches, key=work_of_batch, reverse=True)


def work_of_batch(batch: Batch) -> float:
    """Return the work of a batch, in the unit of `Trial.work`."""
    return batch[0].work.batch(len(batch))


def _count_batches(one: Trial, members: int, most: int, aim: float) -> int:
    """Return the number of batches for a number of trials of one kind."""
    if not one.setting.batch_key.batchable:
        return members
    own, shared = one.work
    # Each part of a split batch would repeat the work that its trials share.
    size = most if own <= 0 else int(min(max(aim, GAIN * shared) / own, most))
    return math.ceil(members / max(size, min(LEAST, most)))


class Pool:
    """The workers of a run, with the ledger of their tasks and the engine between them.

    All workers are processes, even a single one. So any number of workers computes the
    same bits, and a crash never reaches the parent.

    Parameters
    ----------
    engine : Engine
        Carries the tasks to hosts.
    job : Job
        Settings that all batches have in common.
    """

    def __init__(self, engine: Engine, job: Job) -> None:
        self.engine, self._ledger = engine, Ledger(job)
        self._on_sigterm: Any = None
        self._engines = contextlib.ExitStack()
        self._started = False

    def __enter__(self) -> Pool:
        """Let SIGTERM end the run in the same way as Ctrl-C."""
        if threading.current_thread() is threading.main_thread():
            self._on_sigterm = signal.signal(signal.SIGTERM, _raise_terminated)
        return self

    def __exit__(self, *error: Any) -> None:
        """End the workers, at once after an exception."""
        self._engines.__exit__(*error)
        if self._on_sigterm is not None:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self, batches: Iterable[Batch]) -> Iterator[list[Outcome]]:
        """Yield the outcomes of batches as they come in, those of a task together.

        The engine is started at the first call, so that a run without trials needs no
        cluster.

        Raises
        ------
        UsageError
            If the results folder cannot be written to, no worker can be started, or all
            workers are lost.
        """
        if not self._started:
            self._engines.enter_context(self.engine)
            self._ledger.slots, self._started = self.engine.slots, True
        self._ledger.add(batches)
        while len(self._ledger):
            for number, answer in self.engine.answers(self._ledger):
                if outcomes := self._ledger.settle(number, answer):
                    yield outcomes


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


OTHERS = ("skipped", "diverged")
SHOWN = 8
"""Largest number of reasons that are listed for a status."""
MOST = 1000
"""Largest number of records per status that are read to list reasons."""


def list_reasons(status: str, total: int, messages: Iterable[str]) -> Iterator[str]:
    """Yield lines with the number of trials of a status and their most common reasons.

    Parameters
    ----------
    status : str
        The status, as the first line shows it.
    total : int
        Number of trials with this status.
    messages : iterable of str
        Messages of the trials whose records were read; only the first lines count.
    """
    found = Counter(printable_text(x.partition("\n")[0], LONGEST) for x in messages)
    shown = found.most_common(SHOWN)
    yield f"{status}: {count_with_noun(total, 'trial')}"
    for reason, number in shown:
        yield f"  {number} x {reason}"
    if more := found.total() - sum(number for _, number in shown):
        yield f"  and {more} more"
    if unread := total - found.total():
        yield f"  and {unread} whose reasons were not read"


FIRST, PAUSE = 3.0, 60.0
"""Seconds from the start to the first line of progress, and between two lines."""

SOON = 0.5
"""Least number of seconds before the first line of progress."""


def print_to_stderr(text: str) -> None:
    """Print a line on stderr; a closed stderr does not end the sweep."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def repeat_calls(show: Callable[[], None], first: float) -> Iterator[None]:
    """Call a function after `first` seconds and then every `PAUSE` seconds."""
    over = threading.Event()

    def tick(due: float) -> None:
        while not over.wait(due):
            show()
            due = PAUSE

    clock = threading.Thread(target=tick, args=(first,), daemon=True)
    clock.start()
    try:
        yield
    finally:
        over.set()
        clock.join()


class Progress(contextlib.ExitStack):
    """Counts the trials that are done and failed, and shows these numbers.

    On a terminal it shows a bar. Elsewhere it prints a line `FIRST` seconds after the
    start of the run, one every `PAUSE` seconds, and one at the end if trials have run.

    Parameters
    ----------
    title : str
        Name of the run, shown first.
    enabled : bool
        Whether to show anything.
    total : int
        Number of trials expected.
    workers : function, optional
        A function that returns the number of workers. If it is given, the number is
        shown.
    begun : float, optional
        Time at which the run began, by `time.monotonic`; by default the present time.
    """

    def __init__(
        self,
        title: str,
        enabled: bool,
        total: int,
        workers: Callable[[], int] | None = None,
        begun: float | None = None,
    ) -> None:
        super().__init__()
        # A folder's name may contain control characters.
        self.title, self.enabled, self.total = escape_line(title), enabled, total
        self._workers = workers
        self.done = self.failed = self.ran = 0
        self._bar: Any = None
        self._start = time.monotonic()
        self._begun = self._start if begun is None else begun

    def __enter__(self) -> Self:
        """Open the bar if stderr is a terminal, else start the clock."""
        if self.enabled and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                # The name is shown as it is, even if it looks like markup.
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                "{task.fields[state]}",
                progress.TimeRemainingColumn(),
                console=Console(file=getattr(sys.stderr, "inside", sys.stderr)),
                refresh_per_second=5,
            )
            self._bar.add_task(
                self.title, total=self.total, state=self._state_in_numbers()
            )
            self.enter_context(self._bar)
        elif self.enabled:
            self.callback(self._print_line, last=True)
            # Trials that are recorded already are counted at once.
            first = max(SOON, self._begun + FIRST - time.monotonic())
            self.enter_context(repeat_calls(self._print_line, first))
        return self

    def announce(self, done: int, total: int) -> None:
        """Set the number of trials that have a status, and the expected number."""
        self.done, self.total = done, total
        self._update_line()

    def advance(self, statuses: Iterable[str]) -> None:
        """Count trials that have just run, by their statuses."""
        statuses = list(statuses)
        self.done += len(statuses)
        self.ran += len(statuses)
        self.failed += sum(status in FAILED for status in statuses)
        self._update_line()

    def _update_line(self) -> None:
        if self._bar is not None:
            now = {
                "total": self.total,
                "completed": self.done,
                "state": self._state_in_numbers(),
            }
            self._bar.update(self._bar.task_ids[0], **now)

    def _state_in_numbers(self) -> str:
        """Return the numbers of failed trials and of workers, in words."""
        workers = (
            f", {count_with_noun(self._workers(), 'worker')}" if self._workers else ""
        )
        return f"{self.failed} failed{workers}"

    def _print_line(self, last: bool = False) -> None:
        if last and not self.ran:
            return
        spent, left = time.monotonic() - self._start, "time left not known yet"
        if self.ran:
            left = f"{spent / self.ran * (self.total - self.done):.0f} s left"
        print_to_stderr(
            f"{self.title}: {100 * self.done // max(self.total, 1)} % "
            f"({self.done} of {self.total} trials, {self._state_in_numbers()}, "
            f"{spent:.0f} s, "
            f"{left})"
        )


Label = tuple[str, str]
"""Labels of the panel and of the line of trials."""

Stages = tuple[Iterator[list[Trial] | None], Iterable[Trial]]
Blocks = Sequence[Mapping[str, Any]]


class Session:
    """The state of a run, which can be rebuilt from the store of records alone.

    Parameters
    ----------
    name : str
        Name of the experiment.
    folder : Path
        The results folder.
    options : RunOptions
        How to run.
    blocks : sequence of mapping
        The blocks to run, see `runner.experiment`.

    Raises
    ------
    UsageError
        If a block has a value out of range or an unknown name.
    """

    def __init__(
        self, name: str, folder: Path, options: RunOptions, blocks: Blocks = ()
    ) -> None:
        self.begun = time.monotonic()
        self.name, self.folder, self.options = name, folder, options
        self.run = new_run_id()
        self.store = Store(folder)
        self.plan = Plan(folder, options.append_plan)
        self.statuses: dict[str, str] = {}
        self.finals: dict[str, Mapping[str, float]] = {}
        self.ran = 0
        self.damaged: dict[str, int | str] = {}
        self.digest = sha256(f"{name} {options.append_plan}".encode())
        self._lines: dict[tuple[str, ...], set[str]] = {}
        self._unwritten: list[Trial] = []
        self.blocks = blocks
        self.lines, self.missing = expand_blocks(blocks)
        asked = Asked(folder, options.mode != "plan")
        self.tuners = tuners_of(self.lines, options.n_checkpoints, self.finals, asked)
        self._tuning: list[Batch] = []

    def expected_by_line(self) -> Counter[Label]:
        """Return the number of trials per line; for a search, the largest number."""
        expected: Counter[Label] = Counter()
        for line in self.lines:
            if line.tune is None:
                expected[line.full_name] += len(line.seeds) * len(line.settings)
        for tuner in self.tuners:
            expected[tuner.line.full_name] += tuner.expected_trials()
        return expected

    def stages(self) -> Iterator[list[Trial]]:
        """Yield the trials of each round of tuning, for all lines together.

        A tuner continues as soon as all trials of its last stage have a status. The
        caller must announce each round, and may run it, before taking the next round.
        """
        rows = self.options.n_checkpoints
        sweeps = [line for line in self.lines if line.tune is None]
        yield [one for line in sweeps for one in line.sweep(rows)]
        active: list[Stages] = [(tuner.stages(), []) for tuner in self.tuners]
        while active := [one for one in active if self._are_settled(one[1])]:
            rounds = [(stages, next(stages, ())) for stages, _ in active]
            if all(stage is None for _, stage in rounds):
                return
            yield [one for _, stage in rounds for one in stage or ()]
            active = [(stages, stage or ()) for stages, stage in rounds if stage != ()]

    def _are_settled(self, planned: Iterable[Trial]) -> bool:
        return all(self.statuses[one.key] != "planned" for one in planned)

    def announce(self, planned: Iterable[Trial]) -> tuple[list[Trial], list[Trial]]:
        """Add trials to the plan; return the trials that are new, and those to run.

        A trial that two lines have in common runs once. The batches of a tuning stage
        depend on the stage alone. So if one trial of such a batch has no result, the
        whole batch runs again.
        """
        new: list[Trial] = []
        for labels, members in itertools.groupby(planned, lambda one: one.labels):
            label = (labels["panel"], labels["line"], labels["phase"])
            line = self._lines.setdefault(label, set())
            added = {one.key: one for one in members if one.key not in line}
            line.update(added)
            self.digest.update(f"{label}{labels['read']}{''.join(added)}".encode())
            new += added.values()
        first = {one.key: one for one in new if one.key not in self.statuses}
        for key in first:
            status = self.store.status(key) or "planned"
            status = "planned" if status in self.options.retry else status
            self.statuses[key] = status
        tuning = [one for one in first.values() if one.phase == "tune"]
        if any(self.statuses[one.key] == "planned" for one in tuning):
            for batch in self._batches_of(tuning):
                if any(self.statuses[one.key] == "planned" for one in batch):
                    self.statuses.update((one.key, "planned") for one in batch)
                    self._tuning.append(batch)
        todo = [o for o in first.values() if self.statuses[o.key] == "planned"]
        self._unwritten += new
        self._read_finals(new)
        return new, todo

    def _read_finals(self, new: Iterable[Trial]) -> None:
        """Read the values by which tuners choose, for all recorded trials at once."""
        keys = [
            one.key
            for one in new
            if one.phase == "tune"
            and one.key not in self.finals
            and self.statuses[one.key] != "planned"
        ]
        found = map(finals_of, self.store.records(keys))
        self.finals.update(zip(keys, found, strict=True))

    def run_stages(self, early: Worker | None) -> None:
        """Run every round of an experiment; the workers are kept between rounds."""
        options = self.options
        job = Job(
            str(self.folder),
            self.run,
            options.execute,
            options.time_limit,
            options.worker_memory,
            secrets.token_hex(16),
            code=package_state(),
            # A lost host of Dask is explained by its log, so output must go there.
            shows=options.output or options.engine == "dask",
        )
        engine = engine_of(options, options.n_jobs, early)
        workers = None if options.engine == "local" else lambda: engine.slots
        left = self.expected_by_line().total()
        shown = (self.name, options.progress, left, workers, self.begun)
        with Pool(engine, job) as pool, Progress(*shown) as progress:
            for planned in self.stages():
                todo = self.announce(planned)[1]
                # A trial of two lines runs once.
                left = max(left - len(planned), 0)
                known = len(self.statuses)
                progress.announce(known - len(todo), known + left)
                if todo:
                    self.write_plan()
                    self.execute(todo, pool, progress)
            # A search may end before it has used all of its trials.
            progress.announce(len(self.statuses), len(self.statuses))
        self._lines.clear()

    def execute(self, todo: list[Trial], pool: Pool, progress: Progress) -> None:
        """Run trials; keep their statuses and the values by which tuners choose.

        Parameters
        ----------
        todo : list of Trial
            The trials to run; tuning trials were batched when they were announced.
        pool : Pool
            The workers.
        progress : Progress
            Counts the outcomes.

        Raises
        ------
        UsageError
            If the results folder was removed, or as in `Pool.run`.
        """
        others = self._batches_of(one for one in todo if one.phase != "tune")
        batches = sorted([*self._tuning, *others], key=work_of_batch, reverse=True)
        self._tuning = []
        for outcomes in pool.run(batches):
            check_run(self.folder, self.run)
            for key, status, finals in outcomes:
                # Saves memory: 10^6 outcomes would each hold a string of their own.
                self.statuses[key] = sys.intern(status)
                if self.tuners:
                    self.finals[key] = finals
            self.ran += len(outcomes)
            progress.advance(outcome.status for outcome in outcomes)

    def _batches_of(self, trials: Iterable[Trial]) -> list[Batch]:
        """Return trials in batches; reports may have a batch size of their own."""
        most: defaultdict[int, list[Trial]] = defaultdict(list)
        for one in trials:
            most[self.options.most_of(one.phase)].append(one)
        aim = self.options.batch_work
        return [b for size, ones in most.items() for b in batches_of(ones, size, aim)]

    def counts(self) -> dict[str, int]:
        """Return the number of distinct trials by status."""
        return dict(sorted(Counter(self.statuses.values()).items()))

    def reasons(self) -> Iterator[str]:
        """Yield the reasons why trials are not ok, a few lines for each status.

        Trials of earlier runs are included.
        """
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key, status in self.statuses.items():
            found[status].append(key)
        for status in (*FAILED, *OTHERS):
            if keys := found[status]:
                read = self.store.records(keys[:MOST])
                messages = (str((record or {}).get("message", "")) for record in read)
                yield from list_reasons(status, len(keys), messages)

    def write_plan(self) -> None:
        """Write the trials announced since the last call into the plan."""
        self.plan.add(one.row(self.name) for one in self._unwritten)
        self._unwritten = []
