"""Test rules for parameters that the user leaves out.

They use public numbers only, are resolved before keys are made, and are useful.
"""

import itertools
import json
import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from dp_erm_bench import (
    DPClassifier,
    DPRegressor,
    fit,
    load_problem,
    problem_from_arrays,
    registry,
    sweep,
)
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.cli.listing import list_choices
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import FitLine, line_of
from dp_erm_bench.experiment.parameters import by_rule, with_defaults
from dp_erm_bench.results.settings import settings_in_words
from dp_erm_bench.rules.public import public_numbers
from dp_erm_bench.rules.settings import RULES
from dp_erm_bench.run import Run
from dp_erm_bench.runner.execute import solver_of
from tests.loops import each

RULED = sorted(RULES)
LAW = ("gd", "sgd", "permutation_sgd", "random_cd", "output_perturbation")
LAW = (*LAW, "objective_perturbation")
"""Those whose noise on a margin is a multiple of nu."""
BUDGET = {"epsilon": 1.0, "delta": "1/n^2", "adjacency": "replace_one"}
N, P = 300, 4


def records(seed=0, n=N):
    random = np.random.default_rng(seed)
    X = random.uniform(-1.0, 1.0, (n, P))
    return X, np.where(X @ [1.0, 2.0, -1.0, 0.0] + random.normal(size=n) > 0, 1.0, -1.0)


def posed(seed=0, bounds=1.0, strength=0.01, **how):
    X, y = records(seed)
    penalty = {"penalty": "l2", "strength": strength} if strength else {}
    posed = {"loss": "logistic", "penalty": "none", **penalty, **how}
    given = None if bounds is None else {"columns": bounds}
    return problem_from_arrays(X, y, bounds=given, **posed)


def posed_for(algorithm, seed=0, **how):
    """A problem of a kind that the rule is one for."""
    if "ridge" in (RULES[algorithm].constants or {"ridge": {}}):
        return posed(seed, **how)
    return posed(seed, **how, constraint={"name": "l1_ball", "radius": 2})


def numbers(algorithm, problem, budget=BUDGET, **given):
    return by_rule(algorithm, with_defaults(algorithm, given), problem, budget)[0]


def test_the_yamls_name_what_the_rules_give():
    for name in registry.built_in("algorithm"):
        ruled = {
            k for k, v in registry.read_choice("algorithm", name).items() if v == "auto"
        }
        assert ruled == set(RULES[name].meanings if name in RULES else ())
        made = registry.build("algorithm", name)  # the fields' own defaults
        assert not {k for k in ruled if getattr(made, k) == "auto"}


@each("algorithm", RULED)
def test_no_record_moves_a_number(algorithm):
    one, other = posed_for(algorithm, 0), posed_for(algorithm, 1)
    assert one.dataset.content_hash != other.dataset.content_hash
    found = numbers(algorithm, one)
    assert found == numbers(algorithm, other)
    # What is public does.
    fixed = algorithm == "ssp"
    assert fixed or found != numbers(algorithm, one, BUDGET | {"epsilon": 8.0})
    assert fixed or found != numbers(algorithm, posed_for(algorithm, bounds=2.0))


@each("algorithm", RULED)
def test_auto_is_the_trial_of_its_numbers(algorithm):
    dataset = {"n": N, "p": P, "bounds": {"columns": 3.0}, "clip_to_bounds": True}
    penalty = {"name": "l2", "strength": 0.01}
    posed = {"loss": "logistic", "penalty": penalty}
    if "ridge" not in (RULES[algorithm].constants or {"ridge": {}}):
        posed |= {"penalty": "none", "constraint": {"name": "l1_ball", "radius": 2}}
    problem = load_problem("log1", **posed, **dataset)
    ruled = with_defaults(algorithm, {})
    auto = FitLine(algorithm, problem, ruled, BUDGET, "certified")
    given = {key: value for key, value in auto.params.items() if key in ruled}
    assert "auto" not in given.values()
    plain = FitLine(algorithm, problem, given, BUDGET, "certified")
    assert auto.setting().trial(0, 2).key == plain.setting().trial(0, 2).key
    version, _, told = auto.rule.partition(": ")
    assert version == f"{algorithm}-{RULES[algorithm].version}" and plain.rule == ""
    assert {*told.split()} == {*given}
    labels = auto.setting().trial(0, 2).labels
    assert labels["rule"] == auto.rule
    # A stored spec names numbers: it is read without a rule, those of old ones, too.
    again = line_of(json.loads(json.dumps(auto.setting().trial(0, 2).spec)))
    assert again.rule == "" and again.setting().digest == auto.setting().digest
    old = {**auto.base, "algorithm": {"name": algorithm, "params": {}}}
    fields = registry.target("algorithm", algorithm)()
    assert solver_of(line_of(old).base) == fields


