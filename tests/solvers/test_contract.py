"""What every algorithm of conf/ keeps, in every variant of its parameters."""

import dataclasses

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.errors import BudgetExhausted, UsageError
from dp_erm_bench.privacy import releases as kinds
from dp_erm_bench.privacy.mechanisms import Mechanism
from dp_erm_bench.solvers.base import stack
from tests.solvers.cases import (
    ALGORITHMS,
    PENALTIES,
    STEPS,
    VARIANTS,
    Run,
    fields_of,
    label,
    noise_on_vectors,
    objectives,
    problem_of,
    solver_of,
    supported,
)

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=label)
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def problems_for(variant):
    """The problems that a variant serves; none is an error."""
    made = [problem_of(*objective) for objective in objectives()]
    served = [problem for problem in made if supported(variant, problem)]
    assert served
    return served


def use_once_more(mechanism):
    batch = len(mechanism.seeds)
    if isinstance(mechanism.release, kinds.NoisyMax | kinds.InsideNoisyMax):
        return mechanism(np.zeros((batch, 6)), lambda g: g)
    return mechanism(np.zeros(batch), coordinate=np.zeros(batch, dtype=np.int64))


@every_variant
@pytest.mark.parametrize("ahead", [False, True])
def test_uses_are_exactly_those_declared(variant, ahead):
    for problem in problems_for(variant):
        run = Run(problem, [solver_of(variant, clip=1.0)], ahead=ahead)
        run.iterates()
        assert run.mechanisms
        for mechanism in run.mechanisms.values():
            assert mechanism.used == mechanism.release.times
            with pytest.raises(BudgetExhausted, match=mechanism.release.name):
                use_once_more(mechanism)


@every_variant
def test_a_longer_run_than_declared_is_stopped(variant):
    problem = problems_for(variant)[0]
    run = Run(problem, [solver_of(variant, clip=1.0)])
    longer = Run(problem, [solver_of(variant, clip=1.0, n_iter=STEPS + 5)])
    longer.checkpoints = (0, STEPS + 5)
    with pytest.raises(BudgetExhausted):
        longer.iterates(run.mechanisms)


@every_variant
def test_no_iterations_return_the_start(variant):
    problem = problems_for(variant)[0]
    solver = solver_of(variant, clip=1.0, n_iter=0)
    run = Run(problem, [solver], checkpoints=(0,))
    (w,) = run.iterates()
    assert not w.any()
    assert all(release.times == 0 for release in run.releases)


