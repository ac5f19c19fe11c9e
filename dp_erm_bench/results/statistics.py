"""Statistics over the runs of a results table: pools, bands, comparisons, who wins.

Runs that diverged count as infinitely bad, never as missing. What is drawn at random
(the bootstrap) has a fixed seed: the same table gives the same numbers.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dp_erm_bench.errors import UsageError, number
from dp_erm_bench.results.settings import (
    LABELS,
    PROBLEM,
    differing,
    final_rows,
    settings,
    text_of,
    worst_if_lost,
)

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[np.float64]


def check_alike(rows: pd.DataFrame, by: Sequence[str], who: str) -> str:
    """Return over what groups of runs are pooled; refuse settings that differ.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table.
    by : sequence of str
        Columns that tell the groups apart.
    who : str
        The function that pools, for the message.

    Returns
    -------
    str
        Such as `5 seeds` or `5 seeds, 3 dataset_seeds`.

    Raises
    ------
    UsageError
        If one group has several settings, or runs that tune beside others.
    """
    every, base = settings(rows), rows[[*by]].astype(object)
    if "phase" in rows:
        every = every.assign(phase=text_of(rows["phase"]))
    names = [str(name) for name in every if name not in by]
    if apart := differing(every, base, names):
        words = sorted({one for one in every[apart[0]].unique() if one != ""})
        some = ", ".join([*words[:4], *["..."] * (len(words) > 4)])
        raise UsageError(
            f"{who}: one curve would pool {len(words)} values of {apart[0]} ({some}); "
            "keep one of them, or name a column in `by` that tells them apart"
        )
    return pooled(rows, by)


def pooled(
    rows: pd.DataFrame,
    by: Sequence[str],
    over: Sequence[str] = ("seed", "dataset_seed"),
) -> str:
    """Return over what groups pool at most, such as `5 seeds, 3 dataset_seeds`.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table.
    by : sequence of str
        Columns that tell the groups apart; none for one group.
    over : sequence of str
        Columns to count.
    """
    names = [name for name in over if name in rows and name not in by]
    rows = rows.assign(**{"": 0})
    most = rows.groupby([*by, ""], dropna=False)[names].nunique().max()
    counts = {name: int(most[name]) for name in names}
    return ", ".join(f"{n} {k}{'s' * (n > 1)}" for k, n in counts.items() if n)


def tabled(
    rows: Mapping[Any, Mapping[str, float]], names: Sequence[str], pooled: str
) -> pd.DataFrame:
    """Return rows by their keys as a table that begins with the columns of the keys.

    Parameters
    ----------
    rows : mapping of tuple to mapping
        The other columns by key.
    names : sequence of str
        The columns of the keys.
    pooled : str
        Over what they pool, kept in the table's `attrs`.
    """
    import pandas as pd

    index = pd.MultiIndex.from_tuples(rows, names=[*names])
    table = pd.DataFrame(list(rows.values()), index=index).reset_index()
    table.attrs["pooled"] = pooled
    return table


RESAMPLES = 2000
FLOOR = 1e-9
"""The certified optimum is exact to this relative gap: no ratio looks below it."""

LIKELY = 0.95
WINS, TIES, LOSES = "wins", "ties", ""
YES, NO, TIE = "yes", "no", "tie"
NOTHING = "nothing beats w = 0"

ZERO = "w = 0"
"""The vector that needs no data: what an algorithm must beat."""

MODELS = {
    "base_rate": "base rate (not private)",
    "mean": "mean (not private)",
    "optimum": "optimum (not private)",
}
"""The models of `references` that held-out records are shown beside, and their names.

