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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import (
    WIDTH,
    Features,
    Uncharged,
    as_features,
    check_width,
)
from dp_erm_bench.datasets.published import (
    MANIFEST,
    Published,
    Raw,
    open_mirror,
    python_call,
)
from dp_erm_bench.errors import DataUnavailable, UsageError, escaped
from dp_erm_bench.registry import names

HOST = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
WRONG = {f"w{i}a{part}" for i in (3, 4, 5, 6) for part in ("", "_test")}
"""Names under which libsvmdata 0.5 downloads w1a."""

NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
INDEX = re.compile(rb"[-+]?\d+", re.ASCII)

DENSE_FROM = 0.5
"""Share of non-zeros from which files that do not say are held dense."""

EMPTY = 0.05
"""Share of features that may be empty at the end of a set of a mirror."""

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

    if p is not None:
        check_width(p, f"dataset.p={p}")
    how = {"n_features": p, "zero_based": "auto" if first == "auto" else first == 0}
    tables = []
    for content in contents:
        # Python reads 1_0 as 10.
        if b"_" in content and (wrong := _wrong_row(content, p, first)):
            raise UsageError(wrong)
        try:
            tables.append(load_svmlight_file(io.BytesIO(content), **how))
        except (ValueError, OverflowError) as error:
            wrong = _wrong_row(content, p, first)
            raise (UsageError(wrong) if wrong else error) from None
    for X, _ in tables:
        rows = f"record {_widest(X)}" if X.nnz else "it"
        check_width(X.shape[1], f"{rows} has the largest feature")
    X = tables[0][0] if len(tables) == 1 else vstack([X for X, _ in tables])
    return compact(X), np.concatenate([y for _, y in tables]).astype(np.float64)


def _widest(X: Any) -> int:
    """Return the record with the largest feature, counted from 1."""
    entry = int(X.indices.argmax())
    return int(np.searchsorted(X.indptr, entry, side="right"))


def _parse_listed(content: bytes, p: int | None) -> Raw:
    """Return the records of a set of a mirror, whose width it lists.

    Raises
    ------
    DataUnavailable
        If the file is wider, or so much narrower that the width must be wrong: the
        last features of a part of a set may be empty, as 4 of 123 of a1a are.
    """
    try:
        X, y = parse_svmlight(content, p=p)
    except UsageError as error:
        listed = f"listed in {MANIFEST} with p={p}" if p else "without p"
        raise DataUnavailable(f"{listed}, and {error}") from None
    used = X.any(axis=0) if isinstance(X, np.ndarray) else np.diff(X.indptr) > 0
    seen = int(np.flatnonzero(used).max(initial=-1)) + 1
    if p is not None and p - seen > EMPTY * p:
        raise DataUnavailable(
            f"listed in {MANIFEST} with p={p}, and its last feature is {seen}; list "
            f"p={seen}, or what the set has"
        )
    return X, y


def compact(X: Any) -> Features:
    """Return features dense if at least half of them are non-zero, else sparse."""
    X = as_features(X)
    if isinstance(X, np.ndarray) or X.nnz < DENSE_FROM * np.prod(X.shape):
        return X
    return np.asfortranarray(X.toarray())


def _wrong_row(content: bytes, p: int | None, first: int | str) -> str:
    """Return what is wrong with the first bad row of a file, and the key that decides.

    Of what the row holds the numbers of its features alone are told.
    """
    least = 0 if first == "auto" else int(first)
    zero, largest, place = False, -1, 0
    for row, line in enumerate(content.splitlines(), 1):
        where, words = f"row {row}", line.partition(b"#")[0].split()
        if words and not NUMBER.fullmatch(words[0]):
            return f"{where}: begins with no number, which its label must be"
        previous = -1
        for entry in words[1:]:
            feature, colon, value = entry.partition(b":")
            if feature == b"qid":
                continue
            if not (colon and INDEX.fullmatch(feature) and NUMBER.fullmatch(value)):
                return f"{where}: holds an entry that is not FEATURE:NUMBER"
            index = int(feature)
            if index < least:
                hint = "; if features count from 0, say dataset.first=0" * (not index)
                return f"{where}: feature {index} is less than {least}, the first{hint}"
            if index <= previous:
                how = "stands twice" if index == previous else f"follows {previous}"
                return (
                    f"{where}: feature {index} {how}; features of a row must increase"
                )
            zero, previous = zero or index == 0, index
        if previous > largest:
            largest, place = previous, row
    base = 0 if zero else (1 if first == "auto" else least)
    if p is not None and largest - base + 1 > p:
        return (
            f"row {place}: feature {largest} is beyond dataset.p={p}, counted from "
            f"{base}; declare dataset.p={largest - base + 1} or more"
        )
    if largest > np.iinfo(np.int32).max:
        needed = WIDTH * largest
        return (
            f"row {place}: has feature {largest}; as many take at least {needed} "
            "bytes, more than can be held"
        )
    return ""


