"""The fingerprint of the code that computes a trial's numbers.

A record must not be served after the code behind it changed, and must survive a
change elsewhere: of a text, of a place, of what the trial does not use.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from hashlib import sha256
from importlib import metadata
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.definitions import (
    PACKAGE,
    Sources,
    beside,
    digest_named,
    digest_of,
    file_of,
)
from dp_erm_bench.plugins.names import content, is_file

LIBRARIES = ("numpy", "scipy", "numba")
EXECUTE = f"{PACKAGE}.runner.execute.run_batch"
"""What a worker calls; all else that a trial does is reached from it, or chosen."""


@functools.cache
def code_fingerprint(target: str, chosen: tuple[Any, ...] = ()) -> str:
    """Return the digest of all definitions that determine a trial's numbers.

    Parameters
    ----------
    target : str
        Dotted name of the solver's class, or the pin of its file.
    chosen : tuple
        What else the trial names by a string: classes, or their dotted names.

    Notes
    -----
    Covers `run_batch`, the solver and what is chosen with all that they reach
    (`definitions`), and major.minor of numpy, scipy and numba. Of a file: its
    definitions and those of the modules beside it, never a path.
    """
    names = [f"{name} {_minor(name)}" for name in LIBRARIES]
    parts = [_digest(EXECUTE), _digest(target), *sorted(map(_digest, chosen))]
    return sha256("\n".join([*parts, *names]).encode()).hexdigest()


def chosen_by(problem: Any) -> tuple[Any, ...]:
    """Return the classes that a problem is made of, and the loader of its data."""
    kinds = sorted(set(_kinds(problem)), key=lambda kind: kind.__qualname__)
    loader = problem.spec.get("dataset", {}).get("_target_")
    return (*kinds, *[loader] * bool(loader))


def all_choices() -> tuple[str, ...]:
    """Return everything that a problem can be made of, and the twins of releases.

    For tasks, which choose problems of their own, and attack releases by their twins.
    """
    groups = (registry.PROBLEM, *registry.OBJECTIVE)
    made = ((group, name) for group in groups for name in registry.built_in(group))
    package = file_of(f"{PACKAGE}.trust.twins")
    twins = package.parent.glob("[!_]*.py") if package else ()
    names = [f"{PACKAGE}.trust.twins.{path.stem}" for path in twins]
    return tuple(sorted([*names, *(registry.read(*each)["_target_"] for each in made)]))


def _kinds(value: Any) -> Iterator[type]:
    """Yield the classes of an object and of those that it holds as fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        for field in dataclasses.fields(value):
            yield from _kinds(getattr(value, field.name))
        # The norm of a ball is named by a string.
        yield from _kinds(getattr(value, "omega", None))


def _digest(code: Any) -> str:
    """Return the digest of a class, of a dotted name, or of a pinned file."""
    if not isinstance(code, str):
        return digest_of(code)
    if is_file(code):
        files = beside(code.partition("#")[0])
        return f"{content(code)} {Sources([PACKAGE], files).whole(next(iter(files)))}"
    return digest_named(code)


def _minor(library: str) -> str:
    return ".".join(metadata.version(library).split(".")[:2])
