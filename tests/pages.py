"""Read the pages of the documentation, and the code that they show."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT / "docs", ROOT / "dp_erm_bench" / "report" / "html", ROOT)
"""Where pages are: the site's, those that the package ships, the README."""
WRITTEN = sorted(
    path
    for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    if path.stem not in ("datasets", "errata", "figures", "leaderboard", "table")
)
"""The pages that are written by hand."""


def find_page(name):
    """Return the path of a page."""
    found = [folder / f"{name}.md" for folder in FOLDERS]
    return next(
        path
        for path in found
        if path.is_file() and not path.read_text().startswith("```{include}")
    )


def read_page(name):
    """Return the text of a page."""
    return find_page(name).read_text()


def code_blocks(name, language):
    """Return the blocks of code of a page in a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", read_page(name), re.S | re.M)


def find_block(text, language="python"):
    """Return the one block of code of all pages that holds a text."""
    blocks = [b for path in WRITTEN for b in code_blocks(path.stem, language)]
    (found,) = [block for block in blocks if text in block]
    return found


def command_lines(*blocks):
    """Return the command lines of our program in blocks, without its name."""
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1:] for line in words if line[:1] == ["dp-erm-bench"]]
