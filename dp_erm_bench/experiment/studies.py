"""Tasks: trials that are no fits.

A block with the key `task` names one of conf/task. Its trials are planned, run,
recorded and resumed like all others; their results are the facts of their records.
"""

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.fingerprint import all_choices, code_fingerprint
from dp_erm_bench.experiment.schema import Block
from dp_erm_bench.experiment.trials import BatchKey, Line, Setting, Trial
from dp_erm_bench.experiment.values import seeds_of
from dp_erm_bench.experiment.work import Work
from dp_erm_bench.paths import entering, later_defaults

GROUP = "task"
N_CHECKPOINTS = 2
Spec = dict[str, Any]


@dataclass(frozen=True)
class Task(ABC):
    """The task of a block's trials; the fields are its parameters."""

    @abstractmethod
    def specs(self, block: Block) -> Iterator[tuple[Spec, str]]:
        """Yield the specs of a block's settings, and the target of their algorithm.

        A spec has the parts that every trial's has, as far as they have a meaning.
        """

    @abstractmethod
    def facts(self, trial: Trial) -> dict[str, Any]:
        """Do the task for one trial and return the facts of its record, JSON-able."""

    @abstractmethod
    def work(self, spec: Mapping[str, Any]) -> float:
        """Return the rough cost of a trial; 1e8 is about a second."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Study(Line):
    """The line of a block with a task; those of other blocks are `lines.FitLine`s."""

    block: Block
    task: Task

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Return the settings that the task names."""
        return tuple(self._setting(*one) for one in self.task.specs(self.block))

    def sweep(self, n_checkpoints: int) -> Iterator[Trial]:
        """Yield the trials, always without a trajectory."""
        return super().sweep(N_CHECKPOINTS)

    def _setting(self, spec: Spec, target: str) -> Setting:
        assert self.block.task is not None
        task = self.task
        spelled = {"name": self.block.task["name"], **dataclasses.asdict(task)}
        base = {**spec, "task": spelled}
        entered = {**spec, "task": entering(spelled, later_defaults(task))}
        text = json.dumps(entered, sort_keys=True, allow_nan=False)
        digest = sha256(text.encode()).hexdigest()
        own = f"{type(task).__module__}.{type(task).__name__}"
        code = code_fingerprint(own, (*all_choices(), *[target] * bool(target)))
        work = cache(lambda rows: Work(own=task.work(base)))
        batch_key = BatchKey(lambda: code, digest, False, work)
        return Setting(base, (), (), digest, batch_key, self)


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
    """Return the line of a block with a task, its settings checked."""
    task, seeds = task_of(block.task), seeds_of("seed", block.seed)
    study = Study(
        panel=block.panel, line=block.line, seeds=seeds, block=block, task=task
    )
    _ = study.settings
    return study
