"""Costs of the runner itself; limits are loose, for a loaded machine."""

import subprocess
import sys
import time

import pytest

from dp_erm_bench.runner.expand import expand

HEAVY = ("pandas", "pyarrow", "joblib", "sklearn", "dp_accounting", "libsvmdata")


@pytest.mark.parametrize("module", ["experiment", "options"])
def test_importing_the_runner_imports_nothing_heavy(module):
    code = (
        f"import sys, dp_erm_bench.runner.{module}\n"
        f"print([name for name in {HEAVY + ('matplotlib', 'numba', 'rich')!r} "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def microseconds(function, count):
    start = time.perf_counter()
    function()
    return 1e6 * (time.perf_counter() - start) / count


def test_a_trial_is_expanded_and_keyed_in_microseconds(block):
    expand([block()])
    seeds = block(seed=list(range(5000)))
    steps = [1 + i / 1000 for i in range(1000)]
    settings = block(algorithm={"name": "random_cd", "step": steps}, seed=0)

    def trials(made):
        cases, _ = expand([made])
        return [one for case in cases for one in case.sweep(51)]

    assert microseconds(lambda: trials(seeds), 5000) < 100
    assert microseconds(lambda: trials(settings), 1000) < 500


def test_ten_thousand_trials_cost_little_and_again_less(run, block):
    made = block(seed=list(range(10_000)))
    first = microseconds(lambda: run(made, n_jobs=2), 10_000)
    again = microseconds(lambda: run(made, n_jobs=2), 10_000)
    assert first < 1500
    assert again < 200
