"""Noise of releases against the number of features or of iterations.

Nothing is run: each solver declares its releases, the accountant calibrates them, and
the scale of their noise is read off. The problem is logistic loss on features within
[-1, 1]: all L_j and M_j are equal, whatever p, and L_1 = 1 on the L1 ball of radius 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.report.crosses import Cross, save_crosses
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.figure import Drawing, Figure, LinesOf, check_stem
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.style import house_style

if TYPE_CHECKING:
    from dp_erm_bench.problems.erm.problem import ERMProblem
    from dp_erm_bench.releases.base import Release
    from dp_erm_bench.run import Run

AXES = ("p", "n_iter")


class Calibrated(NamedTuple):
    """The noise of a release: its scale, and the epsilon that is certified for it."""

    release: Release
    scale: float
    epsilon_certified: float


@dataclass(frozen=True)
class Released:
    """The release of one line of the figure.

    Attributes
    ----------
    algorithm : str
        Name of its yaml.
    release : str
        Name of the solver's release.
    parameters : mapping
        The solver's parameters beside its number of iterations.
    per_feature : bool
        Whether an iteration touches one coordinate, so that a pass has p of them.
    calibration : str
        The calibration of its noise.
    """

    algorithm: str
    release: str
    parameters: dict[str, Any] = field(default_factory=dict)
    per_feature: bool = False
    calibration: str = "certified"

    def __post_init__(self) -> None:
        """Refuse an algorithm that there is not."""
        registry.check_choice("algorithm", self.algorithm, registry.names("algorithm"))


@dataclass(frozen=True)
class Noise(Figure):
    """Noise of releases along `p` (its deviation) or `n_iter` (its scale).

    Attributes
    ----------
    name, title, label : str
        Of the file and of the claims on it; above the cell; along its axis.
    axis : str
        `p`: deviations on one number, in units of an entry of the mean gradient.
        `n_iter`: scales, as the releases have them.
    values : tuple of float
        Of the axis, increasing.
    lines : mapping of str to Released
        The releases, by label.
    about : str
        The caption; not needed beside other cells.
    n, p, n_iter, epsilon, constraint
        The problem, the passes over it and the budget, delta being 1/n^2.
    """

    name: str
    title: str
    axis: str
    label: str
    values: tuple[int, ...]
    lines: dict[str, Released]
    about: str = ""
    n: int = 1000
    p: int = 20
    n_iter: int = 10
    epsilon: float = 1.0
    constraint: str = "none"

    def __post_init__(self) -> None:
        """Refuse invalid names and axes."""
        check_stem(self.name)
        registry.check_choice("axis", self.axis, list(AXES))

    def check(self, lines: LinesOf) -> None:
        """Refuse parameters and releases that an algorithm does not have."""
        for line, what in self.lines.items():
            run = self._run(what, self.n_iter, self._problem(2), 1.0)
            names = [release.name for release in run.releases]
            registry.check_choice(f"line {line}: release", what.release, names)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the noise of each release on a sheet of its own."""
        quantity = "noise, standard deviation" if self.axis == "p" else "noise, scale"
        path = drawing.path(self.name)
        with house_style():
            return save_crosses([self.cross()], path, self.about, quantity, (4.4, 3.0))

    def cross(self) -> Cross:
        """Return the cell of a sheet, with all lines."""
        x = np.array(self.values, float)
        rates = {
            line: Scaling(x, tuple(self.along(line)[:, None])) for line in self.lines
        }
        return Cross(self.title, self.label, rates)

    def along(self, line: str, values: Sequence[int] = ()) -> Array:
        """Return the noise of one line along the axis, shape (len(values),)."""
        at = values or self.values
        if self.axis == "p":
            return np.array([self._deviation(line, p) for p in at])
        return np.array([self.calibrated(line, n_iter).scale for n_iter in at])

    def calibrated(self, line: str, n_iter: int, p: int | None = None) -> Calibrated:
        """Return the noise of one line at some iterations, of p features if given."""
        what = self.lines[line]
        run = self._run(what, n_iter, self._problem(p or self.p), what.calibration)
        (release,) = (one for one in run.releases if one.name == what.release)
        calibration, size = run.calibration, float(np.max(release.sensitivity))
        scale = calibration.z * release.weight * size
        return Calibrated(release, scale, calibration.epsilon_certified)

    def _problem(self, p: int) -> ERMProblem:
        from dp_erm_bench.audit.accounting import unit_problem

        constraint = registry.build("constraint", self.constraint)
        return replace(unit_problem(self.n, p), constraint=constraint)

    def _run(
        self, what: Released, n_iter: int, problem: ERMProblem, noise: str | float
    ) -> Run:
        """Return a run that has declared its releases; a multiplier costs no time."""
        from dp_erm_bench.run import Run

        fixed = {"n_iter": n_iter, "smoothness": "public", **what.parameters}
        solver = registry.build("algorithm", what.algorithm, **fixed)
        budget = Budget(self.epsilon, "1/n^2")
        return Run(problem, [solver], budget, noise, ["figure"])

    def _deviation(self, line: str, p: int) -> float:
        n_iter = self.n_iter * (p if self.lines[line].per_feature else 1)
        noise = self.calibrated(line, n_iter, p)
        return noise.scale * _unit(noise.release, self._problem(p))


def _unit(release: Release, problem: ERMProblem) -> float:
    """Return the deviation on an entry of the mean gradient at scale 1."""
    from dp_erm_bench.releases.gaussian import Gaussian
    from dp_erm_bench.releases.laplace import Laplace
    from dp_erm_bench.releases.noisy_max import NoisyMax

    if isinstance(release, NoisyMax):
        # Of Gumbel noise; a score is the gradient's entry by the root of M_j.
        M = float(problem.smoothness.columns[0])
        return math.pi / math.sqrt(6.0) * math.sqrt(M)
    if isinstance(release, Laplace):
        return math.sqrt(2.0)
    # A sum over the records rather than their mean.
    return 1.0 if type(release) is Gaussian else 1.0 / problem.n
