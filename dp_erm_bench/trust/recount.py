"""Recount a finished run: the actual uses of its mechanisms, and their epsilon.

This is a second implementation of every bound, which shares no code with the first. It
takes the noise scales that were used, not the intended multiplier, and the uses that
were counted, not the declared ones.

If witnesses observed the run, a mechanism's own scale, count and place in the random
stream are not trusted either. Every answer is compared with the draws at that place of
the trial's stream, as it was before the run.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.accounting.calibration import Calibration
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanism, Mechanisms, Query, Release
from dp_erm_bench.releases.nested import NestedMechanism
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelectMechanism, Runs
from dp_erm_bench.trust.epsilons import least_epsilon, proved_epsilon
from dp_erm_bench.trust.twins.base import Array, Twin, required_twin, twin_of

# Relative difference that Renyi orders and lattices may cause between implementations.
TOLERANCES = {"rdp": 1e-3, "none": 0.0}
OTHERS = 1e-4
# Relative error of noise that is computed from a published number.
ROUNDING = 1e-6


class Witness:
    """Checks the answers of one mechanism against its streams from before the run.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism in its state before the run.

    Attributes
    ----------
    uses : int
        Number of answers published.
    ratio : float
        The smallest noise / (draw * sensitivity) over all published numbers. This ratio
        equals scale / sensitivity if the noise is the stream's, and is arbitrary
        otherwise. It is infinite for a kind without a twin, and for a selection whose
        winners follow from the stream's draws at its scale.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        self.release, self._place = mechanism.release, mechanism._drawn
        self._seeds, self._scale = mechanism.seeds.copy(), mechanism.scale.copy()
        self.uses, self.ratio = 0, np.inf
        self.runs: list[Witness] = []
        if isinstance(mechanism, NestedMechanism):
            mechanism.listen = self._hear_run

    def _hear_run(self, mechanisms: Mechanisms) -> None:
        """Attach witnesses to the mechanisms of a nested run, and keep them."""
        mechanisms.ahead, self.uses = False, 1
        self.runs.extend(listen_to_run(mechanisms).values())

    def least(self) -> float:
        """Return the smallest ratio, including those of nested mechanisms."""
        weight = self.release.weight
        inside = [one.least() / one.release.weight * weight for one in self.runs]
        return float(min([self.ratio, *inside]))

    def is_as_loud(self, z: float, rounding: float = ROUNDING) -> bool:
        """Return whether the noise was at least as large as a multiplier z requires."""
        return bool(self.ratio >= z * self.release.weight * (1 - rounding))

    def __call__(self, query: Query, publish: Callable[[], Any]) -> Any:
        """Return the answer, after comparing it with the draws of the stream."""
        answer, size = publish(), self.release.draws_of(query.value.shape[1])
        draw = type(self.release).unit
        places = [(seed, self._place, 1, size) for seed in self._seeds]
        draws = np.stack([draw(self.release, *place)[0] for place in places])
        self._place += size
        self.uses += 1
        twin = twin_of(type(self.release))
        if twin is not None:
            ratio = twin.recovered_multiplier(
                query, draws, self._scale, np.asarray(answer)
            )
            self.ratio = min(self.ratio, ratio)
        return answer


@dataclass(frozen=True)
class Recount:
    """The actual uses of a run, and the epsilon that is proved for them.

    Attributes
    ----------
    uses : tuple of Twin
        The twin of every mechanism that was called, with its actual ratio of scale to
        sensitivity.
    epsilon : float
        The epsilon proved for these uses at the budget's delta, by the accountant of
        the calibration.
    least : float
        A lower bound on epsilon: the uses are not (epsilon, delta)-DP for any smaller
        epsilon.
    tolerance : float
        Relative tolerance of ``epsilon``.
    """

    uses: tuple[Twin, ...]
    epsilon: float
    least: float
    tolerance: float

    def complaint(self, calibration: Calibration, early: bool = False) -> str:
        """Return a message if the run departs from its certificate; otherwise empty.

        A run that may stop ``early`` may spend less than is certified.
        """
        claimed, budget = calibration.epsilon_certified, calibration.budget.epsilon
        allowed = claimed * (1 + self.tolerance)
        if self.epsilon > allowed:
            return f"epsilon {self.epsilon:.6g} was run, {claimed:.6g} is certified"
        slack = max((use.slack for use in self.uses), default=0.0)
        if not early and self.epsilon < claimed * (1 - self.tolerance - slack):
            return f"only {self.epsilon:.6g} of {claimed:.6g} certified was run"
        if self.least > allowed:
            return f"epsilon is at least {self.least:.6g}, {claimed:.6g} is certified"
        over = self.epsilon > budget * (1 + self.tolerance)
        if over and calibration.label.startswith("certified"):
            return f"epsilon {self.epsilon:.6g} exceeds the budget {budget:.6g}"
        return ""


