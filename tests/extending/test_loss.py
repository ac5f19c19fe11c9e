"""Test a loss from outside the package, with a parameter and no symmetry."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize

from dp_erm_bench import fit, load_results, problem_from_arrays, registry
from dp_erm_bench import replay as replay_trial
from dp_erm_bench.contract import replay
from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.replay import replay_cases
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.parameters import problem_named
from dp_erm_bench.kernels.losses import residuals
from dp_erm_bench.problems.erm import objective

FILE = Path(__file__).parent / "loss" / "tilted.py"
SOURCE = FILE.read_text()
SLOPE = "return max(self.tau, 1.0 - self.tau)"
CURVE = "return 0.5 / self.h"
HEAD = "    classification = False\n"
DERIVATIVE = "return 0.5 - self.tau - 0.5"
ALGORITHMS = ["gd", "greedy_cd", "random_cd", "sgd"]


def problem(file=FILE, sparse=False, tau=0.3, **parts):
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (60, 4)) * (rng.random((60, 4)) < 0.7)
    y = X @ [2.0, -1.0, 0.2, 0.0] + rng.normal(size=60)
    loss = {"name": str(file), "tau": tau}
    given = {"loss": loss, "penalty": "l2", "strength": 0.05, "bounds": 1.0, **parts}
    return problem_from_arrays(scipy.sparse.csr_array(X) if sparse else X, y, **given)


def write(folder, *changes):
    text = SOURCE
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    folder.mkdir(exist_ok=True)
    (folder / "tilted.py").write_text(text)
    return folder / "tilted.py"


def test_it_is_one_file():
    assert [path.name for path in FILE.parent.glob("*.*")] == [FILE.name]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_served_dense_and_sparse(name, sparse):
    found = fit(problem(sparse=sparse), name, epsilon=1.0, delta=1e-5, seed=0)
    assert 0.0 < found.epsilon_certified <= 1.0
    assert np.isfinite(found.trajectory["objective"]).all()
    other = fit(problem(tau=0.7), name, epsilon=1.0, delta=1e-5, seed=0)
    assert other.w.tolist() != found.w.tolist()


def test_objective_perturbation_serves_it():
    given = problem(penalty={"name": "l2", "strength": 2.0})
    found = fit(given, "objective_perturbation", epsilon=1.0, delta=1e-5, seed=0)
    assert found.epsilon_certified <= 1.0


def test_its_optimum_is_certified_and_that_of_another_solver():
    given = problem()
    assert given.optimum.reason == "" and 0.0 <= given.optimum.gap <= 1e-9
    options = {"ftol": 1e-16, "gtol": 1e-14, "maxiter": 10_000}
    found = minimize(given.value, np.zeros(4), method="L-BFGS-B", options=options)
    assert given.optimum.value == pytest.approx(found.fun, rel=1e-9)
    ended = fit(given, "gd", epsilon=float("inf"), seed=0, n_iter=2000)
    assert ended.trajectory["relative_error"].iloc[-1] == pytest.approx(0.0, abs=1e-9)


def audited(monkeypatch, file, name):
    """Return the verdicts of replays on neighbours at the corners of their bounds."""
    parts = [(str(file), "l2", "none")]
    monkeypatch.setattr(Candidate, "objectives", lambda self: parts)
    candidate = Candidate(name, registry.target("algorithm", name))
    cases = list(replay.cases_at_corners(candidate))
    found = [one for one in replay_cases(candidate, cases) if not one.refusal]
    assert found
    return found


@pytest.mark.parametrize("name", ["gd", "random_cd", "objective_perturbation"])
def test_it_is_audited(name, monkeypatch):
    found = audited(monkeypatch, FILE, name)
    assert not [sentence for one in found for sentence in one.all]


def test_the_audit_sees_a_wrong_constant(tmp_path, monkeypatch):
    """Of an algorithm that clips nothing."""
    file = write(tmp_path, (SLOPE, "return 0.3 * max(self.tau, 1.0 - self.tau)"))
    for place in ("build", "objective"):
        checked = f"dp_erm_bench.problems.erm.{place}.check_loss"
        monkeypatch.setattr(checked, lambda loss: None)
    found = audited(monkeypatch, file, "objective_perturbation")
    assert any(
        "its declared sensitivity" in sentence
        for one in found
        for sentence in one.violations
    )


WRONG = {
    "a small lipschitz": (SLOPE, "return self.tau", "lipschitz=0.3 is exceeded by .*"),
    "a small smoothness": (CURVE, "return 0.4 / self.h", "smoothness=0.8 is exceeded"),
    "no constant": (SLOPE, "return float('nan')", "lipschitz=nan must be a number > 0"),
    "a sign": (DERIVATIVE, "return self.tau - 0.5 - 0.5", "derivative is not that of"),
    "monotone": (HEAD, f"{HEAD}    monotone = True\n", "derivative has both signs"),
    "other records": (
        DERIVATIVE,
        "return 1e-3 * np.sign(z).mean() + 0.5 - self.tau - 0.5",
        "depends on the other records|derivative is not|cannot be compiled",
    ),
    "what is no number": (
        "bend + 0.5 * (abs(r) - abs(inner))",
        "bend + 0.5 * (abs(r) - abs(inner)) + self.missing",
        "value cannot be compiled, .*'missing'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_loss_that_is_not_what_it_says_is_refused_in_a_sentence(name, tmp_path):
    old, new, words = WRONG[name]
    with pytest.raises(UsageError, match=f"^loss=tilted: .*({words})") as refused:
        problem(write(tmp_path, (old, new)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", registry.names("loss"))
def test_the_losses_of_the_package_pass_the_same_check(name, monkeypatch):
    loss = registry.build("loss", name)
    assert list(objective._wrong_loss(loss)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("def check_labels", "def check_label"), "Tilted lacks check_labels"),
        ((HEAD, ""), "Tilted needs classification = True or False"),
        (("class Tilted(Loss)", "class Tilted"), "exactly one subclass of Loss, has"),
        (("import numpy as np", "import nump"), "cannot be imported, ModuleNotFound"),
    ],
)
def test_a_file_without_a_whole_loss_is_refused_in_a_sentence(change, words, tmp_path):
    with pytest.raises(UsageError, match=f"^loss=.*tilted.py: .*{words}") as refused:
        problem(write(tmp_path, change))
    assert "\n" not in str(refused.value)


def test_its_content_is_its_identity_wherever_it_is(tmp_path):
    def digest(file):
        return problem(file).identity

    moved = shutil.copy(FILE, tmp_path)
    reworded = write(tmp_path / "b", ("quantile tau", "tau-quantile"))
    edited = write(tmp_path / "a", (DERIVATIVE, f"x = 1.0\n        {DERIVATIVE}"))
    assert digest(FILE) == digest(moved) == digest(reworded) != digest(edited)
    assert problem(FILE).key == problem(moved).key != problem(edited).key
    assert problem(edited).spec["loss"]["file"] == str(edited)


def test_an_edit_reaches_the_kernels(tmp_path):
    files = [FILE, write(tmp_path, (DERIVATIVE, "return 0.5 * 1.0 - self.tau - 0.5"))]
    types = [problem(file).loss._numba_type_ for file in files]
    assert types[0] != types[1]
    out, y = np.empty(2), np.array([0.0, 1.0])
    for file in files:
        loss = problem(file).loss
        residuals(loss, y, y, out)
        assert out.tolist() == pytest.approx(loss.derivative(y, y).tolist())


def test_a_spec_from_elsewhere_runs_no_file(tmp_path):
    file = write(tmp_path, ("quantile tau", "quantile, tau"))
    for loss in (str(file), {"name": "tilted", "file": str(file), "content": "0" * 64}):
        with pytest.raises(UsageError, match="^loss=tilted: .* not named here"):
            problem_named("log1", {}, loss, "l2", "none")


def test_a_sweep_takes_its_path_and_its_parameter(tmp_path, warm):
    shutil.copy(FILE, tmp_path)
    command = [
        *("dataset=log1", "dataset.n=40"),
        *("dataset.p=3", "loss=tilted.py,logistic", "algorithm=gd", "seed=0"),
        *("algorithm.gd.clip=1", "runner.n_jobs=1"),
    ]
    done = warm.command(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = load_results(tmp_path / "results" / "sweep")
    assert sorted(table["loss"].unique()) == ["logistic", "tilted"]
    assert set(table["status"]) == {"ok"}
    with open(tmp_path / "tilted.py", "a") as file:
        file.write("\n\nVERSION = 2  # of the same loss\n")
    assert not warm.command(*command, "name=edited", cwd=tmp_path).returncode
    folders = [str(tmp_path / "results" / name) for name in ("sweep", "edited")]
    done = warm.command("compare", *folders)
    # Its content seeds the draws, so that it is paired, and not the same.
    assert done.returncode == 0 and "1 undecided, 1 same" in done.stdout, done.stderr
    with pytest.raises(UsageError, match="loss's file is not replayed"):
        replay_trial(table[table["loss"] == "tilted"], folders[0])

    wrong = [*command[:3], "loss=tilted.py", "loss.tauu=1", "algorithm=gd"]
    refused = warm.command(*wrong, cwd=tmp_path)
    assert refused.returncode == 2
    assert "parameter of tilted=tauu (did you mean tau?)" in refused.stderr
