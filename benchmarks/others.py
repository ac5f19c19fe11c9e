"""Measure plain Hydra's multirun and benchopt, with jobs that do nothing."""

import os
import sys
import time
import venv
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from subprocess import run

from benchmarks.measure import ROOT, Other, seconds, usual

FEW, MANY = 20, 100
"""Two numbers of jobs; their difference in time gives the cost of a job.

So the cost contains no start-up time.
"""

GROUPS = ("dataset", "loss", "penalty", "algorithm")

OBJECTIVE = """
from benchopt import BaseObjective

class Objective(BaseObjective):
    name = "Nothing"
    sampling_strategy = "run_once"

    def set_data(self, x):
        self.x = x

    def get_objective(self):
        return {"x": self.x}

    def evaluate_result(self, value):
        return {"value": value}

    def get_one_result(self):
        return {"value": 0.0}
"""
DATASET = """
from benchopt import BaseDataset

class Dataset(BaseDataset):
    name = "One"

    def get_data(self):
        return {"x": 0.0}
"""
SOLVER = """
import os, time
from benchopt import BaseSolver

class Solver(BaseSolver):
    name = "NAME"
    parameters = {"k": list(range(NUMBER))}
    sampling_strategy = "run_once"

    def set_objective(self, x):
        self.x = x

    def run(self, _):
        mark = os.environ["BENCH_MARK"]
        if not os.path.exists(mark):
            with open(mark, "w") as file:
                file.write(str(time.time()))

    def get_result(self):
        return {"value": 0.0}
"""


def hydra(folder: Path) -> Other:
    """Measure Hydra's multirun with its default launcher and four config groups."""
    for group in GROUPS:
        (folder / group).mkdir(parents=True)
        for name in ("one", "two"):
            (folder / group / f"{name}.yaml").write_text(f"name: {name}\nvalue: 1.0\n")
    defaults = "".join(f"  - {group}: one\n" for group in GROUPS)
    (folder / "config.yaml").write_text(f"defaults:\n{defaults}  - _self_\nseed: 0\n")
    app = [sys.executable, ROOT / "benchmarks" / "hydra_app.py"]
    app += ["--config-path", folder]

    def jobs(number: int) -> float:
        sweep = ["-m", f"seed=range(0,{number})", "hydra.sweep.dir=out"]
        return seconds([*app, *sweep], folder)

    name = f"Hydra {metadata.version('hydra-core')} multirun"
    return measured(name, folder, jobs, [*app, "--help"])


def benchopt(folder: Path, command: str) -> Other:
    """Measure benchopt, given its command or the word `install`."""
    program = installed(folder) if command == "install" else Path(command).resolve()
    bench = folder / "bench"
    for part in ("datasets", "solvers"):
        (bench / part).mkdir(parents=True)
    (bench / "objective.py").write_text(OBJECTIVE)
    (bench / "datasets" / "one.py").write_text(DATASET)
    for number in (FEW, MANY):
        text = SOLVER.replace("NAME", f"of{number}").replace("NUMBER", str(number))
        (bench / "solvers" / f"of{number}.py").write_text(text)

    def jobs(number: int) -> float:
        options = ["-s", f"of{number}", "-r", 1, "--no-plot", "--no-html"]
        return seconds([program, "run", ".", *options], bench)

    version = run([program, "--version"], capture_output=True, text=True, check=True)
    name = f"benchopt {version.stdout.split()[-1]}"
    return measured(name, folder, jobs, [program, "--help"])


def installed(folder: Path) -> Path:
    """Install benchopt with pip into a new environment, and return its command."""
    venv.create(folder / "venv", with_pip=True)
    binaries = folder / "venv" / "bin"
    seconds([binaries / "python", "-m", "pip", "install", "--quiet", "benchopt"])
    return binaries / "benchopt"


def measured(
    name: str, folder: Path, jobs: Callable[[int], float], question: Sequence[object]
) -> Other:
    """Return the times of a harness.

    ``jobs`` runs a number of jobs and returns the seconds. ``question`` is the command
    that prints the help.
    """
    mark = folder / "mark"
    os.environ["BENCH_MARK"] = str(mark)
    few = jobs(FEW)
    mark.unlink()
    start = time.time()
    many = jobs(MANY)
    first = float(mark.read_text()) - start
    few_again, many_again = jobs(FEW), jobs(MANY)
    between = MANY - FEW
    return Other(
        name=name,
        job=(many - few) / between,
        again=(many_again - few_again) / between,
        help=usual(question, 3),
        first=first,
    )
