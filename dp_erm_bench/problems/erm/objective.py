"""The objective: a dataset, a loss, a penalty, a constraint, and their constants.

**Declared constants.** Sensitivities depend on a loss's G (`lipschitz`) wherever
nothing is clipped, and on `monotone`. The accounting of objective perturbation depends
on H (`smoothness`) and `convex`. The sensitivity of a published minimiser depends on a
penalty's modulus of strong convexity. Bounds on derivatives depend on the largest
margin over the domain. A wrong constant makes a certified epsilon wrong. Each constant
of a part from outside the package is therefore compared with what the part itself
computes: a loss on a wide grid, other parts at random points. This finds mistakes but
is not a proof. Between the points of the grid, and beyond margins of 10^6 and labels of
40, the constants are only declared by their author.

**Smoothness constants** of the data term are public, from the data, or published.
Nothing here is private by itself: ``releases.smoothness`` adds the noise. Constants
that depend only on the features are kept with the dataset (`compute_once`), so all
problems, batches and fits on it share them. They are not kept on disk. An eigenvalue
from a file would have to be checked, which costs as much as computing it: an
eigenvector only proves that the largest eigenvalue is not smaller.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import (
    Array,
    Bounds,
    Dataset,
    Uncharged,
    compute_once,
    is_read_only,
    record_norms,
)
from dp_erm_bench.datasets.prepare import scale_features
from dp_erm_bench.errors import Unsupported, UsageError, value_error
from dp_erm_bench.kernels.lengths import USUAL, are_usual, norm2
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.losses.smooth import Squared
from dp_erm_bench.paths import digest_of_json
from dp_erm_bench.penalties.base import Penalty, SeparablePenalty, inseparable_sentence
from dp_erm_bench.plugins.names import origin_digest

ENTRIES = 10**6
"""Largest number of floats in one set of random points."""

SLACK = 1e-9
ROUNDED = 1.0 + 1e-6
"""Factor by which a computed value may exceed a constant of a loss, by rounding."""

PLACES = 20
"""Number of grid cells that one refinement halves, for each of two criteria.

The criteria are the largest change of the derivative, and its largest slope.
"""

_LABELS = (-40.0, -3.5, -1.0, 0.0, 0.25, 1.0, 2.0, 30.0)
_SIZES = np.concatenate([np.logspace(-6, 0, 60), np.linspace(1, 50, 981), [1e3, 1e6]])
_GRID = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])


@functools.cache
def check_loss(loss: Loss) -> None:
    """Raise UsageError if a loss from outside the package breaks its declarations.

    Raises
    ------
    UsageError
        The message names the first violation and its place.
    """
    wrong = loss.reason_not_compiled or next(_wrong_loss(loss), None)
    if wrong:
        raise UsageError(wrong)


def check_intercept(
    constant: float, p: int, penalty: Penalty, constraint: Constraint
) -> None:
    """Raise UsageError if the domain allows only one sign of the intercept's weight.

    Parameters
    ----------
    constant : float
        The constant of the intercept's column, for the message.
    p : int
        Number of weights; the last is the intercept's.
    penalty : Penalty
    constraint : Constraint

    Raises
    ------
    UsageError
        The message names the constant, the penalty or the constraint, and the range.
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
                f"restricts the weight of the intercept to [{least:g}, {most:g}], one "
                "sign only"
            )