def recount(
    mechanisms: Mapping[str, Mechanism],
    calibration: Calibration,
    declared: Mapping[str, Release] | None = None,
    witnesses: Mapping[str, Witness] | None = None,
) -> Recount:
    """Return the uses of a finished run's mechanisms and the epsilon of these uses.

    Parameters
    ----------
    mechanisms : mapping of str to Mechanism
        The mechanisms after the run, by release. If the solver repeats runs,
        ``listen_to_run`` or ``watch_runs`` must have been called before the run.
    calibration : Calibration
        Gives the budget, and the accountant whose bound is computed a second time.
    declared : mapping of str to Release, optional
        The releases whose sensitivities are those of the budget's adjacency. By
        default, the release of each mechanism.
    witnesses : mapping of str to Witness, optional
        The witnesses of the run, by release. If a witness saw less noise or more uses
        than its mechanism reports, the values of the witness count.
    """
    budget, accountant = calibration.budget, calibration.accountant
    question = (budget.number, budget.adjacency, accountant.removesuffix("+pure"))
    return _cost_of(uses_of(mechanisms, declared, witnesses), *question)


@functools.lru_cache(maxsize=256)
def _cost_of(
    uses: tuple[Twin, ...], delta: float, adjacency: Adjacency, accountant: str
) -> Recount:
    tolerance = TOLERANCES.get(accountant, OTHERS)
    try:
        proved = proved_epsilon(uses, delta, adjacency, accountant)
        least = least_epsilon(uses, delta, adjacency)
    except OverflowError:  # hardly any noise: the losses exceed all numbers
        proved, least = np.inf, 0.0
    return Recount(uses, proved, least, tolerance)


def uses_of(
    mechanisms: Mapping[str, Mechanism],
    declared: Mapping[str, Release] | None = None,
    witnesses: Mapping[str, Witness] | None = None,
) -> tuple[Twin, ...]:
    """Return each mechanism's twin, a second implementation with its actual uses.

    The twin has the smallest scale / sensitivity of these uses.

    Parameters
    ----------
    mechanisms : mapping of str to Mechanism
        The mechanisms after the run, by release.
    declared : mapping of str to Release, optional
        The releases whose sensitivities count; by default each mechanism's own release.
    witnesses : mapping of str to Witness, optional
        The witnesses of the run, by release. If a witness saw less noise or more uses
        than its mechanism reports, the values of the witness count.

    Raises
    ------
    NoTwin
        For a release of a kind without a twin.
    """
    uses = []
    for name, mechanism in mechanisms.items():
        release = mechanism.release if declared is None else declared[name]
        twin = required_twin(release)
        witness = (witnesses or {}).get(name)
        count, least = mechanism.used, np.inf
        if witness is not None:
            count, least = max(count, witness.uses), witness.least()
        sensitivity = np.atleast_2d(np.asarray(release.sensitivity, np.float64))
        sensitivity, scale = np.broadcast_arrays(sensitivity, mechanism.scale)
        inverse: Array = np.zeros(scale.shape)
        with np.errstate(divide="ignore"):
            np.divide(sensitivity, scale, out=inverse, where=sensitivity > 0)
        worst = inverse.max()
        ratio = float(1 / worst) if worst > 0 else np.inf
        # Rounding of a published number may make the noise look smaller.
        if least < ratio * (1 - ROUNDING):
            ratio = least
        if count and ratio < np.inf:
            uses.append(twin.of(release, mechanism, ratio, count))
    return tuple(uses)


def watch_runs(mechanisms: Mapping[str, Mechanism]) -> None:
    """Make mechanisms that repeat runs keep every run, so that it can be recounted."""
    for mechanism in mechanisms.values():
        if isinstance(mechanism, RepeatAndSelectMechanism):
            mechanism.audit = Runs()


def listen_to_run(mechanisms: Mapping[str, Mechanism]) -> dict[str, Witness]:
    """Attach a witness to each mechanism before a run, and return the witnesses.

    A witness sees only steps that are not compiled (``mechanisms.ahead = False``). The
    minimiser of a perturbed objective has no witness, because it answers no query.
    """
    watch_runs(mechanisms)
    witnesses = {
        name: Witness(mechanism)
        for name, mechanism in mechanisms.items()
        if not mechanism.release.secret
    }
    for name, witness in witnesses.items():
        mechanisms[name].intercept = witness
    return witnesses
