"""Measure the time to recover from faults: killed parents, killed workers, hangs."""

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Row, seconds, started, sweep, timed
from dp_erm_bench.results.files import RECORDS

TRIALS = 200
PATIENCE = 20.0


def rows(folder: Path) -> list[Row]:
    """Return rows with the times that real faults cost."""
    fine = seconds(sweep(folder / "fine", "seeds", TRIALS, "--batch", 10))
    killed = faulty(folder / "killed", "killing")
    hung = faulty(folder / "hung", "hanging", "--limit", 1.0)
    what = f"{TRIALS} empty trials"
    return [
        Row("kill -9 of the parent: the last worker ends after", orphans(folder), 1.0),
        Row(f"{what}, start included", fine),
        Row(f"{what}, one kills its worker each time", killed),
        Row(f"{what}, one hangs in native code, limit 1 s", hung),
    ]


def faulty(folder: Path, execute: str, *options: object) -> float:
    """Return the time of a sweep with one faulty trial; all other trials must be ok."""
    given = ("--execute", execute, "--batch", 10, *options)
    taken, said = timed(sweep(folder, "seeds", TRIALS, *given), codes=[1])
    assert f"{TRIALS - 1} ok" in said, said
    return taken


def orphans(folder: Path) -> float:
    """Return how long workers outlive their parent.

    The workers are in native code and hold the interpreter's lock.
    """
    place = folder / "orphans"
    records = place / RECORDS
    options = ("--execute", "holding", "--batch", 5)
    parent = started(sweep(place, "seeds", TRIALS, *options))
    wait_for(lambda: records.is_file() and records.read_bytes().count(b"begin") > 1)
    workers = children(parent.pid)
    assert len(workers) >= 2, workers
    start = time.perf_counter()
    parent.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(alive, workers)))
    taken = time.perf_counter() - start
    parent.wait()
    return taken


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "still not so"
        time.sleep(0.002)


def children(pid: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    found: list[str] = []
    # Any thread may have started a child, and may be gone.
    for threads in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += threads.read_text().split()
    return [one for child in map(int, found) for one in (child, *children(child))]


def alive(pid: int) -> bool:
    """Return whether a process is alive; a zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
