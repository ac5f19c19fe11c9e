"""Execute one batch of trials in a worker, and make records of its results."""

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.errors import (
    NotUsed,
    Unlike,
    Unsupported,
    UsageError,
    printable_text,
    traceback_text,
)
from dp_erm_bench.experiment.lines import Trial, task_of
from dp_erm_bench.paths import spell_infinities
from dp_erm_bench.plugins.names import named_in
from dp_erm_bench.plugins.passed import solver_digest
from dp_erm_bench.problems import named
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.build import erm_from_arrays
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.results.store import NAMED, batch_name, failed_record
from dp_erm_bench.run import Recorder, Run
from dp_erm_bench.solvers.base import Solver

Record = dict[str, Any]
TINY = {"n_iter": 2, "passes": 1, "clip": 1.0}
SPACES = ("none", "l1_ball")


def run_batch(trials: Sequence[Trial]) -> list[Record]:
    """Run trials that share everything except value parameters and seeds.

    Parameters
    ----------
    trials : sequence of Trial
        The trials of one batch.

    Returns
    -------
    list of dict
        One record per trial: ``key``, ``status`` (ok, diverged, skipped, error),
        ``message``, ``facts``, ``trajectory``. A trial with a trajectory also has the
        first digits of its ``identity``, and its ``batch``
        (`results.store.batch_name`). An exception of the algorithm becomes a status
        and is not raised.
    """
    try:
        return _records_of(trials)
    except Unsupported as reason:
        status, message = "skipped", printable_text(str(reason))
    except (UsageError, NotUsed) as error:
        status, message = "error", printable_text(str(error))
    except Exception as error:
        status, message = "error", traceback_text(error, -3)
    return [failed_record(trial.key, status, message) for trial in trials]


@functools.lru_cache(maxsize=8)
def _problem_of(text: str, posed: str) -> Problem:
    spec = json.loads(text)
    found = named.problem_of(spec)
    if found.identity != posed:
        apart = f"sha256 {found.identity:.12}, here {posed:.12}"
        raise Unlike(f"dataset {spec['dataset']['name']} is another one ({apart})")
    return found


def problem_of_trial(spec: Mapping[str, Any], posed: str = "") -> Problem:
    """Return the problem of a trial's spec.

    Parameters
    ----------
    spec : mapping
        The spec of the trial.
    posed : str
        The identity of the problem with which the trial's key was made; the problem is
        then cached for the next batches. If empty, the data are used as they are now.

    Raises
    ------
    Unlike
        If the problem has another identity, for example because its data have changed.
    """
    parts = {part: spec[part] for part in registry.POSED if part in spec}
    if not posed:
        return named.problem_of(parts)
    return _problem_of(json.dumps(parts, sort_keys=True), posed)


def solver_of(spec: Mapping[str, Any]) -> Solver:
    """Return the solver of a trial's spec."""
    algorithm = spec["algorithm"]
    solver: Solver = registry.build(
        "algorithm", named_in(algorithm), **algorithm["params"]
    )
    return solver


@functools.cache
def warm_up(algorithm: str, loss: str = '"logistic"') -> None:
    """Run two steps of an algorithm with noise on four records, once per process.

    This compiles the algorithm's kernels, or loads them from the cache, before its time
    is measured. Each worker does so, and only for kernels that the algorithm uses. Each
    loss (given as the JSON of its spec) has kernels of its own. A user's solver is not
    warmed up: it runs in its trials and nowhere else.
    """
    if algorithm not in registry.built_in("algorithm"):
        return
    fields = registry.target("algorithm", algorithm).__dataclass_fields__
    short = {k: v for k, v in TINY.items() if k in fields}
    # A failure on this problem says nothing about its trials.
    with contextlib.suppress(Exception):
        solver = registry.build("algorithm", algorithm, **short)
        problem = _tiny_problem(solver, json.loads(loss))
        Run(problem, [solver], Budget(1.0, 1e-6), 1.0).record(2)


def _tiny_problem(solver: Solver, loss: Any) -> Problem:
    """Return a problem of four records, or a small problem of the solver's own kind."""
    if not issubclass(ERMProblem, solver.serves):
        return solver.serves.neighbours(False)[0]
    X = np.array([[1.0, -1.0], [0.5, 1.0], [-1.0, 0.0], [0.0, 2.0]])
    records = (X, np.array([1.0, -1.0, 1.0, -1.0]))
    psi: dict[str, Any] = {"loss": loss, "penalty": "l2", "strength": 1.0}
    for space in SPACES:
        problem = erm_from_arrays(*records, constraint=space, bounds=2.0, **psi)
        if solver.refusal(problem) is None:
            return problem
    raise Unsupported("it serves none of four records")


