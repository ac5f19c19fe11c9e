"""Resolve `algorithm=auto`, and warn about default settings that may not help."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.code_identity import is_ours
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.lines import FitLine, Line, refusal_of_algorithm
from dp_erm_bench.experiment.parameters import algorithm_of, by_rule, with_defaults
from dp_erm_bench.plugins.names import label_of
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.registry import AUTO
from dp_erm_bench.rules.advice import (
    expects_nothing,
    forecast,
    is_good,
    rank_rules,
    sufficient_n,
)
from dp_erm_bench.rules.public import PublicNumbers, public_numbers

USUAL, OTHERWISE = "gd", "sgd"
"""The algorithms that `auto` chooses in special cases.

The first algorithm is used without noise, or if no public bound gives a scale. The
second is used if all ranked algorithms refuse the problem, as for a loss with a kink.
"""


def resolve_auto(
    problem: Problem, budget: Mapping[str, Any], given: Iterable[str] = ()
) -> tuple[str, dict[str, Any]]:
    """Return the algorithm and parameters that `auto` chooses for a problem and budget.

    The algorithm is expected to be the best of those that accept the problem, and its
    parameters come from its rule. If w = 0 is expected to be as good, the algorithm is
    gd with no steps. Then no noise is drawn, and no budget is spent.

    Parameters
    ----------
    problem : Problem
        The problem, of which only public numbers are used.
    budget : mapping
        `epsilon`, `delta` and `adjacency`.
    given : iterable of str
        Names of parameters that the user gave; there must be none.

    Raises
    ------
    UsageError
        If parameters are given, or the problem is not empirical risk minimisation.
    """
    if keys := ", ".join(given):
        raise UsageError(f"algorithm=auto: takes no parameters; name one for {keys}")
    if not isinstance(problem, ERMProblem):
        raise UsageError(
            f"algorithm=auto: is for {ERMProblem.kind}, not {problem.kind}"
        )
    name, nothing = _choose(problem, budget)
    return name, {**with_defaults(name, {}), **({"n_iter": 0} if nothing else {})}


def _choose(problem: ERMProblem, budget: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the algorithm expected to be best, and whether w = 0 is as good."""
    public = _public_of(problem, budget)
    if public is None or not (public.bounded and 0.0 < public.mu < math.inf):
        return USUAL, False
    for one in rank_rules(public):
        if not _is_refused(one.algorithm, problem, budget):
            has_zero = not problem.constraint.project(np.zeros((1, problem.p))).any()
            nothing = has_zero and expects_nothing(public, one)
            return (USUAL if nothing else one.algorithm), nothing
    return (USUAL if _is_refused(OTHERWISE, problem, budget) else OTHERWISE), False


def _is_refused(name: str, problem: Problem, budget: Mapping[str, Any]) -> bool:
    numbers, _ = by_rule(name, with_defaults(name, {}), problem, budget)
    found = algorithm_of(name)
    return bool(refusal_of_algorithm(found, numbers, problem, budget, "certified"))


def _public_of(problem: Any, budget: Mapping[str, Any]) -> PublicNumbers | None:
    if not isinstance(problem, ERMProblem):
        return None
    return public_numbers(problem, Budget(**budget), None)


def untuned_sentence(line: Line) -> str:
    """Return a warning about settings that the user did not give; empty if not needed.

    If a rule sets them, the warning says that the run is expected to end no better than
    w = 0. Otherwise it says that no rule sets them.
    """
    if not isinstance(line, FitLine) or line.axes or line.tune is not None:
        return ""
    found, public = algorithm_of(line.algorithm), _public_of(line.problem, line.budget)
    if public is None or not 0.0 < public.mu < math.inf or not is_ours(found.cls):
        return ""
    options = line.problem, line.budget, line.calibration
    told = _sentence_on(line, public)
    return "" if told and refusal_of_algorithm(found, line.params, *options) else told


def _sentence_on(line: FitLine, public: PublicNumbers) -> str:
    name, found = label_of(line.algorithm), algorithm_of(line.algorithm)
    where = f"n={public.n}, p={public.p}, epsilon={public.epsilon:g}"
    if line.params.get("n_iter") == 0:
        assert isinstance(line.problem, ERMProblem)  # has public numbers
        if not _choose(line.problem, line.budget)[1]:
            return ""
        more = sufficient_n(public, Budget(**line.budget), USUAL)
        enough = f"; about n={more} would do better" if more else ""
        return f"{where}: w = 0 is expected to be as good as any rule{enough}"
    ruled = {*line.rule.partition(": ")[2].split()}
    own = {
        *(
            found.rule.meanings
            if found.rule
            else registry.read_tune(name).get("axes", ())
        )
    }
    usual = found.full({})
    if any(line.params.get(key, usual[key]) != usual[key] for key in own - ruled):
        return ""
    if found.rule and found.rule.gives(public) and is_good(public.kind, name):
        expected = forecast(name, public)
        if (
            not own <= ruled
            or expected is None
            or not expects_nothing(public, expected)
        ):
            return ""
        return f"algorithm={name}: is expected to end no better than w = 0 ({where})"
    give = f"give {', '.join(sorted(own))}, " if own else ""
    return (
        f"algorithm={name}: no rule of its settings may be a default for such a "
        f"problem; it may end above w = 0. Tune, {give}or take algorithm={AUTO}"
    )
