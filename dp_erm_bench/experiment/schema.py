"""The schema of configurations: keys, types, defaults, and messages for wrong keys.

Dataclasses define the keys: `Frame` defines the plain keys, and `Block` the keys of an
experiment's blocks. The metadata of a field add what OmegaConf cannot read from its
annotation. `words` are the allowed strings (besides numbers, if the annotation is
`Any`), and `help` is the meaning. Keys and shapes from all sources are checked only
here. Values are checked by the classes that use them. The schema of an algorithm's
parameters is the dataclass of the algorithm.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import json
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dp_erm_bench.errors import UsageError, check_key, value_error
from dp_erm_bench.paths import spell_infinities
from dp_erm_bench.registry import CHOSEN, ERM, POSED, QUANTITIES, check_choice

GRADIENT_RMS = "gradient_rms"
WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a word",
    types.NoneType: "null",
}

UNITS = ("", "K", "M", "G", "T")
SIZE = re.compile(r"(\d+(?:\.\d*)?)([KMGT]?)B?", re.IGNORECASE)


def bytes_of(text: str) -> float:
    """Return the bytes of a size such as 500M, with 1K = 1024 bytes; NaN if invalid."""
    match = SIZE.fullmatch(text.strip())
    if not match:
        return math.nan
    return float(match[1]) * 1024.0 ** UNITS.index(match[2].upper())


def is_list(value: Any) -> bool:
    """Return whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def is_matrix(value: Any) -> bool:
    """Return whether a value is a list of lists, which is one value and not an axis."""
    return is_list(value) and bool(value) and all(map(is_list, value))


def values_of(key: str, value: Any, natural: Any = None) -> list[Any]:
    """Return the values that a block gives to a key, where a list is an axis.

    Parameters
    ----------
    key : str
        Dotted key, for the message.
    value : Any
        One value or a list of values.
    natural : Any
        The usual value of the key. If the usual value is a list, only a list whose
        items are lists or null is an axis.

    Raises
    ------
    UsageError
        If the axis has no values.
    """
    if not is_list(value):
        return [value]
    if is_list(natural) and not all(one is None or is_list(one) for one in value):
        return [list(value)]
    if not value:
        raise UsageError(f"{key}=[]: an axis needs at least one value")
    return list(value)


def axis_values(axis: Any) -> list[Any]:
    """Return the values of an axis, as multiples of its unit if it has one."""
    values = axis.get("values") if isinstance(axis, Mapping) else axis
    return [*values] if isinstance(values, list | tuple) else [values]


