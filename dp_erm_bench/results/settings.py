"""Settings of a results table: their names, what lines chose, the runs that judge."""

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
"""What no name of a line or panel says: they begin with it, or it is an axis."""

RAN = ("ok", "diverged")
"""Statuses of trials that have a result."""

CHOSEN = "report"
"""The phase whose parameters were chosen by tuning: they name no line."""

HOW_IT_WENT = r" \(.*\)$"
"""The note of a calibration's label: that it is not proved, or not recounted."""

DIGITS = 8
"""Of a digest, where one tells solvers of one name apart."""

NO_NUMBER = ("usual", "usual_standardised", "usual_regression", "public")
"""Keys of a dataset that decide no number: declarations, or what has own columns."""

MADE = re.compile(r"(?P<algorithm>[^,]+)(, [\w.]+=.*)?")
"""Lines that `label_table` made, beside others that are called alike."""


def parameters_of_rule(rule: str) -> list[str]:
    """Return the parameters that a rule gave, of the text of column `rule`."""
    return rule.partition(": ")[2].split()


def settings_in_words(rows: pd.DataFrame) -> pd.DataFrame:
    """Return all that names a setting but its seeds, as text.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table, with columns missing or not.

    Returns
    -------
    DataFrame
        On the index of the rows: the algorithm's parameters as `NAME.PARAMETER`, the
        dataset's options as `DATASET.KEY`; algorithm, dataset, `standardise`, `REST`;
        the parameters of loss, penalty and constraint as `PART.KEY`, and `solver`.
        Empty where a row has no such key, and for the parameters of report rows, which
        were tuned; `auto` where a rule gave a parameter, whatever its number. A key
        that only some rows of a dataset name has its usual value in the others.
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
    # In the table an option is named only where it differs from the dataset's yaml.
    usual = functools.cache(usual_value)
    options = _unpack_column(name_files(rows), DATASET, "dataset_options", usual)
    silent = [one for one in options if short_of(one) in NO_NUMBER]
    texts = pd.DataFrame({name: text_of(rows[name]) for name in plain})
    asked = texts["calibration"].str.replace(HOW_IT_WENT, "", regex=True)
    posed = _unpack_column(rows, "", "objective_options")
    # By the digest of a loss of one's own only what nothing else tells apart.
    posed = posed[sorted(posed, key=lambda one: str(one).endswith(".content"))]
    posed = posed.assign(solver=text_of(rows["solver"]).str[:DIGITS])
    told = [params, options.drop(columns=silent), texts.assign(calibration=asked)]
    return pd.concat([*told, posed], axis=1).drop(columns=absent)


def name_files(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose `dataset_options` call a file by what tells it from others.

    Files of one content are one, called by the name of the first path, or by all of it
    where another file has that name. Several contents of one path are numbered.
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
    """Return the last parts of a file's path that no other path ends with."""
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
"""Columns that may be asked for, but that nobody is told to plot."""

GIVEN = (
    *("n", "p", "strength", "epsilon", "delta", "seed", "dataset_seed", "iteration"),
)
"""Numbers that were asked for, or counted: axes, but no measures."""


GROUPS = {
    "strength": "penalty",
    STANDARDISE: DATASET,
    **dict.fromkeys(("epsilon", "delta", "adjacency"), "budget"),
}
"""Under what one types columns of the table that are parts of something."""


