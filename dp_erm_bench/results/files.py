"""The files of a results folder: their lock, their lines, what goes wrong with them.

A line of the plan, of the records and of what searches asked for ends with ``crc``, the
checksum of all before it.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from dp_erm_bench import paths
from dp_erm_bench.errors import UsageError

PLAN = "plan.jsonl"
RECORDS = "records.jsonl"
LOCK = ".lock"
START = b'{"key":"'
CRC = b',"crc":"%08x"}\n'
TAIL = len(CRC % 0)
# `json.dumps` makes an encoder at each call, `json.loads` looks for the encoding: both
# cost as much as a short line.
ENCODED = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
DECODED = json.JSONDecoder().decode
COUNT = b',"lines":%d,"sum":"%08x"}\n'
COUNTED = re.compile(rb',"lines":(\d{1,18}),"sum":"([0-9a-f]{8})"$')


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: plan, table and manifest change under it only.

    Files that grow have locks of their own (`append_lines`). The kernel lets go of a
    lock when its holder dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "ab", opener=open_no_link) as file:
        # Some network file systems have no locks: there one run at a time.
        with contextlib.suppress(OSError):
            paths.lock_file(file)
        yield


def open_no_link(path: str, flags: int) -> int:
    """Open a file to write to, and no link or pipe that somebody put in its place."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        name = os.path.basename(path)
        why = f"{name} must be a regular file: put the file itself in its place"
        raise OSError(errno.EINVAL, why)
    careful = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags | careful, 0o666)


@contextlib.contextmanager
def translate_os_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the operating system in a folder into one sentence.

    Raises
    ------
    UsageError
        In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"{typed_path(folder)}: {reason}; what is recorded stays; "
            "make it writable with room to spare, then run the same command again"
        ) from None


def removed_folder_error(folder: Path) -> UsageError:
    """Return the error of a folder that was removed during a run."""
    return UsageError(
        f"{typed_path(folder)}: was removed or replaced while the run went on, and "
        "what was "
        "recorded with it; run the same command again"
    )


def append_lines(path: Path, lines: bytes) -> None:
    """Append whole lines to a file of a results folder, under the file's lock.

    A process that was killed may have left its last line without an end. It gets one
    here, so that it costs itself and not the next line.

    Raises
    ------
    UsageError
        If the folder is gone, or the file cannot be written.
    """
    with translate_os_errors(path.parent):
        try:
            file = open(path, "a+b", opener=open_no_link)
        except FileNotFoundError:
            raise removed_folder_error(path.parent) from None
        with file:
            with contextlib.suppress(OSError):  # some network file systems have none
                paths.lock_file(file)
            file.seek(max(file.seek(0, 2) - 1, 0))
            file.write(b"\n" * (file.read(1) not in (b"", b"\n")) + lines)


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to, and leave no trace of the check.

    Raises
    ------
    UsageError
        If it, or the nearest folder above it that exists, takes no file.
    """
    with translate_os_errors(folder):
        above = folder
        while not above.exists():
            above = above.parent
        # Asking for permission is not enough: root has it on a read-only disk.
        with tempfile.TemporaryFile(dir=above) as file:
            file.write(b"\0")


_called: ContextVar[tuple[Path, Path] | None] = ContextVar("called", default=None)


@contextlib.contextmanager
def name_as_folder(copy: Path, folder: Path) -> Iterator[None]:
    """Have `typed_path` name a copy of a folder as the folder itself."""
    token = _called.set((copy, folder))
    try:
        yield
    finally:
        _called.reset(token)


def typed_path(folder: Path) -> str:
    """Return a folder's path as a user in the working directory would type it."""
    here, renamed = Path.cwd(), _called.get()
    folder = renamed[1] if renamed and folder == renamed[0] else folder
    inside = folder.is_relative_to(here) and folder != here
    return os.path.relpath(folder, here) if inside else str(folder)


def count_with_noun(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}{'s' * (count != 1)}"


def compact_json(value: Any) -> bytes:
    """Return a value as a line of compact JSON; NaN and infinity become null."""
    try:
        text = ENCODED(value)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = ENCODED(finite)
    return text.encode() + b"\n"


def add_checksum(text: bytes) -> bytes:
    """Return a line with the checksum of all before it as its last key."""
    body = text.removesuffix(b"}\n")
    return body + CRC % zlib.crc32(body)


