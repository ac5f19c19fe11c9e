"""How an experiment is run: workers, batches, folder (never what it computes)."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.frame import FAILED, MODES

LONGEST = 1e8
"""Seconds; three years, and what every kernel's timers can count."""

MOST_JOBS = 1024
LONGEST_NAME = 200
UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
SIZE = re.compile(r"(\d+(?:\.\d*)?)([KMGT]?)B?", re.IGNORECASE)
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container's kernel says how much its processes may use."""

LEAST = 1 << 20

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
    notice : str
        What to say on stderr once all that is wrong would have been refused.
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
    notice: str = ""
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


def results_folder(config: Mapping[str, Any], default: str) -> Path:
    """Return the folder of a run's results, named `default` unless a name is given.

    Raises
    ------
    UsageError
        If `name` is not a plain folder name, or `results_dir` can be no folder.
    """
    name = config["name"]
    name = default if name is None else name
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


def machine_memory() -> int:
    """Return the bytes of this machine, or of the container that this process is in."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in map(Path, LIMITS):
        if path.is_file() and (limit := path.read_text().strip()).isdecimal():
            found.append(int(limit))
    return min(found)


def worker_memory(given: Any, n_jobs: int) -> float | None:
    """Return the bytes after which a worker is replaced, None for no limit.

    Parameters
    ----------
    given : Any
        Bytes, a size as 500M or 2G (of 1024), None, or `auto`: half the machine's
        memory, shared by the workers.
    n_jobs : int
        Workers.

    Raises
    ------
    UsageError
        If it is no size, or less than 1 MB.
    """
    if given == "auto":
        return machine_memory() / (2 * n_jobs)
    if given is None:
        return None
    found = SIZE.fullmatch(str(given).strip()) if not isinstance(given, bool) else None
    size = (
        float(found[1]) * 1024 ** UNITS[found[2].upper()] if found else _number(given)
    )
    if not LEAST <= size < math.inf:
        raise UsageError(
            f"runner.worker_memory={given}: must be a size of at least 1M, as 500M or "
            "2G, auto, or null for no limit"
        )
    return size


def _number(given: Any) -> float:
    plain = isinstance(given, int | float) and not isinstance(given, bool)
    return float(given) if plain else math.nan
