"""Measure whether releases of classes from outside the package obey their laws.

A law is the distribution of the noise that an accountant assumes. Each law of the
package has a twin (an independent second implementation), a test of its draws, and a
proof that was read. A class from outside, even a subclass, has only the law that it
claims. Such a class may draw half of the noise. It may add noise for one norm to a
value whose change is bounded in another norm. It may claim fewer uses than a record
takes part in.

So the mechanism of the release is called many times. It gets the solver's queries on
two neighbours, and values that differ by the declared sensitivity. One half of the
answers is used to choose an event that distinguishes the two sides. On the other half,
Clopper-Pearson confidence bounds on the probabilities of this event give a lower bound
on delta at any epsilon. The law must not claim a smaller delta (``audit.profile``).

If a law claims a Renyi curve, the curve is also compared with a lower bound, since a
delta that follows from a curve says little about the curve. If a mechanism of the
package adds draws of the package to one number, the delta is also known exactly.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dp_erm_bench.accounting.certify import delta_at
from dp_erm_bench.audit.profile import (
    GRID,
    at_least,
    at_most,
    held_out,
    profile_excess,
)
from dp_erm_bench.code_identity import PACKAGE, is_ours
from dp_erm_bench.contract.candidate import Candidate, NotApplicable, require, run_at
from dp_erm_bench.contract.cases import Case, varied_cases
from dp_erm_bench.contract.problems import CORNERS, LARGE
from dp_erm_bench.contract.replay import LONGER, cases_at_corners
from dp_erm_bench.contract.side import Side
from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanism, Mechanisms, Release
from dp_erm_bench.releases.l1_laplace import L1Mechanism
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.nested import NestedMechanism, with_inside
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.sampling import PoissonMechanism, SamplingMechanism
from dp_erm_bench.releases.single_use_gaussian import SingleUseMechanism
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.trust.twins.base import twin_of

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]

NOISES, FEWER = 100_000, 20_000
"""Numbers of draws on each side, for the first form of a class and for the others."""
FORMS = 3
"""Largest number of forms (combinations of law and shape) measured for a class."""
MULTIPLIERS = (0.7, 2.5)
"""Noise multipliers, in units of the law, that show most of a privacy profile."""
KNOWN_AT = (0.3, 0.7, 2.3, 9.7)
"""Noise multipliers at which the distribution of the noise is tested.

The multipliers are chosen so that the shift between the two sides falls on no lattice.
"""
ORDERS, COMMON = np.array([1.2, 1.5, 2.0, 4.0]), 0.9
"""Orders of a Renyi curve, and the share of the answers whose ratios count in full.

Higher orders are not measured, because rare events decide their divergence.
"""
TIMES = 100
"""Largest number of uses of one mechanism."""
FALSE_ALARM = 1e-6
MOVED = 1e-9
"""Largest relative change of an argument that may be due to rounding."""
BINS = 100
PLACES = np.linspace(-1.0, 1.0, 60)
"""Shifts of a pair of values, as multiples of their difference, to be tried.