def check_set(part: Penalty | Constraint, p: int, bounds: Bounds | None) -> None:
    """Raise UsageError if a penalty or constraint from outside breaks its declarations.

    Parameters
    ----------
    part : Penalty or Constraint
        A part that is not of the package.
    p : int
        Number of features.
    bounds : Bounds or None
        Declared bounds on a record; None to test records with entries of -1 and 1.

    Raises
    ------
    UsageError
        The message names the first violation.
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
        # The point nearest to one far away in the direction of x has the largest x.w.
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
    labels = [label for label in _LABELS if _is_allowed_label(loss, label)]
    if not labels:
        yield f"{says}: check_labels refuses each of the labels {_LABELS}"
    for label in labels:
        z = _refine_grid(loss, label)
        y = np.full(z.size, label)
        values = [loss.value(y, z), loss.derivative(y, z), loss.second_derivative(y, z)]
        if any(v.shape != z.shape or not np.isfinite(v).all() for v in values):
            yield (
                f"{says}: its value and derivatives must be finite numbers at every "
                f"margin for label {label:g}"
            )
            return
        size, within = np.abs(values[1]), "lipschitz_within is exceeded"
        checks = _compare_derivatives(loss, z, *values)
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
                "records, or differs if it is compiled"
            )


def _is_allowed_label(loss: Loss, label: float) -> bool:
    try:
        loss.check_labels(np.array([label]))
    except UsageError:
        return False
    return True


def _refine_grid(loss: Loss, label: float) -> Array:
    """Return the grid around a label, with more points where the slope changes most."""
    z = np.unique(np.concatenate([_GRID, _GRID + label]))
    for _ in range(30):
        widths = np.diff(z)
        changes = np.abs(np.diff(loss.derivative(np.full(z.size, label), z)))
        changes[widths < 1e-6] = 0.0
        # Slopes alone would give a long steep part all cells, and miss a short one.
        near = changes * (widths < 1.0)
        steep = np.argsort(changes / widths)[-PLACES:]
        most = np.unique([*steep, *np.argsort(near)[-PLACES:]])
        # Unique: at a kink the cells shrink to neighbouring numbers.
        z = np.unique(np.insert(z, most + 1, 0.5 * (z[most] + z[most + 1])))
    return z


def _compare_derivatives(
    loss: Loss, z: Array, v: Array, d: Array, dd: Array
) -> list[tuple[str, Array, Any]]:
    """Return each possible fault, with the margins and a mask of where it occurs.

    ``v``, ``d`` and ``dd`` are the values, first and second derivatives of the loss at
    the increasing margins z.
    """
    step, least, most = np.diff(z), np.minimum(d[1:], d[:-1]), np.maximum(d[1:], d[:-1])
    # Rounding errors in differences of values, and of derivatives.
    blur = 1e-12 * np.maximum(np.abs(v[1:]), np.abs(v[:-1])) + 1e-12
    fuzz = 1e-12 * np.maximum(np.abs(least), np.abs(most)) + 1e-12
    G, H, size = loss.lipschitz, loss.smoothness, np.abs(d)
    bend, change, slope = 0.0 if loss.convex else H * step, np.diff(v), np.diff(d)
    low, high = (least - bend - fuzz) * step - blur, (most + bend + fuzz) * step + blur
    above = size > G * ROUNDED
    bent = np.append(slope < -fuzz, False) | (dd < 0.0)
    signs = (d > 0.0) & (d.min() < 0.0)
    return [
        (
            "derivative is not that of the value",
            z[1:],
            (change < low) | (change > high),
        ),
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
        ("it is declared convex, but its derivative decreases", z, bent & loss.convex),
        (
            "it is declared monotone, but its derivative has both signs",
            z,
            signs & loss.monotone,
        ),
    ]


def _each_by_itself(loss: Loss, y: Array, z: Array, expected: Array) -> bool:
    """Return whether the derivative is elementwise, and equal if it is compiled.

    The derivative is computed a second time in a kernel, and on every second record
    alone.
    """
    from dp_erm_bench.kernels.losses import residuals

    compiled, half = np.empty(z.size), slice(None, None, 2)
    residuals(loss, y, z, compiled)
    scale = 1e-9 * (1.0 + np.abs(expected))
    alone = loss.derivative(y[half], z[half])
    same = np.abs(compiled - expected) <= scale
    return bool(same.all() and (np.abs(alone - expected[half]) <= scale[half]).all())


def _check_modulus(penalty: Penalty, p: int) -> None:
    """Raise UsageError if the prox contradicts the modulus m of strong convexity.

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
                f"{says}{m:g} contradicts its prox at step {step:g}, or the penalty is "
                "not convex"
            )


KINDS = ("auto", "public", "data", "private")
SOURCES = ("auto", "declared", "data")
# If both n and p exceed this, the largest eigenvalue is found by Lanczos.
_DENSE_EIGENVALUES = 1000
LEAST = 1e-300
"""Curvatures up to this count as 0, because their inverse, a step, would overflow."""


