"""Test bounds by name and by range, scaled columns, and notes on clipping."""

import itertools
import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array

from dp_erm_bench import paths, problem_from_arrays
from dp_erm_bench.datasets import load
from dp_erm_bench.datasets.base import Clipping
from dp_erm_bench.datasets.load import SEAL, load_dataset
from dp_erm_bench.datasets.prepare import (
    revealing_features_sentence,
    wide_bounds_sentence,
)
from dp_erm_bench.datasets.spec import check_spec, dataset_spec, identifying_keys
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.parameters import problem_named
from dp_erm_bench.problems.erm.problem import feature_names

ROWS = [
    *([20.0, 5.0, "red", "no"], [90.0, 60.0, "blue", "yes"], [50.0, 10.0, "red", "no"]),
    *(
        [70.0, 70.0, "blue", "yes"],
        [35.0, 1.0, "red", "no"],
        [60.0, 49.0, "red", "yes"],
    ),
]
NAMED = {"columns": {"age": [0, 100], "crp": 50}}
HOW = {
    **{"header": True, "label": "ill", "onehot": {"hue": ["red", "blue"]}},
    **{"classes": ["no", "yes"], "positive": ["yes"]},
}
FRAME = pd.DataFrame([row[:2] for row in ROWS], columns=["age", "crp"])
SIGNS = np.array([1.0 if row[-1] == "yes" else -1.0 for row in ROWS])


