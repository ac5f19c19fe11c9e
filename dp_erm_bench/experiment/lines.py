"""Define lines, settings and trials: what each of them computes, its key and its work.

A *block* is a section of an experiment's yaml file, and becomes lines. A *line* is a
set of trials with one label in a figure. It becomes *settings*, one per point of its
axes. A setting becomes trials, one per seed. Most lines consist of fits: one algorithm
on one problem with one budget. A block with the key `task` names a task of conf/task
instead. The trials of a task are planned, run, recorded and resumed like all other
trials. Their results are stored as facts in their records.

A trial's key is a digest of its specification and of the code that computes it. A
record must not be reused after that code has changed. It must stay valid if something
else changes: a comment, the place of a file, or code that the trial does not use. There
may be 10^5 points. So each value of an axis is checked and written as JSON only once,
and the digest of a point is computed from these pieces.

The batches depend on the work of a trial: the sum of its operations, each times its
rate. Batches must be the same on every machine, so the rates are constants, measured
once by `python -m benchmarks rates`. The work of a trial that the solver refuses is 0.

In a search, a number lies on a lattice of powers, in the unit of its axis. Searches
thus try few distinct values, whose trials run together. Values outside any lattice
(strings, zero) are taken from the axis only.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib import metadata
from itertools import product
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from dp_erm_bench import registry
from dp_erm_bench.code_identity import (
    PACKAGE,
    code_digest,
    digest_of,
    file_of,
    files_beside,
    is_ours,
    module_named,
)
from dp_erm_bench.datasets.base import READ
from dp_erm_bench.datasets.spec import call_loader, default_bounds
from dp_erm_bench.errors import Unsupported, UsageError, real_number
from dp_erm_bench.experiment.parameters import (
    LENGTHS,
    algorithm_of,
    by_rule,
    check_named,
    normalise_parameter,
    problem_named,
)
from dp_erm_bench.experiment.schema import (
    GIVEN_LIMITS,
    Block,
    Tune,
    canonical_json,
    plain_parameter,
    seeds_of,
)
from dp_erm_bench.paths import later_defaults, values_entering
from dp_erm_bench.plugins.names import (
    content_digest,
    entries_of_pin,
    identity_of,
    is_file,
    label_of,
    named_in,
)
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.registry import AUTO, ERM, PROBLEM, foreign_name

if TYPE_CHECKING:
    from dp_erm_bench.experiment.parameters import Algorithm
    from dp_erm_bench.solvers.work import StepWork

LIBRARIES = ("numpy", "scipy", "numba")
EXECUTE = f"{PACKAGE}.runner.execute.run_batch"
"""The function that a worker process calls; it imports all code except choices."""


@functools.cache
def code_fingerprint(target: str, chosen: tuple[Any, ...] = ()) -> str:
    """Return the digest of all code that determines a trial's numbers.

    Parameters
    ----------
    target : str
        Dotted name of the solver's class, or the pin of its file.
    chosen : tuple
        Other classes that the trial names by a string, or their dotted names.

    Notes
    -----
    The digest covers the modules of `run_batch`, of the solver and of the chosen
    classes, all modules that they import (`code_identity`), and major.minor of numpy,
    scipy and numba. For a user's file it covers the content of the file and of modules
    next to it, but not their paths.
    """
    inside, outside = set[str](), set[str]()
    for code in (EXECUTE, target, *chosen):
        if is_file(code):
            files = files_beside(code.partition("#")[0])
            outside.add(
                f"{content_digest(code)} {code_digest([next(iter(files))], files)}"
            )
        elif isinstance(code, str) or is_ours(code):
            inside.add(module_named(code))
        else:
            outside.add(digest_of(code))
    libraries = [f"{name} {_minor_version(name)}" for name in LIBRARIES]
    return sha256_of("\n".join([code_digest(inside), *sorted(outside), *libraries]))


def chosen_by(problem: Any) -> tuple[Any, ...]:
    """Return the classes of a problem's parts, and the loader of its data."""
    kinds = sorted(set(_kinds_within(problem)), key=lambda kind: kind.__qualname__)
    loader = problem.spec.get("dataset", {}).get("_target_")
    return (*kinds, *[loader] * bool(loader))


def all_choices() -> tuple[str, ...]:
    """Return the classes of all possible parts of a problem, and all twins.

    A twin is an independent second implementation of the law of a release. Tasks depend
    on all of these, because they choose their own problems, and use twins to attack
    releases.
    """
    groups = (registry.PROBLEM, *registry.OBJECTIVE)
    made = ((group, name) for group in groups for name in registry.built_in(group))
    package = file_of(f"{PACKAGE}.trust.twins")
    twins = package.parent.glob("[!_]*.py") if package else ()
    names = [f"{PACKAGE}.trust.twins.{path.stem}" for path in twins]
    return tuple(
        sorted([*names, *(registry.read_choice(*each)["_target_"] for each in made)])
    )


