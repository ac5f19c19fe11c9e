"""What a run writes beside its records: its manifest and `choices.csv`.

The manifest says what was asked, with what, when, and what came of it; the choices what
each tuned line chose, and whether a grid was too small.
"""

import contextlib
import csv
import dataclasses
import importlib
import io
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.lines import Line
from dp_erm_bench.experiment.schema import consecutive
from dp_erm_bench.experiment.tune import Choice, rounded
from dp_erm_bench.plugins.names import content, is_file, label
from dp_erm_bench.results.files import plural, unrun
from dp_erm_bench.results.runs import (
    check_run,
    environment,
    now,
    write_noted,
    write_run,
)
from dp_erm_bench.results.store import FORMAT
from dp_erm_bench.runner.session import Session

LEAST_RANGE = 3
OPEN = {
    "top": "{} {:.3g} is the highest value tried",
    "bottom": "{} {:.3g} is the lowest value tried",
    "limit": "{} {:.3g} is its limit",
    "trials": "the search ran out of trials",
}
"""What the words of `Choice.open` say."""

ELSEWHERE = ("config", "command", "files")
"""Options that are not in the manifest's section of options."""

CHOICES = "choices.csv"
SHOWN = 3
"""Open choices that a run names."""
HEADER = (
    "experiment,panel,line,dataset,standardise,algorithm,params,epsilon,delta,adjacency,"
    "calibration,quantity,chosen,mean,scatter,lead_low,lead_high,seeds,settings,trials,"
    "open,extended\n"
)


@contextlib.contextmanager
def recorded(session: Session) -> Iterator[dict[str, Any]]:
    """Write a run's manifest when it starts, and again when it ends or is ended.

    Yields
    ------
    dict
        Its content, to be completed by the run.

    Raises
    ------
    UsageError
        If the folder cannot be written to: before anything runs.
    """
    clock = time.monotonic()
    manifest = _asked(session)
    write_run(session.folder, manifest)
    outcome = "failed"
    try:
        yield manifest
        outcome = "complete"
    except (KeyboardInterrupt, SystemExit):
        outcome = "interrupted"
        raise
    finally:
        seconds = round(time.monotonic() - clock, 3)
        manifest |= {"ended": now(), "seconds": seconds, "outcome": outcome}
        manifest |= {"trials_run": session.ran, "counts": session.counts()}
        manifest |= session.pool.facts() if session.pool else {}
        # A run that fails has its own sentence; a full disk must not hide it.
        quiet = () if outcome == "complete" else (UsageError,)
        with contextlib.suppress(*quiet):
            check_run(session.folder, session.run)
            write_run(session.folder, manifest)


def _asked(session: Session) -> dict[str, Any]:
    """Return what a manifest says of a run before it starts."""
    options = session.options
    shown = {k: v for k, v in vars(options).items() if k not in ELSEWHERE}
    blocks = [_short(dict(block)) for block in session.blocks]
    return {
        "run": session.run,
        "experiment": session.name,
        "profile": options.profile,
        "version": importlib.import_module("dp_erm_bench").__version__,
        "format": FORMAT,
        "command": plain_command(options.command),
        "started": now(),
        "ended": None,
        "outcome": "running",
        "drawn": [],
        "not_run": [dataclasses.asdict(one) for one in session.missing],
        "damaged": session.damaged,
        "options": shown,
        "environment": environment(),
        "experiment_file": dict(options.files),
        "solver_files": solver_files(session.lines),
        "config": options.config,
        "blocks": None if options.config.get("blocks") else blocks,
    }


def solver_files(lines: Iterable[Line]) -> dict[str, str]:
    """Return the SHA-256 of the solvers' files, with the modules beside them."""
    names = sorted({line.algorithm for line in lines if is_file(line.algorithm)})
    return {f"{label(name)}.py": content(name) for name in names}


def _short(value: Any) -> Any:
    """Spell consecutive integers, such as ten thousand seeds, as a range."""
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) >= LEAST_RANGE and consecutive(value):
        return f"range({value[0]},{value[-1] + 1})"
    return [_short(one) for one in value]


def plain_command(command: Sequence[str]) -> list[str]:
    """Return a command line without the folder of its program."""
    return [os.path.basename(command[0]), *command[1:]] if command else []


def write_choices(folder: Path, experiment: str, choices: Iterable[Choice]) -> None:
    """Write one row per choice; parameters as JSON, see `Choice` for the columns."""
    text = io.StringIO()
    text.write(HEADER)
    rows = csv.writer(text, lineterminator="\n")
    for choice in choices:
        rows.writerow(map(unrun, _row(experiment, choice)))
    write_noted(folder, CHOICES, text.getvalue().encode())


def _row(experiment: str, choice: Choice) -> list[Any]:
    line, dataset = choice.line, choice.line.problem.spec["dataset"]
    standardise = bool(dataset.get("standardise", False))
    params = json.dumps(dict(line.params), sort_keys=True)
    chosen = json.dumps(choice.values, sort_keys=True)
    budget = [line.budget[key] for key in ("epsilon", "delta", "adjacency")]
    where = [experiment, line.panel, line.line, dataset["name"], standardise]
    how = [label(line.algorithm), params, *budget, line.calibration]
    lead = ("", "") if choice.lead is None else choice.lead
    scatter = "" if math.isnan(choice.scatter) else rounded(choice.scatter)
    result = [choice.quantity, chosen, rounded(choice.mean), scatter, *lead]
    spent = [len(choice.finals), choice.n_settings, len(choice.tried)]
    ends = ["; ".join(choice.open), "; ".join(choice.extended)]
    return [*where, *how, *result, *spent, *ends]


def doubts(choices: Iterable[Choice], skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence per line whose choice is none, and one of all that are open.

    `skipped` tells of each skipped trial why.
    """
    choices, beyond = list(choices), []
    for choice in choices:
        where = f"{choice.line.panel} / {choice.line.line}"
        where += f" (epsilon {choice.line.budget['epsilon']})"
        reasons = [skipped.get(key) for key in choice.tried]
        if all(reasons):
            yield f"{where}: every setting was skipped: {reasons[0]}"
        elif choice.mean == math.inf:
            yield f"{where}: no setting had a finite mean"
        elif choice.open:
            beyond.append(f"{where}: {', '.join(_reasons(choice))}")
    if beyond:
        named = "; ".join([*beyond[:SHOWN], *["..."] * (len(beyond) > SHOWN)])
        yield (
            f"open: {len(beyond)} of {plural(len(choices), 'choice')}, a better "
            f"setting may lie beyond: {named} (column open of {CHOICES})"
        )


def _reasons(choice: Choice) -> Iterator[str]:
    """Yield in words why a choice is open."""
    for end in choice.open:
        *keys, why = end.split()
        yield OPEN[why].format(*keys, *(choice.values[key] for key in keys))
