"""The accounting study as a task: no data, no runs, accountants only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.accounting import noise_rows
from dp_erm_bench.audit.greedy import violation_table
from dp_erm_bench.experiment.schema import Block
from dp_erm_bench.experiment.studies import Spec, Task
from dp_erm_bench.experiment.trials import Trial
from dp_erm_bench.experiment.values import seeds_of, values_of
from dp_erm_bench.runner.tasks.audit import algorithms_of, budgets_of

VIOLATION = "printed_noise_of_greedy_cd"


@dataclass(frozen=True)
class AccountingTask(Task):
    """Ask every accountant for the noise of an algorithm's releases.

    Parameters
    ----------
    lengths : tuple of int
        T, numbers of iterations.
    violation : bool
        Whether to compute in its place where the printed noise of greedy coordinate
        descent is too small (``audit.greedy``).
    """

    lengths: tuple[int, ...] = (1, 10, 50, 100, 1000, 10000)
    violation: bool = False

    def __post_init__(self) -> None:
        """Check the lengths."""
        values = values_of("task.lengths", list(self.lengths))
        object.__setattr__(self, "lengths", tuple(seeds_of("task.lengths", values)))

    def specs(self, block: Block) -> Iterator[tuple[Spec, str]]:
        """Yield every algorithm with a length, and budget."""
        if self.violation:
            yield _spec(VIOLATION, {}, next(budgets_of(block))), ""
            return
        for name in algorithms_of(block):
            target = registry.read(registry.ALGORITHM, name)["_target_"]
            for budget in budgets_of(block):
                for n_iter in self.lengths:
                    yield _spec(name, {"n_iter": n_iter}, budget), target

    def facts(self, trial: Trial) -> dict[str, Any]:
        """Return the rows of the study's table."""
        if self.violation:
            return {"rows": violation_table()}
        spec = trial.spec
        name, n_iter = spec["algorithm"]["name"], spec["algorithm"]["params"]["n_iter"]
        rows = noise_rows(name, n_iter, Budget(**spec["budget"]))
        return {"rows": [{"study": "noise", **asdict(row)} for row in rows]}

    def work(self, spec: Mapping[str, Any]) -> float:
        """Return the cost of a few calls of the PLD accountant."""
        return 1e8


def _spec(name: str, params: Mapping[str, Any], budget: Mapping[str, Any]) -> Spec:
    return {
        "dataset": {"name": "none"},
        "loss": {"name": "none"},
        "penalty": {"name": "none"},
        "constraint": {"name": "none"},
        "algorithm": {"name": name, "params": dict(params)},
        "budget": dict(budget),
        "calibration": "certified",
    }
