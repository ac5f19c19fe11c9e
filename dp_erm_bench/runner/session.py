"""One run of an experiment: planned, carried out, recorded, shown."""

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
from typing import Any

from dp_erm_bench.code_identity import package_state
from dp_erm_bench.errors import escaped
from dp_erm_bench.experiment.expand import expand
from dp_erm_bench.experiment.lines import Kind, Trial
from dp_erm_bench.experiment.tune import tuners_of
from dp_erm_bench.results.files import plural
from dp_erm_bench.results.runs import check_run, new_run_id
from dp_erm_bench.results.store import FAILED, Asked, Plan, Store, finals_of
from dp_erm_bench.runner.engines.base import Engine
from dp_erm_bench.runner.engines.choice import engine_of
from dp_erm_bench.runner.host import Worker
from dp_erm_bench.runner.ledger import Ledger
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.worker import Batch, Job, Outcome

LEAST = 2
"""Smaller batches are not made for balance: their kernels would be slower."""

GAIN = 3.0
"""A batch is not split below so many times the work that its trials share."""


def batches_of(planned: Iterable[Trial], most: int, aim: float) -> list[Batch]:
    """Return batches of trials that may share one, the longest work first.

    The batches depend on the trials only, never on the number of workers, so that
    any number of workers computes the same bits.

    Parameters
    ----------
    planned : iterable of Trial
        Trials without repeated keys.
    most : int
        Most trials in a batch.
    aim : float
        Work of one batch, without what its trials share; 1e8 is about a second.
    """
    kinds: defaultdict[Kind, list[Trial]] = defaultdict(list)
    for one in planned:
        kinds[one.kind].append(one)
    batches: list[Batch] = []
    for members in kinds.values():
        # Parts of nearly equal length.
        count = _count(members[0], len(members), most, aim)
        cuts = [len(members) * i // count for i in range(count + 1)]
        batches += [tuple(members[a:b]) for a, b in pairwise(cuts)]
    return sorted(batches, key=work_of, reverse=True)


def work_of(batch: Batch) -> float:
    """Return the work of a batch, in the unit of `Trial.work`."""
    return batch[0].work.batch(len(batch))


def batch_size(one: Trial, members: int, most: int, aim: float) -> int:
    """Return the most trials in a batch of `members` trials of the kind of one."""
    return math.ceil(members / _count(one, members, most, aim))


def _count(one: Trial, members: int, most: int, aim: float) -> int:
    """Return the number of batches of some trials of a kind."""
    if not one.setting.batch_key.batchable:
        return members
    own, shared = one.work
    # Each part of a batch would do again what its trials share.
    size = most if own <= 0 else int(min(max(aim, GAIN * shared) / own, most))
    return math.ceil(members / max(size, min(LEAST, most)))


class Pool:
    """The workers of a run: what they do is in a ledger, and an engine carries it.

    Any number of workers, one too, are processes: all compute the same bits, and a
    crash never reaches the parent.

    Parameters
    ----------
    engine : Engine
        Who carries the tasks.
    job : Job
        What the workers must know.
    """

    def __init__(self, engine: Engine, job: Job) -> None:
        self.engine, self._ledger = engine, Ledger(job)
        self._on_sigterm: Any = None
        self._engines = contextlib.ExitStack()
        self._started = False
        self._hosts: defaultdict[str, set[str]] = defaultdict(set)
        self._lost = 0

    def __enter__(self) -> Pool:
        """Have SIGTERM end the run as Ctrl-C does."""
        if threading.current_thread() is threading.main_thread():
            self._on_sigterm = signal.signal(signal.SIGTERM, _terminated)
        return self

    def __exit__(self, *error: Any) -> None:
        """End the workers, at once after an exception."""
        self._engines.__exit__(*error)
        if self._on_sigterm is not None:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self, batches: Iterable[Batch]) -> Iterator[list[Outcome]]:
        """Yield the outcomes of batches as they come in, those of a task together.

        The engine starts with the first: who has nothing to do asks no cluster.

        Raises
        ------
        UsageError
            If the results folder cannot be written, no worker can be started, or all
            of them are lost.
        """
        if not self._started:
            self._engines.enter_context(self.engine)
            self._ledger.slots, self._started = self.engine.slots, True
        self._ledger.add(batches)
        while len(self._ledger):
            for number, answer in self.engine.answers(self._ledger):
                if answer is None:
                    self._lost += 1
                else:
                    machine, _, process = answer.host.rpartition(":")
                    self._hosts[machine].add(process)
                if outcomes := self._ledger.settle(number, answer):
                    yield outcomes

    def facts(self) -> dict[str, Any]:
        """Return what a manifest says of hosts.

        `hosts`: how many have answered on each machine, and its kind of CPU where it
        was told; `lost_tasks`: how many were lost with theirs.
        """
        hosts: dict[str, dict[str, Any]] = {}
        for machine, ones in sorted(self._hosts.items()):
            cpu = self.engine.cpus.get(machine)
            hosts[machine] = {"hosts": len(ones), **({"cpu": cpu} if cpu else {})}
        return {"hosts": hosts, "lost_tasks": self._lost}


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


