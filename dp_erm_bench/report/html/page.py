"""The report: one file of HTML that does not use the network.

The folders in a report need not be trusted: the template escapes their contents.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from dp_erm_bench import __version__, registry
from dp_erm_bench.errors import UsageError, printable_text
from dp_erm_bench.paths import content_of, list_files
from dp_erm_bench.report.captions import (
    LABEL,
    TITLE,
    facts_of_panels,
    span_of,
    words_of,
)
from dp_erm_bench.report.claims.lookup import GIVEN, NOT_JUDGED, UNJUDGED, by_chance
from dp_erm_bench.report.layout import plain_caption, save_sheet, write_text_file
from dp_erm_bench.report.make import CLAIMS, experiment_of_folder, latest_figures
from dp_erm_bench.report.plot import PLOTS, all_of, sheet_of_view
from dp_erm_bench.report.style import forget_styles, house_style
from dp_erm_bench.report.view import (
    LINE,
    PANEL,
    View,
    nothing_beaten,
    rows_of_view,
    summary_of,
)
from dp_erm_bench.results.files import read_text, translate_os_errors
from dp_erm_bench.results.runs import current_time, read_manifest
from dp_erm_bench.results.settings import final_rows
from dp_erm_bench.results.statistics import FEWEST, TIES, WINS, baseline_columns
from dp_erm_bench.results.table import COLUMNS, UNREADABLE, is_stale, load_results
from dp_erm_bench.results.tuned import read_choices

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 15_000_000
"""Largest size of a report in bytes."""

LARGEST_PICTURE = 1_000_000
"""Largest size in bytes of a picture that is embedded in the page."""

MOST_ROWS, LONGEST_CELL = 1500, 400
WIDE = 800
"""Width in pixels beyond which a picture is shown as wide as the page."""

NAME = "report.html"
HERE = Path(__file__).parent
AUDITS = "audits.csv"
EPSILON = "_epsilon"
"""Ending of the name of a panel's second picture, whose x axis is epsilon."""

NOTHING, BEYOND = "may be no better than", "beyond nominal"
HELD_OUT = ("test_accuracy", "balanced_accuracy", "auc", "test_risk", "rmse", "r2")
CLAIM = {
    **{"figure": "panel", "verdict": "verdict", "statement": "statement"},
    **{"whose": "whose", "source": "source", "kind": "kind"},
    **{"measured": "measured", "threshold": "threshold"},
    **{"value": "value", "interval": "interval", "good": "good line"},
    **{"of_zero": "good line's error / that of w = 0"},
    **{"standing": "value of w = 0 in its place", "expected": "expected"},
    **{"why not": "why not", "open": "open"},
}
"""Columns of claims.csv that are shown if a folder has them, with their headings.

`why not` is the reason in parentheses after a verdict.
"""

CHOICE = ("panel", "line", "epsilon", "chosen", "mean", "settings", "trials", "open")
LINKS = ("link_open", "link_close", "image")


@dataclass
class PageTable:
    """A table that a reader can sort and filter.

    Attributes
    ----------
    title : str
        The heading of the table.
    rows : DataFrame
        The rows of the table.
    about : str
        A sentence above the table.
    is_open : bool
        Whether the table is unfolded when the page opens.
    """

    title: str
    rows: pd.DataFrame
    about: str = ""
    is_open: bool = True

    def __post_init__(self) -> None:
        """Drop the columns that are empty."""
        shown = self.rows.replace("", None).dropna(axis=1, how="all")
        self.rows = shown.reset_index(drop=True)


@dataclass(frozen=True)
class Picture:
    """A picture that is embedded in the page.

    Attributes
    ----------
    name, caption : str
        Name and caption of the picture.
    data : str
        The PNG file in base64.
    width, height : int
        Size of the picture in pixels.
    """

    name: str
    caption: str
    data: str
    width: int
    height: int


