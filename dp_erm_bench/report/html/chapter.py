"""A results folder as a chapter of the report: panels, claims, choices, results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench import __version__
from dp_erm_bench.errors import UsageError, printable
from dp_erm_bench.report.choices import CHOICES, read_choices
from dp_erm_bench.report.claims.lookup import NOT_JUDGED, SMOKE, UNJUDGED
from dp_erm_bench.report.html.gallery import Gallery, reason
from dp_erm_bench.report.html.origin import about, facts, words_of
from dp_erm_bench.report.html.outcomes import RAN, failures, results
from dp_erm_bench.report.html.parts import (
    Cell,
    Panel,
    Room,
    Table,
    cell,
    mapping,
    of_csv,
    table,
)
from dp_erm_bench.report.make import CLAIMS
from dp_erm_bench.results.runs import is_noted, read_manifest, read_noted
from dp_erm_bench.results.table import COLUMNS, UNREADABLE, is_stale, load_results

if TYPE_CHECKING:
    import pandas as pd

CLAIM = ("statement", "measured", "threshold", "value")
"""Columns of claims.csv that are shown as they are."""

CHOICE = ("panel", "line", "epsilon", "chosen", "mean", "settings", "trials")
AUDITS = "audits.csv"


@dataclass
class Chapter:
    """What the report says of a results folder.

    Attributes
    ----------
    id, name : str
    about : str
        What its experiment is, of one that is part of the package.
    notes : list of str
        Sentences that a reader has to know first.
    facts : list of (str, str)
        Command, machine, commit, versions.
    verdicts : mapping of str to int
        How many claims have each verdict.
    panels : list of Panel
    claims, choices, results, failures, audits : Table or None
    open : int
        The number of open choices.
    """

    id: str
    name: str
    about: str = ""
    notes: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)
    panels: list[Panel] = field(default_factory=list)
    claims: Table | None = None
    choices: Table | None = None
    results: Table | None = None
    failures: Table | None = None
    audits: Table | None = None
    open: int = 0


def chapter(folder: Path, number: int, room: Room) -> Chapter:
    """Return the chapter of a folder, with a sentence for all that it lacks.

    Parameters
    ----------
    folder : Path
        A results folder of anyone's: nothing that it names is imported or run.
    number : int
        Of the chapter, from 1: its ids begin with it.
    room : Room
        Of the page.
    """
    manifest = read_manifest(folder)
    made = Chapter(f"c{number}", printable(folder.resolve().name))
    made.facts = [*facts(manifest)]
    made.about = about(manifest, folder)
    loaded = _loaded(folder, made)
    _versions(manifest, made)
    claims = _claims(folder, made)
    gallery = Gallery(made.id, room, made.panels, made.notes)
    gallery.fill(folder, loaded, [row["figure"] for row in claims])
    if claims:
        made.claims = _claims_table(claims, made, gallery)
    _choices(folder, made, room)
    if loaded is not None:
        made.results = _guarded(made, "its results", lambda: results(loaded, room))
        made.failures = _guarded(made, "its trials", lambda: failures(loaded, room))
    made.audits = _audits(folder, made, room)
    _unnoted(folder, made)
    return made


def _guarded(made: Chapter, what: str, make: Any) -> Table | None:
    """Return a table of a folder's rows, or say that they do not fit."""
    try:
        found: Table | None = make()
    except (UsageError, *UNREADABLE) as error:
        made.notes.append(f"{what} cannot be shown: {reason(error)}")
        return None
    return found if found is not None and found.rows else None


def _loaded(folder: Path, made: Chapter) -> pd.DataFrame | None:
    """Return the table of a folder, None after a note on why there is none."""
    try:
        if (folder / "results.parquet").is_file() and is_stale(folder):
            made.notes.append(
                "records were added after its table: the pictures and claims below may "
                f"be older; dp-erm-bench collect {folder} makes them again"
            )
        loaded = load_results(folder).reindex(columns=[*COLUMNS])
    except (UsageError, *UNREADABLE) as error:
        made.notes.append(reason(error))
        return None
    if loaded.empty:
        made.notes.append("no trial of this folder has a record yet")
        return None
    if not loaded["status"].isin(RAN).any():
        made.notes.append(
            "no trial ended with a result; their reasons are listed below"
        )
    return loaded


