"""A user's own file: svmlight, npz or csv."""

import io
import lzma
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.intercept import check_names
from dp_erm_bench.datasets.libsvm import parse_svmlight
from dp_erm_bench.datasets.published import DECOMPRESS, decompressed, sha256
from dp_erm_bench.errors import UsageError, place_of, word
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
    csv ``label``, the name or the index of the label's column, else the last one, and
    ``header``, which ``auto`` finds by the first row being text; for svmlight ``p``,
    the number of features where the last ones may be empty; ``set``, a label for
    tables. With ``intercept`` no column of a csv may be called one: whether one is
    constant is not looked up, for that is private.
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
    ) -> Raw:
        """Return raw X and y.

        Raises
        ------
        UsageError
            If there is no such file, or it is not of its format.
        """
        file = _existing(path)
        kind = _format(file, format)
        try:
            content = decompressed(file, file.read_bytes())
            if kind == "csv":
                return parse_csv(content, path, label, header, intercept)
            if kind == "npz":
                return parse_npz(content)
            return parse_svmlight(content, p=p, first="auto")
        except UsageError:
            raise
        except BROKEN as error:
            raise UsageError(
                f"dataset.path={path}: is not a whole {kind} file ({place_of(error)})"
            ) from error

    def fingerprint(self, path: str | None = None) -> str:
        """Return the digest of the file's content."""
        return sha256(_existing(path))


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


def parse_npz(content: bytes) -> Raw:
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


def parse_csv(
    content: bytes,
    path: str | None,
    label: str | int | None,
    header: str | bool,
    intercept: float = 0.0,
) -> Raw:
    """Return X and y of a table of numbers separated by commas.

    Labels may be text, which `records.labels` maps; features may not.

    Raises
    ------
    UsageError
        If a column holds text, there is no such label column, or a second intercept.
    """
    import pandas as pd

    if header not in ("auto", True, False):
        raise UsageError(f"dataset.header={header}: must be auto, true or false")
    first = pd.read_csv(io.BytesIO(content), header=None, nrows=1, dtype=str)
    # A row of which no cell is a number names the columns.
    texts = pd.to_numeric(first.iloc[0], errors="coerce").isna()
    named = bool(texts.all()) if header == "auto" else header
    table = pd.read_csv(
        io.BytesIO(content), header=0 if named else None, skipinitialspace=True
    )
    if not len(table):
        raise UsageError(f"dataset.path={path}: holds no records")
    y = table.pop(_label_column(list(table.columns), label))
    if intercept:
        check_names(table.columns, intercept)
    for column in table.columns:
        if table[column].dtype.kind not in "biuf":
            texts = pd.to_numeric(table[column], errors="coerce").isna()
            row = int(texts.to_numpy().argmax()) + 1 + bool(named)
            raise UsageError(
                f"dataset.path={path}: column {word(column)} holds text in row {row}, "
                "features must be numbers"
            )
    return table.to_numpy(np.float64), y.to_numpy()


def _label_column(columns: list[Any], label: str | int | None) -> Any:
    names = list(map(word, columns))
    label = -1 if label is None else label
    if isinstance(label, int) and -len(columns) <= label < len(columns):
        return columns[label]
    check_choice("dataset.label", str(label), names)
    return columns[names.index(str(label))]


file = File()
