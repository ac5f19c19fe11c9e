"""Parts of the report: tables, pictures and prose, as plain values for its template.

What they hold comes from folders that anyone may have made: the template escapes it,
and no part is larger than the room that is left in the page.
"""

from __future__ import annotations

import base64
import csv
import io
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from dp_erm_bench.errors import printable_text
from dp_erm_bench.paths import content_of
from dp_erm_bench.report.layout import NOTED, picture_mark
from dp_erm_bench.results.files import as_it_was

LARGEST_PICTURE = 1_000_000
"""Bytes of a picture that is taken into the page."""

WIDE = 800
"""Pixels of a picture that is as wide as a page, not as a column."""

PNG = b"\x89PNG\r\n\x1a\n"
HEADER = 24
"""Bytes of a PNG up to its height."""

LONGEST_CELL = 400
CELL = 24
"""Bytes that a cell takes beside its text."""

LINKS = ("link_open", "link_close", "image")


@dataclass
class Room:
    """The bytes that are left in a page.

    Attributes
    ----------
    left : int
    """

    left: int

    def take(self, size: int) -> bool:
        """Take some bytes; return whether there was room for them."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


UNNOTED = "What it was drawn from was not noted when it was drawn."


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text : str
    key : str
        The number by which the column is sorted, empty for a text.
    kind : str
        Of the page's style: `holds`, `fails`, `open` and the like.
    href : str
        The id of an element of the page, empty without a link.
    """

    text: str
    key: str = ""
    kind: str = ""
    href: str = ""


@dataclass(frozen=True)
class Table:
    """A table that a reader can sort and filter.

    Attributes
    ----------
    head : sequence of str
    rows : list of list of Cell
    left_out : int
        Rows that the page has no room for.
    """

    head: Sequence[str]
    rows: list[list[Cell]]
    left_out: int = 0


@dataclass(frozen=True)
class Picture:
    """A picture within the page.

    Attributes
    ----------
    name : str
    caption : str
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
class PanelSection:
    """A panel of a paper: an element of the page that claims link to.

    Attributes
    ----------
    id, name : str
    pictures : list of Picture
    authors : Table or None
        Where the authors' own curves end.
    also : list of (str, str)
        Id and name of other panels that show what this one is about.
    """

    id: str
    name: str
    pictures: list[Picture] = field(default_factory=list)
    authors: Table | None = None
    also: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_wide(self) -> bool:
        """Return whether it needs the width of the page."""
        return any(one.width > WIDE for one in self.pictures)


def cell_of(value: object, kind: str = "", href: str = "") -> Cell:
    """Return a value as a cell, numbers to four digits and sorted as numbers."""
    text = "" if value is None else str(value)
    try:
        number = float(text)
    except ValueError:
        return Cell(printable_text(text, LONGEST_CELL), "", kind, href)
    if math.isnan(number):
        return Cell("", "", kind, href)
    whole = isinstance(value, int) or text.isdecimal()
    return Cell(text if whole else f"{number:.4g}", repr(number), kind, href)


def html_table(
    head: Sequence[str], rows: Iterable[Sequence[Cell]], room: Room, most: int = 1500
) -> Table:
    """Return a table of the rows that there is room for, without empty columns.

    Parameters
    ----------
    head : sequence of str
    rows : iterable of sequence of Cell
    room : Room
        Of the page, from which the table is taken.
    most : int
        Rows at most.
    """
    kept: list[list[Cell]] = []
    left_out = 0
    for row in rows:
        size = sum(CELL + len(one.text.encode()) + len(one.key) for one in row)
        if left_out or len(kept) >= most or not room.take(size):
            left_out += 1
        else:
            kept.append([*row])
    filled = [any(row[place].text for row in kept) for place in range(len(head))]
    return Table(
        [*compress(head, filled)], [[*compress(row, filled)] for row in kept], left_out
    )


def of_csv(text: str) -> tuple[list[str], list[Mapping[str, str]]]:
    """Return columns and rows of a CSV; empty ones of a text that is none."""
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        rows = [{str(k): as_it_was(str(v)) for k, v in row.items()} for row in reader]
    except csv.Error:
        return [], []
    return [*map(str, reader.fieldnames or ())], [*rows]


def picture_of(
    path: Path, folder: Path, room: Room, caption: str = "", table: str | None = ""
) -> Picture:
    """Return the picture of a PNG file.

    One that cannot be read, is none, is too large, is damaged or was drawn from another
    table is a sentence instead.

    Parameters
    ----------
    path, folder : Path
        The file, and the folder that it may not lead out of.
    room : Room
        Of the page.
    caption : str
        Made anew from the table: what lies beside the file is anyone's.
    table : str or None
        The digest of the folder's table, empty if it cannot be read; None for a picture
        that was drawn from it just now.
    """
    why, name = "", printable_text(path.stem)
    try:
        data = content_of(path, folder, LARGEST_PICTURE)
        why = "" if data.startswith(PNG) and len(data) >= HEADER else "it is no PNG"
    except OSError as error:
        data, why = b"", error.strerror or "it cannot be read"
    if not why:
        chunks = _chunks_of_png(data)
        noted = (chunks or {}).get(NOTED.encode())
        if chunks is None:
            why = "it is damaged"
        elif (
            noted
            and table is not None
            and noted != picture_mark(table, path.stem).encode()
        ):
            why = (
                "it is that of another table or another figure; dp-erm-bench collect "
                "draws it again"
            )
        elif not noted and table is not None:
            caption = f"{UNNOTED}\n{caption}"
    caption = printable_text(caption).strip()
    text = base64.b64encode(data).decode()
    if not why and not room.take(len(text) + len(caption)):
        why = "there is no room for it in the page"
    if why:
        return Picture(name, caption, why=why)
    return Picture(name, caption, text, "", *struct.unpack(">II", data[16:24]))


def _chunks_of_png(data: bytes) -> dict[bytes, bytes] | None:
    """Return the texts of a PNG by name, None if it is damaged or cut off."""
    texts, place, kind = {}, len(PNG), b""
    while place + 12 <= len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        body = data[place + 4 : place + 8 + size]
        crc = data[place + 8 + size : place + 12 + size]
        if crc != struct.pack(">I", zlib.crc32(body)):
            return None
        kind, place = body[:4], place + 12 + size
        if kind == b"tEXt":
            key, _, value = body[4:].partition(b"\0")
            texts[key] = value
    return texts if kind == b"IEND" and place == len(data) else None


def prose_as_html(text: str) -> str:
    """Return Markdown as HTML, two levels of headings lower and without its links.

    HTML in the text is escaped; links would lead out of the page.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(int(token.tag[1:]) + 2, 6)}"
        if token.children:
            token.children = [c for c in token.children if c.type not in LINKS]
    return str(reader.renderer.render(tokens, reader.options, {}))


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return what a manifest holds at a key that is to be an object, else nothing."""
    return value if isinstance(value, dict) else {}
