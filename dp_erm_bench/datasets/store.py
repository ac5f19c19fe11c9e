"""Arrays on disk, written atomically, verified and memory-mapped when read.

Sparse features lie there as the arrays that make them up, one file each.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import Features
from dp_erm_bench.datasets.features import PARTS, assembled, parts
from dp_erm_bench.paths import (
    cache_dir,
    content_of,
    opened,
    remove_parts,
    write_atomic,
)

SEAL = "content.json"
BROKEN = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, EOFError),
    *(SyntaxError, TokenError, OverflowError, MemoryError, RecursionError),
    *(UserWarning, DeprecationWarning),
)
"""What readers raise for a damaged file."""


def content_hash(arrays: Mapping[str, Features]) -> str:
    """Return the SHA-256 of named arrays: names, shapes and column-major bytes."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name}{array.shape}".encode())
        if isinstance(array, np.ndarray):
            total.update(np.ascontiguousarray(array.T, dtype=np.float64).data)
            continue
        for suffix, part in parts(array).items():
            total.update(f"{suffix}{part.dtype}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).data)
    return total.hexdigest()


def save_arrays(kind: str, key: str, arrays: Mapping[str, Features]) -> str:
    """Store named arrays under a key and return their content hash.

    The file with the hash is written last, so that a reader who finds it finds
    the arrays too. A full disk is no error: the next process prepares again.
    """
    folder, content = cache_dir() / kind / key, content_hash(arrays)
    dense = [key for key, array in arrays.items() if isinstance(array, np.ndarray)]
    sparse = {key: list(arrays[key].shape) for key in arrays if key not in dense}
    seal = {"names": sorted(arrays), "sparse": sparse, "content": content}
    try:
        remove_parts(folder)
        for name, array in arrays.items():
            for suffix, part in parts(array).items():
                _write(folder / f"{name}{suffix}.npy", part)
        text = json.dumps(seal).encode()
        write_atomic(folder / SEAL, lambda file: file.write(text))
    except OSError:
        pass
    return content


def _write(path: Path, array: NDArray[Any]) -> None:
    write_atomic(path, lambda file: np.save(file, array, allow_pickle=False))


def load_arrays(kind: str, key: str) -> tuple[dict[str, Features], str] | None:
    """Return the stored arrays, memory-mapped and read-only, and their hash.

    Returns None if there are none, or if their bytes do not have the hash that
    they were stored with.
    """
    folder = cache_dir() / kind / key
    try:
        seal = json.loads(content_of(folder / SEAL, folder))
        shapes, expected = seal["sparse"], str(seal["content"])
        arrays = {
            name: _read(folder / name, shapes.get(name))
            for name in seal["names"]
            if name.isidentifier()
        }
        whole = content_hash(arrays) == expected and all(map(_usable, arrays.values()))
    except BROKEN:
        return None
    return (arrays, expected) if whole else None


def _usable(array: Features) -> bool:
    """Return whether an array is of the type and the order that was stored."""
    dense = isinstance(array, np.ndarray)
    return array.dtype == np.float64 and (not dense or array.flags.f_contiguous)


def _read(path: Path, shape: list[int] | None) -> Features:
    if shape is None:
        return _mapped(path)
    found = {
        f".{part}": _mapped(path.with_name(f"{path.name}.{part}")) for part in PARTS
    }
    return assembled((shape[0], shape[1]), found)


def _mapped(path: Path) -> NDArray[Any]:
    file = path.with_name(f"{path.name}.npy")
    opened(file, file.parent).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a header that is not ours
        return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
