"""Results folders that another version of the package wrote."""

import shutil
import zlib

import pytest

from dp_erm_bench.cli.main import command
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment import lines
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def sealed(text):
    return text + b',"crc":"%08x"}\n' % zlib.crc32(text)


@pytest.fixture(params=[2, 4])
def other(request, inline, block):
    """A folder with a segment of another format."""
    inline(block(seed=[0, 1]))
    shutil.rmtree(inline.folder / "runs")
    segment = inline.folder / "segments" / "99999999999999999999-a-1-1-1.jsonl"
    first = b'{"segment":%d,"run":"9-a-1","version":"7.1"' % request.param
    segment.write_bytes(sealed(first) + b"\x00 of its own\n")
    return inline.folder, request.param


@pytest.mark.parametrize("name", ["collect", "run", "plan"])
def test_another_format_is_one_sentence_and_nothing_is_touched(
    other, inline, block, name, capsys
):
    folder, number = other
    before = contents(folder)
    if name == "collect":
        assert command("collect", [str(folder)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("dp-erm-bench: ") and said.count("\n") == 1
    else:
        with pytest.raises(UsageError) as caught:
            inline(block(seed=[0, 1, 2]), mode=name)
        said = str(caught.value)
    assert f"is of format {number}, written by version 7.1" in said
    assert "this version reads format 3" in said
    assert contents(folder) == before


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
