"""The command check: test whether algorithms satisfy the contract of all solvers."""

import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from dp_erm_bench import registry
from dp_erm_bench.cli.options import parser_of
from dp_erm_bench.code_identity import is_ours
from dp_erm_bench.contract.candidate import Candidate, candidate_of
from dp_erm_bench.contract.output import silence_output
from dp_erm_bench.contract.outside import releases_without_twin
from dp_erm_bench.contract.suite import (
    CHECKS,
    EXEMPT,
    FAILS,
    NOT_ALL_RUN,
    OK,
    REWRITE,
    Check,
    CheckResult,
)
from dp_erm_bench.plugins import passed

WIDTH = max(len(check.name) for check in CHECKS)
FOLDERS = {"DP_ERM_BENCH_CACHE", "DP_ERM_BENCH_DATA"}
PRINTED = 80
"""Largest number of characters of a solver's own output that are shown."""


def check_command(arguments: Sequence[str]) -> int:
    """Print one line per check, and return 0 if all algorithms pass, else 1.

    Parameters
    ----------
    arguments : sequence of str
        Names of algorithms, or paths of solvers' files; all known algorithms by
        default. ``--only`` is followed by the names of the checks to run, separated by
        commas. ``--accept`` is followed by the names of uses and releases whose doubt
        is accepted. ``--first`` stops at the first check that fails.

    Raises
    ------
    UsageError
        If an algorithm or a check does not exist, or a file does not contain a complete
        solver. The error is raised before any check runs.
    """
    options = parser_of("check").parse_intermixed_args(arguments)
    accepted, known = options.accept, {check.name: check for check in CHECKS}
    for name in options.only:
        registry.check_choice("--only", name, [*known])
    checks = [known[name] for name in known if name in (options.only or known)]
    names = options.algorithms or registry.names(registry.ALGORITHM)
    pins = [registry.pin_choice(name) for name in names]
    with silence_output():
        candidates = [candidate_of(pin) for pin in pins]
    for name in FOLDERS & os.environ.keys():
        os.environ[name] = os.path.abspath(os.environ[name])
    kept = []
    for pin, candidate in zip(pins, candidates, strict=True):
        print(candidate.name)
        start = time.perf_counter()
        # Files that a solver writes go into a temporary folder.
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            results = list(_print_results(candidate, checks, options.first))
        verdicts = Counter(one.verdict for one in results)
        failed, partly = verdicts[FAILS], verdicts[NOT_ALL_RUN]
        rewritten = verdicts[REWRITE]
        exempt = [one.check for one in results if one.verdict == EXEMPT]
        unasked = len(CHECKS) - (len(checks) if rewritten else len(results))
        kept_all = not (failed or partly or rewritten or unasked)
        doubts = _doubts_of_candidate(candidate) if kept_all else {}
        for name, doubt in doubts.items():
            how = "accepted" if name in accepted else f"not accepted: --accept {name}"
            print(f"  in doubt: {doubt} ({how})")
        for name in set(accepted).difference(doubts) if kept_all else ():
            print(f"  --accept {name}: no use or release of that name is in doubt")
        doubted = any(name not in accepted for name in doubts)
        found = {
            f"{failed} of {len(results)} checks fail": failed,
            "not judged as it is written": rewritten,
            "all checks pass, except for what is in doubt": doubted,
            "all checks pass on what was run, but not all was run": partly,
            "all checks pass": True,
        }
        summary = next(words for words, holds in found.items() if holds)
        how = "not reached" if options.first else "not asked for"
        left = {
            f"not checked: {', '.join(exempt)}": exempt,
            f"{unasked} checks {how}": unasked,
        }
        lacks = "; ".join(words for words, holds in left.items() if holds)
        summary += f" ({lacks})" if lacks else ""
        print(f"  {candidate.name}: {summary}, {time.perf_counter() - start:.1f} s")
        is_kept = not (failed or partly or rewritten or doubted)
        if not (is_kept and unasked):
            uses = candidate.solver.uncharged
            _record_pass(
                pin,
                is_kept,
                passed.doubt_of_sources("", doubts.keys() <= uses.keys(), uses),
            )
        kept.append(is_kept)
    return 0 if all(kept) else 1


def _print_results(
    candidate: Candidate, checks: Sequence[Check], first: bool
) -> Iterator[CheckResult]:
    """Run checks, print a line for each, and yield its result.

    If ``first``, stop at the first check that fails. Always stop if the verdict is that
    the solver must be rewritten, since the other checks would give the same verdict.
    """
    for check in checks:
        print(f"  {check.name.replace('_', ' '):{WIDTH}}", end="", flush=True)
        try:
            result = check.result(candidate)
        except BaseException:
            print(flush=True)  # end the line first
            raise
        words = [result.verdict, "" if result.verdict == OK else result.reason]
        print(f" {result.seconds:6.1f} s  {': '.join(filter(None, words))}", flush=True)
        if result.verdict == FAILS and result.printed:
            print(f"  {'':{WIDTH}}           it printed: {result.printed[:PRINTED]}")
        yield result
        if result.verdict == REWRITE or (first and result.verdict == FAILS):
            return


def _doubts_of_candidate(candidate: Candidate) -> dict[str, str]:
    """Return the doubts about a user's solver that passes all checks, by name."""
    if is_ours(candidate.solver):
        return {}
    uses = candidate.solver.uncharged.items()
    found = {name: f"uncharged use {name}: {reason}" for name, reason in uses}
    return found | releases_without_twin(candidate)


def _record_pass(pin: str, kept: bool, doubt: str) -> None:
    """Record that a user's solver passed, with its doubt, or remove an earlier pass."""
    solver = passed.solver_digest(pin)
    if solver and not passed.record_pass(solver, kept, doubt):
        print(
            f"dp-erm-bench: {passed.passes_folder()}: cannot be written, so that the "
            "pass of "
            f"{pin.partition('#')[0]} is not recorded",
            file=sys.stderr,
        )
