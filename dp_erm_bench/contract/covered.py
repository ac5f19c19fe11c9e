"""What of a solver's sources the replays ran, and what its conditions came to.

A replay finds what is wrong in a line if the line runs. So the sources of a solver (its
file and the modules beside it) are compiled a second time, each statement noted as it
runs and each condition as it comes out, and the functions that there are get this code.
It computes the same bits: a condition is evaluated once, where it stands, and noted on
its way. Of an array it is noted whether an entry is true, and whether one is false.

Asked is what may run in a fit: not what is only declared (`LEFT_OUT`), not what nothing
that is asked names, no branch that ends in ``raise`` or, of ``unsupported``, in a
refusal. What a module does while it is imported is the same in every run and is not
asked either.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import gc
import inspect
import math
import re
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.cases import LONG, MOST, Case, resized, within
from dp_erm_bench.contract.problems import (
    BLANK,
    CORNERS,
    ENORMOUS,
    FAMILIES,
    LARGE,
    Parts,
    separable_penalties,
    sized,
    sizes_of,
)
from dp_erm_bench.plugins.names import sources
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.base import Solver

LEFT_OUT = frozenset({"limits", "step_work", "printed", "printed_form"})
"""Methods of solvers that declare cost, accuracy or names, and publish nothing."""
LINES, CAME, REACHED = (f"__dp_erm_bench_{word}__" for word in ("lines", "came", "at"))
"""Names that noted code finds among the builtins."""
COMPILED = re.compile(r"n?jit\w*|\w*vectorize|cfunc|stencil|kernel|exact|compiled")
"""Decorators whose functions become machine code, which notes nothing."""
ELEMENTWISE = frozenset(
    {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "isclose"}
)
Scope = tuple[str, ...]
Slots = tuple[int, int] | None
"""Where it is noted that a condition was false, and that it was true."""


@dataclass(eq=False)
class Body:
    """Statements that run one after the other.

    Attributes
    ----------
    owner : int or None
        Slot of the statement that they are a part of.
    guard : int or None
        Slot of the outcome that they wait for.
    is_quiet : bool
        Whether nothing is asked of them: they end in ``raise``, or are empty.
    parent : Body or None
    is_function : bool
        Whether it is all of a function.
    """

    owner: int | None = None
    guard: int | None = None
    is_quiet: bool = False
    parent: Body | None = None
    is_function: bool = False


@dataclass(eq=False)
class CoveragePoint:
    """A statement, the body of a lambda, or a condition.

    Attributes
    ----------
    slot : int
        Where it is noted that it ran; of a condition, that it was false, and that it
        was true in the next one.
    module : str
    line : int
    text : str
        Its source; of several lines the first.
    scope : tuple of str
        The classes and functions that it stands in.
    body : Body
    statement : int
        Slot of the statement that it is, or is in.
    within : CoveragePoint or None
        The condition that it is a part of.
    is_condition : bool
    is_asked : bool
        Whether a condition has to come out both ways.
    names : set of str
        That it mentions.
    constants : tuple of float
        That it mentions.
    """

    slot: int
    module: str
    line: int
    text: str
    scope: Scope
    body: Body
    statement: int
    within: CoveragePoint | None
    is_condition: bool
    is_asked: bool
    names: set[str]
    constants: tuple[float, ...]


@dataclass(eq=False)
class SolverSources:
    """The sources of a solver, with all places that note something.

    Attributes
    ----------
    files : dict of str to Path
        By module, the solver's first.
    places : list of CoveragePoint
        An outer one before those inside.
    slots : int
        How many there are.
    trees, noted : dict of str to Module
        As they are written, and as they are run.
    compiled : set of (str, tuple of str)
        Module and scope of the functions that become machine code.
    """

    files: dict[str, Path]
    places: list[CoveragePoint] = field(default_factory=list)
    slots: int = 0
    trees: dict[str, ast.Module] = field(default_factory=dict)
    noted: dict[str, ast.Module] = field(default_factory=dict)
    compiled: set[tuple[str, Scope]] = field(default_factory=set)

    def is_compiled(self, module: str, scope: Scope) -> bool:
        """Return whether a scope is a part of one that becomes machine code."""
        parts = (scope[:depth] for depth in range(1, len(scope) + 1))
        return any((module, part) in self.compiled for part in parts)


@functools.lru_cache(maxsize=16)
def sources_of(solver: type[Solver]) -> SolverSources:
    """Return the sources of a solver's class.

    Raises
    ------
    OSError, TypeError
        If no file holds it.
    """
    made = SolverSources(sources(inspect.getfile(solver)))
    for module, file in made.files.items():
        with tokenize.open(file) as source:
            text = source.read()
        made.trees[module] = ast.parse(text)
        noted = _Noting(made, module, text).visit(ast.parse(text))
        made.noted[module] = ast.fix_missing_locations(noted)
    return made


class _Noting(ast.NodeTransformer):
    """Makes the functions of a module note what they run."""

    def __init__(self, made: SolverSources, module: str, source: str) -> None:
        self.made, self.module = made, module
        # As the parser counts them, which ends no line at a form feed.
        self.lines = [line.encode() for line in re.split("\r\n|\r|\n", source)]
        self.scope: Scope = ()
        # None in what a module does while it is imported.
        self.body: Body | None = None
        self.statement = -1
        self.within: CoveragePoint | None = None
        self.is_asked = True

    def visit_Module(self, node: ast.Module) -> Any:
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and _compiles(call.func):
                names = [each.id for each in call.args if isinstance(each, ast.Name)]
                self.made.compiled |= {(self.module, (name,)) for name in names}
        return self.generic_visit(node)

    # What has a scope of its own.

    def visit_FunctionDef(self, node: Any) -> Any:
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        defaults = node.args
        defaults.defaults = [self.visit(each) for each in defaults.defaults]
        defaults.kw_defaults = [
            each and self.visit(each) for each in defaults.kw_defaults
        ]
        outer = (self.scope, self.within, self.is_asked)
        self.scope, self.within, self.is_asked = (*self.scope, node.name), None, True
        if any(map(_compiles, node.decorator_list)):
            self.made.compiled.add((self.module, self.scope))
        node.body = self._branch(node.body, is_function=True)
        self.scope, self.within, self.is_asked = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        outer = (self.scope, self.body)
        self.scope, self.body = (*self.scope, node.name), None
        node.body = [self.visit(each) for each in node.body]
        self.scope, self.body = outer
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        outer = (self.body, self.within, self.is_asked)
        self.body, self.within, self.is_asked = self.body or Body(), None, True
        place = self._place(node)
        node.body = _call(REACHED, place.slot, self.visit(node.body))
        self.body, self.within, self.is_asked = outer
        return node

    # Statements.

    def _branch(
        self,
        statements: Sequence[ast.stmt],
        guard: int | None = None,
        is_function: bool = False,
    ) -> Any:
        """Return statements that are noted, and wait for an outcome."""
        owner = self.statement if self.body else None
        quiet = is_quiet(statements) or (not is_function and self._ends(statements))
        body = Body(owner, guard, quiet, self.body, is_function)
        outer, made = (self.body, self.statement), []
        self.body = body
        for number, node in enumerate(statements):
            if isinstance(node, ast.Global | ast.Nonlocal) or (
                number == 0 and _is_text(node)
            ):
                made.append(node)
                continue
            self.statement = self._place(node).slot
            made += [_note(self.statement, node), self.visit(node)]
        self.body, self.statement = outer
        return made

    def _ends(self, statements: Sequence[ast.stmt]) -> bool:
        """Return whether statements end in ``raise``, or return why they refuse."""
        match statements:
            case [*_, ast.Return(value=value)] if self.scope[-1:] == ("unsupported",):
                return not (value is None or isinstance(value, ast.Constant))
        return _raises(statements)

    def visit_If(self, node: Any) -> Any:
        if self.body is None:
            return self.generic_visit(node)
        ends = self._ends(node.body) or self._ends(node.orelse)
        node.test, slots = self._test(node.test, not ends)
        false, true = (None, None) if ends or not slots else slots
        node.body = self._branch(node.body, true)
        node.orelse = self._branch(node.orelse, false)
        return node

    visit_While = visit_If

    def visit_With(self, node: Any) -> Any:
        if self.body is None:
            return self.generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):  # of loops: the target and what is iterated
                setattr(node, name, self.visit(value))
        for item in getattr(node, "items", ()):
            item.context_expr = self.visit(item.context_expr)
        for name in ("body", "orelse", "finalbody"):
            if hasattr(node, name):
                setattr(node, name, self._branch(getattr(node, name)))
        for handler in getattr(node, "handlers", ()):
            handler.body = self._branch(handler.body)
        for case in getattr(node, "cases", ()):
            if case.guard:
                case.guard, _ = self._test(case.guard, not _raises(case.body))
            case.body = self._branch(case.body)
        return node

    visit_AsyncWith = visit_For = visit_AsyncFor = visit_With
    visit_Try = visit_TryStar = visit_Match = visit_With

    def visit_Assign(self, node: Any) -> Any:
        outer = self.scope
        if self.body is None:  # as if it were a function of that name
            self.scope = (*self.scope, *_targets(node)[:1])
        for name in ("targets", "target", "value"):
            value = getattr(node, name, None)
            if isinstance(value, list):
                setattr(node, name, [self.visit(each) for each in value])
            elif value is not None:
                setattr(node, name, self.visit(value))
        self.scope = outer
        return node

    visit_AnnAssign = visit_Assign

    def visit_Assert(self, node: ast.AST) -> ast.AST:
        return node  # what follows if it does not hold is an error

    visit_Raise = visit_Assert

    # Conditions.

    def _test(self, node: Any, is_asked: bool = True) -> tuple[Any, Slots]:
        """Return a condition that is noted, and where."""
        if self.body is None or isinstance(node, ast.Constant):
            return self.generic_visit(node), None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand, slots = self._test(node.operand, is_asked)
            return node, slots and slots[::-1]
        outer = (self.within, self.is_asked)
        self.is_asked &= is_asked
        place = self.within = self._place(node, is_condition=True)
        if isinstance(node, ast.BoolOp):
            node.values = [*map(self._operand, node.values)]
        else:
            node = self.visit_Call(node, True) if _is_call(node) else self._inside(node)
        self.within, self.is_asked = outer
        return _call(CAME, place.slot, node), (place.slot, place.slot + 1)

    def _inside(self, node: Any) -> Any:
        """Return what is no condition by itself with what is inside noted."""
        if isinstance(node, ast.IfExp):
            return self.visit_IfExp(node)
        return self.generic_visit(node)

    def _condition(self, node: Any) -> Any:
        return self._test(node)[0]

    visit_Compare = _condition

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        *first, last = node.values
        node.values = [*map(self._operand, first), self.visit(last)]
        return node

    def _operand(self, node: Any) -> Any:
        """Return a part of a condition, which is asked by itself if it compares.

        The others are guards, as of a division, or say the same in other words.
        """
        plain = node.operand if isinstance(node, ast.UnaryOp) else node
        compares = isinstance(plain, ast.Compare | ast.BoolOp | ast.BinOp)
        return self._test(node, compares or _last(_called(plain)) in ELEMENTWISE)[0]

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        joins = isinstance(node.op, ast.BitAnd | ast.BitOr)
        if joins and any(isinstance(x, ast.Compare) for x in (node.left, node.right)):
            return self._condition(node)
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self._condition(node)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        node.test = self._condition(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        node.iter = self.visit(node.iter)
        node.ifs = [*map(self._condition, node.ifs)]
        return node

    def visit_Call(self, node: ast.Call, is_noted: bool = False) -> Any:
        name = _last(node.func)
        compares = name in ELEMENTWISE and isinstance(node.func, ast.Attribute)
        if compares and not is_noted:
            return self._condition(node)
        if name == "where" and node.args:
            node.args[0] = self._condition(node.args[0])
            node.args[1:] = [*map(self.visit, node.args[1:])]
            return node
        return self.generic_visit(node)

    def _place(self, node: Any, is_condition: bool = False) -> CoveragePoint:
        slot, is_statement = self.made.slots, isinstance(node, ast.stmt)
        self.made.slots += 2 if is_condition else 1
        assert self.body is not None
        place = CoveragePoint(
            slot,
            self.module,
            node.lineno,
            _text(self.lines, node),
            self.scope,
            self.body,
            slot if is_statement else self.statement,
            self.within,
            is_condition,
            self.is_asked,
            mentions(node),
            constants(node),
        )
        self.made.places.append(place)
        return place


def _text(lines: Sequence[bytes], node: ast.expr | ast.stmt) -> str:
    """Return a node as it is written, of several lines the first of its meaning."""
    if node.lineno == node.end_lineno:
        written = lines[node.lineno - 1][node.col_offset : node.end_col_offset]
        return written.decode()
    return ast.unparse(node).partition("\n")[0]


def squeezed(text: str) -> str:
    """Return a source without its blanks."""
    return "".join(text.split())


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


def _called(node: Any) -> Any:
    return node.func if isinstance(node, ast.Call) else node


def _last(node: ast.AST) -> str:
    """Return the last part of a dotted name, empty for anything else."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _compiles(node: ast.AST) -> bool:
    """Return whether a decorator, or a function that is called, compiles functions."""
    return COMPILED.fullmatch(_last(_called(node))) is not None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _raises(statements: Sequence[ast.stmt]) -> bool:
    """Return whether statements end in ``raise``."""
    match statements:
        case [*_, ast.Raise()]:
            return True
        case [*_, ast.If(body=body, orelse=orelse)]:
            return _raises(body) and _raises(orelse)
        case [*_, ast.With(body=body)]:
            return _raises(body)
    return False