@pytest.fixture
def table(tmp_path):
    """Return a function that writes records and loads them with keys."""

    def load(rows=ROWS, name="my.csv", **keys):
        path = tmp_path / name
        lines = ["age,crp,hue,ill", *(",".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
        return load_dataset(dataset_spec("file", path=str(path), **{**HOW, **keys}))

    return load


def test_columns_are_mapped_by_what_is_declared_and_nothing_is_uncharged(table):
    keys = {
        "bounds": NAMED,
        "scale": "bounds",
        "clip_to_bounds": True,
        "intercept": 2.0,
    }
    data = table(**keys)
    age, crp = (np.array([row[j] for row in ROWS]) for j in (0, 1))
    red = np.array([row[2] == "red" for row in ROWS])
    expected = [age / 50.0 - 1.0, np.minimum(crp, 50.0) / 50.0, red, ~red]
    expected = np.column_stack([*expected, np.full(len(ROWS), 2.0)])
    np.testing.assert_allclose(data.X, expected, rtol=1e-15)
    assert data.uncharged == ()
    assert data.bounds.columns.tolist() == [1.0, 1.0, 1.0, 1.0, 2.0]
    # The two indicators of `hue` count 1 together.
    assert data.bounds.norm == np.hypot(np.sqrt(3.0), 2.0)
    assert data.clipping == Clipping(2 / 6, (1,))
    # One record replaced: the others are as they were, whatever it holds.
    other = table([[1e6, -3.0, "blue", "no"], *ROWS[1:]], **keys)
    np.testing.assert_array_equal(other.X[1:], data.X[1:])
    assert other.bounds.spec == data.bounds.spec
    assert (np.abs(other.X[:, :-1]) <= 1.0).all()


def test_the_norm_bounds_the_scaled_record(table):
    given = {**NAMED, "norm": 0.5}
    data = table(bounds=given, scale="bounds", clip_to_bounds=True)
    lengths = np.linalg.norm(data.X, axis=1)
    np.testing.assert_allclose(lengths, 0.5)
    assert data.clipping.share == 1.0 and data.bounds.norm == 0.5


def test_ranges_hold_the_extremes_exactly(table):
    """No rounding leaves [-1, 1], and the ends are met."""
    rng = np.random.default_rng(0)
    low = rng.normal(size=200) * 10.0 ** rng.integers(-8, 8, 200)
    high = low + rng.uniform(size=200) * 10.0 ** rng.integers(-8, 8, 200)
    pairs = [[a, b] for a, b in zip(low, high, strict=True) if a < b]
    ends = np.array(pairs).T
    X = np.vstack([ends, ends.mean(axis=0), ends * 1e3])
    how = {"loss": "logistic", "clip_to_bounds": True, "scale": "bounds"}
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    found = problem_from_arrays(X, y, bounds={"columns": pairs}, **how).dataset.X
    np.testing.assert_array_equal(found[:2], [np.full(len(pairs), s) for s in (-1, 1)])
    assert (np.abs(found) <= 1.0).all()


def test_bounds_by_name_are_those_of_a_list(table):
    named = {"columns": {"crp": 50, "hue": 1}, "default": 100}
    listed = {"columns": [100, 50, 1, 1]}
    one, two = (table(bounds=b, clip_to_bounds=True) for b in (named, listed))
    assert one.content_hash == two.content_hash
    assert one.bounds.spec == two.bounds.spec
    # An indicator is 0 or 1, whatever the default is; it takes its column's bound.
    half = table(bounds={"columns": {"hue": 0.5}, "default": 100}, clip_to_bounds=True)
    assert half.X[:, 2:].max() == 0.5


def test_a_range_without_scale_is_what_entries_are_clipped_to(table):
    data = table(bounds={"columns": {"age": [30, 60], "crp": 70}}, clip_to_bounds=True)
    assert (data.X[:, 0].min(), data.X[:, 0].max()) == (30.0, 60.0)
    assert data.bounds.columns.tolist() == [60.0, 70.0, 1.0, 1.0]
    assert data.clipping == Clipping(3 / 6, (0,))


REFUSED = [
    (
        {"columns": {"age": 100}},
        {},
        r"columns=\{age:100\}: has no bound for column \"crp",
    ),
    ({"columns": {"aeg": 1}, "default": 1}, {}, r"columns=aeg \(did you mean age\?\)"),
    (
        {"columns": {"age": [9, 3]}},
        {},
        r"columns.age=\[9,3\]: must be .*low below high",
    ),
    (
        {"columns": {"age": [3, 3]}},
        {},
        r"columns.age=\[3,3\]: must be .*low below high",
    ),
    ({"columns": [[9, 3], 1, 1, 1]}, {}, r"columns=\[9,3\]: must be .*low below high"),
    ({"columns": {"age": [1, 2, 3]}}, {}, r"columns.age=\[1,2,3\]: must be"),
    ({"columns": {"age": "x"}, "default": 1}, {}, r"columns.age=x: must be a finite"),
    ({"columns": 1, "default": 1}, {}, "default:1}: must be .* beside columns by name"),
    (
        {"columns": {"age": 10, "crp": 99}},
        {},
        'column "age" exceeds its declared bound 10',
    ),
    (
        {"columns": {"age": [0, 9], "crp": 99}},
        {},
        r'"age" exceeds its .* range \[0,9\]',
    ),
    ({"columns": [100, 9, 1, 1]}, {}, 'column "crp" exceeds its declared bound 9'),
    ({"columns": {"age": 0, "crp": 99}}, {"scale": "bounds"}, 'is 0 for column "age"'),
    (NAMED, {"scale": "range"}, "scale=range: must be null or bounds"),
    (
        None,
        {"scale": "bounds"},
        "scale=bounds: must be null unless bounds are declared",
    ),
    ({"norm": 1}, {"scale": "bounds"}, "bounds={norm:1}: must have columns"),
    (
        NAMED,
        {"scale": "bounds", "standardise": True},
        "beside dataset.standardise=true",
    ),
    (NAMED, {"drop_empty": True}, "drop_empty=True: must be false where"),
    (
        {"columns": {"age": "FILL_IN"}, "default": 1},
        {},
        "age=FILL_IN: must be replaced by",
    ),
    (
        {"columns": {"age": [0, "FILL_IN"]}},
        {},
        r"age=\[0,FILL_IN\]: must be replaced by",
    ),
    ({"columns": {}, "default": "FILL_IN"}, {}, "default=FILL_IN: must be replaced by"),
    ({"columns": 1, "label": "FILL_IN"}, {}, "label=FILL_IN: must be replaced by"),
]


@pytest.mark.parametrize(("bounds", "keys", "said"), REFUSED)
def test_what_is_no_bound_is_refused_in_a_sentence(table, bounds, keys, said):
    with pytest.raises(UsageError, match=said) as caught:
        table(bounds=bounds, **keys)
    assert "\n" not in str(caught.value)


def test_a_sparse_column_is_divided_and_never_shifted():
    X = csc_array(np.array([[0.0, 4.0], [2.0, 0.0], [0.0, -8.0]]))
    y = np.array([1.0, -1.0, 1.0])
    how = {"loss": "logistic", "scale": "bounds"}
    bounds = {"columns": [4, [-8, 8]]}
    data = problem_from_arrays(X, y, bounds=bounds, **how).dataset
    np.testing.assert_array_equal(data.X.toarray(), X.toarray() / [4.0, 8.0])
    said = r'^bounds.columns .*\[0,8\] of column "x1" is not symmetric.* X.toarray\(\)'
    with pytest.raises(UsageError, match=said):
        problem_from_arrays(X, y, bounds={"columns": [4, [0, 8]]}, **how)
    clip = {"bounds": {"columns": 2}, "clip_to_bounds": True}
    clipped = problem_from_arrays(X, y, **how, **clip).dataset
    assert clipped.clipping == Clipping(2 / 3, (1,))


def test_a_model_maps_records_as_those_of_its_fit_were(table, tmp_path):
    table()
    for norm in ({}, {"norm": 1.0}):
        spec = {"path": str(tmp_path / "my.csv"), **HOW, "intercept": 1.0}
        spec |= {"bounds": {**NAMED, **norm}, "scale": "bounds", "clip_to_bounds": True}
        problem = problem_named("file", spec, "logistic", "none", "none")
        w = np.array([0.5, -2.0, 1.0, 3.0, 0.25])
        model = pickle.loads(pickle.dumps(problem.model(w)))
        raw = pd.DataFrame([row[:3] for row in ROWS], columns=["age", "crp", "hue"])
        expected = problem.dataset.X @ w
        np.testing.assert_allclose(model.decision_function(raw), expected, rtol=1e-14)
        # The problem's own records are mapped already, and so are slices of them.
        model, own = problem.model(w), problem.dataset.X
        np.testing.assert_array_equal(model.decision_function(own), expected)
        some = model.decision_function(own[1:4])
        np.testing.assert_allclose(some, expected[1:4], rtol=1e-14)
    strict = problem_from_arrays(
        FRAME, SIGNS, loss="logistic", bounds={"columns": 100}, scale="bounds"
    )
    model = strict.model(np.ones(2))
    np.testing.assert_allclose(
        model.decision_function(FRAME), FRAME.sum(axis=1) / 100.0
    )
    with pytest.raises(UsageError, match='^bounds.columns of X: column "age" exceeds'):
        model.decision_function(FRAME * 2.0)


def test_arrays_take_bounds_by_name_and_say_names(table):
    how = {"loss": "logistic", "intercept": 1.0}
    bounds = {"columns": {"age": 100}, "default": 70}
    data = problem_from_arrays(FRAME, SIGNS, bounds=bounds, **how).dataset
    assert data.bounds.columns.tolist() == [100.0, 70.0, 1.0]
    assert feature_names(data) == ("age", "crp", "intercept")
    given = np.array([[0.0, 100.0], [0.0, 70.0]])
    scaled = problem_from_arrays(
        FRAME, SIGNS, bounds={"columns": given}, scale="bounds", **how
    )
    assert scaled.dataset.X[:, :2].max() == 1.0
    wrong = [
        (
            {"columns": {"agee": 1}, "default": 1},
            r"^bounds.columns=agee \(did you mean",
        ),
        (
            {"columns": {"age": 10, "crp": 70}},
            '^bounds.columns of arrays: column "age"',
        ),
        ({"columns": {"age": 10}}, '^bounds.columns=.*no bound for column "crp"'),
        ({"columns": [10, 70]}, '^bounds.columns of arrays: column "age" exceeds'),
    ]
    for bad, said in wrong:
        with pytest.raises(UsageError, match=said):
            problem_from_arrays(FRAME, SIGNS, bounds=bad, **how)
    with pytest.raises(UsageError, match="^scale=bounds: must be None unless"):
        problem_from_arrays(FRAME, SIGNS, scale="bounds", **how)


def test_the_share_of_clipped_records_is_kept_with_the_arrays(table):
    """A second process reads them from the cache, and knows it, too."""
    given = {"bounds": {"columns": 1e-6}, "clip_to_bounds": True}
    first, again = table(**given), table(**given)
    assert first.clipping == again.clipping == Clipping(1.0, (0, 1, 2, 3))
    assert table(bounds={"columns": 100}).clipping is None
    none = table(bounds={"columns": 100}, clip_to_bounds=True)
    assert none.clipping == Clipping(0.0)
    targets = [[*row[:3], row[0]] for row in ROWS]
    labels = {"task": "regression", "classes": None, "positive": None}
    bounds = {"columns": 100, "label": 60}
    found = table(targets, bounds=bounds, clip_to_bounds=True, **labels)
    assert found.clipping == Clipping(2 / 6, (), True)


RECORDS = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 3))
FAR = {"columns": {"a": [0, 1e6]}, "default": [0, 2]}


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"columns": 1.0}, ""),
        ({"columns": [1.0, 1e3, 1e3]}, '"b", "c", norm'),
        ({"columns": [1.0, 1e3, 1.0], "norm": 2.0}, ""),
        ({"columns": [1.0, 1e3, 1.0], "norm": 1e3}, '"b", norm'),
        ({"norm": 1e3}, "norm"),
        ({"columns": 1.0, "label": 1e3}, "label"),
        (FAR, '"a"'),
    ],
)
@pytest.mark.parametrize("form", [pd.DataFrame, csc_array])
def test_bounds_far_above_all_records_are_told(bounds, said, form):
    """Of 1e6 times the records only an error like that of w = 0 told."""
    scale = "bounds" if bounds is FAR else None
    if scale and form is csc_array:
        return
    X = RECORDS + bool(scale)
    X = pd.DataFrame(X, columns=["a", "b", "c"]) if form is pd.DataFrame else form(X)
    how = {"bounds": bounds, "scale": scale, "loss": "squared"}
    data = problem_from_arrays(X, RECORDS[:, 0] / 2.0, **how).dataset
    told = wide_bounds_sentence(data, ["a", "b", "c"])
    if form is csc_array:  # a sparse column may be rare
        said = ", ".join(name for name in said.split(", ") if '"' not in name)
    assert told.partition("bound of ")[2].partition(":")[0] == said
    # Nothing is told of what is no record of anyone: zeros.
    none = replace(data, X=0.0 * data.X, ranges=None)
    assert '"' not in wide_bounds_sentence(none, ["a", "b", "c"])


