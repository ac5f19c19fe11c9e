"""Test datasets from libsvmdata: names, mirror, cache, network, and known traps."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from dp_erm_bench.datasets import libsvm
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.paths import cache_dir

# records, features, non-zeros, positive labels, held sparse
FACTS = [
    ("a9a", 32561, 123, 451592, 7841, True),
    ("w8a", 49749, 300, 579586, 1479, True),
    ("phishing", 11055, 68, 331650, 6157, True),
    ("ijcnn1", 49990, 22, None, 4853, False),
    ("madelon", 2000, 500, None, 1000, False),
    ("heart_scale", 270, 13, None, 120, False),
    ("a9a_test", 16281, 123, 225731, 3846, True),
]


class Entry:
    """A set as libsvmdata lists it, downloading into the folder it is told."""

    def __init__(self, name, task="binary", fail=None):
        self.dataset_name, self.task_name, self.fail = name, task, fail
        self.dataset_dir, self.folders = None, []

    def get_X_y(self):
        self.folders.append(self.dataset_dir)
        assert list(self.dataset_dir.iterdir()) == []
        if self.fail:
            raise self.fail
        X = sp.csc_matrix(np.eye(4, 3))
        sp.save_npz(self.dataset_dir / f"{self.dataset_name}_X.npz", X)
        return X, np.array([1.0, 2.0, 1.0, 2.0])


@pytest.fixture
def client(monkeypatch, no_mirror):
    """Return a catalogue of toy sets; the network answers."""
    names = {"toy": "binary", "toys": "regression", "many": "multilabel"}
    entries = {name: Entry(name, task) for name, task in names.items()}
    monkeypatch.setattr(libsvm, "libsvm_catalogue", lambda: entries)
    monkeypatch.setattr(libsvm, "is_reachable", lambda host: True)
    return entries


def loaded(name, **changes):
    return load_dataset(dataset_spec(f"libsvm:{name}", **changes))


@pytest.fixture
def seeded(tmp_path, monkeypatch):
    """Return a function that puts files into libsvmdata's own cache."""
    folder = tmp_path / "clients" / "libsvm"
    folder.mkdir(parents=True)

    def put(name, value=5.0):
        sp.save_npz(folder / f"{name}_X.npz", sp.csc_matrix(value * np.eye(4, 3)))
        np.save(folder / f"{name}_y.npy", np.array([0.0, 1.0, 1.0, 0.0]))
        return folder

    return put


@pytest.mark.parametrize(("name", "n", "p", "nnz", "positive", "sparse"), FACTS)
def test_real_sets_have_their_published_facts(
    mirror, name, n, p, nnz, positive, sparse
):
    found = loaded(name)
    assert (found.name, found.n, found.p) == (f"libsvm:{name}", n, p)
    assert found.sparse == sparse == sp.issparse(found.X)
    assert nnz is None or (found.X.nnz if sparse else np.count_nonzero(found.X)) == nnz
    assert set(found.y) == {-1.0, 1.0} and (found.y == 1.0).sum() == positive
    assert found.usual.loss == "logistic"


def test_a_regression_is_one(mirror):
    found = loaded("abalone")
    assert (found.y.min(), found.y.max()) == (1.0, 29.0)
    assert found.usual.loss == "squared"


def test_the_mirror_is_what_libsvmdata_would_have_given(mirror, monkeypatch, tmp_path):
    from libsvmdata.core import ALL_DATASETS

    from dp_erm_bench.datasets.libsvm import open_mirror

    entry = ALL_DATASETS["heart_scale"]
    raw = tmp_path / "raw"
    raw.write_bytes(open_mirror().read_content("heart_scale"))
    X, y = entry._load_file_and_save_data(raw, tmp_path / "heart_scale")
    found = loaded("heart_scale")
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.y, y)


def test_the_catalogue_is_libsvmdatas():
    import libsvmdata

    assert sorted(libsvm.libsvm_catalogue()) == sorted(libsvmdata.supported)


def test_names_that_hide_w1a_are_exactly_those_refused():
    files = {name: one.dataset_file for name, one in libsvm.libsvm_catalogue().items()}
    hiding = {n for n, file in files.items() if file.startswith("w1a") and n[1] != "1"}
    assert hiding == libsvm.WRONG
    for name in hiding:
        with pytest.raises(DataUnavailable, match="libsvmdata downloads w1a under"):
            loaded(name)


@pytest.mark.parametrize(
    ("name", "near"), [("a9", "a9a"), ("IJCNN1", "ijcnn1"), ("rcv1", "rcv1.binary")]
)
def test_an_unknown_name_gets_the_nearest(name, near, no_mirror):
    with pytest.raises(UsageError, match=f"dataset.name={name}: is no set") as caught:
        loaded(name)
    assert near in str(caught.value) or name.isupper()
    assert "\n" not in str(caught.value)


def test_a_dataset_of_our_own_is_pointed_at():
    with pytest.raises(UsageError, match=r"\(write dataset=mushrooms\)"):
        loaded("mushrooms")


def test_a_name_is_needed():
    with pytest.raises(UsageError, match=r"such as dataset\.name=a9a"):
        load_dataset(dataset_spec("libsvm"))


def test_a_name_is_refused_where_there_is_one_dataset():
    with pytest.raises(UsageError, match=r"name=a9a: log1 is one dataset"):
        dataset_spec("log1:a9a")


def test_several_labels_per_record_are_refused(client):
    with pytest.raises(UsageError, match="several labels per record"):
        loaded("many")