def _kinds_within(value: Any) -> Iterator[type]:
    """Yield the class of an object and the classes of its fields, recursively."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        for field in dataclasses.fields(value):
            yield from _kinds_within(getattr(value, field.name))
        # The norm of a ball is an attribute, but not a field.
        yield from _kinds_within(getattr(value, "omega", None))


def _minor_version(library: str) -> str:
    return ".".join(metadata.version(library).split(".")[:2])


SECOND = 1e8
"""Amount of work that takes about one second."""

NANOSECOND = 1e-9 * SECOND

Rate = tuple[float, float]
"""Nanoseconds that an operation takes: per batch, and additionally per trial."""

DENSE: Mapping[str, Rate] = {
    "calls": (20_000.0, 1_600.0),
    "products": (0.15, 0.1),
    "walked": (0.0, 0.35),
    "records": (0.0, 25.0),
    "rows": (0.0, 0.9),
    "draws": (0.0, 2.5),
    "features": (0.0, 4.0),
}
SPARSE: Mapping[str, Rate] = {
    **DENSE,
    "products": (1.0, 0.45),
    "walked": (0.0, 5.0),
    "records": (0.0, 100.0),
}
"""Rates of the operations of `StepWork`, for a dense and for a sparse matrix.

In lock-step, one read of a dense matrix serves several trials. One read of a sparse
matrix serves four or two trials.
"""

ITERATION: Rate = (0.0, 60.0)
CHECKPOINT: Rate = (50_000.0, 8_000.0)
FIT: Rate = (3e6, 6e5)
"""Rates of fixed costs: of an iteration, of a row of the trajectory, and of a fit."""


class Work(NamedTuple):
    """The work of the trials of a batch; 1e8 is about a second.

    Attributes
    ----------
    own : float
        Work of each trial.
    shared : float
        Work done once for all trials of the batch.
    """

    own: float = 0.0
    shared: float = 0.0

    def batch(self, size: int) -> float:
        """Return the work of a batch of ``size`` trials."""
        return self.shared + size * self.own


def work_of(
    algorithm: Algorithm,
    params: Mapping[str, Any],
    problem: Any,
    budget: Mapping[str, Any],
    calibration: str,
    rows: int,
) -> Work:
    """Return the work of a trial; zero if the algorithm is known to refuse it.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.
    params : mapping
        Parameters, typed by `normalise_parameter`.
    problem : Problem
        The problem.
    budget : mapping
        `epsilon`, `delta`, `adjacency`.
    calibration : str
        A name of conf/calibration.
    rows : int
        Number of checkpoints.

    Raises
    ------
    UsageError
        If the iterations cannot be counted, or `step_work` of a solver is wrong.
    """
    solver = algorithm.solver(params)
    if refusal_of_algorithm(algorithm, params, problem, budget, calibration):
        return Work()
    try:
        iterations = int(solver.iterations(problem))
        step = solver.step_work(problem).times(iterations)
    except Unsupported:
        return Work()
    except OverflowError:
        raise UsageError(
            f"algorithm.{algorithm.name}: asks for more iterations than can be counted"
        ) from None
    except (AttributeError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"algorithm.{algorithm.name}: step_work: {what}") from None
    if not all(0.0 <= real_number(count) < math.inf for count in step):
        rule = "must return a StepWork of finite numbers >= 0"
        raise UsageError(f"algorithm.{algorithm.name}: step_work={step}: {rule}")
    return _work_of_fit(problem, step, iterations, min(rows, iterations + 1))


def _work_of_fit(problem: Any, step: StepWork, iterations: int, rows: int) -> Work:
    """Return the work of a fit whose operations and checkpoints are counted."""
    # Each row evaluates the objective and computes the margins for it.
    seen = (problem.entries, problem.n, problem.p)
    parts = [
        FIT,
        _multiply_rate(ITERATION, iterations),
        _multiply_rate(CHECKPOINT, rows),
    ]
    rates = DENSE if problem.entries == problem.n * problem.p else SPARSE
    for name, count in step._asdict().items():
        parts.append(_multiply_rate(rates[name], count))
    for name, count in zip(("products", "rows", "features"), seen, strict=True):
        parts.append(_multiply_rate(rates[name], count * rows))
    shared, own = map(sum, zip(*parts, strict=True))
    return Work(own=own * NANOSECOND, shared=shared * NANOSECOND)


def _multiply_rate(rate: Rate, count: float) -> Rate:
    return rate[0] * count, rate[1] * count


def refusal_of_algorithm(
    algorithm: Algorithm,
    params: Mapping[str, Any],
    problem: Any,
    budget: Mapping[str, Any],
    calibration: str,
) -> str:
    """Return the reason why an algorithm refuses a problem, before noise is calibrated.

    The reason is empty if the algorithm does not refuse the problem. A user's solver is
    examined only in its trials.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.
    params : mapping
        Parameters, typed by `normalise_parameter`.
    problem : Problem
        The problem.
    budget : mapping
        `epsilon`, `delta`, `adjacency`.
    calibration : str
        A name of conf/calibration.
    """
    if not is_ours(algorithm.cls):
        return ""
    solver = algorithm.solver(params)
    try:
        return _refusal_of_solver(solver, problem, budget, calibration)
    except Unsupported as error:
        return str(error)
    except Exception:
        # Other errors are reported by the trial.
        return ""


def _refusal_of_solver(
    solver: Any, problem: Any, budget: Mapping[str, Any], calibration: str
) -> str:
    from dp_erm_bench.accounting.budget import Budget
    from dp_erm_bench.accounting.calibration import refuse_unreachable
    from dp_erm_bench.run import Run
    from dp_erm_bench.solvers.bounds import refuse_unbounded

    if calibration not in solver.calibrations:
        return f"calibration={calibration}: {type(solver).__name__} has none"
    if calibration == "paper":
        solver = solver.printed_form()
    if solver.smoothness in ("public", "data"):
        problem = problem.with_smoothness(solver.smoothness)
    reason: str | None = solver.refusal(problem)
    if reason is not None:
        return reason
    asked = Budget(**budget)
    needed = not solver.clips and math.isfinite(asked.epsilon)
    # A release of constants reads the data, which planning must not do.
    if needed and solver.smoothness != "private":
        run = Run(problem, [solver], asked, 0.0)
        refuse_unbounded(run.solver, run.releases, problem)
        laws = tuple(release.law() for release in run.releases)
        refuse_unreachable(laws, run.budget)
    return ""


Kind = tuple[str, int]


@dataclass(frozen=True, eq=False, kw_only=True)
class Line:
    """A line of a panel: its labels, its seeds, and the settings that it runs.

    Attributes
    ----------
    panel, line : str
        Labels of the panel, and of the line within it.
    seeds : tuple of int
        Seeds of a sweep; empty if the line is tuned.
    tune : Tune or None
        The tuning of open parameters; None if every point is run.
    measured : bool
        Whether a value was given in a unit that is computed from the data.
    algorithm : str
        Name of the algorithm, or the pin (path and digest) of a solver's file; empty
        for a task.
    """

    panel: str = ""
    line: str = ""
    seeds: tuple[int, ...] = ()
    tune: Tune | None = None
    measured: bool = False
    algorithm: str = ""

    @property
    def rule(self) -> str:
        """Return the rule that gave parameters, with their names; empty if none did."""
        return ""

    @property
    def label(self) -> tuple[str, str]:
        """Return the labels of the panel and of the line."""
        return self.panel, self.line

    @property
    def full_name(self) -> tuple[str, str]:
        """Return panel and line, or dataset and algorithm if both labels are empty."""
        return self.label

    @property
    def uncharged_reading(self) -> tuple[str, ...]:
        """Return uses of the data, made on reading them, for which no budget pays."""
        return ()

    @property
    def clipping_notes(self) -> Mapping[str, Any]:
        """Return notes on clipping records to declared bounds; empty without bounds."""
        return {}

    @property
    def content(self) -> str:
        """Return a digest of the file with the records; empty if there is no file."""
        return ""

    @property
    def settings(self) -> Sequence[Setting]:
        """Return the settings of a sweep, one per point (the last axis fastest)."""
        return ()

    def sweep(self, n_checkpoints: int) -> Iterator[Trial]:
        """Yield the trials of a sweep; nothing if the line is tuned."""
        for setting in self.settings:
            for seed in self.seeds:
                yield setting.trial(seed, n_checkpoints)


@dataclass(frozen=True, eq=False)
class BatchKey:
    """The parts that settings in one batch have in common.

    Parameters
    ----------
    code : callable
        Returns the fingerprint of the code that computes the trials.
    group : str
        Trials with equal groups may share a batch.
    batchable : bool
        Whether more than one trial may run at once.
    work : callable
        Returns the work of one trial, given its number of checkpoints. It is called
        only for trials that are about to run.
    iterations : callable
        Returns the number of iterations of one trial; 1 without iterations.
    refusal : callable
        Returns the reason why the trials are refused before calibration. It is empty if
        they are not refused, or only when they run.
    """

    code: Callable[[], str] = str
    group: str = ""
    batchable: bool = False
    work: Callable[[int], Work] = lambda rows: Work()
    iterations: Callable[[], int] = lambda: 1
    refusal: Callable[[], str] = str


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """All properties of a trial except its seed and its checkpoints.

    There may be as many settings as trials. Common parts are therefore stored once, and
    the spec is assembled on request.

    Attributes
    ----------
    base : mapping
        The trial's spec without `seed`, `n_checkpoints` and the open parameters.
    names, point : tuple
        Names of the open parameters (those with several values), and the values of this
        setting in a form for JSON.
    digest : str
        Digest of all that determines the numbers, except the seed.
    batch_key : BatchKey
        The part that is common to the settings of a batch.
    line : Line
        The line of the setting.
    posed : str
        The identity of the problem; empty for a task.
    """

    base: Mapping[str, Any]
    names: tuple[str, ...]
    point: tuple[Any, ...]
    digest: str
    batch_key: BatchKey = BatchKey()
    line: Line = Line()
    posed: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts to pickle for a worker, without line and batch key."""
        given = self.base, self.names, self.point, self.digest
        return partial(Setting, posed=self.posed), given

    @property
    def spec(self) -> dict[str, Any]:
        """Return the trial's spec without `seed` and `n_checkpoints`."""
        if not self.names:
            return dict(self.base)
        algorithm = self.base["algorithm"]
        opened = zip(self.names, self.point, strict=True)
        params = {**algorithm["params"], **dict(opened)}
        return {**self.base, "algorithm": {**algorithm, "params": params}}

    def identity(self, seed: int) -> str:
        """Return the identity of the trial with a seed."""
        return sha256_of(f"{self.digest}:{seed}")

    def trial(self, seed: int, n_checkpoints: int, phase: str = "sweep") -> Trial:
        """Return the trial of this setting with a seed.

        Parameters
        ----------
        seed : int
            Seed of the noise, at least 0.
        n_checkpoints : int
            Number of rows of the trajectory.
        phase : {"sweep", "tune", "report"}
            Purpose of the trial in its line.
        """
        text = f"{self.identity(seed)}:{n_checkpoints}:{self.batch_key.code()}"
        return Trial(self, seed, n_checkpoints, sha256_of(text), phase)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One run of one algorithm on one problem with one budget and one seed.

    The object is small, since there may be 10^5 of them.

    Attributes
    ----------
    setting : Setting
        The setting, which trials with other seeds share.
    seed, n_checkpoints : int
        The seed, and the number of rows of the trajectory.
    key : str
        Digest of identity, number of checkpoints and code. The store finds the record
        by this key.
    phase : {"sweep", "tune", "report"}
        Purpose of the trial in its line. Parameters of a report trial were chosen by
        other trials.
    """

    setting: Setting
    seed: int
    n_checkpoints: int
    key: str
    phase: str = "sweep"

    @property
    def spec(self) -> dict[str, Any]:
        """Return the resolved specification, as a new mapping that JSON can represent.

        Its keys are `dataset`, `loss`, `penalty`, `constraint`, `algorithm`, `budget`,
        `calibration`, `seed` and `n_checkpoints`, and `task` if the trial is not a fit.
        """
        open_ = {"seed": self.seed, "n_checkpoints": self.n_checkpoints}
        return {**self.setting.spec, **open_}

    @property
    def identity(self) -> str:
        """Return the digest of all that determines the random draws and the iterates.

        The digest covers the spec without `n_checkpoints`, with all parameters filled
        in, and the content of the dataset. It seeds the public and the noise streams.
        """
        return self.setting.identity(self.seed)

    @property
    def kind(self) -> Kind:
        """Return a key that is equal for trials that may share a batch."""
        return self.setting.batch_key.group, self.n_checkpoints

    @property
    def work(self) -> Work:
        """Return the work of the trial, and the work shared within its batch."""
        return self.setting.batch_key.work(self.n_checkpoints)

    @property
    def owner(self) -> str:
        """Return the name or pin of a user's solver; empty for a built-in solver."""
        return foreign_name(self.setting.base.get("algorithm", {}))

    @property
    def labels(self) -> dict[str, Any]:
        """Return the columns that are not part of keys, such as panel and line."""
        line, tuned = self.setting.line, self.phase == "report"
        labels = {"panel": line.panel, "line": line.line, "phase": self.phase}
        flags = {"tuned": tuned, "measured": line.measured, "rule": line.rule}
        data = {
            "read": list(line.uncharged_reading),
            "content": line.content,
            **line.clipping_notes,
        }
        return {**labels, **flags, **data}

    def row(self, experiment: str) -> dict[str, Any]:
        """Return the trial's line of the plan."""
        labels = {"experiment": experiment, **self.labels}
        return {"key": self.key, **labels, "spec": self.spec}


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a string in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


