"""The command line: its commands and groups, its help, and what a terminal may show."""

import re

COMMANDS = {
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
    "tune": "app",
}
"""The modules that hold the commands' functions, each called `<name>_command`."""

GROUPS = (
    *("dataset", "algorithm", "problem", "loss", "penalty", "constraint"),
    *("calibration", "runner", "experiment"),
)
AUTO = ("loss", "penalty")
"""Groups whose choice may be left to the dataset."""

USAGE = """\
Benchmark differentially private empirical risk minimisation.

dp-erm-bench KEY=VALUE ...            run a sweep; a,b and range(0,10) are axes
dp-erm-bench experiment=NAME [profile=smoke|default|paper] [panel=NAME,...]
                                      run an experiment, draw its figures, check claims
dp-erm-bench tune KEY=VALUE ...       search the parameters of each algorithm on each
                                      problem and epsilon, judge them on fresh seeds
dp-erm-bench list [GROUP [NAME ...]]  what there is: parameters, types, defaults
dp-erm-bench collect FOLDER ...       gather the records of a folder again
dp-erm-bench report FOLDER ... [--out FILE]
                                      print the claims and where the figures are, and
                                      write all of them as one page, report.html
dp-erm-bench plot FOLDER ... [--kind curves|profile|winners] [--x COLUMN] [--y COLUMN]
             [--panel COLUMN,...] [--line COLUMN,...] [--facet COLUMN,...]
             [--statistic median|quantiles|interval|mean] [--where COLUMN=VALUE,...]
             [--names LINE=NAME,...] [--highlight LINE,...]
             [--format pdf,png,svg] [--no-caption] [--width column|page] [--out FOLDER]
                                      draw any results, captions beside the pictures
dp-erm-bench export FOLDER ... [--format csv|latex|markdown|parquet] [--out FILE]
             [--x COLUMN] [--y COLUMN] [--panel ...] [--line ...] [--where ...]
             [--names ...]            medians and intervals, the best in bold
dp-erm-bench compare A B [--y objective,seconds,...] [--by trial|setting]
             [--tolerance 0.05] [--interval 0.95] [--ignore KEY,...] [--csv FILE]
                                      compare two results folders
dp-erm-bench compare FOLDER --between KEY [--where KEY=VALUE,...]
                                      compare what differs in a key, as algorithm
dp-erm-bench list FOLDER              what a folder of results folders holds, from when,
                                      by which command; `list results`: that of here
dp-erm-bench look FILE.csv [dataset.KEY=VALUE ...]
                                      what a csv holds, and a line that runs on it once
                                      its bounds are filled in (keys: how it is read)
dp-erm-bench bundle FOLDER [--out FILE.zip] [--with-private-numbers]
                                      one zip for a reviewer: table, page, sources,
                                      lock, commands; no data files
dp-erm-bench replay FOLDER|FILE.zip [--sample 5|all] [--seed NUMBER] [--trust]
             [--data FOLDER]          run rows again, say of each whether it is the same
dp-erm-bench check [ALGORITHM ...]    put algorithms through the contract of all
dp-erm-bench --cfg job KEY=VALUE ...  show the configuration, run nothing

Choices
{choices}
Keys
  algorithm=PATH.py         a solver of your own; its name is the file's
  algorithm.NAME.PARAMETER  a parameter of a chosen algorithm (see `list`)
  dataset.KEY               a key of the dataset's yaml: standardise, seed, ...
                            of every one: standardise=true|false|scale, positive,
                            test_fraction, drop_empty, densify, clip_to_bounds,
                            bounds={{columns:{{NAME:BOUND}},default:BOUND}}, a BOUND
                            being a number or [LOW,HIGH],
                            scale=bounds (columns mapped to [-1, 1] by their bounds),
                            intercept (the constant of a last column)
  dataset.name              with dataset=libsvm: a set of libsvmdata, such as a9a
  penalty.strength          a number or 1/n; auto: the dataset's usual one
  budget.epsilon  budget.delta  budget.adjacency=replace_one|zero_out
  seed                      seed of the noise, as in seed='range(0,10)'
  tune.KEY                  with tune: quantity, seeds, report, search.trials, ...,
                            axes.NAME.PARAMETER, limits.NAME.PARAMETER; algorithm.
                            NAME.PARAMETER=VALUE fixes one (docs/tuning.md)
  mode=run|plan             plan: count the trials, run none
  name  results_dir         the results are in results_dir/name; if no name is given
                            sweep, the experiment's, or for one with changed keys
                            EXPERIMENT+KEY=VALUE
  runner.n_jobs  runner.retry  runner.progress  runner.n_checkpoints
  runner.output             show what a solver prints
  runner.time_limit         seconds a trial may take
  runner.worker_memory      memory after which a worker is replaced, as 2G
  runner=joblib             runner.backend=loky|threading (docs/clusters.md)
  runner=dask               runner.address=tcp://... or runner.cluster=local, or
                            runner.cluster=slurm (or another of dask-jobqueue) with
                            runner.queue  runner.walltime  runner.memory
                            runner.interface  runner.job_extra_directives
                            runner.adapt
                            runner.patience  runner.mixed_cpus  (docs/clusters.md)
  -m, --multirun            accepted, changes nothing
  -cd, --config-dir FOLDER  look for experiment/NAME.yaml there too
  -sc install=bash|zsh|fish print the completion of a shell, to be evaluated there

Exit code: 0 all ran, 1 a trial failed or all were skipped, (compare) something is worse
or (replay) not all rows are the same, 2 wrong input, 130 interrupted.

Example
  dp-erm-bench dataset=log1,log2 algorithm=greedy_cd,random_cd \\
      budget.epsilon=0.1,1 seed='range(0,10)'
"""