None of them is 1/2. Halfway between two multiples of the difference, rounding may go
either way.
"""


def releases_of_outside_are_measured(candidate: Candidate) -> None:
    """Check that releases from outside the package add the noise of their laws."""
    forms: dict[Any, Call] = {}
    for case, releases in _cases_of_outside(candidate):
        for call in _calls_of_outside(candidate, case, releases):
            most = forms.setdefault(call.comparable_form, call)
            forms[call.comparable_form] = max(most, call, key=lambda one: one.moved)
    if not forms:
        raise NotApplicable("all that it releases is of kinds of the package")
    counts = Counter[type]()
    for call in forms.values():
        counts[type(call.release)] += 1
        count = counts[type(call.release)]
        if count <= FORMS:
            require_law_holds(call, NOISES if count == 1 else FEWER)


def releases_without_twin(candidate: Candidate) -> dict[str, str]:
    """Return a sentence for each release from outside without a second implementation.

    Such an implementation is called the twin of the release.
    """
    every = itertools.chain(*(releases for _, releases in _cases_of_outside(candidate)))
    return {
        one.name: f"release {one.name} of kind {type(one).__name__} names no twin"
        for one in every
        if twin_of(type(one)) is None
    }


def is_foreign(release: Release) -> bool:
    """Return whether any code or data of a release comes from outside the package.

    A class is recognised by its identity, not by its name or its base classes. A class
    of the package that was changed from outside counts as foreign.
    """
    own = {one.name for one in fields(release)}
    changed = _is_changed(*type(release).__mro__, *release.mechanism.__mro__)
    return not type(release).is_built_in() or changed or bool({*vars(release)} - own)


def _is_changed(*kinds: type) -> bool:
    """Return whether any of the classes has a function from outside the package."""
    functions = (_function_behind(x) for kind in kinds for x in vars(kind).values())
    modules = {one.__module__ for one in functions if isinstance(one, FunctionType)}
    outside = {name for name in modules if name.partition(".")[0] != PACKAGE}
    return bool(outside - {"abc", "dataclasses", "typing", "functools"})


def _function_behind(attribute: Any) -> Any:
    """Return the function behind an attribute of a class."""
    inner = getattr(attribute, "__func__", getattr(attribute, "fget", attribute))
    return getattr(inner, "__wrapped__", inner)


def _cases_of_outside(candidate: Candidate) -> Iterator[tuple[Case, list[Release]]]:
    """Yield cases of one trial that declare releases from outside, with these releases.

    The cases are the variants on records at the bounds, in short and longer runs, and
    the combinations of parameters that lead to further laws.
    """
    if is_ours(candidate.solver):
        return
    far = itertools.chain(
        cases_at_corners(candidate), cases_at_corners(candidate, LONGER)
    )
    done, objectives = set[Any](), dict[Any, Any]()
    for case in itertools.chain(far, varied_cases(candidate)):
        if case.toggled is not None or case.family in LARGE:
            continue
        # At the bounds, all pairs of the first objective are used.
        parts = objectives.setdefault(case.params, case.parts)
        if case.parts != parts or (case.params in done and CORNERS not in case.family):
            continue
        done.add(case.params)
        releases = _declared_outside(candidate, case)
        laws = {replace(one.law(), times=1) for one in releases}
        if laws and (CORNERS in case.family or not laws <= done):
            yield replace(case, trials=1, brief=True), releases
        done |= laws


def _declared_outside(candidate: Candidate, case: Case) -> list[Release]:
    """Return the releases from outside that a case declares."""
    names = (case.family, case.adjacency, case.parts, case.strength)
    try:
        problem = candidate.neighbours(*names).first
        solver = candidate.build(dict(case.params))
        run = run_at(problem, [solver], case.z, adjacency=case.adjacency)
    except Exception:  # a replay will report the error
        return []
    return [one for one in with_inside(run.releases, case.z) if is_foreign(one)]


@dataclass
class Call:
    """The arguments of one call to a mechanism, on two neighbouring datasets.

    The class of the mechanism's release is from outside the package.

    Attributes
    ----------
    release : Release
        The release of the mechanism.
    first, second : tuple of (arguments, keywords)
        The arguments on D and on D', in the use in which they differ most.
    moved : float
        The largest relative change of an argument in this use.
    whole : bool
        Whether all values that the mechanism got were whole numbers.
    records : int
        Number n of records.
    adjacency : Adjacency
        The relation between D and D'.
    """

    release: Release
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    moved: float
    whole: bool
    records: int
    adjacency: Adjacency

    @functools.cached_property
    def law(self) -> Law:
        """Return the law of a single use of the release."""
        law = self.release.law()
        return replace(law, times=math.ceil(law.times / self.release.times))

    @property
    def comparable_form(self) -> tuple[Any, ...]:
        """Return a key; of the calls with equal keys, only one needs to be measured."""
        shapes = tuple(np.shape(one) for one in self.first[0])
        law = self.law
        return type(self.release), self.release.mechanism, type(law), law, shapes


class Ear(Side):
    """One side of a replay; it stores how the solver calls the mechanisms.

    Only mechanisms of classes from outside the package are observed.
    """

    @functools.cached_property
    def arguments_by_release(self) -> dict[str, list[Any]]:
        """Return the arguments and keywords of each use, by the release's name."""
        return defaultdict(list)

    def _listen_to(self, mechanisms: Mechanisms) -> None:
        super()._listen_to(mechanisms)
        for mechanism in mechanisms.values():
            if is_foreign(mechanism.release):
                plain: Any = mechanism
                name = mechanism.release.name
                self.arguments_by_release[name].clear()
                plain.publish = functools.partial(
                    self._keep_arguments, name, plain.publish
                )

    def _keep_arguments(
        self, name: str, plain: Callable[..., Any], *args: Any, **keys: Any
    ) -> Any:
        self.arguments_by_release[name].append((copy.deepcopy(args), keys))
        return plain(*args, **keys)


def _calls_of_outside(
    candidate: Candidate, case: Case, releases: Sequence[Release]
) -> Iterator[Call]:
    """Yield the call that differs most on neighbours, for each release from outside.

    ContractError is raised if the record changes more uses than the law counts.
    """
    first = Ear(candidate, case, 0)
    account = first.play()
    second = Ear(candidate, case, 1, account)
    second.play()
    for release in releases:
        name, law = release.name, release.law()
        asked = (side.arguments_by_release[name] for side in (first, second))
        pairs = list(zip(*asked, strict=False))
        moves = [_largest_move(one, other) for one, other in pairs]
        held = isinstance(release.mechanism, type) and issubclass(
            release.mechanism, SamplingMechanism
        )
        # Any sample may contain the record.
        uses = len(moves) if held else sum(move > MOVED for move in moves)
        require(
            uses <= law.times,
            f"{case.title}: release {name} of kind {type(release).__name__} moves with "
            f"a record at {uses} uses, its law is that of {law.times}",
        )
        if moves:
            values = [np.ravel(x[0][0]) for pair in pairs for x in pair]
            (one, other), most = pairs[int(np.argmax(moves))], max(moves)
            yield Call(
                release,
                one,
                other,
                most,
                not release.secret and all(map(_is_whole, values)),
                first.problem.n,
                case.adjacency,
            )


