import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.results.store import (
    FAILED,
    FINISHED,
    Segment,
    Store,
    encoded,
    finals_of,
    segments_of,
)

RUN = "00000000000000000001-here-1"


def record(number, status="ok", **more):
    return {"key": f"{number:064x}", "status": status, "message": "", **more}


def append(folder, *records):
    segment = Segment(folder, RUN)
    segment.append(records)
    segment.close()
    return segments_of(folder)[-1]


def test_an_empty_folder_is_an_empty_store(tmp_path):
    store = Store(tmp_path / "none")
    assert store.index == {}
    assert not (tmp_path / "none").exists()


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(FINISHED + FAILED))),
    st.text(),
)
def test_every_record_is_found_again(tmp_path_factory, rows, message):
    folder = tmp_path_factory.mktemp("store")
    records = [record(n, status, extra=message) for n, status in rows]
    append(folder, *records[::2])
    append(folder, *records[1::2])
    store = Store(folder)
    assert set(store.index) == {one["key"] for one in records}
    for key in store.index:
        assert store.record(key)["extra"] == message
        assert store.record(key)["status"] == store.index[key].status


def test_each_writer_has_its_own_segment(tmp_path):
    first, second = Segment(tmp_path, RUN), Segment(tmp_path, RUN)
    first.append([record(1)])
    second.append([record(2)])
    first.append([record(3)])
    counts = [len(path.read_bytes().splitlines()) for path in segments_of(tmp_path)]
    assert counts == [3, 2]


@pytest.mark.parametrize("cut", [1, 2, 5, 60, 80, 90])
def test_a_torn_last_line_costs_only_itself(tmp_path, cut):
    path = append(tmp_path, record(1), record(2), record(3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    append(tmp_path, record(4))
    store = Store(tmp_path)
    kept = (1, 2, 3, 4) if cut == 1 else (1, 2, 4)
    assert set(store.index) == {f"{n:064x}" for n in kept}
    assert all(store.record(key)["status"] == "ok" for key in store.index)


@pytest.mark.parametrize("end", [b"", b"x", b"}"])
def test_records_that_lost_the_end_of_a_line_are_found(tmp_path, end):
    path = append(tmp_path, *map(record, range(4)))
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(lines[0] + b"\n" + end.join(lines[1:4]) + b"\n" + lines[4])
    store = Store(tmp_path)
    for number in range(4):
        found = store.record(f"{number:064x}")
        assert found == {**found, **record(number)}
    assert list(store.damage().values()) == [1]


def test_a_record_on_the_line_of_a_mark_is_found_and_told(tmp_path):
    segment = Segment(tmp_path, RUN)
    for number in range(2):
        segment.begin([f"{number:064x}"])
        segment.append([record(number)])
    segment.close()
    (path,) = segments_of(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"}\n", b"}"))
    store = Store(tmp_path)
    assert len(store.index) == 2
    assert not store.damage()  # one torn line: it may still be written
    path.write_bytes(path.read_bytes() + b"\n")
    store.refresh()
    assert len(store.index) == 2
    assert list(store.damage().values()) == [1]


def test_lines_of_others_are_skipped(tmp_path):
    path = append(tmp_path, record(1))
    with path.open("ab") as file:
        file.write(b"\x00\xff garbage }\n\n{}\n")
    append(tmp_path, record(2))
    assert len(Store(tmp_path).index) == 2


def test_a_line_that_is_no_json_is_no_record(tmp_path):
    path = append(tmp_path, record(1))
    path.write_bytes(path.read_bytes().replace(b'"message"', b'"message'))
    assert Store(tmp_path).record(f"{1:064x}") is None


def test_a_retry_replaces_a_failure(tmp_path):
    append(tmp_path, record(1, "killed"))
    append(tmp_path, record(1, "ok"))
    assert Store(tmp_path).index[f"{1:064x}"].status == "ok"


def test_a_later_failure_never_hides_a_result(tmp_path):
    append(tmp_path, record(1, "diverged"))
    append(tmp_path, record(1, "error"))
    assert Store(tmp_path).index[f"{1:064x}"].status == "diverged"


def test_key_and_status_come_first_and_numbers_are_json():
    line = encoded({"z": math.inf, "y": [math.nan, 1.5], **record(7)})
    assert line.startswith(b'{"key":"' + b"0" * 63 + b'7","status":"ok",')
    assert line.endswith(b"}\n")
    parsed = json.loads(line)
    assert parsed["z"] is None and parsed["y"] == [None, 1.5]


def test_records_keep_the_order_asked_for(tmp_path):
    append(tmp_path, *(record(n, extra=n) for n in range(5)))
    append(tmp_path, *(record(n, extra=n) for n in range(5, 9)))
    keys = [f"{n:064x}" for n in (8, 0, 99, 5, 3)]
    found = [one and one["extra"] for one in Store(tmp_path).records(keys)]
    assert found == [8, 0, None, 5, 3]


SEEN = {"objective": [3.0, 2.0], "test_risk": [0.7, 0.5], "auc": [0.5, None]}


@pytest.mark.parametrize(
    "given, expected",
    [
        (None, {}),
        (record(1, trajectory=SEEN), {"objective": 2.0, "test_risk": 0.5}),
        (record(1, trajectory={"test_accuracy": [0.5, 0.9]}), {"test_accuracy": -0.9}),
        (record(1, trajectory={"auc": [0.5, 0.8]}), {"auc": -0.8}),
        (record(1, trajectory={"objective": [3.0, None]}), {}),
        (record(1, "diverged", trajectory=SEEN), {}),
        (record(1, "error", trajectory={}), {}),
        (record(1), {}),
    ],
)
def test_the_last_values_of_a_trial_are_to_be_minimised(given, expected):
    assert finals_of(given) == expected
