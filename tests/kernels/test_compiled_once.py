"""Test that numbers do not depend on which process compiled the kernels."""

import os
import subprocess
import sys

import pytest

FIT = """
import sys
from dp_erm_bench import fit, load_problem
problem = load_problem("log1", n=200, p=8)
ends = {}
for name in sys.argv[1:]:
    ends[name] = fit(problem, name, epsilon=1.0, seed=0, clip=1.0).w.tolist()
for name in sorted(ends):
    print(name, *map(float.hex, ends[name]))
"""
ALGORITHMS = ["sgd", "greedy_cd"]


@pytest.mark.slow
def test_numbers_do_not_depend_on_who_compiled_what_in_which_order(tmp_path):
    def ends(cache, algorithms):
        place = str(tmp_path / cache)
        done = subprocess.run(
            [sys.executable, "-c", FIT, *algorithms],
            env={**os.environ, "DP_ERM_BENCH_MACHINE_CODE": place},
            capture_output=True,
            check=True,
        )
        return done.stdout.split()

    first = ends("one", ALGORITHMS)
    assert len(first) == 9 * len(ALGORITHMS)
    kept = [path for path in tmp_path.rglob("*") if len(path.name) == 64]
    assert len(kept) > 10
    assert ends("one", ALGORITHMS) == first
    assert ends("other", ALGORITHMS[::-1]) == first
