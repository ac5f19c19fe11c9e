"""Final rows with what names their trials, whatever code computed them.

The key of a trial changes with the code. What was asked for stays: the spec in the
plan, flattened to the spelling of the command line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from dp_erm_bench.datasets.spec import identifying
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import POSED, check_choice
from dp_erm_bench.results.files import plural, typed
from dp_erm_bench.results.plan import NAME, read_plan
from dp_erm_bench.results.settings import final_rows
from dp_erm_bench.results.table import UNREADABLE, recorded

if TYPE_CHECKING:
    import pandas as pd

DERIVED = ("_target_", "usual", "usual_standardised", "usual_regression")
"""Keys of a dataset that do not tell one trial from another."""

# A loss of one's own is that of its name, wherever its file is and after edits.
LEFT_OUT = {
    *("dataset.seed", "loss.file", "loss.content"),
    *(f"dataset.{key}" for key in DERIVED),
}
LABELS = ["panel", "line", "phase"]
ALWAYS = {"dataset": "dataset", "algorithm": "algorithm", "epsilon": "budget.epsilon"}

Name = tuple[str, ...]
Row = dict[str, Any]


def named_finals(folder: Path) -> pd.DataFrame:
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
    if not (folder / NAME).is_file():
        missing = f"no results folder, it has no {NAME}"
        raise UsageError(
            f"{folder}: {missing if folder.is_dir() else 'no such folder'}"
        )
    table = recorded(folder)
    rows = final_rows(table[table["phase"] != "tune"])
    settings = {
        (line["key"], line["tuned"]): _text(line)
        for line in read_plan(folder)
        if line is not None and line["phase"] != "tune"
    }
    names = zip(rows["trial"], rows["tuned"], strict=True)
    named = rows.assign(setting=[settings.get(name, "") for name in names])
    whole = named["setting"] != ""
    if not whole.all():
        trials = plural(int((~whole).sum()), "trial")
        missing = f"{trials} without a whole line of {NAME} left out"
        print(f"{typed(folder)}: {missing}", file=sys.stderr)
    return named[whole]


def flattened(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flattened setting of a line of the plan, without seeds and labels.

    Parameters
    ----------
    line : mapping
        With `spec` and `tuned`.
    """
    spec = line["spec"]
    setting: dict[str, Any] = {}
    for part in [part for part in POSED if part in spec]:
        # A key that came later names no trial where it does what was done before.
        given = identifying(spec[part]) if part == "dataset" else spec[part]
        setting[part] = spec[part]["name"]
        setting |= {f"{part}.{key}": v for key, v in given.items() if key != "name"}
    setting = {key: value for key, value in setting.items() if key not in LEFT_OUT}
    if setting.get("dataset.path"):
        setting["dataset.path"] = PurePath(setting["dataset.path"]).name
    name, params = spec["algorithm"]["name"], spec["algorithm"]["params"]
    chosen = {} if line["tuned"] else params
    return {
        **setting,
        "algorithm": name,
        **{f"algorithm.{name}.{key}": value for key, value in chosen.items()},
        **{f"budget.{key}": value for key, value in spec["budget"].items()},
        "calibration": spec["calibration"],
    }


def _text(line: Mapping[str, Any]) -> str:
    """Return a setting as JSON, empty of a damaged line."""
    try:
        return json.dumps(flattened(line), sort_keys=True)
    except UNREADABLE:
        return ""


def labelled(names: Iterable[Name]) -> dict[Name, Row]:
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
        always = tuple(spelled(setting.get(key, "")) for key in ALWAYS.values())
        alike.setdefault((*name[:-1], *always), []).append((name, setting))
    labels_of = {}
    for labels, members in alike.items():
        differing = _differing([setting for _, setting in members])
        fixed = dict(zip([*LABELS, *ALWAYS], labels, strict=True))
        for name, setting in members:
            rest = [_assigned(key, setting) for key in differing if key in setting]
            labels_of[name] = {**fixed, "setting": " ".join(rest)}
    return labels_of


def _differing(settings: Sequence[Row]) -> list[str]:
    """Return the keys that some settings lack, or that have several values."""
    values: dict[str, list[str]] = {}
    for setting in settings:
        for key, value in setting.items():
            values.setdefault(key, []).append(json.dumps(value))
    number = len(settings)
    return sorted(k for k, v in values.items() if len(v) < number or len({*v}) > 1)


def _assigned(key: str, setting: Row) -> str:
    prefix = f"algorithm.{setting.get('algorithm')}."
    return f"{key.removeprefix(prefix)}={spelled(setting[key])}"


def spelled(value: Any) -> str:
    """Return a value of a setting as text."""
    return value if isinstance(value, str) else json.dumps(value)


def without(sides: Iterable[pd.DataFrame], ignore: Sequence[str]) -> list[pd.DataFrame]:
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
    parts = {
        part
        for setting in texts.values()
        for key in setting
        for part in keys_above(key)
    }
    for name in sorted(keys):
        check_choice("--ignore", name, sorted({*parts, *LABELS}))
    reduced = {
        text: json.dumps(
            {k: v for k, v in setting.items() if not keys & set(keys_above(k))}
        )
        for text, setting in texts.items()
    }
    return [side.assign(setting=side["setting"].map(reduced)) for side in sides]


def keys_above(key: str) -> Iterator[str]:
    """Yield a key, the keys that it stands under, and a parameter's plain name."""
    if key.startswith("algorithm."):
        yield key.rpartition(".")[2]
    while key:
        yield key
        key = key.rpartition(".")[0]