def is_quiet(statements: Sequence[ast.stmt]) -> bool:
    """Return whether statements end in ``raise`` or do nothing."""
    nothing = all(isinstance(each, ast.Pass) or _is_text(each) for each in statements)
    return nothing or _raises(statements)


def _targets(node: ast.AST) -> list[str]:
    """Return the names that a statement assigns to."""
    every = [*getattr(node, "targets", ()), getattr(node, "target", None)]
    found = (name for each in every if each for name in ast.walk(each))
    return [name.id for name in found if isinstance(name, ast.Name)]


def mentions(node: ast.AST) -> set[str]:
    """Return the names in a source, attributes and words among them."""
    found = set()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
            case ast.Constant(value=str(word)) if word.isidentifier():
                found.add(word)
    return found


def constants(node: ast.AST) -> tuple[float, ...]:
    """Return the numbers in a source, and what they come to where they are joined."""
    found: dict[float, None] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp | ast.UnaryOp | ast.Constant):
            parts = (ast.Constant, ast.operator, ast.unaryop, ast.BinOp, ast.UnaryOp)
            if all(isinstance(part, parts) for part in ast.walk(each)):
                value = _computed(each)
                if value is not None:
                    found[value] = None
    return tuple(found)


def _computed(node: Any) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(
            value, bool
        ):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            a = _computed(operand)
            return None if a is None else -a
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _computed(left), _computed(right)
            if a is None or b is None:
                return None
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.Div() if b:
                    return a / b
                case ast.Pow() if 0 < a <= 10 and 0 <= b <= 9:
                    return float(a**b) if isinstance(b, float) else a**b
    return None


