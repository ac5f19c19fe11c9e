"""Entry point of the command line; help and version need no heavy imports."""

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

from dp_erm_bench.cli.usage import (
    AUTO,
    COMMANDS,
    GROUPS,
    HELP,
    USAGE,
    escape_controls,
)

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import CodeType, FrameType

THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB_MAXIMUM", "NUMEXPR")
"""Libraries whose `<name>_NUM_THREADS` is set to 1, since trials run in parallel."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0 on success, 1 if a trial failed or all were skipped, 2 for wrong input
        or a results folder that cannot be written, 130 if interrupted, 143 if ended by
        SIGTERM.
    """
    for library in THREADS:
        os.environ[f"{library}_NUM_THREADS"] = "1"
    ours = arguments is None
    if ours:
        sys.unraisablehook = _deliver_again
    with escape_output(for_good=ours):
        return _run_command_line(arguments, ours)


def _run_command_line(arguments: Sequence[str] | None, ours: bool) -> int:
    """Run the command line; turn interrupts and output errors into exit codes."""
    try:
        code = _dispatch_command(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except OSError as error:
        _drop_output()
        if isinstance(error, BrokenPipeError):
            return 0  # the reader, such as `head`, has stopped reading
        with contextlib.suppress(OSError):
            where, why = error.filename or "output", error.strerror or str(error)
            print(f"dp-erm-bench: {where}: {why}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if ours:
            # The process is about to end, so a second Ctrl-C is ignored.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("dp-erm-bench: interrupted; what is recorded stays", file=sys.stderr)
        return 130


class Door:
    """A text stream that escapes the control characters of terminals.

    Printed text may quote untrusted files, names or tracebacks. Colours and bars drawn
    by this package are written to `inside` directly, after `escape_controls` was
    applied to their strings.
    """

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the underlying stream."""
        return getattr(self.inside, name)

    def write(self, text: str) -> int:
        """Write a string with its control characters escaped."""
        self.inside.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several strings with their control characters escaped."""
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def escape_output(for_good: bool) -> Iterator[None]:
    """Send stdout and stderr through a `Door` within the context.

    With ``for_good`` the streams are kept afterwards, to escape a final traceback.
    """
    before = sys.stdout, sys.stderr
    doors = [one if isinstance(one, Door) else Door(one) for one in before]
    sys.stdout, sys.stderr = doors
    try:
        yield
    finally:
        if not for_good and (sys.stdout, sys.stderr) == tuple(doors):
            sys.stdout, sys.stderr = before


def _deliver_again(ignored: UnraisableHookArgs) -> None:
    """Repeat a KeyboardInterrupt that Python dropped inside a finaliser."""
    if ignored.exc_type is KeyboardInterrupt:
        _thread.start_new_thread(_interrupt_thread, (_thread.get_ident(),))
    else:
        sys.__unraisablehook__(ignored)


def _interrupt_thread(thread: int) -> None:
    """Interrupt a thread as soon as it has left the hook `_deliver_again`.

    While the thread is in this hook, Python would drop the interrupt again.
    """
    while _deliver_again.__code__ in _codes_of_callers(
        sys._current_frames().get(thread)
    ):
        time.sleep(0.001)
    signal.pthread_kill(thread, signal.SIGINT)


def _codes_of_callers(frame: FrameType | None) -> Iterator[CodeType]:
    """Yield the code objects of a frame and of its callers."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _drop_output() -> None:
    """Redirect a closed output, so that the interpreter's last flush does not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


ASKING = ("help", "-h", "--help")


def _dispatch_command(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "help"
    if first == "help" or {*ASKING[1:]} & {*arguments}:
        named = next((one for one in arguments[:2] if one not in ASKING), "run=")
        if named in COMMANDS or not _is_command(named):
            print(HELP[named].rstrip() if named in COMMANDS else help_text())
            return 0
        return run_command(named, [])
    if arguments == ["--version"]:
        from dp_erm_bench import __version__

        print(f"dp-erm-bench {__version__}")
        return 0
    if first in ("-sc", "--shell-completion"):
        from dp_erm_bench.cli.completion import complete

        return complete(arguments[1:])
    if _is_command(first):
        return run_command(first, arguments[1:])
    return run_command("run", arguments)


def _is_command(word: str) -> bool:
    """Return whether a word is meant as a command, not as a key or option."""
    return not ("=" in word or word.startswith(("-", "+", "~")))


def run_command(name: str, arguments: Sequence[str]) -> int:
    """Run one of the commands and return the exit code.

    Parameters
    ----------
    name : str
        One of `COMMANDS`.
    arguments : sequence of str
        The arguments that follow the name on the command line.
    """
    from dp_erm_bench.errors import UsageError
    from dp_erm_bench.registry import check_choice

    try:
        check_choice("command", name, sorted(COMMANDS))
        module = importlib.import_module(f"dp_erm_bench.cli.{COMMANDS[name]}")
        if COMMANDS[name] == "line":
            return int(module.start_run(name, arguments))
        return int(getattr(module, f"{name}_command")(arguments))
    except UsageError as error:
        print(f"dp-erm-bench: {error}", file=sys.stderr)
    except MemoryError as error:
        print(f"dp-erm-bench: not enough memory ({error})", file=sys.stderr)
    return 2


def help_text() -> str:
    """Return the help with the choices of every config group."""
    # The registry knows this folder too, but importing it imports yaml.
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent / "conf"
    folder = checkout if (checkout / "config.yaml").is_file() else package / "conf"
    text = ""
    for group in GROUPS:
        names = sorted(path.stem for path in (folder / group).glob("*.yaml"))
        choices = [*(["auto"] if group in AUTO else []), *names]
        text += f"  {group:12} {', '.join(choices)}\n"
    return USAGE.format(choices=text)
