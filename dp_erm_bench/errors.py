"""Errors and warnings shown to users, each a sentence that names a key and a value."""

from __future__ import annotations

import difflib
import math
import numbers
import os
import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

PACKAGE = __name__.partition(".")[0]

LONGEST = 10_000
"""Number of characters beyond which a message is shortened in the middle."""

MOST_NAMED = 50
"""Largest number of columns that a message names."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""Control characters that a terminal would obey, except line feeds and tabs."""

WORD = re.compile(r"[\w.+-]{1,30}")
PLACE = re.compile(r"\b(?:row|line) \d+(?:, column \d+)?")


class UsageError(ValueError):
    """Wrong input; the message names the key, the value and what is allowed."""


class DataUnavailable(UsageError):
    """A dataset is not available; the message says how to get it."""


class Unsupported(UsageError):
    """An algorithm cannot solve a problem; the message is the reason."""


class Unlike(UsageError):
    """A worker has other data or code than the run; the message says which differs."""


class BudgetExhausted(RuntimeError):
    """A mechanism was used more often than its solver declared."""


class NotUsed(RuntimeError):
    """A completed run used a mechanism less often than its solver declared.

    The run differs from the certified run, so nothing is published. Its budget is spent
    nevertheless.
    """


class NotSampled(BudgetExhausted):
    """A mechanism was charged for a secret sample, but its use did not draw one."""


class UncheckedSolver(UserWarning):
    """A solver has not passed `dp-erm-bench check`, or passed it with a doubt."""


class UndeclaredBounds(UserWarning):
    """Records are clipped to bounds that the user did not declare."""


class ClippedRecords(UserWarning):
    """Declared bounds change many of the records."""


class WideBounds(UserWarning):
    """Declared bounds are far above all records, so the noise is needlessly large."""


class DoubtfulChoice(UserWarning):
    """Settings from a results folder are doubtful; the message gives the reason."""


class NoGain(UserWarning):
    """Default settings are unknown, or are expected to do no better than w = 0."""


class NotSolved(RuntimeError):
    """A minimiser could not be verified to the tolerance that a proof needs."""


