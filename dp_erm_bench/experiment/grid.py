"""Settings of one algorithm with one budget: the points of a product of axes.

A value of an axis is checked and spelled once, not once per point: there may be 10^5
points, and the digest of each is put together from what is spelled already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import product
from typing import Any, NamedTuple

from dp_erm_bench.experiment.fingerprint import code_fingerprint
from dp_erm_bench.experiment.parameters import (
    Algorithm,
    Known,
    algorithm_of,
    known_algorithm,
    plain,
)
from dp_erm_bench.experiment.problem_specs import ProblemSpec
from dp_erm_bench.experiment.trials import BatchKey, Setting
from dp_erm_bench.plugins.names import identity, label, shipped

Axes = Mapping[str, Sequence[Any]]
Point = tuple[Any, ...]


class Digests(NamedTuple):
    """Digests of one point: of all parameters, and of those a batch must share."""

    setting: str
    group: str


class Grid:
    """The settings of an algorithm on a problem with a budget.

    Parameters
    ----------
    problem_spec : ProblemSpec
        Dataset and objective.
    algorithm : str
        Name of the algorithm; the pin of a file.
    params : mapping
        The fixed parameters, typed by `normalised`.
    budget : mapping
        `epsilon`, `delta`, `adjacency`, JSON-able.
    calibration : str
        How noise is fixed.

    Attributes
    ----------
    base : mapping
        A trial's spec without `seed`, `n_checkpoints` and open parameters.
    """

    def __init__(
        self,
        problem_spec: ProblemSpec,
        algorithm: str,
        params: Mapping[str, Any],
        budget: Mapping[str, Any],
        calibration: str,
    ) -> None:
        self.problem_spec, self.algorithm, self.params = problem_spec, algorithm, params
        fixed = {key: plain(value) for key, value in params.items()}
        self.base = {
            **problem_spec.spec,
            "algorithm": {
                "name": label(algorithm),
                "params": fixed,
                **shipped(algorithm),
            },
            "budget": budget,
            "calibration": calibration,
        }
        self._later = known_algorithm(algorithm).later
        # Of the JSON of a list that ends in the mapping of the parameters.
        head = [problem_spec.digest, identity(algorithm), budget, calibration]
        self._head = _json(head)[:-1]
        self._batch_keys: dict[str, BatchKey] = {}

    def check(self, axes: Axes) -> None:
        """Raise UsageError if the solver refuses a value of an axis."""
        first = self._first(axes)
        algorithm_of(self.algorithm, first)
        for key, values in axes.items():
            for value in values[1:]:
                algorithm_of(self.algorithm, {**first, key: value})

    def settings(self, axes: Axes) -> Iterator[Setting]:
        """Yield the setting of every point, the last axis fastest.

        Raises
        ------
        UsageError
            From a solver that checks parameters together; `check` has the others.
        """
        names, digests = tuple(axes), self._digests(axes)
        spelled = ([plain(value) for value in values] for values in axes.values())
        points = zip(product(*axes.values()), product(*spelled), digests, strict=True)
        for raw, point, found in points:
            batch_key = self._batch_keys.get(found.group) or self._new_batch_key(
                names, raw, found.group
            )
            yield Setting(self.base, names, point, found.setting, batch_key)

    def digest(self) -> str:
        """Return the digest of the fixed parameters' setting (`Setting.digest`).

        Raises
        ------
        UsageError
            If the solver refuses a parameter.
        """
        return next(self._digests({})).setting

    def _digests(self, axes: Axes) -> Iterator[Digests]:
        known = known_algorithm(self.algorithm)
        separate = known.separate and all(axes.values())
        return self._joined(known, axes) if separate else self._made(known, axes)

    def _first(self, axes: Axes) -> dict[str, Any]:
        return {**self.params, **{key: values[0] for key, values in axes.items()}}

    def _joined(self, known: Known, axes: Axes) -> Iterator[Digests]:
        """Yield the digests of all points from the spelled values of each axis."""
        full = algorithm_of(self.algorithm, self._first(axes)).full
        keys = sorted(full)
        pieces = [self._entry(key, full[key]) for key in keys]
        places = [keys.index(key) for key in axes]
        shared = [i for i, key in enumerate(keys) if known.kinds[key] != "value"]
        telling = [i for i in places if i in shared or keys[i] == "clip"]
        clip = "clip" in keys and keys.index("clip")
        unclipped = self._entry("clip", None)
        groups: dict[Point, str] = {}
        spelled = ([self._entry(k, plain(v)) for v in axes[k]] for k in axes)
        for point in product(*spelled):
            for place, piece in zip(places, point, strict=True):
                pieces[place] = piece
            told = tuple([pieces[i] for i in telling])
            if told not in groups:
                clipped = clip is not False and pieces[clip] != unclipped
                groups[told] = self._digest([pieces[i] for i in shared], clipped)
            yield Digests(self._digest(pieces), groups[told])

    def _made(self, known: Known, axes: Axes) -> Iterator[Digests]:
        """Yield the digests of all points, each from a solver of its own."""
        for point in product(*axes.values()):
            opened = dict(zip(axes, point, strict=True))
            made = algorithm_of(self.algorithm, {**self.params, **opened})
            full = [self._entry(key, made.full[key]) for key in sorted(made.full)]
            shape = [self._entry(key, made.shape[key]) for key in sorted(made.shape)]
            clipped = made.full.get("clip") is not None
            yield Digests(self._digest(full), self._digest(shape, clipped))

    def _entry(self, key: str, value: Any) -> str:
        """Return a parameter as JSON; nothing of a later one at its default."""
        at_default = key in self._later and value == self._later[key]
        return "" if at_default else f"{_json(key)}:{_json(value)}"

    def _digest(self, pieces: Sequence[str], *more: bool) -> str:
        tail = "".join(f",{_json(one)}" for one in more)
        pieces = list(filter(None, pieces)) if self._later else pieces
        text = f"{self._head},{{{','.join(pieces)}}}{tail}]"
        return sha256(text.encode()).hexdigest()

    def _new_batch_key(
        self, names: tuple[str, ...], point: Point, group: str
    ) -> BatchKey:
        known = known_algorithm(self.algorithm)
        batchable = getattr(known.made, "batchable", True)
        code = code_fingerprint(known.target)

        def work() -> float:
            return self._algorithm(names, point).work(self.problem_spec.problem)

        def iterations() -> int:
            return self._algorithm(names, point).iterations(self.problem_spec.problem)

        self._batch_keys[group] = BatchKey(code, group, batchable, work, iterations)
        return self._batch_keys[group]

    def _algorithm(self, names: tuple[str, ...], point: Point) -> Algorithm:
        opened = dict(zip(names, point, strict=True))
        return algorithm_of(self.algorithm, {**self.params, **opened})


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
