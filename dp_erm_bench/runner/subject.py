"""What trials are about: a dataset and an objective, digested once per process."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache, cached_property
from hashlib import sha256
from typing import Any

from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.paths import digest
from dp_erm_bench.problems.build import build_problem
from dp_erm_bench.problems.problem import Problem
from dp_erm_bench.runner.fingerprint import code_fingerprint
from dp_erm_bench.runner.parameters import Algorithm, algorithm_of
from dp_erm_bench.runner.trial import Setting, Trial

SILENT = ("_target_", "usual", "usual_standardised", "usual_regression", "path")
"""Keys of a dataset's yaml that its content or the objective already tell."""


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """A dataset's spec and a resolved objective.

    Attributes
    ----------
    spec : mapping
        `dataset`, `loss`, `penalty`, `constraint` of a trial's spec.
    digest : str
        Of the content of the dataset, its spec and the objective.
    problem : Problem
        The problem itself.
    """

    spec: Mapping[str, Any]
    digest: str
    problem: Problem

    @cached_property
    def gradient_rms(self) -> float:
        """Return the unit of clipping thresholds, to 12 digits.

        Rounded because sums differ in the last bits with the number of threads,
        which must not change a key.
        """
        return float(f"{self.problem.gradient_rms:.12g}")

    def setting(
        self, algorithm: Algorithm, budget: Mapping[str, Any], calibration: str
    ) -> Setting:
        """Return the setting of an algorithm with a budget on this subject."""
        spec = {
            **self.spec,
            "algorithm": {"name": algorithm.name, "params": dict(algorithm.given)},
            "budget": budget,
            "calibration": calibration,
        }
        how = [self.digest, algorithm.name, budget, calibration]
        clipped = algorithm.full.get("clip") is not None
        return Setting(
            spec=spec,
            digest=_digest([*how, algorithm.full]),
            code=code_fingerprint(algorithm.target),
            group=_digest([*how, algorithm.shape, clipped]),
            work=algorithm.work(self.problem),
            batchable=algorithm.batchable,
        )


def subject_of(dataset: str, overrides: Mapping[str, Any], *objective: Any) -> Subject:
    """Return the subject of a dataset with overrides and of an objective.

    Parameters
    ----------
    dataset : str
        Name of its yaml.
    overrides : mapping
        Keys of the yaml to replace.
    *objective : str or mapping
        Loss, penalty, constraint as `build_problem` takes them.

    Raises
    ------
    DataUnavailable
        If the dataset cannot be had.
    UsageError
        If a name or a value is not allowed.
    """
    parts = (dataset, dict(overrides), *objective)
    return _subject(json.dumps(parts, sort_keys=True, default=str))


@cache
def _subject(text: str) -> Subject:
    name, overrides, *objective = json.loads(text)
    spec = dataset_spec(name, **overrides)
    data = load_dataset(spec)
    problem = build_problem(data, *objective)
    parts = {
        part: _described(getattr(problem, part))
        for part in ("loss", "penalty", "constraint")
    }
    told = {key: value for key, value in spec.items() if key not in SILENT}
    return Subject(
        spec={"dataset": spec, **parts},
        digest=digest([data.content_hash, told, parts]),
        problem=problem,
    )


def _digest(value: Any) -> str:
    """Digest what is spelled already, at a third of the time of `paths.digest`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()


def _described(part: Any) -> dict[str, Any]:
    values = {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}
    return {"name": part.name, **values}


def trial_of(spec: Mapping[str, Any]) -> Trial:
    """Return the trial of a complete spec (`Trial.spec`), as `expand` would make it."""
    dataset = dict(spec["dataset"])
    objective = [spec[part] for part in ("loss", "penalty", "constraint")]
    name = dataset.pop("name")
    dataset.pop("_target_", None)
    algorithm = algorithm_of(spec["algorithm"]["name"], spec["algorithm"]["params"])
    subject = subject_of(name, dataset, *objective)
    setting = subject.setting(algorithm, spec["budget"], spec["calibration"])
    return setting.trial(spec["seed"], spec["n_checkpoints"])
