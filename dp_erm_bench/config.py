"""Schema of a run's configuration: the frame around datasets and algorithms.

The parameters of an algorithm are not here: its own dataclass is their schema.
A field's metadata hold what its annotation cannot say to OmegaConf: `words` are the
strings allowed (beside numbers, where the annotation is `Any`), `help` what it means.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.memory import worker_memory
from dp_erm_bench.runner.options import FAILED, MODES, RunOptions

PARTS = ("dataset", "loss", "penalty", "constraint")
"""Groups of which one configuration holds a single choice, flat under its key."""

MOST_TRIALS = 1_000_000
"""A run asks for no more trials: all of them are planned in memory before the first."""

MOST_JOBS = 1024
LONGEST_NAME = 200

CHOSEN = (*PARTS, "algorithm", "calibration")
"""Groups whose choices may be swept."""


def _says(default: Any, text: str, *words: str) -> Any:
    metadata = {"help": text, "words": words}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class BudgetConfig:
    """Privacy budget of a run; checked by `privacy.budget.Budget`."""

    epsilon: float = _says(1.0, "privacy loss, > 0; inf runs without noise")
    delta: Any = _says("1/n^2", "a number in (0, 1), or as 1/n^2")
    adjacency: str = _says(
        "replace_one", "which datasets are neighbours", "replace_one", "zero_out"
    )


@dataclass
class RunnerConfig:
    """How the trials are executed; only `n_checkpoints` is part of a trial's key."""

    n_jobs: Any = _says("auto", "worker processes of one thread, or auto", "auto")
    retry: list[str] = _says([], "recorded statuses to run again", *FAILED)
    progress: bool = _says(True, "show the progress on stderr")
    n_checkpoints: int = _says(51, "rows of a trajectory, the start included")
    batch_trials: int = _says(32, "most trials in one batch")
    batch_work: float = _says(2e8, "work of one batch, in passes x n x p")
    time_limit: float | None = _says(3600.0, "seconds a trial may take; null: any")
    worker_memory: Any = _says(
        "auto", "memory a worker may hold: auto, 500M, 2G or bytes; null: any"
    )


@dataclass
class Frame:
    """The whole configuration, as `conf/config.yaml` and an experiment fill it."""

    dataset: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)
    penalty: dict[str, Any] = field(default_factory=dict)
    constraint: dict[str, Any] = field(default_factory=dict)
    algorithm: dict[str, Any] = field(default_factory=dict)
    calibration: str = "certified"
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    seed: int = _says(0, "seed of the noise and of random schedules, >= 0")
    mode: str = _says("run", "run, or plan: count the trials and run none", *MODES)
    name: str | None = _says(None, "name of the folder under results_dir")
    results_dir: str = _says("results", "where the results folders are")
    panel: Any = _says(None, "panels of the experiment to run; the others are left out")
    profile: str | None = _says(None, "profile of the experiment")
    profiles: dict[str, Any] = field(default_factory=dict)
    blocks: list[Any] = field(default_factory=list)
    figures: str | None = None
    claims: list[Any] = field(default_factory=list)


SETTINGS = ("seed", "mode", "name", "results_dir", "panel", "profile")
"""Plain keys of the frame that a command line may set."""


def settings() -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yield the dotted name and the field of every key of the frame, in order."""
    for section, schema in (("budget", BudgetConfig), ("runner", RunnerConfig)):
        for entry in dataclasses.fields(schema):
            yield f"{section}.{entry.name}", entry
    for entry in dataclasses.fields(Frame):
        if entry.name in SETTINGS:
            yield entry.name, entry


def run_options(
    config: Mapping[str, Any], command: tuple[str, ...], **changes: Any
) -> RunOptions:
    """Return the runner's options of a resolved configuration.

    Parameters
    ----------
    config : mapping
        The whole configuration as plain values.
    command : tuple of str
        The command line, for the manifest.
    **changes : Any
        Fields of `RunOptions` that the configuration does not hold.

    Raises
    ------
    UsageError
        If a value is out of range.
    """
    import joblib

    runner = dict(config["runner"])
    if runner["n_jobs"] == "auto":
        runner["n_jobs"] = joblib.cpu_count()
    if isinstance(runner["n_jobs"], int) and runner["n_jobs"] > MOST_JOBS:
        raise UsageError(f"runner.n_jobs={runner['n_jobs']}: at most {MOST_JOBS}")
    runner["retry"] = tuple(runner["retry"])
    n_jobs = max(1, runner["n_jobs"]) if isinstance(runner["n_jobs"], int) else 1
    runner["worker_memory"] = worker_memory(runner["worker_memory"], n_jobs)
    return RunOptions(
        **runner,
        mode=config["mode"],
        profile=config["profile"] or "",
        command=command,
        config=config,
        **changes,
    )


def results_folder(config: Mapping[str, Any], experiment: str | None) -> Path:
    """Return the folder of a run's results.

    Raises
    ------
    UsageError
        If `name` is not a plain folder name, or `results_dir` can be no folder.
    """
    name = config["name"]
    name = (experiment or "sweep") if name is None else name
    odd = (
        len(name.encode()) > LONGEST_NAME or not name.isprintable() or not name.strip()
    )
    if Path(name).name != name or name == ".." or odd:
        raise UsageError(
            f"name={name.strip() or repr(name)}: must be the name of a folder, not a "
            f"path, of at most {LONGEST_NAME} characters"
        )
    parent = Path(config["results_dir"])
    _check_parent(parent, config["results_dir"])
    return parent / name


def _check_parent(parent: Path, given: str) -> None:
    """Refuse what is no folder, and could never be one."""
    if not given.strip() or not given.isprintable():
        raise UsageError(f"results_dir={given!r}: must be the name of a folder")
    there = next(one for one in (parent, *parent.absolute().parents) if one.exists())
    if not there.is_dir():
        raise UsageError(f"results_dir={given}: {there} is no folder")