def margin_noise(algorithm, problem, **given):
    """Standard deviation of the noise on a margin, as calibrated, if none contracts."""
    found = numbers(algorithm, problem, **given)
    solver = registry.build("algorithm", algorithm, **found)
    run = Run(problem, [solver], Budget(**BUDGET))
    scale = run.calibration.z * np.max(run.releases[0].sensitivity)
    R, n = problem.dataset.bounds.norm, problem.n
    beta, count = problem.record_smoothness, solver.iterations(problem)
    if algorithm == "gd":
        return R * solver.step / beta * math.sqrt(count) * scale / n
    if algorithm == "sgd":
        expected = solver.expected_batch(problem)
        return R * solver.step / beta * math.sqrt(count) * scale / expected
    if algorithm == "random_cd":
        step = solver.step / problem.smoothness.columns.max()
        return R * step * math.sqrt(count / problem.p) * scale
    if algorithm == "objective_perturbation":
        return R * scale / (n * solver.modulus(problem))
    return R * scale


@each("algorithm", LAW)
def test_noise_moves_a_margin_by_what_the_law_says(algorithm):
    # Neither is so strong that a flow ends earlier, nor the data's own curvature large.
    problem = posed(strength=1e-4)
    public = public_numbers(problem, Budget(**BUDGET), None)
    nu = public.margin(public.records())
    noise = margin_noise(algorithm, problem)
    least = {"permutation_sgd": 0.1, "output_perturbation": 0.3}.get(algorithm, 0.97)
    most = {"sgd": 1.3, "objective_perturbation": 1.4}.get(algorithm, 1.03)
    fitted = RULES[algorithm].constants.get("ridge", {})
    # If nothing bends the objective but a ridge that is a share of what the law asks.
    nu /= fitted.get("bent", 1.0)
    each = public.records() / math.sqrt(P) / 30.0
    nu *= fitted.get("noise", 1.0) * each ** fitted.get("rise", 0.0)
    assert least * nu < noise < most * nu


def rare(n=3000, p=6):
    """Records far inside their bounds, 3 % of them positive: data that hardly bend."""
    random = np.random.default_rng(0)
    X = random.beta(1.0, 9.0, (n, p))
    y = np.where(4.0 * X[:, 0] - 4.0 + random.logistic(size=n) > 0.0, 1.0, -1.0)
    bounds = {"columns": 1.0, "norm": 2.5}
    penalty = {"penalty": "l2", "strength": 1e-4}
    return problem_from_arrays(X, y, bounds=bounds, loss="logistic", **penalty)


def test_more_budget_does_not_make_objective_perturbation_worse():
    """Neither the noise on a margin nor the ridge grows, whatever the data's curvature.

    Where the ridge fell to nothing before the noise was small, errors grew threefold.
    """
    problem, ridges = rare(), []
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0):
        public = public_numbers(problem, Budget(epsilon=epsilon, delta=1e-6), None)
        found = RULES["objective_perturbation"].settings(public, {})
        ridges.append((found["ridge"] + public.strength, public.records()))
    for (more, fewer), (less, many) in itertools.pairwise(ridges):
        assert less <= more
        for bent in (0.0, 1e-3, 1e-1):
            assert many * (less + bent) >= 0.98 * fewer * (more + bent)


@pytest.mark.slow
def test_objective_perturbation_uses_more_budget_on_rare_positives():
    problem = rare(n=20_000)
    optimum, medians = problem.optimum.value, []
    for epsilon in (0.1, 0.3, 1.0, 3.0):
        options = {"epsilon": epsilon, "delta": 1e-9}
        runs = (
            fit(problem, "objective_perturbation", seed=k, **options) for k in range(11)
        )
        values = [problem.value(run.w) / optimum - 1.0 for run in runs]
        medians.append(float(np.median(values)))
    for before, after in itertools.pairwise(medians):
        assert after < 1.05 * before, medians


def test_the_noise_of_gd_raises_the_objective_by_no_more_than_an_eighth():
    problem = posed(strength=1e-4)
    public = public_numbers(problem, Budget(**BUDGET), None)
    assert public.at_zero == pytest.approx(math.log(2.0))
    s = public.margin(math.inf) / public.norm
    excess = 0.5 * (public.beta + P * 1e-4) * s**2
    assert excess == pytest.approx(math.log(2.0) / 8.0)


