"""Options for running an experiment; they do not affect what it computes."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dp_erm_bench.errors import UsageError, value_error
from dp_erm_bench.experiment.lines import EXECUTE
from dp_erm_bench.experiment.schema import FAILED, MODES, RunnerConfig, bytes_of
from dp_erm_bench.paths import machine_memory
from dp_erm_bench.registry import check_choice
from dp_erm_bench.runner.engines.choice import check_engine

LONGEST = 1e8
"""Largest time limit in seconds: three years, which every kernel's timers support."""

MOST_JOBS = 1024
LEAST = 1 << 20

LEASTS = {"n_jobs": 1, "n_checkpoints": 2, "batch_trials": 1, "report_trials": 1}
"""Smallest allowed values of options that are whole numbers."""


@dataclass
class RunOptions(RunnerConfig):
    """Options for running a list of blocks.

    Only `n_checkpoints` is part of the key of a trial.

    Parameters
    ----------
    engine : {"local", "joblib", "dask"}
        The engine that carries the trials to workers; keys of a single engine are
        described in `experiment.schema.EngineConfig`.
    n_jobs : int or None
        Number of worker processes, with one thread each. With 1, a worker runs the
        trials, not the parent. None for as many as the scheduler at an address has, or
        as the active `joblib.parallel_config` says.
    retry : list of str
        Statuses (`error`, `timeout`, `killed`) of recorded trials to run again.
    progress : bool
        Whether to report on stderr: a bar on a terminal, otherwise one line a minute.
    output : bool
        Whether workers show on stderr what a solver prints. The beginning of the output
        is in the record, under `output`, in any case.
    n_checkpoints : int
        Number of rows of the trajectory of a sweep or report trial, including the
        start. Tuning trials record the first and the last iterate only.
    batch_trials : int
        Largest number of trials in one batch.
    report_trials : int or None
        Largest number of trials in one batch of the reports of tuned lines; None for
        `batch_trials`. With 1 each report is timed by itself, while the tuning trials
        of a batch run in lock-step.
    batch_work : float
        Target work of one batch when batches are split, without the work that its
        trials share; 1e8 is about a second.
    time_limit : float or None
        Seconds that a trial may take before its worker is ended, and the trial is a
        `timeout`; None for no limit. A batch, whose trials run at once, may take as
        long as one trial; if it takes longer, its trials run again one by one.
    worker_memory : float or None
        Bytes of memory that a worker may use by itself after a batch. If it uses more,
        a new worker replaces it, and the records stay. None for no limit.
    mode : {"run", "plan"}
        `plan` prints the counts and runs nothing.
    append_plan : bool
        Whether earlier trials of the folder stay in the table (ad-hoc sweeps);
        an experiment replaces the plan.
    profile : str
        Name of the profile that the blocks were resolved with, for the manifest.
    command : tuple of str
        The command line, for the manifest.
    config : mapping
        The resolved configuration, for the manifest.
    files : mapping of str to bytes
        The files that the blocks come from, by name; copies of them are kept.
    notice : str
        String to print on stderr once all values have been checked.
    execute : str
        Dotted name of the function that runs one batch in a worker.
    """

    n_jobs: int | None = 1
    worker_memory: float | None = None
    mode: str = "run"
    append_plan: bool = False
    profile: str = ""
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    config: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    notice: str = ""
    execute: str = EXECUTE

    def __post_init__(self) -> None:
        """Raise UsageError if a value is out of range."""
        self.cluster = self.cluster.lower()
        for name, least in LEASTS.items():
            value = getattr(self, name)
            if value is None and name in ("n_jobs", "report_trials"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise value_error(name, value, f"an integer of at least {least}")
        check_choice("mode", self.mode, [*MODES])
        for status in self.retry:
            check_choice("retry", status, [*FAILED])
        if not self.batch_work > 0:
            raise value_error("batch_work", self.batch_work, "positive")
        if self.time_limit is not None and not 0 < self.time_limit <= LONGEST:
            rule = f"positive seconds up to {LONGEST:g}, or null for no limit"
            raise value_error("time_limit", self.time_limit, rule)
        check_engine(self)

    def most_of(self, phase: str) -> int:
        """Return the largest number of trials in a batch of a phase."""
        alone = self.report_trials if phase == "report" else None
        return alone or self.batch_trials


def run_options(
    config: Mapping[str, Any], command: Sequence[str], **changes: Any
) -> RunOptions:
    """Return the options of a run from a resolved configuration.

    Parameters
    ----------
    config : mapping
        The whole configuration as plain values.
    command : sequence of str
        The command line, for the manifest.
    **changes : Any
        Fields of `RunOptions` that the configuration does not contain.

    Raises
    ------
    UsageError
        If a value is out of range.
    """
    runner = config["runner"]
    n_jobs = jobs_of(runner)
    workers = n_jobs if isinstance(n_jobs, int) else 1
    memory = worker_memory(runner["worker_memory"], max(workers, 1))
    asked = {
        "n_jobs": n_jobs,
        "worker_memory": memory,
        "mode": config["mode"],
        "profile": config["profile"] or "",
        "command": tuple(command),
        "config": config,
    }
    options = RunOptions(**{**runner, **asked, **changes})
    if options.cluster != "local" and runner["worker_memory"] == "auto":
        from dp_erm_bench.runner.engines.cluster import job_memory  # imports Dask

        # Half of the memory of a worker's job; its host needs some of the rest.
        options.worker_memory = job_memory(options) / 2
    return options


def jobs_of(runner: Mapping[str, Any]) -> int | None:
    """Return the requested number of workers; None if a cluster decides on it.

    Raises
    ------
    UsageError
        If the number is too large.
    """
    import joblib

    n_jobs: Any = runner["n_jobs"]
    if n_jobs != "auto":
        if isinstance(n_jobs, int) and n_jobs > MOST_JOBS:
            raise UsageError(f"runner.n_jobs={n_jobs}: at most {MOST_JOBS}")
        return cast(int, n_jobs)
    elsewhere = runner["address"] or runner["cluster"].lower() != "local"
    if runner["engine"] == "dask" and elsewhere:
        return None
    return int(joblib.cpu_count())


def worker_memory(value: Any, n_jobs: int) -> float | None:
    """Return the bytes of memory above which a worker is replaced; None for no limit.

    Parameters
    ----------
    value : Any
        Bytes, a size such as 500M or 2G (powers of 1024), None, or `auto`: half the
        machine's memory, shared by the workers.
    n_jobs : int
        Number of workers.

    Raises
    ------
    UsageError
        If the value is not a size, or less than 1 MB.
    """
    if value is None:
        return None
    if value == "auto":
        return machine_memory() / (2 * n_jobs)
    size = value if isinstance(value, float) else bytes_of(str(value))
    if not LEAST <= size < math.inf:
        allowed = "a size of at least 1M, as 500M or 2G, auto, or null for no limit"
        raise UsageError(f"runner.worker_memory={value}: must be {allowed}")
    return size