@dataclass(frozen=True, eq=False)
class Smoothness:
    """Smoothness constants of f(w) = (1/n) sum_i phi(x_i.w, y_i).

    M_j is the constant of coordinate j, and beta is the constant in the euclidean norm.
    H is the smoothness constant of the loss.

    Parameters
    ----------
    kind : {'auto', 'public', 'data'}
        With ``public``, M_j = H R_j^2 and beta = H R_2^2 follow from the declared
        bounds. With ``data``, M_j = H mean_i x_ij^2 and beta = H lambda_max(X'X / n).
        This is a use of the data that no budget pays for. Records whose squares do not
        add up to finite numbers count as zeros. ``auto`` is ``public`` if bounds are
        declared, else ``data``.
    dataset : Dataset
    loss : Loss
    """

    kind: str
    dataset: Dataset
    loss: Loss

    def __post_init__(self) -> None:
        """Resolve ``auto``; raise Unsupported for ``public`` without bounds."""
        if self.kind not in KINDS:
            raise value_error("smoothness", self.kind, f"one of {', '.join(KINDS)}")
        if self.kind == "private":
            raise UsageError(
                "smoothness=private: each fit publishes its own constants, so a "
                "problem without a fit has none; use smoothness=public, or "
                "smoothness=data, which reads the records"
            )
        bounds = self.dataset.bounds
        if self.kind == "public" and bounds is None:
            raise Unsupported(
                f"smoothness=public: dataset {self.dataset.name} declares no bounds; "
                "declare bounds, or use smoothness=data, which reads the records"
            )
        if self.kind == "auto":
            kind = "data" if bounds is None else "public"
            object.__setattr__(self, "kind", kind)

    @property
    def uncharged(self) -> tuple[Uncharged, ...]:
        """Return the use of the data that no budget pays for."""
        return (Uncharged.SMOOTHNESS,) if self.kind == "data" else ()

    @cached_property
    def columns(self) -> Array:
        """Return M_j, the smoothness of each coordinate, shape (p,)."""
        H = self.loss.smoothness
        if self.kind == "public" and self.dataset.bounds is not None:
            return _multiply_by_squares(H, np.square(self.dataset.bounds.columns))
        return _multiply_by_squares(H, compute_once(self.dataset, mean_squares_of))

    @cached_property
    def norm(self) -> float:
        """Return beta, the smoothness in the euclidean norm."""
        H = self.loss.smoothness
        if self.kind == "public" and self.dataset.bounds is not None:
            return float(_multiply_by_squares(H, self.dataset.bounds.norm**2))
        return float(
            _multiply_by_squares(H, compute_once(self.dataset, _largest_eigenvalue))
        )


def _multiply_by_squares(H: float, squares: Array | float) -> Array:
    """Return H times squares; 0 where a square is 0, even for an infinite H.

    Squares whose inverse, a step size, would not be finite count as 0.
    """
    squares = np.asarray(squares)
    return np.multiply(H, squares, out=np.zeros_like(squares), where=squares > LEAST)


def mean_squares_of(X: Any) -> Array:
    """Return mean_i x_ij^2, shape (p,); X is dense or sparse.

    Records whose squares do not add up to finite numbers count as zeros.
    """
    with np.errstate(over="ignore", under="ignore"):
        squares = np.square(X) if isinstance(X, np.ndarray) else X.power(2)
        means = np.asarray(np.asarray(squares.sum(axis=0)) / X.shape[0])
        return (
            means if np.isfinite(means.sum()) else mean_squares_of(zero_overflowing(X))
        )


def squares_add_up(X: Any) -> bool:
    """Return whether the sum of all squared entries, a bound on X'X, is finite."""
    entries = X if isinstance(X, np.ndarray) else X.data
    with np.errstate(over="ignore", under="ignore"):
        return bool(np.isfinite(np.square(entries).sum()))


def zero_overflowing(X: Any) -> Any:
    """Return features with zeros for records whose squares may add up to infinity."""
    most = 0.5 * np.sqrt(np.finfo(np.float64).max / X.shape[0])
    return scale_features(X, rows=record_norms(X) <= most)


def _largest_eigenvalue(X: Any) -> float:
    """Return the largest eigenvalue of X'X / n; see `mean_squares_of` for overflow."""
    n, p = X.shape
    X = X if squares_add_up(X) else zero_overflowing(X)
    side = min(n, p)
    if side <= _DENSE_EIGENVALUES:
        gram = (X.T @ X if p <= n else X @ X.T) / n
        gram = gram if isinstance(gram, np.ndarray) else gram.toarray()
        return float(np.linalg.eigvalsh(gram)[-1])
    if not mean_squares_of(X).any():
        return 0.0
    from scipy.sparse.linalg import LinearOperator, eigsh

    def product(v: Array) -> Array:
        return np.asarray((X.T @ (X @ v) if p <= n else X @ (X.T @ v)) / n)

    # Random: opposite columns make a vector of ones orthogonal to the answer.
    start = np.random.default_rng(0).standard_normal(side)
    operator = LinearOperator((side, side), matvec=product, dtype=np.float64)
    return float(eigsh(operator, k=1, v0=start)[0][0])


