"""What a solver's class must say of itself, whoever wrote it."""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from dp_erm_bench.solvers.base import Solver

KINDS = ("shape", "value")
MUTABLE = (list, dict, set, bytearray, np.ndarray)


def complaint(solver: Any) -> str | None:
    """Return what is wrong with a solver's class, None if it is complete."""
    return next(_complaints(solver), None)


def _complaints(solver: Any) -> Iterator[str]:
    if not (isinstance(solver, type) and issubclass(solver, Solver)):
        yield f"{solver} is no subclass of Solver"
        return
    name = solver.__name__
    if "__dataclass_params__" not in vars(solver):
        yield f"{name} must be a dataclass; write @dataclass(frozen=True) above it"
    missing = sorted(getattr(solver, "__abstractmethods__", ()))
    if missing:
        yield f"{name} lacks {', '.join(missing)}"
    if "References" not in (inspect.getdoc(solver) or ""):
        yield f"{name} needs a docstring with a section References"
    yield from _parameters(solver)
    yield from _state(solver)
    yield from _exemptions(solver)


def _parameters(solver: type[Solver]) -> Iterator[str]:
    for field in dataclasses.fields(solver):
        if field.metadata.get("kind") not in KINDS or not field.metadata.get("help"):
            yield (
                f"parameter {field.name} of {solver.__name__} must be made by "
                "shape(...) or value(...), with help"
            )


def _state(solver: type[Solver]) -> Iterator[str]:
    for name, kept in vars(solver).items():
        ours = name in vars(Solver) or name.startswith("__")
        if isinstance(kept, MUTABLE) and not ours:
            kind = type(kept).__name__
            yield (
                f"{solver.__name__}.{name} is a {kind}, which runs could change; a "
                "solver holds parameters only"
            )


def _exemptions(solver: type[Solver]) -> Iterator[str]:
    for check, reason in solver.exempt.items():
        if not isinstance(reason, str) or len(reason.split()) < 3:
            yield f"{solver.__name__}.exempt[{check!r}] must give a reason in words"