@every_variant
def test_compiled_and_plain_steps_agree(variant):
    for problem in problems_for(variant):
        solvers = [solver_of(variant, clip=c, step=0.5) for c in (0.7, 2.0)]
        plain = Run(problem, solvers, identities=("a", "b"))
        fast = Run(problem, solvers, identities=("a", "b"), ahead=True)
        for a, b in zip(plain.iterates(), fast.iterates(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@every_variant
@pytest.mark.parametrize("ahead", [False, True])
def test_runs_repeat_and_checkpoints_change_nothing(variant, ahead):
    problem, solver = problems_for(variant)[0], solver_of(variant, clip=1.0)
    full = Run(problem, [solver], ahead=ahead).iterates()
    again = Run(problem, [solver], ahead=ahead).iterates()
    few = Run(problem, [solver], ahead=ahead, checkpoints=(0, 3, STEPS)).iterates()
    other = Run(problem, [solver], ahead=ahead, identities=("b",)).iterates()
    np.testing.assert_array_equal(full, again)
    np.testing.assert_allclose([full[0], full[3], full[-1]], few, rtol=1e-9)
    assert not np.allclose(full[-1], other[-1])


def drawn(monkeypatch, run):
    """Run, and return the noise of every use by release and trial."""
    seen = {}
    unit_noise = Mechanism.unit_noise

    def listen(mechanism, uses, size):
        noise = unit_noise(mechanism, uses, size)
        kept = seen.setdefault(mechanism.release.name, [])
        kept.append(noise.reshape(len(noise), -1).copy())
        return noise

    with monkeypatch.context() as patch:
        patch.setattr(Mechanism, "unit_noise", listen)
        last = run.iterates()[-1]
    return {name: np.hstack(parts) for name, parts in seen.items()}, last


@every_variant
def test_draws_do_not_depend_on_batch_order_or_checkpoints(variant, monkeypatch):
    problem = problems_for(variant)[0]
    named = {"a": 0.5, "b": 1.0, "c": 2.0, "d": 0.7, "e": 1.3}
    made = {k: solver_of(variant, clip=c) for k, c in named.items()}
    alone = {
        k: drawn(monkeypatch, Run(problem, [s], identities=(k,), ahead=True))
        for k, s in made.items()
    }
    for order, checkpoints in (("edcba", (0, 4, STEPS)), ("cab", (0, STEPS))):
        run = Run(
            problem,
            [made[k] for k in order],
            identities=tuple(order),
            checkpoints=checkpoints,
            ahead=True,
        )
        noise, w = drawn(monkeypatch, run)
        for b, k in enumerate(order):
            single, w_alone = alone[k]
            for name, values in noise.items():
                np.testing.assert_array_equal(values[b], single[name][0])
            np.testing.assert_allclose(
                problem.value(w[b]), problem.value(w_alone[0]), rtol=1e-9
            )


@every_variant
def test_public_draws_belong_to_the_trial(variant):
    problem, solver = problems_for(variant)[0], solver_of(variant, clip=1.0)
    solvers = stack([solver] * 2)
    schedule = solvers.plan(problem, ("a", "b"))
    if schedule is None:
        return
    assert schedule.shape[0] == 2
    for b, identity in enumerate("ab"):
        alone = stack([solver]).plan(problem, (identity,))
        np.testing.assert_array_equal(schedule[b], alone[0])


@every_variant
def test_without_noise_no_draw_changes_the_run(variant, monkeypatch):
    problem, solver = problems_for(variant)[0], solver_of(variant)
    quiet = Run(problem, [solver], z=0.0).iterates()
    for release in Run(problem, [solver], z=0.0).releases:
        monkeypatch.setattr(type(release), "draw", None)
    np.testing.assert_array_equal(quiet, Run(problem, [solver], z=0.0).iterates())
    assert np.isfinite(quiet).all()


@every_variant
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize("smoothness", ["public", "data"])
def test_columns_of_zeros_are_never_updated(variant, ahead, clip, smoothness):
    for problem in problems_for(variant):
        bounded = clip is not None or np.isfinite(problem.lipschitz)
        z = 100.0 if bounded else 0.0
        known = problem.with_smoothness(smoothness)
        run = Run(known, [solver_of(variant, clip=clip)], z=z, ahead=ahead)
        last = run.iterates()[-1]
        assert np.isfinite(last).all()
        if not noise_on_vectors(run.releases):
            assert last[0, 2] == 0.0 and last.any()


@every_algorithm
def test_a_problem_of_zeros_stays_at_the_start(algorithm):
    problem = problem_of("logistic", "none", p=1, dead=0)
    solver = registry.build("algorithm", algorithm, clip=1.0, n_iter=STEPS)
    assert not np.any(Run(problem, [solver], z=0.0).iterates())


@every_variant
def test_the_global_random_state_is_not_touched(variant):
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    Run(problems_for(variant)[0], [solver_of(variant, clip=1.0)], ahead=True).iterates()
    np.testing.assert_array_equal(before, np.random.get_state()[1])


@every_algorithm
def test_every_parameter_is_described_and_marked(algorithm):
    for field in fields_of(algorithm):
        assert field.metadata["kind"] in ("shape", "value")
        assert field.metadata["help"]


def wrong_values(field):
    limits = field.metadata
    yield from (object(), [1], float("nan"), float("inf"), True)
    yield from (limits[key] - 1 for key in ("least", "above") if key in limits)
    yield from (limits[key] for key in ("above",) if key in limits)
    if "int" in str(field.type):
        yield 1.5
    if "None" not in str(field.type):
        yield None
    yield "no such word"


@every_algorithm
def test_wrong_parameters_are_refused_in_one_sentence(algorithm):
    for field in fields_of(algorithm):
        for given in wrong_values(field):
            with pytest.raises(UsageError) as caught:
                registry.build("algorithm", algorithm, **{field.name: given})
            text = str(caught.value)
            assert text.startswith(f"{field.name}={given}: must be ")
            assert "\n" not in text


@every_algorithm
def test_unknown_parameters_are_refused_with_the_nearest(algorithm):
    with pytest.raises(UsageError, match="did you mean clip"):
        registry.build("algorithm", algorithm, clp=1.0)


@every_algorithm
def test_parameters_are_frozen(algorithm):
    with pytest.raises(dataclasses.FrozenInstanceError):
        registry.build("algorithm", algorithm).step = 2.0


def test_only_poster_noise_is_unsupported_and_only_where_it_is_not_proved():
    refused = {
        (label(variant), penalty)
        for variant in VARIANTS
        for penalty in PENALTIES
        if not supported(variant, problem_of("logistic", penalty))
    }
    assert refused == {
        (f"greedy_cd-{rule}-poster", penalty)
        for rule in ("GS-r", "GS-q", "GS-s")
        for penalty in ("l1", "elastic_net", "box")
        if penalty == "box" or rule != "GS-s"
    }


def test_no_algorithm_knows_a_budget():
    words = ("epsilon", "delta", "sigma", "budget")
    for algorithm in ALGORITHMS:
        for field in fields_of(algorithm):
            assert not any(word in field.name for word in words)
