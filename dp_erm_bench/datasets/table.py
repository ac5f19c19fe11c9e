"""A csv as records: its separator, its columns, and what it must not hold.

Each cell is read by itself: what kind a column is of is declared, never inferred from
its other cells, so that a record that is replaced changes its own row alone.
"""

import contextlib
import csv
import io
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    folded,
    missing_codes,
    names_in,
    places,
    spelling,
    words_of,
)
from dp_erm_bench.errors import UsageError, check_heading, escaped, heading, word

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ",;\t"
INDEX = ("drop", "keep")
UNNAMED = "Unnamed: "
"""How pandas begins the name of a column whose heading is empty."""

ONEHOT = "dataset.onehot"
"""The key of columns of categories, with those of each."""

SHORTEST = 3
"""Rows from which numbers that count them are no accident."""

INDEXED = (
    "column 0 {}, as an index; leave it out with dataset.index=drop, or take it as a "
    "column like the others with dataset.index=keep"
)

WRONG = (
    *("holds a word", "holds text", "holds a number that is not finite"),
    "has no value",
)
"""What may be wrong with a cell."""

MOST_LINES = 100
"""Lines of a message about the columns of one file."""

MOST_CATEGORIES, MOST_READ = 100, 1000
"""Categories that are read off the records, of a column and of all."""

QUOTED = re.compile(r'"[^"]*"')

ZERO_WIDTH = re.compile("[\ufeff\u200b\u2060]")
"""Characters that no one sees, which some programs write before a heading or a cell."""

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
"""How dates and times of day are spelled."""

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
"""How numbers are spelled that no reader takes for one, with the name of each."""

TOTAL = r"(?i:(?:(?:grand|sub) ?)?total\b.*|sum|summe|gesamt|mean|average|count)"
"""What a last row begins with that is no record."""

IDENTIFIER = r"(?:.*[^A-Za-z])?(?i:id|uuid|guid|index|key|nr|no|row)|.*[a-z]I[Dd]"
"""Headings of columns that count or name the records."""

NINE_IN_TEN = 0.9
"""The share of the cells of a column that decides of which kind it is."""


