"""The report: one file of HTML that needs no network and sends nothing.

What it shows comes from folders that anyone may have made: the template escapes it.
"""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
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
from dp_erm_bench.report.claims.lookup import (
    GIVEN,
    NOT_JUDGED,
    SMOKE,
    UNJUDGED,
    by_chance,
)
from dp_erm_bench.report.layout import plain_caption, save_sheet, write_text_file
from dp_erm_bench.report.make import CLAIMS, latest_figures
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
from dp_erm_bench.results.settings import RAN, final_rows
from dp_erm_bench.results.statistics import FEWEST, baseline_columns
from dp_erm_bench.results.table import COLUMNS, UNREADABLE, is_stale, load_results
from dp_erm_bench.results.tuned import read_choices

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 15_000_000
"""Bytes of a report."""

LARGEST_PICTURE = 1_000_000
"""Bytes of a picture that is taken into the page."""

MOST_ROWS, LONGEST_CELL = 1500, 400
WIDE = 800
"""Pixels of a picture that is as wide as a page, not as a column."""

NAME = "report.html"
HERE = Path(__file__).parent
AUDITS = "audits.csv"
EPSILON = "_epsilon"
"""End of the name of a panel's second picture."""

NOTHING = "may be no better than"
HELD_OUT = ("test_accuracy", "balanced_accuracy", "auc", "test_risk", "rmse", "r2")
CLAIM = (
    *("statement", "whose", "source", "kind", "measured", "threshold", "value"),
    *("interval", "good", "of_zero", "expected"),
)
"""Columns of claims.csv that are shown as they are, those that a folder has."""

HEADS = {"of_zero": "good line's error / that of w = 0", "good": "good line"}
CHOICE = ("panel", "line", "epsilon", "chosen", "mean", "settings", "trials", "open")
LINKS = ("link_open", "link_close", "image")


@dataclass
class PageTable:
    """A table that a reader can sort and filter.

    Attributes
    ----------
    title : str
    rows : DataFrame
    marks : mapping of (int, str) to str
        Classes of the page's style, by row and column.
    links : mapping of int to str
        The ids of what the first cells of rows link to.
    about : str
        A sentence before it.
    is_open : bool
        Whether it is unfolded at first.
    """

    title: str
    rows: pd.DataFrame
    marks: Mapping[tuple[int, str], str] = field(default_factory=dict)
    links: Mapping[int, str] = field(default_factory=dict)
    about: str = ""
    is_open: bool = True

    def __post_init__(self) -> None:
        """Leave empty columns out."""
        shown = self.rows.replace("", None).dropna(axis=1, how="all")
        self.rows = shown.reset_index(drop=True)


@dataclass(frozen=True)
class Picture:
    """A picture within the page.

    Attributes
    ----------
    name, caption : str
    data : str
        Its PNG in base64, empty where there is none.
    why : str
        Why there is none.
    width, height : int
        Its pixels.
    """

    name: str
    caption: str = ""
    data: str = ""
    why: str = ""
    width: int = 0
    height: int = 0


@dataclass
class Chapter:
    """What the report says of a results folder.

    Attributes
    ----------
    id, name : str
    folder : Path
    about : str
        What its experiment is, of one that is part of the package.
    notes : list of str
        Sentences that a reader has to know first.
    asked, answers, facts : list of (str, str)
        The problem; who is the best; command, machine, commit, versions.
    verdicts : mapping of str to int
        How many claims have each verdict.
    open : int
        The number of open choices.
    pictures : list of Picture
    grids : list of PageTable
    pages : list of (str, str)
        Heading and HTML of pages, as a leaderboard's.
    """

    id: str
    name: str
    folder: Path
    about: str = ""
    notes: list[str] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    open: int = 0
    pictures: list[Picture] = field(default_factory=list)
    grids: list[PageTable] = field(default_factory=list)
    pages: list[tuple[str, str]] = field(default_factory=list)

    def link_of(self, name: str) -> str:
        """Return the id of the picture of a panel, or of all where it has none."""
        own = (name, f"{name}{EPSILON}")
        found = (k for k, one in enumerate(self.pictures, 1) if one.name in own)
        return f"{self.id}-p{next(found, 's')}"


