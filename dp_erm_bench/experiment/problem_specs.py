"""What trials are about: a dataset and an objective, digested once per process."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

from dp_erm_bench.datasets.load import forget_datasets
from dp_erm_bench.datasets.spec import dataset_spec, usual_fields
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.parameters import typed
from dp_erm_bench.plugins.names import is_file, label, named_in
from dp_erm_bench.plugins.sources import is_pinned
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.build import problem_of
from dp_erm_bench.registry import ALGORITHM, OBJECTIVE


@dataclasses.dataclass(frozen=True, eq=False)
class ProblemSpec:
    """A problem as a trial sees it, of a sweep or of a single fit.

    Parameters
    ----------
    problem : Problem
        The problem itself.
    """

    problem: Problem

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """Return `dataset`, `loss`, `penalty`, `constraint` of a trial's spec."""
        return self.problem.spec

    @cached_property
    def digest(self) -> str:
        """Return the digest of the dataset's content, its spec and the objective."""
        return self.problem.identity

    @cached_property
    def gradient_rms(self) -> float:
        """Return the unit of clipping thresholds, to 12 digits.

        Rounded because sums differ in the last bits with the number of threads,
        which must not change a key.
        """
        return float(f"{self.problem.gradient_rms:.12g}")


def problem_spec_of(
    dataset: str, overrides: Mapping[str, Any], *objective: Any
) -> ProblemSpec:
    """Return the problem of a dataset with overrides and of an objective.

    Parameters
    ----------
    dataset : str
        Name of its yaml.
    overrides : mapping
        Keys of the yaml to replace.
    *objective : str or mapping
        Loss, penalty, constraint as `build_problem` takes them.

    Raises
    ------
    DataUnavailable
        If the dataset cannot be had.
    UsageError
        If a name or a value is not allowed.
    """
    for part in objective:
        check_named(part if isinstance(part, Mapping) else {"name": part})
    parts = (dataset, dict(overrides), *objective)
    return _problem_spec(json.dumps(parts, sort_keys=True, default=str))


def check_named(part: Mapping[str, Any], group: str = "loss") -> None:
    """Refuse the spec of a user's file that the user did not name here.

    A spec may be that of a folder from anywhere.

    Raises
    ------
    UsageError
        If it is of a file that was not named, or that held something else.
    """
    name = named_in(part)
    if is_file(name) and not is_pinned(name):
        kind = "solver" if group == ALGORITHM else group
        raise UsageError(
            f"{group}={label(name)}: is a {kind}'s file that was not named here with "
            "what it held"
        )


def forget_problems() -> None:
    """Have the next call of `problem_spec_of` look at the data again."""
    forget_datasets()
    _problem_spec.cache_clear()


@cache
def _problem_spec(text: str) -> ProblemSpec:
    name, overrides, *objective = json.loads(text)
    spec = {"dataset": dataset_spec(name, **overrides)}
    return ProblemSpec(problem_of(spec | dict(zip(OBJECTIVE, objective, strict=True))))


def overrides_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of a dataset's yaml, numbers in the types that it gives them.

    Raises
    ------
    UsageError
        If the dataset or a key does not exist, or a value has another type.
    """
    usual = usual_of(name, given)
    return {k: like(f"dataset.{k}", v, usual.get(k)) for k, v in given.items()}


def usual_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataset's yaml, and what is given for keys that are not in it."""
    return dataset_spec(name, **given) | usual_fields(name)


def like(key: str, value: Any, usual: Any) -> Any:
    """Convert a number to the type that the yaml gives the key."""
    numeric = type(usual) in (int, float) and value is not None
    return typed(key, value, type(usual)) if numeric else value
