"""A csv as records: its separator, its columns, and what it must not hold.

Each cell is read by itself: what kind a column is of is declared, never inferred from
its other cells, so that a record that is replaced changes its own row alone.
"""

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.datasets.intercept import check_names
from dp_erm_bench.datasets.records import (
    are_words,
    as_number,
    places,
    spelling,
    words_of,
)
from dp_erm_bench.errors import UsageError, word
from dp_erm_bench.registry import check_choice

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ",;\t"
INDEX = ("drop", "keep")
UNNAMED = "Unnamed: "
"""How pandas begins the name of a column whose heading is empty."""

SHORTEST = 3
"""Rows from which numbers that count them are no accident."""

BOOLEANS = {
    spelled: str(int(value))
    for value in (False, True)
    for spelled in (str(value), str(value).lower(), str(value).upper())
}
"""Cells that are a number by another name."""


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
        Whether the first row names the columns; ``auto``: if no cell is a number.
    intercept : float
        That is added later: no column may be called one then.
    onehot : mapping, sequence or None
        Columns of categories, each of which becomes a column of zeros and ones; a
        mapping declares them. Those of a list are read from the records.
    index : str or None
        ``drop`` or ``keep`` a first column that has no name; None: refuse one that
        counts the rows.
    text : sequence of str or None
        Columns that hold text, beside those of which a word is declared. A column of
        ``onehot`` without either is one of numbers if all its cells are: that is read.
    words : bool
        Whether the label's column holds text.
    """

    path: str | None
    label: str | int | None = None
    header: str | bool = "auto"
    intercept: float = 0.0
    onehot: Mapping[str, Sequence[Any] | None] | Sequence[str] | None = None
    index: str | None = None
    text: Sequence[str] | str | None = None
    words: bool = False

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
        for found in lists:
            words_of(found or ())

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
        return {*self._named, *spelled}

    @property
    def _named(self) -> list[str]:
        several = isinstance(self.text, list | tuple)
        return (
            list(map(str, self.text if several else [self.text])) if self.text else []
        )

    def read(self, content: bytes) -> tuple[Any, Any]:
        """Return X of shape (n, p) and y, a Series under its column's name.

        Labels may be text, which `records.labels` maps.

        Raises
        ------
        UsageError
            If a column holds text or lacks a value, counts the rows, or is a second
            intercept; if there is no such label column or category.
        """
        table, named = self._table(content)
        if not len(table):
            raise UsageError(f"dataset.path={self.path}: holds no records")
        self._check_index(table[table.columns[0]])
        y = self._labels(table)
        if self.intercept:
            check_names(table.columns, self.intercept)
        first = 1 + bool(named)
        for column in (y, *(table[name] for name in table.columns)):
            empty = column.isna() | (column.astype(object) == "")
            _refuse(self._where, column, empty, first, "has no value", "")
        return self._features(table, first).to_numpy(np.float64), y

    def columns(self, content: bytes) -> list[str]:
        """Return the names of the features, ``x0``, ``x1`` where there is no header.

        The records are looked at only for categories that are not declared.
        """
        known = None not in self.categories.values()
        table, named = self._table(content, rows=1 if known else None)
        self._labels(table)
        found = self._features(table.iloc[:0] if known else table, 0).columns
        return [str(name) if named else f"x{j}" for j, name in enumerate(found)]

    def _table(
        self, content: bytes, rows: int | None = None
    ) -> tuple["pd.DataFrame", bool]:
        """Return columns of numbers or texts, and whether the file names them."""
        import pandas as pd

        line = content.partition(b"\n")[0].decode()
        how: dict[str, Any] = {"sep": max(SEPARATORS, key=line.count)}
        first = pd.read_csv(io.BytesIO(content), header=None, nrows=1, dtype=str, **how)
        # A row of which no cell is a number names the columns.
        cells = pd.to_numeric(first.iloc[0], errors="coerce")
        named = bool(cells.isna().all()) if self.header == "auto" else bool(self.header)
        how |= {"header": 0 if named else None, "skipinitialspace": True}

        def read(**more: Any) -> "pd.DataFrame":
            with warnings.catch_warnings():
                # A first row that is longer than the header.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                try:
                    source, all_of_it = io.BytesIO(content), how | more
                    table: pd.DataFrame = pd.read_csv(
                        source, index_col=False, **all_of_it
                    )
                    return table
                except pd.errors.ParserWarning as error:
                    raise ValueError(str(error)) from None

        head, *others = names = list(read(nrows=0 if named else 1).columns)
        dropped = self.index == "drop"
        if dropped and named and not str(head).startswith(UNNAMED):
            raise UsageError(
                f"dataset.index=drop: the first column has a name, {word(head)}; only "
                "one without is an index"
            )
        names = others if dropped else names
        label = None if self.label is False else self._label(names)
        self._check_columns([name for name in names if name != label], names, named)
        texts = [name for name in names if self._is_text(name, name == label)]
        numbers = [name for name in names if name not in texts]
        # A column that goes may be of any kind.
        as_text = dict.fromkeys([*texts, *[head] * dropped], str)
        kept: dict[str, Any] = {"nrows": rows, "converters": as_text}
        try:
            table = read(**kept, dtype=dict.fromkeys(numbers, np.float64))
        except ValueError:
            table = read(**kept, dtype=dict.fromkeys(numbers, str))
            self._check_index(table[head])
            table[numbers] = self._numbers(table[numbers], label, 1 + named)
        for name in texts if rows is None else ():
            if str(name) in self.categories and str(name) not in self.texts:
                table[name] = _guessed(table[name])
        return table[names], named

    def _check_columns(
        self, features: list[Any], names: list[Any], named: bool
    ) -> None:
        """Refuse columns of text, or of categories, that there are not."""
        features, names = list(map(str, features)), list(map(str, names))
        for name in self._named:
            check_choice("column of dataset.text", name, names)
        for name in self.categories:
            if not named and name not in features:
                raise UsageError(
                    f"dataset.onehot={name}: must be one of {', '.join(features)}, the "
                    f"places of the columns, as {self.path} has no header"
                )
            check_choice("column of dataset.onehot", name, features)

    def _is_text(self, name: Any, is_label: bool) -> bool:
        """Return whether a column is read as text, its kind perhaps read after that."""
        undeclared = self.categories.get(str(name), ()) is None
        return str(name) in self.texts or undeclared or (self.words and is_label)

    def _numbers(self, cells: "pd.DataFrame", label: Any, first: int) -> "pd.DataFrame":
        """Return columns of numbers of the text of their cells, true and false as 1, 0.

        Raises
        ------
        UsageError
            For a cell that is text, by its column and row.
        """
        import pandas as pd

        cells = cells.replace(BOOLEANS)
        for name in cells.columns:
            what = "holds text"
            if str(name) in self.categories:
                what, hint = "holds a word", " that is not one of its categories"
            elif name == label:
                hint = (
                    ", labels must be numbers; words that are classes are declared, "
                    "dataset.classes=[...], or those that become +1, "
                    "dataset.positive=[...]; in a yaml quoted, which reads yes as true"
                )
            else:
                hint = (
                    ", features must be numbers; for indicators of its categories "
                    f"declare them, dataset.onehot={{{word(name)}:[...]}}"
                )
            column = cells[name]
            wrong = pd.to_numeric(column, errors="coerce").isna() & column.notna()
            _refuse(self._where, column, wrong, first, what, hint)
        # Read as those of a file of numbers alone are.
        plain = io.StringIO(cells.to_csv(index=False))
        how: dict[str, Any] = {"header": 0, "names": [*cells.columns]}
        numbers: pd.DataFrame = pd.read_csv(plain, dtype=np.float64, **how)
        return numbers.set_axis(cells.index)

    def _check_index(self, column: "pd.Series[Any]") -> None:
        import pandas as pd

        head = column.name
        unnamed = not isinstance(head, str) or head.startswith(UNNAMED)
        if self.index or not unnamed or len(column) < SHORTEST:
            return
        numbers = pd.to_numeric(column, errors="coerce")
        if (numbers.iloc[:1] % 1.0 == 0.0).all() and (numbers.diff()[1:] == 1.0).all():
            raise UsageError(
                f"dataset.path={self.path}: column 0 has no name and counts the rows, "
                "as an index does; leave it out with dataset.index=drop, or take it as "
                "a column like the others with dataset.index=keep"
            )

    def _labels(self, table: "pd.DataFrame") -> Any:
        """Take the labels out of a table; 0 where there are none."""
        import pandas as pd

        if self.label is False:
            return pd.Series(np.zeros(len(table)))
        return table.pop(self._label(list(table.columns)))

    def _label(self, columns: list[Any]) -> Any:
        names, label = list(map(word, columns)), self.label
        label = -1 if label is None else label
        if isinstance(label, int) and -len(columns) <= label < len(columns):
            return columns[label]
        if label in columns:
            return label
        check_choice("dataset.label", str(label), names)
        return columns[names.index(str(label))]

    def _features(self, table: "pd.DataFrame", first: int) -> "pd.DataFrame":
        """Return columns of numbers, categories as indicators in their place."""
        import pandas as pd

        categories = self.categories
        parts = []
        for name in table.columns:
            column = table[name]
            if str(name) not in categories:
                if column.dtype.kind != "f" and len(column):
                    raise UsageError(
                        f"dataset.text={self.text}: column {word(name)} is neither the "
                        "label nor in dataset.onehot, features must be numbers"
                    )
                parts.append(column)
                continue
            declared = categories[str(name)]
            if declared is None:
                declared = sorted({*column.map(spelling)})
            parts += indicators(self._where, column, declared, first)
        return pd.concat(parts, axis=1) if parts else table

    @property
    def _where(self) -> str:
        return f"dataset.path={self.path}"


def indicators(
    where: str, column: "pd.Series[Any]", chosen: Sequence[Any], first: int = 0
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
    first : int
        The number of the first row, for messages.

    Raises
    ------
    UsageError
        For a row with another category, or without any.
    """
    import pandas as pd

    known = words_of(chosen)
    place = pd.Series(places(column.to_numpy(), known), column.index, name=column.name)
    hint = f" that is not one of its categories {', '.join(map(spelling, known))}"
    _refuse(where, place, place < 0, first, "holds a word", hint)
    return [
        (place == j).rename(f"{column.name}={spelling(one)}")
        for j, one in enumerate(known)
    ]


def _guessed(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of texts as numbers if all of them are."""
    numbers = column.map(as_number)
    return column if numbers.isna().any() else numbers


def _refuse(
    where: str, column: Any, wrong: Any, first: int, what: str, hint: str
) -> None:
    """Refuse a column, naming the first row in which something is wrong."""
    if wrong.any():
        row = int(wrong.to_numpy().argmax()) + first
        raise UsageError(
            f"{where}: column {word(column.name)} {what} in row {row}{hint}"
        )
