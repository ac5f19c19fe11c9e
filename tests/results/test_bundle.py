"""Test the zip of a results folder, which reveals nothing about private data.

Data are private unless they are declared public.
"""

import os
import re
import shutil
import stat
import struct
import zipfile

import pytest

from dp_erm_bench.code_identity import digest_of_files
from dp_erm_bench.datasets.base import Uncharged
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins import names
from dp_erm_bench.results import bundle
from dp_erm_bench.results.bundle import Withheld, keep_sources, kept_file
from dp_erm_bench.results.runs import write_run
from dp_erm_bench.results.store import Plan, RecordWriter, Store

OWN = "from beside import two\nimport json\n\nONE = two.HALF * 2\n"
GOOD = {"plan.jsonl": b"{}\n", "runs/1.json": b"{}"}


@pytest.fixture
def folder(tmp_path):
    """A results folder with the manifest of a run."""
    write_run(tmp_path / "results", {"run": "1"})
    return tmp_path / "results"


@pytest.fixture
def own(tmp_path):
    """A file of a user's own, which imports one of the modules beside it."""
    code = tmp_path / "code"
    (code / "beside").mkdir(parents=True)
    (code / "own.py").write_text(OWN)
    (code / "beside" / "__init__.py").write_text("")
    (code / "beside" / "two.py").write_text("HALF = 0.5\n")
    (code / "beside" / "not_imported.py").write_text("raise ValueError\n")
    (code / "secret.py").write_text("PASSWORD = 1\n")
    return code / "own.py"


def part_of(path):
    """The part of a spec that names a file."""
    content = digest_of_files(names.source_files(str(path)))
    return {"name": path.stem, "file": str(path), "content": content}


def kept(folder):
    every = (folder / "sources").rglob("*")
    return {str(p.relative_to(folder / "sources")) for p in every if p.is_file()}


def test_only_what_a_file_imports_is_kept(folder, own):
    keep_sources(folder, {str(own): "algorithm"}, {"mine.yaml": b"blocks: []\n"})
    found = {name.partition("/")[2] for name in kept(folder)}
    inside = {"own.py", "beside/__init__.py", "beside/two.py", "mine.yaml"}
    assert found == inside
    before = sorted(kept(folder))
    keep_sources(folder, {str(own): "algorithm"})
    assert sorted(kept(folder)) == before


def test_two_versions_are_kept_side_by_side(folder, own):
    versions = []
    for text in (OWN, OWN + "MORE = 1\n"):
        own.write_text(text)
        keep_sources(folder, {str(own): "algorithm"})
        versions.append(part_of(own))
    own.unlink()
    for version, text in zip(versions, (OWN, OWN + "MORE = 1\n"), strict=True):
        path = folder / kept_file(version)
        assert path.read_text() == text
        assert (path.parent / "beside" / "two.py").is_file()


def test_no_part_of_a_plan_names_a_kept_file_elsewhere():
    part = {"name": "own", "content": "0" * 64}
    assert kept_file(part) == f"sources/{'0' * 16}/own.py"
    for name in ("../own", "/own", "own\0", "\x1b[2J", ""):
        assert kept_file({**part, "name": name}) == ""
        assert kept_file({**part, "content": name}) == ""
    assert kept_file({"name": "gd"}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "# coding: latin-1\n# L\xe9on's\nONE = 1\n".encode("latin-1"),
        b"\xef\xbb\xbfONE = 1\r\n",
    ],
)
def test_a_source_is_kept_to_the_byte_in_any_encoding(folder, own, text):
    own.write_bytes(text)
    for _ in range(2):
        keep_sources(folder, {str(own): "algorithm"})
    assert (folder / kept_file(part_of(own))).read_bytes() == text


def test_a_source_that_no_parser_reads_is_refused(own):
    own.write_bytes(b"x = " + b"-" * 200_000 + b"1\n")
    with pytest.raises(UsageError, match="own.py: cannot be imported"):
        names.source_files(str(own))


def test_the_name_of_an_experiment_is_one_that_a_bundle_has(folder):
    keep_sources(folder, {}, {"mine (2).yaml": b"blocks: []\n"})
    (name,) = kept(folder)
    assert name.endswith("/mine _2_.yaml")
    assert bundle.MEMBERS.fullmatch(f"sources/{name}")


