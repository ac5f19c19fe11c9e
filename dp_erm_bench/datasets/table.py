"""Read a csv as records, and find its separator, its columns and wrong cells.

A *word* is a label or category that is not a number. Each cell is read by itself. The
kind of a column is declared, never inferred from its other cells. So a replaced record
changes only its own row.
"""

import contextlib
import csv
import io
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.datasets.base import Feature, check_headings, is_missing
from dp_erm_bench.datasets.prepare import check_names
from dp_erm_bench.datasets.records import (
    BOOLEANS,
    EXACT,
    MOST_CLASSES,
    are_words,
    as_number,
    distinct_words,
    fold_word,
    label_spelling,
    missing_codes,
    names_in,
    word_places,
)
from dp_erm_bench.errors import (
    UsageError,
    check_heading,
    escape_line,
    quote_heading,
    quote_word,
    typed_text,
)

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ",;\t"
INDEX = ("drop", "keep")
UNNAMED = "Unnamed: "
"""Start of the name that pandas gives to a column whose heading is empty."""

ONEHOT = "dataset.onehot"
"""Key of the columns of categories, with the categories of each."""

SHORTEST = 3
"""Smallest number of rows for which a column that counts them is not a coincidence."""

INDEXED = (
    "column 0 {}, as an index; leave it out with dataset.index=drop, or take it as a "
    "column like the others with dataset.index=keep"
)

EITHER = (
    "row 1 {}, it may be headings or a record; decide it with dataset.header=true or "
    "dataset.header=false"
)

WRONG = (
    *("holds a word", "holds text", "holds a number that is not finite"),
    "has no value",
)
"""Descriptions of faults of a cell."""

MOST_LINES = 100
"""Largest number of lines in a message about the columns of one file."""

MOST_CATEGORIES, MOST_READ = 100, 1000
"""Largest numbers of categories that are read from records: per column, and in all."""

QUOTED = re.compile(r'"[^"]*"')
BREAK = re.compile("[\r\n]")

ZERO_WIDTH = re.compile("[\ufeff\u200b\u2060]")
"""Invisible characters that some programs write before a heading or a cell."""

DATE = "|".join(
    (
        r"\d{4}[-/.]\d\d?[-/.]\d\d?(?:[T ].*)?",
        r"\d\d?[-/.]\d\d?[-/.]\d{2,4}(?:[T ].*)?",
        r"(?:19|20)\d\d[-/](?:0?[1-9]|1[0-2])",
        r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])",
        r"\d\d?:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AaPp]\.?[Mm]\.?)?",
        r"(?:\w{3,9}\.?,? )?\d\d?\.?[- ][^\W\d]{3,9}\.?[- ]\d{2,4}",
        r"[^\W\d]{3,9}\.? \d\d?,? \d{4}",
        r"(?:[^\W\d]{3,9}\.? |Q[1-4] ?)(?:19|20)\d\d|\d{4}[- ]?[QW]\d\d?",
    )
)
"""Patterns of dates and times of day."""

FIGURES = r"[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d+)?"
CURRENCY = r"(?:[$€£¥₹]|USD|EUR|GBP|CHF|JPY|CNY|INR|kr|zł)"
SPELLINGS = {
    "decimal commas or thousands separators": (
        r"[-+]?\d{1,3}(?:[.,'’\s]\d{3})+(?:[.,]\d+)?|[-+]?\d*,\d+(?:[eE][-+]?\d+)?"
    ),
    "percent signs": rf"{FIGURES}\s?%",
    "currencies": rf"[-+]?\s?{CURRENCY}\s?{FIGURES}|{FIGURES}\s?{CURRENCY}",
    "units": (
        rf"{FIGURES}(?:\s[^\W\d]{{1,4}}(?:/\w+)?|\s?°[CF]?|[kmµ]?g|[ckmµ]?m|m?l|m?s|h|[kKM])"
    ),
    "parentheses": r"\([\d.,]+\)",
    "quotes": rf"[='\"]+{FIGURES}[\"']*",
    "footnotes or errors": rf"{FIGURES}\s?(?:\[\w+\]|\*+|±.*)",
    "inequalities": rf"[<>≤≥~]=?\s?{FIGURES}|\d[\d.,]*\+",  # noqa: RUF001
    "hexadecimal digits": r"0[xX][0-9a-fA-F]+",
    "characters that are no ASCII": r"(?=.*[^\x00-\x7f])[-+.\d−–－．]+",  # noqa: RUF001
}
"""Patterns of spellings of numbers that are refused, by the name of the spelling."""

TOTAL = r"(?i:(?:(?:grand|sub) ?)?total\b.*|sum|summe|gesamt|mean|average|count)"
"""Pattern for the start of a last row that holds totals and is not a record."""

