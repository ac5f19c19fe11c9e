"""Build the parts of a trial: its problem, and its algorithm with typed parameters."""

import dataclasses
import functools
import json
import math
import typing
from collections.abc import Collection, Mapping
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.datasets.load import source_of
from dp_erm_bench.datasets.spec import LATER, dataset_spec, usual_fields
from dp_erm_bench.errors import Unsupported, UsageError, value_error
from dp_erm_bench.experiment.schema import (
    canonical_json,
    convert_value,
    plain_parameter,
)
from dp_erm_bench.paths import digests_in, later_defaults
from dp_erm_bench.plugins.names import is_file, is_pinned, label_of, named_in
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.registry import ALGORITHM, AUTO, ERM, OBJECTIVE, PROBLEM

FILE = "file"
"""Name of the dataset that reads a user's own file."""


def problem_named(
    dataset: str, overrides: Mapping[str, Any], *objective: Any, kind: str = ERM
) -> Problem:
    """Return the problem of a dataset with overrides and an objective, from a cache.

    Parameters
    ----------
    dataset : str
        Name of the dataset's yaml.
    overrides : mapping
        Keys of the yaml to replace.
    *objective : str or mapping
        Loss, penalty and constraint, as for `build_problem`.
    kind : str
        Name of the kind of the problem.

    Raises
    ------
    DataUnavailable
        If the dataset is not available.
    UsageError
        If a name or a value is not allowed.
    """
    for part in objective:
        check_named(part if isinstance(part, Mapping) else {"name": part})
    parts = (kind, dataset, dict(overrides), *objective)
    text = json.dumps(parts, sort_keys=True, default=str)
    # The text names the paths of files, but their contents count, too.
    return _problem_of(
        text, source_of(dataset_spec(dataset, **overrides)), *digests_in(objective)
    )


@functools.cache
def _problem_of(text: str, *contents: str) -> Problem:
    kind, name, overrides, *parts = json.loads(text)
    objective = dict(zip(OBJECTIVE, parts, strict=True))
    return own_problem(name, overrides, objective, kind)


def own_problem(
    name: str,
    overrides: Mapping[str, Any],
    objective: Mapping[str, Any],
    kind: str = ERM,
) -> Problem:
    """Return the problem of a dataset's yaml, overrides and an objective.

    The loss of a regression implies ``task=regression`` for a user's own file, unless
    the task, the classes or the positive labels are given.

    Parameters
    ----------
    name : str
        Name of the dataset.
    overrides : mapping
        Keys of the yaml to replace.
    objective : mapping
        Choices of loss, penalty and constraint.
    kind : str
        Name of the kind of problem.

    Raises
    ------
    DataUnavailable, UsageError
        As for `problem_named`. The message names an implied task.
    """
    # Workers import this module for their trials. Importing the module that builds
    # problems takes as long again, and trials without a problem do not need it.
    from dp_erm_bench.problems.named import problem_of

    implied, spec = "", dict(overrides)
    posed = {PROBLEM: {"name": kind}, **objective}
    loss = objective["loss"]
    loss = loss if isinstance(loss, str) else named_in(loss)
    labels = (spec.get(key) for key in ("positive", "classes"))
    given = "task" in spec or any(one is not None for one in labels)
    own = kind == ERM and name.partition(":")[0] == FILE
    if own and loss != "auto" and not given:
        if not registry.target("loss", loss).classification:
            spec["task"] = "regression"
            implied = f" (loss={label_of(loss)} implies dataset.task=regression)"
    try:
        return problem_of({"dataset": dataset_spec(name, **spec), **posed})
    except UsageError as error:
        raise type(error)(f"{error}{implied}") if implied else error from None


def check_named(part: Mapping[str, Any], group: str = "loss") -> None:
    """Raise UsageError if a spec refers to a file that the user has not named.

    The spec may come from an untrusted folder.

    Raises
    ------
    UsageError
        If the file was not named in this process, or had other content.
    """
    name = named_in(part)
    if is_file(name) and not is_pinned(name):
        kind = "solver" if group == ALGORITHM else group
        raise UsageError(
            f"{group}={label_of(name)}: is a {kind}'s file that was not named here "
            "with "
            "what it held"
        )


