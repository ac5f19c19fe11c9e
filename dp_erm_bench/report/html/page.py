"""The report: one file of HTML that needs no network and sends nothing."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dp_erm_bench import __version__, registry
from dp_erm_bench.errors import UsageError, printable_text
from dp_erm_bench.paths import content_of, list_files
from dp_erm_bench.report import panels
from dp_erm_bench.report.claims.lookup import (
    GIVEN,
    NOT_JUDGED,
    SMOKE,
    UNJUDGED,
    by_chance,
)
from dp_erm_bench.report.html.parts import (
    Cell,
    PanelSection,
    Picture,
    Room,
    Table,
    as_mapping,
    cell_of,
    html_table,
    of_csv,
    picture_of,
    prose_as_html,
)
from dp_erm_bench.report.layout import plain_caption, save_sheet, write_caption
from dp_erm_bench.report.make import (
    CLAIMS,
    captions_of,
    digest_of_table,
    latest_figures,
)
from dp_erm_bench.report.panels import source_in_words
from dp_erm_bench.report.plot import PLOTS, all_of, sheet_of_view
from dp_erm_bench.report.style import house_style
from dp_erm_bench.report.view import View, first_of
from dp_erm_bench.results.files import read_text, translate_os_errors
from dp_erm_bench.results.runs import current_time, read_manifest
from dp_erm_bench.results.settings import (
    RAN,
    final_rows,
    split_names,
    worst_if_lost,
)
from dp_erm_bench.results.statistics import (
    FEWEST,
    ZERO,
    baseline_columns,
    by_split,
    loss_beyond,
    medians_of,
    places_of_lines,
    with_beyond,
)
from dp_erm_bench.results.table import COLUMNS, UNREADABLE, is_stale, load_results
from dp_erm_bench.results.tuned import read_choices

if TYPE_CHECKING:
    import pandas as pd


def line_of_words(value: Any) -> str:
    """Return a value of a manifest, or a list of them, as one line."""
    parts = value if isinstance(value, list) else [value]
    return printable_text(" ".join(map(str, parts)), 1000)


def manifest_facts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a manifest says of its run: machine, commit and versions."""
    environment = as_mapping(manifest.get("environment"))
    git = as_mapping(environment.get("git"))
    commit = str(git.get("commit") or "")
    said = {
        "command": line_of_words(manifest.get("command") or ""),
        "profile": manifest.get("profile"),
        "started": manifest.get("started"),
        "ended": manifest.get("ended"),
        "outcome": manifest.get("outcome"),
        "machine": environment.get("cpu"),
        "cores": environment.get("cpus_usable"),
        "system": environment.get("platform"),
        "commit": commit and commit + " with changes" * bool(git.get("dirty")),
        "python": environment.get("python"),
        **as_mapping(environment.get("packages")),
    }
    for key, value in said.items():
        if value not in (None, ""):
            yield printable_text(str(key), 60), printable_text(str(value), 1000)


def experiment_notes(manifest: Mapping[str, Any], folder: Path) -> str:
    """Return what the file of an experiment of the package says at its head."""
    named = [*as_mapping(manifest.get("experiment_file")), manifest.get("experiment")]
    stems = [Path(str(name)).stem for name in (*named, folder.name)]
    known = [name for name in stems if name in registry.built_in("experiment")]
    if not known:
        return ""
    path = registry.conf_dir() / "experiment" / f"{known[0]}.yaml"
    words = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        if not line.startswith("#"):
            break
        words.append(line.removeprefix("#").strip())
    return " ".join(words)


TUNE = "tune"
GROUP = ["panel", "line", "epsilon"]
NOTHING = "may be no better than"
SAME = ("delta", "adjacency", "calibration", "accountant")
"""Columns that are alike in all runs of a line, as a rule."""