def columns_of_key(every: pd.DataFrame, name: str, under: bool = False) -> list[str]:
    """Return the columns of `settings_in_words` that a key names.

    Parameters
    ----------
    every : DataFrame
        What `settings_in_words` returns.
    name : str
        The key alone, behind its owner, or as it is typed.
    under : bool
        Whether a group, such as `dataset` or an algorithm, names all that it has.
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
    """Return a column of `settings_in_words` without its owner."""
    return str(column).rpartition(".")[2]


def first_words(every: pd.DataFrame) -> pd.Series[str]:
    """Return the first text of each row that is not empty, else an empty one."""
    return every.replace("", None).bfill(axis=1).iloc[:, 0].fillna("")


def match_values(words: pd.Series[str], values: Sequence[str]) -> pd.Series[bool]:
    """Return which texts are one of some values; a number may be typed otherwise."""
    import pandas as pd

    numbers = pd.to_numeric(pd.Series([*values]), errors="coerce").dropna()
    return words.isin([*values, *numbers.map("{:.6g}".format)])


def short_key(name: str) -> str:
    """Return what the table calls a key such as `budget.epsilon`."""
    return name.removeprefix("budget.").removeprefix("penalty.")


def column_of(table: pd.DataFrame, name: str, key: str) -> pd.Series[Any]:
    """Return a column of the table, or a parameter or key of the dataset of its rows.

    It may be named as `columns_of_key` has it, and a column as on the command line.
    Of another name it is refused, called `key`, with those that have several values.
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
    """Return the keys of a column of JSON as columns of text, `OWNER.KEY` if owned.

    ``usual`` returns what a key of an owner is in rows that do not name it.
    """
    import pandas as pd

    owners = text_of(rows[owner]) if owner else [""] * len(rows)
    pairs = [*zip(owners, text_of(rows[column]), strict=True)]
    codes, unique = pd.Index(pairs, tupleize_cols=False).factorize()
    found = [(str(name), mapping_of(str(text))) for name, text in unique]
    keys = dict.fromkeys((name, key) for name, one in found for key in one)
    # The seed of the data is one to pool over: it has a column of its own.
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
    """Return what a text of JSON holds, nothing if that is no mapping."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _values_in_words(values: Sequence[Any]) -> list[str]:
    """Return values as text: numbers in six digits, in full where two would agree."""
    numbers = {one for one in values if isinstance(one, float)}
    alike = Counter(f"{one:.6g}" for one in numbers)

    @functools.lru_cache(maxsize=None, typed=True)
    def word(one: Any) -> str:
        short = f"{one:.6g}" if isinstance(one, float) else ""
        return short if alike[short] == 1 else typed_text(one)

    # Of 10^5 values most are equal; a list or an object is no key.
    return [typed_text(v) if isinstance(v, list | dict) else word(v) for v in values]


def text_of(column: pd.Series[Any]) -> pd.Series[str]:
    """Return a column as text, empty where it has no value."""
    import pandas as pd

    codes, unique = pd.factorize(column)
    words = np.array([*_values_in_words([*unique]), ""], dtype=object)
    return pd.Series(words[codes], column.index, dtype=object)


def differing_columns(
    rows: pd.DataFrame, base: pd.DataFrame, names: Sequence[str] = ()
) -> list[str]:
    """Return the columns that tell rows apart which agree in all of `base`.

    A column that says nothing beyond those before it is left out: with n goes 1/n.

    Parameters
    ----------
    rows : DataFrame
        Text, as `settings_in_words` returns it; an empty cell differs from nothing.
    base : DataFrame
        What the rows are told apart by already, on the same index.
    names : sequence of str
        Columns to look at, in this order; all by default.
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
    """Return codes of groups that are told apart by a column, too."""
    codes = column.factorize(use_na_sentinel=False)[0]
    joint = groups * (int(codes.max(initial=0)) + 1) + codes
    return np.unique(joint, return_inverse=True)[1]


def add_differing_keys(
    start: pd.Series[Any], rows: pd.DataFrame, names: Sequence[str]
) -> pd.Series[str]:
    """Return names followed by `, key=value` for each column that a row has.

    Parameters
    ----------
    start : Series
        What the names begin with.
    rows : DataFrame
        What `settings_in_words` returns, on the same index.
    names : sequence of str
        Columns of `rows`.
    """
    text = text_of(start)
    for name in names:
        column = rows[name]
        text = text + (f", {short_of(name)}=" + column).where(column != "", "")
    return text