@dataclass(frozen=True, eq=False)
class ReleasedSmoothness:
    """Published smoothness constants of B trials, used in place of ``Smoothness``.

    Parameters
    ----------
    columns : array of shape (B, p)
        The smoothness constants M_j of the coordinates, for each trial.
    source : {'declared', 'data'}
        Whether the bounds b_j come from the declared bounds or from the records. The
        b_j bound the terms H x_ij^2 of the mean M_j, see `square_bounds`.
    """

    kind: ClassVar[str] = "private"

    columns: Array
    source: str

    @property
    def norm(self) -> Array:
        """Return sum_j M_j, which is used in place of beta, shape (B, 1).

        The largest eigenvalue of H X'X / n is at most its trace, the sum of the exact
        M_j. Up to the noise of the M_j, the sum is therefore a bound on beta, at most p
        times too large. It is a function of what was published, so it costs no budget.
        It scales only step sizes, and no sensitivity.
        """
        return np.asarray(self.columns.sum(axis=-1, keepdims=True))

    @property
    def uncharged(self) -> tuple[Uncharged, ...]:
        """Return the use of the data that no budget pays for."""
        return (Uncharged.SMOOTHNESS_BOUNDS,) if self.source == "data" else ()


def square_bounds(dataset: Dataset, loss: Loss, source: str) -> tuple[Array, str]:
    """Return the bounds b_j on H x_ij^2, shape (p,), and their source.

    Parameters
    ----------
    dataset : Dataset
    loss : Loss
    source : {'auto', 'declared', 'data'}
        With ``declared``, b_j is H R_j^2. With ``data``, b_j is the largest H x_ij^2,
        as in the figures of the papers. The b_j set the scale of the noise. If the b_j
        count as public numbers, the release is private, because the terms of other
        records are cut off at b_j. In the case ``data``, ``uncharged`` lists
        ``smoothness_bounds``. ``auto`` is ``declared`` if there are bounds, else
        ``data``.

    Raises
    ------
    Unsupported
        For ``declared`` without declared bounds, or a loss without curvature.
    """
    if not loss.is_curved:
        reason = f"loss={loss.name} has no constant to publish"
        raise Unsupported(f"smoothness=private: {reason}")
    H, bounds = loss.smoothness, dataset.bounds
    if bounds is not None and source != "data":
        return H * np.square(bounds.columns), "declared"
    if source == "declared":
        raise Unsupported(
            f"smoothness_bounds=declared: dataset {dataset.name} declares no bounds; "
            "declare bounds, or use smoothness_bounds=data, which reads the records"
        )
    return H * np.square(compute_once(dataset, _largest_squarable)), "data"


def clipped_squares(dataset: Dataset, loss: Loss, bounds: Array) -> Array:
    """Return mean_i min(H x_ij^2, b_j), shape (p,).

    Parameters
    ----------
    dataset : Dataset
    loss : Loss
        H is its smoothness constant.
    bounds : array of shape (p,)
        The b_j of `square_bounds`.
    """
    exact: Array = compute_once(dataset, _clipped_squares, loss.smoothness, bounds)
    return exact


def _clipped_squares(X: Any, H: float, bounds: Array) -> Array:
    n, p = X.shape
    if isinstance(X, np.ndarray):
        pairs = zip(X.T, bounds, strict=True)
        return np.array([np.minimum(H * np.square(x), b).mean() for x, b in pairs])
    columns = np.repeat(np.arange(p), np.diff(X.indptr))
    terms = np.minimum(H * np.square(X.data), bounds[columns])
    return np.asarray(np.bincount(columns, terms, p) / n)


def _largest_squarable(X: Any) -> Array:
    """Return each column's largest absolute value, over records with finite squares."""
    largest = largest_of_columns(X)
    usual = bool(largest.max() <= USUAL[1])
    return largest if usual else largest_of_columns(zero_overflowing(X))


def largest_of_columns(X: Any) -> Array:
    """Return the largest absolute value of each column of a dense or sparse matrix."""
    if not isinstance(X, np.ndarray):
        return np.asarray(abs(X).max(axis=0).toarray().ravel())
    return np.asarray(np.maximum(X.max(axis=0), -X.min(axis=0)))