def _call(name: str, slot: int, node: ast.expr) -> ast.expr:
    made = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(slot), node], [])
    return ast.copy_location(made, node)


def _note(slot: int, node: ast.stmt) -> ast.stmt:
    lines = ast.Name(LINES, ast.Load())
    target = ast.Subscript(lines, ast.Constant(slot), ast.Store())
    made = ast.copy_location(ast.Assign([target], ast.Constant(1)), node)
    return ast.fix_missing_locations(made)


@contextlib.contextmanager
def watch(
    candidate: Candidate, interpreted: bool = False
) -> Iterator[Callable[[], frozenset[int]]]:
    """Note what a solver runs; yield what returns the slots noted since the last call.

    Parameters
    ----------
    candidate : Candidate
    interpreted : bool
        Whether functions that become machine code are run as they are written.
    """
    try:
        made = sources_of(candidate.solver)
    except (OSError, TypeError):  # no file holds them
        yield frozenset
        return
    noting = Watch(made, candidate.solver, interpreted)
    try:
        yield noting.ran
    finally:
        noting.end()


class Watch:
    """Notes what the functions of some sources run, from now on."""

    def __init__(
        self, made: SolverSources, solver: type[Solver], interpreted: bool = False
    ) -> None:
        self.seen = bytearray(made.slots)
        self.changed: list[tuple[FunctionType, CodeType]] = []
        self.replaced: list[tuple[dict[str, Any], str, Any]] = []
        vars(builtins).update(
            {LINES: self.seen, CAME: self._came, REACHED: self._reached}
        )
        codes = _codes(made, interpreted)
        functions = _functions(made, solver)
        for function in functions:
            code = codes.get((function.__code__.co_filename, function.__code__))
            if code and len(code.co_freevars) == len(function.__code__.co_freevars):
                self.changed.append((function, function.__code__))
                function.__code__ = code
        modules = {id(each.__globals__): each.__globals__ for each in functions}
        for names in modules.values() if interpreted else ():
            for name, value in list(names.items()):
                plain = getattr(value, "py_func", None)
                if any(plain is each for each, _ in self.changed):
                    self.replaced.append((names, name, value))
                    names[name] = plain

    def end(self) -> None:
        """Give the functions the code that they had."""
        for function, code in self.changed:
            function.__code__ = code
        for names, name, value in self.replaced:
            names[name] = value

    def ran(self) -> frozenset[int]:
        """Return the slots that were noted since the last call."""
        found = frozenset(slot for slot, noted in enumerate(self.seen) if noted)
        self.seen[:] = bytes(len(self.seen))
        return found

    def _reached(self, slot: int, value: Any) -> Any:
        self.seen[slot] = 1
        return value

    def _came(self, slot: int, value: Any) -> Any:
        """Note how a condition came out, and return it."""
        if type(value) is bool:
            self.seen[slot + value] = 1
            return value
        try:
            some, every = _outcome(value)
        except Exception:  # it has no truth value, or does not tell
            return value
        if some:
            self.seen[slot + 1] = 1
        if not every:
            self.seen[slot] = 1
        return value


