"""Make random mutants of the package, and record which tests detect them.

A change of the tests must still detect all mutants that were detected before. `draw`
writes mutants.csv next to this file. Its mutants are swapped operators in every
package, and changed constants on which the noise depends. A mutant is stored as a line
of a definition, before and after the change. So it is found again if the line moves.
`map FILE` runs the tests once under coverage.py, which it installs for itself, and
stores which tests run which line. `run --map FILE` gives each mutant the tests that run
its line, the fastest first. It writes the first test that fails, ``timeout``,
``survived``, or ``lost`` if the line no longer exists.

All commands use the commit and the .venv of a checkout, in clones in a temporary
folder. The folder can be set by ``--folder``, which keeps machine code for the next
run:

    python -m benchmarks.mutants map new.map -- -m "not alone and not engines"
    python -m benchmarks.mutants run --map new.map
    python -m benchmarks.mutants --checkout OLD map old.map -- -m ...
    python -m benchmarks.mutants --checkout OLD run --map old.map --column before

`--column before` runs only the mutants that survived, against the earlier tests. The
last line tells how many of them the earlier tests had detected. This number must be 0.
"""

import argparse
import ast
import collections
import contextlib
import csv
import functools
import gzip
import io
import itertools
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("mutants.csv")
COLUMNS = ("path", "definition", "kind", "line", "mutant", "killer", "before")
PACKAGES = (
    "kernels losses norms penalties constraints datasets problems releases accounting "
    "solvers trust results experiment"
).split()

