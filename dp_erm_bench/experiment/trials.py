"""A trial: what is computed, the identity of its draws, the key of its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from dp_erm_bench.registry import foreign


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One run of one algorithm on one problem with one budget and one seed.

    Attributes
    ----------
    spec : dict
        Resolved and JSON-able: `dataset`, `loss`, `penalty`, `constraint`,
        `algorithm`, `budget`, `calibration`, `seed`, `n_checkpoints`.
    identity : str
        Digest of what determines the draws and the iterates: the spec without
        `n_checkpoints`, all parameters filled in, and the content of the dataset.
        It seeds the public and the noise streams.
    key : str
        Digest of identity, checkpoints and code; names the record in the store.
    """

    spec: dict[str, Any]
    identity: str
    key: str


@dataclass(frozen=True, eq=False)
class BatchKey:
    """What settings that may share a batch have in common.

    Parameters
    ----------
    code : callable
        Returns the fingerprint of the code that computes the trials.
    group : str
        Trials may share a batch if this is equal.
    batchable : bool
        Whether more than one trial may run at once.
    work : callable
        Returns the rough cost of one trial; 1e8 is about a second. It is asked for
        what is to do only.
    iterations : callable, optional
        Returns the number of iterations of one trial; 1 if it has none.
    """

    code: Callable[[], str]
    group: str
    batchable: bool
    work: Callable[[], float]
    iterations: Callable[[], int] = lambda: 1


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """All of a trial but its seed and its checkpoints.

    There may be as many as trials: what they share is held once, and the spec is
    put together when it is asked for.

    Attributes
    ----------
    base : mapping
        The trial's spec without `seed`, `n_checkpoints` and the open parameters.
    names, point : tuple
        The open parameters and their values, JSON-able.
    digest : str
        Digest of what determines the numbers, the seed excepted.
    batch_key : BatchKey
        What it shares with others of its batch.
    """

    base: Mapping[str, Any]
    names: tuple[str, ...]
    point: tuple[Any, ...]
    digest: str
    batch_key: BatchKey

    @property
    def spec(self) -> dict[str, Any]:
        """Return the trial's spec without `seed` and `n_checkpoints`."""
        if not self.names:
            return dict(self.base)
        algorithm = self.base["algorithm"]
        opened = zip(self.names, self.point, strict=True)
        params = {**algorithm["params"], **dict(opened)}
        return {**self.base, "algorithm": {**algorithm, "params": params}}

    @property
    def group(self) -> str:
        """Return what is equal for trials that may share a batch."""
        return self.batch_key.group

    @property
    def work(self) -> float:
        """Return the rough cost of one trial; 1e8 is about a second."""
        return self.batch_key.work()

    @property
    def batchable(self) -> bool:
        """Return whether more than one trial may run at once."""
        return self.batch_key.batchable

    def identity(self, seed: int) -> str:
        """Return the identity of the trial of a seed."""
        return _sha(f"{self.digest}:{seed}")

    def key(self, seed: int, n_checkpoints: int) -> str:
        """Return the key of the trial of a seed."""
        return _sha(f"{self.identity(seed)}:{n_checkpoints}:{self.batch_key.code()}")

    def trial(self, seed: int, n_checkpoints: int) -> Trial:
        """Return the trial of a seed."""
        spec = {**self.spec, "seed": seed, "n_checkpoints": n_checkpoints}
        return Trial(spec, self.identity(seed), self.key(seed, n_checkpoints))

    def planned(self, seed: int, n_checkpoints: int, labels: Labels) -> Planned:
        """Return the trial of a seed with its labels, its spec not made yet."""
        key = self.key(seed, n_checkpoints)
        return Planned(self, seed, n_checkpoints, key, labels)


class Labels(NamedTuple):
    """The columns of a trial that are never in a key.

    The phase is `tune`, `report` or `sweep`; `tuned` tells whether parameters were
    chosen by looking at other trials, `measured` whether one of them was given in a
    unit that is computed from the data.
    """

    panel: str
    line: str
    phase: str
    tuned: bool = False
    measured: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A trial that a line wants; small, for there may be 10^5 of them.

    Attributes
    ----------
    setting : Setting
        Where it comes from.
    seed, n_checkpoints : int
        What the setting leaves open.
    key : str
        Of the trial.
    labels : Labels
        Its line, shared with the other trials of the line.
    """

    setting: Setting
    seed: int
    n_checkpoints: int
    key: str
    labels: Labels

    @property
    def trial(self) -> Trial:
        """Return what is run, made anew at every call."""
        return self.setting.trial(self.seed, self.n_checkpoints)

    @property
    def owner(self) -> str:
        """Return whose code runs it: a solver from outside the package, or empty."""
        return foreign(self.setting.base.get("algorithm", {}))

    def row(self, experiment: str) -> dict[str, Any]:
        """Return its line of the plan."""
        open_ = {"seed": self.seed, "n_checkpoints": self.n_checkpoints}
        labels = {"experiment": experiment, **self.labels._asdict()}
        return {"key": self.key, **labels, "spec": {**self.setting.spec, **open_}}


def _sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()
