"""A folder of data files with their check-sums, read before any network.

``DP_ERM_BENCH_DATA`` names the folder. Its ``MANIFEST.csv`` has at least the
columns ``name``, ``file`` and ``sha256`` (of the file as it lies there); files
ending in ``.bz2``, ``.xz`` or ``.gz`` are decompressed. ``libsvmdata_name``, ``p``
and ``task`` make a file a set of libsvmdata.
"""

import bz2
import csv
import functools
import gzip
import hashlib
import io
import lzma
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.paths import LARGEST, content_of, opened

VARIABLE = "DP_ERM_BENCH_DATA"
MANIFEST = "MANIFEST.csv"
_DECOMPRESS = {".bz2": bz2.decompress, ".xz": lzma.decompress, ".gz": gzip.decompress}


@dataclass(frozen=True)
class Mirror:
    """The files that a mirror folder lists.

    Parameters
    ----------
    folder : Path
        Where they lie.
    rows : mapping from name to row
        What the manifest says: at least ``file`` and ``sha256``.
    """

    folder: Path
    rows: Mapping[str, Mapping[str, str]]

    def verify(self, name: str) -> str:
        """Return the SHA-256 of a file that exists and has the one it should.

        Raises
        ------
        DataUnavailable
            If the file is missing, truncated or altered, or outside of the mirror.
        """
        file, expected = self.rows[name]["file"], self.rows[name]["sha256"]
        try:
            with opened(self.folder / file, self.folder):
                found = sha256(self.folder / file)
        except (OSError, ValueError) as error:
            raise DataUnavailable(
                f"dataset file {file} is listed in {self.folder / MANIFEST} but "
                f"cannot be read ({getattr(error, 'strerror', 'it is no path')}): "
                f"restore it, or unset {VARIABLE}"
            ) from error
        if found != expected:
            raise DataUnavailable(
                f"dataset file {self.folder / file} does not have the SHA-256 that "
                f"{MANIFEST} lists ({found[:12]}, not {expected[:12]}): it is "
                f"truncated or altered; restore it, or unset {VARIABLE}"
            )
        return found

    def read(self, name: str) -> bytes:
        """Return the verified, decompressed content of a file."""
        self.verify(name)
        path = self.folder / self.rows[name]["file"]
        return decompressed(path.suffix, content_of(path, self.folder, LARGEST))


def decompressed(suffix: str, content: bytes) -> bytes:
    """Return the content of a file by its suffix; others than these are as they are."""
    return _DECOMPRESS.get(suffix, bytes)(content)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, computed again only if it changed."""
    status = path.stat()
    return _sha256(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=64)
def _sha256(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_mirror() -> Mirror | None:
    """Return the mirror that the environment names, or None if it names none.

    Raises
    ------
    DataUnavailable
        If it names a folder without a readable manifest.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).expanduser()
    try:
        text = content_of(folder / MANIFEST, folder).decode()
        lines = io.StringIO(text, newline="")
        rows = {row["name"]: row for row in csv.DictReader(lines)}
        complete = all(row["file"] and row["sha256"] for row in rows.values())
    except (OSError, KeyError, ValueError, csv.Error) as error:
        raise _unreadable(named) from error
    if not complete:
        raise _unreadable(named)
    return Mirror(folder, rows)


def _unreadable(named: str) -> DataUnavailable:
    return DataUnavailable(
        f"{VARIABLE}={named}: must name a folder with a {MANIFEST} that has the "
        f"columns name, file and sha256 in every row"
    )
