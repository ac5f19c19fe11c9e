"""Test the intercept: a public constant in a last column, with exact bounds."""

import numpy as np
import pytest
import scipy.sparse as sp

from dp_erm_bench.api import fit, load_problem
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import check_spec, dataset_spec
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.parameters import problem_named
from dp_erm_bench.problems.erm.build import build_problem
from tests.loops import each
from tests.serving import RISKS, constraint_of, known

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3)) * [1.0, 5.0, 0.2] + 4.0
Y = np.where(X[:, 0] + RNG.normal(size=50) > 4.0, 1.0, 0.0)
BOUNDS = {"columns": [1, 2, 0.5], "norm": 1.5}
HOW = {"test_fraction": 0.2, "bounds": BOUNDS, "clip_to_bounds": True}


@pytest.fixture
def stored(tmp_path):
    """A function that stores records in a format and loads them."""

    def load(kind="dense", /, **given):
        path = tmp_path / f"{kind}.npz"
        if kind == "dense":
            np.savez(path, X=X, y=Y)
        else:
            own = sp.csc_array(np.where(np.abs(X) > 4.0, X, 0.0))
            names = ("data", "indices", "indptr", "shape")
            np.savez(path, y=Y, **{name: getattr(own, name) for name in names})
        return load_dataset(dataset_spec("file", path=str(path), **given))

    return load


def filled(features):
    return features if isinstance(features, np.ndarray) else features.toarray()


@pytest.mark.parametrize(
    "kind, how",
    [
        ("dense", {**HOW, "standardise": True}),
        ("dense", {"test_fraction": 0.2, "standardise": "scale"}),
        ("sparse", {**HOW, "standardise": "scale", "drop_empty": True}),
        ("sparse", {**HOW, "densify": True}),
        ("sparse", {}),
    ],
)
def test_the_column_comes_last_after_all_else(kind, how, stored):
    plain, found = stored(kind, **how), stored(kind, **how, intercept=2)
    for name in ("X", "X_test"):
        before, after = getattr(plain, name), getattr(found, name)
        if before is None:
            assert after is None
            continue
        assert isinstance(after, type(before))
        assert (after.shape, after.dtype) == ((before.shape[0], 4), before.dtype)
        np.testing.assert_array_equal(filled(after)[:, :3], filled(before))
        np.testing.assert_array_equal(filled(after)[:, 3], 2.0)
    np.testing.assert_array_equal(found.y, plain.y)
    assert (found.sparse, found.uncharged) == (plain.sparse, plain.uncharged)
    assert (found.intercept, plain.intercept) == (2.0, 0.0)
    if found.sparse:
        assert found.X.has_canonical_format and found.X.indices.dtype == np.int32
    if "bounds" in how:
        np.testing.assert_array_equal(found.bounds.columns, [1.0, 2.0, 0.5, 2.0])
        assert found.bounds.norm == np.hypot(1.5, 2.0)
    else:
        assert found.bounds is None


def test_bounds_are_declared_and_not_computed(stored):
    """Other records, other features: the same bounds."""
    one = stored(intercept=0.5, **HOW).bounds
    path = dataset_spec("log1", n=40, p=3, intercept=0.5, **HOW)
    other = load_dataset(path).bounds
    assert one.spec == other.spec
    # Where no norm is declared the columns imply it.
    implied = stored(intercept=2, bounds={"columns": 30.0}).bounds
    assert implied.norm == pytest.approx(np.sqrt(3 * 30.0**2 + 4.0), rel=1e-15)
    wrong = {"columns": [30, 30, 30, 2]}
    with pytest.raises(
        UsageError, match="has 4 values, must have one for each of the 3"
    ):
        stored(intercept=2, bounds=wrong)


def test_smoothness_and_sensitivities_follow_the_bounds():
    given = {"n": 40, "p": 3, **HOW}
    objective = ("logistic", {"name": "l2", "strength": 0.1})
    plain = load_problem("log1", *objective, **given)
    wider = load_problem("log1", *objective, **given, intercept=1)
    assert wider.smoothness.kind == "public"
    assert wider.smoothness.columns[-1] == 0.25
    assert wider.smoothness.norm == pytest.approx(0.25 * (1.5**2 + 1.0), rel=1e-15)
    assert plain.p + 1 == wider.p and wider.dataset.loaded["intercept"] == 1.0


def test_the_labels_own_parameter_has_no_intercept():
    spec = dataset_spec("quasi_sparse", n=40, p=5, tau=2, intercept=1.0)
    w = load_dataset(spec).w_true
    assert w.shape == (6,) and w[-1] == 0.0 and (w[:2] > 0.0).all()


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.ClippedRecords")
@each("algorithm", RISKS)
def test_every_algorithm_has_an_intercept(algorithm):
    spec = {"n": 60, "p": 3, "intercept": 1.0, **HOW}
    ball = constraint_of(algorithm)
    objective = ("logistic", {"name": "l2", "strength": 1.0}, ball)
    problem = load_problem("log1", *objective, **spec)
    how = known(algorithm, clip=1.0, n_iter=5)
    found = fit(problem, algorithm, epsilon=1.0, seed=0, **how)
    assert found.w.shape == (4,) and found.epsilon_certified <= 1.0
    assert problem.contains(found.w)


