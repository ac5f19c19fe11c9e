"""From the resolved configuration to the options of the runner and the folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.memory import worker_memory
from dp_erm_bench.runner.options import RunOptions

MOST_JOBS = 1024
LONGEST_NAME = 200


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
