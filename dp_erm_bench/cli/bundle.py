"""A results folder in another one's hands: `bundle` makes its zip, `replay` repeats it.

What is replayed may be anyone's. Its numbers are recomputed by the code that is
installed here; code that it brings along runs only if `--trust` is given.
"""

from __future__ import annotations

import math
import re
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import is_zipfile

from dp_erm_bench.cli.app import draw_again, existing
from dp_erm_bench.errors import UsageError, number, printable
from dp_erm_bench.results.files import PLAN, called, plural, typed
from dp_erm_bench.results.runs import read_manifest

if TYPE_CHECKING:
    import pandas as pd

    from dp_erm_bench.results.bundle import Source

WHOLE = "--with-private-numbers"
SAMPLE, ALL = 5, "all"
SEEDS = 10**6
NUMBER = re.compile("0*([0-9]{1,18})[0-9]*")
"""Of thousands of digits Python makes no number, and we need no more than the first."""
SHORT = 12
"""Digits of a key that are shown."""

RAN, TUNE = ("ok", "diverged"), "tune"


def bundle_command(arguments: Sequence[str]) -> int:
    """Write a folder as one zip that names no path, no user and no machine.

    Of data that nobody declared public it has no number that is computed from the
    records, unless `WHOLE` asks for them.

    Raises
    ------
    UsageError
        If it is no results folder, or the zip cannot be written.
    """
    from dp_erm_bench.cli.plots import standing
    from dp_erm_bench.report.html.page import write_report
    from dp_erm_bench.results import bundle
    from dp_erm_bench.results.table import (
        UNREADABLE,
        as_it_stands,
        collect,
        lacking,
    )

    words, options = _options(arguments, {"--out": "FILE.zip", WHOLE: ""})
    if len(words) != 1:
        raise UsageError("bundle: name one results folder, as in bundle results/sweep")
    (folder,) = existing(words)
    name = folder.resolve().name
    path = Path(options.get("--out") or folder.resolve().parent / f"{name}.zip")
    with TemporaryDirectory() as home, called(copy := Path(home) / name, folder):
        mask, private = bundle.anonymous_copy(folder, copy, WHOLE in options)
        collect(copy)
        config = read_manifest(copy).get("config")
        table = as_it_stands(copy)
        ran = table["iteration"].notna().any()
        if isinstance(config, dict) and config.get("figures") and ran:
            try:
                draw_again(copy, config)
            except (UsageError, *UNREADABLE) as error:
                print(f"{typed(folder)}: its figures: {error}", file=sys.stderr)
        if missing := lacking(copy, table):
            print(f"{typed(folder)}: {missing}", file=sys.stderr)
        uses = table["uncharged"].dropna().unique()
        listed = dict.fromkeys(
            use for text in uses for use in str(text).split(",") if use
        )
        (copy / bundle.LOCK).write_text(bundle.lock_of(copy))
        first = bundle.CHECKABLE if WHOLE in options else bundle.SETTINGS_ALONE
        first = first if private else ""
        about = bundle.about(copy, path.name, listed, standing(copy), first)
        (copy / bundle.README).write_text(about)
        write_report([copy], copy / bundle.PAGE, first)
        members = bundle.pack(copy, path)
        for told in bundle.left(copy, members, mask):
            print(
                f"dp-erm-bench: {told}; look at it before you send it", file=sys.stderr
            )
    kept = sum(member.startswith(f"{bundle.SOURCES}/") for member in members)
    size = path.stat().st_size / 1e6
    files = plural(len(members), "file")
    print(f"{typed(path)}: {files}, {kept} of them sources, no data")
    print(f"{size:.1f} MB; a reviewer types: dp-erm-bench replay {path.name}")
    if private and WHOLE in options:
        print(bundle.CHECKABLE)
    elif private:
        what = f"{plural(private, 'trial')} on data that nobody declared public"
        print(
            f"{what}: settings, statuses and budgets alone; dataset.public=true says "
            f"that data are public, {WHOLE} adds all numbers"
        )
    return 0