def _is_whole(values: Array) -> bool:
    return bool((np.isfinite(values) & (values == np.round(values))).all())


def _largest_move(one: Any, other: Any) -> float:
    """Return the largest difference of an argument, relative to the argument's size."""
    sizes = [0.0]
    for a, b in zip(one[0], other[0], strict=False):
        if isinstance(a, np.ndarray) and a.dtype.kind == "f" and np.shape(b) == a.shape:
            change = np.nan_to_num(np.abs(a - b), posinf=0.0)
            sizes.append(float(change.max(initial=0.0) / max(1.0, np.abs(a).max())))
    return max(sizes)


@dataclass(frozen=True, eq=False)
class ValuePair:
    """Two values whose answers are compared, each of shape (k,).

    Attributes
    ----------
    words : str
        A description of how the values differ.
    first, second : array of shape (k,)
        The values.
    other : tuple, optional
        All arguments of the second call, if it has more arguments than the value.
    adjacencies : tuple of Adjacency
        The adjacencies under which neighbours may give these two values.
    """

    words: str
    first: Array
    second: Array
    other: Any = None
    adjacencies: tuple[Adjacency, ...] = field(default=tuple(Adjacency))


def require_law_holds(call: Call, many: int) -> None:
    """Raise ContractError if a measured delta is above the one that a law claims.

    Parameters
    ----------
    call : Call
        The arguments that the mechanism was called with.
    many : int
        Number of draws of unit noise on each side.
    """
    kind, name = type(call.release).__name__, call.release.name
    title = f"release {name} of kind {kind}"
    reason = _reason_not_measured(call.release)
    if reason:
        # Then only a twin can support its law.
        has_twin = twin_of(type(call.release)) is not None
        require(has_twin, f"{title} {reason}, so that it is not measured: name a twin")
        return
    for noise in noises_of(call.release):
        for multiplier in KNOWN_AT:
            found = law_refutation(call, noise, multiplier / call.law.weight)
            words = f"{title}, noise {multiplier:g} times the sensitivity"
            require(not found, f"{words}: {found}")
        repeated = noise.repetition_in_words() if isinstance(noise, Drawn) else ""
        require(not repeated, f"{title}: {repeated}")
    for multiplier in MULTIPLIERS:
        z = multiplier / call.law.weight
        measured = Measured(call, z, many)
        tests = list(measured.value_pairs())
        alpha = FALSE_ALARM / (6 * len(MULTIPLIERS) * len(tests))
        for pair in tests:
            claims = [_claimed_deltas(call.law, z, at) for at in pair.adjacencies]
            found = measured.refutation(pair, np.min(claims, axis=0), alpha)
            found = found or measured.curve_refutation(pair, alpha)
            require(
                not found,
                f"{title}, noise {multiplier:g} times the sensitivity, "
                f"{pair.words}: {found}",
            )


def _reason_not_measured(release: Release) -> str:
    """Return the reason why a release cannot be measured; empty if it can."""
    if issubclass(release.mechanism, NestedMechanism):
        return "makes other mechanisms"
    if issubclass(release.mechanism, SingleUseMechanism):
        return "hands out records"
    if release.mechanism.__call__ is not Mechanism.__call__:
        return "has a mechanism with a call of its own, past those who listen"
    return ""


def _claimed_deltas(
    law: Law, z: float, adjacency: Adjacency, grid: Array = GRID
) -> Array:
    """Return the least delta that an accountant derives from a law, at each epsilon."""
    claimed, level = delta_at((law,), z, adjacency, grid), law.level(z)
    if level is not None:
        # The profile of randomised response bounds that of any law of this level.
        total = level * law.times
        top = -np.expm1(np.minimum(grid - total, 0.0)) / (1 + math.exp(-total))
        claimed = np.minimum(claimed, top) + 0.0  # no -0
    return claimed