def line_of(key, **spec):
    labels = {"experiment": "e", "panel": "", "line": "", "phase": "sweep"}
    return {"key": f"{key:064x}", **labels, "tuned": False, "rule": "", "spec": spec}


def test_the_readme_says_what_no_budget_pays_for(folder):
    specs = {"algorithm": {"name": "gd"}}, {"task": {}}
    with Plan(folder, append=False) as plan:
        plan.add(line_of(i, **spec) for i, spec in enumerate(specs))
    told = bundle.bundle_readme(folder, "a.zip", ["tuning"])
    assert f"- `tuning`: {bundle.WORDS['tuning']}" in told


def test_of_private_data_no_parameter_of_a_rule_is_kept_and_no_order_of_runs(tmp_path):
    """A rule may compute it from p, and batches run in the order of their work."""
    params = {"step": 1.89, "clip": 2.0}
    spec = {
        "dataset": {"name": "file", "public": False},
        "algorithm": {"name": "gd", "params": params},
        "budget": {"epsilon": 1.0},
    }
    more = {"rule": "gd-1: step", "read": ["kinds"], "content": "0123456789abcdef"}
    lines = [{**line_of(key, **spec), **more} for key in (7, 8)]
    told = Withheld(lines).without_secrets(lines[0])
    assert told["spec"]["algorithm"]["params"] == {"clip": 2.0}
    assert "content" not in told
    facts = {"n": 9, "params": params}
    keys = [line["key"] for line in lines]
    (tmp_path / "own").mkdir()
    for place, key in enumerate(reversed(keys)):
        writer = RecordWriter(tmp_path / "own", f"0000000000000000000{place}-here-1")
        writer.append([{"key": key, "status": "ok", "facts": facts, "batch": "ab"}])
    with Plan(tmp_path / "own", append=False) as plan:
        plan.add(lines)
    write_run(tmp_path / "own", {"run": "00000000000000000009-here-1"})
    assert bundle.copy_folder(tmp_path / "own", tmp_path / "copy") == 2
    store = Store(tmp_path / "copy")
    assert [*store] == [f"{1:064x}", f"{2:064x}"]
    records = [store.record(key) for key in store]
    assert all(one["facts"]["params"] == {"clip": 2.0} for one in records)
    assert not any("batch" in one for one in records)
    written = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    texts = "".join(path.read_text() for path in written)
    assert "00000000000000000001-here-1" not in texts and keys[1] not in texts


def test_each_use_that_nobody_pays_for_has_a_word():
    assert set(bundle.WORDS) == {use.value for use in Uncharged}


# What is received.


