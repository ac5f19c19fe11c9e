"""Test that a run charged for secret samples must take one sample for each use."""

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.cli.main import main
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.suite import FAILS, OK
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from tests.contract.own import (
    DECLARED,
    IMPORTED,
    IMPORTS,
    STEP,
    broken,
    check_named,
    few,
)

SAMPLED = DECLARED.replace("Gaussian(", "PoissonGaussian(", 1).replace(
    "self.n_iter)", "self.n_iter, rate=0.2)"
)
AT = " " * 16
DRAW = (
    f"{AT}rows = [mechanisms['gradient'].sample(b, problem.n, 1)[0]\n"
    f"{AT}        for b in range(oracle.batch)]\n"
)
SUM = (
    f"{AT}sums = np.stack([oracle.record_sum(b, rows[b], clip[b, 0])\n"
    f"{AT}                 for b in range(oracle.batch)])\n"
)
PUBLISH = f"{AT}noisy = mechanisms['gradient'](sums) / (0.2 * problem.n)\n"
WHOLE = f"{AT}sums = 0.2 * oracle.clipped_sum(clip)\n"
AHEAD = (
    f"{AT}drawn = mechanisms['gradient'].take_vectors(1, problem.p)[:, 0]\n"
    f"{AT}noisy = (sums + drawn) / (0.2 * problem.n)\n"
)
MOMENTUM = f"{AT}speed = 0.9 * speed + noisy\n{AT}noisy = speed\n"
SPEED = "        speed = np.zeros_like(oracle.w)\n"
START = "        yield oracle.w\n        for k"


def solver(*steps, before=""):
    """The solver of the doc with sampled sums, its step made of parts."""
    return broken(
        (IMPORTS, IMPORTED),
        (DECLARED, SAMPLED),
        (START, f"{SPEED}{before}{START}"),
        (STEP, "".join([*steps, MOMENTUM])),
    )


BROKEN = {
    "whole": (solver(WHOLE, PUBLISH), "there are 0 samples for the next 1 uses"),
    "once": (
        solver(SUM, PUBLISH, before=DRAW.replace(AT, " " * 8)),
        "there are 0 samples for the next 1 uses",
    ),
    "nicer": (
        solver(DRAW, f"{AT}first = rows\n", DRAW, SUM, PUBLISH),
        "another sample was taken before the last one was used",
    ),
    "noise_alone": (solver(WHOLE, AHEAD), "there are 0 samples for the next 1 uses"),
    "noise_of_a_run": (
        solver(
            WHOLE,
            f"{AT}noisy = (sums + drawn.pop()) / (0.2 * problem.n)\n",
            before="        drawn = list(np.swapaxes(mechanisms['gradient']"
            ".take_vectors(self.n_iter, problem.p), 0, 1))\n",
        ),
        "10 uses had no sample",
    ),
}
GOOD = {"called": solver(DRAW, SUM, PUBLISH), "taken": solver(DRAW, SUM, AHEAD)}


def test_runs_that_are_charged_for_samples_they_do_not_take_end_as_errors(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    texts = {**{name: text for name, (text, _) in BROKEN.items()}, **GOOD}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    files = ",".join(f"{name}.py" for name in texts)
    line = [f"algorithm={files}", "dataset=log1", "dataset.n=50", "dataset.p=4"]
    line += [f"algorithm.{name}.clip=1" for name in texts]
    line += ["seed=0,1", "runner.n_jobs=1", "runner.progress=false"]
    assert main(line) == 1
    table = pd.read_parquet(tmp_path / "results" / "sweep" / "results.parquet")
    last = table.drop_duplicates("trial").set_index("algorithm")
    for name, (_, said) in BROKEN.items():
        rows = last.loc[name]
        assert set(rows["status"]) == {"error"}, name
        for message in rows["message"]:
            assert message.startswith("NotSampled: release gradient is certified for")
            assert said in message.splitlines()[0], name
        assert rows["epsilon_certified"].isna().all()
    assert set(last.loc[list(GOOD), "status"]) == {"ok"}
    assert "release gradient is certified for one Poisson" in capsys.readouterr().out


COUNT = f"{AT}sums = np.array([(problem.dataset.y[r] > 0).sum() for r in rows]) + 0.0\n"
SHRUNK = (
    f"{AT}shares = mechanisms['gradient'](sums) / (0.2 * problem.n)\n"
    f"{AT}noisy = 0.5 * np.tanh(shares[:, None]) * oracle.w + 0.01 * shares[:, None]\n"
)
ONE_SIGN = "change = adjacency.of_sum(1.0, signed=False)\n        "
TWICE = ONE_SIGN.replace(", signed=False", "")


def counting(bound, count=COUNT, sampled=SAMPLED):
    """Move by a count of sampled records, by default of a class, within a bound."""
    counts = solver(DRAW, count, SHRUNK)
    return counts.replace(SAMPLED, bound + sampled)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_replaced_term_of_one_sign_costs_more_than_its_change_says(adjacency):
    """The count of a class over a sample: a term of 1 in D, 0 in D'."""
    change, rate = adjacency.of_sum(1.0, signed=False), 0.1
    laws = (PoissonGaussian("count", change, 1, rate=rate).law(),)
    mu = 1.0 / calibrate(laws, Budget(1.0, 1e-6, adjacency)).z

    def delta(epsilon):
        """(1 - q) N(0, 1) + q N(mu, 1) against N(0, 1), from its definition."""
        cut = np.log1p((np.exp(epsilon) - 1.0) / rate) / mu + mu / 2.0
        out, held = stats.norm.sf(cut), stats.norm.sf(cut - mu)
        return (1.0 - rate) * out + rate * held - np.exp(epsilon) * out

    true = optimize.brentq(lambda epsilon: delta(epsilon) - 1e-6, 0.1, 10.0)
    expected = 3.8 if adjacency is Adjacency.REPLACE_ONE else 1.0
    assert true == pytest.approx(expected, abs=0.05)


def samples_result(path):
    made = few(candidate_of(str(path)))
    return check_named("samples_are_those_charged").result(made)


def test_check_refuses_a_sampled_count_that_declares_its_change_only(tmp_path):
    (tmp_path / "counts.py").write_text(counting(ONE_SIGN))
    found = samples_result(tmp_path / "counts.py")
    assert found.verdict == FAILS
    assert "replace_one, neighbours: " in found.reason
    assert found.reason.endswith(
        "release gradient: a record's own term is 1 times the declared sensitivity, at "
        "most 0.5 is charged for a sample under replace_one"
    )


SQUARES = (
    f"{AT}X = problem.dataset.X\n"
    f"{AT}X = X if isinstance(X, np.ndarray) else X.toarray()\n"
    f"{AT}Z = X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))\n"
    f"{AT}sums = np.stack([(Z[r].T @ Z[r]).ravel() for r in rows])\n"
)
SHRUNK_SQUARES = (
    f"{AT}told = mechanisms['gradient'](sums) / (0.2 * problem.n)\n"
    f"{AT}noisy = 0.1 * np.tanh(told.reshape(-1, problem.p, problem.p)).sum(axis=1)\n"
)


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("adjacency.of_sum(1.0, positive=True)", "positive=True) does not ensure"),
        # Where the mark is lost the coin is turned.
        ("np.sqrt(2.0) * (adjacency.of_sum(1.0) / 2)", "own term is 0.707 times"),
    ],
)
def test_a_sum_of_squares_over_a_sample_is_charged_for_its_terms(bound, said, tmp_path):
    text = solver(DRAW, SQUARES, SHRUNK_SQUARES)
    text = text.replace(SAMPLED, f"change = {bound}\n        {SAMPLED}")
    (tmp_path / "squares.py").write_text(text)
    result = samples_result(tmp_path / "squares.py")
    results = [result, check_named("replay_audit").result(few_of(tmp_path))]
    assert any(said in one.reason for one in results if one.verdict == FAILS), results


