"""Problems from names: the objective that ``auto`` stands for, strengths as 1/n."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Dataset, Usual
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.errors import UsageError
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.losses.declared import check_loss
from dp_erm_bench.penalties.base import Penalty
from dp_erm_bench.plugins.names import named_in
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.registry import OBJECTIVE, build


@dataclass(frozen=True)
class Part:
    """A loss, penalty or constraint by name, with its parameters."""

    name: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, spec: str | Mapping[str, Any]) -> "Part":
        """Read ``'l2'`` or ``{'name': 'l2', 'strength': 0.1}``."""
        if isinstance(spec, str):
            return cls(spec, {})
        if not isinstance(spec, Mapping) or "name" not in spec:
            raise UsageError(f"{spec}: must have a name beside its parameters")
        hidden = ("name", "_target_", "file", "content")
        return cls(named_in(spec), {k: v for k, v in spec.items() if k not in hidden})


def problem_of(spec: Mapping[str, Any]) -> ERMProblem:
    """Return the problem that a spec names, of a trial, a sweep or a single fit.

    Parameters
    ----------
    spec : mapping
        `dataset`, with all its keys, and `loss`, `penalty`, `constraint`; whatever
        else it holds is left alone.

    Raises
    ------
    DataUnavailable
        If the dataset cannot be had.
    UsageError
        For unknown names or wrong values.
    """
    objective = (spec[part] for part in OBJECTIVE)
    return build_problem(load_dataset(spec["dataset"]), *objective)


def build_problem(
    dataset: Dataset,
    loss: str | Mapping[str, Any] | Loss = "auto",
    penalty: str | Mapping[str, Any] | Penalty = "auto",
    constraint: str | Mapping[str, Any] | Constraint = "none",
) -> ERMProblem:
    """Return the problem of a dataset and an objective given by names.

    Parameters
    ----------
    dataset : Dataset
    loss, penalty, constraint : str, mapping, or Loss, Penalty, Constraint
        A name of conf/, a mapping with ``name`` and parameters, or an object; a loss
        may be a file.
        ``auto`` stands for the dataset's usual objective.

    Raises
    ------
    UsageError
        For unknown names, wrong parameters or labels, a loss of one's own that is not
        what it says, or where ``auto`` has no
        meaning.
    """
    if not isinstance(loss, Loss):
        part = _resolved(Part.of(loss), "loss", dataset)
        loss = cast(Loss, build("loss", part.name, **part.parameters))
        check_loss(loss)
    if not isinstance(penalty, Penalty):
        penalty = _penalty(_resolved(Part.of(penalty), "penalty", dataset), dataset)
    if not isinstance(constraint, Constraint):
        part = Part.of(constraint)
        constraint = cast(Constraint, build("constraint", part.name, **part.parameters))
    return ERMProblem(dataset, loss, penalty, constraint)


def strength_of(value: float | str, n: int) -> float:
    """Return a strength as a number; ``'1/n'`` is the inverse of n records."""
    if isinstance(value, str) and value.replace(" ", "") == "1/n":
        return 1.0 / n
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"penalty.strength={value}: must be a number >= 0, '1/n' or 'auto'"
        ) from None


def _usual(key: str, dataset: Dataset) -> Usual:
    if dataset.usual is None:
        raise UsageError(
            f"{key}=auto: dataset {dataset.name} names no usual objective; name a {key}"
        )
    return dataset.usual


def _resolved(part: Part, group: str, dataset: Dataset) -> Part:
    if part.name != "auto":
        return part
    usual = _usual(group, dataset)
    return Part(usual.loss if group == "loss" else usual.penalty, part.parameters)


def _penalty(part: Part, dataset: Dataset) -> Penalty:
    given = dict(part.parameters)
    strength = given.pop("strength", "auto")
    if hasattr(build("penalty", part.name), "strength"):
        if strength == "auto":
            strength = _usual_strength(part.name, dataset)
        given["strength"] = strength_of(strength, dataset.n)
    elif strength != "auto":
        given["strength"] = strength  # refused, as a parameter that it has not
    return cast(Penalty, build("penalty", part.name, **given))


def _usual_strength(name: str, dataset: Dataset) -> float | str:
    usual = dataset.usual
    if usual is None or usual.penalty != name:
        raise UsageError(
            f"penalty.strength=auto: dataset {dataset.name} has no usual strength for "
            f"penalty {name}; give penalty.strength"
        )
    return usual.strength