def _records_of(trials: Sequence[Trial]) -> list[Record]:
    spec = trials[0].spec
    if "task" in spec:
        # The results of a task are all facts.
        done = (
            (trial.key, task_of(trial.spec["task"]).facts(trial)) for trial in trials
        )
        return [failed_record(key, "ok", "") | {"facts": rows} for key, rows in done]
    warm_up(spec["algorithm"]["name"], json.dumps(spec["loss"], sort_keys=True))
    solved = solve_batch(trials, problem_of_trial(spec, trials[0].setting.posed))
    batch = batch_name(trial.key for trial in trials)
    outside = _notes_on_outside(spec, solved.solvers[0])
    records = []
    for b, trial in enumerate(trials):
        why = reason_of_divergence(solved.rows, b)
        records.append(
            {
                "key": trial.key,
                "status": "diverged" if why else "ok",
                "message": why,
                "facts": facts_of_trial(solved, b) | outside,
                "trajectory": trajectory_rows(solved.rows, b),
                "identity": trial.identity[:NAMED],
                "batch": batch,
            }
        )
    return records


def reason_of_divergence(rows: Recorder, b: int) -> str:
    """Return the reason why a trial diverged; empty if it did not."""
    if not rows.finite[b]:
        return "an iterate is not finite"
    finite = math.isfinite(rows.objective[-1][b])
    return "" if finite else "the last objective is not finite"


def _notes_on_outside(spec: Mapping[str, Any], solver: Solver) -> dict[str, str]:
    """Return the digest of a solver from outside, and its exemptions from checks."""
    digest = solver_digest(named_in(spec["algorithm"]))
    exempt = "; ".join(f"{what}: {why}" for what, why in solver.exempt.items())
    named = {"exempt": exempt} if digest and exempt else {}
    return {"solver": digest, **named} if digest else {}


def run_of(trials: Sequence[Trial], problem: Problem) -> Run:
    """Return the run of a batch of trials on a problem, before it is started."""
    spec = trials[0].spec
    solvers = [solver_of(trial.spec) for trial in trials]
    identities = [trial.identity for trial in trials]
    how = (Budget(**spec["budget"]), spec["calibration"], identities)
    return Run(problem, solvers, *how)


def solve_batch(trials: Sequence[Trial], problem: Problem) -> Run:
    """Return the completed run of a batch of trials on a problem.

    Raises
    ------
    Unsupported
        If the algorithm does not support the problem under the budget.
    """
    return run_of(trials, problem).record(trials[0].spec["n_checkpoints"])


def uncharged_uses(problem: Problem, solver: Solver) -> list[str]:
    """Return the uses of the data, other than tuning, that no budget pays for."""
    uses = (use.value for use in problem.uncharged(solver.uses_smoothness))
    return [*uses, *solver.uncharged]


def facts_of_trial(solved: Run, b: int) -> dict[str, Any]:
    """Return the facts of a trial: the columns of the table that are constant in it."""
    problem, calibration = solved.problem, solved.calibration
    solver, optimum = solved.solvers[b], problem.optimum
    return {
        "n": problem.n,
        "p": problem.p,
        **problem.facts(),
        "params": spell_infinities(dataclasses.asdict(solver)),
        "delta": calibration.budget.delta,
        "accountant": calibration.accountant,
        "calibration": calibration.label,
        "epsilon_certified": _as_number(calibration.epsilon_certified),
        "z": calibration.z,
        "uncharged": uncharged_uses(problem, solver),
        "batch_size": len(solved.solvers),
        "optimum": optimum.value,
        "optimum_reason": optimum.reason,
        **(
            {"references": _plain_references(problem.references)}
            if problem.references
            else {}
        ),
    }


def trajectory_rows(rows: Recorder, b: int) -> dict[str, list[Any]]:
    """Return the rows of one trial; numbers that are not finite become None."""
    return {
        "iteration": rows.iteration,
        "passes": rows.passes,
        "seconds": [round(value, 6) for value in rows.seconds],
        "objective": [_as_number(values[b]) for values in rows.objective],
        "nnz": [int(values[b]) for values in rows.nnz],
        **{
            name: [_as_number(values[b]) for values in seen]
            for name, seen in rows.measures.items()
        },
    }


def _plain_references(references: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    return {
        name: {key: _as_number(value) for key, value in measures.items()}
        for name, measures in references.items()
    }


def _as_number(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