def is_sealed(text: bytes) -> bool:
    """Return whether a line ends with the right checksum of all before it."""
    return text[-TAIL:] == CRC % zlib.crc32(text[:-TAIL])


def parse_object(text: bytes) -> dict[str, Any] | None:
    """Return the object that a line holds, None if it holds none."""
    try:
        content = DECODED(text.decode())
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
"""How a text begins that a spreadsheet would run, with what keeps it from that."""


def escape_formula(value: Any) -> Any:
    """Return a cell of a csv with an apostrophe where a spreadsheet would run it.

    A number, and a text that is one, is itself.
    """
    if not isinstance(value, str) or not FORMULA.match(value):
        return value
    with contextlib.suppress(ValueError):
        float(value)
        return value
    return f"'{value}"


def as_it_was(cell: Any) -> Any:
    """Return a cell as before `escape_formula`; of a damaged row it may be no text."""
    held = isinstance(cell, str) and cell[:1] == "'" and FORMULA.match(cell)
    return cell[1:] if held else cell


def csv_of(table: Any) -> str:
    """Return a DataFrame as a csv that no spreadsheet runs, its headings neither."""
    texts = {
        name: table[name].map(escape_formula)
        for name in table.columns
        if table[name].dtype.kind not in "biufc"
    }
    safe = table.assign(**texts).rename(columns=escape_formula)
    # A carriage return alone ends a line for readers, and pandas does not quote it.
    odd = any("\r" in str(cell) for cells in texts.values() for cell in cells)
    quoting = csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    return str(safe.to_csv(index=False, quoting=quoting))


def write_text(folder: Path, name: str, text: str) -> None:
    """Write a file of a results folder, with a sentence where that fails."""
    with translate_os_errors(folder):
        paths.write_atomic(folder / name, lambda file: file.write(text.encode()))


def read_text(folder: Path, name: str, again: str = "") -> str | None:
    """Return the text of a file of a results folder, None if there is none.

    `again` says what makes it again, `dp-erm-bench collect` if nothing is given.

    Raises
    ------
    UsageError
        If it cannot be read, or is no text.
    """
    if not (folder / name).is_file():
        return None
    try:
        return paths.content_of(folder / name, folder).decode()
    except UnicodeDecodeError:
        again = again or f"dp-erm-bench collect {typed_path(folder)} makes it again"
        raise UsageError(f"{folder / name}: is damaged; {again}") from None
    except OSError as error:
        raise UsageError(
            f"{folder / name}: cannot be read ({error.strerror})"
        ) from None


def size_of(path: Path) -> int:
    """Return the length of a file, -1 if it is none."""
    return path.stat().st_size if path.is_file() else -1


def checksum_of(file: BinaryIO) -> int:
    """Return the checksum of all of a file."""
    total = file.seek(0)
    while block := file.read(1 << 20):
        total = zlib.crc32(block, total)
    return total


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long, its parts."""
    yield from iter(partial(file.readline, paths.LARGEST_TEXT), b"")


def sealed_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with their checksums, the last one with count and sum of all."""
    count = total = 0
    last = b""
    for raw in lines:
        if last:
            last = add_checksum(last)
            total = zlib.crc32(last[-TAIL:], total)
            yield last
        last, count = raw, count + 1
    if last:
        yield add_checksum(last.removesuffix(b"}\n") + COUNT % (count, total))


def checked_lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a plan without checksums, None for each that does not count.

    That is one that is damaged, there twice, or gone.
    """
    if not path.is_file():
        return
    seen: set[int] = set()
    lines = total = before = bad = 0
    claimed = None
    with paths.open_inside(path, path.parent) as file:
        for raw in lines_of(file):
            lines, before = lines + 1, total
            total = zlib.crc32(raw[-TAIL:], total)
            whole, body = raw.startswith(START) and is_sealed(raw), raw[:-TAIL]
            if whole and body.endswith(b'"') and (counted := COUNTED.search(body)):
                body, claimed = body[: counted.start()], counted.groups()
            whole = whole and hash(body) not in seen
            bad += not whole
            seen.add(hash(body))
            yield body + b"}\n" if whole else None
    if lines and claimed != (b"%d" % lines, b"%08x" % before):
        missing = int(claimed[0]) - lines if claimed else 0
        yield from [None] * (missing if missing > 0 else not bad)
