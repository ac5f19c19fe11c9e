"""The command advise: recommend an algorithm from public numbers alone."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence

from dp_erm_bench.cli.options import parser_of
from dp_erm_bench.errors import typed_text
from dp_erm_bench.rules.advice import Advice, ForecastRange, advise

BLIND = (
    "It knows nothing of classes, sparsity or tails of your data. With rare classes "
    "or few features that matter, everything may be different."
)

OTHERS = (
    "All rules that can be defaults. On left-out data, a choice among more of them "
    "than `auto` considers was no better, whatever is expected here."
)


def advise_command(arguments: Sequence[str]) -> int:
    """Print the recommended algorithm, the expected error, and published evidence.

    Raises
    ------
    UsageError
        For a missing option, or a value that is not allowed.
    """
    options = vars(parser_of("advise").parse_args(arguments))
    rows, as_json = options.pop("rows"), options.pop("json")
    found = advise(**options)
    if as_json:
        print(json.dumps(_without_nan(dataclasses.asdict(found)), indent=1))
        return 0
    print("\n".join(sentences_of_advice(found, rows)))
    return 0


def sentences_of_advice(found: Advice, rows: bool = False) -> Iterator[str]:
    """Yield the text of the advice line by line: plain words, then a table."""
    if found.settings:
        given = " ".join(f"{k}={typed_text(v)}" for k, v in found.settings.items())
        yield f"Run {found.algorithm}, with {given}."
    else:
        more = "no number of records that was tried would do better"
        if found.sufficient_n:
            more = f"about n = {found.sufficient_n} would do better"
        yield f"Do not fit: w = 0 is expected to be as good as any rule; {more}."
    best = found.best
    yield (
        f"{best.algorithm} is expected to leave {_percent(best.left)} of the excess of "
        f"w = 0, and to gain {_percent(best.gained)} of what the optimum has in test "
        "accuracy (or R2) beyond the base rate."
    )
    if found.sparse:
        yield (
            "The declared nonzeros chose it, which one generated data set "
            "(quasi_sparse) supports. The numbers here are for data without known "
            "sparsity."
        )
    if found.beyond:
        yield f"This is extrapolated, from the nearest that was judged: {found.beyond}."
    if found.hits is not None:
        hits = round(found.hits * len(found.cells))
        yield (
            f"In the {len(found.cells)} published cells nearby the choice made without "
            f"their data was within 10 % of the best rule in {hits}."
        )
    if math.isfinite(found.tuning):
        yield (
            f"In these cells its error was {found.tuning:.2g} times that of the best "
            "tuned algorithm. But tuning reads the data, and no budget covers it."
        )
    yield BLIND
    yield ""
    if found.others:
        yield OTHERS
        yield ""
    yield "| algorithm | leaves of w = 0 (80 %) | gains (80 %) |"
    yield "| --- | ---: | ---: |"
    for one in (best, *found.others):
        yield f"| {one.algorithm} | {_percent(one.left)} | {_percent(one.gained)} |"
    if rows:
        yield ""
        yield "| panel | epsilon | N | p | leaves | score | base rate | optimum |"
        yield "| --- |" + " ---: |" * 7
        for row in found.cells:
            numbers = [row[key] for key in ("epsilon", "records", "p")]
            numbers += [row[key] for key in ("left", "score", "base", "best")]
            yield f"| {row['panel']} | {' | '.join(f'{v:.3g}' for v in numbers)} |"


def _percent(range_: ForecastRange) -> str:
    """Return an expected value and its range as a string, as in 12 % (3 to 40 %)."""
    percents = [100.0 * one for one in dataclasses.astuple(range_)]
    expected, low, high = (
        f"{one:.0f}" if abs(one) >= 10.0 else f"{one:.2g}" for one in percents
    )
    return f"{expected} % ({low} to {high} %)"


def _without_nan(value: object) -> object:
    """Return a value with None in place of NaN and infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