@each("algorithm", RULED)
def test_defaults_beat_nothing_on_easy_records(algorithm):
    problem = posed_for(algorithm)
    zero = problem.value(np.zeros(P)) - problem.optimum.value
    found = [
        problem.value(fit(problem, algorithm, epsilon=1.0, seed=seed).w)
        for seed in range(5)
    ]
    assert np.median(found) - problem.optimum.value < 0.6 * zero
    exact = fit(problem, algorithm, epsilon=math.inf, seed=0)
    left = 1e-2 if algorithm == "ssp" else 1e-4  # its parabola is not the loss
    assert exact.rule and problem.value(exact.w) - problem.optimum.value < left * zero


@each("algorithm", RULED)
def test_any_budget_gives_numbers_that_a_solver_takes(algorithm):
    for epsilon in (1e-60, 1e-3, 1e60, math.inf):
        for strength in (0.0, 1e-12, 1e9):
            found = numbers(
                algorithm,
                posed_for(algorithm, strength=strength),
                {"epsilon": epsilon, "delta": 1e-5, "adjacency": "zero_out"},
            )
            registry.build("algorithm", algorithm, **found)


def test_what_is_given_is_kept_and_the_rest_follows():
    problem = posed()
    few, many = (numbers("gd", problem, n_iter=T, clip=0.2) for T in (500, 1000))
    assert few["clip"] == 0.2 and few["n_iter"] == 500
    assert few["step"] == pytest.approx(2.0 * many["step"], rel=0.01)
    assert numbers("sgd", problem, n_iter=7).get("passes") is None
    assert numbers("random_cd", problem, clip=None)["clip"] is None
    # Without declared bounds no rule gives a threshold.
    with pytest.raises(Unsupported, match="needs a clipping threshold"):
        fit(posed(bounds=None), "gd", epsilon=1.0)
    found = fit(posed(bounds=None), "gd", epsilon=1.0, clip=1.0, seed=0)
    assert found.rule == "gd-3: n_iter step" and found.params["clip"] == 1.0


@each(
    "key, value",
    (
        *(("gd.clip", 0.0), ("gd.clip", math.nan), ("gd.step", 0.0), ("gd.step", -1.0)),
        *(("sgd.step", 0.0), ("sgd.clip", 0.0), ("sgd.batch_size", 0)),
        ("permutation_sgd.batch_size", 0),
        *(("random_cd.step", 0.0), ("random_cd.clip", 0.0)),
    ),
)
def test_a_wrong_value_is_refused_before_a_rule_divides_by_it(key, value):
    algorithm, _, parameter = key.partition(".")
    with pytest.raises(UsageError, match=f"{parameter}={value}"):
        fit(posed(), algorithm, epsilon=1.0, **{parameter: value})


def test_sweeps_fill_in_each_point(tmp_path):
    gd = {"name": "gd", "n_iter": [20, 40], "step": ["auto", 0.5], "clip": 0.3}
    how = {"dataset": {"name": "log1", "n": 60, "p": 3}, "loss": "logistic"}
    how |= {"penalty": {"name": "l2", "strength": 0.1}, "seed": [0]}
    how["dataset"] |= {"bounds": {"columns": 3.0}, "clip_to_bounds": True}
    table = sweep({**how, "algorithm": gd}, tmp_path / "out", progress=False)
    ends = table.drop_duplicates("trial")
    params = [json.loads(one) for one in ends["params"]]
    steps = {(one["n_iter"], one["step"]) for one in params}
    assert len(steps) == 4 and {T for T, step in steps if step == 0.5} == {20, 40}
    assert set(ends["rule"]) == {"gd-3: step", ""}
    # Of a name of a line these numbers are one.
    assert set(settings_in_words(ends)["gd.step"]) == {"auto", "0.5"}


def test_a_tuned_line_takes_what_it_does_not_tune():
    block = {
        "dataset": {"name": "log1", "n": 60, "p": 3, "bounds": {"columns": 3.0}},
        "loss": "logistic",
        "penalty": {"name": "l2", "strength": 0.1},
        "algorithm": "gd",
        "tune": {"axes": {"step": ["auto", 0.5]}, "seeds": [0], "report": [1]},
    }
    block["dataset"]["clip_to_bounds"] = True
    (line,), _ = expand_blocks([block])
    assert line.rule == "gd-3: clip n_iter" and "auto" not in line.axes["step"]
    assert isinstance(line.params["n_iter"], int) and line.axes["step"][1] == 0.5


@each("key", ("newton.step", "gd.output", "svrg.batch_size"))
def test_auto_without_a_rule_is_refused(key):
    algorithm, _, parameter = key.partition(".")
    with pytest.raises(UsageError, match="auto: no rule gives it, it must be a value"):
        fit(posed(), algorithm, epsilon=1.0, **{parameter: "auto"})


def test_the_listing_says_what_auto_means():
    text = list_choices("algorithm", ["gd"])
    row = next(line for line in text.splitlines() if line.split()[0] == "n_iter")
    assert row.split()[1] == "auto" and "|auto" in row and "; auto: " in row


