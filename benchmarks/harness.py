"""Measure the overhead of running trials, here and in other harnesses."""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import compute, faults, others, regret
from benchmarks.measure import (
    Row,
    print_table,
    seconds,
    started,
    sweep,
    timed,
    usual,
)
from dp_erm_bench.results.files import RECORDS

KINDS = {"seeds": "seeds of one setting", "settings": "every trial its own setting"}
COMMAND = [sys.executable, "-m", "dp_erm_bench"]
SWEEP = [
    *("dataset=log1", "dataset.n=60", "dataset.p=5", "algorithm=random_cd"),
    *("algorithm.random_cd.clip=1", "algorithm.random_cd.passes=1"),
    *("budget.epsilon=1", "seed=range(0,100)", "runner.progress=false"),
]


def run(given: argparse.Namespace) -> None:
    """Measure and print the table of docs/costs.md."""
    few, many = (1000, 10_000) if given.quick else (10_000, 100_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Run once before, so that the machine code is in the cache.
        seconds(sweep(folder / "warm", "seeds", 2, "--execute", "solver"))
        found = [others.hydra(folder / "hydra")]
        if given.benchopt is not None:
            found.insert(0, others.benchopt(folder / "benchopt", given.benchopt))
        rows = [*overheads(folder, few), *reruns(folder, many), *starts(folder)]
        rows += [*faults.rows(folder), *compute.rows(), *regret.rows()]
        print_table(rows, found)


def overheads(folder: Path, trials: int) -> list[Row]:
    """Return rows with the time of a trial that its computation did not take."""
    rows = []
    for kind, told in KINDS.items():
        for execute, what in (("nothing", "empty"), ("solver", "tiny problem")):
            place = folder / f"{kind} {execute}"
            wall = seconds(sweep(place, kind, trials, "--execute", execute))
            cost = 0.0 if execute == "nothing" else computed(place) / 2
            matter = f"overhead per trial, {trials:,} trials, {what}, {told}"
            rows.append(Row(matter, (wall - cost) / trials, 0.5e-3, "job"))
    return rows


def computed(folder: Path) -> float:
    """Return the seconds that the batches of a folder took, summed over workers."""
    return float(sum(record["cost"] for record in told(folder, "key")))


def reruns(folder: Path, trials: int) -> list[Row]:
    """Return rows with the time and memory of a large sweep and of its rerun."""
    rows = []
    for kind, told in KINDS.items():
        command = sweep(folder / f"many {kind}", kind, trials)
        wall, said = timed(command)
        again, then = timed(command)
        assert "(0 run now)" in then, "the code changed while it was measured"
        memory = float(said.split()[-1])
        done = f"rerun, {trials:,} trials done, {told}"
        rows += [
            Row(f"all of {trials:,} trials, empty, {told}", wall),
            Row(done, again, 5.0),
            Row(f"{done}: per trial", again / trials, 50e-6, "again"),
            Row(f"memory of the parent, {told}", memory, 500.0, unit="MB"),
        ]
    return rows


def starts(folder: Path) -> list[Row]:
    """Return rows with the times to print the help and to start the first batch."""
    times = [first_batch(folder, f"first {number}") for number in range(3)]
    begun, recorded = map(statistics.median, zip(*times, strict=True))
    return [
        Row("`--help`", usual([*COMMAND, "--help"]), 0.2, "help"),
        Row("start to first batch, 100 trials", begun, 1.5, "first"),
        Row("start to first records on disk, 100 trials", recorded),
    ]


def first_batch(folder: Path, name: str) -> tuple[float, float]:
    """Return the times from the command to the first batch and the first records."""
    line = [*COMMAND, *SWEEP, f"results_dir={folder}", f"name='{name}'"]
    start = time.time()
    process = started(line)
    faults.wait_for(lambda: any(told(folder / name, "key")))
    recorded = time.time() - start
    assert process.wait() == 0
    marks = told(folder / name, "begin")
    return min(mark["time"] for mark in marks) - start, recorded


def told(folder: Path, what: str) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a folder's record file that begin with a key."""
    path = folder / RECORDS
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.startswith(f'{{"{what}":') and line.endswith("}\n"):
            yield json.loads(line)
