import types
import urllib.error

import numpy as np
import pytest
import scipy.sparse as sp

from dp_erm_bench.datasets import libsvm, real
from dp_erm_bench.datasets.libsvm import Published
from dp_erm_bench.datasets.real import Bundled
from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.paths import cache_dir


def toy(**changes):
    """Return a published dataset of which every fetch gives other numbers."""
    counter = iter(range(1, 10))
    fields = {
        "name": "toy",
        "files": ("toy",),
        "parse": lambda content: (np.full((2, 1), float(content)), np.ones(2)),
        "fetch": lambda: (np.full((2, 1), 100.0 * next(counter)), np.ones(2)),
        "fetched": lambda: False,
        "host": "https://toy.example",
        "command": "get toy",
    }
    return Published(**fields | changes)


REACHABLE = libsvm.is_reachable
"""Of its own: whoever runs the tests downloads nothing."""


@pytest.fixture
def online(monkeypatch):
    monkeypatch.setattr(libsvm, "is_reachable", lambda host: True)


def test_the_mirror_goes_before_the_network(make_mirror, online):
    make_mirror({"toy": ("toy.txt", b"7")})
    assert toy()()[0][0, 0] == 7.0


def test_a_mirror_without_the_dataset_leaves_it_to_the_network(make_mirror, online):
    make_mirror({"other": ("other.txt", b"7")})
    assert toy()()[0][0, 0] == 100.0


def test_a_mirror_serves_those_of_which_it_has_all_files(make_mirror):
    join = toy(files=("a", "b"), parse=lambda *contents: contents)
    make_mirror({"a": ("a", b"1"), "c": ("c", b"2")})
    assert join.fingerprint() is None
    with pytest.raises(DataUnavailable, match="lists a and b"):
        join()
    make_mirror({"a": ("a", b"1"), "b": ("b", b"2")})
    assert join() == (b"1", b"2") and len(join.fingerprint()) == 64


def test_a_damaged_mirror_is_not_passed_over(make_mirror, online):
    folder = make_mirror({"toy": ("toy.txt", b"7")})
    (folder / "toy.txt").write_bytes(b"8")
    with pytest.raises(DataUnavailable, match="altered"):
        toy()()
    with pytest.raises(DataUnavailable, match="altered"):
        toy().fingerprint()


def test_a_download_is_kept(no_mirror, online):
    loader = toy()
    assert loader.fingerprint() is None
    assert [loader()[0][0, 0] for _ in range(2)] == [100.0, 100.0]
    assert len(loader.fingerprint()) == 64


def test_without_both_the_sentence_names_dataset_ways_and_command(no_mirror):
    with pytest.raises(DataUnavailable) as caught:
        toy()()
    for part in ("dataset toy", "DP_ERM_BENCH_DATA", "MANIFEST.csv", "get toy"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_clients_cache_is_asked_without_network(no_mirror):
    loader = toy(fetched=lambda: True)
    assert loader()[0][0, 0] == 100.0


@pytest.mark.parametrize("error", [OSError, ValueError, KeyError, EOFError])
def test_any_failure_of_a_client_becomes_the_sentence(no_mirror, online, error):
    def fail():
        raise error("deep inside")

    with pytest.raises(DataUnavailable, match=error.__name__):
        toy(fetch=fail)()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, True),
        (urllib.error.HTTPError("u", 403, "no", {}, None), True),
        (urllib.error.URLError("no route"), False),
        (TimeoutError(), False),
        (ValueError("unknown url type"), False),
    ],
)
def test_reachable_is_an_answer_of_any_kind(monkeypatch, answer, expected):
    def urlopen(request, timeout):
        assert timeout <= 10.0 and request.get_method() == "HEAD"
        if answer is not None:
            raise answer
        return types.SimpleNamespace(close=lambda: None)

    REACHABLE.cache_clear()
    monkeypatch.setattr(libsvm.urllib.request, "urlopen", urlopen)
    assert REACHABLE("https://toy.example") is expected
    REACHABLE.cache_clear()


def test_the_fingerprint_of_a_bundled_dataset_names_the_version():
    import sklearn

    found = Bundled("scikit-learn", lambda: None).fingerprint()
    assert found == f"scikit-learn {sklearn.__version__}"


REAL = [real.electricity, real.california, real.madelon, real.mtp]


@pytest.mark.parametrize("loader", REAL, ids=lambda loader: loader.name)
def test_the_commands_of_the_real_datasets_are_python(loader, no_mirror):
    program = loader.command.removeprefix('python -c "').removesuffix('"')
    compile(program, "command", "exec")
    with pytest.raises(DataUnavailable, match="with network access: python -c"):
        loader()


