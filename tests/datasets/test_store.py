import shutil

import numpy as np
import pytest

from dp_erm_bench.datasets.load import load_arrays, save_arrays
from dp_erm_bench.datasets.records import content_hash
from dp_erm_bench.paths import cache_dir
from tests.loops import each


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.standard_normal((7, 3)))
    return {"X": X, "y": rng.standard_normal(7)}


def stored_in(kind):
    return cache_dir() / kind


def test_what_was_stored_comes_back_mapped_read_only_and_column_major(
    arrays, is_mapped
):
    content = save_arrays("kind", "key", arrays)
    found, stored = load_arrays("kind", "key")
    assert stored == content == content_hash(found)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert not found[name].flags.writeable
    assert found["X"].flags.f_contiguous
    assert is_mapped(found["X"]) and type(found["X"]) is np.ndarray


def test_nothing_stored_is_none():
    assert load_arrays("kind", "absent") is None


@each("file", ["X.npy", "y.npy", "content.json"])
@each("damage", ["flip", "truncate", "remove", "empty"])
def test_damage_is_noticed_and_repaired(arrays, file, damage):
    save_arrays("kind", "key", arrays)
    path = stored_in("kind") / "key" / file
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    else:
        content[-3] ^= 1
        cut = {"flip": len(content), "truncate": len(content) - 5, "empty": 0}[damage]
        path.write_bytes(content[:cut])
    assert load_arrays("kind", "key") is None
    save_arrays("kind", "key", arrays)
    np.testing.assert_array_equal(load_arrays("kind", "key")[0]["X"], arrays["X"])


def test_a_cache_that_cannot_be_written_is_no_error(arrays, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path / "file"))
    assert save_arrays("kind", "key", arrays) == content_hash(arrays)
    assert load_arrays("kind", "key") is None


def test_arrays_under_another_name_are_none(arrays):
    """Phishing is not a1a, though somebody has exchanged their folders."""
    others = {name: array + 1.0 for name, array in arrays.items()}
    others["X"] = np.asfortranarray(others["X"])
    save_arrays("kind", "a1a", arrays)
    save_arrays("kind", "phishing", others)
    folder = stored_in("kind")
    for source, target in (("a1a", "gone"), ("phishing", "a1a"), ("gone", "phishing")):
        (folder / source).rename(folder / target)
    assert load_arrays("kind", "a1a") is load_arrays("kind", "phishing") is None
    (folder / "a1a").rename(folder / "gone")
    shutil.move(folder / "phishing", folder / "a1a")
    assert load_arrays("kind", "a1a") is not None
    shutil.copytree(folder / "a1a", stored_in("another") / "a1a")
    assert load_arrays("another", "a1a") is None


def test_hash_sees_values_shape_and_names_but_not_the_memory_order(arrays):
    same = {"X": np.ascontiguousarray(arrays["X"]), "y": arrays["y"]}
    other = [
        {"X": arrays["X"] + 1e-16 + 1e-15, "y": arrays["y"]},
        {"X": arrays["X"].reshape(3, 7, order="F"), "y": arrays["y"]},
        {"Z": arrays["X"], "y": arrays["y"]},
        {"X": arrays["X"]},
    ]
    assert content_hash(same) == content_hash(arrays)
    assert len({content_hash(arrays), *map(content_hash, other)}) == 5
