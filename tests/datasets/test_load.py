import dataclasses
import sys
import types

import numpy as np
import pytest

from benchmarks.cards import described_sets
from dp_erm_bench.datasets import load
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import card_of, dataset_spec
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.paths import cache_dir
from dp_erm_bench.registry import names

PUBLISHED = {"electricity", "california", "madelon", "mtp"}
MIRRORED = {
    *("communities", "dorothea", "melting_point", "mushrooms", "news20", "wine"),
}
NEED_FILES = PUBLISHED | MIRRORED
ASK = {"libsvm": "dataset.name=a9a", "file": "dataset.path=data.csv"}


class Source:
    """A loader that counts its calls and whose content may change."""

    def __init__(self):
        self.content, self.calls = 1.0, 0

    def __call__(self, spread=1.0):
        self.calls += 1
        X = np.random.default_rng(0).standard_normal((20, 2)) * self.content * spread
        return X, np.arange(20.0) % 2

    def fingerprint(self):
        return str(self.content)


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
    load._load_dataset.cache_clear()
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
    assert raw.uncharged == ("classes",)
    assert scaled.uncharged == ("classes", "standardisation")
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


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in described_sets()])
def test_a_card_has_the_size_of_the_records(name, mirror):
    base, _, member = name.partition(":")
    changes = {"set": member} if member else {}
    if name == "mtp" or member in ("a2a", "a3a", "a4a", "a6a", "a7a"):
        pytest.skip("no mirror has it")
    data = load_dataset(dataset_spec(base, **changes))
    assert data.X.shape == (card_of(name)["n"], card_of(name)["p"])


@pytest.mark.parametrize("name", ["breast_cancer", "log1", "log2"])
def test_bundled_and_generated_datasets_need_neither_mirror_nor_network(
    name, no_mirror
):
    found = load_dataset(dataset_spec(name))
    assert set(found.y) == {-1.0, 1.0}
    np.testing.assert_allclose(found.X.std(axis=0), 1.0, rtol=1e-9)
    assert found.bounds is None
    marked = ("standardisation",) if name == "breast_cancer" else ()
    assert found.uncharged == marked


@pytest.mark.parametrize("name", sorted(NEED_FILES))
def test_without_mirror_and_network_the_others_say_how_to_get_them(name, no_mirror):
    with pytest.raises(DataUnavailable) as refused:
        load_dataset(dataset_spec(name))
    sentence = str(refused.value)
    assert name in sentence and "DP_ERM_BENCH_DATA" in sentence
    assert ("python -c" in sentence) == (name in PUBLISHED)


@pytest.mark.parametrize("name", ASK)
def test_what_stands_for_many_asks_for_one(name, no_mirror):
    with pytest.raises(UsageError, match=ASK[name]):
        load_dataset(dataset_spec(name))


def test_nothing_else_needs_files(no_mirror):
    others = set(names("dataset")) - NEED_FILES - {*ASK}
    assert all(load_dataset(dataset_spec(name)).n > 1 for name in others)


def test_a_broken_mirror_concerns_those_that_it_may_have(tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_DATA", str(tmp_path / "absent"))
    with pytest.raises(DataUnavailable, match=r"MANIFEST\.csv"):
        load_dataset(dataset_spec("madelon"))
    assert load_dataset(dataset_spec("log2", n=20, p=3)).n == 20


def test_a_dataset_is_frozen():
    found = load_dataset(dataset_spec("log1", n=20, p=3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "other"
