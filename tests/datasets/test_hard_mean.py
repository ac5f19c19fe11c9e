"""Test the dataset of sparse records whose mean is hard to estimate."""

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench import fit, load_problem
from dp_erm_bench.accounting.bounds import mu_for
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.synthetic import (
    MU,
    hard_mean,
    hard_ridge,
    linear_hard,
    one_hot_fields,
    sparse_classification,
)
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.figure import Drawing
from dp_erm_bench.report.studies import Nonzeros, nonzeros_of_dataset
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.output_perturbation import OutputPerturbation


@pytest.mark.parametrize(("s", "blocks"), [(8, 5), (1, 3), (4, 25), (4, "all")])
def test_the_mean_is_that_of_the_blocks(s, blocks):
    X, y = hard_mean(0, n=100, p=100, nonzeros=s, blocks=blocks)
    K = 25 if blocks == "all" else blocks
    assert not y.any() and X.shape == (100, 100)
    dense = X.toarray()
    assert (np.count_nonzero(dense, axis=1) == s).all()
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1.0)
    mean = dense.mean(axis=0)
    filled = np.abs(mean[: K * s])
    assert not mean[K * s :].any()
    even = 100 % K == 0
    np.testing.assert_allclose(filled, 1 / K / np.sqrt(s), rtol=1e-9 if even else 0.05)


@pytest.mark.parametrize(
    ("rule", "expected"), [("pure", 1000 / 8 / np.log(10_000)), ("approximate", 82.4)]
)
def test_rules_follow_the_number_of_records(rule, expected):
    X, _ = hard_mean(0, n=1000, p=10_000, blocks=rule)
    filled = np.count_nonzero(np.abs(X).sum(axis=0))
    assert filled == 8 * round(expected)
    few, _ = hard_mean(0, n=1000, p=16, blocks=rule)
    assert np.count_nonzero(np.abs(few).sum(axis=0)) == (8 * min(2, round(expected)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"blocks": 3, "p": 16}, "dataset.blocks=3: must be from 1 to p"),
        ({"blocks": 0}, "dataset.blocks=0: must be from 1"),
        ({"blocks": "many"}, "dataset.blocks=many: must be an integer, or pure"),
        ({"blocks": 1.5}, "dataset.blocks=1.5: must be an integer"),
        ({"nonzeros": 2000}, "dataset.nonzeros=2000: must be between"),
        ({"n": 1}, "dataset.n=1: must be an integer >= 2"),
    ],
)
def test_wrong_numbers_are_refused_in_a_sentence(wrong, words):
    with pytest.raises(UsageError, match=words):
        hard_mean(0, **wrong)


def test_it_is_a_problem_with_its_bounds():
    found = load_problem("hard_mean", problem="mean", n=50, p=40)
    assert (found.radius, found.nonzeros, found.n, found.p) == (1.0, 8, 50, 40)
    with pytest.raises(UsageError, match="a record has 8 non-zeros"):
        load_problem("hard_mean", problem="mean", bounds={"norm": 1.0, "nonzeros": 4})


@pytest.mark.parametrize(("n", "rule"), [(500, 3), (16_000, 105), (10**6, 6250)])
def test_a_linear_loss_is_worst_where_the_mean_is_half_a_ridge_long(n, rule):
    X, y = linear_hard(0, n=n, p=50_000)
    length = np.linalg.norm(np.asarray(X.mean(axis=0)))
    assert (y == 1.0).all()
    filled = np.count_nonzero(np.abs(X).sum(axis=0))
    assert filled == 8 * rule
    if rule < 6250:
        assert length == pytest.approx(hard_ridge(n, 50_000, 8) / 2, rel=0.06)


def test_the_ridge_balances_noise_and_bias():
    """Bounds at (1, 1e-6), computed apart."""
    mu = mu_for(1.0, 1e-6)
    found = [hard_ridge(n, 50_000, 8, mu) for n in (500, 1000, 4000, 16_000)]
    np.testing.assert_allclose(found, [1.002, 0.709, 0.354, 0.177], atol=6e-4)
    assert mu_for(1.0, 1e-8) == pytest.approx(MU, rel=1e-6)


BALL = {"name": "l2_ball", "radius": 1.0}


