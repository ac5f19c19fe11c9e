"""The commands and their help texts, and a function that escapes control characters."""

import re

COMMANDS = {
    "advise": "advise",
    "bundle": "bundle",
    "check": "check",
    "collect": "app",
    "compare": "plots",
    "export": "plots",
    "list": "listing",
    "look": "look",
    "plot": "plots",
    "replay": "bundle",
    "report": "app",
    "run": "line",
    "tune": "line",
}
"""The module of each command; its function is called `<name>_command`.

The module `line` has one function for both of its commands, `start_run`.
"""

GROUPS = (
    *("dataset", "algorithm", "problem", "loss", "penalty", "constraint"),
    *("calibration", "runner", "experiment"),
)
AUTO = ("loss", "penalty", "algorithm")
"""Groups whose choice may be `auto`, that is, set by the dataset or public numbers."""

USAGE = """\
dp-erm-bench dataset=log1,log2 algorithm=greedy_cd,random_cd seed='range(0,10)'

Benchmark differentially private empirical risk minimisation: such a line runs a
sweep, in which a,b and range(0,10) are axes. More: dp-erm-bench COMMAND --help

Commands
  run KEY=VALUE ...        run a sweep or an experiment; `run` may be left out
  tune KEY=VALUE ...       search parameters of each algorithm, judge the best
  list [GROUP [NAME ...]]  choices, parameters, types, defaults
  look FILE.csv            what a csv holds, and a line that runs on it
  advise --n N --p P ...   which algorithm to run, from public numbers alone
  report FOLDER ...        print claims and figures, and write one page
  plot FOLDER ...          draw any results
  export FOLDER ...        a table of medians and intervals, the best in bold
  compare A B              compare two results folders, or the values of a key
  collect FOLDER ...       build the table of a folder again from its records
  bundle FOLDER            one zip for a reviewer
  replay FOLDER|FILE.zip   rerun rows and report which are reproduced
  check [ALGORITHM ...]    test that algorithms keep their contract

Choices
{choices}
Keys
  algorithm=PATH.py         a solver of your own; its name is the file's
  algorithm.NAME.PARAMETER  a parameter of a chosen algorithm (see `list`)
  experiment=NAME|FILE.yaml with profile=smoke|default|paper, panel=NAME,...
  dataset.KEY               a key of the dataset's yaml: standardise, seed, ...
                            of every one: standardise=true|false|scale, positive,
                            test_fraction, drop_empty, densify, clip_to_bounds,
                            bounds={{columns:{{NAME:BOUND}},default:BOUND}}, a BOUND
                            being a number or [LOW,HIGH],
                            scale=bounds (columns mapped to [-1, 1] by them),
                            intercept (the constant of a last column)
  dataset.name              with dataset=libsvm: a set of libsvmdata, such as a9a
  penalty.strength          a number or 1/n; auto: the dataset's usual one
  budget.epsilon  budget.delta  budget.adjacency=replace_one|zero_out
  seed                      seed of the noise, as in seed='range(0,10)'
  tune.KEY                  with tune (dp-erm-bench tune --help, docs/tuning.md)
  mode=run|plan             plan: count the trials, run none
  name  results_dir         the results are in results_dir/name; without a name in
                            sweep, tune, EXPERIMENT, or for one with changed keys
                            EXPERIMENT+KEY=VALUE
  runner.n_jobs  runner.retry  runner.progress  runner.n_checkpoints
  runner.output             show what a solver prints
  runner.time_limit         seconds a trial may take
  runner.worker_memory      memory after which a worker is replaced, as 2G
  runner=joblib             runner.backend=loky|threading (docs/clusters.md)
  runner=dask               runner.address=tcp://... or runner.cluster=local, or
                            runner.cluster=slurm (or another of jobqueue) with
                            runner.queue  runner.walltime  runner.memory
                            runner.interface  runner.job_extra_directives
                            runner.adapt
                            runner.patience  runner.mixed_cpus

Options
  --version
  -sc install=bash|zsh|fish print the completion of a shell, to be evaluated

Exit code: 0 all ran, 1 a trial failed or all were skipped, (compare) something
is worse or (replay) not all rows are the same, 2 wrong input, 130 interrupted.
"""