def chapter_of(folder: Path, number: int) -> Chapter:
    """Return the chapter of a folder, with a sentence for all that it lacks.

    Parameters
    ----------
    folder : Path
        A results folder of anyone's: nothing that it names is imported or run.
    number : int
        Of the chapter, from 1: its ids begin with it.
    """
    manifest = read_manifest(folder)
    made = Chapter(f"c{number}", printable_text(folder.resolve().name), folder)
    made.facts = [*manifest_facts(manifest)]
    made.about = experiment_notes(manifest, folder)
    table = _load_table(made)
    _note_versions(manifest, made)
    claims = _rows_of_file(made, CLAIMS)
    if claims is not None and not {"figure", "statement", "verdict"} <= {*claims}:
        made.notes.append(f"{CLAIMS}: is damaged")
        claims = None
    if table is not None:
        _try(made, "its results", lambda: _fill_results(made, table))
    _fill_pictures(made, table)
    if claims is not None:
        made.grids.insert(0, _claims_grid(claims, made))
    _try(made, "choices", lambda: _fill_choices(made))
    audits = _rows_of_file(made, AUDITS)
    if audits is not None:
        marks = {
            (row, "verdict"): "ok" if verdict == "ok" else "fails"
            for row, verdict in enumerate(audits.get("verdict", ()))
        }
        made.grids.append(
            PageTable("Audits of this folder", audits, marks, is_open=False)
        )
        made.pages.append(
            ("Broken twins: which check finds which", _docs_page("broken-twins"))
        )
    if claims is not None and made.about:
        made.pages.append(("Errata of the papers", _docs_page("errata")))
    return made


def _try(made: Chapter, what: str, fill: Any) -> None:
    """Fill a part of a chapter, or say that a folder does not fit it."""
    try:
        fill()
    except (UsageError, *UNREADABLE) as error:
        kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
        why = printable_text(f"{kind}{error}", 500)
        made.notes.append(f"{what} cannot be shown: {why}")


def manifest_facts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a manifest says of its run: machine, commit and versions."""
    environment = as_mapping(manifest.get("environment"))
    git = as_mapping(environment.get("git"))
    commit = str(git.get("commit") or "")
    said = {
        **{
            key: manifest.get(key) for key in ("command", "profile", "started", "ended")
        },
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
            yield printable_text(str(key), 60), line_of_words(value)


def line_of_words(value: Any) -> str:
    """Return a value of a manifest, or a list of them, as one line."""
    parts = value if isinstance(value, list) else [value]
    return printable_text(" ".join(map(str, parts)), 1000)


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return what a manifest holds at a key that is to be an object, else nothing."""
    return value if isinstance(value, dict) else {}


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


def _load_table(made: Chapter) -> pd.DataFrame | None:
    """Return the table of a folder, None after a note on why there is none."""
    folder = made.folder
    try:
        if (folder / "results.parquet").is_file() and is_stale(folder):
            made.notes.append(
                "records were added after its table: the pictures and claims below may "
                f"be older; dp-erm-bench collect {folder} makes them again"
            )
        loaded = load_results(folder).reindex(columns=[*COLUMNS])
    except (UsageError, *UNREADABLE) as error:
        made.notes.append(printable_text(str(error), 500))
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
    if changed := as_mapping(manifest.get("config")).get("changes"):
        made.notes.append(
            f"not the experiment as it is: changed {line_of_words(changed)}"
        )


def _rows_of_file(made: Chapter, name: str) -> pd.DataFrame | None:
    """Return the rows of a CSV as texts, None if there are none or it is damaged."""
    import pandas as pd

    try:
        text = read_text(made.folder, name)
        rows = pd.read_csv(io.StringIO(text or ""), dtype=str, keep_default_na=False)
    except pd.errors.EmptyDataError:
        return None
    except (UsageError, ValueError) as error:
        made.notes.append(f"{name}: is damaged ({printable_text(str(error), 200)})")
        return None
    return rows if len(rows) else None


def _fill_results(made: Chapter, table: pd.DataFrame) -> None:
    """Fill in what was asked, the answer, the ends of the runs, and failures."""
    failed = final_rows(table[table["status"].ne("ok")])
    if len(failed):
        made.grids.append(failures_grid(failed))
    if table["objective"].isna().all():  # of a study, or nothing but failures
        return
    drawn = rows_of_view(table, View("epsilon", folder=made.folder))
    rows, summary = drawn.rows, summary_of(drawn)
    named = rows.assign(**{TITLE: rows[PANEL], LABEL: rows[LINE]})
    facts = facts_of_panels(named)
    for panel, own in named.groupby(PANEL, sort=False):
        options = words_of(own["dataset_options"].replace("{}", None))
        clipped = own["clipped"].astype(float)
        words = [f"{name}: {said[str(panel)]}" for name, said in facts.items()]
        words += [f"options: {options}"] if options else []
        words += [f"share clipped: {span_of(clipped)}"] if clipped.notna().any() else []
        made.asked.append((str(panel), printable_text("; ".join(words), 600)))
    for key, own in summary.groupby([PANEL, "epsilon"], sort=False):
        panel, at = cast("tuple[str, float]", key)
        best, ties = (own.loc[own["place"] == one, LINE] for one in ("wins", "ties"))
        if len(best):
            close = (
                f", {', '.join(ties)} as good for all that is known"
                if len(ties)
                else ""
            )
            made.answers.append(
                f"{panel}, epsilon = {at:g}: {best.iloc[0]} is best{close}."
            )
    made.answers += filter(None, (nothing_beaten(drawn, summary), drawn.unlike))
    made.grids.insert(0, results_grid(rows, summary))