SWAPS: dict[type, tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
KNOWN = (
    "dp_erm_bench/penalties/base.py",
    "_elastic_gap",
    "*",
    "inside = -excess * size + 0.5 * l2 * size**2",
    "inside = -excess * size + 0.5 * l2 / size**2",
)
"""A mutant that all tests of its package once failed to detect."""

TEXT = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
"""Nodes that `+` may join; another operator there is an error at once.

Such mutants are left out, because every test would detect them.
"""

TELLING = 30
"""A line with at least this many characters is found again by its text alone."""

CONSTANTS = 0.3
"""Share of changed constants among a package's mutants.

Without this limit they would be half of the mutants.
"""

SOON = 20.0
"""Total seconds of the fastest tests, which run before all others."""

FILES = 8
COMPILED = ("kernels", "losses")
"""Packages of compiled code, which coverage.py cannot trace.

Every test that fits a model counts as running their lines.
"""

NEAR = tuple(f"tests/{name}/" for name in (*COMPILED, "problems", "solvers"))
SLACK, SLACK_COMPILED = 120.0, 900.0
"""Seconds added to five times the tests' own time, and where kernels compile."""


@dataclass(frozen=True)
class Edit:
    """A change of one line: its place, its kind, and the new text."""

    node: ast.AST
    kind: str
    line: int
    start: int
    end: int
    text: str


class Source:
    """The text of a file, its syntax tree, and the line ranges of its definitions."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.tree = ast.parse(text)
        self.spans: dict[str, list[range]] = collections.defaultdict(list)
        self.spans[""].append(range(1, len(self.lines) + 1))
        self.bodies: list[range] = []
        self._enter(self.tree, "")

    def _enter(self, node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = above
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{above}.{child.name}".lstrip(".")
                self.spans[name].append(range(child.lineno, _last(child) + 1))
            if isinstance(child, ast.FunctionDef):
                self.bodies.append(range(child.body[0].lineno, _last(child) + 1))
            self._enter(child, name)

    def definition(self, line: int) -> str:
        """Return the innermost definition around a line; empty in a module's body."""
        around = [n for n, spans in self.spans.items() if any(line in s for s in spans)]
        return max(around, key=lambda name: name.count(".") + bool(name))

    def find(self, line: str, inside: Callable[[str], bool]) -> list[int]:
        """Return the line numbers of a text, in definitions that satisfy ``inside``."""
        return [
            number
            for number, text in enumerate(self.lines, 1)
            if text.strip() == line and inside(self.definition(number))
        ]

    def at_import(self, line: int) -> bool:
        """Return whether a line runs at import, outside of any function's body."""
        return not any(line in body for body in self.bodies)

    def edits(self) -> Iterator[Edit]:
        """Yield all mutants of the file, except in texts, annotations and ``raise``."""
        yield from self._edits(self.tree)

    def _edits(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
                return
            case ast.BinOp(left=left, right=right, op=op) if type(op) in SWAPS:
                if not _is_text(left) and not _is_text(right):
                    yield from self._between(node, left, right, op)
            case ast.AugAssign(target=target, value=value, op=op) if type(op) in SWAPS:
                if not _is_text(value):
                    yield from self._between(node, target, value, op)
            case ast.Compare(left=left, ops=ops, comparators=compared):
                sides = [left, *compared]
                for pair, sign in zip(itertools.pairwise(sides), ops, strict=True):
                    if type(sign) in SWAPS:
                        yield from self._between(node, *pair, sign)
            case ast.BoolOp(values=values, op=op):
                for one, other in itertools.pairwise(values):
                    yield from self._between(node, one, other, op)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as called):
                if name in NAMES:
                    end, swap = called.end_col_offset or 0, NAMES[name]
                    start = end - len(name)
                    yield Edit(node, name, _last(called), start, end, swap)
            case ast.Constant(value=int() | float() as number):
                if not isinstance(number, bool):
                    whole = isinstance(number, int) or number == 0
                    more = repr(number + 1 if whole else 2 * number)
                    start, end = node.col_offset, node.end_col_offset or 0
                    yield Edit(node, "constant", node.lineno, start, end, more)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._edits(child)

    def _between(
        self, node: ast.AST, left: Any, right: Any, op: ast.AST
    ) -> Iterator[Edit]:
        """Yield the mutant with another operator between two operands."""
        word, other = SWAPS[type(op)]
        for number in range(left.end_lineno, right.lineno + 1):
            line = self.lines[number - 1].encode()
            start = left.end_col_offset if number == left.end_lineno else 0
            end = right.col_offset if number == right.lineno else len(line)
            gap = line[start:end].partition(b"#")[0].decode()
            if word in gap:
                at = start + gap.index(word)
                yield Edit(node, word, number, at, at + len(word), other)
                return

    def apply(self, edit: Edit) -> str:
        """Return the line after an edit; columns count bytes, as in ast."""
        line = self.lines[edit.line - 1].encode()
        return (line[: edit.start] + edit.text.encode() + line[edit.end :]).decode()


def _last(node: Any) -> int:
    return int(node.end_lineno)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, TEXT) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _sources(root: Path) -> dict[str, Source]:
    files = sorted((root / "dp_erm_bench").rglob("*.py"))
    return {str(f.relative_to(root)): Source(f.read_text()) for f in files}


def _package(path: str) -> str:
    return Path(path).with_suffix("").parts[1]


Row = dict[str, str]


def _row(*values: str) -> Row:
    return dict(zip(COLUMNS, (*values, "", ""), strict=True))


def _rows_of(path: str, source: Source, edits: Iterator[Edit]) -> Iterator[Row]:
    """Yield rows for edits of lines that occur only once in their definition."""
    for edit in edits:
        line, mutant = source.lines[edit.line - 1].strip(), source.apply(edit).strip()
        definition = source.definition(edit.line)
        if len(source.find(line, definition.__eq__)) == 1:
            yield _row(path, definition, edit.kind, line, mutant)


