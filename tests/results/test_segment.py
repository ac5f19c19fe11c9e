"""Segments as they are written; how they are read is told in test_store."""

import json
import os
import resource
import zlib

import pytest

import dp_erm_bench
from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.store import (
    Segment,
    Store,
    batch_name,
    segments_of,
    traces_of,
)

RUN = "00000000000000000001-here-1"


def key(number):
    return f"{number:064x}"


def record(number, **more):
    return {"status": "ok", "message": "x" * 200, "key": key(number), **more}


@pytest.fixture
def segment(tmp_path):
    made = Segment(tmp_path, RUN)
    yield made
    made.close()


def lines(folder):
    return [
        one for path in segments_of(folder) for one in path.read_bytes().split(b"\n")
    ]


def test_nothing_is_written_before_there_is_something_to_say(segment, tmp_path):
    assert not any(tmp_path.iterdir())
    segment.close()
    assert not any(tmp_path.iterdir())


def test_a_segment_says_who_writes_what_is_begun_and_what_came_of_it(segment, tmp_path):
    segment.begin([key(1), key(2)])
    segment.append([record(1), record(2)], 0.25)
    first, begun, one, two, rest = lines(tmp_path)
    assert rest == b""
    header = json.loads(first)
    assert list(header)[:3] == ["segment", "run", "version"]
    assert header["segment"] == 3 and header["run"] == RUN
    assert header["version"] == dp_erm_bench.__version__
    assert json.loads(begun)["begin"] == [key(1), key(2)]
    assert json.loads(begun)["time"] == pytest.approx(os.stat(tmp_path).st_mtime, abs=5)
    assert list(json.loads(one))[:3] == ["key", "status", "cost"]
    assert json.loads(two)["cost"] == 0.25


def test_a_record_ends_with_the_checksum_of_all_before_it(segment, tmp_path):
    segment.append([record(1)])
    for line in lines(tmp_path)[:-1]:
        body, _, tail = line.rpartition(b',"crc":"')
        assert tail == b'%08x"}' % zlib.crc32(body)


def test_a_batch_is_one_write(segment, tmp_path, monkeypatch):
    segment.begin([key(1)])
    written = []
    write = os.write
    monkeypatch.setattr(
        os, "write", lambda f, data: written.append(data) or write(f, data)
    )
    segment.append([record(n) for n in range(50)])
    segment.begin([key(1)])
    assert [data.count(b"\n") for data in written] == [50, 1]


@pytest.fixture
def quota():
    """Let this process write files of so many bytes only; lifted at the end."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_half_way_spoils_no_later_one(segment, tmp_path, quota):
    segment.append([record(1), record(2)])
    (path,) = segments_of(tmp_path)
    size = path.stat().st_size
    quota(size + 500)
    with pytest.raises(UsageError, match="File too large; what is recorded stays"):
        segment.append([record(3), record(4), record(5)])
    assert path.stat().st_size == size + 500
    quota(1_000_000)
    segment.append([record(6)])
    assert len(segments_of(tmp_path)) == 2
    assert set(Store(tmp_path).index) == {key(n) for n in (1, 2, 3, 6)}


def test_traces_are_those_of_one_process_and_whole(segment, tmp_path):
    segment.begin([key(1), key(2)])
    segment.append([record(1), record(2)], 0.5)
    segment.begin([key(3)])
    segment.append([record(3)])
    (path,) = segments_of(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"x" * 200, b"y" + b"x" * 199, 1)[:-9])
    path.with_name(f"{RUN}-{os.getpid()}7-1.jsonl").write_bytes(whole)
    begun, records = traces_of(tmp_path, RUN, os.getpid())
    assert set(begun) == {key(1), key(2), key(3)}
    assert set(records) == {key(2)}
    assert records[key(2)]["cost"] == 0.5
    assert traces_of(tmp_path, RUN, 1) == ({}, {})
    assert traces_of(tmp_path, RUN[:-1], os.getpid()) == ({}, {})


def test_the_mark_of_a_batch_tells_which_trials_ran_together(tmp_path, segment):
    """Also where a process had to open another segment in the meantime."""
    batches = [[key(1)], [key(2), key(3)], [key(3), key(2)]]
    for keys in batches:
        segment.begin(keys)
    segment.close()
    named = {one: batch_name(keys) for keys in batches for one in keys}
    segment.append([record(n, batch=named[key(n)]) for n in (1, 2, 3)])
    assert len(segments_of(tmp_path)) == 2
    mates = Store(tmp_path).mates
    for one, name in named.items():
        assert batch_name(mates(one, name)) == name
    assert mates(key(2), named[key(2)]) == batches[2]
    assert mates(key(2), batch_name([key(2), key(9)])) == []
    for path in segments_of(tmp_path):
        path.write_bytes(path.read_bytes().replace(b'"begin":["', b'"begin":["0'))
    assert mates(key(2), named[key(2)]) == []
    assert mates(key(1), named[key(1)]) == [key(1)]
