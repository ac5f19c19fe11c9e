"""Test releases of kinds from outside the package.

They are measured, and labelled if they have no twin (second implementation).
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from dp_erm_bench.contract import outside
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.outside import (
    FALSE_ALARM,
    KNOWN_AT,
    Call,
    Measured,
    is_foreign,
    law_refutation,
    noises_of,
    releases_without_twin,
)
from dp_erm_bench.contract.suite import EXEMPT, FAILS, OK
from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels import draws
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.gaussian import Gaussian, GaussianLaw
from dp_erm_bench.releases.laplace import Laplace, LaplaceLaw
from dp_erm_bench.releases.law import Law, PureLaw
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian, PoissonGaussianLaw
from dp_erm_bench.releases.renyi_filter import RenyiFilter
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect
from dp_erm_bench.trust.twins.base import twin_of
from tests.contract.corpus import BASES
from tests.contract.own import check_named, few
from tests.loops import each
from tests.privacy.made import built_in, release_of

CHECK = "releases_of_outside_are_measured"
KINDS = '''
from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.base import Mechanism, Release
from dp_erm_bench.releases.gaussian import GaussianLaw
from dp_erm_bench.releases.l1_laplace import L1Laplace
from dp_erm_bench.releases.laplace import LaplaceLaw
from dp_erm_bench.releases.law import PureLaw
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.trust.twins.gaussian import GaussianTwin

Ours = Gaussian


class Numbers(Mechanism):
    """Adds noise that depends on the scale, drawn from uniforms, to a number."""

    def publish(self, value):
        noise = self.unit_noise(1, 4)[:, 0]
        return value + self.shaped(*noise.T)

    def query(self, value):
        return value[:, None]


class Staircase(Release):
    """Noise of Geng and Viswanath (2016), of level 1 / z; the scale is z D."""

    class mechanism(Numbers):
        def shaped(self, sign, geometric, flat, coin):
            size, z = self.release.sensitivity, float(self.scale.max())
            z = z / float(np.max(size))
            gamma = 1 / (1 + np.exp(0.5 / z))
            steps = np.floor(-z * np.log1p(-geometric))
            near = gamma / (gamma + (1 - gamma) * np.exp(-1 / z))
            part = np.where(
                coin < near, gamma * flat, gamma + (1 - gamma) * flat
            )
            return np.sign(sign - 0.5) * (steps + part) * float(np.max(size))

    proof = PureLaw
    draw = staticmethod(uniforms)


class Whole(Release):
    """Two-sided geometric noise on a count that moves by one."""

    class mechanism(Numbers):
        def shaped(self, one, other, *_):
            z = float(self.scale.max())
            return np.floor(-z * np.log1p(-one)) - np.floor(-z * np.log1p(-other))

    proof = PureLaw
    draw = staticmethod(uniforms)
'''
VECTOR = 'yield Gaussian("slope", size, self.rounds)'
COUNT = """
            many = (problem.dataset.y > 0.0).sum(dtype=float)
            many = mechanisms["count"](np.full(oracle.batch, many))
"""
BEGINNING = "        yield oracle.w\n        for k"


def described(base, text, *changes):
    """A solver of the corpus whose file has kinds of its own."""
    text = BASES[base].replace("\nKEPT = {}\n", f"{KINDS}\n{text}\nKEPT = {{}}\n")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def vector(text, made="Mine"):
    """Descent along sums that a kind of one's own publishes."""
    kind = f"class Mine(Ours):\n    {text}\n" if made == "Mine" else text
    return described("descent", kind, (VECTOR, VECTOR.replace("Gaussian", made)))


def number(kind, text=""):
    """Descent that publishes a count, too."""
    one = "adjacency.of_sum(1.0, signed=False)"
    return described(
        "descent",
        text,
        (
            VECTOR,
            f'yield {kind}("count", {one}, min(1, self.rounds))\n        {VECTOR}',
        ),
        (
            BEGINNING,
            BEGINNING.replace(
                "        for", f"        if self.rounds:{COUNT}        for"
            ),
        ),
    )