def draw(root: Path, each: int, constants: int, seed: int) -> list[Row]:
    """Return random mutants of each package, and changes of constants of the noise."""
    sources = _sources(root)
    rows = [_row(*KNOWN)]
    for package in PACKAGES:
        found = [
            row
            for path, source in sources.items()
            if _package(path) == package
            for row in _rows_of(path, source, source.edits())
        ]
        pick, few = random.Random(f"{seed} {package}"), round(CONSTANTS * each)
        rows += pick.sample([r for r in found if r["kind"] != "constant"], each - few)
        rows += pick.sample([r for r in found if r["kind"] == "constant"], few)
    for package in ("releases", "accounting", "solvers"):
        inside = {p: s for p, s in sources.items() if _package(p) == package}
        declaring = _declaring(inside) if package == "solvers" else None
        found = [
            row
            for path, source in inside.items()
            for row in _rows_of(path, source, source.edits())
            if row["kind"] == "constant" and row not in rows
            if declaring is None or row["definition"].rpartition(".")[2] in declaring
        ]
        pick = random.Random(f"{seed} {package} constants")
        rows += pick.sample(found, constants // 3)
    return rows


def _declaring(sources: dict[str, Source]) -> set[str]:
    """Return the names of functions that a method ``releases`` calls, at any depth."""
    bodies: dict[str, list[ast.AST]] = collections.defaultdict(list)
    for source in sources.values():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef):
                bodies[node.name].append(node)
    reached: set[str] = set()
    waiting = ["releases"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            for node in itertools.chain.from_iterable(map(ast.walk, bodies[name])):
                called = getattr(node, "func", None)
                used = getattr(called, "id", getattr(called, "attr", ""))
                if used in bodies:
                    waiting.append(used)
    return reached


def locate(row: Row, sources: dict[str, Source]) -> tuple[str, int] | None:
    """Return the file and line of a mutant, even if its definition has moved.

    If its definition was renamed, the line is found only if it is long enough.
    """
    path, whole, line = row["path"], row["definition"], row["line"]
    name = whole.rpartition(".")[2]
    same = [p for p in sources if _package(p) == _package(path)]
    wheres: list[tuple[Iterable[str], Callable[[str], bool]]] = [
        ([path] if path in sources else [], whole.__eq__),
        (same, whole.__eq__),
        (sources, whole.__eq__),
        (sources, lambda other: other.rpartition(".")[2] == name),
    ]
    if len(line) >= TELLING:
        wheres += [(same, lambda other: True), (sources, lambda other: True)]
    for paths, inside in wheres:
        found = [(p, n) for p in paths for n in sources[p].find(line, inside)]
        if len(found) == 1:
            return found[0]
    return None


def mutated(row: Row, source: Source, line: int) -> str:
    """Return the text of a file with a mutant in it."""
    lines = source.lines.copy()
    lines[line - 1] = lines[line - 1].replace(row["line"], row["mutant"])
    return "\n".join(lines)


class Clone:
    """A clone of a checkout's commit, with an environment in which tests run."""

    def __init__(self, checkout: Path, folder: Path, name: str) -> None:
        self.root = folder / name / "checkout"
        self.python = str(checkout / ".venv" / "bin" / "python")
        self.plugin = folder / "plugin"
        self.plugin.mkdir(parents=True, exist_ok=True)
        shutil.copy(__file__, self.plugin / "mutants_plugin.py")
        shutil.rmtree(self.root, ignore_errors=True)
        quiet = ["git", "clone", "--quiet", "--no-hardlinks"]
        subprocess.run([*quiet, str(checkout), str(self.root)], check=True)
        self.stamp = 1_000_000_000
        beside = checkout.parent / "shared"
        if beside.is_dir() and not (self.root.parent / "shared").exists():
            (self.root.parent / "shared").symlink_to(beside)
        cache = folder / "cache"
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (self.root, self.plugin))),
            "NUMBA_CACHE_DIR": str(cache / "machine_code"),
            "XDG_CACHE_HOME": str(cache),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def write(self, path: str, text: str) -> None:
        """Write a file with a new time stamp, so that no old bytecode is used."""
        self.stamp += 1
        (self.root / path).write_text(text)
        os.utime(self.root / path, (self.stamp, self.stamp))

    def pytest(
        self, arguments: Sequence[str], limit: float | None = None, **variables: str
    ) -> int | None:
        """Run pytest and return its exit code; None if the time limit is exceeded."""
        with subprocess.Popen(
            [self.python, "-m", "pytest", "-p", "mutants_plugin", *arguments],
            cwd=self.root,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=None if limit is None else subprocess.DEVNULL,
            stderr=None if limit is None else subprocess.DEVNULL,
            start_new_session=True,
        ) as child:
            try:
                return child.wait(limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def first_failure(self, tests: dict[str, float], slack: float) -> str:
        """Return the first test that fails, ``timeout``, or empty if all pass."""
        if not tests:
            return ""
        with tempfile.TemporaryDirectory() as folder:
            order, failed = Path(folder) / "order", Path(folder) / "failed"
            order.write_text(json.dumps(list(tests)))
            code = self.pytest(
                [*QUIET, *dict.fromkeys(name.partition("::")[0] for name in tests)],
                slack + 5 * sum(tests.values()),
                MUTANTS_ORDER=str(order),
                MUTANTS_FAILED=str(failed),
            )
            if code is None:
                return "timeout"
            # 5: no test was found, as the mutant changed the parameters of all tests.
            if code in (0, 5):
                return ""
            # No name is known if pytest itself could not start.
            name = failed.read_text().partition("\n")[0] if failed.exists() else ""
            return name or f"pytest ended with {code}"


QUIET = "-x -q -p no:cacheprovider -p no:xdist".split()


# Functions that pytest calls, since this file is also a plugin of pytest.


def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Tell coverage.py, here and in child processes, which test begins."""
    if "MUTANTS_SECONDS" in os.environ:
        os.environ["MUTANTS_TEST"] = item.nodeid
        import coverage

        measured = coverage.Coverage.current()
        if measured is not None:
            measured.switch_context(item.nodeid)


_seconds: dict[str, float] = collections.defaultdict(float)
_bad: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the seconds of a test, and write down failures."""
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _bad.add(report.nodeid)
    if report.failed:
        _write_failed(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write down files that cannot be collected."""
    if report.failed:
        _write_failed(report.nodeid)


def _write_failed(name: str) -> None:
    if "MUTANTS_FAILED" in os.environ:
        with open(os.environ["MUTANTS_FAILED"], "a") as file:
            file.write(f"{name}\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Keep only the named tests, in the given order."""
    if "MUTANTS_ORDER" in os.environ:
        named = json.loads(Path(os.environ["MUTANTS_ORDER"]).read_text())
        places = {name: place for place, name in enumerate(named)}
        items[:] = sorted(
            (item for item in items if item.nodeid in places),
            key=lambda item: places[item.nodeid],
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Save the seconds of tests that passed, and the lines counted in this process."""
    if "MUTANTS_SECONDS" not in os.environ:
        return
    import coverage

    measured = coverage.Coverage.current()
    if measured is not None:
        measured.stop()
        measured.save()
    if not hasattr(session.config, "workerinput"):
        passed = {n: s for n, s in _seconds.items() if n not in _bad}
        Path(os.environ["MUTANTS_SECONDS"]).write_text(json.dumps(passed))


RC = """[run]
parallel = true
data_file = {data}
source = {source}
context = ${{MUTANTS_TEST-}}
disable_warnings = no-data-collected, module-not-measured
"""


def collect(checkout: Path, folder: Path, file: Path, arguments: Sequence[str]) -> None:
    """Run tests under coverage.py, and write a map of which tests run which line."""
    clone = Clone(checkout, folder, "map")
    tool, data = folder / "coverage", folder / "data"
    for old in folder.glob("data*"):
        old.unlink()
    install = [clone.python, "-m", "pip", "install", "--quiet", "--upgrade"]
    subprocess.run([*install, "--target", str(tool), "coverage>=7"], check=True)
    (tool / "sitecustomize.py").write_text(
        "import coverage\ncoverage.process_startup()\n"
    )
    rc, seconds = folder / "coveragerc", folder / "seconds.json"
    rc.write_text(RC.format(data=data, source=clone.root / "dp_erm_bench"))
    seconds.unlink(missing_ok=True)
    code = clone.pytest(
        ["-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "worksteal", *arguments],
        PYTHONPATH=os.pathsep.join((clone.environment["PYTHONPATH"], str(tool))),
        COVERAGE_PROCESS_START=str(rc),
        MUTANTS_SECONDS=str(seconds),
    )
    if code not in (0, 1) or not seconds.exists():
        sys.exit(f"the tests did not end: pytest gave {code}")
    sys.path.append(str(tool))
    file.write_bytes(gzip.compress(_lines(clone.root, data, seconds, checkout)))
    print(f"{len(json.loads(seconds.read_text()))} tests passed and are in {file}")


def _lines(root: Path, data: Path, seconds: Path, checkout: Path) -> bytes:
    """Return the map: tests with their seconds, and for each line a set of tests.

    Equal sets are stored only once.
    """
    from coverage import Coverage

    whole = Coverage(data_file=str(data), config_file=False)
    whole.combine([str(data.parent)])
    counted = whole.get_data()
    took: dict[str, float] = json.loads(seconds.read_text())
    places = {name: place for place, name in enumerate(took)}
    sets: dict[tuple[int, ...], int] = {}
    files: dict[str, dict[int, int]] = {}
    for name in counted.measured_files():
        if Path(name).is_relative_to(root):
            lines = files[str(Path(name).relative_to(root))] = {}
            for line, contexts in counted.contexts_by_lineno(name).items():
                met = tuple(sorted({places[c] for c in contexts if c in places}))
                lines[line] = sets.setdefault(met, len(sets))
    made = {
        "trees": _trees(checkout),
        "tests": took,
        "sets": list(sets),
        "lines": files,
    }
    return json.dumps(made).encode()


def _trees(checkout: Path) -> list[str]:
    """Return the git hashes of the package and of the tests at a checkout's commit."""
    said = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD:dp_erm_bench", "HEAD:tests"],
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.split()


class Map:
    """The map of which tests run which line of the package at one commit."""

    def __init__(self, file: Path, checkout: Path) -> None:
        known = json.loads(gzip.decompress(file.read_bytes()))
        if known["trees"] != _trees(checkout):
            sys.exit(f"{file}: is of another commit than {checkout}; make it again")
        self.tests: dict[str, float] = known["tests"]
        self._names = list(self.tests)
        self._sets: list[list[int]] = known["sets"]
        self._lines: dict[str, dict[str, int]] = known["lines"]

    def meeting(self, path: str, source: Source, line: int) -> dict[str, float]:
        """Return the tests that run a line, the fastest first.

        A line that runs at import gets all tests that call a function of the file. A
        line of compiled code, which is not traced, gets all tests that fit a model.
        """
        known = self._lines.get(path, {})
        if source.at_import(line):
            lines = [n for n in known if not source.at_import(int(n))]
        else:
            lines = [str(line)] if str(line) in known else []
        met = {t for n in lines or known for t in self._sets[known[n]]}
        if _package(path) in COMPILED:
            met |= {t for t, n in enumerate(self._names) if n.startswith(NEAR)}
            for near, found in self._lines.items():
                if _package(near) == "problems":
                    met.update(t for n in found.values() for t in self._sets[n])
        names = [self._names[t] for t in met]
        ordered = sorted(names, key=lambda name: (self.tests[name], name))
        return {name: self.tests[name] for name in ordered}


def _soon(tests: dict[str, float]) -> dict[str, float]:
    """Return the fastest tests from a few files, which detect most mutants."""
    total, files, soon = 0.0, set[str](), {}
    for name, seconds in tests.items():
        file = name.partition("::")[0]
        if file in files or len(files) < FILES:
            total += seconds
            if total > SOON:
                break
            files.add(file)
            soon[name] = seconds
    return soon


def killer(row: Row, clone: Clone, known: Map, sources: dict[str, Source]) -> str:
    """Return the test that detects a mutant, ``timeout``, ``survived`` or ``lost``.

    A test that also fails without the mutant does not count.
    """
    place = locate(row, sources)
    if place is None:
        return "lost"
    path, line = place
    source = sources[path]
    tests = known.meeting(path, source, line)
    slack = SLACK_COMPILED if _package(path) in COMPILED else SLACK
    text = "\n".join(source.lines)
    while True:
        clone.write(path, mutated(row, source, line))
        try:
            soon = _soon(tests)
            rest = {name: s for name, s in tests.items() if name not in soon}
            found = clone.first_failure(soon, slack)
            found = found or clone.first_failure(rest, slack)
        finally:
            clone.write(path, text)
        if not found or found == "timeout":
            return found or "survived"
        one = {found: tests[found]} if found in tests else soon
        again = clone.first_failure(one, slack)
        if not again:
            return found
        if found not in tests:
            sys.exit(f"without a mutant, too: {again}")
        del tests[found]


def run(args: argparse.Namespace, folder: Path) -> None:
    """Run the tests on the mutants of the table that have no result yet."""
    rows = read_table()
    known = Map(args.map, args.checkout)
    sources = _sources(args.checkout)
    chosen = [
        row
        for row in rows
        if not row[args.column] and args.only in f"{row['path']} {row['line']}"
        if args.column == "killer" or row["killer"] in ("survived", "lost")
    ][: args.most]
    clones: queue.Queue[Clone] = queue.Queue()
    for number in range(min(args.jobs, len(chosen))):
        clones.put(Clone(args.checkout, folder, str(number)))
    lock = threading.Lock()

    def work(row: Row) -> None:
        clone, begin = clones.get(), time.monotonic()
        try:
            found = killer(row, clone, known, sources)
        finally:
            clones.put(clone)
        with lock:
            row[args.column] = found
            write_table(rows)
            took = time.monotonic() - begin
            print(f"{took:6.0f} s  {row['path']}: {row['mutant']}\n          {found}")
            sys.stdout.flush()

    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            for done in [pool.submit(work, row) for row in chosen]:
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    told = collections.Counter(
        row["killer"] if row["killer"] in ("survived", "lost") else "found"
        for row in rows
        if row["killer"]
    )
    missed = [
        row
        for row in rows
        if row["killer"] in ("survived", "lost")
        and row["before"] not in ("", "survived")
    ]
    print(", ".join(f"{number} {word}" for word, number in sorted(told.items())))
    print(f"{len(missed)} that the tests of before find, and these do not")


def read_table() -> list[Row]:
    """Return the rows of mutants.csv."""
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def write_table(rows: list[Row]) -> None:
    """Write mutants.csv atomically."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    part = TABLE.with_suffix(".part")
    part.write_text(text.getvalue())
    part.replace(TABLE)


def main() -> None:
    """Draw mutants, map the tests, or run them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose commit")
    parser.add_argument("--folder", type=Path, help="of clones and machine code, kept")
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="write mutants.csv anew")
    drawing.add_argument("--each", type=int, default=10, help="swaps of each package")
    drawing.add_argument("--constants", type=int, default=30, help="of three packages")
    drawing.add_argument("--seed", type=int, default=29)
    mapping = commands.add_parser("map", help="run tests once, under coverage.py")
    mapping.add_argument("file", type=Path)
    mapping.add_argument("arguments", nargs="*", help="of pytest, after --")
    running = commands.add_parser("run", help="run the mutants without an answer")
    running.add_argument("--map", type=Path, required=True)
    running.add_argument("--column", choices=("killer", "before"), default="killer")
    running.add_argument("--only", default="", help="a part of the path or line")
    running.add_argument("--most", type=int, help="so many mutants")
    running.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    args.checkout = args.checkout.resolve()
    if args.command == "draw":
        write_table(draw(args.checkout, args.each, args.constants, args.seed))
        return
    with contextlib.ExitStack() as stack:
        temporary = functools.partial(
            tempfile.TemporaryDirectory, prefix="dp_erm_bench_mutants_"
        )
        folder = args.folder or Path(stack.enter_context(temporary()))
        folder = folder.resolve()
        if args.command == "map":
            collect(args.checkout, folder, args.file, args.arguments)
        else:
            run(args, folder)


if __name__ == "__main__":
    main()
