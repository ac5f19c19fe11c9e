"""Replay a solver after replacing the large numbers in its source by small ones.

The check with private values finds data that bypass the mechanisms, whatever the size
of the problem. How far queries change is seen only at the sizes that are replayed. A
solver may do something else from a size on that no replay reaches, such as 30000. So
this number is replaced by a small one, such as 3.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Any

from dp_erm_bench import extend
from dp_erm_bench.contract.candidate import (
    Candidate,
    NotAllRun,
    NotApplicable,
    ToBeRewritten,
)
from dp_erm_bench.contract.cases import Case
from dp_erm_bench.contract.loading import load_again, modules_of, source_of_module
from dp_erm_bench.contract.replay import replay_cases, replay_results
from dp_erm_bench.contract.rewritten import (
    UNASKED,
    is_quiet,
    is_refusal,
    without_blanks,
)

LEAST, MOST = 16, 1e12
"""Range of the numbers that are made small.

Replays reach smaller numbers, and larger numbers are not sizes.
"""
SMALL = (3, 5)
CASES = 200
"""Largest number of replays in which all numbers are small together."""
KEPT = (extend.shape, extend.value, extend.Limit)
"""Functions in whose calls no number is replaced: they declare parameters or limits.

The replays vary the parameters themselves.
"""
REFUSALS = frozenset({"unsupported_reason", "refusal"})
"""Methods that return a reason to refuse a problem."""
ARITHMETIC = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)


def large_numbers_hide_nothing(candidate: Candidate) -> None:
    """Check that replays with small numbers in place of large ones find no violation.

    The large numbers of the source are made small together, and each one alone:
    ``30000 <= n < 100000`` is never true if both numbers become equal.
    """
    declared = {without_blanks(name) for name in candidate.solver.exempt}
    numbers = sorted(large_numbers_of(candidate) - declared)
    if not numbers:
        raise NotApplicable(f"its source has no number above {LEAST} to ask of")
    alone = [[one] for one in numbers] if len(numbers) > 1 else []
    cases = [one.case for one in replay_results(candidate) if not one.case.untold]
    for small in SMALL:
        for some in (*alone, numbers):
            most = CASES if some is numbers else CASES // len(numbers) + 1
            few = cases[:: len(cases) // most + 1]
            words = _complaint_of_numbers(candidate, some, small, few)
            which = ", ".join(some)
            if words:
                raise NotAllRun(
                    f"with {which} made {small}: {words}; make it a parameter, or name "
                    f"{'each of ' if len(some) > 1 else ''}{which} in `exempt` with a "
                    "reason"
                )


def large_numbers_of(candidate: Candidate) -> set[str]:
    """Return the large numbers in a solver's sources, as they are written."""
    found = set[str]()
    for module in modules_of(candidate).values():
        shrinking = _Shrinking(module, None, 0)
        shrinking.visit(ast.parse(source_of_module(module)))
        found |= shrinking.found
    return found


def _complaint_of_numbers(
    candidate: Candidate, numbers: Collection[str], small: int, cases: Sequence[Case]
) -> str:
    """Return the first violation in replays with small numbers; empty if none."""

    def make_small(module: ModuleType, source: str) -> Any:
        return _Shrinking(module, numbers, small).visit(ast.parse(source))

    refusals = []
    try:
        with (
            load_again(candidate, make_small) as (one, _),
            load_again(candidate, make_small) as (other, _),
        ):
            for found in replay_cases(one, cases, other):
                if found.all:
                    title = f"{found.case.title}, neighbours: {found.case.family}"
                    return f"{title}: {found.all[0]}"
                refusals.append(found.refusal)
    except ToBeRewritten:
        raise
    except Exception as error:  # as a table that is too short may raise
        return f"it raises {type(error).__name__}: {' '.join(str(error).split())}"
    return f"no replay runs: {refusals[0]}" if refusals and all(refusals) else ""


class _Shrinking(ast.NodeTransformer):
    """Replaces large whole numbers, including those written as 1 << 12 or 2**16.

    Parameters
    ----------
    module : module
        The module of the source.
    numbers : collection of str or None
        The numbers to replace, as they are written; None for all.
    small : int
        The value that replaces the numbers.
    """

    def __init__(
        self, module: ModuleType, numbers: Collection[str] | None, small: int
    ) -> None:
        self.module, self.numbers, self.small = module, numbers, small
        self.found, self.function = set[str](), ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        # Names inside a function may be local ones.
        home, _, name = ast.unparse(node.func).rpartition(".")
        holder = vars(self.module).get(home) if home else self.module
        called = None if self.function else getattr(holder, name, None)
        is_kept = any(called is one for one in KEPT)
        return node if is_kept else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name in UNASKED:
            return node
        outer, self.function = self.function, node.name
        self.generic_visit(node)
        self.function = outer
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        # A refusal ends the run, so its condition is kept. In other methods a returned
        # text may select a branch.
        ends = is_refusal if self.function in REFUSALS else is_quiet
        if ends(node.body):
            node.orelse = [self.visit(one) for one in node.orelse]
            return node
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return self._make_small(node) or self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self._make_small(node) or node

    def _make_small(self, node: ast.expr) -> ast.AST | None:
        number, text = _value_of_number(node), without_blanks(ast.unparse(node))
        if type(number) not in (int, float) or not LEAST < number < MOST or number % 1:
            return None
        self.found.add(text)
        if self.numbers is not None and text not in self.numbers:
            return node
        return ast.copy_location(ast.Constant(type(number)(self.small)), node)


def _value_of_number(node: ast.expr) -> Any:
    """Return the value of an expression of numbers; None for other expressions."""
    if all(isinstance(one, ARITHMETIC) for one in ast.walk(node)):
        with contextlib.suppress(Exception):
            return eval(compile(ast.Expression(node), "", "eval"))  # of the solver's
    return None
