"""Figures of an experiment: each kind is a dataclass whose fields are yaml keys.

A *line* consists of the runs with one label in a panel, usually those of one algorithm.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import absolute_path, is_file
from dp_erm_bench.report.curves import Missing
from dp_erm_bench.results.files import csv_of, write_text
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.table import facts_in

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Facts = tuple[Mapping[str, Any], Mapping[str, Any]]
QUOTIENT = "quotient"
"""The axis for the quotient of two theoretical bounds, which is not a column."""
LinesOf = Mapping[str, Sequence[str]]
"""The lines of each panel of an experiment."""

KINDS = {
    "accounting": "dp_erm_bench.report.studies.Accounting",
    "audit": "dp_erm_bench.report.studies.Audit",
    "curves": "dp_erm_bench.report.plot.Curves",
    "leaderboard": "dp_erm_bench.report.leaderboard.Leaderboard",
    "lines": "dp_erm_bench.report.lines.Lines",
    "nonzeros": "dp_erm_bench.report.studies.Nonzeros",
    "panels": "dp_erm_bench.report.panels.Panels",
    "profile": "dp_erm_bench.report.plot.Profile",
    "winners": "dp_erm_bench.report.plot.Winners",
}
SMOKE_MARK = "profile smoke"
WORDS = {
    **{str: "a word", bool: "true or false", dict: "a mapping"},
    **{int: "an integer", float: "a number"},
}


@dataclass(frozen=True)
class Drawing:
    """The input of the figures of an experiment.

    Attributes
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint, or that of `Figure.table`.
    folder : Path
        The folder of the figures, in the results folder.
    paper : str
        Name of the experiment; names of files begin with it.
    config : mapping
        The experiment's resolved configuration; captions name its `profile`.
    """

    table: pd.DataFrame
    folder: Path
    paper: str
    config: Mapping[str, Any]

    @property
    def profile(self) -> str:
        """Return the profile that was run."""
        return str(self.config.get("profile", "?"))

    @property
    def mark(self) -> str:
        """Return the text across the pictures, empty except for the profile smoke."""
        return SMOKE_MARK if self.profile.startswith("smoke") else ""

    def path(self, name: str) -> Path:
        """Return the path of a figure's files without their suffix."""
        return self.folder / "_".join(filter(None, (self.paper, name)))


def smoke_mark(folder: Path) -> str:
    """Return the text across the pictures of a smoke run; empty for other folders."""
    known = folder != Path() and read_manifest(folder).get("profile") == "smoke"
    return SMOKE_MARK if known else ""


class Figure:
    """Base class of figures. A kind of figure is a dataclass with a method `draw`."""

    def panel_lines(self) -> Iterable[Sequence[str]]:
        """Return the lines of each panel, whose styles are the same in all figures."""
        return ()

    def check(self, lines: LinesOf) -> None:
        """Raise UsageError for panels or lines that the experiment does not have."""

    def table(self, folder: Path) -> pd.DataFrame | None:
        """Return the figure's own table for a results folder; None if it has none."""
        return None

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the figure and return the files written."""
        raise NotImplementedError


def panels_of(panels: Collection[str], panel: str, axis: str = "") -> list[str]:
    """Return the panels that a name refers to: a single panel, or a family of panels.

    Parameters
    ----------
    panels : collection of str
        Labels of all panels.
    panel : str
        Label of a panel, or the common start of the labels of a family.
    axis : str
        The axis along which the panels of a family differ; empty for a single panel.
    """
    if axis == QUOTIENT or (axis and panel not in panels):
        return [one for one in panels if one.startswith(f"{panel}_")]
    return [panel] if panel in panels else []


def lines_of_panel(
    lines: LinesOf, panel: str, axis: str = "", key: str = "panel"
) -> list[str]:
    """Return the lines of a panel, or the lines that all panels of a family have.

    Parameters
    ----------
    lines : mapping of str to sequence of str
        The lines of each panel of the experiment.
    panel : str
        Label of a panel, or the common start of the labels of a family.
    axis : str
        As in `panels_of`.
    key : str
        The name of the argument in error messages.

    Raises
    ------
    UsageError
        If there is no such panel, or if the name is both a panel and a family.
    """
    panels = panels_of(lines, panel, axis)
    if not panels:
        registry.check_choice(key, panel, list(lines))
    if axis and panel in lines and (longer := panels_of(lines, panel, QUOTIENT)):
        raise UsageError(
            f"{key}={panel}: must be a panel or the beginning of others; it is a panel "
            f"and the beginning of {longer[0]}"
        )
    common = set.intersection(*(set(lines[one]) for one in panels))
    return [line for line in dict.fromkeys(lines[panels[0]]) if line in common]


def look_up_lines(
    lines: Sequence[str], look: Callable[[str], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """Look up lines; return those that ran by label, and the reasons for the others."""
    ran: dict[str, T] = {}
    missing: dict[str, str] = {}
    for line in lines:
        try:
            ran[line] = look(line)
        except Missing as reason:
            missing[line] = str(reason)
    return ran, missing


class Study(Figure):
    """A figure of a study; its table is made from the saved records of tasks."""

    file: ClassVar[str]

    def rows(self, recorded: Iterable[Facts]) -> Iterable[dict[str, Any]]:
        """Yield the rows of the table, from the spec and the facts of every trial."""
        raise NotImplementedError

    def table(self, folder: Path) -> pd.DataFrame:
        """Return the table of what the study recorded, and write it to `file`."""
        import pandas as pd

        table = pd.DataFrame(self.rows(facts_in(folder)))
        write_text(folder, self.file, csv_of(table))
        return table


def figures_of(config: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of an experiment.

    Raises
    ------
    UsageError
        With a message that names the figure, the key, its value and what is allowed.
    """
    figures = []
    for number, entry in enumerate(config.get("figures") or (), 1):
        if not isinstance(entry, dict):
            raise UsageError(f"figure {number}={entry}: must be a mapping")
        figures.append(figure_of(entry, f"figure {number}", KINDS))
    return figures