def law_refutation(call: Call, noise: Noise, z: float) -> str:
    """Return how a noise loses more privacy than a law claims; empty if it does not.

    Consider one number that moves by its sensitivity. In units of the noise scale, its
    answers on neighbours are x and x + d, where x is noise of scale 1. Under
    ``zero_out``, for a Poisson sample of rate q, the probability of an interval E is
    (1 - q) P(x in E) + q P(x + d in E) on one side and P(x in E) on the other. Under
    ``replace_one`` the sensitivity is twice a record's own term. The two probabilities
    are then the first expression with d/2 and with -d/2 in place of d. If P and Q are
    the probabilities on the two sides, each E gives the lower bound
    P(E) - e^epsilon Q(E) on delta.

    Parameters
    ----------
    call : Call
        The arguments that the mechanism was called with.
    noise : callable
        Returns bounds on the probabilities of intervals, see `Noise`.
    z : float
        Noise multiplier of the mechanism.
    """
    release, kind = call.release, type(call.release)
    size = np.atleast_2d(np.asarray(release.sensitivity, np.float64))
    if not (0.0 < size.max() < math.inf):
        return ""
    if kind.unit is not Release.unit and np.shape(call.first[0][0])[-1:] != (1,):
        return ""  # a single entry of such noise has another law
    mechanism: Any = release.mechanism(release, z, ["probe"])
    rate = mechanism.rate if isinstance(mechanism, PoissonMechanism) else 1.0
    moved = np.trunc(size) if call.whole else size
    d = float(np.divide(moved, mechanism.scale, where=size > 0.0, out=0 * size).max())
    level, grid = call.law.level(z), GRID
    if level is not None and level < math.inf and d > 0.0:
        if noise is NORMAL:
            return "no level bounds what normal noise loses"
        grid = np.append(GRID, level * call.law.times)
    for adjacency in Adjacency if rate < 1.0 else (call.adjacency,):
        halved = rate < 1.0 and adjacency is Adjacency.REPLACE_ONE
        p, q = (
            (1 - rate) * noise(0.0, d) + rate * noise(end, d)
            for end in ((d / 2, -d / 2) if halved else (d, 0.0))
        )
        factor = np.exp(np.minimum(grid, 700.0))[:, None]
        gains = (one[0] - factor * other[1] for one, other in ((p, q), (q, p)))
        least = np.max([gain.max(axis=1) for gain in gains], axis=0)
        claimed = _claimed_deltas(call.law, z, adjacency, grid)
        lacking = least * (1 - ROUNDED) - 1e-11 - claimed
        if (lacking > 0.0).any():
            at = int(np.argmax(lacking / np.maximum(least, 1e-300)))
            return (
                f"at epsilon {grid[at]:.3g} delta is {least[at]:.4g} under "
                f"{adjacency.value}, its law claims {claimed[at]:.4g}"
            )
    return ""


Noise = Callable[[float, float], Array]
"""A function of m and d: returns lower and upper bounds on P(x + m in E).

Here x is noise of scale 1. There is a bound for each of several intervals E, so the
shape is (2, number of intervals).
"""
ROUNDED = 1e-3
"""Allowed relative difference between a claimed delta and a known one."""
STEPS = 4001
"""Number of places at which intervals end."""
DRAWS, LATE = 4_000_000, 10_000_000
"""Number of noise draws, and the place in a stream where the late draws begin."""
SINGLE = 3000
BESIDE = 1e-7 * math.pi


def noises_of(release: Release) -> list[Noise]:
    """Return the distributions of a release's noise, known exactly or from draws.

    If draws are used, those from late in the streams form a second distribution, since
    their law may differ. The list is empty if the mechanism does not only add noise.
    """
    kind, mechanism = type(release), release.mechanism
    packed = [one for one in mechanism.__mro__ if is_ours(one)]
    plain = packed[0] in (AdditiveMechanism, L1Mechanism, PoissonMechanism)
    own = {one.name for one in fields(release)}
    if not plain or _is_changed(*mechanism.__mro__) or {*vars(release)} - own:
        return []
    if kind.unit is NormLaplace.unit and kind.draw is NormLaplace.draw:
        return [LAPLACE]
    known = {draws.gaussian: NORMAL, draws.laplace: LAPLACE}
    if kind.unit is Release.unit and kind.draw in known:
        return [known[kind.draw]]
    return [Drawn(release, start) for start in (0, LATE)]


def _ends_of_intervals(places: Array) -> tuple[Array, Array]:
    """Return the ends of the intervals above, below and between given places."""
    far = np.full(places.size, np.inf)
    begins = np.concatenate([places, -far, places[:-1]])
    return begins, np.concatenate([far, places, places[1:]])


def _known_noise(distribution: Callable[[Array], Array]) -> Noise:
    """Return the exact `Noise` of a distribution function F with F(x) = 1 - F(-x)."""

    def noise(moved: float, d: float) -> Array:
        begins, ends = _ends_of_intervals(np.linspace(-40.0, 40.0 + d, STEPS))
        a, b = begins - moved, ends - moved
        # Computed from the small tail, so that no digits are lost.
        right = a > 0.0
        found = distribution(np.where(right, -a, b)) - distribution(
            np.where(right, -b, a)
        )
        return np.stack([found, found])

    return noise


def _laplace_distribution(x: Array) -> Array:
    """Return the values at x of the distribution function of density exp(-|x|) / 2."""
    tail = 0.5 * np.exp(-np.abs(x))
    return np.where(x < 0.0, tail, 1.0 - tail)


NORMAL, LAPLACE = _known_noise(ndtr), _known_noise(_laplace_distribution)