MORE = {
    "tune": """\
Takes the keys of a sweep but seed (dp-erm-bench --help), and

  profile=published|default|smoke
                      how many trials and seeds, unless said otherwise
  algorithm.NAME.PARAMETER=VALUE
                      fixed, not tuned; of several values the axis starts there
  tune.axes.NAME.PARAMETER=A,B
                      the same, or {unit:gradient_rms,values:[A,B]}
  tune.limits.NAME.PARAMETER=[LOW,HIGH]
                      how far the search may go
  tune.quantity       what is to be best: objective, or with dataset.test_fraction
                      test_risk, test_accuracy, balanced_accuracy, auc, rmse, r2
  tune.seeds          tuning seeds, as 'range(0,16)'
  tune.splits         values of dataset.seed on which all of it is repeated
  tune.report         fresh seeds for what was chosen, as 'range(100,120)'
  tune.search         null: the grid alone; else
  tune.search.trials  most trials of a line, the grid included
  tune.search.race    seeds for all settings, the best 5, the best 3, the finalists
  tune.search.finalists
                      settings on the most seeds
  tune.search.radius  factor to the neighbours that are tried first
  tune.search.ratio.PARAMETER
                      of neighbouring values
  tune.search.tolerance
                      a gain of fewer standard deviations (over seeds) counts as none
""",
    "look": """\
  dataset.header      true or false: whether row 1 names the columns
  dataset.index       drop or keep: what a first column without a name is
  dataset.label       the column of labels
  dataset.drop        columns that are left out, [id,name]
  dataset.format      csv
""",
    "plot": """\
Without --x and --kind all that the results have is drawn into FOLDER/plots.

  --kind       curves: lines; profile: shares of problems within a factor of the best;
               winners: a map of who wins where
  --x          passes, iteration, seconds (along a run), or any other column, parameter
               of an algorithm or key of a dataset: the ends of the runs
  --y          a measure (docs/table.md); several, by commas, stand side by side
  --panel --line --facet
               columns that tell panels and lines apart, and split panels further
  --statistic  line and band over the seeds
  --where      the values of a column to keep; it may be given several times
  --names      what lines are called: gd='DP-GD (ours)'
  --highlight  lines that stand out, as LINE or its new NAME
  --width      column or page of a paper with two columns, or slide
""",
    "export": """\
  --x          any column that is not along a run; epsilon by default
  --y          a measure (docs/table.md)
  --format     csv, latex (tex), markdown (md), parquet
  --out        a file, else the table is printed
  --panel --line --facet --where --names
               as `plot` has them
""",
    "bundle": """\
  --out        the zip; FOLDER.zip by default
  --with-private-numbers
               what is computed from records of data that nobody declared public
               (dataset.public=true), too: a guessed record can be checked by it
""",
    "replay": """\
  --sample     how many rows are drawn at random; all: every one
  --seed       draws the same rows again
  --trust      run the solvers of others that lie in its sources/; read them first
  --data       where files of data are, which no zip holds; else the working folder

Exit code: 0 all that were drawn are the same, 1 not all, 2 wrong input.
""",
    "compare": """\
  --y          measures; --on is another name of it
  --by         trial: the same settings and seed; setting: medians over seeds
  --between    a key of one folder whose values are compared
  --where      with --between: the values of a key to keep
  --tolerance  relative change that does not count
  --interval   share of the interval
  --ignore     keys of settings in which the two folders may differ
""",
}
"""What each option of a command is for, where its line does not say it."""


def usage_of(command: str) -> str:
    """Return what the help of one command says: its lines of `USAGE`, its options."""
    own: list[str] = []
    for line in USAGE.split("\n\n")[1].splitlines():
        if line.startswith("dp-erm-bench "):
            mine = line.split()[1] == command
        if mine:
            own.append(line)
    return "\n".join([*own, "", MORE.get(command, "")]).rstrip()


CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""What a terminal obeys or does not show: controls, marks of direction, surrogates."""


def escape_controls(text: str) -> str:
    """Return a text with all that a terminal would obey, or hide, spelled out."""
    return CONTROLS.sub(_escape_code, text)


def _escape_code(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
