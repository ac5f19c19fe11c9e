"""Copy the results of experiments into results/published, and write their pages.

`python -m benchmarks.publish NAME...` copies the claims, the choices, the figures and
their curves from each results folder, and writes docs/figures.md. For experiments in
`STUDIES` it copies only the files named there. A run of the leaderboard, or of some of
its panels, replaces these panels (`benchmarks.board`). A published picture stays if the
new one looks the same. The counts in the README and docs/leaderboard.md are made from
the published files. Without names, only these two are written.
"""

import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
from PIL import Image, ImageChops

from benchmarks.board import check_run, publish_board
from dp_erm_bench.report.layout import MAX_PNG_BYTES
from dp_erm_bench.report.leaderboard import page_of_board
from dp_erm_bench.results.runs import read_manifest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "figures.md"
PUBLISHED = RESULTS / "published"
TABLES = ("claims", "choices")
BESIDE = {"mangold2022": ("electricity_raw",)}
"""Further pictures to publish, which other pages show, by experiment."""
BOARD = "leaderboard"
STUDIES = {"audit": ("audits.csv", "figures/audit.png")}
"""Files to publish for experiments that have no chapter in docs/figures.md."""

HEAD = Path(__file__).with_name("figures.md").read_text("utf-8")
"""The top of docs/figures.md."""
FACTS = re.compile(
    r"(?:^|\. )(Data|n x p|loss|penalty|strength|epsilon|delta|adjacency): "
)
"""Pattern of the names of facts in a caption's line that begins with "Data: "."""
SLOPES = re.compile(r"(?:^|\. )(?:(\w): )?[Ss]lopes (?:of means )?(?=against )")
SLOPE = re.compile(r"(^against [^:]*: |; )(.+?) (?=-?\d+\.\d\d(?:[ ;]|$))")
"""Pattern of the name of a line in a list of slopes, with what stands before it."""
QUOTED = re.compile(r'"([^"]*)"')
RUNS = re.compile(
    r"(?:Mean|Median) and .*?(?:runs|seeds?\b|draws? of|splits?\b)[^.]*(?:\..*)?"
)
ROWS = {
    "Calibration: ": "calibration",
    "Dashed: ": "dashed line",
    "Uncharged uses of the data: ": "uncharged uses",
    "The certified epsilon of every line is ": "certified epsilon",
    "Certified epsilon: ": "certified epsilon",
    "Diverged, counted as infinite: ": "diverged, counted as infinite",
    "Not drawn: ": "not drawn",
    "Not run: ": "not run",
    "These algorithms did not pass dp-erm-bench check: ": "not passed by `check`",
    "These algorithms passed dp-erm-bench check with a doubt: ": (
        "passed `check` with a reservation"
    ),
}
"""Beginnings of lines of a caption, and the names of their rows in the table."""
VERDICTS = {
    **{"holds": "hold", "fails": "fail"},
    **{verdict: verdict for verdict in ("undecided", "vacuous", "not run")},
}
"""Verdicts that the README counts, and the words that it uses for them."""
MOST_BYTES = 100_000
"""Largest size of a file of curves.

In a larger file, every other point of a long line is left out.
"""
SHORT = 12
"""Lines with at most this number of points keep all of them."""
TILE, SEEN = 8, 40
"""Side of a tile in pixels, and the smallest visible difference of its colour.

Colours range from 0 to 255.
"""


def alike(path: Path, kept: Path) -> bool:
    """Return whether two pictures differ only as much as other fonts would cause."""
    with Image.open(path) as one, Image.open(kept) as other:
        if one.size != other.size:
            return False
        apart = ImageChops.difference(one.convert("RGB"), other.convert("RGB"))
        return all(most < SEEN for _, most in apart.reduce(TILE).getextrema())


def sheets(name: str) -> list[Path]:
    """Return the pictures of a results folder that are published.

    Pictures named after the experiment show all panels together.
    """
    figures = RESULTS / name / "figures"
    found = sorted(figures.glob(f"{name}*.png"))
    beside = (figures / f"{stem}.png" for stem in BESIDE.get(name, ()))
    return found + [path for path in beside if path.is_file()]


