"""The modules of a solver, loaded a second time with their conditions asked for.

Each condition is handed to `Conditions.decide`, which notes how it came out, or forces
it; each block notes that it was entered. A kernel is run as it is written, so that its
blocks are noted, too; what it computes is private, whatever it decides on.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.guards import bare_function
from dp_erm_bench.contract.loading import load_again, modules_of
from dp_erm_bench.contract.private import Ended, Leak

DECIDE, ENTER, KERNEL = (f"__dp_erm_bench_{word}__" for word in ("if", "in", "kernel"))
"""Names that rewritten code finds among the builtins."""
COMPILERS = re.compile(r"n?jit\w*|\w*vectorize|cfunc|stencil|kernel|exact|compiled")
"""Decorators whose functions become machine code."""
TURNS = 12
"""Times that a forced condition comes out true before its run ends."""
UNASKED = frozenset({"limits", "step_work", "printed", "printed_form"})
"""Methods of solvers that declare cost, accuracy or names, and publish nothing."""


@dataclass(eq=False)
class SourcePoint:
    """A condition or a block of the sources.

    Attributes
    ----------
    line : int
    text : str
        Its source, of a block that of its first statement.
    scope : tuple of str
        The classes and functions that it stands in.
    parent : SourcePoint or None
        The block that it stands in.
    function : str
        The name of the function of which it is all; empty for other blocks.
    is_asked : bool
        Whether `check` asks that it is entered, or comes out both ways.
    names : set of str
        The names that a function mentions.
    entered : bool
    came : set of bool
        How a condition came out so far.
    met_by : object
        What was run when a condition came out first.
    reason : str
        Why a solver declares that nothing is asked of it (``exempt``).
    wanted : str
        What is missing, in words.
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
    wanted: str = "was not run"

    @property
    def sentence(self) -> str:
        """Return what is missing, with the line."""
        return f"line {self.line}, `{self.text}` {self.wanted}"


class Conditions:
    """How the conditions of some sources came out, and which one is forced."""

    def __init__(self, exempt: Mapping[str, str]) -> None:
        self.conditions: list[SourcePoint] = []
        self.blocks: list[SourcePoint] = []
        self.running: Any = None
        self.exempt = {squeeze(name): reason for name, reason in exempt.items()}
        self._forced: tuple[SourcePoint | None, bool] = (None, False)
        self._left = TURNS
        self._tried: set[tuple[int, bool]] = set()

    def decide(self, number: int, value: Any) -> Any:
        """Return how a condition comes out: as it is, or as it is forced."""
        place = self.conditions[number]
        value = bool(value)  # a Leak, if it is private
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
        """Note that a block was entered."""
        self.blocks[number].entered = True

    def force(self, place: SourcePoint | None, value: bool) -> None:
        """Have a condition come out in one way from now on; None: none."""
        self._forced, self._left = (place, value), TURNS

    def missing(self) -> Iterator[tuple[SourcePoint, bool]]:
        """Yield conditions that were met, with what they never were; each once.

        What is forced may lead to others, which follow.
        """
        while True:
            for number, place in enumerate(self.conditions):
                for value in {True, False} - place.came if _is_open(place) else ():
                    key = number, value
                    if key not in self._tried:
                        self._tried.add(key)
                        yield place, value
                        break
                else:
                    continue
                break
            else:
                return

    def note_unjudged(self, place: SourcePoint, value: bool) -> None:
        """Note a condition that could not be judged where it is forced."""
        place.came.discard(value)
        place.wanted = f"was never {str(value).lower()} in a run that came to its end"

    def is_complete(self) -> bool:
        """Return whether nothing is left, but for what a solver declares."""
        return not any(_is_open(place) or not place.came for place in self.left())

    def left(self) -> Iterator[SourcePoint]:
        """Yield conditions that came out one way, and the outermost blocks not run."""
        for place in self.conditions:
            if place.is_asked and len(place.came) == 1:
                if place.wanted == "was not run":
                    other = str(not place.came.copy().pop()).lower()
                    place.wanted = f"was never {other}"
                yield place
        ran = [one for one in self.blocks if one.function and one.entered]
        mentioned = set[str]().union(*(one.names for one in ran))
        for block in self.blocks:
            if block.entered or not block.is_asked:
                continue
            inside = block.parent is not None and block.parent.entered
            if inside if not block.function else block.function in mentioned:
                yield block


