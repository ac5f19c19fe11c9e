"""The checks that every algorithm must pass, cheap ones first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dp_erm_bench.contract.base import Check, Outcome
from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.declared import (
    declaration,
    no_noise_scale_in_the_source,
    wrong_parameters_are_refused,
)
from dp_erm_bench.contract.errors import require
from dp_erm_bench.contract.limits import (
    columns_of_zeros_are_harmless,
    nothing_to_learn_moves_nothing,
    the_limit_is_reached,
)
from dp_erm_bench.contract.recounted import the_noise_is_recounted
from dp_erm_bench.contract.repeat import (
    batches_change_nothing,
    checkpoints_change_nothing,
    compiled_steps_agree,
    draws_are_distinct,
    global_random_state_is_untouched,
    noise_is_news_to_the_solver,
    public_draws_belong_to_the_trial,
    runs_repeat,
)
from dp_erm_bench.contract.replay import (
    declarations_know_no_data,
    private_constants_are_audited,
    replay_audit,
    samples_are_those_charged,
    sensitivities_are_tight,
)
from dp_erm_bench.contract.served import (
    calibrations_are_served,
    served_within_the_budget_or_refused,
)
from dp_erm_bench.contract.uses import (
    a_longer_run_is_stopped,
    no_iterations_return_the_start,
    uses_are_those_declared,
    without_noise_nothing_is_drawn,
)


def exemptions_are_of_checks(candidate: Candidate) -> None:
    """Be exempt from checks that there are, if from any."""
    known = [check.name for check in CHECKS if check.exemptable]
    for name in candidate.solver.exempt:
        said = f"exempt names {name}, which is none of {', '.join(known)}"
        require(name in known, said)


CHECKS = (
    Check(declaration),
    Check(exemptions_are_of_checks),
    Check(no_noise_scale_in_the_source),
    Check(wrong_parameters_are_refused),
    Check(uses_are_those_declared),
    Check(a_longer_run_is_stopped),
    Check(no_iterations_return_the_start, exemptable=True),
    Check(without_noise_nothing_is_drawn),
    Check(declarations_know_no_data),
    Check(the_noise_is_recounted),
    Check(samples_are_those_charged),
    Check(runs_repeat),
    Check(checkpoints_change_nothing),
    Check(compiled_steps_agree),
    Check(batches_change_nothing),
    Check(public_draws_belong_to_the_trial),
    Check(draws_are_distinct),
    Check(noise_is_news_to_the_solver),
    Check(global_random_state_is_untouched),
    Check(replay_audit),
    Check(sensitivities_are_tight, exemptable=True),
    Check(private_constants_are_audited),
    Check(columns_of_zeros_are_harmless, exemptable=True),
    Check(nothing_to_learn_moves_nothing, exemptable=True),
    Check(the_limit_is_reached, exemptable=True),
    Check(served_within_the_budget_or_refused),
    Check(calibrations_are_served),
)


def outcomes(
    candidate: Candidate, checks: Sequence[Check] = CHECKS
) -> Iterator[Outcome]:
    """Yield what comes of each check, in order, as soon as it is known."""
    return (check.outcome(candidate) for check in checks)


def check_named(name: str) -> Check:
    """Return a check by its name."""
    (found,) = [check for check in CHECKS if check.name == name]
    return found