def _options(
    arguments: Sequence[str], known: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the plain words, and the values of options; flags have none to give.

    Raises
    ------
    UsageError
        For an option that there is not, or without its value.
    """
    words, found = [], {}
    rest = iter(arguments)
    for word in rest:
        name, given, value = word.partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif name not in known:
            has = " ".join(f"{k} {v}".strip() for k, v in known.items())
            raise UsageError(f"{word}: no such option; there is {has}")
        elif not known[name]:
            if given:
                raise UsageError(f"{word}: {name} takes no value")
            found[name] = name
        else:
            found[name] = value if given else next(rest, "")
            if not found[name]:
                raise UsageError(f"{name}: needs a value, {name} {known[name]}")
    return words, found


class Wanted(NamedTuple):
    """What a command line of `replay` asks for; `sample` is 0 for all trials."""

    name: str
    sample: int
    seed: int
    trust: bool
    data: Path | None


def _asked(arguments: Sequence[str]) -> Wanted:
    options = {"--sample": "NUMBER|all", "--seed": "NUMBER", "--trust": ""}
    words, given = _options(arguments, options | {"--data": "FOLDER"})
    if len(words) != 1:
        raise UsageError(
            "replay: name one results folder or one zip, as in replay results/sweep"
        )
    sample = given.get("--sample", str(SAMPLE))
    count = 0 if sample == ALL else _whole(sample)
    if sample != ALL and count < 1:
        raise UsageError(f"--sample {sample}: must be an integer of at least 1, or all")
    word = given.get("--seed", str(secrets.randbelow(SEEDS)))
    if not 0 <= (seed := _whole(word)) < SEEDS:
        raise UsageError(f"--seed {word}: must be an integer from 0 to {SEEDS - 1}")
    data = given.get("--data")
    if data is not None and not Path(data).is_dir():
        raise UsageError(f"--data {data}: no such folder")
    place = None if data is None else Path(data)
    return Wanted(words[0], count, seed, "--trust" in given, place)


def _whole(word: str) -> int:
    """Return the number that is typed, at least 10^17 of a longer one; else -1."""
    found = NUMBER.fullmatch(word)
    return int(found[1]) if found else -1


def replay_command(arguments: Sequence[str]) -> int:
    """Run recorded trials of a folder or a bundle again, and say which are the same.

    Returns
    -------
    int
        0 if all that were drawn are the same, else 1.

    Raises
    ------
    UsageError
        For wrong options, and what is neither a results folder nor a bundle.
    """
    asked = _asked(arguments)
    path = Path(asked.name)
    if not path.exists():
        raise UsageError(f"{asked.name}: no such folder and no such file")
    with TemporaryDirectory() as home:
        if path.is_dir():
            if not (path / PLAN).is_file():
                raise UsageError(f"{asked.name}: no results folder, it has no {PLAN}")
            return _replayed(path, asked, Path(home), foreign=False)
        from dp_erm_bench.results.bundle import unpacked

        if not (path.is_file() and is_zipfile(path)):
            raise UsageError(f"{asked.name}: is no zip, and no folder")
        inside = unpacked(path, Path(home))
        return _replayed(inside, asked, Path(home), foreign=True)


def _replayed(folder: Path, asked: Wanted, home: Path, foreign: bool) -> int:
    """Print what comes of trials that are drawn, and return the exit code."""
    from dp_erm_bench.cli.plots import standing
    from dp_erm_bench.results.bundle import PRIVATE
    from dp_erm_bench.results.store import planned_lines
    from dp_erm_bench.runner.replay import DATA, DIFFERS, NOT, SAME, TRUST, Received

    trials, notes, sound = _trials(folder)
    if withheld := sum(PRIVATE in line for line in planned_lines(folder)):
        of = "trials on data that nobody declared public were bundled without numbers"
        notes.append(f"{asked.name}: {withheld} {of}, there is nothing to compare")
    if withheld and trials.empty:
        print(notes[-1])
        return 0
    if trials.empty:
        raise UsageError(f"{asked.name}: no trial in it has ended with a trajectory")
    drawn = _drawn(trials, asked)
    keys = [str(key) for key in drawn["trial"]]
    again = f" (--seed {asked.seed} draws them again)" * (len(keys) < len(trials))
    print(f"{asked.name}: {plural(len(trials), 'row')}, {len(keys)} drawn{again}")
    for note in notes:
        print(note)
    trusted = _trusted(folder, keys, asked, home / "trusted")
    names = {str(row["trial"]): _name(row) for _, row in drawn.iterrows()}
    apart = _edits(folder, set(keys))
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    places: dict[str, None] = {}
    exact = True
    for one in Received(folder, trusted, asked.data, foreign).replayed(keys):
        edit = apart.get(one.key, "")
        verdict = DIFFERS if edit else one.verdict
        counts[verdict] += 1
        exact &= one.difference == 0.0
        size = one.difference if one.difference > 0.0 else math.nan
        told = [names[one.key]]
        told += [] if math.isnan(size) else [f"largest relative difference {size:.2g}"]
        told += filter(None, (edit, one.why))
        print(f"{verdict:12} {' '.join('; '.join(told).split())}", flush=True)
        places |= {one.elsewhere: None} if one.elsewhere else {}
        if verdict == NOT:
            why = one.why.partition(":")[0]
            reasons[why if why in (DATA, TRUST) else "as above"] += 1
    if sound and (best := standing(folder)):
        print("as recorded:", *filter(None, best.splitlines()), sep="\n")
    _print_end(counts, reasons, places, exact)
    return int(not sound or counts[SAME] < len(keys))


def _trials(folder: Path) -> tuple[pd.DataFrame, list[str], bool]:
    """Return trials with a trajectory, what to say first, and if the table is whole.

    They are those of the table as it stands; of the plan and the records if it cannot
    be read. Those that only helped to choose parameters are left out.
    """
    from dp_erm_bench.results.table import (
        NAME,
        is_sealed,
        is_stale,
        trials_in,
        trials_recorded,
    )

    notes, sound = [], True
    try:
        found = trials_in(folder)
        if not is_sealed(folder):
            sound = False
            notes.append(f"{NAME}: was edited, it is not as a run has written it")
        elif is_stale(folder):
            notes.append(f"{NAME}: is not made of all records that are beside it")
    except UsageError as error:
        sound = not (folder / NAME).exists()
        notes.append(f"{error}; the rows are those of the records" if not sound else "")
        found = trials_recorded(folder)
    ended = found[found["status"].isin(RAN) & found["iteration"].notna()]
    judging = ended[ended["phase"].ne(TUNE)]
    if len(judging) < len(ended):
        notes.append("rows that only helped to choose parameters are left out")
    return judging, [*filter(None, notes)], sound


def _drawn(trials: pd.DataFrame, asked: Wanted) -> pd.DataFrame:
    if not asked.sample or asked.sample >= len(trials):
        return trials
    return trials.sample(asked.sample, random_state=asked.seed)


def _name(row: pd.Series[Any]) -> str:
    """Return what a trial is called: digits of its key, and what it is."""
    seed, epsilon = number(row.get("seed")), number(row.get("epsilon"))
    # A sweep's rows have no labels of their own.
    where = [row.get(k) for k in ("panel", "dataset", "line", "algorithm")]
    parts = [f"{where[0] or where[1]} / {where[2] or where[3]}"]
    parts += [] if math.isnan(epsilon) else [f"epsilon {epsilon:g}"]
    parts += [] if math.isnan(seed) else [f"seed {seed:.0f}"]
    return printable(f"{str(row['trial'])[:SHORT]} {', '.join(parts)}", 200)


def _edits(folder: Path, keys: set[str]) -> dict[str, str]:
    from dp_erm_bench.results.table import edited

    try:
        return edited(folder, keys)
    except UsageError:  # there is no table, which was told
        return {}


def _trusted(
    folder: Path, keys: Sequence[str], asked: Wanted, into: Path
) -> dict[Source, str]:
    """Copy out the kept sources that trials need, say which, and return their pins.

    Without `--trust` they are named, and none may run.
    """
    from dp_erm_bench import registry
    from dp_erm_bench.code_identity import digest_of_text
    from dp_erm_bench.plugins.names import sources
    from dp_erm_bench.results.bundle import copied_out, sources_of

    pins = {}
    for source in sources_of(folder, set(keys)):
        try:
            path = copied_out(folder, source, into)
        except UsageError as error:
            print(f"{source.name}.py: {error}")
            continue
        if path is None:
            print(f"{source.name}.py: its source was not kept: its rows are not run")
            continue
        files = sources(str(path), source.group)
        names = ", ".join(
            file.relative_to(path.parent).as_posix() for file in files.values()
        )
        told = f"{names}: sha256 {digest_of_text(files)}"
        if asked.trust:
            # What runs next may end the process.
            print(f"trusted: {told}, in a copy of its own", flush=True)
            try:
                pins[source] = registry.pinned(str(path), source.group)
            except UsageError as error:  # its name is one of the package's by now
                print(f"{source.name}.py: {error}")
        else:
            where = f"sources/{path.parent.name}/"
            print(f"not trusted: {told}; read {where}, then add --trust to run it")
    return pins


def _print_end(
    counts: Counter[str],
    reasons: Counter[str],
    places: dict[str, None],
    exact: bool,
) -> None:
    from dp_erm_bench.runner.replay import DIFFERS, NOT, SAME, UNDECIDED, WITHIN

    total = counts.total()
    for place in places:
        print(f"not the machine of the run: {place}")
    if places:
        print(
            f"`same` means here that all numbers of a row are within {WITHIN:g}; a row "
            "with a noisy selection may go another way, which is undecided"
        )
    told = [f"{counts[SAME]} same"]
    told += [f"{counts[one]} {one}" for one in (DIFFERS, UNDECIDED) if counts[one]]
    told += [f"{number} {NOT}: {why}" for why, number in reasons.items()]
    bits = ", to the bit" if exact and not places else ""
    whole = (
        f"all are the same{bits}" if counts[SAME] == total else "not all are the same"
    )
    print(f"{plural(total, 'row')}: {', '.join(told)}")
    print(f"answer: {whole}")
