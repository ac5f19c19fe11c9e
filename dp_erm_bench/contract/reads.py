"""Where a solver reads the data: the line that a failed replay names.

In the process of a side the members through which a solver reaches the records note
the line of its source that asks them; ordinary runs have them as they are. Of a line
the source then says where its value goes: into arguments of mechanisms, which publish
it, or elsewhere, too. This is a help for the reader of a verdict and no part of it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.paths import file_digest
from dp_erm_bench.plugins.names import origin, sources
from dp_erm_bench.problems.base import Oracle, Problem
from dp_erm_bench.problems.erm.objective import ERM, Smoothness
from dp_erm_bench.problems.erm.oracles import DenseOracle, GramOracle, SparseOracle
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.single_use_gaussian import SingleUseMechanism
from dp_erm_bench.solvers.base import Solver

Chain = tuple[tuple[CodeType, int], ...]
"""The places in a solver's sources that a read comes from, the innermost first."""

DATA = (
    *("X", "y", "rows", "row_norms", "X_test", "y_test", "content_hash"),
    *("value", "gradient", "hessian", "largest_records", "clipped_squares"),
    *("gradient_rms", "optimum", "identity", "key", "references", "mean"),
    *("measures", "last_measures"),
    *("margins", "columns", "residuals", "clipped_sum", "objective", "product"),
    *("transposed_product", "coordinate_gradient", "record_sum", "norm"),
    *("coordinate_steps", "stochastic_steps", "variance_reduced_steps"),
)
"""Members that return what depends on the records."""

PUBLIC = (
    *("n", "p", "entries", "sparse", "fixed", "by_moments", "start", "oracle"),
    *("with_smoothness", "with_released", "__init__", "__post_init__", "_out"),
)
"""What asks for records on its way, and returns nothing of theirs."""

SHAPES = ("shape", "ndim", "dtype")
MOST, DEPTH, WIDTH = 20_000, 40, 80
PARTS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Reads:
    """The reads of a run in the sources of a solver, in order.

    Parameters
    ----------
    files : tuple of str
        The sources, the solver's own first.
    """

    def __init__(self, files: tuple[str, ...] = ()) -> None:
        self.files = files
        self.chains: deque[Chain] = deque(maxlen=MOST)
        self.count = 0

    def note(self, frame: FrameType | None) -> None:
        """Note a read that a frame asks for, if it is on behalf of the solver."""
        chain: list[tuple[CodeType, int]] = []
        for _ in range(DEPTH):
            if frame is None:
                break
            code = frame.f_code
            if code.co_filename in self.files:
                chain.append((code, frame.f_lasti))
            elif chain:
                break
            elif code.co_name in PUBLIC:
                return
            frame = frame.f_back
        if chain:
            self.count += 1
            self.chains.append(tuple(chain))

    def last(self, count: int) -> str:
        """Return the place of the last read past the mechanisms, empty if none is.

        Parameters
        ----------
        count : int
            Of the first so many reads.
        """
        chains = list(self.chains)
        known: dict[Chain, str] = {}
        for chain in reversed(chains[: max(0, len(chains) - (self.count - count))]):
            if chain not in known:
                known[chain] = _place(chain, self.files[0])
            if known[chain]:
                return known[chain]
        return ""


_files: tuple[str, ...] = ()
_reads: Reads | None = None
_inside = False


