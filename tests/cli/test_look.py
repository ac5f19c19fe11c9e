"""dp-erm-bench look: what a csv holds, and a line that waits for its bounds."""

import shlex

import numpy as np
import pytest

from dp_erm_bench.cli.line import parse
from dp_erm_bench.cli.main import main
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec


def rows(n=30):
    rng = np.random.default_rng(0)
    for _ in range(n):
        hue = rng.choice(["red", "blue"])
        yield f"{rng.integers(18, 95)},{rng.uniform():.3f},{hue}"


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
        (line,) = [one for one in lines if one.startswith("dp-erm-bench ")]
        return said.out, shlex.split(line)[1:]

    return look


def test_a_table_is_told_and_its_line_runs_once_bounds_are_filled_in(look, capsys):
    body = "".join(
        f"{row},{'yes' if i % 3 else 'no'}\n" for i, row in enumerate(rows())
    )
    said, line = look("age,a b (mg),hue,ill\n" + body)
    assert "my.csv: 30 records, 4 columns separated by commas, row 1 names them" in said
    assert "read off the records: not private, and no source of bounds" in said
    (ill,) = [one for one in said.splitlines() if one.startswith('  "ill"')]
    assert ill.split()[1:] == "words 0 yes 20, no 10 (proposed label)".split()
    assert "dataset.classes=[...]" in said and "dataset.onehot={COLUMN" in said
    assert line[0] == "tune" and "dataset.scale=bounds" in line
    assert not [one for one in line if "classes" in one]
    # What is left is refused before anything is read or run.
    assert main(line) == 2
    told = capsys.readouterr().err
    assert "=FILL_IN: must be replaced by a bound" in told and told.count("\n") == 1
    keys = [
        parse(one.replace("FILL_IN", "100")) for one in line[1:] if "dataset." in one
    ]
    chosen = {one.key.partition(".")[2]: one.values[0] for one in keys}
    data = load_dataset(dataset_spec("file", **chosen))
    assert [*chosen["bounds"]["columns"]] == ["age", "a b (mg)"]
    assert np.abs(data.X[:, 0]).max() <= 0.95 and data.p == 4


def test_a_regression_a_label_by_its_name_and_words_that_cannot_be_typed(look):
    body = "".join(f"{i * 1.5},{i},{0.1 * i}\n" for i in range(30))
    said, line = look("target,1e5,größe\n" + body, "dataset.header=true")
    (target,) = [one for one in said.splitlines() if one.startswith('  "target"')]
    assert target.split()[1:] == "numbers 0 0 .. 43.5 (proposed label)".split()
    assert {"loss=huber", "dataset.label=target"} <= {*line}
    (bounds,) = [parse(one) for one in line if one.startswith("dataset.bounds")]
    assert bounds.values[0]["default"] == bounds.values[0]["label"] == "FILL_IN"
    chosen, said = look("a,b,ill\n1,NA,0\n2,3,1\n"), None
    assert 'values are missing in "b"' in chosen[0]
    assert not [one for one in chosen[1] if "positive" in one]


def test_what_the_reader_refuses_is_told_with_the_key_that_decides(look):
    body = "".join(f"{i},{i % 7 / 10},{i % 2}\n" for i in range(12))
    said, line = look(",x,y\n" + body)
    assert "To be decided before it is read: column 0 has no name" in said
    said, line = look(",x,y\n" + body, "dataset.index=drop")
    assert "To be decided" not in said and "dataset.index=drop" in line
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
    filled = [one.replace("FILL_IN", "2") for one in line[1:] if "dataset." in one]
    keys = {parse(one).key.partition(".")[2]: parse(one).values[0] for one in filled}
    data = load_dataset(dataset_spec("file", **keys))
    assert np.unique(data.y).tolist() == [-1.0, 1.0] and data.p == 5
    assert np.abs(data.X).max(axis=0).tolist()[:3] == [1.0, 1.0, 1.0]
    assert np.count_nonzero(data.X[:, :3].sum(axis=1) != 1.0) == 0


def test_headings_that_are_numbers_and_words_that_spell_one(look):
    body = "".join(f"{i / 8},{i % 2},{i / 4}\n" for i in range(4))
    line = look("0,2,1\n" + body, "dataset.header=true", "dataset.label='2'")[1]
    (label,) = [parse(one) for one in line if one.startswith("dataset.label")]
    assert label.values == ["2"]  # 2 is the place of the heading 1
    rows = ("A1,0.1,1", "1E5,0.2,0", "10E4,0.3,1", "100000,0.4,0")
    said, _ = look("\n".join(["code,x,y", *rows]) + "\n")
    assert "A1 1, 1E5 1, 10E4 1, 100000 1" in said


def test_what_is_no_csv_or_no_key_of_one_is_refused(look):
    assert "must be a csv, it is svmlight" in look("1 1:2\n", code=2, name="a.svm")[0]
    assert "dataset.bound" in look("a,b\n1,2\n", "dataset.bound=3", code=2)[0]
    assert "takes the name of one csv" in look("a,b\n1,2\n", "other.csv", code=2)[0]


def test_a_column_that_tells_the_label_is_named(look):
    pairs = [(k % 2, k % 3) for k in range(30)]
    body = "".join(
        f"{k},{a},{b},{'no' if a else 'yes'}\n" for k, (a, b) in enumerate(pairs)
    )
    said, _ = look("x,dead,ward,died\n" + body)
    told = [line for line in said.splitlines() if 'tells "died" by itself' in line]
    assert [line.split()[0] for line in told] == ['"dead"']


def test_missing_values_are_told_with_what_may_be_done(look):
    body = "".join(f"{k},{k % 3 or 'NA'},{k % 2}\n" for k in range(12))
    said, _ = look("a,b,y\n" + body)
    assert 'values are missing in "b"; none may be: fill them with a number' in said
