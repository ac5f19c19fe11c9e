"""Compare the final values of two folders, or of two values of a key within one.

Rows are matched by what names their trials, whatever code computed them: the key of a
trial changes with the code. What was asked for stays: the spec in the plan, flattened
to the spelling of the command line.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dp_erm_bench.datasets.spec import identifying_keys, usual_objective, usual_value
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import AUTO, POSED, check_choice
from dp_erm_bench.results.columns import sign_of
from dp_erm_bench.results.files import PLAN, count_with_noun, typed_path
from dp_erm_bench.results.settings import (
    NO_NUMBER,
    final_rows,
    label_table,
    mapping_of,
    name_files,
    parameters_of_rule,
    spellings_of_key,
    worst_if_lost,
)
from dp_erm_bench.results.statistics import (
    central_interval,
    likely_medians,
    quantile,
    relative_change,
)
from dp_erm_bench.results.store import planned_lines
from dp_erm_bench.results.table import MEASURED, recorded_results

# A loss of one's own is that of its name, wherever its file is and after edits.
LEFT_OUT = {
    *("dataset._target_", "dataset.seed", "loss.file", "loss.content"),
    *(f"dataset.{key}" for key in NO_NUMBER),
}
"""Keys that do not tell one trial from another."""

LABELS = ["panel", "line", "phase"]
STRENGTH, USUAL = "penalty.strength", "usual"
ALWAYS = {"dataset": "dataset", "algorithm": "algorithm", "epsilon": "budget.epsilon"}

Name = tuple[str, ...]
Row = dict[str, Any]


def finals_with_settings(folder: Path) -> pd.DataFrame:
    """Return the final rows of the sweep and report trials of a folder.

    Tuning trials are left out: they only choose.

    Parameters
    ----------
    folder : Path
        A results folder, with its plan.

    Returns
    -------
    DataFrame
        Rows of the tidy table and the column `setting`: all that names a trial but
        its labels and seeds, as JSON. Parameters that tuning chose name none.

    Raises
    ------
    UsageError
        If there is no such folder or it has no plan.
    """
    if not (folder / PLAN).is_file():
        missing = f"no results folder, it has no {PLAN}"
        raise UsageError(
            f"{folder}: {missing if folder.is_dir() else 'no such folder'}"
        )
    table = recorded_results(folder)
    rows = final_rows(table[table["phase"] != "tune"])
    settings = {}
    for line in planned_lines(folder, {*rows["trial"]}):
        with contextlib.suppress(TypeError, LookupError, AttributeError, ValueError):
            if line["phase"] != "tune":
                settings[line["key"], line["tuned"]] = json.dumps(
                    flatten_setting(line), sort_keys=True
                )
    names = zip(rows["trial"], rows["tuned"], strict=True)
    named = rows.assign(setting=[settings.get(name, "") for name in names])
    if lost := int(named["setting"].eq("").sum()):
        missing = (
            f"{count_with_noun(lost, 'trial')} without a whole line of {PLAN} left out"
        )
        print(f"{typed_path(folder)}: {missing}", file=sys.stderr)
    return named[named["setting"] != ""]


def flatten_setting(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flattened setting of a line of the plan, without seeds and labels.

    Parameters
    ----------
    line : mapping
        With `spec`, `tuned` and `rule`.
    """
    spec = line["spec"]
    # A key that came later names no trial where it does what was done before.
    parts = {**spec, "dataset": identifying_keys(spec["dataset"])}
    posed = {
        f"{part}.{key}".removesuffix(".name"): value
        for part in POSED
        for key, value in parts.get(part, {}).items()
    }
    name, params = spec["algorithm"]["name"], spec["algorithm"]["params"]
    # What was asked for is `auto`, whatever number it is for a problem and a budget.
    ruled = dict.fromkeys(parameters_of_rule(str(line.get("rule", ""))), AUTO)
    chosen = {} if line["tuned"] else {**params, **ruled}
    return {
        **{key: value for key, value in posed.items() if key not in LEFT_OUT},
        "algorithm": name,
        **{f"algorithm.{name}.{key}": value for key, value in chosen.items()},
        **{f"budget.{key}": value for key, value in spec["budget"].items()},
        "calibration": spec["calibration"],
    }


