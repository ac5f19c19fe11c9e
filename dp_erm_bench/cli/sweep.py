"""From the arguments of a command line to the runner, and what follows a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from dp_erm_bench.cli.compose import Block, Composer, sweep_blocks
from dp_erm_bench.cli.experiment import experiment_blocks
from dp_erm_bench.cli.request import Request
from dp_erm_bench.config import results_folder, run_options
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.results.runs import read_manifest


def run_sweep(composer: Composer, request: Request, command: Sequence[str]) -> int:
    """Run what a command line asks for and return the exit code.

    Parameters
    ----------
    composer : Composer
        Hydra's loader.
    request : Request
        The checked command line.
    command : sequence of str
        The command line as typed, for the manifest.

    Raises
    ------
    UsageError
        Before anything runs.
    """
    from dp_erm_bench.runner.experiment import run_experiment

    blocks, config = resolved(composer, request)
    folder = results_folder(config, request.experiment)
    unnamed = unnamed_change(request, folder.name)
    if unnamed and config["mode"] != "plan":
        raise UsageError(unnamed)
    options = run_options(
        config,
        tuple(command),
        append_plan=request.experiment is None,
        files=experiment_file(composer, request.experiment),
    )
    before = read_manifest(folder).get("profile")
    code = run_experiment(blocks, folder.name, folder, options)
    if options.mode == "plan":
        if unnamed:
            print(f"before it is run: {unnamed}")
        return code
    if request.experiment is not None:
        _finish(folder, config)
        if before and before != options.profile:
            print(
                f"{folder}: held profile={before} until now; its trials are kept, and "
                "that profile's command makes its table again",
                file=sys.stderr,
            )
    else:
        print(f"results: {folder}", file=sys.stderr)
    return code


def unnamed_change(request: Request, folder: str) -> str:
    """Return why a changed experiment cannot have a folder, empty if it can.

    Its plan would replace that of the experiment as it is published: the table would
    lose all other trials, and the figures of both would lie side by side.
    """
    if folder != request.experiment or not request.changes:
        return ""
    given = request.changes[0]
    values = ",".join(
        f"{v:g}" if isinstance(v, float) else shown(v) for v in given.values
    )
    return (
        f"{given.key}={values}: changes "
        f"experiment={request.experiment}, whose results are in {folder}/; "
        f"give name=NAME, not {folder}, so that they stay as they are"
    )


def experiment_file(composer: Composer, name: str | None) -> dict[str, str]:
    """Return the SHA-256 of an experiment's file, the first on the search path."""
    search = [
        entry.path or "" for entry in composer.loader.get_search_path().get_path()
    ]
    for folder in (p.removeprefix("file://") for p in search if p.startswith("file:")):
        path = Path(folder, "experiment", f"{name}.yaml")
        if name and path.is_file():
            return {path.name: sha256(path.read_bytes()).hexdigest()}
    return {}


def resolved(
    composer: Composer, request: Request
) -> tuple[list[Block], dict[str, Any]]:
    """Return the blocks and the configuration that they come from."""
    if request.experiment is None:
        return sweep_blocks(composer, request)
    # Not at the top: a wrong line is refused before pandas comes.
    from dp_erm_bench.report.make import check_report

    config, _ = composer.compose(request)
    blocks = experiment_blocks(config, request)
    check_report(config)
    return blocks, {**config, "blocks": blocks}


def _finish(folder: Path, config: dict[str, Any]) -> None:
    from dp_erm_bench.cli.folders import report
    from dp_erm_bench.report.make import draw_and_judge

    draw_and_judge(folder, config)
    report(folder)
