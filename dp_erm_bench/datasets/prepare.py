"""Prepare raw features and labels for an oracle: bounds, scales, intercept.

The intercept is a last column, whose value is a public constant. Its bounds are public,
too, since nothing about it is computed from records. Whether a column of the data is
constant is not checked, because that would be a private fact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_erm_bench import registry
from dp_erm_bench.datasets import base, records
from dp_erm_bench.datasets.base import (
    OFTEN,
    Array,
    Bounds,
    Clipping,
    Dataset,
    Feature,
    Features,
    Ranges,
    Uncharged,
    as_features,
    assemble_features,
    check_nonzeros,
    record_norms,
)
from dp_erm_bench.datasets.records import column_max
from dp_erm_bench.errors import (
    UsageError,
    check_heading,
    quote_heading,
    real_number,
    typed_text,
)
from dp_erm_bench.kernels.lengths import are_usual, norm2, powers_of

KEYS = ["columns", "label", "nonzeros", "norm"]
DEFAULT = "default"
"""Key of the bound on all columns that a mapping by name does not list."""
FILL_IN = "FILL_IN"
"""Placeholder for a bound that the author of a yaml must find."""
SCALE = "scale"
BY_BOUNDS = "bounds"
"""The value of `SCALE` that maps columns by their declared bounds."""
SLACK = 1.0 + 1e-12
"""Factor by which the norm of a record may exceed its bound through rounding."""
MOST_TOLD = 20
"""Largest number of columns that a sentence about the records names."""

WIDE = 0.01
"""A bound is called wide if all records are below this fraction of it."""

NOT_PRIVATE = "(not private: computed from the records)"
CORRECT = (
    "clip records with dataset.clip_to_bounds=true, or correct it by what is known "
    "without the records"
)
BLOCK = 256
"""Number of records that are sorted at once."""
MOST = 1e150
"""The largest allowed bound, so that sums of its squares are finite."""


@dataclass(frozen=True, eq=False)
class DeclaredBounds:
    """Bounds as a yaml states them, before the number of features is known.

    Parameters
    ----------
    columns : array of shape (p,) or ()
        Bounds on the absolute values, one for each column or one for all.
    norm : float or None
        Bound on the norm of a record; None for the norm that the columns imply.
    label : float or None
        Bound on the absolute value of the label.
    nonzeros : int or None
        Bound on the number of non-zeros of a record.
    pairs : array of shape (p, 2) or (2,), or None
        Lowest and highest values, if one of ``columns`` is declared as a range.
    named : mapping or None
        Lowest and highest values of columns by name, until `bounds_in_order` places
        them.
    default : tuple or None
        Lowest and highest value for all columns that are not named.
    scale : bool
        Whether columns are mapped to [-1, 1]; ``norm`` is then a bound on the result.
    groups : tuple
        For each feature, the column whose category the feature indicates; None for a
        number. Empty if there are no indicators, or if they are rescaled.
    """

    columns: Array
    norm: float | None = None
    label: float | None = None
    nonzeros: int | None = None
    pairs: Array | None = None
    named: Mapping[str, tuple[float, float]] | None = None
    default: tuple[float, float] | None = None
    scale: bool = False
    groups: tuple[str | None, ...] = ()

    @property
    def key(self) -> list[Any]:
        """Return the bounds as values that JSON can represent."""
        sparsity = [] if self.nonzeros is None else [self.nonzeros]
        plain = [self.columns.tolist(), self.norm, self.label, *sparsity]
        if not self.needs_features:
            return plain
        pairs = None if self.pairs is None else self.pairs.tolist()
        named = None if self.named is None else sorted(self.named.items())
        return [*plain, pairs, named, self.default, self.scale]

    @property
    def needs_features(self) -> bool:
        """Return whether the bounds depend on the names or order of the columns."""
        return self.named is not None or self.pairs is not None or self.scale

    def bounds_in_order(
        self, features: Sequence[Feature], indicated: bool = True
    ) -> DeclaredBounds:
        """Return bounds in which those given by name are in the order of the features.

        An indicator gets the bound of its column of categories, but at most 1, because
        it is 0 or 1 in every record. This requires ``indicated``, which says that the
        indicators are not rescaled by statistics of the records.

        Raises
        ------
        UsageError
            For a name that no column has, or a column without a bound.
        """
        groups = tuple(column for _, column in features)
        if indicated and groups.count(None) < len(groups):
            return replace(self.bounds_in_order(features, False), groups=groups)
        if self.named is None:
            return self
        there = {name for name, _ in features}
        listed = dict.fromkeys(column or name for name, column in features)
        for name in self.named:
            if name not in there:
                check_heading("dataset.bounds.columns", name, listed)
        pairs, missing = [], []
        for name, column in features:
            own = self.default if column is None else self.named.get(column)
            own = self.named.get(name, own)
            if column is not None:
                most = min(1.0, max(map(abs, own or self.default or (1.0,))))
                own = -most, most
            missing += [name] * (own is None)
            pairs.append(own or (0.0, 0.0))
        if missing:
            declared = ",".join(f"{k}:{_brief_range(v)}" for k, v in self.named.items())
            more = f" and {len(missing) - 1} others" * (len(missing) > 1)
            raise UsageError(
                f"dataset.bounds.columns={{{declared}}}: has no bound for column "
                f"{quote_heading(missing[0])}{more}; add it, or a {DEFAULT} for all "
                "others, "
                f"as in dataset.bounds={{columns:{{...}},{DEFAULT}:1}}"
            )
        return replace(self, named=None, **_bound_arrays(pairs))

    def ranges(
        self, name: str, features: Sequence[Feature], clip: bool
    ) -> Ranges | None:
        """Return the ranges to which raw records are restricted; None for plain bounds.

        Parameters
        ----------
        name : str
            Name of the dataset, for messages.
        features : sequence of Feature
            The p columns in their order.
        clip : bool
            Whether an entry outside its range is clipped. If not, it is refused.

        Raises
        ------
        UsageError
            For a bound of 0 by which a column would be divided.
        """
        if not self.scale and self.pairs is None:
            return None
        p = len(features)
        bounds = self.bounds_of(name, p)
        ends = np.stack([-self.columns, self.columns], -1)
        low, high = np.broadcast_to(
            ends if self.pairs is None else self.pairs, (p, 2)
        ).T
        indicators = np.array([column is not None for _, column in features])
        names = tuple(name for name, _ in features)
        empty = np.flatnonzero((low == high) & ~indicators)
        if self.scale and empty.size:
            raise UsageError(
                f"dataset.bounds.columns of {name}: is 0 for column "
                f"{quote_heading(names[empty[0]])}, must be above 0 where columns are "
                f"divided by their bounds, dataset.{SCALE}={BY_BOUNDS}"
            )
        return Ranges(low, high, indicators, self.scale, clip, bounds, names)

    def bounds_of(self, name: str, p: int) -> Bounds:
        """Return the bounds on the records of a dataset with p features.

        If no norm is declared, R_2 is the norm of the largest possible record. R_2^2 is
        the sum of R_j^2 over the numbers, plus one term for each column of categories:
        the largest min(R_j, 1)^2 of its indicators.

        One term suffices, because each record has only one word in such a column. A
        record with a missing value or with a word of no category is refused. A record
        of zeros (zero_out) has no word. So at most one indicator of the column is 1 and
        all others are 0. This is true of every single record, hence of every record of
        a neighbouring dataset. Clipping to bounds makes no entry larger in absolute
        value. ``scale`` does not change indicators and maps numbers to at most 1. If
        ranges move zeros (a lower end above 0), a record longer than R_2 is shrunk or
        refused (`clip_features`, `check_bounds`). If categories are read from the
        records, a new word in a neighbouring dataset has no indicator and contributes
        0.

        Raises
        ------
        UsageError
            If the number of columns is not p, or is less than ``nonzeros``.
        """
        if self.columns.ndim and self.columns.size != p:
            raise _wrong_length(name, self.columns.size, p)
        most = self.nonzeros
        if most is not None and not (type(most) is int and 1 <= most <= p):
            allowed = f"an integer from 1 to the number of features, {p}"
            raise UsageError(f"dataset.bounds.nonzeros={most}: must be {allowed}")
        columns = np.broadcast_to(1.0 if self.scale else self.columns, p)
        terms = columns
        if self.groups:
            indicators = np.array([one is not None for one in self.groups])
            columns = np.where(indicators, np.minimum(columns, 1.0), columns)
            columns.flags.writeable = False
            largest: dict[str | int, float] = {}
            for j, column in enumerate(self.groups):
                group = j if column is None else column
                largest[group] = max(largest.get(group, 0.0), float(columns[j]))
            terms = np.array([*largest.values()])
        norm = float(norm2(terms)) if self.norm is None else self.norm
        return Bounds(columns, norm, self.label, most)


def declared_by(value: Mapping[str, Any], scale: bool = False) -> DeclaredBounds:
    """Return the bounds that a yaml declares.

    Without ``columns`` each entry is bounded by ``norm``. A bound on a column is a
    number, or a range [low, high]. ``columns`` is a list in the order of the columns,
    or a mapping by their names. In a mapping, ``default`` bounds all other columns.

    Raises
    ------
    UsageError
        For unknown keys, or values that are not bounds.
    """
    keys = set(value) if isinstance(value, Mapping) else set()
    named = bool(keys) and isinstance(value.get("columns"), Mapping)
    if not ({"columns", "norm"} & keys and keys <= {*KEYS, *[DEFAULT] * named}):
        allowed = "null or a mapping with columns or norm, and label, nonzeros"
        more = f", and {DEFAULT} beside columns by name" * (DEFAULT in keys)
        raise UsageError(f"dataset.bounds={typed_text(value)}: must be {allowed}{more}")
    if scale and "columns" not in keys:
        raise UsageError(
            f"dataset.bounds={typed_text(value)}: must have columns, by which they are "
            f"divided, dataset.{SCALE}={BY_BOUNDS}"
        )
    if value.get("nonzeros") == FILL_IN:
        _refuse_unfilled("nonzeros", FILL_IN, "a number of non-zeros")
    others: dict[str, Any] = {"nonzeros": value.get("nonzeros"), "scale": scale}
    given = {key: value[key] for key in keys if value[key] is not None}
    others |= {k: _single_bound(k, given[k]) for k in ("norm", "label") if k in given}
    if named:
        if DEFAULT in given:
            others[DEFAULT] = _range_ends(DEFAULT, given[DEFAULT])
        columns = value["columns"].items()
        found = {
            str(name): _range_ends(f"columns.{name}", one) for name, one in columns
        }
        return DeclaredBounds(np.array(0.0), named=found, **others)
    columns = value["columns" if "columns" in keys else "norm"]
    several = isinstance(columns, list | tuple)
    each = columns if several else [columns]
    plain = {*map(type, each)} == {float}
    bounds = np.array(each if plain else [*map(real_number, each)])
    arrays: dict[str, Any] = {"columns": bounds, "pairs": None}
    if not ((bounds >= 0.0) & (bounds <= MOST)).all():
        arrays = _bound_arrays([_range_ends("columns", one) for one in each])
    array = arrays["columns"] if several else arrays["columns"].reshape(())
    arrays["columns"] = np.asarray(array if "columns" in keys else SLACK * array)
    arrays["columns"].flags.writeable = False
    return DeclaredBounds(**arrays, **others)


def _bound_arrays(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return bounds on columns, and their ranges if one of these is not symmetric."""
    ends = np.array(pairs, np.float64).reshape(-1, 2)
    columns = np.abs(ends).max(axis=1)
    ends.flags.writeable = columns.flags.writeable = False
    even = bool((ends[:, 0] == -ends[:, 1]).all())
    return {"columns": columns, "pairs": None if even else ends}


