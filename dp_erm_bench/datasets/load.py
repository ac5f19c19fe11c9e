"""Load a dataset by its specification, from cached arrays if there are any.

This module also makes datasets of a user's own arrays. Cached arrays are written
atomically. When they are read, they are verified and memory-mapped. A sparse matrix is
stored as several arrays, one file each. The hash of the arrays, and the name under
which they are kept, are stored with them. Damaged arrays, or arrays of another name,
are not used.
"""

from __future__ import annotations

import contextlib
import functools
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench import paths
from dp_erm_bench.code_identity import code_digest, module_named
from dp_erm_bench.datasets import base, records
from dp_erm_bench.datasets.base import (
    PARTS,
    Array,
    Bounds,
    Clipping,
    Dataset,
    Feature,
    Features,
    Ranges,
    Uncharged,
    assemble_features,
    feature_parts,
)
from dp_erm_bench.datasets.prepare import (
    DeclaredBounds,
    bound_records,
    check_bounds,
    dataset_from_arrays,
    numbered_features,
    prepare_and_describe,
    prepare_arrays,
    with_bound,
    with_column,
)
from dp_erm_bench.datasets.records import content_hash
from dp_erm_bench.datasets.spec import (
    PUBLIC,
    Spec,
    call_loader,
    check_classes,
    check_spec,
)
from dp_erm_bench.errors import UsageError

VARIABLE = "DP_ERM_BENCH_DATA"
"""Environment variable that names a folder of data files, see `libsvm.Published`."""

SEAL = "content.json"
BROKEN = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, EOFError),
    *(SyntaxError, TokenError, OverflowError, MemoryError, RecursionError),
    *(UserWarning, DeprecationWarning),
)
"""Errors that readers raise for a damaged file."""


def load_dataset(spec: Mapping[str, Any]) -> Dataset:
    """Return the dataset of a specification, prepared.

    The labels of a classification become -1 and +1. Then, if the specification says so,
    rows are split, columns standardised, records clipped to declared bounds and a
    column added for an intercept. The arrays become float64, column-major and
    read-only. If a source has a checksum, its prepared arrays are cached on disk and
    memory-mapped, so that workers share them. A process loads a dataset only once, as
    long as the result of `source_of` stays the same.

    Parameters
    ----------
    spec : mapping
        The dataset's yaml with overrides applied (``dataset_spec``).

    Raises
    ------
    DataUnavailable
        If the data are unavailable; the message says how to get them.
    UsageError
        If the specification or the data are invalid.
    """
    text = json.dumps(spec, sort_keys=True)
    return _load_dataset(text, source_of(spec), str(paths.cache_dir()))


def source_of(spec: Mapping[str, Any]) -> str:
    """Return as JSON everything that determines the records of a specification.

    A dataset and its problems are cached in memory by this text and the specification.
    Prepared arrays are cached on disk by this text and the code of the loader and of
    `prepare_arrays`.

    Returns
    -------
    str
        ``source`` depends on the kind of data. For a user's file it is the SHA-256 of
        the bytes with format and compression. For a published set it covers the SHA-256
        of the files and what the manifest of the mirror says about them. For a package
        it is the version. It is None for generated data, or for data that are not on
        this machine yet. ``options`` are those of the loader, except options that the
        source covers (the path). ``recipe`` contains classes, split, scaling, clipping
        and intercept. ``bounds`` are those by which columns are ordered or mapped.

    Raises
    ------
    DataUnavailable, UsageError
        As `load_dataset` does.
    """
    checked = check_spec(spec)
    # A plain function has no fingerprint: it generates the data.
    fingerprint = getattr(checked.loader, "fingerprint", None)
    covered = getattr(checked.loader, "covered", ())
    bounds = checked.bounds
    decisive = {
        "source": fingerprint and call_loader(fingerprint, checked.options),
        "options": {k: v for k, v in checked.options.items() if k not in covered},
        "recipe": checked.recipe.key,
        "bounds": bounds.key if bounds and bounds.needs_features else None,
    }
    return json.dumps(decisive, sort_keys=True)


