"""What a remote worker must prove before it gets a trial: that its numbers are ours.

A worker introduces itself by a flat mapping of strings: the digests of its sources, its
versions, its CPU, and the digests of what the run needs. It is compared with that of
the process which started the run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.datasets.load import (
    DataPin,
    forget_datasets,
    load_dataset,
    pin_datasets,
    pin_of,
)
from dp_erm_bench.experiment.lines import FitLine, Line
from dp_erm_bench.plugins.load import place_of
from dp_erm_bench.plugins.names import content, is_file, named_in
from dp_erm_bench.plugins.passed import is_ours, solver_digest
from dp_erm_bench.registry import ALGORITHM, FROM_FILES, conf_dir

VERSIONS = (
    *("numpy", "scipy", "numba", "llvmlite", "dp-accounting", "scikit-learn"),
    *("intel-cmplr-lib-rt", "icc-rt"),
)
"""Packages that numbers depend on; what pandas has read is compared as data.

Numba takes the exponential function of Intel's, where there is one.
"""

SETTINGS = (
    *("NUMBA_OPT", "NUMBA_DISABLE_JIT", "NUMBA_ENABLE_AVX", "NUMBA_LOOP_VECTORIZE"),
    *("NUMBA_SLP_VECTORIZE", "NUMBA_DISABLE_INTEL_SVML"),
)
"""Variables that change what is computed."""

NUMBAS = ".numba_config.yaml"  # in the working folder: such settings, too
CPU_SETTINGS = (
    *("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"),
    "GLIBC_TUNABLES",
)
"""Variables that have a library take the CPU for another one."""

CPU, FEATURES, MACHINE, STALE = "cpu", "features", "machine", "stale"
PACKAGE, VERSION, SETTING = "package ", "version ", "setting "
DATA, FILE, SOLVER = "dataset ", "file ", "solver "
"""Starts of keys."""

Introduction = Mapping[str, str]
_one_at_a_time = threading.Lock()


class Needs(NamedTuple):
    """What a run needs of every machine that runs its trials.

    Attributes
    ----------
    datasets : sequence of DataPin
        Its datasets, as they are where the run was started.
    files : sequence of (str, str)
        Group and pin of the files of solvers and losses.
    solvers : sequence of str
        Names of the algorithms that installed packages offer.
    """

    datasets: Sequence[DataPin] = ()
    files: Sequence[tuple[str, str]] = ()
    solvers: Sequence[str] = ()


def needs_of(lines: Iterable[Line]) -> Needs:
    """Return what the trials of some lines need."""
    datasets: dict[str, DataPin] = {}
    files: dict[tuple[str, str], None] = {}
    solvers: dict[str, None] = {}
    for line in lines:
        for base in _specs(line):
            text = spelled(base.get("dataset"))
            if text and text not in datasets:
                datasets[text] = pin_of(base["dataset"])
            for group in FROM_FILES:
                name = named_in(base[group]) if base.get(group) else ""
                if is_file(name):
                    files[group, name] = None
                elif group == ALGORITHM and name and not is_ours(name):
                    solvers[name] = None
    return Needs(tuple(datasets.values()), tuple(files), tuple(solvers))


def _specs(line: Line) -> Iterator[Mapping[str, Any]]:
    """Yield the specs of a line without what is open; one, if its trials are fits."""
    if isinstance(line, FitLine):
        yield line.base
    else:
        yield from (setting.base for setting in line.settings)


def spelled(dataset: Any) -> str:
    """Return a trial's dataset as the text of its pin; empty if it has no loader."""
    loaded = isinstance(dataset, Mapping) and "_target_" in dataset
    return json.dumps(dataset, sort_keys=True) if loaded else ""


def introduce(needs: bytes) -> str:
    """Return what this process can prove of itself, as JSON.

    It is called on workers, by reference: the code that answers is that of the worker.

    Parameters
    ----------
    needs : bytes
        JSON of a `Needs`.
    """
    found = _itself()
    # Another version may ask for other things; it is told by its sources.
    with contextlib.suppress(Exception):
        datasets, files, solvers = json.loads(needs)
        found |= _of_needs(Needs([DataPin(*pin) for pin in datasets], files, solvers))
    return json.dumps(found, sort_keys=True)


