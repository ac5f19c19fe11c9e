"""Settings in a results table as strings, labels of lines, and the final rows.

A *line* consists of the runs with one label, usually those of one algorithm. The
*owner* of a key is the algorithm or the dataset that has the key as a parameter.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.datasets.prepare import BY_BOUNDS, SCALE
from dp_erm_bench.datasets.spec import usual_value
from dp_erm_bench.errors import typed_text
from dp_erm_bench.plugins.passed import UNCHECKED
from dp_erm_bench.registry import AUTO, OBJECTIVE, check_choice
from dp_erm_bench.results.columns import COLUMNS, worst_value

if TYPE_CHECKING:
    import pandas as pd

PANEL, LINE = "panel", "line"
ALGORITHM, DATASET = "algorithm", "dataset"
STANDARDISE, CONTENT = "standardise", "content"
REST = (
    *("calibration", "loss", "penalty", "strength", "constraint"),
    *("epsilon", "delta", "adjacency"),
)
AXES = (ALGORITHM, DATASET, "epsilon")
"""Columns that are not listed as keys in labels: they begin a label, or are axes."""

RAN = ("ok", "diverged")
"""Statuses of trials that have a result."""

CHOSEN = "report"
"""The phase whose parameters were chosen by tuning; labels leave them out."""

HOW_IT_WENT = r" \(.*\)$"
"""Pattern for a note in brackets at the end of a calibration's label."""

DIGITS = 8
"""Number of digits of a digest that distinguishes solvers of the same name."""

NO_NUMBER = ("usual", "usual_standardised", "usual_regression", "public")
"""Keys of a dataset that change no results, or that have their own columns."""

MADE = re.compile(r"(?P<algorithm>[^,]+)(, [\w.]+=.*)?")
"""Pattern for a label that `label_table` made: an algorithm, and keys that vary."""


def parameters_of_rule(rule: str) -> list[str]:
    """Return the names of the parameters set by a rule, from a string of `rule`."""
    return rule.partition(": ")[2].split()


def settings_in_words(rows: pd.DataFrame) -> pd.DataFrame:
    """Return all settings of rows, except seeds, as columns of strings.

    Parameters
    ----------
    rows : DataFrame
        Rows of the results table; columns may be missing.

    Returns
    -------
    DataFrame
        The index is that of the rows. The columns are the algorithm's parameters as
        `NAME.PARAMETER`, the dataset's options as `DATASET.KEY`, and the parameters of
        loss, penalty and constraint as `PART.KEY`. Further columns are algorithm,
        dataset, `standardise`, those in `REST`, and `solver`. A cell is empty if its
        row does not have the key. It is also empty for the tuned parameters of report
        rows. It is `auto` if a rule gave the parameter. If only some rows of a dataset
        name a key, the other rows get its usual value.
    """
    import pandas as pd

    plain = (ALGORITHM, DATASET, STANDARDISE, *REST)
    parts = ("params", "dataset_options", CONTENT, "objective_options", "solver")
    absent = [name for name in (*plain, "solver") if name not in rows]
    rows = rows.reindex(columns=[*plain, *parts, "rule", "phase"])
    params = _unpack_column(rows, ALGORITHM, "params")
    for rule in text_of(rows["rule"]).unique():
        algorithm = rule.partition(": ")[0].rpartition("-")[0]
        own = params.columns.isin(
            [f"{algorithm}.{key}" for key in parameters_of_rule(rule)]
        )
        params.loc[rows["rule"].eq(rule).to_numpy(), own] = AUTO
    params[rows["phase"].eq(CHOSEN).to_numpy()] = ""
    # The table names an option only if it differs from the dataset's yaml.
    usual = functools.cache(usual_value)
    options = _unpack_column(name_files(rows), DATASET, "dataset_options", usual)
    silent = [one for one in options if short_of(one) in NO_NUMBER]
    texts = pd.DataFrame({name: text_of(rows[name]) for name in plain})
    asked = texts["calibration"].str.replace(HOW_IT_WENT, "", regex=True)
    posed = _unpack_column(rows, "", "objective_options")
    # The digest of a user's loss is last. It is used only if other keys are equal.
    posed = posed[sorted(posed, key=lambda one: str(one).endswith(".content"))]
    posed = posed.assign(solver=text_of(rows["solver"]).str[:DIGITS])
    told = [params, options.drop(columns=silent), texts.assign(calibration=asked)]
    return pd.concat([*told, posed], axis=1).drop(columns=absent)


