"""Records of solvers from outside the package that passed `dp-erm-bench check`.

The package's own solvers count as passed. Their uncharged uses of the data are doubts,
as for any solver.

A pass is a file of the cache, named by the solver's sources and by those of the
package. It records what is still in doubt: a release whose law is measured and not
recounted, or a use of the records that no budget pays for. A file that is damaged, or
cannot be read, is not a pass.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from dp_erm_bench import registry
from dp_erm_bench.code_identity import digest_of_text, package_state
from dp_erm_bench.paths import cache_dir, digest_of_json, write_atomic
from dp_erm_bench.plugins.load import path_of_pin
from dp_erm_bench.plugins.names import (
    content_digest,
    entry_points,
    is_file,
    label_of,
    source_files,
)

KIND = "passed"
"""Folder of the passes in the cache."""

NOT_RECOUNTED = " (not recounted)"
"""Added to the label of a calibration if a declared release has no twin."""
UNCHECKED = "not checked"
UNRECOUNTED = "checked, release not recounted"
"""Label of a solver that passed, but has a release that is measured, not recounted."""
UNCHARGED = "checked, uncharged: "
"""Beginning of the label of a solver that passed and declares uncharged uses.

The names of these uses of the records follow.
"""


def solver_digest(algorithm: str) -> str:
    """Return the digest of the text of an algorithm from outside the package.

    For a file, this covers the file and the modules next to it, including comments. For
    an entry point, it covers every module of the package that offers it. For the
    package's own algorithms, which have their own tests, the digest is empty.

    Parameters
    ----------
    algorithm : str
        A name, a file or its pin; empty for none.
    """
    if is_file(algorithm):
        pin = registry.pin_choice(algorithm)
        path = path_of_pin(pin)
        return digest_of_text(source_files(path)) if path else content_digest(pin)
    if not algorithm or is_our_algorithm(algorithm):
        return ""
    target = entry_points()[algorithm]
    return digest_of_json([target, package_state(target.partition(".")[0])])


@functools.cache
def is_our_algorithm(algorithm: str) -> bool:
    """Return whether a name is that of one of the package's own algorithms."""
    return algorithm in registry.built_in(registry.ALGORITHM)


def passes_folder() -> Path:
    """Return the folder of the passes, in the cache."""
    return cache_dir() / KIND


def doubt_of_sources(
    solver: str, recounted: bool = True, uses: Iterable[str] = ()
) -> str:
    """Return what `check` of the current package leaves in doubt about a solver.

    Parameters
    ----------
    solver : str
        What `solver_digest` returns; empty for the package's own solvers, which count
        as passed.
    recounted : bool
        Whether everything that a run released has a twin, as its calibration says.
    uses : iterable of str
        Names of the uncharged uses that the solver's class declares.

    Returns
    -------
    str
        `UNCHECKED`, `UNRECOUNTED`, `UNCHARGED` with names, or nothing.
    """
    found = _recorded_doubt(solver) if solver else ""
    if found is None:
        return UNCHECKED
    names = ", ".join(uses)
    # The record of a pass names all of them.
    if names and not found:
        return f"{UNCHARGED}{names}"
    return found or ("" if recounted else UNRECOUNTED)


def _recorded_doubt(solver: str) -> str | None:
    """Return the doubt in the record of a pass; None if there is no pass."""
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        path = _record_path(solver)
        text = path.read_bytes() if path.is_file() else b""  # a pipe would wait
        found = str(json.loads(text).get("doubt"))
        return found if text == _record_text(solver, found) else None
    return None


def record_pass(solver: str, passed: bool, doubt: str = "") -> bool:
    """Record that a solver's sources have passed, or remove the record of a pass.

    Parameters
    ----------
    solver : str
        What `solver_digest` returns.
    passed : bool
        Whether the sources have passed.
    doubt : str
        What is in doubt nevertheless; empty if nothing is.

    Returns
    -------
    bool
        Whether the change was recorded; the cache may be read-only.
    """
    with contextlib.suppress(OSError):
        if passed:
            write = functools.partial(_write_text, _record_text(solver, doubt))
            write_atomic(_record_path(solver), write, private=True)
        else:
            _record_path(solver).unlink(missing_ok=True)
        return True
    return False


def _write_text(text: bytes, file: IO[bytes]) -> None:
    file.write(text)


def unchecked_sentence(algorithms: Iterable[str]) -> str:
    """Return a sentence on the algorithms that are in doubt; empty if there are none.

    Parameters
    ----------
    algorithms : iterable of str
        Names and pins; empty names are left out, and the package's own algorithms count
        as passed.
    """
    doubts = {
        name: doubt_of_sources(solver_digest(name), uses=_solver_class(name).uncharged)
        for name in dict.fromkeys(filter(None, algorithms))
    }
    said = [_not_passed([name for name, why in doubts.items() if why == UNCHECKED])]
    for why in dict.fromkeys(doubts.values()):
        names = [label_of(name) for name, one in doubts.items() if one == why]
        said += [doubtful_sentence(names, why)] if why not in ("", UNCHECKED) else []
    return "; ".join(filter(None, said))


def _solver_class(name: str) -> Any:
    """Return the class of an algorithm, a name or a pin."""
    return registry.target(registry.ALGORITHM, name)


def doubtful_sentence(names: Iterable[str], doubt: str) -> str:
    """Return a sentence on algorithms that passed with a doubt."""
    why = "its law was measured, and the certified epsilon rests on what it says"
    if doubt.startswith(UNCHARGED):
        why = "the certified epsilon does not cover it"
    return f"algorithm={','.join(names)}: {doubt}: {why}"


def _not_passed(lacking: list[str]) -> str:
    if not lacking:
        return ""
    files = " ".join(shlex.quote(name.partition("#")[0]) for name in lacking)
    have, rests = "has", "its certified epsilon rests on its"
    if len(lacking) > 1:
        have, rests = "have", "their certified epsilons rest on their"
    return (
        f"algorithm={','.join(map(label_of, lacking))} {have} not passed `dp-erm-bench "
        f"check {files}`: {rests} own declarations"
    )


def _record_path(solver: str) -> Path:
    """Return the path of the record of a pass."""
    return passes_folder() / f"{digest_of_json([solver, package_state()])}.json"


def _record_text(solver: str, doubt: str) -> bytes:
    """Return the text of the record of a pass."""
    fields = {"solver": solver, "package": package_state(), "doubt": doubt}
    whole = {**fields, "sha256": digest_of_json(fields)}
    return f"{json.dumps(whole, indent=1, sort_keys=True)}\n".encode()
