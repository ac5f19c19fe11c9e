"""The white-box statistic of a run: the log-likelihood ratio of all its answers.

A run on one of two neighbours D and D' is recorded, with the answer of each mechanism.
Then the solver is run on both neighbours with these answers in place of its own, which
gives the queries of both along the same trajectory. Given the earlier answers, answer t
has the density of its release around query t. The statistic is

    S = sum_t log p_t(answer_t | query_t on D) - log p_t(answer_t | query_t on D'),

which is the most powerful one (Neyman and Pearson) if the noise has the claimed law.
Any function of the output is a valid statistic, so a wrong law costs only power.

In the replays a sampling mechanism takes every record. A mechanism with a secret order
does the same at each use that reads a record. The query is then the whole contribution
of the differing record, as the twins need it. If an answer is a query plus noise, its
log-ratio is that of the twin.

Iterates are published too. The answers determine the iterates, so the iterates of the
run must equal those of both replays, to the bit. If they equal those of only one
replay, data flow past the mechanisms, and S is +-LEAK.

An algorithm may publish no noisy query, but the minimiser of a perturbed objective
whose noise stays secret. S is then the log-ratio of the exact densities of its last
iterate.
At the minimiser w of sum_i phi(x_i.w, y_i) + (m n / 2) norm2(w)^2 + b.w, b is minus the
gradient of the other terms, a smooth bijection of w. With A the Hessian of these terms,

    log p(w) = log p_b(b(w)) + log det A(w).

The second derivative of phi may jump: A is needed only almost everywhere.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.pairs import Pair, audited_solver, worst_pair
from dp_erm_bench.audit.profile import CLAIM, Guarantee, guarantee_of
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.releases.base import Array, Intercept, Mechanisms
from dp_erm_bench.releases.nested import NestedMechanism, with_inside
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelectMechanism
from dp_erm_bench.releases.sampling import SamplingMechanism
from dp_erm_bench.releases.single_use_gaussian import SingleUseMechanism
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.runs import Prefixed
from dp_erm_bench.trust.recount import watch_runs
from dp_erm_bench.trust.replay import Log, Writer
from dp_erm_bench.trust.twins.base import Answered, required_twin


def log_density(
    solver: Any, problem: Problem, mechanisms: Mechanisms, w: Array
) -> Array:
    """Return the log-density of each trial's minimiser, up to a constant, shape (B,).

    Noise that is added to the minimiser afterwards is left out, which costs at most
    power.

    Parameters
    ----------
    solver : Solver
        A solver whose method ``modulus(problem)`` returns m, see the module.
    problem : Problem
        The objective, with an l2 penalty or none.
    mechanisms : Mechanisms
        The mechanisms of the run, one of which has a secret release.
    w : array of shape (B, p)
        The minimisers.

    Raises
    ------
    Unsupported
        If the problem is not an `ERM`.
    """
    if not isinstance(problem, ERM):
        raise Unsupported(f"audit: no density is known of a secret on {problem.kind}")
    (mechanism,) = (m for m in mechanisms.values() if m.release.secret)
    modulus = float(solver.modulus(problem))
    terms = [_density_terms(problem, modulus, row) for row in w]
    b, volumes = np.array([t[0] for t in terms]), np.array([t[1] for t in terms])
    size = np.linalg.norm(b / mechanism.scale, axis=1)
    return np.asarray(required_twin(mechanism.release).log_noise(size) + volumes)


def _density_terms(problem: ERM, modulus: float, w: Array) -> tuple[Array, float]:
    """Return b(w) and log det A(w), as the module's docstring defines them."""
    n = problem.n
    hessian = problem.hessian(w) + n * modulus * np.eye(w.size)
    b = -n * (problem.gradient(w) + modulus * w)
    return b, float(np.linalg.slogdet(hessian)[1])


BATCH = 2000
LEAK = 1e9
DIGITS = 9


class AuditError(Exception):
    """Raised if runs on neighbours made different releases and cannot be compared."""