BOUNDS = ("lipschitz", "record_smoothness", "smoothness", "square_bounds")
"""Attributes on which sensitivities depend, so that a subclass must not set them."""

MOST_FEATURES = 4096
"""Largest number of features for which X'X is computed (128 MB)."""


@dataclass(frozen=True, eq=False)
class ERM:
    """The objective F(w) = (1/n) sum_i phi(x_i.w, y_i) + psi(w) over a convex set.

    Parameters
    ----------
    dataset, loss, penalty, constraint
        The parts of the objective.
    smoothness_kind : {'auto', 'public', 'data'}
        The source of the smoothness constants (:class:`Smoothness`).
    released : ReleasedSmoothness, optional
        Published smoothness constants, which are used instead.

    Attributes
    ----------
    origin : ERM or None
        The problem from which this one differs only in its smoothness constants. None
        for other problems, and for a copy with other parts (``dataclasses.replace``).
    """

    kind: ClassVar[str] = "empirical risk minimisation"

    dataset: Dataset
    loss: Loss
    penalty: Penalty
    constraint: Constraint
    smoothness_kind: str = "auto"
    released: ReleasedSmoothness | None = None
    origin: Self | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that labels and sets fit, and that parts obey their declarations."""
        # No solver runs on a loss that cannot be compiled.
        if self.loss.source and not self.loss.reason_not_compiled:
            check_loss(self.loss)
        self.loss.check_labels(self.dataset.y)
        parts = (self.penalty, self.constraint)
        for part in parts:
            part.check_features(self.p)
            if origin_digest(type(part)):
                check_set(part, self.p, self.dataset.bounds)
        if self.dataset.intercept:
            check_intercept(self.dataset.intercept, self.p, *parts)

    def __init_subclass__(cls) -> None:
        """Raise TypeError if a subclass sets constants that follow from the parts."""
        own = sorted(set(BOUNDS) & set(vars(cls)))
        if own and not cls.__module__.startswith(f"{__package__}."):
            raise TypeError(
                f"{cls.__name__}: {own[0]} must not be overridden, because it follows "
                "from the loss and the domain; for another kind of problem, derive "
                "from problems.base.Problem"
            )

    @property
    def n(self) -> int:
        """Return the number of records."""
        return self.dataset.n

    @property
    def p(self) -> int:
        """Return the number of features."""
        return self.dataset.p

    @property
    def entries(self) -> int:
        """Return the number of stored entries of the features."""
        return int(self.dataset.X.size)

    def by_moments(self, clipped: bool) -> bool:
        """Return whether gradients come from X'X, as in unclipped least squares."""
        small = self.p <= min(self.n, MOST_FEATURES)
        squared = isinstance(self.loss, Squared)
        return squared and small and not clipped and not self.dataset.sparse

    @property
    def is_fixed(self) -> bool:
        """Return whether neither the records nor the parts can be changed in place."""
        records = self.dataset.X, self.dataset.y
        parts = self.loss, self.penalty, self.constraint
        kinds = (getattr(type(one), "__dataclass_params__", None) for one in parts)
        frozen = (kind is not None and kind.frozen for kind in kinds)
        return all(map(is_read_only, records)) and all(frozen)

    @cached_property
    def key(self) -> str:
        """Return the digest of the dataset's content and the objective."""
        contents = [self.loss.source["content"]] if self.loss.source else []
        # Arrays of a user's part in full: numpy shortens long ones, and digits.
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            parts = [*map(repr, (self.loss, self.penalty, self.constraint))]
        return digest_of_json([self.dataset.content_hash, *parts, *contents])

    @property
    def separable(self) -> SeparablePenalty:
        """Return the penalty if it is separable; otherwise raise Unsupported.

        Raises
        ------
        Unsupported
            If the penalty is not separable.
        """
        if not isinstance(self.penalty, SeparablePenalty):
            raise Unsupported(inseparable_sentence(self.penalty))
        return self.penalty

    @cached_property
    def lipschitz(self) -> float:
        """Return a bound, perhaps infinite, on |phi'(x.w, y)| over the domain of w."""
        parts = (self.loss, self.penalty, self.constraint)
        return lipschitz_constant(*parts, self.dataset.bounds)

    @cached_property
    def smoothness(self) -> Smoothness | ReleasedSmoothness:
        """Return the smoothness constants of the data term."""
        if self.released is not None:
            return self.released
        return Smoothness(self.smoothness_kind, self.dataset, self.loss)

    def with_smoothness(self, kind: str) -> Self:
        """Return the same problem with smoothness constants of another source."""
        return self._with_constants(kind, None)

    def with_released(self, constants: ReleasedSmoothness) -> Self:
        """Return the same problem with published smoothness constants."""
        return self._with_constants(constants.kind, constants)

    def _with_constants(self, kind: str, released: ReleasedSmoothness | None) -> Self:
        copy = replace(self, smoothness_kind=kind, released=released)
        origin = self if self.origin is None else self.origin
        object.__setattr__(copy, "origin", origin)
        return copy

    def value(self, w: Array) -> Any:
        """Return F(w): a number for w of shape (p,), shape (B,) for shape (B, p)."""
        w = np.asarray(w, dtype=np.float64)
        losses = self.loss.value(self.dataset.y, w @ self.dataset.X.T)
        return losses.mean(axis=-1) + self.penalty.value(w)

    def gradient(self, w: Array) -> Array:
        """Return the gradient of the mean loss, without penalty, at w, shape (p,)."""
        residual = self.loss.derivative(self.dataset.y, self.dataset.X @ w)
        return np.asarray(self.dataset.X.T @ residual) / self.n

    def start(self, batch: int) -> Array:
        """Return the point of the constraint nearest to zero, repeated to shape (B, p).

        Bounds on derivatives hold only for points in the constraint.
        """
        return self.constraint.project(np.zeros((batch, self.p)))

    def square_bounds(self, source: str) -> tuple[Array, str]:
        """Return the bounds b_j on H x_ij^2, and their source.

        See the function `square_bounds` of this module.
        """
        return square_bounds(self.dataset, self.loss, source)

    def clipped_squares(self, bounds: Array) -> Array:
        """Return mean_i min(H x_ij^2, b_j), shape (p,)."""
        return clipped_squares(self.dataset, self.loss, bounds)

    def largest_records(self) -> tuple[Array, float]:
        """Return max_i |x_ij|, shape (p,), and max_i norm2(x_i), from the data."""
        entries = compute_once(self.dataset, largest_of_columns)
        return entries, float(self.dataset.row_norms.max())

    def hessian(self, w: Array) -> Array:
        """Return the Hessian of the sum (not mean) of the losses at w, shape (p, p)."""
        X, y = self.dataset.X, self.dataset.y
        curvature = self.loss.second_derivative(y, X @ w)
        return np.asarray(X.T @ (X * curvature[:, None]))

    @property
    def record_smoothness(self) -> float:
        """Return H R_2^2, a bound on a record's curvature; 0 if R_2 is not declared."""
        bounds = self.dataset.bounds
        return self.loss.smoothness * bounds.norm**2 if bounds else 0.0

    @cached_property
    def gradient_rms(self) -> float:
        """Return rms_i norm2(grad loss_i(0)), the unit of clipping thresholds.

        This unit is computed from the data. Using it is tuning, for which no budget
        pays.
        """
        y, lengths = self.dataset.y, self.dataset.row_norms
        slopes = self.loss.derivative(y, np.zeros_like(y))
        with np.errstate(over="ignore", under="ignore"):
            rms = np.sqrt(np.mean(np.square(slopes) * np.square(lengths)))
            sizes = np.abs(slopes) * lengths
        if not are_usual(rms):
            finite = np.where(np.isfinite(sizes), sizes, 0.0)
            rms = norm2(finite / math.sqrt(y.size))
        return float(rms)


def lipschitz_constant(
    loss: Loss, penalty: Penalty, constraint: Constraint, bounds: Bounds | None
) -> float:
    """Return a bound on |phi'(x.w, y)| over the domain of w.

    The bound is the loss's own constant if that is finite. Otherwise it holds for
    records within the declared bounds. If |x.w| <= Z over the domain and |y| <= Y, the
    bound for the squared loss is Z + Y. It is infinite if the domain is unbounded, if
    no bounds are declared, or if no bound on the label is declared. Nothing here is
    computed from the data.

    Parameters
    ----------
    loss : Loss
    penalty : Penalty
        The points where the penalty is infinite are not in the domain.
    constraint : Constraint
    bounds : Bounds or None
        Declared bounds on a record.
    """
    if math.isfinite(loss.lipschitz) or bounds is None or bounds.label is None:
        return loss.lipschitz
    margin = min(
        constraint.largest_margin(bounds.columns, bounds.norm),
        penalty.largest_margin(bounds.columns, bounds.norm),
    )
    return loss.lipschitz_within(margin, bounds.label)