def _outcome(value: Any) -> tuple[bool, bool]:
    """Return whether an entry of a condition is true, and whether all are."""
    if hasattr(value, "nnz"):  # a sparse matrix
        return value.nnz > 0, value.nnz == np.prod(value.shape)
    if np.ndim(value):
        entries = np.asarray(value)
        return bool(entries.any()), bool(entries.all())
    return bool(value), bool(value)


FOLLOWED = (
    *(dict, list, tuple, set, property, classmethod, staticmethod, CellType),
    *(functools.partial, functools.cached_property, type(functools.lru_cache(len))),
)


def _functions(made: SolverSources, solver: type[Solver]) -> list[FunctionType]:
    """Return the functions of some sources, wherever their modules hold them."""
    files = {str(file) for file in made.files.values()}
    todo: list[Any] = [solver, sys.modules.get(solver.__module__)]
    found: list[FunctionType] = []
    known = set(map(id, todo))
    while todo:
        holder = todo.pop()
        for each in gc.get_referents(holder):
            if id(each) in known:
                continue
            match each:
                case FunctionType():
                    if each.__code__.co_filename in files:
                        found.append(each)
                    elif each.__closure__ is None:
                        continue
                case ModuleType():
                    if getattr(each, "__file__", None) not in files:
                        continue
                case dict() if "__spec__" in each:
                    if each.get("__file__") not in files:
                        continue
                case type():
                    if each.__module__ == "builtins":
                        continue
                case _ if not isinstance(each, FOLLOWED):
                    each = getattr(each, "py_func", None)
                    if type(each) is not FunctionType or id(each) in known:
                        continue
                    found.append(each)
            known.add(id(each))
            todo.append(each)
    return [each for each in found if each.__code__.co_filename in files]


