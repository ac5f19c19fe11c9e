"""Test a paper from outside: a yaml, and one file for its special figure."""

import os
from pathlib import Path

import pandas as pd
import pytest

from dp_erm_bench.cli.main import main

OWN = Path(__file__).parent / "paper"
EXPERIMENT = OWN / "experiment" / "ridge_paper.yaml"
FILES = [path for path in OWN.rglob("*") if path.suffix in (".py", ".yaml")]
SPECIAL = """  - kind: final_errors.py
    panel: ridge
    lines: ["mine, cyclic"]

claims:
"""


def test_a_paper_is_one_yaml_and_at_most_one_file_of_what_is_special():
    assert len(FILES) == 2
    assert ".py" not in EXPERIMENT.read_text()


@pytest.fixture
def paper(tmp_path, monkeypatch):
    """Run the paper, changed in some words, from the folder of its files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment").mkdir()

    def run(old="", new="", *more):
        text = EXPERIMENT.read_text()
        assert old in text
        path = tmp_path / "experiment" / EXPERIMENT.name
        path.write_text(text.replace(old, new, 1) if old else text)
        flags = ["-cd", str(tmp_path), f"experiment={EXPERIMENT.stem}"]
        return main([*flags, "runner.n_jobs=1", "runner.progress=false", *more])

    return run


def drawn(folder):
    return {path.stem for path in (folder / "figures").glob("*.png")}


def test_it_runs_is_drawn_and_judged_and_drawn_again(paper, tmp_path, capsys):
    assert paper() == 0
    folder = tmp_path / "results" / "ridge_paper"
    stems = {"ridge", "ridge_paper", "ridge_paper_records", "ridge_paper_noise"}
    assert drawn(folder) == stems
    claims = pd.read_csv(folder / "claims.csv")
    assert set(claims["paper"]) == {"ridge_paper"}
    assert claims["figure"].tolist() == ["ridge", "ridge", "records", "noise"]
    certified = claims["verdict"][claims["measured"].str.startswith("epsilon cert")]
    assert certified.tolist() == ["holds", "holds"]
    assert claims["verdict"].iloc[-1] == "holds"
    assert "ridge_paper (profile quick): " in capsys.readouterr().out
    before = {p.name: p.read_bytes() for p in (folder / "figures").iterdir()}
    for path in (folder / "figures").iterdir():
        os.remove(path)
    assert main(["collect", str(folder)]) == 0
    assert {p.name: p.read_bytes() for p in (folder / "figures").iterdir()} == before


def test_what_is_special_is_one_file_that_collect_does_not_import(
    paper, tmp_path, capsys
):
    (tmp_path / "final_errors.py").write_text((OWN / "final_errors.py").read_text())
    assert paper("claims:\n", SPECIAL) == 0
    folder = tmp_path / "results" / "ridge_paper"
    assert "ridge_paper_ends" in drawn(folder)
    capsys.readouterr()
    (tmp_path / "final_errors.py").write_text("raise SystemExit(9)")
    assert main(["collect", str(folder)]) == 0
    assert "they are not imported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: lines", "kind: line", "figure 2: kind=line (did you mean lines?)"),
        ("axis: p\n", "axes: p\n", "source (noise): key=axes (did you mean axis?)"),
        ("name: records\n", "\n", "figure 2 (lines): name: must be given"),
        ("- name: ridge", "- name: rigde", "figure 1: panel=rigde (did you mean ridge"),
        (
            "measure: slope,",
            "measure: slop,",
            "claim falls: measure=slop (did you",
        ),
        ("line: one entry,", "line: two,", "claim grows: figure noise: line=two: must"),
    ],
)
def test_bad_keys_are_refused_in_one_sentence(paper, tmp_path, capsys, old, new, said):
    assert paper(old, new) == 2
    sentence = capsys.readouterr().err
    assert sentence.startswith("dp-erm-bench: ") and sentence.count("\n") == 1
    assert said in sentence
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "must define one dataclass, a Figure"),
        (None, "final_errors.py: no such file"),
    ],
)
def test_a_file_that_is_no_kind_is_refused(paper, tmp_path, capsys, text, said):
    if text:
        (tmp_path / "final_errors.py").write_text(text)
    assert paper("claims:\n", SPECIAL) == 2
    assert said in capsys.readouterr().err
