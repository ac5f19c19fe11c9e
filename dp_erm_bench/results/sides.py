"""The two sides of a comparison: those of a key within one folder, and what differs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.results.finals import LABELS, Row, keys_above, spelled, without

if TYPE_CHECKING:
    import pandas as pd


def between(
    finals: pd.DataFrame, key: str, where: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[tuple[str, pd.DataFrame]], dict[str, str]]:
    """Return final rows by the values of a key, alike in name but for it.

    A value of which every trial was skipped is no side: in a tuned folder it has no
    choices that could run.

    Parameters
    ----------
    finals : DataFrame
        What `named_finals` returns.
    key : str
        A key of the settings, or a parameter's plain name. Between algorithms their
        parameters differ, too, and so do the lines of an experiment.
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
    texts = {text: json.loads(text) for text in set(finals["setting"])}
    keys = {part for one in texts.values() for k in one for part in keys_above(k)}
    for name in (key, *(where or ())):
        check_choice("--between" if name == key else "--where", name, sorted(keys))
    kept = [text for text, one in texts.items() if _meets(one, where or {})]
    finals = finals[finals["setting"].isin(kept)]
    owner = finals["setting"].map({text: _value(texts[text], key) for text in kept})
    skipped = _skipped(finals, owner)
    found = sorted({*owner} - {"", *skipped})
    if len(found) < 2:
        raise _single(key, found, skipped)
    (named,) = without([finals], [key, "line"])
    sides = [(value, named[(owner == value).to_numpy()]) for value in found]
    for value, side in sides:
        twice = side.duplicated([*LABELS, "setting", "seed", "dataset_seed"])
        if twice.any():
            same = side["setting"].eq(side.loc[twice, "setting"].iloc[0])
            several = set(finals.loc[side.index[same], "setting"])
            raise _several(key, value, [texts[text] for text in several])
    return sides, skipped


def _skipped(finals: pd.DataFrame, owner: pd.Series[str]) -> dict[str, str]:
    """Return the values of a key of which nothing ran, with the distinct reasons."""
    ran = {*owner[finals["status"] != "skipped"]}
    never = finals["message"][~owner.isin({*ran, ""})]
    return {
        str(value): "; ".join(dict.fromkeys(reasons.astype(str)))
        for value, reasons in never.groupby(owner)
    }


def _meets(setting: Row, where: Mapping[str, Sequence[str]]) -> bool:
    return all(_value(setting, k) in ("", *map(_plain, v)) for k, v in where.items())


def _single(key: str, found: Sequence[str], skipped: Mapping[str, str]) -> UsageError:
    """Return the error of a key without two values to compare."""
    rest = "".join(f"; {one} was skipped: {why}" for one, why in skipped.items())
    values = ", ".join(found) or "none that ran"
    return UsageError(f"--between={key}: it has one value here, {values}{rest}")


def _several(key: str, value: str, settings: Sequence[Row]) -> UsageError:
    """Return the error of a side that has several settings."""
    every = {name for one in settings for name in one}
    names = sorted({name for name in every if _differs(name, settings)} - {key})
    return UsageError(
        f"--between={key}: {value} has several settings, which differ in "
        f"{', '.join(names)}; keep one of them with --where KEY=VALUE"
    )


def _value(setting: Row, key: str) -> str:
    own = [v for k, v in setting.items() if key in (k, k.rpartition(".")[2])]
    return _plain(spelled(own[0])) if own else ""


def _plain(word: str) -> str:
    """Return a number as one types it, 1.0 as 1."""
    try:
        return f"{float(word):.12g}"
    except ValueError:
        return word


def _differs(key: str, settings: Sequence[Row]) -> bool:
    return len({spelled(one.get(key, "")) for one in settings}) > 1


def apart(first: pd.DataFrame, second: pd.DataFrame) -> str:
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
        a, b = ({spelled(one[key]) for one in side if key in one} for side in sides)
        told.append((key, a, b))
    words = [
        f"{key} is {_brief(a)} in A and {_brief(b)} in B"
        for key, a, b in told
        if not a & b
    ]
    return "; ".join(words[:3])


def _brief(values: Iterable[Any]) -> str:
    names = sorted(str(one) for one in values if one != "")
    return ", ".join([*names[:3], *["..."] * (len(names) > 3)]) or "not given"
