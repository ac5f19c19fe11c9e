"""Test `dp-erm-bench look`: it describes a csv and prints a line to complete.

The bounds of the line must be filled in.
"""

import shlex

import numpy as np
import pytest

from dp_erm_bench import fit, load_problem
from dp_erm_bench.cli.line import parse_argument
from dp_erm_bench.cli.main import main
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import UsageError
from dp_erm_bench.estimators import DPClassifier, DPRegressor
from tests.loops import each


def rows(n=30):
    rng = np.random.default_rng(0)
    for _ in range(n):
        hue = rng.choice(["red", "blue"])
        yield f"{rng.integers(18, 95)},{rng.uniform():.3f},{hue}"


def keys_of(line, fill="100"):
    """Return the keys of the dataset of a line whose bounds are filled in."""
    keys = [
        parse_argument(one.replace("FILL_IN", fill))
        for one in line
        if "dataset." in one
    ]
    return {one.key.partition(".")[2]: one.values[0] for one in keys}


@pytest.fixture
def look(tmp_path, monkeypatch, capsys):
    """Write a csv and look at it; return what is printed and the proposed line."""
    monkeypatch.chdir(tmp_path)

    def look(text, *more, code=0, name="my.csv"):
        (tmp_path / name).write_text(text)
        assert main(["look", name, *more]) == code
        said = capsys.readouterr()
        if code:
            return said.err, []
        lines = said.out.splitlines()
        (line,) = [one for one in lines if one.startswith("dp-erm-bench tune ")]
        return said.out, shlex.split(line)[1:]

    return look


def test_a_table_is_told_and_its_line_runs_once_bounds_are_filled_in(look, capsys):
    body = "".join(
        f"{row},{'yes' if i % 3 else 'no'}\n" for i, row in enumerate(rows())
    )
    said, line = look("age,a b (mg),hue,ill\n" + body)
    assert "my.csv: 30 records, 4 columns separated by commas, row 1 names them" in said
    assert "computed from the records: not private, and no source of bounds" in said
    (ill,) = [one for one in said.splitlines() if one.startswith('  "ill"')]
    assert ill.split()[1:] == "words 0 yes 20, no 10 (proposed label)".split()
    assert "dataset.classes=[...]" in said and "dataset.onehot={COLUMN" in said
    assert line[0] == "tune" and "dataset.scale=bounds" in line
    assert not [one for one in line if "classes" in one]
    # What is left is refused before anything is read or run.
    for key, what in (("bounds", "a bound"), ("positive", "the labels that become")):
        assert main(line) == 2
        told = capsys.readouterr().err
        assert f"dataset.{key}" in told and told.count("\n") == 1
        assert f"=FILL_IN: must be replaced by {what}" in told
        line = [one.replace(":FILL_IN", ":100") for one in line]
    chosen = keys_of(line) | {"positive": "yes"}
    data = load_dataset(dataset_spec("file", **chosen))
    assert [*chosen["bounds"]["columns"]] == ["age", "a b (mg)"]
    assert np.abs(data.X[:, 0]).max() <= 0.95 and data.p == 5
    assert (data.X[:, 4] == 1.0).all()


def test_a_regression_a_label_by_its_name_and_words_that_cannot_be_typed(look):
    body = "".join(f"{i * 1.5},{i % 7},{0.1 * i}\n" for i in range(30))
    said, line = look("target,1e5,größe\n" + body, "dataset.header=true")
    (target,) = [one for one in said.splitlines() if one.startswith('  "target"')]
    assert target.split()[1:] == "numbers 0 0 .. 43.5 (proposed label)".split()
    assert {"loss=huber", "dataset.label=target"} <= {*line}
    (bounds,) = [
        parse_argument(one) for one in line if one.startswith("dataset.bounds")
    ]
    assert bounds.values[0]["default"] == bounds.values[0]["label"] == "FILL_IN"
    chosen, said = look("a,b,ill\n1,NA,0\n2,3,1\n"), None
    assert 'values are missing in "b"' in chosen[0]
    assert not [one for one in chosen[1] if "positive" in one]


def test_what_the_reader_refuses_is_told_with_the_key_that_decides(look):
    body = "".join(f"{i},{i % 7 / 10},{i % 2}\n" for i in range(12))
    said, line = look(",x,y\n" + body)
    assert "Decide before it is read: column 0 has no name" in said
    said, line = look(",x,y\n" + body, "dataset.index=drop")
    assert "Decide before" not in said and "dataset.index=drop" in line
    said, line = look("0.5,3,1\n0.25,4,0\n", "dataset.header=false", "dataset.label=0")
    assert "row 1 is a record" in said and "dataset.label=0" in line
    assert "dataset.bounds={columns:{x0:FILL_IN,x1:FILL_IN}}" in line


