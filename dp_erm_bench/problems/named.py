"""Build the problem that a spec describes: an empirical risk or another kind."""

from collections.abc import Mapping
from typing import Any, cast

from dp_erm_bench import registry
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import named_in
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm import build
from dp_erm_bench.registry import ERM, OBJECTIVE, PROBLEM

UNSET = ("auto", "none")
"""Values that leave a part of the objective unset."""


def problem_of(spec: Mapping[str, Any]) -> Problem:
    """Return the problem that the spec of a trial, a sweep or a fit describes.

    Parameters
    ----------
    spec : mapping
        `dataset`, with all its keys; `loss`, `penalty`, `constraint`; `problem`, the
        name of its kind, if it is not an empirical risk. Other keys are ignored.

    Raises
    ------
    DataUnavailable
        If the dataset is not on this machine and cannot be fetched.
    UsageError
        For unknown names or wrong values, or a part of an objective that a problem of
        the kind does not have.
    """
    kind = named_in(spec.get(PROBLEM, {"name": ERM}))
    if kind == ERM:
        return build.erm_of_spec(spec)
    made = registry.target(PROBLEM, kind)
    for part in OBJECTIVE:
        given = spec.get(part, "none")
        given = given if isinstance(given, Mapping) else {"name": given}
        if given["name"] not in UNSET or len(given) > 1:
            has = "have no loss, penalty or constraint"
            name = given["name"]
            raise UsageError(f"{part}={name}: problems of {made.kind} {has}")
    return cast(Problem, made.from_dataset(load_dataset(spec["dataset"])))
