"""The requirements on the class of every solver, of the package or from outside."""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from dp_erm_bench.solvers.base import Solver

KINDS = ("shape", "value")
MUTABLE = (list, dict, set, bytearray, np.ndarray)


def complaint(solver: Any) -> str | None:
    """Return the first requirement that a solver's class misses, None if it has all."""
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
    for field in dataclasses.fields(solver):
        if field.metadata.get("kind") not in KINDS or not field.metadata.get("help"):
            yield (
                f"parameter {field.name} of {name} must be made by shape(...) or "
                "value(...), with help"
            )
    for key, member in vars(solver).items():
        ours = key in vars(Solver) or key.startswith("__")
        if isinstance(member, MUTABLE) and not ours:
            yield (
                f"{name}.{key} is a {type(member).__name__}, which runs could change; "
                "a solver holds parameters only"
            )
    for check, reason in solver.exempt.items():
        if not isinstance(reason, str) or len(reason.split()) < 3:
            yield f"{name}.exempt[{check!r}] must give a reason in words"