def points_of(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the points of a product of axes; the last axis varies fastest."""
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def grid_points(
    axes: Mapping[str, Sequence[Any]], aside: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the points of a grid, in which some axes are varied one at a time.

    The grid is the product of all axes, where axes in `aside` have only their first
    value. The other values of such an axis are tried one at a time, at the middle point
    of the grid.
    """
    points = [*points_of({k: v[:1] if k in aside else v for k, v in axes.items()})]
    middle = points[(len(points) - 1) // 2]
    return points + [{**middle, key: one} for key in aside for one in axes[key][1:]]


def grid_size(axes: Mapping[str, Any], aside: Sequence[str] = ()) -> int:
    """Return the number of points that `grid_points` returns."""
    sizes = {key: len(axis_values(axis)) for key, axis in axes.items()}
    beside = sum(sizes.pop(key) - 1 for key in aside)
    return math.prod(sizes.values()) + beside


def seeds_of(key: str, value: Any) -> tuple[int, ...]:
    """Return distinct seeds in the order given.

    Raises
    ------
    UsageError
        If a seed is not an integer from 0 to 2^63 - 1, which the table needs.
    """
    # Imported here because the command line must start without numpy.
    from dp_erm_bench.datasets.spec import is_seed

    seeds = values_of(key, value)
    for seed in seeds:
        if not is_seed(seed):
            raise UsageError(f"{key}={seed}: must be integers >= 0 and below 2^63")
    return tuple(dict.fromkeys(seeds))


def distinct_values(values: Sequence[Any]) -> list[Any]:
    """Return values without repetitions, in order; the first of equal values is kept.

    1 and 1.0 are equal, but true is another value.
    """
    return list(
        {_comparable_form(value): value for value in reversed(values)}.values()
    )[::-1]


def _comparable_form(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_comparable_form, value))
    if isinstance(value, Mapping):
        return frozenset((key, _comparable_form(one)) for key, one in value.items())
    return isinstance(value, bool), value


def are_consecutive(values: Sequence[Any]) -> bool:
    """Return whether values are consecutive integers, in increasing order.

    The check needs little memory even if the first and last value are far apart.
    """
    if not all(type(value) is int for value in values):
        return False
    return all(second - first == 1 for first, second in itertools.pairwise(values))


def multiples_of(key: str, axis: Mapping[str, Any]) -> list[float]:
    """Return the values of an axis that are multiples of `gradient_rms`.

    Raises
    ------
    UsageError
        If the mapping has another unit or values that are not positive.
    """
    for name in axis:
        check_key(name, ("unit", "values"), key)
    if axis.get("unit") != GRADIENT_RMS:
        raise UsageError(f"{key}.unit={axis.get('unit')}: must be {GRADIENT_RMS}")
    name = f"{key}.values"
    multiples = [
        convert_value(name, v, float) for v in values_of(name, axis.get("values"))
    ]
    for multiple in multiples:
        if not multiple > 0:
            raise UsageError(f"{name}={multiple}: must be positive")
    return multiples


def convert_value(key: str, value: Any, hint: Any) -> Any:
    """Return a value converted to the type of a hint.

    Parameters
    ----------
    key : str
        Dotted key, for the message.
    value : Any
        The value to convert.
    hint : type
        Type hint. For a union, the first member that accepts the value is used, where
        the value's own type comes first.

    Raises
    ------
    UsageError
        If no type of the hint accepts the value.
    """
    options = options_of(hint)
    for option in sorted(options, key=lambda o: o is not type(value)):
        try:
            return _convert_to_option(value, option)
        except (TypeError, ValueError, OverflowError):
            continue
    allowed = ", ".join(word for option in options for word in _words_of_hint(option))
    raise UsageError(f"{key}={value}: must be {allowed}")


def options_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union; for other type hints, the hint itself."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (hint,)


def _convert_to_option(value: Any, hint: Any) -> Any:
    """Return a value converted to one type; raise TypeError or ValueError otherwise."""
    if hint in (int, float):
        if isinstance(value, bool) or math.isnan(number := float(value)):
            raise TypeError
        if hint is float:
            return number
        if not number.is_integer():
            raise TypeError
        return value if isinstance(value, int) else int(number)
    if typing.get_origin(hint) is typing.Literal:
        members = [(type(member), member) for member in typing.get_args(hint)]
        if (type(value), value) not in members:
            raise TypeError
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    elif hint in (bool, str, types.NoneType) and not isinstance(value, hint):
        raise TypeError
    return value


def _words_of_hint(hint: Any) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(word) for word in typing.get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [str(member.value) for member in hint]
    return [WORDS.get(hint, str(hint))]


def plain_parameter(value: Any) -> Any:
    """Return a parameter's value in a form that JSON can represent."""
    if type(value) in (str, int, bool, types.NoneType):
        return value
    return spell_infinities(value.value if isinstance(value, enum.Enum) else value)


def canonical_json(value: Any) -> str:
    """Return a value as JSON with sorted keys and without blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


MODES = ("run", "plan")
ENGINES = ("local", "joblib", "dask")
FAILED = ("error", "timeout", "killed")
"""Statuses of trials that may be run again."""

MOST_TRIALS = 1_000_000
"""Largest number of trials of a run, which are all planned in memory at its start."""

SETTINGS = ("seed", "mode", "name", "results_dir", "panel", "profile")
"""Top-level keys of the frame that a command line may set."""

OTHERS = (
    *("experiment", "runner", "algorithm.NAME.PARAMETER"),
    *("dataset.KEY", "penalty.strength"),
)
"""Other keys of a command line, for the message about an unknown key."""


def field_with_words(default: Any, text: str, *words: str) -> Any:
    """Return a dataclass field with a default, a help text and the allowed words."""
    metadata = {"help": text, "words": words}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class BudgetConfig:
    """Privacy budget of a run; checked by `accounting.budget.Budget`."""

    epsilon: float = field_with_words(
        1.0, "epsilon of differential privacy, > 0; inf: no noise"
    )
    delta: Any = field_with_words(
        "1/n^2",
        "delta of differential privacy: a number in (0, 1), or a formula such as 1/n^2",
    )
    adjacency: str = field_with_words(
        "replace_one",
        "which datasets are neighbours; replace_one: one record is replaced; zero_out: "
        "one record contributes 0",
        *("replace_one", "zero_out"),
    )


@dataclass
class EngineConfig:
    """The engine that carries trials to their workers; `conf/runner` sets it."""

    engine: str = field_with_words(
        "local", "engine that runs the trials; set it with runner=NAME", *ENGINES
    )
    backend: str = field_with_words(
        "threading",
        "with runner=joblib: threading or loky; in Python, also the active backend of "
        "joblib",
    )
    cluster: str = field_with_words(
        "local",
        "with runner=dask: local, or the name of a dask-jobqueue cluster, such as "
        "slurm",
    )
    address: str | None = field_with_words(
        None, "with runner=dask: address of the scheduler, such as tcp://host:8786"
    )
    patience: float = field_with_words(
        60.0, "seconds to wait for a scheduler or a worker before the run ends"
    )
    mixed_cpus: bool = field_with_words(
        False, "allow workers with different kinds of CPU"
    )
    queue: str | None = field_with_words(
        None, "queue or partition of the jobs on a cluster"
    )
    walltime: str | None = field_with_words(
        None,
        "time limit of a job on a cluster; null: the limit in the yaml file of the "
        "cluster, or 2 hours",
    )
    memory: str | None = field_with_words(
        None,
        "memory of a job on a cluster; null: the memory in the yaml file of the "
        "cluster, or 2G",
    )
    interface: str | None = field_with_words(
        None, "network interface between the nodes of a cluster, such as ib0"
    )
    job_extra_directives: list[str] = field_with_words(
        [], "further lines for the head of the job script on a cluster"
    )
    adapt: bool = field_with_words(
        True,
        "start a new job of the cluster when a job ends while trials remain",
    )


@dataclass
class RunnerConfig(EngineConfig):
    """Settings for running trials; only `n_checkpoints` changes a trial's key."""

    n_jobs: Any = field_with_words(
        "auto",
        "number of worker processes, each with one thread; auto: one per CPU core of "
        "this machine, or as many as the scheduler has",
        "auto",
    )
    retry: list[str] = field_with_words(
        [], "run trials again if their recorded status is in this list", *FAILED
    )
    progress: bool = field_with_words(True, "show the progress on stderr")
    output: bool = field_with_words(False, "show what a solver prints")
    n_checkpoints: int = field_with_words(
        51, "number of iterates that a run records, including the start"
    )
    batch_trials: int = field_with_words(
        32, "largest number of trials that a worker runs together as a batch"
    )
    report_trials: int | None = field_with_words(
        None,
        "like batch_trials, for the final runs of tuned settings; null: batch_trials",
    )
    batch_work: float = field_with_words(
        2e8,
        "target for the estimated work of a batch; work of 1e8 takes about a second",
    )
    time_limit: float | None = field_with_words(
        3600.0, "largest number of seconds that a trial may take; null: no limit"
    )
    worker_memory: Any = field_with_words(
        "auto",
        "memory above which a worker is replaced after a batch, such as 500M or 2G, or "
        "in bytes; auto: half of the machine's memory, divided by the number of "
        "workers (on a cluster, half of a job's memory); null: no limit",
    )


@dataclass
class Frame:
    """The whole configuration, filled by `conf/config.yaml` and by an experiment."""

    problem: dict[str, Any] = field(default_factory=dict)
    dataset: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)
    penalty: dict[str, Any] = field(default_factory=dict)
    constraint: dict[str, Any] = field(default_factory=dict)
    algorithm: dict[str, Any] = field(default_factory=dict)
    calibration: str = "certified"
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    seed: int = field_with_words(
        0, "seed of the noise and of random samples and orders, >= 0"
    )
    mode: str = field_with_words(
        "run", "run: run the trials; plan: only count the trials", *MODES
    )
    name: str | None = field_with_words(
        None,
        "name of the results folder in results_dir; null: sweep, tune or the name of "
        "the experiment, with +KEY=VALUE for changed keys",
    )
    results_dir: str = field_with_words(
        "results", "folder that contains the results folders"
    )
    panel: Any = field_with_words(
        None, "panels (parts of a figure) of the experiment to run; null: all panels"
    )
    profile: str | None = field_with_words(
        None,
        "profile (size) of the experiment, such as smoke; null: the profile in its "
        "yaml file",
    )
    profiles: dict[str, Any] = field(default_factory=dict)
    blocks: list[Any] = field(default_factory=list)
    figures: Any = None
    claims: list[Any] = field(default_factory=list)