@pytest.mark.parametrize("form", [np.array, csc_array])
def test_a_feature_that_is_the_label_is_told(form):
    y = np.sign(RECORDS[:, 0])

    def told(column, labels=y):
        X = np.column_stack([RECORDS, column, np.full(50, 0.1)])
        data = problem_from_arrays(form(X), labels, loss="squared").dataset
        return revealing_features_sentence(data, feature_names(data))

    for column in (y, 1e6 - 3.0 * y, 1e-9 * y):
        assert told(column).startswith('the label is "x3", up to')
    assert told(y + 1e-3 * RECORDS[:, 1]) == told(np.zeros(50)) == told(y, 0 * y) == ""
    numbers = RECORDS @ [1.0, 2.0, 3.0]
    assert '"x3"' in told(np.round(5.0 - numbers, 6), numbers)


# Of a column of categories at most one indicator is 1.

WORDS = {"hue": ["red", "blue", "green"], "size": ["1", "2"]}
RANGED = {"age": [0, 4], "crp": 3, "hue": 1, "size": 1}
PLAIN = [4, 3, 5, 5, 5, 5, 5]
FOUND = {"header": True, "label": "ill", "classes": ["no", "yes"], "positive": ["yes"]}
HELD = [
    ({"bounds": {"columns": 4}}, 34.0),
    ({"bounds": {"columns": PLAIN}}, 27.0),
    ({"bounds": {"columns": {"age": 4, "crp": 3}, "default": 1}}, 27.0),
    ({"bounds": {"columns": {"age": 4}, "default": 3}}, 27.0),
    ({"bounds": {"columns": RANGED}}, 27.0),
    ({"bounds": {"columns": RANGED}, "scale": "bounds"}, 4.0),
    ({"bounds": {"columns": PLAIN}, "scale": "bounds", "clip_to_bounds": True}, 4.0),
    ({"bounds": {"columns": 2}, "clip_to_bounds": True}, 10.0),
    ({"bounds": {"columns": 0.5}, "clip_to_bounds": True}, 1.0),
    ({"bounds": {"columns": 4}, "intercept": 3.0}, 43.0),
    ({"bounds": {"columns": 4, "norm": 100}}, 100.0**2),
    ({"bounds": {"columns": 4}, "test_fraction": 0.5}, 34.0),
]