LONGEST = 16
"""Largest length of a run without a declared limit.

The length is in multiples of the longest run in the grid.
"""

SHAPE_RATIO, VALUE_RATIO = 2.0**0.5, 2.0**0.25
DIGITS = 6
"""Number of digits of lattice values; further digits would depend on the machine."""

LARGEST = 1e15
"""Upper bound on the values of a lattice."""

Point = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """The values that a search may try for one parameter.

    Attributes
    ----------
    values : tuple
        The initial values (the grid).
    unit : float
        Unit of the lattice, which is the set of values unit times an integer power of
        the ratio.
    ratio : float
        Ratio of neighbouring values on the lattice.
    low, high : float
        Limits as absolute numbers; infinite without a limit.
    declared : tuple of bool
        Whether each limit was set for the search. Other limits are those of the
        parameter itself.
    """

    values: tuple[Any, ...]
    unit: float = 1.0
    ratio: float = VALUE_RATIO
    low: float = -math.inf
    high: float = math.inf
    declared: tuple[bool, bool] = (False, False)

    @property
    def numeric(self) -> bool:
        """Return whether all values but None are numbers >= 0, and one is above 0."""
        some = [value for value in self.values if value is not None]
        return all(type(v) in (int, float) and v >= 0 for v in some) and any(some)

    @property
    def integer(self) -> bool:
        """Return whether all values but None are integers."""
        return all(type(value) in (int, NoneType) for value in self.values)

    def orders(self, value: Any) -> bool:
        """Return whether the axis is numeric and a value is a number.

        Such values can be compared. A rule may also give values that are not numbers.
        """
        return self.numeric and type(value) in (int, float)

    def level(self, value: float) -> float:
        """Return the exponent k for which a value is equal to unit * ratio^k.

        For values of the lattice, k is an integer.
        """
        return math.log(value / self.unit) / math.log(self.ratio)

    def steps(self, factor: float) -> float:
        """Return the number of lattice steps to a value ``factor`` times as large."""
        return math.log(factor) / math.log(self.ratio)

    def value_at(self, level: float) -> Any:
        """Return the value of the lattice nearest to a level, within the limits."""
        power = self.ratio ** round(level)
        if self.integer:
            value: float = max(1, round(power))
        else:
            value = self.unit * float(f"{power:.{DIGITS}g}")
        within = min(max(value, self.low), self.high)
        return int(within) if self.integer else within

    def centre(self, value: Any, factor: float) -> float:
        """Return the exponent (level) around which to search values near a given value.

        Zero gets a level below the smallest value of the grid, by ``factor``. A value
        that is not a number, such as no threshold or all records, gets the level of the
        largest value.
        """
        if not self.orders(value):
            return self.level(max(filter(None, self.values)))
        if value > 0.0:
            return self.level(value)
        least = min(filter(None, self.values))
        return self.level(least) - self.steps(factor)

    def values_beside(self, value: Any, factor: float) -> Iterator[Any]:
        """Yield the values next to a given value on an axis.

        These are values smaller and larger by a factor. On an axis without numbers,
        they are all other values.
        """
        if not self.numeric:
            yield from (other for other in self.values if other != value)
            return
        if not value or not self.orders(value):
            yield self.value_at(self.centre(value, factor))
            return
        for way in (-1, 1):
            level = round(self.level(value))
            last = round(self.level(value) + way * self.steps(factor))
            beside = self.value_at(last)
            # Neighbours of a small integer may be rounded to the integer itself.
            while beside == value and abs(last - level) < 16:
                last += way
                beside = self.value_at(last)
            if beside != value:
                yield beside

    def value_near(self, value: Any, factor: float, share: float) -> Any:
        """Return a value near a given one, which a number in [0, 1) selects.

        Parameters
        ----------
        value : Any
            The given value.
        factor : float
            Largest ratio between the two values.
        share : float
            Number in [0, 1) that selects the result, such as a coordinate of a Sobol
            point.
        """
        if self.orders(value) and value:
            return self.value_at(
                self.level(value) + self.steps(factor) * (2.0 * share - 1.0)
            )
        if share < 0.5:
            return value
        share = 2.0 * share - 1.0
        if self.numeric:
            width = self.steps(factor) * (2.0 * share - 1.0)
            return self.value_at(self.centre(value, factor) + width)
        others = [other for other in self.values if other != value] or [value]
        return others[int(share * len(others))]

    def holds(self, value: Any) -> bool:
        """Return whether the axis contains a value, so that a search may try it."""
        if any(value == one and type(value) is type(one) for one in self.values):
            return True
        if not self.numeric or type(value) is not (int if self.integer else float):
            return False
        if value in (self.low, self.high):
            return True
        inside = max(self.low, 0) < value < min(self.high, LARGEST)
        return inside and bool(value == self.value_at(self.level(value)))

    def is_at_limit(self, value: Any) -> bool:
        """Return whether a value lies on a limit that was set for the search."""
        low, high = self.declared
        return bool((low and value == self.low) or (high and value == self.high))

    def is_outermost(self, value: Any) -> bool:
        """Return whether the parameter has no possible value beyond this one."""
        if not self.orders(value):
            return True
        low, high = self.declared
        bottom = value <= 1 if self.integer else not value
        bottom = bottom or (value == self.low and not low)
        return bool(bottom or (value == self.high and not high))


