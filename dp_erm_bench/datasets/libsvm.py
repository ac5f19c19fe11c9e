"""Load published data from a mirror, our cache, or the publisher's client.

``DP_ERM_BENCH_DATA`` names a mirror: a folder that is read before any network access.
Its ``MANIFEST.csv`` has at least the columns ``name``, ``file`` and ``sha256`` (of the
file as it is stored). Files ending in ``.bz2``, ``.xz`` or ``.gz`` are decompressed.
The columns ``libsvmdata_name``, ``p``, ``task`` and ``labels`` describe a file as a set
of libsvmdata.

libsvmdata determines its home folder only once, when it is imported. It finds files by
a pattern that may match other files, and deletes the files that it finds unless there
are two. It writes neither atomically nor with a checksum. So each download gets its own
folder, and the data are then kept in our cache with their hash.
"""

from __future__ import annotations

import bz2
import contextlib
import copy
import csv
import difflib
import functools
import gzip
import io
import lzma
import os
import re
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import (
    Array,
    Features,
    Uncharged,
    as_features,
    check_width,
)
from dp_erm_bench.datasets.load import VARIABLE, load_arrays, save_arrays, stored_hash
from dp_erm_bench.errors import DataUnavailable, UsageError, escape_line, place_of
from dp_erm_bench.paths import digest_of_json, file_digest, open_inside
from dp_erm_bench.registry import names

Raw = tuple[Features, Array]

MANIFEST = "MANIFEST.csv"
PATIENCE = 10.0
UNPACK: Mapping[str, Callable[[bytes], bytes]]
UNPACK = {".bz2": bz2.decompress, ".xz": lzma.decompress, ".gz": gzip.decompress}
"""The function that decompresses a file, by the suffix of the file."""

BROKEN = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)
"""Errors that readers raise for a file that is cut off or packed in another way."""


@dataclass(frozen=True)
class MirrorFolder:
    """The files that the manifest of a mirror lists.

    Parameters
    ----------
    folder : Path
        The folder of the mirror.
    rows : mapping from name to row
        Rows of the manifest, with at least ``file`` and ``sha256``.
    """

    folder: Path
    rows: Mapping[str, Mapping[str, str]]

    def verify(self, name: str) -> str:
        """Return the SHA-256 of a file, after checking it against the manifest.

        Raises
        ------
        DataUnavailable
            If the file is missing, truncated or altered, or outside of the mirror.
        """
        file, expected = self.rows[name]["file"], self.rows[name]["sha256"]
        try:
            with open_inside(self.folder / file, self.folder):
                actual = file_digest(self.folder / file)
        except (OSError, ValueError) as error:
            raise DataUnavailable(
                f"dataset file {file} is listed in {self.folder / MANIFEST} but "
                f"cannot be read ({getattr(error, 'strerror', 'it is no path')}): "
                f"restore it, or unset {VARIABLE}"
            ) from error
        if actual != expected:
            raise DataUnavailable(
                f"dataset file {self.folder / file} does not have the SHA-256 that "
                f"{MANIFEST} lists ({actual[:12]}, not {expected[:12]}): it is "
                f"truncated or altered; restore it, or unset {VARIABLE}"
            )
        return actual

    def read_content(self, name: str) -> bytes:
        """Return the verified, decompressed content of a file."""
        self.verify(name)
        path = self.folder / self.rows[name]["file"]
        try:
            return decompress_file(path)
        except BROKEN as error:
            raise DataUnavailable(
                f"dataset file {path}: cannot be unpacked ({place_of(error)})"
            ) from error


def decompress_file(path: Path) -> bytes:
    """Return the content of a file, decompressed if its suffix is one of `UNPACK`."""
    return UNPACK.get(path.suffix, bytes)(path.read_bytes())


def open_mirror() -> MirrorFolder | None:
    """Return the mirror that the environment names, or None if it names none.

    Raises
    ------
    DataUnavailable
        If the environment names a folder without a readable manifest.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).expanduser()
    with contextlib.suppress(OSError, KeyError, ValueError, csv.Error):
        rows = _manifest_rows(folder, file_digest(folder / MANIFEST))
        if all(row["file"] and row["sha256"] for row in rows.values()):
            return MirrorFolder(folder, rows)
    raise DataUnavailable(
        f"{VARIABLE}={named}: must name a folder with a {MANIFEST} that has the "
        f"columns name, file and sha256 in every row"
    )


@functools.lru_cache(maxsize=4)
def _manifest_rows(folder: Path, content: str) -> Mapping[str, Mapping[str, str]]:
    """Return the rows of a manifest by name; ``content`` is the manifest's digest."""
    text = (folder / MANIFEST).read_bytes().decode()
    return {row["name"]: row for row in csv.DictReader(io.StringIO(text, newline=""))}


