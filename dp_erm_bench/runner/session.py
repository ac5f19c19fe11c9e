"""One run of an experiment: what is asked, planned, recorded, and to do."""

import functools
import itertools
import secrets
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from dp_erm_bench.definitions import package_sources
from dp_erm_bench.experiment.expand import expand
from dp_erm_bench.experiment.lines import Trial
from dp_erm_bench.experiment.tune import tuners_of
from dp_erm_bench.results.runs import check_run, new_run_id
from dp_erm_bench.results.store import Asked, Plan, Store, finals_of
from dp_erm_bench.runner.engines.choice import engine_of
from dp_erm_bench.runner.handshake import needs_of
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.pool import Pool, batches_of, work_of
from dp_erm_bench.runner.process import Worker
from dp_erm_bench.runner.progress import Progress
from dp_erm_bench.runner.summary import Reasons
from dp_erm_bench.runner.worker import Batch, Job

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
                expected[line.label] += len(line.seeds) * len(line.settings)
        for tuner in self.tuners:
            expected[tuner.line.label] += tuner.expected()
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
            status = self.store.index.status(key) or "planned"
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
        job = job._replace(code=package_sources().state, shows=shows)
        needs = functools.partial(needs_of, self.lines)
        engine = engine_of(options, options.n_jobs, early, needs)
        workers = None if options.engine == "local" else lambda: engine.slots
        total = self.expected().total()
        shown = (self.name, options.progress, total, workers, self.begun)
        with Pool(engine, job) as self.pool, Progress(*shown) as progress:
            for planned in self.stages():
                new, todo = self.announce(planned)
                progress.announce(len(new) - len(todo), len(todo))
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