@dataclass(frozen=True)
class Csv:
    """How a table of comma, semicolon or tab separated values is read.

    Parameters
    ----------
    path : str or None
        For messages.
    label : str, int, False or None
        Name or index of the label's column; None: the last one; False: there is none.
    header : bool or str
        Whether the first row names the columns; ``auto``: if no cell is a number, or
        a name is declared; a row that may be both is refused.
    intercept : float
        That is added later: no column may be called one then.
    onehot : mapping, sequence or None
        Columns of categories, each of which becomes a column of zeros and ones; a
        mapping declares them. Those of a list are read from the records.
    index : str or None
        ``drop`` or ``keep`` a first column that has no name; None: refuse it, without
        a header only if it counts the records or holds numbers that do.
    text : sequence of str or None
        Columns that hold text, beside those of which a word is declared. A column of
        ``onehot`` without either is one of numbers if all its cells are: that is read.
    words : sequence
        Words of the label's column, which then holds text; empty for numbers.
    drop : sequence of str or None
        Columns that are left out, by heading, or by place where there is no header.
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

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        if self.header not in ("auto", True, False):
            raise UsageError(
                f"dataset.header={self.header}: must be auto, true or false"
            )
        if self.index not in (None, *INDEX):
            raise UsageError(f"dataset.index={self.index}: must be null, drop or keep")
        lists = self.categories.values()
        if not all(one is None or isinstance(one, list | tuple) for one in lists):
            raise UsageError(
                f"dataset.onehot={self.onehot}: must be null, a list of columns, or "
                "columns with their categories, such as {color:[red,blue]}"
            )
        for name, found in self.categories.items():
            words_of(found or (), f"{ONEHOT}.{escaped(name)}")

    @property
    def categories(self) -> dict[str, Sequence[Any] | None]:
        """Return the declared categories of each column, None where there are none."""
        given = self.onehot or {}
        if isinstance(given, Mapping):
            return {str(column): found for column, found in given.items()}
        several = isinstance(given, list | tuple)
        return dict.fromkeys(map(str, given if several else [given]))

    @property
    def texts(self) -> set[str]:
        """Return the names of columns that are declared to hold text."""
        given = self.categories.items()
        spelled = (name for name, found in given if are_words(found or ()))
        return {*names_in(self.text), *spelled}

    def read(self, content: bytes) -> tuple[Any, Any]:
        """Return X of shape (n, p) and y, a Series under its column's name.

        Labels may be text, which `records.labels` maps.

        Raises
        ------
        UsageError
            If rows are of different lengths, a column has no name, one of others or
            that of an intercept, holds text or lacks a value: all that is found, a
            line for each column; if there is no such label column or category.
        """
        layout = self._layout(content)
        table = self._read(content, layout)
        if not len(table):
            raise UsageError(f"{self._where}: holds no records")
        index = self._wrong_index(layout)
        others = table[layout.kept[1:]] if index else table
        wrong = self._wrong_headings(layout) + index
        wrong += self._wrong_columns(others, layout)
        if not wrong:
            self._check_first_row(table, layout)
            if self._counts(table, layout):
                wrong = [INDEXED.format("may count the records")]
        self._refuse(wrong)
        y = self._labels(table)
        if self.intercept:
            check_names(table.columns, self.intercept)
        return self._features(table).to_numpy(np.float64), y

    def features(self, content: bytes) -> list[Feature]:
        """Return the features by name, ``x0``, ``x1`` where there is no header.

        The records are looked at only for categories that are not declared.
        """
        known = None not in self.categories.values()
        layout = self._layout(content)
        table = self._read(content, layout, rows=1 if known else None)
        self._labels(table)
        table = table.iloc[:0] if known else table
        found: list[Feature] = [(str(name), None) for name in table.columns]
        if self.categories:
            found = [
                (str(feature), str(name) if str(name) in self.categories else None)
                for name in table.columns
                for feature in self._features(table[[name]]).columns
            ]
        if layout.named:
            return found
        return [(f"x{j}", column) for j, (_, column) in enumerate(found)]

    def look(self, content: bytes) -> "Look":
        """Return what a csv holds: read off its records, hence not private.

        Raises
        ------
        UsageError
            For a row that is longer than the first one, or a label that there is not.
        """
        layout = self._layout(content)
        table = self._read(content, layout)
        if not len(table):
            raise UsageError(f"{self._where}: holds no records")
        wrong = self._wrong_headings(layout) + self._wrong_index(layout)
        with_index = self._counts(table, layout)
        wrong += [INDEXED.format("may count the records")] * with_index
        try:
            self._check_first_row(table, layout)
        except UsageError as error:
            wrong.append(str(error).removeprefix(f"{self._where}: "))
        # As categories they are: 1E5 and 100000 are two words.
        texts = self._read(content, replace(layout, texts=layout.kept))
        columns = tuple(seen(texts[name]) for name in table.columns)
        words = [one.name for one in columns if one.kind.startswith("words")]
        left = [one.name for one in columns if one.kind not in LEFT_OUT]
        known = replace(layout, texts=words)
        wrong += self._wrong_columns(table[left], known, texts)
        for one in columns:
            whose, last = f"column {heading(one.name)}", str(texts[one.name].iloc[-1])
            if one.counts.get(last.strip()) == 1 and re.fullmatch(TOTAL, last.strip()):
                where = f"row {len(texts) + layout.named}"
                wrong.append(f"{where} may be no record: {whose} holds {heading(last)}")
            for code in one.codes:
                count = f"{(table[one.name] == code).sum()} of {len(table)}"
                wrong.append(
                    f"{whose} holds {code:g} in {count} records, which may stand for "
                    "no value"
                )
        sep = layout.how["sep"]
        return Look(len(table), sep, layout.named, columns, layout.label, tuple(wrong))

    def _layout(self, content: bytes) -> "Layout":
        """Return what the first row says of a file.

        Raises
        ------
        UsageError
            If a column is declared that it does not have.
        """
        import pandas as pd

        if self.drop is not None and not all(names_in(self.drop)):
            raise UsageError(f"dataset.drop={self.drop}: must be a list of columns")
        line = QUOTED.sub("", content.lstrip(b"\r\n").partition(b"\n")[0].decode())
        how: dict[str, Any] = {"sep": max(SEPARATORS, key=line.count)}
        how |= {"skipinitialspace": True, "keep_default_na": False}
        how |= {"low_memory": False}  # else rows at the start of a part are not counted
        first = pd.read_csv(
            io.BytesIO(content), header=None, nrows=1, dtype=object, **how
        )
        cells = [cell.strip() for cell in first.iloc[0]]
        if cells[0].casefold().startswith("sep="):
            raise UsageError(f"{self._where}: row 1 names the separator; take it out")
        if len(cells) == 1 and self.label is not False:
            raise UsageError(
                f"{self._where}: has one column, and needs features and labels, "
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
                f"dataset.index=drop: the first column is {heading(cells[0])} by name; "
                "only one without is an index"
            )
        for name in names_in(self.drop):
            check_heading("column of dataset.drop", name, names)
        kept = names[1:] if self.index == "drop" else names
        kept = [name for name in kept if str(name) not in names_in(self.drop)]
        if self.drop and len(kept) < 1 + (self.label is not False):
            raise UsageError(f"dataset.drop={self.drop}: leaves no feature")
        label = None if self.label is False else self._label(kept)
        features = [name for name in kept if name != label]
        self._check_columns(features, kept, bool(named))
        texts = [name for name in kept if self._is_text(name, name == label)]
        return Layout(how, cells, bool(named), unnamed, names, kept, label, texts)

    def _names_columns(self, cells: list[str]) -> bool:
        """Return whether a first row names the columns: as declared, or as it reads.

        Words and no number do; so does a row with a name that is declared.

        Raises
        ------
        UsageError
            For one that is neither: numbers after an empty cell.
        """
        declared = {*names_in(self.text), *names_in(self.drop), *self.categories}
        declared |= {self.label} if isinstance(self.label, str) else set()
        if any(cell in declared and np.isnan(as_number(cell)) for cell in cells):
            return True
        numbers = [not np.isnan(as_number(cell)) for cell in cells]
        if any(numbers) and not cells[0] and all(cells[1:]):
            raise self._undecided("holds numbers after an empty cell")
        return not any(numbers) and not all(map(is_missing, cells))

    def _undecided(self, what: str) -> UsageError:
        return UsageError(
            f"{self._where}: row 1 {what}, it may be headings or a record; decide it "
            "with dataset.header=true or dataset.header=false"
        )

    def _read(
        self, content: bytes, layout: "Layout", rows: int | None = None
    ) -> "pd.DataFrame":
        """Return columns of numbers and texts; of texts where one holds text.

        Raises
        ------
        UsageError
            For a row that is longer than the first one.
        """
        import pandas as pd

        texts = layout.texts
        numbers = [name for name in layout.kept if name not in texts]
        how: dict[str, Any] = layout.how | {"nrows": rows}
        # A column that goes may be of any kind.
        as_text = dict.fromkeys({*layout.names} - {*numbers}, object)

        def read(**more: Any) -> "pd.DataFrame":
            with warnings.catch_warnings():
                # A first row that is longer than the header.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                table: pd.DataFrame = pd.read_csv(
                    io.BytesIO(content), **(how | more | layout.width)
                )
                return table

        try:
            table = read(dtype=as_text | dict.fromkeys(numbers, np.float64))
        except (ValueError, pd.errors.ParserWarning):
            layout.width.update(self._width(content, layout))
            table = read(dtype=dict.fromkeys(layout.names, object))
            for name in numbers:
                table[name] = _numbers(table[name])
        if b'"' in content:
            self._check_spans(table, layout)
        self._check_repeats(table, layout)
        for name in texts if rows is None else ():
            if str(name) in self.categories and str(name) not in self.texts:
                table[name] = _guessed(table[name])
        return table[layout.kept]

    def _check_spans(self, table: "pd.DataFrame", layout: "Layout") -> None:
        """Refuse a quoted cell that spans rows: those within it are no records."""
        for name in table.select_dtypes(object).columns:
            lines = 1 + table[name].astype(str).str.count(r"\r\n|\r|\n")
            if (lines > 1).any():
                where = _rows(lines > 1, 1 + layout.named)
                raise UsageError(
                    f"{self._where}: column {heading(name)} holds a quoted cell that "
                    f"spans {lines.max()} rows in {where}; close its quotes, or take "
                    "the line breaks out of it"
                )

    def _check_repeats(self, table: "pd.DataFrame", layout: "Layout") -> None:
        """Refuse a row in which the headings stand again."""
        again = np.full(len(table), layout.named)
        for name, cell in zip(layout.names, layout.cells, strict=True):
            if name not in layout.kept or not again.any():
                continue
            if table[name].dtype.kind == "f":
                again &= table[name] == as_number(cell)
                continue
            words = table[name].astype(str).str.strip().str.casefold()
            again &= words == cell.casefold()
        if again.any():
            raise UsageError(
                f"{self._where}: the header stands again in "
                f"{_rows(again, 1 + layout.named)}; take it out"
            )

    def _width(self, content: bytes, layout: "Layout") -> dict[str, Any]:
        """Return which columns are read where rows end in separators, else nothing.

        Raises
        ------
        UsageError
            For a row with more fields than the first one.
        """
        width, longer, ends, first = len(layout.names), 0, False, ""
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        lines = csv.reader(text, delimiter=layout.how["sep"], skipinitialspace=True)
        rows = (cells for cells in lines if cells)
        with contextlib.suppress(csv.Error):  # pandas says what is wrong then
            for row, cells in enumerate(rows, 1):
                if len(cells) > width:
                    surplus = any(cell.strip() for cell in cells[width:])
                    ends, longer = True, longer + surplus
                    if surplus and not first:
                        first = f"row {row} has {len(cells)} fields"
        if longer:
            row_1 = "the header" if layout.named else "row 1"
            more = f" (of {longer} that are longer)" * (longer > 1)
            names = (
                "; give each column a heading, as the first one of row names"
                if layout.named
                else ""
            )
            raise UsageError(
                f"{self._where}: {first}{more}, {row_1} has {width}: a row must not "
                f"have more{names}, or decide what row 1 is with dataset.header"
            )
        return {"usecols": list(range(width)), "index_col": None} if ends else {}

    def _check_columns(
        self, features: list[Any], names: list[Any], named: bool
    ) -> None:
        """Refuse columns of text, or of categories, that there are not."""
        for name in names_in(self.text):
            check_heading("column of dataset.text", name, names)
        for name in self.categories:
            if not named and name not in list(map(str, features)):
                places = ", ".join(map(str, features))
                raise UsageError(
                    f"dataset.onehot={name}: must be one of {places}, the "
                    f"places of the columns, as {self.path} has no header; if row 1 is "
                    "one, say dataset.header=true"
                )
            check_heading("column of dataset.onehot", name, features)

    def _is_text(self, name: Any, is_label: bool) -> bool:
        """Return whether a column is read as text, its kind perhaps read after that."""
        undeclared = self.categories.get(str(name), ()) is None
        return str(name) in self.texts or undeclared or bool(self.words and is_label)

    def _wrong_headings(self, layout: "Layout") -> list[str]:
        """Return a line for each heading that stands twice, and for one that lacks."""
        wrong = []
        cells = layout.cells if layout.named else []
        for cell in dict.fromkeys(filter(None, cells)):
            if "\n" in cell and layout.how["sep"] in cell:
                wrong.append(f"heading {heading(cell)} spans rows; close its quotes")
            at = [str(j) for j, one in enumerate(cells) if one == cell]
            if len(at) > 1:
                wrong.append(
                    f"heading {heading(cell)} stands {len(at)} times, in columns "
                    f"{', '.join(at)} counted from 0; give each its own, or say "
                    "dataset.header=false if row 1 is a record"
                )
        return wrong

    def _wrong_index(self, layout: "Layout") -> list[str]:
        """Return a line for a first column without a name, whatever it holds."""
        name = layout.kept[0]
        declared = name == layout.label or name in layout.texts
        first = layout.unnamed and name == layout.names[0]
        missing = first and not self.index and not declared
        return [INDEXED.format("has no name")] * missing

    def _counts(self, table: "pd.DataFrame", layout: "Layout") -> bool:
        """Return whether a first column, of a file without a header, may be an index.

        It counts the records, in any order, or holds different whole numbers as no
        other column of features does.
        """
        head, *others = layout.kept
        if self.index or layout.named or head == layout.label or len(table) < SHORTEST:
            return False
        if head != layout.names[0]:
            return False

        def whole(name: Any) -> bool:
            column = table[name]
            if column.dtype.kind != "f" or str(name) in self.categories:
                return False
            values = column.to_numpy()
            if (values[:SHORTEST] % 1.0 != 0.0).any():
                return False
            integers = bool((values >= 0.0).all() and (values % 1.0 == 0.0).all())
            return integers and len(np.unique(values)) == len(values)

        if not whole(head):
            return False
        values = table[head].to_numpy()
        if values.max() - values.min() == len(values) - 1:
            return True
        return not any(whole(name) for name in others if name != layout.label)

    def _check_first_row(self, table: "pd.DataFrame", layout: "Layout") -> None:
        """Refuse a first row that was taken for a record and may be headings.

        Its numbers are equal steps apart (0,1,2, years), whole above others, or far
        beyond all that stands below them; or none of its words stands below, as
        `target` above yes and no.

        Raises
        ------
        UsageError
            Naming the key that decides it.
        """
        if self.header != "auto" or layout.named or len(table) < 2:
            return
        first, rest = table.iloc[0], table.iloc[1:]
        texts = [name for name in layout.kept if table[name].dtype.kind != "f"]
        if texts:
            for name in texts:
                known = self._known(name, layout)
                there = {*rest[name].map(spelling), *map(spelling, known)}
                if spelling(first[name]) in there:
                    return
            raise self._undecided("holds words that stand in no other row")
        numbers = first.to_numpy(np.float64)
        if len(np.unique(numbers)) < len(numbers):
            return
        steps = np.diff(numbers)
        equal = len(steps) > 0 and np.allclose(steps, steps[0], rtol=1e-9, atol=0.0)
        counts = equal and steps[0] == 1.0 and numbers[0] in (0.0, 1.0)
        if counts or (equal and len(steps) > 1):
            raise self._undecided("holds numbers that are equal steps apart")
        features = [name for name in layout.kept if name != layout.label]
        below = rest[features].to_numpy(np.float64)
        own = first[features].to_numpy(np.float64)
        spelled = all(cell.lstrip("+-").isdecimal() for cell in layout.cells)
        if spelled and not (below % 1.0 == 0.0).any():
            raise self._undecided("holds whole numbers, and no row below does")
        least, most = below.min(axis=0), below.max(axis=0)
        beyond = np.maximum(least - own, own - most) > most - least
        if beyond.all() and len(table) > 2 and (spelled or len(features) > 2):
            raise self._undecided("holds numbers far beyond all that stand below them")

    def _wrong_columns(
        self,
        table: "pd.DataFrame",
        layout: "Layout",
        texts: "pd.DataFrame | None" = None,
    ) -> list[str]:
        """Return a line for each thing that is wrong with the cells of a column.

        With the first such cell where their texts are given.
        """
        wrong = []
        for name in table.columns:
            column, known = table[name], self._known(name, layout)
            is_chosen = str(name) in self.categories
            chosen = words_of(known, f"{ONEHOT}.{name}") if is_chosen else []
            if column.dtype.kind == "f" and not chosen:
                if np.isfinite(column.to_numpy()).all():
                    continue
            cells = column.tolist()
            kinds = self._kinds({*cells}, known, chosen, name in layout.texts)
            if not any(kinds.values()):
                continue
            found = np.array([kinds[cell] for cell in cells])
            listed = ", ".join(map(escaped, map(spelling, chosen)))
            more = {"holds a word": f" that is not one of its categories {listed}"}
            there = [what for what in WRONG if (found == what).any()]
            own = None if texts is None else texts[name]
            rows = [_rows(found == what, 1 + layout.named, own) for what in there]
            told = [
                f"{what} in {where}{more.get(what, '')}"
                for what, where in zip(there, rows, strict=True)
            ]
            text = found == "holds text"
            hint = self._hint(column, text, layout) if text.any() else ""
            at = layout.names.index(name)
            nameless = layout.named and not layout.cells[at]
            whose = f"{at} without a name" if nameless else heading(name)
            wrong.append(f"column {whose} {' and '.join(told)}{hint}")
        return wrong

    def _kinds(
        self, cells: set[Any], known: list[Any], chosen: list[Any], is_text: bool
    ) -> dict[Any, str]:
        """Return what is wrong with each different cell of a column, else nothing."""
        different = np.array([*cells, None], object)[:-1]
        placed = places(different, chosen) if chosen else np.zeros(len(cells))
        words = {*map(spelling, known)} if are_words(known) and is_text else set()

        def kind(cell: Any, place: int) -> str:
            if is_missing(cell) and not (words and spelling(cell) in words):
                return "has no value"
            if place < 0:
                return "holds a word"
            if isinstance(cell, str):
                return "" if is_text else "holds text"
            return "" if np.isfinite(cell) else "holds a number that is not finite"

        return {c: kind(c, int(j)) for c, j in zip(different, placed, strict=True)}

    def _known(self, name: Any, layout: "Layout") -> list[Any]:
        """Return the words that are declared of a column."""
        chosen = self.words if name == layout.label else ()
        return [*(chosen or ()), *(self.categories.get(str(name)) or ())]

    def _hint(self, column: "pd.Series[Any]", text: Any, layout: "Layout") -> str:
        name, names = column.name, spellings(column[text], int((~text).sum()))
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
            f"declare them, dataset.onehot={{{escaped(name)}:[...]}}"
        )

    def _refuse(self, wrong: list[str]) -> None:
        if len(wrong) == 1:
            raise UsageError(f"{self._where}: {wrong[0]}")
        if wrong:
            lines = wrong[:MOST_LINES]
            lines += [f"and {len(wrong) - MOST_LINES} more"] * (len(wrong) > MOST_LINES)
            count = (
                f"{len(wrong)} of its columns or headings cannot be taken as they are:"
            )
            raise UsageError("\n  ".join([f"{self._where}: {count}", *lines]))

    def _labels(self, table: "pd.DataFrame") -> Any:
        """Take the labels out of a table; 0 where there are none."""
        import pandas as pd

        if self.label is False:
            return pd.Series(np.zeros(len(table)))
        return table.pop(self._label(list(table.columns)))

    def _label(self, columns: list[Any]) -> Any:
        label = -1 if self.label is None else self.label
        if isinstance(label, int) and -len(columns) <= label < len(columns):
            there = columns[label]
            if str(label) in map(str, columns) and str(label) != str(there):
                raise UsageError(
                    f"dataset.label={label}: is the place of column {heading(there)} "
                    f"and the heading of another; quote the heading, or count the "
                    f"place from the end, dataset.label={label - len(columns)}"
                )
            return there
        if label not in columns:
            plain = columns and isinstance(columns[-1], int)
            hint = "; if row 1 is the header, say dataset.header=true" if plain else ""
            check_heading("dataset.label", str(label), columns, hint)
        return columns[list(map(str, columns)).index(str(label))]

    def _features(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Return columns of numbers, categories as indicators in their place.

        Raises
        ------
        UsageError
            If a column holds text, or two columns get one name.
        """
        import pandas as pd

        categories = self.categories
        if not categories and all(kind.kind == "f" for kind in table.dtypes):
            return table
        parts, read = [], 0
        for name in table.columns:
            column = table[name]
            if str(name) not in categories:
                if column.dtype.kind != "f" and len(column):
                    raise UsageError(
                        f"dataset.text={self.text}: column {heading(name)} is neither "
                        "the label nor in dataset.onehot, features must be numbers"
                    )
                parts.append(column)
                continue
            declared = categories[str(name)]
            if declared is None:
                declared = self._occurring(column)
                read += len(declared)
                if read > MOST_READ:
                    raise UsageError(
                        f"{self._where}: the columns of dataset.onehot hold more than "
                        f"{MOST_READ} different words, which is the most that is read "
                        f"off the records; declare those of {heading(name)}, "
                        f"dataset.onehot={{{escaped(name)}:[...]}}, or leave columns "
                        "out, dataset.drop=[...]"
                    )
            parts += indicators(self._where, column, declared)
        found = pd.concat(parts, axis=1)
        check_headings(self._where, found)
        return found

    def _occurring(self, column: "pd.Series[Any]") -> list[str]:
        """Return the categories of a column that are read off it.

        Raises
        ------
        UsageError
            If there are too many, or two are one word in two spellings.
        """
        found = sorted({*column.map(spelling)})
        alike: dict[str, str] = {}
        twice = [one for one in found if alike.setdefault(folded(one), one) != one]
        name, what = escaped(column.name), ""
        if len(found) > MOST_CATEGORIES:
            what = f"holds {len(found)} different words, at most {MOST_CATEGORIES} are"
            what += " read off the records"
        elif twice:
            what = f"holds {word(twice[0])}, another spelling of one of its words"
        if what:
            raise UsageError(
                f"{self._where}: column {heading(column.name)} {what}; correct it, "
                f"leave it out with dataset.drop=[{name}], or declare its categories, "
                f"dataset.onehot={{{name}:[...]}}"
            )
        return found

    @property
    def _where(self) -> str:
        return f"dataset.path={self.path}"


