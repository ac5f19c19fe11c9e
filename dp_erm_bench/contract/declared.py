"""Checks of what an algorithm says of itself, without running it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.errors import require
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.sources import sources
from dp_erm_bench.solvers.declared import complaint

FORBIDDEN = {"epsilon", "delta", "sigma", "Budget", "calibrate"}
"""Names of a budget or a noise scale: a solver declares, and is calibrated outside."""


def declaration(candidate: Candidate) -> None:
    """Be a frozen dataclass with described parameters and References."""
    lacking = complaint(candidate.solver)
    require(lacking is None, str(lacking))
    solver = candidate.build()
    name = next(iter(candidate.parameters))
    try:
        setattr(solver, name, getattr(solver, name))
    except dataclasses.FrozenInstanceError:
        return
    require(False, f"parameter {name} can be changed: the dataclass is not frozen")


def no_noise_scale_in_the_source(candidate: Candidate) -> None:
    """Name no budget and no noise scale in the source."""
    path = inspect.getfile(candidate.solver)
    for module, file in sources(path).items():
        found = sorted(_names(ast.parse(file.read_bytes())) & FORBIDDEN)
        words = ", ".join(found)
        require(not found, f"module {module} names {words}: noise is fixed outside")
    for name in candidate.parameters:
        known = any(word.lower() in name for word in FORBIDDEN)
        require(not known, f"parameter {name} is a budget or a noise scale")


def _names(tree: ast.AST) -> set[str]:
    """Return every name in a source, imported ones and arguments among them."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case ast.alias(name=name):
                found.add(name.rpartition(".")[2])
    return found


def wrong_parameters_are_refused(candidate: Candidate) -> None:
    """Refuse parameters of a wrong type or out of range in one sentence."""
    for name, field in candidate.parameters.items():
        for given in _wrong(field):
            told = f"parameter {name}={given}"
            try:
                candidate.build(**{name: given})
            except UsageError as error:
                said = str(error)
                fits = said.startswith(f"{name}={given}: must be ") and "\n" not in said
                require(fits, f"{told} is refused with: {said}")
            else:
                require(False, f"{told} is accepted")


def _wrong(field: dataclasses.Field[Any]) -> Iterator[Any]:
    limits = field.metadata
    yield from (object(), [1], float("nan"), float("inf"))
    yield from (limits[key] - 1 for key in ("least", "above") if key in limits)
    yield from (limits[key] for key in ("above",) if key in limits)
    yield from (limits[key] + 1 for key in ("most",) if key in limits)
    if not isinstance(field.default, bool):
        yield True
    if "int" in str(field.type):
        yield 1.5
    if "None" not in str(field.type):
        yield None
    yield "no such word"