class Diverged(RuntimeError):
    """A run had iterates that are not finite, so its results are not published.

    Its mechanisms have answered, so its budget is spent. The fact that the run diverged
    follows from their answers, which the certificate covers.

    Attributes
    ----------
    seconds : float
        Run time.
    certificate : dict
        The privacy fields of a `FitResult`: ``epsilon_certified``, ``budget``,
        ``calibration``, ``accountant``, ``releases``, ``uncharged``, ``reproducible``
        and ``checked``.
    """

    def __init__(
        self,
        message: str,
        seconds: float = math.nan,
        certificate: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.seconds, self.certificate = seconds, dict(certificate or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments for pickling: the message and further values."""
        return type(self), (str(self), self.seconds, self.certificate)

    @property
    def epsilon_certified(self) -> float:
        """Return the certified epsilon of the budget that was spent."""
        return float(self.certificate.get("epsilon_certified", math.inf))


def _top_package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def warn_user(message: str, category: type[Warning]) -> None:
    """Give a warning at the line that called the package.

    Parameters
    ----------
    message : str
        The sentence to show.
    category : type
        A class of warnings.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back and _top_package(frame) == PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def in_python(error: UsageError) -> UsageError:
    """Return an error that names Python arguments instead of configuration keys."""
    text = re.sub(
        r"\bdataset\.(clip_to_bounds|bounds|scale)\b(=true\b)?",
        lambda found: found[1] + ("=True" if found[2] else ""),
        str(error),
    )
    # Whether arrays are dense is not a key in Python: the user converts them.
    return type(error)(text.replace("with dataset.densify=true", "with X.toarray()"))


def traceback_text(error: BaseException, entries: int | None = None) -> str:
    """Return an error's traceback, after a line with its type, message and place.

    The place is the last entry outside the package and outside installed packages, if
    there is such an entry. Usually it is in a solver that the user has written.

    Parameters
    ----------
    error : BaseException
        The error. Its message may have any length, and may itself raise an error.
    entries : int, optional
        Limit on the number of entries, as in `traceback.format_exception`; all if None.
    """
    import traceback  # 4 ms, and few commands need it

    try:
        message = str(error)
    except BaseException as other:  # a solver's exception may run any code
        message = f"its message cannot be read: {type(other).__name__}"
    lines = traceback.format_exception(error, limit=entries)
    first = printable_text(f"{type(error).__name__}: {message}", LONGEST // 2)
    places = traceback.extract_tb(error.__traceback__)
    installed = (os.path.dirname(__file__), sys.prefix, sys.base_prefix)
    others = ("<", *(folder + os.sep for folder in installed))
    own = [one for one in places if not one.filename.startswith(others)]
    for place in (own or places)[-1:]:
        first += f" ({os.path.basename(place.filename)}, line {place.lineno})"
    return printable_text(f"{first}\n{''.join(lines)}".rstrip())


def printable_text(text: str, longest: int = LONGEST) -> str:
    """Return a string with control characters escaped, shortened in the middle.

    Lone surrogates are escaped, too.
    """
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]} [...] {text[-half:]}"
    text = CONTROL.sub(lambda one: f"\\x{ord(one[0]):02x}", text)
    return text.encode(errors="backslashreplace").decode()


def quote_word(value: object) -> str:
    """Return a word from a file for a message: quoted, or dots if it is not plain.

    Other content of a file is not repeated.
    """
    text = str(value)
    return text if WORD.fullmatch(text) else "..."


def quote_heading(value: object) -> str:
    """Return the heading of a column for a message: quoted, escaped, shortened.

    For a column without a heading, return its number.
    """
    return str(value) if isinstance(value, int) else f'"{escape_line(value)}"'


def escape_line(value: object, longest: int = 60) -> str:
    """Return a string as one short line, with unprintable characters escaped."""
    parts = [
        one if one.isprintable() and one not in '"\\' else ascii(one)[1:-1]
        for one in str(value)
    ]
    parts = ['\\"' if one == '"' else one for one in parts]
    if sum(map(len, parts)) > longest:
        while sum(map(len, parts)) > longest - 3:
            parts.pop()
        parts.append("...")
    return "".join(parts)


def place_of(error: BaseException) -> str:
    """Return the place where a parser failed, or else the kind of error.

    The text does not repeat the content of the file.
    """
    match = PLACE.search(str(error))
    return match[0] if match else type(error).__name__


def typed_text(value: Any) -> str:
    """Return a value in the form in which a user would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(typed_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{typed_text(v)}" for k, v in value.items()) + "}"
    return str(value)


def real_number(value: object) -> float:
    """Return a Python or NumPy real number as a float; NaN for other values."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        return float(value) if real else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.nan


def check_key(key: str, keys: Iterable[str], where: str = "") -> None:
    """Raise UsageError for an unknown key, suggesting the nearest one.

    Parameters
    ----------
    key : str
        The key as it was given.
    keys : iterable of str
        The allowed keys.
    where : str
        A file or a section to name at the beginning of the message.
    """
    keys = list(keys)
    if key in keys:
        return
    near = [one for one in keys if one.endswith(f".{key}")]
    near = difflib.get_close_matches(key, keys, 1, 0.7) or near
    hint = f"did you mean {near[0]}?" if near else f"allowed are {', '.join(keys)}"
    raise UsageError(f"{where}{': ' * bool(where)}{key}: no such key; {hint}")


def check_heading(key: str, value: str, columns: Iterable[Any], more: str = "") -> None:
    """Raise UsageError for an unknown column, suggesting the nearest one.

    Parameters
    ----------
    key : str
        The key whose value names the column, for the message.
    value : str
        The column that was given.
    columns : iterable
        Headings of the columns, or numbers of columns without headings.
    more : str
        Text to append to the message.
    """
    columns = list(columns)
    names = list(map(str, columns))
    if value in names:
        return
    near = difflib.get_close_matches(value, names, 1)
    hint = f" (did you mean {escape_line(near[0])}?)" if near else ""
    listed = [
        *map(quote_heading, columns[:MOST_NAMED]),
        *["..."][: len(columns) > MOST_NAMED],
    ]
    raise UsageError(f"{key}={value}{hint}: must be one of {', '.join(listed)}{more}")


def value_error(key: str, value: Any, allowed: str) -> UsageError:
    """Return the UsageError for a value that is not allowed.

    Parameters
    ----------
    key : str
        Key of the value.
    value : Any
        The value that was given.
    allowed : str
        A description of what is allowed, to follow the words "must be".
    """
    return UsageError(f"{key}={typed_text(value)}: must be {allowed}")