def _codes(
    made: SolverSources, interpreted: bool
) -> Mapping[tuple[str, CodeType], CodeType]:
    """Return the code that notes by the file and the code of each function."""
    found: dict[tuple[str, CodeType], CodeType] = {}

    def pair(module: str, old: CodeType, new: CodeType) -> None:
        olds, news = (
            [each for each in code.co_consts if isinstance(each, CodeType)]
            for code in (old, new)
        )
        if [each.co_name for each in olds] != [each.co_name for each in news]:
            return
        for one, other in zip(olds, news, strict=True):
            scope = tuple(x for x in one.co_qualname.split(".") if x != "<locals>")
            if interpreted or not made.is_compiled(module, scope):
                found[one.co_filename, one] = other
                pair(module, one, other)

    for module, file in made.files.items():
        how: Any = {"filename": str(file), "mode": "exec", "dont_inherit": True}
        pair(
            module,
            compile(file.read_bytes(), **how),
            compile(made.noted[module], **how),
        )
    return found


@dataclass(frozen=True)
class Finding:
    """What no replay ran.

    Attributes
    ----------
    place : CoveragePoint
    name : str
        What names it in `exempt`: its text, of a function that never ran its name.
    what : str
        What did not happen.
    """

    place: CoveragePoint
    name: str
    what: str

    def where(self, made: SolverSources) -> str:
        """Return its line, and the module if that is not the solver's own."""
        own = self.place.module == next(iter(made.files))
        line = f"line {self.place.line}, `{self.name}`"
        return line if own else f"{self.place.module}, {line}"

    def sentence(self, made: SolverSources, replays: int) -> str:
        """Return a sentence about a number of replays."""
        return f"{self.where(made)} {self.what} in {replays} replays"


def unrun(made: SolverSources, solver: type[Solver], ran: set[int]) -> list[Finding]:
    """Return what is asked and did not run, the outermost of it, in order.

    Parameters
    ----------
    made : SolverSources
    solver : type of Solver
    ran : set of int
        The slots that were noted.
    """
    asked, found = _asked(made, solver), list[Finding]()
    partly: set[int] = set()  # statements and conditions of which a part is found
    stopped: set[int] = set()  # bodies with a statement that did not run

    def is_explained(body: Body | None) -> bool:
        while body is not None:
            missed = [x for x in (body.owner, body.guard) if x is not None]
            if body.is_quiet or not ran.issuperset(missed):
                return True
            body = body.parent
        return False

    def find(place: CoveragePoint, what: str, name: str = "") -> None:
        found.append(Finding(place, name or place.text, what))
        outer, body = place.within, place.body
        while outer is not None:
            partly.add(outer.slot)
            outer = outer.within
        partly.add(place.statement)
        while body is not None and body.owner is not None:
            partly.add(body.owner)
            body = body.parent or Body()

    places = [one for one in made.places if asked(one) and not is_explained(one.body)]
    # Inner conditions first: they say more.
    for place in reversed(places):
        if place.statement not in ran or place.statement == place.slot:
            continue
        if not place.is_condition:
            if place.slot not in ran:
                find(place, "was not called")
        elif place.is_asked and place.slot not in partly:
            was = [slot in ran for slot in (place.slot, place.slot + 1)]
            if sum(was) == 1:
                find(place, f"was never {'false' if was[1] else 'true'}")
            elif not any(was) and place.statement not in partly:
                find(place, "was not reached")
    before: dict[int, CoveragePoint] = {}
    for place in places:
        if place.statement != place.slot:
            continue
        last = before.get(id(place.body))
        before[id(place.body)] = place
        if place.slot in ran or id(place.body) in stopped:
            continue
        stopped.add(id(place.body))
        if last is None and place.body.is_function:
            find(place, "was not called", place.scope[-1])
        elif last is None or last.slot not in partly:
            find(place, "was not run")
    order = {place.slot: k for k, place in enumerate(made.places)}
    return sorted(found, key=lambda one: order[one.place.slot])


def names_in(made: SolverSources) -> set[str]:
    """Return what may be named in `exempt`, squeezed."""
    scopes = {name for place in made.places for name in place.scope}
    return scopes | {squeezed(place.text) for place in made.places}


def _asked(
    made: SolverSources, solver: type[Solver]
) -> Callable[[CoveragePoint], bool]:
    """Return the function that tells whether a place may run in a fit.

    A unit is a function, a method, or another statement of a module or a class, with
    the names that it mentions. Those of the solver are asked; what they mention is.
    """
    units: dict[tuple[str, Scope], set[str]] = {}
    classes: dict[tuple[str, str], list[str]] = {}
    for module, tree in made.trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[module, node.name] = [_last(base) for base in node.bases]
                for inner in node.body:
                    for name in _names_of(inner):
                        units[module, (node.name, name)] = mentions(inner)
            for name in _names_of(node):
                is_class = isinstance(node, ast.ClassDef)
                units[module, (name,)] = set() if is_class else mentions(node)
    outside = [
        base for base in solver.__mro__ if not _is_of(made, base) and base is not object
    ]
    given = {name for base in outside for name in vars(base)} - LEFT_OUT
    own = {base.__name__: base for base in solver.__mro__ if _is_of(made, base)}
    reached, mentioned = set[tuple[str, Scope]](), {*own} | given

    def runs(module: str, scope: Scope) -> bool:
        name = scope[-1]
        if len(scope) == 1:
            return name in mentioned and name not in given or name in own
        holder = scope[0]
        if holder not in mentioned or (holder in own and name in LEFT_OUT):
            return False
        if holder in own:
            first = next(b for b in solver.__mro__ if name in vars(b) or b is object)
            hidden = first.__name__ != holder and "super" not in mentioned
            return not hidden and (name in mentioned or _is_dunder(name))
        known = {*LEFT_OUT, "object", "ABC", "NamedTuple", "Generic", "Protocol"}
        more = any(base not in known for base in classes[module, holder])
        return more or name in mentioned or _is_dunder(name)

    while more := {one for one in units if one not in reached and runs(*one)}:
        reached |= more
        mentioned |= set().union(*(units[one] for one in more))

    def asked(place: CoveragePoint) -> bool:
        parts = (place.scope[:depth] for depth in (1, 2))
        every = [
            (place.module, part) for part in parts if len(part) <= len(place.scope)
        ]
        known = [one for one in every if one in units]
        return not known or known[-1] in reached

    return asked


