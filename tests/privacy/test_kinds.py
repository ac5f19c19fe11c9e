"""Accountants ask a release's law, and know no kind of release by its name."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from tests.privacy.made import built_in, release_of

ROOT = Path(__file__).resolve().parents[2] / "dp_erm_bench"
ACCOUNTING = sorted((ROOT / "accounting").glob("*.py"))
ONE = np.ones((1, 1))
SHARED = {"law", "losses", "adjacency", "printed"}
"""Modules of `releases` that hold no kind; the profile of mu-GDP is the Gaussian's."""
CURVE = {"log_gdp_delta", "gdp_delta"}
NAMES = {kind.__name__ for kind in built_in()}
LAWS = {
    release_of(kind, "any", ONE, 1, **facts).law().name
    for kind in built_in()
    for facts in ({}, {"rate": 0.5})
    if not facts or kind is PoissonGaussian
}


@pytest.mark.parametrize("path", ACCOUNTING, ids=lambda path: path.stem)
def test_accountants_know_no_kind(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            assert name not in (NAMES - {"LaplaceVector"}) | {"kind"}, name
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            assert ast.unparse(node.args[1]) in ("float", "str", "bool"), ast.unparse(
                node
            )
        if isinstance(node, ast.Compare):
            words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            # An accountant is called pure, too.
            assert not words & (LAWS - {"pure"}), ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and "releases." in (node.module or ""):
            module = node.module.rpartition(".")[2]
            names = {alias.name for alias in node.names}
            # What takes a share of the budget says so by its class.
            if path.stem != "shares":
                assert module in SHARED or names <= CURVE, node.module


def test_each_question_is_answered_by_a_kind():
    """A question that no kind answers is not asked."""
    asked = [name for name, _ in inspect.getmembers(Law, inspect.isfunction)]
    asked = {name for name in asked if not name.startswith("_")} - {"multiplier"}
    laws = {type(release_of(kind, "any", ONE, 1).law()) for kind in built_in()}
    laws.add(type(PoissonGaussian("any", ONE, 1, rate=0.5).law()))
    for question in asked:
        assert any(getattr(law, question) is not getattr(Law, question) for law in laws)


def test_every_kind_has_a_mechanism_and_a_law():
    for kind in built_in():
        release = release_of(kind, "any", ONE, 3)
        assert release.law().times == 3
        assert release.mechanism(release, 1.0, ["a"]).scale.shape == (1, 1)
