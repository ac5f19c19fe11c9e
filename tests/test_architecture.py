"""docs/architecture.md shows the tree that is there."""

import re
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


def test_what_is_named_is_there():
    """Files, and folders that a new file goes to."""
    for name in set(re.findall(r"`((?:\w+/)+[\w.]*)`", PAGE)):
        path = name.replace("NAME", "*")
        found = [*PACKAGE.glob(path.rstrip("/")), *ROOT.glob(path.rstrip("/"))]
        assert found, name


def test_the_readme_leads_to_the_page():
    assert "(docs/architecture.md)" in (ROOT / "README.md").read_text()
