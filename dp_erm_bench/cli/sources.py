"""Parameters of algorithms as their sources have them: nothing is imported."""

import ast
import functools
import importlib.util
import itertools
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.plugins.names import is_file


def yaml_of(group: str, name: str) -> dict[str, Any]:
    """Return the yaml of a choice of ours, empty for any other."""
    return registry.read(group, name) if name in registry.built_in(group) else {}


def parameters(algorithm: str, file: str = "") -> dict[str, tuple[str, ...]]:
    """Return the parameters of an algorithm, each with the words allowed.

    They are read from its source, for to import it takes too long: that of its yaml's
    class, or a user's `file`. Those of an entry point are not known here.
    """
    if file:
        classes = [one for one in _tree(file).body if isinstance(one, ast.ClassDef)]
        fields = [_fields(file, one.name).items() for one in classes if one.bases]
        return dict(itertools.chain(*fields))
    target = str(yaml_of("algorithm", algorithm).get("_target_", ""))
    module, _, name = target.rpartition(".")
    return _fields(module, name)


def _fields(module: str, name: str) -> dict[str, tuple[str, ...]]:
    """Return the annotated fields of a dataclass, those of its bases first."""
    home, definition = _definition(module, name)
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
    keywords: list[ast.keyword] = getattr(field, "keywords", [])
    node = next((k.value for k in keywords if k.arg == "choices"), None)
    if node is None and isinstance(field, ast.Call):  # a function makes the field
        home, maker = _definition(module, ast.unparse(field.func))
        body = maker.body if isinstance(maker, ast.FunctionDef) else [maker]
        return _choices(home, getattr(body[-1], "value", None))
    if isinstance(node, ast.Call):
        node = node.args[0]
    if isinstance(node, ast.Name):
        _, constant = _definition(module, node.id)
        node = getattr(constant, "value", None)
    items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    return tuple(str(item.value) for item in items if isinstance(item, ast.Constant))


def _definition(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """Return the module that defines a name, through imports, and its statement."""
    head, _, rest = name.partition(".")
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and head in [n.name for n in node.names]:
            home = f"{node.module}.{head}" if rest else node.module or ""
            return _definition(home, rest or name)
        targets = [getattr(node, "target", None), *getattr(node, "targets", ())]
        names = [ast.unparse(target) for target in targets if target is not None]
        if name in (getattr(node, "name", None), *names):
            return module, node
    return module, None


@functools.cache
def _tree(module: str) -> ast.Module:
    """Return the syntax tree of a file or a module of ours, else an empty one."""
    ours = module.partition(".")[0] == __name__.partition(".")[0]
    spec = importlib.util.find_spec(module) if ours else None
    path = module if is_file(module) else spec.origin if spec else None
    return ast.parse(Path(path).read_text("utf-8")) if path else ast.Module([], [])
