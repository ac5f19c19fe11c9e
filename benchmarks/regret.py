"""Measure how good the choices of a tuner are, on cells of the leaderboard.

A cell is PANEL/LINE/EPSILON, such as dense_l2/gd/1. `python -m benchmarks.regret ratio
[CELL ...]` compares `tune.search` with the default grid. `... lattice [CELL ...]` finds
the best point of a fine lattice. `... curves [CELL ...]` draws the regret, relative to
this point, against the number of trials.
"""

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import curves, lattice
from benchmarks.cells import Array, Cell, Chosen, Trials, line_of, tuned
from benchmarks.measure import Row
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.tune import TUNING_CHECKPOINTS, tuners_of

CELLS = (
    "breast_cancer_l2/gd/1",
    "breast_cancer_l2/greedy_cd/1",
    "breast_cancer_l2/random_cd/1",
    "breast_cancer_l2/mirror_descent/1",
    "electricity_l2/greedy_cd/1",
    "electricity_l2/gd/1",
    "dense_l2/gd/1",
    "dense_l2/sgd/1",
    "dense_l1/frank_wolfe/1",
    "dense_l1/gd/1",
    "a9a_l2/gd/1",
    "a9a_l2/random_cd/1",
    "madelon_l2/random_cd/3",
    "madelon_l2/gd/3",
)
"""Cells on which search was compared with the grid before it was built."""

SEARCH: dict[str, Any] = {"trials": 300}
DRAWS = 4000

MOST_RATIO, MOST_CELL = 0.8, 1.05
"""Limits for the geometric mean of the ratios, and for each cell's interval.

The second limit is for the lower end of the interval.
"""


@dataclass(frozen=True)
class Compared:
    """The choices of search and grid on one cell, in several repetitions.

    Attributes
    ----------
    cell : Cell
    search, grid : list of Chosen
        One per repetition.
    """

    cell: Cell
    search: Sequence[Chosen]
    grid: Sequence[Chosen]

    @property
    def ratio(self) -> float:
        """Return the error of the search divided by that of the grid.

        Each is the geometric mean over repetitions of median errors.
        """
        return level(errors_of(self.search)) / level(errors_of(self.grid))

    def interval(self, draws: int = DRAWS) -> tuple[float, float]:
        """Return a 95 % bootstrap interval of the ratio.

        Repetitions are drawn with replacement, and in each of them its fresh seeds.
        """
        random = np.random.default_rng(0)
        ratios = [
            level(redrawn(errors_of(self.search), random))
            / level(redrawn(errors_of(self.grid), random))
            for _ in range(draws)
        ]
        low, high = np.quantile(ratios, [0.025, 0.975])
        return float(low), float(high)

    def cells(self) -> list[str]:
        """Return the row of the cell in the table."""
        low, high = self.interval()
        spent = [
            np.mean([one.spent for one in row]) for row in (self.search, self.grid)
        ]
        return [
            str(self.cell),
            f"{level(errors_of(self.grid)):.4g} ({spent[1]:.0f})",
            f"{level(errors_of(self.search)):.4g} ({spent[0]:.0f})",
            f"{self.ratio:.2f} [{low:.2f}, {high:.2f}]",
        ]


def errors_of(choices: Sequence[Chosen]) -> Array:
    """Return the errors of choices on fresh seeds, shape (repetitions, seeds)."""
    return np.array([one.errors for one in choices])


def level(errors: Array) -> float:
    """Return the geometric mean over repetitions of the medians over seeds."""
    medians = np.maximum(np.median(errors, axis=1), 1e-9)
    return float(np.exp(np.log(medians).mean()))


def redrawn(errors: Array, random: np.random.Generator) -> Array:
    """Return a bootstrap sample of errors.

    Repetitions are drawn with replacement, and seeds within each of them, too.
    """
    rows, seeds = errors.shape
    row = random.integers(rows, size=(rows, 1))
    return errors[row, random.integers(seeds, size=(rows, seeds))]


def compared(cell: Cell, repetitions: int, search: Mapping[str, Any]) -> Compared:
    """Return the choices of grid and search on a cell, with the same tuning seeds."""
    trials, every = Trials(), range(repetitions)
    found = [tuned(cell.block(number, search=dict(search)), trials) for number in every]
    return Compared(
        cell, found, [tuned(cell.block(number), trials) for number in every]
    )


