"""Public stand-ins for secrets in replays: samples, coins, orders, linear terms.

A record's coin falls by a public pattern, in which it is present or not. The released
value of a perturbed objective is the minimiser w of F(w) + (ridge/2) norm2(w)^2 +
b.w / n, b being secret: the run on D' is told the b' that has the same w there (step 1
of ``privacy.objective``). b' - b is the change of the gradients' sum at w, which the
declared sensitivity bounds; all that is computed from w is equal.
"""

from __future__ import annotations

import collections
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.contract.families import CORNERS, Neighbours
from dp_erm_bench.problems.erm.perturbed import minimise_perturbed
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.base import Seed
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeMechanism
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.nested import NestedMechanism
from dp_erm_bench.releases.sampling import Batch, Indices, SamplingMechanism
from dp_erm_bench.releases.single_use_gaussian import SingleUseMechanism
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.run import Run
from dp_erm_bench.trust.replay import Log

Array = NDArray[np.float64]
NEAR = 1e-9
"""Distance to the exact minimiser that is sought."""
EQUAL = 1e-5
"""Allowed difference of published minimisers, which are solved to a tolerance."""


def spread_of(
    release: InsideNoisyMax, gradient: Array, score: Callable[[Array], Array]
) -> float:
    """Return max_i s_i / min_j s_j for the slopes of scores, times sensitivities.

    A score is the absolute value of an affine function less a constant: far out it is a
    line, and its slope is read off there.
    """
    size = np.broadcast_to(np.asarray(release.sensitivity), gradient.shape)
    far = 1e3 * (1.0 + np.abs(gradient))
    slopes = np.abs(score(gradient + 2.0 * far) - score(gradient + far)) / far
    moved = slopes * size
    moved = np.where(np.isfinite(moved) & (moved > 0.0), moved, np.nan)
    if np.isnan(moved).all():
        return 1.0
    return float(np.nanmax(np.nanmax(moved, axis=1) / np.nanmin(moved, axis=1)))


def public_samples(
    mechanism: SamplingMechanism,
    record: int,
    turned: bool,
    done: collections.Counter[tuple[str, int]],
) -> Callable[[int, int, int], Batch]:
    """Return a sampler for a mechanism, with the changed record by a public pattern.

    Samples of coins are the record alone, all records, or as the coins fall. Each has
    a positive probability, so that a proof for all samples covers these. Of a sample
    of fixed size the record takes the place of another one.

    Parameters
    ----------
    mechanism : SamplingMechanism
    record : int
        Row of the record in which the neighbours differ.
    turned : bool
        Whether it is present exactly where the pattern says that it is not.
    done : Counter
        The samples so far of each release and trial, in all of repeated runs.
    """
    plain, name = mechanism.sample, mechanism.release.name
    fixed = isinstance(mechanism, FixedSizeMechanism)
    held = placed if fixed else tossed

    def sample(trial: int, n: int, steps: int) -> Batch:
        plain(trial, n, steps)
        samples = []
        for use in range(done[name, trial], done[name, trial] + steps):
            rng = np.random.default_rng([zlib.crc32(name.encode()), trial, use])
            is_in = present(name, trial, use) != turned
            samples.append(held(rng, mechanism.rate, n, record, is_in))
        done[name, trial] += steps
        offsets = np.cumsum([0, *(one.size for one in samples)])
        return np.concatenate(samples).astype(np.int64), offsets.astype(np.int64)

    return sample


def tossed(
    rng: np.random.Generator, rate: float, n: int, record: int, is_in: bool
) -> Indices:
    """Return a sample of coins that holds the record or does not."""
    chosen = rng.integers(4)
    held = rng.random(n) < (0.0, 1.0, rate, rate)[chosen]
    held[record] = is_in
    return np.flatnonzero(held)


def placed(
    rng: np.random.Generator, rate: float, n: int, record: int, is_in: bool
) -> Indices:
    """Return a sample of fixed size, the record at a place of another one or not."""
    size = round(rate * n)
    others = np.delete(np.arange(n), record)[rng.permutation(n - 1)]
    place = int(rng.integers(size))
    if size == n:
        return np.insert(others, place, record)
    held = others[:size]
    if is_in:
        held[place] = record
    return held


