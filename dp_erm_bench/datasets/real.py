"""The real datasets, each parsed from a mirror or fetched from its publisher.

Client libraries are imported where they are used, because each takes a second.
"""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dp_erm_bench.datasets import libsvm
from dp_erm_bench.datasets.libsvm import Published, Raw, python_call

ELECTRICITY_ID = 151
MADELON = ("madelon", "madelon_test")


@dataclass(frozen=True)
class Bundled:
    """A dataset that an installed package contains."""

    package: str
    loader: Callable[[], Raw]

    def __call__(self) -> Raw:
        """Return raw X and y."""
        return self.loader()

    def fingerprint(self) -> str:
        """Return the package and its version."""
        return f"{self.package} {version(self.package)}"


def _call_sklearn(function: str, **options: Any) -> Any:
    """Return the result of a function of ``sklearn.datasets``."""
    return getattr(import_module("sklearn.datasets"), function)(**options)


def _sklearn_has(pattern: str) -> bool:
    """Return whether the cache of sklearn's fetchers has a file matching a pattern."""
    named = os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data"
    return any(Path(named).expanduser().glob(pattern))


def _svmlight_parser(p: int) -> Callable[..., Raw]:
    return partial(libsvm.parse_svmlight, p=p)


def _parse_table(content: bytes) -> Raw:
    """Return X and y of a table with a header, whose last column is the label."""
    table = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


def _parse_electricity(content: bytes) -> Raw:
    return _parse_table(content.replace(b"UP", b"1").replace(b"DOWN", b"-1"))


def _fetch_electricity() -> Raw:
    # A frame keeps the labels 1..7 of days; an array would hold their codes 0..6.
    bunch = _call_sklearn(
        "fetch_openml", data_id=ELECTRICITY_ID, as_frame=True, n_retries=1
    )
    up = np.asarray(bunch.target).astype(str) == "UP"
    X = bunch.data.astype(object).to_numpy().astype(np.float64)
    return X, np.where(up, 1.0, -1.0)


def _parse_california(content: bytes) -> Raw:
    table = np.loadtxt(io.BytesIO(content), delimiter=",")
    longitude, latitude, age, rooms, bedrooms, people, homes, income, value = table.T
    means = (rooms / homes, bedrooms / homes, people, people / homes)
    return np.column_stack([income, age, *means, latitude, longitude]), value / 1e5


def _parse_wine(red: bytes, white: bytes) -> Raw:
    """Return the wines of both colours; the last column of X is 1 for red wines."""
    tables = [
        np.loadtxt(io.BytesIO(content), delimiter=";", skiprows=1)
        for content in (red, white)
    ]
    colour = np.repeat([1.0, 0.0], [len(table) for table in tables])
    table = np.vstack(tables)
    return np.column_stack([table[:, :-1], colour]), table[:, -1]


def _parse_communities(content: bytes) -> Raw:
    """Return the columns of the table that lack a value in at most one record.

    The first five columns, which name a place and a fold, are left out. The last column
    is the label. The one record that lacks a value in a remaining column is left out.
    """
    words = np.loadtxt(io.BytesIO(content), delimiter=",", dtype=str)[:, 5:]
    # One record lacks a value in a column in which all others have one.
    words = words[:, (words == "?").sum(axis=0) <= 1]
    table = words[(words != "?").all(axis=1)].astype(np.float64)
    return table[:, :-1], table[:, -1]


def _parse_melting_point(content: bytes) -> Raw:
    """Return the descriptors and the label; a column with a given split is left out."""
    header, _ = content.split(b"\n", 1)
    columns = [*range(header.count(b",") - 1), header.count(b",")]
    table = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1, usecols=columns)
    return table[:, :-1], table[:, -1]


def _fetch_madelon() -> Raw:
    parts = [libsvm.fetch_set(name) for name in MADELON]
    X = np.vstack([np.asarray(X) for X, _ in parts])
    return X, np.concatenate([y for _, y in parts])


def _has_madelon() -> bool:
    return all(map(libsvm.files_in_cache, MADELON))


def _fetch_mtp() -> Raw:
    bunch = _call_sklearn(
        "fetch_openml", name="mtp", version=1, as_frame=True, n_retries=1
    )
    return bunch.data.to_numpy(np.float64), bunch.target.to_numpy(np.float64)


def _openml_dataset(
    name: str, parse: Callable[..., Raw], fetch: Callable[[], Raw], kept: str, call: str
) -> Published:
    """Return a dataset of OpenML; ``kept`` is its file in the cache of sklearn."""
    fetched = partial(_sklearn_has, f"openml/openml.org/api/v1/json/data/{kept}")
    command = python_call("sklearn.datasets", "fetch_openml", call)
    host = "https://www.openml.org"
    return Published(name, (name,), parse, fetch, fetched, host, command)


breast_cancer = Bundled(
    "scikit-learn", partial(_call_sklearn, "load_breast_cancer", return_X_y=True)
)


def _load_digits() -> Raw:
    """Return pixels, divided by the largest possible value 16, and the digits."""
    X, y = _call_sklearn("load_digits", return_X_y=True)
    return X / 16.0, y


digits = Bundled("scikit-learn", _load_digits)

diabetes = Bundled(
    "scikit-learn",
    partial(_call_sklearn, "load_diabetes", return_X_y=True, scaled=False),
)

electricity = _openml_dataset(
    "electricity",
    _parse_electricity,
    _fetch_electricity,
    f"{ELECTRICITY_ID}.gz",
    f"data_id={ELECTRICITY_ID}",
)

california = Published(
    "california",
    ("california_housing",),
    _parse_california,
    partial(_call_sklearn, "fetch_california_housing", return_X_y=True, n_retries=1),
    partial(_sklearn_has, "cal_housing_py3.pkz"),
    "https://ndownloader.figshare.com",
    python_call("sklearn.datasets", "fetch_california_housing", ""),
)

madelon = Published(
    "madelon",
    MADELON,
    _svmlight_parser(500),
    _fetch_madelon,
    _has_madelon,
    libsvm.HOST,
    python_call("libsvmdata", "fetch_dataset", *map(repr, MADELON)),
)

mtp = _openml_dataset(
    "mtp", _parse_table, _fetch_mtp, "list/data_name/mtp/*", "'mtp', version=1"
)

melting_point = Published(
    "melting_point", ("meltingpoint_qsardata",), _parse_melting_point
)
dorothea = Published("dorothea", ("dorothea",), _svmlight_parser(100_000))
communities = Published("communities", ("communities",), _parse_communities)
mushrooms = Published("mushrooms", ("mushrooms",), _svmlight_parser(112))
news20 = Published("news20", ("news20.multiclass",), _svmlight_parser(62_061))
wine = Published("wine", ("winequality_red", "winequality_white"), _parse_wine)
