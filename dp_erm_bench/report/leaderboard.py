"""The leaderboard: its standings, figures, page of Markdown and small tables.

A *line* consists of the runs with one label in a panel, usually those of one algorithm.
Runs that diverged or failed are *lost*.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from dp_erm_bench.datasets.spec import family_of
from dp_erm_bench.errors import real_number
from dp_erm_bench.report import plot
from dp_erm_bench.report.captions import in_doubt, join_paragraphs
from dp_erm_bench.report.draw import spread_lines
from dp_erm_bench.report.families import Contrast, compare_pairs
from dp_erm_bench.report.figure import Drawing, Figure
from dp_erm_bench.report.layout import Sheet, save_sheet, write_text_file
from dp_erm_bench.report.panels import open_choices
from dp_erm_bench.report.style import STYLES, house_style
from dp_erm_bench.report.view import markdown_table
from dp_erm_bench.results.files import csv_of
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.settings import final_rows, unchecked_in, worst_if_lost
from dp_erm_bench.results.statistics import (
    FLOOR,
    LOSES,
    TIES,
    WINS,
    ZERO,
    Array,
    loss_beyond,
    models_of,
    nothing_beats,
    places_of_lines,
    quantile,
    with_beyond,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASES = {"base_rate": "base rate", "mean": "mean of the labels"}
NOT_PRIVATE = {**BASES, "optimum": "optimum"}
"""Reference models that are not private, with their names on the page.

Classification problems have the first model of `BASES`, regression problems the second.
"""

MEDIANS = {
    **{"objective": ("objective", math.inf), "test_risk": ("test_risk", math.inf)},
    "accuracy": ("test_accuracy", 0.0),
    **{"balanced_accuracy": ("balanced_accuracy", 0.0), "auc": ("auc", 0.0)},
    **{"rmse": ("rmse", math.inf), "r2": ("r2", -math.inf)},
}
"""Columns of the standings that are medians of a column of the table.

The values are the name of that column and the number that stands for a lost run.
"""

HELD_OUT = {
    "test risk / accuracy / balanced accuracy / AUC": (
        *("test_risk", "accuracy", "balanced_accuracy", "auc"),
    ),
    "test risk / RMSE / R²": ("test_risk", "rmse", "r2"),
}
"""Measures on held-out records: for classification, then for regression problems."""
COLUMNS = (
    *("panel", "epsilon", "line", "status", "reason"),
    *("median", "low", "high", *MEDIANS, "seconds", "runs", "batch"),
    *("zero", "majority", "factor", "beats_zero", "unbeaten", "place"),
)
UNTUNED = """\
- *untuned*: the error with the default settings, which a rule computes without tuning
  (see [auto](auto.md)), divided by the error with tuned settings. The table shows the
  geometric mean over the problems on which both ran. The untuned runs use 10 of the
  report seeds. For `feature_covariance`, the default settings clip before the scaling,
  but the tuned settings clip after it.
"""

BOARDS = {
    **{"l2": "l2 penalty", "l1": "L1 ball"},
    **{"squared": "squared loss", "huber": "Huber loss"},
}
"""Titles of the boards (parts of the leaderboard), by the ending of panels' names.

The problems of a board have objectives of one kind, which may be compared.
"""


def standings_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the standings: one row per problem, epsilon and algorithm.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a leaderboard. Panels are problems and lines are algorithms,
        each tuned and reported at every epsilon, or skipped.

    Returns
    -------
    DataFrame
        The columns are `COLUMNS`. `status` is ok or skipped (with the `reason`).
        `median`, `low` and `high` are the median and the 10 and 90 % quantiles of the
        relative error, where lost runs count as infinite. The columns of `MEDIANS` are
        medians at the last checkpoint; `test_risk` is the mean loss of held-out
        records. `factor` is the median divided by the best median of the problem, w = 0
        included. `beats_zero` says whether the 95 % interval of the median lies below
        the error of w = 0 (yes), above (no) or around it (tie). `unbeaten` and `place`
        are from `places_of_lines`. Only lines that beat w = 0 and the constant model
        can win. The best of them wins, and lines that cannot be distinguished from it
        tie.
    """
    reports, finals = _judged_rows(table)
    starts, ranking = _medians_at_zero(reports), list[dict[str, Any]]()
    for panel, epsilon, rows in problems_of(finals):
        # At w = 0 all margins are 0, so the accuracy is the share of one class.
        zero, share = map(float, starts.loc[panel, ["median", "accuracy"]])
        same: dict[str, Any] = {"panel": panel, "epsilon": epsilon, "zero": zero}
        same["majority"] = max(share, 1.0 - share)
        own = {str(line): runs for line, runs in rows.groupby("line", sort=False)}
        ranked = {line: same | _columns_of_line(runs) for line, runs in own.items()}
        ran = [line for line in own if ranked[line]["status"] == "ok"]
        errors = {line: own[line]["error"].to_numpy(float) for line in ran}
        others = {line: loss_beyond(own[line]) for line in ran}
        # Lines that did not run are passed, too: the position of a line is its seed.
        found = places_of_lines({line: errors.get(line) for line in own}, zero, others)
        least = min((ranked[line]["median"] for line in ran), default=zero)
        least = max(min(zero, least), FLOOR)
        for line in ran:
            row, how = ranked[line], found[line]
            row["factor"] = max(row["median"], FLOOR) / least
            row |= {"beats_zero": how.beats_zero, "unbeaten": how.unbeaten}
            row["place"] = how.place
        ranking += [{**row, "line": line} for line, row in ranked.items()]
    return pd.DataFrame(ranking, columns=list(COLUMNS))


