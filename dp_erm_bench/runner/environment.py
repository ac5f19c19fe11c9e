"""Describe the code, versions and CPU of a process, and compare those of workers.

A remote worker shares no memory with the parent. It may be stale, half updated, or on
another machine. So each of its answers describes its environment: a flat mapping of
strings, with digests of the package's files, versions, and the CPU. The parent accepts
an answer only if this is its own environment. A worker reads the files at its first
task, and compares their stamps after each task. If the stamps are equal, its children
have loaded the files that it described. The user's data and files must be the same on
the worker as on the parent; a child of the worker checks this for each batch.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dp_erm_bench.code_identity import package_state
from dp_erm_bench.errors import Unlike, UsageError, printable_text
from dp_erm_bench.experiment.lines import FitLine, Trial
from dp_erm_bench.plugins.load import load_class, path_of_pin
from dp_erm_bench.plugins.names import entry_points, is_file, named_in
from dp_erm_bench.plugins.passed import is_our_algorithm, solver_digest
from dp_erm_bench.registry import ALGORITHM, FROM_FILES, POSED, conf_dir

VERSIONS = (
    *("numpy", "scipy", "numba", "llvmlite", "dp-accounting", "scikit-learn"),
    *("intel-cmplr-lib-rt", "icc-rt"),
)
"""Packages on which computed numbers depend.

The data that pandas has read are compared themselves, so pandas is not listed. Numba
uses Intel's exponential function if that is installed.
"""

SETTINGS = (
    *("NUMBA_OPT", "NUMBA_DISABLE_JIT", "NUMBA_ENABLE_AVX", "NUMBA_LOOP_VECTORIZE"),
    *("NUMBA_SLP_VECTORIZE", "NUMBA_DISABLE_INTEL_SVML", "NUMBA_CPU_FEATURES"),
    *("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"),
    "GLIBC_TUNABLES",
)
"""Environment variables that change numbers, or the CPU that a library assumes."""

NUMBAS = ".numba_config.yaml"  # in the working folder; it has such settings, too

CPU, PACKAGE, STALE = "CPU", "dp_erm_bench", "stale"
INSTALL = "install the same there and start it again"
SHORT = 12
"""Number of digits of a digest that a message shows."""


def own_environment() -> dict[str, str]:
    """Return the environment of this process, and whether it is stale.

    The result is that of `at_first`, except for the entry `stale`. This entry is not
    empty if a file of the package was touched since the first call, or if a version or
    a setting has changed.
    """
    return {**at_first(), STALE: "yes" * (_seen() != _environment_now())}


def at_first() -> dict[str, str]:
    """Return the environment of this process as it was at the first call."""
    return {**_seen()[0], STALE: ""}


def machine_kind() -> dict[str, str]:
    """Return the CPU, versions and settings on which the bits of numbers depend."""
    settings = {name: os.environ.get(name, "unset") for name in SETTINGS}
    with contextlib.suppress(OSError):
        settings[NUMBAS] = hashlib.sha256(Path(NUMBAS).read_bytes()).hexdigest()
    return {CPU: own_cpu(), **_installed_versions(), **settings}


def _environment_now() -> tuple[dict[str, str], list[Any]]:
    stamps = _stamps_of_files()
    return {PACKAGE: _digest_of_package(), **machine_kind()}, stamps


_seen = functools.cache(_environment_now)


def first_difference(
    theirs: Mapping[str, str], ours: Mapping[str, str], mixed: bool = False
) -> str:
    """Return the first difference between a worker's environment and ours.

    The string contains a remedy. It is empty if there is no difference.

    Parameters
    ----------
    theirs, ours : mapping of str to str
        The result of `own_environment` on the worker and in this process.
    mixed : bool
        Whether several kinds of CPU are allowed.
    """
    if theirs.get(STALE):
        return "its dp_erm_bench has changed since it was started: start it again"
    free = {STALE, *([CPU] if mixed else [])}
    for key in {**ours, **theirs}:
        there, here = theirs.get(key, "not told"), ours.get(key, "unset")
        if there == here or (key in theirs and key in free):
            continue
        if key == PACKAGE:
            why = _differing_entries(there, here)
            return f"its {PACKAGE} is another one ({why}): {INSTALL}"
        why = "; runner.mixed_cpus=true allows several kinds" if key == CPU else ""
        key, there = printable_text(key, 100), printable_text(there, 100)
        return f"its {key} is {there}, here {here}{why}"
    return ""


@functools.cache
def own_cpu() -> str:
    """Return the name of the CPU that numba compiles for."""
    import llvmlite.binding as llvm  # takes 0.1 s; runs on one machine do not need it

    return os.environ.get("NUMBA_CPU_NAME") or str(llvm.get_host_cpu_name())


def _package_files() -> Iterator[Path]:
    """Yield the package's source files and the yaml files of its parts."""
    yield from Path(__file__).resolve().parents[1].rglob("*.py")
    for group in conf_dir().iterdir():
        if group.is_dir() and group.name not in ("experiment", "runner"):
            yield from group.glob("*.yaml")


