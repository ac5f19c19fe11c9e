"""Entry point: answer what is light at once, from the names of files on disk."""

from __future__ import annotations

import _thread
import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.cli.usage import AUTO, COMMANDS, GROUPS, visible

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import CodeType, FrameType

THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB_MAXIMUM", "NUMEXPR")
"""Libraries whose `<name>_NUM_THREADS` is 1: the trials are the parallelism."""

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
             [--format pdf,png,svg] [--no-caption] [--width column|page] [--out FOLDER]
                                      draw any results, captions beside the pictures
dp-erm-bench export FOLDER ... [--format csv|latex|markdown|parquet] [--out FILE]
             [--x COLUMN] [--y COLUMN] [--panel ...] [--line ...] [--where ...]
                                      medians and intervals, the best in bold
dp-erm-bench compare A B [--on objective,seconds,...] [--by trial|setting]
             [--tolerance 0.05] [--interval 0.95] [--ignore KEY,...] [--csv FILE]
                                      compare two results folders
dp-erm-bench compare FOLDER --between KEY [--where KEY=VALUE,...]
                                      compare what differs in a key, as algorithm
dp-erm-bench list results [FOLDER]    what a folder of results folders holds, from when,
                                      by which command
dp-erm-bench look FILE.csv [dataset.KEY=VALUE ...]
                                      what a csv holds, and a line that runs on it once
                                      its bounds are filled in (keys: how it is read)
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

Exit code: 0 all ran, 1 a trial failed or (compare) something is worse, 2 wrong
input, 130 interrupted.

Example
  dp-erm-bench dataset=log1,log2 algorithm=greedy_cd,random_cd \\
      budget.epsilon=0.1,1 seed='range(0,10)'
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; those of the process by default.

    Returns
    -------
    int
        0 if all went well, 1 if a trial failed, 2 for wrong input or a results folder
        that cannot be written, 130 if interrupted, 143 if ended by SIGTERM.
    """
    for library in THREADS:
        os.environ[f"{library}_NUM_THREADS"] = "1"
    ours = arguments is None
    if ours:
        sys.unraisablehook = _deliver_again
    with escaped(for_good=ours):
        return _answered(arguments, ours)


def _answered(arguments: Sequence[str] | None, ours: bool) -> int:
    """Run the command line; return the exit code of whatever it ends with."""
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has enough.
        _drop_output()
        code = 0
    except OSError as error:
        _drop_output()
        reason = error.strerror or str(error)
        with contextlib.suppress(OSError):
            where = error.filename or "output"
            print(f"dp-erm-bench: {where}: {reason}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        if ours:
            # It ends by itself from here: a second Ctrl-C has nothing left to stop.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("dp-erm-bench: interrupted; what is recorded stays", file=sys.stderr)
        code = 130
    return code


class Door:
    """A stream of text through which no control of a terminal passes.

    Whatever is printed may quote a file, a name or a traceback of anyone's. What we
    draw ourselves, colours and bars, goes to `inside`; texts in it are `visible` first.
    """

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def __getattr__(self, name: str) -> Any:
        """Return what the stream itself has."""
        return getattr(self.inside, name)

    def write(self, text: str) -> int:
        """Write a text with its controls escaped."""
        self.inside.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def escaped(for_good: bool) -> Iterator[None]:
    """Let all that is printed pass the `Door`; for good, a last traceback, too."""
    before = sys.stdout, sys.stderr
    doors = [one if isinstance(one, Door) else Door(one) for one in before]
    sys.stdout, sys.stderr = doors
    try:
        yield
    finally:
        if not for_good and (sys.stdout, sys.stderr) == tuple(doors):
            sys.stdout, sys.stderr = before


def _deliver_again(ignored: UnraisableHookArgs) -> None:
    """Raise an interrupt again that fell into a finaliser, where Python drops it."""
    if ignored.exc_type is KeyboardInterrupt:
        _thread.start_new_thread(_interrupt, (_thread.get_ident(),))
    else:
        sys.__unraisablehook__(ignored)


def _interrupt(thread: int) -> None:
    """Interrupt a thread that has left the hook: in there it would be dropped, too."""
    while _deliver_again.__code__ in _codes(sys._current_frames().get(thread)):
        time.sleep(0.001)
    signal.pthread_kill(thread, signal.SIGINT)


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    """Yield the code of a frame, then that of its callers."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _drop_output() -> None:
    """Keep the interpreter from writing to a closed output at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "help"
    if first == "help" or {"-h", "--help"} & set(arguments):
        print(text())
        return 0
    if arguments == ["--version"]:
        from dp_erm_bench import __version__

        print(f"dp-erm-bench {__version__}")
        return 0
    if first in ("-sc", "--shell-completion"):
        from dp_erm_bench.cli.completion import complete

        return complete(arguments[1:])
    if "=" not in first and not first.startswith(("-", "+", "~")):
        return command(first, arguments[1:])
    from dp_erm_bench.cli.app import run

    return run(arguments)


def command(name: str, arguments: Sequence[str]) -> int:
    """Run one of the commands that need no composition and return the exit code.

    Parameters
    ----------
    name : str
        One of `COMMANDS`.
    arguments : sequence of str
        Config groups to list, results folders, or algorithms to check; some take
        options, too.
    """
    from dp_erm_bench.errors import UsageError
    from dp_erm_bench.registry import check_choice

    try:
        check_choice("command", name, sorted(COMMANDS))
        module = importlib.import_module(f"dp_erm_bench.cli.{COMMANDS[name]}")
        return int(getattr(module, f"{name}_command")(arguments))
    except UsageError as error:
        print(f"dp-erm-bench: {error}", file=sys.stderr)
        return 2


def text() -> str:
    """Return the help with the choices of every config group."""
    # The registry has this folder, too, but would have to import yaml.
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent / "conf"
    folder = checkout if (checkout / "config.yaml").is_file() else package / "conf"
    lines = []
    for group in GROUPS:
        files = os.listdir(folder / group)
        names = sorted(file[:-5] for file in files if file.endswith(".yaml"))
        choices = [*(["auto"] if group in AUTO else []), *names]
        lines.append(f"  {group:12} {', '.join(choices)}\n")
    return USAGE.format(choices="".join(lines))
