"""The loader of a user's own file: svmlight, npz or csv."""

import io
import os
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import Uncharged, check_width
from dp_erm_bench.datasets.libsvm import BROKEN as UNREADABLE
from dp_erm_bench.datasets.libsvm import UNPACK, decompress_file, parse_svmlight
from dp_erm_bench.datasets.table import Csv, Look, plain_text
from dp_erm_bench.errors import UsageError, place_of, typed_text
from dp_erm_bench.paths import file_digest
from dp_erm_bench.registry import check_choice

Raw = tuple[Any, Any]
FORMATS = ("csv", "npz", "svmlight")
SUFFIXES = {f".{kind}": kind for kind in FORMATS} | dict.fromkeys(
    (".svm", ".libsvm"), "svmlight"
)
BROKEN = (
    *(*UNREADABLE, BadZipFile, LookupError, OverflowError),
    *(NotImplementedError, RuntimeError, MemoryError, SyntaxError),
)
"""Errors that readers raise for a file that is cut off or in another format."""

SPARSE = ("data", "indices", "indptr", "shape")


class File:
    """Loads a file of records in the format svmlight, npz or csv.

    The file may be compressed by bz2, xz or gz. Every format has the options ``path``,
    ``format``, ``p`` and ``set``. With ``format=auto`` the suffix decides the format.
    ``p`` is the number of features. An svmlight file does not show this number if its
    last features are always empty. ``set`` is a label for tables. The options for csv
    are ``label``, ``header``, ``onehot``, ``index``, ``text`` and ``drop``
    (`table.Csv`). The option ``first`` for svmlight is the number of the first feature,
    0 or 1. By default it is 0 if a feature 0 occurs, else 1.

    With ``task=unlabelled`` all columns of a csv are features, an npz needs no ``y``,
    and the labels of svmlight are left out. If an ``intercept`` is added, no column of
    a csv may have the name of an intercept. Whether a column is constant is not
    checked, because the answer would be private.
    """

    covered = ("path", "format")
    """Options that are not part of keys, because the fingerprint covers them."""

    def __call__(
        self,
        path: str | None = None,
        format: str = "auto",  # noqa: A002
        label: str | int | None = None,
        header: str | bool = "auto",
        p: int | None = None,
        set: str | None = None,  # noqa: A002
        intercept: float = 0.0,
        onehot: Any = None,
        index: str | None = None,
        first: int | None = None,
        text: Any = None,
        words: Any = (),
        labelled: bool = True,
        drop: Any = None,
    ) -> Raw:
        """Return raw X and y, where y is 0 if there are no labels.

        Raises
        ------
        UsageError
            If the file does not exist, or is not in its format.
        """
        how = (header, intercept, onehot, index, text, words, drop, labelled)
        csv = Csv(path, label, *how)
        if first not in (None, 0, 1) or isinstance(first, bool):
            raise UsageError(f"dataset.first={first}: must be null, 0 or 1")
        if p is not None and (type(p) is not int or p < 1):
            raise UsageError(f"dataset.p={p}: must be null or an integer >= 1")
        with _read_file(path, format) as (kind, content):
            given = {"onehot": onehot, "index": index, "text": text, "drop": drop}
            for key, value in (given | {"first": first}).items():
                whose = "columns of a csv" if key in given else "features of svmlight"
                if value is not None and not whose.endswith(kind):
                    raise UsageError(
                        f"dataset.{key}={typed_text(value)}: is for the {whose}, "
                        f"{path} is "
                        f"{kind}; leave it out"
                    )
            if kind == "svmlight":
                least = "auto" if first is None else first
                try:
                    return parse_svmlight(content, p=p, first=least)
                except UsageError as error:
                    raise UsageError(f"dataset.path={path}: {error}") from None
            X, y = (
                csv.read_table(content)
                if kind == "csv"
                else parse_npz(content, labelled)
            )
        if p is not None and np.shape(X)[1:] != (p,):
            raise UsageError(
                f"dataset.p={p}: {path} has {np.shape(X)[-1]} features; leave it out"
            )
        return X, y

    def look(
        self,
        path: str | None = None,
        format: str = "auto",  # noqa: A002
        **how: Any,
    ) -> Look:
        """Return a summary of a csv.

        The summary is computed from the records, so it is not private. The options
        ``how`` are those of `Csv`.

        Raises
        ------
        UsageError
            If the file does not exist, or is not a csv.
        """
        with _read_file(path, format) as (kind, content):
            if kind != "csv":
                raise UsageError(f"dataset.path={path}: must be a csv, it is {kind}")
            return Csv(path, **how).look(content)

    def categories(self, onehot: Any = None) -> dict[str, tuple[Any, ...] | None]:
        """Return the categories of each column; None if they are not declared."""
        given = Csv(None, onehot=onehot).categories
        return {k: None if c is None else tuple(c) for k, c in given.items()}

    def uncharged(
        self,
        path: str | None = None,
        format: str = "auto",  # noqa: A002
        header: str | bool = "auto",
        p: int | None = None,
        onehot: Any = None,
        first: int | None = None,
        text: Any = None,
    ) -> tuple[Uncharged, ...]:
        """Return the uses of the data, when the file is read, that no budget pays for.

        Parameters
        ----------
        path : str or None
            Path of the file.
        format : str
            Format of the file; ``auto`` takes it from the suffix.
        header : bool or str
            Whether the first row of a csv names the columns; with ``auto`` its cells
            decide.
        p : int or None
            Number of features; if None, it is read from an svmlight file.
        onehot : mapping, sequence or None
            Columns of categories; categories that are not declared are read from the
            records.
        first : int or None
            Number of the first feature; if None, it is read from an svmlight file.
        text : sequence of str or None
            Columns that are declared to hold text.
        """
        kind = _format_of(Path(path or ""), format)
        csv = Csv(None, onehot=onehot, text=text)
        undeclared = {name for name, c in csv.categories.items() if c is None}
        read = {
            Uncharged.FEATURES: kind == "svmlight" and (p is None or first is None),
            Uncharged.HEADER: kind == "csv" and header == "auto",
            Uncharged.KINDS: not undeclared <= csv.texts,
            Uncharged.CATEGORIES: bool(undeclared),
        }
        return tuple(use for use, taken in read.items() if taken)

    def fingerprint(
        self,
        path: str | None = None,
        format: str = "auto",  # noqa: A002
    ) -> str:
        """Return the format and compression of the file, and the digest of its bytes.

        Raises
        ------
        UsageError
            If the file does not exist or cannot be read, or if its format is not known.
        """
        file = _existing_file(path)
        packed = file.suffix if file.suffix in UNPACK else ""
        kind = _format_of(file, format)
        try:
            return f"{kind}{packed} {file_digest(file)}"
        except OSError as error:
            why = error.strerror or "it is damaged"
            raise UsageError(f"dataset.path={path}: cannot be read, {why}") from None