The first answers the shares of the classes in the training part, the second its mean.
"""

BASELINES = (ZERO, *MODELS.values())
ALONE = "single runs have no interval: none wins"
AT_ZERO = {"balanced_accuracy": 0.5, "auc": 0.5}
"""What w = 0, whose scores are all equal, has of these."""

COMPARED = (
    *("relative_error", "objective", "excess_risk", "population_risk"),
    *("test_objective", "test_risk", "rmse", "r2", "test_accuracy", *AT_ZERO),
)
"""The quantities of which w = 0 has a value that an algorithm must beat."""

Key = TypeVar("Key", bound=Hashable)


class Standing(NamedTuple):
    """How a line did on a problem, beside the others and w = 0.

    Attributes
    ----------
    median, low, high : float
        Over its runs, with the 95 % bootstrap interval; a single run has none: nan.
    beats_zero : str
        Whether that interval lies below the error of w = 0: `yes`, `no` where it lies
        above, `tie` around it or without an interval, empty if w = 0 has no error.
    place : str
        Of the lines that beat w = 0 (of all that have an interval, if it has no error)
        `wins` is the least median, `ties` one that the bootstrap cannot tell from it;
        else empty.
    """

    median: float
    low: float
    high: float
    beats_zero: str
    place: str


def places(errors: Mapping[Key, Array | None], zero: float) -> dict[Key, Standing]:
    """Return how the lines of one problem did.

    It is the one definition of who wins and who ties, of figures, tables and boards.

    Parameters
    ----------
    errors : mapping of line to array
        Of each run, smaller being better and infinite if it was lost; None where the
        line did not run.
    zero : float
        The error of w = 0; nan if it has none.
    """
    found: dict[Key, Standing] = {}
    draws: dict[Key, Array] = {}
    for sample, (line, own) in enumerate(errors.items()):
        if own is None:
            continue
        low = high = math.nan
        if len(own) > 1:
            # The samples are not paired: each algorithm has noise of its own.
            draws[line] = resampled_medians(own, sample)
            low, high = central(draws[line], LIKELY)
        beats = YES if high < zero else NO if low > zero else TIE
        beats = "" if math.isnan(zero) else beats
        found[line] = Standing(float(quantile(own, 0.5)), low, high, beats, LOSES)
    able = [
        line
        for line in draws
        if found[line].beats_zero in (YES, "") and math.isfinite(found[line].median)
    ]
    if able:
        best = min(able, key=lambda line: found[line].median)
        for line in able:
            near = _may_be_as_small(draws[line], draws[best])
            place = WINS if line == best else TIES if near else LOSES
            found[line] = found[line]._replace(place=place)
    return found


def _may_be_as_small(draws: Array, best: Array) -> bool:
    """Return whether a median may be as small as the best one."""
    unlike = draws != best
    gap = np.subtract(draws, best, out=np.zeros_like(draws), where=unlike)
    return central(gap, LIKELY)[0] <= 0.0


def medians_of(frame: pd.DataFrame) -> dict[str, float]:
    """Return the median of each column; nan where all of it is missing.

    Older versions of pandas warn of such a column.
    """
    return {str(name): float(one.dropna().median()) for name, one in frame.items()}


def baselines(rows: pd.DataFrame, y: str) -> pd.DataFrame:
    """Return what needs no private training, for each run: columns of `BASELINES`.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table, the first checkpoint of each run among them.
    y : str
        The column that is compared.

    Returns
    -------
    DataFrame
        On the index of `rows`, nan where there is none: of w = 0 the quantity at the
        first checkpoint, for accuracies the share of the larger class; of the models
        what the held-out records say. None is private but w = 0.
    """
    import pandas as pd

    found = pd.DataFrame(math.nan, index=rows.index, columns=[*BASELINES])
    if y not in COMPARED:
        return found
    runs = rows.groupby([*LABELS, "phase", "trial"], sort=False, dropna=False).ngroup()
    starts = rows[y].astype(float).where(rows["iteration"].eq(0))
    found[ZERO] = starts.groupby(runs).transform("max")
    if y == "test_accuracy":
        found[ZERO] = found[ZERO].where(found[ZERO] >= 0.5, 1.0 - found[ZERO])
    elif y in AT_ZERO:
        # Some are measured at the last checkpoint alone.
        judged = rows[y].notna().groupby(runs).transform("any")
        found[ZERO] = found[ZERO].mask(judged, AT_ZERO[y])
    models = {text: models_of(text) for text in rows["references"].dropna().unique()}
    for name, title in MODELS.items():
        values = {text: number(of.get(name, {}).get(y)) for text, of in models.items()}
        found[title] = rows["references"].map(values).astype(float)
    return found


def models_of(text: Any) -> dict[str, dict[str, Any]]:
    """Return the measures of the models that a table names, whatever it says."""
    with contextlib.suppress(ValueError, RecursionError):
        models = json.loads(str(text))
        if isinstance(models, dict):
            return {k: own for k, own in models.items() if isinstance(own, dict)}
    return {}


def bands(
    table: pd.DataFrame,
    x: str = "passes",
    y: str = "relative_error",
    by: Sequence[str] = ("line",),
) -> pd.DataFrame:
    """Return median and bands over runs at each value of a column.

    Parameters
    ----------
    table : DataFrame
        Rows of the tidy table; `final_rows` of it where `x` is not along a run.
    x, y : str
        Columns: where, and of what.
    by : sequence of str
        Columns that tell the curves apart.

    Returns
    -------
    DataFrame
        One row per curve and `x`: `median`; `low`, `high` (10 and 90 % quantiles);
        `min`, `max`; `ci_low`, `ci_high` (95 % bootstrap interval of the median, nan
        of a single run); and `n`, the number of runs. Its `attrs["pooled"]` says over
        what: `5 seeds`.

    Raises
    ------
    UsageError
        If there is no value of `y`, or a curve would pool settings that differ.
    """
    rows = table.assign(**{y: worst_if_lost(table, y)})
    rows = rows[rows[y].notna()]
    if rows.empty:
        raise UsageError(f"bands: the table has no value of {y}")
    runs = check_alike(rows, [*by, x], "bands")
    groups = rows.groupby([*by, x], dropna=False)[y]
    band_of = {key: _band(group.to_numpy(float)) for key, group in groups}
    return tabled(band_of, [*by, x], runs)


def paired(
    table: pd.DataFrame,
    first: str,
    second: str,
    *,
    column: str = "line",
    y: str = "relative_error",
    by: Sequence[str] = ("panel", "epsilon"),
    measure: str = "ratio",
) -> pd.DataFrame:
    """Compare the final values of two lines, run by run on the same data and seed.

    Parameters
    ----------
    table : DataFrame
        The tidy table; each line has one setting, as report runs have.
    first, second, column : str
        Names of the lines, and the column of these.
    y : str
        The compared column; smaller is better.
    by : sequence of str
        One comparison per combination of these columns.
    measure : {'ratio', 'difference'}
        first / second, values below `FLOOR` counting as `FLOOR`; or first - second.

    Returns
    -------
    DataFrame
        The columns of `by`; `median` over pairs with its 95 % bootstrap interval
        `ci_low`, `ci_high`; `wins`, the share with `first` smaller; `pairs`.
        `attrs["pooled"]` says over what.

    Raises
    ------
    UsageError
        If the two share no seed, or one has several runs for a seed or other settings.
    """
    import pandas as pd

    if measure not in ("ratio", "difference"):
        raise UsageError(f"measure={measure}: must be ratio or difference")
    keys = [*by, "dataset", "dataset_seed", "seed"]
    sides = [_finals_of(table, column, name, keys, y) for name in (first, second)]
    both = pd.concat(sides, axis=1, join="inner").dropna()
    if both.empty:
        raise UsageError(f"paired: {first} and {second} share no seed with a {y}")
    groups = both.groupby([*by], dropna=False)
    compared = {key: _comparison(pairs, measure) for key, pairs in groups}
    over = ("seed", "dataset_seed", "dataset")
    return tabled(compared, by, pooled(both.index.to_frame(False), by, over))


def _comparison(pairs: pd.DataFrame, measure: str) -> dict[str, float]:
    """Compare pairs of values; runs that are equally lost are equal."""
    first, second = pairs.to_numpy(float).T
    wins = float((first < second).mean())
    change: np.ufunc = np.subtract
    if measure == "ratio":
        first, second = np.maximum(first, FLOOR), np.maximum(second, FLOOR)
        change = np.divide
    out = np.full_like(first, float(measure == "ratio"))
    band = _band(change(first, second, out=out, where=first != second))
    interval = {name: band[name] for name in ("median", "ci_low", "ci_high")}
    return {**interval, "wins": wins, "pairs": len(pairs)}


def _finals_of(
    table: pd.DataFrame, column: str, name: str, keys: Sequence[str], y: str
) -> pd.Series[float]:
    """Return the final values of one line, one per pair's name."""
    import pandas as pd

    rows = final_rows(table[table[column] == name])
    if rows.empty:
        raise UsageError(f"paired: no run has {column}={name}")
    index = pd.MultiIndex.from_frame(rows[[*keys]])
    if index.has_duplicates:
        seed = index[index.duplicated()][0][-1]
        raise UsageError(
            f"paired: {name} has several runs with seed={seed}: keep the report runs "
            "of one setting, or tell them apart in `by`"
        )
    data = [one for one in PROBLEM if one in rows and one != "dataset_seed"]
    by = [one for one in keys if "seed" not in one and one not in data]
    check_alike(rows, [column, *by, *data], f"paired: {name}")
    return worst_if_lost(rows, y).set_axis(index)


