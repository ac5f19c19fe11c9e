"""Compare the final values of two results folders, trial by trial or by setting."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.results.change import HIGHER_IS_BETTER, MEASURES, Rule, judged
from dp_erm_bench.results.finals import ALWAYS, LABELS, labelled
from dp_erm_bench.results.settings import worst_if_lost

Array = npt.NDArray[Any]
Row = dict[str, Any]

NAME = [*LABELS, "setting"]
SEEDS = ["seed", "dataset_seed"]
RANK = {"ok": 0, "skipped": 1, "diverged": 2, "error": 3, "timeout": 3, "killed": 3}
"""A status of higher rank than before is a regression."""

EMPTY = {
    **{"measure": "", "runs_a": 0, "runs_b": 0},
    **dict.fromkeys(("median_a", "median_b", "change", "low", "high"), np.nan),
    **{"verdict": "", "note": ""},
}


def compare(
    first: pd.DataFrame,
    second: pd.DataFrame,
    on: Sequence[str] = ("objective",),
    rule: Rule = Rule(),  # noqa: B008
    ignore: Sequence[str] = (),
) -> pd.DataFrame:
    """Compare two sides, A and B, setting by setting.

    Parameters
    ----------
    first, second : DataFrame
        Final rows of A and of B with their `setting` (see `named_finals`).
    on : sequence of str
        Columns to compare, of `MEASURES`.
    rule : Rule
        Pairing, tolerance and interval.
    ignore : sequence of str
        Labels, or keys of settings, that may differ between the sides.

    Returns
    -------
    DataFrame
        One row per setting and measure: labels; `dataset`, `algorithm`, `epsilon`, and
        in `setting` what else tells it from others; `runs_a`, `runs_b` (paired: the
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
        check_choice("--on", measure, list(MEASURES))
    for name, side in (("A", first), ("B", second)):
        if side.empty:
            raise UsageError(f"compare: {name} has no recorded trials yet")
    both = _joined(_without([first, second], ignore), on)
    _check_common(both, rule)
    rows = _table(both, on, rule)
    for measure in on:
        if measure not in set(rows["measure"]):
            raise UsageError(f"--on={measure}: no common trial has a value of it")
    return rows


def _table(both: pd.DataFrame, on: Sequence[str], rule: Rule) -> pd.DataFrame:
    """Return the rows of all settings, with their labels."""
    arrays = {str(name): both[name].to_numpy() for name in both}
    groups: Any = both.groupby(NAME, sort=False).indices
    labels = labelled(groups)
    rows = []
    for name, places in groups.items():
        group = {column: values[places] for column, values in arrays.items()}
        rows += [{**labels[name], **EMPTY, **row} for row in _rows(group, on, rule)]
    return pd.DataFrame(rows, columns=[*LABELS, *ALWAYS, "setting", *EMPTY])


def _rows(group: dict[str, Array], on: Sequence[str], rule: Rule) -> Iterator[Row]:
    """Yield the rows of one setting, without its labels."""
    paired = rule.by == "trial"
    in_a, in_b = group["in_a"], group["in_b"]
    common = in_a & in_b if paired else np.full(len(in_a), in_a.any() and in_b.any())
    for side, lone in (("a", in_a & ~common), ("b", in_b & ~common)):
        if lone.any():
            verdict = f"only in {side.upper()}"
            yield {"measure": "trials", f"runs_{side}": lone.sum(), "verdict": verdict}
    in_a, in_b = in_a & common, in_b & common
    if not in_a.any():
        return
    yield from _statuses(group["status_a"][in_a], group["status_b"][in_b], paired)
    for measure in on:
        a, b = group[f"{measure}_a"], group[f"{measure}_b"]
        known_a, known_b = in_a & ~np.isnan(a), in_b & ~np.isnan(b)
        if paired:
            known_a = known_b = known_a & known_b
        a, b = a[known_a], b[known_b]
        if len(a) and len(b):
            runs = {"measure": measure, "runs_a": len(a), "runs_b": len(b)}
            yield {**runs, **judged(measure, a, b, rule)}


def _statuses(a: Array, b: Array, paired: bool) -> Iterator[Row]:
    """Yield a row if a status changed its rank: of a trial, else the worst one."""
    worst = [max(side, key=lambda status: RANK[status]) for side in (a, b)]
    pairs = list(zip(a, b, strict=True) if paired else [tuple(worst)])
    moves = [RANK[after] - RANK[before] for before, after in pairs]
    if any(moves):
        moved = Counter(pair for pair, move in zip(pairs, moves, strict=True) if move)
        yield {
            "measure": "status",
            "runs_a": len(a),
            "runs_b": len(b),
            "verdict": "worse" if max(moves) > 0 else "better",
            "note": ", ".join(f"{n} {x} -> {y}" for (x, y), n in moved.items()),
        }


def _without(
    sides: Iterable[pd.DataFrame], ignore: Sequence[str]
) -> list[pd.DataFrame]:
    """Return the sides without the labels and keys that are to be ignored."""
    sides = [side.assign(**{n: "" for n in ignore if n in LABELS}) for side in sides]
    keys = set(ignore) - set(LABELS)
    if not keys:
        return sides
    texts = {text: json.loads(text) for side in sides for text in set(side["setting"])}
    keys_known = {
        part for setting in texts.values() for key in setting for part in _up(key)
    }
    for name in sorted(keys):
        check_choice("--ignore", name, sorted({*keys_known, *LABELS}))
    kept = {
        text: json.dumps({k: v for k, v in setting.items() if not keys & set(_up(k))})
        for text, setting in texts.items()
    }
    return [side.assign(setting=side["setting"].map(kept)) for side in sides]


def _up(key: str) -> Iterator[str]:
    """Yield a key, the keys that it stands under, and a parameter's plain name."""
    if key.startswith("algorithm."):
        yield key.rpartition(".")[2]
    while key:
        yield key
        key = key.rpartition(".")[0]


def _joined(given: Iterable[pd.DataFrame], on: Sequence[str]) -> pd.DataFrame:
    """Return one row per trial of either side."""
    sides = []
    for side in given:
        again = side[side.duplicated([*NAME, *SEEDS])]
        if len(again):
            seed = again["seed"].iloc[0]
            raise UsageError(
                f"compare: one side has several runs of a setting with seed={seed}: "
                "ignore less"
            )
        values = {measure: _values(side, measure) for measure in on}
        sides.append(side[[*NAME, *SEEDS, "status"]].assign(**values))
    both = sides[0].merge(
        sides[1], how="outer", on=[*NAME, *SEEDS], suffixes=("_a", "_b")
    )
    here = {f"in_{side}": both[f"status_{side}"].notna() for side in "ab"}
    return both.assign(**here)


def _values(side: pd.DataFrame, measure: str) -> pd.Series[float]:
    """Return a column in which a lost run has the worst value."""
    values = worst_if_lost(side, measure)
    return values.replace(np.inf, 0.0) if measure in HIGHER_IS_BETTER else values


def _check_common(both: pd.DataFrame, rule: Rule) -> None:
    common = both["in_a"] & both["in_b"]
    if rule.by == "setting":
        sides = both.groupby(NAME)[["in_a", "in_b"]].any()
        common = sides["in_a"] & sides["in_b"]
    if not common.any():
        hint = "" if rule.by == "setting" else "; --by setting needs no common seeds"
        raise UsageError(
            f"compare: no common {rule.by} ({both['in_a'].sum()} trials in A, "
            f"{both['in_b'].sum()} in B){hint}; --ignore KEY lets a key differ"
        )
