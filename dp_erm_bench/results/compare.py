"""Compare the final values of two folders, or of two values of a key in a folder.

Rows are matched by the settings of their trials in the plan. Keys of trials are not
used, since they change with the code.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dp_erm_bench.datasets.spec import identifying_keys, usual_objective
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import OBJECTIVE, check_choice
from dp_erm_bench.results.columns import sign_of
from dp_erm_bench.results.files import PLAN, count_with_noun, typed_path
from dp_erm_bench.results.settings import (
    add_differing_keys,
    columns_of_key,
    differing_columns,
    final_rows,
    first_words,
    label_table,
    mapping_of,
    match_values,
    settings_in_words,
    short_of,
    text_of,
    worst_if_lost,
)
from dp_erm_bench.results.statistics import (
    central_interval,
    likely_medians,
    quantile,
    relative_change,
)
from dp_erm_bench.results.store import planned_lines
from dp_erm_bench.results.table import (
    MEASURED,
    SORTED,
    UNREADABLE,
    changed_options,
    recorded_results,
)

LABELS = ["panel", "line", "phase"]
ALWAYS = ["dataset", "algorithm", "epsilon"]
EDITED = ["solver", "loss.content"]
"""Digests of a user's own files.

Trials are matched without them, because a file keeps its name after edits.
"""

Row = dict[str, Any]


def finals_with_settings(folder: Path) -> pd.DataFrame:
    """Return the final rows of the sweep and report trials of a folder.

    Tuning trials are left out, since they only choose parameters.

    Parameters
    ----------
    folder : Path
        A results folder, with its plan.

    Returns
    -------
    DataFrame
        Rows of the results table with the columns of `asked_columns`, and `setting`, a
        number that is shared by trials whose settings differ only in seeds.

    Raises
    ------
    UsageError
        If there is no such folder, or it has no plan.
    """
    if not (folder / PLAN).is_file():
        missing = f"no results folder, it has no {PLAN}"
        raise UsageError(
            f"{folder}: {missing if folder.is_dir() else 'no such folder'}"
        )
    table = recorded_results(folder)
    rows = final_rows(table[table["phase"] != "tune"])
    asked = {}
    for line in planned_lines(folder, {*rows["trial"]}):
        with contextlib.suppress(*UNREADABLE):
            asked[line["key"]] = asked_columns(line["spec"])
    known = rows[rows["trial"].isin([*asked])]
    if lost := len(rows) - len(known):
        missing = (
            f"{count_with_noun(lost, 'trial')} without a whole line of {PLAN} left out"
        )
        print(f"{typed_path(folder)}: {missing}", file=sys.stderr)
    columns = pd.DataFrame([asked[key] for key in known["trial"]], known.index)
    known = known.assign(**columns)
    every = labels_and_settings(known)
    return known.assign(setting=every.groupby([*every]).ngroup())


def asked_columns(spec: Mapping[str, Any]) -> Row:
    """Return the values that a trial's specification gives for columns of the table.

    The table itself has the values that resulted, which a failed trial lacks.
    """
    strength = spec["penalty"].get("strength")
    return {
        **{part: spec[part]["name"] for part in OBJECTIVE},
        "strength": math.nan if strength is None else float(strength),
        # A key that was added later is ignored if its value changes nothing.
        "dataset_options": changed_options(SORTED(identifying_keys(spec["dataset"]))),
        "params": SORTED(spec["algorithm"]["params"]),
        "delta": str(spec["budget"]["delta"]),
        "calibration": spec["calibration"],
    }


def labels_and_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the labels and settings of trials, except seeds, as columns of strings."""
    every = settings_in_words(rows).drop(columns=EDITED, errors="ignore")
    return pd.concat([rows[LABELS].apply(text_of), every], axis=1)


def _name_strengths(rows: pd.DataFrame, words: pd.Series[str]) -> pd.Series[str]:
    """Return the strengths of penalties as strings; those of a rule get its name.

    A strength that is 1/n in all its rows becomes `1/n`. A strength that is usual for
    its dataset in all its rows becomes `usual`. If both hold, the name that fits more
    strengths is taken.
    """
    strength, known = rows["strength"].astype(float), rows["n"].notna()
    by_n = np.isclose(strength * rows["n"], 1.0, rtol=1e-9, atol=0.0)
    usual = pd.Series(
        [*map(_usual_strength, rows["dataset"], rows["dataset_options"])], rows.index
    )
    ways = {"usual": usual.eq(strength) | (usual.eq("1/n") & by_n)}
    ways["1/n"] = pd.Series(by_n, rows.index)
    for name, holds in ways.items():
        always = holds.astype(float).where(known).groupby(strength).transform("min")
        ways[name] = always.eq(1.0)
    for name in sorted(ways, key=lambda one: strength[ways[one]].nunique()):
        words = words.mask(ways[name], name)
    return words


