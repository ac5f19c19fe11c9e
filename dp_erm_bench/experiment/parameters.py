"""Parameters of an algorithm: typed by its own dataclass, filled in, made JSON-able."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

from dp_erm_bench import registry
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.paths import later_defaults, spelled
from dp_erm_bench.plugins.names import label

PER_ITERATION = 100.0
PER_FEATURE = 10.0


@dataclasses.dataclass(frozen=True, eq=False)
class Algorithm:
    """An algorithm with all parameters, and what batching must know of it.

    Attributes
    ----------
    name, target : str
        What it is called; dotted name of its class, or the pin of its file.
    given : mapping
        The parameters given, normalised.
    full : mapping
        All parameters, JSON-able.
    shape : mapping
        Those that must be equal within a batch.
    batchable : bool
        Whether several trials may run at once.
    solver : Solver
        The object itself.
    """

    name: str
    target: str
    given: Mapping[str, Any]
    full: Mapping[str, Any]
    shape: Mapping[str, Any]
    batchable: bool
    solver: Any

    def work(self, problem: Any) -> float:
        """Return the rough cost of one trial, about 1e8 a second.

        The records read, in numbers, and what an iteration costs by itself: many
        cheap iterations (batches of one record) take longer than their passes say.
        """
        try:
            iterations = self.solver.iterations(problem)
            passes = self.solver.passes_at(problem, iterations)
        except Unsupported:
            return 0.0
        except OverflowError:
            raise UsageError(
                f"algorithm.{self.name}: asks for more iterations than can be counted"
            ) from None
        step = PER_ITERATION + PER_FEATURE * problem.p
        return float(passes * problem.n * problem.p + iterations * step)

    def iterations(self, problem: Any) -> int:
        """Return the number of iterations of one trial, 0 if it is refused."""
        try:
            return int(self.solver.iterations(problem))
        except (Unsupported, OverflowError):
            return 0


def algorithm_of(name: str, given: Mapping[str, Any]) -> Algorithm:
    """Return an algorithm with parameters that `normalised` has typed.

    Raises
    ------
    UsageError
        From the solver's own check, naming the value and what is allowed.
    """
    known = known_algorithm(name)
    solver = known.made(**{**known.preset, **given})
    full = {key: plain(getattr(solver, key)) for key in known.kinds}
    return Algorithm(
        name=label(name),
        target=known.target,
        given={key: plain(value) for key, value in given.items()},
        full=full,
        shape={key: full[key] for key, kind in known.kinds.items() if kind != "value"},
        batchable=getattr(solver, "batchable", True),
        solver=solver,
    )


class Known(NamedTuple):
    """An algorithm's yaml and class, looked up once per process.

    `separate` tells whether its class checks each parameter by itself and changes
    none, so that a value that passed once passes in every combination. `later` has
    the defaults of parameters that enter an identity only off them.
    """

    target: str
    preset: dict[str, Any]
    made: Any
    kinds: dict[str, str | None]
    hints: dict[str, Any]
    separate: bool
    later: dict[str, Any]


@functools.cache
def known_algorithm(algorithm: str) -> Known:
    """Return the yaml and the class of an algorithm, of a file by its pin."""
    # Not at the top: the command line must start without numpy.
    from dp_erm_bench.solvers.base import Solver

    preset = registry.read("algorithm", algorithm)
    target = preset.pop("_target_")
    made = registry.target("algorithm", algorithm)
    fields = [f for f in dataclasses.fields(made) if f.init]
    hints = typing.get_type_hints(made)
    check = getattr(made, "__post_init__", None)
    return Known(
        target,
        preset,
        made,
        {f.name: f.metadata.get("kind") for f in fields},
        {f.name: hints[f.name] for f in fields},
        check is Solver.__post_init__,
        {key: plain(value) for key, value in later_defaults(made).items()},
    )


def normalised(algorithm: str, parameter: str, value: Any) -> Any:
    """Return a parameter's value in the type of its field, so that 1 is 1.0.

    Raises
    ------
    UsageError
        If the algorithm has no such parameter or the value is of no allowed type.
    """
    check_parameter(algorithm, parameter)
    key = f"algorithm.{label(algorithm)}.{parameter}"
    return typed(key, value, known_algorithm(algorithm).hints[parameter])


def check_parameter(algorithm: str, parameter: str) -> None:
    """Raise UsageError if an algorithm has no such parameter."""
    allowed = sorted(known_algorithm(algorithm).hints)
    registry.check_choice(f"parameter of {label(algorithm)}", parameter, allowed)


def typed(key: str, value: Any, hint: Any) -> Any:
    """Return a value converted to a type hint, or refuse it in one sentence."""
    options = typing.get_args(hint) if _is_union(hint) else (hint,)
    for option in sorted(options, key=lambda o: o is not type(value)):
        try:
            return _converted(value, option)
        except (TypeError, ValueError):
            continue
    allowed = ", ".join(word for option in options for word in _words(option))
    raise UsageError(f"{key}={value}: must be {allowed}")


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _converted(value: Any, hint: Any) -> Any:
    if hint is float:
        return _float(value)
    if hint is int:
        return _int(value)
    if typing.get_origin(hint) is typing.Literal:
        return _member(value, typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if hint in (bool, str, types.NoneType) and not isinstance(value, hint):
        raise TypeError
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or math.isnan(number := float(value)):
        raise TypeError
    return number


def _int(value: Any) -> int:
    number = _float(value)
    if not number.is_integer():
        raise TypeError
    return value if isinstance(value, int) else int(number)


def _member(value: Any, allowed: tuple[Any, ...]) -> Any:
    for member in allowed:
        if type(member) is type(value) and member == value:
            return value
    raise TypeError


def _words(hint: Any) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(word) for word in typing.get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [str(member.value) for member in hint]
    known = {int: "an integer", float: "a number", bool: "true or false"}
    known |= {str: "a word", types.NoneType: "null"}
    return [known.get(hint, str(hint))]


def plain(value: Any) -> Any:
    """Return a parameter's value as JSON can spell it."""
    if type(value) in (str, int, bool, types.NoneType):
        return value
    return spelled(value.value if isinstance(value, enum.Enum) else value)