@dataclass(frozen=True, eq=False)
class Attack:
    """A solver with its worst-case neighbours and the guarantee that is audited."""

    solver: Solver
    pair: Pair
    guarantee: Guarantee

    def run(self, side: int, runs: int, identity: str) -> Array:
        """Return the statistics of a number of runs on one of the neighbours.

        Parameters
        ----------
        side : {0, 1}
            The dataset of the runs: 0 for D, 1 for D'.
        runs : int
            Number of runs, independent of each other.
        identity : str
            Name of this chunk of runs; run i has the identity ``identity/side/i``.
            Chunks of different identities are independent, so they may be run in any
            order and resumed.

        Returns
        -------
        array of shape (runs,)
            Rounded to 9 decimals, because the low bits of floating-point noise leak
            (Mironov, "On significance of the least significant bits for differential
            privacy", CCS 2012), which no guarantee here covers.
        """
        size = BATCH if self.solver.batchable else 1
        names = [f"{identity}/{side}/{i}" for i in range(runs)]
        measured = self._of_output if self.guarantee.secret else self._of_answers
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [
                measured(side, names[start : start + size])
                for start in range(0, runs, size)
            ]
        return np.concatenate([np.empty(0), *parts]).round(DIGITS)

    def run_and_listen(
        self,
        problem: Problem,
        identities: Sequence[str],
        ear: Intercept | None,
        sampled: bool = True,
    ) -> tuple[Mechanisms, list[Array]]:
        """Run the solver step by step, and return its mechanisms and all iterates.

        Parameters
        ----------
        problem : Problem
            The problem on D or on D'.
        identities : sequence of str
            One per trial; they seed the noise.
        ear : callable or None
            The hook that intercepts each query of all mechanisms; None for no hook.
        sampled : bool
            Whether mechanisms draw their samples; otherwise every record is in every
            batch.
        """

        def listen(mechanisms: Mechanisms) -> None:
            watch_runs(mechanisms)
            for mechanism in mechanisms.values():
                mechanism.intercept = ear

        ears = listen if sampled else functools.partial(_take_everyone, listen)
        drawn: tuple[Any, Sequence[str]] = self.guarantee.z, identities
        if isinstance(self.solver, Prefixed):
            # The claim holds for a given schedule, so the runs must have the same one.
            drawn = "certified", [CLAIM]
        heard: dict[str, Any] = {"ahead": False, "listen": ears, "streams": identities}
        run = Run(problem, [self.solver], self.guarantee.budget, *drawn, **heard)
        return run.mechanisms, run.iterates()

    def _of_output(self, side: int, identities: Sequence[str]) -> Array:
        """Return the log-ratio of the densities of the last iterate."""
        problems = (self.pair.first, self.pair.second)
        mechanisms, iterates = self.run_and_listen(problems[side], identities, None)
        first, second = (
            log_density(self.solver, problem, mechanisms, iterates[-1])
            for problem in problems
        )
        return first - second

    def _of_answers(self, side: int, identities: Sequence[str]) -> Array:
        """Return each run's sum of the log-ratios of its answers, +-LEAK for a leak."""
        problems = (self.pair.first, self.pair.second)
        log, replays = Log(), (Log(), Log())
        mechanisms, log.iterates = self.run_and_listen(
            problems[side], identities, Writer(log)
        )
        for problem, other in zip(problems, replays, strict=True):
            ear = Writer(other, log, counts=False)
            _, other.iterates = self.run_and_listen(
                problem, identities, ear, sampled=False
            )
        uses = [each.exchanges for each in (log, *replays)]
        if len({tuple(one.query.name for one in each) for each in uses}) > 1:
            raise AuditError("which releases are made depends on the data")
        fair = [_same_iterates(log.iterates, again.iterates) for again in replays]
        total, joint = np.zeros(len(identities)), dict[str, list[Answered]]()
        releases = [one.release for one in mechanisms.values()]
        published = {one.name: one for one in with_inside(releases, self.guarantee.z)}
        for told, *again in zip(*uses, strict=True):
            first, second = (one.query for one in again)
            if first.run is not None and first.run != winner_of(mechanisms):
                continue  # the answers of a run that lost are secret
            scale = self.guarantee.multipliers[first.name] * first.sensitivity
            a, b = (one.value.reshape(len(one.value), -1) for one in (first, second))
            use = Answered(told.answer, a, b, scale)
            twin = required_twin(release := published[first.name])
            if twin.joint:
                joint.setdefault(first.name, []).append(use)
            else:
                total += twin.log_ratio(release, use)
        for name, together in joint.items():
            twin = required_twin(release := published[name])
            total += twin.log_ratio_of_run(release, together)
        leaks = LEAK * (fair[0] - fair[1])
        return np.where(leaks == 0.0, total, leaks)


def _take_everyone(
    listen: Callable[[Mechanisms], None], mechanisms: Mechanisms
) -> None:
    """Make all mechanisms put every record into their samples, then call a listener.

    This includes nested mechanisms.
    """
    listen(mechanisms)
    for mechanism in mechanisms.values():
        match mechanism:
            case SamplingMechanism():
                mechanism.take_everyone()
            case SingleUseMechanism():
                mechanism.everyone = mechanism.release.drawn
            case NestedMechanism():
                mechanism.listen = functools.partial(_take_everyone, mechanism.listen)


def winner_of(mechanisms: Mechanisms) -> int:
    """Return the index of the run that was selected among repeated ones."""
    many = (m for m in mechanisms.values() if isinstance(m, RepeatAndSelectMechanism))
    runs = next(many).audit
    assert runs is not None
    return runs.winner


def named_attack(algorithm: str, params: Mapping[str, Any], budget: Budget) -> Attack:
    """Return the attack on an algorithm of conf/algorithm; attacks are cached.

    Parameters
    ----------
    algorithm : str
        A name of conf/algorithm.
    params : mapping
        Parameters of the algorithm, such as one of ``pairs.variants(algorithm)``.
    budget : Budget
        The budget whose guarantee is tested.
    """
    return _cached_attack(algorithm, json.dumps(dict(params), sort_keys=True), budget)


@functools.lru_cache(maxsize=64)
def _cached_attack(algorithm: str, params: str, budget: Budget) -> Attack:
    return attack_on(audited_solver(algorithm, json.loads(params)), budget)


def attack_on(solver: Solver, budget: Budget) -> Attack:
    """Return the attack on a given solver, whose parameters are not changed."""
    pair = worst_pair(solver, budget.adjacency)
    return Attack(solver, pair, guarantee_of(solver, pair.first, budget))


def _same_iterates(run: list[Array], replayed: list[Array]) -> Array:
    """Return 1 for each trial with identical iterates (NaN equals NaN), else 0."""
    equal = [
        ((a == b) | (np.isnan(a) & np.isnan(b))).all(axis=1)
        for a, b in zip(run, replayed, strict=True)
    ]
    return np.asarray(np.logical_and.reduce(equal), np.float64)
