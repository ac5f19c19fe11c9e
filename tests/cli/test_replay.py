"""Test `dp-erm-bench bundle` and `replay`, as used by somebody who trusts nobody."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench.cli.main import main
from dp_erm_bench.paths import unsealed_json
from dp_erm_bench.results import files
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.store import encode_record
from dp_erm_bench.results.table import collect_table, load_results
from dp_erm_bench.runner import experiment, replay, session
from dp_erm_bench.runner.options import RunOptions
from tests.contract.own import broken
from tests.pages import ROOT, code_blocks
from tests.runner.conftest import InlinePool

CSV = "a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(40))
FATAL = 0.75
OWN = broken(
    (
        '"""Noisy gradient descent."""',
        '"""Noisy gradient descent."""\n\nfrom helper import same',
    ),
    ("np.broadcast_to(self.step *", "np.broadcast_to(same(self.step) *"),
    (
        "        for k in",
        f"        if np.any(self.step == {FATAL}):\n"
        "            raise ArithmeticError\n"
        "        for k in",
    ),
)
LOSS = ROOT / "tests" / "extending" / "loss"
HELPER = "def same(step):\n    return step\n"
TRACE = "\n\nopen({!r}, 'w').close()\n"
SMALL = {"name": "log1", "n": 60, "p": 5}


def swept(folder, *blocks, **more):
    """Run blocks in this process; return the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Pool", InlinePool)
        patch.setattr(experiment, "Worker", lambda execute: None)
        options = RunOptions(progress=False, append_plan=True, **more)
        usual, seeds = {"budget": {"epsilon": 1.0}}, {"seed": [0, 1]}
        every = [{**usual, **(seeds if "tune" not in b else {}), **b} for b in blocks]
        return experiment.run_experiment(every, folder.name, folder, options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A sweep of an own solver on a csv, and of greedy coordinate descent."""
    place = tmp_path_factory.mktemp("made")
    for name, text in {"own": OWN, "helper": HELPER, "other": "SECRET = 1\n"}.items():
        (place / f"{name}.py").write_text(text)
    (place / "my.csv").write_text(CSV)
    records = {"name": "file", "path": str(place / "my.csv"), "public": True}
    own = {"name": str(place / "own.py"), "clip": 1.0, "step": [0.5, FATAL]}
    greedy = {"name": "greedy_cd", "clip": 1.0, "n_iter": 3}
    code = swept(
        place / "mine",
        {"dataset": records, "algorithm": own},
        {"dataset": SMALL, "algorithm": greedy},
        command=("/usr/bin/dp-erm-bench", f"algorithm={place}/own.py"),
        files={"mine.yaml": b"path: x.csv\n"},
    )
    assert code == 1
    assert main(["bundle", str(place / "mine")]) == 0
    return place


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A folder with the zip and the csv, and nothing else."""
    shutil.copy(made / "mine.zip", tmp_path)
    shutil.copy(made / "my.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unpacked(here):
    """The same, unpacked."""
    zipfile.ZipFile("mine.zip").extractall("mine")
    return here / "mine"


@pytest.fixture
def told(capsys):
    """Replay all rows; return the lines of stdout."""

    def told(*line, code=0):
        capsys.readouterr()
        assert main(["replay", "--sample=all", *map(str, line)]) == code
        return capsys.readouterr().out.splitlines()

    return told


def verdicts(lines, line):
    """The verdicts of the rows of a line that are not the same."""
    found = [one for one in lines if re.search(r" [0-9a-f]{12} ", one) and line in one]
    return [one.partition(":")[0] for one in found]


def test_a_bundle_has_all_but_the_data(made):
    archive = zipfile.ZipFile(made / "mine.zip")
    members = {name: archive.read(name) for name in archive.namelist()}
    kept = {name.rpartition("/")[2] for name in members if name.startswith("sources/")}
    assert kept == {"own.py", "helper.py", "mine.yaml"}
    texts = {"report.html", "README.md", "requirements.lock", "manifest.json"}
    assert texts | {"results.parquet", "plan.jsonl"} <= members.keys()
    assert not any(CSV[:60].encode() in data for data in members.values())
    rows = pd.read_parquet(io.BytesIO(members["results.parquet"]))
    assert "ArithmeticError" in rows.to_csv()
    about = members["README.md"].decode()
    for use in {u for text in rows["uncharged"] for u in text.split(",") if u}:
        assert f"- `{use}`: " in about
    assert "\n| w = 0 |" in about
    assert "own.py" in about and "`my.csv`: content " in about and "SHA-256 " in about
    assert "dp-erm-bench replay mine.zip --sample 5 --trust" in about
    read = re.search(
        "Read `(sources/[0-9a-f]{16}/)helper.py`, `(.*)own.py` first", about
    )
    assert read[1] == read[2]
    # It is true of a page with digests and a path in it.
    assert "no data" not in about and "The data files are not in here." in about
    assert "It holds paths and names of machines and users" in about
    assert b"\nnumpy==" in members["requirements.lock"]
    manifest = unsealed_json(members["manifest.json"])
    assert manifest["data"][1]["name"].startswith("log1")


def test_lines_of_another_file_among_the_records_are_left_out(made, tmp_path):
    """A plan among the records: its lines are sealed, and have keys."""
    folder = shutil.copytree(made / "mine", tmp_path / "mine")
    with (folder / "records.jsonl").open("ab") as file:
        file.write((folder / "plan.jsonl").read_bytes())
    assert main(["bundle", str(folder)]) == 0
    archive = zipfile.ZipFile(tmp_path / "mine.zip")
    assert b'"spec"' not in archive.read("records.jsonl")


def test_a_bundle_of_a_plan_without_its_records_says_so(made, tmp_path, capsys):
    folder = shutil.copytree(made / "mine", tmp_path / "mine")
    for path in [folder / "records.jsonl"]:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-1]))
    (folder / "results.parquet").unlink()
    capsys.readouterr()
    assert main(["bundle", str(folder)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert re.search(r"[1-5] planned trials? without a record left out", told[0])
    page = zipfile.ZipFile(tmp_path / "mine.zip").read("report.html").decode()
    assert re.search(r"Incomplete: [1-5] of 6 planned trials", page)
    # It works on a copy, of which nobody has heard.
    assert len(told) > 1 and all(one.startswith(f"{folder}: ") for one in told)


def test_a_zip_is_repeated_to_the_bit_and_its_code_runs_only_if_trusted(here, told):
    lines = told("mine.zip", code=1)
    assert lines[0] == "mine.zip: 4 rows, 4 drawn"
    assert verdicts(lines, "own") == ["not replayed"] * 2
    words = (
        r"own code; read sources/[0-9a-f]{16}/own.py and .*, then add --trust to run"
    )
    assert sum(bool(re.search(words, line)) for line in lines) == 1
    assert sum(line.endswith(": for the same reason") for line in lines) == 1
    assert lines[-2:] == [
        "4 rows: 2 same, 2 not replayed",
        "answer: 2 of 4 are the same, to the bit",
    ]
    lines = told("mine.zip", "--trust")
    assert lines[1:] == ["4 rows: 4 same", "answer: all are the same, to the bit"]


def test_the_folder_itself_is_repeated_from_anywhere(made, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = told(made / "mine", "--trust", f"--data={made}")
    assert lines[-1] == "answer: all are the same, to the bit"


def test_replay_writes_nothing_into_the_folder(unpacked, told):
    """Neither a table nor what a solver leaves beside it."""
    (unpacked / "results.parquet").unlink()
    before = {p: p.read_bytes() for p in unpacked.rglob("*") if p.is_file()}
    told(unpacked, "--trust")
    assert {p: p.read_bytes() for p in unpacked.rglob("*") if p.is_file()} == before


def test_a_sample_is_drawn_again_by_its_seed(here, told, capsys):
    drawn = []
    for seed in ("3", "3", "4", "5"):
        assert main(["replay", "mine.zip", "--sample", "1", "--seed", seed]) in (0, 1)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"mine.zip: 4 rows, 1 drawn (--seed {seed} draws them again)"
        drawn.append(lines[1:])
    assert drawn[0] == drawn[1]


# Data.


@pytest.mark.parametrize("change", ["other", "gone", "no csv"])
def test_rows_of_other_data_are_not_replayed(change, here, told):
    file = here / "my.csv"
    if change == "gone":
        file.unlink()
    else:
        file.write_text(CSV.replace("6", "5.5") if change == "other" else "\0")
    lines = told("mine.zip", "--trust", code=1)
    assert verdicts(lines, "own") == ["not replayed"] * 2
    assert lines[-2] == "4 rows: 2 same, 2 not replayed"
    words = {
        "other": "the content of its dataset, or its line in plan.jsonl, was changed",
        "gone": "no such file",
        "no csv": "my.csv",
    }
    assert sum(words[change] in line for line in lines if line[:3] == "not") == 1


def test_data_may_lie_elsewhere(here, told):
    (here / "data").mkdir()
    (here / "my.csv").rename(here / "data" / "my.csv")
    assert told("mine.zip", "--trust", "--data=data")[-2] == "4 rows: 4 same"


# Edits.


def edit_records(folder, change):
    """Edit the records of a line, with checksums that fit, and the table with them."""
    path = folder / "records.jsonl"
    lines = []
    for text in path.read_bytes().splitlines(keepends=True):
        record = json.loads(text)
        if "key" in record:
            record.pop("crc")
            change(record)
            text = encode_record(record, record["cost"])
        lines.append(text)
    path.write_bytes(b"".join(lines))
    collect_table(folder)


def nudge(by):
    """Move the objectives of greedy coordinate descent by a relative amount."""

    def change(record):
        path = record["trajectory"]
        if record["facts"].get("params", {}).get("n_iter") == 3:
            path["objective"] = [value * (1.0 + by) for value in path["objective"]]

    return change


def test_numbers_that_are_edited_everywhere_are_told(unpacked, told):
    edit_records(unpacked, nudge(1e-15))
    lines = told(unpacked, code=1)
    assert verdicts(lines, "greedy_cd") == ["differs"] * 2
    assert any("its objective is another one than recorded" in line for line in lines)


def test_elsewhere_numbers_may_differ_in_their_last_digits(unpacked, told, monkeypatch):
    here = {**replay.machine_kind(), replay.CPU: "another"}
    monkeypatch.setattr(replay, "machine_kind", lambda: here)
    lines = told(unpacked, "--trust")
    assert lines[-1] == "answer: all are the same"
    assert any("not the machine of the run: CPU " in line for line in lines)
    edit_records(unpacked, nudge(1e-12))
    lines = told(unpacked, "--trust")
    assert lines[-2] == "4 rows: 4 same"
    assert any("difference of such a row is 1e-12" in line for line in lines)
    edit_records(unpacked, nudge(1e-6))
    lines = told(unpacked, "--trust", code=1)
    assert verdicts(lines, "greedy_cd") == ["differs"] * 2
    assert sum("relative difference is 1e-06; elsewhere" in line for line in lines) == 2
    assert lines[-2] == "4 rows: 2 same, 2 differs"


def test_an_edited_plan_is_told(unpacked, told):
    path = unpacked / "plan.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for seal in ("crc", "lines", "sum"):
            line.pop(seal, None)
        if line["spec"]["algorithm"]["name"] == "greedy_cd":
            line["spec"]["budget"]["epsilon"] = 0.5
    path.write_bytes(b"".join(files.sealed_lines(map(files.compact_json, lines))))
    collect_table(unpacked)
    lines = told(unpacked, code=1)
    assert verdicts(lines, "greedy_cd") == ["not replayed"] * 2
    assert sum("or its line in plan.jsonl, was changed since" in x for x in lines) == 1


@pytest.mark.parametrize("change", ["edited", "gone"])
def test_an_edited_source_does_not_run_even_if_trusted(unpacked, told, change):
    trace = unpacked.parent / "trace"
    (file,) = unpacked.glob("sources/*/helper.py")
    if change == "edited":
        file.write_text(HELPER + TRACE.format(str(trace)))
    else:
        file.with_name("own.py").unlink()
    lines = told(unpacked, "--trust", code=1)
    assert verdicts(lines, "own") == ["not replayed"] * 2
    words = {"edited": "was changed since", "gone": "own.py was not kept"}[change]
    assert sum(words in line for line in lines) == 1
    assert not trace.exists()


def test_an_edited_source_goes_into_no_bundle(made, tmp_path, capsys):
    folder = shutil.copytree(made / "mine", tmp_path / "mine")
    (file,) = folder.glob("sources/*/helper.py")
    file.write_text("# A comment changes nothing.\n" + HELPER)
    assert main(["bundle", str(folder)]) == 0
    (tmp_path / "mine.zip").unlink()
    file.write_text(HELPER.replace("return step", "return 2 * step"))
    capsys.readouterr()
    assert main(["bundle", str(folder)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "own.py was changed since the run: put back the file that ran" in said
    assert not (tmp_path / "mine.zip").exists()


def test_the_module_beside_a_kept_solver_wins_over_its_namesakes(
    here, told, monkeypatch
):
    (here / "elsewhere").mkdir()
    for place in (here, here / "elsewhere"):
        (place / "helper.py").write_text("raise RuntimeError('the wrong module')\n")
        monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    lines = told("mine.zip", "--trust")
    assert lines[-1] == "answer: all are the same, to the bit"


def test_rows_without_a_record_or_of_another_code_are_told(unpacked, told, monkeypatch):
    from dp_erm_bench.experiment import lines as trials

    monkeypatch.setattr(trials, "code_fingerprint", lambda *code: "other")
    lines = told(unpacked, "--trust")
    assert any("the code, or a version of numpy" in line for line in lines)
    assert lines[-1] == "answer: all are the same"
    path = unpacked / "records.jsonl"
    kept = [x for x in path.read_bytes().splitlines(True) if b"greedy" not in x]
    path.write_bytes(b"".join(x for x in kept if b'"n_iter":3' not in x))
    lines = told(unpacked, "--trust")
    assert lines[0].endswith("2 rows, 2 drawn; 2 planned trials without a record")
    assert lines[-2] == "2 rows: 2 same"


@pytest.mark.slow
def test_a_loss_of_ones_own_is_not_repeated(tmp_path, told, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(LOSS, tmp_path / "code")
    (file,) = (tmp_path / "code").glob("*.py")
    algorithm = {"name": "random_cd", "clip": 1.0, "passes": 2}
    data = {"name": "median_regression", "n": 60, "p": 5}
    block = {"dataset": data, "loss": {"name": str(file)}, "algorithm": algorithm}
    assert swept(tmp_path / "lossy", block) == 0
    assert main(["bundle", "lossy"]) == 0
    lines = told("lossy.zip", "--trust", code=1)
    assert lines[-2] == "2 rows: 0 same, 2 not replayed"
    assert sum("a trial of a loss's file is not replayed" in x for x in lines) == 1
    kept = zipfile.ZipFile("lossy.zip").namelist()
    assert any(name.endswith(f"/{file.name}") for name in kept)


@pytest.mark.slow
def test_the_recipe_of_the_page_runs_for_a_new_user(tmp_path, environment):
    """Typed as it stands, on an empty home, in another folder than the author's."""
    first, second = code_blocks("share", "sh")
    bins = tmp_path / "bin"
    bins.mkdir()
    (bins / "dp-erm-bench").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m dp_erm_bench "$@"\n'
    )
    (bins / "dp-erm-bench").chmod(0o755)
    said = ""
    for name, lines in {"author": first, "reviewer": second}.items():
        place = tmp_path / name
        (place / "results").mkdir(parents=True)
        if name == "reviewer":
            shutil.copy(
                tmp_path / "author" / "results" / "paper.zip", place / "results"
            )
        own = {k: v for k, v in environment.items() if not k.startswith("DP_ERM")}
        own |= {"HOME": str(place), "PATH": f"{bins}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-e", "-c", lines],
            cwd=place,
            env=own,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        said = done.stdout
    assert said.splitlines()[-2:] == [
        "5 rows: 5 same",
        "answer: all are the same, to the bit",
    ]


# Wrong input.


def test_wrong_input_is_a_sentence(here, capsys):
    (here / "no.zip").write_text("no")
    (here / "empty").mkdir()
    with zipfile.ZipFile("other.zip", "w") as archive:
        archive.writestr("../evil.csv", "")
    for line, words in {
        ("mine.zip", "--sample", "0"): "--sample 0: must be an integer of at least 1",
        ("mine.zip", "--sample=-3"): "--sample -3: must be an integer of at least 1",
        ("mine.zip", "--sample=x\x1b[2J"): "must be an integer of at least 1, or all",
        ("mine.zip", "--sample"): "argument --sample: expected one argument",
        ("mine.zip", "--sample", "00"): "--sample 00: must be an integer of at least 1",
        ("mine.zip", "--seed=x"): "argument --seed: invalid int value: 'x'",
        ("mine.zip", "--data=none"): "none: no such folder",
        ("mine.zip", "--trust=yes"): "argument --trust: ignored explicit argument",
        ("mine.zip", "--unsafe"): "replay: unrecognized arguments: --unsafe; as in ",
        ("mine.zip", "other.zip"): "unrecognized arguments: other.zip",
        (): "the following arguments are required: folder",
        ("none.zip",): "none.zip: no such folder and no such file",
        ("no.zip",): "no.zip: is no zip",
        ("empty",): "empty: no results folder",
        ("other.zip",): 'its member "../evil.csv" is none that a bundle has',
    }.items():
        assert main(["replay", *line]) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1 and "Traceback" not in said
    for line, words in {
        ("none",): "none: no such folder",
        ("empty",): "empty: no results folder",
        ("empty", "empty"): "unrecognized arguments: empty",
        ("empty", "--out"): "argument --out: expected one argument",
    }.items():
        assert main(["bundle", *line]) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1


def test_distances_are_relative_and_unlike_columns_are_infinitely_apart():
    assert replay.relative_distance([1.0, 2.0], [1.0, 2.0 + 2e-9]) == pytest.approx(
        1e-9
    )
    assert replay.relative_distance([None, 1.0], [None, 1.0]) == 0.0
    assert replay.relative_distance([1.0, 1e-30], [1.0, 2e-30]) == pytest.approx(1e-24)
    for again in ([1.0], [1.0, None], ["1.0", 2.0]):
        assert np.isinf(replay.relative_distance([1.0, 2.0], again))


def test_the_rows_of_a_folder_are_all_in_its_table(made):
    assert set(load_results(made / "mine")["status"]) == {"ok", "error"}


# Data that nobody declared public.

KNOWN = [(i % 9 / 9 - 0.5, i % 7 / 7 - 0.5) for i in range(39)]
TRUE = (0.234, 0.5)
GUESSES = [(round(x / 1000 - 1, 3), y) for x in range(2001) for y in (-0.4, 0.5)]
SEED = 31337


def csv_with(record):
    """The csv of who knows all records but one."""
    return "a,label\n" + "".join(f"{a},{b}\n" for a, b in [*KNOWN, record])


def numbers_in(path):
    """All numbers and all texts of a bundle."""
    archive = zipfile.ZipFile(path)
    texts = {name: archive.read(name) for name in archive.namelist()}
    rows = pd.read_parquet(io.BytesIO(texts.pop("results.parquet")))
    whole = "\n".join(
        [rows.to_json(double_precision=15)] + [t.decode() for t in texts.values()]
    )
    whole = re.sub(r"base64,[A-Za-z0-9+/=]*", "", whole)
    found = re.findall(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?(?![\w.])", whole)
    return whole, np.array(sorted({float(one) for one in found}))


def holds(numbers, value):
    place = int(np.searchsorted(numbers, value))
    near = numbers[max(place - 1, 0) : place + 1]
    return bool((np.abs(near - value) <= 1e-12 * abs(value)).any())


def ridge(record):
    """The least objective and that at 0 of who knows the rest: a closed form."""
    a, b = np.array([*KNOWN, record]).T
    w = (a @ b) / (a @ a + 0.1 * a.size)
    return (np.mean((a * w - b) ** 2) + 0.1 * w * w) / 2, np.mean(b * b) / 2


def found_by_attacks(path, place, monkeypatch):
    """What each attack finds: the guesses that a bundle's numbers confirm."""
    from dp_erm_bench import fit, load_problem

    monkeypatch.chdir(place)
    whole, numbers = numbers_in(path)
    found = {name: [] for name in ("hash", "optimum", "objective", "noise", "r2")}
    for guess in GUESSES:
        text = csv_with(guess)
        digest = hashlib.sha256(text.encode()).hexdigest()
        content = hashlib.sha256(f"csv {digest}".encode()).hexdigest()
        if digest in whole or content[:16] in whole:
            found["hash"].append(guess)
        least, zero = ridge(guess)
        if holds(numbers, least):
            found["optimum"].append(guess)
        if holds(numbers, zero) and guess[0] == TRUE[0]:
            found["objective"].append(guess)
    # Who has the seed runs the trial again: its noise is no secret.
    for guess in [*GUESSES[::2000], TRUE]:
        Path("guess.csv").write_text(csv_with(guess))
        mine = {**PRIVATE, **SQUARED, "path": "guess.csv"}
        for name, column, share in (("noise", "objective", 0.0), ("r2", "r2", 0.25)):
            problem = load_problem("file", **mine, test_fraction=share)
            again = fit(problem, "gd", epsilon=1.0, seed=SEED, clip=1.0, n_iter=3)
            if holds(numbers, again.trajectory[column].iloc[-1]):
                found[name].append(guess)
    return found


PRIVATE = {"label": "label", "task": "regression", "header": True}
PRIVATE |= {"bounds": {"norm": 1, "label": 1}}
SQUARED = {"loss": "squared", "penalty": {"name": "l2", "strength": 0.1}}
RMS = {"unit": "gradient_rms", "values": [0.5, 1.0]}


def private_sweep(place, record, more=()):
    """Run a sweep on a csv that nobody declared public; return its folder."""
    place.mkdir()
    (place / "my.csv").write_text(csv_with(record))
    mine = {"name": "file", **PRIVATE, "path": str(place / "my.csv")}
    own = {"dataset": mine, **SQUARED}
    gd = {"name": "gd", "clip": 1.0, "n_iter": 3}
    tune = {"axes": {"clip": RMS}, "seeds": [1, 2], "report": [3, 4]}
    swept(
        place / "mine",
        {**own, "algorithm": gd, "seed": [SEED]},
        {**own, "dataset": {**mine, "test_fraction": 0.25}, "algorithm": gd}
        | {"seed": [SEED]},
        {**own, "algorithm": {"name": "bias_reduced_sgd", "n_iter": 20, "clip": 1}},
        {**own, "algorithm": {**gd, "clip": RMS}, "line": "rms"},
        {**own, "algorithm": {**gd, "step": 1e300}, "penalty": "none", "line": "lost"},
        {**own, "algorithm": {"name": "ssp"}, "constraint": "l2_ball"},
        {
            **own,
            "algorithm": {"name": "gd", "n_iter": 3},
            "line": "tuned",
            "tune": tune,
        },
        *more,
        command=("dp-erm-bench", "dataset=file", f"seed={SEED}"),
        files={"mine.yaml": f"seed: {SEED}\n".encode()},
    )
    return place / "mine"


def test_a_bundle_of_private_data_tells_nothing_by_which_a_guess_is_checked(
    tmp_path, monkeypatch, capsys
):
    folder = private_sweep(tmp_path / "a", TRUE)
    out = {"whole": tmp_path / "whole.zip", "mine": tmp_path / "mine.zip"}
    capsys.readouterr()
    assert main(["bundle", str(folder), "--out", str(out["mine"])]) == 0
    assert "settings, statuses and budgets alone" in capsys.readouterr().out
    more = ["--with-private-numbers", "--out", str(out["whole"])]
    assert main(["bundle", str(folder), *more]) == 0
    whole = found_by_attacks(out["whole"], tmp_path, monkeypatch)
    assert all(found == [TRUE] for found in whole.values()), whole
    found = found_by_attacks(out["mine"], tmp_path, monkeypatch)
    assert not any(found.values()), found
    texts, _ = numbers_in(out["mine"])
    manifest = read_manifest(folder)
    lines = (folder / "plan.jsonl").read_text().splitlines()
    own = {json.loads(line)["key"] for line in lines}
    own |= {str(SEED), *manifest["data"][0].values()} - {"file", "my.csv", False}
    own |= {str(one) for one in load_results(folder)["references"].unique()} - {"{}"}
    assert not [one for one in own if str(one) in texts]
    pages = [zipfile.ZipFile(one).read("README.md").decode() for one in out.values()]
    assert pages[0].splitlines()[2].startswith("Whoever guesses a record ")
    assert pages[1].splitlines()[2].startswith("Of data that nobody declared public ")
    capsys.readouterr()
    assert main(["replay", str(out["mine"])]) == 0
    said = capsys.readouterr().out.splitlines()
    (line,) = said
    assert (
        "holds nothing to compare for 14 trials on undeclared data; with my.csv" in line
    )
    assert line.endswith("replay a zip that was made by bundle --with-private-numbers")


def test_bundles_of_neighbours_are_the_same_but_for_times(tmp_path):
    """Also the trials of searches, choices, thresholds and random schedules."""
    kept = []
    for name, record in (("a", TRUE), ("b", (-0.9, -0.5))):
        # In one place, for paths stand in a bundle.
        folder = private_sweep(tmp_path / "place", record)
        assert main(["bundle", str(folder)]) == 0
        folder.parent.rename(tmp_path / name)
        archive = zipfile.ZipFile(tmp_path / name / "mine.zip")
        rows = pd.read_parquet(io.BytesIO(archive.read("results.parquet")))
        assert {*rows["status"]} >= {"ok", "diverged", "skipped"}
        assert {*rows["phase"]} == {"sweep", "report"} and rows["seed"].isna().all()
        manifest = unsealed_json(archive.read("manifest.json"))
        times = ("run", "started", "crc", "drawn", "table")
        records = [
            re.sub(r'"run":"[^"]*"|"crc":"[^"]*"', "", line)
            for line in archive.read("records.jsonl").decode().splitlines()
        ]
        texts = [archive.read(one) for one in ("plan.jsonl", "README.md")]
        kept.append(
            (
                *(sorted(records), texts),
                rows.drop(columns="run").to_csv(),
                {k: v for k, v in manifest.items() if k not in times},
                [
                    re.sub(r"\d{20}-\w+-\d+(-\d+)*", "", one)
                    for one in archive.namelist()
                ],
            )
        )
    for one, other in zip(*kept, strict=True):
        assert one == other


def test_of_a_folder_with_both_the_public_rows_stay_whole(tmp_path, told, monkeypatch):
    greedy = {"dataset": SMALL, "algorithm": {"name": "greedy_cd", "clip": 1.0}}
    folder = private_sweep(tmp_path / "a", TRUE, [greedy])
    monkeypatch.chdir(tmp_path)
    assert main(["bundle", str(folder), "--out", "both.zip"]) == 0
    rows = pd.read_parquet(
        io.BytesIO(zipfile.ZipFile("both.zip").read("results.parquet"))
    )
    public = rows["dataset"].eq("log1")
    assert rows["objective"].notna().equals(public) and public.sum() > 10
    lines = told("both.zip")
    assert "holds nothing to compare for 14 trials" in lines[0]
    assert lines[-2:] == ["2 rows: 2 same", "answer: all are the same, to the bit"]


def test_a_declaration_is_in_no_key_and_no_label(tmp_path):
    """And the manifest tells of it."""
    (tmp_path / "my.csv").write_text(csv_with(TRUE))
    mine = {"name": "file", **PRIVATE, "path": str(tmp_path / "my.csv")}
    gd = {"name": "gd", "clip": 1.0, "n_iter": 3}
    block = {"dataset": mine, **SQUARED, "algorithm": gd}
    for public in (False, True):
        declared = {**block, "dataset": {**mine, "public": public}}
        swept(tmp_path / "results", declared)
        (data,) = read_manifest(tmp_path / "results")["data"]
        assert data["public"] is public
    rows = load_results(tmp_path / "results").drop_duplicates("trial")
    assert len(rows) == 2 and not rows["dataset_options"].str.contains("public").any()
    swept(tmp_path / "results", {"dataset": SMALL, "algorithm": gd})
    assert read_manifest(tmp_path / "results")["data"][0]["public"] is True
