"""Time commands, and print measured times next to those of other harnesses."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True)
class Other:
    """The times of another harness in seconds: per job, per repeated job, and so on."""

    name: str
    job: float
    again: float
    help: float
    first: float


class Row(NamedTuple):
    """One row of a table: what was measured, and its value in seconds or in ``unit``.

    `other` is the attribute of `Other` with the same measurement elsewhere.
    """

    matter: str
    here: float
    target: float | None = None
    other: str = ""
    unit: str = ""

    def cells(self, others: Sequence[Other]) -> list[str]:
        """Return the cells of the row; values of others also show the ratio to ours."""
        values = [getattr(one, self.other, None) for one in others]
        target = "" if self.target is None else f"<= {self._told(self.target)}"
        here = f"**{self._told(self.here)}**"
        return [self.matter, *map(self._beside, values), here, target]

    def _beside(self, value: float | None) -> str:
        if value is None:
            return ""
        ratio = value / self.here
        return f"{self._told(value)} ({ratio:.{0 if ratio >= 10 else 1}f} x)"

    def _told(self, value: float) -> str:
        if self.unit:
            return f"{value:.3g} {self.unit}"
        unit, size = next((u, s) for u, s in UNITS.items() if value >= s or u == "us")
        return f"{value / size:.3g} {unit}"


def print_table(rows: Sequence[Row], others: Sequence[Other]) -> None:
    """Print rows as a markdown table."""
    head = ["matter", *(one.name for one in others), "here", "target"]
    for cells in (head, ["---"] * len(head), *(row.cells(others) for row in rows)):
        print(f"| {' | '.join(cells)} |")


def sweep(folder: Path, kind: str, trials: int, *options: object) -> list[object]:
    """Return the command that runs a sweep in its own process."""
    program = [sys.executable, "-m", "benchmarks.sweep"]
    return [*program, kind, trials, folder, *options]


def seconds(command: Sequence[object], folder: Path | None = None) -> float:
    """Return how many seconds a command takes; it must succeed."""
    return timed(command, folder)[0]


def timed(
    command: Sequence[object], folder: Path | None = None, codes: Sequence[int] = (0,)
) -> tuple[float, str]:
    """Return how long a command takes and what it prints.

    This process exits with an error if the exit code is not one of ``codes``.
    """
    start = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    taken = time.perf_counter() - start
    if done.returncode not in codes:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return taken, done.stdout


def started(command: Sequence[object]) -> subprocess.Popen[bytes]:
    """Start a command and discard its output."""
    return subprocess.Popen(
        [str(word) for word in command],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def usual(command: Sequence[object], times: int = 5) -> float:
    """Return the median time of several runs of a command."""
    return statistics.median(seconds(command) for _ in range(times))


def environment() -> dict[str, str]:
    """Return the environment of measured commands: this checkout, plain output."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