SHOWING = """\
  --cfg job|hydra|all       show the configuration and run nothing
  -p, --package KEY         of it this part
  --resolve                 with its interpolations replaced
  -cd, --config-dir FOLDER  look for experiment/NAME.yaml there too
  -cn, --config-name NAME   another primary configuration, of that folder
  -m, --multirun            accepted, changes nothing
"""

HELP = {
    "advise": """\
dp-erm-bench advise --n 40000 --p 30 --norm 4 --epsilon 1

Prints which algorithm to run, with which settings, and what to expect, from
public numbers alone. algorithm=auto makes the same choice.

  --n --p          records and features, a constant column among these
  --norm           the declared bound on the norm of a record
  --epsilon --delta --adjacency
                   the budget; delta is 1/n^2, adjacency replace_one
  --loss           logistic, or another name of conf/loss
  --label          the declared bound on a label; numbers need it
  --strength       of the l2 penalty; 1/n
  --radius         of an L1 ball for the weights, instead of a penalty
  --column         the largest of the declared bounds of columns; the norm
  --nonzeros       how many features matter, if that is known without the data
  --algorithm      the settings of this one, not of the best
  --rows           the published results nearby, on which it rests
  --json           everything, for programs
""",
    "run": f"""\
dp-erm-bench run dataset=log1,log2 algorithm=gd,random_cd seed='range(0,10)'

Runs a sweep, in which every comma and range is an axis; `run` may be left out.
With an experiment it also draws its figures and judges its claims:

  experiment=NAME           one of the package, or of --config-dir
  experiment=FILE.yaml      one of your own
  profile=NAME              how much to run: smoke, default, paper
  panel=NAME,...            only these panels
  mode=plan                 count the trials and run none
  KEY=VALUE                 all other keys and choices: dp-erm-bench --help

{SHOWING}
A repeated command runs what is missing; runner.retry=error,timeout,killed also
runs what failed. Exit code: 1 if a trial failed or all were skipped.
""",
    "tune": """\
dp-erm-bench tune dataset=log1 algorithm=gd,random_cd budget.epsilon=0.1,1

Takes the keys and options of a sweep (dp-erm-bench run --help) except seed, and
  profile=published|default|smoke     how many trials and seeds
  algorithm.NAME.PARAMETER=VALUE      fixed; several values start an axis
  tune.axes.NAME.PARAMETER=A,B        the same; {unit:gradient_rms,values:[A]}
  tune.limits.NAME.PARAMETER=[LOW,HIGH]         how far the search may go
  tune.quantity       what to optimise: objective, or with dataset.test_fraction
                      test_risk, test_accuracy, auc, rmse, r2
  tune.seeds          tuning seeds, as 'range(0,16)'
  tune.report         fresh seeds for the chosen setting, as 'range(100,120)'
  tune.splits         values of dataset.seed on which everything is repeated
  tune.search         null: the grid only; otherwise
  tune.search.trials  most trials of a line, the grid included
  tune.search.race    seeds for all, for the best 5, the best 3, the finalists
  tune.search.finalists               settings on the most seeds
  tune.search.radius  factor to the neighbours that are tried first
  tune.search.ratio.PARAMETER         of neighbouring values
  tune.search.tolerance               smaller gains, in deviations, do not count
""",
    "list": """\
dp-erm-bench list algorithm greedy_cd

  list                      every choice of every group, a line each
  list GROUP ...            the choices of dataset, algorithm, problem, loss,
                            penalty, constraint, calibration, runner, experiment
  list GROUP NAME ...       its parameters: default, what is allowed, meaning
  list algorithm FILE.py    those of a solver of your own (list loss FILE.py)
  list settings             the plain keys of a command line
  list blocks               the keys of an experiment's blocks
  list results              what the folders in results/ hold, when and by which
                            command they were made
  list FOLDER ...           the same of another folder
""",
    "look": """\
dp-erm-bench look my.csv dataset.header=true

Prints what a csv holds, and a command that runs once its bounds are filled in.

  dataset.header      true or false: whether row 1 names the columns
  dataset.index       drop or keep: what a first column without a name is
  dataset.label       the column of labels
  dataset.drop        columns to leave out, [id,name]
  dataset.format      csv
""",
    "collect": """\
dp-erm-bench collect results/sweep

Builds the tables of folders again from their records; draws and judges again.
""",
    "report": """\
dp-erm-bench report results/mangold2022 results/sweep

Prints the claims of folders and where their figures are, and writes all of them
as one page, report.html.

  --out FILE   where the page is written
""",
    "plot": """\
dp-erm-bench plot results/sweep --x epsilon --y test_accuracy

Without --x and --kind, everything that the results allow is drawn into
FOLDER/plots, with a caption for each picture.

  --kind       curves: lines; profile: shares of problems within a factor of the
               best; winners: a map of who wins where
  --x          passes, iteration, seconds (along a run), or any other column,
               parameter or key of a dataset: the ends of the runs
  --y          a measure (docs/table.md); several, by commas, stand side by side
  --panel --line --facet
               columns that make panels and lines, and split panels
  --statistic  line and band over the seeds: median, quantiles, interval, mean
  --where      COLUMN=VALUE,...: rows to keep; may be given several times
  --names      new names of lines: gd='DP-GD (ours)'
  --highlight  lines to emphasise, as LINE or its new NAME
  --format     pdf, png, svg
  --width      column or page of a paper, or slide
  --out        a folder
  --no-caption
""",
    "export": """\
dp-erm-bench export results/sweep --y test_accuracy --format latex

Prints medians and intervals, the best in bold.

  --x          any column that does not change along a run; epsilon by default
  --y          a measure (docs/table.md)
  --format     csv, latex (tex), markdown (md), parquet
  --out        a file; otherwise the table is printed
  --statistic  as `plot` has it
  --panel --line --facet --where --names
               as `plot` has them
""",
    "compare": """\
dp-erm-bench compare results/before results/after
dp-erm-bench compare results/sweep --between algorithm

  --y          measures, by commas; --on is another name of it
  --by         trial: the same settings and seed; setting: medians over seeds
  --between    a key of one folder whose values are compared
  --where      with --between: KEY=VALUE,..., the values of a key to keep
  --tolerance  relative change that does not count (0.05)
  --interval   share of the interval (0.95)
  --ignore     keys of settings that may differ between the folders
  --csv        a file with all rows

Exit code: 1 if something is worse.
""",
    "bundle": """\
dp-erm-bench bundle results/sweep --out sweep.zip

One zip for a reviewer: table, page, sources, lock, commands; no data files.

  --out        the zip; FOLDER.zip by default
  --with-private-numbers
               include numbers computed from data that nobody declared public
               (dataset.public=true): they allow to check a guessed record
""",
    "replay": """\
dp-erm-bench replay results/sweep.zip --sample 5

Reruns rows of a folder or a zip, and reports which are reproduced exactly.

  --sample     how many rows are drawn at random; all: every one
  --seed       draws the same rows again
  --trust      run the solvers in its sources/; read them first
  --data       the folder of data files; the working folder by default

Exit code: 0 all that were drawn are the same, 1 not all, 2 wrong input.
""",
    "check": """\
dp-erm-bench check my_solver.py

Tests that algorithms, all by default, keep their contract; one line per test.

  --first      stop at the first test that fails
  --only       names of tests, by commas: run only these
  --accept     names of uses and releases whose doubt you accept, by commas

Exit code: 1 if a test fails.
""",
}
"""The help of each command, at most one screen: an example, then the options."""


CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Characters that disappear in a terminal, or change what it shows.

They are control characters, direction marks and surrogates.
"""


def escape_controls(text: str) -> str:
    """Return a string with escapes for characters that a terminal would not print."""
    return CONTROLS.sub(_escape_code, text)


def _escape_code(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
