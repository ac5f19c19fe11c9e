"""Sweeps and tuning from Python: what the command line does, a table returned."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import RunnerConfig, check_setting
from dp_erm_bench.experiment.tuned import PROFILE, tuned_blocks
from dp_erm_bench.results import table
from dp_erm_bench.results.store import NAMED
from dp_erm_bench.results.tuned import tuned
from dp_erm_bench.runner.engines.choice import ACTIVE
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.options import RunOptions, run_options

if TYPE_CHECKING:
    import pandas as pd


def sweep(
    lines: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    folder: str | Path = "results/sweep",
    **runner: Any,
) -> "pd.DataFrame":
    """Run every trial of some lines that is not recorded yet; return their table.

    It does what a command line does: trials run in worker processes, and what was
    interrupted goes on when it is called again.

    Parameters
    ----------
    lines : mapping or sequence of mapping
        With the keys of an experiment's blocks: ``dataset``, ``algorithm``, ``budget``,
        ``seed`` and so on, as in experiments/*.yaml; a list is an axis.
    folder : str or Path
        The results folder; trials of earlier sweeps stay in its table.
    **runner
        Keys of ``runner``, as ``n_jobs`` and ``engine``. Without ``engine`` the backend
        of an active ``joblib.parallel_config`` hosts the workers, else threads.

    Returns
    -------
    DataFrame
        As of `load_results`: a row per checkpoint; ``status`` tells what failed.

    Raises
    ------
    UsageError
        Before anything runs, for a key or a value that is wrong.
    DataUnavailable
        If there is no dataset.
    """
    sections = _sections(lines)
    options = _options(sections, runner, append_plan=True)
    run_experiment(sections, Path(folder).name, Path(folder), options)
    return table.load_results(folder)


def tune(
    lines: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    folder: str | Path = "results/tune",
    search: Mapping[str, Any] | None = None,
    profile: str = PROFILE,
    **runner: Any,
) -> "pd.DataFrame":
    """Tune each algorithm of some lines on each problem; return how the choices did.

    It does what ``dp-erm-bench tune`` does, without its figures. Tuning reads the data
    and is not charged.

    Parameters
    ----------
    lines : mapping or sequence of mapping
        As of `sweep`, without ``seed``. One value of an algorithm's parameter fixes
        it; a list is where its search starts.
    folder : str or Path
        The results folder; trials that it has already are not run again.
    search : mapping, optional
        Keys of ``tune`` that replace the usual ones, as ``{"quantity":
        "test_accuracy", "search": {"trials": 100}}``; see docs/tuning.md.
    profile : {'published', 'default', 'paper', 'smoke'}
        Of the leaderboard, whose grids, limits, seeds and searches are the usual ones.
    **runner
        As of `sweep`.

    Returns
    -------
    DataFrame
        As `results.tuned.tuned` says: a row per problem, epsilon and algorithm, the
        best first.

    Raises
    ------
    UsageError, DataUnavailable
        As `sweep`.
    """
    blocks = tuned_blocks(_sections(lines), search or {}, profile)
    options = _options(blocks, runner, append_plan=False)
    run_experiment(blocks, Path(folder).name, Path(folder), options)
    return tuned(folder)


def _options(
    sections: Sequence[Mapping[str, Any]], runner: Mapping[str, Any], append_plan: bool
) -> RunOptions:
    """Return the options of a call from Python; `runner` has some of the keys."""
    chosen = {key: check_setting(f"runner.{key}", one) for key, one in runner.items()}
    from dp_erm_bench.runner.engines.joblib import is_active  # imports joblib

    if "engine" not in chosen and is_active():
        chosen = {"engine": "joblib", "backend": ACTIVE, **chosen}
    if chosen.get("backend") == ACTIVE:
        # As many as its parallel_config says.
        chosen = {"n_jobs": None, **chosen}
    config = {"runner": asdict(RunnerConfig()) | chosen, "mode": "run", "profile": None}
    text = json.dumps(sections, sort_keys=True, default=str)
    name = "dp_erm_bench.sweep" if append_plan else "dp_erm_bench.tune"
    command = (name, sha256(text.encode()).hexdigest()[:NAMED])
    return run_options(config, command, append_plan=append_plan)


def _sections(lines: Any) -> list[dict[str, Any]]:
    """Return lines as blocks; a UsageError if one is no mapping."""
    alone = isinstance(lines, str | Mapping) or not isinstance(lines, Iterable)
    sections = [_plain(one) for one in ([lines] if alone else lines)]
    if not all(isinstance(one, dict) for one in sections):
        raise UsageError(f"lines={lines!r:.80}: must be a mapping, or a list of them")
    return sections


def _plain(value: Any) -> Any:
    """Return a block's value in Python's own types; numpy's and ranges are others."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value
