"""Test that declared constants of classes from outside are compared with the code.

These are constants on which the noise depends.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dp_erm_bench import problem_from_arrays
from dp_erm_bench.accounting.certify import check_known
from dp_erm_bench.constraints.sets import WholeSpace
from dp_erm_bench.errors import UsageError
from dp_erm_bench.extend import ERMProblem, Gaussian, Loss, SeparablePenalty
from dp_erm_bench.kernels.elementwise import between
from dp_erm_bench.losses.base import check_signs
from dp_erm_bench.losses.smooth import Logistic
from dp_erm_bench.releases.gaussian import GaussianLaw
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.sampling import SampledRelease
from dp_erm_bench.solvers.bounds import complaint_of_solver
from dp_erm_bench.solvers.gd import GD
from dp_erm_bench.trust.twins.base import twin_of
from tests.extending.cube.cube import Cube
from tests.extending.group_norm.group_norm import GroupNorm


def problem(**parts):
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (30, 4))
    given = {"loss": "logistic", "bounds": {"columns": 1.0, "norm": 2.0, "label": 1.0}}
    return problem_from_arrays(X, np.where(X[:, 0] > 0, 1.0, -1.0), **given | parts)


class Overstated(GroupNorm):
    strong_convexity = 100.0


class Concave(GroupNorm):
    def prox(self, v, step):
        return 2.0 * super().prox(v, step)


class Small(GroupNorm):
    def largest_margin(self, columns, norm):
        return 1e-3


class EuclideanCube(Cube):
    def largest_margin(self, columns, norm):
        return self.radius * norm / 2.0


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"penalty": Overstated(0.1)}, "strong_convexity=100 contradicts its prox"),
        ({"penalty": Concave(0.1)}, "or the penalty is not convex"),
        ({"penalty": Small(0.1)}, "largest_margin=0.001 is exceeded"),
        ({"constraint": EuclideanCube(5.0)}, "largest_margin=5 is exceeded"),
    ],
)
def test_a_wrong_constant_of_a_penalty_or_a_set_is_refused(parts, said):
    with pytest.raises(UsageError, match=said):
        problem(**parts)


def test_honest_ones_are_served():
    assert problem(penalty=GroupNorm(0.1), constraint=Cube(5.0)).p == 4


@pytest.mark.parametrize("numbers", [{"l1": -1.0}, {"l2": -1.0}, {"lower": math.inf}])
def test_numbers_of_no_convex_penalty_are_refused(numbers):
    with pytest.raises(UsageError, match="must be >= 0"):
        SeparablePenalty(**{"upper": 1.0, **numbers})


@pytest.mark.parametrize("name", ["strong_convexity", "largest_margin", "has_box"])
def test_a_separable_penalty_has_nothing_of_its_own(name):
    with pytest.raises(TypeError, match=f"not its {name}"):
        type("Own", (SeparablePenalty,), {name: 100.0})


class Flat(Logistic):
    lipschitz = 0.001


def test_a_loss_is_checked_however_its_problem_is_made():
    data = problem().dataset
    with pytest.raises(UsageError, match="Flat|lipschitz"):
        ERMProblem(data, Flat(), SeparablePenalty(l2=0.1), WholeSpace())


def test_a_problem_of_empirical_risk_keeps_the_constants_of_its_parts():
    with pytest.raises(TypeError, match="lipschitz must not be overridden"):
        type("Own", (ERMProblem,), {"lipschitz": 1e-3, "__module__": "own"})


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """Its bound forgets the margin at zero."""

    name: ClassVar[str] = "squared_hinge"
    classification: ClassVar[bool] = True
    lipschitz = math.inf
    smoothness = 1.0

    def value(self, y, z):
        short = between(1.0 - y * z, 0.0, math.inf)
        return 0.5 * short * short

    def derivative(self, y, z):
        return -y * between(1.0 - y * z, 0.0, math.inf)

    def second_derivative(self, y, z):
        return np.where(y * z < 1.0, 1.0, 0.0)

    def lipschitz_within(self, margin, label):
        return label * margin

    def check_labels(self, y):
        check_signs("squared_hinge", y)


@dataclass(frozen=True)
class TwoKinks(Loss):
    """The steeper one is the smaller one: its slope is 3000."""

    name: ClassVar[str] = "two_kinks"
    classification: ClassVar[bool] = False
    lipschitz = 1.3
    smoothness = 100.0

    def value(self, y, z):
        first, second = z - y, z - y - 0.523
        a, b = between(0.0, first, 0.01), between(0.0, second, 1e-4)
        one = 0.5 * a * a / 0.01 + (first - a) * (a / 0.01)
        return one + 0.3 * (0.5 * b * b / 1e-4 + (second - b) * (b / 1e-4))

    def derivative(self, y, z):
        first, second = between(0.0, z - y, 0.01), between(0.0, z - y - 0.523, 1e-4)
        return first / 0.01 + 0.3 * second / 1e-4

    def second_derivative(self, y, z):
        first, second = z - y, z - y - 0.523
        one = np.where((first > 0) & (first < 0.01), 100.0, 0.0)
        return one + np.where((second > 0) & (second < 1e-4), 3000.0, 0.0)

    def check_labels(self, y):
        pass


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (SquaredHinge(), "lipschitz_within is exceeded"),
        (TwoKinks(), "smoothness=100 is exceeded"),
    ],
)
def test_a_wrong_constant_of_a_loss_is_found_at_a_corner(loss, said):
    with pytest.raises(UsageError, match=said):
        problem(loss=loss)


def test_a_twin_is_a_twin():
    class Said(Gaussian):
        twin = "any word"

    assert not Said.is_recounted()
    with pytest.raises(UsageError, match=r"Said\.twin=any word: must be a class"):
        twin_of(Said)


def test_a_sum_over_a_sample_is_no_vector_unless_its_kind_says_so():
    assert not SampledRelease.vectors


def test_a_law_whose_fields_would_be_lost_is_refused():
    class Curved(GaussianLaw):
        def __init__(self, times, curvature=0.0):
            super().__init__(times)

    assert issubclass(Curved, Law)
    with pytest.raises(TypeError, match="Curved: a law must be a dataclass"):
        check_known((Curved(1),), 1e-6)


def test_a_method_by_its_old_name_is_refused_with_the_new_one():
    @dataclass(frozen=True)
    class Former(GD):
        __doc__ = GD.__doc__

        def unsupported(self, problem):
            return "too small"

    words = "Former.unsupported is now called unsupported_reason"
    assert complaint_of_solver(Former) == words
