"""A process with the package imported, whose forks replace new processes.

A fork takes 0.02 s. It begins like a new process: the modules are imported, and no test
has changed them. A start of Python would spend a second on the imports. Tests of the
start itself, or tests that kill their parent, start Python.
"""

import contextlib
import fcntl
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from multiprocessing import Pipe

from dp_erm_bench.runner import host

MODULES = (
    "dp_erm_bench.cli.app",
    "dp_erm_bench.cli.sweep",
    "dp_erm_bench.runner.execute",
    "dp_erm_bench.extend",
    "dp_erm_bench.results.table",
    "dp_erm_bench.kernels.dense",
    "sklearn.datasets",
    "scipy.optimize",
)
BEGIN = """
import sys
handle, *sys.path[:] = sys.argv[1:]
from tests.warm import serve
serve(int(handle))
"""
LONGEST = 1 << 20
BEFORE_IMPORTS = ("NUMBA_", "OMP_", "OPENBLAS_", "MKL_")
"""Variables that are read once, when a module is imported."""


class Server:
    """The process; children end with it, and it with the one that started it."""

    def __init__(self):
        self._pipe, theirs = socket.socketpair()
        self.environment = dict(os.environ)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BEGIN, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def fits(self, environment):
        """Whether a process of an environment would import what is imported here."""
        here, there = (
            {k: v for k, v in one.items() if k.startswith(BEFORE_IMPORTS)}
            for one in (self.environment, environment)
        )
        return here == there

    def start(self, call, arguments, environment, cwd, *descriptors):
        """Return a child that calls a function of some module.

        Parameters
        ----------
        call : str
            Dotted name; what it returns is the exit code.
        descriptors : int
            Its standard output and error, and what it has open beside them, there under
            the same number.
        """
        mine, theirs = socket.socketpair()
        told = {"call": call, "arguments": list(arguments), "cwd": str(cwd)}
        told |= {"environment": environment, "path": sys.path, "keep": descriptors[2:]}
        message = json.dumps(told).encode()
        with theirs:
            given = [theirs.fileno(), *descriptors]
            size = len(message).to_bytes(8, "big")
            socket.send_fds(self._pipe, [size], given)
            self._pipe.sendall(message)
        return Child(mine)

    def command(self, *typed, cwd=None, env=None):
        """Return what `subprocess.run` would of the command line."""
        main = "dp_erm_bench.cli.main.main"
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            files = (out.fileno(), err.fileno())
            environment = dict(env or os.environ)
            assert self.fits(environment)
            typed = list(map(str, typed))
            where = cwd or os.getcwd()
            code = self.start(main, [typed], environment, where, *files).wait()
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode())
        return subprocess.CompletedProcess(typed, code, *said)

    def worker(self, real):
        """Return what starts workers here, as `runner.host.start` does."""

        def start(module, arguments, own):
            environment = {**os.environ, **host.ONE_THREAD, **own}
            if not self.fits(environment):
                return real(module, arguments, own)
            pipe, theirs = Pipe()
            with theirs:
                handle = theirs.fileno()
                call = "tests.warm.worked"
                told = [module, str(os.getpid()), str(handle), *arguments]
                child = self.start(call, told, environment, os.getcwd(), 1, 2, handle)
            return child, pipe

        return start

    def end(self):
        self._pipe.close()
        self._process.wait()


class Child:
    """What `subprocess.Popen` would be of it."""

    def __init__(self, pipe):
        self._pipe, self.returncode = pipe, None
        self.pid = int(pipe.recv(8) or 0)

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            ready, _, _ = select.select([self._pipe], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self.returncode = int(self._pipe.recv(8) or -signal.SIGKILL)
            self._pipe.close()
        return self.returncode

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def worked(module, asked, *arguments):
    """Serve a pipe as a worker does whose parent is this process's."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    parent = str(os.getppid())
    served = importlib.import_module(module).serve
    return served(*(parent if one == asked else one for one in arguments))


def serve(handle):
    """Fork what is asked for, and tell of its end, until nobody can ask."""
    for name in MODULES:
        importlib.import_module(name)
    pipe, living = socket.socket(fileno=handle), {}
    while True:
        ready, _, _ = select.select([pipe, *living], [], [])
        for one in ready:
            if one is pipe:
                size, given, _, _ = socket.recv_fds(pipe, 8, 16)
                if not size:
                    return
                told = received(pipe, int.from_bytes(size, "big"))
                pid = os.fork()
                if pid == 0:
                    pipe.close()
                    for descriptor, (_, back) in living.items():
                        os.close(descriptor)
                        back.close()
                    begin(json.loads(told), *given)
                for other in given[1:]:
                    os.close(other)
                living[os.pidfd_open(pid)] = (
                    pid,
                    (back := socket.socket(fileno=given[0])),
                )
                tell(back, pid)
            else:
                pid, back = living.pop(one)
                os.close(one)
                tell(back, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                back.close()


def tell(pipe, number):
    with contextlib.suppress(OSError):
        pipe.send(b"%8d" % number)


def received(pipe, size):
    found = b""
    while len(found) < size:
        found += pipe.recv(min(size - len(found), LONGEST))
    return found


def begin(told, back, *given):
    """Be the new process, and end as it."""
    code = 1
    try:
        os.close(back)
        wanted = [1, 2, *told["keep"]]
        # Above all that is wanted: none is lost to another.
        held = [fcntl.fcntl(one, fcntl.F_DUPFD, max(wanted) + 1) for one in given]
        for one in given:
            os.close(one)
        for one, number in zip(held, wanted, strict=True):
            os.dup2(one, number)
            os.close(one)
        os.environ.clear()
        os.environ.update(told["environment"])
        os.chdir(told["cwd"])
        sys.path[:] = told["path"]
        module, _, name = told["call"].rpartition(".")
        code = getattr(importlib.import_module(module), name)(*told["arguments"]) or 0
    except SystemExit as error:
        code = error.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
        code = code if isinstance(code, int) else int(code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)
