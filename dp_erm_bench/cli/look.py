"""The command look: what a csv holds, and a line that runs on it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from dp_erm_bench.cli.line import parse, quoted
from dp_erm_bench.datasets.file import file
from dp_erm_bench.datasets.prepare import DEFAULT, FILL_IN
from dp_erm_bench.datasets.records import LABEL_PAIRS, MOST_CLASSES
from dp_erm_bench.datasets.table import Look, Seen
from dp_erm_bench.errors import UsageError, check_key, escaped, heading

KEYS = ("format", "header", "index", "label")
"""Keys of the dataset that say how the file is read."""

LABELS = ("label", "target", "class", "outcome", "response", "y")
"""What the column of labels is often called."""

SHOWN = 6
"""Words of a column that are shown with their counts."""

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
ALGORITHMS = "gd,random_cd,objective_perturbation"


def look_command(arguments: Sequence[str]) -> int:
    """Print what a csv holds, all of it read off its records, and a line to run.

    Parameters
    ----------
    arguments : sequence of str
        The path of the file, and `dataset.KEY=VALUE` for any of `KEYS`.

    Raises
    ------
    UsageError
        For another key, no file, or one that is no csv.
    """
    path, how, typed = _asked(arguments)
    found = file.look(path, **how)
    label = _label(found, how)
    print(
        "\n".join([*_table(path, found, label), "", *_line(path, found, label, typed)])
    )
    return 0


def _asked(arguments: Sequence[str]) -> tuple[str, dict[str, Any], list[str]]:
    """Return the path, the keys that are given, and those as they were typed."""
    paths = [one for one in arguments if not one.startswith(("dataset.", "-"))]
    typed = [one for one in arguments if one.startswith("dataset.")]
    if len(paths) != 1 or len(paths) + len(typed) != len(arguments):
        raise UsageError(
            "look: takes the name of one csv and keys that say how it is read, as in "
            "dp-erm-bench look my.csv dataset.header=true"
        )
    how = {}
    for text in typed:
        one = parse(text)
        check_key(one.key, [f"dataset.{key}" for key in KEYS], "look")
        how[one.key.partition(".")[2]] = one.values[0]
    return paths[0], how, typed


def _label(found: Look, how: dict[str, Any]) -> Seen:
    """Return the column that is proposed as the label."""
    by_name = {str(one.name).strip().casefold(): one for one in found.columns}
    given = [one for one in found.columns if one.name == found.label]
    usual = [by_name[name] for name in LABELS if name in by_name]
    return given[0] if "label" in how or not usual else usual[0]


def _table(path: str, found: Look, label: Seen) -> Iterator[str]:
    first = "row 1 names them" if found.named else "row 1 is a record"
    yield (
        f"{escaped(path)}: {found.records} records, {len(found.columns)} columns "
        f"separated by {SEPARATORS[found.sep]}, {first}"
    )
    yield "All of this is read off the records: not private, and no source of bounds."
    rows = [("column", "kind", "missing", "range and words, read off the records")]
    for one in found.columns:
        more = " (proposed label)" * (one is label)
        if one is not label and one.equal == label.equal:
            more = f" (tells {heading(label.name)} by itself; leave it out if it is no"
            more += " feature)"
        rows.append((heading(one.name), one.kind, str(one.missing), _cells(one) + more))
    wide = [max(map(len, cells)) for cells in list(zip(*rows, strict=True))[:3]]
    for name, kind, missing, cells in rows:
        cell = f"{name:{wide[0]}}  {kind:{wide[1]}}  {missing:>{wide[2]}}  {cells}"
        yield f"  {cell}".rstrip()


def _cells(one: Seen) -> str:
    """Return the range of a column's numbers, and its words with their counts."""
    ends = f"{one.low:g} .. {one.high:g}" if one.low == one.low else ""
    few = len(one.counts) <= MOST_CLASSES
    if not few and one.kind == "numbers":
        return ends
    listed = [f"{escaped(k)} {n}" for k, n in [*one.counts.items()][:SHOWN]]
    more = f", {len(one.counts) - SHOWN} more" * (len(one.counts) > SHOWN)
    return "; ".join(filter(None, [ends, ", ".join(listed) + more]))


