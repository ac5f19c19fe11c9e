"""The command look: describe a csv file, and propose a command that runs on it.

A *word* is a label or category that is not a number.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_erm_bench.cli.line import parse_argument, quote_text
from dp_erm_bench.cli.options import parser_of
from dp_erm_bench.datasets.file import file
from dp_erm_bench.datasets.prepare import DEFAULT, FILL_IN, NAMES
from dp_erm_bench.datasets.records import (
    LABEL_PAIRS,
    MOST_CLASSES,
    as_number,
    fold_word,
    names_in,
)
from dp_erm_bench.datasets.table import LEFT_OUT, NOTHING, UNNAMED, Look, Seen
from dp_erm_bench.errors import UsageError, check_key, escape_line, quote_heading

KEYS = ("drop", "format", "header", "index", "label")
"""Keys of the dataset that determine how the file is read."""

LABELS = ("label", "target", "class", "outcome", "response", "y")
"""Common headings of the column of labels."""

SHOWN = 6
"""Number of words of a column that are shown with their counts."""

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
ALGORITHMS = "gd,random_cd,objective_perturbation"


def look_command(arguments: Sequence[str]) -> int:
    """Print the columns of a csv file and a command that runs on it.

    All printed facts are read from the records, so they are not private.

    Parameters
    ----------
    arguments : sequence of str
        The path of the file, and `dataset.KEY=VALUE` for any of `KEYS`.

    Raises
    ------
    UsageError
        For another key, a missing file, or a file that is not a csv.
    """
    options = parser_of("look").parse_intermixed_args(arguments)
    path, how = options.path, {}
    for one in map(parse_argument, options.keys):
        check_key(one.key, [f"dataset.{key}" for key in KEYS], "look")
        how[one.key.partition(".")[2]] = one.values[0]
    given = dict(text.split("=", 1) for text in options.keys)
    found = file.look(path, **how)
    label = _propose_label(found, how)
    line = _proposal_lines(path, found, label, names_in(how.get("drop")), given)
    print("\n".join([*_column_table(path, found, label), "", *line]))
    return 0


def _propose_label(found: Look, how: dict[str, Any]) -> Seen:
    """Return the column that is proposed as the label."""
    by_name = {str(one.name).strip().casefold(): one for one in found.columns}
    given = [one for one in found.columns if one.name == found.layout.label]
    usual = [by_name[name] for name in LABELS if name in by_name]
    return given[0] if "label" in how or not usual else usual[0]


def _column_table(path: str, found: Look, label: Seen) -> Iterator[str]:
    first = "row 1 names them" if found.layout.named else "row 1 is a record"
    yield (
        f"{escape_line(path)}: {found.records} records, {len(found.columns)} columns "
        f"separated by {SEPARATORS[found.layout.how['sep']]}, {first}"
    )
    yield (
        "All of this is computed from the records: not private, and no source of "
        "bounds."
    )
    rows = [("column", "kind", "missing", "range and words, computed from the records")]
    for one in found.columns:
        more = " (proposed label)" * (one is label)
        if one is not label and _reveals_label(one, label):
            more = (
                f" (tells {quote_heading(label.name)} by itself; leave it out if it is"
            )
            more += " no feature)"
        rows.append(
            (
                quote_heading(one.name),
                one.kind,
                str(one.missing),
                _describe_cells(one) + more,
            )
        )
    wide = [max(map(len, cells)) for cells in list(zip(*rows, strict=True))[:3]]
    for name, kind, missing, cells in rows:
        cell = f"{name:{wide[0]}}  {kind:{wide[1]}}  {missing:>{wide[2]}}  {cells}"
        yield f"  {cell}".rstrip()


def _reveals_label(one: Seen, label: Seen) -> bool:
    """Return whether a column determines the label, beyond what chance explains.

    At least one label must occur twice. Always guessing the most frequent label must be
    wrong significantly more often (by 4 standard deviations).
    """
    counts = list(label.counts.values())
    if one.equal != label.equal or max(counts, default=0) < 2:
        return False
    n = sum(counts)
    share = max(counts) / n
    return 1.0 - share > 4.0 * math.sqrt(share * (1.0 - share) / n)


def _describe_cells(one: Seen) -> str:
    """Return a string with the range of a column's numbers and counts of its words."""
    ends = f"{one.low:g} .. {one.high:g}" if one.low == one.low else ""
    if len(one.counts) > MOST_CLASSES and one.kind == "numbers":
        return ends
    more = f", {len(one.counts) - SHOWN} more" * (len(one.counts) > SHOWN)
    return "; ".join(filter(None, [ends, _frequent_words(one) + more]))


