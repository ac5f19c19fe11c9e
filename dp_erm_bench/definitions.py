"""Digests of definitions: what code computes, without where and how it is written.

A *definition* is a statement at the top of a module: a function, a class as a whole, a
constant. Its digest is of its source and of the digests of all that it names, at any
depth. It does not change with a comment, a docstring, blanks, indentation, the name or
the place of a file, the name of a private function or constant, or with definitions
that it does not reach. It does with any other token, also with a comma or a pair of
parentheses that a formatter adds.

In the source a name is replaced by what it stands for, so that two modules that
exchange their functions are told apart. Beside what it names a definition reaches

- what is registered for it: a function or class whose decorator is called with it
  (``@overload(exp)``), and what fills a table that it reads, be it a function, a
  decorator with all that it decorates, or a statement at the top of a module;
- statements at the top of its module, and of the modules that this imports, that do
  more than to define: they act when the module is imported;
- all subclasses of a class that asks for them, and all of a module that is used as a
  value.

Annotations are source, but what they name is not reached. What is found by a string
(`registry`) is not either: who chooses it names it as a root. Only the standard library
is used here, and nothing that is read is imported.
"""

from __future__ import annotations

import ast
import bisect
import functools
import importlib.machinery
import importlib.util
import io
import itertools
import json
import os
import sys
import tokenize
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.cached import load_sealed, save_sealed

PACKAGE = __name__.partition(".")[0]
INERT = (
    *("cached", "definitions", "experiment", "machine_code", "paths", "plugins"),
    *("registry", "results"),
)
"""Parts of the package that find, keep and schedule what is computed elsewhere.

Nothing that they define is reached; what they decide enters keys by itself.
"""

LAYERS = (
    *("kernels", "datasets", "losses", "norms", "penalties", "constraints"),
    *("problems", "releases", "accounting", "solvers"),
)
"""Parts of the package that are searched for what is registered for a definition."""

PURE = ("abc", "contextlib", "dataclasses", "enum", "functools", "numba.njit", "typing")
"""Decorators that register nothing but what they are called with."""

_PURE = tuple(f"{name}." for name in PURE)

MUTATING = (
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem"),
    *("register", "remove", "setdefault", "update"),
)
BY_STRING = ("eval", "exec", "globals", "sys.modules")
"""What finds definitions of a module by their names."""

HOLE = "\0"
"""Stands in a source for a name."""

Place = tuple[str, int]
"""A module, and the number of a statement at its top."""

Position = tuple[int, int]


class Statement(NamedTuple):
    """A statement at the top of a module, JSON-able.

    Attributes
    ----------
    line : int
        Its first line, that of a decorator if it has one.
    kind : {"function", "class", "value", "act"}
        An act does more than to define.
    binds : list of str
        The names that it defines.
    source : str
        Digest of its tokens, with holes for `names`.
    names : list of str
        What it names, with attributes, in the order of the holes; then what f-strings
        and imports in it name.
    outer : list of str
        Those outside of functions: in decorators, bases and the bodies of classes.
    calls : list of str
        Those of them that are called there.
    imports : dict
        Level, module and name of all that is imported within it, by the name it binds.
    decorators : list
        Of each its name, and the names that it is called with or None.
    bases, mutates : list of str
        Bases of a class; names whose values it changes.
    asks : bool
        Whether it asks for subclasses.
    hooks : list of str
        What it calls when a class is derived from it.
    """

    line: int
    kind: str
    binds: list[str]
    source: str
    names: list[str]
    outer: list[str]
    calls: list[str]
    imports: dict[str, list[list[Any]]]
    decorators: list[list[Any]]
    bases: list[str]
    mutates: list[str]
    asks: bool
    hooks: list[str]


class Module(NamedTuple):
    """What a file says, JSON-able.

    Attributes
    ----------
    imports : dict
        Level, module and name of all that is imported at its top, by the name it binds.
    imported : list
        The same of all imports, wherever they stand.
    statements : list of Statement
    """

    imports: dict[str, list[list[Any]]]
    imported: list[list[Any]]
    statements: list[Statement]


# One file ---------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def summary(source: bytes) -> Module:
    """Return what a file says; it is kept in the cache, by the digest of its bytes.

    Raises
    ------
    SyntaxError, ValueError
        If it is no Python.
    """
    key = _sha(_own(), sha256(source).hexdigest())
    if (kept := _load(key)) is not None:
        imports, imported, statements = kept
        return Module(imports, imported, [Statement(*each) for each in statements])
    made = _parsed(source)
    _save(key, made)
    return made


def _load(key: str) -> Any:
    """Return what is kept under a key and sealed by the user's, None without any."""
    raw = load_sealed("definitions", key)
    return None if raw is None else json.loads(raw)


def _save(key: str, value: Any) -> None:
    save_sealed("definitions", key, json.dumps(value).encode())


def _parsed(source: bytes) -> Module:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    # Every end of a line is one to Python; to its tokens a lone return is none.
    lines = io.StringIO(source.decode(encoding), newline=None).read()
    body = ast.parse(lines).body
    if any(_imports_type_checking(node) for node in body):
        body = [node for node in body if not _is_for_types(node)]
    text = _Text(lines)
    imports: dict[str, list[list[Any]]] = {}
    imported: list[list[Any]] = []
    statements: list[Statement] = []
    for node in body:
        for each in ast.walk(node):
            if isinstance(each, ast.Import | ast.ImportFrom):
                imported += _imported_by(each).values()
            elif isinstance(each, ast.Call):
                imported += [[0, name, None] for name in _imported_by_call(each)]
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, what in _imported_by(node, binding=True).items():
                imports.setdefault(name, []).append(what)
        elif not _is_text(node):
            statements.append(_statement(node, text))
    return Module(imports, imported, statements)


