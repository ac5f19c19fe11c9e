"""The checks that every algorithm must pass, and the result of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from dp_erm_bench.contract import (
    climb,
    declared,
    limits,
    outside,
    repeat,
    replay,
    shrunken,
    typed,
)
from dp_erm_bench.contract.candidate import (
    Candidate,
    ContractError,
    NotAllRun,
    NotApplicable,
    ToBeRewritten,
    require,
)
from dp_erm_bench.contract.output import silence_output
from dp_erm_bench.contract.rewritten import without_blanks
from dp_erm_bench.releases.repeat_and_select import SharedVariables

OK, FAILS, NOT_ALL_RUN, EXEMPT = "ok", "FAILS", "not all run", "does not apply"
REWRITE = "to be rewritten"
VERDICTS = {
    ContractError: FAILS,
    NotAllRun: NOT_ALL_RUN,
    ToBeRewritten: REWRITE,
    NotApplicable: EXEMPT,
}


@dataclass(frozen=True)
class CheckResult:
    """The result of one check of an algorithm.

    Attributes
    ----------
    check : str
        Name of the check.
    verdict : str
        `OK`, `FAILS`, `NOT_ALL_RUN`, `REWRITE` or `EXEMPT`.
    reason : str
        The violation, or why the check does not apply; empty if the check passed.
    seconds : float
        Time that the check took.
    printed : str
        The last line that the algorithm printed in this process, empty if none.
    """

    check: str
    verdict: str
    reason: str
    seconds: float
    printed: str = ""


@dataclass(frozen=True)
class Check:
    """A property that every algorithm must have.

    Attributes
    ----------
    run : callable
        A function of a `Candidate`, which raises `ContractError` or `NotApplicable`.
        The name of the function is the name of the check. The first line of its
        docstring says what is checked.
    exemptable : bool
        Whether a class may declare that the check has no meaning for it
        (``Solver.exempt``).
    """

    run: Callable[[Candidate], None]
    exemptable: bool = False

    @property
    def name(self) -> str:
        """Return the name of the check."""
        return self.run.__name__

    def on(self, candidate: Candidate) -> None:
        """Raise ContractError if an algorithm breaks the contract.

        If the algorithm raises any error, this breaks the contract, too.

        Raises
        ------
        ContractError
            The message is one sentence: the violation, its place and its size.
        ToBeRewritten
            The message names the line that breaks a rule, and the remedy.
        NotApplicable
            The message says why the check has no meaning for the algorithm.
        """
        reason = candidate.solver.exempt.get(self.name)
        if reason and self.exemptable:
            raise NotApplicable(reason)
        try:
            self.run(candidate)
        except (ContractError, NotApplicable):
            raise
        except SharedVariables as error:
            raise ToBeRewritten(f"{error}; nothing is judged before") from error
        except (Exception, SystemExit) as error:
            message = " ".join(str(error).split())
            raise ContractError(
                f"it raises {type(error).__name__}: {message}"
            ) from error

    def result(self, candidate: Candidate) -> CheckResult:
        """Return the result of the check for a candidate; raise and print nothing."""
        start = time.perf_counter()
        verdict, reason = OK, ""
        with silence_output() as lines:
            try:
                self.on(candidate)
            except tuple(VERDICTS) as error:
                verdict, reason = VERDICTS[type(error)], str(error)
        seconds = time.perf_counter() - start
        printed = next((text for line in reversed(lines) if (text := line.strip())), "")
        return CheckResult(self.name, verdict, reason, seconds, printed)


def exemptions_are_of_checks(candidate: Candidate) -> None:
    """Check that each exemption names an existing check, line, condition or number."""
    names = [check.name for check in CHECKS if check.exemptable]
    left = [name for name in candidate.solver.exempt if name not in names]
    lines = (
        typed.exempt_names(candidate) | shrunken.large_numbers_of(candidate)
        if left
        else ()
    )
    for name in left:
        message = (
            f"exempt names {name}, which is none of {', '.join(names)}, and no line, "
            "condition, function or large number of its sources"
        )
        require(without_blanks(name) in lines, message)


CHECKS = (
    Check(declared.declaration),
    Check(exemptions_are_of_checks),
    Check(declared.no_noise_scale_in_the_source),
    Check(declared.wrong_parameters_are_refused),
    Check(typed.private_values_stay_private),
    Check(typed.conditions_come_out_both_ways),
    Check(replay.far_data_change_nothing),
    Check(declared.uses_are_those_declared),
    Check(declared.a_longer_run_is_stopped),
    Check(declared.no_iterations_return_the_start, exemptable=True),
    Check(declared.without_noise_nothing_is_drawn),
    Check(replay.declarations_know_no_data),
    Check(declared.the_noise_is_recounted),
    Check(outside.releases_of_outside_are_measured),
    Check(replay.samples_are_those_charged),
    Check(replay.records_are_read_once),
    Check(repeat.runs_repeat),
    Check(repeat.checkpoints_change_nothing),
    Check(repeat.compiled_steps_agree),
    Check(repeat.batches_change_nothing),
    Check(repeat.public_draws_belong_to_the_trial),
    Check(repeat.draws_are_distinct),
    Check(repeat.noise_is_news_to_the_solver),
    Check(repeat.losers_are_secret),
    Check(repeat.global_random_state_is_untouched),
    Check(replay.replay_audit),
    Check(climb.no_neighbours_move_more),
    Check(replay.sensitivities_are_tight, exemptable=True),
    Check(replay.private_constants_are_audited),
    Check(shrunken.large_numbers_hide_nothing),
    Check(limits.columns_of_zeros_are_harmless, exemptable=True),
    Check(limits.nothing_to_learn_moves_nothing, exemptable=True),
    Check(limits.the_limit_is_reached, exemptable=True),
    Check(limits.served_within_the_budget_or_refused),
    Check(limits.calibrations_are_served),
)
"""All checks, cheap ones first."""
