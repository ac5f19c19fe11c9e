"""Functions by which a solver declares how it uses records outside its mechanisms.

These functions add no computing cost to a run. In `dp-erm-bench check`, records are
replaced by private values (see docs/private_values.md), and these functions accept
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import Dataset, keep_for_dataset
from dp_erm_bench.errors import UsageError


def private_call(
    function: Callable[..., Any], *args: Any, instead: Any, **keys: Any
) -> Any:
    """Call a function on private values, and return its result as a private value.

    Use it for functions that `check` cannot follow, and for functions that raise an
    error on some records: the error would reveal something about them.

    Parameters
    ----------
    function : callable
        The function, which receives plain values. It must not print anything or keep
        anything in its module.
    *args, **keys
        The arguments of the function.
    instead : object
        The result if the function raises an error.
    """
    try:
        return function(*args, **keys)
    except Exception:
        return instead


def once(data: Any, function: Callable[[Any], Any]) -> Any:
    """Return ``function(data)``, computed once for all runs on the same records.

    Parameters
    ----------
    data : Dataset or Problem
        The records.
    function : callable
        A function defined in a module. A function that each run creates is called in
        each run.

    Returns
    -------
    object
        A private value in `check`. An array is read-only.
    """
    dataset = data if isinstance(data, Dataset) else data.dataset
    key = None if dataset is data else data.identity
    return keep_for_dataset(dataset, function, key, lambda: function(data))


class UnchargedUses:
    """The values that a run publishes without paying for them, and their declarations.

    Parameters
    ----------
    declared : mapping of str to str
        The declared names, and the reason for each.
    told : list, optional
        Values that an auditor supplies, in order, to replace the run's own values.

    Attributes
    ----------
    values : list
        The values published so far.
    """

    def __init__(
        self, declared: Mapping[str, str], told: list[Any] | None = None
    ) -> None:
        self.declared, self.told = declared, told
        self.values: list[Any] = []

    def publish(self, value: Any, name: str) -> Any:
        """Record and return a value, or the auditor's value in its place."""
        value = check_use(value, name, self.declared)
        if self.told is not None and len(self.values) < len(self.told):
            value = self.told[len(self.values)]
        self.values.append(value)
        return value


_uses: ContextVar[UnchargedUses | None] = ContextVar("uses", default=None)


@contextlib.contextmanager
def publish_by_declaration(uses: UnchargedUses) -> Iterator[None]:
    """Check and record all values that are passed to `uncharged` in this context."""
    token = _uses.set(uses)
    try:
        yield
    finally:
        _uses.reset(token)


def uncharged(value: Any, name: str) -> Any:
    """Publish and return a value that depends on records and that no budget pays for.

    Each use weakens the certificate. Rows of results, `fit` and captions list the name
    of the use, and a solver with such a use never passes `check` without a doubt.

    Parameters
    ----------
    value : bool or number
        The value to publish.
    name : str
        A key of the solver's ``uncharged``, which maps names to reasons.

    Raises
    ------
    UsageError
        If the class does not declare the name, or if the value is not one boolean or
        number.
    """
    uses = _uses.get()
    return value if uses is None else uses.publish(value, name)


def check_use(value: Any, name: str, declared: Mapping[str, str]) -> Any:
    """Return an uncharged value as a plain boolean or number, if its name is declared.

    Parameters
    ----------
    value : bool, number or array of size 1
        The value to publish.
    name : str
        The name of the use.
    declared : mapping of str to str
        The declared names, and the reason for each.

    Raises
    ------
    UsageError
        If the name is not declared, or if the value is not one boolean or number.
    """
    if name not in declared:
        known = ", ".join(declared) or "none"
        raise UsageError(
            f"uncharged: {name!r} is not declared; the declared names are {known}"
        )
    if np.size(value) != 1 or np.asarray(value).dtype.kind not in "biuf":
        raise UsageError(f"uncharged: {name} must be one boolean or one number")
    return np.asarray(value).item()
