"""The pool with workers that are played: sizes of tasks, and deaths at any moment."""

import itertools
import signal
import statistics
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.results.segment import Traces
from dp_erm_bench.runner import pool as module
from dp_erm_bench.runner.pool import Pool
from dp_erm_bench.runner.worker import TASK_SECONDS, Job, Outcome, Report

DEATHS = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGALRM, -40, 7)


class World:
    """Workers that are played: what each trial costs, and who dies of what, when."""

    def __init__(self, monkeypatch, cost, deadly=(), outside=None):
        self.cost = cost
        self.deadly = dict(deadly)
        self.outside = outside
        self.ticks = itertools.count()
        self.players = []
        self.traces = {}
        self.spans = []
        monkeypatch.setattr(module, "Worker", lambda: Player(self))
        monkeypatch.setattr(module, "awaited", lambda busy: busy)
        monkeypatch.setattr(module, "traces_of", lambda f, r, pid: self.traces[pid])

    def fate(self, batch):
        """Return the exit code of a worker that runs a batch, None if it lives."""
        if self.outside is not None and next(self.ticks) == self.outside:
            return -signal.SIGKILL
        return next((self.deadly[t.key] for t in batch if t.key in self.deadly), None)


class Player:
    """Stands for a worker process."""

    def __init__(self, world):
        self.world = world
        self.pid = len(world.players)
        self.worked = 0.0
        world.players.append(self)
        self.task, self.alone, self.code = (), False, None
        self.owner, self.overdue = "", False
        self.pipe = SimpleNamespace(close=lambda: None)
        world.traces[self.pid] = Traces({}, {})

    def give(self, task, job, alone=False):
        self.task, self.alone = task, alone
        others = [one for one in self.world.players if one is not self]
        assert not (alone and any(one.task and one.code is None for one in others))

    @property
    def report(self):
        seconds, outcomes, done = 0.0, [], 0
        traces = self.world.traces[self.pid]
        while done < len(self.task) and seconds < TASK_SECONDS:
            batch = self.task[done]
            traces.begun.update({trial.key: 1.0 for trial in batch})
            self.code = self.world.fate(batch)
            if self.code is not None:
                return None
            traces.records.update(
                {trial.key: {"key": trial.key, "status": "ok"} for trial in batch}
            )
            outcomes += [Outcome(trial.key, "ok", 1.0) for trial in batch]
            seconds += self.world.cost(batch)
            done += 1
        self.worked += seconds
        self.world.spans.append(seconds)
        return Report(outcomes, done, seconds)

    def end(self, patience=1.0):
        return self.code or 0


def batches_of(*sizes):
    keys = (f"{number:064x}" for number in itertools.count())
    return [
        tuple(SimpleNamespace(key=next(keys), owner="") for _ in range(size))
        for size in sizes
    ]


def played(folder, batches, n_jobs=2, limit=60.0):
    """Return the outcomes of all trials; each has exactly one."""
    with Pool(n_jobs, Job(str(folder), "1", "fakes.bowl", limit)) as pool:
        found = [outcome for outcomes in pool.run(batches) for outcome in outcomes]
    assert sorted(o.key for o in found) == sorted(t.key for b in batches for t in b)
    return {outcome.key: outcome.status for outcome in found}


@pytest.mark.parametrize("n_jobs", [1, 2, 7])
@pytest.mark.parametrize("cost", [1e-3, 0.03, 0.4])
def test_tasks_take_about_a_second(tmp_path, monkeypatch, cost, n_jobs):
    world = World(monkeypatch, lambda batch: cost)
    count = int(20 * n_jobs / cost)
    played(tmp_path, batches_of(*[1] * count), n_jobs)
    assert max(world.spans) < TASK_SECONDS + 2 * cost
    grown = [span for span in world.spans if span > 0.5]
    assert sum(grown) > 0.8 * count * cost
    assert statistics.median(world.spans) > 0.4


def test_a_batch_as_long_as_a_task_comes_alone(tmp_path, monkeypatch):
    world = World(monkeypatch, lambda batch: 3.0)
    played(tmp_path, batches_of(*[4] * 9))
    assert world.spans == [3.0] * 9


def test_long_batches_after_short_ones_are_shared(tmp_path, monkeypatch):
    world = World(monkeypatch, lambda batch: 2.0 if len(batch) == 3 else 1e-3)
    played(tmp_path, batches_of(*[1] * 5000, *[3] * 60))
    assert max(world.spans) < TASK_SECONDS + 2.0
    assert sum(span >= 2.0 for span in world.spans) == 60


@pytest.mark.parametrize("n_jobs", [2, 3, 5])
def test_no_worker_takes_what_another_could_do(tmp_path, monkeypatch, n_jobs):
    world = World(monkeypatch, lambda batch: 0.01)
    played(tmp_path, batches_of(*[1] * 50 * n_jobs), n_jobs)
    worked = [player.worked for player in world.players]
    assert len(worked) == n_jobs
    assert max(worked) < 1.3 * min(worked)


def test_a_trial_is_killed_at_its_second_death_and_timed_out_at_its_first(
    tmp_path, monkeypatch
):
    first, second = batches_of(1, 4)
    deadly = {first[0].key: -9, second[2].key: -signal.SIGALRM}
    world = World(monkeypatch, lambda batch: 1.0, deadly)
    found = played(tmp_path, [first, second])
    assert sum(player.code is not None for player in world.players) == 4
    assert list(map(found.get, deadly)) == ["killed", "timeout"]
    assert sorted(found.values()) == ["killed", "ok", "ok", "ok", "timeout"]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=20),
    st.dictionaries(st.integers(0, 99), st.sampled_from(DEATHS), max_size=5),
    st.integers(0, 60),
    st.integers(1, 3),
    st.sampled_from([1e-3, 0.4, 2.0]),
    st.sampled_from([None, 60.0]),
)
def test_whoever_dies_when_each_trial_has_one_end(
    tmp_path_factory, sizes, deadly, outside, n_jobs, cost, limit
):
    """One kill from outside, at any moment, makes no innocent trial guilty."""
    deadly = {f"{number:064x}": code for number, code in deadly.items()}
    with pytest.MonkeyPatch.context() as patch:
        World(patch, lambda batch: cost, deadly, outside)
        folder = tmp_path_factory.mktemp("played")
        found = played(folder, batches_of(*sizes), n_jobs, limit)
    alarm = "timeout" if limit else "killed"
    names = {-signal.SIGALRM: alarm, None: "ok"}
    assert found == {key: names.get(deadly.get(key), "killed") for key in found}
