"""Test rules for the whole project: the lock file, the registry, the tools."""

import ast
import functools
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from dp_erm_bench import registry
from dp_erm_bench.solvers.base import Solver
from tests import slow

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dp_erm_bench"
MODULES = sorted(PACKAGE.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def named(path):
    return str(path.relative_to(ROOT))


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def test_everything_public_is_documented():
    for path in MODULES:
        tree = parsed(path)
        if path.name != "__init__.py":
            assert ast.get_docstring(tree), named(path)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                written = "overload" not in map(ast.unparse, node.decorator_list)
                public = written and not node.name.startswith("_")
                said = ast.get_docstring(node)
                assert said or not public, f"{named(path)}: {node.name}"


def test_only_the_top_package_has_content():
    for path in MODULES:
        if path.name == "__init__.py" and path.parent != PACKAGE:
            assert path.read_text() == "", named(path)


def test_every_folder_of_modules_is_a_package():
    for folder in {path.parent for path in MODULES}:
        assert (folder / "__init__.py").is_file(), named(folder)


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


def test_no_solver_knows_a_budget_or_a_noise_scale():
    """Rules do, which are asked before there is a solver."""
    for path in sorted((PACKAGE / "solvers").glob("*.py")):
        names = {
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.Name | ast.Attribute)
        }
        wrong = names & {"epsilon", "delta", "sigma", "Budget", "calibrate"}
        assert not wrong, named(path)


def calls(path):
    """The names of what a module calls, of methods without their objects."""
    for node in ast.walk(parsed(path)):
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
    # `check` asks a second time, with private values.
    own.add(PACKAGE / "contract" / "typed.py")
    assert callers - own == {PACKAGE / "run.py"}


PARTS_OF_A_RISK = {"dataset", "loss", "margins"}
# Of other things than a problem: a law's loss, blocks of an experiment, missing data.
NO_PROBLEMS = {"self", "block", "one"}


def test_what_serves_any_problem_reads_no_part_of_an_empirical_risk():
    for path in MODULES:
        # Rules and estimators are of empirical risks only.
        if {"solvers", "rules", "estimators"} & {path.parent.name, path.stem}:
            continue
        if "erm" in path.parts:
            continue
        for node in ast.walk(parsed(path)):
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
        ("requirements-docs.lock", ["docs"]),
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
    optional = {"runner/engines/dask.py": {"dask", "distributed"}}
    optional["runner/engines/cluster.py"] = {"dask", "dask-jobqueue"}
    for path in MODULES:
        extra = optional.get(path.relative_to(PACKAGE).as_posix(), set())
        for node in ast.walk(parsed(path)):
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
    chosen = "-m not slow and not engines and"
    assert "-n auto" in most and f"{chosen} not alone --junitxml=" in most
    assert "-n " not in alone and f"{chosen} alone --junitxml=" in alone
    assert alone.endswith(" tests/test_one.py")
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
    parts = [line for line in lines if line.startswith("part ")]
    first = ["part lint", "part test", "part test-alone"]
    assert parts == [*first, "part reproduce-figures PROFILE=smoke"]


@pytest.mark.parametrize(
    "red", ["lint", "test", "test-alone", "reproduce-figures", "test-slow", "docs", ""]
)
def test_ci_fails_with_its_parts_and_runs_slow_tests_of_what_changed(red, tmp_path):
    def run(**given):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
        done = subprocess.run(
            [tmp_path / ".ci" / "run"],
            env={**os.environ, "CI_ALL": "", **path, **given},
            capture_output=True,
            text=True,
        )
        return done, [line.split()[0] for line in log.read_text().splitlines()]

    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    make, python = tmp_path / "make", tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    make.write_text(f'#!/bin/sh\necho $* >> $LOG\n[ "$1" != "{red}" ]\n')
    python.write_text("#!/bin/sh\nexit $CHANGED\n")
    for path in (make, python):
        path.chmod(0o755)
    parts = ["lint", "test", "test-alone", "reproduce-figures", "test-slow", "docs"]
    for changed, all_ in (("0", ""), ("1", ""), ("0", "1")):
        wanted = parts if "1" in (changed, all_) else parts[:4]
        if red in wanted:
            wanted = wanted[: wanted.index(red) + 1]
        done, ran = run(CHANGED=changed, CI_ALL=all_)
        assert ran == wanted
        assert (done.returncode != 0) == (red in wanted)
        assert len(re.findall(r"^== make .*: \d+ s$", done.stdout, re.M)) == len(ran)


def test_the_slow_tests_cover_what_they_run_and_see_each_change(tmp_path):
    """All of the package, the choices and the experiments; of tests, their own."""
    names = set(slow.digests())
    package = {named(path) for path in MODULES}
    assert package <= names
    assert {named(path) for path in ROOT.glob("conf/*/*.yaml")} <= names | {
        f"conf/experiment/{path.name}" for path in ROOT.glob("experiments/*.yaml")
    }
    assert {"pyproject.toml", "requirements.lock", "tests/conftest.py"} <= names
    assert "tests/test_architecture.py" not in names
    recorded = "".join(f"{d} {n}\n" for n, d in slow.digests().items())
    assert slow.changed(recorded) == []
    other = recorded.replace(" dp_erm_bench/api.py", " dp_erm_bench/gone.py")
    assert slow.changed(other) == ["dp_erm_bench/api.py", "dp_erm_bench/gone.py"]
    other = ("1" if recorded[0] == "0" else "0") + recorded[1:]
    assert slow.changed(other) == [recorded.split()[1]]


FILES = {
    named(path.with_suffix("")).replace("/", ".").removesuffix(".__init__"): path
    for path in MODULES
}


def imported(path):
    """The modules of the package that a file names, in imports or as a string.

    What ends in a dot is a folder, of which one is chosen by name.
    """
    for node in ast.walk(parsed(path)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        for name in names:
            if re.fullmatch(r"dp_erm_bench(\.\w+)+\.", name):
                yield from (module for module in FILES if module.startswith(name))
            elif name.startswith("dp_erm_bench"):
                yield from (name, name.rpartition(".")[0])


def test_every_module_is_reached_by_a_fast_test():
    """Through imports, and through the choices, which name what they build."""
    fast = [p for p in ROOT.glob("tests/**/test_*.py") if not slow.all_slow(p)]
    waiting = [name for path in fast for name in imported(path)]
    for path in ROOT.glob("conf/*/*.yaml"):
        targets = re.findall(r"_target_: *(dp_erm_bench[\w.]+)", path.read_text())
        waiting += [target.rpartition(".")[0] for target in targets]
    reached = set()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += imported(FILES[name]) if name in FILES else ()
            # A release's twin is found by its file's name.
            waiting.append(name.replace(".releases.", ".trust.twins."))
    # Started by its folder's name: `python -m dp_erm_bench`.
    started = {"__init__.py", "__main__.py"}
    unreached = {n for n in set(FILES) - reached if FILES[n].name not in started}
    assert not unreached, unreached


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


def test_no_comparison_of_small_numbers_holds_by_itself():
    assert pytest.approx(2e-13) != 1e-13
    assert pytest.approx([2e-13]) != [1e-13] and pytest.approx({"a": 2e-13}) != {"a": 0}
    assert pytest.approx(np.array([2e-13])) != np.array([1e-13])
    assert ["x", None, 2e-13] == pytest.approx(["x", None, 2e-13])
