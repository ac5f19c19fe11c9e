"""A csv as records: its separator, its columns, and what it must not hold."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.datasets.intercept import check_names
from dp_erm_bench.datasets.records import spelling
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
    """

    path: str | None
    label: str | int | None = None
    header: str | bool = "auto"
    intercept: float = 0.0
    onehot: Mapping[str, Sequence[Any] | None] | Sequence[str] | None = None
    index: str | None = None

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

    @property
    def categories(self) -> dict[str, Sequence[Any] | None]:
        """Return the declared categories of each column, None where there are none."""
        given = self.onehot or {}
        if isinstance(given, Mapping):
            return {str(column): found for column, found in given.items()}
        several = isinstance(given, list | tuple)
        return dict.fromkeys(map(str, given if several else [given]))

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
        self._check_index(table)
        y = self._labels(table)
        if self.intercept:
            check_names(table.columns, self.intercept)
        first = 1 + bool(named)
        for column in (y, *(table[name] for name in table.columns)):
            _refuse(self._where, column, column.isna(), first, "has no value", "")
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
        """Return the columns as they are read, and whether the file names them."""
        import pandas as pd

        line = content.partition(b"\n")[0].decode()
        how: dict[str, Any] = {"sep": max(SEPARATORS, key=line.count)}
        first = pd.read_csv(io.BytesIO(content), header=None, nrows=1, dtype=str, **how)
        # A row of which no cell is a number names the columns.
        cells = pd.to_numeric(first.iloc[0], errors="coerce")
        named = bool(cells.isna().all()) if self.header == "auto" else bool(self.header)
        how |= {"header": 0 if named else None, "skipinitialspace": True, "nrows": rows}
        table = pd.read_csv(io.BytesIO(content), **how)
        if self.index == "drop":
            head = table.columns[0]
            if named and not str(head).startswith(UNNAMED):
                raise UsageError(
                    f"dataset.index=drop: the first column has a name, {word(head)}; "
                    "only one without is an index"
                )
            table = table.drop(columns=head)
        return table, named

    def _check_index(self, table: "pd.DataFrame") -> None:
        head = table.columns[0]
        unnamed = not isinstance(head, str) or head.startswith(UNNAMED)
        if self.index or not unnamed or len(table) < SHORTEST:
            return
        if table[head].dtype.kind in "iu" and (table[head].diff().iloc[1:] == 1).all():
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

        categories, names = self.categories, list(map(str, table.columns))
        for name in categories:
            if first == 1 and name not in names:
                raise UsageError(
                    f"dataset.onehot={name}: must be one of {', '.join(names)}, the "
                    f"places of the columns, as {self.path} has no header"
                )
            check_choice("column of dataset.onehot", name, names)
        parts = []
        for name in table.columns:
            column = table[name]
            if str(name) not in categories:
                wrong = pd.to_numeric(column, errors="coerce").isna()
                if column.dtype.kind not in "biuf" and len(column):
                    hint = (
                        ", features must be numbers; for indicators of its categories "
                        f"declare them, dataset.onehot={{{word(name)}:[...]}}"
                    )
                    _refuse(self._where, column, wrong, first, "holds text", hint)
                parts.append(column)
                continue
            declared = categories[str(name)]
            words = {*column.map(spelling)} if declared is None else ()
            chosen = spellings(sorted(words) if declared is None else declared)
            parts += indicators(self._where, column, chosen, first)
        return pd.concat(parts, axis=1) if parts else table

    @property
    def _where(self) -> str:
        return f"dataset.path={self.path}"


def spellings(categories: Sequence[Any]) -> tuple[str, ...]:
    """Return the spellings of categories, each once, in their order."""
    return tuple(dict.fromkeys(map(spelling, categories)))


def indicators(
    where: str, column: "pd.Series[Any]", chosen: Sequence[str], first: int = 0
) -> "list[pd.Series[Any]]":
    """Return a column of zeros and ones for each category, called `COLUMN=CATEGORY`.

    Parameters
    ----------
    where : str
        What holds the column, for messages.
    column : Series of shape (n,)
        Texts or numbers.
    chosen : sequence of str
        The spellings of its categories.
    first : int
        The number of the first row, for messages.

    Raises
    ------
    UsageError
        For a row with another category, or without any.
    """
    words = column.map(spelling)
    hint = f" that is not one of its categories {', '.join(chosen)}"
    _refuse(where, column, ~words.isin(chosen), first, "holds a word", hint)
    return [(words == one).rename(f"{column.name}={one}") for one in chosen]


def _refuse(
    where: str, column: Any, wrong: Any, first: int, what: str, hint: str
) -> None:
    """Refuse a column, naming the first row in which something is wrong."""
    if wrong.any():
        row = int(wrong.to_numpy().argmax()) + first
        raise UsageError(
            f"{where}: column {word(column.name)} {what} in row {row}{hint}"
        )
