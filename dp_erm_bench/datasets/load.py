"""Load a dataset by its specification."""

import functools
import json
import os
from collections.abc import Mapping
from typing import Any

from dp_erm_bench.datasets.base import Dataset, Features
from dp_erm_bench.datasets.bounds import check_bounds
from dp_erm_bench.datasets.mirror import VARIABLE
from dp_erm_bench.datasets.prepare import prepare
from dp_erm_bench.datasets.spec import Spec, asked, check_spec
from dp_erm_bench.datasets.store import content_hash, load_arrays, save_arrays
from dp_erm_bench.paths import cache_dir, digest

# Part of the prepared arrays' key: raise it when ``prepare`` or a parser changes.
FORMAT = 2


def load_dataset(spec: Mapping[str, Any]) -> Dataset:
    """Return the dataset of a specification, prepared.

    Labels of a classification become -1 and +1; then rows are split, columns
    standardised, records clipped to declared bounds where that is asked for, and
    arrays made float64, column-major and read-only. Prepared arrays of a source that
    has a check-sum are cached on disk and memory-mapped, so that workers share them;
    within a process a dataset is loaded once.

    Parameters
    ----------
    spec : mapping
        The dataset's yaml with overrides applied (``dataset_spec``).

    Raises
    ------
    DataUnavailable
        If the data cannot be had; the message says how to get them.
    UsageError
        If the specification or the data are not what they must be.
    """
    text = json.dumps(spec, sort_keys=True)
    return _load(text, os.environ.get(VARIABLE), str(cache_dir()))


def forget_datasets() -> None:
    """Have the next call of `load_dataset` look at the source again."""
    _load.cache_clear()


@functools.lru_cache(maxsize=16)
def _load(text: str, mirror: str | None, cache: str) -> Dataset:
    given = json.loads(text)
    spec = check_spec(given)
    arrays, content = _prepared(spec)
    X, y, bounds = arrays["X"], arrays["y"], None
    if spec.bounds is not None:
        bounds = spec.bounds.of(spec.name, X.shape[1])
        check_bounds(spec.name, X, y, bounds)
    return Dataset(
        name=spec.name,
        X=X,
        y=y,
        bounds=bounds,
        content_hash=content,
        usual=spec.usual,
        uncharged=spec.recipe.uncharged,
        X_test=arrays.get("X_test"),
        y_test=arrays.get("y_test"),
        w_true=arrays.get("w_true"),
    ).loaded_by(given)


def _prepared(spec: Spec) -> tuple[dict[str, Features], str]:
    # A plain function has none: it makes the data.
    fingerprint = getattr(spec.loader, "fingerprint", None)
    source = fingerprint and asked(fingerprint, spec.options)
    if source is None:
        arrays = _prepare(spec)
        return arrays, content_hash(arrays)
    covered = getattr(spec.loader, "covered", ())
    told = {key: value for key, value in spec.options.items() if key not in covered}
    key = digest([FORMAT, spec.name, source, spec.recipe.key, told])
    found = load_arrays("datasets", key)
    if found is None:
        arrays = _prepare(spec)
        found = arrays, save_arrays("datasets", key, arrays)
    return found


def _prepare(spec: Spec) -> dict[str, Features]:
    return prepare(spec.name, spec.loader(**spec.options), spec.recipe)
