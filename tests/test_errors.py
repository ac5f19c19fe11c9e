"""Test errors: their classes, and that messages survive a worker."""

import inspect
import pickle

import pytest

from dp_erm_bench import errors

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__
]


def test_wrong_input_is_a_value_error_and_a_spent_budget_is_not():
    assert issubclass(errors.UsageError, ValueError)
    assert issubclass(errors.DataUnavailable, errors.UsageError)
    assert issubclass(errors.Unsupported, errors.UsageError)
    assert issubclass(errors.BudgetExhausted, RuntimeError)
    assert not issubclass(errors.BudgetExhausted, errors.UsageError)


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_say_their_sentence_and_cross_processes(kind):
    copy = pickle.loads(pickle.dumps(kind("key=value: must be small")))
    assert type(copy) is kind and str(copy) == "key=value: must be small"
    assert inspect.getdoc(kind)