def present(name: str, trial: int, use: int) -> bool:
    """Return whether the exchanged record is in a sample of D."""
    # Not a checksum, which is linear: two names would get equal or opposite coins.
    return sha256(f"{name}/{trial}/{use}".encode()).digest()[0] & 1 == 1


def public_order(
    mechanism: SingleUseMechanism, record: int, family: str
) -> Callable[[int], Indices]:
    """Return an order of the records, for both sides, with a public place of one.

    It is the last one read at the extremes. In other families it is not read at all in
    one of four; else it is anywhere among those that are.
    """
    release = mechanism.release
    m, n = release.fresh, release.records

    def order(trial: int) -> Indices:
        seed = zlib.crc32(f"{release.name}/{family}/{n}".encode())
        rng = np.random.default_rng([seed, trial])
        others = rng.permutation(n)
        others = others[others != record]
        place = m - 1 if family.startswith(CORNERS) else int(rng.integers(m))
        if not family.startswith(CORNERS) and seed % 4 == 0 and m < n:
            place = int(rng.integers(m, n))
        return np.insert(others, place, record)

    return order


def public_coins(family: str, mechanism: NestedMechanism) -> Seed:
    """Return seeds of what mechanisms draw that make others, equal on both sides.

    These are the coins that stop repeated runs, and the kinds of a run's steps.
    """
    run = mechanism.identity.partition("/")[2]
    return stream_seeds([f"{family}/{run}" if run else family], "number of runs")


@dataclass
class Matched:
    """The term b' and the violation by the declaration.

    Attributes
    ----------
    term : array of shape (B, p)
    ratio : float
        norm2(b' - b) / declared sensitivity.
    complaint : str
        Empty if the curvature is charged.
    """

    term: Array
    ratio: float
    complaint: str = ""


def matched(
    neighbours: Neighbours, run: Run, terms: Sequence[Array], log: Log
) -> list[Matched]:
    """Return the terms of D' for the terms of a run on D."""
    releases = [mechanism.release for mechanism in run.mechanisms.values()]
    secret = [release for release in releases if release.secret]
    # The first value that was computed from the minimiser.
    answer = log.exchanges[0].query.value if log.exchanges else log.iterates[-1]
    return [
        _of_term(neighbours, release, term, np.atleast_2d(answer))
        for release, term in zip(secret, terms, strict=False)
    ]


def _of_term(
    neighbours: Neighbours, release: Any, term: Array, answer: Array
) -> Matched:
    problem, other = neighbours.first, neighbours.second
    # A curvature is log(1 + beta / (n modulus)).
    scale, own = problem.record_smoothness / problem.n, problem.penalty.strong_convexity
    grown = float(np.expm1(release.curvature))
    claimed = scale / grown if grown > 0.0 else np.inf
    ridges = [_ridge(problem, b, w) for b, w in zip(term, answer, strict=False)]
    modulus = next((ridge + own for ridge in ridges if ridge is not None), claimed)
    complaint = ""
    if claimed > modulus * (1 + 1e-6):
        complaint = (
            f"release {release.name} charges a curvature of {release.curvature:.3g}; "
            f"that of its objective is {np.log1p(scale / modulus):.3g}"
        )
    if not np.isfinite(modulus):
        return Matched(term, 0.0, complaint or "release charges no curvature")
    moved = np.empty_like(term)
    for b, row in zip(term, moved, strict=True):
        w = minimise_perturbed(problem, b / problem.n, max(0.0, modulus - own), NEAR).w
        row[:] = b + problem.n * (problem.gradient(w) - other.gradient(w))
    change = float(np.linalg.norm(moved - term, axis=1).max())
    return Matched(moved, change / float(np.max(release.sensitivity)), complaint)


def _ridge(problem: ERMProblem, b: Array, w: Array) -> float | None:
    """Return the ridge for which w is the minimiser, None if several may be."""
    plain = problem.penalty.quadratic and not problem.constraint.bounded
    size = float(w @ w)
    if not plain or size == 0.0:
        return None
    slope = problem.gradient(w) + problem.penalty.strong_convexity * w + b / problem.n
    ridge = -float(slope @ w) / size
    rest = np.linalg.norm(slope + ridge * w)
    near = rest <= 1e-6 * (np.linalg.norm(b) / problem.n + 1e-6)
    return ridge if near and ridge > -1e-9 else None
