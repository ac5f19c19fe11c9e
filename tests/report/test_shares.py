"""Test claims on shares of the error at w = 0, on bands and on supports."""

import math

import pytest

from dp_erm_bench.report.claims.judge import evaluate_claims

SHARE = {
    "id": "share",
    "figure": "log1",
    "statement": "{line} moves",
    "line": "DP-CD cyclic",
}


def judge(table, **claim):
    """Return the only row of one claim."""
    found = evaluate_claims(table, {"claims": [{**SHARE, **claim}]})
    assert len(found) == 1
    return found.iloc[0]


@pytest.mark.parametrize(
    ("end", "verdict"), [(0.3, "holds"), (0.36, "holds"), (0.37, "fails")]
)
def test_share_left(tabulate, end, verdict):
    table = tabulate({"start": 0.6, "end": end, "spread": 0.0})
    row = judge(table, measure="share_left", at_most=0.6 + 1e-12)
    assert row["value"] == pytest.approx(end / 0.6)
    assert row["verdict"] == verdict


@pytest.mark.parametrize("end", [0.06, 0.6, 0.9])
def test_share_lost_is_the_rest(tabulate, end):
    table = tabulate({"start": 0.6, "end": end, "spread": 0.0})
    left, lost = (
        judge(table, measure=measure, at_least=0)["value"]
        for measure in ("share_left", "share_lost")
    )
    assert left + lost == pytest.approx(1)
    assert (lost < 0) == (end > 0.6)


def test_shares_are_of_means(tabulate):
    table = tabulate({"start": 0.6, "end": 0.1, "n_seeds": 2, "spread": 0.0})
    outlier = (table["seed"] == 0) & (table["iteration"] == table["iteration"].max())
    table.loc[outlier, "relative_error"] = 1.1
    assert judge(table, measure="share_left", at_most=1)["value"] == pytest.approx(1.0)


@pytest.mark.parametrize("measure", ["share_left", "share_lost"])
def test_a_diverged_run_never_holds(tabulate, measure):
    table = tabulate({"start": 0.6, "end": 0.1})
    last = (table["seed"] == 0) & (table["iteration"] == table["iteration"].max())
    table.loc[last, "relative_error"] = math.nan
    for bound in ({"at_least": -9}, {"at_most": 9}):
        told = judge(table, measure=measure, **bound)["verdict"]
        assert told.startswith("undecided")


@pytest.mark.parametrize(
    ("end", "verdict"), [(0.05, "holds"), (0.21, "undecided"), (0.25, "fails")]
)
def test_ratio_to_band_top_is_to_its_80_percent_quantile(tabulate, end, verdict):
    table = tabulate(
        {"line": "DP-GCD tight", "end": end, "spread": 0.0},
        {"line": "DP-CD cyclic", "end": 0.2, "spread": 0.1, "n_seeds": 20},
    )
    claim = {"line": "DP-GCD tight", "other": "DP-CD cyclic", "at_most": 1}
    row = judge(table, measure="ratio_to_band_top", **claim)
    assert row["value"] == pytest.approx(end / 0.212)
    assert row["verdict"] == verdict


@pytest.mark.parametrize(("extra", "verdict"), [(0, "holds"), (1, "fails")])
def test_excess_nonzeros_is_the_worst_checkpoint(tabulate, extra, verdict):
    table = tabulate({"passes": 10.0})
    table["nnz"] = table["passes"].round().astype(int) // 2
    worst = (table["seed"] == 2) & (table["iteration"] == 400)
    table.loc[worst, "nnz"] = 4 + extra
    row = judge(table, measure="excess_nonzeros", at_most=0)
    assert row["value"] == extra
    assert row["verdict"] == verdict


def test_epsilon_of_a_claim_chooses_the_runs(tabulate):
    table = tabulate(
        {"start": 0.6, "end": 0.6, "epsilon": 1.0},
        {"start": 0.6, "end": 0.06, "epsilon": 10.0},
    )
    claim = {"measure": "share_left", "at_most": 0.5}
    assert judge(table, **claim)["verdict"] == "fails"
    assert judge(table, epsilon=10, **claim)["verdict"] == "holds"
