"""A results folder that stands alone: the code that it keeps, and its zip for others.

**sources/<digest>/**: what a run used of a user's own: the file of a solver or a loss
with the modules beside it that it imports, and the experiment's file. They are text,
``.py.txt``, named by the digest of their names and bytes, so that two versions of one
solver lie side by side; the manifest has the digest of each file, too. Nothing is ever
imported from there: who trusts a source has it copied out (`copied_out`).

A **bundle** is a zip of a copy of the folder that names no path, no user, no machine:
plan, records, table, page, manifests, sources, the lock, and `README.md` with commands,
data and what was not charged. It holds no data. Unpacked it is a results folder. What
is unpacked is anyone's: members are regular files of known names, each once, of a
bounded size (`unpacked`).

Who knows all records but one, and the seed, checks a guess of it by any number that is
computed from the records: a digest, an optimum, an objective, an accuracy, a key, which
is a digest of a digest. So of data that nobody declared public the copy holds settings,
statuses and budgets alone (`Withheld`).
"""

from __future__ import annotations

import contextlib
import csv
import functools
import getpass
import io
import math
import platform
import re
import shlex
import socket
import stat
import sys
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from hashlib import sha256
from io import FileIO
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from dp_erm_bench import registry
from dp_erm_bench.code_identity import digest_of_files, digest_of_text, isolate
from dp_erm_bench.datasets.base import READ, Uncharged
from dp_erm_bench.datasets.libsvm import most_unpacked, unpacks_too_much
from dp_erm_bench.datasets.spec import PUBLIC, usual_fields
from dp_erm_bench.errors import UsageError, escaped, number
from dp_erm_bench.paths import MOST_FILES, listed, write_atomic
from dp_erm_bench.plugins.names import label, packages, sources
from dp_erm_bench.results.files import (
    BLOCK,
    PLAN,
    as_it_was,
    plural,
    telling,
    typed,
)
from dp_erm_bench.results.runs import (
    noted_bytes,
    noted_files,
    read_manifest,
    read_noted,
    read_run,
    write_noted,
    write_run,
)
from dp_erm_bench.results.settings import given_by
from dp_erm_bench.results.store import (
    NAMED,
    Plan,
    Store,
    copy_segments,
    planned_lines,
    read_plan,
)
from dp_erm_bench.results.tuned import CHOICES

SOURCES = "sources"
TEXT = ".txt"
README, LOCK, PAGE = "README.md", "requirements.lock", "report.html"

# Kept sources ------------------------------------------------------------------------


def keep_sources(
    folder: Path, files: Mapping[str, str], experiments: Mapping[str, bytes] = {}
) -> None:
    """Keep files of a user's own in a results folder, as text.

    Parameters
    ----------
    folder : Path
        A results folder with a manifest.
    files : mapping
        Paths of code, of which the modules beside them are kept too, with their group.
    experiments : mapping
        Texts of experiments by the names of their files.
    """
    kept = set(noted_files(folder))
    for path, group in files.items():
        found = sources(path, group)
        name = digest_of_text(found)[:NAMED]
        for module, file in found.items():
            _keep(folder, kept, f"{name}/{_place(module, file)}", file.read_bytes())
    for name, text in experiments.items():
        plain = re.sub(r"[^\w .-]", "_", name)
        _keep(folder, kept, f"{sha256(text).hexdigest()[:NAMED]}/{plain}", text)


def _keep(folder: Path, kept: set[str], place: str, text: bytes) -> None:
    name = f"{SOURCES}/{place}{TEXT}"
    with contextlib.suppress(UsageError):
        if name in kept and noted_bytes(folder, name) == text:
            return
    write_noted(folder, name, text)


def _place(module: str, file: Path) -> str:
    """Return the place of a module's file below that of the first one."""
    path = module.replace(".", "/")
    return f"{path}/__init__.py" if file.name == "__init__.py" else f"{path}.py"


WORD = re.compile(r"[^\W\d]\w{0,199}")
"""Names of files of code, without their suffix: a spec's may be anything."""


class Source(NamedTuple):
    """A user's file of code, as a trial's spec names it.

    Attributes
    ----------
    group : str
        `algorithm` or `loss`.
    name : str
        The stem of the file.
    content : str
        Digest of what it defines.
    """

    group: str
    name: str
    content: str