def space_of(line: FitLine) -> dict[str, Axis]:
    """Return the axes of a line's search, with limits and lattice.

    Raises
    ------
    UsageError
        If a limit is outside the parameter's range, or a value of the grid lies beyond
        a limit.
    """
    assert line.tune is not None and line.tune.search is not None
    ratios, limits = line.tune.search.ratio, line.tune.limits
    kinds = algorithm_of(line.algorithm).kinds
    axes = {}
    for key, values in line.axes.items():
        usual = VALUE_RATIO if kinds[key] == "value" else SHAPE_RATIO
        ratio = ratios.get(key, ratios.get("default", usual))
        axis = Axis(values, line.units.get(key, 1.0), ratio)
        axes[key] = _limit_axis(axis, line, key, limits.get(key))
    return axes


def _limit_axis(axis: Axis, line: FitLine, key: str, limits: Any) -> Axis:
    """Return an axis with its declared limits, or else the limits of its field."""
    least, above, most = algorithm_of(line.algorithm).limits(key)
    least = max(least, 0.0)
    if limits is None:
        longest = LONGEST * max(filter(None, axis.values)) if axis.numeric else math.inf
        if key in LENGTHS and longest < most:
            return replace(axis, low=least, high=longest, declared=(False, True))
        return replace(axis, low=least, high=most)
    given = f"tune.limits.{key}=[{limits[0]:g}, {limits[1]:g}]"
    if not axis.numeric:
        raise UsageError(f"{given}: must be left out, {key} has values without order")
    low, high = (limit * axis.unit for limit in limits[:2])
    if axis.integer and not all(limit.is_integer() for limit in limits[:2]):
        raise UsageError(f"{given}: must be two integers, as {key} must be one")
    if low < least or low <= above or high > most:
        allowed = f"> {above:g}" if above >= least else f">= {least:g}"
        bound = f" and <= {most:g}" if math.isfinite(most) else ""
        name = f"algorithm.{label_of(line.algorithm)}.{key}"
        raise UsageError(f"{given}: must be {allowed}{bound}, as {name} must")
    for value in axis.values:
        if value and not low <= value <= high:
            shown = f"{value / axis.unit:g}"
            raise UsageError(f"{given}: must hold its grid, which has {shown}")
    ours = GIVEN_LIMITS not in limits[2:]
    return replace(axis, low=low, high=high, declared=(True, ours))