class Drawn:
    """Clopper-Pearson bounds on the probabilities of a noise, from its draws.

    Parameters
    ----------
    release : Release
        The release whose noise is drawn.
    start : int
        Place in each of 20 streams at which the draws begin.
    """

    def __init__(self, release: Release, start: int) -> None:
        count = DRAWS // 20
        seeds = stream_seeds([f"draws {k}" for k in range(20)], "law")
        # Copies, since a draw may return a view of an array with all earlier draws.
        parts = [release.unit(one, start, count, 1).flatten() for one in seeds]
        self.streams = parts[:1]
        if start == 0:  # also one by one, as successive uses draw them
            single = (release.unit(seeds[0], k, 1, 1).flatten() for k in range(SINGLE))
            self.streams.append(np.concatenate([*single]))
        self.sorted = np.sort(np.concatenate(parts))
        far = np.geomspace(10 / DRAWS, 0.5, 200)
        ends = np.quantile(self.sorted, [*far, *(1.0 - far)], method="inverted_cdf")
        # On both sides of a drawn number, since many draws may be equal to it.
        self.places = np.concatenate([ends - BESIDE, ends + BESIDE])

    def __call__(self, moved: float, d: float) -> Array:
        """Return lower and upper bounds on the probabilities of intervals."""
        ends = _ends_of_intervals(np.unique([*self.places, *(self.places + d)]))
        below = [np.searchsorted(self.sorted, one - moved) for one in ends]
        counts = below[1] - below[0]
        alpha = FALSE_ALARM / DRAWS / 100
        return np.stack([at_least(counts, DRAWS, alpha), at_most(counts, DRAWS, alpha)])

    def repetition_in_words(self) -> str:
        """Return a sentence if a stream repeats a row of draws; empty if it does not.

        Only rows are compared that are so long that independent draws repeat a row with
        probability at most 1e-9.
        """
        for drawn in self.streams:
            _, ranks, counts = np.unique(drawn, return_inverse=True, return_counts=True)
            n, equal = drawn.size, float(np.square(counts / drawn.size).sum())
            length = math.ceil((2 * math.log(n) + 21) / -math.log(min(equal, 0.999)))
            if length < n:
                rows = np.lib.stride_tricks.sliding_window_view(ranks, length)
                if len(np.unique(rows, axis=0)) < len(rows):
                    return (
                        f"{length} draws in a row come again later in the stream: "
                        "noise that repeats cancels in the difference of two answers"
                    )
        return ""