@dataclass
class Chapter:
    """The chapter of the report on one results folder.

    Attributes
    ----------
    name : str
        The heading of the chapter.
    folder : Path
        The results folder.
    about : str
        Description of the experiment; empty unless it is part of the package.
    notes : list of str
        Sentences that a reader should read first.
    asked : dict of str to str
        The problem of each panel, described in words.
    answers : list of str
        Sentences on the best lines.
    facts : dict of str to str
        The command, the machine, the commit and the versions of packages, by name.
    verdicts : mapping of str to int
        Number of claims with each verdict.
    open : int
        Number of open choices: better settings may lie beyond those tried.
    pictures : list of Picture
        The pictures of the folder.
    grids : list of PageTable
        The tables of the folder.
    pages : list of (str, str)
        Heading and HTML of further pages, such as a leaderboard's.
    """

    name: str
    folder: Path
    about: str = ""
    notes: list[str] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    open: int = 0
    pictures: list[Picture] = field(default_factory=list)
    grids: list[PageTable] = field(default_factory=list)
    pages: list[tuple[str, str]] = field(default_factory=list)

    @contextlib.contextmanager
    def note_errors(self, what: str) -> Iterator[None]:
        """Turn an error in reading a part of the folder into a note of the chapter."""
        try:
            yield
        except (UsageError, *UNREADABLE) as error:
            kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
            why = printable_text(f"{kind}{error}", 500)
            self.notes.append(f"{what} cannot be shown: {why}")

    def link_of(self, name: str) -> int | str:
        """Return the ending of a link to the picture of a panel.

        The ending is the number of the picture. If the panel has no picture, it is `s`,
        which links to all pictures.
        """
        own = (name, f"{name}{EPSILON}")
        return next((k for k, p in enumerate(self.pictures, 1) if p.name in own), "s")


def chapter_of(folder: Path) -> Chapter:
    """Return the chapter of a folder, with a note on each part that it cannot show.

    Parameters
    ----------
    folder : Path
        A results folder, which need not be trusted: nothing that it names is imported
        or run.
    """
    manifest, made = read_manifest(folder), Chapter(folder.resolve().name, folder)
    with made.note_errors("manifest.json"):
        _fill_origin(made, manifest)
    table = None
    with made.note_errors("its table"):
        table = _load_table(made)
    with made.note_errors(CLAIMS):
        _fill_claims(made)
    if table is not None:
        with made.note_errors("its results"):
            _fill_results(made, table)
    _fill_pictures(made, table)
    with made.note_errors("choices"):
        _fill_choices(made)
    with made.note_errors(AUDITS):
        title = "Audits of this folder"
        audits = _read_csv(folder, AUDITS)
        made.grids.append(PageTable(title, audits, is_open=False))
        if len(audits):
            twins = prose_as_html(_shipped_page("broken_twins"))
            made.pages.append(("Broken twins: which check finds which", twins))
    with made.note_errors("errata"):
        if errata := errata_of_paper(experiment_of_folder(folder, manifest)):
            made.pages.append(("What we found in the paper", prose_as_html(errata)))
    made.grids = [one for one in made.grids if len(one.rows)]
    return made


def _fill_origin(made: Chapter, manifest: Mapping[str, Any]) -> None:
    """Fill in the origin of a run from its manifest: machine, commit and versions."""
    version = manifest.get("version")
    if manifest and version != __version__:
        made.notes.append(
            f"recorded by version {version or 'unknown'} of dp_erm_bench, shown by "
            f"{__version__}"
        )
    made.about = experiment_notes(experiment_of_folder(made.folder, manifest))
    keys = ("command", "profile", "started", "ended", "outcome")
    said = {key: manifest.get(key) for key in keys} | manifest.get("environment", {})
    for part in ("git", "packages"):
        said |= said.pop(part, {})
    made.facts = {key: _line_of_words(value) for key, value in said.items() if value}
    if changed := manifest.get("config", {}).get("changes"):
        made.notes.append(
            f"not the experiment as it is: changed {_line_of_words(changed)}"
        )