@functools.lru_cache(maxsize=16)
def _load_dataset(text: str, source: str, cache: str) -> Dataset:
    fields = json.loads(text)
    spec = check_spec(fields)
    arrays, content, told = _load_prepared(spec, fields, source)
    X, y, bounds, constant = arrays["X"], arrays["y"], None, spec.recipe.intercept
    clipping = ranges = None
    if "share" in told:
        clipping = Clipping(told["share"], tuple(told["columns"]), told["label"])
    names = tuple(name for name, _ in told["features"])
    if spec.bounds is not None:
        p = X.shape[1] - bool(constant)
        declared, ranges = _declared_bounds(
            spec, told["features"] or numbered_features(p)
        )
        bounds = declared.bounds_of(spec.name, p)
        bounds = with_bound(bounds, constant) if constant else bounds
        check_bounds(spec.name, X, y, bounds, lambda: names)
    others: dict[str, Any] = {
        key: arrays.get(key) for key in ("X_test", "y_test", "w_true")
    }
    read = call_loader(getattr(spec.loader, "uncharged", lambda: ()), spec.options)
    uncharged = (*read, *spec.recipe.uncharged)
    others |= {"ranges": ranges, "clipping": clipping, "columns": names}
    others |= {"uncharged": uncharged, "intercept": constant}
    made = Dataset(spec.name, X, y, bounds, content, spec.usual, **others)
    return made.loaded_by(fields, fields.get(PUBLIC) is True)


def _declared_bounds(
    spec: Spec, features: Sequence[Feature]
) -> tuple[DeclaredBounds, Ranges | None]:
    """Return the declared bounds in column order, and the ranges of raw columns."""
    assert spec.bounds is not None
    declared = spec.bounds.bounds_in_order(
        features, indicated=not spec.recipe.standardise
    )
    clip = spec.recipe.clip is not None
    return declared, declared.ranges(spec.name, features, clip)


def _load_prepared(
    spec: Spec, fields: Mapping[str, Any], source: str
) -> tuple[dict[str, Features], str, dict[str, Any]]:
    """Return the prepared arrays, their hash, and the facts of `_prepare_dataset`.

    Raises
    ------
    UsageError
        If the source changed while it was read.
    """
    if json.loads(source)["source"] is None:
        arrays, told = _prepare_dataset(spec)
        return arrays, content_hash(arrays), told
    code = (
        fields["_target_"],
        f"{prepare_arrays.__module__}.{prepare_arrays.__name__}",
    )
    key = paths.digest_of_json([source, *map(_digest_of_preparation, code)])
    if found := _load_stored("datasets", key):
        return found
    arrays, told = _prepare_dataset(spec)
    if source_of(fields) != source:
        raise UsageError(f"dataset {spec.name}: was changed while it was read; repeat")
    return arrays, save_arrays("datasets", key, arrays, told), told


def _digest_of_preparation(dotted: str) -> str:
    """Return the digest of the code that prepares data; empty if there is no file."""
    with contextlib.suppress(LookupError):
        return code_digest([module_named(dotted)])
    return ""


def _prepare_dataset(spec: Spec) -> tuple[dict[str, Features], dict[str, Any]]:
    """Return the prepared arrays, and facts on their features and clipping.

    The facts can be written as JSON. Features have the names in the first row of a csv;
    indicators also have the name of their column. The list of features is empty if they
    have no names.
    """
    raw, recipe = [*spec.loader(**spec.options)], spec.recipe
    features = getattr(raw[0], "attrs", {}).get("features", [])
    # Which columns are dropped depends on the records: the others are numbered.
    if recipe.drop_empty or features == numbered_features(len(features)):
        features = []
    if spec.bounds is not None and not recipe.drop_empty:
        p = np.shape(raw[0])[-1]
        declared, ranges = _declared_bounds(spec, features or numbered_features(p))
        clip = None if recipe.clip is None else declared
        recipe = replace(recipe, clip=clip, ranges=ranges)
    arrays, clipping = prepare_and_describe(spec.name, raw, recipe)
    return arrays, {"features": features, **(asdict(clipping) if clipping else {})}