def _is_text(node: ast.AST) -> bool:
    """Return whether it is a docstring, or another text that does nothing."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _imports_type_checking(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(each.name == "TYPE_CHECKING" for each in node.names)
    return isinstance(node, ast.Import) and node.names[0].name == "typing"


def _is_for_types(node: ast.AST) -> bool:
    known = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    return isinstance(node, ast.If) and not node.orelse and _chain(node.test) in known


def _imported_by(
    node: ast.Import | ast.ImportFrom, binding: bool = False
) -> dict[str, list[Any]]:
    """Return what an import imports, by the names that it binds or by all of it."""
    if isinstance(node, ast.ImportFrom):
        where = [node.level, node.module or ""]
        return {each.asname or each.name: [*where, each.name] for each in node.names}
    found: dict[str, list[Any]] = {}
    for each in node.names:
        top = each.name.partition(".")[0]
        whole = bool(each.asname) or not binding
        found[each.asname or (top if binding else each.name)] = [
            0,
            each.name if whole else top,
            None,
        ]
    return found


def _imported_by_call(node: ast.Call) -> Iterator[str]:
    """Yield the module that a call imports by a name that is written there."""
    if _chain(node.func).rpartition(".")[2] in ("import_module", "__import__"):
        for each in node.args[:1]:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                # With its dots it is one name here.
                yield each.value


def _chain(node: ast.AST) -> str:
    """Return a name with attributes, as in ``a.b.c``, empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, but nothing that is in functions and classes."""
    yield node
    if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _outside(child)


def _statement(node: ast.stmt, text: _Text) -> Statement:
    names = _Names()
    names.visit(node)
    binds = [*dict.fromkeys(_bound(node))]
    source, order = text.of(node, names, binds)
    kind = "act" if _acts(node) else "value"
    if isinstance(node, _DEFINITIONS):
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
    lines = [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
    return Statement(
        min(lines),
        kind,
        binds,
        source,
        order,
        sorted(names.outer),
        sorted(names.called),
        names.imported,
        [_decorator(each) for each in getattr(node, "decorator_list", ())],
        [chain for base in getattr(node, "bases", ()) if (chain := _base(base))],
        sorted(names.mutated),
        _asks(node),
        _hooks(node),
    )


def _base(node: ast.expr) -> str:
    return _chain(node.value if isinstance(node, ast.Subscript) else node)


def _decorator(node: ast.expr) -> list[Any]:
    if not isinstance(node, ast.Call):
        return [_chain(node), None]
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    return [_chain(node.func), [chain for each in values if (chain := _chain(each))]]


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds in the scope in which it stands.

    Of an import only what stands within another statement at the top.
    """
    if isinstance(node, _DEFINITIONS):
        yield node.name
    elif isinstance(node, ast.Lambda):
        pass
    elif isinstance(node, _COMPREHENSIONS):
        for each in ast.walk(node):
            if isinstance(each, ast.NamedExpr):  # It alone leaves a comprehension.
                yield each.target.id
    else:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imported_by(node, binding=True)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            yield from filter(None, [node.name])
        elif isinstance(node, ast.MatchMapping):
            yield from filter(None, [node.rest])
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)


def _acts(node: ast.stmt) -> bool:
    """Return whether a statement does more than to bind names."""
    acting = (ast.Delete, ast.With, ast.AsyncWith, ast.Assert, ast.Raise)
    stored = (ast.Attribute, ast.Subscript)
    return any(
        isinstance(each, acting)
        or (isinstance(each, ast.Expr) and not _is_text(each))
        or (isinstance(each, stored) and not isinstance(each.ctx, ast.Load))
        for each in _outside(node)
    )


def _asks(node: ast.AST) -> bool:
    """Return whether a statement asks for subclasses, or a class is told of its own."""
    for each in ast.walk(node):
        if getattr(each, "attr", "") == "__subclasses__":
            return True
        if getattr(each, "name", "") == "__init_subclass__":
            inner = [*ast.walk(each)]
            if any(getattr(one, "attr", "") in MUTATING for one in inner):
                return True
            if any(isinstance(one, ast.Subscript) and _is_stored(one) for one in inner):
                return True
    return False


def _hooks(node: ast.AST) -> list[str]:
    if not isinstance(node, ast.ClassDef):
        return []
    hooks = (e for e in node.body if getattr(e, "name", "") == "__init_subclass__")
    inner = (each for hook in hooks for each in ast.walk(hook))
    called = [_chain(each.func) for each in inner if isinstance(each, ast.Call)]
    metas = [_chain(k.value) for k in node.keywords if k.arg == "metaclass"]
    return sorted({*filter(None, [*called, *metas])})


def _is_stored(node: Any) -> bool:
    return not isinstance(node.ctx, ast.Load)