def test_columns_without_headings_are_named_as_the_reader_names_them(look):
    """Words take a place for each of them, and a label is a place among those read."""
    body = "".join(
        f"{i},{i % 2},{'ABC'[i % 3]},{i / 8},{i * i / 64}\n" for i in range(12)
    )
    keys = ["dataset.header=false", "dataset.index=drop", "dataset.label=0"]
    said, line = look(body, *keys)
    assert '"1"' in said and said.count("(proposed label)") == 1
    assert "dataset.label=0" in line and "dataset.onehot=[2]" in line
    assert "dataset.bounds={columns:{x3:FILL_IN,x4:FILL_IN}}" in line
    data = load_dataset(dataset_spec("file", **keys_of(line, "2")))
    assert np.unique(data.y).tolist() == [-1.0, 1.0] and data.p == 6
    assert np.abs(data.X).max(axis=0).tolist()[:3] == [1.0, 1.0, 1.0]
    assert np.count_nonzero(data.X[:, :3].sum(axis=1) != 1.0) == 0


def test_headings_that_are_numbers_and_words_that_spell_one(look):
    body = "".join(f"{i / 8},{i % 2},{i / 4}\n" for i in range(4))
    line = look("0,2,1\n" + body, "dataset.header=true", "dataset.label='2'")[1]
    (label,) = [parse_argument(one) for one in line if one.startswith("dataset.label")]
    assert label.values == ["2"]  # 2 is the place of the heading 1
    rows = ("A1,0.1,1", "1E5,0.2,0", "10E4,0.3,1", "100000,0.4,0")
    said, _ = look("\n".join(["code,x,y", *rows]) + "\n")
    assert "A1 1, 1E5 1, 10E4 1, 100000 1" in said


def test_what_is_no_csv_or_no_key_of_one_is_refused(look):
    assert "must be a csv, it is svmlight" in look("1 1:2\n", code=2, name="a.svm")[0]
    assert "dataset.bound" in look("a,b\n1,2\n", "dataset.bound=3", code=2)[0]
    assert "no such key" in look("a,b\n1,2\n", "other.csv", code=2)[0]


def test_a_column_that_tells_the_label_is_named(look):
    pairs = [(k % 2, k % 3) for k in range(30)]
    body = "".join(
        f"{k},{a},{b},{'no' if a else 'yes'}\n" for k, (a, b) in enumerate(pairs)
    )
    said, _ = look("x,dead,ward,died\n" + body)
    told = [line for line in said.splitlines() if 'tells "died" by itself' in line]
    assert [line.split()[0] for line in told] == ['"dead"']
    # Of a regression each number stands once; of few records it may be by chance.
    body = "".join(f"{k},{k / 3},{k / 7:.3f}\n" for k in range(40))
    assert "by itself" not in look("x,z,price\n" + body)[0]
    assert "by itself" not in look("x,dead,died\n1,a,no\n2,b,yes\n5,b,yes\n")[0]


def test_missing_values_are_told_with_what_may_be_done(look):
    body = "".join(f"{k},{k % 3 or 'NA'},{k % 2}\n" for k in range(12))
    said, _ = look("a,b,y\n" + body)
    assert 'values are missing in "b": fill them with a number' in said


N = 60
COLUMNS = {
    "commas": (lambda i: f'"{i - 30},{i % 7}5"', "decimal commas or thousands"),
    "thousands": (lambda i: f"{i % 9}'{100 + i}", "decimal commas or thousands"),
    "percent": (lambda i: f"{i}.5 %", "numbers with percent signs"),
    "price": (lambda i: f"€{i}.50", "numbers with currencies"),
    "mass": (lambda i: f"{i}.5 kg", "numbers with units"),
    "minus": (lambda i: f"\u2212{i}.5", "numbers with characters that are no ASCII"),
    "error": (lambda i: "#DIV/0!" if i == 7 else i * 0.5, "numbers"),
    "mistake": (lambda i: "ten" if i == 7 else i * 0.5, "numbers with mistakes"),
    "both": (lambda i: "low" if i % 2 else i * 0.5, "numbers with mistakes"),
    "day": (lambda i: f"2020-{1 + i % 12:02}-{1 + i % 28:02}", "dates or times"),
    "visit": (lambda i: f"{1 + i % 28}.{1 + i % 12}.2020", "dates or times"),
    "at": (lambda i: f"{i % 24:02}:{i:02}", "dates or times"),
    "id": (lambda i: 7000 + i, "identifiers"),
    "patient_id": (lambda i: (i * 37) % 1009, "identifiers"),
    "name": (lambda i: f"P{i:05}", "words, mostly different"),
    "empty": (lambda i: "", "nothing"),
    "hue": (lambda i: ["red", "blue"][i % 2], "words"),
    "size": (lambda i: i % 13 / 4, "numbers"),
}


