"""Regret: how far a tuner's choice is from the best setting of a fine lattice."""

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
"""Least value, most value, ratio of neighbours."""

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
"""Clips in the unit of the cell's block: `gradient_rms`, or absolute (frank_wolfe)."""

ROUNDS = ((1.0, 4), (1 / 8, 16), (1 / 32, 64), (1 / 128, 256))
"""Part of the points that is left, seeds of each: the means decide, at last medians."""

LEFT = 8
"""Points that are left at least."""

REFERENCE = 7_777
"""The repetition whose seeds the lattice has; no tuner's."""

MEASURED = 1000
"""Fresh seeds of the lattice's winner: every regret is against its median."""

SOBOL_BEST, SOBOL_SEEDS = 4, (2, 6)
"""The best are tried again; seeds of each point, and of the best."""


class Reference(NamedTuple):
    """The best setting of a lattice, its median error, points and trials of it all."""

    values: Point
    median: float
    points: int
    trials: int


def reference(cell: Cell, trials: Trials, kept: Path = KEPT) -> Reference:
    """Return the winner of a cell's lattice; it is computed once and kept."""
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
    """Return the axes of a cell's lattice, as a block has them."""
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
    """Return the choice among scrambled Sobol points of the lattice's box.

    All have two seeds, then the best four have four more; the mean decides.

    Parameters
    ----------
    cell : Cell
        One with a lattice.
    repetition : int
        Chooses the scrambling and the tuning seeds.
    budget : int
        Most trials.
    trials : Trials
        Runs them.
    """
    line = line_of(cell.block(repetition, axes=lattice(cell)))
    few, many = SOBOL_SEEDS
    number = (budget - SOBOL_BEST * (many - few)) // few
    box = {key: (min(v), max(v)) for key, v in line.axes.items()}
    drawn = qmc.Sobol(len(box), seed=repetition)
    with warnings.catch_warnings():
        # It may be any number: the first points serve as well.
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
    """Return the choice of the default grid on a number of seeds."""
    chosen = seeds_of(repetition, seeds)
    return tuned(cell.block(repetition, seeds=chosen), trials)