def zipped(path, members=GOOD, **changes):
    """Write a zip; `changes` are attributes of the member `odd`, or a name for it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        if changes:
            data = changes.pop("data", b"x")
            info = zipfile.ZipInfo(changes.pop("name", "README.md"))
            for key, value in changes.items():
                setattr(info, key, value)
            archive.writestr(info, data)
    return path


def refused(path, tmp_path, words):
    with pytest.raises(UsageError, match=words) as caught:
        bundle.unpack_bundle(path, tmp_path / "into")
    said = str(caught.value)
    assert said.isprintable() and said.startswith(str(path))
    every = [p for p in (tmp_path / "into").rglob("*") if not p.is_dir()]
    assert all(p.is_file() and not p.is_symlink() for p in every)
    assert sum(p.stat().st_size for p in every) <= 1 << 21
    assert {p.name for p in tmp_path.iterdir()} <= {path.name, "into"}
    shutil.rmtree(tmp_path / "into", ignore_errors=True)


NAMES = (
    *("../evil.csv", "/var/evil.csv", "..\\evil.csv", "C:\\evil.csv", "evil.py"),
    *("sources/../../evil.py", "sources/" + "a" * 16 + "/../x.py"),
    *("runs/\x1b[2J.json", "runs/\u202e.json", "runs/a/b.json", "plan.jsonl/x"),
    *("sources/" + "a" * 16 + "/own.py.txt", "sources/" + "a" * 16 + "/a b/own.py"),
    *("NUL.csv", "runs/com1.json", "sources/" + "a" * 16 + "/b/aux.py"),
    "sources/" + "a" * 16 + "/" + "a/" * 30 + "own.py",
    *("sources/x.pkl", "manifest.json ", "data.npz", "x/"),
)


def test_no_member_has_a_name_that_a_bundle_has_not(tmp_path):
    for number, name in enumerate(NAMES[:-1]):
        path = zipped(tmp_path / "bad.zip", name=name)
        refused(path, tmp_path, "is none that a bundle has")
        assert number or not (tmp_path.parent / "evil.csv").exists()


def test_members_are_regular_files_each_once_packed_as_usual(tmp_path):
    path = tmp_path / "bad.zip"
    link = (stat.S_IFLNK | 0o777) << 16
    refused(zipped(path, external_attr=link, data=b"/etc/passwd"), tmp_path, "regular")
    refused(zipped(path, compress_type=zipfile.ZIP_BZIP2), tmp_path, "another way")
    with pytest.warns(UserWarning, match="Duplicate"):
        zipped(path, name="plan.jsonl")
    refused(path, tmp_path, "twice")
    refused(zipped(path, name="RUNS/1.json"), tmp_path, "none that")
    refused(zipped(path, {**GOOD, "a.csv": b""}, name="A.csv"), tmp_path, "twice")
    raw = zipped(path).read_bytes()
    for start in (b"PK\x03\x04", b"PK\x01\x02"):
        place = raw.index(start) + (6 if start[2] == 3 else 8)
        raw = raw[:place] + struct.pack("<H", 1) + raw[place + 2 :]
    path.write_bytes(raw)
    refused(path, tmp_path, "encrypted")


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    path = zipped(tmp_path / "bad.zip", name="x.csv", data=b"0" * (1 << 22))
    monkeypatch.setattr(bundle, "MOST_UNPACKED", 1 << 21)
    refused(path, tmp_path, "at most 2,097,152 bytes when it is unpacked")
    # A size that is a lie bounds what is unpacked, too.
    raw = path.read_bytes().replace(struct.pack("<L", 1 << 22), struct.pack("<L", 9))
    path.write_bytes(raw)
    refused(path, tmp_path, "is no zip, or is damaged")
    monkeypatch.setattr(bundle, "MOST_MEMBERS", 2)
    refused(path, tmp_path, "at most 2 members")
    monkeypatch.setattr(bundle, "LARGEST_ZIP", 10)
    monkeypatch.setattr(bundle, "ZipFile", None)
    refused(path, tmp_path, "at most 10 bytes")


def test_no_zip_is_made_that_would_be_refused(folder, monkeypatch):
    (folder / "plan.jsonl").write_text("{}\n")
    path = folder.parent / "mine.zip"
    assert bundle.pack_bundle(folder, path) == [
        "manifest.json",
        "plan.jsonl",
        "runs/1.json",
    ]
    limits = {"MOST_MEMBERS": "members", "LARGEST_ZIP": "bytes"}
    for limit, what in {**limits, "MOST_UNPACKED": "bytes when"}.items():
        path.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(bundle, limit, 2)
            with pytest.raises(UsageError, match=f"at most 2 {what}"):
                bundle.pack_bundle(folder, path)
        assert {p.name for p in folder.parent.iterdir()} == {folder.name}


def test_what_is_no_zip_or_damaged_is_a_sentence(tmp_path):
    path = tmp_path / "bad.zip"
    raw = zipped(path, {**GOOD, "x.csv": os.urandom(9000)}).read_bytes()
    for data in (b"", b"PK", raw[:-30], raw[: len(raw) // 2], b"x" * 5000):
        path.write_bytes(data)
        refused(path, tmp_path, "is no zip, or is damaged")
    path.write_bytes(raw.replace(raw[3000:3010], b"0123456789", 1))
    refused(path, tmp_path, "is no zip, or is damaged")
    refused(zipped(path, {"x.csv": b""}), tmp_path, "no bundle, it has no plan.jsonl")


def test_what_is_no_file_is_a_sentence(tmp_path):
    os.mkfifo(tmp_path / "pipe.zip")
    for name in ("pipe.zip", "none.zip"):
        with pytest.raises(UsageError, match="no such folder and no such file"):
            bundle.unpack_bundle(tmp_path / name, tmp_path / "into")


def test_folders_that_other_programs_put_in_are_no_members(tmp_path):
    path = zipped(tmp_path / "good one.zip", {**GOOD, "runs/": b"", "sources/": b""})
    made = bundle.unpack_bundle(path, tmp_path / "into")
    assert made == tmp_path / "into" / "good_one"
    assert re.findall("plan|1", " ".join(sorted(p.name for p in made.rglob("*.json*"))))