def _names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module or a class defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.ClassDef(name=name):
            return [name]
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return _targets(node)
        case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
            return [each.asname for each in aliases if each.asname]
    return []


def _is_of(made: SolverSources, cls: type) -> bool:
    """Return whether a class is defined in some sources."""
    try:
        return Path(inspect.getfile(cls)) in made.files.values()
    except (OSError, TypeError):
        return False


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


MOST_N, MOST_P, MOST_BATCH, MOST_LENGTH = 20_000, 2_000, 64, 2_000
"""Largest sizes that a constant of the source asks for."""
SHORT = 12
"""Steps of a run that further ones begin with, about."""
WIDE, ROWS, WIDEST = 200, 6, 600
"""Columns that rows of parameters meet, so many rows at most; a condition alone."""
MANY, TRIALS = 12_008, 6
"""Records and trials that are met anyway."""
EACH, AT_ONCE = 200, 12
"""Cases of a condition in a round, at most, and how many of them run together."""
SAMPLE = 60
"""Cases in which what is compiled is run as it is written."""
NEAR, FAR, HUGE = 1e-6, 1e12, 1e299
"""Noise that leaves iterates, that takes them far away, and that overflows."""
FREE = ("none", "none")
"""Penalty and set of a problem whose iterates may be anywhere."""
Round = tuple[list[Case], bool]


def directed(
    candidate: Candidate,
    results: Sequence[Any],
    others: Callable[[], Sequence[Any]],
) -> Iterator[Round]:
    """Yield cases that may run what no replay ran, and larger ones.

    A condition that came out one way is met again from the first case that met it, with
    the numbers that it mentions for n, p, parameters, the length, the batch and z; then
    on all objectives and families; then where nothing is judged. What that reaches may
    hold further conditions, so that this is done twice.

    Parameters
    ----------
    candidate : Candidate
    results : sequence of ReplayResult
        Of all cases so far, those that are yielded among them.
    others : callable
        Returns the results of other cases.

    Yields
    ------
    tuple of (list of Case, bool)
        Cases, and whether what is compiled is run as it is written.
    """
    try:
        made = sources_of(candidate.solver)
    except (OSError, TypeError):
        return
    yield from _sought(candidate, made, results, others)
    # Last: they may run a line where nothing that it does shows.
    if sizes := list(larger(candidate, made, results)):
        yield sizes, False


def _sought(
    candidate: Candidate,
    made: SolverSources,
    results: Sequence[Any],
    others: Callable[[], Sequence[Any]],
) -> Iterator[Round]:
    """Yield the cases of `directed` that conditions ask for."""

    def missed() -> list[CoveragePoint]:
        ran = set[int]().union(*(one.ran for one in [*results, *more]))
        return [one.place for one in unrun(made, candidate.solver, ran)]

    more: Sequence[Any] = ()
    if not missed():
        return
    more = others()
    if any(made.is_compiled(one.module, one.scope) for one in missed()):
        small = [one.case for one in results if one.case.family not in LARGE]
        yield small[:: math.ceil(len(small) / SAMPLE)], True
    # No case makes another one of what a module assigns once for all.
    fixed = {
        name
        for tree in made.trees.values()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in _targets(node)
    }
    tried = set[Case]()
    for kind in (_with_numbers, _with_numbers, _elsewhere, _unjudged, _with_numbers):
        met, left = list(enumerate(results)), dict[CoveragePoint, list[Case]]()
        for place in missed():
            if place.names and place.names <= fixed:
                continue
            # Parts of a condition are met last where all before them hold; a
            # short run that meets the last one is as good as any.
            parts = [x for x in made.places if place in (x, x.within)]
            meeting = [[k for k, one in met if _meets(one, x)] for x in parts]
            if meeting and all(meeting):
                last = max(meeting, key=min)
                short = min(last, key=lambda k: abs(results[k].length - SHORT))
                base = replace(results[short].case, toggled=None, untold=False)
                left[place] = list(kind(candidate, made, place, base))[:EACH]
        # Some at a time: what has come out both ways needs no more.
        while left:
            cases = [case for more in left.values() for case in more[:AT_ONCE]]
            cases = [case for case in dict.fromkeys(cases) if case not in tried]
            tried.update(cases)
            if cases:
                yield cases, False
            now = missed()
            left = {x: y[AT_ONCE:] for x, y in left.items() if x in now and y[AT_ONCE:]}