def test_a_solver_of_ones_own_has_a_rule(tmp_path):
    path = tmp_path / "ruled.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from dp_erm_bench.extend import PublicNumbers, Rule\n"
        "from dp_erm_bench.solvers.gd import GD\n\n\n"
        "def numbers(public, given):\n"
        "    return {'n_iter': public.p + 3}\n\n\n"
        "@dataclass(frozen=True)\n"
        "class Ruled(GD):\n"
        '    """GD whose length is a rule.\n\n'
        "    References\n    ----------\n    None.\n"
        '    """\n\n'
        "    defaults = Rule('7', {'n_iter': 'p + 3 steps'}, numbers)\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fit(posed(), str(path), epsilon=1.0, clip=0.5, seed=0)
    assert found.rule == "ruled-7: n_iter"
    assert found.params["n_iter"] == P + 3 and found.params["step"] == 1.0


def unequal(n=1500, seed=0):
    """Return three columns of clinical scales, ranges for them, and answers."""
    random = np.random.default_rng(seed)
    age = np.clip(random.normal(50.0, 12.0, n), 18.0, 95.0)
    crp = np.clip(random.exponential(5.0, n), 0.0, 50.0)
    third = np.clip(random.normal(0.5, 0.15, n), 0.0, 1.0)
    log_odds = 1.1 * (age - 50.0) / 12.0 + 0.8 * (crp - 5.0) / 5.0
    log_odds += -0.6 * (third - 0.5) / 0.15 - 0.3
    y = (random.random(n) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
    return np.column_stack([age, crp, third]), y


def test_a_classifier_by_default_ranks_scaled_columns():
    X, y = unequal()
    held = unequal(4000, 9)
    bounds = {"columns": [[0, 100], [0, 50], [0, 1]]}
    how = {"bounds": bounds, "scale": "bounds", "classes": [0, 1]}

    def auc(**given):
        model = DPClassifier(**how, **given).fit(X, y)
        return roc_auc_score(held[1], model.decision_function(held[0]))

    assert np.median([auc(random_state=seed) for seed in range(20)]) >= 0.74
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert auc(epsilon=math.inf) >= 0.8


def test_a_classifier_that_stays_far_from_the_minimum_says_so():
    X, y = unequal()
    bounds = {"columns": [100, 50, 1]}
    model = DPClassifier(epsilon=math.inf, bounds=bounds, classes=[0, 1])
    with pytest.warns(ConvergenceWarning, match=r"gd: at epsilon=inf \d+% of what"):
        model.fit(X, y)
    assert model.params_["n_iter"] == 1000


def test_what_is_left_is_measured_from_the_constant_model():
    """The mean wins nearly all that w = 0 loses: coefficients are what is left."""
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(50.0, 12.0, 800), random.normal(27.0, 4.0, 800)])
    y = 150.0 + (X - [50.0, 27.0]) @ [1.0, 2.0] + random.normal(0.0, 5.0, 800)
    model = DPRegressor(epsilon=math.inf, bounds={"columns": [100, 60], "label": 400})
    with pytest.warns(ConvergenceWarning, match="of what the constant model loses"):
        model.fit(X, y)
    assert abs(model.coef_[1] - 2.0) > 0.5
    for kind, given in (
        (y, {"scale": "bounds"}),
        (y * 0.0 + 200.0, {"scale": "bounds"}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            clone(model).set_params(**given).fit(X, kind)
    # With noise nobody may tell.
    private = clone(model).set_params(epsilon=1.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        private.fit(X, y)


CELLS = {
    "breast_cancer": ((), 0.01, {"columns": 3, "norm": 6}),
    "electricity": ((), 0.001, {"columns": 3, "norm": 4}),
}


@pytest.mark.slow
# Bounds of 3 standard deviations clip a fifth of the records of breast_cancer.
@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.ClippedRecords")
@each("name", sorted(CELLS))
def test_defaults_lose_to_nothing_in_no_cell(name):
    _, strength, bounds = CELLS[name]
    problem = load_problem(
        name,
        loss="logistic",
        penalty={"name": "l2", "strength": strength},
        standardise=True,
        test_fraction=0.2,
        bounds=bounds,
        clip_to_bounds=True,
        intercept=1.0,
    )
    zero = problem.value(np.zeros(problem.p)) - problem.optimum.value
    for algorithm in LAW:
        for epsilon in (0.1, 1.0):
            runs = (fit(problem, algorithm, epsilon=epsilon, seed=k) for k in range(5))
            found = np.median([problem.value(run.w) for run in runs])
            assert found - problem.optimum.value <= 1.1 * zero, (algorithm, epsilon)