class _Names(ast.NodeVisitor):
    """Collects what a statement names that is not local to a function in it.

    Attributes
    ----------
    found : list
        Each name with its node, None where it has no place in the source.
    imports : list of ast nodes
        Imports in functions: what they import is named, so they are no source.
    imported : dict
        What is imported within the statement, by the names that it binds.
    outer, called, mutated : set of str
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, ast.expr | None]] = []
        self.imports: list[ast.stmt] = []
        self.imported: dict[str, list[list[Any]]] = {}
        self.outer: set[str] = set()
        self.called: set[str] = set()
        self.mutated: set[str] = set()
        self._local: frozenset[str] = frozenset()
        self._depth = 0
        self._formatted = False
        self._tried = False

    def visit_Name(self, node: ast.Name) -> None:
        self._note(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if chain := _chain(node):
            self._note(chain, node)
        else:
            self.visit(node.value)

    def _note(self, chain: str, node: Any) -> None:
        name, _, rest = chain.partition(".")
        if name in self._local:
            return
        if _is_stored(node) and (rest or self._depth):
            self.mutated.add(name)
        if rest or not _is_stored(node):
            self.found.append((chain, None if self._formatted else node))
            if not self._depth:
                self.outer.add(chain)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _is_stored(node):
            self._mutate(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
            self._mutate(node.func.value)
        if not self._depth and (chain := _chain(node.func)):
            self.called.add(chain)
        for name in _imported_by_call(node):
            self.imported.setdefault(f"@{name}", []).append([0, name, None])
            self.found.append((f"@{name}", None))
        self.generic_visit(node)

    def _mutate(self, node: ast.expr) -> None:
        name = _chain(node).partition(".")[0]
        if name and name not in self._local:
            self.mutated.add(name)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        # It is source as it stands: before 3.12, what is in it has no places.
        before, self._formatted = self._formatted, True
        self.generic_visit(node)
        self._formatted = before

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._mutate(node.target)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        self._import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        bound = _imported_by(node, binding=True)
        for name, what in bound.items():
            self.imported.setdefault(name, []).append(what)
        if self._depth and not self._tried:
            self.imports.append(node)
        else:
            # It stands within another statement, and whether there is one counts.
            self.found += [(name, None) for name in bound]

    def visit_Try(self, node: ast.Try) -> None:
        before, self._tried = self._tried, True
        self.generic_visit(node)
        self._tried = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node, node.decorator_list, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node, node.decorator_list, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, [], [node.body])

    def _function(
        self, node: Any, decorators: Sequence[ast.expr], body: Sequence[ast.AST]
    ) -> None:
        given: ast.arguments = node.args
        defaults = [*given.defaults, *filter(None, given.kw_defaults)]
        self._within([*decorators, *defaults], self._local)
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        arguments += filter(None, (given.vararg, given.kwarg))
        local, inner = {each.arg for each in arguments}, [*_inside(body)]
        freed = set[str]()
        # Names of imports are resolved, those of `global` are the module's.
        local |= {name for each in body for name in _bound(each)}
        for each in inner:
            if isinstance(each, ast.Import | ast.ImportFrom):
                freed |= set(_imported_by(each, binding=True))
            elif isinstance(each, ast.Global):
                freed |= set(each.names)
        self._within(body, (self._local | local) - freed, 1)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within([*node.decorator_list, *node.bases, *node.keywords], self._local)
        # What a class binds may be the module's before, and is so for functions in it.
        self._within(node.body, self._local)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node)

    def _comprehension(self, node: Any) -> None:
        first, *_ = node.generators
        self.visit(first.iter)
        targets = [part.target for part in node.generators]
        local = {name for target in targets for name in _bound(target)}
        others = [*ast.iter_child_nodes(node)]
        others.remove(first)
        self._within([*others, first.target, *first.ifs], self._local | local)

    def _within(self, nodes: Iterable[ast.AST], local: Any, deeper: int = 0) -> None:
        before, self._local = self._local, frozenset(local)
        self._depth += deeper
        for each in nodes:
            self.visit(each)
        self._local = before
        self._depth -= deeper


def _inside(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield what stands in a body, but not in functions and classes in it."""
    for node in body:
        yield from _outside(node)


_STATEFUL = (ast.Call, ast.List, ast.Dict, ast.Set, *_COMPREHENSIONS)


