"""dp-erm-bench check: algorithms through the contract that all of them keep."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from dp_erm_bench import registry
from dp_erm_bench.contract.candidate import Candidate, candidate_of
from dp_erm_bench.contract.suite import (
    CHECKS,
    EXEMPT,
    FAILS,
    OK,
    Check,
    Outcome,
    outcomes,
)
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins import passed

WIDTH = max(len(check.name) for check in CHECKS)


ONLY = "--only"


def check(arguments: Sequence[str]) -> int:
    """Print a line per check and return 0 if all are kept, else 1.

    Parameters
    ----------
    arguments : sequence of str
        Names, or paths of solvers' files; all names there are by default. Names of
        checks after ``--only``, with commas between them, are the only ones run.

    Raises
    ------
    UsageError
        If there is no such algorithm or check, or a file holds no complete solver;
        before anything is checked.
    """
    algorithms, checks = _asked(arguments)
    names = algorithms or registry.names(registry.ALGORITHM)
    pins = [registry.pinned(name) for name in names]
    candidates = [candidate_of(pin) for pin in pins]
    failed = 0
    for pin, candidate in zip(pins, candidates, strict=True):
        verdicts = _checked(candidate, checks)
        failed += FAILS in verdicts
        _record(pin, FAILS not in verdicts, len(verdicts) == len(CHECKS))
    return 1 if failed else 0


def _asked(arguments: Sequence[str]) -> tuple[list[str], Sequence[Check]]:
    """Return the algorithms and the checks of a command line."""
    algorithms, wanted = [], []
    words = iter(arguments)
    for word in words:
        key, equals, value = word.partition("=")
        if key == ONLY:
            value = value if equals else next(words, "")
            if not value:
                raise UsageError(f"{ONLY}: name at least one check after it")
            wanted += value.split(",")
        elif word.startswith("--"):
            raise UsageError(f"check: {key} is no option of it; there is {ONLY}")
        else:
            algorithms.append(word)
    for name in wanted:
        registry.check_choice(ONLY, name, [check.name for check in CHECKS])
    return algorithms, [one for one in CHECKS if not wanted or one.name in wanted]


def _checked(candidate: Candidate, checks: Sequence[Check]) -> list[str]:
    """Print what comes of each check and return the verdicts."""
    print(candidate.name)
    start, found = time.perf_counter(), []
    for outcome in outcomes(candidate, checks):
        print(_line(outcome), flush=True)
        found.append(outcome)
    verdicts = [outcome.verdict for outcome in found]
    failed, seconds = verdicts.count(FAILS), time.perf_counter() - start
    told = f"{failed} of {len(found)} checks fail" if failed else "all is kept"
    print(f"  {candidate.name}: {told}{_left(found)}, {seconds:.1f} s")
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


def _left(found: Sequence[Outcome]) -> str:
    """Return what a summary says of the checks that were not run."""
    aside = [outcome.check for outcome in found if outcome.verdict == EXEMPT]
    unasked = len(CHECKS) - len(found)
    said = [f"not checked: {', '.join(aside)}"] if aside else []
    said += [f"{unasked} checks not asked for"] if unasked else []
    return f" ({'; '.join(said)})" if said else ""


def _line(outcome: Outcome) -> str:
    name, seconds = outcome.check.replace("_", " "), f"{outcome.seconds:6.1f} s"
    if outcome.verdict == OK:
        return f"  {name:{WIDTH}} {seconds}  ok"
    said = ": ".join(filter(None, (outcome.verdict, outcome.said)))
    return f"  {name:{WIDTH}} {seconds}  {said}"