@dataclass(frozen=True)
class Published:
    """A published dataset, read from a mirror or through the publisher's client.

    Parameters
    ----------
    name : str
        Name of the dataset in this package.
    files : sequence of str
        Names of its files in a mirror's manifest.
    parse : callable
        Makes X and y from the decompressed contents of the files.
    fetch : callable or None
        Gets X and y through the publisher's client; None if only a mirror has the data.
    fetched : callable
        Returns whether the client has the data in its own cache.
    host : str
        Address that is tried first, so that a machine without network fails at once.
    command : str
        The command line that fills the client's cache.
    """

    name: str
    files: Sequence[str]
    parse: Callable[..., Raw]
    fetch: Callable[[], Raw] | None = None
    fetched: Callable[[], object] = bool
    host: str = ""
    command: str = ""

    def fingerprint(self) -> str | None:
        """Return a digest of the source; None if the data are not on this machine.

        Nothing is downloaded.

        Raises
        ------
        DataUnavailable
            If the files of the mirror do not match its manifest.
        """
        if mirror := self._mirror_of_all_files():
            # The suffix says how a file is compressed.
            suffixes = [Path(mirror.rows[one]["file"]).suffix for one in self.files]
            return digest_of_json([suffixes, *map(mirror.verify, self.files)])
        return stored_hash("raw", self._file_key) if self.fetch else None

    def __call__(self) -> Raw:
        """Return raw X and y from the mirror, an earlier download, or a new download.

        Raises
        ------
        DataUnavailable
            If the data are unavailable or damaged; the message says how to get them.
        """
        if mirror := self._mirror_of_all_files():
            contents = [*map(mirror.read_content, self.files)]
            try:
                return self.parse(*contents)
            except (ValueError, IndexError, EOFError) as error:
                why = (
                    f"its file is not of the format it should have ({place_of(error)})"
                )
                told = error if isinstance(error, UsageError) else why
                raise DataUnavailable(f"dataset {self.name}: {told}") from error
        if self.fetch and (found := load_arrays("raw", self._file_key)):
            return found[0]["X"], found[0]["y"]
        if self.fetch is None:
            raise self._unavailable_error("it is in no mirror here")
        if not self.fetched() and not is_reachable(self.host):
            raise self._unavailable_error(f"{self.host} cannot be reached")
        try:
            X, y = self.fetch()
        except DataUnavailable:
            raise
        except Exception as error:
            why = f"the download failed with {type(error).__name__}"
            raise self._unavailable_error(why) from error
        save_arrays("raw", self._file_key, {"X": as_features(X), "y": as_features(y)})
        return X, y

    @property
    def _file_key(self) -> str:
        return self.name.replace(":", "-")

    def _mirror_of_all_files(self) -> MirrorFolder | None:
        """Return the mirror if it lists all files."""
        mirror = open_mirror()
        return mirror if mirror and {*self.files} <= mirror.rows.keys() else None

    def _unavailable_error(self, reason: str) -> DataUnavailable:
        network = f", or run with network access: {self.command}" * bool(self.command)
        return DataUnavailable(
            f"dataset {self.name} cannot be had ({reason}): set {VARIABLE} to a folder "
            f"whose {MANIFEST} lists {' and '.join(self.files)}{network}"
        )


def python_call(module: str, function: str, *calls: str) -> str:
    """Return a command line that calls a Python function once for each of ``calls``.

    Each of ``calls`` is the text of the arguments of one call.
    """
    lines = "; ".join(f"{function}({arguments})" for arguments in calls)
    return f'python -c "from {module} import {function}; {lines}"'


