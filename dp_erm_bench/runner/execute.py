"""Execute one batch of trials in a worker, and describe what came out."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.errors import Unsupported, UsageError, printable, told
from dp_erm_bench.experiment.studies import task_of
from dp_erm_bench.experiment.trials import Trial
from dp_erm_bench.paths import spelled
from dp_erm_bench.plugins.names import is_file, named_in
from dp_erm_bench.plugins.passed import is_ours, solver_digest
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.problem import Problem
from dp_erm_bench.results.segment import NAMED, batch_name
from dp_erm_bench.run import Recorder, Run
from dp_erm_bench.runner.warm import warm_up
from dp_erm_bench.solvers.base import Solver

Record = dict[str, Any]


def run_batch(trials: Sequence[Trial]) -> list[Record]:
    """Run trials that share all but value parameters and seeds.

    Parameters
    ----------
    trials : sequence of Trial

    Returns
    -------
    list of dict
        One record per trial: ``key``, ``status`` (ok, diverged, skipped, error),
        ``message``, ``facts``, ``trajectory``; where there is one, the first digits
        of its ``identity``, and its ``batch`` (`segment.batch_name`). An exception of
        the algorithm is a status, not raised.
    """
    try:
        return _records(trials)
    except Unsupported as reason:
        return [_failure(trial, "skipped", printable(str(reason))) for trial in trials]
    except UsageError as error:
        return [_failure(trial, "error", printable(str(error))) for trial in trials]
    except Exception as error:
        return [_failure(trial, "error", told(error, -3)) for trial in trials]


@functools.lru_cache(maxsize=8)
def _problem(text: str) -> Problem:
    spec = json.loads(text)
    data = load_dataset(spec["dataset"])
    return build_problem(data, spec["loss"], spec["penalty"], spec["constraint"])


def problem_of(spec: Mapping[str, Any]) -> Problem:
    """Return the problem of a trial's spec, kept for the next batches."""
    parts = ("dataset", "loss", "penalty", "constraint")
    return _problem(json.dumps({part: spec[part] for part in parts}, sort_keys=True))


def solver_of(spec: Mapping[str, Any]) -> Solver:
    """Return the solver of a trial's spec."""
    algorithm = spec["algorithm"]
    solver: Solver = registry.build(
        "algorithm", named_in(algorithm), **algorithm["params"]
    )
    return solver


def _records(trials: Sequence[Trial]) -> list[Record]:
    spec = trials[0].spec
    if "task" in spec:
        return [_done(trial) for trial in trials]
    warm_up(spec["algorithm"]["name"])
    solved = solved_together(trials, problem_of(spec))
    batch = batch_name(trial.key for trial in trials)
    return [
        {
            **_record(trial, b, solved),
            "identity": trial.identity[:NAMED],
            "batch": batch,
        }
        for b, trial in enumerate(trials)
    ]


def solved_together(trials: Sequence[Trial], problem: Problem) -> Run:
    """Return what a batch of trials on a problem comes to.

    Raises
    ------
    Unsupported
        If the algorithm cannot serve the problem under the budget.
    """
    spec = trials[0].spec
    run = Run(
        problem,
        [solver_of(trial.spec) for trial in trials],
        Budget(**spec["budget"]),
        spec["calibration"],
        [trial.identity for trial in trials],
    )
    return run.record(spec["n_checkpoints"])


def _done(trial: Trial) -> Record:
    """Return the record of a trial that has a task: all that it found are facts."""
    found = task_of(trial.spec["task"]).facts(trial)
    record = _failure(trial, "ok", "")
    return {**record, "facts": found}


def _record(trial: Trial, b: int, solved: Run) -> Record:
    finite = math.isfinite(solved.rows.objective[-1][b])
    return {
        "key": trial.key,
        "status": "ok" if finite else "diverged",
        "message": "" if finite else "the last objective is not finite",
        "facts": facts(solved, b) | _outside(trial.spec["algorithm"]),
        "trajectory": trajectory(solved.rows, b),
    }


def _outside(algorithm: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of an entry point's sources; a file's is in its spec."""
    name = named_in(algorithm)
    outside = not is_file(name) and not is_ours(name)
    return {"solver": solver_digest(name)} if outside else {}


def _failure(trial: Trial, status: str, message: str) -> Record:
    return {
        "key": trial.key,
        "status": status,
        "message": message,
        "facts": {},
        "trajectory": {},
    }


def uncharged(problem: Problem, solver: Solver) -> list[str]:
    """Return the uses of the data, other than tuning, that no budget pays for."""
    constants = problem.smoothness.uncharged if solver.uses_smoothness else ()
    return [use.value for use in (*problem.dataset.uncharged, *constants)]


def facts(solved: Run, b: int) -> dict[str, Any]:
    """Return what the table says of a whole trial."""
    problem, calibration = solved.problem, solved.calibration
    optimum = problem.optimum
    params = dataclasses.asdict(solved.solvers[b])
    return {
        "n": problem.n,
        "p": problem.p,
        "loss": problem.loss.name,
        "penalty": problem.penalty.name,
        "strength": getattr(problem.penalty, "strength", 0.0),
        "constraint": problem.constraint.name,
        "params": spelled(params),
        "delta": calibration.budget.delta,
        "accountant": calibration.accountant,
        "calibration": calibration.label,
        "epsilon_certified": _number(calibration.epsilon_certified),
        "z": calibration.z,
        "uncharged": uncharged(problem, solved.solvers[b]),
        "smoothness": problem.smoothness.kind,
        "batch_size": len(solved.solvers),
        "optimum": optimum.value,
        "optimum_reason": optimum.reason,
    }


def trajectory(rows: Recorder, b: int) -> dict[str, list[Any]]:
    """Return the rows of one trial; numbers that are not finite become None."""
    return {
        "iteration": rows.iteration,
        "passes": rows.passes,
        "seconds": [round(value, 6) for value in rows.seconds],
        "objective": [_number(values[b]) for values in rows.objective],
        "nnz": [int(values[b]) for values in rows.nnz],
        "test_objective": [_number(values[b]) for values in rows.test_objective],
        "test_accuracy": [_number(values[b]) for values in rows.test_accuracy],
    }


def _number(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
