"""Hydra's part: compose, hand over to our sweeper, say errors in one sentence."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from dp_erm_bench.cli.compose import Composer
from dp_erm_bench.cli.files import check_config, check_experiment
from dp_erm_bench.cli.flags import folders, hydra_arguments, split
from dp_erm_bench.cli.outside import offer
from dp_erm_bench.cli.request import read
from dp_erm_bench.cli.sweep import run_sweep
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.frame import Frame
from dp_erm_bench.registry import conf_dir

SWEEPER = "hydra_plugins.dp_erm_bench.BlockSweeper"
_NOISE = re.compile(
    r"^\s*(full_key:|object_type=|reference_type=|See https?://|Config search path|"
    r"provider=|Set the environment variable|$)"
)


def run(arguments: Sequence[str]) -> int:
    """Run a sweep, or show its configuration, and return the exit code.

    Parameters
    ----------
    arguments : sequence of str
        The command line without the program's name.
    """
    try:
        flags, overrides = split(arguments)
        request = read(overrides, folders(flags))
        if flags.config_name:
            check_config(flags.config_name, folders(flags))
        if request.experiment is not None:
            check_experiment(request.experiment, folders(flags))
        offer(request.algorithms)
        if flags.cfg:
            return _show(hydra_arguments(flags, overrides))
        return _hydra(hydra_arguments(flags, overrides))
    except (UsageError, HydraException, OmegaConfBaseException, YAMLError) as error:
        print(f"dp-erm-bench: {sentence(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"dp-erm-bench: not enough memory ({error})", file=sys.stderr)
        return 2


def sweep(arguments: Sequence[str], loader: ConfigLoader, config: DictConfig) -> int:
    """Run the sweep that Hydra hands to the plug-in and return its exit code."""
    search = [entry.path or "" for entry in loader.get_search_path().get_path()]
    ours = [Path(p.removeprefix("file://")) for p in search if p.startswith("file:")]
    request = read([argument.removeprefix("++") for argument in arguments], ours)
    node = config.hydra
    composer = Composer(loader, node.job.config_name, list(node.overrides.hydra))
    command = [a.removeprefix("++") for a in sys.argv if a != "--multirun"]
    return run_sweep(composer, request, command)


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
    return ": ".join(parts) or type(error).__name__


def _show(arguments: Sequence[str]) -> int:
    """Show the configuration; Hydra says what is wrong and leaves with 1."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = _hydra(arguments)
    if code:
        raise UsageError(" ".join(said.getvalue().split()))
    return code


def _hydra(arguments: Sequence[str]) -> int:
    store = ConfigStore.instance()
    store.store(name="schema", node=Frame)
    for group in ("loss", "penalty"):
        store.store(group=group, name="auto", node={})
    store.store(group="hydra/sweeper", name="blocks", node={"_target_": SWEEPER})
    main: Any = hydra.main(
        version_base="1.3", config_path=str(conf_dir()), config_name="config"
    )(_never)
    with _environment(["dp-erm-bench", *arguments]):
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _never(config: DictConfig) -> None:
    raise AssertionError("the sweeper runs the trials, not Hydra")


@contextlib.contextmanager
def _environment(arguments: list[str]) -> Iterator[None]:
    """Lend Hydra the command line, and have it raise its errors to us."""
    before, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = arguments, "1"
    try:
        yield
    finally:
        sys.argv = before
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full