@functools.cache
def _usual_strength(dataset: str, options: str) -> float | str | None:
    usual = usual_objective(dataset, mapping_of(options))
    return usual.strength if usual else None


def _columns_named(
    every: pd.DataFrame, option: str, name: str, under: bool = False
) -> list[str]:
    """Return the result of `columns_of_key`; raise UsageError if it is empty.

    The message lists the existing keys.
    """
    found = columns_of_key(every, name, under)
    if not found:
        check_choice(option, name, sorted({*map(short_of, every)}))
    return found


def sides_by_key(
    finals: pd.DataFrame, key: str, where: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[tuple[str, pd.DataFrame]], dict[str, str]]:
    """Split final rows by the values of a key, for a comparison.

    A value is left out if all of its trials were skipped. In a tuned folder, it is left
    out if none of its choices could run.

    Parameters
    ----------
    finals : DataFrame
        Rows from `finals_with_settings`.
    key : str
        A label, or a key of the settings by any of its names.
    where : mapping of str to sequence of str
        Values of keys to keep. Settings without the key are kept.

    Returns
    -------
    sides : list of (str, DataFrame)
        Each value with its rows, sorted by value.
    skipped : dict of str to str
        The values that were skipped, with their reasons.

    Raises
    ------
    UsageError
        If there is no such key, or it has only one value.
    """
    every = labels_and_settings(label_table(finals))
    values = {
        name: first_words(every[_columns_named(every, option, name)])
        for option, names in (("--between", [key]), ("--where", where or {}))
        for name in names
    }
    for name, given in (where or {}).items():
        finals = finals[match_values(values[name][finals.index], ["", *given])]
    owner = values[key][finals.index]
    skipped = _values_never_run(finals, owner)
    found = sorted({*owner} - {"", *skipped})
    if len(found) < 2:
        rest = "".join(f"; {one} was skipped: {why}" for one, why in skipped.items())
        known = ", ".join(found) or "none that ran"
        raise UsageError(f"--between={key}: it has one value here, {known}{rest}")
    return [(value, finals[owner.eq(value)]) for value in found], skipped


def _values_never_run(finals: pd.DataFrame, owner: pd.Series[str]) -> dict[str, str]:
    """Return the values of a key for which nothing ran, each with the reasons."""
    others = {"", *owner[finals["status"] != "skipped"]}
    never = finals["message"][~owner.isin(others)]
    return {
        str(value): "; ".join(dict.fromkeys(reasons.astype(str)))
        for value, reasons in never.groupby(owner)
    }


def _keys_apart(every: pd.DataFrame, in_a: pd.Series[bool]) -> str:
    """Return a string on the keys for which A and B have no common value.

    The text is empty if there is no such key. The sides then differ in seeds.
    """
    told = [(key, {*own[in_a]}, {*own[~in_a]}) for key, own in every.items()]
    apart = [(key, a, b) for key, a, b in told if not a & b]
    # Keys that both sides have say more than parameters that only one side has.
    apart.sort(key=lambda one: ("" in one[1] | one[2], one[0] not in ALWAYS))
    words = [
        f"{key} is {_brief_values(a)} in A and {_brief_values(b)} in B"
        for key, a, b in apart
    ]
    return "; ".join(words[:3])


def _brief_values(values: set[str]) -> str:
    names = sorted(values - {""})
    return ", ".join([*names[:3], *["..."] * (len(names) > 3)]) or "not given"


Array = npt.NDArray[Any]

TRIAL = ["setting", "seed", "dataset_seed"]
MEASURES = ["objective", "relative_error", *MEASURED, "seconds", "epsilon_certified"]
"""Columns of the table that can be compared."""

WAYS = ["trial", "setting"]
RANK = {"ok": 0, "skipped": 1, "diverged": 2, "error": 3, "timeout": 3, "killed": 3}
"""Rank of each status. A higher rank in B than in A is a regression."""

EMPTY = {
    **{"measure": "", "runs_a": 0, "runs_b": 0},
    **dict.fromkeys(("median_a", "median_b", "change", "low", "high"), np.nan),
    **{"verdict": "", "note": ""},
}


class ComparisonRule(NamedTuple):
    """The rule by which the two sides of a setting are compared.

    Attributes
    ----------
    by : {'trial', 'setting'}
        Whether each common trial is compared, or the medians over all seeds.
    tolerance : float
        Relative changes up to this size count as equal.
    interval : float
        Confidence level of the interval of the median change.
    """

    by: str = "trial"
    tolerance: float = 0.05
    interval: float = 0.95

    def check(self) -> None:
        """Raise UsageError for values out of range."""
        check_choice("--by", self.by, WAYS)
        if not 0 <= self.tolerance < math.inf:
            raise UsageError(f"--tolerance={self.tolerance}: must be 0 or more")
        if not 0 < self.interval < 1:
            raise UsageError(f"--interval={self.interval}: must lie between 0 and 1")

    @property
    def least(self) -> int:
        """Return the smallest number of runs for which a sign test can decide."""
        return math.ceil(1 - math.log2(1 - self.interval))