Keys = dict[str, tuple[dataclasses.Field[Any], Any]]
"""Field and type of each key, by dotted name; the type includes the allowed words."""


def keys_of(sections: Mapping[str, Any]) -> Keys:
    """Return all keys of dataclasses, prefixed by the names of their sections."""
    keys: Keys = {}
    for section, schema in sections.items():
        hints = typing.get_type_hints(schema)
        for entry in dataclasses.fields(schema):
            hint, words = hints[entry.name], entry.metadata.get("words")
            if words:
                literal: Any = cast(Any, typing.Literal)[words]
                allowed = {Any: int | literal, list[str]: list[literal]}
                hint = allowed.get(hint, literal)
            keys[f"{section}.{entry.name}".lstrip(".")] = entry, hint
    return keys


@functools.cache
def frame_keys() -> Keys:
    """Return the keys of the frame that are set individually, in order."""
    keys = keys_of({"budget": BudgetConfig, "runner": RunnerConfig, "": Frame})
    return {key: one for key, one in keys.items() if "." in key or key in SETTINGS}


def check_setting(key: str, value: Any) -> Any:
    """Return the value of a plain key, converted to the key's type.

    Raises
    ------
    UsageError
        If there is no such key or the value is of another type.
    """
    keys = frame_keys()
    if key not in keys:
        check_key(key, [*CHOSEN, *OTHERS, *keys])
    hint: Any = keys[key][1]
    if typing.get_origin(hint) is not list:
        return convert_value(key, value, hint)
    (inner,) = typing.get_args(hint)
    items = value if isinstance(value, list) else [value]
    return [convert_value(key, item, inner) for item in items]