def save_arrays(
    kind: str, key: str, arrays: Mapping[str, Features], told: Mapping[str, Any] = {}
) -> str:
    """Store named arrays under a key of the cache and return their content hash.

    A full disk is not an error: the next process prepares the arrays again.

    Parameters
    ----------
    kind : str
        Folder of the cache, such as ``datasets``.
    key : str
        Name of the arrays in that folder.
    arrays : mapping from name to features
    told : mapping
        Facts to store as JSON with the arrays; they are not part of the hash.
    """
    folder, content = paths.cache_dir() / kind / key, content_hash(arrays)
    shapes = {k: a.shape for k, a in arrays.items() if not isinstance(a, np.ndarray)}
    # The arrays are used under this name only.
    seal = {"of": f"{kind} {key}", "names": sorted(arrays), "sparse": shapes}
    text = paths.sealed_json(seal | {"content": content, "told": dict(told)})
    with contextlib.suppress(OSError):
        paths.remove_parts(folder)
        for name, array in arrays.items():
            for suffix, part in feature_parts(array).items():
                save = functools.partial(np.save, arr=part, allow_pickle=False)
                paths.write_atomic(folder / f"{name}{suffix}.npy", save, private=True)
        # Written last: a reader that finds the seal finds the arrays, too.
        paths.write_atomic(folder / SEAL, lambda file: file.write(text), private=True)
    return content


def stored_hash(kind: str, key: str) -> str | None:
    """Return the hash of stored arrays, or None; it is verified once per seal."""
    with contextlib.suppress(OSError):
        return _content_hash(
            kind, key, paths.file_digest(paths.cache_dir() / kind / key / SEAL)
        )
    return None


@functools.lru_cache(maxsize=64)
def _content_hash(kind: str, key: str, seal: str) -> str | None:
    found = load_arrays(kind, key)
    return found and found[1]


def load_arrays(kind: str, key: str) -> tuple[dict[str, Features], str] | None:
    """Return the stored arrays, memory-mapped and read-only, and their hash.

    Returns None if no arrays are stored, if their bytes do not have the hash that was
    stored with them, or if they were stored under another name.
    """
    found = _load_stored(kind, key)
    return found and found[:2]


def _load_stored(
    kind: str, key: str
) -> tuple[dict[str, Features], str, dict[str, Any]] | None:
    """Return the results of `load_arrays`, and the facts kept with the arrays."""
    folder = paths.cache_dir() / kind / key
    try:
        if folder.is_dir():
            paths.make_private(folder)
        text = paths.content_of(folder / SEAL, folder)
        seal = paths.unsealed_json(text)
        if seal is None or seal["of"] != f"{kind} {key}":
            return None
        shapes, expected = seal["sparse"], str(seal["content"])
        arrays = {
            name: _read_features(folder / name, shapes.get(name))
            for name in seal["names"]
            if name.isidentifier()
        }
        whole = content_hash(arrays) == expected
    except BROKEN:
        return None
    return (arrays, expected, seal.get("told", {})) if whole else None


def _read_features(path: Path, shape: list[int] | None) -> Features:
    if shape is None:
        return _map_array(path)
    columns = {
        f".{part}": _map_array(path.with_name(f"{path.name}.{part}")) for part in PARTS
    }
    return assemble_features((shape[0], shape[1]), columns)


def _map_array(path: Path) -> NDArray[Any]:
    file = path.with_name(f"{path.name}.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy warns of a header by another program
        return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))


