"""The parent process of SLURM's daemons, which ends them, their jobs and folder.

``python keeper.py PARENT HOME ROOT`` prints the process ids of the daemons by name, as
one line of json, and waits for SIGTERM or for the end of the process PARENT.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PAUSE = 0.05


def keep(parent: int, home: Path, root: Path) -> None:
    """Start the daemons, end all of them when told to or when the parent has ended.

    Orphans of the daemons, as the steps of jobs are, become children of this process:
    when it has no more children, nothing of SLURM is left.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, leave)
    try:
        if os.getppid() == parent:
            print(json.dumps(start(home, root)), flush=True)
        while os.getppid() == parent:
            reap()
            time.sleep(PAUSE)
    finally:
        with suppress(ChildProcessError):
            while True:
                for pid in descendants(os.getpid()):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)
        rmtree(home, ignore_errors=True)


def leave(*_: object) -> None:
    """End this process, deaf to further requests to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit()


def reap() -> None:
    """Forget the children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def start(home: Path, root: Path) -> dict[str, int]:
    """Start the daemons, return their process ids by name."""
    run, key = home / "run", home / "etc/munge.key"
    subprocess.run([program(root, "mungekey"), "-c", "-k", key], check=True)
    files = {
        "key-file": key,
        "socket": run / "munge.socket",
        "pid-file": run / "munged.pid",
        "seed-file": run / "munged.seed",
        "log-file": home / "log/munged.log",
    }
    host = socket.gethostname().partition(".")[0]
    commands = {
        # Forced: only this user may enter the folder of the socket.
        "munged": ["-F", "-f", *(f"--{name}={path}" for name, path in files.items())],
        "slurmctld": ["-D"],
        "slurmd": ["-D", "-N", host, "-d", program(root, "slurmstepd")],
    }
    pids = {}
    for name, options in commands.items():
        with (home / f"log/{name}.stderr").open("w") as log:
            pids[name] = subprocess.Popen(
                [program(root, name), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,
            ).pid
        until_there(files["socket"])
    return pids


def program(root: Path, name: str) -> str:
    """Return the path of a program, with or without the ending of Debian's SLURM."""
    for ending in ("-wlm", ""):
        path = root / "usr/sbin" / f"{name}{ending}"
        if path.exists():
            return str(path)
    sys.exit(f"the packages hold no {name}")


def until_there(path: Path) -> None:
    """Wait for a file, ten seconds at most: what needs it says that it is missing."""
    end = time.monotonic() + 10
    while not path.exists() and time.monotonic() < end:
        time.sleep(PAUSE)


def end_with_parent() -> None:
    """Have this process killed when its parent is."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def descendants(ancestor: int) -> set[int]:
    """Return the ids of the processes that a process started, at any remove."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    found = {ancestor}
    while more := {pid for pid, of in parents.items() if of in found} - found:
        found |= more
    return found - {ancestor}


if __name__ == "__main__":
    keep(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
