"""Test a user's data file: three formats, declared bounds, keys without its path."""

import bz2
import gzip
import io
import lzma
import tracemalloc
from datetime import date

import numpy as np
import pytest
import scipy.sparse as sp

from dp_erm_bench import load_problem, load_results
from dp_erm_bench.cli.main import main
from dp_erm_bench.datasets.base import as_features
from dp_erm_bench.datasets.load import load_dataset, own_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import UsageError, quote_heading
from dp_erm_bench.experiment.parameters import problem_named
from dp_erm_bench.paths import cache_dir
from dp_erm_bench.problems.erm.problem import feature_names
from tests.loops import each

X = np.array([[0.5, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
Y = np.array([0.0, 1.0, 1.0, 0.0])


def csv(header=True, labels=Y):
    lines = ["a,b,c,y"] * header
    lines += [
        ",".join(map(str, [*row, y])) for row, y in zip(X.tolist(), labels, strict=True)
    ]
    return ("\n".join(lines) + "\n").encode()


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def parts(X, **more):
    names = ("data", "indices", "indptr", "shape")
    return {name: getattr(X, name) for name in names} | more


def svmlight(first=1):
    lines = []
    for row, y in zip(X, Y, strict=True):
        entries = [f"{j + first}:{row[j]:g}" for j in np.flatnonzero(row)]
        lines.append(" ".join([f"{y:g}", *entries]))
    return ("\n".join(lines) + "\n").encode()


GOOD = {
    "header.csv": csv(),
    "plain.csv": csv(header=False),
    "packed.csv.gz": gzip.compress(csv()),
    "dense.npz": npz(X=X, y=Y),
    "columns.npz": npz(**parts(sp.csc_array(X)), y=Y),
    "rows.npz": npz(**parts(sp.csr_array(X)), format="csr", y=Y),
    "whole.npz": npz(X=X.astype(np.float32), y=Y.astype(np.int64)),
    "one.svm": svmlight(),
    "zero.libsvm": svmlight(first=0),
    "marked.svm": "\ufeff".encode() + b"# from elsewhere\n" + svmlight(),
    "packed.svm.bz2": bz2.compress(svmlight()),
    "packed.svmlight.xz": lzma.compress(svmlight()),
}


@pytest.fixture
def put(tmp_path):
    """Return a function that writes a file and returns its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return write


def loaded(path, **changes):
    return load_dataset(dataset_spec("file", path=path, **changes))


@pytest.mark.parametrize("name", GOOD)
def test_every_format_gives_the_same_records(name, put):
    found = loaded(put(name, GOOD[name]))
    dense = found.X.toarray() if found.sparse else found.X
    np.testing.assert_array_equal(dense, X)
    np.testing.assert_array_equal(found.y, 2 * Y - 1)
    assert found.sparse == ("svm" in name or name in ("columns.npz", "rows.npz"))
    assert found.name == "file" and found.usual.loss == "logistic"


@pytest.mark.parametrize("label", ["b", 1, -3])
def test_the_label_column_is_chosen_by_name_or_index(label, put):
    found = loaded(put("data.csv", csv()), label=label, task="regression")
    np.testing.assert_array_equal(found.y, X[:, 1])
    np.testing.assert_array_equal(found.X[:, 2], Y)
    assert found.usual.loss == "squared"


def test_text_labels_are_mapped_where_it_is_said_how(put):
    path = put("data.csv", csv(labels=["no", "yes", "yes", "no"]))
    np.testing.assert_array_equal(loaded(path, positive=["yes"]).y, 2 * Y - 1)
    np.testing.assert_array_equal(loaded(path, positive="no").y, 1 - 2 * Y)
    with pytest.raises(
        UsageError, match=r"holds text in 4 rows, the first is row 2.*dataset\.positive"
    ):
        loaded(path)
    with pytest.raises(UsageError, match=r"positive=\['maybe'\].*no, yes"):
        loaded(path, positive=["maybe"])
    with pytest.raises(
        UsageError, match="in 4 rows, the first is row 2, labels must be numbers"
    ):
        loaded(path, task="regression")


@pytest.mark.parametrize("positive", [[], [0, 1], [2], ["x"]])
def test_a_choice_of_none_all_or_unknown_labels_is_refused(positive, put):
    with pytest.raises(
        UsageError, match=r"dataset\.positive=.*of the labels 0(.0)?, 1"
    ):
        loaded(put("data.csv", csv()), positive=positive)


def test_svmlight_can_be_wider_than_its_entries(put):
    assert loaded(put("data.svm", svmlight()), p=7).p == 7


def test_declared_bounds_hold_or_are_imposed(put):
    path = put("data.npz", npz(X=X, y=Y))
    kept = loaded(path, bounds={"columns": [0.5, 1, 2], "norm": 2, "label": 1})
    assert kept.bounds.norm == 2.0
    with pytest.raises(UsageError, match="feature 2 exceeds its declared bound 1"):
        loaded(path, bounds={"columns": 1})
    clipped = loaded(path, bounds={"columns": 1}, clip_to_bounds=True)
    np.testing.assert_array_equal(clipped.X, np.clip(X, -1, 1))
    assert clipped.content_hash != kept.content_hash
    again = loaded(path, bounds={"columns": 0.5}, clip_to_bounds=True)
    assert np.abs(again.X).max() == 0.5


def test_standardised_records_are_clipped_after_that(put):
    path, bounds = put("data.npz", npz(X=X, y=Y)), {"columns": 1, "norm": 0.5}
    plain = loaded(path, standardise=True, bounds=bounds)
    # What is declared of the columns as they were says nothing of these.
    assert plain.bounds is None
    found = loaded(path, standardise=True, bounds=bounds, clip_to_bounds=True)
    assert found.bounds.norm == 0.5
    assert found.uncharged == ("classes", "standardisation")
    entries = np.clip(plain.X, -1, 1)
    shrink = np.minimum(1, 0.5 / np.linalg.norm(entries, axis=1))
    np.testing.assert_allclose(found.X, entries * shrink[:, None], rtol=1e-14)
    assert found.content_hash != plain.content_hash


def test_clipping_without_bounds_is_refused(put):
    with pytest.raises(UsageError, match=r"dataset\.clip_to_bounds=True: must be"):
        loaded(put("data.npz", npz(X=X, y=Y)), clip_to_bounds=True)


def test_the_content_is_in_the_key_and_the_path_is_not(put):
    first, second = (put(name, csv()) for name in ("a.csv", "b.csv"))
    other = put("c.csv", csv().replace(b"2.0", b"3.0"))
    objective = ("auto", "auto", "none")
    keys = [
        problem_named("file", {"path": path}, *objective).identity
        for path in (first, second, other)
    ]
    assert keys[0] == keys[1] != keys[2]
    assert len(list((cache_dir() / "datasets").glob("*"))) == 2


def test_a_changed_file_is_read_again(put):
    before = loaded(put("data.csv", csv()))
    after = loaded(put("data.csv", csv().replace(b"2.0", b"3.25")))
    assert (before.X.max(), after.X.max()) == (2.0, 3.25)


def test_a_file_may_have_a_name_for_tables(put):
    spec = dataset_spec("file:mine", path=put("data.csv", csv()))
    assert load_dataset(spec).name == "file:mine"


INDEXED = b",a,y\n0,1.5,0\n1,2,1\n2,1,1\n"
MANY = b"a;price\n" + b"".join(b"%d;%d\n" % (j % 3, j) for j in range(30))
COLOURED = b"hue\ta\ty\nred\t1\t0\nblue\t2\t1\nred\t3\t1\n"

BAD = [
    (
        "text.csv",
        b"a,b,y\n1,red,0\n2,3,1\n",
        'column "b" holds text in row 2, features',
    ),
    ("plain.csv", b"1,red,0\n2,3,1\n", "column 1 holds text in row 1"),
    (
        "ragged.csv",
        b"a,b,y\n1,2,0\n1,2,3,4,5\n",
        "row 3 has 5 fields, the header has 3",
    ),
    ("empty.csv", b"", "is not a whole csv file"),
    ("names.csv", b"a,b,y\n", "holds no records"),
    ("hole.csv", b"a,b,y\n1,2,0\n2,,1\n", 'column "b" has no value in row 3$'),
    ("nolabel.csv", b"a,b,y\n1,2,\n2,3,1\n", 'column "y" has no value in row 2$'),
    ("plainhole.csv", b"1,2,0\n2,,1\n", "column 1 has no value in row 2$"),
    ("index.csv", INDEXED, r"column 0 has no name, .*index=drop.*dataset\.index=keep"),
    (
        "classes.csv",
        MANY,
        "column .price.: holds 30 different .*dataset.task=regression",
    ),
    (
        "text.csv",
        COLOURED,
        r"column .hue. holds text in 3 rows, .*row 2.*onehot=\{hue:\[\.\.\.\]\}",
    ),
    ("one.csv", b"y\n0\n1\n", "has one column, and needs features and labels"),
    ("cut.npz", npz(X=X, y=Y)[:100], "is not a whole npz file"),
    (
        "text.npz",
        npz(X=np.array([["a"], ["b"]]), y=[0, 1]),
        "features: must be an array of num",
    ),
    ("object.npz", npz(X=np.array([None, 1]), y=[0, 1]), "is not a whole npz file"),
    ("less.npz", npz(X=X), "holds X, it must hold y"),
    ("long.npz", npz(X=X, y=[0, 1]), r"must be \(n, p\) and \(n,\)"),
    ("wrong.npz", npz(**parts(sp.csc_array(X)) | {"indices": [9] * 4}, y=Y), "whole"),
    (
        "halves.npz",
        npz(**parts(sp.csc_array(X), y=Y) | {"indices": [0.5, 1.0, 3.0, 2.0]}),
        "indices of the npz file holds float64, it must hold integers",
    ),
    (
        "upper.npz",
        npz(**parts(sp.csr_array(X)), format="CSR", y=Y),
        "format of the npz file=CSR: must be one of csc, csr",
    ),
    ("nan.npz", npz(X=X * np.nan, y=Y), "X holds a value that is not finite"),
    ("inf.npz", npz(X=X, y=Y + np.inf), "y holds a value"),
    ("one.npz", npz(X=X[:1], y=Y[:1]), "has one record, at least two are needed"),
    ("none.npz", npz(X=X[:0], y=Y[:0]), r"X of shape \(0, 3\) is empty"),
    ("same.npz", npz(X=X, y=Y * 0), "labels 0 are not allowed, classification needs"),
    ("text.svm", b"1 a:2\n0 1:3\n", "row 1: holds an entry that is not FEATURE"),
    ("empty.svm", b"", "svmlight file|is empty"),
    ("cut.svm.bz2", bz2.compress(svmlight())[:-20], "is not a whole svmlight file"),
    ("cut.csv.xz", lzma.compress(csv())[:-20], "is not a whole csv file"),
    ("bad.csv.xz", b"nothing", "is not a whole csv file"),
    ("cut.csv.gz", gzip.compress(csv())[:-20], "is not a whole csv file"),
    ("binary.csv", bytes(range(256)), "is not a whole csv file"),
    ("complex.npz", npz(X=X + 1j, y=Y), "must be an array of numbers, not complex128"),
    ("dates.npz", npz(X=X.astype("M8[D]"), y=Y), "numbers, not datetime64"),
    ("spans.npz", npz(X=X.astype("m8[D]"), y=Y), "numbers, not timedelta64"),
    ("labels.npz", npz(X=X, y=Y + 1j), "numbers or text, not complex128"),
    ("days.npz", npz(X=X, y=Y.astype("M8[D]")), "numbers or text, not datetime64"),
    ("objects.npz", npz(X=X, y=np.array([0, None] * 2)), "is not a whole npz file"),
    ("complex.csv", b"a,b,y\n1+2j,3,0\n2,3,1\n", "column .a. holds text in row 2"),
    ("days.csv", b"a,b,y\n2020-01-01,3,0\n2,3,1\n", "column .a. holds text in row 2"),
    ("data.parquet", b"PAR1", r"its suffix tells no format, add dataset\.format="),
]


@each(("name", "content", "said"), BAD, ids=[b[0] for b in BAD])
def test_a_bad_file_is_refused_in_one_sentence(name, content, said, put):
    with pytest.raises(UsageError, match=said) as caught:
        loaded(put(name, content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"label": "z"}, r"dataset\.label=z: must be one of .a., .b., .c., .y."),
        ({"label": True}, r"dataset\.label=true: must be null, a heading or the place"),
        ({"label": False, "task": "regression"}, r"dataset\.label=false: must be null"),
        ({"label": 4}, r"dataset\.label=4: must be one of"),
        ({"header": "no"}, r"dataset\.header=no: must be auto, true or false"),
        ({"format": "cvs"}, r"dataset\.format=cvs \(did you mean csv\?\)"),
        ({"positive": [1], "task": "regression"}, r"dataset\.positive=\[1\]"),
        ({"path": "absent.csv"}, r"dataset\.path=absent\.csv: there is no such file"),
        ({"path": None}, r"such as dataset\.path=data\.csv"),
    ],
)
def test_a_bad_option_is_refused_in_one_sentence(changes, said, put):
    with pytest.raises(UsageError, match=said):
        loaded(**{"path": put("data.csv", csv())} | changes)


PASSWD = b"root:x:0:0:root:/root:/bin/bash\nme:x:1:1:me,not-for-you:/:/bin/sh\n"


@each("name", ["x.svm", "x.csv", "x.npz", "x.csv.gz", "x.libsvm"])
@each("label", [None, "z", 0])
def test_no_message_shows_what_a_file_holds(name, label, put):
    more = {"label": label} if ".csv" in name else {}
    with pytest.raises(UsageError) as caught:
        loaded(put(name, PASSWD), **more)
    said = str(caught.value)
    assert not any(part in said for part in ("x:0", "not-for-you", "/bin/", "me,"))


def test_the_row_of_a_bad_entry_is_told(put):
    with pytest.raises(
        UsageError, match="x.svm: row 2: holds an entry that is not FEATURE:NUMBER"
    ):
        loaded(put("x.svm", b"1 1:2 3:1e-5 # note\n-1 1:two\n"))


@pytest.mark.parametrize("sep", [b",", b";", b"\t"])
@pytest.mark.parametrize("header", [True, False])
def test_the_separator_is_recognised(sep, header, put):
    found = loaded(put("data.csv", csv(header).replace(b",", sep)))
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.y, 2 * Y - 1)


def test_an_index_goes_or_stays_where_that_is_said(put):
    path = put("data.csv", INDEXED)
    dropped, kept = (loaded(path, index=one) for one in ("drop", "keep"))
    np.testing.assert_array_equal(dropped.X, [[1.5], [2.0], [1.0]])
    np.testing.assert_array_equal(kept.X, [[0.0, 1.5], [1.0, 2.0], [2.0, 1.0]])
    assert feature_names(dropped) == ("a",)
    with pytest.raises(UsageError, match=r"dataset\.index=yes: must be null, drop or"):
        loaded(path, index="yes")
    with pytest.raises(UsageError, match="the first column is .hue. by name"):
        loaded(put("text.csv", COLOURED), index="drop")


def test_declared_categories_become_columns(put):
    path = put("data.csv", COLOURED)
    found = loaded(path, onehot={"hue": ["red", "green", "blue"]})
    np.testing.assert_array_equal(found.X, [[1, 0, 0, 1], [0, 0, 1, 2], [1, 0, 0, 3]])
    assert feature_names(found) == ("hue=red", "hue=green", "hue=blue", "a")
    assert found.uncharged == ("header", "classes")
    read = loaded(path, onehot=["hue"], header=True, classes=[0, 1])
    assert feature_names(read) == ("hue=blue", "hue=red", "a")
    assert read.uncharged == ("kinds", "categories")
    assert loaded(path, onehot=["hue"], text="hue").uncharged[1:-1] == ("categories",)
    numbers = loaded(path, onehot={"hue": ["red", "blue"], "a": [1, 2, 3]})
    np.testing.assert_array_equal(numbers.X[:, 2:], np.eye(3))
    assert feature_names(numbers)[2:] == ("a=1", "a=2", "a=3")


@pytest.mark.parametrize(
    ("onehot", "said"),
    [
        (
            {"hue": ["red"]},
            "column .hue. holds a word in row 3 that is not one of its cat",
        ),
        (
            {"color": ["red"]},
            r"column of dataset\.onehot=color: must be one of .hue., .a.",
        ),
        ({"hue": "red"}, r"dataset\.onehot=.*must be null, a list of columns"),
        ({"hue": ["red", "blue"], "y": [0]}, "onehot=y: must be one of .hue., .a."),
    ],
)
def test_wrong_categories_are_refused(onehot, said, put):
    with pytest.raises(UsageError, match=said):
        loaded(put("data.csv", COLOURED), onehot=onehot)


def test_a_category_of_a_file_without_header_is_told_its_places(put):
    told = r"onehot=hue: must be one of 0, 1, 2, the places of .*plain\.csv has no"
    with pytest.raises(UsageError, match=told):
        loaded(put("plain.csv", csv(False)), onehot={"hue": ["red"]})


def test_features_have_the_names_of_the_header(put):
    assert feature_names(loaded(put("data.csv", csv()))) == ("a", "b", "c")
    assert feature_names(loaded(put("plain.csv", csv(False)))) == ("x0", "x1", "x2")
    own = loaded(put("one.svm", svmlight()), intercept=1.0)
    assert feature_names(own) == ("x0", "x1", "x2", "intercept")
    named = loaded(put("other.csv", csv()), label="b", task="regression")
    assert feature_names(named) == ("a", "c", "y")


def test_new_options_leave_older_trials_their_identity(put):
    path, parts = put("data.csv", csv()), ("auto", "auto", "none")
    plain, same = (
        problem_named("file", {"path": path, **more}, *parts).identity
        for more in ({}, {"onehot": None, "index": None})
    )
    kept = problem_named("file", {"path": path, "index": "keep"}, *parts).identity
    assert plain == same != kept


def test_a_regression_loss_implies_the_task_and_it_is_said(put):
    path, parts = put("data.csv", csv()), ("none", "none")
    implied = problem_named("file", {"path": path}, "squared", *parts)
    np.testing.assert_array_equal(implied.dataset.y, Y)
    said = problem_named(
        "file", {"path": path, "task": "regression"}, "squared", *parts
    )
    assert implied.identity == said.identity
    for more in ({"task": "classification"}, {"positive": [1]}):
        kept = problem_named("file", {"path": path, **more}, "squared", *parts)
        np.testing.assert_array_equal(kept.dataset.y, 2 * Y - 1)
    words = put("words.csv", csv(labels=["no", "yes", "yes", "no"]))
    with pytest.raises(
        UsageError, match=r"column .y. holds .*loss=huber implies dataset\.task"
    ):
        load_problem("file", path=words, loss="huber", penalty="none")


def test_a_sweep_reads_what_a_spreadsheet_writes(put, monkeypatch, tmp_path, capsys):
    """Semicolons, an index, words and a target that is no class, as one types it."""
    rows = [";hue;size;price"]
    rows += [f"{j};{'red' if j % 2 else 'blue'};{j % 5};{j / 7:.3f}" for j in range(30)]
    put("mine.csv", "\n".join(rows).encode())
    monkeypatch.chdir(tmp_path)
    typed = ["dataset=file", "dataset.path=mine.csv", "algorithm=gd", "seed=0"]
    typed += ["algorithm.gd.clip=1", "runner=local"]
    assert main(typed) == 2
    assert "column 0 has no name" in capsys.readouterr().err
    typed += ["dataset.index=drop", "loss=huber"]
    assert main(typed) == 2
    assert "declare them, dataset.onehot={hue:[...]}" in capsys.readouterr().err
    assert main([*typed, "dataset.onehot={hue:[red,blue]}"]) == 0
    table = load_results("results/sweep")
    assert set(table.p) == {3} and set(table.loss) == {"huber"}
    assert "categories" not in table.uncharged.iloc[0]


SURVEY = "age\tsex\tsmokes\n30\tf\tno\n41\tm\tyes\n50\tf\tyes\n28\tm\tno\n"


def test_what_is_wrong_with_a_csv_is_told_as_it_is_typed(
    put, monkeypatch, tmp_path, capsys
):
    """Tabs, a hole, a wrong label, words as labels and as features."""
    put("mine.csv", SURVEY.encode())
    put("hole.csv", SURVEY.replace("m\tyes", "\tyes").encode())
    monkeypatch.chdir(tmp_path)
    typed = ["dataset=file", "algorithm=gd", "algorithm.gd.clip=1", "seed=0"]
    typed += ["runner=local", "runner.progress=false"]
    mine, yes = "dataset.path=mine.csv", "dataset.positive=[yes]"
    sex = "dataset.onehot={sex:[f,m]}"
    for more, told in (
        (
            ["dataset.path=hole.csv", yes, sex],
            'hole.csv: column "sex" has no value in row 3',
        ),
        (
            [mine, sex],
            'column "smokes" holds text in 4 rows, the first is row 2, labels',
        ),
        (
            [mine, "dataset.label=age", "dataset.onehot={sex:[f,m],smokes:[no,yes]}"],
            'column "age": ',
        ),
        ([mine, sex, "dataset.label=smoke"], "(did you mean smokes?)"),
        (
            [mine, yes, "dataset.onehot={sex:[f]}"],
            '"sex" holds a word in 2 rows, the first is row 3 that is',
        ),
    ):
        assert main([*typed, *more]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith("dp-erm-bench: ") and told in said
    assert main([*typed, mine, yes, sex]) == 0
    assert main([*typed, mine, yes, "dataset.onehot=[sex]", "name=read"]) == 0
    for name, read in (("sweep", False), ("read", True)):
        table = load_results(f"results/{name}")
        assert set(table.status) == {"ok"} and set(table.p) == {3}
        assert ("categories" in table.uncharged.iloc[0]) == read


@pytest.mark.parametrize("name", ["data.npz", "data.svm"])
@pytest.mark.parametrize("options", [{"onehot": ["a"]}, {"index": "drop"}])
def test_what_is_for_columns_of_a_csv_is_refused_elsewhere(put, name, options):
    content = npz(X=X, y=Y) if name.endswith("npz") else b"1 1:2\n-1 2:1\n"
    (key,) = options
    with pytest.raises(UsageError, match=rf"^dataset\.{key}=.* columns of a csv"):
        loaded(put(name, content), **options)


ODD_ROWS = [
    (
        "a,b,y\n1,2,0,9\n3,4,1,9\n",
        {},
        r"row 2 has 4 fields \(of 2 that are longer\), the",
    ),
    (
        "a,b,y\n1,2,0\n3,4,1,9\n",
        {},
        "row 3 has 4 fields, the header has 3.*dataset.head",
    ),
    ("a;b;y\n1;2;0\n3;4;1;9\n", {}, "row 3 has 4 fields, the header has 3"),
    ('"a","b","y"\n1,2,0\n3,4,1,9\n', {}, "row 3 has 4 fields, the header has 3"),
    ("1,2,0\n3,4,1,9\n", {"header": False}, "row 2 has 4 fields, row 1 has 3"),
    ("a,b,y\n1,2,0,\n3,4,1,5\n", {}, "row 3 has 4 fields, the header has 3"),
    ("a,b,y\n1,2,0\n3,4\n", {}, 'column "y" has no value in row 3'),
    (
        "0,1,2\n.5,.3,1\n.4,.2,2\n",
        {},
        "row 1 holds numbers that are equal steps.*header=t",
    ),
    (
        "0,1,2\n0,1,1\n1,0,2\n",
        {},
        "row 1 .*dataset.header=true or dataset.header=false",
    ),
    ("2015,2016,2017\n.5,.3,1\n.4,.2,2\n", {}, "row 1 .*dataset.header=true"),
    (
        "1990,2000,2015,2016\n.5,.3,1,0\n.4,.2,2,1\n1,2,3,1\n",
        {},
        "numbers far beyond all",
    ),
    (
        "400.5,401,403,2\n.5,.3,1,0\n.4,.2,2,1\n1,2,3,1\n",
        {},
        "row 1 holds numbers far bey",
    ),
    (
        ",0,1,2\n0,.5,.3,1\n1,.4,.2,2\n",
        {},
        "row 1 holds numbers after an empty cell.*head",
    ),
    (
        ",0,1,2\n0,.5,.3,1\n1,.4,.2,2\n",
        {"index": "drop"},
        "row 1 holds numbers after an",
    ),
    (
        "2015,2016,t\n.1,.9,no\n.2,.8,yes\n",
        {"positive": "yes"},
        "row 1 holds words that",
    ),
    (
        "2015,2016,t\n.1,.9,0\n.2,.8,1\n",
        {},
        "column 2 holds text in row 1; .*header=true",
    ),
    (
        "2015,16,7\n.1,.9,0\n",
        {"label": "7"},
        "label=7: must be one of 0, 1, 2; .*header=tr",
    ),
    (
        "2,1,0\n.1,.9,0\n.3,.8,1\n",
        {"label": 0, "header": True},
        'label=0: is the place of column "2" and the heading of another.*label=-3',
    ),
    ("age,y,y\n.5,0,0\n.2,1,1\n", {}, 'heading "y" stands 2 times, in columns 1, 2'),
    (
        "y,age,y\n.5,0,0\n.2,1,1\n",
        {"label": "y"},
        'heading "y" stands 2 times, in columns 0',
    ),
    (
        "a,a,y\n.5,0,0\n.2,1,1\n",
        {},
        'heading "a" .*dataset.header=false if row 1 is a rec',
    ),
    ("a,y ,y\n.5,0,0\n.2,1,1\n", {}, 'heading "y" stands 2 times'),
    (
        ",age,y\n5,.3,1\n2,.4,0\n9,.5,1\n",
        {},
        "column 0 has no name, .*dataset.index=drop",
    ),
    ('"",age,y\nb,.3,1\na,.4,0\n', {}, "column 0 has no name, .*dataset.index=keep"),
    (",age,y\n.5,.3,1\n.5,.4,0\n", {}, "column 0 has no name"),
    ("Unnamed: 0,age,y\n5,.3,1\n2,.4,0\n", {}, "column 0 has no name, as an index"),
    ("2,2,0\n3,4,1\n1,6,0\n", {"header": False}, "column 0 may count the records"),
    ("5,.2,0\n3,.4,1\n9,6,0\n", {"header": False}, "column 0 may count the records"),
    ("a,b,y,\n1,2,0\n3,4,1\n", {}, "column 3 without a name has no value in 2 rows"),
    ("a,,y\n1,2,0\n3,5,1\n", {}, "column 1 has no name among others that have one"),
    ("a,b,\n1,2,0\n3,5,1\n", {}, "column 2 has no name among others.*give it a head"),
    ("a,,y\n1,2,0\n3,5,1\n", {"drop": "a"}, "column 1 has no name among others"),
    ('a,z,y\r1,"2\r3",0\r3,5,1\r', {"text": "z", "onehot": ["z"]}, "spans 2 rows in"),
    ("My title\na,b,y\n1,2,0\n", {}, "has one column, and needs features and labels"),
    (
        "h,h=r,y\nr,2,0\nb,1,1\n",
        {"onehot": {"h": ["r", "b"]}},
        'heading "h=r" appears tw',
    ),
    (
        'x,c,y\n1,"a\n2,b,1\n3,c,0\n4,d",1\n5,e,0\n',
        {"onehot": ["c"]},
        'column "c" holds a quoted cell that spans 4 rows in row 2; close its quotes',
    ),
    (
        'x,c,y\n1,"a\r\n2,b,1\r\n3,c",0\n4,1,1\n',
        {"drop": "c"},
        'column "c" holds a quoted cell that spans 3 rows',
    ),
    (
        'x,z,y\n1,2,"a\n2,3,b\n3,4,a"\n5,6,a\n',
        {"positive": "a"},
        'column "y" holds a quoted cell that spans 3 rows in row 2',
    ),
    ("c,y\na,0\nb,1\nc,y\na,1\n", {"onehot": ["c"]}, "header stands again in row 4"),
    (
        "c,d,y\na,b,no\nc,d,y\n c,d ,y\nb,a,yes\n",
        {"onehot": ["c", "d"], "positive": "yes"},
        "the header stands again in 2 rows, the first is row 3; take it out",
    ),
    ('"a,x\n1,2",z,y\n3,4,0\n5,6,1\n', {}, 'n1,2" spans rows; close its quotes'),
    ("2015,x,y\n1,2,0\n2015,x,y\n1,3,1\n", {"header": True}, "again in row 3"),
    ("sep=;\na;b;y\n1;2;0\n3;4;1\n", {}, "row 1 names the separator; take it out"),
    ("a,b,y\n1,2,0\n", {"drop": ["z"]}, 'drop=z: must be one of "a", "b", "y"'),
    ("a,b,y\n1,2,0\n", {"drop": ["a", "b"]}, "dataset.drop=.*: leaves no feature"),
    ("a,b,y\n1,2,0\n", {"drop": "b", "onehot": ["b"]}, "onehot=b: must be one of .a"),
    ("a,b,y\n1,2,0\n", {"drop": "y", "label": "y"}, "label=y: must be one of .a., .b"),
    ("1,2,0\n3,4,1\n", {"drop": ["a"]}, "dataset.drop=a: must be one of 0, 1, 2"),
    (
        'a,y\n"1,5",0\n"2,25",1\n',
        {},
        "holds text in 2 rows.*: numbers with decimal commas or thousands separators",
    ),
    ("a,y\n15 %,0\n2%,1\n", {}, "numbers with percent signs; write 1234.5 for all"),
    (
        "c,y\nred,0\nRed,1\nblue,0\n",
        {"onehot": ["c"]},
        'column "c" holds red, another spelling of one of its words; correct it',
    ),
]
"""Shapes of a csv that read as other numbers than it holds."""


@each(("content", "how", "said"), ODD_ROWS, ids=[repr(one[0]) for one in ODD_ROWS])
def test_an_odd_shape_is_refused_with_the_row_and_the_key(content, how, said, put):
    with pytest.raises(UsageError, match=said) as caught:
        loaded(put("data.csv", content.encode()), **how)
    assert "\n" not in str(caught.value)


def test_rows_beyond_a_part_of_the_reader_are_counted(put):
    rows = "1,2,0\n3,4,1\n" * 2**17
    with pytest.raises(UsageError, match=f"row {2**18 + 2} has 4 fields, the header"):
        loaded(put("data.csv", f"a,b,y\n{rows}5,6,7,0\n".encode()))


@each(
    ("content", "how", "expected"),
    [
        # What ends in separators holds nothing beyond them.
        ("a,b,y\n1,2,0,\n3,4,1,,\n", {}, [[1, 2], [3, 4]]),
        ("a,b,y\n1,2,0\n3,4,1,\n", {}, [[1, 2], [3, 4]]),
        ("0,1,2\n.5,.3,1\n.4,.2,2\n", {"header": True}, [[0.5, 0.3], [0.4, 0.2]]),
        ("0,1,2\n3,4,1\n", {"header": False}, [[0, 1], [3, 4]]),
        ("1,2,0\n3,4,1\n5,6,0\n", {}, [[1, 2], [3, 4], [5, 6]]),
        ("7,16,t\n.1,.9,0\n.2,.8,1\n", {"label": "t"}, [[0.1, 0.9], [0.2, 0.8]]),
        (",a,y\n5,.3,1\n2,.4,0\n", {"index": "drop"}, [[0.3], [0.4]]),
        (",a,y\n5,.3,1\n2,.4,0\n", {"index": "keep"}, [[5, 0.3], [2, 0.4]]),
        ("\ufeffa,b,y\r\n1,2,0\r\n3,4,1\r\n", {}, [[1, 2], [3, 4]]),
        ("a,b,\n1,2,0\n3,4,1\n", {"label": -1}, [[1, 2], [3, 4]]),
        ("a,,y\n1,2,0\n3,4,1\n", {"drop": "Unnamed: 1"}, [[1], [3]]),
        ("a,b,y\n\n1,2,0\n\n3,4,1\n\n", {}, [[1, 2], [3, 4]]),
        ('"a;b",c,y\n1,2,0\n3,4,1\n', {}, [[1, 2], [3, 4]]),
        ("a,b,y\n1,true,0\n3,FALSE,1\n", {}, [[1, 1], [3, 0]]),
    ],
)
def test_a_shape_that_is_decided_is_read(content, how, expected, put):
    np.testing.assert_array_equal(
        loaded(put("d.csv", content.encode()), **how).X, expected
    )


def test_all_that_is_wrong_with_a_csv_is_told_at_once(put):
    content = "Patient ID,h\x1b[31m,age,age,y\nx,1,2,3,0\n,inf,,4,1\nz,1,2,,no\n"
    with pytest.raises(UsageError) as caught:
        loaded(put("data.csv", content.encode()))
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("6 of its columns or headings cannot be taken as they are:")
    assert lines[0].startswith('  heading "age" stands 2 times, in columns 2, 3 ')
    assert lines[1].startswith(
        '  column "Patient ID" holds text in 2 rows, the first is row 2 and has no '
        "value in row 3, features must be numbers"
    )
    assert (
        lines[2] == '  column "h\\x1b[31m" holds a number that is not finite in row 3'
    )
    assert lines[3] == '  column "age" has no value in row 3'
    assert lines[4] == '  column "age.1" has no value in row 4'
    assert lines[5].startswith(
        '  column "y" holds text in row 4, labels must be numbers'
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Patient ID", '"Patient ID"'),
        ("größe (cm)", '"größe (cm)"'),
        ("a\nb", r'"a\nb"'),
        ("a\u202eb", r'"a\u202eb"'),
        ('a"b', r'"a\"b"'),
        ("a" * 61, '"' + "a" * 57 + '..."'),
        ("\x1b" * 20, '"' + r"\x1b" * 14 + '..."'),
        (3, "3"),
    ],
)
def test_headings_are_quoted_escaped_and_short(name, shown):
    assert quote_heading(name) == shown


MISSING_WORDS = ["", " ", "NA", "N/A", "nan", "NaN", "None", "null", "<NA>", "NaT"]
MISSING_WORDS += [
    "\\N",
    ".",
    "?",
    "na",
    "Nan",
    "NULL",
    "Null",
    "-",
    "--",
    "\u2014",
    "*",
]
MISSING_WORDS += ["#REF!", "#DIV/0!", "#n/a", "#VALUE!", "n.a."]


@each("word", MISSING_WORDS)
@each("rest", [",yes\n2,2,no\n", ",1\n2,2,0\n"])
def test_a_missing_value_is_refused_in_every_column(word, rest, put):
    how = {"positive": "yes"} if "yes" in rest else {}
    label = f"a,b,y\n1,2,{word}\n2,2{rest}"
    with pytest.raises(UsageError, match='column "y" has no value in row 2'):
        loaded(put("label.csv", label.encode()), **how)
    for onehot in ({}, {"onehot": ["b"]}, {"onehot": {"b": ["2", "x"]}}):
        with pytest.raises(UsageError, match='column "b" has no value in row 2'):
            loaded(put("b.csv", f"a,b,y\n1,{word}{rest}".encode()), **how, **onehot)


def test_a_declared_word_is_no_missing_value(put):
    path = put("data.csv", b"region,y\nNA,None\nEU,some\n")
    how = {"onehot": {"region": ["EU", "NA"]}, "positive": "None"}
    for classes in (None, ["None", "some"]):
        found = loaded(path, classes=classes, **how)
        np.testing.assert_array_equal(found.X, [[0, 1], [1, 0]])
        np.testing.assert_array_equal(found.y, [1, -1])


@each(
    ("labels", "positive", "said"),
    [
        (
            ["no", "yes", "Yes"],
            "yes",
            "1 of the labels are Yes, which is another spell",
        ),
        (
            ["no", "yes", "YES", "YES"],
            ["yes"],
            "2 of the labels are YES, which is anot",
        ),
        (
            ["no", "yes", "\uff59\uff45\uff53"],
            "yes",
            "another spelling of one that beco",
        ),
        (["no", "not  ill", "not ill"], "not ill", "another spelling of one that"),
        (["0", "1", "-9", "-9"], [1], "2 of the labels are -9, which may stand for no"),
        (["1", "2", "3", "999"], [3], "1 of the labels are 999, which may stand for"),
        (["no", "yes", "-9"], "yes", "1 of the labels are -9, which may stand for no"),
        (["no", "yes", "unknown"], "yes", "unknown, which may stand for no value"),
        (["no", "yes", "(null)"], "yes", "which may stand for no value"),
        (["no", "yes", "[blank]", "-inf"], "yes", "which may stand for no value"),
    ],
)
def test_all_others_are_labels(labels, positive, said, put):
    """What becomes -1 by not being +1 is neither a code nor +1 in another spelling."""
    rows = [f"{j},{one}" for j, one in enumerate(labels)]
    path = put("data.csv", "\n".join(["a,y", *rows]).encode())
    with pytest.raises(UsageError, match=f"{said}.*dataset.classes="):
        loaded(path, positive=positive)
    with pytest.raises(UsageError, match=f"{said}.*dataset.classes="):
        own_dataset(np.eye(len(labels)), labels, positive=positive)
    words = any(isinstance(one, str) for one in [*positive])
    classes = [*{*labels}] if words else [*{*map(float, labels)}]
    told = loaded(path, positive=positive, classes=classes)
    assert np.count_nonzero(told.y == 1.0) == 1


def test_a_word_is_one_however_its_accents_are_written(put):
    """Composed or not, with a byte-order mark or a space that no one sees."""
    head = "\ufeff\ufeffgro\u0308\u00dfe,y\u200b"
    rows = [head, "1,gro\u0308\u00df", "2,gr\u00f6\u00df\u00a0", "3,klein"]
    path = put("data.csv", "\n".join(rows).encode())
    found = loaded(path, label="y", positive="gr\u00f6\u00df")
    np.testing.assert_array_equal(found.y, [1, 1, -1])
    assert feature_names(found) == ("gr\u00f6\u00dfe",)
    assert loaded(path, positive="gro\u0308\u00df").y.tolist() == [1, 1, -1]


def test_categories_that_are_read_are_few(put):
    """40,000 names make no columns, and the file is not called damaged."""
    rows = "".join(f"N{j},{j % 90},{j % 2}\n" for j in range(40_000))
    path = put("names.csv", f"name,c,y\n{rows}".encode())
    tracemalloc.start()
    with pytest.raises(
        UsageError,
        match=r'column "name" holds 40000 different words, at most 100 .*drop=\[name\]',
    ):
        loaded(path, onehot=["c", "name"])
    assert tracemalloc.get_traced_memory()[1] < 1e8
    tracemalloc.stop()
    assert loaded(path, onehot=["c"], drop="name").p == 90
    head = ",".join(f"c{j}" for j in range(12))
    rows = "".join(f"{','.join([f'v{j}'] * 12)},{j % 2}\n" for j in range(90))
    path = put("wide.csv", f"{head},y\n{rows}".encode())
    with pytest.raises(UsageError, match="more than 1000 different words"):
        loaded(path, onehot=head.split(","))
    assert (
        loaded(
            path,
            onehot={"c0": [f"v{j}" for j in range(200)]},
            drop=[f"c{j}" for j in range(1, 12)],
        ).p
        == 200
    )


def test_columns_that_are_dropped_are_as_if_they_were_not_there(put):
    whole = put("whole.csv", b"id,a,note,y\nx,1,u,0\ny,2,v,1\nz,3,NA,1\n")
    plain = put("plain.csv", b"a,y\n1,0\n2,1\n3,1\n")
    found, other = loaded(whole, drop=["id", "note"]), loaded(plain)
    np.testing.assert_array_equal(found.X, other.X)
    assert feature_names(found) == ("a",) and found.uncharged == other.uncharged
    parts = ("auto", "auto", "none")

    def identity(path, **how):
        return problem_named("file", {"path": path, **how}, *parts).identity

    assert identity(plain) == identity(plain, drop=None) == identity(plain, drop=[])
    dropped = identity(whole, drop=["id", "note"])
    assert dropped == identity(whole, drop=("note", "id")) != identity(plain)
    places = put("places.csv", b"9,1,0\n7,2,1\n")
    for drop in (0, [0], "0"):
        np.testing.assert_array_equal(loaded(places, drop=drop).X, [[1], [2]])
    npz_path = put("data.npz", npz(X=X, y=Y))
    with pytest.raises(
        UsageError, match=r"^dataset\.drop=\['?a'?\]: is for the columns"
    ):
        loaded(npz_path, drop=["a"])


WORDS = [
    (["1E5", "10E4", "100000"], {"positive": ["1E5"]}, [1, -1, -1]),
    (["1E5", "10E4", "100000", "7"], {"positive": [100000]}, [1, 1, 1, -1]),
    (["1000000000001", "1000000000002"], {"positive": ["1000000000001"]}, [1, -1]),
    (["1000000000001", "1000000000002"], {"positive": [1000000000001]}, [1, -1]),
    (
        ["9007199254740993", "9007199254740992"],
        {"positive": ["9007199254740993"]},
        [1, -1],
    ),
    (["007", "7"], {"positive": ["007"]}, [1, -1]),
    (["1", "1.0", "2"], {"positive": [1]}, [1, 1, -1]),
    (["1", "1.0", "2"], {"classes": [1, 2]}, [-1, -1, 1]),
    (["yes", "yes ", "no"], {"positive": "yes"}, [1, 1, -1]),
    (["True", "false"], {}, [1, -1]),
    (["TRUE", "False"], {"positive": [True]}, [1, -1]),
    (["True", "False"], {"positive": ["True"]}, [1, -1]),
    (["2020-01-02", "2020-01-01"], {"positive": ["2020-01-02"]}, [1, -1]),
    (["2020-01-02", "2020-01-01"], {"positive": [date(2020, 1, 2)]}, [1, -1]),
]


@each(("words", "how", "y"), WORDS, ids=[f"{w} {h}" for w, h, _ in WORDS])
def test_a_word_is_itself_and_a_number_is_its_value(words, how, y, put):
    """Labels of a csv and of a list of texts, and categories, by one rule."""
    rows = [f"{j},{one}" for j, one in enumerate(words)]
    path = put("data.csv", "\n".join(["a,y", *rows]).encode())
    np.testing.assert_array_equal(loaded(path, **how).y, y)
    if how:
        own = own_dataset(np.eye(len(words)), words, **{"positive": None} | how)
        np.testing.assert_array_equal(own.y, y)


@each(
    ("labels", "how", "said"),
    [
        (["1_0", "0"], {"positive": [10]}, 'column "y" holds text in row 2'),
        (
            ["1.0", "2"],
            {"classes": ["1", "2"], "positive": "1"},
            "record 0 has a label",
        ),
        (
            ["9007199254740993", "1"],
            {"positive": [9007199254740993]},
            r"^dataset\.positive=\[9007199254740993\]: .*from 2.53 on",
        ),
        (
            ["1", "0"],
            {"classes": [0, 9007199254740993], "positive": 0},
            r"^dataset\.classes=\[0, 9007199254740993\]: .*from 2.53 on",
        ),
        (
            ["1", "0"],
            {"onehot": {"a": [0, 9007199254740993]}},
            r"^dataset\.onehot\.a=\[0, 9007199254740993\]: .*from 2.53 on",
        ),
        (["1", "0"], {"onehot": {"a": [0, None]}}, r"^dataset\.onehot\.a=.* only"),
    ],
)
def test_words_that_cannot_be_told_are_refused(labels, how, said, put):
    rows = [f"{j},{one}" for j, one in enumerate(labels)]
    with pytest.raises(UsageError, match=said):
        loaded(put("data.csv", "\n".join(["a,y", *rows]).encode()), **how)


def test_ids_are_categories_in_full(put):
    ids = ["1000000000001", "1000000000002", "9007199254740993", "9007199254740992"]
    rows = [f"{one},{j % 2}" for j, one in enumerate(ids)]
    path = put("data.csv", "\n".join(["id,y", *rows]).encode())
    for how in ({"onehot": ["id"]}, {"onehot": ["id"], "text": "id"}):
        found = loaded(path, **how)
        assert feature_names(found) == tuple(f"id={one}" for one in sorted(ids))
        np.testing.assert_array_equal(found.X.sum(axis=1), 1.0)


SVMLIGHT = [
    (
        "1 1:0.5 2147483647:2\n-1 2:1\n",
        {},
        r"record 1 .*dataset\.p .*2147483647 features .*bytes",
    ),
    (
        "1 1:0.5\n-1 2:1 2147483648:2\n",
        {},
        r"row 2: .* 2147483648, .*dataset\.p .*bytes",
    ),
    (
        "1 4294967297:2\n-1 2:1\n",
        {},
        r"row 1: .* 4294967297, .*dataset\.p .*bytes",
    ),
    ("1 1:1\n-1 2:1\n", {"p": 10**12}, r"dataset.p=1000000000000: .*bytes"),
    ("1 1:1\n-1 3:1 2:5\n", {}, "row 2: feature 2 follows 3; .*must increase"),
    ("1 1:1\n-1 3:1 3:5\n", {}, "row 2: feature 3 stands twice; .*must increase"),
    ("1 1:1\n-1 5:1\n", {"p": 3}, r"row 2: feature 5 is beyond dataset\.p=3, .*p=5"),
    ("1 0:1\n-1 3:1\n", {"p": 3}, r"row 2: feature 3 is beyond dataset\.p=3, .*p=4"),
    ("1 0:1\n-1 3:1\n", {"first": 1}, r"row 1: feature 0 is less than 1.*first=0"),
    ("1 -1:1\n-1 3:1\n", {}, "row 1: feature -1 is less than 0"),
    ("1 1:1_0\n-1 3:1\n", {}, "row 1: holds an entry that is not FEATURE:NUMBER"),
    ("1 1_0:1\n-1 3:1\n", {}, "row 1: holds an entry that is not FEATURE:NUMBER"),
    ("1,2 1:1\n-1 3:1\n", {}, "row 1: begins with no number"),
    ("1 1:nan\n-1 3:1\n", {}, "not finite: record 0, feature 0"),
    ("nan 1:1\n-1 3:1\n", {}, "y holds a value that is not finite: record 0"),
]


@each(("content", "how", "said"), SVMLIGHT, ids=[repr(one[0]) for one in SVMLIGHT])
def test_a_wrong_row_of_svmlight_is_told_with_the_key(content, how, said, put):
    with pytest.raises(UsageError, match=said) as caught:
        loaded(put("x.svm", content.encode()), **how)
    assert "\n" not in str(caught.value)


def test_sparse_features_that_indices_do_not_count_are_refused(put):
    """None is made: all entries are one number, seen often."""
    wide = sp.csc_array((2, 1))
    wide.data = np.broadcast_to(np.ones(1), 2**31)
    wide.indices = np.broadcast_to(np.zeros(1, np.int64), 2**31)
    wide.indptr = np.array([0, 2**31])
    with pytest.raises(
        UsageError, match="hold 2147483648 non-zeros: at most 2147483647"
    ):
        as_features(wide)
    many = csr_parts(indices=[0, 2**40], shape=(2, 2**41))
    with pytest.raises(UsageError, match=r"p = 2199023255552 features take .* bytes"):
        loaded(put("wide.npz", npz(**many, format="csr", y=[0, 1])))


def csr_parts(indices, shape):
    return {
        "data": np.ones(len(indices)),
        "indices": np.array(indices),
        "indptr": np.arange(len(indices) + 1),
        "shape": np.array(shape),
    }