@dataclass(frozen=True)
class Layout:
    """What the first row of a csv says of it.

    Parameters
    ----------
    how : dict
        Options of pandas.
    cells : list of str
        The first row.
    named, unnamed : bool
        Whether it names the columns, and whether it leaves out the first one.
    names, kept : list
        The columns, and those that are read: without an index that is dropped.
    label : object
        The label's column, None without.
    texts : list
        The columns of text.
    width : dict
        Options of pandas where rows end in separators.
    """

    how: dict[str, Any]
    cells: list[str]
    named: bool
    unnamed: bool
    names: list[Any]
    kept: list[Any]
    label: Any
    texts: list[Any]
    width: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What the cells of a column are.

    Parameters
    ----------
    name : object
        Its heading, or its place.
    kind : str
        ``numbers``, alone or with mistakes or in another spelling, ``words``, ``words
        and numbers``, or what is no feature: `LEFT_OUT`.
    missing : int
        Cells without a value.
    low, high : float
        The least and the largest number; nan without any.
    counts : mapping
        How often each different cell occurs, the most frequent first.
    equal : bytes
        Digest of which cells are equal: of two columns that have the same, either
        tells the other.
    """

    name: Any
    kind: str
    missing: int
    low: float
    high: float
    counts: Mapping[str, int]
    equal: bytes

    @property
    def codes(self) -> list[float]:
        """Return those of the numbers of a column that may stand for no value."""
        if self.kind != "numbers" or len(self.counts) < SHORTEST:
            return []
        return missing_codes(np.array([*map(float, self.counts)]))


@dataclass(frozen=True)
class Look:
    """What a csv holds.

    Parameters
    ----------
    records : int
    sep : str
    named : bool
        Whether the first row is one of headings.
    columns : tuple of Seen
    label : object
        The name of the column that is taken for the label.
    wrong : tuple of str
        What its reader refuses, with the key that decides it.
    """

    records: int
    sep: str
    named: bool
    columns: tuple[Seen, ...]
    label: Any
    wrong: tuple[str, ...]


def seen(texts: "pd.Series[Any]") -> Seen:
    """Return what the cells of a column are, which are texts."""
    cells = texts.map(spelling)
    filled = cells[~cells.map(is_missing)]
    values = filled.map(as_number)
    numbers = values.dropna()
    kind = kind_of(str(texts.name), filled, values)
    plain = numbers.map(spelling) if kind == "numbers" else filled
    counts = dict(Counter(plain.tolist()).most_common())
    ends = (float(numbers.min()), float(numbers.max()))
    # Numbered in the order in which they come first, whatever they are.
    codes = plain.reindex(cells.index).factorize()[0]
    equal = blake2b(codes.astype(np.int64).tobytes()).digest()
    return Seen(texts.name, kind, len(cells) - len(filled), *ends, counts, equal)


NOTHING, DATES, IDENTIFIERS, NAMES, MANY = LEFT_OUT = (
    *("nothing", "dates or times", "identifiers"),
    *("words, mostly different", f"words, more than {MOST_CATEGORIES}"),
)
"""Kinds of columns that are no features."""

MISTAKES = "numbers with mistakes"


def kind_of(name: str, filled: "pd.Series[str]", values: "pd.Series[float]") -> str:
    """Return the kind of a column.

    Parameters
    ----------
    name : str
    filled : Series of str
        Its cells but for those without a value.
    values : Series of float
        The numbers that they are, nan for words.
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
    if names := spellings(words, len(numbers)):
        return f"numbers with {' and '.join(names)}"
    if words.nunique() > max(MOST_CLASSES, len(words) / 2):
        return NAMES
    if numbers.nunique() > MOST_CLASSES:
        return MISTAKES
    if different > MOST_CATEGORIES:
        return MANY
    return "words and numbers" if len(numbers) else "words"