class Measured:
    """The answers of a mechanism at one noise multiplier.

    The class of its release is from outside the package.

    Parameters
    ----------
    call : Call
        The arguments that the mechanism was called with.
    z : float
        Noise multiplier.
    many : int
        Number of draws of unit noise on each side.
    """

    def __init__(self, call: Call, z: float, many: int) -> None:
        self.call, self.z, self.release = call, z, call.release
        if self.release.selects:  # equal sensitivities reveal most
            largest = float(np.max(self.release.sensitivity))
            self.release = replace(self.release, sensitivity=largest)
        self.probe = probe = self._make_mechanism(["probe"])
        self.sampled = isinstance(probe, SamplingMechanism) and probe.rate < 1.0
        self.batches = self._serves_batches()
        # Samples are drawn record by record, mechanisms of one trial one by one.
        self.many = many if self.batches and not self.sampled else many // 5
        self.uses = min(self.release.times, TIMES)
        # Two uses in a row count as one answer, which exposes noise that is used again.
        self.together = 2 if self.uses > 1 and not self.sampled else 1
        self._drawn: dict[Any, list[Array]] = {}

    def _make_mechanism(self, names: Sequence[str]) -> Mechanism:
        return self.release.mechanism(self.release, self.z, names)

    def _serves_batches(self) -> bool:
        """Return whether trials get the same answers in a batch as alone."""
        names = [f"probe {k}" for k in range(3)]
        try:
            together = self._answer_once(names)
            alone = np.concatenate([self._answer_once([name]) for name in names])
        except Exception:  # it is made for one trial
            return False
        return np.array_equal(together, alone)

    def _answer_once(self, names: Sequence[str]) -> Array:
        """Return the answers to the query on D, of shape (B, size)."""
        mechanism = self._make_mechanism(names)
        for b in range(len(names)):
            self._holds(mechanism, b)
        return self._ask_once(mechanism, self.value, None)

    @functools.cached_property
    def value(self) -> Array:
        """Return the value of the query on D, of shape (k,)."""
        if self.release.secret:
            return np.zeros(int(self.call.first[0][0]))
        return np.ravel(np.asarray(self.call.first[0][0], np.float64))

    @functools.cached_property
    def is_plain(self) -> bool:
        """Return whether the first argument is the value that noise is added to."""
        if self.release.secret or self.sampled:
            return True
        if self.release.selects:
            return False
        args, keys = self.call.first
        return np.array_equal(np.ravel(self.probe.query(*args, **keys)), self.value)

    def value_pairs(self) -> Iterator[ValuePair]:
        """Yield the pairs of values whose answers are compared.

        These are pairs that differ by as much as the declared sensitivity allows, and
        the real values of the query on the two neighbours.
        """
        if self.release.selects:
            yield from self._score_pairs()
        base = 0.0 * self.value if self.sampled else self.value
        for words, move in self._largest_moves() if self.is_plain else ():
            if not self.sampled:
                pair = ValuePair(words, base, base + move)
                yield pair
                yield from self._pairs_elsewhere(pair)
                continue
            half, none = (0.5 * move, -0.5 * move), (move, base)
            yield ValuePair(words, *half, adjacencies=(Adjacency.REPLACE_ONE,))
            yield ValuePair(words, *none, adjacencies=(Adjacency.ZERO_OUT,))
        if not (self.sampled or self.release.secret):
            other = np.ravel(np.asarray(self.call.second[0][0], np.float64))
            at, alone = (self.call.adjacency,), len(self.call.first[0]) == 1
            args = None if alone and self.is_plain else self.call.second
            yield ValuePair("as a record moves it", base, other, args, at)

    def _pairs_elsewhere(self, pair: ValuePair) -> Iterator[ValuePair]:
        """Yield shifted pairs of values, if answers do not change as much as the value.

        One pair starts at 0, where truncated noise would differ. The other starts where
        the answers change most. If values are rounded before noise is added, their
        difference may become larger.
        """
        if self._follows_value(pair):
            return
        base, move = pair.first, pair.second - pair.first
        if self._is_admitted(np.zeros_like(base)) and self._is_admitted(move):
            yield ValuePair(f"{pair.words}, from 0", np.zeros_like(base), move)
        if self.call.whole:
            return

        def change_at(part: float) -> float:
            first = base + part * move
            if not (self._is_admitted(first) and self._is_admitted(first + move)):
                return 0.0
            here, there = self._both(first, first + move)
            return float(np.nan_to_num(np.abs(there - here).sum(), posinf=0.0))

        best = max(PLACES, key=change_at)
        if change_at(best) > change_at(0.0) * (1 + MOVED):
            first = base + best * move
            yield ValuePair(f"{pair.words}, from elsewhere", first, first + move)

    def _is_admitted(self, value: Array) -> bool:
        """Return whether the mechanism's query leaves a value unchanged."""
        try:
            return np.array_equal(self._query(value), value)
        except Exception:
            return False

    def _query(self, value: Array) -> Array:
        """Return the vector of shape (k,) to which noise is added for a given value."""
        (head, *rest), keys = self.call.first
        asked = self.probe.query(value.reshape(np.shape(head)), *rest, **keys)
        return np.ravel(asked)

    def _score_pairs(self) -> Iterator[ValuePair]:
        """Yield pairs of scores that change by the declared sensitivity and swap ranks.

        In the first pair, all scores are equal on one side, and one of them is ahead on
        the other side. In the second pair, half of the scores are behind on one side,
        and ahead by the same amount on the other. A pair is left out if its scores move
        by more than declared.
        """
        size = self._sensitivity
        place, base = np.arange(size.size), np.full(size.shape, 3.0 * size.max())
        behind, half = np.where(place < 1, size, -size), place < size.size // 2
        for pair in (
            ValuePair("one score raised, all others lowered", base, base + behind),
            ValuePair(
                "half of the scores raised, all others lowered",
                base + np.where(half, 0.0, size),
                base + np.where(half, size, 0.0),
            ),
        ):
            moved = np.abs(self._query(pair.second) - self._query(pair.first))
            if (moved <= size * (1 + MOVED)).all():
                yield pair

    def _largest_moves(self) -> Iterator[tuple[str, Array]]:
        """Yield the largest changes within the declared sensitivity, with names."""
        size, k = self._sensitivity, self.value.size
        if k == 1:
            yield "moved by its sensitivity", size * np.ones(1)
            return
        is_vector = self.probe.vector or self.release.secret
        signs = np.where(np.arange(k) % 2, -1.0, 1.0)
        largest = 1.0 * (np.arange(k) == np.argmax(size))
        directions = {"one entry": largest, "all entries": signs}
        if is_vector:
            directions["some direction"] = np.random.default_rng(k).normal(size=k)
            size = np.full(k, size.max())
        for words, x in directions.items():
            length = np.linalg.norm(x, self.probe.order) if is_vector else 1.0
            move = size * x / length
            kept = np.trunc(move) if self.call.whole else move
            if kept.any():
                yield f"{words} moved", kept

    @property
    def _sensitivity(self) -> Array:
        if self.release.secret or self.sampled:
            declared = np.asarray(self.release.sensitivity, np.float64)
        else:
            args, keys = self.call.first
            declared = self.probe.sensitivity_of(*args, **keys)
        return np.broadcast_to(np.ravel(declared), self.value.shape)

    def refutation(self, pair: ValuePair, deltas: Array, alpha: float) -> str:
        """Return how the answers refute the claimed deltas; empty if they do not.

        Parameters
        ----------
        pair : ValuePair
            The two values that are compared.
        deltas : array
            Claimed delta at each epsilon of `GRID`.
        alpha : float
            Largest probability of a false alarm for one statistic.
        """
        first, second = self._answers_to_pair(pair)
        train = first[::2], second[::2]
        found = [(0.0, "")]
        for statistic in statistics_of_answers(
            *train, pair, selects=self.release.selects
        ):
            sides = statistic(first), statistic(second)
            held = held_out(*sides, alpha, lambda r: profile_excess(r, GRID, deltas))
            least = held.hits - np.exp(GRID) * held.alarms
            at = int(np.argmax(least - deltas))
            words = (
                f"at epsilon {GRID[at]:.3g} delta is at least {least[at]:.3g}, its "
                f"law claims {deltas[at]:.3g}"
            )
            found.append((least[at] - deltas[at], words))
        return max(found, key=lambda one: one[0])[1]

    def curve_refutation(self, pair: ValuePair, alpha: float) -> str:
        """Return how the answers refute a claimed Renyi curve; empty if they do not.

        By Hoelder's inequality e^((a - 1) D_a(P, Q)) >= E_P[f^(a - 1)]^a /
        E_Q[f^a]^(a - 1) for any f > 0. Here f is the ratio of the frequencies in one
        half of the answers, clipped to bounds. The means are bounded on the other half
        (Maurer, Pontil, "Empirical Bernstein bounds", COLT 2009, Theorem 4).
        """
        claimed = self.call.law.rdp(self.z, ORDERS)
        if claimed is None or self.release.selects:
            return ""
        claimed, alpha = claimed * self.call.law.times, alpha / (4 * len(ORDERS))
        sides = self._answers_to_pair(pair)
        ratio = _log_frequencies(*(one[::2, 0] for one in sides))
        logs = [ratio(one) for one in sides]
        for (p, q), a_claimed in itertools.product(
            (logs, [-one for one in logs[::-1]]), zip(ORDERS, claimed, strict=True)
        ):
            a, most = a_claimed
            # Rare ratios loosen the bounds more than they raise the means.
            top = np.quantile(p[::2], COMMON)
            hits = np.exp((a - 1) * (np.minimum(p[1::2], top) - top))
            alarms = np.exp(a * (np.minimum(q[1::2], top) - top))
            least = bernstein_bound(hits, -1.0, alpha)
            if least <= 0.0:
                continue
            # The factor e^top of f cancels.
            loss = a * math.log(least) / (a - 1) - math.log(
                bernstein_bound(alarms, 1.0, alpha)
            )
            if loss > most:
                return (
                    f"its Renyi divergence of order {a:g} is at least {loss:.3g}, its "
                    f"law claims {most:.3g}"
                )
        return ""

    def _answers_to_pair(self, pair: ValuePair) -> tuple[Array, Array]:
        """Return independent answers on both sides, of shape (N, uses together, k).

        The first use in each answer gets a value of the pair. A second use, if any,
        gets the value on D.
        """
        known = self.sampled or (pair.other is None and self._follows_value(pair))
        if not known:
            first, _ = self._published_answers(0, pair.first, None)
            return first, self._published_answers(1, pair.second, pair.other)[0]
        # The noise is independent of the value, so it is drawn once for all pairs.
        base = np.zeros_like(pair.first) if self.sampled else pair.first
        sides = []
        for side, value in enumerate((pair.first, pair.second)):
            answers, held = self._published_answers(side, base, None)
            # A record adds its value where it is sampled.
            moved = answers[:, :1] + held * (value - base)
            sides.append(np.concatenate([moved, answers[:, 1:]], axis=1))
        return sides[0], sides[1]

    def _follows_value(self, pair: ValuePair) -> bool:
        """Return whether answers change by exactly as much as the value."""
        here, there = self._both(pair.first, pair.second, 30 if self.batches else 1)
        if here.shape[1:] != pair.first.shape:
            return False
        move = pair.second - pair.first
        return bool(np.allclose(there - here, move, rtol=1e-9, atol=1e-9))

    def _both(self, first: Array, second: Array, count: int = 1) -> list[Array]:
        """Return answers of shape (count, size) to two values, with the same noise."""
        names = [f"probe {k}" for k in range(count)]
        return [
            self._ask_once(self._make_mechanism(names), one, None)
            for one in (first, second)
        ]

    def _published_answers(self, side: int, value: Array, other: Any) -> list[Array]:
        """Return answers to a value, and for each whether the sample contains a record.

        The second array contains 1 or 0. The shapes are (N, uses together, k) and
        (N, 1, 1).
        """
        key = side, value.tobytes(), id(other)
        if key not in self._drawn:
            parts = zip(*self._parts_of_answers(side, value, other), strict=True)
            self._drawn[key] = [np.concatenate(one) for one in parts]
        return self._drawn[key]

    def _parts_of_answers(
        self, side: int, value: Array, other: Any
    ) -> Iterator[tuple[Array, Array]]:
        """Yield answers of new mechanisms, each used at most as often as declared."""
        rounds = self.uses // self.together
        trials = math.ceil(self.many / self.together / rounds)
        size = trials if self.batches else 1
        for start in range(0, trials, size):
            names = [f"noise {side} {start + k}" for k in range(size)]
            mechanism = self._make_mechanism(names)
            for _ in range(rounds):
                held = [self._holds(mechanism, b) for b in range(size)]
                asked = [self._ask_once(mechanism, value, other)]
                # Besides the value that moves, a use with the value on D.
                asked += [
                    self._ask_once(mechanism, self.value, None)
                    for _ in range(self.together - 1)
                ]
                yield np.stack(asked, axis=1), np.reshape(held, (-1, 1, 1))

    def _holds(self, mechanism: Any, trial: int) -> float:
        """Return 1 if a record is in the next sample or nothing is sampled, else 0."""
        if not self.sampled:
            return 1.0
        indices, _ = mechanism.sample(trial, self.call.records, 1)
        return float(0 in indices)

    def _ask_once(self, mechanism: Mechanism, value: Array, other: Any) -> Array:
        """Return the answers to one query of all trials, of shape (B, size)."""
        batch = len(mechanism.seeds)
        args, keys = self.call.first if other is None else other
        if self.release.secret:
            return np.asarray(value + np.asarray(mechanism(*args, **keys)))
        rest = [_repeat_argument(one, batch) for one in args[1:]]
        keys = {name: _repeat_argument(one, batch) for name, one in keys.items()}
        head = np.asarray(args[0], np.float64)
        if other is None:
            head = value.reshape(head.shape)
        answer = np.asarray(
            mechanism(_repeat_argument(head, batch), *rest, **keys), np.float64
        )
        return answer.reshape(batch, -1)