IDENTIFIER = r"(?:.*[^A-Za-z])?(?i:id|uuid|guid|index|key|nr|no|row)|.*[a-z]I[Dd]"
"""Pattern for the headings of columns that count or name the records."""

NINE_IN_TEN = 0.9
"""Share of the cells of a column that determines the kind of the column."""


@dataclass(frozen=True)
class Csv:
    """Reads a table of values that are separated by commas, semicolons or tabs.

    Parameters
    ----------
    path : str or None
        Path of the file, for messages.
    label : str, int or None
        Name or index of the label's column. None means the last column.
    header : bool or str
        Whether the first row names the columns. With ``auto`` it does if no cell is a
        number, or if a cell is a declared name. A row that may be either headings or a
        record is refused.
    intercept : float
        The constant of a column that is added later; if it is not 0, no column may be
        named like an intercept.
    onehot : mapping, sequence or None
        Columns of categories; each category becomes a column of zeros and ones. A
        mapping declares the categories; those of a list are read from the records.
    index : str or None
        Whether to ``drop`` or to ``keep`` a first column that has no name. None refuses
        such a column. Without a header, None refuses the first column only if its
        numbers may count the records.
    text : sequence of str or None
        Columns of text, besides the columns with a declared word. Any other column of
        ``onehot`` without declared categories is taken as numbers if all its cells are
        numbers. This is read from the records.
    words : sequence
        Declared labels that are words; the label's column is then read as strings.
        Empty if the labels are numbers.
    drop : sequence of str or None
        Columns that are left out, by heading, or by position if there is no header.
    labelled : bool
        Whether there is a column of labels.
    """

    path: str | None
    label: str | int | None = None
    header: str | bool = "auto"
    intercept: float = 0.0
    onehot: Mapping[str, Sequence[Any] | None] | Sequence[str] | None = None
    index: str | None = None
    text: Sequence[str] | str | None = None
    words: Sequence[Any] = ()
    drop: Sequence[str] | str | None = None
    labelled: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError for values that are not allowed."""
        if isinstance(self.label, bool):
            raise UsageError(
                f"dataset.label={typed_text(self.label)}: must be null, a heading or "
                "the "
                "place of a column; in a yaml quote a heading that it reads as true or "
                "false"
            )
        if self.header not in ("auto", True, False):
            raise UsageError(
                f"dataset.header={self.header}: must be auto, true or false"
            )
        if self.index not in (None, *INDEX):
            raise UsageError(f"dataset.index={self.index}: must be null, drop or keep")
        _ = self.categories  # so that they are refused before the file is read

    @cached_property
    def categories(self) -> dict[str, list[Any] | None]:
        """Return the declared categories of each column; None if none are declared.

        Raises
        ------
        UsageError
            If they are neither numbers nor text, or not a list.
        """
        given = self.onehot or {}
        if not isinstance(given, Mapping):
            given = dict.fromkeys(names_in(given))
        if not all(
            one is None or isinstance(one, list | tuple) for one in given.values()
        ):
            raise UsageError(
                f"dataset.onehot={self.onehot}: must be null, a list of columns, or "
                "columns with their categories, such as {color:[red,blue]}"
            )
        return {
            str(name): None
            if c is None
            else distinct_words(c, f"{ONEHOT}.{escape_line(name)}")
            for name, c in given.items()
        }

    @property
    def texts(self) -> set[str]:
        """Return the names of columns that are declared to hold text."""
        given = self.categories.items()
        spelled = (name for name, found in given if are_words(found or ()))
        return {*names_in(self.text), *spelled}

    def read_table(self, content: bytes) -> tuple["pd.DataFrame", "pd.Series[Any]"]:
        """Return X of shape (n, p) and the labels y, a Series with the label's heading.

        Labels may be text, see `records.label_numbers`. ``X.attrs["features"]`` is a
        list of `Feature`, with the names ``x0``, ``x1`` if there is no header.

        Raises
        ------
        UsageError
            If rows have different lengths; if a column has no name, the name of another
            column or that of an intercept, holds text or lacks a value; if the label
            column or a category does not exist. The message lists every wrong column.
        """
        import pandas as pd

        layout = self._read_layout(content)
        table = self._read_columns(content, layout)
        wrong = self._wrong_headings(layout)
        others = table[layout.kept[layout.nameless :]]
        wrong += self._wrong_columns(others, layout)
        self._refuse_cells(wrong or self._undecided_header(table, layout)[:1])
        y = pd.Series(np.zeros(len(table)))
        if layout.label is not None:
            y = table.pop(layout.label)
        if self.intercept:
            check_names(table.columns, self.intercept)
        return self._feature_columns(table, layout), y

    def look(self, content: bytes) -> "Look":
        """Return a summary of a csv.

        The summary is computed from the records, so it is not private.

        Raises
        ------
        UsageError
            For a row that is longer than the first one, or a label column that does not
            exist.
        """
        layout = self._read_layout(content)
        table = self._read_columns(content, layout)
        wrong = self._wrong_headings(layout) + self._undecided_header(table, layout)
        # As text, like categories: 1E5 and 100000 are two words.
        texts = self._read_columns(content, replace(layout, texts=layout.kept))
        columns = [read_column(texts[name]) for name in layout.kept]
        words = [one.name for one in columns if one.kind.startswith("words")]
        left = [one.name for one in columns if one.kind not in LEFT_OUT]
        known = replace(layout, texts=words)
        wrong += self._wrong_columns(table[left], known, texts)
        for one in columns:
            whose, last = f"column {quote_heading(one.name)}", texts[one.name].iloc[-1]
            if one.counts.get(last.strip()) == 1 and re.fullmatch(TOTAL, last.strip()):
                where = f"row {len(texts) + layout.named}"
                wrong.append(
                    f"{where} may be no record: {whose} holds {quote_heading(last)}"
                )
            for code in one.missing_codes:
                count = f"{(table[one.name] == code).sum()} of {len(table)}"
                wrong.append(
                    f"{whose} holds {code:g} in {count} records, which may stand for "
                    "no value"
                )
        return Look(len(table), layout, columns, wrong)

    def _read_layout(self, content: bytes) -> "Layout":
        """Return the layout of a file, from its first row and the options.

        Raises
        ------
        UsageError
            If a column is declared that the file does not have.
        """
        import pandas as pd

        dropped = names_in(self.drop)
        if self.drop is not None and not all(dropped):
            raise UsageError(f"dataset.drop={self.drop}: must be a list of columns")
        line = QUOTED.sub("", content.lstrip(b"\r\n").partition(b"\n")[0].decode())
        how: dict[str, Any] = {
            "sep": max(SEPARATORS, key=line.count),
            "skipinitialspace": True,
            "keep_default_na": False,
            "low_memory": False,  # otherwise some rows are not counted
        }
        first = pd.read_csv(
            io.BytesIO(content), header=None, nrows=1, dtype=object, **how
        )
        cells = [cell.strip() for cell in first.iloc[0]]
        if cells[0].casefold().startswith("sep="):
            raise UsageError(
                f"{self._path_in_words}: row 1 names the separator; take it out"
            )
        if len(cells) == 1 and self.labelled:
            raise UsageError(
                f"{self._path_in_words}: has one column, and needs features and "
                "labels, "
                "separated by comma, semicolon or tab"
            )
        named = self._names_columns(cells) if self.header == "auto" else self.header
        how |= {"header": 0 if named else None, "index_col": False}
        names = list(range(len(cells)))
        if named:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pd.errors.ParserWarning)
                names = list(pd.read_csv(io.BytesIO(content), nrows=0, **how).columns)
        unnamed = bool(named) and (not cells[0] or cells[0].startswith(UNNAMED))
        if self.index == "drop" and named and not unnamed:
            raise UsageError(
                f"dataset.index=drop: the first column is {quote_heading(cells[0])} by "
                "name; "
                "only one without is an index"
            )
        for name in dropped:
            check_heading("column of dataset.drop", name, names)
        kept = names[1:] if self.index == "drop" else names
        kept = [name for name in kept if str(name) not in dropped]
        if dropped and len(kept) < 1 + self.labelled:
            raise UsageError(f"dataset.drop={self.drop}: leaves no feature")
        label = self._label_column(kept) if self.labelled else None
        features = [name for name in kept if name != label]
        for name in names_in(self.text):
            check_heading("column of dataset.text", name, kept)
            if name not in self.categories and name != str(label):
                raise UsageError(
                    f"dataset.text={self.text}: column {quote_heading(name)} is "
                    "neither "
                    "the label nor in dataset.onehot, features must be numbers"
                )
        for name in self.categories:
            if not named and name not in map(str, features):
                raise UsageError(
                    f"dataset.onehot={name}: must be one of "
                    f"{', '.join(map(str, features))}, the places of the columns, as "
                    f"{self.path} has no header; if row 1 is one, say "
                    "dataset.header=true"
                )
            check_heading("column of dataset.onehot", name, features)
        read = {name for name, found in self.categories.items() if found is None}
        texts = [name for name in kept if str(name) in self.texts | read]
        if self.words and label is not None:
            texts.append(label)
        declared = self.index or kept[0] in (label, *texts, *names[1:])
        nameless = unnamed and not declared
        return Layout(how, cells, bool(named), nameless, names, kept, label, texts)

    def _names_columns(self, cells: list[str]) -> bool:
        """Return whether the cells of a first row name the columns.

        The row names the columns if it has words and no number, or if one cell is a
        declared name.

        Raises
        ------
        UsageError
            If the row may be headings or a record: numbers after an empty cell.
        """
        columns = {*names_in(self.text), *names_in(self.drop), *self.categories}
        declared = {*columns, self.label}
        numbers = [not np.isnan(as_number(cell)) for cell in cells]
        if any(c in declared and not n for c, n in zip(cells, numbers, strict=True)):
            return True
        if any(numbers) and not cells[0] and all(cells[1:]):
            raise UsageError(
                f"{self._path_in_words}: "
                f"{EITHER.format('holds numbers after an empty cell')}"
            )
        return not any(numbers) and not all(map(is_missing, cells))

    def _undecided_header(self, table: "pd.DataFrame", layout: "Layout") -> list[str]:
        """Return messages on a first row or on unnamed columns of unclear meaning.

        A first column is unclear if its numbers count the records, in any order, or if
        it is the only feature whose numbers are whole and all different.
        """
        if layout.named:
            declared = [*layout.texts, *[layout.label] * (self.label is not None)]
            names = {*layout.names[1:]} & {*layout.kept} - {*declared}
            return [
                f"column {at} has no name among others that have one; give it a heading"
                for at, name in enumerate(layout.names)
                if not layout.cells[at] and name in names and table[name].notna().any()
            ]
        wrong = []
        if self.header == "auto" and (why := self._why_headings(table, layout)):
            wrong.append(EITHER.format(why))
        features = [
            name
            for name in layout.kept
            if name != layout.label and str(name) not in self.categories
        ]
        head, *others = features or [None]
        if self.index or head != layout.names[0] or len(table) < SHORTEST:
            return wrong
        if _are_counts(table[head]) and (
            np.ptp(table[head]) == len(table) - 1
            or not any(_are_counts(table[name]) for name in others)
        ):
            wrong.append(INDEXED.format("may count the records"))
        return wrong

    def _read_columns(self, content: bytes, layout: "Layout") -> "pd.DataFrame":
        """Return the columns that are used, as numbers or as text.

        A column of numbers that also contains text keeps that text.

        Raises
        ------
        UsageError
            As `_trailing_separators` does, or if there is no record.
        """
        import pandas as pd

        numbers = [name for name in layout.kept if name not in layout.texts]
        # A column that is left out may be of any kind.
        kinds = dict.fromkeys(layout.names, object) | dict.fromkeys(numbers, np.float64)

        def parse_rows(kinds: Any, **more: Any) -> "pd.DataFrame":
            with warnings.catch_warnings():
                # pandas warns of a first row that is longer than the header.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                table: pd.DataFrame = pd.read_csv(
                    io.BytesIO(content), **(layout.how | {"dtype": kinds} | more)
                )
                return table

        try:
            table = parse_rows(kinds)
        except (ValueError, pd.errors.ParserWarning):
            table = parse_rows(object, **self._trailing_separators(content, layout))
            for name in numbers:
                table[name] = _column_as_numbers(table[name])
        else:
            if _may_be_odd(content, len(table), layout):
                self._trailing_separators(content, layout)
        if not len(table):
            raise UsageError(f"{self._path_in_words}: holds no records")
        for name in layout.texts:
            if str(name) in self.categories and str(name) not in self.texts:
                table[name] = _guess_numbers(table[name])
        return table[layout.kept]

    def _trailing_separators(self, content: bytes, layout: "Layout") -> dict[str, Any]:
        """Return pandas options for rows that end in separators, else an empty dict.

        Raises
        ------
        UsageError
            For a row with more fields than the first one; for a quoted cell that spans
            rows, because the rows in it are not read as records; for a header that
            occurs again.
        """
        width, ends, last, row = len(layout.names), False, 0, 0
        longer, spans, again = (list[tuple[int, str]]() for _ in range(3))
        head = [cell.casefold() for cell in layout.cells if layout.named]
        text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
        lines = csv.reader(text, delimiter=layout.how["sep"], skipinitialspace=True)
        with contextlib.suppress(csv.Error):  # pandas says what is wrong then
            for cells in lines:
                taken, last = lines.line_num - last, lines.line_num
                row += bool(cells)
                ends |= len(cells) > width
                if any(map(str.strip, cells[width:])):
                    longer.append((row, f"row {row} has {len(cells)} fields"))
                elif cells and taken > 1 and row > layout.named:
                    at = next(j for j, cell in enumerate(cells) if BREAK.search(cell))
                    whose = quote_heading(layout.names[min(at, width - 1)])
                    cell = f"column {whose} holds a quoted cell that spans {taken} rows"
                    spans.append((row, cell))
                elif row > 1 and [cell.strip().casefold() for cell in cells] == head:
                    again.append((row, "the header stands again"))
        several = f" (of {len(longer)} that are longer)" * (len(longer) > 1)
        row_1 = "the header" if layout.named else "row 1"
        names = "; give each column a heading, as the first one of row names"
        names *= layout.named
        for rows, told in (
            (
                longer,
                f"{several}, {row_1} has {width}: a row must not have more{names}, or "
                "decide what row 1 is with dataset.header",
            ),
            (spans, "; close its quotes, or take the line breaks out of it"),
            (again, "; take it out"),
        ):
            if rows:
                places = [row for row, _ in rows]
                where = "" if rows is longer else f" in {_rows_in_words(places)}"
                raise UsageError(f"{self._path_in_words}: {rows[0][1]}{where}{told}")
        return {"usecols": [*range(width)], "index_col": None} if ends else {}

    def _wrong_headings(self, layout: "Layout") -> list[str]:
        """Return a message for each heading that occurs twice or spans rows."""
        wrong = []
        for cell in dict.fromkeys(layout.cells if layout.named else []):
            if "\n" in cell and layout.how["sep"] in cell:
                wrong.append(
                    f"heading {quote_heading(cell)} spans rows; close its quotes"
                )
            at = [str(j) for j, one in enumerate(layout.cells) if cell and one == cell]
            if len(at) > 1:
                wrong.append(
                    f"heading {quote_heading(cell)} stands {len(at)} times, in columns "
                    f"{', '.join(at)} counted from 0; give each its own, or say "
                    "dataset.header=false if row 1 is a record"
                )
        return wrong + [INDEXED.format("has no name")] * layout.nameless

    def _why_headings(self, table: "pd.DataFrame", layout: "Layout") -> str:
        """Return the reason why a row that is read as a record may be headings.

        The numbers of the row may be equal steps apart (0,1,2, years). They may be
        whole while no number below them is, or be far beyond all numbers below them. Or
        none of the row's words occurs below it, such as `target` above yes and no. If
        there is no reason, the string is empty.
        """
        first, rest = table.iloc[0], table.iloc[1:]
        texts = [name for name in layout.kept if table[name].dtype.kind != "f"]
        for name in texts:
            known = [*rest[name], *self._declared_words(name, layout)]
            if label_spelling(first[name]) in map(label_spelling, known):
                return ""
        if rest.empty or texts:
            return "holds words that stand in no other row" * (not rest.empty)
        numbers = first.to_numpy(np.float64)
        steps = np.diff(numbers)
        if len(np.unique(numbers)) < len(numbers):
            return ""
        if np.allclose(steps, steps[:1], rtol=1e-9, atol=0.0):
            if len(steps) > 1 or tuple(numbers) in ((0.0, 1.0), (1.0, 2.0)):
                return "holds numbers that are equal steps apart"
        features = [name for name in layout.kept if name != layout.label]
        below, own = (one[features].to_numpy(np.float64) for one in (rest, first))
        whole = all(cell.lstrip("+-").isdecimal() for cell in layout.cells)
        if whole and not (below % 1.0 == 0.0).any():
            return "holds whole numbers, and no row below does"
        least, most = below.min(axis=0), below.max(axis=0)
        beyond = np.maximum(least - own, own - most) > most - least
        if beyond.all() and len(rest) > 1 and (whole or len(features) > 2):
            return "holds numbers far beyond all that stand below them"
        return ""

    def _wrong_columns(
        self,
        table: "pd.DataFrame",
        layout: "Layout",
        texts: "pd.DataFrame | None" = None,
    ) -> list[str]:
        """Return a message for each column with wrong cells, which says what is wrong.

        If ``texts`` is given, the message quotes the first wrong cell.
        """
        import pandas as pd

        wrong = []
        for name in table.columns:
            column, is_text = table[name], name in layout.texts
            chosen = self.categories.get(str(name)) or ()
            numbers = column.dtype.kind == "f" and not chosen
            if numbers and np.isfinite(column.to_numpy()).all():
                continue
            known = self._declared_words(name, layout)
            words = (
                {*map(label_spelling, known)} if are_words(known) and is_text else set()
            )
            codes, cells = pd.factorize(column, use_na_sentinel=False)
            place = word_places(np.asarray(cells), chosen) if chosen else 0 * codes
            faults = [
                _fault_of_cell(cell, j < 0, words, is_text)
                for cell, j in zip(cells, place, strict=False)
            ]
            listed = ", ".join(map(escape_line, map(label_spelling, chosen)))
            more = {"holds a word": f" that is not one of its categories {listed}"}
            found, told = np.array(faults)[codes], []
            for what in filter(faults.__contains__, WRONG):
                rows = np.flatnonzero(found == what)
                cell = "" if texts is None else quote_heading(texts[name].iloc[rows[0]])
                where = _rows_in_words(rows + 1 + layout.named, cell)
                told.append(f"{what} in {where}{more.get(what, '')}")
            if told:
                text, at = found == "holds text", layout.names.index(name)
                hint = self._column_hint(column, text, layout) if text.any() else ""
                nameless = layout.named and not layout.cells[at]
                whose = f"{at} without a name" if nameless else quote_heading(name)
                wrong.append(f"column {whose} {' and '.join(told)}{hint}")
        return wrong

    def _declared_words(self, name: Any, layout: "Layout") -> list[Any]:
        """Return the words that are declared for a column."""
        chosen = self.words if name == layout.label else ()
        return [*(chosen or ()), *(self.categories.get(str(name)) or ())]

    def _column_hint(
        self, column: "pd.Series[Any]", text: Any, layout: "Layout"
    ) -> str:
        name, names = column.name, number_spellings(column[text], int((~text).sum()))
        if self.header == "auto" and not layout.named and text[0] and text.sum() == 1:
            return "; if that row is the header, say dataset.header=true"
        if names:
            return f": numbers with {' and '.join(names)}; write 1234.5 for all of them"
        if name == layout.label:
            return (
                ", labels must be numbers; words that are classes are declared, "
                "dataset.classes=[...], or those that become +1, "
                "dataset.positive=[...]; in a yaml quoted, which reads yes as true"
            )
        return (
            ", features must be numbers; for indicators of its categories "
            f"declare them, dataset.onehot={{{escape_line(name)}:[...]}}"
        )

    def _refuse_cells(self, wrong: list[str]) -> None:
        if len(wrong) == 1:
            raise UsageError(f"{self._path_in_words}: {wrong[0]}")
        if wrong:
            lines = wrong[:MOST_LINES]
            lines += [f"and {len(wrong) - MOST_LINES} more"] * (len(wrong) > MOST_LINES)
            count = (
                f"{len(wrong)} of its columns or headings cannot be taken as they are:"
            )
            raise UsageError("\n  ".join([f"{self._path_in_words}: {count}", *lines]))

    def _label_column(self, columns: list[Any]) -> Any:
        label, names = -1 if self.label is None else self.label, [*map(str, columns)]
        if isinstance(label, int) and -len(columns) <= label < len(columns):
            there = columns[label]
            if str(label) in names and str(label) != str(there):
                raise UsageError(
                    f"dataset.label={label}: is the place of column "
                    f"{quote_heading(there)} "
                    f"and the heading of another; quote the heading, or count the "
                    f"place from the end, dataset.label={label - len(columns)}"
                )
            return there
        if label not in columns:
            plain = isinstance(columns[-1], int)
            hint = "; if row 1 is the header, say dataset.header=true" if plain else ""
            check_heading("dataset.label", str(label), columns, hint)
        return columns[names.index(str(label))]

    def _feature_columns(
        self, table: "pd.DataFrame", layout: "Layout"
    ) -> "pd.DataFrame":
        """Return columns of numbers, with indicators in place of columns of categories.

        Raises
        ------
        UsageError
            If too many categories are read, or if two columns get the same name.
        """
        import pandas as pd

        parts, names, read = [], list[Feature](), 0
        for name in table.columns:
            made, column = [table[name]], None
            if str(name) in self.categories:
                column, chosen = str(name), self.categories[str(name)]
                if chosen is None:
                    chosen = self._occurring_categories(table[name])
                    read += len(chosen)
                if read > MOST_READ:
                    raise UsageError(
                        f"{self._path_in_words}: the columns of dataset.onehot hold "
                        "more than "
                        f"{MOST_READ} different words, which is the most that is read "
                        f"off the records; declare those of {quote_heading(name)}, "
                        f"dataset.onehot={{{escape_line(name)}:[...]}}, or leave "
                        "columns "
                        "out, dataset.drop=[...]"
                    )
                made = indicator_columns(self._path_in_words, table[name], chosen)
            parts += made
            names += [(str(one.name), column) for one in made]
        if self.categories:
            table = pd.concat(parts, axis=1)
            check_headings(self._path_in_words, table)
        if not layout.named:
            names = [(f"x{j}", column) for j, (_, column) in enumerate(names)]
        table.attrs["features"] = names
        return table

    def _occurring_categories(self, column: "pd.Series[Any]") -> list[str]:
        """Return the categories that occur in a column.

        Raises
        ------
        UsageError
            If there are too many, or if two are spellings of the same word.
        """
        found = sorted({*column.map(label_spelling)})
        alike: dict[str, str] = {}
        twice = [one for one in found if alike.setdefault(fold_word(one), one) != one]
        name, what = escape_line(column.name), ""
        if len(found) > MOST_CATEGORIES:
            what = f"holds {len(found)} different words, at most {MOST_CATEGORIES} are"
            what += " read off the records"
        elif twice:
            what = f"holds {quote_word(twice[0])}, another spelling of one of its words"
        if what:
            raise UsageError(
                f"{self._path_in_words}: column {quote_heading(column.name)} {what}; "
                "correct it, "
                f"leave it out with dataset.drop=[{name}], or declare its categories, "
                f"dataset.onehot={{{name}:[...]}}"
            )
        return found

    @property
    def _path_in_words(self) -> str:
        return f"dataset.path={self.path}"


@dataclass(frozen=True)
class Layout:
    """The layout of a csv, from its first row and the options of its reader.

    Parameters
    ----------
    how : dict
        Options for pandas.
    cells : list of str
        The first row.
    named, nameless : bool
        Whether the first row names the columns, and whether the first column has no
        name there and is not declared by an option.
    names, kept : list
        All columns, and the columns that are used.
    label : object
        The label's column; None without labels.
    texts : list
        The columns that are read as strings.
    """

    how: dict[str, Any]
    cells: list[str]
    named: bool
    nameless: bool
    names: list[Any]
    kept: list[Any]
    label: Any
    texts: list[Any]


@dataclass(frozen=True)
class Seen:
    """A summary of the cells of a column.

    Parameters
    ----------
    name : object
        Heading or position of the column.
    kind : str
        ``numbers``, perhaps with mistakes or in another spelling, ``words``, ``words
        and numbers``, or one of `LEFT_OUT`, which are not features.
    missing : int
        Number of cells without a value.
    low, high : float
        The least and the largest number; nan if there are no numbers.
    counts : mapping
        How often each different cell occurs, the most frequent first.
    equal : bytes
        Digest of which cells are equal. If two columns have the same digest, each
        determines the other.
    """

    name: Any
    kind: str
    missing: int
    low: float
    high: float
    counts: Mapping[str, int]
    equal: bytes

    @property
    def missing_codes(self) -> list[float]:
        """Return those numbers of a column that may mean a missing value."""
        if self.kind != "numbers" or len(self.counts) < SHORTEST:
            return []
        return missing_codes(np.array([*map(float, self.counts)]))


@dataclass(frozen=True)
class Look:
    """A summary of a csv.

    Parameters
    ----------
    records : int
        Number of records.
    layout : Layout
    columns : list of Seen
    wrong : list of str
        Messages on what the reader of the csv refuses, with the key that decides it.
    """

    records: int
    layout: Layout
    columns: list[Seen]
    wrong: list[str]


def read_column(texts: "pd.Series[Any]") -> Seen:
    """Return a summary of a column, whose cells are strings."""
    cells = texts.map(label_spelling)
    filled = cells[~cells.map(is_missing)]
    values = filled.map(as_number)
    numbers = values.dropna()
    kind = kind_of(str(texts.name), filled, values)
    plain = numbers.map(label_spelling) if kind == "numbers" else filled
    counts = dict(Counter(plain.tolist()).most_common())
    ends = (float(numbers.min()), float(numbers.max()))
    # Numbered by their first occurrence, whatever the cells hold.
    codes = plain.reindex(cells.index).factorize()[0]
    equal = blake2b(codes.astype(np.int64).tobytes()).digest()
    return Seen(texts.name, kind, len(cells) - len(filled), *ends, counts, equal)


NOTHING, DATES, IDENTIFIERS, NAMES, MANY = LEFT_OUT = (
    *("nothing", "dates or times", "identifiers"),
    *("words, mostly different", f"words, more than {MOST_CATEGORIES}"),
)
"""Kinds of columns that are not features."""

MISTAKES = "numbers with mistakes"


def kind_of(name: str, filled: "pd.Series[str]", values: "pd.Series[float]") -> str:
    """Return the kind of a column.

    Parameters
    ----------
    name : str
        Heading of the column.
    filled : Series of str
        The cells of the column that have a value.
    values : Series of float
        The values of these cells as numbers, nan for words.
    """
    if filled.empty:
        return NOTHING
    if filled.str.fullmatch(DATE).mean() >= NINE_IN_TEN:
        return DATES
    numbers, different = values.dropna(), filled.nunique()
    if len(numbers) == len(filled):
        whole = (numbers % 1.0 == 0.0).all() and different == len(filled)
        counts = len(filled) > MOST_CLASSES and np.ptp(numbers) == len(filled) - 1
        codes = filled.str.fullmatch(r"0\d+").any() and different > MOST_CLASSES
        is_one = whole and (counts or re.fullmatch(IDENTIFIER, name))
        return IDENTIFIERS if is_one or codes else "numbers"
    if len(numbers) >= NINE_IN_TEN * len(filled):
        return MISTAKES
    words = filled[values.isna()]
    if names := number_spellings(words, len(numbers)):
        return f"numbers with {' and '.join(names)}"
    if words.nunique() > max(MOST_CLASSES, len(words) / 2):
        return NAMES
    if numbers.nunique() > MOST_CLASSES:
        return MISTAKES
    if different > MOST_CATEGORIES:
        return MANY
    return "words and numbers" if len(numbers) else "words"


def number_spellings(words: "pd.Series[str]", numbers: int) -> list[str]:
    """Return the names of the spellings by which words of a column denote numbers.

    The list is empty unless nine in ten cells of the column are numbers.

    Parameters
    ----------
    words : Series of str
        The cells of a column that are not plain numbers.
    numbers : int
        Number of cells of the column that are plain numbers.
    """
    left, names = words, list[str]()
    for name, pattern in SPELLINGS.items():
        fits = left.str.fullmatch(pattern)
        # Ages such as <18 and 18+ are words if the column has no plain number.
        if fits.any() and (numbers or name != "inequalities"):
            names, left = [*names, name], left[~fits]
    return names if len(left) <= (1.0 - NINE_IN_TEN) * (len(words) + numbers) else []


def plain_text(content: bytes) -> bytes:
    """Return a string without invisible characters, with accents in their letters."""
    if content.isascii():
        return content
    text = ZERO_WIDTH.sub("", content.decode())
    return unicodedata.normalize("NFC", text).encode()


def indicator_columns(
    where: str, column: "pd.Series[Any]", chosen: Sequence[Any]
) -> "list[pd.Series[Any]]":
    """Return a column of zeros and ones for each category, called `COLUMN=CATEGORY`.

    Parameters
    ----------
    where : str
        Name of the table, for messages.
    column : Series of shape (n,)
        Texts or numbers.
    chosen : sequence
        The distinct categories of the column, all strings or all numbers.

    Raises
    ------
    UsageError
        For a record with another category, or without a value.
    """
    import pandas as pd

    cells = column.to_numpy()
    place = word_places(cells, chosen)
    if (place < 0).any():
        row, whose = (
            int(place.argmin()),
            f"{where}: column {quote_heading(column.name)}",
        )
        if is_missing(cells[row]):
            raise UsageError(f"{whose} has no value in row {row}")
        raise UsageError(
            f"{whose} holds a word in row {row} that is not one of its categories "
            f"{', '.join(map(escape_line, map(label_spelling, chosen)))}"
        )
    return [
        pd.Series(
            place == j, column.index, float, f"{column.name}={label_spelling(one)}"
        )
        for j, one in enumerate(chosen)
    ]


def _column_as_numbers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of strings as the numbers they spell; true is 1, false is 0.

    If the column also contains other strings, they are kept, and the type is object.
    """
    import pandas as pd

    cells = column.str.strip().replace(BOOLEANS)
    cells = cells.mask(cells.map(is_missing))
    values = pd.to_numeric(cells, errors="coerce")
    text = values.isna() & cells.notna()
    # Parsed in the same way as a file that holds numbers only.
    plain = io.StringIO(cells.mask(text).to_csv(index=False, header=False, na_rep="NA"))
    numbers = pd.read_csv(plain, header=None, dtype=np.float64)[0].set_axis(
        column.index
    )
    return numbers.astype(object).mask(text, cells) if text.any() else numbers


