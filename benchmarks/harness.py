"""What running trials costs beside the trials themselves, here and elsewhere."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import faults, others
from benchmarks.measure import Row, print_table, seconds, sweep, timed, usual

KINDS = {"seeds": "seeds of one setting", "settings": "every trial its own setting"}
COMMAND = [sys.executable, "-m", "dp_erm_bench"]
SWEEP = [
    *("dataset=log1", "dataset.n=60", "dataset.p=5", "algorithm=random_cd"),
    *("algorithm.random_cd.clip=1", "algorithm.random_cd.passes=1"),
    *("budget.epsilon=1", "seed=range(0,100)", "runner.progress=false"),
]
LOADED = "import dp_erm_bench.runner.execute as e; e.warm_up()"


def run(given: argparse.Namespace) -> None:
    """Measure and print the table of docs/harness.md."""
    few, many = (1000, 10_000) if given.quick else (10_000, 100_000)
    seconds([sys.executable, "-c", LOADED])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = [others.hydra(folder / "hydra")]
        if given.benchopt is not None:
            found.insert(0, others.benchopt(folder / "benchopt", given.benchopt))
        rows = [*overheads(folder, few), *reruns(folder, many), *starts(folder)]
        print_table([*rows, *faults.rows(folder)], found)


def overheads(folder: Path, trials: int) -> list[Row]:
    """Return the cost of a trial: all of it, then what its batch did not take."""
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
    """Return the seconds that the batches of a folder took, over all workers."""
    lines = [
        json.loads(line)
        for segment in (folder / "segments").iterdir()
        for line in segment.read_text().splitlines()
    ]
    return sum(line.get("cost", 0.0) for line in lines)


def reruns(folder: Path, trials: int) -> list[Row]:
    """Return the time and memory of many trials and of finding them done."""
    rows = []
    for kind, told in KINDS.items():
        command = sweep(folder / f"many {kind}", kind, trials)
        wall, said = timed(command)
        memory, again = float(said.split()[-1]), seconds(command)
        done = f"rerun, {trials:,} trials done, {told}"
        rows += [
            Row(f"all of {trials:,} trials, empty, {told}", wall),
            Row(done, again, 5.0),
            Row(f"{done}: per trial", again / trials, 50e-6, "again"),
            Row(f"memory of the parent, {told}", memory, 500.0, unit="MB"),
        ]
    return rows


def starts(folder: Path) -> list[Row]:
    """Return the times to the help and to the first batch of the command line."""
    return [
        Row("`--help`", usual([*COMMAND, "--help"]), 0.2, "help"),
        Row("start to first trial, 100 trials", first_batch(folder), 1.5, "first"),
    ]


def first_batch(folder: Path) -> float:
    """Return the time from the command line to the mark of the first batch."""
    times = []
    for number in range(3):
        name = f"first {number}"
        start = time.time()
        line = [*SWEEP, f"results_dir={folder}", f"name='{name}'"]
        seconds([*COMMAND, *line])
        marks = [
            json.loads(mark)["time"]
            for segment in (folder / name / "segments").iterdir()
            for mark in segment.read_text().splitlines()
            if mark.startswith('{"begin"')
        ]
        times.append(min(marks) - start)
    return sorted(times)[1]
