"""Tasks: what is done with a trial that is not a fit.

A block with the key `task` names one of conf/task. Its trials are planned, run,
recorded and resumed like all others; their results are the facts of their records.
"""

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.fingerprint import code_fingerprint
from dp_erm_bench.experiment.schema import Block, Tune
from dp_erm_bench.experiment.trials import BatchKey, Labels, Planned, Setting, Trial
from dp_erm_bench.experiment.values import seeds_of
from dp_erm_bench.paths import entering, later_defaults

GROUP = "task"
N_CHECKPOINTS = 2
Spec = dict[str, Any]


@dataclass(frozen=True)
class Task(ABC):
    """What is done with the trials of a block; the fields are its parameters."""

    @abstractmethod
    def specs(self, block: Block) -> Iterator[tuple[Spec, str]]:
        """Yield the specs of a block's settings, and the target of their algorithm.

        A spec has the parts that every trial's has, as far as they have a meaning.
        """

    @abstractmethod
    def facts(self, trial: Trial) -> dict[str, Any]:
        """Do the task for one trial and return what the record keeps, JSON-able."""

    @abstractmethod
    def work(self, spec: Mapping[str, Any]) -> float:
        """Return the rough cost of a trial; 1e8 is about a second."""


@dataclass(frozen=True, eq=False)
class Study:
    """The trials of one block that has a task, as `lines.Case` those of others.

    Attributes
    ----------
    panel, line : str
        Labels.
    seeds : tuple of int
        Seeds of every setting.
    settings : tuple of Setting
        What is run.
    """

    panel: str
    line: str
    seeds: tuple[int, ...]
    settings: tuple[Setting, ...]
    tune: Tune | None = None
    algorithm: str = ""

    @property
    def expected(self) -> int:
        """Return the number of trials."""
        return len(self.seeds) * len(self.settings)

    def sweep(self, n_checkpoints: int) -> Iterator[Planned]:
        """Yield the trials; they have no trajectory, whatever is asked for."""
        labels = Labels(self.panel, self.line, "sweep")
        for setting in self.settings:
            for seed in self.seeds:
                yield setting.planned(seed, N_CHECKPOINTS, labels)


def task_of(section: Any) -> Task:
    """Return the task of a block's section or of a trial's spec.

    Raises
    ------
    UsageError
        If it is no mapping with `name`, or name or parameters are not allowed.
    """
    if not isinstance(section, Mapping) or "name" not in section:
        raise UsageError(f"task={section}: must be a mapping with `name`")
    fields = {key: value for key, value in section.items() if key != "name"}
    task: Task = registry.build(GROUP, section["name"], **fields)
    return task


def study_of(block: Block) -> Study:
    """Return the trials of a block that has a task."""
    assert block.task is not None
    task = task_of(block.task)
    spelled = {"name": block.task["name"], **dataclasses.asdict(task)}
    seeds = seeds_of("seed", block.seed)
    settings = tuple(_setting(task, spelled, *one) for one in task.specs(block))
    return Study(block.panel, block.line, seeds, settings)


def _setting(task: Task, spelled: Spec, spec: Spec, target: str) -> Setting:
    base = {**spec, "task": spelled}
    entered = {**spec, "task": entering(spelled, later_defaults(task))}
    text = json.dumps(entered, sort_keys=True, allow_nan=False)
    digest = sha256(text.encode()).hexdigest()
    own = f"{type(task).__module__}.{type(task).__name__}"
    code = f"{code_fingerprint(own)} {code_fingerprint(target) if target else ''}"
    batch_key = BatchKey(lambda: code, digest, False, lambda: task.work(base))
    return Setting(base, (), (), digest, batch_key)
