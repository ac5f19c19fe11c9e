"""Solvers that harm their process, each with the expected outcome.

Each fault is a row of the table in docs/faults.md: title, code, status. The code runs
once the solver has begun. What the code defines at its own top level does not matter.
"""

from typing import NamedTuple

SOLVER = '''
from dataclasses import dataclass

import ctypes, gc, locale, os, resource, signal, stat, subprocess, sys, threading, time
import warnings

import numpy as np

from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.solvers.base import Solver, shape
from dp_erm_bench.solvers.bounds import inverse, norm_bound
from dp_erm_bench.solvers.runs import steps_between


@dataclass(frozen=True)
class Descent(Solver):
    """Noisy gradient descent.

    References
    ----------
    None.
    """

    n_iter: int = shape(2, least=0, help="steps")

    def iterations(self, problem):
        return self.n_iter

    def passes_at(self, problem, iteration):
        return float(iteration)

    def releases(self, problem, adjacency, schedule):
        change = adjacency.of_sum(norm_bound(problem, 1.0))
        yield Gaussian("gradient", change, self.n_iter)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        problem = oracle.problem
        clip = np.full((oracle.batch, 1), 1.0)
        step = inverse(np.atleast_2d(problem.smoothness.norm))
{code}
        yield oracle.w
        for k in steps_between(checkpoints):
            for _ in range(k):
                noisy = mechanisms["gradient"](oracle.clipped_sum(clip)) / problem.n
                oracle.move_to(problem.penalty.prox(oracle.w - step * noisy, step))
            yield oracle.w
'''


class Fault(NamedTuple):
    """A fault, what it is called in the documentation, and the status it ends in."""

    name: str
    told: str
    status: str
    code: str
    message: str = ""

    def source(self):
        lines = self.code.strip().splitlines()
        return SOLVER.replace("{code}", "\n".join(f"        {one}" for one in lines))


SOUND = Fault("zz_sound", "", "ok", "pass")
"""Its name comes last: it runs after all the others."""

HARMLESS = [
    Fault("directory", "changes the working directory", "ok", "os.chdir('/')"),
    Fault("environment", "empties `os.environ`", "ok", "os.environ.clear()"),
    Fault(
        "handlers",
        "ignores and blocks all signals",
        "ok",
        """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
""",
    ),
    Fault(
        "closed",
        "closes descriptors that are not its own",
        "ok",
        "os.closerange(3, 256)",
    ),
    Fault(
        "reopened",
        "closes them and opens files in their place",
        "ok",
        """
os.closerange(3, 256)
self.__class__.kept = [open(os.devnull, "r+b") for _ in range(64)]
""",
    ),
    Fault(
        "streams",
        "closes stdout and stderr",
        "ok",
        "sys.stdout.close(); sys.stderr.close(); os.closerange(0, 3)",
    ),
    Fault(
        "garbage",
        "writes garbage into the pipe to the parent",
        "ok",
        """
for handle in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(handle).st_mode):
            os.write(handle, b"[[], 1, 0.0]\\n\\x80\\x04\\xff{\\n[1]\\n" + bytes(5000))
    except OSError:
        pass
""",
    ),
    Fault(
        "printing",
        "prints 100 MB",
        "ok",
        "for _ in range(100): print('x' * 10**6)",
    ),
    Fault(
        "patches",
        "puts functions of its own into numpy and into this package",
        "ok",
        """
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.solvers import base
run, base.steps_between = Oracle.objective, None
Oracle.objective = lambda self, w: run(self, w) + 1.0
np.fft = None
""",
    ),
    Fault(
        "numerics",
        "changes numpy's error state, global seeds, filters of warnings",
        "ok",
        "np.seterr(under='raise'); np.random.seed(0); warnings.simplefilter('error')",
    ),
    Fault(
        "limits",
        "lowers limits of the process, its umask, its recursion; stops the collector",
        "ok",
        """
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (20, hard))
os.umask(0o777); gc.disable(); sys.setrecursionlimit(200)
locale.setlocale(locale.LC_ALL, 'C')
""",
    ),
    Fault(
        "threads",
        "leaves threads behind",
        "ok",
        """
for daemon in (True, False):
    threading.Thread(target=time.sleep, args=(600,), daemon=daemon).start()
""",
    ),
    Fault("forks", "forks, and both processes go on", "ok", "os.fork()"),
    Fault(
        "children",
        "leaves processes behind, in sessions of their own",
        "ok",
        """
subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    os.fork()
    time.sleep(600)
""",
    ),
    Fault("group", "leaves its process group or session", "ok", "os.setsid()"),
    Fault(
        "deleting",
        "raises SystemExit where nobody can catch it, in `__del__`",
        "ok",
        """
class Last:
    def __del__(self):
        raise SystemExit(3)
Last()
""",
    ),
    Fault(
        "undefined",
        "yields NaN",
        "diverged",
        "yield from [np.full_like(oracle.w, np.nan)] * len(checkpoints); return",
    ),
]