LABELS = ("panel", "line")
STAGES = 4
"""Number of stages of a race: all settings, two smaller selections, the finalists."""

NUMBERS: Mapping[str, tuple[Any, float, float]] = {
    "trials": (int, 1, math.inf),
    "radius": (float, 1.42, 100.0),
    "finalists": (int, 1, 100),
    "tolerance": (float, 0.0, math.inf),
}
"""Type, smallest and largest value of the numbers of a search."""


@dataclass(frozen=True)
class PatternSearch:
    """A pattern search that starts from a grid, and goes beyond it to better settings.

    Each round tries the neighbours of the best setting, and some points around it, on
    the first seeds of `tune.seeds`. The better settings are tried on more seeds.
    """

    trials: int = field_with_words(
        250,
        "largest number of tuning trials for one algorithm on one problem at one "
        "epsilon, including the grid",
    )
    ratio: Mapping[str, float] = field_with_words(
        {},
        "ratio of neighbouring values that the search may try, per parameter or as "
        "`default`",
    )
    radius: float = field_with_words(
        2.5, "factor between a value and its neighbours in the first round"
    )
    race: tuple[int, ...] = field_with_words(
        (2, 4, 8, 16),
        "numbers of seeds for all settings, for the best 5, for the best 3, and for "
        "the better half of the finalists",
    )
    finalists: int = field_with_words(
        4,
        "number of settings in the final round, besides the best of the first settings",
    )
    tolerance: float = field_with_words(
        0.1, "smallest gain that counts, in standard deviations over seeds"
    )

    def least(self, points: int) -> int:
        """Return the smallest number of trials that a search needs.

        These are one trial for each of the ``points`` of the grid, and all seeds for
        the best.
        """
        return points * self.race[0] + self.race[-1] - self.race[0]


@dataclass(frozen=True)
class Tune:
    """The keys of `tune`: how a line's parameters are chosen."""

    axes: Mapping[str, Any] = field_with_words(
        {},
        "grid values of each parameter: a list, or a mapping with `unit` and `values`",
    )
    seeds: tuple[int, ...] = field_with_words(
        (), "seeds of the tuning trials; a search starts with the first of them"
    )
    report: tuple[int, ...] = field_with_words(
        (),
        "seeds of the final runs of the chosen setting; tune.seeds must not have them",
    )
    aside: tuple[str, ...] = field_with_words(
        (),
        "axes that have only their first value in the grid; their other values are "
        "tried one at a time",
    )
    search: PatternSearch | None = field_with_words(
        None, "search beyond the grid; null: try the grid only"
    )
    limits: Mapping[str, Any] = field_with_words(
        {},
        "lowest and highest value of each parameter in the search, in the unit of its "
        "axis; with a third entry `given`, the column `open` omits values at a limit",
    )
    quantity: str = field_with_words(
        "objective", "quantity to optimise, measured at the end of a trial"
    )
    splits: int = field_with_words(
        1, "number of values of dataset.seed for which tuning and report are repeated"
    )


