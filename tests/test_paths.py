"""Test the cache folder, atomic writes and digests."""

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench import cached, paths

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_the_named_folder_wins(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path))
    assert paths.cache_dir() == tmp_path


@pytest.mark.parametrize("named", [None, ""])
def test_else_the_users_cache(monkeypatch, named):
    monkeypatch.delenv("DP_ERM_BENCH_CACHE")
    if named is not None:
        monkeypatch.setenv("DP_ERM_BENCH_CACHE", named)
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert paths.cache_dir() == Path("/elsewhere/dp_erm_bench")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert paths.cache_dir() == Path.home() / ".cache" / "dp_erm_bench"


def test_the_home_folder_is_spelled_out(monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", "~/mine")
    assert paths.cache_dir() == Path.home() / "mine"


@given(value=st.dictionaries(st.text("abc", max_size=3), values, max_size=4))
def test_values_survive_the_cache(value, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path_factory.getbasetemp() / "one"))
        cached.save_json("kind", "key", value)
        assert cached.load_json("kind", "key") == (value, False)


def test_keys_and_kinds_are_apart(cache):
    cached.save_json("kind", "key", {"a": 1})
    cached.save_json("kind", "other", {"a": 2})
    cached.save_json("other", "key", {"a": 3})
    found = [
        cached.load_json(*k).value["a"]
        for k in (("kind", "key"), ("kind", "other"), ("other", "key"))
    ]
    assert found == [1, 2, 3]
    assert cached.load_json("none", "key") is None
    assert files(cache) == ["key.json", "key.json", "other.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[1, 2"])
def test_a_damaged_entry_is_absent_and_can_be_replaced(cache, content):
    cached.save_json("kind", "key", {"a": 1})
    (cache / "kind" / "key.json").write_bytes(content)
    assert cached.load_json("kind", "key") is None
    cached.save_json("kind", "key", {"a": 2})
    assert cached.load_json("kind", "key").value == {"a": 2}


def test_a_cache_that_cannot_be_written_is_no_error(cache):
    cache.write_text("a file where the folder should be")
    cached.save_json("kind", "key", {"a": 1})
    assert cached.load_json("kind", "key") is None


def test_a_file_of_another_key_is_absent(cache):
    cached.save_json("kind", "key", {"a": 1})
    (cache / "kind" / "key.json").rename(cache / "kind" / "other.json")
    assert cached.load_json("kind", "other") is None


def test_only_who_knows_the_secret_vouches(cache, monkeypatch):
    monkeypatch.setattr(cached, "_run", {})
    cached.save_json("kind", "key", {"a": 1})
    cached.vouch_for_cache("one")
    assert cached.load_json("kind", "key") == ({"a": 1}, False)
    cached.save_json("kind", "key", {"a": 1})
    assert cached.load_json("kind", "key") == ({"a": 1}, True)
    assert b"one" not in (cache / "kind" / "key.json").read_bytes()
    cached.vouch_for_cache("other")
    assert cached.load_json("kind", "key") == ({"a": 1}, False)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "deep" / "file.bin"
    paths.write_atomic(target, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"half of the new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        paths.write_atomic(target, fail)
    assert target.read_bytes() == b"old"
    assert files(tmp_path) == ["file.bin"]


def test_a_reader_never_sees_a_part(tmp_path):
    target = tmp_path / "file.bin"
    paths.write_atomic(target, lambda file: file.write(b"old"))

    def slow(file):
        file.write(b"new, but")
        file.flush()
        assert target.read_bytes() == b"old"
        file.write(b" longer")

    paths.write_atomic(target, slow)
    assert target.read_bytes() == b"new, but longer"


@given(st.dictionaries(st.text(max_size=4), st.integers(), min_size=2), st.randoms())
def test_digest_does_not_depend_on_the_order_of_keys(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert paths.digest_of_json(dict(items)) == paths.digest_of_json(value)


@given(values, values)
def test_digests_differ_exactly_as_the_canonical_text_does(one, other):
    def text(value):
        return json.dumps(paths.spell_infinities(value), sort_keys=True)

    assert (paths.digest_of_json(one) == paths.digest_of_json(other)) == (
        text(one) == text(other)
    )


@given(values)
def test_digest_is_sha256_and_takes_tuples_as_lists(value):
    digest = paths.digest_of_json([value, value])
    assert len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    assert digest == paths.digest_of_json((value, value))


def test_digest_of_known_content():
    text = '{"a":[1,"inf"],"b":"x"}'
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert paths.digest_of_json({"b": "x", "a": (1, math.inf)}) == expected


def test_digest_spells_infinities_and_refuses_what_has_no_spelling():
    assert paths.digest_of_json({"epsilon": math.inf}) == paths.digest_of_json(
        {"epsilon": "inf"}
    )
    assert (
        paths.digest_of_json(-math.inf)
        == paths.digest_of_json("-inf")
        != paths.digest_of_json(math.inf)
    )
    with pytest.raises(ValueError):
        paths.digest_of_json([math.nan])
    with pytest.raises(TypeError):
        paths.digest_of_json({"a": object()})


def test_digest_is_the_same_in_another_process():
    value = {"b": [1.5, "ä"], "a": None}
    code = f"from dp_erm_bench import paths; print(paths.digest_of_json({value!r}))"
    root = Path(paths.__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == paths.digest_of_json(value)
