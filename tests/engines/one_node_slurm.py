"""A SLURM of one node on the loopback interface, for tests.

The distribution's packages are downloaded and unpacked into a cache folder; nothing is
installed. The daemons are children of `keeper.py`. It ends them, their jobs and their
folder when the process that asked for them ends in any way.
"""

import fcntl
import hashlib
import json
import os
import pwd
import re
import shutil
import socket
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"),
    *("munge", "libmunge2", "libhwloc15", "liblua5.1-0"),
)
FETCH = ("apt-get", "-qq", "-oAcquire::Retries=0", "-oAcquire::http::Timeout=20")
DOWNLOAD_SECONDS = 120.0
READY_SECONDS = 30.0
TEMPLATE = Path(__file__).with_name("slurm.conf.in")
KEEPER = Path(__file__).with_name("keeper.py")


class Unavailable(Exception):
    """SLURM cannot be had here; the message says which step failed."""


@dataclass(frozen=True)
class Slurm:
    """A running SLURM.

    Attributes
    ----------
    environment : Mapping of str to str
        Environment in which ``sbatch``, ``squeue`` and the other commands are found.
    home : Path
        Folder of the configuration and the logs; it is removed at the end.
    daemons : Mapping of str to int
        Process ids of ``munged``, ``slurmctld`` and ``slurmd``.
    """

    environment: Mapping[str, str]
    home: Path
    daemons: Mapping[str, int]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of SLURM to its end, without raising if it fails."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30
        )

    def jobs(self) -> dict[int, str]:
        """Return the state of each job in the queue, as in ``RUNNING``, by its id.

        Raises
        ------
        subprocess.CalledProcessError
            If the controller does not answer.
        """
        asked = self.run("squeue", "-h", "-o", "%A %T")
        asked.check_returncode()
        pairs = map(str.split, asked.stdout.splitlines())
        return {int(number): state for number, state in pairs}

    def job(self, number: int) -> dict[str, str]:
        """Return what ``scontrol show job`` says of a job, words by key.

        Raises
        ------
        subprocess.CalledProcessError
            If there is no such job, or it ended more than five minutes ago.
        """
        asked = self.run("scontrol", "-o", "show", "job", str(number))
        asked.check_returncode()
        return dict(re.findall(r"(\S+?)=(\S*)", asked.stdout))

    def cancel(self, *numbers: int) -> None:
        """Cancel some jobs, all of them if none is named; return without waiting."""
        if chosen := numbers or self.jobs():
            self.run("scancel", *map(str, chosen))


@contextmanager
def one_node_slurm() -> Iterator[Slurm]:
    """Run SLURM while the context lasts.

    Raises
    ------
    Unavailable
        If SLURM cannot be had on this machine.
    """
    root = unpacked_packages()
    home = Path(tempfile.mkdtemp(prefix="slurm_"))
    try:
        environment = configure(home, root)
    except (OSError, KeyError) as error:
        shutil.rmtree(home, ignore_errors=True)
        raise Unavailable(f"writing the configuration of SLURM: {error}") from error
    keeper = subprocess.Popen(
        [sys.executable, KEEPER, str(os.getpid()), str(home), str(root)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdout
    try:
        started = keeper.stdout.readline()
        if not started:
            why = last_line(keeper.communicate(timeout=READY_SECONDS)[1])
            raise Unavailable(f"starting SLURM: {why}")
        slurm = Slurm(environment, home, json.loads(started))
        wait_until_idle(slurm)
        yield slurm
    finally:
        keeper.terminate()
        keeper.communicate(timeout=READY_SECONDS)


def last_line(text: str) -> str:
    """Return the last line of what a process said, of nothing a dash."""
    return (text.strip() or "-").splitlines()[-1]


def step(what: str, *command: str, folder: Path) -> str:
    """Return what a command prints in a folder; `Unavailable` says `what` failed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{what}: {error}") from error
    if done.returncode:
        raise Unavailable(f"{what}: {last_line(done.stderr)}")
    return done.stdout


def unpacked_packages() -> Path:
    """Return the folder of the unpacked packages, in the user's cache.

    Its name holds the version of SLURM and a digest of all packages' versions. Of
    processes that come at once, the first downloads and the others wait for it.
    """
    fetch = (*FETCH, "download")
    # apt-get is silent of packages that lie in its folder.
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder)
        uris = (*fetch, "--print-uris", *PACKAGES)
        asked = step("asking apt-get for SLURM", *uris, folder=empty)
    names = sorted(line.split()[1] for line in asked.splitlines())
    version = next(n for n in names if n.startswith("slurmd_")).split("_")[1]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    root = cache / "dp_erm_bench_slurm" / f"{version}-{digest}"
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            lock = stack.enter_context(root.with_name(f"{root.name}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not root.is_dir():
                part = Path(
                    stack.enter_context(tempfile.TemporaryDirectory(dir=root.parent))
                )
                step("downloading SLURM", *fetch, *PACKAGES, folder=part)
                for name in sorted(part.glob("*.deb")):
                    step("unpacking SLURM", "dpkg", "-x", str(name), "all", folder=part)
                (part / "all").rename(root)
    except OSError as error:
        raise Unavailable(f"writing SLURM into the cache: {error}") from error
    return root


def configure(home: Path, root: Path) -> dict[str, str]:
    """Write the configuration, return the environment of all commands.

    The node has the machine's memory and the CPUs that this process may use; at least
    two, so that two jobs run at once.
    """
    for name in ("run", "etc", "state", "spool", "log"):
        (home / name).mkdir()
    plugins = next(root.glob("usr/lib/*/slurm-wlm"), None)
    if not plugins:
        raise FileNotFoundError("the packages hold no plugins")
    with ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in free:
            one.bind(("127.0.0.1", 0))
        controller_port, node_port = (one.getsockname()[1] for one in free)
    text = string.Template(TEMPLATE.read_text()).substitute(
        home=home,
        plugins=plugins,
        host=socket.gethostname().partition(".")[0],
        user=pwd.getpwuid(os.getuid()).pw_name,
        controller_port=controller_port,
        node_port=node_port,
        cpus=max(2, len(os.sched_getaffinity(0))),
        megabytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
    )
    (home / "etc/slurm.conf").write_text(text)
    folders = [str(root / "usr/bin"), str(root / "usr/sbin"), os.environ["PATH"]]
    return {
        **os.environ,
        "SLURM_CONF": str(home / "etc/slurm.conf"),
        "LD_LIBRARY_PATH": f"{plugins.parent}:{plugins}",
        "PATH": os.pathsep.join(folders),
    }


def wait_until_idle(slurm: Slurm) -> None:
    """Return when the node is idle, or raise `Unavailable`."""
    end = time.monotonic() + READY_SECONDS
    while True:
        asked = slurm.run("sinfo", "-h", "-p", "main", "-o", "%T")
        if asked.stdout.strip() == "idle":
            return
        for name, pid in slurm.daemons.items():
            if not Path(f"/proc/{pid}").exists():
                said = (slurm.home / f"log/{name}.stderr").read_text().splitlines()
                raise Unavailable(f"starting {name}: {' '.join(said[-2:])}")
        if time.monotonic() > end:
            why = asked.stdout.strip() or last_line(asked.stderr)
            raise Unavailable(f"waiting {READY_SECONDS:g} s for SLURM's node: {why}")
        time.sleep(0.1)
