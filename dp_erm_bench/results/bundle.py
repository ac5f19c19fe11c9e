"""Share a results folder: keep the code that it used, and pack it as a zip.

**sources/<digest>/** has a user's own files that a run used: the experiment's yaml, and
the file of a solver or loss with the modules next to it that it imports. The folder
is named by the first digits of the content's digest in the plan. Nothing in it is
imported unless the user of `replay` asks for it.

A **bundle** is a zip of plan, records, table, page, manifests, sources, versions and
`README.md` with commands. The data files are not in it. An unpacked bundle is a results
folder. A zip is not trusted: `unpack_bundle` accepts only regular files of known names,
each once, and limits their number and size.

Suppose that someone knows all records but one, and the seed. Any number that is
computed from the records then lets them check a guess of the last record. Examples are
a digest, an optimum, an objective, an accuracy, or a key (a digest of a digest). For
data not declared public, the copy therefore contains only settings, statuses and
budgets (`Withheld`).
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import shutil
import stat
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from dp_erm_bench import registry
from dp_erm_bench.code_identity import digest_of_files, isolate_folder
from dp_erm_bench.datasets.base import READ, Uncharged
from dp_erm_bench.datasets.spec import PUBLIC, usual_fields
from dp_erm_bench.errors import UsageError, escape_line, real_number
from dp_erm_bench.paths import content_of, list_files, write_atomic
from dp_erm_bench.plugins.names import source_files
from dp_erm_bench.results.files import (
    PLAN,
    count_with_noun,
    translate_os_errors,
    typed_path,
)
from dp_erm_bench.results.runs import read_manifest, read_run, write_run
from dp_erm_bench.results.settings import parameters_of_rule
from dp_erm_bench.results.store import (
    NAMED,
    Plan,
    RecordWriter,
    Store,
    planned_lines,
    read_plan,
)
from dp_erm_bench.results.tuned import CHOICES

SOURCES = "sources"
README, LOCK, PAGE = "README.md", "requirements.lock", "report.html"

MEMBERS = re.compile(
    r"(?:plan\.jsonl|manifest\.json|results\.parquet|report\.html|README\.md"
    r"|requirements\.lock|[A-Za-z0-9_-]+\.csv|runs/[A-Za-z0-9_-]+\.json"
    r"|records\.jsonl"
    r"|sources/[0-9a-f]{16}/"
    r"(?:(?:[^\W\d]\w*/){0,20}[^\W\d]\w*\.py|[\w .-]+\.yaml))"
)
"""Pattern for the names of files in a bundle."""

# Kept sources ------------------------------------------------------------------------


def keep_sources(
    folder: Path, files: Mapping[str, str], experiments: Mapping[str, bytes] = {}
) -> None:
    """Copy a user's own files into a results folder.

    Parameters
    ----------
    folder : Path
        A results folder.
    files : mapping
        Paths of code files, each with its group. Modules next to them that they import
        are copied too.
    experiments : mapping
        Contents of experiment files by file name.

    Raises
    ------
    UsageError
        If the folder cannot be written to.
    """
    texts = {}
    for code, group in files.items():
        found = source_files(code, group)
        place = Path(SOURCES, digest_of_files(found)[:NAMED])
        for file in found.values():
            texts[place / file.relative_to(Path(code).parent)] = file.read_bytes()
    for name, text in experiments.items():
        place = Path(SOURCES, sha256(text).hexdigest()[:NAMED])
        texts[place / re.sub(r"[^\w .-]", "_", name)] = text
    with translate_os_errors(folder):
        for path, text in texts.items():
            _write_file(folder / path, text)


def _write_file(path: Path, text: bytes) -> None:
    write_atomic(path, lambda file: file.write(text))


def kept_file(part: Mapping[str, Any]) -> str:
    """Return the path of the kept file of a solver or loss, within a results folder.

    `part` is the part of a trial's spec that describes the solver or loss. The path is
    empty if `part` does not name a file.
    """
    name = f"{SOURCES}/{str(part.get('content'))[:NAMED]}/{part.get('name')}.py"
    return name if MEMBERS.fullmatch(name) else ""


# What depends on records -------------------------------------------------------------

PRIVATE = "withheld"
"""Key that marks lines of the plan whose copies lack numbers computed from the data."""

SETTINGS = (
    *("n", "p", "loss", "penalty", "strength", "constraint", "smoothness", "params"),
    *("delta", "accountant", "calibration", "epsilon_certified", "uncharged"),
    *("solver", "exempt"),
)
"""Facts in a trial's record that are not computed from the data."""