def label_table(
    table: pd.DataFrame, again: bool = False, parameters: bool = True, axis: str = ""
) -> pd.DataFrame:
    """Return a table with panel and line where the command line named none.

    The panel is the dataset, the line the algorithm, each followed by what else varies
    among the rows of it, as `key=value`; but for epsilon and seeds, which are axes.

    Parameters
    ----------
    table : DataFrame
        The tidy table.
    again : bool
        Whether labels that were made here are made again, of these rows alone.
    parameters : bool
        Whether lines tell parameters apart; without, settings compete in them.
    axis : str
        A column or key that is drawn along an axis: no label says what goes with it.
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
    """Return `base` with panels and lines that name what differs and nothing names.

    What differs of the data is of the panel, all else of the line.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table.
    base : DataFrame
        What the rows are told apart by, on the same index, the names among it.
    names : sequence of {'panel', 'line'}
        The columns of ``base`` that are named.
    """
    every, base = settings_in_words(rows), base.copy()
    for name in names:
        keys = [one for one in map(str, every) if name == LINE or is_of_data(one, rows)]
        base[name] = add_differing_keys(
            base[name], every, differing_columns(every, base, keys)
        )
    return base


def is_of_data(name: str, rows: pd.DataFrame) -> bool:
    """Return whether a column of `settings_in_words` is of the data."""
    owner = name.rpartition(".")[0]
    return name == STANDARDISE or (owner != "" and owner in rows[DATASET].unique())


LABELS = ["experiment", "panel", "line", "algorithm"]


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last checkpoint of every run, in the table's order.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    """
    return table.drop_duplicates([*LABELS, "phase", "trial"], keep="last")


def parameter_columns(table: pd.DataFrame, column: str = "params") -> pd.DataFrame:
    """Return the keys of a column of JSON as columns, on the index of the table.

    Parameters
    ----------
    table : DataFrame
        The tidy table.
    column : str
        Such as `params`, the parameters of the algorithms.
    """
    import pandas as pd

    codes, texts = pd.factorize(table[column])
    keys = pd.DataFrame([mapping_of(text) for text in texts])
    return keys.reindex(codes).set_axis(table.index)


def worst_if_lost(rows: pd.DataFrame, y: str) -> pd.Series[float]:
    """Return a column with its worst value where a run diverged, failed or was stopped.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table.
    y : str
        A column: inf if smaller is better, else as `worst_value` says.
    """
    lost = ~rows["status"].isin(["ok", "skipped"]) & rows[y].isna()
    return rows[y].astype(float).mask(lost, worst_value(y))


HELD = ("bounds", SCALE, "clip_to_bounds", "standardise")
"""Keys of a dataset on which its records, hence its optimum, depend."""

ON_OPTIMUM = ("objective", "relative_error")
"""What is measured on the records as bounds left them."""

UNLIKE_BOUNDS = (
    "under other bounds or scales the records, the optimum and the relative error are "
    "others, and do not compare"
)


def under_bounds(rows: pd.DataFrame) -> str:
    """Return a sentence on panels with trials under different bounds, if there are any.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table; a panel is what is ranked by itself.
    """
    kinds = [PANEL, DATASET, "dataset_options"]
    trials = rows.reindex(columns=kinds).drop_duplicates()
    held = _unpack_column(trials, "", "dataset_options")
    held = held.reindex(columns=[*HELD], fill_value="")
    # A generator may have a `scale` of its own.
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

    One that has passed with a doubt has that behind its name.
    """
    rows = rows.reindex(columns=["algorithm", "checked", "doubt"])
    rows = rows[rows["checked"].eq(False)]
    names = rows["algorithm"].astype(str)
    doubts = rows["doubt"].astype(object).fillna(UNCHECKED).astype(str)
    names = names.where(doubts.eq(UNCHECKED), names + " (" + doubts + ")")
    return tuple(sorted(names.unique()))