def watch(solver: type[Solver]) -> None:
    """Have the members that read records listened to in this process, from now on."""
    global _files
    kinds = [cls for cls in solver.__mro__ if issubclass(cls, Solver)]
    own = [inspect.getfile(cls) for cls in kinds if cls is not Solver]
    _files = tuple(dict.fromkeys([*own, *map(str, sources(own[0]).values())]))
    classes = {Dataset, ERM, ERMProblem, Smoothness, Problem, Oracle}
    for oracle in (DenseOracle, SparseOracle, GramOracle):
        classes.update(oracle.__mro__)
    classes.update(solver.serves.__mro__)
    for cls in classes - {object}:
        for name in [name for name in DATA if name in vars(cls)]:
            _listen(cls, name, vars(cls)[name])
    _listen(SingleUseMechanism, "next_records", SingleUseMechanism.next_records)
    common = DenseOracle.__mro__[1]
    fields = {Dataset: ("X", "y", "X_test", "y_test"), common: ("y",)}
    for cls in classes:
        if origin(cls):  # a problem of the solver's own file
            fields[cls] = tuple(getattr(cls, "__dataclass_fields__", ()))
    for cls, names in fields.items():
        for name in names:
            _listen(cls, name, vars(cls).get(name))


@contextlib.contextmanager
def noted() -> Iterator[Reads]:
    """Yield what holds the reads within; none where nothing is listened to."""
    global _reads
    _reads = reads = Reads(_files)
    try:
        yield reads
    finally:
        _reads = None


def _listen(cls: type, name: str, member: Any) -> None:
    if isinstance(member, _Member | staticmethod | classmethod | tuple):
        return
    watched = listening(member) if callable(member) else _Member(name, member)
    setattr(cls, name, watched)


def _asked(one: Any, frame: FrameType) -> None:
    public = isinstance(one, Smoothness) and one.kind != "data"
    if _reads is not None and not _inside and not public:
        _reads.note(frame)