OF_SETTINGS = (
    *("experiment", "panel", "line", "phase", "tuned", "measured", "rule", "read"),
)
"""Keys of a line of the plan that do not depend on the data."""

OF_RUNS = (
    *("run", "experiment", "profile", "version", "started", "outcome", "environment"),
    *("solver_files", "computed_with"),
)
"""Keys of a manifest that do not depend on the data, on seeds or on searches."""

SEEDS = ("seed", "seeds", "report")
"""Keys of a configuration whose values are seeds."""
SEEDED = re.compile(r"(?:^|\s)[\w.+~-]*\bseeds?=")
"""Matches a word of a command line that sets seeds."""


def has_private_data(line: Mapping[str, Any]) -> bool:
    """Return whether a line of a plan uses data that are not declared public."""
    spec = line["spec"]
    data = spec.get("dataset")
    if "task" in spec or not isinstance(data, dict):
        return False  # a task generates its own data
    if PUBLIC in data:
        return data[PUBLIC] is not True
    with contextlib.suppress(UsageError):  # the dataset may be unknown here
        return usual_fields(str(data.get("name"))).get(PUBLIC) is not True
    return True


class Withheld:
    """Removes from a copy what is computed from data that are not declared public.

    Parameters
    ----------
    lines : sequence of mapping
        The lines of the plan.

    Attributes
    ----------
    keys : set of str
        Keys of the trials with at least one line on private data.
    """

    def __init__(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self.keys = {line["key"] for line in lines if has_private_data(line)}
        own = [line for line in lines if line["key"] in self.keys]
        self._datasets = {line["spec"]["dataset"].get("name") for line in own}
        judging = [line for line in own if not self.is_left_out(line)]
        found = dict.fromkeys(line["key"] for line in judging)
        self._names = {key: f"{place:064x}" for place, key in enumerate(found, 1)}
        # The parameters of these trials were chosen by looking at the data.
        self._searched = {
            line["key"]
            for line in judging
            if line["tuned"] or line.get("measured") or line["phase"] != "sweep"
        }
        # A rule computes parameters from p and bounds, which may be read off the data.
        self._ruled = {
            line["key"]: parameters_of_rule(str(line["rule"])) for line in judging
        }
        budgets = ((line["key"], line["spec"].get("budget")) for line in judging)
        self._epsilon = {
            key: real_number(one.get("epsilon")) if isinstance(one, dict) else math.nan
            for key, one in budgets
        }

    def is_left_out(self, line: Mapping[str, Any]) -> bool:
        """Return whether a line is part of a search on private data.

        The points of a search reveal information on its data.
        """
        return line["key"] in self.keys and line["phase"] == "tune"

    def without_secrets(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Return a line of the plan; for private data, without its seeds and choices.

        The key of such a line is replaced by a number.
        """
        key, spec = line["key"], line["spec"]
        if key not in self.keys:
            return dict(line)
        data = {
            k: v for k, v in spec["dataset"].items() if k not in ("seed", "content")
        }
        algorithm = spec["algorithm"]
        declared = self._declared_parameters(key, algorithm["params"])
        spec = {**spec, "dataset": data, "seed": None}
        spec["algorithm"] = {**algorithm, "params": declared}
        kept = {k: v for k, v in line.items() if k in OF_SETTINGS}
        return {"key": self._names[key], **kept, "spec": spec, PRIVATE: True}

    def _declared_parameters(
        self, key: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters of a trial that neither a search nor a rule chose."""
        if key in self._searched:
            return {}
        return {k: v for k, v in params.items() if k not in self._ruled[key]}

    def record_without_secrets(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a trial's record; for private data, status, settings and budget."""
        key, status = record["key"], record["status"]
        if key not in self.keys:
            return {k: v for k, v in record.items() if k != "crc"}
        there = record.get("facts") or {}
        facts = {k: v for k, v in there.items() if k in SETTINGS}
        if "params" in facts:
            facts["params"] = self._declared_parameters(key, facts["params"])
        if {*READ, Uncharged.DROPPED_COLUMNS} & {*facts.get("uncharged", ())}:
            facts.pop("p", None)
        # A public schedule is seeded by the digest of the data, so the proved epsilon
        # may depend on it. The epsilon of the budget is written in its place.
        proved, epsilon = (
            real_number(facts.get("epsilon_certified")),
            self._epsilon[key],
        )
        facts["epsilon_certified"] = epsilon if proved <= 1.000001 * epsilon else None
        return {
            **{"key": self._names[key], "status": status, "cost": 0.0},
            **{"facts": facts, "trajectory": {}},
            "message": "" if status == "ok" else "left out: it may reveal records",
        }

    def manifest_without_secrets(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Return a manifest; with private data, without digests, seeds and counts."""
        if not self.keys:
            return dict(manifest)
        kept = {k: v for k, v in manifest.items() if k in OF_RUNS}
        files = manifest.get("experiment_file")
        names = files if isinstance(files, dict) else ()
        kept["experiment_file"] = dict.fromkeys(names, "")
        # An earlier run may have declared data public that a later one did not.
        kept["data"] = [
            one
            if one.get(PUBLIC) is True and one.get("name") not in self._datasets
            else {k: v for k, v in one.items() if k in ("name", "file")}
            | {PUBLIC: False}
            for one in _objects_of(manifest.get("data"))
        ]
        return {
            **kept,
            **_without_seeds(
                {k: manifest.get(k) for k in ("command", "config", "blocks")}
            ),
        }


def _objects_of(value: Any) -> list[dict[str, Any]]:
    """Return the mappings in an untrusted list, and drop its other entries."""
    every = value if isinstance(value, list) else ()
    return [one for one in every if isinstance(one, dict)]


def _without_seeds(value: Any) -> Any:
    """Return a part of a configuration without keys and strings that set seeds."""
    if isinstance(value, dict):
        return {k: _without_seeds(one) for k, one in value.items() if k not in SEEDS}
    if isinstance(value, list):
        return [one for one in map(_without_seeds, value) if one != ""]
    return "" if isinstance(value, str) and SEEDED.search(value) else value


# The copy ----------------------------------------------------------------------------


def copy_folder(folder: Path, into: Path, whole: bool = False) -> int:
    """Copy plan, records, manifests, choices and sources of a results folder.

    Parameters
    ----------
    folder : Path
        The results folder.
    into : Path
        Folder of the copy. The caller must build its table afterwards.
    whole : bool
        Whether to copy numbers that are computed from data not declared public.

    Returns
    -------
    int
        The number of trials on data not declared public.

    Raises
    ------
    UsageError
        If the folder has no plan, or one of its files cannot be read.
    """
    planned = [*read_plan(folder)]
    lines = [line for line in planned if line is not None]
    if not lines:
        raise UsageError(f"{typed_path(folder)}: no results folder, it has no {PLAN}")
    store, last = Store(folder), read_manifest(folder)
    missing = len(planned) - sum(line["key"] in store for line in lines)
    if missing:
        trials = count_with_noun(missing, "planned trial")
        lost = f"{trials} without a record left out of the zip"
        why = f" ({damage})" if (damage := store.damage()) else ""
        print(
            f"{typed_path(folder)}: {lost}{why}; the same command runs them",
            file=sys.stderr,
        )
    private = Withheld(lines)
    withheld = Withheld([]) if whole else private
    lines = [line for line in lines if not withheld.is_left_out(line)]
    with Plan(into, append=False) as plan:
        plan.add(map(withheld.without_secrets, lines))
    run = str(last.get("run", ""))
    _copy_records(store, into, [line["key"] for line in lines], withheld, run)
    for manifest in sorted(
        _manifests_of_folder(folder), key=lambda one: one["run"] == run
    ):
        write_run(into, withheld.manifest_without_secrets(manifest))
    for path in _files_of(folder, lines, bool(withheld.keys)):
        try:
            text = content_of(path, folder)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read, {error.strerror}") from None
        _write_file(into / path.relative_to(folder), text)
    return len(private.keys)


def _copy_records(
    store: Store, into: Path, keys: Sequence[str], withheld: Withheld, run: str
) -> None:
    """Copy the records of some trials in the order of `keys`, batch by batch.

    Records on private data lose their batch and their run, since both would reveal what
    a search chose. Each of them is written alone, as a record of `run`.
    """
    planned, done = set(keys), set[str]()
    for key, record in zip(keys, store.records(keys), strict=True):
        if record is None or key in done:
            continue
        batch, origin, mates, records = record.get("batch"), run, [], [record]
        if key not in withheld.keys:
            origin = str(record.get("run", ""))
            mates = store.keys_of_batch(key, batch) if isinstance(batch, str) else []
            every = store.records([one for one in mates if one in planned] or [key])
            records = [one for one in every if one and one.get("batch") == batch]
        done.update(one["key"] for one in records)
        writer = RecordWriter(into, origin)
        # The mark of a batch names keys, which are digests of the data.
        if mates and withheld.keys.isdisjoint(mates):
            writer.begin(mates)
        writer.append(map(withheld.record_without_secrets, records))


def _manifests_of_folder(folder: Path) -> list[dict[str, Any]]:
    """Return the readable manifests of a folder, oldest first."""
    every = (read_run(folder, one.stem) for one in list_files(folder / "runs", ".json"))
    return [one for one in every if one.get("run")]


def _files_of(
    folder: Path, lines: Iterable[Mapping[str, Any]], private: bool
) -> list[Path]:
    """Return the paths of the choices and sources to copy.

    With `private` data only code is copied. Choices were made by looking at the data,
    and a yaml names seeds. UsageError is raised if code differs from the code that ran,
    since no replay would run it.
    """
    parts = (line["spec"].get(group) for line in lines for group in registry.FROM_FILES)
    named = {kept_file(part): part for part in parts if isinstance(part, dict)}
    own = {name: part["content"] for name, part in sorted(named.items()) if name}
    for name, content in own.items():
        path = (folder / name).resolve()
        isolate_folder(path.parent)
        if not path.is_file():
            lost = f"{escape_line(name)} was not kept: nobody else can repeat its rows"
            print(f"{typed_path(folder)}: {lost}", file=sys.stderr)
        elif digest_of_files(source_files(str(path))) != content:
            why = "was changed since the run: put back the file that ran"
            raise UsageError(f"{typed_path(folder)}: {escape_line(name)} {why}")
    found = [
        path
        for place in sorted({(folder / name).parent for name in own})
        for path in place.rglob("*.py")
    ]
    if not private:
        found += (folder / SOURCES).glob("*/*.yaml")
        found += folder.glob(CHOICES)
    return found


# Its README --------------------------------------------------------------------------

WORDS = {
    "smoothness": "step sizes come from constants computed on the data",
    "smoothness_bounds": "the bounds of released constants were computed on the data",
    "standardisation": "means and scales of columns were computed on the data",
    "dropped columns": "which columns are left depends on the records",
    "classes": "the labels that there may be were read off the records",
    "features": "the number of features was read off the records",
    "header": "whether the first row is a record was read off it",
    "kinds": "whether a column holds words or numbers was read off the records",
    "categories": "the words of a column were read off the records",
    "tuning": "parameters were chosen by looking at other runs on the data",
}
"""Explanations of the uses of the data that no budget pays for."""

CHECKABLE = (
    "Whoever guesses a record of data that nobody declared public can check the guess "
    "by the numbers in here: digests, optima, objectives and held-out measures are "
    "computed from the records."
)
SETTINGS_ALONE = (
    "Of data that nobody declared public settings, statuses and budgets alone are in "
    "here. dataset.public=true declares data public, and bundle --with-private-numbers "
    "adds the numbers that are computed from their records."
)
NAMES = "It holds paths and names of machines and users as the runs recorded them."


def bundle_readme(
    folder: Path, name: str, uses: Iterable[str], best: str = "", first: str = ""
) -> str:
    """Return the text of the `README.md` of a bundle.

    Parameters
    ----------
    folder : Path
        The copy of the results folder.
    name : str
        File name of the zip.
    uses : iterable of str
        Uncharged uses of the data, from the column `uncharged` of its table.
    best : str
        Table of the best lines, in Markdown.
    first : str
        First paragraph.
    """
    manifests, lines = _manifests_of_folder(folder), [*planned_lines(folder)]
    version = read_manifest(folder).get("version", "(unknown version)")
    text = [
        f"# {folder.name}",
        first,
        f"Results of dp_erm_bench {version}. `{PAGE}` shows them, `results.parquet` "
        f"holds every row, `{LOCK}` the versions of packages. The data files are not "
        f"in here. {NAMES}",
    ]
    text += ["## What it says", best] if best else []
    own = sorted(str(p.relative_to(folder)) for p in (folder / SOURCES).rglob("*.py"))
    if any(PRIVATE not in line for line in lines):
        command = f"    dp-erm-bench replay {shlex.quote(name)} --sample 5"
        text += ["## Repeat rows", command + " --trust" * bool(own)]
        text += [
            "It draws rows, runs each again and compares the numbers. A data file must "
            "lie in the working folder, or in that of `--data FOLDER`."
        ]
        read = ", ".join(f"`{one}`" for one in own)
        text += [f"`--trust` runs code of the authors. Read {read} first."] * bool(own)
    words = (one.get("command") for one in manifests)
    commands = (shlex.join(map(str, one)) for one in words if isinstance(one, list))
    text += ["## Commands", "\n".join(f"    {one}" for one in dict.fromkeys(commands))]
    data = (
        _data_line(one) for run in manifests for one in _objects_of(run.get("data"))
    )
    text += ["## Data", "\n".join(dict.fromkeys(data)) or "No run has recorded any."]
    found = [f"- `{use}`: {WORDS.get(use, 'see docs/privacy.md')}" for use in uses]
    text += ["## Not charged", "\n".join(dict.fromkeys(found))]
    text += [
        "Each certified epsilon takes what its row lists here as public."
        if found
        else "No row has a use of the data that no budget pays for."
    ]
    return "\n\n".join(filter(None, text)) + "\n"


def _data_line(one: Mapping[str, Any]) -> str:
    """Return a line of Markdown on a dataset: its name and its digests."""
    file = f", file `{one['file']}`" if "file" in one else ""
    digests = "not declared public, its digests are left out"
    if "content" in one:
        digests = f"content {one['content']}"
        digests += f", SHA-256 {one.get('sha256')}" if file else ""
    return f"- {one.get('name')}{file}: {digests}"


def lock_of(folder: Path) -> str:
    """Return the package versions of a folder's latest run, as requirements."""
    environment = read_manifest(folder).get("environment")
    held = environment.get("packages") if isinstance(environment, dict) else None
    pins = held if isinstance(held, dict) else {}
    return "".join(f"{k}=={v}\n" for k, v in sorted(pins.items()) if v)


# The zip -----------------------------------------------------------------------------

PARENTS = re.compile(r"(?:[\w-]+/)+")
"""Pattern for names of folders, which some zip programs add as members."""

DEVICE = re.compile(r"(?:.*/)?(?:con|prn|aux|nul|com\d|lpt\d)\.[^/]*", re.IGNORECASE)
"""Pattern for file names that Windows reserves for devices."""

MOST_MEMBERS = 20_000
LARGEST_ZIP = 1 << 30
MOST_UNPACKED = 1 << 32
"""Limits of a bundle: number of members, bytes of the zip, bytes when unpacked."""

BROKEN = (
    *(BadZipFile, OSError, EOFError, ValueError, LookupError, RuntimeError),
    *(NotImplementedError, zlib.error, OverflowError),
)
"""Errors that reading a zip may raise."""


def pack_bundle(folder: Path, path: Path) -> list[str]:
    """Write a copy of a results folder as a zip, and return the names of its members.

    Raises
    ------
    UsageError
        If the zip cannot be written, or `unpack_bundle` would refuse it.
    """
    every = (one for one in sorted(folder.rglob("*")) if one.is_file())
    found = {one.relative_to(folder).as_posix(): one for one in every}
    members = {name: one for name, one in found.items() if MEMBERS.fullmatch(name)}

    def write(file: Any) -> None:
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            for name, one in members.items():
                info = ZipInfo(name)  # its date is 1980, which does not reveal the time
                info.compress_type, info.external_attr = ZIP_DEFLATED, 0o644 << 16
                archive.writestr(info, one.read_bytes())
            _members_of(archive, path)
        _check_bound(path, "bytes", file.tell(), LARGEST_ZIP)

    with translate_os_errors(path.parent):
        write_atomic(path, write)
    return [*members]


def unpack_bundle(path: Path, into: Path) -> Path:
    """Unpack an untrusted bundle, and return its results folder.

    Parameters
    ----------
    path : Path
        The zip.
    into : Path
        An existing folder, in which the results folder is created.

    Raises
    ------
    UsageError
        If the file is not a zip, is damaged or too large, or has a member that is not
        allowed in a bundle.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such folder and no such file")
    target = into / (re.sub(r"[^\w-]", "_", path.stem) or "bundle")
    try:
        _check_bound(path, "bytes", path.stat().st_size, LARGEST_ZIP)
        with ZipFile(path) as archive:
            for member in _members_of(archive, path):
                place = target / member.filename
                place.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as packed, place.open("xb") as file:
                    shutil.copyfileobj(packed, file)
    except UsageError:
        raise
    except BROKEN as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"{path}: {why or 'is no zip, or is damaged'}") from None
    if not (target / PLAN).is_file():
        raise UsageError(f"{path}: no bundle, it has no {PLAN}")
    return target


def _check_bound(path: Path, what: str, count: int, most: int) -> None:
    if count > most:
        raise UsageError(f"{path}: a bundle has at most {most:,} {what}")


def _members_of(archive: ZipFile, path: Path) -> list[ZipInfo]:
    """Return the members of a zip, after checking them.

    Raises
    ------
    UsageError
        If there are too many members, they are too large, or one is not allowed.
    """
    every = archive.infolist()
    _check_bound(path, "members", len(every), MOST_MEMBERS)
    size = sum(one.file_size for one in every)
    _check_bound(path, "bytes when it is unpacked", size, MOST_UNPACKED)
    members = [one for one in every if not PARENTS.fullmatch(one.filename)]
    seen = set[str]()
    for member in members:
        name, kind = member.filename, stat.S_IFMT(member.external_attr >> 16)
        known = MEMBERS.fullmatch(name) and not DEVICE.fullmatch(name)
        faults = {
            "is none that a bundle has": not known or name != member.orig_filename,
            "is no regular file": kind and not stat.S_ISREG(kind),
            "is encrypted": member.flag_bits & 1,
            "is packed in another way": member.compress_type
            not in (ZIP_STORED, ZIP_DEFLATED),
            "is there twice": name.casefold() in seen,
        }
        for fault in (one for one, found in faults.items() if found):
            raise UsageError(f'{path}: its member "{escape_line(name)}" {fault}')
        seen.add(name.casefold())
    return members