def _band(values: Array) -> dict[str, float]:
    """Return the columns of `bands` at one place; of a single value no interval."""
    levels = {"median": 0.5, "low": 0.1, "high": 0.9, "min": 0.0, "max": 1.0}
    band = {name: float(quantile(values, q)) for name, q in levels.items()}
    interval = central(resampled_medians(values), 0.95)
    low, high = interval if len(values) > 1 else (math.nan, math.nan)
    return {**band, "ci_low": low, "ci_high": high, "n": len(values)}


def relative_change(measure: str, a: Array, b: Array) -> Array:
    """Return (b - a) / abs(a); 0 of equal values, whatever they are.

    Parameters
    ----------
    measure : str
        Relative errors below `FLOOR` count as `FLOOR`.
    a, b : array
        Values of the two sides; infinite where a run is lost.
    """
    if measure == "relative_error":
        a, b = np.maximum(a, FLOOR), np.maximum(b, FLOOR)
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(np.isposinf(a), -1.0, (b - a) / np.abs(a))
        change = np.where(np.isneginf(a), np.inf, change)
    return np.where(a == b, 0.0, change)


def central(draws: Array, share: float) -> tuple[float, float]:
    """Return the ends of the interval that holds the middle share of some draws.

    Parameters
    ----------
    draws : array
        Numbers, which may be infinite.
    share : float
        Between 0 and 1.
    """
    tail = (1.0 - share) / 2
    return float(quantile(draws, tail)), float(quantile(draws, 1.0 - tail))


