"""Test the ledger with simulated hosts: task sizes, dead workers, lost hosts."""

import heapq
import itertools
import json
import pickle
import signal
import statistics
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results import files
from dp_erm_bench.results.store import RecordWriter, Store, failed_record
from dp_erm_bench.runner.ledger import (
    LOSSES,
    Answer,
    Death,
    HostExit,
    Ledger,
    check_answer,
)
from dp_erm_bench.runner.session import Pool
from dp_erm_bench.runner.worker import TASK_SECONDS, Job, Outcome
from tests.loops import each

DEATHS = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGALRM, -40, 7)


class World:
    """An engine that is played: what trials cost, who dies of what, who is lost.

    Parameters
    ----------
    slots : int
        Hosts.
    cost : callable
        Seconds of a batch.
    deadly : mapping
        Exit code of a worker that runs a trial, by key; None: its host is lost.
    outside : int, optional
        The batch, counted over all, whose worker is killed from outside.
    lives : callable, optional
        Called for each task: whether its host survives it.
    """

    def __init__(self, slots, cost, deadly=(), outside=None, lives=lambda: True):
        self.slots, self.cost, self.deadly = slots, cost, dict(deadly)
        self.outside, self.lives = outside, lives
        self.ticks, self.now, self.lost = itertools.count(), 0.0, 0
        self.worked, self.spans, self.deaths = [0.0] * slots, [], 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def answers(self, ledger):
        tasks, busy, idle = ledger.tasks(), [], list(range(self.slots))
        while True:
            while idle and (number := next(tasks, None)) is not None:
                host = idle.pop()
                seconds, answer = self.answer(number, ledger.batches(number))
                self.worked[host] += seconds
                heapq.heappush(busy, (self.now + seconds, number, host, answer))
            if not busy:
                return
            self.now, number, host, answer = heapq.heappop(busy)
            idle.append(host)
            if answer is None:
                self.lost += 1
                answer = HostExit(f"node{host}", "the end of its log")
            yield number, answer
            tasks = ledger.tasks()

    def answer(self, number, task):
        seconds, outcomes, begun = 0.0, [], {}
        if not self.lives():
            return 0.1, None
        for batch in task:
            begun.update({trial.key: 1.0 for trial in batch})
            fates = [self.deadly[t.key] for t in batch if t.key in self.deadly]
            if next(self.ticks) == self.outside:
                fates.insert(0, -signal.SIGKILL)
            if fates and fates[0] is None:
                return seconds, None
            if fates:
                self.deaths += 1
                death = Death(fates[0], False, begun)
                return seconds, Answer(number, outcomes, seconds, death=death)
            outcomes += [
                Outcome(trial.key, "ok", {"objective": 1.0}) for trial in batch
            ]
            seconds += self.cost(batch)
            if seconds >= TASK_SECONDS:
                break
        self.spans.append(seconds)
        return seconds, Answer(number, outcomes, seconds)


def batches_of(*sizes):
    keys = (f"{number:064x}" for number in itertools.count())
    return [
        tuple(SimpleNamespace(key=next(keys), owner="") for _ in range(size))
        for size in sizes
    ]


def played(folder, batches, world, limit=60.0):
    """Return the status of all trials; each has exactly one."""
    with Pool(world, Job(str(folder), "1", "fakes.bowl", limit)) as pool:
        found = [outcome for outcomes in pool.run(batches) for outcome in outcomes]
    assert sorted(o.key for o in found) == sorted(t.key for b in batches for t in b)
    return {outcome.key: outcome.status for outcome in found}


@pytest.mark.parametrize("slots", [1, 2, 7])
@pytest.mark.parametrize("cost", [1e-3, 0.03, 0.4])
def test_tasks_take_about_a_second(tmp_path, cost, slots):
    world = World(slots, lambda batch: cost)
    count = int(20 * slots / cost)
    played(tmp_path, batches_of(*[1] * count), world)
    assert max(world.spans) < TASK_SECONDS + 2 * cost
    grown = [span for span in world.spans if span > 0.5]
    assert sum(grown) > 0.8 * count * cost
    assert statistics.median(world.spans) > 0.4


def test_a_batch_as_long_as_a_task_comes_alone(tmp_path):
    world = World(2, lambda batch: 3.0)
    played(tmp_path, batches_of(*[4] * 9), world)
    assert world.spans == [3.0] * 9


def test_long_batches_after_short_ones_are_shared(tmp_path):
    world = World(2, lambda batch: 2.0 if len(batch) == 3 else 1e-3)
    played(tmp_path, batches_of(*[1] * 5000, *[3] * 60), world)
    assert max(world.spans) < TASK_SECONDS + 2.0
    assert sum(span >= 2.0 for span in world.spans) == 60