def expected(needs: Needs) -> dict[str, str]:
    """Return the introduction of a worker that may run the trials of this process."""
    return {
        **_itself(),
        **{DATA + pin.text: pin.content for pin in needs.datasets},
        **{FILE + pin: content(pin) for _, pin in needs.files},
        **{SOLVER + name: solver_digest(name) for name in needs.solvers},
    }


def kind_of_cpu(introduction: Introduction) -> str:
    """Return the name of a CPU, with a digest of its features."""
    features = hashlib.sha256(introduction[FEATURES].encode()).hexdigest()
    return f"{introduction[CPU]} {features[:8]}"


@functools.cache
def own_kind() -> str:
    """Return the kind of CPU of this process."""
    return kind_of_cpu(_cpu())


def _itself() -> dict[str, str]:
    packages = {PACKAGE + name: digest for name, digest in _sources().items()}
    versions = {name: _version(name) for name in VERSIONS}
    versions["python"] = platform.python_version()
    # Kernels call its exponential function and logarithm.
    versions["libc"] = " ".join(platform.libc_ver())
    versions["blas"] = _blas()
    settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    with contextlib.suppress(OSError):
        settings[NUMBAS] = hashlib.sha256(Path(NUMBAS).read_bytes()).hexdigest()
    return {
        MACHINE: platform.node(),
        STALE: "yes" * (_sources() != _loaded()),
        **_cpu(),
        **packages,
        **{VERSION + name: version for name, version in versions.items()},
        **{SETTING + name: value for name, value in settings.items()},
    }


def _cpu() -> dict[str, str]:
    """Return the CPU that numba compiles for, by name and features."""
    import llvmlite.binding as llvm  # 0.1 s, and runs on this machine do not ask

    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        # Of another CPU than the own, numba takes none of the own's features.
        features = llvm.get_host_cpu_features().flatten() if name != "generic" else ""
    taken = [f"{key}={os.environ[key]}" for key in CPU_SETTINGS if key in os.environ]
    return {CPU: name, FEATURES: ",".join([*filter(None, [features]), *taken])}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _blas() -> str:
    """Return the library that numpy was built with: one version has several."""
    import numpy as np

    built = np.show_config(mode="dicts") or {}
    blas = built.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', '')} {blas.get('version', '')}".strip()


def _sources() -> dict[str, str]:
    """Return the digests of the package's sources and of the yaml of its parts."""
    package, conf = Path(__file__).resolve().parents[1], conf_dir()
    files = {str(file.relative_to(package)): file for file in package.rglob("*.py")}
    for group in sorted(conf.iterdir()):
        if group.is_dir() and group.name not in ("experiment", "runner"):
            files |= {f"conf/{group.name}/{f.name}": f for f in group.glob("*.yaml")}
    return {n: hashlib.sha256(f.read_bytes()).hexdigest() for n, f in files.items()}


@functools.cache
def _loaded() -> dict[str, str]:
    """Return the digests of the sources when this process was asked for the first time.

    It, and the children that it has, may run what was there then.
    """
    return _sources()


def _content_of(pin: DataPin) -> str:
    """Return the hash of a dataset as found here; empty where it is not, or another."""
    try:
        return load_dataset(json.loads(pin.text)).content_hash
    except Exception:  # a client's, or that of a file which is another one
        return ""


def _of_needs(needs: Needs) -> dict[str, str]:
    """Return the digests of what a run needs, as found here; none of what is not."""
    found: dict[str, str] = {}
    with _one_at_a_time:
        pin_datasets(needs.datasets)
        for pin in needs.datasets:
            found[DATA + pin.text] = _content_of(pin)
        pin_datasets(())
        forget_datasets()
    for group, file in needs.files:
        found[FILE + file] = content(file) if place_of(file, group) else ""
    for name in needs.solvers:
        try:
            found[SOLVER + name] = solver_digest(name)
        except Exception:  # whatever an installed package does
            found[SOLVER + name] = ""
    return found
