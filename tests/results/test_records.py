"""Test records as they are written; test_store tests how they are read."""

import json
import multiprocessing
import os
import resource
import shutil
import zlib

import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.files import RECORDS
from dp_erm_bench.results.store import (
    RecordWriter,
    Store,
    batch_name,
    take_lines,
    traces_of,
)

RUN = "00000000000000000001-here-1"


def key(number):
    return f"{number:064x}"


def record(number, **more):
    return {"status": "ok", "message": "x" * 200, "key": key(number), **more}


@pytest.fixture
def writer(tmp_path):
    return RecordWriter(tmp_path, RUN)


def lines(folder):
    return (folder / RECORDS).read_bytes().split(b"\n")


def test_nothing_is_written_before_there_is_something_to_say(writer, tmp_path):
    assert not any(tmp_path.iterdir())


def test_the_file_says_what_was_begun_and_what_came_of_it(writer, tmp_path):
    writer.begin([key(1), key(2)])
    writer.append([record(1), record(2)], 0.25)
    begun, one, two, rest = lines(tmp_path)
    assert rest == b""
    assert json.loads(begun)["begin"] == [key(1), key(2)]
    assert json.loads(begun)["run"] == json.loads(one)["run"] == RUN
    assert json.loads(begun)["time"] == pytest.approx(os.stat(tmp_path).st_mtime, abs=5)
    assert list(json.loads(one))[:4] == ["key", "status", "cost", "run"]
    assert json.loads(two)["cost"] == 0.25


def test_a_line_ends_with_the_checksum_of_all_before_it(writer, tmp_path):
    writer.begin([key(1)])
    writer.append([record(1)])
    for line in lines(tmp_path)[:-1]:
        body, _, tail = line.rpartition(b',"crc":"')
        assert tail == b'%08x"}' % zlib.crc32(body)


def append_many(folder, first):
    writer = RecordWriter(folder, RUN)
    for number in range(first, first + 200):
        writer.begin([key(number)])
        writer.append([record(number, message="y" * 20_000)])


def test_processes_that_append_at_once_leave_whole_lines(tmp_path):
    fork = multiprocessing.get_context("fork")
    every = [fork.Process(target=append_many, args=(tmp_path, n)) for n in (0, 500)]
    for one in every:
        one.start()
    for one in every:
        one.join()
    store = Store(tmp_path)
    assert len(store) == 400 and store.damaged == []
    assert all(store.records(store))


@pytest.fixture
def quota():
    """Let this process write files of so many bytes only; lifted at the end."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_half_way_spoils_no_later_one(writer, tmp_path, quota):
    writer.append([record(1), record(2)])
    path = tmp_path / RECORDS
    size = path.stat().st_size
    quota(size + 500)
    with pytest.raises(UsageError, match="File too large; what is recorded stays"):
        writer.append([record(3), record(4), record(5)])
    assert path.stat().st_size == size + 500
    quota(1_000_000)
    writer.append([record(6)])
    assert set(Store(tmp_path)) == {key(n) for n in (1, 2, 3, 6)}


def test_a_folder_that_is_gone_is_a_sentence(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    writer = RecordWriter(folder, RUN)
    writer.append([record(1)])
    shutil.rmtree(folder)
    with pytest.raises(UsageError, match="was removed or replaced while the run went"):
        writer.append([record(2)])
    assert not folder.exists()


def test_traces_are_those_of_some_trials_of_a_run_and_whole(writer, tmp_path):
    writer.begin([key(9)])
    start = (tmp_path / RECORDS).stat().st_size
    RecordWriter(tmp_path, "other").append([record(4)])
    writer.begin([key(1), key(2)])
    writer.append([record(1), record(2)], 0.5)
    writer.begin([key(3)])
    writer.append([record(3)])
    path = tmp_path / RECORDS
    whole = path.read_bytes()
    first = whole.index(b'{"key":"' + key(1).encode())
    changed = whole[first:].replace(b"x" * 200, b"y" + b"x" * 199, 1)
    path.write_bytes(whole[:first] + changed[:-9])
    path_before = (whole[:first] + changed).rpartition(b'{"key":')[0]
    every = {key(n) for n in (1, 2, 3, 4, 9)}
    begun, records = traces_of(tmp_path, start, RUN, every)
    assert set(begun) == {key(1), key(2), key(3)}
    assert set(records) == {key(2)}
    assert records[key(2)]["cost"] == 0.5
    assert traces_of(tmp_path, 0, RUN, {key(2)}).begun.keys() == {key(2)}
    assert traces_of(tmp_path / "none", 0, RUN, every) == ({}, {})
    assert take_lines(tmp_path) == path_before
    assert not path.exists() and take_lines(tmp_path) == b""


def test_the_mark_of_a_batch_tells_which_trials_ran_together(tmp_path, writer):
    batches = [[key(1)], [key(2), key(3)], [key(3), key(2)]]
    for keys in batches:
        writer.begin(keys)
    named = {one: batch_name(keys) for keys in batches for one in keys}
    writer.append([record(n, batch=named[key(n)]) for n in (1, 2, 3)])
    mates = Store(tmp_path).keys_of_batch
    for one, name in named.items():
        assert batch_name(mates(one, name)) == name
    assert mates(key(2), named[key(2)]) == batches[2]
    assert mates(key(2), batch_name([key(2), key(9)])) == []
    path = tmp_path / RECORDS
    path.write_bytes(path.read_bytes().replace(b'"begin":["', b'"begin":["0'))
    assert mates(key(2), named[key(2)]) == []
    assert mates(key(1), named[key(1)]) == [key(1)]
