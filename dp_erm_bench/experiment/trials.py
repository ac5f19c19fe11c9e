"""Lines, their settings, and trials with the keys of their records.

A block becomes lines, a line settings (one per point of its axes), and a setting trials
(one per seed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from dp_erm_bench.experiment.tune_schema import Tune
from dp_erm_bench.experiment.work import Work
from dp_erm_bench.registry import foreign

Kind = tuple[str, int]


@dataclass(frozen=True, eq=False, kw_only=True)
class Line:
    """A line of a panel: its labels, its seeds, and the settings that it runs.

    Attributes
    ----------
    panel, line : str
        Labels.
    seeds : tuple of int
        Seeds of a sweep; empty if tuned.
    tune : Tune or None
        The tuning of open parameters; None if every point is run.
    measured : bool
        Whether a value was given in a unit that is computed from the data.
    algorithm : str
        Name of the algorithm, the pin of a file; empty for a task.
    """

    panel: str = ""
    line: str = ""
    seeds: tuple[int, ...] = ()
    tune: Tune | None = None
    measured: bool = False
    algorithm: str = ""

    @property
    def label(self) -> tuple[str, str]:
        """Return panel and line."""
        return self.panel, self.line

    @property
    def read(self) -> tuple[str, ...]:
        """Return what reading the records took from them, as it is not declared."""
        return ()

    @property
    def settings(self) -> Sequence[Setting]:
        """Return the settings of a sweep, one per point, the last axis fastest."""
        return ()

    def sweep(self, n_checkpoints: int) -> Iterator[Trial]:
        """Yield the trials of a line that is not tuned."""
        for setting in self.settings:
            for seed in self.seeds:
                yield setting.trial(seed, n_checkpoints)


@dataclass(frozen=True, eq=False)
class BatchKey:
    """The common part of settings that may share a batch.

    Parameters
    ----------
    code : callable
        Returns the fingerprint of the code that computes the trials.
    group : str
        Trials may share a batch if this is equal.
    batchable : bool
        Whether more than one trial may run at once.
    work : callable
        Returns the work of one trial of so many checkpoints. Called for trials that
        are to run only.
    iterations : callable
        Returns the number of iterations of one trial; 1 if it has none.
    """

    code: Callable[[], str] = str
    group: str = ""
    batchable: bool = False
    work: Callable[[int], Work] = lambda rows: Work()
    iterations: Callable[[], int] = lambda: 1


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """All of a trial but its seed and its checkpoints.

    There may be as many as trials: common parts are held once, and the spec is put
    together on request.

    Attributes
    ----------
    base : mapping
        The trial's spec without `seed`, `n_checkpoints` and the open parameters.
    names, point : tuple
        The open parameters and their values, JSON-able.
    digest : str
        Digest of all that determines the numbers, except the seed.
    batch_key : BatchKey
        The part that it shares with others of its batch.
    line : Line
        The line that it belongs to.
    """

    base: Mapping[str, Any]
    names: tuple[str, ...]
    point: tuple[Any, ...]
    digest: str
    batch_key: BatchKey = BatchKey()
    line: Line = Line()

    def __reduce__(self) -> tuple[Any, ...]:
        """Send a worker the spec and the digest, without the line and the batch key."""
        return Setting, (self.base, self.names, self.point, self.digest)

    @property
    def spec(self) -> dict[str, Any]:
        """Return the trial's spec without `seed` and `n_checkpoints`."""
        if not self.names:
            return dict(self.base)
        algorithm = self.base["algorithm"]
        opened = zip(self.names, self.point, strict=True)
        params = {**algorithm["params"], **dict(opened)}
        return {**self.base, "algorithm": {**algorithm, "params": params}}

    def identity(self, seed: int) -> str:
        """Return the identity of the trial of a seed."""
        return _sha(f"{self.digest}:{seed}")

    def trial(self, seed: int, n_checkpoints: int, phase: str = "sweep") -> Trial:
        """Return the trial of a seed, its spec not made yet."""
        text = f"{self.identity(seed)}:{n_checkpoints}:{self.batch_key.code()}"
        return Trial(self, seed, n_checkpoints, _sha(text), phase)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One run of one algorithm on one problem with one budget and one seed.

    It is small, for there may be 10^5 of them.

    Attributes
    ----------
    setting : Setting
        Shared with the trials of other seeds.
    seed, n_checkpoints : int
        The seed, and the number of rows of the trajectory.
    key : str
        Digest of identity, checkpoints and code; names the record in the store.
    phase : {"sweep", "tune", "report"}
        Its purpose in its line; a report has parameters chosen by other trials.
    """

    setting: Setting
    seed: int
    n_checkpoints: int
    key: str
    phase: str = "sweep"

    @property
    def spec(self) -> dict[str, Any]:
        """Return the resolved specification, JSON-able, made anew at every call.

        `dataset`, `loss`, `penalty`, `constraint`, `algorithm`, `budget`,
        `calibration`, `seed`, `n_checkpoints`; `task` where it is no fit.
        """
        open_ = {"seed": self.seed, "n_checkpoints": self.n_checkpoints}
        return {**self.setting.spec, **open_}

    @property
    def identity(self) -> str:
        """Return the digest of what determines the draws and the iterates.

        The spec without `n_checkpoints`, all parameters filled in, and the content
        of the dataset. It seeds the public and the noise streams.
        """
        return self.setting.identity(self.seed)

    @property
    def kind(self) -> Kind:
        """Return the key of trials that may share a batch."""
        return self.setting.batch_key.group, self.n_checkpoints

    @property
    def work(self) -> Work:
        """Return what it costs, by itself and together with others in a batch."""
        return self.setting.batch_key.work(self.n_checkpoints)

    @property
    def owner(self) -> str:
        """Return whose code runs it: a solver from outside the package, or empty."""
        return foreign(self.setting.base.get("algorithm", {}))

    @property
    def labels(self) -> dict[str, Any]:
        """Return its columns that are never in a key, panel, line and phase first."""
        line, tuned = self.setting.line, self.phase == "report"
        labels = {"panel": line.panel, "line": line.line, "phase": self.phase}
        flags = {"tuned": tuned, "measured": line.measured}
        return {**labels, **flags, "read": list(line.read)}

    def row(self, experiment: str) -> dict[str, Any]:
        """Return its line of the plan."""
        labels = {"experiment": experiment, **self.labels}
        return {"key": self.key, **labels, "spec": self.spec}


def _sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()