def _stamps_of_files() -> list[Any]:
    """Return stamps of the package's files, which change if a file is replaced."""
    return [
        (file, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
        for file in sorted(_package_files())
        for one in (file.stat(),)
    ]


@functools.cache
def _digest_of_package() -> str:
    """Return the digest of the package's sources and of its parts' yaml files."""
    yaml = [
        (f"{file.parent.name}/{file.name}", file.read_text())
        for file in sorted(_package_files())
        if file.suffix == ".yaml"
    ]
    text = json.dumps([package_state(), sorted(yaml)])
    return hashlib.sha256(text.encode()).hexdigest()


def _installed_versions() -> dict[str, str]:
    """Return the installed versions of the packages on which numbers depend."""
    import numpy as np

    # The same version of numpy is built with different BLAS libraries. Kernels call
    # the C library's exponential function and logarithm.
    built = np.show_config(mode="dicts") or {}
    blas = built.get("Build Dependencies", {}).get("blas", {})
    found = dict.fromkeys(VERSIONS, "none") | {
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "blas": f"{blas.get('name', '')} {blas.get('version', '')}".strip(),
    }
    for name in VERSIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def pins_of(batches: Iterable[tuple[Trial, ...]]) -> dict[str, str]:
    """Return the pins of batches: identities that their problems and solvers must have.

    For a problem, the key of the result is the spec of the problem as JSON, and the
    value is the problem's identity. This identity includes the content of the data, and
    is part of the keys of trials. For an algorithm of an installed package, the key is
    the algorithm's name, and the value is the digest of its code. The files of a user
    need no pin here, because the specs contain their digests.
    """
    pins: dict[str, str] = {}
    for setting in {id(one[0].setting): one[0].setting for one in batches}.values():
        if isinstance(setting.line, FitLine):
            pins[_source_of_spec(setting.base)] = setting.line.problem.identity
        name = _algorithm_of(setting.base)
        if name in entry_points() and not is_our_algorithm(name):
            pins[name] = solver_digest(name)
    return pins


def check_batch(spec: Mapping[str, Any], pins: Mapping[str, str]) -> None:
    """Raise Unlike if this process does not have the data or the code of a batch.

    Data and code that are loaded here are kept, so the batch gets the same ones.

    Raises
    ------
    Unlike
        If data or code are missing, or differ from those of the run.
    """
    for group in FROM_FILES:
        pin = named_in(spec[group]) if spec.get(group) else ""
        if is_file(pin):
            if path_of_pin(pin, group) is None:
                where = pin.partition("#")[0]
                raise Unlike(f"{group}={where} is not there, or another one")
            try:
                load_class(pin, group)
            except UsageError as error:
                raise Unlike(str(error)) from None
    posed, name = pins.get(_source_of_spec(spec)), _algorithm_of(spec)
    if posed is not None:
        # Not at the top, since planning needs no kernels.
        from dp_erm_bench.runner.execute import problem_of_trial

        try:
            problem_of_trial(spec, posed)
        except Unlike:
            raise
        except Exception as error:  # as a changed file may raise
            name = spec["dataset"]["name"]
            raise Unlike(f"dataset {name} cannot be loaded: {error}") from None
    if name in pins:
        found = solver_digest(name) if name in entry_points() else ""
        if found != pins[name]:
            other = f"another package ({_differing_entries(found, pins[name])})"
            missing = "a package that is not installed"
            raise Unlike(f"algorithm={name} is of {other if found else missing}")


def _source_of_spec(spec: Mapping[str, Any]) -> str:
    return json.dumps([spec.get(part) for part in POSED], sort_keys=True)


def _algorithm_of(spec: Mapping[str, Any]) -> str:
    return named_in(spec.get(ALGORITHM) or {"name": ""})


def _differing_entries(there: str, here: str) -> str:
    return f"sha256 {there[:SHORT]}, here {here[:SHORT]}"
