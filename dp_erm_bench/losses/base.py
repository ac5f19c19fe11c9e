"""The interface of a loss: elementwise in label and margin."""

import inspect
import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError, real_number
from dp_erm_bench.plugins.names import entries_of_pin, origin_digest

Array = NDArray[np.float64]


def check_positive(name: str, key: str, value: object) -> float:
    """Return a parameter of a loss as a number, refusing all but finite ones > 0."""
    real = real_number(value)
    if not 0.0 < real < math.inf:
        raise UsageError(f"loss.{key}={value} of {name}: must be a finite number > 0")
    return real


def check_finite(name: str, y: Array) -> None:
    """Raise UsageError unless every label is finite."""
    if not np.isfinite(y).all():
        raise UsageError(f"loss={name}: labels must be finite numbers")


def check_signs(name: str, y: Array) -> None:
    """Raise UsageError unless every label is -1 or +1."""
    wrong = y[np.abs(y) != 1.0]
    if wrong.size:
        raise UsageError(
            f"loss={name}: label {wrong[0]:g} is not allowed, labels must be -1 or +1, "
            "or name what becomes +1 (positive)"
        )


class Loss(ABC):
    """A loss phi(z, y) of the margin z = x.w and the label y.

    `value` and `derivative` are called with arrays, and compiled as they stand for the
    kernels, with numbers: write them with operators and `kernels.elementwise`. Numeric
    fields of the (data)class are the parameters that they may read of ``self``.

    Attributes
    ----------
    name : str
        The name of its yaml, or of its file.
    pin : str
        Path and content of the file that it was loaded from, else empty.
    lipschitz : float
        G, the supremum of the absolute derivative in z; infinite if unbounded.
    smoothness : float
        H, the supremum of the second derivative in z: infinite with a kink, or 0.
    convex : bool
        Whether phi(., y) is convex for every label: certificates of minima, and
        algorithms that publish a minimiser, rest on it.
    smooth : bool
        Whether H is finite: steps of length 1 / beta rest on it, and on H > 0.
    classification : bool
        Whether labels are -1 and +1, so that accuracy has a meaning.
    monotone : bool
        Whether phi(., y) is monotone for every label, so that its derivative has
        one sign: two derivatives of one record differ by at most G then.
    """

    name: ClassVar[str]
    pin: ClassVar[str] = ""
    classification: ClassVar[bool]
    convex: ClassVar[bool] = True
    smooth: ClassVar[bool] = True
    monotone: ClassVar[bool] = False
    lipschitz: float
    smoothness: float

    @property
    def is_curved(self) -> bool:
        """Return whether 0 < H < inf, so that 1 / H is the length of a step."""
        return self.smooth and 0.0 < self.smoothness < math.inf

    @cached_property
    def _numba_type_(self) -> Any:
        # Brings numba, which naming a loss does not need.
        from dp_erm_bench.kernels.losses import loss_type

        return loss_type(type(self))

    @property
    def source(self) -> dict[str, str]:
        """Return the source of a loss from outside the package, {} for others."""
        content = origin_digest(type(self))
        return {**entries_of_pin(self.pin), "content": content} if content else {}

    @property
    def reason_not_compiled(self) -> str | None:
        """Return the reason why no kernel computes this loss, None if some do."""
        if not origin_digest(type(self)):
            return None
        from dp_erm_bench.kernels.losses import reason_not_compiled

        reason = reason_not_compiled(self)
        return reason and f"loss={self.name}: no algorithm runs on it, as {reason}"

    @abstractmethod
    def value(self, y: Array, z: Array) -> Array:
        """Return phi(z, y), elementwise."""

    @abstractmethod
    def derivative(self, y: Array, z: Array) -> Array:
        """Return the derivative in z, elementwise."""

    @abstractmethod
    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return the second derivative in z, elementwise."""

    def lipschitz_within(self, margin: float, label: float) -> float:
        """Return the supremum of |phi'(z, y)| over |z| <= margin, |y| <= label.

        By default the bound that holds everywhere.
        """
        return self.lipschitz

    def smooth_surrogate(self, width: float) -> "Loss | None":
        """Return a smooth loss from which a minimum is certified, None by default.

        Of a loss that is the maximum of v (z - y) over an interval of slopes v: one
        that is nowhere below it, with derivatives in that interval, and those of the
        loss itself where |z - y| > width.
        """
        return None

    @abstractmethod
    def check_labels(self, y: Array) -> None:
        """Raise UsageError if a label is outside the domain of the loss."""


def complaint_of_loss(cls: type[Loss]) -> str | None:
    """Return what is missing in a class of losses, None if it is complete."""
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        return f"{cls.__name__} lacks {', '.join(missing)}"
    if not isinstance(inspect.getattr_static(cls, "classification", None), bool):
        return f"{cls.__name__} needs classification = True or False"
    return None
