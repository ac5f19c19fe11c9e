"""Settings in a results table: what each line chose, and the runs that judge it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from dp_erm_bench.datasets.base import Uncharged
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.passed import UNRECOUNTED
from dp_erm_bench.results.labels import HOW_IT_WENT, labelled

if TYPE_CHECKING:
    import pandas as pd

LABELS = ["experiment", "panel", "line", "algorithm"]
PROBLEM = [
    *("dataset", "dataset_options", "dataset_seed", "standardise", "n", "p"),
    *("loss", "penalty", "strength", "constraint"),
]
BUDGET = ["epsilon", "delta", "adjacency", "calibration"]
LINE = [*LABELS, *PROBLEM, *BUDGET]
"""Columns that tell lines apart: runs equal in them differ in setting and seed only."""

TUNING = Uncharged.TUNING.value


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last checkpoint of every run, in the table's order.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    """
    return table.drop_duplicates([*LABELS, "phase", "trial"], keep="last")


def parameters(table: pd.DataFrame) -> pd.DataFrame:
    """Return the algorithms' parameters as columns, on the index of the table."""
    import pandas as pd

    rows = [json.loads(text) for text in table["params"]]
    return pd.DataFrame(rows, index=table.index)


def best_settings(table: pd.DataFrame) -> pd.DataFrame:
    """Return the setting of each line with the smallest mean final objective.

    Report runs are left out: they judge the choice. Where some
    settings were refined on more seeds, only those compete.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a sweep or of an experiment that tunes.

    Returns
    -------
    DataFrame
        One row per line: the columns of `LINE`, `params`, `mean_objective` (inf if a
        seed diverged), `seeds` behind that mean, `settings` tried, and `runner_up`,
        the mean objective of the second best (nan if there is none).
    """
    rows = _as_asked(final_rows(table))
    rows = rows[(rows["phase"] != "report") & (rows["status"] != "skipped")]
    if rows.empty:
        raise UsageError("best_settings: the table has no runs to choose from")
    scores = rows.assign(score=worst_if_lost(rows, "objective"))
    settings = scores.groupby([*LINE, "params"], dropna=False, sort=False)["score"]
    means = settings.agg(mean_objective="mean", seeds="size").reset_index()
    lines = means.groupby(LINE, dropna=False, sort=False)
    means["settings"] = lines["params"].transform("size")
    means = means[means["seeds"] == lines["seeds"].transform("max")]
    ranked = means.sort_values("mean_objective", kind="stable")
    again = ranked.groupby(LINE, dropna=False, sort=False)["mean_objective"]
    ranked["runner_up"] = again.shift(-1)
    return ranked.drop_duplicates(LINE).sort_index().reset_index(drop=True)


def held_out(table: pd.DataFrame, tuning_seeds: Collection[int]) -> pd.DataFrame:
    """Return a sweep in the form of a tuned experiment.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a sweep over settings and seeds.
    tuning_seeds : collection of int
        Runs with these seeds choose the setting of each line.

    Returns
    -------
    DataFrame
        The runs with the tuning seeds as phase `tune`; of the others those of the
        chosen settings, as phase `report`, with `tuning` among what is `uncharged`.
    """
    import pandas as pd

    table = labelled(table, again=True, parameters=False)
    chooses = table["seed"].isin(tuning_seeds)
    tune, rest = table[chooses].assign(phase="tune"), table[~chooses]
    names = [*LINE, "params"]
    chosen = pd.MultiIndex.from_frame(best_settings(tune)[names])
    kept = pd.MultiIndex.from_frame(_as_asked(rest)[names]).isin(chosen)
    report = rest[kept].assign(phase="report", tuned=True)
    others = report["uncharged"].str.replace(rf"(^|,){TUNING}$", "", regex=True)
    report["uncharged"] = (others + f",{TUNING}").str.removeprefix(",")
    return pd.concat([tune, report])


def worst_if_lost(rows: pd.DataFrame, y: str) -> pd.Series[float]:
    """Return a column with inf where a run diverged, failed or was stopped.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table.
    y : str
        A column of which smaller is better.
    """
    lost = ~rows["status"].isin(["ok", "skipped"]) & rows[y].isna()
    return rows[y].astype(float).mask(lost, np.inf)


def _as_asked(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows as lines that settings compete in.

    A sweep's are called as without its parameters, a calibration as it was asked for,
    not as it turned out.
    """
    rows = labelled(rows, again=True, parameters=False)
    return rows.assign(
        calibration=rows["calibration"].str.replace(HOW_IT_WENT, "", regex=True)
    )


def unchecked_in(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the algorithms in rows that have not passed `check`, sorted.

    One whose release is not recounted has that behind its name.
    """
    if "checked" not in rows:
        return ()
    lacking = rows[rows["checked"].eq(False)]
    names = lacking["algorithm"].astype(str)
    if "doubt" in lacking:
        half = lacking["doubt"].eq(UNRECOUNTED)
        names = names.mask(half, names + f" ({UNRECOUNTED})")
    return tuple(sorted(names.unique()))
