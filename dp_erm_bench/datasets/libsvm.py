"""The sets of libsvmdata: from a mirror, its cache, or the network through it.

libsvmdata reads its home once, when it is imported; looks files up by a name that is
not anchored, and deletes what it finds when it does not find two; writes neither
atomically nor with a check-sum. So a download is made in a folder of its own, and
what arrives is kept in our cache, sealed by its hash.
"""

import copy
import difflib
import functools
import io
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.features import as_features, compact
from dp_erm_bench.datasets.mirror import Mirror, open_mirror
from dp_erm_bench.datasets.published import Published, Raw
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.registry import names

HOST = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
WRONG = {f"w{i}a{part}" for i in (3, 4, 5, 6) for part in ("", "_test")}
"""Names under which libsvmdata 0.5 downloads w1a."""

_NUMBER = rb"[-+]?[\d.]+(?:[eE][-+]?\d+)?"
ROW = re.compile(rb"\s*(?:%b(?:\s+\w+:%b)*\s*)?(?:#.*)?" % (_NUMBER, _NUMBER))

TASKS = {"binary": "classification", "multiclass": "classification"}


def parse_svmlight(*contents: bytes, p: int | None = None, first: int | str = 1) -> Raw:
    """Return the records of svmlight files, one after the other.

    Parameters
    ----------
    *contents : bytes
        Decompressed.
    p : int or None
        Number of features; None: as many as are seen.
    first : int or str
        Number of the first feature, 0 or 1; ``'auto'``: 0 if it is seen.

    Returns
    -------
    X : array or csc_array of shape (n, p)
        Dense if at least half of it is non-zero.
    y : array of shape (n,)
    """
    from scipy.sparse import vstack
    from sklearn.datasets import load_svmlight_file

    how = {"n_features": p, "zero_based": "auto" if first == "auto" else first == 0}
    try:
        found = [load_svmlight_file(io.BytesIO(one), **how) for one in contents]
    except ValueError:
        raise ValueError(_bad_row(contents)) from None
    X = found[0][0] if len(found) == 1 else vstack([X for X, _ in found])
    return compact(X), np.concatenate([y for _, y in found]).astype(np.float64)


def _bad_row(contents: Sequence[bytes]) -> str:
    """Return where files are not svmlight, and nothing of what is there."""
    for content in contents:
        for number, line in enumerate(content.splitlines(), 1):
            if not ROW.fullmatch(line):
                return f"row {number}"
    return "the numbers of its features"


@functools.cache
def catalogue() -> dict[str, Any]:
    """Return the sets of libsvmdata by name; importing it takes a second."""
    from libsvmdata.core import ALL_DATASETS

    return dict(ALL_DATASETS)


def home() -> Path:
    """Return the folder in which libsvmdata keeps its files, without importing it."""
    named = os.environ.get("LIBSVMDATA_HOME") or os.environ.get("XDG_DATA_HOME")
    return (Path(named) if named else Path.home() / "data") / "libsvm"


def _pair(name: str) -> tuple[Path, Path] | None:
    """Return the files of exactly this name in libsvmdata's cache."""
    y = home() / f"{name}_y.npy"
    for X in (home() / f"{name}_X.{suffix}" for suffix in ("npz", "npy")):
        if X.is_file() and y.is_file():
            return X, y
    return None


def fetched(name: str) -> bool:
    """Return whether libsvmdata's cache has a set."""
    return _pair(name) is not None


def fetch(name: str) -> Raw:
    """Return a set from libsvmdata's cache, else download it through libsvmdata."""
    pair = _pair(name)
    X, y = _download(name) if pair is None else _read(*pair)
    return as_features(X), np.asarray(y, dtype=np.float64)


def _read(X: Path, y: Path) -> tuple[Any, Array]:
    from scipy.sparse import load_npz

    read = load_npz if X.suffix == ".npz" else np.load  # neither reads pickles
    return read(X), np.load(y, allow_pickle=False)


def _download(name: str) -> tuple[Any, Array]:
    one = copy.copy(catalogue()[name])
    with tempfile.TemporaryDirectory() as folder:
        one.dataset_dir = Path(folder)
        X, y = one.get_X_y()
    return X, y


def published(name: str, member: str) -> Published:
    """Return where a set of libsvmdata can be had.

    Parameters
    ----------
    name : str
        What the dataset is called here.
    member : str
        What libsvmdata calls it.
    """
    mirror = open_mirror()
    row = None if mirror is None else _row(mirror, member)
    return Published(
        name=name,
        files=(member if row is None else row["name"],),
        parse=functools.partial(parse_svmlight, p=_width(row)),
        fetch=functools.partial(fetch, member),
        fetched=functools.partial(fetched, member),
        host=HOST,
        command='python -c "from libsvmdata import fetch_dataset; '
        f"fetch_dataset('{member}')\"",
    )


def _row(mirror: Mirror, member: str) -> dict[str, str] | None:
    for row in mirror.rows.values():
        if row.get("libsvmdata_name") == member:
            return dict(row)
    return None


def _width(row: dict[str, str] | None) -> int | None:
    width = (row or {}).get("p") or ""
    return int(width) if width.isdecimal() else None


class LibsvmSets:
    """Every set of libsvmdata; the option ``set`` is its name there."""

    def __call__(self, set: str | None = None) -> Raw:  # noqa: A002
        """Return raw X and y of a set.

        Raises
        ------
        UsageError
            If the name is unknown, or its set cannot be used.
        DataUnavailable
            If it cannot be had.
        """
        return self._source(set)()

    def fingerprint(self, set: str | None = None) -> str | None:  # noqa: A002
        """Return a digest of a set's source, None if it has none."""
        return self._source(set).fingerprint()

    def task(self, set: str | None = None) -> str:  # noqa: A002
        """Return the task of a set: classification or regression.

        Raises
        ------
        UsageError
            If there is no such set, or it has several labels per record.
        """
        name = _checked(set)
        found = _kind(name)
        if found == "multilabel":
            raise UsageError(
                f"dataset.name={name}: has several labels per record, must have one"
            )
        return TASKS.get(found, found)

    def _source(self, member: str | None) -> Published:
        name = _checked(member)
        return published(f"libsvm:{name}", name)


def _checked(member: str | None) -> str:
    """Refuse names that libsvmdata does not know, or under which it has another set."""
    if not isinstance(member, str):
        raise UsageError(
            "dataset=libsvm: needs the name of a set of libsvmdata, such as "
            "dataset.name=a9a"
        )
    mirror = open_mirror()
    if mirror is not None and _row(mirror, member) is not None:
        return member
    if member in WRONG:
        raise DataUnavailable(
            f"dataset.name={member}: libsvmdata downloads w1a under this name, so it "
            "cannot be had; use w1a, w2a, w7a or w8a, or dataset=file with a file of "
            "your own"
        )
    if member not in catalogue():
        near = difflib.get_close_matches(member, sorted(catalogue()), 3, 0.0)
        own = f" (write dataset={member})" if member in names("dataset") else ""
        raise UsageError(
            f"dataset.name={member}{own}: is no set of libsvmdata, the nearest are "
            f"{', '.join(near)}"
        )
    return member


def _kind(member: str) -> str:
    mirror = open_mirror()
    row = None if mirror is None else _row(mirror, member)
    if row and row.get("task"):
        return row["task"]
    return str(catalogue()[member].task_name)


libsvm = LibsvmSets()
