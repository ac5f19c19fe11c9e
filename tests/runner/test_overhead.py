"""Test the runner's own costs in CPU time and counts, which no load changes."""

import gc
import resource
import subprocess
import sys
import tracemalloc

import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment import parameters
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import Setting
from dp_erm_bench.results.store import Store
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.session import Session
from dp_erm_bench.solvers.random_cd import RandomCD

pytestmark = pytest.mark.real_workers

HEAVY = ("pandas", "pyarrow", "joblib", "sklearn", "dp_accounting", "libsvmdata")
STEPS = [1 + i / 100 for i in range(100)]
CLIPS = [0.1 + i / 50 for i in range(50)]
KINDS = {
    "seeds only": {"seed": list(range(5000))},
    "a setting each": {
        "algorithm": {"name": "random_cd", "step": STEPS, "clip": CLIPS, "passes": 2},
        "seed": 0,
    },
    "a shape each": {
        "algorithm": {"name": "random_cd", "step": STEPS, "passes": CLIPS, "clip": 1},
        "seed": 0,
    },
}


def imported(code, names):
    code += f"\nimport sys; print([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return done.stdout.decode().splitlines()[-1]


@pytest.mark.parametrize("module", ["experiment", "options", "host"])
def test_importing_the_runner_imports_nothing_heavy(module):
    code = f"import dp_erm_bench.runner.{module}"
    assert imported(code, (*HEAVY, "matplotlib", "numba", "rich")) == "[]"


def test_neither_parent_nor_worker_needs_what_takes_long_to_import():
    code = "import dp_erm_bench.runner.execute, dp_erm_bench.experiment.expand"
    slow = (*HEAVY, "scipy.optimize", "scipy.linalg", "scipy.sparse.linalg")
    assert imported(code, slow) == "[]"


def test_a_worker_imports_for_no_trial_what_builds_problems():
    code = "import dp_erm_bench.runner.worker"
    assert imported(code, ("scipy", "dp_erm_bench.problems.erm.problem")) == "[]"


def test_a_cached_optimum_is_read_without_the_optimisers(block):
    (line,), _ = expand_blocks([block()])
    assert line.problem.optimum.value > 0
    code = (
        "from dp_erm_bench.datasets.load import load_dataset\n"
        "from dp_erm_bench.problems.erm.build import build_problem\n"
        f"spec = {dict(line.problem.spec)!r}\n"
        "parts = [spec[part] for part in ('loss', 'penalty', 'constraint')]\n"
        "problem = build_problem(load_dataset(spec['dataset']), *parts)\n"
        "assert problem.optimum.value > 0\n"
    )
    assert imported(code, ("scipy.optimize",)) == "[]"


def cpu():
    """Return the seconds of this process and of its children that have ended."""
    found = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in found)


def microseconds(function, count):
    # What other tests left in memory is not walked through again meanwhile.
    gc.collect()
    gc.freeze()
    try:
        start = cpu()
        function()
        return 1e6 * (cpu() - start) / count
    finally:
        gc.unfreeze()


def planned(made):
    return [one for line in expand_blocks([made])[0] for one in line.sweep(51)]


@pytest.mark.alone
@pytest.mark.parametrize("kind, most", [*zip(KINDS, (100, 120, 300), strict=True)])
def test_a_trial_is_planned_in_microseconds(block, tmp_path, kind, most):
    # The sources are parsed once for all trials, and once for all runs with a cache.
    Session("first", tmp_path, RunOptions(progress=False)).announce(planned(block()))
    session = Session("study", tmp_path, RunOptions(progress=False))
    made = block(**KINDS[kind])

    def plan():
        assert len(session.announce(planned(made))[1]) == 5000

    assert microseconds(plan, 5000) < most


@pytest.mark.parametrize("kind", KINDS)
def test_a_planned_trial_is_small(block, tmp_path, kind):
    expand_blocks([block()])
    session = Session("study", tmp_path, RunOptions(progress=False))
    tracemalloc.start()
    try:
        session.announce(planned(block(**KINDS[kind])))
        assert tracemalloc.get_traced_memory()[1] / 5000 < 2500
    finally:
        tracemalloc.stop()


@pytest.fixture
def made(monkeypatch):
    """The parameters of every solver that planning makes."""
    found = []

    solver = parameters.Algorithm.solver

    def counted(algorithm, params):
        found.append(params)
        return solver(algorithm, params)

    monkeypatch.setattr(parameters.Algorithm, "solver", counted)
    return found


def test_each_value_of_an_axis_is_checked_once(block, made):
    assert len({one.key for one in planned(block(**KINDS["a setting each"]))}) == 5000
    assert len(made) <= len(STEPS) + len(CLIPS) + 2


def together(solver):
    if solver.step * (solver.clip or 1.0) > 100.0:
        raise UsageError(f"step={solver.step}: too large for clip={solver.clip}")


@pytest.fixture
def joint(monkeypatch):
    """random_cd as if it checked its parameters together."""
    monkeypatch.setattr(RandomCD, "__post_init__", together, raising=False)
    parameters.algorithm_of.cache_clear()
    yield
    parameters.algorithm_of.cache_clear()


SMALL = {"name": "random_cd", "step": [1, 2, 4], "clip": [1, None, 3], "passes": [2, 3]}


def test_a_solver_that_checks_parameters_together_is_asked_for_each(
    block, made, request
):
    small = block(algorithm=SMALL)
    before = [(one.key, one.kind[0], one.spec) for one in planned(small)]
    request.getfixturevalue("joint")
    made.clear()
    again = [(one.key, one.kind[0], one.spec) for one in planned(small)]
    assert before == again
    assert len(made) >= 18
    with pytest.raises(UsageError, match="step=50.0: too large for clip=3.0"):
        expand_blocks([block(algorithm={**SMALL, "step": [1, 50], "clip": [1, 3]})])


def test_what_is_finished_costs_no_spec(inline, block, monkeypatch):
    made = block(algorithm={"name": "random_cd", "step": [1, 2], "clip": [1, 3]})
    assert inline(made) == 0

    def refuse(setting):
        raise AssertionError("a spec was made")

    monkeypatch.setattr(Setting, "spec", property(refuse))
    assert inline(made) == 0


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["seeds only", "a setting each"])
def test_thousands_of_trials_cost_little_and_again_less(run, block, kind):
    made = block(**KINDS[kind])
    first = microseconds(lambda: run(made, n_jobs=2), 5000)
    again = microseconds(lambda: run(made, n_jobs=2), 5000)
    assert first < 1500
    assert again < 200


def test_recorded_rounds_of_tuning_are_read_in_one_go(inline, tuned, monkeypatch):
    assert inline(tuned()) == 0
    asked = []
    records = Store.records
    monkeypatch.setattr(
        Store, "records", lambda self, keys: asked.append(keys) or records(self, keys)
    )
    assert inline(tuned()) == 0
    assert len([keys for keys in asked if keys]) <= 2