OTHERS = ("skipped", "diverged")
SHOWN = 8
"""Reasons of a status that are listed."""
MOST = 1000
"""Records of earlier runs that are read for their reasons."""


class Reasons:
    """Why trials are not ok: distinct first lines of messages with their counts."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.first: dict[str, str] = {}
        self.earlier: dict[str, str] = {}

    def add(self, status: str, message: str) -> None:
        """Count a trial of a status; the first message of each is kept whole."""
        line = message.partition("\n")[0]
        self.counts.setdefault(status, Counter())[line] += 1
        self.first.setdefault(status, message)

    def recorded(self, key: str, status: str) -> None:
        """Note a trial that an earlier run has left with a status."""
        if status not in ("ok", "planned"):
            self.earlier[key] = status

    def lines(self, store: Store) -> Iterator[str]:
        """Yield a line per status, and one per reason where there are several.

        Of what earlier runs have left, `MOST` records are read.
        """
        keys = [*self.earlier][:MOST]
        for key, record in zip(keys, store.records(keys), strict=True):
            self.add(self.earlier[key], str((record or {}).get("message", "")))
        for status in (*FAILED, *OTHERS):
            found = self.counts.get(status)
            if not found:
                continue
            total, several = f"{status}: {found.total()} trials", len(found) > 1
            if status in FAILED:
                yield f"{total}, the first: {self.first[status]}"
            else:
                yield total if several else f"{total}: {self.first[status]}"
            if several:
                for reason, number in found.most_common(SHOWN):
                    yield f"  {number} x {reason}"
                if len(found) > SHOWN:
                    yield f"  and {plural(len(found) - SHOWN, 'other reason')}"
        if unread := len(self.earlier) - len(keys):
            yield f"and {plural(unread, 'trial')} that ended so in earlier runs"


STEPS = 20
QUIET = 0.5
"""Seconds between two lines at least, the last line excepted."""

FIRST, PAUSE = 3.0, 60.0
"""Seconds from the start to the first line, and between two of them at most."""


def say(text: str) -> None:
    """Print a line on stderr; that nobody can read it is no reason to end a sweep."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def awaited(text: str, enabled: bool) -> Iterator[None]:
    """Say what is done within, if that takes more than `FIRST` seconds."""
    timer = threading.Timer(FIRST, say, [text])
    timer.daemon = True
    if enabled:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Progress:
    """Count trials done and failed, and show them.

    Parameters
    ----------
    title : str
        What is counted.
    enabled : bool
        Whether to show anything.
    total : int
        Trials expected; it grows if more are announced.
    workers : function, optional
        Returns how many there are; it is not shown without.
    begun : float, optional
        When the run began, by `time.monotonic`; now by default. Elsewhere than on a
        terminal there is a line `FIRST` seconds after that, and then at least every
        `PAUSE` seconds, be it that no trial has ended.
    """

    def __init__(
        self,
        title: str,
        enabled: bool,
        total: int,
        workers: Callable[[], int] | None = None,
        begun: float | None = None,
    ) -> None:
        # A folder may be called anything, and Python filters no controls.
        self.title, self.enabled, self.total = escaped(title), enabled, total
        self._workers = workers
        self.done = self.failed = self.ran = self.announced = 0
        self._bar: Any = None
        self._task: Any = None
        self._step = 0
        self._start = self._last = time.monotonic()
        self._begun = self._start if begun is None else begun
        self._lock, self._over = threading.Lock(), threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        """Open the bar if stderr is a terminal."""
        if self.enabled and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            columns = (progress.BarColumn(), progress.MofNCompleteColumn())
            self._bar = progress.Progress(
                # A name is a text, not markup.
                progress.TextColumn("{task.description}", markup=False),
                *columns,
                "{task.fields[failed]} failed{task.fields[alive]}",
                progress.TimeRemainingColumn(),
                console=Console(file=getattr(sys.stderr, "inside", sys.stderr)),
                refresh_per_second=5,
            )
            fields = {"failed": 0, "alive": self._alive()}
            self._task = self._bar.add_task(self.title, total=self.total, **fields)
            self._bar.start()
        elif self.enabled:
            self._clock.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close the bar, stop the clock."""
        self._over.set()
        if self._bar is not None:
            self._bar.stop()
        elif self.enabled:
            self._clock.join()

    def _tick(self) -> None:
        # What is recorded already is counted in no time.
        due = max(QUIET, self._begun + FIRST - time.monotonic())
        while not self._over.wait(due):
            with self._lock:
                since = time.monotonic() - self._last
                if self._last == self._start or since >= PAUSE:
                    # Who counts workers may be at it when one comes.
                    with contextlib.suppress(RuntimeError):
                        self._print()
                    since = 0.0
            due = PAUSE - since

    def announce(self, recorded: int, todo: int) -> None:
        """Count the trials of a round: those recorded earlier are done."""
        self.announced += recorded + todo
        self.total = max(self.total, self.announced)
        self.done += recorded
        self._step = STEPS * self.done // max(self.total, 1)
        if self._bar is not None:
            self._bar.update(self._task, total=self.total, completed=self.done)

    def advance(self, statuses: Iterable[str]) -> None:
        """Count the trials of a batch."""
        statuses = list(statuses)
        self.done += len(statuses)
        self.ran += len(statuses)
        self.failed += sum(status in FAILED for status in statuses)
        if self._bar is not None:
            fields = {"failed": self.failed, "alive": self._alive()}
            self._bar.update(self._task, completed=self.done, **fields)
        elif self.enabled:
            self._line()

    def _line(self) -> None:
        step = STEPS * self.done // max(self.total, 1)
        with self._lock:
            soon = time.monotonic() - self._last < QUIET and self.done < self.total
            if step != self._step and not soon:
                self._step = step
                self._print()

    def _print(self) -> None:
        self._last = time.monotonic()
        spent, left = self._last - self._start, "time left not known yet"
        if self.ran:
            left = f"{spent / self.ran * (self.total - self.done):.0f} s left"
        say(
            f"{self.title}: {100 * self.done // max(self.total, 1)} % "
            f"({self.done} of {self.total} trials, {self.failed} failed"
            f"{self._alive()}, {spent:.0f} s, {left})"
        )

    def _alive(self) -> str:
        """Return how many workers there are, to follow other words."""
        if self._workers is None:
            return ""
        number = self._workers()
        return f", {number} worker{'s' * (number != 1)}"


Label = tuple[str, str]
"""Panel and line."""

Stages = tuple[Iterator[list[Trial] | None], Iterable[Trial]]
Blocks = Sequence[Mapping[str, Any]]


class Session:
    """The state of a run; the store alone would do to rebuild it.

    Parameters
    ----------
    name : str
        Of the experiment.
    folder : Path
        The results folder.
    options : RunOptions
        How to run.
    blocks : sequence of mapping
        What to run, see `experiment`.

    Raises
    ------
    UsageError
        For any value of a block out of range or unknown name.
    """

    def __init__(
        self, name: str, folder: Path, options: RunOptions, blocks: Blocks = ()
    ) -> None:
        self.begun = time.monotonic()
        self.name, self.folder, self.options = name, folder, options
        self.run = new_run_id()
        self.pool: Pool | None = None
        self.store = Store(folder)
        self.plan = Plan(folder, options.append_plan)
        self.statuses: dict[str, str] = {}
        self.finals: dict[str, Mapping[str, float]] = {}
        self.reasons = Reasons()
        self.skipped: dict[str, str] = {}
        self.ran = 0
        self.damaged: dict[str, int | str] = {}
        self.digest = sha256(f"{name} {options.append_plan}".encode())
        self._lines: dict[tuple[str, ...], set[str]] = {}
        self._unwritten: list[Trial] = []
        self.blocks = blocks
        self.lines, self.missing = expand(blocks)
        asked = Asked(folder, options.mode != "plan")
        self.tuners = tuners_of(self.lines, options.n_checkpoints, self.finals, asked)
        self._tuning: list[Batch] = []

    def expected(self) -> Counter[Label]:
        """Return the number of trials of each line if no axis is extended."""
        expected: Counter[Label] = Counter()
        for line in self.lines:
            if line.tune is None:
                expected[line.called] += len(line.seeds) * len(line.settings)
        for tuner in self.tuners:
            expected[tuner.line.called] += tuner.expected()
        return expected

    def stages(self) -> Iterator[list[Trial]]:
        """Yield the trials of each round, those of all lines together.

        A tuner goes on as soon as all trials of its last stage have a status. The
        caller announces a round, and runs it if it means to, before it asks for the
        next.
        """
        rows = self.options.n_checkpoints
        sweeps = [line for line in self.lines if line.tune is None]
        yield [one for line in sweeps for one in line.sweep(rows)]
        active: list[Stages] = [(tuner.stages(), []) for tuner in self.tuners]
        while active := [one for one in active if self._settled(one[1])]:
            rounds = [(stages, next(stages, ())) for stages, _ in active]
            if all(stage is None for _, stage in rounds):
                return
            yield [one for _, stage in rounds for one in stage or ()]
            active = [(stages, stage or ()) for stages, stage in rounds if stage != ()]

    def _settled(self, planned: Iterable[Trial]) -> bool:
        return all(self.statuses[one.key] != "planned" for one in planned)

    def announce(self, planned: Iterable[Trial]) -> tuple[list[Trial], list[Trial]]:
        """Take new trials into the plan; return them, and those that are to do.

        A trial wanted by two lines is to do once. The batches of a tuning stage depend
        on the stage alone: of one that was torn all trials are to do again.
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
            self.reasons.recorded(key, status)
        tuning = [one for one in first.values() if one.phase == "tune"]
        if any(self.statuses[one.key] == "planned" for one in tuning):
            for batch in self._batches(tuning):
                if any(self.statuses[one.key] == "planned" for one in batch):
                    self.statuses.update((one.key, "planned") for one in batch)
                    for one in batch:
                        self.reasons.earlier.pop(one.key, None)
                    self._tuning.append(batch)
        todo = [o for o in first.values() if self.statuses[o.key] == "planned"]
        self._unwritten += new
        self._read_finals(new)
        return new, todo

    def _read_finals(self, new: Iterable[Trial]) -> None:
        """Read what tuners decide by, of all trials that are recorded, in one go."""
        keys = [
            one.key
            for one in new
            if one.phase == "tune"
            and one.key not in self.finals
            and self.statuses[one.key] != "planned"
        ]
        for key, record in zip(keys, self.store.records(keys), strict=True):
            self.finals[key] = finals_of(record)
            if record is not None and record["status"] == "skipped":
                self.skipped[key] = str(record["message"])

    def run_stages(self, early: Worker | None) -> None:
        """Run every round of an experiment; the workers stay between rounds."""
        options = self.options
        limits = (options.time_limit, options.worker_memory, secrets.token_hex(16))
        job = Job(str(self.folder), self.run, options.execute, *limits)
        # A host's last words are looked up in its log.
        shows = options.output or options.engine == "dask"
        job = job._replace(code=package_state(), shows=shows)
        engine = engine_of(options, options.n_jobs, early)
        workers = None if options.engine == "local" else lambda: engine.slots
        total = self.expected().total()
        shown = (self.name, options.progress, total, workers, self.begun)
        with Pool(engine, job) as self.pool, Progress(*shown) as progress:
            for number, planned in enumerate(self.stages()):
                known = len(self.statuses)
                new, todo = self.announce(planned)
                distinct = len(self.statuses) - known
                # What is wanted twice runs once; sweeps are all in the first round.
                progress.total -= len(new if number else planned) - distinct
                progress.announce(distinct - len(todo), len(todo))
                if todo:
                    self.write_plan()
                    self.execute(todo, self.pool, progress)
        self._lines.clear()

    def execute(self, todo: list[Trial], pool: Pool, progress: Progress) -> None:
        """Run trials, keep their status and what tuners choose by."""
        others = self._batches(one for one in todo if one.phase != "tune")
        batches = sorted([*self._tuning, *others], key=work_of, reverse=True)
        self._tuning = []
        for outcomes in pool.run(batches):
            check_run(self.folder, self.run)
            for key, status, finals, message in outcomes:
                # Of 10^6 outcomes each would have a text of its own.
                self.statuses[key] = sys.intern(status)
                if self.tuners:
                    self.finals[key] = finals
                if status != "ok":
                    self.reasons.add(status, message)
                if status == "skipped":
                    self.skipped[key] = message
            self.ran += len(outcomes)
            progress.advance(outcome.status for outcome in outcomes)

    def _batches(self, trials: Iterable[Trial]) -> list[Batch]:
        """Return batches; reports have a size of their own, where one is asked for."""
        most: defaultdict[int, list[Trial]] = defaultdict(list)
        for one in trials:
            most[self.options.most_of(one.phase)].append(one)
        aim = self.options.batch_work
        return [b for size, ones in most.items() for b in batches_of(ones, size, aim)]

    def counts(self) -> dict[str, int]:
        """Return the number of distinct trials by status."""
        return dict(sorted(Counter(self.statuses.values()).items()))

    def write_plan(self) -> None:
        """Write what was announced since the last call."""
        self.plan.add(one.row(self.name) for one in self._unwritten)
        self._unwritten = []