def compare_sides(
    first: pd.DataFrame,
    second: pd.DataFrame,
    on: Sequence[str] = ("objective",),
    rule: ComparisonRule = ComparisonRule(),  # noqa: B008
    ignore: Sequence[str] = (),
) -> pd.DataFrame:
    """Compare two sides, A and B, setting by setting.

    Parameters
    ----------
    first, second : DataFrame
        Final rows of A and of B with their `setting` (see `finals_with_settings`).
    on : sequence of str
        Columns to compare, out of `MEASURES`.
    rule : ComparisonRule
        Pairing, tolerance and interval.
    ignore : sequence of str
        Labels, or keys of settings, that may differ between the sides.

    Returns
    -------
    DataFrame
        One row per setting and measure. The columns are the labels, `dataset`,
        `algorithm` and `epsilon`, and `setting` with the other parameters. `runs_a` and
        `runs_b` are numbers of runs, or of pairs. `median_a` and `median_b` are
        followed by the relative `change` B/A - 1 and its interval `low`, `high` (nan
        for too few runs). The last columns are `verdict` and `note`. A changed status
        is a row with the measure `status`. Runs that only one side has are counted in a
        row with the measure `trials` and the verdict `only in A` or `only in B`.

    Raises
    ------
    UsageError
        For a value out of range, or if the two sides have nothing in common.
    """
    rule.check()
    for measure in on:
        check_choice("--y", measure, MEASURES)
    for name, side in (("A", first), ("B", second)):
        if side.empty:
            raise UsageError(f"compare: {name} has no recorded trials yet")
    both = pd.concat([first.assign(side="a"), second.assign(side="b")])
    both = both.reset_index(drop=True)
    every = labels_and_settings(both)
    if ignore:
        every["strength"] = _name_strengths(both, every["strength"])
    dropped = [_columns_named(every, "--ignore", name, True) for name in ignore]
    kept = every.drop(columns=[*itertools.chain(*dropped)])
    both["setting"] = kept.groupby([*kept], sort=False).ngroup()
    again = both.duplicated(["side", *TRIAL], keep=False)
    if again.any():
        names = differing_columns(every[again], both.loc[again, TRIAL])
        raise UsageError(
            "compare: one side has several runs of a setting with "
            f"seed={both.loc[again, 'seed'].iloc[0]}, which differ in "
            f"{', '.join(names)}; keep one of them with --where KEY=VALUE"
        )
    columns = {measure: worst_if_lost(both, measure) for measure in on}
    runs = both[[*TRIAL, "side", "status"]].assign(**columns)
    pairs = _join_trials(runs, kept, rule)
    labels = labels_of_settings(kept).groupby(both["setting"]).first().T.to_dict()
    arrays = {str(name): pairs[name].to_numpy() for name in pairs}
    rows = []
    groups: Any = pairs.groupby("setting").indices
    for setting, places in groups.items():
        group = {column: values[places] for column, values in arrays.items()}
        rows += [
            {**labels[setting], **EMPTY, **row}
            for row in _rows_of_setting(group, on, rule)
        ]
    for measure in on:
        if not any(row["measure"] == measure for row in rows):
            raise UsageError(f"--y={measure}: no common trial has a value of it")
    return pd.DataFrame(rows, columns=[*LABELS, *ALWAYS, "setting", *EMPTY])


def labels_of_settings(every: pd.DataFrame) -> pd.DataFrame:
    """Return labels of settings: `LABELS`, `ALWAYS`, and a string of other keys.

    The text, `setting`, has only keys whose values differ.
    """
    labels = every.reindex(columns=[*LABELS, *ALWAYS], fill_value="")
    names = differing_columns(every, labels)
    texts = add_differing_keys(pd.Series("", every.index), every, names)
    return labels.assign(setting=texts.str.removeprefix(", "))


