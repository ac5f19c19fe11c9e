"""The identity of code: digests of modules and of all that they import.

The digest of a *module* is computed from its syntax tree. It does not depend on
comments, docstrings, blanks, the place of the file or the version of Python. The digest
of *code* covers its root modules and all modules that they import at any depth, also
inside functions. Imports under TYPE_CHECKING are ignored, as only annotations use them.
Code that is found by a string (`registry`) is not an import, so the caller names it as
a root. The source is parsed and never executed.
"""

import ast
import functools
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.cached import load_json, save_json

PACKAGE = __name__.partition(".")[0]
EXTEND = f"{PACKAGE}.extend"
"""Module that re-exports names; importing a name counts as importing its module."""

LEFT_OUT = {
    PACKAGE: "it tells the version, and loads what is asked for",
    f"{PACKAGE}.cached": "a cached number is proved again, or that of the same key",
    f"{PACKAGE}.code_identity": "it makes the keys",
    f"{PACKAGE}.experiment": "it plans: what it decides is in the specs",
    f"{PACKAGE}.machine_code": "it keeps what kernels were compiled to",
    f"{PACKAGE}.paths": "it finds and writes files; its digests are in identities",
    f"{PACKAGE}.plugins": "it loads files whose digests are in the specs",
    f"{PACKAGE}.registry": "it loads classes that are roots themselves",
    f"{PACKAGE}.results": "it keeps and shows records",
}
"""Modules that are left out of digests, although numerical code imports them."""

POSITIONS = frozenset({"ctx", "type_comment"})
"""Fields of a syntax tree that do not affect results."""

BY_NAME = ("import_module", "__import__")
"""Functions that import a module by its name."""

Import = tuple[int, str, str]
"""Level, module and name of an import; the name is empty without ``from``."""


class Module(NamedTuple):
    """The digest of a module and the dotted names that it imports.

    The names include all parent packages. A name is that of a module, or of an object
    in a module.
    """

    digest: str
    names: frozenset[str]


@functools.lru_cache(maxsize=4096)
def parse_module(source: bytes, name: str = "", package: bool = False) -> Module:
    """Return the digest and the imports of a module, from its source.

    Parameters
    ----------
    source : bytes
        Content of the file.
    name : str
        Dotted name of the module.
    package : bool
        Whether the module is the ``__init__`` of a package.

    Raises
    ------
    SyntaxError, ValueError
        If the source is not valid Python.
    """
    tree = ast.parse(source)
    digest = sha256(
        "\0".join(_spell_tree(tree, [])).encode(errors="surrogatepass")
    ).hexdigest()
    offered = {} if name.partition(".")[0] == PACKAGE else _offered_by_extend()
    inside = name.split(".")[: None if package else -1]
    names, found = [name], set[str]()
    for level, named, taken in _imports_in(tree):
        above = inside[: len(inside) - level + 1] if level else []
        one = ".".join(filter(None, [*above, named, taken]))
        names.append(offered.get(one, one))
    for one in names:
        while one and one not in found:
            found.add(one)
            one = one.rpartition(".")[0]
    return Module(digest, frozenset(found))


def _parse_file(path: Path, name: str, source: bytes | None = None) -> Module:
    raw = path.read_bytes() if source is None else source
    try:
        return parse_module(raw, name, path.name == "__init__.py")
    except (SyntaxError, ValueError, RecursionError):  # the module is not valid Python
        return Module(sha256(raw).hexdigest(), frozenset())


@functools.cache
def _offered_by_extend() -> dict[str, str]:
    """Return the dotted names of the objects that the module `EXTEND` re-exports."""
    names = _modules_in_digests()[EXTEND].names
    return {f"{EXTEND}.{one.rpartition('.')[2]}": one for one in names}


@functools.cache
def _modules_in_digests() -> dict[str, Module]:
    """Return the modules of the package that are part of digests, as first read.

    Parsing all of them takes a second, so the result is cached by the source texts.
    """
    own = sha256(Path(__file__).read_bytes()).hexdigest()  # this file defines digests
    key, found = f"{package_state()}-{own}", dict[str, Module]()
    if cached := load_json("code", key):
        for name, (digest, names) in cached.value.items():
            found[name] = Module(digest, frozenset(names))
        return found
    for name, (path, raw) in _source_texts(PACKAGE).items():
        if not is_left_out(name):
            found[name] = _parse_file(path, name, raw)
    told = {name: (one.digest, sorted(one.names)) for name, one in found.items()}
    save_json("code", key, told)
    return found