def write_curves(path: Path, kept: Path) -> None:
    """Write the points of a figure's lines, thinned out to at most `MOST_BYTES`."""
    rows = pd.read_csv(path)
    while len(text := rows.to_csv(index=False)) > MOST_BYTES:
        lines = rows.groupby(["panel", "line", "statistic"], sort=False)["x"]
        place, points = lines.cumcount(ascending=False), lines.transform("size")
        rows = rows[(place % 2 == 0) | (points <= SHORT)]
    kept.write_text(text)


def files(name: str) -> dict[Path, Path]:
    """Return the files of an experiment to publish, with their places."""
    folder = RESULTS / name
    tables = [folder / f"{table}.csv" for table in TABLES]
    kept = {}
    for path in [folder / f for f in STUDIES.get(name, ())] or tables + sheets(name):
        called = f"{name}_{path.name}" if path in tables else path.name
        kept[path] = PUBLISHED / called
    return kept


def is_of_board(name: str) -> bool:
    """Return whether a results folder has the leaderboard, or some of its panels."""
    return name.partition("+")[0] == BOARD


def check(name: str) -> None:
    """Raise SystemExit if a file of an experiment is missing or too large."""
    if is_of_board(name):
        check_run(RESULTS / name, PUBLISHED)
        return
    for path in files(name):
        if not path.is_file():
            raise SystemExit(f"{path}: is missing, run experiment={name} first")
        if path.suffix == ".png" and path.stat().st_size > MAX_PNG_BYTES:
            raise SystemExit(f"{path}: has more than {MAX_PNG_BYTES} bytes")
    if read_manifest(RESULTS / name)["profile"] == "smoke":
        raise SystemExit(f"{RESULTS / name}: is of the profile smoke, which is none")


def keep(name: str) -> None:
    """Publish the tables, pictures and curves of an experiment."""
    if is_of_board(name):
        publish_board(RESULTS / name, PUBLISHED)
        return
    for path, kept in files(name).items():
        if path.suffix == ".png" and path.with_suffix(".csv").is_file():
            write_curves(path.with_suffix(".csv"), kept.with_suffix(".csv"))
        if path.suffix != ".png" or not kept.is_file() or not alike(path, kept):
            shutil.copy(path, kept)


def verdicts_of(name: str) -> tuple[Counter[str], Counter[str]]:
    """Return the counts of verdicts on an experiment's claims, and on its facts.

    Facts and arithmetic are not claims, because they do not compare errors of
    algorithms.
    """
    rows = pd.read_csv(PUBLISHED / f"{name}_claims.csv")
    verdicts = rows["verdict"].str.partition(" (")[0]
    claims = rows["kind"].eq("claim") if "kind" in rows else rows.index >= 0
    return Counter(verdicts[claims]), Counter(verdicts[~claims])


def with_counts(text: str) -> str:
    """Return the README with current counts of claims next to the links to tables."""

    def counted(link: re.Match[str]) -> str:
        claims, facts = verdicts_of(link["name"])
        counts = {words: claims[verdict] for verdict, words in VERDICTS.items()}
        words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        if facts["fails"]:
            words += f"; {facts['fails']} of {facts.total()} facts fail"
        return f"[{claims.total()} claims]({link['path']}): {words} |"

    path = r"(?P<path>results/published/(?P<name>\w+)_claims\.csv)"
    return re.sub(rf"\[[^]]*claims\]\({path}\)[^|]*\|", counted, text)


def caption_on_page(caption: list[str], points: str) -> list[str]:
    """Return the paragraphs of a caption: its sentences, then a table of its facts.

    Parameters
    ----------
    caption : list of str
        The lines of the caption.
    points : str
        The file with the points of the lines; empty if there is none.
    """
    prose, rows = list[str](), list[tuple[str, str]]()
    for line in caption:
        found = rows_of_line(line)
        rows += found
        prose += [] if found else [line]
    if points:
        rows.append(("points", f"[{points}](../results/published/{points})"))
    if not rows:
        return prose
    cells = (f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows)
    return [*prose, "\n".join(["| row | value |", "|---|---|", *cells])]


