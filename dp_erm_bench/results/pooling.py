"""What statistics pool: runs of one setting with several seeds, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.labels import differing, settings, text_of

if TYPE_CHECKING:
    import pandas as pd


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