def extremes(draw=None):
    """Yield every record of ends and words, or some that are drawn from within."""
    for hue, size in itertools.product(*WORDS.values()):
        for age, crp in itertools.product((0.0, 4.0), (-3.0, 3.0)):
            yield [age, crp, hue, size, "no"]
            if draw is not None:
                yield [draw.uniform(0, 4), draw.uniform(-3, 3), hue, size, "yes"]


def held(path, rows, **keys):
    lines = ["age,crp,hue,size,ill", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return load_dataset(dataset_spec("file", path=str(path), **FOUND, **keys))


@pytest.mark.parametrize("read", [False, True])
def test_indicators_of_a_column_count_one_in_the_norm(read, tmp_path):
    onehot, path = [*WORDS] if read else WORDS, tmp_path / "my.csv"
    how = {"text": [*WORDS]} if read else {}
    rows = [*extremes(np.random.default_rng(0))]
    for keys, expected in HELD:
        data = held(path, rows, onehot=onehot, **how, **keys)
        norms = [data.row_norms]
        if data.X_test is not None:
            norms.append(np.linalg.norm(data.X_test, axis=1))
        largest = np.concatenate(norms).max()
        assert data.bounds.norm**2 == pytest.approx(expected, rel=1e-14), keys
        assert largest <= data.bounds.norm * (1.0 + 1e-12), keys
        # A neighbour has the same bound, whatever its record is; it is attained.
        if "norm" not in keys["bounds"]:
            ends = held(path, [*extremes()], onehot=onehot, **how, **keys)
            assert ends.bounds.spec == data.bounds.spec, keys
            top = [4.0, 3.0] if keys["bounds"]["columns"] != 4 else [4.0, 4.0]
            longest = [[*top, "red", "2", "yes"], *rows[1:]]
            other = held(path, longest, onehot=onehot, **how, **keys)
            assert other.bounds.spec == data.bounds.spec, keys
            if "test_fraction" not in keys:
                attained = other.row_norms.max() / other.bounds.norm
                assert attained == pytest.approx(1.0, rel=1e-12), keys


def test_what_is_no_word_has_no_record_and_no_bound(tmp_path):
    rows, path = [*extremes()], tmp_path / "my.csv"
    for word in ("violet", "", "NA"):
        odd = [[*rows[0][:2], word, "1", "no"], *rows[1:]]
        for clip in (False, True):
            how = {"bounds": {"columns": 4}, "clip_to_bounds": clip, "onehot": WORDS}
            with pytest.raises(UsageError, match="not one of its categories|no value"):
                held(path, odd, **how)


def test_a_range_that_moves_zeros_of_indicators_is_clipped_to_the_norm(tmp_path):
    columns = [4, 3, [0.5, 1], [0.5, 1], [0.5, 1], 1, 1]
    how = {"bounds": {"columns": columns}, "onehot": WORDS}
    data = held(tmp_path / "my.csv", [*extremes()], clip_to_bounds=True, **how)
    assert data.bounds.norm**2 == pytest.approx(27.0, rel=1e-14)
    assert data.row_norms.max() <= data.bounds.norm * (1.0 + 1e-12)
    with pytest.raises(UsageError, match="exceeds its declared range"):
        held(tmp_path / "my.csv", [*extremes()], **how)


def test_indicators_that_are_standardised_count_as_other_columns(tmp_path):
    how = {"bounds": {"columns": 2}, "clip_to_bounds": True, "onehot": WORDS}
    for standardise in (True, "scale"):
        rows = [*extremes()]
        data = held(tmp_path / "my.csv", rows, standardise=standardise, **how)
        assert data.bounds.columns.tolist() == [2.0] * 7
        assert data.bounds.norm == np.linalg.norm(np.full(7, 2.0))


def test_indicators_without_a_header_count_one_too(tmp_path):
    path = tmp_path / "my.csv"
    lines = (",".join(map(str, [*row[:4], i % 2])) for i, row in enumerate(extremes()))
    path.write_text("\n".join(lines) + "\n")
    keys = {"onehot": {"2": WORDS["hue"], "3": [1, 2]}, "header": False}
    data = load_dataset(
        dataset_spec("file", path=str(path), bounds={"columns": 4}, **keys)
    )
    assert data.p == 7 and data.bounds.norm**2 == pytest.approx(34.0, rel=1e-14)


def test_a_share_that_was_not_sealed_is_not_taken(table):
    """What is told of cached arrays is under the same seal as they are."""
    given = {"bounds": {"columns": 1e-6}, "clip_to_bounds": True}
    first = table(**given)
    (seal,) = (paths.cache_dir() / "datasets").rglob(SEAL)
    told = json.loads(seal.read_text())
    told["told"]["share"] = 0.0
    seal.write_text(json.dumps(told))
    load._load_dataset.cache_clear()  # as in a process of its own
    assert table(**given).clipping == first.clipping == Clipping(1.0, (0, 1, 2, 3))
    assert json.loads(seal.read_text())["told"]["share"] == 1.0


def test_keys_that_are_not_given_are_in_no_identity(table, tmp_path):
    spec = dataset_spec("file", path="my.csv", **HOW)
    with_null = dataset_spec("file", path="my.csv", scale=None, **HOW)
    assert identifying_keys(spec) == identifying_keys(with_null)
    assert "scale" not in json.dumps(identifying_keys(spec))
    plain = {"bounds": {"columns": [1, 2]}, "clip_to_bounds": True}
    recipe = check_spec({**spec, **plain}).recipe
    assert recipe.key[0] == [[1.0, 2.0], None, None]
    assert replace(recipe, clip=None).key[0] is None