def own_dataset(
    X: Any,
    y: Any,
    *,
    bounds: Bounds | None = None,
    positive: object = None,
    classes: object = None,
    clip_to_bounds: bool = False,
    intercept: float = 0.0,
    classification: bool = False,
    ranges: Ranges | None = None,
    public: bool = False,
) -> Dataset:
    """Return the dataset of a user's own records.

    Parameters
    ----------
    X : array, sparse matrix or DataFrame of shape (n, p)
        Numbers; a sparse matrix stays sparse, a DataFrame names the features.
    y : array of shape (n,)
        Labels, text or numbers.
    bounds : Bounds, optional
        Bounds on the p features and the label.
    positive : label or list of labels, optional
        Labels, text or numbers, that become +1; all others become -1.
    classes : list of labels, optional
        All labels that may occur. Without ``positive`` they must be two numbers, of
        which the larger becomes +1. If None, they are read from y, which `uncharged`
        lists. This also applies to a Series with categories, because these may have
        been read from the data. Without ``positive`` and ``classes``, labels are taken
        as they are, and the loss refuses labels that it does not know.
    clip_to_bounds : bool
        Whether each record is clipped to the bounds.
    intercept : float
        The constant of a last column, which is added after clipping; 0 for none.
    classification : bool
        Whether labels 0 and 1, or booleans, become -1 and +1 if neither ``positive``
        nor ``classes`` is given.
    ranges : Ranges, optional
        Ranges to which features are restricted before clipping; the bounds are those of
        the result.
    public : bool
        Whether the user declares that the records are public.

    Raises
    ------
    UsageError
        If the records are empty, of unequal length or not finite, or break the bounds;
        if ``positive`` names none of the labels or all of them.
    """
    headings = getattr(X, "columns", [None])
    columns = tuple(headings) if all(isinstance(c, str) for c in headings) else ()
    known = records.as_list(classes)
    arrays = {"X": base.as_features(X, copy=True, key="X")}
    arrays["y"], read = _labels_as_numbers(y, positive, known, classification)
    records.check_raw("arrays", arrays["X"], arrays["y"])
    if clip_to_bounds and bounds is None:
        raise UsageError("clip_to_bounds=True: needs bounds to clip to")
    clip = bounds if clip_to_bounds else None
    clipping = bound_records("arrays", arrays, ranges, clip)
    if intercept:
        arrays["X"] = with_column(arrays["X"], intercept)
        bounds = bounds and with_bound(bounds, intercept)
    own: dict[str, Any] = {"bounds": bounds, "columns": columns, "copy": False}
    made = dataset_from_arrays(arrays.pop("X"), arrays["y"], **own)
    uncharged = (Uncharged.CLASSES,) * read
    others: dict[str, Any] = {"ranges": ranges, "clipping": clipping}
    made = replace(made, intercept=intercept, uncharged=uncharged, **others)
    return made.loaded_by(None, public)


def _labels_as_numbers(
    y: Any, positive: object, classes: Any, classification: bool
) -> tuple[Array, bool]:
    """Return labels as numbers, and whether the classes were read from them.

    Labels become -1 and +1 if it is declared which of them become +1. The classes are
    read from the labels in two cases. Either 0 is taken for -1, because only 0 and 1
    occur, or ``positive`` is given without ``classes``.
    """
    if np.ndim(y) != 1:
        raise UsageError(f"y of shape {np.shape(y)}: must be (n,), a label per record")
    if positive is None and classes is None:
        try:
            told = np.array(base.real_numbers("y", y), np.float64)  # a copy
        except UsageError as error:
            words = any(isinstance(one, str) for one in np.ravel(np.asarray(y)))
            hint = "; name what becomes +1, as in positive='yes'" if words else ""
            raise UsageError(f"{error}{hint}") from None
        return records.from_zero(told) if classification else (told, False)
    chosen = records.as_list(positive)
    check_classes("arrays", chosen, classes, prefix="")
    how: dict[str, Any] = {"positive": chosen, "classes": classes}
    found = records.label_numbers(
        "arrays", base.plain_array("y", y), classification=True, **how
    )
    return found, classes is None
