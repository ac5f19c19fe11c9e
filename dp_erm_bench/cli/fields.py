"""Parameters of an algorithm, read from its source: importing it takes too long."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

from dp_erm_bench import registry


def parameters(algorithm: str) -> dict[str, tuple[str, ...]]:
    """Return the parameters of an algorithm of ours, each with the words allowed.

    Parameters
    ----------
    algorithm : str
        Name of its yaml; what has none has no parameters here.
    """
    if algorithm not in registry.built_in("algorithm"):
        return {}
    module, _, name = registry.read("algorithm", algorithm)["_target_"].rpartition(".")
    return _fields(module, name)


def _fields(module: str, name: str) -> dict[str, tuple[str, ...]]:
    """Return the annotated fields of a dataclass, those of its bases first."""
    home, definition = _found(module, name)
    if not isinstance(definition, ast.ClassDef):
        return {}
    fields: dict[str, tuple[str, ...]] = {}
    for base in definition.bases:
        fields |= _fields(home, ast.unparse(base))
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if "ClassVar" not in ast.unparse(node.annotation):
                fields[node.target.id] = _choices(home, node.value)
    return fields


def _choices(module: str, field: ast.expr | None) -> tuple[str, ...]:
    """Return the words of `choices=`: a literal, a constant, or a constant's keys."""
    keywords = field.keywords if isinstance(field, ast.Call) else []
    node = next((k.value for k in keywords if k.arg == "choices"), None)
    if isinstance(node, ast.Call):
        node = node.args[0]
    if isinstance(node, ast.Name):
        _, constant = _found(module, node.id)
        node = getattr(constant, "value", None)
    items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    return tuple(str(item.value) for item in items if isinstance(item, ast.Constant))


def _found(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """Return where a name of a module is made, which it may import, and its making."""
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and name in [n.name for n in node.names]:
            return _found(node.module or "", name)
        if name in (getattr(node, "name", None), *_targets(node)):
            return module, node
    return module, None


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.AnnAssign):
        return [ast.unparse(node.target)]
    return [*map(ast.unparse, node.targets)] if isinstance(node, ast.Assign) else []


@functools.cache
def _tree(module: str) -> ast.Module:
    """Return the syntax tree of a module of ours, an empty one for any other."""
    ours = module.partition(".")[0] == __name__.partition(".")[0]
    spec = importlib.util.find_spec(module) if ours else None
    if spec is None or spec.origin is None:
        return ast.Module([], [])
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
