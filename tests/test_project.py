"""Guards of the whole project: sizes, the lock, the registry, the infrastructure."""

import ast
import inspect
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from dp_erm_bench import registry
from dp_erm_bench.solvers.base import Solver

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dp_erm_bench"
MODULES = sorted(PACKAGE.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def named(path):
    return str(path.relative_to(ROOT))


def functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, node.end_lineno - node.lineno + 1


def body_lines(node):
    """Count the lines of a function without decorators, signature and docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_files_and_functions_are_short(path):
    lines = path.read_text().count("\n")
    assert lines <= 250
    for node, lines in functions(path):
        assert lines <= 50, f"{node.name} has {lines} lines"


def test_the_median_function_is_short():
    lengths = [body_lines(node) for path in MODULES for node, _ in functions(path)]
    assert statistics.median(lengths) <= 8


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_everything_public_is_documented(path):
    tree = ast.parse(path.read_text())
    if path.name != "__init__.py":
        assert ast.get_docstring(tree)
    public = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
    ]
    for node in public:
        assert ast.get_docstring(node), node.name


@pytest.mark.parametrize(
    "path", [p for p in MODULES if p.name == "__init__.py"], ids=named
)
def test_only_the_top_package_has_content(path):
    assert path.parent == PACKAGE or path.read_text() == ""


@pytest.mark.parametrize(
    "folder", [p for p in PACKAGE.rglob("*") if p.is_dir()], ids=named
)
def test_every_folder_of_modules_is_a_package(folder):
    if any(folder.glob("*.py")):
        assert (folder / "__init__.py").is_file()


def test_every_solver_has_a_yaml_and_every_yaml_a_solver():
    defined = set()
    for path in (PACKAGE / "solvers").glob("*.py"):
        module = registry.importlib.import_module(f"dp_erm_bench.solvers.{path.stem}")
        defined |= {
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Solver)
            and not inspect.isabstract(value)
            and value.__module__ == module.__name__
        }
    named_ = {registry.target("algorithm", n) for n in registry.names("algorithm")}
    assert named_ == defined


@pytest.mark.parametrize("path", sorted((PACKAGE / "solvers").glob("*.py")), ids=named)
def test_no_solver_knows_a_budget_or_a_noise_scale(path):
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
    }
    assert not names & {"epsilon", "delta", "sigma", "Budget", "calibrate"}


def calls(path):
    """The names of what a module calls, of methods without their objects."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            named_ = node.func
            yield getattr(named_, "id", getattr(named_, "attr", ""))


@pytest.mark.parametrize("called", ["make_mechanisms", "releases"])
def test_one_file_declares_and_makes_mechanisms(called):
    """The order of a run, from the declaration to the record, stands there only.

    A solver may ask the class above it for what it declares, and nested mechanisms make
    those inside, as one that repeats a run makes the mechanisms of each.
    """
    callers = {path for path in MODULES if called in calls(path)}
    own = {path for path in callers if path.parent.name == "solvers"}
    if called == "make_mechanisms":
        own.add(PACKAGE / "releases" / "nested.py")
    assert callers - own == {PACKAGE / "run.py"}


PARTS_OF_A_RISK = {"dataset", "loss", "margins"}
# Of other things than a problem: a law's loss, blocks of an experiment, missing data.
NO_PROBLEMS = {"self", "block", "one"}


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in MODULES
        if path.parent.name != "solvers" and "erm" not in path.parts
    ],
    ids=named,
)
def test_what_serves_any_problem_reads_no_part_of_an_empirical_risk(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in PARTS_OF_A_RISK:
            owner = node.value.id if isinstance(node.value, ast.Name) else "?"
            assert owner in NO_PROBLEMS, f"{named(path)}:{node.lineno}"


def locked(name):
    """Return the pins of a lock, by the names of the packages, and their hashes."""
    pins = {}
    for pin in (ROOT / name).read_text().replace("\\\n", " ").splitlines():
        if not pin.startswith("#"):
            wanted, *hashes = pin.split(" --hash=sha256:")
            pins[canonicalize_name(Requirement(wanted).name)] = (wanted, hashes)
    return pins


def required(*extras):
    """Return what the package needs to be built, to run, and for some extras."""
    groups = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    asked += [r for extra in extras for r in groups[extra] if "dp_erm_bench" not in r]
    return [Requirement(r) for r in asked]


def pinned(pin):
    (version,) = Requirement(pin[0]).specifier
    assert version.operator == "==", pin[0]
    return version.version


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements.lock", ["dask", "test", "dev"]),
        ("requirements-oldest.lock", ["dask", "test"]),
    ],
)
def test_a_lock_satisfies_every_requirement_with_hashes(lock, extras):
    pins = locked(lock)
    for requirement in required(*extras):
        version = pinned(pins[canonicalize_name(requirement.name)])
        assert requirement.specifier.contains(version), requirement
    for wanted, hashes in pins.values():
        assert hashes, wanted
        assert all(re.fullmatch("[0-9a-f]{64} *", digest) for digest in hashes), wanted