@functools.cache
def catalogue() -> dict[str, Any]:
    """Return the sets of libsvmdata by name; importing it takes a second."""
    from libsvmdata.core import ALL_DATASETS

    return dict(ALL_DATASETS)


def home() -> Path:
    """Return the folder in which libsvmdata keeps its files, without importing it."""
    named = os.environ.get("LIBSVMDATA_HOME") or os.environ.get("XDG_DATA_HOME")
    return (Path(named) if named else Path.home() / "data") / "libsvm"


def _files(name: str) -> tuple[Path, Path] | None:
    """Return the files of exactly this name in libsvmdata's cache."""
    y = home() / f"{name}_y.npy"
    for X in (home() / f"{name}_X.{suffix}" for suffix in ("npz", "npy")):
        if X.is_file() and y.is_file():
            return X, y
    return None


def fetched(name: str) -> bool:
    """Return whether libsvmdata's cache has a set."""
    return _files(name) is not None


def fetch(name: str) -> Raw:
    """Return a set from libsvmdata's cache, else download it through libsvmdata."""
    from scipy.sparse import load_npz

    if files := _files(name):
        # Neither reads pickles.
        X = load_npz(files[0]) if files[0].suffix == ".npz" else np.load(files[0])
        y = np.load(files[1], allow_pickle=False)
    else:
        X, y = _download(name)
    return as_features(X), np.asarray(y, dtype=np.float64)


def _download(name: str) -> tuple[Any, Any]:
    one = copy.copy(catalogue()[name])
    with tempfile.TemporaryDirectory() as folder:
        one.dataset_dir = Path(folder)
        X, y = one.get_X_y()
    return X, y


def _row(member: str) -> Mapping[str, str]:
    """Return a mirror's row of a set of libsvmdata, empty if it has none."""
    mirror = open_mirror()
    rows = [] if mirror is None else mirror.rows.values()
    return next((row for row in rows if row.get("libsvmdata_name") == member), {})


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
        name, row = _checked(set)
        task = row.get("task") or str(catalogue()[name].task_name)
        if task == "multilabel":
            raise UsageError(
                f"dataset.name={name}: has several labels per record, must have one"
            )
        return TASKS.get(task, task)

    def classes(self, set: str | None = None) -> list[float] | None:  # noqa: A002
        """Return the labels that a mirror lists for a set, None if it lists none.

        They stand in its column ``labels``, perhaps with their counts: ``-1:24;1:7``.
        """
        listed = (_checked(set)[1].get("labels") or "").split(";")
        try:
            found = [float(label.partition(":")[0]) for label in listed]
        except ValueError:
            return None
        return found if len(found) > 1 else None

    def uncharged(self, set: str | None = None) -> tuple[Uncharged, ...]:  # noqa: A002
        """Return that a width which is listed nowhere is read off the records."""
        listed = _width(*_checked(set)) is not None
        return () if listed else (Uncharged.FEATURES,)

    def _source(self, member: str | None) -> Published:
        name, row = _checked(member)
        p = _width(name, row)
        return Published(
            name=f"libsvm:{name}",
            files=(row.get("name", name),),
            parse=functools.partial(_parse_listed, p=p),
            fetch=functools.partial(fetch, name),
            fetched=functools.partial(fetched, name),
            host=HOST,
            command=python_call("libsvmdata", "fetch_dataset", repr(name)),
        )


def _width(name: str, row: Mapping[str, str]) -> int | None:
    """Return the number of features that a mirror lists, None if it lists none.

    Raises
    ------
    DataUnavailable
        If it is no number of features.
    """
    listed = (row.get("p") or "").strip()
    if not listed:
        return None
    if not (listed.isascii() and listed.isdecimal() and int(listed)):
        raise DataUnavailable(
            f"dataset libsvm:{name}: listed in {MANIFEST} with p={escaped(listed)}: "
            "must be an integer >= 1, or empty"
        )
    return int(listed)


def _checked(member: str | None) -> tuple[str, Mapping[str, str]]:
    """Return a set's name and its row in a mirror.

    Raises
    ------
    UsageError
        If libsvmdata does not know the name, or has another set under it.
    """
    if not isinstance(member, str):
        raise UsageError(
            "dataset=libsvm: needs the name of a set of libsvmdata, such as "
            "dataset.name=a9a"
        )
    if row := _row(member):
        return member, row
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
    return member, {}


libsvm = LibsvmSets()
