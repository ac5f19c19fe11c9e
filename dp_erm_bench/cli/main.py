"""Entry point: answer the light commands at once, hand the rest to Hydra."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import CodeType, FrameType

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
        _thread.start_new_thread(_interrupt, (_thread.get_ident(),))
    else:
        sys.__unraisablehook__(ignored)


def _interrupt(thread: int) -> None:
    """Interrupt a thread that has left the hook: in there it would be dropped, too."""
    while _deliver_again.__code__ in _codes(sys._current_frames().get(thread)):
        time.sleep(0.001)
    signal.pthread_kill(thread, signal.SIGINT)


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    """Yield what a frame is running, then those that called it."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


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
