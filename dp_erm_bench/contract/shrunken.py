"""Replays of a solver whose large numbers are small: what begins at 30000 begins at 3.

Types find what leaves past the mechanisms at any size; how far queries move is seen at
the sizes that are replayed alone. So numbers of the source that no replay reaches are
made so small that all of them do.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection
from typing import Any

from dp_erm_bench.contract.candidate import Candidate, NotAllRun, NotApplicable
from dp_erm_bench.contract.loading import load_again, modules_of
from dp_erm_bench.contract.replay import ReplayResult, all_cases, replayed
from dp_erm_bench.contract.rewritten import squeeze

LEAST, MOST = 16, 1e12
"""Numbers that are made small: others are lengths that replays have, or no sizes."""
SMALL = (3, 5)
CASES = 200
"""Replays of each, at most."""
KEPT = frozenset({"shape", "value", "Limit"})
"""Calls whose numbers are parameters, which have values of their own."""
ARITHMETIC = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)


def large_numbers_hide_nothing(candidate: Candidate) -> None:
    """Keep to all of that where large numbers of the source are small ones, too."""
    declared = {squeeze(name) for name in candidate.solver.exempt}
    numbers = sorted(numbers_of(candidate) - declared)
    if not numbers:
        raise NotApplicable(f"its source has no number above {LEAST} to ask of")
    for small in SMALL:
        found = _first_finding(candidate, numbers, small)
        if found is None:
            continue
        alone = (one for one in numbers if _first_finding(candidate, [one], small))
        named = next(alone, ", ".join(numbers))
        raise NotAllRun(
            f"with {named} made {small}: {found.case.title}, neighbours: "
            f"{found.case.family}: {found.all[0]}; make it a parameter, or name "
            f"{named} in `exempt` with a reason"
        )


def numbers_of(candidate: Candidate) -> set[str]:
    """Return the large numbers of a solver's sources, as they are written."""
    found = set[str]()
    for module in modules_of(candidate).values():
        with open(str(module.__file__), "rb") as file:
            shrinking = _Shrinking(None, 0)
            shrinking.visit(ast.parse(file.read()))
        found |= shrinking.found
    return found


def _first_finding(
    candidate: Candidate, numbers: Collection[str], small: int
) -> ReplayResult | None:
    """Return the first result that accuses a solver with small numbers."""

    def compile_small(source: bytes, file: str) -> Any:
        tree = _Shrinking(numbers, small).visit(ast.parse(source))
        return compile(ast.fix_missing_locations(tree), file, "exec")

    with (
        load_again(candidate, compile_small) as (one, _),
        load_again(candidate, compile_small) as (other, _),
    ):
        cases = [*all_cases(one)]
        results = replayed(one, cases[:: len(cases) // CASES + 1], other)
        return next((result for result in results if result.all), None)


class _Shrinking(ast.NodeTransformer):
    """Replaces large whole numbers, also written as 1 << 12 or 2**16.

    Parameters
    ----------
    numbers : collection of str or None
        Those to be replaced, as they are written; None: all.
    small : int
        What they become.
    """

    def __init__(self, numbers: Collection[str] | None, small: int) -> None:
        self.numbers, self.small = numbers, small
        self.found = set[str]()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = getattr(node.func, "id", "")
        return node if name in KEPT else self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return self._made_small(node) or self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self._made_small(node) or node

    def _made_small(self, node: ast.expr) -> ast.AST | None:
        number, text = _number(node), squeeze(ast.unparse(node))
        if type(number) not in (int, float) or not LEAST < number < MOST or number % 1:
            return None
        self.found.add(text)
        if self.numbers is not None and text not in self.numbers:
            return node
        return ast.copy_location(ast.Constant(type(number)(self.small)), node)


def _number(node: ast.expr) -> Any:
    """Return the value of an expression of numbers alone, else None."""
    if not all(isinstance(one, ARITHMETIC) for one in ast.walk(node)):
        return None
    with contextlib.suppress(Exception):
        return eval(compile(ast.Expression(node), "", "eval"))  # of the solver's file
    return None
