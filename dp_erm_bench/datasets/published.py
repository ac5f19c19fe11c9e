"""Sources of published data: a mirror, our cache, or the publisher's client.

``DP_ERM_BENCH_DATA`` names a mirror: a folder that is read before any network. Its
``MANIFEST.csv`` has at least the columns ``name``, ``file`` and ``sha256`` (of the file
as it lies there); files ending in ``.bz2``, ``.xz`` or ``.gz`` are decompressed.
``libsvmdata_name``, ``p``, ``task`` and ``labels`` make a file a set of libsvmdata.
"""

import bz2
import contextlib
import csv
import functools
import gzip
import hashlib
import io
import lzma
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_erm_bench.datasets.base import Array, Features, as_features
from dp_erm_bench.datasets.load import VARIABLE, load_arrays, save_arrays
from dp_erm_bench.errors import DataUnavailable, UsageError, place_of
from dp_erm_bench.paths import LARGEST, content_of, digest, machine_memory, opened

Raw = tuple[Features, Array]

MANIFEST = "MANIFEST.csv"
PATIENCE = 10.0
DECOMPRESS: Mapping[str, Callable[..., Any]]
DECOMPRESS = {".bz2": bz2.open, ".xz": lzma.open, ".gz": gzip.open}
RATIO, SMALL = 1000, 100 << 20
"""What packed bytes may stand for: so many times as many, or so many bytes at least."""


@dataclass(frozen=True)
class Mirror:
    """The files that a mirror folder lists.

    Parameters
    ----------
    folder : Path
        Their folder.
    rows : mapping from name to row
        Rows of the manifest, with at least ``file`` and ``sha256``.
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
                actual = sha256(self.folder / file)
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

    def read(self, name: str) -> bytes:
        """Return the verified, decompressed content of a file."""
        self.verify(name)
        path = self.folder / self.rows[name]["file"]
        return decompressed(path, content_of(path, self.folder, LARGEST))


def decompressed(path: Path, content: bytes) -> bytes:
    """Return the content of a file by its suffix; others than these are as they are.

    Raises
    ------
    UsageError
        If it unpacks to more than `most_unpacked` of its bytes.
    """
    unpack = DECOMPRESS.get(path.suffix)
    if unpack is None:
        return content
    most = most_unpacked(len(content))
    # In pieces: what a few hundred bytes stand for may be more than memory holds.
    with unpack(io.BytesIO(content)) as file:
        found: bytes = file.read(most + 1)
    if len(found) > most:
        raise unpacks_too_much(path, len(content), most)
    return found


def most_unpacked(packed: int) -> int:
    """Return the bytes that packed ones may stand for.

    That is `RATIO` times as many, or `SMALL` if that is more, and at most a quarter of
    the machine's memory.
    """
    return int(min(max(SMALL, RATIO * packed), machine_memory() / 4))


def unpacks_too_much(path: Path, packed: int, most: int) -> UsageError:
    """Return the error of a file that unpacks to more than it may."""
    return UsageError(
        f"{path}: {packed} bytes unpack to more than {most}: at most {RATIO} times as "
        f"many, or {SMALL}, and a quarter of memory; unpack it yourself"
    )


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
    with contextlib.suppress(OSError, KeyError, ValueError, csv.Error):
        text = content_of(folder / MANIFEST, folder).decode()
        lines = csv.DictReader(io.StringIO(text, newline=""))
        rows = {row["name"]: row for row in lines}
        if all(row["file"] and row["sha256"] for row in rows.values()):
            return Mirror(folder, rows)
    raise DataUnavailable(
        f"{VARIABLE}={named}: must name a folder with a {MANIFEST} that has the "
        f"columns name, file and sha256 in every row"
    )


@dataclass(frozen=True)
class Published:
    """A dataset that others publish, and that a mirror may have.

    Parameters
    ----------
    name : str
        Its name here.
    files : sequence of str
        Names of its files in a mirror's manifest.
    parse : callable
        Makes X, y of the files' decompressed contents.
    fetch : callable or None
        Gets X, y through the publisher's client; None: only a mirror has it.
    fetched : callable
        Whether the client has it in its own cache.
    host : str
        Address asked first, so that a machine without network knows it at once.
    command : str
        The command line that fills the client's cache.
    """

    name: str
    files: Sequence[str]
    parse: Callable[..., Raw]
    fetch: Callable[[], Raw] | None = None
    fetched: Callable[[], bool] = bool
    host: str = ""
    command: str = ""

    def fingerprint(self) -> str | None:
        """Return a digest of the source; None if it has none, without getting it.

        Raises
        ------
        DataUnavailable
            If files of the mirror are not those of its list.
        """
        if mirror := self._mirror():
            return digest([mirror.verify(file) for file in self.files])
        cached = self._cached()
        return cached and cached[1]

    def __call__(self) -> Raw:
        """Return raw X and y: of the mirror, of an earlier download, else of a new one.

        Raises
        ------
        DataUnavailable
            If they are unavailable or damaged; the message says how to get them.
        """
        if mirror := self._mirror():
            return self._parsed(list(map(mirror.read, self.files)))
        if cached := self._cached():
            return cached[0]["X"], cached[0]["y"]
        X, y = self._downloaded()
        save_arrays("raw", self._key, {"X": as_features(X), "y": as_features(y)})
        return X, y

    @property
    def _key(self) -> str:
        return self.name.replace(":", "-")

    def _cached(self) -> tuple[dict[str, Features], str] | None:
        """Return the arrays of an earlier download and their hash."""
        return load_arrays("raw", self._key) if self.fetch else None

    def _mirror(self) -> Mirror | None:
        """Return the mirror if it lists all files."""
        mirror = open_mirror()
        return mirror if mirror and {*self.files} <= mirror.rows.keys() else None

    def _parsed(self, contents: Sequence[bytes]) -> Raw:
        try:
            return self.parse(*contents)
        except UsageError as error:
            raise DataUnavailable(f"dataset {self.name}: {error}") from error
        except (ValueError, IndexError, EOFError) as error:
            raise DataUnavailable(
                f"dataset {self.name}: its file is not of the format it should have "
                f"({place_of(error)})"
            ) from error

    def _downloaded(self) -> Raw:
        if self.fetch is None:
            raise self._unavailable("it is in no mirror here")
        if not self.fetched() and not reachable(self.host):
            raise self._unavailable(f"{self.host} cannot be reached")
        try:
            return self.fetch()
        except DataUnavailable:
            raise
        except Exception as error:
            why = f"the download failed with {type(error).__name__}"
            raise self._unavailable(why) from error

    def _unavailable(self, reason: str) -> DataUnavailable:
        network = f", or run with network access: {self.command}" * bool(self.command)
        return DataUnavailable(
            f"dataset {self.name} cannot be had ({reason}): set {VARIABLE} to a folder "
            f"whose {MANIFEST} lists {' and '.join(self.files)}{network}"
        )


def python_call(module: str, function: str, *calls: str) -> str:
    """Return the command line that calls a function, once with each arguments."""
    lines = "; ".join(f"{function}({arguments})" for arguments in calls)
    return f'python -c "from {module} import {function}; {lines}"'


@functools.cache
def reachable(host: str) -> bool:
    """Return whether an address answers within 10 s, asked once per process."""
    request = urllib.request.Request(host, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True