def figure_of(entry: Mapping[str, Any], where: str, kinds: Mapping[str, str]) -> Any:
    """Return the object that a mapping with the key `kind` describes.

    Parameters
    ----------
    entry : mapping
        The `kind` and the fields of its dataclass. The kind of a figure may also be a
        Python file that defines it.
    where : str
        How error messages begin.
    kinds : mapping of str to str
        Dotted names of the dataclasses, by kind.
    """
    fields = dict(entry)
    kind = fields.pop("kind", None)
    if kinds is KINDS and is_file(kind):
        cls: type[Any] = _figure_class_of_file(absolute_path(str(kind)))
    else:
        registry.check_choice(f"{where}: kind", kind, sorted(kinds))
        cls = registry.locate(kinds[str(kind)])
    return build_from_values(cls, fields, f"{where} ({kind})")


def _figure_class_of_file(path: str) -> type[Figure]:
    """Return the class of figures that a Python file defines."""
    name = f"figure_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(f"kind={path}: no such file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kinds = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == name and issubclass(one, Figure)
    ]
    if len(kinds) != 1 or not dataclasses.is_dataclass(kinds[0]):
        raise UsageError(f"kind={path}: must define one dataclass, a Figure")
    return kinds[0]


def build_from_values(cls: type[T], value: Any, where: str) -> T:
    """Return a dataclass filled from plain values, including nested dataclasses.

    Parameters
    ----------
    cls : type
        The dataclass.
    value : mapping
        Plain values by the names of the fields.
    where : str
        How error messages begin.

    Raises
    ------
    UsageError
        If a key is unknown or missing, or a value is of another type.
    """
    if not isinstance(value, dict):
        raise UsageError(f"{where}={value}: must be a mapping")
    types, fields = typing.get_type_hints(cls), dataclasses.fields(cls)  # type: ignore[arg-type]
    for key in value:
        registry.check_choice(f"{where}: key", key, [field.name for field in fields])
    for field in fields:
        needed = field.default is field.default_factory is dataclasses.MISSING
        if needed and value.get(field.name) is None:
            raise UsageError(f"{where}: {field.name}: must be given")
    values = {
        k: _value_of_field(types[k], v, f"{where}: {k}") for k, v in value.items()
    }
    try:
        return cls(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _value_of_field(kind: Any, value: Any, where: str) -> Any:
    """Return a plain value converted to the type of a field."""
    if dataclasses.is_dataclass(kind):
        return build_from_values(kind, value, where)  # type: ignore[arg-type]
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list) or not value:
            raise UsageError(f"{where}={value}: must be a list of at least one value")
        places = enumerate(value, 1)
        return tuple(
            _value_of_field(inner[0], one, f"{where} {place}") for place, one in places
        )
    if inner:
        whole = _value_of_field(dict, value, where)
        return {
            k: _value_of_field(inner[1], v, f"{where} {k}") for k, v in whole.items()
        }
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is not Any and not (number if kind is float else isinstance(value, kind)):
        raise UsageError(f"{where}={value}: must be {WORDS[kind]}")
    return value


def check_stem(name: str) -> None:
    """Raise UsageError for a name with which a file would be outside its folder."""
    if not name.isprintable() or Path(name).name != name or len(name) > 100:
        raise UsageError(f"name={name!r}: must be a plain name for a file")