def sources_in(spec: Mapping[str, Any]) -> list[Source]:
    """Return the files of code that a trial's spec names.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the spec is damaged.
    """
    parts = ((group, spec.get(group) or {}) for group in registry.FROM_FILES)
    return [
        Source(group, label(str(part["name"])), str(part["content"]))
        for group, part in parts
        if "content" in part
    ]


def copied_out(folder: Path, source: Source, into: Path) -> Path | None:
    """Copy a kept source into a folder of its own, and return the path of its file.

    Returns None if none is kept that holds what the spec says. Nothing is executed.

    Raises
    ------
    UsageError
        If a file of it is damaged or was edited.
    """
    edited: UsageError | None = None
    if not WORD.fullmatch(source.name):
        return None
    for kept in listed(folder / SOURCES, ""):
        if not (kept / f"{source.name}.py{TEXT}").is_file():
            continue
        target = into / kept.name
        try:
            if not target.is_dir():
                _copy_out(folder, kept, target)
                isolate(target)
        except UsageError as error:
            edited = error
            continue
        path = target / f"{source.name}.py"
        if _holds(path, source):
            return path
    if edited is not None:
        raise edited
    return None


def _copy_out(folder: Path, kept: Path, target: Path) -> None:
    """Copy the files of a kept source that are what they were.

    Raises
    ------
    UsageError
        If one is not, or there are others.
    """
    lost = "ask its author for the file as it was"
    found = {}
    for place in sorted(kept.rglob(f"*{TEXT}"))[:MOST_FILES]:
        name = place.relative_to(folder).as_posix()
        text = noted_bytes(folder, name, lost)
        inner = PurePath(place.relative_to(kept).as_posix().removesuffix(TEXT))
        if text is None or inner.suffix != ".py":
            continue
        module = inner.parent if inner.name == "__init__.py" else inner.with_suffix("")
        found[module.as_posix().replace("/", ".")] = (inner, text)
    parts = [f"{k} {_sha256(found[k][1])}" for k in sorted(found)]
    if _sha256("\n".join(parts).encode())[:NAMED] != kept.name:
        where = f"{SOURCES}/{kept.name}"
        raise UsageError(f"{where}: was edited, it has another digest; {lost}")
    for inner, text in found.values():
        path = target / inner
        write_atomic(path, functools.partial(lambda text, file: file.write(text), text))


def _sha256(text: bytes) -> str:
    return sha256(text).hexdigest()


# Names of a machine and its user -----------------------------------------------------

RUN = re.compile(r"(\d{20})-(\w+)-(\d+)")
FOLDERS = re.compile(
    r"(?:\bfile://|(?<![\w./~^*)\]%?<-]))"
    r"(?:(?<=['\"])~?/(?:[^\n/'\"]+/)+|~?/(?:[^\s/'\"`,;:=()\[\]{}<>|]+/)+)"
)
"""The folders of a path that begins at the root or at home; in quotes with blanks."""

SUFFIX = re.compile(r"\.[A-Za-z]\w*$")
NOBODY = ("root", "user", "home", "localhost", "machine", "nobody")
SHORTEST = 2
"""Letters of a name that is looked for."""

PLACED = ("path", "file")
"""Keys of a spec's parts that hold paths."""

MACHINES = ("results_dir", "runner.")
"""Keys of a command line that say where, not what."""
DETERMINE = ("runner.n_checkpoints",)


