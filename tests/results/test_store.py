import json
import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.results import files
from dp_erm_bench.results.files import RECORDS
from dp_erm_bench.results.store import (
    FAILED,
    FINISHED,
    RecordWriter,
    Store,
    encode_record,
    finals_of,
)

RUN = "00000000000000000001-here-1"


def record(number, status="ok", **more):
    return {"key": f"{number:064x}", "status": status, "message": "", **more}


def append(folder, *records):
    RecordWriter(folder, RUN).append(records)
    return folder / RECORDS


def test_an_empty_folder_is_an_empty_store(tmp_path):
    store = Store(tmp_path / "none")
    assert list(store) == [] and store.size == -1
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
    assert set(store) == {one["key"] for one in records}
    for key in store:
        assert store.record(key)["extra"] == message
        assert store.record(key)["status"] == store.status(key)


@pytest.mark.parametrize("cut", [1, 2, 5, 60, 80, 90])
def test_a_torn_last_line_costs_only_itself(tmp_path, cut):
    path = append(tmp_path, record(1), record(2), record(3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    append(tmp_path, record(4))
    store = Store(tmp_path)
    kept = (1, 2, 3, 4) if cut == 1 else (1, 2, 4)
    assert set(store) == {f"{n:064x}" for n in kept}
    assert all(store.record(key)["status"] == "ok" for key in store)


def test_a_line_that_may_still_be_written_is_no_damage(tmp_path):
    path = append(tmp_path, record(0), record(1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    store = Store(tmp_path)
    assert len(store) == 1 and store.damage() == ""
    path.write_bytes(whole)
    store.refresh()
    assert len(store) == 2 and store.damage() == ""


def test_a_line_that_is_written_while_it_is_read_is_read_later(tmp_path, monkeypatch):
    """The rest of it came as a line of its own, and all places after it were wrong."""
    path = append(tmp_path, *map(record, range(4)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    read = files.lines_of

    def beside_a_writer(file):
        for line in read(file):
            if not line.endswith(b"\n"):
                path.write_bytes(whole)
            yield line

    monkeypatch.setattr(files, "lines_of", beside_a_writer)
    store = Store(tmp_path)
    append(tmp_path, record(4))
    store.refresh()
    assert store.damage() == "" and len(store) == 5
    assert all(store.records(store))


def test_damaged_lines_are_named(tmp_path):
    path = append(tmp_path, *map(record, range(20)))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + [lines[3][:50] + lines[4]] + lines[5:]))
    assert Store(tmp_path).damage() == "records.jsonl: line 4 damaged"
    path.write_bytes(path.read_bytes().replace(b'"message":""', b'"message":"?"'))
    said = "records.jsonl: lines 1, 2, 3, 4, 5 and 14 more damaged"
    assert Store(tmp_path).damage() == said
    path.unlink()
    path.mkdir()
    said = "records.jsonl cannot be read: Is a directory"
    assert Store(tmp_path).damage() == said


def test_a_file_in_another_place_is_not_followed(tmp_path):
    append(tmp_path, record(1)).rename(tmp_path / "elsewhere")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RECORDS).symlink_to(tmp_path / "elsewhere")
    store = Store(tmp_path / "run")
    assert not len(store)
    assert "leads out of its folder" in store.damage()


def test_an_entry_takes_little_memory(tmp_path):
    append(tmp_path, *map(record, range(20_000)))
    tracemalloc.start()
    store = Store(tmp_path)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / len(store) < 300


def test_lines_of_others_are_skipped(tmp_path):
    path = append(tmp_path, record(1))
    with path.open("ab") as file:
        file.write(b"\x00\xff garbage }\n\n{}\n")
    append(tmp_path, record(2))
    assert len(Store(tmp_path)) == 2


def test_a_line_that_is_no_json_is_no_record(tmp_path):
    path = append(tmp_path, record(1))
    path.write_bytes(path.read_bytes().replace(b'"message"', b'"message'))
    assert Store(tmp_path).record(f"{1:064x}") is None


def test_a_retry_replaces_a_failure(tmp_path):
    append(tmp_path, record(1, "killed"))
    append(tmp_path, record(1, "ok"))
    assert Store(tmp_path).status(f"{1:064x}") == "ok"


def test_a_later_failure_never_hides_a_result(tmp_path):
    append(tmp_path, record(1, "diverged"))
    append(tmp_path, record(1, "error"))
    assert Store(tmp_path).status(f"{1:064x}") == "diverged"


def test_key_and_status_come_first_and_numbers_are_json():
    line = encode_record({"z": math.inf, "y": [math.nan, 1.5], **record(7)})
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
