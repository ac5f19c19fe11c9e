"""Tasks: trials of a study that compute something other than a fit of a model."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.accounting import noise_rows
from dp_erm_bench.audit.pairs import variants
from dp_erm_bench.audit.statistic import named_attack
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.lines import Spec, StudyTask, Trial
from dp_erm_bench.experiment.schema import Block, points_of, seeds_of, values_of
from dp_erm_bench.papers.instances import violation_table
from dp_erm_bench.paths import spell_infinities

Parts = tuple[str, ...]
SIDES = (0, 1)
DIGITS = 9
ALL = "all"
VIOLATION = "printed_noise_of_greedy_cd"
WORST_CASE = ("worst_case", "smoothed_hinge", "auto", "auto")
NO_PROBLEM = ("none", "none", "none", "none")


def _budgets_of_block(block: Block) -> Iterator[dict[str, Any]]:
    """Yield the budgets of a block as values that JSON can represent."""
    usual = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one"}
    axes = {
        key: values_of(f"budget.{key}", value)
        for key, value in {**usual, **block.budget}.items()
    }
    for point in points_of(axes):
        budget = Budget(**point)
        if math.isinf(budget.epsilon):
            raise UsageError("budget.epsilon=inf: there is no noise to study")
        yield dict(spell_infinities({**point, "adjacency": budget.adjacency.value}))


def _algorithms_of_block(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the names of a block's algorithms (all by default), and their classes."""
    asked = block.algorithm or ALL
    names = registry.names(registry.ALGORITHM)
    chosen = names if asked == ALL else values_of("algorithm", asked)
    for name in chosen:
        registry.check_choice("algorithm", name, names)
    for name in chosen:
        yield name, registry.read_choice(registry.ALGORITHM, name)["_target_"]


def _spec_of_trial(
    parts: Parts, name: str, params: Spec, budget: Spec, **data: int
) -> Spec:
    """Return the spec of a trial on the problem with the given parts."""
    spec: Spec = {k: {"name": v} for k, v in zip(registry.PARTS, parts, strict=True)}
    spec["dataset"] |= data
    spec |= {"algorithm": {"name": name, "params": dict(params)}}
    return {**spec, "budget": dict(budget), "calibration": "certified"}


@dataclass(frozen=True)
class AccountingTask(StudyTask):
    """Computes the noise of an algorithm's releases with every accountant.

    The algorithm is not run.

    Parameters
    ----------
    lengths : tuple of int
        The numbers of iterations T for which the noise is computed.
    violation : bool
        If true, the task computes something else: for the instances of
        ``papers.instances``, how far the noise stated in the paper on greedy coordinate
        descent is too small.
    """

    lengths: tuple[int, ...] = (1, 10, 50, 100, 1000, 10000)
    violation: bool = False

    def __post_init__(self) -> None:
        """Check the lengths."""
        values = values_of("task.lengths", list(self.lengths))
        object.__setattr__(self, "lengths", tuple(seeds_of("task.lengths", values)))

    def specs(self, block: Block) -> Iterator[tuple[Spec, str]]:
        """Yield the spec and the class of each algorithm, per budget and length."""
        budgets = [*_budgets_of_block(block)]
        if self.violation:
            yield _spec_of_trial(NO_PROBLEM, VIOLATION, {}, budgets[0]), ""
            return
        axes = _algorithms_of_block(block), budgets, self.lengths
        for (name, target), budget, n_iter in itertools.product(*axes):
            params = {"n_iter": n_iter}
            yield _spec_of_trial(NO_PROBLEM, name, params, budget), target

    def facts(self, trial: Trial) -> dict[str, Any]:
        """Return the rows of the study's table."""
        if self.violation:
            return {"rows": violation_table()}
        algorithm, budget = trial.spec["algorithm"], Budget(**trial.spec["budget"])
        rows = noise_rows(algorithm["name"], algorithm["params"]["n_iter"], budget)
        return {"rows": [{"study": "noise", **asdict(row)} for row in rows]}

    def work(self, spec: Mapping[str, Any]) -> float:
        """Return the estimated work of a few PLD accountings, or of all instances."""
        return 1.3e8 if self.violation else 1e7


@dataclass(frozen=True)
class AuditTask(StudyTask):
    """Runs an algorithm many times on one of two worst-case neighbouring problems.

    Every algorithm is audited in all variants of its shape parameters
    (``audit.pairs.variants``), and on both problems of the pair. Each seed gives a
    batch of runs.

    Parameters
    ----------
    runs : int
        Number of runs in one trial.
    """

    runs: int = 2000

    def __post_init__(self) -> None:
        """Raise UsageError unless the number of runs is an integer of at least 2."""
        if type(self.runs) is not int or self.runs < 2:
            raise UsageError(f"task.runs={self.runs}: must be an integer, at least 2")

    def specs(self, block: Block) -> Iterator[tuple[Spec, str]]:
        """Yield a spec and the class for each algorithm, variant, budget and side."""
        budgets = [*_budgets_of_block(block)]
        for name, target in _algorithms_of_block(block):
            for one in itertools.product(variants(name), budgets, SIDES):
                params, budget, side = one
                yield (
                    _spec_of_trial(WORST_CASE, name, params, budget, side=side),
                    target,
                )

    def facts(self, trial: Trial) -> dict[str, Any]:
        """Return the test statistic of every run, and the guarantee under audit."""
        spec, algorithm = trial.spec, trial.spec["algorithm"]
        budget = Budget(**spec["budget"])
        attack = named_attack(algorithm["name"], algorithm["params"], budget)
        sample = attack.run(spec["dataset"]["side"], self.runs, trial.identity)
        problem = attack.pair.first
        facts = problem.facts()
        return {
            "n": problem.n,
            "p": problem.p,
            **{part: facts[part] for part in registry.OBJECTIVE if part in facts},
            "delta": attack.guarantee.budget.number,
            "epsilon_certified": attack.guarantee.epsilon,
            "calibration": "certified",
            "statistics": [float(f"{value:.{DIGITS}g}") for value in sample.tolist()],
        }

    def work(self, spec: Mapping[str, Any]) -> float:
        """Return the estimated work of the runs.

        A run made alone takes most of a millisecond.
        """
        name = spec.get("algorithm", {}).get("name", "")
        known = name in registry.names(registry.ALGORITHM)
        alone = known and not registry.target(registry.ALGORITHM, name).batchable
        return (8e4 if alone else 1e4) * self.runs
