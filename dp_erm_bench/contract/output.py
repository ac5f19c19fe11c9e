"""Keep output off the terminal while a solver is checked."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import TextIO

OWN = "dp-erm-bench: "
LARGEST = 1 << 20
"""Largest number of bytes of output that are kept."""


@contextlib.contextmanager
def silence_output() -> Iterator[list[str]]:
    """Keep output off the terminal inside this context; yield the list of its lines.

    The list is filled when the context ends. At that point the package's own messages
    are printed.
    """
    lines: list[str] = []
    streams, sink = (sys.stdout, sys.stderr), _open_sink()
    for stream in streams:
        stream.flush()
    terminal = [os.dup(descriptor) for descriptor in (1, 2)]
    for descriptor in (1, 2):
        os.dup2(sink.fileno(), descriptor)
    sys.stdout = sys.stderr = sink
    try:
        yield lines
    finally:
        sys.stdout, sys.stderr = streams
        for stream in (sink, *streams):
            with contextlib.suppress(Exception):  # a solver may have closed it
                stream.flush()
        for descriptor, place in zip((1, 2), terminal, strict=True):
            os.dup2(place, descriptor)
            os.close(place)
        content = _read_and_empty(sink.fileno())
        lines += content.decode(errors="replace").splitlines()
        for line in lines:
            if line.startswith(OWN):
                print(line, file=sys.stderr, flush=True)


@functools.cache
def _open_sink() -> TextIO:
    """Return a stream that writes into an unnamed temporary file.

    The stream stays open, since log handlers may keep a reference to it.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        descriptor = os.dup(file.fileno())
    sink = open(descriptor, "w", buffering=1, errors="backslashreplace")
    atexit.register(sink.close)
    return sink


def _read_and_empty(descriptor: int) -> bytes:
    """Empty an open file and return its content, at most `LARGEST` bytes."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    content = os.read(descriptor, LARGEST)
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return content
