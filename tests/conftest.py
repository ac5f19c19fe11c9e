"""Settings of every test: one thread, a cache of its own, and the data mirror."""

import atexit
import contextlib
import functools
import inspect
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from dp_erm_bench.paths import cache_dir

# Before anything imports numpy.
for library in ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB_MAXIMUM", "NUMEXPR"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

# Kernels are compiled for all sessions, not for each, where the cache can be written.
KERNELS = cache_dir() / "machine_code"
with contextlib.suppress(OSError):
    KERNELS.mkdir(parents=True, exist_ok=True)
if os.access(KERNELS, os.W_OK):
    os.environ.setdefault("DP_ERM_BENCH_MACHINE_CODE", str(KERNELS))
# The workers of a session share the cache of the process that started them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    CACHE = tempfile.mkdtemp(prefix="dp_erm_bench_tests_")
    # Nor does each parse the package: the digests of its modules are kept, too.
    with contextlib.suppress(OSError):
        DIGESTS = KERNELS.with_name("code")
        DIGESTS.mkdir(exist_ok=True)
        Path(CACHE, "code").symlink_to(DIGESTS)
    os.environ["DP_ERM_BENCH_CACHE"] = CACHE
    atexit.register(shutil.rmtree, CACHE, ignore_errors=True)

# pytest's is 1e-12: all smaller numbers, such as deltas, would be equal. An expected 0
# is 0 alone, unless `abs` is given.
type(pytest.approx(1.0)).DEFAULT_ABSOLUTE_TOLERANCE = 0.0

# A shell's background and nohup have signals ignored, which children inherit; what a
# handler hears, be it nothing, is the default of theirs.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

MIRROR = Path(__file__).resolve().parents[2] / "shared" / "data"
if (MIRROR / "MANIFEST.csv").is_file():
    os.environ.setdefault("DP_ERM_BENCH_DATA", str(MIRROR))


@pytest.fixture(autouse=True)
def heeded():
    """Let Ctrl-C be heard by a test, also where a shell had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def trusted():
    """Keep what is compiled after a test that writes a file."""
    yield
    if kernels := sys.modules.get("dp_erm_bench.machine_code"):
        kernels._begun = time.time()


@pytest.fixture(autouse=True, scope="session")
def no_download():
    """Leave published sets where they are: without a mirror their tests are skipped."""
    from dp_erm_bench.datasets import libsvm

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libsvm, "is_reachable", lambda host: False)
        yield


@pytest.fixture(scope="session")
def warm():
    """Yield what forks processes that have the package imported."""
    from tests.warm import Server

    server = Server()
    yield server
    server.end()


@pytest.fixture(autouse=True)
def forked_workers(request, monkeypatch):
    """Fork the workers that a test's own process starts, but where starts matter."""
    if request.path.parent.name in ("faults", "engines", "kernels"):
        return
    if request.node.get_closest_marker("real_workers"):
        return
    from dp_erm_bench.runner import host

    real = host.start_process

    def start(*given, **more):
        return request.getfixturevalue("warm").worker(real)(*given, **more)

    monkeypatch.setattr(host, "start_process", start)


def pytest_configure() -> None:
    from hypothesis import settings
    from hypothesis.internal.conjecture import providers
    from hypothesis.internal.constants_ast import Constants

    # Else what is drawn depends on which modules a worker happens to have imported.
    nothing = Constants()
    providers._get_local_constants = lambda: nothing
    settings.register_profile("project", deadline=None, derandomize=True)
    settings.load_profile("project")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many cores this process may use: a container hides some."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def pytest_addoption(parser) -> None:
    told = "append to a file what each test took: [id, CPU s, its children's CPU s]"
    parser.addoption("--cpu", metavar="FILE", help=told)
    told = "only tests/datasets and tests that name a published set, or the mirror"
    parser.addoption("--published", action="store_true", help=told)


def pytest_collection_modifyitems(config, items) -> None:
    """Keep what `--published` asks for, by the sources of tests and their fixtures."""
    if not config.getoption("published"):
        return
    sets = (Path(__file__).parents[1] / "conf" / "dataset").glob("*.yaml")
    real = [path.stem for path in sets if "datasets.real." in path.read_text()]
    named = re.compile(rf"\b({'|'.join((*real, 'libsvm', 'mirror', 'VARIABLE'))})\b")

    @functools.cache
    def names_one(function):
        own = function.__name__ != "no_download"
        return own and named.search(inspect.getsource(inspect.unwrap(function)))

    def is_asked_for(item):
        if of_data in item.path.parents or item.nodeid in config.args:
            return True
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        functions = [item.function, *(one.func for own in fixtures for one in own)]
        ours = [one for one in functions if "pytest" not in one.__module__]
        return named.search(item.nodeid) or any(map(names_one, ours))

    of_data = Path(__file__).parent / "datasets"
    kept = {one: is_asked_for(one) for one in items}
    config.hook.pytest_deselected(items=[one for one in items if not kept[one]])
    items[:] = [one for one in items if kept[one]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    before = os.times()
    result = yield
    if path := item.config.getoption("cpu"):
        spent = [now - then for now, then in zip(os.times(), before, strict=True)]
        line = [item.nodeid, sum(spent[:2]), sum(spent[2:4])]
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")
    return result


def pytest_sessionstart(session) -> None:
    if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
        reporter.write_line("collecting tests, in every process ...")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node, ids) -> None:
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    reporter.write_line(f"{node.gateway.id} has collected {len(ids):,} tests")
