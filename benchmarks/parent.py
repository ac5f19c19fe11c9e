"""Measure, part by part, what the parent of a run does for every task."""

import json
import queue
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from benchmarks.sweep import block
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import Trial
from dp_erm_bench.experiment.schema import EngineConfig
from dp_erm_bench.results.store import encode_record
from dp_erm_bench.runner.execute import run_batch
from dp_erm_bench.runner.ledger import Answer, Ledger, check_answer
from dp_erm_bench.runner.session import Pool
from dp_erm_bench.runner.worker import Batch, Job, Outcome

HOSTS = 1000


class Played(NamedTuple):
    """A fake trial with the fields that the ledger reads."""

    key: str
    owner: str = ""


def make_batches(number: int) -> list[Batch]:
    """Return batches of one fake trial each, which cannot be run."""
    return [cast(Batch, (Played(f"{key:064x}"),)) for key in range(number)]


def ledger(folder: Path, waiting: int) -> float:
    """Return the CPU seconds to hand out and settle a task of one batch."""
    book = Ledger(Job(str(folder), "1", "nothing"), HOSTS)
    book.add(make_batches(waiting))
    work: deque[int] = deque()
    start = time.process_time()
    for _ in range(10_000):
        number = cast(int, book.take())
        work.append(number)
        if len(work) > HOSTS:
            book.settle(work[0], answer(book, work.popleft()))
    return (time.process_time() - start) / 10_000


def answer(book: Ledger, number: int) -> Answer:
    """Return an answer in which all trials of a task are ok and take a second each."""
    keys = [trial.key for batch in book.batches(number) for trial in batch]
    return Answer(
        number,
        [Outcome(key, "ok", {"objective": 1.0}) for key in keys],
        len(keys) * 1.0,
    )


def example() -> tuple[Trial, bytes]:
    """Return a trial with 51 checkpoints, and the line of its record."""
    lines, _ = expand_blocks([block("seeds", 1, 10)])
    trial = next(lines[0].sweep(51))
    (record,) = run_batch([trial])
    return trial, encode_record(record, 1.0)


def believing(folder: Path, trial: Trial, line: bytes) -> float:
    """Return the parent's CPU seconds per record for checking a large answer."""
    book = Ledger(Job(str(folder), "2", "nothing"))
    keys = [f"{number:064x}" for number in range(100)]
    batch: Batch = tuple(replace(trial, key=key) for key in keys)
    book.add([batch] * 200)
    record = json.loads(line)
    del record["crc"]
    lines = b"".join(encode_record({**record, "key": key}, 1.0) for key in keys)
    answer = Answer(1, [], 1.0, lines=lines)
    start = time.process_time()
    for _ in range(200):
        number = cast(int, book.take())
        book.settle(number, check_answer(answer, book.batches(number)))
    return (time.process_time() - start) / 20_000


class Echo:
    """A fake scheduler, whose busy workers answer one after the other."""

    def __init__(self, hosts: int, value: Callable[[int], object]) -> None:
        self.hosts, self.value = hosts, value
        self._calls: deque[tuple[Callable[[Any], None], int]] = deque()

    def __enter__(self) -> "Echo":
        """Return the object itself; nothing is started."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def threads(self) -> dict[str, int]:
        """Answer all open calls, and return one thread per worker."""
        while self._calls:
            self._end()
        return {f"tcp://10.0.{n // 250}.{n % 250}:9": 1 for n in range(self.hosts)}

    def submit(
        self, address: str, key: str, function: object, argument: bytes, tell: Any
    ) -> Any:
        """Accept a call; if no worker is free, answer the oldest one."""
        self._calls.append((tell, int(key.rpartition("-")[2])))
        if len(self._calls) >= self.hosts:
            self._end()
        return SimpleNamespace(release=lambda: None)

    def _end(self) -> None:
        tell, number = self._calls.popleft()
        tell(self.value(number))


def parent(folder: Path, trial: Trial, line: bytes, hosts: int, tasks: int) -> float:
    """Return the parent's CPU seconds per task, without those of Dask."""
    from dp_erm_bench.runner.engines.dask import DaskEngine
    from dp_erm_bench.runner.environment import own_environment

    told = own_environment()

    def value(number: int) -> object:
        return told, Answer(number, [], 1.0, lines=line)

    engine = DaskEngine(cast(Any, Echo(hosts, value)), 60.0, False)
    start = time.process_time()
    with Pool(engine, Job(str(folder), "3", "nothing")) as pool:
        ends = sum(map(len, pool.run([(trial,)] * tasks)))
    assert ends == tasks
    return (time.process_time() - start) / tasks


def dask(workers: int, calls: int) -> tuple[float, float, float]:
    """Return the seconds to start workers, the calls per second, and the CPU time.

    The CPU time is that of this process in seconds per call. It includes the scheduler,
    as in a run that starts its own workers.
    """
    from dp_erm_bench.runner.engines.dask import Connection

    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    data = b"x" * 2000
    start = time.perf_counter()
    with Connection(EngineConfig(engine="dask"), workers) as connection:
        while len(connection.threads()) < workers:
            time.sleep(0.05)
        started = time.perf_counter() - start
        for address in connection.threads():
            ended.put(address)
        kept: dict[str, Any] = {}
        begin, cpu = time.perf_counter(), time.process_time()
        for number in range(calls):
            address = ended.get()
            if address in kept:
                kept.pop(address).release()

            def tell(_: object, address: str = address) -> None:
                ended.put(address)

            key = f"echo-{number}"
            kept[address] = connection.submit(address, key, bytes, data, tell)
        took = time.perf_counter() - begin
        return started, calls / took, (time.process_time() - cpu) / calls
