"""One side of a replay: a run on a dataset D, or one on D' with the answers of D.

Random numbers that a solver draws itself (``plan``) are those of the same trial on both
sides. The noise is not: a solver that looks at a mechanism's stream finds another one
on D'. Secret random choices are replaced by public ones. A public pattern decides
whether the exchanged record is in a sample, and where it is in a random order.

The released value of a perturbed objective is the minimiser w of F(w) + (ridge/2)
norm2(w)^2 + b.w / n, where b is secret. The run on D' gets the b' for which the
minimiser on D' is the same w (step 1 of ``releases.objective_gaussian``). The
difference b' - b is the change of the sum of the gradients at w, which the declared
sensitivity bounds. Everything computed from w is equal on both sides.

The queries, answers and declarations of both sides are compared. They show which
queries change with the exchanged record. A query over a sample may change only if the
sample contains the record. If a release is charged for one reading of a record, only
one of its queries may change.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.contract.candidate import Candidate, ToBeRewritten, run_at
from dp_erm_bench.contract.cases import Case
from dp_erm_bench.contract.problems import CORNERS, Neighbours
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.perturbed import minimise_perturbed
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.base import Mechanism, Mechanisms, Query, Seed
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeMechanism
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.nested import NestedMechanism, with_inside
from dp_erm_bench.releases.sampling import (
    Batch,
    Indices,
    SampledRelease,
    SamplingMechanism,
)
from dp_erm_bench.releases.single_use_gaussian import (
    SingleUseGaussian,
    SingleUseMechanism,
)
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.private import UnchargedUses
from dp_erm_bench.trust.recount import Witness
from dp_erm_bench.trust.replay import Log, Writer, relative_changes

Array = NDArray[np.float64]
NEAR = 1e-9
"""Distance to the exact minimiser at which the computation stops."""
EQUAL = 1e-5
"""Allowed difference of published minimisers, which are solved to a tolerance."""


def spread_of(
    release: InsideNoisyMax, gradient: Array, score: Callable[[Array], Array]
) -> float:
    """Return the spread of scores, max_i s_i / min_j s_j, of a noisy selection.

    Here s_i is the slope of score i times the sensitivity of coordinate i. A score is
    the absolute value of an affine function, less a constant. Far from 0 it is linear,
    so its slope is measured there.

    Parameters
    ----------
    release : InsideNoisyMax
        The release, with the sensitivity of each coordinate of the gradient.
    gradient : array of shape (B, p)
        The gradient of the query.
    score : callable
        Returns the scores of gradients.
    """
    size = np.broadcast_to(np.asarray(release.sensitivity), gradient.shape)
    far = 1e3 * (1.0 + np.abs(gradient))
    slopes = np.abs(score(gradient + 2.0 * far) - score(gradient + far)) / far
    moved = slopes * size
    moved = np.where(np.isfinite(moved) & (moved > 0.0), moved, np.nan)
    if np.isnan(moved).all():
        return 1.0
    return float(np.nanmax(np.nanmax(moved, axis=1) / np.nanmin(moved, axis=1)))


def public_sample(
    mechanism: SamplingMechanism,
    record: int,
    turned: bool,
    done: Counter[tuple[str, int]],
    trial: int,
    n: int,
    steps: int,
) -> Batch:
    """Return samples that contain the exchanged record according to a public pattern.

    The other records of a Poisson sample are none, all, or a random subset. Each
    sample has positive probability, so a proof for all samples covers these samples. In
    a sample of fixed size the exchanged record takes the place of another record.

    Parameters
    ----------
    mechanism : SamplingMechanism
        The mechanism that asks for samples.
    record : int
        Row of the record in which the neighbours differ.
    turned : bool
        Whether the pattern is inverted.
    done : Counter
        Number of samples so far for each release and trial, over all repeated runs.
    trial, n, steps : int
        Arguments of the mechanism's own ``sample``, which counts the samples.
    """
    type(mechanism).sample(mechanism, trial, n, steps)
    samples, name = [], mechanism.release.name
    held = (
        sample_of_fixed_size
        if isinstance(mechanism, FixedSizeMechanism)
        else sample_by_coins
    )
    for use in range(done[name, trial], done[name, trial] + steps):
        rng = np.random.default_rng([zlib.crc32(name.encode()), trial, use])
        is_in = is_in_sample(name, trial, use) != turned
        samples.append(held(rng, mechanism.rate, n, record, is_in))
    done[name, trial] += steps
    offsets = np.cumsum([0, *(one.size for one in samples)])
    return np.concatenate(samples).astype(np.int64), offsets.astype(np.int64)


def sample_by_coins(
    rng: np.random.Generator, rate: float, n: int, record: int, is_in: bool
) -> Indices:
    """Return a sample drawn by independent coins, except for one record.

    Parameters
    ----------
    rng : Generator
        Source of randomness.
    rate : float
        Probability of each record.
    n : int
        Number of records.
    record : int
        Row of the exchanged record.
    is_in : bool
        Whether the sample contains this record.
    """
    chosen = rng.integers(4)
    held = rng.random(n) < (0.0, 1.0, rate, rate)[chosen]
    held[record] = is_in
    return np.flatnonzero(held)


def sample_of_fixed_size(
    rng: np.random.Generator, rate: float, n: int, record: int, is_in: bool
) -> Indices:
    """Return a sample of fixed size, in which one record may replace another.

    Parameters
    ----------
    rng : Generator
        Source of randomness.
    rate : float
        Size of the sample divided by n.
    n : int
        Number of records.
    record : int
        Row of the exchanged record.
    is_in : bool
        Whether the sample contains this record.
    """
    size = round(rate * n)
    others = np.delete(np.arange(n), record)[rng.permutation(n - 1)]
    place = int(rng.integers(size))
    if size == n:
        return np.insert(others, place, record)
    held = others[:size]
    if is_in:
        held[place] = record
    return held


def is_in_sample(name: str, trial: int, use: int) -> bool:
    """Return whether the exchanged record is in a sample of the run on D.

    Parameters
    ----------
    name : str
        Name of the release.
    trial : int
        Index of the trial in its batch.
    use : int
        Index of the sample in this trial, from 0.
    """
    # Not a checksum: it is linear, so two names would get equal or opposite coins.
    return sha256(f"{name}/{trial}/{use}".encode()).digest()[0] & 1 == 1


def public_order(
    release: SingleUseGaussian, record: int, family: str, trial: int
) -> Indices:
    """Return an order of the records in which the exchanged one has a public place.

    The order is equal on both sides. In the family at the bounds, the exchanged record
    is the last one that is read. In a quarter of the other families it is not read at
    all. Otherwise it is at a random place among the records that are read.

    Parameters
    ----------
    release : SingleUseGaussian
        The release, which reads the first ``fresh`` records of the order.
    record : int
        Row of the exchanged record.
    family : str
        Family of the neighbours.
    trial : int
        Index of the trial in its batch.
    """
    m, n, extreme = release.fresh, release.records, family.startswith(CORNERS)
    seed = zlib.crc32(f"{release.name}/{family}/{n}".encode())
    rng = np.random.default_rng([seed, trial])
    others = rng.permutation(n)
    place = m - 1 if extreme else int(rng.integers(m))
    if not extreme and seed % 4 == 0 and m < n:
        place = int(rng.integers(m, n))
    return np.insert(others[others != record], place, record)


def public_coins(family: str, mechanism: NestedMechanism) -> Seed:
    """Return seeds, equal on both sides, for a mechanism that makes other mechanisms.

    The seeds decide when repeated runs stop, and which kind of step a run makes.
    """
    run = mechanism.identity.partition("/")[2]
    return stream_seeds([f"{family}/{run}" if run else family], "number of runs")


@dataclass
class Matched:
    """The secret term b' of a perturbed objective on D', with any complaint about it.

    Attributes
    ----------
    term : array of shape (B, p)
        The linear terms b', which give the same minimisers as on D.
    ratio : float
        norm2(b' - b) divided by the declared sensitivity.
    complaint : str
        A sentence if the release charges too little curvature, else empty.
    """

    term: Array
    ratio: float
    complaint: str = ""


def match_terms(
    neighbours: Neighbours, run: Run, terms: Sequence[Array], log: Log
) -> list[Matched]:
    """Return the secret terms on D' that match those of a run on D.

    Parameters
    ----------
    neighbours : Neighbours
        The problems on D and on D'.
    run : Run
        The run on D.
    terms : sequence of array of shape (B, p)
        The secret linear terms that the run used.
    log : Log
        The queries and iterates of the run.
    """
    secret = [one.release for one in run.mechanisms.values() if one.release.secret]
    # The first value that was computed from the minimiser.
    answer = log.exchanges[0].query.value if log.exchanges else log.iterates[-1]
    return [
        _of_term(neighbours, release, term, np.atleast_2d(answer))
        for release, term in zip(secret, terms, strict=False)
    ]


def _of_term(
    neighbours: Neighbours, release: Any, term: Array, answer: Array
) -> Matched:
    problem, other, _ = neighbours
    # A curvature is charged as log(1 + beta / (n modulus)).
    scale, own = problem.record_smoothness / problem.n, problem.penalty.strong_convexity
    grown = float(np.expm1(release.curvature))
    claimed = scale / grown if grown > 0.0 else np.inf
    ridges = [
        _ridge_of_minimiser(problem, b, w) for b, w in zip(term, answer, strict=False)
    ]
    modulus = next((ridge + own for ridge in ridges if ridge is not None), claimed)
    complaint = ""
    if claimed > modulus * (1 + 1e-6):
        complaint = (
            f"release {release.name} charges a curvature of {release.curvature:.3g}; "
            f"that of its objective is {np.log1p(scale / modulus):.3g}"
        )
    if not np.isfinite(modulus):
        return Matched(term, 0.0, "release charges no curvature")
    moved = np.empty_like(term)
    for b, row in zip(term, moved, strict=True):
        w = minimise_perturbed(problem, b / problem.n, max(0.0, modulus - own), NEAR).w
        row[:] = b + problem.n * (problem.gradient(w) - other.gradient(w))
    change = float(np.linalg.norm(moved - term, axis=1).max())
    return Matched(moved, change / float(np.max(release.sensitivity)), complaint)


def _ridge_of_minimiser(problem: ERMProblem, b: Array, w: Array) -> float | None:
    """Return the ridge for which w is the minimiser; None if it is not determined."""
    plain = problem.penalty.quadratic and not problem.constraint.bounded
    size = float(w @ w)
    if not plain or size == 0.0:
        return None
    slope = problem.gradient(w) + problem.penalty.strong_convexity * w + b / problem.n
    ridge = -float(slope @ w) / size
    rest = np.linalg.norm(slope + ridge * w)
    near = rest <= 1e-6 * (np.linalg.norm(b) / problem.n + 1e-6)
    return ridge if near and ridge > -1e-9 else None


HEARD = 1e-3
"""Relative error by which rounding may reduce the noise recovered from an answer."""
DRIFT = 1e-6
"""Allowed difference of compiled and plain steps, relative to the largest entry."""


@dataclass
class Account:
    """The declarations, queries and published values of one side of a replay.

    Attributes
    ----------
    refusal : str
        The reason why the case was not run; empty if it was run.
    error : str
        The error that was raised; empty if none was.
    declared : list
        What the solver declares: the length of the run, the passes at some steps, and
        the name, sensitivity and law of each release.
    log : Log
        The queries, answers and iterates of the run.
    complaints : list of str
        Violations that this run shows by itself.
    terms : list of array
        The secret linear terms of perturbed objectives, in the order in which the
        solver got them.
    matched : list of Matched
        The terms that give the same minimisers on D'.
    sampled : dict of str to Release
        The releases of sums over secret samples, by name.
    read : dict of str to list of bool
        Whether each trial reads the exchanged record, for each release that reads a
        record only once.
    uncharged : list
        The values that the solver published with `uncharged`, for which no budget pays.
    """

    refusal: str = ""
    error: str = ""
    declared: list[Any] = field(default_factory=list)
    log: Log = field(default_factory=Log)
    complaints: list[str] = field(default_factory=list)
    terms: list[Array] = field(default_factory=list)
    matched: list[Matched] = field(default_factory=list)
    sampled: dict[str, SampledRelease] = field(default_factory=dict)
    read: dict[str, list[bool]] = field(default_factory=dict)
    uncharged: list[Any] = field(default_factory=list)


class Side:
    """A run of a case whose queries and answers are all recorded.

    Parameters
    ----------
    candidate : Candidate
        The algorithm that is run.
    case : Case
        How it is run.
    number : int
        0 for D, 1 for D'.
    first : Account, optional
        The account of the run on D, whose answers are replayed on D'.
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
        self.neighbours = case.neighbours(candidate)
        side = number if case.toggled is None else case.toggled
        self.problem = self.neighbours[:2][side]
        self.account = Account()
        self.writer = Writer(self.account.log, first.log if first else None)
        self.fed_terms = [one.term for one in first.matched] if first else []
        self.uses = UnchargedUses(
            self.solver.uncharged, first.uncharged if first else None
        )
        self.witnesses: list[Witness] = []
        self.enrolled: list[Mechanism] = []
        self.publishing = False

    def play(self) -> Account:
        """Run the case and return its account; raise nothing except `ToBeRewritten`."""
        account = self.account
        try:
            with np.errstate(all="ignore"):
                account.refusal = self.solver.refusal(self.problem) or ""
                if not account.refusal:
                    self._run_case()
        except Unsupported as reason:
            account.refusal = str(reason)
        except ToBeRewritten:
            raise
        except (Exception, SystemExit) as error:
            account.error = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return account

    def _run_case(self) -> None:
        account, length = self.account, self.solver.iterations(self.problem)
        passes = partial(self.solver.passes_at, self.problem)
        account.declared = [length, *map(passes, (0, 1, length // 2, length))]
        run = self._make_run(self._listen_to)
        account.uncharged = self.uses.values
        oracle = run.oracle()
        # The budget may pay for fewer steps.
        paid = run.solver.iterations(self.problem)
        account.log.steps = sorted({min(t, paid) for t in run.checkpoints or ()})
        account.log.iterates = [w.copy() for w in run.steps(oracle, account.log.steps)]
        z = run.calibration.z if self.case.calibrated else self.case.z
        for release in with_inside(run.releases, z):
            size = np.asarray(release.sensitivity, dtype=np.float64)
            # As text, since the two sides have classes of their own.
            law = repr(release.law())
            account.declared.append((release.name, size.shape, size.tobytes(), law))
        if self.case.calibrated:  # then the run may have changed its solver
            passes = partial(run.solver.passes_at, self.problem)
            account.declared += map(passes, account.log.steps)
        count, expected = len(account.log.iterates), len(account.log.steps)
        if count != expected:
            self._add_complaint(
                f"{count} iterates are yielded at {expected} checkpoints"
            )
        account.log.uses = [(one.release.name, one.used) for one in self.enrolled]
        ended = all(np.isfinite(w).all() for w in account.log.iterates)
        lacking = run.mechanisms.shortfall()
        if lacking and ended and not self.solver.may_stop_early:
            self._add_complaint(lacking)
        if self.number == 0 and not self.case.untold:
            self._look_closer(run)

    def _look_closer(self, run: Run) -> None:
        """Check what can be seen from the run on D alone."""
        account = self.account
        for witness in self.witnesses:
            if not witness.is_as_loud(self.case.z, HEARD):
                name = witness.release.name
                self._add_complaint(f"release {name} has other noise than its own")
        if account.terms:
            account.matched = match_terms(
                self.neighbours, run, account.terms, account.log
            )
        elif not self.case.brief:
            self._compare_compiled()

    def _make_run(self, made: Callable[[Mechanisms], None], ahead: bool = False) -> Run:
        """Return the run of the case, after calling ``made`` with its mechanisms."""
        case, length = self.case, self.solver.iterations(self.problem)
        self.samples = Counter[tuple[str, int]]()
        names = tuple(f"{case.family} {k}" for k in range(case.trials))
        middle = {"all": range(length), "few": [length // 3], "ends": []}[case.points]
        return run_at(
            self.problem,
            [self.solver] * case.trials,
            "certified" if case.calibrated else case.z,
            *(names, case.adjacency),
            checkpoints=sorted({0, length, *middle}),
            epsilon=case.epsilon,
            ahead=ahead,
            streams=tuple(f"{name}, side {self.number}" for name in names),
            listen=made,
            uses=self.uses if made == self._listen_to else None,
        )

    def _listen_to(self, mechanisms: Any) -> None:
        """Replace methods of new mechanisms by others that record the calls."""
        mechanisms.ahead = False
        self.enrolled += mechanisms.values()
        self._fix_samples(mechanisms)
        for mechanism in mechanisms.values():
            if mechanism.release.secret:
                mechanism.publish = partial(self._next_term, mechanism.publish)
                continue
            witness = Witness(mechanism)
            if getattr(mechanism.release, "epsilon_share", None) is None:
                self.witnesses.append(witness)
            mechanism.intercept = partial(self._record_answer, witness)
            mechanism.publish = partial(self._note_publishing, mechanism.publish)
            mechanism.unit_noise = partial(self._noise_of_query, mechanism)
            mechanism.listen = self._listen_to  # to those inside
            if isinstance(mechanism.release, InsideNoisyMax):
                mechanism.query = partial(
                    self._check_spread, mechanism.release, mechanism.query
                )

    def _fix_samples(self, mechanisms: Mechanisms) -> None:
        record, family = self.neighbours.record, self.case.family
        for name, mechanism in mechanisms.items():
            plain: Any = mechanism
            if self.case.z and not np.isfinite(mechanism.scale).all():
                raise Unsupported(f"release {name} has no finite sensitivity")
            if isinstance(mechanism, NestedMechanism):
                mechanism.seeds = public_coins(family, mechanism)
                mechanism.listen = self._fix_samples
            if isinstance(mechanism, SamplingMechanism) and mechanism.is_secret:
                turned = self.case.toggled is not None and self.number == 1
                plain.sample = partial(
                    public_sample, mechanism, record, turned, self.samples
                )
                if mechanism.rate < 1.0:
                    self.account.sampled[name] = plain.release
            if isinstance(mechanism, SingleUseMechanism):
                release = mechanism.release
                if release.drawn:
                    plain.permutation = partial(public_order, release, record, family)
                orders = map(mechanism.permutation, range(mechanisms.batch))
                self.account.read[name] = [
                    record in order[: release.fresh] for order in orders
                ]

    def _record_answer(
        self, witness: Witness, query: Query, publish: Callable[[], Any]
    ) -> Any:
        if self.number == 0 and not self.case.brief:
            publish = partial(witness, query, publish)
        return self.writer(query, publish)

    def _note_publishing(
        self, plain: Callable[..., Any], *args: Any, **keys: Any
    ) -> Any:
        before, self.publishing = self.publishing, True
        try:
            return plain(*args, **keys)
        finally:
            self.publishing = before

    def _noise_of_query(self, mechanism: Mechanism, *size: int) -> Array:
        """Return the noise of a query; raise ToBeRewritten outside of a query."""
        if not self.publishing:
            raise ToBeRewritten(
                f"release {mechanism.release.name}: its noise is taken ahead, for a "
                "compiled step; where `ahead` of the mechanisms is False make plain "
                "steps, which ask it: what compiled ones ask cannot be replayed"
            )
        return type(mechanism).unit_noise(mechanism, *size)

    def _check_spread(
        self,
        release: InsideNoisyMax,
        plain: Callable[..., Array],
        gradient: Array,
        score: Callable[[Array], Array],
    ) -> Array:
        """Return a query after comparing its scores' spread with the charged spread."""
        least = spread_of(release, gradient, score)
        if not release.spread >= least * (1 - 1e-6):
            sizes = f"a spread of {release.spread:.3g}, its scores have {least:.3g}"
            self._add_complaint(f"release {release.name} charges {sizes}")
        return plain(gradient, score)

    def _next_term(self, plain: Callable[[int], Array], size: int) -> Array:
        """Return the next secret term; on D', the one with the same minimiser."""
        term, use = plain(size), len(self.account.terms)
        term = self.fed_terms[use] if use < len(self.fed_terms) else term
        self.account.terms.append(term.copy())
        return term

    def _add_complaint(self, sentence: str) -> None:
        self.account.complaints.append(sentence)

    def _compare_compiled(self) -> None:
        """Compare the run with one whose steps are compiled, with noise taken ahead."""
        ends = self._make_run(self._fix_samples, ahead=True).iterates()
        for one, other in zip(self.account.log.iterates, ends, strict=False):
            size = np.abs(one).max(initial=1.0)
            if not np.isfinite(size) or size > 1e8:
                return  # the run diverges, and rounding errors grow with it
            if not np.abs(one - other).max(initial=0.0) <= DRIFT * size:
                self._add_complaint("compiled steps are other ones")
                return


SLACK, STILL, HALF = 1e-7, 1e-7, 0.5
"""Allowed rounding in changes, and the largest own term of a sampled record.

The first number is the rounding allowed in a change divided by its sensitivity. The
second is the rounding allowed in a change that must be 0. The third is the share of the
sensitivity that a record's own term may reach under ``replace_one``.
"""


def too_large(first: Account, ratios: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence for each sum over samples to which a record adds too much.

    Under ``replace_one`` the law of a sample requires that each record's own term is
    at most half of the sensitivity. A bound on the difference of two terms of one sign
    does not imply this (``releases/sampling.py``).
    """
    for name in sorted(name for name, one in first.sampled.items() if one.halved):
        ratio = ratios.get(name, 0.0)
        if HALF + SLACK < ratio <= 1.0 + SLACK:
            yield (
                f"release {name}: a record's own term is {ratio:.3g} times the "
                f"declared sensitivity, at most {HALF} is charged for a sample under "
                "replace_one"
            )


def moves_of(first: Account, second: Account, name: str) -> list[NDArray[np.bool_]]:
    """Return, for each use of a release, which trials' queries the record changes.

    There is one array of shape (B,) for each use.

    Parameters
    ----------
    first, second : Account
        The accounts of the runs on D and on D'.
    name : str
        Name of the release.
    """
    queries, others = (
        [one.query for one in side.log.exchanges if one.query.name == name]
        for side in (first, second)
    )
    return [
        relative_changes(one, other).max(axis=1, initial=0.0) > STILL
        if one.value.shape == other.value.shape
        else np.zeros(len(one.value), np.bool_)
        for one, other in zip(queries, others, strict=False)
    ]


def moved_outside_samples(first: Account, second: Account) -> Iterator[str]:
    """Yield a sentence for each release that a record outside its sample changes."""
    for name in sorted(first.sampled):
        for use, moved in enumerate(moves_of(first, second, name)):
            if any(
                moves and not is_in_sample(name, b, use)
                for b, moves in enumerate(moved)
            ):
                yield f"release {name} moves with a record that is not in its sample"
                break


def read_again(first: Account, second: Account) -> Iterator[str]:
    """Yield a sentence for each release that reads a record more often than charged.

    A release may read a record once if the record was handed to it, and otherwise not
    at all.
    """
    for name, read in sorted(first.read.items()):
        moves = sum(moves_of(first, second, name), np.zeros(len(read), np.int64))
        for count, handed in zip(moves.tolist(), read, strict=True):
            if count > handed:
                times = "once" if handed else "no time"
                yield f"release {name} reads a record {count} times, {times} is charged"
                break
