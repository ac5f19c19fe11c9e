"""From the arguments of a command line to the runner, and what follows a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from dp_erm_bench.cli.compose import Block, Composer, sweep_blocks
from dp_erm_bench.cli.experiment import experiment_blocks
from dp_erm_bench.cli.folders import check_figures
from dp_erm_bench.cli.request import Request
from dp_erm_bench.cli.shape import check_size
from dp_erm_bench.config import results_folder, run_options
from dp_erm_bench.figures.stated import check_claims


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
    check_size(blocks)
    check_figures(config)
    folder = results_folder(config, request.experiment)
    options = run_options(
        config,
        tuple(command),
        append_plan=request.experiment is None,
        files=experiment_file(composer, request.experiment),
    )
    code = run_experiment(blocks, folder.name, folder, options)
    if options.mode == "plan":
        return code
    if request.experiment is not None:
        _finish(folder, config)
    else:
        print(f"results: {folder}", file=sys.stderr)
    return code


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
    config, _ = composer.compose(request)
    blocks = experiment_blocks(config, request)
    check_claims(config["claims"], config["blocks"])
    return blocks, {**config, "blocks": blocks}


def _finish(folder: Path, config: dict[str, Any]) -> None:
    from dp_erm_bench.cli.folders import draw_and_judge, report

    draw_and_judge(folder, config)
    report(folder)
