"""Test that a row of the table can be run again with the same bits."""

import json
import re
import shutil

import numpy as np
import pytest

from dp_erm_bench import fit, load_problem, load_results, replay
from dp_erm_bench.code_identity import digest_of_files
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment import lines
from dp_erm_bench.plugins.names import source_files
from dp_erm_bench.results import files
from dp_erm_bench.runner import replay as replaying
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.options import RunOptions
from tests.contract.own import broken

SMALL = {"name": "log1", "n": 60, "p": 5}
RANDOM = {"name": "random_cd", "clip": [1.0, 2.0], "passes": 2}
CSV = "a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(40))
FATAL = 0.75
OWN = broken(
    (
        "        for k in",
        f"        if np.any(self.step == {FATAL}):\n"
        "            raise ArithmeticError\n"
        "        for k in",
    )
)
EVIL = "open({marker!r}, 'w').write('was here')\n"


def sweep(folder, *blocks, n_jobs=2):
    options = RunOptions(progress=False, n_jobs=n_jobs, append_plan=True)
    usual = {"budget": {"epsilon": 1.0}, "seed": [0, 1, 2]}
    return run_experiment(
        [{**usual, **block} for block in blocks], "s", folder, options
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A sweep on a generator's data and on a file's, and one with a solver's file."""
    place = tmp_path_factory.mktemp("replay")
    (place / "records.csv").write_text(CSV)
    (place / "own.py").write_text(OWN)
    records = {"name": "file", "path": str(place / "records.csv")}
    own = {"name": str(place / "own.py"), "clip": 1.0, "step": [0.5, FATAL]}
    code = sweep(
        place / "results",
        {"dataset": SMALL, "algorithm": RANDOM},
        {"dataset": records, "algorithm": RANDOM},
        {"dataset": SMALL, "algorithm": own, "seed": [0, 1]},
        {"dataset": SMALL, "algorithm": "gd", "seed": 0},
    )
    assert code == 1
    return place


@pytest.fixture
def place(kept, tmp_path):
    """A copy of the folder, to be spoilt."""
    shutil.copytree(kept / "results", tmp_path / "results")
    return tmp_path


def row_of(folder, algorithm="random_cd", dataset="log1", status="ok", place=-1):
    table = load_results(folder)
    fits = (table.algorithm == algorithm) & (table.dataset == dataset)
    return table[fits & (table.status == status)].iloc[place]


def refused(words, *given, **named):
    with pytest.raises(UsageError, match=words) as caught:
        replay(*given, **named)
    assert "\n" not in str(caught.value)


def same(result, rows):
    rows = rows.reset_index(drop=True)
    for column in ("iteration", "passes", "objective", "nnz", "relative_error"):
        assert result.trajectory[column].tolist() == rows[column].tolist()
    assert result.epsilon_certified == rows.epsilon_certified[0]
    return True


def test_each_row_is_run_again_to_the_bit_with_those_of_its_batch(kept, monkeypatch):
    sizes, solve = [], replaying.solve_batch

    def listening(trials, problem):
        sizes.append(len(trials))
        return solve(trials, problem)

    monkeypatch.setattr(replaying, "solve_batch", listening)
    table = load_results(kept / "results")
    table = table[(table.algorithm == "random_cd") & (table.status == "ok")]
    assert set(table.batch_size) == {6}
    for key, rows in table.groupby("trial"):
        result = replay(key, kept / "results", data=kept)
        assert same(result, rows) and result.reproducible
        assert result.w.shape == (rows.p.iloc[0],)
    assert sizes == [6] * table.trial.nunique()


def test_a_row_may_be_given_as_it_comes_from_the_table(kept):
    folder = kept / "results"
    row = row_of(folder)
    rows = load_results(folder)
    rows = rows[rows.trial == row.trial]
    for given in (row, rows, rows.iloc[[0]], row.to_dict(), row.trial):
        assert same(replay(given, str(folder)), rows)
    for wrong in (
        load_results(folder),
        {"key": row.trial},
        "abc",
        7,
        None,
        [row.trial],
    ):
        refused("row: must be rows of one trial", wrong, folder)


def test_trials_that_ran_alone_after_a_fault_run_alone_again(kept):
    table = load_results(kept / "results")
    rows = table[(table.algorithm == "own") & (table.status == "ok")]
    assert rows.trial.nunique() == 2 and set(rows.batch_size) == {1}
    for key, found in rows.groupby("trial"):
        again = replay(key, kept / "results", algorithm=str(kept / "own.py"))
        assert same(again, found)
        problem = load_problem("log1", n=60, p=5)
        how = {"epsilon": 1.0, "clip": 1.0, "step": 0.5, "seed": found.seed.iloc[0]}
        single = fit(problem, str(kept / "own.py"), **how)
        assert single.w.tobytes() == again.w.tobytes()


def test_what_has_no_trajectory_is_refused(kept):
    folder = kept / "results"
    refused("ended as skipped", row_of(folder, "gd", status="skipped"), folder)
    refused("ended as error", row_of(folder, "own", status="error"), folder)
    refused("has no record", "0" * 64, folder)
    refused("no results folder", "0" * 64, kept)


# What changed since.


def test_other_code_is_refused(kept, monkeypatch):
    folder = kept / "results"
    monkeypatch.setattr(lines, "code_fingerprint", lambda *code: "other")
    refused("the code was changed since", row_of(folder), folder)


def test_other_data_are_refused(kept):
    folder, file = kept / "results", kept / "records.csv"
    row = row_of(folder, dataset="file")
    replay(row, folder, data=kept)
    try:
        file.write_text(CSV.replace("6", "5.5"))
        refused("the content of its dataset", row, folder, data=kept)
    finally:
        file.write_text(CSV)
    replay(row, folder, data=kept)


def test_a_solvers_file_must_be_named_and_hold_what_it_held(kept, tmp_path):
    folder = kept / "results"
    row = row_of(folder, "own")
    refused("executed only if you name it; give algorithm=", row, folder)
    other = tmp_path / "own.py"
    other.write_text(OWN + "\nVERSION = 2\n")
    refused("was changed since", row, folder, algorithm=str(other))
    refused("was changed since", row, folder, algorithm="random_cd")
    refused("is of random_cd", row_of(folder), folder, algorithm=str(other))
    refused("no such file", row, folder, algorithm=str(tmp_path / "none.py"))
    other.write_text(OWN + "\n# A comment changes no number.\n")
    replay(row, folder, algorithm=str(other))


# What is damaged, or made up.


def edit_plan(folder, change):
    """Rewrite the lines of a plan, with checksums that fit."""
    path = folder / "plan.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    for one in lines:
        for seal in ("crc", "lines", "sum"):
            one.pop(seal, None)
    path.write_bytes(
        b"".join(files.sealed_lines(map(files.compact_json, filter(change, lines))))
    )


def edit_records(folder, change):
    """Edit the records line by line; each gets a checksum that fits."""
    for path in [folder / "records.jsonl"]:
        lines = [change(json.loads(text)) for text in path.read_text().splitlines()]
        made = []
        for line in filter(None, lines):
            line.pop("crc", None)
            made.append(files.add_checksum(files.compact_json(line)))
        path.write_bytes(b"".join(made))


def test_an_edited_record_is_told(place):
    folder = place / "results"
    row = row_of(folder)

    def nudge(path):
        def change(line):
            if line.get("key") == row.trial:
                *parents, last = path
                inner = line
                for key in parents:
                    inner = inner[key]
                inner[last] = float(np.nextafter(inner[last], 9.0))
            return line

        return change

    paths = [("trajectory", "objective", 7), ("facts", "epsilon_certified")]
    for path in paths:
        shutil.copytree(folder, place / path[1])
        edit_records(place / path[1], nudge(path))
        refused(f"its {path[1]} is another one", row.trial, place / path[1])


def test_a_damaged_record_is_refused(place):
    folder = place / "results"
    row = row_of(folder)
    for path in [folder / "records.jsonl"]:
        text = path.read_bytes()
        start = b'{"key":"%s"' % row.trial.encode()
        path.write_bytes(
            text.replace(start + b',"status":"ok"', start + b',"status":"oK"')
        )
    refused("has no record, or its record is damaged", row.trial, folder)


def test_a_record_that_names_no_batch_is_refused(place):
    folder = place / "results"
    key = row_of(folder).trial
    edit_records(folder, lambda line: {k: v for k, v in line.items() if k != "batch"})
    refused("does not name the trials that ran with it", key, folder)


def test_a_batch_without_its_mark_is_refused(place):
    folder = place / "results"
    key = row_of(folder).trial
    edit_records(folder, lambda line: None if "begin" in line else line)
    refused("the mark of its batch is missing or damaged", key, folder)


def test_a_mark_of_another_order_is_damaged(place):
    folder = place / "results"
    key = row_of(folder).trial

    def turned(line):
        return {**line, "begin": line["begin"][::-1]} if "begin" in line else line

    edit_records(folder, turned)
    refused("the mark of its batch is missing or damaged", key, folder)


def test_a_batch_that_the_plan_lacks_is_refused(place):
    folder = place / "results"
    key = row_of(folder).trial
    edit_plan(folder, lambda line: line["key"] == key)
    refused(re.escape("of 6 trials, of which plan.jsonl lacks 5"), key, folder)


def test_a_changed_mate_is_refused(place):
    folder = place / "results"
    row = row_of(folder)

    def change(line):
        mate = line["key"] != row.trial and line["spec"]["dataset"]["name"] == "log1"
        if mate and line["spec"]["algorithm"]["name"] == "random_cd":
            line["spec"]["seed"] += 10
        return True

    edit_plan(folder, change)
    refused("in a trial that ran with it", row.trial, folder)


def evil(line, marker, file):
    """What a forger may write into the spec of a trial."""
    algorithm = line["spec"]["algorithm"]
    found = {
        "a file of code": {"algorithm": {**algorithm, **file}},
        "a file as a name": {"algorithm": {**algorithm, "name": file["file"]}},
        "a pinned name": {
            "algorithm": {**algorithm, "name": f"{file['file']}#{file['content']}"}
        },
        "a loader": {"dataset": {**line["spec"]["dataset"], "_target_": "evil.load"}},
        "another dataset": {"dataset": {"name": "../evil"}},
        "a loss": {"loss": {"name": "logistic", "_target_": "evil.load"}},
        "a task": {"task": {"name": "audit", "_target_": "evil.load"}},
        "a set in a file": {"constraint": {"name": "polytope", "vertices": marker}},
        "no algorithm": {"algorithm": None},
        "no dataset": {"dataset": 7},
        "no seed": {"seed": None},
    }
    return {name: {**line["spec"], **change} for name, change in found.items()}


FORGED = [
    *evil({"spec": {"algorithm": {}, "dataset": {}}}, "", {"file": "", "content": ""})
]


@pytest.mark.parametrize("forged", ["all", "others of the first", "others of the last"])
@pytest.mark.parametrize("name", FORGED)
def test_nothing_that_a_folder_names_is_executed(name, forged, place, monkeypatch):
    folder, marker = place / "results", str(place / "marker")
    (place / "evil.py").write_text(EVIL.format(marker=marker))
    monkeypatch.syspath_prepend(place)
    monkeypatch.chdir(place)
    path = str(place / "evil.py")
    file = {"file": path, "content": digest_of_files(source_files(path))}
    key = row_of(folder, place=0 if "first" in forged else -1).trial

    def forge(line):
        if forged == "all" or line["key"] != key:
            line["spec"] = evil(line, marker, file)[name]
        return True

    edit_plan(folder, forge)
    try:
        replay(key, folder)
        # What is harmless is not looked at: the loader is the registry's.
        assert name in ("a loader", "a loss", "a task")
    except UsageError as error:
        assert "\n" not in str(error)
    assert not (place / "marker").exists()


def test_estimating_in_a_folder_executes_nothing_that_it_names(place, capsys):
    """Other sweeps of the folder tell how long trials take, by specs of its plan."""
    folder, marker = place / "results", str(place / "marker")
    (place / "evil.py").write_text(EVIL.format(marker=marker))
    content = digest_of_files(source_files(str(place / "evil.py")))

    def forge(line):
        line["spec"]["algorithm"] |= {
            "file": str(place / "evil.py"),
            "content": content,
        }
        return True

    edit_plan(folder, forge)
    options = RunOptions(progress=False, mode="plan", append_plan=True)
    block = {"dataset": SMALL, "algorithm": {**RANDOM, "passes": 3}, "seed": 7}
    assert run_experiment([block], "s", folder, options) == 0
    assert not (place / "marker").exists()