def results_table(rows: pd.DataFrame, room: Room) -> Table:
    """Return the ends of the runs that judge, and what is certified of them.

    Parameters
    ----------
    rows : DataFrame
        What `load_results` returns.
    room : Room
        Of the page.

    Returns
    -------
    Table
        Per panel, line and epsilon: the median of what `first_of` names,
        what is as good for all that is known, the largest certified epsilon, and all
        uses of the data that nobody charged.
    """
    rows = rows[rows["status"].isin(RAN) & rows["phase"].ne(TUNE)]
    y = first_of(rows)
    ends = final_rows(with_beyond(rows.join(baseline_columns(rows, y))))
    named = split_names(ends, ends[GROUP].astype(object))
    ends = ends.assign(panel=named["panel"], line=named["line"])
    found = []
    for key, own in ends.groupby(GROUP, sort=False, dropna=False):
        errors = worst_if_lost(own, y).dropna()
        told: list[object] = ["", ""]
        if len(errors):
            values = by_split(errors, own["dataset_seed"])
            zero = medians_of(own[[ZERO]])[ZERO]
            standing = places_of_lines({"": values}, zero, {"": loss_beyond(own)})[""]
            told = [standing.median, standing.unbeaten]
        proved = own["epsilon_certified"]
        nominal = float(own["epsilon"].iloc[0])
        known = bool(proved.notna().all())
        within = known and bool(proved.max() <= nominal * (1 + 1e-6))
        uses = {use for text in own["uncharged"].dropna() for use in text.split(",")}
        shown = [cell_of(value) for value in (*key, len(own), *told)]
        largest = proved.max() if known else "unknown"
        shown += [cell_of(largest, "" if within else "open")]
        shown += [cell_of(", ".join(sorted(uses - {""})) or "nothing")]
        alike = (own[name].dropna().unique() for name in SAME)
        found.append(
            [*shown, *(cell_of(", ".join(map(_text_of, one))) for one in alike)]
        )
    head = [*GROUP, "runs", f"median {y}", NOTHING]
    return html_table([*head, "certified epsilon", "not charged", *SAME], found, room)


def failures_table(rows: pd.DataFrame, room: Room) -> Table:
    """Return how many trials have no result, by status and reason."""
    failed = final_rows(rows[rows["status"].ne("ok")])
    reasons = [str(text).partition("\n")[0] for text in failed["message"].fillna("")]
    counts = Counter(zip(failed["status"], reasons, strict=True)).most_common()
    lines = ((cell_of(count), *map(cell_of, key)) for key, count in counts)
    return html_table(["trials", "status", "reason"], lines, room)


