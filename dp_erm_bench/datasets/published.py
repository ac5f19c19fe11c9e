"""Where a published dataset comes from: mirror, cache or network."""

import functools
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from dp_erm_bench.datasets.base import Array, Features
from dp_erm_bench.datasets.features import as_features
from dp_erm_bench.datasets.mirror import MANIFEST, VARIABLE, Mirror, open_mirror
from dp_erm_bench.datasets.store import load_arrays, save_arrays
from dp_erm_bench.errors import DataUnavailable, place_of
from dp_erm_bench.paths import digest

Raw = tuple[Features, Array]
PATIENCE = 10.0


@dataclass(frozen=True)
class Bundled:
    """A dataset that an installed package brings along."""

    package: str
    loader: Callable[[], Raw]

    def __call__(self) -> Raw:
        """Return raw X and y."""
        return self.loader()

    def fingerprint(self) -> str:
        """Return the package and its version."""
        return f"{self.package} {version(self.package)}"


@dataclass(frozen=True)
class Mirrored:
    """A dataset that only a mirror has.

    Parameters
    ----------
    name : str
        Its name here.
    files : sequence of str
        Names of its files in a mirror's manifest.
    parse : callable
        Makes X, y of the files' decompressed contents.
    """

    name: str
    files: Sequence[str]
    parse: Callable[..., Raw]

    def fingerprint(self) -> str | None:
        """Return a digest of the source; None if it has none, without getting it.

        Raises
        ------
        DataUnavailable
            If the mirror lists the files and they are not what it says.
        """
        mirror = self._mirror()
        if mirror is None:
            return self.kept_fingerprint()
        return digest([mirror.verify(file) for file in self.files])

    def __call__(self) -> Raw:
        """Return raw X and y.

        Raises
        ------
        DataUnavailable
            If they cannot be had or are damaged; the message names the ways.
        """
        mirror = self._mirror()
        if mirror is None:
            return self.without_mirror()
        return parsed(self.name, self.parse, *map(mirror.read, self.files))

    def _mirror(self) -> Mirror | None:
        """Return the mirror if it lists all files."""
        mirror = open_mirror()
        listed = mirror is not None and all(map(mirror.rows.__contains__, self.files))
        return mirror if listed else None

    def kept_fingerprint(self) -> str | None:
        """Return the digest of an earlier download; what only a mirror has has none."""
        return None

    def without_mirror(self) -> Raw:
        """Return X and y without a mirror, which here cannot be."""
        raise DataUnavailable(self.sentence("it is in no mirror here"))

    def sentence(self, reason: str) -> str:
        """Return what to do when the data cannot be had."""
        return (
            f"dataset {self.name} cannot be had ({reason}): set {VARIABLE} to a "
            f"folder whose {MANIFEST} lists {' and '.join(self.files)}"
        )


@dataclass(frozen=True)
class Published(Mirrored):
    """A dataset that others publish, and that a mirror may have.

    Parameters
    ----------
    name, files, parse
        As for `Mirrored`.
    fetch : callable
        Gets X, y through the publisher's client.
    fetched : callable
        Whether the client has it in its own cache.
    host : str
        Address asked first, so that a machine without network knows it at once.
    command : str
        What a user types to fill the client's cache.
    """

    fetch: Callable[[], Raw]
    fetched: Callable[[], bool]
    host: str
    command: str

    @property
    def _key(self) -> str:
        return self.name.replace(":", "-")

    def kept_fingerprint(self) -> str | None:
        """Return the digest of an earlier download, None if there is none."""
        kept = load_arrays("raw", self._key)
        return kept and kept[1]

    def without_mirror(self) -> Raw:
        """Return X and y from the cache of a download, else download them.

        Raises
        ------
        DataUnavailable
            If there is neither mirror nor network; the message names both ways.
        """
        kept = load_arrays("raw", self._key)
        if kept is not None:
            return kept[0]["X"], kept[0]["y"]
        X, y = self._fetch()
        save_arrays("raw", self._key, {"X": as_features(X), "y": as_features(y)})
        return X, y

    def _fetch(self) -> Raw:
        if not self.fetched() and not reachable(self.host):
            raise DataUnavailable(self.sentence(f"{self.host} cannot be reached"))
        try:
            return self.fetch()
        except DataUnavailable:
            raise
        except Exception as error:
            reason = f"the download failed with {type(error).__name__}"
            raise DataUnavailable(self.sentence(reason)) from error

    def sentence(self, reason: str) -> str:
        """Return what to do when the data cannot be had."""
        network = f", or run with network access: {self.command}"
        return f"{super().sentence(reason)}{network}"


def parsed(name: str, parse: Callable[..., Raw], *contents: bytes) -> Raw:
    """Return what a parser makes of files.

    Raises
    ------
    DataUnavailable
        If a file is not of the format that it should have.
    """
    try:
        return parse(*contents)
    except DataUnavailable:
        raise
    except (ValueError, IndexError, EOFError) as error:
        raise DataUnavailable(
            f"dataset {name}: its file is not of the format it should have "
            f"({place_of(error)})"
        ) from error


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
