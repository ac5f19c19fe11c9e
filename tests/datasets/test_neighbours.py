"""Test that everything read from the records before a run is declared or listed.

If two files differ in one record, the loaded datasets must differ in this record only.
Features, names and labels must be the same, unless `uncharged` names what was read.
"""

import io

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench import fit, load_problem, load_results, problem_from_arrays
from dp_erm_bench.cli.main import main
from dp_erm_bench.datasets import load
from dp_erm_bench.datasets.load import load_dataset, own_dataset
from dp_erm_bench.datasets.spec import call_loader, check_spec, dataset_spec
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.parameters import problem_named

PAIRS = 300
FORMATS = ("csv", "svmlight", "npz", "arrays", "frame")
LABELS = (["0", "1"], ["1", "2"], ["-1", "1"], ["1", "2", "3"], ["no", "yes"])
USUAL = ("1", "0.5", "-2", "1E5", "100000", "10E4", "True", "7")
ODD = ("A1", "", "nan", "900", "1e400", "true", "0x1", "1_0")


class Case:
    """Random records as words, what is declared of them, and how they are written."""

    def __init__(self, rng, kind):
        self.rng, self.kind = rng, kind
        self.p = int(rng.integers(1, 4))
        words = kind in ("csv", "arrays", "frame", "npz")
        self.labels = LABELS[rng.integers(len(LABELS) - (not words))]
        self.first, self.named = rng.integers(2), rng.random() < 0.7
        self.hue = kind == "csv" and rng.random() < 0.5
        self.options = {}
        self.declare()

    def coin(self, share=0.5):
        return self.rng.random() < share

    def declare(self):
        plain = [w if w.isalpha() else int(w) for w in self.labels]
        many = len(plain) > 2 or isinstance(plain[0], str)
        if self.coin():
            self.options["classes"] = list(
                self.rng.permutation(np.array(plain, object))
            )
        if self.coin(0.3) or many:
            self.options["positive"] = [plain[self.rng.integers(len(plain))]]
        if self.kind == "csv":
            # What is no index is said to be none.
            self.options["index"] = "keep"
            if self.coin():
                self.options["header"] = bool(self.named)
            if self.hue:
                name = "hue" if self.named else str(self.p)
                words = ["red", "blue"] if self.coin() else [name]
                self.options["onehot"] = {name: words} if len(words) > 1 else words
                if self.coin():
                    self.options["text"] = [name]
        if self.kind == "svmlight":
            if self.coin():
                self.options["p"] = self.p
            if self.coin():
                self.options["first"] = int(self.first)

    def record(self, odd=False):
        pool = USUAL + ODD * odd
        pool = [w for w in pool if self.kind != "svmlight" or w != "True"]
        cells = [str(self.rng.choice(pool)) for _ in range(self.p)]
        if self.kind == "svmlight":
            cells = [cell if self.coin(0.7) else "" for cell in cells]
        hue = [str(self.rng.choice(["red", "blue", *["12"] * odd]))] * self.hue
        label = str(self.rng.choice([*self.labels, *["3", "0", ""] * odd]))
        wide = odd and self.kind in ("csv", "svmlight") and self.coin(0.2)
        return [*cells, *hue, *["5"] * wide, label]

    def load(self, records):
        """Return X, y and the names of features; raise as the loader does."""
        if self.kind in ("arrays", "frame"):
            X = np.array([[number(c) for c in one[:-1]] for one in records])
            y = [one[-1] for one in records]
            y = np.array(y if self.labels[0].isalpha() else [*map(number, y)])
            if self.kind == "frame":
                X, y = pd.DataFrame(X).add_prefix("c"), pd.Series(y)
            how = {"positive": None, "classes": None} | self.options
            found = own_dataset(X, y, **how)
            return found.X, found.y, found.columns, found.uncharged
        path = self.path
        path.write_bytes(getattr(self, self.kind)(records))
        spec = check_spec(dataset_spec("file", path=str(path), **self.options))
        arrays, told = load._prepare_dataset(spec)
        names = [name for name, _ in told["features"]]
        read = call_loader(spec.loader.uncharged, spec.options)
        X = (
            arrays["X"]
            if isinstance(arrays["X"], np.ndarray)
            else arrays["X"].toarray()
        )
        return X, arrays["y"], names, (*read, *spec.recipe.uncharged)

    def csv(self, records):
        names = [*(f"c{j}" for j in range(self.p)), *["hue"] * self.hue, "y"]
        rows = [names] * self.named + records
        return "\n".join(map(",".join, rows)).encode()

    def svmlight(self, records):
        lines = []
        for *cells, label in records:
            entries = (f"{j + self.first}:{c}" for j, c in enumerate(cells) if c)
            lines.append(" ".join([label, *entries]))
        return "\n".join(lines).encode()

    def npz(self, records):
        y = [one[-1] for one in records]
        y = np.array(y if self.labels[0].isalpha() else [*map(number, y)])
        buffer = io.BytesIO()
        X = np.array([[number(c) for c in one[:-1]] for one in records])
        np.savez(buffer, X=X, y=y)
        return buffer.getvalue()