def _brief_range(ends: tuple[float, float]) -> str:
    """Return a range as a string; for a symmetric range, its bound."""
    low, high = ends
    return f"{high:g}" if low == -high else f"[{low:g},{high:g}]"


def _range_ends(key: str, value: object) -> tuple[float, float]:
    """Return the ends of a declared range; a single bound is a symmetric range."""
    if not isinstance(value, list | tuple):
        bound = _single_bound(key, value)
        return -bound, bound
    if FILL_IN in value:
        _refuse_unfilled(key, typed_text(list(value)), "a range")
    ends = [*map(real_number, value)]
    if not (len(ends) == 2 and -MOST <= ends[0] < ends[1] <= MOST):
        raise UsageError(
            f"dataset.bounds.{key}={typed_text(list(value))}: must be a bound >= 0, or "
            "a "
            f"range [low,high] with low below high, both at most {MOST:g}"
        )
    return ends[0], ends[1]


def _refuse_unfilled(key: str, value: object, what: str) -> None:
    raise UsageError(
        f"dataset.bounds.{key}={value}: must be replaced by {what} that is known "
        "without the records, not computed from them"
    )


def _single_bound(key: str, value: object) -> float:
    """Return a bound, which must be one number; raise UsageError for anything else."""
    if value == FILL_IN:
        what = "a bound on the absolute value"
        what += ", or a range [low,high]," * key.startswith(("columns", DEFAULT))
        _refuse_unfilled(key, FILL_IN, what)
    if isinstance(value, list | tuple):
        raise UsageError(
            f"dataset.bounds.{key} of shape {np.shape(value)}: must be one number"
        )
    bound, most = real_number(value), f", at most {MOST:g}"
    # A bound that was made from a norm includes SLACK, and may be declared again.
    if 0.0 <= bound <= MOST * SLACK:
        return bound
    allowed = f"finite and >= 0{most}"
    if value is not None and not isinstance(value, int | float):
        allowed = f"a finite number >= 0{most}; several must be an array of numbers"
    raise UsageError(f"dataset.bounds.{key}={value}: must be {allowed}")


