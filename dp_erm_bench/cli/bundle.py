"""The commands bundle and replay: share a results folder, and repeat its runs.

A replayed folder is not trusted. Its numbers are recomputed by the code that is
installed here. Solvers that it contains run only if `--trust` is given.
"""

from __future__ import annotations

import argparse
import random
import re
import secrets
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

from dp_erm_bench.cli.app import draw_again
from dp_erm_bench.cli.options import parser_of
from dp_erm_bench.errors import UsageError, escape_line
from dp_erm_bench.results import bundle
from dp_erm_bench.results.bundle import PRIVATE, unpack_bundle
from dp_erm_bench.results.files import PLAN, count_with_noun, name_as_folder, typed_path
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.settings import RAN
from dp_erm_bench.results.store import Store, planned_lines


def bundle_command(arguments: Sequence[str]) -> int:
    """Write a results folder as one zip, without the data files.

    For data not declared public, numbers that are computed from the records are left
    out, unless `--with-private-numbers` is given.

    Raises
    ------
    UsageError
        If the path is not a results folder, or the zip cannot be written.
    """
    from dp_erm_bench.cli.plots import standings_text
    from dp_erm_bench.report.html.page import write_report
    from dp_erm_bench.results.table import UNREADABLE, as_it_stands, collect_table

    options = parser_of("bundle").parse_intermixed_args(arguments)
    folder, name = options.folder, options.folder.resolve().name
    path = options.out or folder.resolve().parent / f"{name}.zip"
    with (
        TemporaryDirectory() as home,
        name_as_folder(copy := Path(home) / name, folder),
    ):
        try:
            private = bundle.copy_folder(folder, copy, options.whole)
        except UsageError:
            raise
        except UNREADABLE:
            why = f"{PLAN}, a record or a manifest is damaged"
            raise UsageError(f"{typed_path(folder)}: {why}") from None
        collect_table(copy)
        config = read_manifest(copy).get("config")
        table = as_it_stands(copy)
        ran = table["iteration"].notna().any()
        if isinstance(config, dict) and config.get("figures") and ran:
            try:
                draw_again(copy, config)
            except (UsageError, *UNREADABLE) as error:
                print(f"{typed_path(folder)}: its figures: {error}", file=sys.stderr)
        (copy / bundle.LOCK).write_text(bundle.lock_of(copy))
        first = bundle.CHECKABLE if options.whole else bundle.SETTINGS_ALONE
        first = first if private else ""
        uses = ",".join(map(str, table["uncharged"].dropna().unique())).split(",")
        about = bundle.bundle_readme(
            copy, path.name, filter(None, uses), standings_text(copy), first
        )
        (copy / bundle.README).write_text(about)
        write_report([copy], copy / bundle.PAGE, first)
        members = bundle.pack_bundle(copy, path)
    size = path.stat().st_size / 1e6
    print(f"{typed_path(path)}: {count_with_noun(len(members), 'file')}, {size:.1f} MB")
    print(f"The data files are not in it. {bundle.NAMES}")
    print(first or f"Its {bundle.README} says what a reviewer types.")
    return 0


def replay_command(arguments: Sequence[str]) -> int:
    """Run recorded trials of a folder or bundle again, and compare the numbers.

    Returns
    -------
    int
        0 if all trials in the sample give the same numbers, else 1.

    Raises
    ------
    UsageError
        For wrong options, or a path that is neither a results folder nor a bundle.
    """
    options = parser_of("replay").parse_intermixed_args(arguments)
    if options.seed is None:
        options.seed = secrets.randbelow(10**6)
    if not re.fullmatch("all|0*[1-9][0-9]{0,17}", options.sample):
        why = "must be an integer of at least 1, or all"
        raise UsageError(f"--sample {options.sample}: {why}")
    with TemporaryDirectory() as home:
        folder = options.folder
        if not folder.is_dir():
            folder = unpack_bundle(folder, Path(home))
            options.data = options.data or Path()  # its own paths do not exist here
        if not (folder / PLAN).is_file():
            raise UsageError(f"{folder}: no results folder, it has no {PLAN}")
        return _print_replayed(folder, options)