def _line(path: str, found: Look, label: Seen, typed: Sequence[str]) -> Iterator[str]:
    """Yield what the reader refuses, then a command line and what it leaves open."""
    missing = [heading(one.name) for one in found.columns if one.missing]
    wrong = list(found.wrong)
    if missing:
        wrong.append(
            f"values are missing in {', '.join(missing)}; none may be: fill them with "
            "a number or word that is known without the records, not with a mean of "
            "theirs, or leave these records out"
        )
    yield from (f"To be decided before it is read: {one}" for one in wrong)
    categories = [one for one in found.columns if one is not label]
    categories = [one for one in categories if _is_category(one)]
    numbers = [
        one for one in found.columns if one.kind == "numbers" and one is not label
    ]
    words = ["tune", "dataset=file", f"dataset.path={_value(path)}"]
    given = [text for text in typed if not text.startswith("dataset.label=")]
    # A number is a place among the columns that are read: a heading of one is quoted.
    place = found.columns.index(label)
    words += [*given, f"dataset.label={_value(label.name) if found.named else place}"]
    target, regression = _target(label)
    words += target
    if categories:
        named = ",".join(_value(str(one.name), int) for one in categories)
        words.append(f"dataset.onehot=[{named}]")
    bounds = _bounds([_feature(one, found, label) for one in numbers])
    bounds += f",label:{FILL_IN}" * regression
    words += [f"dataset.bounds={{{bounds}}}", "dataset.scale=bounds"]
    words += ["dataset.clip_to_bounds=true", "dataset.test_fraction=0.2"]
    words += [f"algorithm={ALGORITHMS}", "budget.epsilon=0.1,1"]
    yield (
        f"A line to run; replace each {FILL_IN} by a bound on the absolute value, or "
        "by [low,high], that is known without the records:"
    )
    yield f"dp-erm-bench {shlex.join(words)}"
    read = ["dataset.header=true or false"] * ("dataset.header" not in "".join(typed))
    read += ["dataset.classes=[...], all labels that there may be"] * (not regression)
    read += ["dataset.onehot={COLUMN:[...]}, all words of a column"] * bool(categories)
    if read:
        yield "Read off the records, and listed by `uncharged`, unless it is declared:"
        yield f"  {'; '.join(read)}"


def _feature(one: Seen, found: Look, label: Seen) -> str:
    """Return how a feature is called: without headings by its place among them.

    A column of words before it takes as many places as it has words.
    """
    if found.named:
        return str(one.name)
    before = [other for other in found.columns if other is not label]
    before = before[: before.index(one)]
    return f"x{sum(len(c.counts) if _is_category(c) else 1 for c in before)}"


def _is_category(one: Seen) -> bool:
    """Return whether a column holds words, as categories do."""
    return one.kind.startswith("words")


def _target(label: Seen) -> tuple[list[str], bool]:
    """Return the keys that the labels need, and whether they are of a regression."""
    known = list(label.counts)
    if label.kind == "numbers":
        if len(known) > MOST_CLASSES:
            return ["loss=huber"], True
        if tuple(sorted(map(float, known))) in LABEL_PAIRS:
            return [], False
        return [f"dataset.positive=[{max(known, key=float)}]"], False
    return [f"dataset.positive=[{_value(max(known, default='...'))}]"], False


def _bounds(names: Sequence[str]) -> str:
    """Return bounds by name to be filled in; a default where a name cannot be typed."""
    typed = {name: _key(name) for name in names}
    known = [f"{key}:{FILL_IN}" for key in typed.values() if key]
    others = f",{DEFAULT}:{FILL_IN}" * (not all(typed.values()))
    return f"columns:{{{','.join(known)}}}{others}"


def _key(name: str) -> str:
    """Return a name as the key of a mapping that is typed, empty if it can be none."""
    spelled = "".join(f"\\{c}" if c in "\\()[]{}:=, \t" else c for c in name)
    for text in (name, spelled):
        try:
            (value,) = parse(f"dataset.bounds={{columns:{{{text}:1}}}}").values
        except UsageError:
            continue
        if isinstance(value, dict) and [*map(str, value["columns"])] == [name]:
            return text
    return ""


def _value(text: str, *more: type) -> str:
    """Return a text so that it is read as itself, or as one of more types."""
    try:
        ((value,),) = parse(f"dataset.onehot=[{text}]").values
    except (UsageError, ValueError, TypeError):
        value = None
    plain = type(value) in (str, *more) and str(value) == text
    return text if plain else quoted(text)
