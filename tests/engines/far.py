"""Dask workers as on another machine: with another home, cache, data or package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dp_erm_bench

SOURCES = Path(dp_erm_bench.__file__).parent
CONF = SOURCES.parent / "conf"

BARE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "dp_erm_bench":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
"""
"""Code of a process in which the package is not installed."""

VERSION = """
from importlib import metadata
own = metadata.version
metadata.version = lambda name: "0.0.1" if name == {name!r} else own(name)
"""
"""Code of a process in which a package has another version."""


def copied(folder, change=None):
    """Copy the package; change a file of it; return what goes to PYTHONPATH."""
    shutil.copytree(SOURCES, folder / SOURCES.name, ignore=_compiled)
    shutil.copytree(CONF, folder / CONF.name)
    if change:
        name, old, new = change
        file = folder / SOURCES.name / name
        text = file.read_bytes()
        assert text.count(old) >= 1
        file.write_bytes(text.replace(old, new, 1))
    return str(folder)


def _compiled(folder, names):
    return [name for name in names if name == "__pycache__"]


class Far:
    """A scheduler, and workers as on other machines.

    Parameters
    ----------
    folder : Path
        Home, cache and current folder of a worker lie in one of its own there.
    """

    def __init__(self, folder):
        self.folder, self.started = folder, []
        folder.mkdir(exist_ok=True)
        self.address = ""

    def scheduler(self, code=""):
        """Start the scheduler; `code` runs before it."""
        program = self._program("scheduler", code)
        options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self._start(program + options, self.folder, dict(os.environ))
        self.address = _said(self.started[-1], "Scheduler at:")
        return self

    def worker(self, name, code="", **environment):
        """Start a worker; `code` runs before it and before its children."""
        home = self.folder / name
        home.mkdir()
        if code:
            (home / "sitecustomize.py").write_text(code)
        own = {key: str(home) for key in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
        own["DP_ERM_BENCH_CACHE"] = str(home / "cache")
        own["DP_ERM_BENCH_DATA"] = ""
        path = [str(home), *sys.path[1:], environment.pop("PYTHONPATH", "")]
        path = [*path[:1], path[-1], *path[1:-1]]
        own["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        program = self._program("worker", "") + [self.address, "--nthreads", "1"]
        options = ["--no-dashboard", "--no-nanny", "--name", name]
        self._start(program + options, home, {**os.environ, **own, **environment})
        return home

    def _program(self, what, code):
        run = f"from distributed.cli.dask_{what} import main; main()"
        return [sys.executable, "-c", f"{code}\n{run}"]

    def _start(self, program, folder, environment):
        self.started.append(
            subprocess.Popen(
                program,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        )

    def end(self):
        """Kill all of them."""
        for process in self.started:
            process.kill()
            process.wait()
            process.stderr.close()


def _said(process, start):
    """Return what a process says after some words."""
    for line in process.stderr:
        if start in line.decode():
            return line.decode().partition(start)[2].strip()
    raise AssertionError("it has ended")