def _by_caller(
    spec: Mapping[str, Any] | ArrayLike, scale: bool = False
) -> DeclaredBounds:
    """Return the bounds that a caller declares in Python.

    Parameters
    ----------
    spec : mapping, float or array of shape (p,)
        ``columns`` or ``norm``, and optionally ``label`` and ``nonzeros``. A number or
        an array bounds the columns. Without ``columns`` the norm bounds each column.
        Instead of bounds, ``columns`` may contain ranges. It may be a list, or a
        mapping by name with a ``default`` next to it.
    scale : bool
        Whether columns are mapped to [-1, 1] by their bounds.

    Raises
    ------
    UsageError
        For unknown keys, or numbers that are not bounds.
    """
    value = _plain_lists(spec if isinstance(spec, Mapping) else {"columns": spec})
    for key in value:
        registry.check_choice("bounds", key, [*KEYS, DEFAULT])
    if not {"columns", "norm"} & value.keys():
        value["columns"] = None
    return declared_by(value, scale)


def declared_bounds(spec: Mapping[str, Any] | ArrayLike, p: int) -> Bounds:
    """Return the bounds on p features that a caller declares (see `_by_caller`)."""
    return _by_caller(spec).bounds_of("arrays", p)


def bounds_and_ranges(
    spec: Mapping[str, Any] | ArrayLike,
    features: Sequence[Feature],
    scale: str | None,
    clip: bool,
) -> tuple[Bounds, Ranges | None]:
    """Return the bounds that a caller declares, and the ranges for raw records.

    Parameters
    ----------
    spec : mapping, float or array of shape (p,)
        As in `_by_caller`.
    features : sequence of Feature
        The p columns in their order, with their names.
    scale : {'bounds'} or None
        Whether columns are mapped to [-1, 1]; the bounds are those of the result.
    clip : bool
        Whether an entry outside its range is clipped. If not, it is refused.

    Raises
    ------
    UsageError
        For values that are not bounds, or names that no column has.
    """
    if scale not in (None, BY_BOUNDS):
        raise base.dataset_error(SCALE, scale, f"{BY_BOUNDS} or None")
    placed = _by_caller(spec, scale is not None).bounds_in_order(features)
    bounds = placed.bounds_of("arrays", len(features))
    return bounds, placed.ranges("arrays", features, clip)


