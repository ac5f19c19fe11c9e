"""Test damaged files of a results folder: no record is invented, few are lost."""

import json
import os

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dp_erm_bench.results import files
from dp_erm_bench.results.bundle import copy_folder
from dp_erm_bench.results.store import RecordWriter, Store, encode_record
from dp_erm_bench.results.table import collect_table, load_results

RUN = "00000000000000000001-here-1"
TRIALS = 6


def record(number):
    path = {"iteration": [0, 7], "objective": [1.0, 0.1 * number], "nnz": [0, 1]}
    return {
        "key": f"{number:064x}",
        "status": "ok",
        "message": f"trial {number}",
        "facts": {"n": 10, "p": 2},
        "trajectory": path,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the bytes of real records, and each record by key."""
    folder = tmp_path_factory.mktemp("whole")
    writer = RecordWriter(folder, RUN)
    for number in range(TRIALS):
        writer.begin([f"{number:064x}"])
        writer.append([record(number)], 0.5)
    store = Store(folder)
    found = {key: store.record(key) for key in store}
    assert len(found) == TRIALS
    return (folder / "records.jsonl").read_bytes(), found


def store_of(folder, data):
    (folder / "records.jsonl").write_bytes(data)
    return Store(folder)


def touched(before, places):
    """Return the keys of the lines that hold these bytes."""
    keys, start = set(), 0
    for line in before.splitlines(keepends=True):
        if any(start <= place < start + len(line) for place in places):
            keys.add(json.loads(line).get("key"))
        start += len(line)
    return keys


FLIPS = st.lists(st.tuples(st.floats(0, 0.9999), st.integers(1, 255)), min_size=1)
ONE_FOLDER = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ONE_FOLDER
@given(flips=FLIPS)
def test_flipped_bytes_lose_their_own_records_only(tmp_path, whole, flips):
    before, records = whole
    data, places = bytearray(before), set()
    for share, flip in flips:
        place = int(share * len(data))
        data[place] ^= flip
        places.add(place)
    store = store_of(tmp_path, bytes(data))
    for key in store:
        assert store.record(key) == records[key]
    # A line's end joins it to the next one.
    ends = {p + 1 for p in places if before[p : p + 1] == b"\n"}
    assert set(records) - set(store) <= touched(before, places | ends)


@ONE_FOLDER
@given(first=st.floats(0, 1), second=st.floats(0, 1))
def test_a_cut_loses_its_own_records_only(tmp_path, whole, first, second):
    before, records = whole
    start, stop = sorted(int(share * len(before)) for share in (first, second))
    store = store_of(tmp_path, before[:start] + before[stop:])
    for key in store:
        assert store.record(key) == records[key]
    lost = set(records) - set(store)
    assert lost <= touched(before, range(start, min(stop + 1, len(before))))


@ONE_FOLDER
@given(garbage=st.binary(max_size=400), share=st.floats(0, 1))
def test_garbage_between_is_not_a_record(tmp_path, whole, garbage, share):
    before, records = whole
    place = int(share * len(before))
    store = store_of(tmp_path, before[:place] + garbage + before[place:])
    for key in store:
        assert store.record(key) == records[key]
    assert len(store) >= TRIALS - 1


def test_a_later_record_serves_where_one_is_damaged(tmp_path, whole):
    before, records = whole
    store_of(tmp_path, before.replace(b"trial 3", b"trial 4"))
    again = RecordWriter(tmp_path, RUN)
    again.append([record(3)])
    store = Store(tmp_path)
    assert store.record(f"{3:064x}")["message"] == "trial 3"
    assert len(store) == TRIALS


def damage(path, kind):
    data = path.read_bytes()
    middle = data.index(b'{"key"') + 200
    if kind == "flipped":
        path.write_bytes(data[:middle] + b"\xff" + data[middle + 1 :])
    elif kind == "truncated":
        path.write_bytes(data[:middle] + data[middle + 150 :])
    elif kind == "garbage":
        path.write_bytes(os.urandom(50) + b"\n" + data[middle:])
    else:
        path.write_bytes(b"")


@pytest.mark.parametrize(
    "kind, told",
    [
        ("flipped", "line 2 damaged and dropped: trials without a record run again"),
        ("truncated", "line 2 damaged and dropped: trials without a record run again"),
        ("garbage", "records.jsonl: line"),
        ("empty", ""),
    ],
)
def test_damage_is_told_once_and_made_good(inline, block, capsys, kind, told):
    assert inline(block(seed=[0, 1, 2])) == 0
    before = load_results(inline.folder)
    damage(inline.folder / "records.jsonl", kind)
    lost = 3 - len(Store(inline.folder))
    assert lost
    capsys.readouterr()
    assert inline(block(seed=[0, 1, 2])) == 0
    done = capsys.readouterr()
    assert f"3 trials ({lost} run now): 3 ok" in done.out
    assert told in done.err and done.err.count("\n") == bool(told)
    after = load_results(inline.folder)
    pd.testing.assert_frame_equal(before.drop(columns="run"), after.drop(columns="run"))
    assert inline(block(seed=[0, 1, 2])) == 0
    assert "(0 run now)" in (again := capsys.readouterr()).out
    assert again.err == ""


def test_collect_tells_of_damage_until_a_run_makes_it_good(inline, block, capsys):
    inline(block(seed=[0, 1, 2]))
    damage(inline.folder / "records.jsonl", "flipped")
    for _ in range(2):
        capsys.readouterr()
        collect_table(inline.folder)
        said = "results.parquet lacks 1 planned trial (records.jsonl: line 2 damaged); "
        assert said in capsys.readouterr().err
    assert load_results(inline.folder)["seed"].nunique() == 2
    inline(block(seed=[0, 1, 2]))
    capsys.readouterr()
    collect_table(inline.folder)
    assert capsys.readouterr().err == ""
    assert load_results(inline.folder)["seed"].nunique() == 3


@pytest.mark.parametrize("name", ["plan.jsonl", "results.parquet", "choices.csv"])
@pytest.mark.parametrize("data", [b"", b"\x00\xff\n{", b'{"key":"' + b"0" * 300])
@pytest.mark.parametrize("append", [True, False])
def test_a_damaged_file_is_made_again(inline, block, name, data, append):
    inline(block(seed=[0, 1]), append_plan=append)
    before = load_results(inline.folder)
    (inline.folder / name).write_bytes(data)
    assert inline(block(seed=[0, 1]), append_plan=append) == 0
    pd.testing.assert_frame_equal(load_results(inline.folder), before)
    if name == "choices.csv" and not append:
        assert (inline.folder / name).read_text().startswith("experiment,panel")


@pytest.mark.parametrize("data", [b"", b"[1]", b"\xff", b'{"run": ', b'{"damaged": 3}'])
def test_a_damaged_manifest_is_made_again(inline, block, data):
    inline(block(seed=[0, 1]))
    before = load_results(inline.folder)
    for path in [*(inline.folder / "runs").iterdir(), inline.folder / "manifest.json"]:
        path.write_bytes(data)
    assert inline(block(seed=[0, 1])) == 0
    manifest = json.loads((inline.folder / "manifest.json").read_bytes())
    assert manifest["outcome"] == "complete"
    pd.testing.assert_frame_equal(load_results(inline.folder), before)


def test_a_plan_damaged_in_the_middle_is_told_and_made_good(inline, block, capsys):
    inline(block(seed=[0, 1, 2]))
    plan = inline.folder / "plan.jsonl"
    lines = plan.read_bytes().splitlines(keepends=True)
    plan.write_bytes(lines[0] + lines[1][:-40] + b"\n" + lines[2])
    collect_table(inline.folder)
    assert "1 damaged line of plan.jsonl" in capsys.readouterr().err
    assert load_results(inline.folder)["seed"].nunique() == 2
    assert inline(block(seed=[0, 1, 2])) == 0
    assert load_results(inline.folder)["seed"].nunique() == 3
    assert plan.read_bytes() == b"".join(lines)


@pytest.mark.parametrize("append", [True, False])
def test_a_flipped_value_of_the_plan_is_told_and_made_good(
    inline, block, capsys, append
):
    inline(block(seed=[0, 1, 2]), append_plan=append)
    plan = inline.folder / "plan.jsonl"
    before = plan.read_bytes()
    plan.write_bytes(before.replace(b'"seed":1,"n_ch', b'"seed":7,"n_ch'))
    assert plan.read_bytes() != before
    capsys.readouterr()
    assert set(load_results(inline.folder)["seed"]) == {0, 2}
    assert "1 damaged line of plan.jsonl" in capsys.readouterr().err
    inline(block(seed=[0, 1, 2]), append_plan=append)
    assert "plan.jsonl: 1 damaged line" in capsys.readouterr().err
    assert json.loads((inline.folder / "manifest.json").read_text())["damaged"] == {
        "plan.jsonl": 1
    }
    assert sorted(plan.read_bytes().split()) == sorted(before.split()) or append
    assert sorted(load_results(inline.folder)["seed"].unique()) == [0, 1, 2]
    inline(block(seed=[0, 1, 2]), append_plan=append)
    assert capsys.readouterr().err == ""


def test_a_number_that_no_column_holds_costs_its_trial_only(inline, block, capsys):
    inline(block(seed=[7, 8, 9]))
    plan = inline.folder / "plan.jsonl"
    plan.write_bytes(plan.read_bytes().replace(b'"seed":8', b'"seed":8' + b"0" * 30))
    collect_table(inline.folder)
    assert "1 damaged line of plan.jsonl" in capsys.readouterr().err
    assert set(load_results(inline.folder)["seed"]) == {7, 9}


@pytest.mark.parametrize("place", ["plan", "record", "record of another folder"])
def test_every_reader_is_told_until_a_run_makes_it_good(
    place, inline, block, tmp_path, capsys
):
    """The first reader made the table again, and the next ones were not told."""
    blocks = block(seed=[0, 1, 2])
    inline(blocks)
    folder = inline.folder
    plan, path = folder / "plan.jsonl", folder / "records.jsonl"
    if place == "plan":
        plan.write_bytes(plan.read_bytes().replace(b'"seed":', b'"sEed":', 1))
    elif place == "record":
        damage(path, "flipped")
        (folder / "results.parquet").unlink()  # as long as it is there, it is right
    else:
        lines = path.read_bytes().splitlines(keepends=True)
        at = next(i for i, line in enumerate(lines) if line.startswith(b'{"key"'))
        lines[at] = encode_record(record(0))
        path.write_bytes(b"".join(lines))
    capsys.readouterr()
    for read in (load_results, load_results):
        assert read(folder)["seed"].nunique() == 2
        said = capsys.readouterr().err
        assert "results.parquet lacks 1 planned trial" in said
        assert ("damaged" in said) == ("of" not in place)
    copy_folder(folder, tmp_path / "copy")
    inline(blocks)
    capsys.readouterr()
    assert load_results(folder)["seed"].nunique() == 3
    copy_folder(folder, tmp_path / "whole")
    assert capsys.readouterr().err == ""


@ONE_FOLDER
@given(flips=FLIPS)
def test_lines_whose_checksums_fit_never_raise(tmp_path, whole, flips):
    """Whatever stands in them: their trials are left out, or shown as they are."""
    rows = [planned(record(number)["key"]) for number in range(TRIALS)]
    texts = {
        "records.jsonl": [record(n) for n in range(TRIALS)],
        "plan.jsonl": rows,
    }
    for name, values in texts.items():
        lines = []
        for value in values:
            changed = bytearray(files.compact_json(value))
            for share, flip in flips:
                changed[int(share * (len(changed) - 1))] ^= flip
            lines.append(
                files.add_checksum(bytes(changed[:-2]).replace(b"\n", b"") + b"}\n")
            )
        (tmp_path / name).write_bytes(b"".join(lines))
    collect_table(tmp_path)
    load_results(tmp_path)


def planned(key):
    part = {"name": "auto"}
    spec = {
        "dataset": {"name": "log1"},
        **dict.fromkeys(("loss", "penalty", "constraint"), part),
        "algorithm": {"name": "sgd", "params": {}},
        "budget": {"epsilon": 1.0, "delta": 0.1, "adjacency": "replace_one"},
        "calibration": "certified",
        "seed": 0,
    }
    labels = {"experiment": "e", "panel": "p", "line": "l", "phase": "sweep"}
    return {"key": key, **labels, "tuned": False, "measured": False, "spec": spec}