def bernstein_bound(values: Array, sign: float, alpha: float) -> float:
    """Return an empirical Bernstein bound on the mean of random values in [0, 1].

    Parameters
    ----------
    values : array of shape (n,)
        Independent values in [0, 1].
    sign : float
        1 for an upper bound, -1 for a lower one.
    alpha : float
        Probability that the bound fails.
    """
    n, log = len(values), math.log(2.0 / alpha)
    off = math.sqrt(2.0 * values.var(ddof=1) * log / n) + 7.0 * log / (3.0 * (n - 1))
    return float(values.mean() + sign * off)


def _repeat_argument(value: Any, batch: int) -> Any:
    """Return an argument of one trial, repeated for a batch of trials."""
    if isinstance(value, np.ndarray) and value.shape[:1] == (1,):
        return np.repeat(value, batch, axis=0)
    return value


def statistics_of_answers(
    first: Array, second: Array, pair: ValuePair, selects: bool
) -> Iterable[Statistic]:
    """Yield statistics that may distinguish two sides, learned from their answers.

    Parameters
    ----------
    first, second : arrays of shape (N, uses, k)
        Answers on either side.
    pair : ValuePair
        The two values that the first use got.
    selects : bool
        Whether an answer is the index of a winner.
    """
    yield _log_frequencies(first[:, 0], second[:, 0])
    if selects or first.shape[2:] != pair.first.shape:
        return
    yield _linear_discriminant(first, second)
    if pair.first.size > 1:
        for order in (1, 2, np.inf):
            yield functools.partial(_norm_log_ratio, pair.first, pair.second, order)