def _join_trials(
    runs: pd.DataFrame, every: pd.DataFrame, rule: ComparisonRule
) -> pd.DataFrame:
    """Return one row per trial of A or B; raise UsageError if no trial is common."""
    a, b = (runs[runs["side"] == side].drop(columns="side") for side in "ab")
    pairs = a.merge(b, how="outer", on=TRIAL, suffixes=("_a", "_b"))
    pairs = pairs.assign(**{f"in_{s}": pairs[f"status_{s}"].notna() for s in "ab"})

    def meet(names: list[str]) -> bool:
        there = pairs.groupby(names, dropna=False)[["in_a", "in_b"]].any()
        return bool(there.all(axis=1).any())

    if not meet(TRIAL[:1] if rule.by == "setting" else TRIAL):
        remedy = "--by setting needs no common seeds"
        if not meet(TRIAL[:1]):
            why = _keys_apart(every, runs["side"] == "a")
            remedy = (
                f"{why or 'several keys differ together'}; --ignore KEY lets a key "
                "differ"
            )
        raise UsageError(
            f"compare: no common {rule.by} ({len(a)} trials in A, {len(b)} in B); "
            f"{remedy}"
        )
    return pairs


def _rows_of_setting(
    group: dict[str, Array], on: Sequence[str], rule: ComparisonRule
) -> Iterator[Row]:
    """Yield the rows of the comparison for one setting, without its labels."""
    paired = rule.by == "trial"
    in_a, in_b = group["in_a"], group["in_b"]
    common = in_a & in_b if paired else np.full(len(in_a), in_a.any() and in_b.any())
    for side, lone in (("a", in_a & ~common), ("b", in_b & ~common)):
        if lone.any():
            runs = {f"runs_{side}": lone.sum(), "verdict": f"only in {side.upper()}"}
            yield {"measure": "trials", **runs}
    if not common.any():
        return
    in_a, in_b = in_a & common, in_b & common
    yield from _rows_of_statuses(
        group["status_a"][in_a], group["status_b"][in_b], paired
    )
    for measure in on:
        a, b = group[f"{measure}_a"], group[f"{measure}_b"]
        known_a, known_b = in_a & ~np.isnan(a), in_b & ~np.isnan(b)
        if paired:
            known_a = known_b = known_a & known_b
        a, b = a[known_a], b[known_b]
        if len(a) and len(b):
            runs = {"measure": measure, "runs_a": len(a), "runs_b": len(b)}
            yield {**runs, **judge_difference(measure, a, b, rule)}


def _rows_of_statuses(a: Array, b: Array, paired: bool) -> Iterator[Row]:
    """Yield a row if statuses differ in rank, in pairs or else between the worst."""
    worst = [max(side, key=RANK.__getitem__) for side in (a, b)]
    pairs = zip(a, b, strict=True) if paired else [worst]
    moved = Counter((x, y) for x, y in pairs if RANK[x] != RANK[y])
    if moved:
        runs = {"measure": "status", "runs_a": len(a), "runs_b": len(b)}
        worse = any(RANK[y] > RANK[x] for x, y in moved)
        note = ", ".join(f"{n} {x} -> {y}" for (x, y), n in moved.items())
        yield {**runs, "verdict": "worse" if worse else "better", "note": note}


def judge_difference(measure: str, a: Array, b: Array, rule: ComparisonRule) -> Row:
    """Return the medians of two sides, their relative change, and a verdict.

    Parameters
    ----------
    measure : str
        One of `MEASURES`.
    a, b : array of shape (runs,)
        Values of the two sides, at least one each; paired if compared by trial. A
        run without a result has the worst value.
    rule : ComparisonRule
        Pairing, tolerance and interval.
    """
    decisive = min(len(a), len(b)) >= rule.least
    medians = {"median_a": quantile(a, 0.5), "median_b": quantile(b, 0.5)}
    if rule.by == "trial":
        changes = relative_change(measure, a, b)
        change = quantile(changes, 0.5)
        changes = likely_medians(changes) if decisive else changes
    elif np.array_equal(np.sort(a), np.sort(b)):
        change, changes = np.zeros(()), np.zeros(1)
    else:
        change = relative_change(measure, *medians.values())
        if decisive:
            a, b = likely_medians(a), likely_medians(b, sample=1)
        else:
            a, b = np.sort(a)[[[0], [-1]]], np.sort(b)[[0, -1]]
        changes = relative_change(measure, a, b)
    ends = changes.min(), changes.max()
    if decisive:
        ends = central_interval(changes, rule.interval)
    verdict = _verdict_of_interval(measure, *ends, rule.tolerance)
    low, high = ends if decisive else (math.nan, math.nan)
    if not decisive and verdict != "same":
        verdict = "undecided"
    numbers = {**medians, "change": change, "low": low, "high": high}
    return {**{k: float(v) for k, v in numbers.items()}, "verdict": verdict}


def _verdict_of_interval(
    measure: str, low: float, high: float, tolerance: float
) -> str:
    low, high = sorted((sign_of(measure) * low, sign_of(measure) * high))
    if low > tolerance:
        return "worse"
    if high < -tolerance:
        return "better"
    return "same" if -tolerance <= low and high <= tolerance else "undecided"
