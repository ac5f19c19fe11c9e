"""Test the documentation: its numbers, its code and its links."""

import re
from fractions import Fraction

import matplotlib
import numpy as np
import pandas as pd
import pytest

from benchmarks import publish
from benchmarks.cards import page_of_data
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.api import load_problem
from dp_erm_bench.cli.main import main
from dp_erm_bench.experiment.schema import PatternSearch
from dp_erm_bench.results.store import FAILED, FINISHED
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.random_cd import RandomCD
from tests.pages import ROOT, WRITTEN, code_blocks, command_lines, read_page

PUBLISHED = ROOT / "results" / "published"
LONGEST = 150
"""Lines of a page that is written by hand."""
QUIET = ["runner.n_jobs=1", "runner.progress=false"]
BUILT = ("generated/", "notebooks/")
"""Beginnings of links to pages that `make docs` writes."""


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_a_page_is_short_and_its_links_lead_to_files(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        name, _, anchor = link.partition("#")
        if link.startswith(("http", *BUILT)):
            continue
        target = path.parent / name if name else path
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            slugs = [
                re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads
            ]
            assert anchor in slugs, link


def test_every_page_is_in_the_table_of_contents():
    pages = {path.stem: path.read_text() for path in (ROOT / "docs").glob("*.md")}
    tree = re.compile(r"^```{toctree}\n(.*?)^```", re.S | re.M)
    trees = "".join(one for text in pages.values() for one in tree.findall(text))
    assert pages.keys() - {"index"} == set(re.findall(r"^([a-z_]+)$", trees, re.M))


@pytest.mark.parametrize("name", ["README", "first_fit"])
def test_the_python_of_a_page_runs(name, tmp_path, monkeypatch):
    """All blocks but those of solver files, one after the other."""
    monkeypatch.chdir(tmp_path)
    space = {}
    for block in code_blocks(name, "python"):
        if "class " not in block:
            exec(block, space)
    assert 0.0 < space["result"].epsilon_certified <= 1.0
    assert 0.0 < space["model"].epsilon_certified_ <= 1.0


@pytest.mark.slow
def test_the_commands_and_the_solver_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (solver,) = [b for b in code_blocks("README", "python") if "class " in b]
    (tmp_path / "noisy_gd.py").write_text(solver)
    for line in command_lines(*code_blocks("README", "sh")):
        runs = line[0] not in ("plot", "export", "check")
        assert main([*line, *QUIET] if runs else line) == 0, line
    assert "all checks pass" in capsys.readouterr().out


@pytest.mark.slow
def test_the_tutorial_on_papers_runs(tmp_path, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    assert main(["experiment=mangold2022", "profile=smoke", *QUIET]) == 0
    space = {}
    for block in code_blocks("reproduce", "python"):
        exec(block, space)
    assert {"holds", "fails", "not judged"} >= {*space["claims"]["verdict"]}


@pytest.mark.parametrize("status", [*FINISHED, *FAILED])
def test_every_status_is_explained(status):
    assert f"| `{status}` |" in read_page("results_folder")


def test_the_page_of_data_is_that_of_their_cards():
    assert read_page("datasets") == page_of_data()


def test_the_defaults_of_a_search_are_those_of_the_code():
    search, text = PatternSearch(), read_page("tuning")
    for name in ("trials", "radius", "finalists", "tolerance"):
        assert f"| `search.{name}` | {getattr(search, name)} |" in text
    assert f"| `search.race` | {list(search.race)} |" in text


@pytest.mark.parametrize("order", ["cyclic", "cyclic_reversed", "uniform"])
def test_the_lasso_ends_as_the_table_of_orders_says(order):
    """Two of its columns again, 24 seeds each; the standard error is 4 to 11 %."""
    problem = load_problem("sparse_lasso")
    lines = read_page("lasso").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")]
    table = {row[0][2:]: row[1:] for row in rows if len(row) == 8}
    for column in (3, 4):
        step, clip, said = (
            float(table[row][column]) for row in ("step", "clip", order)
        )
        values = {"step": step, "clip": clip * problem.gradient_rms}
        passes = float(table["order"][column])
        solver = RandomCD(order=order, passes=passes, smoothness="data", **values)
        names = [f"{order} {seed}" for seed in range(24)]
        run = Run(problem, [solver] * 24, Budget(10.0, "1/n^2"), identities=names)
        errors = run.record(2).rows.objective[-1] / problem.optimum.value - 1.0
        assert np.mean(errors) == pytest.approx(said, rel=0.3)


def test_the_slopes_of_tables_1_to_3_are_those_published():
    published = pd.read_csv(PUBLISHED / "kumar2019_claims.csv")
    rows = published[published["figure"].str.fullmatch("table[123]")]
    section = read_page("papers").split("## Structured norms")[1].split("\n## ")[0]
    lines = re.findall(r"^\|.*row \d:.*$", section, re.MULTILINE)
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert len(rows) == len(table) == 12
    shown = [(float(slope), verdict) for *_, slope, verdict in table]
    assert shown == [
        (round(x, 2), y) for x, y in zip(rows["value"], rows["verdict"], strict=True)
    ]
    allowed = [float(Fraction(exponent)) + 0.15 for _, _, exponent, *_ in table]
    limits = rows["threshold"].str.removeprefix("<= ").astype(float)
    np.testing.assert_allclose(limits, allowed, atol=1e-4)


def test_the_readme_counts_the_claims_of_the_published_tables():
    readme = publish.README.read_text()
    assert readme.count("_claims.csv)") >= 9
    assert publish.with_counts(readme) == readme
