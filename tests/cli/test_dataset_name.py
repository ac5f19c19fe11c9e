"""`dataset=libsvm dataset.name=a9a`: the name survives as `libsvm:a9a`."""

import pytest

from dp_erm_bench.cli.compose import member, place
from dp_erm_bench.cli.grammar import parse
from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.expand import _datasets


@pytest.mark.parametrize(
    ("base", "name", "expected"),
    [
        ("libsvm", "a9a", "libsvm:a9a"),
        ("libsvm:w8a", "a9a", "libsvm:a9a"),
        ("log1", "log1", "log1"),
    ],
)
def test_a_member_is_named_after_its_group(base, name, expected):
    assert member(base, name) == expected


@pytest.mark.parametrize("names", [["a9a"], ["a9a", "w8a"]])
def test_names_are_an_axis(names):
    block = {"dataset": {"name": "libsvm", "standardise": False}}
    place(block, parse(f"dataset.name={','.join(names)}"))
    found = list(_datasets(block))
    assert [name for name, _ in found] == [f"libsvm:{name}" for name in names]
    assert all(given == {"standardise": False} for _, given in found)


def test_a_name_in_another_dataset_is_refused():
    block = {"dataset": {"name": "log1"}}
    place(block, parse("dataset.name=a9a"))
    with pytest.raises(UsageError, match="log1 is one dataset"):
        list(_datasets(block))
