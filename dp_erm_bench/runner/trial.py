"""A trial: what is computed, the identity of its draws, the key of its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any


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


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """All of a trial but its seed and its checkpoints.

    Attributes
    ----------
    spec : mapping
        The trial's spec without `seed` and `n_checkpoints`.
    digest : str
        Digest of what determines the numbers, the seed excepted.
    code : str
        Fingerprint of the code that computes them.
    group : str
        Trials may share a batch if this is equal.
    work : float
        Rough cost of one trial; 1e8 is about a second.
    batchable : bool
        Whether more than one trial may run at once.
    """

    spec: Mapping[str, Any]
    digest: str
    code: str
    group: str
    work: float
    batchable: bool = True

    def trial(self, seed: int, n_checkpoints: int) -> Trial:
        """Return the trial of a seed."""
        identity = _sha(f"{self.digest}:{seed}")
        key = _sha(f"{identity}:{n_checkpoints}:{self.code}")
        spec = {**self.spec, "seed": seed, "n_checkpoints": n_checkpoints}
        return Trial(spec, identity, key)


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A trial with its labels: the columns that are never in a key.

    Attributes
    ----------
    trial : Trial
        What is run.
    setting : Setting
        Where it comes from.
    panel, line, phase : str
        Labels; the phase is `tune`, `report` or `sweep`.
    tuned : bool
        Whether its parameters were chosen by looking at other trials.
    measured : bool
        Whether one of them was given in a unit that is computed from the data.
    """

    trial: Trial
    setting: Setting
    panel: str
    line: str
    phase: str
    tuned: bool = False
    measured: bool = False

    def row(self, experiment: str) -> dict[str, Any]:
        """Return its line of the plan."""
        return {
            "key": self.trial.key,
            "experiment": experiment,
            "panel": self.panel,
            "line": self.line,
            "phase": self.phase,
            "tuned": self.tuned,
            "measured": self.measured,
            "spec": self.trial.spec,
        }


def _sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()