class _Text:
    """The tokens of a file, and those of its statements."""

    def __init__(self, text: str) -> None:
        self._lines = io.StringIO(text).readlines()
        self._tokens = [*self._joined(text)]
        self._starts = [start for _, _, start, _ in self._tokens]

    def _joined(self, text: str) -> Iterator[tuple[int, str, Position, Position]]:
        """Yield kind, text, start and end; an f-string is one token, as before 3.12."""
        opens = getattr(tokenize, "FSTRING_START", None)
        closes = getattr(tokenize, "FSTRING_END", None)
        depth, start = 0, (0, 0)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        for kind, word, begin, end, _ in tokens:
            if kind == opens:
                start = start if depth else begin
                depth += 1
            elif kind == closes:
                depth -= 1
                if not depth:
                    yield tokenize.STRING, self._between(start, end), start, end
            elif not depth and kind not in _IGNORED:
                yield kind, word, begin, end

    def _between(self, start: Position, end: Position) -> str:
        lines = self._lines[start[0] - 1 : end[0]]
        lines[-1] = lines[-1][: end[1]]
        return "".join(lines)[start[1] :]

    def _place(self, line: int, offset: int) -> Position:
        """Return a place in characters; the syntax tree counts bytes."""
        text = self._lines[line - 1]
        if text.isascii():
            return line, offset
        return line, len(text.encode()[:offset].decode())

    def _span(self, node: Any) -> tuple[Position, Position]:
        start = self._place(node.lineno, node.col_offset)
        return start, self._place(node.end_lineno, node.end_col_offset)

    def of(
        self, node: ast.stmt, names: _Names, binds: Sequence[str]
    ) -> tuple[str, list[str]]:
        """Return the digest of a statement's tokens, and its names in their order."""
        start, end = self._span(node)
        for decorator in getattr(node, "decorator_list", ()):
            start = min(start, (decorator.lineno, 0))
        order: dict[Position, str] = {}
        cuts: dict[Position, tuple[Position, str]] = {}
        for chain, each in names.found:
            if each is not None:
                begin, finish = self._span(each)
                cuts[begin], order[begin] = (finish, HOLE), chain
        for gone in (*names.imports, *filter(_is_text, ast.walk(node))):
            begin, finish = self._span(gone)
            cuts[begin] = (finish, "")
        # Of two generators or lists, equal but apart, it counts which one is used.
        still = isinstance(node, _FUNCTIONS) or not any(
            isinstance(each, _STATEFUL) for each in ast.walk(node)
        )
        private = [name for name in binds if still and name.startswith("_")]
        for name, begin, finish in self._defined(node):
            if name in private:
                cuts[begin] = (finish, f"{HOLE}{private.index(name)}")
        unplaced = [chain for chain, each in names.found if each is None]
        names_ = [*(order[begin] for begin in sorted(order)), *unplaced]
        return _sha(*self._cut(start, end, cuts)), names_

    def _defined(self, node: ast.stmt) -> Iterator[tuple[str, Position, Position]]:
        """Yield the functions and constants that a statement defines, with places.

        A class's name stays: what it prints shows it.
        """
        for each in _outside(node):
            if isinstance(each, ast.Name) and _is_stored(each):
                yield each.id, *self._span(each)
            elif isinstance(each, _FUNCTIONS):
                begin = self._place(each.lineno, each.col_offset)
                words = (one for one in self._since(begin) if one[0] == tokenize.NAME)
                after = itertools.dropwhile(lambda one: one[1] != "def", words)
                _, (_, _, start, end) = itertools.islice(after, 2)
                yield each.name, start, end

    def _since(self, start: Position) -> Iterator[tuple[int, str, Position, Position]]:
        first = bisect.bisect_left(self._starts, start)
        return itertools.islice(self._tokens, first, None)

    def _cut(
        self,
        start: Position,
        end: Position,
        cuts: Mapping[Position, tuple[Position, str]],
    ) -> Iterator[str]:
        until, begun, emptied = start, False, False
        for kind, text, begin, _ in self._since(start):
            layout = _LAYOUT.get(kind)
            if begin < until or (layout and not begun):
                continue
            if begin >= end and layout is None:
                break
            begun = True
            if layout is None and begin in cuts:
                until, instead = cuts[begin]
                # A statement that goes takes the end of its line with it.
                emptied = not instead
                if instead:
                    yield instead
            elif not (emptied and kind == tokenize.NEWLINE):
                yield layout or text
                emptied = False
            else:
                emptied = False


_LAYOUT = {tokenize.NEWLINE: "\n", tokenize.INDENT: "\t+", tokenize.DEDENT: "\t-"}
_IGNORED = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)


# All files --------------------------------------------------------------------------


