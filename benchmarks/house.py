"""The size and shape of the package, in one row.

`python -m benchmarks.house` prints files, code lines (without blanks, comments and
docstrings), the share of imports among these, code lines of functions (median, 95 %,
largest), files that take part in a circle of imports (those inside functions and under
TYPE_CHECKING count), and modules outside results/ that import the store or a part of
it. `--list` prints the files with their code lines, and each circle. A folder may be
named instead: any package's.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).resolve().parents[1]
STORE = "dp_erm_bench.results.store"
QUIET = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lines(node: ast.AST) -> set[int]:
    """Return the lines that a statement spans."""
    return set(range(node.lineno, node.end_lineno + 1))  # type: ignore[attr-defined]


def code(text: str, tree: ast.Module) -> set[int]:
    """Return the lines with code: a token that is no comment and no docstring.

    A string that stands alone after an assignment documents it.
    """
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in QUIET:
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                found -= lines(node)
    return found


def imported(tree: ast.Module, module: str, package: bool) -> Iterator[str]:
    """Yield what a module imports anywhere, with the names taken from modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: None if package else -1]
            base = above[: len(above) - node.level + 1] if node.level else []
            base += [node.module] if node.module else []
            yield ".".join(base)
            yield from (".".join([*base, alias.name]) for alias in node.names)


def modules(names: set[str], known: set[str]) -> set[str]:
    """Return the known modules among imported names: a package only for itself."""
    parents = {name.rpartition(".")[0] for name in names & known}
    own = {name.rpartition(".")[0] for name in names - known}
    return {name for name in names & known if name not in parents or name in own}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules, of two or more, that reach one another."""
    names = sorted(edges)
    place = {name: at for at, name in enumerate(names)}
    pairs = [(place[a], place[b]) for a in names for b in edges[a] if a != b]
    rows, columns = np.array(pairs).reshape(-1, 2).T
    graph = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(len(names),) * 2)
    _, labels = connected_components(graph, directed=True, connection="strong")
    parts = [[names[i] for i in np.flatnonzero(labels == k)] for k in set(labels)]
    return sorted((part for part in parts if len(part) > 1), key=len, reverse=True)


def main() -> None:
    """Print the row."""
    words = [word for word in sys.argv[1:] if word != "--list"]
    folder = Path(words[0]).resolve() if words else ROOT / "dp_erm_bench"
    sizes: dict[str, int] = {}
    edges: dict[str, set[str]] = {}
    functions, imports = [], 0
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if package else parts)
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        counted = code(text, tree)
        sizes[module] = len(counted)
        edges[module] = set(imported(tree, module, package))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += len(lines(node) & counted)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(len(lines(node) & counted))
    store = [
        name
        for name, found in edges.items()
        if STORE in found and not name.startswith("dp_erm_bench.results")
    ]
    found = circles({name: modules(edges[name], set(edges)) for name in edges})
    total, share = sum(sizes.values()), np.percentile(functions, (50, 95, 100))
    print(
        "| files | code lines | imports, % | function 50/95/max | in circles | store |"
    )
    print("|---|---|---|---|---|---|")
    print(
        f"| {len(sizes)} | {total} | {100 * imports / total:.1f} | "
        f"{'/'.join(f'{value:.0f}' for value in share)} | {sum(map(len, found))} | "
        f"{len(store)} |"
    )
    if "--list" in sys.argv:
        for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
            print(f"{size:5} {name}")
        for circle in found:
            print(f"circle of {len(circle)}: {', '.join(circle)}")
        print(f"the store is imported by {', '.join(store)}")


if __name__ == "__main__":
    main()