def test_a_download_has_a_folder_of_its_own_and_is_kept_by_us(client, seeded):
    folder = seeded("other_toy")
    before = sorted(folder.iterdir())
    first, second = loaded("toy"), loaded("toy")
    assert len(client["toy"].folders) == 1
    assert not client["toy"].folders[0].exists()
    assert client["toy"].dataset_dir is None
    assert sorted(folder.iterdir()) == before
    assert first.content_hash == second.content_hash
    np.testing.assert_array_equal(second.y, [-1.0, 1.0, -1.0, 1.0])
    assert (cache_dir() / "raw" / "libsvm-toy").is_dir()


def test_a_seeded_cache_is_read_by_the_exact_name(client, seeded):
    seeded("duke toy")
    assert loaded("toy").X.max() == 1.0
    seeded("toys")
    assert loaded("toys", task="classification").X.max() == 5.0
    assert client["toys"].folders == []


def test_the_home_is_that_of_now_not_of_the_import(client, seeded):
    import libsvmdata.libsvm

    folder = seeded("toy")
    assert libsvmdata.libsvm.LIBSVM_DATA_HOME != folder
    assert libsvm.libsvm_home() == folder and libsvm.files_in_cache("toy")
    assert loaded("toy").X.max() == 5.0


def test_a_failed_download_leaves_nothing_and_says_so(client):
    client["toy"].fail = OSError("broken pipe")
    with pytest.raises(DataUnavailable, match="download failed with OSError.*'toy'"):
        loaded("toy")
    assert not (cache_dir() / "raw").exists()
    client["toy"].fail = None
    assert loaded("toy").n == 4


def test_without_network_the_sentence_names_both_ways(client, monkeypatch):
    monkeypatch.setattr(libsvm, "is_reachable", lambda host: False)
    with pytest.raises(DataUnavailable, match=r"DP_ERM_BENCH_DATA .*fetch_dataset"):
        loaded("toy")


def test_sets_of_the_mirror_need_no_libsvmdata(mirror, monkeypatch):
    def absent():
        raise AssertionError("imported")

    monkeypatch.setattr(libsvm, "libsvm_catalogue", absent)
    monkeypatch.setitem(sys.modules, "libsvmdata", None)
    assert loaded("a1a").n == 1605


def test_many_classes_need_to_be_told(mirror):
    with pytest.raises(UsageError, match=r"labels 1, 2, .* dataset\.positive"):
        loaded("news20.multiclass")
    found = loaded("news20.multiclass", positive=[1])
    assert found.sparse and 0 < (found.y == 1.0).sum() < 1000


@pytest.mark.parametrize(
    ("p", "last", "said"),
    [
        ("43", 13, "with p=43, and its last feature is 13; list p=13"),
        ("14", 13, "with p=14, and its last feature is 13; list p=13"),
        ("9", 13, "with p=9, and row 2: feature 13 is beyond"),
        ("9000000000000", 13, "takes? at least 576000000000000 bytes"),
        ("thirteen", 13, "with p=thirteen: must be an integer >= 1, or empty"),
        ("0", 13, "with p=0: must be an integer >= 1"),
        ("123", 119, ""),
        ("13", 13, ""),
        ("", 13, ""),
    ],
)
def test_the_width_that_a_mirror_lists_is_that_of_the_file(make_mirror, p, last, said):
    """Of a1a the last 4 of 123 features are empty; 13 written as 43 is refused."""
    content = f"1 1:2 3:1\n-1 {last}:1\n".encode()
    folder = make_mirror({"mine": ("mine.svm", content)})
    head, row = (folder / "MANIFEST.csv").read_text().splitlines()
    listed = f"{head},p,libsvmdata_name,task\n{row},{p},mine,binary\n"
    (folder / "MANIFEST.csv").write_text(listed)
    if not said:
        assert loaded("mine").p == int(p or last)
        return
    with pytest.raises(DataUnavailable, match=said) as caught:
        loaded("mine")
    assert "\n" not in str(caught.value) and "libsvm:mine" in str(caught.value)


def test_svmlight_files_are_joined_at_the_width_asked_for():
    X, y = libsvm.parse_svmlight(b"1 2:3\n", b"-1 1:1 9:2\n0 1:4\n", p=10)
    assert sp.issparse(X) and X.shape == (3, 10)
    np.testing.assert_array_equal(y, [1.0, -1.0, 0.0])
    assert X.toarray()[0, 1] == 3.0 and X.toarray()[1, 8] == 2.0


def test_the_packages_own_download_is_used_and_equals_the_mirror(
    mirror, monkeypatch, seeded
):
    import libsvmdata.abstraction

    from dp_erm_bench.datasets.libsvm import open_mirror

    content, asked = open_mirror().read_content("heart_scale"), []
    expected = loaded("heart_scale")

    def download(url, path, **options):
        asked.append(url)
        path.write_bytes(content)

    monkeypatch.setattr(libsvmdata.abstraction, "download", download)
    monkeypatch.setattr(libsvm, "is_reachable", lambda host: True)
    monkeypatch.delenv("DP_ERM_BENCH_DATA")
    folder = seeded("my heart_scale")
    before = sorted(folder.iterdir())
    found = loaded("heart_scale")
    assert asked == [f"{libsvm.HOST}binary/heart_scale"]
    assert found.content_hash == expected.content_hash
    assert sorted(folder.iterdir()) == before
    loaded("heart_scale")
    assert len(asked) == 1