@contextmanager
def _read_file(path: str | None, format: str) -> Iterator[tuple[str, bytes]]:  # noqa: A002
    """Yield a file's format and content; raise UsageError if it cannot be read."""
    file = _existing_file(path)
    kind = _format_of(file, format)
    try:
        content = decompress_file(file).removeprefix(BOM_UTF8)
        yield kind, plain_text(content) if kind == "csv" else content
    except UsageError:
        raise
    except BROKEN as error:
        text = kind == "csv" and isinstance(error, UnicodeDecodeError)
        why = "its text is not in UTF-8" if text else place_of(error)
        raise UsageError(
            f"dataset.path={path}: is not a whole {kind} file ({why})"
        ) from error


def _existing_file(path: str | None) -> Path:
    if not isinstance(path, str):
        raise UsageError(
            "dataset=file: needs the name of a file, such as dataset.path=data.csv"
        )
    file = Path(os.path.expanduser(path))
    if not file.is_file():
        raise UsageError(f"dataset.path={path}: there is no such file")
    return file


def _format_of(file: Path, kind: str) -> str:
    suffixes = [suffix for suffix in file.suffixes if suffix not in UNPACK]
    if kind == "auto":
        kind = SUFFIXES.get(suffixes[-1].lower(), "") if suffixes else ""
    if not kind:
        raise UsageError(
            f"dataset.path={file}: its suffix tells no format, "
            f"add dataset.format={'|'.join(FORMATS)}"
        )
    check_choice("dataset.format", kind, ["auto", *FORMATS])
    return kind


def parse_npz(content: bytes, labelled: bool = True) -> Raw:
    """Return X and y of an npz archive.

    The archive contains ``y`` and either ``X`` or the arrays ``data``, ``indices``,
    ``indptr`` and ``shape`` of a sparse matrix. These describe its columns, or its rows
    if ``format`` is ``csr``. Duplicate entries are summed, as in scipy
    (`base.as_features`). If ``labelled`` is false, ``y`` is not needed, and the y
    returned is 0.

    Raises
    ------
    UsageError
        If an array is missing, or if there are more features than memory can hold.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    there = {*arrays, *["y"] * (not labelled)}
    if "y" not in there or not ("X" in there or {*SPARSE} <= there):
        raise UsageError(
            f"dataset.path: the npz file holds {', '.join(arrays)}, it must hold y "
            f"and X, or y and {', '.join(SPARSE)}"
        )
    X = arrays["X"] if "X" in there else _sparse_features(arrays)
    return X, arrays["y"] if labelled else np.zeros(X.shape[:1])


def _sparse_features(arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the sparse features that are stored as several arrays of an archive."""
    from scipy.sparse import csc_array, csr_array

    check_width(int(arrays["shape"][1]), "dataset.path: the shape of the npz file")
    form = arrays.get("format", np.array("csc")).astype(str).item()
    check_choice("dataset.path: format of the npz file", form, ["csc", "csr"])
    for name in SPARSE[1:]:
        if (kind := arrays[name].dtype).kind not in "iu":
            raise UsageError(
                f"dataset.path: {name} of the npz file holds {kind}, it must hold "
                "integers"
            )
    make = {"csc": csc_array, "csr": csr_array}[form]
    X = make(tuple(arrays[name] for name in SPARSE[:3]), shape=tuple(arrays["shape"]))
    X.check_format()
    return X


file = File()
