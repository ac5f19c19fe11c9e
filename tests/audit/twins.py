"""Deliberately broken solvers, which the statistical audit must detect."""

import dataclasses

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.random_cd import RandomCD
from dp_erm_bench.solvers.sgd import SGD


def quieter(kind, factor, *names):
    """A solver class whose releases (all, or those named) have less noise."""

    class Quieter(kind):
        def releases(self, problem, adjacency, schedule):
            for r in super().releases(problem, adjacency, schedule):
                low = r.sensitivity * factor
                hit = not names or r.name in names
                yield dataclasses.replace(r, sensitivity=low) if hit else r

    return Quieter


class OtherAdjacency(RandomCD):
    """Has the sensitivity of zeroing a record whatever the relation is."""

    def releases(self, problem, adjacency, schedule):
        return super().releases(problem, Adjacency.ZERO_OUT, schedule)


class SelectOnly(GreedyCD):
    """The selections alone: a primitive."""

    def releases(self, problem, adjacency, schedule):
        yield next(super().releases(problem, adjacency, schedule))

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        rule, M = self.greedy_rule(), oracle.problem.smoothness.columns
        infinite = np.full(oracle.w.shape, np.inf)
        yield oracle.w
        for _ in checkpoints[1:]:
            mechanisms["select"](
                oracle.gradient(infinite),
                lambda g: rule.scores(g, oracle.w, M, oracle.problem.penalty),
            )
            yield oracle.w


class MeasureOnly(GreedyCD):
    """The Laplace measurements alone, of the first coordinate."""

    def releases(self, problem, adjacency, schedule):
        yield list(super().releases(problem, adjacency, schedule))[1]

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        j = np.zeros(oracle.batch, dtype=np.int64)
        infinite = np.full(oracle.batch, np.inf)
        yield oracle.w
        for _ in checkpoints[1:]:
            mechanisms["measure"](oracle.coordinate_gradient(j, infinite), coordinate=j)
            yield oracle.w


class NeverSamples(SGD):
    """Is charged for Poisson samples, takes them, and sums over all records."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        mechanism = mechanisms["gradient"]
        draw = mechanism.sample

        def everybody(trial, n, steps):
            draw(trial, n, steps)
            return np.tile(np.arange(n), steps), np.arange(steps + 1) * n

        mechanism.sample = everybody
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)


class SameSample(SGD):
    """Draws one sample and uses it in every step."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        mechanism, seen = mechanisms["gradient"], {}
        draw = mechanism.sample

        def again(trial, n, steps):
            return seen.setdefault(trial, draw(trial, n, steps))

        mechanism.sample = again
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)


class SameNoise(RandomCD):
    """Adds the same noise in every step."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        mechanism = mechanisms["measure"]
        draw = mechanism.unit_noise

        def again(uses, size):
            mechanism._drawn = 0
            return draw(uses, size)

        mechanism.unit_noise = again
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)


class Leak(RandomCD):
    """Moves along the raw derivative, after asking for the noisy one."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        infinite = np.full(oracle.batch, np.inf)
        yield oracle.w
        for j in schedule.T:
            gradient = oracle.coordinate_gradient(j, infinite)
            mechanisms["measure"](gradient, coordinate=j)
            oracle.prox_step(j, gradient, step=np.ones(oracle.batch))
            yield oracle.w


class ChargedForOne(GreedyCD):
    """Declares the selections as one, and asks for fresh ones all the same."""

    def releases(self, problem, adjacency, schedule):
        for r in super().releases(problem, adjacency, schedule):
            yield dataclasses.replace(r, times=1) if r.name == "select" else r

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        mechanism = mechanisms["select"]
        mechanism.spend = lambda uses: None
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)


class PrivateStep(RandomCD):
    """Takes its step size from the data."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        size = 1.0 + oracle.problem.dataset.X[0, 0]
        object.__setattr__(self, "step", self.step * size)
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)