class Sources:
    """The modules that definitions may reach, and the digests of what they define.

    A file is read once.

    Parameters
    ----------
    tops : iterable of str
        Packages whose definitions are followed; of all others names count.
    beside : mapping
        Files by the names of their modules that are followed, too: a user's own.
    """

    def __init__(
        self, tops: Iterable[str] = (), beside: Mapping[str, Path] | None = None
    ) -> None:
        self.tops, self.beside = frozenset(tops), dict(beside or {})
        self._modules: dict[str, Module] = {}
        self._defined: dict[str, dict[str, list[Place]]] = {}
        self._edges: dict[Place, tuple[list[Any], list[Place]]] = {}
        self._followed: dict[str, bool] = {}
        self._imports: dict[str, set[str]] = {}
        self._meanings: dict[tuple[str, str], Any] = {}
        self._acts: dict[str, list[Place]] = {}
        self._digests: dict[Place, str] = {}

    def digest(self, module: str, name: str) -> str:
        """Return the digest of a definition and of all that it reaches.

        Raises
        ------
        LookupError
            If no file holds it.
        """
        return self._remembered(
            f"{module} {name}", lambda: self._digests_of(self.places(module, name))
        )

    def _remembered(self, root: str, digests: Callable[[], list[str]]) -> str:
        kept = self._kept
        if root not in kept:
            kept[root] = _sha(*digests())
            # Edited meanwhile, what was read is not what the state stands for.
            if self.read_state() == self.state:
                _save(self.state, kept)
        return kept[root]

    def read_state(self) -> str:
        """Return the digest of all files that may be followed, as they are now."""
        files = sorted(self.beside.items())
        for top in sorted(self.tops):
            for folder in _folders(top):
                files += [(str(p.relative_to(folder)), p) for p in _python(folder)]
            if not _folders(top) and (file := self._file(top)) is not None:
                files.append((top, file))
        parts = (
            f"{name} {sha256(path.read_bytes()).hexdigest()}" for name, path in files
        )
        return _sha(_own(), *parts)

    @functools.cached_property
    def state(self) -> str:
        """Return the digest of all files that may be followed, at its first use."""
        return self.read_state()

    @functools.cached_property
    def _kept(self) -> dict[str, str]:
        """Return the digests that an earlier process had of the same files."""
        kept: dict[str, str] = _load(self.state) or {}
        return kept

    def whole(self, module: str) -> str:
        """Return the digest of all that a module defines and reaches.

        It does not change where a definition that is used moves to another module.
        """

        def digests() -> list[str]:
            roots = ((module, name) for name in self._names(module))
            reached = self.reached(roots) | self._reach(self._acting(module))
            return sorted(self._digests_of(sorted(reached)))

        return self._remembered(f"{module} *", digests)

    def reached(self, roots: Iterable[tuple[str, str]]) -> set[Place]:
        """Return the places of all that definitions, by module and name, reach."""
        return self._reach(place for root in roots for place in self.places(*root))

    def places(self, module: str, name: str) -> list[Place]:
        """Return the statements that make up a definition; LookupError without any."""
        found = self._resolved(module, name, {}) if self._follows(module) else ""
        if not isinstance(found, tuple):
            raise LookupError(f"no file holds the definition of {module}.{name}")
        places: list[Place] = found[0]
        return places

    def statement(self, place: Place) -> Statement:
        """Return the statement at a place."""
        return self._module(place[0]).statements[place[1]]

    def _reach(self, roots: Iterable[Place]) -> set[Place]:
        todo, found = [*roots], set[Place]()
        while todo:
            if (place := todo.pop()) not in found:
                found.add(place)
                todo += self._targets(place)
        return found

    # Digests.

    def _digests_of(self, places: Sequence[Place]) -> list[str]:
        for place in places:
            if place not in self._digests:
                for part in self._parts(place):
                    self._digest_together(part)
        return [self._digests[place] for place in places]

    def _parts(self, root: Place) -> Iterator[list[Place]]:
        """Yield what a definition reaches and has no digest, what is reached first.

        Definitions that reach each other come together (Tarjan, "Depth-first search
        and linear graph algorithms", SIAM J. Comput. 1972).
        """
        index: dict[Place, int] = {root: 0}
        low = {root: 0}
        path, open_ = [root], {root}
        todo = [(root, iter(self._targets(root)))]
        while todo:
            place, targets = todo[-1]
            for target in targets:
                if target in self._digests:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    path.append(target)
                    open_.add(target)
                    todo.append((target, iter(self._targets(target))))
                    break
                if target in open_:
                    low[place] = min(low[place], index[target])
            else:
                todo.pop()
                if todo:
                    above = todo[-1][0]
                    low[above] = min(low[above], low[place])
                if low[place] == index[place]:
                    at = path.index(place)
                    part, path = path[at:], path[:at]
                    open_ -= set(part)
                    yield part

    def _digest_together(self, part: Sequence[Place]) -> None:
        """Give digests to definitions that reach each other, or to a single one."""
        inside = {place: self.statement(place).source for place in part}
        # Those of one source are told apart by what they reach, step by step.
        for _ in range(len(set(inside.values())) and 1 + (len(part) > 1)):
            inside = {place: self._digest_of(place, inside) for place in part}
        kinds = len(set(inside.values()))
        while len(part) > 1:
            finer = {place: self._digest_of(place, inside) for place in part}
            if len(set(finer.values())) == kinds:
                break
            inside, kinds = finer, len(set(finer.values()))
        together = _sha(*sorted(inside.values())) if len(part) > 1 else ""
        for place in part:
            self._digests[place] = _sha(inside[place], together)

    def _digest_of(self, place: Place, inside: Mapping[Place, str]) -> str:
        labels, more = self._edges_of(place)
        texts = [self.statement(place).source]
        for targets, text in labels:
            digests = (inside.get(each) or self._digests[each] for each in targets)
            texts.append(" ".join([*digests, text]))
        # Acts and registrations of one module happen one after the other.
        also = sorted(
            " ".join(inside.get(each) or self._digests[each] for each in group)
            for _, group in itertools.groupby(more, lambda each: each[0])
        )
        return _sha(*texts, "also", *also)

    # What reaches what.

    def _targets(self, place: Place) -> list[Place]:
        labels, more = self._edges_of(place)
        return [*(each for targets, _ in labels for each in targets), *more]

    def _edges_of(self, place: Place) -> tuple[list[Any], list[Place]]:
        """Return what the names of a statement stand for, and what else it reaches.

        A name stands for places, and for a text where it is not followed.
        """
        if place not in self._edges:
            module, statement = place[0], self.statement(place)
            labels = [self._label(place, each, statement) for each in statement.names]
            more = {*self._registered.get(place, ()), *self._acting(module)}
            for name in statement.names:
                # Another function in it may mean the module's.
                if name.partition(".")[0] in statement.imports:
                    more |= set(self._places(module, name))
            if any(each in BY_STRING for each in statement.names):
                labels.append(self._spelled([module]))
            self._edges[place] = labels, sorted(more - {place})
        return self._edges[place]

    def _label(self, place: Place, chain: str, statement: Statement) -> Any:
        found = self._resolved(place[0], chain, statement.imports)
        places, text = self._spelled(found)
        if chain in statement.outer and len(places) > 1:
            # What it is then depends on what has been bound before.
            text += f" after {sum(each < place for each in places)}"
        return places, text

    def _acting(self, module: str) -> list[Place]:
        """Return the acts of a module and of those that it imports."""
        if module not in self._acts:
            seen, todo = set[str](), [module]
            while todo:
                if (name := todo.pop()) not in seen:
                    seen.add(name)
                    todo += self._imported_by(name)
            self._acts[module] = [
                (name, number)
                for name in sorted(seen)
                for number, each in enumerate(self._module(name).statements)
                if each.kind == "act" or self._acts_alone(name, each)
            ]
        return self._acts[module]

    def _acts_alone(self, module: str, statement: Statement) -> bool:
        """Return whether a decorator registers for something that is not followed."""
        for decorator, arguments in statement.decorators:
            found = self._resolved(module, decorator, statement.imports)
            if isinstance(found, str) and not f"{found}.".startswith((*_PURE, "inert")):
                named = statement.outer if arguments is None else arguments
                places = (self._places(module, each) for each in named)
                if not any(map(self._is_code, itertools.chain(*places))):
                    return True
        return False

    def _imported_by(self, module: str) -> set[str]:
        """Return the modules that are followed and run when a module is imported."""
        if module not in self._imports:
            found = {module.rpartition(".")[0]}
            for level, named, taken in self._module(module).imported:
                target = self._absolute(module, level, named)
                found |= {target, f"{target}.{taken}"}
            self._imports[module] = {each for each in found if self._follows(each)}
        return self._imports[module]

    @functools.cached_property
    def _registered(self) -> dict[Place, set[Place]]:
        """Return what is registered for definitions, by their places."""
        found: dict[Place, set[Place]] = {}
        below: dict[Place, set[Place]] = {}
        asking: set[Place] = set()
        for module in self._searched():
            for number, statement in enumerate(self._module(module).statements):
                place = (module, number)
                for target in self._registering(module, statement):
                    found.setdefault(target, set()).add(place)
                for base in statement.bases:
                    for target in self._places(module, base):
                        below.setdefault(target, set()).add(place)
                if statement.asks:
                    named = (self._places(module, each) for each in statement.names)
                    asking |= {place, *(each for places in named for each in places)}
        for place in asking:
            todo = [place]
            while todo:
                new = below.get(todo.pop(), set()) - found.setdefault(place, set())
                found[place] |= new
                todo += new
        return found

    def _registering(self, module: str, statement: Statement) -> Iterator[Place]:
        """Yield definitions whose users reach a statement that they do not name."""

        def places(chains: Iterable[str]) -> list[Place]:
            found = (self._places(module, each, statement.imports) for each in chains)
            return [*itertools.chain(*found)]

        # Who reads a table reaches what fills it.
        yield from places(statement.mutates)
        bases = [
            each
            for base in places(statement.bases)
            for hook in self.statement(base).hooks
            for each in self._places(base[0], hook, self.statement(base).imports)
        ]
        makers = [decorator for decorator, _ in statement.decorators]
        called = [*places(statement.calls), *places(makers), *bases]
        called = [*self._mutators.intersection(called)]
        if statement.kind == "act" or (called and statement.kind != "function"):
            yield from places(statement.names)
        for each in called:
            yield from (each, *self._tables(each))
        for decorator, arguments in statement.decorators:
            # What an argument is for is code; constants say how.
            yield from filter(self._is_code, places(arguments or ()))
            found = self._resolved(module, decorator, statement.imports)
            if isinstance(found, tuple) and found[1]:
                yield from found[0]
            elif isinstance(found, str) and not f"{found}.".startswith(_PURE):
                yield from places(statement.outer if arguments is None else ())

    def _tables(self, mutator: Place) -> Iterator[Place]:
        """Yield what a function changes, by itself or by those that it calls."""
        todo, seen = [mutator], set[Place]()
        while todo:
            if (place := todo.pop()) not in seen:
                seen.add(place)
                statement = self.statement(place)
                for each in statement.mutates:
                    yield from self._places(place[0], each, statement.imports)
                for each in statement.names:
                    named = self._places(place[0], each, statement.imports)
                    todo += self._mutators.intersection(named)

    @functools.cached_property
    def _mutators(self) -> set[Place]:
        """Return the functions and classes that change a table, or call who does."""
        found, callers = set[Place](), dict[Place, set[Place]]()
        for module in self._searched():
            for number, statement in enumerate(self._module(module).statements):
                if statement.kind in ("function", "class"):
                    if statement.mutates:
                        found.add((module, number))
                    for chain in statement.names:
                        for each in self._places(module, chain, statement.imports):
                            callers.setdefault(each, set()).add((module, number))
        todo = [*found]
        while todo:
            new = callers.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    def _is_code(self, place: Place) -> bool:
        return self.statement(place).kind in ("function", "class")

    def _searched(self) -> list[str]:
        """Return the modules that are searched for what is registered."""
        found = [*self.beside]
        for top in sorted(self.tops):
            found += [] if _folders(top) else [top]
            for folder in _folders(top):
                for part in LAYERS if top == PACKAGE else ("",):
                    for path in _python(folder / part):
                        inside = path.relative_to(folder).with_suffix("").parts
                        found.append(".".join((top, *inside)).removesuffix(".__init__"))
        return [module for module in found if self._follows(module)]

    # What names stand for.

    def _places(
        self, module: str, chain: str, imports: Mapping[str, Any] | None = None
    ) -> list[Place]:
        found = self._resolved(module, chain, imports or {})
        places: list[Place] = found[0] if isinstance(found, tuple) else []
        return places

    def _resolved(
        self, module: str, chain: str, imports: Mapping[str, Any], depth: int = 0
    ) -> Any:
        """Return what a name with attributes stands for in a module.

        Returns
        -------
        tuple
            The places of a definition, and the attributes of it that are named; or
        list
            the one module that is meant as a whole; or
        str
            a text for what is not followed.
        """
        name, _, rest = chain.partition(".")
        if chain.startswith("@"):
            name, rest = chain, ""
        if name in imports:
            found = [self._imported(module, one, rest, depth) for one in imports[name]]
            return self._any_of(found)
        if (module, chain) not in self._meanings:
            self._meanings[module, chain] = self._meaning(module, name, rest, depth)
        return self._meanings[module, chain]

    def _meaning(self, module: str, name: str, rest: str, depth: int) -> Any:
        own, chain = self._module(module), f"{name}.{rest}" if rest else name
        found: list[Any] = []
        if name in self._by_name(module):
            places = self._by_name(module)[name]
            binds = [self.statement(place).binds for place in places]
            # Of `A, B = 1, 2` it counts which one is meant.
            which = [str(one.index(name)) for one in binds if len(one) > 1]
            found.append((places, rest, " ".join(which)))
        for what in own.imports.get(name, ()):
            found.append(self._imported(module, what, rest, depth))
        if found:
            return self._any_of(found)
        for level, named, taken in reversed(own.imported):
            other = self._absolute(module, level, named)
            if taken == "*" and self._follows(other) and depth < DEEPEST:
                star = self._resolved(other, chain, {}, depth + 1)
                if not _is_unknown(star):
                    return star
        stars = [
            self._absolute(module, level, named)
            for level, named, taken in own.imported
            if taken == "*"
        ]
        return " ".join([f"?{chain}", *(s for s in stars if not self._follows(s))])

    def _any_of(self, found: Sequence[Any]) -> Any:
        """Return what a name stands for that is bound in several ways: all of it."""
        if len(found) == 1:
            return found[0]
        labels = [self._spelled(one) for one in found]
        places = [each for one, _ in labels for each in one]
        text = "; ".join(text for _, text in labels)
        return (places, text, "") if places else text

    def _spelled(self, found: Any) -> tuple[list[Place], str]:
        """Return places and a text of what `_resolved` returns."""
        if isinstance(found, str):
            return [], found
        if isinstance(found, list):
            (whole,) = found
            names = [*self._names(whole), *sorted(self._module(whole).imports)]
            parts = [self._spelled(self._resolved(whole, name, {})) for name in names]
            spelled = zip(names, parts, strict=True)
            text = " ".join(f"{name} {part[1]}" for name, part in spelled)
            return [each for places, _ in parts for each in places], text
        places, rest, which = found
        return places, f"{rest} {which}" if which else rest

    def _imported(self, module: str, what: Sequence[Any], rest: str, depth: int) -> Any:
        level, named, taken = what
        target = self._absolute(module, level, named)
        parts = [part for part in (taken, *rest.split(".")) if part]
        while parts and self._is_module(target, parts[0]):
            target, parts = f"{target}.{parts[0]}", parts[1:]
        if self._inert(target):
            return f"inert {'.'.join(parts)}"
        if not self._follows(target):
            return ".".join([target, *parts])
        if not parts:
            return [target]
        found: Any = "?"
        if depth < DEEPEST:
            found = self._resolved(target, ".".join(parts), {}, depth + 1)
        # What a module does not define its __getattr__ may make.
        return [target] if _is_unknown(found) else found

    def _is_module(self, package: str, name: str) -> bool:
        """Return whether a name in a package is a module that nothing there hides."""
        if self._follows(package):
            if name in self._by_name(package):
                return False
            for level, named, _ in self._module(package).imports.get(name, ()):
                if self._absolute(package, level, named) != package:
                    return False
        return self._file(f"{package}.{name}") is not None

    # What there is.

    def _inert(self, module: str) -> bool:
        parts = (f"{PACKAGE}.{part}" for part in INERT)
        inside = any(module == part or module.startswith(f"{part}.") for part in parts)
        return module == PACKAGE or inside

    def _follows(self, module: str) -> bool:
        if module not in self._followed:
            file = self._file(module)
            self._followed[module] = file is not None and not self._inert(module)
        return self._followed[module]

    def _file(self, module: str) -> Path | None:
        if module in self.beside:
            return self.beside[module]
        return file_of(module) if module.partition(".")[0] in self.tops else None

    def _module(self, module: str) -> Module:
        if module not in self._modules:
            file = self._file(module)
            assert file is not None, module
            self._modules[module] = _readable(file)
        return self._modules[module]

    def _by_name(self, module: str) -> dict[str, list[Place]]:
        if module not in self._defined:
            found = self._defined[module] = {}
            for number, statement in enumerate(self._module(module).statements):
                for name in statement.binds:
                    found.setdefault(name, []).append((module, number))
        return self._defined[module]

    def _names(self, module: str) -> list[str]:
        return sorted(self._by_name(module))

    def _absolute(self, module: str, level: int, named: str) -> str:
        if not level:
            return named
        file, parts = self._file(module), module.split(".")
        inside = file is not None and file.name == "__init__.py"
        above = parts[: len(parts) - level + inside]
        return ".".join([*above, *([named] if named else [])])


