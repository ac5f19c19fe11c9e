"""Test a release from outside the package: a noisy vector with a secret sample.

It consists of two files, the release and its twin (second implementation), and a row of
docs/accounting.md. A solver uses it.
"""

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.profile import OK, VIOLATION, verdict
from dp_erm_bench.audit.statistic import attack_on
from dp_erm_bench.cli.main import main
from dp_erm_bench.contract import suite
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.plugins.load import load_class
from dp_erm_bench.plugins.names import pin_file
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.run import Run
from dp_erm_bench.trust.recount import listen_to_run, recount
from dp_erm_bench.trust.twins.base import twin_of
from tests.pages import read_page
from tests.solvers.cases import few_replays

FILES = Path(__file__).parent / "sampled_noise"
RELEASE, TWIN = "sampled_vector.py", "sampled_vector_twin.py"
SOLVER = "sampled_descent.py"
IMPORTED = "from sampled_vector_twin import SampledVectorTwin\n"
NAMED = "    twin = SampledVectorTwin\n"
HALF = """
    def unit(self, *place):
        return NormLaplace.unit(self, *place) / 2
"""
QUIETER = """
    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        mechanisms["gradient"].scale = mechanisms["gradient"].scale / 2
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The files in a folder of their own, which nothing else imports from."""
    for name in (RELEASE, TWIN, SOLVER):
        shutil.copy(FILES / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in (RELEASE, TWIN):
        sys.modules.pop(Path(name).stem, None)


def changed(folder, name, *changes):
    text = (folder / name).read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / name).write_text(text)


def without_twin(folder):
    changed(folder, RELEASE, (IMPORTED, ""), (NAMED, ""))
    (folder / TWIN).unlink()


def solver_of(folder):
    return load_class(pin_file(str(folder / SOLVER), "algorithm"))


def table_row(folder):
    """A row of docs/accounting.md has as many columns as those that are there."""
    (row,) = (FILES / "row.md").read_text().splitlines()
    (head,) = re.findall(r"^\| release \|.*$", read_page("accounting"), flags=re.M)
    return row, head


def test_it_is_two_files_and_a_row():
    files = {path.name for path in FILES.iterdir() if path.is_file()}
    assert files == {RELEASE, TWIN, SOLVER, "row.md"}
    row, head = table_row(FILES)
    assert row.count("|") == head.count("|")
    kind = row.split("`")[1]
    assert f"class {kind}(" in (FILES / RELEASE).read_text()


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("ahead", [False, True])
def test_it_runs_and_what_is_certified_is_recounted(outside, adjacency, ahead):
    made, budget = solver_of(outside), Budget(1.0, 0.0, adjacency)
    problem = attack_on(made(n_iter=6, batch_size=10), budget).pair.first
    solver = made(n_iter=6, batch_size=10, clip=1.0)
    run = Run(problem, [solver], budget, identities=["a"], ahead=ahead)
    heard = None if ahead else listen_to_run(run.mechanisms)
    run.iterates()
    proof = run.calibration
    found = recount(run.mechanisms, proof, witnesses=heard)
    assert proof.label == "certified" and proof.accountant == "pure"
    assert found.complaint(proof) == ""
    assert found.epsilon == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("unit", ["    unit = NormLaplace.unit\n", HALF])