class Mask:
    """Takes paths, the user's and machines' names out of what is told of runs.

    Parameters
    ----------
    folder : Path
        The results folder.
    manifests : iterable of mapping
        Those of its runs, which may name other machines.
    """

    def __init__(self, folder: Path, manifests: Iterable[Mapping[str, Any]]) -> None:
        here = {socket.gethostname(), platform.node()}
        hosts = here | {name.partition(".")[0] for name in here}
        for manifest in manifests:
            found = RUN.fullmatch(str(manifest.get("run")))
            hosts |= {found[2]} if found else set()
            ran = manifest.get("hosts")
            hosts |= {str(one) for one in ran} if isinstance(ran, dict) else set()
        users = {Path.home().name}
        with contextlib.suppress(OSError, KeyError, ImportError):
            users.add(getpass.getuser())
        self.hosts = {name: f"machine{i}" for i, name in enumerate(sorted(hosts), 1)}
        self.names = {k: v for k, v in self.hosts.items() if _is_told(k)}
        self.names |= {name: "someone" for name in users if _is_told(name)}
        # A name may be the beginning of another one.
        self.names = dict(sorted(self.names.items(), key=lambda one: -len(one[0])))
        places = {Path.home(), Path.cwd(), folder.resolve().parent, Path(sys.prefix)}
        places |= {Path(tempfile.gettempdir()), Path(__file__).resolve().parents[2]}
        known = {str(place) for place in places} - {"/"}
        self.places = sorted(known, key=len, reverse=True)

    def path(self, text: str) -> str:
        """Return a text in which of each path its last part is left."""
        for place in self.places:
            text = _whole(place).sub(lambda one: "" if one[1] else ".", text)
        return FOLDERS.sub("", text)

    def value(self, text: str) -> str:
        """Return a value of a configuration, of a file without its folders."""
        file = SUFFIX.search(text) and len(text.split()) == 1
        return PurePath(text).name if file else self.path(text)

    def text(self, text: str) -> str:
        """Return a text without paths and names."""
        text = RUN.sub(lambda one: self.run(one[0]), self.path(text))
        for name, other in self.names.items():
            text = _word(name).sub(other, text)
        return text

    def run(self, run: str) -> str:
        """Return the id of a run without its machine."""

        def renamed(one: re.Match[str]) -> str:
            # A damaged manifest tells of no machine; a segment still does.
            host = self.hosts.setdefault(one[2], f"machine{len(self.hosts) + 1}")
            return f"{one[1]}-{host}-{one[3]}"

        return RUN.sub(renamed, run)

    def line(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Return a line of the plan whose spec names files without their folders."""
        spec = {
            key: {k: PurePath(v).name if _is_path(k, v) else v for k, v in part.items()}
            if isinstance(part, dict)
            else part
            for key, part in line["spec"].items()
        }
        labels = ("experiment", "panel", "line")
        return {**line, **{k: self.path(line[k]) for k in labels}, "spec": spec}

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record whose messages name nobody."""
        told = ("message", "output")
        return {k: _deep(v, self.text) if k in told else v for k, v in record.items()}

    def manifest(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Return a manifest that says what was run, with what, and not where."""
        kept = {k: manifest[k] for k in KEPT if k in manifest}
        for key in ("not_run", "damaged", "environment"):
            kept[key] = _deep(manifest.get(key), self.text)
        for key in ("config", "blocks"):
            kept[key] = _deep(manifest.get(key), self.value)
        if isinstance(kept["config"], dict):
            for key in ("runner", "results_dir", "name", "hydra"):
                kept["config"].pop(key, None)
        if isinstance(ran := manifest.get("hosts"), dict):
            kept["hosts"] = {self.hosts.get(k, "machine"): v for k, v in ran.items()}
        command = manifest.get("command")
        words = command if isinstance(command, list) else []
        return kept | {
            "run": self.run(str(manifest["run"])),
            "command": [
                self.word(word)
                for word in map(str, words)
                if word.startswith(DETERMINE) or not word.startswith(MACHINES)
            ],
        }

    def word(self, word: str) -> str:
        """Return a word of a command line that names files without their folders."""
        parts = re.split(r"([=,\[\]{}:'\" ])", word)
        named = (PurePath(one).name if SUFFIX.search(one) else one for one in parts)
        return self.text("".join(named))

    def found(self, text: str) -> list[str]:
        """Return the names and the places of this machine that a text holds."""
        deep = (place for place in self.places if place.count("/") > 1)
        own = [place for place in deep if re.search(rf"{re.escape(place)}\b", text)]
        return own + [name for name in self.names if _word(name).search(text)]


KEPT = (
    *("experiment", "profile", "version", "started", "ended", "seconds"),
    *("outcome", "counts", "trials_run", "experiment_file", "solver_files", "data"),
    "computed_with",
)
"""Keys of a manifest that name nobody."""


@functools.cache
def _word(name: str) -> re.Pattern[str]:
    whole = rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
    return re.compile(whole, re.IGNORECASE)


@functools.cache
def _whole(place: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./~-]){re.escape(place)}(?:(/)|(?![\w.-]))")


def _is_told(name: str) -> bool:
    """Return whether a name says who or where."""
    return len(name) >= SHORTEST and name.lower() not in NOBODY


def _is_path(key: str, value: Any) -> bool:
    return key in PLACED and isinstance(value, str)


def _deep(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _deep(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_deep(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


# What depends on records -------------------------------------------------------------

PRIVATE = "withheld"
"""Key of a line of a plan of which the copy holds no number of the records."""

SETTINGS = (
    *("n", "p", "loss", "penalty", "strength", "constraint", "smoothness", "params"),
    *("delta", "accountant", "calibration", "epsilon_certified", "uncharged"),
    *("solver", "exempt"),
)
"""Facts of a record that are no numbers of the records."""

OF_SETTINGS = (
    *("experiment", "panel", "line", "phase", "tuned", "measured", "rule", "read"),
)
"""Keys of a line of the plan that are none of the records."""

LEFT_OUT = "left out of the bundle: it may tell of the records"
SEEDS = ("seed", "seeds", "report")
"""Keys of a configuration that hold seeds."""
SEEDED = re.compile(r"(?:^|\s)[\w.+~-]*\bseeds?=")
"""A word of a command line that holds seeds."""

ON_RECORDS = ("counts", "trials_run", "seconds", "ended", "not_run", "damaged")
"""Keys of a manifest that depend on searches, or on what reading the records said."""


def is_private(line: Mapping[str, Any]) -> bool:
    """Return whether a line of a plan is of data that nobody declared public."""
    spec = line["spec"]
    data = spec.get("dataset")
    if "task" in spec or not isinstance(data, dict):
        return False  # a study makes its own
    if PUBLIC in data:
        return data[PUBLIC] is not True
    with contextlib.suppress(UsageError):  # it is none of this installation
        return usual_fields(str(data.get("name"))).get(PUBLIC) is not True
    return True


class Withheld:
    """Takes out of a copy what is computed from records that nobody declared public.

    Parameters
    ----------
    lines : sequence of mapping
        The lines of the plan.

    Attributes
    ----------
    keys : set of str
        The trials that are treated so; one of whose lines is, is.
    """

    def __init__(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self.keys = {line["key"] for line in lines if is_private(line)}
        own = [line for line in lines if line["key"] in self.keys]
        self.labels = {(line["panel"], line["line"]) for line in own}
        self._datasets = {line["spec"]["dataset"].get("name") for line in own}
        judging = [line for line in own if not self.is_left_out(line)]
        found = dict.fromkeys(line["key"] for line in judging)
        self._names = {key: f"{place:064x}" for place, key in enumerate(found, 1)}
        # Their parameters were chosen by looking at the records.
        self._searched = {
            line["key"]
            for line in judging
            if line["tuned"] or line.get("measured") or line["phase"] != "sweep"
        }
        # A rule computes them from p and bounds, which may be read off the records.
        self._ruled = {line["key"]: given_by(str(line["rule"])) for line in judging}
        budgets = ((line["key"], line["spec"].get("budget")) for line in judging)
        self._epsilon = {
            key: number(one.get("epsilon")) if isinstance(one, dict) else math.nan
            for key, one in budgets
        }

    def is_left_out(self, line: Mapping[str, Any]) -> bool:
        """Return whether a line is of a search: what it asked for tells of records."""
        return line["key"] in self.keys and line["phase"] == "tune"

    def line(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Return a line of the plan without key, seeds and choices."""
        key, spec = line["key"], line["spec"]
        if key not in self.keys:
            return dict(line)
        data = {
            k: v for k, v in spec["dataset"].items() if k not in ("seed", "content")
        }
        spec = {**spec, "dataset": data, "seed": None}
        algorithm = spec["algorithm"]
        declared = self._declared(key, algorithm["params"])
        spec["algorithm"] = {**algorithm, "params": declared}
        kept = {k: v for k, v in line.items() if k in OF_SETTINGS}
        return {"key": self._names[key], **kept, "spec": spec, PRIVATE: True}

    def _declared(self, key: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return those parameters of a trial that neither a search nor a rule gave."""
        if key in self._searched:
            return {}
        return {k: v for k, v in params.items() if k not in self._ruled[key]}

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record with its status, its settings and its budget."""
        key, status = record["key"], record["status"]
        if key not in self.keys:
            return dict(record)
        there = record.get("facts")
        facts = {k: v for k, v in there.items() if k in SETTINGS} if there else {}
        if "params" in facts:
            facts["params"] = self._declared(key, facts["params"])
        if {*READ, Uncharged.DROPPED_COLUMNS} & {*facts.get("uncharged", ())}:
            facts.pop("p", None)
        # A public schedule is seeded by the digest of the records, and what its uses
        # cost, too: what is proved is told as the budget that it keeps to.
        proved, epsilon = number(facts.get("epsilon_certified")), self._epsilon[key]
        facts["epsilon_certified"] = epsilon if proved <= 1.000001 * epsilon else None
        failed = "" if status == "ok" else LEFT_OUT
        return {
            **{"key": self._names[key], "status": status, "cost": 0.0},
            **{"message": failed, "facts": facts, "trajectory": {}},
        }

    def manifest(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Return a manifest without digests of the data, seeds and counts."""
        if not self.keys:
            return dict(manifest)
        kept = {k: v for k, v in manifest.items() if k not in ON_RECORDS}
        kept["experiment_file"] = dict.fromkeys(kept.get("experiment_file") or (), "")
        told = kept.get("data")
        # An earlier run may have declared public what a later one has not.
        kept["data"] = [
            one
            if one.get(PUBLIC) is True and one.get("name") not in self._datasets
            else {k: v for k, v in one.items() if k in ("name", "file")}
            | {PUBLIC: False}
            for one in (told if isinstance(told, list) else ())
        ]
        told_of = ("command", "config", "blocks")
        return {**kept, **{key: _seedless(kept.get(key)) for key in told_of}}

    def table(self, name: str, text: str) -> str | None:
        """Return a noted table without rows of these lines, None if it is made anew.

        Of an experiment's file nothing is left: it names seeds.
        """
        if not self.keys or name != CHOICES:
            return None if self.keys else text
        head, *rows = csv.reader(io.StringIO(text, newline=""))
        places = head.index("panel"), head.index("line")
        kept = (
            r for r in rows if tuple(as_it_was(r[k]) for k in places) not in self.labels
        )
        made = io.StringIO()
        csv.writer(made, lineterminator="\n").writerows([head, *kept])
        return made.getvalue()


def _seedless(value: Any) -> Any:
    """Return a part of a configuration without seeds, in its words neither."""
    if isinstance(value, dict):
        return {k: _seedless(one) for k, one in value.items() if k not in SEEDS}
    if isinstance(value, list):
        return [one for one in map(_seedless, value) if one != ""]
    return "" if isinstance(value, str) and SEEDED.search(value) else value


# The copy ----------------------------------------------------------------------------

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
"""What each use of the data was that no budget pays for."""


def anonymous_copy(folder: Path, into: Path, whole: bool = False) -> tuple[Mask, int]:
    """Copy plan, records, manifests, noted csv files and sources, without names.

    Parameters
    ----------
    folder : Path
        The results folder.
    into : Path
        Where the copy shall be; its table is to be collected there.
    whole : bool
        Whether numbers are in it that are computed from records which nobody declared
        public.

    Returns
    -------
    mask : Mask
        What it was masked by.
    private : int
        The number of trials on such records.

    Raises
    ------
    UsageError
        If the folder has no plan, or a kept source is damaged.
    """
    planned = [*read_plan(folder)]
    lines = [line for line in planned if line is not None]
    if not lines:
        raise UsageError(f"{typed(folder)}: no results folder, it has no {PLAN}")
    back = "are left out of the zip; the same command runs them"
    if lost := len(planned) - len(lines):
        told = f"{plural(lost, 'damaged line')} of {PLAN}: its trials {back}"
        print(f"{typed(folder)}: {told}", file=sys.stderr)
    Store(folder).check(read_manifest(folder), back)
    runs = [path.stem for path in listed(folder / "runs", ".json")]
    manifests = [one for run in runs if (one := read_run(folder, run)).get("run")]
    mask = Mask(folder, manifests)
    private = Withheld(lines)
    withheld = Withheld([]) if whole else private
    lines = [line for line in lines if not withheld.is_left_out(line)]
    with Plan(into, append=False) as plan:
        plan.add(withheld.line(mask.line(line)) for line in lines)
    keys = {line["key"] for line in lines}

    def changed(record: dict[str, Any]) -> dict[str, Any]:
        return withheld.record(mask.record(record))

    copy_segments(folder, into, keys, changed, mask.run, withheld.keys)
    last = read_manifest(folder).get("run")
    for manifest in sorted(manifests, key=lambda one: one["run"] == last):
        write_run(into, withheld.manifest(mask.manifest(manifest)))
    for name in noted_files(folder):
        text = _texts(folder, name)
        if text is not None and (text := withheld.table(name, text)) is not None:
            write_noted(into, name, mask.text(text).encode())
    with tempfile.TemporaryDirectory() as home:
        for source in sources_of(folder):
            if path := copied_out(folder, source, Path(home)):
                keep_sources(into, {str(_masked(path, source, mask)): source.group})
            else:
                why = "its source was not kept: nobody else can repeat its rows"
                print(f"{typed(folder)}: {source.name}.py: {why}", file=sys.stderr)
    return mask, len(private.keys)


def sources_of(folder: Path, keys: Set[str] | None = None) -> Iterator[Source]:
    """Yield the sources that a plan names for some trials, or all, each once.

    Of damaged lines there are none.
    """
    seen = set()
    for line in planned_lines(folder, keys):
        with contextlib.suppress(LookupError, TypeError, AttributeError):
            for source in sources_in(line["spec"]):
                if source not in seen:
                    seen.add(source)
                    yield source


def _texts(folder: Path, name: str) -> str | None:
    """Return a table or an experiment's file that is copied as text, None of others."""
    text = MEMBERS.fullmatch(name) and name.endswith((".csv", f".yaml{TEXT}"))
    return read_noted(folder, name) if text else None


def _masked(path: Path, source: Source, mask: Mask) -> Path:
    """Take names out of the lines of a copied source that are no code: of comments."""
    for file in sources(str(path), source.group).values():
        lines = file.read_bytes().splitlines(keepends=True)
        for place, line in enumerate(lines):
            with contextlib.suppress(UnicodeDecodeError):
                lines[place] = mask.text(line.decode()).encode()
            if lines[place] != line:
                file.write_bytes(b"".join(lines))
                if not _holds(path, source):
                    lines[place] = line
                    file.write_bytes(b"".join(lines))
    return path


def _holds(path: Path, source: Source) -> bool:
    with contextlib.suppress(UsageError, OSError):
        return digest_of_files(sources(str(path), source.group)) == source.content
    return False


CHECKABLE = (
    "Whoever guesses a record of data that nobody declared public can check the guess "
    "by the numbers in here: digests, optima, objectives and held-out measures are "
    "computed from the records."
)
SETTINGS_ALONE = (
    "Of data that nobody declared public settings, statuses and certified budgets are "
    "in here, and no number that is computed from their records."
)


def about(
    folder: Path, name: str, uses: Iterable[str], best: str = "", first: str = ""
) -> str:
    """Return the `README.md` of a bundle.

    Parameters
    ----------
    folder : Path
        The copy.
    name : str
        The name of the zip.
    uses : iterable of str
        What columns `uncharged` of its table list.
    best : str
        Who is best, in Markdown.
    first : str
        What it says first.
    """
    manifests = [
        read_run(folder, path.stem) for path in listed(folder / "runs", ".json")
    ]
    sources_kept = sorted(
        {path.parent for path in (folder / SOURCES).rglob("*.py.txt")}
    )
    trust = " --trust" if sources_kept else ""
    version = read_manifest(folder).get("version", "of an unknown version")
    text = [
        f"# {folder.name}\n",
        *([f"{first}\n"] if first else []),
        f"Results of dp_erm_bench {version}, with its exact versions in `{LOCK}`; "
        f"`{PAGE}` shows them, `results.parquet` holds every row. There are no data.\n",
        *(["## What it says\n", best] if best else []),
    ]
    whole = any(PRIVATE not in line for line in planned_lines(folder))
    repeat = [
        "## Repeat rows\n",
        f"    dp-erm-bench replay {shlex.quote(name)} --sample 5{trust}\n",
        "It draws rows, runs each again and says of each whether it is the same. A set "
        "that is a file must lie in the working folder, or in that of `--data FOLDER`.",
    ]
    text += repeat if whole else []
    if trust and whole:
        text.append(
            "`--trust` runs the authors' own code, kept as text in `sources/`: read it "
            "first."
        )
    text += (
        f"Algorithm `{one}` is of the installed package {whose}, which is not in here."
        for one, whose in _others(planned_lines(folder)).items()
    )
    text += ["\n## Commands\n"]
    commands = (one.get("command") for one in manifests)
    words = (shlex.join(map(str, one)) for one in commands if isinstance(one, list))
    text += [f"    {one}" for one in dict.fromkeys(words)]
    text += ["\n## Data\n", *dict.fromkeys(_data(manifests)), "\n## Not charged\n"]
    found = list(dict.fromkeys(uses))
    text += [f"- `{use}`: {WORDS.get(use, 'see docs/privacy.md')}" for use in found]
    if not found:
        text.append("No row has a use of the data that no budget pays for.")
    if found:
        text.append("\nEach certified epsilon takes what its row lists here as public.")
    return "\n".join(text) + "\n"


def _others(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the packages of a plan's algorithms that are neither ours nor files."""
    offered = packages()
    parts = (line["spec"].get("algorithm") for line in lines)
    names = {str(part.get("name")) for part in parts if isinstance(part, dict)}
    return {name: offered[name] for name in sorted(names & offered.keys())}


def _data(manifests: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each data set: its hashes, and where it is from."""
    told = [manifest.get("data") for manifest in manifests]
    every = [one for some in told if isinstance(some, list) for one in some]
    for one in every:
        name = str(one.get("name"))
        file = f", `{one['file']}`" if "file" in one else ""
        if "content" not in one:
            yield f"- {name}{file}: not declared public, its digests are left out"
            continue
        digest = f", SHA-256 {one.get('sha256', 'not recorded')}" if file else ""
        content = f"content {one['content']}; {where_from(name)}"
        yield f"- {name}{file}{digest}: {content}"
    if not every:
        yield "No run has recorded any."


def where_from(name: str) -> str:
    """Return where a data set can be had, by its name."""
    try:
        loader = registry.target("dataset", name.partition(":")[0])
    except UsageError:
        return "not known here"
    if package := getattr(loader, "package", ""):
        return f"part of {package}"
    if command := getattr(loader, "command", ""):
        return f"`{command}`"
    if name.startswith("libsvm:"):
        return f"libsvmdata's {name.partition(':')[2]}"
    if name == "file":
        return "ask the authors for it"
    if hasattr(loader, "files"):
        return f"a mirror folder with {' and '.join(loader.files)}"
    return "generated"


def _packages(folder: Path) -> dict[str, str]:
    """Return the versions of packages that the latest run of a folder had."""
    environment = read_manifest(folder).get("environment")
    packages = environment.get("packages") if isinstance(environment, dict) else None
    held = packages if isinstance(packages, dict) else {}
    return {str(name): str(version) for name, version in held.items() if version}


def lock_of(folder: Path) -> str:
    """Return the exact versions of a folder's latest run as requirements.

    That is the lock of the checkout, with its hashes, where it has the same versions.
    """
    pins = {k: v for k, v in _packages(folder).items() if k != "dp_erm_bench"}
    checkout = registry.conf_dir().parent / LOCK
    if checkout.is_file():
        text = checkout.read_text()
        if all(
            f"\n{name}=={version} " in f"\n{text}" for name, version in pins.items()
        ):
            return text
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def left(folder: Path, members: Iterable[str], mask: Mask) -> Iterator[str]:
    """Yield a sentence for each member of a copy that names someone or a place."""
    for name in members:
        text = (folder / name).read_bytes().decode(errors="replace")
        if name == PAGE:
            text = PICTURES.sub("", text)
        if found := () if name.endswith(".parquet") else mask.found(text):
            yield f"{name} holds {', '.join(map(escaped, found))}"


PICTURES = re.compile(r"data:[a-z/+;]*base64,[A-Za-z0-9+/=]*")
"""Pictures in a page: letters of theirs say nothing."""

# The zip -----------------------------------------------------------------------------

MEMBERS = re.compile(
    r"(?:plan\.jsonl|manifest\.json|results\.parquet|report\.html|README\.md"
    r"|requirements\.lock|[A-Za-z0-9_-]+\.csv|runs/[A-Za-z0-9_-]+\.json"
    r"|segments/[A-Za-z0-9_-]+\.jsonl"
    r"|sources/[0-9a-f]{16}/"
    r"(?:(?:[^\W\d]\w*/){0,20}[^\W\d]\w*\.py|[\w .-]+\.yaml)\.txt)"
)
"""Names of members."""
PARENTS = re.compile(r"(?:[\w-]+/)+")
"""Names of folders, which other programs make members."""

DEVICE = re.compile(r"(?:.*/)?(?:con|prn|aux|nul|com\d|lpt\d)\.[^/]*", re.IGNORECASE)
"""Names that are devices on Windows, whatever comes after the dot."""

LARGEST_ZIP = 1 << 30
MOST_MEMBERS = 20_000
LARGEST_DIRECTORY = 1 << 23
"""Bytes of the list of members, which a reader of zips holds in memory as a whole."""
BROKEN = (
    *(BadZipFile, OSError, EOFError, ValueError, LookupError, RuntimeError),
    *(NotImplementedError, zlib.error, OverflowError),
)
"""Errors of a reader of zips."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of members: none is told."""


def pack(folder: Path, path: Path) -> list[str]:
    """Write the zip of a copy, and return the names of its members.

    Raises
    ------
    UsageError
        If it cannot be written, or is one that `unpacked` refuses.
    """
    every = (one for one in sorted(folder.rglob("*")) if one.is_file())
    found = {one.relative_to(folder).as_posix(): one for one in every}
    members = {name: one for name, one in found.items() if MEMBERS.fullmatch(name)}

    more = f"{typed(path)}: would have more than"
    if len(members) > MOST_MEMBERS:
        raise UsageError(f"{more} {MOST_MEMBERS:,} members")

    def write(file: Any) -> None:
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            for name, one in members.items():
                info = ZipInfo(name, EPOCH)
                info.compress_type, info.external_attr = ZIP_DEFLATED, 0o644 << 16
                archive.writestr(info, one.read_bytes())
        if file.tell() > LARGEST_ZIP:
            raise UsageError(f"{more} {LARGEST_ZIP:,} bytes")

    with telling(path.parent):
        write_atomic(path, write)
    return [*members]


def unpacked(path: Path, into: Path) -> Path:
    """Unpack a bundle that may be anyone's, and return the results folder.

    Parameters
    ----------
    path : Path
        The zip.
    into : Path
        A folder; the results folder is a new one in it.

    Raises
    ------
    UsageError
        If it is no zip, is damaged, is too large, or has a member that no bundle has.
    """
    target = into / (re.sub(r"[^\w-]", "_", path.stem) or "bundle")
    try:
        if path.stat().st_size > LARGEST_ZIP:
            raise UsageError(f"{path}: has more than {LARGEST_ZIP:,} bytes")
        with _Received(path) as file, ZipFile(file) as archive:
            _unpack(archive, path, target)
    except UsageError:
        raise
    except BROKEN as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"{path}: {why or 'is no zip, or is damaged'}") from None
    if not (target / "plan.jsonl").is_file():
        raise UsageError(f"{path}: no bundle, it has no plan.jsonl")
    return target


class _Received(FileIO):
    """A zip of anyone's; its end may say that millions of members are listed in it."""

    def read(self, size: int | None = -1) -> bytes:
        """Return as many bytes; a list of `MOST_MEMBERS` has fewer than the limit."""
        size = -1 if size is None else size
        if size > LARGEST_DIRECTORY:
            raise UsageError(f"{self.name}: has more than {MOST_MEMBERS:,} members")
        return super().read(size) or b""


def _unpack(archive: ZipFile, path: Path, target: Path) -> None:
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise UsageError(f"{path}: has more than {MOST_MEMBERS:,} members")
    size = path.stat().st_size
    most = left = most_unpacked(size)
    seen = set()
    members = [one for one in members if not PARENTS.fullmatch(one.filename)]
    for member in members:
        name = member.filename
        if why := _odd(member):
            raise UsageError(f'{path}: its member "{escaped(name)}" {why}')
        alike = unicodedata.normalize("NFKC", name).casefold()
        if alike in seen:
            raise UsageError(f'{path}: has its member "{escaped(name)}" twice')
        seen.add(alike)
    for member in members:
        place = target / member.filename
        place.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as packed, place.open("xb") as file:
            while block := packed.read(BLOCK):
                left -= len(block)
                if left < 0:
                    raise unpacks_too_much(path, size, most)
                file.write(block)


def _odd(member: ZipInfo) -> str:
    """Return why a member is none of a bundle, nothing of one that may be."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if (
        not MEMBERS.fullmatch(member.filename)
        or DEVICE.fullmatch(member.filename)
        or member.orig_filename != member.filename
    ):
        return "is none that a bundle has"
    if kind and not stat.S_ISREG(kind):
        return "is no regular file"
    if member.flag_bits & 1:
        return "is encrypted"
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        return "is packed in another way than bundles are"
    return ""