@pytest.mark.parametrize("slots", [2, 3, 5])
def test_no_host_takes_what_another_could_do(tmp_path, slots):
    world = World(slots, lambda batch: 0.01)
    played(tmp_path, batches_of(*[1] * 50 * slots), world)
    assert max(world.worked) < 1.3 * min(world.worked)


def test_a_trial_is_killed_at_its_second_death_and_timed_out_at_its_first(tmp_path):
    first, second = batches_of(1, 4)
    deadly = {first[0].key: -9, second[2].key: -signal.SIGALRM}
    world = World(2, lambda batch: 1.0, deadly)
    found = played(tmp_path, [first, second], world)
    assert world.deaths == 4
    assert list(map(found.get, deadly)) == ["killed", "timeout"]
    assert sorted(found.values()) == ["killed", "ok", "ok", "ok", "timeout"]


def test_a_trial_that_is_lost_with_its_hosts_is_killed_with_the_end_of_a_log(tmp_path):
    batches = batches_of(*[3] * 30)
    culprit = batches[4][1].key
    world = World(2, lambda batch: 0.1, {culprit: None})
    found = played(tmp_path, batches, world)
    assert [key for key, status in found.items() if status != "ok"] == [culprit]
    # With its task, three times with its batch, three times by itself.
    assert world.lost in (2 * LOSSES, 2 * LOSSES + 1)
    message = Store(tmp_path).record(culprit)["message"]
    assert f"lost with its host {LOSSES} times, the last node" in message
    assert message.endswith("the end of its log")


def test_a_batch_whose_host_was_lost_by_chance_is_not_split(tmp_path):
    batches = batches_of(*[4] * 10)
    fates = iter([True, True, False])
    world = World(2, lambda batch: 0.4, lives=lambda: next(fates, True))
    ledger_sees = []
    answer = world.answer
    world.answer = lambda number, task: (
        ledger_sees.extend(map(len, task)) or answer(number, task)
    )
    assert set(played(tmp_path, batches, world).values()) == {"ok"}
    assert world.lost == 1 and set(ledger_sees) == {4}


def test_more_culprits_than_hosts_are_all_accused(tmp_path):
    """They are lost one after the other; no host is to blame for that."""
    batches = batches_of(*[32] * 50)
    culprits = {f"{number:064x}" for number in range(0, 1600, 40)}
    world = World(2, lambda batch: 0.1, dict.fromkeys(culprits))
    found = played(tmp_path, batches, world)
    assert {key for key, status in found.items() if status != "ok"} == culprits


@pytest.mark.parametrize("hosts", [2, 1000])
def test_the_culprit_of_a_calm_cluster_is_lost_three_times(tmp_path, hosts):
    batches = batches_of(*[1] * 5000)
    culprit = batches[11][0].key
    world = World(hosts, lambda batch: 1.0, {culprit: None})
    found = played(tmp_path, batches, world)
    assert world.lost == LOSSES
    assert [key for key, status in found.items() if status != "ok"] == [culprit]
    message = Store(tmp_path).record(culprit)["message"]
    assert message.startswith("lost with its host 3 times, the last node")


def lost(ledger, batch=None, **end):
    """Lose the next task that the ledger hands out with its host."""
    number = ledger.take()
    assert batch is None or ledger.batches(number) == [batch]
    return ledger.settle(number, HostExit("node", **end))


def test_tasks_that_are_lost_together_run_again_alone(tmp_path):
    """Which of them is to blame is seen only then."""
    ledger = Ledger(Job(str(tmp_path), "1", "fakes.bowl"))
    first, second = batches_of(1, 1)
    for _ in range(LOSSES):
        ledger.add([first, second])
        both = [ledger.take(), ledger.take()]
        for number in both:
            assert ledger.settle(number, HostExit("node", joint=True)) == []
        alone = ledger.take()
        assert ledger.batches(alone) == [first] and ledger.take() is None
        ledger.settle(alone, Answer(alone, [Outcome(first[0].key, "ok", {})]))
        alone = ledger.take()
        assert ledger.batches(alone) == [second]
        ledger.settle(alone, Answer(alone, [Outcome(second[0].key, "ok", {})]))
    ledger.add([first])
    assert lost(ledger, joint=True) == []
    assert lost(ledger, first, joint=True) == lost(ledger, first, joint=True) == []
    (accused,) = lost(ledger, first, joint=True)
    assert (accused.key, accused.status) == (first[0].key, "killed")


