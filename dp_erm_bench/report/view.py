"""Select, name and summarise the rows that a plot or an exported table shows.

A *line* consists of the rows that a plot draws as one curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import OBJECTIVE, check_choice
from dp_erm_bench.report.draw import ALONG, STATISTICS
from dp_erm_bench.results.columns import COLUMNS as MEANING
from dp_erm_bench.results.columns import COUNT, NUMBER, is_better_higher
from dp_erm_bench.results.files import csv_of
from dp_erm_bench.results.settings import (
    ALGORITHM,
    DATASET,
    GIVEN,
    INTERNAL,
    ON_OPTIMUM,
    STANDARDISE,
    column_of,
    final_rows,
    is_of_data,
    label_table,
    match_values,
    settings_in_words,
    short_key,
    split_names,
    text_of,
    under_bounds,
    worst_if_lost,
)
from dp_erm_bench.results.statistics import (
    ALONE,
    BASELINES,
    FEWEST,
    FLOOR,
    LOSES,
    NO_INTERCEPT,
    WINS,
    ZERO,
    Beyond,
    baseline_columns,
    beyond_of_lines,
    by_split,
    check_alike,
    lack_interval,
    nothing_beats,
    places_of_lines,
    pooled_in_words,
    sharing_data,
    with_beyond,
)
from dp_erm_bench.results.table import lacking_in_words

if TYPE_CHECKING:
    import pandas as pd

PARTS = (*OBJECTIVE, "strength")
JUDGED_ON = {
    **dict.fromkeys(
        ("objective", "relative_error", "test_objective", "excess_objective"), PARTS
    ),
    **dict.fromkeys(("test_risk", "population_risk", "excess_risk"), ("loss",)),
}
"""The parts of a problem on which a quantity depends."""

OVER_SPLITS = (
    "where a dataset_seed has several runs, the mean of its values' medians and "
    "Student's interval"
)
"""Description of the statistic `interval` if `by_split` pools runs on the same data."""

FIRST = ("relative_error", "excess_risk", "population_risk", "objective")
OVER = " over epsilon"
RUN = ["experiment", "panel", "line", "phase", "trial"]
PANEL, LINE, FACET = "panel", "line", "facet"
OWN = "_zero"
"""Name of the column with the value at w = 0 on the problem of each run."""
GUARANTEE = ("epsilon", "delta", "adjacency")
PROOF = "whether epsilon is proved"
SEVERAL = 4
"""Largest number of problems, or of left-out values, that a caption names."""


@dataclass(frozen=True)
class View:
    """The selection of rows and columns of a table that a plot shows.

    Attributes
    ----------
    x, y : str
        Columns, parameters of the algorithms, or keys of the datasets. If empty, `x` is
        `passes`, and `y` is the first of `FIRST` that the table has.
    panel, line : tuple of str
        Columns that distinguish panels and lines.
    facet : tuple of str or None
        Columns that split panels further; None means epsilon if it varies.
    statistic : str
        One of `STATISTICS`.
    where : mapping of str to sequence of str
        The values of columns to keep.
    folder : Path
        The results folder, in which the runs that the caption names are looked up.
    others : tuple of Path
        Other results folders whose trials are in the table.
    names : mapping of str to str
        Names to show for lines, by label, or by the part of it before the first comma.
    highlight : tuple of str
        Lines to emphasise, by label or by the name shown; a string may list several
        lines, separated by commas.
    """

    x: str = ""
    y: str = ""
    panel: tuple[str, ...] = (PANEL,)
    line: tuple[str, ...] = (LINE,)
    facet: tuple[str, ...] | None = None
    statistic: str = "median"
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folder: Path = Path()
    names: Mapping[str, str] = field(default_factory=dict)
    highlight: tuple[str, ...] = ()
    others: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown statistic."""
        check_choice("statistic", self.statistic, [*STATISTICS])


