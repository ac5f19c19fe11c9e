"""Write docs/datasets.md: where datasets come from, and why their bounds are public.

`python -m benchmarks.cards` writes the page. All of its content comes from conf/dataset
and experiments/leaderboard.yaml. No dataset is read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.cells import leaderboard
from dp_erm_bench import registry
from dp_erm_bench.cli.listing import describe_choice
from dp_erm_bench.datasets.spec import card_of, family_of, is_generated
from dp_erm_bench.errors import typed_text
from dp_erm_bench.registry import CARD, CARDS, OFFERED
from dp_erm_bench.report.view import markdown_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "datasets.md"
HEAD = """\
# Data

`python -m benchmarks.cards` generates this page; do not edit it.

The tables give a reason for each bound. A bound is public if it follows from the
meaning of a column. If a publisher scaled columns by the ranges of these records, we
take the scaled columns as given, and no budget pays for the scaling. All other bounds
are choices, and records are clipped to them. **Bounds of standardised columns are
public only in the standardised unit.** Means and standard deviations are computed from
the data, no budget pays for them, and `uncharged` lists `standardisation`. The records
of all datasets of a *family* have the same origin. When the leaderboard makes a
statement about other data, a family counts once.

Bounds in brackets are default bounds. They are used with `dataset.bounds=default`, or
if you declare no bounds and the algorithm needs some. Records are then clipped to the
default bounds. LIBSVM datasets that are not listed below have the default bounds 1 for
columns and 100 for the label, which are choices.
"""
TASKS = {"classification": "Classification", "regression": "Regression"}
BOARD = """
## On the leaderboard

This table lists the options that differ from the yaml file of a dataset. All records
and labels are clipped to these bounds. A bound is a choice unless the tables above give
a reason for it. After clipping, a constant column is added for the intercept.

"""
GENERATED = "\n## Generated\n\n"


def described_sets() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the fields of each dataset that has a description.

    A member of a collection, such as a LIBSVM set, has its own description.
    """
    for base in registry.names("dataset"):
        fields = registry.read_choice("dataset", base)
        if CARD in fields:
            yield base, fields
        for member in fields.get(CARDS, {}):
            card = card_of(f"{base}:{member}")
            labels = ["label" in card[key] for key in OFFERED if key in card]
            task = "regression" if any(labels) else "classification"
            yield f"{base}:{member}", {"task": task, CARD: card, **card}


def row_of_set(name: str, fields: dict[str, Any]) -> dict[str, str]:
    """Return the row of a dataset in the table of the page."""
    card, bounds = fields[CARD], []
    if fields.get("bounds"):
        bounds.append(f"{_spell_bounds(fields['bounds'])}: {card['why']}")
    for key, form in zip(OFFERED, ("", "standardised, "), strict=True):
        if offered := fields.get(key):
            bounds.append(f"[{form}{_spell_bounds(offered)}: {offered['why']}]")
    row = {"data": name, "family": card["family"]}
    row |= {key: f"{card[key]}" for key in ("n", "p", "origin", "licence")}
    return row | {"bounds and reasons": "; ".join(bounds)}


def _spell_bounds(bounds: dict[str, Any]) -> str:
    kept = {k: v for k, v in bounds.items() if k != "why" and v is not None}
    return ", ".join(f"{key} {typed_text(value)}" for key, value in kept.items())


def rows_of_board() -> Iterator[dict[str, str]]:
    """Yield a row for each distinct dataset of the leaderboard."""
    seen = []
    for block in leaderboard():
        spec = dict(block["dataset"])
        if spec in seen:
            continue
        seen.append(dict(spec))
        name = ":".join(filter(None, (spec.pop("name"), spec.pop("set", ""))))
        bounds = _spell_bounds(spec.pop("bounds"))
        kept = ", ".join(f"{key} {typed_text(value)}" for key, value in spec.items())
        panel = block["panel"].rpartition("_")[0]
        of = {"data": name, "family": family_of(name), "bounds": bounds}
        yield {"problem": panel, **of, "other options": kept}


def page_of_data() -> str:
    """Return the text of the page."""
    sets = [*described_sets()]
    text = HEAD
    for task, title in TASKS.items():
        rows = [row_of_set(name, of) for name, of in sets if of["task"] == task]
        text += f"\n## {title}\n\n{_table_of_rows(rows)}"
    text += BOARD + _table_of_rows([*rows_of_board()])
    drawn = filter(is_generated, registry.names("dataset"))
    words = (f"- `{one}`: {describe_choice('dataset', one)}\n" for one in drawn)
    return text + GENERATED + "".join(words)


def _table_of_rows(rows: list[dict[str, str]]) -> str:
    frame = pd.DataFrame(rows)
    return markdown_table(frame.set_index(frame.columns[0])).replace("---:", "---")


if __name__ == "__main__":
    PAGE.write_text(page_of_data(), encoding="utf-8")