def test_the_oldest_versions_are_those_that_are_declared():
    pins = locked("requirements-oldest.lock")
    for requirement in required("dask", "test"):
        lowest = [s.version for s in requirement.specifier if s.operator == ">="]
        version = Version(pinned(pins[canonicalize_name(requirement.name)]))
        assert lowest and Version(lowest[0]) == version, requirement


def test_what_is_imported_is_required():
    asked = {
        canonicalize_name(Requirement(r).name)
        for r in PROJECT["project"]["dependencies"]
    }
    providers = {"sklearn": "scikit-learn", "hydra": "hydra-core", "PIL": "pillow"}
    providers |= {"yaml": "omegaconf", "markdown_it": "markdown-it-py"}
    optional = {"runner/engines/dask.py": {"dask", "distributed", "dask-jobqueue"}}
    for path in MODULES:
        extra = optional.get(path.relative_to(PACKAGE).as_posix(), set())
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            for module in modules:
                top = module.partition(".")[0]
                own = top in ("dp_erm_bench", *sys.stdlib_module_names)
                name = canonicalize_name(providers.get(top, top))
                assert own or name in asked | extra, f"{path.name} imports {top}"


def test_hooks_are_local():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]


def test_the_makefile_knows_its_targets():
    said = subprocess.run(
        ["make", "-n", "-C", str(ROOT), "reproduce-figures", "PROFILE=smoke"],
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0
    assert "profile=smoke" in said.stdout
    told = (ROOT / "Makefile").read_text()
    for experiment in registry.names("experiment"):
        assert experiment in said.stdout or f"{experiment} " in told


def test_tests_use_all_cores_but_for_those_that_run_alone(tmp_path):
    """What of each half fails, the whole fails; an interrupt ends it at once."""

    def run(*codes):
        log = tmp_path / "log"
        log.write_text("")
        python = tmp_path / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        wanted = "".join(f"[ $n -ne {n} ] || exit {c}\n" for n, c in enumerate(codes))
        python.write_text(f"#!/bin/sh\nn=$(wc -l < {log})\necho $* >> {log}\n{wanted}")
        python.chmod(0o755)
        (tmp_path / ".venv" / ".ready").touch()
        code = subprocess.run(
            ["make", "-f", ROOT / "Makefile", "-o", ".venv/.ready", "test"],
            cwd=tmp_path,
            capture_output=True,
        ).returncode
        return code, log.read_text().splitlines()

    (tmp_path / "tests").mkdir()
    for name, mark in (("one", "alone"), ("other", "slow")):
        (tmp_path / "tests" / f"test_{name}.py").write_text(f"@pytest.mark.{mark}")
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).touch()
    code, (most, alone) = run(0, 0)
    assert code == 0
    assert "-n auto" in most and most.endswith("-m not alone and not engines")
    assert "-n " not in alone and alone.endswith("-m alone tests/test_one.py")
    for codes, calls in (((1, 0), 2), ((0, 1), 2), ((2, 0), 1)):
        code, ran = run(*codes)
        assert code != 0 and len(ran) == calls


def test_an_old_python_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).touch()
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    said = subprocess.run(
        ["make", "-C", str(tmp_path), "test", f"PYTHON={old}"],
        capture_output=True,
        text=True,
    )
    assert said.returncode != 0
    assert "needs Python 3.11, 3.12 or 3.13" in said.stderr
    assert not (tmp_path / ".venv").exists()


def test_ci_lints_tests_and_draws():
    run = ROOT / ".ci" / "run"
    assert run.stat().st_mode & 0o111
    lines = run.read_text().splitlines()
    assert "set -euo pipefail" in lines
    makes = [line for line in lines if line.startswith("make")]
    assert makes == ["make lint", "make test", "make reproduce-figures PROFILE=smoke"]


def test_nothing_names_a_path_or_an_index_of_a_machine():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    words = [f"/{word}/" for word in ("work", "tmp", "root")]
    words += ["pypi." + "org", "--index" + "-url", "--extra" + "-index"]
    words += ["--find" + "-links"]
    for name in listed:
        path = ROOT / name
        if path.suffix in (".py", ".yaml", ".toml", ".md", ".lock", "") and (
            path.is_file() and path.name != "LICENSE"
        ):
            text = path.read_text()
            for word in words:
                assert word not in text, f"{name}: {word}"
