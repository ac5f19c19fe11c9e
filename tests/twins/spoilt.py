"""Mechanisms that do not do what they declare."""

import numpy as np

from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.objective_gaussian import ObjectiveMechanism
from dp_erm_bench.releases.streams import stream_seeds

GLOBAL = {
    "gaussian": np.random.standard_normal,
    "poisson_gaussian": np.random.standard_normal,
    "objective": np.random.standard_normal,
    "single_use": np.random.standard_normal,
    "bounded_range": lambda shape: np.random.gumbel(size=shape),
}


def noisy(mechanism, noise, seeds=None, restart=False, drawn=None):
    """Let a mechanism add ``noise(unit, scale)``, of other streams or places."""
    release = mechanism.release

    def unit_noise(uses, size):
        mechanism.spend(uses)
        start = 0 if restart else mechanism._drawn
        mechanism._drawn = start + uses * size
        scale = mechanism.scale[:, None, :]
        if not scale.any():
            return np.zeros((len(scale), uses, size))
        given = mechanism.seeds if seeds is None else seeds(mechanism.seeds)
        draw = drawn or (
            lambda shape: np.stack([release.unit(s, start, *shape[1:]) for s in given])
        )
        unit = np.broadcast_to(draw((len(scale), uses, size)), (len(scale), uses, size))
        # A weight of zero adds nothing, whatever is drawn.
        return np.divide(noise(unit, scale), np.where(scale > 0, scale, np.inf))

    mechanism.unit_noise = unit_noise
    if isinstance(release, NoisyMax):
        mechanism._pick_winners = lambda scores: (
            scores + mechanism.scale * unit_noise(1, scores.shape[1])[:, 0]
        ).argmax(axis=1)


def scaled(unit, scale):
    return unit * scale


def half(mechanism):
    noisy(mechanism, lambda unit, scale: unit * scale / 2)


def located(mechanism):
    """As numpy.random.laplace(scale): the scale is taken for the location."""
    noisy(mechanism, lambda unit, scale: unit + scale)


def one_byte(mechanism):
    """As a generator that is seeded from one byte before each draw."""
    seeds = {b: stream_seeds([str(b)], "byte")[0] for b in range(256)}
    noisy(
        mechanism,
        scaled,
        lambda own: [seeds[int(s[0]) % 256] for s in own],
        restart=True,
    )


def reused(mechanism):
    noisy(mechanism, scaled, restart=True)


def from_a_global_generator(mechanism):
    kind = mechanism.release.law().name

    def laplace(shape):
        return np.random.laplace(size=shape)

    def directed(shape):
        normal = np.random.standard_normal(shape)
        norms = np.random.gamma(shape[-1], size=(*shape[:-1], 1))
        return normal * norms / np.linalg.norm(normal, axis=-1, keepdims=True)

    other = directed if kind in ("norm_laplace", "objective_pure") else laplace
    noisy(mechanism, scaled, drawn=GLOBAL.get(kind, other))


def leaky(mechanism):
    """Asks for the noisy answer, and returns the exact one."""

    def call(self, *args, **keys):
        told = super(made, self).__call__(*args, **keys)
        if isinstance(self, ObjectiveMechanism):
            return np.zeros_like(told)
        if self.release.selects:
            gradient, score = args
            return score(gradient).argmax(axis=1)
        return self.query(*args, **keys).reshape(told.shape).copy()

    made = _renamed(mechanism, call)


def twice(mechanism):
    """Publishes two answers in place of one."""

    def call(self, *args, **keys):
        super(made, self).__call__(*args, **keys)
        return super(made, self).__call__(*args, **keys)

    made = _renamed(mechanism, call)


def _renamed(mechanism, call):
    made = type("Spoilt", (type(mechanism),), {"__call__": call})
    mechanism.__class__ = made
    return made


def lazily(mechanism, spoil):
    """Spoil a mechanism when it is first called: whoever listens came before."""
    kept = type(mechanism)

    def call(self, *args, **keys):
        self.__class__ = kept
        spoil(self)
        return self(*args, **keys)

    _renamed(mechanism, call)


# Samples that are not Poisson's.


def never(mechanism):
    mechanism.rate = 1.0


def fixed(mechanism):
    """Batches of a fixed size, without replacement."""

    def sample(trial, n, steps):
        draw(trial, n, steps)  # it is the law that is wrong, not the count
        state["step"] += 1
        size = round(mechanism.rate * n)
        rng = np.random.default_rng([trial, state["step"]])
        return np.sort(rng.permutation(n)[:size]), np.array([0, size])

    draw, state = mechanism.sample, {"step": 0}
    mechanism.sample = sample


def shuffled(mechanism):
    """The batches of a random order of the records, pass by pass."""
    draw, orders, places = mechanism.sample, {}, {}

    def sample(trial, n, steps):
        draw(trial, n, steps)
        size = round(mechanism.rate * n)
        at = places.get(trial, 0)
        if at % n == 0:
            orders[trial] = np.random.default_rng([trial, at]).permutation(n)
        places[trial] = at + size
        return np.sort(orders[trial][at % n : at % n + size]), np.array([0, size])

    mechanism.sample = sample


def same_sample(mechanism):
    """One Poisson sample for all steps."""
    draw, seen = mechanism.sample, {}

    def sample(trial, n, steps):
        fresh = draw(trial, n, steps)
        return seen.setdefault(trial, fresh)

    mechanism.sample = sample


# Passes that do not read each record once, in a secret order.


def again(mechanism):
    """Each step reads its record and that of the next one."""
    draw, m = mechanism.next_records, mechanism.release.fresh

    def read(trial, count):
        part = draw(trial, count)
        at = sum(one.size for one in mechanism.handed[trial])
        order = mechanism.permutation(trial)
        return np.append(part, order[at % m])

    mechanism.next_records = read


def ordered(mechanism):
    """Whoever has the dataset knows the order."""
    mechanism.permutation = lambda trial: np.arange(mechanism.release.records)


def silent(mechanism):
    """A step without a record publishes zero as it is."""

    def quiet(value):
        told = publish(value)
        return told if value.any() else value.copy()

    publish = mechanism.publish
    mechanism.publish = quiet
