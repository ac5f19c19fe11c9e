"""Publish the leaderboard from runs that cover only some of its panels.

A run of some panels replaces the published results of these panels and keeps the
others. So a leaderboard that takes hours can be run in parts.
"""

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.cells import leaderboard
from dp_erm_bench.report.leaderboard import (
    draw_board,
    pairs_by_board,
    read_standings,
    to_four_digits,
)
from dp_erm_bench.results.files import csv_of

ABOUT, CHOICES = "leaderboard.json", "leaderboard_choices.csv"
TABLES = ("leaderboard.csv", "leaderboard_errors.csv", CHOICES)
PAIRS = "leaderboard_pairs.csv"
OF_PANELS = re.compile(r"\w+(, changed: panel=[\w,]+)?")
"""Pattern of the profile of a run in which nothing was changed except the panels."""


def merge_tables(folder: Path, published: Path) -> dict[str, str]:
    """Return the files of the leaderboard after adding the panels of a run.

    Cells are copied as text. Only errors are read as numbers.

    Parameters
    ----------
    folder, published : Path
        The results folder of a run, and the folder with the published results.
    """
    about, old = (
        json.loads((one / ABOUT).read_text("utf-8")) for one in (folder, published)
    )
    order = [*dict.fromkeys(block["panel"] for block in leaderboard())]
    own = {name: (folder / name).read_text("utf-8") for name in TABLES[:2]}
    own[CHOICES] = (folder / "choices.csv").read_text("utf-8")
    merged = {}
    for name, text in own.items():
        rows = _read_cells(io.StringIO(text))
        there = (published / name).is_file()
        kept = _read_cells(published / name) if there else rows.iloc[:0]
        kept = kept[kept["panel"].isin({*order} - {*about["panels"]})]
        both = pd.concat([kept, rows]).fillna("")
        place = both["panel"].map(order.index).to_numpy()
        merged[name] = both.iloc[np.argsort(place, kind="stable")]
    panels = {**old["panels"], **about["panels"]}
    panels = {panel: panels[panel] for panel in order if panel in panels}
    families = {panel: of["family"] for panel, of in panels.items()}
    runs = merged[TABLES[1]].astype({"epsilon": float})
    pairs = to_four_digits(pairs_by_board(runs, families))
    # Pairs stay as published for panels whose errors of runs were not kept.
    lacks = {*merged[TABLES[0]]["panel"]} - {*runs["panel"]}
    if lacks and (published / PAIRS).is_file():
        apart = {panel.rpartition("_")[2] for panel in lacks}
        before = pd.read_csv(published / PAIRS)
        both = [pairs[~pairs["board"].isin(apart)], before[before["board"].isin(apart)]]
        pairs = pd.concat(both)
    merged[PAIRS] = pairs
    # A note is about the panels that it names, or about all.
    left = {*old["panels"]} - {*about["panels"]}
    whole = {
        "profile": about["profile"].partition(", ")[0],
        "uncharged": sorted({*old["uncharged"], *about["uncharged"]}),
        "notes": [*dict.fromkeys([*(old["notes"] if left else ()), *about["notes"]])],
        "missing": about["missing"],
        "panels": panels,
    }
    files = {name: csv_of(rows) for name, rows in merged.items()}
    return {**files, ABOUT: json.dumps(whole, indent=1) + "\n"}


def _read_cells(file: Path | io.StringIO) -> pd.DataFrame:
    return pd.read_csv(file, dtype=str, keep_default_na=False)


def check_run(folder: Path, published: Path) -> None:
    """Raise SystemExit if a run cannot replace the published results of its panels.

    The run may have another profile, or lack a line that is published.
    """
    for name in (ABOUT, *TABLES[:2], "choices.csv"):
        if not (folder / name).is_file():
            raise SystemExit(f"{folder / name}: is missing")
    about, old = (
        json.loads((one / ABOUT).read_text("utf-8")) for one in (folder, published)
    )
    run, wanted = about["profile"], old["profile"]
    if run.partition(", ")[0] != wanted or not OF_PANELS.fullmatch(run):
        raise SystemExit(f"{folder}: is of the profile {run}, not {wanted}")
    known = {block["panel"] for block in leaderboard()}
    if unknown := {*about["panels"]} - known:
        raise SystemExit(
            f"{folder}: no panel of the board: {', '.join(sorted(unknown))}"
        )
    cells = ["panel", "epsilon", "line"]
    new, kept = (pd.read_csv(one / TABLES[0])[cells] for one in (folder, published))
    kept = kept[kept["panel"].isin(about["panels"])]
    if lacks := {*kept.itertuples(index=False, name=None)} - {
        *new.itertuples(index=False, name=None)
    }:
        panel, epsilon, line = sorted(lacks)[0]
        raise SystemExit(f"{folder}: lacks {panel}, {line}, epsilon {epsilon:g}")


def publish_board(folder: Path, published: Path) -> None:
    """Merge a run into the published leaderboard, and draw all its figures again."""
    check_run(folder, published)
    for name, text in merge_tables(folder, published).items():
        (published / name).write_text(text, encoding="utf-8")
    ranking, _ = read_standings(published)
    profile = json.loads((published / ABOUT).read_text("utf-8"))["profile"]
    for path in draw_board(ranking, published, profile):
        if path.suffix != ".png":
            path.unlink()