def name_files(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in which `dataset_options` names data files by short, distinct paths.

    Files of equal content count as one file, which is named by its first path. Only the
    file name is used, or more of the path if another file has the same name. Several
    contents of one path are numbered.
    """
    texts = rows.reindex(columns=[DATASET, "dataset_options", CONTENT])
    texts = texts.astype(object).fillna("")
    # Each call reads a yaml, and there may be 10^5 options.
    usual = functools.cache(usual_value)
    files: dict[Any, Any] = {}
    paths: dict[Any, PurePath] = {}
    for key in texts.drop_duplicates().itertuples(index=False, name=None):
        path = mapping_of(key[1]).get("path") or usual(key[0], "path")
        if path:
            files[key] = key[2] or path
            paths.setdefault(files[key], PurePath(str(path)))
    spelled = {
        key: json.dumps(
            mapping_of(key[1]) | {"path": _name_of(file, paths)}, sort_keys=True
        )
        for key, file in files.items()
    }
    keys = texts.itertuples(index=False, name=None)
    return rows.assign(dataset_options=[spelled.get(key, key[1]) for key in keys])


def _name_of(file: Any, paths: Mapping[Any, PurePath]) -> str:
    """Return the shortest end of a file's path that no other path shares."""
    own = paths[file]
    alike = [other for other, path in paths.items() if path == own]
    number = f" ({alike.index(file) + 1})" if len(alike) > 1 else ""
    ends = (own.parts[-size:] for size in range(1, len(own.parts)))
    taken = [path.parts for path in paths.values() if path != own]
    free = (end for end in ends if all(one[-len(end) :] != end for one in taken))
    return str(PurePath(*next(free, own.parts))) + number


INTERNAL = (
    *("trial", "experiment", "params", "dataset_options", "solver", "exempt", "doubt"),
    *("content", "objective_options"),
    *("references", "at_bound", "message", "run", "batch_size"),
    *("phase", "tuned", "checked", "rule", "by_default", "status"),
)
"""Columns that may be plotted on request, but are not suggested in messages."""

GIVEN = (
    *("n", "p", "strength", "epsilon", "delta", "seed", "dataset_seed", "iteration"),
)
"""Columns of numbers that are given or counted; they may be axes, but not measures."""


GROUPS = {
    "strength": "penalty",
    STANDARDISE: DATASET,
    **dict.fromkeys(("epsilon", "delta", "adjacency"), "budget"),
}
"""Groups of columns; on the command line, a group precedes a column's name."""


def columns_of_key(every: pd.DataFrame, name: str, under: bool = False) -> list[str]:
    """Return the columns of `settings_in_words` that a key names.

    Parameters
    ----------
    every : DataFrame
        Columns from `settings_in_words`.
    name : str
        The key alone, the key after its owner, or the name on the command line.
    under : bool
        Whether a group, such as `dataset` or an algorithm, names all of its keys.
    """
    owners, found = {*every[DATASET]}, []
    for column in map(str, every):
        owner = column.rpartition(".")[0]
        typed = f"{GROUPS[column]}.{column}" if column in GROUPS else column
        if owner in owners:
            typed = f"{DATASET}.{short_of(column)}"
        elif owner and owner not in OBJECTIVE:
            typed = f"{ALGORITHM}.{column}"
        below = under and typed.startswith(f"{name}.")
        if below or name in (column, short_of(column), typed):
            found.append(column)
    return found


def short_of(column: object) -> str:
    """Return the name of a column of `settings_in_words` without its prefix."""
    return str(column).rpartition(".")[2]


def first_words(every: pd.DataFrame) -> pd.Series[str]:
    """Return the first non-empty string of each row; empty if there is none."""
    return every.replace("", None).bfill(axis=1).iloc[:, 0].fillna("")


def match_values(words: pd.Series[str], values: Sequence[str]) -> pd.Series[bool]:
    """Return whether each text equals one of the values; numbers may have any form."""
    import pandas as pd

    numbers = pd.to_numeric(pd.Series([*values]), errors="coerce").dropna()
    return words.isin([*values, *numbers.map("{:.6g}".format)])


def short_key(name: str) -> str:
    """Return the name that the table uses for a key such as `budget.epsilon`."""
    return name.removeprefix("budget.").removeprefix("penalty.")


def column_of(table: pd.DataFrame, name: str, key: str) -> pd.Series[Any]:
    """Return a column of the table, or a parameter or dataset key of its rows.

    Parameters
    ----------
    table : DataFrame
        The results table.
    name : str
        A column, as in the table or on the command line; or a key, by any name that
        `columns_of_key` accepts.
    key : str
        The option that gave the name, for the message.

    Raises
    ------
    UsageError
        For an unknown name. The message lists the names with several values.
    """
    import pandas as pd

    if (short := short_key(name)) in table:
        return table[short]
    every = settings_in_words(table)
    parts = columns_of_key(every, name)
    if not parts:
        varied = every.columns[every.replace("", None).nunique() > 1]
        own = sorted({*map(short_of, varied)} - {*table})
        known = {*table} - {*INTERNAL}
        told = [one for one in COLUMNS if one in known and table[one].nunique() > 1]
        check_choice(key, name, [*told, *own])
    words = first_words(every[parts])
    numbers = pd.to_numeric(words, errors="coerce")
    return numbers if numbers.notna().equals(words.ne("")) else words


def _unpack_column(
    rows: pd.DataFrame,
    owner: str,
    column: str,
    usual: Callable[[str, str], Any] = lambda _, __: "",
) -> pd.DataFrame:
    """Return the keys of a JSON column as columns of strings, named `OWNER.KEY`.

    Without an owner, the columns are named by the key alone. ``usual`` returns an
    owner's value of a key for the rows that do not have the key.
    """
    import pandas as pd

    owners = text_of(rows[owner]) if owner else [""] * len(rows)
    pairs = [*zip(owners, text_of(rows[column]), strict=True)]
    codes, unique = pd.Index(pairs, tupleize_cols=False).factorize()
    found = [(str(name), mapping_of(str(text))) for name, text in unique]
    keys = dict.fromkeys((name, key) for name, one in found for key in one)
    # The seed of the data is not a setting; it has its own column.
    columns = {
        f"{name}.{key}".removeprefix("."): _values_in_words(
            [
                "" if own != name else one[key] if key in one else usual(name, key)
                for own, one in found
            ]
        )
        for name, key in keys
        if key != "seed"
    }
    table = pd.DataFrame(columns, index=range(len(found)), dtype=object)
    return table.iloc[codes].set_axis(rows.index)


def mapping_of(text: str) -> dict[str, Any]:
    """Return the mapping in a string of JSON; empty if it is not a mapping."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _values_in_words(values: Sequence[Any]) -> list[str]:
    """Return values as strings; numbers get six digits, or all if two look equal."""
    numbers = {one for one in values if isinstance(one, float)}
    alike = Counter(f"{one:.6g}" for one in numbers)

    @functools.lru_cache(maxsize=None, typed=True)
    def word(one: Any) -> str:
        short = f"{one:.6g}" if isinstance(one, float) else ""
        return short if alike[short] == 1 else typed_text(one)

    # Most of 10^5 values are equal; lists and mappings cannot be cached.
    return [typed_text(v) if isinstance(v, list | dict) else word(v) for v in values]


def text_of(column: pd.Series[Any]) -> pd.Series[str]:
    """Return a column as strings; missing values become empty."""
    import pandas as pd

    codes, unique = pd.factorize(column)
    words = np.array([*_values_in_words([*unique]), ""], dtype=object)
    return pd.Series(words[codes], column.index, dtype=object)


def differing_columns(
    rows: pd.DataFrame, base: pd.DataFrame, names: Sequence[str] = ()
) -> list[str]:
    """Return the columns that differ between rows with equal values in `base`.

    A column that does not separate more rows than the columns before it is left out,
    such as 1/n after n.

    Parameters
    ----------
    rows : DataFrame
        Columns of strings from `settings_in_words`; an empty cell equals any other.
    base : DataFrame
        Columns that already separate the rows, on the same index.
    names : sequence of str
        Columns to examine, in this order; all by default.
    """
    groups = np.zeros(len(rows), dtype=np.int64)
    for name in base:
        groups = _split_groups(groups, base[name])
    kept = []
    for name in names or rows.columns:
        finer, there = _split_groups(groups, rows[name]), rows[name].to_numpy() != ""
        if len(np.unique(finer[there])) > len(np.unique(groups[there])):
            kept.append(str(name))
            groups = finer
    return kept


def _split_groups(groups: Any, column: pd.Series[Any]) -> Any:
    """Return the number of each row's group, after groups are split by a column."""
    codes = column.factorize(use_na_sentinel=False)[0]
    joint = groups * (int(codes.max(initial=0)) + 1) + codes
    return np.unique(joint, return_inverse=True)[1]


def add_differing_keys(
    start: pd.Series[Any], rows: pd.DataFrame, names: Sequence[str]
) -> pd.Series[str]:
    """Return labels followed by `, key=value` for each column with a value.

    Parameters
    ----------
    start : Series
        Beginnings of the labels.
    rows : DataFrame
        Columns from `settings_in_words`, on the same index.
    names : sequence of str
        Columns of `rows` to append.
    """
    text = text_of(start)
    for name in names:
        column = rows[name]
        text = text + (f", {short_of(name)}=" + column).where(column != "", "")
    return text


def label_table(
    table: pd.DataFrame, again: bool = False, parameters: bool = True, axis: str = ""
) -> pd.DataFrame:
    """Return a table in which rows without labels get a panel and a line.

    The panel is the dataset and the line is the algorithm. Each is followed by the keys
    that vary among its rows, as `key=value`, except epsilon and seeds, which are axes.

    Parameters
    ----------
    table : DataFrame
        The results table.
    again : bool
        Whether to replace labels that this function made from a larger table.
    parameters : bool
        Whether lines are separated by the algorithm's parameters. If not, a line
        contains several settings.
    axis : str
        A column or key that is drawn along an axis. Labels leave out this key and the
        keys that vary with it.
    """
    panel, line = table[PANEL].fillna(""), table[LINE].fillna("")
    bare = panel.eq("") & line.eq("")
    if again:
        parts = line.str.extract(f"^{MADE.pattern}$")[ALGORITHM]
        bare |= table["phase"].eq("sweep") & parts.eq(table[ALGORITHM])
    if not bare.any():
        return table
    rows = table[bare].drop_duplicates("trial").set_index("trial")
    every = settings_in_words(rows)
    names = [str(name) for name in every]
    judged = rows["status"].isin(RAN) if rows["status"].isin(RAN).any() else slice(None)
    data = [name for name in names if is_of_data(name, rows)]
    own = [name for name in names if parameters or name in REST]
    lines = [name for name in own if name not in (*data, *AXES)]
    on_axis = columns_of_key(every, axis)
    base = every[on_axis].assign(dataset=rows[DATASET])
    if axis in rows:
        base[axis] = rows[axis]
    panels = add_differing_keys(
        rows[DATASET], every, differing_columns(every[judged], base[judged], data)
    )
    base = base.assign(algorithm=rows[ALGORITHM], epsilon=rows["epsilon"], panel=panels)
    found = add_differing_keys(
        rows[ALGORITHM], every, differing_columns(every[judged], base[judged], lines)
    )
    trials = table.loc[bare, "trial"]
    return table.assign(
        panel=panel.mask(bare, trials.map(panels)),
        line=line.mask(bare, trials.map(found)),
    )


def split_names(
    rows: pd.DataFrame, base: pd.DataFrame, names: Sequence[str] = (PANEL, LINE)
) -> pd.DataFrame:
    """Return `base` with labels extended by the keys that differ within them.

    Differing keys of the data are added to the panel, all others to the line.

    Parameters
    ----------
    rows : DataFrame
        Rows of the results table.
    base : DataFrame
        Columns that separate the rows, on the same index; they include the labels.
    names : sequence of {'panel', 'line'}
        The labels in ``base`` to extend.
    """
    every, base = settings_in_words(rows), base.copy()
    for name in names:
        keys = [one for one in map(str, every) if name == LINE or is_of_data(one, rows)]
        base[name] = add_differing_keys(
            base[name], every, differing_columns(every, base, keys)
        )
    return base


def is_of_data(name: str, rows: pd.DataFrame) -> bool:
    """Return whether a column of `settings_in_words` belongs to the data."""
    owner = name.rpartition(".")[0]
    return name == STANDARDISE or (owner != "" and owner in rows[DATASET].unique())


LABELS = ["experiment", "panel", "line", "algorithm"]


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last checkpoint of every run, in the table's order.

    Parameters
    ----------
    table : DataFrame
        The results table, with one row per checkpoint.
    """
    return table.drop_duplicates([*LABELS, "phase", "trial"], keep="last")


def parameter_columns(table: pd.DataFrame, column: str = "params") -> pd.DataFrame:
    """Return the keys of a column of JSON as columns, on the index of the table.

    Parameters
    ----------
    table : DataFrame
        The results table.
    column : str
        The column of JSON, such as `params`, the parameters of the algorithms.
    """
    import pandas as pd

    codes, texts = pd.factorize(table[column])
    keys = pd.DataFrame([mapping_of(text) for text in texts])
    return keys.reindex(codes).set_axis(table.index)


def worst_if_lost(rows: pd.DataFrame, y: str) -> pd.Series[float]:
    """Return a column with its worst value for runs that diverged or failed.

    Parameters
    ----------
    rows : DataFrame
        Rows of the results table.
    y : str
        The column. `worst_value` returns its worst value, which is inf if lower is
        better.
    """
    lost = ~rows["status"].isin(["ok", "skipped"]) & rows[y].isna()
    return rows[y].astype(float).mask(lost, worst_value(y))


HELD = ("bounds", SCALE, "clip_to_bounds", "standardise")
"""Keys of a dataset that change its records, and hence the optimum on them."""

ON_OPTIMUM = ("objective", "relative_error")
"""Measures that are computed on the records after clipping to bounds."""

UNLIKE_BOUNDS = (
    "under different bounds or scales the records, the optimum and the relative "
    "error differ and cannot be compared"
)


def under_bounds(rows: pd.DataFrame) -> str:
    """Return a warning on panels whose trials have different bounds; empty if none.

    Parameters
    ----------
    rows : DataFrame
        Rows of the results table. Each panel is ranked by itself.
    """
    kinds = [PANEL, DATASET, "dataset_options"]
    trials = rows.reindex(columns=kinds).drop_duplicates()
    held = _unpack_column(trials, "", "dataset_options")
    held = held.reindex(columns=[*HELD], fill_value="")
    # A generator of data may have another key called `scale`.
    held[SCALE] = held[SCALE].where(held[SCALE].eq(BY_BOUNDS), "")
    counts = held.groupby([trials[PANEL], trials[DATASET]], sort=False).nunique()
    counts = counts[(counts > 1).any(axis=1)]
    if counts.empty:
        return ""
    listed = ", ".join(dict.fromkeys(str(index[-1]) for index in counts.index))
    keys = ", ".join(key for key in HELD if (counts[key] > 1).any())
    return f"Trials of {listed} differ in {keys}: {UNLIKE_BOUNDS}."


def unchecked_in(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the algorithms in rows that have not passed `check`, sorted.

    Algorithms that passed with a doubt are included, with the doubt after the name.
    """
    rows = rows.reindex(columns=["algorithm", "checked", "doubt"])
    rows = rows[rows["checked"].eq(False)]
    names = rows["algorithm"].astype(str)
    doubts = rows["doubt"].astype(object).fillna(UNCHECKED).astype(str)
    names = names.where(doubts.eq(UNCHECKED), names + " (" + doubts + ")")
    return tuple(sorted(names.unique()))