@dataclass(frozen=True, eq=False)
class Shown:
    """The rows that a view shows, with strings about them for the caption.

    Attributes
    ----------
    rows : DataFrame
        The rows, with columns of strings `panel`, `facet` and `line`, the columns `_x`
        and `_y`, and the columns that `baseline_columns` and `with_beyond` add.
    view : View
        The view, with all names filled in.
    pooled : str
        A string that says which runs the statistics pool.
    left_out : tuple of str
        Sentences on trials that are not drawn.
    unlike : str
        Sentences on trials that cannot be compared, such as those under different
        bounds.
    """

    rows: pd.DataFrame
    view: View
    pooled: str
    left_out: tuple[str, ...]
    unlike: str = ""

    @property
    def statistic_in_words(self) -> str:
        """Return a string that names the statistic and the runs that it pools."""
        words, levels = STATISTICS[self.view.statistic]
        runs, shared, warning = self.pooled.partition("; ")
        told = f"{words} over {join_words(runs.split(', '), 'and')}"
        if levels is not None:
            return told + shared + warning
        told += f"; {OVER_SPLITS}" * bool(shared)
        x = "iteration" if self.view.x in ALONG else "_x"
        few = lack_interval(self.rows, [PANEL, FACET, LINE, x])
        where = "" if few.all() else " where a line has so few"
        none = f"; fewer than {FEWEST} runs have no interval, none is drawn{where}"
        return told + none * bool(few.any())

    @property
    def baselines(self) -> list[str]:
        """Return the names of the baselines that are known for some run.

        All of them are shown next to final values.
        """
        return [name for name in BASELINES if self.rows[name].notna().any()]

    @property
    def columns_beside(self) -> dict[str, str]:
        """Return the columns of the baselines that are drawn with lines, by name.

        If whole runs are drawn, w = 0 is left out, because they begin there. Otherwise
        its column contains the value at w = 0 on the problem of each run.
        """
        along = self.view.x in ALONG
        columns = {name: name for name in self.baselines if name != ZERO}
        own = not along and self.rows[OWN].notna().any()
        return {ZERO: OWN, **columns} if own else columns

    @property
    def cells(self) -> dict[tuple[str, str], pd.DataFrame]:
        """Return the rows of each panel and facet, in the order of the table."""
        groups = self.rows.groupby([PANEL, FACET], sort=False)
        return {(str(a), str(b)): own for (a, b), own in groups}