TUNING = {
    "tune": Tune,
    "tune.search": PatternSearch,
}


def section_of(dotted: str, section: Any, schema: Any) -> dict[str, Any]:
    """Return the keys of a section that have a value, after checking their names.

    Within `tune`, null means the default; profiles use it to switch keys off.

    Parameters
    ----------
    dotted : str
        Dotted name of the section; empty for a block.
    section : mapping
        The section as given.
    schema : type
        Dataclass that defines the keys of the section.

    Raises
    ------
    UsageError
        If the section is not a mapping, a key is unknown, or a required value is null.
    """
    if not isinstance(section, Mapping):
        raise value_error(dotted or "block", section, "a mapping")
    prefix = f"{dotted}." if dotted else ""
    fields = dataclasses.fields(schema)
    defaults = {f"{prefix}{field.name}": field.default for field in fields}
    for key, value in section.items():
        check_key(f"{prefix}{key}", list(defaults))
        needed = defaults[f"{prefix}{key}"] is not None and dotted in ("", "budget")
        if value is None and needed:
            raise value_error(f"{prefix}{key}", value, "a value, or left out")
    return {key: value for key, value in section.items() if value is not None}


def check_words(key: str, value: Any) -> None:
    """Raise UsageError unless a value is a word or a non-empty list of words."""
    items = value if is_list(value) else [value]
    if not all(isinstance(item, str) for item in items):
        raise value_error(key, value, "a word or a list of words")
    if not items:
        raise value_error(key, value, "at least one word")


def tune_of(section: Any) -> Tune:
    """Return the checked `tune` of a block.

    Raises
    ------
    UsageError
        For a wrong key or value; the message says what is allowed.
    """
    fields = section_of("tune", section, Tune)
    axes = fields.get("axes")
    if not isinstance(axes, Mapping):
        raise value_error("tune.axes", axes, "a mapping from parameters to values")
    if not axes:
        raise value_error("tune.axes", axes, "at least one parameter with its values")
    for key in ("seeds", "report"):
        if key not in fields:
            raise UsageError(f"tune.{key}: must be given")
    seeds = seeds_of("tune.seeds", fields["seeds"])
    report = seeds_of("tune.report", fields["report"])
    aside = fields.get("aside", [])
    for name in aside if is_list(aside) else [aside]:
        if name not in [*axes]:
            raise value_error("tune.aside", name, f"an axis ({', '.join(axes)})")
    if not is_list(aside) or len({*aside}) < len(aside):
        raise value_error("tune.aside", aside, "a list of axes, each once")
    # A choice must not be reported on the seeds by which it was made.
    for seed in sorted({*report} & {*seeds}):
        raise UsageError(
            f"tune.report={seed}: is a tuning seed as well; the seeds must be disjoint"
        )
    search = _check_search(fields, axes, seeds) if "search" in fields else None
    if search is None and fields.get("limits"):
        raise value_error(
            "tune.limits", fields["limits"], "left out without tune.search"
        )
    limits = _limits_of(fields.get("limits", {}), axes)
    quantity = fields.get("quantity", "objective")
    check_choice("tune.quantity", str(quantity), [*QUANTITIES])
    splits = _check_number("tune.splits", fields.get("splits", 1), int, 1, 1000)
    how = (tuple(aside), search, limits, quantity, splits)
    return Tune(dict(axes), seeds, report, *how)


