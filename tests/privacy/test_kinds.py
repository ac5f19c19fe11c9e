"""Test that accountants use only a release's law, not the name of its class."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

from dp_erm_bench.releases.allocation_gaussian import AllocationGaussian
from dp_erm_bench.releases.l1_laplace import L1Laplace
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.releases.renyi_filter import RenyiFilter
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect
from dp_erm_bench.releases.sampling import SampledRelease
from dp_erm_bench.releases.single_use_gaussian import SingleUseGaussian
from dp_erm_bench.releases.sketched_gaussian import SketchedGaussian
from dp_erm_bench.trust.twins.base import twin_of
from tests.loops import each
from tests.pages import read_page
from tests.privacy.made import built_in, release_of
from tests.privacy.test_perturbation import SECRET
from tests.privacy.test_releases import ADDITIVE, SELECTIONS

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / "dp_erm_bench"
DOC = read_page("accounting")
# Kinds whose draws are compared with the law that is accounted.
FITTED = {*ADDITIVE, *SELECTIONS, *SECRET, NormLaplace, L1Laplace}
FITTED |= {SingleUseGaussian, SketchedGaussian}  # test_single_use, test_sketched
FITTED |= {RepeatAndSelect, RenyiFilter}  # test_repeat_and_select, test_renyi_filter
FITTED |= {AllocationGaussian}  # test_allocation
ACCOUNTING = sorted((ROOT / "accounting").glob("*.py"))
ONE = np.ones((1, 1))
SHARED = {"law", "losses", "adjacency", "printed", "base"}
"""Modules of `releases` that hold no kind; the profile of mu-GDP is the Gaussian's."""
CURVE = {"log_gdp_delta", "gdp_delta"}
NAMES = {kind.__name__ for kind in built_in()}
LAWS = {
    release_of(kind, "any", ONE, 1, **facts).law().name
    for kind in built_in()
    for facts in ({}, {"rate": 0.5})
    if not facts or issubclass(kind, SampledRelease)
}


@pytest.mark.parametrize("path", ACCOUNTING, ids=lambda path: path.stem)
def test_accountants_know_no_kind(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            assert name not in (NAMES - {"L1Laplace"}) | {"kind"}, name
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
            if path.stem != "calibration":
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
        # A pass of three uses is one use of its law.
        assert release.law().times == (1 if kind is SingleUseGaussian else 3)
        assert release.mechanism(release, 1.0, ["a"]).scale.shape == (1, 1)


def lacking(kind):
    """Return what a kind of release of the package still needs."""
    module, found = kind.__module__.rpartition(".")[2], []
    if not (ROOT / "trust" / "twins" / f"{module}.py").is_file():
        found.append(f"its twin, trust/twins/{module}.py")
    elif twin_of(kind).__name__ != f"{kind.__name__}Twin":
        found.append(f"a twin called {kind.__name__}Twin")
    if f"\n| `{kind.__name__}` |" not in DOC:
        found.append("its row in docs/accounting.md")
    if kind not in FITTED:
        found.append("the goodness of fit of its draws")
    return found


@each("kind", built_in(), ids=lambda kind: kind.__name__)
def test_nothing_is_lacking(kind):
    assert lacking(kind) == []


def test_a_new_kind_is_told_what_it_lacks():
    module = "dp_erm_bench.releases.cauchy"
    new = type("Cauchy", (NormLaplace,), {"__module__": module})
    assert lacking(new) == [
        "its twin, trust/twins/cauchy.py",
        "its row in docs/accounting.md",
        "the goodness of fit of its draws",
    ]


def test_a_file_holds_one_kind_and_one_twin():
    modules = [kind.__module__ for kind in built_in()]
    twins = {path.stem for path in (ROOT / "trust" / "twins").glob("*.py")}
    assert len(set(modules)) == len(modules)
    names = {module.rpartition(".")[2] for module in modules}
    assert twins == names | {"__init__", "base", "pure"}
