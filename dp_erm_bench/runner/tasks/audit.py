"""The statistical audit as a task: a trial is a chunk of runs on one neighbour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.pairs import variants
from dp_erm_bench.audit.statistic import audited_case
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import Block
from dp_erm_bench.experiment.studies import Spec, Task
from dp_erm_bench.experiment.trials import Trial
from dp_erm_bench.experiment.values import product, values_of
from dp_erm_bench.paths import spelled

SIDES = (0, 1)
PARTS = ("loss", "penalty", "constraint")
DIGITS = 9
ALL = "all"


def budgets_of(block: Block) -> Iterator[dict[str, Any]]:
    """Yield the budgets of a block, JSON-able."""
    usual = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one"}
    axes = {
        key: values_of(f"budget.{key}", value)
        for key, value in {**usual, **block.budget}.items()
    }
    for point in product(axes):
        budget = Budget(**point)
        if math.isinf(budget.epsilon):
            raise UsageError("budget.epsilon=inf: there is no noise to study")
        yield dict(spelled({**point, "adjacency": budget.adjacency.value}))


def algorithms_of(block: Block) -> list[str]:
    """Return the names of a block's algorithms, all by default."""
    given = block.algorithm or ALL
    known = registry.names(registry.ALGORITHM)
    names = known if given == ALL else values_of("algorithm", given)
    for name in names:
        registry.check_choice("algorithm", name, known)
    return list(names)


@dataclass(frozen=True)
class AuditTask(Task):
    """Run an algorithm on one of its worst-case neighbours, many times.

    Every algorithm is audited in all variants of its shape parameters
    (``audit.pairs.variants``), on both sides; a seed is a chunk of runs.

    Parameters
    ----------
    runs : int
        Runs of one trial.
    """

    runs: int = 2000

    def __post_init__(self) -> None:
        """Refuse a number of runs that is none."""
        if isinstance(self.runs, bool) or not isinstance(self.runs, int):
            raise UsageError(f"task.runs={self.runs}: must be an integer")
        if self.runs < 2:
            raise UsageError(f"task.runs={self.runs}: must be at least 2")

    def specs(self, block: Block) -> Iterator[tuple[Spec, str]]:
        """Yield every algorithm, variant, budget and side."""
        budgets = list(budgets_of(block))
        for name in algorithms_of(block):
            target = registry.read(registry.ALGORITHM, name)["_target_"]
            for params in variants(name):
                for budget in budgets:
                    for side in SIDES:
                        yield _spec(name, params, budget, side), target

    def facts(self, trial: Trial) -> dict[str, Any]:
        """Return the statistic of every run, and what is claimed."""
        spec = trial.spec
        name, params = spec["algorithm"]["name"], spec["algorithm"]["params"]
        case = audited_case(name, params, Budget(**spec["budget"]))
        sample = case.run(spec["dataset"]["side"], self.runs, trial.identity)
        problem = case.pair.first
        facts = problem.facts()
        return {
            "n": problem.n,
            "p": problem.p,
            **{part: facts[part] for part in PARTS if part in facts},
            "delta": case.claim.budget.number,
            "epsilon_certified": case.claim.epsilon,
            "calibration": "certified",
            "statistics": [float(f"{value:.{DIGITS}g}") for value in sample.tolist()],
        }

    def work(self, spec: Mapping[str, Any]) -> float:
        """Return the cost of some runs: about half a millisecond each."""
        return 5e4 * self.runs


def _spec(
    name: str, params: Mapping[str, Any], budget: Mapping[str, Any], side: int
) -> Spec:
    return {
        "dataset": {"name": "worst_case", "side": side},
        "loss": {"name": "smoothed_hinge"},
        "penalty": {"name": "auto"},
        "constraint": {"name": "auto"},
        "algorithm": {"name": name, "params": dict(params)},
        "budget": dict(budget),
        "calibration": "certified",
    }