NORMAL = """
@dataclass(frozen=True, eq=False)
class {name}(Release):
    "Normal noise of a precision, the inverse of its square."

    mechanism = AdditiveMechanism
    draw = staticmethod(draws.gaussian)
    vectors = True
    precision: float = 1.0

    def unit(self, seed, start, uses, size):
        return super().unit(seed, start, uses, size) / np.sqrt(self.precision)

    def law(self):
        return GaussianLaw(self.times, self.weight / np.sqrt(self.precision){more})
"""
LAPLACE = """
class Entries(Release):
    mechanism = {mechanism}
    proof = LaplaceLaw
    draw = staticmethod(draws.laplace)
    vectors = True
"""
L1 = (
    '        yield Gaussian("slope", size',
    '        yield Entries("slope", size * np.sqrt(problem.p)',
)
SOUND = {
    "normal noise by its precision": vector(
        NORMAL.format(name="Precise", more=""), "Precise"
    ).replace(
        "self.rounds)\n\n    def it", "self.rounds, precision=0.3)\n\n    def it"
    ),
    "a subclass that changes nothing": vector("pass"),
    "more noise than its law says": vector(
        "draw = staticmethod(lambda *place: 1.2 * draws.gaussian(*place))"
    ),
    "a staircase on a count": number("Staircase"),
    "whole noise on a count": number("Whole"),
    "Laplace entries at the l1 sensitivity": described(
        "descent",
        "from dp_erm_bench.releases.l1_laplace import L1Mechanism\n"
        + LAPLACE.format(mechanism="L1Mechanism"),
        L1,
    ),
    "a selection": described(
        "selected",
        "class Mine(NoisyMax):\n    pass\n",
        ('yield NoisyMax("', 'yield Mine("'),
    ),
    "a sampled sum": described(
        "sampled",
        "class Mine(PoissonGaussian):\n    pass\n",
        ("yield PoissonGaussian(", "yield Mine("),
    ),
    "noise in the objective": described(
        "bent",
        "class Mine(ObjectiveGaussian):\n    pass\n",
        ("yield ObjectiveGaussian(", "yield Mine("),
    ),
}
TWIN = "    twin = GaussianTwin\n"
HALF = "draw = staticmethod(lambda *place: draws.gaussian(*place) / 2)"
LAW = "def law(self):\n        return "
BROKEN = {
    "half of the noise": vector(HALF),
    "half of the noise, called Gaussian": vector(
        f"class Gaussian(Ours):\n    {HALF}\n", "Gaussian"
    ),
    "half of the noise, with the twin of another": vector(
        f"twin = GaussianTwin\n    {HALF}"
    ),
    "half of the noise in units": vector(
        "def unit(self, *place):\n        return Ours.unit(self, *place) / 2"
    ),
    "half of the noise in a mechanism": vector(
        "class mechanism(AdditiveMechanism):\n"
        "        def publish(self, value, coordinate=None):\n"
        "            return (value + super().publish(value, coordinate)) / 2"
    ),
    "a mechanism of half of the scale": vector(
        "class mechanism(AdditiveMechanism):\n"
        "        def _scale(self, multiplier, batch):\n"
        "            return super()._scale(multiplier / 2, batch)"
    ),
    "a draw of the package that is changed": vector(
        "Ours.draw = staticmethod(lambda *place: draws.gaussian(*place) / 2)",
        "Gaussian",
    ),
    "fewer uses than there are": vector(f"{LAW}GaussianLaw(1, self.weight)"),
    "fewer uses than there are, in long runs": vector(
        f"{LAW}GaussianLaw(min(self.times, 20), self.weight)"
    ),
    "twice the weight in its law": vector(
        f"{LAW}GaussianLaw(self.times, 2 * self.weight)"
    ),
    "a query that is not what is published": vector(
        "class mechanism(AdditiveMechanism):\n"
        "        def query(self, *asked):\n"
        "            return super().query(*asked) / 3"
    ).replace("np.atleast_2d(self.cap))\n", "np.atleast_2d(self.cap / 3))\n"),
    "a sensitivity that is not that of its scale": vector(
        "class mechanism(AdditiveMechanism):\n"
        "        def sensitivity_of(self, *asked):\n"
        "            return 3 * super().sensitivity_of(*asked)"
    ).replace("np.atleast_2d(self.cap))\n", "np.atleast_2d(self.cap / 3))\n"),
    "Laplace entries at the euclidean sensitivity": vector(
        LAPLACE.format(mechanism="AdditiveMechanism"), "Entries"
    ),
    "Laplace noise by the law of normal noise": vector(
        "draw = staticmethod(lambda *place: draws.laplace(*place) / np.sqrt(2))"
    ),
    "noise that is bounded": vector(
        "draw = staticmethod(lambda *place: 4 * uniforms(*place) - 2)"
    ),
    "noise that is used again": vector(
        "draw = staticmethod(lambda seed, start, count: draws.gaussian(seed, 0, count))"
    ),
    "one number for all entries": vector(
        "def unit(self, seed, start, uses, size):\n"
        "        drawn = draws.gaussian(seed, start, uses)\n"
        "        return np.repeat(drawn[:, None], size, axis=1)"
    ),
    "less noise where the value is large": vector(
        "class mechanism(AdditiveMechanism):\n"
        "        def publish(self, value, coordinate=None):\n"
        "            noisy = super().publish(value, coordinate)\n"
        "            long = np.linalg.norm(value, axis=1, keepdims=True)\n"
        "            return value + (noisy - value) / (1 + long)"
    ),
    "values on a lattice of seven tenths": vector(
        "class mechanism(AdditiveMechanism):\n"
        "        def publish(self, value, coordinate=None):\n"
        "            cell = 0.7 * np.max(self.sensitivity_of(value))\n"
        "            return super().publish(cell * np.rint(value / cell), coordinate)"
    ),
    "a pure level for normal noise": vector(
        f"{LAW}LaplaceLaw(self.times, self.weight)"
    ),
    "a call of its own": vector(
        "class mechanism(AdditiveMechanism):\n"
        "        def __call__(self, *asked):\n"
        "            return self.publish(*asked)"
    ),
    "geometric noise of half the scale": number("Whole").replace(
        "z = float(self.scale.max())\n            return",
        "z = float(self.scale.max()) / 2\n            return",
    ),
    "noise that ends at 0": number(
        "Cut",
        """
class Cut(Release):
    class mechanism(Mechanism):
        def publish(self, value):
            z = self.scale[:, 0]
            low = 0.5 * np.exp(-np.maximum(value, 0.0) / z)
            u = low + (1.0 - low) * self.unit_noise(1, 1)[:, 0, 0]
            noise = np.where(u < 0.5, np.log(2 * u), -np.log(2 - 2 * u))
            return np.maximum(value + z * noise, 0.0)

        def query(self, value):
            return value[:, None]

    proof = PureLaw
    draw = staticmethod(uniforms)
""",
    ),
    "one number for a score and its opposite": described(
        "selected",
        """
from dp_erm_bench.releases.noisy_max import BoundedRangeLaw


class Corner(Release):
    class mechanism(Mechanism):
        def publish(self, scores):
            noise = np.tile(self.unit_noise(1, scores.shape[1] // 2)[:, 0], 2)
            return (scores + noise * self.scale).argmax(axis=1)

        def query(self, scores):
            return scores

    proof = BoundedRangeLaw
    selects = True
    draw = staticmethod(draws.gumbel)
""",
        (
            'NoisyMax("best", np.broadcast_to(size, (len(size), 1)),',
            'Corner("best", size,',
        ),
        ('        yield Laplace("there", size, self.rounds)\n', ""),
        (
            'j = mechanisms["best"](slope, np.abs)',
            'j = mechanisms["best"](np.hstack([slope, -slope]))',
        ),
        (
            'told = mechanisms["there"](slope[rows, j])',
            "told, j = np.where(j < problem.p, 0.1, -0.1), j % problem.p",
        ),
    ),
    "a staircase of half the level": number("Staircase").replace(
        "    proof = PureLaw\n    draw = staticmethod(uniforms)\n\n\nclass Whole",
        "    def law(self):\n        return PureLaw(self.times, 2 * self.weight)\n\n"
        "    draw = staticmethod(uniforms)\n\n\nclass Whole",
    ),
    "half of the noise on winners": described(
        "selected",
        "class Mine(NoisyMax):\n"
        "    def winner(self, seed, start, scores, scale):\n"
        "        return super().winner(seed, start, scores, scale / 2)\n",
        ('yield NoisyMax("', 'yield Mine("'),
    ),
    "half of the noise on samples": described(
        "sampled",
        f"class Mine(PoissonGaussian):\n    {HALF}\n",
        ("yield PoissonGaussian(", "yield Mine("),
    ),
    "twice the rate of the samples": described(
        "sampled",
        "class Mine(PoissonGaussian):\n"
        "    class mechanism(PoissonGaussian.mechanism):\n"
        "        def __init__(self, release, z, identities):\n"
        "            full = replace(release, rate=min(0.99, 2 * release.rate))\n"
        "            super().__init__(full, z, identities)\n",
        ("yield PoissonGaussian(", "yield Mine("),
        (
            "from dataclasses import dataclass\n",
            "from dataclasses import dataclass, replace\n",
        ),
    ),
    "half of the noise in the objective": described(
        "bent",
        f"class Mine(ObjectiveGaussian):\n    {HALF}\n",
        ("yield ObjectiveGaussian(", "yield Mine("),
    ),
}


