"""The frame of a configuration: every plain key, its type, its default, its meaning.

The parameters of an algorithm are not here: its own dataclass is their schema. The
blocks of an experiment are in `schema`.
A field's metadata hold what its annotation cannot say to OmegaConf: `words` are the
strings allowed (beside numbers, where the annotation is `Any`), `help` what it means.
"""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from dp_erm_bench.errors import check_key
from dp_erm_bench.experiment.values import typed
from dp_erm_bench.registry import CHOSEN

MODES = ("run", "plan")
ENGINES = ("local", "joblib", "dask")
CLUSTERS = ("local", "slurm", "pbs", "sge", "lsf")
FAILED = ("error", "timeout", "killed")
"""Statuses of trials that may be run again."""

MOST_TRIALS = 1_000_000
"""A run asks for no more trials: all of them are planned in memory before the first."""

SETTINGS = ("seed", "mode", "name", "results_dir", "panel", "profile")
"""Plain keys of the frame that a command line may set."""

OTHERS = (
    *("experiment", "runner", "algorithm.NAME.PARAMETER"),
    *("dataset.KEY", "penalty.strength"),
)
"""Keys of a command line that are no plain ones, as a refusal lists them."""


def says(default: Any, text: str, *words: str) -> Any:
    """Return a field with its meaning and the words allowed."""
    metadata = {"help": text, "words": words}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class BudgetConfig:
    """Privacy budget of a run; checked by `privacy.budget.Budget`."""

    epsilon: float = says(1.0, "privacy loss, > 0; inf runs without noise")
    delta: Any = says("1/n^2", "a number in (0, 1), or as 1/n^2")
    adjacency: str = says(
        "replace_one", "which datasets are neighbours", "replace_one", "zero_out"
    )


@dataclass
class EngineConfig:
    """Who carries trials to their workers; the groups of `conf/runner` set it."""

    engine: str = says("local", "who carries the trials; runner=NAME sets it", *ENGINES)
    backend: str = says(
        "threading", "runner=joblib: threading, loky, or joblib's active one"
    )
    cluster: str = says("local", "runner=dask: where its workers run", *CLUSTERS)
    address: str | None = says(None, "runner=dask: the scheduler's, as tcp://host:8786")
    patience: float = says(60.0, "seconds to wait for a scheduler or a worker, if none")
    mixed_cpus: bool = says(False, "let workers have several kinds of CPU")
    queue: str | None = says(None, "queue or partition of a cluster's jobs")
    walltime: str = says("02:00:00", "how long a cluster's job may take, as 02:00:00")
    memory: str = says("2G", "memory of a cluster's job, per worker, as 2G")
    interface: str | None = says(None, "network between a cluster's nodes, as ib0")
    job_extra_directives: list[str] = says([], "further directives of a cluster's jobs")
    adapt: bool = says(True, "replace a cluster's jobs that end")
    detach: bool = says(False, "submit one job that runs the whole sweep, and return")


@dataclass
class RunnerConfig(EngineConfig):
    """The execution of trials; only `n_checkpoints` is part of a trial's key."""

    n_jobs: Any = says("auto", "worker processes of one thread, or auto", "auto")
    retry: list[str] = says([], "recorded statuses to run again", *FAILED)
    progress: bool = says(True, "show the progress on stderr")
    output: bool = says(False, "show what a solver prints")
    n_checkpoints: int = says(51, "rows of a trajectory, the start included")
    batch_trials: int = says(32, "most trials in one batch")
    report_trials: int | None = says(
        None, "most trials in a batch of tuned lines' reports; null: as batch_trials"
    )
    batch_work: float = says(2e8, "work of one batch; 1e8 is about a second")
    time_limit: float | None = says(3600.0, "seconds a trial may take; null: any")
    worker_memory: Any = says(
        "auto", "memory a worker may hold: auto, 500M, 2G or bytes; null: any"
    )


@dataclass
class Frame:
    """The whole configuration, as `conf/config.yaml` and an experiment fill it."""

    problem: dict[str, Any] = field(default_factory=dict)
    dataset: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)
    penalty: dict[str, Any] = field(default_factory=dict)
    constraint: dict[str, Any] = field(default_factory=dict)
    algorithm: dict[str, Any] = field(default_factory=dict)
    calibration: str = "certified"
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    seed: int = says(0, "seed of the noise and of random schedules, >= 0")
    mode: str = says("run", "run, or plan: count the trials and run none", *MODES)
    name: str | None = says(None, "name of the folder under results_dir")
    results_dir: str = says("results", "where the results folders are")
    panel: Any = says(None, "panels of the experiment to run; the others are left out")
    profile: str | None = says(None, "profile of the experiment")
    profiles: dict[str, Any] = field(default_factory=dict)
    blocks: list[Any] = field(default_factory=list)
    figures: Any = None
    claims: list[Any] = field(default_factory=list)


Keys = dict[str, tuple[dataclasses.Field[Any], Any]]
"""Field and type of a key, by its dotted name; the words allowed are in the type."""


def keys_of(sections: Mapping[str, Any]) -> Keys:
    """Return every key of some dataclasses, each behind the name of its section."""
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
def settings() -> Keys:
    """Return every key of the frame that is set by itself, in order."""
    keys = keys_of({"budget": BudgetConfig, "runner": RunnerConfig, "": Frame})
    return {key: one for key, one in keys.items() if "." in key or key in SETTINGS}


def check_setting(key: str, value: Any) -> Any:
    """Return the value of a plain key, converted to its type.

    Raises
    ------
    UsageError
        If there is no such key or the value is of another type.
    """
    keys = settings()
    if key not in keys:
        check_key(key, [*CHOSEN, *OTHERS, *keys])
    hint: Any = keys[key][1]
    if typing.get_origin(hint) is not list:
        return typed(key, value, hint)
    (inner,) = typing.get_args(hint)
    items = value if isinstance(value, list) else [value]
    return [typed(key, item, inner) for item in items]
