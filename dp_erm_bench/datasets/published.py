"""Where a published dataset comes from: mirror, cache or network."""

import functools
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.mirror import MANIFEST, VARIABLE, open_mirror
from dp_erm_bench.datasets.store import load_arrays, save_arrays
from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.paths import digest

Raw = tuple[Array, Array]
PATIENCE = 10.0


@dataclass(frozen=True)
class Origin:
    """Where the data would come from now.

    Parameters
    ----------
    where : str
        In words, for the list of datasets.
    fingerprint : str or None
        Digest of the source; None if it has none, then nothing is cached on disk.
    now : bool
        Whether it can be had without the network.
    """

    where: str
    fingerprint: str | None
    now: bool = True


@dataclass(frozen=True)
class Bundled:
    """A dataset that an installed package brings along."""

    package: str
    loader: Callable[[], Raw]

    def __call__(self) -> Raw:
        """Return raw X and y."""
        return self.loader()

    def origin(self) -> Origin:
        """Return the package and its version."""
        return Origin(
            f"bundled with {self.package}", f"{self.package} {version(self.package)}"
        )


@dataclass(frozen=True)
class Published:
    """A dataset that others publish.

    Parameters
    ----------
    name : str
        Its name here.
    files : sequence of str
        Names of its files in a mirror's manifest.
    parse : callable
        Makes X, y of the files' decompressed contents.
    fetch : callable
        Gets X, y through the publisher's client.
    fetched : callable
        Whether the client has it in its own cache.
    host : str
        Address asked first, so that a machine without network knows it at once.
    command : str
        What a user types to fill the client's cache.
    """

    name: str
    files: Sequence[str]
    parse: Callable[..., Raw]
    fetch: Callable[[], Raw]
    fetched: Callable[[], bool]
    host: str
    command: str

    def origin(self) -> Origin:
        """Return where the data would come from, without getting them.

        Raises
        ------
        DataUnavailable
            If the mirror lists them and its files are not what it says.
        """
        mirror = open_mirror()
        if mirror is not None and mirror.lists(self.files):
            sums = [mirror.verify(file) for file in self.files]
            return Origin(f"mirror {mirror.folder}", digest(sums))
        kept = load_arrays("raw", self.name)
        if kept is not None:
            return Origin("cache of an earlier download", kept[1])
        if self.fetched():
            return Origin("cache of an earlier download", None)
        return Origin(f"network: {self.command}", None, now=False)

    def __call__(self) -> Raw:
        """Return raw X and y.

        Raises
        ------
        DataUnavailable
            If there is neither mirror nor network; the message names both ways.
        """
        mirror = open_mirror()
        if mirror is not None and mirror.lists(self.files):
            return self.parse(*map(mirror.read, self.files))
        kept = load_arrays("raw", self.name)
        if kept is not None:
            return kept[0]["X"], kept[0]["y"]
        X, y = self._fetch()
        save_arrays("raw", self.name, {"X": np.asarray(X), "y": np.asarray(y)})
        return X, y

    def _fetch(self) -> Raw:
        if not self.fetched() and not reachable(self.host):
            raise DataUnavailable(self.sentence(f"{self.host} cannot be reached"))
        try:
            return self.fetch()
        except Exception as error:
            reason = f"the download failed with {type(error).__name__}"
            raise DataUnavailable(self.sentence(reason)) from error

    def sentence(self, reason: str) -> str:
        """Return what to do when the data cannot be had."""
        return (
            f"dataset {self.name} cannot be had ({reason}): set {VARIABLE} to a "
            f"folder whose {MANIFEST} lists {' and '.join(self.files)}, or run with "
            f"network access: {self.command}"
        )


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