def overrides_of(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of a dataset's yaml, with numbers converted to the types used there.

    Raises
    ------
    UsageError
        If the dataset or a key does not exist, or a value has another type.
    """
    usual = usual_of(name, fields)
    return {k: convert_like(f"dataset.{k}", v, usual.get(k)) for k, v in fields.items()}


def usual_of(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataset's yaml, completed by `fields` for keys that it does not have."""
    return dataset_spec(name, **fields) | LATER | usual_fields(name)


def convert_like(key: str, value: Any, usual: Any) -> Any:
    """Return a value, converted to a number if the key's usual value is a number.

    Parameters
    ----------
    key : str
        Dotted key, for the message.
    value : Any
        The value to convert; None stays None.
    usual : Any
        Value of the key in the yaml.
    """
    numeric = type(usual) in (int, float) and value is not None
    return convert_value(key, value, type(usual)) if numeric else value


@dataclasses.dataclass(frozen=True, eq=False)
class Algorithm:
    """An algorithm's yaml and class, looked up once per process.

    Attributes
    ----------
    name, target : str
        Name of the algorithm, and the dotted name of its class or the pin (path and
        digest) of its file.
    preset : mapping
        The parameters in the yaml, without those that are `auto`.
    cls : type
        The class of the algorithm.
    kinds, hints : mapping
        Kind and type of each parameter. The kind is `shape` (equal within a batch),
        `value` (may differ) or None.
    later : mapping
        Parameters that are part of an identity only if they differ from these defaults.
    rule : Rule or None
        The rule that computes parameters that are `auto` (`rules.settings`).
    by_default : tuple of str
        The parameters that are `auto` if they are not given.
    separate : bool
        Whether the class checks each parameter separately and does not change it. A
        value that passed once then passes in every combination.
    """

    name: str
    target: str
    preset: Mapping[str, Any]
    cls: Any
    kinds: Mapping[str, str | None]
    hints: Mapping[str, Any]
    later: Mapping[str, Any]
    rule: Any
    by_default: tuple[str, ...]
    separate: bool

    def solver(self, params: Mapping[str, Any]) -> Any:
        """Return the solver with parameters that `normalise_parameter` has typed.

        Raises
        ------
        UsageError
            If the solver refuses a value; the message says what is allowed.
        """
        try:
            return self.cls(**{**self.preset, **params})
        except UsageError as error:
            own = str(error).partition("=")[0] in self.kinds
            where = f"algorithm.{self.name}." * own
            raise type(error)(f"{where}{error}") from None

    def full(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters of the solver in a form for JSON, sorted by name."""
        solver = self.solver(params)
        return {
            key: plain_parameter(getattr(solver, key)) for key in sorted(self.kinds)
        }

    def entry(self, parameter: str, value: Any) -> str:
        """Return a parameter as JSON; empty if it is in `later` and has its default."""
        later = parameter in self.later and value == self.later[parameter]
        return "" if later else f"{canonical_json(parameter)}:{canonical_json(value)}"

    def shares(self, parameter: str) -> bool:
        """Return whether a parameter must be the same in all trials of a batch."""
        return self.kinds[parameter] != "value"

    def is_ruled(self, parameter: str, value: Any) -> bool:
        """Return whether a value is `auto`, for a parameter that a rule computes."""
        ruled = self.rule is not None and parameter in self.rule.meanings
        return ruled and isinstance(value, str) and value == AUTO

    def limits(self, parameter: str) -> tuple[float, float, float]:
        """Return a parameter's limits `least`, `above`, `most`; infinite if not set."""
        field = self.cls.__dataclass_fields__[parameter].metadata
        least, above = (field.get(name, -math.inf) for name in ("least", "above"))
        return least, above, field.get("most", math.inf)

    def iterations(self, params: Mapping[str, Any], problem: Any) -> int:
        """Return the number of iterations of one trial; 0 if the trial is refused."""
        try:
            return int(self.solver(params).iterations(problem))
        except (Unsupported, OverflowError):
            return 0


@functools.cache
def algorithm_of(name: str) -> Algorithm:
    """Return the `Algorithm` with a name, or with the pin of a solver's file."""
    # Imported here because the command line must start without numpy.
    from dp_erm_bench.rules.settings import rule_of
    from dp_erm_bench.solvers.base import Solver

    preset = registry.read_choice(ALGORITHM, name)
    target = preset.pop("_target_")
    cls = registry.target(ALGORITHM, name)
    rule = rule_of(label_of(name), cls)
    by_default = [key for key, value in preset.items() if value == AUTO]
    if rule is not None and name not in registry.built_in(ALGORITHM):
        by_default = [*rule.meanings]
    fields = [field for field in dataclasses.fields(cls) if field.init]
    hints = typing.get_type_hints(cls)
    return Algorithm(
        label_of(name),
        target,
        registry.without_rules(preset),
        cls,
        kinds={field.name: field.metadata.get("kind") for field in fields},
        hints={field.name: hints[field.name] for field in fields},
        later={
            key: plain_parameter(value) for key, value in later_defaults(cls).items()
        },
        rule=rule,
        by_default=tuple(by_default),
        separate=getattr(cls, "__post_init__", None) is Solver.__post_init__,
    )


def normalise_parameter(algorithm: str, parameter: str, value: Any) -> Any:
    """Return a parameter's value in the type of its field, as 1.0 for 1 in floats.

    Parameters
    ----------
    algorithm : str
        Name of the algorithm, or the pin of a solver's file.
    parameter : str
        Name of the parameter.
    value : Any
        The value as given; `auto` is kept if a rule computes the parameter.

    Raises
    ------
    UsageError
        If the algorithm has no such parameter, if the value has a wrong type, or for
        `auto` if no rule computes the parameter.
    """
    check_parameter(algorithm, parameter)
    key = f"algorithm.{label_of(algorithm)}.{parameter}"
    found = algorithm_of(algorithm)
    if found.is_ruled(parameter, value):
        return AUTO
    own = found.cls.__dataclass_fields__[parameter].metadata.get("choices", ())
    if isinstance(value, str) and value == AUTO and AUTO not in own:
        raise UsageError(f"{key}=auto: no rule gives it, it must be a value")
    hint = found.hints[parameter]
    if found.is_ruled(parameter, AUTO):
        hint |= typing.Literal["auto"]
    return convert_value(key, value, hint)


def with_defaults(
    algorithm: str, given: Mapping[str, Any], also: Collection[str] = ()
) -> dict[str, Any]:
    """Return the parameters, with `auto` for those that a rule computes unless given.

    If a length of a run is given, such as `passes`, the other lengths are left out.

    Parameters
    ----------
    algorithm : str
        Name of the algorithm, or the pin of a solver's file.
    given : mapping
        The given parameters.
    also : collection of str
        Names of parameters that are set elsewhere.
    """
    told = {*given, *also}
    one = {*LENGTHS} & told
    usual = [
        key
        for key in algorithm_of(algorithm).by_default
        if key not in told and not (one and key in LENGTHS)
    ]
    return {**given, **dict.fromkeys(usual, AUTO)}


def by_rule(
    algorithm: str,
    given: Mapping[str, Any],
    problem: Any,
    budget: Mapping[str, Any],
    also: Collection[str] = (),
) -> tuple[dict[str, Any], str]:
    """Return parameters with numbers in place of `auto`, and the rule that gave them.

    Rules are applied only here, before a trial has a key. If no clipping threshold is
    given or computed, the threshold of `default_clip` is used.

    Parameters
    ----------
    algorithm : str
        Name of the algorithm, or the pin of a solver's file.
    given : mapping
        Parameters, typed by `normalise_parameter`.
    problem : Problem
        The problem, of which only public numbers are read.
    budget : mapping
        `epsilon`, `delta`, `adjacency`.
    also : collection of str
        Parameters that are given elsewhere.

    Returns
    -------
    dict, str
        The parameters; and the version of the rule with the names of the parameters
        that it gave, as in `gd-3: n_iter step`, or an empty string if it gave none.
        Version 0 means `default_clip` alone.

    Raises
    ------
    UsageError
        If a parameter is `auto` and a given value is not allowed.
    """
    found = algorithm_of(algorithm)
    rule, fields = found.rule, found.cls.__dataclass_fields__
    open_ = [key for key, value in given.items() if found.is_ruled(key, value)]
    others = {key: value for key, value in given.items() if key not in open_}
    numbers: Mapping[str, Any] = {}
    if open_:
        found.solver(others)  # check given values before a rule computes with them
        numbers = _numbers_of_rule(found, others, problem, budget)
    asked = "clip" not in also and given.get("clip", AUTO) == AUTO
    if asked and "clip" not in numbers:
        clip = _default_clip(found, problem, budget)
        if clip is not None:
            whole = {**given, "clip": clip}
            filled, told = by_rule(algorithm, whole, problem, budget)
            return filled, f"{told or f'{label_of(algorithm)}-0:'} clip"
    if not open_:
        return dict(given), ""
    usual = {key: found.preset.get(key, fields[key].default) for key in open_}
    values = {key: numbers.get(key, usual[key]) for key in open_}
    filled = {
        key: normalise_parameter(algorithm, key, value) for key, value in values.items()
    }
    named = " ".join(sorted({*open_} & {*numbers}))
    told = f"{label_of(algorithm)}-{rule.version}: {named}" if named else ""
    return {**given, **filled}, told


def _numbers_of_rule(
    algorithm: Algorithm,
    given: Mapping[str, Any],
    problem: Any,
    budget: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the parameters that a rule computes; empty if public numbers are missing.

    Public numbers are missing if no public bound gives a scale, or if the problem is
    refused.
    """
    if problem.kind != algorithm.cls.serves.kind or not hasattr(problem, "loss"):
        return {}
    from dp_erm_bench.accounting.budget import Budget
    from dp_erm_bench.rules.public import public_numbers

    given = {k: v for k, v in given.items() if v is not None or k not in LENGTHS}
    public = public_numbers(problem, Budget(**budget), given.get("clip"))
    return algorithm.rule.settings(public, given) if public is not None else {}


def _default_clip(
    algorithm: Algorithm, problem: Any, budget: Mapping[str, Any]
) -> float | None:
    """Return the default clipping threshold; None if no default is needed.

    No default is needed without noise, if another bound exists, if the algorithm has no
    threshold, or if its yaml sets the threshold.
    """
    field = algorithm.cls.__dataclass_fields__.get("clip")
    if field is None or algorithm.preset.get("clip", field.default) is not None:
        return None
    noisy = math.isfinite(float(budget["epsilon"])) and hasattr(problem, "loss")
    if not noisy or problem.kind != algorithm.cls.serves.kind:
        return None
    from dp_erm_bench.rules.settings import default_clip

    return default_clip(algorithm.name, problem)


EPSILONS = 1e-60, 1e60
"""Smallest and largest finite epsilon of a budget.

The noise for a fraction of such a budget is still a finite number.
"""


def check_epsilon(epsilon: float) -> None:
    """Raise UsageError for an epsilon for which no noise can be computed."""
    least, most = EPSILONS
    if not (least <= epsilon <= most or epsilon == math.inf):
        raise value_error("epsilon", epsilon, f"from {least:g} to {most:g}, or inf")


LENGTHS = ("passes", "n_epochs", "n_iter")
"""Parameters that set the length of a run; one that is None does not set it."""


def check_lengths(algorithm: str, given: Mapping[str, Any]) -> None:
    """Raise UsageError if two parameters set the length of a run.

    ``given`` contains a value, or a list of values, for each parameter.
    """
    fields = algorithm_of(algorithm).cls.__dataclass_fields__
    said = [key for key in LENGTHS if key in fields and given.get(key) is not None]
    said = [key for key in said if given[key] != [None]]
    for key in said[1:]:
        if fields[key].default is None:
            raise UsageError(
                f"algorithm.{label_of(algorithm)}.{key}: stands in place of {said[0]}, "
                "which is given, too; give one of them"
            )


def check_parameter(algorithm: str, parameter: str) -> None:
    """Raise UsageError if an algorithm has no such parameter."""
    allowed = sorted(algorithm_of(algorithm).hints)
    registry.check_choice(f"parameter of {label_of(algorithm)}", parameter, allowed)