def number(cell):
    """Return the number of a cell that a container of numbers would hold."""
    try:
        return float(cell.lower().replace("true", "1").replace("_", "x"))
    except ValueError:
        return np.nan


def loaded(case, records):
    try:
        return case.load(records)
    except UsageError:
        return None


@pytest.mark.parametrize("kind", FORMATS)
def test_one_record_changes_one_row_or_it_is_said_what_was_read(kind, tmp_path):
    told = {"whole": 0, "read": 0, "refused": 0}
    for seed in range(PAIRS // len(FORMATS)):
        case = Case(np.random.default_rng([FORMATS.index(kind), seed]), kind)
        case.path = tmp_path / f"data.{kind}"
        records = [case.record() for _ in range(case.rng.integers(3, 8))]
        place = int(case.rng.integers(len(records)))
        odd = case.record(odd=True)
        others = [*records[:place], odd, *records[place + 1 :]]
        one, other = loaded(case, records), loaded(case, others)
        if one is None or other is None:
            told["refused"] += 1
            _check_refusal(case, one, other, odd)
            continue
        (X, y, names, read), (Z, z, more, also) = one, other
        assert read == also
        same = X.shape == Z.shape and (*names,) == (*more,)
        kept = np.arange(len(y)) != place
        same = same and (X[kept] == Z[kept]).all() and (y[kept] == z[kept]).all()
        told["whole" if same else "read"] += 1
        assert same or read, (seed, case.options, records, odd)
    assert min(told["whole"], told["refused"]) > 3, told


def _check_refusal(case, one, other, odd):
    """Refused by what a record is by itself: among any others, or it is said why."""
    found = one or other
    read = found[3] if found else ()
    if read or "positive" in case.options and "classes" not in case.options:
        return
    if case.kind == "csv" and "header" not in case.options:
        return  # of a first row that may be headings
    assert found is one, (case.options, odd)
    case.rng = np.random.default_rng(0)
    for _ in range(3):
        fresh = [case.record() for _ in range(4)]
        assert loaded(case, fresh) is not None
        assert loaded(case, [*fresh, odd]) is None, (case.options, fresh, odd)


RECORDS = [[f"{j % 3 - 1}", f"{j % 2}", "1"] for j in range(40)]
"""Two features and the first label of a pair, whose second one record has alone."""


def written(path, records, sep=","):
    path.write_text("\n".join(["a,b,y", *map(sep.join, records)]))
    return str(path)


def problem(path, **more):
    how = {"header": True, "bounds": {"columns": 9}} | more
    return load_problem("file", "logistic", "none", path=path, **how)


def test_one_label_flips_no_other_where_the_classes_are_declared(tmp_path):
    two, zero = ([*RECORDS[:-1], ["1", "0", last]] for last in "20")
    paths = [
        written(tmp_path / f"{n}.csv", r) for n, r in (("two", two), ("zero", zero))
    ]
    flipped = [problem(path).dataset for path in paths]
    assert (flipped[0].y[:-1] == -flipped[1].y[:-1]).all()
    for one in flipped:
        assert one.uncharged == ("classes",)
    declared = [problem(path, classes=[0, 1, 2], positive=[1]) for path in paths]
    np.testing.assert_array_equal(declared[0].dataset.y, declared[1].dataset.y)
    found = fit(declared[0], "gd", epsilon=1.0, clip=1.0, n_iter=2)
    assert found.uncharged == ()
    with pytest.raises(UsageError, match=r"record 39 .* none of classes=\['0', '1'\]"):
        problem(paths[0], classes=[1, 0])
    # One that lacks a class is fitted.
    lacks = written(tmp_path / "one.csv", RECORDS)
    assert (problem(lacks, classes=[2, 1]).dataset.y == -1.0).all()


def test_a_line_of_svmlight_widens_no_other(tmp_path):
    narrow, wide = tmp_path / "narrow.svm", tmp_path / "wide.svm"
    narrow.write_text("1 1:2 3:1\n-1 2:1\n")
    wide.write_text("1 1:2 3:1\n-1 900:0.5\n")
    read = [load_dataset(dataset_spec("file", path=str(p))) for p in (narrow, wide)]
    assert [one.p for one in read] == [3, 900]
    assert all(one.uncharged == ("features", "classes") for one in read)
    how = {"p": 3, "first": 1, "classes": [-1, 1]}
    told = load_dataset(dataset_spec("file", path=str(narrow), **how))
    assert told.p == 3 and told.uncharged == ()
    with pytest.raises(UsageError, match=r"row 2: feature 900 is beyond dataset\.p=3"):
        load_dataset(dataset_spec("file", path=str(wide), **how))
    zero = tmp_path / "zero.svm"
    zero.write_text("1 0:2 2:1\n-1 1:1\n")
    with pytest.raises(UsageError, match=r"row 1: feature 0 .* dataset\.first=0"):
        load_dataset(dataset_spec("file", path=str(zero), **how))
    with pytest.raises(UsageError, match=r"dataset\.first=2: must be null, 0 or 1"):
        load_dataset(dataset_spec("file", path=str(zero), first=2))


def test_a_column_is_of_the_kind_that_is_declared(tmp_path):
    def read(words, **how):
        path = tmp_path / f"{words[-1]}.csv"
        path.write_text(
            "\n".join(["id,y", *(f"{w},{j % 2}" for j, w in enumerate(words))])
        )
        how = {"header": True, "classes": [0, 1]} | how
        return load_dataset(dataset_spec("file", path=str(path), **how))

    words = ["1E5", "10E4", "100000", "1E5"]
    numbers = read(words, onehot={"id": [100000, 7]})
    np.testing.assert_array_equal(numbers.X[:, 0], 1.0)
    texts = read(words, onehot={"id": words[:3]})
    assert texts.X.tolist() == np.eye(3)[[0, 1, 2, 0]].tolist()
    assert texts.uncharged == numbers.uncharged == ()
    odd = [*words[:3], "A1"]
    with pytest.raises(
        UsageError, match="column .id. holds a word in row 5 that is not"
    ):
        read(odd, onehot={"id": [100000, 7]})
    for how, said in (
        ({"onehot": ["id"]}, ("kinds", "categories")),
        ({"onehot": ["id"], "text": ["id"]}, ("categories",)),
    ):
        found = read(odd, **how)
        assert found.uncharged == said and found.p == 4
    assert read(words, onehot=["id"]).p == 1
    with pytest.raises(
        UsageError, match=r"column of dataset\.text=ib: must be one of .id., .y."
    ):
        read(words, text=["ib"])
    with pytest.raises(
        UsageError, match=r"dataset\.text=\['id'\]: column .id. is neither"
    ):
        read(words, text=["id"])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            {"classes": [0]},
            r"dataset\.classes=\[0\]: must be null or a list of the labels",
        ),
        ({"classes": 1}, r"dataset\.classes=1: must be null or a list"),
        ({"classes": [0, 1, 2]}, r"classes=\[0, 1, 2\]: must be two numbers.*positive"),
        (
            {"classes": ["no", "yes"]},
            "must be two numbers, of which the larger becomes",
        ),
        (
            {"classes": [0, None]},
            r"dataset\.classes=\[0, None\]: must hold numbers or text only",
        ),
        (
            {"classes": [0, 1], "positive": [2]},
            r"positive=\[2\].*of dataset\.classes=\[0",
        ),
        (
            {"classes": [0, 1], "positive": [0, 1]},
            "some, but not all, of dataset.classes",
        ),
        (
            {"classes": [0, 1], "task": "regression"},
            r"dataset\.classes=.*null for a regr",
        ),
        ({"p": 0}, r"dataset\.p=0: must be null or an integer >= 1"),
        ({"p": 3}, r"dataset\.p=3: .*data\.csv has 2 features"),
        ({"first": 1}, r"dataset\.first=1: is for the features of svmlight"),
    ],
)
def test_a_wrong_declaration_is_refused_in_one_sentence(how, said, tmp_path):
    path = written(tmp_path / "data.csv", [["1", "2", "0"], ["2", "1", "1"]])
    with pytest.raises(UsageError, match=said):
        load_dataset(dataset_spec("file", path=path, **how))


