"""Test results folders that another version of the package wrote."""

import pytest

from dp_erm_bench.experiment import lines
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results


@pytest.mark.parametrize("append", [True, False])
def test_after_a_change_of_code_trials_run_anew_and_old_records_stay(
    inline, block, monkeypatch, capsys, append
):
    assert inline(block(seed=[0, 1, 2]), append_plan=append) == 0
    before = (inline.folder / "records.jsonl").read_bytes()
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
    assert set(Store(inline.folder)) == old | set(new["trial"])
    assert (inline.folder / "records.jsonl").read_bytes().startswith(before)
