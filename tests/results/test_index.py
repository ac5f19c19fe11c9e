"""The index holds what it was given, in little memory."""

import math
import tracemalloc
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.results.store import FAILED, FINISHED, STATUSES, Entry, Index

KEYS = st.one_of(
    st.binary(min_size=32, max_size=32).map(bytes.hex),
    st.binary(min_size=32, max_size=32).map(lambda key: key.hex().upper()),
    st.text(max_size=70),
    st.sampled_from(["", "00 " * 32, "\ud800" * 64, "0" * 63, "0" * 66]),
)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(STATUSES),
    st.sampled_from([Path("a"), Path("b")]),
    st.integers(0, 2**40),
    st.integers(0, 2**33),
    st.floats(allow_nan=False),
    st.sampled_from(["", "run"]),
)


@given(st.lists(st.tuples(KEYS, ENTRIES), max_size=30))
def test_an_index_is_a_dictionary_that_keeps_what_is_finished(pairs):
    index, expected = Index(), {}
    for key, entry in pairs:
        index.put(key, entry)
        old = expected.get(key)
        if not old or old.status in FAILED or entry.status in FINISHED:
            expected[key] = entry
    assert dict(index) == expected and list(index) == list(expected)
    assert len(index) == len(expected)
    assert all(index.status(key) == one.status for key, one in expected.items())
    assert "f" * 64 not in index and 7 not in index and index.status("?") is None


def test_a_cost_may_be_unknown():
    index = Index()
    index.put("a", Entry("ok", Path("x"), 0, 1))
    assert math.isnan(index["a"].cost)


def test_an_entry_takes_two_hundred_bytes_or_so():
    path, index = Path("segment"), Index()
    tracemalloc.start()
    for number in range(50_000):
        index.put(f"{number:064x}", Entry("ok", path, number, 2000, 0.1, "run"))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / 50_000 < 250
