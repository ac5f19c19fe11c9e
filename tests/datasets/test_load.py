import dataclasses
import sys
import types

import numpy as np
import pytest

from dp_erm_bench.datasets import load
from dp_erm_bench.datasets.load import available, list_datasets, load_dataset
from dp_erm_bench.datasets.published import Origin
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.paths import cache_dir
from dp_erm_bench.registry import names

PUBLISHED = {"electricity", "california", "madelon", "mtp"}
MIRRORED = {"dorothea", "mushrooms", "news20"}
NEED_FILES = PUBLISHED | MIRRORED
ASK = {"libsvm", "file"}


class Source:
    """A loader that counts its calls and whose content may change."""

    def __init__(self):
        self.content, self.calls = 1.0, 0

    def __call__(self, spread=1.0):
        self.calls += 1
        X = np.random.default_rng(0).standard_normal((20, 2)) * self.content * spread
        return X, np.arange(20.0) % 2

    def origin(self):
        return Origin("a file", str(self.content))


@pytest.fixture
def source(monkeypatch):
    module = types.ModuleType("toy_loaders")
    module.source = Source()
    monkeypatch.setitem(sys.modules, "toy_loaders", module)
    return module.source


def toy(**changes):
    fields = {"name": "toy", "_target_": "toy_loaders.source", "task": "classification"}
    return fields | changes


def in_a_new_process(spec):
    load._load.cache_clear()
    return load_dataset(spec)


def test_within_a_process_a_dataset_is_loaded_once(source):
    assert load_dataset(toy()) is load_dataset(dict(reversed(toy().items())))
    assert source.calls == 1


def test_the_next_process_maps_what_the_first_prepared(source, is_mapped):
    first = in_a_new_process(toy(standardise=True, test_fraction=0.2))
    second = in_a_new_process(toy(standardise=True, test_fraction=0.2))
    assert source.calls == 1
    for field in ("X", "y", "X_test", "y_test"):
        array = getattr(second, field)
        np.testing.assert_array_equal(array, getattr(first, field))
        assert not array.flags.writeable
    assert is_mapped(second.X) and second.X.flags.f_contiguous
    assert second.content_hash == first.content_hash


@pytest.mark.parametrize(
    "change",
    [{"standardise": True}, {"test_fraction": 0.5}, {"seed": 1}, {"spread": 2.0}],
)
def test_another_specification_is_prepared_anew(source, change):
    base = {"test_fraction": 0.25}
    first, second = (in_a_new_process(toy(**base | c)) for c in ({}, change))
    assert source.calls == 2
    assert first.content_hash != second.content_hash


def test_metadata_alone_do_not_prepare_anew(source):
    usual = {"loss": "logistic", "penalty": "l2", "strength": 0.5}
    in_a_new_process(toy())
    assert in_a_new_process(toy(usual=usual)).usual.strength == 0.5
    assert source.calls == 1


def test_a_changed_source_never_serves_the_old_arrays(source):
    first = in_a_new_process(toy())
    source.content = 2.0
    second = in_a_new_process(toy())
    np.testing.assert_array_equal(second.X, 2.0 * first.X)
    assert first.content_hash != second.content_hash


def test_a_damaged_cache_is_prepared_anew(source):
    first = in_a_new_process(toy())
    (stored,) = (cache_dir() / "datasets").glob("*/X.npy")
    content = bytearray(stored.read_bytes())
    content[-1] ^= 255
    stored.write_bytes(content)
    np.testing.assert_array_equal(in_a_new_process(toy()).X, first.X)
    assert source.calls == 2


def test_standardisation_is_marked_and_drops_bounds(source):
    bounds = {"columns": [9, 9]}
    raw = load_dataset(toy(bounds=bounds))
    scaled = load_dataset(toy(bounds=bounds, standardise=True))
    assert (raw.uncharged, scaled.uncharged) == ((), ("standardisation",))
    assert raw.bounds is not None and scaled.bounds is None


def test_a_declared_bound_that_the_data_break_is_refused(source):
    with pytest.raises(UsageError, match="feature 0 exceeds its declared bound 0.1"):
        load_dataset(toy(bounds={"columns": [0.1, 9]}))


def test_an_unknown_key_is_refused(source):
    with pytest.raises(UsageError, match="spraed.*did you mean spread"):
        load_dataset(toy(spraed=1))


def test_regression_labels_stay_as_they_are(source):
    y = load_dataset(toy(task="regression")).y
    np.testing.assert_array_equal(np.unique(y), [0.0, 1.0])


@pytest.mark.parametrize("name", ["breast_cancer", "log1", "log2"])
def test_bundled_and_generated_datasets_need_neither_mirror_nor_network(
    name, no_mirror
):
    found = load_dataset(dataset_spec(name))
    assert available(dataset_spec(name)) is None
    assert set(found.y) == {-1.0, 1.0}
    np.testing.assert_allclose(found.X.std(axis=0), 1.0, rtol=1e-9)
    assert found.bounds is None
    marked = ("standardisation",) if name == "breast_cancer" else ()
    assert found.uncharged == marked


@pytest.mark.parametrize("name", sorted(NEED_FILES))
def test_without_mirror_and_network_the_others_say_how_to_get_them(name, no_mirror):
    sentence = available(dataset_spec(name))
    assert name in sentence and "DP_ERM_BENCH_DATA" in sentence
    assert ("python -c" in sentence) == (name in PUBLISHED)
    with pytest.raises(DataUnavailable):
        load_dataset(dataset_spec(name))


def test_available_passes_other_errors_on(source):
    with pytest.raises(UsageError, match="test_fraction"):
        available(toy(test_fraction=3))


def test_the_list_says_what_is_here_without_downloading(no_mirror):
    listed = {line.name: line for line in list_datasets()}
    assert sorted(listed) == names("dataset")
    assert {name for name, line in listed.items() if not line.now} == NEED_FILES | ASK
    assert listed["breast_cancer"].where == "bundled with scikit-learn"
    assert listed["log1"].where == "generated"
    assert "fetch_openml" in listed["electricity"].where


def test_the_list_shows_the_mirror(mirror):
    listed = {line.name: line for line in list_datasets()}
    assert {name for name, line in listed.items() if not line.now} <= {"mtp", "file"}
    assert str(mirror) in listed["madelon"].where


def test_the_list_reports_a_broken_mirror(tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_DATA", str(tmp_path / "absent"))
    listed = {line.name: line for line in list_datasets()}
    assert not listed["madelon"].now and "MANIFEST.csv" in listed["madelon"].where
    assert listed["log2"].now


def test_a_dataset_is_frozen():
    found = load_dataset(dataset_spec("log1", n=20, p=3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "other"
