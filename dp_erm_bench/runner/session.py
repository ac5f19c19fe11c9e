"""One run of an experiment: what is planned, what is recorded, what is to do."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from dp_erm_bench.experiment.expand import Wanted
from dp_erm_bench.experiment.frame import FAILED
from dp_erm_bench.experiment.trials import Planned
from dp_erm_bench.experiment.tune import Tuner
from dp_erm_bench.results.plan import Plan
from dp_erm_bench.results.runs import check_run, new_run_id
from dp_erm_bench.results.store import Store, final_objective
from dp_erm_bench.runner.batches import batches_of
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.pool import Pool
from dp_erm_bench.runner.process import Worker
from dp_erm_bench.runner.progress import Progress
from dp_erm_bench.runner.worker import Job

Stages = tuple[Iterator[list[Planned] | None], Iterable[Planned]]


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
    """

    def __init__(self, name: str, folder: Path, options: RunOptions) -> None:
        self.name = name
        self.folder = folder
        self.options = options
        self.run = new_run_id()
        self.store = Store(folder)
        self.plan = Plan(folder, options.append_plan)
        self.statuses: dict[str, str] = {}
        self.finals: dict[str, float] = {}
        self.messages: dict[str, list[str]] = {}
        self.skipped: dict[str, str] = {}
        self.ran = 0
        self.damaged: dict[str, int | str] = {}
        self._lines: dict[tuple[str, ...], set[str]] = {}
        self._unwritten: list[Planned] = []
        self._digest = sha256(f"{name} {options.append_plan}".encode())

    def announce(
        self, planned: Iterable[Planned]
    ) -> tuple[list[Planned], list[Planned]]:
        """Take new trials into the plan; return them, and those that are to do.

        A trial wanted by two lines is to do once.
        """
        found: list[Planned] = []
        for labels, members in itertools.groupby(planned, lambda one: one.labels):
            known = self._lines.setdefault(labels[:3], set())
            new = [one for one in _distinct(members) if one.key not in known]
            known.update(one.key for one in new)
            keys = "".join(one.key for one in new)
            self._digest.update(f"{labels[:3]}{keys}".encode())
            found += new
        self._unwritten += found
        todo = [one for one in found if self._to_do(one)]
        self._read_finals(found)
        return found, todo

    def execute(self, todo: list[Planned], pool: Pool, progress: Progress) -> None:
        """Run trials, keep their status and final objective."""
        options = self.options
        batches = batches_of(todo, options.batch_trials, options.batch_work)
        for outcomes in pool.run(batches):
            check_run(self.folder, self.run)
            for key, status, final, message in outcomes:
                self.statuses[key], self.finals[key] = status, final
                if status in FAILED:
                    self.messages.setdefault(status, []).append(message)
                elif status == "skipped":
                    self.skipped[key] = message
            self.ran += len(outcomes)
            progress.advance(outcome.status for outcome in outcomes)

    def job(self) -> Job:
        """Return what the workers must know."""
        options = self.options
        known = (str(self.folder), self.run, options.execute)
        limits = (options.time_limit, options.worker_memory)
        return Job(*known, *limits, secrets.token_hex(16))

    def counts(self) -> dict[str, int]:
        """Return the number of distinct trials by status."""
        return dict(sorted(Counter(self.statuses.values()).items()))

    def settled(self, planned: Iterable[Planned]) -> bool:
        """Return whether every one of these trials has been run."""
        return all(self.statuses[one.key] != "planned" for one in planned)

    def plan_digest(self) -> str:
        """Return the digest of all lines planned so far."""
        return self._digest.hexdigest()

    def write_plan(self) -> None:
        """Write what was announced since the last call."""
        self.plan.add(one.row(self.name) for one in self._unwritten)
        self._unwritten = []

    def _to_do(self, one: Planned) -> bool:
        """Give a trial its status; tell whether it is to do and not yet listed."""
        if one.key in self.statuses:
            return False
        entry = self.store.index.get(one.key)
        recorded = entry is not None and entry.status not in self.options.retry
        self.statuses[one.key] = entry.status if entry and recorded else "planned"
        return not recorded

    def _read_finals(self, found: Iterable[Planned]) -> None:
        """Read what tuners decide by, of all trials that are recorded, in one go."""
        keys = [
            one.key
            for one in found
            if one.labels.phase == "tune"
            and one.key not in self.finals
            and self.statuses[one.key] != "planned"
        ]
        for key, record in zip(keys, self.store.records(keys), strict=True):
            self.finals[key] = final_objective(record)
            if record is not None and record["status"] == "skipped":
                self.skipped[key] = str(record["message"])


def _distinct(members: Iterable[Planned]) -> Iterable[Planned]:
    return {one.key: one for one in members}.values()


def stages_of(
    cases: Iterable[Wanted], tuners: Iterable[Tuner], session: Session
) -> Iterator[list[Planned]]:
    """Yield the trials of each round, those of all lines together.

    A tuner goes on as soon as all trials of its last stage have a status. The
    caller announces a round, and runs it if it means to, before it asks for the
    next.
    """
    rows = session.options.n_checkpoints
    sweeps = [case for case in cases if case.tune is None]
    yield [one for case in sweeps for one in case.sweep(rows)]
    active: list[Stages] = [(tuner.stages(), []) for tuner in tuners]
    while active := [one for one in active if session.settled(one[1])]:
        found = [(stages, next(stages, ())) for stages, _ in active]
        if all(stage is None for _, stage in found):
            return
        yield [one for _, stage in found for one in stage or ()]
        active = [(stages, stage or ()) for stages, stage in found if stage != ()]


def run_stages(
    session: Session,
    stages: Iterable[list[Planned]],
    expected: int,
    early: Worker | None = None,
) -> None:
    """Run every round of an experiment; the workers stay between rounds."""
    options = session.options
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(Pool(options.n_jobs, session.job(), early))
        progress = stack.enter_context(
            Progress(session.name, options.progress, expected)
        )
        for planned in stages:
            found, todo = session.announce(planned)
            progress.announce(len(found) - len(todo), len(todo))
            if todo:
                session.write_plan()
                session.execute(todo, pool, progress)