def _versions(manifest: Mapping[str, Any], made: Chapter) -> None:
    """Note which version and which profile a folder is of."""
    version = manifest.get("version")
    if manifest and version != __version__:
        made.notes.append(
            f"recorded by version {printable(str(version or 'unknown'), 40)} of "
            f"dp_erm_bench, shown by {__version__}"
        )
    if manifest.get("profile") == SMOKE:
        made.notes.append(UNJUDGED)
    changes = manifest.get("config")
    if changed := mapping(changes).get("changes"):
        made.notes.append(f"not the experiment as it is: changed {words_of(changed)}")


def _claims(folder: Path, made: Chapter) -> list[Mapping[str, str]]:
    """Return the rows of claims.csv, none after a note if it is damaged."""
    try:
        columns, rows = of_csv(read_noted(folder, CLAIMS) or "")
    except UsageError as error:
        made.notes.append(reason(error))
        return []
    if rows and not {"figure", "statement", "verdict"} <= set(columns):
        made.notes.append(f"{CLAIMS}: is damaged")
        return []
    return rows


def _claims_table(
    claims: Sequence[Mapping[str, str]], made: Chapter, gallery: Gallery
) -> Table:
    """Return the claims, each with a link to its panel."""
    rows = []
    for row in claims:
        verdict, _, reason = row["verdict"].partition(" (")
        verdict = printable(verdict, 40)
        made.verdicts[verdict] = made.verdicts.get(verdict, 0) + 1
        known = verdict.replace(" ", "-") if verdict.replace(" ", "").isalpha() else ""
        panel = gallery.panel(row["figure"])
        cells = [cell(panel.name, href=panel.id), cell(verdict, known)]
        cells += [cell(row.get(name, "")) for name in CLAIM]
        rows.append(
            [*cells, cell(reason.removesuffix(")")), _open(row.get("open", ""))]
        )
    head = ["panel", "verdict", *CLAIM, "why not", "open choices"]
    if NOT_JUDGED in made.verdicts and UNJUDGED not in made.notes:
        made.notes.append(UNJUDGED)
    return table(head, rows, gallery.room)


def _open(words: str) -> Cell:
    return cell(words, "open" if words else "")


def _choices(folder: Path, made: Chapter, room: Room) -> None:
    """Fill in the choices, the open ones marked and first."""
    try:
        rows = read_choices(folder) or []
    except UsageError as error:
        made.notes.append(reason(error))
        return
    ordered = sorted(rows, key=lambda row: not row["open"])
    made.open = sum(bool(row["open"]) for row in rows)
    cells = [
        [*(cell(row.get(name) or "") for name in CHOICE), _open(row["open"])]
        for row in ordered
    ]
    if cells:
        made.choices = table([*CHOICE, "open"], cells, room)


def _audits(folder: Path, made: Chapter, room: Room) -> Table | None:
    """Return the statistical audits of a folder, None after a note if damaged."""
    try:
        text = read_noted(folder, AUDITS)
    except UsageError as error:
        made.notes.append(reason(error))
        return None
    return audits(text, room) if text else None


def _unnoted(folder: Path, made: Chapter) -> None:
    """Note which tables nobody can tell from edited ones."""
    names = [
        name
        for name in (CLAIMS, CHOICES, AUDITS)
        if (folder / name).is_file() and not is_noted(folder, name)
    ]
    if names:
        made.notes.append(
            f"{', '.join(names)}: not noted when written, so that nobody can tell "
            "whether what is shown of it was edited"
        )


def audits(text: str, room: Room) -> Table:
    """Return the statistical audits that a CSV holds."""
    columns, rows = of_csv(text)
    cells: Iterable[list[Cell]] = (
        [cell(row[name], row[name] if row[name] == "ok" else "") for name in columns]
        for row in rows
    )
    return table([printable(name, 40) for name in columns], cells, room)