def _check_search(
    fields: Mapping[str, Any], axes: Mapping[str, Any], seeds: Any
) -> PatternSearch:
    section = section_of("tune.search", fields["search"], PatternSearch)
    ratio = section.get("ratio", {})
    if not isinstance(ratio, Mapping):
        raise value_error(
            "tune.search.ratio", ratio, "a mapping from parameters to ratios"
        )
    numbers = {
        name: _check_number(f"tune.search.{name}", section[name], *limits)
        for name, limits in NUMBERS.items()
        if name in section
    }
    ratios = {}
    for key, value in ratio.items():
        check_key(key, (*axes, "default"), "tune.search.ratio")
        ratios[key] = _check_number(
            f"tune.search.ratio.{key}", value, float, 1.01, 100.0
        )
    race = section.get("race", PatternSearch.race)
    rungs = [*race] if is_list(race) else []
    whole = len(rungs) == STAGES and all(type(one) is int for one in rungs)
    if not whole or sorted([1, *rungs]) != [1, *rungs]:
        allowed = f"{STAGES} numbers of seeds >= 1 that do not fall"
        raise value_error("tune.search.race", race, allowed)
    if len(seeds) < rungs[-1]:
        asked = f"must be at least {rungs[-1]}, as tune.search.race asks"
        raise UsageError(f"tune.seeds: {asked}, not {len(seeds)}")
    search = PatternSearch(ratio=ratios, race=tuple(rungs), **numbers)
    points = grid_size(axes, fields.get("aside", ()))
    if search.trials < (least := search.least(points)):
        asked = f"at least {least}: the grid, and its best on {rungs[-1]} seeds"
        raise value_error("tune.search.trials", search.trials, asked)
    return search


def _check_number(key: str, value: Any, hint: Any, least: float, most: float) -> Any:
    number = convert_value(key, value, hint)
    if not least <= number <= most:
        bound = f" and <= {most:g}" if math.isfinite(most) else ""
        raise value_error(key, value, f"a number >= {least:g}{bound}")
    return number


GIVEN_LIMITS = "given"
"""Marks limits that are given by a paper or by the meaning of a line."""


