"""The help, from the names of the files on disk: nothing heavy is imported for it."""

from __future__ import annotations

import os
from pathlib import Path

USAGE = """\
Benchmark differentially private empirical risk minimisation.

dp-erm-bench KEY=VALUE ...            run a sweep; a,b and range(0,10) are axes
dp-erm-bench experiment=NAME [profile=smoke|default|paper] [panel=NAME,...]
                                      run an experiment, draw its figures, check claims
dp-erm-bench list [GROUP [NAME ...]]  what there is: parameters, types, defaults
dp-erm-bench collect FOLDER ...       gather the records of a folder again
dp-erm-bench report FOLDER ...        print the claims and where the figures are
dp-erm-bench compare A B [--on objective,seconds,...] [--by trial|setting]
             [--tolerance 0.05] [--interval 0.95] [--ignore KEY,...] [--csv FILE]
                                      compare two results folders
dp-erm-bench check [ALGORITHM ...]    put algorithms through the contract of all
dp-erm-bench --cfg job KEY=VALUE ...  show the configuration, run nothing

Choices
{choices}
Keys
  algorithm=PATH.py         a solver of your own; its name is the file's
  algorithm.NAME.PARAMETER  a parameter of a chosen algorithm (see `list`)
  dataset.KEY               a key of the dataset's yaml: standardise, seed, ...
                            of every one: standardise=true|false|scale, positive,
                            test_fraction, drop_empty, densify, clip_to_bounds
  dataset.name              with dataset=libsvm: a set of libsvmdata, such as a9a
  penalty.strength          a number or 1/n; auto: the dataset's usual one
  budget.epsilon  budget.delta  budget.adjacency=replace_one|zero_out
  seed                      seed of the noise, as in seed='range(0,10)'
  mode=run|plan             plan: count the trials, run none
  name  results_dir         the results are in results_dir/name; if no name is given
                            sweep, the experiment's, or for one with changed keys
                            EXPERIMENT+KEY=VALUE
  runner.n_jobs  runner.retry  runner.progress  runner.n_checkpoints
  runner.time_limit         seconds a trial may take
  runner.worker_memory      memory after which a worker is replaced, as 2G
  -m, --multirun            accepted, changes nothing
  -cd, --config-dir FOLDER  look for experiment/NAME.yaml there too
  -sc install=bash|zsh|fish print the completion of a shell, to be evaluated there

Exit code: 0 all ran, 1 a trial failed or (compare) something is worse, 2 wrong
input, 130 interrupted.

Example
  dp-erm-bench dataset=log1,log2 algorithm=greedy_cd,random_cd \\
      budget.epsilon=0.1,1 seed='range(0,10)'
"""

GROUPS = (
    *("dataset", "algorithm", "loss", "penalty", "constraint"),
    *("calibration", "runner", "experiment"),
)
AUTO = ("loss", "penalty")


def text() -> str:
    """Return the help with the choices of every config group."""
    folder = _conf()
    lines = []
    for group in GROUPS:
        found = sorted(Path(name).stem for name in _files(folder / group))
        choices = [*(["auto"] if group in AUTO else []), *found]
        lines.append(f"  {group:12} {', '.join(choices)}\n")
    return USAGE.format(choices="".join(lines))


def _conf() -> Path:
    """Return the config folder; the registry would have to import yaml for it."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent / "conf"
    return checkout if (checkout / "config.yaml").is_file() else package / "conf"


def _files(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".yaml")]