def test_an_intercept_is_worth_having_where_a_class_is_rare():
    objective = ("logistic", {"name": "l2", "strength": 1e-3})
    ends = {}
    for constant in (0.0, 1.0):
        data = load_dataset(dataset_spec("log1", n=200, p=2, intercept=constant))
        rare = np.where(np.arange(data.n) % 20 == 0, 1.0, -1.0)
        object.__setattr__(data, "y", rare)
        ends[constant] = build_problem(data, *objective).optimum
    assert ends[1.0].value < 0.4 < 0.6 < ends[0.0].value
    assert ends[1.0].w[-1] < -1.0


def test_a_list_is_an_axis_as_of_other_keys():
    dataset = {"name": "log1", "n": 40, "p": 3, "intercept": [0, None, 1, 2.5]}
    block = {"dataset": dataset, "algorithm": {"name": "gd", "clip": 1.0}}
    lines, _ = expand_blocks([block])
    assert [line.problem.dataset.intercept for line in lines] == [0.0, 0.0, 1.0, 2.5]


NONE = [{}, {"intercept": None}, {"intercept": 0}, {"intercept": 0.0}]


@pytest.mark.parametrize("given", NONE, ids=str)
def test_none_is_no_key_and_no_other_identity(given):
    objective = ("auto", "auto", "none")
    small = {"n": 40, "p": 3}
    assert "intercept" not in dataset_spec("log1", **small, **given)
    same = problem_named("log1", {**small, **given}, *objective).identity
    assert same == problem_named("log1", small, *objective).identity
    one = problem_named("log1", {**small, "intercept": 1}, *objective).identity
    assert (
        one == problem_named("log1", {**small, "intercept": 1.0}, *objective).identity
    )
    assert one != same
    spec = check_spec(dataset_spec("log1", **small, **given))
    assert spec.recipe.key == check_spec(dataset_spec("log1", **small)).recipe.key


@pytest.mark.parametrize(
    "bad", [-1, -0.5, float("nan"), float("inf"), 1e151, "", "yes", [1]]
)
def test_what_is_no_constant_is_refused(bad):
    with pytest.raises(UsageError, match=r"dataset\.intercept=.*must be a.* number"):
        load_problem("log1", n=40, p=3, intercept=bad)
    with pytest.raises(UsageError, match=r"dataset\.intercept=.*must be a.* number"):
        problem_named("log1", {"intercept": bad}, "auto", "auto", "none")


@pytest.mark.parametrize("name", ["intercept", "Const", "(Intercept)", " bias"])
def test_a_second_one_is_told_by_its_name_and_not_by_the_data(name, tmp_path):
    path = tmp_path / "own.csv"
    rows = [f"{k},1,{k % 2}" for k in range(9)]
    path.write_text("\n".join([f"a,{name},y", *rows]))
    assert load_problem("file", path=str(path)).p == 2
    with pytest.raises(UsageError, match="intercept=1: column .* is one by its name"):
        load_problem("file", path=str(path), intercept=1)
    path.write_text("\n".join(["a,ones,y", *rows]))
    assert load_problem("file", path=str(path), intercept=1).p == 3
    path.write_text("\n".join([f"a,b,{name}", *rows]))
    assert load_problem("file", path=str(path), label=-1, intercept=1).p == 3


@pytest.mark.parametrize(
    "penalty, constraint, said",
    [
        ("none", "simplex", r"constraint=simplex.*\[0, 1\], one sign"),
        ({"name": "box", "lower": 0}, "none", r"penalty=box.*\[0, 1\], one sign"),
        ({"name": "box", "upper": 0}, "none", r"penalty=box.*\[-1, 0\], one sign"),
        (
            "none",
            {"name": "polytope", "vertices": [[1, 0], [0, 1], [1, 1]]},
            "polytope",
        ),
    ],
)
def test_where_its_weight_has_one_sign_it_is_refused(penalty, constraint, said):
    given = {"n": 40, "p": 1}
    with pytest.raises(UsageError, match=f"intercept=1: has no meaning with .*{said}"):
        load_problem("log1", "logistic", penalty, constraint, **given, intercept=1)
    p = 2 if "polytope" in said else 1
    load_problem("log1", "logistic", penalty, constraint, n=40, p=p)


@pytest.mark.parametrize(
    "penalty, constraint",
    [
        ("none", {"name": "l1_ball", "radius": 0.5}),
        ("none", "l2_ball"),
        ("none", {"name": "polytope", "vertices": [[1, -1], [0, 1], [2, 1]]}),
        ({"name": "box", "lower": -0.5, "upper": 2}, "none"),
        ({"name": "l1", "strength": 0.1}, "none"),
    ],
)
def test_other_sets_hold_it_like_the_rest(penalty, constraint):
    given = {"n": 40, "p": 1, "intercept": 1}
    problem = load_problem("log1", "logistic", penalty, constraint, **given)
    assert problem.p == 2
    if problem.constraint.name == "l1_ball":
        assert not problem.contains(np.array([0.25, 0.5]))
        assert np.abs(problem.optimum.w).sum() <= 0.5 + 1e-9
