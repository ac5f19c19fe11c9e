"""Measure the size of the package by groups of files, called rooms.

`python -m benchmarks.house` prints the numbers of statements, tokens and files of each
room. Statements are `ast.stmt` nodes without docstrings and other bare strings. It also
prints the longest chain of imports at import time, and the calls of a trial
(`benchmarks.entered`). With `--list` it prints each file with its number of statements.
Another package's folder may be named instead; it has no rooms.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks import entered

ROOT = Path(__file__).resolve().parents[1] / "dp_erm_bench"
ROOMS = {
    "ground": ("code_identity", "definitions", "machine_code", "cached", "plugins/"),
    "own data": ("datasets/", "cli/look"),
    "folders": ("results/", "runner/replay", "cli/bundle"),
    "runner": ("runner/",),
    "check": ("contract/", "trust/replay", "audit/statistic", "cli/check"),
    "report": ("report/",),
    "command line": ("cli/",),
    "tuner": ("experiment/tune", "results/tuned", "results/choices", "papers/"),
    "plan": ("experiment/", "registry", "paths", "errors"),
    "front": ("api", "estimators", "fitted", "extend", "__init__", "__main__"),
    "science": (
        *("solvers/", "releases/", "accounting/", "problems/", "losses/", "norms/"),
        *("penalties/", "constraints/", "kernels/", "trust/", "audit/", "run"),
        *("datasets/real", "datasets/synthetic", "rules/"),
    ),
}
"""Beginnings of paths that belong to each room; the longest that matches decides."""

QUIET = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
    *(tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING),
)


def room_of(path: str) -> str:
    """Return the room of a file of the package."""
    fits = {
        start: room
        for room, starts in ROOMS.items()
        for start in starts
        if path.startswith(start if start.endswith("/") else (f"{start}.", start))
    }
    if not fits:
        raise ValueError(f"{path}: is in no room")
    return fits[max(fits, key=len)]


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a bare string, such as a docstring."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def statements(tree: ast.AST) -> int:
    """Return the number of statements of a syntax tree."""
    return sum(isinstance(n, ast.stmt) and not is_text(n) for n in ast.walk(tree))


def tokens(text: str, tree: ast.AST) -> int:
    """Return the number of tokens without comments, layout and docstrings."""
    read = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(one.type not in QUIET for one in read) - sum(
        map(is_text, ast.walk(tree))
    )


def imports(module: str, package: bool, node: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports at import time.

    Names imported from a module are also yielded, since they may be modules.
    """
    inside = module.split(".")[: None if package else -1]
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            above = inside[: len(inside) - each.level + 1] if each.level else []
            base = ".".join([*above, *filter(None, [each.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in each.names)
        elif isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test):
            pass
        elif not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports(module, package, each)


def longest(edges: dict[str, set[str]]) -> list[str]:
    """Return the longest chain of imports without a module that occurs twice."""
    found: dict[str, list[str]] = {}

    def chain(module: str, above: frozenset[str]) -> list[str]:
        if module not in found:
            after = (
                chain(one, above | {module})
                for one in edges[module] & edges.keys()
                if one not in above and one != module
            )
            found[module] = [module, *max(after, key=len, default=[])]
        return found[module]

    return max((chain(module, frozenset()) for module in sorted(edges)), key=len)


def main() -> None:
    """Print the table of sizes."""
    words = [word for word in sys.argv[1:] if word != "--list"]
    folder = Path(words[0]).resolve() if words else ROOT
    counts = {what: Counter[str]() for what in ("statements", "tokens", "files")}
    edges, sizes = dict[str, set[str]](), dict[str, int]()
    for path in sorted(folder.rglob("*.py")):
        name, text = path.relative_to(folder).as_posix(), path.read_text("utf-8")
        tree = ast.parse(text)
        package = path.name == "__init__.py"
        parts = path.relative_to(folder.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if package else parts)
        edges[module] = set(imports(module, package, tree))
        sizes[name] = statements(tree)
        for room in ("all", room_of(name) if folder == ROOT else "any"):
            for what, number in (
                ("statements", sizes[name]),
                ("tokens", tokens(text, tree)),
                ("files", 1),
            ):
                counts[what][room] += number
    print("| room | statements | tokens | files |\n|---|---|---|---|")
    for room in (*(ROOMS if folder == ROOT else ()), "all"):
        print(f"| {room} | {' | '.join(f'{one[room]:,}' for one in counts.values())} |")
    if "--list" in sys.argv:
        for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
            print(f"{size:5} {name}")
    found = longest(edges)
    print(f"longest chain of imports: {len(found)} modules, from {found[0]}")
    if folder == ROOT:
        sys.argv = sys.argv[:1]
        entered.main()


if __name__ == "__main__":
    main()