def test_to_declare_what_was_read_moves_no_identity(tmp_path):
    path = written(tmp_path / "data.csv", [["1", "2", "0"], ["2", "1", "1"]])
    same = [
        {},
        {"classes": [0, 1]},
        {"classes": [1, 0], "positive": [1]},
        {"positive": 1, "header": True, "p": 2, "classes": [0, 1]},
    ]
    parts = ("logistic", "none", "none")
    names = {
        problem_named("file", {"path": path, **how}, *parts).identity for how in same
    }
    assert len(names) == 1
    assert (
        problem_named("file", {"path": path, "positive": [0]}, *parts).identity
        not in names
    )
    signs = [{}, {"positive": [1], "classes": [-1, 1]}, {"classes": [1, -1]}]
    assert len({problem_named("log1", how, *parts).identity for how in signs}) == 1
    hue = tmp_path / "hue.csv"
    hue.write_text("hue,y\nblue,0\nred,1\n")
    read, told = (
        problem_named("file", {"path": str(hue), "onehot": how}, *parts).identity
        for how in (["hue"], {"hue": ["blue", "red"]})
    )
    assert read == told


def test_to_declare_the_classes_of_a_published_set_moves_no_identity(mirror):
    signs = [{}, {"positive": [1], "classes": [-1, 1]}, {"classes": [1, -1]}]
    parts = ("logistic", "none", "none")
    assert len({problem_named("madelon", how, *parts).identity for how in signs}) == 1


