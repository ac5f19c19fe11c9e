"""The panels of a results folder: its pictures, drawn where it has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dp_erm_bench.errors import UsageError, printable
from dp_erm_bench.report import panels
from dp_erm_bench.report.html.parts import (
    Panel,
    Picture,
    Room,
    Table,
    cell,
    picture,
    table,
)
from dp_erm_bench.report.layout import save
from dp_erm_bench.report.make import captions_of, digest_of, drawn_last
from dp_erm_bench.report.plot import all_of, sheet
from dp_erm_bench.report.style import house_style
from dp_erm_bench.report.texts import plain
from dp_erm_bench.report.view import View
from dp_erm_bench.results.table import UNREADABLE

if TYPE_CHECKING:
    import pandas as pd

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
    panels : list of Panel
    notes : list of str
        Sentences on what cannot be shown.
    """

    id: str
    room: Room
    panels: list[Panel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fill(
        self, folder: Path, loaded: pd.DataFrame | None, figures: Iterable[str]
    ) -> None:
        """Take a folder's pictures, each into its panel.

        Parameters
        ----------
        folder : Path
        loaded : DataFrame or None
            Its table; what `dp-erm-bench plot` draws of it stands in for pictures.
        figures : iterable of str
            The panels that claims name: each has an element, with a picture or not.
        """
        try:
            names = [name for name in drawn_last(folder) if name.endswith(".png")]
        except UsageError as error:
            names = []
            self.notes.append(reason(error))
        told = self._captions(folder, loaded) if names else {}
        noted = "" if loaded is None else digest_of(loaded)
        found = [
            picture(folder / name, folder, self.room, told.get(stem, UNTOLD), noted)
            for name in names
            for stem in [Path(name).stem]
        ]
        if not found and loaded is not None:
            found = [*self._plots(folder, loaded)]
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
            panel.authors = _authors(panel.name, self.room)
            if not panel.pictures:
                panel.also = [*self._also(panel.name, known)]

    def _captions(self, folder: Path, loaded: pd.DataFrame | None) -> dict[str, str]:
        """Return the captions that the table makes, none after a note on why not."""
        if loaded is None:
            return {}
        try:
            return captions_of(folder, loaded)
        except (UsageError, *UNREADABLE, MemoryError) as error:
            self.notes.append(f"captions cannot be made: {reason(error)}")
            return {}

    def panel(self, name: str) -> Panel:
        """Return the panel of a name, a new one if there is none yet."""
        shown = printable(name, 200)
        for panel in self.panels:
            if panel.name == shown:
                return panel
        self.panels.append(Panel(f"{self.id}-p{len(self.panels) + 1}", shown))
        return self.panels[-1]

    def _also(self, name: str, known: set[str]) -> Iterator[tuple[str, str]]:
        """Yield the panels of a family, else the pictures that are of several."""
        drawn = [panel for panel in self.panels if panel.pictures]
        family = [panel for panel in drawn if panel.name.startswith(f"{name}_")]
        several = [panel for panel in drawn if panel.name not in known]
        for panel in family or several:
            yield panel.id, panel.name

    def _plots(self, folder: Path, loaded: pd.DataFrame) -> Iterator[Picture]:
        """Yield what `plot` draws of a folder, without writing into it."""
        try:
            kinds = [*all_of(loaded, View(folder=folder))]
        except (UsageError, *UNREADABLE) as error:
            self.notes.append(f"nothing is drawn: {reason(error)}")
            return
        for kind, asked in kinds:
            try:
                with TemporaryDirectory() as home, house_style():
                    one = sheet(loaded, asked, kind)
                    path = Path(home) / f"{one.name}.png"
                    save(one, path.with_suffix(""), ("png",))
                    told = plain(one.caption)
                    yield picture(path, Path(home), self.room, told, None)
            except (UsageError, *UNREADABLE) as error:
                self.notes.append(f"{kind}: {reason(error)}")


def reason(error: BaseException) -> str:
    """Return an error as a sentence of the page."""
    kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
    return printable(f"{kind}{error}", 500)


def _authors(panel: str, room: Room) -> Table | None:
    """Return where the authors' curves of a panel begin and end."""
    rows = []
    for name, (line, band) in panels.decoded(panel).items():
        numbers = line[0, 1], *line[-1], *band[-1, 1:]
        rows.append([cell(name), *(cell(float(number)) for number in numbers)])
    head = ["authors' curve", "at w = 0", "passes", "relative error", "low", "high"]
    return table(head, rows, room) if rows else None
