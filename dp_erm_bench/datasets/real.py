"""The real datasets: how each is parsed from a mirror and fetched without one.

Client libraries are imported where they are used: they take a second each.
"""

import io
import os
from pathlib import Path

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.published import Bundled, Published, Raw

ELECTRICITY_ID = 151


def _load_breast_cancer() -> Raw:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return X, y.astype(np.float64)


def _parse_electricity(content: bytes) -> Raw:
    numeric = content.replace(b"UP", b"1").replace(b"DOWN", b"-1")
    table = np.loadtxt(io.BytesIO(numeric), delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


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


def _fetch_california() -> Raw:
    from sklearn.datasets import fetch_california_housing

    X, y = fetch_california_housing(return_X_y=True, n_retries=1)
    return X, y


def _parse_libsvm(*contents: bytes, p: int) -> Raw:
    from sklearn.datasets import load_svmlight_file

    parts = [
        load_svmlight_file(io.BytesIO(content), n_features=p, zero_based=False)
        for content in contents
    ]
    return np.vstack([X.toarray() for X, _ in parts]), _joined([y for _, y in parts])


def _parse_madelon(*contents: bytes) -> Raw:
    return _parse_libsvm(*contents, p=500)


def _fetch_madelon() -> Raw:
    from libsvmdata import fetch_dataset

    parts = [fetch_dataset(name) for name in ("madelon", "madelon_test")]
    return np.vstack([X for X, _ in parts]), _joined([y for _, y in parts])


def _joined(labels: list[Array]) -> Array:
    return np.concatenate(labels).astype(np.float64)


def _sklearn_home() -> Path:
    named = os.environ.get("SCIKIT_LEARN_DATA")
    return Path(named or "~/scikit_learn_data").expanduser()


def _libsvm_home() -> Path:
    named = os.environ.get("LIBSVMDATA_HOME") or os.environ.get("XDG_DATA_HOME")
    return (Path(named) if named else Path.home() / "data") / "libsvm"


def _has_california() -> bool:
    return (_sklearn_home() / "cal_housing_py3.pkz").is_file()


def _has_electricity() -> bool:
    folder = _sklearn_home() / "openml" / "openml.org"
    return (folder / "api/v1/json/data" / f"{ELECTRICITY_ID}.gz").is_file()


def _has_madelon() -> bool:
    files = [f"{name}_X.npy" for name in ("madelon", "madelon_test")]
    return all((_libsvm_home() / file).is_file() for file in files)


breast_cancer = Bundled("scikit-learn", _load_breast_cancer)

electricity = Published(
    "electricity",
    ("electricity",),
    _parse_electricity,
    _fetch_electricity,
    _has_electricity,
    "https://www.openml.org",
    'python -c "from sklearn.datasets import fetch_openml; '
    f'fetch_openml(data_id={ELECTRICITY_ID})"',
)

california = Published(
    "california",
    ("california_housing",),
    _parse_california,
    _fetch_california,
    _has_california,
    "https://ndownloader.figshare.com",
    'python -c "from sklearn.datasets import fetch_california_housing; '
    'fetch_california_housing()"',
)

madelon = Published(
    "madelon",
    ("madelon", "madelon_test"),
    _parse_madelon,
    _fetch_madelon,
    _has_madelon,
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/",
    'python -c "from libsvmdata import fetch_dataset; '
    "fetch_dataset('madelon'); fetch_dataset('madelon_test')\"",
)