@functools.cache
def is_reachable(host: str) -> bool:
    """Return whether an address answers within 10 s; it is tried once per process."""
    request = urllib.request.Request(host, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


HOST = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
WRONG = {f"w{i}a{part}" for i in (3, 4, 5, 6) for part in ("", "_test")}
"""Names of sets for which libsvmdata 0.5 downloads w1a instead."""

NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
ENTRY = re.compile(rb"([-+]?\d+):" + NUMBER.pattern, re.ASCII)

DENSE_FROM = 0.5
"""Share of non-zeros from which features are stored as a dense array.

This does not hold for files that decide it themselves.
"""

EMPTY = 0.05
"""Largest share of a set's listed features that may be empty at the end."""

DECIDED = "which dataset.p is unless it is declared"

TASKS = {"binary": "classification", "multiclass": "classification"}


def parse_svmlight(*contents: bytes, p: int | None = None, first: int | str = 1) -> Raw:
    """Return the records of one or more svmlight files, in the order of the files.

    Parameters
    ----------
    *contents : bytes
        Contents of the files, decompressed.
    p : int or None
        Number of features; None means as many as occur.
    first : int or str
        Number of the first feature, 0 or 1; ``'auto'`` means 0 if a feature 0 occurs,
        else 1.

    Returns
    -------
    X : array or csc_array of shape (n, p)
        Dense if at least half of the entries are non-zero.
    y : array of shape (n,)
    """
    from scipy.sparse import vstack
    from sklearn.datasets import load_svmlight_file

    if p is not None:
        check_width(p, f"dataset.p={p}")
    how = {"n_features": p, "zero_based": "auto" if first == "auto" else first == 0}
    tables = []
    for content in contents:
        if b"_" in content:  # Python reads 1_0 as 10
            _check_rows(content, p, first)
        try:
            tables.append(load_svmlight_file(io.BytesIO(content), **how))
        except (ValueError, OverflowError):
            _check_rows(content, p, first)
            raise
    for X in [X for X, _ in tables if X.nnz]:
        widest = np.searchsorted(X.indptr, X.indices.argmax(), side="right")
        check_width(X.shape[1], f"record {widest} has the largest feature, {DECIDED}")
    X = tables[0][0] if len(tables) == 1 else vstack([X for X, _ in tables])
    return compact_features(X), np.concatenate([y for _, y in tables]).astype(
        np.float64
    )


def _parse_listed(content: bytes, p: int | None) -> Raw:
    """Return the records of a set in a mirror, with as many features as it lists.

    Raises
    ------
    DataUnavailable
        If the file has more features than listed, or so many fewer that the listed
        number must be wrong. The last features of a part of a set may be empty, as are
        4 of 123 in a1a.
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


def compact_features(X: Any) -> Features:
    """Return features, dense if at least half of them are non-zero, else sparse."""
    X = as_features(X)
    if isinstance(X, np.ndarray) or X.nnz < DENSE_FROM * np.prod(X.shape):
        return X
    return np.asfortranarray(X.toarray())


def _check_rows(content: bytes, p: int | None, first: int | str) -> None:
    """Raise UsageError for the first wrong row of a file, or for too many features.

    Raises
    ------
    UsageError
        The message names numbers of features in the row, but no other content of it.
    """
    least = 0 if first == "auto" else int(first)
    zero, largest, place = False, -1, 0
    for row, line in enumerate(content.splitlines(), 1):
        label, *entries = line.partition(b"#")[0].split() or [b"0"]
        if not NUMBER.fullmatch(label):
            raise UsageError(
                f"row {row}: begins with no number, which its label must be"
            )
        previous = -1
        for entry in entries:
            if entry.startswith(b"qid:"):
                continue
            if not (found := ENTRY.fullmatch(entry)):
                raise UsageError(
                    f"row {row}: holds an entry that is not FEATURE:NUMBER"
                )
            index, what = int(found[1]), ""
            if index < least:
                what = f"is less than {least}, the first"
                what += "; if features count from 0, say dataset.first=0" * (not index)
            elif index <= previous:
                how = "stands twice" if index == previous else f"follows {previous}"
                what = f"{how}; features of a row must increase"
            if what:
                raise UsageError(f"row {row}: feature {index} {what}")
            zero, previous = zero or index == 0, index
        if previous > largest:
            largest, place = previous, row
    base = 0 if zero else (1 if first == "auto" else least)
    if p is not None and largest - base + 1 > p:
        raise UsageError(
            f"row {place}: feature {largest} is beyond dataset.p={p}, counted from "
            f"{base}; if more are known without the records, declare "
            f"dataset.p={largest - base + 1} or more"
        )
    check_width(largest, f"row {place}: has feature {largest}, {DECIDED}")


@functools.cache
def libsvm_catalogue() -> dict[str, Any]:
    """Return the sets of libsvmdata by name.

    They are looked up when needed, because importing libsvmdata takes a second.
    """
    from libsvmdata.core import ALL_DATASETS

    return dict(ALL_DATASETS)


def libsvm_home() -> Path:
    """Return the folder in which libsvmdata keeps its files, without importing it."""
    named = os.environ.get("LIBSVMDATA_HOME") or os.environ.get("XDG_DATA_HOME")
    return (Path(named) if named else Path.home() / "data") / "libsvm"


def files_in_cache(name: str) -> tuple[Path, Path] | None:
    """Return the files of exactly this name in libsvmdata's cache, or None."""
    y = libsvm_home() / f"{name}_y.npy"
    for X in (libsvm_home() / f"{name}_X.{suffix}" for suffix in ("npz", "npy")):
        if X.is_file() and y.is_file():
            return X, y
    return None


def fetch_set(name: str) -> Raw:
    """Return a set from libsvmdata's cache; if it is not there, download it."""
    from scipy.sparse import load_npz

    if files := files_in_cache(name):
        # Neither reads pickles.
        X = load_npz(files[0]) if files[0].suffix == ".npz" else np.load(files[0])
        y = np.load(files[1], allow_pickle=False)
    else:
        X, y = _download_set(name)
    return as_features(X), np.asarray(y, dtype=np.float64)


def _download_set(name: str) -> tuple[Any, Any]:
    one = copy.copy(libsvm_catalogue()[name])
    with tempfile.TemporaryDirectory() as folder:
        one.dataset_dir = Path(folder)
        return one.get_X_y()  # type: ignore[no-any-return]


class LibsvmSets:
    """The loader of all sets of libsvmdata; the option ``set`` is the name of a set."""

    def __call__(self, set: str | None = None) -> Raw:  # noqa: A002
        """Return raw X and y of a set.

        Raises
        ------
        UsageError
            If the name is unknown, or its set cannot be used.
        DataUnavailable
            If the data cannot be obtained.
        """
        return self._source_of(set)()

    def fingerprint(self, set: str | None = None) -> str | None:  # noqa: A002
        """Return a digest of a set's source and width; None without a source."""
        found = self._source_of(set).fingerprint()
        return found and digest_of_json([found, _listed_width(*_check_member(set))])

    def task(self, set: str | None = None) -> str:  # noqa: A002
        """Return the task of a set: classification or regression.

        Raises
        ------
        UsageError
            If the set does not exist, or has several labels per record.
        """
        name, row = _check_member(set)
        task = row.get("task") or str(libsvm_catalogue()[name].task_name)
        if task == "multilabel":
            raise UsageError(
                f"dataset.name={name}: has several labels per record, must have one"
            )
        return TASKS.get(task, task)

    def classes(self, set: str | None = None) -> list[float] | None:  # noqa: A002
        """Return the labels that a mirror lists for a set; None if it lists none.

        The manifest has them in its column ``labels``, perhaps with counts:
        ``-1:24;1:7``.
        """
        listed = (_check_member(set)[1].get("labels") or "").split(";")
        try:
            found = [float(label.partition(":")[0]) for label in listed]
        except ValueError:
            return None
        return found if len(found) > 1 else None

    def uncharged(self, set: str | None = None) -> tuple[Uncharged, ...]:  # noqa: A002
        """Return an uncharged use of the data if a file decides the number p."""
        listed = _listed_width(*_check_member(set)) is not None
        return () if listed else (Uncharged.FEATURES,)

    def _source_of(self, member: str | None) -> Published:
        name, row = _check_member(member)
        p = _listed_width(name, row)
        return Published(
            name=f"libsvm:{name}",
            files=(row.get("name", name),),
            parse=functools.partial(_parse_listed, p=p),
            fetch=functools.partial(fetch_set, name),
            fetched=functools.partial(files_in_cache, name),
            host=HOST,
            command=python_call("libsvmdata", "fetch_dataset", repr(name)),
        )


def _listed_width(name: str, row: Mapping[str, str]) -> int | None:
    """Return the number of features that a mirror lists; None if it lists none.

    Raises
    ------
    DataUnavailable
        If the listed value is not a number of features.
    """
    listed = (row.get("p") or "").strip()
    if not listed:
        return None
    if not (listed.isascii() and listed.isdecimal() and int(listed)):
        raise DataUnavailable(
            f"dataset libsvm:{name}: listed in {MANIFEST} with "
            f"p={escape_line(listed)}: "
            "must be an integer >= 1, or empty"
        )
    return int(listed)


def _check_member(member: str | None) -> tuple[str, Mapping[str, str]]:
    """Return a set's name and its row in a mirror's manifest, {} if it is not listed.

    Raises
    ------
    UsageError
        If libsvmdata does not know the name.
    DataUnavailable
        If libsvmdata has another set under the name.
    """
    if not isinstance(member, str):
        raise UsageError(
            "dataset=libsvm: needs the name of a set of libsvmdata, such as "
            "dataset.name=a9a"
        )
    mirror = open_mirror()
    for row in mirror.rows.values() if mirror else ():
        if row.get("libsvmdata_name") == member:
            return member, row
    if member in WRONG:
        raise DataUnavailable(
            f"dataset.name={member}: libsvmdata downloads w1a under this name, so it "
            "cannot be had; use w1a, w2a, w7a or w8a, or dataset=file with a file of "
            "your own"
        )
    if member not in libsvm_catalogue():
        near = difflib.get_close_matches(member, sorted(libsvm_catalogue()), 3, 0.0)
        own = f" (write dataset={member})" if member in names("dataset") else ""
        raise UsageError(
            f"dataset.name={member}{own}: is no set of libsvmdata, the nearest are "
            f"{', '.join(near)}"
        )
    return member, {}


libsvm = LibsvmSets()