def results_grid(rows: pd.DataFrame, summary: pd.DataFrame) -> PageTable:
    """Return the ends of the runs that judge, and what is certified of them.

    Parameters
    ----------
    rows, summary : DataFrame
        The rows of a view against epsilon, and what `summary_of` says of it.
    """
    import pandas as pd

    keys = [PANEL, "_x", LINE]
    groups = rows.groupby(keys, sort=False)
    proved = groups["epsilon_certified"].agg(lambda own: own.max(skipna=False))
    uses = groups["uncharged"].agg(
        lambda own: ", ".join(
            sorted({u for text in own.dropna() for u in text.split(",")})
        )
    )
    same = {
        of: groups[of].agg(words_of) for of in ("delta", "adjacency", "calibration")
    }
    ends = summary.rename(columns={"epsilon": "_x"}).set_index(keys)
    shown = ends[["median", "ci_low", "ci_high", "runs", "unbeaten"]].rename(
        columns={"unbeaten": NOTHING}
    )
    beyond = ~(proved <= proved.index.get_level_values("_x") * (1 + 1e-6))
    known = proved.astype(object).where(proved.notna(), "unknown")
    shown.insert(0, "certified epsilon", known)
    for name in (one for one in HELD_OUT if rows[one].notna().any()):
        levels = (
            baseline_columns(rows, name).groupby([rows[PANEL], rows["_x"]]).median()
        )
        beside = levels.stack().rename_axis(keys)
        shown[name] = pd.concat([groups[name].median(), beside])
    shown["not charged"] = uses.replace("", "nothing")
    marked = {*proved.index[beyond]}
    open_rows = [row for row, key in enumerate(shown.index) if key in marked]
    frame = shown.assign(**same).reset_index().rename(columns={"_x": "epsilon"})
    order = [PANEL, LINE, "epsilon", *frame.columns.drop([PANEL, LINE, "epsilon"])]
    marks = {(row, "certified epsilon"): "open" for row in open_rows}
    about = (
        f"Ends of the runs that judge, of {summary['quantity'].iloc[0]}. A line may be "
        "no better than w = 0 or the constant model, which is not private, if its 95 % "
        f"interval does not lie below; fewer than {FEWEST} runs have no interval. A "
        "certified epsilon that is marked is above the nominal one or not known. What "
        "is not charged was read off the data as if it were public."
    )
    title = "Results, certified epsilon, what was not charged"
    return PageTable(title, frame[order], marks, about=about)


def failures_grid(failed: pd.DataFrame) -> PageTable:
    """Return how many trials have no result, by status and reason."""
    reasons = failed["message"].fillna("").astype(str).str.partition("\n")[0]
    counts = reasons.groupby([failed["status"], reasons], sort=False).size()
    rows = counts.rename("trials").rename_axis(["status", "reason"]).reset_index()
    ordered = rows.sort_values("trials", ascending=False, kind="stable")
    return PageTable("Trials without a result", ordered[["trials", "status", "reason"]])


def _fill_pictures(made: Chapter, table: pd.DataFrame | None) -> None:
    """Take a folder's pictures, and its page.

    Without pictures, what `dp-erm-bench plot` draws of its table stands in for them.
    """
    folder = made.folder
    names = [name for name in latest_figures(folder) if name.endswith(".png")]
    paths = [folder / name for name in names] + list_files(folder / PLOTS, ".png")
    made.pictures = [picture_of(path, folder) for path in paths]
    if not made.pictures and table is not None:
        made.pictures = [*_plots_of_folder(made, table)]
    if (page := read_text(folder, "leaderboard.md")) is not None:
        made.pages.append(("Leaderboard", prose_as_html(page.partition("\n")[2])))


def _plots_of_folder(made: Chapter, table: pd.DataFrame) -> Iterator[Picture]:
    """Yield what `plot` draws of a folder, without writing into it."""
    found: list[Picture] = []
    forget_styles()
    with TemporaryDirectory() as home, house_style():

        def draw(kind: str, view: View) -> None:
            one = sheet_of_view(table, view, kind)
            save_sheet(one, Path(home) / one.name, ("png",))
            found.append(picture_of(Path(home) / f"{one.name}.png", Path(home)))

        kinds: list[tuple[str, View]] = []
        _try(
            made, "plots", lambda: kinds.extend(all_of(table, View(folder=made.folder)))
        )
        for kind, view in kinds:
            _try(made, kind, lambda kind=kind, view=view: draw(kind, view))
    yield from found