def _frequent_words(one: Seen, most: int = SHOWN) -> str:
    """Return the most frequent words of a column with their counts."""
    return ", ".join(f"{escape_line(k)} {n}" for k, n in [*one.counts.items()][:most])


def _proposal_lines(
    path: str,
    found: Look,
    label: Seen,
    dropped: Sequence[str],
    given: Mapping[str, str],
) -> Iterator[str]:
    """Yield the faults of a file, a command line to run, and what is left to decide."""
    # An index column without a heading is kept here, as the user must decide on it.
    out = [
        one
        for one in found.columns
        if one is not label
        and one.kind in LEFT_OUT
        and (one.kind == NOTHING or not str(one.name).startswith(UNNAMED))
    ]
    kept = [one for one in found.columns if one not in out]
    features = [one for one in kept if one is not label]
    words = [one for one in features if _is_category(one)]
    numbers = [one for one in features if one not in words]
    regression = _is_target(label)
    wrong = [*found.wrong, *_wrong_label(label)]
    wrong += [told for one in features for told in _double_spellings(one)]
    if missing := [quote_heading(one.name) for one in kept if one.missing]:
        wrong.append(
            f"values are missing in {', '.join(missing)}: fill them with a number or "
            "word chosen without the records, not with their mean, or leave these "
            "records out"
        )
    yield from (f"Decide before it is read: {one}" for one in wrong)
    keys = {"dataset": "file", "dataset.path": _typed_value(path), **given}
    # An unquoted number means the position of a column. So a heading that is a number
    # is quoted.
    place = kept.index(label) - len(kept) * bool(out or dropped)
    keys["dataset.label"] = (
        _typed_value(label.name) if found.layout.named else str(place)
    )
    codes = tuple(sorted(map(as_number, label.counts)))
    is_open = not regression and len(codes) == 2 and codes not in LABEL_PAIRS
    if is_open:
        keys["dataset.positive"] = FILL_IN
    if out:
        keys["dataset.drop"] = _typed_list([*dropped, *[one.name for one in out]])
    if words:
        keys["dataset.onehot"] = _typed_list([one.name for one in words])
    bounds = _bounds_to_fill(
        [_feature_name(one, found.layout.named, features) for one in numbers]
    )
    bounds += f",label:{FILL_IN}" * regression
    keys |= {"dataset.bounds": f"{{{bounds}}}", "dataset.scale": "bounds"}
    if not any(str(one.name).strip("() ").casefold() in NAMES for one in features):
        keys["dataset.intercept"] = "1"
    keys |= {"dataset.clip_to_bounds": "true", "dataset.test_fraction": "0.2"}
    keys |= {"loss": "huber"} if regression else {}
    keys |= {"algorithm": ALGORITHMS, "budget.epsilon": "0.1,1"}
    yield (
        f"A line to run; replace each {FILL_IN} by a bound on the absolute value, or "
        "by [low,high], that is known without the records"
        f"{', that of positive by the label that becomes +1' * is_open}:"
    )
    line = ["dp-erm-bench", "tune", *(f"{key}={value}" for key, value in keys.items())]
    yield shlex.join(line)
    p = len(numbers) + sum(len(one.counts) for one in words) + 1
    asked = f"--n {round(0.8 * found.records)} --p {p} --norm {FILL_IN} --epsilon 1"
    asked += f" --loss huber --label {FILL_IN}" * regression
    yield (
        "What to expect, without reading the records; the norm is at most sqrt(p), "
        "because scale=bounds maps columns to [-1, 1]:"
    )
    yield f"dp-erm-bench advise {asked}"
    read = ["dataset.header=true or false"] * ("dataset.header" not in given)
    read += ["dataset.classes=[...], all possible labels"] * (not regression)
    read += ["dataset.onehot={COLUMN:[...]}, all words of a column"] * bool(words)
    if read:
        yield (
            "Inferred from the records, and listed in `uncharged` unless you declare "
            "it:"
        )
        yield f"  {'; '.join(read)}"
    kinds = ", and which columns it leaves out or takes for categories"
    yield (
        f"What the label is, hence the loss{kinds * bool(out or words)}, was read off "
        "the records, too."
    )