def _line_of_words(value: Any) -> str:
    """Return a value, or a list of values, of a manifest as a string of one line."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def experiment_notes(name: str) -> str:
    """Return the first comment of a built-in experiment's file, else empty."""
    if name not in registry.built_in("experiment"):
        return ""
    path = registry.conf_dir() / "experiment" / f"{name}.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    head = takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.removeprefix("#").strip() for line in head)


def _shipped_page(name: str) -> str:
    """Return the text of a page that the package ships."""
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8")


def errata_of_paper(experiment: str) -> str:
    """Return the section of the errata on an experiment's paper; empty if missing.

    An experiment is named after the first author and the year of its paper.
    """
    author, year = experiment[:-4], experiment[-4:]
    for section in _shipped_page("errata").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if (
            re.match(rf"{re.escape(author)}\b", title.lower())
            and author
            and year in title
        ):
            return text
    return ""


def _load_table(made: Chapter) -> pd.DataFrame:
    """Return the table of a folder; add a note if records are newer than the table."""
    folder = made.folder
    if (folder / "results.parquet").is_file() and is_stale(folder):
        made.notes.append(
            "records were added after its table: the pictures and claims below may "
            f"be older; dp-erm-bench collect {folder} makes them again"
        )
    loaded = load_results(folder).reindex(columns=[*COLUMNS])
    if loaded.empty:
        raise UsageError("no trial of this folder has a record yet")
    return loaded


def _read_csv(folder: Path, name: str) -> pd.DataFrame:
    """Return the rows of a CSV file as strings; no rows if the file does not exist."""
    import pandas as pd

    text = read_text(folder, name)
    if not text:
        return pd.DataFrame()
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


def _fill_results(made: Chapter, table: pd.DataFrame) -> None:
    """Add the problems, best lines, final results and failures to a chapter."""
    made.grids.append(failures_grid(final_rows(table[table["status"].ne("ok")])))
    if table["objective"].isna().all():  # the table of a study, or only failures
        return
    drawn = rows_of_view(table, View("epsilon", folder=made.folder))
    rows, summary = drawn.rows, summary_of(drawn)
    named = rows.assign(**{TITLE: rows[PANEL], LABEL: rows[LINE]})
    facts = facts_of_panels(named)
    for panel, own in named.groupby(PANEL, sort=False):
        said = {name: one[str(panel)] for name, one in facts.items()}
        said["options"] = words_of(own["dataset_options"].replace("{}", None))
        said["share clipped"] = span_of(own["clipped"].astype(float))
        words = "; ".join(f"{name}: {one}" for name, one in said.items() if one)
        made.asked[str(panel)] = printable_text(words, 600)
    for key, own in summary.groupby([PANEL, "epsilon"], sort=False):
        best, ties = (own.loc[own["place"] == one, LINE] for one in (WINS, TIES))
        if len(best):
            alike = f", {', '.join(ties)} not distinguishable from it"
            made.answers.append(
                "{}, epsilon = {:g}: ".format(*cast("tuple[str, float]", key))
                + f"{best.iloc[0]} is best{alike * bool(len(ties))}."
            )
    made.answers += filter(None, (nothing_beaten(drawn, summary), drawn.unlike))
    made.grids.insert(-1, results_grid(rows, summary))