def label_settings(names: Iterable[Name]) -> dict[Name, Row]:
    """Return the labels of settings: fixed columns, and the keys that differ.

    A key differs if settings that are labelled alike otherwise disagree about it.

    Parameters
    ----------
    names : iterable of tuple
        The values of `LABELS` and a setting.
    """
    alike: dict[Name, list[tuple[Name, Row]]] = {}
    for name in names:
        setting = json.loads(name[-1])
        always = tuple(setting_text(setting.get(key, "")) for key in ALWAYS.values())
        alike.setdefault((*name[:-1], *always), []).append((name, setting))
    labels_of = {}
    for labels, members in alike.items():
        differing = _differing_keys([setting for _, setting in members])
        fixed = dict(zip([*LABELS, *ALWAYS], labels, strict=True))
        for name, setting in members:
            own = f"algorithm.{fixed['algorithm']}."
            rest = [
                f"{key.removeprefix(own)}={setting_text(setting[key])}"
                for key in differing
                if key in setting
            ]
            labels_of[name] = {**fixed, "setting": " ".join(rest)}
    return labels_of


def _differing_keys(settings: Sequence[Row]) -> list[str]:
    """Return the keys that some settings lack, or that have several values."""
    pairs = Counter((key, json.dumps(v)) for one in settings for key, v in one.items())
    return sorted({key for (key, _), n in pairs.items() if n < len(settings)})


def setting_text(value: Any) -> str:
    """Return a value of a setting as text."""
    return value if isinstance(value, str) else json.dumps(value)


def drop_keys(
    sides: Iterable[pd.DataFrame], ignore: Sequence[str]
) -> list[pd.DataFrame]:
    """Return final rows without the labels and keys that are to be ignored.

    Raises
    ------
    UsageError
        If there is no such label or key.
    """
    sides = [side.assign(**{n: "" for n in ignore if n in LABELS}) for side in sides]
    keys = set(ignore) - set(LABELS)
    if not keys:
        return sides
    texts = {text: json.loads(text) for side in sides for text in set(side["setting"])}
    for name in sorted(keys):
        _check_key("--ignore", name, texts.values(), LABELS)
    _name_strengths(sides, texts, "dataset" in keys)
    reduced = {
        text: json.dumps(
            {k: v for k, v in setting.items() if not keys & _names_of(k, setting)}
        )
        for text, setting in texts.items()
    }
    return [side.assign(setting=side["setting"].map(reduced)) for side in sides]


def _name_strengths(
    sides: Sequence[pd.DataFrame], texts: Mapping[str, Row], across: bool
) -> None:
    """Call a strength by what it follows from in all rows of it, so that it is alike.

    That is `1/n`, or ``across`` datasets the `usual` one of each. Where both are true
    of a strength, it has the name that more strengths can have.
    """
    ways: dict[str, set[str]] = {}
    known = pd.concat(side.reindex(columns=["setting", "n"]) for side in sides)
    for text, n in known.dropna().drop_duplicates().to_numpy():
        setting = texts[text]
        strength = setting.get(STRENGTH)
        if isinstance(strength, int | float) and strength:  # else it was named before
            own = {"1/n"} if math.isclose(strength * n, 1.0) else set()
            options = {k.removeprefix("dataset."): v for k, v in setting.items()}
            usual = usual_objective(str(setting.get("dataset")), options)
            if across and usual and usual.strength in (strength, *own):
                own.add(USUAL)
            name = setting_text(strength)
            ways[name] = own & ways.get(name, own)
    counts = Counter(way for own in ways.values() for way in own)
    for setting in texts.values():
        if names := ways.get(setting_text(setting.get(STRENGTH))):
            setting[STRENGTH] = min(names, key=lambda way: (-counts[way], way))