def resampled_medians(values: Array, sample: int = 0) -> Array:
    """Return medians of bootstrap samples, always the same ones.

    Of n draws from n sorted values only the middle is drawn: its rank follows a Beta
    law, so that many values cost no more than few.

    Parameters
    ----------
    values : array
        Numbers, at least one; they may be infinite.
    sample : int
        Names the draws: samples that are not paired must not share them.
    """
    ordered, n = np.sort(values), len(values)
    rng, middle = np.random.default_rng(sample), (len(values) + 1) // 2
    lower = upper = rng.beta(middle, n - middle + 1, RESAMPLES)
    if n % 2 == 0:
        upper = lower + (1.0 - lower) * rng.beta(1, n - middle, RESAMPLES)
    below, above = (
        ordered[np.minimum((n * rank).astype(int), n - 1)] for rank in (lower, upper)
    )
    return _between(below, above, 0.5)


def quantile(values: npt.ArrayLike, q: float) -> Array:
    """Return a quantile over runs: the centre and the bands of every figure and table.

    It is interpolated between the two nearest values: the median (q = 0.5) of an even
    number of runs is the mean of the middle two. numpy's makes nan of two infinities.

    Parameters
    ----------
    values : array_like
        Runs along the first axis, at least one; smaller is better. They may be
        infinite; not a number is a run that was lost, and counts as infinite.
    q : float
        From 0, the smallest, to 1, the largest.
    """
    ordered = np.sort(np.asarray(values, dtype=float), axis=0)
    ordered[np.isnan(ordered)] = math.inf
    place = q * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return _between(np.asarray(below), np.asarray(above), place % 1.0)


def _between(below: Array, above: Array, share: float) -> Array:
    """Interpolate; of two infinities of opposite sign the worse one counts."""
    finite = np.isfinite(below) & np.isfinite(above)
    gap = np.subtract(above, below, out=np.zeros_like(above), where=finite)
    end = np.where(np.isposinf(above), above, below) if share else below
    return np.asarray(np.where(finite, below + gap * share, end))
