"""Results folders that another version of the package wrote."""

import json
import shutil
import zlib

import pandas as pd
import pytest

from dp_erm_bench.cli.main import command
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment import lines
from dp_erm_bench.results.store import Store, segments_of
from dp_erm_bench.results.table import load_results

OLD = "01700000000000000000-here-12.jsonl"


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def sealed(text):
    return text + b',"crc":"%08x"}\n' % zlib.crc32(text)


@pytest.fixture
def newer(inline, block):
    """A folder with a segment of the next format."""
    inline(block(seed=[0, 1]))
    shutil.rmtree(inline.folder / "runs")
    segment = inline.folder / "segments" / "99999999999999999999-a-1-1-1.jsonl"
    segment.write_bytes(
        sealed(b'{"segment":4,"run":"9-a-1","version":"7.1"') + b"\x00 of its own\n"
    )
    return inline.folder


@pytest.mark.parametrize("name", ["collect", "run", "plan"])
def test_a_newer_format_is_one_sentence_and_nothing_is_touched(
    newer, inline, block, name, capsys
):
    before = contents(newer)
    if name == "collect":
        assert command("collect", [str(newer)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("dp-erm-bench: ") and said.count("\n") == 1
    else:
        with pytest.raises(UsageError) as caught:
            inline(block(seed=[0, 1, 2]), mode=name)
        said = str(caught.value)
    assert "is of format 4, written by version 7.1" in said
    assert "reads formats up to 3" in said
    assert contents(newer) == before


@pytest.fixture
def older(inline, block):
    """A folder as the first version left it: no runs, no headers, no checksums."""
    assert inline(block(seed=[0, 1]), append_plan=True) == 0
    (segment,) = segments_of(inline.folder)
    records = [
        {k: v for k, v in json.loads(line).items() if k not in ("cost", "crc")}
        for line in segment.read_bytes().splitlines()
        if line.startswith(b'{"key"')
    ]
    lines = [json.dumps(one, separators=(",", ":")) + "\n" for one in records]
    (segment.parent / OLD).write_text("".join(lines))
    segment.unlink()
    manifest = inline.folder / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({"plan": content["plan"], "outcome": "complete"}))
    shutil.rmtree(inline.folder / "runs")
    table = pd.read_parquet(inline.folder / "results.parquet")
    table = table.drop(columns=["run", "dataset_options"])
    table.to_parquet(inline.folder / "results.parquet")
    return inline.folder


def test_what_an_older_version_recorded_counts(older, inline, block, capsys):
    capsys.readouterr()
    assert inline(block(seed=[0, 1, 2]), append_plan=True) == 0
    said = capsys.readouterr()
    assert "3 trials (1 run now): 3 ok" in said.out
    assert said.err.count("\n") == 1 and "results of an earlier version" in said.err
    table = load_results(older).drop_duplicates("trial").set_index("seed")
    assert table.loc[0, "run"] == table.loc[1, "run"] == ""
    assert (older / "runs" / f"{table.loc[2, 'run']}.json").is_file()


def test_results_of_an_earlier_version_are_told_once_by_a_run(inline, block, capsys):
    assert inline(block(seed=[0]), append_plan=True) == 0
    (segment,) = segments_of(inline.folder)
    first, *rest = segment.read_bytes().splitlines(keepends=True)
    header = json.loads(first) | {"segment": 2}
    del header["crc"]
    body = json.dumps(header, separators=(",", ":")).encode().removesuffix(b"}")
    segment.write_bytes(b"".join([sealed(body), *rest]))
    (inline.folder / "manifest.json").unlink()
    shutil.rmtree(inline.folder / "runs")
    told = "results of an earlier version; CHANGELOG.md says which to run again"
    for times, seeds in enumerate(([0], [0, 1])):
        capsys.readouterr()
        assert inline(block(seed=seeds), append_plan=True) == 0
        assert capsys.readouterr().err.count(told) == 1 - times


def test_its_table_gets_the_columns_of_today(older):
    table = load_results(older)
    assert set(table["run"]) == {""}
    assert set(table["dataset_options"]) == {'{"n": 60, "p": 5}'}


def test_an_old_segment_without_checksums_is_read_line_by_line(older):
    path = older / "segments" / OLD
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first[:100] + first[101:] + b"\x00\n" + second + first[:90])
    store = Store(older)
    assert [store.record(key)["status"] for key in store.index] == ["ok"] * len(
        store.index
    )
    assert json.loads(second)["key"] in store.index
    assert all(entry.run == "" for entry in store.index.values())


@pytest.mark.parametrize("append", [True, False])
def test_after_a_change_of_code_trials_run_anew_and_old_records_stay(
    inline, block, monkeypatch, capsys, append
):
    assert inline(block(seed=[0, 1, 2]), append_plan=append) == 0
    before = contents(inline.folder / "segments")
    old = set(load_results(inline.folder)["trial"])
    keyed = lines.sha256_of
    monkeypatch.setattr(lines, "sha256_of", lambda text: keyed(f"new code {text}"))
    capsys.readouterr()
    assert inline(block(seed=[0, 1]), append_plan=append) == 0
    assert "2 trials (2 run now): 2 ok" in capsys.readouterr().out
    table = load_results(inline.folder).drop_duplicates("trial")
    new = table[~table["trial"].isin(old)]
    assert sorted(new["seed"]) == [0, 1]
    # The sweep's third trial was not asked for again: its old record is all there is.
    kept = table[table["trial"].isin(old)]
    assert sorted(kept["seed"]) == ([2] if append else [])
    assert set(Store(inline.folder).index) == old | set(new["trial"])
    assert before.items() <= contents(inline.folder / "segments").items()