def test_the_linear_minimum_is_known():
    parts = {"loss": "linear", "penalty": "none", "constraint": BALL}
    found = load_problem("linear_hard", n=100, p=60, blocks=4, **parts)
    mean = np.asarray(found.dataset.X.mean(axis=0)).ravel()
    assert found.optimum.value == pytest.approx(-np.linalg.norm(mean), rel=1e-14)
    np.testing.assert_allclose(found.optimum.w, mean / np.linalg.norm(mean), rtol=1e-12)
    run = fit(found, "output_perturbation", epsilon=np.inf, seed=0, ridge=0.01)
    # The ridge is small: its minimiser is that of the line, on the sphere.
    np.testing.assert_allclose(run.w, found.optimum.w, atol=1e-12)
    assert run.trajectory["relative_error"].isna().all()
    ridge = load_problem(
        "linear_hard",
        n=100,
        p=60,
        blocks=4,
        loss="linear",
        penalty={"name": "l2", "strength": 0.5},
    )
    assert "negative minimum" in ridge.optimum.reason
    free = fit(ridge, "output_perturbation", epsilon=np.inf, seed=0)
    np.testing.assert_allclose(free.w, 2.0 * mean, atol=1e-12)


@pytest.mark.parametrize("noise, delta", [("gaussian", 1e-8), ("l1_laplace", 0.0)])
def test_noise_on_a_linear_minimum_is_that_of_the_formula(noise, delta):
    """No curvature: norm1(w - w') is 2 sqrt(s) / (n ridge), norm2 without the root."""
    found = load_problem(
        "linear_hard",
        n=100,
        p=60,
        blocks=4,
        loss="linear",
        penalty={"name": "l2", "strength": 0.5},
    )
    solver = OutputPerturbation(noise=noise, tolerance=1e-15)
    (release,) = Run(found, [solver], Budget(1.0, delta)).releases
    root = np.sqrt(8.0) if noise == "l1_laplace" else 1.0
    assert float(np.ravel(release.sensitivity)[0]) == pytest.approx(
        2 * root / 100 / 0.5
    )


def test_sparse_classification_has_records_of_norm_one_and_logistic_labels():
    X, y = sparse_classification(0, n=4000, p=50, nonzeros=4)
    dense = X.toarray()
    assert (np.count_nonzero(dense, axis=1) == 4).all() and set(y) == {-1.0, 1.0}
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1.0)
    # Every column alike, and labels that a line explains, but not all of them.
    assert np.abs(np.count_nonzero(dense, axis=0) / 4000 - 0.08).max() < 0.02
    right = (np.sign(dense @ np.linalg.lstsq(dense, y, rcond=None)[0]) == y).mean()
    assert 0.8 < right < 0.99
    found = load_problem("sparse_classification", n=50, p=20)
    assert (found.dataset.bounds.norm, found.dataset.bounds.nonzeros) == (1.0, 4)


def test_one_hot_fields_have_a_word_of_each_field_by_zipfs_law():
    X, y = one_hot_fields(0, n=20_000, p=30, nonzeros=3, exponent=1.0)
    fields = X.toarray().reshape(20_000, 3, 10)
    assert (np.count_nonzero(fields, axis=2) == 1).all() and set(y) == {-1.0, 1.0}
    np.testing.assert_allclose(fields.max(axis=2), 3**-0.5)
    harmonic = (1.0 / np.arange(1.0, 11.0)).sum()
    shares = np.count_nonzero(fields, axis=0) / 20_000
    np.testing.assert_allclose(
        shares[:, [0, 9]],
        1 / harmonic / np.array([1, 10]) * np.ones((3, 1)),
        atol=0.012,
    )
    with pytest.raises(UsageError, match="nonzeros=4: must divide p=30"):
        one_hot_fields(0, p=30)


def test_a_figure_of_non_zeros_counts_those_of_records(tmp_path, monkeypatch):
    monkeypatch.delenv("DP_ERM_BENCH_DATA", raising=False)
    counts, p = nonzeros_of_dataset("sparse_classification")
    assert (counts == 4).all() and (counts.size, p) == (1000, 200)
    drawing = Drawing(pd.DataFrame(), tmp_path, "ghazi2024", {"name": "ghazi2024"})
    figure = Nonzeros("gradients", "", ("sparse_classification", "news20"))
    assert {path.suffix for path in figure.draw(drawing)} >= {".png", ".txt"}
    (caption,) = tmp_path.glob("*.txt")
    told = caption.read_text()
    assert "sparse_classification (p = 200) median 4, maximum 4." in told
    assert "Not drawn: news20: " in told
