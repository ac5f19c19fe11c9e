"""Test that the pages on privacy name existing tests, files and columns."""

import ast
import re
from pathlib import Path

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.contract import suite
from dp_erm_bench.datasets.base import Uncharged
from dp_erm_bench.datasets.prepare import Recipe
from dp_erm_bench.problems.erm.objective import ReleasedSmoothness
from dp_erm_bench.releases.adjacency import Adjacency
from tests.loops import each
from tests.pages import read_page
from tests.privacy.made import built_in

ROOT = Path(__file__).resolve().parents[1]
DOC = "\n".join(map(read_page, ("privacy", "accounting", "evidence")))
CODE = re.findall(r"`([^`\n]+)`", DOC)
PLACES = [word for word in CODE if "/" in word]
ERRATA = read_page("errata")
TESTS = re.findall(r"`(tests/[^`\n]+)`", ERRATA)


def functions(path):
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@each("place", sorted({*PLACES, *TESTS}))
def test_what_it_names_exists(place):
    path, _, name = place.partition("::")
    assert (ROOT / path).exists()
    assert not name or name in functions(ROOT / path)


def test_every_erratum_names_its_test_or_says_that_it_has_none():
    entries = re.findall(r"^- (.*(?:\n  .*)*)", ERRATA, flags=re.M)
    assert len(entries) >= 30 and len(TESTS) >= 15
    for entry in entries:
        assert entry.startswith("**")
        marks = ("`misprint`", "`reading`", "**Open**")
        shown = any(f"`{place}`" in entry for place in TESTS)
        assert shown or any(mark in entry for mark in marks), entry


def test_every_release_and_adjacency_has_its_place():
    rows = {line.split("`")[1] for line in DOC.splitlines() if line.startswith("| `")}
    assert rows == {kind.__name__ for kind in built_in()}
    assert {adjacency.value for adjacency in Adjacency} <= set(CODE)


def test_every_uncharged_use_is_explained():
    """One point of the list each; ``uncharged`` is made of these words alone."""
    _, _, rest = DOC.partition("- **`uncharged`**")
    points = re.findall(r"^  - `([^`]+)`: \w", rest, flags=re.M)
    solvers = [registry.target("algorithm", x) for x in registry.names("algorithm")]
    own = sorted({name for solver in solvers for name in solver.uncharged})
    assert points == [*(use.value for use in Uncharged), *own]
    made = (
        *Recipe(standardise=True, drop_empty=True).uncharged,
        *ReleasedSmoothness(np.ones((1, 2)), "data").uncharged,
    )
    assert len(made) == 4
    assert all(isinstance(use, Uncharged) for use in made)


def test_checks_that_it_names_are_in_the_suite():
    known = {check.name for check in suite.CHECKS}
    assert {"the_noise_is_recounted", "declarations_know_no_data"} <= known & set(CODE)


def test_make_targets_that_it_names_exist():
    targets = re.findall(r"make (\w+)", DOC)
    text = (ROOT / "Makefile").read_text()
    (line,) = re.findall(r"^\.PHONY: (.*)$", text, flags=re.M)
    assert targets and set(targets) <= set(line.split())