def _medians_at_zero(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the medians of each panel's runs at w = 0; nan for missing values."""
    panels, starts = rows["panel"], rows[rows["iteration"] == 0]
    names = {name: of for name, (of, _) in MEDIANS.items()}
    columns = names | {"median": "relative_error"}
    found = {
        name: starts.groupby("panel")[of].agg(_median_of_present)
        for name, of in columns.items()
    }
    return pd.DataFrame(found).reindex(panels.unique())


def _judged_rows(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of report runs, and their last rows with a column `error`."""
    reports = table[table["phase"] != "tune"]
    finals = with_beyond(final_rows(reports))
    return reports, finals.assign(error=worst_if_lost(finals, "relative_error"))


def errors_of_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the errors of all runs, one row per panel, epsilon and line.

    The errors of a row are joined into one text, with four digits each. Comparisons of
    lines across datasets are computed from these texts.
    """
    rows = []
    for panel, epsilon, own in problems_of(_judged_rows(table)[1]):
        for line, runs in own.groupby("line", sort=False):
            if runs["status"].eq("skipped").any() or runs["error"].isna().all():
                continue
            words = (f"{max(error, FLOOR):.4g}" for error in runs["error"])
            rows.append((panel, epsilon, str(line), " ".join(words)))
    return pd.DataFrame(rows, columns=["panel", "epsilon", "line", "errors"])


def pairs_by_board(runs: pd.DataFrame, families: Mapping[str, str]) -> pd.DataFrame:
    """Return the comparison of each pair of lines on each board, one row per pair.

    The columns include the fields of `Contrast`.

    Parameters
    ----------
    runs : DataFrame
        The result of `errors_of_runs`.
    families : mapping of str to str
        The family of each panel's data.
    """
    errors: dict[str, dict[tuple[str, float], dict[str, Array]]] = {}
    for panel, epsilon, rows in problems_of(runs):
        problem, _, board = panel.rpartition("_")
        errors.setdefault(board, {})[problem, epsilon] = {
            str(line): np.array(str(text).split(), dtype=float)
            for line, text in zip(rows["line"], rows["errors"], strict=True)
        }
    names = {panel.rpartition("_")[0]: one for panel, one in families.items()}
    pairs = [
        (board, *lines, *pair)
        for board, own in errors.items()
        for lines, pair in compare_pairs(own, names).items()
    ]
    return pd.DataFrame(pairs, columns=["board", "line", "other", *Contrast._fields])


def to_four_digits(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with numbers rounded to four digits, which keeps files small."""
    numbers = rows.select_dtypes(float)
    return rows.assign(**numbers.map(lambda value: float(f"{value:.4g}")))


def problems_of(rows: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    """Yield the panel, epsilon and rows of every problem, in the order of the rows."""
    for key, own in rows.groupby(["panel", "epsilon"], sort=False):
        panel, epsilon = cast("tuple[str, float]", key)
        yield str(panel), float(epsilon), own


def standings_by_board(ranking: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each board, without boards on which nothing ran."""
    parts = {b: ranking[ranking["panel"].str.endswith(f"_{b}")] for b in BOARDS}
    return {b: rows for b, rows in parts.items() if (rows["status"] == "ok").any()}


def _median_of_present(column: pd.Series[float]) -> float:
    """Return the median of the values that are not missing; nan without such values."""
    values = column.dropna().to_numpy(float)
    return float(quantile(values, 0.5)) if len(values) else math.nan


def _median_with_lost(column: pd.Series[float], lost: float) -> float:
    """Return the median, with missing values as `lost`; nan if all are missing."""
    return _median_of_present(column.fillna(lost) if column.notna().any() else column)


def reference_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return three rows per problem, for reference models next to the standings.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a leaderboard.

    Returns
    -------
    DataFrame
        The first row is ``w = 0``, at epsilon 0 and with status ``no data``. The other
        two have infinite epsilon and status ``not private``. One of them is
        ``optimum``. The other is a constant model. It is ``base rate``, the share of
        each class in the training part, or ``mean of the labels`` for a regression.
        Numbers that the table lacks are nan.
    """
    found: list[dict[str, Any]] = []
    starts = _medians_at_zero(table)
    for panel, rows in table.groupby("panel", sort=False):
        zero: dict[Any, Any] = {"line": ZERO, "status": "no data", "epsilon": 0.0}
        zero |= starts.loc[panel].to_dict()
        texts = rows["references"].dropna().unique()
        models = next(filter(None, map(models_of, texts)), {})
        base = "mean" if "mean" in models else "base_rate"
        if base == "base_rate":
            # The model gives all records the same score and the same class.
            share = zero["accuracy"]
            zero |= {"accuracy": max(share, 1.0 - share), "balanced_accuracy": 0.5}
            zero["auc"] = 0.5
        own = [zero]
        for name in (base, "optimum"):
            model = models.get(name, {})
            row = {key: real_number(model.get(of)) for key, (of, _) in MEDIANS.items()}
            named = {"line": NOT_PRIVATE[name], "status": "not private"}
            own.append({"epsilon": math.inf, **named, **row})
        own[-1] |= {"objective": _median_of_present(rows["optimum"]), "median": 0.0}
        found += [{"panel": panel, **row} for row in own]
    return pd.DataFrame(found, columns=list(COLUMNS))


def _columns_of_line(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of a line's standing that do not depend on other lines."""
    skipped = runs[runs["status"] == "skipped"]
    if len(skipped):
        reason = str(skipped["message"].iloc[0])
        return {"status": "skipped", "reason": reason, "place": LOSES}
    errors = runs["error"].to_numpy(float)
    spread = {"median": 0.5, "low": 0.1, "high": 0.9}
    return {
        **{name: float(quantile(errors, q)) for name, q in spread.items()},
        "status": "ok",
        "reason": "",
        **{
            name: _median_with_lost(runs[of], lost)
            for name, (of, lost) in MEDIANS.items()
        },
        "seconds": float(quantile(runs["seconds"].to_numpy(float), 0.5)),
        "runs": float(len(runs)),
        "batch": float(runs["batch_size"].max()),
        "place": LOSES,
    }


def winners_of(rows: pd.DataFrame) -> list[str]:
    """Return the algorithms that win or tie on a problem, the best one first.

    Parameters
    ----------
    rows : DataFrame
        The rows of one problem in the result of `standings_of`.
    """
    first = rows[rows["place"] != LOSES].sort_values("median", kind="stable")
    return [str(line) for line in first["line"]]


def factors_of_board(ranking: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of algorithms and w = 0 over the best error of each problem.

    Parameters
    ----------
    ranking : DataFrame
        The result of `standings_of`, or some of its problems.

    Returns
    -------
    DataFrame
        Rows are the lines that ran, in the order of `ORDER`. Columns are pairs of panel
        and epsilon. Values are nan for problems on which a line was skipped.
    """
    ran = ranking[ranking["status"] == "ok"]
    least = ran["median"].clip(lower=FLOOR) / ran["factor"]
    zero = (ran["zero"].clip(lower=FLOOR) / least).groupby(
        [ran["panel"], ran["epsilon"]]
    )
    grid = _grid_of_board(ran, "factor", ranking)
    grid.loc[ZERO] = zero.first().reindex(grid.columns)
    return grid.reindex([line for line in ORDER if line in grid.index])


def _grid_of_board(
    rows: pd.DataFrame, column: str, ranking: pd.DataFrame
) -> pd.DataFrame:
    """Return a column as a grid: one row per line, one column per problem."""
    names = ["panel", "epsilon"]
    problems = ranking[names].drop_duplicates().itertuples(index=False, name=None)
    grid = rows.pivot(index="line", columns=names, values=column)
    return grid.reindex(columns=pd.MultiIndex.from_tuples(problems, names=names))


def about_board(
    table: pd.DataFrame,
    profile: str,
    open_choices: Sequence[str],
    manifest: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the facts on runs that the page shows besides the standings.

    Parameters
    ----------
    table : DataFrame
        The tidy table behind the standings.
    profile : str
        The profile that was run.
    open_choices : sequence of str
        A text for each chosen setting that is at a limit of its search.
    manifest : mapping
        Manifest of the latest run, with its machine, its commit and the trials that
        could not run.
    """
    environment = manifest.get("environment") or {}
    git = environment.get("git") or {}
    origin = [environment.get("cpu"), git.get("commit", "")[:7]]
    uses = {u for text in table["uncharged"].dropna() for u in text.split(",")} - {""}
    missing = {(m["dataset"], m["reason"]) for m in manifest.get("not_run") or ()}
    doubts = in_doubt(unchecked_in(table)).replace("\n", " ")
    by_panel = [
        (str(panel), runs) for panel, runs in table.groupby("panel", sort=False)
    ]
    beyond: dict[str, list[str]] = {}
    for choice in open_choices:
        # The reason in a line of text of `list_open_choices`.
        label, _, why = choice.partition(" in {")[0].rpartition(": ")
        beyond.setdefault(label.partition(" / ")[0].strip(), []).append(why)
    return {
        "profile": profile,
        "uncharged": sorted(uses),
        "notes": [doubts] if doubts else [],
        "missing": [f"{name}: {reason}" for name, reason in sorted(missing)],
        "panels": {
            panel: {
                "family": family_of(str(runs["dataset"].iloc[0])),
                "facts": _facts_of_problem(runs),
                "made": ", ".join(filter(None, origin)),
                "beyond": len(beyond.get(panel, ())),
                "short": sum("trials" in why for why in beyond.get(panel, ())),
            }
            for panel, runs in by_panel
        },
    }


def files_of_board(
    ranking: pd.DataFrame,
    models: pd.DataFrame,
    runs: pd.DataFrame,
    about: Mapping[str, Any],
) -> dict[str, str]:
    """Return the contents of the files that the page is made from, by file name.

    Parameters
    ----------
    ranking, models, runs : DataFrame
        The results of `standings_of`, `reference_rows` and `errors_of_runs`.
    about : mapping
        The result of `about_board`.
    """
    standings = pd.concat([ranking, models.astype(ranking.dtypes)])
    families = {panel: of["family"] for panel, of in about["panels"].items()}
    pairs = pairs_by_board(runs, families)
    return {
        "leaderboard_errors.csv": csv_of(runs),
        "leaderboard.csv": csv_of(to_four_digits(standings)),
        "leaderboard_pairs.csv": csv_of(to_four_digits(pairs)),
        "leaderboard.json": json.dumps(about, indent=1) + "\n",
    }


def read_standings(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the standings and the reference rows from a folder's leaderboard.csv."""
    standings = pd.read_csv(folder / "leaderboard.csv")
    texts = ["reason", "beats_zero", "unbeaten", "place"]
    standings[texts] = standings[texts].astype(object).fillna("")
    judged = standings["status"].isin(["ok", "skipped"])
    return standings[judged], standings[~judged]


def page_of_board(folder: Path) -> str:
    """Return the leaderboard's page for a folder with the files of `files_of_board`.

    The page is made from the templates leaderboard.md and, for each board, board.md.
    """
    ranking, models = read_standings(folder)
    ranking = ranking.assign(untuned=_times_untuned(ranking, folder))
    pairs = pd.read_csv(folder / "leaderboard_pairs.csv")
    about = json.loads((folder / "leaderboard.json").read_text("utf-8"))
    batch, runs = ranking["batch"].max(), ranking["runs"].max()
    parts = {
        board: (rows, pairs[pairs["board"] == board])
        for board, rows in standings_by_board(ranking).items()
    }
    panels, origins = about["panels"], dict[str, list[str]]()
    for panel, of in panels.items():
        origins.setdefault(of["made"], []).append(panel)
    made, told = ", ".join(origins), [*about["notes"]]
    if len(origins) > 1:
        made = f"runs from {len(origins)} combinations of code and machine"
        groups = "; ".join(", ".join(own) for own in origins.values())
        told.append(f"These groups of problems were run separately: {groups}.")
    notes = "\n- ".join(["", *told])
    missing = "\n".join(f"- {line}" for line in about["missing"])
    return _page_template("leaderboard").substitute(
        profile=about["profile"],
        made=f", {made}" if made else "",
        runs="?" if math.isnan(runs) else int(runs),
        beyond=sum(of["beyond"] for of in panels.values()),
        short=sum(of["short"] for of in panels.values()),
        tuned=int(ranking["status"].eq("ok").sum()),
        batch="batch size 1" if batch == 1 else f"in batches of up to {batch:g}",
        uncharged=", ".join(about["uncharged"]) or "none",
        notes=notes,
        answers="\n".join(
            _answer_of_board(board, *part) for board, part in parts.items()
        )
        + _note_on_statistics(ranking),
        untuned=UNTUNED if ranking["untuned"].notna().any() else "",
        boards="".join(
            _board_part(board, *part, models, panels) for board, part in parts.items()
        ),
        missing=f"\n## Not run\n\n{missing}\n" if missing else "",
    )


def _times_untuned(ranking: pd.DataFrame, folder: Path) -> pd.Series[float]:
    """Return each row's error without tuning, divided by its error with tuning.

    The errors without tuning are in untuned.csv, which benchmarks/rules.py writes.
    Only the published folder has this file; without it all values are nan.
    """
    path = folder / "untuned.csv"
    if not path.is_file():
        return pd.Series(math.nan, ranking.index)
    rows = pd.read_csv(path).rename(columns={"algorithm": "line"})
    keys = ["panel", "epsilon", "line"]
    errors = rows.set_index(keys)["error"].replace(math.inf, math.nan)
    return ranking[keys].join(errors, keys)["error"] / ranking["median"]


def _page_template(name: str) -> Template:
    path = Path(__file__).with_name(f"{name}.md")
    return Template(path.read_text(encoding="utf-8").removesuffix("\n"))


def _answer_of_board(board: str, rows: pd.DataFrame, pairs: pd.DataFrame) -> str:
    """Return a sentence that names the algorithm with the best results on a board."""
    title, chances = BOARDS[board], pairs.dropna(subset="better")
    if chances.empty:
        return (
            f"- **{title}**: all data are one family, which says nothing about other "
            "data."
        )
    first = str(chances.groupby("line")["better"].mean().idxmax())
    beside = chances[chances["line"] == first].set_index("other")
    rival = str(beside["better"].idxmin())
    worst = rows.loc[(rows["line"] == first) & rows["status"].eq("ok"), "factor"].max()
    near = beside.loc[rival]
    return (
        f"- **{title}**: `{first}` ranks first: it has the highest probability, on "
        "average, of a smaller error than another algorithm. The nearest rival is "
        f"`{rival}`. On other data, the error of `{first}` is smaller than that of "
        f"`{rival}` with probability {100 * near['better']:.0f} %. The error of "
        f"`{first}` is {near['ratio']:.2g} times that of `{rival}` on average. On the "
        f"problems of this board, the error of `{first}` is at most {worst:.3g} times "
        "the smallest error."
    )


def _note_on_statistics(ranking: pd.DataFrame) -> str:
    """Return a note on the error of `ssp` on the squared loss; empty if not run."""
    of_numbers = ranking["panel"].str.endswith("_squared")
    own = ranking[of_numbers & ranking["line"].eq("ssp") & ranking["status"].eq("ok")]
    if own.empty:
        return ""
    factor = _three_digits(own["factor"].median())
    return (
        f"\n\nOn the squared loss, the error of `ssp` is {factor} times the smallest "
        "error (median over problems).\nWang (2018) finds that the adaptive form of "
        "`ssp` is better than existing methods on nearly all data sets.\n"
        "[papers.md](papers.md) compares both results."
    )


def _board_part(
    board: str,
    rows: pd.DataFrame,
    pairs: pd.DataFrame,
    models: pd.DataFrame,
    panels: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the part of the page on one board."""
    problems = [ran for _, ran in rows.groupby("panel", sort=False)]
    return _page_template("board").substitute(
        title=BOARDS[board],
        total=rows.groupby(["panel", "epsilon"]).ngroups,
        summary=_summary_of_algorithms(rows),
        places=_table_of_winners(rows),
        families=_table_of_pairs(rows, pairs, panels),
        nothing=_problems_unbeaten(rows, models),
        problems="".join(_problem_section(ran, models, panels) for ran in problems),
    )


def _summary_of_algorithms(rows: pd.DataFrame) -> str:
    """Return a table of the wins, ties and medians of each algorithm on a board."""
    ran = rows[rows["status"] == "ok"]
    lines = ran.groupby("line")
    factor, seconds = (
        lines[of].agg(lambda own: float(quantile(own, 0.5)))
        for of in ("factor", "seconds")
    )
    table = pd.DataFrame({"ran": lines.size()})
    for name, column, word in (
        *(("wins", "place", WINS), ("ties", "place", TIES)),
        ("beats w = 0", "beats_zero", "yes"),
    ):
        table[name] = ran[column].eq(word).groupby(ran["line"]).sum()
    table["factor"] = factor.map(_three_digits)
    if ran["untuned"].notna().any():
        times = np.exp(np.log(ran["untuned"]).groupby(ran["line"]).mean())
        table["untuned"] = times.map(_three_digits).replace("nan", "-")
    table["ms"] = seconds.map(lambda one: f"{1e3 * one:.1f}")
    ordered = table.sort_values(["wins", "ties"], ascending=False, kind="stable")
    return markdown_table(ordered.rename_axis("algorithm"))


def _table_of_winners(rows: pd.DataFrame) -> str:
    """Return the winners of each problem as a table."""
    cells: dict[tuple[str, float], str] = {}
    for panel, epsilon, own in problems_of(rows):
        unbeaten = own.loc[own["status"] == "ok", "unbeaten"]
        nothing = nothing_beats(unbeaten).removeprefix("nothing beats ")
        first, *others = winners_of(own) or [""]
        rest = f" ({', '.join(others)})" if others else ""
        cells[panel, epsilon] = (
            f"**{first}**{rest}" if first else f"*{nothing or ZERO}*"
        )
    epsilons = sorted({*rows["epsilon"]})
    table = _cells_by_epsilon(pd.Series(cells), "problem", epsilons)
    return markdown_table(table.fillna(""))


def _cells_by_epsilon(
    cells: pd.Series[str], name: str, epsilons: list[float]
) -> pd.DataFrame:
    """Return strings as a table: the rows are names, the columns are epsilons."""
    names = cells.index.get_level_values(0).unique()
    table = cells.unstack().reindex(index=names, columns=epsilons)
    return table.rename(columns="epsilon = {:g}".format).rename_axis(name)


def _table_of_pairs(
    rows: pd.DataFrame, pairs: pd.DataFrame, panels: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return a table of the probabilities that one line is better than another."""
    ran = rows[rows["status"] == "ok"]
    names = {panels[panel]["family"] for panel in ran["panel"]}
    if len(names) < 2:
        own = ", ".join(names)
        return f"The data of one family, {own}, say nothing about other data.\n"
    if pairs.empty:
        return "Only one algorithm ran, so none is compared on other data.\n"
    pairs = pairs.set_index(["line", "other"])
    ahead = pairs["better"].groupby(level=0).mean().fillna(0.0)
    lines = ahead.sort_values(ascending=False, kind="stable").index
    chances = (100.0 * pairs[["better", "within"]]).map("{:.0f}".format)
    words = (chances["better"] + " / " + chances["within"]).mask(pairs["better"].isna())
    grid = words.unstack().reindex(index=lines, columns=lines).fillna("-")
    for line in lines:
        grid.loc[line, line] = ""
    short = {line: STYLES[line].family or line for line in lines if line in STYLES}
    fewest = pairs["families"].min()
    told = _page_template("families").substitute(
        count=len(names),
        some=f" (only {fewest} for some pairs)" if fewest < len(names) else "",
        names=", ".join(sorted(names)),
    )
    return f"{told}\n\n{markdown_table(grid.rename(columns=short).rename_axis(''))}"


def _problems_unbeaten(rows: pd.DataFrame, models: pd.DataFrame) -> str:
    """Return a list of the problems on which no algorithm beats w = 0 or a constant."""
    base = models[models["panel"].isin(rows["panel"])]
    base = base[base["line"].isin([*BASES.values()])].set_index("panel")
    risks = rows["panel"].map(base["test_risk"])
    verdicts = {"w = 0 in the objective": rows["beats_zero"] == "yes"}
    if not rows["unbeaten"].isin(["", ZERO]).all():
        beaten = rows["unbeaten"].eq("") & rows["status"].eq("ok")
        verdicts["the constant model in the objective"] = beaten
    if risks.notna().any():
        word = f"the {base['line'].iloc[0]} in test risk"
        verdicts[word] = rows["test_risk"] < risks
    if rows["majority"].notna().any():
        accurate = rows["accuracy"] > rows["majority"]
        verdicts["the larger class in test accuracy"] = accurate
    lines = []
    for word, better in verdicts.items():
        problems = better.groupby([rows["panel"], rows["epsilon"]], sort=False).any()
        left = problems[~problems].reset_index().groupby("panel", sort=False)["epsilon"]
        named = [f"{panel} at epsilon {_epsilons(own)}" for panel, own in left]
        lines.append(
            f"- No algorithm beats {word} on these problems: {'; '.join(named)}."
            if named
            else f"- On every problem, at least one algorithm beats {word}."
        )
    return "\n".join(lines)


def _epsilons(values: pd.Series[float]) -> str:
    return ", ".join(map("{:g}".format, values))


def _problem_section(
    rows: pd.DataFrame, models: pd.DataFrame, panels: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the section on one problem: errors, then results on held-out records."""
    panel, epsilons = rows["panel"].iloc[0], sorted({*rows["epsilon"]})
    middle = epsilons[len(epsilons) // 2]
    told, *others = HELD_OUT
    told = next((t for t in others if rows[HELD_OUT[t][-1]].notna().any()), told)
    ran = rows[rows["status"] == "ok"].sort_values("line", kind="stable")
    ran = ran.set_index(["line", "epsilon"])
    errors, held_out = (
        _cells_by_epsilon(cells, "algorithm", epsilons)
        for cells in (_error_cells(ran), _held_out_cells(ran, HELD_OUT[told]))
    )
    errors[f"ms at {middle:g}"] = (1e3 * ran["seconds"].xs(middle, level=1)).map(
        "{:.1f}".format
    )
    if len(ran):
        zero = _three_digits(ran["zero"].iloc[0])
        errors.loc["*w = 0*"] = [zero] * len(epsilons) + ["0"]
    beside = models[models["panel"] == panel].set_index(["line", "status"])
    for key, cell in _held_out_cells(beside, HELD_OUT[told]).items():
        line, status = cast("tuple[str, str]", key)
        name = line if line == ZERO else f"{line}, {status}"
        held_out.loc[f"*{name}*"] = cell
    skipped = rows[rows["status"] == "skipped"].groupby("line", sort=False)
    parts = (
        f"\n### {panel}\n",
        panels[panel]["facts"],
        "",
        markdown_table(errors.fillna("-")),
        f"The next table shows results on held-out records: {told}.\n",
        markdown_table(held_out.fillna("-")),
        *(
            f"- `{line}` refuses this problem at epsilon {_epsilons(own['epsilon'])}: "
            f"`{own['reason'].iloc[0]}`"
            for line, own in skipped
        ),
        "",
    )
    return "\n".join(parts)


def _error_cells(ran: pd.DataFrame) -> pd.Series[str]:
    """Return the median and quantiles of each row's error, bold for wins and ties."""
    median, low, high = (ran[of].map(_three_digits) for of in ("median", "low", "high"))
    words = median + " [" + low + ", " + high + "]"
    return words.where(ran["place"] == LOSES, "**" + words + "**")


def _held_out_cells(rows: pd.DataFrame, names: Sequence[str]) -> pd.Series[str]:
    """Return each row's medians on held-out records, in the order of the names."""
    risk, *shares = (rows[name].astype(float) for name in names)
    words = risk.map(_three_digits)
    for share in shares:
        words = words + " / " + share.map("{:.3f}".format)
    missing = rows[[*names]].isna().all(axis=1)
    return words.str.replace("nan", "-").mask(missing, "-")


def _facts_of_problem(runs: pd.DataFrame) -> str:
    """Return a sentence with the data, size and objective of a problem."""
    ok = runs[runs["n"].notna()]
    if ok.empty:
        return "No run."
    one = ok.iloc[0]
    form = ", standardised" if one["standardise"] else ""
    penalty = (
        "" if one["penalty"] == "none" else f" and the l2 penalty {one['strength']:g}"
    )
    ball = (
        ""
        if one["constraint"] == "none"
        else f" and the constraint {one['constraint']}"
    )
    options = one["objective_options"]
    told = "" if options == "{}" else f" The objective's options are `{options}`."
    return (
        f"The data set is {one['dataset']}{form}, with n x p = {one['n']:.0f} x "
        f"{one['p']:.0f} and the options `{one['dataset_options']}`. The objective has "
        f"the {one['loss']} loss{penalty}{ball}.{told}"
    )


def _three_digits(value: float) -> str:
    """Return a number as a string with three digits."""
    if not math.isfinite(value):
        return f"{value}"
    return f"{value:.3g}" if value < 1e4 else f"{value:.0e}"


ORDER = (
    *("greedy_cd", "random_cd", "sgd", "svrg", "gd", "frank_wolfe", "mirror_descent"),
    *("output_perturbation", "objective_perturbation"),
    *("approximate_minima_perturbation", "permutation_sgd", "newton"),
    *("feature_covariance", "ssp", ZERO),
)
"""The lines of a board, in the order in which its figures show them."""

MOST_PANELS = 7
"""Largest number of datasets side by side, so that their names stay readable."""

ROW = 0.115
"""Height in inches of a row of a heat map; all boards must fit on one page."""

CAPTIONS = {
    "profiles": "The figure shows performance profiles. A problem is a dataset at one "
    "epsilon. Its best error is the smallest median of all algorithms and of w = 0. A "
    "problem that an algorithm refuses counts as never reached.",
    "heat": "Colours show the error divided by the smallest error of the problem (w = "
    f"0 included), from 1 (dark) to {plot.WORST:g} and more (light). A filled circle "
    "marks the winner, and a ring marks algorithms within noise of it, both only if "
    "they beat w = 0. White problems were refused. An algorithm that is refused on "
    "all problems of a board has no row. AMP, output and objective are perturbation "
    "methods; permutation is permutation_sgd.",
}


@dataclass(frozen=True)
class Leaderboard(Figure):
    """The figure of the leaderboard; panels' names end with the key of their board."""

    def draw(self, drawing: Drawing) -> list[Path]:
        """Write the tables, page and figures of the leaderboard; return their paths.

        The tables leaderboard.csv, leaderboard_errors.csv, leaderboard_pairs.csv and
        leaderboard.json, and the page leaderboard.md, are written next to the folder of
        the figures. If nothing ran, no figures are drawn.
        """
        table, folder, name = drawing.table, drawing.folder, drawing.profile
        ranking, outer = standings_of(table), folder.parent
        models = reference_rows(table)
        beyond, manifest = open_choices(outer), read_manifest(outer)
        about = about_board(table, name, beyond, manifest)
        log = ["Choices beyond which a better setting may lie", *beyond, ""]
        files = files_of_board(ranking, models, errors_of_runs(table), about)
        texts = {outer / name: text for name, text in files.items()}
        texts[folder / "log.txt"] = "\n".join(log)
        written = [write_text_file(path, text) for path, text in texts.items()]
        page = page_of_board(outer)
        written.append(write_text_file(outer / "leaderboard.md", page))
        doubts = in_doubt(unchecked_in(table))
        return written + draw_board(ranking, folder, name, doubts, drawing.mark)


def draw_board(
    ranking: pd.DataFrame, folder: Path, profile: str, doubts: str = "", mark: str = ""
) -> list[Path]:
    """Draw performance profiles and the map of winners; return the files written.

    Parameters
    ----------
    ranking : DataFrame
        The result of `standings_of`. If no line ran, nothing is drawn.
    folder : Path
        The folder of the figures.
    profile : str
        The profile that was run, for the caption.
    doubts : str
        The result of `in_doubt`, for the caption.
    mark : str
        Text across the pictures.
    """
    parts, written = standings_by_board(ranking), list[Path]()
    if not parts:
        return written
    runs = max(int(rows["runs"].max()) for rows in parts.values())
    about = (
        f"Errors F(w)/F* - 1 are medians of the last iterate over {runs} report runs "
        f"(profile {profile}). Settings are tuned on other seeds, which is not charged."
    )
    with house_style():
        for stem, (drawn, looks) in _parts_of_sheets(parts).items():
            caption = join_paragraphs(about, CAPTIONS[stem], doubts)
            sheet = Sheet(drawn, caption, width="page", mark=mark, **looks)
            written += save_sheet(sheet, folder / f"leaderboard_{stem}")
    return written


def _parts_of_sheets(
    parts: Mapping[str, pd.DataFrame],
) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """Return the panels and layout options of each sheet, by the ending of its name."""
    factors = {board: factors_of_board(rows) for board, rows in parts.items()}
    cells: dict[str, list[Any]] = {"profiles": [], "heat": []}
    for board, own in factors.items():
        cells["profiles"].extend(_profiles_of_board(BOARDS[board], own))
        panels = own.columns.get_level_values(0)
        split = np.array_split(
            panels.unique(), math.ceil(panels.nunique() / MOST_PANELS)
        )
        for k, some in enumerate(split, 1):
            title = BOARDS[board] + f" ({k}/{len(split)})" * (len(split) > 1)
            chosen = own.loc[:, panels.isin(some)]
            cells["heat"].append(
                partial(_draw_factors, factors=chosen, rows=parts[board], title=title)
            )
    tall = 0.7 + ROW * max(map(len, factors.values()))
    return {
        "profiles": (cells["profiles"], {"quantity": "share of problems"}),
        "heat": (cells["heat"], {"quantity": "", "columns": 1, "tall": tall}),
    }


def _profiles_of_board(board: str, factors: pd.DataFrame) -> Iterator[Any]:
    """Yield functions that each draw performance profiles of some lines of a board."""
    shares, count = plot.shares_within(factors), len(factors.columns)
    parts = spread_lines([line for line in shares if line != ZERO])
    for k, part in enumerate(parts, 1):
        some = f" ({k}/{len(parts)})" if len(parts) > 1 else ""
        own = {line: shares[line] for line in (*part, ZERO)}
        title = f"{board}: {count} problems{some}"
        yield partial(plot.draw_profiles, profiles=own, looks=STYLES, title=title)


def _draw_factors(
    ax: Axes, factors: pd.DataFrame, rows: pd.DataFrame, title: str
) -> None:
    """Draw each algorithm's error over the best one, for all problems of a board."""
    columns: Any = factors.columns
    places = _grid_of_board(rows, "place", rows).reindex(factors.index).fillna("")
    places = places.reindex(columns=columns)
    data = [(panel.rpartition("_")[0], epsilon) for panel, epsilon in columns]
    names = [STYLES[line].family or line for line in factors.index]
    factors = factors.set_axis(names).set_axis(pd.MultiIndex.from_tuples(data), axis=1)
    plot.draw_winners(ax, factors, places)
    ax.set_title(f"{title}\n", loc="left")