RAISING = [
    Fault(
        "path",
        "empties `sys.path`, and imports",
        "error",
        "sys.path.clear(); sys.path_importer_cache.clear(); import tabnanny",
        "ModuleNotFoundError",
    ),
    Fault("interrupts", "raises KeyboardInterrupt", "error", "raise KeyboardInterrupt"),
    Fault(
        "signals",
        "sends itself SIGINT, unblocked",
        "error",
        """
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)
""",
        "KeyboardInterrupt",
    ),
    Fault("closing", "raises GeneratorExit", "error", "raise GeneratorExit"),
    Fault("exiting", "raises SystemExit", "error", "sys.exit(0)", "SystemExit"),
    Fault(
        "memory", "raises MemoryError", "error", "np.ones(10**18)", "_ArrayMemoryError"
    ),
    Fault(
        "recursion",
        "recurses without end",
        "error",
        "def again(): again()\nagain()",
        "RecursionError",
    ),
    Fault(
        "surrogate",
        "raises a message with a lone surrogate, NUL and newlines",
        "error",
        "raise ValueError('\\ud800 \\0 \\r\\n end')",
        "ValueError: \\ud800 \\x00",
    ),
    Fault(
        "wordy",
        "raises a message of 100 MB",
        "error",
        "raise ValueError('x' * 10**8)",
        "ValueError: xxx",
    ),
    Fault(
        "mute",
        "raises what raises when it is printed",
        "error",
        """
class Mute(Exception):
    def __str__(self):
        raise KeyboardInterrupt
    __repr__ = __str__
raise Mute
""",
        "Mute: its message cannot be read: KeyboardInterrupt",
    ),
    Fault(
        "unpicklable",
        "raises what cannot be pickled",
        "error",
        "raise ValueError(lambda: 0, sys.stdout, threading.Lock())",
        "ValueError: (<function",
    ),
    Fault("silent", "yields nothing", "error", "return"),
    Fault(
        "talkative",
        "yields too often",
        "error",
        "yield from [oracle.w] * 1000",
    ),
    Fault("shapeless", "yields a wrong shape", "error", "yield oracle.w[:, :1]"),
]

DYING = [
    Fault(
        "leaves",
        "ends its process (`os._exit(0)`)",
        "killed",
        "os._exit(0)",
        "exit code 0",
    ),
    Fault(
        "crashes", "crashes in native code", "killed", "ctypes.string_at(0)", "SIGSEGV"
    ),
    Fault(
        "terminated",
        "is sent SIGTERM",
        "killed",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "SIGTERM",
    ),
]

FAILING = [*RAISING, *DYING]

HANGING = [
    Fault("sleeps", "hangs", "timeout", "time.sleep(600)"),
    Fault(
        "deaf",
        "hangs and ignores SIGALRM",
        "timeout",
        "signal.signal(signal.SIGALRM, signal.SIG_IGN); time.sleep(600)",
    ),
    Fault(
        "blocked",
        "hangs and blocks SIGALRM",
        "timeout",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); time.sleep(600)",
    ),
    Fault(
        "timeless",
        "hangs and takes the alarm back",
        "timeout",
        "signal.setitimer(signal.ITIMER_REAL, 0.0); time.sleep(600)",
    ),
    Fault(
        "stopped",
        "stops its process (SIGSTOP)",
        "timeout",
        "os.kill(os.getpid(), signal.SIGSTOP)",
    ),
    Fault(
        "unplugged",
        "closes the pipe to the parent and hangs, SIGALRM ignored",
        "timeout",
        """
os.closerange(3, 256)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
time.sleep(600)
""",
    ),
]
