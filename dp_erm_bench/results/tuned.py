"""The settings chosen for tuned lines in a results folder, and their results.

A *line* consists of the trials with one label in a panel, usually those of one
algorithm.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import UsageError, real_number, value_error
from dp_erm_bench.results.columns import sign_of
from dp_erm_bench.results.files import PLAN, as_it_was, read_text
from dp_erm_bench.results.settings import (
    final_rows,
    label_table,
    split_names,
    worst_if_lost,
)
from dp_erm_bench.results.statistics import (
    WINS,
    ZERO,
    Array,
    Beyond,
    baseline_columns,
    by_split,
    loss_beyond,
    medians_of,
    places_of_lines,
    quantile,
    with_beyond,
)
from dp_erm_bench.results.store import planned_lines
from dp_erm_bench.results.table import recorded_results

if TYPE_CHECKING:
    import pandas as pd

CHOICES = "choices.csv"
NEEDED = ("panel", "line", "epsilon", "chosen", "open")
ERROR, OBJECTIVE = "relative_error", "objective"
PROBLEM = ["panel", "epsilon"]
BESIDE = ("test_risk", "train_risk", "auc", "test_accuracy", "r2", "rmse")
"""Quantities that are shown for a choice, besides the quantity that decided it."""

LABELS = ("panel", "dataset", "line", "algorithm", "open", "trial")
SETTING = [
    *("panel", "line", "dataset", "dataset_options", "content", "standardise", "loss"),
    *("penalty", "strength", "constraint", "objective_options", "algorithm", "params"),
    *("epsilon", "delta", "adjacency", "calibration", "dataset_seed"),
]
"""Columns with the same value in all report runs of a choice."""

Row = Mapping[str, str]


def read_choices(folder: Path) -> list[Row] | None:
    """Return the rows of a folder's choices.csv; None if there is no such file.

    Raises
    ------
    UsageError
        If the file is damaged.
    """
    text = read_text(folder, CHOICES, "the command of the run makes it again")
    if text is None:
        return None
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows: list[Row] = [{k: as_it_was(v) for k, v in row.items()} for row in reader]
        cells = [row.get(key) for row in rows for key in NEEDED]
        whole = {*NEEDED} <= {*(reader.fieldnames or ())}
        whole &= all(isinstance(cell, str) for cell in cells)
    except csv.Error:
        whole = False
    if not whole:
        raise UsageError(f"{CHOICES}: is damaged")
    return rows


def tuned_choices(folder: str | Path) -> pd.DataFrame:
    """Return the choices of a results folder, best first on each problem.

    Parameters
    ----------
    folder : str or Path
        Results folder of `dp-erm-bench tune`, or of an experiment that tunes.

    Returns
    -------
    DataFrame
        One row per tuned line, with these columns:

        - `panel`, `dataset`, `epsilon`, `line`, `algorithm`;
        - `trial`, one of the runs on report seeds;
        - `chosen`, a dict of the parameters without defaults; `searched`, the names of
          the parameters that were searched; `default`, a dict of parameters not given;
        - `quantity`, the column by which the line is judged: the quantity of the
          search, or the relative error instead of the objective if it is known;
        - `median` over the `runs` on report seeds, and its 95 % interval `ci_low`,
          `ci_high`;
        - `beats_zero`, `beats_constant`, `unbeaten` and `place`, as in `Standing`;
          `constant`, as in `Beyond`;
        - `taken`, whether `from_results` takes the line, that is, whether the line wins
          if only w = 0 has to be beaten;
        - the medians of those quantities of `BESIDE` that the runs have;
        - for each of `BASELINES` its value of the quantity, nan if unknown;
          `baselines`, a dict of dicts with their values of the other medians;
        - `open`, the reason if a better setting may lie beyond those that were tried;
          `uncharged` and `doubt`.

        With several `splits`, each split was tuned. `chosen` and `trial` are those of
        the first split, and `median` is the mean over splits of the median over `runs`,
        with an interval over splits, as in `by_split`. Runs without a result count as
        the worst. Lines whose algorithm refuses the problem are left out.

    Raises
    ------
    UsageError
        If nothing in the folder was tuned, or its choices are damaged.
    """
    import pandas as pd

    folder = Path(folder)
    rows = recorded_results(folder)
    rows = rows[(rows["phase"] == "report") & (rows["status"] != "skipped")]
    found: list[dict[str, Any]] = []
    problems: dict[tuple[Any, ...], dict[int, Array]] = {}
    others: dict[int, Beyond] = {}
    for told, ends in _tuned_lines(folder, rows):
        y = ERROR if ends[ERROR].notna().any() else OBJECTIVE
        y = y if told["chosen_by"] == OBJECTIVE else told["chosen_by"]
        values = sign_of(y) * by_split(worst_if_lost(ends, y), ends["dataset_seed"])
        where = told["panel"], told["epsilon"], y
        problems.setdefault(where, {})[len(found)] = values
        others[len(found)] = loss_beyond(ends)
        runs = rows.loc[rows["trial"].isin(ends["trial"])]
        beside = {
            name: float(quantile(worst_if_lost(ends, name), 0.5))
            for name in BESIDE
            if ends[name].notna().any()
        }
        told["baselines"] = {n: medians_of(baseline_columns(runs, n)) for n in beside}
        told |= {key: str(ends[key].iloc[0]) for key in ("uncharged", "trial")}
        told["doubt"] = max(ends["doubt"])  # empty for a run that failed
        models = medians_of(baseline_columns(runs, y))
        found.append({**told, "quantity": y, **beside, **models})
    if not found:
        raise UsageError(f"{folder}: has no runs that report yet")
    for (_, _, y), errors in problems.items():
        sign = sign_of(y)
        # Runs that failed before their first checkpoint have no value at w = 0.
        zeros = [zero for one in errors if not math.isnan(zero := found[one][ZERO])]
        zero = sign * float(np.median(zeros)) if zeros else math.nan
        blind = places_of_lines(errors, zero)
        for place, one in places_of_lines(errors, zero, others).items():
            low, high = sorted((sign * one.low, sign * one.high))
            interval = {"median": sign * one.median, "ci_low": low, "ci_high": high}
            taken = {"taken": blind[place].place == WINS, "_order": one.median}
            constant = {"constant": others[place].constant}
            found[place] |= {**one._asdict(), **constant, **taken, **interval}
    table = pd.DataFrame(found)
    table["_place"] = table.groupby(PROBLEM, sort=False).ngroup()
    table = table.sort_values(["_place", "_order"], kind="stable", ignore_index=True)
    return table.drop(columns=["chosen_by", "_place", "_order"])


def _tuned_lines(
    folder: Path, rows: pd.DataFrame
) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Return the choice of each tuned line, with the final rows of its report runs.

    Parameters
    ----------
    folder : Path
        The results folder.
    rows : DataFrame
        Rows of report trials, with the labels of the plan.
    """
    import pandas as pd

    choices = read_choices(folder)
    if not choices:
        raise UsageError(f"{folder}: holds no choices; dp-erm-bench tune makes some")
    planned = final_rows(rows)
    # Without given labels, panel and line are derived from the settings of the rows.
    ends = with_beyond(label_table(rows, parameters=False).loc[planned.index])
    # A panel of an experiment may hold a problem for each point of an axis.
    lines_at = ends[["panel", "line", "epsilon"]].astype(object)
    ends = ends.assign(panel=split_names(ends, lines_at, ["panel"])["panel"])
    labels = planned[["panel", "line"]].fillna("")
    settings = planned.groupby(SETTING, dropna=False, sort=False).ngroup()
    lines: dict[tuple[Any, ...], list[tuple[dict[str, Any], pd.DataFrame]]] = {}
    for choice in choices:
        try:
            told = _choice_in_words(choice)
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"{folder}: {CHOICES}: is damaged") from None
        named = told["panel"] or told["line"]
        at = labels.eq([told["panel"], told["line"]]).all(axis=1)
        of_choice = settings[at & planned["trial"].eq(told["trial"])]
        own = ends[settings.isin(of_choice)]
        if len(own):
            told |= {key: str(own[key].iloc[0]) for key in ("panel", "line")}
            which = "" if named else choice["params"] + choice["chosen"]
            of = told["panel"], told["line"], told["epsilon"], told["algorithm"], which
            lines.setdefault(of, []).append((told, own))
    found = []
    for splits in lines.values():
        told, first = splits[0]
        why = "; ".join(one["open"] for one, _ in splits if one["open"])
        told["open"] = "; ".join(dict.fromkeys(why.split("; ")))
        told |= {"runs": len(first), "splits": len(splits)}
        found.append((told, pd.concat([own for _, own in splits])))
    return found