Axes = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, eq=False)
class FitLine(Line):
    """A line of fits: one algorithm on one problem with one budget.

    Attributes
    ----------
    algorithm : str
        Name of the algorithm, or the pin of a solver's file.
    problem : Problem
        The dataset and the objective.
    params : mapping
        Fixed parameters, typed by `normalise_parameter`; `auto` is replaced by the
        number that its rule gives.
    budget : mapping
        `epsilon`, `delta`, `adjacency`, in a form for JSON.
    calibration : str
        The calibration of the noise, a name of conf/calibration.
    axes : mapping
        Absolute values of the open parameters (those with several values). The value of
        `auto` depends on ``params``.
    units : mapping
        Units of open parameters, as numbers, if the unit is not 1.
    """

    algorithm: str = field()  # required here, but missing in the line of a task
    problem: Problem
    params: Mapping[str, Any]
    budget: Mapping[str, Any]
    calibration: str
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)

    _chosen: dict[tuple[Any, ...], Setting] = field(default_factory=dict, repr=False)
    _batch_keys: dict[tuple[Any, ...], BatchKey] = field(
        default_factory=dict, repr=False
    )
    _rule: str = field(default="", init=False, repr=False)

    @property
    def full_name(self) -> tuple[str, str]:
        """Return panel and line, or dataset and algorithm if both labels are empty."""
        own = self.base.get("dataset", {}).get("name", ""), label_of(self.algorithm)
        return self.label if any(self.label) else own

    def __post_init__(self) -> None:
        """Replace `auto` by the numbers of rules, before any key is computed."""
        where = self.problem, self.budget
        # A block with labels states all of its parameters, so it gets no default
        # clipping threshold.
        said = [*self.axes, *["clip"] * any(self.label)]
        params, rule = by_rule(self.algorithm, self.params, *where, also=said)
        filled, ruled = dict(self.axes), algorithm_of(self.algorithm).is_ruled
        for key, values in self.axes.items():
            if any(ruled(key, value) for value in values):
                given = {**params, key: AUTO}
                one, told = by_rule(self.algorithm, given, *where, also=said)
                rule = rule or told.partition(":")[0]
                others = (one[key] if ruled(key, v) else v for v in values)
                filled[key] = tuple(dict.fromkeys(others))
        for name, value in (("params", params), ("axes", filled), ("_rule", rule)):
            object.__setattr__(self, name, value)

    @property
    def rule(self) -> str:
        """Return the rule that gave parameters, with their names; empty if none did."""
        return self._rule

    @cached_property
    def base(self) -> Mapping[str, Any]:
        """Return a trial's spec without `seed`, `n_checkpoints` and open parameters."""
        params = {key: plain_parameter(value) for key, value in self.params.items()}
        name = {"name": label_of(self.algorithm), "params": params}
        return {
            **self.problem.spec,
            "algorithm": {**name, **entries_of_pin(self.algorithm)},
            "budget": self.budget,
            "calibration": self.calibration,
        }

    @cached_property
    def uncharged_reading(self) -> tuple[str, ...]:
        """Return uses of the data, made on reading them, for which no budget pays."""
        return tuple(use.value for use in self.problem.uncharged(False) if use in READ)

    @cached_property
    def clipping_notes(self) -> Mapping[str, Any]:
        """Return notes on clipping records to declared bounds; empty without bounds.

        The notes are the share of changed records, the names of columns that are often
        at their bound, and whether the bounds are the default bounds of the dataset's
        yaml. They are computed from the records, and do not enter the keys of trials.
        """
        data = getattr(self.problem, "dataset", None)
        if data is None or (clipping := data.clipping) is None:
            return {}
        from dp_erm_bench.problems.erm.problem import feature_names

        names = feature_names(data)
        columns = [names[j] for j in clipping.columns] + ["label"] * clipping.label
        spec = self.problem.spec["dataset"]
        offered = default_bounds(str(spec.get("name")), spec)
        usual = bool(offered) and spec.get("bounds") == offered
        notes = {"clipped": clipping.share, "at_bound": columns}
        return notes | ({"by_default": "clip=default"} if usual else {})

    @cached_property
    def content(self) -> str:
        """Return a digest of the file with the records; empty if there is no file."""
        spec = self.problem.spec["dataset"]
        if not spec.get("path"):
            return ""
        fingerprint = registry.locate(spec["_target_"]).fingerprint
        return sha256_of(call_loader(fingerprint, spec))[:16]

    @cached_property
    def _chosen_code(self) -> tuple[Any, ...]:
        return chosen_by(self.problem)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Return the settings of a sweep, one per point (the last axis fastest)."""
        return tuple(self._settings_of_axes(self.axes))

    def check(self) -> None:
        """Raise UsageError if a value, a point of a sweep, or a limit is invalid."""
        solver, first = (
            algorithm_of(self.algorithm).solver,
            self._first_values(self.axes),
        )
        solver(first)
        for key, values in self.axes.items():
            for value in values[1:]:
                solver({**first, key: value})
        if self.tune is not None and self.tune.search is not None:
            space_of(self)
        if self.tune is not None and (why := self.problem.lacking(self.tune.quantity)):
            raise UsageError(f"tune.quantity={self.tune.quantity}: {why}")
        if self.tune is None and not algorithm_of(self.algorithm).separate:
            _ = self.settings

    def setting(self, **chosen: Any) -> Setting:
        """Return the setting with the open parameters filled in.

        Raises
        ------
        UsageError
            If the solver refuses a parameter.
        """
        point = tuple(chosen.items())
        if point not in self._chosen:
            axes = {key: (value,) for key, value in point}
            self._chosen[point] = next(self._settings_of_axes(axes))
        return self._chosen[point]

    def _first_values(self, axes: Axes) -> dict[str, Any]:
        return {**self.params, **{key: values[0] for key, values in axes.items()}}

    def _settings_of_axes(self, axes: Axes) -> Iterator[Setting]:
        """Yield the setting of every point, the last axis fastest.

        Raises
        ------
        UsageError
            If the solver refuses the first point.
        """
        algorithm, names = algorithm_of(self.algorithm), tuple(axes)
        parts = [self.problem.identity, identity_of(self.algorithm)]
        head = canonical_json([*parts, self.budget, self.calibration])[:-1]
        entries = self._parameter_entries(self._first_values(axes))
        shared = [key for key in entries if algorithm.shares(key)]
        unclipped = (None, algorithm.entry("clip", None))
        spelled = {
            key: [plain_parameter(v) for v in values] for key, values in axes.items()
        }
        written = {key: [algorithm.entry(key, v) for v in spelled[key]] for key in axes}
        points = (product(*one.values()) for one in (axes, spelled, written))
        for values, point, texts in zip(*points, strict=True):
            if algorithm.separate:
                entries.update(zip(axes, texts, strict=True))
            else:
                opened = dict(zip(axes, values, strict=True))
                entries = self._parameter_entries({**self.params, **opened})
            clipped = ",false" if entries.get("clip") in unclipped else ",true"
            batch = (*[entries[key] for key in shared], clipped)
            if batch not in self._batch_keys:
                opened = dict(zip(axes, values, strict=True))
                group = _identity_of(head, batch[:-1], clipped)
                self._batch_keys[batch] = self._batch_key(group, opened)
            digest = _identity_of(head, entries.values())
            batch_key = self._batch_keys[batch]
            whole = (self.base, names, point, digest, batch_key, self)
            yield Setting(*whole, self.problem.identity)

    def _parameter_entries(self, params: Mapping[str, Any]) -> dict[str, str]:
        algorithm = algorithm_of(self.algorithm)
        full = algorithm.full(params)
        return {key: algorithm.entry(key, value) for key, value in full.items()}

    def _batch_key(self, group: str, opened: Mapping[str, Any]) -> BatchKey:
        algorithm = algorithm_of(self.algorithm)
        trial = ({**self.params, **opened}, self.problem)
        whole = (algorithm, *trial, self.budget, self.calibration)
        return BatchKey(
            partial(code_fingerprint, algorithm.target, self._chosen_code),
            group,
            getattr(algorithm.cls, "batchable", True),
            cache(partial(work_of, *whole)),
            cache(partial(algorithm.iterations, *trial)),
            cache(partial(refusal_of_algorithm, *whole)),
        )


def line_of(spec: Mapping[str, Any]) -> FitLine:
    """Return the line with the one setting that a trial's spec describes.

    The spec may come from an untrusted folder. So the loader of the data is found by
    the dataset's name, and a solver's file is used only if the user named it.

    Raises
    ------
    UsageError
        If the user did not name the solver's file, or its content has changed.
    """
    check_named(spec["algorithm"], "algorithm")
    algorithm = named_in(spec["algorithm"])
    dataset = dict(spec["dataset"])
    objective = [spec[part] for part in ("loss", "penalty", "constraint")]
    name = dataset.pop("name")
    dataset.pop("_target_", None)
    kind = named_in(spec.get(PROBLEM, {"name": ERM}))
    problem = problem_named(name, dataset, *objective, kind=kind)
    params = {
        key: normalise_parameter(algorithm, key, value)
        for key, value in spec["algorithm"]["params"].items()
    }
    return FitLine(algorithm, problem, params, spec["budget"], spec["calibration"])


def _identity_of(head: str, pieces: Iterable[str], tail: str = "") -> str:
    text = f"{head},{{{','.join(filter(None, pieces))}}}{tail}]"
    return sha256_of(text)


GROUP = "task"
N_CHECKPOINTS = 2
Spec = dict[str, Any]


@dataclass(frozen=True)
class StudyTask(ABC):
    """Base class of tasks, which are trials that do not fit a model.

    The fields of a subclass are the parameters of the task.
    """

    @abstractmethod
    def specs(self, block: Block) -> Iterator[tuple[Spec, str]]:
        """Yield the specs of a block's settings, each with the class of its algorithm.

        A spec has those parts of the spec of a fit that have a meaning here. The class
        is given by its dotted name, empty without an algorithm.
        """

    @abstractmethod
    def facts(self, trial: Trial) -> dict[str, Any]:
        """Run the task for one trial, and return facts for its saved record."""

    @abstractmethod
    def work(self, spec: Mapping[str, Any]) -> float:
        """Return the rough cost of a trial; 1e8 is about a second."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskLine(Line):
    """The trials of a block that names a task of conf/task instead of fits.

    Attributes
    ----------
    block : Block
        The block of the experiment.
    task : StudyTask
        The task that each trial runs.
    """

    block: Block
    task: StudyTask

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Return the settings of the task."""
        return tuple(self._setting_of(*one) for one in self.task.specs(self.block))

    def sweep(self, n_checkpoints: int) -> Iterator[Trial]:
        """Yield the trials. They have no trajectory, so `n_checkpoints` is ignored."""
        return super().sweep(N_CHECKPOINTS)

    def _setting_of(self, spec: Spec, target: str) -> Setting:
        assert self.block.task is not None
        task = self.task
        spelled = {"name": self.block.task["name"], **dataclasses.asdict(task)}
        base = {**spec, "task": spelled}
        entered = {**spec, "task": values_entering(spelled, later_defaults(task))}
        text = json.dumps(entered, sort_keys=True, allow_nan=False)
        digest = sha256_of(text)
        own = f"{type(task).__module__}.{type(task).__name__}"
        code = code_fingerprint(own, (*all_choices(), *[target] * bool(target)))
        work = cache(lambda rows: Work(own=task.work(base)))
        batch_key = BatchKey(lambda: code, digest, False, work)
        return Setting(base, (), (), digest, batch_key, self)


def task_of(section: Any) -> StudyTask:
    """Return the task described by a block's section or a trial's spec.

    Raises
    ------
    UsageError
        If ``section`` is not a mapping with `name`, or its name or parameters are not
        allowed.
    """
    if not isinstance(section, Mapping) or "name" not in section:
        raise UsageError(f"task={section}: must be a mapping with `name`")
    fields = {key: value for key, value in section.items() if key != "name"}
    task: StudyTask = registry.build(GROUP, section["name"], **fields)
    return task


def study_of(block: Block) -> TaskLine:
    """Return the line of a block with a task, after checking its settings."""
    task, seeds = task_of(block.task), seeds_of("seed", block.seed)
    study = TaskLine(
        panel=block.panel, line=block.line, seeds=seeds, block=block, task=task
    )
    _ = study.settings
    return study