def test_each_column_is_what_it_is(look):
    """Numbers in other spellings are to be decided; names and dates are left out."""
    cells = [[str(cell(i)) for cell, _ in COLUMNS.values()] for i in range(N)]
    body = "".join(f"{','.join(row)},{i % 2}\n" for i, row in enumerate(cells))
    head = ",".join([*COLUMNS, "y"])
    said, line = look(f"{head}\n{body}")
    told = {one.split()[0].strip('"'): one for one in said.splitlines() if one}
    for name, (_, kind) in COLUMNS.items():
        assert f" {kind}" in told[name], name
    wrong = [one for one in said.splitlines() if one.startswith("Decide before")]
    first = {"error": 'row 9 ("#DIV/0!")', "mistake": 'row 9 ("ten")'}
    first |= {"commas": 'row 2 ("-30,05")', "mass": "units; write 1234.5"}
    first |= {"thousands": "", "percent": "", "price": "", "minus": "", "both": "low"}
    for name, what in first.items():
        assert any(f'column "{name}"' in one and what in one for one in wrong), name
    assert {one.partition('"')[2].partition('"')[0] for one in wrong} == {*first}
    chosen = keys_of(line)
    out = ["day", "visit", "at", "id", "patient_id", "name", "empty"]
    assert chosen["drop"] == out and chosen["onehot"] == ["hue"]
    assert {*chosen["bounds"]["columns"]} == {*first, "size"}
    assert "which columns it leaves out or takes for categories, was read off" in said
    with pytest.raises(UsageError, match="9 of its columns or headings cannot be"):
        load_dataset(dataset_spec("file", **chosen))
    # All but what is to be decided is read.
    chosen["drop"] += first
    chosen["bounds"]["columns"] = {"size": 100}
    assert load_dataset(dataset_spec("file", **chosen)).p == 4


LABELS = [
    (["no", "yes"], ["dataset.positive=FILL_IN"], ""),
    ([2, 4], ["dataset.positive=FILL_IN"], ""),
    ([0, 1], [], ""),
    (
        ["green", "yellow", "red"],
        [],
        "holds 3 different labels (green 10, yellow 10, red 10)",
    ),
    ([1, 2, 3, 4, 5], [], "holds 5 different labels"),
    (["yes"], [], "holds one label alone"),
    ([f"N{i}" for i in range(30)], [], "holds words, mostly different; name another"),
    (["no", "yes", "Yes"], [], "holds 3 words in 2 spellings but for case and form"),
    ([0, 1, 0, 1, -9], [], "holds -9 in 6 of 30 records, which may stand for no value"),
    ([*range(40, 55), *range(80, 94), "Total"], ["loss=huber"], 'row 31 ("Total")'),
]


@each(("labels", "keys", "said"), LABELS)
def test_no_label_is_guessed(labels, keys, said, look):
    body = "".join(f"{i % 7 / 4},{labels[i % len(labels)]}\n" for i in range(30))
    shown, line = look(f"x,y\n{body}")
    assert said in shown and ("Decide before" in shown) == bool(said)
    found = [one for one in line if one.startswith(("dataset.positive", "loss="))]
    assert found == keys


def test_columns_are_left_out_by_name_or_place(look):
    body = "".join(f"A{i},{i % 7 / 4},B{i},{i % 2}\n" for i in range(30))
    said, line = look(f"a,x,b,y\n{body}", "dataset.drop=[a]")
    assert "3 columns" in said and keys_of(line)["drop"] == ["a", "b"]
    assert load_dataset(dataset_spec("file", **keys_of(line))).p == 2
    said, line = look(body, "dataset.header=false", "dataset.label=3")
    assert keys_of(line)["drop"] == [0, 2] and keys_of(line)["label"] == -1
    assert "dataset.bounds={columns:{x0:FILL_IN}}" in line
    assert load_dataset(dataset_spec("file", **keys_of(line))).p == 2


@each("words", [True, False])
def test_the_line_is_the_problem_of_an_estimator(words, look, tmp_path):
    """Label by its bound, intercept, loss and penalty: the same weights, by default."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(20, 80, 50).round(2), rng.uniform(-60, 60, 50).round(2)
    y = (2 * x + z / 2).round(2)
    y = np.where(y > 90, "yes", "no") if words else y
    body = "".join(f"{a},{b},{c}\n" for a, b, c in zip(x, z, y, strict=True))
    _, line = look(f"x,z,y\n{body}")
    keys = keys_of(line, "200") | ({"positive": "yes"} if words else {})
    del keys["test_fraction"]
    (loss,) = [one.partition("=")[2] for one in line if "loss=" in one] or ["auto"]
    problem = load_problem(
        "file", loss=loss, **keys | {"path": str(tmp_path / "my.csv")}
    )
    steps = {"n_iter": 30, "step": 0.5, "clip": 10.0}
    w = fit(problem, "gd", epsilon=np.inf, **steps).w
    kind, B = (DPClassifier, 1.0) if words else (DPRegressor, 200.0)
    how = {"classes": ["no", "yes"]} if words else {}
    how |= {"epsilon": np.inf, "parameters": steps, "scale": "bounds"}
    model = kind("gd", bounds={"columns": 200.0, "label": B}, **how)
    model.fit(np.column_stack([x, z]), y)
    np.testing.assert_allclose(np.ravel(model.coef_), B * w[:2], rtol=1e-12)
    np.testing.assert_allclose(np.ravel(model.intercept_), B * w[2], rtol=1e-12)
    assert problem.dataset.bounds.label == (None if words else 1.0)
    assert np.abs(problem.dataset.y).max() <= 1.0