def join_words(words: Sequence[str], last: str) -> str:
    """Return words as one string, with commas and `last` before the last word."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def rows_of_view(table: pd.DataFrame, view: View) -> Shown:
    """Return the rows of a table that a view shows, with panel, facet and line.

    Raise UsageError for names that the table does not have, and if no rows are left.
    """
    view = _with_short_keys(view)
    rows, kept = _rows_not_tuning(table, view)
    folders = [one for one in (view.folder, *view.others) if one != Path()]
    missing = {one: lacking_in_words(one) for one in folders}
    whose = "{0}: {1}" if view.others else "{1}"
    lost = [whose.format(one.name, text) for one, text in missing.items() if text]
    y = view.y or first_of(rows)
    rows, left_out = _measured_rows(rows, y)
    rows = with_beyond(rows.join(baseline_columns(rows, y)))
    x = view.x or ("passes" if rows["passes"].notna().any() else "epsilon")
    rows = label_table(rows, again=True, axis=x)
    rows = rows.assign(line=rows[LINE].str.removesuffix(OVER), _y=rows[y])
    if x not in ALONG:
        rows = final_rows(rows)
    rows = rows.assign(_x=column_of(rows, x, "x"))
    rows = rows[rows["_x"].notna()]
    if rows.empty:
        raise UsageError(f"plot: no trial with a {y} has a {x}")
    facet = view.facet
    if facet is None:
        taken = {x, *view.panel, *view.line}
        several = "epsilon" not in taken and rows["epsilon"].nunique() > 1
        facet = ("epsilon",) if several else ()
    view = replace(view, x=x, y=y, facet=facet)
    runs = rows.groupby(RUN, sort=False, dropna=False).ngroup().rename("_run")
    ends = rows.assign(_run=runs).drop_duplicates("_run", keep="last").set_index("_run")
    told, over = _name_lines(ends, view)
    told[LINE] = _rename_lines(told[LINE], view.names)
    view = replace(view, highlight=_highlighted_lines(told[LINE], view))
    told = told.loc[runs].set_axis(rows.index)
    rows = rows.assign(**{name: told[name] for name in (PANEL, LINE, FACET)})
    rows = _in_order(rows, view)
    rows, apart = _mark_comparable(rows, view)
    rows = rows.assign(_one_function=rows["_alike"])
    unlike = under_bounds(rows) if y in ON_OPTIMUM else ""
    rows, guarantees = _same_guarantee(rows, view)
    unlike = " ".join(filter(None, (unlike, apart, guarantees)))
    return Shown(rows, view, over, (*kept, *left_out, *lost), unlike)


def _with_short_keys(view: View) -> View:
    """Return a view with columns named as in the table, from long or short names."""
    x, y = short_key(view.x), short_key(view.y)
    panel, line = (tuple(map(short_key, names)) for names in (view.panel, view.line))
    facet = view.facet and tuple(map(short_key, view.facet))
    where = {short_key(name): values for name, values in view.where.items()}
    return replace(view, x=x, y=y, panel=panel, line=line, facet=facet, where=where)


def _in_order(rows: pd.DataFrame, view: View) -> pd.DataFrame:
    """Return rows sorted by panel, then by facet.

    Panels are in the order of the table, or sorted by the columns that name them.
    Numbers are sorted by value.
    """
    panels = [] if view.panel == (PANEL,) else [*view.panel]
    keys = {str(k): column_of(rows, n, PANEL) for k, n in enumerate(panels)}
    keys = keys or {
        "": rows[PANEL].map({p: k for k, p in enumerate(rows[PANEL].unique())})
    }
    facets = {
        f"facet {k}": column_of(rows, n, FACET) for k, n in enumerate(view.facet or ())
    }
    frame = rows[[]].assign(**keys, **facets)
    order = frame.sort_values(
        [*frame],
        kind="stable",
        key=lambda own: own if own.dtype.kind in "iuf" else text_of(own),
    )
    return rows.loc[order.index]


def _mark_comparable(rows: pd.DataFrame, view: View) -> tuple[pd.DataFrame, str]:
    """Return rows with a flag `_alike`, and a sentence if lines cannot be compared.

    Lines on different data cannot be compared. The same is true of lines whose
    objectives differ in a part that matters for the quantity, such as the strength of
    the penalty. A baseline that differs between problems drawn together is dropped.
    """
    x = [] if view.x in ALONG else ["_x"]
    cells = rows.groupby([PANEL, FACET, *x], sort=False, dropna=False).ngroup()
    every = settings_in_words(rows.drop_duplicates("trial").set_index("trial"))
    data = [str(one) for one in every if is_of_data(str(one), rows)]
    posed = [str(one) for one in every if str(one).partition(".")[0] in PARTS]
    posed = [DATASET, *data, *posed]
    every = every.loc[rows["trial"], posed].set_axis(rows.index)
    parts = every.groupby(posed, sort=False, dropna=False).ngroup()
    several = parts.groupby(cells).transform("nunique").gt(1)
    rows = rows.assign(_alike=True, **{OWN: rows[ZERO]})
    if not several.any():
        return rows, ""
    for name in BASELINES:
        level = rows[name].groupby([cells, parts]).transform("median").groupby(cells)
        least, most = level.transform("min"), level.transform("max")
        differ = most - least > 1e-9 * most.abs()
        rows[name] = rows[name].mask(several & differ)
    depends = (*JUDGED_ON.get(view.y, ()), *every[DATASET].unique())
    depends += DATASET, STANDARDISE
    names = [
        name
        for name in posed
        if name.partition(".")[0] in depends
        and every.groupby(cells)[name].nunique(dropna=False).gt(1).any()
    ]
    if not names:
        return rows, ""
    own = every.groupby(names, sort=False, dropna=False).ngroup()
    rows["_alike"] = own.groupby(cells).transform("nunique").eq(1)
    listed = join_words([name.replace(".", "'s ") for name in names], "and")
    return (
        rows,
        f"Lines that differ in {listed} minimise different functions, so none wins.",
    )


def _same_guarantee(rows: pd.DataFrame, view: View) -> tuple[pd.DataFrame, str]:
    """Return rows with `_alike` set to False where guarantees differ, and a sentence.

    Guarantees differ if lines on the same records differ in epsilon, delta or
    adjacency. They also differ if epsilon is proved for only some of these lines.
    """
    import pandas as pd

    x = [] if view.x in ALONG else ["_x"]
    cells = rows.groupby([PANEL, FACET, "n", *x], sort=False, dropna=False).ngroup()
    proved = rows["epsilon_certified"] <= rows["epsilon"] * (1 + 1e-6)
    guarantee = pd.DataFrame({name: rows[name] for name in GUARANTEE if name in rows})
    guarantee[PROOF] = proved | np.isinf(rows["epsilon"].astype(float))
    apart = guarantee.groupby(cells).transform("nunique").gt(1)
    if not (differ := apart.any()).any():
        return rows, ""
    listed = join_words([str(name) for name in guarantee.columns[differ]], "and")
    rows = rows.assign(_alike=rows["_alike"] & ~apart.any(axis=1))
    told = f"Lines that differ in {listed} have different guarantees, so none wins."
    return rows, told


def _rows_not_tuning(
    table: pd.DataFrame, view: View
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return a view's rows without tuning trials, and sentences on its filters."""
    kept = []
    for name, values in view.where.items():
        words = text_of(column_of(table, name, "where"))
        some = match_values(words, values)
        if not some.any():
            check_choice(f"where={name}", ",".join(values), sorted({*words} - {""}))
        rest = [*dict.fromkeys(words[~some])]
        few = [one or "none" for one in rest[:SEVERAL]]
        out = join_words(few + ["others"] * (len(rest) > SEVERAL), "and")
        without = f", not those with {out}" if out else ""
        shown = join_words(values, "or")
        kept.append(f"Only runs with {name} = {shown} are shown{without}.")
        table = table[some]
    rows = table[table["phase"] != "tune"]
    if rows.empty:
        ran = "only trials that tune" if len(table) else "no trial with a record"
        raise UsageError(f"plot: the table has {ran}, nothing to draw yet")
    return rows, tuple(kept)


