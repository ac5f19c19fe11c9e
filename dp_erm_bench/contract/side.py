"""One side of a replay: a run on D, or one on D' that is told the answers of D.

What a solver draws itself (``plan``) belongs to the same trial on both sides; the
noise does not: who looks at a mechanism's stream sees another one on D'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.cases import Case
from dp_erm_bench.contract.coins import Coins, spread_of
from dp_erm_bench.contract.minimisers import Matched, matched
from dp_erm_bench.contract.pairs import Neighbours
from dp_erm_bench.contract.runs import run_at
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.base import Array, Mechanism, Mechanisms, Query
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.sampling import PoissonMechanism
from dp_erm_bench.run import Run
from dp_erm_bench.trust.recount import Witness
from dp_erm_bench.trust.replay import Log, Writer

HEARD = 1e-3
"""By which part noise that is read off an answer may be less, by rounding."""
DRIFT = 1e-6
"""What compiled and plain steps may differ by, relative to the largest entry."""


@dataclass
class Told:
    """What one side came to.

    Attributes
    ----------
    refusal : str
        Why nothing was run; empty if something was.
    error : str
        What was raised.
    declared : list
        Length, passes, releases with their sensitivities and laws.
    log : Log
    complaints : list of str
        What is wrong with the run by itself.
    terms : list of array
        What secret linear terms of objectives were told to the solver.
    matched : list of Matched
        The terms that give the same minimisers on D'.
    sampled : list of str
        Releases of sums over samples.
    """

    refusal: str = ""
    error: str = ""
    declared: list[Any] = field(default_factory=list)
    log: Log = field(default_factory=Log)
    complaints: list[str] = field(default_factory=list)
    terms: list[Array] = field(default_factory=list)
    matched: list[Matched] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)


class Side:
    """A run of a case with everything listened to.

    Parameters
    ----------
    candidate : Candidate
    case : Case
    number : int
        0 for D, 1 for D'.
    first : Told, optional
        What the other side was told.
    """

    def __init__(
        self, candidate: Candidate, case: Case, number: int, first: Told | None = None
    ) -> None:
        self.case, self.number, self.first = case, number, first
        self.solver = candidate.build(dict(case.given))
        self.pair: Neighbours = candidate.pair(
            case.family, case.adjacency, case.parts, case.strength
        )
        self.problem = self.pair[number if case.toggled is None else case.toggled]
        self.told = Told()
        self.writer = Writer(self.told.log, first.log if first else None)
        self.witnesses: dict[str, Witness] = {}

    def play(self) -> Told:
        """Run, and return what came of it; nothing is raised."""
        told = self.told
        try:
            with np.errstate(all="ignore"):
                told.refusal = self.solver.refusal(self.problem) or ""
                if not told.refusal:
                    self._run()
        except Unsupported as reason:
            told.refusal = str(reason)
        except Exception as error:
            words = " ".join(str(error).split())
            told.error = f"{type(error).__name__}: {words}"
        return told

    def _run(self) -> None:
        case, told, problem = self.case, self.told, self.problem
        length = self.solver.iterations(problem)
        passes = [
            self.solver.passes_at(problem, t) for t in (0, 1, length // 2, length)
        ]
        told.declared = [length, passes]
        run = self._made(self._enrol)
        told.log.iterates = run.iterates()
        told.declared += _declared(run)
        count, expected = len(told.log.iterates), len(run.checkpoints or ())
        if count != expected:
            self._complain(f"{count} iterates are yielded at {expected} checkpoints")
        for name, mechanism in run.mechanisms.items():
            times = mechanism.release.times
            if mechanism.used != times:
                used = f"release {name} {mechanism.used} times"
                self._complain(f"uses {used} and declares {times}")
        if self.number == 0:
            if not case.brief:
                self._heard(run)
                self._compiled()
            if told.terms:
                told.matched = matched(self.pair, run, told)

    def _made(self, made: Callable[[Mechanisms], None], ahead: bool = False) -> Run:
        case = self.case
        names = tuple(f"{case.family} {k}" for k in range(case.trials))
        return run_at(
            self.problem,
            [self.solver] * case.trials,
            z=case.z,
            identities=names,
            adjacency=case.adjacency,
            checkpoints=_points(case.points, self.solver.iterations(self.problem)),
            epsilon=case.epsilon,
            ahead=ahead,
            streams=tuple(f"{name}, side {self.number}" for name in names),
            listen=made,
        )

    def _enrol(self, mechanisms: Mechanisms) -> None:
        """Listen to mechanisms as soon as they are made."""
        self._sample(mechanisms)
        for name, mechanism in mechanisms.items():
            if mechanism.release.secret:
                setattr(mechanism, "publish", self._secret(mechanism))  # noqa: B010
                continue
            mechanism.intercept = self._answer
            if isinstance(mechanism.release, InsideNoisyMax):
                plain = mechanism.query
                asked = self._scored(mechanism.release, plain)
                setattr(mechanism, "query", asked)  # noqa: B010
            self.witnesses[name] = Witness(mechanism)

    def _scored(
        self, release: InsideNoisyMax, plain: Callable[..., Array]
    ) -> Callable[..., Array]:
        """Compare the spread that is charged with that of the scores."""

        def query(gradient: Array, score: Callable[[Array], Array]) -> Array:
            least = spread_of(release, gradient, score)
            if not release.spread >= least * (1 - 1e-6):
                sizes = f"a spread of {release.spread:.3g}, its scores have {least:.3g}"
                if not any(sizes in said for said in self.told.complaints):
                    self._complain(f"release {release.name} charges {sizes}")
            return plain(gradient, score)

        return query

    def _sample(self, mechanisms: Mechanisms) -> None:
        for name, mechanism in mechanisms.items():
            if not np.isfinite(mechanism.scale).all():
                raise Unsupported(f"release {name} has no finite sensitivity")
            if isinstance(mechanism, PoissonMechanism) and mechanism.rate < 1.0:
                drawn = Coins(mechanism, self.case, self.pair.record, self.number)
                setattr(mechanism, "sample", drawn)  # noqa: B010
                self.told.sampled.append(name)

    def _answer(self, query: Query, publish: Callable[[], Any]) -> Any:
        if self.number == 0 and not self.case.brief:
            witness = self.witnesses[query.name]
            return self.writer(query, lambda: witness(query, publish))
        return self.writer(query, publish)

    def _secret(self, mechanism: Mechanism) -> Callable[[int], Array]:
        plain: Callable[[int], Array] = getattr(mechanism, "publish")  # noqa: B009

        def publish(size: int) -> Array:
            term, use = plain(size), len(self.told.terms)
            if self.first is not None and use < len(self.first.matched):
                term = self.first.matched[use].term
            self.told.terms.append(term.copy())
            return term

        return publish

    def _complain(self, sentence: str) -> None:
        self.told.complaints.append(sentence)

    def _heard(self, run: Run) -> None:
        """Compare the noise of the answers with the streams as they were."""
        for name, witness in self.witnesses.items():
            least = self.case.z * witness.release.weight
            if name not in {made.name for made in run.releases}:
                continue
            if witness.ratio < least * (1 - HEARD):
                self._complain(f"release {name} has other noise than its own")

    def _compiled(self) -> None:
        """Compare with compiled steps, noise being taken ahead."""
        if self.told.terms:
            return
        ends = self._made(self._sample, ahead=True).iterates()
        for one, other in zip(self.told.log.iterates, ends, strict=False):
            size = np.abs(one).max(initial=1.0)
            if not np.isfinite(size) or size > 1e8:
                return  # it diverges, and rounding with it
            if not np.abs(one - other).max(initial=0.0) <= DRIFT * size:
                self._complain("compiled steps are other ones")
                return


def _declared(run: Run) -> list[Any]:
    found: list[Any] = []
    for release in run.releases:
        size = np.asarray(release.sensitivity, dtype=np.float64)
        found.append((release.name, size.shape, size.tobytes(), release.law()))
    return found


def _points(kind: str, length: int) -> tuple[int, ...]:
    if kind == "all":
        return tuple(range(length + 1))
    middle = {length // 3} if kind == "few" else set()
    return tuple(sorted({0, length} | middle))