def name_files_alike(sides: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return final rows whose settings call a file as all sides together do."""
    every = name_files(pd.concat(sides, keys=range(len(sides))))
    pairs = every["setting"] + "\n" + every["dataset_options"]
    named = pairs.map({pair: _with_path(*pair.split("\n")) for pair in set(pairs)})
    return [side.assign(setting=named.loc[k]) for k, side in enumerate(sides)]


def _with_path(setting: str, options: str) -> str:
    """Return a setting that calls the file of its records as its options do."""
    known = json.loads(setting)
    if known.get("dataset.path"):
        known["dataset.path"] = mapping_of(options).get("path", known["dataset.path"])
    return json.dumps(known, sort_keys=True)


def _names_of(key: str, setting: Row) -> set[str]:
    """Return the names of a key of a setting, and the keys that it stands under."""
    parts = key.split(".")
    above = {".".join(parts[:k]) for k in range(1, len(parts))}
    return above | spellings_of_key(key, [str(setting.get("dataset"))])


def _check_key(
    option: str, name: str, settings: Iterable[Row], more: Sequence[str] = ()
) -> None:
    """Refuse a name of no key of some settings, with the keys that there are."""
    pairs = [(key, one) for one in settings for key in one]
    if not any(name in _names_of(key, one) for key, one in pairs):
        known = {word for key, _ in pairs for word in (key, key.rpartition(".")[2])}
        check_choice(option, name, sorted({*more, *known}))


def sides_by_key(
    finals: pd.DataFrame, key: str, where: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[tuple[str, pd.DataFrame]], dict[str, str]]:
    """Return final rows by the values of a key, alike in name but for it.

    A value of which every trial was skipped is no side: in a tuned folder it has no
    choices that could run.

    Parameters
    ----------
    finals : DataFrame
        What `finals_with_settings` returns.
    key : str
        A key of the settings, by any of its names. Between algorithms their parameters
        differ, too, and so do the lines of an experiment.
    where : mapping of str to sequence of str
        Values of keys to keep; a setting without the key is kept.

    Returns
    -------
    sides : list of (str, DataFrame)
        The rows of each value, sorted by it.
    skipped : dict of str to str
        The values that were skipped, with their reasons.

    Raises
    ------
    UsageError
        For no such key, one value only, or several settings of one value.
    """
    (finals,) = name_files_alike([finals])
    where = where or {}
    values_of = {
        name: _values_of_key(finals, "--between" if name == key else "--where", name)
        for name in (key, *where)
    }
    for name, given in where.items():
        own = values_of[name][finals.index]
        finals = finals[own.isin(["", *map(_plain_number, given)])]
    owner = values_of[key][finals.index]
    skipped = _values_never_run(finals, owner)
    found = sorted({*owner} - {"", *skipped})
    if len(found) < 2:
        rest = "".join(f"; {one} was skipped: {why}" for one, why in skipped.items())
        values = ", ".join(found) or "none that ran"
        raise UsageError(f"--between={key}: it has one value here, {values}{rest}")
    (named,) = drop_keys([finals], [key, "line"])
    sides = [(value, named[(owner == value).to_numpy()]) for value in found]
    for value, side in sides:
        twice = side.duplicated([*LABELS, "setting", "seed", "dataset_seed"])
        if twice.any():
            same = side["setting"].eq(side.loc[twice, "setting"].iloc[0])
            several = finals.loc[side.index[same], "setting"].unique()
            names = _differing_keys([json.loads(text) for text in several])
            raise UsageError(
                f"--between={key}: {value} has several settings, which differ in "
                f"{', '.join(name for name in names if name != key)}; keep one of them "
                "with --where KEY=VALUE"
            )
    return sides, skipped


def _values_never_run(finals: pd.DataFrame, owner: pd.Series[str]) -> dict[str, str]:
    """Return the values of a key of which nothing ran, with the distinct reasons."""
    others = {"", *owner[finals["status"] != "skipped"]}
    never = finals["message"][~owner.isin(others)]
    return {
        str(value): "; ".join(dict.fromkeys(reasons.astype(str)))
        for value, reasons in never.groupby(owner)
    }


def _values_of_key(finals: pd.DataFrame, option: str, name: str) -> pd.Series[str]:
    """Return the value of a key in the setting of each row, empty where it has none.

    Raises
    ------
    UsageError
        If no setting has such a key.
    """
    if name in LABELS:
        return label_table(finals)[name].astype(str)
    texts = {text: json.loads(text) for text in set(finals["setting"])}
    _check_key(option, name, texts.values(), LABELS)
    keys = {
        key
        for one in texts.values()
        for key in one
        if name in spellings_of_key(key, [str(one.get("dataset"))])
    }
    of_data = [key.partition(".")[2] for key in keys if key.startswith("dataset.")]
    values = {}
    for text, one in texts.items():
        own = [one[key] for key in sorted(keys) if key in one]
        if not own and of_data:
            own = [usual_value(str(one["dataset"]), of_data[0])]
        values[text] = _plain_number(setting_text(own[0])) if own else ""
    return finals["setting"].map(values)


def _plain_number(word: str) -> str:
    """Return a number as one types it, 1.0 as 1."""
    try:
        return f"{float(word):.12g}"
    except ValueError:
        return word


def keys_apart(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Return the keys that differ wherever two sides do, with their values.

    Parameters
    ----------
    first, second : DataFrame
        Final rows of A and of B. Where no key keeps all of A from all of B, the text
        is empty: the seeds do.
    """
    told = [(name, set(first[name]), set(second[name])) for name in LABELS]
    sides = [[json.loads(t) for t in set(one["setting"])] for one in (first, second)]
    for key in sorted({key for side in sides for setting in side for key in setting}):
        a, b = (
            {setting_text(one[key]) for one in side if key in one} for side in sides
        )
        told.append((key, a, b))
    # What both have says more than the parameters of an algorithm that one has alone.
    told.sort(key=lambda one: not (one[1] and one[2]))
    words = [
        f"{key} is {_brief_values(a)} in A and {_brief_values(b)} in B"
        for key, a, b in told
        if not a & b
    ]
    return "; ".join(words[:3])


def _brief_values(values: Iterable[Any]) -> str:
    names = sorted(str(one) for one in values if one != "")
    return ", ".join([*names[:3], *["..."] * (len(names) > 3)]) or "not given"


Array = npt.NDArray[Any]

COMPARED = [*LABELS, "setting"]
TRIAL = [*COMPARED, "seed", "dataset_seed"]
MEASURES = ["objective", "relative_error", *MEASURED, "seconds", "epsilon_certified"]
"""Columns that can be compared."""

WAYS = ["trial", "setting"]
RANK = {"ok": 0, "skipped": 1, "diverged": 2, "error": 3, "timeout": 3, "killed": 3}
"""A status of higher rank than before is a regression."""

EMPTY = {
    **{"measure": "", "runs_a": 0, "runs_b": 0},
    **dict.fromkeys(("median_a", "median_b", "change", "low", "high"), np.nan),
    **{"verdict": "", "note": ""},
}


class ComparisonRule(NamedTuple):
    """The rule by which the runs of a setting are judged.

    Attributes
    ----------
    by : {'trial', 'setting'}
        Change of each common trial, or of the medians over all seeds of each side.
    tolerance : float
        Relative changes up to this size are of no interest.
    interval : float
        Share of the interval of the median change.
    """

    by: str = "trial"
    tolerance: float = 0.05
    interval: float = 0.95

    def check(self) -> None:
        """Refuse values out of range with one sentence."""
        check_choice("--by", self.by, WAYS)
        if not 0 <= self.tolerance < math.inf:
            raise UsageError(f"--tolerance={self.tolerance}: must be 0 or more")
        if not 0 < self.interval < 1:
            raise UsageError(f"--interval={self.interval}: must lie between 0 and 1")

    @property
    def least(self) -> int:
        """Return the least number of runs that can decide, as in a sign test."""
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
        Columns to compare, of `MEASURES`.
    rule : ComparisonRule
        Pairing, tolerance and interval.
    ignore : sequence of str
        Labels, or keys of settings, that may differ between the sides.

    Returns
    -------
    DataFrame
        One row per setting and measure: labels; `dataset`, `algorithm`, `epsilon`, and
        in `setting` its other parameters; `runs_a`, `runs_b` (paired: the
        pairs); `median_a`, `median_b`; the relative `change` B/A - 1 with its interval
        `low`, `high` (nan of too few runs); `verdict` and `note`. Statuses that
        changed are rows with the measure `status`; runs that only one side has are
        rows with the measure `trials` and the verdict `only in A` or `only in B`.

    Raises
    ------
    UsageError
        For a value out of range, or if the two have nothing in common.
    """
    rule.check()
    for measure in on:
        check_choice("--y", measure, MEASURES)
    for name, side in (("A", first), ("B", second)):
        if side.empty:
            raise UsageError(f"compare: {name} has no recorded trials yet")
    sides = drop_keys(name_files_alike([first, second]), ignore)
    both = _join_trials(sides, on, rule)
    arrays = {str(name): both[name].to_numpy() for name in both}
    groups: Any = both.groupby(COMPARED, sort=False).indices
    labels = label_settings(groups)
    rows = []
    for name, places in groups.items():
        group = {column: values[places] for column, values in arrays.items()}
        rows += [
            {**labels[name], **EMPTY, **row}
            for row in _rows_of_setting(group, on, rule)
        ]
    for measure in on:
        if not any(row["measure"] == measure for row in rows):
            raise UsageError(f"--y={measure}: no common trial has a value of it")
    return pd.DataFrame(rows, columns=[*LABELS, *ALWAYS, "setting", *EMPTY])


def _join_trials(
    sides: Sequence[pd.DataFrame], on: Sequence[str], rule: ComparisonRule
) -> pd.DataFrame:
    """Return one row per trial of either side; a lost run has the worst value."""
    columns = []
    for side in sides:
        again = side.loc[side.duplicated(TRIAL), "seed"]
        if len(again):
            raise UsageError(
                "compare: one side has several runs of a setting with "
                f"seed={again.iloc[0]}: ignore less"
            )
        values = {measure: worst_if_lost(side, measure) for measure in on}
        columns.append(side[[*TRIAL, "status"]].assign(**values))
    both = columns[0].merge(columns[1], how="outer", on=TRIAL, suffixes=("_a", "_b"))
    both = both.assign(**{f"in_{s}": both[f"status_{s}"].notna() for s in "ab"})

    def meet(names: list[str]) -> bool:
        there = both.groupby(names, dropna=False)[["in_a", "in_b"]].any()
        return bool(there.all(axis=1).any())

    if not meet(COMPARED if rule.by == "setting" else TRIAL):
        remedy = "--by setting needs no common seeds"
        if not meet(COMPARED):
            why = keys_apart(*sides) or "several keys differ together"
            remedy = f"{why}; --ignore KEY lets a key differ"
        raise UsageError(
            f"compare: no common {rule.by} ({both['in_a'].sum()} trials in A, "
            f"{both['in_b'].sum()} in B); {remedy}"
        )
    return both


def _rows_of_setting(
    group: dict[str, Array], on: Sequence[str], rule: ComparisonRule
) -> Iterator[Row]:
    """Yield the rows of one setting, without its labels."""
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
    """Yield a row if a status changed its rank: of a trial, else the worst one."""
    worst = [max(side, key=RANK.__getitem__) for side in (a, b)]
    pairs = zip(a, b, strict=True) if paired else [worst]
    moved = Counter((x, y) for x, y in pairs if RANK[x] != RANK[y])
    if moved:
        runs = {"measure": "status", "runs_a": len(a), "runs_b": len(b)}
        worse = any(RANK[y] > RANK[x] for x, y in moved)
        note = ", ".join(f"{n} {x} -> {y}" for (x, y), n in moved.items())
        yield {**runs, "verdict": "worse" if worse else "better", "note": note}


def judge_difference(measure: str, a: Array, b: Array, rule: ComparisonRule) -> Row:
    """Return medians, relative change, its interval and the verdict.

    Parameters
    ----------
    measure : str
        One of `MEASURES`.
    a, b : array
        Values of the two sides, at least one each; paired if compared by trial. A
        lost run has the worst value.
    rule : ComparisonRule
        The rule of the judgement.
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