def results_grid(rows: pd.DataFrame, summary: pd.DataFrame) -> PageTable:
    """Return a table of the final results of report runs and their certified epsilon.

    Parameters
    ----------
    rows, summary : DataFrame
        The rows of a view against epsilon, and the result of `summary_of` for it.
    """
    import pandas as pd

    keys = [PANEL, "_x", LINE]
    groups = rows.groupby(keys, sort=False)
    proved = groups["epsilon_certified"].agg(lambda own: own.max(skipna=False))
    covered = proved <= proved.index.get_level_values("_x") * (1 + 1e-6)
    uses = groups["uncharged"].agg(
        lambda own: ", ".join(sorted({*own.dropna().str.split(",").explode()} - {""}))
    )
    ends = summary.rename(columns={"epsilon": "_x", "unbeaten": NOTHING})
    shown = ends.set_index(keys)[["median", "ci_low", "ci_high", "runs", NOTHING]]
    known = proved.astype(object).where(proved.notna(), "unknown")
    shown.insert(0, "certified epsilon", known)
    shown.insert(1, BEYOND, covered.map({True: "", False: "yes"}))
    for name in (one for one in HELD_OUT if rows[one].notna().any()):
        levels = (
            baseline_columns(rows, name).groupby([rows[PANEL], rows["_x"]]).median()
        )
        beside = levels.stack().rename_axis(keys)
        shown[name] = pd.concat([groups[name].median(), beside])
    shown["not charged"] = uses.replace("", "nothing")
    for name in ("delta", "adjacency", "calibration"):
        shown[name] = groups[name].agg(words_of)
    frame = shown.reset_index().rename(columns={"_x": "epsilon"})
    order = [PANEL, LINE, "epsilon"]
    about = (
        f"Ends of the runs that judge, of {summary['quantity'].iloc[0]}. A line may be "
        "no better than w = 0 or the constant model, which is not private, if its 95 % "
        f"interval does not lie below; fewer than {FEWEST} runs have no interval. A "
        "certified epsilon is beyond the nominal one if it is above it or not known. "
        "What is not charged was read off the data as if it were public."
    )
    title = "Results, certified epsilon, what was not charged"
    return PageTable(title, frame[[*order, *frame.columns.drop(order)]], about)


def failures_grid(failed: pd.DataFrame) -> PageTable:
    """Return a table with the numbers of trials without a result, by reason."""
    reasons = failed["message"].fillna("").astype(str).str.split("\n").str[0]
    counts = reasons.groupby([failed["status"], reasons]).size().rename("trials")
    rows = counts.rename_axis(["status", "reason"]).reset_index()
    ordered = rows.sort_values("trials", ascending=False, kind="stable")
    return PageTable("Trials without a result", ordered[["trials", "status", "reason"]])


def _fill_pictures(made: Chapter, table: pd.DataFrame | None) -> None:
    """Add a folder's pictures, and its leaderboard if it has one.

    If the folder has no pictures, the plots that `dp-erm-bench plot` draws are added.
    """
    folder = made.folder
    names = [name for name in latest_figures(folder) if name.endswith(".png")]
    for path in [folder / name for name in names] + list_files(folder / PLOTS, ".png"):
        with made.note_errors(path.name):
            made.pictures.append(picture_of(path, folder))
    if not made.pictures and table is not None:
        _draw_plots(made, table)
    if (page := read_text(folder, "leaderboard.md")) is not None:
        made.pages.append(("Leaderboard", prose_as_html(page.partition("\n")[2])))


def _draw_plots(made: Chapter, table: pd.DataFrame) -> None:
    """Add the plots of a folder's table, without writing into the folder."""
    kinds: list[tuple[str, View]] = []
    with made.note_errors("plots"):
        kinds.extend(all_of(table, View(folder=made.folder)))
    forget_styles()
    with TemporaryDirectory() as name, house_style():
        home = Path(name)
        for kind, view in kinds:
            with made.note_errors(kind):
                sheet = sheet_of_view(table, view, kind)
                save_sheet(sheet, home / sheet.name, ("png",))
                made.pictures.append(picture_of(home / f"{sheet.name}.png", home))


