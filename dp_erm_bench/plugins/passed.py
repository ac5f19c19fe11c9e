"""Records of the solvers from outside that have passed `dp-erm-bench check`.

A pass is a file of the cache, named by the solver's sources and by those of the
package. Its text follows from both, so that reading it is comparing it: a file that
holds anything else, or cannot be read, is no pass. A pass with a release that names no
twin is one of a second kind: the law of that release is measured, and not recounted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from dp_erm_bench import registry
from dp_erm_bench.code_identity import digest_of_text, package_state
from dp_erm_bench.paths import cache_dir, digest, write_atomic
from dp_erm_bench.plugins.load import place_of
from dp_erm_bench.plugins.names import (
    content,
    entry_points,
    is_file,
    label,
    sources,
)

KIND = "passed"
"""Folder of the cache."""

NOT_RECOUNTED = " (not recounted)"
"""Behind the label of a calibration where a release that is declared has no twin."""
UNCHECKED = "not checked"
UNRECOUNTED = "checked, release not recounted"
"""The doubts about a certificate; there are none of the package's own algorithms."""


def solver_digest(algorithm: str) -> str:
    """Return the digest of the text of an algorithm from outside the package.

    Of a file: that of it and of the modules beside it, comments and all. Of an entry
    point: every module of the package that offers it. Of the package's own algorithms,
    whose tests are its own: empty.

    Parameters
    ----------
    algorithm : str
        A name, a file or its pin; empty for none.
    """
    if is_file(algorithm):
        pin = registry.pinned(algorithm)
        path = place_of(pin)
        return digest_of_text(sources(path)) if path else content(pin)
    if not algorithm or is_ours(algorithm):
        return ""
    target = entry_points()[algorithm]
    return digest([target, package_state(target.partition(".")[0])])


@functools.cache
def is_ours(algorithm: str) -> bool:
    """Return whether a name is that of one of the package's own algorithms."""
    return algorithm in registry.built_in(registry.ALGORITHM)


def folder() -> Path:
    """Return the folder of the passes, in the cache."""
    return cache_dir() / KIND


def doubt(solver: str, recounted: bool = True) -> str:
    """Return what is in doubt of sources under `check` of the package as it is.

    Parameters
    ----------
    solver : str
        What `solver_digest` returns; empty for the package's own, which count as
        passed.
    recounted : bool
        Whether all that a run released has a twin, as its calibration says.

    Returns
    -------
    str
        `UNCHECKED`, `UNRECOUNTED`, or nothing.
    """
    if _is_recorded(solver, True) or solver == "":
        return "" if recounted else UNRECOUNTED
    return UNRECOUNTED if _is_recorded(solver, False) else UNCHECKED


def _is_recorded(solver: str, recounted: bool) -> bool:
    path, text = _record(solver, recounted)
    with contextlib.suppress(OSError):
        whole = path.is_file() and path.stat().st_size == len(text)
        return whole and path.read_bytes() == text
    return False


def record(solver: str, passed: bool, recounted: bool = True) -> bool:
    """Record that sources passed, or take back that they did.

    Parameters
    ----------
    solver : str
    passed : bool
    recounted : bool
        Whether all that they release has a twin: of which kind the pass is.

    Returns
    -------
    bool
        Whether it is recorded; the cache may be read-only.
    """
    with contextlib.suppress(OSError):
        for kind in (True, False):
            path, text = _record(solver, kind)
            if passed and kind == recounted:
                write_atomic(path, functools.partial(_write, text), private=True)
            else:
                path.unlink(missing_ok=True)
        return True
    return False


def _write(text: bytes, file: IO[bytes]) -> None:
    file.write(text)


def unchecked(algorithms: Iterable[str]) -> str:
    """Return the sentence about algorithms of which something is in doubt, if any.

    Parameters
    ----------
    algorithms : iterable of str
        Names and pins; the package's own count as passed.
    """
    doubts = {name: doubt(solver_digest(name)) for name in dict.fromkeys(algorithms)}
    half = [name for name, why in doubts.items() if why == UNRECOUNTED]
    said = [_not_passed([name for name, why in doubts.items() if why == UNCHECKED])]
    said += [not_recounted(map(label, half))] if half else []
    return "; ".join(filter(None, said))


def not_recounted(names: Iterable[str]) -> str:
    """Return the sentence about algorithms with a release that names no twin."""
    return (
        f"algorithm={','.join(names)}: {UNRECOUNTED}: its law was measured, and the "
        "certified epsilon rests on what it says of itself"
    )


def _not_passed(lacking: list[str]) -> str:
    if not lacking:
        return ""
    files = " ".join(shlex.quote(name.partition("#")[0]) for name in lacking)
    have, rests = "has", "its certified epsilon rests on its"
    if len(lacking) > 1:
        have, rests = "have", "their certified epsilons rest on their"
    return (
        f"algorithm={','.join(map(label, lacking))} {have} not passed `dp-erm-bench "
        f"check {files}`: {rests} own declarations"
    )


def _record(solver: str, recounted: bool) -> tuple[Path, bytes]:
    """Return the path and the text of the record of a pass of either kind."""
    fields = {"solver": solver, "package": package_state()}
    fields |= {} if recounted else {"release": "not recounted"}
    name = digest(fields)
    text = json.dumps({**fields, "sha256": name}, indent=1, sort_keys=True) + "\n"
    return folder() / f"{name}.json", text.encode()