def test_what_is_read_belongs_to_the_line_and_not_to_its_record(tmp_path, monkeypatch):
    """A trial that ran with other declarations tells what holds; nothing runs."""
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "data.csv", RECORDS[:-1] + [["1", "0", "2"]])
    typed = ["dataset=file", f"dataset.path={path}", "algorithm=gd", "seed=0"]
    typed += ["algorithm.gd.clip=1", "algorithm.gd.n_iter=2", "runner=local"]
    typed += ["dataset.bounds={columns:9}"]
    for more, said in (
        (["dataset.classes=[1,2]", "dataset.header=true"], ""),
        ([], "classes,header"),
        (["dataset.classes=[2,1]", "dataset.header=true"], ""),
    ):
        assert main([*typed, *more]) == 0
        table = load_results("results/sweep")
        assert set(table.uncharged) == {said} and table.trial.nunique() == 1
        assert len(table) == len(table.drop_duplicates(["trial", "iteration"]))


def test_arrays_declare_their_classes_or_are_read():
    X, y = np.eye(4), np.array(["no", "yes", "no", "no"])
    how = {"loss": "logistic", "positive": "yes"}
    read = problem_from_arrays(X, y, **how).dataset
    told = problem_from_arrays(X, y, **how, classes=["yes", "no", "maybe"]).dataset
    assert (read.uncharged, told.uncharged) == (("classes",), ())
    np.testing.assert_array_equal(read.y, told.y)
    # Whether they were declared or read is not known.
    typed = pd.Series(y, dtype=pd.CategoricalDtype(["no", "yes"]))
    assert problem_from_arrays(X, typed, **how).dataset.uncharged == ("classes",)
    numbers = problem_from_arrays(X, [0, 1, 0, 0], loss="logistic", classes=[1, 0])
    np.testing.assert_array_equal(numbers.dataset.y, read.y)
    with pytest.raises(
        UsageError, match=r"record 1 has a label that is none of classes"
    ):
        problem_from_arrays(X, [0, 3, 0, 0], loss="logistic", classes=[1, 0])
    with pytest.raises(
        UsageError, match=r"^classes=\['no', 'yes'\]: must be two numbers"
    ):
        problem_from_arrays(X, y, loss="logistic", classes=["no", "yes"])