def test_hosts_that_are_all_lost_end_the_run_with_a_sentence(tmp_path):
    world = World(2, lambda batch: 1.0, lives=lambda: False)
    with pytest.raises(UsageError, match="47 hosts in a row were lost"):
        played(tmp_path, batches_of(*[1] * 100), world)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=20),
    st.dictionaries(st.integers(0, 99), st.sampled_from([*DEATHS, None]), max_size=5),
    st.integers(0, 60),
    st.integers(1, 3),
    st.sampled_from([1e-3, 0.4, 2.0]),
    st.sampled_from([None, 60.0]),
)
def test_whoever_dies_when_each_trial_has_one_end(
    tmp_path_factory, sizes, deadly, outside, slots, cost, limit
):
    """One kill from outside, at any moment, makes no innocent trial guilty."""
    deadly = {f"{number:064x}": code for number, code in deadly.items()}
    world = World(slots, lambda batch: cost, deadly, outside)
    folder = tmp_path_factory.mktemp("played")
    found = played(folder, batches_of(*sizes), world, limit)
    alarm = "timeout" if limit else "killed"
    names = {-signal.SIGALRM: alarm}
    expected = {key: names.get(deadly[key], "killed") for key in deadly}
    assert found == {key: expected.get(key, "ok") for key in found}


def test_what_was_put_back_is_next(tmp_path):
    ledger = Ledger(Job(str(tmp_path), "1", "fakes.bowl"))
    batches = batches_of(1, 1, 1)
    ledger.add(batches)
    first, second = ledger.take(), ledger.take()
    ledger.put_back(second)
    ledger.put_back(first)
    assert [ledger.batches(ledger.take())[0] for _ in range(3)] == batches
    assert ledger.take() is None and len(ledger) == 3


def lines(folder, *batches):
    """Return marks and records as a worker writes them."""
    writer = RecordWriter(folder, "1")
    for batch in batches:
        keys = [trial.key for trial in batch]
        writer.begin(keys)
        writer.append([failed_record(key, "error", "why\nwhere") for key in keys])
    return (folder / files.RECORDS).read_bytes()


def test_the_outcomes_of_an_answer_are_those_of_its_records(tmp_path):
    task = batches_of(2, 1)
    death = Death(-9, True, {task[0][0].key: 2.5})
    sent = Answer(7, [], 0.5, "", death, lines(tmp_path, *task))
    got = check_answer(pickle.loads(pickle.dumps(sent)), task)
    assert got._replace(outcomes=[]) == sent
    assert [(o.key, o.status) for o in got.outcomes] == [
        (trial.key, "error") for batch in task for trial in batch
    ]


@pytest.mark.parametrize("harm", ["byte", "torn", "foreign", "mark", "text", "twice"])
def test_an_answer_that_is_damaged_or_of_another_task_is_none(tmp_path, harm):
    task, other = batches_of(2, 1)
    whole = lines(tmp_path, task)
    harmed = {
        "byte": whole.replace(b"error", b"errot", 1),
        "torn": whole[:-3],
        "mark": whole.replace(b'{"begin":["0', b'{"begin":["f', 1),
        "twice": whole + whole,
    }
    answer = Answer(7, [], lines=harmed.get(harm, whole))
    wanted = [other] if harm == "foreign" else [task]
    with pytest.raises(ValueError, match="answer"):
        check_answer("text" if harm == "text" else answer, wanted)


RECORD = {"status": "ok", "message": "", "facts": {}, "trajectory": {}}


def sealed(value):
    return files.add_checksum(files.compact_json(value))


@each(
    "line",
    [
        {"begin": None},
        {"begin": [["KEY"]]},
        {"key": ["KEY"], **RECORD},
        {"key": "KEY", **RECORD, "status": "fine"},
        {"key": "KEY", **RECORD, "status": ["ok"]},
        {"key": "KEY", "trajectory": {}},
        {"key": "KEY", **RECORD, "trajectory": [1]},
    ],
)
def test_an_answer_with_values_of_other_types_is_none(line):
    """A solver may write into its worker's file: that costs its task, not the run."""
    (task,) = batches_of(1)
    text = json.dumps(line).replace("KEY", task[0].key)
    with pytest.raises(ValueError, match="answer"):
        check_answer(Answer(7, [], lines=sealed(json.loads(text))), [task])


def test_an_empty_answer_is_none():
    with pytest.raises(ValueError, match="answer"):
        check_answer(Answer(7, []), batches_of(1))


def test_what_an_answer_says_is_wrong_has_an_end():
    long = Answer(7, [], problem="x" * 10**6)
    assert len(check_answer(long, []).problem) < 2000


def test_the_log_of_a_lost_host_has_an_end(tmp_path):
    ledger = Ledger(Job(str(tmp_path), "1", "fakes.bowl"))
    ledger.add(batches_of(1))
    accusation = []
    while not accusation:
        number = ledger.take()
        accusation = ledger.settle(number, HostExit("node", "x" * 10**6))
    (record,) = Store(tmp_path).records([accusation[0].key])
    assert record["message"].startswith("lost with its host 3 times, the last node\nx")
    assert len(record["message"]) < 20_000
