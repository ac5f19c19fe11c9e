"""A user's own file: svmlight, npz or csv."""

import io
import lzma
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import Uncharged
from dp_erm_bench.datasets.libsvm import parse_svmlight
from dp_erm_bench.datasets.published import DECOMPRESS, decompressed, sha256
from dp_erm_bench.datasets.table import Csv, spellings
from dp_erm_bench.errors import UsageError, place_of, shown
from dp_erm_bench.registry import check_choice

Raw = tuple[Any, NDArray[Any]]
FORMATS = ("csv", "npz", "svmlight")
SUFFIXES = {f".{kind}": kind for kind in FORMATS} | dict.fromkeys(
    (".svm", ".libsvm"), "svmlight"
)
BROKEN = (
    *(OSError, EOFError, ValueError, LookupError, OverflowError),
    *(BadZipFile, lzma.LZMAError, zlib.error),
    *(NotImplementedError, RuntimeError, MemoryError, SyntaxError),
)
"""Errors of readers for a file that is cut off or of another format."""

SPARSE = ("data", "indices", "indptr", "shape")


class File:
    """A file of records, svmlight, npz or csv, perhaps packed by bz2, xz or gz.

    The options are: ``path``; ``format``, which ``auto`` takes from the suffix; for
    csv ``label``, ``header``, ``onehot`` and ``index`` (`table.Csv`); for svmlight
    ``p``, the number of features where the last ones may be empty; ``set``, a label
    for tables. With ``task=unlabelled`` all columns of a csv are features, an npz needs
    no ``y``, and labels of svmlight are left out. With ``intercept`` no column of a csv
    may be called one: whether one is constant is not looked up, for that is private.
    """

    covered = ("path",)
    """Options that the content stands for in keys."""

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
        labelled: bool = True,
    ) -> Raw:
        """Return raw X and y, which is 0 where there are no labels.

        Raises
        ------
        UsageError
            If there is no such file, or it is not of its format.
        """
        label = label if labelled else False
        csv = Csv(path, label, header, intercept, onehot, index)
        with _reading(path, format) as (kind, content):
            if kind == "csv":
                return csv.read(content)
            for key, value in (("onehot", onehot), ("index", index)):
                if value is not None:
                    raise UsageError(
                        f"dataset.{key}={shown(value)}: is for the columns of a csv, "
                        f"{path} is {kind}; leave it out"
                    )
            if kind == "npz":
                return parse_npz(content, labelled)
            return parse_svmlight(content, p=p, first="auto")

    def columns(
        self,
        path: str | None = None,
        format: str = "auto",  # noqa: A002
        label: str | int | None = None,
        header: str | bool = "auto",
        onehot: Any = None,
        index: str | None = None,
    ) -> list[str]:
        """Return the names of a csv's features; none for another format."""
        with _reading(path, format) as (kind, content):
            csv = Csv(path, label, header, 0.0, onehot, index)
            return csv.columns(content) if kind == "csv" else []

    def categories(self, onehot: Any = None) -> dict[str, tuple[str, ...] | None]:
        """Return the spelled categories of columns, None where none are declared."""
        given = Csv(None, onehot=onehot).categories
        return {name: None if c is None else spellings(c) for name, c in given.items()}

    def uncharged(self, onehot: Any = None) -> tuple[Uncharged, ...]:
        """Return what is read from the records at no charge: undeclared categories."""
        undeclared = None in Csv(None, onehot=onehot).categories.values()
        return (Uncharged.CATEGORIES,) * undeclared

    def fingerprint(self, path: str | None = None) -> str:
        """Return the digest of the file's content."""
        return sha256(_existing(path))


@contextmanager
def _reading(path: str | None, format: str) -> Iterator[tuple[str, bytes]]:  # noqa: A002
    """Give a file's format and content; refuse it if it is not what it should be."""
    file = _existing(path)
    kind = _format(file, format)
    try:
        yield kind, decompressed(file, file.read_bytes())
    except UsageError:
        raise
    except BROKEN as error:
        raise UsageError(
            f"dataset.path={path}: is not a whole {kind} file ({place_of(error)})"
        ) from error


def _existing(path: str | None) -> Path:
    if not isinstance(path, str):
        raise UsageError(
            "dataset=file: needs the name of a file, such as dataset.path=data.csv"
        )
    file = Path(path).expanduser()
    if not file.is_file():
        raise UsageError(f"dataset.path={path}: there is no such file")
    return file


def _format(file: Path, kind: str) -> str:
    if kind != "auto":
        check_choice("dataset.format", kind, ["auto", *FORMATS])
        return kind
    suffixes = [suffix for suffix in file.suffixes if suffix not in DECOMPRESS]
    if suffixes and suffixes[-1].lower() in SUFFIXES:
        return SUFFIXES[suffixes[-1].lower()]
    raise UsageError(
        f"dataset.path={file}: its suffix tells no format, "
        f"add dataset.format={'|'.join(FORMATS)}"
    )


def parse_npz(content: bytes, labelled: bool = True) -> Raw:
    """Return X and y of an npz archive.

    It has ``y`` and either ``X`` or the parts ``data``, ``indices``, ``indptr``,
    ``shape`` of sparse columns; of sparse rows if ``format`` is ``csr``.

    Raises
    ------
    UsageError
        If an array is missing.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if not labelled and (size := _records(arrays)):
        arrays["y"] = np.zeros(size)
    if "y" not in arrays or not ("X" in arrays or {*SPARSE} <= {*arrays}):
        raise UsageError(
            f"dataset.path: the npz file holds {', '.join(arrays)}, it must hold y "
            f"and X, or y and {', '.join(SPARSE)}"
        )
    if "X" in arrays:
        return arrays["X"], arrays["y"]
    from scipy.sparse import csc_array, csr_array

    rows = arrays.get("format", np.array("csc")).item() in ("csr", b"csr")
    parts = tuple(arrays[name] for name in SPARSE[:3])
    X = (csr_array if rows else csc_array)(parts, shape=tuple(arrays["shape"]))
    X.check_format()
    return X, arrays["y"]


def _records(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the number of records of an archive, 0 if it holds none."""
    if "X" in arrays:
        return int(np.shape(arrays["X"])[0]) if np.ndim(arrays["X"]) else 0
    return int(arrays["shape"][0]) if "shape" in arrays else 0


file = File()