def larger(
    candidate: Candidate, made: SolverSources, results: Sequence[Any]
) -> Iterator[Case]:
    """Yield cases of sizes that no condition asks for: an index, a slice, a minimum.

    `ROWS` rows of parameters at most on `WIDE` columns, and the first one on two more
    than each number that the sources mention, as n, p, the length and the batch.
    """
    served = [
        replace(one.case, points="few", z=1.0, untold=False)
        for one in results
        if not (one.refusal or one.case.toggled is not None or candidate.foreign)
        and one.case.judged
        and one.case.family in FAMILIES
        and one.case.family not in LARGE
        and one.case.parts[1] in separable_penalties()
    ]
    first: dict[Any, Case] = {}
    for case in served:
        first.setdefault(case.params, case)
    rows = list(first.values())
    for case in rows[:: max(1, math.ceil(len(rows) / ROWS))]:
        yield replace(case, family=sized(case.family, _sizes(case.family)[0], WIDE))
    for base in rows[:1]:
        n, p = _sizes(base.family)
        asked = _asked(made, candidate.solver)
        places = [place for place in made.places if asked(place)]
        names = set[str]().union(*(place.names for place in places))
        numbers = {x for place in places for x in place.constants}
        for tree in made.trees.values():
            for node in tree.body:
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                    if names.intersection(_targets(node)):
                        numbers.update(constants(node.value))
        whole = sorted({int(x) for x in numbers if 0 <= x <= MOST_N and x == int(x)})
        # Two more: what begins there has an end, too.
        for x in (x + 2 for x in whole):
            if WIDE < x <= MOST_P:
                yield replace(base, family=sized(base.family, n, x))
            if MANY < x <= MOST_N:
                yield replace(base, family=sized(base.family, x, p))
            if TRIALS < x <= MOST_BATCH and candidate.solver.batchable:
                yield replace(base, trials=x, group=f"{base.group}, {x} trials")
            if 2 * LONG < x <= MOST_LENGTH:
                # Near the minimum, where records still differ.
                near = replace(base, z=0.1, parts=_growing(candidate, base.parts))
                yield from _changed(candidate, near, f"{x} steps", {}, x)


def _meets(result: Any, place: CoveragePoint) -> bool:
    """Return whether a condition came out in a case."""
    slots = (place.slot, place.slot + 1)
    return place.is_condition and not result.ran.isdisjoint(slots)


def _with_numbers(
    candidate: Candidate, made: SolverSources, place: CoveragePoint, base: Case
) -> Iterator[Case]:
    """Yield a case with each number that a condition mentions, and those beside it."""
    (other,) = set(Adjacency) - {base.adjacency}
    yield replace(base, adjacency=other)
    numbers = _numbers(candidate, made, place)
    whole = {int(x) + k for x in numbers if abs(x) < 1e9 for k in (-1, 0, 1, 2)}
    real = {x * k for x in numbers for k in (1.0, 0.999, 1.001)}
    for name, metadata in _numeric(candidate):
        values = whole if "int" in str(candidate.parameters[name].type) else real
        for value in sorted(values):
            if within(value, metadata):
                yield from _changed(candidate, base, f"{name}={value:g}", {name: value})
    for length in sorted(x for x in whole if MOST < x <= MOST_LENGTH):
        yield from _changed(candidate, base, f"{length} steps", {}, length)
    if not candidate.foreign:
        n, p = _sizes(base.family)
        for x in sorted(whole):
            for size, most, sizes in ((x, MOST_N, (x, p)), (x, MOST_P, (n, x))):
                if sizes[0] >= 2 and 1 <= size <= most:
                    family = sized(base.family, *sizes)
                    yield replace(base, family=family, points="few")
    if candidate.solver.batchable:
        for trials in sorted(x for x in whole if 1 <= x <= MOST_BATCH):
            yield replace(base, trials=trials, group=f"{base.group}, {trials} trials")
    factors = (0.1, 1.0, 10.0, 1e3, 1e6)
    for z in sorted({x * k for x in numbers for k in factors if NEAR < x < FAR}):
        far = replace(base, z=z, group=f"{base.group}, z={z:g}")
        # First, for what has come out both ways is met no more.
        if not candidate.foreign:
            parts = _growing(candidate, base.parts)
            yield replace(far, parts=parts)
        yield far
    if {"penalty", "strength", "l1", "l2", "separable"} & place.names:
        parts = (base.parts[0], "l2", "none")
        for strength in sorted(x for x in real if x > 0.0):
            group = f"{base.group}, strength={strength:g}"
            for each in dict.fromkeys((base.parts, parts)):
                yield replace(base, strength=strength, parts=each, group=group)