def _norm_log_ratio(v: Array, u: Array, order: float, answers: Array) -> Array:
    """Return the log-ratio of densities exp(-norm) around two values, shape (N,)."""
    there, here = (np.linalg.norm(answers[:, 0] - x, order, axis=1) for x in (u, v))
    return np.asarray(here - there).round(9)


def _linear_discriminant(first: Array, second: Array) -> Statistic:
    """Return Fisher's linear discriminant of all uses together."""
    sides = [one.reshape(len(one), -1) for one in (first, second)]
    spread = np.atleast_2d(sum(np.cov(one, rowvar=False) for one in sides))
    floor = 1e-10 * np.trace(spread) + 1e-300
    means = sides[0].mean(axis=0) - sides[1].mean(axis=0)
    along = np.linalg.solve(spread + floor * np.eye(len(spread)), means)

    def statistic(answers: Array) -> Array:
        return np.asarray(answers.reshape(len(answers), -1) @ along)

    return statistic


def _log_frequencies(first: Array, second: Array) -> Statistic:
    """Return a statistic: the sum over entries of log-ratios of binned frequencies."""
    tables = []
    for a, b in zip(first.T, second.T, strict=True):
        values = np.unique(np.concatenate([a, b]))
        if values.size > BINS:
            values = np.quantile(values, np.linspace(0, 1, BINS))
        edges = values[:-1] + np.diff(values) / 2
        counts = [
            np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
            for x in (a, b)
        ]
        tables.append((edges, np.log(counts[0] + 1.0) - np.log(counts[1] + 1.0)))

    def statistic(answers: Array) -> Array:
        each = [
            table[np.searchsorted(edges, x)]
            for (edges, table), x in zip(tables, answers[:, 0].T, strict=True)
        ]
        return np.asarray(np.sum(each, axis=0).round(9))

    return statistic
