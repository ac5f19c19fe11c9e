"""Load the modules of a solver a second time, with their conditions under observation.

Each condition is passed to `Conditions.decide`, which records its value or forces
another value. A block is a list of statements, such as the body of a function or of a
loop. Each block records that it was entered. Kernels run as Python code instead of
machine code, so that their blocks are recorded, too. The results of a kernel are
private, whatever its conditions depend on.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.guards import bare_function
from dp_erm_bench.contract.loading import load_again, modules_of
from dp_erm_bench.contract.private import Ended, Leak

DECIDE, ENTER, KERNEL = (f"__dp_erm_bench_{word}__" for word in ("if", "in", "kernel"))
"""Names that rewritten code calls; they are added to the builtins."""
COMPILERS = re.compile(
    r"n?jit\w*|\w*vectorize|cfunc|stencil|kernel|exact|compile_cached"
)
"""Pattern of the names of decorators that compile a function to machine code."""
TURNS = 12
"""Number of times that a forced condition is true before its run is ended."""
UNASKED = frozenset({"limits", "step_work", "printed_constant", "printed_form"})
"""Methods of solvers that need not be covered, because they publish nothing.

These methods declare cost, accuracy or names.
"""


@dataclass(eq=False)
class SourcePoint:
    """A condition or a block of the sources.

    Attributes
    ----------
    line : int
        Number of the line in the file.
    text : str
        Source code of the condition, or of the first statement of the block.
    scope : tuple of str
        Names of the classes and functions that contain the point.
    parent : SourcePoint or None
        The block that contains the point; None outside of functions.
    function : str
        Name of the function whose body the block is; empty for other points.
    is_asked : bool
        Whether `check` requires that the block is entered, or that the condition is
        both true and false.
    names : set of str
        For the body of a function, the names that occur in the function.
    entered : bool
        Whether the block was entered.
    came : set of bool
        The values that the condition has had so far.
    met_by : object
        The run in which the condition was first evaluated.
    reason : str
        The reason that the solver's ``exempt`` gives for leaving out the point; empty
        if it gives none.
    wanted : str
        The end of `sentence`, which says what is missing; empty for the usual end.
    """

    line: int
    text: str
    scope: tuple[str, ...]
    parent: SourcePoint | None
    function: str = ""
    is_asked: bool = True
    names: set[str] = field(default_factory=set)
    entered: bool = False
    came: set[bool] = field(default_factory=set)
    met_by: Any = None
    reason: str = ""
    wanted: str = ""

    @property
    def sentence(self) -> str:
        """Return a sentence that names a line that did not run, or a missing value."""
        never = f"was never {str(True not in self.came).lower()}"
        wanted = self.wanted or (never if self.came else "was not run")
        return f"line {self.line}, `{self.text}` {wanted}"

    @property
    def is_open(self) -> bool:
        """Return whether a condition was evaluated, and must be both true and false."""
        return self.is_asked and bool(self.came) and not self.reason


class Conditions:
    """Observes the conditions of source files, and may force one of them."""

    def __init__(self, exempt: Mapping[str, str]) -> None:
        self.conditions: list[SourcePoint] = []
        self.blocks: list[SourcePoint] = []
        self.running: Any = None
        self.exempt = {without_blanks(name): reason for name, reason in exempt.items()}
        self._forced: tuple[SourcePoint | None, bool] = (None, False)
        self._left = TURNS

    def decide(self, number: int, value: Any) -> Any:
        """Return the value of a condition, or the value that is forced on it."""
        place = self.conditions[number]
        value = bool(value)  # raises a Leak if it is private
        place.came.add(value)
        place.met_by = place.met_by or self.running
        forced, wanted = self._forced
        if forced is not place:
            return value
        self._left -= wanted
        if self._left < 0:
            raise Ended
        place.came.add(wanted)
        return wanted

    def enter(self, number: int) -> None:
        """Record that the block with this number was entered."""
        self.blocks[number].entered = True

    def force(self, place: SourcePoint | None, value: bool) -> None:
        """Force the value of a condition from now on; None forces no condition."""
        self._forced, self._left = (place, value), TURNS

    def missing(self) -> Iterator[tuple[SourcePoint, bool]]:
        """Yield each evaluated condition once for each value that it never had.

        If a condition that is forced leads to further conditions, these follow later.
        """
        tried = set[tuple[SourcePoint, bool]]()
        while True:
            left = [
                (place, way)
                for place in self.conditions
                if place.is_open
                for way in (False, True)
                if way not in place.came and (place, way) not in tried
            ]
            if not left:
                return
            tried.add(left[0])
            yield left[0]

    def note_unjudged(self, place: SourcePoint, value: bool) -> None:
        """Record that no run with a forced condition could be judged."""
        place.came.discard(value)
        place.wanted = f"was never {str(value).lower()} in a run that came to its end"

    def is_complete(self) -> bool:
        """Return whether all conditions and blocks are covered, or declared exempt."""
        return not any(place.is_open or not place.came for place in self.points_left())

    def points_left(self) -> Iterator[SourcePoint]:
        """Yield conditions with one value only, and the outermost unrun blocks."""
        for place in self.conditions:
            if place.is_asked and len(place.came) == 1:
                yield place
        ran = [one for one in self.blocks if one.function and one.entered]
        mentioned = set[str]().union(*(one.names for one in ran))
        for block in self.blocks:
            inside = block.parent is not None and block.parent.entered
            reached = block.function in mentioned if block.function else inside
            if reached and block.is_asked and not block.entered:
                yield block


@contextlib.contextmanager
def load_rewritten(
    candidate: Candidate,
) -> Iterator[tuple[Candidate, dict[str, ModuleType], Conditions]]:
    """Yield a candidate with rewritten modules, the modules, and their conditions."""
    conditions, plain = Conditions(candidate.solver.exempt), modules_of(candidate)

    def rewrite(_: ModuleType, source: str) -> Any:
        return _Rewriting(conditions, source).visit(ast.parse(source))

    tools: dict[str, Any] = {
        DECIDE: conditions.decide,
        ENTER: conditions.enter,
        KERNEL: lambda risk: functools.partial(AsWritten, plain, risk),
    }
    with patch.multiple(builtins, create=True, **tools):
        with load_again(candidate, rewrite) as (made, modules):
            yield made, modules, conditions


class AsWritten:
    """A function that is usually compiled to machine code, run as Python code.

    Parameters
    ----------
    plain : dict of str to module
        The modules by name, as they were loaded before they were rewritten. They
        contain the compiled function.
    risk : str
        How the function may reveal its arguments, such as `prints`; empty if it does
        not reveal them.
    function : function
        The function as written, without its decorator.
    """

    def __init__(self, plain: dict[str, ModuleType], risk: str, function: Any) -> None:
        self.py_func, self.risk = function, risk
        self.__name__ = self.__qualname__ = function.__name__
        self.__module__ = function.__module__
        self.compiled = getattr(plain[function.__module__], self.__name__, None)

    def __call__(self, *args: Any) -> Any:
        """Run the function on raw values; if that fails, run the machine code."""
        given = copy.deepcopy(args)
        try:
            return bare_function(self.py_func)(*args)
        except (Leak, Ended):
            raise
        except Exception:
            if self.compiled is None:
                raise
            for one, was in zip(args, given, strict=True):
                if isinstance(one, np.ndarray) and one.flags.writeable:
                    one[...] = was
            return self.compiled(*args)


class _Rewriting(ast.NodeTransformer):
    """Rewrites the functions of a module so that conditions and blocks are recorded."""

    def __init__(self, made: Conditions, source: str) -> None:
        self.made, self.source = made, source
        self.scope: tuple[str, ...] = ()
        self.block: SourcePoint | None = None
        self.asked = True
        # Whether conditions inside the current one must be both true and false.

    @contextlib.contextmanager
    def _within(self, **values: Any) -> Iterator[None]:
        """Set attributes while an inner scope, block or condition is visited."""
        before = dict(vars(self))
        vars(self).update(values)
        yield
        vars(self).update(before)

    # Functions.

    def visit_FunctionDef(self, node: Any) -> Any:
        if any(map(_is_compiler, node.decorator_list)):
            node.decorator_list = [_kernel_decorator(node)]
        else:
            node.decorator_list = [self.visit(one) for one in node.decorator_list]
        names = {getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node)}
        with self._within(scope=(*self.scope, node.name)):
            node.body = self._note_block(node.body, function=node.name, names=names)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        with self._within(scope=(*self.scope, node.name), block=None):
            node.body = [self.visit(one) for one in node.body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        block = self._add_place(node.body, self.block is not None)
        mark = self._mark(block)
        with self._within(block=block):
            pair = ast.Tuple([mark, self.visit(node.body)], ast.Load())
        node.body = ast.Subscript(pair, ast.Constant(1), ast.Load())
        return node

    # Blocks.

    def _note_block(
        self, body: Sequence[Any], function: str = "", names: Any = (), reason: str = ""
    ) -> list[Any]:
        """Return the statements of a block, with a call that records its entry."""
        if not body:
            return []
        first = 1 if len(body) > 1 and _is_text(body[0]) else 0
        asked = not (is_quiet(body) or self._ends_in_refusal(body))
        block = self._add_place(body[first], asked, function=function, names=names)
        block.reason = block.reason or reason
        mark = ast.copy_location(ast.Expr(self._mark(block)), body[first])
        with self._within(block=block):
            made = [self.visit(one) for one in body]
        return [*made[:first], mark, *made[first:]]

    def _mark(self, block: SourcePoint) -> ast.expr:
        """Return the call that records the entry of a block."""
        self.made.blocks.append(block)
        return _call_node(ENTER, len(self.made.blocks) - 1)

    def visit_If(self, node: Any) -> Any:
        if self.block is None:
            return self.generic_visit(node)
        arms = node.body, node.orelse
        asked = not any(
            arm and (_ends_in_raise(arm) or self._ends_in_refusal(arm)) for arm in arms
        )
        reason = self._add_place(node.test, asked).reason
        node.test = self._ask_condition(node.test, asked)
        node.body, node.orelse = (self._note_block(arm, reason=reason) for arm in arms)
        return node

    visit_While = visit_If

    def visit_For(self, node: Any) -> Any:
        if self.block is None:
            return self.generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        for item in getattr(node, "items", ()):
            item.context_expr = self.visit(item.context_expr)
        for name in ("body", "orelse", "finalbody"):
            if hasattr(node, name):
                setattr(node, name, self._note_block(getattr(node, name)))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            part.body = self._note_block(part.body)
        return node

    visit_AsyncFor = visit_With = visit_AsyncWith = visit_For
    visit_Try = visit_TryStar = visit_Match = visit_For

    def _ends_in_refusal(self, body: Sequence[ast.stmt]) -> bool:
        """Return whether statements end with a reason to refuse a problem."""
        match body:
            case [*_, ast.Return(value=value)] if self.scope[-1:] == (
                "unsupported_reason",
            ):
                return not (value is None or isinstance(value, ast.Constant))
        return is_refusal(body)

    def visit_Assert(self, node: ast.AST) -> ast.AST:
        return node  # if its condition is false, it raises an error

    visit_Raise = visit_Assert

    # Conditions.

    def _ask_condition(self, test: Any, asked: bool = True) -> Any:
        """Return a call that records or forces the value of a condition."""
        if self.block is None or isinstance(test, ast.Constant):
            return self.visit(test)
        with self._within(asked=self.asked and asked):
            self.made.conditions.append(self._add_place(test, self.asked))
            number = len(self.made.conditions) - 1
            return ast.copy_location(_call_node(DECIDE, number, self.visit(test)), test)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        node.test = self._ask_condition(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        node.iter = self.visit(node.iter)
        node.ifs = [self._ask_condition(one) for one in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        *first, last = node.values
        # Other parts are guards, for example against a division by zero or None.
        guards = [self._ask_condition(one, _is_own_condition(one)) for one in first]
        node.values = [*guards, self.visit(last)]
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        # `f = njit(g)`: then f is g as it is written.
        outside = self.block is None and _is_compiler(node.func)
        if outside and [type(one) for one in node.args] == [ast.Name]:
            return self.visit(node.args[0])
        return self.generic_visit(node)

    def _add_place(self, node: Any, asked: bool, **how: Any) -> SourcePoint:
        text, exempt = _text_of_node(self.source, node), self.made.exempt
        names = (without_blanks(text), *self.scope)
        how["reason"] = next((exempt[name] for name in names if name in exempt), "")
        how["is_asked"] = asked and not UNASKED & {*self.scope}
        return SourcePoint(node.lineno, text, self.scope, self.block, **how)


def _kernel_decorator(node: Any) -> ast.expr:
    """Return the replacement for the decorator of a compiled function."""
    inside = [*ast.walk(ast.Module(node.body, []))]
    calls = {getattr(one.func, "id", "") for one in inside if isinstance(one, ast.Call)}
    risk = "prints" if "print" in calls else ""
    if any(isinstance(one, ast.Raise | ast.Assert) for one in inside):
        risk = "may raise an error"
    return _call_node(KERNEL, risk)


def _is_compiler(node: Any) -> bool:
    """Return whether a decorator, or a function that is called, compiles functions."""
    called = node.func if isinstance(node, ast.Call) else node
    name = getattr(called, "attr", getattr(called, "id", ""))
    return COMPILERS.fullmatch(str(name)) is not None


def _is_own_condition(node: Any) -> bool:
    """Return whether a part of a condition counts as a condition of its own."""
    plain = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(plain, ast.Compare):
        return not any(isinstance(op, ast.Is | ast.IsNot) for op in plain.ops)
    both = isinstance(plain, ast.BinOp) and isinstance(plain.op, ast.BitAnd | ast.BitOr)
    return both or isinstance(plain, ast.BoolOp)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _ends_in_raise(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements end in ``raise``."""
    match body:
        case [*_, ast.Raise()]:
            return True
        case [*_, ast.If(body=first, orelse=other)]:
            return _ends_in_raise(first) and _ends_in_raise(other)
        case [*_, ast.With(body=first)]:
            return _ends_in_raise(first)
    return False


def without_blanks(text: str) -> str:
    """Return source code without spaces and line breaks."""
    return "".join(text.split())


def is_refusal(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements end in ``raise`` or return a string."""
    match body:
        case [*_, ast.Return(value=ast.JoinedStr() | ast.Constant(value=str()))]:
            return True
    return _ends_in_raise(body)


def is_quiet(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements end in ``raise`` or do nothing."""
    return all(
        isinstance(one, ast.Pass) or _is_text(one) for one in body
    ) or _ends_in_raise(body)


def _text_of_node(source: str, node: Any) -> str:
    """Return the source of a node; if it has several lines, the first unparsed line."""
    if node.lineno == node.end_lineno:
        return ast.get_source_segment(source, node) or ""
    return ast.unparse(node).partition("\n")[0]


def _call_node(name: str, what: int | str, *args: ast.expr) -> ast.expr:
    given = [ast.Constant(what), *args]
    return ast.Call(ast.Name(name, ast.Load()), given, [])
