"""Choose and check the engine that carries tasks to their hosts, by its name."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import re
import sys
from typing import TYPE_CHECKING

from dp_erm_bench.errors import UsageError, value_error
from dp_erm_bench.experiment.schema import ENGINES, EngineConfig, RunnerConfig
from dp_erm_bench.registry import check_choice
from dp_erm_bench.runner.engines.base import (
    ACTIVE,
    HANG,
    Engine,
    explain_missing_dask,
    hanging_backend_error,
)

if TYPE_CHECKING:
    from dp_erm_bench.runner.engines.dask import Connection
    from dp_erm_bench.runner.host import Worker

BACKENDS = ("threading", "loky", ACTIVE)

JOBS = "dask with a runner.cluster, as slurm,"
OWNERS = {
    "backend": "joblib",
    **dict.fromkeys(("address", "cluster", "patience", "mixed_cpus"), "dask"),
    **dict.fromkeys(("queue", "walltime", "memory", "interface"), JOBS),
    **dict.fromkeys(("job_extra_directives", "adapt"), JOBS),
}
"""The engine that each key of the configuration belongs to."""

BRIEF = 5.0
"""Seconds within which a scheduler must answer a question about its size."""

ADDRESS = re.compile(r"(tcp|tls)://([\w.-]+|\[[\da-fA-F:]+\]):([1-9]\d{0,4})")
"""Pattern of a scheduler's address."""


def check_engine(options: RunnerConfig) -> None:
    """Raise UsageError if an engine's key is wrong or belongs to another engine.

    Raises
    ------
    UsageError
        The message has the key, its value, and the allowed values.
    """
    check_choice("runner", options.engine, [*ENGINES])
    jobs = options.engine == "dask" and options.cluster != "local"
    usual, asked = EngineConfig(), {options.engine, JOBS if jobs else ""}
    for key, owner in OWNERS.items():
        value = getattr(options, key)
        if owner not in asked and value != getattr(usual, key):
            raise UsageError(f"runner.{key}={value}: only runner={owner} has it")
    if options.backend in HANG:
        raise hanging_backend_error(
            f"runner.backend={options.backend}", options.backend
        )
    check_choice("runner.backend", options.backend, [*BACKENDS])
    if not options.patience > 0:
        raise value_error("runner.patience", options.patience, "positive seconds")
    if options.address is not None and not ADDRESS.fullmatch(options.address):
        rule = "as tcp://host:8786 or tls://host:8786"
        raise value_error("runner.address", options.address, rule)
    if jobs and options.address is not None:
        raise UsageError(
            f"runner.address={options.address}: the scheduler of "
            f"runner.cluster={options.cluster} runs in this process"
        )
    if jobs:
        with explain_missing_dask(f"runner.cluster={options.cluster}"):
            from dp_erm_bench.runner.engines.cluster import check_jobs
        check_jobs(options)


def is_exposed(address: str) -> bool:
    """Return whether others on the network can read or write at an address."""
    protocol, host = address.split("://", 1)
    name = host.rpartition(":")[0].strip("[]")
    with contextlib.suppress(ValueError):
        return protocol == "tcp" and not ipaddress.ip_address(name).is_loopback
    return protocol == "tcp" and name != "localhost"


def engine_of(
    options: EngineConfig, n_jobs: int | None, early: Worker | None = None
) -> Engine:
    """Return the engine that a configuration names.

    Parameters
    ----------
    options : EngineConfig
        The configuration, already checked.
    n_jobs : int or None
        Number of workers; None for as many as there are.
    early : Worker, optional
        A worker that was started already, for an engine in this process.

    Raises
    ------
    UsageError
        If a package is missing, or something that the package needs.
    """
    if options.engine == "dask":
        connection = _connection_of(options, n_jobs)
        from dp_erm_bench.runner.engines.dask import DaskEngine

        if options.address and is_exposed(options.address):
            print(
                f"dp-erm-bench: runner.address={options.address}: without TLS, whoever "
                "reaches this port can run code on its workers and read what is sent",
                file=sys.stderr,
            )
        return DaskEngine(connection, options.patience, options.mixed_cpus)
    from dp_erm_bench.runner.engines.joblib import JoblibEngine

    backend = options.backend if options.engine == "joblib" else "threading"
    return JoblibEngine(n_jobs, backend, early)


def _connection_of(options: EngineConfig, n_jobs: int | None) -> Connection:
    with explain_missing_dask("runner=dask"):
        from dp_erm_bench.runner.engines.dask import Connection
    return Connection(options, n_jobs)


def workers_of(options: RunnerConfig) -> int:
    """Return the number of batches that an engine runs at once, without starting it.

    Raises
    ------
    UsageError
        If the scheduler at an address does not answer.
    """
    if options.engine == "dask" and options.address:
        brief = dataclasses.replace(options, patience=min(options.patience, BRIEF))
        with _connection_of(brief, None) as connection:
            return max(sum(connection.threads().values()), 1)
    if options.n_jobs is None:
        import joblib

        return int(joblib.effective_n_jobs(None))
    return int(options.n_jobs)
