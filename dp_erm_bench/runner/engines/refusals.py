"""Why a remote worker gets no trial: what differs in its introduction."""

from __future__ import annotations

import json
from collections.abc import Mapping

from dp_erm_bench.errors import printable
from dp_erm_bench.plugins.names import label
from dp_erm_bench.runner import handshake
from dp_erm_bench.runner.handshake import CPU, DATA, FEATURES, FILE, MACHINE, STALE

LARGEST = 1 << 24
"""Characters of an introduction that is read."""

DIGITS = 12
"""Digits of a digest in a sentence."""

SHOWN = 5
"""Features of a CPU in a sentence."""

Introduction = Mapping[str, str]


def parsed(answer: object) -> dict[str, str]:
    """Return the introduction in an answer.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not isinstance(answer, str) or len(answer) > LARGEST:
        raise ValueError("it must be a text")
    found = json.loads(answer)
    if not isinstance(found, dict):
        raise ValueError("it must be a JSON object")
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError("its values must be texts")
    if not {MACHINE, CPU, FEATURES, STALE} <= found.keys():
        raise ValueError("it must name its machine and CPU")
    return {key: printable(value) for key, value in found.items()}


def lacking(theirs: Introduction, ours: Introduction) -> list[str]:
    """Return the keys of data and files that a worker does not have as it should."""
    wanted = [key for key in ours if key.startswith((DATA, FILE))]
    return [key for key in wanted if theirs.get(key) != ours[key]]


def difference(theirs: Introduction, ours: Introduction, mixed: bool = False) -> str:
    """Return the first difference of a worker, and what to do; empty if there is none.

    Data and files are left out: see `lacking`.

    Parameters
    ----------
    theirs, ours : mapping
        The worker's introduction, and the `expected` one.
    mixed : bool
        Whether there may be several kinds of CPU.
    """
    if theirs[STALE]:
        return "its dp_erm_bench has changed since it was started: start it again"
    for start, sentence in SENTENCES.items():
        if mixed and start in (CPU, FEATURES):
            continue
        for key in sorted(k for k in {**ours, **theirs} if k.startswith(start)):
            there, here = theirs.get(key, ""), ours.get(key, "")
            if there != here:
                return sentence(printable(key[len(start) :], 100), there, here)
    return ""


def title(key: str) -> str:
    """Return the name of a dataset or a file as a sentence has it."""
    if key.startswith(DATA):
        return f"dataset {json.loads(key.removeprefix(DATA))['name']}"
    return f"file {label(key.removeprefix(FILE))}.py"


def _package(name: str, there: str, here: str) -> str:
    return (
        f"its dp_erm_bench differs in {name} ({_digests(there, here)}): install the "
        "same sources there and start it again"
    )


def _version(name: str, there: str, here: str) -> str:
    has = f"{name} {there}" if there else f"no {name}"
    return f"it has {has}, here is {here or 'none'}: install the same there"


def _setting(name: str, there: str, here: str) -> str:
    values = f"{name}={there or 'unset'} there, {here or 'unset'} here"
    return f"{values}: set the same and start it again"


def _cpu(name: str, there: str, here: str) -> str:
    return (
        f"its CPU is {there}, here is {here}: numbers would differ in their last bits; "
        "runner.mixed_cpus=true allows several kinds of CPU"
    )


def _features(name: str, there: str, here: str) -> str:
    apart = sorted({*there.split(",")} ^ {*here.split(",")})
    names = dict.fromkeys(feature.lstrip("+-") for feature in apart)
    more = ", ..." if len(names) > SHOWN else ""
    text = ", ".join([*names][:SHOWN]) + more
    return (
        f"its CPU differs in features ({text}): numbers would differ in their last "
        "bits; runner.mixed_cpus=true allows several kinds of CPU"
    )


def _solver(name: str, there: str, here: str) -> str:
    return (
        f"algorithm={name} comes from an installed package, which differs there "
        f"({_digests(there, here)}): install the same there and start it again"
    )


def _digests(there: str, here: str) -> str:
    return f"sha256 {there[:DIGITS] or 'none'}, here {here[:DIGITS] or 'none'}"


SENTENCES = {
    handshake.PACKAGE: _package,
    handshake.VERSION: _version,
    handshake.SETTING: _setting,
    CPU: _cpu,
    FEATURES: _features,
    handshake.SOLVER: _solver,
}
"""What is said of a difference, by the start of its key; the first one is told."""
