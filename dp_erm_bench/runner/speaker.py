"""What a worker says to its parent: beats and reports."""

import json
import math
import os
import time
from collections.abc import Sequence

PAUSE = 0.1
"""Seconds between beats: there may be thousands of batches in a second."""


class Speaker:
    """A worker's end of the pipe to its parent; a solver may close it.

    Reports are lines of JSON, so that nothing that a solver writes here is executed
    by the parent, or kept for a report. An empty line is a *beat*: it starts the
    clock of what runs now anew.
    """

    def __init__(self, handle: int) -> None:
        self._handle, self._file = handle, os.fstat(handle).st_ino
        self._last = -math.inf

    def beat(self) -> bool:
        """Beat, if the last was not just now; return whether the parent takes it."""
        now = time.monotonic()
        if now - self._last < PAUSE:
            return True
        self._last = now
        return self._say(b"\n")

    def report(self, report: Sequence[object]) -> bool:
        """Send a report; return whether it went. The next beat is not left out."""
        self._last = -math.inf
        return self._say(f"\n{json.dumps(report)}\n".encode())

    def _say(self, data: bytes) -> bool:
        try:
            if os.fstat(self._handle).st_ino != self._file:
                return False
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            return False
        return True