def _feature_name(one: Seen, named: bool, features: Sequence[Seen]) -> str:
    """Return the name of a feature: its heading, or its position if there is none.

    A column of words before it counts as many positions as it has words.
    """
    if named:
        return str(one.name)
    before = features[: features.index(one)]
    return f"x{sum(len(c.counts) if _is_category(c) else 1 for c in before)}"


def _double_spellings(one: Seen) -> Iterator[str]:
    """Yield a warning if some words of a column differ only in case or form."""
    different = len({*map(fold_word, one.counts)})
    if _is_category(one) and different < len(one.counts):
        yield (
            f"column {quote_heading(one.name)} holds {len(one.counts)} words in "
            f"{different} "
            f"spellings but for case and form ({_frequent_words(one, MOST_CLASSES)}); "
            "correct "
            "them"
        )


def _is_category(one: Seen) -> bool:
    """Return whether a column contains words, and is thus a category."""
    return one.kind.startswith("words")


def _is_target(label: Seen) -> bool:
    """Return whether the labels are targets of a regression."""
    return label.kind.startswith("numbers") and len(label.counts) > MOST_CLASSES


def _wrong_label(label: Seen) -> Iterator[str]:
    """Yield reasons why a column cannot be the label without changes."""
    whose, count = f"column {quote_heading(label.name)}, the label,", len(label.counts)
    if _is_target(label):
        return
    if label.kind in LEFT_OUT or count > MOST_CLASSES:
        yield f"{whose} holds {label.kind}; name another one with dataset.label"
    elif count < 2:
        yield f"{whose} holds one label alone; name another one with dataset.label"
    elif count > 2:
        numbers = ", or take them as numbers with dataset.task=regression"
        yield (
            f"{whose} holds {count} different labels ({_frequent_words(label)}); name "
            "those "
            "that become +1, all others becoming -1, with dataset.positive=[...]"
            f"{numbers * label.kind.startswith('numbers')}"
        )
    yield from _double_spellings(label)


def _bounds_to_fill(names: Sequence[str]) -> str:
    """Return a string of bounds to fill in; names that cannot be typed share one."""
    typed = {name: _mapping_key(name) for name in names}
    known = [f"{key}:{FILL_IN}" for key in typed.values() if key]
    others = f",{DEFAULT}:{FILL_IN}" * (not all(typed.values()))
    return f"columns:{{{','.join(known)}}}{others}"


def _mapping_key(name: str) -> str:
    """Return a name as typed for a key of a mapping; empty if it cannot be typed."""
    spelled = "".join(f"\\{c}" if c in "\\()[]{}:=, \t" else c for c in name)
    for text in (name, spelled):
        try:
            (value,) = parse_argument(f"dataset.bounds={{columns:{{{text}:1}}}}").values
        except UsageError:
            continue
        if isinstance(value, dict) and [*map(str, value["columns"])] == [name]:
            return text
    return ""


def _typed_value(text: str, *more: type) -> str:
    """Return the text to type so that it is read back as the given string.

    ``more`` lists further types, besides str, as which the text may be read.
    """
    try:
        ((value,),) = parse_argument(f"dataset.onehot=[{text}]").values
    except (UsageError, ValueError, TypeError):
        return quote_text(text)
    return (
        text if type(value) in (str, *more) and str(value) == text else quote_text(text)
    )


def _typed_list(names: Sequence[Any]) -> str:
    """Return names of columns as a list to type."""
    return f"[{','.join(_typed_value(str(name), int) for name in names)}]"
