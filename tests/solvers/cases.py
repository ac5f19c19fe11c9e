"""Algorithms, problems and runs that the solvers' tests go through.

Nothing here lists the algorithms, losses or penalties: the yaml files do.
"""

import dataclasses
import functools
import itertools

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.privacy.adjacency import Adjacency
from dp_erm_bench.privacy.budget import Budget
from dp_erm_bench.privacy.mechanisms import make_mechanisms
from dp_erm_bench.privacy.shares import shared_mechanisms
from dp_erm_bench.privacy.smoothness import smoothness_releases, with_constants
from dp_erm_bench.problems.build import build_problem
from dp_erm_bench.problems.dense_oracle import DenseOracle
from dp_erm_bench.solvers.base import stack

ALGORITHMS = registry.names("algorithm")
LOSSES = registry.names("loss")
PENALTIES = registry.names("penalty")
LENGTHS = ("n_iter", "n_epochs", "passes")
ELSEWHERE = ("smoothness", "smoothness_bounds", *LENGTHS)
STEPS = 10


def fields_of(algorithm):
    return dataclasses.fields(registry.target("algorithm", algorithm))


def alternatives(field):
    """Values of a shape parameter worth a test: its choices, or a few."""
    if "choices" in field.metadata:
        return list(field.metadata["choices"])
    words = list(field.metadata.get("words", ()))
    numbers = [5] if "int" in str(field.type) else []
    return [field.default, *numbers, *words]


def variants(algorithm):
    """All combinations of an algorithm's shape parameters."""
    shapes = {
        field.name: alternatives(field)
        for field in fields_of(algorithm)
        if field.metadata["kind"] == "shape" and field.name not in ELSEWHERE
    }
    combinations = itertools.product(*shapes.values())
    return [dict(zip(shapes, values, strict=True)) for values in combinations]


VARIANTS = [(name, given) for name in ALGORITHMS for given in variants(name)]


def label(variant):
    name, given = variant
    return "-".join([name, *(f"{v}" for v in given.values() if v is not None)])


def objectives():
    return list(itertools.product(LOSSES, PENALTIES))


def objective_problem(data, loss, penalty, strength=0.02, **box):
    made = registry.build("penalty", penalty)
    known = {"strength": strength} if hasattr(made, "strength") else {}
    known = box if penalty == "box" else known
    return build_problem(data, loss, {"name": penalty, **known})


@functools.cache
def problem_of(loss, penalty, n=40, p=6, dead=2):
    """A small problem with declared bounds and one column that is all zero."""
    rng = np.random.default_rng(3)
    radius = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 0.3])[:p]
    X = rng.uniform(-1.0, 1.0, (n, p)) * radius
    if dead is not None:
        X[:, dead], radius[dead] = 0.0, 0.0
    y = np.where(X @ rng.normal(size=p) + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    bounds = Bounds(radius, float(np.linalg.norm(radius)), 1.0)
    return objective_problem(dataset_from_arrays(X, y, bounds=bounds), loss, penalty)


@dataclasses.dataclass
class Run:
    """One run at a given noise multiplier, with what it left behind."""

    problem: object
    solvers: list
    z: float = 5.0
    identities: tuple = ("a",)
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    checkpoints: tuple = tuple(range(STEPS + 1))
    ahead: bool = False
    epsilon: float = 5.0

    def __post_init__(self):
        self.solver = stack(self.solvers)
        self.constants = (self.solver.smoothness, self.solver.smoothness_bounds)
        self.shares = smoothness_releases(self.problem, *self.constants, self.adjacency)
        budget = Budget(self.epsilon if self.z else "inf", 1e-6, self.adjacency)
        if self.shares:
            self.mechanisms = shared_mechanisms(self.shares, budget, self.identities)
            self.mechanisms.ahead = self.ahead
        else:
            self.declare()

    def declare(self):
        """Make the solver's mechanisms, from constants that are known by now."""
        self.schedule = self.solver.plan(self.problem, self.identities)
        self.releases = tuple(
            self.solver.releases(self.problem, self.adjacency, self.schedule)
        )
        self.mechanisms = make_mechanisms(self.releases, self.z, self.identities)
        self.mechanisms.ahead = self.ahead

    def publish(self, mechanisms):
        """Publish the private constants, and add the solver's own mechanisms."""
        self.problem = with_constants(self.problem, *self.constants, mechanisms)
        self.declare()
        mechanisms.include(self.mechanisms)
        self.mechanisms = mechanisms

    def iterates(self, mechanisms=None):
        """Copies of the iterates at the checkpoints."""
        used = self.mechanisms if mechanisms is None else mechanisms
        if self.shares:
            self.publish(used)
        oracle = DenseOracle(self.problem, len(self.identities))
        steps = self.solver.iterates(oracle, used, self.checkpoints, self.schedule)
        return [w.copy() for w in steps]


def solver_of(variant, **given):
    name, shapes = variant
    return registry.build("algorithm", name, **{"n_iter": STEPS, **shapes, **given})


def noise_on_vectors(releases):
    """Whether noise falls on whole gradients: it does not spare a column of zeros."""
    scales = [(r, np.atleast_2d(r.sensitivity).shape[1]) for r in releases]
    return any(release.vectors and columns == 1 for release, columns in scales)


def supported(variant, problem):
    return solver_of(variant, clip=1.0).refusal(problem) is None
