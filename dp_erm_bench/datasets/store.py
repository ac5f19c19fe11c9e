"""Arrays on disk, written atomically, verified and memory-mapped when read."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.paths import cache_dir, write_atomic

SEAL = "content.json"


def content_hash(arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of named arrays: names, shapes and column-major bytes."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asfortranarray(arrays[name], dtype=np.float64)
        total.update(f"{name}{array.shape}".encode())
        total.update(np.ascontiguousarray(array.T).data)
    return total.hexdigest()


def save_arrays(kind: str, key: str, arrays: Mapping[str, Array]) -> str:
    """Store named arrays under a key and return their content hash.

    The file with the hash is written last, so that a reader who finds it finds
    the arrays too. A full disk is no error: the next process prepares again.
    """
    folder, content = cache_dir() / kind / key, content_hash(arrays)
    seal = json.dumps({"names": sorted(arrays), "content": content}).encode()
    try:
        for name, array in arrays.items():
            _write(folder / f"{name}.npy", array)
        write_atomic(folder / SEAL, lambda file: file.write(seal))
    except OSError:
        pass
    return content


def _write(path: Path, array: Array) -> None:
    write_atomic(path, lambda file: np.save(file, array, allow_pickle=False))


def load_arrays(kind: str, key: str) -> tuple[dict[str, Array], str] | None:
    """Return the stored arrays, memory-mapped and read-only, and their hash.

    Returns None if there are none, or if their bytes do not have the hash that
    they were stored with.
    """
    folder = cache_dir() / kind / key
    try:
        seal = json.loads((folder / SEAL).read_bytes())
        arrays = {name: _mapped(folder / f"{name}.npy") for name in seal["names"]}
        expected = str(seal["content"])
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    return (arrays, expected) if content_hash(arrays) == expected else None


def _mapped(path: Path) -> Array:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