def test_california_through_its_client_equals_the_mirror(mirror, monkeypatch, tmp_path):
    import joblib

    from dp_erm_bench.datasets.libsvm import open_mirror

    content = open_mirror().read_content("california_housing")
    table = np.array([line.split(b",") for line in content.split()], dtype=float)
    home = tmp_path / "clients"
    home.mkdir()
    joblib.dump(table[:, [8, 7, 2, 3, 4, 5, 6, 1, 0]], home / "cal_housing_py3.pkz")
    expected = real.california()
    monkeypatch.delenv("DP_ERM_BENCH_DATA")
    for found, wanted in zip(real.california(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_electricity_through_its_client_keeps_the_days_label(
    no_mirror, online, monkeypatch
):
    import pandas as pd
    import sklearn.datasets

    data = pd.DataFrame({"date": [0.0, 0.5], "day": pd.Categorical(["2", "7"])})
    target = pd.Series(pd.Categorical(["UP", "DOWN"]))

    def fetch_openml(data_id, as_frame, n_retries):
        assert (data_id, as_frame) == (151, True)
        return types.SimpleNamespace(data=data, target=target)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    X, y = real.electricity()
    np.testing.assert_array_equal(X, [[0.0, 2.0], [0.5, 7.0]])
    np.testing.assert_array_equal(y, [1.0, -1.0])


def test_madelon_through_its_client_is_train_then_validation(
    no_mirror, online, monkeypatch
):
    parts = {"madelon": (np.zeros((2, 3)), np.array([-1.0, 1.0]))}
    parts["madelon_test"] = (np.ones((1, 3)), np.array([1.0]))
    monkeypatch.setattr(libsvm, "_download_set", parts.__getitem__)
    X, y = real.madelon()
    np.testing.assert_array_equal(X, [[0.0] * 3, [0.0] * 3, [1.0] * 3])
    np.testing.assert_array_equal(y, [-1.0, 1.0, 1.0])


def test_mtp_through_its_client(no_mirror, online, monkeypatch):
    import pandas as pd
    import sklearn.datasets

    def fetch_openml(name, version, as_frame, n_retries):
        assert (name, version, as_frame) == ("mtp", 1, True)
        data = pd.DataFrame({"a": [0.5, 1.0], "b": [2, 3]})
        return types.SimpleNamespace(data=data, target=pd.Series([7.0, 8.0]))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    X, y = real.mtp()
    np.testing.assert_array_equal(X, [[0.5, 2.0], [1.0, 3.0]])
    np.testing.assert_array_equal(y, [7.0, 8.0])


def test_a_file_of_mtp_in_a_mirror_is_read(make_mirror):
    make_mirror({"mtp": ("mtp.csv", b"a,b,y\n1,2,3\n4,5,6\n")})
    X, y = real.mtp()
    np.testing.assert_array_equal(X, [[1.0, 2.0], [4.0, 5.0]])
    np.testing.assert_array_equal(y, [3.0, 6.0])


def test_melting_points_leave_out_the_split(make_mirror):
    table = b"a,b,split,melting_point\n1,2,Training,3\n4,5,Testing,6\n"
    make_mirror({"meltingpoint_qsardata": ("meltingpoint.csv", table)})
    X, y = real.melting_point()
    np.testing.assert_array_equal(X, [[1.0, 2.0], [4.0, 5.0]])
    np.testing.assert_array_equal(y, [3.0, 6.0])


def test_a_file_of_another_format_is_refused(make_mirror):
    make_mirror({"mtp": ("mtp.csv", b"a,b,y\n1,two,3\n")})
    with pytest.raises(DataUnavailable, match="dataset mtp: its file is not of the"):
        real.mtp()


def test_what_only_a_mirror_has_offers_no_network(no_mirror, online):
    loader = Published("toy", ("toy", "more"), toy().parse)
    with pytest.raises(DataUnavailable, match="lists toy and more$"):
        loader()
    assert loader.fingerprint() is None


def test_a_sparse_download_is_kept_sparse(no_mirror, online):
    X = sp.csr_array(np.eye(3))
    loader = toy(name="many:toy", fetch=lambda: (X, np.arange(3)))
    for _ in range(2):
        found, y = loader()
        assert sp.issparse(found) or found is X
        np.testing.assert_array_equal(found.toarray(), np.eye(3))
    assert (cache_dir() / "raw" / "many-toy").is_dir()
