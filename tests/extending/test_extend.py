"""Test that `dp_erm_bench.extend` has all names that users' files need."""

import ast
import re
from pathlib import Path

import pytest

from dp_erm_bench import extend, registry
from dp_erm_bench.errors import UsageError
from tests.pages import read_page

HERE = Path(__file__).parent
DOC = read_page("extend")
FOLDERS = ("cube", "group_norm", "loss", "private_mean")
FILES = sorted(path for folder in FOLDERS for path in (HERE / folder).glob("*.py"))


def test_every_name_resolves_and_is_documented():
    table = DOC.partition("## By purpose")[2].partition("\n## ")[0]
    told = set(re.findall(r"`(\w+)`", table))
    assert told == set(extend.__all__) and extend.__all__ == sorted(told)
    assert all(hasattr(extend, name) for name in told)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_from_outside_import_from_there_alone(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    ours = {name for name in modules if name and name.startswith("dp_erm_bench")}
    assert ours <= {"dp_erm_bench.extend"}


@pytest.mark.parametrize(
    ("imported", "words"),
    [
        (
            "from dp_erm_bench.privacy.releases import Gaussian, NoisyMax",
            "imports from dp_erm_bench.privacy.releases what is not there; .* write "
            "from dp_erm_bench.extend import Gaussian, NoisyMax$",
        ),
        (
            "from dp_erm_bench.solvers.base import Solver, Gaussian",
            "from dp_erm_bench.extend import Gaussian, Solver$",
        ),
        (
            "import dp_erm_bench.nowhere",
            "imports from dp_erm_bench.nowhere what is not there",
        ),
        ("import nowhere_at_all", "cannot be imported, ModuleNotFoundError in line 1"),
    ],
)
def test_a_place_that_is_gone_is_answered_with_the_lasting_one(
    imported, words, tmp_path
):
    path = tmp_path / "own.py"
    path.write_text(f"{imported}\n")
    with pytest.raises(UsageError, match=f"^algorithm=.*own.py: .*{words}") as refused:
        registry.build("algorithm", str(path))
    assert "\n" not in str(refused.value)