def rows_of_line(line: str) -> list[tuple[str, str]]:
    """Return the rows of a figure's table for a line of a caption; [] for sentences."""
    text = line.removesuffix(".")
    if line.startswith("Data: "):
        _, *parts = FACTS.split(text)
        return [(k.lower(), v) for k, v in zip(parts[::2], parts[1::2], strict=True)]
    if SLOPES.match(line):
        _, *parts = SLOPES.split(text)
        named = zip(parts[::2], parts[1::2], strict=True)
        named = ((k, SLOPE.sub(r"\1*\2* ", v)) for k, v in named)
        return [(f"slopes in {k}" if k else "slopes", v) for k, v in named]
    if RUNS.fullmatch(line):
        # The command at the top of the section has the profile.
        text = re.sub(r" \(profile [^)]*\)$", "", text)
        return [("runs", text[0].lower() + text[1:])]
    for start, name in ROWS.items():
        if line.startswith(start):
            return [(name, in_markdown(text.removeprefix(start)))]
    return []


def in_markdown(text: str) -> str:
    """Return the value of a row with names of lines in italics instead of quotes."""
    return QUOTED.sub(r"*\1*", text).replace("checked, uncharged: ", "uncharged use: ")


def verdict_in_words(verdict: str, count: int) -> str:
    """Return the number of claims with a verdict, with a verb."""
    if verdict in ("holds", "fails"):
        return f"{count} {verdict if count == 1 else VERDICTS[verdict]}"
    one, several = ("was", "were") if verdict == "not run" else ("is", "are")
    return f"{count} {one if count == 1 else several} {verdict}"


def facts_in_words(count: int) -> str:
    """Return a sentence on the facts of an experiment; empty if there are none."""
    words = "1 fact, which compares" if count == 1 else f"{count} facts, which compare"
    return f"The table of claims also has {words} no errors. " if count else ""


def chapter(name: str) -> str:
    """Return the chapter of docs/figures.md on an experiment."""
    verdicts, facts = verdicts_of(name)
    manifest = read_manifest(RESULTS / name)
    # What is recorded was not run again: all runs of the folder made it. Seconds are
    # shared out by trials: those that the folder no longer names do not count.
    runs = [json.loads(p.read_text()) for p in (RESULTS / name / "runs").glob("*.json")]
    ran = sum(run.get("trials_run") or 0 for run in runs)
    named = sum(manifest["counts"].values()) / max(ran, 1)
    seconds = min(named, 1.0) * sum(run.get("seconds") or 0.0 for run in runs)
    told = [verdict_in_words(*one) for one in verdicts.most_common()]
    judged = " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))
    took = f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} seconds"
    profile, usable = manifest["profile"], manifest["environment"]["cpus_usable"]
    lines = [
        f"## {name}",
        f"`make reproduce-figures EXPERIMENT={name} PROFILE={profile}` "
        f"took {took} on {usable} cores. Of "
        f"[{verdicts.total()} claims](../results/published/{name}_claims.csv), "
        f"{judged}. {facts_in_words(facts.total())}The [settings that the searches "
        f"chose](../results/published/{name}_choices.csv) are in a second table.",
    ]
    for path in sheets(name):
        whole = path.with_suffix(".txt").read_text().splitlines()
        # Which run made it is in the manifest of the results folder.
        caption = [one for one in whole if not one.startswith("Computed by ")]
        title = path.stem.removeprefix(name).strip("_").replace("_", " ") or name
        points = (PUBLISHED / path.name).with_suffix(".csv")
        lines += [f"![{title}](../results/published/{path.name})"]
        lines += caption_on_page(caption, points.name if points.is_file() else "")
    return "\n\n".join(lines)


def main(*names: str) -> None:
    """Publish the named experiments; write the pages on all published ones."""
    # All of them first: what is published is of one state.
    for name in names:
        check(name)
    for name in names:
        keep(name)
    text = PAGE.read_text() if PAGE.is_file() else HEAD
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    own = [name for name in names if not (name in STUDIES or is_of_board(name))]
    parts |= {name: chapter(name).removeprefix("## ") for name in own}
    chapters = [f"## {parts[name].strip()}\n" for name in sorted(parts)]
    PAGE.write_text("\n".join([HEAD, *chapters]))
    README.write_text(with_counts(README.read_text()))
    (PAGE.parent / f"{BOARD}.md").write_text(page_of_board(PUBLISHED))


if __name__ == "__main__":
    main(*sys.argv[1:])
