"""Entry point: answer the light commands at once, hand the rest to Hydra."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB_MAXIMUM", "NUMEXPR")
"""Libraries whose `<name>_NUM_THREADS` is 1: the trials are the parallelism."""


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


def _deliver_again(ignored: UnraisableHookArgs) -> None:
    """Raise an interrupt again that fell into a finaliser, where Python drops it."""
    if ignored.exc_type is KeyboardInterrupt:
        # From another thread: in this one it would be raised, and dropped, in here.
        again = (_thread.get_ident(), signal.SIGINT)
        _thread.start_new_thread(signal.pthread_kill, again)
    else:
        sys.__unraisablehook__(ignored)


def _drop_output() -> None:
    """Let the interpreter not try again, at its end, to write what nobody takes."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(given: list[str]) -> int:
    if not given or given[0] == "help" or {"-h", "--help"} & set(given):
        return _print_help()
    if given == ["--version"]:
        return _print_version()
    if given[0] in ("-sc", "--shell-completion"):
        from dp_erm_bench.cli.completion import complete

        return complete(given[1:])
    if "=" not in given[0] and not given[0].startswith(("-", "+", "~")):
        from dp_erm_bench.cli.commands import command

        return command(given[0], given[1:])
    from dp_erm_bench.cli.app import run

    return run(given)


def _print_help() -> int:
    from dp_erm_bench.cli.help import text

    print(text())
    return 0


def _print_version() -> int:
    from dp_erm_bench import __version__

    print(f"dp-erm-bench {__version__}")
    return 0
