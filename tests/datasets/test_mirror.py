import bz2
import gzip
import hashlib
import lzma
import os

import pytest

from dp_erm_bench.datasets.libsvm import open_mirror
from dp_erm_bench.errors import DataUnavailable


def test_no_variable_means_no_mirror(no_mirror):
    assert open_mirror() is None


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        ("", bytes),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".gz", gzip.compress),
    ],
)
def test_files_are_decompressed_by_their_suffix(make_mirror, suffix, compress):
    make_mirror({"toy": (f"toy.csv{suffix}", compress(b"1,2,3"))})
    assert open_mirror().read_content("toy") == b"1,2,3"


@pytest.mark.parametrize("damage", [b"", b"1,2", b"1,2,4"])
def test_truncated_or_altered_file_is_refused(make_mirror, damage):
    folder = make_mirror({"toy": ("toy.csv", b"1,2,3")})
    (folder / "toy.csv").write_bytes(damage)
    with pytest.raises(DataUnavailable, match=r"toy\.csv does not have the SHA-256"):
        open_mirror().read_content("toy")


def test_file_altered_after_it_was_verified_is_refused(make_mirror):
    folder = make_mirror({"toy": ("toy.csv", b"1,2,3")})
    open_mirror().verify("toy")
    (folder / "toy.csv").write_bytes(b"1,2,4")
    os.utime(folder / "toy.csv", ns=(1, 1))
    with pytest.raises(DataUnavailable, match="truncated or altered"):
        open_mirror().verify("toy")


def test_missing_file_is_refused(make_mirror):
    folder = make_mirror({"toy": ("toy.csv", b"1,2,3")})
    (folder / "toy.csv").unlink()
    with pytest.raises(DataUnavailable, match=r"toy\.csv is listed .* cannot be read"):
        open_mirror().read_content("toy")


def test_folder_without_manifest_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataUnavailable, match=r"DP_ERM_BENCH_DATA=.*MANIFEST\.csv"):
        open_mirror()


def test_manifest_without_check_sums_is_refused(tmp_path, monkeypatch):
    (tmp_path / "MANIFEST.csv").write_text("name,file\na,a.csv\n")
    monkeypatch.setenv("DP_ERM_BENCH_DATA", str(tmp_path))
    with pytest.raises(DataUnavailable, match="columns name, file and sha256"):
        open_mirror()


SECRET = b"root:x:0:0:not-for-you\n"


@pytest.fixture
def outside(make_mirror, tmp_path):
    """A mirror, and a file beside it that is none of its own."""
    folder = make_mirror({"toy": ("toy.csv", b"1,2,3")})
    (tmp_path / "secret").write_bytes(SECRET)
    return folder


def listing(folder, file):
    digest = hashlib.sha256(SECRET).hexdigest()
    (folder / "MANIFEST.csv").write_text(f"name,file,sha256\ntoy,{file},{digest}\n")
    return open_mirror()


@pytest.mark.parametrize("way", ["up", "absolute", "link", "folder link"])
def test_what_lies_outside_is_refused_and_not_shown(outside, tmp_path, way):
    (outside / "link").symlink_to(tmp_path / "secret")
    (outside / "up").symlink_to(tmp_path)
    file = {
        "up": "../secret",
        "absolute": str(tmp_path / "secret"),
        "link": "link",
        "folder link": "up/secret",
    }[way]
    mirror = listing(outside, file)
    for ask in (mirror.verify, mirror.read_content):
        with pytest.raises(DataUnavailable, match="leads out of its folder") as said:
            ask("toy")
        assert "not-for-you" not in str(said.value) and "\n" not in str(said.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(outside, make):
    make(outside / "odd")
    with pytest.raises(DataUnavailable, match="odd is listed .* cannot be read"):
        listing(outside, "odd").verify("toy")


@pytest.mark.parametrize(
    "text",
    [
        b'name,file,sha256\n"' + b"x" * 200_000 + b'",a,b\n',
        b"name,file,sha256\n\x00,a\n",
        b"\xff\xfe",
    ],
)
def test_a_damaged_manifest_is_a_sentence(outside, text):
    (outside / "MANIFEST.csv").write_bytes(text)
    with pytest.raises(DataUnavailable, match="must name a folder with a MANIFEST"):
        open_mirror()