def first_of(rows: pd.DataFrame) -> str:
    """Return the first quantity of `FIRST` that the rows have, else `objective`."""
    return next((one for one in FIRST if _has_measure(rows, one)), "objective")


def _has_measure(rows: pd.DataFrame, name: str) -> bool:
    return name in rows and bool(rows[name].notna().any())


def _measured_rows(rows: pd.DataFrame, y: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the rows with a quantity, and sentences on the trials that are left out.

    Lost runs get the worst value.
    """
    numbers = [
        name
        for name in rows
        if rows[name].dtype.kind in "iuf" and _has_measure(rows, str(name))
    ]
    if y not in numbers and y in MEANING and MEANING[y].dtype in (NUMBER, COUNT):
        first = rows["message"].replace("", None).dropna()
        why = f" ({str(first.iloc[0]).splitlines()[0]})" if len(first) else ""
        counts = final_rows(rows)["status"].value_counts()
        ended = ", ".join(f"{n} {status}" for status, n in counts.items())
        raise UsageError(f"plot: no trial has a value of {y}: {ended}{why}")
    if y not in numbers:
        measures = [k for k in MEANING if k in numbers and k not in (*INTERNAL, *GIVEN)]
        check_choice("y", y, measures)
    values = worst_if_lost(rows, y).astype(float)
    if y == "relative_error":
        values = values.clip(lower=FLOOR)
    failed = final_rows(rows[~rows["status"].isin(["ok", "diverged"])])
    told = []
    for status, own in failed.groupby("status", sort=False):
        lines = text_of(own["message"]).str.split("\n").str[0].value_counts()
        told.append(f"Left out: {len(own)} {status} ({lines.index[0]}).")
    there = values.notna() & rows["status"].isin(["ok", "diverged"])
    return rows.assign(**{y: values})[there], tuple(told)


def _name_lines(ends: pd.DataFrame, view: View) -> tuple[pd.DataFrame, str]:
    """Return panel, facet and line of every run, and a string on the pooled runs."""
    import pandas as pd

    names = pd.DataFrame(index=ends.index)
    for name, columns in ((PANEL, view.panel), (LINE, view.line)):
        names[name] = ""
        for k, one in enumerate(columns):
            words = _values_in_words(column_of(ends, one, name), one, name, not k)
            comma = np.where(names[name].eq("") | words.eq(""), "", ", ")
            names[name] = names[name] + comma + words
    names[FACET] = ""
    for one in view.facet or ():
        value = text_of(column_of(ends, one, FACET))
        names[FACET] = (names[FACET] + f", {one} = " + value).str.removeprefix(", ")
    base = names.assign(x="" if view.x in ALONG else text_of(ends["_x"]))
    if view.line == (LINE,):
        own = [PANEL, LINE] if view.panel == (PANEL,) else [LINE]
        names[own] = split_names(ends, base, own)[own]
    by = [*names, "x"]
    told = ends.assign(**names, x=base["x"])
    alike = view.line == (LINE,)
    remedy = "keep one of them with --where {0}=VALUE, or add {0} to --line"
    runs = pooled_in_words(told, by) if alike else check_alike(told, by, remedy)
    return names, "; ".join(filter(None, (runs, sharing_data(told, by))))


def _values_in_words(
    values: pd.Series[Any], one: str, name: str, first: bool
) -> pd.Series[str]:
    """Return values as strings, after their key if they would be unclear alone."""
    words, numbers = text_of(values), values.dtype.kind in "iuf"
    if name == PANEL and numbers:
        return f"{one} = " + words
    own = f"{one.rpartition('.')[2]}="
    named = name == LINE and (numbers or not first) and one not in (ALGORITHM, DATASET)
    return (own + words).where(words != "", "") if named else words


def _rename_lines(lines: pd.Series[str], names: Mapping[str, str]) -> pd.Series[str]:
    """Return the lines with new names.

    Raise UsageError if a name does not fit a line, or if two lines get the same name.
    """
    if not names:
        return lines
    for name in names:
        check_choice("names", name, sorted(_stems_of_lines(lines)))
    known = {}
    for line in lines.unique():
        stem, comma, rest = line.partition(",")
        known[line] = names.get(line, f"{names.get(stem, stem)}{comma}{rest}")
    for name, count in Counter(known.values()).items():
        if count > 1:
            both = " and ".join(line for line, own in known.items() if own == name)
            raise UsageError(f"names: {both} would both be called {name}")
    return lines.map(known)


def _stems_of_lines(lines: pd.Series[str]) -> set[str]:
    """Return the set of all lines, and of their parts before the first comma."""
    return {word for line in lines.unique() for word in (line, line.partition(",")[0])}


def _highlighted_lines(lines: pd.Series[str], view: View) -> tuple[str, ...]:
    """Return the names of the highlighted lines.

    A string that is not the name of a line is split at its commas.
    """
    if not view.highlight:
        return ()
    known = {*_stems_of_lines(lines), *view.names}
    parts = [[one] if one in known else one.split(",") for one in view.highlight]
    names = [name.strip() for part in parts for name in part]
    for name in names:
        check_choice("highlight", name, sorted(known))
    return tuple(names)


def stands_out(line: str, view: View) -> bool:
    """Return whether a line is highlighted, by its label or the name shown."""
    chosen = {view.names.get(one, one) for one in view.highlight}
    return line in chosen or line.partition(",")[0] in chosen


def nothing_beaten(drawn: Shown, table: pd.DataFrame | None = None) -> str:
    """Return sentences on problems where no line beats w = 0 or a constant model.

    `table` is the result of `summary_of` for the final values, if it is known.
    """
    ends = drawn.rows.drop_duplicates(RUN, keep="last")
    along = drawn.view.x in ALONG
    if table is None:
        table = summary_of(replace(drawn, rows=ends.assign(_x=0) if along else ends))
    ran = table[table["runs"] > 0]
    columns = [PANEL, table.columns[1], "unbeaten", "ci_low"]
    problems: dict[Any, list[tuple[str, float]]] = {}
    for panel, at, unbeaten, low in ran[columns].itertuples(index=False, name=None):
        problems.setdefault((panel, at), []).append((unbeaten, low))
    where: dict[str, list[str]] = {}
    for (panel, at), lines in problems.items():
        why = nothing_beats(unbeaten for unbeaten, _ in lines)
        if why and not all(np.isnan(low) for _, low in lines):
            place = "" if along else f", {drawn.view.x} = {_plain_place(at)}"
            where.setdefault(why, []).append(f"{panel}{place}")
    told = [
        f"{why[0].upper()}{why[1:]} in {len(places)} of {len(problems)} problems: "
        f"{'; '.join(places[:SEVERAL])}{', ...' * (len(places) > SEVERAL)}."
        for why, places in where.items()
    ]
    return " ".join(told)


FORMATS = ("csv", "latex", "markdown", "parquet")
NUMBERS = ("median", "ci_low", "ci_high")
VERDICT = ("beats_zero", "beats_constant", "constant", "unbeaten", "place")


def summary_of(drawn: Shown) -> pd.DataFrame:
    """Return the final values of runs, one row per panel, value of x and line.

    Parameters
    ----------
    drawn : Shown
        The rows of a view against a column such as epsilon.

    Returns
    -------
    DataFrame
        The columns are `panel` (with the facet), the column x, `line` and `quantity`.
        `median` is over `runs` runs, pooled by `by_split`. `ci_low` and `ci_high` are
        its 95 % interval, which is nan for too few runs. For `BASELINES` it is nan and
        `runs` is 0. `constant` is the name of the constant model and the quantity by
        which it is compared. `beats_zero`, `beats_constant`, `unbeaten` and `place` are
        from `places_of_lines`, and `best` says whether the line wins. No line wins if
        lines cannot be compared. Runs that diverged count as infinite.
    """
    import pandas as pd

    rows, x, y = drawn.rows, drawn.view.x, drawn.view.y
    sign, names = -1.0 if is_better_higher(y) else 1.0, drawn.baselines
    place = [PANEL, FACET, "_x"]
    # There may be thousands of lines, and a frame for each of them would take long.
    groups = rows.groupby([*place, LINE], sort=False).indices
    ordered: list[Any] = sorted(groups.items(), key=lambda item: item[1][0])
    beside = rows.groupby(place, sort=False)[names].median().to_dict("index")
    reached, seeds = rows["_y"].to_numpy(float), rows["dataset_seed"].to_numpy()
    alike = rows["_alike"].to_numpy(bool)
    models = beyond_of_lines(rows, [own for _, own in ordered])
    problems: dict[Any, dict[str, tuple[Any, Beyond]]] = {}
    for (key, own), model in zip(ordered, models, strict=True):
        problems.setdefault(key[:-1], {})[str(key[-1])] = own, model
    cells = {key[:2]: number for number, key in enumerate(reversed(problems))}
    found = []
    for key in sorted(problems, key=lambda one: (-cells[one[:2]], one[2])):
        lines, level = problems[key], beside[key]
        panel = ", ".join(filter(None, key[:2]))
        same = {PANEL: panel, x: key[2], "quantity": y}
        errors = {
            k: sign * by_split(reached[i], seeds[i]) for k, (i, _) in lines.items()
        }
        others = {k: model for k, (_, model) in lines.items()}
        judged = places_of_lines(errors, sign * level.get(ZERO, np.nan), others)
        compared = all(alike[own].all() for own, _ in lines.values())
        for line, one in judged.items():
            one = one if compared else one._replace(place=LOSES)
            ends = sorted((sign * one.low, sign * one.high))
            values = dict(zip(NUMBERS, (sign * one.median, *ends), strict=True))
            counted = {"runs": len(lines[line][0]), "best": one.place == WINS}
            how = {**one._asdict(), "constant": others[line].constant}
            found.append({**how, **same, LINE: line, **values, **counted})
        for name, value in level.items():
            if not np.isnan(value):
                values = dict(zip(NUMBERS, (value, np.nan, np.nan), strict=True))
                rest = {**dict.fromkeys(VERDICT, ""), "runs": 0, "best": False}
                found.append({**same, LINE: name, **values, **rest})
    columns = [PANEL, x, LINE, "quantity", *NUMBERS, "runs"]
    return pd.DataFrame(found)[[*columns, *VERDICT, "best"]]


def summary_text(table: pd.DataFrame, kind: str) -> str:
    """Return a summary as a string: all rows as `csv`, or a grid with the best bold.

    The rows of the grid are problems (panel and x), and its columns are lines. If there
    are more lines than problems, the lines are the rows. A problem's name says if
    nothing beats w = 0 or the constant model on it. It also says if the problem has no
    intercept.
    """
    if kind == "csv":
        return csv_of(table)
    x = str(table.columns[1])
    reasons = _reasons_without_winner(table, x)
    places = table[x].map(_plain_place)
    problem = table[PANEL] + f", {x} = " + places + reasons
    cells = table.assign(problem=problem, cell=_numbers_in_words(table))
    names = sorted(dict.fromkeys(table[LINE]), key=lambda name: name in BASELINES)
    grid, best = (
        cells.pivot(index="problem", columns=LINE, values=of)
        .reindex(index=problem.unique(), columns=names)
        .rename_axis(index=None, columns=None)
        for of in ("cell", "best")
    )
    if len(names) > len(grid):
        grid, best = grid.T, best.T
    grid, bold = grid.fillna(""), best.eq(True)
    if kind == "latex":
        return latex_table(grid, bold)
    return markdown_table(grid.mask(bold, "**" + grid + "**"))


def _plain_place(at: object) -> str:
    return f"{at:g}" if isinstance(at, float) else str(at)


def _reasons_without_winner(table: pd.DataFrame, x: str) -> pd.Series[str]:
    """Return the reasons, in brackets, why no line wins the problem of each row.

    If lines cannot be compared, the sentences of `Shown.unlike` say so.
    """
    words = table[PANEL].mask(np.ones(len(table), dtype=bool), "")
    for _, own in table.groupby([PANEL, x]):
        lines = own[own["runs"] > 0]
        why = nothing_beats(lines["unbeaten"])
        if not why and lines["constant"].str.endswith(NO_INTERCEPT).any():
            why = NO_INTERCEPT
        why = ALONE if own["ci_low"].isna().all() else why
        words.loc[own.index] = f" ({why})" if why else ""
    return words


def _numbers_in_words(table: pd.DataFrame) -> pd.Series[str]:
    """Return the median of each row as a string, with its interval if known."""
    median, low, high = (table[name].map("{:.3g}".format) for name in NUMBERS)
    return median.where(
        table[NUMBERS[1]].isna(), median + " [" + low + ", " + high + "]"
    )


def latex_table(grid: pd.DataFrame, bold: pd.DataFrame) -> str:
    """Return a table as a LaTeX tabular of booktabs, with escaped strings.

    Parameters
    ----------
    grid, bold : DataFrame
        The strings, and whether each is bold. Index and columns are the headings.
    """
    styled = grid.style.format(escape="latex").format_index(escape="latex")
    styled = styled.format_index(escape="latex", axis="columns")
    marks = np.where(bold, "bfseries:;", "")
    styled = styled.apply(lambda _: marks, axis=None)
    return styled.to_latex(hrules=True, column_format="l" + "r" * len(grid.columns))


def markdown_table(grid: pd.DataFrame) -> str:
    """Return a table of strings as Markdown, with its index as the first column."""
    code = str.maketrans({"|": r"\|", "<": r"\<", "\n": " "})
    rows = [[str(grid.index.name or ""), *grid.columns], *grid.itertuples(name=None)]
    safe = [" | ".join(str(cell).translate(code) for cell in row) for row in rows]
    rule = " | ".join(["---", *["---:"] * len(grid.columns)])
    return "".join(f"| {row} |\n" for row in (safe[0], rule, *safe[1:]))
