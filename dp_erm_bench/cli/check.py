"""dp-erm-bench check: algorithms through the contract that all of them keep."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from dp_erm_bench import registry
from dp_erm_bench.contract.base import FAILS, OK, Outcome
from dp_erm_bench.contract.candidate import Candidate, candidate_of
from dp_erm_bench.contract.suite import CHECKS, outcomes
from dp_erm_bench.plugins import passed

WIDTH = max(len(check.name) for check in CHECKS)


def check(algorithms: Sequence[str]) -> int:
    """Print a line per check and return 0 if all are kept, else 1.

    Parameters
    ----------
    algorithms : sequence of str
        Names, or paths of solvers' files; all names there are by default.

    Raises
    ------
    UsageError
        If there is no such algorithm or a file holds no complete solver; before
        anything is checked.
    """
    names = algorithms or registry.names(registry.ALGORITHM)
    pins = [registry.pinned(name) for name in names]
    candidates = [candidate_of(pin) for pin in pins]
    failed = 0
    for pin, candidate in zip(pins, candidates, strict=True):
        verdicts = _checked(candidate)
        failed += FAILS in verdicts
        _record(pin, FAILS not in verdicts, len(verdicts) == len(CHECKS))
    return 1 if failed else 0


def _checked(candidate: Candidate) -> list[str]:
    """Print what comes of each check and return the verdicts."""
    print(candidate.name)
    start, verdicts = time.perf_counter(), []
    for outcome in outcomes(candidate):
        print(_line(outcome), flush=True)
        verdicts.append(outcome.verdict)
    seconds, failed = time.perf_counter() - start, verdicts.count(FAILS)
    told = f"{failed} of {len(CHECKS)} checks fail" if failed else "all is kept"
    print(f"  {candidate.name}: {told}, {seconds:.1f} s")
    return verdicts


def _record(pin: str, kept: bool, whole: bool) -> None:
    """Record the pass of a solver from outside, or take it back; some checks do not."""
    solver = passed.solver_digest(pin)
    if solver and (whole or not kept) and not passed.record(solver, kept):
        print(
            f"dp-erm-bench: {passed.folder()}: cannot be written, so that the pass of "
            f"{pin.partition('#')[0]} is not recorded",
            file=sys.stderr,
        )


def _line(outcome: Outcome) -> str:
    name, seconds = outcome.check.replace("_", " "), f"{outcome.seconds:6.1f} s"
    if outcome.verdict == OK:
        return f"  {name:{WIDTH}} {seconds}  ok"
    said = ": ".join(filter(None, (outcome.verdict, outcome.said)))
    return f"  {name:{WIDTH}} {seconds}  {said}"
