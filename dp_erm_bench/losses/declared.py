"""Whether a loss from outside the package is what it says it is.

Sensitivities rest on G (`lipschitz`) wherever nothing is clipped, and on `monotone`;
the accounting of objective perturbation on H (`smoothness`) and `convex`. Wrong ones
make a certified epsilon wrong, so each is compared with the loss's own numbers on a
wide grid. That finds mistakes, and is no proof: between the points of the grid, beyond
margins of 10^6 and labels of 40, the constants are the author's word.
"""

import functools
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.losses.base import Array, Loss

SLACK = 1e-6
"""Relative to a constant: what rounding may add to it."""

PLACES = 20
"""Cells of the largest change, and as many of the largest slope, are halved at once."""

_LABELS = (-40.0, -3.5, -1.0, 0.0, 0.25, 1.0, 2.0, 30.0)
_SIZES = np.concatenate([np.logspace(-6, 0, 60), np.linspace(1, 50, 981), [1e3, 1e6]])
_GRID = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])


def classes_in(module: ModuleType) -> list[type[Loss]]:
    """Return the classes of losses that a module defines, imported ones left out."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Loss)
        and value.__module__ == module.__name__
    ]


def complaint(cls: type[Loss]) -> str | None:
    """Return what a class of losses lacks, None if it is complete."""
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        return f"{cls.__name__} lacks {', '.join(missing)}"
    if not isinstance(inspect.getattr_static(cls, "classification", None), bool):
        return f"{cls.__name__} needs classification = True or False"
    return None


@functools.cache
def check_loss(loss: Loss) -> None:
    """Refuse a loss from outside the package that is not what it says.

    Raises
    ------
    UsageError
        With the first thing that is wrong, and where.
    """
    wrong = loss.source and (loss.uncompiled or next(_wrong(loss), None))
    if wrong:
        raise UsageError(str(wrong))


def _wrong(loss: Loss) -> Iterator[str]:
    says = f"loss={loss.name}"
    for key in ("lipschitz", "smoothness"):
        constant: Any = getattr(loss, key, None)
        if not isinstance(constant, int | float) or not constant > 0.0:
            yield f"{says}: {key}={constant} must be a number > 0, or infinite"
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
        for sentence in _wrong_at(loss, z, *values):
            yield f"{says}: {sentence}, label {label:g}"
        size = np.abs(values[1])
        for margin in (1e-3, 0.05, 0.5, 2.0, 20.0):
            bound = loss.lipschitz_within(margin, abs(label))
            steep = (np.abs(z) <= margin) & (size > bound * (1.0 + SLACK))
            for sentence in _first("lipschitz_within is exceeded", z, steep):
                yield f"{says}: {sentence}, label {label:g}"
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
        z = np.insert(z, most + 1, 0.5 * (z[most] + z[most + 1]))
    return z


def _wrong_at(loss: Loss, z: Array, v: Array, d: Array, dd: Array) -> Iterator[str]:
    """Yield what is wrong at margins z, in order, with values and both derivatives."""
    step, least, most = np.diff(z), np.minimum(d[1:], d[:-1]), np.maximum(d[1:], d[:-1])
    # What rounding of values and of derivatives makes of their differences.
    blur = 1e-12 * np.maximum(np.abs(v[1:]), np.abs(v[:-1])) + 1e-12
    fuzz = 1e-12 * np.maximum(np.abs(least), np.abs(most)) + 1e-12
    bend = 0.0 if loss.convex else loss.smoothness * step
    change = np.diff(v)
    low, high = (least - bend - fuzz) * step - blur, (most + bend + fuzz) * step + blur
    yield from _first(
        "derivative is not that of value", z[1:], (change < low) | (change > high)
    )
    size = np.abs(d)
    steep = size > loss.lipschitz * (1.0 + SLACK)
    yield from _first(
        f"lipschitz={loss.lipschitz:g} is exceeded by |derivative|={size.max():g}",
        z,
        steep & (size == size.max()),
    )
    slope = np.diff(d)
    yield from _first(
        f"smoothness={loss.smoothness:g} is exceeded by the derivative's change",
        z[1:],
        np.abs(slope) > loss.smoothness * (1.0 + SLACK) * step + fuzz,
    )
    yield from _first(
        f"smoothness={loss.smoothness:g} is exceeded by second_derivative",
        z,
        np.abs(dd) > loss.smoothness * (1.0 + SLACK),
    )
    if loss.convex:
        bent = np.append(slope < -fuzz, False) | (dd < 0.0)
        yield from _first("convex, yet its derivative falls", z, bent)
    if loss.monotone and d.min() < 0.0 < d.max():
        yield from _first("monotone, yet its derivative has both signs", z, d > 0.0)


def _first(what: str, z: Array, wrong: Any) -> Iterator[str]:
    if wrong.any():
        yield f"{what} at margin {z[np.argmax(wrong)]:g}"


def _each_by_itself(loss: Loss, y: Array, z: Array, expected: Array) -> bool:
    """Return whether the compiled derivative, and that of any subset, is the same."""
    from dp_erm_bench.kernels.losses import residuals

    compiled, half = np.empty(z.size), slice(None, None, 2)
    residuals(loss, y, z, compiled)
    scale = 1e-9 * (1.0 + np.abs(expected))
    alone = loss.derivative(y[half], z[half])
    same = np.abs(compiled - expected) <= scale
    return bool(same.all() and (np.abs(alone - expected[half]) <= scale[half]).all())
