"""Test the figure and the claims of the accounting study on its own rows."""

import functools

import pandas as pd
import pytest

from dp_erm_bench.papers.instances import INSTANCES, violation_table
from dp_erm_bench.report import studies
from dp_erm_bench.report.claims.judge import evaluate_claims
from dp_erm_bench.report.figure import Drawing
from dp_erm_bench.report.layout import MAX_PNG_BYTES
from tests.audit.noise import noise_table


@pytest.fixture(scope="module")
def table():
    rows = noise_table(["greedy_cd", "random_cd"], (10, 50), (0.1, 1.0))
    rows += violation_table(INSTANCES[:2], (1.0, 20.0, 30.0))
    return pd.DataFrame(rows)


@pytest.fixture
def sheets(monkeypatch):
    """What would be saved."""
    seen = []
    monkeypatch.setattr(
        studies, "save_sheet", lambda sheet, path: seen.append(sheet) or [path]
    )
    return seen


def draw(table, folder):
    folder.mkdir(exist_ok=True)
    return studies.Accounting().draw(Drawing(table, folder, "accounting", {}))


def drawn(cell):
    """The axes of one cell."""
    import matplotlib.pyplot as plt

    figure = plt.figure()
    ax = figure.add_subplot()
    cell(ax)
    plt.close(figure)
    return ax


def lines(cell):
    ax = drawn(cell)
    return {line.get_label(): list(line.get_ydata()) for line in ax.lines}


def test_files(table, tmp_path):
    pdf, png, *_ = draw(table, tmp_path / "figures")
    assert pdf.suffix == ".pdf" and pdf.stat().st_size > 5000
    assert 10_000 < png.stat().st_size <= MAX_PNG_BYTES


def test_without_rows_the_violation_alone_is_computed(
    table, sheets, tmp_path, monkeypatch
):
    computed = functools.partial(violation_table, INSTANCES, (1.0, 30.0))
    monkeypatch.setattr(studies, "violation_table", computed)
    draw(table[:0], tmp_path)
    (cell,) = sheets[0].cells
    assert len(lines(cell)) == len(INSTANCES) + 1
    assert sheets[0].caption.startswith("Last panel: one coordinate")


def test_one_budget_is_drawn(table, sheets, tmp_path):
    other = table.assign(delta=0.3, adjacency="zero_out")[:10]
    draw(pd.concat([other, table]), tmp_path)
    draw(table, tmp_path)
    first, second = ([lines(c) for c in sheet.cells] for sheet in sheets)
    assert first == second and sheets[0].caption == sheets[1].caption


def test_panels(table, sheets, tmp_path):
    draw(table, tmp_path)
    (sheet,) = sheets
    titles = [drawn(cell).get_title() for cell in sheet.cells]
    assert titles == [
        r"DP-GCD: noise / ours, $\varepsilon = 1$",
        r"DP-CD: noise / ours, $\varepsilon = 1$",
        r"DP-GCD as printed: proved $\varepsilon$ / claimed",
        r"DP-CD as printed: proved $\varepsilon$ / claimed",
        r"DP-GCD as printed: $\delta(\varepsilon)$ / claimed",
    ]


def test_what_is_drawn_is_what_was_computed(table, sheets, tmp_path):
    draw(table, tmp_path)
    relative, exact, proved, _, broken = map(lines, sheets[0].cells)
    assert relative["as printed"] == pytest.approx([2.48, 2.354], abs=0.01)
    assert relative["what we use"] == [1, 1]
    assert "exact (Gaussian)" in exact and "exact (Gaussian)" not in relative
    assert proved[r"$\varepsilon = 1$"][-1] == pytest.approx(0.60243, rel=1e-4)
    first = broken[r"$m = 20$, $T = 1$, $\delta = 10^{-8}$"]
    # At kappa = 1 nothing is violated: no point on a log scale.
    assert len(first) == 2 and first[-1] == pytest.approx(20.38, abs=0.01)


def test_the_caption_names_budget_and_adjacency(table, sheets, tmp_path):
    draw(table, tmp_path)
    assert "delta = 1e-06, adjacency replace_one." in sheets[0].caption


def test_without_epsilon_one_the_middle_is_drawn():
    assert studies.middle_epsilon([0.1, 10.0, 3.0, 0.1]) == 3.0
    assert studies.middle_epsilon([0.1, 1.0]) == 1.0


PRINTED = {"study": "noise", "form": "printed", "accountant": "paper", "n_iter": 50}
CLAIM = {"id": "any", "figure": "accounting", "measure": "cell", "statement": "any"}


@pytest.mark.parametrize(
    ("where", "column", "equals", "within"),
    [
        ({**PRINTED, "algorithm": "greedy_cd"}, "epsilon_proved", 0.60243, 1e-4),
        ({**PRINTED, "algorithm": "greedy_cd"}, "relative", 2.35, 5e-3),
        ({**PRINTED, "algorithm": "random_cd"}, "epsilon_proved", 0.635878, 1e-5),
        ({**PRINTED, "algorithm": "random_cd"}, "relative", 1.524, 1e-3),
        ({"study": "violation", "delta": 1e-8, "kappa": 30}, "factor", 20.38, 0.02),
    ],
)
def test_claims(table, where, column, equals, within):
    if where["study"] == "noise":
        where = {**where, "epsilon": 1.0}
    claim = {**CLAIM, "where": where, "column": column}
    given = {"paper": "accounting", "profile": "default"}
    for shift, verdict in ((0.0, "holds"), (3 * within, "fails")):
        claims = [{**claim, "equals": equals + shift, "within": within}]
        (row,) = evaluate_claims(table, {**given, "claims": claims}).to_dict("records")
        assert row["verdict"] == verdict
        assert row["paper"] == "accounting"


@pytest.mark.parametrize("verdict", ["holds", "fails"])
def test_a_violation_is_computed_for_its_claim(table, verdict):
    facts = {"kappa": 30, "rivals": 20, "n_iter": 1, "delta": 1e-8}
    least = 20 if verdict == "holds" else 30
    claim = {**CLAIM, "measure": "violated", **facts, "at_least": least}
    (row,) = evaluate_claims(table[:0], {"claims": [claim]}).to_dict("records")
    assert row["verdict"] == verdict and row["value"] == pytest.approx(20.38, abs=0.01)
    assert row["measured"] == "delta(1) / delta, T = 1, 20 coordinates of 30 x the L"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({"algorithm": "unknown"}, "no rows with algorithm=unknown"),
        ({"algorithm": "greedy_cd"}, "rows with algorithm=greedy_cd"),
        ({"nothing": 1}, "the table has no column nothing"),
    ],
)
def test_rows_that_are_not_there(table, where, reason):
    claim = {**CLAIM, "where": where, "column": "z", "at_least": 0.0}
    (row,) = evaluate_claims(table, {"claims": [claim]}).to_dict("records")
    assert row["verdict"].startswith("not run") and reason in row["verdict"]
