"""Measure regret: how far a tuner's choice is from the best point of a fine lattice."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import qmc

from benchmarks.cells import (
    Cell,
    Chosen,
    Point,
    Trials,
    fresh,
    line_of,
    seeds_of,
    tuned,
)
from dp_erm_bench.experiment.lines import FitLine, Trial
from dp_erm_bench.experiment.schema import points_of
from dp_erm_bench.experiment.tune import TUNING_CHECKPOINTS

KEPT = Path(__file__).resolve().parents[1] / "results" / "regret" / "lattices.json"

Span = tuple[float, float, float]
"""Smallest value, largest value, and ratio of neighbouring values."""

LATTICES: dict[str, dict[str, Span]] = {
    "breast_cancer_l2/gd/1": {
        "n_iter": (4, 512, 2**0.5),
        "step": (0.5, 128, 2**0.5),
        "clip": (0.03, 4, 2 ** (1 / 3)),
    },
    "dense_l2/gd/1": {
        "n_iter": (32, 1024, 2**0.5),
        "step": (0.5, 32, 2**0.5),
        "clip": (0.15, 1.2, 2**0.5),
    },
    "breast_cancer_l2/random_cd/1": {
        "passes": (0.25, 64, 2**0.5),
        "step": (0.1, 64, 2**0.5),
        "clip": (0.03, 4, 2**0.5),
    },
    "dense_l1/frank_wolfe/1": {
        "n_iter": (4, 1024, 2**0.5),
        "clip": (0.02, 1.5, 2**0.25),
    },
}
"""Ranges of the parameters on the lattice of each cell.

Clipping thresholds are in the unit of the cell's block: `gradient_rms`, or absolute for
frank_wolfe.
"""

ROUNDS = ((1.0, 4), (1 / 8, 16), (1 / 32, 64), (1 / 128, 256))
"""Share of the points that each round keeps, and number of seeds per point.

Points are ranked by their means, and in the last round by their medians.
"""

LEFT = 8
"""Smallest number of points that a round keeps."""

REFERENCE = 7_777
"""Repetition whose seeds are used for the lattice; no tuner uses it."""

MEASURED = 1000
"""Number of fresh seeds on which the best point is measured.

Every regret is relative to the median error on these seeds.
"""

SOBOL_BEST, SOBOL_SEEDS = 4, (2, 6)
"""Number of best Sobol points that get more seeds.

The other numbers are the seeds of every point and of these best points.
"""


class Reference(NamedTuple):
    """The best point of a lattice, its median error, and the cost of the search.

    ``points`` is the number of lattice points, and ``trials`` the number of trials.
    """

    values: Point
    median: float
    points: int
    trials: int


def reference(cell: Cell, trials: Trials, kept: Path = KEPT) -> Reference:
    """Return the best point of a cell's lattice, from the cache if it is there."""
    axes = lattice(cell)
    line = line_of(cell.block(REFERENCE, axes=axes))
    asked = [line.problem.identity, line.budget, line.axes, ROUNDS, MEASURED]
    digest = sha256(json.dumps(asked).encode()).hexdigest()
    known = json.loads(kept.read_text()) if kept.exists() else {}
    if known.get(str(cell), {}).get("digest") != digest:
        found = _exhaustive(line, trials)
        known[str(cell)] = {"digest": digest, **found._asdict()}
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(known, indent=1))
    entry = known[str(cell)]
    return Reference(**{key: entry[key] for key in Reference._fields})


def lattice(cell: Cell) -> dict[str, Any]:
    """Return the axes of a cell's lattice in the form of a block."""
    usual = cell.block()["tune"]["axes"]
    axes: dict[str, Any] = {}
    for key, (least, most, ratio) in LATTICES[str(cell)].items():
        count = math.floor(math.log(most / least, ratio) + 1e-9) + 1
        values = [float(f"{least * ratio**k:.6g}") for k in range(count)]
        if key == "n_iter":
            values = [*dict.fromkeys(map(round, values))]
        unit = isinstance(usual[key], Mapping)
        axes[key] = {**usual[key], "values": values} if unit else values
    return axes


def _exhaustive(line: FitLine, trials: Trials) -> Reference:
    points = [dict(point) for point in points_of(line.axes)]
    count, before = len(points), len(trials.finals)
    for number, (part, seeds) in enumerate(ROUNDS):
        points = points[: max(round(part * count), LEFT)]
        finals = trials.of(_trials(line, points, seeds_of(REFERENCE, seeds)))
        rows = np.reshape(finals, (len(points), seeds))
        last = number == len(ROUNDS) - 1
        order = np.argsort((np.median if last else np.mean)(rows, axis=1))
        points = [points[i] for i in order]
    errors = trials.errors(line, points[0], fresh(REFERENCE, MEASURED))
    median = float(np.median(errors))
    return Reference(points[0], median, count, len(trials.finals) - before)


def _trials(
    line: FitLine, points: Sequence[Point], seeds: Sequence[int]
) -> Iterator[Trial]:
    for point in points:
        setting = line.setting(**point)
        for seed in seeds:
            yield setting.trial(seed, TUNING_CHECKPOINTS, "tune")


def sobol(cell: Cell, repetition: int, budget: int, trials: Trials) -> Chosen:
    """Return the best of scrambled Sobol points in the box of a cell's lattice.

    All points have two seeds. Then the best four get four more seeds, and the mean
    decides.

    Parameters
    ----------
    cell : Cell
        A cell that has a lattice.
    repetition : int
        Determines the scrambling and the tuning seeds.
    budget : int
        Largest number of trials.
    trials : Trials
        Runs them.
    """
    line = line_of(cell.block(repetition, axes=lattice(cell)))
    few, many = SOBOL_SEEDS
    number = (budget - SOBOL_BEST * (many - few)) // few
    box = {key: (min(v), max(v)) for key, v in line.axes.items()}
    drawn = qmc.Sobol(len(box), seed=repetition)
    with warnings.catch_warnings():
        # The number need not be a power of two: the first points serve as well.
        warnings.simplefilter("ignore", UserWarning)
        unit = drawn.random(number)
    points = [
        {
            key: round(value) if isinstance(least, int) else value
            for (key, (least, most)), u in zip(box.items(), row, strict=True)
            for value in [least * (most / least) ** float(u)]
        }
        for row in unit
    ]
    finals = trials.of(_trials(line, points, seeds_of(repetition, few)))
    order = np.argsort(np.reshape(finals, (len(points), few)).mean(axis=1))
    best = [points[i] for i in order[:SOBOL_BEST]]
    again = trials.of(_trials(line, best, seeds_of(repetition, many)))
    means = np.reshape(again, (len(best), many)).mean(axis=1)
    values = best[int(np.argmin(means))]
    assert line.tune is not None
    spent = number * few + SOBOL_BEST * (many - few)
    return Chosen(values, spent, trials.errors(line, values, line.tune.report))


def grid(cell: Cell, repetition: int, seeds: int, trials: Trials) -> Chosen:
    """Return the choice of the default grid with a given number of seeds."""
    chosen = seeds_of(repetition, seeds)
    return tuned(cell.block(repetition, seeds=chosen), trials)