def best_choice(
    folder: str | Path,
    epsilon: object,
    panel: str | None = None,
    dataset: str | None = None,
    algorithm: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the best row of `tuned_choices` for an epsilon, and the spec of its trial.

    Parameters
    ----------
    folder : str or Path
        Results folder of a run that tuned.
    epsilon : float
        One of the epsilons for which the run tuned.
    panel, dataset : str, optional
        The problem to take, if there are several.
    algorithm : str, optional
        Name of the algorithm, or of a solver's file without ``.py``. None means the
        best algorithm.

    Raises
    ------
    UsageError
        If `tuned_choices` raises it, if there is no such choice, if several problems
        have one, or if the trial is missing from the plan of the folder.
    """
    found = tuned_choices(folder)
    asked = {"epsilon": real_number(epsilon), "panel": panel, "dataset": dataset}
    for key, value in {**asked, "algorithm": algorithm}.items():
        if value is not None:
            there = found[key].drop_duplicates().sort_values().tolist()
            if value not in there:
                known = ", ".join(f"{x:g}" if key == "epsilon" else x for x in there)
                given = epsilon if key == "epsilon" else value
                raise value_error(
                    key, given, f"one of those tuned in {folder}: {known}"
                )
            found = found[found[key] == value]
        if key == "dataset" and len(panels := found["panel"].unique()) > 1:
            several = found["dataset"].nunique() > 1
            ways = found["dataset"].unique() if several else panels
            raise UsageError(
                f"{folder}: holds choices for {len(panels)} problems, name one by "
                f"{'dataset' if several else 'panel'}={' or '.join(map(repr, ways))}"
            )
    # Take the best line that beats w = 0, else the first. Other baselines are ignored.
    found = found.sort_values("taken", ascending=False, kind="stable")
    row = {str(key): value for key, value in found.iloc[0].items()}
    if line := next(planned_lines(Path(folder), {row["trial"]}), None):
        return row, line["spec"]
    raise UsageError(
        f"{folder}: {PLAN} does not hold the trial {row['trial'][:12]} of {row['line']}"
    )


def _choice_in_words(choice: Row) -> dict[str, Any]:
    told: dict[str, Any] = {key: choice[key] for key in (*LABELS, "searched")}
    return {
        **told,
        "epsilon": float(choice["epsilon"]),
        "chosen": {**json.loads(choice["params"]), **json.loads(choice["chosen"])},
        "default": json.loads(choice["default"]),
        "chosen_by": choice["quantity"],
    }


def list_open_choices(rows: Sequence[Row] | None) -> list[str]:
    """Return a string for each open choice.

    A choice is open if a better setting may lie beyond the settings that were tried.
    """
    if rows is None:
        return [f"  unknown: there is no {CHOICES}"]
    lines = [
        f"  {row['panel']} / {row['line']}, epsilon = {row['epsilon']}: "
        f"{row['open']} in {row['chosen']}"
        for row in rows
        if row["open"]
    ]
    return lines or ["  none"]


def open_of(
    rows: Iterable[Row] | None,
    panels: Collection[str],
    lines: Collection[str],
    epsilon: float | None = None,
) -> str:
    """Return a string on the lines of panels whose choices are open, with the reasons.

    Parameters
    ----------
    rows : iterable of mapping or None
        Rows from `read_choices`; None if they are damaged.
    panels, lines : collection of str
        Labels of the panels and lines to include.
    epsilon : float or None
        The epsilon of the choices; None for all.
    """
    if rows is None:
        return "unknown"
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        at = epsilon is None or math.isclose(float(row["epsilon"]), epsilon)
        if row["panel"] in panels and row["line"] in lines and row["open"] and at:
            reasons.setdefault(row["line"], {}).update(
                dict.fromkeys(row["open"].split("; "))
            )
    return "; ".join(f"{line}: {', '.join(why)}" for line, why in reasons.items())