def picture_of(path: Path, folder: Path) -> Picture:
    """Return the picture of a PNG file with the caption beside it.

    One that cannot be read, is none, is too large or damaged is a sentence instead.

    Parameters
    ----------
    path, folder : Path
        The file, and the folder that it may not lead out of.
    """
    from PIL import Image

    name, size = printable_text(path.stem), (0, 0)
    try:
        data = content_of(path, folder, LARGEST_PICTURE)
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            size = image.size
            image.verify()
        caption = content_of(path.with_suffix(".txt"), folder, LARGEST_PICTURE).decode()
    except FileNotFoundError:
        caption = "No caption lies beside it."
    except (OSError, ValueError, SyntaxError) as error:
        why = getattr(error, "strerror", None) or "it is no PNG, or damaged"
        return Picture(name, why=why)
    text = base64.b64encode(data).decode()
    return Picture(
        name, printable_text(plain_caption(caption)).strip(), text, "", *size
    )


def _claims_grid(claims: pd.DataFrame, made: Chapter) -> PageTable:
    """Return the claims, each with a link to its panel."""
    parts = claims["verdict"].str.partition(" (")
    verdicts = parts[0].map(lambda text: printable_text(text, 40))
    made.verdicts.update(verdicts)
    shown = claims[[name for name in CLAIM if name in claims]].rename(columns=HEADS)
    shown.insert(0, "verdict", verdicts)
    shown.insert(0, "panel", claims["figure"])
    shown["why not"] = parts[2].str.removesuffix(")")
    shown["open choices"] = claims.get("open", "")
    marks = {
        (row, "verdict"): word.replace(" ", "-")
        for row, word in enumerate(verdicts)
        if word.replace(" ", "").isalpha()
    }
    marks |= {
        (k, "open choices"): "open"
        for k, one in enumerate(shown["open choices"])
        if one
    }
    links = {row: made.link_of(name) for row, name in enumerate(claims["figure"])}
    if wrong := by_chance(cast("Any", claims.to_dict("records"))):
        made.notes.append(f"{GIVEN} {wrong}")
    if NOT_JUDGED in made.verdicts and UNJUDGED not in made.notes:
        made.notes.append(UNJUDGED)
    return PageTable("Claims", shown, marks, links)


def _fill_choices(made: Chapter) -> None:
    """Fill in the choices, the open ones marked and first."""
    import pandas as pd

    rows = sorted(read_choices(made.folder) or [], key=lambda row: not row["open"])
    made.open = sum(bool(row["open"]) for row in rows)
    if rows:
        frame = pd.DataFrame(rows).reindex(columns=[*CHOICE]).astype(object)
        marks = {(row, "open"): "open" for row in range(made.open)}
        about = "A choice is open if a better setting may lie beyond what was tried."
        title = f"Choices: {made.open} open"
        made.grids.append(PageTable(title, frame, marks, about=about, is_open=False))


def prose_as_html(text: str) -> Markup:
    """Return Markdown as HTML, two levels of headings lower and without its links.

    HTML in the text is escaped; links would lead out of the page.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(printable_text(text, len(text)))
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(int(token.tag[1:]) + 2, 6)}"
        if token.children:
            token.children = [c for c in token.children if c.type not in LINKS]
    return Markup(reader.renderer.render(tokens, reader.options, {}))


def _docs_page(name: str) -> Markup:
    """Return a page of the documentation: the checkout's, else the wheel's."""
    path = registry.conf_dir().parent / "docs" / f"{name}.md"
    return prose_as_html(path.read_text(encoding="utf-8"))


def cell_text(value: object) -> str:
    """Return a value as a cell, numbers to four digits."""
    number = number_key(value)
    whole = isinstance(value, int) or str(value).isdecimal()
    if number and not whole:
        return f"{float(number):.4g}"
    missing = value is None or value != value
    return "" if missing else printable_text(str(value), LONGEST_CELL)


def number_key(value: object) -> str:
    """Return the number by which a cell is sorted, empty of a text."""
    try:
        number = float(str(value))
    except ValueError:
        return ""
    return "" if math.isnan(number) else repr(number)


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
        return write_text_file(path, text)


def report_page(folders: Sequence[Path], first: str = "") -> str:
    """Return the report of results folders as HTML.

    All that is read from folders is escaped. The policy in the page's head forbids
    every request, and every script but the page's own.
    """
    script = (HERE / "page.js").read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": cell_text, "key": number_key}
    return environment.get_template("page.html").render(
        chapters=[chapter_of(one, number) for number, one in enumerate(folders, 1)],
        first=first,
        most=MOST_ROWS,
        wide=WIDE,
        version=__version__,
        made=current_time(),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=base64.b64encode(sha256(script.encode()).digest()).decode(),
    )