@functools.cache
def package_state(package: str = PACKAGE) -> str:
    """Return the digest of a package's source text, as this process first read it."""
    texts = _source_texts(package)
    return _combine_digests(
        {name: sha256(raw).hexdigest() for name, (_, raw) in texts.items()}
    )


@functools.cache
def _source_texts(top: str) -> dict[str, tuple[Path, bytes]]:
    """Return the path and text of each module of a package, as first read."""
    spec, files = _spec_of(top), dict[str, Path]()
    for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
        for path in folder.rglob("*.py"):
            name = ".".join((top, *path.relative_to(folder).with_suffix("").parts))
            files[name.removesuffix(".__init__")] = path
    if not files and spec and spec.origin and os.path.isfile(spec.origin):
        files[top] = Path(spec.origin)
    return {name: (path, path.read_bytes()) for name, path in files.items()}


def _spec_of(top: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # raised for a script
        return None


def _spell_tree(node: Any, parts: list[str]) -> list[str]:
    """Append a syntax tree as strings that are the same in every version of Python.

    Fields that are None or empty are left out, as newer versions add such fields.
    Strings used as statements are left out, too, as are the empty parts of f-strings in
    Python 3.12. Names of fields are included, since ``a[:1]`` and ``a[1:]`` differ only
    in these names.
    """
    if isinstance(node, ast.AST):
        parts.append(f"({type(node).__name__}")
        for name, value in ast.iter_fields(node):
            if isinstance(node, ast.JoinedStr) and name == "values":
                value = [part for part in value if getattr(part, "value", None) != ""]
            if value is not None and value != [] and name not in POSITIONS:
                parts.append(name)
                _spell_tree(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for each in node:
            if not _is_text(each):
                _spell_tree(each, parts)
        parts.append("]")
    else:
        parts.append(f"{type(node).__name__} {node!r}")
    return parts


def _is_text(node: Any) -> bool:
    """Return whether a statement is a docstring or another string without effect."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _imports_in(node: ast.AST) -> Iterator[Import]:
    """Yield the imports in a syntax tree, except those for annotations."""
    if isinstance(node, ast.Import):
        yield from ((0, each.name, "") for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((node.level, node.module or "", each.name) for each in node.names)
    elif isinstance(node, ast.Call) and _last_name(node.func) in BY_NAME:
        # A module may be imported by its name, if the name is a literal.
        for each in node.args[:1]:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield 0, each.value, ""
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
        children = node.orelse
    for child in children:
        yield from _imports_in(child)


def _last_name(node: ast.expr) -> str:
    """Return a name, or the last name of ``a.b.c``; empty for other expressions."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def code_digest(roots: Iterable[str], beside: Mapping[str, Path] | None = None) -> str:
    """Return the digest of some modules and of all modules that they import.

    Parameters
    ----------
    roots : iterable of str
        Names of modules. Imports are followed into this package and into the packages
        of the roots.
    beside : mapping, optional
        A user's own files by module name; they take precedence.

    Raises
    ------
    LookupError
        If there is no file for a root.
    """
    found = modules_reached(roots, beside)
    return _combine_digests({name: one.digest for name, one in found.items()})


def modules_reached(
    roots: Iterable[str], beside: Mapping[str, Path] | None = None
) -> dict[str, Module]:
    """Return all modules that are part of a `code_digest`, by name.

    The parameters and errors are those of `code_digest`.
    """
    todo = roots = set(roots)
    known = {
        name: _parse_file(path, name)
        for name, path in (beside or {}).items()
        if not is_left_out(name)
    }
    tops = {root.partition(".")[0] for root in roots - known.keys()} - {PACKAGE}
    known, found = {**_modules_in_digests(), **known}, dict[str, Module]()
    while todo:
        for name in todo - known.keys():
            if name.partition(".")[0] in tops and (path := file_of(name)):
                known[name] = _parse_file(path, name)
        new = {name: known[name] for name in todo if name in known}
        found |= new
        todo = set[str]().union(*[one.names for one in new.values()]) - found.keys()
    if absent := roots - found.keys():
        raise LookupError(f"no file holds {', '.join(sorted(absent))}")
    return found


def is_left_out(module: str) -> bool:
    """Return whether a module of the package is left out of digests (`LEFT_OUT`)."""
    return module in LEFT_OUT or ".".join(module.split(".")[:2]) in LEFT_OUT


def digest_of_text(files: Mapping[str, Path]) -> str:
    """Return the digest of files by their names and bytes, comments included."""
    return _combine_digests(
        {n: sha256(p.read_bytes()).hexdigest() for n, p in files.items()}
    )


def _combine_digests(digests: Mapping[str, str]) -> str:
    lines = [f"{name} {digests[name]}" for name in sorted(digests)]
    return sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def file_of(module: str) -> Path | None:
    """Return the file of a module, without importing the packages above it."""
    top, *rest = module.split(".")
    spec = _spec_of(top)
    if spec is None or spec.submodule_search_locations is None:
        return Path(spec.origin) if spec and spec.origin and not rest else None
    folders = map(Path, spec.submodule_search_locations)
    found = (_file_in(folder.joinpath(*rest)) for folder in folders)
    return next(filter(None, found), None)


def _file_in(base: Path) -> Path | None:
    """Return the file of a module, from its path without the suffix."""
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next(filter(Path.is_file, candidates), None)


def files_beside(path: str) -> dict[str, Path]:
    """Return a user's file and the modules next to it that it imports, at any depth.

    If a module also exists in the standard library or in an installed package, its file
    next to the solver is not imported. In a folder passed to `isolate_folder`, the
    files of the folder are imported instead.

    Raises
    ------
    SyntaxError, ValueError
        If one of the files is not valid Python; `filename` of a SyntaxError is its
        path.
    """
    file = Path(path)
    files, todo = {file.stem: file}, [file.stem]
    while todo:
        name = todo.pop()
        path_ = files[name]
        try:
            found = parse_module(path_.read_bytes(), name, path_.name == "__init__.py")
        except SyntaxError as error:
            error.filename = str(path_)
            raise
        for module in sorted(found.names - files.keys()):
            top, base = module.partition(".")[0], file.parent / module.replace(".", "/")
            if (found_at := _file_in(base)) and not _is_elsewhere(top, file.parent):
                files[module] = found_at
                todo.append(module)
    return files


def _is_elsewhere(top: str, folder: Path) -> bool:
    if top == PACKAGE or top in sys.stdlib_module_names:
        return True
    if folder in _isolated:
        return False
    own = str(folder)
    others = [p for p in sys.path if os.path.abspath(p or os.getcwd()) != own]
    return importlib.machinery.PathFinder.find_spec(top, others) is not None


def isolate_folder(folder: Path) -> None:
    """Mark a folder as a copy of exactly the files that a solver had next to it.

    The modules in the folder then take precedence. Modules of the same names may exist
    in the working folder from which they were copied, or in an installed package.
    """
    _isolated.add(folder)


_isolated: set[Path] = set()


def digest_of_files(files: Mapping[str, Path]) -> str:
    """Return the digest of some modules, without the modules that they import."""
    return _combine_digests(
        {n: _parse_file(path, n).digest for n, path in files.items()}
    )


def is_ours(code: Any) -> bool:
    """Return whether a function or a class belongs to this package."""
    return str(code.__module__).partition(".")[0] == PACKAGE


def module_named(code: Any) -> str:
    """Return the module of a class, which may be given by its dotted name.

    The dotted name of a module is returned as it is.
    """
    if not isinstance(code, str):
        return str(code.__module__)
    return code if file_of(code) else code.rpartition(".")[0]


def digest_of(code: Any) -> str:
    """Return the `code_digest` of the module that defines a function or a class.

    Raises
    ------
    LookupError
        If the definition is not in a file, as for code from a notebook or inside a
        function.
    """
    module = code.__module__
    if is_ours(code):
        return code_digest([module])
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if isinstance(code, types.FunctionType):
        # Modules next to two different files may have the same name.
        file = code.__code__.co_filename
    if not file or not os.path.isfile(file) or "<locals>" in code.__qualname__:
        raise LookupError(f"no file holds the definition of {module}.{code.__name__}")
    by_path = getattr(getattr(loaded, "__loader__", None), "by_path", False)
    if not by_path and file_of(module) == Path(file):
        return code_digest([module])
    return code_digest([Path(file).stem], files_beside(file))
