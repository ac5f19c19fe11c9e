"""Tune single cells of the leaderboard in this process, without workers.

A cell is a panel, a line and an epsilon of experiments/leaderboard.yaml. Its trials use
the code of a worker, but no other process and no results folder.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import FitLine, Trial
from dp_erm_bench.experiment.schema import write_out_blocks
from dp_erm_bench.experiment.tune import TUNING_CHECKPOINTS, tuners_of
from dp_erm_bench.results.store import finals_of
from dp_erm_bench.runner.execute import run_batch
from dp_erm_bench.runner.session import batches_of

BATCH = 32
APART = 10_000
"""Distance of the tuning seeds of two repetitions, so that their noise differs."""

FIRST_FRESH = 10**9
FRESH = 100
"""Number of seeds, used by no tuner, on which each choice is measured."""

Array = NDArray[np.float64]
Point = dict[str, Any]

MOST_SEEDS = 16
"""Number of tuning seeds of a search; a grid has two."""


@dataclass(frozen=True)
class Cell:
    """One algorithm on one problem of the leaderboard at one epsilon."""

    panel: str
    line: str
    epsilon: float

    @classmethod
    def named(cls, name: str) -> "Cell":
        """Return the cell of a name such as `dense_l2/gd/1`.

        Raises
        ------
        UsageError
            If the leaderboard has no such line, or does not tune it.
        """
        panel, line, epsilon = [*name.split("/"), "", "", ""][:3]
        tuned = [f"{one['panel']}/{one['line']}" for one in leaderboard()]
        try:
            cell = cls(panel, line, float(epsilon))
        except ValueError:
            cell = cls(panel, line, 0.0)
        if f"{panel}/{line}" not in tuned or not cell.epsilon > 0:
            raise UsageError(
                f"{name}: must be PANEL/LINE/EPSILON of a tuned line of the "
                f"leaderboard, as {tuned[0]}/1"
            )
        return cell

    def __str__(self) -> str:
        """Return the name of the cell, such as `dense_l2/gd/1`."""
        return f"{self.panel}/{self.line}/{self.epsilon:g}"

    def block(self, repetition: int = 0, /, **tune: Any) -> dict[str, Any]:
        """Return the block of the cell in the leaderboard's default profile.

        The block is tuned by the grid. Its dataset has no intercept.

        Parameters
        ----------
        repetition : int
            Number of the repetition; each one has other tuning seeds, and so other
            noise.
        **tune
            Keys of `tune` to replace or add.
        """
        (block,) = (
            copy.deepcopy(one)
            for one in leaderboard()
            if (one["panel"], one["line"]) == (self.panel, self.line)
        )
        block["budget"]["epsilon"] = self.epsilon
        # Published numbers were made before the dataset had an intercept.
        block["dataset"].pop("intercept", None)
        axes, limits = block["tune"]["axes"], block["tune"].get("limits")
        if tune.get("search"):
            usual = {"limits": limits, "seeds": seeds_of(repetition, MOST_SEEDS)}
        else:
            usual = {"seeds": seeds_of(repetition, 2)}
        report = fresh(repetition, FRESH)
        block["tune"] = {"axes": axes, "report": report, **usual, **tune}
        return block


def seeds_of(repetition: int, number: int) -> list[int]:
    """Return the first tuning seeds of a repetition."""
    first = APART * repetition
    return [*range(first, first + number)]


def fresh(repetition: int, number: int) -> list[int]:
    """Return seeds of a repetition that are not used for tuning."""
    return [FIRST_FRESH + seed for seed in seeds_of(repetition, number)]


@functools.cache
def leaderboard() -> list[dict[str, Any]]:
    """Return the tuned blocks of the leaderboard's default profile."""
    path = registry.conf_dir() / "experiment" / "leaderboard.yaml"
    config: Any = OmegaConf.load(path)
    config.profile = "default"
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return [one for one in write_out_blocks(plain["blocks"]) if one.get("tune")]


def line_of(block: Mapping[str, Any]) -> FitLine:
    """Return the line of a block that has only one line."""
    lines, missing = expand_blocks([block])
    if missing:
        raise UsageError(f"{missing[0].dataset}: {missing[0].reason}")
    (line,) = lines
    assert isinstance(line, FitLine)
    return line


class Trials:
    """Runs trials, each of them only once, and keeps their final objectives.

    Parameters
    ----------
    run : callable
        Returns the records of a batch; by default the function of a worker.

    Attributes
    ----------
    finals : dict of str to dict
        Last values by key and quantity; none if the trial diverged or was refused.
    """

    def __init__(self, run: Callable[..., list[dict[str, Any]]] = run_batch) -> None:
        self.finals: dict[str, dict[str, float]] = {}
        self._run = run

    def of(self, trials: Iterable[Trial]) -> list[float]:
        """Return the final objectives of trials; run those that are new.

        Raises
        ------
        UsageError
            If a trial ends with an error, with its message.
        """
        trials = [*trials]
        new = {one.key: one for one in trials if one.key not in self.finals}
        for batch in batches_of(new.values(), BATCH, math.inf):
            for record in self._run(batch):
                if record["status"] == "error":
                    raise UsageError(record["message"])
                self.finals[record["key"]] = finals_of(record)
        return [self.finals[one.key].get("objective", math.inf) for one in trials]

    def errors(self, line: FitLine, point: Point, seeds: Sequence[int]) -> Array:
        """Return F(w) / min F - 1 at the end of a setting's runs, shape (seeds,).

        Raises
        ------
        UsageError
            If the minimum of the problem is not certified.
        """
        optimum = line.problem.optimum
        if optimum.value is None:
            raise UsageError(f"{line.panel}: no certified minimum: {optimum.reason}")
        setting = line.setting(**point)
        trials = [setting.trial(seed, TUNING_CHECKPOINTS, "report") for seed in seeds]
        return np.array(self.of(trials)) / optimum.value - 1.0


@dataclass(frozen=True)
class Chosen:
    """The setting that a tuner chose, with its cost and its errors.

    Attributes
    ----------
    values : dict
        The setting.
    spent : int
        Trials that the tuner asked for.
    errors : array of shape (FRESH,)
        Final relative errors of the setting on fresh seeds.
    """

    values: Point
    spent: int
    errors: Array

    @property
    def median(self) -> float:
        """Return the median error, or the accuracy of a certified minimum if larger."""
        return max(float(np.median(self.errors)), 1e-9)


def tuned(block: Mapping[str, Any], trials: Trials) -> Chosen:
    """Tune a block as a run does, and run the chosen setting on fresh seeds."""
    line = line_of(block)
    (tuner,) = tuners_of([line], TUNING_CHECKPOINTS, trials.finals)
    spent: set[str] = set()
    for stage in tuner.stages():
        # After the choice, the stages contain only the reports.
        if tuner.choice is None:
            trials.of(stage or ())
            spent.update(one.key for one in stage or ())
    assert tuner.choice is not None
    values = dict(tuner.choice.values)
    assert line.tune is not None
    return Chosen(values, len(spent), trials.errors(line, values, line.tune.report))
