"""How an experiment is run: workers, batches, reporting (never what it computes)."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.frame import FAILED, MODES

LONGEST = 1e8
"""Seconds; three years, and what every kernel's timers can count."""

EXECUTE = "dp_erm_bench.runner.execute.run_batch"


@dataclass(frozen=True)
class RunOptions:
    """Choose how a list of blocks is run; nothing here but `n_checkpoints` is in a key.

    Parameters
    ----------
    n_jobs : int
        Worker processes, one thread each; 1 means one worker, not the parent.
    mode : {"run", "plan"}
        `plan` prints the counts and runs nothing.
    retry : tuple of str
        Statuses (`error`, `timeout`, `killed`) of recorded trials to run again.
    progress : bool
        Whether to report on stderr: a bar on a terminal, else a line per 5 %.
    n_checkpoints : int
        Rows of the trajectory of a sweep or report trial, the start included;
        tuning trials record the first and the last iterate only.
    batch_trials : int
        Most trials in one batch.
    batch_work : float
        Work of one batch that splitting aims at; 1e8 is about a second.
    time_limit : float or None
        Seconds that a trial may take before its worker is ended, and the trial is a
        `timeout`; None for no limit. A batch, whose trials run at once, may take as
        long; if it takes longer its trials run again one by one.
    worker_memory : float or None
        Bytes of its own that a worker may hold after a batch: with more it is replaced
        by a new one, the record stays. None for any.
    append_plan : bool
        Whether earlier trials of the folder stay in the table (ad-hoc sweeps);
        an experiment replaces the plan.
    profile : str
        Name of the profile the blocks were resolved with, for the manifest.
    command : tuple of str
        The command line, for the manifest.
    config : mapping
        The resolved configuration, for the manifest.
    files : mapping of str to str
        SHA-256 of the files that the blocks come from, by name, for the manifest.
    execute : str
        Dotted name of the function that runs one batch in a worker.
    """

    n_jobs: int = 1
    mode: str = "run"
    retry: tuple[str, ...] = ()
    progress: bool = True
    n_checkpoints: int = 51
    batch_trials: int = 32
    batch_work: float = 2e8
    time_limit: float | None = 3600.0
    worker_memory: float | None = None
    append_plan: bool = False
    profile: str = ""
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    config: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    execute: str = EXECUTE

    def __post_init__(self) -> None:
        """Refuse values out of range with one sentence."""
        for name, least in (("n_jobs", 1), ("n_checkpoints", 2), ("batch_trials", 1)):
            _check_integer(name, getattr(self, name), least)
        if self.mode not in MODES:
            raise UsageError(f"mode={self.mode}: allowed are {', '.join(MODES)}")
        for status in self.retry:
            if status not in FAILED:
                raise UsageError(f"retry={status}: allowed are {', '.join(FAILED)}")
        if not self.batch_work > 0:
            raise UsageError(f"batch_work={self.batch_work}: must be positive")
        if self.time_limit is not None and not 0 < self.time_limit <= LONGEST:
            raise UsageError(
                f"time_limit={self.time_limit}: must be positive seconds up to "
                f"{LONGEST:g}, or null for no limit"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that the manifest's own section shows."""
        hidden = ("config", "command", "files")
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name not in hidden
        }


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name}={value}: must be an integer of at least {least}")
