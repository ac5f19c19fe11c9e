"""The runs of a results folder: their ids and one manifest for each.

``runs/<run>.json`` stays for good; ``manifest.json`` is a copy of the one written last.
"""

from __future__ import annotations

import os
import socket
import time


def new_run_id() -> str:
    """Return the id of a run: when it started, where, and its process."""
    host = "".join(c if c.isalnum() else "_" for c in socket.gethostname())
    return f"{time.time_ns():020d}-{host}-{os.getpid()}"
