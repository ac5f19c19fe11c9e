"""The published leaderboard, of runs of groups of its panels.

A run of some panels replaces what is published of them and leaves the others: a board
of hours is run by groups. Beside its files it keeps some of the settings that searches
tried, with their errors: rules without data are fitted on them.
"""

import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cells import leaderboard
from dp_erm_bench.report.leaderboard import (
    UNTUNED,
    draw_board,
    pairs_by_board,
    read_standings,
    to_four_digits,
)
from dp_erm_bench.results.files import csv_of
from dp_erm_bench.results.settings import final_rows, mapping_of, worst_if_lost
from dp_erm_bench.results.table import load_results

ABOUT, CHOICES = "leaderboard.json", "leaderboard_choices.csv"
TABLES = ("leaderboard.csv", "leaderboard_errors.csv", CHOICES)
TRIALS, PAIRS = "leaderboard_trials.csv", "leaderboard_pairs.csv"
OF_PANELS = re.compile(r"\w+(, changed: panel=[\w,]+)?")
"""What a run says of its profile, in which nothing but the panels may be changed."""

KEPT = 10
"""Settings of a line that are kept: half of them the best, half far from each other."""


def trials_of_board(table: pd.DataFrame) -> pd.DataFrame:
    """Return panel, epsilon, line, setting, mean error and seeds of some trials."""
    ends = final_rows(table[table["phase"] == "tune"])
    ends = ends.assign(error=worst_if_lost(ends, "relative_error"))
    cells, rows = ["panel", "epsilon", "line"], []
    for cell, own in ends.groupby(cells, sort=False):
        tried = own.groupby("params", sort=False)["error"].agg(["mean", "size"])
        settings = _vary([mapping_of(text) for text in tried.index])
        for k in chosen_settings(tried["mean"].to_numpy(float), settings):
            values = settings[k].items()
            setting = " ".join(f"{key}={_short(value)}" for key, value in values)
            mean, seeds = tried.iloc[k]
            rows.append((*cell, setting, float(f"{mean:.4g}"), int(seeds)))
    return pd.DataFrame(rows, columns=[*cells, "setting", "mean", "seeds"])


def _vary(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return settings without what is the same in all of them."""
    keys = {key for one in settings for key in one if one[key] != settings[0].get(key)}
    return [{k: v for k, v in one.items() if k in keys} for one in settings]


def chosen_settings(
    means: np.ndarray, settings: Sequence[Mapping[str, Any]]
) -> Iterator[int]:
    """Yield which settings are kept: the best, then who is farthest from all before."""
    order = [int(k) for k in np.argsort(means, kind="stable") if means[k] < np.inf]
    kept = order[: KEPT // 2]
    yield from kept
    left = order[KEPT // 2 :]
    while left and len(kept) < KEPT:
        far = [min(_distance(settings[k], settings[j]) for j in kept) for k in left]
        kept.append(left.pop(int(np.argmax(far))))
        yield kept[-1]


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the octaves between two settings, 4 for each word or null that differs."""
    apart = 0.0
    for key in one.keys() | other.keys():
        pair = [one.get(key), other.get(key)]
        if all(type(value) in (int, float) and value > 0 for value in pair):
            apart += abs(math.log2(pair[0] / pair[1]))
        elif pair[0] != pair[1]:
            apart += 4.0
    return apart


def _short(value: object) -> str:
    if value is None:
        return "null"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def merge_tables(folder: Path, published: Path) -> dict[str, str]:
    """Return the files of the board, the panels of a results folder new.

    Cells are kept as they are written: nothing is read as a number but errors.

    Parameters
    ----------
    folder, published : Path
        The results folder of a run, and what is published.
    """
    about, old = (
        json.loads((one / ABOUT).read_text("utf-8")) for one in (folder, published)
    )
    order = [*dict.fromkeys(block["panel"] for block in leaderboard())]
    table = load_results(folder)
    own = {name: (folder / name).read_text("utf-8") for name in TABLES[:2]}
    own[CHOICES] = (folder / "choices.csv").read_text("utf-8")
    own[TRIALS] = csv_of(trials_of_board(table[table["line"] != UNTUNED]))
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
    # Where no errors of runs were kept the pairs are what they were.
    lacks = {*merged[TABLES[0]]["panel"]} - {*runs["panel"]}
    if lacks and (published / PAIRS).is_file():
        apart = {panel.rpartition("_")[2] for panel in lacks}
        before = pd.read_csv(published / PAIRS)
        both = [pairs[~pairs["board"].isin(apart)], before[before["board"].isin(apart)]]
        pairs = pd.concat(both)
    merged[PAIRS] = pairs
    # A fault and a note are of the panels that they name, or of all.
    faults = [
        one for one in old["faults"] if one.partition(" / ")[0] not in about["panels"]
    ]
    left = {*old["panels"]} - {*about["panels"]}
    whole = {
        "profile": about["profile"].partition(", ")[0],
        "uncharged": sorted({*old["uncharged"], *about["uncharged"]}),
        "notes": [*dict.fromkeys([*(old["notes"] if left else ()), *about["notes"]])],
        "faults": [*faults, *about["faults"]],
        "missing": about["missing"],
        "panels": panels,
    }
    files = {name: csv_of(rows) for name, rows in merged.items()}
    return {**files, ABOUT: json.dumps(whole, indent=1) + "\n"}


def _read_cells(file: Path | io.StringIO) -> pd.DataFrame:
    return pd.read_csv(file, dtype=str, keep_default_na=False)


def check_run(folder: Path, published: Path) -> None:
    """Refuse a run of another profile, or that lacks what is published of a panel."""
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
    """Merge a run into what is published, and draw the sheets of all of it."""
    check_run(folder, published)
    for name, text in merge_tables(folder, published).items():
        (published / name).write_text(text, encoding="utf-8")
    ranking, _ = read_standings(published)
    profile = json.loads((published / ABOUT).read_text("utf-8"))["profile"]
    for path in draw_board(ranking, published, profile):
        if path.suffix != ".png":
            path.unlink()