def _limits_of(limits: Any, axes: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the checked limits of each parameter that has some, with their mark."""
    if not isinstance(limits, Mapping):
        raise value_error(
            "tune.limits", limits, "a mapping from parameters to two limits"
        )
    checked = {}
    for key, pair in limits.items():
        check_key(key, tuple(axes), "tune.limits")
        if (
            not is_list(pair)
            or len(pair) < 2
            or [*pair[2:]] not in ([], [GIVEN_LIMITS])
        ):
            allowed = (
                f"the least and the most, and {GIVEN_LIMITS} if they are no choice"
            )
            raise value_error(f"tune.limits.{key}", pair, allowed)
        low, high = (
            convert_value(f"tune.limits.{key}", value, float) for value in pair[:2]
        )
        if not low < high or math.isinf(high - low):
            raise value_error(
                f"tune.limits.{key}", pair, "two numbers, the lower first"
            )
        checked[key] = low, high, *pair[2:]
    return checked


OF_LINES = ("axes", "limits")
"""Keys of `tune` whose values are mappings by algorithm and parameter."""

GIVEN = ("dataset", "algorithm")
OF_TASK = (*LABELS, "task", "algorithm", "budget", "seed")


@dataclass(frozen=True)
class Block:
    """A product of axes. A list as the value of a key is an axis.

    The value of `problem`, `dataset`, `loss`, `penalty`, `constraint` or `algorithm` is
    a name, a mapping with `name` and parameters, or a list of these. A block with a
    `task` has no objective. A block with `tune` has its seeds in `tune`.
    """

    panel: str = field_with_words("", "part of the figure that shows these runs")
    line: str = field_with_words("", "label of the curve of these runs in the panel")
    dataset: Any = field_with_words(
        None, "name of a dataset, a mapping with `name` and other keys, or a list"
    )
    problem: Any = field_with_words(ERM, "kind of the problem: erm or mean, or a list")
    loss: Any = field_with_words(
        "auto", "name of a loss, a mapping, or a list; auto: the dataset's usual loss"
    )
    penalty: Any = field_with_words(
        "auto",
        "name of a penalty, a mapping, or a list; auto: the dataset's usual penalty",
    )
    constraint: Any = field_with_words(
        "none", "name of a constraint, a mapping, or a list"
    )
    algorithm: Any = field_with_words(
        None, "name of an algorithm, a mapping with `name` and parameters, or a list"
    )
    budget: Mapping[str, Any] = field_with_words(
        {}, "privacy budget: epsilon, delta and adjacency"
    )
    calibration: Any = field_with_words(
        "certified",
        "how the noise scale is chosen: certified, paper or authors, or a list",
    )
    seed: Any = field_with_words(
        0, "seed of the noise, an integer >= 0, or a list of seeds"
    )
    tune: Tune | None = field_with_words(
        None, "how parameters are chosen; null: all given values are run"
    )
    task: Mapping[str, Any] | None = field_with_words(
        None, "task that is run instead of fits: audit or accounting"
    )


SECTIONS = {"": Block, "budget": BudgetConfig, **TUNING}

PANELS, LINES = "panels", "lines"
"""Keys of a block that stands for many blocks.

`panels` maps panels to their problems, and `lines` lists the lines of each panel. If
both give a key, the value of the line is used.
"""

PAIRED = ((PANELS, dict, "names with a mapping each"), (LINES, list, "mappings"))


def write_out_blocks(sections: Sequence[Any]) -> list[Any]:
    """Return the blocks in which each pair of a panel and a line has its own block.

    Raises
    ------
    UsageError
        If `panels` or `lines` is missing, empty, or of a wrong type, or `panel` is
        given.
    """
    blocks: list[Any] = []
    for number, section in enumerate(sections, 1):
        if not isinstance(section, Mapping) or not {PANELS, LINES} & {*section}:
            blocks.append(section)
            continue
        usual = dict(section)
        if LABELS[0] in usual:
            wrong = value_error(
                LABELS[0], usual[LABELS[0]], f"left out, {PANELS} has it"
            )
            raise UsageError(f"{block_label(section, number)}: {wrong}")
        for key, kind, allowed in PAIRED:
            own = usual.pop(key, None)
            parts = own.values() if isinstance(own, dict) else own or ()
            maps = isinstance(own, kind) and {isinstance(o, Mapping) for o in parts}
            if maps != {True}:
                wrong = value_error(key, own, f"{allowed}, at least one")
                raise UsageError(f"{block_label(section, number)}: {wrong}")
        blocks += [
            {**usual, LABELS[0]: str(name), **panel, **line}
            for name, panel in section[PANELS].items()
            for line in section[LINES]
        ]
    return blocks


@functools.cache
def block_keys() -> Keys:
    """Return the field and type of every key of a block, by dotted name."""
    keys = keys_of(SECTIONS)
    return {key: entry for key, entry in keys.items() if key not in SECTIONS}


def blocks_of(sections: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return sections of a configuration as checked blocks.

    Raises
    ------
    UsageError
        If a value has the wrong type, or a key is unknown or missing. The message names
        the block, the key, the value and what is allowed.
    """
    blocks: list[Block] = []
    for number, section in enumerate(sections, 1):
        try:
            blocks.append(_check_block(section))
        except UsageError as error:
            raise UsageError(f"{block_label(section, number)}: {error}") from None
    return blocks


def block_label(block: Any, number: int = 1) -> str:
    """Return the name of a block for messages: its labels, else its number."""
    section = block if isinstance(block, Mapping) else {}
    words = [section[key] for key in LABELS if isinstance(section.get(key), str)]
    return f"block {' / '.join(words) or number}"


def _check_block(section: Any) -> Block:
    fields = section_of("", section, Block)
    for key in fields if "task" in fields else ():
        check_key(key, OF_TASK, "a block with a task")
    for key in LABELS:
        if isinstance(fields.get(key), dict | list):
            raise value_error(key, fields[key], "a word")
        fields[key] = str(fields.get(key, ""))
    for key in (*POSED, "algorithm"):
        if key in fields or (key in GIVEN and "task" not in fields):
            _check_part(key, fields.get(key))
    if "calibration" in fields:
        check_words("calibration", fields["calibration"])
    fields["budget"] = section_of("budget", fields.get("budget", {}), BudgetConfig)
    if "tune" in fields:
        if "seed" in fields:
            raise UsageError("seed: a block with `tune` has its seeds there")
        fields["tune"] = tune_of(fields["tune"])
    return Block(**fields)


def _check_part(key: str, value: Any) -> None:
    choices = value if is_list(value) else [value]
    for choice in choices:
        name = choice.get("name") if isinstance(choice, Mapping) else choice
        names = name if is_list(name) else [name]
        if not names or not all(isinstance(one, str) for one in names):
            raise value_error(key, value, "a name or a mapping with `name`")
        if isinstance(choice, Mapping) and "_target_" in choice:
            raise UsageError(f"{key}._target_: no such key; choose with `name`")
    if not choices:
        raise value_error(key, value, "at least one choice")
