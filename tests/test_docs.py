"""docs/ says what the code does: its words, numbers and defaults."""

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import publish
from benchmarks.cards import page_of_data
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.api import load_problem
from dp_erm_bench.cli.plots import _compare_parser
from dp_erm_bench.experiment.lines import LONGEST
from dp_erm_bench.experiment.schema import PatternSearch
from dp_erm_bench.experiment.tune import BETTER, MODELLED, SOBOL
from dp_erm_bench.registry import QUANTITIES
from dp_erm_bench.results.compare import MEASURES, RANK, WAYS, ComparisonRule
from dp_erm_bench.results.statistics import FLOOR, RESAMPLES
from dp_erm_bench.results.store import FAILED, FINISHED
from dp_erm_bench.run import Run
from dp_erm_bench.runner.experiment import OPEN
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.solvers.random_cd import RandomCD

DOCS = Path(__file__).resolve().parents[1] / "docs"
PUBLISHED = DOCS.parent / "results" / "published"
HARNESS = (DOCS / "harness.md").read_text()
PAPERS = (DOCS / "papers.md").read_text()
PLAIN = " ".join(HARNESS.split())


@pytest.mark.parametrize("status", [*FINISHED, *FAILED])
def test_every_status_is_explained(status):
    assert f"| `{status}` |" in HARNESS
    assert status in RANK


def test_the_page_of_data_is_that_of_their_cards():
    assert (DOCS / "datasets.md").read_text() == page_of_data()


def test_comparing_is_explained_with_every_choice():
    for measure in MEASURES:
        assert f"`{measure}`" in HARNESS
    for way in WAYS:
        assert f"`--by {way}`" in HARNESS
    for action in _compare_parser()._actions:
        assert all(option in HARNESS for option in action.option_strings)


def test_tuning_is_explained_with_the_defaults_of_the_code():
    search, text = PatternSearch(), (DOCS / "tuning.md").read_text()
    for name in ("trials", "radius", "finalists", "tolerance"):
        assert f"| `search.{name}` | {getattr(search, name)} |" in text
    assert f"| `search.race` | {list(search.race)} |" in text
    assert f"{LONGEST} times the grid's longest" in text
    assert all(word in text for word in (*QUANTITIES, *(f"{key}`" for key in OPEN)))
    assert f"{SOBOL} scrambled" in text and f"the best {BETTER[0]} get more" in text
    assert f"the {MODELLED} new points" in text


def test_the_numbers_are_those_of_the_code():
    rule = ComparisonRule()
    assert f"`--tolerance` ({rule.tolerance})" in HARNESS
    assert f"`--interval {rule.interval}`" in HARNESS
    assert f"Fewer than {rule.least} seeds (at {rule.interval}" in PLAIN
    assert f"0.999` (it takes {ComparisonRule(interval=0.999).least} seeds)" in PLAIN
    assert f"({RESAMPLES} draws" in PLAIN
    assert f"below {FLOOR:g}".replace("e-09", "e-9") in PLAIN
    assert f"`runner.time_limit` seconds ({RunOptions().time_limit:g};" in PLAIN


def test_the_defaults_of_the_command_are_those_of_the_rule():
    given = _compare_parser().parse_args(["a", "b"])
    assert ComparisonRule(given.by, given.tolerance, given.interval) == ComparisonRule()
    assert given.on == ["objective"]


@pytest.mark.parametrize("order", ["cyclic", "cyclic_reversed", "uniform"])
def test_the_lasso_ends_as_the_table_of_orders_says(order):
    """Two of its columns again, 24 seeds each; the standard error is 4 to 11 %."""
    problem = load_problem("sparse_lasso")
    rows = [line.split(" | ") for line in PAPERS.splitlines() if line.startswith("| ")]
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
    section = PAPERS.split("## Norms that induce structure")[1].split("\n## ")[0]
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
