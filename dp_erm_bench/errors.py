"""The errors that a user meets, each one sentence that names a key and a value."""

from __future__ import annotations

import difflib
import math
import numbers
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST = 10_000
"""Characters of a message that is kept: more are cut out of its middle."""

MOST_NAMED = 50
"""Columns that a message names."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""What a terminal would obey, lines and tabs excepted."""

WORD = re.compile(r"[\w.+-]{1,30}")
PLACE = re.compile(r"\b(?:row|line) \d+(?:, column \d+)?")


class UsageError(ValueError):
    """Wrong input; the message names the key, the value and what is allowed."""


class DataUnavailable(UsageError):
    """A dataset cannot be had; the message says how to get it."""


class Unsupported(UsageError):
    """An algorithm cannot serve a problem; the message is the reason."""


class Unlike(UsageError):
    """A worker has other data or code than the run; the message says which."""


class BudgetExhausted(RuntimeError):
    """A mechanism was used more often than its solver declared."""


class NotUsed(RuntimeError):
    """A run went to its end and used a mechanism less often than its solver declared.

    What is certified was not run, so that nothing is published; what was run has spent
    its budget.
    """


class NotSampled(BudgetExhausted):
    """A use of a mechanism was charged for a secret sample that was not its own."""


class UncheckedSolver(UserWarning):
    """A solver has not passed `dp-erm-bench check`, or something is in doubt."""


class UndeclaredBounds(UserWarning):
    """Records are clipped to bounds that nobody declared."""


class ClippedRecords(UserWarning):
    """Declared bounds change many of the records."""


class WideBounds(UserWarning):
    """Declared bounds are far above all records, and so is noise made for them."""


class DoubtfulChoice(UserWarning):
    """Settings that a results folder chose may not be worth taking; it says why."""


class NoGain(UserWarning):
    """Settings that nobody gave are expected to be no better than w = 0, or unknown."""


class NotSolved(RuntimeError):
    """A minimiser could not be verified to the tolerance that a proof needs."""


class Diverged(RuntimeError):
    """A run whose iterates are not finite, of which nothing is published.

    Its mechanisms have answered, so that its budget is spent. That the run diverged
    follows from their answers, which the certificate covers.

    Attributes
    ----------
    seconds : float
        What the run took.
    certificate : dict
        What a `FitResult` says of privacy: ``epsilon_certified``, ``budget``,
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
        """Return what it is pickled as: its message is not all that it takes."""
        return type(self), (str(self), self.seconds, self.certificate)

    @property
    def epsilon_certified(self) -> float:
        """Return the epsilon that is proved for what was spent."""
        return float(self.certificate.get("epsilon_certified", math.inf))


def in_python(error: UsageError) -> UsageError:
    """Return an error whose sentence names keys as arguments of Python have them."""
    text = re.sub(
        r"\bdataset\.(clip_to_bounds|bounds|scale)\b(=true\b)?",
        lambda found: found[1] + ("=True" if found[2] else ""),
        str(error),
    )
    # Arrays are dense or not as they come: no key decides it.
    return type(error)(text.replace("with dataset.densify=true", "with X.toarray()"))


def traceback_text(error: BaseException, entries: int | None = None) -> str:
    """Return a line with the error's type, message and place, then the traceback.

    The place is the last one that is neither of the package nor of what is installed,
    if there is one: it is the solver that a user has written.

    Parameters
    ----------
    error : BaseException
        Its message may be of any length or raise when it is asked for.
    entries : int, optional
        Entries of the traceback, as `traceback.format_exception` has it; all if None.
    """
    import traceback  # 4 ms, and few commands need it

    try:
        message = str(error)
    except BaseException as other:  # a solver's exception is a solver's code
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
    """Return a text without lone surrogates and controls, shortened in its middle."""
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]} [...] {text[-half:]}"
    text = CONTROL.sub(lambda one: f"\\x{ord(one[0]):02x}", text)
    return text.encode(errors="backslashreplace").decode()


def quote_word(value: object) -> str:
    """Return a word or number of a file for quoting in a message, else dots."""
    text = str(value)
    return text if WORD.fullmatch(text) else "..."


def quote_heading(value: object) -> str:
    """Return the heading of a column as it is printed: quoted, escaped, shortened.

    Of a column without one its place, which is a number.
    """
    return str(value) if isinstance(value, int) else f'"{escape_line(value)}"'


def escape_line(value: object, longest: int = 60) -> str:
    """Return a text on one line, what is not printable escaped, shortened."""
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
    """Return the place where a reader stopped, else the kind of error; no content."""
    match = PLACE.search(str(error))
    return match[0] if match else type(error).__name__


def typed_text(value: Any) -> str:
    """Return a value as the user would have typed it."""
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
    """Return a real number, Python's or numpy's, as a float; NaN for all else."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        return float(value) if real else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.nan


def check_key(key: str, keys: Iterable[str], where: str = "") -> None:
    """Refuse a key that the configuration does not have, suggesting the nearest."""
    keys = list(keys)
    if key in keys:
        return
    near = [one for one in keys if one.endswith(f".{key}")]
    near = difflib.get_close_matches(key, keys, 1, 0.7) or near
    hint = f"did you mean {near[0]}?" if near else f"allowed are {', '.join(keys)}"
    raise UsageError(f"{where}{': ' * bool(where)}{key}: no such key; {hint}")


def check_heading(key: str, value: str, columns: Iterable[Any], more: str = "") -> None:
    """Refuse a column that there is not, suggesting the nearest."""
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
    """Return the error of a value that is not allowed."""
    return UsageError(f"{key}={typed_text(value)}: must be {allowed}")
