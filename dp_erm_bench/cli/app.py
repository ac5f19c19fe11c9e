"""From a command line to the runner: read it once, compose, run, draw and judge."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from dp_erm_bench.cli.blocks import Block, experiment_blocks, sweep_blocks
from dp_erm_bench.cli.compose import Composer
from dp_erm_bench.cli.files import by_path, check_config, check_experiment, experiments
from dp_erm_bench.cli.folders import results_folder
from dp_erm_bench.cli.grammar import check_hydra
from dp_erm_bench.cli.request import read
from dp_erm_bench.cli.tuning import TUNE, run_tuned, take
from dp_erm_bench.errors import UsageError, printable
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.runner.options import run_options

_NOISE = re.compile(
    r"^\s*(full_key:|object_type=|reference_type=|See https?://|Config search path|"
    r"provider=|Set the environment variable|$)"
)
MULTIRUN = ("-m", "--multirun")


def run(arguments: Sequence[str]) -> int:
    """Run a sweep, or show its configuration, and return the exit code.

    Parameters
    ----------
    arguments : sequence of str
        The command line without the program's name; `tune` first if it tunes.
    """
    try:
        searched = [*arguments[:1]] == [TUNE]
        flags, overrides = _split(arguments[searched:])
        folders = [Path(flags.config_dir)] if flags.config_dir else []
        tune, profile = None, None
        if searched:
            tune, profile, overrides = take(overrides)
        overrides, files = by_path(overrides)
        folders += files
        request = read(overrides, folders)
        if flags.config_name:
            check_config(flags.config_name, folders)
        if request.experiment is not None:
            check_experiment(request.experiment, folders)
        composer = Composer(request, flags.config_name or "config", folders)
        if flags.cfg:
            print(composer.show(flags.cfg, flags.package, flags.resolve))
            return 0
        command = ["dp-erm-bench", *(a for a in arguments if a not in MULTIRUN)]
        if tune is not None:
            return run_tuned(composer, command, tune, profile)
        return run_sweep(composer, command)
    except (UsageError, HydraException, OmegaConfBaseException, YAMLError) as error:
        print(f"dp-erm-bench: {sentence(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"dp-erm-bench: not enough memory ({error})", file=sys.stderr)
        return 2


def sentence(error: BaseException) -> str:
    """Return the message of an error and of its causes as one line."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        lines = [line for line in str(cause).splitlines() if not _NOISE.match(line)]
        text = " ".join(" ".join(lines).split())
        if text and not any(text in part for part in parts):
            parts.append(text)
        cause = cause.__cause__
    return printable(": ".join(parts) or type(error).__name__)


def tune_command(arguments: Sequence[str]) -> int:
    """Tune algorithms on problems, and return the exit code of the run."""
    return run([TUNE, *arguments])


def run_sweep(composer: Composer, command: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    Parameters
    ----------
    composer : Composer
        With the checked command line.
    command : sequence of str
        The command line as typed, for the manifest.

    Raises
    ------
    UsageError
        Before anything runs.
    """
    from dp_erm_bench.runner.experiment import run_experiment

    name = composer.request.experiment
    blocks, config = resolved(composer)
    folder = results_folder(config, composer.request.folder)
    changed = config["changes"]
    if changed and folder.name == name:
        raise UsageError(
            f"{changed[0]}: changes experiment={name}, whose results are in "
            f"{folder.name}/; leave name={name} out, so that they stay as they are"
        )
    what = f"{folder}: the folder of experiment={name} with {' '.join(changed)}"
    notice = f"{what}; its figures and claims say so" if changed else ""
    options = run_options(
        config,
        tuple(command),
        append_plan=name is None,
        files=experiment_file(composer),
        notice=notice,
    )
    before = read_manifest(folder).get("profile")
    code = run_experiment(blocks, folder.name, folder, options)
    if name is None and options.mode != "plan":
        print(f"results: {folder}", file=sys.stderr)
    if name is None or options.mode == "plan" or options.detach:
        return code
    _finish(folder, config)
    if before and before != options.profile:
        print(
            f"{folder}: held profile={before} until now; its trials are kept, and "
            "that profile's command makes its table again",
            file=sys.stderr,
        )
    return code


def experiment_file(composer: Composer) -> dict[str, str]:
    """Return the SHA-256 of the experiment's file by its name, empty for a sweep."""
    name = composer.request.experiment
    path = experiments(composer.folders).get(name) if name else None
    return {path.name: sha256(path.read_bytes()).hexdigest()} if path else {}


def resolved(composer: Composer) -> tuple[list[Block], dict[str, Any]]:
    """Return the blocks and the configuration that they come from.

    `changes` holds the command line's changes of an experiment.
    """
    request = composer.request
    if request.experiment is None:
        blocks, config = sweep_blocks(composer)
        return blocks, {**config, "changes": []}
    # Not at the top: a wrong line is refused before pandas comes.
    from dp_erm_bench.report.make import check_report

    config, _ = composer.compose()
    blocks = experiment_blocks(config, request)
    check_report(config)
    return blocks, {**config, "blocks": blocks, "changes": request.changes}


def _finish(folder: Path, config: dict[str, Any]) -> None:
    from dp_erm_bench.cli.folders import report
    from dp_erm_bench.report.make import draw_and_judge

    draw_and_judge(folder, config)
    report(folder)


def _split(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the flags and the `key=value` arguments.

    Raises
    ------
    UsageError
        For a flag that does not exist, lacks its value or has no effect.
    """
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    try:
        flags, rest = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None
    for argument in rest:
        if argument.startswith("-"):
            check_hydra(argument)
            raise UsageError(f"{argument}: no such option; see dp-erm-bench --help")
    for name in ("config_dir", "config_name", "package"):
        if getattr(flags, name) == "":
            raise UsageError(f"--{name.replace('_', '-')}=: needs a value")
    for name in ("package", "resolve"):
        if getattr(flags, name) and not flags.cfg:
            raise UsageError(f"--{name}: belongs to --cfg job|hydra|all, which shows")
    if flags.config_dir and not os.path.isdir(flags.config_dir):
        raise UsageError(f"--config-dir {flags.config_dir}: no such folder")
    return flags, rest