def _print_replayed(folder: Path, options: argparse.Namespace) -> int:
    """Replay a sample of trials, print the outcome, and return the exit code."""
    from dp_erm_bench.runner.replay import DIFFERS, NOT, SAME, WITHIN, replay_rows

    names, missing, data = _replayable_rows(folder)
    if data:
        print(
            f"{options.folder}: holds nothing to compare for "
            f"{count_with_noun(len(data), 'trial')} on undeclared data; with "
            f"{', '.join(sorted({*data.values()}))} you can replay a zip that was made "
            "by bundle --with-private-numbers"
        )
    if data and not names:
        return 0
    if not names:
        why = "no trial in it has ended with a trajectory"
        raise UsageError(f"{options.folder}: {why}")
    size = len(names) if options.sample == "all" else int(options.sample)
    keys = random.Random(options.seed).sample([*names], min(size, len(names)))
    told = f"{count_with_noun(len(names), 'row')}, {len(keys)} drawn"
    told += f" (--seed {options.seed} draws them again)" * (len(keys) < len(names))
    told += f"; {count_with_noun(missing, 'planned trial')} without a record" * (
        missing > 0
    )
    print(f"{options.folder}: {told}", flush=True)
    counts: Counter[str] = Counter()
    places: dict[str, None] = {}
    largest, last = 0.0, ""
    for one in replay_rows(folder, keys, options.trust, options.data):
        counts[one.verdict] += 1
        places |= {one.elsewhere: None} if one.elsewhere else {}
        if one.verdict == SAME:
            largest = max(largest, one.difference)
        else:
            again = (one.verdict, one.why) == (NOT, last)
            why = "for the same reason" if again else one.why
            said = " ".join(f"{names[one.key]}: {why}".split())
            print(f"{one.verdict}: {said}", flush=True)
            last = one.why
    for place in places:
        print(f"not the machine of the run: {place}")
    if places:
        print(
            f"`same` means here that all numbers of a row are within {WITHIN:g}; the "
            f"largest relative difference of such a row is {largest:.2g}"
        )
    found = [f"{counts[v]} {v}" for v in (SAME, DIFFERS, NOT) if counts[v] or v == SAME]
    print(f"{count_with_noun(len(keys), 'row')}: {', '.join(found)}")
    same = counts[SAME] == len(keys)
    bits = "" if places else ", to the bit"
    share = "all" if same else f"{counts[SAME]} of {len(keys)}"
    print(f"answer: {share} are the same{bits}")
    return int(not same)


def _replayable_rows(folder: Path) -> tuple[dict[str, str], int, dict[str, str]]:
    """Return the trials of a folder that can be replayed.

    Returns
    -------
    names : dict
        Names of the trials that have a trajectory, by key. Trials that only helped to
        choose parameters are left out.
    missing : int
        The number of planned trials without a record.
    data : dict
        Names of the datasets of trials that were bundled without numbers, by key.
    """
    store, names, data, missing = Store(folder), {}, {}, set()
    for line in planned_lines(folder):
        key, spec = line["key"], line["spec"]
        status = store.status(key)
        if PRIVATE in line:
            of = _spec_part(spec, "dataset")
            data[key] = escape_line(PurePath(str(of.get("path", of.get("name")))).name)
        elif status is None:
            missing.add(key)
        elif status in RAN and line["phase"] != "tune" and "task" not in spec:
            names[key] = _trial_name(line)
    return names, len(missing), data


def _trial_name(line: Mapping[str, Any]) -> str:
    """Return a trial's name for messages: digits of its key, and its settings."""
    spec = line["spec"]
    where = line["panel"] or _spec_part(spec, "dataset").get("name")
    what = line["line"] or _spec_part(spec, "algorithm").get("name")
    epsilon, seed = _spec_part(spec, "budget").get("epsilon"), spec.get("seed")
    name = f"{where} / {what}, epsilon {epsilon}, seed {seed}"
    return f"{line['key'][:12]} {escape_line(name, 200)}"


def _spec_part(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of a spec; empty if it is not a mapping, as specs are untrusted."""
    part = spec.get(name)
    return part if isinstance(part, Mapping) else {}
