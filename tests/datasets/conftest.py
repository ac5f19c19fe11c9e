import csv
import hashlib
import io
import mmap
import os
from pathlib import Path

import pytest
import sklearn.datasets

from dp_erm_bench.datasets import libsvm


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    """No network, no client's cache, and a cache folder of its own."""
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path / "cache"))
    for variable in ("SCIKIT_LEARN_DATA", "LIBSVMDATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "clients"))
    monkeypatch.setattr(libsvm, "is_reachable", lambda host: False)


PARSE = sklearn.datasets.load_svmlight_file
parsed = {}


@pytest.fixture(autouse=True)
def parsed_once(monkeypatch):
    """Parse each svmlight file once for all tests: the large ones take seconds."""

    def remembered(file, **how):
        content = file.read()
        key = hashlib.sha256(content).digest(), *how.values()
        if key not in parsed:
            parsed[key] = PARSE(io.BytesIO(content), **how)
        return tuple(array.copy() for array in parsed[key])

    monkeypatch.setattr(sklearn.datasets, "load_svmlight_file", remembered)


@pytest.fixture
def mirror(monkeypatch):
    """The real mirror, beside the checkout or where the environment says."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("DP_ERM_BENCH_DATA") or beside)
    if not (folder / "MANIFEST.csv").is_file():
        pytest.skip("no mirror of the real data: set DP_ERM_BENCH_DATA")
    monkeypatch.setenv("DP_ERM_BENCH_DATA", str(folder))
    return folder


@pytest.fixture
def no_mirror(monkeypatch):
    monkeypatch.delenv("DP_ERM_BENCH_DATA", raising=False)


@pytest.fixture
def make_mirror(tmp_path, monkeypatch):
    """Return a function that makes a mirror of files and lets it be used."""

    def make(files):
        folder = tmp_path / "mirror"
        folder.mkdir(exist_ok=True)
        with (folder / "MANIFEST.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["name", "file", "sha256"])
            for name, (path, content) in files.items():
                (folder / path).write_bytes(content)
                table.writerow([name, path, hashlib.sha256(content).hexdigest()])
        monkeypatch.setenv("DP_ERM_BENCH_DATA", str(folder))
        return folder

    return make


@pytest.fixture
def is_mapped():
    """Return a function that says whether an array lives in a mapped file."""

    def ask(array):
        while array is not None and not isinstance(array, mmap.mmap):
            array = getattr(array, "base", None)
        return array is not None

    return ask