@contextlib.contextmanager
def load_rewritten(
    candidate: Candidate,
) -> Iterator[tuple[Candidate, dict[str, ModuleType], Conditions]]:
    """Yield a candidate whose modules ask for their conditions, these, and those."""
    conditions, plain = Conditions(candidate.solver.exempt), modules_of(candidate)

    def rewrite(source: bytes, file: str) -> Any:
        text = importlib.util.decode_source(source)
        tree = _Rewriting(conditions, text).visit(ast.parse(source))
        return compile(ast.fix_missing_locations(tree), file, "exec")

    tools = {
        DECIDE: conditions.decide,
        ENTER: conditions.enter,
        KERNEL: lambda function, risk: AsWritten(function, risk, plain),
    }
    vars(builtins).update(tools)
    try:
        with load_again(candidate, rewrite) as (made, modules):
            yield made, modules, conditions
    finally:
        for name in tools:
            del vars(builtins)[name]


class AsWritten:
    """A function that becomes machine code, run as it is written.

    Parameters
    ----------
    function : function
    risk : str
        What it may do that would tell of its arguments; empty if nothing.
    plain : dict of str to module
        The modules as they were loaded before, with the compiled function.
    """

    def __init__(self, function: Any, risk: str, plain: dict[str, ModuleType]) -> None:
        self.py_func, self.risk = function, risk
        self.__name__ = self.__qualname__ = function.__name__
        self.__module__ = function.__module__
        home = plain[function.__module__]
        self.compiled = getattr(home, function.__name__, None)

    def __call__(self, *args: Any) -> Any:
        """Run on plain values; the machine code does where Python's differs."""
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
    """Has the functions of a module ask for conditions and note their blocks."""

    def __init__(self, made: Conditions, source: str) -> None:
        self.made = made
        self.lines = [line.encode() for line in re.split("\r\n|\r|\n", source)]
        self.scope: tuple[str, ...] = ()
        self.block: SourcePoint | None = None
        self.asked = True
        # Whether a condition inside another one is asked for.

    # Functions.

    def visit_FunctionDef(self, node: Any) -> Any:
        outer = self.scope, self.block
        compilers = [one for one in node.decorator_list if _compiles(one)]
        if compilers:
            node.decorator_list = [_kernel(node)]
        else:
            node.decorator_list = [self.visit(one) for one in node.decorator_list]
        self.scope = (*self.scope, node.name)
        names = _mentions(node)
        node.body = self._block(node.body, function=node.name, names=names)
        self.scope, self.block = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        outer = self.scope, self.block
        self.scope, self.block = (*self.scope, node.name), None
        node.body = [self.visit(one) for one in node.body]
        self.scope, self.block = outer
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        outer = self.block
        block = self.block = self._place(node.body, self.block is not None)
        self.made.blocks.append(block)
        mark = _call(ENTER, len(self.made.blocks) - 1)
        pair = ast.Tuple([mark, self.visit(node.body)], ast.Load())
        node.body = ast.Subscript(pair, ast.Constant(1), ast.Load())
        self.block = outer
        return ast.copy_location(node, node)

    # Blocks.

    def _block(
        self, body: Sequence[Any], function: str = "", names: Any = (), reason: str = ""
    ) -> list[Any]:
        """Return statements that note that they are entered."""
        if not body:
            return []
        first = 1 if len(body) > 1 and _is_text(body[0]) else 0
        asked = not (is_quiet(body) or self._refuses(body))
        outer, block = self.block, self._place(body[first], asked)
        block.function, block.names = function, set(names)
        block.reason = block.reason or reason
        self.block = block
        self.made.blocks.append(block)
        mark = ast.Expr(_call(ENTER, len(self.made.blocks) - 1))
        made = [self.visit(one) for one in body]
        made.insert(first, ast.copy_location(mark, body[first]))
        self.block = outer
        return made

    def visit_If(self, node: Any) -> Any:
        if self.block is None:
            return self.generic_visit(node)
        arms = node.body, node.orelse
        asked = not any(arm and (_raises(arm) or self._refuses(arm)) for arm in arms)
        reason = self._place(node.test, asked).reason
        node.test = self._condition(node.test, asked)
        node.body, node.orelse = (self._block(arm, reason=reason) for arm in arms)
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
                setattr(node, name, self._block(getattr(node, name)))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            part.body = self._block(part.body)
        return node

    visit_AsyncFor = visit_With = visit_AsyncWith = visit_For
    visit_Try = visit_TryStar = visit_Match = visit_For

    def _refuses(self, body: Sequence[ast.stmt]) -> bool:
        """Return whether statements end with a reason to refuse a problem."""
        match body:
            case [*_, ast.Return(value=value)] if self.scope[-1:] == ("unsupported",):
                return not (value is None or isinstance(value, ast.Constant))
        return is_refusal(body)

    def visit_Assert(self, node: ast.AST) -> ast.AST:
        return node  # what follows if it does not hold is an error

    visit_Raise = visit_Assert

    # Conditions.

    def _condition(self, test: Any, asked: bool = True) -> Any:
        """Return a condition that is asked for."""
        if self.block is None or isinstance(test, ast.Constant):
            return self.visit(test)
        outer, self.asked = self.asked, self.asked and asked
        asked = self.asked
        place = self._place(test, asked)
        self.made.conditions.append(place)
        number = len(self.made.conditions) - 1
        made = ast.copy_location(_call(DECIDE, number, self.visit(test)), test)
        self.asked = outer
        return made

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        node.test = self._condition(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        node.iter = self.visit(node.iter)
        node.ifs = [self._condition(one) for one in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        *first, last = node.values
        # Others are guards, as of a division, or of what may be None.
        node.values = [self._condition(one, _compares(one)) for one in first]
        node.values.append(self.visit(last))
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        # `f = njit(g)`: what is called is what is written.
        outside = self.block is None and _compiles(node.func)
        if outside and [type(one) for one in node.args] == [ast.Name]:
            return self.visit(node.args[0])
        return self.generic_visit(node)

    def _place(self, node: Any, asked: bool) -> SourcePoint:
        text, exempt = _text(self.lines, node), self.made.exempt
        names = (squeeze(text), *self.scope)
        reason = next((exempt[name] for name in names if name in exempt), "")
        asked = asked and not UNASKED & {*self.scope}
        how: Any = {"is_asked": asked, "reason": reason}
        return SourcePoint(node.lineno, text, self.scope, self.block, **how)


def _kernel(node: Any) -> ast.expr:
    """Return the decorator of a function that becomes machine code."""
    inside = [*ast.walk(ast.Module(node.body, []))]
    calls = {getattr(one.func, "id", "") for one in inside if isinstance(one, ast.Call)}
    risk = "prints" if "print" in calls else ""
    if any(isinstance(one, ast.Raise | ast.Assert) for one in inside):
        risk = "may raise an error"
    made = ast.parse(f"lambda function: {KERNEL}(function, {risk!r})", mode="eval").body
    for each in ast.walk(made):
        if hasattr(each, "lineno"):
            ast.copy_location(each, node)
    return made


def _compiles(node: Any) -> bool:
    """Return whether a decorator, or a function that is called, compiles functions."""
    called = node.func if isinstance(node, ast.Call) else node
    name = getattr(called, "attr", getattr(called, "id", ""))
    return COMPILERS.fullmatch(str(name)) is not None


def _compares(node: Any) -> bool:
    """Return whether a part of a condition is one of its own, and no guard."""
    plain = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(plain, ast.Compare):
        return not any(isinstance(op, ast.Is | ast.IsNot) for op in plain.ops)
    both = isinstance(plain, ast.BinOp) and isinstance(plain.op, ast.BitAnd | ast.BitOr)
    return both or isinstance(plain, ast.BoolOp)


def _mentions(node: ast.AST) -> set[str]:
    """Return the names in a source, attributes among them."""
    found = set()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
    return found


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _raises(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements end in ``raise``."""
    match body:
        case [*_, ast.Raise()]:
            return True
        case [*_, ast.If(body=first, orelse=other)]:
            return _raises(first) and _raises(other)
        case [*_, ast.With(body=first)]:
            return _raises(first)
    return False


def _is_open(place: SourcePoint) -> bool:
    """Return whether a condition was met, and has to come out both ways."""
    return place.is_asked and bool(place.came) and not place.reason


def squeeze(text: str) -> str:
    """Return a source without its blanks."""
    return "".join(text.split())


def is_refusal(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements end in ``raise`` or return a text."""
    match body:
        case [*_, ast.Return(value=ast.JoinedStr() | ast.Constant(value=str()))]:
            return True
    return _raises(body)


def is_quiet(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements end in ``raise`` or do nothing."""
    return all(isinstance(one, ast.Pass) or _is_text(one) for one in body) or _raises(
        body
    )


def _text(lines: Sequence[bytes], node: Any) -> str:
    """Return a node as it is written, of several lines the first of its meaning."""
    if node.lineno == node.end_lineno:
        written = lines[node.lineno - 1][node.col_offset : node.end_col_offset]
        return str(written.decode())
    return ast.unparse(node).partition("\n")[0]


def _call(name: str, number: int, *args: ast.expr) -> ast.expr:
    given = [ast.Constant(number), *args]
    return ast.Call(ast.Name(name, ast.Load()), given, [])
