import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench import registry
from dp_erm_bench.cli.line import (
    expand_values,
    parse_argument,
    quote_refused,
    read_request,
    unique_values,
)
from dp_erm_bench.errors import UsageError
from tests.loops import each


@each(
    ("argument", "values", "swept"),
    [
        ("seed=3", [3], False),
        ("seed=range(0,4)", [0, 1, 2, 3], True),
        ("seed=range(4,0,-2)", [4, 2], True),
        ("a=10,20", [10, 20], True),
        ("a=choice(x,y)", ["x", "y"], True),
        ("a=range(0,1,0.25)", [0.0, 0.25, 0.5, 0.75], True),
        ("a=float(range(1,3))", [1.0, 2.0], True),
        ("a=sort(3,1,2)", [1, 2, 3], True),
        ("a=tag(t,choice(1,2))", [1, 2], True),
        ("a=[1,2],[3,4]", [[1, 2], [3, 4]], True),
        ("a=[1,2]", [[1, 2]], False),
        ("a='x,y'", ["x,y"], False),
        ("a='x y',z", ["x y", "z"], True),
        ("a=null,true", [None, True], True),
        ("a=1,1,1.0", [1, 1.0], True),
        ("a={b:1},{b:2}", [{"b": 1}, {"b": 2}], True),
        ("loss=glob(*)", registry.names("loss"), True),
        ("algorithm=glob([greedy*,s*],exclude=s*)", ["greedy_cd"], True),
    ],
)
def test_the_whole_grammar_becomes_plain_lists(argument, values, swept):
    parsed = parse_argument(argument)
    assert parsed.values == values
    assert list(map(type, parsed.values)) == list(map(type, values))
    assert parsed.swept is swept


@pytest.mark.parametrize("delta", ["1/n^2", "'1/n^2'", "1/n^1.5", "1/n", "0.5/n^2"])
def test_powers_of_the_number_of_records_need_no_quotes(delta):
    parsed = parse_argument(f"budget.delta={delta}")
    assert parsed.values == [delta.strip("'")]
    assert parse_argument(f"budget.delta={quote_refused(delta)}") == parsed


def test_powers_are_understood_inside_a_sweep():
    assert parse_argument("budget.delta=1/n^2,1e-6,1/n").values == [
        "1/n^2",
        1e-6,
        "1/n",
    ]
    assert parse_argument("d=choice(1/n^2,1/n)").values == ["1/n^2", "1/n"]
    assert parse_argument("d=[1/n^2,~/x.py]").values == [["1/n^2", "~/x.py"]]


def test_a_shuffled_axis_keeps_its_values():
    assert sorted(parse_argument("seed=shuffle(range(0,20))").values) == list(range(20))


@each(
    ("argument", "values"),
    [
        ("dataset.path=größe.csv", ["größe.csv"]),
        ("dataset.path=a(1).csv", ["a(1).csv"]),
        ("dataset.path=it's.csv", ["it's.csv"]),
        ('dataset.path=q".csv', ['q".csv']),
        ("dataset.path=[x].csv", ["[x].csv"]),
        ("dataset.path=a=b.csv", ["a=b.csv"]),
        ("dataset.path=#a;b&c.csv", ["#a;b&c.csv"]),
        ("dataset.path=a'\\", ["a'\\"]),
        ("dataset.label=Höhe (m)", ["Höhe (m)"]),
        ("dataset.positive=ja!", ["ja!"]),
        ("results_dir=ü", ["ü"]),
        ("algorithm=gd,~/lösung.py", ["gd", "~/lösung.py"]),
        ("dataset.path=größe.csv,a(1).csv,b.csv", ["größe.csv", "a(1).csv", "b.csv"]),
        ("dataset.path='größe,1.csv'", ["größe,1.csv"]),
        ("dataset.path=a,b.csv", ["a", "b.csv"]),
        ("dataset.path=[yes,no", ["[yes,no"]),
        ("dataset.label=Blood Pressure (mmHg)", ["Blood Pressure (mmHg)"]),
        ("dataset.path=./my data (1).csv", ["./my data (1).csv"]),
        ("dataset.path=~/x.csv", ["~/x.csv"]),
        ("dataset.path=glob(3)", ["glob(3)"]),
        ("seed=range(0,", ["range(0,"]),
        ("seed=[1,2", ["[1,2"]),
        ("results_dir=${x}/y", ["${x}/y"]),
    ],
)
def test_words_of_ones_own_are_quoted_where_hydra_refuses_them(argument, values):
    parsed = parse_argument(argument)
    assert parsed.values == values and parsed.swept is (len(values) > 1)


@each(
    ("argument", "said"),
    [
        ("dataset.path=a.csv,", "a value is missing beside a comma"),
        ("seed=range(0,0)", "empty"),
        ("dataset=glob(zz*)", "empty"),
        ("seed=range(0,5,0)", "zero"),
        ("seed=interval(0,1)", "range(start,stop,step)"),
        ("+seed=1", "without + or ~"),
        ("++seed=1", "without + or ~"),
        ("~seed", "without + or ~"),
        ("dataset@other=log1", "did you mean dataset?"),
        ("=3", "not understood"),
        ("seed", "not understood"),
    ],
)
def test_what_cannot_be_enumerated_is_refused_in_one_line(argument, said):
    with pytest.raises(UsageError) as caught:
        read_request([argument])
    assert said in str(caught.value)
    assert argument.partition("=")[0] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [3, None, [1, 2], "plain", "1/n^2", "data", 0.5])
def test_values_of_a_block_that_are_no_sweep_stay(value):
    assert expand_values("seed", value) == value


def test_strings_of_a_block_are_the_grammar():
    assert expand_values("seed", "range(3,6)") == [3, 4, 5]
    assert expand_values("budget.epsilon", "0.1,1") == [0.1, 1]
    assert expand_values("budget.delta", "1/n^2,1/n") == ["1/n^2", "1/n"]


def test_a_wrong_string_of_a_block_names_its_key():
    with pytest.raises(UsageError, match="empty"):
        expand_values("tune.seeds", "range(5,5)")


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_repetitions_are_dropped_in_order(values):
    kept = unique_values(values)
    assert kept == sorted(set(values), key=values.index)


@given(st.lists(st.one_of(st.integers(), st.booleans(), st.none()), min_size=2))
def test_a_list_of_literals_comes_back(values):
    text = ",".join(
        {True: "true", False: "false", None: "null"}.get(v, str(v))
        if isinstance(v, bool) or v is None
        else str(v)
        for v in values
    )
    assert parse_argument(f"a={text}").values == unique_values(values)


@given(st.text(max_size=30))
def test_no_text_gives_a_traceback(text):
    try:
        parsed = parse_argument(text)
    except UsageError as error:
        assert str(error).strip()
    else:
        assert parsed.values
