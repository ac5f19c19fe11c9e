"""The real datasets: how each is parsed from a mirror and fetched without one.

Client libraries are imported where they are used: they take a second each.
"""

import io
import os
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dp_erm_bench.datasets import libsvm
from dp_erm_bench.datasets.published import Bundled, Mirrored, Published, Raw

ELECTRICITY_ID = 151
OPENML = "openml/openml.org/api/v1/json/data"
MADELON = ("madelon", "madelon_test")


def _of_sklearn(function: str, **options: Any) -> Raw:
    """Return what a function of ``sklearn.datasets`` returns as X, y."""
    found: Raw = getattr(import_module("sklearn.datasets"), function)(
        return_X_y=True, **options
    )
    return found


def _parse_table(content: bytes) -> Raw:
    """Return the columns of a table with a header; the label's is the last."""
    table = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


def _parse_electricity(content: bytes) -> Raw:
    return _parse_table(content.replace(b"UP", b"1").replace(b"DOWN", b"-1"))


def _fetch_electricity() -> Raw:
    from sklearn.datasets import fetch_openml

    # A frame keeps the day's label 1..7; as an array it would be its code 0..6.
    bunch = fetch_openml(data_id=ELECTRICITY_ID, as_frame=True, n_retries=1)
    up = np.asarray(bunch.target).astype(str) == "UP"
    X = bunch.data.astype(object).to_numpy().astype(np.float64)
    return X, np.where(up, 1.0, -1.0)


def _parse_california(content: bytes) -> Raw:
    table = np.loadtxt(io.BytesIO(content), delimiter=",")
    longitude, latitude, age, rooms, bedrooms, people, households, income, value = (
        table.T
    )
    columns = [
        income,
        age,
        rooms / households,
        bedrooms / households,
        people,
        people / households,
        latitude,
        longitude,
    ]
    return np.column_stack(columns), value / 1e5


def _fetch_madelon() -> Raw:
    parts = [libsvm.fetch(name) for name in MADELON]
    X = np.vstack([np.asarray(X) for X, _ in parts])
    return X, np.concatenate([y for _, y in parts])


def _fetch_mtp() -> Raw:
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml("mtp", version=1, as_frame=True, n_retries=1)
    return bunch.data.to_numpy(np.float64), bunch.target.to_numpy(np.float64)


def _sklearn_has(pattern: str) -> bool:
    """Return whether the cache of sklearn's fetchers has a file of this name."""
    named = os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data"
    return any(Path(named).expanduser().glob(pattern))


def _has_madelon() -> bool:
    return all(map(libsvm.fetched, MADELON))


breast_cancer = Bundled("scikit-learn", partial(_of_sklearn, "load_breast_cancer"))

diabetes = Bundled("scikit-learn", partial(_of_sklearn, "load_diabetes", scaled=False))

electricity = Published(
    "electricity",
    ("electricity",),
    _parse_electricity,
    _fetch_electricity,
    partial(_sklearn_has, f"{OPENML}/{ELECTRICITY_ID}.gz"),
    "https://www.openml.org",
    'python -c "from sklearn.datasets import fetch_openml; '
    f'fetch_openml(data_id={ELECTRICITY_ID})"',
)

california = Published(
    "california",
    ("california_housing",),
    _parse_california,
    partial(_of_sklearn, "fetch_california_housing", n_retries=1),
    partial(_sklearn_has, "cal_housing_py3.pkz"),
    "https://ndownloader.figshare.com",
    'python -c "from sklearn.datasets import fetch_california_housing; '
    'fetch_california_housing()"',
)

madelon = Published(
    "madelon",
    MADELON,
    partial(libsvm.parse_svmlight, p=500),
    _fetch_madelon,
    _has_madelon,
    libsvm.HOST,
    'python -c "from libsvmdata import fetch_dataset; '
    "fetch_dataset('madelon'); fetch_dataset('madelon_test')\"",
)

mtp = Published(
    "mtp",
    ("mtp",),
    _parse_table,
    _fetch_mtp,
    partial(_sklearn_has, f"{OPENML}/list/data_name/mtp/*"),
    "https://www.openml.org",
    'python -c "from sklearn.datasets import fetch_openml; '
    "fetch_openml('mtp', version=1)\"",
)

dorothea = Mirrored("dorothea", ("dorothea",), partial(libsvm.parse_svmlight, p=100000))
mushrooms = Mirrored("mushrooms", ("mushrooms",), partial(libsvm.parse_svmlight, p=112))
news20 = Mirrored(
    "news20", ("news20.multiclass",), partial(libsvm.parse_svmlight, p=62061)
)