FAST = {
    "a subclass that changes nothing",
    "half of the noise, called Gaussian",
    "half of the noise, with the twin of another",
    "fewer uses than there are, in long runs",
    "Laplace entries at the euclidean sensitivity",
    "half of the noise on winners",
    "noise that is used again",
}
"""Of the others `make test-slow` runs all."""


def some(texts):
    slow = pytest.mark.slow
    return [n if n in FAST else pytest.param(n, marks=slow) for n in sorted(texts)]


@pytest.fixture
def candidate(tmp_path, monkeypatch, request):
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(outside, "NOISES", 20_000)
    # One of the files changes it, for good.
    monkeypatch.setattr(Gaussian, "draw", vars(Gaussian)["draw"])

    def write(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return few(candidate_of(str(path)))

    return write


@pytest.mark.parametrize("name", some(SOUND))
def test_a_sound_release_from_outside_is_not_accused(name, candidate):
    made = candidate(SOUND[name])
    found = check_named(CHECK).result(made)
    assert found.verdict == OK, found.reason
    assert len(releases_without_twin(made)) == 1


@pytest.mark.parametrize("name", some(BROKEN))
def test_a_broken_release_from_outside_is_found(name, candidate):
    found = check_named(CHECK).result(candidate(BROKEN[name]))
    assert found.verdict == FAILS and "it raises" not in found.reason, found.reason


@pytest.mark.parametrize("named, verdict", [("", FAILS), (TWIN, OK)])
def test_what_cannot_be_measured_needs_a_twin(named, verdict, candidate):
    made = candidate(
        BROKEN["a call of its own"].replace("(Ours):\n", f"(Ours):\n{named}")
    )
    found = check_named(CHECK).result(made)
    assert found.verdict == verdict, found.reason
    assert named or "so that it is not measured: name a twin" in found.reason


def test_all_that_is_of_the_package_is_not_measured(candidate):
    assert check_named(CHECK).result(candidate(BASES["descent"])).verdict == EXEMPT
    for kind in built_in():
        assert kind.is_built_in() and not is_foreign(release_of(kind, "any", 1.0, 3))


def test_a_kind_is_known_by_its_class_alone():
    """Not by its name, its module or its base; an instance may be changed, too."""
    forged = type("Gaussian", (Gaussian,), {"__module__": Gaussian.__module__})
    assert not forged.is_built_in() and not forged.is_recounted()
    assert twin_of(forged) is None and twin_of(Gaussian) is not None
    assert is_foreign(forged("any", 1.0, 1))
    changed = Gaussian("any", 1.0, 1)
    object.__setattr__(changed, "mechanism", type("M", (AdditiveMechanism,), {}))
    assert is_foreign(changed)
    with pytest.raises(UsageError, match="one of a step is a Gaussian: must be one of"):
        release_of(RenyiFilter, "any", 1.0, 1, steps=((forged("one", 1.0, 1),),))
    with pytest.raises(UsageError, match="one of a run is a Gaussian: must be one of"):
        release_of(RepeatAndSelect, "any", 1.0, 1, run=(forged("one", 1.0, 1),))


def asked(release, size, adjacency=Adjacency.REPLACE_ONE):
    """A call of a release on vectors of a size."""
    zero = ((np.zeros((1, size)),), {})
    return Call(release, zero, zero, 1.0, False, 20, adjacency)


def refuted(call):
    (noise,) = noises_of(call.release)
    found = (law_refutation(call, noise, at / call.law.weight) for at in KNOWN_AT)
    return next(filter(None, found), "")


@pytest.mark.parametrize(
    "release, size",
    [
        (Gaussian("any", 2.0, 3, 1.5), 4),
        (Laplace("any", 0.5, 3), 1),
        (NormLaplace("any", 1.0, 2), 4),
        (PoissonGaussian("any", 2.0, 5, rate=0.2), 4),
    ],
)
def test_known_noise_keeps_the_law_that_is_proved_of_it(release, size):
    assert refuted(asked(release, size)) == ""


class Halves(Laplace):
    """One use, charged as two of half its level: that adds up, deltas do not."""

    def law(self):
        return LaplaceLaw(2 * self.times, 2 * self.weight)


@dataclass(frozen=True)
class Endless(GaussianLaw):
    """A law that says what is true: no level is finite."""

    def level(self, z):
        return math.inf


class WithoutLevel(Gaussian):
    """Normal noise of that law."""

    def law(self):
        return Endless(self.times, self.weight)


def test_a_level_is_that_of_all_uses_and_may_be_infinite():
    assert refuted(asked(Halves("any", 0.5, 1), 1)).startswith("at epsilon")
    assert refuted(asked(WithoutLevel("any", 2.0, 1), 1)) == ""


@dataclass(frozen=True)
class Less(PoissonGaussianLaw):
    """A sampled law of 2 per cent more noise than there is."""

    def dominating(self, z, adjacency, tail):
        return super().dominating(1.02 * z, adjacency, tail)


@dataclass(frozen=True)
class FirstOrders(PureLaw):
    """An amplified level that lacks the third order of e^(1/z)."""

    def level(self, z):
        whole = 1 / self.multiplier(z)
        return math.log1p(0.5 * (whole + whole**2 / 2))


@dataclass(frozen=True)
class Curve(Law):
    """Nothing but the Renyi curve of normal noise."""

    def rdp(self, z, orders):
        return orders / 2 / self.multiplier(z) ** 2


def test_a_sampled_law_of_two_per_cent_less_is_refuted():
    def law(self):
        return Less(self.times, self.weight, self.rate)

    made = type("Mine", (PoissonGaussian,), {"law": law})("any", 2.0, 5, rate=0.2)
    assert "delta is" in refuted(asked(made, 4))


def test_an_amplified_level_of_second_order_is_refuted():
    def law(self):
        return FirstOrders(self.times, self.weight)

    body = {"law": law, "draw": staticmethod(Laplace.draw)}
    kind = type("Mine", (PoissonGaussian,), body)
    call = asked(kind("any", 2.0, 5, rate=0.5), 1, Adjacency.ZERO_OUT)
    assert "its law claims 0" in refuted(call)


@pytest.mark.parametrize("part, is_kept", [(1.0, True), (0.85, False)])
def test_a_renyi_curve_is_measured_by_itself(part, is_kept):
    """It may be false where every delta that follows from it holds for one use."""

    def drawn(*place):
        return part * draws.gaussian(*place)

    def law(self):
        return Curve(self.times, self.weight)

    body = {"draw": staticmethod(drawn), "law": law}
    call = asked(type("Mine", (Gaussian,), body)("any", 1.0, 100), 1)
    measured = Measured(call, 0.7, 100_000)
    (pair, *_) = measured.value_pairs()
    found = measured.curve_refutation(pair, FALSE_ALARM)
    assert (found == "") == is_kept, found


def box_muller(seed, start, count):
    one, other = (uniforms(seed + k, start, count) for k in (0, 1))
    return np.sqrt(-2.0 * np.log(one)) * np.cos(2.0 * np.pi * other)


def logistic(seed, start, count):
    """Of level 1: the density falls by e within a length of 1, at most."""
    u = uniforms(seed, start, count)
    return np.log(u) - np.log1p(-u)


def until(end):
    return lambda *place: np.clip(draws.gaussian(*place), -end, end)


def late(seed, start, count):
    return draws.gaussian(seed, start, count) * (0.9 if start else 1.0)


def again(seed, start, count):
    return np.resize(draws.gaussian(seed, 0, 100_000), count)


def tabled(seed, start, count):
    return draws.laplace(seed, start % 256, count)


NOISES = {
    "Box and Muller's": (Gaussian, box_muller, ""),
    "logistic": (Laplace, logistic, ""),
    "one per cent less": (Gaussian, lambda *p: 0.99 * draws.gaussian(*p), "law claims"),
    "cut off at four deviations": (Gaussian, until(4.0), "law claims"),
    "less, late in a stream": (Gaussian, late, "law claims"),
    "logistic of 90 per cent": (Laplace, lambda *p: 0.9 * logistic(*p), "law claims"),
    "a stream that repeats": (Gaussian, again, "draws in a row come again"),
    "a table of draws": (Laplace, tabled, "draws in a row come again"),
    "of 32 bits": (Gaussian, lambda *p: np.float32(draws.gaussian(*p)) + 0.0, ""),
    "on a lattice": (Gaussian, lambda *p: draws.gaussian(*p).round(3), "law claims"),
}


@each("name", NOISES)
def test_many_draws_are_compared_with_the_law(name):
    kind, drawn, words = NOISES[name]
    made = type("Mine", (kind,), {"draw": staticmethod(drawn)})("any", 1.0, 1)
    call, found = asked(made, 1), []
    for noise in noises_of(made):
        found.append(noise.repetition_in_words())
        found += [law_refutation(call, noise, z / call.law.weight) for z in KNOWN_AT]
    assert any(words in one for one in found) and bool(words) == any(found)
