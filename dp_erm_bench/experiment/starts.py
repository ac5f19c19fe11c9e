"""Where the tuning of an algorithm starts if nobody says: grid, limits, seeds, search.

An algorithm that the leaderboard tunes starts with the leaderboard's grid; any other
with a grid around the defaults of its own fields.
"""

import re
from collections.abc import Iterator
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.parameters import Algorithm, algorithm_of, normalised
from dp_erm_bench.experiment.space import LENGTHS
from dp_erm_bench.registry import ALGORITHM

SOURCE = "leaderboard"
"""The experiment whose grids, limits, seeds and profiles are the usual ones."""

PROFILE = "published"
"""The usual one: a search of one's own is as long as those of docs/leaderboard.md."""

MOST_AXES = 3
"""Of a grid around defaults: lengths first, then `step`, `clip`, the rest in order."""

AROUND = (0.25, 1.0, 4.0)
"""Times a default: the grid of a field."""

OF_PROFILE = re.compile(r"\$\{profiles\.\$\{profile\}\.(\w+)\}")
FIRST = (*LENGTHS, "step", "clip")
BATCH = "batch_size"

Section = dict[str, Any]


def start_of(name: str, profile: str) -> tuple[Section, Section]:
    """Return the fixed parameters and the `tune` that an algorithm starts with.

    Parameters
    ----------
    name : str
        Name of the algorithm; the pin of a file.
    profile : str
        One of the leaderboard's; its sizes of grids, seeds and searches.

    Raises
    ------
    UsageError
        If there is no such profile.
    """
    for block in _source(profile):
        own = block[ALGORITHM]
        own = {"name": own} if isinstance(own, str) else dict(own)
        if own.pop("name") == name:
            return own, {**block["tune"], **_seeds(block["tune"])}
    usual = next(_source(profile))["tune"]
    axes = dict(_around(algorithm_of(name), usual["axes"]["clip"]))
    return {}, {"axes": axes, "search": usual["search"], **_seeds(usual)}


def _source(profile: str) -> Iterator[Section]:
    """Yield the blocks of the leaderboard that tune, under a profile."""
    tree = registry.read("experiment", SOURCE)
    registry.check_choice("profile", profile, sorted(tree["profiles"]))
    usual = tree["profiles"][profile]
    yield from (_filled(block, usual) for block in tree["blocks"] if "tune" in block)


def _filled(value: Any, usual: Section) -> Any:
    """Return a part of a block with the values of a profile in their places."""
    if isinstance(value, dict):
        return {key: _filled(one, usual) for key, one in value.items()}
    place = OF_PROFILE.fullmatch(value) if isinstance(value, str) else None
    return usual[place[1]] if place else value


def _seeds(tune: Section) -> dict[str, list[int]]:
    """Return the two kinds of seeds as lists; the file has them as `range(0,16)`."""
    found = {}
    for key in ("seeds", "report"):
        first, last = map(int, re.findall(r"\d+", tune[key]))
        found[key] = [*range(first, last)]
    return found


def _around(algorithm: Algorithm, clip: Any) -> Iterator[tuple[str, Any]]:
    """Yield the axes of a grid around the defaults of an algorithm's fields.

    Numbers of at least 0 have an axis, and `clip` without a default that of `clip`;
    a batch size has none.
    """
    fields = algorithm.cls.__dataclass_fields__
    declared = [key for key, kind in algorithm.kinds.items() if kind and key != BATCH]
    order = sorted(declared, key=lambda k: FIRST.index(k) if k in FIRST else len(FIRST))
    count = 0
    for key in order:
        default = algorithm.preset.get(key, fields[key].default)
        if count == MOST_AXES:
            return
        if key == "clip" and default is None:
            count += 1
            yield key, clip
        elif type(default) in (int, float) and default > 0:
            values = [default * factor for factor in AROUND]
            if type(default) is int:
                values = [max(1, round(value)) for value in values]
            kept = [v for v in dict.fromkeys(values) if _allowed(algorithm, key, v)]
            if len(kept) > 1:
                count += 1
                yield key, kept


def _allowed(algorithm: Algorithm, key: str, value: float) -> bool:
    try:
        algorithm.solver({key: value})
    except UsageError:
        return False
    return True


def fitting(name: str, key: str, values: list[Any], n: int) -> list[Any]:
    """Return typed values of a parameter, batches cut at the n records there are."""
    typed = [normalised(name, key, value) for value in values]
    if key == BATCH:
        typed = [min(value, n) if type(value) is int else value for value in typed]
    return list(dict.fromkeys(typed))
