"""The pages of the site that are made of code, yaml and published tables."""

import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from sphinx.ext.napoleon import NumpyDocstring

from dp_erm_bench import registry
from dp_erm_bench.cli.listing import GROUPS, KEYS, describe_choice, parameter_rows
from dp_erm_bench.cli.main import help_text
from dp_erm_bench.cli.usage import COMMANDS, HELP
from dp_erm_bench.plugins.names import label_of

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "results" / "published"
BOARD = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
PARAMETERS = ("parameter", "default", "allowed", "meaning")
CLAIMS = ("statement", "whose", "value", "threshold", "verdict")


def write_pages(folder: Path) -> None:
    """Write all generated pages into a folder, in place of those that it holds."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = {"commands": commands(), "keys": keys(), "claims": claims()}
    names = registry.names(registry.ALGORITHM)
    pages["algorithms"] = algorithms(names)
    pages |= {f"algorithms/{name}": algorithm(name) for name in names}
    for name, text in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def algorithms(names: list[str]) -> str:
    """Return the list of algorithms, with links to their pages."""
    rows = [
        (f"[`{name}`](algorithms/{name}.md)", describe_choice("algorithm", name))
        for name in names
    ]
    tree = "\n".join(f"algorithms/{name}" for name in names)
    return (
        "# Algorithms\n\nEach algorithm has one file in `dp_erm_bench/solvers/` and "
        "one yaml file in `conf/algorithm/`.\n\n"
        f"{table(('name', 'method'), rows)}\n"
        f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )


def algorithm(name: str) -> str:
    """Return the page of an algorithm: docstring, parameters, its rows of the board."""
    cls = registry.target(registry.ALGORITHM, name)
    source = Path(inspect.getsourcefile(cls)).relative_to(ROOT)
    text = NumpyDocstring(escape_bars(inspect.getdoc(cls)))
    parts = [
        f"# {name}",
        f"```{{eval-rst}}\n{text}\n```",
        f"Source: `{source}`. Run it with `algorithm={name}`, or `fit(problem, "
        f'"{name}", ...)`.',
        "## Parameters",
        parameter_table("algorithm", name),
    ]
    if ranked := list(rows_of_board(name)):
        parts += [
            "## On the leaderboard",
            "The algorithm was tuned for each problem. A problem is a data set at one "
            "epsilon. *factor*: on each problem, the error divided by the smallest "
            "error of w = 0 and of all algorithms; the table shows the median over "
            "problems. *untuned*: the error with the default settings, which a rule "
            "computes without tuning, divided by the error with tuned settings; the "
            "table shows the geometric mean over problems. The "
            "[leaderboard](../../leaderboard.md) has the other algorithms.",
            "\n\n".join(ranked),
        ]
    return "\n\n".join(parts) + "\n"


def escape_bars(text: str) -> str:
    """Return a docstring whose bars, as in |x|, are no markup."""
    return text.replace("|", r"\|")


def rows_of_board(name: str) -> Iterator[str]:
    """Yield a table for each board that ranks an algorithm: its head and its row."""
    for section in BOARD.split("\n## Problems: ")[1:]:
        title = section.partition("\n")[0]
        head = re.search(r"^\| algorithm \|.*\n\|.*$", section, re.M)
        row = re.search(rf"^\| {name} \|.*$", section, re.M)
        if head and row:
            yield f"{title}:\n\n{head[0]}\n{row[0]}"


def commands() -> str:
    """Return the help of all commands."""
    parts = ["# Command line", f"```text\n{help_text()}\n```"]
    for name in COMMANDS:
        if name in HELP:
            parts += [f"## {name}", f"```text\n{HELP[name].strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def keys() -> str:
    """Return the keys of the configuration and of blocks, and all choices."""
    parts = ["# Keys and choices"]
    titles = {"settings": "Keys of a command line", "blocks": "Keys of a block"}
    for group in KEYS:
        parts += [f"## {titles[group]}", parameter_table(group)]
    for group in GROUPS:
        if group not in KEYS and group != registry.ALGORITHM:
            parts += [f"## {group}"]
            for name in registry.names(group):
                parts += [f"**{label_of(name)}**: {describe_choice(group, name)}"]
                parts += [parameter_table(group, name)]
    return "\n\n".join(parts) + "\n"


def claims() -> str:
    """Return the published claims of each experiment."""
    parts = [
        "# Claims as published",
        "Each row compares a measured value with a threshold. Brackets contain 95 % "
        "intervals. [What a verdict is worth](../verdicts.md) explains the columns "
        "and the verdicts. Names in code font are panels of the "
        "[figures](../figures.md), or lines. A *line* is an algorithm with its "
        "settings. The error of a line is the mean or the median over its runs.",
    ]
    for path in sorted(PUBLISHED.glob("*_claims.csv")):
        rows = pd.read_csv(path)
        counts = rows["verdict"].str.partition(" (")[0].value_counts()
        parts += [
            f"## {path.stem.removesuffix('_claims')}",
            "Verdicts: "
            + ", ".join(f"{verdict} {count}" for verdict, count in counts.items())
            + ".",
            table(CLAIMS, [tuple(cells_of_claim(row)) for _, row in rows.iterrows()]),
        ]
    return "\n\n".join(parts) + "\n"


def cells_of_claim(row: "pd.Series[str]") -> Iterator[str]:
    """Yield what the page shows of a claim."""
    value = "" if pd.isna(row["value"]) else f"{row['value']:.3g}"
    if value and isinstance(row["interval"], str):
        ends = (f"{float(end):.3g}" for end in row["interval"].strip("[]").split(","))
        value += f" [{', '.join(ends)}]"
    threshold = "" if pd.isna(row["threshold"]) else str(row["threshold"]).lstrip("'")
    yield from (row["statement"], row["whose"], value, threshold, row["verdict"])


def parameter_table(group: str, name: str = "") -> str:
    """Return the parameters of a choice; a list of code if they have no words."""
    rows = parameter_rows(group, name)
    if any(allowed or meaning for *_, allowed, meaning in rows):
        rows = [row for row in rows if row[3] or row[2] not in ("", "null")]
        # Spaces let a browser break a list of words.
        rows = [(*row[:2], row[2].replace("|", " | "), row[3]) for row in rows]
        return table(PARAMETERS, rows)
    # `bounds=default` is a value, and its bounds are what it means.
    signs = ["` means `" if "=" in key else "=" for key, *_ in rows]
    pairs = zip(rows, signs, strict=True)
    return ", ".join(f"`{row[0]}{sign}{row[1]}`" for row, sign in pairs if row[1])


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    cells = ([str(cell).replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"
