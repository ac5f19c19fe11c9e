"""Test estimates of the mean: noisy, projected, or decoded from a sketch."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dp_erm_bench import fit, problem_from_records, registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit import profile
from dp_erm_bench.audit.statistic import attack_on
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.suite import FAILS, OK
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.kernels.projections import L1_BALL, project
from dp_erm_bench.releases.gaussian import Gaussian, GaussianLaw
from dp_erm_bench.releases.l1_laplace import L1Laplace
from dp_erm_bench.releases.sketched_gaussian import SketchedGaussian
from dp_erm_bench.run import Run
from dp_erm_bench.runner.execute import run_batch
from dp_erm_bench.solvers.mean_noise import MeanNoise
from dp_erm_bench.solvers.mean_projection import MeanProjection
from dp_erm_bench.solvers.mean_sketch import MeanSketch, basis_pursuit
from dp_erm_bench.trust.twins.sketched_gaussian import SketchedGaussianTwin
from tests.contract.own import check_named

NOISES = ("gaussian", "laplace")


def problem(n=200, p=30, s=4, seed=0, made=np.asarray, signed=False):
    """Records of norm 1 with s equal entries."""
    rng = np.random.default_rng(seed)
    Z = np.zeros((n, p))
    for z in Z:
        signs = rng.choice([-1.0, 1.0], s) if signed else 1.0
        z[rng.choice(p, s, replace=False)] = signs / np.sqrt(s)
    return problem_from_records(made(Z), bounds={"norm": 1.0, "nonzeros": s})


def noise_of(algorithm, **given):
    one = problem(n=1000, s=4)
    solver = registry.build("algorithm", algorithm, **given.pop("params", {}))
    return Run(one, [solver], Budget(**given)).mechanisms["mean"].scale[0, 0]


def test_scales_are_those_of_the_formulas():
    pure = {"epsilon": 0.5, "delta": 0.0, "params": {"noise": "laplace"}}
    assert noise_of("mean_projection", **pure) == pytest.approx(0.008, rel=1e-9)
    half = noise_of("mean_noise", **pure, adjacency="zero_out")
    assert half == pytest.approx(0.004, rel=1e-9)
    approximate = {"epsilon": 0.5, "delta": 1e-6}
    assert noise_of("mean_noise", **approximate) == pytest.approx(0.016115, rel=1e-4)


def test_a_sketch_is_as_long_as_its_factor_says():
    one = problem(n=1000, p=12, s=4)
    rows = 2.0 * 1000 * np.sqrt(4 * np.log(3))
    assert MeanSketch(factor=2.0).sketch_length(one) == round(rows)


def test_the_projection_is_that_of_the_reference():
    v = np.array([0.9, -0.2, 0.55, 0.1, -0.7])
    project((L1_BALL, 1.0), v)
    np.testing.assert_allclose(v, [0.516667, 0.0, 0.166667, 0.0, -0.316667], atol=1e-6)


@pytest.mark.parametrize("made", [np.asarray, csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("noise", NOISES)
def test_without_noise_it_is_the_mean(noise, made):
    for one in (problem(made=made), problem(made=made, signed=True)):
        how = {"epsilon": np.inf, "seed": 0, "noise": noise}
        plain, near = (fit(one, f"mean_{k}", **how) for k in ("noise", "projection"))
        np.testing.assert_array_equal(plain.w, one.mean)
        np.testing.assert_allclose(near.w, one.mean, atol=1e-12, rtol=0.0)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    epsilon=st.floats(0.05, 20.0),
    noise=st.sampled_from(NOISES),
    signed=st.booleans(),
)
def test_projection_is_never_farther_than_the_same_noise(seed, epsilon, noise, signed):
    one = problem(n=50, seed=seed % 7, signed=signed)
    plain, near = (
        Run(one, [kind(noise=noise)], Budget(epsilon, 1e-6), identities=[str(seed)])
        .iterates()[-1][0]
        .copy()
        for kind in (MeanNoise, MeanProjection)
    )
    off, less = one.value(plain), one.value(near)
    assert less <= off * (1 + 1e-12)
    # Lemma 3.1: norm2^2 <= 2 L sqrt(s) norm_inf of the noise.
    assert less**2 <= 2.0 * one.l1_radius * np.abs(plain - one.mean).max() + 1e-12
    assert np.abs(near).sum() <= one.l1_radius * (1 + 1e-12)


@pytest.mark.parametrize("algorithm", ["mean_noise", "mean_projection"])
def test_what_cannot_be_hidden_is_refused_in_a_sentence(algorithm):
    with pytest.raises(
        Unsupported, match="delta=0: must be positive, because gaussian"
    ):
        fit(problem(), algorithm, epsilon=1.0, delta=0.0, seed=0)
    bare = problem_from_records(np.ones((5, 3)))
    with pytest.raises(Unsupported, match="needs declared bounds"):
        fit(bare, algorithm, epsilon=1.0, seed=0)


def test_a_sweep_records_it(tmp_path):
    np.savez(tmp_path / "records.npz", X=problem().dataset.X)
    data = {"name": "file", "path": str(tmp_path / "records.npz"), "usual": None}
    data |= {"task": "unlabelled", "bounds": {"norm": 1.0, "nonzeros": 4}}
    algorithm = {"name": "mean_projection", "noise": "laplace"}
    parts = {"problem": "mean", "dataset": data, "algorithm": algorithm}
    (line,) = expand_blocks([{**parts, "budget": {"delta": 0.0}, "seed": [0, 1]}])[0]
    records = run_batch([line.settings[0].trial(seed, 2) for seed in (0, 1)])
    assert [one["status"] for one in records] == ["ok", "ok"]
    first, second = (one["trajectory"]["objective"][-1] for one in records)
    assert first != second and records[0]["facts"]["optimum"] == 0.0
    assert records[0]["facts"]["loss"] == "none"
    alone = fit(
        line.problem, "mean_projection", epsilon=1.0, delta=0.0, seed=0, noise="laplace"
    )
    assert alone.trajectory["objective"].iloc[-1] == first


@dataclasses.dataclass(frozen=True)
class RootForgotten(MeanNoise):
    """Charges the l1 norm of a record by its l2 norm."""

    noise: str = dataclasses.field(
        default="laplace", metadata=MeanNoise.__dataclass_fields__["noise"].metadata
    )

    def releases(self, problem, adjacency, schedule):
        yield L1Laplace("mean", adjacency.of_mean(problem.radius, problem.n), 1)


def test_a_forgotten_root_of_the_sparsity_is_found():
    found = check_named("replay_audit").result(candidate_of(RootForgotten))
    assert found.verdict == FAILS and "differs by 2 times" in found.reason
    attack = attack_on(RootForgotten(), Budget(1.0, 1e-6))
    sides = [attack.run(side, 12_000, "root") for side in (0, 1)]
    assert profile.verdict(*sides, attack.guarantee, 1e-4).verdict == "VIOLATION"


def sparse_mean(n=100, p=800, s=12):
    """Records that are all one s-sparse vector, which is their mean."""
    rng = np.random.default_rng(0)
    w = np.zeros(p)
    w[rng.choice(p, s, replace=False)] = rng.normal(size=s)
    rows = np.tile(w / np.linalg.norm(w) / 1.1, (n, 1))
    return problem_from_records(rows, bounds={"norm": 1.0, "nonzeros": s})


def test_without_noise_a_sparse_mean_is_recovered():
    one = sparse_mean()
    found = fit(one, "mean_sketch", epsilon=np.inf, seed=0, rows=120)
    np.testing.assert_allclose(found.w, one.mean, atol=1e-9, rtol=0.0)


def test_basis_pursuit_has_the_least_norm():
    A = np.array([[1.0, 0.0, 0.5, -0.5], [0.0, 1.0, 0.5, 0.5]])
    found = basis_pursuit(A, np.array([0.3, 0.8]))
    assert np.abs(found).sum() == pytest.approx(1.1, rel=1e-9)
    np.testing.assert_allclose(A @ found, [0.3, 0.8], atol=1e-9)
    nowhere = basis_pursuit(np.array([[1.0], [1.0]]), np.array([1.0, 2.0]))
    assert nowhere.tolist() == [0.0]


def test_an_answer_longer_than_any_mean_is_zero():
    one = sparse_mean(n=4)
    lengths = [
        np.linalg.norm(fit(one, "mean_sketch", epsilon=0.1, seed=k, rows=20).w)
        for k in range(4)
    ]
    assert 0.0 in lengths and max(lengths) <= 2.0


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"factor": 1.0}, "rows=.*: a sketch needs p >= m log.*use mean_noise"),
        ({"rows": 30}, "rows=30: a sketch needs p > m.*use mean_noise"),
    ],
)
def test_a_sketch_that_is_too_long_is_refused(params, words):
    with pytest.raises(Unsupported, match=words):
        fit(problem(), "mean_sketch", epsilon=1.0, seed=0, **params)


def test_a_sketch_is_not_purely_private_and_has_a_row():
    with pytest.raises(
        Unsupported, match="delta=0: must be positive, because sketched"
    ):
        fit(problem(p=100), "mean_sketch", epsilon=1.0, delta=0.0, seed=0, rows=5)
    with pytest.raises(UsageError, match="rows=0: must be"):
        fit(problem(), "mean_sketch", epsilon=1.0, seed=0, rows=0)


@dataclasses.dataclass(frozen=True)
class SketchInTheSchedule(MeanSketch):
    """Draws A in its schedule and publishes A mean, charged as the mean."""

    def plan(self, problem, identities):
        rng = np.random.default_rng(len(identities[0]))
        rows = self.sketch_length(problem)
        return rng.normal(size=(rows, problem.p)) / np.sqrt(rows)

    def releases(self, problem, adjacency, schedule):
        yield Gaussian("sketch", adjacency.of_mean(problem.radius, problem.n), 1)

    def answer(self, oracle, mechanisms, schedule):
        told = mechanisms["sketch"]((schedule @ oracle.problem.mean)[None, :])
        return basis_pursuit(schedule, told[0])[None, :]


class Unsung(SketchedGaussian):
    """Charged as if A did not lengthen what it is applied to."""

    proof = GaussianLaw
    twin = SketchedGaussianTwin


@dataclasses.dataclass(frozen=True)
class NormUncharged(MeanSketch):
    """Certifies the Gaussian mechanism for a sketch of unknown length."""

    def releases(self, problem, adjacency, schedule):
        (honest,) = super().releases(problem, adjacency, schedule)
        yield Unsung(honest.name, honest.sensitivity, 1, rows=honest.rows)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (SketchInTheSchedule, "replay_audit"),
        (NormUncharged, "the_noise_is_recounted"),
    ],
)
def test_broken_sketches_are_found(kind, check):
    assert check_named(check).result(candidate_of(MeanSketch)).verdict == OK
    assert check_named(check).result(candidate_of(kind)).verdict == FAILS