DEEPEST = 50
"""Imports of imports that are followed."""


def _is_unknown(found: Any) -> bool:
    return isinstance(found, str) and found.startswith("?")


def _readable(file: Path) -> Module:
    """Return what a file says, nothing if it is no Python: it cannot be imported."""
    try:
        return summary(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return Module({}, [], [])


@functools.cache
def _folders(top: str) -> tuple[Path, ...]:
    """Return the folders of a package, none of a module."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # of what runs as a script
        spec = None
    return tuple(map(Path, (spec and spec.submodule_search_locations) or ()))


@functools.cache
def _python(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.rglob("*.py")))


@functools.cache
def file_of(module: str) -> Path | None:
    """Return the file of a module, without importing the packages above it."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # of what runs as a script
        spec = None
    if spec is None:
        return None
    if spec.submodule_search_locations is None:
        return Path(spec.origin) if spec.origin and not rest else None
    for root in spec.submodule_search_locations:
        base = Path(root, *rest)
        for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if path.is_file():
                return path
    return None


def beside(path: str) -> dict[str, Path]:
    """Return a user's file and the modules beside it that it imports, at any depth.

    A module that is found elsewhere too (the standard library, an installed package)
    is that one: files beside a solver replace none. In a folder of `alone` what lies
    there is what was imported.

    Raises
    ------
    SyntaxError, ValueError
        If one of them is no Python; `filename` of the former is its path.
    """
    file = Path(path)
    files, todo = {file.stem: file}, [file.stem]
    while todo:
        name = todo.pop()
        for imported in sorted(_imported_beside(name, files[name], file.parent)):
            if imported not in files:
                files[imported] = _module_file(file.parent, imported) or file
                todo.append(imported)
    return files


def alone(folder: Path) -> None:
    """Take a folder for one that holds what a file had beside it, and nothing else.

    Its modules may be found elsewhere by now: in the working folder, from which they
    were copied, or in a package of another one's that has a name of theirs.
    """
    _alone.add(str(folder))


_alone: set[str] = set()


def _imported_beside(module: str, file: Path, folder: Path) -> Iterator[str]:
    """Yield the modules of a folder that a file imports."""
    inside = module if file.name == "__init__.py" else module.rpartition(".")[0]
    try:
        found = summary(file.read_bytes()).imported
    except SyntaxError as error:
        error.filename = str(file)
        raise
    for level, named, taken in found:
        parts = inside.split(".")
        above = parts[: len(parts) - level + 1] if level else []
        names = [*above, *named.split("."), taken or ""]
        names = [each for each in names if each]
        if names and not _is_elsewhere(names[0], str(folder)):
            prefixes = (".".join(names[:depth]) for depth in range(1, len(names) + 1))
            yield from (each for each in prefixes if _module_file(folder, each))


def _is_elsewhere(top: str, folder: str) -> bool:
    if top in sys.stdlib_module_names:
        return True
    if folder in _alone:
        return False
    others = [p for p in sys.path if os.path.abspath(p or os.getcwd()) != folder]
    return importlib.machinery.PathFinder.find_spec(top, others) is not None


def _module_file(folder: Path, module: str) -> Path | None:
    base = folder.joinpath(*module.split("."))
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next(filter(Path.is_file, candidates), None)


@functools.cache
def package_sources() -> Sources:
    """Return the definitions of the package; this process reads each file once."""
    return Sources([PACKAGE])


def digest_named(dotted: str) -> str:
    """Return the digest of a definition, or of a module as a whole, by its dotted name.

    Raises
    ------
    LookupError
        If no file holds it.
    """
    module, _, name = dotted.rpartition(".")
    top = dotted.partition(".")[0]
    sources = package_sources() if top == PACKAGE else Sources([PACKAGE, top])
    if file_of(dotted) is not None:
        return sources.whole(dotted)
    return sources.digest(module, name)


def digest_of(code: Any) -> str:
    """Return the digest of a function or a class, and of all that it reaches.

    Raises
    ------
    LookupError
        If no file holds its definition: it was made in a notebook or in a function.
    """
    module, name = code.__module__, code.__qualname__.partition(".")[0]
    if module.partition(".")[0] == PACKAGE:
        return package_sources().digest(module, name)
    file = getattr(sys.modules.get(module), "__file__", None)
    if isinstance(code, types.FunctionType):
        # Modules beside two files may have one name.
        file = code.__code__.co_filename
    if not file or not os.path.isfile(file) or "<locals>" in code.__qualname__:
        raise LookupError(f"no file holds the definition of {module}.{name}")
    if file_of(module) == Path(file):
        return Sources([PACKAGE, module.partition(".")[0]]).digest(module, name)
    return Sources([PACKAGE], beside(file)).digest(Path(file).stem, name)


@functools.cache
def _own() -> str:
    """Return the digest of this file, which says what a summary means."""
    return sha256(Path(__file__).read_bytes()).hexdigest()


def _sha(*parts: str) -> str:
    digest = sha256()
    for part in parts:
        raw = part.encode(errors="surrogatepass")
        digest.update(b"%d " % len(raw))
        digest.update(raw)
    return digest.hexdigest()