def few_of(folder):
    return few(candidate_of(str(folder / "squares.py")))


SMALL = COUNT.replace("problem.dataset.y[r] > 0", "problem.dataset.row_norms[r] < 0.5")
"""Of a replaced record the one that is small, not the one that stands out."""
HEAVY = (
    f"{AT}y, far = problem.dataset.y, problem.dataset.row_norms > 3.5\n"
    f"{AT}terms = np.where(far & (y < 0), 3.0, 0.5) * np.sign(y)\n"
    f"{AT}sums = np.array([terms[r].sum() for r in rows])\n"
)
"""A bound that is forgotten for one label alone."""
ZERO_ONLY = SAMPLED.replace(
    "rate=0.2", "rate=0.2 if adjacency == 'zero_out' else 1.0"
).replace("change,", "1e-3 if adjacency == 'zero_out' else change,")
HIDDEN = {
    "small": (counting(ONE_SIGN, SMALL), "a record's own term is 1 times"),
    "heavy": (counting(TWICE.replace("1.0", "0.5"), HEAVY), "by a record's coin"),
    "zero_out": (counting(ONE_SIGN, sampled=ZERO_ONLY), "by a record's coin"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_check_turns_the_coin_of_whichever_record_shows_it(name, tmp_path):
    text, sentence = HIDDEN[name]
    (tmp_path / "counts.py").write_text(text)
    result = samples_result(tmp_path / "counts.py")
    assert result.verdict == FAILS
    assert sentence in result.reason


def test_a_sampled_count_that_declares_twice_its_largest_term_passes(tmp_path):
    (tmp_path / "counts.py").write_text(counting(TWICE))
    assert samples_result(tmp_path / "counts.py").verdict == OK


@pytest.mark.parametrize(
    "name, words",
    [
        ("whole", "for one Poisson sample of rate 0.2"),
        ("noise_of_a_run", "its noise is taken ahead, for a compiled step"),
    ],
)
def test_check_finds_them_too(name, words, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(BROKEN[name][0])
    assert main(["check", str(tmp_path / "mine.py")]) == 1
    assert words in capsys.readouterr().out


KINDS = {
    "spread": ("InsideNoisyMax", ""),
    "curvature": ("ObjectiveNormLaplace", ""),
    "terms": ("ObjectiveGaussian", ", curvature=0.0"),
}


def test_what_a_release_claims_has_no_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, (kind, given) in KINDS.items():
        made = DECLARED.replace("Gaussian", kind).replace(")", f"{given})")
        imported = f"{IMPORTS}\n    {kind},"
        text = broken((IMPORTS, imported), (DECLARED, made))
        (tmp_path / f"no_{name}.py").write_text(text)
    files = ",".join(f"no_{name}.py" for name in KINDS)
    line = [f"algorithm={files}", "dataset=log1", "dataset.n=50"]
    assert main([*line, "runner.n_jobs=1", "runner.progress=false"]) == 1
    table = pd.read_parquet(tmp_path / "results" / "sweep" / "results.parquet")
    said = table.drop_duplicates("trial").set_index("algorithm")["message"]
    for name in KINDS:
        lacking = f"required keyword-only argument: '{name}'"
        assert lacking in said[f"no_{name}"]