def _growing(candidate: Candidate, parts: Parts) -> Parts:
    """Return an objective on which a record decides far from the start, too.

    Where the slope of a loss vanishes all neighbours are alike, whatever is read.
    """
    lasting = [
        loss
        for loss in dict.fromkeys(one[0] for one in candidate.objectives())
        if abs(registry.build("loss", loss).derivative(np.ones(1), np.array([-1e9]))[0])
    ]
    free = (one for one in candidate.objectives() if one[0] in lasting)
    return next((one for one in free if one[1:] == parts[1:]), parts)


def _elsewhere(
    candidate: Candidate, made: SolverSources, place: CoveragePoint, base: Case
) -> Iterator[Case]:
    """Yield a case on every objective, refused ones among them, and every family."""
    if candidate.foreign:
        return
    for z in (FAR, NEAR):
        yield replace(base, z=z, group=f"{base.group}, z={z:g}")
    for parts in candidate.objectives():
        for params in (base.params, _with_clip(base, None)):
            yield replace(base, parts=parts, params=params, points="few")
    sizes = place.names & {"shape", "size", "len"}
    n, p = _sizes(base.family)
    for name, *size in (("p", n, WIDE), ("p", n, WIDEST), ("n", MOST_N, p)):
        if sizes or name in place.names:
            yield replace(base, family=sized(base.family, *size), points="ends")
    small = [family for family in FAMILIES if "many" not in family]
    for family in [*small, f"{CORNERS} 0"]:
        # Whom a budget meets without bounds takes its constants from the data.
        calibrated = base.calibrated and family != "no bounds"
        how: dict[str, Any] = {"points": "few", "calibrated": calibrated}
        for params in (base.params, _with_clip(base, None)):
            yield replace(base, family=family, params=params, **how)


def _unjudged(
    candidate: Candidate, made: SolverSources, place: CoveragePoint, base: Case
) -> Iterator[Case]:
    """Yield cases in which nothing is private, or numbers overflow."""
    base = replace(base, judged=False, brief=True, points="all")
    unbounded = replace(base, params=_with_clip(base, None))
    yield from (replace(one, z=0.0) for one in (base, unbounded))
    free = [base]
    if not candidate.foreign:
        yield replace(base, family=BLANK)
        yield replace(unbounded, family="no bounds", z=0.0)
        # A box or a set keeps all that is computed within bounds.
        clipped = replace(base, params=_with_clip(base, 1.0), family="outlier")
        losses = [parts for parts in candidate.objectives() if parts[1:] == FREE]
        free += [replace(clipped, parts=parts) for parts in losses]
    huge = {
        name: HUGE
        for name, metadata in _numeric(candidate)
        if "float" in str(candidate.parameters[name].type) and within(HUGE, metadata)
    }
    for name, one_of in candidate.parameters.items():
        for choice in one_of.metadata.get("choices", ()):
            for one in (replace(base, z=0.0), replace(unbounded, z=0.0)):
                words = f"{name}={choice}, no noise"
                yield from _changed(candidate, one, words, {name: choice})
    for one in free:
        yield replace(one, z=HUGE)
        if not candidate.foreign:
            yield from (replace(one, family=ENORMOUS, z=z) for z in (base.z, HUGE))
        for values in (huge, *({name: HUGE} for name in huge)):
            yield from _changed(candidate, one, "overflowing", values)


def _changed(
    candidate: Candidate,
    base: Case,
    words: str,
    values: Mapping[str, Any],
    least: int = 0,
) -> Iterator[Case]:
    """Yield the case with other parameters, or with a least length, if it can be."""
    params = {**dict(base.params), **values}
    with contextlib.suppress(Exception):  # two values that do not go together
        solver: Any = candidate.build(params)
        names = (base.family, base.adjacency, base.parts, base.strength)
        problem = candidate.neighbours(*names).first
        if least:
            solver = resized(solver, problem, least, 2 * least)
        if solver.iterations(problem) <= 2 * MOST_LENGTH:
            every = tuple((name, getattr(solver, name)) for name in params)
            yield replace(base, params=every, group=f"{base.group}, {words}")


def _numeric(candidate: Candidate) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names of parameters that are numbers, and their limits."""
    for name, one in candidate.parameters.items():
        words = "choices" in one.metadata or isinstance(one.default, bool)
        if not words and ("int" in str(one.type) or "float" in str(one.type)):
            yield name, one.metadata


def _with_clip(base: Case, clip: float | None) -> tuple[tuple[str, Any], ...]:
    given = dict(base.params)
    return tuple((given | ({"clip": clip} if "clip" in given else {})).items())


def _sizes(family: str) -> tuple[int, ...]:
    """Return n and p of a family that `sized` named, else those of ``outlier``."""
    return sizes_of(family)[:2] or (10, 4)


def _numbers(
    candidate: Candidate, made: SolverSources, place: CoveragePoint
) -> tuple[float, ...]:
    """Return the numbers that a condition mentions, by name or in what is assigned."""
    found = dict.fromkeys(place.constants)
    names, known = set(place.names), set[str]()
    for _ in range(2):
        for tree in made.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                    targets = names.intersection(_targets(node)) - known
                    if targets and node.value is not None:
                        found |= dict.fromkeys(constants(node.value))
                        known |= targets
                        names |= mentions(node.value)
    return tuple(x for x in found if math.isfinite(x))
