"""Test random damage to every kind of file that the package writes.

Each case damages one file of a small folder and reads it as a user would. Every value
that is read must be as it was written. Otherwise it is left out, and a message says so.
"""

import contextlib
import io
import json
import random

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench.cli import app
from dp_erm_bench.datasets.load import load_arrays, save_arrays
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import sealed_json, unsealed_json
from dp_erm_bench.report.panels import open_choices
from dp_erm_bench.results import runs
from dp_erm_bench.results.files import write_text
from dp_erm_bench.results.runs import read_manifest, read_run, write_run
from dp_erm_bench.results.store import Store, read_plan
from dp_erm_bench.results.table import load_results
from dp_erm_bench.results.tuned import tuned_choices

CASES = 1000
WHOLE = 40
"""Of so many cases one is read through the table as well."""

CHOICES = "panel,line,epsilon,chosen,open\n" + "".join(
    f'p,"l{i}",0.{i},"{{""step"": {i}}}",{"step top" * (i % 2)}\n' for i in range(6)
)
CLAIMS = "figure,statement,measured,threshold,value,verdict,profile\n" + "".join(
    f"f{i},s,m,>= 1,{i}.25,{'holds' if i else 'fails'},smoke\n" for i in range(6)
)


def flip(data, rng):
    place = rng.randrange(len(data))
    changed = data[place] ^ 1 << rng.randrange(8)
    return data[:place] + bytes([changed]) + data[place + 1 :]


def overwrite(data, rng):
    place = rng.randrange(len(data))
    more = rng.randbytes(rng.randrange(1, 20))
    return data[:place] + more + data[place + len(more) :]


def insert(data, rng):
    place = rng.randrange(len(data))
    return data[:place] + rng.randbytes(rng.randrange(1, 20)) + data[place:]


def cut(data, rng):
    first, last = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:first] + data[last + 1 :]


def truncate(data, rng):
    return data[: rng.randrange(len(data))]


def on_lines(change):
    def damage(data, rng):
        lines = data.splitlines(keepends=True)
        return b"".join(change(lines, rng.randrange(len(lines)), rng))

    damage.__name__ = change.__name__
    return damage


def delete(lines, i, rng):
    return lines[:i] + lines[i + 1 :]


def double(lines, i, rng):
    return lines[: i + 1] + lines[i:]


def swap(lines, i, rng):
    j = rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return lines


def glue(lines, i, rng):
    return [*lines[:i], lines[i].rstrip(b"\n"), *lines[i + 1 :]]


WAYS = [
    *(flip, overwrite, insert, cut, truncate),
    *map(on_lines, (delete, double, swap, glue)),
]


def damages(data, cases=CASES):
    """Yield a number and damaged data: every way, as often as another."""
    rng = random.Random(len(data))
    for case in range(cases):
        changed = WAYS[case % len(WAYS)](data, rng)
        if changed != data:
            yield case, changed


@contextlib.contextmanager
def heard():
    runs._warn_of_manifest.cache_clear()
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        yield said


@pytest.fixture
def folder(inline, tuned, capsys):
    """A small experiment with all of its files."""
    inline(tuned(line="tuned"), append_plan=False)
    for name, text in (("choices.csv", CHOICES), ("claims.csv", CLAIMS)):
        write_text(inline.folder, name, text)
    drawn = {**read_manifest(inline.folder), "drawn": ["claims.csv"]}
    write_run(inline.folder, drawn)
    return inline.folder


def rows_of(folder):
    table = load_results(folder).drop(columns="run")
    return {key: rows.to_csv() for key, rows in table.groupby(["trial", "phase"])}


def check_table(folder, before, path, whole):
    """Read the table of a folder in which one file is damaged."""
    (folder / "results.parquet").unlink()
    with heard() as said:
        found = rows_of(folder)
    assert found.keys() <= before.keys()
    for key, rows in found.items():
        values = [line.partition(",")[2] for line in rows.splitlines()]
        assert values == [r.partition(",")[2] for r in before[key].splitlines()]
    assert len(found) == len(before) or said.getvalue()
    path.write_bytes(whole)