def listening(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose calls are noted as reads."""

    @functools.wraps(function)
    def asked(*args: Any, **keys: Any) -> Any:
        global _inside
        if _reads is None or _inside:
            return function(*args, **keys)
        _asked(next(iter(args), None), sys._getframe(1))
        _inside = True
        try:
            return function(*args, **keys)
        finally:
            _inside = False

    return asked


class _Member:
    """A field, a property or a cached one whose reads are noted."""

    def __init__(self, name: str, plain: Any) -> None:
        self.name, self.plain = name, plain
        if getattr(plain, "__isabstractmethod__", False):
            self.__isabstractmethod__ = True

    def __get__(self, one: Any, kind: Any = None) -> Any:
        global _inside
        if one is None:
            return self.default()
        held = vars(one).get(self.name, self)
        if hasattr(self.plain, "__get__") or hasattr(held, "shape"):
            _asked(one, sys._getframe(1))
        if held is not self:
            return held
        if not hasattr(self.plain, "__get__"):
            return self.default()
        before, _inside = _inside, True
        try:
            return self.plain.__get__(one, kind)
        finally:
            _inside = before

    def default(self) -> Any:
        """Return the member as the class has it; a field may have none."""
        if self.plain is None:
            raise AttributeError(self.name)
        return self.plain

    def __set__(self, one: Any, value: Any) -> None:
        vars(one)[self.name] = value


def _place(chain: Chain, main: str) -> str:
    """Return the line of a read that goes past the mechanisms, empty if it does not."""
    code, last = chain[0]
    try:
        tree = _source(code.co_filename)
        nodes = [node for node in map(_node, chain) if node is not None]
        if nodes and not tree.escapes(nodes[0], nodes[1:], set()):
            return ""
    except Exception:  # a source that is not as expected is named as it stands
        pass
    number = _position(code, last)[0] or code.co_firstlineno
    words = " ".join(linecache.getline(code.co_filename, number).split())
    words = words if len(words) <= WIDTH else f"{words[:WIDTH]}..."
    other = code.co_filename != main
    where = f" of {Path(code.co_filename).name}" if other else ""
    return f"line {number}{where}, `{words}`"


def _position(code: CodeType, last: int) -> tuple[int | None, ...]:
    return list(code.co_positions())[last // 2]


def _node(place: tuple[CodeType, int]) -> ast.AST | None:
    """Return the expression at a place; None within a comprehension's own frame."""
    code, last = place
    return _source(code.co_filename).spots.get(_position(code, last))


def _source(path: str) -> _DataFlow:
    return _flow(path, file_digest(Path(path)))


@functools.cache
def _flow(path: str, content: str) -> _DataFlow:
    return _DataFlow(path)


class _DataFlow:
    """A source, and where in it values go.

    A value is followed from expression to statement, from an assigned name to all its
    uses in the function, into functions of the same file and back from them.
    """

    def __init__(self, path: str) -> None:
        self.tree = ast.parse(Path(path).read_bytes())
        self.parents: dict[ast.AST, ast.AST] = {}
        self.spots: dict[tuple[int | None, ...], ast.AST] = {}
        for parent in ast.walk(self.tree):
            for child in ast.iter_child_nodes(parent):
                self.parents[child] = parent
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr):
                ends = node.lineno, node.end_lineno, node.col_offset
                self.spots[(*ends, node.end_col_offset)] = node
        nodes = list(ast.walk(self.tree))
        self.functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]

    def escapes(
        self, node: ast.AST, callers: list[ast.AST], seen: set[ast.AST]
    ) -> bool:
        """Return whether a value gets elsewhere than into mechanisms' arguments.

        Parameters
        ----------
        node : AST
            The expression.
        callers : list of AST
            The calls by which its function was reached, the innermost first.
        seen : set of AST
            The expressions that were followed already.
        """
        if node in seen:
            return False
        seen.add(node)
        trail, function = [node], self.function_of(node)
        while True:
            child = trail[-1]
            parent = self.parents[child]
            match parent:
                case ast.Call() if child is not parent.func:
                    if self.publishes(parent.func, function):
                        return False
                    made = self.defined(parent.func)
                    if made is not None:
                        names = self.parameters(made, parent, child)
                        return self.used(names, made, [parent, *callers], seen)
                case ast.Attribute(attr=attribute) if attribute in SHAPES:
                    return False
                case ast.comprehension() if child is parent.iter:
                    names = _names(parent.target)
                    if self.used(names, function, callers, seen):
                        return True
                    parent = self.parents[parent]
                    trail.append(parent)
                    continue
                case ast.Assign(targets=targets):
                    return self.assigned(targets, trail, callers, seen)
                case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                    return self.assigned([target], trail, callers, seen)
                case ast.NamedExpr(target=target) if child is not target:
                    if self.assigned([target], trail, callers, seen):
                        return True
                case ast.For(target=target) if child is parent.iter:
                    return self.assigned([target], trail, callers, seen)
                case ast.Return():
                    # Of a function that a harness calls it gets out.
                    return not callers or self.escapes(callers[0], callers[1:], seen)
                case ast.Expr():
                    return self.discarded(trail, function, callers, seen)
                case ast.Yield() | ast.YieldFrom() | ast.Lambda() | ast.stmt():
                    return True
            trail.append(parent)

    def assigned(
        self,
        targets: list[ast.expr],
        trail: list[ast.AST],
        callers: list[ast.AST],
        seen: set[ast.AST],
    ) -> bool:
        """Return whether what is assigned escapes, the trail ending at the value."""
        function, whole = self.function_of(trail[0]), trail[-1]
        for target in targets:
            many = isinstance(target, ast.Tuple | ast.List)
            if many and isinstance(whole, ast.Tuple) and len(trail) > 1:
                at = whole.elts.index(trail[-2])  # type: ignore[arg-type]
                if len(whole.elts) == len(target.elts):  # type: ignore[attr-defined]
                    target = target.elts[at]  # type: ignore[attr-defined]
            names, fields = _names(target), _fields(target)
            if not names and not fields:
                return True
            if self.used(names, function, callers, seen):
                return True
            if any(self.escapes(use, [], seen) for use in self.read_fields(fields)):
                return True
        return False

    def discarded(
        self,
        trail: list[ast.AST],
        function: ast.AST,
        callers: list[ast.AST],
        seen: set[ast.AST],
    ) -> bool:
        """Return whether the value of a statement that assigns none escapes."""
        calls = [node for node in trail if isinstance(node, ast.Call)]
        calls = calls[1:] if trail and trail[0] in calls else calls
        for call in calls:
            # As in names.append(value).
            if isinstance(call.func, ast.Attribute) and _names(call.func.value):
                names = _names(call.func.value)
                if self.used(names, function, callers, seen):
                    return True
            else:
                return True
        return False

    def used(
        self,
        names: set[str],
        function: ast.AST,
        callers: list[ast.AST],
        seen: set[ast.AST],
    ) -> bool:
        """Return whether a use of names in a function escapes."""
        uses = (
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Name)
            and node.id in names
            and isinstance(node.ctx, ast.Load)
        )
        return any(self.escapes(use, callers, seen) for use in uses)

    def read_fields(self, names: set[str]) -> Iterator[ast.AST]:
        """Yield the reads of attributes of some names, of whatever object."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and node.attr in names:
                if isinstance(node.ctx, ast.Load):
                    yield node

    def publishes(self, func: ast.AST, function: ast.AST) -> bool:
        """Return whether what is called is a mechanism."""
        match func:
            case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)):
                return "mechanism" in name.lower()
            case ast.Attribute(attr="publish", value=value):
                return self.publishes(value, function)
            case ast.Name(id=name):
                return name in _arguments(function) or self.is_bound(
                    lambda target: isinstance(target, ast.Name) and target.id == name,
                    function,
                )
            case ast.Attribute(attr=name):
                return self.is_bound(
                    lambda target: (
                        isinstance(target, ast.Attribute) and target.attr == name
                    ),
                    self.tree,
                )
        return False

    def is_bound(self, named: Callable[[ast.AST], bool], within: ast.AST) -> bool:
        """Return whether a mechanism is assigned to what has a name."""
        for node in ast.walk(within):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                targets = (
                    node.targets if isinstance(node, ast.Assign) else [node.target]
                )
                for target in targets:
                    pairs = [(target, node.value)]
                    if isinstance(target, ast.Tuple) and isinstance(
                        node.value, ast.Tuple
                    ):
                        pairs = list(zip(target.elts, node.value.elts, strict=False))
                    for place, value in pairs:
                        held = isinstance(value, ast.Subscript)
                        if held and named(place) and self.publishes(value, within):
                            return True
        return False

    def function_of(self, node: ast.AST) -> ast.AST:
        """Return the function that an expression is in, or the module."""
        while node in self.parents and not _is_function(node):
            node = self.parents[node]
        return node

    def defined(self, func: ast.AST) -> Any:
        """Return the function of this file that is called, None if none is."""
        match func:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found = [made for made in self.functions if made.name == name]
                return found[0] if len(found) == 1 else None
        return None

    @staticmethod
    def parameters(made: Any, call: ast.Call, child: ast.AST) -> set[str]:
        """Return the parameter of a function that an argument of a call is for."""
        if isinstance(child, ast.keyword) and child.arg:
            return {child.arg}
        names = [argument.arg for argument in (*made.args.posonlyargs, *made.args.args)]
        bound = isinstance(call.func, ast.Attribute) and names[:1] in (
            ["self"],
            ["cls"],
        )
        place = call.args.index(child) + bound if child in call.args else len(names)
        return {names[place]} if place < len(names) else set(names)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _arguments(function: ast.AST) -> set[str]:
    if not isinstance(function, ast.FunctionDef):
        return set()
    return {argument.arg for argument in function.args.args}


def _names(target: ast.AST) -> set[str]:
    """Return the local names that an assignment is to, of arrays, too."""
    match target:
        case ast.Name(id=name):
            return {name}
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return set().union(*map(_names, parts))
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return _names(value)
    return set()


def _fields(target: ast.AST) -> set[str]:
    """Return the attributes of the solver's own objects that an assignment is to."""
    match target:
        case ast.Attribute(attr=name, value=ast.Name(id="self")):
            return {name}
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return set().union(*map(_fields, parts))
        case ast.Subscript(value=value):
            return _fields(value)
    return set()