def _plain_lists(value: Any) -> Any:
    """Return mappings and arrays of any kind as plain mappings and lists."""
    if isinstance(value, Mapping):
        return {key: _plain_lists(one) for key, one in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    return [*map(_plain_lists, value)] if isinstance(value, list | tuple) else value


def spec_of(bounds: Bounds, ranges: Ranges | None) -> dict[str, Any]:
    """Return bounds as a yaml declares them, with the columns in order."""
    if ranges is None:
        return bounds.spec
    ends = np.column_stack([ranges.low, ranges.high]).tolist()
    columns = [high if low == -high else [low, high] for low, high in ends]
    return bounds.spec | {"columns": columns}


def clipping_sentence(clipping: Clipping | None, names: Sequence[str]) -> str:
    """Return a sentence on what clipping changed; empty if it changed nothing."""
    if clipping is None or not clipping.share:
        return ""
    columns = [names[j] for j in clipping.columns]
    listed = _listed_columns(columns, ["label"] * clipping.label)
    beyond = f", more than {100 * OFTEN:g} % beyond the bound of {listed}"
    return (
        f"{_share_in_percent(clipping.share)} of the records are clipped to declared "
        "bounds"
        f"{beyond * bool(listed)} {NOT_PRIVATE}"
    )


def clipping_warning(clipping: Clipping | None, names: Sequence[str]) -> str:
    """Return a warning if more than `OFTEN` of the records are clipped, else ""."""
    often = clipping is not None and clipping.share > OFTEN
    return f"bounds: {clipping_sentence(clipping, names)}" if often else ""


def wide_bounds_sentence(data: Dataset, names: Sequence[str]) -> str:
    """Return a sentence that names the declared bounds far above all records.

    The sentence is empty if there are no such bounds. If a column is mapped from a
    range that is not symmetric, the used part of the range is compared. The sentence
    does not name columns of zeros, columns of sparse records (in which large values may
    be rare), and bounds that only follow from the bound on the norm.
    """
    if (bounds := data.bounds) is None:
        return ""
    reach, ranges = np.array(base.compute_once(data, column_max)), data.ranges
    if ranges is not None and ranges.scaled and isinstance(data.X, np.ndarray):
        shifted = np.flatnonzero((ranges.low != -ranges.high) & ~ranges.indicators)
        reach[shifted] = np.ptp(data.X[:, shifted], axis=0) / 2.0
    wide = _is_wide(reach, bounds.columns) & (bounds.columns <= bounds.norm)
    wide &= not data.sparse
    others = {"norm": (data.row_norms, bounds.norm), "label": (data.y, bounds.label)}
    beside = [
        name
        for name, (values, bound) in others.items()
        if bound is not None and _is_wide(np.abs(values).max(), bound)
    ]
    listed = _listed_columns([names[int(j)] for j in np.flatnonzero(wide)], beside)
    return listed and (
        f"all records are below {100 * WIDE:g} % of the declared bound of {listed}: "
        f"noise for such a bound drowns them {NOT_PRIVATE}"
    )


def _is_wide(largest: Any, bound: Any) -> Any:
    return (largest > 0.0) & (largest < WIDE * bound)


def revealing_features_sentence(data: Dataset, names: Sequence[str]) -> str:
    """Return a sentence that names features equal to the label up to shift and scale.

    The sentence is empty if there are no such features.
    """
    columns = base.compute_once(data, _revealing_columns, data.y)
    listed = _listed_columns([names[int(j)] for j in columns], [])
    return listed and (
        f"the label is {listed}, up to shift and scale; leave it out if "
        f"it is no feature {NOT_PRIVATE}"
    )


def _revealing_columns(X: Features, y: Array) -> Array:
    """Return the columns whose correlation with y is 1 or -1 within rounding."""
    with np.errstate(all="ignore"):
        centred = y - y.mean()
        size = centred @ centred
        if isinstance(X, np.ndarray):
            squares = np.einsum("ij,ij->j", X, X)
        else:
            squares = X.power(2).sum(axis=0)
        spread = squares - X.sum(axis=0) ** 2 / len(y)
        # This test is rough, because values far from 0 cancel. The candidates are
        # then centred and tested again.
        near = (X.T @ centred) ** 2 > 0.99 * np.maximum(spread * size, 0.0)
        near |= spread < 1e-6 * squares
        found = []
        for j in np.flatnonzero(near) if size > 0.0 and len(y) > 2 else ():
            column = X[:, [j]]
            plain = column if isinstance(column, np.ndarray) else column.toarray()
            own = plain.ravel() - plain.mean()
            if abs(own @ centred) > (1.0 - 1e-9) * math.sqrt(own @ own * size):
                found.append(j)
    return np.array(found)


def _listed_columns(columns: Sequence[str], others: Sequence[str]) -> str:
    """Return headings and other names as a string, shortened if there are many."""
    every = [*map(quote_heading, columns), *others]
    return ", ".join([*every[:MOST_TOLD], *["..."] * (len(every) > MOST_TOLD)])


def _share_in_percent(share: float) -> str:
    """Return a share in percent as a string, never rounded to 0 or to 100."""
    text = f"{100.0 * share:.3g}"
    return ("less than 100" if text == "100" and share < 1.0 else text) + " %"


def numbered_features(p: int) -> list[Feature]:
    """Return p features with the names x0, x1, .., for columns without names."""
    return [(f"x{j}", None) for j in range(p)]


def features_in(columns: Any, p: int) -> list[Feature]:
    """Return p features named by a table's headings, or numbered if it has none."""
    names = [] if columns is None else list(columns)
    if len(names) != p or not all(isinstance(name, str) for name in names):
        return numbered_features(p)
    return [(name, None) for name in names]


def _wrong_length(name: str, size: int, p: int) -> UsageError:
    return UsageError(
        f"dataset.bounds.columns of {name}: has {size} values, must have one for each "
        f"of the {p} features: they must be one number or {p}"
    )


def check_bounds(
    name: str,
    X: Features,
    y: Array,
    bounds: Bounds,
    names: Callable[[], Sequence[str]] = tuple,
) -> None:
    """Raise UsageError if bounds have the wrong length, or if a record exceeds them.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    X : array or csc_array of shape (n, p)
    y : array of shape (n,)
    bounds : Bounds
        Declared bounds on the records.
    names : callable
        Returns the names of the columns for messages, as far as they have names.
    """
    if bounds.columns.shape != X.shape[1:]:
        raise _wrong_length(name, bounds.columns.size, X.shape[1])
    for key, what, bound in _broken_bounds(X, y, bounds, names):
        raise UsageError(
            f"dataset.bounds.{key} of {name}: {what} declared bound {bound:g}; "
            f"{CORRECT}"
        )


def _broken_bounds(
    X: Features, y: Array, bounds: Bounds, names: Callable[[], Sequence[str]]
) -> Iterator[tuple[str, str, float]]:
    """Yield key, description and value of each bound that a record exceeds."""
    for column in np.flatnonzero(column_max(X) > bounds.columns):
        known = names()[int(column) : int(column) + 1]
        whose = f"column {quote_heading(known[0])}" if known else f"feature {column}"
        yield "columns", f"{whose} exceeds its", bounds.columns[column]
    if record_norms(X).max() > bounds.norm * SLACK:
        yield "norm", "a record exceeds the", bounds.norm
    if bounds.label is not None and np.abs(y).max() > bounds.label:
        yield "label", "a label exceeds the", bounds.label
    most = bounds.nonzeros
    if most is not None and (found := int(count_nonzeros(X).max())) > most:
        yield "nonzeros", f"a record has {found} non-zeros, more than the", most


def count_nonzeros(X: Features) -> NDArray[np.int64]:
    """Return the number of non-zeros of each record, shape (n,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.count_nonzero(X, axis=1))
    return np.bincount(X.indices, minlength=X.shape[0])


def clip_features(
    X: Features, bounds: Bounds
) -> tuple[Features, NDArray[np.bool], NDArray[np.int64]]:
    """Clip features to bounds, in place.

    Features are clipped one by one. Then all but the largest ``nonzeros`` entries of
    each record become 0, and the record is shrunk to the norm. Each record is clipped
    by itself, which costs no budget.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
        As `as_features` returns them; no other code may use them.
    bounds : Bounds

    Returns
    -------
    X : array or csc_array of shape (n, p)
    changed : array of bool of shape (n,)
        The records that were changed.
    beyond : array of int of shape (p,)
        Number of entries of each column that were beyond the bound on the column.
    """
    changed, beyond = _entries_beyond(X, -bounds.columns, bounds.columns)
    _clip_entries(X, -bounds.columns, bounds.columns)
    if bounds.nonzeros is not None:
        changed |= count_nonzeros(X) > bounds.nonzeros
        X = _keep_largest(X, bounds.nonzeros)
    lengths = record_norms(X)
    outside = lengths > bounds.norm
    odd = outside & ~are_usual(lengths)
    if odd.any():
        # First scale their largest entries to about 1, so that no factor loses digits.
        powers = np.where(odd, powers_of(column_max(X.T)), 0)
        X = scale_features(X, rows=np.ldexp(1.0, -powers), out=X)
        lengths = np.where(odd, record_norms(X), lengths)
    if outside.any():
        shrink = bounds.norm / np.where(outside, lengths, 1.0)
        X = scale_features(X, rows=np.where(outside, shrink, 1.0), out=X)
    return X, changed | outside, beyond


def hold_to_ranges(name: str, X: Features, ranges: Ranges) -> Features:
    """Restrict raw features to declared ranges, and map them to [-1, 1] if scaled.

    The features are changed in place. Each entry is changed by itself, and only by
    declared values, so no budget is spent. x becomes x / R for a range [-R, R], and 2
    (x - low) / (high - low) - 1 for another range. Despite rounding the result is
    within [-1, 1], because subtraction and division are monotone.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    X : array or csc_array of shape (n, p)
        The features; they are changed in place, so no other code may use them.
    ranges : Ranges

    Raises
    ------
    UsageError
        For an entry outside its range, unless it is clipped, or for sparse features
        whose zeros a range would change.
    """
    low, high = ranges.ends
    uneven = low != -high
    sparse = not isinstance(X, np.ndarray)
    if sparse and uneven.any():
        j = int(uneven.argmax())
        raise UsageError(
            f"dataset.bounds.columns of {name}: the range [{low[j]:g},{high[j]:g}] of "
            f"column {quote_heading(ranges.names[j])} is not symmetric, must be a "
            "bound on "
            "the absolute value where features are sparse, or hold them dense with "
            "dataset.densify=true"
        )
    if ranges.clip:
        _clip_entries(X, low, high)
    elif (beyond := _entries_beyond(X, low, high)[1]).any():
        j = int(beyond.argmax())
        what = f"range [{low[j]:g},{high[j]:g}]" if uneven[j] else f"bound {high[j]:g}"
        raise UsageError(
            f"dataset.bounds.columns of {name}: column "
            f"{quote_heading(ranges.names[j])} "
            f"exceeds its declared {what}; {CORRECT}"
        )
    if ranges.scaled:
        entries: Any = X.data if sparse else X
        entries /= _of_entries(X, np.where(np.isinf(high) | uneven, 1.0, high))
        for j in map(int, np.flatnonzero(uneven)):
            X[:, j] = 2.0 * ((X[:, j] - low[j]) / (high[j] - low[j])) - 1.0
    return X


def _of_entries(X: Features, columns: Array) -> Array:
    """Return one value per column in a form that can be combined with features."""
    if isinstance(X, np.ndarray):
        return columns
    return np.repeat(columns, np.diff(X.indptr))


def _clip_entries(X: Features, low: Array, high: Array) -> None:
    """Clip the entries of each column, in place."""
    entries = X if isinstance(X, np.ndarray) else X.data
    np.clip(entries, _of_entries(X, low), _of_entries(X, high), out=entries)


def _entries_beyond(
    X: Features, low: Array, high: Array
) -> tuple[NDArray[np.bool], NDArray[np.int64]]:
    """Return a mask of the records with an entry out of range, and counts by column."""
    n, p = X.shape
    entries = X if isinstance(X, np.ndarray) else X.data
    outside = entries < _of_entries(X, low)
    outside |= entries > _of_entries(X, high)
    if isinstance(X, np.ndarray):
        return np.asarray(outside.any(axis=1)), np.count_nonzero(outside, axis=0)
    rows = np.zeros(n, bool)
    rows[X.indices[outside]] = True
    columns = np.searchsorted(X.indptr, np.flatnonzero(outside), side="right") - 1
    return rows, np.bincount(columns, minlength=p)


def bound_records(
    name: str,
    arrays: dict[str, Features],
    ranges: Ranges | None,
    clip: Bounds | None,
) -> Clipping | None:
    """Restrict features to ranges, clip records to bounds, and return what was clipped.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    arrays : dict
        ``X``, ``y`` and perhaps ``X_test``, ``y_test``. They are replaced or changed in
        place, so no other code may use them.
    ranges : Ranges or None
        None means that features are not restricted to ranges.
    clip : Bounds or None
        None means that records are not clipped.

    Raises
    ------
    UsageError
        As `hold_to_ranges` does.
    """
    keys = sorted({"X", "X_test"} & arrays.keys(), reverse=True)
    raw = None
    if ranges is not None:
        raw = _entries_beyond(arrays["X"], *ranges.ends) if ranges.clip else None
        for key in keys:
            arrays[key] = hold_to_ranges(name, arrays[key], ranges)
    if clip is None:
        return None
    for key in keys:
        arrays[key], changed, beyond = clip_features(arrays[key], clip)
    if raw is not None:
        changed, beyond = changed | raw[0], raw[1]
    most, often = OFTEN * changed.size, False
    bound = clip.label
    if bound is not None:
        labels = np.abs(arrays["y"]) > bound
        changed, often = changed | labels, bool(np.count_nonzero(labels) > most)
        for key in {"y", "y_test"} & arrays.keys():
            arrays[key] = np.clip(arrays[key], -bound, bound)
    columns = tuple(np.flatnonzero(beyond > most).tolist())
    return Clipping(float(changed.mean()), columns, often)


def map_features(name: str, X: Features, within: Ranges | Bounds) -> Features:
    """Return raw features in the form of the records that a model was fitted to.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    X : array, sparse matrix or DataFrame of shape (n, p)
        The raw features; they are copied, not changed.
    within : Ranges or Bounds
        Ranges to which the records were restricted, or bounds to which they were
        clipped.

    Raises
    ------
    UsageError
        As `hold_to_ranges` does.
    """
    X = as_features(X, copy=True)
    if isinstance(within, Ranges):
        X = hold_to_ranges(name, X, within)
        if not within.clip:
            return X
        within = within.bounds
    return clip_features(X, within)[0]


def scale_features(
    X: Features,
    *,
    rows: Array | None = None,
    columns: Array | None = None,
    out: Any = None,
) -> Features:
    """Return the features times a factor per record or per column.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
    rows : array of shape (n,), optional
        A factor for each record.
    columns : array of shape (p,), optional
        A factor for each column; used if there are no ``rows``.
    out : Features, optional
        X itself, to change it in place.
    """
    factors: Any
    if rows is None:
        assert columns is not None
        factors = _of_entries(X, columns)
    else:
        factors = rows[:, None] if isinstance(X, np.ndarray) else rows[X.indices]
    if isinstance(X, np.ndarray):
        return np.multiply(X, factors, out=out)
    data = np.multiply(X.data, factors, out=None if out is None else out.data)
    return base.assemble_features(X.shape, base.feature_parts(X) | {".data": data})


def _keep_largest(X: Features, most: int) -> Features:
    """Set all but the largest entries of each record to 0, in place, and return X.

    Of equal entries the first ones stay. Records are sorted in blocks, because sorting
    all of them at once takes several times their memory.
    """
    if isinstance(X, np.ndarray):
        for start in range(0, len(X), BLOCK):
            rows = X[start : start + BLOCK]
            order = np.argsort(-np.abs(rows), axis=1, kind="stable")
            np.put_along_axis(rows, order[:, most:], 0.0, axis=1)
        return X
    # The positions of the entries by record: those that are dropped become 0 in place.
    entry = np.arange(X.nnz, dtype=np.int32)
    by_row = assemble_features(
        X.shape, base.feature_parts(X) | {".data": entry}
    ).tocsr()
    for start in range(0, X.shape[0], BLOCK):
        ends = by_row.indptr[start : start + BLOCK + 1]
        entry = by_row.data[ends[0] : ends[-1]]
        row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        order = np.lexsort((-np.abs(X.data[entry]), row))  # a stable sort
        goes = order[np.arange(entry.size) - (ends[:-1] - ends[0])[row] >= most]
        X.data[entry[goes]] = 0.0
    X.eliminate_zeros()
    return X


KEY = "intercept"
NAMES = (KEY, "const", "constant", "bias")
"""Names that tables give to a column of ones."""


def with_column(X: Features, constant: float) -> Features:
    """Return features with an additional last column that is constant.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
    constant : float
    """
    n, p = X.shape
    if isinstance(X, np.ndarray):
        wider = np.empty((n, p + 1), order="F")
        wider[:, :p], wider[:, p] = X, constant
        return wider
    check_nonzeros(X.nnz + n)
    ends = np.append(X.indptr, np.array([X.nnz + n], np.int32))
    rows = np.append(X.indices, np.arange(n, dtype=np.int32))
    data = np.append(X.data, np.full(n, constant))
    return assemble_features(
        (n, p + 1), {".data": data, ".indices": rows, ".indptr": ends}
    )


def with_bound(bounds: Bounds, constant: float) -> Bounds:
    """Return the exact bounds on records to which `with_column` added a constant."""
    columns = np.append(bounds.columns, constant)
    columns.flags.writeable = False
    norm, most = float(np.hypot(bounds.norm, constant)), bounds.nonzeros
    return Bounds(columns, norm, bounds.label, most if most is None else most + 1)


def check_names(columns: Iterable[Any], constant: float) -> None:
    """Raise UsageError if a column of a table is named like the intercept to be added.

    Raises
    ------
    UsageError
        Naming the column.
    """
    for column in columns:
        if str(column).strip("() ").casefold() in NAMES:
            raise UsageError(
                f"dataset.{KEY}={constant:g}: column {quote_heading(column)} of the "
                "file is "
                "one by its name; leave one of the two out"
            )


@dataclass(frozen=True, eq=False)
class Recipe:
    """The steps that prepare raw data as a dataset.

    Parameters
    ----------
    classification : bool
        Whether labels become -1 and +1.
    positive : sequence or None
        Labels that become +1. None means the larger label of a usual pair, or of the
        classes.
    standardise : bool or str
        Whether columns get mean 0 and variance 1; ``'scale'`` divides them by their
        root mean square, which keeps zeros.
    test_fraction : float
        Share of the records that is held out.
    seed : int
        Seed of the split.
    drop_empty : bool
        Whether columns are dropped that have no non-zero among the training records.
    densify : bool
        Whether sparse features become a dense array.
    clip : DeclaredBounds or None
        Bounds to which records are clipped, after columns are rescaled.
    classes : sequence or None
        All labels that may occur, as declared. None means that they are read from the
        records.
    labelled : bool
        Whether there are labels; if not, all labels are 0.
    ranges : Ranges or None
        Ranges to which features are restricted, and by which they are mapped, before
        clipping.
    intercept : float
        The constant of a last column, which is added after all other steps; 0 for none.
    label_unit : float
        Divisor of the labels of a regression.
    """

    classification: bool = True
    positive: Sequence[Any] | None = None
    standardise: bool | str = False
    test_fraction: float = 0.0
    seed: int = 0
    drop_empty: bool = False
    densify: bool = False
    clip: DeclaredBounds | None = None
    intercept: float = 0.0
    labelled: bool = True
    classes: Sequence[Any] | None = None
    ranges: Ranges | None = None
    label_unit: float = 1.0

    @property
    def words(self) -> list[str]:
        """Return the declared labels if they are strings, else an empty list."""
        given = [*(self.classes or ()), *(self.positive or ())]
        key = "dataset.classes" if self.classes else "dataset.positive"
        return records.distinct_words(given, key) if records.are_words(given) else []

    @property
    def key(self) -> list[Any]:
        """Return the values that identify a recipe, in a form for JSON."""
        clip = None if self.clip is None else self.clip.key
        # The order of classes has no meaning.
        classes = self.classes and sorted(map(records.label_spelling, self.classes))
        apart = ("clip", "ranges", "classes")
        others = [value for key, value in vars(self).items() if key not in apart]
        return [clip, classes, *others]

    @property
    def uncharged(self) -> tuple[Uncharged, ...]:
        """Return the steps that use private records and that no budget pays for."""
        steps = {
            Uncharged.CLASSES: self.classification and self.classes is None,
            Uncharged.STANDARDISATION: self.standardise,
            Uncharged.DROPPED_COLUMNS: self.drop_empty,
        }
        return tuple(step for step, taken in steps.items() if taken)


def split_masks(
    n: int, test_fraction: float, seed: int
) -> tuple[NDArray[np.bool], NDArray[np.bool]]:
    """Return boolean masks of the training and of the test records.

    The choice is random and public. Its random stream differs from that of a generated
    dataset with the same seed.

    Parameters
    ----------
    n : int
        Number of records.
    test_fraction : float
        Share of the records that is held out.
    seed : int
        Seed of the choice, at least 0.
    """
    rng = np.random.default_rng([seed, 1])
    test = np.zeros(n, dtype=bool)
    test[rng.permutation(n)[: round(n * test_fraction)]] = True
    return ~test, test


def prepare_arrays(
    name: str, raw: Sequence[Any], recipe: Recipe
) -> dict[str, Features]:
    """Return the arrays of a dataset, prepared by a recipe.

    This is the first result of `prepare_and_describe`.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    raw : sequence
        X, y and perhaps the true parameter.
    recipe : Recipe
    """
    return prepare_and_describe(name, [*raw], recipe)[0]


def prepare_and_describe(
    name: str, raw: list[Any], recipe: Recipe
) -> tuple[dict[str, Features], Clipping | None]:
    """Return the arrays of a dataset, prepared by a recipe, and what clipping changed.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    raw : list
        X of shape (n, p), dense or sparse, y of shape (n,) and, if it is known, the
        true parameter of shape (p,). X is removed from the list, because only a copy of
        X is needed.
    recipe : Recipe

    Returns
    -------
    dict
        ``X``, ``y``; ``X_test``, ``y_test`` if there is a split; ``w_true`` if it is
        known and columns are not rescaled.
    Clipping or None
        What clipping changed in the training records; None if they are not clipped.
    """
    arrays = {"X": as_features(raw.pop(0), copy=True)}
    own, *others = raw
    y = base.plain_array(f"dataset {name}: y", own)
    records.check_raw(name, arrays["X"], y)
    if recipe.densify and not isinstance(arrays["X"], np.ndarray):
        arrays["X"] = arrays["X"].toarray(order="F")
    column = getattr(own, "name", None)  # if it is a Series
    whose = name if column is None else f"{name}, column {quote_heading(column)}"
    how: dict[str, Any] = {"classification": recipe.classification}
    how |= {"positive": recipe.positive, "classes": recipe.classes}
    y = records.label_numbers(whose, y, **how) if recipe.labelled else np.zeros(y.shape)
    arrays["y"] = y / recipe.label_unit
    if recipe.test_fraction:
        arrays |= _split_arrays(name, arrays, recipe)
    # The true parameter belongs to columns that are not rescaled.
    is_rescaled = recipe.ranges is not None and recipe.ranges.scaled
    if others and not (recipe.standardise or is_rescaled):
        arrays["w_true"] = np.array(others[0], dtype=np.float64)
    if recipe.drop_empty:
        arrays |= _without_empty(name, arrays)
    if recipe.standardise:
        _rescale_columns(name, arrays, recipe.standardise)
    p, declared = arrays["X"].shape[1], recipe.clip
    clip = None if declared is None else declared.bounds_of(name, p)
    clipping = bound_records(name, arrays, recipe.ranges, clip)
    if recipe.intercept:
        for key in {"X", "X_test"} & arrays.keys():
            arrays[key] = with_column(arrays[key], recipe.intercept)
        if "w_true" in arrays:
            arrays["w_true"] = np.append(arrays["w_true"], 0.0)
    return {
        key: freeze_features(as_features(arrays.pop(key))) for key in [*arrays]
    }, clipping


def _split_arrays(
    name: str, arrays: Mapping[str, Features], recipe: Recipe
) -> dict[str, Features]:
    X, y = arrays["X"], arrays["y"]
    train, test = split_masks(y.size, recipe.test_fraction, recipe.seed)
    if not (train.any() and test.any()):
        raise UsageError(
            f"dataset.test_fraction={recipe.test_fraction}: of the {y.size} records of "
            f"{name} it must leave at least one to train and one to test on"
        )
    found: dict[str, Features] = {"y": y[train], "y_test": y[test]}
    for key, rows in (("X", train), ("X_test", test)):
        # Dense features are selected so that the result is column-major.
        dense = isinstance(X, np.ndarray)
        found[key] = np.compress(rows, X.T, axis=1).T if dense else as_features(X[rows])
    return found


def _without_empty(name: str, arrays: Mapping[str, Features]) -> dict[str, Features]:
    """Return the features and `w_true` without the columns that are empty in X."""
    X = arrays["X"]
    filled = X.any(axis=0) if isinstance(X, np.ndarray) else np.diff(X.indptr) > 0
    if not filled.any():
        raise UsageError(f"dataset.drop_empty=True: every column of {name} is empty")
    keys = {"X", "X_test", "w_true"} & arrays.keys()
    return {key: as_features(arrays[key][..., filled]) for key in keys}


def _rescale_columns(name: str, arrays: dict[str, Features], how: bool | str) -> None:
    """Standardise the columns of features in place, or divide them by their RMS.

    Division keeps zeros, so that sparse features stay sparse.

    Raises
    ------
    UsageError
        If sparse features would have to be centred.
    """
    within = [arrays[key] for key in ("X", "X_test") if key in arrays]
    if how == "scale":
        in_usual_units(*within)
        rms = np.sqrt(mean_squares(within[0]))
        factor = _safe_inverse(rms, rms > 0.0)
        for Z in within:
            scale_features(Z, columns=factor, out=Z)
        return
    if not isinstance(within[0], np.ndarray):
        raise UsageError(
            f"dataset.standardise=True: {name} is sparse and centring would fill it; "
            "divide by the root mean square instead with dataset.standardise=scale, "
            "which reads the records as this does, or hold it dense with "
            "dataset.densify=true"
        )
    standardise_columns(*within)


def standardise_columns(X: Array, *others: Array) -> list[Array]:
    """Shift and scale X and others in place by the statistics of X, and return all.

    Columns of X get mean 0 and (population) variance 1. A column that is constant up to
    rounding becomes exactly 0, so it has no influence; the number of features stays as
    declared.
    """
    in_usual_units(X, *others)
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    rounding = np.finfo(np.float64).eps * np.sqrt(X.shape[0]) * column_max(X)
    factor = _safe_inverse(deviation, deviation > rounding)
    for Z in (X, *others):
        Z -= mean
        Z *= factor
    return [X, *others]


def in_usual_units(X: Features, *others: Features) -> None:
    """Rescale the columns of X and of others in place, so that X can be squared.

    A column is multiplied by a power of 2 if its largest entry in X is an extremely
    large or small float. No other column is changed.
    """
    largest = column_max(X)
    odd = ~are_usual(largest) & (largest > 0.0)
    units = np.ldexp(1.0, np.where(odd, -powers_of(largest), 0))
    for Z in (X, *others) if odd.any() else ():
        scale_features(Z, columns=units, out=Z)


def mean_squares(X: Features) -> Array:
    """Return the mean of the squares of each column, shape (p,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.square(X).mean(axis=0))
    squares = base.assemble_features(
        X.shape, base.feature_parts(X) | {".data": X.data**2}
    )
    means: Array = np.asarray(squares.mean(axis=0)).ravel()
    return means


def _safe_inverse(values: Array, usable: NDArray[np.bool]) -> Array:
    return np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)


