"""A sweep that runs as one job of a batch system while nobody waits for it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench import paths
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import EngineConfig
from dp_erm_bench.results.files import locked, telling, typed
from dp_erm_bench.runner.engines.cluster import log_of
from dp_erm_bench.runner.engines.jobs import (
    SYSTEMS,
    ask,
    check_script,
    described,
    directives,
    exports,
    listed,
    said,
    waits,
)
from dp_erm_bench.runner.options import RunOptions

RECORD = "job.json"
LOGS = "jobs"
HEARD = ".heard"
LOOK = 0.2
"""Seconds between two looks for what a job writes."""

ASK = 2.0
"""Seconds between two questions to the batch system."""


def submit(folder: Path, options: RunOptions) -> None:
    """Submit a job that runs this command line with `runner=local`; say which.

    It has `n_jobs` cores of one node, and memory for as many workers. The results
    folder must be shared with that node: the job writes a word into it and ends where
    it does not find the parent's there; the parent reads the job's before it returns,
    unless the job still waits after `options.patience`.

    Parameters
    ----------
    folder : Path
        The results folder.
    options : RunOptions
        Checked ones.

    Raises
    ------
    UsageError
        If a job runs this sweep already, the batch system refuses the job, or the
        node does not share the folder.
    """
    if options.command[:1] != ("dp-erm-bench",):
        raise UsageError(
            "runner.detach=true: a job runs a command line; start it with dp-erm-bench"
        )
    system, token = SYSTEMS[options.cluster], secrets.token_hex(16)
    with telling(folder), locked(folder):
        _check_alone(folder)
        (folder / LOGS).mkdir(exist_ok=True)
        script = script_of(folder, options, token)
        check_script(options, script)
        _write(folder, {"cluster": options.cluster, "token": token})
        asked = ask(system.submit, script=script)
        number = re.search(r"\d+", asked.stdout)
        if asked.returncode or not number:
            # One that was taken after all finds no word of this command, and ends.
            _write(folder, {"cluster": options.cluster})
            why = said(asked.stderr or asked.stdout)
            raise UsageError(f"{described(options)}: {system.submit} says: {why}")
        job = number[0]
        _write(folder, {"cluster": options.cluster, "token": token, "job": job})
    look = shlex.join([*system.listing, job])
    try:
        where = _heard(folder, options, token, job)
    except BaseException:
        ask(system.cancel, job)
        raise
    print(f"job {job} {where}; look at it with: {look}")
    print(f"what it says: {typed(folder / LOGS)}")


def script_of(folder: Path, options: RunOptions, token: str) -> str:
    """Return the script of the job, with the head that dask-jobqueue makes."""
    from dp_erm_bench.runner.engines.dask import jobqueue

    kind = getattr(jobqueue(), SYSTEMS[options.cluster].cluster).job_cls
    asked = directives(options, options.workers)
    job = kind("tls://", name="sweep", log_directory=str(folder / LOGS), **asked)
    record, heard = folder / RECORD, folder / LOGS / f"{token}{HEARD}"
    lines = [
        "#!/usr/bin/env bash",
        job.job_header,
        *exports({}),
        f"cd {shlex.quote(os.getcwd())} || exit 2",
        f"if ! grep -q {token} {shlex.quote(str(record))}; then",
        "  echo 'the results folder is not shared with this node' >&2; exit 2",
        "fi",
        f"echo {token} $(hostname) > {shlex.quote(str(heard))}",
        f"exec {shlex.join(command_of(options))}",
    ]
    return "\n".join(lines) + "\n"


def command_of(options: RunOptions) -> Sequence[str]:
    """Return the command line that runs the same sweep on the node of the job."""
    keys = {f"runner.{field.name}" for field in dataclasses.fields(EngineConfig)}
    keys |= {"runner", "runner.n_jobs", "runner.worker_memory"}
    kept = [one for one in options.command[1:] if one.partition("=")[0] not in keys]
    limit = options.worker_memory
    memory = "null" if limit is None else f"{limit:.0f}"
    own = [f"runner.n_jobs={options.workers}", f"runner.worker_memory={memory}"]
    return [sys.executable, "-m", "dp_erm_bench", *kept, "runner=local", *own]


def _check_alone(folder: Path) -> None:
    """Refuse to have two jobs run one sweep."""
    try:
        record = json.loads((folder / RECORD).read_text())
        # It goes into a command line, and the folder may be anybody's.
        cluster, job = str(record["cluster"]), str(int(record["job"]))
        there = job in listed(cluster, [job])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if there:
        look = shlex.join([*SYSTEMS[cluster].listing, job])
        raise UsageError(
            f"runner.detach=true: job {job} of {cluster} runs this sweep already; "
            f"look at it with: {look}"
        )


def _heard(folder: Path, options: RunOptions, token: str, job: str) -> str:
    """Return what is known of the job after `options.patience` at most.

    Raises
    ------
    UsageError
        If it runs, or has ended, and has not written into the folder.
    """
    until, asked = time.monotonic() + options.patience, 0.0
    name = f"{token}{HEARD}"
    while True:
        there = True
        if time.monotonic() > asked + ASK:
            there, asked = job in listed(options.cluster, [job]), time.monotonic()
            waiting = waits(options, [job])
        # To list a folder makes a network file system look.
        if name in os.listdir(folder / LOGS):
            written = (folder / LOGS / name).read_text()
            if token in written:
                (folder / LOGS / name).unlink()
                return f"runs this sweep on {written.split()[-1]}"
        if there and time.monotonic() < until:
            time.sleep(LOOK)
        elif there and waiting:
            return (
                f"waits ({waiting[job]}) and will run this sweep, if its node shares "
                "the results folder"
            )
        elif there and options.cluster != "slurm":
            # It may wait: these systems are not asked. It looks for the folder itself.
            return "has not begun yet, or its node does not share the results folder"
        else:
            break
    last = "".join(f" ({one})" for one in log_of(folder / LOGS, job).splitlines()[-1:])
    raise UsageError(
        f"runner.detach=true: job {job} did not write into {typed(folder)}, which its "
        f"node must share{last}"
    )


def _write(folder: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record).encode()
    paths.write_atomic(folder / RECORD, lambda file: file.write(text))
