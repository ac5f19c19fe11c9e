"""Datasets and files of the user's, sent into the cache of a worker that lacks them.

They travel as the files of a folder that is named by their digest, in parts of at most
`PART` bytes. On arrival the digest is computed again before the folder gets its name;
whoever reads it does so, too.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dp_erm_bench.datasets import load
from dp_erm_bench.datasets.load import (
    DataPin,
    arrays_of,
    load_arrays,
    load_dataset,
    write_arrays,
)
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import cache_dir
from dp_erm_bench.plugins.load import SHIPPED as FILES
from dp_erm_bench.plugins.names import content, digest, label, sources

PART = 1 << 22
DAY = 86400.0


class Freight(NamedTuple):
    """What is sent: a folder of the cache, and how its content is verified.

    Attributes
    ----------
    kind : str
        The folder of the cache that it belongs to.
    content : str
        The digest that it must have, and its name there.
    main : str
        The solver's or loss's file; empty for a dataset.
    group : str
        What the file is; empty for a dataset.
    token : str
        Tells this delivery from others of the same.
    """

    kind: str
    content: str
    main: str
    group: str
    token: str

    @property
    def arriving(self) -> str:
        """Return the name of its folder while parts of it are missing."""
        return f".{self.content}.{self.token}"


def data_freight(pin: DataPin) -> Freight:
    """Return what a dataset is sent as."""
    return Freight(load.SHIPPED, pin.content, "", "", secrets.token_hex(8))


def file_freight(group: str, pin: str) -> Freight:
    """Return what a file is sent as, with the modules beside it."""
    name = f"{label(pin)}.py"
    return Freight(FILES, content(pin), name, group, secrets.token_hex(8))


def data_parts(pin: DataPin, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of a dataset, each behind the name of its file.

    Parameters
    ----------
    pin : DataPin
    folder : Path
        An empty one, for the arrays on their way.
    """
    write_arrays(folder, arrays_of(load_dataset(json.loads(pin.text))))
    for path in sorted(folder.iterdir()):
        yield from _parts(path.name, path)


def file_parts(group: str, pin: str) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of a file and of the modules beside it.

    Raises
    ------
    UsageError
        If one of them was changed after the run had begun.
    """
    main = Path(pin.partition("#")[0])
    files = sources(str(main), group)
    if digest(files) != content(pin):
        raise UsageError(
            f"{group}={main}: was changed after the run had begun; start it again"
        )
    for path in files.values():
        yield from _parts(str(path.relative_to(main.parent)), path)


def _parts(name: str, path: Path) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        yield name, file.read(PART)
        while data := file.read(PART):
            yield name, data


def receive(sent: bytes) -> str:
    """Append a part to a file on its way; return why that cannot be, empty if it can.

    It is called on the worker, with the pickled freight, name of the file, and bytes.
    """
    freight, name, data = pickle.loads(sent)
    folder = cache_dir() / freight.kind / freight.arriving
    path = folder / name
    try:
        if not folder.is_dir():
            _remove_left(folder.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        return _unwritten(error)
    return ""


def arrived(sent: bytes) -> str:
    """Verify what has arrived and put it in its place; return what is wrong, if so.

    It is called on the worker, with the pickled freight. What has another content is
    removed.
    """
    freight: Freight = pickle.loads(sent)
    folder = cache_dir() / freight.kind / freight.arriving
    found = ""
    if freight.main:
        with contextlib.suppress(UsageError, OSError):
            path = str(folder / freight.main)
            found = digest(sources(path, freight.group))
    else:
        stored = load_arrays(freight.kind, freight.arriving)
        found = stored[1] if stored else ""
    try:
        if found == freight.content:
            place = folder.with_name(freight.content)
            shutil.rmtree(place, ignore_errors=True)
            folder.rename(place)
            return ""
    except OSError as error:
        return _unwritten(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return "what arrived there has another content"


def _unwritten(error: OSError) -> str:
    return (
        f"its cache folder {cache_dir()} cannot be written ({error.strerror}): have "
        "DP_ERM_BENCH_CACHE name one that can, and start it again"
    )


def _remove_left(folder: Path) -> None:
    """Remove what others have left half sent a day ago or earlier."""
    for left in folder.glob(".*"):
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < time.time() - DAY:
                shutil.rmtree(left)