def ratio(cells: Sequence[Cell], repetitions: int) -> bool:
    """Print the ratios of search to grid; return whether they meet the limits."""
    print("| cell | grid (trials) | search (trials) | search / grid |")
    print("| --- | --- | --- | --- |")
    ratios, good = [], True
    for cell in cells:
        row = compared(cell, repetitions, SEARCH)
        print(f"| {' | '.join(row.cells())} |", flush=True)
        for chosen in row.search:
            print(f"    {settings(cell, chosen)}", flush=True)
        ratios.append(row.ratio)
        good &= row.interval()[0] <= MOST_CELL
    mean = math.exp(np.mean(np.log(ratios)))
    print(f"\ngeometric mean {mean:.3f} (aim: at most {MOST_RATIO})")
    return good and mean <= MOST_RATIO


def settings(cell: Cell, chosen: Chosen) -> str:
    """Return a choice as text, with clipping thresholds in the unit of the cell."""
    unit = unit_of(cell)
    values = {k: v / unit if k == "clip" else v for k, v in chosen.values.items()}
    told = ", ".join(f"{key} {value:.3g}" for key, value in values.items())
    return f"{told}: {chosen.median:.4g} ({chosen.spent} trials)"


def unit_of(cell: Cell) -> float:
    """Return the unit in which the leaderboard gives a cell's clipping thresholds."""
    given = cell.block()["tune"]["axes"].get("clip")
    if not isinstance(given, Mapping):
        return 1.0
    return float(line_of(cell.block()).axes["clip"][0] / given["values"][0])


def rows() -> Iterator[Row]:
    """Yield the CPU time per trial of the tuners themselves; no fit is run."""
    cell = Cell.named("breast_cancer_l2/gd/1")
    tunes: dict[str, dict[str, Any]] = {"grid": {}, "search": {"search": SEARCH}}
    for name, tune in tunes.items():
        taken = [overhead(cell.block(number, **tune)) for number in range(5)]
        matter = f"tuner, {name}: per trial, none run"
        yield Row(matter, float(np.median(taken)), 0.5e-3)


def overhead(block: Mapping[str, Any]) -> float:
    """Return the CPU seconds per trial that the tuner of a block takes.

    The objective is a noisy quadratic function of the logarithms of the parameters.
    """
    line, finals = line_of(block), dict[str, dict[str, float]]()
    random = np.random.default_rng(0)
    (tuner,) = tuners_of([line], TUNING_CHECKPOINTS, finals)
    start, outside = time.process_time(), 0.0
    for stage in tuner.stages():
        entered = time.process_time()
        for one in stage or ():
            point = np.array(one.setting.point, float)
            bowl = np.square(np.log(point) - 1.0).mean()
            bowl = float(1.0 + bowl + 0.3 * random.random())
            finals[one.key] = {"objective": bowl}
        outside += time.process_time() - entered
    return (time.process_time() - start - outside) / len(finals)


def main() -> None:
    """Run the command line; report an error in one sentence."""
    try:
        run()
    except UsageError as error:
        raise SystemExit(str(error)) from None


def run() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret")
    parser.add_argument("what", choices=("ratio", "lattice", "curves"))
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument("--repetitions", type=int, default=8)
    given = parser.parse_intermixed_args()
    usual = CELLS if given.what == "ratio" else tuple(lattice.LATTICES)
    cells = [Cell.named(name) for name in given.cells or usual]
    if given.what == "ratio":
        raise SystemExit(not ratio(cells, given.repetitions))
    for cell in cells:
        found = lattice.reference(cell, Trials())
        print(f"{cell}: {found.median:.4g}, the best of {found.points} points")
        values = ", ".join(f"{key} {value:.4g}" for key, value in found.values.items())
        print(f"    {values} ({found.trials} trials)", flush=True)
    if given.what == "curves":
        points = curves.measured(cells, given.repetitions)
        table = curves.summary(points)
        print(table.to_string(index=False))
        table.to_csv(curves.TABLE, index=False)
        curves.draw(table, curves.FIGURE)


if __name__ == "__main__":
    main()
