"""The seal of results.parquet: what it was made of, and a digest of all its bytes.

Both stand in the table's metadata, so that one file says all. The digest is that of
the file without the digest itself.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pandas as pd

KEY = "sources"
TEXT = "blake2b {digest} of {sources}"
FOUND = re.compile(rb"blake2b ([0-9a-f]{64}) of ([0-9a-f]{64})")
LENGTH = 64
TAIL = 1 << 16
"""Bytes at the end of a file that hold its metadata."""

BLOCK = 1 << 20
MOST_ROWS = 100_000_000


def blank(sources: str) -> dict[str, str]:
    """Return the metadata of a table that is still to be written.

    Parameters
    ----------
    sources : str
        A digest of what it is made of, in 64 hexadecimal digits.
    """
    return {KEY: TEXT.format(digest="0" * LENGTH, sources=sources)}


def put(file: BinaryIO) -> None:
    """Write the digest into a table that has its metadata."""
    found = _found(file)
    assert found is not None
    place, _, _ = found
    digest = _digest(file, place)
    file.seek(place)
    file.write(digest)


def holds(file: BinaryIO) -> bool:
    """Return whether a table is as it was written; earlier versions put no seal."""
    found = _found(file)
    return found is None or _digest(file, found[0]) == found[1]


def sources(file: BinaryIO) -> str | None:
    """Return what a table was made of; None if it is damaged or without a seal."""
    found = _found(file)
    if found is None or _digest(file, found[0]) != found[1]:
        return None
    return found[2].decode()


def read(file: BinaryIO, schema: Any) -> pd.DataFrame:
    """Return a table as a frame, made of nothing but its columns.

    No threads: one that is left over could take a Ctrl-C that the main one holds back,
    or be at work when the process ends.

    Parameters
    ----------
    file : binary file
    schema : pyarrow.Schema
        The columns that it may have.

    Raises
    ------
    ValueError
        If it is damaged, or has other columns.
    """
    import pyarrow.parquet as pq

    if not holds(file):
        raise ValueError("it is not as it was written")
    table = pq.ParquetFile(file, page_checksum_verification=True)
    types = {field.name: _plain(field.type) for field in schema}
    found = {field.name: _plain(field.type) for field in table.schema_arrow}
    if not found.items() <= types.items():
        raise ValueError("it has columns of other names or types")
    if table.metadata.num_rows > MOST_ROWS:
        raise ValueError(f"it has more than {MOST_ROWS} rows")
    # What else the file says of its columns is nothing to act upon.
    columns = table.read(use_threads=False).replace_schema_metadata()
    frame: pd.DataFrame = columns.to_pandas(use_threads=False)
    return frame


def _plain(kind: Any) -> str:
    """Return the name of a type; texts of up to 2 GB and of more are alike."""
    return str(kind).removeprefix("large_")


def _found(file: BinaryIO) -> tuple[int, bytes, bytes] | None:
    """Return the place of the digest, the digest, and what the table was made of."""
    start = max(0, file.seek(0, 2) - TAIL)
    file.seek(start)
    matches = list(FOUND.finditer(file.read(TAIL)))
    if not matches:
        return None
    last = matches[-1]
    return start + last.start(1), last[1], last[2]


def _digest(file: BinaryIO, place: int) -> bytes:
    digest = blake2b(digest_size=LENGTH // 2)
    file.seek(0)
    left = place
    while left and (block := file.read(min(BLOCK, left))):
        digest.update(block)
        left -= len(block)
    file.seek(place + LENGTH)
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest().encode()
