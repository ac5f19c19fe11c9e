"""The published leaderboard, of runs of groups of its panels.

A run of some panels replaces what is published of them and leaves the others: a board
of hours is run by groups. Beside its files it keeps some of the settings that searches
tried, with their errors: rules without data are fitted on them.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path

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
from dp_erm_bench.results.settings import (
    final_rows,
    parameter_columns,
    worst_if_lost,
)
from dp_erm_bench.results.table import load_results

ABOUT, CHOICES = "leaderboard.json", "leaderboard_choices.csv"
TABLES = ("leaderboard.csv", "leaderboard_errors.csv", CHOICES)
TRIALS, PAIRS = "leaderboard_trials.csv", "leaderboard_pairs.csv"
KEPT = 10
"""Settings of a line that are kept: half of them the best, half far from each other."""


def trials_of_board(table: pd.DataFrame) -> pd.DataFrame:
    """Return panel, epsilon, line, setting, mean error and seeds of some trials."""
    ends = final_rows(table[table["phase"] == "tune"])
    ends = ends.assign(error=worst_if_lost(ends, "relative_error"))
    cells, rows = ["panel", "epsilon", "line"], []
    for cell, own in ends.groupby(cells, sort=False):
        tried = own.groupby("params", sort=False)["error"].agg(["mean", "size"])
        names = parameter_columns(own.drop_duplicates("params"))
        places = names.set_index(tried.index)
        for k in chosen_settings(tried["mean"].to_numpy(float), places):
            values = places.iloc[k].dropna().items()
            setting = " ".join(f"{key}={_short(value)}" for key, value in values)
            mean, seeds = tried.iloc[k]
            rows.append((*cell, setting, float(f"{mean:.4g}"), int(seeds)))
    return pd.DataFrame(rows, columns=[*cells, "setting", "mean", "seeds"])


def chosen_settings(means: np.ndarray, places: pd.DataFrame) -> Iterator[int]:
    """Yield which settings are kept: the best, then who is farthest from all before."""
    at = np.column_stack([_levels_of(places[key]) for key in places])
    order = [int(k) for k in np.argsort(means, kind="stable") if means[k] < np.inf]
    kept = order[: KEPT // 2]
    yield from kept
    left = order[KEPT // 2 :]
    while left and len(kept) < KEPT:
        apart = np.abs(at[left][:, None] - at[kept]).sum(axis=2).min(axis=1)
        kept.append(left.pop(int(np.argmax(apart))))
        yield kept[-1]


def _levels_of(column: pd.Series) -> np.ndarray:
    """Return a parameter's values as places: octaves of numbers, else four apart."""
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.notna().all():
        return np.log2(np.maximum(numbers.to_numpy(float), 1e-6))
    return 4.0 * pd.factorize(column.astype(str))[0]


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def merge_tables(folder: Path, published: Path) -> dict[str, str]:
    """Return the tables of the board, the panels of a results folder new.

    Parameters
    ----------
    folder, published : Path
        The results folder of a run, and what is published.
    """
    about, old = (json.loads((one / ABOUT).read_text()) for one in (folder, published))
    order = [*dict.fromkeys(block["panel"] for block in leaderboard())]
    table = load_results(folder)
    own = {name: (folder / name).read_text() for name in TABLES[:2]}
    own[CHOICES] = (folder / "choices.csv").read_text()
    own[TRIALS] = csv_of(trials_of_board(table[table["line"] != UNTUNED]))
    merged = {}
    for name, text in own.items():
        rows = pd.read_csv(io.StringIO(text))
        kept = pd.read_csv(published / name) if (published / name).is_file() else rows
        kept = kept[kept["panel"].isin({*order} - {*about["panels"]})]
        both = pd.concat([kept, rows])
        place = both["panel"].map(order.index).to_numpy()
        merged[name] = both.iloc[np.argsort(place, kind="stable")]
    panels = {**old["panels"], **about["panels"]}
    panels = {panel: panels[panel] for panel in order if panel in panels}
    families = {panel: of["family"] for panel, of in panels.items()}
    pairs = pairs_by_board(merged[TABLES[1]], families)
    # Where no errors of runs were kept the pairs are what they were.
    lacks = {*merged[TABLES[0]]["panel"]} - {*merged[TABLES[1]]["panel"]}
    before = pd.read_csv(published / PAIRS) if lacks else pairs
    apart = {panel.rpartition("_")[2] for panel in lacks}
    both = [pairs[~pairs["board"].isin(apart)], before[before["board"].isin(apart)]]
    merged[PAIRS] = to_four_digits(pd.concat(both))
    lists = ("uncharged", "notes", "faults", "missing")
    whole = {key: [*dict.fromkeys([*old[key], *about[key]])] for key in lists}
    whole = {"profile": about["profile"], **whole, "panels": panels}
    files = {name: csv_of(rows) for name, rows in merged.items()}
    return {**files, ABOUT: json.dumps(whole, indent=1) + "\n"}


def publish_board(folder: Path, published: Path) -> None:
    """Merge a run into what is published, and draw the sheets of all of it."""
    for name, text in merge_tables(folder, published).items():
        (published / name).write_text(text)
    ranking, _ = read_standings(published)
    profile = json.loads((published / ABOUT).read_text())["profile"]
    for path in draw_board(ranking, published, profile):
        if path.suffix != ".png":
            path.unlink()