def test_records(folder):
    path = folder / "records.jsonl"
    whole, before = path.read_bytes(), rows_of(folder)
    store = Store(folder)
    records = {key: store.record(key) for key in store}
    lines = {json.loads(line).get("key"): line for line in whole.splitlines()}
    for case, data in damages(whole):
        path.write_bytes(data)
        store = Store(folder)
        found = dict(zip(store, store.records(store), strict=True))
        assert found == {key: records[key] for key in found}
        there = {*data.split(b"\n")[:-1]}
        assert {key for key in records if lines[key] in there} <= found.keys()
        if case % WHOLE == 0:
            check_table(folder, before, path, whole)


def test_plans(folder):
    path = folder / "plan.jsonl"
    whole, before = path.read_bytes(), rows_of(folder)
    known = [json.dumps(row) for row in read_plan(folder)]
    lines = dict(zip(known, whole.splitlines(), strict=True))
    for case, data in damages(whole):
        path.write_bytes(data)
        found = [*read_plan(folder)]
        good = [json.dumps(row) for row in found if row is not None]
        assert len(set(good)) == len(good) and set(good) <= set(known)
        there = {*data.split(b"\n")[:-1]}
        assert {row for row in known if lines[row] in there} <= set(good)
        assert good == known or None in found or not data
        if case % WHOLE == 0 and data:
            check_table(folder, before, path, whole)


def test_tables(folder):
    path = folder / "results.parquet"
    whole, before = path.read_bytes(), load_results(folder)
    for case, data in damages(whole, CASES // WHOLE):
        path.write_bytes(data)
        pd.testing.assert_frame_equal(load_results(folder), before)
        assert case >= 0 and path.read_bytes() == whole
    (folder / "records.jsonl").unlink()
    for _, data in damages(whole):
        path.write_bytes(data)
        with contextlib.suppress(UsageError):
            pd.testing.assert_frame_equal(load_results(folder), before)


def test_manifests(folder):
    path = folder / "manifest.json"
    whole, before = path.read_bytes(), read_manifest(folder)
    for _, data in damages(whole):
        path.write_bytes(data)
        assert read_manifest(folder) == before
    path.write_bytes(whole)
    path = folder / "runs" / f"{before['run']}.json"
    for _, data in damages(whole):
        path.write_bytes(data)
        with heard() as said:
            found = read_run(folder, before["run"])
        assert found == before or (found == {} and "left aside" in said.getvalue())


def test_choices_and_claims(folder, capsys):
    """Nothing vouches for a csv: it is shown, or refused in a sentence."""
    app.report(folder)
    assert "5 holds" in capsys.readouterr().out
    assert len(open_choices(folder)) == 3
    with pytest.raises(UsageError, match=r"choices\.csv: is damaged"):
        tuned_choices(folder)  # it has no column of parameters
    for name, read in (("choices.csv", open_choices), ("claims.csv", app.report)):
        path = folder / name
        for _, data in damages(path.read_bytes()):
            path.write_bytes(data)
            with contextlib.suppress(UsageError):
                read(folder)


@pytest.mark.parametrize("sparse", [False, True])
def test_dataset_caches(tmp_path, monkeypatch, sparse):
    from scipy.sparse import csc_array

    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path))
    X = np.asfortranarray(np.arange(12.0).reshape(4, 3) % 5)
    arrays = {"X": csc_array(X) if sparse else X, "y": np.array([1.0, -1, 1, -1])}
    content = save_arrays("datasets", "key", arrays)
    paths = sorted((tmp_path / "datasets").glob("key/*"))
    for path in paths:
        whole = path.read_bytes()
        for _, data in damages(whole, 2 * CASES // len(paths)):
            path.write_bytes(data)
            found = load_arrays("datasets", "key")
            if found is not None:
                assert found[1] == content
                read = found[0]["X"].toarray() if sparse else found[0]["X"]
                np.testing.assert_array_equal(read, X)
                np.testing.assert_array_equal(found[0]["y"], arrays["y"])
        path.write_bytes(whole)
    assert load_arrays("datasets", "key")


def test_sealed_objects():
    content = {"a": 1.5, "b": ["x", None], "c": {"d": True}}
    whole = sealed_json(content)
    assert unsealed_json(whole) == content
    for _, data in damages(whole):
        assert unsealed_json(data) in (None, content)