def spellings(words: "pd.Series[str]", numbers: int) -> list[str]:
    """Return how words spell numbers, nothing unless nine in ten cells are some.

    Parameters
    ----------
    words : Series of str
        The cells of a column that are no plain numbers.
    numbers : int
        How many cells of it are.
    """
    left, names = words, list[str]()
    for name, pattern in SPELLINGS.items():
        fits = left.str.fullmatch(pattern)
        # Ages such as <18 and 18+ are words where no number stands beside them.
        if fits.any() and (numbers or name != "inequalities"):
            names, left = [*names, name], left[~fits]
    return names if len(left) <= (1.0 - NINE_IN_TEN) * (len(words) + numbers) else []


def plain_text(content: bytes) -> bytes:
    """Return a text without characters that no one sees, accents as one character."""
    if content.isascii():
        return content
    text = ZERO_WIDTH.sub("", content.decode())
    return unicodedata.normalize("NFC", text).encode()


def indicators(
    where: str, column: "pd.Series[Any]", chosen: Sequence[Any]
) -> "list[pd.Series[Any]]":
    """Return a column of zeros and ones for each category, called `COLUMN=CATEGORY`.

    Parameters
    ----------
    where : str
        What holds the column, for messages.
    column : Series of shape (n,)
        Texts or numbers.
    chosen : sequence
        Its categories, texts or numbers.

    Raises
    ------
    UsageError
        For a record with another category, or without any.
    """
    import pandas as pd

    known = words_of(chosen, f"{ONEHOT}.{column.name}")
    cells = column.to_numpy()
    place = places(cells, known)
    if (place < 0).any():
        row, whose = int(place.argmin()), f"{where}: column {heading(column.name)}"
        if is_missing(cells[row]):
            raise UsageError(f"{whose} has no value in row {row}")
        raise UsageError(
            f"{whose} holds a word in row {row} that is not one of its categories "
            f"{', '.join(map(escaped, map(spelling, known)))}"
        )
    return [
        pd.Series(place == j, column.index, name=f"{column.name}={spelling(one)}")
        for j, one in enumerate(known)
    ]


