"""From the labels of a file to those that a loss takes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.features import NUMBERS
from dp_erm_bench.errors import UsageError, word

LABEL_PAIRS = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))


def labels(
    name: str, y: NDArray[Any], *, classification: bool, positive: Sequence[Any] | None
) -> Array:
    """Return -1 and +1 for a classification, the numbers themselves otherwise.

    Parameters
    ----------
    name : str
        Of the dataset, for the message.
    y : array of shape (n,)
        Labels as the file has them, numbers or text.
    classification : bool
    positive : sequence or None
        The classes that become +1, all others becoming -1; None where the two
        labels are a usual pair.

    Raises
    ------
    UsageError
        If the labels are not of the task, or one side would be empty.
    """
    text = y.dtype.kind not in NUMBERS
    if text and not _is_text(y):
        raise UsageError(
            f"dataset {name}: labels must be numbers or text, not {y.dtype}"
        )
    if classification and positive is not None:
        return chosen(name, y.astype(str) if text else y, positive)
    if text:
        hint = " or name those that become +1 with dataset.positive=[...]"
        raise UsageError(
            f"dataset {name}: label {word(y[0])} is text, labels must be numbers"
            f"{hint * classification}"
        )
    numbers = y.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise UsageError(f"dataset {name}: y holds a value that is not finite")
    return signs(name, numbers) if classification else numbers


def _is_text(y: NDArray[Any]) -> bool:
    """Return whether labels are text, or text and numbers as tables hold them."""
    if y.dtype.kind == "O":
        return all(isinstance(label, str | int | float | np.number) for label in y)
    return y.dtype.kind in "US"


def signs(name: str, y: Array) -> Array:
    """Map the two labels -1/+1, 0/1 or 1/2 to -1/+1."""
    found = np.unique(y)
    if tuple(found) not in LABEL_PAIRS:
        raise UsageError(
            f"dataset {name}: labels {_shown(found)} are not allowed, classification "
            "needs both of -1/1, 0/1 or 1/2, or dataset.positive=[...] with the "
            "classes that become +1"
        )
    return np.where(y == found[1], 1.0, -1.0)


def chosen(name: str, y: NDArray[Any], positive: Sequence[Any]) -> Array:
    """Map the classes named to +1 and all others to -1."""
    found = np.unique(y)
    known = {_text(label) for label in found}
    wanted = {_text(label) for label in positive}
    if not wanted <= known or len(wanted) in (0, len(known)):
        raise UsageError(
            f"dataset.positive={list(positive)} of {name}: must be some, but not all, "
            f"of the labels {_shown(found)}"
        )
    mask = np.isin(y, [label for label in found if _text(label) in wanted])
    return np.where(mask, 1.0, -1.0)


def _text(label: Any) -> str:
    """Return one spelling of a label: a number as short as can be."""
    try:
        return f"{float(label):.12g}"
    except (TypeError, ValueError):
        return str(label)


def _shown(found: NDArray[Any]) -> str:
    text = ", ".join(word(_text(one)) for one in found[:5])
    return f"{text}{', ...' * (found.size > 5)}"