def freeze_features(X: Features) -> Features:
    """Make features read-only and return them; no other code may use them."""
    for part in base.feature_parts(X).values():
        array: Any = part
        # Scipy holds views, so their bases must be read-only, too.
        while isinstance(array, np.ndarray):
            array.flags.writeable = False
            array = array.base
    return X


def dataset_from_arrays(
    X: Features,
    y: Array,
    *,
    name: str = "arrays",
    bounds: base.Bounds | None = None,
    usual: base.Usual | None = None,
    columns: tuple[str, ...] = (),
    copy: bool = True,
) -> Dataset:
    """Return a dataset of arrays, which are checked and become read-only.

    Labels are not mapped, and the loss refuses labels that it does not know. A sparse
    matrix stays sparse.

    Parameters
    ----------
    X : array, sparse matrix or DataFrame of shape (n, p)
    y : array of shape (n,)
    name : str
        Name of the dataset.
    bounds : Bounds or None
        Declared bounds, which the records must keep.
    usual : Usual or None
        The objective used when loss and penalty are ``auto``.
    columns : tuple of str
        Names of the features; empty if they have none.
    copy : bool
        Whether arrays are copied. If not, no other code may use them.

    Raises
    ------
    UsageError
        If arrays are empty, of unequal length or not finite, or exceed the bounds.
    """
    X, y = (freeze_features(as_features(one, copy)) for one in (X, y))
    records.check_raw(name, X, y)
    if bounds is not None:
        check_bounds(name, X, y, bounds, lambda: columns)
    content = records.content_hash({"X": X, "y": y})
    return Dataset(name, X, y, bounds, content, usual, columns=columns)