def _numbers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of texts as the numbers that they spell, true and false as 1, 0.

    One that holds other text keeps that, as objects.
    """
    import pandas as pd

    cells = column.str.strip().replace(BOOLEANS)
    cells = cells.mask(cells.map(is_missing))
    values = pd.to_numeric(cells, errors="coerce")
    text = values.isna() & cells.notna()
    # Read as those of a file of numbers alone are.
    plain = io.StringIO(cells.mask(text).to_csv(index=False, header=False, na_rep="NA"))
    numbers = pd.read_csv(plain, header=None, dtype=np.float64)[0].set_axis(
        column.index
    )
    return numbers.astype(object).mask(text, cells) if text.any() else numbers


def _guessed(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of texts as numbers if all of them are, and told apart."""
    numbers = column.map(lambda one: np.nan if one in BOOLEANS else as_number(one))
    apart = numbers.notna().all() and bool((numbers.abs() < EXACT).all())
    return numbers if apart else column


def _rows(mask: Any, first: int, texts: "pd.Series[Any] | None" = None) -> str:
    """Return how many rows there are, and which is the first, for a message.

    With what its cell holds where the texts of the column are given.
    """
    place, count = int(np.argmax(mask)), int(mask.sum())
    cell = "" if texts is None else f" ({heading(texts.iloc[place])})"
    row = f"row {place + first}{cell}"
    return row if count == 1 else f"{count} rows, the first is {row}"
