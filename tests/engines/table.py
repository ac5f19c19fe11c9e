"""Write docs/faults.md: the result of every fault on every engine.

Usage: `python tests/engines/table.py FILE`, where the tests have written FILE.
"""

import json
import platform
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = map(str, (HERE.parent / "faults", HERE.parent / "runner"))

from engines import ENGINES  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
START, END = "<!-- faults: by make test-engines -->\n", "<!-- end of faults -->"
PACKAGES = ("joblib", "distributed", "dask-jobqueue")


def table(seen):
    """Return the table in markdown; what was not tried is a dash."""
    cells = {(fault, engine): outcome for fault, engine, outcome in seen}
    lines = [["fault", *ENGINES], ["---"] * (len(ENGINES) + 1)]
    for fault in dict.fromkeys(fault for fault, *_ in seen):
        lines.append([fault, *(cells.get((fault, one), "-") for one in ENGINES)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(path):
    """Put the table and what it was seen with between the marks of the page."""
    seen = [json.loads(line) for line in Path(path).read_text().splitlines()]
    with_ = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    python = platform.python_version()
    head, rest = PAGE.read_text().split(START)
    _, tail = rest.split(END)
    note = f"\nSeen on {date.today()} with Python {python}, {with_}.\n\n"
    PAGE.write_text(f"{head}{START}{note}{table(seen)}{END}{tail}")


if __name__ == "__main__":
    main(*sys.argv[1:])
