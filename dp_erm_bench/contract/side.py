"""One side of a replay: a run on D, or one on D' that is told the answers of D.

What a solver draws itself (``plan``) belongs to the same trial on both sides; the
noise does not: who looks at a mechanism's stream sees another one on D'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dp_erm_bench.contract import hidden, reads, told
from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.cases import Case
from dp_erm_bench.contract.runs import run_at
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.base import Array, Mechanisms, Query
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.nested import NestedMechanism, with_inside
from dp_erm_bench.releases.sampling import SamplingMechanism
from dp_erm_bench.releases.single_use_gaussian import SingleUseMechanism
from dp_erm_bench.run import Run
from dp_erm_bench.trust.recount import Witness
from dp_erm_bench.trust.replay import Log, Writer

HEARD = 1e-3
"""Part by which rounding may reduce the noise that is read off an answer."""
DRIFT = 1e-6
"""Allowed difference of compiled and plain steps, relative to the largest entry."""


@dataclass
class Account:
    """The record of one side of a replay.

    Attributes
    ----------
    refusal : str
        The reason why nothing was run; empty if something was.
    error : str
        The error that was raised; empty if none was.
    declared : list
        Length, passes, releases with their sensitivities and laws.
    log : Log
    complaints : list of str
        Violations by this run alone.
    terms : list of array
        The secret linear terms of objectives that the solver got.
    matched : list of Matched
        The terms that give the same minimisers on D'.
    sampled : dict of str to bool
        Releases of sums over samples, and whether a record's own term must be at most
        half of the sensitivity under ``replace_one``.
    read : dict of str to list of bool
        Releases that read each record once: whether the trials read the one exchanged.
    told : list of (str, str)
        What was printed, written and started, see ``told``.
    steps : list of int
        The checkpoints.
    reads : Reads or None
        Where the solver read the data; of D' in a process of its own alone.
    asked : list of int
        The number of reads before each iterate, and first of all before the first step.
    ran : frozenset of int
        What of the sources ran (``covered``).
    """

    refusal: str = ""
    error: str = ""
    declared: list[Any] = field(default_factory=list)
    log: Log = field(default_factory=Log)
    complaints: list[str] = field(default_factory=list)
    terms: list[Array] = field(default_factory=list)
    matched: list[hidden.Matched] = field(default_factory=list)
    sampled: dict[str, bool] = field(default_factory=dict)
    read: dict[str, list[bool]] = field(default_factory=dict)
    told: told.Told = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    reads: reads.Reads | None = None
    asked: list[int] = field(default_factory=list)
    ran: frozenset[int] = frozenset()


class Side:
    """A run of a case with everything listened to.

    Parameters
    ----------
    candidate : Candidate
    case : Case
    number : int
        0 for D, 1 for D'.
    first : Account, optional
        The account of D, whose answers are replayed on D'.
    """

    def __init__(
        self,
        candidate: Candidate,
        case: Case,
        number: int,
        first: Account | None = None,
    ) -> None:
        self.case, self.number = case, number
        self.solver = candidate.build(dict(case.params))
        names = (case.family, case.adjacency, case.parts, case.strength)
        self.neighbours = candidate.neighbours(*names)
        side = number if case.toggled is None else case.toggled
        self.problem = self.neighbours.second if side else self.neighbours.first
        self.account = Account()
        self.writer = Writer(self.account.log, first.log if first else None)
        self.fed_terms = [one.term for one in first.matched] if first else []
        self.witnesses: list[Witness] = []

    def play(self) -> Account:
        """Run, and return the account; nothing is raised."""
        account = self.account
        try:
            with np.errstate(all="ignore"):
                with told.heard() as account.told, reads.noted() as noted:
                    account.reads = noted if self.number else None
                    account.refusal = self.solver.refusal(self.problem) or ""
                    run = None if account.refusal else self._run(noted)
                if run is not None and self.number == 0:
                    self._look_closer(run)
        except Unsupported as reason:
            account.refusal = str(reason)
        except Exception as error:
            words = " ".join(str(error).split())
            account.error = f"{type(error).__name__}: {words}"
        return account

    def _run(self, noted: reads.Reads) -> Run:
        account, length = self.account, self.solver.iterations(self.problem)
        passes = partial(self.solver.passes_at, self.problem)
        account.declared = [length, *map(passes, (0, 1, length // 2, length))]
        run = self._made(self._enrol)
        oracle = run.oracle()
        # The budget may pay for fewer steps.
        paid = run.solver.iterations(self.problem)
        account.steps = sorted({min(t, paid) for t in run.checkpoints or ()})
        account.asked.append(noted.count)
        for w in run.steps(oracle, account.steps):
            account.log.iterates.append(w.copy())
            account.asked.append(noted.count)
        z = run.calibration.z if self.case.calibrated else self.case.z
        for release in with_inside(run.releases, z):
            size = np.asarray(release.sensitivity, dtype=np.float64)
            bits = (size.shape, size.tobytes())
            account.declared.append((release.name, *bits, release.law()))
        if self.case.calibrated:  # the solver may be another one then
            passes = partial(run.solver.passes_at, self.problem)
            account.declared += map(passes, account.steps)
        count, expected = len(account.log.iterates), len(account.steps)
        if count != expected:
            self._complain(f"{count} iterates are yielded at {expected} checkpoints")
        for name, mechanism in run.mechanisms.items():
            used, times = mechanism.used, mechanism.release.times
            if used != times:
                self._complain(f"uses release {name} {used} times and declares {times}")
        return run

    def _look_closer(self, run: Run) -> None:
        """Judge what needs the run on D alone."""
        account = self.account
        if not self.case.brief:
            self._hear_little()
            self._compare_compiled()
        if account.terms:
            how = (self.neighbours, run, account.terms, account.log)
            account.matched = hidden.matched(*how)

    def _made(self, made: Callable[[Mechanisms], None], ahead: bool = False) -> Run:
        """Return the run of the case; ``made`` is called with its mechanisms."""
        case, length = self.case, self.solver.iterations(self.problem)
        self.samples = Counter[tuple[str, int]]()
        names = tuple(f"{case.family} {k}" for k in range(case.trials))
        middle = {"all": range(length), "few": [length // 3], "ends": []}[case.points]
        noise: Any = "certified" if case.calibrated else case.z
        points = tuple(sorted({0, length, *middle}))
        return run_at(
            self.problem,
            [self.solver] * case.trials,
            *(noise, names, case.adjacency),
            checkpoints=points,
            epsilon=case.epsilon,
            ahead=ahead,
            streams=tuple(f"{name}, side {self.number}" for name in names),
            listen=made,
        )

    def _enrol(self, mechanisms: Mechanisms) -> None:
        """Listen to mechanisms as soon as they are made."""
        mechanisms.ahead = False
        self._sample(mechanisms)
        for mechanism in mechanisms.values():
            plain: Any = mechanism
            if mechanism.release.secret:
                plain.publish = partial(self._next_term, plain.publish)
                continue
            witness = Witness(mechanism)
            if getattr(mechanism.release, "epsilon_share", None) is None:
                self.witnesses.append(witness)
            mechanism.intercept = partial(self._answer, witness)
            plain.listen = self._enrol  # to those inside
            if isinstance(mechanism.release, InsideNoisyMax):
                plain.query = partial(self._scored, mechanism.release, plain.query)

    def _sample(self, mechanisms: Mechanisms) -> None:
        for name, mechanism in mechanisms.items():
            if self.case.z and not np.isfinite(mechanism.scale).all():
                raise Unsupported(f"release {name} has no finite sensitivity")
            if isinstance(mechanism, NestedMechanism):
                mechanism.seeds = hidden.public_coins(self.case.family, mechanism)
                mechanism.listen = self._sample
            if isinstance(mechanism, SamplingMechanism) and mechanism.is_secret:
                turned = self.case.toggled is not None and self.number == 1
                how = (mechanism, self.neighbours.record, turned, self.samples)
                sample = reads.listening(hidden.public_samples(*how))
                setattr(mechanism, "sample", sample)  # noqa: B010
                if mechanism.rate < 1.0:
                    self.account.sampled[name] = mechanism.halved
            if isinstance(mechanism, SingleUseMechanism):
                record, m = self.neighbours.record, mechanism.release.fresh
                if mechanism.release.drawn:
                    order = hidden.public_order(mechanism, record, self.case.family)
                    setattr(mechanism, "permutation", order)  # noqa: B010
                orders = map(mechanism.permutation, range(mechanisms.batch))
                self.account.read[name] = [record in order[:m] for order in orders]

    def _answer(
        self, witness: Witness, query: Query, publish: Callable[[], Any]
    ) -> Any:
        if self.number == 0 and not self.case.brief:
            publish = partial(witness, query, publish)
        return self.writer(query, publish)

    def _scored(
        self,
        release: InsideNoisyMax,
        plain: Callable[..., Array],
        gradient: Array,
        score: Callable[[Array], Array],
    ) -> Array:
        """Return the query, its scores' spread compared with the one charged."""
        least = hidden.spread_of(release, gradient, score)
        if not release.spread >= least * (1 - 1e-6):
            sizes = f"a spread of {release.spread:.3g}, its scores have {least:.3g}"
            self._complain(f"release {release.name} charges {sizes}")
        return plain(gradient, score)

    def _next_term(self, plain: Callable[[int], Array], size: int) -> Array:
        """Return the next secret term: on D', the one of the same minimiser."""
        term, use = plain(size), len(self.account.terms)
        term = self.fed_terms[use] if use < len(self.fed_terms) else term
        self.account.terms.append(term.copy())
        return term

    def _complain(self, sentence: str) -> None:
        self.account.complaints.append(sentence)

    def _hear_little(self) -> None:
        """Compare the noise of the answers with the streams as they were."""
        for witness in self.witnesses:
            name, weight = witness.release.name, witness.release.weight
            if witness.ratio < self.case.z * weight * (1 - HEARD):
                self._complain(f"release {name} has other noise than its own")

    def _compare_compiled(self) -> None:
        """Compare with compiled steps, noise being taken ahead."""
        if self.account.terms:
            return
        ends = self._made(self._sample, ahead=True).iterates()
        for one, other in zip(self.account.log.iterates, ends, strict=False):
            size = np.abs(one).max(initial=1.0)
            if not np.isfinite(size) or size > 1e8:
                return  # it diverges, and rounding with it
            if not np.abs(one - other).max(initial=0.0) <= DRIFT * size:
                self._complain("compiled steps are other ones")
                return
