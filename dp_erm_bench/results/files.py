"""The files of a results folder: locks, lines with checksums, and their errors.

Each line of the plan, of the records and of the searches' points ends with ``crc``, the
checksum of all bytes before it.
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
# `json.dumps` makes an encoder at each call, and `json.loads` detects the encoding.
# Either costs as much as a short line.
ENCODED = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
DECODED = json.JSONDecoder().decode
COUNT = b',"lines":%d,"sum":"%08x"}\n'
COUNTED = re.compile(rb',"lines":(\d{1,18}),"sum":"([0-9a-f]{8})"$')


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a results folder while its plan, table or manifest changes.

    Files to which lines are appended have their own locks (`append_lines`). The kernel
    releases a lock when the process that holds it dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "ab", opener=open_no_link) as file:
        # On network file systems without locks, only one run at a time is safe.
        with contextlib.suppress(OSError):
            paths.lock_file(file)
        yield


def open_no_link(path: str, flags: int) -> int:
    """Open a file for writing; raise OSError if it is a link or a pipe."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        name = os.path.basename(path)
        why = f"{name} must be a regular file: put the file itself in its place"
        raise OSError(errno.EINVAL, why)
    careful = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags | careful, 0o666)


@contextlib.contextmanager
def translate_os_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the operating system inside this context into a UsageError.

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
    """Return the UsageError for a folder that was removed during a run."""
    return UsageError(
        f"{typed_path(folder)}: was removed or replaced while the run went on, and "
        "what was "
        "recorded with it; run the same command again"
    )


def append_lines(path: Path, lines: bytes) -> None:
    """Append whole lines to a file of a results folder, under the file's lock.

    A killed process may have left its last line without an end. The line is ended here,
    so that it does not spoil the next one.

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
            with contextlib.suppress(OSError):  # some file systems have no locks
                paths.lock_file(file)
            file.seek(max(file.seek(0, 2) - 1, 0))
            file.write(b"\n" * (file.read(1) not in (b"", b"\n")) + lines)


def check_writable(folder: Path) -> None:
    """Check that a folder can be written to, without leaving a file in it.

    Raises
    ------
    UsageError
        If no file can be created in the folder, or in its nearest existing parent.
    """
    with translate_os_errors(folder):
        above = folder
        while not above.exists():
            above = above.parent
        # Checking permissions is not enough: root has them on a read-only disk.
        with tempfile.TemporaryFile(dir=above) as file:
            file.write(b"\0")


_called: ContextVar[tuple[Path, Path] | None] = ContextVar("called", default=None)


@contextlib.contextmanager
def name_as_folder(copy: Path, folder: Path) -> Iterator[None]:
    """Make `typed_path` return the original folder if it is called with its copy."""
    token = _called.set((copy, folder))
    try:
        yield
    finally:
        _called.reset(token)


def typed_path(folder: Path) -> str:
    """Return the path of a folder as a user would type it in the working directory."""
    here, renamed = Path.cwd(), _called.get()
    folder = renamed[1] if renamed and folder == renamed[0] else folder
    inside = folder.is_relative_to(here) and folder != here
    return os.path.relpath(folder, here) if inside else str(folder)


def count_with_noun(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 trial` or `2 trials`."""
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
    """Return a line of JSON with a checksum of its bytes as the last key."""
    body = text.removesuffix(b"}\n")
    return body + CRC % zlib.crc32(body)


def is_sealed(text: bytes) -> bool:
    """Return whether a line ends with the correct checksum of the bytes before it."""
    return text[-TAIL:] == CRC % zlib.crc32(text[:-TAIL])


def parse_object(text: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None if the line is not a JSON object."""
    try:
        content = DECODED(text.decode())
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
"""Pattern for the start of a string that a spreadsheet would run as a formula.

Apostrophes may precede it.
"""


def escape_formula(value: Any) -> Any:
    """Return a cell of a csv file, with an apostrophe if a spreadsheet would run it.

    Numbers, and strings that are numbers, are returned unchanged.
    """
    if not isinstance(value, str) or not FORMULA.match(value):
        return value
    with contextlib.suppress(ValueError):
        float(value)
        return value
    return f"'{value}"


def as_it_was(cell: Any) -> Any:
    """Return a cell of a csv file as it was before `escape_formula`.

    Other values are returned unchanged.
    """
    held = isinstance(cell, str) and cell[:1] == "'" and FORMULA.match(cell)
    return cell[1:] if held else cell


def csv_of(table: Any) -> str:
    """Return a DataFrame as csv, escaping what a spreadsheet would run."""
    texts = {
        name: table[name].map(escape_formula)
        for name in table.columns
        if table[name].dtype.kind not in "biufc"
    }
    safe = table.assign(**texts).rename(columns=escape_formula)
    # Readers take a lone carriage return as a line's end; pandas does not quote it.
    odd = any("\r" in str(cell) for cells in texts.values() for cell in cells)
    quoting = csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    return str(safe.to_csv(index=False, quoting=quoting))


def write_text(folder: Path, name: str, text: str) -> None:
    """Write a text file in a results folder; raise UsageError if that fails.

    Parameters
    ----------
    folder : Path
        The results folder.
    name : str
        Name of the file in it.
    text : str
        Content of the file.
    """
    with translate_os_errors(folder):
        paths.write_atomic(folder / name, lambda file: file.write(text.encode()))


def read_text(folder: Path, name: str, again: str = "") -> str | None:
    """Return the content of a text file in a results folder; None if it is missing.

    Parameters
    ----------
    folder : Path
        The results folder.
    name : str
        Name of the file in it.
    again : str
        Advice in the error message on how to make the file again. By default the
        message names `dp-erm-bench collect`.

    Raises
    ------
    UsageError
        If the file cannot be read, or is not text in UTF-8.
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
    """Return the size of a file in bytes; -1 if there is no such file."""
    return path.stat().st_size if path.is_file() else -1


def checksum_of(file: BinaryIO) -> int:
    """Return the checksum (CRC-32) of the whole content of a file."""
    total = file.seek(0)
    while block := file.read(1 << 20):
        total = zlib.crc32(block, total)
    return total


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; lines that are too long are split."""
    yield from iter(partial(file.readline, paths.LARGEST_TEXT), b"")


def sealed_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with checksums; the last line also gets their number and checksum."""
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
    """Yield the lines of a plan without their checksums; None for an invalid line.

    A line is invalid if it is damaged or repeats another line. The last line of a plan
    states the number of lines. If lines are missing, None is yielded at the end for
    each of them.
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
