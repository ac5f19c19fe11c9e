"""Whether penalties and constraints from outside the package are what they say.

The sensitivity of a published minimiser rests on a penalty's modulus of strong
convexity, and bounds on derivatives on the largest margin over the domain. Wrong ones
make a certified epsilon wrong, so each is compared with what the part itself computes
at random points. That finds mistakes, and is no proof.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Array, Bounds
from dp_erm_bench.errors import UsageError
from dp_erm_bench.penalties.base import Penalty
from dp_erm_bench.plugins.sources import origin

ENTRIES = 10**6
"""Numbers of one set of random points at most."""

SLACK = 1e-9


def check_parts(
    penalty: Penalty, constraint: Constraint, p: int, bounds: Bounds | None
) -> None:
    """Refuse a penalty or a constraint of one's own that is not what it says.

    Raises
    ------
    UsageError
        With the first thing that is wrong.
    """
    wrong: list[str] = []
    if origin(type(penalty)):
        wrong += _wrong_modulus(penalty, p)
        said = f"penalty={penalty.name}"
        wrong += _wrong_margin(said, penalty, lambda v: penalty.prox(v, 0.0), p, bounds)
    if origin(type(constraint)):
        said = f"constraint={constraint.name}"
        wrong += _wrong_margin(said, constraint, constraint.project, p, bounds)
    if wrong:
        raise UsageError(wrong[0])


def _wrong_modulus(penalty: Penalty, p: int) -> Iterator[str]:
    """Compare the modulus m with the prox, of which 1 + step m must be a contraction.

    For u = prox(a) and v = prox(b), <a - b, u - v> >= (1 + step m) norm2(u - v)^2.
    """
    m, random = penalty.strong_convexity, np.random.default_rng(0)
    if not 0.0 <= m < math.inf:
        yield f"penalty={penalty.name}: strong_convexity={m} must be a number >= 0"
        return
    rows = max(2, min(200, ENTRIES // p))
    for size in (1e-3, 1.0, 1e3):
        for step in (1e-2, 1.0, 1e2):
            a = size * random.normal(size=(rows, p))
            apart = random.choice([1e-3, 1.0], (rows, 1))
            b = a + size * apart * random.normal(size=(rows, p))
            moved = penalty.prox(a, step) - penalty.prox(b, step)
            along = ((a - b) * moved).sum(axis=1)
            least = (1.0 + step * m) * np.square(moved).sum(axis=1)
            if (along < least * (1.0 - SLACK) - 1e-12 * size**2).any():
                yield (
                    f"penalty={penalty.name}: strong_convexity={m:g} is not that of "
                    f"its prox at step {step:g}, or the penalty is not convex"
                )


def _wrong_margin(
    part: str,
    domain: Penalty | Constraint,
    nearest: Callable[[Array], Array],
    p: int,
    bounds: Bounds | None,
) -> Iterator[str]:
    """Compare the largest margin with those of records at points of the domain."""
    columns = np.ones(p) if bounds is None else bounds.columns
    norm = math.sqrt(p) if bounds is None else bounds.norm
    bound = domain.largest_margin(columns, norm)
    random = np.random.default_rng(0)
    x = columns * random.choice([-1.0, 1.0], (max(2, min(50, ENTRIES // p)), p))
    x[0] = columns
    sizes = np.sqrt(np.square(x).sum(axis=1, keepdims=True))
    x *= np.minimum(1.0, norm / np.maximum(sizes, 1e-300))
    if math.isfinite(bound):
        # What is far in the direction of x is nearest to where x.w is largest.
        reached = np.abs((nearest(1e6 * x) * x).sum(axis=1)).max()
        if reached > bound * (1.0 + SLACK):
            yield (
                f"{part}: largest_margin={bound:g} is exceeded by |x.w|={reached:g} "
                "of a record within the bounds"
            )