def picture_of(path: Path, folder: Path) -> Picture:
    """Return the picture of a PNG file, with the caption in the .txt file next to it.

    Parameters
    ----------
    path, folder : Path
        The file, and the folder that must contain it (not by a link out of the folder).

    Raises
    ------
    UsageError
        If the file cannot be read, is not a PNG, is too large or is damaged.
    """
    from PIL import Image

    beside, caption = path.with_suffix(".txt"), "It has no caption file."
    try:
        data = content_of(path, folder, LARGEST_PICTURE)
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            size = image.size
            image.verify()
        if beside.exists():
            caption = content_of(beside, folder, LARGEST_PICTURE).decode()
    except (OSError, ValueError, SyntaxError) as error:
        why = getattr(error, "strerror", None) or "it is no PNG, or damaged"
        raise UsageError(why) from None
    text = base64.b64encode(data).decode()
    return Picture(path.stem, plain_caption(caption).strip(), text, *size)


def _fill_claims(made: Chapter) -> None:
    """Add the claims to a chapter, with notes on the reliability of their verdicts."""
    claims = _read_csv(made.folder, CLAIMS)
    if claims.empty:
        return
    wrong = by_chance(cast("Any", claims.to_dict("records")))
    parts = claims["verdict"].str.partition(" (")
    claims["verdict"], claims["why not"] = parts[0], parts[2].str.removesuffix(")")
    made.verdicts.update(claims["verdict"])
    made.notes += [f"{GIVEN} {wrong}"] * bool(wrong)
    made.notes += [UNJUDGED] * (NOT_JUDGED in made.verdicts)
    shown = claims[[name for name in CLAIM if name in claims]]
    made.grids.append(PageTable("Claims", shown.rename(columns=CLAIM)))


def _fill_choices(made: Chapter) -> None:
    """Add a table of the chosen settings to a chapter, with open choices first."""
    import pandas as pd

    rows = sorted(read_choices(made.folder) or [], key=lambda row: not row["open"])
    made.open = sum(bool(row["open"]) for row in rows)
    frame = pd.DataFrame(rows).reindex(columns=[*CHOICE]).astype(object)
    about = "A choice is open if a better setting may lie beyond what was tried."
    made.grids.append(PageTable(f"Choices: {made.open} open", frame, about, False))


def prose_as_html(text: str) -> Markup:
    """Return Markdown as HTML, with headings two levels lower and without links.

    HTML in the text is escaped. Links are dropped, since they lead to other pages.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(printable_text(text, len(text)))
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(int(token.tag[1:]) + 2, 6)}"
        if token.children:
            token.children = [c for c in token.children if c.type not in LINKS]
    return Markup(reader.renderer.render(tokens, reader.options, {}))


def cell_text(value: object) -> str:
    """Return a value as the string that a table shows; numbers have four digits."""
    text = "" if value is None or value != value else str(value)
    with contextlib.suppress(ValueError):
        text = text if text.isdecimal() else f"{float(text):.4g}"
    return printable_text(text, LONGEST_CELL)


def printable_value(value: object) -> object:
    """Return a value for the template; control characters of strings are escaped."""
    return printable_text(value, LARGEST) if type(value) is str else value


def write_report(folders: Sequence[Path], path: Path, first: str = "") -> Path:
    """Write the report of results folders and return its path.

    Parameters
    ----------
    folders : sequence of Path
        Results folders of experiments and sweeps. For a folder without results, the
        report says that there are none.
    path : Path
        The file to write.
    first : str
        Text at the beginning of the report.

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
        return write_text_file(path, text)


def report_page(folders: Sequence[Path], first: str = "") -> str:
    """Return the report of results folders as HTML.

    Everything that is read from folders is escaped. The policy in the page's head
    forbids all requests, and all scripts except the page's own.
    """
    script = (HERE / "page.js").read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        finalize=printable_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = cell_text
    return environment.get_template("page.html").render(
        chapters=[chapter_of(one) for one in folders],
        first=first,
        most=MOST_ROWS,
        wide=WIDE,
        marked=("open", BEYOND),
        version=__version__,
        made=current_time(),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=base64.b64encode(sha256(script.encode()).digest()).decode(),
    )
