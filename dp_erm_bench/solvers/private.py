"""Functions for what a solver does with records beside its mechanisms.

In a run they cost nothing. In `dp-erm-bench check` records are private values (see
docs/extending.md), and these functions say what is to become of one.
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
    """Return what a function makes of private values, itself a private value.

    It is for functions that `check` cannot follow, and for those that raise an error
    on some records: an error would tell of them.

    Parameters
    ----------
    function : callable
        It gets plain values. It must not print, and must keep nothing in its module.
    *args, **keys
        Its arguments.
    instead : object
        What is returned where it raises an error.
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
    function : callable
        A function of a module: one that is made anew in each run is called in each.

    Returns
    -------
    object
        A private value in `check`. An array is read-only.
    """
    dataset = data if isinstance(data, Dataset) else data.dataset
    key = None if dataset is data else data.identity
    return keep_for_dataset(dataset, function, key, lambda: function(data))


class UnchargedUses:
    """The uses of records that a solver declares, and the values of a run.

    Parameters
    ----------
    declared : mapping of str to str
        Names, and the reason of each.
    told : sequence, optional
        Values to return in place of the run's own, in their order: an auditor's.

    Attributes
    ----------
    values : list
        Those that the run published so far.
    """

    def __init__(
        self, declared: Mapping[str, str], told: list[Any] | None = None
    ) -> None:
        self.declared, self.told = declared, told
        self.values: list[Any] = []

    def publish(self, value: Any, name: str) -> Any:
        """Return a value, or what is told in its place."""
        value = check_use(value, name, self.declared)
        if self.told is not None and len(self.values) < len(self.told):
            value = self.told[len(self.values)]
        self.values.append(value)
        return value


_uses: ContextVar[UnchargedUses | None] = ContextVar("uses", default=None)


@contextlib.contextmanager
def publish_by_declaration(uses: UnchargedUses) -> Iterator[None]:
    """Have `uncharged` publish by the declaration of a solver, as long as it lasts."""
    token = _uses.set(uses)
    try:
        yield
    finally:
        _uses.reset(token)


def uncharged(value: Any, name: str) -> Any:
    """Return a value that depends on records, which no budget pays for.

    Each use weakens the certificate: rows, `fit` and captions list its name, and a
    solver with one never passes `check` without a doubt.

    Parameters
    ----------
    value : bool or number
    name : str
        One of the solver's ``uncharged``, a mapping of names to reasons.

    Raises
    ------
    UsageError
        For a name that the class does not declare, or for more than one value.
    """
    uses = _uses.get()
    return value if uses is None else uses.publish(value, name)


def check_use(value: Any, name: str, declared: Mapping[str, str]) -> Any:
    """Return one plain boolean or number, if a class declares the name."""
    if name not in declared:
        known = ", ".join(declared) or "none"
        raise UsageError(f"uncharged: {name!r} is not declared; declared are {known}")
    if np.size(value) != 1 or np.asarray(value).dtype.kind not in "biuf":
        raise UsageError(f"uncharged: {name} must be one boolean or one number")
    return np.asarray(value).item()
