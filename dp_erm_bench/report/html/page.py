"""The report: one file of HTML that needs no network and sends nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dp_erm_bench import __version__, registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.html.chapter import AUDITS, audits, chapter
from dp_erm_bench.report.html.parts import Room, prose
from dp_erm_bench.report.panels import source
from dp_erm_bench.report.texts import write_text
from dp_erm_bench.results.files import telling
from dp_erm_bench.results.runs import now

LARGEST = 15_000_000
"""Bytes of a report."""

FRAME = 1_000_000
"""Bytes that are kept free for the text around tables and pictures."""

NAME = "report.html"
HERE = Path(__file__).parent


def write_report(folders: Sequence[Path], path: Path) -> Path:
    """Write the report of results folders and return its path.

    Parameters
    ----------
    folders : sequence of Path
        Of experiments and sweeps; one without results is a sentence in the report.
    path : Path
        The file to write.

    Raises
    ------
    UsageError
        If the file cannot be written, or would be larger than `LARGEST`.
    """
    text = report_page(folders)
    if len(text.encode()) > LARGEST:
        most = LARGEST // 1_000_000
        raise UsageError(f"{path}: would have more than {most} MB; name fewer folders")
    with telling(path.parent):
        return write_text(path, text)


def report_page(folders: Sequence[Path]) -> str:
    """Return the report of results folders as HTML.

    All that is read from folders is escaped. The policy in the page's head forbids
    every request, and every script but the page's own.
    """
    room = Room(LARGEST - FRAME)
    errata, twins = (prose(_document(name)) for name in ("errata", "broken-twins"))
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
        chapters=[chapter(one, number, room) for number, one in enumerate(folders, 1)],
        version=__version__,
        made=now(),
        authors=source(),
        audits=audits(text, room) if text else None,
        errata=Markup(errata),
        twins=Markup(twins),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=base64.b64encode(sha256(script.encode()).digest()).decode(),
    )


def _document(name: str) -> str:
    """Return a page of the documentation: the checkout's, else the wheel's."""
    path = registry.conf_dir().parent / "docs" / f"{name}.md"
    return path.read_text(encoding="utf-8")
