"""dp-erm-bench check: algorithms through the contract that all of them keep."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dp_erm_bench import registry
from dp_erm_bench.contract.base import FAILS, OK, Outcome
from dp_erm_bench.contract.candidate import Candidate, candidate_of
from dp_erm_bench.contract.suite import CHECKS, outcomes

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
    failed = sum(
        _checked(candidate) for candidate in [candidate_of(name) for name in names]
    )
    return 1 if failed else 0


def _checked(candidate: Candidate) -> int:
    """Print what comes of each check and return how many fail."""
    print(candidate.name)
    start, failed = time.perf_counter(), 0
    for outcome in outcomes(candidate):
        print(_line(outcome), flush=True)
        failed += outcome.verdict == FAILS
    seconds = time.perf_counter() - start
    told = f"{failed} of {len(CHECKS)} checks fail" if failed else "all is kept"
    print(f"  {candidate.name}: {told}, {seconds:.1f} s")
    return failed


def _line(outcome: Outcome) -> str:
    name, seconds = outcome.check.replace("_", " "), f"{outcome.seconds:6.1f} s"
    if outcome.verdict == OK:
        return f"  {name:{WIDTH}} {seconds}  ok"
    said = ": ".join(filter(None, (outcome.verdict, outcome.said)))
    return f"  {name:{WIDTH}} {seconds}  {said}"
