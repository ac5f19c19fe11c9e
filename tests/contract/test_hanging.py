"""`check` of a solver's file that never ends, or ends its interpreter."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dp_erm_bench.contract.candidate import candidate_of
from tests.contract.own import SOUND, START, check_named

INSIDE = """\
        import ctypes, multiprocessing, os, signal, time
        if multiprocessing.parent_process():
            {}
"""
COMMAND = "import sys; from dp_erm_bench.cli.main import main; sys.exit(main())"
PATIENCE = 60.0


def solver(folder, statement):
    """Write a solver that executes a statement in a side's interpreter only."""
    file = folder / "own.py"
    file.write_text(SOUND.replace(START, INSIDE.format(statement) + START))
    return file


def members(session):
    """Return the processes of a session that run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(process.name))
    return found


def until(holds):
    """Wait until something holds, and return whether it came to."""
    end = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")
@pytest.mark.parametrize(
    ("number", "code", "statement"),
    [
        (signal.SIGINT, 130, "while True: pass"),
        # As by SIGTERM. What holds the lock lets no thread and no handler run.
        (signal.SIGKILL, -9, "ctypes.PyDLL(None).pause()"),
    ],
)
def test_an_aborted_check_leaves_no_process(tmp_path, number, code, statement):
    begun = tmp_path / "begun"
    statement = f"open({str(begun)!r}, 'w')\n            {statement}"
    line = ["check", str(solver(tmp_path, statement)), "--only=replay_audit"]
    check = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *line],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert until(begun.exists)
        os.kill(check.pid, number)
        assert check.wait(PATIENCE) == code
        assert until(lambda: not members(check.pid))
        said = "dp-erm-bench: interrupted; what is recorded stays\n"
        assert check.stderr.read() == (said if number == signal.SIGINT else "")
    finally:
        for process in members(check.pid):
            os.kill(process, signal.SIGKILL)
        check.stderr.close()


@pytest.mark.parametrize(
    "statement", ["ctypes.string_at(0)", "os._exit(0)", "raise SystemExit(0)"]
)
def test_a_side_that_ends_its_interpreter_breaks_the_contract(tmp_path, statement):
    candidate = candidate_of(str(solver(tmp_path, statement)))
    result = check_named("replay_audit").result(candidate)
    assert result.reason == "it ends the interpreter that it is run in"
