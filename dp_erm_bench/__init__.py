"""Benchmark of differentially private empirical risk minimisation.

This module is the public interface. Its names are imported on first use, which lets the
command line start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp_erm_bench.api import fit, load_problem, problem_from_arrays
    from dp_erm_bench.errors import Diverged
    from dp_erm_bench.estimators import DPClassifier, DPRegressor
    from dp_erm_bench.problems.mean import problem_from_records
    from dp_erm_bench.report.plot import plot
    from dp_erm_bench.results.columns import COLUMNS
    from dp_erm_bench.results.table import load_results
    from dp_erm_bench.rules.advice import advise
    from dp_erm_bench.runner.experiment import sweep, tune
    from dp_erm_bench.runner.replay import replay

__version__ = "0.2.0"
__all__ = [
    "COLUMNS",
    "DPClassifier",
    "DPRegressor",
    "Diverged",
    "advise",
    "fit",
    "load_problem",
    "load_results",
    "plot",
    "problem_from_arrays",
    "problem_from_records",
    "replay",
    "sweep",
    "tune",
]

_HOMES = {
    "DPClassifier": "dp_erm_bench.estimators",
    "DPRegressor": "dp_erm_bench.estimators",
    "Diverged": "dp_erm_bench.errors",
    "fit": "dp_erm_bench.api",
    "load_problem": "dp_erm_bench.api",
    "problem_from_arrays": "dp_erm_bench.api",
    "problem_from_records": "dp_erm_bench.problems.mean",
    "advise": "dp_erm_bench.rules.advice",
    "COLUMNS": "dp_erm_bench.results.columns",
    "load_results": "dp_erm_bench.results.table",
    "plot": "dp_erm_bench.report.plot",
    "replay": "dp_erm_bench.runner.replay",
    "sweep": "dp_erm_bench.runner.experiment",
    "tune": "dp_erm_bench.runner.experiment",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