def _text_of(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


UNTOLD = "No caption: its figure is none of the experiment's of the package."
EPSILON = "_epsilon"
"""End of the name of a panel's second picture."""


@dataclass
class Gallery:
    """The panels of a folder.

    Attributes
    ----------
    id : str
        What the ids of its panels begin with.
    room : Room
        Of the page.
    panels : list of PanelSection
    notes : list of str
        Sentences on what cannot be shown.
    pages : list of (str, str)
        Heading and HTML of the pages that figures write, as a leaderboard's.
    """

    id: str
    room: Room
    panels: list[PanelSection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pages: list[tuple[str, str]] = field(default_factory=list)

    def fill(
        self, folder: Path, loaded: pd.DataFrame | None, figures: Iterable[str]
    ) -> None:
        """Take a folder's pictures, each into its panel.

        Parameters
        ----------
        folder : Path
        loaded : DataFrame or None
            Its table. Without pictures, what `dp-erm-bench plot` draws of it stands in
            for them.
        figures : iterable of str
            The panels that claims name: each has an element, with a picture or not.
        """
        try:
            names = [name for name in latest_figures(folder) if name.endswith(".png")]
        except UsageError as error:
            names = []
            self.notes.append(page_sentence(error))
        told = self._captions_of_table(folder, loaded) if names else {}
        for text in (told[name] for name in told if name.endswith(".md")):
            heading, _, rest = printable_text(text, len(text)).partition("\n")
            page = prose_as_html(rest)
            if self.room.take(len(page.encode())):
                self.pages.append((heading.lstrip("# "), Markup(page)))
            else:
                self.notes.append(f"{heading.lstrip('# ')}: there is no room for it")
        noted = "" if loaded is None else digest_of_table(loaded)
        found = [
            picture_of(folder / name, folder, self.room, told.get(stem, UNTOLD), noted)
            for name in names
            for stem in [Path(name).stem]
        ]
        asked = [*self._plots_left(folder, noted)]
        if not found and not asked and loaded is not None:
            found = [*self._plots_of_folder(folder, loaded)]
        found += asked
        labels = () if loaded is None else loaded["panel"].dropna().unique()
        named = dict.fromkeys(figures)
        known = {*map(str, labels), *named}
        for one in found:
            stem = one.name.removesuffix(EPSILON)
            name = one.name if one.name in known or stem not in known else stem
            self.panel(name).pictures.append(one)
        for name in named:
            self.panel(name)
        for panel in self.panels:
            panel.authors = _authors_table(panel.name, self.room)
            if not panel.pictures:
                panel.also = [*self._panels_beside(panel.name, known)]

    def _plots_left(self, folder: Path, noted: str) -> Iterator[Picture]:
        """Yield what `dp-erm-bench plot` left in a folder, as it was asked for.

        Nobody can make its captions anew: they are what lies beside the pictures.
        """
        for path in list_files(folder / PLOTS, ".png"):
            try:
                told = content_of(path.with_suffix(".txt"), folder, FRAME)
            except OSError:
                told = b""
            words = told.decode("utf-8", "replace")
            yield picture_of(path, folder, self.room, words, noted)

    def _captions_of_table(
        self, folder: Path, loaded: pd.DataFrame | None
    ) -> dict[str, str]:
        """Return the captions that the table makes, none after a note on why not."""
        if loaded is None:
            return {}
        try:
            return captions_of(folder, loaded)
        except (UsageError, *UNREADABLE, MemoryError) as error:
            self.notes.append(f"captions cannot be made: {page_sentence(error)}")
            return {}

    def panel(self, name: str) -> PanelSection:
        """Return the panel of a name, a new one if there is none yet."""
        shown = printable_text(name, 200)
        for panel in self.panels:
            if panel.name == shown:
                return panel
        self.panels.append(PanelSection(f"{self.id}-p{len(self.panels) + 1}", shown))
        return self.panels[-1]

    def _panels_beside(self, name: str, known: set[str]) -> Iterator[tuple[str, str]]:
        """Yield the panels of a family, else the pictures that are of several."""
        drawn = [panel for panel in self.panels if panel.pictures]
        family = [panel for panel in drawn if panel.name.startswith(f"{name}_")]
        several = [panel for panel in drawn if panel.name not in known]
        for panel in family or several:
            yield panel.id, panel.name

    def _plots_of_folder(self, folder: Path, loaded: pd.DataFrame) -> Iterator[Picture]:
        """Yield what `plot` draws of a folder, without writing into it."""
        try:
            kinds = [*all_of(loaded, View(folder=folder))]
        except (UsageError, *UNREADABLE) as error:
            self.notes.append(f"nothing is drawn: {page_sentence(error)}")
            return
        for kind, asked in kinds:
            try:
                with TemporaryDirectory() as home, house_style():
                    one = sheet_of_view(loaded, asked, kind)
                    path = Path(home) / f"{one.name}.png"
                    save_sheet(one, path.with_suffix(""), ("png",))
                    told = plain_caption(one.caption)
                    yield picture_of(path, Path(home), self.room, told, None)
            except (UsageError, *UNREADABLE) as error:
                self.notes.append(f"{kind}: {page_sentence(error)}")


def page_sentence(error: BaseException) -> str:
    """Return an error as a sentence of the page."""
    kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
    return printable_text(f"{kind}{error}", 500)


def _authors_table(panel: str, room: Room) -> Table | None:
    """Return where the authors' curves of a panel begin and end."""
    rows = []
    for name, (line, band) in panels.decoded_curves(panel).items():
        numbers = line[0, 1], *line[-1], *band[-1, 1:]
        rows.append([cell_of(name), *(cell_of(float(number)) for number in numbers)])
    head = ["authors' curve", "at w = 0", "passes", "relative error", "low", "high"]
    return html_table(head, rows, room) if rows else None


CLAIM = (
    *("statement", "whose", "measured", "threshold", "value", "interval"),
    *("good", "of_zero", "expected"),
)
"""Columns of claims.csv that are shown as they are, those that a folder has."""

HEADS = {"of_zero": "good line's error / that of w = 0", "good": "good line"}

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
    panels : list of PanelSection
    claims, choices, results, failures, audits : Table or None
    open : int
        The number of open choices.
    pages : list of (str, str)
        As of the gallery.
    """

    id: str
    name: str
    about: str = ""
    notes: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)
    panels: list[PanelSection] = field(default_factory=list)
    claims: Table | None = None
    choices: Table | None = None
    results: Table | None = None
    failures: Table | None = None
    audits: Table | None = None
    open: int = 0
    pages: list[tuple[str, str]] = field(default_factory=list)


def chapter_of(folder: Path, number: int, room: Room) -> Chapter:
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
    made = Chapter(f"c{number}", printable_text(folder.resolve().name))
    made.facts = [*manifest_facts(manifest)]
    made.about = experiment_notes(manifest, folder)
    loaded = _load_table(folder, made)
    _note_versions(manifest, made)
    claims = _claim_rows(folder, made)
    gallery = Gallery(made.id, room, made.panels, made.notes, made.pages)
    gallery.fill(folder, loaded, [row["figure"] for row in claims])
    if claims:
        made.claims = _claims_table(claims, made, gallery)
    _fill_choices(folder, made, room)
    if loaded is not None:
        made.results = _make_table(
            made, "its results", lambda: results_table(loaded, room)
        )
        made.failures = _make_table(
            made, "its trials", lambda: failures_table(loaded, room)
        )
    made.audits = _audits_of(folder, made, room)
    return made


def _make_table(made: Chapter, what: str, make: Any) -> Table | None:
    """Return a table of a folder's rows, or say that they do not fit."""
    try:
        found: Table | None = make()
    except (UsageError, *UNREADABLE) as error:
        made.notes.append(f"{what} cannot be shown: {page_sentence(error)}")
        return None
    return found if found is not None and found.rows else None


def _load_table(folder: Path, made: Chapter) -> pd.DataFrame | None:
    """Return the table of a folder, None after a note on why there is none."""
    try:
        if (folder / "results.parquet").is_file() and is_stale(folder):
            made.notes.append(
                "records were added after its table: the pictures and claims below may "
                f"be older; dp-erm-bench collect {folder} makes them again"
            )
        loaded = load_results(folder).reindex(columns=[*COLUMNS])
    except (UsageError, *UNREADABLE) as error:
        made.notes.append(page_sentence(error))
        return None
    if loaded.empty:
        made.notes.append("no trial of this folder has a record yet")
        return None
    if not loaded["status"].isin(RAN).any():
        made.notes.append(
            "no trial ended with a result; their reasons are listed below"
        )
    return loaded


def _note_versions(manifest: Mapping[str, Any], made: Chapter) -> None:
    """Note which version and which profile a folder is of."""
    version = manifest.get("version")
    if manifest and version != __version__:
        made.notes.append(
            f"recorded by version {printable_text(str(version or 'unknown'), 40)} of "
            f"dp_erm_bench, shown by {__version__}"
        )
    if manifest.get("profile") == SMOKE:
        made.notes.append(UNJUDGED)
    changes = manifest.get("config")
    if changed := as_mapping(changes).get("changes"):
        made.notes.append(
            f"not the experiment as it is: changed {line_of_words(changed)}"
        )


def _claim_rows(folder: Path, made: Chapter) -> list[Mapping[str, str]]:
    """Return the rows of claims.csv, none after a note if it is damaged."""
    try:
        columns, rows = of_csv(read_text(folder, CLAIMS) or "")
    except UsageError as error:
        made.notes.append(page_sentence(error))
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
    shown = [name for name in CLAIM if name in claims[0]]
    parts = [row["verdict"].partition(" (") for row in claims]
    for row, (told, _, reason) in zip(claims, parts, strict=True):
        verdict = printable_text(told, 40)
        made.verdicts[verdict] = made.verdicts.get(verdict, 0) + 1
        known = verdict.replace(" ", "-") if verdict.replace(" ", "").isalpha() else ""
        panel = gallery.panel(row["figure"])
        cells = [cell_of(panel.name, href=panel.id), cell_of(verdict, known)]
        cells += [cell_of(row.get(name) or "") for name in shown]
        rows.append(
            [*cells, cell_of(reason.removesuffix(")")), _open_cell(row.get("open", ""))]
        )
    head = ["panel", "verdict", *(HEADS.get(name, name) for name in shown)]
    head += ["why not", "open choices"]
    if wrong := by_chance(claims):
        made.notes.append(f"{GIVEN} {wrong}")
    if NOT_JUDGED in made.verdicts and UNJUDGED not in made.notes:
        made.notes.append(UNJUDGED)
    return html_table(head, rows, gallery.room)


def _open_cell(words: str) -> Cell:
    return cell_of(words, "open" if words else "")


def _fill_choices(folder: Path, made: Chapter, room: Room) -> None:
    """Fill in the choices, the open ones marked and first."""
    try:
        rows = read_choices(folder) or []
    except UsageError as error:
        made.notes.append(page_sentence(error))
        return
    ordered = sorted(rows, key=lambda row: not row["open"])
    made.open = sum(bool(row["open"]) for row in rows)
    cells = [
        [*(cell_of(row.get(name) or "") for name in CHOICE), _open_cell(row["open"])]
        for row in ordered
    ]
    if cells:
        made.choices = html_table([*CHOICE, "open"], cells, room)


def _audits_of(folder: Path, made: Chapter, room: Room) -> Table | None:
    """Return the statistical audits of a folder, None after a note if damaged."""
    try:
        text = read_text(folder, AUDITS)
    except UsageError as error:
        made.notes.append(page_sentence(error))
        return None
    return audits_table(text, room) if text else None


def audits_table(text: str, room: Room) -> Table:
    """Return the statistical audits that a CSV holds."""
    columns, rows = of_csv(text)
    cells: Iterable[list[Cell]] = (
        [cell_of(row[name], row[name] if row[name] == "ok" else "") for name in columns]
        for row in rows
    )
    return html_table([printable_text(name, 40) for name in columns], cells, room)


LARGEST = 15_000_000
"""Bytes of a report."""

FRAME = 1_000_000
"""Bytes that are kept free for the text around tables and pictures."""

NAME = "report.html"
HERE = Path(__file__).parent


def write_report(folders: Sequence[Path], path: Path, first: str = "") -> Path:
    """Write the report of results folders and return its path.

    Parameters
    ----------
    folders : sequence of Path
        Of experiments and sweeps; one without results is a sentence in the report.
    path : Path
        The file to write.
    first : str
        What the report says first.

    Raises
    ------
    UsageError
        If the file cannot be written, or would be larger than `LARGEST`.
    """
    text = report_page(folders, first)
    if len(text.encode()) > LARGEST:
        most = LARGEST // 1_000_000
        raise UsageError(f"{path}: would have more than {most} MB; name fewer folders")
    with translate_os_errors(path.parent):
        return write_caption(path, text)


def report_page(folders: Sequence[Path], first: str = "") -> str:
    """Return the report of results folders as HTML.

    All that is read from folders is escaped. The policy in the page's head forbids
    every request, and every script but the page's own.
    """
    room = Room(LARGEST - FRAME)
    errata, twins = (
        prose_as_html(_document_page(name)) for name in ("errata", "broken-twins")
    )
    room.take(len(errata.encode()) + len(twins.encode()))
    script = (HERE / "page.js").read_text(encoding="utf-8")
    published = registry.conf_dir().parent / "results" / "published" / AUDITS
    text = published.read_text(encoding="utf-8") if published.is_file() else ""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        chapters=[
            chapter_of(one, number, room) for number, one in enumerate(folders, 1)
        ],
        first=first,
        version=__version__,
        made=current_time(),
        authors=source_in_words(),
        fewest=FEWEST,
        nothing=NOTHING,
        audits=audits_table(text, room) if text else None,
        errata=Markup(errata),
        twins=Markup(twins),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=base64.b64encode(sha256(script.encode()).digest()).decode(),
    )


def _document_page(name: str) -> str:
    """Return a page of the documentation: the checkout's, else the wheel's."""
    path = registry.conf_dir().parent / "docs" / f"{name}.md"
    return path.read_text(encoding="utf-8")
