"""The options of the commands, and options of Hydra that have no effect here."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from dp_erm_bench.cli.usage import HELP
from dp_erm_bench.errors import UsageError

INSTEAD = {
    "--info": "--cfg all shows the configuration, `dp-erm-bench list` every choice",
    "--hydra-help": "--help names all keys and options",
    "--run": "leave it out, a run is what there is",
    "--config-path": "--config-dir FOLDER adds a folder of experiments",
    "--experimental-rerun": "the same command does what is missing",
    "hydra.run": "set results_dir=FOLDER, or name=NAME of a folder in it",
    "hydra.sweep": "set results_dir=FOLDER, or name=NAME of a folder in it",
    "hydra.output_subdir": "runs/RUN.json of the results holds the configuration",
    "hydra.launcher": "set runner=joblib or runner=dask, and runner.n_jobs=N",
    "hydra.sweeper": "a,b and range(0,10) are axes; blocks with `tune` search",
    "hydra.searchpath": "--config-dir FOLDER adds a folder of experiments",
    "hydra": "no key of hydra's own can be set; docs/sweeps.md lists what works",
}
"""Hydra's options and keys that have no effect here, and what to use instead."""

SHORT = {"-i": "--info", "-r": "--run", "-cp": "--config-path"}


def check_hydra(argument: str) -> None:
    """Raise UsageError for an option or key of Hydra that has no effect here.

    Raises
    ------
    UsageError
        The message says what to use instead.
    """
    name = argument.lstrip("+~").partition("=")[0].replace("/", ".")
    name = SHORT.get(name, name)
    while name and name not in INSTEAD:
        name = name.rpartition(".")[0]
    if name:
        kind = "option" if name.startswith("-") else "key"
        raise UsageError(f"{argument}: no such {kind}; {INSTEAD[name]}")


class Parser(argparse.ArgumentParser):
    """A parser of one command's options that raises UsageError."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError with the message and the usage."""
        raise UsageError(f"{self.prog}: {message}; as in {self.usage}")


def existing_folder(text: str) -> Path:
    """Return the path of a folder, and check that it exists.

    Raises
    ------
    ArgumentTypeError
        If the folder does not exist; argparse turns this into its error message.
    """
    if not (text and Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"{text}: no such folder")
    return Path(text)


Option = tuple[Sequence[str], dict[str, Any]]
FOLDERS: Option = ("folders",), {"nargs": "+", "type": existing_folder}
NAMES = {"action": "extend", "type": lambda text: text.split(","), "default": []}
HYDRA: tuple[Option, ...] = (
    (("--multirun", "-m"), {"action": "store_true"}),
    (("--cfg", "-c"), {"choices": ["job", "hydra", "all"]}),
    (("--package", "-p"), {}),
    (("--resolve",), {"action": "store_true"}),
    (("--config-name", "-cn"), {}),
    (("--config-dir", "-cd"), {"type": existing_folder}),
)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "advise": (
        (("--n",), {"type": int, "required": True}),
        (("--p",), {"type": int, "required": True}),
        (("--norm",), {"type": float, "required": True}),
        (("--epsilon",), {"type": float, "required": True}),
        (("--delta",), {"default": "1/n^2"}),
        (("--adjacency",), {"default": "replace_one"}),
        (("--loss",), {"default": "logistic"}),
        (("--label",), {"type": float}),
        (("--strength",), {"type": float}),
        (("--radius",), {"type": float, "default": math.inf}),
        (("--column",), {"type": float}),
        (("--nonzeros",), {"type": int}),
        (("--algorithm",), {}),
        (("--rows",), {"action": "store_true"}),
        (("--json",), {"action": "store_true"}),
    ),
    "bundle": (
        (("folder",), {"type": existing_folder}),
        (("--out",), {"type": Path}),
        (("--with-private-numbers",), {"dest": "whole", "action": "store_true"}),
    ),
    "check": (
        (("algorithms",), {"nargs": "*"}),
        (("--first",), {"action": "store_true"}),
        (("--only",), NAMES),
        (("--accept",), NAMES),
    ),
    "collect": (FOLDERS,),
    "list": ((("words",), {"nargs": "*"}),),
    "look": (
        (("path",), {"metavar": "FILE.csv"}),
        (("keys",), {"nargs": "*"}),
    ),
    "replay": (
        (("folder",), {"type": Path}),
        (("--sample",), {"default": "5"}),
        (("--seed",), {"type": int}),
        (("--trust",), {"action": "store_true"}),
        (("--data",), {"type": existing_folder}),
    ),
    "report": (FOLDERS, (("--out",), {"type": Path})),
    "run": HYDRA,
    "tune": HYDRA,
}
"""The options of each command; options of figures and tables are in `plots`."""


def parser_of(command: str) -> Parser:
    """Return the parser of a command's options."""
    usage = HELP[command].partition("\n")[0]
    parser = Parser(command, usage, add_help=False, allow_abbrev=False)
    for names, settings in OPTIONS[command]:
        parser.add_argument(*names, **settings)
    return parser