def test_its_draws_have_the_law_that_is_accounted(outside, unit):
    changed(outside, RELEASE, ("    unit = NormLaplace.unit\n", unit))
    solver_of(outside)
    kind = sys.modules["sampled_vector"].SampledVector
    release = kind("noise", 2.0, 1, weight=1.5)
    mechanism = make_mechanisms([release], 0.8, [f"trial {i}" for i in range(4000)])
    noise = mechanism["noise"](np.zeros((4000, 5))) / (2.0 * 1.5 * 0.8)
    norms = np.linalg.norm(noise, axis=1)
    fits = stats.kstest(norms, stats.gamma(5).cdf).pvalue > 1e-3
    assert fits == (unit != HALF)
    part = (noise[:, 0] / norms) ** 2
    assert stats.kstest(part, stats.beta(0.5, 2.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("z", [0.2, 1.0, 5.0])
def test_no_answer_says_more_than_its_level(outside, rate, z):
    """The exact ratio of one number, in both adjacencies, within the level."""
    solver_of(outside)
    kind = sys.modules["sampled_vector"].SampledVector
    level = kind("noise", 1.0, 1, rate=rate).law().level(z)
    a = np.linspace(-60.0, 60.0, 20_001)

    def mixture(v):
        return (1 - rate) * np.exp(-np.abs(a)) + rate * np.exp(-np.abs(a - v))

    # In units of the noise scale: z = 1 / sensitivity, twice a term if it is exchanged.
    exchanged = np.log(mixture(0.5 / z) / mixture(-0.5 / z))
    removed = np.log(mixture(1 / z) / mixture(0.0))
    assert np.abs(exchanged).max() <= level + 1e-12
    assert np.abs(removed).max() == pytest.approx(level, rel=1e-9)
    assert level < 1 / z


def test_it_is_audited_and_too_little_noise_is_refuted(outside):
    made = solver_of(outside)
    budget = Budget(1.0, 0.0, Adjacency.ZERO_OUT)
    verdicts = []
    for factor in (1.0, 0.2):
        attack = attack_on(made(n_iter=1, batch_size=20, step=1e-9), budget)

        class Quiet(type(attack.solver)):
            def iterates(self, oracle, mechanisms, points, schedule, factor=factor):
                for mechanism in mechanisms.values():
                    mechanism.scale = mechanism.scale * factor
                yield from super().iterates(oracle, mechanisms, points, schedule)

        given = {f: getattr(attack.solver, f) for f in ("n_iter", "batch_size", "step")}
        object.__setattr__(attack, "solver", Quiet(**given))
        sides = [attack.run(side, 1000, "noise") for side in (0, 1)]
        verdicts.append(verdict(*sides, attack.guarantee, 1e-3).verdict)
    assert verdicts == [OK, VIOLATION]


def only(folder, name):
    """What comes of one check of the solver as it is."""
    (check,) = [check for check in suite.CHECKS if check.name == name]
    return check.result(candidate_of(str(folder / SOLVER)))


def test_check_recounts_it(outside):
    result = only(outside, "the_noise_is_recounted")
    assert (result.verdict, result.reason) == (suite.OK, "")


def test_check_refutes_half_of_the_noise(outside):
    text = (outside / SOLVER).read_text()
    (outside / SOLVER).write_text(text + QUIETER)
    result = only(outside, "the_noise_is_recounted")
    assert result.verdict == suite.FAILS and "is certified" in result.reason


def test_check_refutes_half_of_the_level(outside):
    level = "math.log1p(self.rate * math.expm1(whole))"
    changed(outside, RELEASE, (level, "self.rate * whole / 2"))
    result = only(outside, "the_noise_is_recounted")
    assert result.verdict == suite.FAILS and "is certified" in result.reason


def test_without_a_twin_it_runs_and_says_not_recounted(outside):
    rows = {}
    for step in ("with", "without"):
        if step == "without":
            without_twin(outside)
        line = [f"algorithm={SOLVER}", "dataset=log1", "dataset.n=50"]
        line += ["budget.epsilon=1", "algorithm.sampled_descent.clip=1"]
        where = [f"results_dir={outside / step}", "runner.n_jobs=1"]
        assert main([*line, *where, "runner.progress=false"]) == 0
        (file,) = (outside / step).rglob("results.parquet")
        rows[step] = pd.read_parquet(file).iloc[-1]
    one, other = rows["with"], rows["without"]
    assert (one["calibration"], other["calibration"]) == (
        "certified",
        "certified (not recounted)",
    )
    assert one["epsilon_certified"] == other["epsilon_certified"] <= 1.0
    assert {one["status"], other["status"]} == {"ok"}


def test_without_a_twin_check_and_audit_say_so_in_a_sentence(outside):
    without_twin(outside)
    result = only(outside, "the_noise_is_recounted")
    sentence = "release gradient is not recounted: its kind, SampledVector"
    assert result.verdict == suite.EXEMPT
    assert result.reason == f"{sentence}, names no twin"
    with few_replays():
        assert only(outside, "replay_audit").verdict == suite.OK
    solver = solver_of(outside)(n_iter=1, batch_size=20)
    with pytest.raises(Unsupported, match="SampledVector, names no twin"):
        attack_on(solver, Budget(1.0, 0.0))


def test_a_subclass_does_not_inherit_the_twin(outside):
    solver_of(outside)
    kind = sys.modules["sampled_vector"].SampledVector
    other = type("Other", (kind,), {})
    assert kind.is_recounted() and not other.is_recounted()
    assert twin_of(kind) is kind.twin and twin_of(other) is None
