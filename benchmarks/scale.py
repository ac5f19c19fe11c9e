"""Measure the parts of a large run, and extrapolate to 10^6 and 10^7 trials."""

import argparse
import itertools
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import sweep, timed
from benchmarks.parent import HOSTS, believing, dask, example, ledger, parent
from dp_erm_bench.results.table import collect_table

BLOCK = 100_000
Cells = Sequence[object]


def run(given: argparse.Namespace) -> None:
    """Measure the parts, and print the tables of docs/costs.md."""
    few = 10 if given.quick else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs: dict[str, float] = {}
        table(("part", "measured"), parts(folder, costs, few))
        million, ten = (at(n, costs) for n in (10**6, 10**7))
        rows = [(part, told, ten[part]) for part, told in million.items()]
        table((f"extrapolated: {HOSTS} workers, 1 s a trial", "10^6", "10^7"), rows)


def table(head: Cells, rows: Iterator[Cells] | Sequence[Cells]) -> None:
    """Print rows as a markdown table, each as soon as it is known."""
    for cells in itertools.chain((head, ["---"] * len(head)), rows):
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print()


def parts(folder: Path, costs: dict[str, float], few: int) -> Iterator[Cells]:
    """Yield a row for each part, and store its cost per trial under a name.

    Costs are in seconds or bytes.
    """
    for waiting in (10_000, 1_000_000 // few):
        costs["ledger"] = ledger(folder, waiting)
        told = f"ledger: hand out and settle a task, {waiting:,} batches waiting"
        yield told, f"{costs['ledger'] * 1e6:.1f} us"
    trial, line = example()
    yield "a record of 51 checkpoints", f"{len(line)} bytes"
    costs["answer"] = believing(folder, trial, line)
    rate = len(line) / costs["answer"] / 1e6
    told = f"{1 / costs['answer']:,.0f} a second, {rate:.0f} MB/s"
    yield "records into one parent, 100 in an answer: checked, copied, settled", told
    for hosts in (10, HOSTS):
        costs["parent"] = parent(folder, trial, line, hosts, 20_000 // few)
        told = f"{costs['parent'] * 1e6:.0f} us"
        yield f"parent without Dask, a task of one trial, {hosts} workers", told
    for workers in (2, 10):
        start, rate, costs["dask"] = dask(workers, 5000 // few)
        what = f"Dask on this machine, {workers} workers (processes)"
        yield f"{what}: start", f"{start:.1f} s"
        told = f"{rate:,.0f} a second, {costs['dask'] * 1e6:.0f} us of the parent's CPU"
        yield f"{what}: empty tasks, 2 kB there and back", told
    for kind in ("seeds", "settings"):
        yield from held(folder, kind, costs, BLOCK // few)
    yield from disk(folder, costs, 20_000 // few)


class Sweep(NamedTuple):
    """CPU seconds of a sweep and of its rerun, and the largest memory of both in MB."""

    seconds: float
    again: float
    peak: float
    peak_again: float


def swept(folder: Path, kind: str, trials: int, *options: object) -> Sweep:
    """Return the costs of a sweep and of its rerun, each in its own process."""
    command = sweep(folder, kind, trials, "--append", *options)
    begin = spent()
    _, said = timed(command)
    between = spent()
    _, told = timed(command)
    assert "(0 run now)" in told, "the code changed while it was measured"
    peaks = (float(text.split()[-1]) for text in (said, told))
    return Sweep(between - begin, spent() - between, *peaks)


def spent() -> float:
    """Return the CPU seconds of all commands that have ended so far."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def held(
    folder: Path, kind: str, costs: dict[str, float], trials: int
) -> Iterator[Cells]:
    """Yield the parent's memory for two numbers of trials, and its growth per trial."""
    one, two = (swept(folder / f"{kind}{n}", kind, n * trials) for n in (1, 2))
    slope = (two.peak - one.peak) / trials * 1e3
    costs["memory"] = max(slope, costs.get("memory", 0.0))
    costs["base"] = max(one.peak - slope * trials / 1e3, costs.get("base", 0.0))
    told = f"{one.peak:.0f} MB, {two.peak:.0f} MB: {slope:.2f} kB a trial"
    yield f"memory of the parent, {trials:,} and {2 * trials:,} trials, {kind}", told
    more = (two.peak_again - one.peak_again) / trials * 1e3
    told = f"{one.peak_again:.0f} MB, {two.peak_again:.0f} MB: {more:.2f} kB a trial"
    yield "the same, of a rerun that finds all done", told
    costs["rerun"] = max((two.again - one.again) / trials, costs.get("rerun", 0.0))
    told = f"{(two.again - one.again) / trials * BLOCK:.1f} s of CPU"
    yield f"rerun that finds all done, each further 100,000 trials, {kind}", told


def disk(folder: Path, costs: dict[str, float], trials: int) -> Iterator[Cells]:
    """Yield sizes and times of a results folder with 51 checkpoints per trial."""
    place = folder / "disk"
    swept(place, "seeds", trials, "--execute", "solver", "--passes", 10)
    names = {"records": "records.jsonl", "plan": "plan.jsonl", "table": "*.parquet"}
    for name, pattern in names.items():
        costs[name] = sum(path.stat().st_size for path in place.glob(pattern)) / trials
        yield f"{name} on disk, 51 checkpoints a trial", f"{costs[name]:.0f} bytes"
    begin = time.process_time()
    collect_table(place)
    costs["collect"] = (time.process_time() - begin) / trials
    told = f"{costs['collect'] * BLOCK:.1f} s of CPU"
    yield "the table from records and plan, per 100,000 trials", told


def at(trials: int, costs: dict[str, float]) -> dict[str, str]:
    """Return the extrapolated costs of a number of trials of 1 s on `HOSTS` workers.

    All costs are taken to be linear in the number of trials.
    """
    cpu = costs["parent"] + costs["dask"]
    memory = costs["base"] + costs["memory"] * trials / 1e3
    hours = max(trials / HOSTS, trials * cpu) / 3600
    sizes = {name: costs[name] * trials / 1e9 for name in ("records", "plan", "table")}
    return {
        "work, if nothing but workers counted": f"{trials / HOSTS / 3600:.2g} h",
        "one core of the parent, with Dask's scheduler": f"{trials * cpu / 3600:.2g} h",
        "so the run takes": f"{hours:.2g} h",
        "workers that are kept busy": f"{min(HOSTS, 1 / cpu):,.0f}",
        "memory of the parent": f"{memory / 1e3:.2g} GB",
        **{f"{name} on disk": f"{size:.2g} GB" for name, size in sizes.items()},
        "the table at the end": f"{costs['collect'] * trials / 60:.2g} min",
        "a rerun that finds all done": f"{costs['rerun'] * trials / 60:.2g} min",
    }
