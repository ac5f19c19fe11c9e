"""Count the files and functions of the package that one sweep calls in the parent.

`python -m benchmarks.entered` prints the numbers of files, functions and calls. With
`--list` it prints each file with its number of functions.

The sweep of one trial runs twice, each time into an empty results folder. The first run
is in another process and fills all caches. The second run is in this process, and its
function calls are counted. Calls in worker processes are not counted, nor are imports.
"""

import collections
import contextlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

import dp_erm_bench

PACKAGE = str(Path(dp_erm_bench.__file__).parent) + os.sep
SWEEP = ["dataset=log1", "algorithm=gd", "algorithm.gd.clip=1"]


def entered(arguments: list[str]) -> dict[str, collections.Counter[str]]:
    """Return how often a command calls each function, by file and function name."""
    called: dict[str, collections.Counter[str]]
    called = collections.defaultdict(collections.Counter)

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        own = event == "call" and code.co_filename.startswith(PACKAGE)
        # Bodies of modules and classes run as they are imported.
        if own and code.co_flags & 1 and code.co_name != "<module>":
            file = code.co_filename.removeprefix(PACKAGE)
            called[file][f"{code.co_name}:{code.co_firstlineno}"] += 1

    from dp_erm_bench.cli.main import main

    sys.setprofile(note)
    try:
        main(arguments)
    finally:
        sys.setprofile(None)
    return called


def main() -> None:
    """Run the sweep twice, and print the counts of the second run."""
    with tempfile.TemporaryDirectory() as folder:
        first = [*SWEEP, f"results_dir={folder}/first"]
        command = [sys.executable, "-m", "dp_erm_bench", *first]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with contextlib.redirect_stdout(io.StringIO()):
            found = entered([*SWEEP, f"results_dir={folder}/second"])
    functions = sum(map(len, found.values()))
    calls = sum(names.total() for names in found.values())
    print(f"{len(found)} files, {functions} functions, {calls} calls")
    if "--list" in sys.argv:
        for file, names in sorted(found.items()):
            print(f"{len(names):4} {file}")


if __name__ == "__main__":
    main()
