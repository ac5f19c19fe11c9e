"""Test that docs/architecture.md shows the existing files and names."""

import ast
import functools
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dp_erm_bench"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
LAYERS = re.search(r"\| layer \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE)[1]


def shown():
    """The names of each layer of the page, from top to bottom."""
    rows = LAYERS.splitlines()
    return [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in rows]


def test_the_layers_are_those_that_imports_are_held_to():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    layers = contracts["importlinter"]["contracts"][0]["layers"]
    assert shown() == [re.split(r" [:|] ", layer) for layer in layers]


def test_every_module_and_folder_is_in_a_layer():
    there = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {name for names in shown() for name in names} == there


SOURCES = [
    path
    for top in ("dp_erm_bench", "tests", "benchmarks")
    for path in (ROOT / top).rglob("*.py")
]
DOCS = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
MODULES = {
    (PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in PACKAGE.rglob("*.py")
} | {
    (PACKAGE.name, *path.parent.relative_to(PACKAGE).parts): path
    for path in PACKAGE.rglob("__init__.py")
}
TOPS = {name for module in MODULES for name in module}
FOLDERS = {*TOPS, "benchmarks", "docs", "experiments", "tests"} - {"results"}
LIBRARIES = {*sys.stdlib_module_names, "dask", "joblib"}
OTHERS = LIBRARIES | {"a", "dataset", "np", "numba", "numpy", "self", "sklearn"}
"""What begins a name of something else than of the package, in its sources."""

FILES = {"csv", "html", "json", "jsonl", "md", "parquet", "yaml"}
NAMED = re.compile(r"`((?:\w+[./])+\w+)(?:\([^`\n]*\))?`")


@functools.cache
def names_of(path):
    """Return what a source defines or imports, in classes and functions, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.alias(name=name):
                found.add(name)
            case ast.Constant(value=str(name)) if path.name == "__init__.py":
                found.add(name)  # imported on first use
    return found


@functools.cache
def keys():
    """Return the keys of configurations: `runner.n_jobs` is one, and no attribute."""
    texts = [path.read_text() for path in (ROOT / "conf").rglob("*.yaml")]
    found = {key for text in texts for key in re.findall(r"^ *(\w+):", text, re.M)}
    return found | names_of(PACKAGE / "experiment" / "schema.py")


def is_there(name):
    """Tell whether a file, a module or what is in one has a name."""
    if "/" in name or name.endswith(".py"):
        pattern = name.replace("NAME", "*")
        return any([*PACKAGE.glob(pattern), *ROOT.glob(pattern)])
    parts = tuple(name.split("."))
    if parts[0] in ("budget", "options", "runner", "tune") and keys() >= {*parts[1:]}:
        return True
    for module, path in MODULES.items():
        for many in range(1, len(parts) + 1):
            if module[-many:] == parts[:many] and names_of(path) >= {*parts[many:]}:
                return True
    return False


def is_asked(name, path):
    """Tell whether a name is one of ours: in the package all are but of `OTHERS`."""
    first, last = re.split("[./]", name)[0], name.rpartition(".")[2]
    if "/" in name:
        return first in FOLDERS or path.name == "architecture.md"
    if path.is_relative_to(PACKAGE) and first.islower():
        return last not in FILES and first not in OTHERS
    return last not in FILES and first in TOPS - LIBRARIES


def test_what_is_named_is_there():
    """Modules, what is in them, and files: in docs, docstrings, comments, sentences."""
    for path in [*SOURCES, *DOCS]:
        for name in set(NAMED.findall(path.read_text())):
            assert not is_asked(name, path) or is_there(name), f"{path}: {name}"


def tasks():
    """Yield the rows of both tables: what, files, how, and how many outside."""
    for line in PAGE[PAGE.index("| to add |") :].splitlines():
        if line.startswith("| a"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            yield cells[0], re.findall(r"`([^`]+)`", cells[1]), *cells[2:]


def test_no_errand_takes_more_than_six_files():
    assert all(1 <= len(files) <= 6 for _, files, *_ in tasks())


def test_what_is_added_from_outside_takes_as_many_files_as_the_page_says():
    said = {name: int(rest[1]) for name, _, *rest in tasks() if rest[1:] and rest[1]}
    kinds = {"loss": ["a loss"], "group_norm": ["a penalty"], "cube": ["a constraint"]}
    kinds |= {"private_mean": ["a problem"], "paper": ["a paper", "a figure"]}
    kinds |= {"sampled_noise": ["a solver", "a release"]}
    assert sorted(said) == sorted(sum(kinds.values(), []))
    for folder, names in kinds.items():
        files = [*(ROOT / "tests" / "extending" / folder).rglob("*.*")]
        count = sum(path.suffix in (".py", ".yaml") for path in files)
        assert count == sum(said[name] for name in names), folder