def _guess_numbers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of strings as numbers if float64 represents them exactly."""
    numbers = column.map(lambda one: np.nan if one in BOOLEANS else as_number(one))
    apart = numbers.notna().all() and bool((numbers.abs() < EXACT).all())
    return numbers if apart else column


def _fault_of_cell(cell: Any, is_other: bool, words: set[str], is_text: bool) -> str:
    """Return what is wrong with a cell (one of `WRONG`), or an empty string."""
    if is_missing(cell) and label_spelling(cell) not in words:
        return "has no value"
    if is_other:
        return "holds a word"
    if isinstance(cell, str):
        return "" if is_text else "holds text"
    return "" if np.isfinite(cell) else "holds a number that is not finite"


def _may_be_odd(content: bytes, records: int, layout: Layout) -> bool:
    """Return whether a row that pandas read may span lines, or repeat the header.

    If no row spans lines, the file has one line for each row. A repeated header is read
    as a record only if all headings of columns of numbers are numbers themselves.
    """
    breaks = content.count(b"\n") or content.count(b"\r")
    lines = breaks + (not content.endswith((b"\n", b"\r")))
    headings = zip(layout.names, layout.cells, strict=True)
    numbers = {*layout.kept} - {*layout.texts}
    spelled = [as_number(cell) for name, cell in headings if name in numbers]
    is_again = layout.named and bool(np.isfinite(spelled).all())
    return is_again or lines > records + layout.named


def _are_counts(column: "pd.Series[Any]") -> bool:
    """Return whether a column holds distinct whole numbers, none below 0."""
    if column.dtype.kind != "f" or (column[:SHORTEST] % 1.0 != 0.0).any():
        return False
    return bool((column >= 0.0).all() and (column % 1.0 == 0.0).all()) and (
        column.is_unique
    )


def _rows_in_words(rows: Any, cell: str = "") -> str:
    """Return text for a message: the number of rows, and which of them is the first.

    If ``cell`` is given, it is the quoted cell of the first row.
    """
    row = f"row {rows[0]}" + f" ({cell})" * bool(cell)
    return row if len(rows) == 1 else f"{len(rows)} rows, the first is {row}"
