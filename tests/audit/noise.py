"""A table of the accounting study for a few algorithms, shared by tests."""

from dataclasses import asdict

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.accounting import noise_rows


def noise_table(algorithms, lengths, epsilons, delta=1e-6, adjacency="replace_one"):
    """Return the rows of all algorithms, lengths and epsilons."""
    return [
        {"study": "noise", **asdict(row)}
        for algorithm in algorithms
        for n_iter in lengths
        for epsilon in epsilons
        for row in noise_rows(algorithm, n_iter, Budget(epsilon, delta, adjacency))
    ]
