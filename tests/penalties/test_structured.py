"""Test penalties from submodular functions: optima, solvers, and bad input."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dp_erm_bench import fit, problem_from_arrays, registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.problems import separable_penalties
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.penalties.cardinality import Cardinality
from dp_erm_bench.penalties.groups import Groups
from dp_erm_bench.penalties.range import Range
from dp_erm_bench.penalties.submodular import Submodular
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.run import Run
from tests.loops import each
from tests.norms.families import FAMILIES, LAPPED, POINT, SETS, Gains, P, listed, mixed
from tests.serving import RISKS

NAMES = sorted(set(registry.names("penalty")) - set(separable_penalties()))
CASES = {
    "cardinality": {"function": "sqrt"},
    "groups": {"groups": LAPPED, "weights": [1.0, 0.5, 2.0]},
    "range": {},
    "submodular": {"values": listed(mixed)},
}
FUNCTIONS = {"cardinality": "sqrt", "groups": "lapped", "submodular": "table"}
ONE_ANSWER = {
    "output_perturbation": {},
    "objective_perturbation": {},
    "approximate_minima_perturbation": {},
    "permutation_sgd": {"batch_size": "full"},
}
ATOMS = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=P)))
ATOMS = ATOMS[np.abs(ATOMS).any(axis=1)]


def problem(name, loss="logistic", strength=0.02, l2=0.0, **given):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, P)) / 2.0
    w = np.array([2.0, 2.0, -1.5, 0.0, 0.0, 0.0])
    y = np.where(X @ w + 0.5 * rng.normal(size=80) > 0.0, 1.0, -1.0)
    bounds = {"columns": 2.0, "norm": 4.0, "label": 1.0}
    psi = {"name": name, "strength": strength, "l2": l2, **CASES.get(name, {}), **given}
    return problem_from_arrays(X, y, loss=loss, penalty=psi, bounds=bounds)


def by_atoms(made, F):
    """Minimise over the weights of all 3^6 - 1 signed sets: no prox, no greedy step.

    Omega(w) is the least sum of weights c >= 0 of points 1_A / F(A), signed, whose
    combination is w.
    """
    sizes = np.array([F(np.flatnonzero(atom).tolist()) for atom in ATOMS])
    points, data, loss = ATOMS / sizes[:, None], made.dataset, made.loss
    strength, l2 = made.penalty.strength, made.penalty.l2
    rows = data.X @ points.T

    def value(c):
        w, z = c @ points, rows @ c
        slope = rows.T @ loss.derivative(data.y, z) / made.n + strength
        mean = loss.value(data.y, z).mean() + strength * c.sum()
        return mean + 0.5 * l2 * w @ w, slope + l2 * points @ w

    c, best = np.zeros(len(points)), math.inf
    for _ in range(30):
        options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-13}
        options["maxcor"] = 50
        found = minimize(
            value,
            c,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * c.size,
            options=options,
        )
        if best - found.fun <= 1e-15:
            break
        best, c = found.fun, found.x
    return best


@each("loss", ["logistic", "squared"])
@each("l2", [0.0, 0.05])
@each("name", NAMES)
def test_the_optimum_is_certified_and_that_of_another_solver(name, loss, l2):
    strength = 0.01 if name == "range" else 0.04
    made = problem(name, loss, strength, l2)
    optimum, F = made.optimum, FAMILIES[FUNCTIONS.get(name, name)][1]
    assert optimum.reason == "" and 0.0 <= optimum.gap <= 1e-9
    assert optimum.value == pytest.approx(by_atoms(made, F), rel=1e-9)
    assert optimum.w.any()


@pytest.mark.parametrize("name", NAMES)
def test_badly_scaled_features_have_a_certified_optimum(name):
    """Columns from 1e-2 to 1e3, of which accelerated steps reach no certificate."""
    plain = problem(name, strength=0.01).dataset
    X = plain.X * np.array([1e3, 1.0, 1e-2, 30.0, 1.0, 200.0])
    psi = {"name": name, "strength": 0.01, "l2": 1e-4, **CASES[name]}
    made = problem_from_arrays(X, plain.y, loss="logistic", penalty=psi)
    assert made.optimum.reason == "" and made.optimum.gap <= 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_the_certificate_is_the_gap_to_the_dual_of_least_squares(name):
    """F(w) less the dual value at s v, computed as one large difference."""
    w = np.array([0.3, -0.2, 0.0, 0.0, 0.4, 0.1])
    for l2 in (0.0, 0.3):
        made = problem(name, "squared", 0.05, l2)
        X, y, psi = made.dataset.X, made.dataset.y, made.penalty
        v = X @ w - y
        u = -X.T @ v / made.n
        s, distance = psi.dual_distance(w, u)
        outside = psi.norm.prox(s * u, 0.05)
        conjugate = outside @ outside / (2 * l2) if l2 else 0.0
        assert l2 or psi.norm.dual(s * u)[0] <= 0.05 * (1 + 1e-12)
        assert distance == pytest.approx(psi.value(w) + conjugate - s * u @ w, rel=1e-9)
        dual = -np.mean(0.5 * (s * v) ** 2 + s * v * y) - conjugate
        gap = made.value(w) - dual
        assert gap == pytest.approx((1 - s) ** 2 * np.mean(v**2) / 2 + distance)
        assert gap >= made.value(w) - made.optimum.value * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_prox_is_that_of_both_parts(name):
    psi, rng = problem(name, strength=0.3, l2=0.7).penalty, np.random.default_rng(0)
    v, steps = rng.normal(size=(4, P)), rng.uniform(0.1, 2.0, (4, 1))
    moved = psi.prox(v, steps)
    for u, row, step in zip(moved, v, steps[:, 0], strict=True):
        # The subgradient that the prox leaves is in that of psi.
        left = (row - u) / step
        s, distance = psi.dual_distance(u, left)
        assert s == 1.0 and distance <= 1e-14
    np.testing.assert_array_equal(psi.prox(v, 0.0), v)
    assert psi.value(POINT) == pytest.approx(
        0.3 * psi.norm.value(POINT) + 0.35 * POINT @ POINT
    )


@each("algorithm", RISKS)
def test_every_algorithm_serves_or_refuses_each(algorithm):
    """Penalties by turns: the rule knows the class, not the name."""
    places = itertools.cycle(NAMES)
    turn = RISKS.index(algorithm)
    name = next(itertools.islice(places, turn % len(NAMES), None))
    made = problem(name, l2=0.5)
    refusals = [
        registry.build("algorithm", algorithm, **ONE_ANSWER.get(algorithm, {})).refusal(
            problem(one, l2=0.5)
        )
        for one in NAMES
    ]
    if algorithm in ("gd", "boosting", "dual_frank_wolfe", *ONE_ANSWER):
        assert refusals == [None] * len(NAMES)
        given = ONE_ANSWER.get(algorithm, {})
        found = fit(made, algorithm, epsilon=2.0, seed=0, **given)
        assert found.epsilon_certified <= 2.0 and np.isfinite(found.w).all()
        assert found.trajectory["relative_error"].notna().all()
        return
    for one, reason in zip(NAMES, refusals, strict=True):
        assert (
            reason.startswith(f"penalty={one} is not separable") and "\n" not in reason
        )


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_each_method_ends_at_the_optimum(name):
    made, free = problem(name, l2=0.2), math.inf
    end = made.optimum.w
    for algorithm, given in ONE_ANSWER.items():
        length = {"passes": 500} if algorithm == "permutation_sgd" else {}
        found = fit(made, algorithm, epsilon=free, seed=0, **given, **length)
        near = 1e-3 if algorithm == "approximate_minima_perturbation" else 1e-5
        np.testing.assert_allclose(found.w, end, atol=near)
    found = fit(made, "gd", epsilon=free, seed=0, n_iter=300)
    np.testing.assert_allclose(found.w, end, atol=1e-5)
    found = fit(made, "dual_frank_wolfe", epsilon=free, seed=0, n_iter=300)
    np.testing.assert_allclose(found.w, end, atol=1e-2)


def test_steps_on_batches_and_missing_convexity_are_refused():
    batch = registry.build("algorithm", "permutation_sgd", batch_size=10)
    assert "is not separable" in batch.refusal(problem("range", l2=0.5))
    for algorithm in list(ONE_ANSWER)[:3]:
        with pytest.raises(Unsupported) as error:
            fit(problem("range"), algorithm, epsilon=1.0, seed=0, ridge=0.0)
        assert str(error.value).endswith(
            "use penalty l2 or elastic_net, set penalty.l2, or set the parameter ridge"
        )


def test_an_object_is_served_where_privacy_does_not_rest_on_it():
    own = problem("submodular", l2=0.5, values=Gains(mixed))
    table = problem("submodular", l2=0.5)
    assert own.optimum.value == pytest.approx(table.optimum.value, rel=1e-9)
    found = fit(own, "gd", epsilon=1.0, seed=0)
    assert np.isfinite(found.w).all() and found.epsilon_certified <= 1.0
    again = problem("submodular", l2=0.5, values=Gains(mixed))
    assert own.identity == again.identity != table.identity
    for algorithm, given in ONE_ANSWER.items():
        with pytest.raises(Unsupported, match="whether its function is submodular"):
            fit(own, algorithm, epsilon=1.0, seed=0, **given)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("groups", {"groups": None}, "penalty.groups=null: must be a list of groups"),
        (
            "groups",
            {"groups": [[0, 9]], "weights": None},
            "penalty.groups=[0, 9]:",
        ),
        (
            "groups",
            {"groups": [[0, 1], [3]], "weights": None},
            "penalty.groups: no group has coordinate 2, 4, 5, whose penalty would be 0",
        ),
        (
            "groups",
            {"weights": [1, 2, -1]},
            "penalty.weights=[1,2,-1]: must be 3",
        ),
        ("cardinality", {"function": "cube"}, "penalty.function=cube: must be one of"),
        (
            "cardinality",
            {"l2": -1.0},
            "penalty.l2=-1.0 of cardinality: must be",
        ),
        (
            "cardinality",
            {"l2": "auto"},
            "penalty.l2=auto: must be a number >= 0, or",
        ),
        ("submodular", {"values": None}, "penalty.values=null: must be the 2^p"),
        (
            "submodular",
            {"values": [0, 1, 1, 2]},
            "penalty.values of 4 sets: must be",
        ),
        ("submodular", {"values": [0, 1, 1, 3]}, "penalty.values: F is not submodular"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(name, given, words):
    with pytest.raises(UsageError) as error:
        problem(name, **given)
    text = str(error.value)
    assert text.startswith(words) and "\n" not in text


def test_lists_and_tuples_are_one_penalty_with_one_key():
    same = Groups(0.1, [[0, 1], [2]], [[1, 2.0]]), Groups(0.1, ((0, 1), (2,)), (1.0, 2))
    assert same[0] == same[1] and repr(same[0]) == repr(same[1])
    keys = {
        problem("groups", **given).identity
        for given in (
            {"groups": [list(group) for group in LAPPED]},
            {"groups": LAPPED},
        )
    }
    assert len(keys) == 1
    other = problem("groups", weights=[1.0, 0.5, 2.1]).identity
    assert other not in keys
    assert Cardinality(0.1, "capped", 3) == Cardinality(0.1, "capped", 3.0)
    assert problem("range", l2="1/n").penalty == Range(0.02, 1.0 / 80)
    assert Submodular(0.1, [listed(mixed)]) == Submodular(0.1, listed(mixed))


def test_groups_may_be_of_the_features_names(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "table.csv"
    rows = np.column_stack([rng.normal(size=(20, 3)), rng.choice([-1, 1], 20)])
    np.savetxt(path, rows, delimiter=",", header="age,pay,years,label", comments="")
    data = load_dataset(
        registry.read_choice("dataset", "file") | {"path": str(path), "label": "label"}
    )
    by_name = {"name": "groups", "strength": 0.1, "groups": [["pay", "age"], ["years"]]}
    by_index = {**by_name, "groups": [[1, 0], [2]]}
    made = [build_problem(data, "logistic", psi) for psi in (by_name, by_index)]
    assert made[0].penalty == made[1].penalty and made[0].key == made[1].key
    with pytest.raises(UsageError) as error:
        build_problem(data, "logistic", {**by_name, "groups": [["pay", "agee"]]})
    assert str(error.value) == (
        "penalty.groups=agee (did you mean age?): must be one of age, pay, years"
    )
    # Without names of their own features are x0, x1, ..
    assert problem("groups", groups=[["x1", "x0"], [2, 3, 4, 5]], weights=None).p == P


def test_coordinates_without_a_penalty_are_asked_for():
    given = {"groups": [[0, 1], [3]], "weights": None, "uncovered": "free"}
    made = problem("groups", l2=0.1, **given)
    assert made.optimum.gap <= 1e-9 and made.penalty.value(np.eye(P)[2]) == 0.05
    assert len(SETS) == 63


@pytest.mark.parametrize("algorithm", ["output_perturbation", "objective_perturbation"])
def test_the_prox_of_the_noisy_answer_is_free_and_brings_zeros(algorithm):
    """It is done to what is published without it, at the same noise and privacy."""

    def ends(made):
        ways = [
            registry.build("algorithm", algorithm, ridge=0.5, postprocess=how)
            for how in ("none", "prox")
        ]
        runs = [Run(made, [one], Budget(1.0, 1e-5)).record(2) for one in ways]
        plain, after = (run.calibration for run in runs)
        assert plain.z == after.z and plain.epsilon_certified <= 1.0
        return [run.rows.w[0] for run in runs]

    plain, after = ends(problem("cardinality", function="count", strength=0.3))
    size = np.maximum(np.abs(plain) - 0.3, 0.0)
    np.testing.assert_allclose(after, np.copysign(size, plain), atol=1e-12)
    assert np.count_nonzero(after) < np.count_nonzero(plain)
    lapped = problem("groups", strength=0.3)
    plain, after = ends(lapped)
    np.testing.assert_allclose(after, lapped.penalty.norm.prox(plain, 0.3), atol=1e-9)
    data = lapped.dataset
    how = {"loss": "logistic", "penalty": "none", "bounds": {"columns": 2.0, "norm": 4}}
    np.testing.assert_array_equal(*ends(problem_from_arrays(data.X, data.y, **how)))


def test_the_example_counts_neighbouring_pairs():
    (values,) = Submodular.example(3)["values"]
    pairs = [0, 1, 2, 2, 1, 2, 2, 2]  # of the sets {}, {0}, {1}, {0, 1}, {2}, ...
    sizes = [0, 1, 1, 2, 1, 2, 2, 3]
    assert values == pytest.approx(np.sqrt(sizes) + 0.5 * np.array(pairs))
