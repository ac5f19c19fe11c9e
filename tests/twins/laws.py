"""Tests of fit of a run's noise and samples to the law that is accounted."""

from unittest.mock import patch

import numpy as np
from scipy import stats

from dp_erm_bench.audit.statistic import _density_terms
from dp_erm_bench.contract.candidate import run_at
from dp_erm_bench.contract.problems import neighbours
from dp_erm_bench.problems.erm.oracles import DenseOracle
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.trust.twins.laplace_noisy_max import inside_chances, laplace_chances

PARTS = ("logistic", "l2", "none")
Z, TRIALS, ALONE = 3.0, 1500, 150
# Scores must not drown: they are of the size of their noise.
SOFT = 0.2
RARE = 1e-6
NORMAL = ("gaussian", "poisson_gaussian", "single_use", "objective")
DIRECTED = ("norm_laplace", "objective_pure")
SEEN_THROUGH = ("objective", "objective_pure")


def problem():
    return neighbours(Adjacency.REPLACE_ONE, PARTS, strength=1.0)[0][0]


def misfit(solver, name):
    """Return how the noise of a release departs from its law, empty if it does not."""
    if solver.batchable:
        runs = [one_run(solver, name, tuple(f"trial {i}" for i in range(TRIALS)))]
    else:
        runs = [one_run(solver, name, (f"trial {i}",)) for i in range(ALONE)]
    uses = min(len(run[0]) for run in runs)
    asked = [np.concatenate([run[0][i] for run in runs]) for i in range(uses)]
    told = [np.concatenate([run[1][i] for run in runs]) for i in range(uses)]
    _, _, release, scale, sums = runs[0]
    if not told:
        return "nothing is published"
    if hasattr(release, "winner") or isinstance(release, InsideNoisyMax):
        return of_winners(release, asked, told, scale)
    units = [
        (b.reshape(a.shape) - a) / np.where(scale > 0, scale, np.inf)
        for a, b in zip(asked, told, strict=True)
    ]
    kept = np.broadcast_to(scale > 0, units[0].shape[1:])
    return of_units([unit[:, kept] for unit in units], release.law().name) or (
        of_samples(sums, release.rate) if hasattr(release, "rate") else ""
    )


def one_run(solver, name, identities):
    """Queries, answers, the release, its scale (k,) as declared, and the samples."""
    data, batch = problem(), [solver] * len(identities)
    z = SOFT if name == "select" else Z
    run = run_at(data, batch, z=z, identities=identities)
    asked, told, sums = [], [], []
    honest = {release.name: release for release in (*run.shares, *run.releases)}[name]
    scale = run.mechanisms[name].scale[0].copy()

    def hear(query, publish):
        answer = publish()
        if query.name == name:
            # Per coordinate: numbers are told with the sensitivity of theirs.
            asked.append(query.value.copy())
            told.append(np.array(answer))
            if not hasattr(honest, "winner") and query.value.shape[1] == 1:
                ratio = scale.max() / np.max(honest.sensitivity)
                unit = ratio * query.sensitivity
                asked[-1], told[-1] = asked[-1] / unit, told[-1][:, None] / unit
        return answer

    for mechanism in run.mechanisms.values():
        mechanism.intercept = hear
    objective = "objective" in honest.law().name
    run.mechanisms.intercept = hear
    if objective:
        run.mechanisms[name].intercept = None
    with sampled(sums):
        last = run.iterates()[-1]
    if objective:
        modulus = run.solver.modulus(data)
        noise = np.array([_density_terms(data, modulus, w)[0] for w in last])
        asked, told = [np.zeros_like(noise)], [noise]
    single = not hasattr(honest, "winner") and asked and asked[0].shape[1] == 1
    return asked, told, honest, np.ones(1) if single else scale, sums


def sampled(sums):
    """Write down which records are summed."""
    plain = DenseOracle.record_sum

    def listening(self, trial, records, clip):
        sums.append((trial, frozenset(np.asarray(records).tolist())))
        return plain(self, trial, records, clip)

    return patch.object(DenseOracle, "record_sum", listening)


def of_units(units, kind):
    first = units[0]
    if kind in DIRECTED and first.shape[1] > 1:
        norms = np.linalg.norm(first, axis=1)
        chance = stats.kstest(norms, stats.gamma(first.shape[1]).cdf).pvalue
        part = first[:, 0] / np.where(norms > 0, norms, np.inf)
        law = stats.beta(0.5, (first.shape[1] - 1) / 2)
        chance = min(chance, stats.kstest(part**2, law.cdf).pvalue)
        chance = min(chance, stats.binomtest(int((part > 0).sum()), part.size).pvalue)
    else:
        law = stats.norm if kind in NORMAL else stats.laplace
        chance = stats.kstest(first.ravel(), law.cdf).pvalue
    if not chance > RARE:
        return "noise of another law"
    # Under the noise on the answer a minimiser's own noise is seen to a few digits.
    places = np.round(first, 3) if kind in SEEN_THROUGH else first[:, :1]
    if len(np.unique(places, axis=0)) < len(first):
        return "trials share their noise"
    for other in units[1:]:
        if abs(np.corrcoef(first[:, 0], other[:, 0])[0, 1]) > 0.3:
            return "uses share their noise"
    return ""


def of_winners(release, asked, told, scale):
    if isinstance(release, InsideNoisyMax):
        # The pair's scores are |g_j| / sensitivity: no penalty at w = 0.
        chances = inside_chances(np.abs(asked[0][:1]) / scale)
    elif isinstance(release, LaplaceNoisyMax):
        chances = laplace_chances(asked[0][:1] / scale)
    else:
        weights = np.exp((asked[0][:1] - asked[0][:1].max()) / scale)
        chances = weights / weights.sum()
    expected = chances[0] / chances[0].sum()
    counts = np.bincount(told[0], minlength=expected.size)
    if not stats.chisquare(counts, expected * counts.sum()).pvalue > RARE:
        return "winners of another law"
    # The second answer has nearly the same law, and is independent.
    again, rate = int((told[0] == told[1]).sum()), float(np.square(expected).sum())
    if abs(again / told[0].size - rate) > 0.1:
        return "uses share their noise"
    return ""


def of_samples(sums, rate):
    """Return how samples differ from independent coins."""
    if rate == 1.0:
        return ""
    if not sums:
        return "all records are used"
    n, trials = problem().n, {}
    for trial, records in sums:
        trials.setdefault(trial, []).append(records)
    sizes = np.bincount([len(records) for _, records in sums], minlength=n + 1)
    expected = stats.binom(n, rate).pmf(np.arange(n + 1)) * sizes.sum()
    kept = expected > 5
    pooled = (
        [*sizes[kept], sizes[~kept].sum()],
        [*expected[kept], expected[~kept].sum()],
    )
    if not stats.chisquare(*pooled).pvalue > RARE:
        return "batches of another law"
    shared = [len(steps[0] & steps[1]) for steps in trials.values()]
    off = np.mean(shared) - n * rate**2
    if abs(off) > 6 * np.sqrt(n * rate**2 / len(shared)):
        return "the samples of steps are not independent"
    return ""
