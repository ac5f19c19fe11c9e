"""The white-box statistic of a run: the log-likelihood ratio of all it released.

A run on one of two neighbours is written down: what each mechanism answered. Then the
solver is run on both neighbours with these answers in place of its own, which tells
what it would have asked along the same trajectory. As answer t, given the earlier
ones, has the density of its release around that query,

    S = sum_t log p_t(answer_t | query_t on D) - log p_t(answer_t | query_t on D'),

the most powerful statistic (Neyman and Pearson) if the noise is what it is claimed to
be. Any function of the output is a valid statistic: a wrong law costs power alone.

In the replays a sampling mechanism takes every record, so that the query is the
differing record's whole contribution, see the twins.

Iterates are published too. Given the answers they are fixed: those of the run must be,
to the bit, those of both replays. If they are those of one replay only, data flow past
the mechanisms, and S is +-LEAK.

Where an algorithm publishes no noisy query (objective perturbation: the noise stays
secret), S is the log-ratio of the exact densities of its last iterate, by
``minimisers``. What is a query plus noise has the log-ratio of its twin.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.audit.claim import Claim
from dp_erm_bench.audit.minimisers import log_density
from dp_erm_bench.audit.pairs import Pair
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.base import Intercept, Query, Release
from dp_erm_bench.releases.mechanisms import Mechanisms
from dp_erm_bench.releases.sampling import SampledRelease
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.trust.twins.base import Answered, required_twin

Array = NDArray[np.float64]
Exchange = tuple[str, Any]
Problems = tuple[Problem, Problem]

LEAK = 1e9
DIGITS = 9


class AuditError(Exception):
    """The runs on neighbours cannot be compared: they made different releases."""


@dataclass(frozen=True, eq=False)
class Audited:
    """What is run: a solver with its noise, once per identity."""

    solver: Solver
    claim: Claim
    identities: Sequence[str]

    def run(
        self, problem: Problem, ear: Intercept | None, sampled: bool = True
    ) -> tuple[Mechanisms, list[Array]]:
        """Run all steps one by one; return the mechanisms and all iterates.

        ``ear`` hears all mechanisms. Without ``sampled`` every record is in every
        batch.
        """

        def listen(mechanisms: Mechanisms) -> None:
            for mechanism in mechanisms.values():
                mechanism.intercept = ear

        def seen(release: Release) -> Release:
            if isinstance(release, SampledRelease) and not sampled:
                return replace(release, rate=1.0)
            return release

        given = (problem, [self.solver], self.claim.budget, self.claim.z)
        run = Run(*given, self.identities, ahead=False, listen=listen, seen=seen)
        return run.mechanisms, run.iterates()


def statistics(
    solver: Solver, pair: Pair, claim: Claim, side: int, identities: Sequence[str]
) -> Array:
    """Return the statistic of one run per identity.

    Parameters
    ----------
    solver : Solver
    pair : Pair
        The neighbours D and D'.
    claim : Claim
        The noise of the mechanisms.
    side : {0, 1}
        Whether D or D' is run on.
    identities : sequence of str
        They seed the streams; B of them.

    Returns
    -------
    array of shape (B,)
        Rounded to 9 digits: numpy's floats leak in their low bits (Mironov, "On
        significance of the least significant bits for differential privacy", CCS
        2012), which no claim here is about.
    """
    audited = Audited(solver, claim, identities)
    measured = _of_output if claim.secret else _of_answers
    with np.errstate(over="ignore", invalid="ignore"):
        found = measured(audited, (pair.first, pair.second), side)
    return np.asarray(found.round(DIGITS))


def _of_output(audited: Audited, problems: Problems, side: int) -> Array:
    """Return the log-ratio of the densities of the last iterate."""
    mechanisms, iterates = audited.run(problems[side], None)
    first, second = (
        log_density(audited.solver, problem, mechanisms, iterates[-1])
        for problem in problems
    )
    return first - second


def _of_answers(audited: Audited, problems: Problems, side: int) -> Array:
    """Return the sum of the log-ratios of all answers, +-LEAK where data leak."""
    log: list[Exchange] = []
    asked: list[list[Query]] = [[], []]

    def write(query: Query, publish: Callable[[], Any]) -> Any:
        answer = publish()
        # Copied: a solver may change an array that it published in place.
        log.append((query.name, answer.copy()))
        return answer

    mechanisms, iterates = audited.run(problems[side], write)
    again = [
        audited.run(problem, _replay(log, queries), sampled=False)
        for problem, queries in zip(problems, asked, strict=True)
    ]
    if not len(log) == len(asked[0]) == len(asked[1]):
        raise AuditError("the number of releases depends on the data")
    fair = [_same(iterates, replayed) for _, replayed in again]
    leaks = LEAK * (fair[0].astype(np.float64) - fair[1])
    total = _log_ratios(mechanisms, audited.claim, log, asked)
    return np.where(leaks == 0.0, total, leaks)


def _log_ratios(
    mechanisms: Mechanisms, claim: Claim, log: list[Exchange], asked: list[list[Query]]
) -> Array:
    """Return the sum over the answers, (B,)."""
    total = np.zeros(mechanisms.batch)
    for (name, answer), first, second in zip(log, *asked, strict=True):
        scale = claim.multipliers[name] * first.sensitivity
        use = Answered(answer, first.value, second.value, scale)
        release = mechanisms[name].release
        total += required_twin(release).log_ratio(release, use)
    return total


def _same(run: list[Array], replayed: list[Array]) -> NDArray[np.bool_]:
    """Return which trials have the same iterates to the bit, NaN being itself."""
    pairs = zip(run, replayed, strict=True)
    equal = [((a == b) | (np.isnan(a) & np.isnan(b))).all(axis=1) for a, b in pairs]
    return np.asarray(np.logical_and.reduce(equal))


def _replay(log: list[Exchange], asked: list[Query]) -> Intercept:
    """Return who answers as was answered before, and writes down the queries."""
    answers = iter(log)

    def answer(query: Query, publish: Callable[[], Any]) -> Any:
        name, told = next(answers, ("nothing", np.empty(0)))
        if name != query.name:
            raise AuditError(
                f"release {query.name} is asked for where {name} was before: which "
                "releases are made depends on the data"
            )
        rows = query.value.reshape(len(query.value), -1)
        asked.append(replace(query, value=rows.copy()))
        return told.copy()

    return answer
