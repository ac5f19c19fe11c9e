"""Whether losses, penalties and constraints from outside the package are what they say.

Sensitivities rest on a loss's G (`lipschitz`) wherever nothing is clipped, and on
`monotone`; the accounting of objective perturbation on H (`smoothness`) and `convex`.
That of a published minimiser rests on a penalty's modulus of strong convexity, and
bounds on derivatives on the largest margin over the domain. Wrong ones make a certified
epsilon wrong, so each is compared with what the part itself computes: a loss on a wide
grid, the others at random points. That finds mistakes, and is no proof: between the
points of the grid, beyond margins of 10^6 and labels of 40, the constants are the
author's word.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Array, Bounds
from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.penalties.base import Penalty, SeparablePenalty

ENTRIES = 10**6
"""Numbers of one set of random points at most."""

SLACK = 1e-9
ROUNDED = 1.0 + 1e-6
"""Times a constant of a loss: what rounding may make of it."""

PLACES = 20
"""Cells of the largest change, and as many of the largest slope, are halved at once."""

_LABELS = (-40.0, -3.5, -1.0, 0.0, 0.25, 1.0, 2.0, 30.0)
_SIZES = np.concatenate([np.logspace(-6, 0, 60), np.linspace(1, 50, 981), [1e3, 1e6]])
_GRID = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])


@functools.cache
def check_loss(loss: Loss) -> None:
    """Refuse a loss from outside the package that breaks its declarations.

    Raises
    ------
    UsageError
        With the first violation and its place.
    """
    wrong = loss.uncompiled or next(_wrong_loss(loss), None)
    if wrong:
        raise UsageError(wrong)


def check_intercept(
    constant: float, p: int, penalty: Penalty, constraint: Constraint
) -> None:
    """Refuse a domain that leaves the last of p weights, an intercept's, one sign.

    Raises
    ------
    UsageError
        Naming the constant, the penalty or the constraint, and the range.
    """
    ranges: dict[str, Any] = {}
    if constraint.bounded:
        last = np.zeros((2, p))
        last[:, -1] = 1.0, -1.0
        ends = constraint.linear_minimiser(last)[:, -1]
        ranges[f"constraint={constraint.name}"] = ends
    if isinstance(penalty, SeparablePenalty):
        ranges[f"penalty={penalty.name}"] = penalty.lower, penalty.upper
    for part, (least, most) in ranges.items():
        if not least < 0.0 < most:
            raise UsageError(
                f"dataset.intercept={constant:g}: has no meaning with {part}, which "
                f"leaves its weight in [{least:g}, {most:g}], one sign only"
            )


def check_set(part: Penalty | Constraint, p: int, bounds: Bounds | None) -> None:
    """Refuse a penalty or a constraint from outside that breaks its declarations.

    Raises
    ------
    UsageError
        With the first violation.
    """
    if isinstance(part, Penalty):
        _check_modulus(part, p)
    columns = np.ones(p) if bounds is None else bounds.columns
    norm = math.sqrt(p) if bounds is None else bounds.norm
    bound = part.largest_margin(columns, norm)
    random = np.random.default_rng(0)
    x = columns * random.choice([-1.0, 1.0], (max(2, min(50, ENTRIES // p)), p))
    x[0] = columns
    sizes = norm2(x, axis=-1, keepdims=True)
    x *= np.minimum(1.0, norm / np.maximum(sizes, 1e-300))
    if math.isfinite(bound):
        # What is far in the direction of x is nearest to where x.w is largest.
        if isinstance(part, Penalty):
            key, nearest = "penalty", part.prox(1e6 * x, 0.0)
        else:
            key, nearest = "constraint", part.project(1e6 * x)
        reached = np.abs((nearest * x).sum(axis=1)).max()
        if reached > bound * (1.0 + SLACK):
            raise UsageError(
                f"{key}={part.name}: largest_margin={bound:g} is exceeded by "
                f"|x.w|={reached:g} of a record within the bounds"
            )


def _wrong_loss(loss: Loss) -> Iterator[str]:
    says = f"loss={loss.name}"
    for key in ("lipschitz", "smoothness"):
        constant: Any = getattr(loss, key, None)
        least = 0.0 if key == "smoothness" else 1e-300
        if not isinstance(constant, int | float) or not constant >= least:
            allowed = "0, " * (least == 0.0) + "a number > 0, or infinite"
            yield f"{says}: {key}={constant} must be {allowed}"
    labels = [label for label in _LABELS if _allowed(loss, label)]
    if not labels:
        yield f"{says}: check_labels refuses each of the labels {_LABELS}"
    for label in labels:
        z = _refined(loss, label)
        y = np.full(z.size, label)
        values = [loss.value(y, z), loss.derivative(y, z), loss.second_derivative(y, z)]
        if any(v.shape != z.shape or not np.isfinite(v).all() for v in values):
            yield f"{says}: is not a finite number for each margin at label {label:g}"
            return
        size, within = np.abs(values[1]), "lipschitz_within is exceeded"
        checks = _compared(loss, z, *values)
        for margin in (1e-3, 0.05, 0.5, 2.0, 20.0):
            bound = loss.lipschitz_within(margin, abs(label))
            steep = (np.abs(z) <= margin) & (size > bound * ROUNDED)
            checks.append((within, z, steep))
        for sentence, margins, wrong in checks:
            if wrong.any():
                at = margins[np.argmax(wrong)]
                yield f"{says}: {sentence} at margin {at:g}, label {label:g}"
        if not _each_by_itself(loss, y, z, values[1]):
            yield (
                f"{says}: its derivative at label {label:g} depends on the other "
                "records, or is another one when compiled"
            )


def _allowed(loss: Loss, label: float) -> bool:
    try:
        loss.check_labels(np.array([label]))
    except UsageError:
        return False
    return True


def _refined(loss: Loss, label: float) -> Array:
    """Return the grid around a label, with more points where the slope changes most."""
    z = np.unique(np.concatenate([_GRID, _GRID + label]))
    for _ in range(30):
        widths = np.diff(z)
        changes = np.abs(np.diff(loss.derivative(np.full(z.size, label), z)))
        changes[widths < 1e-6] = 0.0
        # By slope alone, the places of a steep stretch would hide a steeper short one.
        near = changes * (widths < 1.0)
        steep = np.argsort(changes / widths)[-PLACES:]
        most = np.unique([*steep, *np.argsort(near)[-PLACES:]])
        # Unique: at a kink they end at neighbouring numbers.
        z = np.unique(np.insert(z, most + 1, 0.5 * (z[most] + z[most + 1])))
    return z


def _compared(
    loss: Loss, z: Array, v: Array, d: Array, dd: Array
) -> list[tuple[str, Array, Any]]:
    """Return the possible faults, each with margins and whether it occurs there.

    ``v``, ``d`` and ``dd`` are the values and both derivatives at z, in order.
    """
    step, least, most = np.diff(z), np.minimum(d[1:], d[:-1]), np.maximum(d[1:], d[:-1])
    # What rounding of values and of derivatives makes of their differences.
    blur = 1e-12 * np.maximum(np.abs(v[1:]), np.abs(v[:-1])) + 1e-12
    fuzz = 1e-12 * np.maximum(np.abs(least), np.abs(most)) + 1e-12
    G, H, size = loss.lipschitz, loss.smoothness, np.abs(d)
    bend, change, slope = 0.0 if loss.convex else H * step, np.diff(v), np.diff(d)
    low, high = (least - bend - fuzz) * step - blur, (most + bend + fuzz) * step + blur
    above = size > G * ROUNDED
    bent = np.append(slope < -fuzz, False) | (dd < 0.0)
    signs = (d > 0.0) & (d.min() < 0.0)
    return [
        ("derivative is not that of value", z[1:], (change < low) | (change > high)),
        (
            f"lipschitz={G:g} is exceeded by |derivative|={size.max():g}",
            z,
            above & (size == size.max()),
        ),
        (
            f"smoothness={H:g} is exceeded by the derivative's change",
            z[1:],
            np.abs(slope) > H * ROUNDED * step + fuzz,
        ),
        (
            f"smoothness={H:g} is exceeded by second_derivative",
            z,
            np.abs(dd) > H * ROUNDED,
        ),
        ("convex, yet its derivative falls", z, bent & loss.convex),
        ("monotone, yet its derivative has both signs", z, signs & loss.monotone),
    ]


def _each_by_itself(loss: Loss, y: Array, z: Array, expected: Array) -> bool:
    """Return whether the compiled derivative, and that of any subset, is the same."""
    from dp_erm_bench.kernels.losses import residuals

    compiled, half = np.empty(z.size), slice(None, None, 2)
    residuals(loss, y, z, compiled)
    scale = 1e-9 * (1.0 + np.abs(expected))
    alone = loss.derivative(y[half], z[half])
    same = np.abs(compiled - expected) <= scale
    return bool(same.all() and (np.abs(alone - expected[half]) <= scale[half]).all())


def _check_modulus(penalty: Penalty, p: int) -> None:
    """Compare the modulus m with the prox, of which 1 + step m must be a contraction.

    For u = prox(a) and v = prox(b), <a - b, u - v> >= (1 + step m) norm2(u - v)^2.
    """
    m, random = penalty.strong_convexity, np.random.default_rng(0)
    says = f"penalty={penalty.name}: strong_convexity="
    if not 0.0 <= m < math.inf:
        raise UsageError(f"{says}{m} must be a number >= 0")
    rows = max(2, min(200, ENTRIES // p))
    for size, step in itertools.product((1e-3, 1.0, 1e3), (1e-2, 1.0, 1e2)):
        a = size * random.normal(size=(rows, p))
        apart = random.choice([1e-3, 1.0], (rows, 1))
        b = a + size * apart * random.normal(size=(rows, p))
        moved = penalty.prox(a, step) - penalty.prox(b, step)
        along = ((a - b) * moved).sum(axis=1)
        least = (1.0 + step * m) * np.square(moved).sum(axis=1)
        if (along < least * (1.0 - SLACK) - 1e-12 * size**2).any():
            raise UsageError(
                f"{says}{m:g} is not that of its prox at step {step:g}, or the penalty "
                "is not convex"
            )
